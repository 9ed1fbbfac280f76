"""DEN units: which of them a task needs, and which are split since they drifted."""

from dataclasses import replace
from typing import Any

import torch

from onepass.baselines.den_layers import Freedom, Layers
from onepass.errors import ParameterError, TypeMismatchError

__all__ = [
    "all_free",
    "last_free",
    "linear_layers",
    "needed",
    "new_free",
    "path_free",
    "split",
]


def linear_layers(module: Any, where: str) -> list[Any]:
    """The Linear layers of a perceptron.

    Parameters
    ----------
    module : torch.nn.Sequential
        Linear layers with biases, ReLU between them.
    where : str
        The public call, for messages.

    Raises
    ------
    TypeMismatchError
        If it is no Sequential.
    ParameterError
        If it is made of other layers, or some of their weights do not learn.
    """
    if not isinstance(module, torch.nn.Sequential):
        raise TypeMismatchError(
            f"{where}: `module` must be a torch.nn.Sequential, got {type(module).__name__}. Put "
            "the layers into one."
        )
    wanted = [torch.nn.Linear, torch.nn.ReLU] * (len(module) // 2) + [torch.nn.Linear]
    right = len(wanted) == len(module) and all(
        type(part) is kind for part, kind in zip(module, wanted, strict=True)
    )
    linear = [part for part in module if isinstance(part, torch.nn.Linear)]
    alone = len(list(module.parameters())) == 2 * len(linear)  # no layer is shared
    if not right or not alone or any(part.bias is None for part in linear):
        raise ParameterError(
            f"{where}: `module` must be Linear layers with biases, none shared, and ReLU "
            f"between them, got {', '.join(type(part).__name__ for part in module)}. Make such a "
            "perceptron; pictures are given flat."
        )
    if not all(w.requires_grad for w in module.parameters()):
        raise ParameterError(
            f"{where}: all weights of `module` must learn, got some that require no gradient. "
            "Call module.requires_grad_(True)."
        )
    return linear


def all_free(layers: Layers, task: int) -> Freedom:
    """All weights but those to classes of other tasks."""
    there = layers.heads == task
    return Freedom(
        (
            *(torch.ones_like(w, dtype=torch.bool) for w in layers.weights[:-1]),
            there[:, None].expand_as(layers.weights[-1]),
        ),
        (*(torch.ones_like(b, dtype=torch.bool) for b in layers.biases[:-1]), there),
    )


def last_free(layers: Layers, task: int) -> Freedom:
    """The weights to the task's classes alone, step 1."""
    every = all_free(layers, task)
    return Freedom(
        (*(torch.zeros_like(w) for w in every.weights[:-1]), every.weights[-1]),
        (*(torch.zeros_like(b) for b in every.biases[:-1]), every.biases[-1]),
    )


def path_free(layers: Layers, task: int) -> Freedom:
    """The weights between units that the task needs, step 1."""
    afters = needed(layers, task)
    inputs = torch.ones(layers.weights[0].shape[1], dtype=torch.bool, device=afters[0].device)
    earlier = (inputs, *afters[:-1])
    return Freedom(
        tuple(a[:, None] & b[None] for a, b in zip(afters, earlier, strict=True)), afters
    )


def new_free(layers: Layers, task: int) -> Freedom:
    """The weights into and out of units that came for the task, step 2."""
    every = all_free(layers, task)
    fresh = [s == task for s in layers.stamps]
    inputs = torch.zeros(layers.weights[0].shape[1], dtype=torch.bool, device=fresh[0].device)
    outs, ins = [*fresh, torch.zeros_like(every.biases[-1])], [inputs, *fresh]
    pairs = zip(every.weights, outs, ins, strict=True)
    return Freedom(
        tuple(w & (a[:, None] | b[None]) for w, a, b in pairs), (*fresh, every.biases[-1])
    )


def needed(layers: Layers, task: int) -> tuple[Any, ...]:
    """The units of each layer from which a path of weights other than 0 leads to a task's classes.

    Parameters
    ----------
    layers : Layers
    task : int

    Returns
    -------
    units : tuple of Tensor of bool
        Of each layer, the classes of the task at last.
    """
    found = [layers.heads == task]
    for w in reversed(layers.weights[1:]):
        found.append((w[found[-1]] != 0).any(dim=0))
    return tuple(reversed(found))


def split(layers: Layers, before: Layers, task: int, threshold: float) -> tuple[Layers, int]:
    """Copies for this task of the units that drifted, which get their old weights back.

    Parameters
    ----------
    layers, before : Layers
        After and before the task.
    task : int
    threshold : float
        σ: how far the weights into a unit may move.

    Returns
    -------
    layers : Layers
    copies : int
        How many units were split, over all hidden layers.
    """
    weights, biases, stamps = list(layers.weights), list(layers.biases), list(layers.stamps)
    past = torch.zeros(0, dtype=torch.long, device=layers.heads.device)  # split in the layer below
    copies = 0
    for i, w in enumerate(layers.weights):
        last = i == len(layers.stamps)
        fresh = layers.heads == task if last else layers.stamps[i] == task
        apart = past[:0]
        if not last:
            old = before.weights[i]
            a, b = old.shape
            apart = torch.nonzero((w[:a, :b] - old).norm(dim=1) > threshold)[:, 0]
            restored = w.clone()
            restored[apart] = 0.0
            restored[apart, :b] = old[apart]
            bias = biases[i].clone()
            bias[apart] = before.biases[i][apart]
            biases[i] = torch.cat([bias, biases[i][apart]])
            stamps[i] = torch.cat([stamps[i], stamps[i].new_full((len(apart),), task)])
            w = torch.cat([restored, w[apart]])  # noqa: PLW2901
            fresh = torch.cat([fresh, fresh.new_ones(len(apart))])
        weights[i] = _led_from_copies(w, past, fresh)
        past, copies = apart, copies + len(apart)
    return replace(
        layers, weights=tuple(weights), biases=tuple(biases), stamps=tuple(stamps)
    ), copies


def _led_from_copies(w: Any, past: Any, fresh: Any) -> Any:
    """With columns for copies, which lead to what is of this task in the originals' place."""
    from_copies = torch.where(fresh[:, None], w[:, past], torch.zeros_like(w[:, past]))
    w = w.clone()
    w[:, past] = torch.where(fresh[:, None], torch.zeros_like(w[:, past]), w[:, past])
    return torch.cat([w, from_copies], dim=1)
