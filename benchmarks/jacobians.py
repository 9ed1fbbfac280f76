"""Jacobians of networks by several libraries: derivatives of all outputs of each row.

Each method returns one matrix (rows · outputs, weights), as second-order learners need it.
torch.func is also timed without this conversion, with a dictionary of tensors by parameter.
"""

import copy
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch.func import functional_call, jacrev, vmap
from turns import Way, Work, turns

import onepass as op

OUTPUTS = 10
ROWS = (1, 32)
Make = Callable[[], Any]


def perceptron() -> Any:
    """784 features, two hidden layers: 178,110 weights."""
    return nn.Sequential(
        nn.Linear(784, 200), nn.Tanh(), nn.Linear(200, 100), nn.Tanh(), nn.Linear(100, OUTPUTS)
    )


def convolutions() -> Any:
    """Images of 28 × 28, two convolutions and a hidden layer: 52,180 weights."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, stride=2, padding=1), nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.ReLU(),
        nn.Flatten(), nn.Linear(32 * 7 * 7, 30), nn.ReLU(), nn.Linear(30, OUTPUTS),
    )  # fmt: skip


NETWORKS = (("MLP", perceptron, (784,)), ("conv net", convolutions, (1, 28, 28)))


def jacobians(rounds: int) -> Iterator[Work]:
    """Measure an MLP and a convolutional network, in float32."""
    for name, make, shape in NETWORKS:
        for n in ROWS:
            torch.manual_seed(0)
            module, X = make().eval(), torch.randn(n, *shape)
            ways = {"onepass": ours(module, X), **peers(module, X)}
            check_equal(ways)
            rates = turns({key: repeated(way) for key, way in ways.items()}, rounds)
            p = sum(each.numel() for each in module.parameters())
            yield Work(
                f"Jacobian of {n} row{'s' * (n > 1)}, {name} of {p:,} weights, {OUTPUTS} outputs",
                "Jacobians", "onepass", rates, 1.0,
                note="Each returns one matrix unless marked by parameter; float32.",
                aside=tuple(key for key in ways if key.endswith(BY_NAME)),
            )  # fmt: skip


BY_NAME = "by parameter"


def repeated(way: Callable[[], Any]) -> Way:
    """Return a function that repeats the call."""

    def several(count: int) -> None:
        for _ in range(count):
            way()

    return several


def check_equal(ways: dict[str, Callable[[], Any]]) -> None:
    """Check that all methods return the same matrix."""
    J = ways["onepass"]().clone()
    for name, way in ways.items():
        if not name.endswith(BY_NAME):
            torch.testing.assert_close(way(), J, rtol=1e-3, atol=1e-5)


def ours(module: Any, X: Any) -> Callable[[], Any]:
    """Return the Jacobian as learners compute it: checked rows, preallocated J."""
    net = op.nn.ORFit(module).network
    space = net.jacobian(X)[1]
    return lambda: net.jacobian(X, out=space)[1]


def peers(module: Any, X: Any) -> dict[str, Callable[[], Any]]:
    """Return methods of torch.func and of opacus."""
    weights = {name: each.detach() for name, each in module.named_parameters()}

    def one(weights: Any, x: Any) -> Any:
        return functional_call(module, weights, (x[None],))[0]

    def all_rows(weights: Any) -> Any:
        return functional_call(module, weights, (X,))

    each, whole = vmap(jacrev(one), in_dims=(None, 0)), jacrev(all_rows)
    return {
        "vmap(jacrev), torch.func": lambda: flat(each(weights, X).values()),
        f"vmap(jacrev), torch.func, {BY_NAME}": lambda: each(weights, X),
        "jacrev of all rows, torch.func": lambda: flat(whole(weights).values()),
        **hooks(module, X),
    }


def flat(parts: Any) -> Any:
    """Flatten tensors (n, c, *shape) by parameter to one matrix (n · c, p)."""
    return torch.cat([each.flatten(2) for each in parts], dim=2).flatten(0, 1)


def hooks(module: Any, X: Any) -> dict[str, Callable[[], Any]]:
    """Return methods of opacus: per-row gradients by one pass per output, or by repeated rows."""
    try:
        from opacus import GradSampleModule  # noqa: PLC0415  not on every machine
    except ImportError:
        return {}
    warnings.filterwarnings("ignore", "Full backward hook")  # inputs need no gradient
    hooked, n = GradSampleModule(copy.deepcopy(module).train(), loss_reduction="sum"), len(X)
    chosen = torch.eye(OUTPUTS).repeat(n, 1)

    def one_by_one() -> Any:
        found = []
        for k in range(OUTPUTS):
            hooked.zero_grad()
            hooked(X)[:, k].sum().backward()
            found.append([each.grad_sample for each in hooked.parameters()])
        parts = (torch.stack(each, dim=1) for each in zip(*found, strict=True))
        return flat(parts)

    def at_once() -> Any:
        hooked.zero_grad()
        (hooked(X.repeat_interleave(OUTPUTS, dim=0)) * chosen).sum().backward()
        return flat(each.grad_sample.unflatten(0, (n, OUTPUTS)) for each in hooked.parameters())

    return {"opacus hooks, output by output": one_by_one, "opacus hooks, rows repeated": at_once}
