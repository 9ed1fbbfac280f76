"""Base class of reports, and the report of a prequential evaluation.

A report is a dataclass. Its class defines a table, records, a figure, and the files of ``save``;
the base class makes text, Markdown, JSON, frames and CSV of them. Since JSON has no infinite
numbers, they are stored as the strings ``"inf"`` and ``"-inf"``.
"""

import html
import json
import math
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal, Self, TypeVar

import msgspec
import numpy as np
from rich.table import Table as RichTable

from onepass.errors import ParameterError, SourceError, public
from onepass.evaluate.choice import check_choice
from onepass.evaluate.curves import Curve
from onepass.evaluate.figures import Line, learning_curves
from onepass.evaluate.metrics import METRICS, Metric
from onepass.evaluate.score import Score
from onepass.evaluate.tables import Column, Table, decimals, format_number, frame, to_csv
from onepass.serialization.atomic import write_errors
from onepass.types import Array

FORMAT = 1
"""Version of the JSON format."""

_Kind = TypeVar("_Kind")


def map_floats(tree: object, by: Callable[[float], object]) -> Any:
    """Apply a function to each float in a tree of dicts and lists.

    Parameters
    ----------
    tree : dict, list, tuple, or a value of these
        Tuples become lists.
    by : callable

    Examples
    --------
    >>> map_floats({"mae": (1.26, None)}, lambda value: round(value, 1))
    {'mae': [1.3, None]}
    """
    if isinstance(tree, dict):
        return {name: map_floats(part, by) for name, part in tree.items()}
    if isinstance(tree, (list, tuple)):
        return [map_floats(part, by) for part in tree]
    return by(tree) if isinstance(tree, float) else tree


def to_json(tree: Mapping[str, object], indent: int | None = None) -> str:
    """Return a tree of dicts and lists as JSON, in which infinite numbers are text.

    Parameters
    ----------
    tree : mapping
        ``"format"``, which is ``FORMAT``, and the fields of a dataclass.
    indent : int, optional
    """
    finite = map_floats(tree, lambda value: str(value) if math.isinf(value) else value)
    return json.dumps(finite, indent=indent, ensure_ascii=False, allow_nan=False)


def from_json(text: str, kind: type[_Kind]) -> _Kind:
    """Create a dataclass from the JSON of ``to_json``.

    Parameters
    ----------
    text : str
    kind : type

    Raises
    ------
    ValueError
        If the text is not JSON, a field is missing or has another type, or the format has another
        version.
    """
    tree = msgspec.json.decode(text, type=dict)
    if tree.pop("format", None) != FORMAT:
        raise SourceError(f"the format must be {FORMAT}, got another one")
    return msgspec.convert(tree, kind, strict=False)


