"""Merge of copies of a module: exact if linear and within the memory."""

import copy
from itertools import product
from typing import Any

import numpy as np
import pytest

import onepass as op
from onepass.errors import (
    MergeError,
    MergeWarning,
    NumericalError,
    ParameterError,
    ShapeError,
)
from raising import raises
from sampling import sample

torch = pytest.importorskip("torch")

from onepass.nn.merge import merge_linear  # noqa: E402


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
    ("spec", "noise"),
    [(None, 0.0), (40, 0.0), (op.memory.Sketch(40), 0.0), (None, 0.3), (40, 0.3)],
)
def test_linear_merge_equals_one_pass(spec: Any, noise: float) -> None:
    X, Y = stream(18, 40)
    module = linear()
    whole = op.nn.ORFit(copy.deepcopy(module), memory=spec, noise=noise).learn(X, Y)
    parts = [
        op.nn.ORFit(copy.deepcopy(module), memory=spec, noise=noise).learn(
            X[i : i + 6], Y[i : i + 6]
        )
        for i in (0, 6, 12)
    ]
    untouched = parts[2].network.weights()
    a = parts[0].merge(parts[1]).merge(parts[2])
    assert (a.rows_seen_, a.inconsistent_rows_) == (18, 0)
    assert torch.equal(parts[2].network.weights(), untouched)
    np.testing.assert_allclose(a.network.weights(), whole.network.weights(), atol=1e-9)
    more = stream(4, 40, seed=2)
    np.testing.assert_allclose(a.test_then_train(*more), whole.test_then_train(*more), atol=1e-8)
    fresh = op.nn.ORFit(copy.deepcopy(module), memory=spec, noise=noise)
    b = fresh.merge(parts[1]).merge(op.nn.ORFit(copy.deepcopy(module), memory=spec, noise=noise))
    np.testing.assert_allclose(b.network.weights(), parts[1].network.weights(), atol=1e-9)


@pytest.mark.parametrize("by_layer", [False, True])
@pytest.mark.parametrize("spec", [4, op.memory.Sketch(4)])
def test_merge_beyond_memory_is_within_bound(
    spec: Any,
    by_layer: bool,  # noqa: FBT001
) -> None:
    X, Y = stream(30, 12)
    module, then, parts = linear(12), [], []
    for rows in (range(15), range(15, 30)):
        net = op.nn.ORFit(copy.deepcopy(module), memory=spec, by_layer=by_layer)
        pairs = [(X[k : k + 1], Y[k : k + 1]) for k in rows]
        then += [net.learn(x, y).outputs(x) for x, y in pairs]
        parts.append(net)
    a = parts[0].merge(parts[1])
    assert a.merging == "approximate"
    assert 0.0 < a.drift(X, torch.cat(then)) <= a.forgetting_bound_.all_steps * (1 + 1e-9)


def test_merged_network_is_about_as_good_as_both() -> None:
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


@pytest.mark.parametrize("noise", [0.0, 0.3])
def test_merge_with_same_module_is_refused(noise: float) -> None:
    net = op.nn.ORFit(linear(), memory=None, noise=noise).learn(*stream(5, 40))
    before = net.network.weights()
    for other in (net, op.nn.ORFit(net.module, memory=None, noise=noise)):
        with raises(MergeError, got="the same module"):
            net.merge(other)
    assert torch.equal(net.network.weights(), before)
    assert net.rows_seen_ == 5


def other_buffer() -> Any:
    module = torch.nn.Sequential(torch.nn.BatchNorm1d(40), torch.nn.Linear(40, 2)).double().eval()
    torch.manual_seed(0)
    torch.nn.init.normal_(module[1].weight)
    return module


