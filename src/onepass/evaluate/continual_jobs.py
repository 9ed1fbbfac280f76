"""Jobs of a continual evaluation, run one after the other or in several processes.

A run depends only on its learner and its seed, so its result is the same in any process. Each
finished run can be stored atomically in a separate file with its settings. An evaluation that was
stopped continues with the missing runs; stored runs with other settings raise an error.
"""

from __future__ import annotations

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
    ContinualRun,
    Rules,
    Run,
    from_factory,
    is_learner,
    run_experiences,
    takes_seed,
    unsuitable_type,
)
from onepass.evaluate.report import FORMAT, from_json, to_json
from onepass.evaluate.resume import differences
from onepass.parallel import run_parallel
from onepass.serialization.atomic import atomic_write, write_errors


@dataclass(frozen=True)
class Job:
    """One learner with one seed.

    Parameters
    ----------
    model : str
        The name of the learner.
    seed : int
        The random seed.
    """

    model: str
    seed: int


@dataclass(frozen=True)
class Setting:
    """The models, experiences and rules of all runs.

    Parameters
    ----------
    models : mapping of str to learner or factory
    experiences : Experiences, ExperienceList, or callable
        The experiences, or a function of a seed that returns them.
    rules : Rules
    key : str
        Identifies copies of this object in other processes.
    """

    models: Mapping[str, Any] = field(compare=False)
    experiences: Any = field(compare=False)
    rules: Rules = field(compare=False)
    key: str = field(default_factory=lambda: uuid4().hex)

    def source(self, seed: int) -> Any:
        """Return the experiences for a seed."""
        given = self.experiences
        if hasattr(given, "test_sets"):
            return given
        found = from_factory(given, seed)
        if not hasattr(found, "test_sets"):
            raise ParameterError(
                "a function of `experiences` must return op.stream.Experiences, got "
                f"{type(found).__name__}. Return, for example, op.stream.experiences(X, y)."
            )
        return found

    def model(self, job: Job) -> Any:
        """Create the learner of a run."""
        given = self.models[job.model]
        model = deepcopy(given) if is_learner(given) else from_factory(given, job.seed)
        if not is_learner(model):
            raise ParameterError(
                "a function of `models` must return a learner, with `predict` and `partial_fit` or "
                f"`learn`, got {model!r} from {job.model!r}. Return an instance."
            )
        kind = unsuitable_type(model, self.rules.task)
        if kind is not None:
            raise ParameterError(
                f"models must suit the targets, which are for {self.rules.task}, got "
                f"{job.model!r}, a {kind}. Choose another model, for op.nn learners of "
                "classes loss='one_hot'. Targets of dtype float are for regression, "
                "all others are classes."
            )
        return model

    @property
    def drawn(self) -> bool:
        """Whether the experiences or a model depend on the seed."""
        makers = [self.experiences, *self.models.values()]
        return any(
            not is_learner(each) and not hasattr(each, "test_sets") and takes_seed(each)
            for each in makers
        )


def results(
    jobs: Sequence[Job], setting: Setting, processes: int, notify: Callable[[Job, int], object]
) -> Iterator[tuple[Job, Run, Exception | None]]:
    """Run jobs; yield each result when it is finished.

    Parameters
    ----------
    jobs : sequence of Job
        The jobs, ordered by seed, so that the experiences for a seed are created once.
    setting : Setting
        The setting of all jobs.
    processes : int
        Number of processes; 1 for this process.
    notify : callable
        Called with a job and the number of experiences learned: after each experience or, with
        several processes, after each run.

    Yields
    ------
    job : Job
    run : Run
    failed : Exception, or None
        The error that stopped the learner.

    Raises
    ------
    ParameterError
        If the setting cannot be sent to other processes.
    ProcessError
        If a process ended before its run was finished.
    """
    here = processes == 1 or len(jobs) < 2
    function = partial(_run, setting, notify if here else None)
    try:
        for job, (run, failed) in run_parallel(function, jobs, processes):
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
    description = f"{job.model!r} with seed {job.seed}"
    run = ContinualRun(setting.model(job), setting.rules, labels, description)
    run_experiences(run, source, None if notify is None else partial(notify, job))
    return run.result(job.model, job.seed, source.when), run.failed


@dataclass(frozen=True)
class _StoredRun:
    """The file of a finished run."""

    settings: dict[str, Any]
    run: Run


_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")


