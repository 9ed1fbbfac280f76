"""Manners of a library: version, types of lazy names, a quiet log, progress of long calls."""

import logging
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import onepass as op

ROOT = Path(__file__).parents[1]


def test_version() -> None:
    assert op.__version__ == version("onepass")


def test_type_checkers_find_misspelt_names(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    program = tmp_path / "program.py"
    lines = {
        "import onepass as op": "",
        "import onepass.nn": "",
        "model: op.RLSRegressor = op.RLSRegressor()": "",
        "version: str = op.__version__": "",
        "op.RLSRegresor()": "RLSRegresor",
        "op.nn.ORFitt": "ORFitt",
        "op.integrations.rivers": "rivers",
    }
    program.write_text("\n".join(lines))
    found = subprocess.run(  # noqa: S603  a fixed command
        [sys.executable, "-m", "mypy", "--follow-imports=silent", str(program)],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    errors = [line for line in found.stdout.splitlines() if ": error:" in line]
    names = [name for name in lines.values() if name]
    assert len(errors) == len(names), found.stdout + found.stderr
    for name, error in zip(names, errors, strict=True):
        assert f'"{name}"' in error


def test_log_is_quiet_unless_configured(
    capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    X = np.arange(40.0)[:, None]

    def run() -> None:
        op.evaluate.prequential({"rls": op.RLSRegressor()}, (X, X[:, 0]))
        op.evaluate.continual(op.RLSRegressor(), [(X, X[:, 0])])

    with caplog.at_level(logging.INFO, "onepass"):
        run()
    text = caplog.text
    assert "op.evaluate.prequential: 40 rows" in text
    assert "op.evaluate.continual: RLSRegressor, seed 0: 1 experiences" in text
    caplog.clear()
    run()
    assert capfd.readouterr() == ("", "")
    program = "import onepass.logs as logs; logs.LOG.getChild('service').error('unseen')"
    done = subprocess.run(  # noqa: S603  a fixed command
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stderr == ""


@pytest.mark.parametrize("name", ["a.csv", "a.tsv.gz", "a.parquet"])
def test_writing_reports_progress(name: str, tmp_path: Path) -> None:
    rows: list[Any] = []
    blocks = [{"a": np.arange(n * 1.0)} for n in (2, 0, 3)]
    assert op.stream.write(blocks, tmp_path / name, on_progress=rows.append) == 5
    assert rows == [2, 2, 5]
