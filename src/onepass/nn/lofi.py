"""LO-FI: the extended Kalman filter with a precision that is diagonal plus low rank.

For long noisy streams. The precision of p weights, P⁻¹ = diag(Υ) + W Wᵀ with W (p × m), takes p (m
+ 2) numbers for any number of rows. The update for rows with gradients G (p × n), noise R and
errors e is ([1], update step)

    W̃ = [W, G / √R],      w ← w + P̃ G e / R,      P̃⁻¹ = diag(Υ) + W̃ W̃ᵀ                     (1)
    W̃ᵀ W̃ = V Λ² Vᵀ,       W ← W̃ V[:, :m],         Υ ← Υ + Σ over the rest of (W̃ v)²        (2)

(2) is the truncated singular value decomposition of [1], W̃ V = U Λ. V only rotates columns, so
that there is no division by a singular value and no loss of orthogonality, and the diagonal
receives exactly what is removed from W. The filter equals the EKF until W has m columns.

(1) is solved in an orthonormal basis Q of Υ^-½ W̃ = Q T, as a small least-squares problem:

    w ← w + Υ^-½ Q x,      x = argmin ‖Tᵀ x − [0; e / √R]‖² + ‖x‖²                          (3)

by QR of [Tᵀ; I]. T is of the order of 1 / √R and is never squared, so that R may be small. By
rounding, a row in the span of past rows has a component outside of the span, along which (3) would
move the weights by rounding / R. Entries of T within the rounding error of their column are
therefore set to zero, as are directions in (2) within the rounding error of the largest one.

Between rows, w ← w₀ + γ (w − w₀) + N(0, q I) gives P ← γ² P + q I, exactly. In [1] weights decay
towards 0, here towards the initial weights w₀. q = (1 − γ²) · prior is the steady state.
Cost of a step: c backward passes, O(p (m + n c)²) time and O(p (m + n c)) memory.

[1] P. G. Chang, G. Durán-Martín, A. Shestopaloff, M. Jones, K. Murphy, "Low-rank extended Kalman
    filtering for online learning of neural networks from streaming data", CoLLAs 2023,
    arXiv 2305.19535; "diagonal LO-FI".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from onepass import linalg, validation
from onepass.errors import ParameterError, public
from onepass.linalg.subspace import OrthonormalBasis
from onepass.nn.kalman import FilterStep, RandomWalkFilter, refuse_overflow, triangle
from onepass.nn.losses import Loss
from onepass.nn.saving import register
from onepass.serialization import codec
from onepass.types import Floats


@dataclass(frozen=True, eq=False, slots=True)
class Precision:
    """Precision matrix of the weights, P⁻¹ = diag(Υ) + W Wᵀ.

    Small matrices are NumPy arrays on any device. This synchronises with an accelerator once per
    step, and once more with process noise.

    Parameters
    ----------
    diagonal : Tensor of shape (p,)
        Υ, in float64: small increments would be lost in float32.
    rows : Tensor of shape (k, p)
        Wᵀ, k <= m.
    m : int
        Max number of columns of W.
    """

    diagonal: Tensor
    rows: Tensor
    m: int

    @property
    def rank(self) -> int:
        """0: no direction becomes unavailable."""
        return 0

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return int(self.diagonal.nbytes + self.rows.nbytes)

    def measurement_updated(
        self, w: Tensor, J: Tensor, e: Tensor, noise: float
    ) -> tuple[Precision, Tensor]:
        """Apply (1) to (3) for rows with gradients J (n, p) and errors e (n,).

        Raises
        ------
        NumericalError
            If the variance of an output is not finite.
        """
        wide, k = torch.cat((self.rows, J / noise**0.5)), len(self.rows)
        root = self.diagonal.sqrt().to(wide.dtype)
        with np.errstate(over="ignore", invalid="ignore"):
            gram = linalg.inner(wide.T, wide.T)
            Q, T, gram, errors = _orthogonal_factors((wide / root).T, gram, e)
        refuse_overflow(gram)
        rhs = np.append(np.zeros(k), errors / noise**0.5)
        prior = np.eye(len(T), len(T) + 1)
        U = triangle(np.column_stack((T.T, rhs)), prior)
        x = linalg.solve_upper(U[:-1, :-1], U[:-1, -1:])  # (3)
        w = w + (linalg.times(Q, x)[:, 0] / root).to(w.dtype)
        return self._truncated(wide, gram), w

    def with_process_noise(self, decay: float, added: float) -> Precision:
        """Apply P ← decay² P + added · I, by applying Woodbury's identity twice.

        D = 1 / (γ² + q Υ),   Υ ← D Υ,   W ← γ D W U⁻¹,   Uᵀ U = I + q Wᵀ D W, exactly. With
        D^½ W = Q T, nothing is squared: W ← γ D^½ Q (T U⁻¹), UᵀU = I + q TᵀT.

        Raises
        ------
        NumericalError
            If the result is not finite.
        """
        if decay == 1.0 and not added:
            return self
        D = 1.0 / (decay**2 + added * self.diagonal)
        root = D.sqrt().to(self.rows.dtype)
        rows = root * self.rows
        if added and len(rows):
            Q, T = _orthogonal_factors(rows.T)
            U = triangle(added**0.5 * T, np.eye(len(T)))
            rows = linalg.times(Q, linalg.solve_upper_transposed(U, T.T).T).T
        return replace(self, diagonal=D * self.diagonal, rows=decay * root * rows)

    def variances(self, G: Tensor) -> Any:
        """Return gᵀ P g of each column of G (p, n), of shape (n,), in float64.

        With Υ^-½ g = Q c + o, o orthogonal to Q, the variance is ‖U⁻ᵀ c‖² + ‖o‖², UᵀU = I + T Tᵀ.
        """
        root = self.diagonal.sqrt().to(self.rows.dtype)
        vectors = linalg.like(G, root) / root[:, None]
        Q, T = _orthogonal_factors((self.rows / root).T)
        U = triangle(T.T, np.eye(len(T)))
        found = OrthonormalBasis(Q.T.contiguous()).split(vectors)
        inside, outside = linalg.all_to_numpy(found.inside, linalg.norms(found.outside))
        whole = np.einsum("ij,ij->j", inside, inside) + outside**2
        outside = np.where(outside > linalg.blur(vectors) * np.sqrt(whole), outside, 0.0)
        F = linalg.solve_upper_transposed(U, inside)
        return np.einsum("ij,ij->j", F, F) + outside**2

    def _truncated(self, wide: Tensor, gram: Floats) -> Precision:
        """Apply the truncation (2) if there are more than m columns."""
        if len(wide) <= self.m:
            return replace(self, rows=wide)
        values, vectors = linalg.eigh(gram)
        left = int((values > linalg.blur(wide) ** 2 * values[-1]).sum())
        V = vectors.T[::-1][:left].copy()  # largest first
        rest = (linalg.like(V[self.m :], wide) @ wide).double()
        diagonal = self.diagonal + rest.square_().sum(dim=0)
        return Precision(diagonal, linalg.like(V[: self.m], wide) @ wide, self.m)


def _orthogonal_factors(A: Tensor, *small: Tensor) -> list[Any]:
    """Return QR factors of A, accurate for each column, and small tensors as NumPy arrays.

    Components of a column within its rounding error are set to zero. Synchronises with an
    accelerator once.

    Parameters
    ----------
    A : Tensor of shape (p, n)

    Returns
    -------
    Q : Tensor of shape (p, n)
        Orthonormal; columns that depend on earlier ones are zero.
    T : ndarray of shape (n, n)
        Rows for zero columns of Q are zero.
    *small : ndarrays
    """
    lengths, blur = linalg.norms(A), linalg.blur(A)
    Q, L, accepted = linalg.orthonormal(A, linalg.resolution(A) * lengths, lengths)
    L, accepted, lengths, *others = linalg.all_to_numpy(L, accepted, lengths, *small)
    refuse_overflow(lengths**2)
    T = (L * accepted).T
    doubtful = np.flatnonzero((accepted == 0.0) & (lengths > 0.0))
    if len(doubtful) and blur < 0.01 * linalg.resolution(
        A
    ):  # resolve below the precision of squares
        rest = A[:, doubtful] - linalg.times(Q, T[:, doubtful])
        again = linalg.host(linalg.inner(Q, rest))
        T[:, doubtful] += again
        rest = rest - linalg.times(Q, again)
        least = linalg.like(blur * lengths[doubtful], linalg.norms(rest))
        Q[:, doubtful], L, accepted = linalg.orthonormal(rest, least)
        L, accepted = linalg.all_to_numpy(L, accepted)
        T[np.ix_(doubtful, doubtful)] = (L * accepted).T
    return [Q, np.where(np.abs(T) > blur * lengths, T, 0.0), *others]


@register
class LoFi(RandomWalkFilter):
    """Low-rank-plus-diagonal extended Kalman filter (LO-FI), for long noisy streams.

    Parameters
    ----------
    module : torch.nn.Module
        Updated in place. Evaluated in evaluation mode.
    memory : int, default=10
        m >= 1, the number of columns of the low-rank part; the rest is added to the diagonal.
    noise : float, default=1.0
        R > 0, the noise variance of a target; 1 is the variance of a categorical target with
        "cross_entropy".
    process_noise : float, default=0.0
        q >= 0, the variance added to each weight after each row; if > 0, past rows are forgotten.
    prior : float, default=1.0
        Variance of each weight before the first row, > 0.
    decay : float, default=1.0
        γ in (0, 1], the factor by which weights decay towards their initial values after each row.
        With ``process_noise = (1 − decay²) · prior`` the prior covariance is stationary.
    loss : {"squared", "one_hot", "cross_entropy"} or callable, default="squared"
        ``"squared"`` for regression. For classes 0 … c − 1, ``"one_hot"`` (regression on
        indicators) or ``"cross_entropy"`` (Gauss–Newton approximation).
    learns : str or sequence of str, default="all"
        Parameters to train: ``"all"``, ``"last"`` (layer), names or patterns of names.
    block_update : bool, default=False
        Whether to linearise all rows of one call at the same weights, before the first of them; the
        process noise of all rows is then added after the block.

    Attributes
    ----------
    network : Network
        The module as a function of one flat weight vector.
    posterior_ : Precision
        The precision of the weights for the next row.
    rows_seen_, rows_refused_ : int
        Number of rows received, and of rows rejected because errors or gradients were not finite.

    Raises
    ------
    ParameterError, TypeMismatchError
        If an argument or the module is invalid.

    Examples
    --------
    >>> import torch
    >>> import onepass as op
    >>> _ = torch.manual_seed(0)
    >>> net = op.nn.LoFi(torch.nn.Linear(20, 1).double(), memory=5, noise=0.01)
    >>> X = torch.randn(1000, 20).double()
    >>> y = X.sum(dim=1) + 0.1 * torch.randn(1000).double()
    >>> float((net.learn(X, y).predict(X) - y).square().mean().sqrt()) < 0.12
    True
    """

    @public
    def __init__(
        self,
        module: torch.nn.Module,
        memory: int = 10,
        noise: float = 1.0,
        process_noise: float = 0.0,
        prior: float = 1.0,
        decay: float = 1.0,
        *,
        loss: Loss = "squared",
        learns: str | Sequence[str] = "all",
        block_update: bool = False,
    ) -> None:
        self.memory = validation.whole(memory, "memory", low=1)
        if not validation.in_range(noise, "noise", low=0.0):
            raise ParameterError(
                "`noise` must be above 0, since a row without noise has infinite "
                "precision, got 0. Use op.nn.EKF or op.nn.ORFit to fit rows exactly."
            )
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

    def _begin(self, c: int) -> Precision:
        del c
        p, like = self.network.p, self.network.like
        diagonal = torch.full((p,), 1.0 / self.prior, dtype=torch.float64, device=like.device)
        return Precision(diagonal, like.new_empty((0, p)), self.memory)

    def _measurement_update(self, belief: Precision, w: Tensor, e: Tensor, J: Tensor) -> FilterStep:
        return FilterStep(*belief.measurement_updated(w, J, e.reshape(-1), self.noise))


codec.register(codec.Role.MEMORY, Precision)
