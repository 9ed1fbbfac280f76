"""Automatic forgetting: a mixture of forgetting factors, weighted by their prequential errors.

K experts learn the same rows, one without forgetting and K − 1 with half-lives from 32,768 down to
8 rows (:class:`~onepass.forgetting.exponential.Bounded`), in one vector
(native/core/mixture.c). Each output is predicted by a
weighted mean of the experts. With the errors e_k of a row of weight s before it is learned,

    v = Σ ρ^(n−i) min(s_i e_i², 1000 v_i) / Σ ρ^(n−i)    ρ = 1 − 1/200                     (1)
    ℓ_k = ½ min(s e_k² / v, 16)                                                             (2)
    π_k ← ((1 − α) π_k + α / K) exp(−η ℓ_k), normalised,   η = ½, α = 0.005                    (3)

for each output: exponential weights with a fixed share ([1], Fixed Share), so that the mixture
follows a change of the best factor. In (1), e_i is the error of the leading expert, and v_i the
value before row i: after an outlier, v is soon that of the errors again. The first 20 rows,
which hardly determine the weights, are not counted. v makes the losses independent of units and of
the scale of the row weights; in it e_i² counts as at least 1e-16 y_i², so that rounding errors do
not decide between exact fits. For class indicators, e_k is the error of the prediction limited to
[0, 1]: a score beyond the indicator of the right class is no error. Predictions remain linear in
the row. Their variance and the covariance of the weights are those of a mixture with noise v,

    Var y = v (1 + 1/ν + (x − x̄)ᵀ P₁ (x − x̄)) + Σ_k π_k (f_k(x) − f(x))²                    (4)
    cov(w) = Σ_k π_k (v P_k + (w_k − w)(w_k − w)ᵀ)                                          (5)

where P₁ and ν are those of all rows, without forgetting. Cost: K times that of one factor.

[1] M. Herbster, M. Warmuth, "Tracking the best expert", Machine Learning 32, 1998.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from onepass.memory.vector import Fading
from onepass.types import Array

FACTORS = (1.0, *(2.0 ** (-1.0 / rows) for rows in (32768, 8192, 2048, 512, 128, 32, 8)))
"""The forgetting factors of the experts; the first one does not forget."""


@dataclass(frozen=True)
class Auto:
    """Forgetting at a rate that follows the stream: a mixture of eight forgetting factors.

    Its experts and weights are described in :mod:`onepass.forgetting.auto`.

    Examples
    --------
    >>> import numpy as np, onepass as op
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(4000, 3))
    >>> drifting = np.cumsum(0.1 * rng.normal(size=(4000, 3)), axis=0)
    >>> y = (X * drifting).sum(axis=1) + rng.normal(size=4000)
    >>> model = op.RLSRegressor(forgetting="auto").fit(X, y)
    >>> round(model.forgetting_factor_, 3)
    0.917
    """

    clock: ClassVar[None] = None
    additive: ClassVar[bool] = False
    stores_rows: ClassVar[bool] = False
    fading: ClassVar[Fading] = Fading(level=0.1, mixture=FACTORS)

    def fades(self, time: Array | None, last: object) -> None:
        """Return None: the past fades by rows."""
