"""Arrays of any byte order, memory order, stride, alignment and type are learned as float64.

The byte order of an array may be written in its type although it is the native one, as in the
arrays of ``scipy.io.loadmat``.
"""

import copy
from collections import ChainMap, OrderedDict, UserDict, defaultdict
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import is_classifier

import onepass as op
from cases import LEARNERS, PIPELINES, Case, is_compiled, parametrize
from onepass import native

N, D = 24, 4
TYPES = ["?", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f4", "f8", "f2", "g"]


def named_order(array: Any) -> Any:
    """The array with its native byte order written in its type."""
    return array.view(array.dtype.newbyteorder("S").newbyteorder("S"))


def swapped(array: Any) -> Any:
    return array.astype(array.dtype.newbyteorder("S"))


def unaligned(array: Any) -> Any:
    """A copy whose memory starts at an odd address."""
    memory = np.zeros(array.nbytes + 1, dtype=np.uint8)[1:]
    copied = memory.view(array.dtype).reshape(array.shape)
    copied[...] = array
    return copied


def strided(array: Any) -> Any:
    return np.repeat(array, 2, axis=0)[::2]


def reversed_rows(array: Any) -> Any:
    return array[::-1].copy()[::-1]


LAYOUTS = [np.asarray, np.asfortranarray, named_order, swapped, unaligned, strided, reversed_rows]
layouts = st.lists(st.sampled_from(LAYOUTS), max_size=3)


def laid_out(array: Any, changes: list[Any]) -> Any:
    for change in changes:
        array = change(array)
    return array


def stream(case: Case) -> tuple[Any, Any]:
    """Rows of 0 and 1, which every type represents, and targets."""
    rng = np.random.default_rng(0)
    X = rng.integers(0, 2, size=(N, D)).astype(float)
    y = X @ np.arange(1.0, D + 1) + rng.integers(0, 2, size=N)
    return X, (y > y.mean()).astype(int) if is_classifier(case.made) else y


def compiled_rows(model: Any) -> Any:
    """The compiled object that learns single rows."""
    return model._single


def predictions(model: Any, X: Any, y: Any) -> Any:
    """Prequential predictions of blocks, single rows, and the rows of a block."""
    made = [model.test_then_train(X[:10], y[:10])[1:]]
    for i in range(10, 16):
        made.append([model.predict_one(X[i])])
        model.learn_one(X[i], y[i])
    made += [model.test_then_train(X[i : i + 1], y[i : i + 1]) for i in range(16, 20)]
    made += [model.partial_fit(X[20:], y[20:]).predict(X)]
    return np.concatenate(made)


@pytest.mark.filterwarnings("ignore::onepass.errors.MemoryFullWarning")
@parametrize([case for case in [*LEARNERS, *PIPELINES] if "device" not in case.name])
@settings(max_examples=8)
@given(code=st.sampled_from(TYPES), rows=layouts, targets=layouts)
def test_arrays_of_any_layout_are_learned(
    case: Case, code: str, rows: list[Any], targets: list[Any]
) -> None:
    X, y = stream(case)
    expected = predictions(copy.deepcopy(case.made), X, y)
    kind = y.dtype if is_classifier(case.made) else np.dtype("f8")
    found = predictions(
        copy.deepcopy(case.made), laid_out(X.astype(code), rows), laid_out(y.astype(kind), targets)
    )
    if is_classifier(case.made) or code == "f4":
        assert found.shape == expected.shape  # float32 features may be learned in float32
    else:
        assert_allclose(found, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.skipif(native.loops is None, reason="the compiled loops are not installed")
@given(code=st.sampled_from(TYPES), changes=layouts)
@pytest.mark.parametrize("make", [op.RLSRegressor, op.SGDRegressor, op.KernelRLSRegressor])
def test_single_rows_of_any_layout_are_compiled(make: Any, code: str, changes: list[Any]) -> None:
    X, y = stream(Case(make()))
    model = make().partial_fit(X, y).learn_one(X[0], y[0])
    row = laid_out(X[1].astype(code), changes)
    if not is_compiled(model) or memoryview(X[1]).format != "d":
        return
    native_order = row.dtype.isnative and code not in ("f2", "g")
    compiled = compiled_rows(model)
    prediction = compiled.predict_one(row)
    assert (prediction is not None) == native_order
    if prediction is not None:
        assert_allclose(prediction, compiled.predict_one(X[1]), rtol=1e-12)


# -- rows as lists and mappings --------------------------------------------------------------------


class Row(dict):  # type: ignore[type-arg]
    """A subclass of dict."""


MAPPINGS: list[Any] = [
    OrderedDict, Row, MappingProxyType, UserDict, ChainMap,
    lambda row: MappingProxyType(UserDict(row)), lambda row: defaultdict(float, row),
]  # fmt: skip
MODELS: list[Any] = [
    op.RLSRegressor, op.SGDRegressor, op.KernelRLSRegressor, op.KalmanRegressor,
    lambda: op.Pipeline(op.features.Scale(), op.SGDRegressor()),
    lambda: op.Pipeline(op.features.Impute(), op.features.Scale(), op.SGDRegressor()),
    lambda: op.Pipeline(op.features.Encode(), op.RLSRegressor()),
    lambda: op.Conformal(op.RLSRegressor()),
]  # fmt: skip


@pytest.mark.parametrize("kind", MAPPINGS)
@pytest.mark.parametrize("make", MODELS)
def test_mappings_are_learned_as_dicts(make: Any, kind: Any) -> None:
    one, other = make(), make()
    rng = np.random.default_rng(0)
    for x in rng.normal(size=(9, 3)).tolist():
        row = dict(zip("abc", x, strict=True))
        one.learn_one(row, sum(x))
        other.learn_one(kind(row), sum(x))
        assert_array_equal(one.predict_one(row), other.predict_one(kind(row)))


@pytest.mark.skipif(native.loops is None, reason="the compiled loops are not installed")
@pytest.mark.parametrize("kind", MAPPINGS)
@pytest.mark.parametrize("make", [op.RLSRegressor, op.SGDRegressor, op.KernelRLSRegressor])
def test_mappings_are_read_by_compiled_states(make: Any, kind: Any) -> None:
    model = make()
    for x in np.eye(3).tolist():
        model.learn_one(dict(zip("abc", x, strict=True)), sum(x))
    row = kind({"c": True, "a": 2, "b": np.bool_(0)})
    assert compiled_rows(model).learn_one(row, 1.0, 1.0)
    for wrong in (
        {"a": 1.0, "b": 2.0},
        {"a": 1.0, "b": 2.0, "d": 0.0},
        {"a": 1.0, "b": 2, "c": None},
    ):
        row = kind(wrong)
        assert not compiled_rows(model).learn_one(row, 1.0, 1.0)
        assert dict(row) == wrong


@pytest.mark.parametrize(
    "make", [op.RLSRegressor, op.SGDRegressor, op.RLSClassifier, op.Perceptron]
)
@pytest.mark.parametrize(
    "convert",
    [np.ndarray.tolist, list, tuple, lambda x: dict(zip("abcd", x.tolist(), strict=True))],
)
def test_booleans_are_the_numbers_0_and_1(make: Any, convert: Any) -> None:
    X, y = stream(Case(make()))
    one, other = make(), make()
    for x, target in zip(X > 0, y, strict=True):
        one.learn_one(convert(x), target)
        other.learn_one(convert(x.astype(float)), target)
    assert_array_equal(one.coef_, other.coef_)
    if native.loops is not None:
        assert compiled_rows(one).learn_one(convert(X[0] > 0), y[0], 1.0)
