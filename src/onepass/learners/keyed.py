"""Keyed: one small model per key, for rows of many keys in one stream.

Each row is predicted and learned by the model of its key, as if the models were separate learners.
With a pooled model, which learns all rows, a new key starts from a copy of it, whose rows count as
at most ``prior_strength`` rows, so that the key's own rows soon outweigh them.

The rows of a block are grouped by key. Models that :class:`~onepass.learners.rls_packed.PackedRows`
supports are learned together in compiled code; all others, and rows that the compiled code cannot
learn, are learned by one learner per key. Everything is learned in copies, which replace the former
learners when the whole block has been learned.
"""

# ruff: noqa: SLF001  the parts of this file share the protocol of learners

import copy
import re
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, Self

import numpy as np
from sklearn.base import BaseEstimator, clone, is_classifier, is_regressor
from sklearn.utils import get_tags

from onepass import validation
from onepass.errors import (
    ColumnError,
    NotFittedError,
    OnepassError,
    ShapeError,
    TypeMismatchError,
)
from onepass.learners.estimator import Learner
from onepass.learners.estimator.classifier import united_labels
from onepass.learners.estimator.tags import with_onepass_tags
from onepass.learners.keyed_states import KeyedStates
from onepass.learners.rls_packed import PackedRows, fade_to
from onepass.linalg.interrupt import Interrupt
from onepass.serialization.state import forget, learned, nbytes
from onepass.types import Array, ArrayLike, Floats, RowLike, TimeLike
from onepass.validation.arrays import (
    ColumnPositions,
    check_feature_limit,
    check_same_parameters,
    column_positions,
)
from onepass.validation.frames import series_array
from onepass.validation.keys import Key, Keys, plain_key, split_keys, split_row
from onepass.validation.table import Table, TableLike, is_frame, named_row

__all__ = ["Keyed"]

_FIRST = np.zeros(1, dtype=np.int32)
_ROW = re.compile(r"\bin row (\d+)\b")


class _Rows(NamedTuple):
    """Validated rows, without the key column."""

    keys: Keys
    X: Any
    """An array, a Table or a list of dicts."""
    y: Array | None = None
    weights: Floats | None = None
    time: Any = None

    def part(self, rows: Array | slice) -> dict[str, Any]:
        """Some of the rows, as arguments of a learner."""
        given = {"X": self.X, "y": self.y, "sample_weight": self.weights, "time": self.time}
        chosen = {name: _chosen(value, rows) for name, value in given.items() if value is not None}
        return {"y": None} | chosen


class _Assignment(NamedTuple):
    """The models of the rows of a block; a key that is removed and returns has another model."""

    names: list[Key]
    """The key of each model."""
    codes: Array
    """The index of each row's model, (n,); −1 if its key is unknown."""
    known: list[Any]
    """The stored entry of each model; None if it is new."""
    first: Array
    """The first row that each model learns; n if it learns none."""
    removed: Sequence[Key] = ()
    """Stored keys that are removed."""
    ended: frozenset[int] = frozenset()
    """The models that are removed within the block."""


