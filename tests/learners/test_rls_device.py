"""Recursive least squares on a device of PyTorch equals that in NumPy."""

import copy
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import onepass as op
from cases import snapshot
from onepass import linalg
from onepass.errors import MissingExtraError, NotFiniteError, ParameterError
from onepass.features import RandomReLU
from onepass.forgetting import Bounded, Exponential
from raising import raises
from sampling import examples

torch = pytest.importorskip("torch")
no_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
DEVICES = ["cpu", pytest.param("cuda", marks=no_cuda)]


def stream(n: int, d: int, c: int = 1, seed: int = 0) -> tuple[Any, Any]:
    """Rows, some features of which are 0 at first, and noisy linear targets."""
    rng = np.random.default_rng(seed)
    X = np.maximum(rng.normal(size=(n, d)), 0.0) + rng.choice([0.0, 30.0])
    return X, X @ rng.normal(size=(d, c)) + 0.1 * rng.normal(size=(n, c))


def on_device(model: Any) -> bool:
    """Whether the state of a learner is in tensors."""
    return "_on_device" in vars(model)


@pytest.mark.parametrize("device", DEVICES)
@settings(max_examples=examples(20, 200))
@given(
    seed=st.integers(0, 1000),
    sizes=st.lists(st.integers(1, 90), min_size=1, max_size=6),
    d=st.sampled_from([1, 5, 40, 300]),
    c=st.integers(1, 3),
    ridge=st.sampled_from([0.0, 1e-6, 1e-2, 1.0]),
    prior=st.sampled_from([None, 1.0, 10.0]),
    forgetting=st.sampled_from([1.0, Exponential(0.99)]),
    fit_intercept=st.booleans(),
    weighted=st.booleans(),
)
def test_predictions_and_coefficients_equal_numpy(
    device: str, seed: int, sizes: list[int], d: int, c: int, **chosen: Any
) -> None:
    X, Y = stream(sum(sizes), d, c, seed)
    s = np.random.default_rng(seed).integers(0, 3, len(X)).astype(float)
    s = s if chosen.pop("weighted") else None
    one = op.RLSRegressor(**chosen)
    two = op.RLSRegressor(**chosen, device=device)
    scale = max(1.0, np.abs(Y).max())
    for rows in np.split(np.arange(len(X)), np.cumsum(sizes)[:-1]):
        weights = None if s is None else s[rows]
        found = [m.test_then_train(X[rows], Y[rows], sample_weight=weights) for m in (one, two)]
        np.testing.assert_allclose(found[1], found[0], rtol=1e-9, atol=1e-9 * scale)
    if one.rows_seen_:
        size = max(1.0, np.abs(one.coef_).max())
        np.testing.assert_allclose(two.coef_, one.coef_, rtol=1e-9, atol=1e-9 * size)
        std = [m.predict(X, return_std=True)[1] for m in (one, two)]
        np.testing.assert_allclose(std[1], std[0], rtol=1e-6, atol=1e-6 * scale)


