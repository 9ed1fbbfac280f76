"""Linear: what is learned is a matrix of weights and an offset, and an answer is one product.

    f(x) = Wᵀ x + b,   W (d × c),  b (c)                                                 (1)

A classifier has one output a class. Of two classes only the difference of their outputs decides
the answer, so ``coef_`` and ``intercept_`` show that difference, as scikit-learn does:

    x ↦ classes_[1]  where  (W₁ − W₀)ᵀ x + (b₁ − b₀) ≥ 0                                 (2)

Cost: O(dc) a row, O(dc) memory.

Gradients: rows of features, shared by all outputs or not, as a step of a memory wants them.

Choice: a name and its options, as one checked specification.

Learners take a name (``loss="huber"``) and its options (``huber_delta=2.0``) side by side, as
scikit-learn's searches want them. An option left at None has the default of what the name stands
for; an option of something else is refused, so that none is accepted and ignored.
"""

from collections.abc import Iterator, Mapping
from dataclasses import fields
from functools import cache
from typing import Any, TypeVar

import numpy as np
from sklearn.base import clone

from onepass import validation
from onepass.errors import Array, Floats, NotFittedError, ParameterError
from onepass.learners.estimator import Classifier
from onepass.linalg.update import Step

__all__ = [
    "HALVES",
    "NEAR",
    "Linear",
    "chosen",
    "initial_weights",
    "named_columns",
    "placed_outputs",
    "plain_parts",
    "row_step",
    "said_at_first",
]


NEAR = 1 << 15
"""Numbers of rows that are converted at once, and fit into the nearer caches."""

HALVES = np.array([-0.5, 0.5])
"""What each of two classes takes of the one problem that they share."""


class Linear:
    """Scores, ``coef_`` and ``intercept_`` of a learner that holds ``weights_`` and ``offset_``.

    Stands before :class:`~onepass.learners.estimator.Regressor` or
    :class:`~onepass.learners.estimator.Classifier` among a class's bases.

    Attributes
    ----------
    weights_ : ndarray of shape (d, c)
        One column an output.
    offset_ : ndarray of shape (c,)
        One number an output; zeros where no intercept is fitted.
    """

    weights_: Floats
    offset_: Floats

    def _scores(self, X: Floats) -> Floats:
        scores: Floats = X @ self.weights_ + self.offset_  # (1)
        return scores

    def _intercepts(self) -> Floats:
        """The intercepts (c,)."""
        return self.offset_

    def _widen(self, d: int) -> None:
        """Weights of new features begin at zero."""
        new = np.zeros((d - self.weights_.shape[0], self.weights_.shape[1]))
        self.weights_ = np.concatenate([self.weights_, new])

    def _add_outputs(self, at: Array, c: int) -> None:
        """Weights of new outputs begin at zero."""
        old = np.setdiff1d(np.arange(c), at)
        weights, offset = np.zeros((self.weights_.shape[0], c)), np.zeros(c)
        weights[:, old], offset[old] = self.weights_, self.offset_
        self.weights_, self.offset_ = weights, offset

    @property
    def coef_(self) -> Floats:
        """Coefficients: (d,), or (c, d) for several outputs; (1, d) for two classes."""
        shown: Floats = self._shown("coef_")
        return shown

    @property
    def intercept_(self) -> Any:
        """Intercepts: a float, or (c,) for several outputs; (1,) for two classes."""
        shown = self._shown("intercept_")
        return float(shown) if np.ndim(shown) == 0 else shown

    def _shown(self, name: str) -> Any:
        """A copy in scikit-learn's shape: whoever writes into it does not change the learner."""
        if not hasattr(self, "weights_"):
            who = type(self).__name__
            raise NotFittedError(
                f"{who}.{name}: this {who} is not fitted yet: it has learned no row. "
                "Call fit, partial_fit or learn_one first."
            )
        rows = self.weights_.T if name == "coef_" else self._intercepts()
        if hasattr(self, "classes_"):
            return rows[1:] - rows[:1] if len(rows) == 2 else rows.copy()  # (2)
        return rows[0].copy() if getattr(self, "answer_ndim_", 1) == 1 else rows.copy()


