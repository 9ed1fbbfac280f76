"""Scratch: how many rows of a Jacobian are made at once, for the memory beside them."""

from typing import Any

from torch.autograd.graph import saved_tensors_hooks

from onepass.nn.function import Function
from onepass.nn.inputs import Batch

__all__ = ["Scratch"]

_SCRATCH = 2**26
"""Bytes. Larger pieces are no quicker on a processor, which maps memory anew for them."""

_SCRATCH_ON_DEVICE = 2**28


class Scratch:
    """How many rows of a function's Jacobian are made at once.

    Parameters
    ----------
    function : Function
    chunk : int or None
        So many; None: as many as keep scratch memory within 64 MiB (256 MiB on an accelerator),
        and at least one.
    """

    def __init__(self, function: Function, chunk: int | None) -> None:
        self._function = function
        self._chunk = chunk
        self._held: int | None = None

    def at_once(self, rows: Batch) -> int:
        """How many rows of J fit the memory, with what the backward pass holds for each."""
        if self._chunk is not None:
            return self._chunk
        first = self._function.selection.parameters[0]
        if self._held is None:
            self._held = self._measured(rows[:1])
        scratch = _SCRATCH if first.device.type == "cpu" else _SCRATCH_ON_DEVICE
        a_row = self._held + self._function.selection.p * first.element_size()
        return int(max(1, scratch // max(1, a_row)))

    def _measured(self, row: Batch) -> int:
        """Bytes that a row's forward pass keeps for its backward pass, parameters aside."""
        weights = self._function.weights(derive=True)
        own = {each.untyped_storage().data_ptr() for each in weights.values()}
        held = 0

        def pack(tensor: Any) -> Any:
            nonlocal held
            if tensor.untyped_storage().data_ptr() not in own:
                held += tensor.numel() * tensor.element_size()
            return tensor

        with self._function.deriving(row), saved_tensors_hooks(pack, lambda tensor: tensor):
            self._function(weights, row)
        return held
