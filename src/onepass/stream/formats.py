"""File formats: suffixes, first bytes and sources; and sequences of files as one source.

To add a format, write a source class and add it here.

Several files are read one after the other in natural order, so that part-10 follows part-9. All
files must have the same columns; the first file determines the types. Folders named ``key=value``
on the path of a file, as in Hive, are columns too. Unless the user sets their type, they are
numbers if all values of the key are numbers, otherwise text.
"""

from __future__ import annotations

import re
import weakref
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple
from urllib.parse import unquote

import numpy as np
import pyarrow as pa

from onepass.errors import ColumnError, ParameterError, SourceError, did_you_mean, join_names
from onepass.stream.arrow import MARK, Ipc, Parquet
from onepass.stream.csv import Delimited
from onepass.stream.files import Bytes, File
from onepass.stream.jsonlines import JsonLines
from onepass.stream.literals import TextParser
from onepass.stream.sources import BaseSource, Chunk, RawColumn, Source

FORMATS = ("csv", "tsv", "jsonl", "parquet", "arrow")
SUFFIXES = {
    ".csv": "csv", ".tsv": "tsv", ".tab": "tsv", ".jsonl": "jsonl", ".ndjson": "jsonl",
    ".json": "jsonl", ".parquet": "parquet", ".arrow": "arrow", ".feather": "arrow",
    ".arrows": "arrow",
}  # fmt: skip
PACKED = (".gz", ".bz2", ".xz", ".zst", ".zip")
_STREAM = b"\xff\xff\xff\xff"  # first bytes of an Arrow stream
_REMEDIES = {
    "na": "Replace such values by None or nan in the source", "delimiter": "Omit it",
    "header": "Omit it",
}  # fmt: skip


