"""Weights and memory of a network, split over processes of ``torch.distributed``.

All processes learn the same rows. Each stores some of the p weights, and the same columns of the
memory, which takes m times as much. Sums over all weights are added up over the processes
(:mod:`onepass.linalg.split`): a step of a row with c outputs exchanges the products of its
gradients with q <= 3/2 m directions twice, and a few Gram matrices,

    2 q c + O(c²) numbers                                                                   (1)

of a group of processes, whatever the number of weights. All processes make the same decisions,
since these depend on sums that are equal, bit by bit, in all of them.

A plain module is replicated: each process computes all gradients, retains its part, and after the
step the p new weights are exchanged. The parameters of a module of FSDP2 (``fully_shard``) are
distributed tensors: each process stores its local part and its part of the gradients, and the
module itself exchanges weights, layer by layer, while it is evaluated (c + 1 times per row).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, distributed
from torch.distributed import ProcessGroup
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor, Shard

from onepass import linalg
from onepass.errors import ParameterError
from onepass.nn.batch import Batch, RowsLike, refuse_width
from onepass.nn.function import Function, evaluation_mode, synchronized
from onepass.nn.merge import fingerprint
from onepass.nn.module import Network


class ProcessSplit:
    """The part of the weights that this process stores.

    Parameters
    ----------
    network : Network
    group : torch.distributed.ProcessGroup or None
        None for a ShardedNetwork.

    Raises
    ------
    ParameterError
        If the group is no process group, does not contain this process, or is redundant.
    """

    def __init__(self, network: Network, group: Any) -> None:
        self.sharded = isinstance(network, ShardedNetwork)
        self.group = getattr(network, "group", group)
        if self.sharded != (group is None) or not isinstance(self.group, ProcessGroup):
            raise ParameterError(
                "`group` must be a process group that contains this process, and None for a module "
                f"of fully_shard, got {group!r}. Pass torch.distributed.group.WORLD."
            )
        self.p = network.p
        self.rank, size = distributed.get_rank(self.group), distributed.get_world_size(self.group)
        self._room = -(-self.p // size)
        first, end = (min(self._room * k, self.p) for k in (self.rank, self.rank + 1))
        self.slices: list[tuple[int, int]] = getattr(network, "local_slices", [(first, end)])
        """First and last position, exclusive, of these weights in the vector of all weights."""
        self.size = sum(b - a for a, b in self.slices)
        """Number of weights that this process stores."""

    def __deepcopy__(self, memo: object) -> ProcessSplit:
        return self  # processes cannot be copied

    def check_equal(self, weights: Tensor, rows: Batch) -> None:
        """Check that all processes have the same rows, and the same weights unless sharded.

        Raises
        ------
        ParameterError
            In all processes.
        """
        arrays = rows.tensors if self.sharded else [weights, *rows.tensors]
        found = self.gathered([fingerprint(each) for each in arrays])
        if any(each != found[0] for each in found):
            raise ParameterError(
                "all processes must begin with the same weights, and learn the same "
                "rows, got different ones. Call torch.manual_seed before the module is "
                "created, and pass all rows to each process."
            )

    def part(self, array: Tensor) -> Tensor:
        """The rows of an array (p, …) that this process stores; those of a sharded module are."""
        return array if self.sharded else array[slice(*self.slices[0])]

    def within(self, variance: Callable[[Tensor], Any], G: Tensor) -> Any:
        """Variances for gradients G (p, n), summed over all weights."""
        with linalg.split_over(self):
            return variance(self.part(G))

    def whole(self, part: Tensor) -> Tensor:
        """The inverse of :meth:`part` for a vector, in all processes."""
        if self.sharded:
            return part
        padded = part.new_zeros(self._room)
        padded[: len(part)] = part
        found = part.new_empty(self._room * distributed.get_world_size(self.group))
        distributed.all_gather(list(found.split(self._room)), padded, group=self.group)
        return found[: self.p]

    def add(self, *arrays: Any) -> tuple[Any, ...]:
        """Each small array, added up over all processes in one exchange."""
        tensors = [torch.as_tensor(each) for each in arrays]
        device = max((each.device for each in tensors), key=lambda device: device.type != "cpu")
        flat = torch.cat([each.reshape(-1).to(device, torch.float64) for each in tensors])
        distributed.all_reduce(flat, group=self.group)
        parts = zip(flat.split([each.numel() for each in tensors]), tensors, strict=True)
        return tuple(linalg.small(part.reshape(each.shape)) for part, each in parts)

    def gathered(self, item: object) -> list[Any]:
        """A small object of each process, in all processes; waits for all of them."""
        items: list[Any] = [None] * distributed.get_world_size(self.group)
        distributed.all_gather_object(items, item, group=self.group)
        return items


class _ShardedFunction(Function):
    """f(x; w) at the module's own weights, which FSDP2 gathers layer by layer."""

    def reshard(self) -> None:
        """Free the weights that FSDP2 gathered."""
        for each in self._layers:
            if isinstance(each, FSDPModule):
                each.reshard()

    def _given(self, weights: Any, rows: Batch) -> Any:
        del weights
        try:
            with evaluation_mode(self._layers):
                return self.module(*rows.args, **rows.kwargs)
        finally:
            if not torch.is_grad_enabled():
                self.reshard()

    def outputs_twice(self, rows: Batch) -> tuple[Tensor, Tensor]:
        """Return outputs of two calls."""
        return self.outputs(rows), self.outputs(rows)


