"""Continual evaluation with faulty learners, tasks, stored runs and processes."""

import json
import multiprocessing
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_digits
from sklearn.linear_model import SGDClassifier

import onepass as op
from onepass.errors import (
    LabelError,
    OnepassError,
    ParameterError,
    RowsRefusedWarning,
    ShapeError,
    SourceError,
)
from onepass.evaluate import continual
from onepass.evaluate.continual_jobs import model_settings
from onepass.types import Array
from onepass_experiments import baselines
from raising import raises

X, Y = load_digits(return_X_y=True)
X, Y = X[:400] / 16.0, Y[:400]


def digits(seed: int = 0) -> Any:
    return op.stream.experiences(X, Y, seed=seed, name="digits")


class Plain:
    """Predicts the last label seen."""

    def __init__(self, seed: int = 0, layers: list[int] | None = None, how: Any = None) -> None:
        self.seed, self.layers, self.how = seed, layers, how
        self.blocks, self.last = 0, 0

    def partial_fit(self, _: Array, labels: Array) -> None:
        self.blocks += 1
        self.last = labels[-1]

    def predict(self, rows: Array) -> Any:
        return np.full(len(rows), self.last)


class Breaks(Plain):
    """Raises an error in the third task."""

    def partial_fit(self, rows: Array, labels: Array) -> None:
        super().partial_fit(rows, labels)
        if self.blocks == 3:
            raise self.how


class Predicts(Plain):
    """Predicts the result of a function of the number of rows."""

    def predict(self, rows: Array) -> Any:
        return self.how(len(rows))


class Sleeps(Plain):
    """Sleeps, except with the first seed."""

    def partial_fit(self, rows: Array, labels: Array) -> None:
        super().partial_fit(rows, labels)
        time.sleep(60.0 if self.seed else 0.0)


# -- learners -------------------------------------------------------------------------------------


def test_errors_of_a_learner_name_model_and_task() -> None:
    with pytest.raises(IndexError, match="bound") as found:
        continual({"net": Breaks(how=IndexError("out of bounds"))}, digits())
    assert found.value.__notes__ == [
        "op.evaluate.continual: 'net' with seed 0 raised this at '4–5'."
    ]

    def lost(_: int) -> Array:
        raise RuntimeError("lost")

    with pytest.raises(RuntimeError, match="lost") as found:
        continual({"net": Predicts(how=lost)}, digits())
    assert "predicting '0–1'" in found.value.__notes__[0]


@pytest.mark.parametrize("how", [lambda n: np.zeros(n - 1), lambda n: np.zeros((n, 10)), None])
def test_predictions_of_another_shape_are_refused(how: Any) -> None:
    how = how or (lambda _: None)
    for tasks in (digits(), op.stream.experiences(X, X[:, 20], by=21, n_tasks=2)):
        with pytest.raises(ShapeError, match=r"Predicts\.predict must return one pred"):
            continual(Predicts(how=how), tasks)


def test_nan_predictions_are_noted() -> None:
    tasks = op.stream.experiences(X, X[:, 20], by=21, n_tasks=2)
    report = continual(Predicts(how=lambda n: np.full(n, np.nan)), tasks)
    assert np.isnan(report.average_error)
    assert "predicted nan for some rows" in str(report)


def test_learner_stopped_within_a_block_predicts_nothing() -> None:
    class Half(Plain):
        def partial_fit(self, rows: Array, labels: Array) -> None:
            super().partial_fit(rows, labels)
            if self.blocks == 2:
                del self.last
                raise ValueError("no more")

    with pytest.warns(RowsRefusedWarning, match="'half' stopped"):
        report = continual({"half": Half(), "ncm": op.NearestClassMean()}, digits())
    assert report["half"].average_accuracy == 0.0
    assert report["half"].notes == ["stopped at 2–3: no more"]


