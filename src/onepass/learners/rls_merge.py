"""Merging of least-squares learners, which depends on their forgetting rule.

If the state is a decayed sum over rows, the sums are added. With forgetting λ, n_b rows of the
second learner after those of the first, and the prior Π counted once,

    A = λ^{n_b} A_a + (A_b − λ^{n_b} Π_b)                                                  (1)

for A = RᵀR. The second summand is the evidence of b's rows (:mod:`onepass.memory.evidence`); it is
added to a's decayed triangle like rows, together with the row between the means
(:mod:`onepass.linalg.centering`). So (1) holds for any ridge, weights, outputs and intercepts,
below full rank, and for concurrent streams, where a does not decay and the prior is that of the
older learner. b may have started with another ridge or other coefficients: those of a are retained.
With decay by time, both states are first decayed to the later of their last times. A window stores
its rows: the rows of both windows are learned in order.

The prior of a coefficient (:mod:`onepass.memory.square_root`) has the units of the first value of
its feature. If a has seen the feature, its pseudo-row is retained and b's is removed. Otherwise
b's is retained, unless b's first row differs from the constant value of the feature in a: then the
pseudo-row has the units of that difference. Cost: O(d³) time, once.
"""

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from onepass import linalg
from onepass.errors import MergeError, NumericalError
from onepass.learners.estimator import Layout
from onepass.learners.rls_compiled import ArrayState
from onepass.linalg.centering import Centering
from onepass.memory.evidence import Evidence, without_prior
from onepass.memory.forgetting.auto import AutoState, Part
from onepass.memory.forgetting.exponential import LeastSquaresState
from onepass.memory.forgetting.parse import rule
from onepass.memory.forgetting.window import WindowRows
from onepass.memory.rebased import GAP
from onepass.memory.square_root import Prior, SquareRoot, Triangle
from onepass.types import Floats

__all__ = ["MergeState", "add_unstored_prior", "align_rows", "merge_sums", "merged_state"]


_MIN_FACTOR = 1e-300  # lower bound of decay factors; smaller ones have the same effect


class MergeState(NamedTuple):
    """The state of a least-squares learner that determines a merge."""

    memory: Triangle
    centering: Centering
    prior: Prior
    start: Floats
    """w₀, (d, c)."""
    ridge: Any
    """Π, the parameter of the learner."""

    @classmethod
    def of(cls, learner: Any) -> "MergeState":
        """The state of a learner."""
        parts = (
            learner.memory_.current(),
            learner.centering_,
            learner.prior_,
            learner.initial_weights_,
        )
        return cls(*parts, learner.ridge)

    def of_part(self, part: Part) -> "MergeState":
        """The state of an expert of automatic forgetting."""
        memory, centering, prior, _ = part
        return self._replace(memory=memory.current(), centering=centering, prior=prior)

    def faded(self, factor: float) -> "MergeState":
        """The state after the weights of all rows and of the prior are multiplied by ``factor``."""
        memory, factor = self.memory, max(factor, _MIN_FACTOR)
        if factor < GAP and self.centering.mass > 0.0:
            memory = memory.rebased(self.centering)
        memory = memory.faded(factor)
        centering, prior = self.centering.faded(factor), self.prior.faded(factor)
        return self._replace(memory=memory, centering=centering, prior=prior)

    def aligned(self, layout: Layout, c: int) -> "MergeState":
        """The state, except the memory, in the features and outputs of the merged learner."""
        at, d = layout.features, layout.d

        def by_feature(vector: Floats, fill: float = 0.0) -> Floats:
            wide = np.full(d, fill)
            wide[at] = vector
            return wide

        def by_output(vector: Floats) -> Floats:
            wide = np.zeros(c)
            wide[layout.outputs] = vector
            return wide

        centering, prior = self.centering, self.prior
        center = Centering(
            by_feature(centering.features), by_output(centering.targets),
            centering.mass, centering.free,
            by_feature(centering.features_rest), by_output(centering.targets_rest),
        )  # fmt: skip
        prior = Prior(
            prior.level, by_feature(prior.seen).astype(bool), by_feature(prior.pseudo_lengths),
            by_feature(prior.share, prior.remains),
            by_feature(prior.first), prior.remains,
        )  # fmt: skip
        start = np.zeros((d, c))
        start[np.ix_(at, layout.outputs)] = self.start
        return self._replace(centering=center, prior=prior, start=start)


