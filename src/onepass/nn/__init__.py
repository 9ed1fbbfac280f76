"""One-pass learning for any torch.nn.Module (extra ``torch``).

=========== =============================================== =====================================
Learner     Algorithm                                       Memory
=========== =============================================== =====================================
ORFit       fit each row in one step, orthogonally to the   m directions
            m principal directions of past gradients
OneStepSGD  fit each row in one step                        none
EKF         extended Kalman filter                          covariance in the span of all
                                                            gradients
NTKRLS      recursive least squares with forgetting         as EKF
LoFi        low-rank Kalman filter for long noisy streams   m directions and a diagonal
OGD         gradient descent orthogonal to past gradients   m directions
=========== =============================================== =====================================

All learners have the methods ``learn(x, y)``, ``predict(x)`` and ``test_then_train(x, y)``, and
update the module in place. ``save(path)`` writes a learner to a file, ``load(path, module)`` reads
it. ``optim`` wraps torch optimizers for custom training loops.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from onepass.errors import calling, import_extra

if TYPE_CHECKING:
    from onepass.nn import optim as optim
    from onepass.nn.ekf import EKF as EKF
    from onepass.nn.lofi import LoFi as LoFi
    from onepass.nn.ntkrls import NTKRLS as NTKRLS
    from onepass.nn.ogd import OGD as OGD
    from onepass.nn.orfit import OneStepSGD as OneStepSGD
    from onepass.nn.orfit import ORFit as ORFit
    from onepass.nn.saving import load as load

# Public name -> submodule; imported, together with torch, on first access.
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


if not TYPE_CHECKING:  # otherwise every name would be valid for type checkers

    def __getattr__(name: str) -> Any:
        if name == "optim":
            return import_module("onepass.nn.optim")
        if name not in _PUBLIC:
            raise AttributeError(f"module 'onepass.nn' has no attribute {name!r}")
        with calling(f"op.nn.{name}"):
            import_extra("torch", extra="torch")
        if name == "load":
            for module in _PUBLIC.values():  # importing a submodule registers its learners
                import_module(f"onepass.nn.{module}")
        return getattr(import_module(f"onepass.nn.{_PUBLIC[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*_PUBLIC, "optim"])
