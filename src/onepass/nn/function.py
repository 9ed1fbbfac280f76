"""Function: a module as a pure function of rows and of the weights that learn.

The module is asked in evaluation mode with tensors put in the place of its parameters, so that
neither its parameters nor their ``grad``, flags or hooks take part. What it writes into buffers or
attributes while it answers is undone.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch.func import functional_call

from onepass.nn.answers import as_matrix, told
from onepass.nn.inputs import Batch
from onepass.nn.mode import evaluating
from onepass.nn.selection import Selection

__all__ = ["Function"]

_HOOKS = ("_forward_hooks", "_forward_pre_hooks")
_REGISTERED = {"_parameters", "_buffers", "_modules", "training"}


class Function:
    """f(x; w) of a module, row by row.

    Parameters
    ----------
    module : torch.nn.Module
    selection : Selection
        The parameters that learn.
    where : str
        The public call, for messages.
    """

    def __init__(self, module: Any, selection: Selection, where: str) -> None:
        self.module = module
        self.selection = selection
        self.where = where
        self.writes_buffers = False
        self.keeps = any(vars(each).get(hooks) for each in module.modules() for hooks in _HOOKS)
        """Whether the module, or a hook on it, keeps what it computes: not to be asked by vmap."""

    def weights(self, *, derive: bool = False) -> dict[str, Any]:
        """The weights that learn, by name: they share the parameters' memory, not their graph.

        Parameters
        ----------
        derive : bool, default False
            They require grad.
        """
        chosen = zip(self.selection.names, self.selection.parameters, strict=True)
        return {name: each.detach().requires_grad_(derive) for name, each in chosen}

    def __call__(self, weights: Mapping[str, Any], rows: Batch) -> Any:
        """Outputs of shape (n, c) at these weights; may be traced by torch.func."""
        state = self._state(weights)
        before = self._attributes() if self.keeps else {}
        try:
            with evaluating(self.module):
                given = functional_call(self.module, state, rows.args, rows.kwargs)
        finally:
            self._restore(before)
        return as_matrix(given, rows.n, self.where)

    def outputs(self, rows: Batch) -> Any:
        """Outputs of shape (n, c) at the present weights, without a derivative."""
        with torch.no_grad(), told(rows, self.where):
            return self(self.weights(), rows)

    def look(self, rows: Batch) -> Any:
        """Outputs, and note is taken of what the module writes while it answers.

        Parameters
        ----------
        rows : Batch
        """
        self.writes_buffers = True  # it writes into copies, until it is known that it does not
        state, before = self._state(self.weights()), self._attributes()
        lengths = {key: _length(value) for key, (_, value) in before.items()}
        try:
            with torch.no_grad(), told(rows, self.where), evaluating(self.module):
                given = functional_call(self.module, state, rows.args, rows.kwargs)
            self.keeps = self.keeps or any(
                key not in before or value is not before[key][1] or _length(value) != lengths[key]
                for key, (_, value) in self._attributes().items()
            )
        finally:
            self._restore(before)
        buffers = self.module.named_buffers()
        self.writes_buffers = not all(torch.equal(state[name], each) for name, each in buffers)
        return as_matrix(given, rows.n, self.where)

    def _state(self, weights: Mapping[str, Any]) -> dict[str, Any]:
        """All parameters, without their graph, and copies of buffers that are written."""
        state = {name: each.detach() for name, each in self.module.named_parameters()}
        state.update(weights)
        if self.writes_buffers:
            state.update({name: each.clone() for name, each in self.module.named_buffers()})
        return state

    def _attributes(self) -> dict[tuple[int, str], tuple[Any, Any]]:
        """Every plain attribute of every layer, with the layer that has it."""
        return {
            (id(layer), key): (layer, value)
            for layer in self.module.modules()
            for key, value in vars(layer).items()
            if key not in _REGISTERED
        }

    def _restore(self, before: dict[tuple[int, str], tuple[Any, Any]]) -> None:
        if not before:
            return
        for (at, key), (layer, _) in self._attributes().items():
            if (at, key) not in before:
                del vars(layer)[key]
        for (_, key), (layer, value) in before.items():
            vars(layer)[key] = value


def _length(value: Any) -> int:
    """How much a container holds: one that grows keeps what it is given."""
    return len(value) if isinstance(value, (list, dict, set)) else 0
