"""LastDirections and Random against a transcription of the paper."""

import numpy as np
import pytest

import onepass as op
from onepass.errors import ParameterError
from raising import raises


def transcription(
    X: np.ndarray, y: np.ndarray, spec: op.memory.LastDirections | op.memory.Random
) -> np.ndarray:
    """ORFit with the last m, or m drawn, of its orthonormal directions."""
    w, Q = np.zeros(X.shape[1]), np.zeros((X.shape[1], 0))
    draws = 0
    for x, target in zip(X, y, strict=True):
        free = x - Q @ (Q.T @ x)
        w = w + free * (target - x @ w) / (x @ free)
        Q = np.column_stack((Q, free / np.linalg.norm(free)))
        if Q.shape[1] > spec.m and isinstance(spec, op.memory.LastDirections):
            Q = Q[:, 1:]
        elif Q.shape[1] > spec.m:
            last = np.random.default_rng((spec.seed, draws)).permutation(spec.m + 1)[spec.m]
            Q[:, last] = Q[:, spec.m]  # whose place the newest takes
            Q, draws = Q[:, : spec.m], draws + 1
    return w


@pytest.mark.parametrize(
    "spec",
    [
        op.memory.LastDirections(1),
        op.memory.LastDirections(5),
        op.memory.Random(5, 3),
        op.memory.Random(1),
    ],
)
def test_directions_equal_transcription_of_paper(spec: object) -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 30)), rng.normal(size=60)
    model = op.ORFitRegressor(memory=spec).partial_fit(X, y)
    np.testing.assert_allclose(model.coef_, transcription(X, y, spec), atol=1e-10)
    assert model.memory_.rank == spec.m
    np.testing.assert_allclose(
        model.memory_.directions.Q.T @ model.memory_.directions.Q, np.eye(spec.m), atol=1e-12
    )


def test_memories_with_room_equal_unlimited_orfit() -> None:
    rng = np.random.default_rng(1)
    X, y = rng.normal(size=(20, 50)), rng.normal(size=20)
    whole = op.ORFitRegressor(memory=None).fit(X, y)
    for spec in (op.memory.LastDirections(20), op.memory.Random(20), op.memory.Principal(20)):
        np.testing.assert_allclose(op.ORFitRegressor(spec).fit(X, y).coef_, whole.coef_, atol=1e-12)


def test_random_directions_depend_on_seed_only() -> None:
    rng = np.random.default_rng(2)
    X, y = rng.normal(size=(50, 30)), rng.normal(size=50)

    def coef(seed: int) -> np.ndarray:
        return op.ORFitRegressor(memory=op.memory.Random(4, seed)).fit(X, y).coef_

    assert (coef(1) == coef(1)).all()
    assert not np.allclose(coef(1), coef(2))


@pytest.mark.parametrize("kind", [op.memory.LastDirections, op.memory.Random])
def test_invalid_sizes_noise_and_seeds_are_refused(kind: type) -> None:
    with raises(ParameterError, argument="m"):
        kind(0)
    with raises(ParameterError, argument="noise"):
        op.ORFitRegressor(memory=kind(3), noise=0.1).fit(np.ones((2, 3)), [1.0, 2.0])
    with raises(ParameterError, argument="seed"):
        op.memory.Random(3, -1)
