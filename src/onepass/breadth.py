"""Breadth: how far a learner may grow, where others send it rows.

What least squares remember takes the square of their features: a row of a hundred kilobytes may ask
for gigabytes. And a text may become a thousand numbers. Whoever serves a learner says how many
features it may have; then rows are bounded too by what they come to. Classes and outputs may be as
many, for each row has a number for each of them; and labels are short, for each answer takes the
room of the longest.
"""

import warnings
from contextvars import ContextVar

from onepass.errors import LabelError, LargeStateWarning, ShapeError

__all__ = ["bounded", "hold_breadth", "hold_labels", "hold_values", "warn_of_square"]

_MOST: ContextVar[int | None] = ContextVar("most_features", default=None)
_VALUES = 1 << 24  # numbers that rows may come to at once, of 8 bytes each
_LABEL = 256  # characters
_LARGE = 1 << 30  # bytes; a larger state causes a warning
_WORKING = 3  # peak memory of learning a block in sizes of the state, rounded up from 2.2
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


def warn_of_square(d: int, who: str, before: int = 0) -> None:
    """Warn before a large state of d × d numbers is allocated.

    Parameters
    ----------
    d : int
        Features.
    who : str
        The learner, for messages.
    before : int
        Features so far; there is no second warning if their state was large too.
    """
    size = 8 * d * d
    if 8 * before * before <= _LARGE < size:
        warnings.warn(
            f"{who}: `X` has {d:,} features, whose {d:,} × {d:,} state takes {size / 1e9:,.1f} GB, "
            f"and learning {_WORKING * size / 1e9:,.1f} GB. Choose fewer columns, hash categories "
            "(encode.categories=hash), or use a learner of linear size: SGD, or ORFit with "
            "memory=op.memory.Principal(100).",
            LargeStateWarning,
            stacklevel=2,
        )


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
