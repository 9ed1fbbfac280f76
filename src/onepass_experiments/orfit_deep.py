"""ORFit for deep networks compared with other one-pass learners, an experiment beyond the papers.

A wide perceptron and a small convolutional network learn streams of tasks, each row once:

=================  ==================================================================  =============
Rotation angles    the rotation angle of a digit 2; 9 tasks of 20° each                RMSE, degrees
Split MNIST        ten classes, two per task; class-incremental ([1]'s hardest case)   accuracy
  … task known     the same networks, predicting among the two classes of the task     accuracy
Rotated MNIST      ten classes, 15 tasks, each rotated by 5° more                      accuracy
Permuted MNIST     ten classes, 10 tasks, each with its own permutation of pixels      accuracy
=================  ==================================================================  =============

After each task all tasks are tested (:mod:`onepass_experiments.orfit_deep_outcome`). No method
receives the task of a row; some are notified when a task ends. A run depends only on its index and
its seed, so its result is the same in any process.

Settings were chosen without the test rows and are in ``orfit-deep-settings.json``. For a stream
sampled with a separate seed, the last training rows of each task are held out and used as test
rows. From the grid of a method the settings with the best average at the end of the stream are
selected, (1) of :mod:`onepass_experiments.orfit_deep_outcome`. Settings with which the method fails
are selected only if all settings fail.

[1] G. M. van de Ven, A. S. Tolias, "Three scenarios for continual learning", 2019.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.resources import files
from itertools import product
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np

from onepass import validation
from onepass.errors import OnepassError, ParameterError, calling, import_extra
from onepass.parallel import run_parallel
from onepass.stream import Experience, Images
from onepass.stream import images as images_of
from onepass.types import Floats
from onepass_experiments.orfit_deep_networks import (
    BATCH,
    METHODS,
    NETWORKS,
    STREAMS,
    Grid,
    Method,
    TargetKind,
    halved,
    network,
)
from onepass_experiments.orfit_deep_outcome import DeepOutcome, Result, average

if TYPE_CHECKING:
    from torch.nn import Module

_CLASSES = 10


@dataclass(frozen=True, eq=False)
class Run:
    """Result of one run.

    Parameters
    ----------
    matrix : ndarray of shape (T, T)
        Score on the test rows of task j after task t: accuracy in percent among all classes, or
        the root mean square error in degrees.
    within : ndarray of shape (T, T), or None
        Accuracy in percent among the classes of the task; None if tasks share their classes.
    nbytes : int
        Size of the state besides the weights, at the end.
    seconds : float or None
        Training time per row; None without a clock.
    stopped : str or None
        Error that stopped the method.
    """

    matrix: Floats
    within: Floats | None
    nbytes: int
    seconds: float | None
    stopped: str | None


def target_kind(tasks: Sequence[Experience]) -> TargetKind:
    """Return the kind of target of a stream."""
    return "classes" if tasks[0].classes else "angles"


def run(
    method: Method,
    settings: dict[str, object],
    tasks: Sequence[Experience],
    which: str,
    seed: list[int],
    clock: Callable[[], float] | None = None,
) -> Run:
    """Learn the tasks in sequence, each row once.

    Parameters
    ----------
    method : Method
        Method to run.
    settings : dict of str to object
        Settings of the method.
    tasks : sequence of Experience
        Tasks with images of shape (n, 1, 28, 28).
    which : str
        The network, one of ``NETWORKS``.
    seed : list of int
        Seed of the initial weights and of the method's random choices.
    clock : callable, optional
        Returns seconds.
    """
    with _one_thread():
        return _run(method, settings, tasks, which, seed, clock)


def _run(
    method: Method,
    settings: dict[str, object],
    tasks: Sequence[Experience],
    which: str,
    seed: list[int],
    clock: Callable[[], float] | None,
) -> Run:
    kind = target_kind(tasks)
    module = network(which, _CLASSES if kind == "classes" else 1, seed)
    learner = method.make(module, kind, seed[-1], **settings)
    known, within, took, stopped = [], [], 0.0, None
    for t, task in enumerate(tasks):
        began = clock() if clock else 0.0
        try:
            if stopped is None:
                _learn(learner, method, task, last=t == len(tasks) - 1)
        except OnepassError as error:
            stopped = f"{task.name}: {error}"
        took += clock() - began if clock else 0.0
        tested = [_test(module, other) for other in tasks]
        known.append([all_classes for all_classes, _ in tested])
        within.append([own for _, own in tested])
    matrix = np.array(known)
    if method.at_the_end:
        matrix[:-1] = np.nan
    shared = kind == "angles" or len({task.classes for task in tasks}) == 1
    own = None if shared else np.where(np.isnan(matrix), np.nan, np.array(within))
    rows = sum(len(task.X) for task in tasks)
    return Run(matrix, own, learner.nbytes, took / rows if clock else None, stopped)


@contextmanager
def _one_thread() -> Iterator[None]:
    """Limit torch to one thread: with small tensors, several threads mostly wait."""
    torch = import_extra("torch", extra="torch")
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _learn(learner: Any, method: Method, task: Experience, *, last: bool) -> None:
    """Learn all rows of a task in batches, then end the task."""
    torch = import_extra("torch", extra="torch")
    x = torch.from_numpy(_features(task.X))
    if not task.classes:
        y = torch.from_numpy(task.y.astype(np.float32))[:, None]
    else:
        y = torch.from_numpy(task.y.astype(np.int64))
    for begin in range(0, len(x), BATCH):
        rows = slice(begin, begin + BATCH)
        learner.learn(x[rows], y[rows])
    if hasattr(learner, "after_task") and (last or not method.at_the_end):
        learner.after_task()


def _features(X: Floats) -> Floats:
    """Standardize pixels by the mean and deviation of MNIST's training pixels."""
    return (X - np.float32(0.1307)) / np.float32(0.3081)