class Keyed(BaseEstimator):  # type: ignore[misc]
    """One model per key: thousands to millions of small models, such as one per device.

    All columns except the key are features. Rows of many keys may be in one block, in any order;
    the result is that of a separate copy of ``model`` for each key. :class:`RLSRegressor` with a
    number as ridge > 0, without ``prior``, and with forgetting by rows is learned in compiled code
    for all keys at once; any other learner or Pipeline by one object per key.

    Parameters
    ----------
    model : learner or Pipeline
        The model of each key. Changes of its parameters apply from the next ``fit``.
    by : str or int
        The key column: its name in frames, tables and dicts, or its index in arrays. Keys are text
        or whole numbers; a boolean is the key 0 or 1.
    prior_strength : float, optional
        If given, a pooled model also learns all rows. A new key starts from a copy of the pooled
        model, whose rows then count as at most this number of rows (> 0); and unknown keys are
        predicted by the pooled model. The limit applies to least squares with forgetting by a
        factor or a half-model, on its own or in a Pipeline; of other learners, such as SGD, which
        store no weights of rows, a new key starts from a plain copy.
    max_keys : int, optional
        Maximum number of keys: if there are more, the key that was learned least recently is
        removed. A removed key that returns is a new key.
    max_age : int, optional
        Remove keys that were not learned for this number of rows of the stream.

    Attributes
    ----------
    classes_ : ndarray of shape (c,)
        For classifiers: all labels seen so far, sorted. Each key predicts only its own labels.
    n_features_in_ : int
        Number of columns of the first block, including the key.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Their names, if they have names.
    rows_seen_ : int
        Number of rows learned.

    Examples
    --------
    >>> import numpy as np, onepass as op
    >>> rows = [{"device": "ab"[i % 2], "load": float(i)} for i in range(100)]
    >>> heat = [row["load"] * (2.0 if row["device"] == "a" else -1.0) for row in rows]
    >>> model = op.Keyed(op.RLSRegressor(), by="device").partial_fit(rows, heat)
    >>> model.predict([{"device": "b", "load": 10.0}]).round(3)
    array([-10.])
    >>> len(model), model["a"].coef_.round(3)
    (2, array([2.]))
    """

    states_: KeyedStates
    model_: Any
    pooled_: Any
    n_features_in_: int
    feature_names_in_: Array
    rows_seen_: int
    classes_: Array
    n_outputs_: int
    target_ndim_: int

    _packed: PackedRows | None = None

    def __init__(
        self,
        model: Any,
        by: str | int,
        *,
        prior_strength: float | None = None,
        max_keys: int | None = None,
        max_age: int | None = None,
    ) -> None:
        self.model = model
        self.by = by
        self.prior_strength = prior_strength
        self.max_keys = max_keys
        self.max_age = max_age

    # -- the models by key -------------------------------------------------------------------------

    def keys(self) -> list[Key]:
        """Return the keys: the least recently learned first if keys may be removed."""
        states = self._stored
        return list(states.entries if states.last is None else states.last)

    def __len__(self) -> int:
        return len(self._stored.entries)

    def __bool__(self) -> bool:
        return True  # also without keys

    def __iter__(self) -> Iterator[Key]:
        return iter(self.keys())

    def __contains__(self, key: object) -> bool:
        return key in self._stored.entries

    def __getitem__(self, key: object) -> Any:
        """Return a copy of the model of a key."""
        found = self._stored.entries.get(plain_key(key, "Keyed"))
        if found is None:
            raise ColumnError(
                f"Keyed: the key must be one of the {len(self):,} keys that were learned and not "
                f"removed, got {key!r}. Compare with keys(); predict also accepts other keys."
            )
        return copy.deepcopy(self._learner(found))

    @property
    def learner(self) -> Any:
        """The learner of ``model``, which is not fitted."""
        return getattr(self.model, "learner", self.model)

    # -- learning ----------------------------------------------------------------------------------

    def fit(
        self,
        X: TableLike,
        y: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        *,
        time: TimeLike | None = None,
    ) -> Self:
        """Forget all keys, then learn the rows, those of each key one after the other.

        Parameters
        ----------
        X : array-like of shape (n, d), DataFrame, Table or sequence of dicts
            With the key column. At least one row.
        y : array-like of shape (n,) or (n, c)
            Targets or labels.
        sample_weight : array-like of shape (n,) or float, optional
            Weights >= 0 of the rows.
        time : array-like of shape (n,), optional
            The time of each row, for models that forget by time.

        Returns
        -------
        self
        """
        self._learn(X, y, sample_weight, time, "fit")
        return self

    def partial_fit(
        self,
        X: TableLike,
        y: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        *,
        time: TimeLike | None = None,
    ) -> Self:
        """Learn the rows, those of each key one after the other.

        The division of a stream into blocks affects only the speed. An error in the row of one key
        leaves all keys unchanged.

        Parameters
        ----------
        X, y, sample_weight, time
            As in ``fit``. Rows of weight 0 are not learned.

        Returns
        -------
        self
        """
        self._learn(X, y, sample_weight, time, "partial_fit")
        return self

    def test_then_train(
        self,
        X: TableLike,
        y: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        *,
        time: TimeLike | None = None,
    ) -> Array:
        """Predict each row by the model of its key, then learn it.

        Parameters
        ----------
        X, y, sample_weight, time
            As in ``partial_fit``. Rows of weight 0 are predicted, but not learned.

        Returns
        -------
        predictions : ndarray of the shape of y
            The prequential predictions, in the order of the rows.
        """
        return self._learn(X, y, sample_weight, time, "test_then_train")

    def learn_one(
        self,
        x: RowLike,
        y: Any = None,
        sample_weight: float = 1.0,
        *,
        time: TimeLike | None = None,
    ) -> Self:
        """Learn one row: a dict, or an array if ``by`` is an index.

        Returns
        -------
        self
        """
        if sample_weight == 1.0 and time is None and self._learn_known(x, y):
            return self
        target = None if y is None else np.asarray(y)[None]
        when = None if time is None else [time]
        self._learn(x, target, None if sample_weight == 1.0 else [sample_weight], when, "learn_one")
        return self

    def _learn_known(self, x: Any, y: Any) -> bool:
        """Learn one row of a known key by a shorter way than for blocks; return success."""
        where, others = "Keyed.learn_one", (self.prior_strength, self.max_keys, self.max_age)
        if not self._started or others != (None, None, None) or self.states_.last is not None:
            return False
        key, rest = split_row(x, self.by, where)
        entry, states = self.states_.entries.get(key), self.states_
        if isinstance(entry, int):
            packing, target = self._packing, np.asarray(y)
            plain = target.dtype.kind in "fi" and target.ndim == self.target_ndim_ - 1
            if packing is None or packing.rows is None or not plain:
                return False
            shape: Any = {"d": self.n_features_in_ - 1, "names": self._names()}
            row = validation.row_vector(rest, where, **shape).astype(np.float64)[None]
            state, Y = states.read([entry]), target.astype(np.float64).reshape(1, -1)
            if Y.shape[1] != self.n_outputs_ or not packing.learn(state, _FIRST, row, Y, None)[1]:
                return False
            states.update([], {}, [entry], state)
        elif entry is None or (hasattr(self, "classes_") and y not in self.classes_):
            return False
        else:
            learner = copy.copy(entry)
            with _naming(f"the model of the key {key!r}", where):
                learner.learn_one(rest, y)
            states.update([], {key: learner})
        self.rows_seen_ += 1
        return True

    def _learn(self, X: Any, y: Any, sample_weight: Any, time: Any, verb: str) -> Array:
        """Learn a block in copies, which then replace the former learners."""
        where = f"Keyed.{verb}"
        twin = object.__new__(type(self))  # for the attributes after the block
        twin.__dict__ = dict(self.__dict__)
        if verb == "fit":
            forget(twin)
        keys, rest = twin._read(X, where, learning=True)
        n = len(keys.codes)
        s = validation.weights(sample_weight, n, where)
        if verb == "fit" and (not n or (s is not None and not s.any())):
            clone(self.model).fit(rest, y, sample_weight)  # raises the error
        if n == 0:
            return np.empty(0)
        y = twin._read_targets(y, n, s, where)
        rows, states = _Rows(keys, rest, y, s, series_array(time)), twin.states_
        before: dict[Key, int | None] = {}
        try:
            assigned = twin._plan(rows, before, where)
            block = _Block(twin, rows, assigned, where)
            block.predicting = verb == "test_then_train"
            block.run()
            predictions = block.predictions() if block.predicting else np.empty(0)
        except BaseException:
            if states.last is not None:
                states.restore(before)
            raise
        twin.rows_seen_ += n if s is None else int(np.count_nonzero(s))
        interrupt = Interrupt()
        with interrupt.held():
            block.store()
            self.__dict__ = twin.__dict__
        interrupt.raise_pending()
        return predictions

    def _plan(self, rows: _Rows, before: dict[Key, int | None], where: str) -> _Assignment:
        """The model of each row; changes of the storage's ``last`` are noted in ``before``."""
        limits = [
            None if value is None else validation.whole(value, name, where, low=1)
            for name, value in (("max_keys", self.max_keys), ("max_age", self.max_age))
        ]
        states, keys, n = self.states_, rows.keys, len(rows.keys.codes)
        on = None if rows.weights is None else rows.weights > 0.0
        if limits != [None, None] and states.last is None:
            at = self.rows_seen_ - len(states.entries)
            states.last = OrderedDict((key, at + i + 1) for i, key in enumerate(states.entries))
        if states.last is not None:
            return _assign_with_eviction(keys, on, states, self.rows_seen_, before, *limits)
        known, first = [states.entries.get(key) for key in keys.names], np.full(len(keys.names), n)
        if on is None and self.prior_strength is None:
            return _Assignment(keys.names, keys.codes, known, first * 0)
        learning = np.arange(n)[slice(None) if on is None else on][::-1]
        first[keys.codes[learning]] = learning  # the first row of a key is assigned last
        new = np.array([entry is None for entry in known])
        unknown = new[keys.codes] & (np.arange(n) < first[keys.codes])
        return _Assignment(keys.names, np.where(unknown, -1, keys.codes), known, first)

    # -- prediction --------------------------------------------------------------------------------

    def predict(self, X: TableLike) -> Array:
        """Predict rows, each by the model of its key.

        Rows of unknown keys are predicted by the pooled model, or without it by a model that has
        learned no row.

        Parameters
        ----------
        X : array-like of shape (n, d), DataFrame, Table or sequence of dicts
            With the key column.

        Raises
        ------
        NotFittedError
            If no row was learned.
        """
        if not self._started:
            raise NotFittedError(
                "Keyed.predict: this Keyed is not fitted yet: it has learned no row. Call fit, "
                "partial_fit or learn_one first; predict_one and test_then_train predict before "
                "any row is learned."
            )
        return self._predict(X, "Keyed.predict")

    def predict_one(self, x: RowLike) -> Any:
        """Predict one row: a dict, or an array if ``by`` is an index."""
        key, rest = split_row(x, self.by, "Keyed.predict_one")
        found = self._stored.entries.get(key) if self._started else self.model
        if found is not None and not isinstance(found, int):
            return found.predict_one(rest)
        return self._predict(x, "Keyed.predict_one")[0]

    def _predict(self, X: Any, where: str) -> Array:
        keys, rest = self._read(X, where, learning=False)
        known = [self.states_.entries.get(key) for key in keys.names]
        codes = np.array([-1 if entry is None else i for i, entry in enumerate(known)], dtype=int)
        n = len(keys.codes)
        assigned = _Assignment(keys.names, codes[keys.codes], known, np.full(len(known), n))
        block = _Block(self, _Rows(keys, rest), assigned, where)
        block.learning = False
        block.run()
        return block.predictions()

    def score(self, X: TableLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """Return R² of regressors or the accuracy of classifiers on these rows."""
        from sklearn.metrics import accuracy_score, r2_score  # noqa: PLC0415  slow to import

        measure = accuracy_score if is_classifier(self) else r2_score
        return float(measure(y, self.predict(X), sample_weight=sample_weight))

    # -- merging and copies ------------------------------------------------------------------------

    @property
    def _merging(self) -> str:
        """As of the model; ``approximate`` instead of ``exact`` if keys are copied or removed."""
        whole = self.prior_strength is None and self.max_keys is None and self.max_age is None
        kind = str(self.model._merging)
        return "approximate" if kind == "exact" and not whole else kind

    def merge(self, other: Self, *, concurrent: bool = False) -> Self:
        """Merge another Keyed key by key, as if this one had learned its rows too.

        Parameters
        ----------
        other : Keyed with the same parameters
            It is not changed.
        concurrent : bool, default=False
            As in ``merge`` of the model.

        Returns
        -------
        self

        Raises
        ------
        MergeError
            If the parameters differ, or the models cannot be merged. Both are then unchanged.
        """
        where = "Keyed.merge"
        names = ("by", "prior_strength", "max_keys", "max_age")
        check_same_parameters(self, other, names, where)
        clone(self.model).merge(clone(other.model))  # raises an error if models cannot be merged
        if not other._started:
            return self
        twin = copy.copy(self)
        if not self._started:
            own = learned(other)
            twin.__dict__ |= own | {"states_": copy.copy(other.states_)}
            self.__dict__ = twin.__dict__
            return self
        if isinstance(self.model, Learner):
            twin._widen(column_positions(twin._new(), other._new(), where))
        changed, states = {}, twin.states_
        for key, entry in other.states_.entries.items():
            with _naming(f"the model of the key {key!r}", where):
                learner = twin._learner(states.entries.get(key))
                changed[key] = learner.merge(other._learner(entry), concurrent=concurrent)
        if other.pooled_ is not None:
            twin.pooled_ = twin._learner(twin.pooled_)
            twin.pooled_.merge(other.pooled_, concurrent=concurrent)
        if hasattr(other, "classes_"):
            twin.classes_ = united_labels(twin.classes_, other.classes_, where)
        twin.rows_seen_ += other.rows_seen_
        removed = []
        if states.last is not None:
            rows = other.states_.last or dict.fromkeys(other.keys(), other.rows_seen_)
            for key, row in rows.items():
                states.last[key] = self.rows_seen_ + row
                states.last.move_to_end(key)
            ended = _evict(states.last, twin.rows_seen_, self.max_keys, self.max_age)
            removed = [key for key, _ in ended]
        twin._store(changed)
        states.update(removed, {})
        self.__dict__ = twin.__dict__
        return self

    def _widen(self, at: ColumnPositions) -> None:
        """Add features to the learners of all keys."""
        d = self.n_features_in_ - 1
        if at.d == d:
            return
        everyone = {key: self._learner(entry) for key, entry in self.states_.entries.items()}
        self.pooled_ = None if self.pooled_ is None else copy.copy(self.pooled_)
        for learner in (*everyone.values(), self.pooled_):
            if learner is not None:
                learner.grow(at.d).feature_names_in_ = np.array(at.names, dtype=object)
        names = [*self.feature_names_in_, *(at.names or [])[d:]]
        self.n_features_in_, self.feature_names_in_ = at.d + 1, np.array(names, dtype=object)
        last, self._packed = self.states_.last, None
        self.states_ = KeyedStates(0 if self._packing is None else self._packing.width)
        self.states_.last = last
        self._store(everyone)

    def frozen_copy(self) -> Any:
        """Return a copy for prediction that later learning does not change."""
        return self._copied(KeyedStates.frozen)

    def __copy__(self) -> Self:
        return self._copied(copy.copy)

    def _copied(self, copied: Callable[[KeyedStates], KeyedStates]) -> Self:
        twin = object.__new__(type(self))
        twin.__dict__ = dict(self.__dict__)
        if self._started:
            twin.states_ = copied(self.states_)
            twin._packed = copy.copy(self._packed)
        return twin

    def __getstate__(self) -> Any:
        state = super().__getstate__()
        return {name: value for name, value in state.items() if name != "_packed"}

    # -- attributes --------------------------------------------------------------------------------

    @property
    def nbytes(self) -> int:
        """Size of the learned attributes in bytes."""
        return nbytes(self)

    @property
    def _uses_time(self) -> bool:
        """Whether the models require the time of each row."""
        return bool(getattr(self.model, "_uses_time", False))

    @property
    def missing(self) -> str:
        """How the models handle missing features: "keep", "skip" or "error"."""
        return str(getattr(self.model, "missing", "keep"))

    @property
    def dtypes_(self) -> dict[str, str]:
        """The types of the named columns, as ``op.stream.read(..., dtypes=...)`` accepts them."""
        if not self._started or not hasattr(self, "feature_names_in_"):
            return {}
        entries = self.states_.entries
        found = {str(name): "number" for name in self.feature_names_in_}
        if not isinstance(self.model_, Learner):
            known = [entry.dtypes_ for entry in (*entries.values(), self.pooled_) if entry]
            found |= {name: kind for dtypes in known for name, kind in dtypes.items()}
        text = any(isinstance(key, str) for key in entries)
        return found | {str(self.by): "text" if text else "number"}

    def __sklearn_is_fitted__(self) -> bool:
        return self._started

    def __sklearn_tags__(self) -> Any:
        tags = with_onepass_tags(super().__sklearn_tags__(), self)
        model_tags = get_tags(self.model)
        for name in ("estimator_type", "classifier_tags", "regressor_tags", "target_tags"):
            setattr(tags, name, getattr(model_tags, name))
        return tags

    # -- implementation ----------------------------------------------------------------------------

    @property
    def _started(self) -> bool:
        return "rows_seen_" in self.__dict__

    @property
    def _stored(self) -> KeyedStates:
        return self.states_ if self._started else KeyedStates()

    @property
    def _sound(self) -> bool:
        """Whether the attributes of a loaded file match."""
        if not self._started:
            return True
        states, kind = self.states_, type(self.model)
        entries = list(states.entries.values())
        slots = [entry for entry in entries if isinstance(entry, int)]
        learners = [entry for entry in (*entries, self.pooled_) if not isinstance(entry, int)]
        packed = self._packing if slots else None
        return (
            isinstance(states, KeyedStates)
            and type(self.model_) is kind
            and all(type(learner) is kind for learner in learners if learner is not None)
            and (not slots or (packed is not None and packed.are_sound(states.read(slots))))
        )

    @property
    def _packing(self) -> PackedRows | None:
        """How models are packed; None if they are not."""
        if self._packed is None and hasattr(self, "n_outputs_"):
            shape = self.n_features_in_ - 1, self.n_outputs_, self.target_ndim_
            self._packed = PackedRows.of(self._new(), *shape)
        return self._packed

    def _new(self) -> Any:
        """A model that has learned no row."""
        model = copy.copy(self.model_)
        if isinstance(model, Learner):
            model.n_features_in_ = self.n_features_in_ - 1
            if (names := self._names()) is not None:
                model.feature_names_in_ = np.array(names, dtype=object)
        return model

    def _names(self) -> list[str] | None:
        """The names of the features."""
        names = getattr(self, "feature_names_in_", None)
        return None if names is None else [str(name) for name in names if name != self.by]

    def _learner(self, entry: Any) -> Any:
        """A learner with the state of an entry, which learning does not change."""
        if entry is None:
            return self._new()
        if isinstance(entry, int):
            packing: Any = self._packing
            return packing.unpack(self.states_.read([entry])[0])
        return copy.copy(entry)

    def _store(self, learners: dict[Key, Any]) -> None:
        """Store learners, packed if possible."""
        changed, values = _packed(self._packing, learners)
        self.states_.update([], changed, [], values)

    def _read(self, X: Any, where: str, *, learning: bool) -> tuple[Keys, Any]:
        """The keys of rows, and the rows for the models; if learning, start with the first rows."""
        single = where.endswith("_one")
        if single:
            X = named_row(X)
            key, rest = split_row(X, self.by, where)
            keys, width = Keys(np.zeros(1, dtype=np.int32), [key]), len(rest) + 1
            names = [str(name) for name in X] if isinstance(X, dict) else None
        else:
            keys, rest, names = split_keys(X, self.by, where)
            width = len(names) if names is not None else rest.shape[1] + 1
        if learning and not self._started and len(keys.codes):
            self._start(width, names, where)
        if not isinstance(self.model_ if self._started else self.model, Learner):
            rest = Table.from_frame(rest) if is_frame(rest) else rest
            return keys, [rest] if single else rest
        known: Any = {"d": self.n_features_in_ - 1 if self._started else None}
        known["names"] = self._names()
        if single:
            return keys, validation.row_vector(rest, where, **known)[None]
        rest = Table.from_rows(rest) if isinstance(rest, list) else rest
        return keys, validation.matrix(rest, where, **known)[0]

    def _start(self, columns: int, names: list[str] | None, where: str) -> None:
        """Initialise the learned attributes."""
        if not hasattr(self.model, "test_then_train") or isinstance(self.model, (type, Keyed)):
            raise TypeMismatchError(
                f"{where}: `model` must be a learner of onepass or a Pipeline, got {self.model!r}. "
                "Pass an object such as op.RLSRegressor()."
            )
        if self.prior_strength is not None:
            validation.in_range(self.prior_strength, "prior_strength", where, above=0.0)
        check_feature_limit(columns - 1, "Keyed")
        self.model_, self.pooled_, self.n_features_in_ = clone(self.model), None, columns
        if names is not None:
            self.feature_names_in_ = np.array(names, dtype=object)
        self.rows_seen_, self.states_, self._packed = 0, KeyedStates(), None

    def _read_targets(self, y: Any, n: int, s: Floats | None, where: str) -> Array | None:
        """Validated targets; classes and outputs are noted."""
        if is_classifier(self.model):
            labels = validation.labels(y, n, where)
            new = labels if s is None else labels[s > 0.0]
            self.classes_ = united_labels(getattr(self, "classes_", new[:0]), new, where)
            return labels
        if not is_regressor(self.model):
            return None
        array = validation.targets(y, n, where)
        if not hasattr(self, "target_ndim_"):
            self.target_ndim_, self.n_outputs_ = array.ndim, array[0].size
            packing = self._packing
            self.states_.width = 0 if packing is None else packing.width
        if array.ndim != self.target_ndim_ or array[0].size != self.n_outputs_:
            shape = "(n,)" if self.target_ndim_ == 1 else f"(n, {self.n_outputs_})"
            raise ShapeError(
                f"{where}: `y` must have shape {shape}, as in the first block, got {array.shape}. "
                "Start a new Keyed for another set of targets."
            )
        return array


class _Block:
    """Learning or prediction of a block of rows; only ``store`` changes the learners of a Keyed."""

    def __init__(self, keyed: Any, rows: _Rows, assigned: _Assignment, where: str) -> None:
        self.keyed, self.rows, self.assigned, self.where = keyed, rows, assigned, where
        self.learning = self.predicting = True
        self.n = len(assigned.codes)
        self.packing = keyed._packing
        self.starts: dict[int, Any] = {}  # the models of new keys that start from a copy
        self.learners: dict[int, Any] = {}  # models after the block
        self.packed: list[int] = []  # models that are packed, with `values`
        self.values = keyed.states_.read([])
        self.found: list[tuple[Array, Array]] = []  # rows and their predictions

    def run(self) -> None:
        """Predict and learn all rows; models that learn no row only predict."""
        if self.learning and self.keyed.prior_strength is not None:
            self.learn_pooled()
        codes = self.assigned.codes
        rest = np.ones(len(self.assigned.names) + 1, dtype=bool)  # the last one: unknown keys
        if self.packing is not None and self.packing.rows is not None:
            self.learn_packed(rest)
        left = np.flatnonzero(rest[codes])
        for model, at in _groups(codes[left]):
            if model < 0:
                self.predict_unknown(left[at])
                continue
            start = self.starts.get(model, self.assigned.known[model])
            self.learn_model(model, self.keyed._learner(start), left[at])

    def learn_model(self, model: int, learner: Any, rows: Array) -> None:
        """Learn some rows of a model, or predict them if it learns none."""
        part = self.rows.part(rows)
        with _naming(f"the model of the key {self.assigned.names[model]!r}", self.where, rows):
            if self.assigned.first[model] == self.n:
                if self.predicting:
                    self.found.append((rows, learner.predict(part["X"])))
                return
            verb = "test_then_train" if self.predicting else "partial_fit"
            learn: Callable[..., Array] = getattr(learner, verb)
            predictions = learn(**part)
        if self.predicting:
            self.found.append((rows, predictions))
        self.learners[model] = learner

    def learn_pooled(self) -> None:
        """Learn all rows in the pooled model, from whose copies new models start."""
        keyed, assigned = self.keyed, self.assigned
        pooled = keyed._learner(keyed.pooled_)
        new = [
            (int(assigned.first[i]), i) for i, entry in enumerate(assigned.known) if entry is None
        ]
        at, predictions = 0, []
        for row, model in [*sorted(new), (self.n, -1)]:
            if row > at:
                with _naming("the pooled model", self.where, np.arange(at, row)):
                    predictions.append(pooled.test_then_train(**self.rows.part(slice(at, row))))
                at = row
            if model >= 0 and row < self.n and getattr(pooled, "rows_seen_", 0) > 0:
                self.starts[model] = copy.copy(pooled)
                fade_to(self.starts[model], keyed.prior_strength)
        keyed.pooled_ = pooled
        unknown = np.flatnonzero(assigned.codes < 0)
        if len(unknown) and self.predicting:
            self.found.append((unknown, _joined(predictions)[unknown]))

    def learn_packed(self, rest: Array) -> None:
        """Learn the models that are packed, or predict; others remain marked in ``rest``."""
        packing, assigned, rows = self.packing, self.assigned, self.rows
        learning = self.learning
        off = None if rows.weights is None else rows.weights == 0.0
        excluded = (
            set(np.flatnonzero(assigned.first == self.n).tolist()) if learning else set[int]()
        )
        if off is not None and self.predicting:
            excluded.update(assigned.codes[off].tolist())
        known = [i for i, entry in enumerate(assigned.known) if type(entry) is int]
        new = [i for i, entry in enumerate(assigned.known) if entry is None and learning]
        if excluded or self.starts:
            known = [i for i in known if i not in excluded]
            new = [i for i in new if i not in excluded and i not in self.starts]
            new.sort(key=assigned.first.__getitem__)
        members, slots = known + new, [assigned.known[i] for i in known]
        values = np.concatenate((self.keyed.states_.read(slots), packing.start(len(new))))
        index = np.full(len(rest), -1, dtype=np.int32)
        index[members] = np.arange(len(members))
        codes = index[assigned.codes]
        X = np.ascontiguousarray(rows.X, dtype=np.float64)
        rest[members] = False
        if not learning:
            at = np.flatnonzero(codes >= 0)
            self.note(at, packing.predict(values, codes[at], X[at]))
            return
        if rows.time is not None:
            packing.template._check_times(rows.time, self.n, self.where)  # raises an error
        if off is not None:
            codes[off] = -1
        Y: Any = np.ascontiguousarray(
            np.reshape(np.asarray(rows.y), (self.n, -1)), dtype=np.float64
        )
        errors, counted = packing.learn(values, codes, X, Y, rows.weights)
        counts = np.bincount(codes + 1, minlength=len(members) + 1)[1:]
        refused = np.append(counted < counts, False)
        left = np.flatnonzero(refused[codes])
        for j, at in _groups(codes[left]):
            later = left[at][counted[j] :]
            self.learn_model(members[j], packing.unpack(values[j]), later)
            codes[later] = -1
        at = np.flatnonzero(codes >= 0)
        if self.predicting:
            self.note(at, Y - errors if len(at) == self.n else Y[at] - errors[at])
        stay = np.flatnonzero(~refused[:-1])
        self.packed, self.values = [members[j] for j in stay.tolist()], values[stay]

    def note(self, rows: Array, predictions: Floats) -> None:
        """Note predictions (k, c)."""
        self.found.append(
            (rows, predictions[:, 0] if self.keyed.target_ndim_ == 1 else predictions)
        )

    def predict_unknown(self, rows: Array) -> None:
        """Predict rows of unknown keys."""
        keyed = self.keyed
        if not self.predicting or (self.learning and keyed.prior_strength is not None):
            return  # predicted by the pooled model before
        X = _chosen(self.rows.X, rows)
        if keyed.pooled_ is not None:
            self.found.append((rows, keyed.pooled_.predict(X)))
            return
        model = keyed._new()
        initial = getattr(getattr(model, "learner", model), "initial_coef", None)
        each = range(len(rows) if initial is not None else 1)  # equal without initial weights
        made = np.array([model.predict_one(_one(X, i)) for i in each])
        if made.ndim < getattr(keyed, "target_ndim_", 1):
            made = np.repeat(made[:, None], keyed.n_outputs_, axis=1)
        self.found.append((rows, made if initial is not None else made.repeat(len(rows), axis=0)))

    def predictions(self) -> Array:
        """The predictions in the order of the rows."""
        if len(self.found) == 1 and len(self.found[0][0]) == self.n:
            rows, values = self.found[0]
        elif self.found:
            rows = np.concatenate([rows for rows, _ in self.found])
            values = _joined([values for _, values in self.found])
        else:
            return np.empty(0)
        ordered = np.empty_like(values)
        ordered[rows] = values
        return ordered

    def store(self) -> None:
        """Replace the former models."""
        assigned, names, values = self.assigned, self.assigned.names, self.values
        remain = [j for j, i in enumerate(self.packed) if assigned.known[i] is not None]
        if not self.learners and not assigned.ended:
            slots = [assigned.known[self.packed[j]] for j in remain]
            new = dict.fromkeys(names[i] for i in self.packed[len(slots) :])
            self.keyed.states_.update(assigned.removed, new, slots, values)
            return
        rows = {i: values[j] for j, i in enumerate(self.packed) if assigned.known[i] is None}
        rows |= self.learners
        order = [i for i in np.argsort(assigned.first, kind="stable").tolist() if i in rows]
        stay = {names[i]: rows[i] for i in order if i not in assigned.ended}
        changed, packed = _packed(self.packing, stay)
        remain = [j for j in remain if self.packed[j] not in assigned.ended]
        slots = [assigned.known[self.packed[j]] for j in remain]
        values = np.concatenate((values[remain], packed)) if len(packed) else values[remain]
        self.keyed.states_.update(assigned.removed, changed, slots, values)


def _assign_with_eviction(
    keys: Keys,
    on: Array | None,
    states: KeyedStates,
    seen: int,
    before: dict[Key, int | None],
    max_keys: int | None,
    max_age: int | None,
) -> _Assignment:
    """The model of each row if keys may be removed: a loop over the rows."""
    last: Any = states.last
    names: list[Key] = []
    known, first, codes = [], [], []
    current: dict[Key, int] = {}  # the present model of a key
    removed, ended, n = dict[Key, None](), set[int](), len(keys.codes)

    def evict(count: int | None) -> None:
        for key, row in _evict(last, seen, count, max_age):
            before.setdefault(key, row)
            if key in states.entries:
                removed[key] = None
            if key in current:
                ended.add(current.pop(key))

    for i, code in enumerate(keys.codes.tolist()):
        key, learns = keys.names[code], on is None or on[i]
        evict(None)
        if learns and key not in last and max_keys is not None:
            evict(max_keys - 1)
        if key not in current and (learns or key in last):
            current[key] = len(names)
            names.append(key)
            known.append(states.entries.get(key) if key in last else None)
            first.append(n)
        model = current.get(key, -1)
        codes.append(model)
        if learns:
            seen += 1
            before.setdefault(key, last.get(key))
            last[key] = seen
            last.move_to_end(key)
            first[model] = min(first[model], i)
    evict(None)
    array = np.array(codes, dtype=np.int32)
    return _Assignment(
        names, array, known, np.array(first, dtype=int), list(removed), frozenset(ended)
    )


def _packed(packing: PackedRows | None, learners: dict[Key, Any]) -> tuple[dict[Key, Any], Floats]:
    """The learners, None in place of those that are packed; and the packed states.

    Learners may already be packed.
    """
    found, states = dict(learners), list[Floats]()
    if packing is None:
        return found, np.array(states)
    for key, learner in learners.items():
        state = learner if isinstance(learner, np.ndarray) else packing.pack(learner)
        if state is not None:
            found[key] = None
            states.append(state)
    return found, np.array(states)


def _evict(
    last: OrderedDict[Key, int], seen: int, max_keys: int | None, max_age: int | None
) -> list[tuple[Key, int]]:
    """Remove the least recent keys beyond the limits; return them with their last rows."""
    found = []
    while last:
        key, row = next(iter(last.items()))
        old = max_age is not None and seen - row >= max_age
        if not old and (max_keys is None or len(last) <= max_keys):
            break
        found.append((key, row))
        del last[key]
    return found


def _groups(codes: Array) -> Iterator[tuple[int, Array]]:
    """Each code with its rows, in order."""
    order = np.argsort(codes, kind="stable")
    for rows in np.split(order, np.flatnonzero(np.diff(codes[order])) + 1) if len(codes) else ():
        yield int(codes[rows[0]]), rows


def _chosen(values: Any, rows: Array | slice) -> Any:
    """Some elements of an array, Table or list."""
    if not isinstance(values, (list, tuple)):
        return values[rows]
    return values[rows] if isinstance(rows, slice) else [values[i] for i in rows.tolist()]


def _one(X: Any, i: int) -> Any:
    return X.row(i) if isinstance(X, Table) else X[i]


def _joined(parts: list[Array]) -> Array:
    """Concatenate predictions, which may be labels or None."""
    if {part.dtype.kind for part in parts} <= {"U"} or all(p.dtype.kind != "U" for p in parts):
        return np.concatenate(parts)
    return np.concatenate([part.astype(object) for part in parts])


@contextmanager
def _naming(model: str, where: str, rows: Array | None = None) -> Iterator[None]:
    """Add the model to errors, and replace a row of the learner by the row of the block."""
    try:
        yield
    except OnepassError as error:
        text = str(error)
        if rows is not None:
            at = rows.tolist()
            text = _ROW.sub(lambda found: f"in row {at[int(found[1])]}", text)
        raise type(error)(f"{where}: {model}: {text}") from error
