"""Reference implementations: slow, simple and obviously correct.

They avoid blocks and incremental updates, and import nothing from the library, so that no
mistake is shared.

Conventions are those of the library: X is (n, d), y is (n,) or (n, c), rows of weight 0 are not
learned and do not discount earlier rows, and the least-squares problem of n learned rows is ::

    minimise over w and b   Σ_k λ^(n-k) s_k (y_k − b − x_kᵀ w)² + λⁿ (w − w₀)ᵀ Π (w − w₀)     (1)

with row weights s, forgetting λ, ridge Π, and the intercept b not penalised.

[1] Y. Min, K. Ahn, N. Azizan, "One-Pass Learning via Bridging Orthogonal Gradient Descent and
    Recursive Least-Squares", CDC 2022: equations (2), (3), (5).
"""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

__all__ = [
    "DenseP",
    "Learned",
    "RowByRow",
    "full_svd_basis",
    "kalman_dense",
    "kalman_square_root",
    "one_row_at_a_time",
    "ridge_qr",
    "rls_row_by_row",
    "sgd_multipass",
]

Floats = NDArray[np.float64]


def ridge_qr(
    X: Any,
    y: Any,
    ridge: Any = 0.0,
    *,
    intercept: bool = True,
    weights: Any = None,
    forgetting: float = 1.0,
    initial: Any = None,
    scaled: bool | str = False,
) -> tuple[Floats, Any]:
    """Solve (1) in one batch: QR of all rows, each times the root of its weight.

    Below the data stand the rows of the root of λⁿ Π. With ridge 0 the solution is the one
    nearest to ``initial`` (of minimum norm, where that is zero): lstsq on centred features.
    With ``scaled`` the norm is that in units of the first value of each feature: the power of two
    nearest to it; with ``"size"``, in units of the norm of each weighted column, centred if there
    is an intercept.

    Parameters
    ----------
    X : array-like of shape (n, d)
    y : array-like of shape (n,) or (n, c)
    ridge : float or array-like of shape (d, d)
        Π = ridge · I, or Π itself, symmetric and positive semidefinite.
    intercept : bool
        Whether there is an intercept b; else b = 0.
    weights : array-like of shape (n,), optional
        Row weights s >= 0.
    forgetting : float
        λ in (0, 1].
    initial : array-like of shape (d,) or (d, c), optional
        w₀, zeros by default.
    scaled : bool or "size"
        Whether the norm is in units of the first values, or of the sizes.

    Returns
    -------
    coef : ndarray of shape (d,) or (d, c)
    b : float or ndarray of shape (c,)
    """
    X, Y, s = _learned_rows(X, y, weights)
    n, d = X.shape
    W0 = np.zeros((d, Y.shape[1])) if initial is None else _as_columns(initial)
    root = np.sqrt(s * forgetting ** np.arange(n - 1, -1, -1.0))
    error = Y - X @ W0
    if np.ndim(ridge) == 0 and ridge == 0:
        units = np.ones(d)
        if scaled == "size":
            mean = root**2 @ X / (root @ root) if intercept and n else np.zeros(d)
            norms = np.sqrt(root**2 @ (X - mean) ** 2)
            units = np.where(norms > 1e-12 * np.abs(X).max(initial=0.0), norms, 1.0)
        elif scaled:
            units = _first_units(X)
        change, b = _minimum_norm(X / units, error, root, intercept=intercept)
        change = change / units[:, None]
    else:
        prior = np.sqrt(forgetting**n) * _square_root(ridge, d)
        above = np.column_stack([root, root[:, None] * X]) if intercept else root[:, None] * X
        below = np.column_stack([np.zeros(d), prior]) if intercept else prior
        A = np.vstack([above, below])
        Z = np.vstack([root[:, None] * error, np.zeros((d, Y.shape[1]))])
        Q, R = np.linalg.qr(A)
        solved = scipy.linalg.solve_triangular(R, Q.T @ Z)
        b = solved[0] if intercept else np.zeros(Y.shape[1])
        change = solved[1:] if intercept else solved
    coef = W0 + change
    return (coef[:, 0], float(b[0])) if np.ndim(y) == 1 else (coef, b)


