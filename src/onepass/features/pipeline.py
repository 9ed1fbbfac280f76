"""Pipeline of transformers and a learner, which is itself one learner.

On a merge the transformers are merged first, in order. Each returns the positions of its outputs
among the merged outputs, so that the next step can match its columns; the learner is merged last. A
learner depends on its rows as they were transformed: if the transformers of the first pipeline
would have transformed the rows of the second differently, the merge is rejected.
"""

from __future__ import annotations

# ruff: noqa: SLF001  the protocol of transformers is not public
import copy
import re
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Self, TypeAlias

import numpy as np
from sklearn.base import clone, is_classifier
from sklearn.utils import Bunch

from onepass import validation
from onepass.errors import (
    ForecastWarning,
    MergeError,
    NotFittedError,
    OnepassError,
    ParameterError,
    ShapeError,
    TypeMismatchError,
    public,
)
from onepass.estimators import available_if
from onepass.features.adapter import Adapter, adapted
from onepass.features.lag import checked_targets
from onepass.features.transformer import Starts, Transformer
from onepass.learners.estimator import Classifier, Learner
from onepass.learners.estimator.composite import Composite, given
from onepass.types import Array, ArrayLike, Floats, TimeLike
from onepass.validation.arrays import ColumnPositions, check_same_parameters, column_positions
from onepass.validation.frames import series_array
from onepass.validation.table import TableLike, is_missing_value

_Change: TypeAlias = tuple[Transformer, dict[str, Any]]
"""A transformer, and its attributes after a row."""


def _assign(changes: Sequence[_Change]) -> None:
    """Assign the new attributes, those of the first transformer last."""
    for feature, attributes in reversed(changes):
        feature.__dict__.update(attributes)


def _learn_features(
    features: Sequence[Any], checked_rows: Any, y: Array | None = None, learned: Any = None
) -> tuple[Floats, Starts]:
    """Learn rows in every transformer; return each as transformed after it was learned.

    With a mask ``learned``, these are the rows that it selects of those with the targets y.
    """
    rows: Any = checked_rows
    starts: Any = None
    own = y if y is None or learned is None else y[learned]
    before: Transformer | None = None
    for feature in features:
        if before is not None and getattr(feature, "n_features_in_", -1) != rows.shape[1]:
            feature.feature_names_in_ = before.get_feature_names_out()
        if learned is not None and _has_lags(feature):
            rows, starts = feature._learn_with_targets(rows, starts, y, learned)
        else:
            rows, starts = feature._learn_with_targets(rows, starts, own)
        before = feature
    return rows, starts


def _transform_features(features: Sequence[Transformer], checked_rows: Any) -> Floats:
    """Transform each row as if it were the next one; before learning, the width is initialized."""
    if not hasattr(features[0], "n_features_in_"):
        _learn_features(features, checked_rows[:0])
    rows: Any = checked_rows
    for feature in features:
        rows = feature._transform_rows(rows)
    seen: Floats = rows
    return seen


def _transform_known(features: Sequence[Any], checked_rows: Any, y: Array | None) -> Floats:
    """Transform rows that are not learned, but whose targets are lags of the rows after them."""
    if y is None or not any(map(_has_lags, features)):
        return _transform_features(features, checked_rows)
    if not hasattr(features[0], "n_features_in_"):
        _learn_features(features, checked_rows[:0])
    rows: Any = checked_rows
    for feature in features:
        lags = _has_lags(feature)
        rows = feature._with_own_lags(rows, y) if lags else feature._transform_rows(rows)
    _remember(features, y)
    transformed: Floats = rows
    return transformed


def _has_lags(feature: Transformer) -> bool:
    return hasattr(feature, "_remember")


def _next_row(features: Sequence[Any], row: Any) -> Floats:
    """Transform a row as the next one after the last known or predicted target."""
    for feature in features:
        row = feature._with_lags(row, 1) if _has_lags(feature) else feature._transform_rows(row)
    transformed: Floats = row
    return transformed


def _remember(features: Sequence[Any], y: Array) -> None:
    """Store targets, known or predicted, as lags of the next rows."""
    for feature in features:
        if _has_lags(feature):
            feature._remember(y)


def _learn_selected(
    features: Sequence[Transformer],
    checked_rows: Any,
    y: Array | None,
    selected: Array,
    *,
    in_order: bool,
) -> tuple[Floats, Starts]:
    """Learn the ``selected`` rows, shape (n,); return all rows transformed, and their starts.

    The targets of other rows are lags of later rows. If ``in_order``, which costs a block for each
    run of selected rows, the others are transformed as if each were the next one; otherwise they
    are 0.
    """
    n = len(selected)
    if selected.all():
        return _learn_features(features, checked_rows, y)
    if not in_order and selected.any():
        part, starts = _learn_features(features, checked_rows[selected], y, selected)
        seen = np.zeros((n, part.shape[1]))
        seen[selected] = part
        return seen, starts.at(np.flatnonzero(selected), n)
    runs: list[Array] = np.split(np.arange(n), np.flatnonzero(np.diff(selected)) + 1)
    seen, starts = np.zeros((n, 0)), Starts.none(0)
    for rows in runs:
        targets = None if y is None else y[rows]
        if selected[rows[0]]:
            part, of_part = _learn_features(features, checked_rows[rows], targets)
            starts = starts.followed_by(of_part.at(rows, n))
        else:
            part = _transform_known(features, checked_rows[rows], targets)
            starts = starts.followed_by(Starts.none(part.shape[1]))
        seen = np.pad(seen, ((0, 0), (0, part.shape[1] - seen.shape[1])))
        seen[rows, : part.shape[1]] = part
    return seen, starts


_BY_ROW = ("y", "sample_weight", "time")  # arguments with a value per row
_KINDS = {"f": "number", "O": "text", "M": "date"}  # by ``dtype.kind`` of a table's column


def _learner_can(verb: str) -> Callable[[Pipeline], bool]:
    return lambda pipeline: hasattr(pipeline.learner, verb)


