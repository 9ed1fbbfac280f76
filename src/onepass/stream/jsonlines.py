"""JSON Lines as a source: one object a line; keys within an object are named ``outer.inner``.

A row is a line that holds one JSON object; blank lines are skipped. Several objects on a line, an
object over several lines and an array are errors.

Keys that a line lacks are missing there, as null is, and any line may have new keys. A column is
text, numbers or booleans; text is dates, times of day or durations if all its first values are
(:mod:`onepass.stream.dtypes`).

msgspec decodes the lines. Texts that it refuses are decoded by the standard library, which also
accepts NaN and reports the line of an error. Of duplicate keys in an object, the last value is
used.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from onepass.errors import SourceError
from onepass.stream.csv import Lines, skip_unterminated
from onepass.stream.files import Bytes, File
from onepass.stream.literals import SKIP_REMEDY
from onepass.stream.sources import BaseSource, Chunk, columns_of_dicts

__all__ = ["JsonLines"]

_SAMPLE = 4 << 20  # bytes of the first chunk, from which types are inferred
_CHUNK = 256 << 10  # bytes parsed at a time
_OBJECTS = msgspec.json.Decoder(dict[str, Any])


class JsonLines(BaseSource):
    """Rows of a file of JSON Lines, or of a pipe.

    Parameters
    ----------
    source : File or Bytes
        A file can be read repeatedly, bytes once.
    name : str
        The name in messages.
    passes : callable, optional
        Whether to leave out a key and all keys within its value, by its full name.
    skip : bool
        Whether lines that cannot be parsed are skipped.
    leave : int or None
        The first row that is left unread if it is unterminated; None for none.

    Raises
    ------
    SourceError
        While reading: if a line is not an object.
    """

    def __init__(
        self,
        source: File | Bytes,
        name: str,
        passes: Callable[[str], bool] = lambda name: not name,
        *,
        skip: bool = False,
        leave: int | None = None,
    ) -> None:
        super().__init__(name, repeatable=isinstance(source, File))
        self._source = source
        self._passes = passes
        self._skip, self.leave = skip, leave

    def columns(self) -> None:
        """None: any row may have new columns."""

    def chunks(self, names: Sequence[str] | None, block: int, start: int = 0) -> Iterator[Chunk]:
        """The rows, some hundred kibibytes of text at a time; some mebibytes at first."""
        del names, block, start  # selected and skipped by the caller; bounded by their bytes
        opened = self._source if isinstance(self._source, Bytes) else Bytes(self._source, self.name)
        first = line = 0
        try:
            pieces = Lines(self.name).chunks(opened, _SAMPLE, _CHUNK, whole=self.leave is None)
            for text, whole in pieces:
                blank = not text.strip()
                if not whole and (blank or skip_unterminated(self.name, first, self.leave)):
                    return
                if not first and text.lstrip().startswith(b"["):
                    raise self._error(
                        "one JSON object a line, got an array. Write its elements as lines, as "
                        "with: jq -c '.[]'"
                    )
                bad: dict[int, str] = {}
                rows = self._rows(text, line, bad)
                columns = self._columns(rows)
                first, line = first + len(rows), line + text.count(b"\n")
                yield Chunk(columns, len(rows), "json", fraction=opened.fraction, bad=bad)
            if not first:
                raise self._error("rows, got an empty file. Check that it was written")
        finally:
            opened.close()

    def _error(self, error: str) -> SourceError:
        return SourceError(f"op.stream.read: {self.name} must hold {error}.")

    def _rows(self, text: bytes, line: int, bad: dict[int, str]) -> list[dict[str, Any]]:
        """The objects of some lines."""
        try:
            return [_OBJECTS.decode(one) for one in text.split(b"\n") if one.strip()]
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            rows: list[dict[str, Any]] = []
        for number, one in enumerate(text.split(b"\n"), line + 1):
            if one.strip():
                try:
                    rows.append(_decoded(one))
                except (ValueError, TypeError, RecursionError) as error:
                    shown = one.strip()[:60].decode("utf-8", "replace")
                    why = "it is nested too deeply" if isinstance(error, RecursionError) else error
                    message = (
                        f"op.stream.read: {self.name}: line {number} must be one JSON object in "
                        f"UTF-8, got {shown!r} ({why}). Fix the line, or give {SKIP_REMEDY}."
                    )
                    if not self._skip:
                        raise SourceError(message) from None
                    bad[len(rows)] = message
                    rows.append({})
        return rows

    def _columns(self, rows: list[dict[str, Any]], before: str = "") -> dict[str, list[Any]]:
        """The values of each column by its full name, including nested objects."""
        columns: dict[str, list[Any]] = {}
        for key, values in columns_of_dicts(rows).items():
            name = before + key
            if self._passes(name):
                continue
            found = {name: values}
            if dict in set(map(type, values)):
                objects = [value if isinstance(value, dict) else {} for value in values]
                found = self._columns(objects, f"{name}.")
                others = [None if isinstance(value, dict) else value for value in values]
                if any(value is not None for value in others):
                    found[name] = others
            for full, column in found.items():  # "a.b" may stand beside "b" in "a"
                known = columns.get(full, column)
                pairs = zip(known, column, strict=True)
                columns[full] = (
                    column if known is column else [a if b is None else b for a, b in pairs]
                )
        return columns


def _decoded(line: bytes) -> dict[str, Any]:
    """The object of one line."""
    value = json.loads(line)
    if not isinstance(value, dict):
        raise TypeError(f"it is a {type(value).__name__}")
    json.dumps(value, ensure_ascii=False).encode()  # refuses a lone surrogate
    return value
