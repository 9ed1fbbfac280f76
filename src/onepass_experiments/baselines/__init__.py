"""Baselines: what one-pass learning of networks is compared with (extra ``torch``).

======== ================================================================ ====================
SGD      stochastic gradient descent in one pass, with momentum           nothing, or velocity
EWC      the same, drawn back to what mattered for earlier tasks          3 numbers a weight
SI       the same, drawn back to what lowered the loss of earlier tasks   3 numbers a weight
LwF      the same, and the network of before is heeded on the new rows    1 number a weight
Replay   the same, over some past rows as well                            rows
ICaRL    chosen rows of each class: the nearest of their means            rows
DEN      a network that is retrained in part, grows and splits units       a number a unit
Joint    many passes over all rows: what could be had without one pass    all rows
======== ================================================================ ====================

All have the verbs ``learn(x, y)``, ``predict(x)`` and ``after_task()``, and say with ``nbytes``
what they keep beside the weights, with ``rows_stored_`` how many rows, and with ``rows_repeated_``
how often a row was learned again. Each is one file with its paper and its equation.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from onepass.errors import import_extra

if TYPE_CHECKING:
    from onepass_experiments.baselines.den import DEN as DEN
    from onepass_experiments.baselines.ewc import EWC as EWC
    from onepass_experiments.baselines.icarl import ICaRL as ICaRL
    from onepass_experiments.baselines.joint import Joint as Joint
    from onepass_experiments.baselines.lwf import LwF as LwF
    from onepass_experiments.baselines.replay import Replay as Replay
    from onepass_experiments.baselines.sgd import SGD as SGD
    from onepass_experiments.baselines.si import SI as SI

# A name and the file it comes from: loaded, and torch with it, when first asked for.
_PUBLIC = {
    "DEN": "den",
    "EWC": "ewc",
    "SGD": "sgd",
    "SI": "si",
    "ICaRL": "icarl",
    "Joint": "joint",
    "LwF": "lwf",
    "Replay": "replay",
}

__all__ = ["DEN", "EWC", "SGD", "SI", "ICaRL", "Joint", "LwF", "Replay"]


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'onepass_experiments.baselines' has no attribute {name!r}")
    import_extra("torch", extra="torch", where=f"baselines.{name}")
    return getattr(import_module(f"onepass_experiments.baselines.{_PUBLIC[name]}"), name)


def __dir__() -> list[str]:
    return sorted(_PUBLIC)
