"""Exponential forgetting, plain and bounded, by rows or by time.

Before row k, the weight of all past rows is multiplied by λ_k:

    P⁻¹ ← λ_k P⁻¹ + s_k x_k x_kᵀ                                                            (1)
    λ_k = λ,   or   λ_k = 2^(−Δt_k / half_life)   for the time Δt_k since the previous row  (2)

so that rows of the same time have equal weight, and the past fades more in a longer gap. After a
long gap all past information becomes a weak prior: λ_k is at least 1e-120, so that even features of
size 1e-50 outweigh a ridge of 1 before the gap.

:class:`Exponential` is (1) as printed: information about unexcited directions is forgotten, which
causes windup. :class:`Bounded` adds a floor (:mod:`onepass.memory.floor`), with fading by time also
during a gap, before the row after the gap is learned. Cost: O(d²) time per row, O(d²) memory.

[1] Y. Min, K. Ahn, N. Azizan, "One-Pass Learning via Bridging Orthogonal Gradient Descent and
    Recursive Least-Squares", CDC 2022; (2), (3).
"""

import math
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np

from onepass import linalg, validation
from onepass.errors import ParameterError
from onepass.linalg.centering import Centering, CentredRows
from onepass.memory.floor import PATIENCE, Floor, rows_between
from onepass.memory.rebased import GAP, Rebased
from onepass.memory.span import Span
from onepass.memory.square_root import Prior, Triangle
from onepass.types import Array, Floats

__all__ = [
    "Bounded",
    "DecayRate",
    "Exponential",
    "FadingRule",
    "Learned",
    "LeastSquaresState",
    "NewRows",
    "clock",
]


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

    def __post_init__(self) -> None:
        rule = type(self).__name__
        where = f"forgetting.{rule}"
        if (self.factor is None) == (self.half_life is None):
            given = "neither" if self.factor is None else "both"
            raise ParameterError(
                f"{where}: either `factor`, by rows, or `half_life`, by time, must be given, got "
                f"{given}. Use {rule}(0.99) or {rule}(half_life='1h')."
            )
        if self.factor is not None:
            number = validation.in_range(self.factor, "factor", where, above=0.0, high=1.0)
            object.__setattr__(self, "factor", number)
        else:
            length = validation.duration(self.half_life, "half_life", where)
            object.__setattr__(self, "half_life", length)

    @property
    def clock(self) -> str | None:
        """The type of row times required: "number", "date" or None."""
        return clock(self.half_life)

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


class LeastSquaresState(NamedTuple):
    """The state from which predictions are computed."""

    memory: Triangle
    """The triangle of centred rows; its w is relative to w₀."""
    centering: Centering
    """The means, and the effective number of rows."""
    prior: Prior
    """Which features have been seen."""

    def fitted(self, start: Floats) -> tuple[Floats, Floats, Floats]:
        """Weights W (d, c), centre m (d,), offset b (c,): a row's prediction is Wᵀ(x − m) + b."""
        memory, center, _ = self
        weights = start + memory.w
        middle, rest = center.features, center.features_rest
        offset, more = center.targets, center.targets_rest
        if memory.span is not None and memory.span.free:
            (middle, rest), (offset, more) = memory.span.center, memory.span.targets
            more = more + memory.span.solution()[0]
        return weights, middle, offset + (more - rest @ weights)

    def leverage(self, X: Floats) -> Floats:
        """The variance of each row's prediction, relative to that of a target, (n,)."""
        memory, center, _ = self
        span = memory.span
        if isinstance(span, Span):  # from a window, or a file of a former version
            return np.full(len(X), np.inf)
        if span is not None and span.free:
            A = X - span.center[0] - span.center[1]
            return memory.leverage(np.hstack((np.ones((len(A), 1)), A)))
        return memory.leverage(center.around(X)) + (1.0 / center.mass if center.free else 0.0)

    @property
    def noise(self) -> Floats:
        """σ² of each output, (c,): the least sum of squares per spare row; infinite without any."""
        spare = self.centering.mass - len(self.memory.z) - self.centering.free
        return self.memory.least / spare if spare > 0.0 else np.full_like(self.memory.least, np.inf)

    def variance(self, X: Floats, noise: Floats) -> Floats:
        """The variance of a target of each row, (n, c), for σ² (c,); infinite if undetermined."""
        spread = 1.0 + self.leverage(X)
        with np.errstate(invalid="ignore"):  # infinity times 0, if the rows fit exactly
            variance = spread[:, None] * noise
        return np.where(np.isinf(spread)[:, None], np.inf, variance)

    def covariance(self, noise: Floats) -> Floats:
        """The covariance σ² P of the weights of each output, (c, d, d); infinite as above."""
        R, span, d = self.memory.R, self.memory.span, len(self.memory.z)
        if span is not None:
            R = span.triangle()[0] if isinstance(span, Rebased) and span.determined else R[:0]
        if len(R) < d or not np.isfinite(noise).all():
            return np.full((len(noise), d, d), np.inf)
        root = linalg.solve_upper(R, np.eye(len(R)))[len(R) - d :]
        return noise[:, None, None] * (root @ root.T)


