"""ORFit with other potentials: each row is fitted by a Bregman projection.

Let ψ be a potential with the divergence D(w, v) = ψ(w) − ψ(v) − ∇ψ(v)ᵀ(w − v). Each row (x, y) is
fitted by the weights nearest to the former ones that do not change the predictions in memory,

    w_t = argmin D(w, w_(t−1))  subject to  xᵀw = y  and  Uᵀw = Uᵀw_(t−1)                   (1)

for an orthonormal basis U (d, m) of the directions in memory. With A = [U, u], u the normalised
part of x orthogonal to U, the solution is a step in the dual weights z = ∇ψ(w),

    z_t = z_(t−1) + A λ,    Aᵀ ∇ψ*(z_(t−1) + A λ) = Aᵀ w_t                                  (2)

whose m + 1 numbers λ minimise a convex function, by Newton's method. For ψ = ½ ‖w‖² this is ORFit
(:mod:`onepass.learners.orfit`). If the memory is unlimited, w_t is the Bregman projection of w₀ on
the weights that fit all rows, by the generalised Pythagorean theorem
([1] for zero w₀). The potentials are

    Σ |w|^q / q, q > 1           ∇ψ*(z) = sign(z) |z|^(1/(q − 1))                           (3)
    hyperbolic entropy [2]       ∇ψ*(z) = β sinh(z)                                         (4)

q near 1 prefers sparse weights, a large q weights of equal size. (4) is the negative entropy of
positive and negative parts of w that begin at β/2; a small β prefers sparse weights.
Cost: O(d m²) time per row and Newton step, O(dm) memory; outputs share U.

[1] N. Cho, Y. Min, H.-S. Shin, N. Azizan, "Π-ORFit: one-pass learning with Bregman projection",
    ACC 2024.
[2] U. Ghai, E. Hazan, Y. Singer, "Exponentiated gradient meets gradient descent", ALT 2020.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any, NamedTuple

import numpy as np

from onepass import linalg
from onepass.declared import State, param
from onepass.errors import NumericalError, ParameterError
from onepass.learners.estimator import Regressor
from onepass.learners.linear import coefficients, initial_weights, intercepts, predicted_initially
from onepass.types import Array, ArrayLike, Floats

_LARGEST = 1e140  # inner products of longer rows would overflow
_STEPS = 200  # Newton steps; about ten are usual
_RESOLUTION = 1e-11  # part of a row, relative to its length, that is rounding


class _Potential(NamedTuple):
    """A potential: (4) with the scale if it is above 0, else (3) with the power."""

    power: float
    scale: float

    def dual(self, w: Floats) -> Floats:
        """∇ψ(w)."""
        if self.scale:
            return np.asarray(np.arcsinh(w / self.scale))
        return np.asarray(np.sign(w) * np.abs(w) ** (self.power - 1.0))

    def primal(self, z: Floats) -> Floats:
        """∇ψ*(z)."""
        if self.scale:
            return np.asarray(self.scale * np.sinh(z))
        return np.asarray(np.sign(z) * np.abs(z) ** (1.0 / (self.power - 1.0)))

    def curvature(self, z: Floats) -> Floats:
        """The diagonal of the Hessian of ψ*; limited where it is infinite."""
        if self.scale:
            return np.asarray(self.scale * np.cosh(z))
        exponent = 1.0 / (self.power - 1.0)
        return np.asarray(exponent * np.maximum(np.abs(z), 1e-30) ** (exponent - 1.0))

    def projected(self, z: Floats, A: Floats, b: Floats) -> Floats:
        """The dual weights of (2) with Aᵀw = b; z is the start, orthonormal A (d, k)."""
        if not self.scale:  # (3) is homogeneous: solve for weights near 1
            unit = max(linalg.magnitude(self.primal(z)), linalg.magnitude(b))
            if unit > 0.0:
                dual = unit ** (self.power - 1.0)
                return np.asarray(self._solved(z / dual, A, b / unit) * dual)
        return self._solved(z, A, b)

    def _solved(self, z: Floats, A: Floats, b: Floats) -> Floats:
        """The dual weights of (2), by Newton's method."""
        z = self._along(z, A[:, -1], float(b[-1]))
        g = A.T @ self.primal(z) - b
        for _ in range(_STEPS):
            size = float(np.abs(g).max())
            if not size > 1e-13 * max(float(np.abs(b).max()), 1e-300):
                break
            H = A.T @ (self.curvature(z)[:, None] * A)
            root = 1.0 / np.sqrt(np.maximum(np.diagonal(H), 1e-300))
            H = H * root * root[:, None] + 1e-14 * np.eye(len(g))
            by = -root * np.linalg.lstsq(H, root * g, rcond=None)[0]
            slope, step = float(by @ g), 1.0
            while step > 1e-12:
                at = z + A @ (step * by)
                after = A.T @ self.primal(at) - b
                # well below -slope: near a zero weight, a full step for q = 3 only changes signs
                if slope < float(by @ after) <= -0.9 * slope and np.isfinite(after).all():
                    break
                step *= 0.5
            else:
                break
            z, g = at, after
        return z

    def _along(self, z: Floats, u: Floats, b: float) -> Floats:
        """Dual weights z + λ u with uᵀw = b, by bisection: a start from which H is not singular."""
        low, high = 0.0, 0.0
        sign, width = (1.0 if b > u @ self.primal(z) else -1.0), 1e-3
        while sign * (u @ self.primal(z + high * u) - b) < 0.0 and width < 1e300:
            low, high, width = high, high + sign * width, 2.0 * width
        for _ in range(60):
            middle = 0.5 * (low + high)
            if sign * (u @ self.primal(z + middle * u) - b) < 0.0:
                low = middle
            else:
                high = middle
        return z + high * u


