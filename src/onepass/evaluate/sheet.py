"""A report as a table: for a terminal, and for a document."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.table import Table as RichTable

from onepass.evaluate.metrics import METRICS, Metric

if TYPE_CHECKING:
    from onepass.evaluate.report import Report

__all__ = ["decimals", "to_markdown", "to_rich"]

_NONE = "–"


@dataclass(frozen=True)
class _Column:
    """A heading, and a cell for each model; ``best`` are the rows that no other beats."""

    heading: str
    cells: list[str]
    best: set[int]


def to_rich(report: "Report") -> RichTable:
    """The scores as a table for a terminal.

    Parameters
    ----------
    report : Report
        What to show.
    """
    table = RichTable(
        title=_title(report),
        caption=_caption(report),
        title_justify="left",
        caption_justify="left",
        title_style="bold",
        caption_style="dim",
    )
    columns = _columns(report)
    table.add_column("model", no_wrap=True)
    for column in columns:
        table.add_column(column.heading, justify="right", no_wrap=True)
    scores = list(report.scores.items())
    for i, (name, score) in enumerate(scores):
        if score.baseline and i and not scores[i - 1][1].baseline:
            table.add_section()
        cells = [
            f"[bold green]{column.cells[i]}*[/]"
            if i in column.best
            else column.cells[i] + " " * bool(column.best)  # figures under figures
            for column in columns
        ]
        table.add_row(name.replace("[", r"\["), *cells, style="dim" if score.baseline else None)
    return table


def to_markdown(report: "Report") -> str:
    """The scores as a table in Markdown, the best in bold.

    Parameters
    ----------
    report : Report
        What to show.
    """
    columns = _columns(report)
    lines = [
        f"# {_title(report)}",
        "",
        "| model | " + " | ".join(column.heading.replace("\n", " ") for column in columns) + " |",
        "|:--|" + "--:|" * len(columns),
    ]
    for i, (name, score) in enumerate(report.scores.items()):
        cells = [
            f"**{column.cells[i]}**" if i in column.best else column.cells[i] for column in columns
        ]
        label = name.replace("|", r"\|")
        lines.append(f"| {f'*{label}*' if score.baseline else label} | {' | '.join(cells)} |")
    lines += ["", _caption(report).replace("* best", "**bold**: best, *italic*: baseline"), ""]
    return "\n".join(lines)


def _title(report: "Report") -> str:
    what = report.source or "stream"
    of = f" of {report.target}" if report.target else ""
    skipped = f", {report.skipped:,} skipped without an answer" if report.skipped else ""
    ended = ", interrupted" if report.interrupted else ""
    return f"{what}: {report.task}{of}, {report.rows:,} rows learned in one pass{skipped}{ended}"


def _caption(report: "Report") -> str:
    kinds = METRICS[report.task]
    unit = f"the unit of {report.target or 'y'}"
    parts = ["* best"]
    for symbol, words in (("y", unit), ("y²", f"{unit}, squared")):
        labels = [kinds[name].label for name in report.metrics if kinds[name].unit == symbol]
        if labels:
            parts.append(f"{', '.join(labels)} in {words}")
    higher = [kinds[name].label for name in report.metrics if kinds[name].better == "higher"]
    if higher:
        parts.append(f"higher is better: {', '.join(higher)}")
    return " · ".join(parts)


def _columns(report: "Report") -> list[_Column]:
    """All columns but the models' names."""
    scores = list(report.scores.values())
    kinds = METRICS[report.task]
    columns = [_scored(kinds[m], "", [s.overall[m] for s in scores]) for m in report.metrics]
    if report.window is not None:
        over = f"\nlast {min(report.window, report.rows):,}"
        columns += [
            _scored(kinds[m], over, [(s.recent or {}).get(m) for s in scores])
            for m in report.metrics
        ]
    if any(score.seconds is not None for score in scores):
        rates = [report.rows / s.seconds if s.seconds else None for s in scores]
        columns.append(_Column("seconds", _cells([s.seconds for s in scores], ",.2f"), set()))
        columns.append(_Column("rows/s", _cells(rates, ",.0f"), set()))
    if any(score.nbytes is not None for score in scores):
        kib = [None if s.nbytes is None else s.nbytes / 1024 for s in scores]
        columns.append(_Column("memory\nKiB", _cells(kib, ",.1f"), set()))
    return columns


def _scored(kind: type[Metric], over: str, values: list[float | None]) -> _Column:
    cells = _cells(values, f",.{decimals(values)}f")
    known = [value for value in values if value is not None]
    choose: Callable[[list[float]], float] = min if kind.better == "lower" else max
    # of values that look alike in print all are marked
    best = cells[values.index(choose(known))] if known else None
    return _Column(kind.label + over, cells, {i for i, c in enumerate(cells) if c == best})


def _cells(values: list[float | None], form: str) -> list[str]:
    return [_NONE if v is None else format(v, form if abs(v) < 1e9 else ".3e") for v in values]


def decimals(values: list[float | None]) -> int:
    """Decimals that show four figures of a middling value: 2 for 18.62.

    Parameters
    ----------
    values : list of float or None
        What is to be shown.
    """
    sizes = sorted(abs(v) for v in values if v and math.isfinite(v))
    if not sizes:
        return 2
    return min(6, max(0, 3 - math.floor(math.log10(sizes[len(sizes) // 2]))))
