"""Base classes of estimators: what ``fit``, ``partial_fit``, ``predict`` and ``merge`` do.

:class:`Learner` checks and converts arrays, dicts and frames, begins with the first block, restores
the learner after an error, and calls the hooks of the algorithm. :class:`Regressor` has real
targets, one or several a row; :class:`Clusterer` has none, and predicts the number of a cluster.

``a.merge(b)`` leaves ``a`` as if it had also learned the rows of ``b``, after its own; ``b`` is not
changed. ``merging`` says how far that is possible:

=============== ==================================================================================
``exact``       equal to learning both streams in one pass, to rounding, in any tree of merges
``approximate`` equal as far as the bounded memory of ``b`` still represents its rows
``refused``     ``MergeError``: a learner that keeps only weights cannot weigh them
=============== ==================================================================================
"""

import copy
import math
from abc import ABC, abstractmethod
from typing import Any, ClassVar, Literal, NamedTuple, Self

import numpy as np
from sklearn.base import BaseEstimator, ClusterMixin, RegressorMixin

from onepass import linalg, validation
from onepass.errors import MergeError, NotFittedError, ParameterError, ShapeError
from onepass.serialization.state import learned, nbytes
from onepass.types import Array, ArrayLike, Floats, RowLike, TimeLike
from onepass.validation.arrays import (
    ColumnPositions,
    check_feature_limit,
    check_same_parameters,
    check_values,
    column_positions,
    warn_of_large_state,
)
from onepass.validation.table import TableLike

__all__ = ["Clusterer", "Layout", "Learner", "Regressor"]


_KINDS = Literal["exact", "approximate", "refused"]


class Layout(NamedTuple):
    """Where what another learner knows belongs in this one."""

    features: Array
    """The place of each of the other's features, (d′,)."""
    d: int
    """The features of both together."""
    outputs: Array
    """The place of each of the other's outputs, (c′,)."""
    concurrent: bool
    """Whether the other's rows came beside this one's, and not after them."""


