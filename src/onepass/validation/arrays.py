"""Validation of rows, targets, weights, labels and hyperparameters.

Arrays that pass are finite, of the right shape, and float. Labels are integers, booleans or text,
all of one kind.

The memory of least squares grows with the square of the number of features, so that a row of a
hundred kilobytes may need gigabytes, and one text may become a thousand features. A server
therefore sets a limit on features; it also bounds the number of classes and outputs, and the length
of labels.

Two learners can be merged if their columns can be matched; the positions are found here.
"""

import math
import warnings
from collections.abc import Iterable, Mapping, Sequence
from contextvars import ContextVar
from typing import Any, NamedTuple, TypeGuard

import numpy as np
from sklearn.exceptions import DataConversionWarning

from onepass import native as compiled
from onepass.errors import (
    ColumnError,
    LabelError,
    LargeStateWarning,
    MergeError,
    NotFiniteError,
    ParameterError,
    ShapeError,
    TypeMismatchError,
    did_you_mean,
)
from onepass.types import Array, ArrayLike, Floats, RowLike
from onepass.validation.table import (
    Table,
    TableLike,
    check_encodable,
    has_names,
    is_frame,
    named_row,
)

__all__ = [
    "ColumnPositions",
    "check_feature_limit",
    "check_labels",
    "check_same_parameters",
    "check_subset",
    "check_values",
    "class_names",
    "column_positions",
    "equal_parameters",
    "feature_limit",
    "in_range",
    "is_finite",
    "is_matrix",
    "labels",
    "matrix",
    "native",
    "refuse_nonfinite",
    "row_vector",
    "targets",
    "warn_of_large_state",
    "weights",
    "whole",
]


_MANY = 1 << 13  # numbers, of which BLAS may leave some to other threads, who are slow to come


def is_finite(array: Floats) -> bool:
    """Whether all numbers are finite: they are if their sum, or that of their squares, is.

    Parameters
    ----------
    array : ndarray
    """
    if array.size < _MANY:
        total = np.vdot(array, array)
    else:
        with np.errstate(all="ignore"):
            total = np.add.reduce(array, axis=None)
    return math.isfinite(total) or bool(np.isfinite(array).all())


def refuse_nonfinite(array: Floats, where: str, what: str, names: Sequence[str] | None) -> None:
    """Refuse nan and infinity, saying the first place where one stands.

    Parameters
    ----------
    array : ndarray of shape (n, d)
    where : str
        The public call, for messages.
    what : str
        The argument.
    names : sequence of str, optional
        Of the columns.

    Raises
    ------
    NotFiniteError
    """
    if is_finite(array):
        return
    i, j = (int(k) for k in np.argwhere(~np.isfinite(array))[0])
    value: Any = array[i, j]
    word = "NaN" if np.isnan(value) else "infinity"
    place = f"row {i}" if array.shape[0] > 1 or what in {"X", "y"} else "the row"
    if what in {"X", "x"}:
        place += f", column {names[j]!r}" if names is not None else f", column {j}"
    remedy = (
        "Leave the row out, of X too: nothing can be learned from it."
        if what == "y"
        else "Drop the row, or impute it before learning (op.features.Impute())."
    )
    raise NotFiniteError(
        f"{where}: `{what}` must be finite. Input {what} contains {word} in {place}. {remedy}"
    )


_PLAIN = frozenset({float, int})
_REAL = (int, float, np.integer, np.floating)


def is_matrix(X: object, d: int) -> TypeGuard[Floats]:
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
    X: TableLike, where: str, *, d: int | None = None, names: Sequence[str] | None = None
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


def row_vector(x: RowLike, where: str, *, d: int | None, names: Sequence[str] | None) -> Floats:
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
    if type(x) is np.ndarray and x.dtype == np.float64 and x.flags.aligned:
        array: Floats = x
    else:
        array = _numbers(x, where, "x")
    if array.ndim != 1 or array.shape[0] == 0 or (d is not None and array.shape[0] != d):
        expected = "(d,)" if d is None else f"({d},), as in the first block"
        raise ShapeError(
            f"{where}: `x` must be one row of shape {expected}, got {array.shape}. "
            "Use partial_fit and predict for many rows."
        )
    if not np.isfinite(array).all():
        refuse_nonfinite(array[None, :], where, "x", names)
    return array


def _plain_row(x: dict[str, object], names: Sequence[str]) -> Floats | None:
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


