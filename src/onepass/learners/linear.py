"""Linear models: predictions are the product with a weight matrix plus an offset.

    f(x) = Wᵀ x + b,   W (d × c),  b (c)                                                 (1)

A classifier has one output per class. For two classes only the difference of their outputs
determines the prediction, so ``coef_`` and ``intercept_`` are that difference, as in scikit-learn:

    x ↦ classes_[1]  where  (W₁ − W₀)ᵀ x + (b₁ − b₀) ≥ 0                                 (2)

Cost: O(dc) time per row, O(dc) memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from functools import cache
from typing import Any, TypeVar

import numpy as np
from sklearn.base import clone

from onepass import linalg, native, validation
from onepass.declared import FEATURE, OUTPUT, CompiledState
from onepass.errors import ParameterError
from onepass.learners.compiled import Compiled, row_format
from onepass.learners.estimator import Classifier
from onepass.learners.step_size import SingleSteps
from onepass.linalg.update import Step
from onepass.memory.protocols import MemoryState
from onepass.types import Array, ArrayLike, Floats

CACHED_VALUES = 1 << 15
"""Number of values of rows that are converted at once and fit into the processor's caches."""

HALVES = np.array([-0.5, 0.5])
"""Factors that convert the weights of the shared problem of two classes to those of each class."""


_LARGEST = 1e150  # products of weights and of steps up to this bound do not overflow


class Linear(Compiled):
    """Mixin for learners with ``weights_`` and ``offset_``: predictions, ``coef_``, single rows.

    It precedes :class:`~onepass.learners.estimator.Regressor` or
    :class:`~onepass.learners.estimator.Classifier` in the bases of a class.

    Attributes
    ----------
    weights_ : ndarray of shape (d, c)
        One column for each output.
    offset_ : ndarray of shape (c,)
        One value for each output; zeros if no intercept is fitted.
    """

    weights_ = CompiledState[Floats](FEATURE, OUTPUT)
    offset_ = CompiledState[Floats](OUTPUT)
    fit_intercept: bool

    def _scores(self, X: Floats) -> Floats:
        scores: Floats = X @ self.weights_ + self.offset_  # (1)
        return scores

    def _intercepts(self) -> Floats:
        """Intercepts (c,)."""
        return np.asarray(self.offset_)

    @property
    def coef_(self) -> Floats:
        """Coefficients: (d,), or (c, d) for several outputs; (1, d) for two classes."""
        return coefficients(self)

    @property
    def intercept_(self) -> Any:
        """Intercepts: a float, or (c,) for several outputs; (1,) for two classes."""
        return intercepts(self, self._intercepts)

    def _slope_and_steps(self) -> tuple[int, float, SingleSteps] | None:
        """The compiled loop of single rows: identifier and parameter of the loss, and the steps.

        The identifier is 0 for the perceptron. None if there is no loop.
        """
        return None

    def _problems(self) -> tuple[Floats, Floats, Floats]:
        """Weights (d, c), offset (c,), and statistics (c, 5) or (c, 0), of each problem."""
        return self.weights_, self.offset_, np.empty((len(self.offset_), 0))

    def _from_problems(
        self, weights: Floats, offset: Floats, statistics: Floats
    ) -> tuple[Floats, Floats, Floats]:
        """The same of each output."""
        return weights, offset, statistics

    def _prepare_single_rows(self) -> None:
        """Compile the state, if that is supported."""
        described, loop = row_format(self), self._slope_and_steps()
        if loop is None:
            return
        number, parameter, steps = loop
        largest = max(steps.rate, linalg.magnitude(self.weights_), linalg.magnitude(self.offset_))
        if native.loops is None or described is None or not largest < _LARGEST:
            return
        weights, offset, statistics = map(np.ascontiguousarray, self._problems())
        unit = 1.0 if self.fit_intercept else 0.0
        compiled = native.loops.Linear(*weights.shape, unit, number, parameter, steps, described)
        own = statistics if statistics.size else None
        compiled.put(np.ascontiguousarray(weights.T), offset, own)
        self._set_compiled(compiled)

    def _read_all(self, compiled: Any) -> dict[str, Any]:
        """Copies of the learned attributes in a compiled state."""
        weights, offset = np.empty((compiled.c, compiled.d)), np.empty(compiled.c)
        statistics = np.empty((compiled.c, compiled.statistics))
        compiled.get(weights, offset, statistics if statistics.size else None)
        state = self._from_problems(weights.T, offset, statistics)
        found = zip(("weights_", "offset_", "statistics_"), state, strict=True)
        return {name: value for name, value in found if hasattr(type(self), name)}


def coefficients(learner: Any) -> Floats:
    """A copy of a learner's ``weights_`` in scikit-learn's shape.

    Raises
    ------
    NotFittedError
        If no row was learned.
    """
    rows: Floats = _sklearn_shape(learner, learner.weights_.T)
    return rows


