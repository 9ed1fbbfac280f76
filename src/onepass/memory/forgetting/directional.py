"""Directional forgetting: only in the directions that the rows excite (SIFt-RLS).

After each block of n rows of the stream (at fixed rows, independent of the division into blocks by
the caller), with R₀ᵀR₀ the information before the block and A (n × p) its rows, √s_k [1, x_k − x̄]:

    A = Σ_i u_i σ_i v_iᵀ,   retain i if σ_i > √(ε Σ_k s_k)                                  (1)
    F = [v_i],   Q = orth(R₀ F)                                                             (2)
    RᵀR = R₀ᵀ (I − (1 − λⁿ) Q Qᵀ) R₀ + Σ_i v_i σ_i² v_iᵀ                                    (3)

so that the information about directions that are unexcited in the block does not fade, and these
directions are not learned. With ``block=1`` this is the algorithm of the paper, row by row. R is
computed from R₀ by orthogonal transformations only: the directions of Q are rotated into the first
rows, these are multiplied by √λⁿ, and the result is made triangular again. The targets of the other
rows of R₀ are the predictions of the weights before the block, so that forgetting does not change
the weights. Within a block rows are learned without forgetting, one after the other: forgetting in
the directions of later rows would leak these rows into the predictions before them.

The directions depend on the units of the features. In (1) and (2) the unit of a feature is its root
mean square over the rows in which it was excited, and, with an intercept, features are relative to
their means before the block; so predictions do not depend on the user's units. With
``scaled=False`` the user's units are used, as in the paper.

Cost: O(p²) per row and O(p³) per block; O(p² + block · p) memory, for the rows of the current
block.

[1] B. Lai, D. S. Bernstein, "SIFt-RLS: Subspace of Information Forgetting Recursive Least Squares",
    arXiv:2404.10844, 2024.

The intercept is part of the triangle, because this rule has no running means. The rows are √s_k [1,
x_k − r] and √s_k (y_k − r_y), where r is any row: the intercept is free, so that the choice does
not matter, and differences from a similar row lose no digits. The intercept's column is the first
and has no ridge. So the triangle

    R = [ρ  ρ (x̄ − r)ᵀ]     z = [ρ (ȳ − r_y)]                                              (4)
        [0      R₁     ]         [    z₁     ]

contains in R₁ and z₁ the triangle of the rows centred at their means x̄ and ȳ, and in ρ² the sum of
their weights, from which predictions are computed. If R₁ is singular, because there is no ridge,
the least-norm solution is computed, in units of the size of each column. The rank is determined in
these units too, and a column is empty if it is no larger than the rounding error of its feature.
Cost: O(p²) per row, O(p³) while R₁ is singular, O(p²) memory.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from scipy.linalg import lapack, qr_multiply

from onepass import linalg, validation
from onepass.errors import ParameterError
from onepass.linalg.centering import Centering
from onepass.linalg.update import absorb
from onepass.memory.floor import Floor
from onepass.memory.forgetting.exponential import DecayRate, Learned, LeastSquaresState, NewRows
from onepass.memory.span import Span
from onepass.memory.square_root import Triangle
from onepass.types import Array, Floats

__all__ = ["Directional", "DirectionalState", "JointTriangle", "joined", "sifted", "taken_in"]


_WIDTH = 128  # rows absorbed at a time
_SAFE = 1e-7  # minimum reciprocal condition number of a triangle that is solved directly
_CLEAN = 1e-6  # minimum diagonal entry relative to its column, if there is a penalty
_DISTINCT = 1e-6  # larger pivots determine the rank without an SVD
_EPS = float(np.finfo(np.float64).eps)


@dataclass(frozen=True, eq=False, slots=True)
class JointTriangle:
    """The triangle (4) of coefficients and intercept.

    Parameters
    ----------
    R : ndarray of shape (p, p)
        Upper triangle, p = d + 1 with an intercept, else d.
    z : ndarray of shape (p, c)
    squares : ndarray of shape (c,)
        The least sum of squares.
    mass : float
        The effective number of rows.
    features, targets : ndarrays of shape (d,) and (c,)
        r and r_y; zeros without an intercept.
    largest : ndarray of shape (d,)
        The maximum magnitude of each feature, to which its rounding error is relative.
    free : bool
        Whether there is an intercept.
    loose : bool
        Whether the penalty leaves directions undetermined.
    """

    R: Floats
    z: Floats
    squares: Floats
    mass: float
    features: Floats
    targets: Floats
    largest: Floats
    free: bool
    loose: bool

    @classmethod
    def start(cls, memory: Triangle, *, free: bool) -> "JointTriangle":
        """The state before the first row, with the penalty in the triangle of ``memory``."""
        d, c = memory.z.shape
        p = d + free
        R: Floats = np.zeros((p, p), order="F")
        R[free:, free:] = memory.R
        none, zeros = np.zeros(d), np.zeros(c)
        loose = memory.span is not None
        return cls(R, np.zeros((p, c)), zeros, 0.0, none, zeros, none, bool(free), loose)

    def rows(self, X: Floats, b: Floats, roots: Floats) -> tuple[Floats, Floats]:
        """Rows relative to r and r_y: A (n, p) and targets (n, c), weighted."""
        A = X - self.features
        if self.free:
            A = np.where(np.abs(A) <= 4.0 * _EPS * np.abs(X), 0.0, A)  # only rounding errors
            A = np.column_stack((np.ones(len(X)), A))
        return A * roots[:, None], (b - self.targets) * roots[:, None]

    def around(self, x: Floats, b: Floats) -> "JointTriangle":
        """The initial state relative to a row x with targets b."""
        if not self.free:
            return self
        return replace(self, features=x.astype(np.float64), targets=b.astype(np.float64))

    def centred(self) -> "JointTriangle":
        """The same triangle relative to the means: the intercept's row has no other entries."""
        if not self.free or self.R[0, 0] == 0.0:
            return self
        features = self.features + self.R[0, 1:] / self.R[0, 0]
        targets = self.targets + self.z[0] / self.R[0, 0]
        R, z = self.R.copy(order="F"), self.z.copy(order="F")
        R[0, 1:] -= self.R[0, 0] * (features - self.features)
        z[0] -= self.R[0, 0] * (targets - self.targets)
        return replace(self, R=R, z=z, features=features, targets=targets)

    def noting(self, X: Floats) -> "JointTriangle":
        """Update the maximum magnitudes with rows X."""
        largest = np.maximum(self.largest, np.abs(X).max(axis=0, initial=0.0))
        return replace(self, largest=largest)

    @property
    def calm(self) -> bool:
        """Whether the triangle is well conditioned, so that it can be solved directly."""
        if self.R[0, 0] == 0.0:
            return False
        size = linalg.norms(self.R)
        if not self.loose:
            return bool((np.abs(np.diagonal(self.R)) > _CLEAN * size).all())
        inner = size[self.free :]
        if (inner <= self._rounding()).any():
            return False
        return bool(lapack.dtrcon(self.R / np.where(size > 0.0, size, 1.0))[0] > _SAFE)

    def calm_rows(self, A: Floats) -> int:
        """Number of leading rows of A that leave the triangle well conditioned; 0 if it is not."""
        if not self.calm:
            return 0
        large = np.abs(A) * _CLEAN > np.abs(np.diagonal(self.R))
        return int(np.argmax(large.any(axis=1))) if large.any() else len(A)

    def solution(self) -> Floats:
        """The intercept, relative to r and r_y, and the coefficients: (p, c)."""
        if self.calm:
            return linalg.solve_upper(self.R, self.z)
        if self.free and self.R[0, 0] == 0.0:
            return np.zeros(self.z.shape)
        w, _ = self._inner()
        if not self.free:
            return w
        return np.vstack(((self.z[:1] - self.R[:1, 1:] @ w) / self.R[0, 0], w))

    def absorb(
        self, A: Floats, b: Floats, X: Floats, roots: Floats
    ) -> tuple["JointTriangle", Floats]:
        """Add rows, one after the other; return the error of each just before, (n, c).

        ``X`` and ``roots`` are the inputs from which :meth:`rows` computed A.
        """
        errors, joint, i = np.empty(b.shape), self, 0
        while i < len(A):
            calm = joint.calm_rows(A[i : i + _WIDTH])
            rows = slice(i, i + max(calm, 1))
            if calm:
                w = linalg.solve_upper(joint.R, joint.z)
                R, z, _, errors[rows], left = absorb(joint.R, joint.z, w, A[rows], b[rows])
                joint = replace(joint, R=R, z=z, squares=joint.squares + left)
            else:
                errors[i] = b[i] - A[i] @ joint.solution()
                joint = joined(joint, A[rows], b[rows])
            mass = joint.mass + float(roots[rows] @ roots[rows])
            joint, i = replace(joint.noting(X[rows]), mass=mass), rows.stop
        return joint, errors

    def past(self, start: Floats, ridge: float | None) -> tuple[Triangle, Centering]:
        """The triangle of centred rows and the means, from which predictions are computed."""
        k = int(self.free)
        R, z = np.asfortranarray(self.R[k:, k:]), np.asfortranarray(self.z[k:])
        span: Span | None = None
        if self.calm:
            w = linalg.solve_upper(R, z)
        else:
            w, span = self._inner()
        memory = Triangle(R, z, w, self.squares, ridge, span)
        d, c = z.shape
        center = Centering.start(d, c, free=self.free)
        if not k or self.R[0, 0] == 0.0:
            return memory, replace(center, mass=self.mass)
        moved = self.R[0, 1:] / self.R[0, 0]
        targets = self.targets + self.z[0] / self.R[0, 0] + start.T @ (self.features + moved)
        return memory, replace(
            center,
            features=self.features + moved,
            features_rest=moved - ((self.features + moved) - self.features),
            targets=targets,
            mass=self.mass,
        )

    def grown(self, d: int, ridge: float) -> "JointTriangle":
        """Add features at the end, which were zero in all rows so far."""
        p, q = len(self.R), d + self.free
        R: Floats = np.zeros((q, q), order="F")
        R[:p, :p] = self.R
        R[np.arange(p, q), np.arange(p, q)] = np.sqrt(ridge)
        z, none = np.zeros((q, self.z.shape[1])), np.zeros(q - p)
        z[:p] = self.z
        return replace(
            self,
            R=R,
            z=z,
            features=np.append(self.features, none),
            largest=np.append(self.largest, none),
            loose=self.loose or ridge == 0.0,
        )

    def with_outputs(self, at: Array, c: int) -> "JointTriangle":
        """Extend to c outputs; those in columns ``at`` are new and were zero in all rows so far."""
        old = np.setdiff1d(np.arange(c), at)
        z, squares, targets = np.zeros((len(self.z), c)), np.zeros(c), np.zeros(c)
        z[:, old], squares[old], targets[old] = self.z, self.squares, self.targets
        return replace(self, z=z, squares=squares, targets=targets)

    @property
    def finite(self) -> bool:
        """Whether all numbers are finite."""
        return linalg.finite(self.R, self.z, self.squares)

    def _rounding(self) -> Floats:
        """The rounding errors of the columns, (d,)."""
        return np.asarray(16.0 * _EPS * np.sqrt(self.mass) * self.largest)

    def _inner(self) -> tuple[Floats, Span | None]:
        """Least-norm coefficients, and the span of the rows in units of the columns."""
        k = int(self.free)
        R, z = self.R[k:, k:], self.z[k:]
        # Under a penalty, columns as small as the rounding of their features are determined too.
        size, rounding = linalg.norms(R), self._rounding() * self.loose
        there = size > rounding
        unit = np.where(there, size, 1.0)
        M = np.where(there, R / unit, 0.0)
        least = 64.0 * _EPS * len(R) + 4.0 * float((rounding / unit)[there].max(initial=0.0))
        rows, y = _row_space(M, z, least)
        if len(rows) == len(R):
            return linalg.solve_upper(R, z), None
        Q, low = np.linalg.qr(rows.T)
        turn, T = np.linalg.qr(low.T)
        Q = Q * there[:, None]
        span = Span(Q, np.asfortranarray(T), turn.T @ y, 0.0, np.zeros(Q.shape[1]))
        return span.solution() / unit[:, None], span


