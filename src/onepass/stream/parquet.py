"""Parquet as a source: a few rows at a time, even where the file is one row group."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from onepass.errors import OnepassError, SourceError
from onepass.extras import need
from onepass.stream.arrow import to_array
from onepass.stream.pieces import Piece
from onepass.table import Table

__all__ = ["Parquet"]

_BUFFER = 64 << 10  # bytes of a column chunk held at a time; without it a whole chunk is
_FEWEST = 1024  # rows a batch at least: smaller ones cost more than they save


class Parquet:
    """Rows of a Parquet file.

    Parameters
    ----------
    path : Path
        The file.
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

    def __init__(self, path: Path, name: str) -> None:
        self.name = name
        self._path = path
        self._pa = need("pyarrow", extra="files", where="op.stream.read")
        self._parquet = need("pyarrow.parquet", extra="files", where="op.stream.read")
        with self._told(), self._open() as file:
            self.n_rows: int | None = file.metadata.num_rows
            self._columns = [str(name) for name in file.schema_arrow.names]

    def columns(self) -> list[str]:
        """The names of its columns."""
        return list(self._columns)

    def pieces(
        self, names: Sequence[str] | None, types: Mapping[str, str], block: int
    ) -> Iterator[Piece]:
        """The rows, a block at a time."""
        done = 0
        with self._told(), self._open() as file:
            for batch in file.iter_batches(
                batch_size=max(block, _FEWEST),
                columns=list(self._columns if names is None else names),
                use_threads=False,
            ):
                done += batch.num_rows
                table = self._table(batch, types)
                yield Piece(table, fraction=done / self.n_rows if self.n_rows else None)

    def _open(self) -> Any:
        return self._parquet.ParquetFile(self._path, pre_buffer=False, buffer_size=_BUFFER)

    def _table(self, batch: Any, types: Mapping[str, str]) -> Table:
        columns = {
            name: to_array(column, name, self._pa, self.name, text=types.get(name) == "text")
            for name, column in zip(batch.schema.names, batch.columns, strict=True)
        }
        return Table(columns, batch.num_rows)

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