def initial_weights(initial_coef: Any, d: int, c: int, who: str) -> Floats:
    """The weights (d, c) that a learner begins with, from (d,) or (c, d); zeros where None.

    Raises
    ------
    ParameterError
        If they are not finite numbers of this shape.
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
        came = "nan or infinity" if rows.shape == (c, d) else f"shape {given.shape}"
        raise ParameterError(
            f"{who}: `initial_coef` must hold finite numbers of shape {shape}, one for each "
            f"feature, got {came}. Construct the learner with another `initial_coef`."
        )
    return np.array(rows.T, order="C")


def plain_parts(X: Floats) -> Iterator[tuple[slice, Floats]]:
    """Rows as float64, row after row in memory: all of them if they are, or some after others."""
    plain = X.dtype == np.float64 and X.flags.c_contiguous
    width = len(X) if plain else max(1, NEAR // X.shape[1])
    for i in range(0, len(X), max(1, width)):
        rows = slice(i, i + width)
        yield rows, np.ascontiguousarray(X[rows], dtype=np.float64)


def named_columns(learner: Classifier, asking: str) -> Array:
    """The columns of the classes named beforehand, for a start that other classes do not have.

    Raises
    ------
    ParameterError
        If fewer than two classes are named.
    """
    who = type(learner).__name__
    named = validation.class_names(learner.classes, who)
    if len(named) < 2 or not np.isin(named, learner.classes_).all():
        raise ParameterError(
            f"{who}: `{asking}` must go with the names of two classes or more in `classes`, "
            f"got {learner.classes!r}. Name the classes when constructing the learner."
        )
    return np.searchsorted(learner.classes_, named)


def said_at_first(learner: Classifier, row: Floats) -> Any:
    """What a classifier's initial weights say of a row: None where no class is named."""
    if not len(validation.class_names(learner.classes, type(learner).__name__)):
        return None
    begun = clone(learner)
    begun.partial_fit(row[None][:0], np.empty(0), classes=learner.classes)
    return begun.predict_one(row)


def row_step(w: Floats, memory: Any, features: Floats, Y: Floats, noise: float) -> Step:
    """One step of the equation for some rows, its errors of the shape of their answers.

    Parameters
    ----------
    w : ndarray of shape (p, c) or (p,)
    memory : state of a memory
    features : ndarray of shape (n, p) or (n, p, c)
        Shared by all outputs, with weights (p, c), or not, with weights (p,).
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


def placed_outputs(w: Floats, outputs: Array, c: int) -> Floats:
    """Weights (p, c′) with their outputs at these places of c, zero elsewhere.

    Weights (p,) that all outputs share are as they are.

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


def chosen(catalogue: Mapping[str, type[T]], what: str, params: Mapping[str, Any], who: str) -> T:
    """The specification that a user's parameters name.

    Parameters
    ----------
    catalogue : dict of str to dataclass
        What can be chosen. A field's metadata holds its range, as `validate.in_range` takes it.
    what : str
        The parameter that holds the name.
    params : dict of str to object
        The learner's parameters.
    who : str
        The learner, for messages.

    Raises
    ------
    ParameterError
        If the name is unknown, or an option is out of range or belongs to another name.

    Examples
    --------
    >>> from onepass.learners.losses import REGRESSION_LOSSES
    >>> chosen(REGRESSION_LOSSES, "loss", {"loss": "huber", "huber_delta": 2}, "SGDRegressor")
    Huber(huber_delta=2.0)
    """
    name = params[what]
    if not isinstance(name, str) or name not in catalogue:
        raise ParameterError(
            f"{who}: `{what}` must be one of {', '.join(map(repr, catalogue))}, got {name!r}. "
            "Choose one of these."
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
                    f"{who}: `{option}` must be left out with {what}={name!r}, got {value!r}. "
                    f"Leave it out, or choose {what}={other!r}."
                )
            given[option] = validation.in_range(value, option, who, **ranges[option])
    return catalogue[name](**given)


@cache
def _ranges(kind: Any) -> dict[str, Mapping[str, float]]:
    """The options of a dataclass, and the range of each."""
    return {f.name: f.metadata for f in fields(kind)}
