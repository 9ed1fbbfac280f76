"""Components: how many axes, how often they are looked at, and when they stand still.

Axes of the first rows only are those of all these rows at once, where memory of O(d min(n, d)) for
n such rows is allowed: then nothing is let go before the last of them.
"""

from dataclasses import replace
from typing import Any

import numpy as np

from onepass import validation
from onepass.axes import Axes, View
from onepass.errors import Floats, ParameterError

__all__ = ["begun", "checked_components", "gathered", "nothing", "rows_between", "stilled"]

_LEAST_BLOCK = 128


def checked_components(given: Any, who: str) -> float:
    """A number of axes as an int, or a share of the variance as a float.

    Raises
    ------
    ParameterError
        If it is neither.
    """
    if isinstance(given, (float, np.floating)) and not isinstance(given, bool):
        share = float(given)
        if 0.0 < share < 1.0:
            return share
    elif isinstance(given, (int, np.integer)) and not isinstance(given, bool) and given >= 1:
        return int(given)
    raise ParameterError(
        f"{who}: `n_components` must be a whole number >= 1, or a share of the variance in (0, 1), "
        f"got {given!r}. Construct it with another `n_components`."
    )


def rows_between(block: Any, k: float, d: int, who: str) -> int:
    """Rows between two truncations.

    Raises
    ------
    ParameterError
        If it is no whole number >= 1.
    """
    if block is not None:
        return validation.whole(block, "block", who, low=1)
    return max(_LEAST_BLOCK, 2 * min(k, d) if isinstance(k, int) else 0)


def begun(d: int, k: float, rows: int, room: int | None, *, centred: bool) -> Axes:
    """No rows yet, of those many that the axes are to be learned from.

    Parameters
    ----------
    d : int
    k : int or float
        A number of axes, or a share of the variance.
    rows : int
    room : int or None
        Rows between two truncations to k; None for none, so that the axes are exact.
    centred : bool
    """
    if room is not None:
        return Axes.start(d, k, room, centred=centred)
    return Axes.start(d, rows, min(rows, max(_LEAST_BLOCK, 2 * d)), centred=centred)


def gathered(axes: Axes, X: Floats, rows: int, k: float) -> Axes:
    """The axes after more of the first ``rows`` rows; after the last of them they stand still."""
    begin = 0
    while begin < len(X):
        end = min(len(X), begin + axes.room - axes.rows % axes.room)
        axes, begin = axes.noted(X[begin:end]), end
        if axes.rows % axes.room == 0 and axes.rows < rows:
            axes = axes.truncated()
    return stilled(axes, k) if axes.rows >= rows else axes


def stilled(axes: Axes, k: float) -> Axes:
    """The top k axes of these rows, without what further rows would need."""
    d = len(axes.mean)
    view = axes.view if axes.n_components == k else nothing(d)  # a share keeps what it had
    final = replace(axes, n_components=k if isinstance(k, float) else min(k, d), view=view)
    return replace(final.truncated().fixed(), room=1)


def nothing(d: int) -> View:
    """No axes of rows of d numbers."""
    return View(np.zeros(d), np.zeros((0, d)), np.zeros(0), 0.0, 0.0)
