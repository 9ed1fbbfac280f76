"""Linear and quadratic discriminant analysis: classes of normal density, fitted in one pass.

Class k, whose share of the rows is π_k, has the density N(μ_k, Σ) or N(μ_k, Σ_k), so that

    linear      log p(x, k) = (x − m)ᵀ Λ⁻¹ (μ_k − m) − ½ (μ_k − m)ᵀ Λ⁻¹ (μ_k − m) + log π_k    (1)
    quadratic   log p(x, k) = −½ (x − μ_k)ᵀ Λ_k⁻¹ (x − μ_k) − ½ log det Λ_k + log π_k          (2)

but for what all classes share, with m the mean of the means. Λ is the covariance, shrunk towards a
multiple of I, since rows may be few and features constant:

    Λ = (1 − ε) Σ + ε I                                                              [1] (3)
    Λ = (1 − ε) Σ + ε (tr Σ / d) I                                                   [2] (4)

Σ is the sum of squares and products about the classes' means over the weight of the rows. It is
updated by Chan's formula (:mod:`onepass.learners.class_means`), not by sums that are subtracted
from each other; so that predictions at any row are those of a batch fit of all rows until then, in
whatever order they came: nothing is forgotten, and classes may come one after the other ([1],
[3]). ε by oracle approximating shrinkage is of [2].

Λ is factorised in units in which its diagonal is 1, so that the features' own units make no
difference to what is small. Where Cholesky's factorisation cannot tell it from singular, by a pivot
of less than d ε of float64, its eigenvectors are used.

Cost: O(d²) a row that is learned. After that Λ is factorised once, O(d³), at the first prediction;
then O(cd) a row that is predicted, O(cd²) of the quadratic one. Memory O(d²), or O(cd²).
``test_then_train`` predicts each row from all before it, and so factorises for each.

[1] T. L. Hayes, C. Kanan, "Lifelong machine learning with deep streaming linear discriminant
    analysis", CVPR Workshops 2020; equations (2)-(5).
[2] Y. Chen, A. Wiesel, Y. C. Eldar, A. O. Hero, "Shrinkage algorithms for MMSE covariance
    estimation", IEEE Transactions on Signal Processing 58(10), 2010.
[3] S. Pang, S. Ozawa, N. Kasabov, "Incremental linear discriminant analysis for classification of
    data streams", IEEE Transactions on Systems, Man, and Cybernetics B 35(5), 2005.
"""

from collections.abc import Collection
from typing import Any, ClassVar

import numpy as np

from onepass import linalg, validation
from onepass.errors import LabelError, ParameterError
from onepass.learners.class_means import UNSEEN, ClassLearner, Kept, Moments
from onepass.types import ArrayLike, Floats
from onepass.validation.table import TableLike

__all__ = ["Posterior", "StreamingLDA", "StreamingQDA", "lower", "oas", "shrunk", "solve"]


def oas(S: Floats, n: float) -> float:
    """The share by which oracle approximating shrinkage draws a covariance to its mean variance.

    In scikit-learn's form of [2] (23), without its factor 2 / d:
    ρ = (t + μ²) / ((n + 1) (t − μ² / d)), at most 1, with μ the mean of the diagonal and t that of
    all squared entries.

    Parameters
    ----------
    S : ndarray of shape (d, d)
    n : float
        Rows, by weight.
    """
    d, size = len(S), float(np.abs(np.diagonal(S)).max(initial=0.0))
    if size == 0.0:
        return 1.0
    S = S / size
    squares, mean = float(np.mean(S * S)), float(np.trace(S)) / d
    apart = (n + 1.0) * (squares - mean * mean / d)
    return 1.0 if apart <= 0.0 else min((squares + mean * mean) / apart, 1.0)


def shrunk(S: Floats, share: float, variance: float) -> Floats:
    """(1 − share) S + share · variance · I, (d, d)."""
    drawn: Floats = (1.0 - share) * S
    drawn.ravel()[:: len(S) + 1] += share * variance
    return drawn


