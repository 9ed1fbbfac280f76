"""Learners of onepass as estimators of River, and models of River in evaluations here [1].

``wrap`` returns an estimator of the right base class, which predicts before it has learned. Rows
are dicts or DataFrames whose columns are matched by name and may change: they are known from the
first learned row on; new ones are appended in sorted order, so that the order of a dict's keys does
not change the result. A column that a row lacks is 0; where the model imputes, it is missing there.

``adopt`` returns a model that ``op.evaluate.prequential`` accepts. Each row goes through
``predict_one``, then ``learn_one``, as in River's own progressive validation, in one pass and one
table with learners of onepass.

[1] J. Montiel et al., "River: machine learning for streaming data in Python", JMLR 22, 2021.
"""

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence, Sized
from contextlib import contextmanager
from copy import deepcopy
from decimal import Decimal
from numbers import Real
from typing import TYPE_CHECKING, Any, Literal, Self, cast

import narwhals.stable.v1 as nw
import numpy as np
from river import base
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, is_classifier

from onepass import validation
from onepass.errors import (
    ColumnError,
    NumericalError,
    ParameterError,
    ShapeError,
    TypeMismatchError,
    import_extra,
)
from onepass.features.pipeline import Pipeline
from onepass.features.transformer import all_or_nothing
from onepass.learners import RLSClassifier, RLSRegressor
from onepass.learners.estimator import Learner
from onepass.types import Array, ArrayLike
from onepass.validation.table import Table, TableLike, is_frame

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


def adopt(model: base.Estimator, *, missing: Literal["absent", "none"] = "absent") -> Any:
    """A River model as an entrant of ``op.evaluate.prequential``.

    The model itself learns, row by row; it is not copied. Rows of a table become dicts, those of an
    array have the features x0, x1, … Unlike a learner of onepass, a model of River that raises in
    the middle of a block has learned the rows before it.

    Parameters
    ----------
    model : river.base.Regressor or river.base.Classifier
        Or a pipeline of River's that ends in one.
    missing : {"absent", "none"}, default "absent"
        What a missing value is to it: a key that the row lacks, as most of River's models want,
        or None, as ``river.preprocessing.StatImputer`` does.

    Returns
    -------
    AdoptedRegressor or AdoptedClassifier

    Raises
    ------
    TypeMismatchError
        If it is no such model.
    ParameterError
        If ``missing`` is neither.

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
    base = import_extra("river.base", extra="river", where="op.integrations.river.adopt")
    last = getattr(model, "_last_step", model)  # of a pipeline
    if isinstance(last, base.Regressor):
        return AdoptedRegressor(model, missing)
    if isinstance(last, base.Classifier):
        return AdoptedClassifier(model, missing)
    raise TypeMismatchError(
        "op.integrations.river.adopt: `model` must be a regressor or classifier of River, got "
        f"{model!r}. Give an object such as river.linear_model.LinearRegression()."
    )


class _Adopted(BaseEstimator):  # type: ignore[misc]
    """The verbs of a learner over a model of River."""

    def __init__(self, model: base.Estimator, missing: str = "absent") -> None:
        if missing not in {"absent", "none"}:
            raise ParameterError(
                f"op.integrations.river.adopt: `missing` must be 'absent' or 'none', got "
                f"{missing!r}. Choose one of the two."
            )
        self.model: Any = model
        self.missing = missing

    @property
    def nbytes(self) -> int:
        """Bytes of the model, as River counts them."""
        return int(self.model._raw_memory_usage)  # noqa: SLF001  River's own name for it

    def fit(self, X: TableLike, y: ArrayLike) -> Self:
        """Forget all, then learn the rows one after the other.

        Parameters
        ----------
        X, y
            As in ``test_then_train``.
        """
        self.model = self.model.clone()
        return self.partial_fit(X, y)

    def partial_fit(self, X: TableLike, y: ArrayLike) -> Self:
        """Learn the rows one after the other.

        Parameters
        ----------
        X, y
            As in ``test_then_train``.
        """
        answers = self._checked(y, len(cast("Sized", X)), "partial_fit")
        for x, answer in zip(self._rows(X), answers, strict=True):
            self.model.learn_one(x, answer)
        return self

    def predict(self, X: TableLike) -> Array:
        """What the model says of the rows now, shape (n,).

        Parameters
        ----------
        X : Table, DataFrame, list of dicts or array of shape (n, d)
        """
        said: Array = self._answers([self.model.predict_one(x) for x in self._rows(X)])
        return said

    def predict_one(self, x: Any) -> Any:
        """What the model says of one row.

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

    def test_then_train(self, X: TableLike, y: ArrayLike) -> Array:
        """Learn the rows; return what was said of each just before learning it.

        Parameters
        ----------
        X : Table, DataFrame, list of dicts or array of shape (n, d)
        y : array-like of shape (n,)
        """
        answers, said = self._checked(y, len(cast("Sized", X)), "test_then_train"), []
        for x, answer in zip(self._rows(X), answers, strict=True):
            said.append(self.model.predict_one(x))
            self.model.learn_one(x, answer)
        before: Array = self._answers(said)
        return before

    def _rows(self, X: Any) -> Iterator[dict[str, Any]]:
        """Rows as dicts, with missing values as this model wants them."""
        if is_frame(X):
            X = Table.from_frame(X)
        elif isinstance(X, (list, tuple)) and len(X) and isinstance(X[0], dict):
            X = Table.from_rows(X)
        if not isinstance(X, Table):
            array = np.asarray(X)
            if array.ndim != 2:
                raise ShapeError(
                    f"{type(self).__name__}: `X` must be a table, a frame, a list of dicts or an "
                    f"array of shape (n, d), got shape {array.shape}. Give an array a column for "
                    "each feature, with X.reshape(-1, 1) if there is one."
                )
            X = Table({f"x{j}": array[:, j] for j in range(array.shape[1])}, len(array))
        for row in X.rows():
            lacking = {name for name, value in row.items() if value is None or value != value}  # noqa: PLR0124
            if lacking and self.missing == "none":
                yield {name: None if name in lacking else value for name, value in row.items()}
            elif lacking:
                yield {name: value for name, value in row.items() if name not in lacking}
            else:
                yield row

    def __sklearn_clone__(self) -> Self:
        return type(self)(self.model.clone(), self.missing)


