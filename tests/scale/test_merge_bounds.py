"""The page on merging: kinds of merges, and the stated differences from a single pass."""

import re
from functools import reduce
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_digits

import onepass as op
from sampling import sample

PAGE = Path(__file__).parents[2] / "docs" / "merging.md"
ROWS = re.findall(
    r"^\| (.*?) \| (exact|approximate|refused|as its model) \|",
    PAGE.read_text(encoding="utf-8"),
    re.MULTILINE,
)


def merged(make: Any, X: Any, y: Any, parts: int) -> Any:
    learners = [make() for _ in range(parts)]
    for learner, rows in zip(learners, np.array_split(np.arange(len(X)), parts), strict=True):
        if y is None:
            learner.learn(X[rows])
        else:
            learner.partial_fit(X[rows], y[rows])
    return reduce(lambda a, b: a.merge(b), learners)


def test_table_has_every_learner_with_its_tag() -> None:
    kinds = {name: kind for names, kind in ROWS for name in re.findall(r"`([\w.]+)`", names)}
    learners = (
        "ARTIPCAClassifier", "ARTIPCACluster", "NearestClassMean", "ORFitClassifier",
        "ORFitRegressor", "Perceptron", "RLSClassifier", "RLSRegressor", "SGDClassifier",
        "SGDRegressor", "StreamingLDA", "StreamingQDA",
    )  # fmt: skip
    assert {*learners, "Conformal", "Keyed"} <= set(op.__all__)
    assert kinds["Keyed"] == "as its model"
    for name in learners:
        settings = {"memory": None} if name.startswith("ORFit") else {}
        assert kinds[name] == getattr(op, name)(**settings)._merging, name
    short = {name.removeprefix("features."): kind for name, kind in kinds.items()}
    for name in op.features.__all__:
        cls = getattr(op.features, name)
        if name != "Pipeline" and isinstance(getattr(cls, "_merging", None), str):
            assert short[name] == cls._merging, name
    assert short["Scale"] == op.features.Scale()._merging


@pytest.mark.parametrize(
    ("k", "parts"), sample(list(product([2, 5, 10], [2, 8])), 3, "merged principal axes")
)
def test_merged_principal_axes_are_within_the_discarded_variance(k: int, parts: int) -> None:
    X, _ = load_digits(return_X_y=True)
    one = op.features.IncrementalPCA(k).learn(X)
    many = merged(lambda: op.features.IncrementalPCA(k), X, None, parts)
    exact = np.linalg.svd(X - X.mean(axis=0), compute_uv=False)[:k] ** 2
    total = float(((X - X.mean(axis=0)) ** 2).sum())
    share = min(pca.explained_variance_ratio_.sum() for pca in (one, many))
    bound = (1.0 - share) * total
    for pca in (one, many):
        below = exact - pca.singular_values_**2
        assert (below >= -1e-9 * total).all()
        assert (below <= (1.0 - pca.explained_variance_ratio_.sum()) * total * (1 + 1e-9)).all()
    apart = np.abs(one.singular_values_**2 - many.singular_values_**2).max()
    assert apart <= bound
    assert apart <= 0.04 * total


@pytest.mark.parametrize(
    ("pca", "parts"),
    sample(list(product(["incremental", "task", "static", "none"], [2, 8])), 4, "prototypes"),
)
def test_merged_prototypes_are_nearly_as_accurate(pca: str, parts: int) -> None:
    X, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(X))
    X, y = X[order], y[order]
    make = lambda: op.ARTIPCAClassifier(15, 0.6, pca=pca)  # noqa: E731
    one = make().partial_fit(X[:1400], y[:1400])
    many = merged(make, X[:1400], y[:1400], parts)
    assert many.score(X[1400:], y[1400:]) >= one.score(X[1400:], y[1400:]) - 0.03


@pytest.mark.parametrize(
    ("seed", "m", "parts"), sample(list(product(range(3), [20, 40], [2, 8])), 4, "merged ORFit")
)
def test_merged_orfit_with_noise_is_nearly_as_accurate(seed: int, m: int, parts: int) -> None:
    rng = np.random.default_rng(seed)
    turn = np.linalg.qr(rng.normal(size=(60, 60)))[0]
    X = rng.normal(size=(2000, 60)) * np.geomspace(5.0, 0.05, 60) @ turn.T
    y = X @ rng.normal(size=60) + 0.5 * rng.normal(size=2000)
    make = lambda: op.ORFitRegressor(op.memory.Principal(m), noise=1.0)  # noqa: E731
    one = make().partial_fit(X[:1600], y[:1600])
    many = merged(make, X[:1600], y[:1600], parts)
    errors = [np.sqrt(np.mean((a.predict(X[1600:]) - y[1600:]) ** 2)) for a in (one, many)]
    assert errors[1] <= 1.2 * errors[0]
