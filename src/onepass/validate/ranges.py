"""Hyperparameters: numbers within a range."""

import math
from typing import Any

import numpy as np

from onepass.errors import ParameterError

__all__ = ["in_range", "whole"]


def in_range(
    value: Any,
    name: str,
    where: str,
    *,
    above: float | None = None,
    low: float | None = None,
    high: float | None = None,
) -> float:
    """A hyperparameter as a float within (above, high] or [low, high].

    Raises
    ------
    ParameterError
        If it is not a real number, or outside the range.
    """
    real = isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)
    try:
        number = float(value) if real else math.nan
    except OverflowError:  # a whole number beyond them
        number = math.nan
    good = math.isfinite(number) and not (
        (above is not None and number <= above)
        or (low is not None and number < low)
        or (high is not None and number > high)
    )
    if not good:
        left = f"({above:g}" if above is not None else f"[{low:g}" if low is not None else "(-inf"
        right = f"{high:g}]" if high is not None else "inf)"
        raise ParameterError(
            f"{where}: `{name}` must be a number in {left}, {right}, got {value!r}. "
            f"Give another `{name}`."
        )
    return number


def whole(value: Any, name: str, where: str, *, low: int) -> int:
    """A hyperparameter as a whole number >= low.

    Raises
    ------
    ParameterError
        If it is none.
    """
    if not isinstance(value, (int, np.integer)) or isinstance(value, bool) or value < low:
        raise ParameterError(
            f"{where}: `{name}` must be a whole number >= {low}, got {value!r}. "
            f"Give another `{name}`."
        )
    return int(value)