class AdoptedRegressor(RegressorMixin, _Adopted):  # type: ignore[misc]
    """A regressor of River: see :func:`adopt`.

    Parameters
    ----------
    model : river.base.Regressor
    missing : {"absent", "none"}, default "absent"
    """

    def _checked(self, y: ArrayLike, n: int, verb: str) -> list[Any]:
        answers = validation.targets(y, n, f"AdoptedRegressor.{verb}")
        if answers.ndim != 1:
            raise TypeMismatchError(
                f"AdoptedRegressor.{verb}: `y` must hold one answer a row, got shape "
                f"{answers.shape}. Evaluate a model for each answer."
            )
        listed: list[Any] = answers.tolist()
        return listed

    def _answers(self, said: list[object]) -> Array:
        """Numbers; 0 where the model says nothing yet, as learners of onepass begin."""
        return np.array([0.0 if one is None else one for one in said], dtype=np.float64)


class AdoptedClassifier(ClassifierMixin, _Adopted):  # type: ignore[misc]
    """A classifier of River: see :func:`adopt`.

    Parameters
    ----------
    model : river.base.Classifier
    missing : {"absent", "none"}, default "absent"
    """

    def _checked(self, y: ArrayLike, n: int, verb: str) -> list[Any]:
        listed: list[Any] = validation.labels(y, n, f"AdoptedClassifier.{verb}").tolist()
        return listed

    def _answers(self, said: list[object]) -> Array:
        """Labels; None where the model says nothing yet."""
        answers = np.empty(len(said), dtype=object)
        answers[:] = said
        if said and all(one is not None for one in said):
            return np.array(said)
        return answers


_PLAIN = frozenset({float, int, bool, np.float64, type(None)})
_ABSENT = "(no feature)"
"""The one column of a model whose first row has none: a learner has at least one feature."""


