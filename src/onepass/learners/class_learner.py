"""Class learner: what classifiers share that keep moments of classes and no more.

What they would have said of a row is worked out from the moments before it, which costs far more
than adding the row to them; so it is worked out only where it is asked for.
"""

from abc import abstractmethod
from collections.abc import Iterator
from typing import Any, ClassVar, Literal

import numpy as np

from onepass import linalg
from onepass.errors import Array, Floats, NotFittedError, NumericalError
from onepass.learners.class_moments import Kept, Moments
from onepass.learners.estimator import Classifier, Layout

__all__ = ["UNSEEN", "ClassLearner"]

UNSEEN = float(np.finfo(np.float64).min / 4)
"""The score of a class that has no rows: below that of any other, and still a number."""
_LARGEST = 1e150  # squares of larger numbers overflow
_BLOCK = 1024  # rows that are taken as float64 at once


class ClassLearner(Classifier):
    """A classifier that keeps moments of classes.

    It brings ``_said``: the scores of rows by moments of some rows, (n, c); and ``_checked``,
    which refuses parameters out of range.
    """

    kept: ClassVar[Kept]
    """Whose sums of squares and products it keeps."""

    moments_: Moments

    @abstractmethod
    def _said(self, moments: Moments, X: Floats) -> Floats:
        """The score of each class for each row, (n, c)."""

    @abstractmethod
    def _checked(self, c: int) -> None:
        """Refuse parameters out of range, with c classes known."""

    @property
    def means_(self) -> Floats:
        """The mean of each class's rows, (c, d); 0 of a class that has none."""
        return self._learned().means.of_classes

    @property
    def counts_(self) -> Floats:
        """Rows of each class, by weight, (c,)."""
        return self._learned().means.mass.copy()

    def _learned(self) -> Moments:
        if not hasattr(self, "moments_"):
            who = type(self).__name__
            raise NotFittedError(
                f"{who}: this {who} is not fitted yet: it has learned no row. "
                "Call fit, partial_fit or learn_one first."
            )
        return self.moments_

    def _start(self, d: int, c: int) -> None:
        self._checked(c)
        self.moments_ = Moments.start(d, c, self.kept)

    def _take(self, X: Any, y: Any, sample_weight: Any, verb: str, time: Any = None) -> Array:
        self._aloud = verb == "test_then_train"
        try:
            return super()._take(X, y, sample_weight, verb, time)
        finally:
            del self._aloud

    def _learn(self, X: Floats, Y: Floats, s: Floats | None, known: Array | None) -> Floats:
        del known  # a class without rows is behind all others
        self._checked(Y.shape[1])
        if linalg.magnitude(X) > _LARGEST:
            raise NumericalError(
                f"{type(self).__name__}: rows must be small enough to square and sum, below "
                f"{_LARGEST:g}, got values up to {linalg.magnitude(X):.3g}. "
                "Give features in larger units."
            )
        said, labels, moments = np.zeros(Y.shape), Y.argmax(axis=1), self.moments_
        with np.errstate(over="ignore", invalid="ignore"):
            for rows, part, weights in _parts(X, s):
                if getattr(self, "_aloud", False):
                    said[rows] = self._before(moments, part, labels[rows], weights)
                moments = moments.taken(part, labels[rows], weights)
        self._adopt(moments)
        return said

    def _before(self, moments: Moments, X: Floats, labels: Array, s: Floats) -> Floats:
        """What is said of each row just before it is learned, (n, c)."""
        said = np.empty((len(X), len(moments.means.mass)))
        for i in range(len(X)):
            row = slice(i, i + 1)
            said[row] = self._spoken(moments, X[row])
            moments = moments.taken(X[row], labels[row], s[row])
        return said

    def _spoken(self, moments: Moments, X: Floats) -> Floats:
        """What is said of rows, as numbers, whatever overflowed; (n, c)."""
        seen, most = moments.means.seen, -UNSEEN / 2
        scores = self._said(moments, X) if seen.any() else np.zeros((len(X), len(seen)))
        if not np.abs(scores).max(initial=0.0) <= most:
            scores = np.clip(np.nan_to_num(scores, nan=-most), -most, most)
        said: Floats = np.where(seen, scores, UNSEEN)
        return said

    def _adopt(self, moments: Moments) -> None:
        if not moments.finite:
            raise NumericalError(
                f"{type(self).__name__}: sums of squares of the rows must be within float64, got "
                "larger. Give features in larger units."
            )
        self.moments_ = moments

    def _scores(self, X: Floats) -> Floats:
        self._checked(len(self.moments_.means.mass))
        with np.errstate(over="ignore", invalid="ignore"):
            return self._spoken(self.moments_, X.astype(np.float64, copy=False))

    def _widen(self, d: int) -> None:
        c = len(self.moments_.means.mass)
        old = np.arange(self.moments_.means.origins.shape[1])
        self.moments_ = self.moments_.placed(old, d, np.arange(c), c)

    def _add_outputs(self, at: Array, c: int) -> None:
        self._checked(c)
        d = self.moments_.means.origins.shape[1]
        old = np.setdiff1d(np.arange(c), at)
        self.moments_ = self.moments_.placed(np.arange(d), d, old, c)

    @property
    def merging(self) -> Literal["exact", "approximate", "refused"]:
        """``exact``: moments add up."""
        return "exact"

    def _unmergeable(self) -> str:
        return ""

    def _merge(self, other: Any, layout: Layout) -> None:
        if layout.d > self.n_features_in_:
            self._widen(layout.d)
        c = len(self.moments_.means.mass)
        theirs = other.moments_.placed(layout.features, layout.d, layout.outputs, c)
        with np.errstate(over="ignore", invalid="ignore"):
            self._adopt(self.moments_.merged(theirs))


def _parts(X: Floats, s: Floats | None) -> Iterator[tuple[slice, Floats, Floats]]:
    """Some rows at a time, as float64, with their weights."""
    for i in range(0, len(X), _BLOCK):
        rows = slice(i, min(i + _BLOCK, len(X)))
        weights = np.ones(rows.stop - i) if s is None else s[rows]
        yield rows, X[rows].astype(np.float64), weights
