"""docs/results/orfit.md agrees with the results, and the statements of docs/reproduce.md hold."""

import csv
import re
from pathlib import Path

import pytest

pytest.importorskip("PIL")

from scripts import script

ROOT = Path(__file__).parents[2]

figures = script("figures")
PAGE = figures.PAGES["orfit-fig6"].read_text(encoding="utf-8")


def last(name: str) -> dict[tuple[str, str], dict[str, float]]:
    """Return the last published and reproduced step of each line."""
    found = {}
    with (figures.RESULTS / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            if row["mean"]:
                numbers = ("step", "mean", "low", "high", "published")
                values = {key: float(row[key] or "nan") for key in numbers}
                found[row["method"], row["error"]] = values
    return found


def test_every_table_agrees_with_the_results() -> None:
    assert figures.page(PAGE) == PAGE, "run: python benchmarks/figures.py"
    for name in figures.PAPERS:
        assert f"<!-- {name}: python benchmarks/figures.py -->" in PAGE
        assert f"](../{name}.png)" in PAGE


@pytest.mark.parametrize("name", figures.PAPERS)
def test_figures_are_small(name: str) -> None:
    assert 10_000 < (figures.DOCS / f"{name}.png").stat().st_size < 150_000


@pytest.mark.parametrize("name", figures.PAPERS)
def test_figures_are_drawn_from_stored_results(name: str) -> None:
    drawn = figures.orfit_outcome(name).to_markdown().split("\n\n")[0].splitlines()[2:]
    stored = (figures.RESULTS / f"{name}.md").read_text(encoding="utf-8")
    printed = "ORFit, rule of 2022 as printed"  # shares the published test error of ORFit
    assert [row for row in drawn if row not in stored and printed not in row] == []


@pytest.mark.parametrize("name", figures.PAPERS)
def test_published_errors_are_in_the_range_over_draws(name: str) -> None:
    table = (figures.RESULTS / f"{name}.md").read_text(encoding="utf-8")
    cells = [
        [c.strip() for c in row.split("|")[1:-1]] for row in table.splitlines()[2:] if "|" in row
    ]
    outside = []
    for method, error, paper, _, between, _ in cells:
        if error in {"test", "train"}:
            low, high = (float(x) for x in (re.findall(r"[\d.]+", between) * 2)[:2])
            if not low <= float(paper.split()[0]) <= high:
                outside.append(method)
    assert outside == (["ORFit, rule of 2022 as printed"] if name == "orfit-fig6" else [])


def test_the_order_of_methods_is_the_published_one() -> None:
    found = last("orfit-fig6")
    for between in ("ORFit-random", "ORFit-latest"):  # which are close to each other
        order = ("ORFit", between, "One-Step SGD", "Greedy")
        assert [found[name, "test"]["step"] for name in order] == [100] * 4
        for what in ("mean", "published"):
            errors = [found[name, "test"][what] for name in order]
            assert errors == sorted(errors)
    one, other = (found[name, "test"] for name in ("ORFit-random", "ORFit-latest"))
    apart = min(each["high"] - each["low"] for each in (one, other))
    assert abs(one["mean"] - other["mean"]) < apart
    assert 38 <= found["ORFit", "test"]["mean"] <= 45
    assert 34 <= last("orfit-fig7")["ORFit", "test"]["mean"] <= 40
