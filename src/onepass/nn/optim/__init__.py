"""Wrappers of torch optimizers that preserve predictions on past tasks, for custom training loops.

================== ======================================== ==================================
Optimizer          Steps are orthogonal to                  Memory
================== ======================================== ==================================
OrthogonalGradient gradients of rows of past tasks (OGD)    m directions of all weights
GPM                inputs of each layer in past tasks       directions of each layer's inputs
================== ======================================== ==================================

Each wraps any torch optimizer and is itself an optimizer, with ``zero_grad``, ``step``,
``state_dict`` and support for schedulers. ``after_task(loader)`` adds a finished task to the
memory.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from onepass.errors import calling, import_extra

if TYPE_CHECKING:
    from onepass.nn.optim.gpm import GPM as GPM
    from onepass.nn.optim.orthogonal import OrthogonalGradient as OrthogonalGradient

# Public name -> submodule; imported, together with torch, on first access.
_PUBLIC = {"GPM": "gpm", "OrthogonalGradient": "orthogonal"}

__all__ = ["GPM", "OrthogonalGradient"]


if not TYPE_CHECKING:  # otherwise every name would be valid for type checkers

    def __getattr__(name: str) -> Any:
        if name not in _PUBLIC:
            raise AttributeError(f"module 'onepass.nn.optim' has no attribute {name!r}")
        with calling(f"op.nn.optim.{name}"):
            import_extra("torch", extra="torch")
        return getattr(import_module(f"onepass.nn.optim.{_PUBLIC[name]}"), name)


def __dir__() -> list[str]:
    return sorted(_PUBLIC)
