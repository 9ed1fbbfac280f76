"""Transformers of scikit-learn as steps of a Pipeline: stateless, with ``partial_fit``, or frozen.

Such a transformer learns row by row. Its ``transform`` cannot include a row in its own statistics
without learning it, so row k is transformed with the state after rows 1 ... k − 1, and the first
row with the state after itself; thus predictions and learning use the same numbers, for any
division of the stream into blocks.

Cost: one call of ``transform``, and one of ``partial_fit``, per row learned.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator
from sklearn.utils import get_tags

from onepass import validation
from onepass.declared import State
from onepass.errors import ShapeError, TypeMismatchError, calling, public
from onepass.features.encode import to_table
from onepass.features.transformer import Starts, Transformer
from onepass.serialization.state import not_fitted
from onepass.types import Array, Floats
from onepass.validation.table import Table, TableLike


def adapted(step: Any) -> Transformer | None:
    """Return a step of a Pipeline as a transformer of onepass; None if it is no transformer.

    Parameters
    ----------
    step : object

    Raises
    ------
    TypeMismatchError
        If the step is a transformer that learns only from all rows at once.
    """
    if isinstance(step, Transformer):
        return step
    if isinstance(step, type) or not hasattr(step, "transform") or not hasattr(step, "get_params"):
        return None
    if _learns(step) or isinstance(step, FrozenEstimator) or not get_tags(step).requires_fit:
        return Adapter(step)
    name = type(step).__name__
    raise TypeMismatchError(
        "a transformer of scikit-learn must be stateless or have `partial_fit`, got "
        f"{name}, which learns from all rows at once. Fit it to the first rows and pass "
        f"it frozen: sklearn.frozen.FrozenEstimator({name}(...).fit(first_rows))."
    )


def _learns(step: object) -> bool:
    return hasattr(step, "partial_fit") and not isinstance(step, FrozenEstimator)


@dataclass(eq=False, repr=False)
class Adapter(Transformer):
    """A transformer of scikit-learn as a transformer of onepass.

    Its input is an array, or a pandas DataFrame if the rows have names.

    Parameters
    ----------
    transformer : estimator
        Not changed; ``transformer_`` is its fitted copy.
    """

    transformer_ = State[Any]()
    width_ = State[int]()

    transformer: Any

    @property
    def n_features_out_(self) -> int:
        """Number of output columns; 0 before the first row."""
        return getattr(self, "width_", 0)

    @public
    def get_feature_names_out(self, input_features: Sequence[str] | None = None) -> Array:
        """Return the names of the output columns; numbered, if the transformer has no names."""
        if not self.__sklearn_is_fitted__():
            raise not_fitted(self.transformer)
        names = self._names_in(input_features)
        try:
            names = self.transformer_.get_feature_names_out(names)
        except AttributeError:
            kind = type(self.transformer).__name__.lower()
            names = [f"{kind}{j}" for j in range(self.n_features_out_)]
        return np.array(names, dtype=object)

    def _check_rows(self, X: TableLike, *, learning: bool) -> Floats | Table:
        """Return rows as an array, or as a table if they have names."""
        del learning
        names = getattr(self, "feature_names_in_", None)
        rows = to_table(X, None if names is None else list(names))
        if names is None:
            return rows
        if isinstance(rows, np.ndarray):
            return Table(dict(zip(names, rows.T, strict=True)), len(rows))
        return rows.select(names) if set(rows.names) == set(names) else rows

    @calling("Pipeline")
    def _learn_rows(
        self, checked_rows: Floats | Table, starts: Starts | None
    ) -> tuple[Floats, Starts]:
        """Learn the rows one after the other; return them transformed."""
        del starts
        (n, seen), made = (len(checked_rows), getattr(self, "rows_seen_", 0)), self.transformer
        if seen and not n:
            return np.empty((0, self.width_)), Starts.none(self.width_)
        # before the first row, a row of zeros determines the output columns
        rows, names = _frame(checked_rows if n else _zeros(checked_rows))
        if seen and rows.shape[1] != self.n_features_in_:
            raise ShapeError(
                f"{type(made).__name__} must get {self.n_features_in_} columns, as in the first "
                f"rows, got {rows.shape[1]}. Place it before transformers that add columns, such "
                "as Encode and Impute, or use a transformer of op.features."
            )
        if not _learns(made):
            made = self.transformer_ if seen else clone(made).fit(rows, None)
            Z = self._output(made, rows)
        else:
            made = copy.deepcopy(self.transformer_) if seen else clone(made).partial_fit(rows[:1])
            parts = []
            for i in range(len(rows)):
                parts.append(self._output(made, rows[i : i + 1]))
                if seen or i:
                    made.partial_fit(rows[i : i + 1])
            Z = np.concatenate(parts)
        self.transformer_, self.width_ = made, Z.shape[1]
        if names is not None:
            self.feature_names_in_ = np.array(names, dtype=object)
        self.n_features_in_, self.rows_seen_ = rows.shape[1], seen + n
        return Z[:n], Starts.none(Z.shape[1])

    @calling("Pipeline")
    def _transform_rows(self, checked_rows: Floats | Table) -> Floats:
        """Transform the rows; before the first row, each with the state after itself."""
        if len(checked_rows) and getattr(self, "rows_seen_", 0):
            return self._output(self.transformer_, _frame(checked_rows)[0])
        parts: list[Floats] = [np.empty((0, self.n_features_out_))]
        for i in range(len(checked_rows)):
            first: Self = clone(self)
            parts.append(first._learn_rows(checked_rows[i : i + 1], None)[0])
        return np.concatenate(parts[1:] or parts)

    def _output(self, made: Any, rows: Any) -> Floats:
        """Return the rows as transformed, in an array of numbers."""
        Z = made.transform(rows)
        Z = Z.toarray() if hasattr(Z, "toarray") else Z
        with calling(f"Pipeline: the output of {type(self.transformer).__name__}"):
            array, _ = validation.matrix(Z, missing=True)
        if len(array) != len(rows):
            raise ShapeError(
                f"the output of {type(self.transformer).__name__} must have a row for each of "
                f"{len(rows)} rows, got {len(array)}. Use a transformer that keeps all rows."
            )
        return array


def _frame(rows: Floats | Table) -> tuple[Any, list[str] | None]:
    """Return rows as scikit-learn accepts them, and their names, if any."""
    if isinstance(rows, np.ndarray):
        return rows, None
    import pandas as pd  # noqa: PLC0415  optional

    return pd.DataFrame(rows.columns, index=range(rows.n)), rows.names


_ZEROS = {"f": 0.0, "O": "", "M": np.datetime64(0, "us")}  # by ``dtype.kind`` of a table's column


def _zeros(rows: Floats | Table) -> Floats | Table:
    """Return one row of zeros with the columns of rows."""
    if isinstance(rows, np.ndarray):
        return np.zeros((1, rows.shape[1]))
    columns = rows.columns.items()
    return Table({name: np.array([_ZEROS[c.dtype.kind]], dtype=c.dtype) for name, c in columns}, 1)
