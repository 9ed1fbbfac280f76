"""Linear models: predictions are one product with a matrix of weights, and an offset.

    f(x) = Wᵀ x + b,   W (d × c),  b (c)                                                 (1)

A classifier has one output a class. Of two classes only the difference of their outputs decides
the prediction, so ``coef_`` and ``intercept_`` show that difference, as scikit-learn does:

    x ↦ classes_[1]  where  (W₁ − W₀)ᵀ x + (b₁ − b₀) ≥ 0                                 (2)

While single rows come, the compiled loop of :mod:`onepass.native` holds the state and updates it in
place; a row is then one call. Reading an attribute, ``vars``, a copy or a pickle closes the loop
first, and the next single rows open it again with a copy, so that no array that is visible outside
is ever written to. Cost: O(dc) a row, O(dc) memory.
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
    "HALVES",
    "NEAR",
    "Linear",
    "attributes",
    "chosen",
    "coefficients",
    "initial_prediction",
    "initial_weights",
    "intercepts",
    "named_columns",
    "placed_outputs",
    "plain_parts",
    "row_step",
]


NEAR = 1 << 15
"""Numbers of rows that are converted at once, and fit into the nearer caches."""

HALVES = np.array([-0.5, 0.5])
"""What each of two classes takes of the one problem that they share."""


_COMING = 1024  # rows for which the loop is opened
_PATIENCE = 64  # weights for which one row by itself is enough to copy them
_LARGEST = 1e150  # no product of larger weights overflows while the loop is open
_PLAIN = "biufU"  # kinds of labels that the loop tells apart as NumPy does
_LABELS = (str, int, float, np.generic)

_TURN = RLock()
"""Who opens or closes a loop has it: another thread may look at the same learner meanwhile."""

if hasattr(os, "register_at_fork"):  # nor is it held in a process that no thread of it follows to
    os.register_at_fork(
        before=_TURN.acquire, after_in_parent=_TURN.release, after_in_child=_TURN.release
    )


class Linear:
    """Predictions, ``coef_`` and single rows of a learner that has ``weights_`` and ``offset_``.

    Stands before :class:`~onepass.learners.estimator.Regressor` or
    :class:`~onepass.learners.estimator.Classifier` among a class's bases.

    Attributes
    ----------
    weights_ : ndarray of shape (d, c)
        One column an output.
    offset_ : ndarray of shape (c,)
        One number an output; zeros where no intercept is fitted.
    """

    held: ClassVar[tuple[str, ...]] = ("weights_", "offset_", "rows_seen_", "steps_")
    """The attributes that the loop holds while it is open."""
    _unneeded: ClassVar[tuple[str, ...]] = ()
    """Those among them without which rows can be predicted."""

    weights_: Floats
    offset_: Floats
    fit_intercept: bool

    _loop: Any = None
    _from: Any = None  # the attributes that the loop was given
    _apart: dict[str, Any]  # what stands in copies for those that are not needed
    _single: int = 0
    _unread: tuple[dict[str, Any], Any] | None = None  # of a copy that has not been asked yet

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
        return coefficients(self)

    @property
    def intercept_(self) -> Any:
        """Intercepts: a float, or (c,) for several outputs; (1,) for two classes."""
        return intercepts(self, self._intercepts)

    # -- single rows, learned by the compiled loop -------------------------------------------------

    def learn_one(
        self,
        x: RowLike,
        y: ArrayLike | None,
        sample_weight: float = 1.0,
        *,
        time: TimeLike | None = None,
    ) -> Self:
        """Learn one row: an array of shape (d,), or a dict of named features; ``time`` if needed.

        Returns
        -------
        self
        """
        loop = self._loop
        if loop is not None and time is None and loop.learn_one(x, y, sample_weight):
            return self
        single = self._single + 1
        with self._whole():
            super().learn_one(x, y, sample_weight, time=time)  # type: ignore[misc]
            self._opened(single)
        return self

    def predict_one(self, x: RowLike) -> Any:
        """The answer for one row; before anything was learned, that of the initial weights."""
        loop = self._loop
        said = None if loop is None else loop.predict_one(x)
        return super().predict_one(x) if said is None else said  # type: ignore[misc]

    def frozen_copy(self) -> Any:
        """A copy that says what this learner says now; the loop goes on as it is."""
        with _TURN:
            own = dict(attributes(self))
            loop = own.pop("_loop", None)
            own.pop("_single", None)
            own.pop("_apart", None)
            if loop is not None:  # most copies are let go before they are asked anything
                held = self._told(loop)
                own["_unread"] = self._needed(own.pop("_from"), held), held
        twin = object.__new__(type(self))
        _dictionary(type(self)).__set__(twin, own)  # type: ignore[arg-type]  # mypy: no hash
        return twin

    def _slope_and_steps(self, n: int) -> tuple[int, float, Steps]:
        """The loss's number and parameter, 0 where mistakes are corrected, and n steps to come."""
        raise NotImplementedError

    def _problems(self) -> tuple[Floats, Floats]:
        """Weights (d, c) and offset (c,), one column for each problem that is learned."""
        return self.weights_, self.offset_

    def _solved(self, weights: Floats, offset: Floats) -> tuple[Floats, Floats]:
        """``weights_`` and ``offset_`` out of these of the problems."""
        return weights, offset

    def _reading(self) -> tuple[Any, ...] | None:
        """How the loop reads single rows; None where answers are several numbers."""
        names = getattr(self, "feature_names_in_", None)
        rows = (np.ndarray, None if names is None else tuple(map(str, names)))
        classes = getattr(self, "classes_", None)
        if classes is not None:
            labels = tuple(classes)
            if not all(isinstance(label, _LABELS) for label in labels):
                return None  # whatever they do when they are compared
            return (*rows, None, labels, {label: i for i, label in enumerate(classes.tolist())})
        return (*rows, np.float64, None, None) if self.target_ndim_ == 1 else None

    def _opened(self, single: int) -> None:
        with _TURN:
            if self._loop is None:
                self._open(single)

    def _open(self, single: int) -> None:
        """Let the loop have what was learned, if so many rows that came one by one are enough."""
        if native.loops is None:
            return
        object.__setattr__(self, "_single", single)
        if self.weights_.size > _PATIENCE * single:
            return
        classes = getattr(self, "classes_", None)
        if classes is not None and (len(classes) < 2 or classes.dtype.kind not in _PLAIN):
            return
        reading = self._reading()
        largest = max(linalg.magnitude(self.weights_), linalg.magnitude(self.offset_))
        if reading is None or not largest < _LARGEST:
            return
        weights, offset = self._problems()
        number, parameter, steps = self._slope_and_steps(_COMING)
        unit = 1.0 if self.fit_intercept else 0.0
        loop = native.loops.Linear(*weights.shape, unit, number, parameter, *reading)
        loop.put(_COMING, np.ascontiguousarray(weights.T), np.ascontiguousarray(offset), *steps)
        self._hand_over(loop, single)

    def _hand_over(self, loop: Any, single: int) -> None:
        """What was learned is the loop's from here on: all at once, whatever interrupts."""
        rest = dict(attributes(self))
        before = {name: rest.pop(name, 0.0) for name in self.held}  # ``middle_`` may be missing
        apart = {
            name: _Elsewhere(nbytes(before[name])) for name in self._unneeded if name in before
        }
        self.__dict__ = {**rest, "_from": before, "_apart": apart, "_loop": loop, "_single": single}

    def _told(self, loop: Any) -> Any:
        """What a loop, which goes on to learn, holds that answers rows."""
        return loop.get()

    def _needed(self, before: dict[str, object], held: Any) -> dict[str, Any]:
        """What a copy for answers needs of the attributes that a loop was given."""
        return {**before, "weights_": None, "offset_": None} if held[2] else before

    def _looked_at(self, before: dict[str, object], held: Any) -> dict[str, Any]:
        """The attributes that a loop was given, as they are by what it holds."""
        found = dict(before)
        W, b, rows, mistakes = held
        if rows:
            offset = np.frombuffer(b).copy()
            weights = np.frombuffer(W).reshape(len(offset), -1).T.copy(order="F")
            found["weights_"], found["offset_"] = self._solved(weights, offset)
            for name in self.held[2:]:
                found[name] += mistakes if name == "mistakes_" else rows
        return found

    def _closed(self) -> None:
        own = attributes(self)
        unread = own.get("_unread")
        if unread is None:
            with _TURN:
                self._close()
            return
        for name, value in self._looked_at(*unread).items():  # nobody waits for a turn to read:
            own.setdefault(name, value)  # whoever comes meanwhile finds the same
        own.pop("_unread", None)

    def _close(self) -> None:
        """Take what was learned out of the loop."""
        loop = self._loop
        if loop is None:
            if self._single:
                object.__delattr__(self, "_single")
            return
        loop.release()  # whoever has it still learns no row by it
        found = self._looked_at(self._from, self._told(loop))
        for name, value in found.items():
            object.__setattr__(self, name, value)
        for name in ("_loop", "_from", "_apart", "_single"):  # the loop first, whatever interrupts
            object.__delattr__(self, name)

    # -- attributes, read out of the loop first ----------------------------------------------------

    def __getattr__(self, name: str) -> Any:
        if name in type(self).held and (self._loop is not None or self._unread is not None):
            self._closed()
            return getattr(self, name)
        return object.__getattribute__(self, name)  # raises what the first look has raised

    def __setattr__(self, name: str, value: object) -> None:
        with _TURN:
            if self._loop is not None or self._unread is not None:
                self._closed()  # a hyperparameter acts from the next row
            super().__setattr__(name, value)

    def __getstate__(self) -> Any:
        self._closed()
        return super().__getstate__()

    @property
    def __dict__(self) -> dict[str, Any]:
        self._closed()
        return attributes(self)

    @__dict__.setter
    def __dict__(self, values: dict[str, object]) -> None:
        _dictionary(type(self)).__set__(self, values)  # type: ignore[arg-type]  # mypy: no hash


