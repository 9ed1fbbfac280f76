"""The page about prototypes is true: its blocks run, and its tables are what a command found."""

from pathlib import Path

import pytest

from documents import run_document
from scripts import script

figures = script("figures")
PAGE = figures.PAGES["art-table1"]


def test_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_document(PAGE.read_text(encoding="utf-8"), "docs/prototypes.md", tmp_path) == 2


def test_every_table_is_what_the_command_found() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert figures.page(page) == page, "run: python benchmarks/figures.py art"
    for name in figures.ART:
        assert f"<!-- {name}: python benchmarks/figures.py art -->" in page
        assert f"]({name}.png)" in page
        assert 10_000 < (figures.DOCS / f"{name}.png").stat().st_size < 150_000