def _test(module: Module, task: Experience) -> tuple[float, float]:
    """Return the accuracy among all classes and among the task's, or the error twice."""
    torch = import_extra("torch", extra="torch")
    with torch.no_grad():
        outputs = module(torch.from_numpy(_features(task.X_test))).numpy()
    if not task.classes:
        error = float(np.rad2deg(np.sqrt(np.mean((outputs[:, 0] - task.y_test) ** 2))))
        return error, error
    own = np.array(task.classes)
    right = (
        outputs.argmax(axis=1) == task.y_test,
        own[outputs[:, own].argmax(axis=1)] == task.y_test,
    )
    return 100.0 * float(right[0].mean()), 100.0 * float(right[1].mean())


_APART = 10_000  # max draws per seed without overlap with the next seed


@dataclass(frozen=True, eq=False)
class RunContext:
    """Data and settings that all runs share.

    Parameters
    ----------
    images : Images
        Images at the input size of the networks.
    scale : float
        Fraction of the default number of training rows.
    seed : int
        Seed of all random choices.
    settings : dict of tuple of str to dict
        (stream, network, method) -> settings of the method.
    clock : callable, optional
        Returns seconds.
    """

    images: Images
    scale: float
    seed: int
    settings: dict[tuple[str, str, str], dict[str, object]]
    clock: Callable[[], float] | None

    def run(self, job: tuple[int, tuple[str, str, str]]) -> Run:
        """Run one draw of a stream with a network and a method."""
        draw, (stream, which, method) = job
        tasks = STREAMS[stream].make(self.images, self.scale, _APART * self.seed + draw)
        settings, seed = self.settings[stream, which, method], [self.seed, draw]
        return run(METHODS[method], settings, list(tasks), which, seed, self.clock)


