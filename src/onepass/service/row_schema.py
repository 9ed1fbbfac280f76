"""Schema of the rows of a served learner: its columns, their kinds and ranges.

A file contains a JSON Schema of one row, of which these keywords are supported: ``properties``,
``required`` and ``additionalProperties`` of the row, and ``type``, ``minimum``, ``maximum``,
``enum`` and ``format`` (``date``, ``date-time``) of a column. Rows of any format are checked column
by column. A missing value, which in JSON is null or an absent key, is allowed unless the column is
required. Rows without names have the columns in the order of ``properties``. The column ``y`` is
the target of rows to learn, or each of several targets.

If the file does not exist, the schema is inferred from the rows that are learned, and written.
"""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Lock
from typing import Literal

import msgspec
import numpy as np

from onepass.errors import ParameterError, SchemaError, StoreError, join_names
from onepass.logs import LOG
from onepass.serialization.atomic import atomic_write
from onepass.types import Array
from onepass.validation.rows import Rows
from onepass.validation.table import Table

_LOG = LOG.getChild("service")
_LOG_INTERVAL = 60.0  # seconds between warnings
_TARGET = "y"
_MAX_ENUM = 100  # values of a column of text that an inferred schema lists
_Scalar = str | int | float | bool


class ColumnSchema(
    msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True, rename={"kind": "type"}
):
    """Type and range of a column."""

    kind: Literal["number", "integer", "boolean", "string"] | None = None
    minimum: float | None = None
    maximum: float | None = None
    enum: list[_Scalar] | None = None
    format: Literal["date", "date-time"] | None = None
    title: str = ""
    description: str = ""


class RowSchema(
    msgspec.Struct,
    forbid_unknown_fields=True,
    omit_defaults=True,
    rename={"kind": "type", "dialect": "$schema", "others": "additionalProperties"},
):
    """Columns of a row; ``others`` is whether further columns are allowed."""

    properties: dict[str, ColumnSchema]
    required: list[str] = []
    others: bool = True
    kind: Literal["object"] = "object"
    dialect: str = ""
    title: str = ""
    description: str = ""


class SchemaCheck:
    """Checks rows by the schema of a file, or infers the schema if there is no file.

    Parameters
    ----------
    path : Path
    strict : bool
        Whether rows that do not conform are refused; otherwise they are counted.

    Attributes
    ----------
    violations : int
        Number of rows that did not conform.

    Raises
    ------
    ParameterError
        If the file is not a supported schema, or ``strict`` and there is no file.
    """

    def __init__(self, path: Path, *, strict: bool) -> None:
        self._path, self._strict = path, strict
        self.violations, self._lock, self._logged = 0, Lock(), -np.inf
        self._observed: dict[str, _Observed] = {}
        self._written: RowSchema | None = None
        self._schema = _read(path, must_exist=strict)

    def check(self, X: Array | Table, y: Array | None) -> None:
        """Raise for the first row that does not conform, or count all such rows.

        Raises
        ------
        SchemaError
        """
        if self._schema is None:
            return
        found = list(_violations(self._schema, X, y))
        if not found:
            return
        bad = np.logical_or.reduce([wrong for wrong, _ in found])
        first = min((error for _, error in found), key=lambda error: error.row or 0)
        with self._lock:
            self.violations += int(bad.sum())
            report = time.monotonic() - self._logged > _LOG_INTERVAL
            self._logged = time.monotonic() if report else self._logged
        if report:
            fields = {"schema": str(self._path), "why": str(first)}
            _LOG.warning("rows do not conform to the schema", extra={"fields": fields})
        if self._strict:
            raise first

    def observe(self, block: Rows) -> None:
        """Widen the inferred schema by rows that were learned."""
        if self._schema is None:
            late, columns = bool(self._observed), _columns(block.X, block.y)
            for name, values in columns:
                self._observed.setdefault(name, _Observed(late)).add(values)
            for name in self._observed.keys() - dict(columns).keys():
                self._observed[name].missing = True

    def write(self) -> None:
        """Write the inferred schema, if it has changed.

        Raises
        ------
        StoreError
            If the file cannot be written.
        """
        if self._schema is not None or not self._observed:
            return
        found = {name: each.schema() for name, each in self._observed.items()}
        required = [name for name, each in self._observed.items() if not each.missing]
        dialect = "https://json-schema.org/draft/2020-12/schema"
        schema = RowSchema(found, required, others=False, dialect=dialect)
        if schema != self._written:
            try:
                with atomic_write(self._path) as temporary:
                    temporary.write_bytes(msgspec.json.format(msgspec.json.encode(schema)) + b"\n")
            except OSError as error:
                raise StoreError(
                    f"{self._path} must be a file that can be written, got: {error.strerror}. "
                    "Choose another --schema."
                ) from error
            self._written = schema


