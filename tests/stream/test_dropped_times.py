"""The time column of all kinds of sources: the times of rows, and a feature unless dropped."""

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from onepass import evaluate, models
from onepass.errors import ColumnError
from onepass.stream import read

AT = pd.date_range("2024-01-01", periods=40, freq="7min")
KINDS = [
    "csv",
    "jsonl",
    "jsonl, line by line",
    "jsonl folder",
    "parquet",
    "arrow",
    "frame",
    "dicts",
]


def rows() -> list[dict[str, Any]]:
    return [
        {
            "at": at.isoformat(),
            "paid": (at + pd.Timedelta("1h")).isoformat(),
            "x": i % 5,
            "y": i % 3,
        }
        for i, at in enumerate(AT)
    ]


def source(kind: str, folder: Path) -> Any:
    frame = pd.DataFrame(rows())
    frame[["at", "paid"]] = frame[["at", "paid"]].apply(pd.to_datetime)
    if kind == "frame":
        return frame
    if kind == "dicts":
        return frame.to_dict("records")
    path = folder / f"t.{kind.split(maxsplit=1)[0].strip(',')}"
    if kind == "csv":
        frame.to_csv(path, index=False)
    elif kind == "parquet":
        frame.to_parquet(path)
    elif kind == "arrow":
        frame.to_feather(path)
    else:
        lines = [json.dumps(row) for row in rows()]
        if "line by line" in kind:  # digits that are text beside numbers are not for pyarrow
            lines[3] = lines[3].replace('"x": 3', '"x": "3"')
        path.write_text("\n".join(lines) + "\n")
    return folder if "folder" in kind else path


@pytest.mark.parametrize(
    ("kind", "drop"),
    [*((kind, ["at"]) for kind in KINDS), ("csv", "at"), ("jsonl", ["paid", "at"]), ("csv", [])],
)
def test_time_column_can_be_dropped_from_the_features(kind: str, drop: Any, tmp_path: Path) -> None:
    stream = read(
        source(kind, tmp_path), target="y", time="at", drop=drop, types={"x": "number"}, block=16
    )
    blocks = list(stream)
    np.testing.assert_array_equal(
        np.concatenate([np.asarray(block.time) for block in blocks]), AT.to_numpy()
    )
    assert set(blocks[0].X.names) == {"at", "paid", "x"} - set([drop] if drop == "at" else drop)


@pytest.mark.parametrize("kind", KINDS)
def test_delay_until_works_with_a_dropped_time_column(kind: str, tmp_path: Path) -> None:
    assert run(source(kind, tmp_path), "paid", drop=["at"]) == (40, 9)


@pytest.mark.parametrize("kind", ["csv", "jsonl, line by line"])
def test_delay_until_accepts_the_time_column(kind: str, tmp_path: Path) -> None:
    assert run(source(kind, tmp_path), "at") == (40, 1)


def run(given: Any, delay_until: str, **options: Any) -> tuple[int, int]:
    """Learn a source with delayed targets; return the numbers of rows and of pending rows."""
    stream = read(given, target="y", time="at", types={"x": "number"}, **options)
    rls = models.pipelines(["rls"], "regression")
    report = evaluate.prequential(rls, stream, delay_until=delay_until)
    return report.rows, report.waiting


def test_missing_time_column_is_an_error() -> None:
    lines = io.StringIO('{"x": 1, "y": 2}\n')
    with pytest.raises(ColumnError, match=r"`time` must name a column.*'x', 'y'.*got 'at'"):
        list(read(lines, target="y", time="at", drop=["at"]))
