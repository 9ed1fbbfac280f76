"""One by one: single rows learned by the compiled loop, which holds what was learned meanwhile.

A row of few features is learned in less time than Python needs to look at it twice. So while single
rows come, what was learned stays in the loop's own memory, written over by each row, and a row is
one call. Whoever looks at an attribute, or at all of them (``vars``, a copy, a pickle), finds it
there: the loop is read out first, and goes on from a copy when the next rows come one by one. So
nobody ever holds an array that is written to.
"""

import os
from functools import cache
from threading import RLock
from types import GetSetDescriptorType
from typing import Any, ClassVar, Self

import numpy as np

from onepass.errors import Floats, NotFittedError
from onepass.learners.row_loop import opened, serves, told
from onepass.memory.forgetting.exponential import Past
from onepass.serialization.state import nbytes

__all__ = ["OneByOne"]

_APART = ("memory_", "centering_", "prior_")  # what answers do without
_SMALL = 64  # features for which one row is enough to open the loop; of more, two in a row are
_LABELS = (str, int, float, np.generic)
_FEW = 64  # rows that the loop learns or answers at once, or not at all
_NUMBERS = 1 << 16  # or more rows of so few numbers: it takes less than a millisecond

_TURN = RLock()
"""Who opens or closes a loop has it: another thread may look at the same learner meanwhile."""

if hasattr(os, "register_at_fork"):  # nor is it held in a process that no thread of it follows to
    os.register_at_fork(
        before=_TURN.acquire, after_in_parent=_TURN.release, after_in_child=_TURN.release
    )