Progress: TypeAlias = Callable[[int, int], object]
_Place: TypeAlias = tuple[str, str, str]  # stream, network and method
Settings: TypeAlias = dict[str, dict[str, dict[str, dict[str, object]]]]
"""stream -> network -> method -> settings."""


@calling("orfit_deep")
def orfit_deep(
    images: Images | None = None,
    *,
    streams: Iterable[str] | None = None,
    networks: Iterable[str] | None = None,
    methods: Iterable[str] | None = None,
    draws: int = 3,
    scale: float = 1.0,
    seed: int = 0,
    processes: int = 1,
    settings: Settings | None = None,
    clock: Callable[[], float] | None = None,
    progress: Progress | None = None,
) -> DeepOutcome:
    """Compare ORFit and other methods on networks: accuracy, forgetting, memory and time.

    Parameters
    ----------
    images : Images, optional
        By default ``op.stream.images("mnist")``.
    streams, networks, methods : iterable of str, optional
        Some of ``STREAMS``, ``NETWORKS`` and ``METHODS``; by default all.
    draws : int, default=3
        Number of samples of rows, initial weights and random choices of methods.
    scale : float, default=1.0
        Fraction of the training rows: 900 angles, 800 split, 750 rotated, 800 permuted digits.
    seed : int, default=0
        Seed of all random choices.
    processes : int, default=1
        Number of processes for parallel runs, each on one thread.
    settings : dict, optional
        Stream -> network -> method -> settings; by default :func:`chosen_settings`.
    clock : callable, optional
        Returns seconds; measures the time per row.
    progress : callable, optional
        Called with the number of completed runs and the total.

    Returns
    -------
    outcome : DeepOutcome

    Raises
    ------
    ParameterError
        If a name is unknown, draws is not a whole number >= 1, or scale is not positive.
    MissingExtraError
        If torch is not installed.
    SourceError
        If MNIST is required and not available.
    """
    import_extra("torch", extra="torch")
    validation.whole(draws, "draws", low=1)
    validation.whole(processes, "processes", low=1)
    validation.in_range(scale, "scale", above=0.0)
    given_names = {"streams": streams, "networks": networks, "methods": methods}
    chosen = {
        what: validation.check_subset(given_names[what], names, what)
        for what, names in option_names().items()
    }
    known = halved(images_of("mnist") if images is None else images)
    of = chosen_settings() if settings is None else settings
    every = list(product(chosen["streams"], chosen["networks"], chosen["methods"]))
    given = {place: _settings(of, place) for place in every}
    jobs = list(product(range(draws), every))
    context = RunContext(known, scale, seed, given, clock)
    runs: dict[tuple[_Place, int], Run] = {}
    for (draw, place), one in run_parallel(context.run, jobs, processes):
        runs[place, draw] = one
        if progress is not None:
            progress(len(runs), len(jobs))
    by_place = {place: [runs[place, draw] for draw in range(draws)] for place in every}
    setup = {"draws": draws, "scale": scale, "seed": seed, **chosen}
    found = _ordered_results(by_place, given)
    return DeepOutcome("orfit-deep", "One pass over streams of tasks", setup, found)


def option_names() -> dict[str, list[str]]:
    """Return the choices of ``streams``, ``networks`` and ``methods`` of :func:`orfit_deep`."""
    return {"streams": list(STREAMS), "networks": list(NETWORKS), "methods": list(METHODS)}


def chosen_settings() -> Settings:
    """Return the settings chosen on held-out rows: stream -> network -> method -> settings.

    Examples
    --------
    >>> len(chosen_settings())
    4
    """
    text = files("onepass_experiments").joinpath("orfit-deep-settings.json").read_text("utf-8")
    return cast("Settings", json.loads(text))


def _settings(of: Settings, place: _Place) -> dict[str, object]:
    """Return the settings of a method for a stream and a network."""
    stream, which, method = place
    try:
        return of[stream][which][method]
    except KeyError as missing:
        raise ParameterError(
            f"`settings` must contain an entry for stream {stream}, network {which} and method "
            f"{method}, got none. Create one with onepass_experiments.choose_settings.",
            "orfit_deep",
        ) from missing