@pytest.mark.parametrize("device", DEVICES)
def test_wide_random_features_stay_on_the_device(
    device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, Y = stream(900, 5)
    y, copied = Y[:, 0] > np.median(Y), []
    host = linalg.host
    monkeypatch.setattr(linalg, "host", lambda array: copied.append(array.numel()) or host(array))
    models = [op.Pipeline(RandomReLU(300), op.RLSClassifier(device=d)) for d in (None, device)]
    predictions = [[model.test_then_train(X[:100], y[:100])] for model in models]
    copied.clear()
    for i in range(100, 900, 200):
        for model, found in zip(models, predictions, strict=True):
            found.append(model.test_then_train(X[i : i + 200], y[i : i + 200]))
    assert on_device(models[1].learner_)
    assert copied == [200 * 2 + 1] * 4  # one read per block, of its errors
    np.testing.assert_array_equal(*(np.concatenate(found) for found in predictions))
    copied.clear()
    scores = [model.decision_function(X) for model in models]
    assert copied[0] == 300 * 302  # the state is copied when it is first read, and once
    copied.clear()
    assert models[1].decision_function(X).shape == scores[1].shape
    assert not copied
    np.testing.assert_allclose(scores[1], scores[0], atol=1e-9)


def test_float32_and_read_only_rows_in_any_order_are_learned() -> None:
    X, Y = stream(200, 8)
    expected = op.RLSRegressor().fit(X.astype(np.float32)[::-1], Y[::-1]).coef_
    rows = X.astype(np.float32)[::-1]
    rows.flags.writeable = False
    found = op.RLSRegressor(device="cpu").fit(rows, Y[::-1])
    np.testing.assert_allclose(found.coef_, expected, rtol=1e-9)


def test_rows_of_the_caller_are_not_modified_or_retained() -> None:
    X, Y = stream(50, 4)
    for free in (True, False):
        model = op.RLSRegressor(device="cpu", fit_intercept=free, prior=1.0)
        rows, targets = X.copy(), Y.copy()
        model.partial_fit(rows, targets)
        np.testing.assert_array_equal(rows, X)
        before = snapshot(model)
        rows[:], targets[:] = 7.0, 7.0
        assert snapshot(model) == before


@pytest.mark.parametrize("device", DEVICES)
def test_single_rows_equal_blocks(device: str) -> None:
    X, Y = stream(60, 6)
    one = op.RLSRegressor(device=device).fit(X, Y[:, 0])
    two = op.RLSRegressor(device=device)
    for x, y in zip(X, Y[:, 0], strict=True):
        two.learn_one(x, y)
    assert on_device(two)
    assert two.predict_one(X[0]) == pytest.approx(one.predict_one(X[0]), rel=1e-9)


@pytest.mark.parametrize("large", [1e8, 1e60])
def test_rows_too_large_for_the_device_are_learned_in_numpy(large: float) -> None:
    X, Y = stream(120, 4)
    X[60] *= large
    models = [op.RLSRegressor(ridge=1e-3, device=device) for device in (None, "cpu")]
    for i in range(0, 120, 40):
        for model in models:
            model.partial_fit(X[i : i + 40], Y[i : i + 40])
    np.testing.assert_allclose(models[1].coef_, models[0].coef_, rtol=1e-6)


@pytest.mark.parametrize("device", DEVICES)
def test_saved_copied_and_merged(
    device: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, Y = stream(300, 7, 2)
    whole = op.RLSRegressor(device=device).fit(X, Y)
    part = op.RLSRegressor(device=device).fit(X[:100], Y[:100])
    twin = copy.deepcopy(part).partial_fit(X[100:], Y[100:])
    op.save(part, tmp_path / "part.onepass")
    loaded = op.load(tmp_path / "part.onepass")
    assert not on_device(loaded)
    np.testing.assert_array_equal(loaded.predict(X), part.predict(X))
    loaded.partial_fit(X[100:], Y[100:])
    part.merge(op.RLSRegressor(device=device).fit(X[100:200], Y[100:200]))
    part.partial_fit(X[200:], Y[200:])
    for other in (twin, loaded, part):
        assert on_device(other)
        np.testing.assert_allclose(other.coef_, whole.coef_, rtol=1e-9)
    monkeypatch.setitem(sys.modules, "torch", None)  # as where PyTorch is not installed
    there = op.load(tmp_path / "part.onepass")
    assert there.predict(X).shape == Y.shape
    with raises(MissingExtraError, remedy="onepass[torch]"):
        there.partial_fit(X, Y)
    there.set_params(device=None).partial_fit(X[100:], Y[100:])
    np.testing.assert_allclose(there.coef_, whole.coef_, rtol=1e-9)


@pytest.mark.parametrize("device", ["cuda:99", "meta", "nowhere", 1.5, torch.device("cpu")])
def test_device_that_does_not_exist_is_refused(device: Any) -> None:
    X, Y = stream(20, 3)
    model = op.RLSRegressor().fit(X, Y).set_params(device=device)
    before = snapshot(model)
    for each in (model, op.RLSRegressor(device=device)):
        with raises(ParameterError, where="RLSRegressor", argument="device"):
            each.partial_fit(X, Y)
    assert snapshot(model) == before
    assert not hasattr(each, "rows_seen_")


@pytest.mark.parametrize(
    "rule", [0.99, "auto", Exponential(half_life=5.0), Bounded(0.9), op.forgetting.Window(9)]
)
def test_other_forgetting_is_refused(rule: Any) -> None:
    X, Y = stream(20, 3)
    time = np.arange(20.0) if getattr(rule, "half_life", None) else None
    with raises(ParameterError, argument="forgetting", remedy="device=None"):
        op.RLSRegressor(forgetting=rule, device="cpu").partial_fit(X, Y, time=time)


def test_refused_rows_do_not_change_the_learner() -> None:
    X, Y = stream(40, 3)
    model = op.RLSRegressor(device="cpu").fit(X, Y)
    before = snapshot(model)
    bad = X.copy()
    bad[3, 1] = np.nan
    with pytest.raises(NotFiniteError):
        model.partial_fit(bad, Y)
    assert snapshot(model) == before
