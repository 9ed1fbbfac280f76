"""LO-FI: the extended Kalman filter with a precision that is diagonal plus low rank.

For long noisy streams: the belief about p weights is stored in p (m + 2) numbers, however many rows
come, as P⁻¹ = diag(Υ) + W Wᵀ with W (p × m). Rows with gradients G (p × n), noise R and errors e
are taken in by ([1], update step)

    W̃ = [W, G / √R],      w ← w + P̃ G e / R,      P̃⁻¹ = diag(Υ) + W̃ W̃ᵀ                     (1)
    W̃ᵀ W̃ = V Λ² Vᵀ,       W ← W̃ V[:, :m],         Υ ← Υ + Σ over the rest of (W̃ v)²        (2)

(2) is the truncated singular value decomposition of [1], W̃ V = U Λ. V rotates columns and nothing
else, so that no division by a singular value is done, no orthogonality can be lost, and what leaves
W is in the diagonal to the last digit. Until m columns are full nothing is left out, and the filter
is the EKF.

(1) is done where it is small, in an orthonormal basis Q of Υ^-½ W̃ = Q T, as least squares:

    w ← w + Υ^-½ Q x,      x = argmin ‖Tᵀ x − [0; e / √R]‖² + ‖x‖²                          (3)

by QR of [Tᵀ; I]. T is as large as 1 / √R and is never squared, so that R may be small. A row that
is in the span of the past but for its rounding has a part outside of it as long as that rounding,
of which nothing is known, and which would be moved by rounding / R. So what of a column is no
longer than its rounding is left out of T, and in (2) what is no longer than the rounding of the
largest.

From row to row, by w ← w₀ + γ (w − w₀) + N(0, q I), P becomes γ² P + q I, exactly. [1] lets weights
decay towards 0; here it is towards the initial weights w₀, where a network is a network.
q = (1 − γ²) · prior is its steady state.
Cost of a step: c backward passes, O(p (m + n c)²) time and O(p (m + n c)) memory.

[1] P. G. Chang, G. Durán-Martín, A. Shestopaloff, M. Jones, K. Murphy, "Low-rank extended Kalman
    filtering for online learning of neural networks from streaming data", CoLLAs 2023,
    arXiv 2305.19535; "diagonal LO-FI".
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from onepass import linalg, validation
from onepass.errors import ParameterError
from onepass.linalg.subspace import OrthonormalBasis
from onepass.nn.kalman import RandomWalkFilter, Taken, refuse_overflow, triangle
from onepass.nn.losses import LossName
from onepass.nn.saving import register
from onepass.serialization import codec
from onepass.types import Floats

__all__ = ["LoFi", "Precision"]


@dataclass(frozen=True, eq=False, slots=True)
class Precision:
    """What is known of the weights: P⁻¹ = diag(Υ) + W Wᵀ.

    The small matrices are NumPy's, on whatever device the long ones are: their eigenvectors are
    waited for anyway, once a step, and once more where process noise is added.

    Parameters
    ----------
    diagonal : Tensor of shape (p,)
        Υ, in float64: in float32 it would stand still where rows add little.
    rows : Tensor of shape (k, p)
        Wᵀ, k <= m.
    m : int
        Columns of W at most.
    """

    diagonal: Tensor
    rows: Tensor
    m: int

    @property
    def rank(self) -> int:
        """No direction is used up for good."""
        return 0

    @property
    def nbytes(self) -> int:
        """Bytes of both."""
        return int(self.diagonal.nbytes + self.rows.nbytes)

    def learned(self, w: Tensor, J: Tensor, e: Tensor, noise: float) -> tuple["Precision", Tensor]:
        """After rows with gradients J (n, p) and errors e (n,), and the weights: (1) to (3).

        Raises
        ------
        NumericalError
            If the variance of an answer is no number.
        """
        wide, k = torch.cat((self.rows, J / noise**0.5)), len(self.rows)
        root = self.diagonal.sqrt().to(wide.dtype)
        with np.errstate(over="ignore", invalid="ignore"):
            gram = linalg.inner(wide.T, wide.T)
            Q, T, gram, known = _spanned((wide / root).T, gram, e)
        refuse_overflow(gram)
        asked = np.append(np.zeros(k), known / noise**0.5)
        prior = np.eye(len(T), len(T) + 1)
        U = triangle(np.column_stack((T.T, asked)), prior)
        x = linalg.solve_upper(U[:-1, :-1], U[:-1, -1:])  # (3)
        w = w + (linalg.times(Q, x)[:, 0] / root).to(w.dtype)
        return self._turned(wide, gram), w

    def drifted(self, decay: float, added: float) -> "Precision":
        """After P ← decay² P + added · I, by Woodbury's identity twice.

        D = 1 / (γ² + q Υ),   Υ ← D Υ,   W ← γ D W U⁻¹,   Uᵀ U = I + q Wᵀ D W, exactly. With
        D^½ W = Q T nothing is squared, as in (3): W ← γ D^½ Q (T U⁻¹), UᵀU = I + q TᵀT.

        Raises
        ------
        NumericalError
            If it is no number.
        """
        if decay == 1.0 and not added:
            return self
        D = 1.0 / (decay**2 + added * self.diagonal)
        root = D.sqrt().to(self.rows.dtype)
        rows = root * self.rows
        if added and len(rows):
            Q, T = _spanned(rows.T)
            U = triangle(added**0.5 * T, np.eye(len(T)))
            rows = linalg.times(Q, linalg.solve_upper_transposed(U, T.T).T).T
        return replace(self, diagonal=D * self.diagonal, rows=decay * root * rows)

    def variances(self, G: Tensor) -> Any:
        """gᵀ P g of each column of G (p, n), (n,), in float64.

        With Υ^-½ g = Q c + o, o orthogonal to Q, it is ‖U⁻ᵀ c‖² + ‖o‖², UᵀU = I + T Tᵀ.
        """
        root = self.diagonal.sqrt().to(self.rows.dtype)
        vectors = linalg.like(G, root) / root[:, None]
        Q, T = _spanned((self.rows / root).T)
        U = triangle(T.T, np.eye(len(T)))
        found = OrthonormalBasis(Q.T.contiguous()).split(vectors)
        inside, outside = linalg.all_to_numpy(found.inside, linalg.norms(found.outside))
        whole = np.einsum("ij,ij->j", inside, inside) + outside**2
        outside = np.where(outside > linalg.blur(vectors) * np.sqrt(whole), outside, 0.0)
        F = linalg.solve_upper_transposed(U, inside)
        return np.einsum("ij,ij->j", F, F) + outside**2

    def _turned(self, wide: Tensor, gram: Floats) -> "Precision":
        """(2), if there is need of it."""
        if len(wide) <= self.m:
            return replace(self, rows=wide)
        values, vectors = linalg.eigh(gram)
        left = int((values > linalg.blur(wide) ** 2 * values[-1]).sum())
        V = vectors.T[::-1][:left].copy()  # largest first
        rest = (linalg.like(V[self.m :], wide) @ wide).double()
        diagonal = self.diagonal + rest.square_().sum(dim=0)
        return Precision(diagonal, linalg.like(V[: self.m], wide) @ wide, self.m)


def _spanned(A: Tensor, *small: Tensor) -> list[Any]:
    """Q orthonormal and T with A = Q T, each column to its rounding; and small ones, as NumPy's.

    Parts of a column that are no longer than its rounding are left out. A device is waited for
    once.

    Parameters
    ----------
    A : Tensor of shape (p, n)

    Returns
    -------
    Q : Tensor of shape (p, n)
        Columns of zeros stand for those that are not new.
    T : ndarray of shape (n, n)
        Rows of zeros there.
    *small : ndarrays
    """
    lengths, blur = linalg.norms(A), linalg.blur(A)
    Q, L, kept = linalg.orthonormal(A, linalg.resolution(A) * lengths, lengths)
    L, kept, lengths, *others = linalg.all_to_numpy(L, kept, lengths, *small)
    refuse_overflow(lengths**2)
    T = (L * kept).T
    doubtful = np.flatnonzero((kept == 0.0) & (lengths > 0.0))
    if len(doubtful) and blur < 0.01 * linalg.resolution(A):  # more is to be seen than squares show
        rest = A[:, doubtful] - linalg.times(Q, T[:, doubtful])
        again = linalg.host(linalg.inner(Q, rest))
        T[:, doubtful] += again
        rest = rest - linalg.times(Q, again)
        least = linalg.like(blur * lengths[doubtful], linalg.norms(rest))
        Q[:, doubtful], L, kept = linalg.orthonormal(rest, least)
        L, kept = linalg.all_to_numpy(L, kept)
        T[np.ix_(doubtful, doubtful)] = (L * kept).T
    return [Q, np.where(np.abs(T) > blur * lengths, T, 0.0), *others]


@register
class LoFi(RandomWalkFilter):
    """Low-rank-plus-diagonal extended Kalman filter (LO-FI), for long noisy streams.

    Parameters
    ----------
    module : torch.nn.Module
        Learns in place. It is asked as in evaluation mode.
    memory : int, default=10
        m >= 1, the columns of the low-rank part; what they cannot hold goes into the diagonal.
    noise : float, default=1.0
        R > 0, the variance of an answer, in squares of its unit; with "cross_entropy" 1 is the
        variance that a class has.
    process_noise : float, default=0.0
        q >= 0, the variance that each weight gains from row to row: above 0 the past counts less
        and less.
    prior : float, default=1.0
        Variance of each weight before the first row, > 0.
    decay : float, default=1.0
        γ in (0, 1]: by so much weights keep their distance to where they began. With
        ``process_noise = (1 − decay²) · prior`` what is known before a row stays as it is.
    loss : {"squared", "one_hot", "cross_entropy"}, default="squared"
        ``"squared"`` for numbers; for classes 0 … c − 1 ``"one_hot"``, regression of indicators, or
        ``"cross_entropy"`` by its Gauss–Newton form.
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
    posterior_ : Precision
        The precision of the weights for the next row.
    rows_seen_, rows_refused_ : int
        Rows given, and those left out because their errors or gradients were not finite.

    Raises
    ------
    ParameterError, TypeMismatchError
        If an argument or the module is none of these.

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

    def __init__(
        self,
        module: torch.nn.Module,
        memory: int = 10,
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
        where = f"op.nn.{type(self).__name__}"
        self.memory = validation.whole(memory, "memory", where, low=1)
        if not validation.in_range(noise, "noise", where, low=0.0):
            raise ParameterError(
                f"{where}: `noise` must be above 0, since a row without noise is known with a "
                "precision that no number is, got 0. Use op.nn.EKF or op.nn.ORFit to fit exactly."
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
            chunk=chunk,
        )

    def _begin(self, c: int) -> Precision:
        del c
        p, like = self.network.p, self._like
        diagonal = torch.full((p,), 1.0 / self.prior, dtype=torch.float64, device=like.device)
        return Precision(diagonal, like.new_empty((0, p)), self.memory)

    def _measured(self, belief: Precision, w: Tensor, e: Tensor, J: Tensor) -> Taken:
        return Taken(*belief.learned(w, J, e.reshape(-1), self.noise))


codec.register(codec.Role.MEMORY, Precision)
