"""Types and values of text: numbers, dates, times and codes in many formats."""

import csv
import datetime as dt
import io
import json
import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pyarrow import feather

from onepass.cli import main
from onepass.errors import MixedColumnWarning, RowsRefusedWarning, SourceError, TypeMismatchError
from onepass.stream import read
from raising import raises


def table(cells: list[str], name: str = "c") -> io.StringIO:
    """A CSV of one column beside a number."""
    text = io.StringIO()
    csv.writer(text).writerows([["x", name], *([i, cell] for i, cell in enumerate(cells))])
    return io.StringIO(text.getvalue())


def column(cells: list[str], **options: Any) -> np.ndarray[Any, Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MixedColumnWarning)
        return np.concatenate([rows.X["c"] for rows in read(table(cells), **options)])


# -- inference and conversion ------------------------------------------------------------------

TOKENS = st.sampled_from([
    "0x1F", "0x", "1e5", "1d5", "1_000", "+5", "-0", ".5", "5.", "inf", "nan", "1e400", "007",
    "2024-01-01", "2024-02-30", "2024-01-01T10", "2024-01-01 10:00:00.123456789", "20240101",
    "2024-01-01T10:00Z", "2024-01-01T24:00", "03/04/2024", "13/04/2024", "04/13/2024", "1.2.2024",
    "Jan 5, 2024", "5 Jan 2024", "2024-05", "0000-01-01", "9999-12-31T23:59:59-10:00", "10:30",
    "25:61", "PT5S", "P", "-1 days +23:59:55", "3 days", "true", "F", "yes", "1,5", "1,234",
    "1.234,5", "1 234", "\u0661", "\u22125", " 7 ", "?", "",
])  # fmt: skip
CELLS = st.lists(
    TOKENS | st.text("0123456789-/:.,TZ +eExX", min_size=1, max_size=12), min_size=1, max_size=6
)


@given(CELLS)
@example(["0x0001", "0x00ff"])
@example(["2024-01-01T00:00:00.123456789", "2024-01-01T00:00:01.123456789"])
def test_inferred_type_can_be_converted_to(cells: list[str]) -> None:
    try:
        first = column(cells)
    except TypeMismatchError:
        with pytest.raises(TypeMismatchError, match=r"column 'c'.*--(decimal|thous|date-f)"):
            column(cells)
        return
    kind = {"f": "number", "O": "text", "M": "date"}[first.dtype.kind]
    again = column(cells, dtypes={"c": kind})  # as a model reads what it learned
    np.testing.assert_array_equal(first, again)


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        (["2024-01-01T00:00:00.123456789"], np.datetime64("2024-01-01T00:00:00.123456")),
        (["0x0001", "0x00ff"], "0x0001"),
        (["00501", "10001"], "00501"),
        (["1.5", "007"], 1.5),
    ],
)
def test_inference_of_ambiguous_values(cells: list[str], expected: Any) -> None:
    assert column(cells)[0] == expected


# -- numbers -----------------------------------------------------------------------------------

SPELLINGS = [(",", ""), (",", "."), (".", ","), (",", " "), (".", "'"), (",", "\u00a0")]


@given(st.lists(st.integers(-(10**9), 10**9), min_size=1, max_size=8), st.sampled_from(SPELLINGS))
@example([150, 250], (",", ""))
def test_numbers_with_decimal_and_thousands_separators(
    cents: list[int], spelling: tuple[str, str]
) -> None:
    decimal, thousands = spelling
    marks = str.maketrans({",": thousands, ".": decimal})
    cells = [f"{cent / 100:,.2f}".translate(marks) for cent in cents]
    numbers = [cent / 100 for cent in cents]
    options = {"decimal": decimal, "thousands": thousands}
    assert column(cells, **options).tolist() == numbers
    assert column(cells, types={"c": "number"}, **options).tolist() == numbers
    lines = io.StringIO("".join(json.dumps({"c": cell}) + "\n" for cell in cells))
    (rows,) = read(lines, format="jsonl", types={"c": "number"}, **options)
    assert rows.X["c"].tolist() == numbers
    (rows,) = read(pd.DataFrame({"c": cells}), types={"c": "number"}, **options)
    assert rows.X["c"].tolist() == numbers
    if any(mark in cell for cell in cells for mark in decimal.strip(".") + thousands):
        with pytest.raises(
            TypeMismatchError, match=r"column 'c' must contain numbers.*(--decimal|--th)"
        ):
            column(cells)
        assert column(cells, types={"c": "text"}).tolist() == cells


