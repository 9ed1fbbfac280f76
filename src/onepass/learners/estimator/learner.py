"""Base classes of estimators: ``fit``, ``partial_fit``, ``predict``, ``merge`` and others.

:class:`Learner` validates and converts arrays, dicts and frames, initialises the learner with the
first block, restores it after an error, and calls the hooks of the algorithm. :class:`Regressor`
has real targets, one or several per row; :class:`Clusterer` has none and predicts the number of a
cluster.

``a.merge(b)`` makes ``a`` equal to a learner of the rows of ``a`` and then those of ``b``; ``b`` is
not changed. The estimator tag ``merging`` (:mod:`onepass.learners.estimator.tags`) is one of:

=============== ==================================================================================
``exact``       the result equals learning both streams in one pass, to rounding, in any merge tree
``approximate`` the result is as accurate as the bounded memory of ``b`` represents its rows
``refused``     ``MergeError``: a learner that stores only weights cannot be merged
=============== ==================================================================================
"""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Literal, NamedTuple, Self

import numpy as np

from onepass import linalg, validation
from onepass.declared import FEATURE, OUTPUT, Places, are_sound, check_parameters, place_states
from onepass.errors import MergeError, NotFittedError, ParameterError, ShapeError, calling, public
from onepass.estimators import BaseEstimator, ClusterMixin, RegressorMixin
from onepass.learners.estimator.tags import with_onepass_tags
from onepass.serialization.state import UnfittedAttribute, forget, nbytes
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

_KINDS = Literal["exact", "approximate", "refused"]


class Layout(NamedTuple):
    """Positions of another learner's features and outputs in the merged learner."""

    features: Array
    """The index of each feature of the other learner, (d′,)."""
    d: int
    """The number of merged features."""
    outputs: Array
    """The index of each output of the other learner, (c′,)."""
    concurrent: bool
    """Whether the two streams ran side by side, instead of one after the other."""