def targets(y: ArrayLike | Table | None, n: int, where: str) -> Floats:
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


def weights(sample_weight: ArrayLike | None, n: int, where: str) -> Floats | None:
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


_MOST: ContextVar[int | None] = ContextVar("max_features", default=None)
_VALUES = 1 << 24  # numbers that rows may come to at once, of 8 bytes each
_LABEL = 256  # characters
_LARGE = 1 << 30  # bytes; a larger state causes a warning
_WORKING = 3  # peak memory of learning a block in sizes of the state, rounded up from 2.2
_TOLD = {
    "features": ("`X`", ", as they come to the learner,", "Leave out columns, or categories"),
    "classes": ("`y`", "", "Look whether its labels are classes, and not numbers or names of rows"),
    "outputs": ("`y`", "", "Leave the others to another learner"),
}


class feature_limit:  # noqa: N801  a context, which each request goes through
    """Within this context learners may have so many features; any number where it is None.

    Parameters
    ----------
    most : int or None
    """

    __slots__ = ("_before", "_most")

    def __init__(self, most: int | None) -> None:
        self._most = most

    def __enter__(self) -> None:
        self._before = _MOST.set(self._most)

    def __exit__(self, *raised: object) -> None:
        _MOST.reset(self._before)


def check_feature_limit(d: int, who: str, what: str = "features") -> None:
    """Refuse to have d features, classes or outputs, if they are more than may be.

    Parameters
    ----------
    d : int
    who : str
        The learner, for messages.
    what : {"features", "classes", "outputs"}

    Raises
    ------
    ShapeError
    """
    most = _MOST.get()
    if most is not None and d > most:
        part, come, remedy = _TOLD[what]
        raise ShapeError(
            f"{who}: {part} must have at most {most:,} {what}{come or ','} got {d:,}. {remedy}; or "
            "let it have more: `max_features` of op.durable, --max-features of onepass serve."
        )


def warn_of_large_state(d: int, who: str, before: int = 0) -> None:
    """Warn before a large state of d × d numbers is allocated.

    Parameters
    ----------
    d : int
        Features.
    who : str
        The learner, for messages.
    before : int
        Features so far; there is no second warning if their state was large too.
    """
    size = 8 * d * d
    if 8 * before * before <= _LARGE < size:
        warnings.warn(
            f"{who}: `X` has {d:,} features, whose {d:,} × {d:,} state takes {size / 1e9:,.1f} GB, "
            f"and learning {_WORKING * size / 1e9:,.1f} GB. Choose fewer columns, hash categories "
            "(encode.categories=hash), or use a learner of linear size: SGD, or ORFit with "
            "memory=op.memory.Principal(100).",
            LargeStateWarning,
            stacklevel=2,
        )


def check_labels(labels: list[str], where: str) -> None:
    """Refuse labels that are too long.

    Parameters
    ----------
    labels : list of str
    where : str
        The public call, for messages.

    Raises
    ------
    LabelError
    """
    if _MOST.get() is None:
        return
    longest = max(map(len, labels), default=0)
    if longest > _LABEL:
        raise LabelError(
            f"{where}: `y` must hold labels of at most {_LABEL} characters, got one of "
            f"{longest:,}. Shorten it, or give a number for it."
        )


def check_values(n: int, d: int, who: str, why: str = "as they come to the learner") -> None:
    """Refuse rows that would come to too many numbers, before they do.

    Parameters
    ----------
    n, d : int
        Rows, and the numbers that are made of each: features, or scores.
    who : str
        What makes them, for messages.
    why : str
        What the numbers are.

    Raises
    ------
    ShapeError
    """
    if n * d > _VALUES and _MOST.get() is not None:
        raise ShapeError(
            f"{who}: rows must come to at most {_VALUES:,} numbers at once, got {n:,} rows of "
            f"{d:,}, {why}. Send fewer at a time."
        )