def _row_space(M: Floats, z: Floats, least: float) -> tuple[Floats, Floats]:
    """Rows (r, p) and targets with the same least-squares solutions as M and z; r is the rank of M.

    Singular values up to ``least`` are zero. They are computed only if elimination with pivoting
    leaves the rank in doubt.
    """
    y, T, pivots = qr_multiply(M, z.T, pivoting=True)
    depth = np.abs(np.diagonal(T))
    rank = int((depth > least).sum())
    if not rank or (depth[rank - 1] > _DISTINCT and np.linalg.norm(T[rank:, rank:]) <= least):
        rows = np.empty((rank, len(M)))
        rows[:, pivots] = T[:rank]
        return rows, y.T[:rank]
    U, sigma, Vt = linalg.svd_both(M, whole=True)
    known = sigma > least
    return sigma[known, None] * Vt[known], U[:, known].T @ z


def taken_in(joint: JointTriangle, A: Floats, b: Floats) -> JointTriangle:
    """Add rows [A b] to the triangle, without computing their errors."""
    R, z, left = linalg.qr_update(joint.R, joint.z, A, b)
    return replace(joint, R=R, z=z, squares=joint.squares + left)


def joined(joint: JointTriangle, A: Floats, b: Floats) -> JointTriangle:
    """`taken_in` for rows of very different sizes, or if R is any square matrix.

    A reflection with a small pivot adds rounding errors of large rows to small ones. So the rows
    are first put in the order of the pivots of Gaussian elimination. Cost: O(p² (n + p)).
    """
    p = len(joint.R)
    M = np.vstack((np.hstack((joint.R, joint.z)), np.hstack((A, b))))
    used = np.flatnonzero(M[:, :p].any(axis=0))  # rows of R at other columns must stay empty
    q, R, z = len(used), np.zeros((p, p), order="F"), np.zeros_like(joint.z)
    M = M[:, np.append(used, np.arange(p, M.shape[1]))]
    if q:
        M = np.triu(lapack.dgeqrf(lapack.dlaswp(M, lapack.dgetrf(M[:, :q])[1]))[0])
    R[np.ix_(used, used)], z[used] = M[:q, :q], M[:q, q:]
    return replace(joint, R=R, z=z, squares=joint.squares + (M[q:, q:] ** 2).sum(axis=0))


