"""Reports: JSON round trip, tables, data frames, plots and saved folders."""

import csv
import dataclasses
import json
from io import StringIO
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from onepass.errors import MissingExtraError, OnepassError, ParameterError, SourceError
from onepass.evaluate import Curve, LastValue, Report, Score, prequential
from onepass.learners import RLSRegressor
from raising import raises


def _blocks(n: int = 4000) -> Any:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 3))
    y = 20 + X.sum(axis=1) * 10 + rng.normal(size=n)
    time = np.datetime64("2013-01-01") + np.arange(n) * np.timedelta64(1, "h")
    for rows in np.array_split(np.arange(n), 5):
        yield SimpleNamespace(X=X[rows], y=y[rows], time=time[rows], skipped=2)


class _Stream:
    name = "loads"
    target = "load"

    def __iter__(self) -> Any:
        return _blocks()


@pytest.fixture(scope="module")
def report() -> Report:
    ticks = iter(range(10_000))
    return prequential(
        {"rls": RLSRegressor(), "rls | half": RLSRegressor(ridge=1e3)},
        _Stream(),
        window=500,
        clock=lambda: next(ticks) / 10,
    )


def _odd() -> Report:
    """A report with infinite, missing and very large values."""
    inf = float("inf")
    score = Score(
        "L()",
        baseline=False,
        overall={"mae": inf, "r2": -inf},
        recent=None,
        seconds=None,
        nbytes=None,
    )
    plain = Score(
        "M()",
        baseline=False,
        overall={"mae": 1e12, "r2": None},
        recent=None,
        seconds=None,
        nbytes=None,
    )
    curve = Curve(
        [1, 2],
        None,
        {
            "a [b]": {"mae": [1.0, inf], "r2": [None, -inf]},
            "m": {"mae": [2.0, 1e12], "r2": [None, None]},
        },
    )
    return Report(
        None,
        None,
        "regression",
        ("mae", "r2"),
        None,
        2,
        0,
        interrupted=True,
        scores={"a [b]": score, "m": plain},
        overall=curve,
        recent=None,
    )


def _text(report: Report, width: int = 80) -> str:
    console = Console(width=width, record=True, file=StringIO())
    console.print(report)
    return console.export_text()


# -- JSON -----------------------------------------------------------------------------------------


def test_report_json_round_trip(report: Report, tmp_path: Path) -> None:
    for one in (report, _odd()):
        text = one.to_json(tmp_path / "report.json")
        assert Report.from_json(text) == one
        assert Report.from_json(tmp_path / "report.json") == one
        assert Report.from_json(str(tmp_path / "report.json")) == one
        json.loads(text, parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))
    assert Report.from_json(_odd().to_json()) != report


def test_invalid_reports_are_refused(report: Report, tmp_path: Path) -> None:
    tree = report.to_dict()
    wrong: list[Any] = [
        "{",
        "{}",
        json.dumps(tree | {"format": 2}),
        json.dumps({name: part for name, part in tree.items() if name != "rows"}),
        json.dumps(tree | {"scores": 3}),
        tmp_path / "none.json",
        tmp_path,
    ]
    for source in wrong:
        with pytest.raises(SourceError) as refused:
            Report.from_json(source)
        assert refused.value.where == "Report.from_json"


# -- tables ---------------------------------------------------------------------------------------


def test_table_contains_the_scores(report: Report) -> None:
    text = _text(report)
    score = report.scores["rls"].overall
    row = next(line for line in text.splitlines() if line.strip().startswith("rls "))
    assert f"*{score['mae']:.3f}" in row
    assert f"*{score['r2']:.4f}" in row
    assert "loads: regression of load, 4,000 rows learned in one pass, 10 skipped" in text
    assert "last 500 rows" in text
    assert "8,000" in row  # 4000 rows in 5 ticks of 0.1 s
    assert "…" not in text
    assert "in the unit of load" in text


def test_decimal_points_are_aligned(report: Report) -> None:
    rows = [
        line for line in _text(report).splitlines() if line.strip().startswith(("rls", "last v"))
    ]
    dots = [line.index(".") for line in rows]
    assert len(rows) == 6
    assert len(set(dots)) == 1


def test_markdown_contains_the_scores(report: Report) -> None:
    text = report.to_markdown()
    assert f"**{report.scores['rls'].overall['mae']:.3f}**" in text
    assert r"| rls \| half |" in text
    assert "| *last value* |" in text
    widths = {line.replace(r"\|", "").count("|") for line in text.splitlines() if "|" in line}
    assert len(widths) == 1