class _Intake:
    """A model and the columns that it knows.

    Parameters
    ----------
    model : learner or Pipeline
        A copy of it learns; what it has learned so far is kept.

    Attributes
    ----------
    model_ : learner or Pipeline
        The copy that learns.

    Raises
    ------
    TypeMismatchError
        If it is neither.
    ColumnError
        If it has learned rows without names: columns could not be told apart.
    """

    def __init__(self, model: object) -> None:
        if not isinstance(model, (Learner, Pipeline)):
            came = f"the class {model.__name__}" if isinstance(model, type) else repr(model)
            raise TypeMismatchError(
                "op.integrations.river.wrap: `model` must be a learner of onepass or an "
                f"op.Pipeline, got {came}. Give an object such as op.RLSRegressor()."
            )
        self.model_: Any = deepcopy(model)
        features = getattr(self.model_, "features", [])
        self._by_name = bool(features) and features[0].by_name
        self._fills = any(feature.fills for feature in features)
        self._columns: dict[str, int] = {}
        if self.fitted and not self._by_name:
            self._columns = _known(self.model_)

    @property
    def fitted(self) -> bool:
        """Whether anything was learned."""
        return bool(self.model_.__sklearn_is_fitted__())

    @property
    def loop(self) -> Any:
        """What learns and answers dicts of plain numbers under just the names known; or None.

        It leaves all other rows, and all rows while it is closed, to whoever has it.
        """
        return getattr(self.model_, "_loop", None)

    @contextmanager
    def whole(self) -> Iterator[None]:
        """All or nothing: whatever is raised within, the model and its columns are as before."""
        model = self.model_
        parts = [*getattr(model, "features_", ()), getattr(model, "learner_", model)]
        with all_or_nothing(self, model, *parts):
            yield

    # -- one row -----------------------------------------------------------------------------------

    def row(self, x: Mapping[Any, Any], where: str, *, learning: bool) -> Any:
        """One row: an array, or a dict where the model finds columns by name.

        Parameters
        ----------
        x : mapping of names to values
        where : str
            The public call, for messages.
        learning : bool
            Whether new columns are taken in.

        Raises
        ------
        TypeMismatchError, ColumnError
            If it is no dict, a value is none that the model can learn, or two names are the same
            as text.
        """
        named = _with_text_names(x, where)
        if self._by_name:
            return self._arranged(named)
        for name, value in named.items():
            if type(value) not in _PLAIN:
                _refuse_other_than_numbers(name, value, where)
        fitted = self.fitted
        if learning:
            self._meet(named, fitted=fitted)
        if fitted:
            return self._vector(named, self._columns, where)
        names = sorted(named) or [_ABSENT]  # the first row brings the names
        first = self._vector(named, {name: at for at, name in enumerate(names)}, where)
        return dict(zip(names, first.tolist(), strict=True))

    def _vector(self, named: Mapping[str, Any], columns: Mapping[str, int], where: str) -> Array:
        row = np.full(len(columns), np.nan if self._fills else 0.0)
        for name, value in named.items():
            at = columns.get(name)
            if at is not None:
                try:
                    row[at] = value
                except OverflowError as wrong:
                    raise NumericalError(
                        f"{where}: feature {name!r} must be within float64, got a whole number of "
                        "more than 308 digits. Give it in larger units."
                    ) from wrong
        return row

    # -- many rows ---------------------------------------------------------------------------------

    def block(self, X: "IntoDataFrame | Table", where: str, *, learning: bool) -> Table:
        """Many rows, of a frame of any library.

        Parameters
        ----------
        X : DataFrame of shape (n, d)
        where : str
            The public call, for messages.
        learning : bool
            Whether new columns are taken in.

        Raises
        ------
        TypeMismatchError
            If it is no frame.
        """
        if not isinstance(X, Table) and not is_frame(X):
            raise TypeMismatchError(
                f"{where}: `X` must be a DataFrame, got {type(X).__name__}. Give a frame with "
                "named columns; learn_one and predict_one take one dict."
            )
        table = X if isinstance(X, Table) else Table.from_frame(X)
        if self._by_name:
            return Table(self._arranged(table.columns, len(table)), len(table))
        fitted = self.fitted
        if learning:
            self._meet(table.columns, fitted=fitted)
        known = list(self._columns) if fitted else sorted(table.columns) or [_ABSENT]
        lacking = np.full(len(table), np.nan if self._fills else 0.0)
        return Table({name: table.columns.get(name, lacking) for name in known}, len(table))

    # -- columns -----------------------------------------------------------------------------------

    def _meet(self, names: Iterable[str], *, fitted: bool) -> None:
        """Take in columns that are new."""
        columns = self._columns
        new = sorted(name for name in names if name not in columns)
        if new or not columns:
            new = new or [_ABSENT]
            self._columns = columns | {name: at for at, name in enumerate(new, len(columns))}
            if fitted:
                _widened(self.model_, list(self._columns))

    def _arranged(self, named: Mapping[str, object], n: int | None = None) -> dict[str, Any]:
        """Columns in the order known, new ones behind; numbers that are lacking are 0."""
        if not self.fitted:
            return {name: named[name] for name in sorted(named)}
        kinds = self.model_.dtypes_
        row = {name: named[name] for name in kinds if name in named}
        if len(row) < len(named):
            row |= {name: named[name] for name in sorted(named) if name not in row}
        if not self._fills:
            for name, kind in kinds.items():
                if name not in row and kind == "number":
                    row[name] = 0.0 if n is None else np.zeros(n)
        return row


