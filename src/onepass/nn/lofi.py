"""LO-FI: the extended Kalman filter with a precision that is diagonal plus low rank.

For long noisy streams: what is known of p weights is kept in p (m + 2) numbers, however many rows
come. With the precision P⁻¹ = diag(Υ) + W Wᵀ, W (p × m), rows with gradients G (p × n), noise R
and errors e are taken in by ([1], update step)

    W̃ = [W, G / √R],      M = W̃ᵀ Υ⁻¹ W̃                                                     (1)
    w ← w + Υ⁻¹ W̃ (I + M)⁻¹ [0; e / √R]                                                     (2)
    W̃ᵀ W̃ = V Λ² Vᵀ,      W ← W̃ V[:, :m],      Υ ← Υ + Σ over the rest of (W̃ v)²             (3)

(2) is P b with b = G e / R = W̃ [0; e / √R], P by Woodbury's identity, and (I + M)⁻¹ what is left
of I − (I + M)⁻¹ M: no difference of large numbers is formed. (3) is the truncated singular value
decomposition of [1], W̃ V = U Λ. V turns columns and nothing else, so that no division by a
singular value is done, no orthogonality can be lost, and what leaves W is in the diagonal to the
last digit. From row to row, by w ← w₀ + γ (w − w₀) + N(0, q I), P becomes γ² P + q I, and so ([1],
predict step; by Woodbury's identity twice)

    D = 1 / (γ² + q Υ),      Υ ← D Υ                                                         (4)
    W ← γ D W K⁻ᵀ,           K Kᵀ = I + q Wᵀ D W                                             (5)

exactly, W on the right being that of before. [1] lets weights decay towards 0; here it is towards
the initial weights w₀, where a network is a network. q = (1 − γ²) · prior is its steady state.
Until m columns are full (3) leaves nothing out, and the filter is the EKF.
Cost of a step: c backward passes, O(p (m + n c)²) time and O(p (m + n c)) memory.

[1] P. G. Chang, G. Durán-Martín, A. Shestopaloff, M. Jones, K. Murphy, "Low-rank extended Kalman
    filtering for online learning of neural networks from streaming data", CoLLAs 2023,
    arXiv 2305.19535; "diagonal LO-FI".
"""

import warnings
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import scipy.linalg
import torch

from onepass import linalg, validate
from onepass.errors import NumericalError, ParameterError
from onepass.nn.belief import refuse_overflow
from onepass.nn.filtering import Dynamics, Filter
from onepass.nn.losses import LossName
from onepass.types import Floats

__all__ = ["LoFi", "Precision"]