def test_infinite_and_missing_values_are_displayed() -> None:
    text = _text(_odd())
    assert "interrupted" in text
    assert "a [b]" in text
    assert "inf" in text
    assert "1.0e+12" in text
    assert "–" in text
    assert "seconds" not in text


# -- frames ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow", None])
def test_data_frames_of_all_libraries(report: Report, library: Any) -> None:
    scores, curve = report.to_frame(library), report.to_frame(library, of="curve")
    assert type(scores).__module__.partition(".")[0] == (library or "pandas")
    assert scores.shape == (4, 2 + 3 + 3 + 2)
    assert report.recent is not None
    assert curve.shape == ((len(report.overall) + len(report.recent)) * 4 * 3, 6)
    assert scores["mae"][0].__float__() if library != "pyarrow" else scores["mae"][0].as_py()


def test_invalid_data_frame_requests_are_refused(
    report: Report, monkeypatch: pytest.MonkeyPatch
) -> None:
    invalid: list[tuple[str, dict[str, Any]]] = [
        ("library", {"library": "arrow"}),
        ("of", {"of": "all"}),
    ]
    for argument, given in invalid:
        with pytest.raises(ParameterError) as refused:
            report.to_frame(**given)
        assert refused.value.argument == argument
        assert refused.value.got == repr(given[argument])

    def missing(name: str) -> Any:
        raise ImportError(name)

    monkeypatch.setattr("onepass.evaluate.tables.import_module", missing)
    with pytest.raises(MissingExtraError, match="polars must be installed"):
        report.to_frame("polars")


# -- figures --------------------------------------------------------------------------------------


def test_plot_has_one_line_per_model_and_window(report: Report) -> None:
    axes = report.plot().axes[0]
    assert len(axes.lines) == 4 + 2
    dashed = [line for line in axes.lines if line.get_linestyle() == "--"]
    assert len(dashed) == 2
    assert {line.get_color() for line in dashed} == {"#767676"}
    words = _words(report.plot())
    assert len(words) == 4
    assert any(word.startswith("rls ") and "↑" not in word for word in words)
    assert axes.get_ylabel() == "MAE of load, so far"
    assert report.plot(metric="r2").axes[0].get_ylabel() == "R² of load, so far"


