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
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib.resources import files
from itertools import product
from typing import Any, TypeAlias, cast

import numpy as np

from onepass import validate
from onepass.errors import ParameterError
from onepass.extras import need
from onepass.reproduce.orfit_deep_course import Run, run
from onepass.reproduce.orfit_deep_methods import METHODS
from onepass.reproduce.orfit_deep_networks import NETWORKS
from onepass.reproduce.orfit_deep_outcome import DeepOutcome, Measure, Result
from onepass.spelling import meant
from onepass.stream import (
    Experiences,
    Images,
    permuted_mnist,
    rotated_mnist,
    rotation_angles,
    split_mnist,
)
from onepass.stream import images as images_of
from onepass.types import Array, Floats

__all__ = ["STREAMS", "Stream", "chosen_settings", "halved", "orfit_deep"]

Progress: TypeAlias = Callable[[int, int], object]
Settings: TypeAlias = dict[str, dict[str, dict[str, dict[str, Any]]]]
"""stream -> network -> method -> settings."""


def _angles(images: Images, scale: float, seed: int) -> Experiences:
    n = _rows(100, scale)
    return rotation_angles(
        images, rows_per_task=n, test_rows_per_task=100, seed=seed, as_images=True
    )


def _split(images: Images, scale: float, seed: int) -> Experiences:
    n = _rows(100, scale)
    return split_mnist(images, rows_per_class=n, test_rows_per_class=100, seed=seed, as_images=True)


def _rotated(images: Images, scale: float, seed: int) -> Experiences:
    n = _rows(70, scale)
    return rotated_mnist(images, rows_per_task=n, test_rows_per_task=100, seed=seed, as_images=True)


def _permuted(images: Images, scale: float, seed: int) -> Experiences:
    n = _rows(100, scale)
    return permuted_mnist(
        images, rows_per_task=n, test_rows_per_task=150, seed=seed, as_images=True
    )


def _rows(n: int, scale: float) -> int:
    return max(2, round(n * scale))


@dataclass(frozen=True)
class Stream:
    """A stream of tasks.

    Parameters
    ----------
    title : str
        In tables and figures.
    make : callable
        Called as ``make(images, scale, seed)``.
    measure : {"accuracy", "error"}
        What is told of it.
    """

    title: str
    make: Callable[[Images, float, int], Experiences]
    measure: Measure = "accuracy"


STREAMS: dict[str, Stream] = {
    "angles": Stream("Rotation angles", _angles, "error"),
    "split": Stream("Split MNIST", _split),
    "rotated": Stream("Rotated MNIST", _rotated),
    "permuted": Stream("Permuted MNIST", _permuted),
}
"""The streams by name, in the order of tables."""


def orfit_deep(
    images: Images | None = None,
    *,
    streams: Iterable[str] | None = None,
    networks: Iterable[str] | None = None,
    methods: Iterable[str] | None = None,
    draws: int = 3,
    scale: float = 1.0,
    seed: int = 0,
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
        Rows to learn, as a share of 900 angles, 1000 split, 1050 rotated and 1000 permuted digits.
    seed : int, default=0
        Of all that is drawn.
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
    validate.whole(draws, "draws", "orfit_deep", low=1)
    validate.in_range(scale, "scale", "orfit_deep", above=0.0)
    chosen = {
        "streams": _named(streams, STREAMS, "streams"),
        "networks": _named(networks, NETWORKS, "networks"),
        "methods": _named(methods, METHODS, "methods"),
    }
    known = halved(images_of("mnist") if images is None else images)
    of = chosen_settings() if settings is None else settings
    every = list(product(chosen["streams"], chosen["networks"], chosen["methods"]))
    runs: dict[tuple[str, str, str], list[Run]] = {place: [] for place in every}
    for draw in range(draws):
        for stream in chosen["streams"]:
            tasks = list(STREAMS[stream].make(known, scale, seed + draw))
            for place in (place for place in every if place[0] == stream):
                method, given = METHODS[place[2]], _settings(of, place)
                runs[place].append(run(method, given, tasks, place[1], [seed, draw], clock))
                if progress is not None:
                    progress(sum(map(len, runs.values())), draws * len(every))
    setup = {"draws": draws, "scale": scale, "seed": seed, **chosen}
    found = [one for place in every for one in _summed_up(place, runs[place], of)]
    order = {name: i for i, name in enumerate(dict.fromkeys(one.stream for one in found))}
    found.sort(key=lambda one: order[one.stream])
    return DeepOutcome("orfit-deep", "One pass over streams of tasks", setup, tuple(found))


def halved(images: Images) -> Images:
    """The same pictures at half the height and width: each pixel the mean of four.

    Networks for them have a fifth of the weights.

    Parameters
    ----------
    images : Images
        Of an even height and width.

    Returns
    -------
    images : Images

    Examples
    --------
    >>> pictures, labels = np.full((1, 28, 28), 7, dtype=np.uint8), np.zeros(1, dtype=np.uint8)
    >>> halved(Images(pictures, labels, pictures, labels)).train_images.sum()
    np.uint64(1372)
    """

    def small(pictures: Array) -> Array:
        n, height, width = pictures.shape
        means = pictures.reshape(n, height // 2, 2, width // 2, 2).mean(axis=(2, 4))
        return np.asarray(np.rint(means), dtype=np.uint8)

    return Images(
        small(images.train_images), images.train_labels,
        small(images.test_images), images.test_labels,
    )  # fmt: skip


def chosen_settings() -> Settings:
    """The settings that were chosen on rows held out: stream, network and method to settings.

    Examples
    --------
    >>> sorted(chosen_settings()) == sorted(STREAMS)
    True
    """
    text = files("onepass.reproduce").joinpath("orfit-deep-settings.json").read_text("utf-8")
    return cast("Settings", json.loads(text))


def _settings(of: Settings, place: tuple[str, str, str]) -> dict[str, Any]:
    """The settings of a method where it is to be run."""
    stream, which, method = place
    try:
        return of[stream][which][method]
    except KeyError as missing:
        raise ParameterError(
            f"orfit_deep: `settings` must hold some for {method} of {which} on {stream}, got none. "
            "Choose them with onepass.reproduce.choose_settings."
        ) from missing


def _summed_up(place: tuple[str, str, str], runs: list[Run], of: Settings) -> list[Result]:
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
            dict(_settings(of, place)),
            [_plain(matrix) for matrix in matrices],
            max(one.nbytes for one in runs),
            [one.seconds for one in runs],
            stopped,
        )
        for name, matrices in readings.items()
    ]


def _plain(matrix: Floats) -> list[list[float | None]]:
    return [[None if np.isnan(value) else float(value) for value in row] for row in matrix]


def _named(given: Iterable[str] | None, known: Mapping[str, Any], what: str) -> list[str]:
    """Those of the names that are wanted, in the order in which they are known."""
    wanted = list(known) if given is None else list(given)
    strange = [name for name in wanted if name not in known]
    if strange or not wanted:
        raise ParameterError(
            f"orfit_deep: `{what}` must be of {', '.join(known)}, got "
            f"{strange[0] if strange else 'none'!r}.{meant(strange[0], known) if strange else ''} "
            "Give some of these names."
        )
    return [name for name in known if name in wanted]
