"""Jacobians of networks: all derivatives of all outputs of each row, by several libraries.

Each way gives one matrix (rows · outputs, weights), as a step of any second-order learner wants
it; torch.func's recipe is also timed without that, as a dictionary of tensors by parameter.
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
    """Pictures of 28 × 28, two convolutions and a hidden layer: 51,786 weights."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, stride=2, padding=1), nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.ReLU(),
        nn.Flatten(), nn.Linear(32 * 7 * 7, 30), nn.ReLU(), nn.Linear(30, OUTPUTS),
    )  # fmt: skip


NETWORKS = (("MLP", perceptron, (784,)), ("conv net", convolutions, (1, 28, 28)))


def jacobians(rounds: int) -> Iterator[Work]:
    """Of an MLP and of a network of convolutions, in float32."""
    for name, make, shape in NETWORKS:
        for n in ROWS:
            torch.manual_seed(0)
            module, X = make().eval(), torch.randn(n, *shape)
            ways = {"onepass": ours(module, X), **peers(module, X)}
            held(ways)
            rates = turns({key: repeated(way) for key, way in ways.items()}, rounds)
            p = sum(each.numel() for each in module.parameters())
            yield Work(
                f"Jacobian of {n} row{'s' * (n > 1)}, {name} of {p:,} weights, {OUTPUTS} outputs",
                "Jacobians", "onepass", rates, 1.0,
                note="Each gives one matrix, but for the one that says so; float32.",
                aside=tuple(key for key in ways if key.endswith(BY_NAME)), lead=n > 1,
            )  # fmt: skip


BY_NAME = "by parameter"


def repeated(way: Callable[[], Any]) -> Way:
    """So many times."""

    def several(count: int) -> None:
        for _ in range(count):
            way()

    return several


def held(ways: dict[str, Callable[[], Any]]) -> None:
    """All give the same matrix."""
    J = ways["onepass"]().clone()
    for name, way in ways.items():
        if not name.endswith(BY_NAME):
            torch.testing.assert_close(way(), J, rtol=1e-3, atol=1e-5)


def ours(module: Any, X: Any) -> Callable[[], Any]:
    """As learners ask for it: rows looked over at each call, memory for J given."""
    net = op.nn.ORFit(module).network
    space = net.jacobian(X)[1]
    return lambda: net.jacobian(X, out=space)[1]


def peers(module: Any, X: Any) -> dict[str, Callable[[], Any]]:
    """torch.func's recipes, and hooks."""
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
    """(n, c, *shape) of each parameter, as one matrix (n · c, p)."""
    return torch.cat([each.flatten(2) for each in parts], dim=2).flatten(0, 1)


def hooks(module: Any, X: Any) -> dict[str, Callable[[], Any]]:
    """Opacus' hooks: the gradients of each row, by a pass for each output, or of rows repeated."""
    try:
        from opacus import GradSampleModule  # noqa: PLC0415  not on every machine
    except ImportError:
        return {}
    warnings.filterwarnings("ignore", "Full backward hook")  # the pictures have no derivative
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
