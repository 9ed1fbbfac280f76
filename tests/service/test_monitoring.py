"""Metrics of a served learner, over restarts."""

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from durable_files import learn_and_maintain

import onepass as op
from onepass.integrations.detectors import detectors
from onepass.service.monitoring import Gauges, MetricsFile
from onepass.validation.rows import Rows


def stream(n: int, seed: int = 0) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    return X, X @ [1.0, 2.0, 3.0] + rng.normal(size=n)


def durable(folder: Path, **settings: Any) -> tuple[Any, Gauges, MetricsFile]:
    """A learner with its metrics, as the service opens it."""
    gauges: list[Gauges] = []

    def watch(learner: Any) -> Any:
        gauges.append(Gauges(learner, window=50))
        return gauges[0].learned

    held = op.durable(folder / "m.db", op.RLSRegressor(ridge=1e-3), watch=watch, **settings)
    metrics_file = MetricsFile(folder / "m.gauges")
    metrics_file.read(gauges[0], held.rows_seen)
    return held, gauges[0], metrics_file


def test_prequential_error_equals_test_then_train(tmp_path: Path) -> None:
    X, y = stream(300)
    held, gauges, _ = durable(tmp_path)
    with held:
        for i in range(0, 300, 7):
            held.learn(X[i : i + 7], y[i : i + 7])
    predictions = op.RLSRegressor(ridge=1e-3).test_then_train(X, y)
    errors_seen = gauges.prequential_error()
    assert errors_seen["name"] == "mean absolute error"
    assert errors_seen["all"] == pytest.approx(np.abs(y - predictions).mean(), rel=1e-12)
    assert errors_seen["window"] == pytest.approx(np.abs(y - predictions)[-50:].mean(), rel=1e-12)
    assert errors_seen["window_rows"] == 50
    assert errors_seen["curve"][-1][0] == 300
    last = (y - predictions)[-50:]
    expected = {"mean": last.mean(), "deviation": last.std()}
    assert gauges.innovations() == pytest.approx(expected, rel=1e-9)


def test_points_of_a_curve_have_the_times_of_learning(monkeypatch: pytest.MonkeyPatch) -> None:
    """Although errors are counted in groups."""
    gauges = Gauges(op.RLSRegressor())
    gauges.resume(None, 0)
    times = iter(range(100, 103))
    monkeypatch.setattr(time, "time", lambda: float(next(times)))
    for _ in range(3):
        gauges.learned(Rows(np.zeros((2, 1)), np.ones(2)), np.zeros(2))
    assert [at for *_, at, _ in gauges.prequential_error()["curve"]] == [100.0, 101.0, 102.0]


@pytest.mark.parametrize("size", [1, 3, 128, 5000])
def test_points_of_curve_are_evenly_spaced(size: int) -> None:
    """For each length of blocks, so that the curve covers the whole stream."""
    gauges = Gauges(op.RLSRegressor())
    gauges.resume(None, 0)
    y = np.ones(size)
    for blocks in range(1, 1300):
        gauges.learned(Rows(np.empty((size, 0)), y), y)
        if blocks % 211:
            continue
        at = np.array([point[0] for point in gauges.prequential_error()["curve"]])
        steps = np.diff(at, prepend=0)
        assert steps.max() <= 2 * max(np.median(steps), size)
        assert blocks < 400 or 100 < len(at) <= 400
        assert gauges.state()["rows"] - at[-1] <= steps.max()


@pytest.mark.parametrize("snapshot_rows", [1, 40, 100_000])
@pytest.mark.parametrize("written", [0, 5, 10, 17])
def test_rows_are_counted_once_over_restarts(
    tmp_path: Path, snapshot_rows: int, written: int
) -> None:
    """The metrics file may be older than the last snapshot."""
    X, y = stream(200)
    held, gauges, metrics_file = durable(tmp_path, snapshot_rows=snapshot_rows)
    for i in range(20):
        learn_and_maintain(held, X[10 * i : 10 * i + 10], y[10 * i : 10 * i + 10])
        metrics_file.maintain(gauges, held.versions[-1].rows_seen)
        if i == written:
            metrics_file.write(gauges)
    before = gauges.prequential_error()
    held._writer.release()  # as if it were killed
    again, gauges, _ = durable(tmp_path)
    with again:
        after = gauges.prequential_error()
        for field in ("all", "window", "window_rows"):
            assert after[field] == pytest.approx(before[field], rel=1e-12)
        assert (gauges.state()["rows"], gauges.seen) == (200, 200)
        assert [point[0] for point in after["curve"]] == sorted({p[0] for p in after["curve"]})


