"""Shards for the tests: eight files of one stream, whose categories come in different orders."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import parquet
from sklearn.base import clone
from sklearn.utils import get_tags

import onepass as op

SHARDS = 8


def table(i: int, rows: int = 60) -> pa.Table:
    """Rows of shard i: numbers, times, a key, a category, and targets."""
    rng = np.random.default_rng(i)
    X = rng.normal(size=(rows, 4))
    by = np.roll(np.array(["air", "sea", "rail", "road"], dtype=object), i)[:3]
    by = by[rng.integers(3, size=rows)]
    y = X @ [1.0, -2.0, 0.5, 3.0] + np.char.str_len(by.astype(str)) + 0.3 * rng.normal(size=rows)
    labels = np.array(["low", "mid", "high"], dtype=object)[np.digitize(y, [-1.0, 6.0])]
    return pa.table(
        {
            **{f"x{j}": X[:, j] for j in range(4)},
            "at": i * rows + np.arange(float(rows)),
            "by": by,
            "y": y,
            "label": labels,
        }
    )


def write_shards(folder: Path, count: int = SHARDS) -> str:
    """Write Parquet shards; return the pattern of their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    for i in range(count):
        parquet.write_table(table(i, 60 + i), folder / f"part-{i}.parquet")
    return f"{folder}/*.parquet"


def one_pass(model: Any, source: Any, **options: Any) -> Any:
    """The model that has learned all rows in order."""
    model = clone(model)
    for rows in op.stream.read(source, **options):
        time = {"time": rows.time} if get_tags(model).uses_time else {}
        model.partial_fit(rows.X, rows.y, **time)
    return model


def state(model: Any) -> bytes:
    """The bytes of a model."""
    from onepass.serialization.models import dumps

    return dumps(model, "test")
