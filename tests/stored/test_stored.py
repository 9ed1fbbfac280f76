"""Files that an earlier version wrote load, predict and go on learning as they did then.

They are in `files`, with the predictions in ``expected.json``; ``write.py`` writes those of what is
new.
"""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from stored_cases import CASES, FILES, PARAMETERS, expected, learn, number, outcome, same, table
from stored_runs import RUNS, continual, go_on, scores, served, state

import onepass as op
from onepass.evaluate import ContinualReport, Report, run_progress
from onepass.serialization import former

EXPECTED = expected()


def stored(name: str) -> Path:
    return FILES / f"{name}.onepass"


# -- learners, features and Pipelines --------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::onepass.errors.MemoryFullWarning")
@pytest.mark.parametrize("name", CASES)
def test_a_learner(name: str, tmp_path: Path) -> None:
    case, then = CASES[name], EXPECTED[name]
    learner = op.load(stored(name), **case.replaced)
    if case.first:
        same(outcome(case, learner), then["before"], 1e-12)
    op.save(learner, tmp_path / "once")
    again = op.load(tmp_path / "once", **case.replaced)
    op.save(again, tmp_path / "twice")
    assert (tmp_path / "once").read_bytes() == (tmp_path / "twice").read_bytes()
    for each in (learner, again):
        learn(case, each, case.first, case.first + 10)
        same(outcome(case, each), then["after"], case.rtol)


@pytest.mark.parametrize("name", PARAMETERS)
def test_a_memory_or_rule_of_forgetting(name: str) -> None:
    assert op.load(stored(name)) == PARAMETERS[name]


def test_every_model_of_a_task_is_in_a_file() -> None:
    for task in ("regression", "classification"):
        assert all(f"pipeline-{task}-{name}" in CASES for name in op.models.names(task))


# -- evaluations -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", RUNS)
def test_a_run_goes_on(name: str, tmp_path: Path) -> None:
    then = EXPECTED[name]
    path = Path(shutil.copy(FILES / f"{name}.run", tmp_path))
    stood = run_progress(path)
    assert stood is not None
    assert (stood.rows, stood.position, stood.finished) == (30, 30, True)
    same(scores(go_on(path, name, 45)), then["after"])


@pytest.mark.parametrize("name", RUNS)
def test_a_report(name: str) -> None:
    text = json.dumps(EXPECTED[name]["report"])
    assert json.loads(Report.from_json(text).to_json()) == EXPECTED[name]["report"]


def test_continual_runs_are_not_made_again(tmp_path: Path) -> None:
    def learned(progress: Any) -> None:
        raise AssertionError(progress)

    runs = shutil.copytree(FILES / "continual", tmp_path / "continual")
    report = continual(runs, on_progress=learned)
    then = former.continual_report(EXPECTED["continual"])
    assert json.loads(report.to_json()) == then
    assert ContinualReport.from_json(json.dumps(EXPECTED["continual"])) == report


# -- the service -----------------------------------------------------------------------------------


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return Path(shutil.copytree(FILES / "served", tmp_path / "data"))


def test_a_durable_learner(data: Path) -> None:
    """Keys, rows that wait for their targets, positions and snapshots are there."""
    then = EXPECTED["served"]
    with op.durable(data / "m.db", clock=lambda: then["at"]) as durable:
        assert (durable.version, durable.rows_seen) == (then["version"], then["rows"])
        same(durable.predict(table(60, 66)).tolist(), then["before"])
        assert durable.positions == {"tail": "4"}
        assert durable.labels_pending == 2
        assert durable.learn(table(10, 11), number(10, 11), key="row 10").repeated
        durable.learn_labels(then["ids"][1:], number(17, 19))
        same(durable.predict(table(60, 66)).tolist(), then["after"])
        durable.rollback(to=1)
    with op.durable(data / "m.db", clock=lambda: then["at"]) as again:
        same(again.predict(table(60, 66)).tolist(), then["first"])
        assert again.labels_pending == 0


def test_a_data_directory_is_served(data: Path) -> None:
    for package in ("httptools", "msgspec", "uvicorn"):
        pytest.importorskip(package)
    then = EXPECTED["served"]
    with served(data) as client:
        same(client.predict("m", table(60, 66)).tolist(), then["before"])
        [model] = json.loads(state(client))["models"]
    same(
        [point[:3] for point in model["prequential_error"]["curve"]], then["error"]["curve"]
    )  # without times
    assert np.isclose(model["prequential_error"]["window"], then["error"]["window"], rtol=1e-9)
