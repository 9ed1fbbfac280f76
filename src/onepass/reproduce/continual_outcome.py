"""What came of the experiment ``continual``: a table a stream, a page, and numbers of each run."""

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from onepass.evaluate import ContinualReport
from onepass.reproduce.continual_figure import drawn
from onepass.reproduce.continual_learners import TITLES
from onepass.reproduce.continual_streams import STREAMS
from onepass.reproduce.shown import Shown, paired
from onepass.serialization.atomic import writing

__all__ = ["ContinualOutcome"]

_FORMAT = 1
_NONE = "–"
_MEGABYTE = 1e6


@dataclass(frozen=True, eq=False)
class ContinualOutcome(Shown):
    """What came of all streams.

    Parameters
    ----------
    name : str
        ``"continual-results"``.
    title : str
        What is shown.
    setup : dict of str to Any
        All that was set, in plain values: enough to repeat it.
    reports : dict of str to ContinualReport
        What came of each stream, by its name on the command line.
    settings : dict of str to dict of str to str
        Stream and learner -> how it is made.

    Notes
    -----
    The CSV has a row for each run: stream, learner, seed, measures and costs. The figure has a
    panel for each stream: the learners at its end, and what is published of them.
    """

    columns: ClassVar[list[str]] = [
        "stream", "learner", "paper", "here", "difference", "p of first", "forgetting",
        "backward", "prototypes", "MB", "ms a row", "seconds", "rows again",
    ]  # fmt: skip
    _groups: ClassVar[int] = 1

    name: str
    title: str
    setup: dict[str, Any]
    reports: dict[str, ContinualReport]
    settings: dict[str, dict[str, str]]

    def chance(self, stream: str, learner: str) -> float | None:
        """How probable such a difference to the stream's first learner is, were there none.

        p of a paired t-test over seeds, not corrected for their number; None of the first itself,
        of fewer than two seeds, and where all differ by the same.

        Parameters
        ----------
        stream, learner : str
            Names as on the command line.

        Raises
        ------
        KeyError
            If there is none of that name.
        """
        scores = self.reports[stream].scores
        first = next(iter(scores))
        return paired(*(scores[name].values("average") for name in (learner, first)))

    def to_dict(self) -> dict[str, Any]:
        """All of it as dicts, lists, text and numbers."""
        return {
            "format": _FORMAT,
            "name": self.name,
            "title": self.title,
            "setup": self.setup,
            "settings": self.settings,
            "reports": {name: json.loads(one.to_json()) for name, one in self.reports.items()},
        }

    def to_markdown(self) -> str:
        """The page: a table a stream, who cannot work there and why, and all settings."""
        lines = [f"# {self.title}", "", self._caption(), "", f"![{self.title}]({self.name}.png)"]
        heads = self.columns[1:]
        for name, report in self.reports.items():
            stream = STREAMS[name]
            lines += ["", f"## {stream.title}", "", f"{stream.about} {self._draws(name)}.", ""]
            lines += ["| " + " | ".join(heads) + " |", "| --- |" + " ---: |" * (len(heads) - 1)]
            lines += [f"| {' | '.join(row[1:])} |" for row in self._of(name)]
            noted = {key: one.notes for key, one in report.scores.items() if one.notes}
            if noted:
                lines += ["", *(f"- {TITLES[key]}: {'; '.join(n)}" for key, n in noted.items())]
        lines += ["", "## Settings", "", "What differs between streams is named with them.", ""]
        return "\n".join([*lines, *self._set(), ""])

    def published(self) -> str:
        """Those of whom there are published numbers, as a table in Markdown."""
        heads = ["data", "learner", "paper", "here", "difference", "MB", "seconds", "rows again"]
        chosen = [self.columns.index(head) for head in ("stream", "learner", *heads[2:])]
        rows = [[row[i] for i in chosen] for row in self._rows() if row[2] != _NONE]
        sides = ["---"] * 2 + ["---:"] * (len(heads) - 2)
        return "\n".join("| " + " | ".join(row) + " |" for row in [heads, sides, *rows]) + "\n"

    def save(self, directory: str | os.PathLike[str]) -> list[Any]:
        """Write the page, its figure and all numbers; and of each stream its whole report.

        Parameters
        ----------
        directory : path
            Made if it is not there.

        Returns
        -------
        paths : list of Path
            The page, its figure and numbers; reports lie in a folder a stream.

        Raises
        ------
        MissingExtraError
            If matplotlib is not installed: then all but figures is written.
        SourceError
            If a file cannot be written.
        """
        paths = super().save(directory)
        for name, report in self.reports.items():
            with writing(paths[0].parent / name, "ContinualOutcome.save"):
                report.save(paths[0].parent / name)
        return paths

    def _caption(self) -> str:
        metrics = {report.metric for report in self.reports.values()}
        errors = "RMSE, which is better where it is lower"
        kinds = {
            "accuracy": "Accuracy in %",
            "rmse": errors if len(metrics) == 1 else f"of kin40k {errors}",
        }
        said = ", ".join(text for metric, text in kinds.items() if metric in metrics)
        return (
            f"{said}; mean ± standard deviation over seeds. p of a paired t-test with the first "
            "learner of the stream; forgetting: loss from the best that was known of a task; "
            "backward: what later tasks brought to earlier ones; MB: the most kept from row to "
            "row, a network's weights among them; seconds: to learn the stream once through, on "
            "one core; rows again: how often a row was learned a second time, 0 in one pass."
        )

    def _draws(self, name: str) -> str:
        n, scale = len(self.reports[name].seeds), self.setup["scale"]
        part = "" if scale == 1.0 else f", {scale:g} of the rows"
        return f"{n} {'seed' if n == 1 else 'seeds'}{part}"

    def _rows(self) -> Iterator[list[str]]:
        for name in self.reports:
            yield from self._of(name)

    def _of(self, name: str) -> Iterator[list[str]]:
        """The rows of a stream."""
        report = self.reports[name]
        share = report.metric == "accuracy"
        scale, places = (100.0, 2) if share else (1.0, 3)
        for key, one in report.scores.items():
            paper = STREAMS[name].published.get(key) if self.setup["scale"] == 1.0 else None
            mean, spread = scale * one.mean("average"), scale * one.deviation("average")
            chance, row = self.chance(name, key), one.learning
            yield [
                STREAMS[name].title,
                TITLES[key],
                _NONE if paper is None else _spread(*paper, places),
                _spread(mean, spread, places),
                _NONE if paper is None else _signed(mean - paper[0], places),
                _NONE if chance is None else f"{chance:.1g}",
                _signed(scale * one.mean("forgetting"), places, plus=""),
                _signed(scale * one.mean("backward_transfer"), places),
                _NONE if one.prototypes is None else f"{one.prototypes:,.0f}",
                _NONE if one.nbytes is None else f"{one.nbytes / _MEGABYTE:,.1f}",
                _NONE if row is None else f"{1000.0 * row:.2f}",
                _NONE if row is None else f"{row * one.rows:,.0f}",
                _NONE if one.repeated is None else f"{one.repeated:,.0f}",
            ]

    def _tables(self) -> Iterator[dict[str, Any]]:
        """Runs: stream, learner, seed, measures and costs."""
        return map(self._runs, self.reports)

    def _draw(self, path: str | os.PathLike[str] | None) -> Any:
        """A panel a stream: each learner at the end, and what is published of it."""
        return drawn(self.title, self.reports, path, paper=self.setup["scale"] == 1.0)

    def _runs(self, name: str) -> dict[str, Any]:
        """The runs of a stream as columns."""
        scores = self.reports[name].scores
        runs = [(key, run) for key, one in scores.items() for run in one.runs]
        plain = ("rows", "nbytes", "prototypes", "repeated", "learning", "answering")
        measures = ("average", "average_incremental", "forgetting", "backward_transfer")
        values = {
            measure: np.concatenate([one.values(measure) for one in scores.values()])
            for measure in (*measures, "forward_transfer")
        }
        return {
            "stream": np.array([name] * len(runs), dtype=object),
            "learner": np.array([key for key, _ in runs], dtype=object),
            "seed": np.array([run.seed for _, run in runs]),
            **{measure: np.round(of, 5) for measure, of in values.items()},
            **{what: _numbers([getattr(run, what) for _, run in runs]) for what in plain},
        }

    def _set(self) -> list[str]:
        """How learners were made, once where they are made alike."""
        said: dict[tuple[str, str], list[str]] = {}
        for stream, makers in self.settings.items():
            for key, made in makers.items():
                said.setdefault((key, made), []).append(stream)
        order = sorted(said, key=lambda one: list(TITLES).index(one[0]))
        return [f"- {TITLES[key]}: `{made}` ({', '.join(said[key, made])})" for key, made in order]


def _spread(mean: float, deviation: float | None, places: int) -> str:
    text = f"{mean:.{places}f}"
    known = deviation is not None and np.isfinite(deviation)
    return f"{text} ± {deviation:.{places}f}" if known else text


def _signed(value: float, places: int, plus: str = "+") -> str:
    if not np.isfinite(value):
        return _NONE
    return f"{round(value, places) + 0.0:{plus}.{places}f}".replace("-", "−")


def _numbers(values: list[float | None]) -> Any:
    return np.array([np.nan if value is None else value for value in values], dtype=float)
