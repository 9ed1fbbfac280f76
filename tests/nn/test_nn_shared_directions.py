"""The outputs of a last layer share the directions of ORFit's memory: P is block diagonal."""

import copy
import math
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import onepass as op
from onepass.errors import MemoryFullWarning, ModuleError
from raising import raises

torch = pytest.importorskip("torch")
nn = torch.nn


class Head(nn.Module):  # type: ignore[misc, name-defined]
    """A frozen layer, a last layer, and optional operations after it."""

    def __init__(self, d: int, c: int, *, bias: bool = True, then: Any = None) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(3, d), nn.Linear(d, c, bias=bias)
        self.then = then

    def forward(self, x: Any) -> Any:
        out = self.head(torch.tanh(self.body(x)))
        return out if self.then is None else self.then(out)


def pair(module: Any, **options: Any) -> tuple[Any, Any]:
    """Learners of copies of a module, with and without shared directions."""
    shared = op.nn.ORFit(copy.deepcopy(module), learns="last", **options)
    return shared, op.nn.ORFit(copy.deepcopy(module), learns="head", **options)


def close(one: Any, two: Any, near: float) -> None:
    np.testing.assert_allclose(np.asarray(one), np.asarray(two), rtol=near, atol=near)


@settings(max_examples=12, deadline=None, print_blob=True)
@given(data=st.data())
def test_shared_directions_equal_full_memory(data: st.DataObject) -> None:
    draw = data.draw
    d, c, n = (draw(st.integers(*b), k) for k, b in (("d", (1, 5)), ("c", (2, 4)), ("n", (1, 9))))
    dtype = draw(st.sampled_from([torch.float64, torch.float32]), "dtype")
    noise = draw(st.sampled_from([0.0, 0.5]), "noise")
    p = c * (d + 1)
    memory = draw(st.sampled_from([None, c, 2 * c, 3 * c, p, 2 * p + 1]), "memory")
    loss = draw(st.sampled_from(["squared", "one_hot"]), "loss")
    block = draw(st.sampled_from([1, 3]), "block")
    torch.manual_seed(draw(st.integers(0, 2**16), "seed"))
    module = Head(d, c, bias=draw(st.booleans(), "bias")).to(dtype)
    options = {"memory": memory, "noise": noise, "loss": loss, "block_update": block > 1}
    shared, plain = pair(module, **options)
    X = torch.randn(n, 3, dtype=dtype)
    y = torch.randn(n, c, dtype=dtype) if loss == "squared" else torch.randint(0, c, (n,))
    near = 1e-9 if dtype == torch.float64 else 2e-3
    with warnings.catch_warnings(), tempfile.TemporaryDirectory() as folder:
        warnings.simplefilter("ignore", MemoryFullWarning)
        path = Path(folder) / "m.onepass"
        for i in range(0, n, block):
            rows = slice(i, i + block)
            close(*(net.test_then_train(X[rows], y[rows]) for net in (shared, plain)), near)
            shared.save(path)
            shared = op.nn.load(path, copy.deepcopy(shared.module))
    assert shared._shared == c
    assert plain._shared is None
    close(shared.network.weights(), plain.network.weights(), near)
    assert shared.inconsistent_rows_ == plain.inconsistent_rows_
    assert shared.nbytes <= plain.nbytes
    bounds = shared.forgetting_bound_, plain.forgetting_bound_
    assert bounds[0].kind == bounds[1].kind
    if bounds[0].kind != "none":
        close(*(bound.one_step for bound in bounds), math.sqrt(near))
        assert bounds[0].all_steps <= bounds[1].all_steps * (1.0 + near) + math.sqrt(near)
    if loss == "squared":
        close(*(net.predict(X, return_std=True)[1] for net in (shared, plain)), math.sqrt(near))


