"""Jacobian of a module's outputs with respect to the weights that learn.

Row i·c + k of J (n·c, p) is ∂f_k(x_i; w)/∂w. It is computed by one of three methods:

- layers: all rows, or all outputs of one row, at once, with backward passes only to the outputs of
  layers, see (1);
- rows: ``vmap`` over rows, each with c vector-Jacobian products;
- plain: row by row and output by output, with plain backward passes. This always works.

Each of the first two methods is compared with plain backward passes before it is used. It is
disabled if it fails, as for modules that branch on data, write in place, or have layers that
``vmap`` does not support. Cost: n forward and n·c backward passes, and temporary memory for a
bounded number of rows of J.

In the method by layers, derivatives are products of inputs and back-propagated gradients. For a
layer z = W x + b and outputs f_k of a row, with δ_k = ∂f_k / ∂z,

    ∂f_k / ∂W = Σ δ_k xᵀ,      ∂f_k / ∂b = Σ δ_k                                             (1)

where the sum is over all uses of the layer in the row: one for a vector, each step of a sequence,
each patch of an image in a convolution [1]. The backward pass ends at z, for many rows at once, and
(1) is written into J without a copy. This supports all calls of ``torch.nn.functional.linear`` and
``conv2d`` with weights that learn; other weights use autograd, which is limited to one row at a
time.

[1] I. Goodfellow, "Efficient per-example gradient computations", arXiv:1510.01799, 2015; F. Dangel,
    F. Kunstner, P. Hennig, "BackPACK: packing more into backprop", ICLR 2020.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks
from torch.func import vjp, vmap
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from onepass.nn.batch import Batch, refuse_width
from onepass.nn.function import Function, differentiable_kernels
from onepass.nn.probe import check_has_gradient, tolerance


class InseparableRows(Exception):  # noqa: N818  caught within onepass.nn
    """The derivatives of single rows cannot be separated by this method."""


@dataclass(frozen=True)
class _LayerUse:
    """One call of a layer."""

    names: list[str | None]
    """Names of the weight and the bias; None if it does not learn."""
    x: Tensor
    z: Tensor
    version: int
    form: Callable[[Tensor, Tensor, int], Any]
    """Computes the parts (n, k, *weight) of (1) from x and δ (k, *z), for n rows."""


class LayerRecorder(TorchFunctionMode):  # type: ignore[misc]  # torch has no types for it
    """Context that records calls of layers.

    Parameters
    ----------
    weights : mapping of str to Tensor
        The weights that learn, which require grad.
    """

    def __init__(self, weights: Mapping[str, Tensor]) -> None:
        super().__init__()
        self._weights = weights
        self._names = {id(each): name for name, each in weights.items()}
        self._uses: list[_LayerUse] = []

    def __torch_function__(
        self, func: Any, types: object, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Call a function; for a layer, return a copy of the result, which may be modified."""
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
        self._uses.append(_LayerUse(names, x, z, _version(x), form))
        return z.clone()

    def write(self, out: Tensor, v: Tensor, J: Tensor, slices: Mapping[str, slice]) -> None:
        """Write derivatives of outputs (n, c), weighted by v (k, n, c), into J (n, k, p).

        Raises
        ------
        InseparableRows
            If some derivatives of several rows need autograd, or an input of a layer was modified.
        """
        n, uses, leaves = len(J), self._uses, list(self._weights.values())
        if any(_version(use.x) != use.version for use in uses):
            raise InseparableRows
        inputs = [*(use.z for use in uses), *leaves]
        found = torch.autograd.grad(
            out, inputs, v, retain_graph=True, allow_unused=True, is_grads_batched=True
        )
        deltas, rest = found[: len(uses)], found[len(uses) :]
        if n > 1 and any(each is not None for each in rest):
            raise InseparableRows
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

    def features(self, out: Tensor) -> Tensor | None:
        """Return the inputs (n, q) of a linear layer whose outputs (n, c) are the module's.

        The features are the gradient of each output with respect to its own weights. The result is
        None if the weights that learn are used in another way, or if an operation that may change
        values follows the layer.
        """
        use = self._uses[0] if len(self._uses) == 1 else None
        if use is None or use.form is not _of_linear or use.x.ndim != 2:
            return None
        if use.z.shape != out.shape or list(self._weights) != use.names[: len(self._weights)]:
            return None
        node = out.grad_fn
        while node is not None and node.name().partition("Backward")[0] in _SAME:
            node = node.next_functions[0][0]
        # z is a leaf unless the layer's input also depends on the weights
        if getattr(node, "variable", None) is not use.z or _version(use.x) != use.version:
            return None
        return torch.cat((use.x, use.x.new_ones(len(out), len(self._weights) - 1)), dim=1)

    def _add(
        self,
        use: _LayerUse,
        delta: Tensor,
        n: int,
        J: Tensor,
        slices: Mapping[str, slice],
        blank: dict[str, slice],
    ) -> None:
        """Add the derivatives of one call of a layer; overwrite J if they are the first."""
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


