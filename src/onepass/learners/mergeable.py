"""Mergeable: how least-squares learners become one, by their rule of forgetting.

Where what the past says is a faded sum over its rows, the sums add up
(:mod:`onepass.learners.pooling`); where it fades by time, both are brought to the later of their
last moments first, and it does not matter which rows came before which. A window keeps its rows:
those of both are learned, in order.
"""

from abc import abstractmethod
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from onepass import linalg
from onepass.centering import Centering
from onepass.errors import Array, Floats, MergeError, NumericalError
from onepass.forgetting.kept import Kept
from onepass.forgetting.past import Past
from onepass.forgetting.written import rule
from onepass.learners.estimator import Layout
from onepass.learners.pooling import Known, pooled
from onepass.memory.prior import Prior
from onepass.memory.square_root import Triangle

__all__ = ["Mergeable"]


class Mergeable:
    """What makes least-squares learners mergeable."""

    merged_alike: ClassVar[tuple[str, ...]] = ("fit_intercept", "prior")

    ridge: Any
    memory_: Triangle
    centering_: Centering
    prior_: Prior
    forgetting_: Any
    start_: Floats
    weights_: Floats
    middle_: Any
    offset_: Floats
    time_: Any
    n_features_in_: int

    @abstractmethod
    def _start(self, d: int, c: int) -> None: ...

    @abstractmethod
    def _widen(self, d: int) -> None: ...

    @abstractmethod
    def _learn(
        self, X: Floats, Y: Floats, s: Floats | None, known: Array | None, time: Any = None
    ) -> Floats: ...

    @abstractmethod
    def _rule(self) -> Any:
        """The rule of forgetting."""

    @abstractmethod
    def _changed(self) -> bool:
        """Whether it is of another kind than that by which was learned so far."""

    # -- hooks of merging --------------------------------------------------------------------------

    @property
    def merging(self) -> Any:
        """``exact`` where the past is a faded sum over its rows, or is kept."""
        chosen = self._rule()
        return "exact" if chosen.keeps_sums or chosen.keeps_rows else "refused"

    def _unmergeable(self) -> str:
        chosen = self._rule()
        if self._changed():
            return (
                f"got one whose `forgetting` is {chosen} after it learned with another kind. Set "
                "it as it was, or call fit to begin anew with it."
            )
        held = 0 if chosen.keeps_rows else getattr(getattr(self, "forgetting_", None), "rows", 0)
        if self.merging == "exact" and not held:  # nor was a floor put under them before
            return ""
        return (
            f"got one whose forgetting, {chosen}, leaves more than a faded sum of them. Use plain "
            "forgetting, such as forgetting=op.forgetting.Exponential(0.99), or a Window."
        )

    def _merge(self, other: Any, layout: Layout) -> None:
        one, two = self._rule(), rule(other.forgetting, type(other).__name__)
        kept = [getattr(each, "factor", None) for each in (one, two)]
        if one != two and kept != [1.0, 1.0]:
            raise MergeError(
                f"{type(self).__name__}.merge: `forgetting` must be the same in both, {one} as in "
                f"the first, got {two}. Learn all parts with the same parameters."
            )
        if self._rule().keeps_rows:
            self._learn_kept(other, layout)
        else:
            self._pool(other, layout)

    # -- sums --------------------------------------------------------------------------------------

    def _pool(self, other: Any, layout: Layout) -> None:
        """Take in what the other's rows said."""
        who = f"{type(self).__name__}.merge"
        if self.memory_.ridge == 0.0 and other.memory_.ridge != 0.0:
            raise MergeError(
                f"{who}: `ridge` of the second must be 0 as in the first, since a ridge hides the "
                f"rank of the rows, got {other.ridge!r}. Learn all parts with the same ridge."
            )
        if layout.d > len(self.start_) and self.memory_.ridge is None:
            raise MergeError(
                f"{who}: `ridge` must be a number where the second has features of its own, got a "
                f"matrix for {len(self.start_)} of now {layout.d} features. Give a number, or "
                "learn the same features in all parts."
            )
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            one, two = Known.of(self), Known.of(other)
            if self._rule().clock is not None:
                layout = layout._replace(concurrent=True)
                one, two = self._at_one_time(one, two, other, who)
            both = pooled(one, two, layout)
            past = Past(both.memory, both.centering, both.prior)
            weights, middle, offset = past.fitted(both.start)
        if not linalg.finite(weights, np.diagonal(both.memory.R), both.memory.squares, offset):
            raise NumericalError(
                f"{who}: what was learned must be small enough to square and sum, got numbers "
                "beyond float64. Give features and answers in units that bring them nearer to 1."
            )
        self.memory_, self.centering_, self.prior_ = both.memory, both.centering, both.prior
        self.start_ = both.start
        self.weights_, self.middle_, self.offset_ = weights, middle, offset
        ridge = np.asarray(self.ridge, dtype=np.float64)
        if ridge.ndim == 0:
            self.forgetting_ = self.forgetting_.grown(layout.d, float(ridge))

    def _at_one_time(self, one: Known, two: Known, other: Any, where: str) -> tuple[Known, Known]:
        """What both know, faded until the later of their last rows."""
        mine = getattr(self, "time_", None)
        if mine is None:
            self.time_ = other.time_
            return one, two
        chosen, late = self._rule(), mine <= other.time_
        fade = chosen.between(*((mine, other.time_) if late else (other.time_, mine)))
        if one.prior.level and not (late and two.prior.remains >= (1.0 - 1e-9) * fade):
            raise MergeError(
                f"{where}: with a `prior` the second's rows must all have come after the first's, "
                "got some that came before. Merge in the order of time, or set prior=0."
            )
        if late:
            self.time_ = other.time_
            return one.faded(fade), two
        return one, two.faded(fade)

    # -- rows --------------------------------------------------------------------------------------

    def _learn_kept(self, other: Any, layout: Layout) -> None:
        """Learn the rows that the other's window keeps; by time, in the order of both."""
        chosen, where = self._rule(), f"{type(self).__name__}.merge"
        if layout.concurrent and chosen.clock is None:
            raise MergeError(
                f"{where}: `concurrent` must be False with {chosen}, which keeps the last rows of "
                "one stream, got True. Use a window of time, Window(span=...)."
            )
        if layout.d > self.n_features_in_:
            self._widen(layout.d)
        more = _placed(other.forgetting_.kept, other.start_, layout, self.start_.shape[1])
        fresh = not len(self.forgetting_)
        late = chosen.clock is not None and not fresh and more.time[0] < self.time_
        if late and self.prior_.level:
            raise MergeError(
                f"{where}: with a `prior` the second's rows must all have come after the first's, "
                "got some that came before. Merge in the order of time, or set prior=0."
            )
        if len(more) < other.rows_seen_:
            self._meet_unkept(other, layout)
        if late:
            mine = self.forgetting_.kept
            mine = replace(mine, b=mine.b + mine.X @ self.start_)
            self._start(layout.d, self.start_.shape[1])
            del self.time_
            more = mine.then(more)
            more = more.part(np.argsort(more.time, kind="stable"))
        self._learn(more.X, more.b, more.roots**2, None, more.time)
        if fresh:  # its very first row, which may be kept no more
            first = np.zeros(layout.d)
            first[layout.features] = other.prior_.first
            self.prior_ = replace(self.prior_, first=first)

    def _meet_unkept(self, other: Any, layout: Layout) -> None:
        """Hold the prior of features that the other met, perhaps in rows that it keeps no more."""
        came, mine, at = other.prior_, self.prior_, layout.features
        new = came.met & ~mine.met[at] & bool(mine.level)
        unit, queue = came.held, self.forgetting_
        if len(queue) and self.centering_.free:  # a constant may have been another before
            apart = np.abs(came.first - self.centering_.features[at])
            unit = np.where(apart > 0.0, np.sqrt(mine.level) * apart, unit)
        rows = np.zeros((int(new.sum()), layout.d))
        rows[np.arange(len(rows)), at[new]] = unit[new]
        met = mine.met.copy()
        met[at[new]] = True
        self.prior_ = replace(mine.holding(rows), met=met)
        self.forgetting_ = queue.penalised(rows)


def _placed(kept: Kept, start: Floats, layout: Layout, c: int) -> Kept:
    """The rows in the features and outputs of the whole, with their answers as they came."""
    X, Y = np.zeros((len(kept), layout.d)), np.zeros((len(kept), c))
    X[:, layout.features] = kept.X
    Y[:, layout.outputs] = kept.b + kept.X @ start
    return replace(kept, X=X, b=Y)
