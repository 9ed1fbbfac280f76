"""Default block sizes, and results that do not depend on the block size."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import csv

import onepass as op
from onepass.stream import read
from onepass.stream.rebatch import default_block_size

N, P = 9_001, 6


@given(st.integers(0, 100_000), st.integers(0, 10**9) | st.none())
def test_default_block_size_is_a_bounded_power_of_two(columns: int, rows: int | None) -> None:
    block = default_block_size(columns, rows)
    assert block.bit_count() == 1
    assert 1024 <= block <= 8192
    assert default_block_size(columns + 1, rows) <= block
    assert block == 1024 or block * columns * 8 <= 2 << 20
    assert rows is None or block == 1024 or 8 * block <= rows


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, P)).round(3)
    X[rng.random((N, P)) < 0.01] = np.nan
    y = np.nan_to_num(X) @ np.arange(P) + rng.normal(size=N).round(3)
    y[rng.random(N) < 0.01] = np.nan
    columns: dict[str, object] = {f"x{j}": X[:, j] for j in range(P)}
    columns["colour"] = rng.choice(["red", "green", "blue"], size=N)
    table = pa.table(columns | {"y": y}).to_pandas()  # whose nan become empty fields
    table = pa.Table.from_pandas(table, preserve_index=False)
    path = tmp_path_factory.mktemp("blocks")
    csv.write_csv(table, path / "a.csv")
    pq.write_table(table, path / "a.parquet")
    return path


@pytest.mark.parametrize("name", ["a.csv", "a.parquet"])
def test_results_do_not_depend_on_the_block_size(folder: Path, name: str) -> None:
    found = []
    for block in (None, 100, N):
        stream = read(folder / name, target="y", block=block)
        models = op.models.pipelines(["rls", "sgd"], "regression", {"rls.ridge": 1e-6})
        report = op.evaluate.prequential(models, stream, ["mae", "rmse", "r2"])
        found.append((report, {name: model.learner_.coef_ for name, model in models.items()}))
    (first, learned), rest = found[0], found[1:]
    for report, coef in rest:
        assert (report.rows, report.skipped) == (first.rows, first.skipped)
        assert report.overall.rows == first.overall.rows
        for model, score in first.scores.items():
            assert report.scores[model].overall == pytest.approx(score.overall, rel=1e-9)
        for model, values in learned.items():
            np.testing.assert_allclose(coef[model], values, rtol=1e-8, atol=1e-10)


def test_default_block_size_depends_on_the_width(folder: Path) -> None:
    text, columnar = folder / "a.csv", folder / "a.parquet"
    assert read(text, target="y").block == 8192  # its length is not known
    assert read(columnar, target="y").block == 1024  # an eighth of its rows
    assert (read(text, block=7).block, read(text, block=7).requested_block) == (7, 7)
    assert read(text).requested_block is None
    with text.open("rb") as pipe:
        assert read(pipe, target="y").block == 1024
    assert read(iter([{"a": 1.0, "b": 2.0}]), target="b").block == 1024
    assert read((np.zeros((80_000, 3)), np.zeros(80_000))).block == 8192
    assert read((np.zeros((80_000, 90)), np.zeros(80_000))).block == 2048


def test_run_of_a_file_is_resumed_from_a_pipe(folder: Path, tmp_path: Path) -> None:
    mark = tmp_path / "m.run"
    given = {"drop": ["colour"], "missing": "skip", "target": "y"}
    first = op.evaluate.prequential(
        op.RLSRegressor(), read(folder / "a.csv", **given), checkpoint=mark
    )
    model = op.RLSRegressor()
    with (folder / "a.csv").open("ab+") as file:
        file.write(b"1,2,3,4,5,6,red,91\n")
        file.seek(0)
        stream = read(file, **given)
        report = op.evaluate.prequential(
            model, stream, checkpoint=mark, resume=True, next_source=True
        )
    assert (report.rows, report.resumed) == (first.rows + 1, [first.rows])
