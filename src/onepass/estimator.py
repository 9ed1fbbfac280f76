"""What all learners share: the verbs, over arrays, dicts and frames.

The protocol of online learning [1]: a row comes, the learner says its answer, the true answer is
revealed, the learner learns it. A learner brings five hooks and gets every verb from here:

``_start(d, c)``            set what is learned to its beginning, for d features and c outputs
``_learn(X, Y, s, known)``  learn the rows **one after the other**; return what it would have said
                            of each just before learning it, shape (n, c)
``_scores(X)``              what it says of the rows now, shape (n, c)
``_widen(d)``               take new features, as if they had been zero in every row so far
``_add_outputs(at, c)``     take new outputs (classes), to stand at the columns ``at`` of now c

What is learned lives in attributes whose names end with an underscore. A hook never writes into an
array that such an attribute held when it was called: it makes new ones and assigns them. So an
error, or an interrupt, anywhere within a verb puts back the learner exactly as it was.

[1] "Online Learning", lecture notes: steps 0-5 and equation (1).
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin

from onepass import validate
from onepass.errors import LabelError, NotFittedError, ParameterError, ShapeError
from onepass.types import Array, Floats

__all__ = ["Classifier", "Learner", "Regressor", "learned", "nbytes"]


class Learner(BaseEstimator, ABC):  # type: ignore[misc]
    """The verbs that regressors and classifiers share."""

    n_features_in_: int

    # -- hooks -----------------------------------------------------------------------------

    @abstractmethod
    def _start(self, d: int, c: int) -> None:
        """Set what is learned to its beginning; refuse hyperparameters out of range."""

    @abstractmethod
    def _learn(self, X: Floats, Y: Floats, s: Floats | None, known: Array | None) -> Floats:
        """Learn rows one after the other; return what was said of each before, (n, c)."""

    @abstractmethod
    def _scores(self, X: Floats) -> Floats:
        """What is said of the rows now, (n, c)."""

    @abstractmethod
    def _widen(self, d: int) -> None:
        """Take new features, zero in every row so far; there are d then."""

    @abstractmethod
    def _admit(self, y: Any, n: int, s: Floats | None, where: str) -> tuple[Floats, Array | None]:
        """Check the answers; begin if this is the first block; return Y (n, c) and ``known``."""

    @abstractmethod
    def _answers(self, scores: Floats, known: Array | None) -> Array:
        """Scores (n, c) as the answers that a user sees."""

    # -- verbs over many rows ----------------------------------------------------------------

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Forget all, then learn the rows one after the other.

        Parameters
        ----------
        X : array-like of shape (n, d)
            At least one row.
        y : array-like of shape (n,) or (n, c)
            One answer a row.
        sample_weight : array-like of shape (n,) or float, optional
            A weight >= 0 for each row.

        Returns
        -------
        self
        """
        with self._whole():
            for name in learned(self):
                delattr(self, name)
            self._take(X, y, sample_weight, "fit")
        return self

    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
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

        Returns
        -------
        self
        """
        with self._whole():
            self._take(X, y, sample_weight, "partial_fit")
        return self

    def test_then_train(self, X: Any, y: Any, sample_weight: Any = None) -> Array:
        """Learn the rows; return what would have been said of each just before learning it.

        Equal to ``predict_one`` followed by ``learn_one`` for each row, at the speed of blocks.

        Parameters
        ----------
        X, y, sample_weight
            As in ``partial_fit``. Rows of weight 0 are answered and not learned.

        Returns
        -------
        said : ndarray of the shape of y
        """
        with self._whole():
            return self._take(X, y, sample_weight, "test_then_train")

    def predict(self, X: Any) -> Array:
        """Answers for the rows of X, shape (n,) or (n, c).

        Raises
        ------
        NotFittedError
            Before anything was learned.
        """
        return self._answers(self._scores(self._matrix(X, "predict")), None)

    # -- verbs over one row --------------------------------------------------------------------

    def learn_one(self, x: Any, y: Any, sample_weight: float = 1.0) -> Self:
        """Learn one row: an array of shape (d,), or a dict of named features.

        Returns
        -------
        self
        """
        with self._whole():
            where = f"{type(self).__name__}.learn_one"
            row = self._row(x, where)
            s = None if sample_weight == 1.0 else validate.weights([sample_weight], 1, where)
            self._meet(row.shape[0], list(x) if isinstance(x, dict) else None)
            Y, known = self._admit(np.asarray(y)[None], 1, s, where)
            if s is None or s[0] > 0:
                self._learn(row[None, :], Y, s, known)
        return self

    def predict_one(self, x: Any) -> Any:
        """The answer for one row; before anything was learned, that of the initial weights."""
        row = self._row(x, f"{type(self).__name__}.predict_one")
        if not self._begun:
            return self._unlearned(row)
        return self._answers(self._scores(row[None, :]), None)[0]

    def _unlearned(self, row: Floats) -> Any:
        """What is said of a row before anything was learned."""
        raise NotImplementedError

    # -- what stands behind them -----------------------------------------------------------------

    def grow(self, d: int) -> Self:
        """Take new features, at the end, as if they had been zero in every row so far.

        Parameters
        ----------
        d : int
            The number of features from now on, at least as many as before.

        Returns
        -------
        self

        Raises
        ------
        ParameterError
            If d is smaller than now.
        """
        now = getattr(self, "n_features_in_", d)
        if d < now:
            raise ParameterError(
                f"{type(self).__name__}.grow: `d` must be >= {now}, the features known now, "
                f"got {d}. Features cannot be taken away."
            )
        if d > now:
            with self._whole():
                if self._begun:
                    self._widen(d)
                self.n_features_in_ = d
                if hasattr(self, "feature_names_in_"):
                    new = [f"x{j}" for j in range(now, d)]
                    self.feature_names_in_ = np.append(self.feature_names_in_, new).astype(object)
        return self

    @property
    def nbytes(self) -> int:
        """Bytes of all that was learned."""
        return nbytes(self)

    @property
    def _begun(self) -> bool:
        """Whether a first row has been seen, and so the sizes are known."""
        return hasattr(self, "rows_seen_")

    def __sklearn_is_fitted__(self) -> bool:
        return self._begun

    def _take(self, X: Any, y: Any, sample_weight: Any, verb: str) -> Array:
        """Learn rows; return what was said of each before."""
        where = f"{type(self).__name__}.{verb}"
        array, names = validate.matrix(X, where, **self._shape())
        n = array.shape[0]
        if n == 0 and verb == "fit":
            raise ShapeError(
                f"{where}: `X` must have rows, got 0 sample(s) (shape={array.shape}) while a "
                "minimum of 1 is required. partial_fit takes empty blocks."
            )
        s = validate.weights(sample_weight, n, where)
        if verb == "fit" and s is not None and not s.any():
            raise ParameterError(
                f"{where}: `sample_weight` must hold a weight > 0, got weights that are all zero. "
                "Weigh at least one row; partial_fit takes blocks without any."
            )
        self._meet(array.shape[1], names)
        Y, known = self._admit(y, n, s, where)
        if n == 0:
            return self._answers(Y, known)
        if s is None or (s > 0).all():
            return self._answers(self._learn(array, Y, s, known), known)
        if verb == "test_then_train":
            return self._answers(self._in_runs(array, Y, s, known), known)
        on = s > 0
        if on.any():
            self._learn(array[on], Y[on], s[on], None if known is None else known[on])
        return np.empty(0)

    def _in_runs(self, X: Floats, Y: Floats, s: Floats, known: Array | None) -> Floats:
        """Rows of weight 0 are answered, not learned: cut the block where they begin and end."""
        said = np.empty(Y.shape)
        cuts = np.flatnonzero(np.diff(s > 0)) + 1
        for rows in np.split(np.arange(len(s)), cuts):
            if s[rows[0]] > 0:
                seen = None if known is None else known[rows]
                said[rows] = self._learn(X[rows], Y[rows], s[rows], seen)
            else:
                said[rows] = self._scores(X[rows])
        return said

    def _meet(self, d: int, names: list[str] | None) -> None:
        """Note the features of the first block."""
        if not hasattr(self, "n_features_in_"):
            self.n_features_in_ = d
            if names is not None:
                self.feature_names_in_ = np.array(names, dtype=object)

    def _shape(self) -> dict[str, Any]:
        """The columns' number and names, as far as they are known."""
        names = getattr(self, "feature_names_in_", None)
        return {
            "d": getattr(self, "n_features_in_", None),
            "names": None if names is None else list(names),
        }

    def _row(self, x: Any, where: str) -> Floats:
        return validate.row_vector(x, where, **self._shape())

    def _matrix(self, X: Any, verb: str) -> Floats:
        """The rows that a learned learner is asked about."""
        where = f"{type(self).__name__}.{verb}"
        if not self._begun:
            raise NotFittedError(
                f"{where}: this {type(self).__name__} is not fitted yet: it has learned no row. "
                "Call fit, partial_fit or learn_one first; predict_one and test_then_train "
                "answer from the start."
            )
        return validate.matrix(X, where, **self._shape())[0]

    @contextmanager
    def _whole(self) -> Iterator[None]:
        """All or nothing: whatever is raised within, the learner is as it was before."""
        before = dict(vars(self))
        try:
            yield
        except BaseException:
            vars(self).clear()
            vars(self).update(before)
            raise