def _read(path: Path, *, must_exist: bool) -> RowSchema | None:
    """Return the schema of a file; None if there is no file."""
    if not path.exists() and not must_exist:
        if not path.absolute().parent.is_dir():
            raise ParameterError(
                f"--schema must be a file in an existing folder, got {path}. Create the folder, or "
                "correct the path.",
                "serve",
            )
        _LOG.info(
            "a schema is inferred until the service stops", extra={"fields": {"schema": str(path)}}
        )
        return None
    try:
        schema = msgspec.json.decode(path.read_bytes(), type=RowSchema)
    except (OSError, msgspec.DecodeError) as error:
        raise ParameterError(
            f"--schema must be a JSON file with the type, minimum, maximum, enum or format of each "
            f"column, got {path}: {error}. Correct the file; without --strict a schema is inferred "
            "if there is no file.",
            "serve",
        ) from error
    if unknown := sorted(set(schema.required) - schema.properties.keys()):
        raise ParameterError(
            f"{path}: `required` must name columns of `properties`, got {join_names(unknown)}. Add "
            "these columns to `properties`.",
            "serve",
        )
    return schema


def _columns(X: Array | Table, y: Array | None) -> list[tuple[str, Array]]:
    """Return the columns with their names, by default x0, x1, …; each output of y is ``y``."""
    if isinstance(X, Table):
        columns = list(X.columns.items())
    else:
        columns = [(f"x{j}", column) for j, column in enumerate(np.asarray(X).T)]
    targets = () if y is None else np.asarray(y).reshape(len(y), -1).T
    return columns + [(_TARGET, each) for each in targets]


def _violations(
    schema: RowSchema, X: Array | Table, y: Array | None
) -> Iterator[tuple[Array, SchemaError]]:
    """Yield the wrong rows of each rule that is broken, and the error of the first of them."""
    features, targets = _columns(X, None), _columns(X, y)
    targets = targets[len(features) :]
    names = [name for name in schema.properties if name != _TARGET]
    if not isinstance(X, Table) and len(names) == len(features):
        features = [(name, column) for name, (_, column) in zip(names, features, strict=True)]
    all_rows, present = np.ones(len(X), dtype=bool), dict(features + targets)
    unknown = [name for name, _ in features if name not in schema.properties]
    if unknown and not schema.others:
        must = f"the columns must be those of the schema, {join_names(names)}"
        yield all_rows, _error(must, join_names(unknown))
    for name in schema.required:
        if name not in present and not (name == _TARGET and y is None):
            yield all_rows, _error(f"the column {name!r} must be present", "none")
    for name, values in features + targets:
        if name in schema.properties:
            column, required = schema.properties[name], name in schema.required
            for wrong, must in _wrong(column, values, required=required):
                if wrong.any():
                    row = int(np.argmax(wrong))
                    got = repr(values[row : row + 1].tolist()[0])[:80]
                    yield wrong, _error(f"{name!r} must {must}", got, row)


def _error(must: str, got: str, row: int | None = None) -> SchemaError:
    return SchemaError(must, got=got, remedy="Correct the row, or the schema.", row=row)


