"""Learners and streams of the experiment ``continual``, and published results on these streams.

Settings were chosen on held-out training rows, never on test rows: ``benchmarks/fixed_features.py``
for features of images, ``benchmarks/held_out.py`` for the other features and for networks,
``benchmarks/class_statistics.py`` for class statistics. ART-IPCA uses the settings of its paper
[1]. Published results are those of Table 1 of [1], whose results of EWC, iCaRL and DEN are from
other work.

[1] N. Ashtekar, V. Honavar, "A simple, fast algorithm for continual learning from high-dimensional
    data", ICLR 2023, Tiny Papers.
"""

from __future__ import annotations

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

Maker: TypeAlias = Callable[[int], Any]
"""Returns a learner for a seed."""

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
    "agem": "A-GEM",
    "derpp": "DER++",
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
"""Data -> options of ``RandomConvolution`` with random filters, and the ridge of the learner."""

UNITS: tuple[dict[str, Any], float] = ({"width": 5000, "standardize": "row", "bias": 1.0}, 30.0)
"""Options of ``RandomReLU`` and the ridge for permuted pixels, which have no neighbourhoods."""

_SHRUNK = {"mnist": (0.03, 0.1), "fashion-mnist": (0.001, 0.6)}
"""Data -> shrinkage of the covariance of LDA, and of the covariances of QDA."""

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
        "agem": {"step_size": 0.05, "capacity": 2000},
        "derpp": {"step_size": 0.05, "capacity": 2000},
        "joint": {"step_size": 0.1, "epochs": 3, "batch": 64},
    },
    "domain": {
        "sgd": {"step_size": 0.05},
        "ewc": {"step_size": 0.05, "penalty": 100.0},
        "replay": {"step_size": 0.05, "capacity": 2000},
    },
}  # fmt: skip
"""Kind of stream -> network baseline -> settings."""

_CLASSES = {
    "sgd": "SGD", "ewc": "EWC", "si": "SI", "lwf": "LwF", "den": "DEN", "icarl": "ICaRL",
    "replay": "Replay", "agem": "AGEM", "derpp": "DERPP", "joint": "Joint",
}  # fmt: skip


def split_learners(data: str, *, whole: bool = False) -> dict[str, Maker]:
    """Return the learners for streams in which every task has its own classes.

    Parameters
    ----------
    data : {"mnist", "fashion-mnist"}
    whole : bool, default=False
        Whether the stream has all rows; then only one-pass learners are returned.
    """
    lda, qda = _SHRUNK[data]
    made: dict[str, Maker] = {
        "rls-filters": _least_squares(RandomConvolution, *FILTERS[data]),
        "art-ipca": _art(_AXES[data], "incremental"),
        "qda": partial(make_estimator, StreamingQDA, {"reg_param": qda}),
        "lda": partial(make_estimator, StreamingLDA, {"shrinkage": lda}),
        "ncm": partial(make_estimator, NearestClassMean, {}),
    }
    if whole:
        return made
    made["rls-relu"] = _least_squares(RandomReLU, {"width": 2000}, 1.0)
    made["rls-pixels"] = partial(make_estimator, RLSClassifier, {"ridge": 1.0})
    made["art-ipca-tasks"] = _art(_AXES[data], "task")
    return {**made, **_networks("split")}