def _first_units(X: Floats) -> Floats:
    """The power of two nearest to the first value of each column that is not 0; else 1."""
    units = np.ones(X.shape[1])
    for j, column in enumerate(X.T):
        for value in column[column != 0.0][:1]:
            units[j] = 2.0 ** round(np.log2(abs(value)))
    return units


class RowByRow(NamedTuple):
    """Result of :func:`rls_row_by_row`: prequential predictions, final weights and P."""

    predictions: Floats
    coef: Floats
    P: Floats


def rls_row_by_row(
    X: Any,
    y: Any,
    ridge: Any = 1.0,
    *,
    weights: Any = None,
    forgetting: float = 1.0,
    initial: Any = None,
    rescaled: bool = True,
) -> RowByRow:
    """Equation (3) of [1], one row after the other, with P kept dense.

    There is no intercept here: append a column of ones, and give ``ridge`` as a matrix.

    Parameters
    ----------
    X : array-like of shape (n, d)
    y : array-like of shape (n,) or (n, c)
    ridge : float or array-like of shape (d, d)
        Π, positive definite: P₀ = Π⁻¹.
    weights : array-like of shape (n,), optional
        Row weights s >= 0; rows of weight 0 are predicted, not learned.
    forgetting : float
        λ in [0, 1]; 0 needs ``rescaled=False`` and gives ORFit (Proposition 1 of [1]).
    initial : array-like of shape (d,) or (d, c), optional
        w₀, zeros by default.
    rescaled : bool
        True: R = λ/s, and P ← P/λ after each row. False: R = λᵏ/s as printed; P then lacks
        the factor λ⁻ᵏ. Both give the same weights.
    """
    X, Y = np.asarray(X, dtype=np.float64), _as_columns(y)
    n, d = X.shape
    s = np.ones(n) if weights is None else np.asarray(weights, dtype=np.float64)
    P = np.linalg.inv(_matrix_of(ridge, d))
    W = np.zeros((d, Y.shape[1])) if initial is None else _as_columns(initial).copy()
    predictions = np.empty(Y.shape)
    k = 0
    for i in range(n):
        x = X[i]
        predictions[i] = x @ W
        if s[i] == 0:
            continue
        k += 1
        R = (forgetting if rescaled else forgetting**k) / s[i]
        u = P @ x
        S = R + x @ u
        if S > 0:  # at λ = 0 a row inside the span of the past has nothing left to move
            W = W + np.outer(u, Y[i] - predictions[i]) / S
            P = P - np.outer(u, u) / S
        if rescaled:
            P = P / forgetting
    return (
        RowByRow(predictions[:, 0], W[:, 0], P) if np.ndim(y) == 1 else RowByRow(predictions, W, P)
    )


class Learned(NamedTuple):
    """Result of a step of :class:`DenseP`."""

    w: Floats
    errors: Floats
    rank: int


