"""Baselines for one-pass learning of networks (extra ``torch``).

The last column is the state besides the weights.

======== =================================================================== ====================
SGD      stochastic gradient descent in one pass, with momentum              none, or velocity
EWC      SGD with a penalty on weights important by the Fisher information   3 numbers per weight
SI       SGD with a penalty on weights that lowered the loss of past tasks   3 numbers per weight
LwF      SGD with distillation from the network before the task              1 number per weight
Replay   SGD on the batch and on stored past rows                            rows
AGEM     SGD with steps that do not increase the loss on stored rows         rows
DERPP    Replay with the former outputs of stored rows                       rows, outputs
ICaRL    nearest mean of stored exemplars of each class                      rows
DEN      a network that is partly retrained, grows and splits units          1 number per unit
Joint    multi-pass SGD over all rows: an upper bound                        all rows
======== =================================================================== ====================

All have the methods ``learn(x, y)``, ``predict(x)`` and ``after_task()``. ``nbytes`` is the size of
the state besides the weights, ``rows_stored_`` the number of stored rows and ``rows_repeated_`` the
number of visits to rows beyond the first. Each baseline is one file with its paper and equations.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from onepass.errors import import_extra

if TYPE_CHECKING:
    from onepass_experiments.baselines.agem import AGEM as AGEM
    from onepass_experiments.baselines.den import DEN as DEN
    from onepass_experiments.baselines.derpp import DERPP as DERPP
    from onepass_experiments.baselines.ewc import EWC as EWC
    from onepass_experiments.baselines.icarl import ICaRL as ICaRL
    from onepass_experiments.baselines.joint import Joint as Joint
    from onepass_experiments.baselines.lwf import LwF as LwF
    from onepass_experiments.baselines.replay import Replay as Replay
    from onepass_experiments.baselines.sgd import SGD as SGD
    from onepass_experiments.baselines.si import SI as SI

# name -> module; the module, and with it torch, is imported on first access
_PUBLIC = {
    "AGEM": "agem",
    "DEN": "den",
    "DERPP": "derpp",
    "EWC": "ewc",
    "SGD": "sgd",
    "SI": "si",
    "ICaRL": "icarl",
    "Joint": "joint",
    "LwF": "lwf",
    "Replay": "replay",
}

__all__ = ["AGEM", "DEN", "DERPP", "EWC", "SGD", "SI", "ICaRL", "Joint", "LwF", "Replay"]


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'onepass_experiments.baselines' has no attribute {name!r}")
    import_extra("torch", extra="torch")
    return getattr(import_module(f"onepass_experiments.baselines.{_PUBLIC[name]}"), name)


def __dir__() -> list[str]:
    return sorted(_PUBLIC)
