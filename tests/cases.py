"""Learners, data and snapshots for the contract tests.

All learners of ``onepass.learners.__all__`` are included. `VARIANTS` adds settings that take other
paths through their code. Two minimal learners, plain loops over rows, come first: they show that
the contract can be met.
"""

import copy
import inspect
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, is_dataclass
from importlib.util import find_spec
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, is_classifier

from onepass import forgetting, learners, memory
from onepass.declared import FEATURE, OUTPUT, State, param, start_states
from onepass.errors import NumericalError
from onepass.features import Encode, Impute, RandomReLU, Scale
from onepass.features.pipeline import Pipeline
from onepass.learners.estimator import Classifier, Learner, Regressor
from onepass.learners.rls import LeastSquares
from onepass.memory.vector import EXPERTS, WINDOW_HEAD, Flag, Parts, Slot

__all__ = [
    "CHECKED",
    "CLASSIFIERS",
    "LEARNERS",
    "PIPELINES",
    "PUBLIC",
    "REGRESSORS",
    "Case",
    "TinyClassifier",
    "TinyRegressor",
    "draw",
    "features",
    "make_targets",
    "parametrize",
    "pieces",
    "snapshot",
]

Array = NDArray[Any]


@dataclass(eq=False, repr=False)
class _NormalisedLMS(Learner):
    """NLMS over a matrix of weights (d, c): W ← W + s η x (y − xᵀW)ᵀ / (1 + ‖x‖²)."""

    step_size: float = param(1.0, above=0.0)

    coef_ = State[Array](FEATURE, OUTPUT)

    def _start(self, d: int, c: int) -> None:
        start_states(self, d=d, c=c)

    def _learn(self, X: Array, Y: Array, s: Array | None, classes_seen: Array | None) -> Array:
        del classes_seen  # before its first row a class has target 0 and score 0: no step
        W, predictions = self.coef_.copy(), np.empty(Y.shape)
        with np.errstate(over="ignore", invalid="ignore"):
            for i, x in enumerate(X.astype(np.float64)):
                predictions[i] = x @ W
                step = self.step_size * (1.0 if s is None else s[i]) * x / (1.0 + x @ x)
                W += np.outer(step, Y[i] - predictions[i])
        if not (np.isfinite(W).all() and np.isfinite(predictions).all()):
            raise NumericalError("TinyRegressor: X and y must be small enough, got larger.")
        self.coef_ = W
        return predictions

    def _scores(self, X: Array) -> Array:
        return np.array([x @ self.coef_ for x in X.astype(np.float64)]).reshape(
            len(X), self.coef_.shape[1]
        )


class TinyRegressor(_NormalisedLMS, Regressor):
    """A minimal regressor that meets the contract."""

    def _initial_prediction(self, row: Array) -> float:
        del row
        return 0.0


@dataclass(eq=False, repr=False)
class TinyClassifier(_NormalisedLMS, Classifier):
    """A minimal classifier that meets the contract."""

    classes: Any = None


@dataclass(frozen=True)
class Case:
    """One learner with one setting."""

    made: BaseEstimator
    note: str = ""

    def __call__(self, **params: Any) -> Any:
        """An unfitted copy, with some parameters replaced."""
        return copy.deepcopy(self.made).set_params(**params)

    @property
    def name(self) -> str:
        return type(self.made).__name__ + (f"[{self.note}]" if self.note else "")

    @property
    def public(self) -> bool:
        return type(self.made).__name__ in NAMES


MIXTURES = {
    "MixtureRegressor": [
        learners.RLSRegressor(forgetting="auto"),
        learners.ForestRegressor(3),
        Pipeline(Impute(), Scale(), learners.SGDRegressor()),
    ],
    "MixtureClassifier": [
        learners.RLSClassifier(forgetting="auto"),
        Pipeline(Impute(), learners.ForestClassifier(3)),
    ],
}
"""The models of each kind of mixture."""
NAMES = (*learners.__all__, *MIXTURES)


def _noise_of(spec: Any) -> float:
    """A noise that the memory supports."""
    return 0.0 if isinstance(spec, (memory.LastDirections, memory.Random)) else 0.1


def _memories() -> Iterable[Any]:
    """All memories; with two directions, if the number is a parameter."""
    for name in memory.__all__:
        kind = getattr(memory, name)
        yield kind(m=2) if "m" in inspect.signature(kind).parameters else kind()


def _on_device(settings: dict[str, Any]) -> list[dict[str, Any]]:
    """Settings of least squares in PyTorch tensors, if PyTorch is installed."""
    return [{**settings, "device": "cpu"}] if find_spec("torch") else []


