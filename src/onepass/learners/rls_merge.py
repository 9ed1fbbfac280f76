"""Merging of least-squares learners, by their rule of forgetting.

Where the past is a faded sum over its rows, the sums add up. With forgetting λ, n_b rows of the
second after those of the first, and the prior Π counted once,

    A = λ^{n_b} A_a + (A_b − λ^{n_b} Π_b)                                                  (1)

for A = RᵀR. The second summand is the evidence of b's rows (:mod:`onepass.memory.evidence`); it is
added to a's faded triangle as rows are, together with the row between the means
(:mod:`onepass.linalg.centering`). So (1) holds for any ridge, weights, outputs and intercepts,
below full rank, and for concurrent streams, where nothing of a fades and the prior is the older
one's. b may have begun with another ridge or other coefficients: a's are retained. Where the past
fades by time, both are first faded until the later of their last rows. A window stores its rows:
those of both are learned, in order.

A coefficient's own prior (:mod:`onepass.memory.square_root`) has the units of the feature's first
value. Where a has seen the feature its pseudo-row stays and b's is removed. Where it has not, b's
stays, unless b's first row shows that the constant of a was another: then that is the first
difference. Cost: O(d³) time, once.
"""

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from onepass import linalg
from onepass.errors import MergeError, NumericalError
from onepass.learners.estimator import Layout
from onepass.linalg.centering import Centering
from onepass.memory.evidence import Evidence, without_prior
from onepass.memory.forgetting.exponential import LeastSquaresState
from onepass.memory.forgetting.parse import rule
from onepass.memory.forgetting.window import WindowRows
from onepass.memory.rebased import GAP
from onepass.memory.square_root import Prior, SquareRoot, Triangle
from onepass.types import Floats

__all__ = ["Known", "check_unstored", "placed", "pool", "pooled"]


_FAINTEST = 1e-300  # what is fainter is lifted to its least size by the memory anyway


class Known(NamedTuple):
    """What a least-squares learner knows."""

    memory: Triangle
    centering: Centering
    prior: Prior
    start: Floats
    """w₀, (d, c)."""
    ridge: Any
    """Π, as the learner's parameter."""

    @classmethod
    def of(cls, learner: Any) -> "Known":
        """What a learner of least squares knows."""
        parts = (learner.memory_.current(), learner.centering_, learner.prior_, learner.start_)
        return cls(*parts, learner.ridge)

    def faded(self, factor: float) -> "Known":
        """The same with all of the past, the prior too, weighing ``factor`` as much."""
        memory, factor = self.memory, max(factor, _FAINTEST)
        if factor < GAP and self.centering.mass > 0.0:
            memory = memory.rebased(self.centering)
        memory = memory.faded(factor)
        centering, prior = self.centering.faded(factor), self.prior.faded(factor)
        return self._replace(memory=memory, centering=centering, prior=prior)

    def placed(self, layout: Layout, c: int) -> "Known":
        """The same in the features and outputs of the whole, but for the memory."""
        at, d = layout.features, layout.d

        def there(vector: Floats, fill: float = 0.0) -> Floats:
            wide = np.full(d, fill)
            wide[at] = vector
            return wide

        def among(vector: Floats) -> Floats:
            wide = np.zeros(c)
            wide[layout.outputs] = vector
            return wide

        old, was = self.centering, self.prior
        center = Centering(
            there(old.features), among(old.targets), old.mass, old.free,
            there(old.features_rest), among(old.targets_rest),
        )  # fmt: skip
        prior = Prior(
            was.level, there(was.seen).astype(bool), there(was.pseudo_lengths),
            there(was.share, 1.0), there(was.first), was.remains,
        )  # fmt: skip
        start = np.zeros((d, c))
        start[np.ix_(at, layout.outputs)] = self.start
        return self._replace(centering=center, prior=prior, start=start)


