"""SquareRoot: the triangle of QRD-RLS over all past rows; the memory of recursive least squares.

With rows (a_k, b_k), weights s_k and a forgetting factor λ, after n rows the weights are

    w_n = argmin over w of  Σ_k λ^(n−k) s_k (b_k − a_kᵀ w)² + λⁿ (w − w₀)ᵀ Π (w − w₀)        (1)

(EW-RLS, [1] (2)). The recursion ([1] (3), [2]) of P_n = (λⁿ Π + Σ_k λ^(n−k) s_k a_k a_kᵀ)⁻¹ and
w_n loses digits and symmetry. Instead, the state is the triangle [R z] with

    Rᵀ R = P⁻¹,   R (w − w₀) = z                                                            (2)
    [R z] ← √λⁿ · triangle of ([R z] and the block's rows √(s_k λ⁻ᵏ) [a_k b_k]), by QR       (3)

so that forgetting does not divide, and w is computed from the triangle, not accumulated. If the
past is tiny compared with a row, and until full rank if Π = 0, a span is used instead
(:class:`~onepass.memory.rebased.Rebased`).
Cost: O(p²) time per row, O(p²) memory.

[1] Y. Min, K. Ahn, N. Azizan, "One-Pass Learning via Bridging Orthogonal Gradient Descent and
    Recursive Least-Squares", CDC 2022.
[2] "Online least-squares", lecture notes; recursive least squares by the matrix inversion lemma.
[3] A. H. Sayed, "Fundamentals of Adaptive Filtering", 2003; QRD-RLS.

Prior: regularisation of each coefficient in units of its feature.

A ridge is in the units of the features: one that suits a 0/1 column is far too large for a feature
of size 1e-3. In a stream these units are not known in advance. So the first row in which a feature
differs from its mean sets them: just before that row k is learned, the pseudo-row

    √level · |x_kj − x̄_j| e_j,   with the target e_jᵀ w₀                                    (1)

is added, which draws w_j to its initial value with the weight of ``level`` rows. Predictions on
wide tables, in particular of categories, are stable from the first rows; after many rows the
pseudo-row has no effect. The result depends neither on the units of the features nor on the
division of the stream into blocks.

A merge removes the other learner's prior, which must not count twice. So this module tracks the
remaining shares of the ridge, of each pseudo-row, and of everything before the first row, which
decrease with forgetting.
Cost: O(p²) once for each feature, O(p) memory.
"""

from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np

from onepass import linalg, validation
from onepass.errors import ParameterError
from onepass.linalg.centering import Centering
from onepass.linalg.update import Step, absorb, fade, row_by_row
from onepass.memory.rebased import Rebased
from onepass.memory.span import Span
from onepass.types import Array, ArrayLike, ArrayOrTensor, Floats, Kind

__all__ = ["Prior", "PseudoRows", "SquareRoot", "Triangle"]


# Smallest safe ratio of a diagonal entry of R to the size of a row in that weight:
_SHARP = 1e-4  # if the entry contains little more than the ridge
_SHARP_FADING = 1e-6  # if the entry contains rows that fade
_DULL = 1e-13  # if the entry contains rows that do not fade
_DOUBTED = 1e-8  # if it contains such rows, but the span has not seen all directions
_CALM = 4.0  # above this multiple of the ratio the triangle replaces the span again
_FAINTEST = 1e-300  # smallest share of the ridge of a new weight
_LEAST = 1e-200  # smaller diagonal entries have lost digits