class Learner(BaseEstimator, ABC):  # type: ignore[misc]
    """The verbs that regressors and classifiers share.

    Hyperparameters that say where learning begins (a ridge, a memory, initial weights) are read
    when it begins: set later, they wait for the next ``fit``. The others act from the next row.
    """

    _merge_parameters: ClassVar[tuple[str, ...]] = ()
    """The parameters that must be the same in two learners that merge."""
    _square: ClassVar[bool] = False  # whether its state is quadratic in its features

    n_features_in_: int
    feature_names_in_: Array
    rows_seen_: int

    # -- hooks -----------------------------------------------------------------------------

    @abstractmethod
    def _start(self, d: int, c: int) -> None:
        """Set what is learned to its beginning; refuse hyperparameters out of range."""

    @abstractmethod
    def _learn(self, X: Floats, Y: Floats, s: Floats | None, known: Array | None) -> Floats:
        """Learn rows one after the other; return what was said of each before, (n, c)."""

    @abstractmethod
    def _scores(self, X: Floats) -> Floats:
        """What is said of the rows now, (n, c)."""

    @abstractmethod
    def _initial_prediction(self, row: Floats) -> Any:
        """What is said of a row before anything was learned."""

    @abstractmethod
    def _admit(
        self, y: ArrayLike | None, n: int, s: Floats | None, where: str
    ) -> tuple[Floats, Array | None]:
        """Check the answers; begin if this is the first block; return Y (n, c) and ``known``."""

    @abstractmethod
    def _answers(self, scores: Floats, known: Array | None) -> Array:
        """Scores (n, c) as the answers that a user sees."""

    @abstractmethod
    def _widen(self, d: int) -> None:
        """Take new features, zero in every row so far; there are d then."""

    @abstractmethod
    def _join_outputs(self, other: Self, where: str) -> Array:
        """Know the other's outputs too, beginning if need be; return their places, (c′,)."""

    def _merge(self, other: Self, layout: Layout) -> None:
        """Learn what the other's rows said; the outputs are known already, the features not."""
        del other, layout
        raise MergeError(
            f"{type(self).__name__}.merge: a learner must know how to learn what another's rows "
            "said, got one without that. Let one learner see all rows with partial_fit, or use RLS "
            "or ORFit."
        )

    @property
    def uses_time(self) -> bool:
        """Whether the verbs that learn need the time of each row."""
        return False

    @property
    def merging(self) -> _KINDS:
        """What ``merge`` promises with these parameters: exact, approximate or refused."""
        return "refused"

    def _unmergeable(self) -> str:
        """Why it cannot be merged as it is, and what to do; empty where it can.

        The words follow "a learner must keep what its rows said, ".
        """
        return (
            "got one that keeps only its weights, not how sure it is of them. Let one learner see "
            "all rows with partial_fit, or use RLS or ORFit."
        )

    def _few_learned(self, X: TableLike, y: ArrayLike | None, where: str) -> Array | None:
        """What would have been said of rows that are learned here; None where none was."""
        del X, y, where
        return None

    def _few_said(self, X: TableLike) -> Array | None:
        """The answers for a few plain rows, where there is a short way to them."""
        del X
        return None

    def frozen_copy(self) -> Any:
        """A copy that says what this learner says now, and goes on saying it.

        It costs little, shares what was learned, and is for answers alone: it is not to learn.
        """
        return copy.copy(self)

    # -- verbs over many rows ----------------------------------------------------------------

    def fit(
        self,
        X: TableLike,
        y: ArrayLike | None,
        sample_weight: ArrayLike | None = None,
        *,
        time: TimeLike | None = None,
    ) -> Self:
        """Forget all, then learn the rows one after the other.

        Parameters
        ----------
        X : array-like of shape (n, d)
            At least one row.
        y : array-like of shape (n,) or (n, c)
            One answer a row.
        sample_weight : array-like of shape (n,) or float, optional
            A weight >= 0 for each row.
        time : array-like of shape (n,), optional
            When each row happened, never going back: numbers, or dates. For learners that
            forget by time (``uses_time``), which need it; others refuse it.

        Returns
        -------
        self
        """
        with self._whole():
            for name in learned(self):
                delattr(self, name)
            self._learn_block(X, y, sample_weight, "fit", time)
        return self

    def partial_fit(
        self,
        X: TableLike,
        y: ArrayLike | None,
        sample_weight: ArrayLike | None = None,
        *,
        time: TimeLike | None = None,
    ) -> Self:
        """Learn the rows one after the other, on top of all learned so far.

        Cutting a stream into blocks changes nothing but the speed.

        Parameters
        ----------
        X : array-like of shape (n, d)
            n may be zero: then nothing is learned.
        y : array-like of shape (n,) or (n, c)
            One answer a row.
        sample_weight : array-like of shape (n,) or float, optional
            A weight >= 0 for each row; rows of weight 0 are not learned.
        time : array-like of shape (n,), optional
            As in ``fit``.

        Returns
        -------
        self
        """
        few = sample_weight is None and time is None
        if few and self._few_learned(X, y, "partial_fit") is not None:
            return self
        with self._whole():
            self._learn_block(X, y, sample_weight, "partial_fit", time)
        return self

    def test_then_train(
        self,
        X: TableLike,
        y: ArrayLike | None,
        sample_weight: ArrayLike | None = None,
        *,
        time: TimeLike | None = None,
    ) -> Array:
        """Learn the rows; return what would have been said of each just before learning it.

        Equal to ``predict_one`` followed by ``learn_one`` for each row, at the speed of blocks.

        Parameters
        ----------
        X, y, sample_weight, time
            As in ``partial_fit``. Rows of weight 0 are answered and not learned.

        Returns
        -------
        said : ndarray of the shape of y
        """
        few = sample_weight is None and time is None
        if few and (said := self._few_learned(X, y, "test_then_train")) is not None:
            return said
        with self._whole():
            return self._learn_block(X, y, sample_weight, "test_then_train", time)

    def predict(self, X: TableLike) -> Array:
        """Answers for the rows of X, shape (n,) or (n, c).

        Raises
        ------
        NotFittedError
            Before anything was learned.
        """
        said = self._few_said(X)
        if said is not None:
            return said
        return self._answers(self._scores(self._matrix(X, "predict")), None)

    # -- verbs over one row --------------------------------------------------------------------

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
        with self._whole():
            where = f"{type(self).__name__}.learn_one"
            row = self._row(x, where)
            plain = isinstance(sample_weight, (int, float)) and sample_weight == 1
            s = None if plain else validation.weights([sample_weight], 1, where)
            if not hasattr(self, "n_features_in_"):
                names = [str(name) for name in x] if isinstance(x, dict) else None
                self._set_features(row.shape[0], names)
            when = self._when(time, 1, where)
            Y, known = self._admit_one(y, s, where)
            if s is None or s[0] > 0:
                self._learn_at(row[None, :], Y, s, known, when)
        return self

    def predict_one(self, x: RowLike) -> Any:
        """The answer for one row; before anything was learned, that of the initial weights."""
        row = self._row(x, f"{type(self).__name__}.predict_one")
        if not self._begun:
            return self._initial_prediction(row)
        return self._answers(self._scores(row[None, :]), None)[0]

    # -- growing and merging -------------------------------------------------------------------

    def grow(self, d: int) -> Self:
        """Take new features, at the end, as if they had been zero in every row so far.

        Their prior begins anew: with forgetting it has not faded as that of the others has.

        Parameters
        ----------
        d : int
            The number of features from now on, at least as many as before.

        Returns
        -------
        self

        Raises
        ------
        ParameterError
            If d is smaller than now.
        ShapeError
            If a durable learner may not have so many.
        """
        where = f"{type(self).__name__}.grow"
        d = validation.whole(d, "d", where, low=1)
        now = getattr(self, "n_features_in_", d)
        if d < now:
            raise ParameterError(
                f"{where}: `d` must be >= {now}, the features known now, got {d}. "
                "Features cannot be taken away."
            )
        if d > now:
            check_feature_limit(d, type(self).__name__)
            if self._square:
                warn_of_large_state(d, type(self).__name__, now if self._begun else 0)
            with self._whole():
                if self._begun:
                    self._widen(d)
                self.n_features_in_ = d
                if hasattr(self, "feature_names_in_"):
                    new = [f"x{j}" for j in range(now, d)]
                    self.feature_names_in_ = np.append(self.feature_names_in_, new).astype(object)
        return self

    def merge(self, other: Self, *, concurrent: bool = False) -> Self:
        """Learn what another learner has learned, as if this one had seen its rows too.

        The other is not changed. Features with names are matched by them; those that only one of
        the two knows were zero in the other's rows. The parameters of this learner stay.

        Parameters
        ----------
        other : learner of the same class
            In d features of which some or all are the same, and as many outputs, or any classes.
        concurrent : bool, default=False
            Without forgetting it makes no difference. With it, False: the other's rows came after
            this one's, which age by them. True: the two streams ran side by side, so that none of
            them ages by the other.

        Returns
        -------
        self

        Raises
        ------
        MergeError
            If the two are not alike, or if what they keep does not say what their rows said.
            Both are left as they were.
        """
        where = f"{type(self).__name__}.merge"
        self.check_mergeable(other, where)
        if not other._begun:
            return self
        if other is self:
            other = copy.copy(other)  # what was learned is never written into
        with self._whole():
            self.join(other, column_positions(self, other, where), concurrent=concurrent)
        return self

    def check_mergeable(self, other: Self, where: str) -> None:
        """Refuse a learner of another kind or setting, and one that cannot be merged.

        Parameters
        ----------
        other : object
        where : str
            The public call, for messages.

        Raises
        ------
        MergeError
            Saying why.
        """
        check_same_parameters(self, other, self._merge_parameters, where)
        if reason := self._unmergeable() or other._unmergeable():
            raise MergeError(f"{where}: a learner must keep what its rows said, {reason}")

    def join(self, other: Self, at: ColumnPositions, *, concurrent: bool) -> None:
        """Learn what another that may be merged has learned, its features at these places.

        A pipeline calls it, whose features know the places; ``merge`` is for everybody else.

        Parameters
        ----------
        other : learner of the same class that has begun
        at : Places
        concurrent : bool
            As in ``merge``.
        """
        if not hasattr(self, "n_features_in_"):
            self.n_features_in_ = at.d
        outputs = self._join_outputs(other, f"{type(self).__name__}.merge")
        self.rows_seen_ += other.rows_seen_
        if other.rows_seen_:
            self._merge(other, Layout(at.at, at.d, outputs, concurrent))
        elif at.d > self.n_features_in_:
            self._widen(at.d)
        self.n_features_in_ = at.d
        if at.names is not None:
            self.feature_names_in_ = np.array(at.names, dtype=object)

    # -- what stands behind them -----------------------------------------------------------------

    @property
    def nbytes(self) -> int:
        """Bytes of all that was learned."""
        return nbytes(self)

    def __sklearn_is_fitted__(self) -> bool:
        return self._begun

    @property
    def _begun(self) -> bool:
        """Whether a first row has been seen, and so the sizes are known."""
        return hasattr(self, "rows_seen_")

    def _when(self, time: TimeLike | None, n: int, where: str) -> Any:
        """The times of n rows, (n,), checked; None where none are needed."""
        del n
        if time is None:
            return None
        raise ParameterError(
            f"{where}: `time` must be left out unless the learner forgets by time, got it with one "
            "that does not. Leave it out, or set a rule such as "
            "RLSRegressor(forgetting=op.forgetting.Bounded(half_life='1h'))."
        )

    def _learn_at(
        self, X: Floats, Y: Floats, s: Floats | None, known: Array | None, time: Array | None
    ) -> Floats:
        """Learn rows that happened at these times."""
        del time
        return self._learn(X, Y, s, known)

    def _learn_block(
        self,
        X: TableLike,
        y: ArrayLike | None,
        sample_weight: ArrayLike | None,
        verb: str,
        time: TimeLike | None = None,
    ) -> Array:
        """Learn rows; return what was said of each before."""
        where = f"{type(self).__name__}.{verb}"
        array, names = validation.matrix(X, where, **self._shape())
        n = array.shape[0]
        if n == 0 and verb == "fit":
            raise ShapeError(
                f"{where}: `X` must have rows, got 0 sample(s) (shape={array.shape}) while a "
                "minimum of 1 is required. partial_fit takes empty blocks."
            )
        s = validation.weights(sample_weight, n, where)
        if verb == "fit" and s is not None and not s.any():
            raise ParameterError(
                f"{where}: `sample_weight` must hold a weight > 0, got weights that are all zero. "
                "Weigh at least one row; partial_fit takes blocks without any."
            )
        self._set_features(array.shape[1], names)
        when = self._when(time, n, where)
        Y, known = self._admit(y, n, s, where)
        if n == 0:
            return self._answers(Y, known)
        with linalg.one_thread(array.shape[1], n):
            if s is None or (s > 0).all():
                scores = self._learn_at(array, Y, s, known, when)
                return self._answers(scores, known) if verb == "test_then_train" else scores
            if verb == "test_then_train":
                return self._answers(self._in_runs(array, Y, s, known, when), known)
            on = s > 0
            if on.any():
                seen, when = (None if a is None else a[on] for a in (known, when))
                self._learn_at(array[on], Y[on], s[on], seen, when)
            return np.empty(0)

    def _in_runs(
        self, X: Floats, Y: Floats, s: Floats, known: Array | None, time: Array | None
    ) -> Floats:
        """Rows of weight 0 are answered, not learned: cut the block where they begin and end."""
        said = np.empty(Y.shape)
        cuts = np.flatnonzero(np.diff(s > 0)) + 1
        for rows in np.split(np.arange(len(s)), cuts):
            if s[rows[0]] > 0:
                seen, when = (None if a is None else a[rows] for a in (known, time))
                said[rows] = self._learn_at(X[rows], Y[rows], s[rows], seen, when)
            else:
                said[rows] = self._scores(X[rows])
        return said

    def _set_features(self, d: int, names: list[str] | None) -> None:
        """Note the features of the first block."""
        if not hasattr(self, "n_features_in_"):
            check_feature_limit(d, type(self).__name__)
            if self._square:
                warn_of_large_state(d, type(self).__name__)
            self.n_features_in_ = d
            if names is not None:
                self.feature_names_in_ = np.array(names, dtype=object)

    def _admit_one(self, y: object, s: Floats | None, where: str) -> tuple[Floats, Array | None]:
        return self._admit(np.asarray(y)[None], 1, s, where)

    def _shape(self) -> dict[str, Any]:
        """The columns' number and names, as far as they are known."""
        names = getattr(self, "feature_names_in_", None)
        return {
            "d": getattr(self, "n_features_in_", None),
            "names": None if names is None else names.tolist(),
        }

    def _row(self, x: RowLike, where: str) -> Floats:
        return validation.row_vector(x, where, **self._shape())

    def _matrix(self, X: TableLike, verb: str) -> Floats:
        """The rows that a learned learner is asked about."""
        if self._begun and validation.is_matrix(X, self.n_features_in_):
            return X
        where = f"{type(self).__name__}.{verb}"
        if not self._begun:
            raise NotFittedError(
                f"{where}: this {type(self).__name__} is not fitted yet: it has learned no row. "
                "Call fit, partial_fit or learn_one first; predict_one and test_then_train "
                "answer from the start."
            )
        return validation.matrix(X, where, **self._shape())[0]

    def _whole(self) -> "_Whole":
        """All or nothing: whatever is raised within, the learner is as it was before."""
        return _Whole(self)