def test_thousands_separators_group_three_digits() -> None:
    assert column(["1,23", "4,5"], thousands=",", types={"c": "text"}).tolist() == ["1,23", "4,5"]
    with raises(SourceError, got="'1,23'"):
        column(["1,23"], thousands=",", types={"c": "number"})
    with raises(SourceError, got="'1.500'"):
        column(["1.500"], decimal=",", types={"c": "number"})  # 1500, or 1.5


@pytest.mark.parametrize(
    ("cells", "given", "never"),
    [
        (["1,5", "2,25"], {"thousands": ","}, "decimal=','"),
        (["1.234,5", "2.345,5"], {"thousands": ","}, "decimal=','"),
        (["1,234.5", "2,345.5"], {"decimal": ","}, "thousands=','"),
        (["1'234.5", "2'345.5"], {"decimal": "'"}, 'thousands="\'"'),
        (["1.5", "2.25"], {"decimal": ",", "thousands": "."}, "decimal='.'"),
    ],
)
def test_proposed_separators_do_not_contradict_given_ones(
    cells: list[str], given: dict[str, str], never: str
) -> None:
    with raises(TypeMismatchError, remedy="--decimal") as inferred:
        column(cells, **given)
    with pytest.raises(SourceError, match=r"row 0 .*must be a number") as converted:
        column(cells, types={"c": "number"}, **given)
    assert never not in f"{inferred.value} {converted.value}"


def test_proposed_separators_work() -> None:
    with raises(TypeMismatchError, remedy="Pass thousands=' ' (--thousands ' '),"):
        column(["1 234.5"], thousands=",")
    assert column(["1 234.5"], thousands=" ").tolist() == [1234.5]
    with raises(TypeMismatchError, remedy="Pass decimal=',', thousands='.'"):
        column(["1.234,5"])


def test_json_numbers_ignore_separator_options() -> None:
    options: dict[str, Any] = {"decimal": ",", "thousands": ".", "types": {"c": "number"}}
    for before in ("", '{"c": 1\n'):  # a chunk with a bad line is parsed line by line
        lines = io.StringIO(f'{before}{{"c": 1.234}}\n{{"c": 2}}\n')
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RowsRefusedWarning)
            (rows,) = read(lines, format="jsonl", bad_rows="skip", **options)
        assert rows.X["c"].tolist() == [1.234, 2.0]


@pytest.mark.parametrize("skip", ["error", "skip"])
def test_integers_are_read_as_dates_if_requested(skip: str) -> None:
    for source in (pd.DataFrame({"c": [20240105]}), io.StringIO('{"c": 20240105}\n')):
        form = None if isinstance(source, pd.DataFrame) else "jsonl"
        (rows,) = read(source, format=form, types={"c": "date"}, bad_rows=skip)
        assert rows.X["c"].tolist() == [dt.datetime(2024, 1, 5)]  # noqa: DTZ001
    with pytest.raises(SourceError, match=r"row 0 .*'c' must be a date, .*got 5\.0"):
        list(read(pd.DataFrame({"c": [5]}), types={"c": "date"}))


def test_nanoseconds_are_preserved_in_text_and_rows() -> None:
    stamp = "2024-01-05T00:00:00.123456789"
    frame = pd.DataFrame({"c": pd.to_datetime([stamp])})
    (rows,) = read(frame, types={"c": "text"})
    assert rows.X["c"].tolist() == [stamp]
    (rows,) = read(frame)
    assert rows.X.row(0) == next(rows.X.rows()) == {"c": np.datetime64(stamp)}


# -- dates -------------------------------------------------------------------------------------

STAMPS = st.datetimes(dt.datetime(1700, 1, 1), dt.datetime(2200, 1, 1))  # noqa: DTZ001
FORMS = [
    "%Y-%m-%d", "%Y/%m/%d", "%d.%m.%Y", "%m/%d/%Y", "%d/%m/%Y", "%b %d %Y", "%b %d, %Y",
    "%d %B %Y", "%Y-%m", "%b-%d-%Y", "%B %Y", "%d-%b-%y",
]  # fmt: skip
TIMES = ["", " %H:%M", "T%H:%M:%S", " %I:%M %p", " %H:%M:%S.%f"]


