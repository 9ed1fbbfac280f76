"""Rows, answers and weights as finite arrays of the right shape."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from onepass import compiled
from onepass.errors import (
    Array,
    ColumnError,
    Floats,
    ParameterError,
    ShapeError,
    TypeMismatchError,
)
from onepass.table import Table, has_names, is_frame, named_row
from onepass.validate.finite import is_finite, refuse_nonfinite

__all__ = ["is_matrix", "matrix", "native", "row_vector", "targets", "weights"]

_PLAIN = frozenset({float, int})


def is_matrix(X: Any, d: int) -> bool:
    """Whether X is just what ``matrix`` would make of it: most often it is, and that is soon told.

    Parameters
    ----------
    X : Any
    d : int
        The number of columns that the learner knows.
    """
    return (
        type(X) is np.ndarray
        and X.dtype == np.float64
        and X.ndim == 2
        and X.shape[1] == d
        and X.flags.aligned
        and is_finite(X)
    )


def matrix(
    X: Any, where: str, *, d: int | None = None, names: Sequence[str] | None = None
) -> tuple[Floats, list[str] | None]:
    """The rows of X as a finite array of shape (n, d), and its columns' names if it has any.

    Parameters
    ----------
    X : array-like of shape (n, d), Table or DataFrame
        Columns of a table or frame are found by name where ``names`` is known.
    where : str
        The public call, for messages: ``"RLSRegressor.partial_fit"``.
    d : int, optional
        The number of columns that the learner knows.
    names : sequence of str, optional
        The columns' names that the learner knows.

    Raises
    ------
    ShapeError, ColumnError, TypeMismatchError, NotFiniteError
        If X is not a matrix of finite real numbers with these columns.
    """
    columns: list[str] | None = None
    if isinstance(X, Table) or is_frame(X):
        table = X if isinstance(X, Table) else Table.from_frame(X)
        named = table is X or has_names(X)
        if names is not None and named:
            table = _arranged(table, names, where)
        array = _stacked(table, where)
        columns = table.names if named else None
    else:
        array = _numbers(X, where, "X")
    if array.ndim != 2:
        raise ShapeError(
            f"{where}: Expected 2D array `X` of shape (n, d), got {array.ndim}D array instead, of "
            f"shape {array.shape}. Reshape your data: X.reshape(1, -1) if it is one row, "
            "X.reshape(-1, 1) if it is one feature."
        )
    if array.shape[1] == 0:
        raise ShapeError(
            f"{where}: `X` must have columns, got 0 feature(s) (shape={array.shape}) while a "
            "minimum of 1 is required. Give at least one column."
        )
    if d is not None and array.shape[1] != d:
        who = where.partition(".")[0]
        raise ShapeError(
            f"{where}: X has {array.shape[1]} features, but {who} is expecting {d} features as "
            "input, as in the first block. Start a new learner for a new set of features."
        )
    refuse_nonfinite(array, where, "X", columns or names)
    return array, columns


def native(array: Array) -> Array:
    """A copy of numbers that torch can take: of its own types and byte order, in one piece.

    Torch takes neither negative strides nor memory that it may not write.
    """
    if array.dtype.kind == "u" and array.itemsize > 1:
        beyond = array.max(initial=0) > np.iinfo(np.int64).max
        return array.astype(np.float64 if beyond else np.int64, order="C")
    if array.dtype.kind == "f" and array.itemsize > 8:
        return array.astype(np.float64, order="C")
    return np.array(array, dtype=array.dtype.newbyteorder("="), order="C")


def row_vector(x: Any, where: str, *, d: int | None, names: Sequence[str] | None) -> Floats:
    """One row as a finite array of shape (d,); a dict is read by the columns' names."""
    if names is not None and type(x) is not np.ndarray:
        x = named_row(x)
    if isinstance(x, dict):
        if names is None and d is not None:
            raise ColumnError(
                f"{where}: `x` must be an array of shape ({d},), as the rows before it had no "
                "names, got a dict. Start a new learner to give rows as dicts."
            )
        row = None if names is None else _plain_row(x, names)
        if row is not None:
            return row
        return matrix(Table.from_rows([x]), where, d=d, names=names)[0].ravel()
    plain = type(x) is np.ndarray and x.dtype == np.float64 and x.flags.aligned
    array = x if plain else _numbers(x, where, "x")
    if array.ndim != 1 or array.shape[0] == 0 or (d is not None and array.shape[0] != d):
        expected = "(d,)" if d is None else f"({d},), as in the first block"
        raise ShapeError(
            f"{where}: `x` must be one row of shape {expected}, got {array.shape}. "
            "Use partial_fit and predict for many rows."
        )
    if not np.isfinite(array).all():
        refuse_nonfinite(array[None, :], where, "x", names)
    return array


def _plain_row(x: dict[str, Any], names: Sequence[str]) -> Floats | None:
    """A row of plain finite numbers under just these names; None where it is any other.

    It is what a stream of dicts mostly brings; as a table of one row it would take many times
    as long.
    """
    if compiled.loops is not None:
        row = np.empty(len(names))
        if compiled.loops.named_row(x, names, row):
            return row
    values = list(map(x.get, names))
    if len(x) != len(values) or not _PLAIN.issuperset(map(type, values)):
        return None
    try:
        array = np.array(values, dtype=np.float64)
    except OverflowError:  # a whole number beyond float64, to be refused by its name
        return None
    return array if np.isfinite(array).all() else None


