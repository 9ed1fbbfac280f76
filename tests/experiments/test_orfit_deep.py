"""The experiment orfit-deep on synthetic images: streams, measures and files."""

import csv
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from onepass.cli import main
from onepass.errors import NumericalError, ParameterError
from onepass.stream import Images
from onepass_experiments import DeepOutcome, baselines, choose_settings, orfit_deep
from onepass_experiments.orfit_deep import _candidates, chosen_settings, run
from onepass_experiments.orfit_deep_networks import (
    METHODS,
    NETWORKS,
    STREAMS,
    Loop,
    Method,
    halved,
    network,
)
from onepass_experiments.orfit_deep_outcome import Result, average, forgetting
from raising import raises
from sampling import sample

torch = pytest.importorskip("torch")

QUICK = ("SGD", "Replay-100", "Joint")


@pytest.fixture(scope="module")
def images() -> Images:
    """Ten classes of images: a bar at the position of the class, with noise."""
    rng = np.random.default_rng(0)
    labels = np.tile(np.arange(10, dtype=np.uint8), 220)
    pictures = rng.integers(0, 60, (2200, 28, 28)).astype(np.uint8)
    for picture, label in zip(pictures, labels, strict=True):
        picture[4 + 2 * label : 7 + 2 * label, 6:18] = 250
    return Images(pictures[:1100], labels[:1100], pictures[1100:], labels[1100:])


@pytest.fixture(scope="module")
def outcome(images: Images) -> DeepOutcome:
    ticks = iter(range(10**6))
    return orfit_deep(
        images, methods=QUICK, networks=["mlp"], streams=["angles", "split", "permuted"],
        draws=2, scale=0.1, clock=lambda: float(next(ticks)), settings=plain(),
    )  # fmt: skip


def plain() -> Any:
    """The first settings of each grid."""
    return {
        stream: {
            which: {
                name: next(_candidates(method.grid("angles" if stream == "angles" else "classes")))
                for name, method in METHODS.items()
            }
            for which in NETWORKS
        }
        for stream in STREAMS
    }


# -- measures -------------------------------------------------------------------------------------


def test_measures_follow_their_formulas() -> None:
    a = np.array([[90.0, 20.0, 10.0], [70.0, 95.0, 30.0], [60.0, 80.0, 85.0]])
    assert average(a) == 75.0
    assert forgetting(a) == ((90 - 60) + (95 - 80)) / 2
    assert forgetting(np.array([[5.0, 60.0], [25.0, 10.0]]), "error") == 20.0
    late = np.array([[50.0, 0.0], [70.0, 90.0]])
    assert forgetting(late) == -20.0  # negative: later tasks improved earlier ones
    assert math.isnan(forgetting(np.array([[50.0]])))
    assert math.isnan(forgetting(np.array([[np.nan, np.nan], [70.0, 90.0]])))


# -- parts ----------------------------------------------------------------------------------------


def test_halved_images_are_means_of_four_pixels(images: Images) -> None:
    small = halved(images)
    assert small.train_images.shape == (1100, 14, 14)
    block = images.test_images[3, 4:6, 8:10].astype(float).mean()
    assert small.test_images[3, 2, 4] == np.rint(block)
    assert (small.train_labels == images.train_labels).all()


@pytest.mark.parametrize("name", NETWORKS)
def test_a_network_depends_only_on_its_seed(name: str) -> None:
    before = torch.get_rng_state()
    one, same, other = (network(name, 10, seed) for seed in ([0, 1], [0, 1], [0, 2]))
    assert bool((torch.get_rng_state() == before).all())
    assert one(torch.zeros(3, 1, 14, 14)).shape == (3, 10)
    weights = [torch.cat([w.flatten() for w in net.parameters()]) for net in (one, same, other)]
    assert bool((weights[0] == weights[1]).all())
    assert bool((weights[0] != weights[2]).any())
    assert bool(weights[0].isfinite().all())


@pytest.mark.parametrize(
    ("stream", "name"),
    [(stream, name) for name in METHODS for stream in sample(["angles", "split"], 1, name)],
)
def test_method_is_deterministic_and_finite(images: Images, name: str, stream: str) -> None:
    tasks = list(STREAMS[stream].make(halved(images), 0.03, 0))[:2]
    settings = plain()[stream]["conv"][name]
    threads = torch.get_num_threads()
    one = run(METHODS[name], settings, tasks, "conv", [0])
    again = run(METHODS[name], settings, tasks, "conv", [0])
    assert torch.get_num_threads() == threads
    assert one.matrix.shape == (2, 2)
    assert np.isfinite(one.matrix[-1]).all()
    assert (one.matrix[-1] == again.matrix[-1]).all()
    assert one.seconds is None
    assert one.stopped is None
    assert one.nbytes >= 0
    assert (one.within is None) == (stream == "angles")


