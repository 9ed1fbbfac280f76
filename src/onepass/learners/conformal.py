"""Conformal: prediction intervals and label sets with a given coverage, on any stream.

The score s_t of a row is |y_t − ŷ_t| of a regressor, for each output, or −log p_t(y_t) of a
classifier, predicted before the row is learned. The interval ŷ ± q_t, or the set of all labels with
−log p(k) <= q_t, contains the target if s_t <= q_t. After each row [1, 2], with log q for q so that
the unit of the scores does not matter,

    log q_{t+1} = log q_t + η_t (1[s_t > q_t] − α),     η_t = max(γ, 1 / √t)               (1)

For constant η, summing (1) gives

    | 1/T Σ_t 1[s_t > q_t] − α | = | log (q_{T+1} / q_1) | / (η T)                         (2)

so that the coverage approaches 1 − α for every sequence of scores within bounds, also with drift
and with a wrong model. A larger γ follows changes faster; q then fluctuates more. During the first
1 / α rows the interval is infinite, and q is the largest score. After scores that were almost zero,
q is at least a millionth of a score outside.

Cost: that of the model and O(c) numbers. The rows of classifiers are learned one by one.

[1] I. Gibbs, E. Candès, "Adaptive conformal inference under distribution shift", NeurIPS 2021.
[2] A. N. Angelopoulos, E. Candès, R. J. Tibshirani, "Conformal PID control for time series
    prediction", NeurIPS 2023; quantile tracking, (4).
"""

import copy
import math
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, clone, is_classifier, is_regressor
from sklearn.utils import get_tags
from sklearn.utils.metaestimators import available_if

from onepass import validation
from onepass.errors import NotFittedError, OnepassError, TypeMismatchError
from onepass.learners.estimator.tags import with_onepass_tags
from onepass.serialization.state import forget, nbytes
from onepass.types import Array, ArrayLike, Floats, RowLike, TimeLike
from onepass.validation.frames import series_array
from onepass.validation.table import Table, TableLike, is_frame

__all__ = ["Conformal"]

_LEAST = 1e-6  # minimum of q relative to a score outside