def _wrong(column: ColumnSchema, values: Array, *, required: bool) -> Iterator[tuple[Array, str]]:
    """Yield masks of the values that do not conform, each with what they must do.

    As in JSON Schema, a keyword concerns only values of its own type.
    """
    missing, numbers, text = _missing(values), _as_numbers(values), _is_text(values)
    if required:
        yield missing, "not be missing"
    if column.kind is not None:
        must, conform = {
            "string": ("be text", text | (column.format is not None and values.dtype.kind == "M")),
            "number": ("be a number", ~np.isnan(numbers)),
            "integer": ("be a whole number", numbers % 1.0 == 0.0),
            "boolean": ("be true or false", (numbers == 0.0) | (numbers == 1.0)),
        }[column.kind]
        yield ~conform & ~missing, must
    if column.minimum is not None:
        yield numbers < column.minimum, f"be at least {column.minimum:g}"
    if column.maximum is not None:
        yield numbers > column.maximum, f"be at most {column.maximum:g}"
    if column.format is not None:
        dates = np.array([_is_date(each) for each in values.tolist()], dtype=bool)
        yield text & ~dates, "be an ISO 8601 date"
    if column.enum is not None:
        allowed = set(column.enum)
        listed = np.array([each in allowed for each in values.tolist()], dtype=bool)
        yield ~listed & ~missing, f"be one of {join_names(list(map(str, column.enum)))}"


def _missing(values: Array) -> Array:
    """Return which values are missing."""
    if values.dtype.kind == "O":
        return np.array([each is None or each != each for each in values], dtype=bool)  # noqa: PLR0124  nan
    if values.dtype.kind in "fM":
        return np.isnat(values) if values.dtype.kind == "M" else np.isnan(values)
    return np.zeros(len(values), dtype=bool)


def _is_text(values: Array) -> Array:
    if values.dtype.kind != "O":
        return np.full(len(values), values.dtype.kind == "U")
    return np.array([isinstance(each, str) for each in values], dtype=bool)


def _as_numbers(values: Array) -> Array:
    """Return numbers as float64, and nan for other values."""
    if values.dtype.kind in "biuf":
        return values.astype(np.float64)
    number = (int, float, np.number)
    return np.array([float(v) if isinstance(v, number) else np.nan for v in values.tolist()])


def _is_date(value: object) -> bool:
    try:
        dt.datetime.fromisoformat(str(value))
    except ValueError:
        return False
    return True


class _Observed:
    """What was observed of a column; ``late`` if earlier rows did not have it."""

    def __init__(self, late: bool) -> None:  # noqa: FBT001  a private class
        self.missing = late
        self._kinds: set[str] = set()
        self._low, self._high = np.inf, -np.inf
        self._texts: set[str] | None = set()

    def add(self, values: Array) -> None:
        """Add values."""
        missing = _missing(values)
        self.missing |= bool(missing.any())
        present = values[~missing]
        if not len(present):
            return
        if present.dtype.kind == "M":
            self._kinds.add("date")
        elif present.dtype.kind in "OU":
            self._kinds.add("text")
            if self._texts is not None:
                self._texts |= set(map(str, present.tolist()))
                self._texts = self._texts if len(self._texts) <= _MAX_ENUM else None
        else:
            self._kinds.add("number")
            numbers = _as_numbers(present)
            self._low = min(self._low, float(numbers.min()))
            self._high = max(self._high, float(numbers.max()))

    def schema(self) -> ColumnSchema:
        """Return the schema, without a type if no value, or values of several kinds, were observed.

        The range of numbers is that observed, widened by its width on both sides, but not below 0
        if there was no negative number.
        """
        if self._kinds == {"date"}:
            return ColumnSchema("string", format="date-time")
        if self._kinds == {"text"}:
            return ColumnSchema("string", enum=sorted(self._texts) if self._texts else None)
        if self._kinds != {"number"}:
            return ColumnSchema()
        width = self._high - self._low
        if width == 0.0:
            return ColumnSchema("number")
        low = self._low - width
        return ColumnSchema(
            "number",
            minimum=max(low, 0.0) if self._low >= 0.0 else low,
            maximum=self._high + width,
        )