class NewRows(NamedTuple):
    """Rows to be learned one after the other."""

    X: Floats
    """(n, d)."""
    Y: Floats
    """(n, c)."""
    weights: Floats | None
    """(n,), all positive; None for ones."""
    start: Floats
    """w₀, (d, c)."""
    time: Any
    """The time of each row, (n,), numbers or dates in order; None if the rule uses no times."""
    last: Any
    """The time of the previous row; None before the first."""

    def targets(self, X: Floats, Y: Floats) -> Floats:
        """Targets Y (n, c) minus the predictions of w₀ for rows X (n, d)."""
        return Y - X @ self.start if self.start.any() else Y

    def part(self, i: int, j: int) -> "NewRows":
        """The rows from i up to j."""
        weights = None if self.weights is None else self.weights[i:j]
        time = None if self.time is None else self.time[i:j]
        last = self.last if self.time is None or i == 0 else self.time[i - 1]
        return NewRows(self.X[i:j], self.Y[i:j], weights, self.start, time, last)

    @property
    def roots(self) -> Floats:
        """√s, (n,)."""
        return np.ones(len(self.X)) if self.weights is None else np.sqrt(self.weights)


class Learned(NamedTuple):
    """The result of learning rows."""

    errors: Floats
    """The error of each row just before it is learned, (n, c)."""
    past: LeastSquaresState
    state: Any
    """The state of the rule after the rows."""


_WIDTH = 1024  # maximum number of rows between two renormalisations
_SPANNED = 512  # rows added to a span before a triangle is tried
_DEEPEST = 10.0  # maximum number of half-lives between two renormalisations
_FAINTEST = 1e-120


@dataclass(frozen=True)
class FadingRule(DecayRate):
    """Base class of `Exponential` and `Bounded`: fading by rows or by time."""

    state: ClassVar[type] = Floor
    stores_rows: ClassVar[bool] = False

    @property
    def level(self) -> float:
        """The minimum information about each coefficient, as a number of rows."""
        return 0.0

    @property
    def additive(self) -> bool:
        """Whether the past is a sum over its rows, so that states can be merged."""
        return self.factor == 1.0 or self.level == 0.0

    def start(self, past: LeastSquaresState, least: Floats) -> Floor:
        """The initial state; ``least`` (d,) is the ridge of each coefficient."""
        del past
        return Floor.start(least)

    def learn(self, state: Floor, past: LeastSquaresState, rows: NewRows) -> Learned:
        """Learn rows one after the other."""
        fading = self._by_rows if self.factor is not None else self._by_time
        return fading(state, past._replace(memory=past.memory.current()), rows)

    def between(self, earlier: float | np.datetime64, later: float | np.datetime64) -> float:
        """The factor by which the past fades between two times."""
        passed = validation.elapsed(np.array([later]), earlier)[0]
        return float(np.exp2(-passed / self.unit))

    def _by_rows(self, floor: Floor, past: LeastSquaresState, rows: NewRows) -> Learned:
        factor = float(self.factor or 1.0)
        level, period = self.level if factor < 1.0 else 0.0, rows_between(factor)
        errors, i = np.empty(rows.Y.shape), 0
        while i < len(rows.X):
            width = floor.rows_until_visit(period) if level else rows_between(factor, _WIDTH)
            part = slice(i, i + width)
            factors = np.full(len(rows.X[part]), factor)
            errors[part], past, moved = _taken(past, rows, part, factors, level)
            if level:
                floor = _noted(floor, rows, part, moved, free=past.centering.free)
                floor = floor.aged(np.full(len(factors), -math.log2(factor)))
                if floor.rows % period == 0:
                    floor, memory = floor.applied_to(past.memory, level, period)
                    past = past._replace(memory=memory)
            i += width
        return Learned(errors, past, floor)

    def _by_time(self, floor: Floor, past: LeastSquaresState, rows: NewRows) -> Learned:
        passed = validation.elapsed(rows.time, rows.last) / self.unit
        holds, period = self.level > 0.0, rows_between(1.0)
        errors, i, n = np.empty(rows.Y.shape), 0, len(rows.X)
        while i < n:
            factors = np.maximum(np.exp2(-passed[i : i + _WIDTH]), _FAINTEST)
            if holds and floor.ages.max(initial=0.0) + passed[i] > PATIENCE:
                past = _faded(past, float(factors[0]))
                floor, memory = floor.aged(passed[i : i + 1]).applied_to(
                    past.memory, self.level, None
                )
                past, factors[0] = past._replace(memory=memory), 1.0
                passed[i] = 0.0
            width = _calm(passed[i : i + _WIDTH], floor, period, holds=holds)
            part = slice(i, i + width)
            errors[part], past, moved = _taken(past, rows, part, factors[:width], self.level)
            if holds:
                floor = _noted(floor, rows, part, moved, free=past.centering.free)
                floor = floor.aged(passed[part])
                if floor.rows % period == 0:
                    floor, memory = floor.applied_to(past.memory, self.level, None)
                    past = past._replace(memory=memory)
            i += width
        return Learned(errors, past, floor)


