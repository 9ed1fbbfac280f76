"""ORFit for deep networks, beside what else learns a stream: what the papers leave open.

A wide perceptron and a small convolutional network learn streams of tasks, each row once:

=================  ==================================================================  =============
Rotation angles    by what angle a digit 2 is turned; 9 tasks of 20° each              RMSE, degrees
Split MNIST        ten classes, two a task; tested among all ten ([1]'s hardest case)  accuracy
  … task known     the same networks, tested among the two classes of the task         accuracy
Rotated MNIST      ten classes, 15 tasks, each turned by 5° more                       accuracy
Permuted MNIST     ten classes, 10 tasks, each with its own order of pixels            accuracy
=================  ==================================================================  =============

After each task all tasks are tested (:mod:`onepass.reproduce.orfit_deep_outcome`). No method is
told which task a row is of; some are told that a task ended. Settings were chosen on rows held out
of those to learn, from other draws, and stand in ``orfit-deep-settings.json``.

[1] G. M. van de Ven, A. S. Tolias, "Three scenarios for continual learning", 2019.
"""

import json
from collections.abc import Callable, Iterable
from importlib.resources import files
from itertools import product
from typing import Any, TypeAlias, cast

import numpy as np

from onepass import validation
from onepass.errors import Floats, ParameterError, need
from onepass.reproduce.orfit_deep_course import Run
from onepass.reproduce.orfit_deep_jobs import Job, Setting, done
from onepass.reproduce.orfit_deep_methods import METHODS
from onepass.reproduce.orfit_deep_networks import NETWORKS
from onepass.reproduce.orfit_deep_outcome import DeepOutcome, Result
from onepass.reproduce.orfit_deep_streams import STREAMS, halved
from onepass.stream import Images
from onepass.stream import images as images_of

__all__ = ["Settings", "chosen_settings", "known_names", "orfit_deep"]

Progress: TypeAlias = Callable[[int, int], object]
_Place: TypeAlias = tuple[str, str, str]  # stream, network and method
Settings: TypeAlias = dict[str, dict[str, dict[str, dict[str, Any]]]]
"""stream -> network -> method -> settings."""


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
    """ORFit and its rivals on networks: accuracy, forgetting, memory and time on streams of tasks.

    Parameters
    ----------
    images : Images, optional
        ``op.stream.images("mnist")`` if not given.
    streams, networks, methods : iterable of str, optional
        Which of ``STREAMS``, ``NETWORKS`` and ``METHODS``; all, if not given.
    draws : int, default=3
        Choices of rows, first weights and whatever a method draws.
    scale : float, default=1.0
        Rows to learn, as a share of 900 angles, 800 split, 750 rotated and 800 permuted digits.
    seed : int, default=0
        Of all that is drawn.
    processes : int, default=1
        In which runs are made side by side, each on one thread. With more than 1, a script needs
        ``if __name__ == "__main__":`` around its work, and the clock must be a named function.
    settings : dict, optional
        Stream, network and method to the method's settings, in place of those chosen.
    clock : callable, optional
        Gives seconds, to tell the time a row takes.
    progress : callable, optional
        Called with the runs done and their number.

    Returns
    -------
    outcome : DeepOutcome

    Raises
    ------
    ParameterError
        If a name is unknown, draws is no whole number >= 1, or scale is not positive.
    MissingExtraError
        If torch is not installed.
    SourceError
        If MNIST is wanted and cannot be had.
    """
    need("torch", extra="torch", where="orfit_deep")
    validation.whole(draws, "draws", "orfit_deep", low=1)
    validation.whole(processes, "processes", "orfit_deep", low=1)
    validation.in_range(scale, "scale", "orfit_deep", above=0.0)
    given_names = {"streams": streams, "networks": networks, "methods": methods}
    chosen = {
        what: validation.some_of(given_names[what], names, what, "orfit_deep")
        for what, names in known_names().items()
    }
    known = halved(images_of("mnist") if images is None else images)
    of = chosen_settings() if settings is None else settings
    every = list(product(chosen["streams"], chosen["networks"], chosen["methods"]))
    given = {place: _settings(of, place) for place in every}
    todo = [
        Job(draw, *place, given[place])
        for draw in range(draws)
        for stream in chosen["streams"]
        for place in every
        if place[0] == stream
    ]
    runs: dict[tuple[_Place, int], Run] = {}
    for job, one in done(todo, Setting(known, scale, seed, clock), processes):
        runs[job.place, job.draw] = one
        if progress is not None:
            progress(len(runs), len(todo))
    by_place = {place: [runs[place, draw] for draw in range(draws)] for place in every}
    setup = {"draws": draws, "scale": scale, "seed": seed, **chosen}
    found = _in_order(by_place, given)
    return DeepOutcome("orfit-deep", "One pass over streams of tasks", setup, found)


def known_names() -> dict[str, list[str]]:
    """What ``streams``, ``networks`` and ``methods`` of :func:`orfit_deep` may name."""
    return {"streams": list(STREAMS), "networks": list(NETWORKS), "methods": list(METHODS)}


def chosen_settings() -> Settings:
    """The settings that were chosen on rows held out: stream, network and method to settings.

    Examples
    --------
    >>> len(chosen_settings())
    4
    """
    text = files("onepass.reproduce").joinpath("orfit-deep-settings.json").read_text("utf-8")
    return cast("Settings", json.loads(text))


def _settings(of: Settings, place: _Place) -> dict[str, Any]:
    """The settings of a method where it is to be run."""
    stream, which, method = place
    try:
        return of[stream][which][method]
    except KeyError as missing:
        raise ParameterError(
            f"orfit_deep: `settings` must hold some for {method} of {which} on {stream}, got none. "
            "Choose them with onepass.reproduce.choose_settings."
        ) from missing


def _in_order(
    runs: dict[_Place, list[Run]], given: dict[_Place, dict[str, Any]]
) -> tuple[Result, ...]:
    """All results, those of a stream together."""
    found = [one for place in runs for one in _summed_up(place, runs[place], given[place])]
    titles = list(dict.fromkeys(one.stream for one in found))
    return tuple(sorted(found, key=lambda one: titles.index(one.stream)))


def _summed_up(place: _Place, runs: list[Run], settings: dict[str, Any]) -> list[Result]:
    """All draws of a method as one result, or as two where tasks have classes of their own."""
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
