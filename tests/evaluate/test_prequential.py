"""Prequential runs: exact for any blocks, interruptible, and with clear errors."""

import signal
from collections.abc import Iterable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics as batch

from onepass.errors import NotFiniteError, OnepassError, ParameterError, ShapeError
from onepass.evaluate import LastLabel, LastValue, Majority, RunningMean, prequential
from onepass.learners import RLSClassifier, RLSRegressor
from onepass.validation.table import Table
from raising import raises


def _rows(X: Any, y: Any, cuts: Iterable[int], time: Any = None) -> Iterator[SimpleNamespace]:
    """The rows cut into blocks, some of them empty."""
    for rows in np.split(np.arange(len(y)), list(cuts)):
        yield SimpleNamespace(
            X=X[rows], y=y[rows], time=None if time is None else time[rows], skipped=1
        )


def _regression(n: int, seed: int = 0, c: int | None = None) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    y = X @ rng.normal(size=(3, c or 1)) + 0.1 * rng.normal(size=(n, c or 1)) + 2
    return X, y if c else y[:, 0]


def _loop(model: Any, X: Any, y: Any) -> Any:
    """Predictions of a plain loop over rows."""
    predictions = []
    for x, answer in zip(X, y, strict=True):
        predictions.append(model.predict_one(x))
        model.learn_one(x, answer)
    return np.array(predictions)


@settings(max_examples=8)
@given(seed=st.integers(0, 1000), cuts=st.lists(st.integers(0, 80), max_size=6))
def test_regression_equals_a_plain_loop_for_any_blocks(seed: int, cuts: list[int]) -> None:
    X, y = _regression(80, seed)
    window = 15
    report = prequential(
        {"rls": RLSRegressor()}, _rows(X, y, sorted(cuts)), window=window, points=1000
    )
    oracles = {"rls": RLSRegressor(), "last value": LastValue(), "running mean": RunningMean()}
    assert report.rows == 80
    assert report.skipped == len(cuts) + 1
    assert report.overall.rows == list(range(1, 81))
    assert report.recent is not None
    assert report.recent.rows == [*range(15, 80, 3), 80]
    for name, model in oracles.items():
        predictions = _loop(model, X, y)
        for metric, oracle in (
            ("mae", batch.mean_absolute_error),
            ("rmse", batch.root_mean_squared_error),
            ("r2", batch.r2_score),
        ):
            curve = report.overall.points[name][metric]
            for n in (2, 3, 40, 80):
                assert curve[n - 1] == pytest.approx(oracle(y[:n], predictions[:n]), rel=1e-6)
            for n, value in zip(
                report.recent.rows, report.recent.points[name][metric], strict=True
            ):
                last = slice(n - window, n)
                assert value == pytest.approx(oracle(y[last], predictions[last]), rel=1e-6)
            score = report.scores[name]
            assert score.overall[metric] == curve[-1]
            assert score.recent is not None
            assert score.recent[metric] == report.recent.points[name][metric][-1]
    assert report.overall.points["rls"]["r2"][0] is None


@settings(max_examples=8)
@given(seed=st.integers(0, 1000), cuts=st.lists(st.integers(0, 60), max_size=5))
def test_classification_equals_a_plain_loop_for_any_blocks(seed: int, cuts: list[int]) -> None:
    X, y = _regression(60, seed)
    labels = np.array(["low", "middle", "high"], dtype=object)[np.digitize(y, [1.0, 3.0])]
    report = prequential(RLSClassifier(), _rows(X, labels, sorted(cuts)), window=20)
    oracles = {"RLSClassifier": RLSClassifier(), "last label": LastLabel(), "majority": Majority()}
    for name, model in oracles.items():
        predictions = _loop(model, X, labels)
        score = report.scores[name]
        assert score.overall["accuracy"] == np.mean(predictions == labels)
        assert score.recent is not None
        assert score.recent["accuracy"] == np.mean(predictions[40:] == labels[40:])
        nothing = ["nothing" if label is None else label for label in predictions]
        macro = batch.f1_score(
            labels, nothing, labels=sorted(set(labels)), average="macro", zero_division=0
        )
        assert score.overall["macro_f1"] == pytest.approx(macro, rel=1e-12)


