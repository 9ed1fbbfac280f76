"""Continual runs that are kept: each in a file of its own, beside what it was set to.

A run that is done is written whole or not at all, so that an evaluation that was stopped goes on
where it was. One that was made with other settings is never taken for this one's.
"""

import json
import os
import re
from collections.abc import Mapping
from dataclasses import asdict
from functools import partial
from hashlib import blake2b, sha256
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import numpy as np

from onepass.errors import ParameterError, SourceError
from onepass.evaluate.continual_course import Run
from onepass.evaluate.infinite import spelt
from onepass.serialization.atomic import replacing, writing

__all__ = ["Shelf", "described"]

_FORMAT = 1
_WHERE = "op.evaluate.continual"
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
_SHOWN = 80  # letters of a setting in a message


class Shelf:
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
        with writing(self.path, _WHERE):
            self.path.mkdir(parents=True, exist_ok=True)

    def find(
        self, model: str, seed: int, settings: Mapping[str, Any], size: tuple[int, int]
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
            tree = json.loads(path.read_text(encoding="utf-8"))
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

    def keep(self, run: Run, settings: Mapping[str, Any]) -> None:
        """Write a run that is done."""
        tree = {"format": _FORMAT, "settings": dict(settings), "run": spelt(asdict(run))}
        path = self._of(run.model, run.seed)
        with writing(path, _WHERE), replacing(path) as temporary:
            text = json.dumps(tree, ensure_ascii=False, allow_nan=False)
            temporary.write_text(text + "\n", encoding="utf-8")

    def _of(self, model: str, seed: int) -> Path:
        letters = re.sub(r"[^A-Za-z0-9]+", "-", model).strip("-").lower()[:40]
        # names may differ in other letters alone
        tail = "" if letters == model else f"-{sha256(model.encode()).hexdigest()[:6]}"
        return self.path / f"{letters}{tail}-seed{seed}.json"


def _opened(tree: dict[str, Any], of: tuple[str, int]) -> tuple[dict[str, Any], Run]:
    if tree["format"] != _FORMAT:
        raise ValueError("another format")
    run = Run.restored(tree["run"])
    if (run.model, run.seed) != of:
        raise ValueError(f"a run of {run.model!r} with seed {run.seed}")
    return dict(tree["settings"]), run


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def described(model: Any) -> dict[str, str]:
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


def _told(value: Any) -> str:
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


def _plain(values: tuple[Any, ...]) -> bool:
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
