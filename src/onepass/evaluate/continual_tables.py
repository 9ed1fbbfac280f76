"""Tables of a continual evaluation: for a terminal, as Markdown and as LaTeX."""

import numpy as np
from rich import box
from rich.markup import escape
from rich.table import Table as RichTable

from onepass.evaluate.continual_measures import ContinualResults, ContinualScore
from onepass.evaluate.metrics import METRICS
from onepass.evaluate.tables import Column, decimals, worded

__all__ = ["SCENARIOS", "percent", "to_latex", "to_markdown", "to_rich"]

_NONE = "–"
_SHARES = ("accuracy", "macro_f1")
_MEASURES = {  # what is shown: its heading, and whether more of it is better (of accuracies)
    "average": ("{} at the end", True),
    "average_incremental": ("incremental", True),
    "forgetting": ("forgetting", False),
    "backward_transfer": ("backward", True),
    "forward_transfer": ("forward", True),
}
SCENARIOS = {
    "class": "class-incremental",
    "task": "task-incremental",
    "domain": "domain-incremental",
}
_SPECIAL = {c: f"\\{c}" for c in "&%$#_{}"} | {
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    "–": "--", "±": r"$\pm$", "−": "$-$", "≥": r"$\ge$", "≤": r"$\le$", "<": "$<$",
    ">": "$>$", "°": r"$^\circ$", "×": r"$\times$", "²": "$^2$", "…": r"\ldots{}",
    "α": r"$\alpha$", "β": r"$\beta$", "γ": r"$\gamma$", "δ": r"$\delta$", "ε": r"$\epsilon$",
    "λ": r"$\lambda$", "μ": r"$\mu$", "ρ": r"$\rho$", "σ": r"$\sigma$", "τ": r"$\tau$",
}  # fmt: skip


def percent(report: ContinualResults) -> bool:
    """Whether the metric is a share, which is shown in percent."""
    return report.metric in _SHARES


def to_rich(report: ContinualResults) -> RichTable:
    """Measures and costs for a terminal; notes stand below.

    Parameters
    ----------
    report : ContinualResults
        What to show.
    """
    caption = "\n".join([_caption(report), *map(escape, _notes(report))])
    table = RichTable(
        box=box.SIMPLE_HEAD, title=_title(report), caption=caption, title_justify="left",
        caption_justify="left", title_style="bold", caption_style="dim",
    )  # fmt: skip
    columns = _columns(report)
    table.add_column("model", no_wrap=True)
    for column in columns:
        table.add_column(column.heading, justify="right", no_wrap=True)
    for i, name in enumerate(report.scores):
        cells = [f"[bold green]*{c.cells[i]}[/]" if i in c.best else c.cells[i] for c in columns]
        table.add_row(escape(_marked(report, name)), *cells)
    return table


def to_markdown(report: ContinualResults) -> str:
    """The same in Markdown, the best in bold.

    Parameters
    ----------
    report : ContinualResults
        What to show.
    """
    columns = _columns(report)
    lines = [
        f"# {_title(report)}", "",
        "| model | " + " | ".join(column.heading for column in columns) + " |",
        "|:--|" + "--:|" * len(columns),
    ]  # fmt: skip
    for i, name in enumerate(report.scores):
        cells = [f"**{c.cells[i]}**" if i in c.best else c.cells[i] for c in columns]
        label = _marked(report, name).replace("|", r"\|")
        lines.append(f"| {label} | {' | '.join(cells)} |")
    lines += ["", _caption(report).replace("* best", "**bold**: best"), ""]
    lines += [f"- {note}" for note in _notes(report)]
    return "\n".join(lines).rstrip() + "\n"


def to_latex(report: ContinualResults) -> str:
    """The same in LaTeX, for the package booktabs.

    Parameters
    ----------
    report : ContinualResults
        What to show.
    """
    columns = _columns(report)
    lines = [
        f"% {_title(report)}",
        r"\begin{tabular}{l" + "r" * len(columns) + "}",
        r"\toprule",
        " & ".join(["model", *(_tex(column.heading) for column in columns)]) + r" \\",
        r"\midrule",
    ]
    for i, name in enumerate(report.scores):
        cells = [
            rf"\textbf{{{_tex(c.cells[i])}}}" if i in c.best else _tex(c.cells[i]) for c in columns
        ]
        lines.append(" & ".join([_tex(_marked(report, name)), *cells]) + r" \\")
    lines += [r"\bottomrule", r"\end{tabular}"]
    caption = _caption(report).replace("* best", "bold: best")
    lines += [f"% {line}" for line in (caption, *_notes(report))]
    return "\n".join(lines) + "\n"


