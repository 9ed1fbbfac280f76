"""Columns of any numeric type are written as rows, as NumPy writes them."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onepass import native
from onepass.types import Array
from onepass.validation.frames import write_rows

CODES = "?bhilqBHILQfd"

needs_loops = pytest.mark.skipif(native.loops is None, reason="the compiled loops are missing")


@st.composite
def columns(draw: st.DrawFn) -> list[Array]:
    n = draw(st.sampled_from([0, 1, 7, 63, 64, 65, 130]))
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    found = []
    for code in draw(st.lists(st.sampled_from(CODES), min_size=1, max_size=19)):
        step = draw(st.sampled_from([1, 2, -1]))
        values: Array = rng.integers(0, 256, 16 * n + 16, dtype=np.uint8).view(code)[: 2 * n]
        if code == "?":
            values = rng.integers(0, 2, 2 * n).astype(bool)
        elif code in "fd":
            values = rng.standard_normal(2 * n).astype(code)
        if draw(st.booleans()):  # the native byte order is written in the type
            values = values.view(values.dtype.newbyteorder("S").newbyteorder("S"))
        found.append(values[::step][:n])
    return found


@needs_loops
@given(columns(), st.sampled_from([0.0, np.nan, np.inf, -np.inf]), st.randoms())
def test_rows_equal_those_of_numpy(found: list[Array], odd: float, random: Any) -> None:
    n = len(found[0])
    if odd and n:
        values = np.ones(n)
        values[random.randrange(n)] = odd
        found.insert(random.randrange(len(found) + 1), values)
    rows, expected = np.empty((n, len(found))), np.empty((n, len(found)))
    finite = write_rows(found, rows)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native, "loops", None)
        assert not write_rows(found, expected)  # unknown
    np.testing.assert_array_equal(rows, expected)
    assert finite == np.isfinite(expected).all()


@needs_loops
def test_unaligned_columns_are_written() -> None:
    packed = np.zeros(3, dtype=[("a", "i1"), ("b", "f8")])
    packed["b"] = [1.0, 2.0, 3.0]
    rows = np.empty((3, 1))
    assert write_rows([packed["b"]], rows)
    assert rows.ravel().tolist() == [1.0, 2.0, 3.0]


@needs_loops
def test_invalid_columns_are_refused() -> None:
    loops: Any = native.loops
    rows = np.empty((3, 2))
    one = np.ones(3)
    for wrong in (np.ones(2), np.ones((3, 1)), np.ones(3, dtype=complex), np.ones(3, dtype=">f8")):
        with pytest.raises(ValueError, match="expected 3 numbers"):
            loops.transpose(3, (one, wrong), rows)
    with pytest.raises(ValueError, match="expected 3 numbers"):
        loops.transpose(3, (one,), rows)
    for n, size in ((-1, 0), (1 << 62, 2)):
        with pytest.raises(ValueError, match="expected"):
            loops.transpose(n, (one, one), np.empty(size))
    with pytest.raises(TypeError):
        loops.transpose(3, [one, one], rows)
    with pytest.raises((TypeError, ValueError, BufferError)):
        loops.transpose(3, (one, "text"), rows)
