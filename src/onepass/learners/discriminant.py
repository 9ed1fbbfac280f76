"""Linear and quadratic discriminant analysis in one pass.

Class k, with prior π_k, has the density N(μ_k, Σ) or N(μ_k, Σ_k), so that

    linear      log p(x, k) = (x − m)ᵀ Λ⁻¹ (μ_k − m) − ½ (μ_k − m)ᵀ Λ⁻¹ (μ_k − m) + log π_k    (1)
    quadratic   log p(x, k) = −½ (x − μ_k)ᵀ Λ_k⁻¹ (x − μ_k) − ½ log det Λ_k + log π_k          (2)

up to a term common to all classes, with m the mean of the means. Λ is the covariance, shrunk
towards a multiple of I, since rows may be few and features constant:

    Λ = (1 − ε) Σ + ε I                                                              [1] (3)
    Λ = (1 − ε) Σ + ε (tr Σ / d) I                                                   [2] (4)

Σ is the sum of squares and products about the class means, divided by the total weight of the rows.
It is updated by (2) of :mod:`onepass.learners.class_means`, without subtraction of sums; so
predictions at any row equal those of a batch fit to all rows before it, in any order: nothing is
forgotten, and classes may arrive one after the other ([1], [3]). Oracle approximating shrinkage
determines ε as in [2].

Λ = UᵀU is factorised for the first prediction after a row. U cannot be updated by one rotation for
each row: in units of Σ, ε I grows with every row. If Λ is numerically singular, with a pivot below
d ε of float64 times its diagonal, the eigendecomposition in units in which the diagonal is 1 is
used, so that the scale of the features does not matter.

Cost: learning a row takes O(d²) time. The first prediction afterwards takes O(d³ + cd²) time for
Λ, and for the quadratic one O(d³) for the class of each row; then predicting a row takes O(cd)
time, or O(cd²) for the quadratic one. Memory is O(d²), or O(cd²).

[1] T. L. Hayes, C. Kanan, "Lifelong machine learning with deep streaming linear discriminant
    analysis", CVPR Workshops 2020; equations (2)-(5).
[2] Y. Chen, A. Wiesel, Y. C. Eldar, A. O. Hero, "Shrinkage algorithms for MMSE covariance
    estimation", IEEE Transactions on Signal Processing 58(10), 2010.
[3] S. Pang, S. Ozawa, N. Kasabov, "Incremental linear discriminant analysis for classification of
    data streams", IEEE Transactions on Systems, Man, and Cybernetics B 35(5), 2005.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import numpy as np

from onepass import linalg, native, validation
from onepass.declared import param
from onepass.errors import LabelError, ParameterError, public
from onepass.learners.class_means import (
    UNSEEN,
    ClassLearner,
    CovarianceType,
    Moments,
    linear_scores,
    width_of,
)
from onepass.types import ArrayLike, Floats
from onepass.validation.table import TableLike


def oas(S: Floats, n: float) -> float:
    """Shrinkage ε of a covariance towards its mean variance by oracle approximating shrinkage.

    In scikit-learn's form of [2] (23), without its factor 2 / d:
    ρ = (t + μ²) / ((n + 1) (t − μ² / d)), at most 1, with μ the mean of the diagonal and t that of
    all squared entries.

    Parameters
    ----------
    S : ndarray of shape (d, d)
        A multiple of the covariance: its upper triangle, with zeros below.
    n : float
        Total weight of the rows.
    """
    d, diagonal = len(S), S.ravel()[:: len(S) + 1]
    size = float(diagonal.max(initial=0.0))
    if size == 0.0:
        return 1.0
    S, diagonal = S / size, diagonal / size
    squares = 2.0 * float(np.einsum("ij,ij->", S, S)) - float(diagonal @ diagonal)
    squares, mean = squares / (d * d), float(diagonal.sum()) / d
    spread = (n + 1.0) * (squares - mean * mean / d)
    return 1.0 if spread <= 0.0 else min((squares + mean * mean) / spread, 1.0)


def shrunk(S: Floats, share: float, variance: float) -> Floats:
    """(1 − share) S + share · variance · I, (d, d)."""
    result: Floats = (1.0 - share) * S
    result.ravel()[:: len(S) + 1] += share * variance
    return result


def solve(S: Floats, B: Floats) -> Floats:
    """S⁻¹ B; if S is singular, the solution of least norm in units of the diagonal.

    Parameters
    ----------
    S : ndarray of shape (d, d)
        Positive semidefinite.
    B : ndarray of shape (d, k)
    """
    units = _units(np.diagonal(S))
    R = _in_units(S, units)
    B = B / units[:, None]
    L = _cholesky(R)
    if L is not None:
        solved = linalg.solve_lower_transposed(L, linalg.solve_lower(L, B))
    else:
        values, V = linalg.eigh(R)
        nonzero = values > _least(R) * max(float(values[-1]), 0.0)
        solved = V[:, nonzero] @ ((V[:, nonzero].T @ B) / values[nonzero][:, None])
    solution: Floats = solved / units[:, None]
    return solution


def whitening(S: Floats) -> Floats:
    """W (d, r) with Wᵀ S W = I, of rank r: directions with an eigenvalue of 0 are left out.

    Parameters
    ----------
    S : ndarray of shape (d, d)
        Positive semidefinite.
    """
    units = _units(np.diagonal(S))
    R = _in_units(S, units)
    L = _cholesky(R)
    if L is not None:
        W = linalg.solve_lower_transposed(L, np.eye(len(L)))
    else:
        values, V = linalg.eigh(R)
        nonzero = values > _least(R) * max(float(values.max(initial=0.0)), 0.0)
        W = V[:, nonzero] / np.sqrt(values[nonzero])
    factor: Floats = W / units[:, None]
    return factor


def lower(S: Floats, variances: Floats) -> Floats:
    """Lower triangular factor L (d, d) with L Lᵀ = S and a nonzero diagonal.

    Parameters
    ----------
    S : ndarray of shape (d, d)
        Positive semidefinite.
    variances : ndarray of shape (d,)
        Typical variance of each feature; eigenvalues of S are raised to at least d ε of this.
    """
    units = _units(variances)
    R = _in_units(S, units)
    L = _cholesky(R)
    if L is None:
        values, V = linalg.eigh(R)
        roots = np.sqrt(np.maximum(values, _least(R)))
        L = np.linalg.qr((V * roots).T)[1].T
        L = L * np.where(np.diagonal(L) < 0.0, -1.0, 1.0)
    factor: Floats = L * units[:, None]
    return factor


def _units(variances: Floats) -> Floats:
    """Standard deviations, 1 where the variance is 0."""
    units: Floats = np.sqrt(variances)
    return np.where(units > 0.0, units, 1.0)


def _in_units(S: Floats, units: Floats) -> Floats:
    """S with rows and columns divided by the units, (d, d)."""
    R: Floats = (S / units) / units[:, None]
    return R


def _least(R: Floats) -> float:
    """The bound below which eigenvalues count as 0."""
    return len(R) * float(np.finfo(np.float64).eps)


def _cholesky(R: Floats) -> Floats | None:
    """The lower Cholesky factor; None if R is numerically singular."""
    factor, info = linalg.cholesky(R)
    if info or not (np.square(np.diagonal(factor)) > _least(R)).all():
        return None
    return factor


class Posterior(ClassLearner):
    """Base class of classifiers whose scores are log densities, up to a common term."""

    _square = True
    _calibrated = False  # the scores are those of a probabilistic model
    priors: Any

    @property
    def priors_(self) -> Floats:
        """Class priors π_k, (c,); 0 for a class without rows."""
        mass = self._learned().mass
        shares: Floats = np.where(mass > 0.0, np.exp(self._log_priors(mass)), 0.0)
        return shares

    def decision_function(self, X: TableLike) -> Floats:
        """Scores of the classes: shape (n, c), or (n,) for two classes.

        The log of density times prior, up to a term common to all classes. For two classes, the
        log-odds of the second class.
        """
        return super().decision_function(X)

    @public
    def predict_log_proba(self, X: TableLike) -> Floats:
        """Log probabilities of the classes, shape (n, c); −inf for a class without rows.

        Parameters
        ----------
        X : array-like of shape (n, d)

        Raises
        ------
        NotFittedError
            If no row was learned.
        """
        return self._log_probabilities(self._scores(self._matrix(X)))

    def _log_probabilities(self, scores: Floats) -> Floats:
        if not scores.shape[1]:
            return scores
        relative = scores - scores.max(axis=1, keepdims=True)
        logs: Floats = relative - np.log(np.exp(relative).sum(axis=1, keepdims=True))
        return np.where(logs <= UNSEEN / 4, -np.inf, logs)

    def _probabilities(self, scores: Floats, fitted: Floats) -> Floats:
        del fitted
        probabilities: Floats = np.exp(self._log_probabilities(scores))
        return probabilities

    def _check_parameters(self, c: int) -> None:
        super()._check_parameters(c)
        if self.priors is None or (isinstance(self.priors, str) and self.priors == "uniform"):
            return
        named = validation.class_names(self.classes)
        if not _positive(self.priors, len(named)):
            raise ParameterError(
                "`priors` must be 'uniform' or a number > 0 for each of `classes`, in "
                f"their order, got {self.priors!r} for {len(named)} classes. Construct "
                "the learner with classes=[...] and a prior for each."
            )
        if c > len(named):
            raise LabelError(
                f"`y` must contain only classes with a prior, {named.tolist()}, got "
                "another class. Add it to `classes` and `priors`, or use priors=None."
            )

    def _shares(self, mass: Floats) -> Floats:
        """Priors up to a factor, (c,)."""
        if self.priors is None:
            return mass
        if isinstance(self.priors, str):
            return (mass > 0.0).astype(np.float64)
        named = validation.labels(self.classes, len(mass), what="classes")
        return np.asarray(self.priors, dtype=np.float64)[np.argsort(named)]

    def _log_priors(self, mass: Floats) -> Floats:
        """Log priors, (c,); 0 for a class with prior 0."""
        shares = self._shares(mass)
        return np.log(np.where(shares > 0.0, shares, 1.0) / (shares.sum() or 1.0))


def _positive(priors: ArrayLike, c: int) -> bool:
    """Whether ``priors`` are c numbers > 0."""
    try:
        given = np.asarray(priors)
    except ValueError:  # lists of different lengths
        return False
    if given.shape != (c,) or given.dtype.kind not in "iuf":
        return False
    return bool(((given > 0.0) & np.isfinite(given)).all())


@dataclass(eq=False, repr=False)
class StreamingLDA(Posterior):
    """Linear discriminant analysis in one pass, with class means and one shared covariance.

    Parameters
    ----------
    shrinkage : float or "oas", default=1e-4
        ε in [0, 1], or "oas" for oracle approximating shrinkage, computed from the covariance and
        the number of rows.
    target : {"identity", "variance"}, optional
        Shrinkage target: the identity (3), in squared units of the features, or the mean variance
        times the identity (4), as in scikit-learn. By default the identity, and the mean variance
        with "oas".
    priors : {"uniform"} or array-like of shape (c,), optional
        Class priors π_k. By default the share of each class in the rows, by weight. "uniform":
        equal for all classes with rows. An array has a number > 0 for each of ``classes``, in
        their order; then ``classes`` must contain all labels.
    classes : array-like, optional
        Labels known in advance. New labels may still occur.

    Attributes
    ----------
    classes_ : ndarray of shape (c,)
        Labels seen or given in advance, sorted.
    means_ : ndarray of shape (c, d)
        Mean of the rows of each class; 0 for a class without rows.
    covariance_ : ndarray of shape (d, d)
        Within-class covariance Σ.
    counts_ : ndarray of shape (c,)
        Total weight of the rows of each class.
    priors_ : ndarray of shape (c,)
        Class priors; 0 for a class without rows.
    shrinkage_ : float
        Shrinkage ε in use.
    n_features_in_ : int
        Number of features.
    rows_seen_ : int
        Number of rows learned.

    Raises
    ------
    ParameterError
        When learning starts, if a parameter is out of range.
    LabelError
        If a label has no entry in ``priors``.
    NumericalError
        If values are too large to be squared. The learner is then unchanged.

    Notes
    -----
    Without shrinkage, directions in which no class varies do not affect predictions. ``priors`` do
    not affect Σ.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> import onepass as op
    >>> X, y = load_digits(return_X_y=True)
    >>> order = y[:1200].argsort(kind="stable")  # one class after the other
    >>> model = op.StreamingLDA().partial_fit(X[order], y[order])
    >>> float(round(model.score(X[1200:], y[1200:]), 3))
    0.906
    """

    _covariance_type: ClassVar[CovarianceType] = "pooled"

    shrinkage: float | str = param(1e-4, choices=("oas",), low=0.0, high=1.0)
    _: KW_ONLY
    target: str | None = param(None, choices=("identity", "variance"))
    priors: ArrayLike | None = None
    classes: Collection[object] | None = None

    @property
    def covariance_(self) -> Floats:
        """Within-class covariance Σ, (d, d)."""
        moments = self._learned()
        return _covariance(moments.sums[0], float(moments.mass.sum()))

    @property
    def shrinkage_(self) -> float:
        """Shrinkage ε in use."""
        return self._share(self._learned())

    def _share(self, moments: Moments) -> float:
        """ε of these moments."""
        if self.shrinkage == "oas":
            return oas(moments.triangles[0], float(moments.mass.sum()))
        return float(self.shrinkage)

    def _check_parameters(self, c: int) -> None:
        super()._check_parameters(c)
        if self.shrinkage == "oas" and self.target == "identity":
            raise ParameterError(
                "`target` must be 'variance' with shrinkage='oas', got 'identity'. Leave it out."
            )

    def _class_scores(self, moments: Moments, X: Floats) -> Floats:
        return linear_scores(moments.derived(self._coefficients), X)  # (1)

    def _coefficients(self, moments: Moments) -> Floats:
        shares, share = self._shares(moments.mass), self.shrinkage
        identity = self.target != "variance" and not isinstance(share, str)
        chosen = None if isinstance(share, str) else float(share), 1.0 if identity else None
        found = moments.coefficients(shares, chosen)
        if found is not None:
            return found
        S = moments.sums[0] / moments.mass.sum()
        S = shrunk(S, self._share(moments), 1.0 if identity else float(np.diagonal(S).mean()))
        return moments.plain_coefficients(shares, lambda M: solve(S, M.T).T)


@dataclass(eq=False, repr=False)
class StreamingQDA(Posterior):
    """Quadratic discriminant analysis in one pass, with a mean and a covariance for each class.

    Parameters
    ----------
    reg_param : float, default=0.01
        Shrinkage ε in [0, 1] of (3) for each class, in squared units of the features. Classes with
        few rows relative to the number of features need more shrinkage. With 0, scikit-learn's
        default, a direction without variance in a class is assigned the rounding error of its
        typical variance.
    priors : {"uniform"} or array-like of shape (c,), optional
        Class priors π_k. By default the share of each class in the rows, by weight. "uniform":
        equal for all classes with rows. An array has a number > 0 for each of ``classes``, in
        their order; then ``classes`` must contain all labels.
    classes : array-like, optional
        Labels known in advance. New labels may still occur.

    Attributes
    ----------
    classes_ : ndarray of shape (c,)
        Labels seen or given in advance, sorted.
    means_ : ndarray of shape (c, d)
        Mean of the rows of each class; 0 for a class without rows.
    covariance_ : ndarray of shape (c, d, d)
        Covariance Σ_k of each class; 0 for a class with fewer than two rows.
    counts_ : ndarray of shape (c,)
        Total weight of the rows of each class.
    priors_ : ndarray of shape (c,)
        Class priors; 0 for a class without rows.
    n_features_in_ : int
        Number of features.
    rows_seen_ : int
        Number of rows learned.

    Raises
    ------
    ParameterError
        When learning starts, if a parameter is out of range.
    LabelError
        If a label has no entry in ``priors``.
    NumericalError
        If values are too large to be squared. The learner is then unchanged.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> import onepass as op
    >>> X, y = load_digits(return_X_y=True)
    >>> order = y[:1200].argsort(kind="stable")  # one class after the other
    >>> model = op.StreamingQDA(reg_param=0.1).partial_fit(X[order], y[order])
    >>> float(round(model.score(X[1200:], y[1200:]), 3))
    0.946
    """

    _covariance_type: ClassVar[CovarianceType] = "each"

    reg_param: float = param(0.01, low=0.0, high=1.0)
    _: KW_ONLY
    priors: ArrayLike | None = None
    classes: Collection[object] | None = None

    @property
    def covariance_(self) -> Floats:
        """Class covariances Σ_k, (c, d, d); 0 for a class with fewer than two rows."""
        moments = self._learned()
        pairs = zip(moments.sums, moments.mass.tolist(), strict=True)
        return np.array([_covariance(sums, n) for sums, n in pairs])

    def _class_scores(self, moments: Moments, X: Floats) -> Floats:
        c, d, n = moments.c, moments.d, len(X)
        means = moments.vector[: 1 + 2 * c * (1 + d)].copy()  # another thread may learn meanwhile
        factors = moments.derived(self._factors)[0]
        if native.loops is not None:
            scores, shares = np.empty((n, c)), self._shares(means[1 + c : 1 + 2 * c])
            native.loops.class_quadratic_scores(c, d, means, factors, shares, n, X, scores)
            return scores
        scores = np.zeros((n, c))
        for k in np.flatnonzero(moments.seen).tolist():
            deviation = (X - moments.origins[k]) - moments.offsets[k]
            V = linalg.solve_lower(factors[k][:d, :d].T, deviation.T)
            scores[:, k] = -0.5 * np.einsum("ij,ij->j", V, V) - factors[k][-1, d]
        scores += self._log_priors(moments.mass)  # (2)
        return scores

    def _factors(self, moments: Moments) -> tuple[tuple[Floats, ...], tuple[Any, ...]]:
        """The factor of each class, and the numbers of rows that it depends on."""
        rows, former = moments.rows.tolist(), moments.cached
        factors, counts = ((None,) * moments.c,) * 2 if former is None else former[1]
        pairs = [
            (U, n) if n in (rows[k], rows) else self._factor(moments, k, rows)
            for k, (U, n) in enumerate(zip(factors, counts, strict=True))
        ]
        return tuple(U for U, _ in pairs), tuple(n for _, n in pairs)

    def _factor(self, moments: Moments, k: int, rows: list[float]) -> tuple[Floats, Any]:
        """Factor U of Λ_k = UᵀU; 1 / its diagonal and half its log determinant in the last row.

        It depends on the rows of class k or, if Λ_k is singular, on the typical variance, and so on
        those of all classes.
        """
        share, d, n = float(self.reg_param), moments.d, float(moments.mass[k])
        U, sums = np.empty((width_of(d) + 1, width_of(d))), moments.triangles[k]
        if not n or (
            native.loops is not None
            and native.loops.class_factor(d, sums, (1.0 - share) / n, share, U)
        ):
            return U, rows[k]
        squares = np.einsum("kii->i", moments.triangles)
        typical = (1.0 - share) * squares / max(moments.mass.sum(), 1e-300) + share
        L = lower(shrunk(moments.sums[k] / n, share, 1.0), typical)
        U[:] = 0.0
        U[:d, :d], U[-1, :d], U[-1, d] = L.T, 1.0 / np.diagonal(L), np.log(np.diagonal(L)).sum()
        return U, rows


def _covariance(sums: Floats, n: float) -> Floats:
    """Sums of squares and products divided by the total weight of the rows, (d, d)."""
    covariance: Floats = sums / n if n else np.zeros(sums.shape)
    return covariance
