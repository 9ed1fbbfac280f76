"""Fits of shards: equal to one pass, with the same bits on each engine and after a restart."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv, feather, parquet
from sklearn.base import is_classifier
from sklearn.linear_model import Ridge

import onepass as op
from onepass.cli import main
from onepass.errors import (
    CheckpointError,
    MergeError,
    ParameterError,
    ProcessError,
    RowsRefusedWarning,
    SourceError,
    TypeMismatchError,
)
from onepass.features import Encode, RandomFourier
from onepass.scale.engines import ENGINES
from raising import raises
from sampling import sample
from shard_files import SHARDS, one_pass, state, table, write_shards

NUMBERS = {"drop": ["at", "by"]}
TIMES = {"time": "at", "drop": ["by", "at"]}
FORGETTING = op.forgetting

EXACT: dict[str, tuple[Any, dict[str, Any]]] = {
    "rls": (op.RLSRegressor(), NUMBERS),
    "rls, forgetting": (op.RLSRegressor(forgetting=FORGETTING.Exponential(0.995)), NUMBERS),
    "rls, forgetting by time": (
        op.RLSRegressor(forgetting=FORGETTING.Exponential(half_life=90.0)), TIMES
    ),
    "rls, window": (op.RLSRegressor(forgetting=FORGETTING.Window(150)), NUMBERS),
    "orfit, noise": (op.ORFitRegressor(memory=None, noise=0.5), NUMBERS),
    "keyed": (op.Keyed(op.RLSRegressor(), by="by"), {"drop": ["at"]}),
    "rls classes": (op.RLSClassifier(), NUMBERS),
    "class means": (op.NearestClassMean(), NUMBERS),
    "lda": (op.StreamingLDA(), NUMBERS),
    "qda": (op.StreamingQDA(), NUMBERS),
    "pipeline": (op.Pipeline(Encode(), op.RLSRegressor(ridge=1.0)), {"drop": ["at"]}),
    "random features": (
        op.Pipeline(RandomFourier(50), op.RLSClassifier(ridge=1.0)), NUMBERS
    ),
}  # fmt: skip
APPROXIMATE = {
    "orfit": (op.ORFitRegressor(memory=op.memory.Principal(3)), NUMBERS),
    "automatic forgetting": (op.RLSRegressor(forgetting="auto"), NUMBERS),
}


def _options(model: Any, options: dict[str, Any]) -> dict[str, Any]:
    target, other = ("label", "y") if is_classifier(model) else ("y", "label")
    return {**options, "target": target, "drop": [*options["drop"], other]}


@pytest.fixture
def shards(tmp_path: Path) -> str:
    return write_shards(tmp_path / "shards")


def _fit(shards: Any, model: Any = None, **options: Any) -> Any:
    given = {"target": "y", "drop": ["at", "by", "label"], **options}
    return op.scale.fit(op.RLSRegressor() if model is None else model, shards, **given)


@pytest.mark.parametrize("name", EXACT)
def test_equals_one_pass_over_all_shards(name: str, shards: str) -> None:
    model, options = EXACT[name]
    options = _options(model, options)
    report = op.scale.fit(model, shards, **options)
    whole = one_pass(model, shards, **options)
    rows = next(iter(op.stream.read(shards, **options)))
    assert (report.merging, report.rows, report.shards) == ("exact", sum(range(60, 68)), SHARDS)
    if is_classifier(model):
        assert (report.model.predict(rows.X) == whole.predict(rows.X)).all()
        scores = (each.decision_function(rows.X) for each in (report.model, whole))
    else:
        scores = (each.predict(rows.X) for each in (report.model, whole))
    np.testing.assert_allclose(*scores, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", APPROXIMATE)
def test_approximate_merges_are_reported(name: str, shards: str) -> None:
    model, options = APPROXIMATE[name]
    assert op.scale.fit(model, shards, **_options(model, options)).merging == "approximate"


def _same_bits(shards: str, engine: str, workers: int | None = None, models: int = 14) -> None:
    """Engines run the same function; for all but processes, a few models are enough."""
    for name, (model, options) in sample([*(EXACT | APPROXIMATE).items()], models, engine):
        given = _options(model, options)
        plain, other = (
            op.scale.fit(model, shards, engine=each, workers=count, **given)
            for each, count in (("local", 1), (engine, workers))
        )
        assert state(plain.model) == state(other.model), name


def test_same_bits_with_processes(shards: str) -> None:
    _same_bits(shards, "local", 2)


def test_same_bits_with_dask(shards: str) -> None:
    distributed = pytest.importorskip("distributed")
    with distributed.Client(
        processes=False, n_workers=1, threads_per_worker=2, dashboard_address=None
    ):
        _same_bits(shards, "dask", models=4)


@pytest.mark.parametrize("count", [1, 2, 3, 5, 6, 7])
def test_any_number_of_shards(count: int, tmp_path: Path) -> None:
    pattern = write_shards(tmp_path, count)
    whole = one_pass(op.RLSRegressor(), pattern, target="y", drop=["at", "by", "label"])
    np.testing.assert_allclose(_fit(pattern).model.coef_, whole.coef_, rtol=1e-10)


def test_formats_and_sources(tmp_path: Path) -> None:
    whole = _fit(write_shards(tmp_path / "parquet")).model
    for i in range(SHARDS):
        rows = table(i, 60 + i)
        csv.write_csv(rows, tmp_path / f"{i}.csv")
        feather.write_feather(rows, tmp_path / f"{i}.arrow")
        (tmp_path / "folder" / f"hour={i}").mkdir(parents=True)
        parquet.write_table(rows, tmp_path / "folder" / f"hour={i}" / "part.parquet")
    paths = [tmp_path / f"{i}.csv" for i in range(SHARDS)]
    for source in (f"{tmp_path}/*.arrow", paths, f"file://{tmp_path}/*.csv"):
        np.testing.assert_allclose(_fit(source).model.coef_, whole.coef_, rtol=1e-12)
    report = _fit(tmp_path / "folder")  # with a column from the folders
    by_hour = one_pass(
        op.RLSRegressor(), tmp_path / "folder", target="y", drop=["at", "by", "label"]
    )
    assert list(report.model.feature_names_in_)[-1] == "hour"
    np.testing.assert_allclose(report.model.coef_, by_hour.coef_, rtol=1e-9)


def test_first_shard_determines_types(tmp_path: Path) -> None:
    (tmp_path / "0.csv").write_text("code,y\nA1,1\nB2,2\nA1,1\n")
    (tmp_path / "1.csv").write_text("code,y\n3,3\n4,4\n3,3\n")  # text, although all are numbers
    model = op.Pipeline(Encode(), op.RLSRegressor(prior=1.0))
    report = op.scale.fit(model, f"{tmp_path}/*.csv", target="y")
    whole = one_pass(model, f"{tmp_path}/*.csv", target="y")
    rows = [{"code": code} for code in ("A1", "B2", "3", "4")]
    np.testing.assert_allclose(report.model.predict(rows), whole.predict(rows), rtol=1e-10)


def test_parquet_without_rows(shards: str, tmp_path: Path) -> None:
    before = _fit(shards).model
    first = tmp_path / "shards" / "part--1.parquet"
    parquet.write_table(table(0)[:0], first)
    parquet.write_table(table(0)[:0], tmp_path / "shards" / "part-9.parquet")
    report = _fit(shards)
    assert report.rows == before.rows_seen_
    np.testing.assert_allclose(report.model.coef_, before.coef_, rtol=1e-12)
    with raises(SourceError, remedy="Check the files"):
        _fit([first])


@pytest.mark.parametrize("empty", ["", "a,y\n"])
def test_text_without_rows(empty: str, tmp_path: Path) -> None:
    for i, text in enumerate([empty, "a,y\n1,2\n2,4\n", empty, "a,y\n3,6\n", empty]):
        (tmp_path / f"{i}.csv").write_text(text)
    report = op.scale.fit(op.RLSRegressor(), f"{tmp_path}/*.csv", target="y")
    assert (report.rows, report.shards) == (3, 5)
    assert report.model.predict([[4.0]])[0] == pytest.approx(8.0)


def test_targets_of_later_shards_are_those_of_the_guessed_task(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for i in range(3):
        lines = [f"{j % 5},{j % 2 if i < 2 else j % 4}\n" for j in range(50)]
        (tmp_path / f"{i}.csv").write_text("".join(["x,y\n", *lines]))
    words = ["fit", f"{tmp_path}/*.csv", "--target", "y", "--save", str(tmp_path / "m.onepass")]
    assert main([*words, "-q"]) == 1
    error = capsys.readouterr().err
    assert "2.csv: row 2 (counting from 0): the target must be 0 or 1" in error
    assert "got 2. Set the task: --task regression" in error
    for task in ("regression", "classification"):
        assert main([*words, "-q", "--task", task]) == 0


def test_progress(shards: str) -> None:
    seen: list[Any] = []
    _fit(shards, on_progress=seen.append)
    assert [each.done for each in seen] == list(range(1, SHARDS + 1))
    assert (seen[-1].rows, seen[-1].total) == (sum(range(60, 68)), SHARDS)
    assert seen[2].shard.endswith("part-2.parquet")


# -- bad shards and arguments ----------------------------------------------------------------------


def _truncate(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])


def _add_column(path: Path) -> None:
    parquet.write_table(table(5).append_column("more", pa.array(np.ones(60))), path)


def _rename_column(path: Path) -> None:
    parquet.write_table(
        table(5).rename_columns(["x0", "x1", "x2", "z", "at", "by", "y", "label"]), path
    )


def _put_nan(path: Path) -> None:
    x = np.where(np.arange(60) == 7, np.nan, 1.0)
    parquet.write_table(table(5).set_column(1, "x1", pa.array(x)), path)


def _put_text(path: Path) -> None:
    parquet.write_table(table(5).set_column(1, "x1", pa.array(["a"] * 60)), path)


@pytest.mark.parametrize(
    ("damage", "error", "workers"),
    [
        (_truncate, "complete Parquet file", 1),
        (_truncate, "complete Parquet file", 2),  # processes, whose start takes long
        (_add_column, "also 'more'", 1),
        (_rename_column, "no 'x3' and also 'z'", 1),
        (_put_nan, "NaN", 1),
        (_put_text, "must be a number", 1),
    ],
)
def test_bad_shard_is_named_or_left_out(
    shards: str, tmp_path: Path, damage: Callable[[Path], object], error: str, workers: int
) -> None:
    files = [tmp_path / "shards" / f"part-{i}.parquet" for i in range(SHARDS)]
    damage(files[5])
    with pytest.raises(SourceError, match=rf"part-5\.parquet \(number 6\).*{error}"):
        _fit(shards, workers=workers)
    with pytest.warns(RowsRefusedWarning, match=r"1 of 8 shards were left out: .*part-5\.parquet"):
        report = _fit(shards, workers=workers, on_bad_shard="skip")
    assert list(report.skipped) == [str(files[5])]
    assert report.shards == SHARDS - 1
    others = [file for file in files if file != files[5]]
    np.testing.assert_allclose(report.model.coef_, _fit(others).model.coef_, rtol=1e-10)


@pytest.mark.parametrize("number", [0, 7])
def test_bad_first_or_last_shard(shards: str, tmp_path: Path, number: int) -> None:
    _truncate(tmp_path / "shards" / f"part-{number}.parquet")
    with pytest.raises(SourceError, match=rf"part-{number}\.parquet"):
        _fit(shards)
    with pytest.warns(RowsRefusedWarning):
        assert _fit(shards, on_bad_shard="skip").shards == SHARDS - 1


def test_all_shards_bad(shards: str, tmp_path: Path) -> None:
    for file in (tmp_path / "shards").iterdir():
        _truncate(file)
    with pytest.raises(SourceError, match=r"part-7\.parquet"):
        _fit(shards, on_bad_shard="skip")


def test_truncated_compressed_csv(tmp_path: Path) -> None:
    for i in range(3):
        with pa.output_stream(str(tmp_path / f"{i}.csv.gz"), compression="gzip") as file:
            csv.write_csv(table(i, 3000), file)
    _truncate(tmp_path / "1.csv.gz")
    with pytest.raises(SourceError, match=r"1\.csv\.gz.*truncated or damaged"):
        _fit(f"{tmp_path}/*.csv.gz")


def test_categories_that_cannot_be_merged_name_the_shards(tmp_path: Path) -> None:
    for i in range(4):
        (tmp_path / f"{i}.csv").write_text(f"by,y\nA{i},1\nB{i},2\nA{i},1\n")
    model = op.Pipeline(Encode(max_categories=3), op.RLSRegressor(prior=1.0))
    with pytest.raises(MergeError, match=r"0\.csv and of the next from .*1\.csv"):
        op.scale.fit(model, f"{tmp_path}/*.csv", target="y")


@pytest.mark.parametrize(
    ("options", "argument"),
    [
        ({"engine": "spork"}, "engine"),
        ({"workers": 0}, "workers"),
        ({"on_bad_shard": "no"}, "on_bad_shard"),
        ({"workdir": "s3://bucket/w"}, "workdir"),
        ({"missing": "no"}, "missing"),
        ({"model": op.RLSRegressor(ridge=-1.0)}, "ridge"),
    ],
)
def test_invalid_arguments(shards: str, options: dict[str, Any], argument: str) -> None:
    with raises(ParameterError, argument=argument):
        _fit(shards, **options)


def test_options_of_a_part_of_the_rows_are_refused(shards: str) -> None:
    with pytest.raises(ParameterError, match="'start' must be omitted"):
        _fit(shards, start=3)


def test_refused_models(shards: str) -> None:
    with raises(MergeError, where="op.scale.fit", got="one that stores only its weights"):
        _fit(shards, op.SGDRegressor())
    with raises(MergeError, where="op.scale.fit", remedy="Learn all rows with"):
        _fit(shards, op.Pipeline(op.features.Scale(), op.SGDRegressor()))
    with raises(TypeMismatchError, argument="model", got="Ridge"):
        _fit(shards, Ridge())
    with raises(
        TypeMismatchError, argument="model", got="<class 'onepass.learners.rls.RLSRegressor'>"
    ):
        _fit(shards, op.RLSRegressor)
    function = op.ORFitRegressor(memory=None, noise=1.0, feature_map=np.abs)
    with raises(CheckpointError, argument="feature_map"):  # files contain no functions
        _fit(shards, function)


def test_model_is_not_changed(shards: str) -> None:
    model = op.RLSRegressor().fit(np.eye(3), np.ones(3))
    before = state(model)
    assert _fit(shards, model).model.n_features_in_ == 4  # what it has learned is ignored
    assert state(model) == before


# -- restarts --------------------------------------------------------------------------------------


def test_summaries_are_reused(shards: str, tmp_path: Path) -> None:
    first, again = (_fit(shards, workdir=tmp_path / "w") for _ in range(2))
    assert (first.reused, again.reused, again.shards) == (0, SHARDS, SHARDS)
    assert state(first.model) == state(again.model) == state(_fit(shards).model)


def test_changed_and_new_shards_are_learned_again(shards: str, tmp_path: Path) -> None:
    _fit(shards, workdir=tmp_path / "w")
    parquet.write_table(table(99, 64), tmp_path / "shards" / "part-4.parquet")
    parquet.write_table(table(8, 68), tmp_path / "shards" / "part-8.parquet")
    report = _fit(shards, workdir=tmp_path / "w")
    assert (report.reused, report.shards) == (SHARDS - 1, SHARDS + 1)
    assert state(report.model) == state(_fit(shards).model)


def test_damaged_summary_is_learned_again(shards: str, tmp_path: Path) -> None:
    first = _fit(shards, workdir=tmp_path / "w")
    summary = tmp_path / "w" / "shard-000003.onepass"
    data = bytearray(summary.read_bytes())
    data[-9] ^= 1
    summary.write_bytes(data)
    report = _fit(shards, workdir=tmp_path / "w")
    assert report.reused == SHARDS - 1
    assert state(report.model) == state(first.model)


@pytest.mark.parametrize(
    "other", [{"model": op.RLSRegressor(ridge=2.0)}, {"target": "at", "drop": ["y", "by", "label"]}]
)
def test_summaries_of_other_parameters_are_refused(
    shards: str, tmp_path: Path, other: dict[str, Any]
) -> None:
    _fit(shards, workdir=tmp_path / "w")
    with raises(ParameterError, argument="workdir", remedy="pass restart=True"):
        _fit(shards, workdir=tmp_path / "w", **other)
    assert _fit(shards, workdir=tmp_path / "w").reused == SHARDS  # still there
    assert _fit(shards, workdir=tmp_path / "w", restart=True, **other).reused == 0


def test_shard_that_changes_while_it_is_read(
    shards: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from onepass.scale import shards as module

    learn, file = module.learn, tmp_path / "shards" / "part-2.parquet"

    def learn_and_touch(model: Any, rows: Any) -> None:
        learn(model, rows)
        if len(rows) == 62:
            os.utime(file, (1.0, 1.0))

    monkeypatch.setattr(module, "learn", learn_and_touch)
    with pytest.raises(SourceError, match=r"part-2\.parquet.*changed while it was read"):
        _fit(shards)


def test_shard_that_changes_after_it_was_learned(
    shards: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def engine(function: Any, items: Any, workers: Any) -> Iterator[Any]:
        for item in ENGINES["local"](function, items, workers):
            os.utime(tmp_path / "shards" / f"part-{item.index}.parquet", (1.0, 1.0))
            yield item

    monkeypatch.setitem(ENGINES, "late", engine)
    with pytest.raises(SourceError, match=r"part-0\.parquet"):
        _fit(shards, engine="late")


_DRIVER = """
import os, signal, sys
import onepass as op

