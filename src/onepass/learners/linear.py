"""Linear models: predictions are the product with a weight matrix plus an offset.

    f(x) = Wᵀ x + b,   W (d × c),  b (c)                                                 (1)

A classifier has one output per class. For two classes only the difference of their outputs
determines the prediction, so ``coef_`` and ``intercept_`` are that difference, as in scikit-learn:

    x ↦ classes_[1]  where  (W₁ − W₀)ᵀ x + (b₁ − b₀) ≥ 0                                 (2)

While single rows are learned, the compiled loop of :mod:`onepass.native` owns the state and updates
it in place, with one call per row. Reading an attribute, ``vars``, copying or pickling closes the
loop first, and the next single rows open it again with a copy, so that no visible array is ever
modified. Cost: O(dc) time per row, O(dc) memory.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from functools import cache
from threading import RLock
from types import GetSetDescriptorType
from typing import Any, ClassVar, Self, TypeVar

import numpy as np
from sklearn.base import clone

from onepass import linalg, native, validation
from onepass.errors import NotFittedError, ParameterError
from onepass.learners.estimator import Classifier
from onepass.learners.step_size import Steps
from onepass.linalg.update import Step
from onepass.memory.protocols import MemoryState
from onepass.serialization.state import nbytes
from onepass.types import Array, ArrayLike, Floats, RowLike, TimeLike

__all__ = [
    "CACHED_VALUES",
    "HALVES",
    "Linear",
    "align_outputs",
    "attributes",
    "coefficients",
    "float64_blocks",
    "from_parameters",
    "initial_prediction",
    "initial_weights",
    "intercepts",
    "named_class_columns",
    "row_step",
]


CACHED_VALUES = 1 << 15
"""Number of values of rows that are converted at once and fit into the processor's caches."""

HALVES = np.array([-0.5, 0.5])
"""Factors that convert the weights of the shared problem of two classes to those of each class."""


_OPEN_FOR_ROWS = 1024  # rows for which the loop is opened
_WEIGHTS_PER_ROW = 64  # weights that are copied for each single row learned in sequence
_LARGEST = 1e150  # products of weights up to this bound do not overflow while the loop is open
_PLAIN = "biufU"  # kinds of labels that the loop compares as NumPy does
_LABELS = (str, int, float, np.generic)

_LOOP_LOCK = RLock()
"""Acquired to open or close a loop: another thread may read the same learner."""

if hasattr(os, "register_at_fork"):  # so that a child process never inherits a locked lock
    os.register_at_fork(
        before=_LOOP_LOCK.acquire,
        after_in_parent=_LOOP_LOCK.release,
        after_in_child=_LOOP_LOCK.release,
    )


