"""Metrics of a served learner equal those of op.evaluate, over restarts too."""

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from durable_files import learn_and_maintain

import onepass as op
from onepass.integrations.detectors import detectors
from onepass.service.monitoring import Gauges, MetricsFile
from onepass.service.requests import Block


def stream(n: int, seed: int = 0) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    return X, X @ [1.0, 2.0, 3.0] + rng.normal(size=n)


def durable(folder: Path, **settings: Any) -> tuple[Any, Gauges, MetricsFile]:
    """A learner with its gauges, as the service opens it."""
    gauges: list[Gauges] = []

    def watch(learner: Any) -> Any:
        gauges.append(Gauges(learner, window=50))
        return gauges[0].learned

    held = op.durable(folder / "m.db", op.RLSRegressor(ridge=1e-3), watch=watch, **settings)
    diary = MetricsFile(folder / "m.gauges")
    diary.read(gauges[0], held.rows_seen)
    return held, gauges[0], diary


def test_the_error_is_that_of_evaluate(tmp_path: Path) -> None:
    X, y = stream(300)
    held, gauges, _ = durable(tmp_path)
    with held:
        for i in range(0, 300, 7):
            held.learn(X[i : i + 7], y[i : i + 7])
    said = op.RLSRegressor(ridge=1e-3).test_then_train(X, y)
    told = gauges.error()
    assert told["name"] == "mean absolute error"
    assert told["all"] == pytest.approx(np.abs(y - said).mean(), rel=1e-12)
    assert told["window"] == pytest.approx(np.abs(y - said)[-50:].mean(), rel=1e-12)
    assert told["window_rows"] == 50
    assert told["curve"][-1][0] == 300
    last = (y - said)[-50:]
    expected = {"mean": last.mean(), "deviation": last.std()}
    assert gauges.innovations() == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("size", [1, 3, 128, 5000])
def test_the_points_of_a_curve_are_evenly_spread(size: int) -> None:
    """However long the blocks are, and so all of the stream is seen."""
    gauges = Gauges(op.RLSRegressor())
    gauges.resume(None, 0)
    y = np.ones(size)
    for blocks in range(1, 2500):
        gauges.learned(Block(np.empty((size, 0)), y), y)
        if blocks % 211:
            continue
        at = np.array([point[0] for point in gauges.error()["curve"]])
        steps = np.diff(at, prepend=0)
        assert steps.max() <= 2 * max(np.median(steps), size)
        assert blocks < 400 or 100 < len(at) <= 400
        assert gauges.state()["rows"] - at[-1] <= steps.max()


@pytest.mark.parametrize("snapshot_rows", [1, 40, 100_000])
@pytest.mark.parametrize("written", [0, 5, 10, 17])
def test_no_row_is_counted_twice_or_missed(
    tmp_path: Path, snapshot_rows: int, written: int
) -> None:
    """Whenever the gauges were written, after the last snapshot: a restart changes nothing."""
    X, y = stream(200)
    held, gauges, diary = durable(tmp_path, snapshot_rows=snapshot_rows)
    for i in range(20):
        learn_and_maintain(held, X[10 * i : 10 * i + 10], y[10 * i : 10 * i + 10])
        diary.tend(gauges, held.last_snapshot[0])
        if i == written:
            diary.write(gauges)
    before = gauges.error()
    held._writer.release()  # as if it were killed
    again, gauges, _ = durable(tmp_path)
    with again:
        after = gauges.error()
        for field in ("all", "window", "window_rows"):
            assert after[field] == pytest.approx(before[field], rel=1e-12)
        assert (gauges.state()["rows"], gauges.seen) == (200, 200)
        assert [point[0] for point in after["curve"]] == sorted({p[0] for p in after["curve"]})


def test_gauges_that_do_not_fit_begin_anew(tmp_path: Path) -> None:
    X, y = stream(30)
    held, gauges, diary = durable(tmp_path)
    with held:
        held.learn(X, y)
        diary.write(gauges)
    good = (tmp_path / "m.gauges").read_bytes()
    for data in (b"", good[:-1], good[:100] + b"x" + good[101:], b"{}"):
        (tmp_path / "m.gauges").write_bytes(data)
        again, gauges, _ = durable(tmp_path)
        with again:
            assert (gauges.state()["rows"], gauges.seen) == (0, 30)
    (tmp_path / "m.gauges").write_bytes(good)
    ahead = Gauges(op.RLSRegressor(), window=50)
    MetricsFile(tmp_path / "m.gauges").read(ahead, 29)
    assert ahead.state()["rows"] == 0
    other = Gauges(op.RLSRegressor(), window=7)
    MetricsFile(tmp_path / "m.gauges").read(other, 30)
    assert other.state()["rows"] == 0


def told(gauges: Gauges, off: Any) -> None:
    gauges.learned(Block(np.zeros((len(off), 1)), np.asarray(off)), np.zeros(len(off)))