def pooled(a: Known, b: Known, layout: Layout) -> Known:
    """What a would know, had it seen b's rows too.

    Parameters
    ----------
    a, b : Known
        b has seen rows; a knows its outputs, but not yet its features.
    layout : Layout
        Where b's features and outputs belong.
    """
    c = a.start.shape[1]
    own = a._replace(start=_padded(a.start, layout.d))
    there = b.placed(layout, c)
    fade = 1.0 if layout.concurrent else b.prior.remains
    known = len(a.start)
    own = _grown(own, layout.d, there.prior.share[known:], fade)
    if layout.concurrent:
        own = _aged(own, there.prior)
    doubled, prior, fresh = _one_prior(own, there)
    said = _said(b, layout, doubled)
    said = said.placed(layout.features, layout.d, layout.outputs, c)
    said = said._replace(targets=said.targets + said.rows @ (there.start - own.start))
    memory = _taken_in(own, there.centering, said, fresh)
    center = own.centering.joined(there.centering).center
    return own._replace(memory=memory, centering=center, prior=prior)


def _taken_in(own: Known, center: Centering, said: Evidence, fresh: Floats) -> Triangle:
    """The memory after the rows of others, which are centred at their means, and pseudo-rows."""
    rows = np.vstack((said.rows, fresh))
    b = np.vstack((said.targets, np.zeros((len(fresh), said.targets.shape[1]))))
    size = np.sqrt(center.mass) * np.abs(center.features)  # of the rows before they were centred
    raw = np.vstack((np.broadcast_to(size, said.rows.shape), np.zeros(fresh.shape)))
    memory, ones = own.memory, np.ones(len(rows) + 1)
    between = own.centering.joined(center)
    A = np.vstack((rows, between.scale * between.x))
    y = np.vstack((b, between.scale * (between.y - between.x @ own.start)))
    if memory.span is None and own.centering.mass > 0.0 and memory.calm_rows(A, ones) < len(A):
        memory = memory.rebased(own.centering)
    span, centred = memory.span, (A, y, ones)
    if span is None or not span.free:
        sizes = np.vstack((raw, between.scale * np.abs(own.centering.features)))
        return memory.absorb(*centred, np.abs(A) + sizes)[0].unexplained(said.rest)
    if own.centering.mass == 0.0:
        span = span.relative_to(center.features, center.targets)
    root = np.sqrt(center.mass)
    x = (center.features - span.center[0]) + (center.features_rest - span.center[1])
    shift = (center.targets - span.targets[0]) + (center.targets_rest - span.targets[1])
    A = np.vstack((root * np.append(1.0, x), np.hstack((np.zeros((len(rows), 1)), rows))))
    b = np.vstack((root * (shift - x @ own.start), b))
    units = np.where(span.units > 0.0, span.units, 1.0)
    # the rows were rotated: rounding errors are relative to the largest entry, in units
    sizes = np.abs(A / units).max(axis=1, initial=0.0)[:, None] * units
    sizes[:, 1:] += np.vstack((root * np.abs(span.center[0]), raw))
    sizes = np.where(A.any(axis=0), sizes, 0.0)  # a feature that was always 0 has no unit yet
    memory, _ = replace(memory, span=span).spanned(A, b, ones, sizes, centred=centred)
    return memory.settled().unexplained(said.rest)


def _padded(start: Floats, d: int) -> Floats:
    return np.vstack((start, np.zeros((d - len(start), start.shape[1]))))


def _grown(own: Known, d: int, share: Floats, fade: float) -> Known:
    """What a knows, faded, with features that it has never seen and that much of their ridge."""
    own = own.faded(fade)
    memory, known = own.memory, len(own.memory.z)
    if d > known:
        memory = memory.grown(d, own.centering, share)
    prior = own.prior.grown(d)
    prior = replace(prior, share=np.append(prior.share[:known], share))
    center = own.centering if d == known else own.centering.grown(d)
    return own._replace(memory=memory, centering=center, prior=prior)