def test_networks_refuse_labels_that_are_not_class_numbers() -> None:
    torch = pytest.importorskip("torch")
    text = op.stream.experiences(X, Y.astype(str))
    for scenario in ("class", "task"):
        net = baselines.SGD(torch.nn.Linear(64, 10))
        with raises(LabelError, remedy="Number the classes"):
            continual(net, text, scenario=scenario)
    few = baselines.SGD(torch.nn.Linear(64, 6), step_size=0.1)
    with pytest.warns(RowsRefusedWarning, match="classes 0 … 5"):
        report = continual(few, digits(), scenario="task")
    assert report["SGD"].notes[0].startswith("stopped at 6–7")
    assert np.all(report.accuracy_matrix[-1] > 0.5, where=[True, True, True, False, False])
    assert report.accuracy_matrix[-1, 3:].tolist() == [0.0, 0.0]


class Unteachable(Plain):
    """Refuses all labels from some task on, or accepts them and never predicts one of them."""

    def __init__(self, tasks: int | None) -> None:
        super().__init__()
        self.tasks = tasks

    def partial_fit(self, rows: Array, labels: Array) -> None:
        super().partial_fit(rows, labels)
        if self.blocks - 1 == self.tasks:
            raise ValueError("no more")
        self.last = -1 if self.tasks is None else self.last


@settings(max_examples=10)
@given(
    tasks=st.lists(st.sampled_from([None, 0, 1, 3, 4]), min_size=1, max_size=3),
    kind=st.sampled_from([int, str]),
    scenario=st.sampled_from(["class", "task"]),
    arriving=st.booleans(),
)
def test_learner_that_did_not_learn_the_labels_is_never_best(
    tasks: list[int | None],
    kind: type,
    scenario: str,
    arriving: bool,  # noqa: FBT001  drawn
) -> None:
    models: dict[str, Any] = {f"bad{i}": Unteachable(n) for i, n in enumerate(tasks)}
    models["good"] = op.NearestClassMean()
    stream = op.stream.experiences(X, Y.astype(kind))
    with pytest.warns(RowsRefusedWarning) as raised:
        report = continual(models, iter(stream) if arriving else stream, scenario=scenario)
    assert len(raised) == 1
    assert raised[0].filename == __file__
    for text, mark in ((str(report), "*"), (report.to_markdown(), "**"), (report.to_latex(), "bf")):
        for name in models:
            line = next(line for line in text.splitlines() if name in line.split()[:2])
            assert (mark in line) == (name == "good")
            assert (name in str(raised[0].message)) == (name != "good")


def test_network_that_cannot_learn_the_labels_is_never_best() -> None:
    nn = pytest.importorskip("torch").nn
    for labels, why in ((Y + 10, "from 0 to 9"), (np.array(list("abcdefghij"))[Y], "got text")):
        models = {
            "net": op.nn.ORFit(nn.Linear(64, 10), noise=1.0, loss="one_hot"),
            "Replay": baselines.Replay(nn.Linear(64, 10), step_size=0.1),
            "RLS": op.RLSClassifier(),
        }
        with pytest.warns(RowsRefusedWarning, match="got 2 that did not: 'net' stopped") as raised:
            report = continual(models, op.stream.experiences(X, labels))
        assert len(raised) == 1
        assert "as labels were not learned: net, Replay" in report.to_markdown()
        rows = [line for line in str(report).splitlines() if "*" in line]
        assert rows[0].split()[0] == "RLS"
        assert why in str(report)
        assert len(rows) == 2  # and the caption
        with raises(
            OnepassError,
            where="model 'net', 400 row(s) starting at row 0 (counting from 0): "
            "ORFit.test_then_train",
            argument="y",
        ):
            op.evaluate.prequential({"net": models["net"]}, (X, labels))


