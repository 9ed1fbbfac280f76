"""What docs/river.md shows runs, and says what it shows."""

from pathlib import Path

import pytest

from documents import ROOT, run_document


def test_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "docs" / "river.md").read_text(encoding="utf-8")
    assert run_document(text, "docs/river.md", tmp_path) == 5
