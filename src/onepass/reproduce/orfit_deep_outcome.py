"""Outcome of ``orfit-deep``: what each method knew of each task after each task.

With a_tj the accuracy on the rows to test of task j after the t-th of T tasks was learned, in
percent (or the root mean square error in degrees, where the answer is an angle):

    average accuracy   (1/T) Σ_j a_Tj                                                     [1] (1)
    forgetting         (1/(T − 1)) Σ_{j<T} (max_{j≤t<T} a_tj − a_Tj)                       [2] (2)

of errors the smallest in place of the largest, and the sign turned, so that more forgetting is
always a larger number.

[1] D. Lopez-Paz, M. Ranzato, "Gradient episodic memory for continual learning", NeurIPS 2017.
[2] A. Chaudhry et al., "Riemannian walk for incremental learning", ECCV 2018, section 3.
"""

import csv
import io
import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
from rich.table import Table as RichTable

from onepass.durable import writing
from onepass.reproduce.orfit_deep_figure import bars, curves
from onepass.types import Floats

__all__ = ["DeepOutcome", "Measure", "Result", "average", "forgotten"]

_FORMAT = 1
Measure: TypeAlias = Literal["accuracy", "error"]


def average(matrix: Floats) -> float:
    """(1) of a matrix (T, T); what was not measured is nan, but in the last row.

    Examples
    --------
    >>> average(np.array([[90.0, 10.0], [50.0, 80.0]]))
    65.0
    """
    return float(matrix[-1].mean())


def forgotten(matrix: Floats, measure: Measure = "accuracy") -> float:
    """(2) of a matrix (T, T); nan where only the last row was measured.

    Examples
    --------
    >>> forgotten(np.array([[90.0, 10.0], [50.0, 80.0]]))
    40.0
    """
    sign = 1.0 if measure == "accuracy" else -1.0
    past = sign * matrix[:-1]
    lost = [past[j:, j].max() - sign * matrix[-1, j] for j in range(len(past))]
    return float(np.mean(lost)) if lost else float("nan")


@dataclass(frozen=True)
class Result:
    """One method on one stream with one network.

    Parameters
    ----------
    stream, network, method : str
        What was learned, what learned it, and how.
    measure : {"accuracy", "error"}
        Percent, where more is better, or degrees, where less is.
    settings : dict of str to Any
        Of the method.
    matrices : list of list of list of float or None
        a_tj of each draw, (draws, T, T); None where it was not measured.
    nbytes : int
        Kept from row to row beside the weights, at the end.
    seconds : list of float or None
        Of each draw: learning one row. None without a clock.
    stopped : str or None
        Why the method could not go on, if it could not; what it knew till then counts.
    """

    stream: str
    network: str
    method: str
    measure: Measure
    settings: dict[str, Any]
    matrices: list[list[list[float | None]]]
    nbytes: int
    seconds: list[float | None]
    stopped: str | None = None

    def matrix(self) -> Floats:
        """a_tj of all draws, (draws, T, T); nan where it was not measured."""
        return np.array(self.matrices, dtype=float)

    @property
    def last(self) -> list[float]:
        """(1) of each draw."""
        return [average(one) for one in self.matrix()]

    @property
    def forgotten(self) -> list[float]:
        """(2) of each draw."""
        return [forgotten(one, self.measure) for one in self.matrix()]


