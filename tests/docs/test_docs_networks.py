"""The page about networks is true: its blocks run."""

from pathlib import Path

import pytest

from documents import run_document

PAGE = Path(__file__).parents[2] / "docs" / "networks.md"


def test_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    assert run_document(PAGE.read_text(encoding="utf-8"), "docs/networks.md", tmp_path) >= 1
