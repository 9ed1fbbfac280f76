"""Arrow IPC (Feather) and Parquet files as sources.

Columns become numbers (float64), text (object) and dates (datetime64[us] in UTC). Times of day and
durations are numbers of seconds; the fields of structs are columns.

IPC streams are read sequentially. An IPC file has its index at its end: if the input cannot seek,
such as a pipe or a compressed file, it is written to disk first. Memory is bounded by the largest
record batch, whose size the writer of the file chose. Parquet is read a few rows at a time, even if
the file is one row group.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import IO, Any

import numpy as np
import pyarrow as pa
from pyarrow import ipc, parquet

from onepass.errors import OnepassError, SourceError, TypeMismatchError
from onepass.stream.files import Bytes, File
from onepass.stream.sources import HEAD_ROWS, BaseSource, Chunk
from onepass.types import Array
from onepass.validation.table import dates_of

_INDEX = re.compile(r"__index_level_\d+__")


def flat_columns(table: pa.Table | pa.RecordBatch) -> Iterator[tuple[str, pa.Array]]:
    """Yield the columns of a table or a batch by their full names; structs are flattened.

    An index without a name, which pandas has written as a column, is left out.
    """
    left = list(zip(table.schema.names, table.columns, strict=True))[::-1]
    while left:
        name, column = left.pop()
        if _INDEX.fullmatch(name):
            continue
        if not pa.types.is_struct(column.type):
            yield name, column
            continue
        inner = zip(column.type, column.flatten(), strict=True)
        left += [(f"{name}.{field.name}", part) for field, part in inner][::-1]


def dtype_code(kind: pa.DataType) -> str | None:
    """Return the dtype code of an Arrow type: f, b, O or M; None if it has none.

    Examples
    --------
    >>> [dtype_code(kind) for kind in (pa.int8(), pa.string(), pa.bool_(), pa.null())]
    ['f', 'O', 'b', None]
    """
    types = pa.types
    value = kind.value_type if types.is_dictionary(kind) else kind
    if is_text(value):
        return "O"
    if types.is_timestamp(value) or types.is_date(value):
        return "M"
    if types.is_boolean(value):
        return "b"
    number = types.is_floating(value) or types.is_duration(value) or is_exact(value)
    return "f" if number else None


def is_text(kind: pa.DataType) -> bool:
    """Return whether a type is text; categories have another type."""
    return kind in (pa.string(), pa.large_string(), pa.string_view())


def is_exact(kind: pa.DataType) -> bool:
    """Return whether values of a type may have more digits than float64, or are not decimal."""
    types = pa.types
    tests = (types.is_time, types.is_integer, types.is_decimal, types.is_boolean)
    return any(test(kind) for test in tests)


def to_array(column: pa.Array, name: str, where: str) -> Array:
    """Convert an Arrow array to a column of a table.

    Parameters
    ----------
    column : pyarrow.Array of length n
        The values; nulls are missing.
    name : str
        The column name, for messages.
    where : str
        The source, for the message.

    Returns
    -------
    ndarray of shape (n,)

    Raises
    ------
    TypeMismatchError
        If it contains lists, structs, bytes or other values that a table cannot contain.
    """
    if column.type == pa.float64() and not column.null_count:  # fast path
        return np.array(column.to_numpy())
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    kind = column.type
    if pa.types.is_null(kind):
        return np.full(len(column), np.nan)
    found = dtype_code(kind)
    if found == "O":
        return np.asarray(column.to_numpy(zero_copy_only=False), dtype=object)
    if found == "M":  # Arrow stores times with a zone in UTC
        unit = "ns" if getattr(kind, "unit", "us") == "ns" else "us"
        stamps = column.cast(pa.timestamp(unit, tz=getattr(kind, "tz", None)), safe=False)
        return dates_of(stamps.to_numpy(zero_copy_only=False))
    if found is None:
        raise TypeMismatchError(
            f"column {name!r} must contain numbers, booleans, text or dates, got Arrow's {kind}. "
            f"Exclude it with drop=[{name!r}], or convert it to plain columns.",
            where,
        )
    divisor = 1.0
    if pa.types.is_time(kind) or pa.types.is_duration(kind):
        span = pa.time64("us") if pa.types.is_time(kind) else pa.duration("us")
        column, divisor = column.cast(span, safe=False).cast(pa.int64()), 1e6
    numbers = column.cast(pa.float64(), safe=False)
    floats: Array = np.array(numbers.to_numpy(zero_copy_only=False), dtype=np.float64) / divisor
    return floats


@contextmanager
def _damage_errors(name: str, kind: str) -> Iterator[None]:
    """Convert exceptions of Arrow to SourceError."""
    try:
        yield
    except OnepassError:
        raise
    except (EOFError, OSError, ValueError, pa.ArrowException) as error:
        raise SourceError(
            f"{name} must be a complete {kind}, got a truncated or damaged one ({error}). "
            "Copy, download or write the file again.",
        ) from error


MARK = b"ARROW1"
_MIN_ROWS = 1024  # minimum number of rows of a chunk


class Ipc(BaseSource):
    """Rows of an Arrow file or stream.

    Parameters
    ----------
    source : File or Bytes
        A file can be read repeatedly, bytes once.
    name : str
        The name in messages.

    Raises
    ------
    SourceError
        While reading: if the source is damaged, or is not an Arrow file or stream.
    """

    def __init__(self, source: File | Bytes, name: str) -> None:
        super().__init__(name, repeatable=isinstance(source, File))
        self._source = source
        self._names: list[str] | None = None
        self._waiting: tuple[Bytes, Any] | None = None

    def columns(self) -> list[str]:
        """Return the column names."""
        if self._names is None:
            opened, reader = self._waiting = self._open()
            self._names = [name for name, _ in flat_columns(reader.schema.empty_table())]
            if self.repeatable:
                if isinstance(reader, ipc.RecordBatchFileReader):
                    self.n_rows = reader.count_rows()
                opened.close()
                self._waiting = None
        return list(self._names)

    def chunks(self, names: Sequence[str] | None, block: int, start: int = 0) -> Iterator[Chunk]:
        """Yield the rows in chunks of at most a few thousand."""
        del start  # the length of a batch is unknown before it is read
        wanted = set(self.columns() if names is None else names)
        (opened, reader), self._waiting = self._waiting or self._open(), None
        size, done = max(block, _MIN_ROWS), 0
        try:
            for batch in self._batches(reader):
                for i in range(0, batch.num_rows, size):
                    rows = batch.slice(i, size)
                    columns = {
                        name: column for name, column in flat_columns(rows) if name in wanted
                    }
                    done += rows.num_rows
                    fraction = done / self.n_rows if self.n_rows else opened.fraction
                    yield Chunk(columns, rows.num_rows, fraction=fraction)
        finally:
            opened.close()

    def _open(self) -> tuple[Bytes, Any]:
        """Return the open file and a reader of its record batches."""
        opened = self._source if isinstance(self._source, Bytes) else Bytes(self._source)
        try:
            with _damage_errors(self.name, "Arrow file or stream"):
                if not opened.look(len(MARK)).startswith(MARK):
                    return opened, ipc.open_stream(pa.PythonFile(opened, mode="r"))
                return opened, ipc.open_file(pa.PythonFile(opened.seekable(), mode="r"))
        except BaseException:
            opened.close()
            raise

    def _batches(self, reader: Any) -> Iterator[pa.RecordBatch]:
        """Yield the record batches of a file or a stream."""
        with _damage_errors(self.name, "Arrow file or stream"):
            if isinstance(reader, ipc.RecordBatchFileReader):
                yield from map(reader.get_batch, range(reader.num_record_batches))
            else:
                yield from reader


_BUFFER = 64 << 10  # bytes; without a buffer size, whole column chunks are read into memory


class Parquet(BaseSource):
    """Rows of a Parquet file.

    Parameters
    ----------
    source : File or file object
        A file object must be seekable.
    name : str
        The name in messages.

    Raises
    ------
    SourceError
        If the file is damaged. Its metadata are checked on opening, its pages while reading.
    """

    def __init__(self, source: File | IO[bytes], name: str) -> None:
        super().__init__(name, repeatable=True)
        self._source = source
        with self._open() as file:
            self.n_rows = file.metadata.num_rows
            empty = file.schema_arrow.empty_table()
            fields = [(name, column.type) for name, column in flat_columns(empty)]
            self._names, self._types = [name for name, _ in fields], dict(fields)

    def columns(self) -> list[str]:
        """Return the column names, including duplicates."""
        return list(self._names)

    def chunks(self, names: Sequence[str] | None, block: int, start: int = 0) -> Iterator[Chunk]:
        """Yield the rows in blocks; skipped row groups are not read."""
        wanted = list(self._types if names is None else names)
        seen = 0
        with self._open() as file:
            for group in range(file.num_row_groups):
                n = file.metadata.row_group(group).num_rows
                if HEAD_ROWS <= seen <= start - n:
                    columns = {name: pa.nulls(0, self._types[name]) for name in wanted}
                    seen += n
                    yield Chunk(columns, n, fraction=seen / (self.n_rows or 1))
                    continue
                batches = file.iter_batches(
                    batch_size=max(block, _MIN_ROWS), columns=wanted, row_groups=[group],
                    use_threads=False,
                )  # fmt: skip
                for batch in batches:
                    columns = {
                        name: column for name, column in flat_columns(batch) if name in wanted
                    }
                    seen += batch.num_rows
                    yield Chunk(columns, batch.num_rows, fraction=seen / (self.n_rows or 1))

    @contextmanager
    def _open(self) -> Iterator[parquet.ParquetFile]:
        """Open the file; convert exceptions of pyarrow to SourceError."""
        source: Any = self._source
        if isinstance(source, File):
            source = source.path if source.local else source.open()
        with (
            _damage_errors(self.name, "Parquet file"),
            parquet.ParquetFile(source, pre_buffer=False, buffer_size=_BUFFER) as file,
        ):
            yield file
