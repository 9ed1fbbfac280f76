"""Catalogue: the classes that a model file may name, and what such a class is made of.

They are found in the lists of onepass's own rooms: ``__all__``, and ``STATES`` for what is learned
but not public. Nothing is added here when a learner is.
"""

import inspect
import os
from dataclasses import is_dataclass
from importlib import import_module
from typing import Any, NamedTuple

from sklearn.base import BaseEstimator

__all__ = ["Entry", "can_hold", "can_learn", "entries"]

_ROOMS = (  # each may hold what is of itself and of those below
    "onepass.pipeline",
    "onepass.clusterers",
    "onepass.learners",
    "onepass.features",
    "onepass.forgetting",
    "onepass.memory",
    "onepass.losses",
    "onepass.centering",
)
_MISSES = "onepass.features"  # nan is a feature's trade, and a bug of a learner


class Entry(NamedTuple):
    """A class that a model file may name."""

    cls: Any
    """An estimator of scikit-learn's kind, or a dataclass."""
    room: str
    """The package or module that lists it."""
    arguments: tuple[str, ...]
    """Of its constructor; each is also an attribute."""
    rest: str | None
    """The name of its ``*arguments``, if it takes any."""

    @property
    def estimates(self) -> bool:
        """Whether it learns: then what it learned is in attributes that end with ``_``."""
        return issubclass(self.cls, BaseEstimator)

    @property
    def finite(self) -> bool:
        """Whether what it learned never holds nan."""
        return self.room != _MISSES

    @property
    def outside(self) -> dict[str, str]:
        """The arguments that no file holds, with what each is."""
        return dict(getattr(self.cls, "outside", {}))

    def handed(self, name: str, value: Any) -> bool:
        """Whether who loads a file hands an argument in: a function, or what no file holds."""
        return callable(value) or (
            name in self.outside and not isinstance(value, (str, type(None)))
        )

    def plain(self, name: str, value: Any) -> Any:
        """An argument; the path of what no file holds as text."""
        path = name in self.outside and isinstance(value, os.PathLike)
        return os.fspath(value) if path else value


def entries() -> dict[str, Entry]:
    """The classes that a model file may name, by name."""
    found: dict[str, Entry] = {}
    for room in _ROOMS:
        module = import_module(room)
        listed = [getattr(module, name) for name in getattr(module, "__all__", ())]
        for cls in (*listed, *getattr(module, "STATES", ())):
            if _can_be_saved(cls):
                found.setdefault(cls.__name__, _entry(cls, room))
    return found


def can_hold(outer: Entry | None, inner: Entry) -> bool:
    """Whether an object of one class can be part of an object of another."""
    return outer is None or _ROOMS.index(outer.room) <= _ROOMS.index(inner.room)


def can_learn(cls: type, name: str) -> bool:
    """Whether an attribute of this name can be what an object of this class learned."""
    if not name.isidentifier() or name.startswith("_") or not name.endswith("_"):
        return False
    there = inspect.getattr_static(cls, name, None)
    return not (callable(there) or hasattr(there, "__get__"))


def _can_be_saved(cls: Any) -> bool:
    return (
        isinstance(cls, type)
        and not inspect.isabstract(cls)
        and (issubclass(cls, BaseEstimator) or is_dataclass(cls))
    )


def _entry(cls: type, room: str) -> Entry:
    signature = inspect.signature(cls).parameters.values()
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    rest = [p.name for p in signature if p.kind is inspect.Parameter.VAR_POSITIONAL]
    arguments = tuple(p.name for p in signature if p.kind in named)
    return Entry(cls, room, arguments, rest[0] if rest else None)