@given(st.lists(STAMPS, min_size=1, max_size=6), st.sampled_from(FORMS), st.sampled_from(TIMES))
def test_date_formats(stamps: list[dt.datetime], form: str, time: str) -> None:
    cells = [stamp.strftime(form + time) for stamp in stamps]
    expected = [dt.datetime.strptime(cell, form + time) for cell in cells]  # noqa: DTZ007
    swapped = form in {"%m/%d/%Y", "%d/%m/%Y"}
    if swapped and all(stamp.day <= 12 for stamp in stamps):
        with raises(TypeMismatchError, remedy="--date-format %m/%d"):
            column(cells)
    else:
        assert column(cells).tolist() == expected
    for given_form in (form, form + time):
        assert column(cells, date_format=given_form).tolist() == expected
        assert column(cells, types={"c": "date"}, date_format=given_form).tolist() == expected


def test_hours_above_12_are_refused_with_am_and_pm() -> None:
    options: dict[str, Any] = {"types": {"c": "date"}, "date_format": "%Y-%m-%d %I:%M %p"}
    with raises(SourceError, got="'2024-01-01 13:00 PM'"):
        column(["2024-01-01 11:00 PM", "2024-01-01 13:00 PM"], **options)


def test_dates_with_and_without_offset_are_not_mixed() -> None:
    assert column(["05.01.2024 10:00+02:00"]).tolist() == [dt.datetime(2024, 1, 5, 8)]  # noqa: DTZ001
    with pytest.warns(MixedColumnWarning, match="'c' is read as text: 1 of the first 2 .* dates"):
        (rows,) = read(table(["2024-01-01T10:00", "2024-01-01T10:00Z"]))
    assert rows.X["c"].dtype.kind == "O"


# -- one reading in all formats ----------------------------------------------------------------


@given(st.lists(st.timedeltas(dt.timedelta(-9), dt.timedelta(99)), min_size=1, max_size=6))
@settings(max_examples=8)
def test_times_and_durations_are_equal_in_all_formats(
    tmp_path_factory: pytest.TempPathFactory, spans: list[dt.timedelta]
) -> None:
    folder = tmp_path_factory.mktemp("alike")
    midnight = dt.datetime(2000, 1, 1)  # noqa: DTZ001
    times = [(midnight + span).time() for span in spans]
    seconds = {
        "span": [span.total_seconds() for span in spans],
        "time": [
            ((time.hour * 60 + time.minute) * 60 + time.second) + time.microsecond / 1e6
            for time in times
        ],
    }
    native: dict[str, Any] = {"span": spans, "time": times}
    arrow, polars, pandas = pa.table(native), pl.DataFrame(native), pd.DataFrame(native)
    nano = arrow.set_column(1, "time", arrow["time"].cast(pa.time64("ns")))
    pq.write_table(arrow, folder / "a.parquet")
    feather.write_feather(nano, folder / "a.arrow")
    pandas.to_csv(folder / "pandas.csv", index=False)
    iso = polars.with_columns(pl.col("span").dt.to_string("iso"))
    iso.write_csv(folder / "polars.csv")
    iso.write_ndjson(folder / "polars.jsonl")
    dicts = [dict(zip(native, row, strict=True)) for row in zip(spans, times, strict=True)]
    for source in (*sorted(folder.iterdir()), arrow, polars, pandas, dicts):
        (rows,) = read(source)
        for name, values in seconds.items():
            assert rows.X[name].dtype.kind == "f", (source, name)
            np.testing.assert_allclose(rows.X[name], values, rtol=1e-15, err_msg=f"{source} {name}")


def test_structs_become_columns_in_all_formats(tmp_path: Path) -> None:
    rows = [
        {"y": 1.0, "s": {"a": 1.5, "t": {"b": "x"}}}, {"y": 2.0, "s": None},
        {"y": 3.0, "s": {"a": None, "t": {"b": "z"}}},
    ]  # fmt: skip
    path = tmp_path / "t.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    arrow = pa.Table.from_pylist(rows)
    pq.write_table(arrow, tmp_path / "t.parquet")
    feather.write_feather(arrow, tmp_path / "t.arrow")
    for suffix in ("jsonl", "parquet", "arrow"):
        (block,) = read(tmp_path / f"t.{suffix}", target="y")
        assert block.X.names == ["s.a", "s.t.b"]
        np.testing.assert_array_equal(block.X["s.a"], [1.5, np.nan, np.nan])
        assert block.X["s.t.b"].tolist() == ["x", None, "z"]
        (block,) = read(tmp_path / f"t.{suffix}", target="s.a", drop=["s.t"])
        assert block.X.names == ["y"]
        (block,) = read(tmp_path / f"t.{suffix}", target="y", columns=["s.t.b"])
        assert block.X.names == ["s.t.b"]


