"""Single rows in transformers: equal to blocks of one row, with and without compiled loops."""

from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from sklearn.base import clone

from features.feature_cases import matrices, state, tables
from features.test_encode import ENCODERS
from onepass import native
from onepass.features import Encode, Impute, IncrementalPCA, RandomReLU, Scale
from onepass.features.transformer import Transformer
from onepass.validation.table import Table

pytestmark = pytest.mark.filterwarnings("ignore::onepass.errors.ManyCategoriesWarning")

STRATEGIES = st.sampled_from(["mean", "last", "zero"])
TRANSFORMERS: Any = st.one_of(
    st.builds(Scale, st.booleans(), st.sampled_from([None, 1, 3])),
    st.builds(Impute, STRATEGIES, st.booleans()),
    st.sampled_from([RandomReLU(3), IncrementalPCA(1)]),
)


@contextmanager
def loops(*, compiled: bool) -> Any:
    """Use the compiled loops, if they are installed, or NumPy."""
    with pytest.MonkeyPatch.context() as patch:
        if not compiled:
            patch.setattr(native, "loops", None)
        yield


def assert_row_equals_block(one: Transformer, block: Transformer, row: Any, rows: Any) -> None:
    """Learn a row in one transformer, and a block with this row only in the other."""
    before = state(vars(one))
    checked = block._check_rows(rows, learning=False)
    assert_allclose(
        one._transform_row(row, checked=False), block._transform_rows(checked)[0], rtol=1e-12
    )
    learned = one._learn_row(row, checked=False)
    assert state(vars(one)) == before
    if learned is None:  # a column without a value so far
        learned = one.learn_transform(rows)[0], {}
    z, attributes = learned
    vars(one).update(attributes)
    assert_allclose(z, block.learn_transform(rows)[0], rtol=1e-12)


@pytest.mark.parametrize("compiled", [True, False])
@given(X=matrices(gaps=True), one=TRANSFORMERS, form=st.sampled_from(["array", "strided", "dict"]))
@settings(max_examples=60, deadline=None)
def test_row_equals_block_of_one(X: Any, one: Any, form: str, *, compiled: bool) -> None:
    one = clone(one)
    X = X if isinstance(one, Impute) else np.nan_to_num(X)
    names = [f"c{j}" for j in range(X.shape[1])]
    whole: Any = Table(dict(zip(names, X.T, strict=True)), len(X)) if form == "dict" else X
    block = clone(one).learn(whole[:1])
    one.learn(whole[:1])
    # products with strided rows are rounded differently
    strided = np.asfortranarray(X) if isinstance(one, (Scale, Impute)) else X
    with loops(compiled=compiled):
        for i in range(1, len(X)):
            row: Any = strided[i] if form == "strided" else X[i]
            if form == "dict":
                values = [None if np.isnan(value) else value for value in X[i].tolist()]
                row = dict(zip(reversed(names), reversed(values), strict=True))
            assert_row_equals_block(one, block, row, whole[i : i + 1])
    assert_allclose(one.transform(whole), block.transform(whole), rtol=1e-12)
    assert (one.rows_seen_, one.nbytes) == (block.rows_seen_, block.nbytes)


@pytest.mark.parametrize("compiled", [True, False])
@given(table=tables(), one=ENCODERS, first=st.integers(1, 12))
@settings(max_examples=60, deadline=None)
def test_encoded_row_equals_block_of_one(
    table: Any, one: Any, first: int, *, compiled: bool
) -> None:
    block = clone(one).learn(table[:first])
    one.learn(table[:first])
    with loops(compiled=compiled):
        for i, row in enumerate(table.rows()):
            assert_row_equals_block(one, block, row, table[i : i + 1])
    assert state(vars(one)) == state(vars(block))


ROWS: list[Any] = [
    [1, 2],
    np.array([1, 2]),
    np.array([1.5, 2.5], dtype=np.float32),
    np.array([1.5, 2.5], dtype=">f8"),
    np.array([1e200, 1.0]),
    np.array([np.nan, 1.0]),
    np.array([np.inf, 1.0]),
    np.zeros(3),
    np.zeros((1, 2)),
    np.ma.masked_array([1.0, 2.0], mask=[True, False]),
    {"a": 1.0, "b": 2.0},
]


@pytest.mark.parametrize("row", ROWS, ids=repr)
@pytest.mark.parametrize("make", [Scale, Impute, lambda: Impute(indicator=True)])
def test_compiled_loops_accept_the_same_rows_as_numpy(make: Any, row: Any) -> None:
    def learned() -> Any:
        one = make().learn([[0.0, 4.0], [2.0, 5.0]])
        before = state(vars(one))
        try:
            z, attributes = one._learn_row(row, checked=False)
        except Exception as error:  # noqa: BLE001  compared below
            assert state(vars(one)) == before
            return type(error), str(error)
        vars(one).update(attributes)
        return z.tolist(), state(vars(one))

    with loops(compiled=False):
        expected = learned()
    assert learned() == expected


@pytest.mark.parametrize(
    "row",
    [
        {"a": True, "by": "x"},
        {"a": 2, "by": "y"},
        {"a": np.float64(2.0), "by": "x"},
        {"a": float("nan"), "by": "x"},
        {"a": 10**400, "by": "x"},
        {"a": np.inf, "by": "x"},
        {"a": "text", "by": "x"},
        {"a": 1.0, "by": 2.0},
        {"a": 1.0, "by": "new"},
        {"a": 1.0, "by": "x", "more": 1.0},
        {"a": 1.0, "by": "x", "none": "now"},
        {"by": "x", 7: 1.0},
        {},
    ],
    ids=repr,
)
def test_compiled_loop_encodes_the_same_rows_as_numpy(row: Any) -> None:
    def encoded() -> Any:
        encode = Encode().learn([{"a": 1.0, "by": "x", "none": None}, {"a": 2.0, "by": "y"}])
        try:
            return state(
                [encode._transform_row(row, checked=False), *encode._learn_row(row, checked=False)][
                    :2
                ]
            )
        except Exception as error:  # noqa: BLE001  compared below
            return type(error), str(error)

    with loops(compiled=False):
        expected = encoded()
    assert encoded() == expected
