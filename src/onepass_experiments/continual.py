"""Continual learning in one table: one-pass learners beside networks, on streams of tasks.

Learners that see each row once and store none are compared with networks that are regularised,
grow, or store rows, on Split MNIST and Split Fashion-MNIST (few rows, and all), Rotated and
Permuted MNIST, and a robot arm whose working region moves. After each task all tasks are tested, by
:func:`onepass.evaluate.continual`: the average over tasks after the last one is shown, in a table a
stream, a page, and a figure with a panel a stream and a dot a learner.

Streams, learners and their settings are in :mod:`onepass_experiments.continual_learners`.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import numpy as np
from threadpoolctl import threadpool_limits

from onepass import validation
from onepass.errors import ParameterError, import_extra
from onepass.evaluate import ContinualReport
from onepass.evaluate import Progress as Step
from onepass.evaluate import continual as evaluated
from onepass.evaluate.figures import COLOURS, GREY, Dots, dots, legend_below, new_figure
from onepass.evaluate.report import FORMAT, infinities_as_text
from onepass.evaluate.tables import MISSING, format_number, format_signed, markdown, plus_minus
from onepass.serialization.atomic import write_errors
from onepass.stream import Experiences, Images
from onepass.types import ArrayLike, Floats
from onepass_experiments.continual_learners import (
    NETWORKS,
    STREAMS,
    TITLES,
    Stream,
    found,
    held,
    settings_of,
)
from onepass_experiments.outcome import ExperimentOutcome, as_columns, paired

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["ContinualOutcome", "continual", "continual_names", "drawn"]


_SIDE = 2  # panels beside each other
_WIDE, _HIGH, _HEAD = 4.6, 0.19, 0.75  # inches: a panel, a learner, and what is around


def drawn(
    title: str,
    reports: Mapping[str, ContinualReport],
    path: str | os.PathLike[str] | None,
    *,
    paper: bool,
) -> Any:
    """Each learner's average at the end ± its deviation, and what is published.

    Parameters
    ----------
    title : str
    reports : mapping of str to ContinualReport
        By the stream's name.
    path : path or None
        Where to write it.
    paper : bool
        Whether what is published is shown, which is of all rows.
    """
    names = list(reports)
    rows = [names[i : i + _SIDE] for i in range(0, len(names), _SIDE)]
    high = [_HEAD + _HIGH * max(len(reports[n].scores) for n in row) for row in rows]
    wide = min(_SIDE, len(names))
    size = (_WIDE * wide, sum(high) + 0.6)
    with new_figure(size, path, "ContinualOutcome.plot") as figure:
        panels = figure.subplots(len(rows), wide, squeeze=False, height_ratios=high).ravel()
        for axes in panels[len(names) :]:
            axes.set_visible(False)
        for axes, name in zip(panels, names, strict=False):
            _panel(axes, name, reports[name], paper=paper)
        figure.suptitle(title, fontsize=10)
        legend_below(figure)
    return figure


def _panel(axes: "Axes", name: str, report: ContinualReport, *, paper: bool) -> None:
    stream, scores = STREAMS[name], report.scores
    share = report.metric == "accuracy"
    scale, places = (100.0, 1) if share else (1.0, 2)
    means = np.array([scale * one.mean("average") for one in scores.values()])
    spreads = [scale * one.deviation("average") for one in scores.values()]
    once = np.array([one.repeated == 0 for one in scores.values()])
    known = [stream.published.get(key, (np.nan, None))[0] for key in scores] if paper else []
    kinds = [
        Dots("each row once", COLOURS[0], np.where(once, means, np.nan), spreads, places=places),
        Dots("rows again", COLOURS[1], np.where(once, np.nan, means), spreads, places=places),
        *([Dots("published", GREY, known, mark="|")] if paper else []),
    ]
    title = f"{stream.title}, {'accuracy, %' if share else 'RMSE'}"
    dots(axes, title, [TITLES[key] for key in scores], kinds)


_MEGABYTE = 1e6


@dataclass(frozen=True, eq=False)
class ContinualOutcome(ExperimentOutcome):
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

    def p_value(self, stream: str, learner: str) -> float | None:
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
            "format": FORMAT,
            "name": self.name,
            "title": self.title,
            "setup": self.setup,
            "settings": self.settings,
            "reports": {
                name: infinities_as_text(one.to_dict()) for name, one in self.reports.items()
            },
        }

    def to_markdown(self) -> str:
        """The page: a table a stream, who cannot work there and why, and all settings."""
        lines = [f"# {self.title}", "", self._caption(), "", f"![{self.title}]({self.name}.png)"]
        for name, report in self.reports.items():
            stream = STREAMS[name]
            lines += ["", f"## {stream.title}", "", f"{stream.about} {self._draws(name)}.", ""]
            lines += markdown(as_columns(self.columns, self._of(name), self._words)[1:])
            noted = {key: one.notes for key, one in report.scores.items() if one.notes}
            if noted:
                lines += ["", *(f"- {TITLES[key]}: {'; '.join(n)}" for key, n in noted.items())]
        lines += ["", "## Settings", "", "What differs between streams is named with them.", ""]
        return "\n".join([*lines, *self._set(), ""])

    def published(self) -> str:
        """Those of whom there are published numbers, as a table in Markdown."""
        heads = ["data", "learner", "paper", "here", "difference", "MB", "seconds", "rows again"]
        chosen = [self.columns.index(head) for head in ("stream", "learner", *heads[2:])]
        rows = [[row[i] for i in chosen] for row in self._rows() if row[2] != MISSING]
        return "\n".join(markdown(as_columns(heads, rows, self._words))) + "\n"

    def save(self, directory: str | os.PathLike[str]) -> list[Path]:
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
            with write_errors(paths[0].parent / name, "ContinualOutcome.save"):
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
        """One for each run: stream, learner, seed, measures and costs."""
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

    def _draw(self, path: str | os.PathLike[str] | None) -> Any:
        """A panel a stream: each learner at the end, and what is published of it."""
        return drawn(self.title, self.reports, path, paper=self.setup["scale"] == 1.0)

    def _set(self) -> list[str]:
        """How learners were made, once where they are made alike."""
        said: dict[tuple[str, str], list[str]] = {}
        for stream, makers in self.settings.items():
            for key, made in makers.items():
                said.setdefault((key, made), []).append(stream)
        order = sorted(said, key=lambda one: list(TITLES).index(one[0]))
        return [f"- {TITLES[key]}: `{made}` ({', '.join(said[key, made])})" for key, made in order]


Progress: TypeAlias = Callable[[int, int], object]

_BATCH = 10  # rows a step of networks that see each row once


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
    """One pass beside networks: what is left of the first tasks, and what that took.

    Parameters
    ----------
    data : mapping, optional
        ``"mnist"`` and ``"fashion-mnist"`` as Images, ``"kin40k"`` as (X, y); found or fetched as
        ``op.stream`` does, if not given.
    streams, methods : iterable of str, optional
        Which of :func:`continual_names`; all, if not given.
    draws : int, optional
        Seeds: of rows and their order, first weights and whatever a learner draws. By default 5,
        but 1 of Rotated and Permuted MNIST, which are long, and 3 of kin40k.
    scale : float, default=1.0
        Rows to learn and to test, as a share, in (0, 1]: for a quick look.
    processes : int, default=1
        In which runs are made side by side, each on one thread.
    path : path, optional
        A folder in which each run is kept when it is done; called again, only the others are made.
    clock : callable, optional
        Gives seconds, to tell the time a row takes.
    progress : callable, optional
        Called with the tasks learned in all runs and their number.

    Returns
    -------
    outcome : ContinualOutcome

    Raises
    ------
    ParameterError
        If a name is unknown, ``data`` holds something else, a number is out of range, or ``path``
        is no folder or holds runs of other settings.
    MissingExtraError
        If networks are wanted and torch is not installed.
    SourceError
        If a data set is wanted and cannot be had.
    """
    if draws is not None:
        validation.whole(draws, "draws", "continual", low=1)
    validation.whole(processes, "processes", "continual", low=1)
    validation.in_range(scale, "scale", "continual", above=0.0, high=1.0)
    if not isinstance(path, (str, os.PathLike, type(None))):
        raise ParameterError(
            f"continual: `path` must be a folder in which runs are kept, got {path!r}. Name one."
        )
    wanted = _wanted({"streams": streams, "methods": methods})
    plan = _plan(**wanted)
    if any(name in NETWORKS["split"] for some in plan.values() for name in some):
        import_extra("torch", extra="torch", where="continual")
    of = {name: draws or STREAMS[name].draws for name in plan}
    total = sum(len(some) * of[name] * STREAMS[name].tasks for name, some in plan.items())
    known = held(data)
    reports: dict[str, ContinualReport] = {}
    past = 0
    for name, some in plan.items():
        stream = STREAMS[name]
        if stream.data not in known:
            known[stream.data] = found(stream.data)
        told = _told(progress, past, total)
        with threadpool_limits(1):
            reports[name] = evaluated(
                {key: stream.learners[key] for key in some},
                _Drawn(stream, known[stream.data], scale),
                seeds=of[name],
                jobs=processes,
                path=None if path is None else Path(path) / name,
                batch=_BATCH,
                clock=clock,
                on_progress=told,
            )
        past += len(some) * of[name] * stream.tasks
        _told(progress, past, total)(None)
    setup = {"draws": of, "scale": scale, **wanted}
    settings = {n: settings_of({k: STREAMS[n].learners[k] for k in s}) for n, s in plan.items()}
    title = "Continual learning: the average over tasks after the last one"
    return ContinualOutcome("continual-results", title, setup, reports, settings)


def continual_names() -> dict[str, list[str]]:
    """What ``streams`` and ``methods`` of :func:`continual` may name."""
    return {"streams": list(STREAMS), "methods": list(TITLES.values())}


def _told(progress: Progress | None, past: int, total: int) -> Callable[[Step | None], object]:
    """Tells how far a stream's runs have come, after so many tasks of other streams."""

    def tell(step: Step | None) -> None:
        if progress is not None:
            progress(past + (step.done if step is not None else 0), total)

    return tell


