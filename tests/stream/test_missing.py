"""Rows with missing features: retained, skipped and counted, or refused with their position."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import onepass as op
from onepass.errors import OnepassError, ParameterError, SourceError
from onepass.stream import read
from raising import raises

FRAME = pd.DataFrame(
    {"a": [1, np.nan, 3, 4, 5, 6], "g": ["u", "v", None, "u", "v", "v"], "y": [1, 2, 3, None, 5, 6]}
)


def test_incomplete_rows_are_skipped_and_counted() -> None:
    (rows,) = read(FRAME, target="y", missing="skip")
    assert rows.X["a"].tolist() == [1, 5, 6]
    assert rows.y.tolist() == [1, 5, 6]
    assert rows.numbers.tolist() == [0, 4, 5]
    assert rows.skipped == 3
    (rows,) = read(FRAME, target="y", drop=["g"], missing="skip")
    assert rows.numbers.tolist() == [0, 2, 4, 5]
    report = op.evaluate.prequential(
        op.Pipeline(op.features.Encode(), op.RLSRegressor()),
        read(FRAME, target="y", missing="skip"),
    )
    assert (report.rows, report.skipped) == (3, 3)


def test_skipped_rows_do_not_depend_on_the_start() -> None:
    whole = read(FRAME, target="y", missing="skip", block=1)
    firsts = [(rows.first, whole.rows_read) for rows in whole]
    for first, end in firsts[:-1]:
        again = read(FRAME, target="y", missing="skip", block=1, start=end)
        assert [rows.first for rows in again] == [f for f, _ in firsts if f > first]


def test_incomplete_rows_are_refused_with_their_position(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"frame: row 1 .*column 'a' must have a value, got none"):
        list(read(FRAME, target="y", missing="error"))
    with pytest.raises(SourceError, match=r"row 2 \(counting from 0\), column 'g' must have"):
        list(read(FRAME, target="y", missing="error", start=2))
    for i in range(2):
        FRAME[3 * i : 3 * i + 3].dropna().to_csv(tmp_path / f"{i}.csv", index=False)
    (tmp_path / "2.csv").write_text("a,g,y\n1,u,1\n2,,1\n")
    with pytest.raises(
        SourceError, match=r"2.csv: row 1 .*, column 'g' must have a value.*--missing"
    ):
        list(read(tmp_path, target="y", missing="error"))


def test_error_if_no_row_is_complete() -> None:
    with raises(SourceError, remedy="Drop empty columns"):
        list(read(FRAME.assign(b=np.nan), target="y", missing="skip"))
    with raises(ParameterError, argument="missing"):
        read(FRAME, target="y", missing="drop")


def test_errors_of_learners_name_file_and_row(tmp_path: Path) -> None:
    for i in range(2):
        (tmp_path / f"{i}.csv").write_text("a,y\n" + "1,1\n" * 10)
    (tmp_path / "2.csv").write_text("a,y\n1,\n1,1\n,1\n")
    for model in (op.RLSRegressor(), op.Pipeline(op.features.Encode(), op.RLSRegressor())):
        with raises(OnepassError, argument="X") as caught:
            op.evaluate.prequential(model, read(tmp_path, target="y", block=7))
        assert caught.value.source.endswith("2.csv: row 2 (counting from 0)")