def _title(report: ContinualResults) -> str:
    seeds = len(report.seeds)
    return (
        f"{report.name}: {SCENARIOS[report.scenario]}, {len(report.tasks)} "
        f"{'task' if len(report.tasks) == 1 else 'tasks'}, {seeds} "
        f"{'seed' if seeds == 1 else 'seeds'}"
    )


def _caption(report: ContinualResults) -> str:
    kind = METRICS[report.task][report.metric]
    parts = ["* best"] if len(report.scores) > 1 else []
    parts.append(f"{kind.label} in %" if percent(report) else kind.label)
    if kind.better == "lower":
        parts.append("lower is better")
    if len(report.seeds) > 1:
        parts.append("mean ± standard deviation over seeds")
    parts.append("forgetting: loss from the best; backward, forward: transfer, + is gain")
    left = [" ".join(n.split()) for n, score in report.scores.items() if not score.complete]
    if left and len(report.scores) > 1:
        parts.append(f"never marked as best, as labels were not learned: {', '.join(left)}")
    return " · ".join(parts)


def _notes(report: ContinualResults) -> list[str]:
    """Which learner cannot work in this setting, and why."""
    said = {name: score.notes for name, score in report.scores.items() if score.notes}
    whole = [f"[{k}] {n}: {'; '.join(notes)}" for k, (n, notes) in enumerate(said.items(), 1)]
    return [" ".join(note.split()) for note in whole]  # errors may have several lines


def _marked(report: ContinualResults, name: str) -> str:
    """A model's name, with the number of its note."""
    noted = [known for known, score in report.scores.items() if score.notes]
    shown = " ".join(name.split())
    return f"{shown} [{noted.index(name) + 1}]" if name in noted else shown


def _columns(report: ContinualResults) -> list[Column]:
    scores = list(report.scores.values())
    label = METRICS[report.task][report.metric].label
    label = label if label.isupper() else label.lower()
    scale = 100.0 if percent(report) else 1.0
    ends = [score.mean("average") for score in scores]
    places = 2 if scale == 100.0 else decimals([v for v in ends if np.isfinite(v)])
    columns = []
    for measure, (heading, more) in _MEASURES.items():
        if measure == "forward_transfer" and report.scenario == "class":
            continue  # nothing is known of classes that have not come
        # transfer and forgetting of errors have had their sign turned
        higher = more if measure not in {"average", "average_incremental"} else scores[0].sign > 0
        means = [scale * score.mean(measure) for score in scores]
        cells = [_cell(s, measure, scale, places, signed="transfer" in measure) for s in scores]
        known = [m for m, s in zip(means, scores, strict=True) if np.isfinite(m) and s.complete]
        best: set[int] = set()
        if known and len(scores) > 1:
            top = (max if higher else min)(known)
            best = {i for i, m in enumerate(means) if m == top and scores[i].complete}
        columns.append(Column(heading.format(label), cells, best))
    return columns + _costs(scores)


def _cell(score: ContinualScore, measure: str, scale: float, places: int, *, signed: bool) -> str:
    mean, deviation = scale * score.mean(measure), scale * score.deviation(measure)
    if np.isnan(mean):
        return _NONE
    sign = "+" if signed and round(mean, places) > 0 else ""
    text = f"{sign}{worded(mean, places)}".replace("-", "−")
    return text if np.isnan(deviation) else f"{text} ± {worded(deviation, places)}"


def _costs(scores: list[ContinualScore]) -> list[Column]:
    """What it took, as far as is known."""
    told = {
        "prototypes": ([s.prototypes for s in scores], 1.0, 0),
        "KiB kept": ([s.nbytes for s in scores], 1.0 / 1024.0, 1),
        "ms to learn a row": ([s.learning for s in scores], 1000.0, 4),
        "ms to answer": ([s.answering for s in scores], 1000.0, 4),
        "rows again": ([s.repeated for s in scores], 1.0, 0),
    }
    columns = []
    for heading, (values, scale, most) in told.items():
        known = [None if value is None else scale * value for value in values]
        places = min(most, max(0, decimals(known) - 1))
        cells = [_NONE if value is None else worded(value, places) for value in known]
        if any(value is not None for value in known):
            columns.append(Column(heading, cells, set()))
    return columns


def _tex(text: str) -> str:
    return "".join(_SPECIAL.get(letter, letter) for letter in text)
