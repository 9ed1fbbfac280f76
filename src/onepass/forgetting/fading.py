"""Fading: exponential forgetting, plain and bounded, by rows or by time.

As row k comes, all that was learned before it counts λ_k times as much:

    P⁻¹ ← λ_k P⁻¹ + s_k x_k x_kᵀ                                                            (1)
    λ_k = λ,   or   λ_k = 2^(−Δt_k / half_life)   for the time Δt_k since the row before    (2)

so that rows of one moment count alike, and a gap is as many rows as it is long. Under a long one
all that was known becomes a faint prior: where λ_k is below 1e-60, it makes no difference to any
answer that float64 can hold whether it is smaller yet, and it is taken to be 1e-60.

:class:`Exponential` is (1) to the letter: what is silent is forgotten, and winds up.
:class:`Bounded` puts a floor under it (:mod:`onepass.memory.floor`); by time also within a gap,
before the row at its end is learned. Cost: O(d²) time a row, O(d²) memory.

[1] Y. Min, K. Ahn, N. Azizan, "One-Pass Learning via Bridging Orthogonal Gradient Descent and
    Recursive Least-Squares", CDC 2022; (2), (3).
"""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from onepass import validate
from onepass.centering import Reduced
from onepass.forgetting.pace import Pace
from onepass.forgetting.past import Coming, Learned, Past
from onepass.memory.floor import PATIENCE, Floor, rows_between
from onepass.memory.prior import Prior
from onepass.memory.square_root import Triangle
from onepass.types import Floats

__all__ = ["Bounded", "Exponential", "Fading"]

_WIDTH = 1024  # rows between two renormalisations, at most
_DEEPEST = 10.0  # half-lives between two renormalisations, at most
_FAINTEST = 1e-60


@dataclass(frozen=True)
class Fading(Pace):
    """What both rules share."""

    state: ClassVar[type] = Floor
    keeps_rows: ClassVar[bool] = False

    @property
    def level(self) -> float:
        """Rows' worth of information that no coefficient falls below."""
        return 0.0

    @property
    def keeps_sums(self) -> bool:
        """Whether what the past says is a sum over its rows, so that it can be merged."""
        return self.factor == 1.0 or self.level == 0.0

    def start(self, past: Past, least: Floats) -> Floor:
        """The state of no rows; ``least`` (d,) is the ridge of each coefficient."""
        del past
        return Floor.start(least)

    def learn(self, state: Floor, past: Past, rows: Coming) -> Learned:
        """Learn rows one after the other."""
        fading = self._by_rows if self.factor is not None else self._by_time
        return fading(state, past, rows)

    def between(self, earlier: Any, later: Any) -> float:
        """By how much all fades from one time to another."""
        passed = validate.elapsed(np.array([later]), earlier)[0]
        return float(np.exp2(-passed / self.unit))

    def _by_rows(self, floor: Floor, past: Past, rows: Coming) -> Learned:
        factor = float(self.factor or 1.0)
        holds = factor < 1.0 and self.level > 0.0
        period = rows_between(factor)
        errors, i = np.empty(rows.Y.shape), 0
        while i < len(rows.X):
            width = floor.room(period) if holds else _WIDTH if factor == 1.0 else period
            part = slice(i, i + width)
            errors[part], past, moved = _taken(past, rows, part, factor)
            if holds:
                floor = _noted(floor, rows, part, moved, past.centering.free)
                floor = floor.aged(np.full(len(moved.X), -math.log2(factor)))
                if floor.rows % period == 0:
                    floor, memory = floor.under(past.memory, self.level, period)
                    past = past._replace(memory=memory)
            i += width
        return Learned(errors, past, floor)

    def _by_time(self, floor: Floor, past: Past, rows: Coming) -> Learned:
        passed = validate.elapsed(rows.time, rows.last) / self.unit
        holds, period = self.level > 0.0, rows_between(1.0)
        errors, i, n = np.empty(rows.Y.shape), 0, len(rows.X)
        while i < n:
            factors = np.maximum(np.exp2(-passed[i : i + _WIDTH]), _FAINTEST)
            if holds and floor.ages.max(initial=0.0) + passed[i] > PATIENCE:
                past = _faded(past, float(factors[0]))
                floor, memory = floor.aged(passed[i : i + 1]).under(past.memory, self.level, None)
                past, factors[0] = past._replace(memory=memory), 1.0
                passed[i] = 0.0
            width = _calm(passed[i : i + _WIDTH], floor, period, holds=holds)
            part = slice(i, i + width)
            errors[part], past, moved = _taken(past, rows, part, factors[:width])
            if holds:
                floor = _noted(floor, rows, part, moved, past.centering.free)
                floor = floor.aged(passed[part])
                if floor.rows % period == 0:
                    floor, memory = floor.under(past.memory, self.level, None)
                    past = past._replace(memory=memory)
            i += width
        return Learned(errors, past, floor)