@dataclass(frozen=True)
class DeepOutcome:
    """What came of ``orfit-deep``.

    Parameters
    ----------
    name : str
        As the command line knows it.
    title : str
        What is shown.
    setup : dict of str to Any
        All that was set, in plain values: enough to repeat it.
    results : tuple of Result
        In the order in which they were measured.
    """

    name: str
    title: str
    setup: dict[str, Any]
    results: tuple[Result, ...]

    def __rich__(self) -> RichTable:
        return self.table()

    def result(self, stream: str, network: str, method: str) -> Result:
        """The result of a method, such as ``outcome.result("Split MNIST", "mlp", "SGD")``.

        Raises
        ------
        KeyError
            If there is none.
        """
        known = {(r.stream, r.network, r.method): r for r in self.results}
        return known[stream, network, method]

    def table(self) -> RichTable:
        """Averages and deviations over the draws, for a terminal."""
        table = RichTable(title=self.title, caption=f"± over {self.setup['draws']} draws")
        for i, column in enumerate(_COLUMNS):
            table.add_column(column, justify="left" if i < 3 else "right", no_wrap=True)
        before = None
        for result in self.results:
            place = (result.stream, result.network)
            if before not in {None, place}:
                table.add_section()
            table.add_row(*_row(result))
            before = place
        return table

    def to_markdown(self) -> str:
        """A table in Markdown for each stream, networks side by side."""
        parts = []
        for stream in dict.fromkeys(result.stream for result in self.results):
            chosen = [result for result in self.results if result.stream == stream]
            sides = ["---", "---", *["---:"] * (len(_COLUMNS) - 3)]
            rows = [_COLUMNS[1:], sides, *(_row(result)[1:] for result in chosen)]
            lines = ["| " + " | ".join(row) + " |" for row in rows]
            parts.append("\n".join([f"### {stream}", "", *lines]))
        return "\n\n".join(parts) + "\n"

    def to_csv(self) -> str:
        """One row for each draw of each result: tidy, with all numbers in full."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(
            ["stream", "network", "method", "draw", "measure", "last", "forgetting", "bytes",
             "seconds_per_row"]
        )  # fmt: skip
        for r in self.results:
            each = zip(r.last, r.forgotten, r.seconds, strict=True)
            for draw, (last, lost, seconds) in enumerate(each):
                writer.writerow(
                    [r.stream, r.network, r.method, draw, r.measure, f"{last:.6g}",
                     "" if np.isnan(lost) else f"{lost:.6g}", r.nbytes,
                     "" if seconds is None else f"{seconds:.6g}"]
                )  # fmt: skip
        return text.getvalue()

    def to_json(self, path: str | os.PathLike[str] | None = None) -> str:
        """All of it as JSON.

        Parameters
        ----------
        path : path, optional
            Where to write it as well.

        Raises
        ------
        SourceError
            If the file cannot be written.
        """
        tree = {"format": _FORMAT, **asdict(self), "results": [asdict(r) for r in self.results]}
        text = json.dumps(_rounded(tree), ensure_ascii=False, allow_nan=False)
        if path is not None:
            with writing(path, "DeepOutcome.to_json"):
                Path(path).write_text(text + "\n", encoding="utf-8")
        return text

    def plot(self, path: str | os.PathLike[str] | None = None) -> Any:
        """Average accuracy of all methods as bars, a panel a stream and network.

        Parameters
        ----------
        path : path, optional
            Where to write it; the suffix says how: .png, .svg, .pdf.

        Returns
        -------
        matplotlib.figure.Figure

        Raises
        ------
        MissingExtraError
            If matplotlib is not installed.
        ParameterError
            If the path has another suffix.
        SourceError
            If the file cannot be written.
        """
        return bars(self, path)

    def plot_curves(self, path: str | os.PathLike[str] | None = None) -> Any:
        """What was known of the tasks so far, after each task; as :meth:`plot` otherwise."""
        return curves(self, path)

    def save(self, directory: str | os.PathLike[str]) -> list[Path]:
        """Write NAME.json, NAME.csv, NAME.md, NAME.png and NAME-curves.png.

        Parameters
        ----------
        directory : path
            Made if it is not there.

        Returns
        -------
        paths : list of Path
            What was written.

        Raises
        ------
        MissingExtraError
            If matplotlib is not installed: then all but the figures is written.
        """
        folder = Path(directory)
        folder.mkdir(parents=True, exist_ok=True)
        ends = (".json", ".csv", ".md", ".png", "-curves.png")
        paths = [folder / f"{self.name}{end}" for end in ends]
        self.to_json(paths[0])
        paths[1].write_text(self.to_csv(), encoding="utf-8")
        paths[2].write_text(self.to_markdown(), encoding="utf-8")
        self.plot(paths[3])
        self.plot_curves(paths[4])
        return paths


_COLUMNS = [
    "stream", "network", "method", "at the end", "forgetting", "memory", "ms a row",
]  # fmt: skip


def _row(r: Result) -> list[str]:
    """A result as text: mean ± deviation over the draws."""
    unit = " %" if r.measure == "accuracy" else "°"
    lost = [value for value in r.forgotten if not np.isnan(value)]
    known = [seconds for seconds in r.seconds if seconds is not None]
    pace = f"{1000 * np.mean(known):.2f}" if known else "–"
    end = _spread(r.last, unit) + (" (stopped)" if r.stopped else "")
    return [
        r.stream, r.network, r.method, end, _spread(lost, unit) if lost else "–",
        _size(r.nbytes), pace,
    ]  # fmt: skip


def _spread(values: Sequence[float], unit: str) -> str:
    deviation = f" ± {np.std(values, ddof=1):.1f}" if len(values) > 1 else ""
    return f"{np.mean(values):.1f}{deviation}{unit}"


def _size(nbytes: int) -> str:
    return f"{nbytes / 1e6:.2f} MB" if nbytes else "0"


def _rounded(tree: Any) -> Any:
    if isinstance(tree, dict):
        return {name: _rounded(part) for name, part in tree.items()}
    if isinstance(tree, (list, tuple)):
        return [_rounded(part) for part in tree]
    return float(f"{tree:.6g}") if isinstance(tree, float) else tree
