"""One-Step SGD for networks: each row fitted in one step, nothing kept.

    w ← w + G (GᵀG + r I)⁻¹ e                                                              (1)

ORFit with P = I ([1] section 5.1): the row is fitted, and past answers move as they may. With
noise r > 0 it is the normalised LMS filter.
Cost of a step: c backward passes.

[1] Y. Min, K. Ahn, N. Azizan, "One-Pass Learning via Bridging Orthogonal Gradient Descent and
    Recursive Least-Squares", extended version.
"""

from typing import Any, ClassVar

from onepass.memory import Nothing
from onepass.nn.learner import Learner
from onepass.nn.losses import LossName
from onepass.nn.orfit import ORFit

__all__ = ["OneStepSGD"]


class OneStepSGD(ORFit):
    """Each row fitted in one step, and nothing kept: ORFit without a memory ([1] section 5.1).

    With noise r > 0 it is the normalised LMS filter, for networks.

    Parameters
    ----------
    module : torch.nn.Module
        Learns in place.
    noise : float, default=0.0
        r >= 0, as in :class:`ORFit`.
    loss, learns, block_update, chunk
        As in :class:`ORFit`.

    Examples
    --------
    >>> import torch
    >>> import onepass as op
    >>> net = op.nn.OneStepSGD(torch.nn.Linear(2, 1))
    >>> x, y = torch.tensor([[1.0, 2.0]]), torch.tensor([3.0])
    >>> bool((net.learn(x, y).predict(x) - y).abs() < 1e-5)
    True
    """

    arguments: ClassVar[tuple[str, ...]] = Learner.arguments

    def __init__(
        self,
        module: Any,
        noise: float = 0.0,
        *,
        loss: LossName = "squared",
        learns: Any = "all",
        block_update: bool = False,
        chunk: int | None = None,
    ) -> None:
        super().__init__(
            module,
            Nothing(),
            noise,
            loss=loss,
            learns=learns,
            block_update=block_update,
            chunk=chunk,
        )