class BaseReport(ABC):
    """Base class of reports, which are dataclasses."""

    _indent: ClassVar[int | None] = None
    """Indentation of JSON."""

    _csv: ClassVar[str] = "scores"
    """The kind of records that ``to_csv`` writes by default."""

    @abstractmethod
    def _table(self) -> Table:
        """Return the table of the report."""

    @abstractmethod
    def _record_kinds(self) -> Mapping[str, Callable[[], Iterable[dict[str, Any]]]]:
        """Return a function for each kind of records, which have equal keys."""

    @abstractmethod
    def _files(self) -> Mapping[str, Callable[[Path], object]]:
        """Return the files that ``save`` writes: name -> function that writes the file."""

    @abstractmethod
    def plot(self, path: str | os.PathLike[str] | None = None) -> Any:
        """Plot the figure that the class describes.

        Parameters
        ----------
        path : path, optional
            File to which the figure is written: .png, .svg or .pdf.

        Returns
        -------
        matplotlib.figure.Figure

        Raises
        ------
        MissingExtraError
            If matplotlib is not installed.
        ParameterError
            If the suffix of the path is unknown.
        SourceError
            If the file cannot be written.
        """

    def __rich__(self) -> RichTable:
        return self.table()

    def __str__(self) -> str:
        return self._table().to_text()

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"

    def table(self) -> RichTable:
        """Return the table for a terminal: ``rich.print(report.table())``."""
        return self._table().to_rich()

    def to_markdown(self) -> str:
        """Return the table in Markdown."""
        return self._table().to_markdown()

    def to_dict(self) -> dict[str, Any]:
        """Return the report as dicts, lists, text and numbers."""
        fields = asdict(self)  # type: ignore[call-overload]
        tree: dict[str, Any] = map_floats({"format": FORMAT, **fields}, self._rounded)
        return tree

    def _rounded(self, value: float) -> float:
        """Return a number as it is stored."""
        return float(value)

    @public
    def to_json(self, path: str | os.PathLike[str] | None = None) -> str:
        """Return the report as JSON; infinite values are the strings ``"inf"`` and ``"-inf"``.

        Parameters
        ----------
        path : path, optional
            A file to which the JSON is also written.

        Raises
        ------
        SourceError
            If the file cannot be written.
        """
        text = to_json(self.to_dict(), self._indent)
        if path is not None:
            self._write(f"{text}\n", path)
        return text

    @classmethod
    @public
    def from_json(cls, source: str | os.PathLike[str]) -> Self:
        """Read a report that ``to_json`` has written.

        Parameters
        ----------
        source : str or path
            JSON text, which begins with ``{``, or the path of a JSON file.

        Raises
        ------
        SourceError
            If the file does not exist, or is not a report.
        """
        given = isinstance(source, str) and source.lstrip().startswith("{")
        try:
            text = str(source) if given else Path(source).read_text(encoding="utf-8")
            return from_json(text, cls)
        except (OSError, ValueError, RecursionError) as error:
            raise SourceError(
                f"{'the text' if given else source} must be a report that to_json wrote, in format "
                f"{FORMAT}, got {type(error).__name__}: {error}. Write it again with to_json."
            ) from error

    @public
    def to_frame(
        self, library: Literal["pandas", "polars", "pyarrow"] | None = None, *, of: str = "scores"
    ) -> Any:
        """Return records of one kind as a data frame.

        Parameters
        ----------
        library : {"pandas", "polars", "pyarrow"}, optional
            The library of the frame; by default the first of these that is installed.
        of : str
            The kind of records, as listed in the notes of the class.

        Raises
        ------
        MissingExtraError
            If the library is not installed.
        ParameterError
            If ``of`` or ``library`` is unknown.
        """
        return frame(self._records(of), library)

    @public
    def to_csv(self, path: str | os.PathLike[str] | None = None, *, of: str | None = None) -> str:
        """Return records of one kind as CSV; missing numbers are empty cells.

        Parameters
        ----------
        path : path, optional
            A file to which the CSV is also written.
        of : str, optional
            The kind of records, as listed in the notes of the class; by default that of ``save``.

        Raises
        ------
        ParameterError
            If ``of`` is unknown.
        SourceError
            If the file cannot be written.
        """
        text = to_csv(self._records(self._csv if of is None else of))
        return text if path is None else self._write(text, path)

    def _records(self, kind: str) -> list[dict[str, Any]]:
        """Return the records of one kind; nan becomes None."""
        kinds = self._record_kinds()
        check_choice(kind, kinds, "`of`")
        return [
            map_floats(record, lambda value: None if math.isnan(value) else value)
            for record in kinds[kind]()
        ]

    @public
    def save(self, directory: str | os.PathLike[str]) -> list[Path]:
        """Write numbers, tables and figures into a folder; the class lists the files in its notes.

        Parameters
        ----------
        directory : path
            The folder, which is created if it does not exist.

        Returns
        -------
        paths : list of Path
            The files written.

        Raises
        ------
        SourceError
            If a file cannot be written.
        MissingExtraError
            If matplotlib is not installed. Everything except the figures has been written.
        """
        folder = Path(directory)
        with write_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
        files = self._files()
        for name, write in files.items():
            write(folder / name)
        return [folder / name for name in files]

    def _write(self, text: str, path: str | os.PathLike[str]) -> str:
        """Write text to a file, and return it."""
        with write_errors(path):
            Path(path).write_text(text, encoding="utf-8")
        return text

    def _write_markdown(self, path: Path) -> None:
        self._write(self.to_markdown(), path)


FILES = ("report.json", "report.md", "curve.csv", "curve.png")
"""The files that ``Report.save`` writes."""


