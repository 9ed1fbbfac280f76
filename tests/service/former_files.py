"""Files of former formats, which every later version must read.

They are in ``former``, with expected values::

    PYTHONPATH=src:tests python tests/service/former_files.py

writes those of the current formats, and the former tables of a journal; existing files are never
changed.
"""

import json
import shutil
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
from durable_files import copy_after_crash, execute_sql

import onepass as op
from onepass.serialization import archive
from onepass.service import schema
from onepass.service.monitoring import Gauges, MetricsFile

FORMER = Path(__file__).with_name("former")
PLACES = ("sea", "air", "road")


def rows(first: int, last: int) -> tuple[list[dict[str, Any]], Any]:
    """Rows of a deterministic stream, with text and missing values."""
    found = []
    for i in range(first, last):
        row = {"km": (7 * i) % 11 / 4, "by": PLACES[i % 3], "hour": float(i % 24)}
        found.append(row if i % 5 else {**row, "hour": None})
    y = [2 * row["km"] + len(row["by"]) + (i % 13) / 26 for i, row in enumerate(found, first)]
    return found, np.array(y)


def array(first: int, last: int) -> tuple[Any, Any]:
    """Numeric rows of a deterministic stream."""
    i = np.arange(first, last)
    X = np.stack([(7 * i) % 11 / 4, i % 3, np.cos(i)], axis=1)
    return X, X @ [2.0, -1.0, 0.5] + (i % 13) / 26


def tables() -> Any:
    """The unfitted learner of a journal."""
    learner = op.RLSRegressor(forgetting=0.999, ridge=0.1)
    return op.Pipeline(op.features.Encode(), op.features.Impute(), op.features.Scale(), learner)


def models() -> dict[str, Any]:
    """Fitted learners of many classes."""
    X, y = array(0, 60)
    label = np.array(PLACES)[np.arange(60) % 3]
    regressors = {
        "rls": op.RLSRegressor(),
        "rls-window": op.RLSRegressor(forgetting=op.forgetting.Window(20)),
        "orfit": op.ORFitRegressor(memory=op.memory.Principal(2), noise=0.5),
        "sgd": op.SGDRegressor(step_size=0.05),
    }
    classifiers = {
        "rls-classes": op.RLSClassifier(ridge=0.5),
        "art": op.ARTIPCAClassifier(),
        "lda": op.StreamingLDA(),
    }
    table, late = rows(0, 60)
    return {
        **{name: each.partial_fit(X, y) for name, each in regressors.items()},
        **{name: each.partial_fit(X, label) for name, each in classifiers.items()},
        "pipeline": tables().partial_fit(table, late),
    }


def predictions(name: str, learner: Any) -> list[Any]:
    """Predictions for rows that are not learned."""
    X = (rows if name in {"pipeline", "journal"} else array)(60, 66)[0]
    answers: list[Any] = np.asarray(learner.predict(X)).tolist()
    return answers


def journal(path: Path) -> dict[str, Any]:
    """Write a journal with records of each kind, as a crash leaves it; its expected content."""
    gauges: list[Gauges] = []

    def watch(learner: Any) -> Any:
        gauges.append(Gauges(learner, window=20))
        return gauges[0].learned

    with tempfile.TemporaryDirectory() as folder:
        with op.durable(Path(folder, "m.db"), tables(), watch=watch) as durable:
            gauges[0].resume(None, 0)
            durable.learn(*rows(0, 20), key="first")
            durable.learn(*rows(20, 25), source="tail", position="24")
            ids = durable.predict_pending(rows(25, 28)[0])[1]
            durable.learn_labels(ids[:1], rows(25, 26)[1])
            durable.snapshot()
            for i in range(28, 34):
                durable.learn(*rows(i, i + 1), key=f"row {i}")
            durable.rollback(to=6)
            durable.learn(*rows(34, 45), key="last")
            gauges[0].refuse(1, "no row")
            held = copy_after_crash(durable, Path(folder, "crashed"))
            found = {
                "at": time.time(), "ids": ids,
                "version": durable.version, "rows": durable.rows_seen,
                "versions": [each.version for each in durable.versions],
                "positions": durable.positions, "said": predictions("journal", durable.frozen_copy),
                "error": gauges[0].prequential_error(), "refused": 1,
            }  # fmt: skip
        execute_sql(held, "PRAGMA journal_mode = DELETE")  # all of it in one file
        shutil.copyfile(held, path)
        MetricsFile(path.with_suffix(".gauges")).write(gauges[0])
    return found


def former_journal(path: Path, layout: int) -> dict[str, Any]:
    """Write a journal with the tables of a former format; its expected content."""
    found = journal(path)
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("BEGIN")
        for index in ("keys_by_time", "asked_by_time"):
            db.execute(f"DROP INDEX {index}")
        tables = ("log", "snapshots", "keys", "asked")
        for table in tables:
            db.execute(f"ALTER TABLE {table} RENAME TO present_{table}")
        for statement in schema._LAYOUTS[layout]:
            db.execute(statement)
        for table in tables:
            columns = ", ".join(row[1] for row in db.execute(f"PRAGMA table_info({table})"))
            db.execute(
                f"INSERT INTO {table} ({columns}) SELECT {columns} FROM present_{table}"  # noqa: S608
            )
            db.execute(f"DROP TABLE present_{table}")
        db.execute(f"PRAGMA user_version = {layout}")
        db.execute("COMMIT")
        db.execute("VACUUM")
    return found


def main() -> int:
    """The command."""
    FORMER.mkdir(exist_ok=True)

    def new(path: Path, make: Callable[[Path], Any]) -> None:
        if path.exists():
            return
        path.with_suffix(".json").write_text(json.dumps(make(path), indent=1) + "\n")
        sys.stdout.write(f"{path.name}: {path.stat().st_size:,} bytes\n")

    new(FORMER / f"journal-{schema.FORMAT}.db", journal)
    for layout in range(1, schema.FORMAT):
        new(
            FORMER / f"journal-{layout}.db",
            lambda path, layout=layout: former_journal(path, layout),
        )
    for name, learner in models().items():

        def save(path: Path, name: str = name, learner: Any = learner) -> Any:
            op.save(learner, path)
            return {"said": predictions(name, learner)}

        new(FORMER / f"{name}-{archive.FORMAT}.onepass", save)
    return 0


if __name__ == "__main__":
    sys.exit(main())
