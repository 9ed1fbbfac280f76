"""What docs/deep.md shows runs, and names every stream, baseline and method."""

from pathlib import Path

import pytest

from onepass import baselines
from onepass.reproduce.orfit_deep_methods import METHODS
from test_readme import run_document

PAGE = (Path(__file__).parents[1] / "docs" / "deep.md").read_text(encoding="utf-8")


def test_the_page_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    assert run_document(PAGE, "docs/deep.md", tmp_path) == 2
    told = capsys.readouterr().out
    assert "0–1 (20, 784) (40, 784) (0, 1)" in told
    assert "['0°', '5°', '10°'] (200, 1, 28, 28)" in told


def test_all_is_named() -> None:
    assert not [name for name in baselines.__all__ if f"`{name}`" not in PAGE]
    assert not [name for name in METHODS if name not in PAGE and "ORFit-" not in name]
