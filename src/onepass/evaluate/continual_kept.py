"""Continual runs that are kept: each in a file of its own, beside what it was set to.

A run that is done is written whole or not at all, so that an evaluation that was stopped goes on
where it was. One that was made with other settings is never taken for this one's.
"""

import json
import os
import re
from collections.abc import Mapping
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path
from typing import Any

from onepass.durable import replacing, writing
from onepass.errors import ParameterError, SourceError
from onepass.evaluate.continual_course import Run
from onepass.evaluate.infinite import spelt

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
        self.path = Path(path)
        with writing(self.path, _WHERE):
            self.path.mkdir(parents=True, exist_ok=True)

    def find(self, model: str, seed: int, settings: Mapping[str, Any]) -> Run | None:
        """A run that is done, or None.

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
            before, run = _opened(tree)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError, KeyError) as wrong:
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


def _opened(tree: dict[str, Any]) -> tuple[dict[str, Any], Run]:
    if tree["format"] != _FORMAT:
        raise ValueError("another format")
    return dict(tree["settings"]), Run.restored(tree["run"])


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def described(model: Any) -> dict[str, str]:
    """A learner's class and settings as text, the same for all that are made alike."""
    if hasattr(model, "get_params"):
        told = dict(sorted(model.get_params(deep=True).items()))
    else:
        plain = (int, float, str, bool, type(None), tuple)
        known = {k: v for k, v in getattr(model, "__dict__", {}).items() if not k.startswith("_")}
        told = {k: v for k, v in known.items() if isinstance(v, plain) or k == "module"}
    settings = {f"model.{name}": _ADDRESS.sub("", repr(value)) for name, value in told.items()}
    return {"model": f"{type(model).__module__}.{type(model).__qualname__}", **settings}
