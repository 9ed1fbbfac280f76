"""What docs/certificate.md shows runs, and its tables are those that the benchmark writes."""

from pathlib import Path

import pytest

from documents import run_document

PAGE = (Path(__file__).parents[2] / "docs" / "certificate.md").read_text(encoding="utf-8")


def test_the_page_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    assert run_document(PAGE, "docs/certificate.md", tmp_path) == 2
    assert capsys.readouterr().out.split() == ["bound", "True", "estimate", "True"]


def test_no_bound_of_the_tables_is_exceeded() -> None:
    lines = [line.split("|")[1:-1] for line in PAGE.splitlines() if "(" in line and "| " in line]
    rows = [[part.strip() for part in cells] for cells in lines if len(cells) == 6]
    linear = [row for row in rows if row[4] != "–"]
    assert len({row[0] for row in linear}) >= 4
    for _, _, moved, bound, step, most in linear:
        assert float(moved) <= float(bound)
        assert float(step) <= float(most) * 1.01  # as they are rounded