def test_metrics_files_that_do_not_match_are_ignored(tmp_path: Path) -> None:
    X, y = stream(30)
    held, gauges, metrics_file = durable(tmp_path)
    with held:
        held.learn(X, y)
        metrics_file.write(gauges)
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


def test_metrics_are_written_only_if_they_have_changed(tmp_path: Path) -> None:
    X, y = stream(30)
    path = tmp_path / "m.gauges"

    def written() -> int:
        metrics_file.write(gauges)
        return path.stat().st_ino

    held, gauges, metrics_file = durable(tmp_path)
    with held:
        held.learn(X, y)
        first = written()
        assert written() == first
    held, gauges, metrics_file = durable(tmp_path)
    with held:
        assert written() == first
        gauges.refuse(1, "why")
        assert written() != first
    again = Gauges(op.RLSRegressor(), window=50)
    MetricsFile(path).read(again, 30)
    assert (again.state()["rows"], again.rows_refused) == (30, 1)


def errors_seen(gauges: Gauges, off: Any) -> None:
    gauges.learned(Rows(np.zeros((len(off), 1)), np.asarray(off)), np.zeros(len(off)))


def test_drift_and_outliers() -> None:
    pytest.importorskip("river")
    rng = np.random.default_rng(0)
    gauges = Gauges(op.RLSRegressor(), window=100, detectors=detectors(["adwin"], "here"))
    gauges.resume(None, 0)
    errors_seen(gauges, rng.normal(size=1000))
    assert (gauges.drift.alarms, gauges.outliers) == (0, 0)
    errors_seen(gauges, 20 + rng.normal(size=300))
    assert gauges.drift.alarms >= 1
    assert 1000 < gauges.drift.marks[0]["rows"] <= 1300
    assert gauges.drift.marks[0]["detector"] == "adwin"
    assert gauges.outliers > 0


@pytest.mark.parametrize("size", [1, 7, 400])
def test_outliers_equal_a_loop_over_rows(size: int) -> None:
    """Each row is compared with all before it, for each length of blocks."""
    rng = np.random.default_rng(3)
    off = rng.normal(size=1200) * np.where(rng.random(1200) < 0.02, 30.0, 1.0)
    squares, expected = 0.0, 0
    for i, error in enumerate(off):
        limit = 36.0 * squares / max(i, 1)
        expected += i >= 100 and error**2 > limit
        squares += min(error**2, limit) if i >= 100 else error**2
    assert expected > 10
    gauges = Gauges(op.RLSRegressor(), window=100)
    gauges.resume(None, 0)
    for i in range(0, len(off), size):
        errors_seen(gauges, off[i : i + size])
    assert gauges.outliers == expected
    assert gauges.prequential_error()["all"] == pytest.approx(np.abs(off).mean(), rel=1e-12)


def test_queued_blocks_are_counted_when_metrics_are_read() -> None:
    gauges = Gauges(op.RLSRegressor(), window=100)
    gauges.resume(None, 0)
    for y in (np.ones(3), np.ones((2, 1)), np.ones(1, dtype=int), np.ones(4)):
        gauges.learned(Rows(np.zeros((len(y), 1)), y), np.zeros(len(y)))
    assert (gauges.seen, gauges.state()["rows"]) == (10, 10)
    errors_seen(gauges, [1.0])
    assert gauges.innovations() == {"mean": 1.0, "deviation": 0.0}
    errors_seen(gauges, [1.0])
    assert gauges.state()["rows"] == 12
    errors_seen(gauges, [3.0])
    assert gauges.prequential_error()["all"] == pytest.approx(15 / 13)