class RunFolder:
    """A folder of finished runs.

    Parameters
    ----------
    path : path
        The folder, which is created if it does not exist.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        with write_errors(self.path):
            self.path.mkdir(parents=True, exist_ok=True)

    def find(
        self, model: str, seed: int, settings: Mapping[str, object], size: tuple[int, int]
    ) -> Run | None:
        """Return the stored run of a model and seed, or None.

        Raises
        ------
        ParameterError
            If the run has other settings.
        SourceError
            If the file is damaged, or its matrix has another size.
        """
        path = self._file(model, seed)
        now = {**settings, "name": model, "seed": seed}
        try:
            stored = from_json(path.read_text(encoding="utf-8"), _StoredRun)
            run = stored.run
            before = {**stored.settings, "name": run.model, "seed": run.seed}
            changed = "; ".join(differences(before, now))
            if not changed:
                run.check(size)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, RecursionError) as error:
            raise SourceError(
                f"{path} must be a stored run, got {type(error).__name__}: {error}. "
                "Delete the file to repeat the run."
            ) from error
        if changed:
            raise ParameterError(
                f"`path` must contain runs with the same settings, got {path.name}, in "
                f"which {changed}. Use another folder, or delete that file."
            )
        return run

    def write(self, run: Run, settings: Mapping[str, object]) -> None:
        """Store a finished run."""
        text = to_json({"format": FORMAT, **asdict(_StoredRun(dict(settings), run))})
        path = self._file(run.model, run.seed)
        with write_errors(path), atomic_write(path) as temporary:
            temporary.write_text(text + "\n", encoding="utf-8")

    def _file(self, model: str, seed: int) -> Path:
        letters = re.sub(r"[^A-Za-z0-9]+", "-", model).strip("-").lower()[:40]
        # names may differ only in replaced characters
        tail = "" if letters == model else f"-{sha256(model.encode()).hexdigest()[:6]}"
        return self.path / f"{letters}{tail}-seed{seed}.json"


def model_settings(model: object) -> dict[str, str]:
    """Return the class and settings of a learner as text.

    Learners with equal constructor arguments have equal text: arrays and functions are described by
    their contents. Learned attributes and the initial weights of a network are not settings.
    """
    if hasattr(model, "get_params"):
        found = dict(sorted(model.get_params(deep=True).items()))
    else:
        plain = (int, float, str, bool, type(None), tuple, list, dict, FunctionType, partial)
        public = {k: v for k, v in getattr(model, "__dict__", {}).items() if not k.startswith("_")}
        found = {k: v for k, v in public.items() if isinstance(v, plain) or k == "module"}
    settings = {f"model.{name}": _as_text(value) for name, value in found.items()}
    return {"model": f"{type(model).__module__}.{type(model).__qualname__}", **settings}


def _as_text(value: object) -> str:
    """Convert a setting to text without abbreviations, unlike NumPy's text of long arrays."""
    if isinstance(value, np.ndarray) and value.dtype.kind != "O":
        digest = blake2b(np.ascontiguousarray(value).tobytes(), digest_size=8).hexdigest()
        return f"array of shape {value.shape}, {value.dtype}, {digest}"
    if isinstance(value, FunctionType):
        code = (_code(value.__code__), value.__defaults__, value.__kwdefaults__)
        cells = [cell.cell_contents for cell in value.__closure__ or ()]
        # functions may refer to each other: use only names
        closure = [v.__qualname__ if isinstance(v, FunctionType) else _as_text(v) for v in cells]
        text = _ADDRESS.sub("", f"{code}{closure}")
        digest = blake2b(text.encode(), digest_size=8).hexdigest()
        return f"function {value.__module__}.{value.__qualname__}, {digest}"
    if isinstance(value, partial):
        return f"partial {[_as_text(part) for part in (value.func, value.args, value.keywords)]}"
    if type(value) is list or (type(value) is tuple and not _plain(value)):
        return f"[{', '.join(map(_as_text, value))}]"
    if type(value) is dict:
        return f"{{{', '.join(f'{name!r}: {_as_text(part)}' for name, part in value.items())}}}"
    return _ADDRESS.sub("", repr(value))


def _plain(values: tuple[object, ...]) -> bool:
    return not any(isinstance(v, (np.ndarray, FunctionType, partial, list, dict)) for v in values)


def _code(code: CodeType) -> Any:
    """Return the bytecode and constants of a function, which exclude line numbers."""
    inner = [
        _code(each) if isinstance(each, CodeType)
        else sorted(map(repr, each)) if isinstance(each, frozenset)
        else each
        for each in code.co_consts
    ]  # fmt: skip
    return code.co_code, inner, code.co_names, code.co_varnames