def test_incompatible_learners_are_refused() -> None:
    X, Y = stream(5, 40)
    first = op.nn.ORFit(linear(), memory=5).learn(X, Y)
    before = first.network.weights()
    nn = op.nn
    cases: dict[str, Any] = {
        "other": nn.OneStepSGD(linear()).learn(X, Y),
        "memory": nn.ORFit(linear(), memory=6).learn(X, Y),
        "noise": nn.ORFit(linear(), memory=5, noise=0.1).learn(X, Y),
        "by_layer": nn.ORFit(linear(), memory=5, by_layer=True).learn(X, Y),
    }
    for argument, other in cases.items():
        with raises(MergeError, argument=argument):
            first.merge(other)
    cases = {
        "same weights, 'weight'": nn.ORFit(linear(30), memory=5).learn(X[:, :30], Y),
        "same weights, 'bias'": nn.ORFit(linear(), memory=5, learns="weight").learn(X, Y),
        "same initial weights": nn.ORFit(linear(seed=3), memory=5).learn(X, Y),
    }
    for words, other in cases.items():
        with pytest.raises(MergeError, match=words):
            first.merge(other)
        assert torch.equal(first.network.weights(), before)
        assert first.rows_seen_ == 5
    one = nn.ORFit(other_buffer(), memory=5).learn(X, Y)
    two = other_buffer()
    two[0].running_mean += 1.0
    with raises(MergeError, got="different values of '0.running_mean'"):
        one.merge(nn.ORFit(two, memory=5).learn(X, Y))
    with raises(MergeError, got="one that stores nothing of its rows"):
        nn.OneStepSGD(linear()).merge(nn.OneStepSGD(linear()))
    nonfinite = nn.ORFit(linear(), memory=5).learn(X, Y)
    nonfinite.network.set_weights(torch.full((nonfinite.network.p,), torch.nan).double())
    with raises(NumericalError, remedy="Restore earlier weights"):
        first.merge(nonfinite)
    assert torch.equal(first.network.weights(), before)


# -- networks -------------------------------------------------------------------------------------


