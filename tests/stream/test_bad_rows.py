"""Invalid rows: an error with their position, or skipped, counted and reported."""

import datetime as dt
import io
import json
import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onepass.errors import (
    MixedColumnWarning,
    NotFiniteError,
    OnepassError,
    RowsRefusedWarning,
    SourceError,
)
from onepass.stream import csv, jsonlines, read

DAMAGE = {
    "csv": (b"1\n", b"1,a,2,3\n", b"?,a,2\n", b"1,\xff,2\n", b"inf,a,2\n", b"1,a,-inf\n",
            b"1,a,x\n", b'"?","a\nb",2\n', b"1,\xed\xa0\xbd,2\n"),
    "jsonl": (b"{\n", b"[1]\n", b'{"x":"?","by":"a","y":2}\n', b'{"x":[1],"by":"a","y":2}\n',
              b'{"x":1,"by":"\xff","y":2}\n', b'{"x":1,"by":"\\ud83d","y":2}\n',
              b'{"x":1e999,"by":"a","y":2}\n',
              b'{"\\ud83d":1,"x":1,"by":"a","y":2}\n',
              b"\xff\xfe\n",
              b'{"x":' * 3000 + b"1" + b"}" * 3000 + b"\n"),
}  # fmt: skip
HEAD = 20  # valid rows at the beginning, which determine the types


def row(i: int, kind: str) -> bytes:
    x, by, y = i % 7 + 0.5, "abc"[i % 3], i % 5
    if kind == "csv":
        return f"{x},{by},{y}\n".encode()
    return json.dumps({"x": x, "by": by, "y": y}).encode() + b"\n"


@st.composite
def damaged(draw: st.DrawFn) -> tuple[str, list[bytes], list[int]]:
    """A format, the lines of a file, and which of its rows are bad."""
    kind = draw(st.sampled_from(sorted(DAMAGE)))
    n = draw(st.integers(HEAD, 120))
    bad = sorted(draw(st.sets(st.integers(HEAD, n - 1), max_size=12))) if n > HEAD else []
    lines = [row(i, kind) for i in range(n)]
    for i in bad:
        lines[i] = draw(st.sampled_from(DAMAGE[kind]))
    return kind, [b"x,by,y\n", *lines] if kind == "csv" else lines, bad


@pytest.fixture(autouse=True, scope="module")
def small() -> Any:
    """Parse files a few rows at a time, and infer types from the first rows."""
    with pytest.MonkeyPatch.context() as patch:
        for source, sample in ((csv, HEAD * 8), (jsonlines, HEAD * 34)):
            patch.setattr(source, "_SAMPLE", sample)
            patch.setattr(source, "_CHUNK", 200)
        yield


@given(damaged(), st.integers(1, 50), st.integers(0, 130))
def test_bad_rows_are_skipped_and_counted(
    case: tuple[str, list[bytes], list[int]], block: int, start: int
) -> None:
    kind, lines, bad = case
    n = len(lines) - (kind == "csv")
    start = min(start, n - 1)

    def rows(skip: str) -> Any:
        file = io.BytesIO(b"".join(lines))
        return read(file, target="y", format=kind, block=block, start=start, bad_rows=skip)

    bad_values = [i for i in bad if i >= start]
    good = [i for i in range(start, n) if i not in bad]
    stream = rows("skip")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        blocks = list(stream)
    x = np.concatenate([each.X["x"] for each in blocks]) if good else np.empty(0)
    assert x.tolist() == [i % 7 + 0.5 for i in good]
    assert [by for each in blocks for by in each.X["by"]] == ["abc"[i % 3] for i in good]
    assert [y for each in blocks for y in each.y] == [i % 5 for i in good]
    assert sum(len(each) + each.skipped for each in blocks) == n - start
    assert stream.bad_rows == len(bad_values)
    messages = [str(one.message) for one in caught]
    if not bad_values:
        assert messages == []
    else:
        assert len(messages) == 1
        assert f"{len(bad_values)} bad row" in messages[0]
        places = re.findall(r"object: (?:row|line) (\d+)", messages[0])
        assert len(places) == min(len(bad_values), 3)
    if bad:
        with pytest.raises(OnepassError) as refused:
            list(rows("error"))
        message = str(refused.value)
        assert "\n" not in message
        assert "bad_rows='skip' (--bad-rows skip)" in message


@pytest.mark.parametrize(
    ("values", "expected_values", "types", "remedy"),
    [
        (["?", 1, 2, 3], [1, 2, 3], {}, None),
        ([1, "a", "b", "c"], ["a", "b", "c"], {}, r"1 of the first 4 .* Pass .*--type x=number"),
        ([1, "a", "b", "c"], [1], {"x": "number"}, None),
        (["2024-01-01", "-", "2024-01-03"], ["2024-01-01", "-", "2024-01-03"], {}, "x=date"),
    ],
)
def test_majority_type_of_json_values_decides_which_rows_are_bad(
    values: list[Any], expected_values: list[Any], types: Any, remedy: str | None
) -> None:
    text = b"".join(json.dumps({"x": x, "y": 1}).encode() + b"\n" for x in values)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        stream = read(io.BytesIO(text), target="y", format="jsonl", types=types, bad_rows="skip")
        assert [x for rows in stream for x in rows.X["x"]] == expected_values
    assert stream.bad_rows == len(values) - len(expected_values)
    warned = [str(one.message) for one in caught if one.category is MixedColumnWarning]
    assert len(warned) == (remedy is not None)
    assert remedy is None or (re.search(remedy, warned[0]) and "--na" not in warned[0])


