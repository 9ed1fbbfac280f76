"""docs/continual-results.md says what a command found, and that keeps what the project promises."""

import csv
import re
from collections import defaultdict
from pathlib import Path

import pytest

from onepass.reproduce.continual_learners import TITLES
from onepass.reproduce.continual_streams import STREAMS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "continual-results.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def found() -> dict[tuple[str, str], list[float]]:
    """Stream and learner -> the average at the end of each run."""
    runs = defaultdict(list)
    path = ROOT / "benchmarks" / "results" / "continual-results.csv"
    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            runs[row["stream"], row["learner"]].append(float(row["average"]))
    return dict(runs)


def test_every_stream_and_learner_is_there(found: dict[tuple[str, str], list[float]]) -> None:
    assert set(found) == {(s, key) for s, stream in STREAMS.items() for key in stream.learners}
    assert all(len(runs) == STREAMS[stream].draws for (stream, _), runs in found.items())


def test_the_page_has_the_means_of_the_runs(found: dict[tuple[str, str], list[float]]) -> None:
    parts = dict(re.findall(r"\n## ([^\n]+)\n(.*?)(?=\n## |\Z)", PAGE, flags=re.DOTALL))
    for (stream, learner), runs in found.items():
        lines = parts[STREAMS[stream].title].splitlines()
        row = next(line for line in lines if line.startswith(f"| {TITLES[learner]} |"))
        here = row.split("|")[3].split("±")[0]
        scale, places = (1.0, 3) if stream == "kin40k" else (100.0, 2)
        assert float(here) == pytest.approx(scale * sum(runs) / len(runs), abs=0.6 * 10**-places)


@pytest.mark.parametrize(
    ("stream", "learner", "least"),
    [
        ("split-mnist", "rls-filters", 0.985),
        ("split-fashion-mnist", "rls-filters", 0.878),
        ("whole-mnist", "rls-filters", 0.989),
        ("whole-fashion-mnist", "rls-filters", 0.898),
        ("rotated-mnist", "rls-filters", 0.94),
        ("permuted-mnist", "rls-relu", 0.895),
    ],
)
def test_one_pass_on_fixed_features_is_as_good_as_promised(
    found: dict[tuple[str, str], list[float]], stream: str, learner: str, least: float
) -> None:
    ours = found[stream, learner]
    assert sum(ours) / len(ours) >= least
    for other, runs in found.items():  # and the best of all learners of the stream
        assert other[0] != stream or sum(runs) / len(runs) <= sum(ours) / len(ours)
