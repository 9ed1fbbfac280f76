"""ORFit: orthogonal recursive fitting. Fit each new row exactly, move no past answer.

For a model linear in its weights, f(x; w) = Φ(x)ᵀ w, each row (x, y) with e = y − f(x; w) is
fitted in one step along what its gradients G = Φ(x) leave free of all past gradients:

    G̃ = P G,      P = I − (the directions that the memory keeps)                            (1)
    w ← w + G̃ (GᵀG̃ + r I)⁻¹ e                                                              (2)

([1] (5)-(7); r = 0 there). While memory suffices, w is the point nearest to w₀ that fits all rows
([1] Theorem 2), which SGD would reach only after many passes (Corollary 1); beyond, the m
principal directions kept are those that bound the worst forgetting (Proposition 4). A row that
lies in the span of the past cannot be fitted without forgetting: if it disagrees, the past wins,
and ``contradictions_`` counts it. With ``noise`` r > 0 such rows are averaged: then, without a
limit, this is ridge regression with Π = r · I.
Cost: O(mp) time a row, O(mp) memory for a memory of m directions.

[1] Y. Min, K. Ahn, N. Azizan, "One-Pass Learning via Bridging Orthogonal Gradient Descent and
    Recursive Least-Squares", extended version.
[2] The same, CDC 2022.
"""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from onepass import validate
from onepass.errors import MemoryFullWarning, NumericalError, ParameterError, ShapeError
from onepass.estimator import Classifier, Regressor
from onepass.learners.linear import Linear
from onepass.memory import Basis, Principal
from onepass.types import Array, Floats

__all__ = ["ORFitClassifier", "ORFitRegressor"]

_WIDTH = 64  # rows a block, where a block is the same as its rows


