"""Jobs of a continual evaluation, run one after the other or in several processes.

A run depends on its learner and its seed alone, so its result is the same in any process. Each
finished run can be stored in a file of its own with its settings, written atomically: an evaluation
that was stopped continues with the missing runs, and runs of other settings are refused.
"""

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass, field
from functools import lru_cache, partial
from hashlib import blake2b, sha256
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any
from uuid import uuid4

import numpy as np

from onepass.errors import ParameterError, SourceError
from onepass.evaluate.continual_run import (
    Course,
    Rules,
    Run,
    is_learner,
    made,
    misplaced,
    takes_seed,
    through,
)
from onepass.evaluate.parallel import run_parallel
from onepass.evaluate.report import FORMAT, infinities_as_text, loaded, restored
from onepass.serialization import former
from onepass.serialization.atomic import atomic_write, write_errors

__all__ = ["Job", "Progress", "RunFolder", "Setting", "described", "results"]


_WHERE = "op.evaluate.continual"


@dataclass(frozen=True)
class Job:
    """One learner with one seed.

    Parameters
    ----------
    model : str
        Its name.
    seed : int
        Of what is drawn.
    """

    model: str
    seed: int


@dataclass(frozen=True)
class Progress:
    """How far an evaluation has come.

    Parameters
    ----------
    model : str
        Which learner.
    seed : int
        In which run.
    experience : int
        How many experiences it has learned.
    done, total : int
        Experiences learned in all runs, and to learn; of an iterator, those that have come.
    """

    model: str
    seed: int
    experience: int
    done: int
    total: int


@dataclass(frozen=True)
class Setting:
    """What all runs have in common.

    Parameters
    ----------
    models : mapping of str to learner or factory
    experiences : Experiences, Listed, or callable
        What is learned, or what makes it of a seed.
    rules : Rules
    key : str
        The same for copies in other processes, which are equal.
    """

    models: Mapping[str, Any] = field(compare=False)
    experiences: Any = field(compare=False)
    rules: Rules = field(compare=False)
    key: str = field(default_factory=lambda: uuid4().hex)

    def source(self, seed: int) -> Any:
        """What is learned with a seed."""
        given = self.experiences
        if hasattr(given, "test_sets"):
            return given
        found = made(given, seed, _WHERE)
        if not hasattr(found, "test_sets"):
            raise ParameterError(
                f"{_WHERE}: what makes `experiences` must return op.stream.Experiences, got "
                f"{type(found).__name__}. Return one of op.stream's, or op.stream.experiences(…)."
            )
        return found

    def model(self, job: Job) -> Any:
        """A learner of its own for a run."""
        given = self.models[job.model]
        model = deepcopy(given) if is_learner(given) else made(given, job.seed, _WHERE)
        if not is_learner(model):
            raise ParameterError(
                f"{_WHERE}: a function of `models` must return a learner, with `predict` and "
                f"`partial_fit` or `learn`, got {model!r} of {job.model!r}. Return an instance."
            )
        wrong = misplaced(model, self.rules.task)
        if wrong is not None:
            raise ParameterError(
                f"{_WHERE}: models must do what the answers ask for, {self.rules.task}, got "
                f"{job.model!r}, a {wrong}. Real numbers (of dtype float) are regression, all else "
                "is classes."
            )
        return model

    @property
    def drawn(self) -> bool:
        """Whether a seed makes any difference."""
        makers = [self.experiences, *self.models.values()]
        return any(
            not is_learner(each) and not hasattr(each, "test_sets") and takes_seed(each)
            for each in makers
        )


def results(
    jobs: Sequence[Job], setting: Setting, processes: int, notify: Callable[[Job, int], object]
) -> Iterator[tuple[Job, Run, Exception | None]]:
    """Each run when it is done.

    Parameters
    ----------
    jobs : sequence of Job
        Those of a seed together, so that its experiences are made once.
    setting : Setting
        What they have in common.
    processes : int
        1 for this one alone.
    notify : callable
        Called with a job and the number of experiences that it has learned: after each experience,
        or, with several processes, after each run.

    Yields
    ------
    job : Job
    run : Run
    failed : Exception, or None
        Why the learner could not go on.

    Raises
    ------
    ParameterError
        If the setting cannot be sent to other processes.
    ProcessError
        If one of these ended before its run was done.
    """
    here = processes == 1 or len(jobs) < 2
    function = partial(_run, setting, notify if here else None)
    try:
        for job, (run, failed) in run_parallel(function, jobs, processes, where=_WHERE):
            if not here:
                notify(job, len(run.matrix))
            yield job, run, failed
    finally:
        _source.cache_clear()


@lru_cache(maxsize=1)
def _source(setting: Setting, seed: int) -> Any:
    return setting.source(seed)


def _run(
    setting: Setting, notify: Callable[[Job, int], object] | None, job: Job
) -> tuple[Run, Exception | None]:
    source = _source(setting, job.seed)
    labels = np.array(source.classes) if source.classes else None
    called = f"{job.model!r} with seed {job.seed}"
    course = Course(setting.model(job), setting.rules, labels, called)
    through(course, source, None if notify is None else partial(notify, job))
    return course.run(job.model, job.seed, source.when), course.failed


_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
_SHOWN = 80  # letters of a setting in a message


