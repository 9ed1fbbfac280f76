"""Sliding window: exact least squares on the last rows only, at every row.

    argmin over w, b of  Σ over the window of λ_k s_k (y_k − b − x_kᵀ w)² + ‖w − w₀‖²_Π     (1)

where the window is the last n rows, or all rows younger than a time span. By default λ_k = 1. With
fading inside the window, λ_k is ½ to the power of the row's age in half-lives. The ridge
does not fade; with fading it is restored in turns, and between a quarter and all of it is present.
The rows of the window are stored, since rows are added and removed by rotations
(native/core/window.c).

Cost: O(d²) time per row, O(n d²) if a removal would lose digits; O(d² + n d) memory for n rows.
"""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import numpy as np

from onepass import validation
from onepass.errors import ParameterError, public
from onepass.forgetting.exponential import clock
from onepass.memory.vector import Fading
from onepass.types import Array, Floats

_LONGEST = 2.0**62  # units that can be subtracted from a time


@dataclass(frozen=True)
class Window:
    """Least squares on the last rows only, which are stored.

    Parameters
    ----------
    rows : int, optional
        The number of rows, at least 1.
    span : float, str or timedelta, optional
        Alternative to ``rows``: a window of all rows younger than this, relative to the last row. A
        number in the unit of ``time``, or, if ``time`` contains dates, a timedelta or text such as
        ``"7d"``. All rows of the window are stored.
    factor : float, optional
        λ in (0, 1]: within the window, a row k rows ago has weight λᵏ. By default 1.
    half_life : float, str or timedelta, optional
        Alternative to ``factor``: the age at which a row of the window has weight ½, in the same
        kind of unit as ``span``.

    Raises
    ------
    ParameterError
        If not exactly one of ``rows`` and ``span``, or both of ``factor`` and ``half_life`` are
        given, or a number is out of range.

    Examples
    --------
    >>> import onepass as op
    >>> X = np.random.default_rng(0).normal(size=(300, 2))
    >>> y = X @ [1.0, 2.0]
    >>> y[:200] = 0.0
    >>> model = op.RLSRegressor(0.0, op.forgetting.Window(100)).fit(X, y)
    >>> model.coef_.round(9)
    array([1., 2.])
    """

    rows: int | None = None
    _: KW_ONLY
    span: Any = None
    factor: float | None = None
    half_life: Any = None

    additive: ClassVar[bool] = False
    stores_rows: ClassVar[bool] = True

    @public
    def __post_init__(self) -> None:
        if (self.rows is None) == (self.span is None):
            given = "neither" if self.rows is None else "both"
            raise ParameterError(
                f"exactly one of `rows` and `span` must be given, got {given}. Use "
                "Window(1000) or Window(span='1h')."
            )
        if self.rows is not None:
            object.__setattr__(self, "rows", validation.whole(self.rows, "rows", low=1))
        else:
            object.__setattr__(self, "span", validation.duration(self.span, "span"))
        if self.factor is not None and self.half_life is not None:
            raise ParameterError(
                "`factor` and `half_life` must not both be given, got both. Omit one of them."
            )
        if self.factor is not None:
            factor = validation.in_range(self.factor, "factor", above=0.0, high=1.0)
            object.__setattr__(self, "factor", None if factor == 1.0 else factor)
        if self.half_life is not None:
            length = validation.duration(self.half_life, "half_life")
            object.__setattr__(self, "half_life", length)
        if {clock(self.span), clock(self.half_life)} == {"number", "date"}:
            raise ParameterError(
                "`span` and `half_life` must both be numbers, or both be durations such as '1h', "
                f"got {self.span!r} and {self.half_life!r}. Use one kind of times."
            )

    @property
    def clock(self) -> str | None:
        """The type of row times required: "number", "date" or None."""
        return clock(self.half_life if self.span is None else self.span)

    @property
    def fading(self) -> Fading:
        """How the past fades."""
        held = self.factor is not None or self.half_life is not None
        return Fading(self.factor or 1.0, held=held, window=self.rows or 0)

    def fades(self, time: Array | None, last: Any) -> Floats | None:
        """Log2 of the factor by which the past fades before each row, (n,); None by rows."""
        if self.half_life is None or time is None:
            return None
        length = self.half_life
        unit = validation.seconds(length) if isinstance(length, str) else length
        return -validation.elapsed(time, last) / unit

    def leaving(self, stored: Array, time: Array) -> Array:
        """The number of rows that leave after each row, (n,), from a window of a time span.

        Parameters
        ----------
        stored : ndarray of shape (m,)
            The times of the rows in the window.
        time : ndarray of shape (n,)
            The times of the rows that follow.
        """
        with np.errstate(over="ignore"):
            until = _outside(time, self.span)
        first = np.searchsorted(np.concatenate((stored, time)), until, side="right")
        return np.diff(first, prepend=0)


def _outside(time: Array, span: float | str) -> Array:
    """The last time outside the window that ends at each time, which is always inside."""
    if time.dtype.kind in "iM":
        if isinstance(span, str):
            length = validation.per_second(time) * validation.seconds(span)
        else:
            length = math.ceil(span)
        length = max(1, round(min(length, _LONGEST)))
        least = np.iinfo(np.int64).min + (time.dtype.kind == "M")  # the least integer encodes NaT
        moved: Array = np.maximum(time.view(np.int64), least + length) - length
        return moved.view(time.dtype)
    return np.asarray(np.minimum(time - span, np.nextafter(time, -np.inf)))