VARIANTS: dict[str, Sequence[dict[str, Any]]] = {
    "ARTIPCAClassifier": [
        {"n_components": 2, "block": 8, "max_prototypes": 5},
        {"pca": "none", "similarity": "euclidean", "step": 0.3},
        {"projection": "lda", "block": 8},
        {"projection": "lda", "shrinkage": "oas", "block": 8, "levels": 2, "max_prototypes": 3},
        # at vigilance 0, rounding decides whether rows match a prototype at the mean of all rows
        {"levels": 2, "n_components": (2, 1), "vigilance": (0.3, 0.7), "block": 8},
    ],
    "KalmanRegressor": [
        {"process_noise": 0.01, "noise": 0.5, "fit_intercept": False},
        {"process_noise": 0.0, "noise": "auto", "forgetting": 0.95, "prior_variance": 10.0},
        {"process_noise": 0.0, "prior_variance": 10.0},
    ],
    "MirrorORFitRegressor": [
        {"potential": 3.0, "memory": 2},
        {"potential": "entropy", "memory": None, "fit_intercept": True},
    ],
    "NearestClassMean": [{"metric": "cosine"}],
    "StreamingLDA": [{"shrinkage": "oas", "priors": "uniform"}],
    "StreamingQDA": [{"reg_param": 0.0}],
    "RLSRegressor": [
        {"ridge": 0.0},
        {"forgetting": 0.95},
        {"forgetting": "auto"},
        {"forgetting": forgetting.Exponential(0.95)},
        {"forgetting": forgetting.Window(8)},
        {"forgetting": forgetting.Window(30), "ridge": 0.0},
        {"forgetting": forgetting.Directional(0.95, 5)},
        {"forgetting": "directional:0.9,1", "prior": 1.0},
        {"prior": 1.0},
        {"prior": 2.0, "forgetting": 0.9, "fit_intercept": False},
        {"fit_intercept": False, "ridge": 1.0},
        *_on_device({}),
    ],
    "RLSClassifier": [
        {"forgetting": 0.95},
        {"forgetting": "auto"},
        {"ridge": 1.0},
        {"forgetting": forgetting.Directional(0.95)},
        *_on_device({"forgetting": forgetting.Exponential(0.95), "prior": 1.0}),
        {"forgetting": forgetting.Window(12), "prior": 1.0},
        {"forgetting": forgetting.Window(12, factor=0.9)},
    ],
    "KernelRLSRegressor": [
        {"tolerance": 0.0, "budget": None, "gamma": 0.5},
        {"budget": 9, "gamma": 0.5, "noise": 0.01},
        {"kernel": "laplacian", "gamma": 0.5, "forgetting": 0.95},
        {"kernel": "polynomial", "gamma": 0.5, "noise": 1.0},
        {"noise": 0.0, "budget": 9, "gamma": 0.5, "tolerance": 0.01},
        {"kernel": "cosine", "forgetting": 0.9, "budget": 5, "gamma": 0.5},
        {"kernel": "linear", "gamma": 0.5, "tolerance": 0.0, "budget": None},
    ],
    "KernelRLSClassifier": [
        {"tolerance": 0.0, "budget": None, "gamma": 0.5},
        {"forgetting": 0.95, "budget": 9, "gamma": 0.5},
    ],
    "ORFitRegressor": [
        {"memory": 2, "fit_intercept": True},
        {"memory": None},
        {"memory": 2},
        *({"memory": spec, "noise": _noise_of(spec)} for spec in _memories()),
    ],
    "ORFitClassifier": [{"memory": None, "noise": 0.1}, {"memory": 2}],
    "SGDRegressor": [
        {"step": "constant", "step_size": 0.01},
        {"step": "decaying", "step_size": 0.01, "l2": 0.1},
        {"loss": "huber"},
        {"loss": "epsilon-insensitive", "step": "pa1"},
    ],
    "SGDClassifier": [
        {"loss": "logistic", "step": "decaying", "step_size": 0.1, "l2": 0.1},
        {"loss": "perceptron", "step": "constant", "step_size": 0.1, "fit_intercept": False},
        {"loss": "hinge", "step": "pa2"},
    ],
    "Perceptron": [{"fit_intercept": True}],
}
"""Learner -> settings that take other paths through its code than the defaults."""


def _cases() -> Iterable[Case]:
    yield Case(TinyRegressor())
    yield Case(TinyClassifier())
    for name in NAMES:
        make = getattr(learners, name)
        yield Case(make(models=MIXTURES[name]) if name in MIXTURES else make())
        for params in VARIANTS.get(name, ()):
            yield Case(make(**params), ", ".join(f"{k}={v}" for k, v in params.items()))


LEARNERS = list(_cases())
PIPELINES = [
    Case(Pipeline(Encode(), Impute(), learners.RLSRegressor()), "exact"),
    Case(Pipeline(Encode(), Impute(), Scale(), learners.SGDRegressor()), "scaled"),
    Case(Pipeline(Impute(indicator=True), Scale(), learners.SGDClassifier()), "matrices"),
    Case(Pipeline(Encode(), learners.RLSClassifier()), "encoded"),
    Case(Pipeline(RandomReLU(6), learners.RLSClassifier(ridge=0.1)), "random units"),
]
"""Pipelines, for tests that apply to them as to learners."""
PUBLIC = [case for case in LEARNERS if case.public]
CLASSIFIERS = [case for case in LEARNERS if is_classifier(case.made)]
CHECKED = [
    case
    for name in NAMES
    for case in [case for case in PUBLIC if type(case.made).__name__ == name][:2]
]
"""Public learners with their defaults and one other setting: scikit-learn's checks take long."""
REGRESSORS = [case for case in LEARNERS if not is_classifier(case.made)]


