"""Clusterer: rows without answers; what is said of a row is the number of its cluster."""

from typing import Any, Self

import numpy as np
from sklearn.base import ClusterMixin

from onepass.errors import Array, Floats
from onepass.estimator.learner import Learner

__all__ = ["Clusterer"]


class Clusterer(ClusterMixin, Learner):  # type: ignore[misc]
    """The verbs of clusterers. A cluster keeps its number, however many come after it.

    ``y`` stands where scikit-learn's own clusterers have it, and means nothing there either.
    """

    rows_seen_: int

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:  # type: ignore[override]
        """Forget all, then learn the rows one after the other.

        Parameters
        ----------
        X : array-like of shape (n, d)
            At least one row.
        y : object
            Not read.
        sample_weight : array-like of shape (n,) or float, optional
            A weight >= 0 for each row.

        Returns
        -------
        self
        """
        return super().fit(X, y, sample_weight)

    def partial_fit(  # type: ignore[override]
        self, X: Any, y: Any = None, sample_weight: Any = None
    ) -> Self:
        """Learn the rows one after the other, on top of all learned so far.

        Parameters
        ----------
        X : array-like of shape (n, d)
            n may be zero: then nothing is learned.
        y : object
            Not read.
        sample_weight : array-like of shape (n,) or float, optional
            A weight >= 0 for each row; rows of weight 0 are not learned.

        Returns
        -------
        self
        """
        return super().partial_fit(X, y, sample_weight)

    def test_then_train(  # type: ignore[override]
        self, X: Any, y: Any = None, sample_weight: Any = None
    ) -> Array:
        """Learn the rows; return the cluster of each as it was said just before learning it.

        Parameters
        ----------
        X, y, sample_weight
            As in ``partial_fit``.

        Returns
        -------
        said : ndarray of int of shape (n,)
            −1 where there was no cluster yet.
        """
        return super().test_then_train(X, y, sample_weight)

    def learn_one(  # type: ignore[override]
        self, x: Any, y: Any = None, sample_weight: float = 1.0
    ) -> Self:
        """Learn one row: an array of shape (d,), or a dict of named features.

        Parameters
        ----------
        x : array of shape (d,), or dict
        y : object
            Not read.
        sample_weight : float, default=1.0

        Returns
        -------
        self
        """
        return super().learn_one(x, y, sample_weight)

    def fit_predict(self, X: Any, y: Any = None, sample_weight: Any = None) -> Array:
        """Forget all, learn the rows, and then say the cluster of each.

        Parameters
        ----------
        X, y, sample_weight
            As in ``fit``.
        """
        return self.fit(X, y, sample_weight).predict(X)

    def _admit(self, y: Any, n: int, s: Floats | None, where: str) -> tuple[Floats, None]:
        del y, where
        if not self._begun and n:
            self.rows_seen_ = 0
            self._start(self.n_features_in_, 1)
        if n:
            self.rows_seen_ += n if s is None else int(np.count_nonzero(s))
        return np.zeros((n, 1)), None

    def _join_outputs(self, other: Any, where: str) -> Array:
        del other, where
        if not self._begun:
            self.rows_seen_ = 0
            self._start(self.n_features_in_, 1)
        return np.zeros(1, dtype=np.intp)

    def _answers(self, scores: Floats, known: Array | None) -> Array:
        del known
        said: Array = scores[:, 0].astype(np.intp)
        return said

    def _unlearned(self, row: Floats) -> int:
        del row
        return -1
