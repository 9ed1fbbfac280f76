"""The blocks of docs/tables.md run."""

from pathlib import Path

import pytest

from documents import run_document

PAGE = (Path(__file__).parents[2] / "docs" / "tables.md").read_text(encoding="utf-8")


@pytest.mark.filterwarnings("ignore::onepass.errors.RowsRefusedWarning")  # a damaged file
def test_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_document(PAGE, "docs/tables.md", tmp_path) >= 11
    predicted = (tmp_path / "predictions.csv").read_text(encoding="utf-8").splitlines()
    assert predicted[0] == "at,prediction"
    assert len(predicted) == 1 + 500
