"""The page of the experiment orfit-deep: it names all methods and contains the current results."""

from pathlib import Path

import pytest

from onepass_experiments.orfit_deep_networks import METHODS
from scripts import script

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "results" / "orfit-deep.md").read_text(encoding="utf-8")


def test_all_methods_are_described() -> None:
    assert not [name for name in METHODS if f"`{name}`" not in PAGE]


def test_the_tables_are_the_results() -> None:
    pytest.importorskip("PIL")
    assert script("figures").page(PAGE) == PAGE, "run: python benchmarks/figures.py orfit-deep"
    assert "<!-- orfit-deep: python benchmarks/figures.py orfit-deep -->" in PAGE
    for name in ("orfit-deep", "orfit-deep-curves"):
        assert f"](../{name}.png)" in PAGE
        assert 10_000 < (DOCS / f"{name}.png").stat().st_size < 150_000