class OneByOne:
    """``learn_one`` and ``predict_one`` of least squares.

    Stands before the class that has them for rows of any kind among a class's bases.
    """

    held: ClassVar[tuple[str, ...]] = (
        "memory_", "centering_", "prior_", "forgetting_", "weights_", "middle_", "offset_",
        "rows_seen_",
    )  # fmt: skip
    """What the loop holds while it is open."""

    _loop: Any = None
    _from: Any = None
    _apart: dict[str, Any]  # what stands in copies for what they do without
    _single: int = 0
    _unread: tuple[dict[str, Any], Any] | None = None  # of a copy that has not been asked yet

    def learn_one(self, x: Any, y: Any, sample_weight: float = 1.0, *, time: Any = None) -> Self:
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

    def predict_one(self, x: Any) -> Any:
        """The answer for one row; before anything was learned, that of the initial weights."""
        loop = self._loop
        said = None if loop is None else loop.predict_one(x)
        return super().predict_one(x) if said is None else said  # type: ignore[misc]

    def answering(self) -> Any:
        """A copy that says what this learner says now; the loop goes on as it is."""
        with _TURN:
            own = dict(_own(self))
            loop = own.pop("_loop", None)
            own.pop("_single", None)
            own.pop("_apart", None)
            if loop is not None:  # most copies are let go before they are asked anything
                held = self._told(loop)
                own["_unread"] = self._needed(own.pop("_from"), held), held
        twin = object.__new__(type(self))
        _dictionary(type(self)).__set__(twin, own)  # type: ignore[arg-type]  # mypy: no hash
        return twin

    def _told(self, loop: Any) -> Any:
        """What a loop, which goes on to learn, holds that answers rows."""
        return loop.numbers()[-1], loop.get("w"), loop.get("means"), loop.get("rest")

    def _needed(self, before: dict[str, Any], held: Any) -> dict[str, Any]:
        """What a copy for answers keeps of what a loop was given: no memory that it left behind."""
        return {**before, **self._apart} if held[0] else before

    def _looked_at(self, before: dict[str, Any], held: Any) -> dict[str, Any]:
        """What a loop was given, and what of it is otherwise by what it held."""
        rows, w, means, rest = held
        if not rows:
            return before
        start, d = self.start_, len(self.start_)
        weights = start + np.frombuffer(w, dtype=np.float64).reshape(start.shape)
        means, rest = (np.frombuffer(each, dtype=np.float64) for each in (means, rest))
        return {
            **before,
            "weights_": weights,
            "middle_": means[:d],
            "offset_": means[d:] + (rest[d:] - rest[:d] @ weights),
            "rows_seen_": before["rows_seen_"] + rows,
        }

    def _few_learned(self, X: Any, y: Any, where: str) -> Floats | None:
        plain = self._few(X) and type(y) is np.ndarray and y.dtype == np.float64
        if not plain or y.shape != X.shape[:1]:
            return None
        loop, y, errors = self._loop, np.ascontiguousarray(y), np.empty(len(y))
        if loop is not None and loop.learn_few(len(y), X, y, errors):
            return y - errors  # type: ignore[no-any-return]  # an array less an array
        single = self._single + 1
        with self._whole():
            said = self._take(X, y, None, where, None)
            self._opened(single)
        return y if said is None else np.asarray(said)

    def _few_said(self, X: Any) -> Floats | None:
        if self._loop is None or not self._few(X) or len(X) > _FEW:
            return None
        said = np.empty(len(X))
        return said if self._loop.predict_few(len(X), X, said) else None

    def _few(self, X: Any) -> bool:
        """Whether X is a few rows of numbers, and answers are numbers too."""
        if type(X) is not np.ndarray or X.dtype != np.float64 or X.ndim != 2:
            return False
        own = _own(self)
        known = X.shape[1] == own.get("n_features_in_") and own.get("answer_ndim_") == 1
        plain = "feature_names_in_" not in own and "classes_" not in own
        few = 0 < len(X) <= _FEW or 0 < X.size <= _NUMBERS
        return few and known and plain and X.flags.c_contiguous

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
        return (*rows, np.float64, None, None) if self.answer_ndim_ == 1 else None

    def _opened(self, single: int) -> None:
        with _TURN:
            if self._loop is None:
                self._open(single)

    def _open(self, single: int) -> None:
        """Let the loop have what was learned, if so many rows that came one by one are enough."""
        own, rule = _own(self), self._rule()
        d = len(self.weights_)
        if not serves(rule, d) or (reading := self._reading()) is None:
            return
        own["_single"] = single
        if d > _SMALL and single < 2:
            return
        past = Past(self.memory_, self.centering_, self.prior_)
        loop = opened(rule, past, self.forgetting_, self.start_, reading)
        if loop is not None:
            self._hand_over(loop, single)

    def _hand_over(self, loop: Any, single: int) -> None:
        """What was learned is the loop's from here on: all at once, whatever interrupts."""
        rest = dict(_own(self))
        before = {name: rest.pop(name, 0.0) for name in self.held}  # ``middle_`` may be missing
        apart = {name: _Elsewhere(nbytes(before[name])) for name in _APART if name in before}
        self.__dict__ = {**rest, "_from": before, "_apart": apart, "_loop": loop, "_single": single}

    def _closed(self) -> None:
        own = _own(self)
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
        loop, own = self._loop, _own(self)
        if loop is not None:
            loop.release()  # whoever has it still learns no row by it
            own.update(_taken_out(loop, self._from, self.start_))
        for name in ("_loop", "_from", "_apart", "_single"):
            own.pop(name, None)

    # -- whoever looks -------------------------------------------------------------------------

    def __getattr__(self, name: str) -> Any:
        if name in type(self).held and (self._loop is not None or self._unread is not None):
            self._closed()
            return getattr(self, name)
        return object.__getattribute__(self, name)  # raises what the first look has raised

    def __setattr__(self, name: str, value: Any) -> None:
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
        return _own(self)

    @__dict__.setter
    def __dict__(self, values: dict[str, Any]) -> None:
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


def _taken_out(loop: Any, before: dict[str, Any], start: Floats) -> dict[str, Any]:
    """What the loop has learned, on top of what it was given."""
    rows = loop.numbers()[-1]
    if not rows:
        return before
    memory, centering, prior, floor, *_ = before.values()
    past, floor = told(loop, Past(memory, centering, prior), floor)
    found = (*past, floor, *past.fitted(start), before["rows_seen_"] + rows)
    return dict(zip(before, found, strict=True))


@cache
def _dictionary(kind: Any) -> Any:
    """Where things of a kind keep their attributes, as Python itself finds it."""
    return next(
        own for each in kind.__mro__
        if isinstance(own := vars(each).get("__dict__"), GetSetDescriptorType)
    )  # fmt: skip


def _own(thing: Any) -> dict[str, Any]:
    """The attributes of a thing, as they are."""
    own: dict[str, Any] = _dictionary(type(thing)).__get__(thing)  # type: ignore[arg-type]
    return own
