"""Continual evaluation: matrices, scenarios, seeds, processes, stored runs and reports."""

import csv
import io
import json
import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.datasets import load_digits
from sklearn.kernel_approximation import RBFSampler
from sklearn.linear_model import Ridge, SGDClassifier, SGDRegressor

import onepass as op
from onepass.errors import (
    LabelError,
    NotFiniteError,
    ParameterError,
    RowsRefusedWarning,
    SourceError,
)
from onepass.evaluate import ContinualReport, continual
from onepass.stream import Experiences
from onepass_experiments import baselines
from raising import raises

X, Y = load_digits(return_X_y=True)
X = X[:900] / 16.0
Y = Y[:900]


def digits(seed: int, name: str = "Split digits") -> Experiences:
    return op.stream.experiences(X, Y, seed=seed, name=name)


def arm() -> Experiences:
    """A curve, learned from left to right."""
    x = np.linspace(-3.0, 3.0, 600)[:, None]
    return op.stream.experiences(
        np.hstack([x, x**2, x**3]), np.sin(x[:, 0]), by=0, n_tasks=4, name="curve"
    )


class Remembers:
    """Predicts the targets of rows that it has learned; may keep only the last rows."""

    def __init__(self, keep: int | None = None) -> None:
        self.keep = keep
        self.known_: dict[bytes, Any] = {}
        self.ended = 0
        self.calls: list[int] = []

    def partial_fit(self, X: Any, y: Any) -> "Remembers":
        self.calls.append(len(y))
        self.known_.update({x.tobytes(): answer for x, answer in zip(X, y, strict=True)})
        if self.keep is not None:
            self.known_ = dict(list(self.known_.items())[-self.keep :])
        return self

    def predict(self, X: Any) -> Any:
        return np.array([self.known_.get(x.tobytes()) for x in X], dtype=object)

    def after_task(self) -> None:
        self.ended += 1


class Whole(Remembers):
    by_task = True


# -- the matrix -----------------------------------------------------------------------------------


def test_accuracy_matrix_equals_a_plain_loop() -> None:
    tasks = digits(0)
    report = continual(op.RLSClassifier(), tasks)
    model, found = op.RLSClassifier(), []
    for task in tasks:
        model.partial_fit(task.X, task.y)
        found.append([np.mean(model.predict(t.X_test) == t.y_test) for t in tasks])
    assert_allclose(report.accuracy_matrix, found)
    assert report.average_accuracy == pytest.approx(np.mean(found[-1]))
    assert report.scenario == "class"
    assert report.tasks == tuple(task.name for task in tasks)
    assert report["RLSClassifier"].repeated == 0
    assert report["RLSClassifier"].rows == tasks.n_rows


def test_given_model_is_not_changed() -> None:
    model = op.RLSClassifier()
    continual(model, digits(0))
    assert not hasattr(model, "classes_")


def test_forgetting_learner_has_forgetting_in_the_report() -> None:
    rows = np.eye(8)
    listed = [(rows[i : i + 2], [0, 1], rows[i : i + 2], [0, 1]) for i in range(0, 8, 2)]
    report = continual({"all": Remembers(), "last": Remembers(2)}, listed)
    assert_array_equal(report["all"].accuracy_matrix, np.tril(np.ones((4, 4))))
    assert_array_equal(report["last"].accuracy_matrix, np.eye(4))
    assert report.forgetting == {"all": 0.0, "last": 1.0}
    assert report.backward_transfer == {"all": 0.0, "last": -1.0}
    assert report.average_accuracy == {"all": 1.0, "last": 0.25}
    assert report.scenario == "domain"


def test_task_ends_and_whole_tasks_are_passed_to_learners() -> None:
    made: list[Remembers] = []

    def make(kind: type[Remembers]) -> Remembers:
        made.append(kind())
        return made[-1]

    tasks = digits(0)
    sizes = [len(task.y) for task in tasks]
    models = {"blocks": lambda: make(Remembers), "whole": lambda: make(Whole)}
    with pytest.warns(RowsRefusedWarning, match="'blocks' predicted no label"):
        continual(models, tasks, block=100)
    blocks, whole = made
    assert blocks.ended == whole.ended == 5
    assert whole.calls == sizes
    assert max(blocks.calls) == 100
    assert sum(blocks.calls) == sum(sizes)
    free = op.stream.task_free(tasks, 4)
    with pytest.warns(RowsRefusedWarning):
        report = continual(lambda: make(Remembers), free)
    assert made[-1].ended == 0
    assert report.accuracy_matrix.shape == (4, 5)
    assert len(report.experiences) == 4