class Linear:
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

    _loop_attributes: ClassVar[tuple[str, ...]] = ("weights_", "offset_", "rows_seen_", "steps_")
    """The attributes that the loop owns while it is open."""
    _not_for_prediction: ClassVar[tuple[str, ...]] = ()
    """The attributes of the loop that predictions do not need."""

    weights_: Floats
    offset_: Floats
    fit_intercept: bool

    _loop: Any = None
    _before_loop: Any = None  # the attributes with which the loop was opened
    _unavailable: dict[str, Any]  # in copies for prediction, placeholders for other attributes
    _single_rows: int = 0
    _pending_state: tuple[dict[str, Any], Any] | None = None  # in copies, until the first read

    def _scores(self, X: Floats) -> Floats:
        scores: Floats = X @ self.weights_ + self.offset_  # (1)
        return scores

    def _intercepts(self) -> Floats:
        """Intercepts (c,)."""
        return self.offset_

    def _widen(self, d: int) -> None:
        """Add features with zero weights."""
        new = np.zeros((d - self.weights_.shape[0], self.weights_.shape[1]))
        self.weights_ = np.concatenate([self.weights_, new])

    def _add_outputs(self, at: Array, c: int) -> None:
        """Add outputs with zero weights."""
        old = np.setdiff1d(np.arange(c), at)
        weights, offset = np.zeros((self.weights_.shape[0], c)), np.zeros(c)
        weights[:, old], offset[old] = self.weights_, self.offset_
        self.weights_, self.offset_ = weights, offset

    @property
    def coef_(self) -> Floats:
        """Coefficients: (d,), or (c, d) for several outputs; (1, d) for two classes."""
        return coefficients(self)

    @property
    def intercept_(self) -> Any:
        """Intercepts: a float, or (c,) for several outputs; (1,) for two classes."""
        return intercepts(self, self._intercepts)

    # -- single rows in the compiled loop ----------------------------------------------------------

    def learn_one(
        self,
        x: RowLike,
        y: ArrayLike | None,
        sample_weight: float = 1.0,
        *,
        time: TimeLike | None = None,
    ) -> Self:
        """Learn one row.

        Parameters
        ----------
        x : array-like of shape (d,), or dict of named features
        y : float, array-like of shape (c,) or label
            Target.
        sample_weight : float, default=1.0
        time : number or date, optional
            As in ``fit``.

        Returns
        -------
        self
        """
        loop = self._loop
        if loop is not None and time is None and loop.learn_one(x, y, sample_weight):
            return self
        single = self._single_rows + 1
        with self._rollback_on_error():
            super().learn_one(x, y, sample_weight, time=time)  # type: ignore[misc]
            self._open_if_closed(single)
        return self

    def predict_one(self, x: RowLike) -> Any:
        """Predict the target of one row, from the initial weights if no row was learned."""
        loop = self._loop
        prediction = None if loop is None else loop.predict_one(x)
        return super().predict_one(x) if prediction is None else prediction  # type: ignore[misc]

    def frozen_copy(self) -> Any:
        """Return a copy for prediction that later learning does not change; the loop stays open."""
        with _LOOP_LOCK:
            own = dict(attributes(self))
            loop = own.pop("_loop", None)
            own.pop("_single_rows", None)
            own.pop("_unavailable", None)
            if loop is not None:  # converted on the first read: most copies are never read
                state = self._loop_state(loop)
                before = self._attributes_for_copy(own.pop("_before_loop"), state)
                own["_pending_state"] = before, state
        frozen = object.__new__(type(self))
        _dictionary(type(self)).__set__(frozen, own)  # type: ignore[arg-type]  # mypy: no hash
        return frozen

    def _slope_and_steps(self, n: int) -> tuple[int, float, Steps]:
        """Identifier (0 for the perceptron) and parameter of the loss, and the next n steps."""
        raise NotImplementedError

    def _problems(self) -> tuple[Floats, Floats]:
        """Weights (d, c) and offset (c,), one column for each problem."""
        return self.weights_, self.offset_

    def _from_problems(self, weights: Floats, offset: Floats) -> tuple[Floats, Floats]:
        """``weights_`` and ``offset_``, from the weights and offsets of the problems."""
        return weights, offset

    def _row_format(self) -> tuple[Any, ...] | None:
        """The format in which the loop parses rows; None if it does not support the targets."""
        names = getattr(self, "feature_names_in_", None)
        rows = (np.ndarray, None if names is None else tuple(map(str, names)))
        classes = getattr(self, "classes_", None)
        if classes is not None:
            labels = tuple(classes)
            if not all(isinstance(label, _LABELS) for label in labels):
                return None  # labels of other types may define their own comparison
            return (*rows, None, labels, {label: i for i, label in enumerate(classes.tolist())})
        return (*rows, np.float64, None, None) if self.target_ndim_ == 1 else None

    def _open_if_closed(self, single: int) -> None:
        with _LOOP_LOCK:
            if self._loop is None:
                self._open_loop(single)

    def _open_loop(self, single: int) -> None:
        """Open the loop if enough single rows were learned in sequence."""
        if native.loops is None:
            return
        object.__setattr__(self, "_single_rows", single)
        if self.weights_.size > _WEIGHTS_PER_ROW * single:
            return
        classes = getattr(self, "classes_", None)
        if classes is not None and (len(classes) < 2 or classes.dtype.kind not in _PLAIN):
            return
        reading = self._row_format()
        largest = max(linalg.magnitude(self.weights_), linalg.magnitude(self.offset_))
        if reading is None or not largest < _LARGEST:
            return
        weights, offset = self._problems()
        number, parameter, steps = self._slope_and_steps(_OPEN_FOR_ROWS)
        unit = 1.0 if self.fit_intercept else 0.0
        loop = native.loops.Linear(*weights.shape, unit, number, parameter, *reading)
        loop.put(
            _OPEN_FOR_ROWS, np.ascontiguousarray(weights.T), np.ascontiguousarray(offset), *steps
        )
        self._give_to_loop(loop, single)

    def _give_to_loop(self, loop: Any, single: int) -> None:
        """Transfer the learned attributes to the loop, as one assignment."""
        rest = dict(attributes(self))
        # ``center_`` may be missing
        before = {name: rest.pop(name, 0.0) for name in self._loop_attributes}
        unavailable = {
            name: _Unavailable(nbytes(before[name]))
            for name in self._not_for_prediction
            if name in before
        }
        self.__dict__ = {
            **rest,
            "_before_loop": before,
            "_unavailable": unavailable,
            "_loop": loop,
            "_single_rows": single,
        }

    def _loop_state(self, loop: Any) -> Any:
        """The state of an open loop that predictions need."""
        return loop.get()

    def _attributes_for_copy(self, before: dict[str, object], state: Any) -> dict[str, Any]:
        """The attributes before the loop that a copy for prediction needs."""
        return {**before, "weights_": None, "offset_": None} if state[2] else before

    def _attributes_after(self, before: dict[str, object], state: Any) -> dict[str, Any]:
        """The attributes before the loop, updated to the state of the loop."""
        found = dict(before)
        W, b, rows, mistakes = state
        if rows:
            offset = np.frombuffer(b).copy()
            weights = np.frombuffer(W).reshape(len(offset), -1).T.copy(order="F")
            found["weights_"], found["offset_"] = self._from_problems(weights, offset)
            for name in self._loop_attributes[2:]:
                found[name] += mistakes if name == "mistakes_" else rows
        return found

    def _sync(self) -> None:
        own = attributes(self)
        pending = own.get("_pending_state")
        if pending is None:
            with _LOOP_LOCK:
                self._close_loop()
            return
        for name, value in self._attributes_after(*pending).items():  # without the lock:
            own.setdefault(name, value)  # concurrent readers compute the same values
        own.pop("_pending_state", None)

    def _close_loop(self) -> None:
        """Transfer the state of the loop back to the attributes, and close the loop."""
        loop = self._loop
        if loop is None:
            if self._single_rows:
                object.__delattr__(self, "_single_rows")
            return
        loop.release()  # remaining references to the loop cannot learn any more
        found = self._attributes_after(self._before_loop, self._loop_state(loop))
        for name, value in found.items():
            object.__setattr__(self, name, value)
        # remove the loop first, so that an interrupt leaves a consistent learner
        for name in ("_loop", "_before_loop", "_unavailable", "_single_rows"):
            object.__delattr__(self, name)

    # -- attribute access, which closes the loop first ---------------------------------------------

    def __getattr__(self, name: str) -> Any:
        if name in type(self)._loop_attributes and (  # noqa: SLF001
            self._loop is not None or self._pending_state is not None
        ):
            self._sync()
            return getattr(self, name)
        return object.__getattribute__(self, name)  # raises the original AttributeError

    def __setattr__(self, name: str, value: object) -> None:
        with _LOOP_LOCK:
            if self._loop is not None or self._pending_state is not None:
                self._sync()  # a parameter applies from the next row
            super().__setattr__(name, value)

    def __getstate__(self) -> Any:
        self._sync()
        return super().__getstate__()

    @property
    def __dict__(self) -> dict[str, Any]:
        self._sync()
        return attributes(self)

    @__dict__.setter
    def __dict__(self, values: dict[str, object]) -> None:
        _dictionary(type(self)).__set__(self, values)  # type: ignore[arg-type]  # mypy: no hash