def test_a_failed_method_is_reported(images: Images) -> None:
    class Stuck:
        nbytes = 0

        def learn(self, *rows: Any) -> None:
            raise NumericalError("stuck" if rows else "")

    tasks = list(STREAMS["split"].make(halved(images), 0.04, 0))
    method = Method("Stuck", lambda *_, **__: Stuck(), {}, {})
    found = run(method, {}, tasks, "mlp", [0])
    assert found.stopped == "0–1: stuck"
    assert (found.matrix == found.matrix[0]).all()


def test_settings_are_chosen_without_test_rows(images: Images) -> None:
    blind = Images(
        images.train_images,
        images.train_labels,
        np.zeros_like(images.test_images),
        images.test_labels,
    )
    log: list[str] = []
    chosen = [
        choose_settings(
            each, streams=["split"], networks=["mlp"], methods=["SGD"], scale=0.1,
            log=log.append,
        )
        for each in (images, blind)
    ]  # fmt: skip
    assert chosen[0] == chosen[1]
    tried = [float(line.rpartition(" ")[2]) for line in log if line.startswith("  SGD")]
    best = METHODS["SGD"].classes["step_size"][int(np.argmax(tried[:5]))]
    assert chosen[0]["split"]["mlp"]["SGD"] == {"step_size": best}


def test_chosen_settings_are_in_the_grids() -> None:
    chosen = chosen_settings()
    assert set(chosen) == set(STREAMS)
    for stream, networks in chosen.items():
        assert set(networks) == set(NETWORKS)
        for methods in networks.values():
            assert set(methods) == set(METHODS)
            for name, settings in methods.items():
                grid = METHODS[name].grid("angles" if stream == "angles" else "classes")
                assert settings in list(_candidates(grid))


# -- the experiment -------------------------------------------------------------------------------


def test_results_cover_all_selected_streams_and_methods(outcome: DeepOutcome) -> None:
    places = [(r.stream, r.method) for r in outcome.results]
    titles = ["Rotation angles", "Split MNIST", "Split MNIST, task known", "Permuted MNIST"]
    assert places == [(title, method) for title in titles for method in QUICK]
    for result in outcome.results:
        assert result.matrix().shape == (2, *[len(result.matrices[0])] * 2)
        assert result.measure == ("error" if result.stream == "Rotation angles" else "accuracy")
        known = np.isnan(result.matrix()).sum() == 0
        assert known == (result.method != "Joint")
        assert all(seconds is not None and seconds > 0 for seconds in result.seconds)


def test_results_show_known_effects(outcome: DeepOutcome) -> None:
    def last(stream: str, method: str) -> float:
        return float(np.mean(outcome.result(stream, "mlp", method).last))

    assert last("Split MNIST", "SGD") < last("Split MNIST", "Joint")
    assert last("Split MNIST", "SGD") < last("Split MNIST, task known", "SGD")
    assert np.mean(outcome.result("Split MNIST", "mlp", "SGD").forgetting) > 0
    replay = outcome.result("Split MNIST", "mlp", "Replay-100")
    assert replay.nbytes == 100 * (14 * 14 * 4 + 8)


def test_the_same_seed_gives_the_same_outcome(images: Images) -> None:
    seen: list[tuple[int, int]] = []

    def made(seed: int) -> DeepOutcome:
        return orfit_deep(
            images, methods=["SGD"], networks=["mlp"], streams=["rotated"], draws=2, scale=0.05,
            seed=seed, settings=plain(), progress=lambda i, n: seen.append((i, n)),
        )  # fmt: skip

    one, again, other = made(0), made(0), made(1)
    assert one == again
    assert one.results != other.results
    assert seen[:2] == [(1, 2), (2, 2)]
    assert one.results[0].seconds == [None, None]
    assert one.results[0].matrices[0] != one.results[0].matrices[1]


