"""Breadth: how many features a learner may come to have, where others send it rows.

What least squares remember takes the square of their features: a row of a hundred kilobytes may ask
for gigabytes. Whoever serves a learner says how far it may grow.
"""

from contextvars import ContextVar

from onepass.errors import ShapeError

__all__ = ["MOST_FEATURES", "hold_breadth"]

MOST_FEATURES: ContextVar[int | None] = ContextVar("most_features", default=None)
"""So many, of a learner that learns in this context; None for any number."""


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
    most = MOST_FEATURES.get()
    if most is not None and d > most:
        raise ShapeError(
            f"{who}: `X` must have at most {most:,} features, as they come to the learner, got "
            f"{d:,}. Leave out columns, or categories; or let it have more: `most_features` of "
            "op.durable, --most-features of onepass serve."
        )