@dataclass(frozen=True)
class Exponential(FadingRule):
    """Exponential forgetting as in its equation.

    Information about directions that stay unexcited vanishes: the first rows that excite them again
    may change their coefficients without bound.

    Parameters
    ----------
    factor : float, optional
        λ in (0, 1]: a row k rows ago has weight λᵏ; 1 means no forgetting.
    half_life : float, str or timedelta, optional
        Alternative to ``factor``: the age at which a row has weight ½. A number in the unit of
        ``time``, or, if ``time`` contains dates, a timedelta or text such as ``"90min"`` or
        ``"7d"``.

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
class Bounded(FadingRule):
    """Exponential forgetting with a minimum information about each coefficient.

    Parameters
    ----------
    factor : float, optional
        λ in (0, 1]: a row k rows ago has weight λᵏ; 1 means no forgetting.
    floor : float, default=1.0
        The minimum information about each coefficient: that of this number of rows of the part of
        its feature that the other features do not explain, and at least the ridge. With larger
        values coefficients change less when an unexcited feature is excited again.
    half_life : float, str or timedelta, optional
        Alternative to ``factor``, as in :class:`Exponential`.

    Raises
    ------
    ParameterError
        If not exactly one of factor and half-life is given, or a number is out of range.

    Examples
    --------
    >>> import onepass as op
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(20_000, 2))
    >>> X[500:, 1] = 0.0  # becomes unexcited
    >>> model = op.RLSRegressor(forgetting=op.forgetting.Bounded(0.9)).fit(X, X @ [1.0, 2.0])
    >>> model.coef_.round(3)
    array([1., 2.])
    """

    floor: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        floor = validation.in_range(self.floor, "floor", "forgetting.Bounded", low=0.0)
        object.__setattr__(self, "floor", floor)

    @property
    def level(self) -> float:
        """The minimum information about each coefficient, as a number of rows."""
        return self.floor


def _calm(passed: Floats, floor: Floor, period: int, *, holds: bool) -> int:
    """The number of rows until the past must be renormalised, or a visit of the floor is due."""
    limit = min(len(passed), floor.rows_until_visit(period)) if holds else len(passed)
    since = np.cumsum(passed[1:limit])
    deep = since > _DEEPEST
    if holds:
        oldest = np.cumsum(np.concatenate(([floor.ages.max(initial=0.0)], passed[:limit])))
        deep |= oldest[2:] > PATIENCE
    return 1 + (int(np.argmax(deep)) if deep.any() else limit - 1)


def _faded(past: LeastSquaresState, factor: float) -> LeastSquaresState:
    """Multiply the weight of the past by ``factor``."""
    memory, centering, prior = past
    return LeastSquaresState(memory.faded(factor), centering.faded(factor), prior.faded(factor))


def _noted(floor: Floor, rows: NewRows, part: slice, moved: Floats, *, free: bool) -> Floor:
    """Update the floor with rows, centred as ``moved``."""
    weights = None if rows.weights is None else rows.weights[part]
    return floor.updated(moved, rows.X[part], weights, free=free)


def _taken(
    past: LeastSquaresState, rows: NewRows, part: slice, factors: Floats, level: float
) -> tuple[Floats, LeastSquaresState, Floats]:
    """Learn rows; return their errors just before, the state after, and the centred rows."""
    errors, past, moved = _some(past, rows, part, factors, level)
    while (i := len(errors)) < len(factors):
        rest = slice(part.start + i, part.stop)
        more, past, X = _some(past, rows, rest, factors[i:], level)
        errors, moved = np.vstack((errors, more)), np.vstack((moved, X))
    return errors, past, moved


def _some(
    past: LeastSquaresState, rows: NewRows, part: slice, factors: Floats, level: float
) -> tuple[Floats, LeastSquaresState, Floats]:
    """Learn at least the first of some rows; return the same values as ``_taken``.

    A row that is large compared with the past, or that follows a gap, is added to a span.
    """
    memory, centering, prior = past
    weights = None if rows.weights is None else rows.weights[part]
    reduced = centering.reduce(rows.X[part], rows.Y[part], weights, factors)
    before, fading, n = reduced.before, bool((factors < 1.0).any()), len(factors)
    gap = before < GAP and not level and centering.mass > 0.0
    width = n
    if memory.span is None and not gap:
        width = memory.calm_rows(reduced.X, reduced.scale / math.sqrt(before), fading=fading)
    if gap or not width:
        memory = memory.rebased(centering)
    if memory.span is not None:  # few rows at first, since the triangle may soon replace the span
        d, span = len(memory.z), memory.span
        early = span.rows <= 2 * d
        width = min(n, max(1, (d - len(span.T)) // 16) if early else _SPANNED)
    if width < n:
        part = slice(part.start, part.start + width)
        return _some(past._replace(memory=memory), rows, part, factors[:width], level)
    memory, prior = memory.faded(before), prior.faded(before)
    now = past._replace(memory=memory, prior=prior)
    errors, memory, prior = _absorbed(now, reduced, rows, part, factors, level)
    memory, prior = memory.faded(reduced.fade), prior.faded(reduced.fade)
    memory = memory.settled(reduced.center.mass, fading=fading)
    moved = reduced.X if reduced.scale[0] > 0.0 else reduced.X * (reduced.scale > 0.0)[:, None]
    return errors, LeastSquaresState(memory, reduced.center, prior), moved


def _absorbed(
    past: LeastSquaresState,
    reduced: CentredRows,
    rows: NewRows,
    part: slice,
    factors: Floats,
    level: float,
) -> tuple[Floats, Triangle, Prior]:
    """Add rows: centred, or relative to the reference row of a span with an intercept.

    With an intercept the very first row has scale 0: it only sets the means.
    """
    memory, center, prior = past
    X, Y, span = rows.X[part], rows.Y[part], memory.span
    first = 0 if reduced.scale[0] > 0.0 else 1
    if first:
        prior = prior.after_first_row(reduced.X[0])
    pseudo = prior.pseudo_rows(reduced.X[first:])
    b = rows.targets(reduced.X, reduced.Y)
    centred = reduced.X[first:], b[first:], reduced.scale[first:]
    old = prior.remains * reduced.ages < GAP  # in other cases a direction is new for other reasons
    taken = (*centred, np.maximum(np.abs(X[first:]), np.abs(center.features)), level * old[first:])
    if span is not None and span.free:
        span = span.relative_to(X[0], Y[0]) if first else span
        A, y = X - span.center[0] - span.center[1], Y - span.targets[0] - span.targets[1]
        weights = 1.0 if rows.weights is None else rows.weights[part]
        raw, ones = np.maximum(np.abs(X), np.abs(span.center[0])), np.ones((len(X), 1))
        taken = (
            np.hstack((ones, A)), rows.targets(A, y), np.sqrt(weights / reduced.ages),
            np.hstack((ones, raw)), level * old,
        )  # fmt: skip
    if pseudo is not None:
        before, more = pseudo.before, pseudo.rows
        # with fading by rows, a pseudo-row fades as the row after it; by time, not between the two
        own = 1.0 if rows.time is not None else factors[before + first]
        aged = np.sqrt(own / reduced.ages[before + first])
        prior = pseudo.prior.with_pseudo_rows(more * aged[:, None])
        wide = np.hstack((np.zeros((len(more), taken[0].shape[1] - more.shape[1])), more))
        at = before + first - (len(X) - len(taken[0]))
        centred = _among(centred, before, (more, 0.0, aged))
        taken = _among(taken, at, (wide, 0.0, aged, np.abs(wide), 0.0))
    if span is None:
        memory, errors = memory.absorb(*centred)
    else:
        memory, errors = replace(memory, span=span).spanned(*taken, centred)
    if pseudo is not None:
        errors = np.delete(errors, at + np.arange(len(at)), axis=0)
    if first:
        errors = np.vstack((b[:1], errors[len(errors) - len(X) + 1 :]))
    return errors, memory, prior


def _among(rows: tuple[Floats | float, ...], at: Array, more: tuple[Floats | float, ...]) -> Any:
    """Insert other rows, with targets, scales and sizes, before the rows ``at``."""
    return tuple(np.insert(part, at, other, axis=0) for part, other in zip(rows, more, strict=True))
