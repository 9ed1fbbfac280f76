"""Report of a prequential evaluation: scores by model, tables, figures, frames and JSON.

In JSON, which has no infinite numbers, these are the texts ``"inf"`` and ``"-inf"``.
"""

import csv
import json
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, TypeVar

from rich.table import Table as RichTable

from onepass.errors import MissingExtraError, ParameterError, SourceError
from onepass.evaluate.curves import Curve
from onepass.evaluate.drift import restored
from onepass.evaluate.figures import draw
from onepass.evaluate.score import Score
from onepass.evaluate.tables import to_html, to_markdown, to_rich, to_text
from onepass.serialization.atomic import writing

__all__ = [
    "FILES",
    "Report",
    "frame",
    "numbers",
    "reread",
    "spelt",
]


def frame(columns: Mapping[str, Sequence[object]], library: str | None, where: str) -> Any:
    """Columns as a frame of a library that is installed.

    Parameters
    ----------
    columns : dict of str to list
        The columns, in order.
    library : {"pandas", "polars", "pyarrow"} or None
        The library of the frame to make; None for the first that is installed.
    where : str
        The public call, for messages.

    Raises
    ------
    MissingExtraError
        If the library is not installed.
    ParameterError
        If it is none of the three.
    """
    makers = {"pandas": "DataFrame", "polars": "DataFrame", "pyarrow": "table"}
    if library not in {None, *makers}:
        raise ParameterError(
            f"{where}: `library` must be one of {', '.join(makers)}, got {library!r}. "
            "Choose one of them, or None for the first that is installed."
        )
    wanted = list(makers) if library is None else [library]
    for name in wanted:
        try:
            return getattr(import_module(name), makers[name])(columns)
        except ImportError:
            continue
    raise MissingExtraError(f"{where} needs {library}. Install it with: pip install {library}")


def spelt(tree: object) -> Any:
    """A tree of dicts and lists with infinite numbers as text.

    Parameters
    ----------
    tree : dict, list or plain value
        What is to be written.
    """
    if isinstance(tree, dict):
        return {name: spelt(part) for name, part in tree.items()}
    if isinstance(tree, list):
        return [spelt(part) for part in tree]
    return str(tree) if isinstance(tree, float) and math.isinf(tree) else tree


def numbers(tree: Any) -> Any:
    """A tree of numbers, with infinite ones as numbers again.

    Parameters
    ----------
    tree : dict, list, number, text or None
        What was read.

    Examples
    --------
    >>> numbers(spelt({"mae": [1.0, float("inf"), None]}))
    {'mae': [1.0, inf, None]}
    """
    if isinstance(tree, dict):
        return {name: numbers(part) for name, part in tree.items()}
    if isinstance(tree, list):
        return [numbers(part) for part in tree]
    return None if tree is None else float(tree)


def _scores(report: "Report") -> Iterator[dict[str, Any]]:
    """One for each model: its metrics, time and memory."""
    for model, score in report.scores.items():
        row: dict[str, Any] = {"model": model, "baseline": score.baseline}
        row |= score.overall
        if score.recent is not None:
            row |= {f"recent_{metric}": value for metric, value in score.recent.items()}
        row |= {"seconds": score.seconds, "nbytes": score.nbytes}
        for name in _detectors(report):
            said = (score.drift or {}).get(name)
            row[f"{name}_alarms"] = None if said is None else said.alarms.count
        yield row


def _drift(report: "Report") -> Iterator[dict[str, Any]]:
    """One for each alarm and warning that was kept."""
    for model, score in report.scores.items():
        for detector, said in (score.drift or {}).items():
            for kind, marks in (("alarm", said.alarms), ("warning", said.warnings)):
                for i, row in enumerate(() if marks is None else marks.rows):
                    time = None if marks is None or marks.times is None else marks.times[i]
                    told = {"model": model, "detector": detector, "kind": kind}
                    yield told | {"row": row, "time": time}


def _detectors(report: "Report") -> list[str]:
    """The names of the detectors that watched."""
    return list(dict.fromkeys(name for s in report.scores.values() for name in s.drift or ()))


