"""Arrow IPC (Feather) and Parquet files as sources.

Columns become numbers (float64), text (object) and dates (datetime64[us] in UTC). Times of day and
durations are numbers of seconds; the fields of structs are columns.

IPC streams are read from front to end. An IPC file has its index at its end: where the input cannot
seek, as a pipe or a compressed file, it is written to disk first. Memory is bounded by the largest
record batch, which the writer chose. Parquet is read a few rows at a time, even where the file is
one row group.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import IO, Any

import numpy as np
import pyarrow as pa
from pyarrow import ipc, parquet

from onepass.errors import OnepassError, SourceError, TypeMismatchError
from onepass.stream.files import Bytes, File
from onepass.stream.sources import LOOKED_AT, BaseSource, Chunk
from onepass.types import Array
from onepass.validation.table import dates_of

__all__ = ["MARK", "Ipc", "Parquet", "dtype_codes", "is_exact", "leaves", "letter", "to_array"]


def leaves(table: pa.Table | pa.RecordBatch) -> Iterator[tuple[str, pa.Array]]:
    """The columns of a table or a batch that are not structs, by their full names."""
    left = list(zip(table.schema.names, table.columns, strict=True))[::-1]
    while left:
        name, column = left.pop()
        if not pa.types.is_struct(column.type):
            yield name, column
            continue
        inner = zip(column.type, column.flatten(), strict=True)
        left += [(f"{name}.{field.name}", part) for field, part in inner][::-1]


def dtype_codes(fields: Sequence[tuple[str, pa.DataType]]) -> dict[str, str]:
    """The letters (f, b, O or M) of columns by their Arrow types, where these tell.

    Parameters
    ----------
    fields : sequence of (str, pyarrow.DataType)
        The columns' names and types.

    Examples
    --------
    >>> import pyarrow as pa
    >>> dtype_codes([("km", pa.int8()), ("by", pa.string()), ("late", pa.bool_())])
    {'km': 'f', 'by': 'O', 'late': 'b'}
    >>> len(dtype_codes([("never", pa.null())]))
    0
    """
    known = {name: letter(kind) for name, kind in fields}
    return {name: found for name, found in known.items() if found is not None}


def letter(kind: pa.DataType) -> str | None:
    """The letter of a column by its Arrow type: f, b, O or M; None where the type has none."""
    types = pa.types
    value = kind.value_type if types.is_dictionary(kind) else kind
    if types.is_string(value) or types.is_large_string(value) or types.is_string_view(value):
        return "O"
    if types.is_timestamp(value) or types.is_date(value):
        return "M"
    if types.is_boolean(value):
        return "b"
    number = types.is_floating(value) or types.is_duration(value) or is_exact(value)
    return "f" if number else None


def is_exact(kind: pa.DataType) -> bool:
    """Whether values of a type have digits that float64 may not hold, or no digits at all."""
    types = pa.types
    tests = (types.is_time, types.is_integer, types.is_decimal, types.is_boolean)
    return any(test(kind) for test in tests)


def to_array(column: pa.Array, name: str, where: str) -> Array:
    """One Arrow array as a table's column.

    Parameters
    ----------
    column : pyarrow.Array of length n
        Its values; nulls are missing.
    name : str
        The column's name, for the message.
    where : str
        The source, for the message.

    Returns
    -------
    ndarray of shape (n,)

    Raises
    ------
    TypeMismatchError
        If it holds lists, structures, bytes or anything else that is no table's column.
    """
    if column.type == pa.float64() and not column.null_count:  # most columns are such
        return np.array(column.to_numpy())
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    kind = column.type
    if pa.types.is_null(kind):
        return np.full(len(column), np.nan)
    found = letter(kind)
    if found == "O":
        return np.asarray(column.to_numpy(zero_copy_only=False), dtype=object)
    if found == "M":  # Arrow has a zoned time in UTC; here the zone is dropped and UTC stays
        unit = "ns" if getattr(kind, "unit", "us") == "ns" else "us"
        stamps = column.cast(pa.timestamp(unit, tz=getattr(kind, "tz", None)), safe=False)
        return dates_of(stamps.to_numpy(zero_copy_only=False))
    if found is None:
        raise TypeMismatchError(
            f"{where}: column {name!r} must hold numbers, truth values, text or dates, got Arrow's "
            f"{kind}. Leave it out with drop=[{name!r}], or write it as columns of plain values."
        )
    divisor = 1.0
    if pa.types.is_time(kind) or pa.types.is_duration(kind):
        span = pa.time64("us") if pa.types.is_time(kind) else pa.duration("us")
        column, divisor = column.cast(span, safe=False).cast(pa.int64()), 1e6
    numbers = column.cast(pa.float64(), safe=False)
    floats: Array = np.array(numbers.to_numpy(zero_copy_only=False), dtype=np.float64) / divisor
    return floats


MARK = b"ARROW1"
_FEWEST = 1024  # rows a chunk at least


class Ipc(BaseSource):
    """Rows of an Arrow file or stream.

    Parameters
    ----------
    source : File or Bytes
        A file can be read again and again, bytes once.
    name : str
        What messages call it.

    Raises
    ------
    SourceError
        While reading: if it is no Arrow file or stream, or is damaged.
    """

    def __init__(self, source: File | Bytes, name: str) -> None:
        super().__init__(name, repeatable=isinstance(source, File))
        self._source = source
        self._names: list[str] | None = None
        self._waiting: tuple[Bytes, Any] | None = None

    def columns(self) -> list[str]:
        """The names of its columns."""
        if self._names is None:
            opened, reader = self._waiting = self._open()
            self._names = [name for name, _ in leaves(reader.schema.empty_table())]
            if self.repeatable:
                if isinstance(reader, ipc.RecordBatchFileReader):
                    self.n_rows = reader.count_rows()
                opened.close()
                self._waiting = None
        return list(self._names)

    def chunks(self, names: Sequence[str] | None, block: int, start: int = 0) -> Iterator[Chunk]:
        """The rows, some thousand at a time at most."""
        del start  # a batch must be read to know its length
        wanted = set(self.columns() if names is None else names)
        (opened, reader), self._waiting = self._waiting or self._open(), None
        size, done = max(block, _FEWEST), 0
        try:
            for batch in self._batches(reader):
                for i in range(0, batch.num_rows, size):
                    rows = batch.slice(i, size)
                    columns = {name: column for name, column in leaves(rows) if name in wanted}
                    done += rows.num_rows
                    fraction = done / self.n_rows if self.n_rows else opened.fraction
                    yield Chunk(columns, rows.num_rows, fraction=fraction)
        finally:
            opened.close()

    def _open(self) -> tuple[Bytes, Any]:
        """The bytes, and what reads them."""
        opened = self._source if isinstance(self._source, Bytes) else Bytes(self._source)
        try:
            head = self._checked(opened.look(8))
            with self._reading():
                if not head.startswith(MARK):
                    return opened, ipc.open_stream(pa.PythonFile(opened, mode="r"))
                return opened, ipc.open_file(pa.PythonFile(opened.seekable(), mode="r"))
        except BaseException:
            opened.close()
            raise

    def _batches(self, reader: Any) -> Iterator[pa.RecordBatch]:
        """The batches of a file or a stream."""
        with self._reading():
            if isinstance(reader, ipc.RecordBatchFileReader):
                yield from map(reader.get_batch, range(reader.num_record_batches))
            else:
                yield from reader

    def _checked(self, head: bytes) -> bytes:
        """The first bytes, unless they are those of no Arrow file or stream."""
        if head and not head.startswith(b"FEA1"):
            return head
        found = ("rows, got an empty file", "Check that it was written")
        if head:
            found = ("Arrow, got Feather of version 1", "Write it anew, as version 2")
        raise SourceError(f"op.stream.read: {self.name} must hold {found[0]}. {found[1]}.")

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Raise errors from below as SourceErrors."""
        try:
            yield
        except OnepassError:
            raise
        except (EOFError, OSError, ValueError, pa.ArrowException) as wrong:
            raise SourceError(
                f"op.stream.read: {self.name} must be a whole Arrow file or stream, got one that "
                f"breaks off or is damaged ({wrong}). Copy, download or write it again."
            ) from wrong


