"""What docs/baselines.md shows runs, and it names every baseline."""

import re
from pathlib import Path

import pytest

from documents import run_document
from onepass_experiments import baselines

PAGE = (Path(__file__).parents[2] / "docs" / "baselines.md").read_text(encoding="utf-8")


def test_the_page_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    assert run_document(PAGE, "docs/baselines.md", tmp_path) == 2
    described = dict(re.findall(r"(.+): (\d+) %", capsys.readouterr().out))
    assert float(described["iCaRL"]) > 75
    assert float(described["EWC"]) < 50


def test_all_is_named() -> None:
    assert not [name for name in baselines.__all__ if f"`{name}`" not in PAGE]
