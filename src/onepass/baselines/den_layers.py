"""DEN layers: a perceptron whose units know the task for which they came, and how it is fitted.

A unit of stamp s is there for the classes of tasks from s on: a class of task t is answered by the
units of stamp <= t alone, so that units that came later do not change what it says [1, 3.4].

A fit is proximal stochastic gradient descent. With u the weights after a step of size η on the
mean cross entropy over the task's classes, what is free of them becomes in turn

    w = soft(u, η μ)                        for  μ ‖w‖₁, so that weights become 0
    w = u / (1 + η μ₂)                      for  μ₂/2 ‖w‖²
    w_g = u_g max(0, 1 − η γ / ‖u_g‖)       for  γ Σ ‖w_g‖, a group the weights into a unit
    w = (u + η λ a) / (1 + η λ)             for  λ/2 ‖w − a‖²

[1] J. Yoon, E. Yang, J. Lee, S. J. Hwang, "Lifelong learning with dynamically expandable networks",
    ICLR 2018.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch.nn import functional

__all__ = ["Freedom", "Layers", "fitted"]


@dataclass(frozen=True, eq=False)
class Layers:
    """The weights of a perceptron with ReLU between its layers.

    Parameters
    ----------
    weights : tuple of Tensor
        (out, in) of each layer, the last to the classes.
    biases : tuple of Tensor
        (out,) of each.
    stamps : tuple of Tensor
        Of each hidden layer the task for which each unit came, from 1 on.
    heads : Tensor of shape (c,)
        The last task that had the class; 0 where none had.
    """

    weights: tuple[Any, ...]
    biases: tuple[Any, ...]
    stamps: tuple[Any, ...]
    heads: Any

    def say(self, x: Any, task: int | None = None) -> Any:
        """Outputs (n, c), of all units or of those that a task knows."""
        for i, stamps in enumerate(self.stamps):
            x = functional.linear(x, self.weights[i], self.biases[i]).relu()
            if task is not None:
                x = x * (stamps <= task)
        return functional.linear(x, self.weights[-1], self.biases[-1])

    def answer(self, x: Any) -> Any:
        """Outputs (n, c), each class by its own task's units; −∞ of those that no task had."""
        told = x.new_full((len(x), len(self.heads)), -torch.inf)
        for task in self.heads[self.heads > 0].unique().tolist():
            there = self.heads == task
            told[:, there] = self.say(x, task)[:, there]
        return told

    def grown(self, units: tuple[int, ...], task: int, seed: int) -> "Layers":
        """With so many units more in each hidden layer, of small random weights."""
        generator = torch.Generator().manual_seed(seed)
        weights, biases, stamps = [], [], []
        before = 0
        for i, (w, b) in enumerate(zip(self.weights, self.biases, strict=True)):
            after = units[i] if i < len(units) else 0
            old, width = w.shape[0], w.shape[1] + before
            # as torch starts a Linear, by the unit's width
            fresh = (2 * torch.rand(old + after, width, generator=generator) - 1) / width**0.5
            fresh = fresh.to(w)
            fresh[:old, : w.shape[1]] = w
            if i == len(units):  # no class of another task is led to
                fresh[self.heads != task, w.shape[1] :] = 0.0
            weights.append(fresh)
            biases.append(torch.cat([b, b.new_zeros(after)]))
            before = after
        for s, more in zip(self.stamps, units, strict=True):
            stamps.append(torch.cat([s, s.new_full((more,), task)]))
        return replace(self, weights=tuple(weights), biases=tuple(biases), stamps=tuple(stamps))

    def without(self, kept: tuple[Any, ...]) -> "Layers":
        """With the units of each hidden layer that are to be kept, (units,) of bool each."""
        weights = list(self.weights)
        for i, some in enumerate(kept):
            weights[i], weights[i + 1] = weights[i][some], weights[i + 1][:, some]
        return Layers(
            tuple(weights),
            (*(b[some] for b, some in zip(self.biases, kept, strict=False)), self.biases[-1]),
            tuple(s[some] for s, some in zip(self.stamps, kept, strict=True)),
            self.heads,
        )


@dataclass(frozen=True, eq=False)
class Freedom:
    """What of the layers a fit may change, and what it pays for it.

    Parameters
    ----------
    weights, biases : tuple of Tensor of bool
        Which are free.
    sparsity, shrinkage, drift : float
        μ, μ₂ and λ.
    group : float
        γ, of units of this task.
    anchors : tuple of Tensor, or empty
        a of the leading rows and columns of each hidden layer's weights.
    """

    weights: tuple[Any, ...]
    biases: tuple[Any, ...]
    sparsity: float = 0.0
    shrinkage: float = 0.0
    drift: float = 0.0
    group: float = 0.0
    anchors: tuple[Any, ...] = ()


def fitted(
    layers: Layers,
    rows: tuple[Any, Any],
    freedom: Freedom,
    *,
    task: int,
    step_size: float,
    epochs: int,
    batch: int,
    rng: np.random.Generator,
) -> Layers:
    """The layers after some passes over the rows of a task.

    Parameters
    ----------
    layers : Layers
    rows : tuple of Tensor
        x (n, d) and classes (n,).
    freedom : Freedom
    task : int
        t, from 1 on; its classes are those whose head has it.
    step_size : float
        η.
    epochs, batch : int
        Passes, and rows a step.
    rng : Generator
        Draws the order of rows.
    """
    x, y = rows
    classes = torch.nonzero(layers.heads == task)[:, 0]
    labels = torch.searchsorted(classes, y)
    depth = len(layers.weights)
    free = [*freedom.weights, *freedom.biases]
    for _ in range(epochs):
        order = torch.from_numpy(rng.permutation(len(x))).to(x.device)
        for chosen in order.split(batch):
            held = [w.detach().requires_grad_() for w in (*layers.weights, *layers.biases)]
            now = replace(layers, weights=tuple(held[:depth]), biases=tuple(held[depth:]))
            with torch.enable_grad():
                said = now.say(x[chosen])[:, classes]
                slopes = torch.autograd.grad(functional.cross_entropy(said, labels[chosen]), held)
            with torch.no_grad():
                moved = [
                    w - step_size * g * some for w, g, some in zip(held, slopes, free, strict=True)
                ]
                weights = tuple(
                    _paid(u, i, layers, freedom, step_size, task)
                    for i, u in enumerate(moved[:depth])
                )
            layers = replace(layers, weights=weights, biases=tuple(moved[depth:]))
    return layers


def _paid(u: Any, i: int, layers: Layers, freedom: Freedom, step_size: float, task: int) -> Any:
    """The weights of a layer after what is paid for them, in turn."""
    some = freedom.weights[i]
    if freedom.sparsity:
        u = torch.where(some, functional.softshrink(u, step_size * freedom.sparsity), u)
    if freedom.shrinkage:
        u = torch.where(some, u / (1.0 + step_size * freedom.shrinkage), u)
    if freedom.group and i < len(layers.stamps):
        norm = u.norm(dim=1, keepdim=True)
        less = (1.0 - step_size * freedom.group / norm.clamp(min=1e-30)).clamp(min=0.0)
        u = torch.where((layers.stamps[i] == task)[:, None], u * less, u)
    if freedom.drift and i < len(freedom.anchors):
        anchor, pull = freedom.anchors[i], step_size * freedom.drift
        a, b = anchor.shape
        u = u.clone()
        u[:a, :b] = (u[:a, :b] + pull * anchor) / (1.0 + pull)
    return u