_FAINTEST = 1e-60
_DEPENDENT = 1e-13


@dataclass(frozen=True)
class Directional(DecayRate):
    """Forgetting only in the directions that the rows excite.

    Parameters
    ----------
    factor : float, optional
        λ in (0, 1], for each row.
    block : int, default=16
        Number of rows after which the past fades, in all directions that these rows excite. With 1,
        the excited directions are those of a single row. With larger blocks, features that change
        together are forgotten together, and change is detected sooner.
    threshold : float, default=1e-6
        ε, >= 0: the mean square of a direction in a block up to which it counts as unexcited, and
        is neither forgotten nor learned.
    scaled : bool, default=True
        Whether each feature is measured in units of its own root mean square. False is the
        algorithm of the paper, which forgets little about features with small values.
    half_life : float, str or timedelta, optional
        Alternative to ``factor``: λ is one half for this duration. A number in the unit of
        ``time``, or, if ``time`` contains dates, a timedelta or text such as ``"1h"``.

    Raises
    ------
    ParameterError
        If not exactly one of factor and half-life is given, or a number is out of range.

    Examples
    --------
    >>> import onepass as op
    >>> X = np.random.default_rng(0).normal(size=(5000, 2))
    >>> X[500:, 1] = 0.0  # becomes unexcited
    >>> model = op.RLSRegressor(1e-3, op.forgetting.Directional(0.9)).fit(X, X @ [1.0, 2.0])
    >>> model.coef_.round(3)
    array([1., 2.])
    """

    block: int = 16
    threshold: float = 1e-6
    scaled: bool = True

    additive: ClassVar[bool] = False
    stores_rows: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        where = "forgetting.Directional"
        object.__setattr__(self, "block", validation.whole(self.block, "block", where, low=1))
        least = validation.in_range(self.threshold, "threshold", where, low=0.0)
        object.__setattr__(self, "threshold", least)
        if not isinstance(self.scaled, bool):
            raise ParameterError(
                f"{where}: `scaled` must be True or False, got {self.scaled!r}. Pass one of these."
            )

    @property
    def state(self) -> type:
        """The class of the state."""
        return DirectionalState

    def start(self, past: LeastSquaresState, least: Floats) -> "DirectionalState":
        """The initial state; the penalty is in the memory."""
        joint = JointTriangle.start(past.memory, free=past.centering.free)
        p, c = joint.z.shape
        none = np.zeros((0, p)), np.zeros((0, c))
        return DirectionalState(joint, joint, *none, 1.0, Floor.start(least))

    def learn(self, state: "DirectionalState", past: LeastSquaresState, rows: NewRows) -> Learned:
        """Learn rows one after the other."""
        fades, b, roots = self._fades(rows), rows.targets(rows.X, rows.Y), rows.roots
        prior, errors, i = past.prior, np.empty(b.shape), 0
        if past.centering.mass == 0.0:
            state = state.about(rows.X[0], b[0])
            prior = prior.after_first_row(rows.X[0])
        pseudo = prior.pseudo_rows(rows.X - state.now.features)
        cuts = [] if pseudo is None else pseudo.before.tolist()
        while i < len(b):
            if pseudo is not None and i in cuts:
                state = state.with_prior(pseudo.rows[pseudo.before == i])
            ends = [k for k in cuts if k > i]
            due = max(1, self.block - len(state.A))  # `block` may have been larger before
            part = slice(i, min([i + due, len(b), *ends[:1]]))
            X = rows.X[part].astype(np.float64, copy=False)
            state, weighted = state.added(X, b[part], roots[part], float(np.prod(fades[part])))
            errors[part] = weighted / roots[part, None]
            if i == 0 and past.centering.mass == 0.0:
                errors[0] = b[0]  # the prediction is that of w₀
            if len(state.A) >= self.block:
                state = state.ended(self.threshold, scaled=self.scaled)
            i = part.stop
        memory, centering = state.now.past(rows.start, past.memory.ridge)
        after = prior if pseudo is None else pseudo.prior
        return Learned(errors, LeastSquaresState(memory, centering, after), state)

    def _fades(self, rows: NewRows) -> Floats:
        if self.factor is not None:
            return np.full(len(rows.X), self.factor)
        return np.asarray(np.exp2(-validation.elapsed(rows.time, rows.last) / self.unit))


