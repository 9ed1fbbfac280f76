"""Learners whose state is a compiled object while single rows are learned.

Where the compiled loops of :mod:`onepass.native` support it, a compiled object is the state: it
learns and predicts a single row in one call. ``weights_``, ``rows_seen_`` and other learned
attributes are then copied from it when they are read.
"""

from __future__ import annotations

import copy
import math
import weakref
from collections.abc import Callable, Mapping
from typing import Any, Self

import numpy as np

from onepass import native
from onepass.serialization.state import (
    RowCounter,
    StateAttribute,
    copied_attributes,
    counters,
    not_fitted,
)
from onepass.types import Floats

_PLAIN = "biufU"  # kinds of labels that the compiled state compares as NumPy does
_EXACT = 1 << 53  # whole numbers up to this one are exact in float64
_LABELS = (str, int, float, np.generic)
_SCALARS = frozenset(np.dtype(code).type for code in "?efbBhHiIlLqQ")


class Compiled:
    """Mixin for learners whose state may be in a compiled object of :mod:`onepass.native`.

    It precedes :class:`~onepass.learners.estimator.Regressor` or
    :class:`~onepass.learners.estimator.Classifier` in the bases of a class.
    """

    rows_seen_: Any = RowCounter()
    calibration_: Any  # of classifiers
    n_features_in_: int
    target_ndim_: int
    _rollback_on_error: Callable[[], Any]

    _single: Any = None  # the state, while the learned attributes are not in the instance

    def frozen_copy(self) -> Any:
        """Return a copy for prediction that later learning does not change."""
        frozen = object.__new__(type(self))
        frozen.__dict__ = self._without(self.__dict__, self._single, self._read_all)
        return frozen

    def _read_all(self, compiled: Any) -> dict[str, Any]:
        """Copies of the learned attributes in a compiled state."""
        raise NotImplementedError

    def _set_compiled(self, compiled: Any) -> None:
        """Replace the learned attributes by a compiled state, in one assignment."""
        copied = copied_attributes(self)
        own = {name: value for name, value in self.__dict__.items() if name not in copied}
        for name, counted in counters(self).items():
            own[name] = getattr(self, name) - getattr(compiled, counted)
        if getattr(self, "_calibrated", False):
            own["calibration_"] = self.calibration_
            compiled.calibration = self.rows_seen_, len(own["calibration_"]), own["calibration_"]
        self.__dict__ = own | {"_single": compiled}

    def _decompile(self) -> None:
        """Move the learned attributes from the compiled state to the instance."""
        if self._single is not None:
            self.__dict__ = self._without(self.__dict__, self._single, self._read_all)

    def _without(
        self, own: Mapping[str, Any], compiled: Any, read: Callable[[Any], Mapping[str, Any]]
    ) -> dict[str, Any]:
        """Attributes of the instance, with copies in place of its compiled state."""
        values = {name: value for name, value in own.items() if name != "_single"}
        if compiled is None:
            return values
        if compiled.calibration:
            values["calibration_"] = np.frombuffer(compiled.calibration[1]).copy()
        counts: dict[str, int] = {}
        copies: Mapping[str, Any] = {}
        while counts != (counts := self._counted(compiled)):  # another thread may learn meanwhile
            copies = read(compiled)
        return {**values, **{name: values[name] + n for name, n in counts.items()}, **copies}

    def _counted(self, compiled: Any) -> dict[str, int]:
        """The counts of a compiled state, by counter."""
        return {name: getattr(compiled, counted) for name, counted in counters(self).items()}

    def _read(self, compiled: Any, name: str) -> Any:
        """A copy of a learned attribute in a compiled state."""
        return self._read_all(compiled)[name]

    def _missing(self, name: str) -> AttributeError:
        """The error for a learned attribute that does not exist."""
        if "rows_seen_" not in self.__dict__:
            return not_fitted(self)
        return AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __setattr__(self, name: str, value: object) -> None:
        parameters = getattr(self, "__dataclass_fields__", ())  # whose defaults the class has
        if self._single is not None and (name in parameters or not hasattr(type(self), name)):
            self._decompile()  # a parameter or the format of rows applies from the next row
        super().__setattr__(name, value)

    def __copy__(self) -> Self:
        twin = object.__new__(type(self))
        twin.__dict__ = dict(self.__dict__)
        if self._single is not None:
            twin.__dict__["_single"] = self._single.copy()
        return twin

    def __deepcopy__(self, memo: dict[int, object]) -> Self:
        twin = object.__new__(type(self))
        memo[id(self)] = twin
        twin.__dict__ = copy.deepcopy(self.__dict__, memo)
        return twin

    def __getstate__(self) -> Any:
        own: Any = super().__getstate__()
        compiled = own.get("_single")
        snapshot = None if compiled is None else compiled.copy()
        return self._without(own, snapshot, self._read_all)