def test_large_integer_labels_are_compared_exactly() -> None:
    """Converted to floats, they would be equal."""
    gauges = Gauges(op.RLSClassifier())
    gauges.resume(None, 0)
    ones = np.ones(100)
    for _ in range(1000):  # after so many, a point of the curve stands for many rows
        gauges.learned(Rows(ones[:, None], ones), ones)
    assert gauges.state()["rows"] == 100_000
    large = 1 << 53
    for y, predictions in ((large + 1, large), (0.5, 0.5), (0.5, 0.5), (large, large + 1)):
        gauges.learned(Rows(np.ones((1, 1)), np.array([y])), np.array([predictions]))
    assert gauges.prequential_error()["all"] == pytest.approx(1 - 2 / 100_004, rel=1e-12)


def test_huge_error_is_an_outlier() -> None:
    gauges = Gauges(op.RLSRegressor(), window=100)
    gauges.resume(None, 0)
    errors_seen(gauges, np.ones(200))
    errors_seen(gauges, [1e160, 1.0])
    assert gauges.outliers == 1


class Watching:
    """A detector that records errors, and may fail at an error of 7."""

    def __init__(self, *, fails: bool) -> None:
        self.fails, self.errors_seen, self.drift_detected = fails, [], False

    def update(self, error: float) -> None:
        if self.fails and error == 7:
            raise RuntimeError("no 7")
        self.errors_seen.append(error)
        self.drift_detected = error > 5


def test_failed_detector_is_disabled_and_others_continue(tmp_path: Path) -> None:
    failing, good = Watching(fails=True), Watching(fails=False)
    gauges = Gauges(op.RLSRegressor(), window=100, detectors={"failing": failing, "good": good})
    gauges.resume(None, 0)
    assert gauges.drift.error is None
    for error in (6.0, 7.0, 1.0, 8.0):
        errors_seen(gauges, [error, 1.0])
    assert gauges.drift.active_detectors() == {"good": True, "failing": False}
    assert "failing has failed and is disabled: no 7" in str(gauges.drift.error)
    assert (gauges.seen, gauges.state()["rows"], gauges.prequential_error()["all"]) == (
        8,
        8,
        26 / 8,
    )
    assert (failing.errors_seen, good.errors_seen) == (
        [6.0, 1.0],
        [6.0, 1.0, 7.0, 1.0, 1.0, 1.0, 8.0, 1.0],
    )
    marks = [(each["rows"], each["detector"]) for each in gauges.drift.marks]
    assert (gauges.drift.alarms, marks) == (
        4,
        [(1, "failing"), (1, "good"), (3, "good"), (7, "good")],
    )
    metrics_file = MetricsFile(tmp_path / "m.gauges")
    metrics_file.write(gauges)
    failing, good = Watching(fails=True), Watching(fails=False)
    again = Gauges(op.RLSRegressor(), window=100, detectors={"failing": failing, "good": good})
    metrics_file.read(again, 8)
    assert (again.state()["rows"], again.drift.alarms, len(again.drift.marks)) == (8, 4, 4)
    assert (failing.errors_seen, len(good.errors_seen)) == ([6.0, 1.0], 8)
    assert "failing" in str(again.drift.error)


def test_errors_of_several_outputs_do_not_cancel() -> None:
    good = Watching(fails=False)
    gauges = Gauges(op.RLSRegressor(), window=2, detectors={"good": good})
    gauges.resume(None, 0)
    y = np.array([[1.0, -1.0], [1.0, 1.0], [1.0, -1.0], [90.0, -90.0]])
    gauges.learned(Rows(np.zeros((4, 1)), y), np.zeros((4, 2)))
    assert gauges.innovations() == {"mean": 0.0, "deviation": 0.0}
    assert (gauges.outliers, good.errors_seen) == (1, [1.0, 1.0, 1.0, 90.0])


@pytest.mark.filterwarnings("ignore:overflow")
def test_detectors_skip_errors_that_are_not_finite() -> None:
    good = Watching(fails=False)
    gauges = Gauges(op.RLSRegressor(), window=2, detectors={"good": good})
    gauges.resume(None, 0)
    for error in (1.0, 1.7e308, 1.0):
        gauges.learned(Rows(np.zeros((1, 1)), np.array([error])), np.array([-error]))
    assert (gauges.state()["rows"], good.errors_seen) == (3, [2.0, 2.0])