def _version(tensor: Tensor) -> int:
    """Return the version counter of a tensor and its views."""
    count: int = tensor._version  # noqa: SLF001  torch has no public name for it
    return count


def _linear(weight: Tensor, more: object, kwargs: object) -> Any:
    del weight, more, kwargs
    return _of_linear


def _of_linear(x: Tensor, delta: Tensor, n: int) -> Any:
    """Return (1) for z = W x + b: x (n, …, in), δ (k, n, …, out)."""
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


def _conv2d(weight: Tensor, more: Any, kwargs: Any) -> Any:
    """Return a function for (1) of a convolution; None if the padding is a string."""
    options = dict(zip(("stride", "padding", "dilation", "groups"), more, strict=False)) | kwargs
    stride, padding, dilation = (options.get(name, i) for name, i in _USUAL)
    if isinstance(padding, str):
        return None
    size, groups = tuple(weight.shape[2:]), options.get("groups", 1)

    def form(x: Tensor, delta: Tensor, n: int) -> Any:
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


def _by_rows(numbers: Tensor, n: int, at: int, last: int) -> Tensor:
    """Flatten the axes between the axis ``at`` of n rows and the ``last`` axes.

    Raises
    ------
    InseparableRows
        If that axis does not have n entries.
    """
    before, shape = numbers.shape[:at], numbers.shape[at:]
    if n > 1 and shape[0] != n:
        raise InseparableRows
    return numbers.reshape(*before, n, -1, *shape[len(shape) - last :])


_PARTS = ("input", "weight", "bias")
_SAME = {"Alias", "Clone", "ReshapeAlias", "Squeeze", "ToCopy", "UnsafeView", "Unsqueeze", "View"}
_USUAL = (("stride", 1), ("padding", 0), ("dilation", 1))
_FORMS: dict[Any, Callable[[Any, Any, Any], Any]] = {
    functional.linear: _linear,
    functional.conv2d: _conv2d,
}

_SCRATCH = 2**26
"""Bytes of temporary memory for the rows of J that are computed at once.

More is no faster on a CPU, because of memory allocation.
"""

_SCRATCH_ON_DEVICE = 2**28


