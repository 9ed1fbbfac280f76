"""Learner: the verbs, over arrays, dicts and frames."""

import copy
from abc import ABC, abstractmethod
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator

from onepass import linalg, validation
from onepass.errors import Array, Floats, NotFittedError, ParameterError, ShapeError
from onepass.estimator.growing import Growing
from onepass.estimator.merging import Merging
from onepass.estimator.timing import Timing
from onepass.serialization.state import learned, nbytes
from onepass.validation.arrays import hold_breadth, warn_of_square

__all__ = ["Learner"]


class Learner(Growing, Timing, Merging, BaseEstimator, ABC):  # type: ignore[misc]
    """The verbs that regressors and classifiers share.

    Hyperparameters that say where learning begins (a ridge, a memory, initial weights) are read
    when it begins: set later, they wait for the next ``fit``. The others act from the next row.
    """

    n_features_in_: int
    feature_names_in_: Array

    # -- hooks -----------------------------------------------------------------------------

    @abstractmethod
    def _start(self, d: int, c: int) -> None:
        """Set what is learned to its beginning; refuse hyperparameters out of range."""

    @abstractmethod
    def _scores(self, X: Floats) -> Floats:
        """What is said of the rows now, (n, c)."""

    @abstractmethod
    def _unlearned(self, row: Floats) -> Any:
        """What is said of a row before anything was learned."""

    @abstractmethod
    def _admit(self, y: Any, n: int, s: Floats | None, where: str) -> tuple[Floats, Array | None]:
        """Check the answers; begin if this is the first block; return Y (n, c) and ``known``."""

    @abstractmethod
    def _answers(self, scores: Floats, known: Array | None) -> Array:
        """Scores (n, c) as the answers that a user sees."""

    def _few_learned(self, X: Any, y: Any, where: str) -> Array | None:
        """What would have been said of rows that are learned here; None where none was."""
        del X, y, where
        return None

    def _few_said(self, X: Any) -> Array | None:
        """The answers for a few plain rows, where there is a short way to them."""
        del X
        return None

    def answering(self) -> Any:
        """A copy that says what this learner says now, and goes on saying it.

        It costs little, shares what was learned, and is for answers alone: it is not to learn.
        """
        return copy.copy(self)

    # -- verbs over many rows ----------------------------------------------------------------

    def fit(self, X: Any, y: Any, sample_weight: Any = None, *, time: Any = None) -> Self:
        """Forget all, then learn the rows one after the other.

        Parameters
        ----------
        X : array-like of shape (n, d)
            At least one row.
        y : array-like of shape (n,) or (n, c)
            One answer a row.
        sample_weight : array-like of shape (n,) or float, optional
            A weight >= 0 for each row.
        time : array-like of shape (n,), optional
            When each row happened, never going back: numbers, or dates. For learners that
            forget by time (``uses_time``), which need it; others refuse it.

        Returns
        -------
        self
        """
        with self._whole():
            for name in learned(self):
                delattr(self, name)
            self._take(X, y, sample_weight, "fit", time)
        return self

    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None, *, time: Any = None) -> Self:
        """Learn the rows one after the other, on top of all learned so far.

        Cutting a stream into blocks changes nothing but the speed.

        Parameters
        ----------
        X : array-like of shape (n, d)
            n may be zero: then nothing is learned.
        y : array-like of shape (n,) or (n, c)
            One answer a row.
        sample_weight : array-like of shape (n,) or float, optional
            A weight >= 0 for each row; rows of weight 0 are not learned.
        time : array-like of shape (n,), optional
            As in ``fit``.

        Returns
        -------
        self
        """
        few = sample_weight is None and time is None
        if few and self._few_learned(X, y, "partial_fit") is not None:
            return self
        with self._whole():
            self._take(X, y, sample_weight, "partial_fit", time)
        return self

    def test_then_train(
        self, X: Any, y: Any, sample_weight: Any = None, *, time: Any = None
    ) -> Array:
        """Learn the rows; return what would have been said of each just before learning it.

        Equal to ``predict_one`` followed by ``learn_one`` for each row, at the speed of blocks.

        Parameters
        ----------
        X, y, sample_weight, time
            As in ``partial_fit``. Rows of weight 0 are answered and not learned.

        Returns
        -------
        said : ndarray of the shape of y
        """
        few = sample_weight is None and time is None
        if few and (said := self._few_learned(X, y, "test_then_train")) is not None:
            return said
        with self._whole():
            return self._take(X, y, sample_weight, "test_then_train", time)

    def predict(self, X: Any) -> Array:
        """Answers for the rows of X, shape (n,) or (n, c).

        Raises
        ------
        NotFittedError
            Before anything was learned.
        """
        said = self._few_said(X)
        if said is not None:
            return said
        return self._answers(self._scores(self._matrix(X, "predict")), None)

    # -- verbs over one row --------------------------------------------------------------------

    def learn_one(self, x: Any, y: Any, sample_weight: float = 1.0, *, time: Any = None) -> Self:
        """Learn one row: an array of shape (d,), or a dict of named features; ``time`` if needed.

        Returns
        -------
        self
        """
        with self._whole():
            where = f"{type(self).__name__}.learn_one"
            row = self._row(x, where)
            plain = isinstance(sample_weight, (int, float)) and sample_weight == 1
            s = None if plain else validation.weights([sample_weight], 1, where)
            if not hasattr(self, "n_features_in_"):
                names = [str(name) for name in x] if isinstance(x, dict) else None
                self._meet(row.shape[0], names)
            when = self._when(time, 1, where)
            Y, known = self._admit_one(y, s, where)
            if s is None or s[0] > 0:
                self._learn_at(row[None, :], Y, s, known, when)
        return self

    def predict_one(self, x: Any) -> Any:
        """The answer for one row; before anything was learned, that of the initial weights."""
        row = self._row(x, f"{type(self).__name__}.predict_one")
        if not self._begun:
            return self._unlearned(row)
        return self._answers(self._scores(row[None, :]), None)[0]

    # -- what stands behind them -----------------------------------------------------------------

    @property
    def nbytes(self) -> int:
        """Bytes of all that was learned."""
        return nbytes(self)

    def __sklearn_is_fitted__(self) -> bool:
        return self._begun

    def _take(self, X: Any, y: Any, sample_weight: Any, verb: str, time: Any = None) -> Array:
        """Learn rows; return what was said of each before."""
        where = f"{type(self).__name__}.{verb}"
        array, names = validation.matrix(X, where, **self._shape())
        n = array.shape[0]
        if n == 0 and verb == "fit":
            raise ShapeError(
                f"{where}: `X` must have rows, got 0 sample(s) (shape={array.shape}) while a "
                "minimum of 1 is required. partial_fit takes empty blocks."
            )
        s = validation.weights(sample_weight, n, where)
        if verb == "fit" and s is not None and not s.any():
            raise ParameterError(
                f"{where}: `sample_weight` must hold a weight > 0, got weights that are all zero. "
                "Weigh at least one row; partial_fit takes blocks without any."
            )
        self._meet(array.shape[1], names)
        when = self._when(time, n, where)
        Y, known = self._admit(y, n, s, where)
        if n == 0:
            return self._answers(Y, known)
        with linalg.one_thread(array.shape[1], n):
            if s is None or (s > 0).all():
                scores = self._learn_at(array, Y, s, known, when)
                return self._answers(scores, known) if verb == "test_then_train" else scores
            if verb == "test_then_train":
                return self._answers(self._in_runs(array, Y, s, known, when), known)
            on = s > 0
            if on.any():
                seen, when = (None if a is None else a[on] for a in (known, when))
                self._learn_at(array[on], Y[on], s[on], seen, when)
            return np.empty(0)

    def _in_runs(self, X: Floats, Y: Floats, s: Floats, known: Array | None, time: Any) -> Floats:
        """Rows of weight 0 are answered, not learned: cut the block where they begin and end."""
        said = np.empty(Y.shape)
        cuts = np.flatnonzero(np.diff(s > 0)) + 1
        for rows in np.split(np.arange(len(s)), cuts):
            if s[rows[0]] > 0:
                seen, when = (None if a is None else a[rows] for a in (known, time))
                said[rows] = self._learn_at(X[rows], Y[rows], s[rows], seen, when)
            else:
                said[rows] = self._scores(X[rows])
        return said

    def _meet(self, d: int, names: list[str] | None) -> None:
        """Note the features of the first block."""
        if not hasattr(self, "n_features_in_"):
            hold_breadth(d, type(self).__name__)
            if self._square:
                warn_of_square(d, type(self).__name__)
            self.n_features_in_ = d
            if names is not None:
                self.feature_names_in_ = np.array(names, dtype=object)

    def _admit_one(self, y: Any, s: Floats | None, where: str) -> tuple[Floats, Array | None]:
        return self._admit(np.asarray(y)[None], 1, s, where)

    def _shape(self) -> dict[str, Any]:
        """The columns' number and names, as far as they are known."""
        names = getattr(self, "feature_names_in_", None)
        return {
            "d": getattr(self, "n_features_in_", None),
            "names": None if names is None else names.tolist(),
        }

    def _row(self, x: Any, where: str) -> Floats:
        return validation.row_vector(x, where, **self._shape())

    def _matrix(self, X: Any, verb: str) -> Floats:
        """The rows that a learned learner is asked about."""
        if self._begun and validation.is_matrix(X, self.n_features_in_):
            return X  # type: ignore[no-any-return]  # just that was asked
        where = f"{type(self).__name__}.{verb}"
        if not self._begun:
            raise NotFittedError(
                f"{where}: this {type(self).__name__} is not fitted yet: it has learned no row. "
                "Call fit, partial_fit or learn_one first; predict_one and test_then_train "
                "answer from the start."
            )
        return validation.matrix(X, where, **self._shape())[0]

    def _whole(self) -> "_Whole":
        """All or nothing: whatever is raised within, the learner is as it was before."""
        return _Whole(self)


class _Whole:
    """What puts a learner back; each row goes through it, so it is no generator."""

    __slots__ = ("_before", "_learner")

    def __init__(self, learner: Learner) -> None:
        self._learner = learner
        self._before = dict(learner.__dict__)

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, *raised: object) -> None:
        if kind is not None:
            self._learner.__dict__ = self._before