# -- learners of several libraries ----------------------------------------------------------------


def test_learners_of_several_libraries_are_evaluated() -> None:
    pytest.importorskip("river")
    from river.naive_bayes import GaussianNB as RiverNB

    models = {
        "art": op.ARTIPCAClassifier(vigilance=0.8),
        "pipeline": op.Pipeline(op.features.Scale(), op.RLSClassifier()),
        "sklearn": SGDClassifier(random_state=0),
        "river": RiverNB(),
        "wrapped": op.integrations.river.wrap(op.SGDClassifier()),
    }
    tasks = op.stream.experiences(X[:200], Y[:200], n_tasks=2)
    report = continual(models, tasks, clock=iter(range(10**6)).__next__)
    assert all(report[name].accuracy_matrix[0, 0] > 0.5 for name in models)
    assert report["art"].prototypes > 10
    assert report["art"].nbytes > 1000
    assert report["sklearn"].nbytes > 1000
    assert report["sklearn"].repeated is None
    assert report["art"].learning_seconds > 0.0
    output = str(report)
    assert "rows again" in output
    assert "ms to learn a row" in output


def test_networks_are_evaluated_with_notes_on_their_limits() -> None:
    torch = pytest.importorskip("torch")

    def make(kind: Any, seed: int, **settings: Any) -> Any:
        torch.manual_seed(seed)
        net = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10))
        return kind(net, **settings)

    models = {
        "EWC": partial(make, baselines.EWC, step_size=0.05),
        "Replay": partial(make, baselines.Replay, step_size=0.05),
        "ORFit": partial(make, op.nn.ORFit, memory=20, loss="one_hot"),
    }
    tasks = op.stream.experiences(X[:100], Y[:100], n_tasks=2)
    alone = continual(models, tasks)
    masked = continual(models, tasks, scenario="task")
    assert "[1] EWC: known to forget" in str(alone)
    assert "known to forget" not in str(masked)
    assert alone["Replay"].repeated > 0
    assert alone["ORFit"].repeated == alone["EWC"].repeated == 0
    weights = 4 * (64 * 32 + 32 + 32 * 10 + 10)
    assert alone["EWC"].nbytes > weights
    for name in models:
        before, after = alone[name].average_accuracy, masked[name].average_accuracy
        assert after >= before
    assert masked["EWC"].average_accuracy > alone["EWC"].average_accuracy + 0.1


def test_task_incremental_predictions_are_among_the_classes_of_the_task() -> None:
    tasks = digits(1)
    models = {
        "art": op.ARTIPCAClassifier(vigilance=0.5),
        "rls": op.RLSClassifier(),
        "x": Remembers(),
    }
    with pytest.warns(RowsRefusedWarning, match="'x' cannot be restricted"):
        output = continual(models, tasks, scenario="task")
    with pytest.warns(RowsRefusedWarning, match="'x' predicted no label"):
        alone = continual(models, tasks)
    learned = op.RLSClassifier()
    for task in tasks:
        learned.partial_fit(task.X, task.y)
    first = tasks[0]
    scores = learned.decision_function(first.X_test)[:, list(first.classes)]
    right = np.mean(np.array(first.classes)[scores.argmax(axis=1)] == first.y_test)
    assert output["rls"].accuracy_matrix[-1, 0] == pytest.approx(right)
    for name in ("art", "rls"):
        assert output[name].average_accuracy >= alone[name].average_accuracy
        assert_array_equal(output[name].accuracy_matrix[0, 1:], 0.0)
    assert "cannot be restricted" in str(output)


def test_stopped_learner_is_tested_with_its_last_state() -> None:
    class Refuses(Remembers):
        def partial_fit(self, X: Any, y: Any) -> "Refuses":
            if 4 in y:
                raise LabelError("no four")
            super().partial_fit(X, y)
            return self

    with pytest.warns(RowsRefusedWarning, match="'refuses' stopped at 4–5: no four"):
        report = continual({"refuses": Refuses(), "rls": op.RLSClassifier()}, digits(0))
    assert report["refuses"].notes == ["stopped at 4–5: no four"]
    assert "stopped at 4–5" in report.to_markdown()
    assert report["refuses"].rows < report["rls"].rows
    assert_array_equal(report["refuses"].accuracy_matrix[1], report["refuses"].accuracy_matrix[-1])