class Learner(BaseEstimator, ABC):
    """Base class of all learners.

    Parameters that determine the initial state (a ridge, a memory, initial weights) or what the
    state means (a kernel, a potential) are read when learning starts: if they are set later, they
    apply from the next ``fit``. All other parameters apply from the next row.
    """

    _merge_parameters: ClassVar[tuple[str, ...]] = ()
    """The parameters that must be equal in two learners that are merged."""
    _single: Any = None
    """What learns and predicts single rows of plain numbers in the present state."""
    _square: ClassVar[bool] = False  # whether the state is quadratic in the number of features
    _accepts_missing: ClassVar[bool] = False  # whether features may be missing, NaN
    _is_exact: ClassVar[bool] = False  # whether ``_exact_scores`` is defined

    n_features_in_: int
    feature_names_in_: Array
    rows_seen_: Any = UnfittedAttribute()

    # -- hooks -----------------------------------------------------------------------------

    @abstractmethod
    def _start(self, d: int, c: int) -> None:
        """Initialise the learned attributes; ranges of parameters were checked before."""

    @abstractmethod
    def _learn(self, X: Floats, Y: Floats, s: Floats | None, class_mask: Array | None) -> Floats:
        """Learn rows one after the other; return the prequential scores, (n, c)."""

    @abstractmethod
    def _scores(self, X: Floats) -> Floats:
        """Current scores of the rows, (n, c)."""

    @abstractmethod
    def _initial_prediction(self, row: Floats) -> Any:
        """Prediction for a row before any row was learned."""

    @abstractmethod
    def _receive_targets(
        self, y: ArrayLike | None, n: int, s: Floats | None
    ) -> tuple[Floats, Array | None]:
        """Validate targets and count rows; start with the first block.

        Returns Y (n, c) and ``class_mask``.
        """

    @abstractmethod
    def _to_predictions(self, scores: Floats, class_mask: Array | None) -> Array:
        """Convert scores (n, c) to predictions."""

    def _widen(self, d: int) -> None:
        """Extend to d features; the new features were zero in every row so far."""
        place_states(self, {FEATURE: Places(np.arange(self.n_features_in_), d)})

    def _add_outputs(self, at: Array, c: int) -> None:
        """Extend to c outputs; those in columns ``at`` are new."""
        place_states(self, {OUTPUT: Places(np.setdiff1d(np.arange(c), at), c)})

    def _start_at(self, origins: Floats) -> None:
        """Set features, which were 0 in all rows so far, to ``origins``, (d,); 0 for others."""
        if self._started and self.rows_seen_ and self._moves and origins.any():
            self._move(origins)

    @property
    def _moves(self) -> bool:
        """Whether ``_move`` is exact; else features were 0 in the rows before their first value."""
        return False

    def _move(self, origins: Floats) -> None:
        """Add ``origins``, (d,), to the features of all rows so far, in which these were 0."""
        raise NotImplementedError

    @abstractmethod
    def _join_outputs(self, other: Self) -> Array:
        """Add another learner's outputs, starting if necessary; return their indices, (c′,)."""

    def _merge(self, other: Self, layout: Layout) -> None:
        """Learn another learner's state; its outputs were added before, its features were not."""
        del other, layout
        raise MergeError(
            "the learner must support merging, got a learner that does not. Learn all "
            "rows with one learner and partial_fit, or use RLS or ORFit."
        )

    def _exact_scores(self, X: Floats) -> Floats:
        """Scores of rows, (n, c), by least squares of all rows so far, without forgetting."""
        raise NotImplementedError

    def _familiarity(self, X: Floats) -> Floats | None:
        """How well the learner remembers rows like these, in [0, 1], (n, c); None if unknown.

        It is 1 for learners that do not forget.
        """
        return np.ones((len(X), 1))

    @property
    def _remembered_rows(self) -> Floats | float:
        """The weight of the rows of each class that are not forgotten, (c,); 0 if unknown."""
        return 1e100

    @property
    def _mean_weight(self) -> float:
        """The mean weight of the rows, of a learner that ``_is_exact``."""
        return 1.0

    @property
    def _uses_time(self) -> bool:
        """Whether ``fit``, ``partial_fit`` and the other learning methods require ``time``."""
        return False

    @property
    def _learns_gaps(self) -> bool:
        """Whether rows whose target is missing, NaN, are learned as such."""
        return False

    @property
    def _merging(self) -> _KINDS:
        """Result of ``merge`` with these parameters: ``exact``, ``approximate`` or ``refused``."""
        return "refused"

    def _unmergeable(self) -> str:
        """The reason why the learner cannot be merged, and the remedy; empty if it can be merged.

        The text follows "a learner must store the evidence of its rows, ".
        """
        return (
            "got one that stores only its weights, without their uncertainty. Learn all rows with "
            "one learner and partial_fit, or use RLS or ORFit."
        )

    def _learn_few(self, X: TableLike, y: ArrayLike | None) -> Array | None:
        """Learn a small block by a fast path and return predictions; None if there is no path."""
        predictions = self._predict_only_row(X)
        learned = predictions is not None and self._learn_only_row(X, y, None, None)
        return predictions if learned else None

    def frozen_copy(self) -> Any:
        """Return a copy for prediction that later learning of this learner does not change.

        The copy is cheap and shares the learned arrays. It must not be used for learning.
        """
        return copy.copy(self)

    # -- blocks of rows ----------------------------------------------------------------------

    @public
    def fit(
        self,
        X: TableLike,
        y: ArrayLike | None,
        sample_weight: ArrayLike | None = None,
        *,
        time: TimeLike | None = None,
    ) -> Self:
        """Reset the learner, then learn the rows one after the other.

        Parameters
        ----------
        X : array-like of shape (n, d)
            At least one row.
        y : array-like of shape (n,) or (n, c)
            Targets.
        sample_weight : array-like of shape (n,) or float, optional
            Weights >= 0 of the rows.
        time : array-like of shape (n,), optional
            Times of the rows, numbers or dates, in ascending order. Required by learners that
            forget by time (tag ``uses_time``) and rejected by all others.

        Returns
        -------
        self
        """
        with self._rollback_on_error():
            forget(self)
            self._learn_block(X, y, sample_weight, "fit", time)
        return self

    @public
    def partial_fit(
        self,
        X: TableLike,
        y: ArrayLike | None,
        sample_weight: ArrayLike | None = None,
        *,
        time: TimeLike | None = None,
    ) -> Self:
        """Learn the rows one after the other, continuing from the current state.

        The division of a stream into blocks affects only the speed, not the result.

        Parameters
        ----------
        X : array-like of shape (n, d)
            n may be zero; then no row is learned.
        y : array-like of shape (n,) or (n, c)
            Targets.
        sample_weight : array-like of shape (n,) or float, optional
            Weights >= 0 of the rows; rows of weight 0 are not learned.
        time : array-like of shape (n,), optional
            As in ``fit``.

        Returns
        -------
        self
        """
        if self._learn_only_row(X, y, sample_weight, time):
            return self
        few = sample_weight is None and time is None and validation.single_row(X) is None
        if few and self._learn_few(X, y) is not None:
            return self
        with self._rollback_on_error():
            self._learn_block(X, y, sample_weight, "partial_fit", time)
        return self

    @public
    def test_then_train(
        self,
        X: TableLike,
        y: ArrayLike | None,
        sample_weight: ArrayLike | None = None,
        *,
        time: TimeLike | None = None,
    ) -> Array:
        """Predict each row, then learn it; return the prequential predictions.

        Equivalent to ``predict_one`` followed by ``learn_one`` for each row, at the speed of
        blocks.

        Parameters
        ----------
        X, y, sample_weight, time
            As in ``partial_fit``. Rows of weight 0 are predicted, but not learned.

        Returns
        -------
        predictions : ndarray of the shape of y
            The prediction for each row before it was learned.
        """
        few = sample_weight is None and time is None
        if few and (predictions := self._learn_few(X, y)) is not None:
            return predictions
        with self._rollback_on_error():
            found = self._learn_block(X, y, sample_weight, "test_then_train", time)
            return self._to_predictions(*found[:2])

    @public
    def predict(self, X: TableLike) -> Array:
        """Predict targets for the rows of X, shape (n,) or (n, c).

        Raises
        ------
        NotFittedError
            If no row was learned.
        """
        predictions = self._predict_only_row(X)
        if predictions is not None:
            return predictions
        return self._to_predictions(self._scores(self._matrix(X)), None)

    # -- single rows ---------------------------------------------------------------------------

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
        if self._learn_in_place(x, y, sample_weight, time):
            return self
        with calling(f"{type(self).__name__}.learn_one"), self._rollback_on_error():
            check_parameters(self)
            row = self._row(x)
            plain = isinstance(sample_weight, (int, float)) and sample_weight == 1
            s = None if plain else validation.weights([sample_weight], 1)
            if not hasattr(self, "n_features_in_"):
                names = None
                if row is not x and isinstance(x, Mapping):
                    names = [str(name) for name in x]
                self._set_features(row.shape[0], names)
            when = self._check_times(time, 1)
            Y, class_mask = self._receive_target(y, s)
            if s is None or s[0] > 0:
                self._learn_and_calibrate(row[None, :], Y, s, class_mask, when, prequential=False)
        return self

    def _learn_in_place(
        self, x: RowLike, y: ArrayLike | None, sample_weight: float, time: TimeLike | None
    ) -> bool:
        """Learn a row in the present state; return False if it must be validated first."""
        single = self._single
        return single is not None and time is None and single.learn_one(x, y, sample_weight)

    def _learn_only_row(
        self,
        X: TableLike,
        y: ArrayLike | None,
        sample_weight: ArrayLike | None,
        time: TimeLike | None,
    ) -> bool:
        """Learn a block of one row as ``learn_one``; return False if it must be validated first."""
        x = validation.single_row(X)
        weight = 1.0 if sample_weight is None else validation.single_element(sample_weight)
        when = None if time is None else validation.single_element(time)
        if x is None or (when is None) != (time is None):
            return False
        return self._learn_in_place(x, validation.single_element(y), weight, when)

    def _predict_only_row(self, X: TableLike) -> Array | None:
        """Predict a block of one row as ``predict_one``; None if it must be validated first."""
        x, single = validation.single_row(X), self._single
        prediction = None if x is None or single is None else single.predict_one(x)
        return None if prediction is None else self._as_block(prediction)

    def _as_block(self, prediction: Any) -> Array:
        """The predictions of a block of one row."""
        return np.array([prediction])

    def _prepare_single_rows(self) -> None:
        """Let further rows be learned in place, if that is supported."""

    def predict_one(self, x: RowLike) -> Any:
        """Predict the target of one row, from the initial weights if no row was learned."""
        single = self._single
        prediction = None if single is None else single.predict_one(x)
        if prediction is not None:
            return prediction
        with calling(f"{type(self).__name__}.predict_one"):
            row = self._row(x)
            if not self._started:
                check_parameters(self)
                return self._initial_prediction(row)
            return self._to_predictions(self._scores(row[None, :]), None)[0]

    # -- growing and merging -------------------------------------------------------------------

    @public
    def grow(self, d: int) -> Self:
        """Append new features, as if they had been zero in every row so far.

        Their prior is new: with forgetting, only the priors of the earlier features have decayed.

        Parameters
        ----------
        d : int
            The new number of features, not smaller than the current one.

        Returns
        -------
        self

        Raises
        ------
        ParameterError
            If d is smaller than the current number of features.
        ShapeError
            If d exceeds the limit of a durable learner.
        """
        d = validation.whole(d, "d", low=1)
        now = getattr(self, "n_features_in_", d)
        if d < now:
            raise ParameterError(
                f"`d` must be >= {now}, the current number of features, got {d}. "
                "Features cannot be removed."
            )
        if d > now:
            check_feature_limit(d)
            if self._square:
                warn_of_large_state(d, type(self).__name__, now if self._started else 0)
            check_parameters(self)
            with self._rollback_on_error():
                if self._started:
                    self._widen(d)
                self.n_features_in_ = d
                if hasattr(self, "feature_names_in_"):
                    new = [f"x{j}" for j in range(now, d)]
                    self.feature_names_in_ = np.append(self.feature_names_in_, new).astype(object)
        return self

    @public
    def merge(self, other: Self, *, concurrent: bool = False) -> Self:
        """Merge another learner into this one, as if this one had learned its rows too.

        The other learner and the parameters of this one are not changed. Named features are
        matched by name; a feature of only one learner counts as zero in all rows of the other.

        Parameters
        ----------
        other : learner of the same class
            The features may differ. Regressors must have the same number of outputs; classifiers
            may have different classes.
        concurrent : bool, default=False
            Only relevant with forgetting. False: the rows of the other learner follow the rows of
            this learner, which decay accordingly. True: the two streams ran side by side, so that
            neither decays because of the other.

        Returns
        -------
        self

        Raises
        ------
        MergeError
            If the learners are incompatible, or if their state is not sufficient for a merge. Both
            are then unchanged.
        """
        self._check_mergeable(other)
        if not other._started:
            return self
        if other is self:
            other = copy.copy(other)  # learned arrays are never modified in place
        with self._rollback_on_error():
            self.join(other, column_positions(self, other), concurrent=concurrent)
        return self

    def _check_mergeable(self, other: Self) -> None:
        """Raise an error if another learner cannot be merged into this one.

        Parameters
        ----------
        other : object

        Raises
        ------
        MergeError
            If class or parameters differ, or if one of the two cannot be merged.
        """
        check_parameters(self)
        check_same_parameters(self, other, self._merge_parameters)
        if reason := self._unmergeable() or other._unmergeable():
            raise MergeError(f"a learner must store the evidence of its rows, {reason}")

    def join(self, other: Self, at: ColumnPositions, *, concurrent: bool) -> None:
        """Merge another learner whose features are at the given positions.

        For pipelines, whose features determine the positions; use ``merge`` otherwise.

        Parameters
        ----------
        other : learner of the same class
            A started learner that passed ``_check_mergeable``.
        at : ColumnPositions
            The positions of the other learner's features.
        concurrent : bool
            As in ``merge``.
        """
        if not hasattr(self, "n_features_in_"):
            self.n_features_in_ = at.d
        outputs = self._join_outputs(other)
        self.rows_seen_ += other.rows_seen_
        if other.rows_seen_:
            self._merge(other, Layout(at.at, at.d, outputs, concurrent))
        elif at.d > self.n_features_in_:
            self._widen(at.d)
        self.n_features_in_ = at.d
        if at.names is not None:
            self.feature_names_in_ = np.array(at.names, dtype=object)

    # -- implementation --------------------------------------------------------------------------

    @property
    def nbytes(self) -> int:
        """Size of the learned attributes in bytes."""
        return nbytes(self)

    @property
    def _sound(self) -> bool:
        """Whether the state of a loaded file has the sizes of the features and outputs."""
        own = vars(self)
        c = len(own["classes_"]) if "classes_" in own else own.get("n_outputs_", 1)
        return not self._started or are_sound(self, d=self.n_features_in_, c=c)

    def __sklearn_is_fitted__(self) -> bool:
        return self._started

    def __sklearn_tags__(self) -> Any:
        tags = with_onepass_tags(super().__sklearn_tags__(), self)
        tags.input_tags.allow_nan = self._accepts_missing
        return tags

    @property
    def _started(self) -> bool:
        """Whether the learned attributes are initialised."""
        return "rows_seen_" in self.__dict__

    def _check_times(self, time: TimeLike | None, n: int) -> Any:
        """Validate the times of n rows, (n,); None if the learner uses no times."""
        del n
        if time is None:
            return None
        raise ParameterError(
            "`time` must be left out unless the learner forgets by time, got times for "
            "a learner that does not. Leave out `time`, or set a rule such as "
            "RLSRegressor(forgetting=op.forgetting.Bounded(half_life='1h'))."
        )

    def _learn_at(
        self, X: Floats, Y: Floats, s: Floats | None, class_mask: Array | None,
        time: Array | None, *, prequential: bool,
    ) -> Floats:  # fmt: skip
        """Learn rows with these times; unless ``prequential``, scores may be missing."""
        del time, prequential
        return self._learn(X, Y, s, class_mask)

    def _calibrate(
        self, scores: Floats, Y: Floats, s: Floats | None, class_mask: Array | None
    ) -> Any:
        """Fit probabilities to the prequential scores (n, c) of rows that were just learned.

        Classifiers return the scales and offsets (m + 1, 1 + c) before and after m of the rows, and
        these.
        """

    def _learn_block(
        self,
        X: TableLike,
        y: ArrayLike | None,
        sample_weight: ArrayLike | None,
        verb: str,
        time: TimeLike | None = None,
    ) -> tuple[Floats, Array | None, Any]:
        """Validate and learn rows; return prequential scores, class mask and calibration."""
        check_parameters(self)
        array, names = validation.matrix(X, **self._shape())
        n = array.shape[0]
        if n == 0 and verb == "fit":
            raise ShapeError(
                f"`X` must have rows, got 0 sample(s) (shape={array.shape}) while a "
                "minimum of 1 is required. partial_fit accepts empty blocks."
            )
        s = validation.weights(sample_weight, n)
        if verb == "fit" and s is not None and not s.any():
            raise ParameterError(
                "`sample_weight` must contain a weight > 0, got weights that are all zero. Pass at "
                "least one positive weight, or call partial_fit, which accepts such blocks."
            )
        self._set_features(array.shape[1], names)
        when = self._check_times(time, n)
        Y, class_mask = self._receive_targets(y, n, s)
        if n == 0:
            return Y, class_mask, None
        with linalg.one_thread(array.shape[1], n):
            if s is not None and not (s > 0).all():
                if verb == "test_then_train":
                    scores = self._learn_weighted_runs(array, Y, s, class_mask, when)
                    return scores, class_mask, self._calibrate(scores, Y, s, class_mask)
                on = s > 0
                if not on.any():
                    return Y, class_mask, None
                array, Y, s = array[on], Y[on], s[on]
                class_mask, when = (None if a is None else a[on] for a in (class_mask, when))
            scores, fitted = self._learn_and_calibrate(
                array, Y, s, class_mask, when, prequential=verb == "test_then_train"
            )
            return scores, class_mask, fitted

    def _learn_and_calibrate(
        self, X: Floats, Y: Floats, s: Floats | None, class_mask: Array | None,
        time: Array | None, *, prequential: bool,
    ) -> tuple[Floats, Any]:  # fmt: skip
        """Learn rows; return their scores and calibration. After one row, others may follow."""
        scores = self._learn_at(X, Y, s, class_mask, time, prequential=prequential)
        fitted = self._calibrate(scores, Y, s, class_mask)
        if len(X) == 1:
            self._prepare_single_rows()
        return scores, fitted

    def _learn_weighted_runs(
        self, X: Floats, Y: Floats, s: Floats, class_mask: Array | None, time: Array | None
    ) -> Floats:
        """Learn runs of positive weight and predict runs of weight 0; return the scores."""
        scores = np.empty(Y.shape)
        cuts = np.flatnonzero(np.diff(s > 0)) + 1
        for rows in np.split(np.arange(len(s)), cuts):
            if s[rows[0]] > 0:
                seen, when = (None if a is None else a[rows] for a in (class_mask, time))
                part = X[rows], Y[rows], s[rows], seen, when
                scores[rows] = self._learn_at(*part, prequential=True)
            else:
                scores[rows] = self._scores(X[rows])
        return scores

    def _set_features(self, d: int, names: list[str] | None) -> None:
        """Store the number and names of the features of the first block."""
        if not hasattr(self, "n_features_in_"):
            check_feature_limit(d)
            if self._square:
                warn_of_large_state(d, type(self).__name__)
            self.n_features_in_ = d
            if names is not None:
                self.feature_names_in_ = np.array(names, dtype=object)

    def _receive_target(self, y: object, s: Floats | None) -> tuple[Floats, Array | None]:
        return self._receive_targets(np.asarray(y)[None], 1, s)

    def _shape(self) -> dict[str, Any]:
        """How features are validated: their number and names, each None if unknown."""
        names = getattr(self, "feature_names_in_", None)
        return {
            "d": getattr(self, "n_features_in_", None),
            "names": None if names is None else names.tolist(),
            "missing": self._accepts_missing,
        }

    def _row(self, x: RowLike) -> Floats:
        return validation.row_vector(x, **self._shape())

    def _matrix(self, X: TableLike) -> Floats:
        """The validated rows to predict; raise an error if no row was learned."""
        if self._started and validation.is_matrix(X, self.n_features_in_):
            return X
        if not self._started:
            raise NotFittedError(
                f"this {type(self).__name__} is not fitted yet: it has learned no row. "
                "Call fit, partial_fit or learn_one first; predict_one and "
                "test_then_train predict before any row is learned."
            )
        return validation.matrix(X, **self._shape())[0]

    def _rollback_on_error(self) -> _Rollback:
        """Context that restores the learner if an exception is raised."""
        return _Rollback(self)