class _Elsewhere:
    """What the loop has alone, in a copy that is for answers; of so many bytes."""

    __slots__ = ("nbytes",)

    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # what Python itself looks for
            raise AttributeError(name)
        raise NotFittedError(
            "onepass: what is asked of a learner's `answering()` must be answers, got something "
            "that needs all that was learned. Take a whole copy: `model()` of a durable learner, "
            "copy.deepcopy of another."
        )


@cache
def _dictionary(kind: type) -> Any:
    """Where things of a kind keep their attributes, as Python itself finds it."""
    return next(
        own for each in kind.__mro__
        if isinstance(own := vars(each).get("__dict__"), GetSetDescriptorType)
    )  # fmt: skip


def attributes(thing: object) -> dict[str, Any]:
    """The attributes of a thing as they are, without reading out a loop."""
    own: dict[str, Any] = _dictionary(type(thing)).__get__(thing)  # type: ignore[arg-type]
    return own


def coefficients(learner: Any) -> Floats:
    """A copy of a learner's ``weights_`` in scikit-learn's shape.

    Raises
    ------
    NotFittedError
        Before anything was learned.
    """
    rows: Floats = _shown(learner, "coef_", lambda: learner.weights_.T)
    return rows


def intercepts(learner: Any, values: Callable[[], Floats]) -> Any:
    """A copy of a learner's intercepts (c,) in scikit-learn's shape.

    Raises
    ------
    NotFittedError
        Before anything was learned.
    """
    rows = _shown(learner, "intercept_", values)
    return float(rows) if np.ndim(rows) == 0 else rows


def _shown(learner: Any, name: str, values: Callable[[], Floats]) -> Any:
    """The rows of the outputs, or the difference (2), or the only one."""
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


def initial_prediction(learner: Classifier, row: Floats) -> Any:
    """What a classifier's initial weights say of a row: None where no class is named."""
    if not len(validation.class_names(learner.classes, type(learner).__name__)):
        return None
    begun = clone(learner)
    begun.partial_fit(row[None][:0], np.empty(0), classes=learner.classes)
    return begun.predict_one(row)


def row_step(w: Floats, memory: MemoryState, features: Floats, Y: Floats, noise: float) -> Step:
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


def chosen(
    catalogue: Mapping[str, type[T]], what: str, params: Mapping[str, object], who: str
) -> T:
    """The specification that a user's parameters name.

    Parameters
    ----------
    catalogue : dict of str to dataclass
        What can be chosen. A field's metadata holds its range, as `validation.in_range` takes it.
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