@dataclass(frozen=True, eq=False, slots=True)
class DirectionalState:
    """The state of :class:`Directional`.

    Parameters
    ----------
    before : JointTriangle
        The triangle before the current block, R₀.
    now : JointTriangle
        The triangle with the rows of the block so far, without forgetting.
    A : ndarray of shape (n, p)
        The rows of the block so far.
    b : ndarray of shape (n, c)
        The targets of these rows.
    fade : float
        λⁿ of these rows.
    seen : Floor
        Statistics of the size of each feature.
    """

    before: JointTriangle
    now: JointTriangle
    A: Floats
    b: Floats
    fade: float
    seen: Floor

    def about(self, x: Floats, b: Floats) -> "DirectionalState":
        """The initial state relative to a row x with targets b."""
        return replace(self, before=self.before.around(x, b), now=self.now.around(x, b))

    def with_prior(self, rows: Floats) -> "DirectionalState":
        """Add pseudo-rows (k, d), whose targets are the predictions of w₀."""
        A = np.column_stack((np.zeros((len(rows), int(self.now.free))), rows))
        b = np.zeros((len(rows), self.b.shape[1]))
        return replace(self, before=taken_in(self.before, A, b), now=taken_in(self.now, A, b))

    def added(
        self, X: Floats, b: Floats, roots: Floats, fade: float
    ) -> tuple["DirectionalState", Floats]:
        """Add rows of the block; also return the weighted error of each just before."""
        A, b = self.now.rows(X, b, roots)
        now, errors = self.now.absorb(A, b, X, roots)
        seen = self.seen.updated(X - now.features, X, roots**2, free=now.free)
        state = replace(
            self,
            now=now,
            A=np.vstack((self.A, A)),
            b=np.vstack((self.b, b)),
            fade=self.fade * fade,
            seen=seen,
        )
        return state, errors

    def ended(self, threshold: float, *, scaled: bool) -> "DirectionalState":
        """The state after the block: (1), (2), (3)."""
        start, weight = self.before, self.now.mass - self.before.mass
        unit = np.sqrt(self.seen.sizes) if scaled else np.ones(len(start.features))
        unit = np.concatenate((np.ones(int(start.free)), np.where(unit > 0.0, unit, 1.0)))
        U, sigma = _left_svd(self.A / unit)
        least = max(np.sqrt(threshold * weight), _DEPENDENT * sigma.max(initial=0.0))
        U = U[:, sigma > least]  # (1)
        rows = U.T @ self.A
        fade = max(self.fade, _FAINTEST)
        w = start.solution()
        e = self.b - self.A @ w
        outside = ((e - U @ (U.T @ e)) ** 2).sum(axis=0)  # residuals outside (3)
        R = sifted(start.R, (rows / unit / unit).T, fade) if fade < 1.0 else start.R
        joint = replace(
            self.now,
            R=R,
            z=R @ w,
            squares=start.squares * fade + outside,
            mass=start.mass * fade + (self.now.mass - start.mass),
        )
        joint = joined(joint, rows, U.T @ self.b).centred()  # (3)
        none = self.A[:0]
        return replace(self, before=joint, now=joint, A=none, b=self.b[:0], fade=1.0)

    def grown(self, d: int, ridge: float) -> "DirectionalState":
        """Add features at the end, which were zero in all rows so far."""
        more = d - len(self.now.features)
        return replace(
            self,
            before=self.before.grown(d, ridge),
            now=self.now.grown(d, ridge),
            A=np.hstack((self.A, np.zeros((len(self.A), more)))),
            seen=self.seen.grown(d, ridge),
        )

    def with_outputs(self, at: Array, c: int) -> "DirectionalState":
        """Extend to c outputs; those in columns ``at`` are new and were zero in all rows so far."""
        b = np.zeros((len(self.b), c))
        b[:, np.setdiff1d(np.arange(c), at)] = self.b
        before, now = self.before.with_outputs(at, c), self.now.with_outputs(at, c)
        return replace(self, before=before, now=now, b=b)

    @property
    def finite(self) -> bool:
        """Whether all numbers are finite."""
        return self.now.finite and self.before.finite and self.seen.finite


