"""Figures 6 and 7 of ORFit on synthetic digits, and on MNIST if available."""

import csv
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose
from numpy.typing import NDArray
from rich.console import Console

from onepass import ORFitRegressor, stream
from onepass.errors import MissingExtraError, ParameterError, SourceError
from onepass.stream import Images
from onepass_experiments import Outcome, RotatedDigits, orfit_figure6, orfit_figure7
from onepass_experiments.orfit import multipass_sgd, rotated
from onepass_experiments.outcome import band, published
from oracles import sgd_multipass
from raising import raises
from sampling import sample

PRINTED = "ORFit, rule of 2022 as printed"


def strokes(n: int, rng: np.random.Generator) -> NDArray[np.uint8]:
    """Return distinct images of a stroke: an upright bar and a foot to the right."""
    i, j = np.mgrid[:28, :28].astype(float)
    pictures = np.empty((n, 28, 28))
    for k in range(n):
        x, foot, width = 13 + rng.normal(), 20 + rng.normal(), 1.5 + 0.5 * rng.random()
        bar = np.exp(-(((j - x) / width) ** 2)) * (np.abs(i - 13.5) < 7)
        base = np.exp(-(((i - foot) / width) ** 2)) * (np.abs(j - x - 3) < 4)
        pictures[k] = np.maximum(bar, base)
    return np.asarray(np.rint(255 * pictures), dtype=np.uint8)


@pytest.fixture(scope="module")
def images() -> Images:
    """A substitute for MNIST: strokes for twos, and noise for unused digits."""
    rng = np.random.default_rng(0)
    noise = rng.integers(0, 256, (20, 28, 28), dtype=np.uint8)
    return Images(
        np.concatenate([strokes(130, rng), noise]),
        np.repeat([2, 7], [130, 20]).astype(np.uint8),
        np.concatenate([noise, strokes(60, rng)]),
        np.repeat([7, 2], [20, 60]).astype(np.uint8),
    )


@pytest.fixture(scope="module")
def figure6(images: Images) -> Outcome:
    return orfit_figure6(images, draws=2, runs=3)


@pytest.fixture(scope="module")
def figure7(images: Images) -> Outcome:
    return orfit_figure7(images, draws=2, runs=3, epochs=30)


# -- rotated digits -------------------------------------------------------------------------------


@pytest.mark.parametrize("order", [0, 1, 3])
def test_rotation_by_quarter_turn_is_exact(order: Any) -> None:
    pictures = strokes(3, np.random.default_rng(1))
    turned = rotated(pictures, np.array([90.0, 180.0, -90.0]), order)
    for k, quarters in enumerate((1, 2, -1)):
        assert_allclose(turned[k], np.rot90(pictures[k], quarters), atol=1e-6)


def test_pixels_stay_in_range() -> None:
    pictures = np.random.default_rng(0).integers(0, 256, (4, 28, 28))
    turned = rotated(pictures, np.full(4, 33.0), 3)
    assert turned.min() >= 0.0
    assert turned.max() <= 255.0


def test_draw_has_set_up_of_papers(images: Images) -> None:
    drawn = RotatedDigits().draw(images, 4, [0, 0])
    assert_allclose(np.rad2deg(drawn.y), 1.8 * np.arange(1, 101))
    assert drawn.X.shape == (100, 784)
    assert drawn.X_test.shape == (60, 784)
    assert drawn.start.shape == (4, 784)
    assert 0.9 / 28 < np.abs(drawn.start).max() <= 1 / 28
    assert 0 <= drawn.y_test.min() < drawn.y_test.max() < np.pi
    assert_allclose(drawn.X.min(), -0.1307 / 0.3081)  # the background
    half = drawn.X[99].reshape(28, 28)[::-1, ::-1]  # rotated by 180°, then back
    pixels = np.rint((half * 0.3081 + 0.1307) * 255)
    assert (images.train_images[:130] == pixels).all(axis=(1, 2)).sum() == 1
    quarter = drawn.X[49].reshape(28, 28)
    back = np.rint((np.rot90(quarter, 1) * 0.3081 + 0.1307) * 255)  # clockwise is -90°
    assert (images.train_images[:130] == back).all(axis=(1, 2)).sum() == 1


