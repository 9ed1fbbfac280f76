"""SquareRoot: all of the past, as the triangle of QRD-RLS. The memory of recursive least squares.

With rows (a_k, b_k), weights s_k and a forgetting factor λ, after n rows the weights are

    w_n = argmin over w of  Σ_k λ^(n−k) s_k (b_k − a_kᵀ w)² + λⁿ (w − w₀)ᵀ Π (w − w₀)        (1)

(EW-RLS, [1] (2)). Kept are not P_n = (λⁿ Π + Σ_k λ^(n−k) s_k a_k a_kᵀ)⁻¹ and w_n, whose
recursion ([1] (3), [2]) loses digits and its symmetry, but the triangle [R z] with

    Rᵀ R = P⁻¹,   R (w − w₀) = z                                                            (2)
    [R z] ← √λⁿ · triangle of ([R z] and the block's rows √(s_k λ⁻ᵏ) [a_k b_k]), by QR       (3)

so that forgetting never divides and w is solved for, never accumulated. Π = 0 is an exact case:
until the rows have full rank, w is the solution of least norm (:class:`~onepass.memory.span.Span`).
Cost: O(p²) time a row, O(p²) memory.

[1] Y. Min, K. Ahn, N. Azizan, "One-Pass Learning via Bridging Orthogonal Gradient Descent and
    Recursive Least-Squares", CDC 2022.
[2] "Online least-squares", lecture notes; recursive least squares by the matrix inversion lemma.
[3] A. H. Sayed, "Fundamentals of Adaptive Filtering", 2003; QRD-RLS.
"""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from onepass import linalg, validate
from onepass.errors import ParameterError
from onepass.memory.span import Span
from onepass.types import Array, Floats
from onepass.update import Step, absorb, fade, row_by_row

__all__ = ["SquareRoot", "Triangle"]

_LEAST = 1e-150  # a direction that has faded below it has lost digits: the span still has them


@dataclass(frozen=True)
class SquareRoot:
    """All of the past in the p × p square root of P⁻¹: recursive least squares.

    Parameters
    ----------
    ridge : float or ndarray of shape (p, p), default=1e-6
        Π of (1): ``ridge`` · I, or a symmetric positive semidefinite matrix.

    Raises
    ------
    ParameterError
        If ridge is negative or not positive semidefinite.
    """

    ridge: Any = 1e-6

    def start(
        self, p: int, c: int, noise: float = 1.0, dtype: type[np.floating] = np.float64
    ) -> "Triangle":
        """The memory of no rows, for p weights an output and c outputs; always in float64."""
        del dtype
        if not noise:
            raise ParameterError(
                "memory.SquareRoot: `noise` must be > 0, since least squares averages rows, "
                "got 0. Use memory=None to fit each row exactly."
            )
        zero, squares = np.zeros((p, c)), np.zeros(c)
        R = np.zeros((p, p), order="F")
        given = _as_array(self.ridge)
        if given.ndim == 0:
            ridge = validate.in_range(self.ridge, "ridge", "SquareRoot", low=0.0)
            R[np.arange(p), np.arange(p)] = np.sqrt(ridge)
            span = None if ridge > 0 else Span.start(p, c, 0.0)
            return Triangle(R, zero, zero, squares, ridge, span)
        rows, definite = _root(given, p)
        if definite:
            return Triangle(np.asfortranarray(rows), zero, zero, squares, None, None)
        empty = Triangle(R, zero, zero, squares, None, Span.start(p, c, 0.0))
        return empty.absorb(rows, np.zeros((len(rows), c)), np.ones(len(rows)))[0]


