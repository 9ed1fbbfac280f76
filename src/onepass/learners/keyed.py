"""Keyed: one small model per key, for rows of many keys in one stream.

Each row is predicted and learned by the model of its key, as if the models were separate learners.
With a pooled model, which learns all rows, a new key starts from a copy of it, whose rows count as
at most ``prior_strength`` rows, so that the key's own rows soon outweigh them.

The rows of a block are grouped by key. Models that :class:`~onepass.learners.rls_packed.PackedRows`
supports are learned together in compiled code, all others by one learner per key.
Everything is learned in copies, which replace the former learners when the whole block has been
learned.
"""

from __future__ import annotations

# ruff: noqa: SLF001  the parts of this file share the protocol of learners
import copy
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, NamedTuple, Self, cast

import numpy as np
from sklearn.base import clone, is_classifier, is_regressor

from onepass import native, validation
from onepass.declared import State, check_parameters, param
from onepass.errors import (
    ColumnError,
    MergeError,
    NotFittedError,
    ParameterError,
    ShapeError,
    TypeMismatchError,
    public,
)
from onepass.estimators import available_if
from onepass.learners.estimator import Learner
from onepass.learners.estimator.classifier import united_labels
from onepass.learners.estimator.composite import Composite, naming
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


@dataclass(eq=False, repr=False)
class Keyed(Composite):
    """One model per key: thousands to millions of small models, such as one per device.

    All columns except the key are features. Rows of many keys may be in one block, in any order;
    the result is that of a separate copy of ``model`` for each key. :class:`RLSRegressor` with
    plain or bounded forgetting by rows is learned in compiled code for all keys at once; any other
    learner or Pipeline by one object per key.

    Parameters
    ----------
    model : learner, Pipeline or Conformal
        The model of each key. Changes of its parameters apply from the next ``fit``.
    by : str or int
        The key column: its name in frames, tables and dicts, or its index in arrays. Keys are text
        or whole numbers; a boolean is the key 0 or 1, and categories are text.
    prior_strength : float, optional
        If given, a pooled model also learns all rows. A new key starts from a copy of the pooled
        model, whose rows then count as at most this number of rows (> 0); and unknown keys are
        predicted by the pooled model. The limit applies to least squares without Window
        or Directional forgetting, on its own or in a Pipeline; with any other learner, such as SGD,
        a new key starts from a plain copy.
    max_keys : int, optional
        Maximum number of keys: if there are more, the key that was learned least recently is
        removed. A removed key that returns is a new key.
    max_age : int, optional
        Remove keys that were not learned for this number of rows of the stream.

    Attributes
    ----------
    classes_ : ndarray of shape (c,)
        For classifiers: all labels seen or given in advance, sorted. Each key predicts only labels
        that it has seen or that were given.
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

    states_ = State[KeyedStates]()
    model_ = State[Any]()
    pooled_ = State[Any]()
    n_features_in_ = State[int]()
    feature_names_in_ = State[Array]()
    rows_seen_ = State[int]()
    classes_ = State[Array]()
    n_outputs_ = State[int]()
    target_ndim_ = State[int]()

    _packed = cast("PackedRows | None", None)

    model: Any
    by: str | int
    _: KW_ONLY
    prior_strength: float | None = param(None, above=0.0)
    max_keys: int | None = param(None, whole=True, low=1)
    max_age: int | None = param(None, whole=True, low=1)

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

    @public
    def __getitem__(self, key: object) -> Any:
        """Return a copy of the model of a key."""
        found = self._stored.entries.get(plain_key(key))
        if found is None:
            raise ColumnError(
                f"the key must be one of the {len(self):,} keys that were learned and not removed, "
                f"got {key!r}. Compare with keys(); predict also accepts other keys."
            )
        return copy.deepcopy(self._learner(found))

    @property
    def learner(self) -> Any:
        """The learner of ``model``, which is not fitted."""
        return _last_learner(self.model)

    # -- learning ----------------------------------------------------------------------------------

    @public
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
        with self._lock:
            if sample_weight == 1.0 and time is None and self._learn_known(x, y):
                return self
            target = None if y is None else np.asarray(y)[None]
            when = None if time is None else [time]
            weight = None if sample_weight == 1.0 else [sample_weight]
            self._learn(_one_row(x), target, weight, "learn_one", time=when)
        return self

    def _learn_known(self, x: Any, y: Any) -> bool:
        """Learn one row of a known key by a shorter way than for blocks; return success."""
        where, states, limit = "Keyed.learn_one", self._stored, self.max_keys
        last = states.last
        limited = last is not None and limit is not None and len(last) <= limit
        fixed = self.prior_strength is None and self.max_age is None
        if not fixed or not (limited or (last is None and limit is None)):
            return False
        key, rest = split_row(x, self.by)
        packing = self._native
        entry = states.entries.get(key)
        if entry is None or (hasattr(self, "classes_") and y not in self.classes_):
            return False
        if not isinstance(entry, int):
            learner = copy.copy(entry)
            with naming(f"{where}: the model of the key {key!r}"):
                learner.learn_one(rest, y)
            states.update([], {key: learner})
        else:
            if packing is None:
                return False
            state = states.read([entry])
            if not packing.learn_one(state[0], rest, y):
                return False
            states.update([], {}, [entry], state)
        self.rows_seen_ += 1
        if last is not None:
            last[key] = self.rows_seen_
            last.move_to_end(key)
        return True

    _returns_proba = False

    def _learn(
        self,
        X: Any,
        y: Any,
        sample_weight: Any,
        verb: str,
        *,
        time: Any = None,
        classes: Any = None,
    ) -> Array:
        """Learn a block in copies, which then replace the former learners."""
        where = f"Keyed.{verb}"
        twin = object.__new__(type(self))  # for the attributes after the block
        twin.__dict__ = dict(self.__dict__)
        if verb == "fit":
            forget(twin)
        keys, rest = twin._read(X, learning=True)
        n = len(keys.codes)
        s = validation.weights(sample_weight, n)
        if verb == "fit" and (not n or (s is not None and not s.any())):
            clone(self.model).fit(rest, y, sample_weight)  # raises the error
        if classes is not None:
            twin._declare(classes)
        if n == 0:
            self.__dict__ = self.__dict__ if classes is None else twin.__dict__
            return twin._no_predictions()
        y = twin._read_targets(y, n, s)
        rows, states = _Rows(keys, rest, y, s, _times(time, n)), twin.states_
        before: dict[Key, int | None] = {}
        interrupt = Interrupt()
        try:
            assigned = twin._plan(rows, before)
            block = _Block(twin, rows, assigned, where)
            block.run()
            predictions: Array = _ordered(block.found)
            twin.rows_seen_ += n if s is None else int(np.count_nonzero(s))
            with interrupt.held():
                block.store()
                self.__dict__ = twin.__dict__
                before.clear()
        except BaseException:
            if states.last is not None and before:
                states.restore(before)
            raise
        interrupt.raise_pending()
        return predictions

    def _plan(self, rows: _Rows, before: dict[Key, int | None]) -> _Assignment:
        """The model of each row; changes of the storage's ``last`` are noted in ``before``."""
        check_parameters(self)
        if self.prior_strength is not None and self._has_lags:
            raise ParameterError(
                "`prior_strength` must be None for models with lags, since a pooled model would "
                f"have lags of other keys, got {self.prior_strength:g}. Leave it out."
            )
        limits = [self.max_keys, self.max_age]
        states, keys, n = self.states_, rows.keys, len(rows.keys.codes)
        on = None if rows.weights is None or self._has_lags else rows.weights > 0.0
        if limits != [None, None] and states.last is None:
            at = self.rows_seen_ - len(states.entries)
            states.last = OrderedDict((key, at + i + 1) for i, key in enumerate(states.entries))
        if states.last is not None:
            return _assign_with_eviction(keys, on, states, self.rows_seen_, before, *limits)
        known, first = [states.entries.get(key) for key in keys.names], np.full(len(keys.names), n)
        if on is None and self.prior_strength is None:
            return _Assignment(keys.names, keys.codes, known, np.arange(len(keys.names)))
        learning = np.arange(n)[slice(None) if on is None else on][::-1]
        first[keys.codes[learning]] = learning  # the first row of a key is assigned last
        new = np.array([entry is None for entry in known])
        unknown = new[keys.codes] & (np.arange(n) < first[keys.codes])
        return _Assignment(keys.names, np.where(unknown, -1, keys.codes), known, first)

    # -- prediction --------------------------------------------------------------------------------

    @public
    def predict(self, X: TableLike, **options: Any) -> Any:
        """Predict rows, each by the model of its key.

        Rows of unknown keys are predicted by the pooled model, or without it by a model that has
        learned no row.

        Parameters
        ----------
        X : array-like of shape (n, d), DataFrame, Table or sequence of dicts
            With the key column.
        **options
            Options of ``predict`` of the model, such as ``return_std=True``.

        Raises
        ------
        NotFittedError
            If no row was learned.
        """

        def predict(model: Any, rows: Any, n: int) -> Any:
            if model is None:
                return self._predict_unknown(rows, n, **options)
            return model.predict(rows, **options)

        return self._by_key(X, "predict", predict, compiled=not options)

    @available_if(lambda self: hasattr(self.model, "predict_proba"))
    @public
    def predict_proba(self, X: TableLike) -> Floats:
        """Return probabilities of ``classes_`` by the model of each row's key, shape (n, c).

        They are 0 for classes that the key has not seen. Rows of unknown keys have the
        probabilities of the pooled model, or without it equal ones.
        """

        def predict(model: Any, rows: Any, n: int) -> Floats:
            if model is None:
                return self._equal_shares(n)
            return self._shares(model, model.predict_proba(rows))

        found: Floats = self._by_key(X, "predict_proba", predict)
        return found

    def _equal_shares(self, n: int) -> Floats:
        """Equal probabilities of all classes for n rows."""
        c = len(self.classes_)
        return np.full((n, c), 1.0 / max(1, c))

    def _shares(self, model: Any, own: Floats) -> Floats:
        """Probabilities of all classes from those of a model."""
        shares = np.zeros((len(own), len(self.classes_)))
        shares[:, np.searchsorted(self.classes_, model.classes_)] = own
        return shares

    @public
    def forecast(self, X: TableLike, y: ArrayLike | None = None, **options: object) -> Any:
        """Predict rows, of which the first of each key follows the last one that it learned.

        Parameters
        ----------
        X : rows with the key column
        y : array-like of shape (n,) or (n, c), optional
            The targets that are known, nan or None where unknown; they are lags of later rows of
            the same key, as in ``Pipeline.forecast``.
        **options
            Options of ``predict`` of the model.
        """
        twin: Any = copy.copy(self)
        return twin._forecast(X, y, **options)

    def _forecast(
        self, X: TableLike, y: ArrayLike | None = None, *, proba: bool = False, **options: Any
    ) -> Any:
        """Predict rows as ``forecast``, and store their targets as lags of the next ones."""
        if not self._started or not hasattr(self.model, "_forecast"):
            return self.predict(X, **options)
        keys, rest = self._read(X)
        targets = None if y is None else series_array(y)
        if targets is not None and len(targets) != len(keys.codes):
            raise ShapeError(
                f"`y` must have a target for each of the {len(keys.codes):,} rows of X, nan if "
                f"unknown, got {len(targets):,}. Check that X and y come from the same rows.",
                "Keyed.forecast",
            )
        found, changed = list[tuple[Array, Any]](), dict[Key, Any]()
        for i, rows in _groups(keys.codes):
            key, part = keys.names[i], _chosen(rest, rows)
            entry = self.states_.entries.get(key, self.pooled_)
            if entry is None:
                made = self._predict_unknown(part, len(rows), **options)
                made = (made, self._equal_shares(len(rows))) if proba else made
            else:
                learner, known = self._learner(entry), None if y is None else _chosen(targets, rows)
                with naming(f"Keyed.forecast: the model of the key {key!r}", rows):
                    more = options | ({"proba": True} if proba else {})
                    made = learner._forecast(part, known, **more)
                made = (made[0], self._shares(learner, made[1])) if proba else made
                changed |= {key: learner} if key in self.states_.entries else {}
            found.append((rows, made))
        self._store(changed)
        return _ordered(found) if found else self._no_predictions()

    @available_if(lambda self: hasattr(self.model, "predict_interval"))
    @public
    def predict_interval(self, X: TableLike) -> Floats:
        """Intervals of the targets by the Conformal of each row's key, (n, 2) or (n, c, 2).

        They are infinite for unknown keys without a pooled model, and while a key has few rows.
        """

        def predict(model: Any, rows: Any, n: int) -> Floats:
            if model is not None:
                intervals: Floats = model.predict_interval(rows)
                return intervals
            center = np.asarray(self._predict_unknown(rows, n))
            return np.stack([np.full(center.shape, -np.inf), np.full(center.shape, np.inf)], -1)

        found: Floats = self._by_key(X, "predict_interval", predict)
        return found

    @available_if(lambda self: hasattr(self.model, "predict_set"))
    @public
    def predict_set(self, X: TableLike) -> Array:
        """Whether each of ``classes_`` is in the label set of each row's key, bool (n, c).

        Sets contain no class that the key has not seen; those of unknown keys without a pooled
        model contain all classes.
        """

        def predict(model: Any, rows: Any, n: int) -> Array:
            inside = np.full((n, len(self.classes_)), model is None)
            if model is not None:
                inside[:, np.searchsorted(self.classes_, model.classes_)] = model.predict_set(rows)
            return inside

        found: Array = self._by_key(X, "predict_set", predict)
        return found

    @available_if(lambda self: hasattr(self.model, "predict_interval"))
    @public
    def predict_interval_one(self, x: RowLike) -> Floats:
        """Interval of the target of one row, (2,) or (c, 2); infinite for unknown keys."""
        if not self._started:
            return np.array([-np.inf, np.inf])
        interval: Floats = self.predict_interval(_one_row(x))[0]
        return interval

    @available_if(lambda self: hasattr(self.model, "predict_set"))
    @public
    def predict_set_one(self, x: RowLike) -> set[Any]:
        """The set of labels of one row; empty before the first row."""
        if not self._started:
            return set()
        return set(self.classes_[self.predict_set(_one_row(x))[0]].tolist())

    @available_if(lambda self: hasattr(self.model, "predict_proba"))
    @public
    def predict_proba_one(self, x: RowLike) -> dict[Any, float]:
        """Probabilities of ``classes_`` for one row, by label; empty before the first row."""
        if not self._started:
            return {}
        shares = self.predict_proba(_one_row(x))[0].tolist()
        return dict(zip(self.classes_.tolist(), shares, strict=True))

    @public
    def predict_one(self, x: RowLike, **options: Any) -> Any:
        """Predict one row: a dict, or an array if ``by`` is an index; options as in ``predict``."""
        key, rest = split_row(x, self.by)
        if not self._started:
            self._check_model()
            return clone(self.model).predict_one(rest, **options)
        entry = self.states_.entries.get(key, self.pooled_)
        if entry is None:
            return _each(lambda made: made[0], self._predict_unknown([rest], 1, **options))
        if isinstance(entry, int) and self._native and not options:
            state = self.states_.read([entry])
            prediction = self._native.predict_one(state[0], rest)
            if prediction is not None:
                return prediction
        learner = self._learner(entry) if isinstance(entry, int) else entry
        return learner.predict_one(rest, **options)

    def _by_key(
        self, X: Any, verb: str, predict: Callable[..., Any], *, compiled: bool = False
    ) -> Any:
        """Predict rows by ``predict(model, rows, n)``; the model is None for unknown keys."""
        if not self._started:
            raise NotFittedError(
                "this Keyed is not fitted yet: it has learned no row. Call fit, "
                "partial_fit or learn_one first; predict_one and test_then_train "
                "predict before any row is learned.",
                f"Keyed.{verb}",
            )
        where = f"Keyed.{verb}"
        keys, rest = self._read(X)
        entries = [self.states_.entries.get(key) for key in keys.names]
        slots, codes, found = _slots(entries), keys.codes, list[tuple[Array, Any]]()
        packed = (slots >= 0) & (compiled and self._native is not None)
        at, left = np.flatnonzero(packed[codes]), np.flatnonzero(~packed[codes])
        if packed.any() and self._native is not None:
            states, own = self.states_.read(slots[packed]), (np.cumsum(packed) - 1)[codes[at]]
            found.append((at, self._shaped(self._native.predict(states, own, rest[at]))))
        codes = np.where(slots == -1, -1, np.arange(len(slots)))[codes]
        for i, at in _groups(codes[left]):
            learner, name = self.pooled_, "the model of unknown keys"
            if i >= 0:
                learner, name = self._learner(entries[i]), f"the model of the key {keys.names[i]!r}"
            rows = left[at]
            with naming(f"{where}: {name}", rows):
                found.append((rows, predict(learner, _chosen(rest, rows), len(rows))))
        return _ordered(found) if found else self._no_predictions()

    def _no_predictions(self) -> Floats:
        return np.empty((0, self.n_outputs_) if getattr(self, "target_ndim_", 1) == 2 else 0)

    @public
    def score(self, X: TableLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """Return R² of regressors or the accuracy of classifiers on these rows."""
        from sklearn.metrics import r2_score  # noqa: PLC0415  slow to import

        predictions = self.predict(X)
        if not is_classifier(self):
            return float(r2_score(y, predictions, sample_weight=sample_weight))
        labels = validation.labels(y, len(predictions))
        right = labels.astype(object) == predictions.astype(object)  # None if a key is unknown
        weights: Any = sample_weight
        return float(np.average(right, weights=weights))

    # -- merging and copies ------------------------------------------------------------------------

    @property
    def _merging(self) -> str:
        """As of the model; ``approximate`` instead of ``exact`` if keys are copied or removed."""
        whole = self.prior_strength is None and self.max_keys is None and self.max_age is None
        kind = str(self.model._merging)
        return "approximate" if kind == "exact" and not whole else kind

    @public
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
        with self._lock:
            self._merge(other, concurrent=concurrent)
        return self

    def _merge(self, other: Self, *, concurrent: bool) -> None:
        """Merge another one in a copy."""
        where = "Keyed.merge"
        names = ("by", "prior_strength", "max_keys", "max_age")
        check_same_parameters(self, other, names)
        clone(self.model).merge(clone(other.model))  # raises an error if models cannot be merged
        if not other._started:
            return
        twin = copy.copy(self)
        if not self._started:
            own = learned(other)
            twin.__dict__ |= own | {"states_": copy.copy(other.states_)}
            self.__dict__ = twin.__dict__
            return
        if self._target_shape != other._target_shape:
            raise MergeError(
                f"both must have targets of shape {self._target_shape}, as the first "
                f"has, got {other._target_shape}. Merge models of the same outputs."
            )
        if isinstance(self.model, Learner):
            twin._widen(column_positions(twin._new(), other._new()))
        changed, states = {}, twin.states_
        for key, entry in other.states_.entries.items():
            with naming(f"{where}: the model of the key {key!r}"):
                learner = twin._learner(states.entries.get(key))
                changed[key] = learner.merge(other._learner(entry), concurrent=concurrent)
        if other.pooled_ is not None:
            twin.pooled_ = twin._learner(twin.pooled_)
            twin.pooled_.merge(other.pooled_, concurrent=concurrent)
        if hasattr(other, "classes_"):
            twin.classes_ = united_labels(twin.classes_, other.classes_)
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

    def _widen(self, at: ColumnPositions) -> None:
        """Add features to the learners of all keys."""
        d = self.n_features_in_ - 1
        if at.d == d:
            return
        _ = self._packing  # that of the former features, by which packed states are read
        names = [*self.feature_names_in_, *(at.names or [])[d:]]
        self.n_features_in_, self.feature_names_in_ = at.d + 1, np.array(names, dtype=object)

        def grow(learner: Any) -> None:
            learner.grow(at.d).feature_names_in_ = np.array(at.names, dtype=object)

        self._change_all(grow)

    def _change_all(self, change: Callable[[Any], None]) -> None:
        """Change the learners of all keys and the pooled one, in a new storage."""
        learners = {key: self._learner(entry) for key, entry in self.states_.entries.items()}
        self.pooled_ = copy.copy(self.pooled_)
        for learner in (*learners.values(), self.pooled_):
            if learner is not None:
                change(learner)
        last, self._packed = copy.copy(self.states_.last), None
        self.states_ = KeyedStates(0 if self._packing is None else self._packing.width)
        self.states_.last = last
        self._store(learners)

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
            for learner in (*entries.values(), self.pooled_):
                found |= {} if learner is None else learner.dtypes_
        text = any(isinstance(key, str) for key in entries)
        return found | {str(self.by): "text" if text else "number"}

    def __sklearn_is_fitted__(self) -> bool:
        return self._started

    # -- implementation ----------------------------------------------------------------------------

    @property
    def _started(self) -> bool:
        return "rows_seen_" in self.__dict__

    @property
    def _has_lags(self) -> bool:
        """Whether models also receive rows of weight 0, whose targets are lags of later rows."""
        return self._target_delay is not None

    @property
    def _target_shape(self) -> str:
        """The shape of the targets of regressors."""
        return "(n,)" if getattr(self, "target_ndim_", 1) == 1 else f"(n, {self.n_outputs_})"

    @property
    def _stored(self) -> KeyedStates:
        return self.states_ if self._started else KeyedStates()

    @property
    def _sound(self) -> bool:
        """Whether the attributes of a loaded file match."""
        if not self._started:
            return True
        states, kind = self.states_, type(self.model_)
        entries = list(states.entries.values())
        slots = [entry for entry in entries if isinstance(entry, int)]
        learners = [entry for entry in (*entries, self.pooled_) if not isinstance(entry, int)]
        packed = self._packing if slots else None
        return (
            isinstance(states, KeyedStates)
            and hasattr(kind, "test_then_train")
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

    @property
    def _native(self) -> PackedRows | None:
        """How the compiled code learns models; None if it does not."""
        return self._packing if native.loops is not None else None

    def _new(self) -> Any:
        """A model that has learned no row."""
        model = copy.copy(self.model_)
        if isinstance(model, Learner):
            shape = self._shape()
            model.n_features_in_ = shape["d"]
            if shape["names"] is not None:
                model.feature_names_in_ = np.array(shape["names"], dtype=object)
        return model

    def _shape(self) -> dict[str, Any]:
        """The number and names of the features; names are None if they have none."""
        names = getattr(self, "feature_names_in_", None)
        own = None if names is None else [str(name) for name in names if name != self.by]
        return {"d": self.n_features_in_ - 1, "names": own}

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

    def _shaped(self, predictions: Floats) -> Array:
        """Predictions (n, c) in the shape of the targets."""
        return predictions[:, 0] if self.target_ndim_ == 1 else predictions

    def _predict_unknown(self, X: Any, n: int, **options: Any) -> Any:
        """Predictions of n rows by the pooled model, or by a model that has learned no row."""
        if self.pooled_ is not None:
            return self.pooled_.predict(X, **options)
        model = self._new()
        same = getattr(_last_learner(model), "initial_coef", None) is None
        rows = X[:1] if same else X  # without initial weights all predictions are equal
        rows = rows.rows() if isinstance(rows, Table) else rows
        made = [model.predict_one(row, **options) for row in rows]
        wide = getattr(self, "target_ndim_", 1) == 2

        def shaped(values: Any) -> Array:
            array = np.array(values)
            array = array[:, None] if wide and array.ndim == 1 else array
            return np.broadcast_to(array, (n, self.n_outputs_) if wide else (n,)).copy()

        return _each(shaped, tuple(zip(*made, strict=True)) if isinstance(made[0], tuple) else made)

    def _read(self, X: Any, *, learning: bool = False) -> tuple[Keys, Any]:
        """The keys of rows, and the rows for the models; if learning, start with the first rows."""
        keys, rest, names = split_keys(X, self.by)
        if learning and not self._started:
            self._start(rest.shape[1] + 1 if names is None else len(names), names)
        if not isinstance(self.model_, Learner):
            return keys, Table.from_frame(rest) if is_frame(rest) else rest
        rest = Table.from_rows(rest) if isinstance(rest, list) else rest
        return keys, validation.matrix(rest, **self._shape())[0]

    def _check_model(self) -> None:
        if not hasattr(self.model, "test_then_train") or isinstance(self.model, (type, Keyed)):
            raise TypeMismatchError(
                "`model` must be a learner of onepass, a Pipeline or a Conformal, got "
                f"{self.model!r}. Pass an object such as op.RLSRegressor()."
            )

    def _start(self, columns: int, names: list[str] | None) -> None:
        """Initialise the learned attributes."""
        self._check_model()
        check_feature_limit(columns - 1)
        self.model_, self.pooled_, self.n_features_in_ = clone(self.model), None, columns
        if names is not None:
            self.feature_names_in_ = np.array(names, dtype=object)
        self.rows_seen_, self.states_, self._packed = 0, KeyedStates(), None
        if is_classifier(self.model):
            self.classes_ = validation.class_names(self.learner.classes)

    def _declare(self, classes: Any) -> None:
        """Declare labels for all models, also for new ones."""
        self.model_ = clone(self.model_)
        template = _last_learner(self.model_)
        before = validation.class_names(template.classes)
        united = united_labels(before, validation.class_names(classes))
        if len(united) == len(before):
            return
        template.classes = united.tolist()
        self.classes_ = united_labels(self.classes_, united)

        def declare(model: Any) -> None:
            learner = _last_learner(model, "_")
            none = np.empty((0, learner.n_features_in_))
            learner.partial_fit(none, np.empty(0), classes=united)

        self._change_all(declare)

    def _read_targets(self, y: Any, n: int, s: Floats | None) -> Array | None:
        """Validated targets; classes and outputs are noted."""
        if is_classifier(self.model_):
            labels = validation.labels(y, n)
            new = labels if s is None else labels[s > 0.0]
            self.classes_ = united_labels(self.classes_, new)
            return labels
        if not is_regressor(self.model_):
            return None
        array = validation.targets(y, n, gaps=self._learns_gaps)
        if not hasattr(self, "target_ndim_"):
            self.target_ndim_, self.n_outputs_ = array.ndim, array[0].size
            packing = self._packing
            self.states_.width = 0 if packing is None else packing.width
        if array.ndim != self.target_ndim_ or array[0].size != self.n_outputs_:
            raise ShapeError(
                f"`y` must have shape {self._target_shape}, as in the first block, got "
                f"{array.shape}. Start a new Keyed for another set of targets."
            )
        return array


class _Block:
    """Learning of a block of rows; only ``store`` changes the learners of a Keyed."""

    def __init__(self, keyed: Any, rows: _Rows, assigned: _Assignment, where: str) -> None:
        self.keyed, self.rows, self.assigned, self.where = keyed, rows, assigned, where
        self.predicting = where == "Keyed.test_then_train"
        self.n = len(assigned.codes)
        self.packing = keyed._native
        self.starts: dict[int, Any] = {}  # the models of new keys that start from a copy
        self.learners: dict[int, Any] = {}  # models after the block
        self.slots = _slots(assigned.known)
        self.packed = np.empty(0, dtype=np.intp)  # models that are packed, with `values`
        self.values = keyed.states_.read([])
        self.found: list[tuple[Array, Array]] = []  # rows and their predictions

    def run(self) -> None:
        """Learn all rows; models that learn no row only predict."""
        pooled = self.keyed.prior_strength is not None
        if pooled:
            self.learn_pooled()
        codes = self.assigned.codes
        rest = np.ones(len(self.assigned.names) + 1, dtype=bool)  # the last one: unknown keys
        if self.packing is not None:
            self.learn_packed(rest)
        left = np.flatnonzero(rest[codes])
        for model, at in _groups(codes[left]):
            if model >= 0:
                start = self.starts.get(model, self.assigned.known[model])
                self.learn_model(model, self.keyed._learner(start), left[at])
            elif self.predicting and not pooled:  # otherwise predicted by learn_pooled
                X = _chosen(self.rows.X, left[at])
                self.found.append((left[at], self.keyed._predict_unknown(X, len(at))))

    def learn_model(self, model: int, learner: Any, rows: Array) -> None:
        """Learn some rows of a model, or predict them if it learns none."""
        part = self.rows.part(rows)
        with naming(f"{self.where}: the model of the key {self.assigned.names[model]!r}", rows):
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
                with naming(f"{self.where}: the pooled model", np.arange(at, row)):
                    predictions.append(pooled.test_then_train(**self.rows.part(slice(at, row))))
                at = row
            if model >= 0 and row < self.n and getattr(pooled, "rows_seen_", 0) > 0:
                self.starts[model] = copy.copy(pooled)
                fade_to(self.starts[model], keyed.prior_strength)
        keyed.pooled_ = pooled
        unknown = np.flatnonzero(assigned.codes < 0)
        if len(unknown) and self.predicting:
            self.found.append((unknown, np.concatenate(predictions)[unknown]))

    def learn_packed(self, rest: Array) -> None:
        """Learn the models that are packed; others remain marked in ``rest``."""
        packing, assigned, rows, slots = self.packing, self.assigned, self.rows, self.slots
        off = None if rows.weights is None else rows.weights == 0.0
        use = assigned.first < self.n
        use[list(self.starts)] = False
        if off is not None and self.predicting:
            use[assigned.codes[off & (assigned.codes >= 0)]] = False
        X = np.ascontiguousarray(rows.X, dtype=np.float64)
        Y: Any = np.ascontiguousarray(
            np.reshape(np.asarray(rows.y), (self.n, -1)), dtype=np.float64
        )
        large = assigned.codes[packing.too_large(X, Y, rows.weights)]
        use[large[large >= 0]] = False  # the learner raises the error, with the name of the key
        known, new = np.flatnonzero(use & (slots >= 0)), np.flatnonzero(use & (slots == -1))
        members = np.concatenate((known, new))
        values = np.concatenate((self.keyed.states_.read(slots[known]), packing.start(len(new))))
        index = np.full(len(rest), -1, dtype=np.int32)
        index[members] = np.arange(len(members))
        codes = index[assigned.codes]
        rest[members] = False
        if rows.time is not None:
            packing.template._check_times(rows.time, self.n)  # raises an error
        if off is not None:
            codes[off] = -1
        with naming(self.where):
            errors = packing.learn(values, codes, X, Y, rows.weights)
        at = np.flatnonzero(codes >= 0)
        if self.predicting:
            made = Y - errors if len(at) == self.n else Y[at] - errors[at]
            self.found.append((at, self.keyed._shaped(made)))
        self.packed, self.values = members, values

    def store(self) -> None:
        """Replace the former models; new keys are in the order of their first learned rows."""
        assigned = self.assigned
        learners, states = _packed(self.packing, self.learners)
        values = np.concatenate((self.values, states)) if len(states) else self.values
        models = np.append(self.packed, [i for i in learners if learners[i] is None]).astype(int)
        others = [i for i in learners if learners[i] is not None]
        if assigned.ended:
            stay = ~np.isin(models, list(assigned.ended))
            models, values = models[stay], values[stay]
            others = [i for i in others if i not in assigned.ended]
        old = self.slots[models] >= 0
        new = np.append(models[~old], others).astype(int)
        new = new[np.argsort(assigned.first[new], kind="stable")]
        place = np.full(len(assigned.names), -1)  # the row of `values` of each model
        place[models] = np.arange(len(models))
        rows = np.append(np.flatnonzero(old), place[new[place[new] >= 0]])
        changed = {assigned.names[i]: learners.get(i) for i in new.tolist()}
        self.keyed.states_.update(assigned.removed, changed, self.slots[models[old]], values[rows])


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
        evict(max_keys)
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


def _packed(packing: PackedRows | None, learners: dict[Any, Any]) -> tuple[dict[Any, Any], Floats]:
    """The learners, None in place of those that are packed; and the packed states."""
    if packing is None:
        return learners, np.empty((0, 0))
    states = {key: packing.pack(learner) for key, learner in learners.items()}
    found = {key: learners[key] if state is None else None for key, state in states.items()}
    return found, np.array([state for state in states.values() if state is not None])


def _evict(
    last: OrderedDict[Key, int], seen: int, max_keys: int | None, max_age: int | None
) -> Iterator[tuple[Key, int]]:
    """Yield the least recent keys beyond the limits with their last rows, then remove them."""
    while last:
        key, row = next(iter(last.items()))
        old = max_age is not None and seen - row >= max_age
        if not old and (max_keys is None or len(last) <= max_keys):
            return
        yield key, row
        del last[key]


def _slots(entries: Sequence[Any]) -> Array:
    """The slots of entries; −1 for unknown keys, −2 for learners that are not packed."""
    slots = [-1 if e is None else e if type(e) is int else -2 for e in entries]
    return np.array(slots, dtype=np.intp)


def _each(function: Callable[[Any], Any], made: Any) -> Any:
    """Apply a function to predictions, or to each part of a tuple of them."""
    return tuple(map(function, made)) if isinstance(made, tuple) else function(made)


def _groups(codes: Array) -> Iterator[tuple[int, Array]]:
    """Each code with its rows, in order."""
    order = np.argsort(codes, kind="stable")
    for rows in np.split(order, np.flatnonzero(np.diff(codes[order])) + 1) if len(codes) else ():
        yield int(codes[rows[0]]), rows


def _one_row(x: Any) -> Any:
    """A row as a matrix, or a list of one dict."""
    return x[None] if isinstance(x, np.ndarray) else [named_row(x)]


def _last_learner(model: Any, fitted: str = "") -> Any:
    """The learner in a Pipeline or Conformal, fitted if ``fitted`` is "_"; or the model itself."""
    model = getattr(model, f"model{fitted}", model)
    return getattr(model, f"learner{fitted}", model)


def _chosen(values: Any, rows: Array | slice) -> Any:
    """Some elements of an array, Table or list."""
    if not isinstance(values, (list, tuple)):
        return values[rows]
    return values[rows] if isinstance(rows, slice) else [values[i] for i in rows.tolist()]


def _times(time: Any, n: int) -> Any:
    """The times of n rows, as an array or a list; the models validate the times."""
    if time is None:
        return None
    time = series_array(time)
    if not hasattr(time, "dtype") and not isinstance(time, (list, tuple)):
        time = np.asarray(time)
    given = [time] if np.ndim(time) == 0 else time
    if len(given) != n:
        raise ShapeError(
            f"`time` must have shape ({n},), one time for each row, got "
            f"{np.shape(time)}. Check that X and time come from the same rows."
        )
    return given


def _ordered(found: Sequence[tuple[Array, Any]]) -> Any:
    """Predictions in the order of the rows, from those of some rows each; tuples by element."""
    if len(found) < 2:
        return found[0][1] if found else np.empty(0)
    rows, parts = zip(*found, strict=True)
    if isinstance(parts[0], tuple):
        columns = zip(*parts, strict=True)
        return tuple(_ordered(list(zip(rows, made, strict=True))) for made in columns)
    values = np.concatenate(parts)
    ordered = np.empty_like(values)
    ordered[np.concatenate(rows)] = values
    return ordered
