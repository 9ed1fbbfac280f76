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

from collections.abc import Callable
from typing import Any

import numpy as np

from onepass.errors import Array, Floats, ParameterError
from onepass.learners.estimator import Classifier, Regressor
from onepass.learners.fitting import Fitting
from onepass.learners.linear import initial_weights

__all__ = ["ORFitClassifier", "ORFitRegressor"]


class ORFitRegressor(Fitting, Regressor):
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
        features = self._mapped(row[None, :], None)[0]
        features = features[1:] if self.fit_intercept else features
        p, own, given = len(features), features.ndim == 2, self.initial_coef
        if given is None:
            return np.zeros(features.shape[1]) if own else 0.0
        c = 1 if own or np.ndim(given) < 2 else len(given)
        said = features.T @ initial_weights(given, p, c, type(self).__name__)
        if own:
            return said[:, 0]
        return said if np.ndim(given) == 2 else float(said[0])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True  # it interpolates: made for more weights than rows
        return tags


class ORFitClassifier(Fitting, Classifier):
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
