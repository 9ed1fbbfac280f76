"""Formats: which there are, by which suffixes and first bytes they are known, and how to open one.

To add a format is to write its source and to add it here.
"""

import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from onepass.errors import ParameterError, SourceError, meant
from onepass.stream.bytestream import Bytes
from onepass.stream.delimited import Delimited
from onepass.stream.ipc import MARK, Ipc, spooled
from onepass.stream.jsonlines import JsonLines
from onepass.stream.literals import Literals
from onepass.stream.parquet import Parquet
from onepass.stream.pieces import Source
from onepass.stream.remote import Remote

__all__ = ["FORMATS", "PACKED", "SUFFIXES", "Reading", "format_of", "is_read_once"]

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

    def place(self, file: Any, name: str | None = None) -> Source:
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

    def stream(self, file: Any, name: str) -> Source:
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