class Regressor(RegressorMixin, Learner):  # type: ignore[misc]
    """The verbs of regressors: answers are real numbers, one or several a row."""

    n_outputs_: int
    answer_ndim_: int
    rows_seen_: int

    def _admit(self, y: Any, n: int, s: Floats | None, where: str) -> tuple[Floats, None]:
        array = validate.targets(y, n, where)
        if not self._begun:
            if n == 0:
                return np.empty((0, 1)), None
            self.answer_ndim_ = array.ndim
            self.n_outputs_ = 1 if array.ndim == 1 else array.shape[1]
            self.rows_seen_ = 0
            self._start(self.n_features_in_, self.n_outputs_)
        Y = array[:, None] if array.ndim == 1 else array
        if Y.shape[1] != self.n_outputs_ or (n and array.ndim != self.answer_ndim_):
            shape = "(n,)" if self.answer_ndim_ == 1 else f"(n, {self.n_outputs_})"
            raise ShapeError(
                f"{where}: `y` must have shape {shape}, as in the first block, got {array.shape}. "
                "Start a new learner for another set of answers."
            )
        self.rows_seen_ += n if s is None else int(np.count_nonzero(s))
        return Y, None

    def _answers(self, scores: Floats, known: Array | None) -> Array:
        del known
        return scores[:, 0] if getattr(self, "answer_ndim_", 1) == 1 else scores

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        tags.target_tags.single_output = True
        return tags