def intercepts(learner: Any, values: Callable[[], Floats]) -> Any:
    """A copy of a learner's intercepts (c,) in scikit-learn's shape.

    Raises
    ------
    NotFittedError
        If no row was learned.
    """
    rows = _sklearn_shape(learner, values())
    return float(rows) if np.ndim(rows) == 0 else rows


def named_coefficients(model: Any) -> dict[str, Any]:
    """Coefficients of a fitted linear learner, or of one in a pipeline; empty for other models.

    Parameters
    ----------
    model : learner or Pipeline

    Returns
    -------
    coefficients : dict
        By feature, or by output and feature: a dict of ``value`` and, for recursive least squares
        and once it is finite, ``standard_error``.
    """
    values, features, outputs = _coefficients(model)
    if not values.size:
        return {}
    errors = _standard_errors(model, values)
    rows = [
        {
            str(name): {"value": float(value)}
            | ({"standard_error": float(std)} if math.isfinite(std) else {})
            for name, value, std in zip(features, *each, strict=True)
        }
        for each in zip(values, errors, strict=True)
    ]
    return dict(zip(outputs, rows, strict=True)) if len(rows) > 1 else rows[0]


def largest_coefficients(
    model: Any, limit: int
) -> tuple[int, int, list[tuple[str, str | None, float, float | None]]]:
    """Coefficients with the largest absolute values, as ``named_coefficients``.

    Parameters
    ----------
    model : learner or Pipeline
    limit : int
        Maximum number of coefficients.

    Returns
    -------
    outputs, features : int
    coefficients : list of tuple
        Feature, output (None if there is one), value, and standard error (None without one).
    """
    values, names, outputs = _coefficients(model)
    c, d = values.shape
    errors = _standard_errors(model, values)
    order = np.argsort(-np.abs(values), axis=None, kind="stable")[:limit]
    found = [
        (
            str(names[j]),
            str(outputs[i]) if c > 1 else None,
            float(values[i, j]),
            float(errors[i, j]) if math.isfinite(errors[i, j]) else None,
        )
        for i, j in zip(*np.unravel_index(order, values.shape), strict=True)
    ]
    return c, d, found


def _coefficients(model: Any) -> tuple[Floats, Any, list[Any]]:
    """Coefficients (c, d), names of features and of outputs; (0, 0) if a model has none."""
    learner = getattr(model, "learner", model)
    steps = getattr(model, "features", [])
    if not getattr(learner, "rows_seen_", 0) or not hasattr(learner, "coef_"):
        return np.empty((0, 0)), [], []
    values = np.atleast_2d(learner.coef_)
    names = getattr(learner, "feature_names_in_", [f"x{j}" for j in range(values.shape[1])])
    names = steps[-1].get_feature_names_out() if steps else names
    outputs = getattr(learner, "classes_", range(len(values)))
    return values, names, validation.label_names(outputs) if len(values) > 1 else []


def _standard_errors(model: Any, values: Floats) -> Floats:
    """Standard errors (c, d) of coefficients; NaN if the learner has none."""
    learner = getattr(model, "learner", model)
    return np.atleast_2d(getattr(learner, "coef_std_", np.full(values.shape, np.nan)))


def _sklearn_shape(learner: Any, rows: Floats) -> Any:
    """Return a copy in scikit-learn's shape: one row per output, (2) for two classes."""
    own = learner.__dict__
    if "classes_" in own:
        return rows[1:] - rows[:1] if len(rows) == 2 else rows.copy()  # (2)
    return rows[0].copy() if own.get("target_ndim_", 1) == 1 else rows.copy()


def initial_weights(initial_coef: ArrayLike | None, d: int, c: int) -> Floats:
    """Initial weights (d, c) from ``initial_coef`` of shape (d,) or (c, d); zeros if None.

    Raises
    ------
    ParameterError
        If ``initial_coef`` does not contain finite numbers in this shape.
    """
    if initial_coef is None:
        return np.zeros((d, c))
    try:
        given = np.asarray(initial_coef, dtype=np.float64)
    except (TypeError, ValueError):
        given = np.array(np.nan)
    rows = given[None, :] if given.ndim == 1 else given
    if rows.shape != (c, d) or not np.isfinite(rows).all():
        shape = f"({d},)" if c == 1 else f"({c}, {d})"
        problem = "nan or infinity" if rows.shape == (c, d) else f"shape {given.shape}"
        raise ParameterError(
            f"`initial_coef` must contain finite numbers of shape {shape}, one for each "
            f"feature, got {problem}",
            remedy="Construct the learner with another `initial_coef`.",
        )
    return np.array(rows.T, order="C")


def outputs_of(initial_coef: Any) -> int | None:
    """The number of outputs of initial coefficients (c, d); None for one output, (d,)."""
    return len(initial_coef) if np.ndim(initial_coef) == 2 else None


