"""The blocks of docs/drift.md run, and the page describes every rule and parameter."""

import inspect
from pathlib import Path

import pytest

from documents import run_document
from onepass.memory import forgetting
from onepass.memory.forgetting.parse import rule

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "drift.md").read_text(encoding="utf-8")


def test_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("river")
    monkeypatch.chdir(tmp_path)
    assert run_document(PAGE, "docs/drift.md", tmp_path) > 1


@pytest.mark.parametrize("name", forgetting.__all__)
def test_every_rule_and_parameter_is_described(name: str) -> None:
    assert f"op.forgetting.{name}" in PAGE
    for parameter in inspect.signature(getattr(forgetting, name)).parameters:
        assert parameter in PAGE


def test_the_command_line_page_shows_rules_that_there_are() -> None:
    page = (DOCS / "cli.md").read_text(encoding="utf-8")
    table = page.partition("| `rls.forgetting=` |")[2].partition("\n\n")[0]
    shown = [text for text in table.split("`")[1::2] if not text.startswith("0")]
    assert len(shown) > 7
    for text in shown:
        rule(text, "cli.md")
    assert all(name.lower() in table for name in forgetting.__all__)