def format_of(name: str) -> str | None:
    """Return the format that the name of a file indicates.

    Parameters
    ----------
    name : str
        The file name, which may end with a compression suffix.

    Examples
    --------
    >>> format_of("a.b.CSV.gz"), format_of("a.arrow"), format_of("a.gz")
    ('csv', 'arrow', None)
    >>> len([name for name in ("a.tsv.zst", "a.xlsx") if format_of(name)])
    1
    """
    stem = name.lower()
    packing = next((packing for packing in PACKED if stem.endswith(packing)), "")
    suffix = "." + stem.removesuffix(packing).rpartition(".")[2]
    known = SUFFIXES.get(suffix)
    return None if known == "parquet" and packing else known


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """Options for reading files.

    Parameters
    ----------
    format : str or None
        One of ``FORMATS``; None to detect the format from the name or the first bytes.
    delimiter : str or None
        CSV: the field delimiter.
    header : bool or tuple of str
        CSV: whether the first line contains the column names; or the column names.
    na : tuple of str
        CSV: further spellings of a missing value.
    dropped, only : tuple of str
        JSON: keys to exclude, and the only keys to read; None for all.
    parser : TextParser
        Parser of text.
    skip : bool
        Whether invalid rows are skipped.
    leave : int or None
        Text: the first row that is skipped if it is unterminated; None to read all rows.
    typed : tuple of str
        The columns whose types the user has set.

    Raises
    ------
    ParameterError
        If an option is out of range, or incompatible with the format.
    """

    format: str | None = None
    delimiter: str | None = None
    header: bool | tuple[str, ...] = True
    na: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    only: tuple[str, ...] | None = None
    parser: TextParser = field(default_factory=TextParser)
    skip: bool = False
    leave: int | None = None
    typed: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.format is not None and self.format not in FORMATS:
            raise ParameterError(
                f"`format` must be one of {', '.join(FORMATS)}, got {self.format!r}."
                f"{did_you_mean(str(self.format), FORMATS) or ' Omit it if the suffix names it.'}",
            )
        mark = self.delimiter
        if mark is not None and (
            not isinstance(mark, str) or len(mark) != 1 or not mark.isascii() or mark in '"\r\n\0'
        ):
            raise ParameterError(
                "`delimiter` must be one ASCII character other than a quotation mark "
                f"or a line break, got {mark!r}. Pass, for example, ';' or a tab.",
            )
        if self.format is not None:
            self.check(self.format, self.format)

    @property
    def given(self) -> dict[str, Any]:
        """Options that affect the rows and differ from their defaults, for fingerprints."""
        header = list(self.header) if isinstance(self.header, tuple) else self.header
        given = {"delimiter": self.delimiter, "header": header, "na": list(self.na)}
        return {k: v for k, v in given.items() if v not in (None, [], True)} | self.parser.given

    def check(self, kind: str | None, name: str) -> None:
        """Raise if options of CSV are set for another format."""
        for option in self.given.keys() & _REMEDIES if kind not in {"csv", "tsv"} else ():
            raise ParameterError(
                f"`{option}` must be omitted unless the source is CSV or TSV, got "
                f"{self.given[option]!r} for {name}. {_REMEDIES[option]}.",
            )

    def passes(self, key: str) -> bool:
        """Return whether to exclude a JSON key and all keys within its value."""
        if key in self.dropped or self.only is None:
            return key in self.dropped
        return not any(name == key or name.startswith(f"{key}.") for name in self.only)

    def file(self, file: File, name: str | None = None) -> Source:
        """Return a source for a file; the default name is the file name."""
        kind = self.format or format_of(file.name)
        if self.is_read_once(file):
            opened = file.open()
            source = replace(self, format=kind).stream(opened, name or str(file))
            weakref.finalize(source, opened.close)
            return source
        if kind is None:
            suffix = "".join(f".{part}" for part in file.name.split(".")[1:][-2:])
            if suffix.lower().endswith(tuple(f".parquet{packing}" for packing in PACKED)):
                remedy = "Parquet is compressed internally: decompress the file"
            else:
                remedy = f"Rename the file, convert it, or pass format= ({', '.join(FORMATS)})"
            raise SourceError(
                f"{file} must have one of the suffixes {', '.join(SUFFIXES)}, for text and Arrow "
                f"also with {', '.join(PACKED)}, got {suffix or 'none'!r}. {remedy}.",
            )
        return self._source(kind, file, name or file.name)

    def is_read_once(self, file: File) -> bool:
        """Return whether a path is a pipe or a device, such as /dev/stdin."""
        kind = self.format or format_of(file.name)
        device = kind is None and file.path.startswith("/dev/")
        return file.local and (device or not file.is_file())

    def is_empty(self, file: File) -> bool:
        """Return whether a text file is empty."""
        text = (self.format or format_of(file.name)) in {"csv", "tsv", "jsonl"}
        return text and file.local and file.is_file() and file.size == 0

    def stream(self, file: Any, name: str) -> Source:
        """Return a source for a file object; its first bytes determine the format."""
        opened = Bytes(file, name)
        kind = self.format or _sniff_format(opened.look(16))
        if kind != "parquet":
            return self._source(kind, opened, name)
        source = self._source(kind, opened.seekable(), name)
        weakref.finalize(source, opened.close)
        return source

    def _source(self, kind: str, file: Any, name: str) -> Source:
        self.check(kind, name)
        if kind == "parquet":
            return Parquet(file, name)
        if kind == "arrow":
            return Ipc(file, name)
        if kind == "jsonl":
            return JsonLines(file, name, self.passes, skip=self.skip, leave=self.leave)
        header: Sequence[str] | None = None
        if self.header is not True:
            header = () if self.header is False else self.header
        delimiter = self.delimiter or ("\t" if kind == "tsv" else ",")
        return Delimited(
            file, name, delimiter=delimiter, header=header, na=self.na, skip=self.skip,
            leave=self.leave, declared=self.delimiter is None,
        )  # fmt: skip


def _sniff_format(head: bytes) -> str:
    """Detect the format from the first bytes; text is CSV unless it begins like a JSON object."""
    if head.startswith(b"PAR1"):
        return "parquet"
    if head.startswith((MARK, b"FEA1", _STREAM)):
        return "arrow"
    return "jsonl" if head.lstrip().startswith((b'{"', b"{}", b"{ ", b"{\n")) else "csv"


_NOTHING = "__HIVE_DEFAULT_PARTITION__"


def natural_key(name: str) -> list[tuple[int, int, str]]:
    """Return a sort key for natural order.

    Parameters
    ----------
    name : str
        A name, or a path.

    Examples
    --------
    >>> sorted(["b10.csv", "b9.csv", "a.csv"], key=natural_key)
    ['a.csv', 'b9.csv', 'b10.csv']
    >>> len(natural_key("a1b"))
    3
    """
    words = [word for word in re.split(r"(\d+)", name) if word]
    return [(0, int(word), word) if word.isdigit() else (1, 0, word) for word in words]


def hive_partitions(folders: Sequence[str]) -> dict[str, str | None]:
    """Return the columns that folder names define, with their values.

    Parameters
    ----------
    folders : sequence of str
        The folder names.

    Examples
    --------
    >>> hive_partitions(["logs", "year=2024", "place=a%20b"])
    {'year': '2024', 'place': 'a b'}
    >>> len(hive_partitions(["logs"]))
    0
    """
    pairs = [folder.split("=", 1) for folder in folders if re.match(r"[^=]+=", folder)]
    return {unquote(k): None if v == _NOTHING else unquote(v) for k, v in pairs}