class Pipeline(Composite):
    """Transformers and a learner as one learner.

    Each row passes through the transformers, which learn it and transform it with their state after
    it; then the learner predicts and learns it. When a new category or column adds features, the
    learner is widened as if a category had been 0 in every row so far, and a column of numbers at
    its first value.

    An error in any step leaves all steps unchanged. The steps passed to the constructor are not
    fitted; their fitted copies are ``features_`` and ``learner_``.

    Before a learner whose predictions do not depend on the units of the features, such as recursive
    least squares, transformers that only rescale (``_rescales``, such as ``Scale``) are skipped:
    running statistics would change the units with every row, and the learner would no longer be
    exact. They are not skipped before a transformer that depends on units (``_uses_units``, such as
    ``RandomReLU``). ``describe`` shows which steps are skipped.

    After random features, recursive least squares whose ``prior`` is None has ``prior=10.0`` in
    ``learner_``: its accuracy would otherwise fall while there are about as many rows as features.

    Rows of weight 0 are predicted, but not learned by any step; their targets are lags of later
    rows. Other weights are passed to the learner; transformers weight all rows equally.

    Parameters
    ----------
    *steps : transformers, then one learner
        Such as ``Encode(), Impute(), Scale(), SGDRegressor()``; or pairs of a name and a step.
        Transformers of scikit-learn must be stateless, have ``partial_fit`` or be frozen
        (``sklearn.frozen.FrozenEstimator``). They learn row by row: a row is transformed with the
        state before it, and the first row with the state after it. Such pipelines cannot be saved
        by ``op.save`` or merged.

    Attributes
    ----------
    features_ : list of Transformer
        The fitted transformers in use.
    learner_ : Learner
        The fitted learner; it stores the names of the features.

    Raises
    ------
    TypeMismatchError
        If the steps are not transformers followed by one learner.

    Examples
    --------
    >>> from onepass.features import Encode
    >>> from onepass.learners import RLSRegressor
    >>> model = Pipeline(Encode(), RLSRegressor(ridge=0.0))
    >>> rows = [{"km": 1.0, "by": "sea"}, {"km": 2.0, "by": "sea"}, {"km": 1.0, "by": "air"}]
    >>> model.partial_fit(rows, [3.0, 4.0, 5.0]).predict_one({"by": "air", "km": 2.0}).round(6)
    np.float64(6.0)
    """

    steps: tuple[Any, ...]
    features_: list[Transformer]
    learner_: Any  # a learner, with the methods of its kind

    @public
    def __init__(self, *steps: Any) -> None:
        self._set_steps(steps)

    def _set_steps(self, steps: tuple[Any, ...]) -> None:
        bare = [step for _, step in _named(steps)]
        if not self._fits(bare):
            got = ", ".join(
                f"the class {step.__name__}" if isinstance(step, type) else type(step).__name__
                for step in bare
            )
            if steps and (hasattr(bare[-1], "network") or hasattr(bare[-1], "after_task")):
                raise TypeMismatchError(
                    f"the learner must be one for tables, such as RLSRegressor(), got {got}: "
                    f"networks cannot be steps of a {type(self).__name__}. Transform their rows "
                    "first, as in net.learn(scale.learn_transform(X), y)."
                )
            raise TypeMismatchError(
                f"the steps must be transformers, then one learner, got {got or 'none'}. Pass "
                "objects such as Encode(), Scale(), RLSRegressor(), the learner last, or pairs of "
                "a name and such an object."
            )
        names = [name for name, _ in _named(steps)]
        if wrong := [n for i, n in enumerate(names) if n in names[:i] or "__" in n or n == "steps"]:
            raise ParameterError(
                "names of steps must be unique, without '__' and not 'steps', got "
                f"{wrong[0]!r}. Rename the step."
            )
        self.steps = steps

    def _fits(self, steps: Sequence[Any]) -> bool:
        *features, learner = steps or (None,)
        made = [adapted(step) for step in features]
        return isinstance(learner, Learner) and None not in made

    # -- steps and attributes ----------------------------------------------------------------------

    def frozen_copy(self) -> Any:
        """Return a copy for prediction that does not change when this pipeline learns."""
        return self._with(self.learner_.frozen_copy()) if self._is_started else copy.copy(self)

    def __copy__(self) -> Self:
        return self._with(copy.copy(self.learner_) if self._is_started else None)

    def _with(self, learner: Any) -> Self:
        """Return a copy with another fitted learner, None before fitting."""
        twin = object.__new__(type(self))
        twin.__dict__ = dict(self.__dict__)
        if learner is not None:
            twin.features_ = [copy.copy(feature) for feature in self.features_]
            twin.learner_ = learner
        return twin

    @property
    def learner(self) -> Any:
        """The fitted learner; before fitting, the learner passed to the constructor."""
        return self.learner_ if self._is_started else _named(self.steps)[-1][1]

    @property
    def named_steps(self) -> Any:
        """The steps by name: fitted, or as given if they are skipped or not fitted yet."""
        steps = dict(_named(self.steps))
        if self._is_started:
            fitted = iter([*self.features_, self.learner_])
            for i, name in enumerate(steps):
                if not self._is_skipped(i):
                    part = next(fitted)
                    steps[name] = getattr(part, "transformer_", part)
        return Bunch(**steps)

    def __len__(self) -> int:
        return len(self.steps)

    def __getitem__(self, index: int | str | slice) -> Any:
        """Return a step by its position or name, or the steps of a slice as a pipeline.

        The pipeline of a slice has the fitted steps as they are now; further rows are learned by
        copies of them. If the slice does not end with the learner,
        it is a pipeline of scikit-learn, in which skipped steps are ``"passthrough"``.
        """
        steps = self.named_steps
        if isinstance(index, str):
            return steps[_step_name(index, steps)]
        if not isinstance(index, slice):
            return list(steps.values())[index]
        chosen = range(len(steps))[index]
        if len(self) - 1 not in chosen:
            from sklearn.pipeline import Pipeline as Plain  # noqa: PLC0415  the import is slow

            named = list(steps.items())
            return Plain(
                [
                    (named[i][0], "passthrough" if self._is_skipped(i) else named[i][1])
                    for i in chosen
                ]
            )
        part = type(self)(*self.steps[index])
        if self._is_started:
            part.features_ = self.features_[len(self.features_) - len(part._active_steps()) :]
            part.learner_ = self.learner_
        return part

    @property
    def features(self) -> list[Transformer]:
        """The fitted transformers in use; before fitting, those passed to the constructor."""
        return list(self.features_ if self._is_started else self._active_steps())

    @property
    def n_features_in_(self) -> int:
        """The number of input columns."""
        return int(self._first().n_features_in_)

    @property
    def feature_names_in_(self) -> Array:
        """The names of the input columns, if they have names."""
        names: Array = self._first().feature_names_in_
        return names

    @property
    def rows_seen_(self) -> int:
        """Number of rows learned."""
        return int(self.learner.rows_seen_)

    @property
    def classes_(self) -> Array:
        """The classes seen so far, if the learner is a classifier."""
        classes: Array = self.learner_.classes_
        return classes

    @property
    def nbytes(self) -> int:
        """Size of the learned state in bytes."""
        parts: list[Any] = [*self.features_, self.learner_] if self._is_started else []
        return sum(int(part.nbytes) for part in parts)

    def get_feature_names_out(self) -> Array:
        """Return the names of the features of the learner, as text."""
        if self.features:
            names_out: Array = self.features[-1].get_feature_names_out()
            return names_out
        d = getattr(self.learner, "n_features_in_", 0)
        names = getattr(self.learner, "feature_names_in_", [f"x{j}" for j in range(d)])
        return np.array(names, dtype=object)

    def describe(self) -> str:
        """Return the steps, one per line, with their numbers of columns, and which are skipped."""
        used = iter(self.features)
        lines = []
        steps = [step for _, step in _named(self.steps)]
        for i, step in enumerate(steps[:-1]):
            if self._is_skipped(i):
                what = f"skipped: {type(self.learner).__name__} does not depend on units"
            else:
                part = next(used)
                got = getattr(part, "n_features_in_", None)
                what = "" if got is None else f"{got} columns -> {part.n_features_out_}"
            lines.append((_one_line(step), what))
        seen = getattr(self.learner, "rows_seen_", 0)
        lines.append((_one_line(steps[-1]), f"{seen} rows learned"))
        width = max(len(name) for name, _ in lines)
        return "\n".join(f"{name:<{width}}  {what}".rstrip() for name, what in lines)

    # -- as a member of a mixture, on rows of numbers ----------------------------------------------

    @property
    def _accepts_missing(self) -> bool:
        """Whether features may be missing, NaN."""
        filled = any(one._fills for one in self.features)
        return filled or bool(self.learner._accepts_missing)

    @property
    def _scale_invariant(self) -> bool:
        """Whether predictions do not depend on the units of the features."""
        invariant = getattr(self.learner, "_scale_invariant", False)
        return bool(invariant) or any(one._rescales for one in self.features)

    def _grow(self, d: int) -> None:
        """Append input columns of numbers, as if they had been zero in every row so far."""
        self._begin_columns(Starts.none(d))

    def _start_at(self, origins: Floats) -> None:
        """Let columns, which were 0 so far, have their first values in the next row."""
        new = origins != 0.0
        self._begin_columns(Starts(np.where(new, 0, -1), new, origins))

    def _begin_columns(self, starts: Starts) -> None:
        """Learn the starts of input columns, without rows."""
        if not self._is_started:
            return
        twin = copy.copy(self)
        Z: Any = np.empty((0, len(starts.rows)))
        for feature in twin.features_:
            Z, starts = feature._learn_rows(Z, starts)
        if twin.features_:
            twin._prepare_for_learner(Z, starts.origins)
        else:
            twin.learner_.grow(Z.shape[1])._start_at(starts.origins)
        self.__dict__ = twin.__dict__

    @property
    def _is_exact(self) -> bool:
        return bool(self.learner._is_exact)

    def _exact_scores(self, X: Floats) -> Floats:
        """Scores of rows by least squares of all rows so far."""
        scores: Floats = self.learner_._exact_scores(self._transformed(X, forecasts=False))
        return scores if self._level is None else scores + self._level

    def _familiarity(self, X: Floats) -> Floats | None:
        """How well the learner remembers rows like these."""
        familiarity: Floats | None = self.learner_._familiarity(
            self._transformed(X, forecasts=False)
        )
        return familiarity

    @property
    def _mean_weight(self) -> float:
        return float(self.learner_._mean_weight)

    @property
    def _remembered_rows(self) -> Any:
        return self.learner_._remembered_rows

    @property
    def dtypes_(self) -> dict[str, str]:
        """The types of the named columns of the first transformer.

        They are "number", "text" or "date", as ``op.stream.read(..., dtypes=model.dtypes_)``
        accepts them; empty before fitting, or if columns have no types.
        """
        first = self.features_[0] if self._is_started and self.features_ else None
        known: dict[str, Any] = getattr(first, "columns_", {})
        return {name: _KINDS[one.code] for name, one in known.items() if one is not None}

    @property
    def missing(self) -> str:
        """How to handle missing features: "keep", "skip" or "error"."""
        return str(getattr(_named(self.steps)[0][1], "missing", "keep"))

    @property
    def _target_delay(self) -> int | None:
        """The delay of targets for which a step (``Lag``) is set, in rows; None without one."""
        delays = [step.delay for _, step in _named(self.steps)[:-1] if hasattr(step, "delay")]
        return max(*delays, 1) if delays else None

    @property
    def _lagged_target(self) -> str | None:
        """The name of the target whose lags are features; None if there are none."""
        steps = (step for _, step in _named(self.steps)[:-1])
        return next((step.target for step in steps if hasattr(step, "delay")), None)

    @property
    def _inner(self) -> Any:
        return self.learner

    @property
    def _merging(self) -> str:
        """Whether ``merge`` is ``exact``, ``approximate`` or ``refused``."""
        parts: list[Transformer | Learner] = [*self._active_steps(), self.learner]
        levels = {part._merging for part in parts}
        return next((word for word in ("refused", "approximate") if word in levels), "exact")

    # -- learning and prediction -------------------------------------------------------------------

    @public
    def predict(self, X: TableLike, **options: object) -> Any:
        """Predict the targets of the rows of X, shape (n,) or (n, c).

        Parameters
        ----------
        X : rows that the first step accepts
        **options
            Options of ``predict`` of the learner.

        Raises
        ------
        NotFittedError
            Before any row was learned.
        """
        now = self._snapshot()
        return now._predicted(now._transformed(X), options)

    def _snapshot(self) -> Self:
        """Return the pipeline as it is now; another thread may assign new steps to this one."""
        now = object.__new__(type(self))
        now.__dict__ = self.__dict__
        return now

    def _predicted(self, Z: Any, options: Mapping[str, object], ahead: int | None = None) -> Any:
        """Predict transformed rows, ``ahead`` rows after the last target; default: as learned."""
        found = self.learner_.predict(Z, **options)
        lag, recent = self._differencing
        level = None if recent is None else lag._level(ahead)
        return _added(found, level)

    @public
    def forecast(self, X: TableLike, y: ArrayLike | None = None, **options: object) -> Any:
        """Predict rows in their order, of which the first follows the last row learned.

        The lags of a row (``Lag``) are the targets before it: those learned, then those of y, and
        where y is missing, the predictions. Nothing is learned. Without lags, the result is that of
        ``predict``.

        Parameters
        ----------
        X : rows that the first step accepts
        y : array-like of shape (n,) or (n, c), optional
            The targets that are known, nan or None where unknown.
        **options
            Options of ``predict`` of the learner.

        Returns
        -------
        predictions : ndarray of shape (n,) or (n, c)

        Raises
        ------
        NotFittedError
            Before any row was learned.

        Examples
        --------
        >>> import numpy as np
        >>> import onepass as op
        >>> y = 2.0 + 0.5 ** np.arange(20)
        >>> lag = op.features.Lag(rows=[1])
        >>> model = op.Pipeline(lag, op.RLSRegressor()).partial_fit(np.zeros((20, 1)), y)
        >>> model.forecast(np.zeros((3, 1))).round(1)
        array([2., 2., 2.])
        """
        twin: Any = copy.copy(self)
        return twin._forecast(X, y, **options)

    def _forecast(
        self, X: TableLike, y: ArrayLike | None = None, *, proba: bool = False, **options: object
    ) -> Any:
        """Predict rows as ``forecast``, and store their targets as lags of the next ones.

        With ``proba`` also return the probabilities of the classes.
        """
        if not self._is_started or self._target_delay is None:
            predictions = self.predict(X, **options)
            n = len(predictions[0]) if isinstance(predictions, tuple) else len(predictions)
            _check_length(y, n)
            return (predictions, self.predict_proba(X)) if proba else predictions
        first = next(i for i, one in enumerate(self.features_) if _has_lags(one))
        rows = self.features_[0]._check_rows(X, learning=False)
        for feature in self.features_[:first]:
            rows = feature._transform_rows(rows)
        targets: Any = [None] * len(rows) if y is None else series_array(y)
        _check_length(y, len(rows))
        labels, predictions = is_classifier(self.learner_), []
        later: list[Any] = self.features_[first:]
        for i in range(max(len(rows), 1)):  # no rows: to determine the shape
            row = _next_row(later, rows[i : i + 1])
            predictions.append(self._predicted(_padded(row), options, ahead=1))
            if proba:
                predictions[-1] = predictions[-1], self.learner_.predict_proba(_padded(row))
            mean = predictions[-1][0] if isinstance(predictions[-1], tuple) else predictions[-1]
            value = mean if i >= len(rows) else np.where(_unknown(targets[i]), mean[0], targets[i])
            value = checked_targets(np.reshape(value, np.shape(mean)), len(row), labels=labels)
            _remember(later, value)
        if isinstance(predictions[0], tuple):
            return tuple(map(np.concatenate, zip(*predictions, strict=True)))
        return np.concatenate(predictions)

    @available_if(_learner_can("decision_function"))
    @public
    def decision_function(self, X: TableLike) -> Floats:
        """Return the scores of the classes, as ``decision_function`` of the learner."""
        now = self._snapshot()
        scores: Floats = now.learner.decision_function(now._transformed(X))
        return scores

    @available_if(_learner_can("predict_proba"))
    @public
    def predict_proba(self, X: TableLike) -> Floats:
        """Return the probabilities of the classes, as ``predict_proba`` of the learner."""
        now = self._snapshot()
        shares: Floats = now.learner.predict_proba(now._transformed(X))
        return shares

    @available_if(_learner_can("recall"))
    @public
    def recall(self, X: TableLike) -> Array:
        """Predict rows of the whole past, as ``recall`` of the learner, a mixture."""
        now = self._snapshot()
        recalled: Array = _added(now.learner.recall(now._transformed(X)), now._level)
        return recalled

    @public
    def score(self, X: TableLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """Return R² of a regressor or the accuracy of a classifier on these rows."""
        now = self._snapshot()
        Z = now._transformed(X, forecasts=False)
        y = y if now._level is None else np.asarray(y) - now._level
        return float(now.learner.score(Z, y, sample_weight=sample_weight))

    @public
    def learn_one(
        self,
        x: ArrayLike | Mapping[str, object],
        y: ArrayLike,
        sample_weight: float = 1.0,
        *,
        time: TimeLike | None = None,
    ) -> Self:
        """Learn one row: an array of shape (d,), or a dict of named features.

        Returns
        -------
        self
        """
        with self._lock:
            self._learn_one(x, y, sample_weight, time)
        return self

    @public
    def predict_one(self, x: ArrayLike | Mapping[str, object], **options: Any) -> Any:
        """Predict one row; before fitting, with the initial weights; options as in ``predict``."""
        if not self._is_started:
            features, learner = (
                [clone(step) for step in self._active_steps()],
                clone(self.learner),
            )
            if features:  # copies may learn the row
                checked_rows = features[0]._check_row(x, learning=True)
                x = _padded(_learn_features(features, checked_rows)[0])[0]
            return learner.predict_one(x, **options)
        now = self._snapshot()
        found = now.learner_.predict_one(now._transformed_row(x), **options)
        return _added(found, now._level)

    @available_if(_learner_can("predict_proba_one"))
    @public
    def predict_proba_one(self, x: ArrayLike | Mapping[str, object]) -> dict[Any, float]:
        """Return the probabilities of the classes for one row, by label; empty before fitting."""
        if not self._is_started:
            return {}
        now = self._snapshot()
        found: dict[Any, float] = now.learner_.predict_proba_one(now._transformed_row(x))
        return found

    def _transformed_row(self, x: Any) -> Any:
        """The features of one row."""
        row, checked = x, False
        for feature in self.features_:
            row, checked = feature._transform_row(row, checked=checked), True
        return row if not checked or len(row) else np.zeros(1)

    @public
    def merge(self, other: Self, *, concurrent: bool = False) -> Self:
        """Merge another pipeline into this one, as if this one had also learned its rows.

        The other is not changed. Columns and categories that only the other has are appended in the
        order of their appearance.

        Parameters
        ----------
        other : Pipeline of the same steps, with the same parameters
        concurrent : bool, default=False
            With forgetting. False: the rows of the other follow those of this one. True: the two
            streams ran concurrently.

        Returns
        -------
        self

        Raises
        ------
        MergeError
            If the pipelines are incompatible, would have transformed the rows of the other
            differently, or the learners cannot be merged. Both are then unchanged.
        """
        self._check_mergeable(other)
        if not other.__sklearn_is_fitted__():
            return self
        if other is self:
            other = copy.deepcopy(other)
        with self._lock:
            twin = copy.copy(self)
            twin._merge(other, concurrent=concurrent)
            self.__dict__ = twin.__dict__  # one assignment: other threads see all steps or none
        return self

    def _merge(self, other: Self, *, concurrent: bool) -> None:
        """Merge the steps of another fitted pipeline into those of this one."""
        if not self._is_started:
            self._start()
        at = None
        for mine, theirs in zip(self.features_, other.features_, strict=True):
            self._check_same(mine, theirs)
            at = mine._merge_from(theirs, at)
        if at is None:
            at = column_positions(self.learner_, other.learner_)
        elif not len(at.at):  # a learner without features has a single feature that is 0
            at = ColumnPositions(np.zeros(1, dtype=np.intp), max(at.d, 1), at.names or None)
        if at.origins is not None and hasattr(self.learner_, "n_features_in_"):
            self.learner_.grow(at.d)._start_at(np.nan_to_num(at.origins))
        self.learner_.join(other.learner_, at, concurrent=concurrent)

    # -- scikit-learn -------------------------------------------------------------------

    def get_params(self, deep: bool = True) -> dict[str, Any]:  # noqa: FBT001, FBT002
        """Return the steps; if deep, also each step and its parameters as ``<name>__<parameter>``.

        As in ``sklearn.pipeline.make_pipeline``, the name of a step that was passed without one is
        its class in lower case, numbered if there are several: ``encode``, ``scale-1``,
        ``scale-2``, ``rlsregressor``.
        """
        params: dict[str, Any] = {"steps": self.steps}
        for name, step in _named(self.steps) if deep else ():
            params[name] = step
            params |= {f"{name}__{key}": value for key, value in step.get_params().items()}
        return params

    @public
    def set_params(self, **params: Any) -> Self:
        """Set ``steps``, a step by its name, or ``<name>__<parameter>``.

        The fitted state is kept, and new parameters apply from the next ``fit``. If a step is
        replaced by one of another class, the pipeline is no longer fitted.

        ``rls`` is short for ``rlsregressor`` or ``rlsclassifier``, and so on. The steps given to
        the constructor are not modified: changed steps are copies.

        Raises
        ------
        ParameterError
            If there is no such parameter.
        """
        steps = list(params.pop("steps", self.steps))
        names = [name for name, _ in _named(steps)]
        for key, value in sorted(params.items(), key=lambda item: "__" in item[0]):
            given, _, parameter = key.partition("__")
            name = _step_name(given, names)
            if name not in names:
                raise ParameterError(
                    f"a parameter must be `steps`, or begin with one of {', '.join(names)}, got "
                    f"{key!r}. Compare with the names in get_params()."
                )
            i = names.index(name)
            old, step = steps[i], value
            if parameter:
                bare = old[1] if isinstance(old, tuple) else old
                step = clone(bare).set_params(**{parameter: value})
            steps[i] = (name, step) if isinstance(old, tuple) else step
        self._set_steps(tuple(steps))
        if self._is_started:
            given_steps = [*self._active_steps(), _named(self.steps)[-1][1]]
            kinds, fitted = (
                [type(getattr(part, "transformer", part)) for part in parts]
                for parts in (given_steps, [*self.features_, self.learner_])
            )
            if kinds != fitted:
                del self.features_, self.learner_
        return self

    def __sklearn_clone__(self) -> Self:
        steps = (
            (step[0], clone(step[1])) if isinstance(step, tuple) else clone(step)
            for step in self.steps
        )
        copied = type(self)(*steps)
        if hasattr(self, "_metadata_request"):  # of set_fit_request and others
            copied._metadata_request = copy.deepcopy(self._metadata_request)
        return copied

    def __sklearn_is_fitted__(self) -> bool:
        return self._is_started and bool(self.learner_.__sklearn_is_fitted__())

    def get_metadata_routing(self) -> Any:
        """Return the requests of the pipeline for metadata; if it has none, those of the learner.

        Returns
        -------
        MetadataRequest
        """
        requests = super().get_metadata_routing()
        learner = _named(self.steps)[-1][1].get_metadata_routing()
        for verb in ("fit", "partial_fit", "score"):
            own = getattr(requests, verb)
            for name, alias in getattr(learner, verb).requests.items():
                if alias is not None and own.requests.get(name) is None:
                    own.add_request(param=name, alias=alias)
        return requests

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:
        del N_CHAR_MAX
        return f"{type(self).__name__}({', '.join(map(_one_line, self.steps))})"

    # -- private -------------------------------------------------------------------

    @property
    def _is_started(self) -> bool:
        return hasattr(self, "learner_")

    @property
    def _sound(self) -> bool:
        """Whether the fitted state of a loaded file matches the steps."""
        parts = getattr(self, "features_", None)
        if not self._is_started:
            return parts is None
        return type(parts) is list and self._fits((*parts, self.learner_))

    def _is_skipped(self, i: int) -> bool:
        step, *later = (step for _, step in _named(self.steps)[i:])
        free = later and getattr(later[-1], "_scale_invariant", False)
        return bool(
            free
            and getattr(step, "_rescales", False)
            and not any(getattr(one, "_uses_units", False) for one in later)
        )

    def _active_steps(self) -> list[Transformer]:
        steps = enumerate(step for _, step in _named(self.steps)[:-1])
        used = (adapted(step) for i, step in steps if not self._is_skipped(i))
        return [step for step in used if step is not None]

    def _first(self) -> Any:
        return self.features_[0] if self._is_started and self.features_ else self.learner

    def _start(self) -> None:
        self.features_ = [clone(step) for step in self._active_steps()]
        self.learner_ = self._new_learner()

    def _new_learner(self) -> Learner:
        """Return a copy of the learner, with the recommended prior if its ``prior`` is None."""
        learner: Learner = clone(_named(self.steps)[-1][1])
        prior = max((step._recommended_prior for step in self._active_steps()), default=0.0)
        if prior and getattr(learner, "prior", prior) is None:
            learner.set_params(prior=prior)
        return learner

    def _check_mergeable(self, other: Self) -> None:
        """Check that both pipelines have the same steps with the same parameters."""
        check_same_parameters(self, other, ())
        one, two = (
            " > ".join(type(step).__name__ for _, step in _named(p.steps)) for p in (self, other)
        )
        if one != two:
            raise MergeError(
                f"both must have the same steps, {one} as in the first, got {two}. "
                "Learn all parts with the same Pipeline."
            )
        for mine, theirs in zip(self._active_steps(), other._active_steps(), strict=True):
            if isinstance(mine, Adapter):
                raise MergeError(
                    "transformers must be those of op.features, got "
                    f"{type(mine.transformer).__name__}. Learn all rows with one pipeline."
                )
            check_same_parameters(mine, theirs, list(mine.get_params(deep=False)))
        learners = (p.learner_ if p._is_started else p._new_learner() for p in (self, other))
        next(learners)._check_mergeable(next(learners))

    def _check_same(self, mine: Transformer, theirs: Transformer) -> None:
        if (
            hasattr(mine, "rows_seen_")
            and theirs.rows_seen_
            and (reason := mine._merge_conflict(theirs))
        ):
            raise MergeError(
                f"{type(mine).__name__} must have transformed the rows of both in the "
                f"same way, but {reason}, or learn all rows with one pipeline."
            )

    def _learn_row(self, x: Any) -> tuple[Any, list[_Change]]:
        """Return one row for the learner, and the new attributes of each transformer.

        The row is None if the pipeline is not fitted, if the width of a step changes, or if a step
        uses targets.
        """
        changes: list[_Change] = []
        learner = vars(self).get("learner_")
        if learner is None:
            return None, changes
        checked = False
        for feature in self.features_:
            width = getattr(feature, "n_features_in_", None)
            if width is None or feature._uses_targets or (checked and len(x) != width):
                return None, changes
            learned = feature._learn_row(x, checked=checked)
            if learned is None:
                return None, changes
            x, attributes = learned
            changes.append((feature, attributes))
            checked = True
        if checked and (
            len(x) != getattr(learner, "n_features_in_", None)
            or not hasattr(learner, "feature_names_in_")
        ):
            return None, changes
        return x, changes

    def _learn_one(self, x: Any, y: ArrayLike, sample_weight: float, time: TimeLike | None) -> None:
        """Learn one row in place, or in a copy if the width of a step may change."""
        row, changes = self._learn_row(x) if sample_weight else (None, [])
        if row is None:
            twin = copy.copy(self)
            twin._learn_row_of_new_width(x, y, sample_weight, time)
            self.__dict__ = twin.__dict__
            return
        before = getattr(self.learner_, "rows_seen_", 0)
        try:
            for feature, _ in changes:
                if feature._relative and (level := self._level) is not None:
                    targets: Any = (
                        [y] if isinstance(y, float) else self._targets(np.asarray(y)[None], 1)
                    )
                    y = targets[0] - level
                    break
            if time is None:
                self.learner_.learn_one(row, y, sample_weight)  # unchanged after an error
            else:
                self.learner_.learn_one(row, y, sample_weight, time=time)
            _assign(changes)
        except BaseException:
            if getattr(self.learner_, "rows_seen_", 0) > before:
                _assign(changes)  # interrupted after the learner had learned the row
            raise

    def _learn_row_of_new_width(
        self, x: Any, y: ArrayLike, sample_weight: float, time: TimeLike | None
    ) -> None:
        """Learn one row in all steps, which are fitted or widened."""
        if not self._is_started:
            self._start()
        if self.features_:
            checked_rows = self.features_[0]._check_row(x, learning=True)
            if sample_weight:
                target = self._targets(np.asarray(y)[None], 1)
                lag, past = self._differencing
                Z, starts = _learn_features(self.features_, checked_rows, target)
                origins = starts.origins
                if lag is not None:
                    y = lag._changes(past, target, np.ones(1, dtype=bool))[0][0]
            else:
                target, origins = self._targets(np.asarray(y)[None], 1), np.zeros(0)
                Z = _transform_known(self.features_, checked_rows, target)
            x = self._prepare_for_learner(Z, origins)[0]
        self.learner_.learn_one(x, y, sample_weight, **given(time=time))

    def _learn(
        self,
        X: TableLike,
        y: ArrayLike | None,
        sample_weight: ArrayLike | None,
        verb: str,
        **named: Any,
    ) -> Any:
        """Learn rows in a copy, so that other threads predict with all steps before or after it.

        The first row is learned alone: what depends on the number of features at the start, such as
        the scale of random features, then does not depend on the size of the first block.
        """
        twin = copy.copy(self)
        if verb == "fit" or not twin._is_started:
            twin._start()
        rows: Any = X
        if twin.features_:
            rows = twin.features_[0]._check_rows(X, learning=True)
            sample_weight = validation.weights(sample_weight, len(rows))
        given = {"y": y, "sample_weight": sample_weight, **named}
        learn = twin._learn_parts if twin.features_ else twin._learn_part
        result = learn(rows, verb, given)
        self.__dict__ = twin.__dict__
        return result

    def _learn_parts(self, rows: Any, verb: str, given: Mapping[str, Any]) -> Any:
        """Learn checked rows in parts, of which the first row is one.

        If the outputs of a transformer depend on all columns, a row that brings a column is a part,
        too: earlier rows and its own prequential prediction must not depend on the new column.
        """
        n, s = len(rows), given["sample_weight"]
        learned = np.ones(n, dtype=bool) if s is None else s > 0.0
        novel = np.zeros(n, dtype=bool)
        if any(one._uses_units for one in self.features_):
            at = np.flatnonzero(learned)
            novel[at[self.features_[0]._novel_rows(rows[at])]] = True
            novel |= self._brings_lags(given["y"], n)
        cut = np.append(novel, True) | np.insert(novel, 0, True)
        if not self.learner_._started:  # its parts end after the first row that is learned
            first = int(np.argmax(learned)) if n else 0
            novel[first : first + 1], cut[first + 1 : first + 2] = False, True

        def learn(part: slice, verb: str, given: dict[str, Any]) -> Any:
            if verb != "test_then_train" or not novel[part].any():
                return self._learn_part(rows[part], verb, given)
            before = _padded(_transform_features(self.features_, rows[part]))
            predicted = copy.copy(self.learner_).test_then_train(before, **given)
            predicted = _added(predicted, self._level)
            given.pop("return_proba", None)
            self._learn_part(rows[part], "partial_fit", given)
            return predicted

        return self._in_parts(np.flatnonzero(cut), verb, given, learn)

    def _brings_lags(self, y: Any, n: int) -> Array:
        """Return whether a label may be a lag for the first time in a row, for n rows."""
        brings = np.zeros(n, dtype=bool)
        if not is_classifier(self.learner_) or not hasattr(y, "__len__") or len(y) != n:
            return brings
        _, first = np.unique(np.asarray(series_array(y)).astype(str), return_index=True)
        lagged: list[Any] = [one for one in self.features_ if _has_lags(one)]
        for lag in lagged:
            lags = np.atleast_1d(lag.rows).astype(int)
            later = (first[:, None] + lags).ravel()
            brings[later[later < n]] = brings[: lags.max()] = True
        return brings

    def _in_parts(
        self,
        cuts: Array,
        verb: str,
        given: Mapping[str, Any],
        learn: Callable[[slice, str, dict[str, Any]], Any],
    ) -> Any:
        """Call ``learn`` for the rows between cuts; return the result for all rows.

        If the number of targets, weights or times is wrong, all rows are one part: the learner
        raises the error.
        """
        by_row = {k: series_array(given[k]) for k in _BY_ROW if given.get(k) is not None}
        if len(cuts) <= 2 or not all(_has_length(one, cuts[-1]) for one in by_row.values()):
            return learn(slice(None), verb, dict(given))
        results: list[tuple[Any, Any]] = []
        for begin, end in pairwise(cuts.tolist()):
            part = slice(begin, end)
            some = {k: one[part] for k, one in by_row.items()}
            try:
                result = learn(part, verb, {**given, **some})
            except OnepassError as error:
                raise error if error.row is None else error.at(row=error.row + begin) from error
            results.append((result, getattr(self.learner_, "classes_", None)))
            verb = "partial_fit" if verb == "fit" else verb
        return _joined(results) if verb == "test_then_train" else results[-1][0]

    def _learn_part(self, rows: Any, verb: str, given: Mapping[str, Any]) -> Any:
        """Learn checked rows in all steps; return the result of the method of the learner.

        The learner grows at each row that brings a column, as it does in single rows.
        """
        if not self.features_:
            return getattr(self.learner_, verb)(rows, **given)
        s, y, level = given["sample_weight"], given["y"], None
        selected = np.ones(len(rows), dtype=bool) if s is None else s > 0
        targets = self._targets(y, len(rows))
        lag, past = self._differencing
        in_order = verb == "test_then_train"
        Z, starts = _learn_selected(self.features_, rows, targets, selected, in_order=in_order)
        if lag is not None:
            counted = np.ones(len(selected), dtype=bool) if _has_lags(lag) else selected
            y, level = lag._changes(past, targets, counted)
        if verb == "fit" and selected.any():
            verb = "partial_fit"  # the learner is new, and has the names after `grow`
        begins = starts.begins(len(Z))

        def learn(part: slice, verb: str, given: dict[str, Any]) -> Any:
            first, known = part.start or 0, getattr(self.learner_, "n_features_in_", 0)
            width = int(np.max(np.flatnonzero(begins <= first), initial=known - 1)) + 1
            new, predicted = starts.rows == first, None
            if in_order and known and new.any():
                before = np.where(new, 0.0, Z[part])[:, :known]
                predicted = copy.copy(self.learner_).test_then_train(before, **given)
                given.pop("return_proba", None)
                verb = "partial_fit"
            origins = np.where(new, starts.origins, 0.0)
            widened = self._prepare_for_learner(Z[part, :width], origins[:width])
            found = getattr(self.learner_, verb)(widened, **given)
            return found if predicted is None else predicted

        alone = begins[starts.rows == begins] + in_order  # rows that bring a column
        cuts = np.unique(np.concatenate((begins, alone, [0, len(Z)])))
        found = self._in_parts(cuts, verb, {**given, "y": y}, learn)
        return _added(found, level) if in_order and len(found) else found

    @property
    def _differencing(self) -> tuple[Any, Array | None]:
        """The ``Lag`` with whose difference a regressor learns, or None, and its last targets."""
        for one in self.features_:
            if one._relative and not isinstance(self.learner_, Classifier):
                return one, getattr(one, "recent_", None)
        return None, None

    @property
    def _level(self) -> Floats | None:
        """What is added to predictions of the next row, if the learner learns differences."""
        lag, recent = self._differencing
        return None if recent is None else lag._level()

    def _targets(self, y: ArrayLike | None, n: int) -> Array | None:
        """Return the targets for the transformers, labels as text; None if none uses them."""
        if not any(feature._uses_targets or feature._relative for feature in self.features_):
            return None
        labels = is_classifier(self.learner)
        return checked_targets(y, n, labels=labels, gaps=self._learns_gaps)

    def _transformed(self, X: TableLike, *, forecasts: bool = True) -> Any:
        """Return the rows as transformed for a prediction; warn if ``forecast`` may be meant."""
        if not self._is_started:
            raise NotFittedError(
                "this Pipeline is not fitted yet: it has not learned a row. Call fit, partial_fit "
                "or learn_one first; predict_one and test_then_train also predict before learning."
            )
        if not self.features_:
            return X
        checked_rows = self.features_[0]._check_rows(X, learning=False)
        if forecasts and self._target_delay is not None and len(checked_rows) > 1:
            warnings.warn(
                f"all {len(checked_rows):,} rows have the lags of the row after the last one "
                "learned. If they follow each other, call forecast, or learn each row before the "
                "next is predicted.",
                ForecastWarning,
                stacklevel=4,
            )
        return _padded(_transform_features(self.features_, checked_rows))

    def _prepare_for_learner(self, Z: Floats, origins: Floats) -> Floats:
        """Widen the learner and set its feature names; return the rows for it."""
        Z = _padded(Z)
        width, learner = Z.shape[1], self.learner_
        grown = width != getattr(learner, "n_features_in_", None)
        if grown:
            learner.grow(width)
        if origins.any():
            learner._start_at(origins)
        if grown or not hasattr(learner, "feature_names_in_"):
            names = self.features_[-1].get_feature_names_out()[:width]
            if len(names) == width:
                learner.feature_names_in_ = names
        return Z


def _has_length(values: Any, n: int) -> bool:
    return hasattr(values, "__len__") and len(values) == n


def _check_length(y: ArrayLike | None, n: int) -> None:
    if y is not None and len(series_array(y)) != n:
        raise ShapeError(
            f"`y` must have a target or nan for each of {n} rows, got {len(series_array(y))}. "
            "Leave it out if no target is known."
        )


def _unknown(target: Any) -> Array:
    """Return whether each output of a target is missing."""
    values = np.asarray(target, dtype=object)
    missing = [is_missing_value(value) for value in values.ravel().tolist()]
    return np.array(missing).reshape(values.shape)


def _joined(results: Sequence[tuple[Any, Array | None]]) -> Any:
    """Return prequential predictions of parts, with the classes after each, in one array.

    Probabilities that follow the labels are nan for classes that a part did not know.
    """
    if not isinstance(results[-1][0], tuple):
        return np.concatenate([result for result, _ in results])
    final: Any = results[-1][1]
    labels, probabilities = [], []
    if final is None:  # no row
        return results[-1][0]
    for (predicted, P), classes in results:
        wide = np.full((len(predicted), len(final)), np.nan)
        wide[:, np.searchsorted(final, np.asarray(classes))] = P
        labels.append(predicted)
        probabilities.append(wide)
    return np.concatenate(labels), np.vstack(probabilities)


def _added(found: Any, level: Floats | None) -> Any:
    """Add the level to predictions, which may be followed by standard deviations."""
    if level is None:
        return found
    if isinstance(found, tuple):
        return found[0] + level, *found[1:]
    return found + level


def _one_line(step: object) -> str:
    """Return the representation of a step in one line."""
    return re.sub(r"\n\s+", " ", repr(step))


def _named(steps: Sequence[Any]) -> list[tuple[str, Any]]:
    """Return the steps with their names; others are named as by make_pipeline."""
    kinds = ["" if isinstance(one, tuple) else type(one).__name__.lower() for one in steps]
    named: list[tuple[str, Any]] = []
    for i, (step, kind) in enumerate(zip(steps, kinds, strict=True)):
        number = f"-{kinds[: i + 1].count(kind)}" if kinds.count(kind) > 1 else ""
        named.append((str(step[0]), step[1]) if isinstance(step, tuple) else (kind + number, step))
    return named


def _step_name(given: str, names: Iterable[str]) -> str:
    """Return the name of a step; that of a learner may be given without its task."""
    short = {name.removesuffix("regressor").removesuffix("classifier"): name for name in names}
    return given if given in short.values() else short.get(given, given)


def _padded(Z: Floats) -> Floats:
    """Add a column of 0 if there is none, as a learner has at least one feature."""
    return Z if Z.shape[1] else np.zeros((Z.shape[0], 1))
