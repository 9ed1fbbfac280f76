"""Conformal: prediction intervals and label sets with a given coverage, on any stream.

The score s_t of a row is |y_t − ŷ_t| of a regressor, for each output, or −log p_t(y_t) of a
classifier, predicted before the row is learned. The interval ŷ ± q_t, or the set of all labels with
−log p(k) <= q_t, contains the target if s_t <= q_t. After each row [1, 2], with log q for q so that
the unit of the scores does not matter,

    log q_{t+1} = log q_t + η_t (1[s_t > q_t] − α),     η_t = max(γ, 1 / √t)               (1)

For constant η, summing (1) gives

    | 1/T Σ_t 1[s_t > q_t] − α | = | log (q_{T+1} / q_1) | / (η T)                         (2)

so that the coverage approaches 1 − α for every sequence of scores within bounds, also with drift
and with a wrong model. A larger γ follows changes faster; q then fluctuates more. The interval is
infinite during the first m = max(2 / α, 20), but at most 1000, rows after the first; q_1 is their
quantile, the ⌈(m + 1) (1 − α)⌉-th smallest score, or the smallest; from 0, which (1) does not
leave, q starts again at the next score outside. After so many consecutive scores outside that α to
this power is below 1/1000, q is at least the smallest of them, so that scores that were almost
zero, as of a sensor at rest, do not keep q small; (2) holds between such rows.

With a horizon H, a copy of the model forecasts the next H rows (``Pipeline.forecast``) and is then
replaced, so that each number of rows ahead has a score in H + 1 rows, and its own q.

Cost: that of the model and O(m c) numbers; with a horizon, a further prediction per row, a copy of
the model per H rows, and O(H m c) numbers. Classifiers whose ``test_then_train`` has no
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
from dataclasses import KW_ONLY, dataclass
from typing import Any, Self

import numpy as np
from sklearn.base import clone, is_classifier, is_regressor

from onepass import validation
from onepass.declared import State, check_parameters, param
from onepass.errors import (
    NotFittedError,
    OnepassError,
    ParameterError,
    TypeMismatchError,
    public,
)
from onepass.estimators import available_if
from onepass.learners.estimator.classifier import prequential_probabilities
from onepass.learners.estimator.composite import Composite, naming
from onepass.serialization.state import forget, nbytes
from onepass.types import Array, ArrayLike, Floats, RowLike, TimeLike
from onepass.validation.arrays import check_same_parameters
from onepass.validation.frames import series_array
from onepass.validation.table import TableLike, sliceable

_SCORES = ("quantiles_", "covered_", "counts_", "sums_", "runs_", "first_")
_NO_SCORE = float(np.finfo(np.float64).max)  # the least of no scores; files hold no infinity
_UNLIKELY = 1e-3  # probability of consecutive scores outside, after which q is raised to them


@dataclass(eq=False, repr=False)
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
    horizon : int, default=1
        H >= 1: the largest number of rows ahead for which widths are learned, for
        ``forecast_interval`` of a regressor.

    Attributes
    ----------
    coverage_ : float or ndarray of shape (c,)
        Share of the rows whose target was inside, predicted before each row was learned; with a
        horizon, of shape (H,) or (H, c).
    quantiles_ : ndarray of shape (c,)
        q: half the width of the interval of each output, or the largest −log p of labels in a set;
        with a horizon, of shape (H, c).
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

    model_ = State[Any]()
    quantiles_ = State[Floats]()
    covered_ = State[Floats]()
    counts_ = State[Array]()
    sums_ = State[Floats]()
    runs_ = State[Floats]()
    first_ = State[Floats]()
    ahead_ = State[Any]()
    rows_seen_ = State[int]()

    model: Any
    alpha: float = param(0.1, above=0.0, high=1.0)
    _: KW_ONLY
    step_size: float = param(0.1, above=0.0, high=1.0)
    horizon: int = param(1, whole=True, low=1)

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
        predictions: Array
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
                if len(twin.counts_) > 1:
                    predictions = twin._learn_ahead(rows, y, given)
                else:
                    predictions = np.asarray(model.test_then_train(rows, y, **given))
                n = len(predictions)
                if is_regressor(model) and len(twin.counts_) == 1:
                    s = validation.weights(sample_weight, n)
                    errors = validation.targets(y, n, gaps=self._learns_gaps) - predictions
                    errors = np.abs(errors.reshape(n, -1 if n else 1))
                    known = ~np.isnan(errors).any(axis=1)
                    twin._update(errors[known], None if s is None else s[known])
                    twin.rows_seen_ += int(np.count_nonzero(~known if s is None else s[~known]))
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
        with self._lock:
            if sample_weight == 1 and self._learn_row(x, y, time):
                return self
            X = [x] if isinstance(x, Mapping) else np.asarray(x)[None]
            when = None if time is None else [time]
            self._learn(X, np.asarray(y)[None], np.full(1, sample_weight), "learn_one", time=when)
        return self

    def _learn_row(self, x: RowLike, y: Any, time: TimeLike | None) -> bool:
        """Learn a row of a regressor with one output; return False if a block must learn it."""
        own = self.__dict__
        if not own.get("rows_seen_") or not isinstance(y, (float, int)) or len(self.counts_) > 1:
            return False
        model = self._model()
        delay = getattr(model, "_target_delay", None) or 1  # a lag differs before the row is due
        if len(self.quantiles_) > 1 or not is_regressor(model) or delay > 1 or not math.isfinite(y):
            return False
        with naming("Conformal.learn_one"):
            prediction = model.predict_one(x)
            if np.ndim(prediction):
                return False
            model.learn_one(x, y, **({} if time is None else {"time": time}))
        self._update(np.array([[abs(y - float(prediction))]]))
        return True

    def _learn_ahead(self, rows: Any, y: Any, given: dict[str, Any]) -> Array:
        """Learn rows, and the scores of forecasts of them by earlier copies of the model."""
        n, horizon = len(rows), len(self.counts_)
        period = horizon + 1  # seldom a multiple of a season, so that all phases occur
        y = validation.targets(y, n, gaps=self._learns_gaps)
        s = validation.weights(given.get("sample_weight"), n)
        model = self.model_ = copy.copy(self.model_)
        self.ahead_, predictions = copy.copy(self.ahead_), [y[:0]]
        learned = np.ones(n, dtype=bool) if s is None else s > 0.0
        begin = 0
        while begin < n:
            step = self.rows_seen_ % period
            if not step and learned[begin]:
                self.ahead_ = copy.copy(model) if self.rows_seen_ else None
            same = learned[begin : begin + period - step] == learned[begin]
            end = begin + (len(same) if same.all() else int(same.argmin()))
            part = slice(begin, end)
            more = {name: np.asarray(value)[part] for name, value in given.items()}
            scores = None
            try:
                if learned[begin] and self.ahead_ is not None:
                    forecast = getattr(self.ahead_, "_forecast", self.ahead_.predict)
                    scores = np.abs(y[part] - forecast(rows[part])).reshape(end - begin, -1)
                predictions.append(np.asarray(model.test_then_train(rows[part], y[part], **more)))
            except OnepassError as error:
                raise error if error.row is None else error.at(row=error.row + begin) from error
            for i in range(end - begin if learned[begin] else 0):
                scored = None if scores is None or step + i >= horizon else scores[i : i + 1]
                known = scored is not None and not np.isnan(scored).any()
                self._update(scored if known else None, ahead=step + i)
            begin = end
        return np.concatenate(predictions[1:] or predictions)

    def _model(self) -> Any:
        """The model; on first use a clone of the parameter."""
        check_parameters(self)
        if "model_" in self.__dict__:
            return self.model_
        known = is_regressor(self.model) or hasattr(self.model, "predict_proba")
        if not known or not hasattr(self.model, "test_then_train"):
            raise TypeMismatchError(
                "`model` must be a regressor or a classifier of onepass, got "
                f"{self.model!r}. Pass an object such as op.RLSRegressor()."
            )
        if self.horizon > 1 and not is_regressor(self.model):
            raise ParameterError(
                f"`horizon` must be 1 for a classifier, got {self.horizon}. Leave it out."
            )
        self.model_, self.rows_seen_, self.ahead_ = clone(self.model), 0, None
        self.quantiles_ = self.covered_ = np.zeros((0,) if self.horizon == 1 else (self.horizon, 0))
        self.counts_ = np.zeros(self.horizon, dtype=np.int64)
        self.sums_ = np.zeros((self.horizon, 0))
        self.runs_ = np.zeros((self.horizon, 0, 2))
        self.first_ = np.zeros((self.horizon, self._warm_up, 0))
        return self.model_

    @property
    def _warm_up(self) -> int:
        """m, the number of scores before the first finite width."""
        return min(max(math.ceil(2.0 / self.alpha), 20), 1000)

    def _update(self, scores: Floats | None, s: Floats | None = None, ahead: int = 0) -> None:
        """Update the widths for ``ahead`` + 1 rows with scores (n, c) of rows with weights.

        None is a row without scores. The first row learned has none either: its prediction did not
        depend on a row.
        """
        rows = 1 if scores is None else len(scores if s is None else s[s > 0])
        if scores is not None:
            scores = scores if s is None else scores[s > 0]
            scores = scores[1:] if not self.rows_seen_ else scores
        self.rows_seen_ += rows
        if scores is None:
            return
        h, c = len(self.counts_), scores.shape[1]
        q, covered = (
            np.array(a).reshape(h, -1) if a.size else np.zeros((h, c))
            for a in (self.quantiles_, self.covered_)
        )
        first = self.first_.copy() if self.first_.size else np.zeros((h, self._warm_up, c))
        count, m = int(self.counts_[ahead]), first.shape[1]
        warm = scores[: max(m - count, 0)]
        first[ahead, count : count + len(warm)] = warm
        if len(warm) and count + len(warm) == m:
            q[ahead] = self._quantile(first[ahead])
        covered[ahead] += len(warm)
        sums = self.sums_.copy() if self.sums_.size else np.zeros((h, c))
        sums[ahead] += scores.sum(axis=0)
        self.sums_ = sums
        runs = self.runs_.copy() if self.runs_.size else np.full((h, c, 2), [0.0, _NO_SCORE])
        further = scores[len(warm) :].T.tolist()
        for k, column in enumerate(further if len(scores) > len(warm) else ()):
            outside, least = runs[ahead, k].tolist()
            tracked = self._tracked(q[ahead, k], column, count + len(warm), outside, least)
            q[ahead, k], inside, *runs[ahead, k] = tracked
            covered[ahead, k] += inside
        self.runs_ = runs
        shape = (c,) if h == 1 else (h, c)
        self.quantiles_, self.covered_ = q.reshape(shape), covered.reshape(shape)
        counts = self.counts_.copy()
        counts[ahead] += len(scores)
        self.counts_, self.first_ = counts, first if (counts < m).any() else first[:, :, :0]

    def _tracked(
        self, q: float, scores: list[float], before: int, outside: float, least: float
    ) -> tuple[float, int, float, float]:
        """The quantile after further scores of an output, and the number of those inside.

        ``outside`` consecutive scores were outside until now, at least ``least``; both follow.
        """
        inside = 0
        for t, score in enumerate(scores, before + 1):
            step = max(self.step_size, t**-0.5)
            if score <= q:
                inside += 1
                q *= math.exp(-step * self.alpha)
                outside, least = 0.0, _NO_SCORE
            else:
                q = q * math.exp(step * (1.0 - self.alpha)) if q else score  # (1)
                outside, least = outside + 1.0, min(least, score)
                q = max(q, least) if self.alpha**outside < _UNLIKELY else q
        return q, inside, outside, least

    # -- prediction --------------------------------------------------------------------------------

    @property
    def coverage_(self) -> Any:
        """Share of the scored rows whose target was inside; nan before the first one."""
        if not getattr(self, "rows_seen_", 0) or not self.covered_.size:
            return np.nan
        counts = self.counts_ if self.covered_.ndim == 1 else self.counts_[:, None]
        shares = np.where(counts > 0, self.covered_ / np.maximum(counts, 1), np.nan)
        return float(shares[0]) if shares.size == 1 else shares.reshape(shares.shape)

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
        return self._interval(self._call("predict_interval", "predict", X), self._widths()[0])

    @available_if(lambda self: is_regressor(self.model))
    @public
    def predict_interval_one(self, x: RowLike) -> Floats:
        """Interval of the target of one row, of shape (2,), or (c, 2) for several outputs.

        Infinite before the first row.
        """
        prediction = self._call("predict_interval_one", "predict_one", x)
        return self._interval(prediction, self._widths()[0])

    @available_if(lambda self: is_regressor(self.model))
    @public
    def forecast(self, X: TableLike, y: ArrayLike | None = None) -> Floats:
        """Forecasts of the model for rows in their order; see ``Pipeline.forecast``."""
        predictions: Floats = copy.copy(self)._forecast(X, y)
        return predictions

    @available_if(lambda self: is_regressor(self.model))
    @public
    def forecast_interval(self, X: TableLike, y: ArrayLike | None = None) -> Floats:
        """Intervals of ``forecast``, of shape (n, 2), or (n, c, 2) for several outputs.

        Row i is i + 1 rows ahead; beyond the ``horizon`` its width is that of the horizon. Known
        targets of y are used as lags, but do not make the widths of later rows smaller.

        Parameters
        ----------
        X, y
            As in ``Pipeline.forecast``.
        """
        return copy.copy(self)._forecast_interval(X, y)[1]

    def _forecast_interval(
        self, X: TableLike, y: ArrayLike | None = None, before: int = 0
    ) -> tuple[Floats, Floats]:
        """Forecasts as ``_forecast`` of rows after ``before`` others, and their intervals."""
        predictions, widths = self._forecast(X, y), self._widths()
        ahead = np.minimum(before + np.arange(len(predictions)), len(widths) - 1)
        width = widths[ahead].reshape(len(predictions), -1)
        return predictions, self._interval(predictions, width)

    def _forecast(self, X: TableLike, y: ArrayLike | None = None, **options: Any) -> Any:
        """Forecast rows, and store their targets as lags of the next ones."""
        if not hasattr(getattr(self, "model_", None), "_forecast"):
            return self._call("forecast", "predict", X)
        return self._call("forecast", "_forecast", X, y, **options)

    def _interval(self, predictions: Any, width: Floats) -> Floats:
        shape = np.shape(predictions)
        if len(shape) == 1 and width.shape == (len(predictions), 1):
            width = width[:, 0]
        width = np.broadcast_to(width, shape or (1,)).reshape(shape)
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
        sets: Array = _loss(self._call("predict_set", "predict_proba", X)) <= self._widths()[0]
        return sets

    @available_if(lambda self: hasattr(self.model, "predict_proba_one"))
    @public
    def predict_set_one(self, x: RowLike) -> set[Any]:
        """The set of labels of one row; empty before the first row."""
        shares = self._call("predict_set_one", "predict_proba_one", x)
        return {label for label, p in shares.items() if _loss(p) <= self._widths()[0, 0]}

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

    @available_if(lambda self: hasattr(self.model, "recall"))
    @public
    def recall(self, X: TableLike) -> Array:
        """Predict rows of the whole past, as ``recall`` of the model, a mixture."""
        recalled: Array = self._call("recall", "recall", X)
        return recalled

    @public
    def score(self, X: TableLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """R² of a regressor or the accuracy of a classifier on these rows."""
        return float(self._call("score", "score", X, y, sample_weight=sample_weight))

    def _widths(self) -> Floats:
        """Half widths for each number of rows ahead, (H, c); infinite after too few scores."""
        if not getattr(self, "rows_seen_", 0) or not self.quantiles_.size:
            return np.full((1, 1), np.inf)
        few = self.counts_[:, None] < self.first_.shape[1]
        widths: Floats = np.where(few, np.inf, self.quantiles_.reshape(len(self.counts_), -1))
        return widths

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
    def dtypes_(self) -> dict[str, str]:
        """The types of the columns of a Pipeline; empty if they have none."""
        types: dict[str, str] = getattr(getattr(self, "model_", None), "dtypes_", {})
        return types

    @property
    def missing(self) -> str:
        """How to handle missing features, as of the model."""
        return str(getattr(self.model, "missing", "keep"))

    @property
    def forecast_errors_(self) -> Floats:
        """Mean score for each number of rows ahead, (H,) or (H, c): the mean absolute error."""
        errors = self.sums_ / np.maximum(self.counts_, 1)[:, None]
        return errors[:, 0] if errors.shape[1] == 1 else errors

    @property
    def nbytes(self) -> int:
        """Size of the learned attributes in bytes."""
        parts = ("model_", "ahead_", *_SCORES)
        return sum(nbytes(getattr(self, name, None)) for name in parts)

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
        """Merge another Conformal, whose model is merged; widths become weighted geometric means.

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
        with self._lock:
            self._merge(other, concurrent=concurrent)
        return self

    def _merge(self, other: Self, *, concurrent: bool) -> None:
        """Merge another one in a copy."""
        where = "Conformal.merge"
        check_same_parameters(self, other, ("alpha", "step_size", "horizon"))
        twin, more = copy.copy(self), copy.copy(other)
        with naming(where):
            twin._model().merge(more._model(), concurrent=concurrent)
        if more.covered_.size and not twin.covered_.size:
            for name in _SCORES:
                setattr(twin, name, getattr(more, name))
        elif more.covered_.size:
            twin._merge_scores(more)
        twin.rows_seen_, twin.ahead_ = twin.rows_seen_ + more.rows_seen_, None
        self.__dict__ = twin.__dict__

    def _merge_scores(self, other: Self) -> None:
        """Merge widths: log q is weighted by rows, and too few scores are put together."""
        m, shape = self._warm_up, self.covered_.shape
        one, two = self.counts_, other.counts_
        q, p = (x.quantiles_.reshape(len(one), -1).copy() for x in (self, other))
        first = np.zeros((len(one), m, q.shape[1]))
        for h in range(len(one)):
            if one[h] >= m and two[h] >= m:
                share = two[h] / (one[h] + two[h])
                with np.errstate(divide="ignore"):
                    q[h] = np.exp((1.0 - share) * np.log(q[h]) + share * np.log(p[h]))
            elif two[h] >= m:
                q[h] = p[h]
            elif one[h] < m:
                warm = np.concatenate([self.first_[h, : one[h]], other.first_[h, : two[h]]])[:m]
                first[h, : len(warm)] = warm
                if len(warm) == m:
                    q[h] = self._quantile(first[h])
        self.quantiles_, self.counts_ = q.reshape(shape), one + two
        self.covered_, self.sums_ = self.covered_ + other.covered_, self.sums_ + other.sums_
        self.first_ = first if (self.counts_ < m).any() else first[:, :, :0]

    def _quantile(self, scores: Floats) -> Floats:
        """Q of the first scores (m, c)."""
        rank = math.ceil((len(scores) + 1) * (1.0 - self.alpha))
        q: Floats = np.sort(scores, axis=0)[min(max(rank, 1), len(scores)) - 1]
        return q

    @property
    def _sound(self) -> bool:
        """Whether the attributes of a loaded file match."""
        if "model_" not in self.__dict__:
            return True
        alike = np.shape(self.quantiles_) == np.shape(self.covered_) and self.rows_seen_ >= 0
        rows = np.shape(self.counts_) == np.shape(self.first_)[:1] == np.shape(self.sums_)[:1]
        return type(self.model_) is type(self.model) and alike and rows


def _loss(p: Any) -> Any:
    """−log p, as of 1e-6 for smaller p, so that labels that are not known have a finite score."""
    return -np.log(np.maximum(p, 1e-6))
