"""Streams of the experiment ``continual``, who learns them, and what is published of them.

[1] N. Ashtekar, V. Honavar, "A simple, fast algorithm for continual learning from high-dimensional
    data", ICLR 2023, Tiny Papers: Table 1. Its EWC, iCaRL and DEN are others' results.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from onepass.errors import Floats, ParameterError
from onepass.reproduce.continual_learners import Maker, arm, domains, splits
from onepass.stream import (
    Experiences,
    Images,
    dataset,
    experiences,
    images,
    permuted_mnist,
    rotated_mnist,
    split_mnist,
)

__all__ = ["STREAMS", "Stream", "found", "held"]

_KNOWN = {"mnist": "MNIST", "fashion-mnist": "Fashion-MNIST"}
_ARM = "kin40k"


@dataclass(frozen=True)
class Stream:
    """A stream of tasks.

    Parameters
    ----------
    title : str
        In tables and figures.
    about : str
        What is learned and tested.
    data : str
        Of what it is made: a name of :func:`found`.
    make : callable
        Called as ``make(data, scale, seed)``.
    tasks : int
        How many.
    draws : int
        Seeds, unless others are wanted.
    learners : mapping of str to Maker
        Who learns it.
    published : mapping of str to (float, float or None)
        Learner -> accuracy and its standard deviation, percent [1].
    """

    title: str
    about: str
    data: str
    make: Callable[[Any, float, int], Experiences]
    tasks: int
    draws: int
    learners: Mapping[str, Maker]
    published: Mapping[str, tuple[float, float | None]] = field(default_factory=dict)


def found(data: str) -> Any:
    """Images, or a table of numbers and answers, as users have or fetch them.

    Parameters
    ----------
    data : {"mnist", "fashion-mnist", "kin40k"}

    Raises
    ------
    SourceError
        If it cannot be had.
    """
    if data in _KNOWN:
        return images(data)
    blocks = list(dataset(data))
    X = np.concatenate([np.stack(list(b.X.columns.values()), axis=1) for b in blocks])
    return X, np.concatenate([b.y for b in blocks])


def held(data: Any) -> dict[str, Any]:
    """What users hand in, if streams can be made of it.

    Parameters
    ----------
    data : mapping or None
        Name of :func:`found` -> Images, or (X, y).

    Raises
    ------
    ParameterError
        If a name is unknown, or something else is handed in.
    """
    taken: dict[str, Any] = {}
    for name, given in (data or {}).items():
        if name in _KNOWN and isinstance(given, Images):
            taken[name] = given
            continue
        pair = [np.asarray(part) for part in given] if isinstance(given, (tuple, list)) else []
        if name != _ARM or [part.ndim for part in pair] != [2, 1] or len({*map(len, pair)}) != 1:
            raise ParameterError(
                f"continual: `data` must hold op.stream.Images by the names {', '.join(_KNOWN)}, "
                f"or (X, y) of shapes (n, d) and (n,) by {_ARM}, got {name!r} with a "
                f"{type(given).__name__}. Give these, or nothing, so that they are fetched."
            )
        taken[name] = tuple(pair)
    return taken


def _rows(n: int, scale: float) -> int:
    return max(2, round(n * scale))


def _split(name: str, known: Images, scale: float, seed: int) -> Experiences:
    n, k = _rows(2000, scale), _rows(500, scale)
    made = split_mnist(known, rows_per_class=n, test_rows_per_class=k, seed=seed)
    return replace(made, name=name)


def _whole(name: str, known: Images, scale: float, seed: int) -> Experiences:
    n, k = (None, None) if scale == 1.0 else (_rows(6000, scale), _rows(1000, scale))
    made = split_mnist(known, rows_per_class=n, test_rows_per_class=k, seed=seed)
    return replace(made, name=name)


def _rotated(known: Images, scale: float, seed: int) -> Experiences:
    n, k = _rows(10_000, scale), _rows(1000, scale)
    return rotated_mnist(known, n_tasks=15, rows_per_task=n, test_rows_per_task=k, seed=seed)


def _permuted(known: Images, scale: float, seed: int) -> Experiences:
    n, k = _rows(10_000, scale), _rows(1000, scale)
    return permuted_mnist(known, n_tasks=10, rows_per_task=n, test_rows_per_task=k, seed=seed)


def _arm(known: tuple[Floats, Floats], scale: float, seed: int) -> Experiences:
    X, y = known
    n = min(len(y), _rows(40_000, scale))
    return experiences(X[:n], y[:n], by=X[:n, 0], n_tasks=5, seed=seed, name="kin40k")


def _splits(data: str, published: Mapping[str, tuple[float, float | None]]) -> dict[str, Stream]:
    """Both protocols of a data set."""
    name = f"Split {_KNOWN[data]}"
    return {
        f"split-{data}": Stream(
            name,
            "Two classes a task, 2,000 rows of a class to learn and 500 to test, tested among all "
            "ten classes: the protocol of the ART-IPCA paper.",
            data, partial(_split, name), 5, 5, splits(data), published,
        ),
        f"whole-{data}": Stream(
            f"{name}, all rows",
            "The same of all 60,000 rows to learn and 10,000 to test.",
            data, partial(_whole, f"{name}, all rows"), 5, 5, splits(data, whole=True),
        ),
    }  # fmt: skip


STREAMS: dict[str, Stream] = {
    **_splits(
        "mnist",
        {
            "art-ipca-tasks": (94.03, 0.26),
            "ewc": (20.01, None),
            "den": (56.95, None),
            "icarl": (94.57, None),
        },
    ),
    **_splits(
        "fashion-mnist",
        {
            "art-ipca-tasks": (77.56, 0.60),
            "ewc": (19.47, None),
            "den": (31.51, None),
            "icarl": (80.70, None),
        },
    ),
    "rotated-mnist": Stream(
        "Rotated MNIST",
        "All classes in each of 15 tasks, of which each is turned by 5° more; 10,000 rows a task "
        "to learn and 1,000 to test. Nobody is told the task.",
        "mnist", _rotated, 15, 1, domains("rotated-mnist"),
    ),
    "permuted-mnist": Stream(
        "Permuted MNIST",
        "All classes in each of 10 tasks, of which each has its pixels in an order of its own; "
        "10,000 rows a task to learn and 1,000 to test. Nobody is told the task.",
        "mnist", _permuted, 10, 1, domains("permuted-mnist"),
    ),
    "kin40k": Stream(
        "kin40k",
        "40,000 rows of a robot arm's kinematics in five ranges of its first input, so that the "
        "working region moves; a fifth of each is tested. RMSE of standardised answers.",
        "kin40k", _arm, 5, 3, arm(),
    ),
}  # fmt: skip
"""The streams by name, in the order of tables."""
