"""Learned attributes of an object, and their size in bytes.

A learner may move its learned attributes into a compiled object, ``_single``, which then is their
only owner. :class:`StateAttribute` and :class:`RowCounter` are the descriptors of such attributes:
reading them returns copies, and setting one of them moves all of them back to the instance. The
owner's method ``_read(compiled, name)`` returns the copy of an attribute.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from onepass.errors import NotFittedError
from onepass.estimators import BaseEstimator


def not_fitted(owner: object) -> NotFittedError:
    """Return the error for a learned attribute that is read before the first row."""
    kind = type(owner).__name__
    return NotFittedError(
        f"this {kind} is not fitted yet: it has learned no row. Call fit, partial_fit or "
        "learn_one first.",
        kind,
    )


class UnfittedAttribute:
    """A learned attribute of instances, which raises NotFittedError before the first row.

    A ``__getattr__`` would do the same for all attributes, but slows down every access to any.
    """

    def __set_name__(self, cls: type, name: str) -> None:
        self.name = name

    def __get__(self, owner: Any, cls: type | None = None) -> Any:
        if owner is None:
            return self
        if "rows_seen_" in vars(owner):
            raise AttributeError(f"{type(owner).__name__!r} object has no attribute {self.name!r}")
        raise not_fitted(owner)


class StateAttribute:
    """A learned attribute that is in the instance or in its compiled state."""

    copied = True  # whether a compiled state contains it
    saved = False  # whether files contain it, if a compiled state does not

    def in_file(self, owner: Any) -> Any:
        """The value in files."""
        return getattr(owner, self.name)

    def __set_name__(self, cls: type, name: str) -> None:
        self.name = name

    def __get__(self, owner: Any, cls: type | None = None) -> Any:
        if owner is None:
            return self
        own = owner.__dict__
        if self.name in own:
            return own[self.name]
        compiled = own.get("_single")
        if compiled is not None:
            value = owner._read(compiled, self.name)  # noqa: SLF001  the protocol of owners
            if isinstance(value, np.ndarray):
                value.flags.writeable = False  # changes of a copy would be lost
            return value
        raise owner._missing(self.name)  # noqa: SLF001

    def __set__(self, owner: Any, value: object) -> None:
        owner._decompile()  # noqa: SLF001
        owner.__dict__[self.name] = value


class RowCounter(StateAttribute):
    """A learned count: the value in the instance plus that of the compiled state.

    Parameters
    ----------
    counted : str
        The attribute of the compiled state.
    """

    copied = False

    def __init__(self, counted: str = "seen") -> None:
        self.counted = counted

    def __get__(self, owner: Any, cls: type | None = None) -> Any:
        if owner is None:
            return self
        own = owner.__dict__
        if self.name not in own:
            raise owner._missing(self.name)  # noqa: SLF001
        return own[self.name] + getattr(own.get("_single"), self.counted, 0)

    def __set__(self, owner: Any, value: Any) -> None:
        own = owner.__dict__
        own[self.name] = value - getattr(own.get("_single"), self.counted, 0)


def learned(thing: Any) -> dict[str, Any]:
    """Return the learned attributes in files, whose names end with an underscore.

    A compiled state comes last, since restoring it requires the others.

    Raises
    ------
    NotFittedError
        If the object is a frozen copy, which does not have all of them.
    """
    own = {name: getattr(thing, name) for name in _learned_names(thing)}
    compiled = vars(thing).get("_single")
    if hasattr(compiled, "copy"):  # the owner of the state
        return {**own, **thing._read_all(compiled)}  # noqa: SLF001  the protocol of owners
    if not hasattr(thing, "rows_seen_"):
        return own
    found = _descriptors(thing.__class__).items()
    saved = {name: value for name, value in found if value.copied or value.saved}
    return own | {name: value.in_file(thing) for name, value in saved.items()}


def forget(thing: Any) -> None:
    """Remove the learned attributes, in one assignment."""
    gone = {*_learned_names(thing), "_single", "_frozen", *getattr(thing, "_derived", ())}
    thing.__dict__ = {name: value for name, value in vars(thing).items() if name not in gone}


def _learned_names(thing: Any) -> list[str]:
    """The names of the learned attributes in an instance."""
    return [name for name in vars(thing) if name.endswith("_") and not name.startswith("_")]


def copied_attributes(thing: Any) -> list[str]:
    """Return the names of the attributes that a compiled state contains."""
    found = _descriptors(thing.__class__).items()
    return [name for name, value in found if value.copied]


def counters(thing: Any) -> dict[str, str]:
    """Return the counters, and the attribute of the compiled state that each of them adds."""
    found = _descriptors(thing.__class__).items()
    return {name: value.counted for name, value in found if isinstance(value, RowCounter)}


@cache
def _descriptors(cls: type) -> dict[str, StateAttribute]:
    """The descriptors of learned attributes of a class, by name."""
    found = {name: value for base in reversed(cls.__mro__) for name, value in vars(base).items()}
    return {name: value for name, value in found.items() if isinstance(value, StateAttribute)}


def nbytes(thing: object) -> int:
    """Return the total bytes of arrays in learned attributes, including nested objects."""
    if isinstance(thing, (list, tuple)):
        return sum(nbytes(part) for part in thing)
    if isinstance(thing, dict):
        return sum(nbytes(part) for part in thing.values())
    if isinstance(thing, BaseEstimator):
        own = vars(thing)
        size = nbytes(own.get("_single")) + (own.get("_frozen") or 0)
        return size + sum(nbytes(value) for name, value in own.items() if name.endswith("_"))
    if hasattr(thing, "nbytes"):
        return int(thing.nbytes)
    if hasattr(thing, "__dataclass_fields__"):
        return sum(nbytes(getattr(thing, name)) for name in thing.__dataclass_fields__)
    return 0