def _with_text_names(x: object, where: str) -> Mapping[str, Any]:
    if not isinstance(x, Mapping):
        raise TypeMismatchError(
            f"{where}: `x` must be a dict of named features, got {type(x).__name__}. Give "
            "features by name."
        )
    if all(type(name) is str for name in x):
        return x
    named = {str(name): value for name, value in x.items()}
    if len(named) < len(x):
        raise ColumnError(
            f"{where}: each feature must have a name of its own, got names that are the same as "
            f"text, of {list(x)}. Rename one of them."
        )
    return named


def _refuse_other_than_numbers(name: str, value: object, where: str) -> None:
    if not isinstance(value, (Real, np.bool_, Decimal)):
        raise TypeMismatchError(
            f"{where}: feature {name!r} must hold numbers, got {value!r}. Wrap "
            "op.Pipeline(op.features.Encode(), ...), which takes text and dates."
        )


def _known(model: Learner | Pipeline) -> dict[str, int]:
    """The columns of a model that has learned."""
    names = getattr(model, "feature_names_in_", None)
    if names is None:
        raise ColumnError(
            "op.integrations.river.wrap: the model must have learned rows with names, as those of "
            "River have, got one that learned arrays. Wrap a new model, or one that learned a "
            "DataFrame or dicts."
        )
    return {str(name): at for at, name in enumerate(names)}


def _widened(model: Learner | Pipeline, names: list[str]) -> None:
    """Let a model that has learned take new columns, by these names with those known."""
    features = getattr(model, "features_", ())
    first: Any = features[0] if features else getattr(model, "learner_", model)
    first.grow(len(names))
    first.feature_names_in_ = np.array(names, dtype=object)


_Row = Mapping[Any, Any]
"""A row as River gives it: features by name; names are any hashable thing."""


class _Wrapped:
    """What all estimators for River have in common; stands before River's own base class.

    Parameters
    ----------
    model : learner or Pipeline
        A copy of it learns, at ``model_``.
    """

    model: Any

    def __init__(self, model: Learner | Pipeline) -> None:
        self.model = model
        self._intake = _Intake(model)

    @property
    def model_(self) -> Any:
        """The learner or Pipeline that learns."""
        return self._intake.model_

    def _learn(self, x: _Row, y: object, w: float, t: object) -> None:
        loop = self._intake.loop
        if loop is not None and t is None and loop.learn_one(x, y, w):
            return
        with self._intake.whole():
            row = self._intake.row(x, self._where("learn_one"), learning=True)
            self.model_.learn_one(row, y, sample_weight=w, **_at(t))

    def _said(self, x: _Row) -> Any:
        loop = self._intake.loop
        said = None if loop is None else loop.predict_one(x)
        if said is not None:
            return said
        row = self._intake.row(x, self._where("predict_one"), learning=False)
        return self.model_.predict_one(row)

    def _learn_block(
        self, X: "IntoDataFrame", y: ArrayLike, w: float | ArrayLike, t: ArrayLike | None
    ) -> None:
        with self._intake.whole():
            rows = self._intake.block(X, self._where("learn_many"), learning=True)
            weights = None if isinstance(w, (int, float)) and w == 1 else np.asarray(w)
            self.model_.partial_fit(rows, _listed(y), sample_weight=weights, **_at(_listed(t)))

    def _said_block(self, X: "IntoDataFrame") -> list[Any]:
        rows = self._intake.block(X, self._where("predict_many"), learning=False)
        if not self._intake.fitted:
            return [self._said(row) for row in rows.rows()]
        answers: list[Any] = self.model_.predict(rows).tolist()
        return answers

    def _shares(self, rows: Array | Table) -> tuple[list[Any], Array]:
        """The labels known, and the probability of each in each row, (n, c)."""
        model = self.model_
        if not self._intake.fitted:
            named = getattr(model, "learner", model).classes
            if named is None or len(named) == 0:
                return [], np.empty((len(rows), 0))
            model = deepcopy(model).partial_fit(rows[:1], named[:1], sample_weight=0.0)
        return model.classes_.tolist(), model.predict_proba(rows)

    def _where(self, verb: str) -> str:
        return f"{type(self).__name__}.{verb}"