# -- targets -----------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet", "frame"])
def test_targets_with_a_distinct_label_per_row_are_refused(form: str, tmp_path: Path) -> None:
    frame = pd.DataFrame({"x": range(40), "y": [f"id-{i}" for i in range(40)]})
    source: Any = frame if form == "frame" else tmp_path / f"t.{form}"
    if form == "csv":
        frame.to_csv(source, index=False)
    elif form == "jsonl":
        frame.to_json(source, orient="records", lines=True)
    elif form == "parquet":
        frame.to_parquet(source)
    with pytest.raises(
        TypeMismatchError, match=r"target 'y'.*40 different.*--decimal.*--type y=text"
    ):
        _ = read(source, target="y").task
    assert read(source, target="y", types={"y": "text"}).task == "classification"
    frame["y"] = [f"id-{i % 30}" for i in range(40)]
    assert read(frame, target="y").task == "classification"


# -- what becomes text -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("good", "noun"),
    [("{i}", "numbers"), ("2024-01-{d:02d}", "dates"), ("{d}.1.2024 10:00", "dates"),
     ("{h:02d}:30", "times of day"), ("true", "booleans")],
)  # fmt: skip
@pytest.mark.parametrize("share", [0.02, 0.3, 0.8])
def test_mixed_column_read_as_text_gives_one_warning(good: str, noun: str, share: float) -> None:
    cells = [good.format(i=i, d=i % 28 + 1, h=i % 24) for i in range(100)]
    bad = range(7, 100, max(1, round(1 / share))) if share < 0.5 else range(7, 87)
    cells = ["none of it" if i in bad else cell for i, cell in enumerate(cells)]
    with pytest.warns(MixedColumnWarning) as caught:
        (rows,) = read(table(cells))
    assert rows.X["c"].tolist() == cells
    (message,) = [str(one.message) for one in caught]
    assert (
        f"{100 - len(bad)} of the first 100 values are {noun}, but 'none of it' in row 7" in message
    )


@pytest.mark.parametrize("bad", ["unknown", "1,5"])
def test_late_mismatches_are_refused_with_their_position(bad: str, tmp_path: Path) -> None:
    path = tmp_path / "late.csv"
    n = 350_000
    path.write_text("c,late,d\n" + "".join(
        f"{i % 10},{'' if i < n - 9 else '03.04.2024'},2024-01-0{i % 9 + 1}\n" for i in range(n)
    ) + f'"{bad}",03.04.2024,2024-01-01\n')  # fmt: skip
    message = rf"row {n} .*'c' must be a number.*got '{bad}'.*--na '{bad}'"
    with pytest.raises(SourceError, match=message):
        list(read(path))
    *_, last = read(path, na=bad)
    assert last.X["late"][-1] == np.datetime64("2024-04-03")
    assert last.X["late"].dtype.kind == last.X["d"].dtype.kind == "M"


# -- the command line --------------------------------------------------------------------------


