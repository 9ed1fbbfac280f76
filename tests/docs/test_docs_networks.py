"""The pages about networks: their blocks run, and claims about ORFit agree with the results."""

import csv
from pathlib import Path

import pytest

from documents import run_document

ROOT = Path(__file__).parents[2]
ONE_PASS = ("SGD", "One-step SGD", "ORFit-10", "ORFit-100", "ORFit-100 noisy", "LO-FI-10")
"""Methods that see each row once, store no rows and do not use ends of tasks."""


@pytest.mark.parametrize(
    ("name", "count"), [("networks", 3), ("modules", 2), ("network-methods", 5)]
)
def test_the_page_runs(
    name: str, count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")
    assert run_document(page, f"docs/{name}.md", tmp_path) == count


def mean_scores() -> dict[tuple[str, str], dict[str, float]]:
    """Mean final score of each method by (stream, network); errors are negated."""
    scores: dict[tuple[str, str], dict[str, list[float]]] = {}
    path = ROOT / "benchmarks" / "results" / "orfit-deep.csv"
    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            sign = 1.0 if row["measure"] == "accuracy" else -1.0
            panel = scores.setdefault((row["stream"], row["network"]), {})
            panel.setdefault(row["method"], []).append(sign * float(row["last"]))
    return {
        panel: {method: sum(values) / len(values) for method, values in methods.items()}
        for panel, methods in scores.items()
    }


def test_when_orfit_does_not_help_agrees_with_the_results() -> None:
    scores = mean_scores()
    assert len(scores) == 10
    assert all(panel["ORFit-100 noisy"] > panel["ORFit-100"] for panel in scores.values())
    best = [max(ONE_PASS, key=panel.__getitem__) for panel in scores.values()]
    assert best.count("ORFit-100 noisy") == 8
    task_given = scores["Split MNIST, task known", "mlp"]
    worse = {"One-step SGD", "EWC", "ORFit-10", "ORFit-100"}
    others = {round(value) for name, value in task_given.items() if name not in {*worse, "Joint"}}
    assert others == {95, 96}
    for network in ("mlp", "conv"):
        angles = scores["Rotation angles", network]
        assert angles["ORFit-100"] < angles["SGD"]