def sifted(R: Floats, F: Floats, fade: float) -> Floats:
    """Rows (p, p) with the Gram matrix Rᵀ (I − (1 − fade) QQᵀ) R, Q = orth(R F).

    Parameters
    ----------
    R : ndarray of shape (p, p)
        Upper triangle.
    F : ndarray of shape (p, r)
        The directions, of full rank; those without information in R are ignored.
    fade : float
        In (0, 1].
    """
    size = linalg.norms(R)
    known = np.flatnonzero(size)
    F = _unit(size[known, None] * F[known])
    if not F.size:
        return R
    # In echelon form, in units of R's columns, large entries of F do not hide small ones.
    T, order = _echelon(F)
    if len(T) == len(known):
        return np.asarray(R * np.sqrt(fade))
    known = known[order]
    G = _unit(R[:, known] / size[known] @ _unit(T.T), _DEPENDENT)
    if not G.size:
        return R
    # Reflections with the large entries of G first keep the digits of small entries of R.
    swaps = lapack.dgetrf(G)[1]
    H, _, tau = lapack.dgeqp3(lapack.dlaswp(G, swaps))[:3]
    r = int(np.sum(np.abs(np.diagonal(H)) > _DEPENDENT))
    R = lapack.dlaswp(R, swaps)
    turned: Floats = lapack.dormqr("L", "T", H[:, :r], tau[:r], R, lwork=max(1, 64 * len(R)))[0]
    turned[:r] *= np.sqrt(fade)
    return turned


