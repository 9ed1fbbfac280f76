"""Learners and features stored in `files`, with the rows that they learn.

Rows are computed exactly, so that they are the same on all machines.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import onepass as op
from onepass import features, forgetting, memory

__all__ = ["CASES", "FILES", "PARAMETERS", "Case", "assert_close", "expected", "learn", "outcome"]

FILES = Path(__file__).with_name("files")
EXPECTED = FILES / "expected.json"
START = np.datetime64("2024-01-01", "us")


# -- rows ------------------------------------------------------------------------------------------


def numbers(first: int, last: int, d: int = 4) -> Any:
    """Rows of d columns; the values of a column are a quadratic congruence."""
    i, j = np.arange(first + 1, last + 1)[:, None], np.arange(d)
    return (i * i * (3 + 2 * j) + i * (17 + 6 * j)) % 101 / 25 - 2


def dependent(first: int, last: int) -> Any:
    """Rows with a constant column and a column that is the sum of two others."""
    X = numbers(first, last, 3)
    return np.column_stack((X, X[:, 0] + X[:, 1], np.full(len(X), 3.0)))


def wide(first: int, last: int) -> Any:
    return numbers(first, last, 16)


def fading(first: int, last: int) -> Any:
    """A column that is constant from row 8 on."""
    X = numbers(first, last)
    X[np.arange(first, last) >= 8, 1] = 0.5
    return X


def gaps(first: int, last: int) -> Any:
    """Missing values in two columns."""
    X = numbers(first, last)
    X[3::7, 0] = X[2::5, 2] = np.nan
    return X


def table(first: int, last: int) -> Any:
    """Rows with numbers, text, dates and missing values; one category occurs from row 20 on."""
    x, rows = numbers(first, last, 2), []
    for i, (u, v) in enumerate(x.tolist(), first):
        at = (START + np.timedelta64(37 * i, "h")).item()
        by = "rail" if i >= 20 and i % 7 == 0 else ("sea", "air", "road", "é")[i % 4]
        row = {"u": u, "by": by, "v": v, "at": at}
        rows.append(row if i % 5 else {**row, "u": None, "by": None})
    return rows


def named(first: int, last: int) -> Any:
    return [dict(zip("abc", row, strict=True)) for row in numbers(first, last, 3).tolist()]


def keyed(first: int, last: int) -> Any:
    """Rows of four keys, the first column."""
    return np.column_stack((np.arange(first, last) % 7 % 4, numbers(first, last, 2)))


def keyed_table(first: int, last: int) -> Any:
    rows = table(first, last)
    return [{**row, "key": f"k{i % 3}" if i % 4 else i % 5} for i, row in enumerate(rows, first)]


def pictures(first: int, last: int) -> Any:
    return (numbers(first, last, 36) + 2.0) / 4.04


def number(first: int, last: int) -> Any:
    x = numbers(first, last, 6)
    return 2.0 * x[:, 0] - x[:, 1] + 0.5 * x[:, 2] + 0.25 * x[:, 5] + 1.0


def several(first: int, last: int) -> Any:
    return np.column_stack((number(first, last), numbers(first, last, 6)[:, 3:] @ [1.0, 0.5, -1.0]))


def text(first: int, last: int) -> Any:
    """Labels; the last class occurs from row 20 on."""
    label = numbers(first, last, 3).argmax(axis=1)
    label[(label == 2) & (np.arange(first, last) < 20)] = 1
    return np.array(["low", "mid", "high"])[label]


def whole(first: int, last: int) -> Any:
    return numbers(first, last, 3).argmax(axis=1)


def seconds(first: int, last: int) -> Any:
    i = np.arange(first, last)
    return 1.5 * i + (i % 3) / 4


def dates(first: int, last: int) -> Any:
    return START + (60e6 * seconds(first, last)).astype("timedelta64[us]")


Rows = Callable[[int, int], Any]


class Case(NamedTuple):
    """A learner and its rows.

    Parameters
    ----------
    made : learner, Pipeline or feature
        Unfitted.
    target : callable, optional
        Targets of rows; None for transformers and clustering.
    rows : callable
        Rows ``first`` to ``last``.
    time : callable, optional
        Times of rows.
    weights : bool
        Whether rows have weights.
    first : int
        Rows learned before the file is written.
    single : bool
        Whether rows are learned one by one.
    replaced : mapping of str to Any
        Arguments of `load`: functions and networks, which files do not contain.
    rtol : float
        Tolerance of predictions, relative to the largest of them.
    """

    made: Any
    target: Rows | None = number
    rows: Rows = numbers
    time: Rows | None = None
    weights: bool = False
    first: int = 20
    single: bool = False
    replaced: Mapping[str, Any] = {}
    rtol: float = 1e-9


def learn(case: Case, learner: Any, first: int, last: int) -> None:
    """Learn rows first to last."""
    X, y, named = case.rows(first, last), (), {}
    if case.target is not None:
        y = (case.target(first, last),)
    if case.time is not None:
        named["time"] = case.time(first, last)
    if case.weights:
        named["sample_weight"] = 0.5 + np.arange(first, last) % 3
    if case.single:
        for i in range(last - first):
            each = {name: values[i] for name, values in named.items()}
            learner.learn_one(X[i], *(values[i] for values in y), **each)
    elif hasattr(learner, "partial_fit"):
        learner.partial_fit(X, *y, **named)
    else:
        learner.learn(X)


def outcome(case: Case, learner: Any) -> dict[str, Any]:
    """All predictions on six rows, as lists."""
    X = case.rows(60, 66)
    if case.single and isinstance(X[0], dict):
        return {"predict_one": [np.asarray(learner.predict_one(x)).tolist() for x in X]}
    found = {}
    verbs = ("predict", "decision_function", "predict_proba", "similarities", "transform")
    for verb in (*verbs, "predict_interval", "predict_set"):
        if hasattr(learner, verb):
            found[verb] = getattr(learner, verb)(X)
    if isinstance(learner, op.RLSRegressor):
        found["std"] = learner.predict(X, return_std=True)[1]
    return {verb: np.asarray(values).tolist() for verb, values in found.items()}


# -- learners --------------------------------------------------------------------------------------

MEMORIES: dict[str, Any] = {
    "all": memory.Basis(),
    "latest": memory.LastDirections(2),
    "nothing": memory.NoMemory(),
    "principal": memory.Principal(2),
    "projected": memory.Principal(2, of="projected"),
    "random": memory.Random(2, seed=3),
    "sketch": memory.Sketch(2),
    "square-root": memory.SquareRoot(),
}


def least_squares() -> dict[str, Case]:
    RLS = op.RLSRegressor
    days = forgetting.Directional(half_life="10min")
    return {
        "rls": Case(RLS()),
        "rls-bounded": Case(RLS(forgetting=forgetting.Bounded(0.9)), several, weights=True),
        "rls-held": Case(RLS(1e-3, forgetting.Exponential(0.9, ridge="held")), single=True),
        "rls-window": Case(RLS(0.0, forgetting.Window(12, factor=0.95)), weights=True),
        "rls-window-time": Case(RLS(forgetting=forgetting.Window(span=15.0)), time=seconds),
        "rls-directional-dates": Case(RLS(forgetting=days), time=dates, single=True),
        "rls-auto": Case(RLS(forgetting=forgetting.Auto()), several),
        "rls-prior": Case(RLS(prior=1.0, initial_coef=[1.0, 2.0, 3.0, 4.0]), rows=fading),
    }


def orthogonal() -> dict[str, Case]:
    ORFit = op.ORFitRegressor
    found = {
        "orfit": Case(ORFit(), rows=wide, first=5),
        "orfit-all-noise": Case(ORFit(memory=MEMORIES["all"], noise=0.2), several, wide, first=5),
        "orfit-map": Case(ORFit(memory=3, feature_map=np.abs), replaced={"feature_map": np.abs}),
    }
    for name, made in MEMORIES.items():
        noise = 0.2 if name == "square-root" else 0.0
        found[f"orfit-{name}"] = Case(ORFit(memory=made, noise=noise), rows=wide, first=5)
    return found


def further() -> dict[str, Case]:
    return {
        "kalman": Case(op.KalmanRegressor(), several, weights=True),
        "krls": Case(op.KernelRLSRegressor(gamma=0.2, noise=0.1, budget=12), several),
        "forest": Case(op.ForestRegressor(2, max_bytes=5e4), several),
        "mixture": Case(op.Mixture([op.RLSRegressor(), op.SGDRegressor()]), several),
        "mirrororfit": Case(op.MirrorORFitRegressor(1.2, memory=3), single=True),
        "sgd": Case(op.SGDRegressor("huber", step="adaptive", l2=0.1)),
        "cluster": Case(op.ARTIPCACluster(levels=2), None),
    }


def classifiers() -> dict[str, Case]:
    ART = op.ARTIPCAClassifier
    found = {
        "rls": op.RLSClassifier(),
        "orfit": op.ORFitClassifier(memory=2),
        "sgd": op.SGDClassifier("logistic"),
        "perceptron": op.Perceptron(initial="random", seed=3, classes=["high", "low", "mid"]),
        "art": ART(n_components=2, block=8, max_prototypes=5),
        "art-lda": ART(projection="lda", block=8),
        "lda": op.StreamingLDA(),
        "qda": op.StreamingQDA(),
        "krls": op.KernelRLSClassifier(gamma=0.2, noise=0.1, budget=12),
        "means": op.NearestClassMean("cosine"),
        "forest": op.ForestClassifier(2, max_bytes=5e4),
        "mixture": op.Mixture(
            [op.RLSClassifier(), op.Pipeline(features.Scale(), op.SGDClassifier())]
        ),
    }
    return {f"classes-{name}": Case(made, text) for name, made in found.items()}


# -- features and Pipelines ------------------------------------------------------------------------


def preparing() -> dict[str, Case]:
    PCA, Convolution = features.IncrementalPCA, features.RandomConvolution
    found = {
        "encode": Case(features.Encode(max_categories=2, times=("hour", "elapsed")), None, table),
        "encode-hash": Case(features.Encode("hash", hash_size=4, seed=3), None, table),
        "impute": Case(features.Impute("mean", indicator=True), None, gaps),
        "scale": Case(features.Scale(), None),
        "pca": Case(PCA(2, freeze_after=24), None),
        "relu": Case(features.RandomReLU(5, seed=2), None),
        "fourier": Case(features.RandomFourier(5, gamma=0.2, seed=2), None),
        "convolution": Case(Convolution(24, size=3, source="patches"), None, pictures),
    }
    return {f"feature-{name}": case for name, case in found.items()}


def pipelines() -> dict[str, Case]:
    Lag, RLS = features.Lag(rows=(1, 3)), op.RLSClassifier(ridge=0.1)
    pipeline = op.Pipeline(features.Encode(), features.Impute(), op.RLSRegressor(0.1))
    return {
        "pipeline": Case(op.Pipeline(features.Encode(), Lag, features.Impute(), RLS), text, table),
        "pipeline-origin": Case(
            op.Pipeline(features.TargetOrigin(), op.KernelRLSRegressor(gamma=1.0))
        ),
        "keyed": Case(op.Keyed(op.RLSRegressor(prior=1.0), by=0, prior_strength=2.0), rows=keyed),
        "keyed-pipeline": Case(op.Keyed(pipeline, by="key", max_age=9), rows=keyed_table),
        "conformal": Case(op.Conformal(op.RLSRegressor(1.0)), several),
        "conformal-classes": Case(op.Conformal(op.StreamingLDA()), text),
    }


CASES = {
    **least_squares(), **orthogonal(), **further(), **classifiers(), **preparing(), **pipelines(),
}  # fmt: skip
PARAMETERS = {
    "memory": memory.Principal(2, of="projected"),
    "forgetting": forgetting.Bounded(half_life="10min"),
}
"""Memories and rules of forgetting that are stored in separate files."""


# -- expected predictions --------------------------------------------------------------------------


def expected() -> dict[str, Any]:
    """The predictions recorded when the files were written."""
    found: dict[str, Any] = json.loads(EXPECTED.read_text()) if EXPECTED.exists() else {}
    return found


def assert_close(found: Any, reference: Any, rtol: float = 1e-9) -> None:
    """Assert equality; of numbers, relative to the largest of their list or to 0.001."""
    if isinstance(reference, dict):
        assert found.keys() >= reference.keys()  # newer releases have more methods
        for name, each in reference.items():
            assert_close(found[name], each, rtol)
    elif np.asarray(reference).dtype.kind in "iuf":
        finite = np.abs(reference)[np.isfinite(reference)]
        np.testing.assert_allclose(found, reference, rtol=0.0, atol=rtol * finite.max(initial=1e-3))
    else:
        assert found == reference
