"""Arrow IPC (Feather) and Parquet files as sources.

Columns become numbers (float64), text (object) and dates (datetime64[us] in UTC). Times of day and
durations are numbers of seconds; the fields of structs are columns.

IPC streams are read from front to end. An IPC file has its index at its end: where the input cannot
seek, as a pipe or a compressed file, it is written to disk first. Memory is bounded by the largest
record batch, which the writer chose. Parquet is read a few rows at a time, even where the file is
one row group.
"""

import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import IO, Any

import numpy as np
import pyarrow as pa
from pyarrow import ipc, parquet

from onepass.errors import OnepassError, SourceError, TypeMismatchError
from onepass.stream.files import DAMAGED, Bytes, Remote
from onepass.stream.sources import LOOKED_AT, Piece
from onepass.types import Array
from onepass.validation.table import Table, dates_of

__all__ = ["MARK", "Ipc", "Parquet", "leaves", "letters", "spooled", "to_array"]


def leaves(
    table: pa.Table | pa.RecordBatch, passes: Callable[[str], bool] = lambda _: False
) -> Iterator[tuple[str, pa.Array]]:
    """The columns of a table or a batch that are not structs, by their full names.

    Parameters
    ----------
    table : pyarrow.Table or pyarrow.RecordBatch
        Some rows.
    passes : callable
        Whether to leave out a column and its fields, by its full name.
    """
    left = list(zip(table.schema.names, table.columns, strict=True))[::-1]
    while left:
        name, column = left.pop()
        if passes(name):
            continue
        column = column.combine_chunks() if hasattr(column, "combine_chunks") else column
        if not str(column.type).startswith("struct<"):
            yield name, column
            continue
        inner = zip(column.type, column.flatten(), strict=True)
        left += [(f"{name}.{field.name}", part) for field, part in inner][::-1]


def letters(fields: Iterable[tuple[str, pa.DataType]]) -> dict[str, str]:
    """The letters (f, b, O or M) of columns by their Arrow types, as ``Source.kinds`` gives them.

    Parameters
    ----------
    fields : iterable of (str, pyarrow.DataType)
        The columns' names and types.

    Examples
    --------
    >>> import pyarrow as pa
    >>> letters([("km", pa.int8()), ("by", pa.string()), ("late", pa.bool_())])
    {'km': 'f', 'by': 'O', 'late': 'b'}
    >>> len(letters([("never", pa.null())]))
    0
    """
    types = pa.types
    told = {}
    for name, kind in fields:
        value = kind.value_type if types.is_dictionary(kind) else kind
        if _is_text(types, value):
            told[name] = "O"
        elif types.is_timestamp(value) or types.is_date(value):
            told[name] = "M"
        elif types.is_boolean(value):
            told[name] = "b"
        elif _is_number(types, value):
            told[name] = "f"
    return told


def to_array(column: pa.Array, name: str, where: str, *, text: bool = False) -> Array:
    """One Arrow array as a table's column.

    Parameters
    ----------
    column : pyarrow.Array of length n
        Its values; nulls are missing.
    name : str
        The column's name, for the message.
    where : str
        The source, for the message.
    text : bool
        Take numbers and truth values as text, written as Arrow writes them: whole numbers of 64
        bits keep all their digits, which float64 would not.

    Returns
    -------
    ndarray of shape (n,)

    Raises
    ------
    TypeMismatchError
        If it holds lists, structures, bytes or anything else that is no table's column.
    """
    types = pa.types
    if column.type == pa.float64() and not column.null_count:  # most columns are such
        return np.array(column.to_numpy())
    if types.is_dictionary(column.type):
        column = column.dictionary_decode()
    kind = column.type
    if types.is_null(kind):
        return np.full(len(column), np.nan)
    if _is_text(types, kind):
        return _objects(column)
    exact = (types.is_time, types.is_integer, types.is_decimal, types.is_boolean)
    if text and any(test(kind) for test in exact):
        return _objects(column.cast(pa.string()))
    if _is_number(types, kind):
        return _numbers(column)
    if types.is_timestamp(kind) or types.is_date(kind):
        return _dates(column)
    raise TypeMismatchError(
        f"{where}: column {name!r} must hold numbers, truth values, text or dates, got Arrow's "
        f"{kind}. Leave it out with drop=[{name!r}], or write it as columns of plain values."
    )