def test_sklearn_classifier_stops_at_new_classes_of_an_iterator() -> None:
    def arriving() -> Iterator[tuple[Array, Array]]:
        return ((X[rows], Y[rows]) for rows in (Y < 5, Y > 4))

    steps: list[int] = []
    models = {"sk": SGDClassifier(), "ncm": op.NearestClassMean()}
    with pytest.warns(RowsRefusedWarning, match="'sk' stopped"):
        report = continual(models, arriving(), on_progress=steps.append)
    assert steps == [2, 4]
    assert "requires all classes in advance" in report["sk"].notes[0]
    assert report["ncm"].average_accuracy > 0.7


def test_sklearn_learners_accept_data_frames() -> None:
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(X).rename(columns=str).assign(y=Y)
    of_frame = op.stream.experiences(frame, "y", seed=3)
    assert of_frame.classes == tuple(range(10))
    learners = {"sk": SGDClassifier(random_state=0), "ncm": op.NearestClassMean()}
    found = continual(learners, of_frame)
    known = continual(learners, op.stream.experiences(X, Y, seed=3))
    assert found.runs[0].matrix == known.runs[0].matrix
    assert found.runs[1].matrix == known.runs[1].matrix


@pytest.mark.parametrize("made", [3, None])
def test_factories_without_a_learner_are_refused(made: Any) -> None:
    with raises(ParameterError, remedy="Return an instance"):
        continual(lambda: made, digits())


# -- tasks ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("odd", [None, "four"])
def test_labels_of_mixed_types_are_refused(odd: Any) -> None:
    labels = np.where(Y == 4, odd, Y.astype(object))
    with raises(LabelError, remedy="Drop rows without a"):
        op.stream.experiences(X, labels)
    with raises(LabelError, remedy="Drop rows without a"):
        continual(Plain(), [(X, labels)])


def test_tasks_with_targets_of_different_types_are_refused() -> None:
    for other in (Y.astype(str), Y.astype(float)):
        with raises(LabelError, remedy="Convert all labels to"):
            continual(Plain(), [(X, Y), (X, other)])


def test_tasks_without_test_rows_are_refused() -> None:
    for none in ([(X, Y), (X[:0], Y[:0])], [(X, Y, X[:0], Y[:0])], iter([(X[:2], Y[:2])])):
        with raises(ShapeError, remedy="Pass X_test and y_test"):
            continual(Plain(), none)


def test_number_of_tasks_must_be_equal_for_all_seeds() -> None:
    def tasks(seed: int) -> Any:
        return op.stream.experiences(X, Y, n_tasks=2 + seed)

    with raises(ParameterError, argument="experiences", got="{0: 2, 1: 3}"):
        continual(Plain(), tasks, seeds=np.arange(2))


# -- runs that are kept ---------------------------------------------------------------------------


def test_damaged_stored_runs_are_refused(tmp_path: Path) -> None:
    continual({"a": Plain()}, digits, seeds=2, path=tmp_path)
    path = tmp_path / "a-seed0.json"
    good = path.read_text()

    def short(run: dict[str, Any]) -> None:
        for part in ("before", "when", *range(5)):
            (run if isinstance(part, str) else run["matrix"])[part].pop()

    changes: list[Any] = [
        short,
        lambda run: run["matrix"][1].pop(),
        lambda run: run["matrix"].pop(),
        lambda run: run.update(when=[0, 1, 99, 3, 4]),
        lambda run: run.update(rows="many"),
    ]
    for change in changes:
        tree = json.loads(good)
        change(tree["run"])
        path.write_text(json.dumps(tree))
        with pytest.raises(SourceError, match=r"a-seed0\.json must be a stored run"):
            continual({"a": Plain()}, digits, seeds=2, path=tmp_path)
    for other in ({"seed": 1}, {"model": "b"}):
        tree = json.loads(good)
        tree["run"].update(other)
        path.write_text(json.dumps(tree))
        with raises(ParameterError, argument="path"):
            continual({"a": Plain()}, digits, seeds=2, path=tmp_path)
    path.write_text("[" * 100_000)
    with raises(SourceError, remedy="Delete the file"):
        continual({"a": Plain()}, digits, seeds=2, path=tmp_path)