class ShardedNetwork(Network):
    """A module of FSDP2 as a function of the weights that this process stores.

    Its gradients are computed output by output, each with one forward and one backward pass.

    Parameters
    ----------
    module : torch.nn.Module
        Module of ``fully_shard``.
    *more
        As of :class:`~onepass.nn.module.Network`.
    **options
        As of :class:`~onepass.nn.module.Network`.

    Raises
    ------
    ParameterError
        If the parameters that learn are not split over one group of processes, or are in half
        precision.
    """

    function_class = _ShardedFunction
    _function: _ShardedFunction

    def __init__(self, module: torch.nn.Module, *more: Any, **options: Any) -> None:
        super().__init__(module, *more, **options)
        found = {
            (each.device_mesh, each.placements) if isinstance(each, DTensor) else None
            for each in self.parameters
        }
        placed = next(iter(found))
        if len(found) > 1 or placed is None or placed[1] != (Shard(0),) or self.dtype.itemsize < 4:
            raise ParameterError(
                "the parameters that learn must be float32 or float64, and all be "
                "split along their first axis over one group of processes, got "
                f"{sorted(map(str, found))} of {self.dtype}. Apply fully_shard to the "
                "whole module and to its layers, over a mesh of one dimension."
            )
        self.group = placed[0].get_group()

    @property
    def local_slices(self) -> list[tuple[int, int]]:
        """First and last position, exclusive, of the weights of this process, by parameter."""
        found = []
        rank, size = distributed.get_rank(self.group), distributed.get_world_size(self.group)
        for each, whole in zip(self.parameters, self.slices.values(), strict=True):
            a_row = each.numel() // max(len(each), 1)
            first = whole.start + min(-(-len(each) // size) * rank, len(each)) * a_row
            found.append((first, first + each.to_local().numel()))
        return found

    def weights(self) -> Tensor:
        """Return a copy of the weights of this process."""
        return torch.cat([each.detach().to_local().reshape(-1) for each in self.parameters])

    @synchronized
    def set_weights(self, w: Any) -> None:
        """Write the weights of this process into the module."""
        local = [each.detach().to_local() for each in self.parameters]
        for each, part in zip(local, w.split([each.numel() for each in local]), strict=True):
            each.copy_(part.view(each.shape))

    def is_linear(self, x: RowsLike) -> bool:
        """Return False: linearity is not tested."""
        del x
        return False

    @synchronized
    def jacobian(
        self, x: RowsLike, out: Tensor | None = None, c: int | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return the outputs (n, c), and the columns of J (n·c, p) of this process.

        Rows of J that are not finite in any process are nan in all of them.
        """
        del out
        rows, outputs, J = self.prepare(x), [], []
        with torch.inference_mode(mode=False), self._function.gradient_context(rows):
            for row in rows:
                k, width = 0, 1
                while k < width:
                    with self._fresh_gradients():
                        found = self._function({}, row)
                        width = found.shape[1]
                        refuse_width(width, c or width)
                        found[0, k].backward()
                        J.append(torch.cat([_gradient(each) for each in self.parameters]))
                    k += 1
                outputs.append(found.detach())
        matrix = torch.stack(J)
        bad = (~matrix.isfinite().all(dim=1)).double()
        distributed.all_reduce(bad, group=self.group)
        matrix[bad > 0] = torch.nan
        return torch.cat(outputs), matrix

    @contextmanager
    def _fresh_gradients(self) -> Iterator[None]:
        """Context in which no parameter has a gradient; restores those of the caller."""
        stored = [(each, each.grad) for each in self.module.parameters()]
        try:
            for each, _ in stored:
                each.grad = None
            yield
        finally:
            self._function.reshard()
            for each, gradient in stored:
                each.grad = gradient


def _gradient(parameter: Any) -> Tensor:
    """Return the gradient of the weights of one parameter that this process stores."""
    found = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
    return found.detach().to_local().reshape(-1)
