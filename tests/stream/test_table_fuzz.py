"""Random tables: values are read as written, or an error or a warning names the place.

Each case draws a format, a type of column, a format of its values and a damage. The values read
must be the values written. Otherwise an error must name the column or the row, or one warning must
name the column that is read as text.

``ONEPASS_FUZZ_TABLES=20000 pytest tests/stream/test_table_fuzz.py`` runs 20000 cases;
``ONEPASS_FUZZ_SEED`` is the seed of the first one.
"""

import datetime as dt
import json
import math
import os
import warnings
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import feather

from onepass.cli import main
from onepass.errors import MixedColumnWarning, OnepassError
from onepass.stream import read
from sampling import ALL

CASES = int(os.environ.get("ONEPASS_FUZZ_TABLES", "600" if ALL else "300"))
PARTS = 3
SEED = int(os.environ.get("ONEPASS_FUZZ_SEED", "0"))
FORMATS = ("csv", "tsv", "semicolon", "jsonl", "parquet", "arrow", "frame")
TEXT = FORMATS[:3]
TYPED = FORMATS[4:]
JUNK = ("?", "unknown", "0x1F", "--", "12..5", "2024-13-45", "1 2 3", "10:75", "NaN!")
OTHER = {  # what is right in a column of another kind
    "number": ("2024-01-01", "10:30", "true"), "date": ("5", "10:30", "13/13/2024", "true"),
    "span": ("5", "2024-01-01"), "code": ("x1", "2024-01-01"), "truth": ("maybe", "2024-01-01"),
}  # fmt: skip


@dataclass
class Column:
    """Values, their text, and the options that read them."""

    true: list[Any]
    written: list[str]
    options: dict[str, Any] = field(default_factory=dict)
    ambiguous: bool = False
    quoted: bool = False  # text in a format that could hold the values
    warned: bool = False  # must be reported, as text or by an error

    @property
    def different(self) -> int:
        """The number of different texts."""
        return len({text for text in self.written if text is not None})


def grouped(value: float, decimal: str, thousands: str) -> str:
    return f"{value:,.2f}".replace(",", "_").replace(".", decimal).replace("_", thousands)


def numbers(rng: np.random.Generator, n: int) -> Column:
    """Numbers in some spelling, large enough to have groups of digits."""
    values = [round(float(x), 2) for x in rng.normal(size=n) * 10.0 ** rng.integers(0, 7)]
    if rng.random() < 0.3:
        values = [float(int(x)) for x in values]
    if rng.random() < 0.4:
        return Column(values, [str(rng.choice([repr(x), f"{x:.2f}", f"{x:+.2f}"])) for x in values])
    decimal, thousands = (
        (",", ""), (",", "."), (".", ","), (",", " "), (".", "'"), (",", "\u00a0")
    )[rng.integers(6)]  # fmt: skip
    written = [grouped(x, decimal, thousands) for x in values]
    return Column(values, written, {"decimal": decimal, "thousands": thousands})


def dates(rng: np.random.Generator, n: int) -> Column:
    """Dates in some form, with or without a time of day and an offset."""
    day, options = (
        ("%Y-%m-%d", {}), ("%Y/%m/%d", {}), ("%d.%m.%Y", {}), ("%b %d, %Y", {}), ("%d %B %Y", {}),
        ("%m/%d/%Y", {"date_format": "%m/%d/%Y"}), ("%d/%m/%Y", {"date_format": "%d/%m/%Y"}),
        ("%d-%m-%Y", {"date_format": "%d-%m-%Y"}), ("%Y-%m", {}),
        ("%A %d %b %y", {"date_format": "%A %d %b %y"}), ("%d-%b-%y", {}), ("%b-%d-%Y", {}),
        ("%B %Y", {}),
    )[rng.integers(13)]  # fmt: skip
    time, digits = (
        ("", 0), (" %H:%M", 4), (" %H:%M:%S", 6), (" %I:%M %p", 4), (" %H:%M:%S.%f", 12)
    )[rng.integers(5)]  # fmt: skip
    zone = str(rng.choice(["", "Z", "+02:00", "-0530"])) if time and rng.random() < 0.3 else ""
    few = rng.random() < 0.5  # days up to 12 may be months
    values, written = [], []
    for _ in range(n):
        at = dt.datetime(2000 + int(rng.integers(30)), int(rng.integers(1, 13)), 1)  # noqa: DTZ001
        if "%d" in day:
            at += dt.timedelta(days=int(rng.integers(12 if few else 28)))
        at += dt.timedelta(seconds=int(rng.integers(86400)), microseconds=int(rng.integers(10**6)))
        keep = {0: (0, 0, 0), 4: (at.minute, 0, 0), 6: (at.minute, at.second, 0)}
        minute, second, micro = keep.get(digits, (at.minute, at.second, at.microsecond))
        at = at.replace(hour=at.hour if digits else 0, minute=minute, second=second)
        at = at.replace(microsecond=micro)
        text = at.strftime(day + time)
        written.append(text + ("789" if digits == 12 and rng.random() < 0.5 else "") + zone)
        offset = {"+02:00": 120, "-0530": -330}.get(zone, 0)
        values.append(np.datetime64(at - dt.timedelta(minutes=offset), "us"))
    swapped = day in {"%m/%d/%Y", "%d/%m/%Y", "%d-%m-%Y"}
    return Column(values, written, dict(options), ambiguous=swapped)


