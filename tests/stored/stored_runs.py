"""Stored evaluations and data directory of the service: how to create, resume and serve them."""

import json
import re
import shutil
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from stored_cases import number, numbers, table, text

import onepass as op
from onepass.evaluate import METRICS, Report, prequential

__all__ = [
    "RUNS",
    "continual",
    "data_directory",
    "resume_run",
    "run_service",
    "scores",
    "service_state",
]


# -- prequential evaluation ------------------------------------------------------------------------

RUNS = {"run-regression": ["rls", "sgd", "orfit"], "run-classification": ["rls", "sgd", "artipca"]}
"""Run -> its models."""


def resume_run(path: Path, name: str, rows: int) -> Report:
    """Start a run over this number of rows, or resume the run stored at the path."""
    task = name.rpartition("-")[2]
    y = (number if task == "regression" else text)(0, rows)
    stream = op.stream.read(
        [{**row, "y": target} for row, target in zip(table(0, rows), y.tolist(), strict=True)],
        target="y", time="at", block=8,
    )  # fmt: skip
    models = op.models.pipelines(RUNS[name], task)
    return prequential(
        models, stream, metrics=list(METRICS[task]), window=15,
        points=10, delay=4, checkpoint=path, resume=path.exists(),
    )  # fmt: skip


def scores(report: Report) -> dict[str, Any]:
    """The metrics of each model."""
    found = report.to_dict()["scores"].items()
    return {name: {part: each[part] for part in ("overall", "recent")} for name, each in found}


# -- continual evaluation --------------------------------------------------------------------------


def continual(path: Path, on_progress: Any = None) -> Any:
    """The report of learners on two tasks; runs stored in the folder are not repeated."""
    y = np.arange(40) % 2 + 2 * (np.arange(40) >= 20)
    models = {
        "rls": op.RLSClassifier(ridge=0.1, forgetting=op.forgetting.Window(30)),
        "orfit": op.ORFitClassifier(memory=op.memory.Sketch(2), noise=0.1),
        "pipeline": op.Pipeline(op.features.Scale(), op.StreamingLDA()),
    }
    tasks = op.stream.experiences(numbers(0, 40), y)
    return op.evaluate.continual(models, tasks, path=path, on_progress=on_progress)


# -- the service -----------------------------------------------------------------------------------


def data_directory(folder: Path) -> dict[str, Any]:
    """Create a data directory with all types of records; return the expected values."""
    folder.mkdir()
    learner = op.models.pipelines(["rls"], "regression", {"rls.forgetting": 0.99})["rls"]
    with op.durable(folder / "m.db", learner) as durable:
        durable.learn(table(0, 5), number(0, 5), source="tail", position="4")
        durable.snapshot()
        durable.learn(table(5, 10), number(5, 10), key="lost")
        durable.rollback(to=1)
    with run_service(folder) as client:
        at = json.loads(service_state(client))["now"]
        for i in range(10, 16):
            client.learn("m", table(i, i + 1), number(i, i + 1), key=f"row {i}")
        ids = client.predict_pending("m", table(16, 19))[1]
        client.learn_labels("m", ids[:1], number(16, 17))
        [model] = json.loads(service_state(client))["models"]
        error = model["prequential_error"]
    found = {"at": at, "ids": ids, "error": error, **predicted(folder, ids, at)}
    Path(folder, "m.db.lock").unlink()  # of this machine
    return found


def predicted(folder: Path, ids: list[str], at: float) -> dict[str, Any]:
    """Predictions of a copy of the durable learner, before and after pending rows are learned."""
    with tempfile.TemporaryDirectory() as other:
        path = shutil.copy(folder / "m.db", other)
        with op.durable(path, clock=lambda: at) as durable:
            found = {"version": durable.version, "rows": durable.rows_seen}
            before = durable.predict(table(60, 66)).tolist()
            durable.learn_labels(ids[1:], number(17, 19))
            after = durable.predict(table(60, 66)).tolist()
            durable.rollback(to=1)
            first = durable.predict(table(60, 66)).tolist()
    return {**found, "before": before, "after": after, "first": first}


@contextmanager
def run_service(folder: Path) -> Iterator[op.service.Client]:
    """Serve this data directory in another process; yield a client."""
    words = ["-m", "onepass", "serve", "--data", str(folder), "--port", "0", "--window", "20"]
    command = [sys.executable, *words]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:  # noqa: S603
        assert process.stderr is not None
        found = (re.search(r"Listening on (http://\S+)", line) for line in process.stderr)
        try:
            with op.service.Client(next(each[1] for each in found if each)) as client:
                yield client
        finally:
            process.terminate()


def service_state(client: op.service.Client) -> bytes:
    """The response of ``/state``."""
    with urllib.request.urlopen(f"{client.url}/state") as answer:  # noqa: S310
        found: bytes = answer.read()
        return found