def test_drift_and_contradictions() -> None:
    pytest.importorskip("river")
    rng = np.random.default_rng(0)
    gauges = Gauges(op.RLSRegressor(), window=100, detectors=detectors(["adwin"], "here"))
    gauges.resume(None, 0)
    told(gauges, rng.normal(size=1000))
    assert (gauges.drift.alarms, gauges.contradictions) == (0, 0)
    told(gauges, 20 + rng.normal(size=300))
    assert gauges.drift.alarms >= 1
    assert 1000 < gauges.drift.marks[0]["rows"] <= 1300
    assert gauges.drift.marks[0]["detector"] == "adwin"
    assert gauges.contradictions > 0


@pytest.mark.parametrize("size", [1, 7, 400])
def test_contradictions_are_those_of_a_loop_over_rows(size: int) -> None:
    """However rows come, each is held against all before it."""
    rng = np.random.default_rng(3)
    off = rng.normal(size=1200) * np.where(rng.random(1200) < 0.02, 30.0, 1.0)
    expected = sum(abs(off[i]) > 6 * np.sqrt(np.mean(off[:i] ** 2)) for i in range(100, len(off)))
    assert expected > 3
    gauges = Gauges(op.RLSRegressor(), window=100)
    gauges.resume(None, 0)
    for i in range(0, len(off), size):
        told(gauges, off[i : i + size])
    assert gauges.contradictions == expected
    assert gauges.error()["all"] == pytest.approx(np.abs(off).mean(), rel=1e-12)


def test_blocks_of_all_kinds_are_counted_before_anything_is_told() -> None:
    gauges = Gauges(op.RLSRegressor(), window=100)
    gauges.resume(None, 0)
    for y in (np.ones(3), np.ones((2, 1)), np.ones(1, dtype=int), np.ones(4)):
        gauges.learned(Block(np.zeros((len(y), 1)), y), np.zeros(len(y)))
    assert (gauges.seen, gauges.state()["rows"]) == (10, 10)
    told(gauges, [1.0])
    assert gauges.innovations() == {"mean": 1.0, "deviation": 0.0}
    told(gauges, [1.0])
    assert gauges.state()["rows"] == 12
    told(gauges, [3.0])
    assert gauges.error()["all"] == pytest.approx(15 / 13)


def test_whole_numbers_are_not_counted_as_others() -> None:
    """As floats two large ones would be equal, where they are counted together with some."""
    gauges = Gauges(op.RLSClassifier())
    gauges.resume(None, 0)
    ones = np.ones(100)
    for _ in range(1000):  # after so many, a point of the curve stands for many rows
        gauges.learned(Block(ones[:, None], ones), ones)
    assert gauges.state()["rows"] == 100_000
    large = 1 << 53
    for y, said in ((large + 1, large), (0.5, 0.5), (0.5, 0.5), (large, large + 1)):
        gauges.learned(Block(np.ones((1, 1)), np.array([y])), np.array([said]))
    assert gauges.error()["all"] == pytest.approx(1 - 2 / 100_004, rel=1e-12)


def test_an_error_beyond_all_numbers_is_a_contradiction() -> None:
    gauges = Gauges(op.RLSRegressor(), window=100)
    gauges.resume(None, 0)
    told(gauges, np.ones(200))
    told(gauges, [1e160, 1.0])
    assert gauges.contradictions == 1


class Watching:
    """A detector that notes what it is told; it may fail at an error of 7."""

    def __init__(self, *, fails: bool) -> None:
        self.fails, self.told, self.drift_detected = fails, [], False

    def update(self, error: float) -> None:
        if self.fails and error == 7:
            raise RuntimeError("no 7")
        self.told.append(error)
        self.drift_detected = error > 5


def test_a_detector_that_fails_watches_no_longer_and_the_others_do(tmp_path: Path) -> None:
    failing, good = Watching(fails=True), Watching(fails=False)
    gauges = Gauges(op.RLSRegressor(), window=100, detectors={"failing": failing, "good": good})
    gauges.resume(None, 0)
    assert gauges.drift.trouble is None
    for error in (6.0, 7.0, 1.0, 8.0):
        told(gauges, [error, 1.0])
    assert gauges.drift.watching() == {"good": True, "failing": False}
    assert "failing has failed and watches no longer: no 7" in str(gauges.drift.trouble)
    assert (gauges.seen, gauges.state()["rows"], gauges.error()["all"]) == (8, 8, 26 / 8)
    assert (failing.told, good.told) == ([6.0, 1.0], [6.0, 1.0, 7.0, 1.0, 1.0, 1.0, 8.0, 1.0])
    marks = [(each["rows"], each["detector"]) for each in gauges.drift.marks]
    assert (gauges.drift.alarms, marks) == (
        4,
        [(1, "failing"), (1, "good"), (3, "good"), (7, "good")],
    )
    diary = MetricsFile(tmp_path / "m.gauges")
    diary.write(gauges)
    failing, good = Watching(fails=True), Watching(fails=False)
    again = Gauges(op.RLSRegressor(), window=100, detectors={"failing": failing, "good": good})
    diary.read(again, 8)
    assert (again.state()["rows"], again.drift.alarms, len(again.drift.marks)) == (8, 4, 4)
    assert (failing.told, len(good.told)) == ([6.0, 1.0], 8)
    assert "failing" in str(again.drift.trouble)