def _to_table(
    batch: pa.RecordBatch,
    names: Sequence[str],
    types: Mapping[str, str],
    where: str,
) -> Table:
    """The columns of these names in a batch, numbers as text where ``types`` says so."""
    wanted = set(names)
    columns = {
        name: to_array(column, name, where, text=types.get(name) == "text")
        for name, column in leaves(batch)
        if name in wanted
    }
    return Table(columns, batch.num_rows)


def _is_text(types: ModuleType, kind: pa.DataType) -> bool:
    view = getattr(types, "is_string_view", None)  # newer than the oldest pyarrow we take
    return bool(types.is_string(kind) or types.is_large_string(kind) or (view and view(kind)))


def _is_number(types: ModuleType, kind: pa.DataType) -> bool:
    tests = (
        types.is_integer, types.is_floating, types.is_decimal, types.is_boolean, types.is_time,
        types.is_duration,
    )  # fmt: skip
    return any(test(kind) for test in tests)


def _numbers(column: pa.Array) -> Array:
    unit = 1.0
    if pa.types.is_time(column.type) or pa.types.is_duration(column.type):
        span = pa.time64("us") if pa.types.is_time(column.type) else pa.duration("us")
        column, unit = column.cast(span, safe=False).cast(pa.int64()), 1e6
    numbers = column.cast(pa.float64(), safe=False)
    return np.array(numbers.to_numpy(zero_copy_only=False), dtype=np.float64) / unit


def _objects(column: pa.Array) -> Array:
    return np.asarray(column.to_numpy(zero_copy_only=False), dtype=object)


def _dates(column: pa.Array) -> Array:
    """Arrow keeps a zoned time in UTC; here the zone is dropped and UTC stays."""
    zone, unit = getattr(column.type, "tz", None), getattr(column.type, "unit", "us")
    stamps = column.cast(pa.timestamp("ns" if unit == "ns" else "us", tz=zone), safe=False)
    return dates_of(stamps.to_numpy(zero_copy_only=False))


MARK = b"ARROW1"
_FEWEST = 1024  # rows a piece at least