def draw(cases: Sequence[Case], test: str) -> list[Case]:
    """Draw cases for a test at random: of each learner a third of its settings, at least one.

    The choice depends on the name of the test and on the environment variable
    ``ONEPASS_TEST_SEED``, which ``conftest`` sets to a random number and prints. With
    ``ONEPASS_TEST_ALL=1`` all cases are returned.

    Parameters
    ----------
    cases : sequence of Case
    test : str
        The name of the test.
    """
    if os.environ.get("ONEPASS_TEST_ALL") == "1":
        return list(cases)
    rng = np.random.default_rng([int(os.environ.get("ONEPASS_TEST_SEED", "0")), *test.encode()])
    learners = [type(case.made).__name__ for case in cases]
    chosen: list[int] = []
    for name in dict.fromkeys(learners):
        settings = [i for i, learner in enumerate(learners) if learner == name]
        chosen += rng.permutation(settings)[: max(1, len(settings) // 3)].tolist()
    return [cases[i] for i in sorted(chosen)]


Test = TypeVar("Test", bound=Callable[..., None])


def parametrize(cases: Sequence[Case]) -> Callable[[Test], Test]:
    """Run a test with cases drawn for it, or with all cases if ONEPASS_TEST_ALL=1."""

    def decorate(test: Test) -> Test:
        chosen = draw(cases, test.__name__)
        marked: Test = pytest.mark.parametrize("case", chosen, ids=lambda case: case.name)(test)
        return marked

    return decorate


def features(n: int, d: int = 4, seed: int = 0) -> Array:
    """Random rows, with columns of different scale and mean."""
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, d)) * np.geomspace(0.5, 2.0, d) + np.linspace(-0.5, 0.5, d)


def make_targets(case: Case, X: Array, seed: int = 0, *, kinds: int = 3) -> Array:
    """Targets of a linear model with noise.

    For classifiers the last class occurs in the second half only.
    """
    rng = np.random.default_rng((seed, 1))
    signal = X @ rng.normal(size=(X.shape[1], kinds)) + rng.normal(size=(len(X), kinds))
    if not is_classifier(case.made):
        return np.asarray(signal[:, 0])
    label = signal.argmax(axis=1)
    early = np.arange(len(X)) < len(X) // 2
    return np.where(early & (label == kinds - 1), 0, label)


def pieces(n: int, cuts: Iterable[int]) -> list[slice]:
    """Slices of n rows between these cuts; some may be empty."""
    edges = [0, *sorted(cut for cut in cuts if cut <= n), n]
    return [slice(a, b) for a, b in pairwise(edges)]


def _without_solutions(vector: Array) -> Array:
    """A vector of least squares without the weights, which the first prediction computes."""
    vector = vector.copy()
    core = Parts(vector)
    starts = [0]
    if core.flags & Flag.MIXTURE:
        starts = [k * core.size for k in range(EXPERTS)]
    elif core.flags & Flag.WINDOW:
        starts = [0, core.size + WINDOW_HEAD, 2 * core.size + WINDOW_HEAD]
    elif core.flags & Flag.DIRECTIONAL:
        starts = [0, core.size + 2]
    for at in starts:
        parts = Parts(vector[at : at + core.size])
        if parts.d:  # the copy of a window may be empty
            parts.w[:] = parts.head[Slot.FRESH] = 0.0
    return vector


def is_compiled(learner: Any) -> bool:
    """Whether compiled code learns the single rows of a learner."""
    return getattr(learner, "_single", None) is not None


def snapshot(thing: Any) -> Any:  # noqa: PLR0911  one return per type
    """The content of an object as plain values that compare equal only if all bits are equal."""
    if isinstance(thing, np.ndarray):
        plain = thing.tolist() if thing.dtype.hasobject else thing.tobytes()
        layout = (thing.flags.c_contiguous, thing.flags.f_contiguous)  # BLAS may round by it
        return (str(thing.dtype), thing.shape, layout, plain)
    if isinstance(thing, np.generic):
        return (str(thing.dtype), thing.tobytes())
    if isinstance(thing, np.random.Generator):
        return snapshot(thing.bit_generator.state)
    if isinstance(thing, dict):
        return {key: snapshot(value) for key, value in thing.items()}
    if isinstance(thing, (list, tuple)):
        return [snapshot(part) for part in thing]
    if is_dataclass(thing) and not isinstance(thing, type):
        content = {f.name: snapshot(getattr(thing, f.name)) for f in fields(thing) if f.init}
        return (type(thing).__name__, content)
    if isinstance(thing, LeastSquares):
        state = {key: value for key, value in thing.__getstate__().items() if key != "_excited"}
        if "state_" in state:
            state["state_"] = _without_solutions(state["state_"])
        return (type(thing).__name__, snapshot(state))
    if isinstance(thing, BaseEstimator):
        compiled = is_compiled(thing) or "_on_device" in vars(thing)
        state = thing.__getstate__() if compiled else vars(thing)
        return (type(thing).__name__, snapshot(state))
    return thing
