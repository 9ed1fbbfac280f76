"""Comparison of one-pass learners and network baselines on continual-learning streams.

Learners that learn each row once and store no rows are compared with networks that are regularised,
grow, or store rows. The streams are Split MNIST and Split Fashion-MNIST (20,000 rows, and all
rows), Rotated and Permuted MNIST, and kin40k, a robot arm whose working region moves. After each
task all tasks are tested by :func:`onepass.evaluate.continual`. A page with one table per stream
and a figure with one panel per stream show the average over tasks after the last task.

Streams, learners and their settings are in :mod:`onepass_experiments.continual_learners`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

import numpy as np
from threadpoolctl import threadpool_limits

from onepass import validation
from onepass.errors import ParameterError, calling, import_extra
from onepass.evaluate import ContinualReport
from onepass.evaluate import continual as evaluated
from onepass.evaluate.figures import COLOURS, GREY, Dots, dot_plots
from onepass.evaluate.tables import MISSING, format_number, format_signed, markdown, plus_minus
from onepass.stream import Experiences, Images
from onepass.types import ArrayLike, Floats
from onepass_experiments.continual_learners import (
    NETWORKS,
    STREAMS,
    TITLES,
    Stream,
    check_data,
    load_data,
    settings_of,
)
from onepass_experiments.outcome import ExperimentOutcome, as_columns, paired


@calling("ContinualOutcome.plot")
def comparison_figure(
    title: str,
    reports: Mapping[str, ContinualReport],
    path: str | os.PathLike[str] | None,
    *,
    paper: bool,
) -> Any:
    """Plot each learner's final average ± standard deviation, and the published numbers.

    Parameters
    ----------
    title : str
    reports : mapping of str to ContinualReport
        Stream name -> report.
    path : path or None
        File to write.
    paper : bool
        Whether to show published numbers, which apply to the full number of rows.
    """
    return dot_plots(title, dict(_dots(*pair, paper=paper) for pair in reports.items()), path)


def _dots(
    name: str, report: ContinualReport, *, paper: bool
) -> tuple[str, tuple[list[str], list[Dots]]]:
    """Return the title of the plot of a stream, its learners, and their results."""
    stream, scores = STREAMS[name], report.scores
    share = report.metric == "accuracy"
    scale, places = (100.0, 1) if share else (1.0, 2)
    means = np.array([scale * one.mean("average") for one in scores.values()])
    spreads = [scale * one.deviation("average") for one in scores.values()]
    once = np.array([one.repeated == 0 for one in scores.values()])
    known = [stream.published.get(key, (np.nan, None))[0] for key in scores] if paper else []
    series = [
        Dots("one pass", COLOURS[0], np.where(once, means, np.nan), spreads, places=places),
        Dots("repeats rows", COLOURS[1], np.where(once, np.nan, means), spreads, places=places),
        *([Dots("published", GREY, known, mark="|")] if paper else []),
    ]
    title = f"{stream.title}, {'accuracy, %' if share else 'RMSE'}"
    return title, ([TITLES[key] for key in scores], series)


_MEGABYTE = 1e6
_NOT_RUN = "<!-- not run: trains all learners on all streams -->"
_USAGE = (
    "The command prints these tables and stores each finished run in runs/continual. After an "
    "interruption the same command continues. `--streams` and `--methods` (names as in the column "
    "*learner*), `--draws` and `--scale` reduce it."
)


@dataclass(frozen=True, eq=False)
class ContinualOutcome(ExperimentOutcome):
    """Outcome of the experiment ``continual``.

    Parameters
    ----------
    name : str
        ``"continual-results"``.
    title : str
        Title of the page and the figure.
    setup : dict of str to Any
        All settings as plain values, sufficient to repeat the run.
    reports : dict of str to ContinualReport
        Stream name on the command line -> report.
    settings : dict of str to dict of str to str
        Stream -> learner -> constructor call.

    Notes
    -----
    The CSV has one row per run: stream, learner, seed, measures and costs. The figure has one panel
    per stream with the final averages and the published numbers.
    """

    columns: ClassVar[list[str]] = [
        "stream", "learner", "paper", "here", "difference", "p vs. first", "forgetting",
        "backward transfer", "prototypes", "MB", "ms per row", "seconds", "repeated rows",
    ]  # fmt: skip
    _groups: ClassVar[int] = 1

    name: str
    title: str
    setup: dict[str, Any]
    reports: dict[str, ContinualReport]
    settings: dict[str, dict[str, str]]

    def p_value(self, stream: str, learner: str) -> float | None:
        """Return the p-value of a paired t-test against the first learner of the stream.

        The test pairs seeds and is not corrected for multiple comparisons. None for the first
        learner itself, for fewer than two seeds, and if all seeds differ by the same amount.

        Parameters
        ----------
        stream, learner : str
            Names as on the command line.

        Raises
        ------
        KeyError
            If there is no such stream or learner.
        """
        scores = self.reports[stream].scores
        first = next(iter(scores))
        return paired(*(scores[name].values("average") for name in (learner, first)))

    def to_markdown(self) -> str:
        """Return the page: the command, one table per stream, known limits, and all settings."""
        lines = [f"# {self.title}", "", _NOT_RUN, "```bash", self._command(), "```", "", _USAGE]
        lines += ["", self._caption(), "", f"![{self.title}]({self.name}.png)"]
        for name, report in self.reports.items():
            stream = STREAMS[name]
            about = f"{stream.about} {self._draws(name)}. Name for `--streams`: `{name}`."
            lines += ["", f"## {stream.title}", "", about, ""]
            lines += markdown(as_columns(self.columns, self._of(name), self._words)[1:])
            noted = {key: one.notes for key, one in report.scores.items() if one.notes}
            if noted:
                lines += ["", *(f"- {TITLES[key]}: {'; '.join(n)}" for key, n in noted.items())]
        lines += ["", "## Settings", "", "The streams that share a setting are in parentheses.", ""]
        return "\n".join([*lines, *self._set(), ""])

    def published(self) -> str:
        """Return a Markdown table of the learners with published numbers."""
        heads = ["data", "learner", "paper", "here", "difference", "MB", "seconds", "repeated rows"]
        chosen = [self.columns.index(head) for head in ("stream", "learner", *heads[2:])]
        rows = [[row[i] for i in chosen] for row in self._rows() if row[2] != MISSING]
        return "\n".join(markdown(as_columns(heads, rows, self._words))) + "\n"

    def save(self, directory: str | os.PathLike[str]) -> list[Path]:
        """Write the page, its figure, all numbers, and the full report of each stream.

        Parameters
        ----------
        directory : path
            Created if it does not exist.

        Returns
        -------
        paths : list of Path
            The page, its figure and numbers. The reports are in one folder per stream.

        Raises
        ------
        MissingExtraError
            If matplotlib is not installed. Everything but the figures is written.
        SourceError
            If a file cannot be written.
        """
        paths = super().save(directory)
        for name, report in self.reports.items():
            report.save(paths[0].parent / name)
        return paths

    def _caption(self) -> str:
        metrics = {report.metric for report in self.reports.values()}
        errors = "RMSE (lower is better)"
        kinds = {
            "accuracy": "Accuracy in %",
            "rmse": errors if len(metrics) == 1 else f"{errors} for kin40k",
        }
        measures = ", ".join(text for metric, text in kinds.items() if metric in metrics)
        return (
            f"{measures}; mean ± standard deviation over seeds. p vs. first: p-value of a paired "
            "t-test against the first learner of the stream; forgetting: drop from the best "
            "result on a task; backward transfer: effect of later tasks on earlier ones; MB: "
            "largest state between rows, including a network's weights; seconds: one pass over "
            "the stream on one core; repeated rows: visits to rows beyond the first, 0 in one pass."
        )

    def _command(self) -> str:
        """Return the command that repeats the experiment."""
        setup, draws = self.setup, self.setup["draws"]
        words = ["onepass reproduce continual"]
        if set(setup["streams"]) != set(STREAMS):
            words.append(f"--streams {','.join(setup['streams'])}")
        if set(setup["methods"]) != set(TITLES):
            words.append(f"--methods {','.join(TITLES[key] for key in setup['methods'])}")
        if any(STREAMS[name].draws != n for name, n in draws.items()):
            words.append(f"--draws {max(draws.values())}")
        if setup["scale"] != 1.0:
            words.append(f"--scale {setup['scale']:g}")
        return " ".join(words)

    def _draws(self, name: str) -> str:
        n, scale = len(self.reports[name].seeds), self.setup["scale"]
        part = "" if scale == 1.0 else f", {scale:g} of the rows"
        return f"{n} {'seed' if n == 1 else 'seeds'}{part}"

    def _rows(self) -> Iterator[list[str]]:
        for name in self.reports:
            yield from self._of(name)

    def _of(self, name: str) -> Iterator[list[str]]:
        """Yield the table rows of a stream."""
        report = self.reports[name]
        share = report.metric == "accuracy"
        scale, places = (100.0, 2) if share else (1.0, 3)
        for key, one in report.scores.items():
            paper = STREAMS[name].published.get(key) if self.setup["scale"] == 1.0 else None
            mean, spread = scale * one.mean("average"), scale * one.deviation("average")
            p_value, row = self.p_value(name, key), one.learning_seconds
            published = plus_minus(f"{paper[0]:.{places}f}", paper[1], places) if paper else MISSING
            lost = format_number(scale * one.mean("forgetting"), places).replace("-", "−")
            yield [
                STREAMS[name].title,
                TITLES[key],
                published,
                plus_minus(f"{mean:.{places}f}", spread, places),
                format_signed(None if paper is None else mean - paper[0], places),
                MISSING if p_value is None else f"{p_value:.1g}",
                lost,
                format_signed(scale * one.mean("backward_transfer"), places),
                format_number(one.prototypes, 0),
                format_number(None if one.nbytes is None else one.nbytes / _MEGABYTE, 1),
                format_number(None if row is None else 1000.0 * row, 2),
                format_number(None if row is None else row * one.rows, 0),
                format_number(one.repeated, 0),
            ]

    def _values(self) -> Iterator[dict[str, Any]]:
        """Yield one record per run: stream, learner, seed, measures and costs."""
        costs = {name: name for name in ("rows", "nbytes", "prototypes", "repeated")}
        costs |= {"learning": "learning_seconds", "answering": "prediction_seconds"}
        measures = ("average", "average_incremental", "forgetting", "backward_transfer",
                    "forward_transfer")  # fmt: skip
        for name, report in self.reports.items():
            for key, one in report.scores.items():
                values = {measure: one.values(measure).round(5) for measure in measures}
                for i, run in enumerate(one.runs):
                    row = {"stream": name, "learner": key, "seed": run.seed}
                    row |= {measure: float(found[i]) for measure, found in values.items()}
                    yield row | {cost: getattr(run, name) for cost, name in costs.items()}

    def plot(self, path: str | os.PathLike[str] | None = None) -> Any:
        """Plot final averages and published numbers, one panel per stream.

        Parameters and errors as of ``Report.plot``.
        """
        return comparison_figure(self.title, self.reports, path, paper=self.setup["scale"] == 1.0)

    def _set(self) -> list[str]:
        """Return one line per learner and setting, with the streams that use it."""
        streams_by_settings: dict[tuple[str, str], list[str]] = {}
        for stream, makers in self.settings.items():
            for key, made in makers.items():
                streams_by_settings.setdefault((key, made), []).append(stream)
        order = sorted(streams_by_settings, key=lambda one: list(TITLES).index(one[0]))
        return [
            f"- {TITLES[key]}: `{made}` ({', '.join(streams_by_settings[key, made])})"
            for key, made in order
        ]


Progress: TypeAlias = Callable[[int, int], object]

_BATCH = 10  # rows per step of networks that learn each row once


@calling("continual")
def continual(
    data: Mapping[str, Images | tuple[ArrayLike, ArrayLike]] | None = None,
    *,
    streams: Iterable[str] | None = None,
    methods: Iterable[str] | None = None,
    draws: int | None = None,
    scale: float = 1.0,
    processes: int = 1,
    path: str | os.PathLike[str] | None = None,
    clock: Callable[[], float] | None = None,
    progress: Progress | None = None,
) -> ContinualOutcome:
    """Compare one-pass learners and networks by final accuracy, forgetting, memory and time.

    Parameters
    ----------
    data : mapping, optional
        ``"mnist"`` and ``"fashion-mnist"`` as Images, ``"kin40k"`` as (X, y). By default loaded or
        downloaded by ``op.stream``.
    streams, methods : iterable of str, optional
        Some of :func:`continual_names`; by default all.
    draws : int, optional
        Number of seeds, which determine rows, their order, initial weights and random choices of
        learners. By default 5; 1 for Rotated and Permuted MNIST, which are long; 3 for kin40k.
    scale : float, default=1.0
        Fraction of training and test rows, in (0, 1], for a quick run.
    processes : int, default=1
        Number of processes for parallel runs, each on one thread.
    path : path, optional
        Folder in which completed runs are stored. A later call computes only the missing runs.
    clock : callable, optional
        Returns seconds; measures the time per row.
    progress : callable, optional
        Called with the number of tasks learned in all runs and the total.

    Returns
    -------
    outcome : ContinualOutcome

    Raises
    ------
    ParameterError
        If a name is unknown, ``data`` contains anything else, a number is out of range, or ``path``
        is not a folder or contains runs with other settings.
    MissingExtraError
        If networks are selected and torch is not installed.
    SourceError
        If a required data set is not available.
    """
    if draws is not None:
        validation.whole(draws, "draws", low=1)
    validation.whole(processes, "processes", low=1)
    validation.in_range(scale, "scale", above=0.0, high=1.0)
    selected = _selected({"streams": streams, "methods": methods})
    plan = _plan(**selected)
    if any(name in NETWORKS["split"] for some in plan.values() for name in some):
        import_extra("torch", extra="torch")
    of = {name: draws or STREAMS[name].draws for name in plan}
    total = sum(len(some) * of[name] * STREAMS[name].tasks for name, some in plan.items())
    known = check_data(data)
    reports: dict[str, ContinualReport] = {}
    past = 0
    for name, some in plan.items():
        stream = STREAMS[name]
        if stream.data not in known:
            known[stream.data] = load_data(stream.data)
        with threadpool_limits(1):
            reports[name] = evaluated(
                {key: stream.learners[key] for key in some},
                _StreamFactory(stream, known[stream.data], scale),
                seeds=of[name],
                jobs=processes,
                path=None if path is None else Path(path) / name,
                batch=_BATCH,
                clock=clock,
                on_progress=progress and (lambda done, past=past: progress(past + done, total)),
            )
        past += len(some) * of[name] * stream.tasks
        if progress is not None:
            progress(past, total)
    setup = {"draws": of, "scale": scale, **selected}
    settings = {n: settings_of({k: STREAMS[n].learners[k] for k in s}) for n, s in plan.items()}
    title = "Continual learning: average over tasks after the last task"
    return ContinualOutcome("continual-results", title, setup, reports, settings)


def continual_names() -> dict[str, list[str]]:
    """Return the choices of ``streams`` and ``methods`` of :func:`continual`."""
    return {"streams": list(STREAMS), "methods": list(TITLES.values())}


class _StreamFactory:
    """Picklable factory of a stream from a seed."""

    def __init__(self, stream: Stream, data: Images | tuple[Floats, Floats], scale: float) -> None:
        self._make, self._data, self._scale = stream.make, data, scale

    def __call__(self, seed: int) -> Experiences:
        return self._make(self._data, self._scale, seed)


def _selected(given: dict[str, Iterable[str] | None]) -> dict[str, list[str]]:
    """Return the selected streams and methods by name."""
    known = continual_names()
    found = {w: validation.check_subset(given[w], known[w], w) for w in known}
    keys = {title: key for key, title in TITLES.items()}
    return {**found, "methods": [keys[title] for title in found["methods"]]}


def _plan(streams: list[str], methods: list[str]) -> dict[str, list[str]]:
    """Return the selected learners of each stream, in the order of the tables."""
    plan = {n: [key for key in TITLES if key in methods and key in STREAMS[n].learners]
            for n in streams}  # fmt: skip
    if not any(plan.values()):
        raise ParameterError(
            "`methods` must apply to at least one of the streams, got "
            f"{', '.join(TITLES[key] for key in methods)} for {', '.join(streams)}. "
            "Choose others, for example RLS-filters for split streams.",
            "continual",
        )
    return {name: some for name, some in plan.items() if some}
