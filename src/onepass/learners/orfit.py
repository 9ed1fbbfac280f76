"""ORFit: orthogonal recursive fitting, which fits each row without changing past predictions.

For a model linear in its weights, f(x; w) = Φ(x)ᵀ w, each row (x, y) with e = y − f(x; w) is
fitted in one step along the part of its gradients G = Φ(x) orthogonal to all past gradients:

    G̃ = P G,      P = I − (projection on the directions in memory)                          (1)
    w ← w + G̃ (GᵀG̃ + r I)⁻¹ e                                                              (2)

([1] (5)-(7); r = 0 there). While the memory suffices, w is the point nearest to w₀ that fits all
rows ([1] Theorem 2), which SGD would reach only after many passes (Corollary 1); beyond that, the m
principal directions in memory minimise the worst-case forgetting (Proposition 4). A row in the span
of past rows cannot be fitted without forgetting: if it disagrees with them, it is not fitted, and
``inconsistent_rows_`` counts it. With ``noise`` r > 0 such rows are averaged: with unlimited memory
this is ridge regression with Π = r · I.
The gradients of a row are its features, shared by all outputs, or Φ(x) (p × c) if a feature map
gives each output its own. A row of weight s is equivalent to s rows: it is scaled by √s.
Cost: O(mp) time per row, O(mp) memory for a memory of m directions.

[1] Y. Min, K. Ahn, N. Azizan, "One-Pass Learning via Bridging Orthogonal Gradient Descent and
    Recursive Least-Squares", extended version.
[2] The conference version of [1], CDC 2022.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Collection
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Self, cast

import numpy as np

from onepass import linalg
from onepass.declared import State, param
from onepass.errors import MemoryFullWarning, MergeError, NumericalError, ParameterError, ShapeError
from onepass.learners.estimator import Classifier, Layout, Learner, Regressor
from onepass.learners.linear import (
    align_outputs,
    coefficients,
    initial_weights,
    intercepts,
    outputs_of,
    row_step,
)
from onepass.memory.choice import specification
from onepass.memory.principal import ForgettingBound, certified
from onepass.memory.protocols import GrowingState, Memory, Mergeable
from onepass.types import Array, ArrayLike, Floats

_WIDTH = 64  # rows in a block, if learning a block equals learning its rows
_LARGEST = 1e140  # inner products of longer rows would overflow


@dataclass(eq=False, repr=False)
class BaseORFit(Learner):
    """Base class of the ORFit estimators."""

    memory: int | Memory | None = 100
    noise: float = param(0.0, low=0.0)
    _: KW_ONLY
    fit_intercept: bool = False
    feature_map: Callable[[Floats], Floats] | None = None
    block_update: bool = False

    parameters_ = State[Floats]()
    initial_weights_ = State["Floats | None"]()
    memory_ = State[GrowingState]()
    noisy_ = State[bool]()
    inconsistent_rows_ = State[int]()
    forgotten_ = State[float]()
    full_ = State[bool]()

    @property
    def weights_(self) -> Floats:
        """Weights (p, c) without those of the intercept, as a view."""
        return self.parameters_[1:] if self.fit_intercept else self.parameters_

    @property
    def offset_(self) -> Floats:
        """Weights of the intercept, (c,)."""
        c = self.parameters_.shape[1:]
        return self.parameters_[0] if self.fit_intercept else np.zeros(c or 1)

    @property
    def coef_(self) -> Floats:
        """Coefficients: (p,), or (c, p) for several outputs; (1, p) for two classes."""
        return coefficients(self)

    @property
    def intercept_(self) -> Any:
        """Intercepts: a float, or (c,) for several outputs; (1,) for two classes."""
        return intercepts(self, lambda: self.offset_)

    @property
    def forgetting_bound_(self) -> ForgettingBound:
        """Certified bound on forgetting: the maximum change of past predictions.

        For classifiers, the bound applies to the scores; for rows with sample weights, to √weight
        times the prediction.
        """
        memory = getattr(self, "memory_", None)
        noise = float(getattr(self, "noisy_", self.noise))
        return certified(memory, _forgotten(self), noise=noise, linear=True)

    def _start(self, d: int, c: int) -> None:
        noise = float(self.noise)
        self.noisy_ = noise > 0.0
        self.inconsistent_rows_ = 0
        self.forgotten_ = 0.0
        self.full_ = False
        self._init_weights_and_memory(self._map_features(np.zeros((1, d)), c), c, noise)

    def _init_weights_and_memory(self, first: Floats, c: int, noise: float) -> None:
        """Initialise weights and memory for gradients of this shape."""
        own = first.ndim == 3
        p = first.shape[1]
        shape = (p,) if own else (p, c)
        start = np.zeros(shape)
        initial = getattr(self, "initial_coef", None)
        part = start[1:] if self.fit_intercept else start
        given = initial_weights(initial, len(part), 1 if own else c)
        part[...] = given[:, 0] if own else given
        self.parameters_ = start
        self.initial_weights_ = start if start.any() else None
        self.memory_ = specification(self.memory).start(p, 1 if own else c, noise)

    def _learn(self, X: Floats, Y: Floats, s: Floats | None, class_mask: Array | None) -> Floats:
        del class_mask  # the targets of an unknown class are zeros
        noise = self._check_noise()
        features = self._map_features(X, Y.shape[1])
        largest = max(linalg.magnitude(features), linalg.magnitude(Y))
        if s is not None:  # a row of weight s is equivalent to s rows: it is scaled by √s
            root = np.sqrt(s)
            features = features * root.reshape(-1, *[1] * (features.ndim - 1))
            Y = Y * root[:, None]
        n = len(X)
        w, memory, inconsistent = self.parameters_, self.memory_, 0
        forgotten = _forgotten(self)
        width = n if self.block_update else _WIDTH if memory.exact_in_blocks else 1
        errors = np.empty(Y.shape)
        good = False
        try:
            quiet = np.errstate(over="ignore", invalid="ignore", divide="ignore")
            one_by_one = linalg.single_threaded(len(w) ** 2 if width == 1 else 0)
            with quiet, one_by_one:  # for single rows threads cost more than they save
                for i in range(0, n, max(width, 1)):
                    rows = slice(i, i + width)
                    step = row_step(w, memory, features[rows], Y[rows], noise)
                    forgotten += float(memory.forgetting_bound(step.w, w))
                    w, memory, errors[rows] = step.w, step.memory, step.errors
                    inconsistent += step.inconsistent_rows
            good = largest < _LARGEST and linalg.finite(w, errors)
        except np.linalg.LinAlgError:  # SVD after an overflow
            pass
        if not good:
            raise NumericalError(
                f"rows must be small enough to square and sum, below {_LARGEST:g}, got "
                f"values up to {largest:.3g}. Divide features and targets by a constant."
            )
        self.parameters_, self.memory_ = w, memory
        self.inconsistent_rows_ += int(inconsistent)
        self.forgotten_ = forgotten
        self._warn_when_full()
        predictions = Y - errors
        return predictions if s is None else predictions / root[:, None]

    _merge_parameters: ClassVar[tuple[str, ...]] = (
        "memory",
        "noise",
        "fit_intercept",
        "feature_map",
    )

    @property
    def _merging(self) -> Any:
        """``exact`` if the memory stores all directions, ``approximate`` if it is limited."""
        return specification(self.memory).merging

    def _unmergeable(self) -> str:
        if self._merging != "refused":
            return ""
        return (
            f"got one with memory {self.memory!r}, which stores no evidence. "
            "Use op.memory.Basis() or op.memory.Principal(m)."
        )

    def _merge(self, other: Self, layout: Layout) -> None:
        """Learn the other learner's evidence as one block, starting from the current weights."""
        self._check_noise()
        if self.feature_map is not None:
            self._check_same_features(other, layout)
        elif layout.d > self.n_features_in_:
            self._widen(layout.d)
        w = self.parameters_
        places = np.arange(len(w))
        if self.feature_map is None:
            intercept = int(self.fit_intercept)
            places = np.concatenate((places[:intercept], layout.features + intercept))
        memory, theirs = cast("tuple[Mergeable, Mergeable]", (self.memory_, other.memory_))
        evidence = theirs.evidence(other.parameters_, other.initial_weights_)
        placed = evidence.placed(places, len(w), layout.outputs, w.shape[-1])
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            step = memory.merged(w, placed)
        if not linalg.finite(step.w):
            raise NumericalError(
                "the learned state must be small enough to square and sum, got numbers "
                "beyond float64. Divide features and targets by a constant."
            )
        first = _forgotten(self) + float(self.memory_.forgetting_bound(step.w, w))
        second = _forgotten(other) + evidence.moved(
            step.w[places], align_outputs(other.parameters_, layout.outputs, w.shape[-1])
        )
        self.forgotten_ = math.hypot(first, second)  # the rows of the two learners are different
        self.parameters_, self.memory_ = step.w, step.memory
        self.inconsistent_rows_ += other.inconsistent_rows_ + step.inconsistent_rows
        self._warn_when_full()

    def _check_same_features(self, other: Self, layout: Layout) -> None:
        """Raise an error unless features and their order are equal, as a feature map requires."""
        same = np.array_equal(layout.features, np.arange(self.n_features_in_))
        if not same or other.parameters_.shape[0] != self.parameters_.shape[0]:
            raise MergeError(
                "with a `feature_map` both learners must have the same features in the "
                f"same order, {self.n_features_in_} here, got {other.n_features_in_} or "
                "another order. Pass the features in the same order."
            )

    def _check_noise(self) -> float:
        """Validate and return the noise.

        Raises
        ------
        ParameterError
            If ``noise`` has changed between 0 and positive since learning started.
        """
        noise = float(self.noise)
        if (noise > 0.0) != self.noisy_:
            raise ParameterError(
                f"`noise` must stay {'> 0' if self.noisy_ else '0'}, as it was when "
                f"learning started, got {noise:g}. Call fit to start again."
            )
        return noise

    def _scores(self, X: Floats) -> Floats:
        c = len(getattr(self, "classes_", ())) or getattr(self, "n_outputs_", 1)
        features = self._map_features(X, c)
        if features.ndim == 2:
            return np.asarray(features @ self.parameters_)
        return np.asarray(features.transpose(0, 2, 1) @ self.parameters_)

    def _map_features(self, X: Floats, c: int | None) -> Floats:
        """Gradients of rows: (n, p), shared by all outputs, or (n, p, c); any c if c is None."""
        features = X.astype(np.float64, copy=False)
        if self.feature_map is not None:
            if not callable(self.feature_map):
                raise ParameterError(
                    f"`feature_map` must be a function of X, got {self.feature_map!r}. "
                    "Use None for no map."
                )
            features = np.asarray(self.feature_map(X), dtype=np.float64)
            good = features.ndim in {2, 3} and len(features) == len(X) and features.shape[1] > 0
            if not good or (features.ndim == 3 and c not in {None, features.shape[2]}):
                raise ShapeError(
                    f"`feature_map` must map X of shape {X.shape} to features of shape "
                    f"({len(X)}, p) or ({len(X)}, p, {c or 'c'}), got {features.shape}. "
                    "Check the map, and pass all labels in `classes`."
                )
            if not np.isfinite(features).all():
                raise NumericalError(
                    "`feature_map` must return finite features, got nan or infinity. "
                    "Check the map on this block of X."
                )
        if self.fit_intercept:
            ones = np.ones((len(X), 1, *features.shape[2:]))
            features = np.concatenate((ones, features), axis=1)
        if hasattr(self, "parameters_") and features.shape[1] != len(self.parameters_):
            raise ShapeError(
                "`feature_map` and `fit_intercept` must stay as they were when "
                f"learning started, with {len(self.parameters_)} weights, got "
                f"{features.shape[1]} features per row. Call fit to start again."
            )
        return features

    def _widen(self, d: int) -> None:
        if self.feature_map is not None:
            raise ParameterError(
                f"features cannot be added with a `feature_map`, got d={d}. Start a new "
                "learner with another map."
            )
        extra = d - self.n_features_in_
        zeros = np.zeros((extra, self.parameters_.shape[1]))
        self.parameters_ = np.vstack((self.parameters_, zeros))
        if self.initial_weights_ is not None:
            self.initial_weights_ = np.vstack((self.initial_weights_, zeros))
        self.memory_ = self.memory_.grown(len(self.parameters_))
        self.full_ = False

    def _warn_when_full(self) -> None:
        """Warn once if later rows can change little or nothing."""
        p = len(self.parameters_)
        full = self.memory_.rank >= p
        mostly = self.rows_seen_ >= 2 * p and 2 * self.inconsistent_rows_ > self.rows_seen_
        if self.full_ or not (full or mostly):
            return
        self.full_ = True
        reason = (
            f"{self.inconsistent_rows_:,} of {self.rows_seen_:,} rows contradict rows before them"
        )
        if full:
            reason = f"the memory contains all {p} directions"
        warnings.warn(
            f"{type(self).__name__}: {reason}, so with noise=0 little or nothing more can be "
            "learned. Use a smaller memory, noise > 0, or op.RLSRegressor, which averages.",
            MemoryFullWarning,
            stacklevel=2,
        )