def predicted_initially(initial_coef: ArrayLike | None, row: Floats) -> Any:
    """Prediction of initial coefficients for a row: a float, or (c,) for several outputs."""
    c = outputs_of(initial_coef)
    predictions = row @ initial_weights(initial_coef, len(row), c or 1)
    return float(predictions[0]) if c is None else predictions


def float64_blocks(X: Floats, rows: int | None = None) -> Iterator[tuple[slice, Floats]]:
    """Yield rows as C-contiguous float64, at most ``rows`` at once; with a copy only if needed."""
    plain = X.dtype == np.float64 and X.flags.c_contiguous
    width = len(X) if plain else max(1, CACHED_VALUES // X.shape[1])
    width = width if rows is None else min(width, rows)
    for i in range(0, len(X), max(1, width)):
        part = slice(i, i + width)
        yield part, np.ascontiguousarray(X[part], dtype=np.float64)


def named_class_columns(learner: Classifier, parameter: str) -> Array:
    """The columns of the classes given in advance, for a parameter with their initial weights.

    Raises
    ------
    ParameterError
        If fewer than two classes are given.
    """
    named = validation.class_names(learner.classes)
    if len(named) < 2 or not np.isin(named, learner.classes_).all():
        raise ParameterError(
            f"`{parameter}` must be combined with two or more labels in `classes`, got "
            f"{learner.classes!r}. Construct the learner with `classes`."
        )
    return np.searchsorted(learner.classes_, named)


def initial_prediction(learner: Classifier, row: Floats) -> Any:
    """Prediction of a classifier's initial weights for a row; None without ``classes``."""
    if not len(validation.class_names(learner.classes)):
        return None
    started = clone(learner)
    started.partial_fit(row[None][:0], np.empty(0), classes=learner.classes)
    return started.predict_one(row)


def row_step(w: Floats, memory: MemoryState, features: Floats, Y: Floats, noise: float) -> Step:
    """Learn some rows in one step of a memory; the errors have the shape of Y.

    Parameters
    ----------
    w : ndarray of shape (p, c) or (p,)
    memory : state of a memory
    features : ndarray of shape (n, p) or (n, p, c)
        (n, p): shared by all outputs, with weights (p, c). (n, p, c): one set per output, with
        weights (p,).
    Y : ndarray of shape (n, c)
    noise : float
    """
    n, c = Y.shape
    if features.ndim == 2:
        step: Step = memory.learn(w, features.T, Y - features @ w, np.full(n, noise))
        return step
    G = features.transpose(1, 0, 2).reshape(-1, n * c)
    e = (Y - features.transpose(0, 2, 1) @ w).reshape(-1)
    step = memory.learn(w, G, e, np.full(n * c, noise), group=c)
    return step._replace(errors=step.errors.reshape(n, c))


def align_outputs(w: Floats, outputs: Array, c: int) -> Floats:
    """Extend weights (p, c′) to c outputs: their outputs are at these indices, others are zero.

    Weights (p,) that all outputs share are returned unchanged.

    Parameters
    ----------
    w : ndarray of shape (p, c′) or (p,)
    outputs : ndarray of shape (c′,)
    c : int
    """
    if w.ndim == 1:
        return w
    wide = np.zeros((len(w), c))
    wide[:, outputs] = w
    return wide


T = TypeVar("T")


def from_parameters(catalogue: Mapping[str, type[T]], what: str, params: Mapping[str, object]) -> T:
    """Build the loss or step rule that a learner's parameters select.

    Parameters
    ----------
    catalogue : dict of str to dataclass
        The choices. The metadata of a field is its range, in the form of `validation.in_range`.
    what : str
        The parameter that contains the name of the choice.
    params : dict of str to object
        The learner's parameters.

    Raises
    ------
    ParameterError
        If the name is unknown, or an option is out of range or belongs to another choice.

    Examples
    --------
    >>> from onepass.learners.losses import REGRESSION_LOSSES
    >>> params = {"loss": "huber", "huber_delta": 2}
    >>> from_parameters(REGRESSION_LOSSES, "loss", params)
    Huber(huber_delta=2.0)
    """
    name = params[what]
    if not isinstance(name, str) or name not in catalogue:
        raise ParameterError(
            f"`{what}` must be one of {', '.join(map(repr, catalogue))}, got {name!r}",
            remedy="Choose one of these.",
        )
    kinds: Mapping[str, Any] = catalogue
    ranges = _ranges(kinds[name])
    given = {}
    for other, kind in kinds.items():
        for option in _ranges(kind):
            value = params.get(option)
            if value is None:
                continue
            if option not in ranges:
                raise ParameterError(
                    f"`{option}` must be left out with {what}={name!r}, got {value!r}. "
                    f"Leave out `{option}`, or choose {what}={other!r}."
                )
            given[option] = validation.in_range(value, option, **ranges[option])
    return catalogue[name](**given)


@cache
def _ranges(kind: Any) -> dict[str, Mapping[str, float]]:
    """The options of a dataclass and the range of each."""
    return {f.name: f.metadata for f in fields(kind)}
