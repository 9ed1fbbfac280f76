"""Report of a continual evaluation: scores by model, tables, figures, frames, CSV and JSON."""

import csv
import io
import json
import math
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from rich.table import Table as RichTable

from onepass.errors import ParameterError
from onepass.evaluate.continual_figures import draw_curves, draw_matrices
from onepass.evaluate.continual_measures import MEASURES, ContinualScore, pairs
from onepass.evaluate.continual_run import Run
from onepass.evaluate.continual_tables import SCENARIOS, to_latex, to_markdown, to_rich
from onepass.evaluate.metrics import METRICS
from onepass.evaluate.report import frame, reread, spelt
from onepass.evaluate.tables import plain
from onepass.serialization.atomic import writing

__all__ = ["ContinualReport"]


_COSTS = ("nbytes", "prototypes", "repeated", "learning", "answering")


def _scores(report: "ContinualReport") -> Iterator[dict[str, Any]]:
    """One for each model: means and deviations over the seeds, and costs."""
    for name, score in report.scores.items():
        row: dict[str, Any] = {"model": name, "metric": report.metric, "seeds": len(score.runs)}
        for measure in MEASURES:
            row[measure] = _known(score.mean(measure))
            row[f"{measure}_deviation"] = _known(score.deviation(measure))
        row |= {cost: getattr(score, cost) for cost in _COSTS}
        yield row | {"rows": score.rows, "notes": "; ".join(score.notes)}


def _runs(report: "ContinualReport") -> Iterator[dict[str, Any]]:
    """One for each model and seed: tidy, with all numbers in full."""
    for name, score in report.scores.items():
        values = {measure: score.values(measure) for measure in MEASURES}
        for i, run in enumerate(score.runs):
            row: dict[str, Any] = {"model": name, "seed": run.seed, "metric": report.metric}
            row |= {measure: _known(float(each[i])) for measure, each in values.items()}
            row |= {cost: getattr(run, cost) for cost in _COSTS}
            yield row | {"rows": run.rows, "stopped": run.stopped}


def _matrix(report: "ContinualReport") -> Iterator[dict[str, Any]]:
    """One for each model, seed, experience and task; experience 0 is before learning."""
    for run in report.runs:
        for i, row in enumerate([run.before, *run.matrix]):
            for j, value in enumerate(row):
                yield {
                    "model": run.model,
                    "seed": run.seed,
                    "experience": i,
                    "after": "" if i == 0 else report.experiences[i - 1],
                    "task": report.tasks[j],
                    report.metric: value,
                }


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value


_RECORDS: dict[str, Callable[["ContinualReport"], Iterable[dict[str, Any]]]] = {
    "scores": _scores,
    "runs": _runs,
    "matrix": _matrix,
    "pairs": lambda report: pairs(report.scores),
}


_FORMAT = 1