class RunFolder:
    """A folder of runs.

    Parameters
    ----------
    path : path
        Made if it is not there.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        if not isinstance(path, (str, os.PathLike)):
            raise ParameterError(
                f"{_WHERE}: `path` must be a folder in which runs are kept, got {path!r}. Name one."
            )
        self.path = Path(path)
        with write_errors(self.path, _WHERE):
            self.path.mkdir(parents=True, exist_ok=True)

    def find(
        self, model: str, seed: int, settings: Mapping[str, object], size: tuple[int, int]
    ) -> Run | None:
        """A run that is done, with a matrix of this size, or None.

        Raises
        ------
        ParameterError
            If it was made with other settings.
        SourceError
            If the file is damaged.
        """
        path = self._of(model, seed)
        try:
            tree = loaded(path.read_text(encoding="utf-8"))
            before, run = _opened(tree, (model, seed))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError, KeyError, RecursionError) as wrong:
            raise SourceError(
                f"{_WHERE}: {path} must be a run that was kept, got {type(wrong).__name__}: "
                f"{wrong}. Remove it, and it is made again."
            ) from wrong
        changed = [key for key in {**before, **settings} if before.get(key) != settings.get(key)]
        if changed:
            told = "; ".join(
                f"{key} was {_short(before.get(key))} and is {_short(settings.get(key))}"
                for key in changed
            )
            raise ParameterError(
                f"{_WHERE}: `path` must hold runs of the same settings, got {path.name}, of which "
                f"{told}. Give another folder, or remove that file."
            )
        if (len(run.matrix), len(run.before)) != size:
            raise SourceError(
                f"{_WHERE}: {path} must be a run of {size[0]} experiences and {size[1]} tests, got "
                f"{len(run.matrix)} and {len(run.before)}. Remove it, and it is made again."
            )
        return run

    def keep(self, run: Run, settings: Mapping[str, object]) -> None:
        """Write a run that is done."""
        tree = {
            "format": FORMAT,
            "settings": dict(settings),
            "run": infinities_as_text(asdict(run)),
        }
        path = self._of(run.model, run.seed)
        with write_errors(path, _WHERE), atomic_write(path) as temporary:
            text = json.dumps(tree, ensure_ascii=False, allow_nan=False)
            temporary.write_text(text + "\n", encoding="utf-8")

    def _of(self, model: str, seed: int) -> Path:
        letters = re.sub(r"[^A-Za-z0-9]+", "-", model).strip("-").lower()[:40]
        # names may differ in other letters alone
        tail = "" if letters == model else f"-{sha256(model.encode()).hexdigest()[:6]}"
        return self.path / f"{letters}{tail}-seed{seed}.json"


def _opened(tree: dict[str, Any], of: tuple[str, int]) -> tuple[dict[str, Any], Run]:
    run = restored(tree["run"], Run)
    run.check()
    if (run.model, run.seed) != of:
        raise ValueError(f"a run of {run.model!r} with seed {run.seed}")
    return former.current_paths(tree["settings"]), run


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def described(model: object) -> dict[str, str]:
    """A learner's class and settings as text, the same for all that are made alike.

    Arrays and functions among settings are told by what they hold. What was learned is no setting,
    nor is what a network's weights begin with.
    """
    if hasattr(model, "get_params"):
        told = dict(sorted(model.get_params(deep=True).items()))
    else:
        plain = (int, float, str, bool, type(None), tuple, list, dict, FunctionType, partial)
        known = {k: v for k, v in getattr(model, "__dict__", {}).items() if not k.startswith("_")}
        told = {k: v for k, v in known.items() if isinstance(v, plain) or k == "module"}
    settings = {f"model.{name}": _told(value) for name, value in told.items()}
    return {"model": f"{type(model).__module__}.{type(model).__qualname__}", **settings}


def _told(value: object) -> str:
    """A setting as text that says all of it: numpy's own leaves numbers of long arrays out."""
    if isinstance(value, np.ndarray) and value.dtype.kind != "O":
        held = blake2b(np.ascontiguousarray(value).tobytes(), digest_size=8).hexdigest()
        return f"array of shape {value.shape}, {value.dtype}, {held}"
    if isinstance(value, FunctionType):
        does = (_code(value.__code__), value.__defaults__, value.__kwdefaults__)
        known = [cell.cell_contents for cell in value.__closure__ or ()]
        # one that is known to another may know that one in turn
        kept = [v.__qualname__ if isinstance(v, FunctionType) else _told(v) for v in known]
        text = _ADDRESS.sub("", f"{does}{kept}")
        held = blake2b(text.encode(), digest_size=8).hexdigest()
        return f"function {value.__module__}.{value.__qualname__}, {held}"
    if isinstance(value, partial):
        return f"partial {[_told(part) for part in (value.func, value.args, value.keywords)]}"
    if type(value) is list or (type(value) is tuple and not _plain(value)):
        return f"[{', '.join(map(_told, value))}]"
    if type(value) is dict:
        return f"{{{', '.join(f'{name!r}: {_told(part)}' for name, part in value.items())}}}"
    return _ADDRESS.sub("", repr(value))


def _plain(values: tuple[object, ...]) -> bool:
    return not any(isinstance(v, (np.ndarray, FunctionType, partial, list, dict)) for v in values)


def _code(code: CodeType) -> Any:
    """What a function does, whatever stands around it in its file."""
    inner = [
        _code(each) if isinstance(each, CodeType)
        else sorted(map(repr, each)) if isinstance(each, frozenset)
        else each
        for each in code.co_consts
    ]  # fmt: skip
    return code.co_code, inner, code.co_names, code.co_varnames