def _classifies(model: object) -> bool:
    """Whether it is a learner or Pipeline of onepass, and a classifier.

    Parameters
    ----------
    model : object
    """
    return isinstance(model, (Learner, Pipeline)) and bool(is_classifier(model))


def _at(t: object) -> dict[str, Any]:
    """When a row happened, where it is said."""
    return {} if t is None else {"time": t}


def _listed(y: object) -> Any:
    """Answers as a list: a series of any library, or whatever was given."""
    native = nw.from_native(y, series_only=True, pass_through=True)
    return native.to_list() if isinstance(native, nw.Series) else y


def _series(values: list[Any], like: "IntoDataFrame") -> Any:
    """Values as a series of the library, and with the index, of a frame.

    Parameters
    ----------
    values : list of length n
    like : DataFrame of n rows
    """
    frame = nw.from_native(like, eager_only=True)
    made = nw.new_series("", values, backend=frame.implementation).to_native()
    return _indexed(made, frame)


def _frame(columns: dict[Any, Any], like: "IntoDataFrame") -> Any:
    """Columns as a frame of the library, and with the index, of another.

    Parameters
    ----------
    columns : dict of names to arrays of shape (n,)
        Names are text but for pandas.
    like : DataFrame of n rows
    """
    frame = nw.from_native(like, eager_only=True)
    if not frame.implementation.is_pandas_like():
        columns = {str(name): values for name, values in columns.items()}
    return _indexed(nw.from_dict(columns, backend=frame.implementation).to_native(), frame)


def _indexed(made: Any, frame: "nw.DataFrame[IntoDataFrame]") -> Any:
    index = nw.maybe_get_index(frame)
    if index is not None:
        made.index = index
    return made


def wrap(model: Learner | Pipeline, *, targets: Sequence[Hashable] | bool | None = None) -> Any:
    """A learner or Pipeline as an estimator of River.

    A copy learns, at ``model_``; ``op.save(wrapped.model_, path)`` writes it. What the model has
    learned before is kept, and is where a ``clone()`` begins. Features of plain learners are
    numbers; a Pipeline that begins with ``Encode`` takes text, dates and missing values too.

    Parameters
    ----------
    model : learner or Pipeline
        Such as ``op.RLSRegressor()``.
    targets : True, or sequence of names, optional
        For regressors with several answers a row, which River gives as a dict: their names, or
        True to take those of the first row. A model that has learned several needs the names.

    Returns
    -------
    Regressor, Classifier or MultiTargetRegressor
        A ``river.base.MiniBatchRegressor``, ``MiniBatchClassifier`` or ``MultiTargetRegressor``.

    Raises
    ------
    MissingExtraError
        If River is not installed: the extra is ``river``.
    TypeMismatchError
        If the model is neither learner nor Pipeline.
    ColumnError
        If it has learned rows without names.
    ParameterError
        If ``targets`` does not fit the model.

    Examples
    --------
    >>> from river import datasets, evaluate, metrics
    >>> import onepass as op
    >>> model = op.integrations.river.wrap(op.RLSRegressor(ridge=1.0))
    >>> evaluate.progressive_val_score(datasets.TrumpApproval().take(500), model, metrics.MAE())
    MAE: 0.597898
    """
    if targets is None and _classifies(model):
        return Classifier(model)
    if targets is None or targets is False:
        return Regressor(model)
    return MultiTargetRegressor(model, None if targets is True else targets)