def spans(rng: np.random.Generator, n: int) -> Column:
    """Times of day or durations, in seconds."""
    values = [float(x) for x in rng.integers(0, 86400, size=n)]
    if rng.random() < 0.3:
        values = [x + 0.5 for x in values]
    if rng.random() < 0.3:
        return Column(values, [f"PT{x:g}S" for x in values])
    start = dt.datetime(2000, 1, 1)  # noqa: DTZ001
    return Column(values, [str((start + dt.timedelta(seconds=x)).time()) for x in values])


def codes(rng: np.random.Generator, n: int) -> Column:
    """Digits, some of which begin with zero."""
    written = [f"{x:05d}" for x in rng.integers(0, 20000, size=n)]
    return Column([*written[:-1], "00042"], [*written[:-1], "00042"])


def words(rng: np.random.Generator, n: int) -> Column:
    """Text."""
    pool = ("low", "high", "a b", "x-1", "é", "v1.2.3", "007x", "1/2", "N.A.", "T", "12:3")
    written = [str(rng.choice(pool[: rng.integers(2, len(pool) + 1)])) for _ in range(n)]
    return Column(list(written), written)


def truths(rng: np.random.Generator, n: int) -> Column:
    """Truth values."""
    values = [float(x) for x in rng.integers(0, 2, size=n)]
    one, zero = (("true", "false"), ("True", "False"), ("TRUE", "FALSE"))[rng.integers(3)]
    return Column(values, [one if x else zero for x in values])


def affixed(rng: np.random.Generator, n: int) -> Column:
    """Numbers with a sign or a unit, quarters and weeks."""
    values = rng.integers(1, 2000, n)
    form = ("{}%", "{} %", "${:,.2f}", "€ {}", "{} kg", "{}km", "1980Q{}", "{}-W{:02d}")
    pick = form[rng.integers(len(form))]
    written = [
        pick.format(*((x % 4 + 1,) if "Q" in pick else (1990 + x % 30, x % 52 + 1) if "W" in pick
                      else (x,)))
        for x in values.tolist()
    ]  # fmt: skip
    if "Q" in pick:
        written = [f"{1980 + i}{text[4:]}" for i, text in enumerate(written)]
    return Column(list(written), written, ambiguous=True, warned=True)


KINDS: dict[str, Callable[[np.random.Generator, int], Column]] = {
    "number": numbers, "date": dates, "span": spans, "code": codes, "text": words, "truth": truths,
    "affixed": affixed,
}  # fmt: skip


@dataclass
class Case:
    """A table, its source, and the expected values."""

    source: Any
    options: dict[str, Any]
    name: str
    column: Column
    junk: bool
    right: bool
    what: str