@pytest.mark.parametrize("memory", [None, 6])
@pytest.mark.parametrize("noise", [0.0, 0.5])
@pytest.mark.parametrize("started", [True, False])
def test_merged_shared_directions_equal_full_memory(
    *, memory: Any, noise: float, started: bool
) -> None:
    torch.manual_seed(1)
    module = Head(5, 3).double()
    X, y = torch.randn(2, 3, dtype=torch.float64), torch.randn(2, 3, dtype=torch.float64)
    parts = [pair(module, memory=memory, noise=noise) for _ in range(2)]
    for one, two in zip(*parts, strict=True):
        if started:
            one.learn(X[:1], y[:1])
        two.learn(X[1:], y[1:])
        one.merge(two)
        one.learn(X[:1] + 1.0, y[:1])
    shared, plain = parts[0]
    assert shared._shared == 3
    close(shared.network.weights(), plain.network.weights(), 1e-9)


@pytest.mark.parametrize(
    ("then", "options"),
    [
        (torch.relu, {}),
        (lambda z: z.clamp(min=-100.0), {}),  # of these rows it changes nothing
        (lambda z: z.flip(1), {}),
        (lambda z: z.softmax(1), {}),
        (lambda z: z[:, :1], {}),
        (None, {"memory": 7}),
        (None, {"memory": op.memory.LastDirections(6)}),
        (None, {"memory": op.memory.Principal(6, of="projected")}),
        (None, {"by_layer": True}),
        (None, {"loss": "cross_entropy", "noise": 10.0}),
    ],
)
def test_directions_are_not_shared_if_inexact(then: Any, options: Any) -> None:
    torch.manual_seed(2)
    X = torch.randn(6, 3)
    c = 1 if then is not None and then(torch.zeros(1, 3)).shape[1] == 1 else 3
    y = torch.tensor([0, 1, 2, 0, 1, 2]) if "loss" in options else torch.randn(6, c)
    for net in (nets := pair(Head(4, 3, then=then), **{"memory": 6, **options})):
        net.learn(X, y)
        assert net._shared is None
    assert torch.equal(*(net.network.weights() for net in nets))


@pytest.mark.parametrize(
    "then",
    [
        lambda z: z.view(-1, 3),
        lambda z: z.double().squeeze(-1),
        lambda z: z[:, None],
        lambda z: {"logits": z.clone()},
    ],
)
def test_copied_outputs_share_directions(then: Any) -> None:
    net = op.nn.ORFit(Head(4, 3, then=then), memory=6, learns="last")
    net.learn(torch.randn(6, 3), torch.randn(6, 3))
    assert net._shared == 3


def test_outputs_must_remain_those_of_the_layer() -> None:
    module = Head(4, 3)
    net = op.nn.ORFit(module, memory=6, learns="last")
    X, y = torch.randn(6, 3), torch.randn(6, 3)
    net.learn(X[:2], y[:2])
    before = net.network.weights()
    module.then = lambda z: 2.0 * torch.nn.functional.linear(z, torch.eye(3)) + module.head.bias
    with raises(ModuleError, remedy="learns=[...]"):
        net.learn(X[2:], y[2:])
    assert torch.equal(net.network.weights(), before)


def test_file_without_shared_directions_continues(
    tmp_path: Path,
) -> None:
    torch.manual_seed(3)
    module, X, y = Head(4, 3), torch.randn(6, 3), torch.randn(6, 3)
    _, plain = pair(module, memory=6)
    old = op.nn.ORFit(copy.deepcopy(module), memory=6, learns="last")
    old._per_output = lambda _: None
    for net in (plain, old):
        net.learn(X[:2], y[:2])
    old.save(tmp_path / "old.onepass")
    old = op.nn.load(tmp_path / "old.onepass", copy.deepcopy(module)).learn(X[2:], y[2:])
    assert torch.equal(old.network.weights(), plain.learn(X[2:], y[2:]).network.weights())


def test_shared_directions_save_memory() -> None:
    c, d = 1000, 16
    net = op.nn.ORFit(nn.Linear(d, c), memory=5 * c, noise=1.0, loss="one_hot", learns="last")
    net.learn(torch.randn(4, d), torch.randint(0, c, (4,)))
    assert net.nbytes - 4 * net.network.p < 8 * 2 * 5 * (d + 1)  # beside the first weights