class _Fitting(Linear):
    """What the regressor and the classifier share: rows as gradients, and the one step."""

    memory: Any
    noise: float
    fit_intercept: bool
    feature_map: Callable[[Floats], Floats] | None
    block_update: bool
    n_features_in_: int
    parameters_: Floats
    memory_: Any
    contradictions_: int
    full_: bool

    @property
    def weights_(self) -> Floats:
        """Weights, (p, c), without the intercept's."""
        return self.parameters_[1:] if self.fit_intercept else self.parameters_

    @property
    def offset_(self) -> Floats:
        """The intercept's weights, (c,)."""
        c = self.parameters_.shape[1:]
        return self.parameters_[0] if self.fit_intercept else np.zeros(c or 1)

    def _start(self, d: int, c: int) -> None:
        where = type(self).__name__
        noise = validate.in_range(self.noise, "noise", where, low=0.0)
        self.contradictions_ = 0
        self.full_ = False
        self._begin_with(self._mapped(np.zeros((1, d)), c), c, noise)

    def _begin_with(self, first: Floats, c: int, noise: float) -> None:
        """Weights and memory for gradients of this shape."""
        own = first.ndim == 3
        p = first.shape[1]
        shape = (p,) if own else (p, c)
        start = np.zeros(shape)
        if getattr(self, "initial_coef", None) is not None:
            given = np.asarray(self.initial_coef, dtype=np.float64)
            wide = given if own else np.broadcast_to(given, (c, given.shape[-1])).T
            part = start[1:] if self.fit_intercept else start
            if wide.shape != part.shape or not np.isfinite(wide).all():
                raise ParameterError(
                    f"{type(self).__name__}: `initial_coef` must be finite and of shape "
                    f"{part.T.shape}, one weight for each feature, got {given.shape}. "
                    "Construct the learner with another one."
                )
            part[...] = wide
        self.parameters_ = start
        self.memory_ = _specification(self.memory, type(self).__name__).start(
            p, 1 if own else c, noise
        )

    def _learn(self, X: Floats, Y: Floats, s: Floats | None, known: Array | None) -> Floats:
        del known  # an output whose class is not known yet has seen zeros
        features = self._mapped(X, Y.shape[1])
        if s is not None:  # a row of weight s is as good as s rows: it is √s times as long
            root = np.sqrt(s)
            features = features * root.reshape(-1, *[1] * (features.ndim - 1))
            Y = Y * root[:, None]
        n = len(X)
        exact = _specification(self.memory, "") == Basis()
        width = n if self.block_update else _WIDTH if exact else 1
        w, memory, against = self.parameters_, self.memory_, 0
        errors = np.empty(Y.shape)
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            for i in range(0, n, max(width, 1)):
                rows = slice(i, i + width)
                w, memory, errors[rows], new = self._step(w, memory, features[rows], Y[rows])
                against += new
        if not (np.isfinite(w).all() and np.isfinite(errors).all()):
            raise NumericalError(
                f"{type(self).__name__}: rows must be small enough to square and sum, got "
                f"values up to {max(np.abs(X).max(), np.abs(Y).max()):.3g}. "
                "Give features and answers in larger units."
            )
        self.parameters_, self.memory_ = w, memory
        self.contradictions_ += against
        self._warn_when_full()
        said = Y - errors
        return said if s is None else said / root[:, None]

    def _step(self, w: Floats, memory: Any, features: Floats, Y: Floats) -> Any:
        """One step of the equation for these rows: w, memory, errors, contradictions."""
        n, c = Y.shape
        if features.ndim == 2:
            step = memory.learn(w, features.T, Y - features @ w, np.full(n, float(self.noise)))
            return step.w, step.memory, step.errors, step.contradictions
        p = features.shape[1]
        G = features.transpose(1, 0, 2).reshape(p, n * c)
        e = (Y - features.transpose(0, 2, 1) @ w).reshape(-1)
        step = memory.learn(w, G, e, np.full(n * c, float(self.noise)), group=c)
        return step.w, step.memory, step.errors.reshape(n, c), step.contradictions

    def _scores(self, X: Floats) -> Floats:
        c = len(getattr(self, "classes_", ())) or getattr(self, "n_outputs_", 1)
        features = self._mapped(X, c)
        if features.ndim == 2:
            return np.asarray(features @ self.parameters_)
        return np.asarray(features.transpose(0, 2, 1) @ self.parameters_)

    def _mapped(self, X: Floats, c: int) -> Floats:
        """The rows' gradients: (n, p) where outputs share them, or (n, p, c)."""
        features = X.astype(np.float64, copy=False)
        if self.feature_map is not None:
            features = np.asarray(self.feature_map(X), dtype=np.float64)
            good = features.ndim in {2, 3} and len(features) == len(X)
            if not good or (features.ndim == 3 and features.shape[2] != c):
                raise ShapeError(
                    f"{type(self).__name__}: `feature_map` must turn X of shape {X.shape} into "
                    f"features of shape ({len(X)}, p) or ({len(X)}, p, {c}), got "
                    f"{features.shape}. Check the map; name all classes beforehand."
                )
            if not np.isfinite(features).all():
                raise NumericalError(
                    f"{type(self).__name__}: `feature_map` must give finite features, got nan or "
                    "infinity. Check the map on this block of X."
                )
        if self.fit_intercept:
            ones = np.ones((len(X), 1, *features.shape[2:]))
            features = np.concatenate((ones, features), axis=1)
        return features

    def _widen(self, d: int) -> None:
        if self.feature_map is not None:
            raise ParameterError(
                f"{type(self).__name__}.grow: `feature_map` fixes the features, so none can be "
                f"added, got {d}. Start a new learner with another map."
            )
        extra = d - self.n_features_in_
        zeros = np.zeros((extra, self.parameters_.shape[1]))
        self.parameters_ = np.vstack((self.parameters_, zeros))
        self.memory_ = self.memory_.grown(len(self.parameters_))
        self.full_ = False

    def _warn_when_full(self) -> None:
        if self.full_ or self.memory_.rank < len(self.parameters_):
            return
        self.full_ = True
        warnings.warn(
            f"{type(self).__name__}: the memory holds all {len(self.parameters_)} directions, so "
            "with noise=0 nothing more can be learned. Use a smaller memory, noise > 0, or "
            "op.RLSRegressor, which averages.",
            MemoryFullWarning,
            stacklevel=2,
        )


