"""Resumed runs equal uninterrupted runs; checkpoints of other runs are refused."""

import json
import struct
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from river import drift

import onepass as op
from onepass.errors import (
    CheckpointError,
    CheckpointWarning,
    NotFiniteError,
    ParameterError,
    SourceError,
)
from onepass.evaluate import Report, prequential, run_progress
from onepass.evaluate.curves import RollingMetrics
from onepass.evaluate.metrics import METRICS, Metric, row_probabilities
from onepass.serialization import archive
from onepass.serialization.codec import state_dict
from raising import raises

N = 480
BLOCK = 32


def _frame(n: int = N, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    km, by = rng.normal(size=n), rng.integers(0, 3, n)
    wind = np.where(rng.random(n) < 0.1, np.nan, rng.normal(size=n))
    price = 2 * km + by + 0.1 * rng.normal(size=n)
    price[7::47] = np.nan
    at = np.datetime64("2024-01-01", "us") + np.arange(n) * np.timedelta64(1, "h")
    known = at + rng.integers(0, 200, n) * np.timedelta64(30, "m")
    return pd.DataFrame(
        {"km": km, "by": np.array(list("abc"))[by], "wind": wind, "at": at, "known": known}
    ).assign(price=price)


FRAME = _frame()


class Broken(Exception):  # noqa: N818  nothing went wrong: it is the end that a test asks for
    """Ends the run."""


def _stop(rows: int) -> Callable[[int], None]:
    def progress(done: int) -> None:
        if done >= rows:
            raise Broken

    return progress


def _models(task: str = "regression", **given: Any) -> Any:
    return op.models.pipelines(["rls", "sgd"], task, {"sgd.step_size": 0.3} | given)


def _stream(
    frame: Any = FRAME, target: str = "price", block: int | None = BLOCK, **given: Any
) -> Any:
    return op.stream.read(frame, target=target, time="at", block=block, **given)


def _same(a: Report, b: Report) -> None:
    """Assert equal reports, except the list of resumptions and times."""
    one, other = a.to_dict(), b.to_dict()
    for output in (one, other):
        del output["resumed"]
        for score in output["scores"].values():
            del score["seconds"]
    assert one == other


def _learned(models: Any) -> Any:
    return archive.split(state_dict(models, "here"), "here")


def _same_models(a: Any, b: Any) -> None:
    (plain, arrays), (others, again) = _learned(a), _learned(b)
    assert plain == others
    assert arrays.keys() == again.keys()
    for name, array in arrays.items():
        np.testing.assert_array_equal(array, again[name])


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "m.run"


DELAYS: dict[str, dict[str, Any]] = {
    "none": {},
    "rows": {"delay": 50},
    "column": {"delay_until": "known"},
}


@pytest.mark.parametrize(
    ("delay", "task"),
    [("none", "classification"), ("rows", "regression"), ("column", "regression")],
)
def test_twice_resumed_run_equals_uninterrupted_run(delay: str, task: str, place: Path) -> None:
    given = {"window": 100, "points": 40, **DELAYS[delay]}
    target = "price" if task == "regression" else "by"

    def stream() -> Any:
        return _stream(target=target, drop=[] if delay == "column" else ["known"])

    calm = _models(task)
    report = prequential(calm, stream(), **given)
    for end in (100, 300):
        with pytest.raises(Broken):
            prequential(
                _models(task), stream(), checkpoint=place, resume=True,
                on_progress=_stop(end), **given,
            )  # fmt: skip
        stood = run_progress(place)
        assert stood is not None
        assert not stood.finished
        assert end <= stood.rows < end + BLOCK
    models = _models(task)
    again = prequential(models, stream(), checkpoint=place, resume=True, **given)
    assert len(again.resumed) == 2
    assert "resumed after" in str(again)
    assert Report.from_json(again.to_json()) == again
    _same(again, report)
    _same_models(models, calm)


@settings(max_examples=15)
@given(
    seed=st.integers(0, 1000),
    task=st.sampled_from(list(METRICS)),
    window=st.sampled_from([None, 7]),
    cut=st.integers(0, 40),
)
def test_restored_rolling_metrics_continue_bit_for_bit(
    seed: int, task: str, window: int | None, cut: int
) -> None:
    rng = np.random.default_rng(seed)
    y, answers = rng.normal(size=(2, 40)) * 10.0 ** rng.integers(-8, 9)
    if task == "classification":
        labels = np.array(["a", "b", None, 3, True], dtype=object)
        y, answers = labels[rng.integers(0, 2, 40)], labels[rng.integers(0, 5, 40)]
        answers = row_probabilities(answers, y, labels[:2], rng.dirichlet([1.0, 1.0], 40))
    kinds = dict(METRICS[task])
    one, other = RollingMetrics(kinds, window), RollingMetrics(kinds, window)
    one.add(y[:cut], answers[:cut])
    tree = archive.join(*archive.split(one.state(), "here"), "here")
    other.restore(tree, "here")
    for tally in (one, other):
        tally.add(y[cut:], answers[cut:])
    assert one.overall == other.overall
    assert one.recent == other.recent


def test_metrics_with_unexpected_attributes_are_refused(place: Path) -> None:
    kind = METRICS["regression"]["mae"]
    state = state_dict(kind(), "m.run")
    for wrong in (3, {**state, "rows": -1}, {**state, "rows": "1"}, {**state, "extra": 1}):
        with raises(CheckpointError, got="a damaged"):
            RollingMetrics({"mae": kind}).restore(
                {"@": "RollingMetrics", "metrics": {"mae": wrong}}, "m.run"
            )
    metric = kind().add([1.0], [2.0])
    metric.extra = object()  # type: ignore[attr-defined]
    with raises(CheckpointError, argument="extra", got="object"):
        archive.split(state_dict(metric, "m.run"), "m.run")
    with raises(CheckpointError, got="RollingMetrics"):
        op.save(RollingMetrics({"mae": kind}), place)


class _Odd(METRICS["regression"]["mae"]):  # type: ignore[misc]
    """A custom metric that cannot be serialized."""

    def __init__(self) -> None:
        super().__init__()
        self.extra = object()


def test_unserializable_metric_is_refused_before_learning(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(METRICS["regression"], "odd", _Odd)  # type: ignore[arg-type]
    model = op.RLSRegressor()
    with raises(CheckpointError, got="object"):
        prequential(model, (np.eye(3), np.arange(3.0)), "odd", checkpoint=place)
    assert not hasattr(model, "rows_seen_")
    assert not place.exists()


class _Spread(Metric):
    """A custom metric with sums of several types, a Counter and an array."""

    label, better, unit = "Spread", "lower", ""

    def __init__(self) -> None:
        super().__init__()
        self.sum = np.float32(0.0)
        self.signs: Any = Counter()
        self.last: Any = None
        self.few: list[float] = []

    def add(self, y: Any, predictions: Any) -> Any:
        """Add rows."""
        self.rows += len(y)
        for error in np.asarray(y) - np.asarray(predictions):
            self.sum += np.float32(error)
            self.signs[bool(error > 0)] += 1
            self.last, self.few = np.array([error]), [*self.few, float(error)][-3:]
        return self

    @property
    def value(self) -> float:
        """The value."""
        return float(self.sum) + self.signs[True] + sum(self.few)

    def merge(self, other: Any) -> Any:
        """Not supported."""
        raise NotImplementedError


def test_custom_metric_continues_bit_for_bit(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(METRICS["regression"], "spread", _Spread)  # type: ignore[arg-type]
    given = {"metrics": ["spread", "mae"], "window": 50}
    report = prequential(_models(), _stream(), **given)
    with pytest.raises(Broken):
        prequential(_models(), _stream(), checkpoint=place, on_progress=_stop(100), **given)
    again = prequential(_models(), _stream(), checkpoint=place, resume=True, **given)
    assert again.resumed
    _same(again, report)


# -- times of checkpoints --------------------------------------------------------------------------


def test_checkpoint_interval_follows_the_clock(place: Path) -> None:
    seconds = iter(range(10**6))
    written = []

    def progress(done: int) -> None:
        stood = run_progress(place)
        written.append((done, None if stood is None else stood.rows))

    prequential(
        {}, _stream(), checkpoint=place, every=10.0, clock=lambda: float(next(seconds)),
        on_progress=progress,
    )  # fmt: skip
    seen = sorted({rows for _, rows in written if rows is not None})
    assert 2 <= len(seen) < len(written) / 2
    assert run_progress(place) == run_progress(place)
    stood = run_progress(place)
    assert stood is not None
    assert stood.finished
    assert stood.position == N


def test_without_a_clock_the_checkpoint_is_written_at_the_end(place: Path) -> None:
    found = []
    prequential({}, _stream(), checkpoint=place, on_progress=lambda _: found.append(place.exists()))
    assert not any(found)
    assert place.exists()


def test_stream_error_leaves_a_resumable_checkpoint(place: Path) -> None:
    def torn() -> Any:
        for i, rows in enumerate(_stream(drop=["known"])):
            if i == 5:
                raise SourceError("the line broke")
            yield rows

    with pytest.raises(SourceError, match="the line broke"):
        prequential(_models(), torn(), checkpoint=place)
    stood = run_progress(place)
    assert stood is not None
    assert stood.rows == 5 * BLOCK
    models, calm = _models(), _models()
    again = prequential(
        models, iter(_stream(drop=["known"])), checkpoint=place, resume=True, window=None
    )
    _same(again, prequential(calm, iter(_stream(drop=["known"]))))
    _same_models(models, calm)


def test_invalid_block_leaves_the_previous_checkpoint(place: Path) -> None:
    def blocks() -> Any:
        for i in range(4):
            X = np.full((5, 2), np.nan if i == 2 else float(i + 1))
            yield SimpleNamespace(X=X, y=np.arange(5.0))

    clock = iter(range(1000))
    with pytest.raises(NotFiniteError):
        prequential(
            op.RLSRegressor(), blocks(), checkpoint=place, every=0, clock=lambda: next(clock)
        )
    stood = run_progress(place)
    assert stood is not None
    assert (stood.rows, stood.finished) == (10, False)


def test_interrupted_run_is_resumed(place: Path) -> None:
    def stopped() -> Any:
        for i, rows in enumerate(_stream()):
            if i == 7:
                raise KeyboardInterrupt
            yield rows

    assert prequential(_models(), stopped(), checkpoint=place, delay=50).interrupted
    models, calm = _models(), _models()
    again = prequential(models, iter(_stream()), checkpoint=place, resume=True, delay=50)
    _same(again, prequential(calm, iter(_stream()), delay=50))
    _same_models(models, calm)


def test_full_disk_gives_a_warning_and_keeps_the_checkpoint(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prequential(_models(), _stream(), checkpoint=place)
    before = place.read_bytes()
    monkeypatch.setattr(
        "onepass.serialization.archive.save_file",
        lambda *_, **__: (_ for _ in ()).throw(OSError(28, "full")),
    )
    models = _models()
    with pytest.warns(CheckpointWarning, match=r"m.run: must be a file that can be written.*full"):
        report = prequential(models, _stream(), checkpoint=place)
    assert report.rows == models["rls"].rows_seen_
    assert place.read_bytes() == before
    assert [path.name for path in place.parent.iterdir()] == ["m.run"]


# -- appended rows and further sources -------------------------------------------------------------


@pytest.mark.parametrize("delay", DELAYS)
def test_finished_run_continues_with_appended_rows(delay: str, place: Path) -> None:
    given = DELAYS[delay]
    drop = [] if delay == "column" else ["known"]
    # with "auto" and a column of delays, resumed runs are equal to rounding only
    exact = {"rls.forgetting": 1.0} if delay == "column" else {}
    models = _models(**exact)
    first = BLOCK * 8
    whole_blocks = FRAME.assign(price=FRAME["price"].fillna(0.0))  # so that blocks are equal
    prequential(models, _stream(whole_blocks[:first], drop=drop), checkpoint=place, **given)
    models, calm = _models(**exact), _models(**exact)
    again = prequential(
        models, _stream(whole_blocks, drop=drop), checkpoint=place, resume=True, **given
    )
    assert again.resumed == [first]
    _same(again, prequential(calm, _stream(whole_blocks, drop=drop), **given))
    _same_models(models, calm)


def test_resuming_without_new_rows_changes_nothing(place: Path) -> None:
    models = _models()
    report = prequential(models, _stream(), checkpoint=place)
    for _ in range(2):
        again = prequential(resumed := _models(), _stream(), checkpoint=place, resume=True)
        _same(again, report)
        _same_models(resumed, models)
    assert again.resumed == [report.rows]


def test_run_over_arrays_is_resumed(place: Path) -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(5000, 3)), rng.normal(size=5000)
    with pytest.raises(Broken):
        prequential(op.RLSRegressor(), (X, y), checkpoint=place, on_progress=_stop(2000))
    model, calm = op.RLSRegressor(), op.RLSRegressor()
    again = prequential(model, (X, y), checkpoint=place, resume=True)
    _same(again, prequential(calm, (X, y)))
    np.testing.assert_array_equal(model.coef_, calm.coef_)
    with raises(SourceError, argument="stream", got="9"):
        prequential(op.RLSRegressor(), (X[:9], y[:9]), checkpoint=place, resume=True)


def test_resumed_learner_uses_functions_of_the_given_model(place: Path) -> None:
    X, y = np.arange(12.0).reshape(6, 2), np.arange(6.0)

    def squared(row: Any) -> Any:
        return np.concatenate([row, row**2], axis=-1)

    def model() -> Any:
        return op.ORFitRegressor(feature_map=squared, noise=1.0)

    prequential(model(), (X[:3], y[:3]), checkpoint=place)
    again = model()
    prequential(again, (X, y), checkpoint=place, resume=True)
    calm = model().partial_fit(X, y)
    np.testing.assert_allclose(again.coef_, calm.coef_, rtol=1e-9)


def test_next_source_is_read_from_its_first_row(place: Path) -> None:
    monday, tuesday = FRAME[: BLOCK * 4], FRAME[BLOCK * 4 :].reset_index(drop=True)
    prequential(_models(), _stream(monday), checkpoint=place)
    with raises(CheckpointError, remedy="Restore them, or use"):
        prequential(_models(), _stream(tuesday), checkpoint=place, resume=True)
    with pytest.raises(Broken):
        prequential(
            _models(), _stream(tuesday), checkpoint=place, resume=True, next_source=True,
            on_progress=_stop(300),
        )  # fmt: skip
    stood = run_progress(place)
    assert stood is not None
    assert 0 < stood.position < stood.rows
    models = _models()  # the same words again do not learn tuesday twice
    prequential(models, _stream(tuesday), checkpoint=place, resume=True, next_source=True)
    assert {model.rows_seen_ for model in models.values()} == {int(FRAME["price"].notna().sum())}
    with raises(CheckpointError, got="differences: its target was 'price' and is 'wind'"):
        prequential(
            _models(), _stream(monday, "wind"), checkpoint=place, resume=True, next_source=True
        )


def test_resumed_run_keeps_its_block_size_by_default(place: Path) -> None:
    clock: Any = {"every": 0, "clock": iter(range(1000)).__next__}
    with pytest.raises(Broken):
        prequential(_models(), _stream(), checkpoint=place, on_progress=_stop(200), **clock)
    models, calm = _models(), _models()
    again = prequential(models, _stream(block=None), checkpoint=place, resume=True)
    assert again.resumed
    _same(again, prequential(calm, _stream()))
    _same_models(models, calm)


# -- errors ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changed", "difference"),
    [
        ({"window": 5}, "window was None and is 5"),
        ({"metrics": "mae"}, "metrics was ['mae', 'rmse', 'r2'] and is ['mae']"),
        ({"points": 9}, "points was 200 and is 9"),
        ({"baselines": False}, "baselines was True and is False"),
        ({"delay": 3}, "delay was 1 and is 3"),
        ({"stream": _stream(block=64)}, "block was 32 and is 64"),
        ({"stream": _stream(drop=["wind"])}, "`drop` was [] and is ['wind']"),
        ({"stream": _stream(_frame(seed=1))}, "the values in its first 480 rows differ"),
        ({"stream": _stream(FRAME[:100])}, "it had at least 480 rows and has 100"),
        (
            {"models": op.models.pipelines(["rls"], "regression")},
            "models.sgd was Pipeline and is missing",
        ),
        (
            {"models": op.models.pipelines(["rls", "sgd"], "regression")},
            "models.sgd.steps.SGDRegressor.step_size was 0.3 and is None",
        ),
    ],
)
def test_a_checkpoint_of_another_run_is_an_error(
    changed: dict[str, Any], difference: str, place: Path
) -> None:
    prequential(_models(), _stream(), checkpoint=place)
    before = place.read_bytes()
    given = {"models": _models(), "stream": _stream(), **changed}
    with raises(CheckpointError, got=f"differences: {difference}"):
        prequential(**given, checkpoint=place, resume=True)
    assert place.read_bytes() == before
    assert not hasattr(given["models"]["rls"], "learner_")


@pytest.mark.parametrize(
    ("given", "argument"),
    [
        ({"resume": True}, "resume"),
        ({"checkpoint": "m.run", "next_source": True}, "next_source"),
        ({"checkpoint": "m.run", "every": -1}, "every"),
    ],
)
def test_invalid_arguments_are_errors(given: dict[str, Any], argument: str) -> None:
    with raises(ParameterError, argument=argument):
        prequential(op.RLSRegressor(), _stream(), **given)


class _Mine(op.RLSRegressor):  # type: ignore[misc]
    """A learner that cannot be serialized."""


def test_unserializable_model_is_refused_before_learning(place: Path) -> None:
    model = _Mine()
    with raises(CheckpointError, got="_Mine"):
        prequential(model, (np.eye(3), np.arange(3.0)), checkpoint=place)
    assert not hasattr(model, "rows_seen_")
    assert not place.exists()


def test_model_files_and_checkpoints_are_not_interchangeable(place: Path) -> None:
    op.save(op.RLSRegressor(), place)
    for call in (
        lambda: run_progress(place),
        lambda: prequential(op.RLSRegressor(), _stream(), checkpoint=place, resume=True),
    ):
        with raises(CheckpointError, got="a learner"):
            call()
    prequential(op.RLSRegressor(), (np.eye(3), np.arange(3.0)), checkpoint=place)
    with raises(CheckpointError, got="a run"):
        op.load(place)


def _wreck(tree: Any, path: tuple[str, ...], value: Any) -> Any:
    """The tree with another value at a path, or without it."""
    if len(path) == 1:
        rest = {name: part for name, part in tree.items() if name != path[0]}
        return rest if value is Broken else {**rest, path[0]: value}
    return {**tree, path[0]: _wreck(tree[path[0]], path[1:], value)}


@pytest.mark.parametrize(
    "path",
    [
        "source", "source.rows", "resumed", "settings", "run", "run.models", "run.models.rls",
        "run.models.last value", "run.seconds", "run.history", "run.history.rows",
        "run.history.models", "run.history.models.rls", "run.history.models.rls.metrics.mae",
        "run.history.models.rls.metrics.mae._total", "run.history.models.rls.window",
        "run.history.models.rls.last", "run.history.overall_curve",
        "run.history.overall_curve.rows", "run.history.overall_curve.stride",
        "run.history.recent_curve", "run.last", "run.pending", "run.pending.due", "run.pending.X",
    ],
)  # fmt: skip
def test_forged_checkpoint_is_refused_without_learning(path: str, wrecks: tuple[Any, Path]) -> None:
    """The digest is that of the forged content. Only CheckpointError is raised."""
    tree, place = wrecks
    for value in (Broken, None, -1, "x", [], {}, {"@": "os"}, [[1]], 1e300):
        archive.write(place, _wreck(tree, tuple(path.split(".")), value), kind="run")
        model = {"rls": op.RLSRegressor()}
        try:
            prequential(model, PAIR, checkpoint=place, resume=True, delay=5, window=20)
        except CheckpointError as refused:
            assert "m.run" in str(refused)  # noqa: PT017  some values do no harm
            assert not hasattr(model["rls"], "rows_seen_")


PAIR = (FRAME[["km"]].to_numpy()[:60], np.arange(60.0))


@pytest.fixture(scope="module")
def wrecks(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path]:
    place = tmp_path_factory.mktemp("wrecks") / "m.run"
    model = {"rls": op.RLSRegressor()}
    prequential(model, PAIR, checkpoint=place, delay=5, window=20)
    return archive.read(place, kind="run"), place


def test_flipped_bits_of_a_checkpoint_are_detected(place: Path) -> None:
    prequential(_models(), _stream(FRAME[:100]), checkpoint=place)
    whole = place.read_bytes()
    (size,) = struct.unpack("<Q", whole[:8])
    assert json.loads(whole[8 : 8 + size])
    for at in np.linspace(8, len(whole) - 1, 20).astype(int):
        torn = bytearray(whole)
        torn[at] ^= 1
        place.write_bytes(bytes(torn))
        with pytest.raises(CheckpointError):
            run_progress(place)
    place.write_bytes(whole[:-1])
    with raises(CheckpointError, got="a damaged"):
        run_progress(place)
    assert run_progress(place.with_name("none.run")) is None


def test_second_writer_of_a_checkpoint_is_detected(tmp_path: Path) -> None:
    place, begun = tmp_path / "m.run", []

    def other(*_: Any) -> None:
        if not begun:
            begun.append(prequential(_models(), _stream(FRAME[:200]), checkpoint=place))

    before = prequential(_models(), _stream(), checkpoint=place)
    with raises(CheckpointError, got="a file that another run has written"):
        prequential(_models(), _stream(), checkpoint=place, on_block=other)
    stood = run_progress(place)
    assert stood is not None
    assert stood.rows == begun[0].rows < before.rows
    place.unlink()  # whoever deletes it wants it anew
    prequential(
        _models(), _stream(), checkpoint=place, on_block=lambda *_: place.unlink(missing_ok=True)
    )
    assert place.exists()


def test_resuming_without_drift_detectors_warns(tmp_path: Path) -> None:
    place = tmp_path / "m.run"
    prequential(_models(), _stream(FRAME[:200]), checkpoint=place, drift=drift.ADWIN())
    with pytest.warns(CheckpointWarning, match="had drift detectors until row 195"):
        prequential(_models(), _stream(), checkpoint=place, resume=True)
    prequential(_models(), _stream(), checkpoint=place, resume=True)


@pytest.mark.parametrize(
    ("at", "by"),
    [
        (("source", "fingerprint", "rows"), "x"),
        (("source", "fingerprint", "columns"), 3),
        (("source", "name"), 3),
        (("finished",), "yes"),
        (("run", "models", "rls", "learner_"), 3),
    ],
)
def test_forged_run_fields_are_refused(tmp_path: Path, at: tuple[str, ...], by: Any) -> None:
    place = tmp_path / "m.run"
    prequential(_models(), _stream(FRAME[:100]), checkpoint=place)
    tree = part = archive.read(place, kind="run")
    for key in at[:-1]:
        part = part[key]
    part[at[-1]] = by
    archive.write(place, tree, kind="run")
    models = _models()
    with raises(CheckpointError, got="a damaged"):
        prequential(models, _stream(FRAME), checkpoint=place, resume=True)
    assert not any(hasattr(model, "learner_") for model in models.values())