def run(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> str:
    capsys.readouterr()
    assert main(list(words)) == code
    captured = capsys.readouterr()
    return captured.out + captured.err


def test_separator_and_date_options_on_the_command_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("dec.csv").write_text("a;y\n1,5;3,5\n2,5;4,5\n3,1;5,2\n4,0;6,5\n")
    words = ("run", "dec.csv", "--target", "y", "--delimiter", ";")
    assert "--decimal ," in run(capsys, *words, code=1)
    assert "regression of y" in run(capsys, *words, "--decimal", ",")
    Path("thou.csv").write_text('a,y\n1,"1,234"\n2,"2,345"\n3,"3,456"\n')
    words = ("run", "thou.csv", "--target", "y")
    assert "--thousands ," in run(capsys, *words, code=1)
    assert "regression of y" in run(capsys, *words, "--thousands", ",")
    Path("day.csv").write_text("d,y\n" + "".join(f"0{i}/04/2024,{i}\n" for i in range(1, 9)))
    words = ("run", "day.csv", "--target", "y")
    assert "--date-format %d/%m/%Y" in run(capsys, *words, code=1)
    assert "regression of y" in run(capsys, *words, "--date-format", "%d/%m/%Y")
    assert "`date_format`" not in run(capsys, *words, "--date-format", "%H:%M", code=2)
    assert "--thousands" in run(capsys, *words, "--decimal", ",", "--thousands", ",", code=2)


@pytest.mark.filterwarnings("default::UserWarning")
def test_mixed_column_and_skipped_rows_on_the_command_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("m.csv").write_text(
        "a,y\n" + "".join(f"{'?x'[i % 2] if i % 3 else i},{i * 2}\n" for i in range(60))
    )
    words = ("run", "m.csv", "--target", "y", "-q", "--bad-rows", "skip")
    assert "--type a=number" in run(capsys, *words)
    assert "40 bad rows were skipped" in run(capsys, *words, "--type", "a=number")


def test_resume_requires_equal_read_options(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    lines = [f"{i},5;0{i % 9 + 1}/04/2024;{i % 7},{i % 10}\n" for i in range(60)]
    Path("a.csv").write_text("a;d;y\n" + "".join(lines[:30]))
    words = ["run", "a.csv", "--target", "y", "--delimiter", ";", "--decimal", ","]
    words += ["--date-format", "%d/%m/%Y", "--save", "m.onepass"]
    run(capsys, *words)
    Path("a.csv").write_text("a;d;y\n" + "".join(lines))
    assert "Resumed after 30 rows" in run(capsys, *words, "--resume")
    assert "60" in run(capsys, "inspect", "m.onepass")
    other = [word.replace("%d/%m", "%m/%d") for word in words]
    assert "date_format" in run(capsys, *other, "--resume", code=1)
    message = run(capsys, "predict", "m.onepass", "a.csv", *words[4:10], "-q")
    assert message.count("\n") == 61


def test_scores_do_not_depend_on_the_date_format(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    tables = []
    for form in ("%Y-%m-%d %H:%M", "%Y/%m/%d %H:%M", "%m/%d/%Y %H:%M"):
        stamps = (dt.datetime(2023, 1, 1) + dt.timedelta(hours=i) for i in range(900))  # noqa: DTZ001
        rows = "".join(
            f"{t.strftime(form)},{10 * np.sin(np.pi * t.hour / 12):.3f}\n" for t in stamps
        )
        Path("t.csv").write_text("d,y\n" + rows)
        message = run(capsys, "run", "t.csv", "--target", "y", "--model", "rls", "-q")
        tables.append(next(line.split()[:4] for line in message.splitlines() if " rls " in line))
    assert tables[0] == tables[1] == tables[2]
    assert float(tables[0][1].strip("*")) < 1.0


@pytest.mark.parametrize(
    ("form", "sign"),
    [
        ("{}%", "'%'"),
        ("{}.5 %", "'%'"),
        ("$ {},230.00", "'$'"),
        ("{} kg", "'kg'"),
        ("€{} m", "'€'"),
    ],
)
def test_numbers_with_units_are_reported(form: str, sign: str, tmp_path: Path) -> None:
    file = tmp_path / "t.tsv"
    lines = [f"{form.format(i % 20)}\t{i % 7}" for i in range(300)]
    file.write_text("\n".join(["x\ty", *lines]) + "\n", encoding="utf-8")
    with pytest.warns(MixedColumnWarning, match=f"values are numbers with {re.escape(sign)}"):
        next(iter(read(file, target="y")))
    with pytest.raises(TypeMismatchError, match="Pass the plain numbers, or types="):
        next(iter(read(file, target="x")))
    assert read(file, target="x", types={"x": "text"}).task == "classification"


@pytest.mark.parametrize("form", ["{}Q1", "{}-W07", "{} q3"])
def test_quarters_and_weeks_are_reported(form: str) -> None:
    with pytest.warns(
        MixedColumnWarning, match="quarters or weeks, not dates, .* the first day of"
    ):
        (rows,) = read(table([form.format(1980 + i) for i in range(20)]))
    assert rows.X["c"].dtype.kind == "O"


def test_labels_that_begin_with_digits_are_text(tmp_path: Path) -> None:
    file = tmp_path / "t.csv"
    lines = [f"{1 + i % 4}{'ab'[i % 2]},{i % 7}" for i in range(300)]
    file.write_text("\n".join(["x,y", *lines]) + "\n")
    assert read(file, target="x").task == "classification"


def test_frames_one_after_the_other(tmp_path: Path) -> None:
    frame = pd.DataFrame({"a": [1.0, None, 3.0, 4.0], "b": ["x", "y", "x", None], "y": range(4)})
    frame.to_csv(tmp_path / "t.csv", index=False)
    halves = [frame[:2], frame[2:]]
    expected = next(iter(read(frame, target="y")))
    for source in (
        halves,
        iter(halves),
        (pl.from_pandas(half) for half in halves),
        pd.read_csv(tmp_path / "t.csv", chunksize=2),
    ):
        (rows,) = read(source, target="y")
        assert rows.y.tolist() == expected.y.tolist()
        for name in ("a", "b"):
            np.testing.assert_array_equal(rows.X[name], expected.X[name])
    assert read(halves, target="y").n_rows == 4