def solve(S: Floats, B: Floats) -> Floats:
    """S⁻¹ B, of least norm in the units of its diagonal where S is singular.

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
        kept = values > _least(R) * max(float(values[-1]), 0.0)
        solved = V[:, kept] @ ((V[:, kept].T @ B) / values[kept][:, None])
    said: Floats = solved / units[:, None]
    return said


def lower(S: Floats, variances: Floats) -> Floats:
    """L with L Lᵀ = S, a lower triangle (d, d) whose diagonal is nowhere 0.

    Parameters
    ----------
    S : ndarray of shape (d, d)
        Positive semidefinite.
    variances : ndarray of shape (d,)
        What is usual in each feature: S has no less than d ε of it, in any direction.
    """
    units = _units(variances)
    R = _in_units(S, units)
    L = _cholesky(R)
    if L is None:
        values, V = linalg.eigh(R)
        roots = np.sqrt(np.maximum(values, _least(R)))
        L = np.linalg.qr((V * roots).T)[1].T
        L = L * np.where(np.diagonal(L) < 0.0, -1.0, 1.0)
    said: Floats = L * units[:, None]
    return said


def _units(variances: Floats) -> Floats:
    """Standard deviations, 1 where there is none."""
    units: Floats = np.sqrt(variances)
    return np.where(units > 0.0, units, 1.0)


def _in_units(S: Floats, units: Floats) -> Floats:
    """S with its rows and columns divided by these, (d, d)."""
    R: Floats = (S / units) / units[:, None]
    return R


def _least(R: Floats) -> float:
    """An eigenvalue that is not told from 0."""
    return len(R) * float(np.finfo(np.float64).eps)


def _cholesky(R: Floats) -> Floats | None:
    """The lower factor; None where R is all but singular."""
    factor, info = linalg.cholesky(R)
    if info or not (np.square(np.diagonal(factor)) > _least(R)).all():
        return None
    return factor


class Posterior(ClassLearner):
    """A classifier whose scores are logarithms of densities, but for what all classes share."""

    _square = True
    priors: Any

    @property
    def priors_(self) -> Floats:
        """π_k, (c,); 0 of a class that has no rows."""
        mass = self._learned().means.mass
        shares: Floats = np.where(mass > 0.0, np.exp(self._log_priors(mass)), 0.0)
        return shares

    def decision_function(self, X: TableLike) -> Floats:
        """Scores of the classes: shape (n, c), or (n,) for two classes.

        The logarithm of density and prior, but for what all classes share; for two classes the
        second's less the first's, which is the logarithm of the ratio of their probabilities.
        """
        return super().decision_function(X)

    def predict_log_proba(self, X: TableLike) -> Floats:
        """Logarithms of the probabilities of the classes, shape (n, c); −inf without rows.

        Parameters
        ----------
        X : array-like of shape (n, d)

        Raises
        ------
        NotFittedError
            Before anything was learned.
        """
        scores = self._scores(self._matrix(X, "predict_log_proba"))
        if not scores.shape[1]:
            return scores
        apart = scores - scores.max(axis=1, keepdims=True)
        said: Floats = apart - np.log(np.exp(apart).sum(axis=1, keepdims=True))
        return np.where(said <= UNSEEN / 4, -np.inf, said)

    def predict_proba(self, X: TableLike) -> Floats:
        """Probabilities of the classes, given the row, under the model; shape (n, c).

        Parameters
        ----------
        X : array-like of shape (n, d)

        Raises
        ------
        NotFittedError
            Before anything was learned.
        """
        said: Floats = np.exp(self.predict_log_proba(X))
        return said

    def _checked(self, c: int) -> None:
        who = type(self).__name__
        if self.priors is None or (isinstance(self.priors, str) and self.priors == "uniform"):
            return
        named = validation.class_names(self.classes, who)
        if not _positive(self.priors, len(named)):
            raise ParameterError(
                f"{who}: `priors` must be 'uniform' or a number > 0 for each of `classes`, in "
                f"their order, got {self.priors!r} for {len(named)} classes. Construct the "
                "learner with classes=[...] and a prior for each."
            )
        if c > len(named):
            raise LabelError(
                f"{who}: `y` must hold classes that have a prior, {named.tolist()}, got another. "
                "Name it in `classes` and `priors`, or let priors be the classes' shares."
            )

    def _log_priors(self, mass: Floats) -> Floats:
        """Logarithms of π_k, (c,); 0 of a class without rows."""
        if self.priors is None:
            shares = mass
        elif isinstance(self.priors, str):
            shares = (mass > 0.0).astype(np.float64)
        else:
            named = validation.labels(self.classes, len(mass), type(self).__name__, what="classes")
            shares = np.asarray(self.priors, dtype=np.float64)[np.argsort(named)]
        total = shares.sum()
        return np.log(np.where(shares > 0.0, shares, 1.0) / (total if total > 0.0 else 1.0))


def _positive(priors: ArrayLike, c: int) -> bool:
    """Whether these are c numbers > 0."""
    try:
        given = np.asarray(priors)
    except ValueError:  # of lists of different lengths
        return False
    if given.shape != (c,) or given.dtype.kind not in "iuf":
        return False
    return bool(((given > 0.0) & np.isfinite(given)).all())


_TARGETS = ("identity", "variance")


class StreamingLDA(Posterior):
    """Linear discriminant analysis in one pass: class means and one covariance.

    Parameters
    ----------
    shrinkage : float or "oas", default=1e-4
        ε in [0, 1]; or by oracle approximating shrinkage from the covariance and the number of
        rows, towards the mean variance.
    target : {"identity", "variance"}, optional
        What Λ is drawn to: I (3), in squared units of the features; or the mean variance times
        I (4), as scikit-learn does it. By default I, and the mean variance with "oas".
    priors : {"uniform"} or array-like of shape (c,), optional
        π_k: by default each class's share of the rows, by weight. "uniform": the same for all that
        have rows. Or numbers > 0 in the order of ``classes``, which must name all.
    classes : array-like, optional
        Labels known beforehand; others may still come.

    Attributes
    ----------
    classes_ : ndarray of shape (c,)
        The labels known, sorted.
    means_ : ndarray of shape (c, d)
        The mean of each class's rows; 0 of a class that was named and has none yet.
    covariance_ : ndarray of shape (d, d)
        Σ, of all rows about their classes' means.
    counts_ : ndarray of shape (c,)
        Rows of each class, by weight.
    priors_ : ndarray of shape (c,)
    shrinkage_ : float
        ε.
    n_features_in_ : int
    rows_seen_ : int
        Rows learned.

    Raises
    ------
    ParameterError
        When learning begins, if a parameter is out of range.
    LabelError
        If a class comes that ``priors`` do not name.
    NumericalError
        If values are too large to be squared; the learner is then as it was before the block.

    Notes
    -----
    Directions in which no class varies, without shrinkage, make no difference to the answer.
    Given ``priors`` do not change Σ.

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

    kept: ClassVar[Kept] = "pooled"

    def __init__(
        self,
        shrinkage: float | str = 1e-4,
        *,
        target: str | None = None,
        priors: ArrayLike | None = None,
        classes: Collection[object] | None = None,
    ) -> None:
        self.shrinkage = shrinkage
        self.target = target
        self.priors = priors
        self.classes = classes

    @property
    def covariance_(self) -> Floats:
        """Σ, of all rows about their classes' means, (d, d)."""
        moments = self._learned()
        return _covariance(moments.sums[0], float(moments.means.mass.sum()))

    @property
    def shrinkage_(self) -> float:
        """ε: by how much the covariance is shrunk."""
        return self._drawn(self.covariance_, float(self._learned().means.mass.sum()))[0]

    def _checked(self, c: int) -> None:
        super()._checked(c)
        who = type(self).__name__
        by_rows = isinstance(self.shrinkage, str)
        if by_rows and self.shrinkage != "oas":
            raise ParameterError(
                f"{who}: `shrinkage` must be a number in [0, 1] or 'oas', got {self.shrinkage!r}. "
                "Choose one of these."
            )
        if not by_rows:
            validation.in_range(self.shrinkage, "shrinkage", who, low=0.0, high=1.0)
        if self.target not in (None, *_TARGETS) or (by_rows and self.target == "identity"):
            raise ParameterError(
                f"{who}: `target` must be one of {', '.join(_TARGETS)}, and 'variance' with "
                f"shrinkage='oas', got {self.target!r}. Leave it out, or choose one of these."
            )

    def _drawn(self, S: Floats, n: float) -> tuple[float, float]:
        """ε, and the variance of what Λ is drawn to."""
        mean = float(np.trace(S)) / max(len(S), 1)
        if isinstance(self.shrinkage, str):
            return oas(S, n), mean
        return float(self.shrinkage), mean if self.target == "variance" else 1.0

    def _said(self, moments: Moments, X: Floats) -> Floats:
        means = moments.means
        asked = (self.shrinkage, self.target)
        if not moments.solved or moments.solved[0] != asked:
            n = float(means.mass.sum())
            S, (M, _) = _covariance(moments.sums[0], n), means.around(X[:0])
            W = solve(shrunk(S, *self._drawn(S, n)), M.T)
            moments.solved[:] = [asked, W, -0.5 * np.einsum("ij,ji->i", M, W)]
        _, W, b = moments.solved
        said: Floats = means.around(X)[1] @ W + b + self._log_priors(means.mass)  # (1)
        return said


