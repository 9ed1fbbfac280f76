"""Continual reports with unusual numbers and names: display, plots and JSON."""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from onepass.errors import ParameterError, SourceError
from onepass.evaluate import ContinualReport
from onepass.evaluate.continual_run import Run
from raising import raises


def made(
    names: list[str], n: int = 3, seeds: int = 1, metric: str = "rmse", **output: Any
) -> ContinualReport:
    """A report whose matrices are random or constant."""
    rng = np.random.default_rng(0)
    value = output.pop("value", None)
    runs = []
    for name in names:
        for seed in range(seeds):
            R = rng.random((n, n)) if value is None else np.full((n, n), value)
            matrix = [[None if np.isnan(v) else float(v) for v in row] for row in R]
            runs.append(Run(name, seed, matrix, matrix[0], list(range(n)), 10, **output))
    tasks = tuple(f"{2 * i}–{2 * i + 1}" for i in range(n))
    task = "regression" if metric == "rmse" else "classification"
    return ContinualReport("odd", "domain", task, metric, tasks, tasks, tuple(runs))


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("seeds", [1, 2])
def test_nan_and_infinity_are_displayed(value: float, seeds: int) -> None:
    pytest.importorskip("matplotlib")
    report = made(["a", "b"], seeds=seeds, value=value)
    assert np.isnan(report["a"].forgetting)
    assert ContinualReport.from_json(report.to_json()) == report
    assert len(report.to_csv(of="matrix").splitlines()) == 1 + 2 * seeds * 4 * 3
    report.to_latex()
    report.plot()
    report.plot_matrix()


def test_plots_fit_long_names_and_many_tasks() -> None:
    pytest.importorskip("matplotlib")
    names = ["RLSClassifier on 4000 random ReLU features", "a_$name$_" + 60 * "x", "SGD"]
    report = made(names, 15, metric="accuracy")
    figure = report.plot()
    figure.draw_without_rendering()
    assert figure.axes[0].get_position().width > 0.5
    legend = figure.legends[0].get_texts()
    assert not any(text.get_parse_math() for text in legend)
    figure = report.plot_matrix()
    figure.draw_without_rendering()
    for axes in figure.axes[:3]:
        boxes = [label.get_window_extent() for label in axes.get_xticklabels()]
        assert all(a.x1 < b.x0 for a, b in pairwise(boxes))
    first, second = (axes.get_title(loc="left") for axes in figure.axes[:2])
    assert max(map(len, [*first.splitlines(), *second.splitlines()])) <= 34


def test_multiline_errors_become_single_line_notes() -> None:
    report = made(["two\nlines", "λ"], stopped="1: first\nsecond")
    for text in (report.to_markdown(), report.to_latex()):
        assert "two lines [1]" in text
        assert "stopped at 1: first second" in text
    assert r"$\lambda$" in report.to_latex()
    assert "* best" not in report.to_latex()
    assert "* best" not in str(made(["alone"], 1))
    assert ", 1 task, 1 seed" in str(made(["alone"], 1))


def test_compare_has_no_p_value_without_variance() -> None:
    report = made(["a", "b"], seeds=3)
    same = [report.runs[0].matrix, report.runs[3].matrix]
    fixed = [Run(r.model, r.seed, same[r.model == "b"], r.before, r.when, 10) for r in report.runs]
    output = ContinualReport(
        *[getattr(report, k) for k in report.__match_args__[:-1]], tuple(fixed)
    )
    pair = output.compare()[0]
    assert pair["difference"] != 0.0
    assert (pair["t"], pair["p"], pair["p_holm"]) == (None, None, None)


@pytest.mark.parametrize(
    "changed",
    [{"metric": "accuracy"}, {"scenario": "x"}, {"task": "x"}, {"tasks": ["1"]}, {"runs": []}],
)
def test_altered_reports_are_refused(changed: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    path.write_text(json.dumps({**json.loads(made(["a"]).to_json()), **changed}))
    with raises(SourceError, remedy="Write it again with"):
        ContinualReport.from_json(path)
    with raises(SourceError, remedy="Write it again with"):
        ContinualReport.from_json('{"runs":' * 100_000)


def test_errors_name_the_report_class() -> None:
    with raises(ParameterError, where="ContinualReport.to_frame", argument="library"):
        made(["a"]).to_frame("pandaz")  # type: ignore[arg-type]