@dataclass(frozen=True, eq=False, slots=True)
class Triangle:
    """The state of :class:`SquareRoot`: [R z], and until full rank the span of the rows.

    Parameters
    ----------
    R : ndarray of shape (p, p)
        Upper triangle.
    z, w : ndarrays of shape (p, c)
        R w = z; w is the deviation from w₀.
    squares : ndarray of shape (c,)
        The least value of (1), the penalty included.
    ridge : float or None
        The prior of weights that :meth:`grown` adds; None where it was a matrix.
    span : Span or None
        None once the triangle is nonsingular.
    """

    exact_in_blocks: ClassVar[bool] = True
    lost: ClassVar[None] = None

    R: Floats
    z: Floats
    w: Floats
    squares: Floats
    ridge: float | None
    span: Span | None

    @property
    def rank(self) -> int:
        """The directions that are determined, by rows or by the prior."""
        return self.R.shape[0] if self.span is None else self.span.rank

    def learn(self, w: Floats, G: Floats, e: Floats, noise: Floats, *, group: int = 1) -> Step:
        """The one equation, with R = ``noise`` > 0: a block of gradients and errors.

        Parameters
        ----------
        w : ndarray of shape (p, c) or (p,)
            The weights, w₀ + ``self.w``.
        G : ndarray of shape (p, n)
        e : ndarray of shape (n, c) or (n,)
        noise : ndarray of shape (n,)
            λᵏ, say; all positive.
        group : int
            Neighbouring columns of G that belong to one row.
        """
        if group > 1:
            return row_by_row(self, w, G, e, noise, group)
        before = w.reshape(w.shape[0], -1)
        flat = e.reshape(e.shape[0], -1)
        memory, errors = self.absorb(G.T, flat + G.T @ self.w, noise**-0.5)
        new = before + (memory.w - self.w)
        return Step(
            new.reshape(w.shape), memory, errors.reshape(e.shape), memory.rank - self.rank, 0
        )

    def forgets(self, new: Any, old: Any) -> float:
        """Nothing is known of it."""
        del new, old
        return 0.0

    def absorb(
        self, A: Floats, b: Floats, scale: Floats, raw: Floats | None = None
    ) -> tuple["Triangle", Floats]:
        """Take in rows scale_k [a_k b_k]; return the errors b_k − a_kᵀ w_{k−1}, (n, c).

        Parameters
        ----------
        A : ndarray of shape (n, p)
        b : ndarray of shape (n, c)
            Relative to w₀: b_k = y_k − a_kᵀ w₀.
        scale : ndarray of shape (n,)
            √(s_k λ⁻ᵏ) > 0.
        raw : ndarray of shape (n, p), optional
            The rows as they came, where A are centred ones: their rounding is relative to these.
        """
        memory, width = self, _width(A.shape[1])
        weight = scale[:, None]
        A, b, errors = np.multiply(A, weight, order="F"), b * weight, np.empty(b.shape)
        seen = None if raw is None or self.span is None else np.abs(raw)
        # a mean has the rounding of the largest row in it
        raw = A if seen is None else np.maximum.accumulate(seen) * weight
        for i in range(0, len(A), width):
            rows = slice(i, i + width)
            memory, errors[rows] = memory._block(A[rows], b[rows], raw[rows])
        return memory, errors / weight

    def faded(self, factor: float) -> "Triangle":
        """The same with all of the past, and the prior, weighing ``factor`` as much."""
        if factor == 1.0:
            return self
        R, z = (
            fade(self.R, self.z, factor)
            if self.span is None
            else (self.R * np.sqrt(factor), self.z * np.sqrt(factor))
        )
        span = None if self.span is None else self.span.faded(factor)
        return replace(self, R=R, z=z, squares=self.squares * factor, span=span)

    def grown(self, p: int) -> "Triangle":
        """The same with new weights at the end, under the prior ``ridge``, zero in all rows."""
        if self.ridge is None:
            raise ParameterError(
                f"SquareRoot: `ridge` must be a number where features arrive late, got a matrix "
                f"for {len(self.z)} of now {p} features. Give a number, or all features at once."
            )
        old, c = self.z.shape
        R = np.zeros((p, p), order="F")
        R[:old, :old] = self.R
        R[np.arange(old, p), np.arange(old, p)] = np.sqrt(self.ridge)
        extra = np.zeros((p - old, c))
        span = self.span
        if self.ridge == 0.0:
            span = (span or Span.of_all(self.R, self.z)).grown(p)
        z, w = np.vstack((self.z, extra)), np.vstack((self.w, extra))
        return replace(self, R=R, z=z, w=w, span=span)

    def with_outputs(self, at: Array, c: int) -> "Triangle":
        """The same with new outputs at the columns ``at`` of now c, zero in every row so far."""
        old = np.setdiff1d(np.arange(c), at)
        z, w = np.zeros((2, len(self.z), c))
        z[:, old], w[:, old] = self.z, self.w
        squares = np.zeros(c)
        squares[old] = self.squares
        span = None if self.span is None else self.span.with_outputs(at, c)
        return replace(self, z=z, w=w, squares=squares, span=span)

    def leverage(self, A: Floats) -> Floats:
        """aᵀ P a for each row of A, (n,); infinite until full rank."""
        if self.span is not None:
            return np.full(A.shape[0], np.inf)
        V = linalg.whitened(A, self.R)
        return np.asarray(np.einsum("ij,ij->i", V, V))

    def _block(self, A: Floats, b: Floats, raw: Floats) -> tuple["Triangle", Floats]:
        """One block of rows of noise 1."""
        if self.span is None:
            R, z, w, errors, left = absorb(self.R, self.z, self.w, A, b)
            return Triangle(R, z, w, self.squares + left, self.ridge, None), errors
        taken_span = self.span.absorb(A, b, raw)
        span = taken_span.span
        R, z, _ = linalg.take_in(self.R, self.z, A, b)
        squares = self.squares + taken_span.left
        done = span.full and bool(np.abs(np.diagonal(R)).min() > _LEAST)
        w = linalg.solve_upper(R, z) if done else span.solution()
        memory = replace(self, R=R, z=z, w=w, squares=squares, span=None if done else span)
        return memory, taken_span.errors


def _width(p: int) -> int:
    """Rows a block: wide enough for BLAS 3, narrow enough that the n × n part stays small."""
    return 64 if p <= 64 else 128 if p <= 512 else 256 if p <= 2048 else 1024


def _as_array(ridge: Any) -> Array:
    try:
        return np.asarray(ridge)
    except ValueError:  # rows of several lengths
        return np.empty(0, dtype=object)


def _root(ridge: Floats, p: int) -> tuple[Floats, bool]:
    """Rows whose Gram matrix is ``ridge``, and whether they are its Cholesky factor."""
    good = ridge.shape == (p, p) and ridge.dtype.kind in "iuf" and np.isfinite(ridge).all()
    if not good or not np.allclose(ridge, ridge.T):
        raise ParameterError(
            f"SquareRoot: `ridge` must be a number >= 0 or a symmetric matrix of shape ({p}, {p}), "
            f"got an array of shape {ridge.shape}. Give one row and column for each feature."
        )
    values, vectors = np.linalg.eigh(ridge.astype(np.float64))
    least = p * np.finfo(np.float64).eps * float(np.abs(values).max(initial=0.0))
    if (values < -least).any():
        raise ParameterError(
            "SquareRoot: `ridge` must be positive semidefinite, got an eigenvalue of "
            f"{values.min():g}. Give a matrix such as A.T @ A."
        )
    try:
        return np.linalg.cholesky(ridge).T, True
    except np.linalg.LinAlgError:
        positive = values > least
        return np.sqrt(values[positive])[:, None] * vectors[:, positive].T, False
