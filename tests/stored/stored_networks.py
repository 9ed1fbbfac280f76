"""Network learners and wrapped optimizers stored in `files`, with the rows that they learn."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest
from stored_cases import FILES, Case, number, numbers, pictures, several, whole

import onepass as op
from onepass.errors import ParameterError
from onepass.features import ONNXFeatures, TorchFeatures

__all__ = [
    "NETWORKS",
    "ONNX",
    "OPTIMIZERS",
    "Network",
    "frozen_networks",
    "outcome",
    "plain",
    "rows",
    "trained",
]

torch = pytest.importorskip("torch")
pytest.importorskip("onnxruntime")
nn = torch.nn


def filled(module: Any) -> Any:
    """The module with weights that are the same on all machines."""
    with torch.no_grad():
        for each in module.parameters():
            k = torch.arange(1, each.numel() + 1).reshape(each.shape)
            each.copy_((k * k * 7 % 23 - 11) / 16)
    return module


def perceptron(outputs: int = 1, dtype: Any = torch.float64) -> Any:
    """A perceptron with batch normalisation, whose running statistics do not learn."""
    made = filled(
        nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, outputs))
    )
    made[1].running_mean += torch.arange(8) / 8
    return made.to(dtype).eval()


def two() -> Any:
    return perceptron(2)


def three() -> Any:
    return perceptron(3)


def single() -> Any:
    return perceptron(1, torch.float32)


def convolution() -> Any:
    layers = nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(32, 3)
    return filled(nn.Sequential(*layers)).double()


class Network(NamedTuple):
    """A network learner and its rows.

    Parameters
    ----------
    kind : str
        The name of its class in op.nn.
    arguments : dict of str to Any
    target : callable
        Targets of rows.
    module : callable
        Returns the module.
    names : str
        Column names, if rows are data frames.
    rtol : float
        Tolerance of outputs, relative to the largest of them.
    """

    kind: str
    arguments: dict[str, Any]
    target: Callable[[int, int], Any] = number
    module: Callable[..., Any] = perceptron
    names: str = ""
    rtol: float = 1e-9

    def made(self) -> Any:
        """The unfitted learner."""
        return getattr(op.nn, self.kind)(self.module(), **self.arguments)


def _networks() -> dict[str, Network]:
    half = {"memory": 4, "memory_dtype": torch.bfloat16}
    found = {
        "orfit": Network("ORFit", {"memory": 4}, names="abcd"),
        "orfit-by-layer": Network("ORFit", {"memory": 3, "by_layer": True}),
        "orfit-half": Network("ORFit", half, module=single, rtol=1e-2),
        "onestep": Network("OneStepSGD", {"noise": 0.5}),
        "ekf": Network("EKF", {"learns": "last", "noise": 0.5}, several, two),
        "ntkrls": Network("NTKRLS", {"ridge": 0.5, "forgetting": 0.9}),
        "lofi": Network("LoFi", {"memory": 4, "loss": "cross_entropy"}, whole, three),
        "ogd": Network("OGD", {"memory": 6, "step_size": 0.01, "batch": 5, "per_task": 3}),
        "convolution": Network("ORFit", {"memory": 4, "loss": "one_hot"}, whole, convolution),
    }
    return {f"nn-{name}": each for name, each in found.items()}


def rows(case: Network, first: int, last: int) -> tuple[Any, Any]:
    """Rows and their targets."""
    X, y = numbers(first, last), torch.as_tensor(case.target(first, last))
    if case.names:
        return pd.DataFrame(X, columns=list(case.names)), y
    if case.module is convolution:
        X = pictures(first, last).reshape(-1, 1, 6, 6)
    kind = torch.float32 if case.module is single else torch.float64
    return torch.as_tensor(X, dtype=kind), y.to(kind) if y.is_floating_point() else y


def outcome(case: Network, learner: Any) -> dict[str, Any]:
    """Outputs of six rows, and their standard deviations if supported."""
    X, _ = rows(case, 60, 66)
    found = {"outputs": learner.outputs(X)}
    with suppress(ParameterError):
        found["std"] = learner.predict(X, return_std=True)[1]
    return {verb: np.asarray(values, dtype=float).tolist() for verb, values in found.items()}


NETWORKS = _networks()


# -- features whose network is not in the file -----------------------------------------------------

ONNX = FILES / "network.onnx"


def frozen_networks() -> dict[str, Case]:
    """Features computed by frozen networks."""
    network = perceptron(3)
    given: dict[str, Any] = {"replaced": {"module": network}, "rtol": 1e-6}
    found = {
        "feature-torch": Case(TorchFeatures(network, layer="1", batch_size=4), None, **given),
    }
    onnx = ONNX.read_bytes()
    given["replaced"] = {"model": onnx}
    return {**found, "feature-onnx": Case(ONNXFeatures(onnx), None, **given)}


# -- optimizers ------------------------------------------------------------------------------------


def _adam(module: Any) -> Any:
    return torch.optim.Adam(module.parameters(), lr=0.05)


def plain() -> Any:
    return filled(nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3))).double()


def _orthogonal(memory: Any, **given: Any) -> Callable[[Any], Any]:
    return lambda module: op.nn.optim.OrthogonalGradient(_adam(module), module, memory, **given)


def _projected(**given: Any) -> Callable[[Any], Any]:
    return lambda module: op.nn.optim.GPM(_adam(module), module, **given)


OPTIMIZERS: dict[str, Callable[[Any], Any]] = {
    "optim-orthogonal": _orthogonal(4, gradients="outputs", projects="last"),
    "optim-gpm": _projected(threshold=0.8, growth=0.05, rows=4, biases="free"),
}
"""Name -> wrapped optimizer of a module."""


def trained(module: Any, optimizer: Any, first: int, last: int) -> Any:
    """Learn these rows as a task; return the outputs of six other rows."""
    X, y = torch.as_tensor(numbers(first, last)), torch.as_tensor(whole(first, last))
    for _ in range(2):
        optimizer.zero_grad()
        nn.functional.cross_entropy(module(X), y).backward()
        optimizer.step()
    optimizer.after_task((X, y))
    return module(torch.as_tensor(numbers(60, 66))).tolist()
