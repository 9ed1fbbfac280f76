"""Parquet as a source: a few rows at a time, even where the file is one row group."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from onepass.errors import OnepassError, SourceError, need
from onepass.stream.arrow import leaves, letters, to_table
from onepass.stream.pieces import Piece
from onepass.stream.remote import Remote
from onepass.stream.task import LOOKED_AT
from onepass.validation.table import Table

__all__ = ["Parquet"]

_BUFFER = 64 << 10  # bytes of a column chunk held at a time; without it a whole chunk is
_FEWEST = 1024  # rows a batch at least: smaller ones cost more than they save


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
    MissingExtraError
        If pyarrow is not installed.
    SourceError
        If the file is damaged; its end is looked at when it is opened, the rest while reading.
    """

    repeatable = True
    ahead = True

    def __init__(self, path: Any, name: str) -> None:
        self.name = name
        self._path = path
        self._pa = need("pyarrow", extra="files", where="op.stream.read")
        self._parquet = need("pyarrow.parquet", extra="files", where="op.stream.read")
        with self._told(), self._open() as file:
            self.n_rows: int | None = file.metadata.num_rows
            fields = [(n, c.type) for n, c in leaves(file.schema_arrow.empty_table())]
            self._columns = [name for name, _ in fields]
            self._letters = letters(fields, self._pa)

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
            for table in self._tables(file, wanted, types, max(block, _FEWEST), start):
                done += len(table)
                yield Piece(table, fraction=done / self.n_rows if self.n_rows else None)

    def _tables(
        self, file: Any, wanted: list[str], types: Mapping[str, str], size: int, start: int
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
                yield to_table(batch, wanted, types, self._pa, self.name)
                done += batch.num_rows
                if done >= LOOKED_AT:
                    break
            yield Table({}, begins[group] - done)
            groups, done = groups[group:], begins[group]
        for batch in self._batches(file, wanted, groups, size):
            passed = done >= LOOKED_AT and done + batch.num_rows <= start
            done += batch.num_rows
            given = [] if passed else wanted
            yield to_table(batch, given, types, self._pa, self.name)

    def _batches(self, file: Any, names: list[str], groups: range, size: int) -> Iterator[Any]:
        """Some columns of some row groups."""
        batches: Iterator[Any] = file.iter_batches(
            batch_size=size, columns=names, row_groups=list(groups), use_threads=False
        )
        return batches

    @contextmanager
    def _open(self) -> Iterator[Any]:
        place = isinstance(self._path, (Path, Remote))
        opened = self._path.open("rb") if isinstance(self._path, Remote) else self._path
        try:
            with self._parquet.ParquetFile(opened, pre_buffer=False, buffer_size=_BUFFER) as file:
                yield file
        finally:
            if place and opened is not self._path:
                opened.close()

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Say pyarrow's errors again in the user's words."""
        try:
            yield
        except OnepassError:
            raise
        except (OSError, ValueError, self._pa.ArrowException) as wrong:
            raise SourceError(
                f"op.stream.read: {self.name} must be a whole Parquet file, got one that cannot "
                f"be read ({wrong}). Copy, download or write it again."
            ) from wrong
