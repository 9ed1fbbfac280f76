"""Outer: derivatives by the weights of layers, as products of what goes in and what comes back.

Of a layer z = W x + b, for outputs f_k of a row, with δ_k = ∂f_k / ∂z,

    ∂f_k / ∂W = Σ δ_k xᵀ,      ∂f_k / ∂b = Σ δ_k                                             (1)

the sum being over all places of the row where the layer is used: one of a vector, each step of a
sequence, each patch of a picture that a convolution sees [1]. So the backward pass needs to go no
further than to z, for many rows at once, and (1) is written to where it belongs without a copy.
It serves whatever calls ``torch.nn.functional.linear`` and ``conv2d`` with weights that learn;
others have their derivatives by autograd, which tells one row from another only if it is alone.

[1] I. Goodfellow, "Efficient per-example gradient computations", arXiv:1510.01799, 2015; F. Dangel,
    F. Kunstner, P. Hennig, "BackPACK: packing more into backprop", ICLR 2020.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional
from torch.overrides import TorchFunctionMode

__all__ = ["Untold", "Watch"]


class Untold(Exception):  # noqa: N818  caught by whoever asks, never shown
    """The rows' derivatives cannot be told apart in this way."""


@dataclass(frozen=True)
class _Use:
    """A layer as it was used once."""

    names: list[str | None]
    """Of its weight and bias, of those that learn."""
    x: Any
    z: Any
    version: int
    form: Callable[[Any, Any, int], Any]
    """Makes of x and δ (k, *z) the parts of (1), (n, k, *weight), for n rows."""


class Watch(TorchFunctionMode):  # type: ignore[misc]  # torch has no types for it
    """Notes how layers are used, while it is entered.

    Parameters
    ----------
    weights : mapping of str to Tensor
        Those that learn, as the module is asked with; they require grad.
    """

    def __init__(self, weights: Mapping[str, Any]) -> None:
        super().__init__()
        self._weights = weights
        self._names = {id(each): name for name, each in weights.items()}
        self._uses: list[_Use] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """What a function gives; of a layer's, a copy, that may be written in."""
        del types
        kwargs = kwargs or {}
        if func not in _FORMS or not torch.is_grad_enabled():
            return func(*args, **kwargs)
        given = dict(zip(_PARTS, args, strict=False)) | kwargs
        names = [self._names.get(id(given.get(part))) for part in _PARTS[1:]]
        form = _FORMS[func](given["weight"], args[3:], kwargs) if any(names) else None
        if form is None:
            return func(*args, **kwargs)
        for part, name in zip(_PARTS[1:], names, strict=True):
            if name is not None:
                given[part] = given[part].detach()
        placed = (*(given.pop(part) for part in _PARTS[: len(args)]), *args[3:])
        x = (placed[0] if args else given["input"]).detach()
        z = func(*placed, **given)
        z = z if z.requires_grad else z.requires_grad_()
        self._uses.append(_Use(names, x, z, _version(x), form))
        return z.clone()

    def write(self, out: Any, v: Any, J: Any, slices: Mapping[str, slice]) -> None:
        """The derivatives of outputs (n, c), weighted by v (k, n, c), into J (n, k, p).

        Raises
        ------
        Untold
            If some are autograd's, of several rows, or what went into a layer was written over.
        """
        n, uses, leaves = len(J), self._uses, list(self._weights.values())
        if any(_version(use.x) != use.version for use in uses):
            raise Untold
        asked = [*(use.z for use in uses), *leaves]
        found = torch.autograd.grad(
            out, asked, v, retain_graph=True, allow_unused=True, is_grads_batched=True
        )
        deltas, rest = found[: len(uses)], found[len(uses) :]
        if n > 1 and any(each is not None for each in rest):
            raise Untold
        blank = dict(slices)
        for name, each in zip(self._weights, rest, strict=True):
            if each is not None:
                dense = each.to_dense() if each.layout != torch.strided else each
                J[0, :, blank.pop(name)].view(each.shape).copy_(dense)
        for use, delta in zip(uses, deltas, strict=True):
            if delta is not None:
                self._add(use, delta, n, J, slices, blank)
        for piece in blank.values():
            J[..., piece].zero_()

    def features(self, out: Any) -> Any:
        """The features (n, q) of a linear layer whose outputs (n, c) are those of the module.

        They are the gradient of every output in its own weights. None if the weights that learn are
        used otherwise, or if anything that could change a number follows the layer.
        """
        use = self._uses[0] if len(self._uses) == 1 else None
        if use is None or use.form is not _of_linear or use.x.ndim != 2:
            return None
        if use.z.shape != out.shape or list(self._weights) != use.names[: len(self._weights)]:
            return None
        node = out.grad_fn
        while node is not None and node.name().partition("Backward")[0] in _SAME:
            node = node.next_functions[0][0]
        # z is a leaf unless what goes into the layer depends on the weights as well
        if getattr(node, "variable", None) is not use.z or _version(use.x) != use.version:
            return None
        return torch.cat((use.x, use.x.new_ones(len(out), len(self._weights) - 1)), dim=1)

    def _add(
        self, use: _Use, delta: Any, n: int, J: Any, slices: Mapping[str, slice], blank: Any
    ) -> None:
        """Add what one use has to say; write it where nothing was said yet."""
        parts = use.form(use.x, delta, n)
        for name, (left, right) in zip(use.names, parts, strict=True):
            if name is None:
                continue
            fresh = blank.pop(name, None) is not None
            shape = self._weights[name].shape
            here = J[..., slices[name]].view(n, len(delta), *shape)
            if right is None:
                here.copy_(left.view(here.shape)) if fresh else here.add_(left.view(here.shape))
            elif fresh:
                torch.mul(left, right, out=here)
            else:
                here.addcmul_(left, right)


