"""Compiled single rows of kernel RLS, against NumPy."""

import copy
import pickle
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import onepass as op
from onepass import native
from onepass.errors import NotFiniteError, NumericalError
from raising import raises
from sampling import sample

pytestmark = pytest.mark.skipif(native.loops is None, reason="needs the compiled loops")

N = 400
LIMITS: list[dict[str, Any]] = [
    {"tolerance": 0.01, "budget": None},  # a dictionary that grows
    {"tolerance": 0.02, "budget": 12},
    {"tolerance": 0.02, "budget": 40},
    {"tolerance": 1e-3, "budget": 1},
]


def stream(c: int = 1, d: int = 3) -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, d))
    Y = np.sin(X[:, :1]) + 0.3 * X[:, 1 : 1 + c] + 0.1 * rng.normal(size=(N, c))
    return X, Y[:, 0] if c == 1 else Y


def both(work: Callable[[], Any]) -> tuple[Any, Any]:
    """The results of compiled code and of NumPy."""
    ours = work()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native, "loops", None)
        return ours, work()


def learner(kernel: str = "rbf", **limits: Any) -> Any:
    return op.KernelRLSRegressor(kernel, gamma=0.5, noise=0.05, **limits)


@pytest.mark.parametrize(
    ("kernel", "limits", "c"),
    sample(list(product(["rbf", "laplacian", "linear", "poly"], LIMITS, [1, 2])), 12, "kernels"),
    ids=str,
)
def test_compiled_rows_equal_numpy(kernel: str, limits: dict[str, Any], c: int) -> None:
    X, y = stream(c)
    s = np.random.default_rng(1).uniform(0.3, 2.0, size=N)

    def learned() -> tuple[Any, ...]:
        model, predictions = learner(kernel, **limits), []
        for i in range(N):
            row = slice(i, i + 1)
            if i == 200:
                model.partial_fit(X[200:220], y[200:220])
            if i % 4 == 1:
                predictions.append(model.test_then_train(X[row], y[row])[0])
                continue
            predictions.append(np.broadcast_to(model.predict_one(X[i]), y.shape[1:]))
            if i % 4 == 2:
                model.partial_fit(X[row], y[row])
            else:
                model.learn_one(X[i], y[i], float(s[i]) if i % 4 else 1.0)
        std = model.predict(X[:20], return_std=True)[1]
        return np.array(predictions), std, model.scale_, model.dictionary_, model.rows_seen_

    ours, plain = both(learned)
    for one, two in zip(ours, plain, strict=True):
        np.testing.assert_allclose(one, two, rtol=0, atol=1e-8)


@pytest.mark.parametrize("kernel", ["rbf", "laplacian"])
@pytest.mark.parametrize("d", [3, 40])
def test_rows_far_away_do_not_change_other_distances(kernel: str, d: int) -> None:
    X, y = stream(d=d)
    X[::50] *= 1e12  # also the first row of the dictionary

    def learned() -> tuple[Any, ...]:
        model = learner(kernel, budget=12, tolerance=0.02)
        predictions = [
            (model.predict_one(x), model.learn_one(x, t))[0] for x, t in zip(X, y, strict=True)
        ]
        return predictions, model.predict(X), model.predict(X, return_std=True)[1]

    ours, plain = both(learned)
    for one, two in zip(ours, plain, strict=True):
        np.testing.assert_allclose(one, two, rtol=0, atol=1e-8)


def test_compiled_rows_of_classes_equal_numpy() -> None:
    X, y = stream()
    labels = np.where(y > 0.3, "b", "a").tolist()
    labels[150::3] = ["c"] * len(labels[150::3])  # a late class

    def learned() -> tuple[Any, ...]:
        model, predictions = op.KernelRLSClassifier(gamma=0.5, tolerance=0.02, budget=30), []
        for i, (x, label) in enumerate(zip(X, labels, strict=True)):
            if i % 5:
                predictions.append(model.predict_one(x))
                model.learn_one(x, label)
            else:
                predictions.append(model.test_then_train(x[None], [label])[0])
        return predictions[1:], model.predict_proba(X[:20]), model.dictionary_

    ours, plain = both(learned)
    assert ours[0] == plain[0]
    for one, two in zip(ours[1:], plain[1:], strict=True):
        np.testing.assert_allclose(one, two, rtol=0, atol=1e-8)


def test_compiled_rows_with_names_equal_arrays() -> None:
    X, y = stream()
    model, named = learner(budget=20), learner(budget=20)
    for x, target in zip(X[:100], y.tolist(), strict=False):
        row = dict(zip("abc", x.tolist(), strict=True))
        assert model.predict_one(x) == named.predict_one(row)
        model.learn_one(x, target)
        named.learn_one(row, target)
    assert named._single is not None


def saved(model: Any, folder: Path) -> Any:
    op.save(model, folder / "m.onepass")
    return op.load(folder / "m.onepass")


@pytest.mark.parametrize("limits", LIMITS, ids=str)
@pytest.mark.parametrize(
    "twin",
    [
        lambda model, _: copy.copy(model),
        lambda model, _: copy.deepcopy(model),
        lambda model, _: pickle.loads(pickle.dumps(model)),  # noqa: S301
        saved,
    ],
)
def test_copies_continue_bit_for_bit(twin: Any, limits: dict[str, Any], tmp_path: Path) -> None:
    X, y = stream()
    model = learner(**limits)
    for x, target in zip(X[:150], y.tolist(), strict=False):
        model.learn_one(x, target)
    assert model._single is not None
    before, predictions = model.posterior_, model.predict(X)
    mean, spread = before.mean.copy(), before.spread.copy()
    other = twin(model, tmp_path)
    for x, target in zip(X[150:], y[150:].tolist(), strict=True):
        model.learn_one(x, target)
    assert (other.predict(X) == predictions).all()
    for x, target in zip(X[150:], y[150:].tolist(), strict=True):
        other.learn_one(x, target)
    assert other.rows_seen_ == model.rows_seen_ == N
    assert (other.predict(X) == model.predict(X)).all()
    assert (before.mean == mean).all()
    assert (before.spread == spread).all()


def test_refused_rows_leave_the_compiled_state_unchanged() -> None:
    X, y = stream()
    model = learner("poly", budget=20).partial_fit(X[:30], y[:30]).learn_one(X[30], y[30])
    predictions = model.predict(X)
    with pytest.raises(NotFiniteError):
        model.learn_one([np.nan, 0.0, 0.0], 1.0)
    with raises(NumericalError, remedy="Divide the features by"):
        model.learn_one([1e50, 0.0, 0.0], 1.0)
    with raises(NumericalError, got="targets up to 1e+120"):
        model.learn_one(X[31], 1e120)
    assert (model.predict(X) == predictions).all()
    assert model.rows_seen_ == 31


def test_parameters_that_change_apply_to_the_next_row() -> None:
    X, y = stream()

    def learned() -> Any:
        model = learner(budget=20)
        for i, (x, target) in enumerate(zip(X, y.tolist(), strict=True)):
            if i == 100:
                model.noise = 1.0
            if i == 200:
                model.forgetting = 0.99
            if i == 300:
                model.forgetting, model.budget = 1.0, 30
            model.learn_one(x, target)
        return model.predict(X)

    ours, plain = both(learned)
    np.testing.assert_allclose(ours, plain, rtol=0, atol=1e-8)
