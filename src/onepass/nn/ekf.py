r"""EKF: the extended Kalman filter of a network's weights, with noise R >= 0.

The weights are a constant or random-walk state, and each row is a measurement of it [1], [2]:

    w_k = w₀ + γ (w_{k−1} − w₀) + N(0, q I),     y_k = f(x_k; w_k) + N(0, R I)              (1)

With f and its gradients G = ∇f (p × c) at w = w_{k|k−1}, before the target is known,

    L = P G (Gᵀ P G + R)⁻¹,     w ← w + L (y − f),     P ← P − L Gᵀ P                       (2)
    w ← w₀ + γ (w − w₀),        P ← γ² P + q I         before the next row                 (3)

The appendix of [1] prints (2) as

    L_k = Q_{k−1} ∇f_k / (f_kᵀ Q_{k−1} ∇f_k + R),      Q_k = [I − L_k f_kᵀ] Q_{k−1}

This contains three errors. The denominator and Q_k must contain ∇f_k instead of f_k: the innovation
y − f_k(w) has the variance ∇fᵀ Q ∇f + R, and f_k is a scalar, so that the printed equation scales Q
instead of reducing it along one direction. The state equation ẇ = 0 is that of continuous time; for
discrete rows it is w_k = w_{k−1}. The filter with R = 0 equals ORFit only if Q₀ is a multiple of I,
which [1] does not state, and nothing is added to Q (q = 0, γ = 1).

P is represented exactly in the span of the gradients (:mod:`onepass.nn.kalman`), not as p × p.
Cost of a step: c backward passes, O(p k) and, with process noise, O(k³) time, and O(p k) memory,
for k = n c gradients so far, at most p. For long streams see :class:`~onepass.nn.lofi.LoFi`.

[1] Y. Min, K. Ahn, N. Azizan, "One-Pass Learning via Bridging Orthogonal Gradient Descent and
    Recursive Least-Squares", extended version; appendix on the extended Kalman filter.
[2] S. Singhal, L. Wu, "Training multilayer perceptrons with the extended Kalman algorithm", 1989.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from torch import Tensor
from torch.nn import Module

from onepass.nn.kalman import FilterStep, PosteriorCovariance, RandomWalkFilter
from onepass.nn.losses import Loss
from onepass.nn.saving import register


@register
class EKF(RandomWalkFilter):
    """Extended Kalman filter over the weights of a network.

    Parameters
    ----------
    module : torch.nn.Module
        Updated in place. Evaluated in evaluation mode.
    noise : float, default=1.0
        R >= 0, the noise variance of a target. 0 fits each row exactly, which is ORFit with
        unlimited memory; 1 is the variance of a categorical target with "cross_entropy".
    process_noise : float, default=0.0
        q >= 0, the variance added to each weight after each row. Use 0 for a stationary stream, and
        a larger value to forget past rows and track drift.
    prior : float, default=1.0
        Variance of each weight before the first row, > 0. noise / prior is the ridge.
    decay : float, default=1.0
        γ in (0, 1], the factor by which weights decay towards their initial values after each row.
        With ``process_noise = (1 − decay²) · prior`` the prior covariance is stationary.
    loss : {"squared", "one_hot", "cross_entropy"} or callable, default="squared"
        ``"squared"`` for regression. For classes 0 … c − 1, ``"one_hot"`` (regression on
        indicators) or ``"cross_entropy"`` (Gauss–Newton approximation; requires noise > 0).
    learns : str or sequence of str, default="all"
        Parameters to train: ``"all"``, ``"last"`` (layer), names or patterns of names.
    block_update : bool, default=False
        Whether to linearise all rows of one call at the same weights, before the first of them; the
        process noise of all rows is then added after the block.

    Attributes
    ----------
    network : Network
        The module as a function of one flat weight vector.
    posterior_ : PosteriorCovariance
        The covariance of the weights for the next row.
    inconsistent_rows_ : int
        With noise 0, number of rows that lie in the span of past rows and contradict them; these
        rows are not learned.
    rows_seen_, rows_refused_ : int
        Number of rows received, and of rows rejected because errors or gradients were not finite.

    Raises
    ------
    ParameterError, TypeMismatchError
        If an argument or the module is invalid.

    Warns
    -----
    MemoryFullWarning
        Once, when rows without noise have determined all weights.

    Examples
    --------
    >>> import torch
    >>> import onepass as op
    >>> _ = torch.manual_seed(0)
    >>> net = op.nn.EKF(torch.nn.Linear(2, 1, bias=False).double(), noise=0.25)
    >>> X = torch.randn(500, 2).double()
    >>> y = X @ torch.tensor([1.0, -2.0]).double() + 0.5 * torch.randn(500).double()
    >>> prediction, std = net.learn(X, y).predict(torch.tensor([[1.0, 0.0]]), return_std=True)
    >>> bool((prediction - 1.0).abs() < 0.1), round(float(std), 2)
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
        loss: Loss = "squared",
        learns: str | Sequence[str] = "all",
        block_update: bool = False,
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
        )

    def _measurement_update(
        self, belief: PosteriorCovariance, w: Tensor, e: Tensor, J: Tensor
    ) -> FilterStep:
        noise = np.full(e.numel(), self.noise)
        step = belief.learn(w, J.T, e.reshape(-1), noise, group=e.shape[1])  # (2)
        return FilterStep(step.memory, step.w, step.inconsistent_rows)
