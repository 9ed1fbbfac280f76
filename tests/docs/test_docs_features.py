"""The page about features fixed before data is true: its blocks run, its table was measured."""

from pathlib import Path

import pytest

from documents import run_document
from scripts import script

benchmark = script("fixed_features")


def test_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = benchmark.PAGE.read_text(encoding="utf-8")
    assert run_document(page, "docs/features.md", tmp_path) == 7


def test_the_table_is_what_the_command_found() -> None:
    page = benchmark.PAGE.read_text(encoding="utf-8")
    assert benchmark.page(page) == page, "run: python benchmarks/fixed_features.py table"
    known = benchmark.load_results()
    for data, (recipe, ridge) in benchmark.FILTERS.items():
        if data in benchmark.DATA:  # what was chosen is the best that was found
            found = known[benchmark.named(benchmark.RandomConvolution(**recipe))][data]
            best = max(max(of[data].values()) for of in known.values() if data in of)
            assert found[f"{ridge:g}"] == best