class FoundFile(NamedTuple):
    """A file, and the columns that its folders define."""

    file: File
    partitions: dict[str, str | None]


class FileSequence(BaseSource):
    """Several files, read one after the other.

    Parameters
    ----------
    files : sequence of FoundFile
        At least one file, in order.
    name : str
        The name of the sequence in messages.
    options : ReadOptions
        Options for reading each file.

    Raises
    ------
    ColumnError
        While reading: if a file has other columns than the first one, or a column that is also a
        folder key.
    """

    def __init__(self, files: Sequence[FoundFile], name: str, options: ReadOptions) -> None:
        once = any(options.is_read_once(file) for file, _ in files)
        super().__init__(name, repeatable=not once)
        self._files = list(files)
        self._reading = options
        self._begins: list[tuple[int, str]] = []
        self._first = self._opened(0)
        self.n_rows = self._first.n_rows if len(files) == 1 else None
        values = {n: [partitions.get(n) for _, partitions in files] for n in files[0][1]}
        self._numbers = {
            n
            for n, partitions in values.items()
            if all(map(_is_number, partitions)) and n not in options.typed
        }

    def columns(self) -> list[str] | None:
        """Return the columns of the first file, then those of folders."""
        return self._columns(self._first, 0)

    def located(self, row: int) -> str:
        """Describe the file and the row in it."""
        for begin, name in reversed(self._begins):
            if begin <= row:
                return f"{name}: row {row - begin} (counting from 0)"
        return super().located(row)

    def chunks(self, names: Sequence[str] | None, block: int, start: int = 0) -> Iterator[Chunk]:
        """Yield the rows of all files, in order."""
        every = self.columns()
        self._begins, seen, done = [], 0, 0
        total = sum(file.size for file, _ in self._files) or 1
        for i, (file, partitions) in enumerate(self._files):
            source = self._opened(i, seen) if i else self._first
            self._check_columns(self._columns(source, i), every, file)
            self._begins = [*self._begins, (seen, str(file))]
            inner = None if names is None else [n for n in names if n not in partitions]
            for chunk in source.chunks(inner, block, max(0, start - seen)):
                columns = dict(chunk.columns)
                self._check_keys(columns, i)
                for name in partitions if names is None else partitions.keys() & set(names):
                    columns[name] = self._partition_column(name, partitions[name], chunk.n)
                seen += chunk.n
                share = (done + file.size * (chunk.fraction or 0.0)) / total
                yield replace(chunk, columns=columns, fraction=share)
            done += file.size

    def _opened(self, i: int, seen: int = 0) -> Source:
        """Open a file; only the last file may have an unterminated row."""
        leave = self._reading.leave if i == len(self._files) - 1 else None
        options = replace(self._reading, leave=None if leave is None else max(0, leave - seen))
        file = self._files[i][0]
        return options.file(file, str(file))

    def _columns(self, source: Source, i: int) -> list[str] | None:
        names = source.columns()
        self._check_keys(names or (), i)
        return None if names is None else [*names, *self._files[i][1]]

    def _check_keys(self, names: Iterable[str], i: int) -> None:
        """Raise if a column of a file is also a folder key."""
        file, partitions = self._files[i]
        if both := [name for name in names if name in partitions]:
            raise ColumnError(
                f"{file} must have no column {both[0]!r}, the key of a folder on its "
                "path, got one. Rename the column or the folder, or pass a list of "
                "paths, whose folders are ignored.",
            )

    def _check_columns(self, there: list[str] | None, every: list[str] | None, file: File) -> None:
        """Raise if a file has other columns than the first one."""
        if every is None or there is None:
            return
        lacks, more = sorted(set(every) - set(there)), sorted(set(there) - set(every))
        if lacks or more:
            got = [f"no {join_names(lacks)}"] if lacks else []
            got += [f"also {join_names(more)}"] if more else []
            raise ColumnError(
                f"{file} must have the columns of {self._files[0][0]}, got "
                f"{' and '.join(got)}. Fix the file, or exclude it.",
            )

    def _partition_column(self, name: str, value: str | None, n: int) -> RawColumn:
        """Return a column of n rows with the value of a folder key."""
        if name in self._numbers:
            return np.full(n, np.nan if value is None else float(value))
        return pa.array([value] * n, pa.dictionary(pa.int32(), pa.string()))  # not parsed


def _is_number(text: str | None) -> bool:
    try:
        return text is None or bool(np.isfinite(float(text)))
    except ValueError:
        return False
