"""Baselines: what one-pass learning of networks is compared with (extra ``torch``).

======== ================================================================ ====================
SGD      stochastic gradient descent in one pass, with momentum           nothing, or velocity
EWC      the same, drawn back to what mattered for earlier tasks          3 numbers a weight
Replay   the same, over some past rows as well                            rows
Joint    many passes over all rows: what could be had without one pass    all rows
======== ================================================================ ====================

All have the verbs ``learn(x, y)``, ``predict(x)`` and ``after_task()``, and say with ``nbytes``
what they keep beside the weights. Each is one file with its paper and its equation.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from onepass.extras import need

if TYPE_CHECKING:
    from onepass.baselines.ewc import EWC as EWC
    from onepass.baselines.joint import Joint as Joint
    from onepass.baselines.replay import Replay as Replay
    from onepass.baselines.sgd import SGD as SGD

# A name and the file it comes from: loaded, and torch with it, when first asked for.
_PUBLIC = {"EWC": "ewc", "SGD": "sgd", "Joint": "joint", "Replay": "replay"}

__all__ = ["EWC", "SGD", "Joint", "Replay"]


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'onepass.baselines' has no attribute {name!r}")
    need("torch", extra="torch", where=f"op.baselines.{name}")
    return getattr(import_module(f"onepass.baselines.{_PUBLIC[name]}"), name)


def __dir__() -> list[str]:
    return sorted(_PUBLIC)