class _RowsLearned(StateAttribute):
    """The number of rows, which the state counts when it learns them."""

    copied, saved = False, True

    def __get__(self, owner: Any, cls: type | None = None) -> Any:
        return self if owner is None else owner._rows_learned()  # noqa: SLF001

    def __set__(self, owner: Any, value: object) -> None:
        """Ignore the value, as the state has it."""


class ReadsSingleRows:
    """Mixin for learners with `SingleRows`; it precedes the other bases of a class."""

    def _snapshot(self) -> dict[str, Any]:
        """The attributes of a copy."""
        return dict(self.__dict__)  # at once: another thread may learn

    def __setattr__(self, name: str, value: object) -> None:
        self.__dict__.pop("_single", None)  # a parameter or another state applies from the next row
        super().__setattr__(name, value)

    def __copy__(self) -> Self:
        twin = object.__new__(type(self))
        twin.__dict__ = own = self._snapshot()
        if "_single" in own:
            own["_single"] = own["_single"].of(twin)
        return twin

    def __getstate__(self) -> Any:
        twin = object.__new__(type(self))
        twin.__dict__ = {k: v for k, v in self._snapshot().items() if k != "_single"}
        return super(ReadsSingleRows, twin).__getstate__()


class InPlace(ReadsSingleRows):
    """Mixin for learners whose rows are learned in place, in an array of the instance.

    Copies of a learner share the array until the next row of one of them, before which it is
    copied.
    """

    rows_seen_: Any = _RowsLearned()

    def _rows_learned(self) -> int:
        """The number of rows in the state."""
        raise NotImplementedError

    def _vector_of(self, own: Mapping[str, Any]) -> Floats | None:
        """The array of the state among the attributes of an instance; None before the first row."""
        raise NotImplementedError

    def _snapshot(self) -> dict[str, Any]:
        """The attributes; the array is shared, and read-only, from now on."""
        own = super()._snapshot()
        vector = self._vector_of(own)
        if vector is not None:
            vector.flags.writeable = False
        return own


class SingleRows:
    """Learning and prediction of single rows of plain numbers by a learner.

    A subclass defines ``learn_one`` and ``_scores_of``. The methods return False or None for rows
    that must be validated first.
    """

    __slots__ = ("_learner", "_reader")

    def __init__(self, learner: Any, reader: Any) -> None:
        self._learner: Callable[[], Any] = weakref.ref(learner)  # which owns this object
        self._reader = reader

    def of(self, learner: Any) -> Self:
        """The same of a copy of the learner."""
        return type(self)(learner, self._reader)

    def learn_one(self, x: Any, y: Any, sample_weight: float) -> bool:
        """Learn a row in place; return whether that was possible."""
        raise NotImplementedError

    def _scores_of(self, learner: Any, row: Floats) -> Floats:
        """Scores or predictions of a row (1, d), (1, c)."""
        raise NotImplementedError

    def _read(self, x: Any, row: Floats) -> bool:
        """Write a row, (d,); return whether that was possible."""
        return bool(self._reader.row(x, row))

    def _scores(self, x: Any) -> Floats | None:
        """Scores or predictions of a row, (1, c)."""
        learner = self._learner()
        row = np.empty((1, learner.n_features_in_))
        return self._scores_of(learner, row) if self._read(x, row[0]) else None

    def predict_one(self, x: Any) -> Any:
        """The prediction of a row."""
        scores = self._scores(x)
        return None if scores is None else self._reader.prediction(scores)

    def predict_proba_one(self, x: Any) -> Any:
        """The probabilities of a row, by label."""
        scores, learner = self._scores(x), self._learner()
        fitted = learner.calibration_ if learner._calibrated else None  # noqa: SLF001
        return None if scores is None else self._reader.probabilities(scores, fitted)


