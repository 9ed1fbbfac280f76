"""The blocks of docs/evaluate.md run, and the page has the printed table and every metric."""

from pathlib import Path

import pytest

from documents import run_document
from onepass import evaluate

PAGE = (Path(__file__).parents[2] / "docs" / "evaluate.md").read_text(encoding="utf-8")


def test_the_page_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_document(PAGE, "docs/evaluate.md", tmp_path) >= 9
    printed = capfd.readouterr().out.splitlines()
    shown = PAGE.partition("```text\n")[2].partition("```")[0].splitlines()
    assert not [line for line in shown if line.startswith("  rls") and line not in printed]


def test_every_metric_is_described() -> None:
    names = set().union(*evaluate.METRICS.values())
    assert not {name for name in names if f"`{name}`" not in PAGE}
