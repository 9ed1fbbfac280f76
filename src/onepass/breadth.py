"""Breadth: how far a learner may grow, where others send it rows.

What least squares remember takes the square of their features: a row of a hundred kilobytes may ask
for gigabytes. And a text may become a thousand numbers. Whoever serves a learner says how many
features it may have; then rows are bounded too by what they come to. Classes and outputs may be as
many, for each row has a number for each of them; and labels are short, for each answer takes the
room of the longest.
"""

import os
import warnings
from contextlib import suppress
from contextvars import ContextVar
from pathlib import Path

from onepass.errors import LabelError, LargeStateWarning, ShapeError

__all__ = ["bounded", "hold_breadth", "hold_labels", "hold_square", "hold_values"]

_MOST: ContextVar[int | None] = ContextVar("most_features", default=None)
_VALUES = 1 << 24  # numbers that rows may come to at once, of 8 bytes each
_LABEL = 256  # characters
_LARGE = 1 << 30  # bytes of a state that is warned of
_WORKING = 3  # times the state that learning a block takes at its peak, rounded up from 2.2
_CGROUP = Path("/sys/fs/cgroup/memory.max")
_TOLD = {
    "features": ("`X`", ", as they come to the learner,", "Leave out columns, or categories"),
    "classes": ("`y`", "", "Look whether its labels are classes, and not numbers or names of rows"),
    "outputs": ("`y`", "", "Leave the others to another learner"),
}


class bounded:  # noqa: N801  a context, which each request goes through
    """Within this context learners may have so many features; any number where it is None.

    Parameters
    ----------
    most : int or None
    """

    __slots__ = ("_before", "_most")

    def __init__(self, most: int | None) -> None:
        self._most = most

    def __enter__(self) -> None:
        self._before = _MOST.set(self._most)

    def __exit__(self, *raised: object) -> None:
        _MOST.reset(self._before)


def hold_breadth(d: int, who: str, what: str = "features") -> None:
    """Refuse to have d features, classes or outputs, if they are more than may be.

    Parameters
    ----------
    d : int
    who : str
        The learner, for messages.
    what : {"features", "classes", "outputs"}

    Raises
    ------
    ShapeError
    """
    most = _MOST.get()
    if most is not None and d > most:
        part, come, remedy = _TOLD[what]
        raise ShapeError(
            f"{who}: {part} must have at most {most:,} {what}{come or ','} got {d:,}. {remedy}; or "
            "let it have more: `most_features` of op.durable, --most-features of onepass serve."
        )


def hold_square(d: int, who: str, before: int = 0) -> None:
    """Warn of a state of d × d numbers that is large; refuse one that memory cannot hold.

    Parameters
    ----------
    d : int
        Features.
    who : str
        The learner, for messages.
    before : int
        Features so far: a state that was large already is not warned of again.

    Raises
    ------
    ShapeError
        If learning would take more bytes than the machine, or the container, has.
    """
    size, memory = 8 * d * d, _memory()
    if size <= _LARGE:
        return
    takes = (
        f"{d:,} features, whose {d:,} × {d:,} state takes {size / 1e9:,.1f} GB, and learning "
        f"{_WORKING * size / 1e9:,.1f} GB"
    )
    remedy = (
        "Choose fewer columns, hash categories (encode.categories=hash), or take a learner of "
        "linear size: SGD, or ORFit with memory=op.memory.Principal(100)."
    )
    if memory is not None and _WORKING * size > memory:
        raise ShapeError(
            f"{who}: `X` must have features whose square fits into memory, {memory / 1e9:,.1f} GB, "
            f"got {takes}. {remedy}"
        )
    if 8 * before * before <= _LARGE:
        warnings.warn(f"{who}: `X` has {takes}. {remedy}", LargeStateWarning, stacklevel=2)


def _memory() -> int | None:
    """Bytes of memory that the machine or its container has; None where that is unknown."""
    found = []
    with suppress(AttributeError, ValueError, OSError):
        found.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    with suppress(OSError, ValueError):
        found.append(int(_CGROUP.read_text(encoding="ascii")))
    return min(found, default=None)


def hold_labels(labels: list[str], where: str) -> None:
    """Refuse labels that are too long.

    Parameters
    ----------
    labels : list of str
    where : str
        The public call, for messages.

    Raises
    ------
    LabelError
    """
    if _MOST.get() is None:
        return
    longest = max(map(len, labels), default=0)
    if longest > _LABEL:
        raise LabelError(
            f"{where}: `y` must hold labels of at most {_LABEL} characters, got one of "
            f"{longest:,}. Shorten it, or give a number for it."
        )


def hold_values(n: int, d: int, who: str, why: str = "as they come to the learner") -> None:
    """Refuse rows that would come to too many numbers, before they do.

    Parameters
    ----------
    n, d : int
        Rows, and the numbers that are made of each: features, or scores.
    who : str
        What makes them, for messages.
    why : str
        What the numbers are.

    Raises
    ------
    ShapeError
    """
    if n * d > _VALUES and _MOST.get() is not None:
        raise ShapeError(
            f"{who}: rows must come to at most {_VALUES:,} numbers at once, got {n:,} rows of "
            f"{d:,}, {why}. Send fewer at a time."
        )