def halves(memory: Any, noise: float = 0.0, *, width: int = 100, n: int = 200, **more: Any) -> Any:
    """Two learners of similar streams with nearly equal directions, and their rows."""
    torch.manual_seed(0)
    module = torch.nn.Sequential(
        torch.nn.Linear(3, width), torch.nn.Tanh(), torch.nn.Linear(width, 1)
    ).double()
    X, _ = stream(n, 3)
    Y = (torch.sin(X[:, 0]) - X[:, 2])[:, None]
    made = [op.nn.ORFit(copy.deepcopy(module), memory=memory, noise=noise, **more) for _ in "ab"]
    for net, part in zip(made, (slice(0, n // 2), slice(n // 2, n)), strict=True):
        net.learn(X[part], Y[part])
    return (*made, X, Y)


def error(net: Any, X: Any, Y: Any) -> float:
    return float((net.predict(X) - Y).square().mean().sqrt())


def literal(one: Any, two: Any) -> Any:
    """The exact joint solution of both learners."""
    w, other = one.network.weights(), two.network.weights()
    A, B = (net.memory_.evidence(net.network.weights()).rows for net in (one, two))
    C, d = torch.cat((A, B)), (w - other) / 2.0
    asked = torch.cat((A @ d, -(B @ d)))
    return (w + other) / 2.0 + torch.linalg.lstsq(C, asked[:, None], driver="gelsd").solution[:, 0]


def test_merge_of_similar_networks_stays_between() -> None:
    one, two, X, Y = halves(None)
    parts = [error(net, X, Y) for net in (one, two)]
    w, other = one.network.weights(), two.network.weights()
    swapped = copy.deepcopy(two)
    straight = literal(one, two)
    middle, radius = (w + other) / 2.0, float((w - other).norm()) / 2.0
    assert float((straight - middle).norm()) > 2.0 * radius
    with pytest.warns(MergeWarning, match=r"one that is \d+\.\d times as far"):
        swapped.merge(copy.deepcopy(one))
    with pytest.warns(MergeWarning, match="stay between the two") as caught:
        one.merge(two)
    assert caught[0].filename == __file__
    merged = one.network.weights()
    assert float((merged - middle).norm()) <= radius * (1 + 1e-5)
    torch.testing.assert_close(swapped.network.weights(), merged, atol=1e-6, rtol=0.0)
    assert error(one, X, Y) < 1.2 * max(parts)
    one.network.set_weights(straight)
    assert error(one, X, Y) > 2.0 * max(parts)
    assert one.inconsistent_rows_ == 0
    assert (one.forgetting_bound_.kind, two.forgetting_bound_.kind) == ("none", "estimate")
    assert "directions without singular values" in one.forgetting_bound_.why
    assert "changes of gradients" in two.forgetting_bound_.why


def least_moved(one: Any, two: Any, noise: float) -> Any:
    """(1) of the module, by p × p matrices."""
    w, other, eye = one.network.weights(), two.network.weights(), torch.eye(one.network.p).double()
    M, v = torch.zeros_like(eye), torch.zeros_like(w)
    for net, at in ((one, w), (two, other)):
        evidence = net.memory_.evidence(at)
        weight = evidence.rows.T @ evidence.rows + (evidence.lost + noise) * eye
        M, v = M + weight, v + weight @ at
    return torch.linalg.solve(M - noise * eye, v - noise * start(two))


@pytest.mark.parametrize(
    ("memory", "noise"),
    sample(list(product([4, 30, op.memory.Sketch(30)], [0.0, 0.01, 1.0])), 4, "merge, least moved"),
)
@pytest.mark.filterwarnings("ignore::onepass.errors.MergeWarning")
def test_merge_minimises_change_of_predictions(memory: Any, noise: float) -> None:
    one, two, X, Y = halves(memory, noise, n=120)
    right, parts = least_moved(one, two, noise), [error(net, X, Y) for net in (one, two)]
    swapped, mine = copy.deepcopy(two), copy.deepcopy(one)
    w, other = one.network.weights(), two.network.weights()
    apart = float((w - other).norm())
    one.merge(two)
    d = one.network.weights() - right
    assert float(d.norm()) < 1e-6 * apart
    assert error(one, X, Y) < 1.3 * max(parts)
    assert one.rows_seen_ == 120
    assert one.inconsistent_rows_ == 0
    assert one.forgetting_bound_.kind == ("none" if noise else "estimate")
    torch.testing.assert_close(
        swapped.merge(mine).network.weights(), one.network.weights(), atol=1e-9 * apart, rtol=0.0
    )


@pytest.mark.parametrize("noise", [0.0, 0.1])
@pytest.mark.filterwarnings("ignore::onepass.errors.MergeWarning")
def test_by_layer_merge_stays_between(noise: float) -> None:
    one, two, X, Y = halves(4, noise, n=120, by_layer=True)
    parts = [error(net, X, Y) for net in (one, two)]
    one.merge(two)
    assert error(one, X, Y) < max(parts)
    assert one.rows_seen_ == 120


def test_merge_with_small_noise_warns_unless_validated() -> None:
    one, two, X, Y = halves(30, 0.01, width=30)
    parts, measured = [error(net, X, Y) for net in (one, two)], copy.deepcopy(one)
    other, w = two.network.weights(), one.network.weights()
    literally = merge_linear(one.memory_, w, other, two.memory_.evidence(other, two._start)).w
    with pytest.warns(MergeWarning, match=r"change of up to \d+ % of their size") as caught:
        one.merge(two)
    assert caught[0].filename == __file__
    merged = error(one, X, Y)
    assert min(parts) < merged < max(parts)
    with raises(MergeError, remedy="Train the better of"):  # and nothing else is said
        measured.merge(two, rows=(X, Y))
    measured.network.set_weights(literally)
    assert error(measured, X, Y) > 1.5 * max(parts)


def test_merge_into_new_learner_copies() -> None:
    one, two, X, Y = halves(None)
    fresh = op.nn.ORFit(halves(None)[0].module, memory=None)
    fresh.network.set_weights(start(two))
    fresh.merge(two)
    assert torch.equal(fresh.network.weights(), two.network.weights())
    assert fresh.memory_.rank == two.memory_.rank
    assert error(fresh, X, Y) == error(two, X, Y) != error(one, X, Y)


def start(net: Any) -> Any:
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(3, 100), torch.nn.Tanh(), torch.nn.Linear(100, 1))
    assert net.network.p == 501
    return torch.nn.utils.parameters_to_vector(module.double().parameters()).detach()


def test_validation_rows_refuse_worse_merge() -> None:
    one, two, X, Y = halves(6)
    two.learn(X[:100], 5.0 * Y[:100])  # what contradicts the first
    state, memory = one.network.weights(), one.memory_
    other = two.network.weights()
    with raises(MergeError, got="errors of"):
        one.merge(two, rows=(X[:100], Y[:100]))
    assert torch.equal(one.network.weights(), state)
    assert torch.equal(two.network.weights(), other)
    assert one.memory_ is memory
    assert one.rows_seen_ == 100
    for rows in ((X,), X):
        with pytest.raises(ParameterError) as raised:
            one.merge(two, rows=rows)
        assert raised.value.argument == "rows"
    with raises(MergeError, got="errors of nan"):
        one.merge(two, rows=(X[:0], Y[:0]))
    with raises(ShapeError, argument="y", got="3"):
        one.merge(two, rows=(X, Y[:3]))
    fresh = op.nn.ORFit(copy.deepcopy(one.module), memory=6)
    fresh.network.set_weights(start(one))
    with raises(MergeError, remedy="Train the better of"):
        fresh.merge(two, rows=(X[:100], 0.0 * Y[:100] + fresh.predict(X[:100])[:, None]))
    assert fresh.memory_ is None
    assert fresh.learn(X[:1], Y[:1]).rows_seen_ == 1


@pytest.mark.parametrize("by_layer", [False, True])
@pytest.mark.parametrize("spec", [6, None])
def test_merge_overflow_changes_nothing(
    spec: Any,
    by_layer: bool,  # noqa: FBT001
) -> None:
    module = torch.nn.Linear(40, 1, bias=False).half()
    torch.nn.init.zeros_(module.weight)
    one, two = (
        op.nn.ORFit(copy.deepcopy(module), memory=spec, by_layer=by_layer) for _ in range(2)
    )
    eye = torch.eye(40).half()
    one.learn(eye[:1], torch.zeros(1))
    two.learn(eye[:1] + 1e-3 * eye[1:2], torch.full((1,), 300.0))
    before, rank = one.network.weights(), one.memory_.rank
    basis = torch.as_tensor((one.memory_.parts[0] if by_layer else one.memory_).basis).clone()
    with raises(NumericalError, got="nan or infinity", remedy="Merge modules of float32"):
        one.merge(two)
    assert torch.equal(one.network.weights(), before)
    assert (one.memory_.rank, one.rows_seen_) == (rank, 1)
    assert torch.equal((one.memory_.parts[0] if by_layer else one.memory_).basis, basis)


def test_noisy_network_merge_is_near_one_pass() -> None:
    one, two, X, Y = halves(None, 0.1, width=300)
    before = error(one, X, Y)
    one.merge(two, rows=(X, Y))
    assert error(one, X, Y) <= 1.01 * before


def test_memory_number_means_principal() -> None:
    X, Y = stream(6, 40)
    one = op.nn.ORFit(linear(), memory=10).learn(X[:3], Y[:3])
    two = op.nn.ORFit(linear(), memory=op.memory.Principal(10)).learn(X[3:], Y[3:])
    assert one.merge(two).rows_seen_ == 6


def test_linearity_is_detected() -> None:
    torch.manual_seed(0)
    x = torch.randn(4, 3)
    deep = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    for module, learns, linear_in_weights in (
        (torch.nn.Linear(3, 2), "all", True),
        (torch.nn.Linear(3, 2).half(), "all", True),
        (deep, "last", True),
        (deep, "0.*", False),
        (deep, "all", False),
        (torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 1)), "all", False),
        (copy.deepcopy(deep).bfloat16(), "all", False),
        (torch.nn.Sequential(torch.nn.Linear(3, 1), torch.nn.Sigmoid()), "all", False),
    ):
        net = op.nn.ORFit(module, learns=learns)
        before = net.network.weights()
        assert net.network.is_linear(x) is linear_in_weights
        assert torch.equal(net.network.weights(), before)