@dataclass(frozen=True)
class Exponential(Fading):
    """Exponential forgetting to the letter of its equation.

    What stays silent for long is forgotten, down to nothing: the first rows that excite it again
    may move its coefficient without bound.

    Parameters
    ----------
    factor : float, optional
        λ in (0, 1]: a row k rows ago weighs λᵏ. 1 forgets nothing.
    half_life : float, str or timedelta, optional
        In place of it: a row that is so old weighs one half. A number in the unit of ``time``, or,
        where that holds dates, a timedelta or text such as ``"90min"``, ``"1h"``, ``"7d"``.

    Raises
    ------
    ParameterError
        If not exactly one of the two is given, or it is out of range.

    Examples
    --------
    >>> import onepass as op
    >>> model = op.RLSRegressor(0.0, op.forgetting.Exponential(half_life="1h"))
    >>> noon = np.datetime64("2024-05-01T12:00")
    >>> times = noon + np.timedelta64(1, "h") * np.arange(2)
    >>> model.fit([[1.0], [1.0]], [0.0, 3.0], time=times).predict([[1.0]])  # weights ½ and 1
    array([2.])
    """


@dataclass(frozen=True)
class Bounded(Fading):
    """Exponential forgetting with a floor under what is known of each coefficient.

    Parameters
    ----------
    factor : float, optional
        λ in (0, 1]: a row k rows ago weighs λᵏ. 1 forgets nothing.
    floor : float, default=1.0
        The least information that is kept of each coefficient: so many rows' worth of its feature,
        and never less than the ridge. More makes what was silent move less when it comes back.
    half_life : float, str or timedelta, optional
        In place of the factor, as in :class:`Exponential`.

    Raises
    ------
    ParameterError
        If not exactly one of factor and half-life is given, or a number is out of range.

    Examples
    --------
    >>> import onepass as op
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(20_000, 2))
    >>> X[500:, 1] = 0.0  # falls silent
    >>> model = op.RLSRegressor(forgetting=op.forgetting.Bounded(0.9)).fit(X, X @ [1.0, 2.0])
    >>> model.coef_.round(3)
    array([1., 2.])
    """

    floor: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        floor = validate.in_range(self.floor, "floor", "forgetting.Bounded", low=0.0)
        object.__setattr__(self, "floor", floor)

    @property
    def level(self) -> float:
        """Rows' worth of information that no coefficient falls below."""
        return self.floor


def _calm(passed: Floats, floor: Floor, period: int, *, holds: bool) -> int:
    """How many rows may be taken in before the past must be renormalised, or the floor is due."""
    most = min(len(passed), floor.room(period)) if holds else len(passed)
    since = np.cumsum(passed[1:most])
    deep = since > _DEEPEST
    if holds:
        oldest = np.cumsum(np.concatenate(([floor.ages.max(initial=0.0)], passed[:most])))
        deep |= oldest[2:] > PATIENCE
    return 1 + (int(np.argmax(deep)) if deep.any() else most - 1)


def _faded(past: Past, factor: float) -> Past:
    """The past, weighing ``factor`` as much."""
    memory, centering, prior = past
    return Past(memory.faded(factor), centering.faded(factor), prior.faded(factor))


def _noted(floor: Floor, rows: Coming, part: slice, moved: Reduced, free: bool) -> Floor:  # noqa: FBT001
    weights = None if rows.weights is None else rows.weights[part]
    X = moved.X if moved.scale[0] > 0.0 else moved.X * (moved.scale > 0.0)[:, None]
    return floor.seen(X, rows.X[part], weights, free=free)


def _taken(
    past: Past, rows: Coming, part: slice, factor: float | Floats
) -> tuple[Floats, Past, Reduced]:
    """Some rows learned; their errors just before, the past after them, and they themselves."""
    weights = None if rows.weights is None else rows.weights[part]
    reduced = past.centering.reduce(rows.X[part], rows.Y[part], weights, factor)
    memory, prior = past.memory.faded(reduced.before), past.prior.faded(reduced.before)
    factors = factor if isinstance(factor, float) else None
    errors, memory, prior = _absorbed(memory, prior, reduced, rows, part, factors)
    memory, prior = memory.faded(reduced.fade), prior.faded(reduced.fade)
    return errors, Past(memory, reduced.center, prior), reduced


def _absorbed(
    memory: Triangle,
    prior: Prior,
    reduced: Reduced,
    rows: Coming,
    part: slice,
    factor: float | None,
) -> tuple[Floats, Triangle, Prior]:
    """Take centred rows in; the first row of all has scale 0 and only sets the means."""
    X, scale, raw = reduced.X, reduced.scale, rows.X[part]
    b = rows.answers(X, reduced.Y)
    errors = np.empty(b.shape)
    i = 0 if scale[0] > 0.0 else 1
    errors[:i] = b[:i] - X[:i] @ memory.w
    if i:
        prior = prior.begun(X[0])
    pseudo = prior.among(X[i:])
    if pseudo is None:
        memory, errors[i:] = memory.absorb(X[i:], b[i:], scale[i:], raw[i:])
        return errors, memory, prior
    at, more = pseudo.before, pseudo.rows
    # by rows, it ages by the row that it comes before; by time, both are of one moment
    aged = np.sqrt((factor or 1.0) / reduced.ages[at + i])
    memory, mixed = memory.absorb(
        np.insert(X[i:], at, more, axis=0),
        np.insert(b[i:], at, 0.0, axis=0),
        np.insert(scale[i:], at, aged),
        np.insert(raw[i:], at, more, axis=0),
    )
    errors[i:] = np.delete(mixed, at + np.arange(len(at)), axis=0)
    return errors, memory, pseudo.prior.holding(more * aged[:, None])