class _Unavailable:
    """Placeholder, in a copy for prediction, for an attribute that only the loop contains."""

    __slots__ = ("nbytes",)

    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # special attributes that Python looks up
            raise AttributeError(name)
        raise NotFittedError(
            "onepass: a learner's `frozen_copy()` must be used for prediction only, got a call "
            "that needs the whole state. Use a full copy: `model()` of a durable learner, or "
            "copy.deepcopy of another learner."
        )


@cache
def _dictionary(cls: type) -> Any:
    """Python's own descriptor of ``__dict__`` for instances of a class."""
    return next(
        own for base in cls.__mro__
        if isinstance(own := vars(base).get("__dict__"), GetSetDescriptorType)
    )  # fmt: skip


def attributes(learner: object) -> dict[str, Any]:
    """The instance attributes of a learner, without closing its loop."""
    own: dict[str, Any] = _dictionary(type(learner)).__get__(learner)  # type: ignore[arg-type]
    return own


def coefficients(learner: Any) -> Floats:
    """A copy of a learner's ``weights_`` in scikit-learn's shape.

    Raises
    ------
    NotFittedError
        If no row was learned.
    """
    rows: Floats = _sklearn_shape(learner, "coef_", lambda: learner.weights_.T)
    return rows


def intercepts(learner: Any, values: Callable[[], Floats]) -> Any:
    """A copy of a learner's intercepts (c,) in scikit-learn's shape.

    Raises
    ------
    NotFittedError
        If no row was learned.
    """
    rows = _sklearn_shape(learner, "intercept_", values)
    return float(rows) if np.ndim(rows) == 0 else rows


