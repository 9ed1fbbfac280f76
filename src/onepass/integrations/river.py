"""Adapters between learners of onepass and River [1], in both directions.

``wrap`` returns an estimator with the matching River base class, which predicts before its first
row. Rows are dicts or DataFrames whose columns are matched by name. New columns are appended in
sorted order, so that the order of a dict's keys does not change the result. A column that a row
lacks is 0, or missing if the model imputes.

``adopt`` returns a model that ``op.evaluate.prequential`` accepts. It calls ``predict_one`` and
then ``learn_one`` with each row, as River's progressive validation does, so that River models and
learners of onepass can be compared in one pass and one table.

[1] J. Montiel et al., "River: machine learning for streaming data in Python", JMLR 22, 2021.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence, Sized
from contextlib import contextmanager
from copy import deepcopy
from decimal import Decimal
from numbers import Real
from typing import TYPE_CHECKING, Any, Literal, Self, cast

import narwhals.stable.v1 as nw
import numpy as np
from river import base
from sklearn.base import is_classifier

from onepass import validation
from onepass.errors import (
    ColumnError,
    ParameterError,
    ShapeError,
    TypeMismatchError,
    calling,
    public,
)
from onepass.estimators import BaseEstimator, ClassifierMixin, RegressorMixin
from onepass.features.pipeline import Pipeline
from onepass.features.transformer import all_or_nothing
from onepass.learners import RLSClassifier, RLSRegressor
from onepass.learners.estimator import Learner
from onepass.types import Array, ArrayLike
from onepass.validation.table import Table, TableLike, is_frame, is_missing_value, sliceable

if TYPE_CHECKING:
    from narwhals.stable.v1.typing import IntoDataFrame

__all__ = [
    "AdoptedClassifier",
    "AdoptedRegressor",
    "Classifier",
    "MultiTargetRegressor",
    "Regressor",
    "adopt",
    "wrap",
]


@calling("op.integrations.river.adopt")
def adopt(model: base.Estimator, *, missing: Literal["absent", "none"] = "absent") -> Any:
    """Adapt a River model for ``op.evaluate.prequential``.

    The model is not copied: the adapter trains it row by row. Rows of a table are converted to
    dicts; the columns of an array are named x0, x1, … If a River model raises an error within a
    block, it has learned the rows before the error; a learner of onepass would have learned none.

    Parameters
    ----------
    model : river.base.Regressor or river.base.Classifier
        Model, or a River pipeline whose last step is one of these.
    missing : {"absent", "none"}, default "absent"
        How missing values are passed to the model: as absent keys, which most River models expect,
        or as None, as ``river.preprocessing.StatImputer`` expects.

    Returns
    -------
    AdoptedRegressor or AdoptedClassifier

    Raises
    ------
    TypeMismatchError
        If ``model`` is not a River regressor or classifier.
    ParameterError
        If ``missing`` is neither "absent" nor "none".

    Examples
    --------
    >>> from river import linear_model, preprocessing
    >>> import onepass as op
    >>> X = np.random.default_rng(0).normal(size=(500, 3))
    >>> y = X @ [1.0, 2.0, 3.0]
    >>> theirs = preprocessing.StandardScaler() | linear_model.LinearRegression()
    >>> models = {"ours": op.RLSRegressor(), "theirs": op.integrations.river.adopt(theirs)}
    >>> report = op.evaluate.prequential(models, (X, y), baselines=False)
    >>> report.scores["ours"].overall["mae"] < report.scores["theirs"].overall["mae"]
    True
    """
    last = getattr(model, "_last_step", model)  # the last step of a pipeline
    if isinstance(last, base.Regressor):
        return AdoptedRegressor(model, missing)
    if isinstance(last, base.Classifier):
        return AdoptedClassifier(model, missing)
    raise TypeMismatchError(
        f"`model` must be a regressor or classifier of River, got {model!r}. Pass an "
        "object such as river.linear_model.LinearRegression().",
    )


class _Adopted(BaseEstimator):
    """Base class of adapters that give a River model the methods of a learner."""

    _checked: Any
    _to_array: Any

    def __init__(self, model: base.Estimator, missing: str = "absent") -> None:
        if missing not in {"absent", "none"}:
            raise ParameterError(
                f"`missing` must be 'absent' or 'none', got {missing!r}. Pass one of these two.",
            )
        self.model: Any = model
        self.missing = missing

    @property
    def nbytes(self) -> int:
        """Size of the model in bytes, as computed by River."""
        return int(self.model._raw_memory_usage)  # noqa: SLF001  River has no public name for it

    @public
    def fit(self, X: TableLike, y: ArrayLike) -> Self:
        """Reset the model, then learn the rows one after the other.

        Parameters
        ----------
        X, y
            As in ``test_then_train``.
        """
        self.model = self.model.clone()
        return self.partial_fit(X, y)

    @public
    def partial_fit(self, X: TableLike, y: ArrayLike) -> Self:
        """Learn the rows one after the other.

        Parameters
        ----------
        X, y
            As in ``test_then_train``.
        """
        targets = self._checked(y, len(cast("Sized", X)))
        for x, target in zip(self._rows(X), targets, strict=True):
            self.model.learn_one(x, target)
        return self

    @public
    def predict(self, X: TableLike) -> Array:
        """Predict targets for the rows of X, shape (n,).

        Parameters
        ----------
        X : Table, DataFrame, list of dicts or array of shape (n, d)
        """
        predictions: Array = self._to_array([self.model.predict_one(x) for x in self._rows(X)])
        return predictions

    def predict_one(self, x: Any) -> Any:
        """Predict the target of one row.

        Parameters
        ----------
        x : dict of named features, or array of shape (d,)
        """
        return self.predict([x])[0]

    def learn_one(self, x: Any, y: Any) -> Self:
        """Learn one row.

        Parameters
        ----------
        x : dict of named features, or array of shape (d,)
        y : float or label
        """
        return self.partial_fit([x], [y])

    @public
    def test_then_train(self, X: TableLike, y: ArrayLike) -> Array:
        """Predict each row, then learn it; return the prequential predictions.

        Parameters
        ----------
        X : Table, DataFrame, list of dicts or array of shape (n, d)
        y : array-like of shape (n,)
        """
        targets, predictions = self._checked(y, len(cast("Sized", X))), []
        for x, target in zip(self._rows(X), targets, strict=True):
            predictions.append(self.model.predict_one(x))
            self.model.learn_one(x, target)
        prequential: Array = self._to_array(predictions)
        return prequential

    def _rows(self, X: Any) -> Iterator[dict[str, Any]]:
        """Yield rows as dicts, with missing values as the parameter ``missing`` states."""
        rows = sliceable(X)
        if not isinstance(rows, Table):
            if rows.ndim != 2:
                raise ShapeError(
                    "`X` must be a table, a frame, a list of dicts or an array of shape (n, d)",
                    got=f"shape {rows.shape}",
                    remedy="For one feature, pass X.reshape(-1, 1).",
                )
            columns = {f"x{j}": rows[:, j] for j in range(rows.shape[1])}
            rows = Table(columns, len(rows))
        for row in rows.rows():
            known = {name: value for name, value in row.items() if not is_missing_value(value)}
            yield dict.fromkeys(row) | known if self.missing == "none" else known

    def __sklearn_clone__(self) -> Self:
        return type(self)(self.model.clone(), self.missing)


class AdoptedRegressor(RegressorMixin, _Adopted):
    """Adapter of a River regressor, created by :func:`adopt`.

    Parameters
    ----------
    model : river.base.Regressor
    missing : {"absent", "none"}, default "absent"
    """

    def _checked(self, y: ArrayLike, n: int) -> list[Any]:
        targets = validation.targets(y, n)
        if targets.ndim != 1:
            raise TypeMismatchError(
                f"`y` must have one target per row, got shape {targets.shape}. Evaluate "
                "one model per target."
            )
        listed: list[Any] = targets.tolist()
        return listed

    def _to_array(self, predictions: list[object]) -> Array:
        """Convert predictions to numbers; None becomes 0, the first prediction of a learner."""
        return np.array([0.0 if p is None else p for p in predictions], dtype=np.float64)


class AdoptedClassifier(ClassifierMixin, _Adopted):
    """Adapter of a River classifier, created by :func:`adopt`.

    Parameters
    ----------
    model : river.base.Classifier
    missing : {"absent", "none"}, default "absent"
    """

    def _checked(self, y: ArrayLike, n: int) -> list[Any]:
        listed: list[Any] = validation.labels(y, n).tolist()
        return listed

    def _to_array(self, predictions: list[object]) -> Array:
        """Convert predictions to labels; None where the model has no prediction yet."""
        labels = np.empty(len(predictions), dtype=object)
        labels[:] = predictions
        if predictions and all(label is not None for label in predictions):
            return np.array(predictions)
        return labels


_PLAIN = frozenset({float, int, bool, np.float64, type(None)})
_ABSENT = "(no feature)"
"""Column of a first row without features: a learner requires at least one."""


_Row = Mapping[Any, Any]
"""A row of River: a dict from feature names, which may be any hashable objects, to values."""


class _Wrapped:
    """Mixin of all estimators that ``wrap`` returns; must precede River's base class.

    Parameters
    ----------
    model : learner or Pipeline
        Copied with its state; the copy learns.

    Attributes
    ----------
    model_ : learner or Pipeline
        The copy that learns.

    Raises
    ------
    TypeMismatchError
        If ``model`` is neither a learner nor a Pipeline.
    ColumnError
        If ``model`` has learned rows without feature names.
    """

    def __init__(self, model: object) -> None:
        if not isinstance(model, (Learner, Pipeline)):
            received = f"the class {model.__name__}" if isinstance(model, type) else repr(model)
            raise TypeMismatchError(
                "`model` must be a learner of onepass or an op.Pipeline, got "
                f"{received}. Pass an object such as op.RLSRegressor().",
            )
        self.model = model
        self.model_: Any = deepcopy(model)
        features = getattr(self.model_, "features", [])
        self._by_name = bool(features) and features[0]._by_name  # noqa: SLF001
        self._fills = any(feature._fills for feature in features)  # noqa: SLF001
        self._columns: dict[str, int] = {}
        if self._fitted and not self._by_name:
            names = getattr(self.model_, "feature_names_in_", None)
            if names is None:
                raise ColumnError(
                    "the model must have learned rows with feature names, like River's rows, "
                    "got a model that learned arrays. Wrap an unfitted model, or one that "
                    "learned a DataFrame or dicts.",
                )
            self._columns = {str(name): at for at, name in enumerate(names)}
        if self._by_name and not self._fills and not self._fitted:
            pipeline: Any = self.model_
            first = next(iter(pipeline.named_steps))
            self.model_.set_params(**{f"{first}__absent": 0})

    @property
    def _fitted(self) -> bool:
        """Whether the model has learned a row."""
        return bool(self.model_.__sklearn_is_fitted__())

    @property
    def _single(self) -> Any:
        """What processes single rows of the model; None if the model has none.

        It accepts dicts of plain numbers whose keys are exactly the known columns. For other
        dicts its methods return False or None.
        """
        return getattr(self.model_, "_single", None)

    @contextmanager
    def _rollback_on_error(self) -> Iterator[None]:
        """Restore the model and its columns if the context raises an exception."""
        model = self.model_
        parts = [*getattr(model, "features_", ()), getattr(model, "learner_", model)]
        with all_or_nothing(self, model, *parts):
            yield

    # -- one row -----------------------------------------------------------------------------------

    def _row(self, x: _Row, *, learning: bool) -> Any:
        """Convert one row to an array, or to a dict if the model finds columns by name.

        Parameters
        ----------
        x : mapping of names to values
        learning : bool
            Whether to add new columns.

        Raises
        ------
        TypeMismatchError
            If ``x`` is not a dict, or a value has an unsupported type.
        """
        if not isinstance(x, Mapping):
            raise TypeMismatchError(
                f"`x` must be a dict of named features, got {type(x).__name__}. Pass a dict "
                "from feature names to values."
            )
        named = {str(name): value for name, value in x.items()}
        if self._by_name:
            return self._ordered(named)
        for name, value in named.items():
            if type(value) not in _PLAIN and not isinstance(value, (Real, np.bool_, Decimal)):
                raise TypeMismatchError(
                    f"feature {name!r} must be a number, got {value!r}. Wrap "
                    "op.Pipeline(op.features.Encode(), ...), which supports text and dates."
                )
        fitted = self._fitted
        if learning:
            self._add_columns(named, fitted=fitted)
        if fitted:
            return self._vector(named, self._columns)
        names = sorted(named) or [_ABSENT]  # the first row determines the names
        first = self._vector(named, {name: at for at, name in enumerate(names)})
        return dict(zip(names, first.tolist(), strict=True))

    def _vector(self, named: Mapping[str, Any], columns: Mapping[str, int]) -> Array:
        row = np.full(len(columns), np.nan if self._fills else 0.0)
        for name, value in named.items():
            at = columns.get(name)
            if at is not None:
                row[at] = value
        return row

    # -- many rows ---------------------------------------------------------------------------------

    def _block(self, X: IntoDataFrame, *, learning: bool) -> Table:
        """Convert a data frame of any library to a table.

        Parameters
        ----------
        X : DataFrame of shape (n, d)
        learning : bool
            Whether to add new columns.

        Raises
        ------
        TypeMismatchError
            If ``X`` is not a data frame.
        """
        if not is_frame(X):
            raise TypeMismatchError(
                f"`X` must be a DataFrame, got {type(X).__name__}. Pass a frame with "
                "named columns; learn_one and predict_one accept one dict."
            )
        table = Table.from_frame(X)
        if self._by_name:
            return Table(self._ordered(table.columns, len(table)), len(table))
        fitted = self._fitted
        if learning:
            self._add_columns(table.columns, fitted=fitted)
        names = list(self._columns) if fitted else sorted(table.columns) or [_ABSENT]
        absent = np.full(len(table), np.nan if self._fills else 0.0)
        return Table({name: table.columns.get(name, absent) for name in names}, len(table))

    # -- columns -----------------------------------------------------------------------------------

    def _add_columns(self, names: Iterable[str], *, fitted: bool) -> None:
        """Append new columns in sorted order; grow the model if it is fitted."""
        columns = self._columns
        new = sorted(name for name in names if name not in columns)
        if new or not columns:
            new = new or [_ABSENT]
            self._columns = columns | {name: at for at, name in enumerate(new, len(columns))}
            if fitted:
                features = getattr(self.model_, "features_", ())
                first = features[0] if features else getattr(self.model_, "learner_", self.model_)
                first.grow(len(self._columns))
                first.feature_names_in_ = np.array(list(self._columns), dtype=object)

    def _ordered(self, named: Mapping[str, object], n: int | None = None) -> dict[str, Any]:
        """Return columns in the fitted order, then new ones; absent numeric columns are 0."""
        if not self._fitted:
            return {name: named[name] for name in sorted(named)}
        dtypes = self.model_.dtypes_
        row = {name: named[name] for name in dtypes if name in named}
        if len(row) < len(named):
            row |= {name: named[name] for name in sorted(named) if name not in row}
        if not self._fills:
            for name, dtype in dtypes.items():
                if name not in row and dtype == "number":
                    row[name] = 0.0 if n is None else np.zeros(n)
        return row

    # -- learning and prediction -------------------------------------------------------------------

    def _learn(self, x: _Row, y: object, w: float, t: object) -> None:
        single, model = self._single, self.model_
        named = t is None and isinstance(x, (dict, Mapping))
        if named and single is not None and model._learn_in_place(x, y, w, None):  # noqa: SLF001
            return
        with self._rollback_on_error():
            row = self._row(x, learning=True)
            model.learn_one(row, y, sample_weight=w, **_time_argument(t))

    def _predict(self, x: _Row) -> Any:
        single = self._single
        named = single is not None and isinstance(x, (dict, Mapping))
        prediction = single.predict_one(x) if named else None
        if prediction is not None:
            return prediction
        row = self._row(x, learning=False)
        return self.model_.predict_one(row)


class _OneTarget(_Wrapped):
    """Mixin of estimators of one target, which learn single rows and data frames."""

    @public
    def learn_one(self, x: _Row, y: Any, w: float = 1.0, t: object = None) -> None:
        """Learn one row with weight ``w`` and, for learners that forget by time, time ``t``."""
        self._learn(x, y, w, t)

    @public
    def learn_many(
        self,
        X: IntoDataFrame,
        y: ArrayLike,
        w: float | ArrayLike = 1.0,
        t: ArrayLike | None = None,
    ) -> None:
        """Learn the rows of a data frame in order; ``w`` is one weight, or one per row."""
        with self._rollback_on_error():
            rows = self._block(X, learning=True)
            weights = None if isinstance(w, (int, float)) and w == 1 else np.asarray(w)
            self.model_.partial_fit(
                rows, _as_list(y), sample_weight=weights, **_time_argument(_as_list(t))
            )

    def _predict_block(self, X: IntoDataFrame) -> list[Any]:
        rows = self._block(X, learning=False)
        if not self._fitted:
            return [self._predict(row) for row in rows.rows()]
        targets: list[Any] = self.model_.predict(rows).tolist()
        return targets


def _classifies(model: object) -> bool:
    """Return whether an object is a classifier of onepass: a learner or a Pipeline.

    Parameters
    ----------
    model : object
    """
    return isinstance(model, (Learner, Pipeline)) and bool(is_classifier(model))


def _time_argument(t: object) -> dict[str, Any]:
    """Return the keyword arguments for the time of a row; {} if it is None."""
    return {} if t is None else {"time": t}


def _as_list(y: object) -> Any:
    """Convert a series of any library to a list; return other objects unchanged."""
    native = nw.from_native(y, series_only=True, pass_through=True)
    return native.to_list() if isinstance(native, nw.Series) else y


def _series(values: list[Any], like: IntoDataFrame) -> Any:
    """Return a series of the library of a data frame, with its index.

    Parameters
    ----------
    values : list of length n
    like : DataFrame of n rows
    """
    frame = nw.from_native(like, eager_only=True)
    series = nw.new_series("", values, backend=frame.implementation).to_native()
    return _indexed(series, frame)


def _frame(columns: dict[Any, Any], like: IntoDataFrame) -> Any:
    """Return a data frame of the library of another one, with its index.

    Parameters
    ----------
    columns : dict of names to arrays of shape (n,)
        Names are converted to strings except for pandas.
    like : DataFrame of n rows
    """
    frame = nw.from_native(like, eager_only=True)
    if not frame.implementation.is_pandas_like():
        columns = {str(name): values for name, values in columns.items()}
    return _indexed(nw.from_dict(columns, backend=frame.implementation).to_native(), frame)


def _indexed(data: Any, frame: nw.DataFrame[IntoDataFrame]) -> Any:
    index = nw.maybe_get_index(frame)
    if index is not None:
        data.index = index
    return data


@calling("op.integrations.river.wrap")
def wrap(
    model: Learner | Pipeline, *, targets: Sequence[Hashable] | Literal[True] | None = None
) -> Any:
    """Wrap a learner or Pipeline as a River estimator.

    The estimator trains a copy of the model, ``model_``; save that copy with
    ``op.save(wrapped.model_, path)``. The copy and each ``clone()`` of the estimator start with the
    state of the model. Learners support numeric features; a Pipeline that starts with ``Encode``
    also supports text, dates and missing values.

    Parameters
    ----------
    model : learner or Pipeline
        Such as ``op.RLSRegressor()``.
    targets : True, or sequence of names, optional
        Names of the targets for multi-target regression, where River passes targets as a dict; True
        for the names in the first row. A model that has learned several targets requires the names.

    Returns
    -------
    Regressor, Classifier or MultiTargetRegressor
        Subclasses of ``river.base.MiniBatchRegressor``, ``MiniBatchClassifier`` and
        ``MultiTargetRegressor``.

    Raises
    ------
    MissingExtraError
        If River is not installed; the extra is ``river``.
    TypeMismatchError
        If the model is neither a learner nor a Pipeline.
    ColumnError
        If the model has learned rows without feature names.
    ParameterError
        If ``targets`` is incompatible with the model.

    Examples
    --------
    >>> from river import datasets, evaluate, metrics
    >>> import onepass as op
    >>> model = op.integrations.river.wrap(op.RLSRegressor(ridge=1.0))
    >>> evaluate.progressive_val_score(datasets.TrumpApproval().take(500), model, metrics.MAE())
    MAE: 0.597898
    """
    if targets is None:
        return Classifier(model) if _classifies(model) else Regressor(model)
    return MultiTargetRegressor(model, None if targets is True else targets)


class Regressor(_OneTarget, base.MiniBatchRegressor):
    """River regressor that wraps a regressor of onepass; created by :func:`wrap`.

    Parameters
    ----------
    model : learner or Pipeline
        A regressor.

    Examples
    --------
    >>> model = Regressor(RLSRegressor(ridge=0.0))
    >>> model.predict_one({"km": 1.0})
    0.0
    >>> for km in (1.0, 2.0, 4.0):
    ...     model.learn_one({"km": km}, 3.0 * km)
    >>> round(model.predict_one({"km": 3.0, "new": 1.0}), 6)
    9.0
    """

    def __init__(self, model: Learner | Pipeline) -> None:
        super().__init__(model)
        if _fitted_outputs(model) is not None:
            raise ParameterError(
                "`targets` must name the targets of a model that has learned several, got None. "
                "Call op.integrations.river.wrap(model, targets=[...]).",
            )

    @public
    def predict_one(self, x: _Row) -> float:
        """Predict the target of one row."""
        return float(self._predict(x))

    @public
    def predict_many(self, X: IntoDataFrame) -> Any:
        """Predict targets for the rows of a data frame, as a series of the same library."""
        return _series([float(value) for value in self._predict_block(X)], X)

    @classmethod
    def _unit_test_params(cls) -> Iterator[dict[str, Any]]:
        yield {"model": RLSRegressor()}


class Classifier(_OneTarget, base.MiniBatchClassifier):
    """River classifier that wraps a classifier of onepass; created by :func:`wrap`.

    Labels may be booleans, integers or strings, and new labels may occur at any time.

    Parameters
    ----------
    model : learner or Pipeline
        A classifier.

    Examples
    --------
    >>> model = Classifier(RLSClassifier())
    >>> for km, by in ((1.0, "foot"), (9.0, "bus"), (2.0, "foot"), (8.0, "bus")):
    ...     model.learn_one({"km": km}, by)
    >>> model.predict_one({"km": 7.0})
    'bus'
    """

    @public
    def predict_one(self, x: _Row, **kwargs: object) -> Any:
        """Predict the label of one row; None before the first label."""
        del kwargs
        label = self._predict(x)
        return label.item() if isinstance(label, np.generic) else label

    @public
    def predict_proba_one(self, x: _Row, **kwargs: object) -> dict[Any, float]:
        """Predict the probability of each label; {} before the first label."""
        del kwargs
        single = self._single
        if isinstance(x, (dict, Mapping)) and hasattr(single, "predict_proba_one"):
            probabilities: dict[Any, float] | None = single.predict_proba_one(x)
            if probabilities is not None:
                return probabilities
        row = self._row(x, learning=False)
        labels, shares = self._probabilities(
            Table.from_rows([row]) if isinstance(row, dict) else row[None]
        )
        return dict(zip(labels, shares[0].tolist(), strict=True))

    @public
    def predict_many(self, X: IntoDataFrame) -> Any:
        """Predict labels for the rows of a data frame, as a series of the same library."""
        return _series(self._predict_block(X), X)

    @public
    def predict_proba_many(self, X: IntoDataFrame) -> Any:
        """Predict probabilities of the labels, as a data frame of the same library."""
        labels, shares = self._probabilities(self._block(X, learning=False))
        return _frame(dict(zip(labels, shares.T, strict=True)), X)

    def _probabilities(self, rows: Array | Table) -> tuple[list[Any], Array]:
        """Return the labels, and their probabilities for each row, of shape (n, c)."""
        model = self.model_
        if not self._fitted:
            classes = getattr(model, "learner", model).classes
            if classes is None or len(classes) == 0:
                return [], np.empty((len(rows), 0))
            model = deepcopy(model).partial_fit(rows[:1], classes[:1], sample_weight=0.0)
        return model.classes_.tolist(), model.predict_proba(rows)

    @property
    def _multiclass(self) -> bool:
        return True

    @classmethod
    def _unit_test_params(cls) -> Iterator[dict[str, Any]]:
        yield {"model": RLSClassifier()}


class MultiTargetRegressor(_Wrapped, base.MultiTargetRegressor):
    """River multi-target regressor that wraps a regressor; created by :func:`wrap`.

    Parameters
    ----------
    model : learner or Pipeline
        A regressor.
    targets : sequence of names, optional
        Names of the targets; by default the names in the first row, in sorted order. Required if
        the model has already learned several targets.

    Examples
    --------
    >>> model = MultiTargetRegressor(RLSRegressor(ridge=0.0))
    >>> for km in (1.0, 2.0, 4.0):
    ...     model.learn_one({"km": km}, {"hours": 0.1 * km, "price": 3.0 * km})
    >>> {name: round(value, 6) for name, value in model.predict_one({"km": 3.0}).items()}
    {'hours': 0.3, 'price': 9.0}
    """

    def __init__(
        self, model: Learner | Pipeline, targets: Sequence[Hashable] | None = None
    ) -> None:
        super().__init__(model)
        if targets is not None and (isinstance(targets, str) or len(set(targets)) < len(targets)):
            raise ParameterError(
                f"`targets` must be a list of unique names, got {targets!r}. Name each "
                "target once, such as targets=['u', 'v'].",
            )
        self.targets = targets
        self._targets = None if targets is None else tuple(targets)
        learned = _fitted_outputs(model)
        if _classifies(model) or (learned is not None and learned != len(self._targets or ())):
            received = (
                "a classifier" if _classifies(model) else f"one that learned {learned} targets"
            )
            raise ParameterError(
                "`model` must be a regressor and `targets` the names of its targets, "
                f"got {received} and targets={targets!r}. Pass the names in the order "
                "in which the model learned the targets.",
            )

    @public
    def learn_one(
        self,
        x: _Row,
        y: Mapping[Hashable, float],
        w: float = 1.0,
        t: object = None,
        **kwargs: object,
    ) -> None:
        """Learn one row with its targets, weight ``w`` and time ``t``."""
        del kwargs
        targets = tuple(sorted(y, key=str)) if self._targets is None else self._targets
        if set(y) != set(targets):
            raise ColumnError(
                f"`y` must have the targets {list(targets)}, got {list(y)}. Pass all "
                "targets with each row.",
            )
        self._learn(x, [y[name] for name in targets], w, t)
        self._targets = targets

    @public
    def predict_one(self, x: _Row) -> dict[Hashable, float]:
        """Predict the targets of one row; {} before their names are known."""
        targets = self._targets or ()
        predictions = np.broadcast_to(self._predict(x), len(targets)).tolist() if targets else []
        return dict(zip(targets, predictions, strict=True))

    @classmethod
    def _unit_test_params(cls) -> Iterator[dict[str, Any]]:
        yield {"model": RLSRegressor()}


def _fitted_outputs(model: Learner | Pipeline) -> int | None:
    """Return the number of targets of a fitted multi-target model; None for other models."""
    learner: Any = getattr(model, "learner", model)
    multi_target = getattr(learner, "target_ndim_", 1) == 2
    return int(learner.n_outputs_) if multi_target else None