def _aged(own: Known, other: Prior) -> Known:
    """Side by side the prior is as old as the older one's: what a knows, with its prior so old."""
    prior = own.prior
    share = np.minimum(prior.share, other.share)
    remains = min(prior.remains, other.remains)
    if (share == prior.share).all():
        return own._replace(prior=replace(prior, remains=remains))
    d, c = own.start.shape
    at = Layout(np.arange(d), d, np.arange(c), concurrent=True)
    said = _said(own, at, np.zeros(d))
    ridge = own.memory.ridge
    memory = SquareRoot(own.ridge).start(d, c, free=own.centering.free)
    if ridge is None:
        memory = memory.faded(float(share.min()))
    else:
        memory = replace(memory, R=np.asfortranarray(memory.R * np.sqrt(share)))
    before = own._replace(memory=memory, centering=own.centering.faded(0.0))
    memory = _taken_in(before, own.centering, said, np.zeros((0, d)))
    return own._replace(memory=memory, prior=replace(prior, share=share, remains=remains))


def _one_prior(own: Known, other: Known) -> tuple[Floats, Prior, Floats]:
    """The lengths of b's pseudo-rows to take out, the prior of both, and pseudo-rows to add."""
    mine, came, d = own.prior, other.prior, len(own.start)
    none = np.zeros((0, d))
    if own.centering.mass == 0.0:  # b's first row is the first of all
        shares = replace(came, share=mine.share, remains=mine.remains)
        return np.zeros(d), shares, none
    differs = own.centering.free & ~mine.seen & (came.first != own.centering.features)
    differs &= bool(mine.level)
    doubled = np.where(mine.seen | differs, came.pseudo_lengths, 0.0)
    unit = np.abs(came.first - own.centering.features)[differs]
    fresh = np.zeros((len(unit), d))
    fresh[np.arange(len(unit)), np.flatnonzero(differs)] = np.sqrt(mine.level * came.remains) * unit
    pseudo_lengths = mine.pseudo_lengths + came.pseudo_lengths - doubled + np.abs(fresh).sum(axis=0)
    return (
        doubled,
        replace(mine, seen=mine.seen | came.seen | differs, pseudo_lengths=pseudo_lengths),
        fresh,
    )


def _said(known: Known, layout: Layout, doubled: Floats) -> Evidence:
    """What the rows said: the triangle without the ridge, and without the pseudo-rows doubled."""
    memory, prior = known.memory, known.prior
    d = len(memory.z)
    pseudo_lengths = doubled[layout.features]
    if memory.ridge is None:
        values, vectors = np.linalg.eigh(np.asarray(known.ridge, dtype=np.float64))
        root: Floats = np.sqrt(np.clip(values, 0.0, None) * prior.remains)[:, None] * vectors.T
        L = np.vstack((root, np.diag(pseudo_lengths)))
    else:
        L = np.diag(np.hypot(np.sqrt(memory.ridge * prior.share[:d]), pseudo_lengths))
    if memory.span is None:
        return without_prior(memory.R, memory.z, memory.least, L)
    R, z = memory.span.triangle()
    k = int(memory.span.free)
    R, z = R[k:, k:], z[k:]
    Q, low = np.linalg.qr(R.T)
    turn, T = np.linalg.qr(low.T)
    said = without_prior(np.asfortranarray(T), turn.T @ z, memory.least, L @ Q)
    there = R.any(axis=0)  # a feature that was 0 in all rows stays exactly 0
    return said._replace(rows=np.where(there, said.rows @ Q.T, 0.0))