def _curves(report: "Report") -> Iterator[dict[str, Any]]:
    """One for each point, model and metric: over all rows, then over the last ones."""
    for over, curve in (("all", report.overall), (f"last {report.window}", report.recent)):
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


_Report = TypeVar("_Report")


def reread(
    source: str | os.PathLike[str],
    restored: Callable[[dict[str, Any]], _Report],
    where: str,
    version: int,
) -> _Report:
    """A report, as ``to_json`` wrote it.

    Parameters
    ----------
    source : str or path
        The text, which begins with ``{``, or the path of a file that holds it.
    restored : callable
        Makes the report of what was read; raises a ValueError, TypeError or KeyError of what is
        none.
    where : str
        The public call, for messages.
    version : int
        The number of the format.

    Raises
    ------
    SourceError
        If there is no such file, or it is no report.
    """
    given = isinstance(source, str) and source.lstrip().startswith("{")
    try:
        text = str(source) if given else Path(source).read_text(encoding="utf-8")
        return restored(json.loads(text))
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as wrong:
        raise SourceError(
            f"{where}: {'the text' if given else source} must be a report that to_json wrote, in "
            f"format {version}, got {type(wrong).__name__}: {wrong}. Write it again with to_json."
        ) from wrong


_FORMAT = 1

FILES = ("report.json", "report.md", "curve.csv", "curve.png")
"""What ``Report.save`` writes."""


