"""The experiment ``continual`` on synthetic images: runs, storage, resumption and files."""

import csv
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import onepass as op
from onepass.cli import main
from onepass.errors import ParameterError, SourceError
from onepass.stream import Images
from onepass_experiments import ContinualOutcome, continual
from onepass_experiments.continual import _selected
from onepass_experiments.continual_learners import NETWORKS, STREAMS, TITLES, settings_of
from raising import raises

QUICK = ["NCM", "ART-IPCA", "RLS-pixels"]


def _pictures() -> tuple[Any, Any, Any, Any]:
    """Return training and test images with labels."""
    rng = np.random.default_rng(0)
    labels = np.tile(np.arange(10, dtype=np.uint8), 30)
    pictures = rng.integers(0, 120, (300, 28, 28)).astype(np.uint8)
    for picture, label in zip(pictures, labels, strict=True):
        picture[4 + 2 * label : 7 + 2 * label, 6:18] = 220
    return pictures[:200], labels[:200], pictures[200:], labels[200:]


@pytest.fixture(scope="module")
def data() -> dict[str, Any]:
    """Ten classes of images, a bar at the position of the class with noise; and a two-joint arm."""
    known = Images(*_pictures())
    rng = np.random.default_rng(1)
    X = rng.uniform(-2.0, 2.0, (400, 2))
    arm = X, np.sin(X[:, 0]) + np.cos(X[:, 0] + X[:, 1])
    return {"mnist": known, "fashion-mnist": known, "kin40k": arm}


@pytest.fixture(scope="module")
def outcome(data: dict[str, Any]) -> ContinualOutcome:
    ticks = iter(range(10**6))
    streams = ["split-mnist", "rotated-mnist", "kin40k"]
    return continual(
        data, streams=streams, methods=[*QUICK, "RLS-Fourier"], draws=2, scale=0.001,
        clock=lambda: float(next(ticks)),
    )  # fmt: skip


def test_each_stream_has_its_learners(outcome: ContinualOutcome) -> None:
    assert list(outcome.reports) == ["split-mnist", "rotated-mnist", "kin40k"]
    assert list(outcome.reports["split-mnist"].scores) == ["rls-pixels", "art-ipca", "ncm"]
    assert list(outcome.reports["rotated-mnist"].scores) == ["rls-pixels", "ncm"]
    assert outcome.reports["kin40k"].metric == "rmse"
    for name, report in outcome.reports.items():
        assert len(report.tasks) == STREAMS[name].tasks
        assert all(one.repeated == 0 for one in report.scores.values())
    assert outcome.setup["draws"] == dict.fromkeys(outcome.reports, 2)


def test_settings_are_reported_for_each_learner(outcome: ContinualOutcome) -> None:
    assert outcome.settings["split-mnist"]["rls-pixels"] == "RLSClassifier(ridge=1.0)"
    settings = settings_of(STREAMS["split-mnist"].learners)
    assert settings["icarl"].startswith("ICaRL(")
    assert "capacity=2000" in settings["icarl"]
    assert "RandomConvolution(" in settings["rls-filters"]
    assert set(settings) | {"rls-fourier", "sgd-fourier"} == set(TITLES)


def test_the_table_compares_with_the_first_of_the_stream(outcome: ContinualOutcome) -> None:
    assert outcome.p_value("split-mnist", "rls-pixels") is None
    assert outcome.p_value("split-mnist", "ncm") is not None or (
        np.ptp(outcome.reports["split-mnist"]["ncm"].values("average")) == 0
    )
    rows = list(outcome._rows())
    assert [row[:2] for row in rows[:2]] == [
        ["Split MNIST", "RLS-pixels"],
        ["Split MNIST", "ART-IPCA"],
    ]
    assert all(len(row) == len(outcome.columns) for row in rows)


def test_published_numbers_are_shown(outcome: ContinualOutcome) -> None:
    assert (
        outcome.published().count("\n") == 2
    )  # published numbers apply to the full number of rows
    some = continual(
        {"mnist": Images(*_pictures())}, streams=["split-mnist"], methods=["ART-IPCA-tasks"],
        draws=1, scale=0.001,
    )  # fmt: skip
    whole = replace(some, setup={**some.setup, "scale": 1.0})
    row = whole.published().splitlines()[2]
    assert row.startswith("| Split MNIST | ART-IPCA-tasks | 94.03 ± 0.26 | ")