def test_error_of_all_learners_is_raised() -> None:
    rows = np.full((5, 2), np.nan)
    with raises(NotFiniteError, argument="X", row=0, column=0):
        continual([op.RLSClassifier(), op.SGDClassifier()], [(rows, [0, 1, 0, 1, 0])])


# -- regression -----------------------------------------------------------------------------------


def test_regression_has_a_matrix_of_errors() -> None:
    tasks = arm()
    report = continual({"rls": op.RLSRegressor(), "sgd": SGDRegressor(random_state=0)}, tasks)
    model = op.RLSRegressor()
    for task in tasks:
        model.partial_fit(task.X, task.y)
    last = [np.sqrt(np.mean((model.predict(t.X_test) - t.y_test) ** 2)) for t in tasks]
    assert_allclose(report["rls"].error_matrix[-1], last)
    assert report.task == "regression"
    assert report.scenario == "domain"
    zero = [np.sqrt(np.mean(t.y_test**2)) for t in tasks]
    assert_allclose(np.array(report.runs[0].before), zero)
    assert "RMSE · lower is better" in str(report)
    fine = continual(op.RLSRegressor(), tasks, metric="r2")
    assert fine.accuracy_matrix[-1].mean() > report["rls"].accuracy_matrix[-1].mean() - 1.0


def test_several_targets_per_row_are_learned_and_tested() -> None:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(200, 3))
    answers = rows @ rng.normal(size=(3, 2))
    tasks = op.stream.experiences(rows, answers, by=1, n_tasks=2)
    report = continual(op.RLSRegressor(ridge=1e-9), tasks)
    assert report.average_error < 1e-6


@pytest.mark.skipif("ONEPASS_DATA" not in os.environ, reason="needs kin40k in ONEPASS_DATA")
def test_rls_on_kin40k_equals_batch_ridge() -> None:
    blocks = list(op.stream.dataset("kin40k"))
    rows = np.concatenate([np.stack(list(b.X.columns.values()), axis=1) for b in blocks])[:8000]
    answers = np.concatenate([b.y for b in blocks])[:8000]
    seen = RBFSampler(gamma=0.1, n_components=200, random_state=0).fit_transform(rows)
    tasks = op.stream.experiences(seen, answers, by=rows[:, 0], n_tasks=4)
    report = continual({"rls": op.RLSRegressor(ridge=1e-2), "sgd": op.SGDRegressor()}, tasks)
    batch = Ridge(1e-2).fit(*(np.concatenate(p) for p in zip(*((t.X, t.y) for t in tasks))))  # noqa: B905
    last = [np.sqrt(np.mean((batch.predict(t.X_test) - t.y_test) ** 2)) for t in tasks]
    assert_allclose(report["rls"].error_matrix[-1], last, rtol=1e-6)
    assert report["rls"].average_error < report["sgd"].average_error - 0.1


# -- iterators of experiences ---------------------------------------------------------------------


def test_iterator_of_tasks_is_tested_on_tasks_so_far() -> None:
    tasks = digits(0)
    known = continual(op.RLSClassifier(), tasks)
    came = continual(op.RLSClassifier(), iter(tasks))
    lower = np.tril_indices(5)
    assert_allclose(came.accuracy_matrix[lower], known.accuracy_matrix[lower])
    assert np.isnan(came.accuracy_matrix[0, 2:]).all()
    assert came.accuracy_matrix[0, 1] == 0.0
    assert came.forgetting == pytest.approx(known.forgetting)
    assert np.isnan(came.forward_transfer)
    assert ContinualReport.from_json(came.to_json()) == came


def test_models_share_an_iterator_of_pairs_with_held_out_rows() -> None:
    rng = np.random.default_rng(0)
    drawn = 0

    def drift() -> Iterator[tuple[Any, Any]]:
        nonlocal drawn
        for t in range(3):
            drawn += 1
            rows = rng.normal(size=(100, 4)) + t
            yield rows, rows.sum(axis=1)

    models = {"a": op.RLSRegressor(), "b": op.RLSRegressor(ridge=10.0)}
    report = continual(models, drift())
    assert drawn == 3
    assert report["a"].rows == 240
    assert report["a"].average_error < report["b"].average_error


def test_an_empty_iterator_or_one_with_seeds_is_refused() -> None:
    with raises(ParameterError, remedy="Pass a new iterator"):
        continual(op.RLSClassifier(), iter([]))
    with raises(ParameterError, remedy="Pass a list, Experiences"):
        continual(op.RLSClassifier(), iter(digits(0)), seeds=2)