def _forgotten(learner: object) -> float:
    """The bound on changes of past predictions; infinite for files that do not contain it."""
    started = hasattr(learner, "memory_")
    return float(getattr(learner, "forgotten_", math.inf if started else 0.0))


@dataclass(eq=False, repr=False)
class ORFitRegressor(BaseORFit, Regressor):
    """Regression by orthogonal recursive fitting (ORFit).

    Each new row is fitted exactly, without changing predictions on past rows.

    Parameters
    ----------
    memory : int, None or a specification of op.memory, default=100
        Memory of past gradients. An integer m is ``op.memory.Principal(m)``, which stores their m
        principal directions; None is ``op.memory.Basis()``, which stores all directions.
    noise : float, default=0.0
        Noise variance r >= 0 of a row, relative to the prior covariance P₀ = I. With 0 each row is
        fitted exactly. With r > 0 and ``memory=None`` it is equivalent to
        ``RLSRegressor(ridge=noise, fit_intercept=False)``.
    fit_intercept : bool, default=False
        Whether to fit an intercept, as the weight of a feature that is always 1.
    feature_map : callable, optional
        Feature map Φ from X (n, d) to features (n, p) shared by all outputs, or to (n, p, c), where
        each of the c outputs has its own gradients and all share the weights w (p,).
    block_update : bool, default=False
        Whether to learn a block as one augmented row ([1] (9)) instead of row by row. The result
        is the same with unlimited memory, but not with a limited one.
    initial_coef : array-like of shape (p,) or (c, p), optional
        Initial coefficients w₀. By default zeros.

    Attributes
    ----------
    coef_ : ndarray of shape (p,) or (c, p)
        Coefficients.
    intercept_ : float or ndarray of shape (c,)
        Intercept.
    inconsistent_rows_ : int
        Number of rows in the span of past rows that disagreed with them.
    n_features_in_ : int
        Number of features.
    rows_seen_ : int
        Number of rows learned.

    Warns
    -----
    MemoryFullWarning
        Once, when no free direction is left.

    Examples
    --------
    >>> import numpy as np, onepass as op
    >>> rng = np.random.default_rng(0)
    >>> X, y = rng.normal(size=(20, 50)), rng.normal(size=20)
    >>> model = op.ORFitRegressor(memory=None).fit(X, y)
    >>> float(abs(model.predict(X) - y).max()) < 1e-12
    True
    """

    _: KW_ONLY
    initial_coef: ArrayLike | None = None

    @property
    def coef_(self) -> Floats:
        """Coefficients: (p,), or (c, p) for several outputs that share their features."""
        if self._started and self.parameters_.ndim == 1:
            return self.weights_.copy()
        return super().coef_

    @property
    def intercept_(self) -> Any:
        """The intercept: a float, or (c,) for several outputs."""
        if self._started and self.parameters_.ndim == 1:
            return float(self.parameters_[0]) if self.fit_intercept else 0.0
        return super().intercept_

    def _initial_prediction(self, row: Floats) -> Any:
        features = self._map_features(row[None, :], None)[0]
        features = features[1:] if self.fit_intercept else features
        p, own, given = len(features), features.ndim == 2, self.initial_coef
        if given is None:
            return np.zeros(features.shape[1]) if own else 0.0
        c = 1 if own else outputs_of(given) or 1
        prediction = features.T @ initial_weights(given, p, c)
        if own:
            return prediction[:, 0]
        return prediction if np.ndim(given) == 2 else float(prediction[0])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True  # interpolates: for more weights than rows
        return tags


