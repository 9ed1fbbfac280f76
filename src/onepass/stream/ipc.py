"""Arrow IPC (Feather) as a source: files and streams, batch by batch, from a pipe too.

A stream is read from front to end. A file has its table of contents at its end: where nothing can
be sought, as in a pipe or in what is packed, it is laid down on the disk first. Memory is bounded
by the largest record batch, which whoever wrote it chose.
"""

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from onepass.errors import OnepassError, SourceError, need
from onepass.stream.arrow import leaves, letters, to_table
from onepass.stream.bytestream import DAMAGED, Bytes
from onepass.stream.pieces import Piece
from onepass.stream.remote import Remote
from onepass.stream.task import LOOKED_AT

__all__ = ["MARK", "Ipc", "spooled"]

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
    MissingExtraError
        If pyarrow is not installed.
    SourceError
        While reading: if it is no Arrow file or stream, or is damaged.
    """

    n_rows: int | None = None

    def __init__(self, source: Any, name: str) -> None:
        self.name = name
        self.repeatable = self.ahead = isinstance(source, (Path, Remote))
        self._source = source
        self._pa = need("pyarrow", extra="files", where="op.stream.read")
        self._ipc = need("pyarrow.ipc", extra="files", where="op.stream.read")
        self._schema: Any = None
        self._waiting: _Opened | None = None

    def columns(self) -> list[str]:
        """The names of its columns."""
        return [name for name, _ in self._fields()]

    def kinds(self) -> dict[str, str]:
        """What the schema says."""
        return letters(self._fields(), self._pa)

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
                    table = to_table(rows, given, types, self._pa, self.name)
                    yield Piece(table, fraction=opened.fraction)
        finally:
            opened.close()

    def _fields(self) -> list[tuple[str, Any]]:
        """The columns and their Arrow types."""
        return [(name, c.type) for name, c in leaves(self._looked().empty_table())]

    def _looked(self) -> Any:
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
                    self._begin(opened)
                else:  # a file that can be sought
                    opened.file = self._source
                if opened.file is not None:
                    opened.reader = self._ipc.open_file(self._pa.PythonFile(opened.file, mode="r"))
                else:
                    stream = self._pa.PythonFile(opened.bytes, mode="r")
                    opened.reader = self._ipc.open_stream(stream)
            except BaseException:
                opened.close()
                raise
        return opened

    def _begin(self, opened: "_Opened") -> None:
        """Look whether it begins as a file; then have it where it can be sought."""
        source = self._source
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

    def _next(self, opened: "_Opened") -> Any:
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
        except (OSError, ValueError, *DAMAGED, self._pa.ArrowException) as wrong:
            raise self._broken(wrong) from wrong


class _Opened:
    """An open file or stream; what was opened for it is closed with it."""

    def __init__(self) -> None:
        self.bytes: Bytes | None = None
        self.file: Any = None
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


def spooled(packed: Bytes) -> Any:
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