@dataclass(frozen=True)
class SquareRoot:
    """All past rows in the p × p square root of P⁻¹: recursive least squares.

    Parameters
    ----------
    ridge : float or ndarray of shape (p, p), default=1e-6
        Π of (1): ``ridge`` · I, or a symmetric positive semidefinite matrix.

    Raises
    ------
    ParameterError
        If ridge is negative or not positive semidefinite.
    """

    merging: ClassVar[str] = "refused"

    ridge: Any = 1e-6

    def start(
        self,
        p: int,
        c: int,
        noise: float = 1.0,
        dtype: Kind = np.float64,
        *,
        free: bool = False,
    ) -> "Triangle":
        """The initial state, for p weights per output and c outputs; always in float64.

        With ``free`` a span has an additional first column for the intercept.
        """
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
            ridge = validation.in_range(self.ridge, "ridge", "SquareRoot", low=0.0)
            R[np.arange(p), np.arange(p)] = np.sqrt(ridge)
            span = None if ridge > 0 else Rebased.start(p, c, free=free)
            return Triangle(R, zero, zero, squares, ridge, span)
        rows, definite = _root(given, p)
        if definite:
            return Triangle(np.asfortranarray(rows), zero, zero, squares, None, None)
        span = Rebased.start(p, c, free=free)
        span = replace(span, units=np.ones(len(span.units)))
        A = np.hstack((np.zeros((len(rows), int(free))), rows))
        none, ones = np.zeros((len(rows), c)), np.ones(len(rows))
        empty = Triangle(R, zero, zero, squares, None, span)
        return empty.spanned(A, none, ones, np.abs(A), centred=(rows, none, ones))[0]


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
        The least value of (1), including the penalty; if there is a span, see ``least``.
    ridge : float or None
        The prior of weights that :meth:`grown` adds; None if the ridge was a matrix.
    span : Rebased or None
        If there is a span, w is its solution; R and z absorb the same rows, until they are accurate
        enough to replace the span. A Span in former files, and for rules without fading.
    """

    exact_in_blocks: ClassVar[bool] = True
    lost: ClassVar[None] = None

    R: Floats
    z: Floats
    w: Floats
    squares: Floats
    ridge: float | None
    span: Any

    @property
    def rank(self) -> int:
        """The number of directions that rows or the prior determine."""
        return len(self.R) if self.span is None else int(self.span.rank - self.span.free)

    def learn(self, w: Floats, G: Floats, e: Floats, noise: Floats, *, group: int = 1) -> Step:
        """The update equation with R = ``noise`` > 0, for a block of gradients and errors.

        Parameters
        ----------
        w : ndarray of shape (p, c) or (p,)
            The weights, w₀ + ``self.w``.
        G : ndarray of shape (p, n)
        e : ndarray of shape (n, c) or (n,)
        noise : ndarray of shape (n,)
            All positive, for example λᵏ.
        group : int
            The number of neighbouring columns of G that belong to one row.
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

    @property
    def least(self) -> Floats:
        """The least sum of squares, (c,)."""
        return self.span.squares if isinstance(self.span, Rebased) else self.squares

    def unexplained(self, more: Floats) -> "Triangle":
        """Increase the least sum of squares by ``more``, (c,)."""
        span = self.span
        span = None if span is None else replace(span, squares=span.squares + more)
        return replace(self, squares=self.squares + more, span=span)

    def forgetting_bound(self, new: ArrayOrTensor, old: ArrayOrTensor) -> float:
        """Return 0.0: no bound is known."""
        del new, old
        return 0.0

    def absorb(
        self, A: Floats, b: Floats, scale: Floats, raw: Floats | None = None
    ) -> tuple["Triangle", Floats]:
        """Add rows scale_k [a_k b_k]; return the errors b_k − a_kᵀ w_{k−1}, (n, c).

        Parameters
        ----------
        A : ndarray of shape (n, p)
        b : ndarray of shape (n, c)
            Relative to w₀: b_k = y_k − a_kᵀ w₀.
        scale : ndarray of shape (n,)
            √(s_k λ⁻ᵏ) > 0.
        raw : ndarray of shape (n, p), optional
            The original rows, if A are centred: their rounding errors are relative to these.
        """
        weight, memory = scale[:, None], self
        raw = np.abs(A) if raw is None else raw
        errors, i, n, width = np.empty(b.shape), 0, len(A), _width(A.shape[1])
        while i < n:
            if memory.span is None:
                calm = memory.calm_rows(A[i : i + width], scale[i : i + width])
                if not calm:
                    memory = memory.rebased()
                    continue
                rows = slice(i, i + calm)
                B = np.multiply(A[rows], weight[rows], order="F")
                R, z, w, e, left = absorb(memory.R, memory.z, memory.w, B, b[rows] * weight[rows])
                memory = Triangle(R, z, w, memory.squares + left, memory.ridge, None)
                errors[rows] = e / weight[rows]
            else:
                rows = slice(i, i + width)
                memory, errors[rows] = memory.spanned(A[rows], b[rows], scale[rows], raw[rows])
                memory = memory.settled()
            i = rows.stop
        return memory, errors

    def spanned(
        self,
        A: Floats,
        b: Floats,
        scale: Floats,
        raw: Floats,
        level: Floats | None = None,
        centred: tuple[Floats, Floats, Floats] | None = None,
    ) -> tuple["Triangle", Floats]:
        """Add rows to the span, as :meth:`onepass.memory.rebased.Rebased.absorb` does.

        ``centred`` contains the same rows centred, with targets and scales, for the triangle.
        """
        span, errors, added = self.span.absorb(A, b, scale, raw, level)
        X, y, roots = (A, b, scale) if centred is None else centred
        R, z, left = linalg.qr_update(self.R, self.z, X * roots[:, None], y * roots[:, None])
        for row, target in added:
            R, z, _ = linalg.qr_update(R, z, row[None, int(span.free) :], target[None])
        w = span.solution()[int(span.free) :]
        return replace(self, R=R, z=z, w=w, squares=self.squares + left, span=span), errors

    def calm_rows(self, A: Floats, scale: Floats, *, fading: bool = False) -> int:
        """Number of leading rows that the triangle can absorb without losing earlier information.

        A row is too large if its rounding errors would outweigh the earlier rows in some weight; it
        is absorbed by a span instead. A large row at the beginning is calm on its own if each
        rotation leaves a row that is as small as the part of the triangle that it replaces.
        """
        reach = np.abs(np.diagonal(self.R)) / self._sharpness(fading=fading)
        sizes = np.abs(A) * scale[:, None]
        if (sizes.max(axis=0, initial=0.0) <= reach).all():
            return len(A)
        calm = int(np.argmax((sizes > reach).any(axis=1)))
        return calm or int(self._replaces(A[0] * scale[0]))

    def _replaces(self, a: Floats) -> bool:
        """Whether rotations reduce a row, column by column, as fast as the diagonal decreases.

        With v = R⁻ᵀ a, the rotations up to column k divide the row, and its rounding errors of
        about ε (|a| + √(v²ᵀ R²)), by √(1 + v₁² + … + v_k²), where v_k of rounding size count as 0.
        Multiples of earlier rows are not reduced. A row that is large compared with whole columns
        of R is not examined.
        """
        with np.errstate(over="ignore", invalid="ignore"):
            if (_SHARP * np.abs(a) > linalg.norms(self.R)).any():
                return False
            v, depth = linalg.whitened(a[None], self.R)[0], np.abs(np.diagonal(self.R))
            errors = np.abs(a) + np.sqrt(v**2 @ self.R**2)
            sure = np.where(np.abs(v) * depth > _SHARP * errors, v, 0.0)
            reduced = np.sqrt(1.0 + np.cumsum(sure**2))
            return bool(np.isfinite(errors).all() and (_SHARP * errors <= depth * reduced).all())

    def _sharpness(self, *, fading: bool) -> Floats:
        """Smallest safe ratio of each diagonal entry to the size of a row, (p,)."""
        depth = np.abs(np.diagonal(self.R))
        prior = 4.0 * np.sqrt((self.ridge or 0.0) * len(depth))
        return np.where(depth > prior, _SHARP_FADING if fading else _DULL, _SHARP)

    def rebased(self, center: Centering | None = None) -> "Triangle":
        """Make the present information the base of a span.

        If ``center`` contains means with an intercept, a new span has a column for the intercept.
        """
        if self.span is not None:
            return replace(self, span=self.span.rebased())
        if center is None or not center.free:
            mass = center.mass if center is not None and center.mass > 0.0 else 1.0
            span = Rebased.of_triangle(self.R, self.w, mass)
            return replace(self, span=replace(span, squares=self.squares))
        d, c = self.z.shape
        R, w = np.zeros((d + 1, d + 1), order="F"), np.zeros((d + 1, c))
        R[0, 0], R[1:, 1:], w[1:] = np.sqrt(center.mass), self.R, self.w
        span = Rebased.of_triangle(R, w, center.mass, free=True)
        span = replace(
            span,
            squares=self.squares,
            center=np.vstack((center.features, center.features_rest)),
            targets=np.vstack((center.targets, center.targets_rest)),
        )
        return replace(self, span=span)

    def settled(self, mass: float = 0.0, *, fading: bool = False) -> "Triangle":
        """Remove the span if the triangle is accurate enough without it.

        ``mass`` is the weight of the rows. After a gap, rows can be much larger than the triangle
        or some of its columns.
        """
        span = self.span
        if span is None or not (span.full or span.phi > 0.0):
            return self
        rows = np.sqrt(mass) * span.units[int(span.free) :]
        size, depth = np.maximum(linalg.norms(self.R), rows), np.abs(np.diagonal(self.R))
        sharpness = self._sharpness(fading=fading)
        if not span.full and not fading:  # entries above the ridge may be rounding errors
            sharpness = np.maximum(sharpness, _DOUBTED)
        least = np.maximum(_CALM * sharpness * size, _LEAST)
        if not (depth > least).all():
            return self
        return replace(self, w=linalg.solve_upper(self.R, self.z), span=None)

    def faded(self, factor: float) -> "Triangle":
        """Multiply the weight of all rows, and of the prior, by ``factor``."""
        if factor == 1.0:
            return self
        squares = self.squares * factor
        if self.span is None:
            R, z = fade(self.R, self.z, factor)
            return replace(self, R=R, z=z, squares=squares)
        root, span = np.sqrt(factor), self.span.faded(factor)
        return replace(self, R=self.R * root, z=self.z * root, squares=squares, span=span)

    def current(self) -> "Triangle":
        """Convert the span of a former file format to the present one."""
        if not isinstance(self.span, Span):
            return self
        return replace(self, span=replace(Rebased.of_span(self.span), squares=self.squares))

    def grown(
        self, p: int, center: Centering | None = None, share: float | Floats = 1.0
    ) -> "Triangle":
        """Add weights at the end under the prior ``ridge``, whose features were zero in all rows.

        Parameters
        ----------
        p : int
        center : Centering, optional
            The means of the centred rows.
        share : float or ndarray
            The remaining share of the prior of each new weight.
        """
        if self.ridge is None:
            raise ParameterError(
                f"SquareRoot: `ridge` must be a number if features are added later, got a matrix "
                f"for {len(self.z)} of now {p} features. Pass a number, or all features at once."
            )
        share = np.maximum(share, _FAINTEST)
        old, c = self.z.shape
        R = np.zeros((p, p), order="F")
        R[:old, :old] = self.R
        R[np.arange(old, p), np.arange(old, p)] = np.sqrt(self.ridge * share)
        extra = np.zeros((p - old, c))
        z, w = np.vstack((self.z, extra)), np.vstack((self.w, extra))
        grown = replace(self, R=R, z=z, w=w)
        if self.ridge > 0.0 and self.span is None:
            return grown
        before = self.current() if self.span is not None else self.rebased(center)
        return replace(grown, span=before.span.grown(p, self.ridge * share))

    def with_outputs(self, at: Array, c: int) -> "Triangle":
        """Extend to c outputs; those in columns ``at`` are new and were zero in all rows so far."""
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
            return np.asarray(self.span.leverage(A))
        V = linalg.whitened(A, self.R)
        return np.asarray(np.einsum("ij,ij->i", V, V))