@dataclass(eq=False, repr=False)
class MirrorORFitRegressor(Regressor):
    """Regression that fits each row by a Bregman projection, without changing past predictions.

    For more weights than rows: it interpolates, and the potential determines which of the weights
    that fit the rows is chosen. For ``potential=2`` they are those of :class:`ORFitRegressor`.

    Parameters
    ----------
    potential : float or "entropy", default=1.1
        A number is the power q of Σ |w|^q, from 1.02 to 4; near 1 the weights are sparse.
        ``"entropy"`` is the hyperbolic entropy of the given ``scale``.
    memory : int or None, default=100
        Number of principal directions of past rows that are stored; None stores all of them.
    scale : float, default=0.01
        Scale β > 0 of the entropy, in units of a weight; much smaller than the weights that are
        not zero. Not used by other potentials.
    fit_intercept : bool, default=False
        Whether to fit an intercept, as the weight of a feature that is always 1.
    initial_coef : array-like of shape (d,) or (c, d), optional
        Initial coefficients w₀. By default zeros.

    Attributes
    ----------
    coef_ : ndarray of shape (d,) or (c, d)
        Coefficients.
    intercept_ : float or ndarray of shape (c,)
        Intercept.
    inconsistent_rows_ : int
        Number of rows in the span of past rows that disagreed with them; they are not fitted.
    n_features_in_ : int
        Number of features.
    rows_seen_ : int
        Number of rows learned.

    Examples
    --------
    >>> import numpy as np, onepass as op
    >>> X = np.random.default_rng(0).normal(size=(40, 100))
    >>> w = np.zeros(100)
    >>> w[:4] = [1.0, -2.0, 3.0, -4.0]  # 40 rows for 100 weights
    >>> for q in (2.0, 1.1):
    ...     model = op.MirrorORFitRegressor(potential=q).fit(X, X @ w)
    ...     print(round(float(abs(model.coef_ - w).max()), 2))
    1.7
    0.0
    """

    potential_ = State[tuple[float, float]]()
    """Power and scale of the potential of the dual weights."""
    duals_ = State[Floats]()
    """Dual weights z (p, c)."""
    directions_ = State[Floats]()
    """The directions in memory (p, m), orthogonal, each as long as its singular value."""
    inconsistent_rows_ = State[int]()

    # other powers need dual weights of more digits than float64 has
    potential: float | str = param(1.1, choices=("entropy",), low=1.02, high=4.0)
    memory: int | None = param(100, whole=True, low=1, optional=True)
    _: KW_ONLY
    scale: float = param(0.01, above=0.0)
    fit_intercept: bool = False
    initial_coef: ArrayLike | None = None

    def _chosen(self) -> _Potential:
        if hasattr(self, "potential_"):
            return _Potential(*self.potential_)
        if isinstance(self.potential, str):
            return _Potential(0.0, float(self.scale))
        return _Potential(float(self.potential), 0.0)

    def _start(self, d: int, c: int) -> None:
        first = int(bool(self.fit_intercept))
        w = np.zeros((d + first, c))
        w[first:] = initial_weights(self.initial_coef, d, c)
        chosen = self._chosen()
        self.duals_, self.directions_ = chosen.dual(w), np.zeros((d + first, 0))
        self.potential_, self.inconsistent_rows_ = (chosen.power, chosen.scale), 0

    def _rows(self, X: Floats) -> Floats:
        X = X.astype(np.float64, copy=False)
        Z = np.column_stack((np.ones(len(X)), X)) if self.fit_intercept else X
        if Z.shape[1] != len(self.duals_):
            raise ParameterError(
                "`fit_intercept` must stay as it was when learning started, with "
                f"{len(self.duals_)} weights, got {self.fit_intercept!r}. Call fit to start again."
            )
        return Z

    def _learn(self, X: Floats, Y: Floats, s: Floats | None, class_mask: Array | None) -> Floats:
        del class_mask
        chosen, limit, Z = self._chosen(), self.memory, self._rows(X)
        z, D, inconsistent = self.duals_, self.directions_, 0
        predictions = np.empty(Y.shape)
        roots = np.ones(len(Z)) if s is None else np.sqrt(s)
        largest = max(linalg.magnitude(Z), linalg.magnitude(Y), float(roots.max(initial=0.0)))
        with np.errstate(all="ignore"):
            w = chosen.primal(z)
            for i, x in enumerate(Z if largest < _LARGEST else Z[:0]):
                predictions[i] = x @ w
                lengths = np.sqrt(np.einsum("pm,pm->m", D, D))
                U, length = D / lengths, float(np.sqrt(x @ x))
                rest = x - U @ (U.T @ x)
                rest -= U @ (U.T @ rest)
                free = float(np.sqrt(rest @ rest))
                if not free > _RESOLUTION * length or length < 1 / _LARGEST:
                    size = abs(Y[i]) + length * np.sqrt((w**2).sum(axis=0))
                    inconsistent += bool((abs(Y[i] - predictions[i]) > 1e-9 * size).any())
                else:
                    A = np.column_stack((U, rest / free))
                    B = A.T @ w
                    B[-1] += (Y[i] - predictions[i]) / free
                    z = np.column_stack(
                        [chosen.projected(z[:, k], A, B[:, k]) for k in range(z.shape[1])]
                    )
                    w = chosen.primal(z)
                    inconsistent += not linalg.magnitude(A.T @ w - B) <= 1e-4 * linalg.magnitude(B)
                if limit is None:
                    D = A if free > _RESOLUTION * length and length >= 1 / _LARGEST else D
                elif length >= 1 / _LARGEST:
                    u, sizes = linalg.svd(np.column_stack((D, roots[i] * x)))
                    count = min(limit, int((sizes > _RESOLUTION * sizes[:1]).sum()))
                    D = u[:, :count] * sizes[:count]
        if not (largest < _LARGEST and linalg.finite(z, w, D, predictions)):
            raise NumericalError(
                f"rows must be small enough to square and sum, below {_LARGEST:g}, got "
                f"values up to {largest:.3g}. Divide features and targets by a constant."
            )
        self.duals_, self.directions_ = z, D
        self.inconsistent_rows_ += inconsistent
        return predictions

    @property
    def _primal(self) -> Floats:
        return self._chosen().primal(self.duals_)

    @property
    def weights_(self) -> Floats:
        """Coefficients (d, c)."""
        return self._primal[int(bool(self.fit_intercept)) :]

    @property
    def coef_(self) -> Floats:
        """Coefficients: (d,), or (c, d) for several outputs."""
        return coefficients(self)

    @property
    def intercept_(self) -> Any:
        """The intercept: a float, or (c,) for several outputs."""
        return intercepts(self, self._intercepts)

    def _intercepts(self) -> Floats:
        return self._primal[0] if self.fit_intercept else np.zeros(self.duals_.shape[1])

    def _scores(self, X: Floats) -> Floats:
        return np.asarray(self._rows(X) @ self._primal)

    def _widen(self, d: int) -> None:
        extra = d - self.n_features_in_
        self.duals_ = np.pad(self.duals_, ((0, extra), (0, 0)))
        self.directions_ = np.pad(self.directions_, ((0, extra), (0, 0)))

    def _initial_prediction(self, row: Floats) -> Any:
        return predicted_initially(self.initial_coef, row)

    def _unmergeable(self) -> str:
        return (
            "got one with a potential, whose weights are the end of a path of projections. Learn "
            "all rows with one learner, or use op.ORFitRegressor."
        )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True  # interpolates: for more weights than rows
        return tags
