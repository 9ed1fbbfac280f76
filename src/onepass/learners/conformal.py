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

Cost: that of the model and O(c) numbers. Classifiers whose ``test_then_train`` has no
``return_proba`` learn row by row.

[1] I. Gibbs, E. Candès, "Adaptive conformal inference under distribution shift", NeurIPS 2021.
[2] A. N. Angelopoulos, E. Candès, R. J. Tibshirani, "Conformal PID control for time series
    prediction", NeurIPS 2023; quantile tracking, (4).
"""

from __future__ import annotations

# ruff: noqa: SLF001  copies of the same class
import copy
import math
from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from sklearn.base import clone, is_classifier, is_regressor

from onepass import validation
from onepass.errors import NotFittedError, TypeMismatchError, public
from onepass.estimators import available_if
from onepass.learners.estimator.classifier import prequential_probabilities
from onepass.learners.estimator.composite import Composite, naming
from onepass.serialization.state import forget, nbytes
from onepass.types import Array, ArrayLike, Floats, RowLike, TimeLike
from onepass.validation.arrays import check_same_parameters
from onepass.validation.frames import series_array
from onepass.validation.table import TableLike, sliceable

__all__ = ["Conformal"]

_LEAST = 1e-6  # minimum of q relative to a score outside


class Conformal(Composite):
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

    model: Any
    model_: Any
    quantiles_: Floats
    covered_: Floats
    rows_seen_: int

    @public
    def __init__(self, model: Any, alpha: float = 0.1, *, step_size: float = 0.1) -> None:
        self.model = model
        self.alpha = alpha
        self.step_size = step_size

    # -- learning ----------------------------------------------------------------------------------

    def _learn(
        self,
        X: Any,
        y: Any,
        sample_weight: Any,
        verb: str,
        *,
        time: Any = None,
        classes: Any = None,
        return_proba: bool = False,
    ) -> Any:
        """Learn a block in a copy."""
        where = f"Conformal.{verb}"
        twin = object.__new__(type(self))
        twin.__dict__ = dict(self.__dict__)
        if verb == "fit":
            forget(twin)
        model, rows = twin._model(), sliceable(X)
        P: Array = np.empty((0, 0))
        whole = is_regressor(model) or getattr(model, "_scores_blocks", False)
        if classes is not None or not whole:  # more than one call
            model = twin.model_ = copy.copy(model)
        given: dict[str, Any] = {} if time is None else {"time": np.asarray(series_array(time))}
        with naming(where):
            if verb == "fit" and not len(rows):
                model.fit(rows, y)  # raises the error
            if classes is not None:
                model.partial_fit(rows[:0], np.empty(0), classes=classes)
            if is_regressor(model) or getattr(rows, "ndim", 2) != 2 or not (whole or len(rows)):
                given |= {} if sample_weight is None else {"sample_weight": sample_weight}
                predictions: Array = np.asarray(model.test_then_train(rows, y, **given))
                n = len(predictions)
                if is_regressor(model):
                    s = validation.weights(sample_weight, n)
                    errors = np.abs(validation.targets(y, n) - predictions)
                    twin._update(errors.reshape(n, -1 if n else 1), s)
            else:
                labels = validation.labels(y if y is None else series_array(y), len(rows))
                s = validation.weights(sample_weight, len(rows))
                given |= {} if s is None else {"sample_weight": s}
                predictions, P, known = prequential_probabilities(model, rows, labels, **given)
                p = np.where(labels[:, None] == known, np.nan_to_num(P), 0.0).sum(axis=1)
                twin._update(_loss(p)[:, None], s)
        self.__dict__ = twin.__dict__
        return (predictions, P) if return_proba else predictions

    @public
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
        X = [x] if isinstance(x, Mapping) else np.asarray(x)[None]
        when = None if time is None else [time]
        self._learn(X, np.asarray(y)[None], np.full(1, sample_weight), "learn_one", time=when)
        return self

    def _model(self) -> Any:
        """The model; on first use a clone of the parameter."""
        validation.in_range(self.alpha, "alpha", above=0.0, high=1.0)
        validation.in_range(self.step_size, "step_size", above=0.0, high=1.0)
        if "model_" in self.__dict__:
            return self.model_
        known = is_regressor(self.model) or hasattr(self.model, "predict_proba")
        if not known or not hasattr(self.model, "test_then_train"):
            raise TypeMismatchError(
                "`model` must be a regressor or a classifier of onepass, got "
                f"{self.model!r}. Pass an object such as op.RLSRegressor()."
            )
        self.model_, self.rows_seen_ = clone(self.model), 0
        self.quantiles_ = self.covered_ = np.zeros(0)
        return self.model_

    def _update(self, scores: Floats, s: Floats | None = None) -> None:
        """Update quantiles and coverage with scores (n, c) of rows with weights."""
        scores = scores if s is None else scores[s > 0]
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

    @available_if(lambda self: is_regressor(self.model))
    @public
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
        return self._interval(self._call("predict_interval", "predict", X))

    @available_if(lambda self: is_regressor(self.model))
    @public
    def predict_interval_one(self, x: RowLike) -> Floats:
        """Interval of the target of one row, of shape (2,), or (c, 2) for several outputs.

        Infinite before the first row.
        """
        return self._interval(self._call("predict_interval_one", "predict_one", x))

    def _interval(self, predictions: Any) -> Floats:
        width = np.broadcast_to(self._widths(), np.shape(predictions) or (1,))
        width = width.reshape(np.shape(predictions))
        return np.stack([predictions - width, predictions + width], axis=-1)

    @available_if(lambda self: is_classifier(self.model))
    @public
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
        sets: Array = _loss(self._call("predict_set", "predict_proba", X)) <= self._widths()
        return sets

    @available_if(lambda self: hasattr(self.model, "predict_proba_one"))
    @public
    def predict_set_one(self, x: RowLike) -> set[Any]:
        """The set of labels of one row; empty before the first row."""
        shares = self._call("predict_set_one", "predict_proba_one", x)
        return {label for label, p in shares.items() if _loss(p) <= self._widths()[0]}

    def predict(self, X: TableLike, **options: Any) -> Any:
        """The predictions of the model."""
        return self._call("predict", "predict", X, **options)

    def predict_one(self, x: RowLike) -> Any:
        """The prediction of the model for one row."""
        return self._call("predict_one", "predict_one", x)

    @available_if(lambda self: is_classifier(self.model))
    def predict_proba(self, X: TableLike) -> Floats:
        """The probabilities of the model."""
        probabilities: Floats = self._call("predict_proba", "predict_proba", X)
        return probabilities

    @available_if(lambda self: hasattr(self.model, "predict_proba_one"))
    def predict_proba_one(self, x: RowLike) -> dict[Any, float]:
        """The probabilities of the model for one row, by label; empty before the first row."""
        shares: dict[Any, float] = self._call("predict_proba_one", "predict_proba_one", x)
        return shares

    @public
    def score(self, X: TableLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """R² of a regressor or the accuracy of a classifier on these rows."""
        return float(self._call("score", "score", X, y, sample_weight=sample_weight))

    def _widths(self) -> Floats:
        """q, infinite for too few rows."""
        few = getattr(self, "rows_seen_", 0) * self.alpha < 1.0
        return np.full(1, np.inf) if few else self.quantiles_

    def _call(self, verb: str, method: str, *given: Any, **options: Any) -> Any:
        """Call a method of the model, which must be fitted unless the method takes one row."""
        if not (getattr(self, "rows_seen_", 0) or method.endswith("_one")):
            raise NotFittedError(
                "this Conformal is not fitted yet: it has learned no row. Call fit, "
                "partial_fit or learn_one first.",
                f"Conformal.{verb}",
            )
        with naming(f"Conformal.{verb}"):
            return getattr(getattr(self, "model_", self.model), method)(*given, **options)

    # -- other -------------------------------------------------------------------------------------

    @property
    def classes_(self) -> Array:
        """The labels of a classifier."""
        if not getattr(self, "rows_seen_", 0):
            raise AttributeError("Conformal has no `classes_` before the first row")
        classes: Array = self.model_.classes_
        return classes

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

    @property
    def _merging(self) -> str:
        """As of the model, but never exact."""
        return "refused" if self.model._merging == "refused" else "approximate"

    @public
    def merge(self, other: Self, *, concurrent: bool = False) -> Self:
        """Merge another Conformal, whose model is merged; widths become weighted means.

        Coverage is that of the rows of both. Each part has learned its widths from its own
        predictions, so that widths are approximate until further rows have been learned.

        Parameters
        ----------
        other : Conformal with the same parameters
            It is not changed.
        concurrent : bool, default=False
            As in ``merge`` of the model.

        Returns
        -------
        self

        Raises
        ------
        MergeError
            If the parameters differ, or the models cannot be merged. Both are then unchanged.
        """
        where = "Conformal.merge"
        check_same_parameters(self, other, ("alpha", "step_size"))
        twin, more = copy.copy(self), copy.copy(other)
        with naming(where):
            twin._model().merge(more._model(), concurrent=concurrent)
        total = twin.rows_seen_ + more.rows_seen_
        share = more.rows_seen_ / max(total, 1)
        if share and not twin.rows_seen_:
            twin.quantiles_ = twin.covered_ = np.zeros_like(more.quantiles_)
        if share:
            twin.quantiles_ = (1.0 - share) * twin.quantiles_ + share * more.quantiles_
            twin.covered_ = twin.covered_ + more.covered_
        twin.rows_seen_ = total
        self.__dict__ = twin.__dict__
        return self

    @property
    def _sound(self) -> bool:
        """Whether the attributes of a loaded file match."""
        if "model_" not in self.__dict__:
            return True
        alike = np.shape(self.quantiles_) == np.shape(self.covered_) and self.rows_seen_ >= 0
        return type(self.model_) is type(self.model) and alike


def _loss(p: Any) -> Any:
    """−log p, as of 1e-6 for smaller p, so that labels that are not known have a finite score."""
    return -np.log(np.maximum(p, 1e-6))
