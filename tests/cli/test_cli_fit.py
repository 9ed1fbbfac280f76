"""The command ``fit``."""

import importlib
import os
import signal
from pathlib import Path

import numpy as np
import pytest

import onepass as op
from onepass.cli import main
from shard_files import one_pass, write_shards


def test_fit_learns_continues_and_reports(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shards, saved = write_shards(tmp_path / "shards"), tmp_path / "m.onepass"
    call = ["fit", shards, "--target", "y", "--drop", "label,at", "--save", str(saved)]
    call += ["--workdir", str(tmp_path / "w"), "--set", "rls__ridge=2"]
    assert main(call) == 0
    assert main(call) == 0
    shown = capsys.readouterr().err
    assert "508 rows of 8 shards, 8 of them learned before, approximate merge: " in shown
    options = {"target": "y", "drop": ["label", "at"]}
    settings = {"rls__forgetting": 1.0, "rls__ridge": 2}
    model = op.models.pipelines(["rls"], "regression", settings)["rls"]
    rows = next(iter(op.stream.read(shards, **options)))
    expected = one_pass(model, shards, **options).predict(rows.X)
    np.testing.assert_allclose(op.load(saved).predict(rows.X), expected, rtol=1e-10)
    assert main([*call, "--set", "rls__ridge=3"]) == 2
    assert "fit: --workdir must be empty" in capsys.readouterr().err.replace("\n", " ")
    assert main([tmp_path.as_posix() if part == str(saved) else part for part in call]) == 2
    assert "must name a file, got the folder" in capsys.readouterr().err.replace("\n", " ")


@pytest.mark.filterwarnings("default::onepass.errors.RowsRefusedWarning")
def test_fit_leaves_out_a_bad_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shards, saved = write_shards(tmp_path / "shards", 3), tmp_path / "m.onepass"
    bad = tmp_path / "shards" / "part-1.parquet"
    bad.write_bytes(bad.read_bytes()[:900])
    call = ["fit", shards, "--target", "y", "--drop", "label,at", "--save", str(saved)]
    assert main(call) == 1
    assert "part-1.parquet (number 2)" in capsys.readouterr().err
    assert not saved.exists()
    assert main([*call, "--on-bad-shard", "skip"]) == 0
    assert "1 of 3 shards were left out" in capsys.readouterr().err
    assert op.load(saved).learner_.rows_seen_ == 122


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize(("folder", "words"), [(None, "no model was saved"), ("w", "continues")])
def test_an_interrupted_fit_says_how_it_continues(
    folder: str | None,
    words: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(importlib.import_module("onepass.scale.fit"), "fit_shards", interrupted)
    saved = tmp_path / "m.onepass"
    call = ["fit", write_shards(tmp_path / "shards", 2), "--target", "y", "--save", str(saved)]
    with pytest.raises(SystemExit, match="130"):
        main([*call, *(["--workdir", str(tmp_path / folder)] if folder else [])])
    assert words in capsys.readouterr().err.replace("\n", " ")
    assert not saved.exists()


@pytest.mark.filterwarnings("ignore::onepass.errors.MemoryFullWarning")
@pytest.mark.parametrize(
    "model", ["orfit", "nearestclassmean", "streaminglda", "streamingqda", "artipca"]
)
def test_fit_learns_each_model_of_its_help(model: str, tmp_path: Path) -> None:
    shards, saved = write_shards(tmp_path / "shards", 3), tmp_path / "m.onepass"
    call = ["fit", shards, "--target", "label", "--drop", "y,at", "--save", str(saved)]
    assert main([*call, "--model", model, "--quiet"]) == 0
    assert op.load(saved).learner_.rows_seen_ == 183