def merged_state(a: MergeState, b: MergeState, layout: Layout) -> MergeState:
    """The state of a after learning the rows of b too.

    Parameters
    ----------
    a, b : MergeState
        b has seen rows; a has all outputs of b, but not yet its features.
    layout : Layout
        The positions of b's features and outputs.
    """
    c = a.start.shape[1]
    own = a._replace(start=_padded(a.start, layout.d))
    other = b.aligned(layout, c)
    fade = 1.0 if layout.concurrent else b.prior.remains
    own = _grown(own, layout.d, fade)
    if layout.concurrent:
        own = _with_older_prior(own, other.prior)
    doubled, prior, fresh = _merged_prior(own, other)
    evidence = _evidence(b, layout, doubled)
    evidence = evidence.placed(layout.features, layout.d, layout.outputs, c)
    evidence = evidence._replace(
        targets=evidence.targets + evidence.rows @ (other.start - own.start)
    )
    memory = _with_evidence(own, other.centering, evidence, fresh)
    center = own.centering.joined(other.centering).center
    return own._replace(memory=memory, centering=center, prior=prior)


def _with_evidence(
    own: MergeState, center: Centering, evidence: Evidence, fresh: Floats
) -> Triangle:
    """The memory after the evidence of other rows, centred at their means, and pseudo-rows."""
    rows = np.vstack((evidence.rows, fresh))
    b = np.vstack((evidence.targets, np.zeros((len(fresh), evidence.targets.shape[1]))))
    size = np.sqrt(center.mass) * np.abs(center.features)  # size of the rows before centring
    raw = np.vstack((np.broadcast_to(size, evidence.rows.shape), np.zeros(fresh.shape)))
    memory, ones = own.memory, np.ones(len(rows) + 1)
    between = own.centering.joined(center)
    A = np.vstack((rows, between.scale * between.x))
    y = np.vstack((b, between.scale * (between.y - between.x @ own.start)))
    if memory.span is None and own.centering.mass > 0.0 and memory.calm_rows(A, ones) < len(A):
        memory = memory.rebased(own.centering)
    span, centred = memory.span, (A, y, ones)
    if span is None or not span.free:
        sizes = np.vstack((raw, between.scale * np.abs(own.centering.features)))
        return memory.absorb(*centred, np.abs(A) + sizes)[0].unexplained(evidence.rest)
    if own.centering.mass == 0.0:
        span = span.relative_to(center.features, center.targets)
    root = np.sqrt(center.mass)
    x = (center.features - span.center[0]) + (center.features_rest - span.center[1])
    shift = (center.targets - span.targets[0]) + (center.targets_rest - span.targets[1])
    A = np.vstack((root * np.append(1.0, x), np.hstack((np.zeros((len(rows), 1)), rows))))
    b = np.vstack((root * (shift - x @ own.start), b))
    units = np.where(span.units > 0.0, span.units, 1.0)
    # the rows were rotated, so rounding errors are relative to the largest entry, in units
    sizes = np.abs(A / units).max(axis=1, initial=0.0)[:, None] * units
    sizes[:, 1:] += np.vstack((root * np.abs(span.center[0]), raw))
    sizes = np.where(A.any(axis=0), sizes, 0.0)  # a feature that was always 0 has no unit yet
    memory, _ = replace(memory, span=span).spanned(A, b, ones, sizes, centred=centred)
    return memory.settled().unexplained(evidence.rest)


def _padded(start: Floats, d: int) -> Floats:
    return np.vstack((start, np.zeros((d - len(start), start.shape[1]))))


def _grown(own: MergeState, d: int, fade: float) -> MergeState:
    """The state, decayed and extended to d features, which were zero in all its rows."""
    own = own.faded(fade)
    if d == len(own.memory.z):
        return own
    memory = own.memory.grown(d, own.centering, own.prior.remains)
    center, prior = own.centering.grown(d), own.prior.grown(d)
    return own._replace(memory=memory, centering=center, prior=prior)


