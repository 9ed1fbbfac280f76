"""The blocks of docs/features.md run, and docs/results/features.md has the measured table."""

from pathlib import Path

import pytest

from documents import ROOT, run_document
from scripts import script

benchmark = script("fixed_features")


def test_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs" / "features.md").read_text(encoding="utf-8")
    assert run_document(page, "docs/features.md", tmp_path) == 7


def test_the_results_page_has_the_measured_table() -> None:
    page = benchmark.PAGE.read_text(encoding="utf-8")
    assert benchmark.page(page) == page, "run: python benchmarks/fixed_features.py table"
    results = benchmark.load_results()
    for data, (recipe, ridge) in benchmark.FILTERS.items():
        if data in benchmark.DATA:  # the chosen setting is the best one measured
            found = results[benchmark.named(benchmark.RandomConvolution(**recipe))][data]
            best = max(max(of[data].values()) for of in results.values() if data in of)
            assert found[f"{ridge:g}"] == best
