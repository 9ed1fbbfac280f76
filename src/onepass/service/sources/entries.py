"""Entries: what stands in a stream of Redis, as rows."""

import datetime as dt
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from onepass.errors import OnepassError, SourceError
from onepass.service.sources.address import Address
from onepass.service.sources.source import Piece
from onepass.validation.table import Table

__all__ = ["Entry", "piece_of"]

Entry = tuple[bytes, dict[bytes, bytes]]
"""An id, and the fields."""

_LARGEST = 1 << 20  # bytes of an entry
_LATEST = 253_402_300_800_000  # milliseconds since 1970: the year 10000


def piece_of(
    entries: Sequence[Entry],
    address: Address,
    before: int,
    **more: Any,
) -> Piece:
    """Entries as rows, those that are none left out.

    Parameters
    ----------
    entries : sequence of Entry
        In order.
    address : Address
    before : int
        How many entries the stream had before them.
    **more
        As :class:`Piece` takes it.
    """
    rows: list[Any] = []
    answers, times, positions, refused = [], [], [], []
    position = more.pop("position")
    for number, (raw, fields) in enumerate(entries, before + 1):
        name = raw.decode()
        position = f"{name}/{number}"
        try:
            row, answer, time = _row(name, fields, address)
        except SourceError as odd:
            refused.append((len(rows), f"{address.name}: entry {name} {odd}"))
            continue
        rows.append(row)
        answers.append(answer)
        times.append(time)
        positions.append(position)
    X: Any = rows
    with suppress(OnepassError):  # a column is text here and a number there: some are refused
        X = Table.from_rows(rows)
    return Piece(
        address.name, position, positions, X, _array(answers),
        None if address.time is None else _array(times), refused, **more,
    )  # fmt: skip


def _row(
    name: str, fields: dict[bytes, bytes], address: Address
) -> tuple[dict[str, Any], Any, Any]:
    """The row, its answer and its time."""
    size = sum(map(len, fields)) + sum(map(len, fields.values()))
    if size > _LARGEST:
        raise SourceError(f"must have at most {_LARGEST:,} bytes, got {size:,}.")
    try:
        words = {field.decode(): text.decode() for field, text in fields.items()}
    except UnicodeDecodeError:
        raise SourceError("must be text in UTF-8, got other bytes.") from None
    target, when = address.target, address.time
    answer = _value(words.pop(target, ""), text=target in address.text)
    if answer is None or answer != answer:  # noqa: PLR0124  nan
        came = "none" if answer is None else "nan"
        raise SourceError(f"must have an answer in its field {target!r}, got {came}.")
    time = None
    if when == "id":
        at = int(name.partition("-")[0])
        if at >= _LATEST:
            raise SourceError(f"must have an id that is a time in milliseconds, got {name[:40]}.")
        time = np.datetime64(at, "ms").astype("datetime64[us]")
    elif when is not None:
        time = _time(words.pop(when, ""), when)
    row = {
        field: _value(text, text=field in address.text)
        for field, text in words.items()
        if field not in address.drop
    }
    return row, answer, time


def _value(word: str, *, text: bool) -> Any:
    """A number if it reads as one; None if it is empty."""
    if not word:
        return None
    if text or "_" in word:  # Python takes 1_000 for a number
        return word
    try:
        return float(word)
    except ValueError:
        return word


def _time(word: str, field: str) -> Any:
    """A number, or a date."""
    found = _value(word, text=False)
    if isinstance(found, str):
        with suppress(ValueError):
            found = dt.datetime.fromisoformat(word)  # without a zone it is taken as UTC
    if found is None or isinstance(found, str):
        came = f"{word[:40]!r}" if word else "none"
        raise SourceError(
            f"must have a number or a date such as 2026-11-22T23:08:40Z in its field {field!r}, "
            f"got {came}."
        )
    return found


def _array(values: list[Any]) -> Any:
    """Values of one kind as an array of it, others as they are."""
    if len({type(value) for value in values}) == 1 and not isinstance(values[0], str):
        return np.array(values)
    found = np.empty(len(values), dtype=object)
    found[:] = values
    return found
