"""What docs/deep.md shows runs; it names all streams and methods, and says what was found."""

import csv
from pathlib import Path

import pytest

from documents import run_document
from onepass_experiments import baselines
from onepass_experiments.orfit_deep_networks import METHODS
from scripts import script

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "deep.md").read_text(encoding="utf-8")
ONE_PASS = ("SGD", "One-step SGD", "ORFit-10", "ORFit-100", "ORFit-100 noisy", "LO-FI-10")
"""Those that see each row once, keep none and are not described where a task ends."""

Place = tuple[str, str]


def means() -> dict[Place, dict[str, float]]:
    """Stream and network to each method's mean at the end over the draws, more being better."""
    found: dict[Place, dict[str, list[float]]] = {}
    path = ROOT / "benchmarks" / "results" / "orfit-deep.csv"
    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            sign = 1.0 if row["measure"] == "accuracy" else -1.0
            place = found.setdefault((row["stream"], row["network"]), {})
            place.setdefault(row["method"], []).append(sign * float(row["last"]))
    return {
        place: {name: sum(each) / len(each) for name, each in methods.items()}
        for place, methods in found.items()
    }


def test_the_page_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    assert run_document(PAGE, "docs/deep.md", tmp_path) == 2
    described = capsys.readouterr().out
    assert "0–1 (20, 784) (40, 784) (0, 1)" in described
    assert "['0°', '5°', '10°'] (200, 1, 28, 28)" in described


def test_all_is_named() -> None:
    assert not [name for name in baselines.__all__ if f"`{name}`" not in PAGE]
    assert not [name for name in METHODS if name not in PAGE and "ORFit-" not in name]


def test_every_table_is_what_the_command_found() -> None:
    pytest.importorskip("PIL")
    assert script("figures").page(PAGE) == PAGE, "run: python benchmarks/figures.py orfit-deep"
    assert "<!-- orfit-deep: python benchmarks/figures.py orfit-deep -->" in PAGE
    for name in ("orfit-deep", "orfit-deep-curves"):
        assert f"]({name}.png)" in PAGE
        assert 10_000 < (ROOT / "docs" / f"{name}.png").stat().st_size < 150_000


def test_what_the_page_says_of_orfit_is_what_was_found() -> None:
    found = means()
    assert len(found) == 10
    assert all(place["ORFit-100 noisy"] > place["ORFit-100"] for place in found.values())
    best = {place: max(ONE_PASS, key=methods.__getitem__) for place, methods in found.items()}
    ahead = [place for place, name in best.items() if name == "ORFit-100 noisy"]
    assert len(ahead) == 8
    assert [place for place in best if place[1] == "mlp" and place not in ahead] == [
        ("Rotation angles", "mlp")
    ]
    rotated = found["Rotated MNIST", "mlp"]
    order = sorted(rotated, key=rotated.__getitem__, reverse=True)
    assert order[:4] == ["Joint", "ORFit-100 noisy", "OGD", "Replay-500"]
    known = found["Split MNIST, task known", "mlp"]
    behind = {"One-step SGD", "EWC", "ORFit-10", "ORFit-100", "Joint"}
    assert {round(value) for name, value in known.items() if name not in behind} == {95, 96}
    angles = found["Rotation angles", "mlp"]
    assert angles["ORFit-100"] < angles["SGD"]
