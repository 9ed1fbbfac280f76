"""Report of a continual evaluation: measures of models, tables, figures, frames, CSV and JSON."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from textwrap import fill
from typing import Any

import numpy as np

from onepass.errors import ParameterError, public
from onepass.evaluate.continual_measures import MEASURES, ContinualScore, pairs, task_scores
from onepass.evaluate.continual_run import Run
from onepass.evaluate.figures import DARK, Line, heat_map, learning_curves, new_figure
from onepass.evaluate.metrics import METRICS, Metric
from onepass.evaluate.report import BaseReport
from onepass.evaluate.tables import (
    Column,
    Table,
    decimals,
    format_number,
    format_signed,
    plus_minus,
)

_COSTS = ("nbytes", "prototypes", "repeated", "learning_seconds", "prediction_seconds")
_PERCENT = ("accuracy", "macro_f1")  # shown in percent
SCENARIOS = ("class", "task", "domain")
_SHOWN = {  # measure -> heading, and whether higher is better (for accuracies)
    "average": ("{} at the end", True),
    "average_incremental": ("incremental", True),
    "forgetting": ("forgetting", False),
    "backward_transfer": ("backward", True),
    "forward_transfer": ("forward", True),
}
_COLUMNS = 3  # heat maps side by side
_TITLE = 34  # maximum letters per line in the title of a heat map


def _each(name: str) -> property:
    """Return a property with the value of one model, or a dict of values by model."""

    def values(report: ContinualReport) -> Any:
        found = {model: getattr(score, name) for model, score in report.scores.items()}
        return next(iter(found.values())) if len(found) == 1 else found

    return property(values, doc=getattr(ContinualScore, name).__doc__)


@dataclass(frozen=True, repr=False)
class ContinualReport(BaseReport):
    """Report of a continual evaluation.

    If there is one model, measures such as ``report.forgetting`` are numbers or arrays. If there
    are several, they are dicts by the name of the model, like ``report.scores``.

    Parameters
    ----------
    name : str
        The name of the stream of tasks.
    scenario : {"class", "task", "domain"}
        The scenario of ``op.evaluate.continual``.
    task : {"regression", "classification"}
        The task of the models.
    metric : str
        Name from ``METRICS[task]``.
    tasks : tuple of str
        The tasks that were tested, in order.
    experiences : tuple of str
        The experiences that were learned, in order; equal to the tasks if they have boundaries.
    runs : tuple of Run
        The runs of all models and seeds.

    Notes
    -----
    ``save`` writes continual.json, .md, .tex, -runs.csv, -matrix.csv, -curves.png and -matrix.png.

    Kinds of records: ``"scores"``, one per model; ``"runs"``, one per model and seed; ``"matrix"``,
    one per entry of R; ``"pairs"``, one per pair of models, as of :meth:`compare`.

    Examples
    --------
    >>> import onepass as op
    >>> from sklearn.datasets import load_digits
    >>> X, y = load_digits(return_X_y=True)
    >>> report = op.evaluate.continual(op.RLSClassifier(), op.stream.experiences(X, y))
    >>> report.accuracy_matrix.shape, round(report.average_accuracy, 1)
    ((5, 5), 0.9)
    >>> type(report).from_json(report.to_json()) == report
    True
    """

    _csv = "runs"

    name: str
    scenario: str
    task: str
    metric: str
    tasks: tuple[str, ...]
    experiences: tuple[str, ...]
    runs: tuple[Run, ...]

    def __post_init__(self) -> None:
        if self.scenario not in SCENARIOS or self.metric not in METRICS.get(self.task, ()):
            raise ParameterError(f"scenario {self.scenario!r} and metric {self.metric!r}")
        if not self.runs:
            raise ParameterError("a report must have runs, got none")
        for run in self.runs:
            run.check((len(self.experiences), len(self.tasks)))

    def __repr__(self) -> str:
        return f"<ContinualReport {self.name}: {', '.join(self.scores)}; {len(self.tasks)} tasks>"

    # -- measures ----------------------------------------------------------------------------------

    @property
    def scores(self) -> dict[str, ContinualScore]:
        """Scores of models, by name."""
        names = dict.fromkeys(run.model for run in self.runs)
        sign = -1.0 if self._lower_is_better else 1.0
        return {
            name: ContinualScore(name, [run for run in self.runs if run.model == name], sign)
            for name in names
        }

    def __getitem__(self, model: str) -> ContinualScore:
        return self.scores[model]

    @property
    def seeds(self) -> list[int]:
        """The seeds of all runs."""
        return list(dict.fromkeys(run.seed for run in self.runs))

    accuracy_matrix = _each("accuracy_matrix")
    error_matrix = _each("error_matrix")
    average_accuracy = _each("average_accuracy")
    average_error = _each("average_error")
    average_incremental_accuracy = _each("average_incremental_accuracy")
    forgetting = _each("forgetting")
    backward_transfer = _each("backward_transfer")
    forward_transfer = _each("forward_transfer")

    @public
    def compare(self, measure: str = "average", against: str | None = None) -> list[dict[str, Any]]:
        """Compare models by two-sided paired t-tests over the seeds that they share.

        Parameters
        ----------
        measure : str
            A key of ``MEASURES``.
        against : str, optional
            The model to compare all others with; by default all pairs are compared.

        Returns
        -------
        pairs : list of dict
            Each has the keys ``model``, ``against``, ``n`` (seeds), ``difference`` (mean), ``t``,
            ``p``, and ``p_holm``, which is p corrected for the number of tests (Holm, 1979).

        Raises
        ------
        ParameterError
            If there is no such model or measure, or two models share fewer than two seeds.
        """
        return pairs(self.scores, measure, against)

    # -- records, tables and files -----------------------------------------------------------------

    def to_latex(self) -> str:
        """Return the table in LaTeX, which requires the package booktabs."""
        return self._table().to_latex()

    def _files(self) -> Mapping[str, Callable[[Path], object]]:
        return {
            "continual.json": self.to_json,
            "continual.md": self._write_markdown,
            "continual.tex": lambda path: self._write(self.to_latex(), path),
            "continual-runs.csv": self.to_csv,
            "continual-matrix.csv": partial(self.to_csv, of="matrix"),
            "continual-curves.png": self.plot,
            "continual-matrix.png": self.plot_matrix,
        }

    def _record_kinds(self) -> Mapping[str, Callable[[], Iterable[dict[str, Any]]]]:
        return {
            "scores": self._score_records,
            "runs": self._run_records,
            "matrix": self._matrix_records,
            "pairs": self.compare,
        }

    def _score_records(self) -> Iterator[dict[str, Any]]:
        """Yield one record per model: means and deviations over seeds, and costs."""
        for name, score in self.scores.items():
            row: dict[str, Any] = {"model": name, "metric": self.metric, "seeds": len(score.runs)}
            for measure in MEASURES:
                row[measure] = score.mean(measure)
                row[f"{measure}_deviation"] = score.deviation(measure)
            row |= {cost: getattr(score, cost) for cost in _COSTS}
            yield row | {"rows": score.rows, "notes": "; ".join(score.notes)}

    def _run_records(self) -> Iterator[dict[str, Any]]:
        """Yield one record per model and seed, with all measures and costs."""
        for name, score in self.scores.items():
            values = {measure: score.values(measure) for measure in MEASURES}
            for i, run in enumerate(score.runs):
                row: dict[str, Any] = {"model": name, "seed": run.seed, "metric": self.metric}
                row |= {measure: float(each[i]) for measure, each in values.items()}
                row |= {cost: getattr(run, cost) for cost in _COSTS}
                yield row | {"rows": run.rows, "stopped": run.stopped}

    def _matrix_records(self) -> Iterator[dict[str, Any]]:
        """Yield one record per model, seed, experience (0: before learning) and task."""
        for run in self.runs:
            for i, row in enumerate([run.before, *run.matrix]):
                for j, value in enumerate(row):
                    yield {
                        "model": run.model,
                        "seed": run.seed,
                        "experience": i,
                        "after": "" if i == 0 else self.experiences[i - 1],
                        "task": self.tasks[j],
                        self.metric: value,
                    }

    @property
    def _kind(self) -> type[Metric]:
        return METRICS[self.task][self.metric]

    @property
    def _lower_is_better(self) -> bool:
        return self._kind.better == "lower"

    @property
    def _percent(self) -> bool:
        """Whether the metric is a fraction that is shown in percent."""
        return self.metric in _PERCENT

    @property
    def _scale(self) -> float:
        return 100.0 if self._percent else 1.0

    def _table(self) -> Table:
        scores = self.scores
        noted = {name: score.notes for name, score in scores.items() if score.notes}
        numbers = {name: f" [{k}]" for k, name in enumerate(noted, 1)}
        names = [" ".join(name.split()) + numbers.get(name, "") for name in scores]
        notes = [f"[{k}] {n}: {'; '.join(these)}" for k, (n, these) in enumerate(noted.items(), 1)]
        columns = [Column("model", names, words=True), *self._measured(), *self._costs()]
        counts = (f"{n} {noun if n == 1 else f'{noun}s'}" for n, noun in
                  ((len(self.tasks), "task"), (len(self.seeds), "seed")))  # fmt: skip
        title = f"{self.name}: {self.scenario}-incremental, {', '.join(counts)}"
        # error messages may have several lines
        return Table(title, columns, self._caption(), [" ".join(note.split()) for note in notes])

    def _caption(self) -> str:
        label, scores = self._kind.label, self.scores
        parts = [f"{label} in %" if self._percent else label]
        if self._lower_is_better:
            parts.append("lower is better")
        if len(self.seeds) > 1:
            parts.append("mean ± standard deviation over seeds")
        parts.append("forgetting: drop from the best; backward, forward: transfer, + is a gain")
        incomplete = [
            " ".join(name.split()) for name, score in scores.items() if not score.complete
        ]
        if incomplete and len(scores) > 1:
            parts.append(
                f"never marked as best, as labels were not learned: {', '.join(incomplete)}"
            )
        return " · ".join(parts)

    def _measured(self) -> Iterator[Column]:
        scores, label = list(self.scores.values()), self._kind.label
        label = label if label.isupper() else label.lower()
        ends = [score.mean("average") for score in scores]
        places = 2 if self._percent else decimals(v for v in ends if np.isfinite(v))
        for measure, (heading, more) in _SHOWN.items():
            if measure == "forward_transfer" and self.scenario == "class":
                continue  # unseen classes cannot be predicted
            means = [self._scale * score.mean(measure) for score in scores]
            cells = []
            for mean, score in zip(means, scores, strict=True):
                plain = format_number(mean, places).replace("-", "−")
                text = format_signed(mean, places) if "transfer" in measure else plain
                cells.append(plus_minus(text, self._scale * score.deviation(measure), places))
            whole = [m for m, s in zip(means, scores, strict=True) if np.isfinite(m) and s.complete]
            best: set[int] = set()
            if whole and len(scores) > 1:
                # for errors the signs of transfer and forgetting are reversed
                averages = measure in {"average", "average_incremental"}
                higher = not self._lower_is_better if averages else more
                top = (max if higher else min)(whole)
                best = {i for i, m in enumerate(means) if m == top and scores[i].complete}
            yield Column(heading.format(label), cells, best)

    def _costs(self) -> Iterator[Column]:
        """Yield the costs that were measured."""
        for heading, cost, scale, limit in (
            ("prototypes", "prototypes", 1.0, 0),
            ("KiB", "nbytes", 1.0 / 1024.0, 1),
            ("ms to learn a row", "learning_seconds", 1000.0, 4),
            ("ms to predict a row", "prediction_seconds", 1000.0, 4),
            ("rows again", "repeated", 1.0, 0),
        ):
            values = [getattr(score, cost) for score in self.scores.values()]
            scaled = [None if value is None else scale * value for value in values]
            places = min(limit, max(0, decimals(scaled) - 1))
            if any(value is not None for value in scaled):
                yield Column(heading, [format_number(value, places) for value in scaled])

    # -- figures -----------------------------------------------------------------------------------

    @public
    def plot(self, path: str | os.PathLike[str] | None = None) -> Any:
        """Plot the mean over the tasks so far after each experience, with bands of ± 1 deviation.

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
        lines, x = [], np.arange(1, len(self.experiences) + 1)
        for name, score in self.scores.items():
            each = self._scale * np.array([scores.so_far for scores in task_scores(score)])
            with np.errstate(invalid="ignore"):  # undefined for infinite errors
                spread = each.std(axis=0, ddof=1) if len(each) > 1 else None
            lines.append(Line(name, x, each.mean(axis=0), spread))
        labels = ("experiences learned", self._label, f"{self.name}: mean over the tasks so far")
        return learning_curves(lines, labels, path, lower_is_better=self._lower_is_better)

    @public
    def plot_matrix(self, path: str | os.PathLike[str] | None = None) -> Any:
        """Plot R of each model as a heat map; parameters and errors as in :meth:`plot`."""
        shown = {name: self._scale * score.accuracy_matrix for name, score in self.scores.items()}
        values = np.concatenate([matrix[np.isfinite(matrix)] for matrix in shown.values()])
        low = 0.0 if self._percent or self._lower_is_better else float(values.min(initial=0.0))
        # upper end of the colour map: 100 %, or the 0.95 quantile
        high = 100.0 if self._percent else float(np.quantile(values, 0.95)) if len(values) else 1.0
        across = min(_COLUMNS, len(shown))
        down = math.ceil(len(shown) / across)
        size = (2.7 * across + 0.8, 2.6 * down + 0.3)
        with new_figure(size, path) as figure:
            grid = figure.subplots(down, across, squeeze=False)
            for axes in grid.flat[len(shown) :]:
                axes.set_axis_off()
            for axes, (name, matrix) in zip(grid.flat, shown.items(), strict=False):
                image = heat_map(
                    axes, matrix, (self.experiences, self.tasks), (low, high or 1.0),
                    lower_is_better=self._lower_is_better,
                )  # fmt: skip
                title = fill(name, _TITLE)
                axes.set_title(title, loc="left", fontsize=8, color=DARK, parse_math=False)
                axes.set_xlabel("tested on")
                axes.set_ylabel("after learning")
            bar = figure.colorbar(image, ax=grid, shrink=0.8 / down, pad=0.02)
            bar.set_label(self._label)
            bar.outline.set_visible(False)
        return figure

    @property
    def _label(self) -> str:
        return f"{self._kind.label}, %" if self._percent else self._kind.label
