"""Copies of one module that learned apart, merged: exact where all is linear and kept."""

import copy
from typing import Any

import numpy as np
import pytest

import onepass as op
from onepass.errors import MergeError, NumericalError

torch = pytest.importorskip("torch")


def linear(p: int = 40, c: int = 2, seed: int = 0) -> Any:
    torch.manual_seed(seed)
    return torch.nn.Linear(p, c).double()


def mlp() -> Any:
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Linear(3, 200), torch.nn.Tanh(), torch.nn.Linear(200, 1)
    ).double()


def stream(n: int, d: int, c: int = 2, seed: int = 1) -> tuple[Any, Any]:
    generator = torch.Generator().manual_seed(seed)
    X = torch.randn(n, d, generator=generator, dtype=torch.float64)
    return X, torch.randn(n, c, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize(
    ("kept", "noise"),
    [(None, 0.0), (40, 0.0), (op.memory.Sketch(40), 0.0), (None, 0.3), (40, 0.3)],
)
def test_of_a_linear_module_it_is_one_pass_while_memory_suffices(kept: Any, noise: float) -> None:
    X, Y = stream(18, 40)
    module = linear()
    whole = op.nn.ORFit(copy.deepcopy(module), memory=kept, noise=noise).learn(X, Y)
    parts = [
        op.nn.ORFit(copy.deepcopy(module), memory=kept, noise=noise).learn(
            X[i : i + 6], Y[i : i + 6]
        )
        for i in (0, 6, 12)
    ]
    untouched = parts[2].network.weights()
    a = parts[0].merge(parts[1]).merge(parts[2])
    assert (a.rows_seen_, a.contradictions_) == (18, 0)
    assert torch.equal(parts[2].network.weights(), untouched)
    np.testing.assert_allclose(a.network.weights(), whole.network.weights(), atol=1e-9)
    more = stream(4, 40, seed=2)
    np.testing.assert_allclose(a.test_then_train(*more), whole.test_then_train(*more), atol=1e-8)
    fresh = op.nn.ORFit(copy.deepcopy(module), memory=kept, noise=noise)
    b = fresh.merge(parts[1]).merge(op.nn.ORFit(copy.deepcopy(module), memory=kept, noise=noise))
    np.testing.assert_allclose(b.network.weights(), parts[1].network.weights(), atol=1e-9)


@pytest.mark.parametrize("by_layer", [False, True])
@pytest.mark.parametrize("kept", [4, op.memory.Sketch(4)])
def test_beyond_its_memory_the_answers_of_both_move_within_the_certificate(
    kept: Any,
    by_layer: bool,  # noqa: FBT001
) -> None:
    X, Y = stream(30, 12)
    module, then, parts = linear(12), [], []
    for rows in (range(15), range(15, 30)):
        net = op.nn.ORFit(copy.deepcopy(module), memory=kept, by_layer=by_layer)
        pairs = [(X[k : k + 1], Y[k : k + 1]) for k in rows]
        then += [net.learn(x, y).outputs(x) for x, y in pairs]
        parts.append(net)
    a = parts[0].merge(parts[1])
    assert a.merging == "approximate"
    assert 0.0 < a.drift(X, torch.cat(then)) <= a.forgetting_bound_.all_steps * (1 + 1e-9)


def test_of_a_network_it_knows_about_as_much_as_both() -> None:
    X, _ = stream(40, 3)
    y = torch.sin(X[:, 0])
    module = mlp()
    parts = [
        op.nn.ORFit(copy.deepcopy(module), memory=30).learn(X[i : i + 20], y[i : i + 20])
        for i in (0, 20)
    ]
    merged = parts[0].merge(parts[1])
    after = float((merged.predict(X[20:]) - y[20:]).norm())
    alone = op.nn.ORFit(copy.deepcopy(module), memory=30).learn(X[:20], y[:20])
    before = float((alone.predict(X[20:]) - y[20:]).norm())
    assert after < 0.5 * before


def test_a_learner_merged_into_itself_stays_as_it_was() -> None:
    net = op.nn.ORFit(linear(), memory=None).learn(*stream(5, 40))
    before = net.network.weights()
    net.merge(net)
    np.testing.assert_allclose(net.network.weights(), before, atol=1e-12)


def other_buffer() -> Any:
    module = torch.nn.Sequential(torch.nn.BatchNorm1d(40), torch.nn.Linear(40, 2)).double().eval()
    torch.manual_seed(0)
    torch.nn.init.normal_(module[1].weight)
    return module


def test_what_is_not_alike_is_refused_and_changes_nothing() -> None:
    X, Y = stream(5, 40)
    first = op.nn.ORFit(linear(), memory=5).learn(X, Y)
    before = first.network.weights()
    nn = op.nn
    cases: dict[str, Any] = {
        r"must be an op\.nn\.ORFit as well": nn.OneStepSGD(linear()).learn(X, Y),
        "`memory` must be the same": nn.ORFit(linear(), memory=6).learn(X, Y),
        "`noise` must be the same": nn.ORFit(linear(), memory=5, noise=0.1).learn(X, Y),
        "`by_layer` must be the same": nn.ORFit(linear(), memory=5, by_layer=True).learn(X, Y),
        "same weights, 'weight'": nn.ORFit(linear(30), memory=5).learn(X[:, :30], Y),
        "same weights, 'bias'": nn.ORFit(linear(), memory=5, learns="weight").learn(X, Y),
        "begun at the same weights": nn.ORFit(linear(seed=3), memory=5).learn(X, Y),
    }
    for words, other in cases.items():
        with pytest.raises(MergeError, match=words):
            first.merge(other)
        assert torch.equal(first.network.weights(), before)
        assert first.rows_seen_ == 5
    one = nn.ORFit(other_buffer(), memory=5).learn(X, Y)
    two = other_buffer()
    two[0].running_mean += 1.0
    with pytest.raises(MergeError, match=r"another '0\.running_mean'"):
        one.merge(nn.ORFit(two, memory=5).learn(X, Y))
    with pytest.raises(MergeError, match="keeps nothing of them"):
        nn.OneStepSGD(linear()).merge(nn.OneStepSGD(linear()))
    broken = nn.ORFit(linear(), memory=5).learn(X, Y)
    broken.network.set_weights(torch.full((broken.network.p,), torch.nan).double())
    with pytest.raises(NumericalError, match="must be finite"):
        first.merge(broken)
    assert torch.equal(first.network.weights(), before)
