"""Ticks: where drift was detected, drawn on a model's learning curve."""

from typing import Any

import numpy as np

from onepass.errors import Array, Floats
from onepass.evaluate.drift import Drift

__all__ = ["tick"]


def tick(
    axes: Any,
    along: Array,
    values: Floats,
    drift: dict[str, Drift] | None,
    colour: str,
    *,
    timed: bool,
) -> None:
    """Thin ticks across a curve, one for each alarm that was kept.

    Parameters
    ----------
    axes : matplotlib.axes.Axes
        Where the curve is.
    along : ndarray of shape (n,)
        Where the curve's points stand: in rows, times as numbers, or datetime64.
    values : ndarray of shape (n,)
        The curve; nan where it is not known.
    drift : dict of str to Drift, or None
        What the detectors said.
    colour : str
        The model's.
    timed : bool
        Whether the curve stands over time.
    """
    known = np.isfinite(values)
    for said in (drift or {}).values():
        marks = said.alarms
        if marks.rows and known.any():
            at = np.array(marks.times if timed else marks.rows, dtype=along.dtype)
            height = np.interp(_number(at), _number(along[known]), values[known])
            axes.plot(at, height, ls="", marker="|", ms=12, mew=0.8, color=colour, zorder=5)


def _number(along: Array) -> Floats:
    plain: Floats = along.astype(np.int64 if along.dtype.kind == "M" else np.float64)
    return plain
