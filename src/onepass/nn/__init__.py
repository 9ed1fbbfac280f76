"""Networks: any torch.nn.Module learns a stream in one pass (extra ``torch``).

=========== ============================================== ======================================
ORFit       fit each row in one step, orthogonally to      m directions
            the m principal directions of past gradients
OneStepSGD  fit each row in one step                       nothing
EKF         weigh each row by what is known already: the   a covariance, in the span
            extended Kalman filter                         of all gradients
NTKRLS      recursive least squares, with forgetting       the same
LoFi        the same filter for long noisy streams         m directions and a diagonal
OGD         steps of gradient descent, orthogonal          m directions
            to the gradients of rows before
=========== ============================================== ======================================

All have the verbs ``learn(x, y)``, ``predict(x)`` and ``test_then_train(x, y)``, and learn in the
module itself. ``save(path)`` and ``load(path, module)`` keep one in a file.
For training loops of your own, ``optim`` wraps optimizers of torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from onepass.errors import import_extra

if TYPE_CHECKING:
    from onepass.nn import optim as optim
    from onepass.nn.ekf import EKF as EKF
    from onepass.nn.lofi import LoFi as LoFi
    from onepass.nn.ntkrls import NTKRLS as NTKRLS
    from onepass.nn.ogd import OGD as OGD
    from onepass.nn.orfit import OneStepSGD as OneStepSGD
    from onepass.nn.orfit import ORFit as ORFit
    from onepass.nn.saving import load as load

# A name and the file it comes from: loaded, and torch with it, when first asked for.
_PUBLIC = {
    "EKF": "ekf",
    "LoFi": "lofi",
    "NTKRLS": "ntkrls",
    "OGD": "ogd",
    "ORFit": "orfit",
    "OneStepSGD": "orfit",
    "load": "saving",
}

__all__ = ["EKF", "NTKRLS", "OGD", "LoFi", "ORFit", "OneStepSGD", "load"]


def __getattr__(name: str) -> Any:
    if name == "optim":
        return import_module("onepass.nn.optim")
    if name not in _PUBLIC:
        raise AttributeError(f"module 'onepass.nn' has no attribute {name!r}")
    import_extra("torch", extra="torch", where=f"op.nn.{name}")
    if name == "load":
        for module in _PUBLIC.values():  # each registers its learners
            import_module(f"onepass.nn.{module}")
    return getattr(import_module(f"onepass.nn.{_PUBLIC[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*_PUBLIC, "optim"])