class Regressor(_Wrapped, base.MiniBatchRegressor):
    """A regressor of onepass as one of River: see :func:`wrap`.

    Parameters
    ----------
    model : learner or Pipeline
        It regresses.

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
        if _classifies(model) or _learned_answers(model) is not None:
            came = "a classifier" if _classifies(model) else "one that learned several answers"
            raise ParameterError(
                f"Regressor: `model` must regress one answer a row, got {came}. Call "
                "op.integrations.river.wrap, which chooses the class."
            )

    def learn_one(self, x: _Row, y: float, w: float = 1.0, t: object = None) -> None:
        """Learn one row, of weight ``w``; ``t`` is when it happened, for learners that ask."""
        if isinstance(y, Mapping):
            raise TypeMismatchError(
                f"{self._where('learn_one')}: `y` must be a number, got a dict. For several "
                "answers a row call op.integrations.river.wrap(model, targets=True)."
            )
        self._learn(x, y, w, t)

    def predict_one(self, x: _Row) -> float:
        """The answer for one row."""
        return float(self._said(x))

    def learn_many(
        self,
        X: "IntoDataFrame",
        y: ArrayLike,
        w: float | ArrayLike = 1.0,
        t: ArrayLike | None = None,
    ) -> None:
        """Learn the rows of a frame one after the other; ``w`` is a number or one for each."""
        self._learn_block(X, y, w, t)

    def predict_many(self, X: "IntoDataFrame") -> Any:
        """The answers for the rows of a frame, as a series of the same library."""
        return _series([float(said) for said in self._said_block(X)], X)

    @classmethod
    def _unit_test_params(cls) -> Iterator[dict[str, Any]]:
        yield {"model": RLSRegressor()}


class Classifier(_Wrapped, base.MiniBatchClassifier):
    """A classifier of onepass as one of River: see :func:`wrap`.

    Labels may be truth values, whole numbers or text, and new ones may come at any time. There are
    probabilities where the model has some (``SGDClassifier(loss="logistic")``); none are invented.

    Parameters
    ----------
    model : learner or Pipeline
        It classifies.

    Examples
    --------
    >>> model = Classifier(RLSClassifier())
    >>> for km, by in ((1.0, "foot"), (9.0, "bus"), (2.0, "foot"), (8.0, "bus")):
    ...     model.learn_one({"km": km}, by)
    >>> model.predict_one({"km": 7.0})
    'bus'
    """

    def __init__(self, model: Learner | Pipeline) -> None:
        super().__init__(model)
        if not _classifies(model):
            raise ParameterError(
                f"Classifier: `model` must be a classifier, got {type(model).__name__}. Call "
                "op.integrations.river.wrap, which chooses the class."
            )

    def learn_one(self, x: _Row, y: Hashable, w: float = 1.0, t: object = None) -> None:
        """Learn one row, of weight ``w``; ``t`` is when it happened, for learners that ask."""
        self._learn(x, y, w, t)

    def predict_one(self, x: _Row, **kwargs: object) -> Any:
        """The label of one row; None before any is known."""
        del kwargs
        said = self._said(x)
        return said.item() if isinstance(said, np.generic) else said

    def predict_proba_one(self, x: _Row, **kwargs: object) -> dict[Any, float]:
        """The probability of each label known; {} before any is.

        Raises
        ------
        NotImplementedError
            If the model has none, as is River's custom.
        """
        del kwargs
        where = self._probable("predict_proba_one")
        row = self._intake.row(x, where, learning=False)
        labels, shares = self._shares(
            Table.from_rows([row]) if isinstance(row, dict) else row[None]
        )
        return dict(zip(labels, shares[0].tolist(), strict=True))

    def learn_many(
        self,
        X: "IntoDataFrame",
        y: ArrayLike,
        w: float | ArrayLike = 1.0,
        t: ArrayLike | None = None,
    ) -> None:
        """Learn the rows of a frame one after the other; ``w`` is a number or one for each."""
        self._learn_block(X, y, w, t)

    def predict_many(self, X: "IntoDataFrame") -> Any:
        """The labels of the rows of a frame, as a series of the same library."""
        return _series(self._said_block(X), X)

    def predict_proba_many(self, X: "IntoDataFrame") -> Any:
        """The probabilities of the labels, as a frame of the same library."""
        where = self._probable("predict_proba_many")
        labels, shares = self._shares(self._intake.block(X, where, learning=False))
        return _frame(dict(zip(labels, shares.T, strict=True)), X)

    def _probable(self, verb: str) -> str:
        """The call's name for messages, where the model has probabilities."""
        where = self._where(verb)
        if not hasattr(self.model_, "predict_proba"):
            name = type(getattr(self.model_, "learner", self.model_)).__name__
            raise NotImplementedError(
                f"{where}: the model must have probabilities, got {name}, which has scores "
                'only. Wrap op.SGDClassifier(loss="logistic"), or call predict_one.'
            )
        return where

    @property
    def _multiclass(self) -> bool:
        return True

    @classmethod
    def _unit_test_params(cls) -> Iterator[dict[str, Any]]:
        yield {"model": RLSClassifier()}