class PlainRows(SingleRows):
    """Single rows of plain numbers, which the learner's ``_learn_plain_row`` learns in place.

    Values may be missing if the learner accepts that.
    """

    __slots__ = ()

    @classmethod
    def prepare(cls, learner: Any) -> None:
        """Let single rows of a learner be learned in place, if compiled code can read them."""
        single = native.loops is not None and getattr(learner, "target_ndim_", 1) == 1
        description = row_format(learner) if single else None
        if description is not None:
            d, c = learner.n_features_in_, len(getattr(learner, "classes_", "1"))
            reader = native.loops.Format(d, c, description)  # type: ignore[union-attr]
            learner.__dict__["_single"] = cls(learner, reader)

    def learn_one(self, x: Any, y: Any, sample_weight: float) -> bool:
        """Learn a row in place; return whether that was possible."""
        learner = self._learner()
        d = learner.n_features_in_
        row = np.empty(d + 2)
        if "classes_" in learner.__dict__:
            plain = self._reader.example(x, y, sample_weight, row)
            if not plain and _may_be_missing(learner, x, d):
                plain = self._reader.example(np.zeros(d), y, sample_weight, row)
                row[:d] = x
        else:
            exact = isinstance(y, float) or (type(y) is int and abs(y) <= _EXACT)
            weighted = type(sample_weight) is float and sample_weight > 0.0
            plain = exact and weighted and math.isfinite(y) and self._read(x, row[:d])
            if plain:
                row[d:] = y, sample_weight
        if not plain:
            return False
        learned: bool = learner._learn_plain_row(row, d)  # noqa: SLF001
        return learned

    def _read(self, x: Any, row: Floats) -> bool:
        if super()._read(x, row):
            return True
        if _may_be_missing(self._learner(), x, len(row)):
            row[:] = x
            return True
        return False

    def _scores_of(self, learner: Any, row: Floats) -> Floats:
        scores: Floats = learner._scores(row)  # noqa: SLF001
        return scores


def _may_be_missing(learner: Any, x: object, d: int) -> bool:
    """Whether x is an array of d numbers, some of which may be missing."""
    if type(x) is not np.ndarray or x.dtype != np.float64 or x.shape != (d,):
        return False
    return learner._accepts_missing and not np.isinf(x).any()  # noqa: SLF001


def row_format(learner: Any) -> tuple[Any, ...] | None:
    """How compiled code reads rows and targets of a learner; None if Python must read them."""
    names = getattr(learner, "feature_names_in_", None)
    rows = (np.ndarray, _SCALARS, None if names is None else tuple(map(str, names)))
    classes = getattr(learner, "classes_", None)
    if classes is None:
        return (*rows, np.float64 if learner.target_ndim_ == 1 else np.empty, None, None)
    labels = tuple(classes)
    plain = len(labels) > 1 and classes.dtype.kind in _PLAIN
    if not plain or not all(isinstance(label, _LABELS) for label in labels):
        return None  # labels of other types may define their own comparison
    return (*rows, None, labels, {label: i for i, label in enumerate(classes.tolist())})
