"""Validation of rows, targets, weights, labels and hyperparameters.

Validated arrays are float, finite and of the right shape. Labels are integers, booleans or text,
all of one kind.

The memory of least squares grows with the square of the number of features, so a row of 100 kB may
need gigabytes, and a text column may be encoded as a thousand features. A server therefore limits
the number of features, classes and outputs, and the length of labels: :class:`feature_limit`.

Merging two learners requires matching their columns: :func:`column_positions`.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar
from os import PathLike
from typing import Any, NamedTuple, TypeAlias, TypeGuard

import numpy as np
from sklearn.exceptions import DataConversionWarning

from onepass import native
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
from onepass.validation.frames import (
    frame_library,
    labels_of,
    plain_array,
    plain_slices,
    write_rows,
)
from onepass.validation.table import (
    Table,
    TableLike,
    are_unique,
    check_encodable,
    check_names,
    has_names,
    is_frame,
    named_row,
)

_DOT_LIMIT = 1 << 13  # values; for longer arrays BLAS may start threads, which is slow


def is_finite(array: Floats) -> bool:
    """Whether all values are finite; a finite sum, or sum of squares, is a fast sufficient test.

    Parameters
    ----------
    array : ndarray
    """
    if array.size < _DOT_LIMIT:
        total = np.vdot(array, array)
    else:
        with np.errstate(all="ignore"):
            total = np.add.reduce(array, axis=None)
    return math.isfinite(total) or bool(np.isfinite(array).all())


def refuse_nonfinite(array: Floats, what: str, names: Sequence[str] | None) -> None:
    """Raise if an array contains NaN or infinity; the message gives the first position.

    Parameters
    ----------
    array : ndarray of shape (n, d)
    what : str
        The name of the argument.
    names : sequence of str, optional
        Names of the columns.

    Raises
    ------
    NotFiniteError
    """
    if is_finite(array):
        return
    i, j = (int(k) for k in np.argwhere(~np.isfinite(array))[0])
    value: Any = array[i, j]
    word = "NaN" if np.isnan(value) else "infinity"
    one = array.shape[0] == 1 and what not in {"X", "y"}
    column = None if what not in {"X", "x"} else j if names is None else names[j]
    place = " in the row" if one and column is None else ""
    remedy = (
        "Leave the row out of both X and y."
        if what == "y"
        else "Drop the row, or impute it before learning (op.features.Impute())."
    )
    raise NotFiniteError(
        f"`{what}` must be finite. Input {what} contains {word}{place}",
        remedy=remedy,
        row=None if one else i,
        column=column,
    )


_PLAIN = frozenset({float, int})
_ROWS = frozenset({np.ndarray, list, tuple})
_REAL = (int, float, np.integer, np.floating)
_WHOLE = (int, np.integer)
_NOT_NUMBERS = (str, bytes, np.datetime64, np.timedelta64)


def is_matrix(X: object, d: int) -> TypeGuard[Floats]:
    """Whether ``matrix`` would return X unchanged: a quick check for the usual case.

    Parameters
    ----------
    X : Any
    d : int
        The number of columns seen at fit time.
    """
    return (
        type(X) is np.ndarray
        and X.dtype == np.float64
        and X.ndim == 2
        and X.shape[1] == d
        and X.flags.aligned
        and is_finite(X)
    )


def single_element(values: object) -> Any:
    """The only element, or row, of an array or a list; None for other objects and sizes."""
    if type(values) is np.ndarray:
        return values[0] if values.shape[:1] == (1,) else None
    return values[0] if type(values) is list and len(values) == 1 else None


def single_row(X: object) -> Any:
    """The only row of an array or a list, which is not validated; None for other blocks."""
    x = single_element(X)
    return x if type(x) in _ROWS else None


def is_small_table(X: object, values: int) -> bool:
    """Whether X is a table or a frame with rows and at most this number of values."""
    if isinstance(X, Table):
        return 0 < X.n * len(X.columns) <= values
    if frame_library(X) is None:
        return False
    frame: Any = X
    n, d = frame.shape
    return bool(0 < n * d <= values)


def matrix(
    X: TableLike,
    *,
    d: int | None = None,
    names: Sequence[str] | None = None,
    missing: bool = False,
) -> tuple[Floats, list[str] | None]:
    """Validate X; return a finite array of shape (n, d), and the column names or None.

    Parameters
    ----------
    X : array-like of shape (n, d), Table or DataFrame
        Columns of a table or frame are selected by name if ``names`` is given.
    d : int, optional
        The number of columns seen at fit time.
    names : sequence of str, optional
        The column names seen at fit time.
    missing : bool, default=False
        Whether values may be missing: NaN, or None, which becomes NaN.

    Raises
    ------
    ShapeError, ColumnError, TypeMismatchError, NotFiniteError
        If X is not a matrix of finite real numbers with these columns.
    """
    columns: list[str] | None = None
    finite = False
    if isinstance(X, Table) or is_frame(X):
        array, columns, finite = _plain_rows(X, names) or _table_rows(X, names)
    else:
        array = _numbers(_with_nan(X) if missing else X, "X")
    if array.ndim != 2:
        raise ShapeError(
            f"Expected 2D array `X` of shape (n, d), got {array.ndim}D array instead, "
            f"of shape {array.shape}. Reshape your data: X.reshape(1, -1) if it is one "
            "row, X.reshape(-1, 1) if it is one feature."
        )
    if array.shape[1] == 0:
        raise ShapeError(
            f"`X` must have columns, got 0 feature(s) (shape={array.shape}) while a "
            "minimum of 1 is required. Pass at least one column."
        )
    if d is not None and array.shape[1] != d:
        raise ShapeError(
            f"X has {array.shape[1]} features, but onepass is expecting {d} features as "
            "input, as in the first block. Start a new learner for other features, or "
            "encode rows with names by op.features.Encode, which accepts new columns."
        )
    if not finite:
        refuse_nonfinite(_known(array) if missing else array, "X", columns or names)
    return array, columns


def _with_nan(X: object) -> Any:
    """Convert X to an array; None among numbers becomes nan, other values are unchanged."""
    check_contains_rows(X)
    try:
        raw = np.asarray(X)
    except ValueError:  # rows of different lengths
        return X
    if raw.dtype.kind == "O":
        with suppress(TypeError, ValueError):
            return objects_to_floats(raw)
    return raw


def _known(array: Floats) -> Floats:
    """The array with 0 in place of NaN."""
    return array if is_finite(array) else np.where(np.isnan(array), 0.0, array)


def torch_compatible(array: Array) -> Array:
    """Copy an array to a dtype, byte order and layout that torch supports.

    Torch supports neither negative strides nor read-only memory.
    """
    if array.dtype.kind == "u" and array.itemsize > 1:
        overflows = array.max(initial=0) > np.iinfo(np.int64).max
        return array.astype(np.float64 if overflows else np.int64, order="C")
    if array.dtype.kind == "f" and array.itemsize > 8:
        return array.astype(np.float64, order="C")
    return np.array(array, dtype=array.dtype.newbyteorder("="), order="C")


def row_vector(
    x: RowLike, *, d: int | None, names: Sequence[str] | None, missing: bool = False
) -> Floats:
    """Validate one row; return an array of shape (d,). A dict is read by column name.

    It is finite except for missing values, NaN, if ``missing``.
    """
    if type(x) is not np.ndarray and (names is not None or isinstance(x, Mapping)):
        x = named_row(x)
    if isinstance(x, dict):
        if names is None and d is not None:
            raise ColumnError(
                f"`x` must be an array of shape ({d},), because earlier rows had no feature names, "
                "got a dict. Start a new learner to use rows given as dicts."
            )
        row = None if names is None else _plain_row(x, names)
        if row is not None:
            return row
        return matrix(Table.from_rows([x]), d=d, names=names, missing=missing)[0].ravel()
    if type(x) is np.ndarray and x.dtype == np.float64 and x.flags.aligned:
        array: Floats = x
    else:
        array = _numbers(_with_nan(x) if missing else x, "x")
    if array.ndim != 1 or array.shape[0] == 0 or (d is not None and array.shape[0] != d):
        expected = "(d,)" if d is None else f"({d},), as in the first block"
        raise ShapeError(
            f"`x` must be one row of shape {expected}, got {array.shape}. Use "
            "partial_fit and predict for many rows."
        )
    if not np.isfinite(array).all():
        refuse_nonfinite((_known(array) if missing else array)[None, :], "x", names)
    return array


def _plain_row(x: dict[str, object], names: Sequence[str]) -> Floats | None:
    """Convert a dict of exactly these names and finite Python numbers to an array, else None.

    Fast path: converting the dict to a table first takes many times longer.
    """
    if native.loops is not None:
        row = np.empty(len(names))
        if native.loops.named_row(x, names, row):
            return row
    values = list(map(x.get, names))
    if len(x) != len(values) or not _PLAIN.issuperset(map(type, values)):
        return None
    try:
        array = np.array(values, dtype=np.float64)
    except OverflowError:  # an integer beyond float64: the general path raises, with its column
        return None
    return array if np.isfinite(array).all() else None


def targets(y: ArrayLike | Table | None, n: int, *, gaps: bool = False) -> Floats:
    """Validate targets; return finite ones, (n,) or (n, c); with ``gaps``, NaN is allowed."""
    if y is None:
        raise TypeMismatchError(
            "requires y to be passed, but the target y is None. Pass one target per row."
        )
    if isinstance(y, Table) or is_frame(y):
        plain = _plain_rows(y, None)
        array = _table_rows(y, None)[0] if plain is None else plain[0]
    else:
        array = _numbers(y, "y")
    if array.ndim not in {1, 2} or array.shape[0] != n or 0 in array.shape[1:]:
        raise ShapeError(
            f"`y` must have shape ({n},) or ({n}, c), one target for each row of X, got "
            f"{array.shape}. Check that X and y come from the same rows."
        )
    known = np.where(np.isnan(array), 0.0, array) if gaps else array
    refuse_nonfinite(known[:, None] if array.ndim == 1 else known, "y", None)
    return array


def weights(sample_weight: ArrayLike | None, n: int) -> Floats | None:
    """Validate row weights; return an array of shape (n,), or None for equal weights."""
    if sample_weight is None:
        return None
    array = _numbers(sample_weight, "sample_weight")
    if array.ndim == 0:
        array = np.full(n, float(array))
    if array.shape != (n,):
        raise ShapeError(
            f"`sample_weight` must have shape ({n},), one weight for each row, got "
            f"{array.shape}. Pass a scalar if all rows have the same weight."
        )
    refuse_nonfinite(array[:, None], "sample_weight", None)
    if (array < 0).any():
        i = int(np.flatnonzero(array < 0)[0])
        raise ParameterError(
            "`sample_weight` must be >= 0",
            got=f"{array[i]:g}",
            remedy="Use 0 for rows that must not be learned.",
            row=i,
        )
    return array.astype(np.float64, copy=False)


def check_contains_rows(values: object, what: str = "X") -> None:
    """Raise if values are of a usual kind that does not contain rows.

    Raises
    ------
    TypeMismatchError
        The message names the remedy for this kind.
    """
    if isinstance(values, np.ndarray):
        return
    if hasattr(values, "toarray") and hasattr(values, "nnz"):
        raise TypeMismatchError(
            f"`{what}` must be a dense array, got the sparse {type(values).__name__}. "
            "Sparse input is not supported; convert with .toarray()."
        )
    if isinstance(values, Mapping):
        raise TypeMismatchError(
            f"`{what}` must contain rows, got one dict. Pass a list of dicts, one per "
            "row, or call predict_one or learn_one of a learner for a single row."
        )
    if what != "X":
        return
    dicts = isinstance(values, (list, tuple)) and bool(values) and isinstance(values[0], Mapping)
    got = "None" if values is None else "a list of dicts" if dicts else f"a {type(values).__name__}"
    for matches, remedy in (
        (values is None, "Pass an array of shape (n, d), a data frame or a Table."),
        (dicts, "Put op.features.Encode() in front with op.Pipeline, or pass pandas.DataFrame(X)."),
        (
            isinstance(values, (str, bytes, PathLike)),
            "Read files by op.stream.read(path, target=...).",
        ),
        (isinstance(values, Iterator), "Pass list(X), or call partial_fit for each block of rows."),
        (
            type(values).__name__ == "LazyFrame",
            "Pass X.collect(), or write it by X.sink_parquet(file) for op.stream.read(file).",
        ),
    ):
        if matches:
            raise TypeMismatchError(f"`X` must contain rows of numbers, got {got}. {remedy}")


def _numbers(values: Any, what: str) -> Floats:
    """Convert to an aligned array of float32 or float64."""
    check_contains_rows(values, what)
    shared = plain_array(values)
    try:
        array = np.asarray(values if shared is None else shared)
        if array.dtype.kind == "O":
            array = objects_to_floats(array)
        if np.ma.is_masked(values):
            array = np.where(np.ma.getmaskarray(values), np.nan, array.astype(np.float64))
    except (ValueError, TypeError, OverflowError) as error:
        raise TypeMismatchError(
            f"`{what}` must contain numbers, got non-numeric values: {error}. {_remedy(what)}"
        ) from error
    if array.dtype.kind == "c":
        raise TypeMismatchError(
            f"`{what}` must be real, got {array.dtype}. Complex data not supported; "
            "pass the real and imaginary parts as two columns."
        )
    if array.dtype.kind not in "biuf":
        raise TypeMismatchError(
            f"`{what}` must contain numbers, got {array.dtype}. {_remedy(what)}"
        )
    if array.dtype not in (np.float32, np.float64):
        return array.astype(np.float64)
    return array if array.flags.aligned else array.copy()


def _remedy(what: str) -> str:
    """Return the remedy for non-numeric values in X or y."""
    if what == "y":
        return "Use a classifier for labels; convert numbers stored as text."
    return (
        "Encode text and dates first, with op.features.Encode(); divide durations by a unit, such "
        "as numpy.timedelta64(1, 's')."
    )


def objects_to_floats(array: Array) -> Floats:
    """Convert objects to floats; None becomes NaN.

    Parameters
    ----------
    array : ndarray of object

    Raises
    ------
    TypeMismatchError
        For text, even numeric text such as ``"1"``, for dates and durations of NumPy, which
        ``astype`` would convert to counts of their unit.
    TypeError, ValueError
        For other objects.
    """
    for value in array.flat:
        if isinstance(value, _NOT_NUMBERS):
            kind = "text" if isinstance(value, (str, bytes)) else "a date or duration"
            raise TypeMismatchError(f"{value!r} is {kind}")
    return array.astype(np.float64)


_Rows: TypeAlias = tuple[Floats, list[str] | None, bool]
"""Rows (n, d), the names of their columns or None, and whether they are known to be finite."""


def _plain_rows(X: Any, names: Sequence[str] | None) -> _Rows | None:
    """Convert a plain frame; return None for a table and for other frames."""
    slices = plain_slices(X)
    if slices is None:
        return None
    labels = labels_of(X)
    named = all(isinstance(label, str) for label in labels)
    order = None
    if names is None or labels != names:  # names of earlier rows were checked
        if not are_unique(labels):
            return None
        check_names(labels)
        if named and names is not None:
            _check_names(labels, names)
            order = [labels.index(name) for name in names]
            labels = list(names)
    rows = np.empty(X.shape)
    finite, at = True, 0
    for part in slices:
        if order is None and isinstance(part, np.ndarray) and part.shape[1] == len(rows):
            whole = part.T  # of pandas
            if whole.flags.c_contiguous:
                return whole, labels if named else None, False
        columns = part if order is None else [part[j] for j in order]
        block = rows[at : at + len(part[0])]
        finite &= write_rows(columns, block)
        at += len(block)
    return rows, labels if named else None, finite


def _table_rows(X: Any, names: Sequence[str] | None) -> _Rows:
    """Convert a table or a frame."""
    table = X if isinstance(X, Table) else Table.from_frame(X)
    named = table is X or has_names(X)
    if names is not None and named:
        table = _select_columns(table, names)
    array, finite = _stacked(table)
    return array, table.names if named else None, finite


def _stacked(table: Table) -> tuple[Floats, bool]:
    """Stack the columns of a table, which must be numeric; also whether all are known finite."""
    for name, column in table.columns.items():
        if column.dtype.kind != "f":
            values = [v for v in column[: min(len(column), 64)].tolist() if v is not None]
            sample = f", such as {values[0]!r}" if values else ""
            kind = "dates" if column.dtype.kind == "M" else "text"
            raise TypeMismatchError(
                f"column {name!r} must contain numbers, got {kind}{sample}. Put "
                "op.features.Encode() in front of the learner with op.Pipeline."
            )
    if not table.columns:
        return np.empty((table.n, 0)), True
    columns = list(table.columns.values())
    if any(column.dtype != np.float64 for column in columns):
        return np.column_stack(columns), False
    rows = np.empty((table.n, len(columns)))
    return rows, write_rows(columns, rows)


def _select_columns(table: Table, names: Sequence[str]) -> Table:
    """Select columns of a table; raise if a column is missing or the table has other columns."""
    if table.names == list(names):
        return table
    _check_names(table.names, names)
    return table.select(names)


def _check_names(given: Sequence[str], names: Sequence[str]) -> None:
    """Raise if column names differ from those seen at fit time."""
    missing = [name for name in names if name not in set(given)]
    unknown = [name for name in given if name not in set(names)]
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
        "The feature names should match those that were passed during fit.\n"
        + "".join(parts)
        + "Pass the same columns, in any order; op.features.Encode() accepts missing columns."
    )


_MAX_FEATURES: ContextVar[int | None] = ContextVar("max_features", default=None)
_MAX_VALUES = 1 << 24  # values of 8 bytes in one block
_MAX_LABEL = 256  # characters
_LARGE = 1 << 30  # bytes; a larger state causes a warning
_PEAK = 3  # peak memory while learning a block, in multiples of the state; measured: 2.2
_EXPECTED = {
    "features": ("`X`", " after preprocessing,", "Drop columns, or limit the number of categories"),
    "classes": (
        "`y`",
        ",",
        "Check that the labels are classes, not numbers or identifiers of rows",
    ),
    "outputs": ("`y`", ",", "Predict the other outputs with another learner"),
}


class feature_limit:  # noqa: N801  a context manager; a class is faster than a generator
    """Limit the number of features of learners within this context.

    Parameters
    ----------
    max_features : int or None
        None for no limit.
    """

    __slots__ = ("_max_features", "_token")

    def __init__(self, max_features: int | None) -> None:
        self._max_features = max_features

    def __enter__(self) -> None:
        self._token = _MAX_FEATURES.set(self._max_features)

    def __exit__(self, *raised: object) -> None:
        _MAX_FEATURES.reset(self._token)


def check_feature_limit(d: int, what: str = "features") -> None:
    """Raise if the number of features, classes or outputs exceeds the limit of this context.

    Parameters
    ----------
    d : int
    what : {"features", "classes", "outputs"}

    Raises
    ------
    ShapeError
    """
    limit = _MAX_FEATURES.get()
    if limit is not None and d > limit:
        argument, stage, remedy = _EXPECTED[what]
        raise ShapeError(
            f"{argument} must have at most {limit:,} {what}{stage} got {d:,}. {remedy}; or raise "
            "the limit: `max_features` of op.durable, --max-features of onepass serve."
        )


def warn_of_large_state(d: int, name: str, before: int = 0) -> None:
    """Warn before a large state of d × d numbers is allocated.

    Parameters
    ----------
    d : int
        The number of features.
    name : str
        The learner.
    before : int
        The previous number of features; no second warning if that state was large too.
    """
    size = 8 * d * d
    if 8 * before * before <= _LARGE < size:
        warnings.warn(
            f"{name}: `X` has {d:,} features, whose {d:,} × {d:,} state takes {size / 1e9:,.1f} "
            f"GB, and learning {_PEAK * size / 1e9:,.1f} GB. Choose fewer columns, hash categories "
            "(encode__categories=hash), or use a learner whose memory is linear in the number of "
            "features: SGD, or ORFit with memory=op.memory.Principal(100).",
            LargeStateWarning,
            stacklevel=2,
        )


def check_labels(labels: list[str]) -> None:
    """Raise if a label is too long, within a context that limits features.

    Parameters
    ----------
    labels : list of str

    Raises
    ------
    LabelError
    """
    if _MAX_FEATURES.get() is None:
        return
    longest = max(map(len, labels), default=0)
    if longest > _MAX_LABEL:
        raise LabelError(
            f"`y` must contain labels of at most {_MAX_LABEL} characters, got one of "
            f"{longest:,}. Shorten the label."
        )


def check_values(n: int, d: int, stage: str = "after preprocessing") -> None:
    """Raise if a block would have too many values, before they are computed.

    Parameters
    ----------
    n, d : int
        The number of rows, and the number of values computed from each row: features or scores.
    stage : str
        What the values are, for messages.

    Raises
    ------
    ShapeError
    """
    if n * d > _MAX_VALUES and _MAX_FEATURES.get() is not None:
        raise ShapeError(
            f"a block must have at most {_MAX_VALUES:,} values, got {n:,} rows of {d:,} "
            f"values, {stage}. Send fewer rows at a time."
        )


def labels(y: ArrayLike | None, n: int, *, what: str = "y") -> Array:
    """Validate class labels; return an array of shape (n,) of integers, booleans or text."""
    if y is None:
        raise TypeMismatchError(
            f"requires {what} to be passed, but the target {what} is None. Pass one label per row."
        )
    # dtype=object: otherwise NumPy would convert None and 1 in a list of text to text
    array = np.array(y, dtype=object) if isinstance(y, (list, tuple)) else np.asarray(y)
    if array.ndim == 2 and array.shape[1] == 1:
        warnings.warn(
            "A column-vector y was passed when a 1d array was expected. Pass "
            "y.ravel(), of shape (n,).",
            DataConversionWarning,
            stacklevel=2,
        )
        array = array[:, 0]
    if array.shape != (n,):
        raise ShapeError(
            f"`{what}` must have shape ({n},), one label for each row of X, got "
            f"{array.shape}. Check that X and y come from the same rows."
        )
    if np.ma.is_masked(y):
        raise LabelError(
            f"`{what}` must contain a label in each row, got a masked array. Drop rows "
            "without a label."
        )
    return _of_one_kind(array, what)


def label_names(labels: ArrayLike) -> list[str]:
    """Labels as text, whole numbers without a decimal point, as CSV files have them.

    Parameters
    ----------
    labels : array-like of shape (c,)
    """
    plain = np.asarray(labels).tolist()
    return [f"{k:.0f}" if isinstance(k, float) and k.is_integer() else str(k) for k in plain]


def class_names(classes: Any) -> Array:
    """Validate the parameter ``classes``; return sorted unique labels, or no labels if None.

    Raises
    ------
    ParameterError
        If ``classes`` is not a list of labels.
    """
    listed = sorted(classes, key=str) if isinstance(classes, (set, frozenset)) else classes
    try:
        n = 0 if classes is None else len(listed)
    except TypeError:
        n = -1
    if n < 0 or isinstance(classes, (str, bytes)):
        raise ParameterError(
            f"`classes` must be a list of labels, got {classes!r}. Pass a list of the "
            "classes known in advance, such as classes=[0, 1]."
        )
    return np.unique(labels(listed, n, what="classes")) if n else np.empty(0)


def _of_one_kind(array: Array, what: str) -> Array:
    """Return the labels if all are whole numbers, booleans or text; otherwise raise."""
    if array.dtype.kind == "f":
        refuse_nonfinite(array[:, None], what, None)
        fractions = array[array != np.floor(array)]
        if len(fractions):
            raise LabelError(
                f"Unknown label type: `{what}` must contain class labels, got fractions "
                f"such as {fractions[0]:g}. Use a regressor, or bin the values."
            )
        return array
    if array.dtype.kind == "O":
        return _object_labels(array, what)
    if array.dtype.kind == "U":
        _check_text(array, what)
    if array.dtype.kind not in "biuU":
        raise LabelError(
            f"Unknown label type: `{what}` must contain whole numbers or text, got "
            f"{array.dtype}. Complex data not supported; convert the labels."
        )
    return array


def _check_text(array: Array, what: str) -> None:
    """Raise if labels are too long or cannot be encoded in UTF-8."""
    if what == "y":  # `classes` come from the owner of the learner and have no limit
        check_labels(array.tolist())
    check_encodable(array, what)


def _object_labels(array: Array, what: str) -> Array:
    """Convert objects that are all text or all numbers to an array; otherwise raise."""
    values = array.tolist()
    if not values:
        return array
    if all(isinstance(v, str) for v in values):
        _check_text(array, what)
        return array.astype(str)
    if all(isinstance(v, (bool, int, np.integer, np.bool_)) for v in values):
        whole = np.array(values)
        if whole.dtype.kind in "biu":
            return whole
        raise LabelError(
            f"`{what}` must contain whole numbers that fit in 64 bits, all signed or "
            f"all unsigned, got {max(values, key=abs)}. Convert such labels to text."
        )
    if all(isinstance(v, (bool, int, float, np.number, np.bool_)) for v in values):
        return _of_one_kind(np.array(values, dtype=np.float64), what)
    first = str if isinstance(values[0], str) else (bool, int, float, np.number, np.bool_)
    i, odd = next((i, v) for i, v in enumerate(values) if not isinstance(v, first))
    raise LabelError(
        f"Unknown label type: `{what}` must contain labels of one kind, text or whole numbers",
        got=f"{odd!r}",
        remedy="Drop rows without a label, and convert all labels to one type.",
        row=i,
    )


class ColumnPositions(NamedTuple):
    """Positions of the columns of one learner among the columns of two merged learners."""

    at: Array
    """The position of each column of the other learner, shape (d′,), without duplicates."""
    d: int
    """The number of merged columns; columns that only the other learner has are last."""
    names: list[str] | None
    """The names of all merged columns; None if they have no names."""
    origins: Floats | None = None
    """The value, in all rows of the first learner, of each column that only the other has, (d,);
    nan for columns that were 0. None: all were 0."""


def equal_parameters(one: Any, two: Any) -> bool:
    """Whether two parameters, which may be arrays, are equal.

    Examples
    --------
    >>> equal_parameters(np.eye(2), [[1, 0], [0, 1]]), sum([equal_parameters(0.1, 0.2)])
    (True, 0)
    """
    if one is two:
        return True
    sequences = (np.ndarray, list, tuple)
    if isinstance(one, sequences) or isinstance(two, sequences):
        try:
            return bool(np.array_equal(one, two))
        except (TypeError, ValueError):
            return False
    return bool(one == two)


def check_same_parameters(one: object, two: object, names: Sequence[str]) -> None:
    """Raise if two objects differ in class or in a parameter.

    Parameters
    ----------
    one, two : learner, feature or Pipeline
    names : sequence of str
        The parameters that must be equal.

    Raises
    ------
    MergeError
        The message names the difference.
    """
    if type(one) is not type(two):
        raise MergeError(
            f"`other` must be of the same class, {type(one).__name__}, got "
            f"{type(two).__name__}. Merge learners of one class with equal parameters."
        )
    excluded = getattr(one, "_outside", {})  # networks are compared by their fitted attributes
    for name in names:
        if name in excluded:
            continue
        first, second = getattr(one, name), getattr(two, name)
        if not equal_parameters(first, second):
            raise MergeError(
                f"`{name.lstrip('_')}` of {type(one).__name__} must be the same in both, {first!r} "
                f"as in the first, got {second!r}. Train both with the same parameters."
            )


def column_positions(one: Any, other: Any) -> ColumnPositions:
    """Match the columns of two learners by name, or in order if they have no names.

    Parameters
    ----------
    one, other : learner or feature
        ``other`` has ``n_features_in_``, and ``feature_names_in_`` if its columns have names.

    Raises
    ------
    MergeError
        If the columns have no names and the numbers of columns differ.
    """
    first, second = (getattr(learner, "feature_names_in_", None) for learner in (one, other))
    fitted = hasattr(one, "n_features_in_")
    if second is not None and (first is not None or not fitted):
        at = {name: j for j, name in enumerate([] if first is None else first)}
        for name in second:
            at.setdefault(name, len(at))
        return ColumnPositions(
            np.array([at[name] for name in second], dtype=np.intp), len(at), list(at)
        )
    d = int(other.n_features_in_)
    if fitted and d != one.n_features_in_:
        raise MergeError(
            f"both must have {one.n_features_in_} features, as the first has, got {d}. "
            "Train on data frames or dicts, whose features have names, or call grow on "
            "the one with fewer features."
        )
    return ColumnPositions(np.arange(d), d, None if first is None else list(first))


def is_number(
    value: object,
    *,
    whole: bool = False,
    above: float | None = None,
    low: float | None = None,
    high: float | None = None,
) -> bool:
    """Return whether a value is a real, or a whole, number in (above, high] or [low, high]."""
    if not isinstance(value, _WHOLE if whole else _REAL) or isinstance(value, bool):
        return False
    try:
        number: Any = value if whole else float(value)
    except OverflowError:  # an integer beyond float64
        return False
    return (whole or math.isfinite(number)) and not (
        (above is not None and number <= above)
        or (low is not None and number < low)
        or (high is not None and number > high)
    )


def range_words(
    *,
    whole: bool = False,
    above: float | None = None,
    low: float | None = None,
    high: float | None = None,
) -> str:
    """Describe the numbers of a range, for messages."""
    if whole and high is None:
        return f"a whole number >= {low}"
    left = f"({above:g}" if above is not None else f"[{low:g}" if low is not None else "(-inf"
    right = f"{high:g}]" if high is not None else "inf)"
    return f"a whole number in {left}, {high}]" if whole else f"a number in {left}, {right}"


def in_range(
    value: object,
    name: str,
    *,
    above: float | None = None,
    low: float | None = None,
    high: float | None = None,
) -> float:
    """Validate a hyperparameter; return a float in (above, high] or [low, high].

    Raises
    ------
    ParameterError
        If the value is not a real number, or is out of range.
    """
    if not is_number(value, above=above, low=low, high=high):
        words = range_words(above=above, low=low, high=high)
        raise ParameterError(
            f"`{name}` must be {words}, got {value!r}",
            remedy=f"Choose another `{name}`.",
        )
    return float(value)  # type: ignore[arg-type]


def whole(value: object, name: str, *, low: int) -> int:
    """Validate a hyperparameter; return an integer >= low.

    Raises
    ------
    ParameterError
        If the value is not such an integer.
    """
    if not is_number(value, whole=True, low=low):
        raise ParameterError(
            f"`{name}` must be {range_words(whole=True, low=low)}, got {value!r}",
            remedy=f"Choose another `{name}`.",
        )
    return int(value)  # type: ignore[call-overload,no-any-return]


def check_subset(given: Iterable[str] | None, known: Sequence[str], name: str) -> list[str]:
    """Validate a selection of names; return it in the order of ``known``, or all names if None.

    Raises
    ------
    ParameterError
        If a name is unknown, or no name is selected.
    """
    if given is None:
        return list(known)
    selected: list[Any] = [] if isinstance(given, str) else list(given)
    unknown = [item for item in selected if item not in known]
    if unknown or not selected:
        invalid = unknown[0] if unknown else given
        hint = did_you_mean(invalid, known) if isinstance(invalid, str) else ""
        raise ParameterError(
            f"`{name}` must be a list of some of {', '.join(known)}, got "
            f"{invalid!r}.{hint} Pass a list of these names."
        )
    return [item for item in known if item in selected]