def test_draw_depends_only_on_seed(images: Images) -> None:
    one, same = (RotatedDigits().draw(images, 2, [0, 3]) for _ in range(2))
    other = RotatedDigits().draw(images, 2, [0, 4])
    assert (one.X == same.X).all()
    assert (one.start == same.start).all()
    assert (one.X != other.X).any()
    assert (one.start != other.start).any()


def test_bias_adds_constant_feature(images: Images) -> None:
    drawn = RotatedDigits(bias=True).draw(images, 2, [0, 0])
    assert drawn.X.shape[1] == drawn.X_test.shape[1] == drawn.start.shape[1] == 785
    assert (drawn.X[:, -1] == 1).all()


@pytest.mark.parametrize("digits", [RotatedDigits(n=131), RotatedDigits(digit=3)])
def test_too_few_images_are_rejected(images: Images, digits: RotatedDigits) -> None:
    with raises(ParameterError, argument="images"):
        digits.draw(images, 1, [0])


# -- multi-pass SGD -------------------------------------------------------------------------------


def test_multi_pass_sgd_equals_the_loop() -> None:
    rng = np.random.default_rng(0)
    X, y, start = rng.normal(size=(7, 12)), rng.normal(size=7), rng.normal(size=(3, 12))
    steps = np.array([1, 3, 7, 8, 20, 35, 700])
    weights = multipass_sgd(X, y, start, 0.01, steps)
    for step, found in zip(steps, weights, strict=True):
        for run in range(3):
            w = sgd_multipass(X, y, start[run], 0.02, step // 7)  # its gradient has no factor 2
            w = sgd_multipass(X[: step % 7], y[: step % 7], w, 0.02, 1)
            assert_allclose(found[run], w, atol=1e-12)


def test_shuffled_multi_pass_sgd_uses_each_row_once_per_epoch() -> None:
    rng = np.random.default_rng(0)
    X, y, start = rng.normal(size=(5, 9)), rng.normal(size=5), rng.normal(size=(1, 9))
    steps = np.array([3, 5, 9])
    weights = multipass_sgd(X, y, start, 0.02, steps, np.random.default_rng(8))
    order = np.random.default_rng(8)
    rows = np.concatenate([order.permutation(5) for _ in range(2)])
    for step, found in zip(steps, weights, strict=True):
        taken = rows[:step]
        assert_allclose(found[0], sgd_multipass(X[taken], y[taken], start[0], 0.04, 1), atol=1e-12)


# -- the experiments ------------------------------------------------------------------------------


def test_ranking_of_methods_is_as_published(figure6: Outcome) -> None:
    names = ["ORFit", PRINTED, "One-Step SGD", "Greedy"]
    last = [figure6.line(name).ours.mean[-1] for name in names]
    assert last[0] < last[2] < last[3]
    assert last[0] < last[1]


def test_simultaneous_runs_equal_separate_runs(images: Images, figure6: Outcome) -> None:
    drawn = RotatedDigits().draw(images, 3, [0, 1])
    errors = []
    for w in drawn.start:
        model = ORFitRegressor(memory=10, initial_coef=w)
        model.partial_fit(drawn.X, drawn.y)
        errors.append(np.sqrt(np.mean((model.predict(drawn.X_test) - drawn.y_test) ** 2)))
    ours, second = figure6.line("ORFit").ours, float(np.rad2deg(np.mean(errors)))
    of_two_draws = (ours.low[-1], ours.high[-1])
    assert min(abs(second - found) for found in of_two_draws) < 1e-9


def test_greedy_predicts_the_last_angle(figure6: Outcome) -> None:
    _, paper = published("orfit-published.json", "orfit-fig6")
    greedy = figure6.line("Greedy").ours  # over 60 sampled angles
    assert_allclose(greedy.mean, paper["Greedy", "test"].values, atol=12)
    assert_allclose(greedy.deviation, 0, atol=1e-9)  # all runs predict the same
    alone = paper["Greedy", "sample"]
    shown = figure6.line("Greedy", "sample").ours.mean[: len(alone.values)]
    assert_allclose(shown, alone.values, atol=0.02)


def test_sample_row_is_fitted_when_learned(figure6: Outcome, figure7: Outcome) -> None:
    assert figure6.setup["sample"] == 16
    assert figure7.setup["sample"] == 11
    for method in ("ORFit", "One-Step SGD", PRINTED):
        watched = figure6.line(method, "sample").ours.mean
        assert watched[15] < 1e-9 < watched[14]
        assert watched[99] > 1e-3  # with 10 directions it is partly forgotten
    watched = figure7.line("ORFit", "sample").ours.high
    assert max(watched[10:]) < 1e-8  # with unlimited memory it is not


def test_with_unlimited_memory_all_rows_are_fitted(figure7: Outcome) -> None:
    assert figure7.line("ORFit", "train").ours.high[-1] < 1e-8
    assert figure7.line("One-Step SGD", "train").ours.mean[-1] > 10
    many = figure7.line("SGD, 30 epochs", "train").ours
    assert many.steps[-1] == 3000
    assert many.steps[:100] == list(range(1, 101))
    assert 1e-3 < many.mean[-1] < many.mean[0]


def test_same_seed_gives_same_outcome(images: Images, figure6: Outcome) -> None:
    seen: list[tuple[int, int]] = []
    again = orfit_figure6(images, draws=2, runs=3, progress=lambda i, n: seen.append((i, n)))
    assert again == figure6
    assert seen == [(1, 2), (2, 2)]
    assert orfit_figure6(images, draws=2, runs=3, seed=1) != figure6


def test_sorted_rows_change_the_first_epoch(images: Images, figure7: Outcome) -> None:
    ordered = orfit_figure7(images, draws=2, runs=3, epochs=30, shuffled=False)
    assert ordered.line("ORFit") == figure7.line("ORFit")
    means = [outcome.line("SGD, 30 epochs").ours.mean for outcome in (ordered, figure7)]
    assert means[0][30] > means[1][30]  # small angles carry little information about large ones


def test_published_curves_are_shown_only_for_the_set_up_of_the_paper(
    images: Images, figure6: Outcome
) -> None:
    shown = figure6.line("ORFit").paper
    assert shown is not None
    assert shown.values[-1] == pytest.approx(41.06)
    assert figure6.line(PRINTED).paper == shown
    fewer = orfit_figure6(images, m=5, draws=1, runs=1)
    assert all(line.paper is None for line in fewer.lines)
    small = orfit_figure7(images, draws=1, runs=1, epochs=2, digits=RotatedDigits(n=8))
    assert all(line.paper is None for line in small.lines)
    assert small.setup["sample"] == 8


@pytest.mark.parametrize("count", [0, -1, 1.5, True])
def test_invalid_counts_are_rejected(images: Images, count: Any) -> None:
    for experiment in (orfit_figure6, orfit_figure7):
        with raises(ParameterError, argument="draws"):
            experiment(images, draws=count)
        with raises(ParameterError, argument="runs"):
            experiment(images, runs=count)
    with raises(ParameterError, argument="epochs"):
        orfit_figure7(images, epochs=count)
    with raises(ParameterError, argument="m"):
        orfit_figure6(images, m=count)


def test_rows_learned_so_far_are_fitted_until_the_memory_is_full(
    images: Images, figure6: Outcome, figure7: Outcome
) -> None:
    """Training error zero for i <= m, at each step: by the learner itself, and in the outcome."""
    drawn = RotatedDigits().draw(images, 3, [0, 0])
    for w in drawn.start:
        model = ORFitRegressor(memory=10, initial_coef=w)
        for i in range(1, 11):
            model.learn_one(drawn.X[i - 1], drawn.y[i - 1])
            assert_allclose(model.predict(drawn.X[:i]), drawn.y[:i], atol=1e-11)
    few, all_rows = (one.line("ORFit", "learned").ours for one in (figure6, figure7))
    assert few.steps == all_rows.steps == list(range(1, 101))
    assert max(few.high[:10]) < 1e-9
    assert min(few.low[11:]) > 1e-3  # the next row is learned before a direction is dropped
    assert max(all_rows.high) < 1e-8
    assert "first 10 rows in any run, is" in figure6.remark
    assert "first 100 rows in any run, is" in figure7.remark


def test_final_error_over_learned_rows_is_training_error(figure7: Outcome) -> None:
    so_far, train = (figure7.line("ORFit", error).ours for error in ("learned", "train"))
    assert so_far.mean[-1] == pytest.approx(train.mean[-1], abs=1e-12)


# -- results ---------------------------------------------------------------------------


def test_band_summarizes_runs_and_draws() -> None:
    errors = np.array([[[1.0, 3.0]], [[5.0, 5.0]]])  # two draws, one step, two runs
    found = band(np.array([7]), errors)
    assert (found.steps, found.mean, found.low, found.high) == ([7], [3.5], [2.0], [5.0])
    assert found.deviation == [0.5]


def test_published_curves_are_complete() -> None:
    for name in ("orfit-fig6", "orfit-fig7"):
        source, curves = published("orfit-published.json", name)
        assert "Min" in source
        for curve in curves.values():
            assert len(curve.steps) == len(curve.values) > 50
            assert (np.diff(curve.steps) > 0).all()
            assert min(curve.values) >= 0


def test_outcome_as_table(figure6: Outcome, figure7: Outcome) -> None:
    console = Console(width=160, record=True)
    console.print(figure6)
    text = console.export_text()
    assert "41.1 ± 1.0" in text
    assert "2 draws of the images, 3 runs each" in text
    lines = figure7.to_markdown().splitlines()
    assert lines[0] == "| method | error | paper | here | range over draws | ± over runs |"
    assert len(lines) == 2 + 9 + 2
    assert lines[5].startswith("| ORFit | train | 0.0 | 0.0 | 0.0 |")
    assert lines[8].startswith("| ORFit | row 11 | 0.0 | 0.0 | 0.0 |")
    assert "2 draws of the images, 3 runs each, seed 0. ORFit: the largest error over" in lines[-1]
    greedy = next(line for line in figure6.to_markdown().splitlines() if "Greedy | row 16" in line)
    assert "| – |" in greedy  # the published curve ends before the last row


def test_outcome_as_json(figure6: Outcome, tmp_path: Path) -> None:
    text = figure6.to_json(tmp_path / "outcome.json")
    assert (tmp_path / "outcome.json").read_text(encoding="utf-8") == text + "\n"
    tree = json.loads(text)
    assert tree["setup"]["digits"]["digit"] == 2
    assert tree["setup"]["seed"] == 0
    first = tree["lines"][0]
    assert (first["method"], first["error"]) == ("ORFit", "test")
    assert_allclose(first["ours"]["mean"], figure6.line("ORFit").ours.mean, atol=1e-3)


def test_outcome_as_csv(figure7: Outcome, tmp_path: Path) -> None:
    figure7.to_csv(tmp_path / "outcome.csv")
    with (tmp_path / "outcome.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == [
        "figure", "method", "error", "step", "mean", "low", "high", "deviation", "published",
    ]  # fmt: skip
    assert {row["figure"] for row in rows} == {"orfit-fig7"}
    for line in figure7.lines:
        own = [row for row in rows if (row["method"], row["error"]) == (line.method, line.error)]
        ours = [row for row in own if row["mean"]]
        assert [int(row["step"]) for row in ours] == line.ours.steps
        for name in ("mean", "low", "high", "deviation"):
            shown = [float(row[name]) for row in ours]
            assert_allclose(shown, getattr(line.ours, name), atol=5.1e-4)
        paper = [(int(row["step"]), float(row["published"])) for row in own if row["published"]]
        there = line.paper
        assert paper == ([] if there is None else list(zip(there.steps, there.values, strict=True)))


def test_invalid_paths_are_rejected(figure6: Outcome, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    with raises(SourceError, where="Outcome.to_json", remedy="Check the folder, its"):
        figure6.to_json(tmp_path / "none" / "a.json")
    with raises(SourceError, where="Outcome.plot", remedy="Check the folder, its"):
        figure6.plot(tmp_path / "none" / "a.svg")
    with raises(ParameterError, where="Outcome.plot", argument="path"):
        figure6.plot(tmp_path / "a.odd")


@pytest.mark.parametrize("suffix", sample(["png", "svg", "pdf"], 1, "format of figure"))
def test_figure_of_outcome(figure7: Outcome, tmp_path: Path, suffix: str) -> None:
    pytest.importorskip("matplotlib")
    figure = figure7.plot(tmp_path / f"figure.{suffix}")
    assert (tmp_path / f"figure.{suffix}").stat().st_size > 5_000
    many, here, one, _ = figure.axes
    assert [axes.get_title(loc="left") for axes in (many, here)] == ["published", "reproduced"]
    assert many.get_xscale() == here.get_xscale() == "log"
    assert "row 11" in one.get_ylabel()


def test_figure_shows_published_and_reproduced_curves(figure6: Outcome) -> None:
    pytest.importorskip("matplotlib")
    paper, ours, paper_alone, ours_alone = figure6.plot().axes
    for axes, error in ((paper, "test"), (paper_alone, "sample")):
        there = {tuple(line.paper.values) for line in figure6.lines if _is(line, error)}
        drawn = {tuple(line.get_ydata()) for line in axes.lines}
        assert there <= drawn
    for axes, error in ((ours, "test"), (ours_alone, "sample")):
        lines = [line for line in figure6.lines if line.error == error]
        drawn = {tuple(line.get_ydata()) for line in axes.lines}
        assert {tuple(line.ours.mean) for line in lines} <= drawn
        assert {(line.ours.low[-1], line.ours.high[-1]) for line in lines} <= drawn  # over draws
        band = axes.collections[0].get_paths()[0].vertices[:, 1].max()
        first = lines[0].ours
        assert band == pytest.approx(max(np.add(first.mean, first.deviation)))
    for axes in (paper_alone, ours_alone):
        dashed = [line for line in axes.lines if list(line.get_xdata()) == [16, 16]]
        assert [line.get_linestyle() for line in dashed] == ["--"]


def test_figure_without_published_curves_has_single_column(images: Images) -> None:
    pytest.importorskip("matplotlib")
    outcome = orfit_figure6(images, m=5, draws=1, runs=1, digits=RotatedDigits(n=8))
    assert len(outcome.plot().axes) == 2


def _is(line: Any, error: str) -> bool:
    return line.error == error and line.paper is not None


def test_figure_requires_matplotlib(figure6: Outcome, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "matplotlib", None)
    with pytest.raises(MissingExtraError, match=r"matplotlib must be installed"):
        figure6.plot()


# -- MNIST ----------------------------------------------------------------------------------------

mnist = pytest.mark.skipif(
    not (Path(os.environ.get("ONEPASS_DATA", "absent")) / "mnist").is_dir(),
    reason="needs MNIST in the folder named by ONEPASS_DATA",
)


@mnist
def test_figure_6_on_mnist() -> None:
    assert (stream.images("mnist").test_labels == 2).sum() == 1032
    outcome = orfit_figure6(draws=4)
    assert 38 <= outcome.line("ORFit").ours.mean[-1] <= 45
    assert 48 <= outcome.line(PRINTED).ours.mean[-1] <= 97
    assert 66 <= outcome.line("One-Step SGD").ours.mean[-1] <= 120
    greedy = outcome.line("Greedy").ours
    angles = 1.8 * np.arange(1, 101)
    assert_allclose(greedy.mean, np.sqrt(180**2 / 12 + (90 - angles) ** 2), atol=2)
    for between in ("ORFit-random", "ORFit-latest"):  # which are close to one another
        order = ("ORFit", between, "One-Step SGD", "Greedy")
        last = [outcome.line(name).ours.mean[-1] for name in order]
        assert last == sorted(last)
    assert outcome.line("ORFit").ours.deviation[-1] < 3
    assert max(outcome.line("ORFit", "learned").ours.high[:10]) < 1e-8
    alone = [outcome.line(name, "sample").ours.mean[-1] for name in ("ORFit", "One-Step SGD")]
    assert alone[0] < alone[1]


@mnist
def test_figure_7_on_mnist() -> None:
    outcome = orfit_figure7(draws=2)
    one_pass, many = outcome.line("ORFit"), outcome.line("SGD, 1000 epochs")
    assert 34 <= one_pass.ours.mean[-1] <= 40
    assert 33 <= many.ours.mean[-1] <= 40
    assert 2 <= outcome.line("SGD, 1000 epochs", "train").ours.mean[-1] <= 5
    assert max(outcome.line("ORFit", "learned").ours.high) < 1e-8
    # Theorem 2: they lead to the same weights, one in 100 steps, the other in 100,000
    assert abs(one_pass.ours.mean[-1] - many.ours.mean[-1]) < 4