class ORFitRegressor(_Fitting, Regressor):
    """Orthogonal recursive fitting: fit each new row exactly, move no past answer.

    Parameters
    ----------
    memory : int, None or a specification of op.memory, default=100
        What is kept of past gradients: m is ``op.memory.Principal(m)``, their m principal
        directions; None is ``op.memory.Basis()``, all of them.
    noise : float, default=0.0
        r >= 0, a row's variance relative to P₀ = I. 0 fits each row exactly; with more and
        ``memory=None`` it is ``RLSRegressor(ridge=noise, fit_intercept=False)``.
    fit_intercept : bool, default=False
        Whether there is an intercept: one more weight, of gradient 1.
    feature_map : callable, optional
        Φ: turns X (n, d) into features (n, p) that all outputs share, or into (n, p, c) where
        each of the c outputs has its own gradients and all share the weights w (p,).
    block_update : bool, default=False
        Whether a block is learned as one augmented row ([1] (9)) rather than row by row. The
        same without a limit to memory, another algorithm with one.
    initial_coef : array-like of shape (p,) or (c, p), optional
        w₀; zeros if not given.

    Attributes
    ----------
    coef_ : ndarray of shape (p,) or (c, p)
    intercept_ : float or ndarray of shape (c,)
    contradictions_ : int
        Rows in the span of the past that disagreed with it.
    n_features_in_ : int
    rows_seen_ : int
        Rows learned.

    Warns
    -----
    MemoryFullWarning
        Once, when no direction is free any more.

    Examples
    --------
    >>> import numpy as np, onepass as op
    >>> rng = np.random.default_rng(0)
    >>> X, y = rng.normal(size=(20, 50)), rng.normal(size=20)
    >>> model = op.ORFitRegressor(memory=None).fit(X, y)
    >>> float(abs(model.predict(X) - y).max()) < 1e-12
    True
    """

    def __init__(
        self,
        memory: Any = 100,
        noise: float = 0.0,
        *,
        fit_intercept: bool = False,
        feature_map: Callable[[Floats], Floats] | None = None,
        block_update: bool = False,
        initial_coef: Any = None,
    ) -> None:
        self.memory = memory
        self.noise = noise
        self.fit_intercept = fit_intercept
        self.feature_map = feature_map
        self.block_update = block_update
        self.initial_coef = initial_coef

    @property
    def coef_(self) -> Floats:
        """Weights: (p,), or (c, p) for several outputs that share their features."""
        if self._begun and self.parameters_.ndim == 1:
            return self.weights_.copy()
        return super().coef_

    @property
    def intercept_(self) -> Any:
        """The intercept: a float, or (c,) for several outputs."""
        if self._begun and self.parameters_.ndim == 1:
            return float(self.parameters_[0]) if self.fit_intercept else 0.0
        return super().intercept_

    def _unlearned(self, row: Floats) -> Any:
        features = self._mapped(row[None, :], 1)[0]
        if self.initial_coef is None:
            return 0.0
        start = np.asarray(self.initial_coef, dtype=np.float64)
        said = start @ (features[1:] if self.fit_intercept else features)
        return float(said) if said.ndim == 0 else said

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True  # it interpolates: made for more weights than rows
        return tags


class ORFitClassifier(_Fitting, Classifier):
    """Orthogonal recursive fitting of class indicators; the largest output is the answer.

    The answers learned are 1 for a row's class and 0 for the others. A class that comes late has
    been 0 in every row so far, so that it is learned as if it had been known all along.

    Parameters
    ----------
    memory : int, None or a specification of op.memory, default=100
        As in :class:`ORFitRegressor`.
    noise : float, default=0.0
        r >= 0, a row's variance relative to P₀ = I.
    fit_intercept : bool, default=False
        Whether there is an intercept: one more weight, of gradient 1.
    feature_map : callable, optional
        Φ: turns X (n, d) into features (n, p) that all classes share, or into (n, p, c) where
        each of c classes, all named in ``classes``, has its own gradients.
    block_update : bool, default=False
        Whether a block is learned as one augmented row ([1] (9)) rather than row by row.
    classes : array-like, optional
        Labels known beforehand; others may still come.

    Attributes
    ----------
    classes_ : ndarray of shape (c,)
        The labels known, sorted.
    coef_ : ndarray of shape (c, p), or (1, p) for two classes
    intercept_ : ndarray of shape (c,), or (1,) for two classes
    contradictions_ : int
        Rows in the span of the past that disagreed with it.
    n_features_in_ : int
    rows_seen_ : int
        Rows learned.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> import onepass as op
    >>> X, y = load_digits(return_X_y=True)
    >>> model = op.ORFitClassifier(memory=40, noise=10.0)
    >>> said = model.test_then_train(X, y)
    >>> bool((said == y).mean() > 0.8)
    True
    """

    def __init__(
        self,
        memory: Any = 100,
        noise: float = 0.0,
        *,
        fit_intercept: bool = False,
        feature_map: Callable[[Floats], Floats] | None = None,
        block_update: bool = False,
        classes: Any = None,
    ) -> None:
        self.memory = memory
        self.noise = noise
        self.fit_intercept = fit_intercept
        self.feature_map = feature_map
        self.block_update = block_update
        self.classes = classes

    def _add_outputs(self, at: Array, c: int) -> None:
        if self.parameters_.ndim == 1:
            raise ParameterError(
                f"{type(self).__name__}: `classes` must name all classes beforehand where each "
                f"has its own features, got {len(at)} new. Start a new learner with all of them."
            )
        parameters = np.zeros((len(self.parameters_), c))
        parameters[:, np.setdiff1d(np.arange(c), at)] = self.parameters_
        self.parameters_ = parameters
        self.memory_ = self.memory_.with_outputs(at, c)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.poor_score = True  # it interpolates: made for more weights than rows
        return tags


def _specification(memory: Any, where: str) -> Any:
    """The memory that a user means: m, None, or a specification."""
    if memory is None:
        return Basis()
    if isinstance(memory, (int, np.integer)) and not isinstance(memory, bool):
        return Principal(int(memory))
    if not hasattr(memory, "start"):
        raise ParameterError(
            f"{where}: `memory` must be a whole number >= 1, None, or a specification such as "
            f"op.memory.Principal(10), got {memory!r}. None keeps all directions."
        )
    return memory
