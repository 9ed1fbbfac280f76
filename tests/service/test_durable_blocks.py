"""Encoding of blocks: exact, deterministic, and invalid bytes are refused."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import onepass as op
from cases import snapshot
from onepass.errors import CorruptStoreError, NotFittedError
from onepass.service.requests import (
    Request,
    decode_rows,
    encode_rows,
    layout,
    read_rows,
    rows_digest,
    runs,
)
from onepass.validation.rows import Rows, concatenate_rows
from onepass.validation.table import Table

NUMBERS = st.sampled_from(["<f8", "<f4", "<f2", "<i8", "<u1", "|b1", ">f8", "<i4"])
WORDS = st.text(max_size=3) | st.none()
PLAIN = WORDS | st.integers() | st.floats() | st.booleans()


def objects(n: int, values: Any) -> Any:
    array = np.empty(n, dtype=object)
    array[:] = values
    return array


@st.composite
def columns(draw: Any, n: int) -> Any:
    kind = draw(st.sampled_from(["f", "O", "M", "U"]))
    if kind == "O":
        return objects(n, draw(st.lists(PLAIN, min_size=n, max_size=n)))
    if kind == "M":
        days = draw(st.lists(st.integers(-(10**6), 10**6), min_size=n, max_size=n))
        return np.array(days, dtype="datetime64[D]").astype("datetime64[us]")
    if kind == "U":
        return np.array(draw(st.lists(st.text(max_size=3), min_size=n, max_size=n)), dtype="<U3")
    return draw(hnp.arrays(np.float64, n))


@st.composite
def blocks(draw: Any) -> Rows:
    n = draw(st.integers(0, 4))
    if draw(st.booleans()):
        names = draw(st.lists(st.text(max_size=2), unique=True, max_size=3))
        X: Any = Table({name: draw(columns(n)) for name in names}, n)
    else:
        shape = (n, *draw(st.lists(st.integers(0, 3), min_size=1, max_size=2)))
        X = draw(hnp.arrays(draw(NUMBERS), shape))
    parts = [draw(st.none() | columns(n)) for _ in range(3)]
    y, weight, time = parts
    return Rows(X, y, weight=weight, time=time)


def plain(block: Rows) -> Any:
    """The content of a block, bit for bit; text as Python's."""
    X = block.X
    rows = (X.n, snapshot(X.columns)) if isinstance(X, Table) else snapshot(X)
    return repr((rows, snapshot([block.y, block.weight, block.time])))


@given(blocks())
def test_blocks_are_decoded_as_they_were_encoded(block: Rows) -> None:
    data = encode_rows(block)
    again = decode_rows(data, "here")
    assert plain(again) == plain(block)
    assert len(again) == len(block)
    assert encode_rows(again) == data
    assert rows_digest(again) == rows_digest(block)
    for part in (again.y, again.weight, again.time):
        assert part is None or part.flags.writeable


@given(blocks(), st.data())
def test_changed_bytes_of_a_block_raise_only_corrupt_store_errors(
    block: Rows, data: st.DataObject
) -> None:
    whole = bytearray(encode_rows(block))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(whole) - 1))
        whole[at] = data.draw(st.integers(0, 255))
    if data.draw(st.booleans()):
        whole = whole[: data.draw(st.integers(0, len(whole)))]
    try:
        decode_rows(bytes(whole), "here")
    except CorruptStoreError as error:
        assert "here: a block of the file" in str(error)  # noqa: PT017


@given(st.binary(max_size=60))
def test_random_bytes_are_no_block(data: bytes) -> None:
    with pytest.raises(CorruptStoreError):
        decode_rows(data, "here")


def test_forged_shapes_are_refused_without_allocating_memory() -> None:
    head = b'[1,false,[["X",null,"|O",[1000000000,1000],2]]]'
    with pytest.raises(CorruptStoreError):
        decode_rows(len(head).to_bytes(4, "little") + head + b"[]", "here")
    head = b'[1,false,[["X",null,"|V8",[1],8]]]'
    with pytest.raises(CorruptStoreError, match="V8"):
        decode_rows(len(head).to_bytes(4, "little") + head + bytes(8), "here")


@given(st.lists(blocks(), min_size=1, max_size=4))
def test_joined_blocks_have_the_same_rows(many: list[Rows]) -> None:
    alike = [block for block in many if layout(block) == layout(many[0])]
    one = concatenate_rows(alike)
    assert len(one) == sum(map(len, alike))
    rows = [row for block in alike for row in rows_of(block)]
    assert rows_of(one) == rows


