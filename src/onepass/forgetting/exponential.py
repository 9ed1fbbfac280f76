"""Exponential forgetting, plain and bounded, by rows or by time.

Before row k, the weight of all past rows is multiplied by λ_k:

    P⁻¹ ← λ_k P⁻¹ + s_k x_k x_kᵀ                                                            (1)
    λ_k = λ,   or   λ_k = 2^(−Δt_k / half_life)   for the time Δt_k since the previous row  (2)

so that rows of the same time have equal weight, and the past fades more in a longer gap.

:class:`Exponential` is (1) as printed: the ridge fades too, and information about directions that
stay unexcited vanishes, which causes windup: the first row that excites such a direction changes
its coefficients without bound. Before a fade by λ_k < 2⁻⁸ the past becomes a prior,
which bounds them. With ``ridge="held"`` the ridge does not fade,

    argmin over w, b of  Σ_k λ^(n−k) s_k (y_k − b − x_kᵀ w)² + ‖w − w₀‖²_Π                  (3)

which bounds windup. :class:`Bounded` retains information about each coefficient at its present
value. Both restore what has faded in turns, 8 coefficients at a time: between a quarter and all of
it is present, and all rows cost about the same (native/core/least_squares.c).
Cost: O(d²) time per row, O(d²) memory.

[1] Y. Min, K. Ahn, N. Azizan, "One-Pass Learning via Bridging Orthogonal Gradient Descent and
    Recursive Least-Squares", CDC 2022; (2), (3).
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

from onepass import validation
from onepass.errors import ParameterError, public
from onepass.memory.vector import Fading
from onepass.types import Array, Floats


@dataclass(frozen=True)
class DecayRate:
    """Base class of rules that fade by a factor or by a half-life.

    Parameters
    ----------
    factor : float, optional
        λ in (0, 1].
    half_life : float, str or timedelta, optional
        Alternative to ``factor``, greater than 0.

    Raises
    ------
    ParameterError
        If not exactly one of the two is given, or it is out of range.
    """

    factor: float | None = None
    _: KW_ONLY
    half_life: Any = None

    @public
    def __post_init__(self) -> None:
        rule = type(self).__name__
        if (self.factor is None) == (self.half_life is None):
            given = "neither" if self.factor is None else "both"
            raise ParameterError(
                "either `factor`, by rows, or `half_life`, by time, must be given, got "
                f"{given}. Use {rule}(0.99) or {rule}(half_life='1h')."
            )
        if self.factor is not None:
            number = validation.in_range(self.factor, "factor", above=0.0, high=1.0)
            object.__setattr__(self, "factor", number)
        else:
            length = validation.duration(self.half_life, "half_life")
            object.__setattr__(self, "half_life", length)

    @property
    def clock(self) -> str | None:
        """The type of row times required: "number", "date" or None."""
        return clock(self.half_life)

    def fades(self, time: Array | None, last: Any) -> Floats | None:
        """Log2 of λ_k before each row, (n,), by (2); None by rows.

        Parameters
        ----------
        time : ndarray of shape (n,), or None
            The times of the rows.
        last : object
            The time of the row before; None before the first.
        """
        return None if time is None else -validation.elapsed(time, last) / self.unit

    @property
    def unit(self) -> float:
        """The half-life in the unit of the times; in seconds if the times are dates."""
        length = self.half_life
        return validation.seconds(length) if isinstance(length, str) else float(length)


def clock(length: float | str | None) -> str | None:
    """The type of row times required by a rule with this duration: "number", "date" or None.

    Parameters
    ----------
    length : float, str or None
        As returned by ``validation.duration``; None if the rule counts rows.

    Examples
    --------
    >>> clock("1h"), clock(60.0), clock(None)
    ('date', 'number', None)
    """
    if length is None:
        return None
    return "date" if isinstance(length, str) else "number"


@dataclass(frozen=True)
class Exponential(DecayRate):
    """Plain exponential forgetting, with a ridge that fades or is held.

    By default the ridge fades with the rows: information about directions that stay unexcited
    vanishes, and the first rows that excite them again may change their coefficients without bound
    (WindupWarning). ``ridge="held"`` bounds this change.

    Parameters
    ----------
    factor : float, optional
        λ in (0, 1]: a row k rows ago has weight λᵏ; 1 means no forgetting.
    ridge : {"fading", "held"}, default="fading"
        Whether the ridge of the learner fades with the rows, as in (1), or is held, as in (3):
        then weights of features that stay unexcited decay to their initial values. With ridge 0
        the squares of 3e-8 column lengths are held.
    half_life : float, str or timedelta, optional
        Alternative to ``factor``: the age at which a row has weight ½. A number in the unit of
        ``time``, or, if ``time`` contains dates, a timedelta or text such as ``"90min"`` or
        ``"7d"``.

    Raises
    ------
    ParameterError
        If not exactly one of factor and half-life is given, or a value is out of range.

    Examples
    --------
    >>> import numpy as np, onepass as op
    >>> model = op.RLSRegressor(0.0, op.forgetting.Exponential(half_life="1h"))
    >>> noon = np.datetime64("2024-05-01T12:00")
    >>> times = noon + np.timedelta64(1, "h") * np.arange(2)
    >>> model.fit([[1.0], [1.0]], [0.0, 3.0], time=times).predict([[1.0]])  # weights ½ and 1
    array([2.])
    """

    ridge: str = "fading"

    additive: ClassVar[bool] = True
    stores_rows: ClassVar[bool] = False

    @public
    def __post_init__(self) -> None:
        super().__post_init__()
        if self.ridge not in {"fading", "held"}:
            raise ParameterError(
                f"`ridge` must be 'fading' or 'held', got {self.ridge!r}",
                remedy="Choose one of these.",
            )

    @property
    def fading(self) -> Fading:
        """How the past fades."""
        return Fading(self.factor or 1.0, held=self.ridge == "held")


@dataclass(frozen=True)
class Bounded(DecayRate):
    """Exponential forgetting with a minimum information about each coefficient.

    Parameters
    ----------
    factor : float, optional
        λ in (0, 1]: a row k rows ago has weight λᵏ; 1 means no forgetting.
    floor : float, default=0.1
        The minimum information about each coefficient: that of this number of rows of the part of
        its feature that the other features do not explain, and at least 10 times the ridge.
        What has faded is restored in turns: between a quarter and all of it is present.
        With larger values coefficients change less when an unexcited feature is excited again.
    half_life : float, str or timedelta, optional
        Alternative to ``factor``, as in :class:`Exponential`.

    Raises
    ------
    ParameterError
        If not exactly one of factor and half-life is given, or a number is out of range.

    Examples
    --------
    >>> import numpy as np, onepass as op
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(20_000, 2))
    >>> X[500:, 1] = 0.0  # becomes unexcited
    >>> model = op.RLSRegressor(forgetting=op.forgetting.Bounded(0.9)).fit(X, X @ [1.0, 2.0])
    >>> model.coef_.round(3)
    array([1., 2.])
    """

    floor: float = 0.1

    stores_rows: ClassVar[bool] = False

    @public
    def __post_init__(self) -> None:
        super().__post_init__()
        floor = validation.in_range(self.floor, "floor", low=0.0)
        object.__setattr__(self, "floor", floor)

    @property
    def additive(self) -> bool:
        """Whether the past is a sum over its rows, so that states can be merged."""
        return self.factor == 1.0

    @property
    def fading(self) -> Fading:
        """How the past fades."""
        level = self.floor if self.factor != 1.0 else 0.0
        return Fading(self.factor or 1.0, level, held=self.factor != 1.0)