def _with_older_prior(own: MergeState, other: Prior) -> MergeState:
    """For concurrent streams: the state with the prior decayed as that of the older learner."""
    prior = own.prior
    share = np.minimum(prior.share, other.share)
    remains = min(prior.remains, other.remains)
    if (share == prior.share).all():
        return own._replace(prior=replace(prior, remains=remains))
    d, c = own.start.shape
    at = Layout(np.arange(d), d, np.arange(c), concurrent=True)
    evidence = _evidence(own, at, np.zeros(d))
    ridge = own.memory.ridge
    memory = SquareRoot(own.ridge).start(d, c, free=own.centering.free)
    if ridge is None:
        memory = memory.faded(float(share.min()))
    else:
        memory = replace(memory, R=np.asfortranarray(memory.R * np.sqrt(share)))
    before = own._replace(memory=memory, centering=own.centering.faded(0.0))
    memory = _with_evidence(before, own.centering, evidence, np.zeros((0, d)))
    return own._replace(memory=memory, prior=replace(prior, share=share, remains=remains))


def _merged_prior(own: MergeState, other: MergeState) -> tuple[Floats, Prior, Floats]:
    """Lengths of b's pseudo-rows to remove, the prior of both, and pseudo-rows to add."""
    first, second, d = own.prior, other.prior, len(own.start)
    none = np.zeros((0, d))
    if own.centering.mass == 0.0:  # b's first row is the first row of both
        shares = replace(second, share=first.share, remains=first.remains)
        return np.zeros(d), shares, none
    differs = own.centering.free & ~first.seen & (second.first != own.centering.features)
    differs &= bool(first.level)
    doubled = np.where(first.seen | differs, second.pseudo_lengths, 0.0)
    unit = np.abs(second.first - own.centering.features)[differs]
    fresh = np.zeros((len(unit), d))
    fresh[np.arange(len(unit)), np.flatnonzero(differs)] = (
        np.sqrt(first.level * second.remains) * unit
    )
    pseudo_lengths = (
        first.pseudo_lengths + second.pseudo_lengths - doubled + np.abs(fresh).sum(axis=0)
    )
    return (
        doubled,
        replace(first, seen=first.seen | second.seen | differs, pseudo_lengths=pseudo_lengths),
        fresh,
    )


def _evidence(state: MergeState, layout: Layout, doubled: Floats) -> Evidence:
    """The evidence of the rows: the triangle without the ridge and the doubled pseudo-rows."""
    memory, prior = state.memory, state.prior
    d = len(memory.z)
    lengths = doubled[layout.features]
    if memory.ridge is None:
        values, vectors = np.linalg.eigh(np.asarray(state.ridge, dtype=np.float64))
        root: Floats = np.sqrt(np.clip(values, 0.0, None) * prior.remains)[:, None] * vectors.T
        L = np.vstack((root, np.diag(lengths)))
    else:
        L = np.diag(np.hypot(np.sqrt(memory.ridge * prior.share[:d]), lengths))
    if memory.span is None:
        return without_prior(memory.R, memory.z, memory.least, L)
    R, z = memory.span.triangle()
    k = int(memory.span.free)
    units = np.where(memory.span.units > 0.0, memory.span.units, 1.0)[k:]
    R, z = R[k:, k:] / units, z[k:]
    Q, low = np.linalg.qr(R.T)
    turn, T = np.linalg.qr(low.T)
    evidence = without_prior(np.asfortranarray(T), turn.T @ z, memory.least, (L / units) @ Q)
    nonzero = R.any(axis=0)  # a feature that was 0 in all rows stays exactly 0
    return evidence._replace(rows=np.where(nonzero, evidence.rows @ Q.T * units, 0.0))


