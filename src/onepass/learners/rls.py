"""RLS: recursive least squares, the best linear fit to all rows so far, at every row.

With weights s_k and a forgetting factor λ, after n rows the coefficients w and intercept b are

    argmin over w, b of  Σ_k λ^(n−k) s_k (y_k − b − x_kᵀ w)² + λⁿ ‖w − w₀‖²_Π              (1)

exactly: as a batch solver would find them from all rows, which nobody kept. The intercept is
profiled out (:mod:`onepass.centering`), the rest is QRD-RLS (:mod:`onepass.memory.square_root`).
For a new row x the answer is xᵀw + b, and its standard deviation, with c outputs and
ν = Σ_k λ^(n−k) s_k the effective number of rows,

    std(x) = σ √(1 + 1/ν + (x − x̄)ᵀ P (x − x̄)),     σ² = least value of (1) / (ν − d − 1)  (2)

(1/ν and the second 1 only with an intercept), infinite while ν ≤ d + 1.
Cost: O(d²) time a row, O(d²) memory; several outputs share the triangle.

[1] Y. Min, K. Ahn, N. Azizan, "One-Pass Learning via Bridging Orthogonal Gradient Descent and
    Recursive Least-Squares", CDC 2022; (1)-(3).
[2] "Online least-squares", lecture notes; block updates by the matrix inversion lemma.
"""

import math
from typing import Any

import numpy as np

from onepass import linalg, validate
from onepass.centering import Centering
from onepass.errors import NumericalError, ParameterError
from onepass.estimator import Classifier, Regressor
from onepass.learners.linear import Linear
from onepass.memory.square_root import SquareRoot, Triangle
from onepass.types import Array, Floats

__all__ = ["RLSClassifier", "RLSRegressor"]

_CHUNK = 1024  # rows between two renormalisations
_LEAST_FADE = 1e-3  # λⁿ within a chunk stays above this


class _LeastSquares(Linear):
    """What the regressor and the classifier share: learning rows into triangle and means."""

    scale_free = True  # the answers do not depend on the features' units, but through the ridge

    ridge: Any
    forgetting: float
    fit_intercept: bool
    memory_: Triangle
    centering_: Centering
    start_: Floats

    def _start(self, d: int, c: int) -> None:
        validate.in_range(self.forgetting, "forgetting", type(self).__name__, above=0.0, high=1.0)
        self.start_ = _initial(getattr(self, "initial_coef", None), d, c, type(self).__name__)
        self.memory_ = SquareRoot(self.ridge).start(d, c)
        self.centering_ = Centering.start(d, c, free=bool(self.fit_intercept))
        self.weights_ = self.start_
        self.offset_ = np.zeros(c)

    def _learn(self, X: Floats, Y: Floats, s: Floats | None, known: Array | None) -> Floats:
        del known  # an output whose class is not known yet has seen zeros: that is exact
        said = np.empty(Y.shape)
        chunk = _CHUNK
        if self.forgetting < 1.0:
            chunk = max(1, min(chunk, int(math.log(_LEAST_FADE) / math.log(self.forgetting))))
        memory, centering = self.memory_, self.centering_
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            for i in range(0, len(X), chunk):
                rows = slice(i, i + chunk)
                weights = None if s is None else s[rows]
                reduced = centering.reduce(X[rows], Y[rows], weights, self.forgetting)
                errors, memory = self._chunk(memory, reduced.X, reduced.Y, reduced.scale)
                said[rows] = Y[rows] - errors
                memory, centering = memory.faded(reduced.fade), reduced.center
            weights = self.start_ + memory.w
            offset = centering.answers - centering.features @ weights
            good = linalg.finite(weights, np.diagonal(memory.R), memory.squares, offset, said)
        if not good:
            raise NumericalError(
                f"{type(self).__name__}: rows must be small enough to square and sum in float64, "
                f"got values up to {max(np.abs(X).max(), np.abs(Y).max()):.3g}. "
                "Give features and answers in larger units."
            )
        self.memory_, self.centering_ = memory, centering
        self.weights_, self.offset_ = weights, offset
        return said

    def _chunk(
        self, memory: Triangle, X: Floats, Y: Floats, scale: Floats
    ) -> tuple[Floats, Triangle]:
        """Absorb centred rows; the first row of all has scale 0 and only sets the means."""
        b = Y - X @ self.start_ if self.start_.any() else Y
        if scale[0] > 0.0:
            memory, errors = memory.absorb(X, b, scale)
            return errors, memory
        first = b[:1] - X[:1] @ memory.w
        memory, errors = memory.absorb(X[1:], b[1:], scale[1:])
        return np.concatenate((first, errors)), memory

    def _widen(self, d: int) -> None:
        extra = d - len(self.start_)
        super()._widen(d)
        self.start_ = np.vstack((self.start_, np.zeros((extra, self.start_.shape[1]))))
        self.memory_ = self.memory_.grown(d)
        self.centering_ = self.centering_.grown(d)


