"""Base class of classifiers, for which new labels may occur at any time."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, ClassVar, Self

import numpy as np

from onepass import validation
from onepass.errors import LabelError, MergeError, NotFittedError, ParameterError, public
from onepass.estimators import ClassifierMixin
from onepass.learners.estimator.composite import naming
from onepass.learners.estimator.learner import Learner
from onepass.linalg import as_array, calibration
from onepass.serialization.state import StateAttribute
from onepass.types import Array, ArrayLike, Floats, RowLike, TimeLike
from onepass.validation.arrays import check_feature_limit, check_values
from onepass.validation.table import TableLike

_FEW = 4096  # labels times classes up to which comparison is faster than binary search


class CalibrationState(StateAttribute):
    """The state of a calibration (4 + 2 c,), in the instance or in its compiled state."""

    copied = False

    def __get__(self, owner: Any, cls: type | None = None) -> Any:
        if owner is None:
            return self
        fitted = getattr(owner.__dict__.get("_single"), "calibration", None)
        if fitted:
            return np.frombuffer(fitted[1])
        return owner.__dict__.get("calibration_", calibration.start(len(owner.classes_)))

    def __set__(self, owner: Any, value: Any) -> None:
        owner.__dict__["calibration_"] = value
        single = owner.__dict__.get("_single")
        if fitted := getattr(single, "calibration", None):
            single.calibration = fitted[0], len(value), value


class Classifier(ClassifierMixin, Learner):
    """Base class of classifiers. New classes may occur at any time.

    ``classes_`` is always sorted. A class is predicted only after its first row, or from the start
    if it is given in ``classes``; so predictions never depend on the division of a stream into
    blocks.
    """

    classes: Any
    classes_: Array
    rows_seen_: int
    calibration_: Any = CalibrationState()
    _scores_blocks: ClassVar[bool] = True  # whether ``_learn`` returns the scores of all rows

    @property
    def _sound(self) -> bool:
        """Whether the state of a loaded file has the sizes of its features and classes."""
        started = self._started and self._calibrated
        sound = not started or self.calibration_.shape == (4 + 2 * len(self.classes_),)
        return sound and super()._sound

    @property
    def _calibrated(self) -> bool:
        """Whether probabilities are made from scores by a scale and offsets."""
        return True

    @public
    def partial_fit(  # type: ignore[override]  # scikit-learn's order of arguments
        self,
        X: TableLike,
        y: ArrayLike | None,
        classes: Collection[object] | None = None,
        sample_weight: ArrayLike | None = None,
        *,
        time: TimeLike | None = None,
    ) -> Self:
        """Learn the rows one after the other, continuing from the current state.

        Parameters
        ----------
        X : array-like of shape (n, d)
            n may be zero; then only ``classes`` are added.
        y : array-like of shape (n,)
            Labels, integers or strings. New labels may occur at any time.
        classes : array-like, optional
            Labels known in advance. New labels may still occur.
        sample_weight : array-like of shape (n,) or float, optional
            Weights >= 0 of the rows; rows of weight 0 are not learned.
        time : array-like of shape (n,), optional
            As in ``fit``.

        Returns
        -------
        self
        """
        known = classes is None or self._has_classes(classes)
        if known and self._learn_only_row(X, y, sample_weight, time):
            return self
        with self._rollback_on_error():
            if classes is not None:
                X, names = validation.matrix(X, **self._shape())
                self._set_features(X.shape[1], names)
                named = validation.class_names(classes)
                self._set_classes(united_labels(self._classes_so_far(), named))
            self._learn_block(X, y, sample_weight, "partial_fit", time)
        return self

    @public
    def test_then_train(
        self,
        X: TableLike,
        y: ArrayLike | None,
        sample_weight: ArrayLike | None = None,
        *,
        time: TimeLike | None = None,
        return_proba: bool = False,
    ) -> Any:
        """Predict each row, then learn it; return the prequential predictions.

        Equivalent to ``predict_one`` and ``predict_proba_one`` followed by ``learn_one`` for each
        row, at the speed of blocks.

        Parameters
        ----------
        X, y, sample_weight, time
            As in ``partial_fit``. Rows of weight 0 are predicted, but not learned.
        return_proba : bool, default=False
            Whether to also return probabilities.

        Returns
        -------
        predictions : ndarray of shape (n,)
            The label predicted for each row before it was learned.
        probabilities : ndarray of shape (n, c)
            Only with ``return_proba``: the probabilities of ``classes_`` before each row was
            learned; nan for classes that were not known, and for all before the first row.
        """
        if not return_proba:
            return super().test_then_train(X, y, sample_weight, time=time)
        if not self._scores_blocks:
            raise ParameterError(
                "`return_proba` must be False, as blocks are learned without the scores of all "
                "rows, got True. Call predict_proba_one and learn_one for each row."
            )
        with self._rollback_on_error():
            new = not self._started
            found = self._learn_block(X, y, sample_weight, "test_then_train", time)
            scores, mask, calibrated = found
            if not len(scores):
                return self._to_predictions(scores, mask), scores
            fitted, last = calibrated
            unknown = np.zeros(scores.shape, dtype=bool) if mask is None else ~mask
            before = np.repeat(fitted, np.diff(last, prepend=-1, append=len(scores) - 1), axis=0)
            with np.errstate(invalid="ignore"):
                P = self._probabilities(np.where(unknown, -np.inf, scores), before)
            if new:
                on = np.broadcast_to(1 if sample_weight is None else sample_weight, len(P)) > 0
                unknown[np.cumsum(on) <= on] = True
            return self._to_predictions(scores, mask), np.where(unknown, np.nan, P)

    @public
    def decision_function(self, X: TableLike) -> Floats:
        """Scores of the classes, not probabilities: shape (n, c), or (n,) for two classes.

        For two classes it is the score of the second minus that of the first: the second class is
        predicted if it is >= 0.
        """
        scores = self._scores(self._matrix(X))
        return scores[:, 1] - scores[:, 0] if scores.shape[1] == 2 else scores

    @public
    def predict_proba(self, X: TableLike) -> Floats:
        """Probabilities of the classes.

        Discriminants and the logistic loss compute them from their model. All other classifiers
        multiply the scores by a scale, add an offset for each class, and apply softmax. Scale and
        offsets minimise the log loss of prequential predictions
        (:mod:`onepass.linalg.calibration`). So they depend on how frequent the classes are, and the
        most probable class of a row can differ from the prediction, the class with the largest
        score.

        Parameters
        ----------
        X : array-like of shape (n, d)

        Returns
        -------
        probabilities : ndarray of shape (n, c)
            In the order of ``classes_``; the rows sum to 1.

        Raises
        ------
        NotFittedError
            If no row was learned.
        """
        scores = self._scores(self._matrix(X))
        return self._probabilities(scores, calibration.scale_and_offsets(self.calibration_))

    def _probabilities(self, scores: Floats, fitted: Floats) -> Floats:
        """Probabilities from scores (n, c), −inf for unknown classes."""
        return calibration.probabilities(scores, fitted)

    @public
    def predict_proba_one(self, x: RowLike) -> dict[Any, float]:
        """Probabilities of the classes for one row, by label; empty before the first row.

        Parameters
        ----------
        x : array-like of shape (d,), or dict of named features
        """
        probabilities = self._predict_proba_in_place(x)
        if probabilities is not None:
            return probabilities
        row = self._row(x)
        if not self._started:
            return {}
        shares = self.predict_proba(row[None, :])[0]
        return dict(zip(self.classes_.tolist(), shares.tolist(), strict=True))

    def _predict_proba_in_place(self, x: RowLike) -> dict[Any, float] | None:
        """Probabilities of one row by compiled code; None if Python must predict it."""
        single = self._single
        probabilities: dict[Any, float] | None = single and single.predict_proba_one(x)
        return probabilities

    def _calibrated_rows(self, n: int) -> list[int]:
        """Those of the last n rows, numbered from 0, that fit the probabilities."""
        return list(calibration.rows(self.rows_seen_ - n, n)) if self._calibrated else []

    def _calibrate_row(self, scores: Floats, label: int, s: Floats) -> None:
        """Fit the probabilities to the scores (1, c) of the last row, if it is one that does."""
        if self._calibrated_rows(1):
            fitted, _ = calibration.updated(self.calibration_, scores, np.array([label]), s)
            self.__dict__["calibration_"] = fitted

    def _calibrate(
        self, scores: Floats, Y: Floats, s: Floats | None, class_mask: Array | None
    ) -> tuple[Floats, Array]:
        on = np.arange(len(Y)) if s is None else np.flatnonzero(s)
        rows = on[self._calibrated_rows(len(on))]
        fitted = calibration.scale_and_offsets(self.calibration_)[None]
        if len(rows):
            used = scores[rows]
            if class_mask is not None:
                used = np.where(class_mask[rows], used, -np.inf)
            self.calibration_, found = calibration.updated(
                self.calibration_, used, Y[rows].argmax(axis=1), None if s is None else s[rows]
            )
            fitted = np.vstack([fitted, found])
        return fitted, rows

    def _receive_targets(
        self, y: ArrayLike | None, n: int, s: Floats | None
    ) -> tuple[Floats, Array | None]:
        before = self._classes_so_far()
        if len(before) and not self._started:
            self._set_classes(before)
        labels = validation.labels(y, n)
        if n == 0:
            return np.empty((0, len(before))), None
        on = np.ones(n, dtype=bool) if s is None else s > 0
        if n > 1:
            self._check_scores(n, before)
        if self._started and labels.dtype.kind == before.dtype.kind:
            Y = _indicators(labels, before)
            if np.count_nonzero(Y) == n:  # no class is new
                self.rows_seen_ += int(np.count_nonzero(on))
                return Y, None
        united = united_labels(before, labels[on])
        if len(united) > len(before) or not self._started:
            self._set_classes(united)
        self._check_scores(n, united)
        Y = _indicators(labels, united)
        self.rows_seen_ += int(on.sum())
        if len(united) == len(before):
            return Y, None
        first = np.full(len(united), -1)
        present, at = np.unique(labels[on], return_index=True)
        first[np.searchsorted(united, present)] = np.flatnonzero(on)[at]
        first[np.isin(united, before)] = -1
        return Y, np.arange(n)[:, None] > first[None, :]

    def _matrix(self, X: TableLike) -> Floats:
        array = super()._matrix(X)
        if len(array) > 1:
            self._check_scores(len(array), self.classes_)
        return array

    def _check_scores(self, n: int, classes: Array) -> None:
        """Raise an error if the scores or labels of n rows would need too much memory."""
        check_values(n, len(classes), "one for each class")
        check_values(n, classes.itemsize // 8, "the size of the longest label")

    def _join_outputs(self, other: Self) -> Array:
        try:
            united = united_labels(self._classes_so_far(), other.classes_)
        except LabelError as error:
            raise MergeError(
                "both learners must have labels of one kind, "
                f"{self._classes_so_far().dtype}, got {other.classes_.dtype}. "
                "Train both with labels that are all text, or all whole numbers."
            ) from error
        self._set_classes(united)
        if self._calibrated:
            new = np.flatnonzero(~np.isin(united, other.classes_))
            theirs = calibration.grown(other.calibration_, new)
            self.calibration_ = calibration.merged(self.calibration_, theirs)
        places: Array = np.searchsorted(self.classes_, other.classes_)
        return places

    def _classes_so_far(self) -> Array:
        """The classes seen or given in advance, sorted."""
        if hasattr(self, "classes_"):
            return self.classes_
        return validation.class_names(self.classes)

    def _set_classes(self, classes: Array) -> None:
        """Start with these classes, or add those that are new."""
        if len(classes) > len(getattr(self, "classes_", ())):
            check_feature_limit(len(classes), "classes")
        if not self._started:
            self.classes_ = classes
            self.rows_seen_ = 0
            self._start(self.n_features_in_, len(classes))
            return
        at = np.flatnonzero(~np.isin(classes, self.classes_))
        if len(at):
            fitted = self.calibration_
            self._add_outputs(at, len(classes))
            self.classes_ = classes
            if self._calibrated:
                self.calibration_ = calibration.grown(fitted, at)

    def _to_predictions(self, scores: Floats, class_mask: Array | None) -> Array:
        """The class of the highest score, the last one of a tie; None if no class was known."""
        if scores.shape[1] == 0:
            return np.full(scores.shape[0], None, dtype=object)
        if class_mask is not None:
            scores = np.where(class_mask, scores, -np.inf)
        if scores.shape[1] == 2:
            best = (scores[:, 1] >= scores[:, 0]).astype(np.intp)
        else:
            best = scores.shape[1] - 1 - np.argmax(scores[:, ::-1], axis=1)
        predictions: Array = self.classes_[best]
        if class_mask is not None and not class_mask.any(axis=1).all():
            predictions = predictions.astype(object)
            predictions[~class_mask.any(axis=1)] = None
        return predictions

    def _has_classes(self, classes: Any) -> bool:
        """Whether these are the classes so far, in their order."""
        names = classes.tolist() if type(classes) is np.ndarray else classes
        own = self.__dict__.get("classes_")
        return type(names) is list and own is not None and names == own.tolist()

    def _as_block(self, prediction: Any) -> Array:
        return np.array([prediction], dtype=self.classes_.dtype)

    def _initial_prediction(self, row: Floats) -> Any:
        del row
        named = validation.class_names(self.classes)
        return named[-1] if len(named) else None


def _indicators(labels: Array, classes: Array) -> Floats:
    """Indicators (n, c): 1 where a label equals a class, 0 elsewhere. The classes are sorted."""
    n, c = len(labels), len(classes)
    Y: Floats
    if n * c <= _FEW:
        Y = (labels[:, None] == classes).astype(np.float64)
        return Y
    at = np.minimum(np.searchsorted(classes, labels), c - 1)
    Y = np.zeros((n, c))
    Y[np.arange(n), at] = classes[at] == labels
    return Y


def prequential_probabilities(
    model: Any, X: Any, y: Array, **options: Any
) -> tuple[Array, Floats, Array]:
    """Learn rows; return labels and probabilities, predicted before each row is learned.

    Rows are learned one by one unless ``test_then_train`` of the model has ``return_proba``.

    Parameters
    ----------
    model : classifier with ``predict_proba``
    X : array or Table of n rows
    y : ndarray of shape (n,)
    **options
        Arguments of ``test_then_train``, arrays of shape (n,).

    Returns
    -------
    labels : ndarray of shape (n,)
    probabilities : ndarray of shape (n, c)
        As returned by ``test_then_train`` with ``return_proba``.
    classes : ndarray of shape (c,)
        The classes after the rows.
    """
    if getattr(model, "_scores_blocks", False):
        labels, P = model.test_then_train(X, y, return_proba=True, **options)
        return labels, P, classes_of(model, P.shape[1])
    parts: list[tuple[Array, Floats, Array]] = []
    for i in range(len(y)):
        row = slice(i, i + 1)
        part = {name: value[row] for name, value in options.items()}
        with naming(f"{type(model).__name__}.test_then_train", np.array([i])):
            try:
                p = as_array(model.predict_proba(X[row]))
                known = classes_of(model, p.shape[1])
            except NotFittedError:
                p, known = np.empty((1, 0)), y[:0]
            parts.append((as_array(model.test_then_train(X[row], y[row], **part)), p, known))
    classes = classes_of(model, max((len(known) for *_, known in parts), default=0))
    P = np.full((len(parts), len(classes)), np.nan)
    for i, (_, p, known) in enumerate(parts):
        P[i, np.searchsorted(classes, known)] = p[0]
    return np.concatenate([y[:0], *(label for label, *_ in parts)]), P, classes


def classes_of(model: Any, c: int) -> Array:
    """The labels of a model, Pipeline or network.

    Parameters
    ----------
    model : classifier
    c : int
        The number of classes, for networks.
    """
    classes: Array = getattr(getattr(model, "learner_", model), "classes_", np.arange(c))
    return classes


def united_labels(before: Array, labels: Array) -> Array:
    """The union of known classes and labels, sorted.

    Raises
    ------
    LabelError
        If no single dtype represents all of them.
    """
    if not len(before) or not len(labels):
        return np.unique(labels) if len(labels) else before
    if (before.dtype.kind == "U") != (labels.dtype.kind == "U"):
        raise LabelError(
            f"`y` must contain labels of the kind seen so far, {before.dtype}, got "
            f"{labels.dtype}. Pass all labels as text, or all as whole numbers."
        )
    united = np.union1d(before, labels)
    if united.dtype.kind == "f" and "f" not in {before.dtype.kind, labels.dtype.kind}:
        raise LabelError(
            "`y` must contain whole numbers that fit in one type of 64 bits, together with the "
            f"labels so far, {before.dtype}, got {labels.dtype}. Pass such labels as text."
        )
    return united