class StreamingQDA(Posterior):
    """Quadratic discriminant analysis in one pass: a mean and a covariance for each class.

    Parameters
    ----------
    reg_param : float, default=0.01
        ε in [0, 1], of (3) for each class, in squared units of the features: the fewer rows a
        class has for its features, the more it needs. With 0, scikit-learn's default, a class has
        a spread of d float64 roundings of what is usual where it has shown none.
    priors : {"uniform"} or array-like of shape (c,), optional
        π_k: by default each class's share of the rows, by weight. "uniform": the same for all that
        have rows. Or numbers > 0 in the order of ``classes``, which must name all.
    classes : array-like, optional
        Labels known beforehand; others may still come.

    Attributes
    ----------
    classes_ : ndarray of shape (c,)
        The labels known, sorted.
    means_ : ndarray of shape (c, d)
        The mean of each class's rows; 0 of a class that was named and has none yet.
    covariance_ : ndarray of shape (c, d, d)
        Σ_k; 0 of a class with fewer than two rows.
    counts_ : ndarray of shape (c,)
        Rows of each class, by weight.
    priors_ : ndarray of shape (c,)
    n_features_in_ : int
    rows_seen_ : int
        Rows learned.

    Raises
    ------
    ParameterError
        When learning begins, if a parameter is out of range.
    LabelError
        If a class comes that ``priors`` do not name.
    NumericalError
        If values are too large to be squared; the learner is then as it was before the block.

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

    kept: ClassVar[Kept] = "each"

    def __init__(
        self,
        reg_param: float = 0.01,
        *,
        priors: ArrayLike | None = None,
        classes: Collection[object] | None = None,
    ) -> None:
        self.reg_param = reg_param
        self.priors = priors
        self.classes = classes

    @property
    def covariance_(self) -> Floats:
        """Σ_k, (c, d, d); 0 of a class with fewer than two rows."""
        moments = self._learned()
        pairs = zip(moments.sums, moments.means.mass.tolist(), strict=True)
        return np.array([_covariance(sums, n) for sums, n in pairs])

    def _checked(self, c: int) -> None:
        super()._checked(c)
        validation.in_range(self.reg_param, "reg_param", type(self).__name__, low=0.0, high=1.0)

    def _said(self, moments: Moments, X: Floats) -> Floats:
        means = moments.means
        if not moments.solved or moments.solved[0] != self.reg_param:
            moments.solved[:] = [self.reg_param, *self._triangles(moments)]
        said = np.zeros((len(X), len(means.mass)))
        for k in np.flatnonzero(means.seen):
            L = moments.solved[1 + k]
            V = linalg.solve_lower(L, ((X - means.origins[k]) - means.offsets[k]).T)
            said[:, k] = -0.5 * np.einsum("ij,ij->j", V, V) - np.log(np.diagonal(L)).sum()
        said += self._log_priors(means.mass)  # (2)
        return said

    def _triangles(self, moments: Moments) -> list[Floats]:
        """A factor of Λ_k for each class; none for those without rows."""
        mass = moments.means.mass
        squares = sum(
            (np.diagonal(each) for each in moments.sums), np.zeros(moments.means.origins.shape[1])
        )
        usual = (1.0 - self.reg_param) * squares / max(mass.sum(), 1e-300) + self.reg_param
        pairs = zip(moments.sums, mass.tolist(), strict=True)
        return [
            lower(shrunk(_covariance(sums, n), self.reg_param, 1.0), usual) if n else sums[:0]
            for sums, n in pairs
        ]


def _covariance(sums: Floats, n: float) -> Floats:
    """Sums of squares and products over the weight of the rows, (d, d)."""
    covariance: Floats = sums / n if n else np.zeros(sums.shape)
    return covariance