@pytest.mark.parametrize("suffix", ["svg", "pdf"])  # a saved folder contains a PNG
def test_plot_file_formats(report: Report, tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"curve.{suffix}"
    report.plot(path)
    heads = {"svg": b"<?xml", "pdf": b"%PDF"}
    assert path.read_bytes().startswith(heads[suffix])


def test_plot_labels_do_not_overlap(report: Report) -> None:
    models = {f"model {i}": LastValue() for i in range(9)}
    crowd = prequential(models, _Stream(), "mae", baselines=False)
    for one in (report, crowd):
        figure = one.plot()
        figure.draw_without_rendering()
        boxes = [text.get_window_extent() for text in figure.legends[0].get_texts()]
        letters = 7.5 / 72 * figure.dpi
        assert all(above.y0 - below.y0 > letters for above, below in pairwise(boxes))
        assert boxes[-1].y0 >= 0
        assert boxes[0].y1 <= figure.bbox.height
        assert boxes[0].x0 > figure.axes[0].get_window_extent().x1


def test_plot_scale_ignores_first_rows_and_diverging_models() -> None:
    rows = list(range(100, 10_100, 100))
    steady = [1000.0, *[10.0 + 0.01 * i for i in range(99)]]
    astray = [10.0**i for i in range(100)]
    scores = {
        name: Score(
            "L()",
            baseline=False,
            overall={"mae": curve[-1]},
            recent=None,
            seconds=None,
            nbytes=None,
        )
        for name, curve in (("steady", steady), ("astray", astray))
    }
    points = {"steady": {"mae": steady}, "astray": {"mae": astray}}
    report = Report(
        None,
        None,
        "regression",
        ("mae",),
        None,
        10_000,
        0,
        interrupted=False,
        scores=scores,
        overall=Curve(rows, None, points),
        recent=None,
    )
    figure = report.plot()
    low, high = figure.axes[0].get_ylim()
    assert 9 < low < 10.1
    assert 10.9 < high < 12
    assert "astray 1.0e+99 ↑" in _words(figure)


def test_plot_leaves_matplotlib_settings_unchanged(report: Report) -> None:
    import matplotlib as mpl

    before = dict(mpl.rcParams)
    report.plot()
    assert dict(mpl.rcParams) == before


def test_infinite_and_missing_values_are_plotted() -> None:
    _odd().plot()
    single = prequential(LastValue(), ([[1.0]], [1.0]))
    for metric in single.metrics:
        single.plot(metric=metric)
    labels = prequential({}, ([[1.0]] * 5, list("abcab")))
    assert labels.plot().axes[0].get_ylabel() == "Accuracy, so far"


def test_plot_refuses_unknown_metrics_and_empty_reports(report: Report) -> None:
    with raises(ParameterError, argument="metric", got="'mea'"):
        report.plot(metric="mea")
    with raises(OnepassError, got="0"):
        prequential(LastValue(), iter([])).plot()


def _words(figure: Any) -> list[str]:
    return [text.get_text() for text in figure.legends[0].get_texts()]


def _in_blocks(time: Any) -> Report:
    blocks = [
        SimpleNamespace(X=np.ones((50, 1)), y=np.arange(50.0), time=time[i : i + 50])
        for i in range(0, 200, 50)
    ]
    return prequential(LastValue(), blocks, baselines=False)


@pytest.mark.parametrize(
    ("time", "label"),
    [
        (np.array([f"quarter {i}" for i in range(200)], dtype=object), "rows learned"),
        (np.full(200, 7.0), "rows learned"),
        (np.arange(200.0)[::-1], "rows learned"),
        (np.arange(200.0), "time"),
        (np.datetime64("2020-01-01") + np.arange(200), ""),
    ],
    ids=["text", "one moment", "backwards", "numbers", "dates"],
)
def test_time_axis_requires_increasing_times(time: Any, label: str, tmp_path: Path) -> None:
    figure = _in_blocks(time).plot(tmp_path / "curve.png")
    assert figure.axes[0].get_xlabel() == label


def test_model_without_values_is_named_in_the_legend() -> None:
    report = prequential(LastValue(), ([[1.0]], [1.0]), ["mae", "r2"], baselines=False)
    assert _words(report.plot(metric="r2")) == ["LastValue –"]
    assert report.plot(metric="r2").axes[0].get_title(loc="left") == "1 row, one pass"


def test_single_point_is_drawn_with_a_marker() -> None:
    report = prequential(LastValue(), ([[1.0]] * 2, [1.0, 2.0]), "r2", baselines=False)
    (line,) = report.plot().axes[0].lines
    assert line.get_marker() == "."


def test_very_small_values_are_displayed() -> None:
    report = prequential(LastValue(), ([[1.0]] * 2, [1e-12, 1e-12]), "mae", baselines=False)
    assert _words(report.plot()) == ["LastValue 5.0e−13"]


def test_names_with_dollar_signs_are_not_formulas(tmp_path: Path) -> None:
    report = prequential({"$x_$": LastValue()}, ([[1.0]] * 2, [1.0, 2.0]), baselines=False)
    named = dataclasses.replace(report, source="$_$", target="$^$")
    assert _words(named.plot(tmp_path / "curve.svg")) == ["$x_$ 1.000"]


@pytest.mark.parametrize("name", ["curve.xyz", "curve", "none/curve.png"])
def test_invalid_plot_paths_are_refused(report: Report, name: str, tmp_path: Path) -> None:
    with pytest.raises(OnepassError, match=r"Report.plot: .* must .* got"):
        report.plot(tmp_path / name)


def test_save_without_matplotlib_omits_the_figure_only(
    report: Report, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "matplotlib", None)
    with raises(MissingExtraError, where="Report.plot", remedy="onepass[plot]"):
        report.save(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"report.json", "report.md", "curve.csv"}


# -- folders --------------------------------------------------------------------------------------


def test_save_writes_report_table_and_curves(report: Report, tmp_path: Path) -> None:
    paths = report.save(tmp_path / "new" / "folder")
    assert [path.name for path in paths] == ["report.json", "report.md", "curve.csv", "curve.png"]
    assert all(path.stat().st_size for path in paths)
    assert paths[3].read_bytes().startswith(b"\x89PNG")
    assert Report.from_json(paths[0]) == report
    with paths[2].open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert report.recent is not None
    assert len(rows) == (len(report.overall) + len(report.recent)) * 4 * 3
    last = [row for row in rows if row["over"] == "all" and row["model"] == "rls"][-1]
    assert float(last["value"]) == report.scores["rls"].overall["r2"]
    assert last["time"] == report.overall.times[-1]  # type: ignore[index]
    assert paths[2].read_text(encoding="utf-8") == report.to_csv()
    empty = prequential(LastValue(), iter([])).save(tmp_path)
    assert [path.name for path in empty] == ["report.json", "report.md"]


def test_unwritable_report_paths_are_refused(report: Report, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for write in (report.save, report.to_json):
        with pytest.raises(SourceError, match=r"Report.* must be a file that can be written, got"):
            write(tmp_path / "file" / "below")
