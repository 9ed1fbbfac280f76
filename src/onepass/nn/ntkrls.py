"""NTK-RLS: recursive least squares for a network linearised at each row, with forgetting.

For rows whose linearisations are f_{k|k−1}(w) = f_k(w_{k−1}) + ∇f_k(w_{k−1})ᵀ (w − w_{k−1}),

    w_i = argmin over w of  Σ_k λ^(i−k) (y_k − f_{k|k−1}(w))² + λⁱ (w − w₀)ᵀ Π (w − w₀)      (1)

([1] (12)) is solved by [1] (13), with P₀ = Π⁻¹, g = ∇f_i(w_{i−1}) and e = y_i − f_i(w_{i−1}):

    w_i = w_{i−1} + P g e / (λⁱ + gᵀ P g),     P ← P − P g gᵀ P / (λⁱ + gᵀ P g)              (2)

λⁱ underflows: 0.98ⁱ at row 37,000. With P = λ^(i−1) P̃ before row i, (2) is

    w_i = w_{i−1} + P̃ g e / (λ + gᵀ P̃ g),     P̃ ← (P̃ − P̃ g gᵀ P̃ / (λ + gᵀ P̃ g)) / λ        (3)

where λ^(i−1) cancels, and P = λⁱ P̃. This module implements (3). In the limit λ = 0 each row is
fitted exactly without changing predictions on past rows: ORFit with unlimited memory ([1] Theorem
5), and P̃ is not divided by λ. A row with c outputs has noise λ I_c, and P̃ is divided by λ once.

P̃ grows as λ⁻ⁱ in unexcited directions, since (1) also discounts the prior. Above 10¹² (or 1000
times the prior, if that is larger), (3) also adds a little information in all directions, which
bounds P̃. Persistently excited directions never reach that bound.
Cost of a step: c backward passes and O(p k) time, O(p k) memory, for k gradients so far, at most p.

[1] Y. Min, K. Ahn, N. Azizan, "One-Pass Learning via Bridging Orthogonal Gradient Descent and
    Recursive Least-Squares", CDC 2022; section VI.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from torch import Tensor
from torch.nn import Module

from onepass import linalg, validation
from onepass.errors import ParameterError, public
from onepass.nn.kalman import Filter, FilterStep, PosteriorCovariance
from onepass.nn.losses import Loss
from onepass.nn.saving import register

_FADED = 1e-3  # min weight of a row within one block


@register
class NTKRLS(Filter):
    """Recursive least squares of a network, with exponential forgetting (NTK-RLS).

    Parameters
    ----------
    module : torch.nn.Module
        Updated in place. Evaluated in evaluation mode.
    ridge : float, default=1.0
        Π = ridge · I, > 0: the penalty on the distance from the initial weights. The penalty is
        discounted like the rows.
    forgetting : float, default=1.0
        λ in [0, 1]: a row that is k rows old has weight λᵏ. With 1 nothing is forgotten; 0 fits
        each row exactly without changing predictions on past rows, which is ORFit with unlimited
        memory.
    loss : {"squared", "one_hot", "cross_entropy"} or callable, default="squared"
        ``"squared"`` for regression. For classes 0 … c − 1, ``"one_hot"`` (regression on
        indicators, as in the papers) or ``"cross_entropy"`` (Gauss–Newton approximation; requires
        forgetting > 0).
    learns : str or sequence of str, default="all"
        Parameters to train: ``"all"``, ``"last"`` (layer), names or patterns of names.
    block_update : bool, default=False
        Whether to linearise all rows of one call at the same weights, before the first of them.

    Attributes
    ----------
    network : Network
        The module as a function of one flat weight vector.
    posterior_ : PosteriorCovariance
        P̃ of (3), the covariance of the weights for targets of noise variance 1.
    inconsistent_rows_ : int
        With forgetting 0, number of rows that lie in the span of past rows and contradict them;
        these rows are not learned.
    rows_seen_, rows_refused_ : int
        Number of rows received, and of rows rejected because errors or gradients were not finite.

    Raises
    ------
    ParameterError, TypeMismatchError
        If an argument or the module is invalid.

    Warns
    -----
    MemoryFullWarning
        Once, when rows have determined all weights, with forgetting 0.

    Examples
    --------
    >>> import torch
    >>> import onepass as op
    >>> net = op.nn.NTKRLS(torch.nn.Linear(1, 1, bias=False).double(), 1e-9, forgetting=0.5)
    >>> X, y = torch.ones(3, 1).double(), torch.tensor([1.0, 2.0, 4.0])
    >>> round(float(net.learn(X, y).predict(X[:1])), 4)  # (1 + 2·2 + 4·4) / (1 + 2 + 4)
    3.0
    """

    @public
    def __init__(
        self,
        module: Module,
        ridge: float = 1.0,
        forgetting: float = 1.0,
        *,
        loss: Loss = "squared",
        learns: str | Sequence[str] = "all",
        block_update: bool = False,
    ) -> None:
        self.ridge = validation.in_range(ridge, "ridge", above=0.0)
        self.forgetting = validation.in_range(forgetting, "forgetting", low=0.0, high=1.0)
        if loss not in {"squared", "one_hot"} and not self.forgetting:
            raise ParameterError(
                f"`forgetting` must be above 0 with loss={loss!r}, got 0. No finite "
                "outputs fit a class exactly: use forgetting=1.0, or loss='one_hot'."
            )
        super().__init__(
            module,
            prior=1.0 / self.ridge,
            noise=1.0 if self.forgetting else 0.0,
            loss=loss,
            learns=learns,
            block_update=block_update,
        )

    def _filter_step(
        self, belief: PosteriorCovariance, w: Tensor, e: Tensor, J: Tensor
    ) -> FilterStep:
        (n, c), against = e.shape, 0
        limit = max(1e12, 1e3 / self.ridge)
        lam, now = self.forgetting, w
        width = max(int(math.log(_FADED) / math.log(lam)), 1) if 0.0 < lam < 1.0 else n
        for i in range(0, n, width):
            few = J[i * c : (i + width) * c]
            error = e[i : i + width]
            if i:  # J is unchanged: all rows of a block are linearised at its start
                moved = linalg.inner(few.T, (now - w)[:, None])
                error = error - linalg.like(moved, e).reshape(error.shape)
            noise = np.repeat(lam ** np.arange(1.0, len(error) + 1.0), c)
            step = belief.learn(now, few.T, error.reshape(-1), noise, group=c)  # (3)
            against += step.inconsistent_rows
            now, belief = step.w, step.memory
            belief = belief.discounted(lam ** len(error), limit) if lam else belief
        return FilterStep(belief, now, against)
