"""Tables of reports for terminals, plain text, Markdown and LaTeX; and formatting of numbers.

A report defines its table once, as columns of text. Records, which are dicts of plain values with
the same keys, are converted to frames and CSV.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from rich import box
from rich.console import Console, RenderableType
from rich.table import Table as RichTable
from rich.text import Text

from onepass.errors import MissingExtraError
from onepass.evaluate.choice import check_choice

MISSING = "–"
_WIDEST = 10_000  # maximum width of plain text, in characters
_SPECIAL = {c: f"\\{c}" for c in "&%$#_{}"} | {
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    "–": "--", "±": r"$\pm$", "−": "$-$", "≥": r"$\ge$", "≤": r"$\le$", "<": "$<$",
    ">": "$>$", "°": r"$^\circ$", "×": r"$\times$", "²": "$^2$", "…": r"\ldots{}",
    "α": r"$\alpha$", "β": r"$\beta$", "γ": r"$\gamma$", "δ": r"$\delta$", "ε": r"$\epsilon$",
    "λ": r"$\lambda$", "μ": r"$\mu$", "ρ": r"$\rho$", "σ": r"$\sigma$", "τ": r"$\tau$",
}  # fmt: skip


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Parameters
    ----------
    heading : str
    cells : sequence of str
        One cell per row.
    best : set of int
        Indices of rows whose cells are marked as best.
    words : bool
        Whether the column contains text, which is aligned left.
    section : str
        On terminals, columns of a section are placed below the first columns, to save width.
    """

    heading: str
    cells: Sequence[str]
    best: Collection[int] = ()
    words: bool = False
    section: str = ""


@dataclass(frozen=True)
class Table:
    """The table of a report.

    Parameters
    ----------
    title : str
    columns : sequence of Column
        The columns; the first one contains the names of rows.
    caption : str
        The text below the table.
    notes : sequence of str
        Lines below the caption.
    muted : set of int
        Indices of dimmed rows, such as baselines.
    groups : int
        Number of leading columns that group rows; on terminals a line separates groups.
    """

    title: str
    columns: Sequence[Column]
    caption: str = ""
    notes: Sequence[str] = ()
    muted: Collection[int] = ()
    groups: int = 0

    def to_rich(self) -> RichTable:
        """Return the table for a terminal."""
        caption = "\n".join([self._legend("* best"), *self.notes])
        table = RichTable(
            box=box.SIMPLE_HEAD, title=Text(self.title), caption=Text(caption), title_style="bold",
            caption_style="dim", title_justify="left", caption_justify="left",
        )  # fmt: skip
        names, *rest = self.columns
        sections: dict[str, list[Column]] = {"": []}
        for column in rest:
            sections.setdefault(column.section, []).append(column)
        for column in (names, *sections[""]):
            table.add_column(
                Text(column.heading),
                justify="left" if column.words else "right",
                no_wrap=column.words,
            )
        for section, columns in sections.items():
            if section:
                table.add_section()
                table.add_row(Text(section), style="italic")
            for i, name in enumerate(names.cells):
                # the mark precedes the number, so that digits are aligned
                cells = [Text(f"*{c.cells[i]}", "bold green") if i in c.best else Text(c.cells[i])
                         for c in columns]  # fmt: skip
                if i and self._group(i) != self._group(i - 1):
                    table.add_section()
                table.add_row(Text(name), *cells, style="dim" if i in self.muted else None)
        return table

    def to_text(self) -> str:
        """Return the table as plain text."""
        return plain(self.to_rich())

    def to_markdown(self) -> str:
        """Return the table in Markdown, with title and caption; the best cells are bold."""
        legend = "**bold**: best" + (", *italic*: baseline" if self.muted else "")
        lines = [f"# {self.title}", "", *markdown(self.columns, self.muted)]
        lines += ["", self._legend(legend), "", *(f"- {note}" for note in self.notes)]
        return "\n".join(lines).rstrip() + "\n"

    def to_latex(self) -> str:
        """Return the table in LaTeX, which requires the package booktabs."""
        sides = "".join("l" if column.words else "r" for column in self.columns)
        rows = [
            [rf"\textbf{{{_tex(c.cells[i])}}}" if i in c.best else _tex(c.cells[i])
             for c in self.columns]
            for i in range(len(self.columns[0].cells))
        ]  # fmt: skip
        heads, *cells = [
            " & ".join(row) + r" \\" for row in [[_tex(c.heading) for c in self.columns], *rows]
        ]
        lines = [f"% {self.title}", rf"\begin{{tabular}}{{{sides}}}", r"\toprule", heads,
                 r"\midrule", *cells, r"\bottomrule", r"\end{tabular}"]  # fmt: skip
        lines += [f"% {line}" for line in (self._legend("bold: best"), *self.notes)]
        return "\n".join(lines) + "\n"

    def _legend(self, best: str) -> str:
        """Return the caption, with an explanation of the mark for best cells."""
        marked = any(column.best for column in self.columns)
        return " · ".join(part for part in (best if marked else "", self.caption) if part)

    def _group(self, i: int) -> list[str]:
        return [column.cells[i] for column in self.columns[: self.groups]]


