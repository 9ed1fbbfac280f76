"""Writing of named columns in blocks to text or Parquet files, with bounded memory.

In text, a missing value is an empty field, and an integer has no decimal point (7, not 7.0). Other
numbers have as many digits as are needed to restore them exactly. Dates are in ISO 8601 with
seconds and, if necessary, a fraction: 2024-01-01T00:00:00. The format of a value does not depend on
other values.
"""

from __future__ import annotations

import csv
import gzip
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from onepass.errors import ParameterError, SourceError, calling
from onepass.serialization.atomic import atomic_write, write_errors
from onepass.types import Array

_DELIMITERS = {".csv": ",", ".tsv": "\t"}
_MAX_INTEGER = 2.0**53  # above it, float64 does not represent all integers


@calling("op.stream.write")
def write(
    blocks: Iterable[Mapping[str, Array]],
    target: str | os.PathLike[str] | IO[str],
    *,
    on_progress: Callable[[int], object] | None = None,
) -> int:
    r"""Write blocks of named columns to a file, one block at a time.

    Parameters
    ----------
    blocks : iterable of mappings of str to ndarray of shape (n,)
        Columns of numbers, text (None is missing) or dates. All blocks have the same names in the
        same order.
    target : path or file object
        A path that ends in .csv, .tsv, .csv.gz, .tsv.gz or .parquet, or a text file object for CSV.
        The folder must exist. An existing file is replaced atomically at the end.
    on_progress : callable, optional
        Called after each block with the number of rows written.

    Returns
    -------
    rows : int
        Number of rows written.

    Raises
    ------
    ParameterError
        If the path has another suffix.
    SourceError
        If the file cannot be written, or a Parquet column changes its type.

    Examples
    --------
    >>> import io
    >>> text = io.StringIO()
    >>> blocks = [{"id": np.array([1.0, 2.0]), "prediction": np.array([0.25, np.nan])}]
    >>> rows = write(blocks, text)
    >>> text.getvalue()
    'id,prediction\n1,0.25\n2,\n'
    >>> rows
    2
    """
    if on_progress is not None:
        blocks = _counted(blocks, on_progress)
    if not isinstance(target, (str, os.PathLike)):
        return _write_text(blocks, target, ",")
    path = Path(target)
    suffix, packed = written_as(path)
    with write_errors(path), atomic_write(path) as temporary:
        if suffix == ".parquet":
            return _parquet(blocks, temporary, path)
        opened: Any = gzip.open if packed else open
        with opened(temporary, "wt", encoding="utf-8", newline="") as file:
            return _write_text(blocks, file, _DELIMITERS[suffix])


def _counted(
    blocks: Iterable[Mapping[str, Array]], on_progress: Callable[[int], object]
) -> Iterator[Mapping[str, Array]]:
    """Yield the blocks; after each was written, report the number of rows."""
    rows = 0
    for block in blocks:
        yield block
        rows += len(next(iter(block.values()), ()))
        on_progress(rows)


def written_as(path: Path) -> tuple[str, bool]:
    """Return the suffix that determines the format of a table, and whether it is compressed.

    Parameters
    ----------
    path : Path

    Raises
    ------
    ParameterError
        If the suffix is not supported.

    Examples
    --------
    >>> written_as(Path("table.CSV.gz"))
    ('.csv', True)
    """
    suffixes = [suffix.lower() for suffix in path.suffixes]
    packed = suffixes[-1:] == [".gz"]
    suffix = "".join(suffixes[-2:-1] if packed else suffixes[-1:])
    if suffix not in _DELIMITERS and (packed or suffix != ".parquet"):
        raise ParameterError(
            f"{path} must end in .csv, .tsv, .csv.gz, .tsv.gz or .parquet, got "
            f"{''.join(suffixes[-2:]) or 'no suffix'!r}. Rename the file."
        )
    return suffix, packed


def _write_text(blocks: Iterable[Mapping[str, Array]], file: IO[str], delimiter: str) -> int:
    """Write text, one line per row."""
    writer = csv.writer(file, delimiter=delimiter, lineterminator="\n")
    rows, names = 0, None
    for block in blocks:
        if names is None:
            names = list(block)
            writer.writerow(names)
        columns = [_csv_values(block[name]) for name in names]
        writer.writerows(zip(*columns, strict=True))
        rows += len(columns[0]) if columns else 0
    return rows


def _csv_values(column: Array) -> Sequence[object]:
    """Convert the values of a column for the csv module."""
    kind = column.dtype.kind
    if kind == "f":
        return [_number(value) for value in column.tolist()]
    if kind == "M":
        return _stamps(column)
    return ["" if value is None else value for value in column.tolist()]


def _stamps(column: Array) -> list[str]:
    """Format dates in ISO 8601 with seconds and, if necessary, a fraction."""
    seconds = column.astype("datetime64[s]")
    stamps = np.datetime_as_string(seconds).astype(object)
    stamps[np.isnat(column)] = ""
    finer = ~np.isnat(column) & (seconds != column)
    stamps[finer] = np.datetime_as_string(column[finer])
    whole: list[str] = stamps.tolist()
    return whole


def _number(value: float) -> float | str:
    if value != value:  # noqa: PLR0124  nan
        return ""
    return int(value) if abs(value) < _MAX_INTEGER and value.is_integer() else value


def _parquet(blocks: Iterable[Mapping[str, Array]], temporary: Path, path: Path) -> int:
    """Write a Parquet file, one row group per block."""
    rows, writer = 0, None
    try:
        for block in blocks:
            columns = {name: pa.array(column, from_pandas=True) for name, column in block.items()}
            table = pa.table(columns)
            if writer is None:
                schema = _text_for_null(table.schema)
                writer = parquet.ParquetWriter(temporary, schema)
            try:
                writer.write_table(table.cast(schema))
            except (pa.ArrowException, ValueError) as error:
                raise SourceError(
                    f"{path} must have the column types of its first rows, got other "
                    f"types starting at row {rows} ({error}). Write the table as CSV.",
                ) from error
            rows += table.num_rows
    finally:
        if writer is not None:
            writer.close()
    if writer is None:
        parquet.write_table(pa.table({}), temporary)
    return rows


def _text_for_null(schema: pa.Schema) -> pa.Schema:
    """Replace the null type of columns without a value by text."""
    return pa.schema(
        [
            (field.name, pa.string() if pa.types.is_null(field.type) else field.type)
            for field in schema
        ]
    )
