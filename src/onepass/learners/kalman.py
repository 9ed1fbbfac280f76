"""Kalman regression: linear weights that move over time, observed with noise.

Row k has weight s_k. Before it the weights w of each output move by a known matrix F and noise,

    w_k = F w_(k−1) + N(0, Q_k),        y_k = x_kᵀ w_k + N(0, r / s_k)                      (1)

with Q_k = Q + (1/λ − 1) F P Fᵀ: with the forgetting factor λ < 1 and Q = 0, the filter is
exponential forgetting. The least-squares estimate and its covariance are the Kalman filter [1],

    w ← F w,   P ← F P Fᵀ / λ + Q                            time                           (2)
    S = xᵀ P x + r / s,   K = P x / S,   e = y − xᵀ w                                       (3)
    w ← w + K e,   P ← P − K S Kᵀ                            row                            (4)

in the square-root form P = Σ_j D_j u_j u_jᵀ with u_j = (u_1j, …, 1, 0, …), which stays positive
semidefinite: (4) by Bierman's update, (2) by Thornton's, a Gram-Schmidt factorization [2]. The
outputs share P. The first row is preceded by (2) too.

If the noise r is estimated, Q and the prior covariance are given in units of r ([3], 4.5), so
that P / r does not depend on it, and r is the mean of the normalised innovations,

    r = Σ e² / S / n,    where S is computed with r = 1                                     (5)

whose posterior makes a new target Student's t, of variance r n / (n − 2) · S. If the process noise
is estimated, filters with K process noises q r I learn the same rows, and are mixed by their
prequential errors as the experts of :mod:`onepass.forgetting.auto` (1)-(3) are. The
prediction is the weighted mean, and the variance that of the mixture.
Cost: O(p²) time per row, O(p³) with process noise or a transition, for p weights; K times that if
the process noise is estimated. O(p²) memory.

[1] R. Kalman, "A new approach to linear filtering and prediction problems", 1960.
[2] G. Bierman, "Factorization methods for discrete sequential estimation", 1977; chapters V, VII.
[3] M. West, J. Harrison, "Bayesian forecasting and dynamic models", 2nd edition, 1997.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from functools import lru_cache
from typing import Any, Literal, NamedTuple, overload

import numpy as np
from sklearn.base import clone

from onepass import linalg, native
from onepass.declared import State, check_parameters, param
from onepass.errors import NumericalError, ParameterError, public
from onepass.learners.compiled import PlainRows, ReadsSingleRows
from onepass.learners.estimator import Regressor
from onepass.learners.linear import (
    coefficients,
    initial_weights,
    intercepts,
    outputs_of,
)
from onepass.memory.mixture import Mixture
from onepass.memory.vector import SKIPPED
from onepass.types import Array, ArrayLike, Floats, RowLike
from onepass.validation.table import TableLike

_NOISIEST = 1e300  # the largest noise of a row of small weight
PROCESS_NOISES = (0.0, *(16.0**k for k in range(-4, 3)))
"""The process noises of the experts, relative to the noise."""

_LARGEST = 1e100  # of variances that grow because of forgetting
_SCALARS = (str, int, float, np.generic, type(None))  # hashed by value


class _Dynamics(NamedTuple):
    """Movement and noise of the weights, from the parameters."""

    F: Floats | None
    """The transposed transition."""
    discount: float
    q: Floats
    """The diagonal of Q for each expert, (K, p)."""
    G: Floats | None
    """The rest of Q is GᵀG."""
    noise: float
    """The variance r; 1 if it is estimated."""

    def moved(self, w: Floats) -> Floats:
        """Weights (…, p) after a step of time."""
        return w if self.F is None else w @ self.F

    def variance(self, expert: int, factor: Floats, Z: Floats) -> Floats:
        """The variance of the outputs of rows (n, p) after a step of time, without noise."""
        U, D = _parts(factor)
        V = (Z if self.F is None else Z @ self.F.T) @ U.T
        variance: Floats = V**2 @ D / self.discount + Z**2 @ self.q[expert]
        return variance if self.G is None else variance + ((Z @ self.G.T) ** 2).sum(axis=1)

    def learn(
        self, W: Floats, factors: Floats, squares: Floats, Z: Floats, Y: Floats, r: Floats
    ) -> tuple[Floats, bool]:
        """Update W (K, c, p), factors (K, p, p) and the sums of squares (K, c) of (5) in place.

        Returns predictions (K, n, c), and whether all numbers are finite. A row whose first target
        is NaN has no targets.
        """
        predictions = np.empty((len(W), *Y.shape))
        if native.loops is not None:
            good: bool = native.loops.kalman(
                len(W), *Z.shape, Y.shape[1], self.discount, Z, Y, r, self.q, self.G, self.F, W,
                factors, squares, predictions,
            )  # fmt: skip
            return predictions, good
        for k, q in enumerate(self.q):
            self._learn(q, W[k], factors[k], squares[k], Z, Y, r, predictions[k])
        return predictions, linalg.finite(W, factors, squares, predictions)

    def _learn(
        self, q: Floats, W: Floats, factor: Floats, squares: Floats, Z: Floats, Y: Floats,
        r: Floats, predictions: Floats,
    ) -> None:  # fmt: skip
        """Learn rows with one process noise in NumPy."""
        added = [np.diag(np.sqrt(q))] if q.any() else []
        added += [] if self.G is None else [self.G]
        for i, z in enumerate(Z):
            W[...] = self.moved(W)  # (2)
            if self.F is not None or self.discount != 1.0:
                D = np.diagonal(factor) / self.discount
                np.fill_diagonal(factor, np.minimum(D, _LARGEST))
            if added or self.F is not None:
                U, D = _parts(factor)
                factor[...] = _factored(np.vstack([self.moved(np.sqrt(D)[:, None] * U), *added]))
            predictions[i] = W @ z
            if np.isnan(Y[i, 0]):
                continue
            U, D = _parts(factor)
            f = U @ z
            v = D * f
            sums = np.cumsum(np.concatenate((r[i : i + 1], f * v)))
            b = np.cumsum(v[:, None] * U, axis=0)
            U[1:] -= (f[1:] / sums[1:-1])[:, None] * b[:-1]  # (4)
            factor[...] = np.tril(U, -1) + np.diag(D * (sums[:-1] / sums[1:]))
            errors = Y[i] - predictions[i]
            squares += errors**2 / sums[-1]
            W += np.outer(errors / sums[-1], b[-1])


def _parts(factor: Floats) -> tuple[Floats, Floats]:
    """Rows u_j (p, p) and D (p,) of a factor."""
    U = np.tril(factor, -1)
    np.fill_diagonal(U, 1.0)
    return U, np.diagonal(factor)


def _factored(rows: Floats) -> Floats:
    """The factor (p, p) of P = MᵀM for rows M (m, p), by Gram-Schmidt from the last column."""
    M, factor = rows.copy(), np.zeros((rows.shape[1],) * 2)
    for j in reversed(range(len(factor))):
        a = M[:, j].copy()
        factor[j, j] = a @ a
        if factor[j, j] > 0.0:
            factor[j, :j] = a @ M[:, :j] / factor[j, j]
            M[:, :j] -= np.outer(a, factor[j, :j])
    return factor


@dataclass(eq=False, repr=False)
class KalmanRegressor(ReadsSingleRows, Regressor):
    """Linear regression whose weights move over time: a Kalman filter.

    By default both noises are estimated, for features of scale near 1
    (:class:`onepass.features.Scale`). There are p = d weights, or d + 1 with an intercept, which is
    then the first of them.

    Parameters
    ----------
    process_noise : float, array-like of shape (p,) or (p, p), or "auto", default="auto"
        Covariance Q of the change of the weights before each row: that of each weight, or of each
        of them, or a symmetric positive semidefinite matrix; in units of a squared weight, or
        of the noise variance if the noise is estimated. 0 is no random change. ``"auto"`` mixes
        eight filters with process noises from 0 to 256 times the noise variance.
    noise : float or "auto", default="auto"
        Variance r > 0 of a target, in units of a squared target; that of a row of weight s is
        r / s. ``"auto"`` estimates it for each output (5).
    prior_variance : float or array-like of shape (p,) or (p, p), default=1e6
        Covariance of the weights before the first row, in the units of the process noise.
    transition : array-like of shape (p, p), optional
        The matrix F >= 0 by which the weights move before each row. By default the identity.
    forgetting : float, default=1.0
        Factor λ in (0, 1] by which the covariance is divided before each row. With
        ``process_noise=0`` this is ``RLSRegressor(forgetting=op.forgetting.Exponential(λ))``.
    fit_intercept : bool, default=True
        Whether to fit an intercept, as the weight of a feature that is always 1.
    missing : {"error", "advance"}, default="error"
        How to handle a target that is NaN. "error" refuses it. With "advance" it is a missing
        observation: the row is predicted, and only time (2) passes; some outputs of a row can be
        missing. Rows of weight 0 do not take part: for them no time passes. Pipeline, Keyed,
        Conformal and ``op.evaluate.prequential`` pass such rows on; streams then do not skip them.
    initial_coef : array-like of shape (d,) or (c, d), optional
        Mean of the coefficients before the first row. By default zeros.

    Attributes
    ----------
    coef_ : ndarray of shape (d,) or (c, d)
        Coefficients after the last row.
    intercept_ : float or ndarray of shape (c,)
        Intercept.
    covariance_ : ndarray of shape (d, d) or (c, d, d)
        Covariance of the coefficients.
    coef_std_ : ndarray of shape (d,) or (c, d)
        Standard deviations of the coefficients.
    noise_ : float or ndarray of shape (c,)
        Estimate (5) of the noise variance; also if it is given, for comparison.
    process_noise_ : float or ndarray of shape (c,)
        The process noise that leads at present; only with ``process_noise="auto"``.
    n_features_in_ : int
        Number of features.
    rows_seen_ : int
        Number of rows learned, with those whose target is missing.

    Examples
    --------
    >>> import numpy as np, onepass as op
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(2000, 3))
    >>> w = np.cumsum(0.3 * rng.normal(size=(2000, 3)), axis=0)  # a random walk
    >>> y = (X * w).sum(axis=1) + rng.normal(size=2000)
    >>> for model in (op.KalmanRegressor(), op.RLSRegressor(forgetting="auto")):
    ...     print(round(float(abs(model.test_then_train(X, y) - y)[100:].mean()), 2))
    1.25
    1.4
    >>> known = op.KalmanRegressor(process_noise=0.09, noise=1.0, prior_variance=1.0).fit(X, y)
    >>> known.coef_std_.round(1)
    array([0.8, 0.7, 0.9])
    """

    _square = True

    parameters_ = State[Floats]()
    """Weights (K, c, p) of the experts."""
    factors_ = State[Floats]()
    """Factors (K, 1, p, p) of the experts, (K, c, p, p) once outputs were missing."""
    mixtures_ = State[tuple[Mixture, ...]]()
    """The weights of the experts, for each of the factors; empty for one expert."""
    squares_ = State[Floats]()
    """Sums of the squared normalised innovations, (K, c)."""
    counts_ = State[Floats]()
    """Numbers of innovations, (c,)."""

    process_noise: ArrayLike | str = "auto"
    noise: float | str = param("auto", choices=("auto",), above=0.0)
    prior_variance: ArrayLike = 1e6
    _: KW_ONLY
    transition: ArrayLike | None = None
    forgetting: float = param(1.0, above=0.0, high=1.0)
    fit_intercept: bool = True
    missing: str = param("error", choices=("error", "advance"))
    initial_coef: ArrayLike | None = None

    # -- parameters ----------------------------------------------------------------------------

    def _dynamics(self, p: int) -> _Dynamics:
        """Validate the parameters, for p weights."""
        check_parameters(self)
        values = self.process_noise, self.noise, self.forgetting, self.transition
        quick = (v if isinstance(v, _SCALARS) else _Array(v) for v in values)
        dynamics: _Dynamics = _dynamics(*quick, p)
        W = getattr(self, "parameters_", None)
        if self._started and W is not None and W.shape[::2] != dynamics.q.shape:
            raise ParameterError(
                "`process_noise` must stay 'auto' or a covariance, and `fit_intercept` must stay "
                f"the same, as when learning started, got {self.process_noise!r} and "
                f"{self.fit_intercept!r}. Call fit to start again."
            )
        return dynamics

    def _start(self, d: int, c: int) -> None:
        first = int(bool(self.fit_intercept))
        p = d + first
        experts = len(self._dynamics(p).q)
        prior = _covariance(self.prior_variance, "prior_variance", p)
        factor = _factored(_root(prior)) if prior.ndim == 2 else np.diag(prior)
        w = np.zeros((c, p))
        w[:, first:] = initial_weights(self.initial_coef, d, c).T
        self.parameters_ = np.tile(w, (experts, 1, 1))
        self.factors_ = np.tile(factor, (experts, 1, 1, 1))
        self.squares_, self.counts_ = np.zeros((experts, c)), np.zeros(c)
        shares = np.full((experts, c), 1.0 / experts)
        state = Mixture(shares, np.zeros(c), -SKIPPED)
        self.mixtures_ = (state,) if experts > 1 else ()

    # -- learning ------------------------------------------------------------------------------

    @property
    def _learns_gaps(self) -> bool:
        return self.missing == "advance"

    def _rows(self, X: Floats) -> Floats:
        """Rows with the feature of the intercept, (n, p)."""
        if not self.fit_intercept:
            return np.ascontiguousarray(X, dtype=np.float64)
        Z = np.ones((len(X), X.shape[1] + 1))
        Z[:, 1:] = X
        return Z

    def _learn(self, X: Floats, Y: Floats, s: Floats | None, class_mask: Array | None) -> Floats:
        del class_mask
        Z, c = self._rows(X), Y.shape[1]
        dynamics = self._dynamics(Z.shape[1])
        W, factors, mixtures = self.parameters_.copy(), self.factors_, self.mixtures_
        gaps, good = np.isnan(Y), True
        if factors.shape[1] < c and (gaps != gaps[:, :1]).any():  # outputs no longer share P
            factors = np.repeat(factors, c, axis=1)
            mixtures = tuple(_output(mixtures[0], k) for k in range(c)) if mixtures else ()
        factors, groups = factors.copy(), factors.shape[1]
        each = np.empty((len(W), *Y.shape))  # the predictions of the experts
        squares = self.squares_.copy()
        with np.errstate(all="ignore"):
            r = np.minimum(dynamics.noise / (np.ones(len(Z)) if s is None else s), _NOISIEST)
            for one in range(groups):
                at = slice(None) if groups == 1 else slice(one, one + 1)
                w, total = np.ascontiguousarray(W[:, at]), np.ascontiguousarray(squares[:, at])
                factor = np.ascontiguousarray(factors[:, one])
                y = np.ascontiguousarray(Y[:, at], dtype=np.float64)
                each[:, :, at], finite = dynamics.learn(w, factor, total, Z, y, r)
                W[:, at], squares[:, at], factors[:, one] = w, total, factor
                good = good and finite
            predictions: Floats = each[0]
            if mixtures:
                predictions, mixtures = _mixed(mixtures, each, Y, s)
        if not (good and linalg.finite(predictions)):
            raise self._overflow(Z, Y)
        self.parameters_, self.factors_, self.mixtures_ = W, factors, mixtures
        self.squares_, self.counts_ = squares, self.counts_ + (~gaps).sum(axis=0)
        return predictions

    def _overflow(self, Z: Floats, Y: Floats) -> NumericalError:
        size = max(linalg.magnitude(Z), linalg.magnitude(np.nan_to_num(Y)))
        return NumericalError(
            "rows, weights and their covariance must stay within float64, got values "
            f"up to {size:.3g}. Use units in which features and targets are nearer to "
            "1; with a `transition`, check that its eigenvalues are at most 1."
        )

    def _learn_plain_row(self, row: Floats, d: int) -> bool:
        """Learn a row, its target and weight; return whether that was possible."""
        Z, Y, own = self._rows(row[None, :d]), row[d:-1][None], self.__dict__
        W, factors, squares = self.parameters_.copy(), self.factors_.copy(), self.squares_.copy()
        dynamics, mixtures = self._dynamics(Z.size), self.mixtures_
        r = np.minimum(dynamics.noise / row[-1:], _NOISIEST)
        predictions, good = dynamics.learn(W, factors[:, 0], squares, Z, Y, r)
        if not good:
            return False
        if mixtures:
            mixtures = (mixtures[0].mixed(Y - predictions, Y, row[-1:])[1],)
        own.update(
            parameters_=W, factors_=factors, squares_=squares, mixtures_=mixtures,
            counts_=self.counts_ + 1.0, rows_seen_=self.rows_seen_ + 1,
        )  # fmt: skip
        return True

    def _prepare_single_rows(self) -> None:
        PlainRows.prepare(self)

    @property
    def _moves(self) -> bool:
        still = not _is_auto(self.process_noise) and not np.any(self.process_noise)
        return bool(self.fit_intercept) and still and self.transition is None

    def _move(self, origins: Floats) -> None:
        W, factors = self.parameters_.copy(), self.factors_.copy()
        W[..., 0] -= W[..., 1:] @ origins  # b + wᵀx remains the same at the former rows
        for factor in factors.reshape(-1, *factors.shape[-2:]):
            U, D = _parts(factor)
            U[:, 0] -= U[:, 1:] @ origins
            factor[...] = _factored(np.sqrt(D)[:, None] * U)
        self.parameters_, self.factors_ = W, factors

    def _widen(self, d: int) -> None:
        first, now = int(bool(self.fit_intercept)), self.parameters_.shape[2]
        scalars = all(
            _is_auto(v) or np.ndim(v) == 0 for v in (self.process_noise, self.prior_variance)
        )
        if self.transition is not None or not scalars:
            raise ParameterError(
                "features can be added only if `process_noise` and `prior_variance` are numbers, "
                "without a `transition`, got arrays. Start a new learner with larger arrays."
            )
        dynamics, p = self._dynamics(now), d + first
        prior = float(_covariance(self.prior_variance, "prior_variance", 1)[0])
        n, growth = self.rows_seen_, 1.0 / dynamics.discount
        with np.errstate(over="ignore"):  # of a feature that was zero in all rows
            power = min(np.power(growth, n), 1e200)  # finite, since a variance can be 0
            steps = n if growth == 1.0 else (power - 1.0) / (growth - 1.0)
            free = np.minimum(prior * power + dynamics.q[:, 0] * steps, _LARGEST)
        W, factors = (
            np.zeros((*self.parameters_.shape[:2], p)),
            np.zeros((*self.factors_.shape[:2], p, p)),
        )
        W[..., :now], factors[..., :now, :now] = self.parameters_, self.factors_
        new = np.arange(now, p)
        factors[..., new, new] = free[:, None, None]
        self.parameters_, self.factors_ = W, factors

    def _unmergeable(self) -> str:
        return (
            "got one whose weights move over time, so that its state depends on the weights at its "
            "first row. Learn all rows with one learner in their order, or use op.RLSRegressor."
        )

    # -- predictions ---------------------------------------------------------------------------

    @property
    def _shares(self) -> Floats:
        """The weights of the experts, (K, c)."""
        if not self.mixtures_:
            return np.ones(self.squares_.shape)
        return np.concatenate([state.weights for state in self.mixtures_], axis=1)

    @property
    def _means(self) -> Floats:
        """Weights (c, p)."""
        means: Floats = np.einsum("kc,kcp->cp", self._shares, self.parameters_)
        return means

    @property
    def weights_(self) -> Floats:
        """Coefficients (d, c)."""
        weights: Floats = self._means[:, int(bool(self.fit_intercept)) :].T
        return weights

    @property
    def coef_(self) -> Floats:
        """Coefficients: (d,), or (c, d) for several outputs."""
        return coefficients(self)

    @property
    def intercept_(self) -> Any:
        """The intercept: a float, or (c,) for several outputs."""
        c = len(self.counts_) if self._started else 1
        return intercepts(self, lambda: self._means[:, 0] if self.fit_intercept else np.zeros(c))

    @property
    def noise_(self) -> Any:
        """Estimate (5) of the noise variance; of the expert that leads."""
        with np.errstate(invalid="ignore", divide="ignore"):
            each = self.squares_ / self.counts_ * self._dynamics(self.parameters_.shape[2]).noise
        return self._of_leading(each)

    @property
    def process_noise_(self) -> Any:
        """The process noise that leads, in the units of ``process_noise``."""
        if not self.mixtures_:
            raise AttributeError("process_noise_ exists only with process_noise='auto'")
        q = self._dynamics(self.parameters_.shape[2]).q[:, :1]
        return self._of_leading(np.broadcast_to(q, self.squares_.shape))

    def _of_leading(self, each: Floats) -> Any:
        """The value (K, c) of the expert that leads for each output."""
        best = each[self._shares.argmax(axis=0), np.arange(each.shape[1])]
        return float(best[0]) if self.target_ndim_ == 1 else best

    def _scale(self) -> Floats:
        """The factor (K, c) of variances: 1, or the estimated noise; infinite for two rows."""
        if not _is_auto(self.noise):
            return np.ones(self.squares_.shape)
        free = self.counts_ - 2.0
        return np.where(free > 0.0, self.squares_ / np.maximum(free, 1.0), np.inf)

    @property
    def covariance_(self) -> Floats:
        """Covariance of the coefficients: (d, d), or (c, d, d) for several outputs."""
        shares, scale, means = self._shares, self._scale(), self._means
        c, p = means.shape
        total = np.zeros((c, p, p))
        for k, j in np.ndindex(shares.shape):
            U, D = _parts(self.factors_[k, j % self.factors_.shape[1]])
            apart = self.parameters_[k, j] - means[j]
            P = (U.T * D) @ U
            within = scale[k, j] * P if np.isfinite(scale[k, j]) else np.full(P.shape, np.inf)
            total[j] += shares[k, j] * (within + np.outer(apart, apart))
        first = int(bool(self.fit_intercept))
        covariance = total[:, first:, first:]
        return covariance[0] if self.target_ndim_ == 1 else covariance

    @property
    def coef_std_(self) -> Floats:
        """Standard deviations of the coefficients."""
        return np.sqrt(np.diagonal(self.covariance_, axis1=-2, axis2=-1))

    def _scores(self, X: Floats) -> Floats:
        Z = self._rows(X)
        return np.asarray(Z @ self._dynamics(Z.shape[1]).moved(self._means).T)

    def _familiarity(self, X: Floats) -> None:
        """None, as its variance does not show what it has forgotten."""

    @overload
    def predict(self, X: TableLike, *, return_std: Literal[False] = False) -> Floats: ...
    @overload
    def predict(self, X: TableLike, *, return_std: Literal[True]) -> tuple[Floats, Floats]: ...
    @public
    def predict(self, X: TableLike, *, return_std: bool = False) -> Any:
        """Predict the targets of rows, each as if it were the next one.

        Parameters
        ----------
        X : array-like of shape (n, d)
        return_std : bool, default=False
            Whether to also return the standard deviation of a new target, with its noise.

        Returns
        -------
        y : ndarray of shape (n,) or (n, c)
            Predictions.
        std : ndarray of the same shape
            Only with ``return_std``. Infinite for the first two rows if the noise is estimated.

        Raises
        ------
        NotFittedError
            If no row was learned.
        """
        if not return_std:
            return super().predict(X)
        array = self._matrix(X)
        Z, scores = self._rows(array), self._scores(array)
        dynamics, shares, scale = self._dynamics(Z.shape[1]), self._shares, self._scale()
        total = np.zeros(scores.shape)
        for k, j in np.ndindex(shares.shape):
            factor = self.factors_[k, j % self.factors_.shape[1]]
            S = dynamics.variance(k, factor, Z) + dynamics.noise  # (3)
            apart = Z @ dynamics.moved(self.parameters_[k, j]) - scores[:, j]
            total[:, j] += shares[k, j] * (scale[k, j] * S + apart**2)
        return self._to_predictions(scores, None), self._to_predictions(np.sqrt(total), None)

    @overload
    def predict_one(self, x: RowLike, *, return_std: Literal[False] = False) -> float | Floats: ...
    @overload
    def predict_one(
        self, x: RowLike, *, return_std: Literal[True]
    ) -> tuple[float | Floats, float | Floats]: ...
    @public
    def predict_one(self, x: RowLike, *, return_std: bool = False) -> Any:
        """Predict the target of one row, from the prior if no row was learned.

        Parameters
        ----------
        x : array-like of shape (d,), or dict of named features
        return_std : bool, default=False
            Whether to also return the standard deviation of a new target.

        Returns
        -------
        y : float or ndarray of shape (c,)
            The prediction.
        std : float or ndarray of shape (c,)
            Only with ``return_std``, as in ``predict``.
        """
        if not return_std:
            return super().predict_one(x)
        row = self._row(x)
        prediction, std = self._with_prior(row).predict(row[None], return_std=True)
        return prediction[0], std[0]

    def _with_prior(self, row: Floats) -> KalmanRegressor:
        """The learner itself; before the first row, a copy that has started."""
        if self._started:
            return self
        prior: KalmanRegressor = clone(self)
        c = outputs_of(self.initial_coef)
        prior.n_features_in_, prior.rows_seen_ = len(row), 0
        prior.target_ndim_, prior.n_outputs_ = (1, 1) if c is None else (2, c)
        prior._start(len(row), prior.n_outputs_)
        return prior

    def _initial_prediction(self, row: Floats) -> Any:
        return self._with_prior(row).predict(row[None])[0]


class _Array:
    """An array among the arguments of a cached function, with a quick hash."""

    def __init__(self, given: Any) -> None:
        try:
            array = np.asarray(given, dtype=np.float64)
        except (TypeError, ValueError):
            array = np.array(np.nan)
        self.given, self.shape, self.bytes = given, array.shape, array.tobytes()

    def __hash__(self) -> int:
        return hash(self.bytes[:64])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Array) and (self.shape, self.bytes) == (other.shape, other.bytes)

    def __array__(self, *options: object, **more: object) -> Array:
        del options, more
        return np.frombuffer(self.bytes).reshape(self.shape)

    def __repr__(self) -> str:
        return repr(self.given)


@lru_cache(maxsize=32, typed=True)
def _dynamics(process_noise: Any, noise: Any, discount: Any, F: Any, p: int) -> _Dynamics:
    """Validate parameters, for p weights."""
    r = 1.0 if _is_auto(noise) else float(noise)
    F = None if F is None else np.ascontiguousarray(_finite(F, "transition", {(p, p)}).T)
    if _is_auto(process_noise):
        return _Dynamics(F, discount, r * np.outer(PROCESS_NOISES, np.ones(p)), None, r)
    given = _covariance(process_noise, "process_noise", p)
    if given.ndim == 2:
        return _Dynamics(F, discount, np.zeros((1, p)), _root(given), r)
    return _Dynamics(F, discount, given[None], None, r)


def _is_auto(value: object) -> bool:
    return isinstance(value, str) and value == "auto"


def _output(state: Mixture, k: int) -> Mixture:
    """The weights of the experts for one output."""
    return Mixture(state.weights[:, [k]], state.squares[[k]], state.count)


def _mixed(
    mixtures: tuple[Mixture, ...], each: Floats, Y: Floats, s: Floats | None
) -> tuple[Floats, tuple[Mixture, ...]]:
    """Mix the predictions (K, n, c) of the experts; rows without targets change no weights."""
    predictions, states = np.empty(Y.shape), list(mixtures)
    for one in range(len(mixtures)):
        at = slice(None) if len(mixtures) == 1 else slice(one, one + 1)
        gaps = np.isnan(Y[:, at][:, 0])
        for rows in np.split(np.arange(len(Y)), np.flatnonzero(np.diff(gaps)) + 1):
            y, f = Y[rows][:, at], each[:, rows][:, :, at]
            if gaps[rows[:1]].any():
                predictions[rows, at] = np.einsum("kc,knc->nc", states[one].weights, f)
                continue
            errors, states[one] = states[one].mixed(y - f, y, None if s is None else s[rows])
            predictions[rows, at] = y - errors
    return predictions, tuple(states)


def _finite(value: Any, name: str, shapes: set[tuple[int, ...]]) -> Floats:
    """Validate an array of one of these shapes."""
    try:
        array = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        array = np.array(np.nan)
    if array.shape not in shapes or not np.isfinite(array).all():
        allowed = " or ".join(str(shape) if shape else "a number" for shape in sorted(shapes))
        raise ParameterError(
            f"`{name}` must contain finite numbers of shape {allowed}, one for each "
            f"weight, the intercept first, got {value!r}",
            remedy=f"Choose another `{name}`.",
        )
    return np.asarray(array, order="C")


def _covariance(value: Any, name: str, p: int) -> Floats:
    """Validate a covariance: variances (p,), or a matrix (p, p)."""
    array = _finite(value, name, {(), (p,), (p, p)})
    good = (array >= 0.0).all()
    if array.ndim == 2:
        size = np.abs(array).max(initial=0.0)
        good = np.abs(array - array.T).max(initial=0.0) <= 1e-12 * size
        good = good and np.linalg.eigvalsh(array).min(initial=0.0) >= -1e-12 * p * size
    if not good:
        raise ParameterError(
            f"`{name}` must be a covariance, variances >= 0 or a symmetric positive "
            f"semidefinite matrix, got {value!r}",
            remedy=f"Choose another `{name}`.",
        )
    return np.full(p, float(array)) if array.ndim == 0 else array


def _root(covariance: Floats) -> Floats:
    """Rows G (p, p) with GᵀG equal to a covariance."""
    values, vectors = np.linalg.eigh(covariance)
    return np.ascontiguousarray(np.sqrt(np.maximum(values, 0.0))[:, None] * vectors.T)