def markdown(columns: Sequence[Column], muted: Collection[int] = ()) -> list[str]:
    """Return the lines of a table in Markdown.

    Parameters
    ----------
    columns : sequence of Column
    muted : set of int
        Indices of rows whose name is in italics.
    """
    heads = [f"{c.heading}, {c.section}" if c.section else c.heading for c in columns]
    rows = [heads, [":--" if column.words else "--:" for column in columns]]
    for i in range(len(columns[0].cells)):
        row = [column.cells[i].replace("|", r"\|") for column in columns]
        row = [f"**{cell}**" if i in c.best else cell for c, cell in zip(columns, row, strict=True)]
        rows.append([f"*{row[0]}*" if i in muted else row[0], *row[1:]])
    return [f"| {' | '.join(row)} |" for row in rows]


def plain(table: RenderableType) -> str:
    """Render a table as plain text in full width.

    Parameters
    ----------
    table : table, or another renderable of rich
    """
    console = Console(file=io.StringIO(), width=_WIDEST, highlight=False, emoji=False)
    console.width = max(1, console.measure(table).maximum)
    with console.capture() as shown:
        console.print(table)
    return "".join(f"{line.rstrip()}\n" for line in shown.get().splitlines())


def _tex(text: str) -> str:
    return "".join(_SPECIAL.get(letter, letter) for letter in text)


def format_number(value: float | None, places: int) -> str:
    """Format a number with thousands separators; extreme values in scientific notation.

    Parameters
    ----------
    value : float or None
        None and nan are formatted as missing.
    places : int
        Decimals.
    """
    if value is None or math.isnan(value):
        return MISSING
    if abs(value) >= 1e9 or 0 < abs(value) < 0.5e-6:
        return f"{value:.1e}"
    return f"{round(value, places) + 0.0:,.{places}f}"  # -0.0 + 0.0 is 0.0


def format_signed(value: float | None, places: int) -> str:
    """Format a number with its sign.

    Parameters
    ----------
    value : float or None
    places : int
        Decimals.
    """
    text = format_number(value, places).replace("-", "−")
    return f"+{text}" if value is not None and round(value, places) > 0 else text


def plus_minus(mean: str, deviation: float | None, places: int) -> str:
    """Format a mean with its standard deviation, if defined.

    Parameters
    ----------
    mean : str
        The mean as text.
    deviation : float or None
        None or nan for a single value.
    places : int
        Decimals.
    """
    spread = format_number(deviation, places)
    return mean if MISSING in {mean, spread} else f"{mean} ± {spread}"


def decimals(values: Iterable[float | None]) -> int:
    """Return the number of decimals that shows four digits of the median: 2 for 18.62.

    Parameters
    ----------
    values : iterable of float or None
        The values to be shown.
    """
    sizes = sorted(abs(v) for v in values if v and math.isfinite(v))
    if not sizes:
        return 2
    return min(6, max(0, 3 - math.floor(math.log10(sizes[(len(sizes) - 1) // 2]))))


def frame(records: Sequence[Mapping[str, object]], library: str | None) -> Any:
    """Convert records to a data frame.

    Parameters
    ----------
    records : sequence of dict
    library : {"pandas", "polars", "pyarrow"} or None
        The library of the frame; None for the first that is installed.

    Raises
    ------
    MissingExtraError
        If the library is not installed.
    ParameterError
        If the library is not one of these three.
    """
    makers = {"pandas": "DataFrame", "polars": "DataFrame", "pyarrow": "table"}
    if library is not None:
        check_choice(library, makers, "`library`")
    columns = {name: [row[name] for row in records] for name in (records[0] if records else ())}
    for name in makers if library is None else [library]:
        try:
            return getattr(import_module(name), makers[name])(columns)
        except ImportError:
            continue
    raise MissingExtraError(f"{library} must be installed. Install it with: pip install {library}")


def to_csv(records: Sequence[Mapping[str, object]]) -> str:
    """Convert records to CSV; None becomes an empty cell.

    Parameters
    ----------
    records : sequence of dict
    """
    text = io.StringIO()
    writer = csv.DictWriter(text, records[0] if records else (), lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)
    return text.getvalue()
