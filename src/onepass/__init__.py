"""onepass: learn a stream in one pass.

Every row is predicted, its answer is revealed, it is learned, and it is let go.
Memory is bounded, no row is stored, and what was learned before is kept.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from onepass import errors, memory
    from onepass.learners import ORFitClassifier, ORFitRegressor, RLSClassifier, RLSRegressor

# name -> the module it comes from; loaded when first asked for, so that help is quick
_PUBLIC: dict[str, str] = {
    "ORFitClassifier": "onepass.learners",
    "ORFitRegressor": "onepass.learners",
    "RLSClassifier": "onepass.learners",
    "RLSRegressor": "onepass.learners",
}
_ROOMS = ("errors", "memory")

__all__ = [*_PUBLIC, *_ROOMS]


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        return getattr(import_module(_PUBLIC[name]), name)
    if name in _ROOMS:
        return import_module(f"onepass.{name}")
    raise AttributeError(f"module 'onepass' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