def test_prefetched_bad_rows_are_not_counted(tmp_path: Any) -> None:
    lines = [row(i, "csv") if i % 10 != 7 else b"1\n" for i in range(300)]
    (tmp_path / "rows.csv").write_bytes(b"x,by,y\n" + b"".join(lines))
    stream = read(tmp_path / "rows.csv", target="y", block=20, bad_rows="skip")
    blocks = iter(stream)
    for _ in range(3):
        next(blocks)
        assert stream.bad_rows == (stream.rows_read + 2) // 10
    with pytest.warns(RowsRefusedWarning, match=r"6 bad rows were skipped: .*; and others\.$"):
        blocks.close()
    assert stream.rows_read == 66


def test_warning_lists_the_first_bad_rows_and_their_errors() -> None:
    text = b"x,by,y\n" + b"".join(row(i, "csv") for i in range(30))
    text += b"1\n?,a,2\ninf,a,2\n1,\xff,2\n" + b"1,a,2\n"
    with pytest.warns(RowsRefusedWarning, match="4 bad rows were skipped") as caught:
        assert sum(map(len, read(io.BytesIO(text), target="y", bad_rows="skip"))) == 31
    assert str(caught[0].message) == (
        "the file object: 4 bad rows were skipped: the file object: row 30 (counting from 0) must "
        "have 3 fields, as in the first line, got 1; the file object: row 31 (counting from 0), "
        "column 'x' must be a number, as in the first rows, got '?'; the file object: row 32 "
        "(counting from 0), column 'x' must be finite, got inf; and others."
    )


def test_warning_about_skipped_rows_contains_no_remedies() -> None:
    text = b"x;y\n" + b"1,5;1\n" * 20 + b"Dr. X;1\n1 234.5;1\n"
    options: dict[str, Any] = {"target": "y", "delimiter": ";", "decimal": ",", "bad_rows": "skip"}
    with pytest.warns(RowsRefusedWarning) as caught:
        list(read(io.BytesIO(text), types={"x": "number"}, **options))
    assert str(caught[0].message).endswith(
        "got 'Dr. X'; the file object: row 21 (counting from 0), column 'x' must be a number, as "
        "requested, got '1 234.5'."
    )


def test_error_if_all_rows_are_skipped() -> None:
    stream = read(io.BytesIO(b"x,y\n1;2\n3;4\n"), target="y", bad_rows="skip")
    messages = r"2 bad ones, all skipped, the first: .*row 0 .*must have 2 fields.*got 1. Check"
    with (
        pytest.warns(RowsRefusedWarning, match="2 bad rows"),
        pytest.raises(SourceError, match=messages),
    ):
        list(stream)


def test_infinity_is_an_error_if_the_stream_has_targets() -> None:
    rows = pd.DataFrame({"x": [1.0, np.inf, 3.0], "y": [1.0, 2.0, -np.inf]})
    place = r"^op.stream.read: frame: row 1 \(counting from 0\), column 'x' must be finite, got inf"
    with pytest.raises(NotFiniteError, match=place):
        list(read(rows, target="y"))
    with pytest.warns(RowsRefusedWarning, match="2 bad rows"):
        assert [len(each) for each in read(rows, target="y", bad_rows="skip")] == [1]
    assert np.isinf(next(iter(read(rows, drop=["y"]))).X["x"]).any()  # the model judges


def test_values_of_another_type_in_memory() -> None:
    rows = [{"x": 1.0, "y": 1.0}, {"x": "a", "y": 2.0}, {"x": 3.0, "y": 3.0}]
    with pytest.raises(SourceError, match=r"row 1 .* column 'x' must be a number"):
        list(read(rows, target="y", block=1))
    with pytest.warns(RowsRefusedWarning, match="1 bad row was skipped"):
        blocks = list(read(rows, target="y", block=1, bad_rows="skip"))
    assert [float(y) for each in blocks for y in each.y] == [1.0, 3.0]


ODD: list[Any] = ["x", [1], b"x", 10**400, "\ud83d", dt.date(2024, 1, 1), {"k"}, 1j]


def object_frame(values: list[Any]) -> pd.DataFrame:
    return pd.DataFrame({"x0": pd.Series(values, dtype=object)})