def test_report_does_not_depend_on_the_block_size() -> None:
    X, y = _regression(1000)
    reports = [
        prequential({}, _rows(X, y, range(width, 1000, width)), window=100, points=50)
        for width in (1, 7, 256, 1000)
    ]
    for report in reports[1:]:
        assert report.overall.rows == reports[0].overall.rows
        for model, metrics in report.overall.points.items():
            for metric, values in metrics.items():
                np.testing.assert_allclose(
                    np.array(values, dtype=float),
                    np.array(reports[0].overall.points[model][metric], dtype=float),
                    rtol=1e-12,
                )


def test_models_are_trained_in_place_and_the_stream_is_read_once() -> None:
    X, y = _regression(500)
    read = 0

    def source() -> Iterator[Any]:
        nonlocal read
        for rows in _rows(X, y, [100, 300]):
            read += len(rows.y)
            yield rows

    models = {"a": RLSRegressor(), "b": RLSRegressor(ridge=1.0)}
    prequential(models, source())
    assert read == 500
    for model in models.values():
        assert model.rows_seen_ == 500


def test_several_outputs_are_averaged() -> None:
    X, Y = _regression(200, c=3)
    report = prequential(RLSRegressor(), (X, Y), ["mae", "r2"])
    parts = [prequential(RLSRegressor(), (X, Y[:, k]), ["mae", "r2"]) for k in range(3)]
    for name in report.scores:
        for metric in ("mae", "r2"):
            values = [part.scores[name].overall[metric] for part in parts]
            assert report.scores[name].overall[metric] == pytest.approx(np.mean(values), rel=1e-9)


@pytest.mark.parametrize("points", [2, 3, 10, 200])
def test_curves_have_a_bounded_number_of_points(points: int) -> None:
    y = np.arange(20_000.0)
    report = prequential(LastValue(), (y[:, None], y), "mae", points=points, window=40)
    for curve in (report.overall, report.recent):
        assert curve is not None
        assert points // 2 <= len(curve) <= points
        assert curve.rows[-1] == 20_000
        steps = set(np.diff(curve.rows[:-1]).tolist())
        assert len(steps) <= 1


def test_window_longer_than_the_stream() -> None:
    X, y = _regression(50)
    report = prequential(RLSRegressor(), (X, y), window=60)
    score = report.scores["RLSRegressor"]
    assert score.recent == pytest.approx(score.overall)
    assert report.recent is not None
    assert len(report.recent) == 0


def test_curve_points_have_times() -> None:
    X, y = _regression(40)
    time = np.datetime64("2013-01-01T00:00") + np.arange(40) * np.timedelta64(1, "h")
    report = prequential(RLSRegressor(), _rows(X, y, [10, 11], time))
    assert report.overall.times is not None
    assert report.overall.times[-1] == "2013-01-02T15:00:00.000000"
    report = prequential(RLSRegressor(), _rows(X, y, [10], np.arange(40)))
    assert report.overall.times == list(range(40))
    assert prequential(RLSRegressor(), (X, y)).overall.times is None


def test_arrays_lists_and_data_frames_give_equal_scores() -> None:
    X, y = _regression(2500)
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    pairs = [
        (X, y),
        (X.tolist(), y.tolist()),
        (frame, pd.Series(y)),
        (pl.DataFrame({"a": X[:, 0], "b": X[:, 1], "c": X[:, 2]}), pl.Series(y)),
        (Table.from_frame(frame), y),
    ]
    predictions = [
        prequential(RLSRegressor(), pair).scores["RLSRegressor"].overall for pair in pairs
    ]
    assert all(one == predictions[0] for one in predictions)