@pytest.mark.parametrize(
    ("arguments", "fields"),
    [
        ({"methods": ["SDG"]}, {"argument": "methods", "got": "'SDG'", "remedy": "Did you mean"}),
        ({"streams": ["cifar"]}, {"argument": "streams"}),
        ({"networks": []}, {"argument": "networks", "got": "[]"}),
        ({"draws": 0}, {"argument": "draws"}),
        ({"processes": 0}, {"argument": "processes"}),
        ({"scale": 0.0}, {"argument": "scale"}),
        ({"settings": {}}, {"argument": "settings"}),
    ],
)
def test_invalid_arguments_are_rejected(
    images: Images, arguments: Any, fields: dict[str, Any]
) -> None:
    with raises(ParameterError, **fields):
        orfit_deep(images, **arguments)


# -- results -----------------------------------------------------------------------------


def test_an_outcome_is_a_table(outcome: DeepOutcome) -> None:
    console = Console(width=160, record=True)
    console.print(outcome)
    text = console.export_text()
    assert "Split MNIST, task known" in text
    assert "± over 2 draws" in text
    page = outcome.to_markdown()
    assert page.count("### ") == 4
    assert "| network | method | final average | forgetting | memory | ms per row |" in page
    row = next(line for line in page.splitlines() if line.startswith("| mlp | Joint"))
    assert row.split("|")[4].strip() == "–"  # tested only at the end


def test_an_outcome_is_numbers(outcome: DeepOutcome, tmp_path: Path) -> None:
    text = outcome.to_json(tmp_path / "a.json")
    tree = json.loads(text)
    assert tree["setup"]["draws"] == 2
    first = tree["results"][0]
    assert Result(**first).last == pytest.approx(outcome.results[0].last, rel=1e-5)
    assert (tmp_path / "a.json").read_text(encoding="utf-8") == text + "\n"
    outcome.to_csv(tmp_path / "a.csv")
    rows = list(csv.DictReader((tmp_path / "a.csv").read_text(encoding="utf-8").splitlines()))
    assert len(rows) == 2 * len(outcome.results)
    assert float(rows[1]["last"]) == pytest.approx(outcome.results[0].last[1], rel=1e-5)
    assert rows[-1]["forgetting"] == ""


def test_an_outcome_is_two_figures(outcome: DeepOutcome, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    paths = outcome.save(tmp_path / "new")
    assert [path.name for path in paths] == [
        "orfit-deep.json", "orfit-deep.csv", "orfit-deep.md", "orfit-deep.png",
        "orfit-deep-curves.png",
    ]  # fmt: skip
    assert all(path.stat().st_size > 500 for path in paths)
    panels = outcome.plot().axes
    assert len(panels) == 4
    assert [label.get_text() for label in panels[0].get_yticklabels()] == list(QUICK)
    assert len(outcome.plot_curves().axes) == 4


def test_invalid_options_of_the_command_are_rejected(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "orfit-fig6", "--scale", "0.1"]) == 2
    assert "--scale" in capsys.readouterr().err
    assert main(["reproduce", "orfit-deep", "--methods", "SDG"]) == 2
    assert "Did you mean" in capsys.readouterr().err


def test_a_loop_is_an_ordinary_training_loop() -> None:
    class RecordingSGD(torch.optim.SGD):
        nbytes = 12
        tasks: Any = ()

        def after_task(self, loader: Any) -> None:
            self.tasks = (*self.tasks, [len(x) for x, _ in loader])

    ours, plain = network("mlp", 10, [0]), network("mlp", 10, [0])
    optimizer = RecordingSGD(ours.parameters(), lr=0.1)
    loop = Loop(ours, optimizer, "cross_entropy")
    other = baselines.SGD(plain, step_size=0.1)
    for n in (4, 3):
        x, y = torch.ones(n, 1, 14, 14), torch.arange(n)
        loop.learn(x, y)
        other.learn(x, y)
    loop.after_task().after_task()
    assert optimizer.tasks == ([4, 3], [])
    assert loop.nbytes == 12
    for a, b in zip(ours.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(a, b)
    line = torch.nn.Linear(1, 1)
    before = line.bias.item()
    half = Loop(line, torch.optim.SGD(line.parameters(), lr=0.1), "squared")
    half.learn(torch.zeros(2, 1), torch.tensor([[before + 1], [before + 3]]))
    assert line.bias.item() == pytest.approx(before + 0.2)
    with raises(NumericalError, remedy="Lower the step size"):
        half.learn(torch.full((1, 1), torch.inf), torch.zeros(1, 1))