@pytest.mark.parametrize(
    "form",
    [
        lambda values: [{"x0": x} for x in values],
        lambda values: [({"x0": x}, 1.0) for x in values],
        lambda values: [([x, 1.0], 1.0) for x in values],
        object_frame,
        lambda values: object_frame(values).to_numpy(),
        lambda values: (object_frame(values).to_numpy(), np.ones(len(values))),
    ],
)
@settings(max_examples=15)
@given(
    good=st.sampled_from([[1.5, 2, True], ["a", "b"]]),
    odd=st.lists(st.none() | st.sampled_from(ODD), max_size=40),
    block=st.integers(1, 50),
)
@pytest.mark.filterwarnings("ignore::onepass.errors.RowsRefusedWarning")
def test_bad_values_in_memory_are_skipped_for_any_block_size(
    form: Any, good: list[Any], odd: list[Any], block: int
) -> None:
    odd = [None if x == "x" and good[0] == "a" else x for x in odd]
    values = [good[i % len(good)] if x is None else x for i, x in enumerate([None] * 50 + odd)]
    expected_values = [v for v, x in zip(values, [None] * 50 + odd, strict=True) if x is None]
    stream = read(form(values), block=block, bad_rows="skip")
    assert [x for rows in stream for x in rows.X["x0"]] == expected_values
    assert stream.bad_rows == len(values) - len(expected_values)
    if len(expected_values) < len(values):
        row = 50 + next(i for i, x in enumerate(odd) if x is not None)
        with pytest.raises(SourceError, match=rf"row {row} .*column 'x0' must be .* got .*--bad-"):
            list(read(form(values), block=block))


@pytest.mark.parametrize(
    ("good", "bad"),
    [
        ({"x": 1.0}, [3, None, ({"x": 1.0}, 1.0), [1.0]]),
        (([1.0, 2.0], 1.0), [3, {"x": 1}, (np.ones((2, 2)), 1.0), ([1.0, 2.0], [1.0, 2.0])]),
        (([1.0, 2.0], [1.0, 2.0]), [([1.0, 2.0], 1.0), ([1.0, 2.0], {"y0": 1.0, "y1": 2.0})]),
    ],
)
@pytest.mark.parametrize("block", [1, 3, 100])
@pytest.mark.filterwarnings("ignore::onepass.errors.RowsRefusedWarning")
def test_rows_of_another_form_are_bad_rows(good: Any, bad: list[Any], block: int) -> None:
    rows = [good, good, *(row for one in bad for row in (one, good))]
    stream = read(rows, block=block, bad_rows="skip")
    assert sum(map(len, stream)) == 2 + len(bad)
    assert stream.bad_rows == len(bad)
    with pytest.raises(OnepassError, match=r"row 2 \(counting from 0\).* must "):
        list(read(rows, block=block))


@pytest.mark.filterwarnings("ignore::onepass.errors.RowsRefusedWarning")
def test_unencodable_text_and_mixed_time_zones_are_bad_rows() -> None:
    rows: list[Any] = [{"x": "a"}, {"x": "\ud83d"}]
    assert [len(each) for each in read(rows, types={"x": "text"}, bad_rows="skip")] == [1]
    day = dt.datetime(2024, 1, 1)  # noqa: DTZ001
    rows = [{"x": day}, {"x": day}, {"x": day.replace(tzinfo=dt.UTC)}]
    assert [len(each) for each in read(rows, bad_rows="skip")] == [2]
    with pytest.raises(SourceError, match=r"row 2 .* must be a date without a time zone, got"):
        list(read(rows))


def test_numbers_next_to_text_in_a_row_remain_numbers() -> None:
    (rows,) = read([([1, "a"], 1.0), ([2.5, "b"], 2.0)])
    assert rows.X.row(1) == {"x0": 2.5, "x1": "b"}


@pytest.mark.filterwarnings("ignore::onepass.errors.RowsRefusedWarning")
@pytest.mark.parametrize("size", [1, 200, 4 << 20])
@pytest.mark.parametrize("blank", [0, 1000])
@pytest.mark.parametrize(
    "text", ['{"x":1} {"x":2}\n', '{"x":\n1}\n', '[{"x":1},{"x":2}]\n', '[\n{"x":1},\n{"x":2}\n]\n']
)
def test_json_rows_must_be_single_lines_in_files_of_any_size(
    text: str, blank: int, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jsonlines, "_SAMPLE", size)
    data = b"\n" * blank + text.encode()
    for rows in ("error", "skip"):
        with pytest.raises(SourceError, match="one JSON object"):
            list(read(io.BytesIO(data), format="jsonl", bad_rows=rows))


def test_bad_rows_of_several_files_are_named_with_their_file(tmp_path: Path) -> None:
    for name, last in (("a.csv", "?"), ("b.csv", "3")):
        text = "".join(f"{i},{i}\n" for i in range(40))
        (tmp_path / name).write_text(f"x,y\n{text}{last},1\n1\n")
    with pytest.warns(RowsRefusedWarning, match=r"3 bad rows.*a.csv: row 40.*b.csv: row 41"):
        blocks = list(read(tmp_path, target="y", bad_rows="skip"))
    assert sum(map(len, blocks)) == 81