def test_model_settings_distinguish_parameters_and_functions() -> None:
    near = np.eye(64)
    far = near.copy()
    far[40, 40] = 2.0
    unlike = [
        (Plain(layers=[4]), Plain(layers=[5])),
        (Plain(how=lambda x: x), Plain(how=lambda x: 2 * x)),
        (Plain(how=partial(min, 1)), Plain(how=partial(min, 2))),
        (op.RLSClassifier(ridge=near), op.RLSClassifier(ridge=far)),
    ]
    for one, other in unlike:
        assert model_settings(one) != model_settings(other)
    for number in (1, 2):  # what a function keeps of where it was made
        assert model_settings(Plain(how=_adds(number))) == model_settings(Plain(how=_adds(number)))
    assert model_settings(Plain(how=_adds(1))) != model_settings(Plain(how=_adds(2)))
    assert model_settings(op.RLSClassifier(ridge=near)) == model_settings(
        op.RLSClassifier(ridge=np.eye(64))
    )


def _adds(number: int) -> Any:
    def again(x: int) -> Any:
        return again(x - 1) if x > 9 else x + number

    return again


def test_stored_runs_of_other_rows_are_refused(tmp_path: Path) -> None:
    continual({"a": Plain()}, [(X, Y)], path=tmp_path)
    with raises(ParameterError, argument="path", got="a-seed0.json, in which experiences was"):
        continual({"a": Plain()}, [(X**2, Y)], path=tmp_path)


def test_runs_without_rows_are_not_stored(tmp_path: Path) -> None:
    for _ in range(2):
        with pytest.raises(ValueError, match="never"):
            continual(_Never(), digits(), path=tmp_path)
    assert not list(tmp_path.iterdir())


class _Never(Plain):
    def partial_fit(self, *_: Array) -> None:
        raise ValueError("never")


# -- processes ------------------------------------------------------------------------------------


def test_interrupt_ends_the_worker_processes(tmp_path: Path) -> None:
    def stop(_: Any) -> None:
        raise KeyboardInterrupt

    others = set(multiprocessing.active_children())  # joblib keeps those of other tests
    with pytest.raises(KeyboardInterrupt):
        continual(Sleeps, digits, seeds=3, jobs=2, path=tmp_path, on_progress=stop)
    assert not set(multiprocessing.active_children()) - others


def test_rows_learned_before_the_evaluation_are_not_counted() -> None:
    known = op.RLSClassifier().partial_fit(X, Y)
    assert continual(known, digits())["RLSClassifier"].repeated == 0


def test_bare_network_is_refused_with_a_remedy() -> None:
    torch = pytest.importorskip("torch")
    with raises(
        ParameterError, argument="models", remedy="wrap a network in a learner, as in op.nn.ORFit"
    ):
        continual(torch.nn.Linear(64, 10), digits())


def test_network_baseline_in_a_pipeline_is_refused() -> None:
    torch = pytest.importorskip("torch")
    learner = baselines.EWC(torch.nn.Linear(64, 10))
    with pytest.raises(TypeError, match=r"networks cannot be steps of a Pipeline"):
        op.Pipeline(op.features.Scale(), learner)


def test_numeric_key_without_ranges_is_refused() -> None:
    numbers = np.random.default_rng(0).normal(size=len(X))
    with raises(ParameterError, remedy="tasks, one per value, by ranges: n_tasks"):
        op.stream.experiences(X, Y, by=numbers)


class Stops(Plain):
    """Refuses the third task with some seeds."""

    def partial_fit(self, rows: Array, labels: Array) -> None:
        super().partial_fit(rows, labels)
        if self.blocks == 3 and self.seed:
            raise ValueError("no more")


def test_note_of_a_stopped_learner_names_the_seeds() -> None:
    with pytest.warns(RowsRefusedWarning, match="with seed 1, 2"):
        report = continual({"plain": Stops}, digits, seeds=3)
    assert report["plain"].notes == ["with seed 1, 2 stopped at 4–5: no more"]