class _Rollback:
    """Context that restores the learner on an exception."""

    __slots__ = ("_before", "_learner")

    def __init__(self, learner: Learner) -> None:
        self._learner = learner
        self._before = dict(learner.__dict__)

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, *raised: object) -> None:
        if kind is not None:
            self._learner.__dict__ = self._before


_EXACT = 1 << 53  # whole numbers up to this one are exact in float64


class Regressor(RegressorMixin, Learner):
    """Base class of regressors: targets are real numbers, one or several per row."""

    n_outputs_: int
    target_ndim_: int
    rows_seen_: int

    def _receive_targets(
        self, y: ArrayLike | None, n: int, s: Floats | None
    ) -> tuple[Floats, None]:
        array = validation.targets(y, n, gaps=self._learns_gaps)
        if not self._started:
            if n == 0:
                return np.empty((0, 1)), None
            self.target_ndim_ = array.ndim
            self.n_outputs_ = 1 if array.ndim == 1 else array.shape[1]
            check_feature_limit(self.n_outputs_, "outputs")
            self.rows_seen_ = 0
            self._start(self.n_features_in_, self.n_outputs_)
        Y = array[:, None] if array.ndim == 1 else array
        if Y.shape[1] != self.n_outputs_ or (n and array.ndim != self.target_ndim_):
            shape = "(n,)" if self.target_ndim_ == 1 else f"(n, {self.n_outputs_})"
            raise ShapeError(
                f"`y` must have shape {shape}, as in the first block, got "
                f"{array.shape}. Start a new learner for another set of targets."
            )
        self.rows_seen_ += n if s is None else int(np.count_nonzero(s))
        return Y, None

    def _join_outputs(self, other: Self) -> Array:
        if not self._started:
            self.target_ndim_, self.n_outputs_ = other.target_ndim_, other.n_outputs_
            self.rows_seen_ = 0
            self._start(self.n_features_in_, self.n_outputs_)
        expected, given = (
            "(n,)" if learner.target_ndim_ == 1 else f"(n, {learner.n_outputs_})"
            for learner in (self, other)
        )
        if expected != given:
            raise MergeError(
                f"both learners must have targets of shape {expected}, as in the first, "
                f"got {given}. Merge learners of the same outputs."
            )
        return np.arange(self.n_outputs_)

    def _receive_target(self, y: object, s: Floats | None) -> tuple[Floats, None]:
        single = s is None and getattr(self, "target_ndim_", 0) == 1
        plain = y if isinstance(y, float) or (type(y) is int and abs(y) <= _EXACT) else math.nan
        if single and math.isfinite(plain):  # fast path of the common case
            self.rows_seen_ += 1
            return np.array([[plain]], dtype=np.float64), None
        return self._receive_targets(np.asarray(y)[None], 1, s)

    def _matrix(self, X: TableLike) -> Floats:
        array = super()._matrix(X)
        if len(array) > 1:
            check_values(len(array), self.n_outputs_, "one for each output")
        return array

    def _to_predictions(self, scores: Floats, class_mask: Array | None) -> Array:
        del class_mask
        return scores[:, 0] if getattr(self, "target_ndim_", 1) == 1 else scores

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        tags.target_tags.single_output = True
        return tags