class _Whole:
    """What puts a learner back; each row goes through it, so it is no generator."""

    __slots__ = ("_before", "_learner")

    def __init__(self, learner: Learner) -> None:
        self._learner = learner
        self._before = dict(learner.__dict__)

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, *raised: object) -> None:
        if kind is not None:
            self._learner.__dict__ = self._before


_EXACT = 1 << 53  # whole numbers up to here are doubles


class Regressor(RegressorMixin, Learner):  # type: ignore[misc]
    """The verbs of regressors: answers are real numbers, one or several a row."""

    n_outputs_: int
    target_ndim_: int
    rows_seen_: int

    def _admit(
        self, y: ArrayLike | None, n: int, s: Floats | None, where: str
    ) -> tuple[Floats, None]:
        array = validation.targets(y, n, where)
        if not self._begun:
            if n == 0:
                return np.empty((0, 1)), None
            self.target_ndim_ = array.ndim
            self.n_outputs_ = 1 if array.ndim == 1 else array.shape[1]
            check_feature_limit(self.n_outputs_, type(self).__name__, "outputs")
            self.rows_seen_ = 0
            self._start(self.n_features_in_, self.n_outputs_)
        Y = array[:, None] if array.ndim == 1 else array
        if Y.shape[1] != self.n_outputs_ or (n and array.ndim != self.target_ndim_):
            shape = "(n,)" if self.target_ndim_ == 1 else f"(n, {self.n_outputs_})"
            raise ShapeError(
                f"{where}: `y` must have shape {shape}, as in the first block, got {array.shape}. "
                "Start a new learner for another set of answers."
            )
        self.rows_seen_ += n if s is None else int(np.count_nonzero(s))
        return Y, None

    def _join_outputs(self, other: Self, where: str) -> Array:
        if not self._begun:
            self.target_ndim_, self.n_outputs_ = other.target_ndim_, other.n_outputs_
            self.rows_seen_ = 0
            self._start(self.n_features_in_, self.n_outputs_)
        mine, came = (
            "(n,)" if one.target_ndim_ == 1 else f"(n, {one.n_outputs_})" for one in (self, other)
        )
        if mine != came:
            raise MergeError(
                f"{where}: both learners must have answers of shape {mine}, as the first has, got "
                f"{came}. Merge learners of the same answers."
            )
        return np.arange(self.n_outputs_)

    def _admit_one(self, y: object, s: Floats | None, where: str) -> tuple[Floats, None]:
        single = s is None and getattr(self, "target_ndim_", 0) == 1
        plain = y if isinstance(y, float) or (type(y) is int and abs(y) <= _EXACT) else math.nan
        if single and math.isfinite(plain):  # the common case, quickly
            self.rows_seen_ += 1
            return np.array([[plain]], dtype=np.float64), None
        return self._admit(np.asarray(y)[None], 1, s, where)

    def _matrix(self, X: TableLike, verb: str) -> Floats:
        array = super()._matrix(X, verb)
        if len(array) > 1:
            check_values(len(array), self.n_outputs_, type(self).__name__, "one for each output")
        return array

    def _answers(self, scores: Floats, known: Array | None) -> Array:
        del known
        return scores[:, 0] if getattr(self, "target_ndim_", 1) == 1 else scores

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        tags.target_tags.single_output = True
        return tags


