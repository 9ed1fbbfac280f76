"""docs/prototypes.md runs, and the tables of ART-IPCA agree with the results."""

import re
from pathlib import Path

import pytest

from documents import run_document
from scripts import script

figures = script("figures")
PAGE = Path(__file__).parents[2] / "docs" / "prototypes.md"


def test_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_document(PAGE.read_text(encoding="utf-8"), "docs/prototypes.md", tmp_path) == 3


def test_the_results_page_agrees_with_the_results() -> None:
    page = figures.PAGES["art-table1"].read_text(encoding="utf-8")
    assert figures.page(page) == page, "run: python benchmarks/figures.py art"
    assert "<!-- art-networks: python benchmarks/figures.py continual -->" in page
    for name in figures.ART:
        assert f"<!-- {name}: python benchmarks/figures.py art -->" in page
        assert f"](../{name}.png)" in page
        assert 10_000 < (figures.DOCS / f"{name}.png").stat().st_size < 150_000


def test_the_documented_accuracies_agree_with_the_results() -> None:
    table = (figures.RESULTS / "art-table1.md").read_text(encoding="utf-8")
    rows = re.findall(
        r"^\| (?:Fashion-)?MNIST, .*? \| (.*?) \| (.*?) \| (.*?) \|$",
        PAGE.read_text(encoding="utf-8"),
        flags=re.MULTILINE,
    )
    assert len(rows) == 4
    for published, here, prototypes in rows:
        assert re.search(rf"\| {published} \| {here} \| .* \| {prototypes} \|", table)


def test_figures_are_drawn_from_stored_results() -> None:
    for name in figures.ART:
        outcome = figures.art_outcome(name)
        table = (figures.RESULTS / f"{name}.md").read_text(encoding="utf-8")
        for one in outcome.entries:
            assert f"| {one.mean:.2f} ± {one.deviation:.2f} |" in table