def _ordered_results(
    runs: dict[_Place, list[Run]], given: dict[_Place, dict[str, object]]
) -> tuple[Result, ...]:
    """Return all results, grouped by stream."""
    found = [one for place in runs for one in _summarize(place, runs[place], given[place])]
    titles = list(dict.fromkeys(one.stream for one in found))
    return tuple(sorted(found, key=lambda one: titles.index(one.stream)))


def _summarize(place: _Place, runs: list[Run], settings: dict[str, object]) -> list[Result]:
    """Combine all draws of a method in one result, or two if tasks have separate classes."""
    stream, (_, which, method) = STREAMS[place[0]], place
    within = [one.within for one in runs if one.within is not None]
    readings = {stream.title: [one.matrix for one in runs]}
    if within:
        readings[f"{stream.title}, task known"] = within
    stopped = next((one.stopped for one in runs if one.stopped), None)
    return [
        Result(
            name,
            which,
            method,
            stream.measure,
            dict(settings),
            [_plain(matrix) for matrix in matrices],
            max(one.nbytes for one in runs),
            [one.seconds for one in runs],
            stopped,
        )
        for name, matrices in readings.items()
    ]


def _plain(matrix: Floats) -> list[list[float | None]]:
    return [[None if np.isnan(value) else float(value) for value in row] for row in matrix]


_SEED = 9_999  # apart from the draws of the experiment


def choose_settings(
    images: Images | None = None,
    *,
    streams: Iterable[str] | None = None,
    networks: Iterable[str] | None = None,
    methods: Iterable[str] | None = None,
    scale: float = 1.0,
    log: Callable[[str], object] | None = None,
) -> Settings:
    """Choose settings on held-out training rows.

    Parameters
    ----------
    images : Images, optional
        By default ``op.stream.images("mnist")``. Test rows are not used.
    streams, networks, methods : iterable of str, optional
        As in :func:`onepass_experiments.orfit_deep`.
    scale : float, default=1.0
        Fraction of the training rows of ``orfit_deep``, including the held-out ones.
    log : callable, optional
        Called with a line of text for each result and each choice.

    Returns
    -------
    settings : dict
        Stream -> network -> method -> settings.
    """
    known = halved(images_of("mnist") if images is None else images)
    found: Settings = {}
    for stream in streams or STREAMS:
        whole = STREAMS[stream].make(known, scale, _SEED)
        fewest = min(len(task.train.rows) for task in whole.tasks)
        tasks = list(whole.held_out(max(1, fewest // 4)))
        for which, name in product(networks or NETWORKS, methods or METHODS):
            best = _best(METHODS[name], tasks, which, log)
            found.setdefault(stream, {}).setdefault(which, {})[name] = best
            if log is not None:
                log(f"{stream}, {which}, {name}: {best}")
    return found


def _best(
    method: Method,
    tasks: Sequence[Experience],
    which: str,
    log: Callable[[str], object] | None,
) -> dict[str, Any]:
    """Return the best settings of the method's grid."""
    kind = target_kind(tasks)
    sign = -1.0 if kind == "classes" else 1.0
    every = list(_candidates(method.grid(kind)))
    if len(every) == 1:
        return every[0]
    tried = []
    for place, settings in enumerate(every):
        one = run(method, settings, tasks, which, [_SEED])
        value = average(one.matrix)
        tried.append((one.stopped is not None, sign * value, place))
        if log is not None:
            log(f"  {method.name} {settings}: {value:.1f}{' stopped' if one.stopped else ''}")
    return every[min(tried)[2]]


def _candidates(grid: Grid) -> Iterator[dict[str, object]]:
    for values in product(*grid.values()):
        yield dict(zip(grid, values, strict=True))