class Conformal(BaseEstimator):  # type: ignore[misc]
    """Prediction intervals or label sets that contain the share 1 − α of the targets.

    The model is learned as usual, and its predictions do not change.

    Parameters
    ----------
    model : learner or Pipeline
        A regressor, or a classifier with ``predict_proba``.
    alpha : float, default=0.1
        Share α in (0, 1] of targets outside.
    step_size : float, default=0.1
        γ in (0, 1]: how fast the widths follow changes.

    Attributes
    ----------
    coverage_ : float or ndarray of shape (c,)
        Share of the rows whose target was inside, predicted before each row was learned.
    quantiles_ : ndarray of shape (c,)
        q: half the width of the interval of each output, or the largest −log p of labels in a set.
    model_ : learner or Pipeline
        The fitted model.
    rows_seen_ : int
        Number of rows learned.

    Examples
    --------
    >>> import numpy as np, onepass as op
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(5000, 3))
    >>> y = X @ [1.0, 2.0, 3.0] + rng.normal(size=5000)
    >>> model = op.Conformal(op.RLSRegressor(), alpha=0.1).partial_fit(X, y)
    >>> round(model.coverage_, 2)
    0.9
    >>> model.predict_interval([[0.0, 0.0, 0.0]]).round(0)
    array([[-2.,  2.]])
    """

    model_: Any
    quantiles_: Floats
    covered_: Floats
    rows_seen_: int

    def __init__(self, model: Any, alpha: float = 0.1, *, step_size: float = 0.1) -> None:
        self.model = model
        self.alpha = alpha
        self.step_size = step_size

    # -- learning ----------------------------------------------------------------------------------

    def fit(
        self,
        X: TableLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        *,
        time: TimeLike | None = None,
    ) -> Self:
        """Reset, then learn the rows one after the other.

        Parameters
        ----------
        X, y, sample_weight, time
            As in ``fit`` of the model.

        Returns
        -------
        self
        """
        fresh = clone(self).partial_fit(X, y, sample_weight, time=time)
        forget(self)
        self.__dict__.update(fresh.__dict__ | {"model": self.model})
        return self

    def partial_fit(
        self,
        X: TableLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        *,
        time: TimeLike | None = None,
    ) -> Self:
        """Learn the rows one after the other, continuing from the current state.

        Parameters
        ----------
        X, y, sample_weight, time
            As in ``partial_fit`` of the model. Rows of weight 0 are not learned.

        Returns
        -------
        self
        """
        self.test_then_train(X, y, sample_weight, time=time)
        return self

    def test_then_train(
        self,
        X: TableLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        *,
        time: TimeLike | None = None,
    ) -> Array:
        """Predict each row, then learn it; return the predictions of the model.

        Parameters
        ----------
        X, y, sample_weight, time
            As in ``test_then_train`` of the model.

        Returns
        -------
        predictions : ndarray of the shape of y
        """
        where, model = "Conformal.test_then_train", self._model("test_then_train")
        named = {"sample_weight": sample_weight, "time": time}
        given: dict[str, Any] = {name: v for name, v in named.items() if v is not None}
        if is_regressor(model):
            predictions: Array = model.test_then_train(X, y, **given)
            n = len(predictions)
            s = validation.weights(sample_weight, n, where)
            scores = np.abs(validation.targets(y, n, where) - predictions).reshape(
                n, -1 if n else 1
            )
            self._update(scores if s is None else scores[s > 0])
            return predictions
        rows = _sliceable(X)
        if getattr(rows, "ndim", 2) != 2 or not len(rows):
            return np.asarray(model.test_then_train(X, y, **given))
        n = len(rows)
        labels = validation.labels(y if y is None else series_array(y), n, where)
        given = {name: np.asarray(series_array(v)) for name, v in given.items()}
        validation.weights(sample_weight, n, where)
        before = copy.copy(self) if n > 1 else self
        try:
            return np.concatenate([self._learn_row(rows, labels, given, i) for i in range(n)])
        except BaseException as error:
            self.__dict__ = before.__dict__
            if isinstance(error, OnepassError):  # raise it with the index of the row in X
                copy.copy(self.model_).test_then_train(rows, labels, **given)
            raise

    def _learn_row(self, X: Any, y: Array, given: dict[str, Any], i: int) -> Array:
        """Predict and learn row i with a classifier; return the prediction, (1,)."""
        row, model = slice(i, i + 1), self.model_
        part = {name: v[row] if v.ndim else v for name, v in given.items()}
        score = _loss(_probability(model, X[row], y[i]))
        prediction: Array = model.test_then_train(X[row], y[row], **part)
        if np.all(part.get("sample_weight", 1.0) > 0):
            self._update(np.array([[score]]))
        return prediction

    def learn_one(
        self, x: RowLike, y: Any, sample_weight: float = 1.0, *, time: TimeLike | None = None
    ) -> Self:
        """Learn one row.

        Parameters
        ----------
        x, y, sample_weight, time
            As in ``learn_one`` of the model.

        Returns
        -------
        self
        """
        X = [x] if isinstance(x, dict) else np.asarray(x)[None]
        when: Any = None if time is None else [time]
        return self.partial_fit(X, np.asarray(y)[None], np.full(1, sample_weight), time=when)

    def _model(self, verb: str) -> Any:
        """The model; on first use a clone of the parameter."""
        where = f"Conformal.{verb}"
        validation.in_range(self.alpha, "alpha", where, above=0.0, high=1.0)
        validation.in_range(self.step_size, "step_size", where, above=0.0, high=1.0)
        if "model_" in self.__dict__:
            return self.model_
        known = is_regressor(self.model) or hasattr(self.model, "predict_proba")
        if not known or not hasattr(self.model, "test_then_train"):
            raise TypeMismatchError(
                f"{where}: `model` must be a regressor or a classifier of onepass, got "
                f"{self.model!r}. Pass an object such as op.RLSRegressor()."
            )
        self.model_, self.rows_seen_ = clone(self.model), 0
        self.quantiles_ = self.covered_ = np.zeros(0)
        return self.model_

    def _update(self, scores: Floats) -> None:
        """Update quantiles and coverage with scores (n, c)."""
        if not len(scores):
            return
        if not self.rows_seen_:
            self.quantiles_ = self.covered_ = np.zeros(scores.shape[1])
        state = zip(
            self.quantiles_.tolist(), self.covered_.tolist(), scores.T.tolist(), strict=True
        )
        self.quantiles_, self.covered_ = np.array([self._tracked(*one) for one in state]).T.copy()
        self.rows_seen_ += len(scores)

    def _tracked(self, q: float, covered: float, scores: list[float]) -> tuple[float, float]:
        """Quantile and number of covered rows of an output after some scores."""
        for t, score in enumerate(scores, self.rows_seen_ + 1):
            step = max(self.step_size, t**-0.5)
            if t * self.alpha <= 1.0 or score <= q:
                covered += 1.0
                q = max(q, score) if t * self.alpha <= 1.0 else q * math.exp(-step * self.alpha)
            else:
                q = max(q * math.exp(step * (1.0 - self.alpha)), _LEAST * score)  # (1)
        return q, covered

    # -- prediction --------------------------------------------------------------------------------

    @property
    def coverage_(self) -> Any:
        """Share of the rows whose target was inside; nan before the first row."""
        if not getattr(self, "rows_seen_", 0):
            return np.nan
        shares = self.covered_ / self.rows_seen_
        return float(shares[0]) if len(shares) == 1 else shares

    @available_if(lambda self: is_regressor(self.model))  # type: ignore[untyped-decorator]
    def predict_interval(self, X: TableLike) -> Floats:
        """Intervals of the targets of rows, of shape (n, 2), or (n, c, 2) for several outputs.

        Parameters
        ----------
        X : rows that the model accepts

        Raises
        ------
        NotFittedError
            If no row was learned.
        """
        predictions = self._fitted("predict_interval").predict(X)
        width = np.broadcast_to(self._widths(), predictions.shape or (1,))
        return np.stack([predictions - width, predictions + width], axis=-1)

    @available_if(lambda self: is_classifier(self.model))  # type: ignore[untyped-decorator]
    def predict_set(self, X: TableLike) -> Array:
        """Whether each class is in the set of labels of each row, bool (n, c).

        A set is empty if no class is probable enough. This happens for a share of the rows if the
        model is wrong for less than α of them.

        Parameters
        ----------
        X : rows that the model accepts

        Raises
        ------
        NotFittedError
            If no row was learned.
        """
        probabilities = self._fitted("predict_set").predict_proba(X)
        sets: Array = _loss(probabilities) <= self._widths()
        return sets

    def predict(self, X: TableLike, **options: Any) -> Any:
        """The predictions of the model."""
        return self._fitted("predict").predict(X, **options)

    def predict_one(self, x: RowLike) -> Any:
        """The prediction of the model for one row."""
        return getattr(self, "model_", self.model).predict_one(x)

    @available_if(lambda self: is_classifier(self.model))  # type: ignore[untyped-decorator]
    def predict_proba(self, X: TableLike) -> Floats:
        """The probabilities of the model."""
        probabilities: Floats = self._fitted("predict_proba").predict_proba(X)
        return probabilities

    def score(self, X: TableLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """R² of a regressor or the accuracy of a classifier on these rows."""
        return float(self._fitted("score").score(X, y, sample_weight=sample_weight))

    def _widths(self) -> Floats:
        """q, infinite for too few rows."""
        few = self.rows_seen_ * self.alpha < 1.0
        return np.full_like(self.quantiles_, np.inf) if few else self.quantiles_

    def _fitted(self, verb: str) -> Any:
        if not getattr(self, "rows_seen_", 0):
            raise NotFittedError(
                f"Conformal.{verb}: this Conformal is not fitted yet: it has learned no row. "
                "Call fit, partial_fit or learn_one first."
            )
        return self.model_

    # -- other -------------------------------------------------------------------------------------

    @property
    def classes_(self) -> Array:
        """The labels of a classifier."""
        classes: Array = self._fitted("classes_").classes_
        return classes

    @property
    def _uses_time(self) -> bool:
        """Whether the model requires ``time``."""
        return bool(getattr(self.model, "_uses_time", False))

    @property
    def nbytes(self) -> int:
        """Size of the learned attributes in bytes."""
        return nbytes(getattr(self, "model_", None)) + 2 * 8 * len(getattr(self, "covered_", ()))

    def frozen_copy(self) -> Self:
        """Return a copy for prediction that later learning does not change."""
        twin = copy.copy(self)
        if "model_" in twin.__dict__:
            twin.model_ = self.model_.frozen_copy()
        return twin

    def __copy__(self) -> Self:
        twin = object.__new__(type(self))
        twin.__dict__ = dict(self.__dict__)
        if "model_" in twin.__dict__:
            twin.model_ = copy.copy(self.model_)
        return twin

    def __sklearn_is_fitted__(self) -> bool:
        return bool(getattr(self, "rows_seen_", 0))

    _merging = "refused"

    def __sklearn_tags__(self) -> Any:
        tags, model_tags = with_onepass_tags(super().__sklearn_tags__(), self), get_tags(self.model)
        for name in ("estimator_type", "classifier_tags", "regressor_tags", "target_tags"):
            setattr(tags, name, getattr(model_tags, name))
        return tags

    @property
    def _sound(self) -> bool:
        """Whether the attributes of a loaded file match."""
        if "model_" not in self.__dict__:
            return True
        alike = np.shape(self.quantiles_) == np.shape(self.covered_) and self.rows_seen_ >= 0
        return type(self.model_) is type(self.model) and alike


def _sliceable(X: Any) -> Any:
    """Rows as an array or a Table."""
    if is_frame(X):
        return Table.from_frame(X)
    if isinstance(X, (list, tuple)) and X and isinstance(X[0], dict):
        return Table.from_rows(X)
    return X if isinstance(X, Table) else np.atleast_1d(X)


def _loss(p: Any) -> Any:
    """−log p, as of 1e-6 for smaller p, so that labels that are not known have a finite score."""
    return -np.log(np.maximum(p, 1e-6))


def _probability(model: Any, row: Any, label: Any) -> float:
    """The probability of a label; 0 if it is not known."""
    try:
        shares = model.predict_proba(row)[0]
    except NotFittedError:
        return 0.0
    classes = getattr(model, "learner_", model).classes_
    found = shares[classes == label]
    return float(found[0]) if len(found) else 0.0
