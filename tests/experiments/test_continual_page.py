"""docs/results/continual.md agrees with the results, which reach the documented accuracy."""

import csv
import re
from collections import defaultdict
from pathlib import Path
from statistics import mean, stdev

import pytest

from onepass.cli.reproduce import _options
from onepass_experiments.continual import _selected
from onepass_experiments.continual_learners import STREAMS, TITLES

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "results" / "continual.md").read_text(encoding="utf-8")
STREAM_OF_ROW = {
    "Split MNIST, 20,000 rows": "split-mnist",
    "Split MNIST, 60,000 rows": "whole-mnist",
    "Split Fashion-MNIST, 20,000 rows": "split-fashion-mnist",
    "Split Fashion-MNIST, 60,000 rows": "whole-fashion-mnist",
    "Rotated MNIST, 15 × 10,000 rows": "rotated-mnist",
    "Permuted MNIST, 10 × 10,000 rows": "permuted-mnist",
}
LEARNER_OF_FEATURES = {"`RandomConvolution`": "rls-filters", "`RandomReLU`": "rls-relu"}


def section(page: str, title: str) -> str:
    """Return a section of a page."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    return re.split(r"\n## ", text.split(f"\n## {title}\n")[1])[0]


@pytest.fixture(scope="module")
def runs() -> list[dict[str, str]]:
    """All runs in the CSV file."""
    path = ROOT / "benchmarks" / "results" / "continual-results.csv"
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def of(runs: list[dict[str, str]], measure: str = "average") -> dict[tuple[str, str], list[float]]:
    """Return (stream, learner) -> one number per run."""
    found = defaultdict(list)
    for row in runs:
        if row[measure]:
            found[row["stream"], row["learner"]].append(float(row[measure]))
    return dict(found)


@pytest.fixture(scope="module")
def found(runs: list[dict[str, str]]) -> dict[tuple[str, str], list[float]]:
    """(stream, learner) -> the final average of each run."""
    return of(runs)


def percent(values: list[float], places: int) -> str:
    """Format mean ± standard deviation as on the pages."""
    spread = f" ± {100 * stdev(values):.{places}f}" if len(values) > 1 else ""
    return f"{100 * mean(values):.{places}f}{spread}"


def test_results_cover_every_stream_and_learner(found: dict[tuple[str, str], list[float]]) -> None:
    assert set(found) == {(s, key) for s, stream in STREAMS.items() for key in stream.learners}
    assert all(len(runs) == STREAMS[stream].draws for (stream, _), runs in found.items())


def test_the_results_page_has_the_means_of_the_runs(
    found: dict[tuple[str, str], list[float]],
) -> None:
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
def test_rls_on_fixed_features_reaches_the_documented_accuracy(
    found: dict[tuple[str, str], list[float]], stream: str, learner: str, least: float
) -> None:
    ours = found[stream, learner]
    assert sum(ours) / len(ours) >= least
    for other, runs in found.items():  # and is the best learner of the stream
        assert other[0] != stream or sum(runs) / len(runs) <= sum(ours) / len(ours)


def test_the_features_page_agrees_with_the_runs(runs: list[dict[str, str]]) -> None:
    lines = section("results/features.md", "Streams of tasks").splitlines()
    table = [
        [cell.strip() for cell in line.split("|")[1:-1]] for line in lines if "`Random" in line
    ]
    average, nbytes, pace = (of(runs, name) for name in ("average", "nbytes", "learning"))
    assert {row[0] for row in table} == set(STREAM_OF_ROW)
    for stream, features, _, right, ms, megabytes in table:
        key = STREAM_OF_ROW[stream], LEARNER_OF_FEATURES[features]
        assert right == percent(average[key], 2), key
        assert ms == f"{1000 * mean(pace[key]):.1f}", key
        assert megabytes == f"{mean(nbytes[key]) / 1e6:.0f}", key


KEYS = {title: key for key, title in TITLES.items()}


def cells(text: str) -> list[list[str]]:
    """Return the rows of Markdown tables whose first cell is the name of a learner."""
    rows = [line for line in text.splitlines() if line.startswith("|")]
    found = [[cell.strip() for cell in line.split("|")[1:-1]] for line in rows]
    return [row for row in found if row[0] in KEYS]


def test_the_classes_page_agrees_with_the_runs(runs: list[dict[str, str]]) -> None:
    average, nbytes, pace = (of(runs, name) for name in ("average", "nbytes", "learning"))
    table = cells(section("classes.md", "What they reach"))
    full = {row[0]: row[1:] for row in table if len(row) == 5}
    assert len(full) == 14
    for title, (digits, fashion, megabytes, ms) in full.items():
        key = KEYS[title]
        assert digits == percent(average["split-mnist", key], 1).split()[0], title
        assert fashion == percent(average["split-fashion-mnist", key], 1).split()[0], title
        assert megabytes == f"{mean(nbytes['split-mnist', key]) / 1e6:.1f}", title
        assert ms == f"{1000 * mean(pace['split-mnist', key]):.2f}", title
    domains = [row for row in table if len(row) == 3]
    assert len(domains) == 5
    for title, rotated, permuted in domains:
        for stream, value in (("rotated-mnist", rotated), ("permuted-mnist", permuted)):
            if value:
                assert value == percent(average[stream, KEYS[title]], 1), title


def test_the_command_accepts_the_names_in_the_tables() -> None:
    streams = re.findall(r"Name for `--streams`: `([\w-]+)`", PAGE)
    methods = {row[0] for row in cells(PAGE)}
    assert set(streams) == set(STREAMS)
    assert methods == set(TITLES.values())
    given = {"streams": tuple(streams), "methods": tuple(methods)}
    assert _options("continual", given).items() >= given.items()
    assert set(_selected(given)["methods"]) == set(TITLES)
    networks = (ROOT / "benchmarks" / "results" / "art-networks.md").read_text(encoding="utf-8")
    assert len(named := re.findall(r"^\| Split [\w-]+ \| ([^|]+) \|", networks, re.MULTILINE)) == 8
    assert set(named) <= methods


def test_the_kin40k_section_agrees_with_the_runs(runs: list[dict[str, str]]) -> None:
    text = section("tasks.md", "Continual regression")
    for learner in ("rls-fourier", "sgd-fourier"):
        (final, forgetting, backward) = (
            of(runs, name)["kin40k", learner]
            for name in ("average", "forgetting", "backward_transfer")
        )
        assert f"{mean(final):.3f} ± {stdev(final):.3f}" in text
        assert f"{mean(forgetting):.3f}" in text
        assert f"{mean(backward):.3f}".replace("-", "−") in text