class Ipc:
    """Rows of an Arrow file or stream.

    Parameters
    ----------
    source : Path, Remote, or file object
        What lies at a place can be read again and again, a file object once.
    name : str
        What messages call it.

    Raises
    ------
    SourceError
        While reading: if it is no Arrow file or stream, or is damaged.
    """

    n_rows: int | None = None

    def __init__(self, source: Path | Remote | Bytes | IO[bytes], name: str) -> None:
        self.name = name
        self.repeatable = self.ahead = isinstance(source, (Path, Remote))
        self._source = source
        self._schema: pa.Schema | None = None
        self._waiting: _Opened | None = None

    def columns(self) -> list[str]:
        """The names of its columns."""
        return [name for name, _ in self._fields()]

    def kinds(self) -> dict[str, str]:
        """What the schema says."""
        return letters(self._fields())

    def located(self, row: int) -> str:
        """Where a row stands."""
        return f"{self.name}: row {row} (counting from 0)"

    def pieces(
        self, names: Sequence[str] | None, types: Mapping[str, str], block: int, start: int = 0
    ) -> Iterator[Piece]:
        """The rows, some thousand at a time at most."""
        self._looked()
        opened, self._waiting = self._waiting or self._open(), None
        wanted = self.columns() if names is None else list(names)
        done, size = 0, max(block, _FEWEST)
        try:
            while (batch := self._next(opened)) is not None:
                for i in range(0, batch.num_rows, size):
                    rows = batch.slice(i, size)
                    passed = done >= LOOKED_AT and done + rows.num_rows <= start
                    done += rows.num_rows
                    given = [] if passed else wanted
                    table = _to_table(rows, given, types, self.name)
                    yield Piece(table, fraction=opened.fraction)
        finally:
            opened.close()

    def _fields(self) -> list[tuple[str, pa.DataType]]:
        """The columns and their Arrow types."""
        return [(name, c.type) for name, c in leaves(self._looked().empty_table())]

    def _looked(self) -> pa.Schema:
        if self._schema is None:
            opened = self._open()
            self._schema = opened.reader.schema
            self.n_rows = self._counted(opened)
            if self.repeatable:
                opened.close()
            else:
                self._waiting = opened
        return self._schema

    def _counted(self, opened: "_Opened") -> int | None:
        """The rows, as a file's batches say at their heads; of a stream nobody knows."""
        count = getattr(opened.reader, "count_rows", None)  # not of the oldest pyarrow we take
        if opened.file is None or count is None:
            return None
        with self._told():
            return int(count())

    def _open(self) -> "_Opened":
        """The file or stream, with what reads it."""
        opened = _Opened()
        with self._told():
            try:
                if isinstance(self._source, (Path, Remote, Bytes)):
                    self._begin(opened, self._source)
                else:  # a file that can be sought
                    opened.file = self._source
                if opened.file is not None:
                    opened.reader = ipc.open_file(pa.PythonFile(opened.file, mode="r"))
                else:
                    stream = pa.PythonFile(opened.bytes, mode="r")
                    opened.reader = ipc.open_stream(stream)
            except BaseException:
                opened.close()
                raise
        return opened

    def _begin(self, opened: "_Opened", source: Path | Remote | Bytes) -> None:
        """Look whether it begins as a file; then have it where it can be sought."""
        opened.bytes = packed = source if isinstance(source, Bytes) else Bytes(source)
        head = packed.look(8)
        if not head:
            raise self._error("rows", "an empty file", "Check that it was written")
        if head.startswith(b"FEA1"):
            remedy = "Write it anew, with pyarrow.feather in version 2"
            raise self._error("Arrow", "Feather of version 1", remedy)
        if head.startswith(MARK) and packed.packing is None and not isinstance(source, Bytes):
            opened.file = source.open("rb")
        elif head.startswith(MARK):
            opened.file = spooled(packed)

    def _next(self, opened: "_Opened") -> pa.RecordBatch | None:
        """The next batch; None at the end."""
        with self._told():
            if opened.file is None:
                try:
                    return opened.reader.read_next_batch()
                except StopIteration:
                    return None
            opened.batch += 1
            if opened.batch > opened.reader.num_record_batches:
                return None
            return opened.reader.get_batch(opened.batch - 1)

    def _error(self, wanted: str, came: str, remedy: str) -> SourceError:
        return SourceError(f"op.stream.read: {self.name} must hold {wanted}, got {came}. {remedy}.")

    def _broken(self, said: object) -> SourceError:
        return SourceError(
            f"op.stream.read: {self.name} must be a whole Arrow file or stream, got one that "
            f"breaks off or is damaged ({said}). Copy, download or write it again."
        )

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Say errors from below again in the user's words."""
        try:
            yield
        except OnepassError:
            raise
        except (OSError, ValueError, *DAMAGED, pa.ArrowException) as wrong:
            raise self._broken(wrong) from wrong


class _Opened:
    """An open file or stream; what was opened for it is closed with it."""

    def __init__(self) -> None:
        self.bytes: Bytes | None = None
        self.file: IO[bytes] | None = None
        self.reader: Any = None
        self.batch = 0

    @property
    def fraction(self) -> float | None:
        """How much of it has been given."""
        if self.file is not None:
            return min(1.0, self.batch / max(1, int(self.reader.num_record_batches)))
        return None if self.bytes is None else self.bytes.fraction

    def close(self) -> None:
        """Close what was opened here."""
        if self.bytes is not None:
            self.bytes.close()
            if self.file is not None:
                self.file.close()


def spooled(packed: Bytes) -> IO[bytes]:
    """All bytes in a file on the disk, which can be sought and is gone when it is closed."""
    file = tempfile.TemporaryFile()  # noqa: SIM115  it is closed with the source
    try:
        while part := packed.read(1 << 20):
            file.write(part)
        file.seek(0)
    except BaseException:
        file.close()
        raise
    return file