def test_rows_of_text_are_passed_to_baselines() -> None:
    X = Table.from_rows([{"a": "x", "b": None}, {"a": None, "b": 1.0}, {"a": "y", "b": 2.0}])
    report = prequential({}, (X, np.array([1.0, 2.0, 3.0])), "mae")
    assert report.scores["last value"].overall["mae"] == 1.0


def test_seconds_are_measured_by_the_given_clock() -> None:
    X, y = _regression(3000)
    ticks = iter(range(1000))
    report = prequential(RLSRegressor(), (X, y), clock=lambda: float(next(ticks)))
    assert {score.seconds for score in report.scores.values()} == {3.0}
    report = prequential(RLSRegressor(), (X, y))
    assert {score.seconds for score in report.scores.values()} == {None}


def test_callbacks_are_called_for_every_block() -> None:
    X, y = _regression(30)
    progress: list[int] = []
    received: list[Any] = []
    prequential(
        {"rls": RLSRegressor()},
        _rows(X, y, [10, 10, 25]),
        on_progress=progress.append,
        on_block=lambda block, predictions: received.append(
            (len(block), {k: len(v) for k, v in predictions.items()})
        ),
    )
    assert progress == [10, 10, 25, 30]
    assert [n for n, _ in received] == [10, 0, 15, 5]
    assert received[2][1] == {"rls": 15, "last value": 15, "running mean": 15}


# -- interrupts -----------------------------------------------------------------------------------