@dataclass(frozen=True, eq=False, slots=True)
class Precision:
    """What is known of the weights: P⁻¹ = diag(Υ) + W Wᵀ.

    The small matrices are NumPy's, on whatever device the long ones are: their eigenvectors are
    waited for anyway, once a step.

    Parameters
    ----------
    diagonal : Tensor of shape (p,)
        Υ, in float64: in float32 it would stand still where rows add little.
    rows : Tensor of shape (k, p)
        Wᵀ, k <= m.
    m : int
        Columns of W at most.
    """

    diagonal: Any
    rows: Any
    m: int

    @classmethod
    def start(cls, p: int, m: int, prior: float, kind: Any) -> "Precision":
        """Before the first row, of p weights of a variance; ``kind`` is an empty tensor."""
        diagonal = torch.full((p,), 1.0 / prior, dtype=torch.float64, device=kind.device)
        return cls(diagonal, kind.new_empty((0, p)), m)

    @property
    def rank(self) -> int:
        """No direction is used up for good."""
        return 0

    @property
    def nbytes(self) -> int:
        """Bytes of both."""
        return int(self.diagonal.nbytes + self.rows.nbytes)

    def learned(self, w: Any, J: Any, e: Any, noise: float) -> tuple["Precision", Any]:
        """After rows with gradients J (n, p) and errors e (n,), and the weights: (1) to (3).

        Raises
        ------
        NumericalError
            If the variance of an answer is no number.
        """
        wide = torch.cat((self.rows, J / noise**0.5))
        k, n = self.rows.shape[0], len(J)
        scaled = wide / self.diagonal.to(wide.dtype).sqrt()
        both = torch.stack([torch.as_tensor(linalg.inner(a.T, a.T)) for a in (scaled, wide)])
        M, gram = squares = linalg.host(both)
        refuse_overflow(squares)
        known = np.concatenate((np.zeros(k), linalg.host(e) / noise**0.5))
        gain = self._gain(M, known)
        moved = (linalg.like(gain, wide) @ wide).double() / self.diagonal  # (2)
        if k + n <= self.m:
            return replace(self, rows=wide), w + moved.to(w.dtype)
        V = np.linalg.eigh(gram)[1].T[::-1].copy()  # largest first
        rest = (linalg.like(V[self.m :], wide) @ wide).double()
        diagonal = self.diagonal + rest.square_().sum(dim=0)
        rows = linalg.like(V[: self.m], wide) @ wide
        return Precision(diagonal, rows, self.m), w + moved.to(w.dtype)

    def drifted(self, decay: float, added: float) -> "Precision":
        """After P ← decay² P + added · I: (4), (5)."""
        if decay == 1.0 and not added:
            return self
        D = 1.0 / (decay**2 + added * self.diagonal)
        rows = decay * D.to(self.rows.dtype) * self.rows
        if added and len(rows):
            inner = linalg.host(linalg.inner(self.rows.T, rows.T)) / decay
            rows = self._whitened(rows, np.eye(len(rows)) + added * (inner + inner.T) / 2.0)
        return replace(self, diagonal=D * self.diagonal, rows=rows)

    def variances(self, G: Any) -> Any:
        """gᵀ P g of each column of G (p, n), (n,), in float64.

        With v = Υ^-½ g, A = Υ^-½ W and x = (I + A Aᵀ)⁻¹ v it is vᵀ x = ‖x‖² + ‖Aᵀ x‖².
        """
        root = self.diagonal.sqrt()
        v, A = (G.T / root), (self.rows / root)
        if not len(A):
            return v.square().sum(dim=1)
        inner = A @ A.T + torch.eye(len(A), dtype=A.dtype, device=A.device)
        x = v - torch.linalg.solve(inner, A @ v.T).T @ A
        return x.square().sum(dim=1) + (x @ A.T).square().sum(dim=1)

    @staticmethod
    def _gain(M: Floats, known: Floats) -> Floats:
        """(I + M)⁻¹ known."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error", scipy.linalg.LinAlgWarning)
                found: Floats = scipy.linalg.solve(np.eye(len(M)) + M, known, assume_a="pos")
        except (np.linalg.LinAlgError, scipy.linalg.LinAlgWarning) as wrong:
            raise NumericalError(
                "LoFi step: what rows say must not hide what was known before, got rows so much "
                "sharper that nothing of it is left in float64. Use a larger noise, a smaller "
                "prior, or op.nn.EKF."
            ) from wrong
        return found

    @staticmethod
    def _whitened(rows: Any, S: Floats) -> Any:
        """K⁻¹ rows, K Kᵀ = S."""
        K = np.linalg.cholesky(S)
        return linalg.like(linalg.solve_lower(K, np.eye(len(K))), rows) @ rows


class LoFi(Filter):
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
    belief_ : Precision
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

    arguments: ClassVar[tuple[str, ...]] = (
        *("memory", "noise", "process_noise", "prior", "decay"),
        *("loss", "learns", "block_update", "chunk"),
    )
    kept: ClassVar[tuple[str, ...]] = (*Filter.kept, "_dynamics._start")
    states: ClassVar[tuple[type, ...]] = (Precision,)

    def __init__(
        self,
        module: Any,
        memory: int = 10,
        noise: float = 1.0,
        process_noise: float = 0.0,
        prior: float = 1.0,
        decay: float = 1.0,
        *,
        loss: LossName = "squared",
        learns: Any = "all",
        block_update: bool = False,
        chunk: int | None = None,
    ) -> None:
        where = f"op.nn.{type(self).__name__}"
        self.memory = validate.whole(memory, "memory", where, low=1)
        if not validate.in_range(noise, "noise", where, low=0.0):
            raise ParameterError(
                f"{where}: `noise` must be above 0, since a row without noise is known with a "
                "precision that no number is, got 0. Use op.nn.EKF or op.nn.ORFit to fit exactly."
            )
        self.prior = validate.in_range(prior, "prior", where, above=0.0)
        self._dynamics = Dynamics(decay, process_noise, where)
        self.process_noise, self.decay = self._dynamics.process_noise, self._dynamics.decay
        super().__init__(
            module,
            prior=self.prior,
            noise=noise,
            loss=loss,
            learns=learns,
            block_update=block_update,
            chunk=chunk,
        )

    @property
    def nbytes(self) -> int:
        """Bytes of what is kept beside the weights."""
        return super().nbytes + self._dynamics.nbytes

    def _begin(self, c: int) -> Any:
        del c
        return Precision.start(self.network.p, self.memory, self.prior, self._like)

    def _taken(self, belief: Any, w: Any, e: Any, J: Any) -> tuple[Any, Any]:
        self._dynamics.begun(w)
        belief, w = belief.learned(w, J, e.reshape(-1), self.noise)
        decay, added = self._dynamics.passed(len(e))
        return belief.drifted(decay, added), self._dynamics.shrunk(w, decay)