class Clusterer(ClusterMixin, Learner):
    """Base class of clusterers. The number of a cluster never changes.

    ``y`` is ignored; it exists for compatibility with scikit-learn's API.
    """

    rows_seen_: int

    def fit(  # type: ignore[override]
        self, X: TableLike, y: ArrayLike | None = None, sample_weight: ArrayLike | None = None
    ) -> Self:
        """Reset the learner, then learn the rows one after the other.

        Parameters
        ----------
        X : array-like of shape (n, d)
            At least one row.
        y : object
            Ignored.
        sample_weight : array-like of shape (n,) or float, optional
            Weights >= 0 of the rows.

        Returns
        -------
        self
        """
        return super().fit(X, y, sample_weight)

    def partial_fit(  # type: ignore[override]
        self, X: TableLike, y: ArrayLike | None = None, sample_weight: ArrayLike | None = None
    ) -> Self:
        """Learn the rows one after the other, continuing from the current state.

        Parameters
        ----------
        X : array-like of shape (n, d)
            n may be zero; then no row is learned.
        y : object
            Ignored.
        sample_weight : array-like of shape (n,) or float, optional
            Weights >= 0 of the rows; rows of weight 0 are not learned.

        Returns
        -------
        self
        """
        return super().partial_fit(X, y, sample_weight)

    def test_then_train(  # type: ignore[override]
        self, X: TableLike, y: ArrayLike | None = None, sample_weight: ArrayLike | None = None
    ) -> Array:
        """Predict the cluster of each row, then learn the row.

        Parameters
        ----------
        X, y, sample_weight
            As in ``partial_fit``.

        Returns
        -------
        clusters : ndarray of int of shape (n,)
            The cluster predicted before each row was learned; −1 if there was none.
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
            Ignored.
        sample_weight : float, default=1.0

        Returns
        -------
        self
        """
        return super().learn_one(x, y, sample_weight)

    def fit_predict(
        self, X: TableLike, y: ArrayLike | None = None, sample_weight: ArrayLike | None = None
    ) -> Array:
        """Reset the learner, learn the rows, and return the cluster of each afterwards.

        Parameters
        ----------
        X, y, sample_weight
            As in ``fit``.
        """
        return self.fit(X, y, sample_weight).predict(X)

    def _receive_targets(
        self, y: ArrayLike | None, n: int, s: Floats | None
    ) -> tuple[Floats, None]:
        del y
        if not self._started and n:
            self.rows_seen_ = 0
            self._start(self.n_features_in_, 1)
        if n:
            self.rows_seen_ += n if s is None else int(np.count_nonzero(s))
        return np.zeros((n, 1)), None

    def _join_outputs(self, other: Self) -> Array:
        del other
        if not self._started:
            self.rows_seen_ = 0
            self._start(self.n_features_in_, 1)
        return np.zeros(1, dtype=np.intp)

    def _to_predictions(self, scores: Floats, class_mask: Array | None) -> Array:
        del class_mask
        predictions: Array = scores[:, 0].astype(np.intp)
        return predictions

    def _initial_prediction(self, row: Floats) -> int:
        del row
        return -1