def test_save_writes_all_formats(outcome: ContinualOutcome, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    paths = outcome.save(tmp_path)
    assert [path.name for path in paths] == [
        f"continual-results{suffix}" for suffix in (".json", ".csv", ".md", ".png")
    ]
    tree = json.loads(paths[0].read_text())
    assert tree["reports"]["kin40k"]["tasks"]
    assert tree["setup"]["scale"] == 0.001
    assert ContinualOutcome.from_json(paths[0]).reports == outcome.reports
    with paths[1].open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 2 * (3 + 2 + 1)
    assert float(rows[0]["average"]) == pytest.approx(
        outcome.reports["split-mnist"]["rls-pixels"].values("average")[0], abs=1e-5
    )
    page = paths[2].read_text()
    assert "## Rotated MNIST" in page
    command = (
        "onepass reproduce continual --streams split-mnist,rotated-mnist,kin40k "
        "--methods RLS-Fourier,RLS-pixels,ART-IPCA,NCM --draws 2 --scale 0.001"
    )
    assert f"```bash\n{command}\n```" in page
    assert "2 seeds, 0.001 of the rows." in page
    assert "- NCM: `NearestClassMean()` (split-mnist, rotated-mnist)" in page
    assert (tmp_path / "kin40k" / "continual-curves.png").exists()


def test_an_interrupted_experiment_resumes_with_the_same_result(
    data: dict[str, Any], tmp_path: Path
) -> None:
    given: dict[str, Any] = {
        "streams": ["split-mnist", "split-fashion-mnist"], "methods": QUICK, "draws": 2,
        "scale": 0.001, "path": tmp_path,
    }  # fmt: skip

    def stop(done: int, of: int) -> None:
        assert of == 2 * 3 * 2 * 5
        if done > 40:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        continual(data, **given, progress=stop)
    saved = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.json")}
    assert len(saved) == 8
    steps: list[int] = []
    again = continual(data, **given, progress=lambda done, _: steps.append(done))
    assert steps[0] == 30
    assert steps[-1] == 60
    assert {path: path.stat().st_mtime_ns for path in saved} == saved
    whole = continual(data, **{**given, "path": None})
    for name, report in whole.reports.items():
        for run, other in zip(report.runs, again.reports[name].runs, strict=True):
            assert run.matrix == other.matrix
    with raises(ParameterError, argument="path"):
        continual(data, **{**given, "scale": 0.01})


def test_networks_run(data: dict[str, Any]) -> None:
    pytest.importorskip("torch")
    found = continual(
        data,
        streams=["split-mnist"],
        methods=[TITLES[name] for name in NETWORKS["split"]],
        draws=1,
        scale=0.001,
    )
    scores = found.reports["split-mnist"].scores
    assert list(scores) == [key for key in TITLES if key in NETWORKS["split"]]
    assert all(run.stopped is None for one in scores.values() for run in one.runs)
    assert "known to forget" in found.to_markdown()


def test_invalid_names_and_numbers_are_rejected(data: dict[str, Any]) -> None:
    for given in ({"draws": 0}, {"processes": 0}, {"scale": 2.0}, {"scale": 0.0}):
        with raises(ParameterError, where="continual", argument=next(iter(given))):
            continual(data, **given)  # type: ignore[arg-type]
    with raises(ParameterError, argument="streams", got="'splt-mnist'", remedy="Did you mean"):
        continual(data, streams=["splt-mnist"])
    with raises(ParameterError, argument="methods"):
        continual(data, streams=["kin40k"], methods=["EWC"])


@pytest.mark.parametrize(
    ("given", "fields"),
    [
        ({"kin": 3}, {"argument": "data", "got": "'kin' with a int"}),
        (
            {"mnist": (np.zeros((3, 784)), np.zeros(3))},
            {"argument": "data", "got": "'mnist' with a tuple"},
        ),
        ({"kin40k": np.zeros((3, 8))}, {"argument": "data", "got": "'kin40k' with a ndarray"}),
        (
            {"kin40k": (np.zeros((3, 8)), np.zeros(2))},
            {"argument": "data", "got": "'kin40k' with a tuple"},
        ),
    ],
)
def test_invalid_data_are_rejected(given: dict[str, Any], fields: dict[str, Any]) -> None:
    with raises(ParameterError, **fields):
        continual(given, streams=["kin40k"], draws=1)


def test_invalid_paths_are_rejected(outcome: ContinualOutcome, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(SourceError, match=r"ContinualOutcome\.save: .*file"):
        outcome.save(file)


def test_the_command_stores_runs_and_writes_the_page(
    data: dict[str, Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:  # fmt: skip
    pytest.importorskip("matplotlib")
    # the function has the module's name
    monkeypatch.setattr(sys.modules["onepass_experiments.continual"], "load_data", data.__getitem__)
    monkeypatch.chdir(tmp_path)
    arguments = [
        "reproduce",
        "continual",
        "--streams",
        "split-mnist",
        "--methods",
        "NCM,RLS-pixels",
    ]
    arguments += ["--draws", "1", "--scale", "0.001", "--processes", "1"]
    assert main(arguments) == 0
    output = capsys.readouterr()
    assert "Finished runs are stored in runs/continual/runs" in output.err
    assert "NCM" in output.out
    assert Path("runs/continual/continual-results.md").exists()
    assert len(list(Path("runs/continual/runs/split-mnist").glob("*.json"))) == 2
    assert main([*arguments[:3], "splt-mnist"]) == 2
    assert "split-mnist" in capsys.readouterr().err


def test_rls_on_kin40k_equals_ridge_regression_on_all_rows(data: dict[str, Any]) -> None:
    stream = STREAMS["kin40k"]
    tasks = stream.make(data["kin40k"], 1.0, 0)
    ours = stream.learners["rls-fourier"](0)
    for task in tasks:
        ours.partial_fit(task.X, task.y)
    features = ours.features_[0]
    X, y = (np.concatenate(part) for part in zip(*((t.X, t.y) for t in tasks), strict=True))
    order = np.random.default_rng(0).permutation(len(y))
    batch = op.RLSRegressor(ridge=1e-4).fit(features.transform(X)[order], y[order])
    tests = np.concatenate([task.X_test for task in tasks])
    np.testing.assert_allclose(
        ours.predict(tests), batch.predict(features.transform(tests)), rtol=1e-5, atol=1e-6
    )


def test_methods_are_named_as_in_tables() -> None:
    named = list(TITLES.values())
    assert _selected({"streams": None, "methods": named})["methods"] == list(TITLES)