def _version(tensor: Any) -> int:
    """How often it was written in, or a tensor whose memory it shares."""
    count: int = tensor._version  # noqa: SLF001  torch has no public name for it
    return count


def _linear(weight: Any, more: Any, kwargs: Any) -> Any:
    del weight, more, kwargs
    return _of_linear


def _of_linear(x: Any, delta: Any, n: int) -> Any:
    """(1) of z = W x + b: x (n, …, in), δ (k, n, …, out)."""
    k, out = len(delta), delta.shape[-1]
    x, delta = _by_rows(x, n, 0, 1), _by_rows(delta, n, 1, 1)  # (n, t, in), (k, n, t, out)
    bias = delta.sum(dim=2) if delta.shape[2] > 1 else delta[:, :, 0]
    bias = bias.transpose(0, 1)
    if x.shape[1] == 1:
        weight = bias[..., None], x[:, :, None, :]
    else:
        whole = delta.permute(1, 0, 3, 2).reshape(n, k * out, -1) @ x
        weight = whole.view(n, k, out, -1), None
    return weight, (bias, None)


def _conv2d(weight: Any, more: Any, kwargs: Any) -> Any:
    """How a convolution's parts are made; None of a padding in words."""
    told = dict(zip(("stride", "padding", "dilation", "groups"), more, strict=False)) | kwargs
    stride, padding, dilation = (told.get(name, i) for name, i in _USUAL)
    if isinstance(padding, str):
        return None
    size, groups = tuple(weight.shape[2:]), told.get("groups", 1)

    def form(x: Any, delta: Any, n: int) -> Any:
        patches = functional.unfold(x, size, dilation, padding, stride)  # (n b, g K, L)
        k, out = len(delta), delta.shape[-3]
        patches = _by_rows(patches, n, 0, 2)
        b, places = patches.shape[1], patches.shape[-1]
        X = patches.view(n, b, groups, -1, places).permute(0, 2, 1, 4, 3)  # (n, g, b, L, K)
        D = delta.reshape(k, n, b, groups, out // groups, places).permute(1, 3, 0, 4, 2, 5)
        whole = D.reshape(n, groups, k * out // groups, b * places) @ X.reshape(
            n, groups, b * places, -1
        )
        parts = whole.view(n, groups, k, out // groups, -1).transpose(1, 2)
        bias = delta.reshape(k, n, b, out, places).sum(dim=(2, 4)).transpose(0, 1)
        return (parts.reshape(n, k, out, -1, *size), None), (bias, None)

    return form


def _by_rows(numbers: Any, n: int, at: int, last: int) -> Any:
    """With the axes between that of n rows, at this place, and the last ones as one.

    Raises
    ------
    Untold
        If several rows are not told by that axis.
    """
    before, shape = numbers.shape[:at], numbers.shape[at:]
    if n > 1 and shape[0] != n:
        raise Untold
    return numbers.reshape(*before, n, -1, *shape[len(shape) - last :])


_PARTS = ("input", "weight", "bias")
_SAME = {"Alias", "Clone", "ReshapeAlias", "Squeeze", "ToCopy", "UnsafeView", "Unsqueeze", "View"}
_USUAL = (("stride", 1), ("padding", 0), ("dilation", 1))
_FORMS: dict[Any, Callable[[Any, Any, Any], Any]] = {
    functional.linear: _linear,
    functional.conv2d: _conv2d,
}