class Derivative:
    """Derivatives of a function with respect to the weights that learn.

    Parameters
    ----------
    function : Function
    """

    def __init__(self, function: Function) -> None:
        self._function = function
        self._trusted: dict[str, bool] = {}
        self._bytes_per_row: int | None = None  # bytes saved by the forward pass of a row
        self._derived = False  # whether outputs have had a graph

    def jacobian(self, rows: Batch, out: Tensor | None, c: int | None) -> tuple[Tensor, Tensor]:
        """Return the outputs (n, c), and J (n·c, p).

        Parameters
        ----------
        rows : Batch
        out : Tensor or None
            Memory for J, of at least n·c rows; None: new memory.
        c : int or None
            Number of outputs per row; None: that of the first row.

        Raises
        ------
        ShapeError
            If a row has another number of outputs.
        """
        selection, first = self._function.selection, self._function.selection.parameters[0]
        if rows.n == 0:
            return self._function.outputs(rows), first.new_empty((0, selection.p))
        c = c or self._function.outputs(rows[:1]).shape[1]
        height = rows.n * c
        J = first.new_empty((height, selection.p)) if out is None else out[:height]
        at_once = self._rows_per_chunk(rows)
        step = at_once // c if rows.n > 1 and at_once >= 2 * c else 1
        pieces = [
            self._piece(rows[i : i + step], J[i * c : (i + step) * c], at_once)
            for i in range(0, rows.n, step)
        ]
        return (pieces[0] if len(pieces) == 1 else torch.cat(pieces)), J

    def gradient(self, rows: Batch, v: Tensor | Callable[..., Tensor]) -> tuple[Tensor, Tensor]:
        """Return the outputs (n, c), and the gradient (p,) of the sum of v times outputs.

        Parameters
        ----------
        rows : Batch
        v : Tensor of shape (n, c) or Callable
            A function of the outputs that returns such a tensor.
        """
        selection, first = self._function.selection, self._function.selection.parameters[0]
        gradient = first.new_zeros(selection.p)
        with self._function.gradient_context(rows):
            weights = self._function.weights(derive=True)
            out = self._function(weights, rows)
            v = v(out.detach()) if callable(v) else v
            if self._has_graph(out, rows):
                leaves = list(weights.values())
                found = torch.autograd.grad(out, leaves, v.to(out.dtype), allow_unused=True)
                self._write(gradient, found)
        return out.detach(), gradient

    def features(self, rows: Batch) -> tuple[Tensor, Tensor | None]:
        """Return the outputs (n, c), and the result of :meth:`LayerRecorder.features`."""
        with self._function.gradient_context(rows):
            weights = self._function.weights(derive=True)
            recorder = LayerRecorder(weights)
            with recorder:
                out = self._function(weights, rows)
            found = recorder.features(out) if self._has_graph(out, rows) else None
        return out.detach(), found

    # -- methods ---------------------------------------------------------------------------------

    def _piece(self, rows: Batch, J: Tensor, at_once: int) -> Tensor:
        """Write the Jacobian of a chunk of rows into J, and return their outputs."""
        if rows.n == 1:
            return self._row(rows, J, at_once)
        out = self._try_method("layers of rows", lambda: self._by_layers(rows, J, len(J)), rows, J)
        if out is None and not self._function.keeps_state:  # values stored under vmap are invalid
            out = self._try_method("rows", lambda: self._by_vmap(rows, J), rows, J)
        if out is not None:
            self._trusted.setdefault("layers of rows", False)
            return out
        c = len(J) // rows.n
        out = [self._row(row, J[i * c : (i + 1) * c], at_once) for i, row in enumerate(rows)]
        self._trusted["rows"] = False  # only now: errors of the rows themselves are raised above
        self._trusted.setdefault("layers of rows", False)
        return torch.cat(out)

    def _by_vmap(self, rows: Batch, J: Tensor) -> Tensor:
        c = len(J) // rows.n
        names = self._function.selection.names

        def single_row(
            weights: Mapping[str, Tensor], *leaves: Tensor
        ) -> tuple[Tensor, dict[str, Tensor]]:
            row = rows.with_tensors((leaf[None] for leaf in leaves), 1)
            out, back = vjp(lambda at: self._width(self._function(at, row), c)[0], weights)
            basis = torch.eye(c, dtype=out.dtype, device=out.device)
            if c == 1:
                return out, {name: g[None] for name, g in back(basis[0])[0].items()}
            return out, vmap(back)(basis)[0]

        leaves = rows.tensors
        with torch.no_grad(), differentiable_kernels(self._function.module, batched=True):
            weights = self._function.weights()
            out, found = vmap(single_row, in_dims=(None, *(0 for _ in leaves)))(weights, *leaves)
            self._write(J.view(rows.n, c, -1), [found[name] for name in names])
        return out

    def _by_layers(self, rows: Batch, J: Tensor, at_once: int) -> Tensor:
        c = len(J) // rows.n
        with self._function.gradient_context(rows, batched=True):
            weights = self._function.weights(derive=True)
            recorder = LayerRecorder(weights)
            with recorder:
                out = self._width(self._function(weights, rows), c)
            if not self._has_graph(out, rows):
                raise InseparableRows
            step, each = max(at_once // rows.n, 1), J.view(rows.n, c, -1)
            for k in range(0, c, step):
                v = out.new_zeros((min(step, c - k), *out.shape))
                v[:, :, k : k + step].diagonal(dim1=0, dim2=2).fill_(1.0)
                recorder.write(out, v, each[:, k : k + step], self._function.selection.slices)
        return out.detach()

    def _row(self, row: Batch, J: Tensor, at_once: int) -> Tensor:
        """Write the Jacobian of a row into J, and return its outputs."""
        if len(J) == 1 or at_once == 1:
            return self._by_output(row, len(J), range(len(J)), J)
        out = self._try_method("layers", lambda: self._by_layers(row, J, at_once), row, J)
        if out is None:
            out = self._by_output(row, len(J), range(len(J)), J)
            self._trusted.setdefault("layers", False)
        return out

    def _by_output(self, row: Batch, c: int, chosen: Sequence[int], J: Tensor) -> Tensor:
        """Write derivatives of chosen outputs of a row, of c, by plain backward passes."""
        with self._function.gradient_context(row):
            weights = self._function.weights(derive=True)
            out, leaves = self._width(self._function(weights, row), c), list(weights.values())
            if not self._has_graph(out, row):
                J.zero_()
                return out
            for k, place in zip(chosen, J, strict=True):
                found = torch.autograd.grad(out[0, k], leaves, retain_graph=True, allow_unused=True)
                self._write(place, found)
        return out.detach()

    # -- checks of methods ------------------------------------------------------------------------

    def _try_method(
        self, way: str, compute: Callable[[], Tensor], rows: Batch, J: Tensor
    ) -> Tensor | None:
        """Return the result of a method, or None; check the first by plain backward passes."""
        trusted = self._trusted.get(way)
        if trusted is False:
            return None
        try:
            with nullcontext() if trusted else warnings.catch_warnings():
                if not trusted:
                    warnings.filterwarnings("error", message=".*performance drop.*")
                out = compute()
        except torch.OutOfMemoryError:
            raise
        except Exception:  # noqa: BLE001  the plain method raises errors of the module
            return None
        if not (trusted or self._matches_backward(rows[0], J[: len(J) // rows.n])):
            return None
        self._trusted[way] = True
        return out

    def _matches_backward(self, row: Batch, J: Tensor) -> bool:
        """Return whether J (c, p) of a row equals plain backward passes for a few outputs."""
        c = len(J)
        some = sorted({0, c // 2, c - 1})
        plain = torch.empty_like(J[: len(some)])
        self._by_output(row, c, some, plain)
        return all(self._agree(each, J[k]) for k, each in zip(some, plain, strict=True))

    def _has_graph(self, out: Tensor, rows: Batch) -> bool:
        """Return whether outputs have a graph; until then, check that they do not depend on w."""
        self._derived = self._derived or out.requires_grad
        if not self._derived:
            check_has_gradient(self._function, rows)
        return bool(out.requires_grad)

    def _agree(self, plain: Tensor, other: Tensor) -> bool:
        """Return whether derivatives agree in each parameter to half the digits, up to rounding."""
        whole = plain.abs().amax() * (100.0 * torch.finfo(plain.dtype).eps)
        pieces = self._function.selection.slices.values()
        scales = [
            (plain[s].abs().amax() * tolerance(plain) + whole, s)
            for s in pieces
            if s.stop > s.start
        ]
        return all(bool(((plain[s] - other[s]).abs() <= scale).all()) for scale, s in scales)

    # -- temporary memory -------------------------------------------------------------------------

    def _rows_per_chunk(self, rows: Batch) -> int:
        """Return the number of rows of J that fit in temporary memory, with saved activations."""
        first = self._function.selection.parameters[0]
        if self._bytes_per_row is None:
            self._bytes_per_row = self._forward_bytes(rows[:1])
        scratch = _SCRATCH if first.device.type == "cpu" else _SCRATCH_ON_DEVICE
        a_row = self._bytes_per_row + self._function.selection.p * first.element_size()
        return int(max(1, scratch // max(1, a_row)))

    def _forward_bytes(self, row: Batch) -> int:
        """Count the bytes that the forward pass of a row saves for backward, without parameters."""
        weights = self._function.weights(derive=True)
        own = {each.untyped_storage().data_ptr() for each in weights.values()}
        total = 0

        def pack(tensor: Tensor) -> Tensor:
            nonlocal total
            if tensor.untyped_storage().data_ptr() not in own:
                total += tensor.numel() * tensor.element_size()
            return tensor

        with self._function.gradient_context(row), saved_tensors_hooks(pack, lambda tensor: tensor):
            self._function(weights, row)
        return total

    def _write(self, J: Tensor, found: Sequence[Tensor | None]) -> None:
        """Write derivatives (…, *shape) into the columns of J (…, p); None means zero."""
        for s, g in zip(self._function.selection.slices.values(), found, strict=True):
            if g is None:
                J[..., s].zero_()
            else:
                sparse = g.layout != torch.strided  # from nn.Embedding(sparse=True)
                J[..., s].view(g.shape).copy_(g.to_dense() if sparse else g)

    @staticmethod
    def _width(out: Tensor, c: int) -> Tensor:
        refuse_width(out.shape[1], c)
        return out