def merge_sums(learner: Any, other: Any, layout: Layout) -> None:
    """Add the sums over another learner's rows to a learner.

    Parameters
    ----------
    learner, other : least-squares learners
    layout : Layout
        The positions of the other learner's features and outputs.

    Raises
    ------
    MergeError
        If ridges, priors or times of the two are incompatible.
    NumericalError
        If sums exceed the range of float64.
    """
    who = f"{type(learner).__name__}.merge"
    if learner.memory_.ridge == 0.0 and other.memory_.ridge != 0.0:
        raise MergeError(
            f"{who}: `ridge` of the second must be 0 as in the first, since the rank of its rows "
            f"is unknown otherwise, got {other.ridge!r}. Learn all parts with the same ridge."
        )
    if layout.d > len(learner.initial_weights_) and learner.memory_.ridge is None:
        raise MergeError(
            f"{who}: `ridge` must be a number if the second has additional features, got a matrix "
            f"for {len(learner.initial_weights_)} of now {layout.d} features. Pass a number, or "
            "learn the same features in all parts."
        )
    ridge = np.asarray(learner.ridge, dtype=np.float64)
    state, least = learner.forgetting_, float(ridge) if ridge.ndim == 0 else 0.0
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        one, two = MergeState.of(learner), MergeState.of(other)
        pairs = [(one, two)]
        if rule(learner.forgetting, type(learner).__name__).clock is not None:
            layout = layout._replace(concurrent=True)
            pairs = [_at_common_time(learner, one, two, other, who)]
        if isinstance(state, AutoState):
            parts = zip(state.parts, other.forgetting_.parts, strict=True)
            pairs += [(one.of_part(a), two.of_part(b)) for a, b in parts]
        both = [merged_state(a, b, layout) for a, b in pairs]
        past, *others = (LeastSquaresState(*each[:3]) for each in both)
        if isinstance(state, AutoState):
            rows = learner.rows_seen_ - other.rows_seen_, other.rows_seen_
            state = state.after_merge(other.forgetting_, others, layout, rows, least)
        elif ridge.ndim == 0:
            state = state.grown(layout.d, least)
        arrays = ArrayState(past, state)
        weights, _, offset = arrays.fitted(both[0].start)
    numbers = [(np.diagonal(each.memory.R), each.memory.squares) for each in both]
    if not linalg.finite(weights, offset, *(number for pair in numbers for number in pair)):
        raise NumericalError(
            f"{who}: the learned state must be small enough to square and sum, got numbers "
            "beyond float64. Use units in which features and targets are nearer to 1."
        )
    learner.initial_weights_ = both[0].start
    learner._set_arrays(arrays)  # noqa: SLF001


def _at_common_time(
    learner: Any, one: MergeState, two: MergeState, other: Any, where: str
) -> tuple[MergeState, MergeState]:
    """Both states, decayed to the later of their last times."""
    time = getattr(learner, "time_", None)
    if time is None:
        learner.time_ = other.time_
        return one, two
    chosen: Any = rule(learner.forgetting, type(learner).__name__)
    later = time <= other.time_
    fade = chosen.between(*((time, other.time_) if later else (other.time_, time)))
    if one.prior.level and not (later and two.prior.remains >= (1.0 - 1e-9) * fade):
        raise MergeError(
            f"{where}: with a `prior` all rows of the second must be later than those of the "
            "first, got some that are earlier. Merge in order of time, or set prior=0."
        )
    if later:
        learner.time_ = other.time_
        return one.faded(fade), two
    return one, two.faded(fade)


def add_unstored_prior(learner: Any, other: Any, layout: Layout) -> None:
    """Add the prior of features that the other learner has seen, also in rows no longer stored.

    Parameters
    ----------
    learner, other : least-squares learners
        Learners whose forgetting rules are windows.
    layout : Layout
        The positions of the other learner's features and outputs.
    """
    second, own, at = other.prior_, learner.prior_, layout.features
    new = second.seen & ~own.seen[at] & bool(own.level)
    unit, queue = second.pseudo_lengths, learner.forgetting_
    if len(queue) and learner.centering_.free:  # the constant may have changed
        apart = np.abs(second.first - learner.centering_.features[at])
        unit = np.where(apart > 0.0, np.sqrt(own.level) * apart, unit)
    rows = np.zeros((int(new.sum()), layout.d))
    rows[np.arange(len(rows)), at[new]] = unit[new]
    seen = own.seen.copy()
    seen[at[new]] = True
    learner.prior_ = replace(own.with_pseudo_rows(rows), seen=seen)
    learner.forgetting_ = queue.penalised(rows)


def align_rows(rows: WindowRows, start: Floats, layout: Layout, c: int) -> WindowRows:
    """The rows of a window in the features and outputs of the merged learner.

    Parameters
    ----------
    rows : WindowRows
        Rows of a window, whose targets are relative to the initial weights.
    start : ndarray of shape (d, c)
        The initial weights.
    layout : Layout
        The positions of the rows' features and outputs.
    c : int
        The number of outputs of the merged learner.

    Returns
    -------
    rows : WindowRows
        Rows with their original targets.
    """
    X, Y = np.zeros((len(rows), layout.d)), np.zeros((len(rows), c))
    X[:, layout.features] = rows.X
    Y[:, layout.outputs] = rows.b + rows.X @ start
    return replace(rows, X=X, b=Y)
