"""SquareRoot: the triangle of QRD-RLS over all past rows; the memory of ridge regression.

With gradients a_k, targets b_k and noise variances r_k the weights after n rows are

    argmin over w of  Σ_k (b_k − a_kᵀ w)² / r_k + (w − w₀)ᵀ Π (w − w₀)                       (1)

([1] (2)). The recursion ([1] (3)) of P_n = (Π + Σ_k a_k a_kᵀ / r_k)⁻¹ and w_n loses digits and
symmetry. Instead, the state is the triangle [R z] with

    Rᵀ R = P⁻¹,   R (w − w₀) = z                                                            (2)
    [R z] ← triangle of [R z] and the block's rows r_k^(−½) [a_k b_k], by QR                (3)

so that w is computed from the triangle, not accumulated ([2]).
Cost: O(p²) time per row, O(p²) memory.

[1] Y. Min, K. Ahn, N. Azizan, "One-Pass Learning via Bridging Orthogonal Gradient Descent and
    Recursive Least-Squares", CDC 2022.
[2] A. H. Sayed, "Fundamentals of Adaptive Filtering", 2003; QRD-RLS.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from onepass import validation
from onepass.errors import ParameterError, public
from onepass.linalg.update import Step, absorb, row_by_row
from onepass.types import Array, ArrayLike, ArrayOrTensor, Floats, Kind


@dataclass(frozen=True)
class SquareRoot:
    """All past rows in the p × p square root of P⁻¹: ridge regression.

    Parameters
    ----------
    ridge : float or ndarray of shape (p, p), default=1e-6
        Π of (1): ``ridge`` · I with ridge > 0, or a symmetric positive definite matrix.

    Raises
    ------
    ParameterError
        If ridge is not positive, or not symmetric and positive definite.
    """

    merging: ClassVar[str] = "refused"

    ridge: Any = 1e-6

    @public
    def __post_init__(self) -> None:
        _root(self.ridge)

    def start(self, p: int, c: int, noise: float = 1.0, kind: Kind = np.float64) -> Triangle:
        """The initial state, for p weights per output and c outputs; always in float64."""
        del kind
        if not noise:
            raise ParameterError(
                "`noise` must be > 0, since least squares averages rows, got 0. Use "
                "memory=None to fit each row exactly.",
                "memory.SquareRoot",
            )
        root, zero = _root(self.ridge), np.zeros((p, c))
        if np.ndim(root) and len(root) != p:
            raise ParameterError(
                f"`ridge` must be a number > 0 or a matrix of shape ({p}, {p}), got "
                f"shape {root.shape}. Pass one row and column for each feature.",
                "SquareRoot",
            )
        R = np.asfortranarray(root if np.ndim(root) else root * np.eye(p))
        return Triangle(R, zero, zero, np.zeros(c), None if np.ndim(root) else float(self.ridge))


@dataclass(frozen=True, eq=False, slots=True)
class Triangle:
    """The state of :class:`SquareRoot`.

    Parameters
    ----------
    R : ndarray of shape (p, p)
        Nonsingular upper triangle.
    z, w : ndarrays of shape (p, c)
        R w = z; w is the deviation from w₀.
    squares : ndarray of shape (c,)
        The least value of (1), including the penalty.
    ridge : float or None
        The prior of weights that :meth:`grown` adds; None if the ridge was a matrix.
    """

    exact_in_blocks: ClassVar[bool] = True
    lost: ClassVar[None] = None

    R: Floats
    z: Floats
    w: Floats
    squares: Floats
    ridge: float | None

    @property
    def rank(self) -> int:
        """The number of directions that rows or the prior determine: all."""
        return len(self.R)

    def learn(self, w: Floats, G: Floats, e: Floats, noise: Floats, *, group: int = 1) -> Step:
        """The update equation with R = ``noise`` > 0, for a block of gradients and errors.

        Parameters
        ----------
        w : ndarray of shape (p, c) or (p,)
            The weights, w₀ + ``self.w``.
        G : ndarray of shape (p, n)
        e : ndarray of shape (n, c) or (n,)
        noise : ndarray of shape (n,)
            All positive.
        group : int
            The number of neighbouring columns of G that belong to one row.
        """
        if group > 1:
            return row_by_row(self, w, G, e, noise, group)
        memory, errors = self.absorb(G.T, e.reshape(len(e), -1) + G.T @ self.w, noise**-0.5)
        moved = (memory.w - self.w).reshape(w.shape)
        return Step(w + moved, memory, errors.reshape(e.shape), 0, 0)

    def absorb(self, A: Floats, b: Floats, scale: Floats) -> tuple[Triangle, Floats]:
        """Add rows scale_k [a_k b_k]: (3); return the errors b_k − a_kᵀ w_{k−1}, (n, c).

        Parameters
        ----------
        A : ndarray of shape (n, p)
        b : ndarray of shape (n, c)
            Relative to w₀: b_k = y_k − a_kᵀ w₀.
        scale : ndarray of shape (n,)
            All positive.
        """
        memory, errors, width = self, np.empty(b.shape), _width(len(self.R))
        for i in range(0, len(A), width):
            rows, weight = slice(i, i + width), scale[i : i + width, None]
            B = np.multiply(A[rows], weight, order="F")
            R, z, w, e, left = absorb(memory.R, memory.z, memory.w, B, b[rows] * weight)
            memory, errors[rows] = Triangle(R, z, w, memory.squares + left, self.ridge), e / weight
        return memory, errors

    def forgetting_bound(self, new: ArrayOrTensor, old: ArrayOrTensor) -> float:
        """Return 0.0: no bound is known."""
        del new, old
        return 0.0

    def grown(self, p: int) -> Triangle:
        """Add weights at the end under the prior ``ridge``, whose features were always zero."""
        if self.ridge is None:
            raise ParameterError(
                "`ridge` must be a number if features are added later, got a matrix for "
                f"{len(self.z)} of now {p} features. Pass a number, or all features at once.",
                "SquareRoot",
            )
        d, new = len(self.R), np.arange(len(self.R), p)
        R = np.zeros((p, p), order="F")
        R[:d, :d], R[new, new] = self.R, np.sqrt(self.ridge)
        z, w = (np.vstack((part, np.zeros((p - d, part.shape[1])))) for part in (self.z, self.w))
        return replace(self, R=R, z=z, w=w)

    def with_outputs(self, at: Array, c: int) -> Triangle:
        """Extend to c outputs; those in columns ``at`` are new and were zero in all rows so far."""
        old = np.setdiff1d(np.arange(c), at)
        z, w, squares = np.zeros((len(self.z), c)), np.zeros((len(self.z), c)), np.zeros(c)
        z[:, old], w[:, old], squares[old] = self.z, self.w, self.squares
        return replace(self, z=z, w=w, squares=squares)


def _width(p: int) -> int:
    """Rows per block: enough for BLAS 3, but so few that the n × n part remains small."""
    return 64 if p <= 64 else 128 if p <= 512 else 256 if p <= 2048 else 1024


def _root(ridge: ArrayLike) -> Any:
    """The root of a number; for a matrix, its Cholesky factor (p, p), an upper triangle."""
    try:
        matrix = np.asarray(ridge)
    except ValueError:  # rows of several lengths
        matrix = np.empty(0, dtype=object)
    if not matrix.ndim:
        return np.sqrt(validation.in_range(ridge, "ridge", above=0.0))
    square = matrix.ndim == 2 and matrix.shape[0] == matrix.shape[1]
    good = square and matrix.dtype.kind in "iuf" and np.isfinite(matrix).all()
    if not good or not np.allclose(matrix, matrix.T):
        raise ParameterError(
            "`ridge` must be a number > 0 or a symmetric matrix, got an array of shape "
            f"{matrix.shape}. Pass one row and column for each feature."
        )
    try:
        return np.linalg.cholesky(matrix).T
    except np.linalg.LinAlgError as error:
        raise ParameterError(
            "`ridge` must be positive definite, got an eigenvalue of "
            f"{np.linalg.eigvalsh(matrix).min():g}. Add a small multiple of the identity."
        ) from error