@dataclass(frozen=True, repr=False)
class Report(BaseReport):
    """Report of a prequential evaluation.

    Parameters
    ----------
    source, target : str, or None
        Names of the source and of the target; None if unknown.
    task : {"regression", "classification"}
        The task of the models.
    metrics : tuple of str
        Names from ``op.evaluate.METRICS``.
    window : int, or None
        Number of rows that ``recent`` covers.
    rows : int
        Number of rows predicted and learned.
    skipped : int
        Number of rows that the stream skipped because they have no target.
    interrupted : bool
        Whether the run ended before the stream.
    scores : dict of str to Score
        Scores of the models, then of the baselines.
    overall : Curve
        The metrics over all rows so far, along the stream.
    recent : Curve, or None
        The metrics over the last ``window`` rows, along the stream; full windows only.
    resumed : list of int
        Number of rows predicted before each time the run was resumed.
    delay : int, str or None
        Number of rows after which targets arrived, or the column with the times of targets; None if
        targets arrived before the next row.
    waiting : int
        Number of rows whose targets had not arrived at the end. They are scored, and were learned
        at the end unless the run was interrupted.

    Notes
    -----
    ``save`` writes report.json, report.md and, if a row was learned, curve.csv and curve.png.

    Kinds of records: ``"scores"``, one per model; ``"curve"``, one per point, model and metric;
    ``"drift"``, one per stored alarm and warning.

    Examples
    --------
    >>> from onepass.evaluate import LastValue, prequential
    >>> report = prequential(LastValue(), ([[1.0], [2.0]], [1.0, 2.0]), "mae", baselines=False)
    >>> Report.from_json(report.to_json()) == report
    True
    >>> report.scores["LastValue"].overall["mae"]
    1.0
    """

    _indent = 1
    _csv = "curve"

    source: str | None
    target: str | None
    task: str
    metrics: tuple[str, ...]
    window: int | None
    rows: int
    skipped: int
    interrupted: bool
    scores: dict[str, Score]
    overall: Curve
    recent: Curve | None
    resumed: list[int] = field(default_factory=list)
    delay: int | str | None = None
    waiting: int = 0

    def __repr__(self) -> str:
        return f"<Report {self.source or self.task}: {', '.join(self.scores)}; {self.rows} rows>"

    @public
    def plot(self, path: str | os.PathLike[str] | None = None, metric: str | None = None) -> Any:
        """Plot the learning curves.

        Strong lines are metrics over all rows so far, faint lines over the last ``window`` rows;
        baselines are grey and dashed. First rows and diverged models do not determine the scale.

        Parameters
        ----------
        path : path, optional
            File to which the figure is written: .png, .svg or .pdf.
        metric : str, optional
            One of ``metrics``; by default the first.

        Returns
        -------
        matplotlib.figure.Figure

        Raises
        ------
        MissingExtraError
            If matplotlib is not installed.
        ParameterError
            If the report has no such metric, no row was learned, or the suffix is unknown.
        SourceError
            If the file cannot be written.
        """
        chosen = self.metrics[0] if metric is None else metric
        if chosen not in self.metrics:
            raise ParameterError(
                f"`metric` must be a metric of the report, {', '.join(self.metrics)}, "
                f"got {metric!r}. Add it to op.evaluate.prequential(..., metrics=[...])."
            )
        if not self.rows:
            raise ParameterError(
                "the report must have at least 1 row, got 0. Check that the stream has "
                "rows with targets."
            )
        along, *x = self._along()
        lines = [self._line(name, chosen, *x, timed=along == "time") for name in self.scores]
        kind = METRICS[self.task][chosen]
        measured = f"{kind.label} of {self.target}" if self.target else kind.label
        title = f"{self.source + ': ' if self.source else ''}{_counted(self.rows)}, one pass"
        if self.recent:
            title += f"; faint: last {self.window:,} rows"
        if any(score.drift for score in self.scores.values()):
            title += "; drift marked"
        labels = (along, f"{measured}, so far", title)
        return learning_curves(lines, labels, path, lower_is_better=kind.better == "lower")

    def _along(self) -> tuple[str, *tuple[Array, ...]]:
        """Return the label of the x axis, and the position of each point of both curves.

        The axis is time if each point has a time and times never decrease, otherwise rows.
        """
        curves = [self.overall, *([self.recent] if self.recent else [])]
        times = [_times_of(curve) for curve in curves]
        complete = [each for each in times if each is not None]
        if len(complete) == len(curves) and not any((t[1:] < t[:-1]).any() for t in complete):
            overall = complete[0]
            if len(overall) > 1 and overall[-1] > overall[0]:
                return "time", *complete
        return "rows learned", *(np.array(curve.rows, dtype=np.float64) for curve in curves)

    def _line(
        self, model: str, metric: str, x: Array, x_recent: Array | None = None, *, timed: bool
    ) -> Line:
        """Return the curves of a model over all rows and, except for baselines, the last rows."""
        score = self.scores[model]
        overall = np.array(self.overall.points[model][metric], dtype=np.float64)
        recent = None
        if self.recent is not None and x_recent is not None and not score.baseline:
            values = np.array(self.recent.points[model][metric], dtype=np.float64)
            recent = x_recent, values
        alarms = [drift.alarms for drift in (score.drift or {}).values()]
        at = [each for marks in alarms for each in ((marks.times if timed else marks.rows) or ())]
        dates = any(isinstance(each, str) for each in at)
        marks = np.array(at, dtype="datetime64[us]" if dates else np.float64)
        return Line(model, x, overall, recent=recent, baseline=score.baseline, alarms=marks)

    def _files(self) -> Mapping[str, Callable[[Path], object]]:
        writers = (self.to_json, self._write_markdown, self.to_csv, self.plot)
        names = FILES if self.rows else FILES[:2]  # without rows there is no curve
        return dict(zip(names, writers, strict=False))

    def _record_kinds(self) -> Mapping[str, Callable[[], Iterable[dict[str, Any]]]]:
        return {"scores": self._scores, "curve": self._curves, "drift": self._alarms}

    def _scores(self) -> Iterator[dict[str, Any]]:
        """Yield one record per model: metrics, time and memory."""
        for model, score in self.scores.items():
            row: dict[str, Any] = {"model": model, "baseline": score.baseline, **score.overall}
            row |= {f"recent_{metric}": value for metric, value in (score.recent or {}).items()}
            row |= {"seconds": score.seconds, "nbytes": score.nbytes}
            for name in self._detectors():
                found = (score.drift or {}).get(name)
                row[f"{name}_alarms"] = None if found is None else found.alarms.count
            yield row

    def _alarms(self) -> Iterator[dict[str, Any]]:
        """Yield one record per alarm and warning whose row is stored."""
        for model, score in self.scores.items():
            for detector, found in (score.drift or {}).items():
                about = {"model": model, "detector": detector}
                for kind, marks in (("alarm", found.alarms), ("warning", found.warnings)):
                    if marks is not None:
                        times = marks.times or [None] * len(marks.rows)
                        for row, time in zip(marks.rows, times, strict=True):
                            yield {**about, "kind": kind, "row": row, "time": time}

    def _curves(self) -> Iterator[dict[str, Any]]:
        """Yield one record per point, model and metric: over all rows, then over the last rows."""
        for over, curve in (("all", self.overall), (f"last {self.window}", self.recent)):
            if curve is None:
                continue
            for model, metrics in curve.points.items():
                for metric, values in metrics.items():
                    for i, value in enumerate(values):
                        yield {
                            "over": over,
                            "rows": curve.rows[i],
                            "time": None if curve.times is None else curve.times[i],
                            "model": model,
                            "metric": metric,
                            "value": value,
                        }

    def _detectors(self) -> list[str]:
        """Return the names of the drift detectors."""
        return list(dict.fromkeys(name for s in self.scores.values() for name in s.drift or ()))

    def _table(self) -> Table:
        kinds, scores = METRICS[self.task], self.scores.values()
        columns = [Column("model", list(self.scores), words=True)]
        columns += [_scored(kinds[m], [score.overall[m] for score in scores]) for m in self.metrics]
        if self.window is not None:
            last = f"last {min(self.window, self.rows):,} rows"
            columns += [
                _scored(kinds[m], [(score.recent or {}).get(m) for score in scores], last)
                for m in self.metrics
            ]
        muted = {i for i, score in enumerate(scores) if score.baseline}
        columns += [*self._counts(), *self._costs()]
        return Table(self._title(), columns, self._caption(), muted=muted)

    def _counts(self) -> Iterator[Column]:
        """Yield the columns with numbers of alarms and of warnings of each drift detector."""
        for name in self._detectors():
            found = [(score.drift or {}).get(name) for score in self.scores.values()]
            for kind in ("alarms", "warnings"):
                events = [getattr(each, kind, None) for each in found]
                if kind == "alarms" or any(events):
                    counts = [None if each is None else each.count for each in events]
                    yield Column(f"{name} {kind}", [format_number(count, 0) for count in counts])

    def _costs(self) -> Iterator[Column]:
        """Yield the columns with time and memory, if measured."""
        scores = self.scores.values()
        seconds, nbytes = [s.seconds for s in scores], [s.nbytes for s in scores]
        if any(value is not None for value in seconds):
            rates = [self.rows / value if value else None for value in seconds]
            yield Column("seconds", [format_number(value, 2) for value in seconds])
            yield Column("rows/s", [format_number(value, 0) for value in rates])
        if any(value is not None for value in nbytes):
            yield Column("KiB", [format_number(v if v is None else v / 1024, 1) for v in nbytes])

    def _title(self) -> str:
        title = f"{self.source or 'stream'}: {self.task}"
        title += f" of {self.target}" if self.target else ""
        title += f", {_counted(self.rows)} learned in one pass"
        title += f", {self.skipped:,} skipped" if self.skipped else ""
        title += ", interrupted" if self.interrupted else ""
        if self.resumed:
            shown = " and ".join(f"{rows:,}" for rows in self.resumed[-2:])
            title += f", resumed after {'… ' if self.resumed[2:] else ''}{shown}"
        return title

    def _caption(self) -> str:
        kinds = [METRICS[self.task][name] for name in self.metrics]
        unit, parts = f"the unit of {self.target or 'y'}", []
        for symbol, words in (("y", unit), ("y²", f"{unit}, squared")):
            labels = [kind.label for kind in kinds if kind.unit == symbol]
            if labels:
                parts.append(f"{', '.join(labels)} in {words}")
        higher = [kind.label for kind in kinds if kind.better == "higher"]
        if higher:
            parts.append(f"higher is better: {', '.join(higher)}")
        if any(score.nbytes is not None for score in self.scores.values()):
            parts.append("KiB: size of the learned state")
        if self.delay is not None:
            parts.append(self._delay_note())
        unbeaten = self._unbeaten()
        return " · ".join([*parts, *([_advice(unbeaten)] if unbeaten else [])])

    def _delay_note(self) -> str:
        """Describe the delay of targets, and the handling of rows pending at the end."""
        later = f"{self.delay:,} rows later" if isinstance(self.delay, int) else "later"
        by = "" if isinstance(self.delay, int) else f", as in column {self.delay}"
        verb = "was" if self.waiting == 1 else "were"
        then = "still pending" if self.interrupted else "learned at the end"
        return f"targets arrived {later}{by}; {_counted(self.waiting)} {verb} {then}"

    def _unbeaten(self) -> str | None:
        """Return a baseline that no model beats in the first metric, or None."""
        metric = self.metrics[0]
        sign = 1 if METRICS[self.task][metric].better == "lower" else -1
        losses: dict[bool, dict[str, float]] = {True: {}, False: {}}
        for name, score in self.scores.items():
            value = score.overall[metric]
            if value is not None:
                losses[score.baseline][name] = sign * value
        best = min(losses[True], key=losses[True].__getitem__, default=None)
        if best is None or not losses[False]:
            return None
        return None if min(losses[False].values()) < losses[True][best] else best


