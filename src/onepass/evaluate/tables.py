"""Tables of a prequential evaluation: for a terminal, as Markdown, HTML and plain text."""

import html
import io
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rich import box
from rich.console import Console, RenderableType
from rich.markup import escape
from rich.table import Table as RichTable

from onepass.evaluate.metrics import METRICS, Metric
from onepass.evaluate.score import Results

__all__ = ["Column", "decimals", "plain", "to_html", "to_markdown", "to_rich", "to_text", "worded"]

_WIDEST = 10_000  # columns of plain text, at most
_NONE = "–"


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Parameters
    ----------
    heading : str
    cells : list of str
        One for each model.
    best : set of int
        The models that no other beats.
    """

    heading: str
    cells: list[str]
    best: set[int]


def to_rich(report: Results) -> RichTable:
    """The scores as a table for a terminal; those over the last rows stand below.

    Parameters
    ----------
    report : Results
        What to show.
    """
    table = RichTable(
        box=box.SIMPLE_HEAD,
        title=_title(report),
        caption=_caption(report),
        title_justify="left",
        caption_justify="left",
        title_style="bold",
        caption_style="dim",
    )
    overall, recent = _overall(report), _recent(report)
    costs = _drift(report) + _costs(report)
    table.add_column("model", no_wrap=True)
    for column in overall + costs:
        table.add_column(column.heading, justify="right", no_wrap=True)
    _add_rows(table, report, overall + costs)
    if recent:
        table.add_section()
        table.add_row(f"last {_window(report)} rows", style="italic")
        _add_rows(table, report, recent)
    return table


def _add_rows(table: RichTable, report: Results, columns: list[Column]) -> None:
    """A row for each model, the best of each column marked."""
    for i, (name, score) in enumerate(report.scores.items()):
        cells = [
            # the mark stands in front, so that figures stand under figures
            f"[bold green]*{cell}[/]" if i in column.best else cell
            for column in columns
            for cell in [column.cells[i]]
        ]
        table.add_row(escape(name), *cells, style="dim" if score.baseline else None)


def to_markdown(report: Results) -> str:
    """The scores as a table in Markdown, the best in bold.

    Parameters
    ----------
    report : Results
        What to show.
    """
    columns = _overall(report) + _recent(report) + _drift(report) + _costs(report)
    lines = [
        f"# {_title(report)}",
        "",
        "| model | " + " | ".join(column.heading for column in columns) + " |",
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


def _title(report: Results) -> str:
    what = report.source or "stream"
    of = f" of {report.target}" if report.target else ""
    skipped = f", {report.skipped:,} skipped" if report.skipped else ""
    ended = ", interrupted" if report.interrupted else ""
    if report.resumed:
        shown = " and ".join(f"{rows:,}" for rows in report.resumed[-2:])
        ended += f", resumed after {'… ' if report.resumed[2:] else ''}{shown}"
    noun = "row" if report.rows == 1 else "rows"
    return f"{what}: {report.task}{of}, {report.rows:,} {noun} learned in one pass{skipped}{ended}"


def _caption(report: Results) -> str:
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
    if any(score.nbytes is not None for score in report.scores.values()):
        parts.append("KiB of all that was learned")
    return " · ".join([*parts, *_late(report), *_ahead(report)])


def _late(report: Results) -> list[str]:
    """How late answers came, and what became of those that had not come at the end."""
    if report.delay is None:
        return []
    one = report.waiting == 1
    known = f"{report.delay:,} rows later" if isinstance(report.delay, int) else "later"
    by = "" if isinstance(report.delay, int) else f", as {escape(report.delay)} says"
    then = "was learned at the end" if one else "were learned at the end"
    if report.interrupted:
        then = "still waits for its own" if one else "still wait for them"
    return [f"answers came {known}{by}; {report.waiting:,} {'row' if one else 'rows'} {then}"]


def _ahead(report: Results) -> list[str]:
    """The baseline that no model is ahead of by the first metric, if there is one."""
    metric = report.metrics[0]
    sign = 1 if METRICS[report.task][metric].better == "lower" else -1
    known = {n: s.overall[metric] for n, s in report.scores.items()}
    losses = {name: sign * value for name, value in known.items() if value is not None}
    models = [loss for name, loss in losses.items() if not report.scores[name].baseline]
    least = [name for name in losses if report.scores[name].baseline]
    best = min(least, key=losses.__getitem__, default=None)
    if best is None or not models or min(models) < losses[best]:
        return []
    return [f"no model is ahead of {escape(best)}"]


def _window(report: Results) -> str:
    return f"{min(report.window or 0, report.rows):,}"


def _overall(report: Results) -> list[Column]:
    """The metrics over all rows."""
    kinds, scores = METRICS[report.task], report.scores.values()
    return [_scored(kinds[m], "", [s.overall[m] for s in scores]) for m in report.metrics]


def _recent(report: Results) -> list[Column]:
    """The metrics over the last rows, if a window was asked for."""
    if report.window is None:
        return []
    kinds, scores = METRICS[report.task], report.scores.values()
    over = f", last {_window(report)}"
    return [
        _scored(kinds[m], over, [(s.recent or {}).get(m) for s in scores]) for m in report.metrics
    ]


def _drift(report: Results) -> list[Column]:
    """How often detectors found drift in the errors, and warned of it, if any watched."""
    said = [score.drift or {} for score in report.scores.values()]
    columns = []
    for name in dict.fromkeys(name for drift in said for name in drift):
        alarms = [drift[name].alarms.count if name in drift else None for drift in said]
        columns.append(Column(f"{name} alarms", _cells(alarms, 0), set()))
        warned = [drift[name].warnings if name in drift else None for drift in said]
        if any(warned):
            counts = [None if marks is None else marks.count for marks in warned]
            columns.append(Column(f"{name} warnings", _cells(counts, 0), set()))
    return columns


def _costs(report: Results) -> list[Column]:
    """Time and memory, as far as they were measured."""
    scores, columns = report.scores.values(), []
    if any(score.seconds is not None for score in scores):
        rates = [report.rows / s.seconds if s.seconds else None for s in scores]
        columns.append(Column("seconds", _cells([s.seconds for s in scores], 2), set()))
        columns.append(Column("rows/s", _cells(rates, 0), set()))
    if any(score.nbytes is not None for score in scores):
        kib = [None if s.nbytes is None else s.nbytes / 1024 for s in scores]
        columns.append(Column("KiB", _cells(kib, 1), set()))
    return columns


def to_text(report: Results) -> str:
    """The table as plain text."""
    return plain(to_rich(report))


def plain(table: RenderableType) -> str:
    """A table as plain text, as wide as it wants to be: nothing is cut off.

    Parameters
    ----------
    table : table or what else rich renders
    """
    console = Console(file=io.StringIO(), width=_WIDEST, highlight=False, emoji=False)
    console.width = max(1, console.measure(table).maximum)
    with console.capture() as shown:
        console.print(table)
    return "".join(f"{line.rstrip()}\n" for line in shown.get().splitlines())


def to_html(report: Results) -> str:
    """The table as it stands in a notebook."""
    return f"<pre>{html.escape(to_text(report))}</pre>"


def _scored(kind: type[Metric], over: str, values: list[float | None]) -> Column:
    cells = _cells(values, decimals(values))
    known = [value for value in values if value is not None]
    choose: Callable[[list[float]], float] = min if kind.better == "lower" else max
    # of values that look alike in print all are marked
    best = cells[values.index(choose(known))] if known else None
    return Column(kind.label + over, cells, {i for i, c in enumerate(cells) if c == best})


def _cells(values: Sequence[float | None], places: int) -> list[str]:
    return [_NONE if value is None else worded(value, places) for value in values]


def worded(value: float, places: int) -> str:
    """A number as it is shown: thousands apart, no minus before zero, extremes in powers.

    Parameters
    ----------
    value : float
        The number.
    places : int
        Decimals.
    """
    if abs(value) >= 1e9 or 0 < abs(value) < 0.5e-6:
        return f"{value:.1e}"
    return f"{round(value, places) + 0.0:,.{places}f}"  # -0.0 + 0.0 is 0.0


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
    return min(6, max(0, 3 - math.floor(math.log10(sizes[(len(sizes) - 1) // 2]))))
