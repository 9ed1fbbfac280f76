"""JSON Lines as a source: one object per line; nested keys are named ``outer.inner``.

A row is a line with one JSON object; blank lines are skipped. Several objects on a line, an object
over several lines and an array are errors.

The values of absent keys are missing, like null, and any line may have new keys. A column contains
text, numbers or booleans. Text may be dates, times of day or durations
(:mod:`onepass.stream.dtypes`).

msgspec decodes the lines. Text that it rejects is decoded by the standard library, which also
accepts NaN and reports the line of an error. If a key of an object is duplicated, the last value is
used.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from onepass.errors import EmptySourceError, OnepassError, SourceError
from onepass.stream.csv import Lines, skip_unterminated
from onepass.stream.files import Bytes, File
from onepass.stream.literals import SKIP_REMEDY
from onepass.stream.sources import BaseSource, Chunk, columns_of_dicts

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
        Returns whether to exclude a key, given by its full name, and all keys within its value.
    skip : bool
        Whether lines that cannot be parsed are skipped.
    leave : int or None
        The first row that is skipped if it is unterminated; None to read all rows.

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
        """Return None: any row may have new columns."""

    def chunks(self, names: Sequence[str] | None, block: int, start: int = 0) -> Iterator[Chunk]:
        """Yield the rows in chunks of 256 KiB of text; the first chunk has 4 MiB."""
        del names, block, start  # the caller selects and skips; chunks are bounded by bytes
        opened = self._source if isinstance(self._source, Bytes) else Bytes(self._source, self.name)
        first = line = 0
        try:
            pieces = Lines(self.name).chunks(opened, _SAMPLE, _CHUNK, whole=self.leave is None)
            for text, whole in pieces:
                blank = not text.strip()
                if not whole and (blank or skip_unterminated(self.name, first, self.leave)):
                    return
                if not first and text.lstrip().startswith(b"["):
                    raise SourceError(
                        f"{self.name} must contain one JSON object per line, got an array. Write "
                        "its elements as lines, for example by: jq -c '.[]'."
                    )
                bad: dict[int, OnepassError] = {}
                rows = self._rows(text, line, bad)
                columns = self._columns(rows)
                first, line = first + len(rows), line + text.count(b"\n")
                yield Chunk(columns, len(rows), "json", fraction=opened.fraction, bad=bad)
            if not first:
                raise EmptySourceError(
                    f"{self.name} must contain rows, got an empty file. Check that it was written."
                )
        finally:
            opened.close()

    def _rows(self, text: bytes, line: int, bad: dict[int, OnepassError]) -> list[dict[str, Any]]:
        """Parse lines to objects; store the errors of invalid lines in ``bad``."""
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
                    why = "nested too deeply" if isinstance(error, RecursionError) else error
                    bad[len(rows)] = SourceError(
                        f"{self.name}: line {number} must be one JSON object in UTF-8",
                        got=f"{shown!r} ({why})",
                        remedy=f"Fix the line, or pass {SKIP_REMEDY}.",
                    )
                    if not self._skip:
                        raise bad[len(rows)] from None
                    rows.append({})
        return rows

    def _columns(self, rows: list[dict[str, Any]], before: str = "") -> dict[str, list[Any]]:
        """Return the values of each column by its full name, including nested objects."""
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
            for full, column in found.items():  # "a.b" and "b" in "a" may both occur
                first = columns.get(full, column)
                columns[full] = [a if b is None else b for a, b in zip(first, column, strict=True)]
        return columns


def _decoded(line: bytes) -> dict[str, Any]:
    """Parse one line."""
    value = json.loads(line)
    if not isinstance(value, dict):
        raise TypeError(f"the line is a {type(value).__name__}")
    json.dumps(value, ensure_ascii=False).encode()  # raises for a lone surrogate
    return value