def labels(y: ArrayLike | None, n: int, where: str, *, what: str = "y") -> Array:
    """Class labels as an array of shape (n,): whole numbers, truth values or text."""
    if y is None:
        raise TypeMismatchError(
            f"{where}: requires {what} to be passed, but the target {what} is None. Give one "
            "label a row."
        )
    # a list goes in as it is: as an array of text, None and 1 among its labels would be text too
    array = np.array(y, dtype=object) if isinstance(y, (list, tuple)) else np.asarray(y)
    if array.ndim == 2 and array.shape[1] == 1:
        warnings.warn(
            f"A column-vector y was passed when a 1d array was expected, in {where}. Give "
            "y.ravel(), of shape (n,).",
            DataConversionWarning,
            stacklevel=2,
        )
        array = array[:, 0]
    if array.shape != (n,):
        raise ShapeError(
            f"{where}: `{what}` must have shape ({n},), one label for each row of X, got "
            f"{array.shape}. Check that X and y come from the same rows."
        )
    if np.ma.is_masked(y):
        raise LabelError(
            f"{where}: `{what}` must hold a label in each row, got a masked array. "
            "Drop rows without a label."
        )
    return _of_one_kind(array, where, what)


def class_names(classes: Any, where: str) -> Array:
    """The labels that are known beforehand, sorted, each once; none where None.

    Raises
    ------
    ParameterError
        If they are no list of labels.
    """
    listed = sorted(classes, key=str) if isinstance(classes, (set, frozenset)) else classes
    try:
        n = 0 if classes is None else len(listed)
    except TypeError:
        n = -1
    if n < 0 or isinstance(classes, (str, bytes)):
        raise ParameterError(
            f"{where}: `classes` must be a list of labels, got {classes!r}. "
            "Name the classes that are known beforehand, as in classes=[0, 1]."
        )
    return np.unique(labels(listed, n, where, what="classes")) if n else np.empty(0)


def _of_one_kind(array: Array, where: str, what: str) -> Array:
    """The labels, once they are found to be whole numbers, truth values or text."""
    if array.dtype.kind == "f":
        refuse_nonfinite(array[:, None], where, what, None)
        odd = array[array != np.floor(array)]
        if len(odd):
            raise LabelError(
                f"{where}: Unknown label type: `{what}` must hold class labels, got fractions "
                f"such as {odd[0]:g}. Use a regressor, or bin the values."
            )
        return array
    if array.dtype.kind == "O":
        return _object_labels(array, where, what)
    if array.dtype.kind == "U":
        _check_text(array, where, what)
    if array.dtype.kind not in "biuU":
        raise LabelError(
            f"{where}: Unknown label type: `{what}` must hold whole numbers or text, got "
            f"{array.dtype}. Complex data not supported; name the classes."
        )
    return array


def _check_text(array: Array, where: str, what: str) -> None:
    """Refuse labels that are too long, or that UTF-8 cannot encode."""
    if what == "y":  # classes are named by whoever makes the learner
        check_labels(array.tolist(), where)
    check_encodable(array, where, what)


def _object_labels(array: Array, where: str, what: str) -> Array:
    """Objects that are all text, or all numbers, as an array of that kind."""
    values = array.tolist()
    if not values:
        return array
    if all(isinstance(v, str) for v in values):
        _check_text(array, where, what)
        return array.astype(str)
    if all(isinstance(v, (bool, int, np.integer, np.bool_)) for v in values):
        whole = np.array(values)
        if whole.dtype.kind in "biu":
            return whole
        raise LabelError(
            f"{where}: `{what}` must hold whole numbers that fit in 64 bits, all signed or all "
            f"unsigned, got {max(values, key=abs)}. Give such labels as text."
        )
    if all(isinstance(v, (bool, int, float, np.number, np.bool_)) for v in values):
        return _of_one_kind(np.array(values, dtype=np.float64), where, what)
    first = str if isinstance(values[0], str) else (bool, int, float, np.number, np.bool_)
    i, odd = next((i, v) for i, v in enumerate(values) if not isinstance(v, first))
    raise LabelError(
        f"{where}: Unknown label type: `{what}` must hold labels of one kind, text or whole "
        f"numbers, got {odd!r} in row {i}. Drop rows without a label, and give all labels one type."
    )


class ColumnPositions(NamedTuple):
    """Where the columns of one belong among those of both."""

    at: Array
    """The place of each of the other's columns, (d′,); no two are the same."""
    d: int
    """The columns of both together; those that only the other knows come last."""
    names: list[str] | None
    """The names of all, where they have names."""


def equal_parameters(one: Any, two: Any) -> bool:
    """Whether two parameters are the same, arrays among them.

    Examples
    --------
    >>> equal_parameters(np.eye(2), [[1, 0], [0, 1]]), sum([equal_parameters(0.1, 0.2)])
    (True, 0)
    """
    if one is two:
        return True
    several = (np.ndarray, list, tuple)
    if isinstance(one, several) or isinstance(two, several):
        try:
            return bool(np.array_equal(one, two))
        except (TypeError, ValueError):
            return False
    return bool(one == two)


