"""Activations: what the layers of a module are given, as the vectors that their weights meet.

A linear layer's weights W (o × d) meet its inputs x ∈ ℝᵈ. Those of a convolution, seen as W
(o × d) with d = channels · kernel, meet each patch of its input; with groups, each group of outputs
meets the patches of its own channels.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from torch import nn

__all__ = ["Layer", "layers", "listening", "met"]

_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)


@dataclass(frozen=True)
class Layer:
    """A layer whose weights meet vectors.

    Parameters
    ----------
    name : str
        As the module names it; the first name of a layer or weight that is used more than once.
    modules : tuple of torch.nn.Module
        Those that share the weight.
    groups : int
        Groups of outputs; 1 but for grouped convolutions.
    d : int
        The length of the vectors.
    """

    name: str
    modules: tuple[Any, ...]
    groups: int
    d: int

    @property
    def weight(self) -> Any:
        """The parameter, of shape (groups · o, …), … being d numbers."""
        return self.modules[0].weight

    @property
    def biases(self) -> tuple[Any, ...]:
        """The parameters that are added to what the weights give."""
        return tuple(each.bias for each in self.modules if each.bias is not None)


def layers(module: Any) -> dict[str, Layer]:
    """The linear layers and convolutions of a module whose weights are parameters, by name.

    Layers within attention are no such: their weights are used without the layer being asked.
    """
    within = {
        id(part)
        for each in module.modules()
        if isinstance(each, nn.MultiheadAttention)
        for part in each.modules()
    }
    sharing: dict[int, list[tuple[str, Any]]] = {}
    for name, each in module.named_modules():
        known = isinstance(each, (nn.Linear, *_CONVOLUTIONS)) and id(each) not in within
        if known and "weight" in each._parameters:  # noqa: SLF001  else it is made of others
            sharing.setdefault(id(each.weight), []).append((name, each))
    found = [_layer(users) for users in sharing.values() if len({type(u) for _, u in users}) == 1]
    return {each.name: each for each in found}


def _layer(users: list[tuple[str, Any]]) -> Layer:
    name, first = users[0]
    groups = first.groups if isinstance(first, _CONVOLUTIONS) else 1
    d = math.prod(first.weight.shape[1:])
    return Layer(name, tuple(each for _, each in users), groups, d)


def met(layer: Any, x: Any) -> Any:
    """The vectors that a layer's weights meet in inputs x, (groups, N, d).

    Parameters
    ----------
    layer : torch.nn.Linear, Conv1d, Conv2d or Conv3d
    x : Tensor
        As the layer is given it.

    Examples
    --------
    >>> import torch
    >>> met(torch.nn.Conv1d(2, 1, 3), torch.arange(10.0).reshape(1, 2, 5)).tolist()[0][1]
    [1.0, 2.0, 3.0, 6.0, 7.0, 8.0]
    """
    if isinstance(layer, nn.Linear):
        return x.reshape(1, -1, layer.in_features)
    axes = len(layer.kernel_size)
    x = x if x.ndim == axes + 2 else x[None]
    patches = _padded(layer, x)
    shape = zip(layer.kernel_size, layer.stride, layer.dilation, strict=True)
    for axis, (size, stride, dilation) in enumerate(shape, 2):
        patches = patches.unfold(axis, dilation * (size - 1) + 1, stride)[..., ::dilation]
    channels, groups = layer.in_channels, layer.groups
    # (n, channels, places…, kernel…) -> (channels, n, places…, kernel…), by groups
    patches = patches.transpose(0, 1).reshape(
        groups, channels // groups, -1, math.prod(layer.kernel_size)
    )
    return patches.transpose(1, 2).reshape(groups, patches.shape[2], -1)


def _padded(layer: Any, x: Any) -> Any:
    if layer.padding == "valid":
        return x
    if layer.padding == "same":
        totals = [d * (k - 1) for d, k in zip(layer.dilation, layer.kernel_size, strict=True)]
        ends = [(total // 2, total - total // 2) for total in totals]
    else:
        ends = [(each, each) for each in layer.padding]
    flat = [number for pair in reversed(ends) for number in pair]  # the last axis comes first
    mode = "constant" if layer.padding_mode == "zeros" else layer.padding_mode
    return nn.functional.pad(x, flat, mode=mode)


@contextmanager
def listening(known: dict[str, Layer], hear: Callable[[str, Any], None]) -> Iterator[None]:
    """While within, tell the vectors that each layer's weights meet, by the layer's name."""

    def listener(name: str) -> Callable[[Any, Any, Any, Any], None]:
        def told(part: Any, args: Any, kwargs: Any, out: Any) -> None:
            del out  # told when the layer has taken what it was given: else it says why not
            x = args[0] if args else kwargs["input"]
            hear(name, met(part, x.detach()))

        return told

    with ExitStack() as stack:
        for layer in known.values():
            for part in layer.modules:
                hook = part.register_forward_hook(listener(layer.name), with_kwargs=True)
                stack.callback(hook.remove)
        yield