def test_pipeline_reports_properties_of_its_learner() -> None:
    model = op.Pipeline(op.features.Scale(), op.ARTIPCAClassifier(vigilance=0.5))
    tasks = digits(0)
    output, alone = continual(model, tasks, scenario="task"), continual(model, tasks)
    score = output[next(iter(output.scores))]
    assert score.prototypes > 10
    assert score.repeated == 0
    assert output.average_accuracy > alone.average_accuracy
    assert score.notes == []


def test_tasks_in_random_order_are_numbered() -> None:
    drawn = partial(op.stream.experiences, X, Y, order="random")
    report = continual(op.NearestClassMean(), drawn, seeds=3)
    assert report.tasks == tuple(f"task {i}" for i in range(1, 6))
    assert drawn(seed=0).tasks[0].name != drawn(seed=1).tasks[0].name
    fixed = partial(drawn, seed=4)
    with raises(ParameterError, got="3 seeds and no such function: all runs would be equal"):
        continual(op.NearestClassMean(), fixed, seeds=3)


def test_task_free_streams_use_the_draw_of_their_seed() -> None:
    def free(seed: int) -> Experiences:
        return op.stream.task_free(digits(seed), 9, width=1.0, seed=seed)

    report = continual(op.NearestClassMean(), free, seeds=3)
    assert [run.when for run in report.runs] == [list(free(seed).when) for seed in range(3)]
    assert report.accuracy_matrix.shape == (9, 5)
    assert 0.0 <= report.forgetting < 0.3
    assert report.scenario == "class"


# -- seeds, processes and stored runs -------------------------------------------------------------


def test_seeds_are_passed_to_factories_that_accept_them() -> None:
    seen = []

    def make(seed: int) -> Any:
        seen.append(seed)
        return op.RLSClassifier()

    report = continual({"rls": make}, digits, seeds=[3, 5])
    assert seen == [3, 5]
    assert report.seeds == [3, 5]
    each = [continual(op.RLSClassifier(), digits(seed)).average_accuracy for seed in (3, 5)]
    assert_allclose(report["rls"].values("average"), each)
    assert report["rls"].deviation("average") == pytest.approx(np.std(each, ddof=1))
    with raises(ParameterError, got="2 seeds and no such function: all runs would be equal"):
        continual(op.RLSClassifier(), digits(0), seeds=2)


def test_parallel_runs_equal_serial_runs() -> None:
    steps: list[int] = []
    models = {"rls": op.RLSClassifier()}
    one = continual(models, digits, seeds=2)
    two = continual(models, digits, seeds=2, jobs=2, on_progress=steps.append)
    assert one == two
    assert steps[-1] == 10
    assert steps == sorted(steps)


def test_stored_runs_are_not_repeated(tmp_path: Path) -> None:
    made = []

    def make(seed: int, ridge: float = 1.0) -> Any:
        made.append(seed)
        return op.RLSClassifier(ridge=ridge)

    first = continual({"rls": make}, digits, seeds=2, path=tmp_path)
    files = sorted(path.name for path in tmp_path.iterdir())
    assert files == ["rls-seed0.json", "rls-seed1.json"]
    stamps = [path.stat().st_mtime_ns for path in sorted(tmp_path.iterdir())]
    steps: list[int] = []
    again = continual({"rls": make}, digits, seeds=3, path=tmp_path, on_progress=steps.append)
    assert again.runs[:2] == first.runs
    assert steps == [11, 12, 13, 14, 15]
    assert [p.stat().st_mtime_ns for p in sorted(tmp_path.iterdir())][:2] == stamps
    with raises(
        ParameterError,
        argument="path",
        got="rls-seed0.json, in which model.ridge was '1.0' and is '2.0'",
    ):
        continual({"rls": partial(make, ridge=2.0)}, digits, seeds=2, path=tmp_path)
    with raises(ParameterError, argument="path", got="rls-seed0.json, in which experiences was"):
        continual({"rls": make}, partial(digits, name="other"), seeds=2, path=tmp_path)
    (tmp_path / "rls-seed0.json").write_text("{")
    with pytest.raises(SourceError, match=r"rls-seed0\.json must be a stored run"):
        continual({"rls": make}, digits, seeds=2, path=tmp_path)


def test_stopped_evaluation_is_resumed(tmp_path: Path) -> None:
    def stop(done: int) -> None:
        if done == 8:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        continual(op.RLSClassifier(), digits, seeds=2, path=tmp_path, on_progress=stop)
    assert len(list(tmp_path.iterdir())) == 1
    whole = continual(op.RLSClassifier(), digits, seeds=2)
    assert continual(op.RLSClassifier(), digits, seeds=2, path=tmp_path) == whole


