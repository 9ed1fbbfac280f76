"""Looking: how rows and prototypes are seen when they are compared."""

from onepass.axes import Axes
from onepass.errors import Floats

__all__ = ["WAYS", "along", "as_rows"]

WAYS = ("incremental", "task", "static", "none")
"""How axes are learned."""


def as_rows(axes: Axes, way: str) -> bool:
    """Whether rows are compared in their own space: no axis, or none that is settled yet.

    Parameters
    ----------
    axes : Axes
    way : str
        One of ``WAYS``.
    """
    return not len(axes.view.lengths) or (way == "incremental" and axes.rows < axes.room)


def along(axes: Axes, way: str, X: Floats) -> Floats:
    """Rows as they are compared, (n, k) or (n, d).

    Parameters
    ----------
    axes : Axes
    way : str
        One of ``WAYS``.
    X : ndarray of shape (n, d)
    """
    seen: Floats = X - axes.view.center if as_rows(axes, way) else axes.view.of(X)
    return seen
