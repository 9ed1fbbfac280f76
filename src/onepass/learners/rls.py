"""RLS: recursive least squares, the best linear fit to all rows so far, at every row.

With weights s_k and a forgetting factor λ, after n rows the coefficients w and intercept b are

    argmin over w, b of  Σ_k λ^(n−k) s_k (y_k − b − x_kᵀ w)² + λⁿ ‖w − w₀‖²_Π              (1)

exactly: as a batch solver would find them from all rows, which nobody kept. The intercept is
profiled out (:mod:`onepass.centering`), the rest is QRD-RLS (:mod:`onepass.memory.square_root`).
Where λ < 1 a floor under what is known of each coefficient keeps (1) from winding up while
features are silent (:class:`onepass.forgetting.Bounded`). Other rules are (1) to the letter, forget
by time, forget only what is excited, or keep the last rows alone: :mod:`onepass.forgetting`.
For a new row x the answer is xᵀw + b, and its standard deviation, with c outputs and
ν = Σ_k λ^(n−k) s_k the effective number of rows,

    std(x) = σ √(1 + 1/ν + (x − x̄)ᵀ P (x − x̄)),     σ² = least value of (1) / (ν − d − 1)  (2)

(1/ν and the second 1 only with an intercept), infinite while ν ≤ d + 1.
Cost: O(d²) time a row, O(d²) memory; several outputs share the triangle.

[1] Y. Min, K. Ahn, N. Azizan, "One-Pass Learning via Bridging Orthogonal Gradient Descent and
    Recursive Least-Squares", CDC 2022; (1)-(3).
[2] "Online least-squares", lecture notes; block updates by the matrix inversion lemma.
"""

from typing import Any

import numpy as np

from onepass.errors import Array, Floats
from onepass.forgetting.past import Past
from onepass.learners.estimator import Classifier, Regressor
from onepass.learners.least_squares import LeastSquares
from onepass.learners.linear import initial_weights

__all__ = ["RLSClassifier", "RLSRegressor"]


class RLSRegressor(LeastSquares, Regressor):
    """Recursive least squares: the exact linear fit to all rows so far, at every row.

    Parameters
    ----------
    ridge : float or array-like of shape (d, d), default=1e-6
        Π: the penalty ``ridge`` · ‖w − w₀‖² on the coefficients, >= 0, in units of a squared
        feature; or a symmetric positive semidefinite matrix. 0 is plain least squares; while the
        rows do not determine it, the solution has least norm in units of each feature's first
        value. The intercept is not penalised. Features much smaller than 1 need a smaller ridge,
        or 0 with a ``prior``.
    forgetting : float, rule of forgetting or str, default=1.0
        A number is λ in (0, 1]: a row k rows ago weighs λᵏ, and 1 forgets nothing. It stands for
        ``op.forgetting.Bounded(λ)``, which keeps one row's worth of what falls silent. Other rules
        of :mod:`onepass.forgetting`, also by time; or their text, such as ``"window:1000"``.
    prior : float, default=0.0
        Rows' worth of belief, >= 0, that each coefficient is near where it began, in the units
        that its feature shows first (:mod:`onepass.memory.prior`). With 1, wide tables of
        categories are calm from the first rows, whatever their units; it adds to the ridge.
    fit_intercept : bool, default=True
        Whether there is an intercept.
    initial_coef : array-like of shape (d,) or (c, d), optional
        w₀, towards which the ridge pulls; zeros if not given.

    Attributes
    ----------
    coef_ : ndarray of shape (d,) or (c, d)
    intercept_ : float or ndarray of shape (c,)
    n_features_in_ : int
    rows_seen_ : int
        Rows learned.
    time_ : int, float or datetime64
        The time of the last row, where the past fades by time.

    Examples
    --------
    >>> import numpy as np, onepass as op
    >>> X = np.random.default_rng(0).normal(size=(1000, 3))
    >>> y = X @ [1.0, 2.0, 3.0] + 4.0
    >>> model = op.RLSRegressor()
    >>> said = model.test_then_train(X, y)
    >>> float(abs(said[10:] - y[10:]).max()) < 1e-4
    True
    >>> model.coef_.round(6)
    array([1., 2., 3.])
    """

    def __init__(
        self,
        ridge: Any = 1e-6,
        forgetting: Any = 1.0,
        *,
        prior: float = 0.0,
        fit_intercept: bool = True,
        initial_coef: Any = None,
    ) -> None:
        self.ridge = ridge
        self.forgetting = forgetting
        self.prior = prior
        self.fit_intercept = fit_intercept
        self.initial_coef = initial_coef

    def predict(self, X: Any, *, return_std: bool = False) -> Any:
        """Answers for the rows of X.

        Parameters
        ----------
        X : array-like of shape (n, d)
        return_std : bool, default=False
            Whether to return the standard deviation (2) of a new answer too.

        Returns
        -------
        y : ndarray of shape (n,) or (n, c)
        std : ndarray of the same shape
            Only with ``return_std``. Infinite until there are more rows, by weight, than
            coefficients, and until they determine all of them. Residuals below 1e-154 count as 0.

        Raises
        ------
        NotFittedError
            Before anything was learned.
        """
        if not return_std:
            return super().predict(X)
        array = self._matrix(X, "predict")
        said = self._answers(self._scores(array), None)
        d, center = array.shape[1], self.centering_
        spare = center.mass - d - center.free
        if spare <= 0.0:  # not determined yet
            return said, np.full(said.shape, np.inf)
        variance = self.memory_.least / spare
        spread = 1.0 + Past(self.memory_, center, self.prior_).leverage(array)
        with np.errstate(invalid="ignore"):  # infinity times 0, if the rows fit exactly
            std = np.sqrt(spread[:, None] * variance)
        return said, self._answers(np.where(np.isinf(spread)[:, None], np.inf, std), None)

    def _unlearned(self, row: Floats) -> Any:
        c = 1 if np.ndim(self.initial_coef) < 2 else len(self.initial_coef)
        said = row @ initial_weights(self.initial_coef, len(row), c, type(self).__name__)
        return float(said[0]) if np.ndim(self.initial_coef) < 2 else said


