"""Continual learning in one table: one pass beside networks, on streams of tasks.

Learners that see each row once and keep none stand beside networks that are held back, grow, or
keep rows, on Split MNIST and Split Fashion-MNIST (few rows, and all), Rotated and Permuted MNIST,
and a robot arm whose working region moves. After each task all tasks are tested, by
:func:`onepass.evaluate.continual`: what is shown is the average over tasks after the last one.

Streams stand in :mod:`onepass.reproduce.continual_streams`, learners and their settings in
:mod:`onepass.reproduce.continual_learners`.
"""

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from threadpoolctl import threadpool_limits

from onepass import validation
from onepass.errors import ParameterError, need
from onepass.evaluate import ContinualReport
from onepass.evaluate import continual as evaluated
from onepass.reproduce.continual_learners import NETWORKS, TITLES, settings_of
from onepass.reproduce.continual_outcome import ContinualOutcome
from onepass.reproduce.continual_streams import STREAMS, Stream, found, held

__all__ = ["continual", "continual_names"]

Progress: TypeAlias = Callable[[int, int], object]

_BATCH = 10  # rows a step of networks that see each row once


def continual(
    data: Mapping[str, Any] | None = None,
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
        In which runs are made side by side, each on one thread. With more than 1, a script needs
        ``if __name__ == "__main__":`` around its work, and the clock must be a named function.
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
        need("torch", extra="torch", where="continual")
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
    return {"streams": list(STREAMS), "methods": list(TITLES)}


def _told(progress: Progress | None, past: int, total: int) -> Callable[[Any], object]:
    """Tells how far a stream's runs have come, after so many tasks of other streams."""

    def tell(step: Any) -> None:
        if progress is not None:
            progress(past + (step.done if step is not None else 0), total)

    return tell


class _Drawn:
    """Makes a stream of a seed; it can be sent to other processes, as a name and its data."""

    def __init__(self, stream: Stream, data: Any, scale: float) -> None:
        self._make, self._data, self._scale = stream.make, data, scale

    def __call__(self, seed: int) -> Any:
        return self._make(self._data, self._scale, seed)


def _wanted(given: dict[str, Iterable[str] | None]) -> dict[str, list[str]]:
    """The streams and methods that are wanted, by their names."""
    known = continual_names()
    return {what: validation.some_of(given[what], known[what], what, "continual") for what in known}


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