def _echelon(F: Floats) -> tuple[Floats, Array]:
    """Rows (q, p) that span the columns of F, as an upper triangle; the order of the features.

    Large features come first, except for those that depend on larger ones.
    """
    keep, dependent = np.arange(len(F)), np.arange(0)
    while True:
        T, pivots = lapack.dgeqp3(F[keep].T)[:2]
        T, keep = np.triu(T), keep[pivots - 1]
        least = _DEPENDENT * linalg.norms(T)
        deep = np.abs(np.diagonal(T)) > least[: min(T.shape)]
        if deep.all():
            break
        q = int(np.argmin(deep))
        small = (np.arange(len(keep)) >= q) & (linalg.norms(T[q:]) <= least)
        keep, dependent = keep[~small], np.append(dependent, keep[small])
    order, q = np.append(keep, dependent), len(deep)
    if dependent.size:
        T = np.triu(lapack.dgeqrf(F[order].T)[0])
        T = np.where(np.abs(T) > _DEPENDENT * linalg.norms(T), T, 0.0)
    return T[:q], order


def _unit(G: Floats, least: float = 0.0) -> Floats:
    """The columns of G that are longer than ``least``, normalised."""
    size = linalg.norms(G)
    unit: Floats = G[:, size > least] / size[size > least]
    return unit


def _left_svd(A: Floats) -> tuple[Floats, Floats]:
    """Left singular vectors and singular values of A, accurate for columns of different sizes.

    By Jacobi rotations: bidiagonalisation adds rounding errors of large columns to small ones.
    """
    if not linalg.finite(A):
        raise np.linalg.LinAlgError("the matrix must be finite to compute singular values")
    wide = A.shape[0] < A.shape[1]
    size, U, V, work, _, failed = lapack.dgejsv(A.T if wide else A, joba=3, jobr=0)
    if failed:
        raise np.linalg.LinAlgError("the singular value decomposition did not converge")
    sigma: Floats = size * (work[0] / work[1])
    return V if wide else U, sigma
