"""One model, and the same rows from each kind of source: files, frames, Arrow and requests."""

import io
import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import onepass as op
from onepass.models import pipelines
from onepass.service.protocol import mlflow, records, v2
from onepass.types import Array

N, LEARNED = 400, 300


def column(kind: str, rng: np.random.Generator) -> list[str]:
    """Values of one kind as text of a CSV file; some are missing, also the first ones."""
    n = N
    seconds = np.cumsum(rng.integers(1, 90_000, n)).astype("m8[s]")
    dates = np.datetime64("2021-03-01T00:00:00") + seconds
    values: Any = {
        "real": np.round(rng.normal(size=n) * 10.0 ** rng.integers(-3, 5), 6),
        "whole": rng.integers(-50, 10**9, n),
        "truth": rng.choice(["true", "false"], n),
        "word": rng.choice(["low", "mid", "high, or more", "größer"], n),
        "code": [f"{code:03d}" for code in rng.integers(0, 12, n)],
        "day": dates.astype("M8[D]"),
        "time": dates,
        "zoned": [f"{date}+02:00" for date in dates],
    }[kind]
    texts = [str(value) for value in values]
    gaps = rng.random(n) < rng.choice([0.0, 0.2])
    gaps[: rng.integers(0, 20)] = True
    return ["" if gap else text for gap, text in zip(gaps, texts, strict=True)]


def as_csv(frame: pd.DataFrame) -> str:
    """The rows as CSV."""
    return frame.to_csv(index=False)


def sources(text: str, codes: list[str]) -> dict[str, Any]:
    """The rows as objects that a Pipeline predicts, by kind of source."""
    frame = pd.read_csv(io.StringIO(text), dtype=dict.fromkeys(codes, str))
    listed = json.loads(frame.to_json(orient="records"))
    inputs = []
    for name in frame.columns:
        values = [row[name] for row in listed]
        kinds = {type(value) for value in values} - {type(None)}
        datatype = "BYTES" if kinds == {str} else "BOOL" if kinds == {bool} else "FP64"
        datatype = "FP64" if None in values and datatype == "BOOL" else datatype
        values = [float(v) if isinstance(v, bool) and datatype == "FP64" else v for v in values]
        inputs.append({"name": name, "datatype": datatype, "shape": [len(values)], "data": values})
    return {
        "pandas": frame,
        "polars": pl.read_csv(io.StringIO(text), schema_overrides=dict.fromkeys(codes, pl.String)),
        "polars with dates": pl.read_csv(
            io.StringIO(text), schema_overrides=dict.fromkeys(codes, pl.String),
            try_parse_dates=True,
        ),
        "arrow": pa.Table.from_pandas(frame),
        "dicts": [
            {name: value for name, value in row.items() if value is not None} for row in listed
        ],
        "records": records.read(json.dumps([{"x": row} for row in listed]).encode()).rows.X,
        "v2": v2.read(json.dumps({"inputs": inputs}).encode()).rows.X,
        "mlflow": mlflow.read(json.dumps({"dataframe_records": listed}).encode()).rows.X,
    }  # fmt: skip


@pytest.mark.parametrize("task", ["regression", "classification"])
def test_predictions_are_equal_from_each_source(
    task: str, rng: np.random.Generator, tmp_path: Path
) -> None:
    every = ["real", "whole", "truth", "word", "code", "day", "time", "zoned"]
    for kinds in (every, rng.choice(every, 3), rng.choice(every, 5)):
        frame = pd.DataFrame({f"{kind}{j}": column(kind, rng) for j, kind in enumerate(kinds)})
        y = rng.normal(size=N) if task == "regression" else rng.choice(["on", "off"], N)
        file = tmp_path / "rows.csv"
        file.write_text(as_csv(frame.assign(y=y)[:LEARNED]))
        model: Any = pipelines(["rls"], task, {})["rls"]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # codes are read as text
            for rows in op.stream.read(file, target="y", block=int(rng.choice([16, 100, 1000]))):
                model.partial_fit(rows.X, rows.y)
        text = as_csv(frame[LEARNED:])
        new = tmp_path / "new.csv"
        new.write_text(text)
        (block,) = op.stream.read(new, dtypes=model.dtypes_)
        expected = model.predict(block.X)
        codes = [name for name in frame.columns if name.startswith("code")]
        made = sources(text, codes)
        made["csv request"] = mlflow.read_csv(text.encode(), texts=codes).rows.X
        for kind, X in made.items():
            np.testing.assert_array_equal(model.predict(X), expected, err_msg=f"{kind}: {kinds}")
            assert model.predict(X[:1])[0] == pytest.approx(expected[0], rel=1e-9), kind
        for row, value in zip(made["dicts"][:20], expected, strict=False):
            assert model.predict_one(row) == pytest.approx(value, rel=1e-9)


def test_other_text_of_dates_is_read_by_a_stream(tmp_path: Path) -> None:
    days = pd.date_range("1995-01-20", periods=300).strftime("%m/%d/%y")
    frame = pd.DataFrame({"day": days, "clock": [f"{i % 24}:30" for i in range(300)]})
    file = tmp_path / "rows.csv"
    frame.assign(y=np.arange(300.0)).to_csv(file, index=False)
    model: Any = pipelines(["rls"], "regression", {})["rls"]
    rows = next(iter(op.stream.read(file, target="y")))
    model.partial_fit(rows.X, rows.y)
    with pytest.raises(op.errors.TypeMismatchError, match=r"op.stream.read\(X, dtypes=model.dty"):
        model.predict(frame)
    found: Array = model.predict(next(iter(op.stream.read(frame, dtypes=model.dtypes_))).X)
    np.testing.assert_array_equal(found, model.predict(rows.X))
