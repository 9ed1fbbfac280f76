"""Reference Kalman filters of a network, with explicit p × p matrices."""

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
nn = torch.nn


def mlp(d: int = 3, width: int = 6, c: int = 1, seed: int = 1, dtype: Any = None) -> Any:
    """A seeded tanh network in float64."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        module = nn.Sequential(nn.Linear(d, width), nn.Tanh(), nn.Linear(width, c))
    return module.to(dtype or torch.float64)


def stream(n: int, d: int = 3, c: int = 1, seed: int = 0, noise: float = 0.0) -> tuple[Any, Any]:
    """Rows of a smooth function, as arrays."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    Y = np.stack([np.sin(X[:, 0] + k) - X[:, -1] for k in range(c)], axis=1)
    return X, Y + noise * rng.normal(size=Y.shape)


class Dense:
    """A module's weights w (p,), with outputs and Jacobian of a row by plain autograd."""

    def __init__(self, module: Any, P: Any) -> None:
        self.module = deepcopy(module)
        self.parameters = list(self.module.parameters())
        self.w = np.concatenate([a.detach().numpy().ravel() for a in self.parameters])
        self.start = self.w.copy()
        self.P = np.array(P) if np.ndim(P) else P * np.eye(len(self.w))

    def row(self, x: Any) -> tuple[Any, Any]:
        """f (c,) and ∇f as rows (c, p), at w."""
        at = 0
        for each in self.parameters:
            piece = torch.from_numpy(self.w[at : at + each.numel()].copy()).reshape(each.shape)
            each.data.copy_(piece)
            at += each.numel()
        outputs = self.module(torch.from_numpy(np.asarray(x))[None])[0]
        rows = []
        for each in outputs:
            found = torch.autograd.grad(each, self.parameters, retain_graph=True)
            rows.append(np.concatenate([a.numpy().ravel() for a in found]))
        return outputs.detach().numpy(), np.array(rows)

    def textbook(
        self, x: Any, y: Any, R: float, *, decay: float = 1.0, process_noise: float = 0.0
    ) -> None:
        """One measurement, in the Joseph form, and the time to the next."""
        outputs, H = self.row(x)
        S = H @ self.P @ H.T + R * np.eye(len(outputs))
        K = np.linalg.solve(S, H @ self.P).T
        self.w = self.w + K @ (y - outputs)
        A = np.eye(len(self.w)) - K @ H
        self.P = A @ self.P @ A.T + R * K @ K.T
        self.w = self.start + decay * (self.w - self.start)
        self.P = decay**2 * self.P + process_noise * np.eye(len(self.w))

    def printed_13(self, x: Any, y: Any, forgetting: float, i: int) -> None:
        """Equation (13) of the paper of 2022 as printed, for one output; i from 1."""
        outputs, H = self.row(x)
        g, P = H[0], self.P
        d = forgetting**i + g @ P @ g
        self.w = self.w + P @ g * (y[0] - outputs[0]) / d
        self.P = P - np.outer(P @ g, g @ P) / d


class DenseLoFi(Dense):
    """Diagonal LO-FI with explicit p × p matrices; P⁻¹ = diag(D) + W Wᵀ."""

    def __init__(self, module: Any, m: int, prior: float) -> None:
        super().__init__(module, prior)
        self.m, self.D, self.W = m, np.full(len(self.w), 1.0 / prior), np.zeros((len(self.w), 0))

    @property
    def precision(self) -> Any:
        return np.diag(self.D) + self.W @ self.W.T

    def step(
        self, x: Any, y: Any, R: float, *, decay: float = 1.0, process_noise: float = 0.0
    ) -> None:
        outputs, H = self.row(x)
        wide = np.hstack([self.W, H.T / np.sqrt(R)])
        precision = np.diag(self.D) + wide @ wide.T
        self.w = self.w + np.linalg.solve(precision, H.T @ (y - outputs) / R)
        U, sigma, _ = np.linalg.svd(wide, full_matrices=False)
        self.W = U[:, : self.m] * sigma[: self.m]
        rest = U[:, self.m :] * sigma[self.m :]
        self.D = self.D + np.diag(rest @ rest.T)
        # what P becomes, from P itself: γ² D⁻¹ + q I stays diagonal, the rest is of rank m
        I = np.eye(len(self.w))  # noqa: E741
        P = decay**2 * np.linalg.inv(self.precision) + process_noise * I
        self.D = 1.0 / (decay**2 / self.D + process_noise)
        left = np.linalg.inv(P) - np.diag(self.D)
        values, vectors = np.linalg.eigh((left + left.T) / 2.0)
        top = values.argsort()[::-1][: self.W.shape[1]]
        self.W = vectors[:, top] * np.sqrt(np.clip(values[top], 0.0, None))
        self.w = self.start + decay * (self.w - self.start)


def along(net: Any, X: Any, Y: Any, other: Callable[[int], Any]) -> float:
    """Max distance of the weights to those of a reference, over all rows."""
    worst = 0.0
    for i in range(len(X)):
        net.learn(X[i : i + 1], Y[i : i + 1])
        worst = max(worst, float(np.abs(net.network.weights().numpy() - other(i)).max()))
    return worst
