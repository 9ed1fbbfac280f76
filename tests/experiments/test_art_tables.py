"""The tables of ART-IPCA on synthetic images: measurements, comparison and files."""

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import ttest_rel

from onepass.cli import main
from onepass.errors import ParameterError
from onepass.stream import Images
from onepass_experiments import ArtOutcome, art_ipca, art_table1, art_table2, art_tables
from onepass_experiments.art_ipca import PAPER
from raising import raises


@pytest.fixture(scope="module")
def images() -> dict[str, Images]:
    """Ten classes of images: a bar at the position of the class, sometimes another, with noise."""
    rng = np.random.default_rng(0)
    labels = np.tile(np.arange(10, dtype=np.uint8), 40)
    pictures = rng.integers(0, 160, (400, 28, 28)).astype(np.uint8)
    for picture, label in zip(pictures, labels, strict=True):
        shown = label if rng.random() < 0.9 else rng.integers(0, 10)
        picture[4 + 2 * shown : 7 + 2 * shown, 6:18] = 200
    return {"MNIST": Images(pictures[:250], labels[:250], pictures[250:], labels[250:])}


@pytest.fixture(scope="module")
def outcomes(images: dict[str, Images]) -> tuple[ArtOutcome, ArtOutcome]:
    ticks = iter(range(10**6))
    return art_tables(images, draws=3, clock=lambda: float(next(ticks)))


@pytest.fixture(scope="module")
def single(images: dict[str, Images]) -> ArtOutcome:
    return art_table1(images, draws=1)


def test_both_tables_use_the_same_runs(outcomes: Any, single: ArtOutcome, images: Any) -> None:
    one, two = outcomes
    assert one.entries[0].seconds == 1.0
    assert one.entry("MNIST", "IPCA").mean > 40.0
    for first, second in zip(one.entries, two.entries, strict=True):
        assert (first.method, first.prototypes) == (second.method, second.prototypes)
        assert all(a <= b for a, b in zip(first.accuracy, second.accuracy, strict=True))
        assert first.compact <= first.nbytes
    assert single.entries[1].accuracy == one.entries[1].accuracy[:1]
    assert art_table2(images, draws=1).entries[1].accuracy == two.entries[1].accuracy[:1]


def test_a_paired_test_compares_methods_with_ipca(outcomes: Any) -> None:
    one = outcomes[0]
    none, base = one.entry("MNIST", "No PCA"), one.entry("MNIST", "IPCA")
    assert one.p_value(base) is None
    assert one.p_value(none) == pytest.approx(ttest_rel(none.accuracy, base.accuracy).pvalue)
    assert base.paper == PAPER[1]["MNIST"]["IPCA"] == (94.03, 0.26)


def test_save_writes_all_formats(outcomes: Any, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    paths = outcomes[0].save(tmp_path)
    assert [path.name for path in paths] == [
        f"art-table1{suffix}" for suffix in (".json", ".csv", ".md", ".png")
    ]
    tree = json.loads(paths[0].read_text())
    assert tree["setup"] == {"draws": 3, "seed": 0, "vigilance": 0.5}
    with paths[1].open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 4 * 3
    assert [float(row["accuracy"]) for row in rows[:3]] == pytest.approx(
        outcomes[0].entries[0].accuracy, abs=1e-3
    )
    text = paths[2].read_text()
    assert "| MNIST | IPCA | 94.03 ± 0.26 |" in text
    assert "3 runs, each with its own sample and order of rows" in text
    assert paths[3].stat().st_size > 10_000


def test_a_single_run_has_no_deviation_and_no_p_value(single: ArtOutcome) -> None:
    assert {each.deviation for each in single.entries} == {0.0}
    assert {single.p_value(each) for each in single.entries} == {None}


def test_invalid_numbers_are_rejected(images: Any) -> None:
    for given in ({"draws": 0}, {"processes": 0}, {"vigilance": 2.0}):
        with raises(ParameterError, where="art_table1", argument=next(iter(given))):
            art_table1(images, **given)


def test_the_command_shows_the_table(
    images: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("onepass_experiments.art_ipca.images_of", lambda _: images["MNIST"])
    assert (
        main(
            [
                "reproduce",
                "art-table2",
                "--draws",
                "1",
                "--vigilance",
                "0.4",
                "--processes",
                "1",
                "--quiet",
            ]
        )
        == 0
    )
    output = capsys.readouterr().out
    assert "One run, with its own sample" in output
    assert "± 0.00" not in output  # one run has no deviation
    assert "Fashion-MNIST" in output
    assert "vigilance 0.4" in " ".join(output.split())
    assert "99.47 ± 0.05" in output


def test_one_data_set_alone(images: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(art_ipca, "images_of", lambda name: {"mnist": images["MNIST"]}[name])
    assert {entry.data for entry in art_table1(streams=["mnist"], draws=1).entries} == {"MNIST"}
    with raises(ParameterError, argument="streams"):
        art_table1(streams=["imagenet"])
