"""Stored files load, and give the predictions recorded when they were written.

The files are in `files`, the predictions in ``expected.json``; ``write.py`` adds missing files.
"""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from stored_cases import (
    CASES,
    FILES,
    PARAMETERS,
    assert_close,
    expected,
    learn,
    number,
    outcome,
    table,
)
from stored_runs import RUNS, continual, resume_run, run_service, scores, service_state

import onepass as op
from onepass.evaluate import ContinualReport, Report, run_progress
from onepass.serialization import models

EXPECTED = expected()


def stored(name: str) -> Path:
    return FILES / f"{name}.onepass"


# -- learners, features and pipelines --------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::onepass.errors.ForecastWarning")
@pytest.mark.filterwarnings("ignore::onepass.errors.MemoryFullWarning")
@pytest.mark.parametrize("name", CASES)
def test_stored_learner_predicts_and_continues(name: str, tmp_path: Path) -> None:
    case, reference = CASES[name], EXPECTED[name]
    learner = op.load(stored(name), **case.replaced)
    if case.first:
        assert_close(outcome(case, learner), reference["before"], 1e-12)
    op.save(learner, tmp_path / "once")
    again = op.load(tmp_path / "once", **case.replaced)
    assert models.dumps(again, "here") == (tmp_path / "once").read_bytes()
    for each in (learner, again):
        learn(case, each, case.first, case.first + 10)
        assert_close(outcome(case, each), reference["after"], case.rtol)


@pytest.mark.parametrize("name", PARAMETERS)
def test_stored_memory_or_forgetting_loads(name: str) -> None:
    assert op.load(stored(name)) == PARAMETERS[name]


# -- evaluations -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", RUNS)
def test_stored_run_resumes(name: str, tmp_path: Path) -> None:
    reference = EXPECTED[name]
    path = Path(shutil.copy(FILES / f"{name}.run", tmp_path))
    progress = run_progress(path)
    assert progress is not None
    assert (progress.rows, progress.position, progress.finished) == (30, 30, True)
    assert_close(scores(resume_run(path, name, 45)), reference["after"])


@pytest.mark.parametrize("name", RUNS)
def test_stored_report_round_trips(name: str) -> None:
    text = json.dumps(EXPECTED[name]["report"])
    assert json.loads(Report.from_json(text).to_json()) == EXPECTED[name]["report"]


def test_stored_continual_runs_are_not_repeated(tmp_path: Path) -> None:
    def fail(progress: Any) -> None:
        raise AssertionError(progress)

    runs = shutil.copytree(FILES / "continual", tmp_path / "continual")
    report = continual(runs, on_progress=fail)
    assert json.loads(report.to_json()) == EXPECTED["continual"]
    assert ContinualReport.from_json(json.dumps(EXPECTED["continual"])) == report


# -- the service -----------------------------------------------------------------------------------


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return Path(shutil.copytree(FILES / "served", tmp_path / "data"))


def test_stored_durable_learner_continues(data: Path) -> None:
    """Idempotency keys, pending rows, source positions and snapshots are restored."""
    reference = EXPECTED["served"]
    with op.durable(data / "m.db", clock=lambda: reference["at"]) as durable:
        assert (durable.version, durable.rows_seen) == (reference["version"], reference["rows"])
        assert_close(durable.predict(table(60, 66)).tolist(), reference["before"])
        assert durable.positions == {"tail": "4"}
        assert durable.labels_pending == 2
        assert durable.learn(table(10, 11), number(10, 11), key="row 10").repeated
        durable.learn_labels(reference["ids"][1:], number(17, 19))
        assert_close(durable.predict(table(60, 66)).tolist(), reference["after"])
        durable.rollback(to=1)
    with op.durable(data / "m.db", clock=lambda: reference["at"]) as again:
        assert_close(again.predict(table(60, 66)).tolist(), reference["first"])
        assert again.labels_pending == 0


def test_stored_data_directory_is_served(data: Path) -> None:
    for package in ("httptools", "msgspec", "uvicorn"):
        pytest.importorskip(package)
    reference = EXPECTED["served"]
    with run_service(data) as client:
        assert_close(client.predict("m", table(60, 66)).tolist(), reference["before"])
        [model] = json.loads(service_state(client))["models"]
    curves = [error["curve"] for error in (model["prequential_error"], reference["error"])]
    assert_close(*([point[:3] for point in curve] for curve in curves))  # without times
    assert np.isclose(model["prequential_error"]["window"], reference["error"]["window"], rtol=1e-9)
