"""Least squares: rows into triangle and means; what the RLS learners share.

How rows are taken in, and how the past fades meanwhile, says a rule of :mod:`onepass.forgetting`.
It leaves the triangle of the centred rows (:mod:`onepass.memory.square_root`) and their means
(:mod:`onepass.centering`), which are what answers are made of, and a state of its own.
"""

import math
from typing import Any

import numpy as np

from onepass import linalg, validation
from onepass.centering import Centering
from onepass.errors import Array, Floats, NumericalError, ParameterError
from onepass.forgetting.past import Coming, Past
from onepass.forgetting.written import rule
from onepass.learners.linear import NEAR, Linear, initial_weights
from onepass.learners.mergeable import Mergeable
from onepass.learners.one_by_one import OneByOne
from onepass.learners.row_loop import learned
from onepass.memory.prior import Prior
from onepass.memory.square_root import SquareRoot, Triangle
from onepass.validation.table import mixed_zones

__all__ = ["LeastSquares"]

_LARGEST = 1e150  # sums of squares of larger rows might have no room for another row


class LeastSquares(OneByOne, Linear, Mergeable):
    """What the regressor and the classifier share: learning rows into triangle and means."""

    _square = True
    scale_free = True  # the answers do not depend on the features' units, but through the ridge

    ridge: Any
    forgetting: Any
    prior: float
    fit_intercept: bool
    memory_: Triangle
    centering_: Centering
    prior_: Prior
    forgetting_: Any
    start_: Floats
    middle_: Any = 0.0  # m of the outputs Wᵀ (x − m) + b; missing in files of former versions
    time_: Any
    time_aware_: bool
    rows_seen_: int

    @property
    def uses_time(self) -> bool:
        """Whether the verbs that learn need the time of each row: where the past fades by time."""
        return self._rule().clock is not None

    def _start(self, d: int, c: int) -> None:
        where, chosen = type(self).__name__, self._rule()
        self.start_ = initial_weights(getattr(self, "initial_coef", None), d, c, where)
        try:
            self.memory_ = SquareRoot(self.ridge).start(d, c, free=bool(self.fit_intercept))
        except ParameterError as wrong:  # in the words of who set it
            raise ParameterError(str(wrong).replace("SquareRoot", where, 1)) from wrong
        self.centering_ = Centering.start(d, c, free=bool(self.fit_intercept))
        self.prior_ = Prior.start(validation.in_range(self.prior, "prior", where, low=0.0), d)
        least = np.broadcast_to(_diagonal(self.ridge), d).copy()
        past = Past(self.memory_, self.centering_, self.prior_)
        self.forgetting_ = chosen.start(past, least)
        self.weights_ = self.start_
        self.middle_, self.offset_ = np.zeros(d), np.zeros(c)

    def _learn_at(
        self, X: Floats, Y: Floats, s: Floats | None, known: Array | None, time: Any
    ) -> Floats:
        return self._learn(X, Y, s, known, time)

    def _learn(
        self, X: Floats, Y: Floats, s: Floats | None, known: Array | None, time: Any = None
    ) -> Floats:
        del known  # an output whose class is not known yet has seen zeros: that is exact
        if _largest(X, Y, s) > _LARGEST:  # even if they could be learned: no row could after them
            raise self._too_large(X, Y, s)
        past = Past(self.memory_, self.centering_, self.prior_)
        rows = Coming(X, Y, s, self.start_, time, getattr(self, "time_", None))
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            try:
                found = learned(self._rule(), self.forgetting_, past, rows)
            except np.linalg.LinAlgError as wrong:  # of infinity
                raise self._too_large(X, Y, s) from wrong
            memory = found.past.memory
            said: Floats = Y - found.errors
            weights, middle, offset = found.past.fitted(self.start_)
            good = found.state.finite and linalg.finite(
                weights, np.diagonal(memory.R), memory.squares, offset, said
            )
        if not good:
            raise self._too_large(X, Y, s)
        self.memory_, self.centering_, self.prior_ = found.past
        self.forgetting_ = found.state
        self.weights_, self.middle_, self.offset_ = weights, middle, offset
        if time is not None:
            self.time_ = time[-1] if time.dtype.kind == "M" else time[-1].item()
        return said

    def _too_large(self, X: Floats, Y: Floats, s: Floats | None) -> NumericalError:
        return NumericalError(
            f"{type(self).__name__}: rows, the weights that fit them, and their squares must stay "
            f"within float64, got values up to {_largest(X, Y, s):.3g}. Give features and "
            "targets in units that bring them nearer to 1. If they already are near 1, an earlier "
            "row was too large: restore the learner from before that row."
        )

    def _when(self, time: Any, n: int, where: str) -> Any:
        chosen = self._rule()
        if self._changed():
            raise ParameterError(
                f"{where}: `forgetting` must keep the same of the past, and count time alike, as "
                f"it did so far, got {chosen} after another kind. Call fit to begin anew with it."
            )
        clock = chosen.clock
        if clock is None:
            return super()._when(time, n, where)  # type: ignore[misc]
        if time is None and n == 0:
            return None
        if time is None:
            raise ParameterError(
                f"{where}: `time` must say when each row happened, as the learner forgets by time, "
                f"{chosen}, got none. Give {clock}s, one for each row: time=..."
            )
        last = getattr(self, "time_", None)
        when = validation.times(time, n, where, dates=clock == "date", last=last)
        aware, before = validation.aware(time), getattr(self, "time_aware_", None)
        if aware is not None:
            if before not in {None, aware}:
                raise mixed_zones(f"{where}: `time`, with the rows before,")
            self.time_aware_ = aware
        return when

    def _rule(self) -> Any:
        """The rule of forgetting that the parameter stands for."""
        return rule(self.forgetting, type(self).__name__)

    def _changed(self) -> bool:
        """Whether the parameter is of another kind than the rule by which was learned so far."""
        chosen, kept = self._rule(), getattr(self, "forgetting_", None)
        if kept is None or type(kept) is not chosen.state:
            return kept is not None
        time = getattr(self, "time_", None)
        clock = None if time is None else "date" if isinstance(time, np.datetime64) else "number"
        return bool(self.rows_seen_ and clock != chosen.clock)

    def _scores(self, X: Floats) -> Floats:
        """Outputs of rows, centred first so that large feature means cost no digits."""
        if not np.any(self.middle_):
            return super()._scores(X)
        scores = np.empty((len(X), self.weights_.shape[1]))
        width = max(1, NEAR // max(1, X.shape[1]))
        for i in range(0, len(X), width):
            rows = slice(i, i + width)
            scores[rows] = (X[rows] - self.middle_) @ self.weights_
        return scores + self.offset_

    def _intercepts(self) -> Floats:
        if not np.any(self.middle_):
            return self.offset_
        intercepts: Floats = self.offset_ - self.middle_ @ self.weights_
        return intercepts

    def _widen(self, d: int) -> None:
        extra = d - len(self.start_)
        super()._widen(d)
        self.middle_ = np.append(np.broadcast_to(self.middle_, len(self.start_)), np.zeros(extra))
        self.start_ = np.vstack((self.start_, np.zeros((extra, self.start_.shape[1]))))
        self.memory_ = self.memory_.grown(d, self.centering_)
        self.centering_ = self.centering_.grown(d)
        self.forgetting_ = self.forgetting_.grown(d, float(_diagonal(self.ridge)))
        self.prior_ = self.prior_.grown(d)


def _largest(X: Floats, Y: Floats, s: Floats | None) -> float:
    """The largest size of a number of the rows, also as their weights make it."""
    largest = max(linalg.magnitude(X), linalg.magnitude(Y))
    if s is None or max(largest, 1.0) * math.sqrt(s.max()) <= _LARGEST:
        return largest
    sizes = np.maximum(np.abs(X).max(axis=1, initial=1.0), np.abs(Y).max(axis=1, initial=1.0))
    with np.errstate(over="ignore"):
        return max(largest, float((sizes * np.sqrt(s)).max()))


def _diagonal(ridge: Any) -> Floats:
    """The ridge of each weight by itself."""
    array = np.asarray(ridge, dtype=np.float64)
    return np.asarray(np.diagonal(array) if array.ndim == 2 else array)
