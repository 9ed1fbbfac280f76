"""The rank-one step against a block of one row."""

from itertools import product
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import onepass as op
from onepass.linalg.subspace import Subspace, rank_one_step
from onepass.memory.principal import PrincipalState
from sampling import sample

Floats = NDArray[Any]


def projector(U: Floats) -> Floats:
    U = U.astype(np.float64)
    return U @ U.T


SIZES = [(24, 4), (5, 8), (300, 30), (3, 1)]


@pytest.mark.parametrize(
    ("p", "m", "shrinks", "noise", "dtype"),
    sample(
        [
            (*size, *rest)
            for size in SIZES
            for rest in product([False, True], [0.0, 0.3], [np.float64, np.float32])
        ],
        12,
        "rank-one steps",
    ),
)
def test_rank_one_step_equals_block_of_one_row(
    p: int,
    m: int,
    shrinks: bool,  # noqa: FBT001
    noise: float,
    dtype: Any,
) -> None:
    rng = np.random.default_rng(p)
    plain = quick = Subspace.start(p, m, dtype, shrinks=shrinks)
    digits = 1e-9 if dtype == np.float64 else 2e-3
    for _ in range(60):
        g = rng.normal(size=p).astype(dtype)
        split, found = plain.split(g[:, None], noise), rank_one_step(quick, g, noise)
        assert found is not None
        near = digits * np.linalg.norm(g)
        left = g - plain.U @ (plain.U.T @ g)
        np.testing.assert_allclose(found.free, split.lifted[:, 0], atol=near)
        np.testing.assert_allclose(found.length, np.linalg.norm(left), atol=near)
        np.testing.assert_allclose(found.whole, np.linalg.norm(g), atol=near)
        plain, quick = plain.added(g[:, None], split), found.after()
        np.testing.assert_allclose(quick.sigma, plain.sigma, rtol=digits)
        np.testing.assert_allclose(quick.lost, plain.lost, rtol=digits, atol=near**2)
        np.testing.assert_allclose(projector(quick.U), projector(plain.U), atol=digits)
        if plain.rank == p and not noise:
            break  # what is left outside is rounding, and differs


def test_columns_larger_than_the_cache_have_no_rank_one_step() -> None:
    assert rank_one_step(Subspace.start(20_000, 3), np.ones(20_000)) is None
    wide = Subspace.start(10_000, 30).added(np.random.default_rng(0).normal(size=(10_000, 12)))
    assert rank_one_step(wide, np.ones(10_000)) is None
    assert (
        rank_one_step(Subspace.start(9, 3), np.ones(9, np.float32)) is None
    )  # of another precision


@pytest.mark.parametrize("noise", [0.0, 2.0])
@pytest.mark.parametrize("memory", [op.memory.Principal(3), op.memory.Sketch(3)])
def test_memory_with_rank_one_steps_equals_block_steps(
    memory: Any, noise: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(2)
    X, Y = rng.normal(size=(40, 12)), rng.normal(size=(40, 2))
    X[20] = X[3]  # lies in the span, or nearly
    quick = op.ORFitRegressor(memory, noise).fit(X, Y)
    monkeypatch.setattr(PrincipalState, "pending", lambda *_: None)
    plain = op.ORFitRegressor(memory, noise).fit(X, Y)
    np.testing.assert_allclose(quick.coef_, plain.coef_, atol=1e-11)
    assert quick.inconsistent_rows_ == plain.inconsistent_rows_
    bounds = [each.forgetting_bound_.all_steps for each in (quick, plain)]
    np.testing.assert_allclose(*bounds, rtol=1e-9)


@pytest.mark.parametrize("share", [1e-3, 1e-9])
def test_gradient_nearly_in_span_has_no_rank_one_step(share: float) -> None:
    memory = op.memory.Principal(3).start(6, 1)
    for i in range(2):
        memory = memory.learn(np.zeros(6), np.eye(6)[:, [i]], np.ones(1), np.zeros(1)).memory
    g = np.eye(6)[0] + share * np.eye(6)[4]
    for row, good in ((g, share > 1e-7), (np.zeros(6), False), (np.full(6, np.nan), False)):
        found = memory.pending(np.zeros(6), row[:, None], np.ones(1), np.zeros(1))
        assert (found is not None) == good
    assert len(memory.subspace.B) == 2  # and nothing was written


def test_weighted_row_has_no_rank_one_step() -> None:
    memory = op.memory.Principal(3).start(6, 1, 0.5)
    given = np.zeros(6), np.ones((6, 1)), np.ones(1)
    assert memory.pending(*given, np.array([0.5])) is not None
    assert memory.pending(*given, np.array([0.1])) is None


@pytest.mark.parametrize(
    ("dtype", "size"),
    [(np.float64, 1e-310), (np.float64, 1e160), (np.float32, 1e-43), (np.float32, 2e38)],
)
def test_overflowing_vector_has_no_rank_one_step(dtype: Any, size: float) -> None:
    g = (size * np.ones(6)).astype(dtype)
    assert rank_one_step(Subspace.start(6, 3, dtype), g, 0.5) is None


def test_subnormal_gradients_add_no_direction() -> None:
    X = 1e-310 * np.random.default_rng(0).normal(size=(20, 2))
    model = op.ORFitRegressor(5, 0.5).fit(X, np.ones(20))
    assert model.memory_.subspace.rank == 0
