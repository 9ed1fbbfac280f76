"""Breadth: how far a learner may grow, where others send it rows.

What least squares remember takes the square of their features: a row of a hundred kilobytes may ask
for gigabytes. And a text may become a thousand numbers. Whoever serves a learner says how many
features it may have; then rows are bounded too by what they come to.
"""

from contextvars import ContextVar

from onepass.errors import ShapeError

__all__ = ["bounded", "hold_breadth", "hold_values"]

_MOST: ContextVar[int | None] = ContextVar("most_features", default=None)
_VALUES = 1 << 24  # numbers that rows may come to at once, of 8 bytes each


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


def hold_breadth(d: int, who: str) -> None:
    """Refuse to have d features, if they are more than may be.

    Parameters
    ----------
    d : int
    who : str
        The learner, for messages.

    Raises
    ------
    ShapeError
    """
    most = _MOST.get()
    if most is not None and d > most:
        raise ShapeError(
            f"{who}: `X` must have at most {most:,} features, as they come to the learner, got "
            f"{d:,}. Leave out columns, or categories; or let it have more: `most_features` of "
            "op.durable, --most-features of onepass serve."
        )


def hold_values(n: int, d: int, who: str) -> None:
    """Refuse rows that would come to too many numbers, before they do.

    Parameters
    ----------
    n, d : int
        Rows, and the features that are made of them.
    who : str
        What makes them, for messages.

    Raises
    ------
    ShapeError
    """
    if n * d > _VALUES and _MOST.get() is not None:
        raise ShapeError(
            f"{who}: rows must come to at most {_VALUES:,} numbers at once, got {n:,} rows of "
            f"{d:,}, as they come to the learner. Send fewer at a time."
        )
