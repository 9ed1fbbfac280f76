"""ART-IPCA on Split MNIST and Split Fashion-MNIST: Tables 1 and 2 of its paper.

Five tasks of two classes each, 2,000 training and 500 test rows per class, pixels scaled to [0, 1],
one pass. Accuracy is measured on the test rows of each task after the last task and averaged over
tasks: with predictions among all ten classes (Table 1), or among the two classes of the task
(Table 2).

The paper's runs differ only in the order of the rows within a task ([1] A.5.4); it does not publish
which rows of a class were used. Here each run samples its own training and test rows. The paper's
IPCA receives all rows of a task before prototypes are learned; *row by row* is the same method
without task boundaries. Methods are compared on the same rows in the same order by a paired t-test
([1] A.5.2).

A run depends only on its index and its seed, so its result is the same in any process. Tables and a
figure show the published accuracy beside the reproduced one.

[1] N. Ashtekar, V. Honavar, "A simple, fast algorithm for continual learning from high-dimensional
    data", ICLR 2023, Tiny Papers.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any, ClassVar, TypeAlias

import numpy as np
from threadpoolctl import threadpool_limits

from onepass import validation
from onepass.errors import calling, public
from onepass.evaluate.figures import COLOURS, GREY, Dots, dot_plots
from onepass.evaluate.tables import MISSING, format_number, format_signed, plus_minus
from onepass.learners import ARTIPCAClassifier
from onepass.parallel import run_parallel
from onepass.stream import Images
from onepass.stream import images as images_of
from onepass.types import Array, Floats
from onepass_experiments.outcome import ExperimentOutcome, paired

_MEGABYTE = 1e6
_BASE = "IPCA"  # the method that the others are compared with


@dataclass(frozen=True)
class Entry:
    """One method on one data set.

    Parameters
    ----------
    data, method : str
    paper : tuple of two floats, or None
        Published accuracy and its standard deviation over runs, in percent; None if not published.
    accuracy : list of float
        Accuracy of each run, in percent.
    prototypes : float
        Number of prototypes at the end, averaged over runs.
    nbytes : int
        Size of the learner at the end, largest over runs.
    compact : int
        Size of the part that prediction needs.
    seconds : float or None
        Training time, averaged over runs; None without a clock.
    """

    data: str
    method: str
    paper: tuple[float, float] | None
    accuracy: list[float]
    prototypes: float
    nbytes: int
    compact: int
    seconds: float | None

    @property
    def mean(self) -> float:
        """Mean accuracy over runs, in percent."""
        return float(np.mean(self.accuracy))

    @property
    def deviation(self) -> float:
        """Standard deviation of the accuracy over runs; 0 for a single run."""
        return float(np.std(self.accuracy, ddof=1)) if len(self.accuracy) > 1 else 0.0


@dataclass(frozen=True)
class ArtOutcome(ExperimentOutcome):
    """Outcome of reproducing one of the tables.

    Parameters
    ----------
    name : str
        Name on the command line: ``"art-table1"``.
    title : str
        Title of the table and the figure.
    setup : dict of str to Any
        All settings as plain values, sufficient to repeat the run.
    entries : tuple of Entry

    Notes
    -----
    The CSV has one row per run: data, method, run, accuracy in percent. The figure shows published
    and reproduced accuracy.
    """

    columns: ClassVar[list[str]] = [
        "data", "method", "paper", "here", "difference", "p vs. IPCA", "prototypes", "MB",
        "MB compact", "seconds",
    ]  # fmt: skip
    _groups: ClassVar[int] = 1

    name: str
    title: str
    setup: dict[str, Any]
    entries: tuple[Entry, ...]

    def entry(self, data: str, method: str) -> Entry:
        """Return the result of a method, such as ``outcome.entry("MNIST", "IPCA")``.

        Parameters
        ----------
        data, method : str

        Raises
        ------
        KeyError
            If there is no such result.
        """
        return {(one.data, one.method): one for one in self.entries}[data, method]

    def p_value(self, entry: Entry) -> float | None:
        """Return the p-value of a paired t-test against IPCA.

        None for IPCA itself, for fewer than two runs, and if all runs differ by the same amount.

        Parameters
        ----------
        entry : Entry
        """
        return paired(entry.accuracy, self.entry(entry.data, _BASE).accuracy)

    def _values(self) -> Iterator[dict[str, Any]]:
        """Yield one record per run: data, method, run, accuracy in percent."""
        for one in self.entries:
            for i, accuracy in enumerate(one.accuracy):
                row = {"data": one.data, "method": one.method, "run": i}
                yield {**row, "accuracy": round(accuracy, 3)}

    @public
    def plot(self, path: str | os.PathLike[str] | None = None) -> Any:
        """Plot published and reproduced accuracy side by side, one panel per data set.

        Parameters and errors as of ``Report.plot``.
        """
        plots = {}
        for data in dict.fromkeys(one.data for one in self.entries):
            those = [one for one in self.entries if one.data == data]
            paper = [one.paper or (np.nan, np.nan) for one in those]
            means, deviations = [one.mean for one in those], [one.deviation for one in those]
            series = [
                Dots("paper", GREY, [p[0] for p in paper], [p[1] for p in paper], 0.18, places=2),
                Dots("here", COLOURS[0], means, deviations, -0.18, places=2),
            ]
            plots[data] = [one.method for one in those], series
        return dot_plots(self.title, plots, path)

    def _caption(self) -> str:
        setup = self.setup
        several = setup["draws"] > 1
        counted = f"{setup['draws']} runs, each" if several else "One run,"
        tested = "± standard deviation over runs; p-value of a paired t-test; " if several else ""
        return (
            f"{counted} with its own sample and order of rows; seed {setup['seed']}, vigilance "
            f"{setup['vigilance']:g}. {tested}MB: size of the trained model; MB compact: size of "
            "the part needed for prediction."
        )

    def _rows(self) -> Iterator[list[str]]:
        for one in self.entries:
            paper, p_value = one.paper, self.p_value(one)
            spread = one.deviation if len(one.accuracy) > 1 else None
            yield [
                one.data,
                one.method,
                MISSING if paper is None else plus_minus(f"{paper[0]:.2f}", paper[1], 2),
                plus_minus(f"{one.mean:.2f}", spread, 2),
                format_signed(None if paper is None else one.mean - paper[0], 2),
                MISSING if p_value is None else f"{p_value:.1g}",
                format_number(one.prototypes, 0),
                format_number(one.nbytes / _MEGABYTE, 1),
                format_number(one.compact / _MEGABYTE, 1),
                format_number(one.seconds, 1),
            ]


_TRAIN, _TEST = 2000, 500  # rows per class
_TASKS = ((0, 1), (2, 3), (4, 5), (6, 7), (8, 9))
_AXES = {"Fashion-MNIST": 250}  # the paper, A.5.4
_AXES_ELSE = 200

PCA_MODES = {
    "No PCA": "none",
    "IPCA": "task",
    "Static PCA": "static",
    "IPCA, row by row": "incremental",
}
"""Method -> argument ``pca`` of ARTIPCAClassifier."""


@dataclass(frozen=True, eq=False)
class RunResult:
    """Result of one run.

    Parameters
    ----------
    single, multi : float
        Accuracy in percent, among all classes and among those of the task.
    prototypes : int
        Number of prototypes at the end.
    nbytes, compact : int
        Size of the trained model, and of the part that prediction needs.
    seconds : float or None
        Training time; None without a clock.
    """

    single: float
    multi: float
    prototypes: int
    nbytes: int
    compact: int
    seconds: float | None


def _run(
    images: dict[str, Images],
    seed: int,
    vigilance: float,
    clock: Clock | None,
    job: tuple[str, int, str],
) -> RunResult:
    """Learn the tasks of one run in sequence, each row once; then test on every task."""
    data, run, method = job
    known, way = images[data], PCA_MODES[method]
    rng = np.random.default_rng([seed, run])
    tasks = [_rows(known.train_images, known.train_labels, c, _TRAIN, rng) for c in _TASKS]
    tests = [_rows(known.test_images, known.test_labels, c, _TEST, rng) for c in _TASKS]
    k = _AXES.get(data, _AXES_ELSE)
    model = ARTIPCAClassifier(k, vigilance, pca=way, max_prototypes=None)
    with threadpool_limits(1, "blas"):
        began = clock() if clock else 0.0
        if way == "static":
            model.learn_axes(np.vstack([X for X, _ in tasks]))
        for X, y in tasks:
            model.partial_fit(X, y)
        took = clock() - began if clock else None
        predictions = [(model.predict(X), model.predict(X, task=c), y) for c, (X, y) in
                zip(_TASKS, tests, strict=True)]  # fmt: skip
    single, multi = (
        100.0 * float(np.mean([(each[i] == each[2]).mean() for each in predictions]))
        for i in (0, 1)
    )
    count = len(model.prototype_weights_)
    return RunResult(single, multi, count, model.nbytes, model.compact().nbytes, took)


def _rows(
    pictures: Array, labels: Array, classes: Sequence[int], each: int, rng: np.random.Generator
) -> tuple[Floats, Array]:
    """Sample rows of some classes, ``each`` per class if there are as many, in random order."""
    chosen = []
    for label in classes:
        those = np.flatnonzero(labels == label)
        chosen.append(rng.choice(those, min(each, len(those)), replace=False))
    rows = rng.permutation(np.concatenate(chosen))
    return pictures[rows].reshape(len(rows), -1) / 255.0, labels[rows]


Progress: TypeAlias = Callable[[int, int], object]
Clock: TypeAlias = Callable[[], float]

_DATA = {"MNIST": "mnist", "Fashion-MNIST": "fashion-mnist"}

PAPER: dict[int, dict[str, dict[str, tuple[float, float]]]] = {
    1: {
        "MNIST": {
            "No PCA": (92.99, 0.41),
            "IPCA": (94.03, 0.26),
            "Static PCA": (94.04, 0.24),
        },
        "Fashion-MNIST": {
            "No PCA": (76.09, 0.50),
            "IPCA": (77.56, 0.60),
            "Static PCA": (77.48, 0.39),
        },
    },
    2: {
        "MNIST": {
            "No PCA": (99.47, 0.05),
            "IPCA": (99.46, 0.07),
            "Static PCA": (99.41, 0.06),
        },
        "Fashion-MNIST": {
            "No PCA": (98.86, 0.09),
            "IPCA": (98.86, 0.10),
            "Static PCA": (98.79, 0.13),
        },
    },
}
"""Table -> data -> method -> accuracy and standard deviation over 25 runs, in percent [1]."""


def art_names() -> dict[str, list[str]]:
    """The names that the options of both tables accept."""
    return {"streams": list(_DATA.values())}


@calling("art_table1")
def art_table1(
    images: dict[str, Images] | None = None,
    *,
    streams: Sequence[str] | None = None,
    draws: int = 25,
    seed: int = 0,
    vigilance: float = 0.5,
    processes: int = 1,
    clock: Clock | None = None,
    progress: Progress | None = None,
) -> ArtOutcome:
    """Reproduce Table 1 of the ART-IPCA paper: accuracy among all ten classes.

    Parameters
    ----------
    images : dict of str to Images, optional
        ``"MNIST"``, ``"Fashion-MNIST"`` or both. By default both, from ``op.stream.images``.
    streams : sequence of str, optional
        Without ``images``, which to use: "mnist", "fashion-mnist" or both.
    draws : int, default=25
        Number of runs, each with its own sample of rows.
    seed : int, default=0
        Seed of all random choices.
    vigilance : float, default=0.5
        Vigilance ρ, in [-1, 1].
    processes : int, default=1
        Number of processes for parallel runs, each on one thread.
    clock : callable, optional
        Returns seconds; measures the training time.
    progress : callable, optional
        Called with the number of completed runs and the total.

    Returns
    -------
    outcome : ArtOutcome

    Raises
    ------
    ParameterError
        If a number is out of range.
    SourceError
        If a data set is not available.
    """
    given = (images, streams, draws, seed, vigilance, processes, clock, progress)
    return _tables(*given)[0]


@calling("art_table2")
def art_table2(
    images: dict[str, Images] | None = None,
    *,
    streams: Sequence[str] | None = None,
    draws: int = 25,
    seed: int = 0,
    vigilance: float = 0.5,
    processes: int = 1,
    clock: Clock | None = None,
    progress: Progress | None = None,
) -> ArtOutcome:
    """Reproduce Table 2 of the ART-IPCA paper: accuracy among the two classes of a task.

    Parameters
    ----------
    images, streams, draws, seed, vigilance, processes, clock, progress
        As in :func:`art_table1`. The runs are the same.

    Returns
    -------
    outcome : ArtOutcome

    Raises
    ------
    ParameterError, SourceError
        As in :func:`art_table1`.
    """
    given = (images, streams, draws, seed, vigilance, processes, clock, progress)
    return _tables(*given)[1]


@calling("art_tables")
def art_tables(
    images: dict[str, Images] | None = None,
    *,
    streams: Sequence[str] | None = None,
    draws: int = 25,
    seed: int = 0,
    vigilance: float = 0.5,
    processes: int = 1,
    clock: Clock | None = None,
    progress: Progress | None = None,
) -> tuple[ArtOutcome, ArtOutcome]:
    """Reproduce Tables 1 and 2 from the same runs.

    Parameters
    ----------
    images, streams, draws, seed, vigilance, processes, clock, progress
        As in :func:`art_table1`.

    Returns
    -------
    outcomes : two of ArtOutcome

    Raises
    ------
    ParameterError, SourceError
        As in :func:`art_table1`.
    """
    return _tables(images, streams, draws, seed, vigilance, processes, clock, progress)


def _tables(
    images: dict[str, Images] | None,
    streams: Sequence[str] | None,
    draws: int,
    seed: int,
    vigilance: float,
    processes: int,
    clock: Clock | None,
    progress: Progress | None,
) -> tuple[ArtOutcome, ArtOutcome]:
    validation.whole(draws, "draws", low=1)
    validation.whole(processes, "processes", low=1)
    validation.in_range(vigilance, "vigilance", low=-1.0, high=1.0)
    validation.whole(seed, "seed", low=0)
    chosen = validation.check_subset(streams, list(_DATA.values()), "streams")
    known = images or {name: images_of(of) for name, of in _DATA.items() if of in chosen}
    jobs = list(product(known, range(draws), PCA_MODES))
    runs: dict[tuple[str, int, str], RunResult] = {}
    function = partial(_run, known, seed, vigilance, clock)
    for job, found in run_parallel(function, jobs, processes):
        runs[job] = found
        if progress is not None:
            progress(len(runs), len(jobs))
    setup = {"draws": draws, "seed": seed, "vigilance": vigilance}
    one, two = (
        ArtOutcome(
            f"art-table{number}",
            f"ART-IPCA, {heads}: accuracy after the last task, %",
            setup,
            tuple(
                _entry(number, data, way, [runs[data, run, way] for run in range(draws)])
                for data in known
                for way in PCA_MODES
            ),
        )
        for number, heads in ((1, "single-headed"), (2, "multi-headed"))
    )
    return one, two


def _entry(number: int, data: str, way: str, runs: Sequence[RunResult]) -> Entry:
    seconds = [one.seconds for one in runs if one.seconds is not None]
    return Entry(
        data,
        way,
        PAPER[number].get(data, {}).get(way),
        [one.single if number == 1 else one.multi for one in runs],
        float(np.mean([one.prototypes for one in runs])),
        max(one.nbytes for one in runs),
        max(one.compact for one in runs),
        float(np.mean(seconds)) if seconds else None,
    )
