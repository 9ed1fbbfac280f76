"""The compiled projection against NumPy, for any shape and number of threads."""

import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from onepass import native
from onepass.linalg import projection
from onepass.linalg.projection import Projection

pytestmark = pytest.mark.skipif(native.loops is None, reason="needs the compiled loops")

TYPES = st.sampled_from([np.float32, np.float64])
LIFTS = st.sampled_from(["lifted", "alone"])


def random_columns(seed: int, q: int, p: int, dtype: Any) -> tuple[Any, ...]:
    """Columns as rows (q, p), a vector (p,) and two short ones (q,)."""
    rng = np.random.default_rng(seed)
    return tuple(rng.normal(size=shape).astype(dtype) for shape in ((q, p), p, q, q))


def assert_close(one: Any, two: Any, dtype: Any, size: float) -> None:
    np.testing.assert_allclose(one, two, rtol=0.0, atol=20.0 * np.finfo(dtype).eps * size)


@settings(max_examples=80, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(0, 23), st.integers(0, 9000), TYPES, LIFTS)
@example(0, 600, 5000, np.float64, "lifted")
@example(0, 5, 70_000, np.float32, "alone")
@example(0, 1, 1, np.float64, "lifted")
@example(0, 3, 0, np.float32, "lifted")
def test_compiled_products_equal_numpy_in_float64(
    seed: int, q: int, p: int, dtype: Any, lift: str
) -> None:
    rows, g, c, d = random_columns(seed, q, p, dtype)
    B, v = rows.astype(float), g.astype(float)
    size = np.sqrt(max(p, 1)) * (1.0 + q)
    C, square = projection.matvec(rows, g, 1)
    assert_close(C, B @ v, dtype, size)
    assert square == pytest.approx(v @ v, rel=1e-5)
    before = g.copy()
    rest, lifted, again, left = projection.residual(rows, g, c, d if lift == "lifted" else None, 1)
    np.testing.assert_array_equal(g, before)
    assert_close(rest, v + c.astype(float) @ B, dtype, size)
    assert_close(
        lifted, rest.astype(float) + d.astype(float) @ B if lift == "lifted" else rest, dtype, size
    )
    rest = rest.astype(float)
    reach = float((np.abs(B) @ np.abs(rest)).max(initial=size))  # rounding grows with the products
    assert_close(again, B @ rest, dtype, reach)
    assert left == pytest.approx(rest @ rest, rel=1e-5)
    assert_close(projection.squared_lengths(rows, 1), (B * B).sum(axis=1), dtype, max(p, 1))


@given(st.integers(0, 2**32 - 1), TYPES)
@settings(max_examples=10, deadline=None)
def test_residual_can_overwrite_its_vector(seed: int, dtype: Any) -> None:
    rows, g, c, d = random_columns(seed, 6, 3001, dtype)
    wanted = projection.residual(rows, g, c, d, 1)
    rest, lifted, again, _ = projection.residual(rows, g, c, d, 1, rest=g)
    assert rest is g
    np.testing.assert_array_equal(rest, wanted[0])
    np.testing.assert_array_equal(lifted, wanted[1])
    assert not again.any()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_thread_count_does_not_change_products(dtype: Any) -> None:
    rows, g, c, d = random_columns(0, 5, 200_001, dtype)
    one, two = (projection.residual(rows, g, c, d, many) for many in (1, 2))
    np.testing.assert_array_equal(one[0], two[0])
    np.testing.assert_array_equal(one[1], two[1])
    assert_close(one[2], two[2], dtype, 1e6)
    np.testing.assert_array_equal(two[2], projection.residual(rows, g, c, d, 2)[2])
    assert_close(projection.matvec(rows, g, 1)[0], projection.matvec(rows, g, 2)[0], dtype, 1e5)
    assert_close(
        projection.squared_lengths(rows, 1), projection.squared_lengths(rows, 2), dtype, 1e6
    )


def test_concurrent_calls_give_equal_results() -> None:
    rows, g, c, _ = random_columns(0, 5, 40_001, np.float64)
    wanted, found = projection.residual(rows, g, c, None, 1)[0], []
    work = [threading.Thread(target=lambda: found.append(projection.residual(rows, g, c, None,
    1)[0]))
            for _ in range(4)]  # fmt: skip
    for each in work:
        each.start()
    for each in work:
        each.join()
    assert all(np.array_equal(each, wanted) for each in found)
    assert len(found) == 4


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("common", [0.0, 1e3])
def test_compiled_projection_equals_numpy_projection(dtype: Any, common: float) -> None:
    rng = np.random.default_rng(0)
    rows = np.ascontiguousarray(np.linalg.qr(rng.normal(size=(30_000, 9)))[0].T.astype(dtype))
    G = (rng.normal(size=30_000) + common * rng.normal(size=9) @ rows).astype(dtype)[:, None]
    M = rng.normal(size=(9, 9)).astype(dtype)

    def read() -> Any:
        return Projection(rows).split(G, lambda C: M @ C), Projection(rows).squares()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native, "loops", None)
        wanted, squares = read()
    products, lengths = read()
    size = float(np.linalg.norm(G))
    for one, two in zip(products, wanted, strict=True):
        assert_close(one, two, dtype, size)
    assert_close(lengths, squares, dtype, 1.0)


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e300])
def test_compiled_loops_propagate_nonfinite_numbers(value: float) -> None:
    rows, g, c, _ = random_columns(0, 4, 5000, np.float64)
    g[4321] = value
    C, square = projection.matvec(rows, g, 1)
    rest, _, again, left = projection.residual(rows, g, c, None, 1)
    assert not np.isfinite([square, left]).any()
    assert rest[4321] == value or np.isnan(rest[4321])
    assert np.isfinite(np.delete(rest, 4321)).all()
    assert not np.isfinite(C).all() or value == 1e300
    assert not np.isfinite(again).all() or value == 1e300


def test_other_layouts_and_dtypes_are_not_supported() -> None:
    rows = np.zeros((3, 10))
    assert projection.is_supported(rows, rows[0])
    assert not projection.is_supported(rows.T)
    assert not projection.is_supported(rows, rows[:, 0])
    assert not projection.is_supported(rows, rows[0].astype(np.float32))
    assert not projection.is_supported(rows.astype(np.float16))
    assert not projection.is_supported(rows.astype(rows.dtype.newbyteorder()))
    loops: Any = native.loops
    products = np.zeros(3)
    with pytest.raises(ValueError, match="first <= last"):
        loops.into("d", 3, 10, 4, 11, rows, rows[0], products)
    with pytest.raises(ValueError, match="expected 30 numbers of type d"):
        loops.into("d", 3, 10, 0, 10, rows[:2], rows[0], products)
    with pytest.raises(ValueError, match="expected 30 numbers of type f"):
        loops.into("f", 3, 10, 0, 10, rows, rows[0], products)