def pool(learner: Any, other: Any, layout: Layout) -> None:
    """Learn the sums of another learner's rows.

    Parameters
    ----------
    learner, other : learners of least squares
    layout : Layout
        Where the other's features and outputs belong.

    Raises
    ------
    MergeError
        If ridge, prior or times of the two do not go together.
    NumericalError
        If sums leave float64.
    """
    who = f"{type(learner).__name__}.merge"
    if learner.memory_.ridge == 0.0 and other.memory_.ridge != 0.0:
        raise MergeError(
            f"{who}: `ridge` of the second must be 0 as in the first, since a ridge hides the "
            f"rank of the rows, got {other.ridge!r}. Learn all parts with the same ridge."
        )
    if layout.d > len(learner.start_) and learner.memory_.ridge is None:
        raise MergeError(
            f"{who}: `ridge` must be a number where the second has features of its own, got a "
            f"matrix for {len(learner.start_)} of now {layout.d} features. Give a number, or "
            "learn the same features in all parts."
        )
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        one, two = Known.of(learner), Known.of(other)
        if rule(learner.forgetting, type(learner).__name__).clock is not None:
            layout = layout._replace(concurrent=True)
            one, two = _at_one_time(learner, one, two, other, who)
        both = pooled(one, two, layout)
        past = LeastSquaresState(both.memory, both.centering, both.prior)
        weights, middle, offset = past.fitted(both.start)
    if not linalg.finite(weights, np.diagonal(both.memory.R), both.memory.squares, offset):
        raise NumericalError(
            f"{who}: what was learned must be small enough to square and sum, got numbers "
            "beyond float64. Give features and answers in units that bring them nearer to 1."
        )
    learner.memory_, learner.centering_, learner.prior_ = both.memory, both.centering, both.prior
    learner.start_ = both.start
    learner.weights_, learner.middle_, learner.offset_ = weights, middle, offset
    ridge = np.asarray(learner.ridge, dtype=np.float64)
    if ridge.ndim == 0:
        learner.forgetting_ = learner.forgetting_.grown(layout.d, float(ridge))


def _at_one_time(
    learner: Any, one: Known, two: Known, other: Any, where: str
) -> tuple[Known, Known]:
    """What both know, faded until the later of their last rows."""
    mine = getattr(learner, "time_", None)
    if mine is None:
        learner.time_ = other.time_
        return one, two
    chosen: Any = rule(learner.forgetting, type(learner).__name__)
    late = mine <= other.time_
    fade = chosen.between(*((mine, other.time_) if late else (other.time_, mine)))
    if one.prior.level and not (late and two.prior.remains >= (1.0 - 1e-9) * fade):
        raise MergeError(
            f"{where}: with a `prior` the second's rows must all have come after the first's, "
            "got some that came before. Merge in the order of time, or set prior=0."
        )
    if late:
        learner.time_ = other.time_
        return one.faded(fade), two
    return one, two.faded(fade)


def check_unstored(learner: Any, other: Any, layout: Layout) -> None:
    """Hold the prior of features that the other saw, perhaps in rows that it no longer stores.

    Parameters
    ----------
    learner, other : learners of least squares
        With windows.
    layout : Layout
    """
    came, mine, at = other.prior_, learner.prior_, layout.features
    new = came.seen & ~mine.seen[at] & bool(mine.level)
    unit, queue = came.pseudo_lengths, learner.forgetting_
    if len(queue) and learner.centering_.free:  # a constant may have been another before
        apart = np.abs(came.first - learner.centering_.features[at])
        unit = np.where(apart > 0.0, np.sqrt(mine.level) * apart, unit)
    rows = np.zeros((int(new.sum()), layout.d))
    rows[np.arange(len(rows)), at[new]] = unit[new]
    seen = mine.seen.copy()
    seen[at[new]] = True
    learner.prior_ = replace(mine.with_pseudo_rows(rows), seen=seen)
    learner.forgetting_ = queue.penalised(rows)


def placed(stored_rows: WindowRows, start: Floats, layout: Layout, c: int) -> WindowRows:
    """The rows in the features and outputs of the whole, with their targets as they came.

    Parameters
    ----------
    stored_rows : Kept
        Rows of a window, whose targets are relative to the initial weights.
    start : ndarray of shape (d, c)
        The initial weights.
    layout : Layout
    c : int
        Outputs of the whole.
    """
    X, Y = np.zeros((len(stored_rows), layout.d)), np.zeros((len(stored_rows), c))
    X[:, layout.features] = stored_rows.X
    Y[:, layout.outputs] = stored_rows.b + stored_rows.X @ start
    return replace(stored_rows, X=X, b=Y)