class Clusterer(ClusterMixin, Learner):  # type: ignore[misc]
    """The verbs of clusterers. A cluster keeps its number, however many come after it.

    ``y`` stands where scikit-learn's own clusterers have it, and means nothing there either.
    """

    rows_seen_: int

    def fit(  # type: ignore[override]
        self, X: TableLike, y: ArrayLike | None = None, sample_weight: ArrayLike | None = None
    ) -> Self:
        """Forget all, then learn the rows one after the other.

        Parameters
        ----------
        X : array-like of shape (n, d)
            At least one row.
        y : object
            Not read.
        sample_weight : array-like of shape (n,) or float, optional
            A weight >= 0 for each row.

        Returns
        -------
        self
        """
        return super().fit(X, y, sample_weight)

    def partial_fit(  # type: ignore[override]
        self, X: TableLike, y: ArrayLike | None = None, sample_weight: ArrayLike | None = None
    ) -> Self:
        """Learn the rows one after the other, on top of all learned so far.

        Parameters
        ----------
        X : array-like of shape (n, d)
            n may be zero: then nothing is learned.
        y : object
            Not read.
        sample_weight : array-like of shape (n,) or float, optional
            A weight >= 0 for each row; rows of weight 0 are not learned.

        Returns
        -------
        self
        """
        return super().partial_fit(X, y, sample_weight)

    def test_then_train(  # type: ignore[override]
        self, X: TableLike, y: ArrayLike | None = None, sample_weight: ArrayLike | None = None
    ) -> Array:
        """Learn the rows; return the cluster of each as it was said just before learning it.

        Parameters
        ----------
        X, y, sample_weight
            As in ``partial_fit``.

        Returns
        -------
        said : ndarray of int of shape (n,)
            −1 where there was no cluster yet.
        """
        return super().test_then_train(X, y, sample_weight)

    def learn_one(  # type: ignore[override]
        self,
        x: RowLike,
        y: ArrayLike | None = None,
        sample_weight: float = 1.0,
    ) -> Self:
        """Learn one row: an array of shape (d,), or a dict of named features.

        Parameters
        ----------
        x : array of shape (d,), or dict
        y : object
            Not read.
        sample_weight : float, default=1.0

        Returns
        -------
        self
        """
        return super().learn_one(x, y, sample_weight)

    def fit_predict(
        self, X: TableLike, y: ArrayLike | None = None, sample_weight: ArrayLike | None = None
    ) -> Array:
        """Forget all, learn the rows, and then say the cluster of each.

        Parameters
        ----------
        X, y, sample_weight
            As in ``fit``.
        """
        return self.fit(X, y, sample_weight).predict(X)

    def _admit(
        self, y: ArrayLike | None, n: int, s: Floats | None, where: str
    ) -> tuple[Floats, None]:
        del y, where
        if not self._begun and n:
            self.rows_seen_ = 0
            self._start(self.n_features_in_, 1)
        if n:
            self.rows_seen_ += n if s is None else int(np.count_nonzero(s))
        return np.zeros((n, 1)), None

    def _join_outputs(self, other: Self, where: str) -> Array:
        del other, where
        if not self._begun:
            self.rows_seen_ = 0
            self._start(self.n_features_in_, 1)
        return np.zeros(1, dtype=np.intp)

    def _answers(self, scores: Floats, known: Array | None) -> Array:
        del known
        said: Array = scores[:, 0].astype(np.intp)
        return said

    def _initial_prediction(self, row: Floats) -> int:
        del row
        return -1