@dataclass(frozen=True, repr=False)
class ContinualReport:
    """What learners knew of all tasks after each experience.

    With one model the measures are numbers and arrays: ``report.forgetting``; with several they
    are dicts of them by name, as ``report.scores`` is of all that came of each.

    Parameters
    ----------
    name : str
        Of the stream of tasks.
    scenario : {"class", "task", "domain"}
        What the models were to say, and were told.
    task : {"regression", "classification"}
        What the models did.
    metric : str
        Name from ``METRICS[task]``.
    tasks : tuple of str
        What was tested, in order.
    experiences : tuple of str
        What was learned, in order: the tasks, unless they have no borders.
    runs : tuple of Run
        All models and seeds.

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

    name: str
    scenario: str
    task: str
    metric: str
    tasks: tuple[str, ...]
    experiences: tuple[str, ...]
    runs: tuple[Run, ...]

    # -- what came of it ---------------------------------------------------------------------------

    @property
    def scores(self) -> dict[str, ContinualScore]:
        """All that came of each model, by its name."""
        names = dict.fromkeys(run.model for run in self.runs)
        sign = 1.0 if METRICS[self.task][self.metric].better == "higher" else -1.0
        return {
            name: ContinualScore(name, [run for run in self.runs if run.model == name], sign)
            for name in names
        }

    def __getitem__(self, model: str) -> ContinualScore:
        return self.scores[model]

    @property
    def seeds(self) -> list[int]:
        """Of all runs."""
        return list(dict.fromkeys(run.seed for run in self.runs))

    @property
    def accuracy_matrix(self) -> Any:
        """R, (I, J): after experience i on the rows to test of task j; mean over the seeds."""
        return self._each("accuracy_matrix")

    @property
    def error_matrix(self) -> Any:
        """The same, of a metric that is an error."""
        return self._each("accuracy_matrix")

    @property
    def average_accuracy(self) -> Any:
        """Over all tasks after the last experience."""
        return self._each("average_accuracy")

    @property
    def average_error(self) -> Any:
        """The same, of a metric that is an error."""
        return self._each("average_accuracy")

    @property
    def average_incremental_accuracy(self) -> Any:
        """Over the tasks so far after each experience, and then over experiences."""
        return self._each("average_incremental_accuracy")

    @property
    def forgetting(self) -> Any:
        """What was lost of the best that was known of a task."""
        return self._each("forgetting")

    @property
    def backward_transfer(self) -> Any:
        """What later tasks brought to earlier ones, or took from them where it is negative."""
        return self._each("backward_transfer")

    @property
    def forward_transfer(self) -> Any:
        """What earlier tasks brought to later ones before these came."""
        return self._each("forward_transfer")

    def compare(self, measure: str = "average", against: str | None = None) -> list[dict[str, Any]]:
        """Paired t-tests of models over the seeds that they share, two-sided.

        Parameters
        ----------
        measure : str
            A key of ``MEASURES``.
        against : str, optional
            Compare all with this model; all pairs without it.

        Returns
        -------
        pairs : list of dict
            ``model``, ``against``, ``n`` seeds, mean ``difference``, ``t``, ``p``, and ``p_holm``,
            which is p corrected for so many tests (Holm, 1979).

        Raises
        ------
        ParameterError
            If there is no such model or measure, or two models share fewer than two seeds.
        """
        return pairs(self.scores, measure, against)

    # -- how it is shown ---------------------------------------------------------------------------

    def __rich__(self) -> RichTable:
        return self.table()

    def __repr__(self) -> str:
        return f"<ContinualReport {self.name}: {', '.join(self.scores)}; {len(self.tasks)} tasks>"

    def __str__(self) -> str:
        return plain(to_rich(self))

    def table(self) -> RichTable:
        """Measures and costs for a terminal: ``rich.print(report.table())``."""
        return to_rich(self)

    def to_markdown(self) -> str:
        """Measures and costs as a table in Markdown."""
        return to_markdown(self)

    def to_latex(self) -> str:
        """Measures and costs as a table in LaTeX, for the package booktabs."""
        return to_latex(self)

    def plot(self, path: str | os.PathLike[str] | None = None) -> Any:
        """What is known of the tasks so far, after each experience.

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
        return draw_curves(self, path)

    def plot_matrix(self, path: str | os.PathLike[str] | None = None) -> Any:
        """R of each model as a heat map; as :meth:`plot` otherwise."""
        return draw_matrices(self, path)

    # -- how it is kept ----------------------------------------------------------------------------

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
        tree = {"format": _FORMAT, **asdict(self)}
        tree = {k: list(v) if isinstance(v, tuple) else v for k, v in tree.items()}
        text = json.dumps(spelt(tree), ensure_ascii=False, allow_nan=False)
        return self._written(text + "\n", path, "to_json")

    @classmethod
    def from_json(cls, source: str | os.PathLike[str]) -> "ContinualReport":
        """What ``to_json`` wrote.

        Parameters
        ----------
        source : str or path
            The text, which begins with ``{``, or the path of a file that holds it.

        Raises
        ------
        SourceError
            If there is no such file, or it is no report.
        """
        return reread(source, _restored, "ContinualReport.from_json", _FORMAT)

    def to_frame(
        self,
        library: Literal["pandas", "polars", "pyarrow"] | None = None,
        *,
        of: Literal["scores", "runs", "matrix", "pairs"] = "scores",
    ) -> Any:
        """A frame with a row for each model, each run, each number of R, or each pair of models.

        Parameters
        ----------
        library : {"pandas", "polars", "pyarrow"}, optional
            Whose frame to make; the first of these that is installed by default.
        of : {"scores", "runs", "matrix", "pairs"}
            What to give.

        Raises
        ------
        MissingExtraError
            If the library is not installed.
        ParameterError
            If there is no such thing to give.
        """
        rows = self._records(of, "to_frame")
        names = list(rows[0]) if rows else []
        columns = {name: [row[name] for row in rows] for name in names}
        return frame(columns, library, "ContinualReport.to_frame")

    def to_csv(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        of: Literal["scores", "runs", "matrix", "pairs"] = "runs",
    ) -> str:
        """The same as CSV; an empty cell where a number is not known.

        Parameters
        ----------
        path : path, optional
            Where to write it as well.
        of : {"scores", "runs", "matrix", "pairs"}
            What to give.
        """
        rows, text = self._records(of, "to_csv"), io.StringIO()
        writer = csv.DictWriter(text, list(rows[0]) if rows else [], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        return self._written(text.getvalue(), path, "to_csv")

    def save(self, directory: str | os.PathLike[str]) -> list[Path]:
        """Write continual.json, .md, .tex, -runs.csv, -matrix.csv, -curves.png and -matrix.png.

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
            If matplotlib is not installed: then all but the figures is written.
        """
        folder = Path(directory)
        with writing(folder, "ContinualReport.save"):
            folder.mkdir(parents=True, exist_ok=True)
        ends = (".json", ".md", ".tex", "-runs.csv", "-matrix.csv", "-curves.png", "-matrix.png")
        paths = [folder / f"continual{end}" for end in ends]
        self.to_json(paths[0])
        self._written(self.to_markdown(), paths[1], "save")
        self._written(self.to_latex(), paths[2], "save")
        self.to_csv(paths[3], of="runs")
        self.to_csv(paths[4], of="matrix")
        self.plot(paths[5])
        self.plot_matrix(paths[6])
        return paths

    def _each(self, what: str) -> Any:
        found = {name: getattr(score, what) for name, score in self.scores.items()}
        return next(iter(found.values())) if len(found) == 1 else found

    def _records(self, of: str, verb: str) -> list[dict[str, Any]]:
        if of not in _RECORDS:
            raise ParameterError(
                f"ContinualReport.{verb}: `of` must be one of {', '.join(map(repr, _RECORDS))}, "
                f"got {of!r}. Ask for one of these."
            )
        return list(_RECORDS[of](self))

    def _written(self, text: str, path: str | os.PathLike[str] | None, verb: str) -> str:
        if path is not None:
            with writing(path, f"ContinualReport.{verb}"):
                Path(path).write_text(text, encoding="utf-8")
        return text


def _restored(tree: dict[str, Any]) -> ContinualReport:
    if tree.pop("format") != _FORMAT:
        raise ValueError("another format")
    runs = tuple(Run.restored(run) for run in tree.pop("runs"))
    known: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in tree.items()}
    report = ContinualReport(**known, runs=runs)
    size = (len(report.experiences), len(report.tasks))
    if not runs or any((len(run.matrix), len(run.before)) != size for run in runs):
        raise ValueError("runs of other tasks, or none")
    if report.scenario not in SCENARIOS or report.metric not in METRICS[report.task]:
        raise ValueError(f"scenario {report.scenario!r} and metric {report.metric!r}")
    return report
