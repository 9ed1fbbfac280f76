"""Intake: what a user gives, as a table whose columns are of the kinds known so far, or refused."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from onepass.errors import Array, Floats, NotFiniteError, ShapeError, TypeMismatchError
from onepass.features.columns import Column
from onepass.features.gaps import matrix_with_gaps
from onepass.validation.table import Table, check_encodable, is_frame, is_missing, to_column

__all__ = ["are_dicts", "hold_kinds", "hold_whole", "incoming"]

_KINDS = {"f": "numbers", "O": "text", "M": "dates"}


def are_dicts(X: Any) -> bool:
    """Whether X is a sequence of rows given as dicts."""
    return isinstance(X, (list, tuple)) and bool(X) and isinstance(X[0], Mapping)


def incoming(X: Any, names: Sequence[str] | None, where: str) -> Floats | Table:
    """Rows as a table; as an array (n, d) where they are numbers without names.

    Parameters
    ----------
    X : Table, DataFrame, sequence of dicts, or array-like of shape (n, d)
    names : sequence of str, optional
        The columns known so far: those of an array are taken to be these, in this order.
    where : str
        The public call, for messages.

    Raises
    ------
    ShapeError, TypeMismatchError, NotFiniteError
        If X is no such thing, or an array of another width than known.
    """
    if isinstance(X, Table):
        return X
    if is_frame(X):
        return Table.from_frame(X)
    if are_dicts(X):
        return Table.from_rows(X)
    if isinstance(X, Mapping) and not hasattr(X, "toarray"):  # a sparse one is refused as such
        raise TypeMismatchError(
            f"{where}: `X` must be rows, got one dict. Give a list of dicts, a frame or an array; "
            "learn_one and predict_one of a Pipeline take one dict."
        )
    if isinstance(X, (list, tuple)) and not X:
        return Table({}, 0)
    array = _mixed(X)
    if array is None:
        return matrix_with_gaps(X, where, d=None if names is None else len(names), names=names)[0]
    if names is not None and array.shape[1] != len(names):
        raise ShapeError(
            f"{where}: `X` must have {len(names)} columns, as those learned so far, got "
            f"{array.shape[1]}. Give a frame or dicts to have columns found by name."
        )
    named = [f"x{j}" for j in range(array.shape[1])] if names is None else names
    columns = {name: to_column(array[:, j], name) for j, name in enumerate(named)}
    return Table(columns, array.shape[0])


def hold_kinds(table: Table, columns: Mapping[str, Column | None], where: str) -> None:
    """Refuse a column of another kind than known, infinity, and text that UTF-8 cannot encode.

    Raises
    ------
    TypeMismatchError, NotFiniteError
        Naming the column, the row and the value.
    """
    for name, values in table.columns.items():
        column, kind = columns.get(name), values.dtype.kind
        if column is not None and kind != column.code:
            known = ~is_missing(values)
            if known.any():
                i = int(known.argmax())
                raise TypeMismatchError(
                    f"{where}: column {name!r} must hold {column.kind}, as so far, got "
                    f"{_KINDS[kind]}: {str(values[i])!r} in row {i}. "
                    "Convert the column to the kind it had, or give it another name."
                )
        elif kind == "O":
            check_encodable(values, where, name)
        elif kind == "f" and np.isinf(values).any():
            i = int(np.isinf(values).argmax())
            raise NotFiniteError(
                f"{where}: `X` must be finite or missing, got {values[i]} in row {i}, column "
                f"{name!r}. Drop the row, or put nan there and impute it (op.features.Impute())."
            )


def hold_whole(
    rows: Floats | Table, names: Sequence[str], where: str, missing: str
) -> Floats | Table:
    """The rows; refused where one lacks a value, in a column that is there or should be.

    Parameters
    ----------
    rows : Table or ndarray of shape (n, d)
        The rows.
    names : sequence of str
        Columns that must be there.
    where : str
        The public call, for messages.
    missing : {"keep", "skip", "error"}
        With "keep" nothing is refused.

    Raises
    ------
    NotFiniteError
        Naming the row and the column.
    """
    if missing == "keep":
        return rows
    if isinstance(rows, np.ndarray):
        columns: dict[str, Array] = {f"x{j}": column for j, column in enumerate(rows.T)}
    else:
        columns = rows.columns
    absent = [name for name in names if name not in columns]
    for name in [*absent, *columns]:
        gaps = np.ones(len(rows), dtype=bool) if name in absent else is_missing(columns[name])
        if gaps.any():
            raise NotFiniteError(
                f"{where}: `X` must hold a value in every column, got none in row "
                f"{int(gaps.argmax())}, column {name!r}. Leave such rows out, as with "
                'op.stream.read(..., missing="skip"), or construct Encode(missing="keep") and put '
                "Impute() behind it."
            )
    return rows


def _mixed(X: Any) -> Array | None:
    """A matrix of text, dates or mixed values; None where the numbers' way must judge X."""
    if hasattr(X, "toarray"):
        return None
    try:
        array = np.asarray(X)
    except ValueError:  # rows of different lengths
        return None
    if array.ndim != 2 or array.shape[1] == 0 or array.dtype.kind not in "OUSM":
        return None
    return array if isinstance(X, np.ndarray) else np.asarray(X, dtype=object)