def _width(p: int) -> int:
    """Rows per block: enough for BLAS 3, but so few that the n × n part remains small."""
    return 64 if p <= 64 else 128 if p <= 512 else 256 if p <= 2048 else 1024


def _as_array(ridge: ArrayLike) -> Array:
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
            f"got an array of shape {ridge.shape}. Pass one row and column for each feature."
        )
    values, vectors = np.linalg.eigh(ridge.astype(np.float64))
    least = p * np.finfo(np.float64).eps * float(np.abs(values).max(initial=0.0))
    if (values < -least).any():
        raise ParameterError(
            "SquareRoot: `ridge` must be positive semidefinite, got an eigenvalue of "
            f"{values.min():g}. Pass a matrix such as A.T @ A."
        )
    try:
        return np.linalg.cholesky(ridge).T, True
    except np.linalg.LinAlgError:
        positive = values > least
        return np.sqrt(values[positive])[:, None] * vectors[:, positive].T, False


class PseudoRows(NamedTuple):
    """Pseudo-rows to be inserted among the rows of a block."""

    prior: "Prior"
    """The prior after the block."""
    before: Array
    """The index of the row before which each pseudo-row is inserted, (k,), in order."""
    rows: Floats
    """(k, p)."""


@dataclass(frozen=True, eq=False, slots=True)
class Prior:
    """Which features have been seen, and the remaining weight of the prior.

    Parameters
    ----------
    level : float
        The weight of each coefficient's prior, in rows; 0 for the ridge only.
    seen : ndarray of bool of shape (p,)
        Features that have differed from their mean.
    pseudo_lengths : ndarray of shape (p,)
        Lengths of the pseudo-rows (1), faded until now.
    share : ndarray of shape (p,)
        The remaining share of the ridge of each coefficient, in [0, 1].
    first : ndarray of shape (p,)
        The very first row, if it only set the means, else zeros.
    remains : float
        The remaining share of the weight of everything before the first row, in [0, 1].
    """

    level: float
    seen: Array
    pseudo_lengths: Floats
    share: Floats
    first: Floats
    remains: float

    @classmethod
    def start(cls, level: float, p: int) -> "Prior":
        """The state before the first row."""
        return cls(level, np.zeros(p, dtype=bool), np.zeros(p), np.ones(p), np.zeros(p), 1.0)

    @property
    def unseen(self) -> Floats:
        """1 for each feature whose first row adds a pseudo-row, else 0, (p,)."""
        return np.asarray(1.0 - self.seen if self.level else np.zeros(len(self.seen)))

    def after_first_row(self, x: Floats) -> "Prior":
        """The state after the very first row x (p,), which only set the means."""
        return replace(self, first=x.astype(np.float64)) if self.level else self

    def faded(self, factor: float) -> "Prior":
        """Multiply the weight of the past by ``factor``."""
        if factor == 1.0:
            return self
        pseudo_lengths, share = self.pseudo_lengths * np.sqrt(factor), self.share * factor
        return replace(
            self, pseudo_lengths=pseudo_lengths, share=share, remains=self.remains * factor
        )

    def with_pseudo_rows(self, rows: Floats) -> "Prior":
        """Record pseudo-rows (k, p), weighted as they were added."""
        return replace(
            self, pseudo_lengths=self.pseudo_lengths + np.abs(rows).sum(axis=0)
        )  # one pseudo-row per feature

    def pseudo_rows(self, X: Floats) -> PseudoRows | None:
        """The pseudo-rows (1) to be inserted among centred rows X (n, p), or None."""
        if not self.level or self.seen.all():
            return None
        unseen = np.flatnonzero(~self.seen)
        there = X[:, unseen] != 0.0
        new = there.any(axis=0)
        if not new.any():
            return None
        columns, first = unseen[new], there[:, new].argmax(axis=0)
        order = np.argsort(first, kind="stable")
        columns, first = columns[order], first[order]
        rows = np.zeros((len(columns), X.shape[1]))
        rows[np.arange(len(columns)), columns] = np.sqrt(self.level) * np.abs(X[first, columns])
        seen = self.seen.copy()
        seen[columns] = True
        return PseudoRows(replace(self, seen=seen), first, rows)

    def grown(self, p: int) -> "Prior":
        """Add features at the end, which have not been seen."""
        none = np.zeros(p - len(self.seen))
        return replace(
            self,
            seen=np.append(self.seen, none.astype(bool)),
            pseudo_lengths=np.append(self.pseudo_lengths, none),
            share=np.append(self.share, none + self.remains),
            first=np.append(self.first, none),
        )
