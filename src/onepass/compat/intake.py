"""Intake: rows whose columns come and go by name, as a model that learns blocks wants them.

Columns are known from the first row on that is learned; new ones stand behind those known, in
sorted order, so that the order of a dict's keys changes no bit. A column that a row lacks is 0.
Where the model imputes it is missing there, and is imputed.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from decimal import Decimal
from numbers import Real
from typing import Any

import numpy as np

from onepass.errors import Array, ColumnError, NumericalError, TypeMismatchError
from onepass.features.pipeline import Steps
from onepass.features.transformer import all_or_nothing
from onepass.learners.estimator import Learner
from onepass.validation.table import Table, is_frame

__all__ = ["Intake"]

_PLAIN = frozenset({float, int, bool, np.float64, type(None)})
_ABSENT = "(no feature)"
"""The one column of a model whose first row has none: a learner has at least one feature."""


class Intake:
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

    def __init__(self, model: Any) -> None:
        if not isinstance(model, (Learner, Steps)):
            came = f"the class {model.__name__}" if isinstance(model, type) else repr(model)
            raise TypeMismatchError(
                f"op.compat.river.wrap: `model` must be a learner of onepass or an op.Pipeline, "
                f"got {came}. Give an object such as op.RLSRegressor()."
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

    def block(self, X: Any, where: str, *, learning: bool) -> Table:
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

    def _arranged(self, named: Mapping[str, Any], n: int | None = None) -> dict[str, Any]:
        """Columns in the order known, new ones behind; numbers that are lacking are 0."""
        if not self.fitted:
            return {name: named[name] for name in sorted(named)}
        kinds = self.model_.kinds_
        row = {name: named[name] for name in kinds if name in named}
        if len(row) < len(named):
            row |= {name: named[name] for name in sorted(named) if name not in row}
        if not self._fills:
            for name, kind in kinds.items():
                if name not in row and kind == "number":
                    row[name] = 0.0 if n is None else np.zeros(n)
        return row


def _with_text_names(x: Any, where: str) -> Mapping[str, Any]:
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


def _refuse_other_than_numbers(name: str, value: Any, where: str) -> None:
    if not isinstance(value, (Real, np.bool_, Decimal)):
        raise TypeMismatchError(
            f"{where}: feature {name!r} must hold numbers, got {value!r}. Wrap "
            "op.Pipeline(op.features.Encode(), ...), which takes text and dates."
        )


def _known(model: Any) -> dict[str, int]:
    """The columns of a model that has learned."""
    names = getattr(model, "feature_names_in_", None)
    if names is None:
        raise ColumnError(
            "op.compat.river.wrap: the model must have learned rows with names, as those of River "
            "have, got one that learned arrays. Wrap a new model, or one that learned a DataFrame "
            "or dicts."
        )
    return {str(name): at for at, name in enumerate(names)}


def _widened(model: Any, names: list[str]) -> None:
    """Let a model that has learned take new columns, by these names with those known."""
    features = getattr(model, "features_", ())
    first = features[0] if features else getattr(model, "learner_", model)
    first.grow(len(names))
    first.feature_names_in_ = np.array(names, dtype=object)
