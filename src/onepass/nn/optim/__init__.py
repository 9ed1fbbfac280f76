"""Optimizers of torch whose steps leave past answers alone: for a training loop of your own.

================== ======================================== ==================================
OrthogonalGradient steps orthogonal to gradients of rows    m directions of all weights
                   of past tasks (OGD)
GPM                steps of each layer orthogonal to what   directions of each layer's inputs
                   it was given in past tasks
================== ======================================== ==================================

Each wraps any optimizer of torch, and is one: ``zero_grad``, ``step``, ``state_dict``, schedulers.
``after_task(loader)`` takes in what must not be moved any more.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from onepass.errors import import_extra

if TYPE_CHECKING:
    from onepass.nn.optim.gpm import GPM as GPM
    from onepass.nn.optim.orthogonal import OrthogonalGradient as OrthogonalGradient

# A name and the file it comes from: loaded, and torch with it, when first asked for.
_PUBLIC = {"GPM": "gpm", "OrthogonalGradient": "orthogonal"}

__all__ = ["GPM", "OrthogonalGradient"]


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'onepass.nn.optim' has no attribute {name!r}")
    import_extra("torch", extra="torch", where=f"op.nn.optim.{name}")
    return getattr(import_module(f"onepass.nn.optim.{_PUBLIC[name]}"), name)


def __dir__() -> list[str]:
    return sorted(_PUBLIC)