class _Interrupted(RLSRegressor):  # type: ignore[misc]
    """Raises SIGINT ``times`` times while it learns its second block."""

    times = 1

    def test_then_train(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
        if getattr(self, "rows_seen_", 0) == 100:
            for _ in range(self.times):
                signal.raise_signal(signal.SIGINT)
        return super().test_then_train(X, y, sample_weight)


class _Interrupted2(_Interrupted):
    times = 2


@pytest.mark.usefixtures("interruptible")
def test_interrupt_takes_effect_after_the_block() -> None:
    X, y = _regression(500)
    models = {"before": RLSRegressor(), "in": _Interrupted(), "after": RLSRegressor()}
    report = prequential(models, _rows(X, y, [100, 200, 300]))
    assert report.interrupted
    assert report.rows == 200
    assert {model.rows_seen_ for model in models.values()} == {200}
    assert report.scores["in"].overall == report.scores["after"].overall
    calm = prequential({"before": RLSRegressor()}, _rows(X[:200], y[:200], [100]))
    assert report.overall.points["in"] == calm.overall.points["before"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def _stopped(blocks: Iterator[Any], n: int) -> Iterator[Any]:
    for _ in range(n):
        yield next(blocks)
    raise KeyboardInterrupt


def test_interrupt_between_blocks_ends_the_run() -> None:
    X, y = _regression(500)
    report = prequential(RLSRegressor(), _stopped(_rows(X, y, [100, 200, 300]), 2))
    assert report.interrupted
    assert report.rows == 200
    assert not prequential(RLSRegressor(), (X, y)).interrupted


@pytest.mark.usefixtures("interruptible")
def test_second_interrupt_is_raised_immediately() -> None:
    X, y = _regression(500)
    model = _Interrupted2()
    with pytest.raises(KeyboardInterrupt):
        prequential(model, _rows(X, y, [100, 200]))
    assert model.rows_seen_ == 100
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


# -- errors ---------------------------------------------------------------------------------------


def test_errors_name_model_and_rows() -> None:
    X, y = _regression(300)
    X[150, 1] = np.nan
    first, second = RLSRegressor(), RLSRegressor(ridge=1.0)
    with raises(
        NotFiniteError,
        where="model 'second', 100 row(s) starting at row 101 (counting from 0): "
        "RLSRegressor.test_then_train",
        argument="X",
    ):
        prequential(
            {"mean": RunningMean(), "second": second, "first": first},
            _rows(X, y, [100, 200]),
            baselines=False,
        )
    assert second.rows_seen_ == first.rows_seen_ == 100


def test_an_error_closes_the_stream() -> None:
    closed = []

    def rows() -> Iterator[SimpleNamespace]:
        try:
            yield from _rows(*_regression(300), [100, 200])
        finally:
            closed.append(True)

    with pytest.raises(RuntimeError, match="no more"):
        prequential(_Broken(), rows())
    assert closed


class _Broken(RLSRegressor):  # type: ignore[misc]
    def test_then_train(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
        del X, y, sample_weight
        raise RuntimeError("no more")


class _Short(RLSRegressor):  # type: ignore[misc]
    def test_then_train(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
        return super().test_then_train(X, y, sample_weight)[1:]


def test_other_exceptions_of_a_model_get_a_note() -> None:
    with pytest.raises(RuntimeError, match="no more") as caught:
        prequential(_Broken(), _regression(5))
    assert "model '_Broken', 5 row(s) starting at row 0" in caught.value.__notes__[0]
    with pytest.raises(ShapeError, match=r"one prediction for each row, shape \(5,\), got"):
        prequential(_Short(), _regression(5))


@pytest.mark.parametrize(
    ("arguments", "fields"),
    [
        ({"metrics": "mea"}, {"got": "'mea'"}),
        ({"metrics": ["mae", "accuracy"]}, {"got": "'accuracy'"}),
        ({"points": 1}, {"argument": "points", "got": "1"}),
        ({"window": 0}, {"argument": "window", "got": "0"}),
        ({"window": 2.5}, {"argument": "window", "got": "2.5"}),
        (
            {"models": {"a": RLSRegressor(), "b": RLSClassifier()}},
            {"got": "a: regression, b: classific"},
        ),
        ({"models": RLSRegressor}, {"remedy": "Pass an instance of"}),
        ({"models": {"last value": RLSRegressor()}}, {"got": "'last value'"}),
        ({"models": [], "baselines": False}, {"got": "none"}),
        ({"stream": "flights.csv"}, {"argument": "stream"}),
        ({"stream": [1, 2]}, {"got": "a int"}),
        ({"stream": [SimpleNamespace(X=[], y=None)]}, {"remedy": "Name the target column"}),
        ({"stream": ([[1.0]], [1.0, 2.0])}, {"argument": "y", "got": "shape (2,)"}),
    ],
)
def test_invalid_arguments_are_errors(arguments: dict[str, Any], fields: dict[str, Any]) -> None:
    given = {"models": RLSRegressor(), "stream": _regression(5)} | arguments
    with raises(OnepassError, **fields):
        prequential(**given)


def test_same_learner_under_two_names_is_refused() -> None:
    model = RLSRegressor()
    with raises(
        ParameterError, got="one learner with two names, which would learn every row twice"
    ):
        prequential({"a": model, "b": model}, _regression(5))


def test_models_are_named_after_their_classes() -> None:
    report = prequential([RLSRegressor(), RLSRegressor()], _regression(5), baselines=False)
    assert list(report.scores) == ["RLSRegressor", "RLSRegressor 2"]


def test_report_of_a_stream_without_rows_has_no_values() -> None:
    report = prequential(RLSRegressor(), iter([]), window=10)
    assert report.rows == 0
    assert report.scores["RLSRegressor"].overall == {"mae": None, "rmse": None, "r2": None}
    assert Table.from_rows([]).n == len(report.overall)


def test_task_is_inferred_from_targets_without_models() -> None:
    X = np.zeros((3, 1))
    assert prequential({}, (X, np.array([1.5, 2.0, 3.0]))).task == "regression"
    assert prequential({}, (X, np.array(["a", "b", "a"]))).task == "classification"


def test_prequential_accepts_a_stream() -> None:
    from onepass.stream import read

    X, y = _regression(2500)
    y[7] = np.nan
    frame = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "c": X[:, 2], "load": y})
    report = prequential(RLSRegressor(), read(frame, target="load"))
    assert (report.rows, report.skipped, report.target) == (2499, 1, "load")