@dataclass(frozen=True, repr=False)
class Report:
    """What models said of a stream, row by row before learning it, summed up.

    Parameters
    ----------
    source, target : str, or None
        What was learned, as far as the stream says.
    task : {"regression", "classification"}
        What the models did.
    metrics : tuple of str
        Names from ``op.evaluate.METRICS``.
    window : int, or None
        How many rows ``recent`` is about.
    rows : int
        Rows said and learned.
    skipped : int
        Rows left out by the stream, for want of an answer.
    interrupted : bool
        Whether the pass ended before the stream did.
    scores : dict of str to Score
        One for each model, then one for each baseline.
    overall : Curve
        The metrics over all rows so far, along the stream.
    recent : Curve, or None
        The metrics over the last ``window`` rows, along the stream; full windows only.
    resumed : list of int
        Rows said each time that the pass was resumed from its checkpoint.
    delay : int, str or None
        How many rows later answers came, or the column that says when; None where each came
        before the next row.
    waiting : int
        Rows whose answers had not come when the pass ended. They are said and counted; they were
        learned at the end, unless it was interrupted.

    Examples
    --------
    >>> from onepass.evaluate import LastValue, prequential
    >>> report = prequential(LastValue(), ([[1.0], [2.0]], [1.0, 2.0]), "mae", baselines=False)
    >>> Report.from_json(report.to_json()) == report
    True
    >>> report.scores["LastValue"].overall["mae"]
    1.0
    """

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

    def __rich__(self) -> RichTable:
        return self.table()

    def __repr__(self) -> str:
        return f"<Report {self.source or self.task}: {', '.join(self.scores)}; {self.rows} rows>"

    def __str__(self) -> str:
        return to_text(self)

    def _repr_html_(self) -> str:
        return to_html(self)

    def table(self) -> RichTable:
        """The scores as a table for a terminal: ``rich.print(report.table())``."""
        return to_rich(self)

    def to_markdown(self) -> str:
        """The scores as a table in Markdown."""
        return to_markdown(self)

    def plot(self, path: str | os.PathLike[str] | None = None, metric: str | None = None) -> Any:
        """The learning curves as a figure.

        Strong lines are over all rows so far, faint ones over the last ``window`` rows; baselines
        are grey and dashed. The first rows, and a model that went astray, do not rule the scale.

        Parameters
        ----------
        path : path, optional
            Where to write it; the suffix says how: .png, .svg, .pdf.
        metric : str, optional
            One of ``metrics``; the first by default.

        Returns
        -------
        matplotlib.figure.Figure

        Raises
        ------
        MissingExtraError
            If matplotlib is not installed.
        ParameterError
            If the report has no such metric, no row was learned, or the suffix is another.
        SourceError
            If the file cannot be written.
        """
        return draw(self, path, metric)

    def to_dict(self) -> dict[str, Any]:
        """All of the report as dicts, lists, text and numbers."""
        return {"format": _FORMAT, **asdict(self), "metrics": list(self.metrics)}

    def to_json(self, path: str | os.PathLike[str] | None = None) -> str:
        """All of the report as JSON; an infinite value is the text ``"inf"`` or ``"-inf"``.

        Parameters
        ----------
        path : path, optional
            Where to write it as well.

        Raises
        ------
        SourceError
            If the file cannot be written.
        """
        text = json.dumps(spelt(self.to_dict()), indent=1, ensure_ascii=False, allow_nan=False)
        if path is not None:
            with writing(path, "Report.to_json"):
                Path(path).write_text(text + "\n", encoding="utf-8")
        return text

    @classmethod
    def from_json(cls, source: str | os.PathLike[str]) -> "Report":
        """The report that ``to_json`` wrote.

        Parameters
        ----------
        source : str or path
            The text, which begins with ``{``, or the path of a file that holds it.

        Raises
        ------
        SourceError
            If there is no such file, or it is no report.
        """
        return reread(source, _restored, "Report.from_json", _FORMAT)

    def to_frame(
        self,
        library: Literal["pandas", "polars", "pyarrow"] | None = None,
        *,
        of: Literal["scores", "curve", "drift"] = "scores",
    ) -> Any:
        """The scores, one row a model; the curves, one a point, model and metric; or the alarms.

        Parameters
        ----------
        library : {"pandas", "polars", "pyarrow"}, optional
            Whose frame to make; the first of these that is installed by default.
        of : {"scores", "curve", "drift"}
            What to give. Of drift it is one row for each alarm and warning that was kept.

        Raises
        ------
        MissingExtraError
            If the library is not installed.
        """
        kinds = {"scores": _scores, "curve": _curves, "drift": _drift}
        if of not in kinds:
            raise ParameterError(
                f"Report.to_frame: `of` must be one of {', '.join(map(repr, kinds))}, got {of!r}. "
                "Ask for one of these."
            )
        rows = list(kinds[of](self))
        names = list(rows[0]) if rows else []
        return frame(
            {name: [row[name] for row in rows] for name in names}, library, "Report.to_frame"
        )

    def save(self, directory: str | os.PathLike[str]) -> list[Path]:
        """Write report.json, report.md, curve.csv and curve.png into a directory.

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
        SourceError
            If a file cannot be written.
        MissingExtraError
            If matplotlib is not installed: then all but curve.png is written.
        """
        folder = Path(directory)
        paths = [folder / name for name in FILES]
        with writing(folder, "Report.save"):
            folder.mkdir(parents=True, exist_ok=True)
            self.to_json(paths[0])
            paths[1].write_text(self.to_markdown(), encoding="utf-8")
            with paths[2].open("w", encoding="utf-8", newline="") as file:
                writer = csv.DictWriter(file, ["over", "rows", "time", "model", "metric", "value"])
                writer.writeheader()
                writer.writerows(_curves(self))
        if self.rows == 0:
            return paths[:3]
        self.plot(paths[3])
        return paths


def _restored(tree: dict[str, Any]) -> Report:
    if tree.pop("format") != _FORMAT:
        raise ValueError("another format")
    scores = {}
    for name, score in tree.pop("scores").items():
        overall, recent = numbers(score.pop("overall")), numbers(score.pop("recent"))
        drift = restored(score.pop("drift", None))
        scores[name] = Score(**score, overall=overall, recent=recent, drift=drift)
    curves = {
        over: None
        if (curve := tree.pop(over)) is None
        else Curve(curve["rows"], curve["times"], numbers(curve["points"]))
        for over in ("overall", "recent")
    }
    return Report(**{**tree, "metrics": tuple(tree["metrics"]), "scores": scores, **curves})