class MultiTargetRegressor(_Wrapped, base.MultiTargetRegressor):
    """A regressor of onepass with several answers a row as one of River: see :func:`wrap`.

    Parameters
    ----------
    model : learner or Pipeline
        It regresses.
    targets : sequence of names, optional
        The answers' names; by default those of the first row, in sorted order. A model that has
        learned needs them.

    Examples
    --------
    >>> model = MultiTargetRegressor(RLSRegressor(ridge=0.0))
    >>> for km in (1.0, 2.0, 4.0):
    ...     model.learn_one({"km": km}, {"hours": 0.1 * km, "price": 3.0 * km})
    >>> {name: round(said, 6) for name, said in model.predict_one({"km": 3.0}).items()}
    {'hours': 0.3, 'price': 9.0}
    """

    def __init__(
        self, model: Learner | Pipeline, targets: Sequence[Hashable] | None = None
    ) -> None:
        super().__init__(model)
        listed = [] if targets is None or isinstance(targets, str) else list(targets)
        if targets is not None and (not listed or len(set(listed)) < len(listed)):
            raise ParameterError(
                f"MultiTargetRegressor: `targets` must be a list of different names, got "
                f"{targets!r}. Name each answer once, as in targets=['u', 'v']."
            )
        self.targets = targets
        self._targets = None if targets is None else tuple(targets)
        learned = _learned_answers(model)
        if _classifies(model) or (learned is not None and learned != len(self._targets or ())):
            came = "a classifier" if _classifies(model) else f"one that learned {learned} answers"
            raise ParameterError(
                f"MultiTargetRegressor: `model` must regress, and `targets` name its answers, got "
                f"{came} and targets={targets!r}. Name the answers in the order it learned them."
            )

    def learn_one(
        self,
        x: _Row,
        y: Mapping[Hashable, float],
        w: float = 1.0,
        t: object = None,
        **kwargs: object,
    ) -> None:
        """Learn one row of weight ``w`` and its answers; ``t`` is when it happened."""
        del kwargs
        if not isinstance(y, Mapping) or not y:
            raise TypeMismatchError(
                f"{self._where('learn_one')}: `y` must be a dict of answers by name, got {y!r}. "
                "For one answer a row call op.integrations.river.wrap(model)."
            )
        targets = tuple(sorted(y, key=str)) if self._targets is None else self._targets
        if set(y) != set(targets):
            raise ColumnError(
                f"{self._where('learn_one')}: `y` must have the answers {list(targets)}, got "
                f"{list(y)}. Give all of them in each row."
            )
        self._learn(x, [y[name] for name in targets], w, t)
        self._targets = targets

    def predict_one(self, x: _Row) -> dict[Hashable, float]:
        """The answers for one row; {} before their names are known."""
        targets = self._targets or ()
        said = np.broadcast_to(self._said(x), len(targets)).tolist() if targets else []
        return dict(zip(targets, said, strict=True))

    @classmethod
    def _unit_test_params(cls) -> Iterator[dict[str, Any]]:
        yield {"model": RLSRegressor()}


def _learned_answers(model: Learner | Pipeline) -> int | None:
    """How many answers a row a model has learned; None where it is one, or none yet."""
    learner: Any = getattr(model, "learner", model)
    several = getattr(learner, "target_ndim_", 1) == 2
    return int(learner.n_outputs_) if several else None
