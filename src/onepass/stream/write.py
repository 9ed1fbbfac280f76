"""Writing of named columns, block by block, to text or Parquet files in bounded memory.

In text a missing value is an empty field, an integer has no point (7, not 7.0), any other number
has as many digits as restore it exactly, and a date is in ISO 8601 to the second, with a fraction
where that date has one: 2024-01-01T00:00:00. The form of a value thus depends on no other value.
"""

import csv
import gzip
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from onepass.errors import ParameterError, SourceError
from onepass.serialization.atomic import atomic_write, write_errors
from onepass.types import Array

__all__ = ["write", "written_as"]

_WHERE = "op.stream.write"
_DELIMITERS = {".csv": ",", ".tsv": "\t"}
_WHOLE = 2.0**53  # above it a float64 does not tell whole numbers apart


def write(blocks: Iterable[Mapping[str, Array]], target: str | os.PathLike[str] | IO[str]) -> int:
    r"""Write blocks of named columns, as they come.

    Parameters
    ----------
    blocks : iterable of mappings of str to ndarray of shape (n,)
        All with the same names, in the same order. Numbers, text (None is missing) or dates.
    target : path or file object
        A path that ends in .csv, .tsv, either with .gz, or .parquet; its folder must be there, and
        a file there is replaced at the end, as a whole or not at all. Or a file object, open for
        text: CSV.

    Returns
    -------
    rows : int
        How many were written.

    Raises
    ------
    ParameterError
        If the path has another suffix.
    SourceError
        If it cannot be written, or a Parquet column changes its kind.

    Examples
    --------
    >>> import io
    >>> text = io.StringIO()
    >>> blocks = [{"id": np.array([1.0, 2.0]), "said": np.array([0.25, np.nan])}]
    >>> rows = write(blocks, text)
    >>> text.getvalue()
    'id,said\n1,0.25\n2,\n'
    >>> rows
    2
    """
    if not isinstance(target, (str, os.PathLike)):
        return _written(blocks, target, ",")
    path = Path(target)
    suffix, packed = written_as(path, _WHERE)
    with write_errors(path, _WHERE), atomic_write(path) as temporary:
        if suffix == ".parquet":
            return _parquet(blocks, temporary, path)
        opened: Any = gzip.open if packed else open
        with opened(temporary, "wt", encoding="utf-8", newline="") as file:
            return _written(blocks, file, _DELIMITERS[suffix])


def written_as(path: Path, where: str) -> tuple[str, bool]:
    """The suffix that says how a table is written, and whether it is packed as well.

    Parameters
    ----------
    path : Path
    where : str
        The public call, for the message.

    Raises
    ------
    ParameterError
        If tables are not written so.

    Examples
    --------
    >>> written_as(Path("said.CSV.gz"), "here")
    ('.csv', True)
    """
    suffixes = [suffix.lower() for suffix in path.suffixes]
    packed = suffixes[-1:] == [".gz"]
    suffix = "".join(suffixes[-2:-1] if packed else suffixes[-1:])
    if suffix not in _DELIMITERS and (packed or suffix != ".parquet"):
        raise ParameterError(
            f"{where}: {path} must end in .csv, .tsv, .csv.gz, .tsv.gz or .parquet, got "
            f"{''.join(suffixes[-2:]) or 'no suffix'!r}. Give the file another name."
        )
    return suffix, packed


def _written(blocks: Iterable[Mapping[str, Array]], file: IO[str], delimiter: str) -> int:
    """Text, a line a row."""
    writer = csv.writer(file, delimiter=delimiter, lineterminator="\n")
    rows, names = 0, None
    for block in blocks:
        if names is None:
            names = list(block)
            writer.writerow(names)
        columns = [_worded(block[name]) for name in names]
        writer.writerows(zip(*columns, strict=True))
        rows += len(columns[0]) if columns else 0
    return rows


def _worded(column: Array) -> Sequence[object]:
    """A column's values as the csv module is to write them."""
    kind = column.dtype.kind
    if kind == "f":
        return [_number(value) for value in column.tolist()]
    if kind == "M":
        return _stamps(column)
    return ["" if value is None else value for value in column.tolist()]


def _stamps(column: Array) -> list[str]:
    """Dates, each to the second, and with its fraction if it has one."""
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
    return int(value) if abs(value) < _WHOLE and value.is_integer() else value


def _parquet(blocks: Iterable[Mapping[str, Array]], temporary: Path, path: Path) -> int:
    """A Parquet file, a row group a block."""
    rows, writer = 0, None
    try:
        for block in blocks:
            columns = {name: pa.array(column, from_pandas=True) for name, column in block.items()}
            table = pa.table(columns)
            if writer is None:
                schema = _typed(table.schema)
                writer = parquet.ParquetWriter(temporary, schema)
            try:
                writer.write_table(table.cast(schema))
            except (pa.ArrowException, ValueError) as wrong:
                raise SourceError(
                    f"{_WHERE}: {path} must have columns of one kind each, as in the first rows, "
                    f"got others from row {rows} on ({wrong}). Write it as CSV."
                ) from wrong
            rows += table.num_rows
    finally:
        if writer is not None:
            writer.close()
    if writer is None:
        raise SourceError(
            f"{_WHERE}: {path} must have at least one block, which names its columns, got none. "
            "Give a block without rows, or write CSV."
        )
    return rows


def _typed(schema: pa.Schema) -> pa.Schema:
    """The schema, with text for columns that have shown no value yet."""
    return pa.schema(
        [
            (field.name, pa.string() if pa.types.is_null(field.type) else field.type)
            for field in schema
        ]
    )