def rows_of(block: Rows) -> list[str]:
    found = []
    for i in range(len(block)):
        row = block[i : i + 1]
        X = row.X.row(0) if isinstance(row.X, Table) else row.X.tolist()
        parts = [None if p is None else p.tolist() for p in (row.y, row.weight, row.time)]
        found.append(repr((X, parts)))
    return found


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ([[1.0]], [[1.0, 2.0]]),
        ([[1.0]], np.ones((1, 1), dtype=np.float32)),
        ([[1.0]], [[1]]),
        ([[1.0]], [{"a": 1.0}]),
        ([{"a": 1.0}], [{"b": 1.0}]),
        ([{"a": 1.0}], [{"a": "x"}]),
        ([{"a": 1.0, "b": 1.0}], [{"b": 1.0, "a": 1.0}]),
    ],
)
def test_layouts_differ_by_columns_and_types(one: Any, other: Any) -> None:
    a, b = (read_rows(each, [1.0]) for each in (one, other))
    assert layout(a) != layout(b)


def test_layouts_differ_by_type_of_targets_weights_and_times() -> None:
    X = [[1.0]]
    found = {
        layout(read_rows(X, *rest))
        for rest in (
            ([1.0],), ([1],), (["a"],), ([[1.0]],), ([True],), ([1.0], 2.0), ([1.0], None, [3.0]),
            ([1.0], None, [np.datetime64("2026-01-01")]), ([1.0], 2.0, [3.0]), ([1.0], 2),
        )
    }  # fmt: skip
    assert len(found) == 10


def test_runs_keep_the_order_and_are_bounded() -> None:
    sizes = [1, 1, 4000, 200, 5000, 1, 1, 1]
    given_ = [Request(Rows(np.zeros((n, 2)), np.zeros(n))) for n in sizes]
    given_[6].source = "s"
    found = [[given_.index(each) for each in run] for run in runs(given_)]
    assert found == [[0, 1, 2], [3], [4], [5], [6], [7]]
    assert list(runs([])) == []


@given(
    st.one_of(
        hnp.arrays(NUMBERS, hnp.array_shapes(min_dims=1, max_dims=2, min_side=0)),
        st.lists(WORDS | st.integers() | st.booleans()).map(lambda each: objects(len(each), each)),
        st.lists(st.text(max_size=4), min_size=1).map(np.array),
        st.just(np.array(["2026-01-01"], dtype="datetime64[us]")),
    )
)
def test_predictions_are_decoded_as_they_were_encoded(predictions: Any) -> None:
    data = encode_rows(Rows(predictions))
    assert snapshot(decode_rows(data, "here").X) == snapshot(predictions)


@pytest.mark.parametrize("labels", [[1, "a"], ["a", True], ("a", 1.5), [["a"], [1]]])
def test_mixed_labels_are_not_converted_to_text(labels: Any) -> None:
    """The learner checks that labels have one type."""
    y = read_rows(np.ones((2, 1)), labels).y
    assert y is not None
    assert y.tolist() == list(labels)
    assert read_rows(np.ones((2, 1)), ["a", "b"]).y.dtype == "<U1"  # type: ignore[union-attr]


def test_standard_deviations_equal_those_of_the_learner(tmp_path: Path) -> None:
    X = np.random.default_rng(0).normal(size=(40, 3))
    for learner in (op.RLSRegressor(), op.Pipeline(op.features.Encode(), op.RLSRegressor())):
        with op.durable(tmp_path / f"{type(learner).__name__}.db", learner) as durable:
            with pytest.raises(NotFittedError):
                durable.predict(X, return_std=True)
            durable.learn(X[:30], X[:30].sum(axis=1) + X[:30, 0] ** 2)
            expected = learner.partial_fit(X[:30], X[:30].sum(axis=1) + X[:30, 0] ** 2)
            found = durable.predict(X[30:], return_std=True)
            np.testing.assert_allclose(found, expected.predict(X[30:], return_std=True))
            np.testing.assert_array_equal(found[0], durable.predict(X[30:]))


def test_a_first_row_of_several_targets_has_their_shape(tmp_path: Path) -> None:
    with op.durable(tmp_path / "m.db", op.RLSRegressor()) as model:
        for _ in range(2):
            assert model.learn([[1.0]], [[2.0, 3.0]]).predictions.shape == (1, 2)