@dataclass(eq=False, repr=False)
class ORFitClassifier(BaseORFit, Classifier):
    """Classification by orthogonal recursive fitting (ORFit) of class indicators.

    The target of a class is 1 for its rows and 0 for all others; the class with the largest output
    is predicted. The targets of a class before its first row are 0, so that a class that occurs
    late is learned as if it had been known from the start.

    Parameters
    ----------
    memory : int, None or a specification of op.memory, default=100
        As in :class:`ORFitRegressor`.
    noise : float, default=0.0
        Noise variance r >= 0 of a row, relative to the prior covariance P₀ = I.
    fit_intercept : bool, default=False
        Whether to fit an intercept, as the weight of a feature that is always 1.
    feature_map : callable, optional
        Feature map Φ from X (n, d) to features (n, p) shared by all classes, or to (n, p, c), where
        each of the c classes, all given in ``classes``, has its own gradients.
    block_update : bool, default=False
        Whether to learn a block as one augmented row ([1] (9)) instead of row by row.
    classes : array-like, optional
        Labels known in advance. New labels may still occur.

    Attributes
    ----------
    classes_ : ndarray of shape (c,)
        Labels seen or given in advance, sorted.
    coef_ : ndarray of shape (c, p), or (1, p) for two classes
        Coefficients.
    intercept_ : ndarray of shape (c,), or (1,) for two classes
        Intercepts.
    inconsistent_rows_ : int
        Number of rows in the span of past rows that disagreed with them.
    n_features_in_ : int
        Number of features.
    rows_seen_ : int
        Number of rows learned.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> import onepass as op
    >>> X, y = load_digits(return_X_y=True)
    >>> model = op.ORFitClassifier(memory=40, noise=10.0)
    >>> predictions = model.test_then_train(X, y)
    >>> bool((predictions == y).mean() > 0.8)
    True
    """

    _: KW_ONLY
    classes: Collection[object] | None = None

    def _add_outputs(self, at: Array, c: int) -> None:
        if self.parameters_.ndim == 1:
            raise ParameterError(
                "`classes` must contain all labels if each class has its own features, "
                f"got {len(at)} new. Start a new learner with all labels in `classes`."
            )
        parameters = np.zeros((len(self.parameters_), c))
        parameters[:, np.setdiff1d(np.arange(c), at)] = self.parameters_
        self.parameters_ = parameters
        self.memory_ = self.memory_.with_outputs(at, c)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.poor_score = True  # interpolates: for more weights than rows
        return tags