def domain_learners(stream: str) -> dict[str, Maker]:
    """Return the learners for streams whose tasks share their classes.

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
        "rls-pixels": partial(make_estimator, RLSClassifier, {"ridge": 1.0}),
        "ncm": partial(make_estimator, NearestClassMean, {}),
    }
    return {**features, **plain, **_networks("domain")}


def kin40k_learners() -> dict[str, Maker]:
    """Return the learners for kin40k."""
    waves, exact = {"width": 1000, "gamma": 0.1}, {"ridge": 1e-4, "prior": 0.0}
    return {
        "rls-fourier": partial(make_pipeline, RandomFourier, waves, RLSRegressor, exact),
        "sgd-fourier": partial(make_pipeline, RandomFourier, waves, SGDRegressor, {}),
    }


def settings_of(makers: Mapping[str, Maker]) -> dict[str, str]:
    """Return the constructor call of each learner as text, without the layers of networks.

    Parameters
    ----------
    makers : mapping of str to Maker
    """
    return {name: _constructor_call(name, maker) for name, maker in makers.items()}


def _constructor_call(name: str, maker: Maker) -> str:
    if name not in _CLASSES:
        return " ".join(repr(maker(0)).split())
    settings: Any = maker
    arguments = ", ".join(f"{key}={value!r}" for key, value in settings.args[1].items())
    return f"{_CLASSES[name]}({arguments})"


def make_estimator(kind: type, settings: Mapping[str, object], seed: int) -> Any:
    """Return a learner without random choices.

    Parameters
    ----------
    kind : type
        Class of the learner.
    settings : mapping
        Arguments of the constructor.
    seed : int
        Ignored.
    """
    del seed
    return kind(**settings)


def make_pipeline(
    features: type,
    options: Mapping[str, object],
    kind: type,
    settings: Mapping[str, object],
    seed: int,
) -> Pipeline:
    """Return a pipeline of random features and a learner.

    Parameters
    ----------
    features : type
        Class of the features.
    options : mapping
        Arguments of their constructor.
    kind : type
        Class of the learner.
    settings : mapping
        Arguments of its constructor.
    seed : int
        Seed of the features.
    """
    return Pipeline(features(**options, seed=seed), kind(**settings))


def _least_squares(features: type, options: Mapping[str, object], ridge: float) -> Maker:
    return partial(make_pipeline, features, options, RLSClassifier, {"ridge": ridge, "prior": 0.0})


def _art(axes: int, pca: str) -> Maker:
    settings = {"n_components": axes, "vigilance": 0.5, "pca": pca, "max_prototypes": None}
    return partial(make_estimator, ARTIPCAClassifier, settings)


def _networks(kind: str) -> dict[str, Maker]:
    return {name: partial(make_network, name, given) for name, given in NETWORKS[kind].items()}


def make_network(name: str, settings: Mapping[str, object], seed: int) -> Any:
    """Return a baseline that trains a 784-400-400-10 perceptron.

    Parameters
    ----------
    name : str
        A key of ``NETWORKS``.
    settings : mapping
        Arguments of the constructor.
    seed : int
        Seed of the initial weights and of the baseline's random choices.
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
        Title in tables and figures.
    about : str
        Description of the training and test rows.
    data : str
        Data set: a name that :func:`load_data` accepts.
    make : callable
        Called as ``make(data, scale, seed)``.
    tasks : int
        Number of tasks.
    draws : int
        Default number of seeds.
    learners : mapping of str to Maker
        Learner name -> factory.
    published : mapping of str to (float, float or None)
        Learner -> accuracy and its standard deviation, in percent [1].
    """

    title: str
    about: str
    data: str
    make: Callable[[Any, float, int], Experiences]
    tasks: int
    draws: int
    learners: Mapping[str, Maker]
    published: Mapping[str, tuple[float, float | None]] = field(default_factory=dict)


def load_data(data: str) -> Any:
    """Load images, or the rows and targets of a table; downloads them if needed.

    Parameters
    ----------
    data : {"mnist", "fashion-mnist", "kin40k"}

    Raises
    ------
    SourceError
        If the data set is not available.
    """
    if data in _KNOWN:
        return images(data)
    blocks = list(dataset(data))
    X = np.concatenate([np.stack(list(b.X.columns.values()), axis=1) for b in blocks])
    return X, np.concatenate([b.y for b in blocks])


def check_data(data: Mapping[str, object] | None) -> dict[str, Any]:
    """Check the argument ``data`` of :func:`continual` and convert it.

    Parameters
    ----------
    data : mapping or None
        Name as in :func:`load_data` -> Images, or (X, y).

    Raises
    ------
    ParameterError
        If a name is unknown or a value is neither.
    """
    checked: dict[str, Any] = {}
    for name, given in (data or {}).items():
        if name in _KNOWN and isinstance(given, Images):
            checked[name] = given
            continue
        pair = [np.asarray(part) for part in given] if isinstance(given, (tuple, list)) else []
        if name != _ARM or [part.ndim for part in pair] != [2, 1] or len({*map(len, pair)}) != 1:
            raise ParameterError(
                f"`data` must contain op.stream.Images for the names {', '.join(_KNOWN)}, or (X, "
                f"y) of shapes (n, d) and (n,) for {_ARM}, got {name!r} with a "
                f"{type(given).__name__}. Pass these, or omit `data` to download them.",
                "continual",
            )
        checked[name] = tuple(pair)
    return checked


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


def _kin40k(known: tuple[Floats, Floats], scale: float, seed: int) -> Experiences:
    X, y = known
    n = min(len(y), _rows(40_000, scale))
    return experiences(X[:n], y[:n], by=X[:n, 0], n_tasks=5, seed=seed, name="kin40k")


def _split_streams(
    data: str, published: Mapping[str, tuple[float, float | None]]
) -> dict[str, Stream]:
    """Return the streams of both protocols of a data set."""
    name = f"Split {_KNOWN[data]}"
    return {
        f"split-{data}": Stream(
            name,
            "Two classes per task, 2,000 training and 500 test rows per class, predictions among "
            "all ten classes: the protocol of the ART-IPCA paper.",
            data, partial(_split, name), 5, 5, split_learners(data), published,
        ),
        f"whole-{data}": Stream(
            f"{name}, all rows",
            "The same protocol with all 60,000 training and 10,000 test rows.",
            data, partial(_whole, f"{name}, all rows"), 5, 5, split_learners(data, whole=True),
        ),
    }  # fmt: skip


STREAMS: dict[str, Stream] = {
    **_split_streams(
        "mnist",
        {
            "art-ipca-tasks": (94.03, 0.26),
            "ewc": (20.01, None),
            "den": (56.95, None),
            "icarl": (94.57, None),
        },
    ),
    **_split_streams(
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
        "15 tasks with all classes, each rotated by 5° more than the last; 10,000 training and "
        "1,000 test rows per task. Learners do not know the task.",
        "mnist", _rotated, 15, 1, domain_learners("rotated-mnist"),
    ),
    "permuted-mnist": Stream(
        "Permuted MNIST",
        "10 tasks with all classes, each with its own permutation of the pixels; 10,000 training "
        "and 1,000 test rows per task. Learners do not know the task.",
        "mnist", _permuted, 10, 1, domain_learners("permuted-mnist"),
    ),
    "kin40k": Stream(
        "kin40k",
        "40,000 rows of a robot arm's kinematics, split into five ranges of the first input, so "
        "that the working region moves; a fifth of each range is held out for testing. RMSE of "
        "standardised targets.",
        "kin40k", _kin40k, 5, 3, kin40k_learners(),
    ),
}  # fmt: skip
"""Streams by name, in the order of the tables."""
