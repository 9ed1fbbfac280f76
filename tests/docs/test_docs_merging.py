"""The page about merging is true: its blocks run."""

from pathlib import Path

import pytest

from documents import run_document

PAGE = Path(__file__).parents[2] / "docs" / "merging.md"


def test_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = PAGE.read_text(encoding="utf-8")
    assert "n_jobs=8" in page
    page = page.replace("n_jobs=8", "n_jobs=2")  # which take the eight shards in turn
    assert run_document(page, "docs/merging.md", tmp_path) == 5