_BUFFER = 64 << 10  # bytes of a column chunk held at a time; without it a whole chunk is
_FEWEST_ROWS = 1024  # rows a batch at least: smaller ones cost more than they save


class Parquet:
    """Rows of a Parquet file.

    Parameters
    ----------
    path : Path, Remote, or file object
        The file; a file object must be able to seek.
    name : str
        What messages call it.

    Raises
    ------
    SourceError
        If the file is damaged; its end is looked at when it is opened, the rest while reading.
    """

    repeatable = True
    ahead = True

    def __init__(self, path: Path | Remote | IO[bytes], name: str) -> None:
        self.name = name
        self._path = path
        with self._told(), self._open() as file:
            self.n_rows: int | None = file.metadata.num_rows
            fields = [(n, c.type) for n, c in leaves(file.schema_arrow.empty_table())]
            self._columns = [name for name, _ in fields]
            self._letters = letters(fields)

    def columns(self) -> list[str]:
        """The names of its columns."""
        return list(self._columns)

    def kinds(self) -> dict[str, str]:
        """The kinds in the schema."""
        return dict(self._letters)

    def located(self, row: int) -> str:
        """Where a row stands."""
        return f"{self.name}: row {row} (counting from 0)"

    def pieces(
        self, names: Sequence[str] | None, types: Mapping[str, str], block: int, start: int = 0
    ) -> Iterator[Piece]:
        """The rows, a block at a time; row groups that are passed over are not read."""
        wanted = list(self._columns if names is None else names)
        with self._told(), self._open() as file:
            done = 0
            for table in self._tables(file, wanted, types, max(block, _FEWEST_ROWS), start):
                done += len(table)
                yield Piece(table, fraction=done / self.n_rows if self.n_rows else None)

    def _tables(
        self,
        file: parquet.ParquetFile,
        wanted: list[str],
        types: Mapping[str, str],
        size: int,
        start: int,
    ) -> Iterator[Table]:
        """The rows; of those that are passed over, all but the first are only counted."""
        groups, done = range(file.num_row_groups), 0
        begins = [0]
        for group in groups:
            begins.append(begins[-1] + file.metadata.row_group(group).num_rows)
        group = max(i for i, begin in enumerate(begins) if begin <= start)
        if begins[group] > LOOKED_AT:
            ahead = range(next(i for i, begin in enumerate(begins) if begin >= LOOKED_AT))
            for batch in self._batches(file, wanted, ahead, size):
                yield _to_table(batch, wanted, types, self.name)
                done += batch.num_rows
                if done >= LOOKED_AT:
                    break
            yield Table({}, begins[group] - done)
            groups, done = groups[group:], begins[group]
        for batch in self._batches(file, wanted, groups, size):
            passed = done >= LOOKED_AT and done + batch.num_rows <= start
            done += batch.num_rows
            given = [] if passed else wanted
            yield _to_table(batch, given, types, self.name)

    def _batches(
        self, file: parquet.ParquetFile, names: list[str], groups: range, size: int
    ) -> Iterator[pa.RecordBatch]:
        """Some columns of some row groups."""
        batches: Iterator[pa.RecordBatch] = file.iter_batches(
            batch_size=size, columns=names, row_groups=list(groups), use_threads=False
        )
        return batches

    @contextmanager
    def _open(self) -> Iterator[parquet.ParquetFile]:
        remote = self._path.open("rb") if isinstance(self._path, Remote) else None
        opened = self._path if remote is None else remote
        try:
            with parquet.ParquetFile(opened, pre_buffer=False, buffer_size=_BUFFER) as file:
                yield file
        finally:
            if remote is not None:
                remote.close()

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Say pyarrow's errors again in the user's words."""
        try:
            yield
        except OnepassError:
            raise
        except (OSError, ValueError, pa.ArrowException) as wrong:
            raise SourceError(
                f"op.stream.read: {self.name} must be a whole Parquet file, got one that cannot "
                f"be read ({wrong}). Copy, download or write it again."
            ) from wrong
