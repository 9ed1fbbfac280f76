"""Frames of plain numbers become the same arrays as column by column, in bounded memory."""

import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import onepass as op
from onepass import native, validation
from onepass.errors import ColumnError, NotFiniteError
from onepass.types import Array, Floats
from onepass.validation import frames
from onepass.validation.table import Table
from raising import raises

CODES = ("?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f4", "f8")
LIBRARIES = ("pandas", "polars", "pyarrow")


@contextmanager
def column_by_column() -> Iterator[None]:
    """Convert no frame as a frame of plain numbers."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(frames, "_FRAMES", {})
        patch.setattr(frames, "_SERIES", {})
        yield


def values_of(code: str, n: int, rng: np.random.Generator) -> Array:
    """Any values of a type, which include the largest."""
    if code == "?":
        return rng.integers(0, 2, n).astype(bool)
    if code[0] == "f":
        return rng.standard_normal(n).astype(code)
    limits = np.iinfo(code)
    return rng.integers(limits.min, limits.max, n, dtype=code, endpoint=True)


def frame_of(library: str, columns: dict[str, Array], nulls: set[str], cut: int) -> Any:
    """A frame of these columns, in two chunks; the first value of some columns is null."""
    n = len(next(iter(columns.values())))
    if library == "pandas":
        frame = pd.DataFrame(columns)
        for name in nulls:
            frame[name] = frame[name].astype("Float64")
            frame.loc[: min(n, 1) - 1, name] = pd.NA
        return frame
    mask = np.arange(n) == 0
    chunks = {
        name: pa.chunked_array(
            [
                pa.array(values[rows], mask=mask[rows] if name in nulls else None)
                for rows in (slice(0, cut), slice(cut, None))
            ]
        )
        for name, values in columns.items()
    }
    table = pa.table(chunks)
    return table if library == "pyarrow" else pl.from_arrow(table, rechunk=False)


@st.composite
def numeric_frames(draw: st.DrawFn) -> Any:
    n = draw(st.integers(0, 9))
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    codes = draw(st.lists(st.sampled_from(CODES), min_size=1, max_size=5))
    columns = {f"c{j}": values_of(code, n, rng) for j, code in enumerate(codes)}
    nulls = draw(st.sets(st.sampled_from(list(columns)), max_size=2)) if n else set()
    return frame_of(draw(st.sampled_from(LIBRARIES)), columns, nulls, draw(st.integers(0, n)))


@given(frame=numeric_frames(), most=st.sampled_from([4, 1 << 20]), compiled=st.booleans())
def test_plain_frames_equal_their_columns(*, frame: Any, most: int, compiled: bool) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(frames, "_VALUES", most)
        if not compiled:
            patch.setattr(native, "loops", None)
        table = Table.from_frame(frame)
        found = values(frame)
    with column_by_column():
        expected = Table.from_frame(frame)
        assert_same(found, values(frame))
    assert table.names == expected.names
    for name, column in table.columns.items():
        assert column.dtype == np.float64
        assert column.flags.writeable
        np.testing.assert_array_equal(column, expected[name])


def values(frame: Any) -> Any:
    """The validated rows and names, or the error."""
    try:
        return validation.matrix(frame)
    except NotFiniteError as error:
        return str(error)


def assert_same(found: Any, expected: Any) -> None:
    if isinstance(expected, str):
        assert found == expected
        return
    np.testing.assert_array_equal(found[0], expected[0])
    assert found[0].dtype == np.float64
    assert found[1] == expected[1]


@given(numeric_frames(), st.integers(1, 5))
def test_streams_of_plain_frames_equal_their_columns(frame: Any, block: int) -> None:
    def blocks() -> list[Any]:
        stream = op.stream.read(frame, target=None, block=block)
        return [rows.X.columns for rows in stream] if frame.shape[0] else []

    found = blocks()
    with column_by_column():
        expected = blocks()
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert list(one) == list(other)
        for name in one:
            np.testing.assert_array_equal(one[name], other[name])


@pytest.mark.parametrize("library", LIBRARIES)
def test_large_whole_numbers_are_exact_labels(library: str) -> None:
    labels = np.array([2**53, 2**53 + 1, 2**63 - 1])
    frame = frame_of(library, {"x": np.arange(3.0), "y": labels}, set(), 3)
    (rows,) = op.stream.read(frame, target="y", types={"y": "text"})
    assert rows.y.tolist() == [str(label) for label in labels]


@pytest.mark.parametrize("library", [*LIBRARIES, "pandas of pyarrow"])
@pytest.mark.parametrize("more", [{}, {"b": np.array(["x", "y", "z"])}], ids=["plain", "mixed"])
def test_large_whole_numbers_are_rounded(library: str, more: dict[str, Array]) -> None:
    labels = np.array([2**53 + 1, -(2**53) - 1, 2**63 - 1])
    frame = frame_of(library.partition(" ")[0], {"a": labels, **more}, set(), 3)
    if library == "pandas of pyarrow":
        frame = frame.astype({"a": "int64[pyarrow]"})
    assert Table.from_frame(frame)["a"].tolist() == labels.astype(np.float64).tolist()


@pytest.mark.parametrize("library", LIBRARIES)
def test_columns_in_another_order_are_selected_by_name(library: str) -> None:
    frame = frame_of(library, {"b": np.array([1.0, 2.0]), "a": np.array([3, 4])}, set(), 2)
    array, names = validation.matrix(frame, d=2, names=["a", "b"])
    assert array.tolist() == [[3.0, 1.0], [4.0, 2.0]]
    assert names == ["a", "b"]
    with pytest.raises(ColumnError, match="unseen at fit time:\n- b"):
        validation.matrix(frame, d=2, names=["a", "c"])


def test_contiguous_rows_are_not_copied() -> None:
    X = np.ones((3, 2))
    frame = pd.DataFrame(X, columns=["a", "b"], copy=False)
    array, names = validation.matrix(frame, names=["a", "b"])
    assert np.shares_memory(array, X)
    assert names == ["a", "b"]
    X[2, 1] = np.nan
    with raises(NotFiniteError, argument="X", row=2, column="b"):
        validation.matrix(frame)


def test_invalid_labels_of_plain_frames_are_refused() -> None:
    for labels, match in ((["a", "a"], "unique"), ([1, "1"], "equal as text"), (["\ud800"], "UTF")):
        frame = pd.DataFrame(np.ones((2, len(labels))), columns=pd.Index(labels, dtype=object))
        for convert in (Table.from_frame, validation.matrix):
            with pytest.raises(ColumnError, match=match):
                convert(frame)


def learned(X: Any, y: Any, library: str | None, width: int) -> tuple[list[Floats], Any]:
    """Prequential predictions of blocks of this many rows, and the learner."""
    names = [f"c{j}" for j in range(X.shape[1])]
    learner, found = op.RLSRegressor(forgetting=0.999), []
    for i in range(0, len(X), width):
        rows, targets = X[i : i + width], y[i : i + width]
        if library is not None:
            frame = frame_of(
                library,
                dict(zip((*names, "y"), (*rows.T, targets), strict=True)),
                set(),
                width // 2,
            )
            rows = frame.select(names) if library != "pandas" else frame[names]
            targets = frame["y"]
        found.append(learner.test_then_train(rows, targets))
    return found, learner


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("width", [1, 7, 50])
def test_learning_frames_equals_learning_arrays(library: str, width: int) -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((200, 4))
    y = X @ rng.standard_normal(4) + rng.standard_normal(200)
    expected, array_learner = learned(X, y, None, width)
    found, learner = learned(X, y, library, width)
    np.testing.assert_allclose(np.concatenate(found), np.concatenate(expected), rtol=1e-9)
    np.testing.assert_allclose(learner.coef_, array_learner.coef_, rtol=1e-9)
    assert learner.feature_names_in_.tolist() == ["c0", "c1", "c2", "c3"]
    assert learner.rows_seen_ == 200

    before = learner.coef_
    bad = frame_of(library, {f"c{j}": np.array([1.0, np.inf]) for j in range(4)}, set(), 2)
    with raises(NotFiniteError, where="RLSRegressor.partial_fit", argument="X", row=1, column="c0"):
        learner.partial_fit(bad, frame_of(library, {"y": np.ones(2)}, set(), 2)["y"])
    np.testing.assert_array_equal(learner.coef_, before)
    assert learner.rows_seen_ == 200


@pytest.mark.parametrize("library", LIBRARIES)
def test_memory_is_that_of_the_rows_and_a_slice(
    library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    n = 100_000
    columns = {"a": np.ones(n), "b": np.ones(n, dtype=bool), "c": np.ones(n, dtype=np.int32)}
    frame = frame_of(library, columns, set(), n // 2)
    monkeypatch.setattr(frames, "_VALUES", 3 * 1000)
    validation.matrix(frame)
    tracemalloc.start()
    try:
        validation.matrix(frame)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 8 * 3 * (n + 10 * 1000)