# -- reports --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def report() -> ContinualReport:
    models = {
        "rls_1": op.RLSClassifier(),
        "a & b": op.ARTIPCAClassifier(),
        "sgd": op.SGDClassifier(),
    }
    return continual(models, digits, seeds=3)


def test_compare_equals_paired_t_test_of_scipy(report: ContinualReport) -> None:
    from scipy.stats import ttest_rel

    found = report.compare()
    assert [(row["model"], row["against"]) for row in found] == [
        ("rls_1", "a & b"), ("rls_1", "sgd"), ("a & b", "sgd"),
    ]  # fmt: skip
    for row in found:
        a, b = (report[row[name]].values("average") for name in ("model", "against"))
        t, p = ttest_rel(a, b)
        assert_allclose([row["t"], row["p"], row["difference"]], [t, p, np.mean(a - b)])
    ordered = sorted(found, key=lambda row: row["p"])
    assert ordered[0]["p_holm"] == pytest.approx(min(1.0, 3 * ordered[0]["p"]))
    assert all(row["p_holm"] >= row["p"] for row in found)
    assert len(report.compare("forgetting", "sgd")) == 2
    same = continual({"a": op.RLSClassifier(), "b": op.RLSClassifier()}, digits, seeds=2)
    assert same.compare()[0]["p"] == 1.0
    with raises(ParameterError, remedy="Evaluate them with the"):
        continual({"a": op.RLSClassifier(), "b": op.RLSClassifier()}, digits(0)).compare()
    with raises(ParameterError, argument="measure"):
        report.compare("avrage")


def test_saved_report_is_read_back(report: ContinualReport, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    paths = report.save(tmp_path / "out")
    assert all(path.stat().st_size > 100 for path in paths)
    assert ContinualReport.from_json(paths[0]) == report
    runs = list(csv.DictReader(io.StringIO(report.to_csv())))
    assert len(runs) == 9
    assert float(runs[0]["average"]) == report["rls_1"].values("average")[0]
    matrix = report.to_frame("pandas", of="matrix")
    assert len(matrix) == 9 * 6 * 5
    chosen = matrix[(matrix.model == "sgd") & (matrix.experience == 5)]
    assert chosen.accuracy.mean() == pytest.approx(report["sgd"].average_accuracy)
    assert len(report.to_frame("polars")) == 3
    assert len(report.to_frame("pandas", of="pairs")) == 3
    with raises(SourceError, remedy="Write it again with"):
        ContinualReport.from_json(json.dumps({"format": 9}))


def test_tables_contain_equal_numbers_in_all_formats(report: ContinualReport) -> None:
    mean = 100 * report["rls_1"].average_accuracy
    cell = f"{mean:.2f} ± {100 * report['rls_1'].deviation('average'):.2f}"
    assert cell in str(report)
    assert cell in report.to_markdown()
    latex = report.to_latex()
    assert cell.replace("±", r"$\pm$") in latex
    assert r"rls\_1" in latex
    assert r"a \& b" in latex
    assert "Split digits: class-incremental, 5 tasks, 3 seeds" in latex
    assert "forward" not in str(report).splitlines()[2]


# -- invalid arguments ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"models": 3}, "models"),
        ({"models": {}}, "models"),
        ({"experiences": 3}, "experiences"),
        ({"scenario": "task-free"}, "scenario"),
        ({"scenario": "domain"}, "within=True"),
        ({"metric": "rmse"}, "a metric of classification"),
        ({"seeds": []}, "seeds"),
        ({"jobs": 0}, "jobs"),
        ({"batch": 0}, "batch"),
        ({"experiences": lambda seed: seed}, "must return"),
        ({"experiences": (X, Y)}, r"op\.stream\.experiences"),
        ({"models": op.RLSRegressor()}, "a regressor"),
        ({"models": op.ARTIPCACluster}, "a clusterer"),
    ],
)
def test_invalid_arguments_of_continual_are_refused(arguments: dict[str, Any], match: str) -> None:
    given = {"models": op.RLSClassifier(), "experiences": digits(0), **arguments}
    with pytest.raises(ParameterError, match=match):
        continual(given.pop("models"), given.pop("experiences"), **given)
    with raises(ParameterError, argument="scenario", got="'class'"):
        continual(op.RLSRegressor(), arm(), scenario="class")