def test_metrics_of_classifiers_and_rates(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("onepass.service.monitoring.time.monotonic", lambda: now[0])
    gauges = Gauges(op.Perceptron(), window=3)
    gauges.resume(None, 0)
    y = np.array(["a", "b", "a", "a"], dtype=object)
    gauges.learned(Rows(np.zeros((4, 1)), y), np.array([None, "b", "b", "a"], dtype=object))
    assert (gauges.prequential_error()["all"], gauges.prequential_error()["window"]) == (
        0.5,
        pytest.approx(2 / 3),
    )
    for _ in range(5):
        gauges.observe_predict(10, 0.25)
    now[0] += 1
    rates = gauges.rates()
    assert (rates["learned"], rates["predicted"]) == (0.4, 5.0)
    assert rates["curve"] == [[1, 4, 50]]
    gauges.refuse(2, "why" * 1000)
    assert (gauges.rows_refused, len(gauges.refused[0]["why"])) == (2, 1000)
    assert Gauges(op.Perceptron(), window=3).prequential_error()["all"] is None


def test_baseline_and_r2(tmp_path: Path) -> None:
    """The mean of all earlier targets, over the same rows, also over a restart."""
    X, y = stream(300)
    held, gauges, metrics_file = durable(tmp_path)
    with held:
        for i in range(0, 150, 3):
            held.learn(X[i : i + 3], y[i : i + 3])
        metrics_file.write(gauges)
    again, gauges, _ = durable(tmp_path)
    with again:
        again.learn(X[150:], y[150:])
    means = np.concatenate([[0.0], np.cumsum(y)[:-1] / np.arange(1, 300)])
    baseline = np.abs(y - means)
    found = gauges.prequential_error()
    assert found["baseline"] == {
        "name": "mean of earlier targets",
        "all": pytest.approx(baseline.mean()),
        "window": pytest.approx(baseline[-50:].mean()),
    }
    rows, *_, at_point = found["curve"][40]
    assert at_point == pytest.approx(baseline[max(rows - 50, 0) : rows].mean())
    predictions = op.RLSRegressor(ridge=1e-3).test_then_train(X, y)
    last = y[-50:]
    share = ((last - predictions[-50:]) ** 2).sum() / ((last - last.mean()) ** 2).sum()
    assert found["r2"] == pytest.approx(1 - share)
    assert "curve" not in gauges.prequential_error(curve=False)


def test_baseline_of_a_classifier_begins_again_with_other_labels() -> None:
    gauges = Gauges(op.Perceptron(), window=4)
    gauges.resume(None, 0)
    assert gauges.prequential_error()["baseline"]["all"] is None
    for label in ["a", "b", "b", "b", "a"]:
        y = np.array([label], dtype=object)
        gauges.learned(Rows(np.zeros((1, 1)), y), y)
    found = gauges.prequential_error()
    assert (found["r2"], found["baseline"]) == (
        None,
        {"name": "most frequent earlier label", "all": 0.4, "window": 0.5},
    )
    gauges.learned(Rows(np.zeros((1, 1)), np.array([3])), np.array([3]))
    assert gauges.prequential_error()["baseline"]["all"] is None
    for _ in range(2):
        gauges.learned(Rows(np.zeros((1, 1)), np.array([3])), np.array([3]))
    assert gauges.prequential_error()["baseline"]["all"] == 0.5


def test_recent_time_has_more_points(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A month of a row a minute: 150 points of the last hour, day and week, over a restart."""
    gauges = Gauges(op.RLSRegressor(), window=10)
    gauges.resume(None, 0)
    month, one = 30 * 24 * 60, np.ones(1)
    now = [0.0]
    monkeypatch.setattr(time, "time", lambda: now[0])
    for i in range(month):
        now[0] = 60.0 * i
        gauges.learned(Rows(one[:, None], one), np.zeros(1))
    metrics_file = MetricsFile(tmp_path / "m.gauges")
    metrics_file.write(gauges)
    again = Gauges(op.RLSRegressor(), window=10)
    metrics_file.read(again, month)
    curve = again.prequential_error()["curve"]
    assert curve == gauges.prequential_error()["curve"]
    assert curve == sorted(curve)
    times = np.array([at for *_, at, _ in curve])
    counts = [int((times >= now[0] - hours * 3600).sum()) for hours in (1, 24, 7 * 24, 30 * 24)]
    assert counts[0] >= 60  # each minute
    assert counts[1] >= counts[0] + 120
    assert counts[2] >= counts[1] + 100
    assert counts[3] <= 400 + 3 * 150


def test_refusals_are_grouped_by_reason(tmp_path: Path) -> None:
    gauges = Gauges(op.RLSRegressor())
    gauges.resume(None, 0)
    for row in range(30):
        gauges.refuse(2, f"column 'km' must contain numbers, got text: 'x' in row {row}.")
        gauges.refuse(1, f"column 'km' must contain numbers, got text: '{row}-y' in row 0.")
        gauges.refuse(1, "column 'road' must contain numbers, got text: 'x' in row 0.")
    metrics_file = MetricsFile(tmp_path / "m.gauges")
    metrics_file.write(gauges)
    again = Gauges(op.RLSRegressor())
    metrics_file.read(again, 0)
    assert again.refused == gauges.refused
    again.refuse(5, "column 'km' must contain numbers, got text: '7' in row 7.")
    road, km = again.refused
    assert (road["times"], road["rows"]) == (30, 30)
    assert (km["times"], km["rows"], km["why"][-6:]) == (61, 95, "row 7.")
    assert road["first"] <= road["at"] <= km["at"]
    for i in range(26):
        again.refuse(1, f"reason {chr(97 + i)}")
    assert [each["why"][-1] for each in again.refused] == list("ghijklmnopqrstuvwxyz")


def test_latency_quantiles_are_interpolated_in_the_histogram() -> None:
    """Linear within a bucket, as in Prometheus."""
    gauges = Gauges(op.RLSRegressor())
    assert gauges.latency()["learn"] == {"p50": None, "p99": None}
    for seconds in (0.2, 0.2, 0.2, 0.4):
        gauges.observe_predict(1, seconds)
    found = gauges.latency()["predict"]
    assert found["p50"] == pytest.approx(0.1 + 0.15 * 2 / 3)
    assert found["p99"] == pytest.approx(0.25 + 0.25 * 0.96)
    gauges.observe_learn(99.0)  # beyond all bounds: the largest one
    assert gauges.latency()["learn"] == {"p50": 10.0, "p99": 10.0}
    samples = {(name, *labels.values()): value for name, labels, value in gauges.duration_samples()}
    assert samples["onepass_request_seconds_sum", "predict"] == pytest.approx(1.0)
    assert samples["onepass_request_seconds_count", "predict"] == 4
    assert samples["onepass_request_seconds_bucket", "predict", "0.25"] == 3


def test_points_of_curve_have_times() -> None:
    gauges = Gauges(op.RLSRegressor())
    gauges.resume(None, 0)
    before = time.time()
    errors_seen(gauges, [1.0, 3.0])
    curve = gauges.prequential_error()["curve"]
    assert [point[:3] for point in curve] == [[2, 2.0, 2.0]]
    assert before <= curve[0][3] <= time.time()


def test_length_of_curve_is_bounded() -> None:
    gauges = Gauges(op.RLSRegressor(), window=10)
    gauges.resume(None, 0)
    for _ in range(5000):
        errors_seen(gauges, [1.0])
    curve = gauges.prequential_error()["curve"]
    assert 150 < len(curve) <= 400
    assert curve == sorted(curve)


def test_labels_of_shape_n_1_are_counted_per_row() -> None:
    gauges = Gauges(op.Perceptron(), window=3)
    gauges.resume(None, 0)
    y, predictions = np.array([[0], [1], [1], [0]]), np.array([0, 1, 0, 0])
    gauges.learned(Rows(np.zeros((4, 1)), y), predictions)
    assert (gauges.prequential_error()["all"], gauges.state()["rows"]) == (0.75, 4)


def test_returned_state_is_a_copy() -> None:
    gauges = Gauges(op.RLSRegressor())
    gauges.resume(None, 0)
    before = gauges.state()
    errors_seen(gauges, [1.0])
    assert before["curve"] == []
