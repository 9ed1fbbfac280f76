"""The blocks of docs/resume.md run and give the documented results."""

from pathlib import Path

import pytest

from documents import run_document

PAGE = Path(__file__).parents[2] / "docs" / "resume.md"


def test_the_page_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    page = PAGE.read_text(encoding="utf-8")
    assert run_document(page, "docs/resume.md", tmp_path) > 5
    assert "500 paid_at 8 []" in capfd.readouterr().out
    report = (tmp_path / "out" / "report.md").read_text(encoding="utf-8")
    assert "500 rows learned in one pass, resumed after 300" in report
