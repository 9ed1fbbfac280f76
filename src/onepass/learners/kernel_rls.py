"""Kernel RLS: a Gaussian process, or kernel ridge regression, learned in one pass.

With a kernel k, a noise variance r and row weights s_k, predictions are those of the function

    argmin over f of  Σ_k s_k (y_k − f(x_k))² / r + ‖f‖²                                   (1)

in the Hilbert space of the kernel: the mean of a Gaussian process with covariance k. f is a
combination of the kernel functions of a *dictionary* of m rows. The state is the posterior N(μ, P)
of u = L⁻¹ f(dictionary), whose prior is N(0, I), with L Lᵀ the kernel matrix of the dictionary.
A row x has the features q = L⁻¹ k(dictionary, x), and the novelty γ² = k(x, x) − qᵀq, the part of
its kernel function outside the span of the dictionary [1]. A row joins the dictionary if
γ² > tolerance · k(x, x), which appends [qᵀ γ] to L, 0 to μ and 1 to P. Otherwise its novelty is
additional noise [2]. For a block of n rows with features Q (m × n) and noise R,

    C Cᵀ = Qᵀ P Q + R     V = P Q C⁻ᵀ     ν = C⁻¹ (y − Qᵀ μ)     μ ← μ + V ν               (2)

and P = S Sᵀ is stored as its square root ([3]; Potter's update if n = 1):

    S ← S − V (C + √R)⁻¹ Qᵀ S                                                              (3)

Forgetting moves the posterior back to the prior after each row [2]:

    μ ← √λ μ,     P ← λ P + (1 − λ) I                                                      (4)

so that the rows of a block are those of a process with covariance λ^(|i − j| / 2) k(x_i, x_j). Then
P itself is stored, since (4) has no cheap square root and keeps P ≥ (1 − λ) I.

If the dictionary exceeds its budget, one row i is dropped: that of the smallest change of f,

    α_i² / (K⁻¹)_ii,     α = L⁻ᵀ μ                                                     [2] (5)

which may be the newest. f does not change at the other rows of the dictionary. Of ten criteria,
(5) was among the best in each comparison (docs/results/kernel.md). Dropping rotates the basis by a
Hessenberg matrix H, whose last column is v = L⁻¹ e_i / ‖L⁻¹ e_i‖, so that L stays triangular;
products with H are cumulative sums.

Without noise, each new row of the dictionary is fitted exactly with the least change of f, and a
row in the span of the dictionary is not fitted: kernel ORFit, with a memory of m functions. A new
row then always replaces an older one.

Cost: O(md + m²) time per row, O(md + m²) memory. Single rows, and all rows once the dictionary is
full, are learned in a compiled state of :mod:`onepass.native` if it supports the kernel, with noise
and without forgetting; the equations are the same.

[1] Y. Engel, S. Mannor, R. Meir, "The kernel recursive least-squares algorithm", IEEE Transactions
    on Signal Processing 52(8), 2004.
[2] S. Van Vaerenbergh, M. Lázaro-Gredilla, I. Santamaría, "Kernel recursive least-squares tracker
    for time-varying regression", IEEE Transactions on Neural Networks and Learning Systems 23(8),
    2012; Algorithm 1, back-to-the-prior forgetting.
[3] A. Andrews, "A square root formulation of the Kalman covariance equations", AIAA Journal 6(6),
    1968.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, ClassVar, Literal, NamedTuple, Self, TypeAlias, overload

import numpy as np
from scipy.linalg import lapack
from scipy.spatial.distance import cdist

from onepass import linalg, native
from onepass.declared import CompiledState, State, param
from onepass.errors import MergeError, NumericalError, ParameterError, public
from onepass.learners.compiled import Compiled, row_format
from onepass.learners.estimator import Classifier, Layout, Regressor
from onepass.types import Array, Floats
from onepass.validation.table import TableLike

Kernel: TypeAlias = str | Callable[[Floats, Floats], Floats]

_ROWS = 64  # rows that are learned at once
_FLOOR = 1e-12  # smallest novelty, relative to k(x, x), above rounding errors
_NEVER = 1e200  # noise of a row that is not fitted
_LARGEST = 1e100  # kernel values and targets up to this bound have finite squares
_NARROW = 32  # features up to which distances are computed one by one, without cancellation
_FAR = 1e6  # as are those of rows that are far away: γ times squared distances from the first row


class _Update(NamedTuple):
    """Result of learning a block of n rows."""

    posterior: KernelPosterior
    errors: Floats
    """Prequential errors, (n, c)."""
    V: Floats
    nu: Floats
    deviations: Floats
    """Standard deviations of the errors: the diagonal of C, (n,)."""


@dataclass(frozen=True, eq=False, slots=True)
class KernelPosterior:
    """Posterior of a function at the rows of a dictionary.

    Parameters
    ----------
    points : ndarray of shape (m, d)
        Rows of the dictionary.
    L : ndarray of shape (m, m)
        Lower Cholesky factor of their kernel matrix.
    mean : ndarray of shape (m, c)
        μ.
    spread : ndarray of shape (m, k)
        S, or P if ``dense``.
    dense : bool
        Whether ``spread`` is P.
    inverse : ndarray of shape (m,)
        Diagonal of K⁻¹; empty if it was not needed so far.
    pruned : int
        Number of rows dropped from the dictionary.
    squares : ndarray of shape (c,)
        Sum of ν², with forgetting.
    mass : float
        Number of its terms, with forgetting.
    """

    points: Floats
    L: Floats
    mean: Floats
    spread: Floats
    dense: bool
    inverse: Floats
    pruned: int
    squares: Floats
    mass: float

    @classmethod
    def start(cls, d: int, c: int) -> KernelPosterior:
        """Return the prior, with an empty dictionary."""
        none = np.zeros((0, 0), order="F")
        return cls(
            points=np.zeros((0, d)),
            L=none,
            mean=np.zeros((0, c)),
            spread=none,
            dense=False,
            inverse=np.zeros(0),
            pruned=0,
            squares=np.zeros(c),
            mass=0.0,
        )

    @property
    def covariance(self) -> Floats:
        """P, (m, m)."""
        return self.spread if self.dense else self.spread @ self.spread.T

    @property
    def weights(self) -> Floats:
        """α: coefficients (m, c) of the kernel functions."""
        weights: Floats = linalg.solve_lower_transposed(self.L, self.mean)
        return weights

    def features(self, K: Floats) -> Floats:
        """Features Q (m, n) of rows, from their kernel (m, n) with the dictionary."""
        Q: Floats = linalg.solve_lower(self.L, K)
        return Q

    def variance(self, Q: Floats) -> Floats:
        """Variance qᵀPq of each column of Q, (n,)."""
        F = self.spread.T @ Q
        variances: Floats = np.einsum("ij,ij->j", Q if self.dense else F, F)
        return variances

    def in_form(self, *, dense: bool) -> KernelPosterior:
        """Return the same posterior with P or S stored."""
        if dense == self.dense:
            return self
        P = self.covariance
        return replace(self, spread=P if dense else linalg.cholesky(P)[0], dense=dense)

    def faded(self, left: float) -> KernelPosterior:
        """Return to the prior by (4), with P stored; ``left`` is λ to the number of rows."""
        spread = left * self.spread
        spread[np.diag_indices(len(spread))] += 1.0 - left
        squares, mass = left * self.squares, float(left * self.mass)
        return replace(
            self, mean=np.sqrt(left) * self.mean, spread=spread, squares=squares, mass=mass
        )

    def extended(self, points: Floats, q: Floats, T: Floats) -> KernelPosterior:
        """Add rows to the dictionary, with features q (m, a) and the triangle T (a, a) of L."""
        m, a = q.shape
        L = np.zeros((m + a, m + a), order="F")
        L[:m, :m], L[m:, :m], L[m:, m:] = self.L, q.T, T
        spread = np.zeros((m + a, self.spread.shape[1] + a))
        spread[:m, :-a], spread[m:, -a:] = self.spread, np.eye(a)
        mean = np.concatenate((self.mean, np.zeros((a, self.mean.shape[1]))))
        inverse = np.zeros(0)
        if a == 1 and len(self.inverse) == m:
            inverse = np.append(
                self.inverse + (linalg.solve_lower_transposed(self.L, q)[:, 0] / T[0, 0]) ** 2,
                T[0, 0] ** -2,
            )
        return replace(
            self,
            points=np.concatenate((self.points, points)),
            L=L,
            mean=mean,
            spread=spread,
            inverse=inverse,
        )

    def updated(self, Q: Floats, Y: Floats, noise: Floats, forgetting: float = 1.0) -> _Update:
        """Learn rows with features Q (m, n), targets Y (n, c) and noise (n,) by (2)-(4)."""
        n = len(Y)
        fade = np.sqrt(forgetting) ** np.arange(n + 1)
        errors = Y - fade[:n, None] * (Q.T @ self.mean)
        if self.dense:
            G, B = self.spread @ Q, Q.T @ Q
            lags = np.abs(np.subtract.outer(np.arange(n), np.arange(n)))
            S = fade[lags] * B - np.outer(fade[:n], fade[:n]) * (B - Q.T @ G)
            G = fade[:0:-1] * (Q + fade[:n] ** 2 * (G - Q))
            C = _triangle(S, noise)
        else:
            F, roots = self.spread.T @ Q, np.sqrt(noise)
            G = self.spread @ F
            if roots.all():
                C = roots[:, None] * linalg.lower_from_rows((F / roots).T)
            else:
                C = _triangle(F.T @ F, noise)
        nu = linalg.solve_lower(C, errors)
        V = linalg.solve_lower(C, G.T).T
        deviations = np.diagonal(C).copy()
        weights = np.where(deviations < np.sqrt(_NEVER), fade[:0:-1] ** 2, 0.0)
        if self.dense:
            before = self.faded(fade[n] ** 2)
            spread = before.spread - V @ V.T
        else:
            before = self
            spread = self.spread - V @ linalg.solve_lower(C + np.diag(roots), F.T)
        after = replace(
            before,
            mean=before.mean + V @ nu,
            spread=spread,
            squares=before.squares + weights @ nu**2,
            mass=before.mass + float(weights.sum()),
        )
        return _Update(after, deviations[:, None] * nu, V, nu, deviations)

    def with_inverse(self) -> KernelPosterior:
        """Return the same posterior with the diagonal of K⁻¹."""
        if len(self.inverse) == len(self.L):
            return self
        triangle = lapack.dtrtri(self.L, lower=1)[0]
        return replace(self, inverse=np.einsum("ij,ij->j", triangle, triangle))

    def changes(self) -> Floats:
        """Squared change (5) of f if each row of the dictionary is dropped, (m,)."""
        changes: Floats = (self.weights**2).sum(axis=1) / self.inverse
        return changes

    def without(self, i: int, Q: Floats) -> tuple[KernelPosterior, Floats]:
        """Drop row i of the dictionary; also return features Q (m, n) in the new basis."""
        m = len(self.L)
        unit = np.zeros((m, 1))
        unit[i] = 1.0
        v = linalg.solve_lower(self.L, unit)
        inverse = self.inverse
        if len(inverse) < m or (self.pruned + 1) % m == 0:  # computed anew, since errors add up
            inverse = np.zeros(0)
        else:
            column = linalg.solve_lower_transposed(self.L, v)[:, 0]
            inverse = np.delete(np.maximum(inverse - column**2 / column[i], 0.0), i)
            inverse = np.maximum(inverse, np.finfo(np.float64).tiny)
        L = np.zeros((m - 1, m - 1), order="F")
        L[:i, :i], L[i:, :i] = self.L[:i, :i], self.L[i + 1 :, :i]
        L[i:, i:] = np.tril(_rotated(self.L[i + 1 :, i:].T, v[i:], 0).T)
        spread = _rotated(self.spread, v, i)
        if self.dense:
            spread = _rotated(spread.T, v, i)
        elif m <= 32 or 4 * spread.shape[1] > 5 * m:  # each new row of the dictionary adds a column
            spread = np.asarray(np.linalg.qr(spread.T, mode="r")).T
        after = replace(
            self,
            points=np.delete(self.points, i, axis=0),
            L=L,
            mean=_rotated(self.mean, v, i),
            spread=spread,
            inverse=inverse,
            pruned=self.pruned + 1,
        )
        return after, _rotated(Q, v, i)

    def within(self, budget: float) -> KernelPosterior:
        """Drop rows of the smallest change of f until at most ``budget`` remain."""
        now = self
        while len(now.points) > budget:
            now = now.with_inverse()
            now, _ = now.without(int(np.argmin(now.changes())), np.zeros((len(now.points), 0)))
        return now


def _triangle(S: Floats, noise: Floats) -> Floats:
    """The Cholesky factor of S + diag(noise), to rounding errors of S."""
    for least in (0.0, 1e-13 * float(np.diagonal(S).max())):
        C, info = linalg.cholesky(S + np.diag(noise + least))
        if not info:
            return C
    raise np.linalg.LinAlgError


def _rotated(M: Floats, v: Floats, i: int) -> Floats:
    """The rows HᵀM without the last, for M (m, n), where rows of v (m, 1) before row i are 0."""
    v, below = v[i:], M[i:]
    norms = np.sqrt(np.cumsum(v * v, axis=0))
    sums = np.cumsum(v[:-1] * below[:-1], axis=0)
    turned = below[1:] * (norms[:-1] / norms[1:]) - sums * (v[1:] / norms[1:] / norms[:-1])
    return np.concatenate((M[:i], turned))


def _squared_distances(X: Floats, Y: Floats, gamma: float) -> Floats:
    """Squared Euclidean distances (n, m) of rows, to errors far below 1 / gamma."""
    if X.shape[1] > _NARROW and len(Y):
        A, B = X - Y[0], Y - Y[0]
        squares = np.einsum("ij,ij->i", A, A)[:, None] + np.einsum("ij,ij->i", B, B)
        if gamma * squares.max(initial=0.0) < _FAR:
            return np.asarray(np.maximum(squares - 2.0 * (A @ B.T), 0.0))
    return np.asarray(cdist(X, Y, "sqeuclidean"))


def _cosines(X: Floats, Y: Floats) -> Floats:
    """Cosines (n, m) of the angles between rows; 0 for rows of zeros."""
    units = []
    for rows in (X, Y):
        size = np.abs(rows).max(axis=1, initial=0.0)[:, None]
        scaled = rows / np.where(size > 0.0, size, 1.0)
        units.append(scaled / np.where(size > 0.0, np.linalg.norm(scaled, axis=1)[:, None], 1.0))
    return np.asarray(units[0] @ units[1].T)


_KERNELS: dict[str, Callable[[Floats, Floats, float, float, float], Floats]] = {
    "rbf": lambda X, Y, gamma, *_: np.exp(-gamma * _squared_distances(X, Y, gamma)),
    "laplacian": lambda X, Y, gamma, *_: np.exp(-gamma * cdist(X, Y, "cityblock")),
    "polynomial": lambda X, Y, gamma, degree, coef0: (gamma * (X @ Y.T) + coef0) ** degree,
    "linear": lambda X, Y, *_: X @ Y.T,
    "cosine": lambda X, Y, *_: _cosines(X, Y),
}
_KERNELS["poly"] = _KERNELS["polynomial"]
_SHIFT_INVARIANT = ("rbf", "laplacian")
_COMPILED = {"rbf": 0, "laplacian": 1, "linear": 2, "polynomial": 3, "poly": 3}  # kernel_type.c
_MAX_COMPILED = 1000  # rows of a dictionary; for more, BLAS with threads is faster


@dataclass(eq=False, repr=False)
class KernelRLS(Compiled):
    """Base class of the kernel RLS estimators."""

    _merge_parameters: ClassVar[tuple[str, ...]] = (
        "kernel",
        "noise",
        "forgetting",
    )

    kernel: Kernel = "rbf"
    _: KW_ONLY
    gamma: float | None = param(None, above=0.0)
    noise: float = param(0.1, low=0.0)
    budget: int | None = param(500, whole=True, low=1, optional=True)
    forgetting: float = param(1.0, above=0.0, high=1.0)
    tolerance: float = param(1e-3, low=0.0, high=1.0)
    degree: float = param(3.0, above=0.0)
    coef0: float = param(1.0, low=0.0)

    gamma_ = State[float]()
    kernel_ = State[tuple[str, float, float]]()
    """Name, degree and constant of the kernel; the name of a function is empty."""
    posterior_ = CompiledState[Any]()
    inconsistent_rows_ = State[int]()

    @property
    def dictionary_(self) -> Floats:
        """Rows of the dictionary, (m, d)."""
        points: Floats = self.posterior_.points.copy()
        return points

    @property
    def rank_(self) -> int:
        """Number m of rows in the dictionary: the rank of the kernel matrix, to the tolerance."""
        return len(self.posterior_.points)

    @property
    def dual_coef_(self) -> Floats:
        """Coefficients of the kernel functions of the dictionary, (m,) or (m, c)."""
        weights: Floats = self.posterior_.weights
        return weights[:, 0] if getattr(self, "target_ndim_", 2) == 1 else weights

    @property
    def scale_(self) -> Floats:
        """Root mean square (c,) of prequential errors, divided by their standard deviations.

        About 1 if the units of the targets suit the prior; otherwise deviations times ``scale_``
        suit the targets (the maximum-likelihood scale of the kernel and the noise).
        """
        posterior = self.posterior_
        return np.asarray(np.sqrt(posterior.squares / max(posterior.mass, 1.0)))

    def _start(self, d: int, c: int) -> None:
        self._limits()
        name = "" if callable(self.kernel) else self.kernel
        self.kernel_ = (name, float(self.degree), float(self.coef0))
        self.gamma_ = 1.0 / d if self.gamma is None else float(self.gamma)
        self.posterior_ = KernelPosterior.start(d, c)
        self.inconsistent_rows_ = 0

    def _limits(self) -> tuple[float, float, float, float]:
        """Noise, forgetting, tolerance and budget."""
        if not (callable(self.kernel) or self.kernel in _KERNELS):
            raise ParameterError(
                f"`kernel` must be one of {', '.join(_KERNELS)}, or a function of two "
                f"arrays of rows, got {self.kernel!r}",
                remedy="Choose one of these.",
            )
        budget = np.inf if self.budget is None else self.budget
        return float(self.noise), float(self.forgetting), max(self.tolerance, _FLOOR), budget

    def _kernel(self, X: Floats, Y: Floats) -> Floats:
        """Kernel (n, m) between rows."""
        name, degree, coef0 = self.kernel_
        if not (name or callable(self.kernel)):
            raise ParameterError(
                "`kernel` must stay a function, as when learning started, got "
                f"{self.kernel!r}. Call fit to start again."
            )
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            if not name:
                function: Any = self.kernel
                K = np.asarray(function(X, Y), dtype=np.float64) if len(Y) else X[:, :0]
            else:
                K = _KERNELS[name](X, Y, self.gamma_, degree, coef0)
        bad = K.shape != (len(X), len(Y)) or not linalg.finite(K)
        if bad or (Y is X and not linalg.magnitude(K) < _LARGEST):
            raise NumericalError(
                f"the kernel must return a value below {_LARGEST:g} for each pair of rows, got "
                f"shape {K.shape} with values up to {np.abs(K).max(initial=0.0):.3g} for {len(X)} "
                f"by {len(Y)} rows. Divide the features by a constant, check the kernel function, "
                "or use a whole `degree`."
            )
        return K

    def _learn(self, X: Floats, Y: Floats, s: Floats | None, class_mask: Array | None) -> Floats:
        del class_mask  # the targets of an unknown class are zeros, which is exact
        _, forgetting, *_ = self._limits()
        if linalg.magnitude(Y) > _LARGEST or (s is not None and s.min() < 1.0 / _LARGEST):
            raise self._too_large(Y)
        X, weights = X.astype(np.float64, copy=False), np.ones(len(X)) if s is None else s
        errors, state = np.empty(Y.shape), self._single
        posterior: Any = None
        if state is None:
            posterior = self.posterior_.in_form(dense=forgetting < 1.0)
        elif len(X) > 1:  # a row is learned entirely or not at all
            state = state.copy()
        m = state.m if posterior is None else len(posterior.L)
        with linalg.single_threaded(len(X) * m if len(X) < _ROWS else 0):
            try:
                posterior, state, inconsistent = self._learn_from(
                    posterior, state, X, Y, weights, errors
                )
            except np.linalg.LinAlgError as error:
                raise self._too_large(Y) from error
        if state is None:
            if not linalg.finite(posterior.mean, posterior.spread, posterior.squares, errors):
                raise self._too_large(Y)
            self.posterior_ = posterior
            self.inconsistent_rows_ += inconsistent
        elif state is not self._single:
            self._set_compiled(state)
        return Y - errors

    def _learn_from(
        self, posterior: Any, state: Any, X: Floats, Y: Floats, weights: Floats, errors: Floats
    ) -> tuple[Any, Any, int]:
        """Learn rows from a posterior or a compiled state, of which one is None, as is returned.

        Single rows, and rows after the dictionary is full, are learned in compiled code.
        """
        noise, *_, budget = self._limits()
        inconsistent = i = 0
        if state is None:
            posterior = posterior.within(budget)
        while i < len(X):
            if state is None and (len(X) == 1 or len(posterior.points) >= budget):
                state = self._compiled_state(posterior)
            width = _ROWS
            if state is not None and (len(X) == 1 or state.m >= budget):
                i += _learn_compiled(state, X[i:], Y[i:], weights[i:], errors[i:])
                width = 1  # for NumPy, which prunes more slowly
                if i == len(X):
                    return None, state, inconsistent
            if state is not None:
                posterior, state = self._read_all(state)["posterior_"], None
            rows = slice(i, i + width)
            posterior, errors[rows], missed = self._learn_rows(
                posterior, X[rows], Y[rows], noise / weights[rows]
            )
            inconsistent += missed
            i += width
        return posterior, None, inconsistent

    def _compiled_state(self, posterior: KernelPosterior) -> Any:
        """The state of :mod:`onepass.native`; None if it is not supported."""
        (noise, forgetting, *limits), loops = self._limits(), native.loops
        name, *constants = self.kernel_
        number = _COMPILED.get(name)
        if loops is None or number is None or noise == 0.0 or forgetting < 1.0:
            return None
        posterior = posterior.in_form(dense=False)
        (m, k), (_, d) = posterior.spread.shape, posterior.points.shape
        if m > min(_MAX_COMPILED, limits[-1]) or k > 2 * _MAX_COMPILED:
            return None
        arrays = (posterior.points.T, posterior.L, posterior.mean.T, posterior.spread.T)
        return loops.Kernel(
            number, self.gamma_, *constants, noise, *limits,
            (d, posterior.mean.shape[1]), row_format(self), m, k, posterior.pruned,
            len(posterior.inverse) == m, posterior.mass,
            (*map(np.ascontiguousarray, arrays), posterior.inverse, posterior.squares),
        )  # fmt: skip

    def _read_all(self, compiled: Any) -> dict[str, Any]:
        m, k, pruned, mass, *parts = compiled.get()
        points, L, mean, spread, inverse, squares = map(np.frombuffer, parts)
        posterior = KernelPosterior(
            points=points.reshape(compiled.d, m).T.copy(),
            L=np.asfortranarray(L.reshape(m, m)),
            mean=mean.reshape(compiled.c, m).T.copy(),
            spread=spread.reshape(k, m).T,
            dense=False,
            inverse=inverse,
            pruned=pruned,
            squares=squares,
            mass=mass,
        )
        return {"posterior_": posterior}

    def _too_large(self, Y: Floats) -> NumericalError:
        return NumericalError(
            "targets, errors and their squares must stay within float64, and weights "
            f"above {1.0 / _LARGEST:g}, got targets up to {linalg.magnitude(Y):.3g}. "
            "Use units in which both are nearer to 1."
        )

    def _learn_rows(
        self, posterior: KernelPosterior, X: Floats, Y: Floats, r: Floats
    ) -> tuple[KernelPosterior, Floats, int]:
        """Learn a few rows; return their prequential errors and the number inconsistent."""
        noise, forgetting, tolerance, budget = self._limits()
        exact, errors, inconsistent, i = noise == 0.0, np.empty(Y.shape), 0, 0
        K = self._kernel(X, X)
        Q = posterior.features(self._kernel(posterior.points, X))
        width = most = max(_ROWS // Y.shape[1], 1)
        while i < len(X):  # the columns of Q are the features of the rows from i on
            k, n, replacing = np.diagonal(K)[i:], len(X) - i, len(posterior.points) >= budget
            if not replacing:
                room = int(min(budget - len(posterior.points), n))
                at, F, novelty = _novel(K[i:, i:] - Q.T @ Q, tolerance * k, room)
                n = int(at[-1]) + 1 if len(at) == room else n
            else:
                novelty = np.maximum(k - np.einsum("ij,ij->j", Q, Q), 0.0)
                n = min(width, n)
                rows, posterior = slice(i, i + n), posterior.with_inverse()
                candidates = np.flatnonzero(novelty[:n] > tolerance * k[:n])
                if not exact and len(candidates):
                    noises = r[rows] + novelty[:n]
                    candidates = _replacing(
                        posterior, Q[:, :n], Y[rows], noises, forgetting, novelty, candidates
                    )
                at, F = candidates[:1], np.zeros((len(candidates[:1]), len(k)))
                width = min(2 * width, most)
                for first in at:
                    n, width = first + 1, min(2 * (first + 1), most)
                    F[0, first:] = K[i + first, i + first :] - Q[:, first] @ Q[:, first:]
                    F[0, first:] /= np.sqrt(novelty[first])
                    F[0, first] = np.sqrt(novelty[first])
            rows = slice(i, i + n)
            extra = novelty[:n].copy()
            extra[at] = 0.0
            noises = r[rows] + extra
            if exact:  # rows in the span of the dictionary cannot be fitted, unless it is forgotten
                noises = np.maximum(noises, np.where(k[:n] > 0.0, _FLOOR * k[:n], _NEVER))
                if forgetting == 1.0:
                    noises = np.full(n, _NEVER)
                    noises[at] = 0.0
            if len(at):
                posterior = posterior.extended(X[i + at], Q[:, at], F[:, at].T)
                Q = np.concatenate((Q, F))
            update = posterior.updated(Q[:, :n], Y[rows], noises, forgetting)
            posterior, errors[rows], Q = update.posterior, update.errors, Q[:, n:]
            if exact and forgetting == 1.0:
                size = np.linalg.norm(posterior.mean, axis=0)  # no f of this norm differs by more
                bound = np.sqrt(extra)[:, None] * size + 1e-8 * (abs(Y[rows]) + abs(update.errors))
                missed = (abs(update.errors) > bound).any(axis=1)
                missed[at] = False
                inconsistent += int(missed.sum())
            if replacing and len(at):
                changes = posterior.changes()
                posterior, Q = posterior.without(
                    int(np.argmin(changes[:-1] if exact else changes)), Q
                )
            i += n
        return posterior, errors, inconsistent

    def _scores(self, X: Floats) -> Floats:
        posterior = self.posterior_
        weights, points = posterior.weights, posterior.points
        X, scores = X.astype(np.float64, copy=False), np.empty((len(X), weights.shape[1]))
        for i in range(0, len(X), 4 * _ROWS):
            rows = slice(i, i + 4 * _ROWS)
            scores[rows] = self._kernel(X[rows], points) @ weights
        return scores

    def _std(self, X: Floats) -> Floats:
        """Standard deviation of a new target for each row, (n,)."""
        noise, X = self._limits()[0], X.astype(np.float64, copy=False)
        posterior = self.posterior_
        variance = np.empty(len(X))
        for i in range(0, len(X), _ROWS):
            rows = slice(i, i + _ROWS)
            Q = posterior.features(self._kernel(posterior.points, X[rows]))
            k = np.diagonal(self._kernel(X[rows], X[rows]))
            novelty = np.maximum(k - np.einsum("ij,ij->j", Q, Q), 0.0)
            variance[rows] = novelty + np.maximum(posterior.variance(Q), 0.0)
        return np.sqrt(noise + variance)

    def _widen(self, d: int) -> None:
        posterior = self.posterior_
        points = np.pad(posterior.points, ((0, 0), (0, d - posterior.points.shape[1])))
        self.posterior_ = replace(posterior, points=points)

    @property
    def _moves(self) -> bool:
        return self.kernel in _SHIFT_INVARIANT

    def _move(self, origins: Floats) -> None:
        posterior = self.posterior_
        self.posterior_ = replace(posterior, points=posterior.points + origins)

    def _add_outputs(self, at: Array, c: int) -> None:
        old, posterior = np.setdiff1d(np.arange(c), at), self.posterior_
        mean, squares = np.zeros((len(posterior.mean), c)), np.zeros(c)
        mean[:, old], squares[old] = posterior.mean, posterior.squares
        self.posterior_ = replace(posterior, mean=mean, squares=squares)

    # -- merging -----------------------------------------------------------------------------------

    @property
    def _merging(self) -> Any:
        """``exact`` if no row is dropped and nothing is forgotten, else ``approximate``."""
        noise, forgetting, tolerance, budget = self._limits()
        everything = tolerance == _FLOOR and budget == np.inf
        return "exact" if everything and noise > 0.0 and forgetting == 1.0 else "approximate"

    def _unmergeable(self) -> str:
        return ""

    def _merge(self, other: Self, layout: Layout) -> None:
        """Learn the other dictionary, and its posterior divided by its prior as rows.

        With P = Σ p_i w_i w_iᵀ, the rows are w_iᵀu, of target w_iᵀμ / (1 − p_i) and noise
        p_i / (1 − p_i).
        """
        kernel, another = (self.gamma_, *self.kernel_), (other.gamma_, *other.kernel_)
        if kernel != another:
            raise MergeError(
                f"`gamma_` and `kernel_` must be the same in both, {kernel} as in the "
                f"first, got {another}. Train both with the same parameters."
            )
        if layout.d > self.n_features_in_:
            self._widen(layout.d)
        _, forgetting, tolerance, budget = self._limits()
        mine, theirs = self.posterior_.in_form(dense=forgetting < 1.0), other.posterior_
        if forgetting < 1.0 and not layout.concurrent:
            mine = mine.faded(forgetting**other.rows_seen_)
        points = np.zeros((len(theirs.points), layout.d))
        points[:, layout.features] = theirs.points
        K = self._kernel(points, points)
        Q = mine.features(self._kernel(mine.points, points))
        at, F, _ = _novel(K - Q.T @ Q, tolerance * np.diagonal(K), len(K))
        if len(at):
            mine = mine.extended(points[at], Q[:, at], F[:, at].T)
            Q = mine.features(self._kernel(mine.points, points))
        novelty = np.diagonal(K) - np.einsum("ij,ij->j", Q, Q)
        novelty = np.where(novelty > _FLOOR * np.diagonal(K), novelty, 0.0)
        p, W = linalg.eigh(theirs.covariance)
        known = 1.0 - p > _FLOOR
        p, W = np.maximum(p[known], 0.0), W[:, known]
        H = linalg.solve_lower_transposed(theirs.L, W)  # the rows are Hᵀ f(points)
        Y = np.zeros((len(p), mine.mean.shape[1]))
        Y[:, layout.outputs] = (W.T @ theirs.mean) / (1.0 - p)[:, None]
        noises = np.maximum(p / (1.0 - p), _FLOOR) + novelty @ H**2
        squares, mass = mine.squares.copy(), mine.mass + theirs.mass
        squares[layout.outputs] += theirs.squares
        mine = mine.updated(Q @ H, Y, noises).posterior
        if not linalg.finite(mine.mean, mine.spread, squares):
            raise self._too_large(Y)
        mine = replace(mine, squares=squares, mass=mass)
        self.posterior_ = mine.within(budget)
        self.inconsistent_rows_ += other.inconsistent_rows_


def _learn_compiled(state: Any, X: Floats, Y: Floats, weights: Floats, errors: Floats) -> int:
    """Learn rows in a compiled state; return the number of rows before one for NumPy."""
    X, Y = np.ascontiguousarray(X), np.ascontiguousarray(Y, dtype=np.float64)
    for i, weight in enumerate(weights.tolist()):
        if not state.learn(X[i], Y[i], weight, errors[i]):
            return i
    return len(X)


def _novel(R: Floats, least: Floats, room: int) -> tuple[Array, Floats, Floats]:
    """Rows that join the dictionary: indices (a,), features (a, n), and the novelty of all rows.

    ``R`` (n, n) is the part of the kernel matrix outside the dictionary. A row joins if its novelty
    exceeds ``least``; the new features of earlier rows are 0, since they were learned before.
    """
    novelty = np.diagonal(R).copy()
    at: list[int] = []
    F = np.zeros((room, len(R)))
    row = 0
    while len(at) < room:
        above = novelty[row:] > least[row:]
        if not above.any():
            break
        row += int(above.argmax())
        a = len(at)
        F[a, row:] = (R[row, row:] - F[:a, row] @ F[:a, row:]) / np.sqrt(novelty[row])
        F[a, row] = np.sqrt(novelty[row])
        novelty[row + 1 :] -= F[a, row + 1 :] ** 2
        at.append(row)
        row += 1
    return np.array(at, dtype=np.intp), F[: len(at)], np.maximum(novelty, 0.0)


def _replacing(
    posterior: KernelPosterior,
    Q: Floats,
    Y: Floats,
    noises: Floats,
    forgetting: float,
    novelty: Floats,
    candidates: Array,
) -> Array:
    """Those candidates whose own change (5) of f is not the least, if none before them joins."""
    n, m = Y.shape[0], len(Q)
    update = posterior.updated(Q, Y, noises, forgetting)
    fade, roots = np.sqrt(forgetting) ** np.arange(n + 1), np.sqrt(novelty[candidates])
    own = update.nu[candidates] * (
        fade[n - candidates] * roots / update.deviations[candidates]
    ).reshape(-1, 1)
    means = np.cumsum(update.V[:, :, None] * update.nu, axis=1)[:, candidates]
    means += fade[n] * posterior.mean[:, None]
    q = Q[:, candidates] / roots
    weights = linalg.solve_lower_transposed(
        posterior.L, (means - q[:, :, None] * own).reshape(m, -1)
    ).reshape(means.shape)
    inverse = posterior.inverse[:, None] + linalg.solve_lower_transposed(posterior.L, q) ** 2
    least = ((weights**2).sum(axis=2) / inverse).min(axis=0)
    joining: Array = candidates[least < (own**2).sum(axis=1)]
    return joining


@dataclass(eq=False, repr=False)
class KernelRLSRegressor(KernelRLS, Regressor):
    """Kernel recursive least squares: a Gaussian process seen once.

    The prior mean is 0, and the prior deviation √k(x, x), 1 for the default kernel: targets should
    be centred, in units of about their standard deviation. Features should be in comparable units,
    as after ``op.features.Scale``.

    Parameters
    ----------
    kernel : str or callable, default="rbf"
        As in scikit-learn: "rbf" exp(−γ‖x − x′‖²), "laplacian" exp(−γ‖x − x′‖₁), "polynomial" (or
        "poly") (γ xᵀx′ + coef0)^degree, "linear" xᵀx′ or "cosine"; or a positive semidefinite
        function of X (n, d) and Y (m, d) that returns (n, m), such as a kernel of
        ``sklearn.gaussian_process.kernels``. Functions are not saved.
    gamma : float, optional
        γ > 0, in 1 / squared units of the features (1 / units for "laplacian"). By default 1 / d,
        with d features in the first block.
    noise : float, default=0.1
        Noise variance r >= 0 of a row, relative to the kernel: the ``alpha`` of kernel ridge
        regression. With 0, new rows of the dictionary are fitted exactly (kernel ORFit).
    budget : int, optional
        Maximum number >= 1 of rows in the dictionary, 500 by default. None is no limit.
    forgetting : float, default=1.0
        λ in (0, 1]: after each row, the posterior returns to the prior by (4). 1 is no forgetting.
    tolerance : float, default=1e-3
        A row joins the dictionary if more than this share, in [0, 1], of its squared kernel
        function is outside the span of the dictionary. With 0, every row joins that is
        not numerically in the span (1e-12).
    degree : float, default=3.0
        Degree > 0 of the polynomial kernel.
    coef0 : float, default=1.0
        Constant >= 0 of the polynomial kernel.

    Attributes
    ----------
    dictionary_ : ndarray of shape (m, d)
        Rows of the dictionary.
    dual_coef_ : ndarray of shape (m,) or (m, c)
        Coefficients of their kernel functions.
    rank_ : int
        Number m of rows in the dictionary, the rank of the kernel matrix to the tolerance.
    scale_ : ndarray of shape (c,)
        Factor by which deviations suit the units of the targets.
    inconsistent_rows_ : int
        Without noise or forgetting, number of rows in the span of the dictionary that no function
        of the same norm fits.
    n_features_in_ : int
        Number of features.
    rows_seen_ : int
        Number of rows learned.

    Examples
    --------
    >>> import numpy as np, onepass as op
    >>> X = np.random.default_rng(0).uniform(-3, 3, size=(1000, 1))
    >>> model = op.KernelRLSRegressor(gamma=0.5, noise=0.01).fit(X, np.sin(X[:, 0]))
    >>> model.rank_
    12
    >>> prediction, std = model.predict([[1.0], [9.0]], return_std=True)
    >>> float(prediction[0].round(2)), std.round(2)
    (0.84, array([0.1, 1. ]))
    """

    @overload
    def predict(self, X: TableLike, *, return_std: Literal[False] = False) -> Floats: ...
    @overload
    def predict(self, X: TableLike, *, return_std: Literal[True]) -> tuple[Floats, Floats]: ...
    @public
    def predict(self, X: TableLike, *, return_std: bool = False) -> Any:
        """Predict targets for the rows of X.

        Parameters
        ----------
        X : array-like of shape (n, d)
        return_std : bool, default=False
            Whether to also return the standard deviation of a new target, that of the Gaussian
            process with the noise.

        Returns
        -------
        y : ndarray of shape (n,) or (n, c)
            Predictions.
        std : ndarray of the same shape
            Only with ``return_std``; the same for all outputs.

        Raises
        ------
        NotFittedError
            If no row was learned.
        """
        if not return_std:
            return super().predict(X)
        array = self._matrix(X)
        scores = self._scores(array)
        std = np.repeat(self._std(array)[:, None], scores.shape[1], axis=1)
        return self._to_predictions(scores, None), self._to_predictions(std, None)

    def _initial_prediction(self, row: Floats) -> float:
        del row
        return 0.0


@dataclass(eq=False, repr=False)
class KernelRLSClassifier(KernelRLS, Classifier):
    """Classification by kernel recursive least squares on class indicators.

    The target of a class is 1 for its rows and 0 for all others; the class with the largest output
    is predicted. The targets of a class before its first row are 0, so that a class that occurs
    late is learned exactly as if it had been known from the start. All classes share a dictionary.

    Parameters
    ----------
    kernel : str or callable, default="rbf"
        As in :class:`KernelRLSRegressor`, as all other parameters but ``classes``.
    gamma : float, optional
    noise : float, default=0.1
    budget : int, optional
        500 by default.
    forgetting : float, default=1.0
    tolerance : float, default=1e-3
    degree : float, default=3.0
    coef0 : float, default=1.0
    classes : array-like, optional
        Labels known in advance. New labels may still occur.

    Attributes
    ----------
    classes_ : ndarray of shape (c,)
        Labels seen or given in advance, sorted.
    dictionary_ : ndarray of shape (m, d)
        Rows of the dictionary.
    dual_coef_ : ndarray of shape (m, c)
        Coefficients of their kernel functions.
    rank_ : int
        Number m of rows in the dictionary.
    n_features_in_ : int
        Number of features.
    rows_seen_ : int
        Number of rows learned.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> import onepass as op
    >>> X, y = load_digits(return_X_y=True)
    >>> model = op.KernelRLSClassifier(gamma=1e-3)
    >>> float((model.test_then_train(X, y) == y).mean().round(3))
    0.979
    """

    _: KW_ONLY
    classes: Collection[object] | None = None
