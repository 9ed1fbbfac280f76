"""Learners and features stored in `files`, with the rows that they learn.

Rows are computed exactly, so that they are the same on all machines.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import onepass as op
from onepass import features, memory
from onepass.memory import forgetting

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

RULES: dict[str, Any] = {
    "number": 0.95,
    "text": "exponential:0.95",
    "exponential": forgetting.Exponential(0.95),
    "bounded": forgetting.Bounded(0.9, floor=2.0),
    "directional": forgetting.Directional(0.9, block=4),
    "directional-scaled": forgetting.Directional(0.9, scaled=True),
    "window": forgetting.Window(12),
    "auto": forgetting.Auto(),
}
"""Rules of forgetting by rows."""
TIMED: dict[str, Any] = {
    "exponential": forgetting.Exponential(half_life=10.0),
    "bounded": forgetting.Bounded(half_life=10.0),
    "directional": forgetting.Directional(half_life=10.0),
    "window": forgetting.Window(span=15.0),
}
DATED: dict[str, Any] = {
    "exponential": forgetting.Exponential(half_life="10min"),
    "bounded": forgetting.Bounded(half_life="10min"),
    "directional": forgetting.Directional(half_life="10min"),
    "window": forgetting.Window(span="15min"),
}
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
    found = {
        "rls": Case(RLS()),
        "rls-no-intercept": Case(RLS(fit_intercept=False)),
        "rls-no-ridge": Case(RLS(ridge=0.0)),
        "rls-ridge-matrix": Case(RLS(ridge=np.diag([1.0, 2.0, 0.0, 0.5]))),
        "rls-prior": Case(RLS(prior=1.0)),
        "rls-initial": Case(RLS(ridge=1.0, initial_coef=[1.0, 2.0, 3.0, 4.0])),
        "rls-several": Case(RLS(forgetting=0.95), several),
        "rls-weights": Case(RLS(), weights=True),
        "rls-single": Case(RLS(forgetting=0.95), single=True),
        "rls-window-fading": Case(RLS(forgetting=forgetting.Window(20, factor=0.95)), weights=True),
        "rls-compiled": Case(RLS(forgetting=0.95), several, weights=True),
        "rls-named": Case(RLS(), rows=named, single=True),
        "rls-new": Case(RLS(), first=0),
        "rls-one-row": Case(RLS(ridge=0.0), first=1),
        "rls-window-single": Case(RLS(forgetting="window:7"), weights=True, single=True),
    }
    for name, rule in RULES.items():
        found[f"rls-{name}"] = Case(RLS(forgetting=rule))
        found[f"rls-{name}-no-ridge"] = Case(RLS(0.0, rule))
        found[f"rls-{name}-dependent"] = Case(RLS(0.0, rule), rows=dependent)
        found[f"rls-{name}-no-intercept"] = Case(RLS(1.0, rule, fit_intercept=False), several)
        found[f"rls-{name}-unexcited"] = Case(RLS(forgetting=rule, prior=1.0), rows=fading)
    for name, rule in TIMED.items():
        found[f"rls-{name}-time"] = Case(RLS(forgetting=rule), time=seconds)
    for name, rule in DATED.items():
        found[f"rls-{name}-dates"] = Case(RLS(forgetting=rule), time=dates, single=True)
    for ridge in (0.0, 1e-6):
        found[f"rls-wide-{ridge:g}"] = Case(RLS(ridge), rows=wide, first=5)
        found[f"rls-dependent-{ridge:g}"] = Case(RLS(ridge), rows=dependent)
        window = Case(RLS(ridge, "window:4"), rows=wide, first=6, rtol=1e-6)
        found[f"rls-window-wide-{ridge:g}"] = window
    return found


def orthogonal() -> dict[str, Case]:
    ORFit = op.ORFitRegressor
    found = {
        "orfit": Case(ORFit(), rows=wide, first=5),
        "orfit-intercept": Case(ORFit(memory=2, noise=0.1, fit_intercept=True)),
        "orfit-several": Case(ORFit(memory=2), several, wide),
        "orfit-block": Case(ORFit(memory=2, block_update=True), rows=wide),
        "orfit-initial": Case(ORFit(memory=2, initial_coef=[1.0, 2.0, 3.0, 4.0])),
        "orfit-map": Case(ORFit(memory=3, feature_map=np.abs), replaced={"feature_map": np.abs}),
        "orfit-single": Case(ORFit(memory=2, noise=0.1), single=True),
        "orfit-weights": Case(ORFit(memory=2, noise=0.1), weights=True),
    }
    for name, made in MEMORIES.items():
        if name != "square-root":
            found[f"orfit-{name}"] = Case(ORFit(memory=made), rows=wide, first=5)
        if name not in {"latest", "projected", "random"}:
            noisy = ORFit(memory=made, noise=0.2)
            found[f"orfit-{name}-noise"] = Case(noisy, several, wide, first=5)
    return found


def further() -> dict[str, Case]:
    Kalman, KernelRLS, Mirror = op.KalmanRegressor, op.KernelRLSRegressor, op.MirrorORFitRegressor
    transition = np.diag([1.0, 0.9, 1.0, 0.95, 1.0])
    return {
        "kalman": Case(Kalman(), several, weights=True),
        "kalman-given": Case(Kalman(0.01, 0.1, 10.0, transition=transition), single=True),
        "krls": Case(KernelRLS(gamma=0.2, noise=0.1), several, weights=True),
        "krls-budget": Case(KernelRLS(gamma=0.2, noise=0.1, budget=12, forgetting=0.98)),
        "krls-no-noise": Case(KernelRLS("laplacian", noise=0.0, budget=12), single=True),
        "mirrororfit": Case(Mirror(1.2, memory=3), single=True),
        "mirrororfit-entropy": Case(Mirror("entropy", memory=3)),
    }


def gradient_descent() -> dict[str, Case]:
    SGD = op.SGDRegressor
    return {
        "sgd": Case(SGD()),
        "sgd-adaptive": Case(SGD("huber", step="adaptive", l2=0.1), single=True),
        "sgd-several": Case(SGD(), several),
        "sgd-single": Case(SGD(step="decaying"), single=True),
        "sgd-initial": Case(SGD(fit_intercept=False, initial_coef=[1.0, 2.0, 3.0, 4.0])),
        "sgd-absolute": Case(SGD("absolute")),
        "sgd-huber": Case(SGD("huber", huber_delta=0.5)),
        "sgd-epsilon": Case(SGD("epsilon-insensitive", epsilon=0.2)),
        "sgd-constant": Case(SGD(step="constant", l2=0.1)),
        "sgd-decaying": Case(SGD(step="decaying", l2=0.1)),
        "sgd-pa": Case(SGD("epsilon-insensitive", step="pa")),
        "sgd-pa1": Case(SGD("epsilon-insensitive", step="pa1", aggressiveness=0.5)),
        "sgd-pa2": Case(SGD("epsilon-insensitive", step="pa2")),
    }


def classifiers() -> dict[str, Case]:
    RLS, ORFit, SGD = op.RLSClassifier, op.ORFitClassifier, op.SGDClassifier
    ART, LDA, QDA, Means = (
        op.ARTIPCAClassifier, op.StreamingLDA, op.StreamingQDA, op.NearestClassMean,
    )  # fmt: skip
    classes = ["high", "low", "mid", "none"]
    found = {
        "rls": RLS(),
        "rls-no-intercept": RLS(ridge=1.0, fit_intercept=False),
        "rls-classes": RLS(0.0, classes=classes),
        **{f"rls-{name}": RLS(forgetting=rule) for name, rule in RULES.items()},
        "orfit": ORFit(memory=2),
        "orfit-all": ORFit(memory=None, noise=0.1, fit_intercept=True),
        "orfit-classes": ORFit(memory=2, classes=classes),
        "sgd": SGD(),
        "sgd-logistic": SGD("logistic", step="decaying", l2=0.1),
        "sgd-perceptron": SGD("perceptron", step="constant", fit_intercept=False),
        "sgd-classes": SGD(classes=classes),
        **{f"sgd-{step}": SGD("hinge", step=step) for step in ("pa", "pa1", "pa2")},
        "perceptron": op.Perceptron(),
        "perceptron-intercept": op.Perceptron(fit_intercept=True),
        "perceptron-drawn": op.Perceptron(initial="random", seed=3, classes=classes),
        "art": ART(),
        "art-block": ART(n_components=2, block=8, max_prototypes=5),
        "art-no-pca": ART(pca="none", similarity="euclidean", step=0.3),
        "lda": LDA(),
        "lda-oas": LDA(shrinkage="oas", priors="uniform"),
        "qda": QDA(),
        "art-lda": ART(projection="lda", block=8),
        "art-levels": ART(levels=2, n_components=2, block=8, max_prototypes=5),
        "krls": op.KernelRLSClassifier(gamma=0.2, noise=0.1, budget=12),
        "means": Means(),
        "means-cosine": Means("cosine", classes=classes),
    }
    cases = {f"classes-{name}": Case(made, text) for name, made in found.items()}
    cases["classes-qda-0"] = Case(QDA(reg_param=0.0), text, first=40)
    for name in ("rls", "art", "lda", "sgd"):
        cases[f"classes-{name}-whole"] = Case(found[name], whole, rows=named, single=True)
    clusterers = {"cluster": op.ARTIPCACluster(), "cluster-levels": op.ARTIPCACluster(levels=2)}
    return {**cases, **{name: Case(made, None) for name, made in clusterers.items()}}


# -- features and Pipelines ------------------------------------------------------------------------


def preparing() -> dict[str, Case]:
    Encode, Impute, PCA = features.Encode, features.Impute, features.IncrementalPCA
    Convolution, ReLU = features.RandomConvolution, features.RandomReLU
    found = {
        "encode": Case(Encode(), None, table),
        "encode-few": Case(Encode(max_categories=2, extra="ignore"), None, table),
        "encode-shared": Case(Encode(max_categories=2), None, table),
        "encode-hash": Case(Encode("hash", hash_size=4, seed=3), None, table),
        "encode-times": Case(Encode(times=("hour", "elapsed")), None, table),
        "scale": Case(features.Scale(), None),
        "scale-no-mean": Case(features.Scale(with_mean=False), None, fading),
        "pca": Case(PCA(2), None),
        "pca-share": Case(PCA(0.8, whiten=True, centred=False, block=3), None),
        "pca-frozen": Case(PCA(2, freeze_after=10), None),
        "pca-freezing": Case(PCA(2, freeze_after=24), None),
        "relu": Case(ReLU(5, seed=2), None),
        "relu-row": Case(ReLU(5, standardize="row", scale=0.5), None, wide),
        "fourier": Case(features.RandomFourier(5, gamma=0.2, seed=2), None),
        "convolution": Case(Convolution(3, size=3, pool=2), None, pictures),
        "convolution-patches": Case(
            Convolution(4, size=3, source="patches", overlap=0.5, padding=1), None, pictures
        ),
        "convolution-drawing": Case(Convolution(24, size=3, source="patches"), None, pictures),
    }
    for strategy in ("mean", "last", "zero"):
        found[f"impute-{strategy}"] = Case(Impute(strategy, strategy == "mean"), None, gaps)
    return {f"feature-{name}": case for name, case in found.items()}


def pipelines() -> dict[str, Case]:
    Pipeline, Encode, Impute, Scale = op.Pipeline, features.Encode, features.Impute, features.Scale
    found = {
        "encode": Case(Pipeline(Encode(), Impute(), op.RLSRegressor(0.1)), rows=table),
        "lag": Case(
            Pipeline(
                Encode(), features.Lag(rows=(1, 3)), Impute(),
                op.RLSClassifier(ridge=0.1),
            ),
            text, table,
        ),
        "window": Case(
            Pipeline(Encode(), Impute(), op.RLSRegressor(forgetting=DATED["window"])),
            rows=table, time=dates,
        ),
        "single": Case(
            Pipeline(Encode(), Impute(), Scale(), op.SGDRegressor()), rows=table, single=True
        ),
        "gaps": Case(Pipeline(Impute(indicator=True), Scale(), op.SGDClassifier()), text, gaps),
        "relu": Case(Pipeline(features.RandomReLU(6), op.RLSClassifier(ridge=0.1)), text),
        "pca": Case(
            Pipeline(features.IncrementalPCA(2, freeze_after=5), op.NearestClassMean()), text
        ),
        "convolution": Case(
            Pipeline(features.RandomConvolution(2, size=3), op.RLSClassifier(ridge=0.1)),
            text, pictures,
        ),
    }  # fmt: skip
    for task, target in (("regression", number), ("classification", text)):
        for name, made in op.models.pipelines(op.models.names(task), task).items():
            found[f"{task}-{name}"] = Case(made, target, table)
    return {f"pipeline-{name}": case for name, case in found.items()}


def by_key() -> dict[str, Case]:
    Keyed, RLS = op.Keyed, op.RLSRegressor
    pipeline = op.Pipeline(features.Encode(), features.Impute(), RLS(0.1))
    return {
        "keyed": Case(Keyed(RLS(1.0), by=0), rows=keyed, weights=True),
        "keyed-bounded": Case(Keyed(RLS(1.0, 0.9), by=0, max_keys=3), several, keyed),
        "keyed-pooled": Case(Keyed(RLS(prior=1.0), by=0, prior_strength=2.0), rows=keyed),
        "keyed-classes": Case(Keyed(op.SGDClassifier(), by=0), text, keyed, single=True),
        "conformal": Case(op.Conformal(RLS(1.0)), several),
        "conformal-classes": Case(op.Conformal(op.StreamingLDA()), text),
        "keyed-pipeline": Case(Keyed(pipeline, by="key", max_age=9), rows=keyed_table),
    }


CASES = {
    **least_squares(), **orthogonal(), **further(), **gradient_descent(), **classifiers(),
    **preparing(),
    **pipelines(), **by_key(),
}  # fmt: skip
PARAMETERS = {
    **{f"memory-{name}": made for name, made in MEMORIES.items()},
    **{f"forgetting-{name}": RULES[name] for name in ("exponential", "bounded", "directional")},
    **{f"forgetting-{name}-dates": made for name, made in DATED.items()},
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
