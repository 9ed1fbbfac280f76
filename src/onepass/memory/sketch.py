"""Sketch: Frequent Directions of all gradients so far, none of which is overestimated.

:class:`~onepass.memory.principal.Principal` retains the m largest singular values unchanged: a
large direction that occurred once retains its singular value, and a recurring direction below the
m-th singular value is dropped each time. Here each step that drops a direction also subtracts its
squared singular value from the retained ones ([1], Algorithm 2.1 with ℓ = m + 1 rows):

    Σ̃, Ũ of all m + 1 directions,      δ_t = σ̃²_{m+1}                                       (1)
    σ_j² ← σ̃_j² − δ_t,  j = 1 … m                                                            (2)

so that new directions can enter, also in a stream that drifts. With A the raw gradients as rows,
and B = Σ Uᵀ the retained part ([1] Theorem 1.1, k < m + 1),

    0 ≤ AᵀA − BᵀB ≤ Σ_t δ_t · I,      Σ_t δ_t ≤ ‖A − A_k‖²_F / (m + 1 − k)                   (3)

The projector is that of Principal: P = I − U Uᵀ with noise R = 0, or with noise r > 0,
P = I − U diag(σ² / (σ² + r)) Uᵀ with the σ of (2): least squares that never overestimates the
information about a direction. Up to m directions both memories are equal.
Cost: O(mp) time per row, O(mp) memory, the same as of Principal.

[1] M. Ghashami, E. Liberty, J. M. Phillips, D. P. Woodruff, "Frequent Directions: Simple and
    Deterministic Matrix Sketching", SIAM Journal on Computing 45(5), 2016.
[2] Y. Min, K. Ahn, N. Azizan, "One-Pass Learning via Bridging Orthogonal Gradient Descent and
    Recursive Least-Squares", extended version; its conclusion names sketching as future work.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from onepass import validation
from onepass.errors import public
from onepass.linalg.subspace import Subspace
from onepass.memory.principal import PrincipalState
from onepass.types import Kind


@dataclass(frozen=True)
class Sketch:
    """Frequent Directions of all gradients so far: m directions, none overestimated.

    Parameters
    ----------
    m : int, default=100
        The maximum number of directions, >= 1.

    Raises
    ------
    ParameterError
        If m is not an integer >= 1.

    Examples
    --------
    >>> import numpy as np
    >>> import onepass as op
    >>> X = np.diag([3.0, 2.0, 1.0])
    >>> model = op.ORFitRegressor(memory=op.memory.Sketch(2)).fit(X, np.ones(3))
    >>> [float(round(v, 6)) for v in model.memory_.subspace.sigma ** 2]  # 9 and 4, less 1
    [8.0, 3.0]
    """

    merging: ClassVar[str] = "approximate"

    m: int = 100

    @public
    def __post_init__(self) -> None:
        validation.whole(self.m, "m", low=1)

    def start(self, p: int, c: int, noise: float = 0.0, kind: Kind = np.float64) -> PrincipalState:
        """The initial state, for p weights per output.

        ``kind`` is a NumPy dtype, or a tensor of the desired precision and device.
        """
        subspace = Subspace.start(p, int(self.m), kind, shrinks=True, batch=c)
        return PrincipalState(subspace, float(noise), "raw")