def damaged(rng: np.random.Generator, form: str, kind: str, column: Column) -> bool:
    """Remove or replace some values; return whether any was replaced."""
    n, gaps = len(column.written), float(rng.choice([0.0, 0.1]))
    for i in range(1, n - 1):
        if rng.random() < gaps:
            column.true[i] = column.written[i] = None
    plain = form not in TEXT and (form != "jsonl" or kind == "code")  # text there is text
    if (plain and not column.quoted) or kind in {"text", "affixed"} or rng.random() < 0.6:
        return False
    share, words = float(rng.choice([0.0, 0.3, 0.6])), [*JUNK, *OTHER[kind]]
    word = words[rng.integers(len(words))]
    for i in range(1, n - 1):
        if i == n // 2 or (i % 4 and rng.random() < share):
            column.written[i] = word
    if kind == "date" and rng.random() < 0.3:  # an offset in one row, or in all but one
        first = column.written[0]
        zoned = first.endswith(("Z", "+02:00", "-0530"))
        column.written[n // 2] = "2024-01-01" if zoned else "2024-01-01T10:00Z"
    return True


def chosen(rng: np.random.Generator, form: str, kind: str, column: Column) -> dict[str, Any]:
    """The options that read the column, and perhaps its kind."""
    given = (form not in TYPED or column.quoted) and (
        bool(rng.random() < 0.5) or "%A" in str(column.options)
    )
    options: dict[str, Any] = {**(column.options if given else {}), "target": "y"}
    asked = {"number": "number", "date": "date", "truth": "bool", "span": "number"}.get(kind)
    if asked and (rng.random() < 0.15 or (form == "jsonl" and given and kind == "number")):
        options["types"] = {"c": asked}
    return options | ({"delimiter": ";"} if form == "semicolon" else {})


def known(form: str, column: Column, options: dict[str, Any]) -> bool:
    """Whether an undamaged column must be read right by these options."""
    local = "decimal" in column.options
    if (form in TYPED and not column.quoted) or (
        column.options and column.options.keys() <= options.keys()
    ):
        return form != "jsonl" or not local or "types" in options
    return not local and not column.ambiguous


def drawn(seed: int, folder: Path) -> Case:
    """The case of a seed."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(12, 60))
    form, kind = str(rng.choice(FORMATS)), str(rng.choice(list(KINDS)))
    column = KINDS[kind](rng, n)
    column.quoted = form not in TEXT and kind in {"number", "date", "span"} and rng.random() < 0.4
    junk = damaged(rng, form, kind, column)
    options = chosen(rng, form, kind, column)
    target = bool(rng.random() < 0.3)
    rows = [{"x": i, "c": native(form, kind, column, i), "y": i * 3} for i in range(n)]
    name = "c"
    if form in {"jsonl", "parquet", "arrow"} and rng.random() < 0.3:
        name = "s.c"
        rows = [{"x": row["x"], "s": {"c": row["c"]}, "y": row["y"]} for row in rows]
    options |= {"types": {name: options["types"]["c"]}} if "types" in options else {}
    options |= {"target": name} if target else {}
    damage = str(
        rng.choice(["none"] * 8 + ["bom", "crlf", "end", "blank", "bytes", "ragged", "zip"])
    )
    source = written(form, rows, damage, folder / f"t{seed}", rng)
    column.warned |= column.quoted and kind == "number" and "types" not in options
    sound = not junk and (form in TYPED or damage not in {"bytes", "ragged"})
    fits = not (target and kind in {"text", "code", "date"})
    what = f"seed {seed}: {form} {kind} {options} junk={junk} damage={damage}: {column.written[:4]}"
    right = sound and fits and not column.warned and known(form, column, options)
    return Case(source, options, name, column, junk, right, what)


def native(form: str, kind: str, column: Column, i: int) -> Any:
    """A value as a format holds it."""
    value, text = column.true[i], column.written[i]
    if form in TEXT or text is None or column.quoted:
        return text
    if form == "jsonl":
        try:
            own = {"number": float, "truth": lambda t: json.loads(t.lower())}.get(kind, str)
            return own(text)
        except ValueError:
            return text
    if kind == "span":
        return (dt.datetime(2000, 1, 1) + dt.timedelta(seconds=value)).time()  # noqa: DTZ001
    return {"date": lambda v: v.astype(object), "truth": bool}.get(kind, lambda v: v)(value)


def written(form: str, rows: list[dict[str, Any]], damage: str, path: Path, rng: Any) -> Any:
    """The rows in a format: a path or a frame."""
    if form == "frame":
        return pd.DataFrame(rows)
    if form in {"parquet", "arrow"}:
        path = path.with_suffix(f".{form}")
        table = pa.Table.from_pylist(rows)
        (pq.write_table if form == "parquet" else feather.write_feather)(table, path)
        return path
    if form == "jsonl":
        text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    else:
        mark = {"csv": ",", "tsv": "\t", "semicolon": ";"}[form]
        text = pd.DataFrame(rows, dtype=object).to_csv(index=False, sep=mark)
    lines = text.splitlines(keepends=True)
    at = int(rng.integers(1, len(lines)))
    if damage == "ragged":
        lines[at] = lines[at].rstrip("\n") + ("}" if form == "jsonl" else ",;\t") + "\n"
    if damage == "blank":
        lines.insert(at, "\n")
    data = "".join(lines).encode()
    if damage == "bytes":
        data = data.replace(b"\n", b"\xff\n", 3)
    if damage == "crlf":
        data = data.replace(b"\n", b"\r\n")
    data = data.removesuffix(b"\n") if damage == "end" else data
    data = b"\xef\xbb\xbf" + data if damage == "bom" else data
    path = path.with_suffix({"semicolon": ".csv"}.get(form, f".{form}"))
    if damage == "zip":
        path, name = path.with_name(path.name + ".zip"), path.name
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr(name, data)
        return path
    path.write_bytes(data)
    return path


def same(got: Any, expected: list[Any]) -> bool:
    """Whether a column holds some values; nan, NaT and None are missing."""

    def shown(value: Any) -> Any:
        missing = value is None or value != value  # noqa: PLR0124
        return None if missing else value

    shown_values = [shown(v) for v in (got.tolist() if got.dtype.kind != "M" else list(got))]
    return shown_values == [shown(v) for v in expected] if len(got) == len(expected) else False


def is_number(text: str | None) -> bool:
    """Whether a text is a plain number."""
    try:
        return text is not None and math.isfinite(float(text))
    except ValueError:
        return False


def fault(case: Case, message: str) -> str:
    """The fault of an error, or an empty string."""
    if case.right:
        return f"refused, although all is right: {message}"
    named = any(word in message for word in (repr(case.name), "row", "line", "UTF-8"))
    return "" if "\n" not in message and named else f"an error that names nothing: {message}"


def verdict(case: Case) -> str:
    """The fault of the outcome, or an empty string."""
    blocks = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            stream = read(case.source, **case.options)
            assert stream.task
            blocks = list(stream)
        except OnepassError as wrong:
            return fault(case, str(wrong))
    warned = [str(one.message) for one in caught]
    if len(warned) > 1 or any(repr(case.name) not in one for one in warned):
        return f"warnings of other things, or too many: {warned}"
    target = case.options["target"] == case.name
    parts = [rows.y if target else rows.X[case.name] for rows in blocks]
    got = np.concatenate([part for part in parts if part is not None])
    keep = [i for i, w in enumerate(case.column.written) if w is not None or not target]
    values = [case.column.true[i] for i in keep]
    text = [case.column.written[i] for i in keep]
    truths = not case.junk and set(values) <= {0.0, 1.0}
    if target and truths and got.dtype.kind == "O":  # labels, as written
        got, values = np.char.lower(got.astype(str)), [word.lower() for word in text]
    if case.column.warned and not (warned or case.junk) and case.column.different >= 5:
        return f"no warning of {text[:5]}"
    if not case.junk and same(got, values) and (not warned or "zeros" in warned[0]):
        return ""
    plain = [word for word in text if is_number(word)]
    few = len(set(plain)) < 5 or 2 * len(plain) <= len(list(filter(None, text)))
    if (warned or (case.column.quoted and few)) and not case.right and same(got, text):
        return ""
    return f"other values, silently or with {warned}: {got[:5]}, not {values[:5]}"


@pytest.mark.parametrize("part", range(PARTS))
def test_random_tables_are_read_or_refused_with_one_message(part: int, tmp_path: Path) -> None:
    wrong = []
    for seed in range(SEED + part, SEED + CASES, PARTS):
        case = drawn(seed, tmp_path)
        found = verdict(case)
        if found:
            wrong.append(f"{case.what}\n    {found}")
    assert not wrong, f"{len(wrong)} of {CASES // PARTS} cases:\n" + "\n".join(wrong[:10])


@pytest.mark.parametrize("seed", range(SEED, SEED + CASES, max(15, CASES // 10)))
def test_random_tables_give_one_message_on_the_command_line(
    seed: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    case = drawn(seed, tmp_path)
    if not isinstance(case.source, Path):
        pytest.skip("no file")
    words = ["run", str(case.source), "-q", "--past", "0"]
    for option, value in case.options.items():
        pair = value if option != "types" else "=".join(next(iter(value.items())))
        words += [f"--{'type' if option == 'types' else option.replace('_', '-')}", pair]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", MixedColumnWarning)
            stream = read(case.source, **case.options)
            code = 0 if stream.task and list(stream) else 1
    except OnepassError:
        code = 1
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        assert main(words) in {code, 2 * code}, case.what
    err = capsys.readouterr().err
    assert err.count("\n") <= 1, (case.what, err)
    assert not code or ": " in err, (case.what, err)
