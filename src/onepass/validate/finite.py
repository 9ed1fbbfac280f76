"""Finite: what learners may trust: no nan, no infinity."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from onepass.errors import Floats, NotFiniteError

__all__ = ["is_finite", "refuse_nonfinite"]

_MANY = 1 << 13  # numbers, of which BLAS may leave some to other threads, who are slow to come


def is_finite(array: Floats) -> bool:
    """Whether all numbers are finite: they are if their sum, or that of their squares, is.

    Parameters
    ----------
    array : ndarray
    """
    if array.size < _MANY:
        total = np.vdot(array, array)
    else:
        with np.errstate(all="ignore"):
            total = np.add.reduce(array, axis=None)
    return math.isfinite(total) or bool(np.isfinite(array).all())


def refuse_nonfinite(array: Floats, where: str, what: str, names: Sequence[str] | None) -> None:
    """Refuse nan and infinity, saying the first place where one stands.

    Parameters
    ----------
    array : ndarray of shape (n, d)
    where : str
        The public call, for messages.
    what : str
        The argument.
    names : sequence of str, optional
        Of the columns.

    Raises
    ------
    NotFiniteError
    """
    if is_finite(array):
        return
    i, j = (int(k) for k in np.argwhere(~np.isfinite(array))[0])
    value: Any = array[i, j]
    word = "NaN" if np.isnan(value) else "infinity"
    place = f"row {i}" if array.shape[0] > 1 or what in {"X", "y"} else "the row"
    if what in {"X", "x"}:
        place += f", column {names[j]!r}" if names is not None else f", column {j}"
    remedy = (
        "Leave the row out, of X too: nothing can be learned from it."
        if what == "y"
        else "Drop the row, or impute it before learning (op.features.Impute())."
    )
    raise NotFiniteError(
        f"{where}: `{what}` must be finite. Input {what} contains {word} in {place}. {remedy}"
    )
