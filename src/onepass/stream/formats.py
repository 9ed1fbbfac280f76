"""File formats: their suffixes, first bytes and sources, and several files as one source.

To add a format is to write its source and to add it here.

Several files are read one after the other in natural order, so that part-10 follows part-9. All
must have the same columns; the first determines their types. Folders on the way to a file that are
called ``key=value``, as in Hive, are columns too.
"""

import re
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any
from urllib.parse import unquote

import numpy as np

from onepass.errors import ColumnError, ParameterError, SourceError, listed, meant
from onepass.stream.arrow import MARK, Ipc, Parquet, spooled
from onepass.stream.csv import Delimited
from onepass.stream.dtypes import Kinds, absent
from onepass.stream.files import Bytes, Remote
from onepass.stream.jsonlines import JsonLines
from onepass.stream.literals import KINDS, Literals, Oddity
from onepass.stream.sources import LOOKED_AT, Piece, Source
from onepass.validation.table import Table, is_missing

__all__ = [
    "FORMATS",
    "PACKED",
    "SUFFIXES",
    "Part",
    "Parts",
    "Reading",
    "format_of",
    "hive",
    "is_read_once",
    "natural",
]


_WHERE = "op.stream.read"
FORMATS = ("csv", "tsv", "jsonl", "parquet", "arrow")
SUFFIXES = {
    ".csv": "csv", ".tsv": "tsv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet",
    ".arrow": "arrow", ".feather": "arrow", ".arrows": "arrow",
}  # fmt: skip
PACKED = (".gz", ".bz2", ".xz", ".zst")
_STREAM = b"\xff\xff\xff\xff"  # how an Arrow stream begins


