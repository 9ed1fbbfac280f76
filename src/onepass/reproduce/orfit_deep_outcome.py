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

import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np

from onepass.errors import Floats
from onepass.reproduce.orfit_deep_figure import bars, curves
from onepass.reproduce.shown import Shown, rounded

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
class DeepOutcome(Shown):
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

    Notes
    -----
    The CSV has a row for each draw of each result: stream, network, method, draw, measure, last,
    forgetting, bytes, seconds_per_row. The figure shows the averages at the end as bars.
    """

    columns: ClassVar[list[str]] = [
        "stream", "network", "method", "at the end", "forgetting", "memory", "ms a row",
    ]  # fmt: skip
    _words: ClassVar[int] = 3
    _groups: ClassVar[int] = 2

    name: str
    title: str
    setup: dict[str, Any]
    results: tuple[Result, ...]

    def result(self, stream: str, network: str, method: str) -> Result:
        """The result of a method, such as ``outcome.result("Split MNIST", "mlp", "SGD")``.

        Raises
        ------
        KeyError
            If there is none.
        """
        known = {(r.stream, r.network, r.method): r for r in self.results}
        return known[stream, network, method]

    def to_dict(self) -> dict[str, Any]:
        """All of it as dicts, lists, text and numbers, those to six digits."""
        tree: dict[str, Any] = rounded({"format": _FORMAT, **asdict(self)}, _six)
        return tree

    def to_markdown(self) -> str:
        """A table in Markdown for each stream, networks side by side."""
        parts = []
        for stream in dict.fromkeys(result.stream for result in self.results):
            sides = ["---"] * (self._words - 1) + ["---:"] * (len(self.columns) - self._words)
            chosen = [row[1:] for row in self._rows() if row[0] == stream]
            lines = ["| " + " | ".join(row) + " |" for row in [self.columns[1:], sides, *chosen]]
            parts.append("\n".join([f"### {stream}", "", *lines]))
        return "\n\n".join(parts) + "\n"

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
        SourceError
            If the folder or a file cannot be written.
        """
        paths = super().save(directory)
        beside = Path(directory) / f"{self.name}-curves.png"
        self.plot_curves(beside)
        return [*paths, beside]

    def _caption(self) -> str:
        return f"± over {self.setup['draws']} draws"

    def _rows(self) -> Iterator[list[str]]:
        return map(_row, self.results)

    def _tables(self) -> Iterator[dict[str, Any]]:
        """Draws: stream, network, method, draw, measure, last, forgetting, bytes, seconds."""
        for r in self.results:
            n = len(r.matrices)
            same = {"stream": r.stream, "network": r.network, "method": r.method}
            yield {
                **{head: np.full(n, word, dtype=object) for head, word in same.items()},
                "draw": np.arange(n),
                "measure": np.full(n, r.measure, dtype=object),
                "last": _column(r.last),
                "forgetting": _column(r.forgotten),
                "bytes": np.full(n, r.nbytes),
                "seconds_per_row": _column(r.seconds),
            }

    def _draw(self, path: str | os.PathLike[str] | None) -> Any:
        """Average accuracy of all methods as bars, a panel a stream and network."""
        return bars(self, path)


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


def _six(value: float) -> float:
    """To six digits."""
    return float(f"{value:.6g}")


def _column(values: Sequence[float | None]) -> Floats:
    """Values to six digits, nan where there is none."""
    return np.array([np.nan if one is None else _six(one) for one in values])
