"""Write files of new cases into `files`; existing files are not changed.

PYTHONPATH=src:tests python tests/stored/write.py

From the first release on, later versions must load a file and give the predictions recorded in
``expected.json``. Until then, delete `files` and write them again when the format changes.
"""

import copy
import json
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from stored_cases import CASES, EXPECTED, FILES, PARAMETERS, Case, expected, learn
from stored_cases import outcome as predictions
from stored_networks import (
    NETWORKS,
    ONNX,
    OPTIMIZERS,
    Network,
    frozen_networks,
    outcome,
    plain,
    rows,
    torch,
    trained,
)
from stored_runs import RUNS, continual, data_directory, resume_run, scores

import onepass as op
from onnx_files import doubling


def learner(case: Case, path: Path) -> Any:
    """Write a learner, pipeline or feature; return its predictions."""
    made = copy.deepcopy(case.made)
    if case.first:
        learn(case, made, 0, case.first)
    op.save(made, path)
    before = predictions(case, made) if case.first else {}
    learn(case, made, case.first, case.first + 10)
    return {"before": before, "after": predictions(case, made)}


def network(case: Network, path: Path) -> Any:
    """Write a learner of op.nn; return its outputs."""
    made = case.made().learn(*rows(case, 0, 6))
    made.save(path)
    before = outcome(case, made)
    return {"before": before, "after": outcome(case, made.learn(*rows(case, 6, 8)))}


def optimizer(make: Callable[[Any], Any], path: Path) -> Any:
    """Write a module and a wrapped optimizer; return their outputs."""
    module = plain()
    made = make(module)
    before = trained(module, made, 0, 6)
    torch.save({"module": module.state_dict(), "optimizer": made.state_dict()}, path)
    return {"before": before, "after": trained(module, made, 6, 10)}


def run(name: str, path: Path) -> Any:
    """Write a prequential evaluation up to row 30; return its report and scores after row 45."""
    report = json.loads(resume_run(path, name, 30).to_json())
    with tempfile.TemporaryDirectory() as folder:
        return {
            "report": report,
            "after": scores(resume_run(Path(shutil.copy(path, folder)), name, 45)),
        }


def main() -> int:
    """Write missing files."""
    written = expected()

    def new(name: str, write: Callable[[Path], Any]) -> None:
        path = FILES / name
        if path.exists():
            return
        written[path.stem] = write(path)
        lines = [
            f"{json.dumps(stem)}: {json.dumps(each)}" for stem, each in sorted(written.items())
        ]
        EXPECTED.write_text("{\n" + ",\n".join(lines) + "\n}\n")
        sys.stdout.write(f"{name}\n")

    FILES.mkdir(exist_ok=True)
    new(ONNX.name, lambda path: path.write_bytes(doubling(4)) and None)
    for name, case in {**CASES, **frozen_networks()}.items():
        new(f"{name}.onepass", lambda path, case=case: learner(case, path))
    for name, case in NETWORKS.items():
        new(f"{name}.onepass", lambda path, case=case: network(case, path))
    for name, made in PARAMETERS.items():
        new(f"{name}.onepass", lambda path, made=made: op.save(made, path))
    for name, make in OPTIMIZERS.items():
        new(f"{name}.pt", lambda path, make=make: optimizer(make, path))
    for name in RUNS:
        new(f"{name}.run", lambda path, name=name: run(name, path))
    new("continual", lambda path: json.loads(continual(path).to_json()))
    new("served", data_directory)
    return 0


if __name__ == "__main__":
    sys.exit(main())