@dataclass
class DenseP:
    """Recursive least squares with a dense matrix P (p × p).

    For each row g = G[:, j] with noise r, where e is its error just before it is learned::

        u = P g,   S = gᵀ u + r,   w ← w + u e / S,   P ← P − u uᵀ / S

    At r = 0 a row whose free part ‖P g‖ is at most ``tau`` ‖g‖ lies inside the span of the past:
    it is skipped, and counted in ``inconsistent_rows`` if its error is larger than ``tolerance``.

    Parameters
    ----------
    p : int
        Number of weights.
    prior : ndarray of shape (p, p), optional
        P at the beginning; the identity by default.
    tau : float
        Relative size below which nothing of a row counts as free.
    tolerance : float
        Absolute error above which a skipped row contradicts the past.
    """

    p: int
    prior: Floats | None = None
    tau: float = 1e-7
    tolerance: float = 1e-9
    inconsistent_rows: int = field(default=0, init=False)
    P: Floats = field(init=False)

    def __post_init__(self) -> None:
        self.P = np.eye(self.p) if self.prior is None else np.array(self.prior, np.float64)

    def learn(self, w: Any, G: Any, e: Any, noise: Any = 0.0) -> Learned:
        """Learn the columns of G (p, n) one after the other.

        Parameters
        ----------
        w : array-like of shape (p,) or (p, c)
            The weights before the block; not changed.
        G : array-like of shape (p, n)
            One gradient a row of data; shared by the c outputs, where there are several.
        e : array-like of shape (n,) or (n, c)
            The errors y − f(x; w) at the weights before the block.
        noise : float or array-like of shape (n,)
            R of each row.

        Returns
        -------
        learned : Learned
            The new weights; the errors just before each row was learned, of the shape of e;
            and the number of rows that were not skipped.
        """
        start, G = _as_columns(w), np.asarray(G, dtype=np.float64)
        before, n = _as_columns(e), G.shape[1]
        R = np.broadcast_to(np.asarray(noise, dtype=np.float64), (n,))
        W, errors, rank = start.copy(), np.empty(before.shape), 0
        for j in range(n):
            g = G[:, j]
            errors[j] = before[j] - g @ (W - start)
            u = self.P @ g
            if R[j] == 0 and np.linalg.norm(u) <= self.tau * np.linalg.norm(g):
                self.inconsistent_rows += int(np.abs(errors[j]).max() > self.tolerance)
                continue
            S = g @ u + R[j]
            W += np.outer(u, errors[j]) / S
            self.P = self.P - np.outer(u, u) / S
            rank += 1
        return Learned(
            W[:, 0] if np.ndim(w) == 1 else W, errors[:, 0] if np.ndim(e) == 1 else errors, rank
        )

    def forget(self, factor: float) -> None:
        """P ← P / factor: discount earlier rows."""
        self.P = self.P / factor


def full_svd_basis(gradients: Any, m: int | None = None) -> tuple[Floats, Floats]:
    """The top m principal directions of all gradients at once, by one full SVD.

    Parameters
    ----------
    gradients : array-like of shape (p, k)
        All gradients so far, one a column, neither centred nor scaled.
    m : int, optional
        How many directions at most; all of them by default.

    Returns
    -------
    U : ndarray of shape (p, q)
        Orthonormal columns, q = min(m, rank).
    sigma : ndarray of shape (q,)
        Singular values, falling.
    """
    A = np.asarray(gradients, dtype=np.float64)
    U, sigma, _ = np.linalg.svd(A, full_matrices=False)
    rank = int(np.sum(sigma > max(A.shape) * np.finfo(np.float64).eps * max(sigma, default=0.0)))
    q = rank if m is None else min(m, rank)
    return U[:, :q], sigma[:q]


def sgd_multipass(X: Any, y: Any, w0: Any, step_size: float, epochs: int) -> Floats:
    """SGD on squared error over many passes: w ← w + η (y_k − x_kᵀ w) x_k; no intercept.

    Parameters
    ----------
    X : array-like of shape (n, d)
    y : array-like of shape (n,) or (n, c)
    w0 : array-like of shape (d,) or (d, c)
    step_size : float
        η; below 2 / max ‖x_k‖² for it to converge on data that can be fitted.
    epochs : int
        Passes over the rows, each in their order.

    Returns
    -------
    w : ndarray of the shape of w0
    """
    X, Y, W = np.asarray(X, dtype=np.float64), _as_columns(y), _as_columns(w0).copy()
    for _ in range(epochs):
        for x, target in zip(X, Y, strict=True):
            W += step_size * np.outer(x, target - x @ W)
    return W[:, 0] if np.ndim(w0) == 1 else W