def _advice(baseline: str) -> str:
    """Name the options to try if no model is better than a baseline."""
    if baseline.startswith("last"):
        try_ = "recent targets predict best: try lagged targets, --lags 1 or op.features.Lag()"
    elif baseline == "majority":
        try_ = "try other features or, for rare classes, metrics such as roc_auc and log_loss"
    else:
        try_ = "the features explain little: try other features or another learner"
    return f"no model is better than {baseline}; {try_}"


def _counted(rows: int) -> str:
    return "1 row" if rows == 1 else f"{rows:,} rows"


def _times_of(curve: Curve) -> Array | None:
    """Return the times of the points of a curve; None if one is missing or invalid."""
    if curve.times is None or None in curve.times:
        return None
    try:
        return np.array(
            curve.times, dtype="datetime64[us]" if isinstance(curve.times[0], str) else np.float64
        )
    except ValueError:
        return None


def _scored(kind: type[Metric], values: list[float | None], section: str = "") -> Column:
    cells = [format_number(value, decimals(values)) for value in values]
    defined = [value for value in values if value is not None]
    best = (min if kind.better == "lower" else max)(defined, default=None)
    # all values that are printed like the best one are marked
    marked = {i for i, cell in enumerate(cells) if defined and cell == cells[values.index(best)]}
    return Column(kind.label, cells, marked, section=section)