class RLSClassifier(LeastSquares, Classifier):
    """Least-squares classification: one RLS output a class, the largest is the answer.

    The answers learned are 1 for a row's class and 0 for the others. A class that comes late has
    been 0 in every row so far, so that it is learned exactly as if it had been known all along.

    Parameters
    ----------
    ridge : float or array-like of shape (d, d), default=1e-6
        As in :class:`RLSRegressor`.
    forgetting : float, rule of forgetting or str, default=1.0
        As in :class:`RLSRegressor`.
    prior : float, default=0.0
        As in :class:`RLSRegressor`.
    fit_intercept : bool, default=True
        Whether there is an intercept.
    classes : array-like, optional
        Labels known beforehand; others may still come.

    Attributes
    ----------
    classes_ : ndarray of shape (c,)
        The labels known, sorted.
    coef_ : ndarray of shape (c, d), or (1, d) for two classes
    intercept_ : ndarray of shape (c,), or (1,) for two classes
    n_features_in_ : int
    rows_seen_ : int
        Rows learned.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> import onepass as op
    >>> X, y = load_iris(return_X_y=True)
    >>> said = op.RLSClassifier().test_then_train(X[::-1], y[::-1])
    >>> int((said == y[::-1]).sum())  # of 150, one class after the other
    134
    """

    def __init__(
        self,
        ridge: Any = 1e-6,
        forgetting: Any = 1.0,
        *,
        prior: float = 0.0,
        fit_intercept: bool = True,
        classes: Any = None,
    ) -> None:
        self.ridge = ridge
        self.forgetting = forgetting
        self.prior = prior
        self.fit_intercept = fit_intercept
        self.classes = classes

    def _add_outputs(self, at: Array, c: int) -> None:
        super()._add_outputs(at, c)
        self.start_ = np.zeros((len(self.start_), c))
        self.centering_ = self.centering_.with_outputs(at, c)
        self.memory_ = self.memory_.with_outputs(at, c)
        self.forgetting_ = self.forgetting_.with_outputs(at, c)