def _sklearn_shape(learner: Any, name: str, values: Callable[[], Floats]) -> Any:
    """Return values in scikit-learn's shape: one row per output, (2) for two classes."""
    if not hasattr(learner, "weights_"):
        who = type(learner).__name__
        raise NotFittedError(
            f"{who}.{name}: this {who} is not fitted yet: it has learned no row. "
            "Call fit, partial_fit or learn_one first."
        )
    rows = values()
    if hasattr(learner, "classes_"):
        return rows[1:] - rows[:1] if len(rows) == 2 else rows.copy()  # (2)
    return rows[0].copy() if getattr(learner, "target_ndim_", 1) == 1 else rows.copy()


def initial_weights(initial_coef: ArrayLike | None, d: int, c: int, who: str) -> Floats:
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
            f"{who}: `initial_coef` must contain finite numbers of shape {shape}, one for each "
            f"feature, got {problem}. Construct the learner with another `initial_coef`."
        )
    return np.array(rows.T, order="C")


def float64_blocks(X: Floats) -> Iterator[tuple[slice, Floats]]:
    """Yield rows as C-contiguous float64: without a copy if possible, otherwise in blocks."""
    plain = X.dtype == np.float64 and X.flags.c_contiguous
    width = len(X) if plain else max(1, CACHED_VALUES // X.shape[1])
    for i in range(0, len(X), max(1, width)):
        rows = slice(i, i + width)
        yield rows, np.ascontiguousarray(X[rows], dtype=np.float64)


def named_class_columns(learner: Classifier, parameter: str) -> Array:
    """The columns of the classes given in advance, for a parameter with their initial weights.

    Raises
    ------
    ParameterError
        If fewer than two classes are given.
    """
    who = type(learner).__name__
    named = validation.class_names(learner.classes, who)
    if len(named) < 2 or not np.isin(named, learner.classes_).all():
        raise ParameterError(
            f"{who}: `{parameter}` must be combined with two or more labels in `classes`, "
            f"got {learner.classes!r}. Construct the learner with `classes`."
        )
    return np.searchsorted(learner.classes_, named)


def initial_prediction(learner: Classifier, row: Floats) -> Any:
    """Prediction of a classifier's initial weights for a row; None without ``classes``."""
    if not len(validation.class_names(learner.classes, type(learner).__name__)):
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


def from_parameters(
    catalogue: Mapping[str, type[T]], what: str, params: Mapping[str, object], who: str
) -> T:
    """Build the loss or step rule that a learner's parameters select.

    Parameters
    ----------
    catalogue : dict of str to dataclass
        The choices. The metadata of a field is its range, in the form of `validation.in_range`.
    what : str
        The parameter that contains the name of the choice.
    params : dict of str to object
        The learner's parameters.
    who : str
        The name of the learner, for messages.

    Raises
    ------
    ParameterError
        If the name is unknown, or an option is out of range or belongs to another choice.

    Examples
    --------
    >>> from onepass.learners.losses import REGRESSION_LOSSES
    >>> params = {"loss": "huber", "huber_delta": 2}
    >>> from_parameters(REGRESSION_LOSSES, "loss", params, "SGDRegressor")
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
                    f"Leave out `{option}`, or choose {what}={other!r}."
                )
            given[option] = validation.in_range(value, option, who, **ranges[option])
    return catalogue[name](**given)


@cache
def _ranges(kind: Any) -> dict[str, Mapping[str, float]]:
    """The options of a dataclass and the range of each."""
    return {f.name: f.metadata for f in fields(kind)}