class _Drawn:
    """Makes a stream of a seed; it can be sent to other processes, as a name and its data."""

    def __init__(self, stream: Stream, data: Images | tuple[Floats, Floats], scale: float) -> None:
        self._make, self._data, self._scale = stream.make, data, scale

    def __call__(self, seed: int) -> Experiences:
        return self._make(self._data, self._scale, seed)


def _wanted(given: dict[str, Iterable[str] | None]) -> dict[str, list[str]]:
    """The streams and methods that are wanted, by their names."""
    known = continual_names()
    if not isinstance(given["methods"], (str, type(None))):  # former names are keys of TITLES
        given = {**given, "methods": [TITLES.get(name, name) for name in given["methods"]]}
    found = {w: validation.check_subset(given[w], known[w], w, "continual") for w in known}
    keys = {title: key for key, title in TITLES.items()}
    return {**found, "methods": [keys[title] for title in found["methods"]]}


def _plan(streams: list[str], methods: list[str]) -> dict[str, list[str]]:
    """The learners of each stream that are wanted, in the order of tables."""
    plan = {n: [key for key in TITLES if key in methods and key in STREAMS[n].learners]
            for n in streams}  # fmt: skip
    if not any(plan.values()):
        raise ParameterError(
            f"continual: `methods` must learn some of the streams, got {', '.join(methods)} for "
            f"{', '.join(streams)}. Choose others: rls-filters learns split streams, say."
        )
    return {name: some for name, some in plan.items() if some}