_BUFFER = 64 << 10  # bytes of a column chunk held at a time; without it a whole chunk is


class Parquet(BaseSource):
    """Rows of a Parquet file.

    Parameters
    ----------
    source : File or file object
        A file object must be able to seek.
    name : str
        What messages call it.

    Raises
    ------
    SourceError
        If the file is damaged; its end is looked at when it is opened, the rest while reading.
    """

    def __init__(self, source: File | IO[bytes], name: str) -> None:
        super().__init__(name, repeatable=True)
        self._source = source
        with self._open() as file:
            self.n_rows = file.metadata.num_rows
            empty = file.schema_arrow.empty_table()
            fields = [(name, column.type) for name, column in leaves(empty)]
            self._names, self._types = [name for name, _ in fields], dict(fields)

    def columns(self) -> list[str]:
        """The names of its columns, each as often as the file has it."""
        return list(self._names)

    def chunks(self, names: Sequence[str] | None, block: int, start: int = 0) -> Iterator[Chunk]:
        """The rows, a block at a time; row groups that are passed over are not read."""
        wanted = list(self._types if names is None else names)
        seen = 0
        with self._open() as file:
            for group in range(file.num_row_groups):
                n = file.metadata.row_group(group).num_rows
                if LOOKED_AT <= seen <= start - n:
                    columns = {name: pa.nulls(0, self._types[name]) for name in wanted}
                    seen += n
                    yield Chunk(columns, n, fraction=seen / (self.n_rows or 1))
                    continue
                batches = file.iter_batches(
                    batch_size=max(block, _FEWEST), columns=wanted, row_groups=[group],
                    use_threads=False,
                )  # fmt: skip
                for batch in batches:
                    columns = {name: column for name, column in leaves(batch) if name in wanted}
                    seen += batch.num_rows
                    yield Chunk(columns, batch.num_rows, fraction=seen / (self.n_rows or 1))

    @contextmanager
    def _open(self) -> Iterator[parquet.ParquetFile]:
        """The file; pyarrow's errors become SourceErrors."""
        source: Any = self._source
        if isinstance(source, File):
            source = source.path if source.local else source.open()
        try:
            with parquet.ParquetFile(source, pre_buffer=False, buffer_size=_BUFFER) as file:
                yield file
        except OnepassError:
            raise
        except (OSError, ValueError, pa.ArrowException) as wrong:
            raise SourceError(
                f"op.stream.read: {self.name} must be a whole Parquet file, got one that cannot "
                f"be read ({wrong}). Copy, download or write it again."
            ) from wrong
