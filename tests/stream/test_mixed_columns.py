"""Columns of numbers with other values: a warning, an error for targets, or missing values."""

import io
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from onepass.errors import (
    MixedColumnWarning,
    ParameterError,
    RowsRefusedWarning,
    SourceError,
    TypeMismatchError,
)
from onepass.stream import csv, read
from raising import raises

N = 40


def text(odd: str = "?", column: int = 0) -> str:
    """Columns a and y of numbers; row 3 of one of them has another value."""
    rows = [[str(i), str(2 * i)] for i in range(N)]
    rows[3][column] = odd
    return "a,y\n" + "".join(",".join(row) + "\n" for row in rows)


def test_mixed_feature_column_gives_one_warning(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(text())
    messages = r"a.csv: column 'a' is read as text: 39 of the first 40 .*'\?' in row 3 .*--na '\?'"
    stream = read(path, target="y")
    with pytest.warns(MixedColumnWarning, match=messages) as caught:
        assert stream.task == "regression"
    assert len(caught) == 1
    assert sum(len(rows) for rows in stream) == N  # and nothing more is said


@pytest.mark.parametrize(
    "options",
    [{"types": {"a": "text"}}, {"drop": ["a"]}, {"na": "?"}, {"dtypes": {"a": "text"}}],
)
def test_given_types_do_not_warn(options: dict[str, Any]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        (rows,) = read(io.StringIO(text()), target="y", **options)
    assert len(rows) == N


def test_mixed_target_column_is_refused() -> None:
    with raises(
        TypeMismatchError,
        got="both: 39 of the first 40 values are numbers, but '-' in row 3",
        remedy="--na '-') if it means missing, or types={'y': 'text'} (--type y=text",
    ):
        list(read(io.StringIO(text("-", 1)), target="y"))
    stream = read(io.StringIO(text("-", 1)), target="y", types={"y": "text"})
    assert stream.task == "classification"


def test_na_values_are_missing_in_features_and_targets() -> None:
    (rows,) = read(io.StringIO(text()), target="y", na=("?", "-"))
    assert np.flatnonzero(np.isnan(rows.X["a"])).tolist() == [3]
    (rows,) = read(io.StringIO(text("-", 1)), target="y", na="-")
    assert (len(rows), rows.skipped, rows.y.dtype.kind) == (N - 1, 1, "f")


def test_na_option_keeps_the_default_missing_values() -> None:
    (rows,) = read(io.StringIO(text("NA")), target="y", na="?")
    assert np.isnan(rows.X["a"]).sum() == 1


@pytest.mark.parametrize(("every", "n_warnings"), [(5, 1), (2, 1), (1, 0)])
def test_columns_that_are_mostly_text(every: int, n_warnings: int) -> None:
    mixed = "a,y\n" + "".join(f"{i if i % every else 'x'},{i}\n" for i in range(N))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        (rows,) = read(io.StringIO(mixed), target="y")
    assert rows.X["a"].dtype.kind == "O"
    assert len(caught) == n_warnings


@pytest.mark.parametrize(
    ("good", "bad", "options", "kind"),
    [
        ("{i}", "junk", {}, "number"),
        ("{i},5", "junk", {"decimal": ","}, "number"),
        ("2024-01-{d:02d}", "junk", {}, "date"),
        ("{d:02d}:30", "junk", {}, "number"),
        ("true", "2", {}, "bool"),
    ],
)
def test_mixed_column_warning_names_the_type_that_skips_bad_rows(
    good: str, bad: str, options: dict[str, Any], kind: str
) -> None:
    cells = [bad if i % 4 == 0 else good.format(i=i, d=i % 12 + 1) for i in range(N)]
    rows = "a;y\n" + "".join(f"{cell};{i}\n" for i, cell in enumerate(cells))

    def opened(**more: Any) -> Any:
        return read(io.StringIO(rows), target="y", delimiter=";", **options, **more)

    with pytest.warns(MixedColumnWarning) as caught:
        assert opened().task == "regression"
    assert f"--type a={kind}" not in str(caught[0].message)
    messages = rf"'a' is read as text: 30 of.*types={{'a': '{kind}'}} \(--type a={kind}\) to skip"
    with pytest.warns(MixedColumnWarning, match=messages):
        assert opened(bad_rows="skip").task == "regression"
    stream = opened(bad_rows="skip", types={"a": kind})
    with pytest.warns(RowsRefusedWarning, match="10 bad rows were skipped"):
        (block,) = stream
    assert len(block) == 30
    assert block.X["a"].dtype.kind == {"date": "M"}.get(kind, "f")


def test_mixed_target_error_names_the_type_that_skips_bad_rows() -> None:
    with raises(
        TypeMismatchError, got="both: 39 of the first 40", remedy="(--type y=number) to skip rows"
    ):
        list(read(io.StringIO(text("-", 1)), target="y", bad_rows="skip"))
    stream = read(io.StringIO(text("-", 1)), target="y", bad_rows="skip", types={"y": "number"})
    with pytest.warns(RowsRefusedWarning, match="1 bad row was"):
        assert sum(map(len, stream)) == N - 1


@pytest.mark.parametrize("source", [pd.DataFrame({"a": [1.0]}), np.ones((2, 2)), "flights"])
def test_na_option_is_for_csv_only(source: Any) -> None:
    with raises(ParameterError, argument="na"):
        read(source, na="?")


def test_late_mixed_values_are_refused_with_remedies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv, "_SAMPLE", 64)
    monkeypatch.setattr(csv, "_CHUNK", 64)
    late = "a,y\n" + "".join(f"{'?' if i == 30 else i},{i}\n" for i in range(N))
    messages = r"row 30 .*column 'a' must be a number.*got '\?'.*--na '\?'.*--type a=text"
    with pytest.raises(SourceError, match=messages):
        list(read(io.StringIO(late)))
    assert sum(len(rows) for rows in read(io.StringIO(late), na="?")) == N


def test_dtypes_of_absent_columns_are_ignored() -> None:
    dtypes = {"a": "text", "flag": "number", "gone": "date"}
    (rows,) = read(io.StringIO("a,flag\n1,true\n2,false\n"), dtypes=dtypes)
    assert rows.X.row(0) == {"a": "1", "flag": 1.0}
    (rows,) = read(io.StringIO("a\n1\n"), dtypes=dtypes, types={"a": "number"})
    assert rows.X["a"].tolist() == [1.0]


@pytest.mark.parametrize("kind", ["frame", "polars", "arrow", "dicts", "jsonl", "parquet"])
def test_text_of_every_source_is_read_alike(kind: str, tmp_path: Path) -> None:
    frame = pd.DataFrame({
        "at": [f"2024-01-{i % 28 + 1:02d} 10:00" for i in range(N)],
        "clock": [f"{i % 24}:30" for i in range(N)],
        "km": [f"{i / 4}" for i in range(N)],
        "code": [f"{i:05d}" for i in range(N)],
        "digit": [str(i % 7) for i in range(N)],
        "kind": [f"{i % 3}" for i in range(N)],
    }).astype(object)  # fmt: skip
    source: Any = {
        "frame": lambda: frame, "polars": lambda: pl.from_pandas(frame),
        "arrow": lambda: pa.Table.from_pandas(frame), "dicts": lambda: frame.to_dict("records"),
    }.get(kind, lambda: tmp_path / f"rows.{kind}")()  # fmt: skip
    if kind == "jsonl":
        frame.to_json(source, orient="records", lines=True)
    elif kind == "parquet":
        frame.to_parquet(source)
    with pytest.warns(MixedColumnWarning) as caught:
        (rows,) = read(source, drop=["kind"])
    assert {name: column.dtype.kind for name, column in rows.X.columns.items()} == {
        "at": "M", "clock": "f", "km": "O", "code": "O", "digit": "O"
    }  # fmt: skip
    assert rows.X["clock"][1] == 5400.0
    messages = [str(one.message) for one in caught]
    assert len(messages) == 2
    assert (
        f"'km' is read as text: {N} of the first {N} values are numbers in quotation marks"
        in messages[0]
    )
    assert "--type digit=number) if they are numbers, or types={'digit': 'text'}" in messages[1]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        types = {"km": "number", "digit": "text"}
        (rows,) = read(source, types=types, target="km", drop=["kind"])
        assert rows.y[2] == 0.5
        assert read(source, types=types, target="kind").task == "classification"
    with raises(TypeMismatchError, remedy="(--type km=number) if they are numbers"):
        list(read(source, target="km", types={"digit": "text"}))
    with pytest.warns(MixedColumnWarning, match="'digit' is read as text"):
        assert read(source, target="digit", types={"km": "number"}).task == "classification"


def test_categories_of_frames_remain_text() -> None:
    values = pd.Series([f"{i % 7}.5" for i in range(N)])
    sources = (
        pd.DataFrame({"a": values.astype("category")}),
        pl.DataFrame({"a": values.to_list()}).with_columns(pl.col("a").cast(pl.Categorical)),
        pa.table({"a": pa.array(values).dictionary_encode()}),
    )
    for source in sources:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            (rows,) = read(source)
        assert rows.X["a"].tolist() == values.tolist()


@pytest.mark.parametrize(
    "labels", [["10:30", "11:30"], ["2024-01-01", "2024-01-02"], list("0123456789"), ["1.5", "2.5"]]
)
def test_targets_apart_from_the_features_remain_text(labels: list[str]) -> None:
    y = [labels[i % len(labels)] for i in range(N)]
    X = np.arange(N, dtype=float)[:, None]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for source in ((X, np.array(y)), list(zip(X, y, strict=True))):
            stream = read(source)
            assert stream.task == "classification"
            assert next(iter(stream)).y.tolist() == y


def test_numbers_are_not_converted_to_the_text_that_a_model_has_learned() -> None:
    codes = [f"{i % 7:05d}" for i in range(N)]
    for frame in (pd.DataFrame({"zip": [1, 2]}), pd.DataFrame({"zip": [True, False]})):
        for source in (frame, pl.from_pandas(frame), frame.to_dict("records")):
            with pytest.raises(SourceError, match=r"column 'zip' must be text.*--type zip=text"):
                list(read(source, dtypes={"zip": "text"}))
            list(read(source, types={"zip": "text"}))
    with pytest.warns(MixedColumnWarning, match="leading zeros"):
        (rows,) = read(io.StringIO("zip\n" + "\n".join(codes) + "\n"))
    assert rows.X["zip"].tolist() == codes


def test_amounts_with_a_sign_after_the_number_are_reported() -> None:
    amounts = "a;y\n" + "".join(f"{i % 5},50 €;{i}\n" for i in range(N))
    with pytest.warns(MixedColumnWarning, match="numbers with '€'"):
        assert read(io.StringIO(amounts), target="y", delimiter=";").task == "regression"
    with raises(TypeMismatchError, remedy="Pass the plain numbers"):
        list(read(io.StringIO(amounts), target="a", delimiter=";", decimal=","))


def test_empty_text_is_missing_where_a_type_is_given() -> None:
    rows = [{"a": "" if i % 5 == 0 else str(i), "b": ""} for i in range(N)]
    (block,) = read(rows, types={"a": "number", "b": "text"})
    assert np.isnan(block.X["a"]).sum() == N / 5
    assert block.X["b"].tolist() == [""] * N
