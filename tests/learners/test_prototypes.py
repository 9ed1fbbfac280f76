"""Prototype matching in blocks against the row-by-row Algorithm 1."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from onepass.learners import prototypes
from onepass.learners.art_ipca import ARTIPCAClassifier
from onepass.learners.prototypes import (
    ROW_SIMILARITIES,
    SIMILARITIES,
    Prototypes,
    Rules,
    lengths_of,
    match_and_update,
)


def similarity(a: Any, b: Any, kind: str) -> float:
    if kind == "euclidean":
        return float(1.0 / (1.0 + np.linalg.norm(a - b)))
    scale = float(np.linalg.norm(a) * np.linalg.norm(b))
    return float(a @ b) / scale if scale else float(np.array_equal(a, b))


def algorithm_one(X: Any, Z: Any, labels: Any, s: Any, rules: Rules) -> tuple[Any, ...]:
    """Lines 6 to 14, as they are written."""
    rows: list[Any] = []
    seen: list[Any] = []
    of: list[int] = []
    taken: list[float] = []
    met_first = []
    for x, z, label, weight in zip(X, Z, labels, s, strict=True):
        near = [similarity(z, other, rules.similarity) for other in seen]
        best = int(np.argmax(near)) if near else -1
        met_first.append(of[best] if near else -1)
        if near and near[best] >= rules.vigilance and of[best] == label:
            taken[best] += weight
            step = weight / taken[best]
            if rules.step is not None:
                step = 1.0 - (1.0 - rules.step) ** weight
            rows[best] = rows[best] + step * (x - rows[best])
            seen[best] = seen[best] + step * (z - seen[best])
        else:
            rows.append(x.copy())
            seen.append(z.copy())
            of.append(label)
            taken.append(float(weight))
    return np.array(rows), np.array(seen), np.array(of), np.array(taken), met_first


def random_rows(n: int, d: int, c: int, seed: int) -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(3 * c, d))
    which = rng.integers(0, 3 * c, n)
    labels = np.where(rng.random(n) < 0.9, which % c, rng.integers(0, c, n))
    return centres[which] + 0.4 * rng.normal(size=(n, d)), labels, rng.uniform(0.5, 3.0, n)


@given(
    seed=st.integers(0, 20),
    kind=st.sampled_from(["cosine", "euclidean"]),
    step=st.sampled_from([None, 0.3]),
    cut=st.integers(1, 90),
    vigilance=st.sampled_from([0.2, 0.6, 0.9]),
)
@settings(max_examples=60, deadline=None)
def test_blocks_equal_row_by_row_algorithm(
    seed: int, kind: str, step: Any, cut: int, vigilance: float
) -> None:
    X, labels, s = random_rows(90, 6, 3, seed)
    V = np.linalg.qr(np.random.default_rng(seed).normal(size=(6, 4)))[0].T
    rules, Z = Rules(vigilance, kind, step, None), X @ V.T
    expected = algorithm_one(X, Z, labels, s, rules)
    stock, predictions = Prototypes.start(6).with_coordinates(lambda rows: rows @ V.T), []
    for i in range(0, 90, cut):
        part = slice(i, i + cut)
        stock, found = match_and_update(stock, rules, X[part], Z[part], labels[part], s[part])
        predictions += found[:, 0].tolist()
    assert predictions == expected[4]
    assert_array_equal(stock.all("labels"), expected[2])
    assert_allclose(stock.all("rows"), expected[0], atol=1e-12)
    assert_allclose(stock.all("coordinates"), expected[1], atol=1e-12)
    assert_allclose(stock.all("weights"), expected[3], rtol=1e-12)


@pytest.mark.parametrize("size", [1, 3, 8])
def test_page_and_block_sizes_do_not_matter(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    X, labels, s = random_rows(70, 4, 2, 0)
    rules = Rules(0.9, "cosine", None, None)
    expected = algorithm_one(X, X, labels, s, rules)
    for module, name in ((prototypes, "PAGE"), (prototypes, "BLOCK"), (prototypes, "BLOCK")):
        monkeypatch.setattr(module, name, size)
    stock, matches = match_and_update(Prototypes.start(4), rules, X, X, labels, s)
    assert matches[:, 0].tolist() == expected[4]
    assert len(stock) == len(expected[0])
    assert_allclose(stock.all("rows"), expected[0], atol=1e-12)
    near = np.array([[similarity(x, p, "cosine") for p in expected[0]] for x in X])
    assert_allclose(stock.similarities(X, "cosine"), near, atol=1e-12)


def test_proposition_1_coordinates_equal_projected_prototypes() -> None:
    X, labels, s = random_rows(120, 8, 2, 1)
    V = np.linalg.qr(np.random.default_rng(0).normal(size=(8, 3)))[0].T
    for step in (None, 0.2):
        stock, _ = match_and_update(
            Prototypes.start(8).with_coordinates(lambda rows: rows @ V.T),
            Rules(0.5, "cosine", step, None),
            X,
            X @ V.T,
            labels,
            s,
        )
        assert len(stock) < 60
        assert_allclose(stock.all("coordinates"), stock.all("rows") @ V.T, atol=1e-13)


def test_update_leaves_previous_prototypes_unchanged() -> None:
    X, labels, s = random_rows(60, 5, 2, 2)
    rules = Rules(0.3, "cosine", None, None)
    before, _ = match_and_update(Prototypes.start(5), rules, X[:30], X[:30], labels[:30], s[:30])
    copies = [before.all(name).copy() for name in ("rows", "labels", "weights")]
    match_and_update(before, rules, X[30:], X[30:], labels[30:], s[30:])
    for name, old in zip(("rows", "labels", "weights"), copies, strict=True):
        assert_array_equal(before.all(name), old)


@pytest.mark.parametrize("max_prototypes", [1, 2, 3, 5, 20])
def test_max_prototypes_is_respected_with_one_per_class(max_prototypes: int) -> None:
    X, labels, s = random_rows(200, 5, 4, 3)
    rules = Rules(0.95, "cosine", None, max_prototypes)
    stock, _ = match_and_update(Prototypes.start(5), rules, X, X, labels, s)
    assert len(stock) == max(max_prototypes, 4)
    assert set(stock.all("labels").tolist()) == {0, 1, 2, 3}
    assert_allclose(stock.all("weights").sum(), s.sum())
    one_by_one = Prototypes.start(5)
    for i in range(200):
        row = slice(i, i + 1)
        one_by_one, _ = match_and_update(one_by_one, rules, X[row], X[row], labels[row], s[row])
    assert_allclose(one_by_one.all("rows"), stock.all("rows"), atol=1e-12)


def test_prototype_is_mean_of_its_rows() -> None:
    X = np.random.default_rng(0).normal(size=(50, 3)) + 10.0
    stock, _ = match_and_update(
        Prototypes.start(3), Rules(-1.0, "cosine", None, None), X, X, np.zeros(50, int), np.ones(50)
    )
    assert_allclose(stock.all("rows"), X.mean(axis=0)[None], rtol=1e-13)


def test_older_of_tied_prototypes_wins() -> None:
    X = np.array([[1.0, 0.0], [1.0, 0.0], [1.0, 0.0], [1.0, 0.0]])
    rules = Rules(0.5, "cosine", None, None)
    stock, matches = match_and_update(
        Prototypes.start(2), rules, X, X, np.array([1, 0, 1, 0]), np.ones(4)
    )
    assert matches[:, :2].tolist() == [[-1, -1], [1, 0], [1, 0], [1, 0]]
    scores = stock.best(X[:1], "cosine", 2)
    assert scores[0, 1] > scores[0, 0]


def test_zero_rows_match_zero_prototypes_only() -> None:
    X, y = np.array([[0.0, 0.0], [0.0, 0.0], [1.0, 0.0], [0.0, 0.0]]), np.zeros(4, int)
    stock, matches = match_and_update(
        Prototypes.start(2), Rules(0.5, "cosine", None, None), X, X, y, np.ones(4)
    )
    assert stock.all("weights").tolist() == [3.0, 1.0]
    assert matches[:, 1].tolist() == [-1, 0, 0, 0]


@pytest.mark.parametrize("kind", ["cosine", "euclidean"])
@pytest.mark.parametrize("labels", [1, 3])
def test_repeated_rows_match_equally_in_any_block(kind: str, labels: int) -> None:
    rng = np.random.default_rng(0)
    for _ in range(4):
        X = rng.normal(size=(6, 20))[rng.integers(0, 6, 120)]
        y, s = rng.integers(0, labels, 120), np.ones(120)
        rules = Rules(1.0, kind, None, None)
        whole, matches = match_and_update(Prototypes.start(20), rules, X, X, y, s)
        assert len(whole) == 6 or labels > 1
        stock, found = Prototypes.start(20), []
        for i in range(120):
            row = slice(i, i + 1)
            stock, one = match_and_update(stock, rules, X[row], X[row], y[row], s[row])
            found.append(one[0])
        assert np.array_equal(found, matches)
        assert_allclose(stock.all("rows"), whole.all("rows"), atol=1e-12)


def test_similarities_are_in_range_and_one_for_equal_rows() -> None:
    rng = np.random.default_rng(1)
    for far in (0.0, 1e8):
        A = rng.normal(size=(80, 7)) + far
        lengths = lengths_of(A)
        for kind, least in (("cosine", -1.0), ("euclidean", 0.0)):
            compare, low = SIMILARITIES[kind]
            S = compare(A, A, lengths, lengths)
            assert (np.diagonal(S) == 1.0).all()
            assert (compare(A, -A, lengths, lengths) >= least).all()
            assert S.max() <= 1.0
            assert low == least
    apart = 1.0 / (1.0 + np.linalg.norm(A[:, None] - A[None], axis=2))
    assert_allclose(S, apart, atol=1e-7)


@pytest.mark.parametrize("kind", SIMILARITIES)
def test_similarity_of_single_row_equals_block(kind: str) -> None:
    rng = np.random.default_rng(2)
    A, B = rng.normal(size=(6, 9)), rng.normal(size=(30, 9))
    A[2], B[7], B[11] = 0.0, 0.0, A[1]
    a, b = lengths_of(A), lengths_of(B)
    compare, _ = SIMILARITIES[kind]
    alone = [ROW_SIMILARITIES[kind](z, B, float(length), b) for z, length in zip(A, a, strict=True)]
    assert_array_equal(np.array(alone), compare(A, B, a, b))


@pytest.mark.parametrize("kind", ["cosine", "euclidean"])
@pytest.mark.parametrize("limit", [None, 7])
def test_scores_within_block_are_those_before_each_row(
    kind: str, limit: int | None, rng: np.random.Generator
) -> None:
    X, labels, s = random_rows(300, 6, 3, int(rng.integers(2**31)))
    X[200:250] = X[:50]  # classes tie
    rules, scored, scores = Rules(0.9, kind, None, limit), rng.random(300) < 0.5, np.zeros((300, 3))
    match_and_update(Prototypes.start(6), rules, X, X, labels, s, scored, scores)
    stock = Prototypes.start(6)
    for i in range(300):
        row = slice(i, i + 1)
        expected = stock.best(X[row], kind, 3)[0] if scored[i] else np.zeros(3)
        np.testing.assert_array_equal(scores[i], expected)
        stock, _ = match_and_update(stock, rules, X[row], X[row], labels[row], s[row])


@pytest.mark.parametrize("levels", [1, 2, 3])
def test_probabilities_do_not_depend_on_blocks(levels: int, rng: np.random.Generator) -> None:
    X = rng.normal(size=(300, 30)) + 2.0 * np.repeat(rng.normal(size=(4, 30)), 75, axis=0)
    y, order = np.repeat(np.arange(4), 75), rng.permutation(300)
    X, y = X[order], y[order]
    learners = [ARTIPCAClassifier(levels=levels) for _ in range(3)]
    for learner, block in zip(learners, (1, 10, 300), strict=True):
        for i in range(0, 300, block):
            learner.partial_fit(X[i : i + block], y[i : i + block])
    for learner in learners[1:]:
        np.testing.assert_allclose(learner.calibration_, learners[0].calibration_, rtol=1e-9)
        np.testing.assert_allclose(
            learner.predict_proba(X), learners[0].predict_proba(X), rtol=1e-9
        )
