"""Learners and streams of the experiment ``continual``, and published results on these streams.

Settings were chosen on held-out training rows, never on test rows:
``benchmarks/fixed_features.py`` for features of images, ``benchmarks/held_out.py`` for the other
features and for networks, ``benchmarks/class_statistics.py`` for statistics of classes. ART-IPCA
has the settings of its paper [1]. Published results are those of Table 1 of [1]; its EWC, iCaRL and
DEN are others' results.

[1] N. Ashtekar, V. Honavar, "A simple, fast algorithm for continual learning from high-dimensional
    data", ICLR 2023, Tiny Papers.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import import_module
from typing import Any, TypeAlias

import numpy as np

from onepass.errors import ParameterError
from onepass.features import RandomConvolution, RandomFourier, RandomReLU
from onepass.features.pipeline import Pipeline
from onepass.learners import (
    ARTIPCAClassifier,
    NearestClassMean,
    RLSClassifier,
    RLSRegressor,
    SGDRegressor,
    StreamingLDA,
    StreamingQDA,
)
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
from onepass.types import Floats

__all__ = [
    "FILTERS",
    "NETWORKS",
    "STREAMS",
    "TITLES",
    "UNITS",
    "Maker",
    "Stream",
    "arm",
    "behind",
    "domains",
    "found",
    "held",
    "learner",
    "network",
    "settings_of",
    "splits",
]


Maker: TypeAlias = Callable[[int], Any]
"""Makes a learner of a seed."""

TITLES: dict[str, str] = {
    "rls-filters": "RLS-filters",
    "rls-relu": "RLS-ReLU",
    "rls-fourier": "RLS-Fourier",
    "rls-pixels": "RLS-pixels",
    "sgd-fourier": "SGD-Fourier",
    "art-ipca": "ART-IPCA",
    "art-ipca-tasks": "ART-IPCA-tasks",
    "qda": "QDA",
    "lda": "LDA",
    "ncm": "NCM",
    "sgd": "SGD",
    "ewc": "EWC",
    "si": "SI",
    "lwf": "LwF",
    "den": "DEN",
    "icarl": "iCaRL",
    "replay": "replay",
    "joint": "joint",
}
"""Name in files -> name in tables and on the command line, in the order of tables."""

_SMOOTH = {"padding": 2, "overlap": 0.4, "power": 0.5}
_DIGITS = _SMOOTH | {"size": 7, "threshold": 0.5, "pool": 4}

FILTERS: dict[str, tuple[dict[str, Any], float]] = {
    "mnist": (_DIGITS | {"filters": 156}, 0.3),
    "fashion-mnist": (_SMOOTH | {"size": 5, "threshold": 0.3, "contrast": 0.02, "pool": 5}, 1.0),
    "rotated-mnist": (_DIGITS, 0.3),
}
"""Data -> options of ``RandomConvolution``, and the ridge behind it; filters are noise."""

UNITS: tuple[dict[str, Any], float] = ({"width": 5000, "standardize": "row", "bias": 1.0}, 30.0)
"""Options of ``RandomReLU`` where pixels are in another order and nothing is near anything."""

_SHRUNK = {"mnist": (0.03, 0.1), "fashion-mnist": (0.001, 0.6)}
"""Data -> how much the covariance of LDA is shrunk, and those of QDA."""

_AXES = {"mnist": 200, "fashion-mnist": 250}  # [1] A.5.4
_HIDDEN = 400  # units of each of two layers

NETWORKS: dict[str, dict[str, dict[str, Any]]] = {
    "split": {
        "sgd": {"step_size": 0.05},
        "ewc": {"step_size": 0.1, "penalty": 100.0, "epochs": 3, "batch": 64},
        "si": {"step_size": 0.05},
        "lwf": {"step_size": 0.05},
        "den": {"step_size": 0.1, "epochs": 2, "batch": 64},
        "icarl": {
            "step_size": 0.05, "momentum": 0.9, "capacity": 2000, "temperature": 2.0, "epochs": 8,
            "batch": 64,
        },
        "replay": {"step_size": 0.05, "capacity": 2000},
        "joint": {"step_size": 0.1, "epochs": 3, "batch": 64},
    },
    "domain": {
        "sgd": {"step_size": 0.05},
        "ewc": {"step_size": 0.05, "penalty": 100.0},
        "replay": {"step_size": 0.05, "capacity": 2000},
    },
}  # fmt: skip
"""Kind of stream -> network baseline -> its settings."""

_CLASSES = {
    "sgd": "SGD", "ewc": "EWC", "si": "SI", "lwf": "LwF", "den": "DEN", "icarl": "ICaRL",
    "replay": "Replay", "joint": "Joint",
}  # fmt: skip


def splits(data: str, *, whole: bool = False) -> dict[str, Maker]:
    """The learners of streams whose tasks bring classes of their own.

    Parameters
    ----------
    data : {"mnist", "fashion-mnist"}
    whole : bool, default=False
        Of all rows: those alone that go through each once.
    """
    lda, qda = _SHRUNK[data]
    made: dict[str, Maker] = {
        "rls-filters": _least_squares(RandomConvolution, *FILTERS[data]),
        "art-ipca": _art(_AXES[data], "incremental"),
        "qda": partial(learner, StreamingQDA, {"reg_param": qda}),
        "lda": partial(learner, StreamingLDA, {"shrinkage": lda}),
        "ncm": partial(learner, NearestClassMean, {}),
    }
    if whole:
        return made
    made["rls-relu"] = _least_squares(RandomReLU, {"width": 2000}, 1.0)
    made["rls-pixels"] = partial(learner, RLSClassifier, {"ridge": 1.0})
    made["art-ipca-tasks"] = _art(_AXES[data], "task")
    return {**made, **_networks("split")}


def domains(stream: str) -> dict[str, Maker]:
    """The learners of streams whose tasks share their classes.

    Parameters
    ----------
    stream : {"rotated-mnist", "permuted-mnist"}
    """
    features: dict[str, Maker] = (
        {"rls-filters": _least_squares(RandomConvolution, *FILTERS[stream])}
        if stream in FILTERS
        else {"rls-relu": _least_squares(RandomReLU, *UNITS)}
    )
    plain: dict[str, Maker] = {
        "rls-pixels": partial(learner, RLSClassifier, {"ridge": 1.0}),
        "ncm": partial(learner, NearestClassMean, {}),
    }
    return {**features, **plain, **_networks("domain")}


def arm() -> dict[str, Maker]:
    """The learners of a robot arm."""
    waves = {"width": 1000, "gamma": 0.1}
    return {
        "rls-fourier": partial(behind, RandomFourier, waves, RLSRegressor, {"ridge": 1e-4}),
        "sgd-fourier": partial(behind, RandomFourier, waves, SGDRegressor, {}),
    }


def settings_of(makers: Mapping[str, Maker]) -> dict[str, str]:
    """How each learner is made, as text; without the layers of networks.

    Parameters
    ----------
    makers : mapping of str to Maker
    """
    return {name: _shown(name, maker) for name, maker in makers.items()}


def _shown(name: str, maker: Maker) -> str:
    if name not in _CLASSES:
        return " ".join(repr(maker(0)).split())
    settings: Any = maker
    told = ", ".join(f"{key}={value!r}" for key, value in settings.args[1].items())
    return f"{_CLASSES[name]}({told})"


def learner(kind: type, settings: Mapping[str, object], seed: int) -> Any:
    """A learner that draws nothing.

    Parameters
    ----------
    kind : type
        Its class.
    settings : mapping
        What it is made with.
    seed : int
        Of no use to it.
    """
    del seed
    return kind(**settings)


def behind(
    features: type,
    options: Mapping[str, object],
    kind: type,
    settings: Mapping[str, object],
    seed: int,
) -> Pipeline:
    """A learner behind features that are drawn before data come.

    Parameters
    ----------
    features : type
        Their class.
    options : mapping
        What they are made with.
    kind : type
        The learner's class.
    settings : mapping
        What it is made with.
    seed : int
        Of the features.
    """
    return Pipeline(features(**options, seed=seed), kind(**settings))


def _least_squares(features: type, options: Mapping[str, object], ridge: float) -> Maker:
    return partial(behind, features, options, RLSClassifier, {"ridge": ridge})


def _art(axes: int, pca: str) -> Maker:
    settings = {"n_components": axes, "vigilance": 0.5, "pca": pca, "max_prototypes": None}
    return partial(learner, ARTIPCAClassifier, settings)


def _networks(kind: str) -> dict[str, Maker]:
    return {name: partial(network, name, given) for name, given in NETWORKS[kind].items()}


def network(name: str, settings: Mapping[str, object], seed: int) -> Any:
    """A baseline in a perceptron of 784, 400, 400 and 10 units, whose weights the seed draws.

    Parameters
    ----------
    name : str
        A key of ``NETWORKS``.
    settings : mapping
        What it is made with.
    seed : int
        Of first weights, and of what it draws.
    """
    torch, baselines = import_module("torch"), import_module("onepass_experiments.baselines")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        module = torch.nn.Sequential(
            torch.nn.Linear(784, _HIDDEN), torch.nn.ReLU(),
            torch.nn.Linear(_HIDDEN, _HIDDEN), torch.nn.ReLU(),
            torch.nn.Linear(_HIDDEN, 10),
        )  # fmt: skip
    seeded = {} if name == "sgd" else {"seed": seed}
    return getattr(baselines, _CLASSES[name])(module, **seeded, **settings)


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


def held(data: Mapping[str, object] | None) -> dict[str, Any]:
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
