"""Drift detectors: the errors that they receive, and their alarms in the report."""

import warnings
from itertools import count, pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from river import drift

import onepass as op
from onepass.errors import CheckpointWarning, ParameterError
from onepass.evaluate import Report, prequential
from onepass.evaluate.drift import MAX_EVENTS, Drift, Events
from onepass.integrations.detectors import detectors
from raising import raises


class Recorder:
    """A detector that records the errors and raises an alarm at every fifth update."""

    errors: list[list[Any]] = []  # noqa: RUF012  copies are to share it

    def __init__(self) -> None:
        self.received: list[Any] = []
        self.drift_detected = False

    def __deepcopy__(self, memo: dict[int, Any]) -> "Recorder":
        copied = Recorder()
        Recorder.errors.append(copied.received)
        return copied

    def update(self, x: float) -> None:
        self.received.append(x)
        self.drift_detected = len(self.received) % 5 == 0


@pytest.fixture(autouse=True)
def _clear_errors() -> None:
    Recorder.errors.clear()


def turned(n: int = 2000, seed: int = 0) -> tuple[Any, Any]:
    """A stream whose coefficients change sign in the middle."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    sign = np.where(np.arange(n) < n // 2, 1.0, -1.0)
    return X, sign * (X @ [1.0, 2.0, 3.0]) + 0.1 * rng.normal(size=n)


def in_blocks(X: Any, y: Any, cuts: list[int], time: Any = None) -> list[Any]:
    edges = [0, *cuts, len(y)]
    return [
        SimpleNamespace(X=X[a:b], y=y[a:b], time=None if time is None else time[a:b])
        for a, b in pairwise(edges)
    ]


def test_detectors_receive_the_absolute_error_of_each_row() -> None:
    X, y = turned(200)
    predictions: list[Any] = []
    models = {"a": op.SGDRegressor(), "b": op.SGDRegressor(step_size=0.5)}
    prequential(models, (X, y), drift=Recorder(), on_block=lambda _, new: predictions.append(new))
    assert len(Recorder.errors) == 2  # a copy for each model, none for the baselines
    for name, errors in zip(models, Recorder.errors, strict=True):
        assert errors == np.abs(y - predictions[0][name]).tolist()


def test_detectors_receive_each_mistake() -> None:
    X, y = turned(200)
    labels = np.where(y > 0, "up", "down")
    predictions: list[Any] = []
    prequential(
        op.Perceptron(),
        (X, labels),
        drift=Recorder(),
        on_block=lambda _, new: predictions.append(new),
    )
    assert Recorder.errors[0] == (predictions[0]["Perceptron"] != labels).astype(float).tolist()
    assert Recorder.errors[0][0] == 1.0  # before the first row it said no label


def test_detectors_receive_the_mean_error_of_several_targets() -> None:
    X, y = turned(100)
    Y = np.column_stack([y, 2.0 * y])
    predictions: list[Any] = []
    prequential(
        op.SGDRegressor(),
        (X, Y),
        drift=Recorder(),
        on_block=lambda _, new: predictions.append(new),
    )
    assert Recorder.errors[0] == np.abs(Y - predictions[0]["SGDRegressor"]).mean(axis=1).tolist()


def test_alarm_rows_equal_a_plain_loop() -> None:
    X, y = turned()
    report = prequential(op.SGDRegressor(), (X, y), drift=drift.ADWIN())
    found = report.scores["SGDRegressor"].drift
    assert found is not None
    model, detector, rows = op.SGDRegressor(), drift.ADWIN(), []
    for row, x, answer in zip(count(1), X, y, strict=False):
        detector.update(abs(answer - model.predict_one(x)))
        model.learn_one(x, answer)
        if detector.drift_detected:
            rows.append(row)
    assert any(1000 < row < 1100 for row in rows)
    assert found == {"ADWIN": Drift(Events(len(rows), rows, None), None)}
    assert report.scores["running mean"].drift is None


def test_alarms_do_not_depend_on_the_blocks() -> None:
    X, y = turned()
    time = np.arange(len(y)).astype("datetime64[h]")
    given = {"adwin": drift.ADWIN(), "page": drift.PageHinkley()}
    whole = prequential(op.SGDRegressor(), in_blocks(X, y, [], time), drift=given)
    cut = prequential(op.SGDRegressor(), in_blocks(X, y, [1, 7, 1000, 1003], time), drift=given)
    assert whole.scores["SGDRegressor"].drift == cut.scores["SGDRegressor"].drift
    assert whole.scores["SGDRegressor"].drift is not None
    alarms = whole.scores["SGDRegressor"].drift["adwin"].alarms
    assert alarms.times is not None
    assert alarms.times[0] == str(time[alarms.rows[0] - 1].astype("datetime64[us]"))
    assert given["adwin"].n_detections == 0  # the one given is copied


def test_warning_phases_are_counted_once() -> None:
    X, y = turned(4000)
    report = prequential(
        op.Perceptron(),
        (X, y > 0),
        drift={"ddm": drift.binary.DDM(), "eddm": drift.binary.EDDM()},
    )
    model, detector, begun, alarms, before = op.Perceptron(), drift.binary.DDM(), [], [], False
    for row, x, answer in zip(count(1), X, y > 0, strict=False):
        detector.update(model.predict_one(x) != answer)
        model.learn_one(x, answer)
        if detector.warning_detected and not before:
            begun.append(row)
        before = detector.warning_detected
        if detector.drift_detected:
            alarms.append(row)
    found = report.scores["Perceptron"].drift
    assert found is not None
    assert begun
    assert found["ddm"].warnings == Events(len(begun), begun, None)
    assert found["ddm"].alarms == Events(len(alarms), alarms, None)


def test_counts_are_exact_and_stored_rows_bounded() -> None:
    n = 5 * MAX_EVENTS + 500
    report = prequential(op.SGDRegressor(), (np.ones((n, 1)), np.ones(n)), drift=Recorder())
    found = report.scores["SGDRegressor"].drift
    assert found is not None
    assert found["Recorder"].alarms.count == n // 5
    rows = found["Recorder"].alarms.rows
    assert MAX_EVENTS // 2 <= len(rows) <= MAX_EVENTS
    assert rows == list(range(5, n + 1, 10))  # every second one
    assert report.plot() is not None


def test_detectors_receive_no_nonfinite_errors() -> None:
    class Astray(op.SGDRegressor):
        def test_then_train(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
            predictions = super().test_then_train(X, y, sample_weight)
            return np.where(np.arange(len(y)) == 3, np.inf, predictions)

    prequential(Astray(), (np.ones((9, 1)), np.ones(9)), drift=Recorder())
    assert len(Recorder.errors[0]) == 8


def test_report_contains_the_alarms(tmp_path: Any) -> None:
    X, y = turned()
    report = prequential(
        {"sgd": op.SGDRegressor()}, (X, y), window=200, drift={"adwin": drift.ADWIN()}
    )
    found = report.scores["sgd"].drift
    assert found is not None
    alarms = found["adwin"].alarms
    assert Report.from_json(report.to_json()) == report
    assert report.to_dict()["scores"]["sgd"]["drift"]["adwin"]["alarms"]["rows"] == alarms.rows
    assert "adwin alarms" in str(report)
    assert "| adwin alarms |" in report.to_markdown()
    assert report.to_frame("pandas")["adwin_alarms"][0] == alarms.count
    frame = report.to_frame("pandas", of="drift")
    assert frame["row"].tolist() == alarms.rows
    assert set(frame["kind"]) == {"alarm"}
    report.save(tmp_path)
    assert (tmp_path / "curve.png").stat().st_size > 0


def test_alarms_are_drawn_as_ticks_on_the_curve_of_the_model() -> None:
    X, y = turned()
    models = {
        "slow": op.SGDRegressor(step="normalised", step_size=0.02),
        "quick": op.SGDRegressor(step="normalised", step_size=0.5),
    }
    for time in (None, np.arange(len(y)).astype("datetime64[h]"), np.arange(len(y)) / 7.0):
        fresh = {
            name: op.SGDRegressor(step="normalised", step_size=m.step_size)
            for name, m in models.items()
        }
        report = prequential(fresh, in_blocks(X, y, [900], time), drift={"a": drift.ADWIN()})
        axes = report.plot().axes[0]
        lines = {line.get_color(): line for line in axes.lines if len(line.get_xdata()) > 50}
        ticks = [line for line in axes.lines if line.get_marker() == "|"]
        assert len(ticks) == 2
        for tick, score in zip(ticks, report.scores.values(), strict=False):
            assert score.drift is not None
            assert len(tick.get_xdata()) == len(score.drift["a"].alarms.rows)
            curve = lines[tick.get_color()]
            low, high = min(curve.get_ydata()), max(curve.get_ydata())
            assert all(low <= value <= high for value in tick.get_ydata())
        assert "drift marked" in axes.get_title(loc="left")


def test_a_run_without_drift_is_drawn_without_ticks() -> None:
    X, y = turned(300)
    calm = prequential(op.SGDRegressor(), (X[:100], y[:100]), drift=drift.ADWIN())
    assert "ADWIN alarms" in str(calm)
    plain = prequential(op.SGDRegressor(), (X, y))
    assert plain.scores["SGDRegressor"].drift is None
    assert "alarms" not in str(plain)
    for report in (calm, plain):
        assert not [line for line in report.plot().axes[0].lines if line.get_marker() == "|"]


@pytest.mark.parametrize(
    ("given", "fields"),
    [
        (drift.ADWIN, {"argument": "drift", "got": "<class", "remedy": "Pass an object"}),
        (3, {"argument": "drift", "got": "3"}),
        ({"x": object()}, {"argument": "drift", "remedy": "Pass an object, such"}),
        (drift.binary.DDM(), {"got": "regress", "remedy": "ADWIN"}),
    ],
)
def test_invalid_detectors_are_refused_before_learning(given: Any, fields: dict[str, Any]) -> None:
    model = op.SGDRegressor()
    with raises(ParameterError, **fields):
        prequential(model, turned(50), drift=given)
    assert not hasattr(model, "rows_seen_")


def test_resuming_with_drift_detectors_is_refused(tmp_path: Any) -> None:
    run = tmp_path / "m.run"
    X, y = turned(50)
    first = prequential(op.SGDRegressor(), (X, y), drift=drift.ADWIN(), checkpoint=run)
    assert first.scores["SGDRegressor"].drift is not None
    with raises(ParameterError, argument="drift", remedy="Start a new run"):
        prequential(op.SGDRegressor(), (X, y), drift=drift.ADWIN(), checkpoint=run, resume=True)


def test_errors_of_a_detector_name_detector_and_model() -> None:
    class Broken(Recorder):
        def __deepcopy__(self, memo: dict[int, Any]) -> "Broken":
            return Broken()

        def update(self, x: float) -> None:
            raise RuntimeError(f"no {x}")

    with pytest.raises(RuntimeError) as wrong:
        prequential({"m": op.SGDRegressor()}, turned(50), drift={"b": Broken()})
    assert "drift detector 'b', on the errors of 'm'" in wrong.value.__notes__


def test_detectors_are_created_by_name() -> None:
    found = detectors(["ADWIN", "ddm", "pagehinkley"], "here")
    assert [type(one) for one in found.values()] == [
        drift.ADWIN, drift.binary.DDM, drift.PageHinkley,
    ]  # fmt: skip
    with raises(ParameterError, remedy="adwin'"):
        detectors(["adwim"], "here")


def test_drift_option_of_the_command_line(
    tmp_path: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from onepass.cli import main

    monkeypatch.chdir(tmp_path)
    X, y = turned()
    lines = [",".join(map(repr, row)) for row in np.column_stack([X, y]).tolist()]
    (tmp_path / "t.csv").write_text("\n".join(["a,b,c,y", *lines]) + "\n")
    words = "run t.csv --target y --model sgd -q --task regression"
    assert main(f"{words} --drift adwin,kswin --report out --save m.onepass".split()) == 0
    assert "adwin alarms" in capsys.readouterr().out
    found = Report.from_json(tmp_path / "out" / "report.json").scores["sgd"].drift
    assert found is not None
    assert any(1000 < row < 1100 for row in found["adwin"].alarms.rows)
    assert main(f"{words} --drift adwn".split()) == 2
    assert "Did you mean 'adwin'?" in capsys.readouterr().err
    assert main(f"{words} --drift ddm".split()) == 2
    assert "ddm must be used with classifiers" in capsys.readouterr().err
    assert main(f"{words} --drift adwin --save m.onepass --resume".split()) == 2
    assert "--drift must be omitted when a run is resumed" in capsys.readouterr().err
    with warnings.catch_warnings():
        warnings.simplefilter("default", CheckpointWarning)  # the command line tells it
        assert main(f"{words} --save m.onepass --resume".split()) == 0
    assert "will not contain their alarms" in " ".join(capsys.readouterr().err.split())