def targets(y: Any, n: int, where: str) -> Floats:
    """Answers as a finite array of shape (n,) or (n, c)."""
    if y is None:
        raise TypeMismatchError(
            f"{where}: requires y to be passed, but the target y is None. Give one answer a row."
        )
    if isinstance(y, Table) or is_frame(y):
        array = _stacked(y if isinstance(y, Table) else Table.from_frame(y), where)
    else:
        array = _numbers(y, where, "y")
    if array.ndim not in {1, 2} or array.shape[0] != n or 0 in array.shape[1:]:
        raise ShapeError(
            f"{where}: `y` must have shape ({n},) or ({n}, c), one answer for each row of X, "
            f"got {array.shape}. Check that X and y come from the same rows."
        )
    refuse_nonfinite(array[:, None] if array.ndim == 1 else array, where, "y", None)
    return array


def weights(sample_weight: Any, n: int, where: str) -> Floats | None:
    """Row weights as an array of shape (n,), or None where all rows count alike."""
    if sample_weight is None:
        return None
    array = _numbers(sample_weight, where, "sample_weight")
    if array.ndim == 0:
        array = np.full(n, float(array))
    if array.shape != (n,):
        raise ShapeError(
            f"{where}: `sample_weight` must have shape ({n},), one weight for each row, "
            f"got {array.shape}. Give a scalar to weigh all rows alike."
        )
    refuse_nonfinite(array[:, None], where, "sample_weight", None)
    if (array < 0).any():
        i = int(np.flatnonzero(array < 0)[0])
        raise ParameterError(
            f"{where}: `sample_weight` must be >= 0, got {array[i]:g} in row {i}. "
            "Use 0 for rows that are not to be learned."
        )
    return array.astype(np.float64, copy=False)


def _numbers(values: Any, where: str, what: str) -> Floats:
    """Real numbers, float32 or float64, where such stand in memory, from what NumPy can read."""
    if hasattr(values, "toarray") and hasattr(values, "nnz"):
        raise TypeMismatchError(
            f"{where}: `{what}` must be a dense array, got the sparse "
            f"{type(values).__name__}. Sparse input is not supported; convert with .toarray()."
        )
    if isinstance(values, Mapping):
        raise TypeMismatchError(
            f"{where}: `{what}` must hold rows, got one dict. Give a list of dicts, one a row; a "
            "learner's own predict_one and learn_one take a single one."
        )
    try:
        array = np.asarray(values)
        if array.dtype.kind == "O":
            array = _from_objects(array)
        if np.ma.is_masked(values):
            array = np.where(np.ma.getmaskarray(values), np.nan, array.astype(np.float64))
    except (ValueError, TypeError, OverflowError) as wrong:
        raise TypeMismatchError(
            f"{where}: `{what}` must hold numbers, got values that are none: {wrong}. "
            f"{_remedy(what)}"
        ) from wrong
    if array.dtype.kind == "c":
        raise TypeMismatchError(
            f"{where}: `{what}` must be real, got {array.dtype}. Complex data not supported; "
            "give real and imaginary part as two columns."
        )
    if array.dtype.kind not in "biuf":
        raise TypeMismatchError(
            f"{where}: `{what}` must hold numbers, got {array.dtype}. {_remedy(what)}"
        )
    if array.dtype not in (np.float32, np.float64):
        return array.astype(np.float64)
    return array if array.flags.aligned else array.copy()


def _remedy(what: str) -> str:
    if what == "y":
        return "Learn labels with a classifier; convert text that stands for numbers."
    return "Encode text and dates first, with op.features.Encode()."


def _from_objects(array: Array) -> Floats:
    """Objects as numbers; text is none, even where it reads like one."""
    for value in array.flat:
        if isinstance(value, (str, bytes)):
            raise TypeError(f"{value!r} is text")
    return array.astype(np.float64)


def _stacked(table: Table, where: str) -> Floats:
    """A table's columns side by side; all must be numbers."""
    for name, column in table.columns.items():
        if column.dtype.kind != "f":
            known = [v for v in column[: min(len(column), 64)].tolist() if v is not None]
            sample = f", such as {known[0]!r}" if known else ""
            kind = "dates" if column.dtype.kind == "M" else "text"
            raise TypeMismatchError(
                f"{where}: column {name!r} must hold numbers, got {kind}{sample}. "
                "Put op.features.Encode() in front of the learner with op.Pipeline."
            )
    if not table.columns:
        return np.empty((table.n, 0))
    return np.column_stack(list(table.columns.values()))


def _arranged(table: Table, names: Sequence[str], where: str) -> Table:
    if table.names == list(names):
        return table
    _same_names(table.names, names, where)
    return table.select(names)


def _same_names(came: Sequence[str], names: Sequence[str], where: str) -> None:
    missing = [name for name in names if name not in set(came)]
    unknown = [name for name in came if name not in set(names)]
    if not missing and not unknown:
        return
    parts = []
    if unknown:
        listed = "\n".join(f"- {name}" for name in unknown[:5])
        parts.append(f"Feature names unseen at fit time:\n{listed}\n")
    if missing:
        listed = "\n".join(f"- {name}" for name in missing[:5])
        parts.append(f"Feature names seen at fit time, yet now missing:\n{listed}\n")
    raise ColumnError(
        f"{where}: The feature names should match those that were passed during fit.\n"
        + "".join(parts)
        + "Give the same columns, in any order; op.features.Encode() can stand missing ones."
    )