def format_of(name: str) -> str | None:
    """The format that a file's name tells.

    Parameters
    ----------
    name : str
        With its suffixes, that of a packing last.

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
class Reading:
    """How files are read.

    Parameters
    ----------
    format : str or None
        One of ``FORMATS``; None for what the name or the first bytes tell.
    delimiter : str or None
        Of CSV: what stands between two fields.
    header : bool or tuple of str
        Of CSV: whether the first line holds the columns' names, or else their names.
    na : tuple of str
        Of CSV: further spellings of a missing value.
    dropped, only : tuple of str
        Of JSON: keys to leave out, and the only keys to read; None for all.
    literals : Literals
        How text is parsed.
    skip : bool
        Whether rows that cannot be read are skipped.
    leave : int or None
        Of text: the first row that is left unread if its line is unterminated; None for none.

    Raises
    ------
    ParameterError
        If one is out of range, or does not go with the format.
    """

    format: str | None = None
    delimiter: str | None = None
    header: bool | tuple[str, ...] = True
    na: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    only: tuple[str, ...] | None = None
    literals: Literals = field(default_factory=Literals)
    skip: bool = False
    leave: int | None = None

    def __post_init__(self) -> None:
        if self.format is not None and self.format not in FORMATS:
            raise ParameterError(
                f"{_WHERE}: `format` must be one of {', '.join(FORMATS)}, got {self.format!r}."
                f"{meant(str(self.format), FORMATS) or ' Leave it out where the suffix tells.'}"
            )
        mark = self.delimiter
        if mark is not None and (
            not isinstance(mark, str) or len(mark) != 1 or not mark.isascii() or mark in '"\r\n\0'
        ):
            raise ParameterError(
                f"{_WHERE}: `delimiter` must be one ASCII character that is no quotation mark and "
                f"no line break, got {mark!r}. Give one such as ';' or a tab."
            )
        if self.format not in {None, "csv", "tsv"}:
            self.check(self.format, self.format)

    @property
    def told(self) -> dict[str, Any]:
        """The options that change the rows and differ from their defaults, for fingerprints."""
        header = list(self.header) if isinstance(self.header, tuple) else self.header
        given = {"delimiter": self.delimiter, "header": header, "na": list(self.na)}
        return {k: v for k, v in given.items() if v not in (None, [], True)} | self.literals.given

    def check(self, kind: str | None, name: str) -> None:
        """Refuse options of CSV for other formats."""
        if kind in {"csv", "tsv"}:
            return
        remedies = {
            "na": "Put None or nan there in the source",
            "delimiter": "Leave it out",
            "header": "Leave it out",
        }
        for option, value in self.told.items():
            if option in self.literals.given:
                continue
            raise ParameterError(
                f"{_WHERE}: `{option}` must be left out unless the source is CSV or TSV, got "
                f"{value!r} for {name}. {remedies[option]}."
            )

    def passes(self, key: str) -> bool:
        """Whether to leave out a key of JSON and all keys within its value."""
        if key in self.dropped or self.only is None:
            return key in self.dropped
        return not any(name == key or name.startswith(f"{key}.") for name in self.only)

    def place(self, file: Path | Remote, name: str | None = None) -> Source:
        """The source that reads a Path or a Remote; ``name`` is by default its last part."""
        kind = self.format or format_of(file.name)
        if is_read_once(file, kind):
            opened = file.open("rb")
            source = replace(self, format=kind).stream(opened, name or str(file))
            weakref.finalize(source, opened.close)
            return source
        if kind is None:
            suffix = "".join(f".{part}" for part in file.name.split(".")[1:][-2:])
            if suffix.lower().endswith(tuple(f".parquet{packing}" for packing in PACKED)):
                remedy = "Parquet is packed within: unpack the file"
            else:
                remedy = f"Rename the file, convert it, or give format= ({', '.join(FORMATS)})"
            raise SourceError(
                f"{_WHERE}: {file} must have one of the suffixes {', '.join(SUFFIXES)}, where it "
                f"is text or Arrow also with {', '.join(PACKED)}, got {suffix or 'none'!r}. "
                f"{remedy}."
            )
        return self._opened(kind, file, name or file.name)

    def stream(self, file: IO[bytes] | IO[str], name: str) -> Source:
        """The source that reads a file object, whose first bytes tell what it is."""
        try:
            start = file.tell() if file.seekable() else None
        except (AttributeError, OSError, ValueError):
            start = None
        opened = Bytes(file)
        head = opened.look(16)
        kind = self.format or _sniffed(head)
        if kind != "parquet" and not head.startswith(MARK):
            return self._opened(kind, opened, name)
        if start is not None and opened.packing is None and isinstance(file.read(0), bytes):
            file.seek(start)
            return self._opened(kind, file, name)
        laid = spooled(opened)
        source = self._opened(kind, laid, name)
        weakref.finalize(source, laid.close)
        return source

    def _opened(self, kind: str, file: Any, name: str) -> Source:
        self.check(kind, name)
        if kind == "parquet":
            return Parquet(file, name)
        if kind == "arrow":
            return Ipc(file, name)
        if kind == "jsonl":
            return JsonLines(
                file, name, self.passes, self.literals, skip=self.skip, leave=self.leave
            )
        header: Sequence[str] | None = None
        if self.header is not True:
            header = () if self.header is False else self.header
        delimiter = self.delimiter or ("\t" if kind == "tsv" else ",")
        return Delimited(
            file, name, delimiter=delimiter, header=header, na=self.na, literals=self.literals,
            skip=self.skip, leave=self.leave, declared=self.delimiter is None,
        )  # fmt: skip


def is_read_once(file: Path | Remote, kind: str | None) -> bool:
    """Whether a path is a pipe or a device, such as /dev/stdin.

    Examples
    --------
    >>> is_read_once(Path("/dev/null"), None), is_read_once(Path(__file__), None)
    (True, False)
    """
    if isinstance(file, Remote):
        return False
    return not file.is_file() or (kind is None and file.parts[:2] == ("/", "dev"))


def _sniffed(head: bytes) -> str:
    """The format that first bytes tell; text is CSV unless it begins as an object does."""
    if head.startswith(b"PAR1"):
        return "parquet"
    if head.startswith((MARK, b"FEA1", _STREAM)):
        return "arrow"
    begin = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    return "jsonl" if begin.startswith((b'{"', b"{}", b"{ ", b"{\n")) else "csv"


_NOTHING = "__HIVE_DEFAULT_PARTITION__"


def natural(name: str) -> list[tuple[int, int, str]]:
    """A key by which names stand as a person would order them.

    Parameters
    ----------
    name : str
        A name, or a path.

    Examples
    --------
    >>> sorted(["b10.csv", "b9.csv", "a.csv"], key=natural)
    ['a.csv', 'b9.csv', 'b10.csv']
    >>> len(natural("a1b"))
    3
    """
    words = [word for word in re.split(r"(\d+)", name) if word]
    return [(0, int(word), word) if word.isdigit() else (1, 0, word) for word in words]


def hive(folders: Sequence[str]) -> dict[str, str | None]:
    """The columns that folders tell.

    Parameters
    ----------
    folders : sequence of str
        Their names.

    Examples
    --------
    >>> hive(["logs", "year=2024", "place=a%20b"])
    {'year': '2024', 'place': 'a b'}
    >>> len(hive(["logs"]))
    0
    """
    pairs = [folder.split("=", 1) for folder in folders if re.match(r"[^=]+=", folder)]
    return {unquote(k): None if v == _NOTHING else unquote(v) for k, v in pairs}


@dataclass(frozen=True, slots=True)
class Part:
    """One file of several.

    Parameters
    ----------
    name : str
        What messages call it.
    open : callable
        Gives its source.
    size : int
        Its bytes, for the progress.
    told : dict of str to str or None
        Columns that its folders tell.
    """

    name: str
    open: Callable[[], Source]
    size: int
    told: Mapping[str, str | None]


class Parts:
    """Files one after the other.

    Parameters
    ----------
    parts : sequence of Part
        At least one, in order.
    name : str
        What messages call them together.
    literals : Literals
        How text is parsed.
    skip : bool
        Whether rows with a value that is not of its column's kind are skipped.
    repeatable : bool
        Whether all of them can be read again.

    Raises
    ------
    ColumnError
        While reading: if a file has other columns than the first.
    """

    n_rows: int | None = None

    def __init__(
        self,
        parts: Sequence[Part],
        name: str,
        literals: Literals = Literals(),  # noqa: B008  it does not change
        *,
        skip: bool = False,
        repeatable: bool = True,
    ) -> None:
        self.name = name
        self.repeatable = self.ahead = repeatable
        self._skip = skip
        self._parts = list(parts)
        self._begins: list[tuple[int, str]] = []
        self._first = self._parts[0].open()
        self._literals = literals
        self._odd: list[Oddity] = []
        self._current = self._first
        values = {n: [part.told.get(n) for part in self._parts] for n in self._parts[0].told}
        self._numbers = {n for n, told in values.items() if all(map(_is_number, told))}

    def columns(self) -> list[str] | None:
        """Those of the first file, then those that folders tell."""
        return self._columns(self._first, self._parts[0])

    def kinds(self) -> dict[str, str]:
        """What the first file is certain of."""
        told = {n: "f" if n in self._numbers else "O" for n in self._parts[0].told}
        return {**self._first.kinds(), **told}

    def oddities(self) -> list[Oddity]:
        """The columns to report of the files read so far."""
        return [*self._odd, *getattr(self._current, "oddities", list)()]

    def located(self, row: int) -> str:
        """The file, and the row in it."""
        for begin, name in reversed(self._begins):
            if begin <= row:
                return f"{name}: row {row - begin} (counting from 0)"
        return f"{self.name}: row {row} (counting from 0)"

    def pieces(
        self, names: Sequence[str] | None, types: Mapping[str, str], block: int, start: int = 0
    ) -> Iterator[Piece]:
        """The rows of all files."""
        every = self.columns()
        if every is not None and set(every) - set(self.kinds()):
            start = 0  # a column that is empty in the first file may hang on any of the others
        known = {n: KINDS[letter] for n, letter in self.kinds().items()}
        begins, seen, done = [], 0, 0
        whole = sum(part.size for part in self._parts) or 1
        for i, part in enumerate(self._parts):
            self._odd = self.oddities() if i else []
            self._current = source = part.open() if i else self._first
            self._same(source, part, every)
            begins.append((seen, part.name))
            self._begins = begins
            if getattr(source, "leave", None) is not None:
                source.leave = max(0, source.leave - seen)  # type: ignore[attr-defined]
            if source.n_rows is not None and LOOKED_AT <= seen <= start - source.n_rows:
                yield Piece(Table({}, source.n_rows), fraction=(done + part.size) / whole)
                seen, done = seen + source.n_rows, done + part.size
                continue
            inner = None if names is None else [n for n in names if n not in part.told]
            asked = {**known, **types} if i else types
            kinds = Kinds(asked if i else {}, self.located, literals=self._literals)
            for piece in source.pieces(inner, asked, block, max(0, start - seen)):
                bad = dict(piece.bad) if self._skip else None
                table = kinds.fit(piece.table, seen, bad) if piece.table.columns else piece.table
                seen += len(table)
                known |= {n: w for n, w in _shown(table).items() if n not in known}
                share = (done + part.size * (piece.fraction or 0.0)) / whole
                table = self._with(table, part, names)
                yield replace(piece, table=table, fraction=share, bad=bad or {})
            done += part.size

    def _columns(self, source: Source, part: Part) -> list[str] | None:
        names = source.columns()
        return None if names is None else [*names, *(n for n in part.told if n not in names)]

    def _same(self, source: Source, part: Part, every: list[str] | None) -> None:
        """Refuse a file that has other columns than the first."""
        there = self._columns(source, part)
        if every is None or there is None:
            return
        lacks, more = sorted(set(every) - set(there)), sorted(set(there) - set(every))
        if lacks or more:
            came = [f"no {listed(lacks)}"] if lacks else []
            came += [f"{listed(more)} too"] if more else []
            raise ColumnError(
                f"op.stream.read: {part.name} must have the columns of {self._parts[0].name}, got "
                f"{' and '.join(came)}. Fix the file, or leave it out."
            )

    def _with(self, table: Table, part: Part, names: Sequence[str] | None) -> Table:
        """The table with what the folders tell, in the order asked for."""
        columns = dict(table.columns)
        for name, value in part.told.items():
            if names is None or name in names:
                word = float(value) if value is not None and name in self._numbers else value
                kind = "f" if name in self._numbers else "O"
                known = np.full(len(table), word, dtype=float if kind == "f" else object)
                columns[name] = absent(kind, len(table)) if value is None else known
        order = columns if names is None else [n for n in names if n in columns]
        return Table({n: columns[n] for n in order}, len(table))


def _shown(table: Table) -> dict[str, str]:
    """The kinds of columns that have a value."""
    shown = [(n, c) for n, c in table.columns.items() if not is_missing(c).all()]
    return {name: KINDS[column.dtype.kind] for name, column in shown}


def _is_number(text: str | None) -> bool:
    try:
        return text is None or np.isfinite(float(text))
    except ValueError:
        return False