def check_same_parameters(one: object, two: object, names: Sequence[str], where: str) -> None:
    """Refuse two that are not of one class, or differ in a parameter.

    Parameters
    ----------
    one, two : learner, feature or Pipeline
    names : sequence of str
        The parameters that must be the same.
    where : str
        The public call, for messages.

    Raises
    ------
    MergeError
        Naming the difference.
    """
    if type(one) is not type(two):
        raise MergeError(
            f"{where}: `other` must be of the same class, {type(one).__name__}, got "
            f"{type(two).__name__}. Merge what was learned by one class with the same parameters."
        )
    apart = getattr(one, "outside", {})  # compared by what they are, where that was learned
    for name in names:
        if name in apart:
            continue
        mine, came = getattr(one, name), getattr(two, name)
        if not equal_parameters(mine, came):
            raise MergeError(
                f"{where}: `{name}` of {type(one).__name__} must be the same in both, {mine!r} as "
                f"in the first, got {came!r}. Learn all parts with the same parameters."
            )


def column_positions(one: Any, other: Any, where: str) -> ColumnPositions:
    """Where the columns of one belong among those of both: by their names, or in their order.

    Parameters
    ----------
    one, other : learner or feature
        The other has ``n_features_in_``, and ``feature_names_in_`` where they have names.
    where : str
        The public call, for messages.

    Raises
    ------
    MergeError
        If they have no names, and are not as many.
    """
    known, coming = (getattr(each, "feature_names_in_", None) for each in (one, other))
    begun = hasattr(one, "n_features_in_")
    if coming is not None and (known is not None or not begun):
        at = {name: j for j, name in enumerate([] if known is None else known)}
        for name in coming:
            at.setdefault(name, len(at))
        return ColumnPositions(
            np.array([at[name] for name in coming], dtype=np.intp), len(at), list(at)
        )
    d = int(other.n_features_in_)
    if begun and d != one.n_features_in_:
        raise MergeError(
            f"{where}: both must have {one.n_features_in_} features, as the first has, got {d}. "
            "Learn from frames or dicts to have features found by name, or grow the smaller one."
        )
    return ColumnPositions(np.arange(d), d, None if known is None else list(known))


def in_range(
    value: object,
    name: str,
    where: str,
    *,
    above: float | None = None,
    low: float | None = None,
    high: float | None = None,
) -> float:
    """A hyperparameter as a float within (above, high] or [low, high].

    Raises
    ------
    ParameterError
        If it is not a real number, or outside the range.
    """
    try:
        number = (
            float(value) if isinstance(value, _REAL) and not isinstance(value, bool) else math.nan
        )
    except OverflowError:  # a whole number beyond them
        number = math.nan
    good = math.isfinite(number) and not (
        (above is not None and number <= above)
        or (low is not None and number < low)
        or (high is not None and number > high)
    )
    if not good:
        left = f"({above:g}" if above is not None else f"[{low:g}" if low is not None else "(-inf"
        right = f"{high:g}]" if high is not None else "inf)"
        raise ParameterError(
            f"{where}: `{name}` must be a number in {left}, {right}, got {value!r}. "
            f"Give another `{name}`."
        )
    return number


def whole(value: object, name: str, where: str, *, low: int) -> int:
    """A hyperparameter as a whole number >= low.

    Raises
    ------
    ParameterError
        If it is none.
    """
    if not isinstance(value, (int, np.integer)) or isinstance(value, bool) or value < low:
        raise ParameterError(
            f"{where}: `{name}` must be a whole number >= {low}, got {value!r}. "
            f"Give another `{name}`."
        )
    return int(value)


def check_subset(
    given: Iterable[str] | None, known: Sequence[str], name: str, where: str
) -> list[str]:
    """Those of the known names that are wanted, in their order; all, if None is given.

    Raises
    ------
    ParameterError
        If one is unknown, or none is given.
    """
    if given is None:
        return list(known)
    wanted: list[Any] = [] if isinstance(given, str) else list(given)
    strange = [each for each in wanted if each not in known]
    if strange or not wanted:
        came = strange[0] if strange else given
        hint = did_you_mean(came, known) if isinstance(came, str) else ""
        raise ParameterError(
            f"{where}: `{name}` must be a list of some of {', '.join(known)}, got {came!r}.{hint} "
            "Give a list of these names."
        )
    return [each for each in known if each in wanted]
