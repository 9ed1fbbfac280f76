r"""EKF: the extended Kalman filter of a network's weights, with noise R >= 0.

Weights are a state that stays, or wanders, and each row is a measurement of it [1], [2]:

    w_k = w₀ + γ (w_{k−1} − w₀) + N(0, q I),     y_k = f(x_k; w_k) + N(0, R I)              (1)

With f and its gradients G = ∇f (p × c) at w = w_{k|k−1}, before the answer is known,

    L = P G (Gᵀ P G + R)⁻¹,     w ← w + L (y − f),     P ← P − L Gᵀ P                       (2)
    w ← w₀ + γ (w − w₀),        P ← γ² P + q I         towards the next row                 (3)

The appendix of [1] prints (2) as

    L_k = Q_{k−1} ∇f_k / (f_kᵀ Q_{k−1} ∇f_k + R),      Q_k = [I − L_k f_kᵀ] Q_{k−1}

Three things are slips. In the denominator and in Q_k it is ∇f_k that must stand where f_k does: the
innovation y − f_k(w) has the variance ∇fᵀ Q ∇f + R, and f_k is a number, so that as printed Q would
be scaled and not reduced along a direction. ẇ = 0 is the state equation of continuous time, where
rows come one by one: w_k = w_{k−1}. And that the filter with R = 0 is ORFit is true if Q₀ = I, or
any multiple of it, and nothing is added to Q (q = 0, γ = 1); Q₀ is not named.

P is kept as it is in the span of the gradients, exactly (:mod:`onepass.nn.kalman`), never p × p.
Cost of a step: c backward passes, O(p k) and, with process noise, O(k³) time, and O(p k) memory,
for k = n c gradients so far, at most p. For long streams see :class:`~onepass.nn.lofi.LoFi`.

[1] Y. Min, K. Ahn, N. Azizan, "One-Pass Learning via Bridging Orthogonal Gradient Descent and
    Recursive Least-Squares", extended version; appendix on the extended Kalman filter.
[2] S. Singhal, L. Wu, "Training multilayer perceptrons with the extended Kalman algorithm", 1989.
"""

from collections.abc import Sequence

import numpy as np
from torch import Tensor
from torch.nn import Module

from onepass.nn.kalman import PosteriorCovariance, RandomWalkFilter, Taken
from onepass.nn.losses import LossName
from onepass.nn.saving import register

__all__ = ["EKF"]


@register
class EKF(RandomWalkFilter):
    """Extended Kalman filter: rows weighed by what is known already, and how sure it is.

    Parameters
    ----------
    module : torch.nn.Module
        Learns in place. It is asked as in evaluation mode.
    noise : float, default=1.0
        R >= 0, the variance of an answer, in squares of its unit. 0 fits each row exactly, which is
        ORFit without a limit; with "cross_entropy" 1 is the variance that a class has.
    process_noise : float, default=0.0
        q >= 0, the variance that each weight gains from row to row: 0 for a truth that stays; above
        0 the past counts less and less, and the filter follows a truth that moves.
    prior : float, default=1.0
        Variance of each weight before the first row, > 0. noise / prior is the ridge.
    decay : float, default=1.0
        γ in (0, 1]: by so much weights keep their distance to where they began. With
        ``process_noise = (1 − decay²) · prior`` what is known before a row stays as it is.
    loss : {"squared", "one_hot", "cross_entropy"}, default="squared"
        ``"squared"`` for numbers; for classes 0 … c − 1 ``"one_hot"``, regression of indicators, or
        ``"cross_entropy"`` by its Gauss–Newton form, with noise > 0.
    learns : str or sequence of str, default="all"
        Which parameters learn: ``"all"``, ``"last"`` (layer), names or patterns of names.
    block_update : bool, default=False
        Whether rows given together are linearised together, at the weights before all of them, and
        their time passes after them.
    chunk : int, optional
        How many rows of a Jacobian are computed at once; by default as many as fit 64 MiB.

    Attributes
    ----------
    network : Network
        The module as a function of one vector of weights.
    posterior_ : Belief
        The covariance of the weights for the next row.
    inconsistent_rows_ : int
        With noise 0, rows in the span of the past that disagreed with it; the past won.
    rows_seen_, rows_refused_ : int
        Rows given, and those left out because their errors or gradients were not finite.

    Raises
    ------
    ParameterError, TypeMismatchError
        If an argument or the module is none of these.

    Warns
    -----
    MemoryFullWarning
        Once, when rows without noise have settled all weights.

    Examples
    --------
    >>> import torch
    >>> import onepass as op
    >>> _ = torch.manual_seed(0)
    >>> net = op.nn.EKF(torch.nn.Linear(2, 1, bias=False).double(), noise=0.25)
    >>> X = torch.randn(500, 2).double()
    >>> y = X @ torch.tensor([1.0, -2.0]).double() + 0.5 * torch.randn(500).double()
    >>> said, std = net.learn(X, y).predict(torch.tensor([[1.0, 0.0]]), return_std=True)
    >>> bool((said - 1.0).abs() < 0.1), round(float(std), 2)
    (True, 0.02)
    """

    def __init__(
        self,
        module: Module,
        noise: float = 1.0,
        process_noise: float = 0.0,
        prior: float = 1.0,
        decay: float = 1.0,
        *,
        loss: LossName = "squared",
        learns: str | Sequence[str] = "all",
        block_update: bool = False,
        chunk: int | None = None,
    ) -> None:
        super().__init__(
            module,
            prior=prior,
            noise=noise,
            process_noise=process_noise,
            decay=decay,
            loss=loss,
            learns=learns,
            block_update=block_update,
            chunk=chunk,
        )

    def _measured(self, belief: PosteriorCovariance, w: Tensor, e: Tensor, J: Tensor) -> Taken:
        noise = np.full(e.numel(), self.noise)
        step = belief.learn(w, J.T, e.reshape(-1), noise, group=e.shape[1])  # (2)
        return Taken(step.memory, step.w, step.inconsistent_rows)