class RLSRegressor(_LeastSquares, Regressor):
    """Recursive least squares: the exact linear fit to all rows so far, at every row.

    Parameters
    ----------
    ridge : float or array-like of shape (d, d), default=1e-6
        Π: the penalty ``ridge`` · ‖w − w₀‖² on the coefficients, >= 0, in units of a squared
        feature; or a symmetric positive semidefinite matrix. 0 is plain least squares, of least
        norm while the rows do not determine it. The intercept is not penalised.
    forgetting : float, default=1.0
        λ in (0, 1]: a row k rows ago weighs λᵏ. 1 forgets nothing. With less, directions that
        are not excited for long are forgotten exponentially, and so is the ridge.
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
        forgetting: float = 1.0,
        *,
        fit_intercept: bool = True,
        initial_coef: Any = None,
    ) -> None:
        self.ridge = ridge
        self.forgetting = forgetting
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
            coefficients, and until they determine all of them.

        Raises
        ------
        NotFittedError
            Before anything was learned.
        """
        array = self._matrix(X, "predict")
        said = self._answers(self._scores(array), None)
        if not return_std:
            return said
        d, center = array.shape[1], self.centering_
        spare = center.mass - d - center.free
        if spare <= 0.0 or self.memory_.span is not None:  # not determined yet
            return said, np.full(said.shape, np.inf)
        variance = self.memory_.squares / spare
        spread = 1.0 + self.memory_.leverage(center.around(array))
        if center.free:
            spread = spread + 1.0 / center.mass
        return said, self._answers(np.sqrt(spread[:, None] * variance), None)

    def _unlearned(self, row: Floats) -> Any:
        start = _initial(self.initial_coef, len(row), None, type(self).__name__)
        said = row @ start
        return float(said[0]) if np.ndim(self.initial_coef) < 2 else said


class RLSClassifier(_LeastSquares, Classifier):
    """Least-squares classification: one RLS output a class, the largest is the answer.

    The answers learned are 1 for a row's class and 0 for the others. A class that comes late has
    been 0 in every row so far, so that it is learned exactly as if it had been known all along.

    Parameters
    ----------
    ridge : float or array-like of shape (d, d), default=1e-6
        As in :class:`RLSRegressor`.
    forgetting : float, default=1.0
        λ in (0, 1]: a row k rows ago weighs λᵏ.
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
        forgetting: float = 1.0,
        *,
        fit_intercept: bool = True,
        classes: Any = None,
    ) -> None:
        self.ridge = ridge
        self.forgetting = forgetting
        self.fit_intercept = fit_intercept
        self.classes = classes

    def _add_outputs(self, at: Array, c: int) -> None:
        super()._add_outputs(at, c)
        self.start_ = np.zeros((len(self.start_), c))
        self.centering_ = self.centering_.with_outputs(at, c)
        self.memory_ = self.memory_.with_outputs(at, c)


def _initial(initial_coef: Any, d: int, c: int | None, where: str) -> Floats:
    """w₀ as an array of shape (d, c); c outputs, or as many as it has where c is None."""
    if initial_coef is None:
        return np.zeros((d, c or 1))
    array = np.asarray(initial_coef, dtype=np.float64)
    wide = array.reshape(1, -1) if array.ndim == 1 else array
    if wide.ndim != 2 or wide.shape[1] != d or (c is not None and wide.shape[0] not in {1, c}):
        raise ParameterError(
            f"{where}: `initial_coef` must have shape ({d},) or ({c or 'c'}, {d}), one coefficient "
            f"for each feature, got {array.shape}. Construct the learner with another one."
        )
    if not np.isfinite(wide).all():
        raise ParameterError(
            f"{where}: `initial_coef` must be finite, got nan or infinity. "
            "Construct the learner with another one."
        )
    outputs = wide.shape[0] if c is None else c
    return np.array(np.broadcast_to(wide, (outputs, d)).T)