def notify(progress):
    if progress.done == 3:
        os.kill(os.getpid(), signal.SIGKILL)

op.scale.fit(op.RLSRegressor(), sys.argv[1], target="y", drop=["at", "by", "label"],
             workdir=sys.argv[2], on_progress=notify)
"""


def test_continues_after_the_driver_was_killed(shards: str, tmp_path: Path) -> None:
    code = subprocess.run(  # noqa: S603  our own code
        [sys.executable, "-c", _DRIVER, shards, tmp_path / "w"], check=False
    ).returncode
    assert code == -signal.SIGKILL
    report = _fit(shards, workdir=tmp_path / "w")
    assert report.reused == 3
    assert state(report.model) == state(_fit(shards).model)


# -- killed workers --------------------------------------------------------------------------------


def _killing(engine: str, marker: Path, times: int) -> Any:
    """An engine whose worker is killed while it learns shard 3, the first few times."""

    def run(function: Any, items: Any, workers: Any) -> Iterator[Any]:
        def call(item: Any) -> None:
            killed = len(list(marker.parent.glob(f"{marker.name}*")))
            if item.index == 3 and killed < times:
                marker.with_name(f"{marker.name}{killed}").touch()
                os.kill(os.getpid(), signal.SIGKILL)
            function(item)

        return ENGINES[engine](call, items, workers)

    return run


def test_killed_process_is_repeated(
    shards: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(ENGINES, "killing", _killing("local", tmp_path / "killed", 1))
    report = _fit(shards, engine="killing", workers=2)
    assert state(report.model) == state(_fit(shards).model)
    monkeypatch.setitem(ENGINES, "killing", _killing("local", tmp_path / "often", 99))
    with pytest.raises(ProcessError):
        _fit(shards, engine="killing", workers=2)


# -- Ray, whose cluster takes seconds to start: few tests ------------------------------------------


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::FutureWarning")
def test_ray_gives_the_same_bits_after_a_worker_or_a_node_was_killed(
    shards: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ray = pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    memory = {"object_store_memory": 80 * 1024**2, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, **memory})
    try:
        other = cluster.add_node(num_cpus=1, object_store_memory=80 * 1024**2)
        ray.init(address=cluster.address, log_to_driver=False)
        _same_bits(shards, "ray", models=4)
        plain = state(_fit(shards).model)
        monkeypatch.setitem(ENGINES, "killing", _killing("ray", tmp_path / "killed", 1))
        assert state(_fit(shards, engine="killing").model) == plain
        assert (tmp_path / "killed0").exists()

        started = tmp_path / "started"
        started.mkdir()

        lost = other.node_id

        def on_both(function: Any, items: Any, workers: Any) -> Iterator[Any]:
            def call(item: Any) -> None:
                """On the node to be killed wait for it; on the other, until that has begun."""
                here = ray.get_runtime_context().get_node_id()
                (started / f"{item.index} {here}").touch()
                while here == lost or not list(started.glob(f"* {lost}")):
                    time.sleep(0.05)
                function(item)

            return ENGINES["ray"](call, items, workers)

        def remove(progress: Any) -> None:
            if progress.done == 1:
                cluster.remove_node(other, allow_graceful=False)

        monkeypatch.setitem(ENGINES, "on both", on_both)
        report = _fit(shards, engine="on both", on_progress=remove)
        assert len(list(started.iterdir())) > SHARDS  # a shard was begun on each node
        assert state(report.model) == plain
        _truncate(tmp_path / "shards" / "part-1.parquet")
        with pytest.raises(SourceError, match=r"part-1\.parquet"):
            _fit(shards, engine="ray", workers=2)
    finally:
        ray.shutdown()
        cluster.shutdown()