def test_errors_of_several_answers_do_not_make_up_for_each_other() -> None:
    good = Watching(fails=False)
    gauges = Gauges(op.RLSRegressor(), window=2, detectors={"good": good})
    gauges.resume(None, 0)
    y = np.array([[1.0, -1.0], [1.0, 1.0], [1.0, -1.0], [90.0, -90.0]])
    gauges.learned(Block(np.zeros((4, 1)), y), np.zeros((4, 2)))
    assert gauges.innovations() == {"mean": 0.0, "deviation": 0.0}
    assert (gauges.contradictions, good.told) == (1, [1.0, 1.0, 1.0, 90.0])


@pytest.mark.filterwarnings("ignore:overflow")
def test_detectors_are_told_nothing_that_is_not_finite() -> None:
    good = Watching(fails=False)
    gauges = Gauges(op.RLSRegressor(), window=2, detectors={"good": good})
    gauges.resume(None, 0)
    for error in (1.0, 1.7e308, 1.0):
        gauges.learned(Block(np.zeros((1, 1)), np.array([error])), np.array([-error]))
    assert (gauges.state()["rows"], good.told) == (3, [2.0, 2.0])


def test_classes_and_rates(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("onepass.service.monitoring.time.monotonic", lambda: now[0])
    gauges = Gauges(op.Perceptron(), window=3)
    gauges.resume(None, 0)
    y = np.array(["a", "b", "a", "a"], dtype=object)
    gauges.learned(Block(np.zeros((4, 1)), y), np.array([None, "b", "b", "a"], dtype=object))
    assert (gauges.error()["all"], gauges.error()["window"]) == (0.5, pytest.approx(2 / 3))
    for _ in range(5):
        gauges.predicted(10, 0.25)
    now[0] += 1
    rates = gauges.rates()
    assert (rates["learned"], rates["predicted"]) == (0.4, 5.0)
    assert rates["curve"] == [[1, 4, 50]]
    gauges.refuse(2, "why" * 1000)
    assert (gauges.rows_refused, len(gauges.refused[0]["why"])) == (2, 1000)
    assert Gauges(op.Perceptron(), window=3).error()["all"] is None


def test_quantiles_of_durations_are_those_of_the_histogram() -> None:
    """Linear between the bounds of a bucket, as Prometheus computes them."""
    gauges = Gauges(op.RLSRegressor())
    assert gauges.latency()["learn"] == {"p50": None, "p99": None}
    for seconds in (0.2, 0.2, 0.2, 0.4):
        gauges.predicted(1, seconds)
    found = gauges.latency()["predict"]
    assert found["p50"] == pytest.approx(0.1 + 0.15 * 2 / 3)
    assert found["p99"] == pytest.approx(0.25 + 0.25 * 0.96)
    gauges.answered(99.0)  # beyond all bounds: the largest one
    assert gauges.latency()["learn"] == {"p50": 10.0, "p99": 10.0}
    samples = {(name, *labels.values()): value for name, labels, value in gauges.duration_samples()}
    assert samples["onepass_request_seconds_sum", "predict"] == pytest.approx(1.0)
    assert samples["onepass_request_seconds_count", "predict"] == 4
    assert samples["onepass_request_seconds_bucket", "predict", "0.25"] == 3


def test_points_of_a_curve_have_their_time() -> None:
    gauges = Gauges(op.RLSRegressor())
    gauges.resume(None, 0)
    before = time.time()
    told(gauges, [1.0, 3.0])
    curve = gauges.error()["curve"]
    assert [point[:3] for point in curve] == [[2, 2.0, 2.0]]
    assert before <= curve[0][3] <= time.time()


def test_a_curve_stays_short() -> None:
    gauges = Gauges(op.RLSRegressor(), window=10)
    gauges.resume(None, 0)
    for _ in range(5000):
        told(gauges, [1.0])
    curve = gauges.error()["curve"]
    assert 150 < len(curve) <= 400
    assert curve == sorted(curve)


def test_labels_in_a_column_are_counted_one_by_one() -> None:
    gauges = Gauges(op.Perceptron(), window=3)
    gauges.resume(None, 0)
    y, said = np.array([[0], [1], [1], [0]]), np.array([0, 1, 0, 0])
    gauges.learned(Block(np.zeros((4, 1)), y), said)
    assert (gauges.error()["all"], gauges.state()["rows"]) == (0.75, 4)


def test_a_state_stays_as_it_was() -> None:
    gauges = Gauges(op.RLSRegressor())
    gauges.resume(None, 0)
    before = gauges.state()
    told(gauges, [1.0])
    assert before["curve"] == []