def kalman_dense(
    X: Any, y: Any, F: Floats, Q: Floats, r: Any, P: Any, w: Any, discount: float = 1.0
) -> tuple[Floats, Floats, Floats, Floats]:
    """The Kalman filter with dense covariance, in Joseph's form; one output, NaN is missing.

    Parameters
    ----------
    X : array-like of shape (n, p)
    y : array-like of shape (n,)
    F, Q, P : ndarray of shape (p, p)
        Transition, process noise, and covariance before the first row.
    r : float or ndarray of shape (n,)
        Variance of each target.
    w : ndarray of shape (p,)
        Weights before the first row.
    discount : float
        P becomes F P Fᵀ / discount + Q before each row.

    Returns
    -------
    w (p,), P (p, p), predictions (n,), variances of the targets (n,)
    """
    n, p = np.shape(X)
    noise, predictions, S = np.broadcast_to(r, n), np.empty(n), np.empty(n)
    for i, x in enumerate(np.asarray(X, dtype=np.float64)):
        w, P = F @ w, F @ P @ F.T / discount + Q
        predictions[i], S[i] = x @ w, x @ P @ x + noise[i]
        if np.isnan(y[i]):
            continue
        K = P @ x / S[i]
        A = np.eye(p) - np.outer(K, x)
        w, P = w + K * (y[i] - x @ w), A @ P @ A.T + noise[i] * np.outer(K, K)
    return w, P, predictions, S


def kalman_square_root(
    X: Any, y: Any, F: Floats, Q: Floats, r: float, P: Any, w: Any
) -> tuple[Floats, Floats]:
    """The weights and the root R (P = RᵀR) of the Kalman filter: the array algorithm, by QR."""
    p = len(w)
    R: Any = _square_root(P, p)
    root = _square_root(Q, p)
    for x, target in zip(np.asarray(X, dtype=np.float64), y, strict=True):
        w, R = F @ w, np.linalg.qr(np.vstack((R @ F.T, root)), mode="r")
        array: Any = np.block(
            [[np.full((1, 1), np.sqrt(r)), np.zeros((1, p))], [(R @ x)[:, None], R]]
        )
        array = np.linalg.qr(array, mode="r")
        w = w + array[0, 1:] / array[0, 0] * (target - x @ w)
        R = array[1:, 1:]
    return w, R


def one_row_at_a_time(learner: Any, X: Any, y: Any, sample_weight: Any = None) -> NDArray[Any]:
    """Predict each row, then learn it; return the predictions.

    Rows of weight 0 are predicted and not learned. The learner is changed.
    """
    predictions = []
    for i in range(len(X)):
        predictions.append(learner.predict_one(X[i]))
        weight = 1.0 if sample_weight is None else float(sample_weight[i])
        learner.learn_one(X[i], y[i], sample_weight=weight)
    return np.array(predictions)


def _learned_rows(X: Any, y: Any, weights: Any) -> tuple[Floats, Floats, Floats]:
    """Rows of positive weight, their targets as columns, and their weights."""
    X, Y = np.asarray(X, dtype=np.float64), _as_columns(y)
    s = np.ones(len(X)) if weights is None else np.asarray(weights, dtype=np.float64)
    return X[s > 0], Y[s > 0], s[s > 0]


def _as_columns(y: Any) -> Floats:
    array = np.asarray(y, dtype=np.float64)
    return array[:, None] if array.ndim == 1 else array


def _matrix_of(ridge: Any, d: int) -> Floats:
    return float(ridge) * np.eye(d) if np.ndim(ridge) == 0 else np.asarray(ridge, np.float64)


def _square_root(ridge: Any, d: int) -> Floats:
    """A with AᵀA = Π; by eigenvalues, so that Π may be singular."""
    values, vectors = np.linalg.eigh(_matrix_of(ridge, d))
    root: Floats = np.sqrt(np.clip(values, 0.0, None))[:, None] * vectors.T
    return root


def _minimum_norm(X: Floats, Y: Floats, root: Floats, *, intercept: bool) -> tuple[Floats, Floats]:
    """The least-squares solution of minimum norm; the intercept is free and does not count."""
    s = root**2
    shift = intercept and len(X) > 0
    x_mean = s @ X / s.sum() if shift else np.zeros(X.shape[1])
    y_mean = s @ Y / s.sum() if shift else np.zeros(Y.shape[1])
    A, Z = root[:, None] * (X - x_mean), root[:, None] * (Y - y_mean)
    # centring leaves rounding of the rows where a singular value is zero, or where all are
    U, sigma, Vt = np.linalg.svd(A, full_matrices=False)
    large = sigma > 1e-13 * np.linalg.norm(root[:, None] * X)
    coef = (Vt[large].T / sigma[large]) @ (U[:, large].T @ Z)
    return coef, y_mean - x_mean @ coef