class Classifier(ClassifierMixin, Learner):  # type: ignore[misc]
    """The verbs of classifiers: new classes may come at any time.

    ``classes_`` is always in sorted order. A class takes part in an answer only after its first
    row, or from the start where it was named beforehand; so what is said of a row never depends
    on how the stream was cut into blocks.
    """

    classes: Any
    classes_: Array
    rows_seen_: int

    @abstractmethod
    def _add_outputs(self, at: Array, c: int) -> None:
        """Take new outputs, to stand at the columns ``at`` of now c."""

    def partial_fit(
        self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None
    ) -> Self:
        """Learn the rows one after the other, on top of all learned so far.

        Parameters
        ----------
        X : array-like of shape (n, d)
            n may be zero: then nothing is learned but the names in ``classes``.
        y : array-like of shape (n,)
            One label a row: whole numbers or text. New labels may come at any time.
        classes : array-like, optional
            Labels that are known beforehand. Others may still come.
        sample_weight : array-like of shape (n,) or float, optional
            A weight >= 0 for each row; rows of weight 0 are not learned.

        Returns
        -------
        self
        """
        with self._whole():
            if classes is not None:
                where = f"{type(self).__name__}.partial_fit"
                array, names = validate.matrix(X, where, **self._shape())
                self._meet(array.shape[1], names)
                named = np.unique(validate.labels(classes, len(classes), where))
                self._know(self._united(named, where))
            self._take(X, y, sample_weight, "partial_fit")
        return self

    def decision_function(self, X: Any) -> Floats:
        """Scores of the classes: shape (n, c), or (n,) for two classes; not probabilities.

        For two classes it is the second's score less the first's: the second is answered where
        it is >= 0.
        """
        scores = self._scores(self._matrix(X, "decision_function"))
        return scores[:, 1] - scores[:, 0] if scores.shape[1] == 2 else scores

    def _admit(
        self, y: Any, n: int, s: Floats | None, where: str
    ) -> tuple[Floats, Array | None]:
        if not hasattr(self, "classes_") and self.classes is not None:
            named = np.unique(validate.labels(self.classes, len(self.classes), where))
            self._know(named)
        labels = validate.labels(y, n, where)
        if n == 0:
            return np.empty((0, len(getattr(self, "classes_", [])))), None
        before = getattr(self, "classes_", labels[:0])
        on = np.ones(n, dtype=bool) if s is None else s > 0
        united = self._united(np.unique(labels[on]), where)
        if len(united) > len(before) or not self._begun:
            self._know(united)
        Y = (labels[:, None] == united[None, :]).astype(np.float64)
        self.rows_seen_ += int(on.sum())
        if len(united) == len(before):
            return Y, None
        first = np.where(np.isin(united, before), -1, np.argmax((Y > 0) & on[:, None], axis=0))
        return Y, np.arange(n)[:, None] > first[None, :]

    def _united(self, labels: Array, where: str) -> Array:
        """The classes known and these, sorted."""
        before = getattr(self, "classes_", labels[:0])
        text = {array.dtype.kind in "US" for array in (before, labels) if len(array)}
        if len(text) == 2:
            raise LabelError(
                f"{where}: `y` must hold labels of the kind seen so far, {before.dtype}, got "
                f"{labels.dtype}. Give all labels as text, or all as whole numbers."
            )
        return np.union1d(before, labels)

    def _know(self, classes: Array) -> None:
        """Begin with these classes, or take the new ones among them."""
        if not self._begun:
            self.classes_ = classes
            self.rows_seen_ = 0
            self._start(self.n_features_in_, len(classes))
            return
        at = np.flatnonzero(~np.isin(classes, self.classes_))
        if len(at):
            self._add_outputs(at, len(classes))
            self.classes_ = classes

    def _answers(self, scores: Floats, known: Array | None) -> Array:
        """The best class of each row, the last of several that tie; None where none was known."""
        if scores.shape[1] == 0:
            return np.full(scores.shape[0], None, dtype=object)
        if known is not None:
            scores = np.where(known, scores, -np.inf)
        best = scores.shape[1] - 1 - np.argmax(scores[:, ::-1], axis=1)
        said: Array = self.classes_[best]
        if known is not None and not known.any(axis=1).all():
            said = np.where(known.any(axis=1), said.astype(object), None)
        return said

    def _unlearned(self, row: Floats) -> Any:
        del row
        return None if self.classes is None else np.unique(np.asarray(self.classes))[-1]


def learned(thing: Any) -> list[str]:
    """The names of the attributes that hold what was learned: they end with an underscore."""
    return [name for name in vars(thing) if name.endswith("_") and not name.startswith("_")]


def nbytes(thing: Any) -> int:
    """Bytes of the arrays in what was learned, found through nested memories and parts."""
    if isinstance(thing, np.ndarray):
        return int(thing.nbytes)
    if isinstance(thing, (list, tuple)):
        return sum(nbytes(part) for part in thing)
    if isinstance(thing, dict):
        return sum(nbytes(part) for part in thing.values())
    if isinstance(thing, BaseEstimator):
        return sum(nbytes(getattr(thing, name)) for name in learned(thing))
    if hasattr(thing, "__dataclass_fields__"):
        return sum(nbytes(getattr(thing, name)) for name in thing.__dataclass_fields__)
    return 0
