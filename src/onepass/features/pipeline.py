"""Pipeline of features and a learner, which is itself one learner.

On a merge the features are merged first, in order. Each returns the positions of its outputs among
those of both, so that the next step can match its columns; the learner is merged last. A learner
depends on its rows as the features transformed them: if the features of the first pipeline would
have transformed the rows of the second differently, the merge is refused.
"""

import copy
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Self, TypeVar

import numpy as np
from sklearn.base import BaseEstimator, clone, is_classifier
from sklearn.utils import get_tags
from sklearn.utils.metaestimators import available_if

from onepass import validation
from onepass.errors import MergeError, NotFittedError, ParameterError, TypeMismatchError
from onepass.features.transformer import Transformer, all_or_nothing
from onepass.learners.estimator import Learner
from onepass.types import Array, ArrayLike, Floats, TimeLike
from onepass.validation.arrays import ColumnPositions, check_same_parameters, column_positions
from onepass.validation.table import TableLike

__all__ = ["Pipeline"]


_Value = TypeVar("_Value")


def _taught(features: Sequence[Transformer], read: Any) -> Floats:
    """Learn rows in every feature; return them as seen at their time."""
    rows: Any = read
    born: Array | None = None
    before: Transformer | None = None
    for feature in features:
        if before is not None and getattr(feature, "n_features_in_", -1) != rows.shape[1]:
            feature.feature_names_in_ = before.get_feature_names_out()
        rows, born = feature.take(rows, born)
        before = feature
    seen: Floats = rows
    return seen


def _asked(features: Sequence[Transformer], read: Any) -> Floats:
    """The rows, each as if it were the next one; nothing is learned but, at first, the width."""
    if not hasattr(features[0], "n_features_in_"):
        _taught(features, read[:0])
    rows: Any = read
    for feature in features:
        rows = feature.ask(rows)
    seen: Floats = rows
    return seen


def _taught_where(
    features: Sequence[Transformer], read: Any, on: Array, *, in_order: bool
) -> Floats:
    """Learn the rows that are ``on``, shape (n,); return all as in ``_taught``.

    The others are seen as if each were the next one: at its place if ``in_order``, which costs a
    cut wherever they begin and end; else behind all rows.
    """
    if on.all():
        return _taught(features, read)
    if in_order:
        runs = np.split(np.arange(len(on)), np.flatnonzero(np.diff(on)) + 1)
    else:
        runs = [rows for rows in (np.flatnonzero(on), np.flatnonzero(~on)) if len(rows)]
    parts = [(_taught if on[rows[0]] else _asked)(features, read[rows]) for rows in runs]
    seen = np.zeros((len(on), parts[-1].shape[1]))
    for rows, part in zip(runs, parts, strict=True):
        seen[rows, : part.shape[1]] = part
    return seen


_KINDS = {"f": "number", "O": "text", "M": "date"}  # by the dtype's letter of a table's column


def _learner_can(verb: str) -> Callable[["Pipeline"], bool]:
    return lambda pipeline: hasattr(pipeline.learner, verb)


class Pipeline(BaseEstimator):  # type: ignore[misc]
    """Features and a learner as one learner.

    Each row goes through the features, which learn it and give it on as seen at its time; then the
    learner says its answer and learns it. When the width grows, by a new category or column, the
    learner grows along, as if the new features had been zero in every row so far.

    It is one learner: whatever is raised anywhere leaves all its parts as they were. The steps are
    specifications and stay unlearned; what learns are copies, at ``features_`` and ``learner_``.

    In front of a learner that is free of the features' units (``_scale_invariant``, as recursive least
    squares are), features that only change units (``rescales``, as ``Scale`` does) are passed by:
    running statistics would give every row other units, and its exactness would be lost. In front
    of a feature that goes by units (``uses_units``, as ``RandomReLU``), they stay.
    ``describe`` shows it.

    Rows of weight 0 are answered, and learned by no part. Other weights go to the learner; to the
    features all rows count alike.

    Parameters
    ----------
    *steps : features, then one learner
        Such as ``Encode(), Impute(), Scale(), SGDRegressor()``.

    Attributes
    ----------
    features_ : list of Transformer
        The learned features in use.
    learner_ : Learner
        The learned learner; it knows the features by name.

    Raises
    ------
    TypeMismatchError
        If the steps are not features followed by one learner.

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
    learner_: Learner

    def __init__(self, *steps: Transformer | Learner) -> None:
        self._hold(steps)

    def _hold(self, steps: tuple[Transformer | Learner, ...]) -> None:
        if not self._fits(steps):
            came = ", ".join(
                f"the class {step.__name__}" if isinstance(step, type) else type(step).__name__
                for step in steps
            )
            if steps and (hasattr(steps[-1], "network") or hasattr(steps[-1], "after_task")):
                raise TypeMismatchError(
                    f"{type(self).__name__}: the learner must be one of tables, such as "
                    f"RLSRegressor(), got {came}: networks stand in no {type(self).__name__}. Give "
                    "them rows that features have transformed, as "
                    "net.learn(scale.learn_transform(X), y)."
                )
            raise TypeMismatchError(
                f"{type(self).__name__}: the steps must be features, then one learner, got "
                f"{came or 'none'}. Give objects such as Encode(), Scale(), RLSRegressor(), the "
                "learner last."
            )
        self.steps = steps

    def _fits(self, steps: tuple[Transformer | Learner, ...]) -> bool:
        *features, learner = steps or (None,)
        return isinstance(learner, Learner) and all(isinstance(f, Transformer) for f in features)

    # -- parts -------------------------------------------------------------------------------------

    def frozen_copy(self) -> Any:
        """A copy that says what this pipeline says now, and goes on saying it; not to learn."""
        twin = copy.copy(self)
        if self._begun:
            twin.features_ = [copy.copy(feature) for feature in self.features_]
            twin.learner_ = self.learner_.frozen_copy()
        return twin

    @property
    def learner(self) -> Learner:
        """The learned learner; before anything was learned, the one given."""
        learner: Learner = getattr(self, "learner_", self.steps[-1])
        return learner

    @property
    def features(self) -> list[Transformer]:
        """The learned features in use; before anything was learned, the given ones of them."""
        return list(getattr(self, "features_", self._in_use()))

    @property
    def n_features_in_(self) -> int:
        """The number of columns that come in."""
        return int(self._first().n_features_in_)

    @property
    def feature_names_in_(self) -> Array:
        """The names of the columns that come in, where they have names."""
        names: Array = self._first().feature_names_in_
        return names

    @property
    def rows_seen_(self) -> int:
        """Rows learned so far."""
        return int(self.learner_.rows_seen_)

    @property
    def classes_(self) -> Array:
        """The classes known so far, of a classifier."""
        classes: Array = self.learner_.classes_
        return classes

    @property
    def nbytes(self) -> int:
        """Bytes of all that was learned."""
        parts: list[Any] = [*self.features_, self.learner_] if self._begun else []
        return sum(int(part.nbytes) for part in parts)

    def get_feature_names_out(self) -> Array:
        """The names of the features that reach the learner, as text."""
        if self.features:
            said: Array = self.features[-1].get_feature_names_out()
            return said
        d = getattr(self.learner, "n_features_in_", 0)
        names = getattr(self.learner, "feature_names_in_", [f"x{j}" for j in range(d)])
        return np.array(names, dtype=object)

    def describe(self) -> str:
        """The steps, one a line: what each makes of its columns, and which are passed by."""
        used = iter(self.features)
        lines = []
        for i, step in enumerate(self.steps[:-1]):
            if self._passed_by(i):
                what = f"passed by: {type(self.learner).__name__} is free of the features' units"
            else:
                part = next(used)
                came = getattr(part, "n_features_in_", None)
                what = "" if came is None else f"{came} columns -> {part.n_features_out_}"
            lines.append((_line(step), what))
        seen = getattr(self.learner, "rows_seen_", 0)
        lines.append((_line(self.steps[-1]), f"{seen} rows learned"))
        width = max(len(name) for name, _ in lines)
        return "\n".join(f"{name:<{width}}  {what}".rstrip() for name, what in lines)

    @property
    def dtypes_(self) -> dict[str, str]:
        """The kinds of the columns that the first feature knows by name.

        They are "number", "text" or "date", as ``op.stream.read(..., kinds=model.dtypes_)`` takes
        them; empty where nothing was learned or columns have no kinds.
        """
        first = self.features_[0] if self._begun and self.features_ else None
        known: dict[str, Any] = getattr(first, "columns_", {})
        return {name: _KINDS[one.code] for name, one in known.items() if one is not None}

    @property
    def missing(self) -> str:
        """What becomes of rows that lack a value: "keep", "skip" or "error"."""
        return str(getattr(self.steps[0], "missing", "keep"))

    @property
    def uses_time(self) -> bool:
        """Whether the verbs that learn need the time of each row, for the learner."""
        return bool(getattr(self.learner, "uses_time", False))

    @property
    def merging(self) -> str:
        """What ``merge`` promises: ``exact``, ``approximate`` or ``refused``."""
        parts: list[Transformer | Learner] = [*self._in_use(), self.learner]
        said = {part.merging for part in parts}
        return next((word for word in ("refused", "approximate") if word in said), "exact")

    # -- verbs -------------------------------------------------------------------------------------

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
        X : rows of the first step's kind
            For ``Encode``: a DataFrame, Table, list of dicts or array. At least one row.
        y : array-like of shape (n,) or (n, c)
            One answer a row.
        sample_weight : array-like of shape (n,) or float, optional
            A weight >= 0 for each row.
        time : array-like of shape (n,), optional
            When each row happened, for a learner that forgets by time (``uses_time``).

        Returns
        -------
        self
        """
        self._take(X, y, sample_weight, "fit", _given(time=time))
        return self

    def partial_fit(
        self,
        X: TableLike,
        y: ArrayLike | None,
        *,
        sample_weight: ArrayLike | None = None,
        classes: ArrayLike | None = None,
        time: TimeLike | None = None,
    ) -> Self:
        """Learn the rows one after the other, on top of all learned so far.

        Parameters
        ----------
        X, y, sample_weight
            As in ``fit``; n may be zero. Rows of weight 0 are not learned.
        classes : array-like, optional
            For classifiers: labels that are known beforehand.
        time : array-like of shape (n,), optional
            As in ``fit``.

        Returns
        -------
        self

        Raises
        ------
        ParameterError
            If ``classes`` is given and the learner is no classifier.
        """
        if classes is not None and not is_classifier(self.learner):
            raise ParameterError(
                "Pipeline.partial_fit: `classes` must be left out unless the learner is a "
                f"classifier, got it with {type(self.learner).__name__}. Leave it out."
            )
        self._take(X, y, sample_weight, "partial_fit", _given(classes=classes, time=time))
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

        Parameters
        ----------
        X, y, sample_weight, time
            As in ``partial_fit``. Rows of weight 0 are answered and not learned.

        Returns
        -------
        said : ndarray of the shape of y
        """
        said: Array = self._take(X, y, sample_weight, "test_then_train", _given(time=time))
        return said

    def predict(self, X: TableLike, **options: object) -> Any:
        """Answers for the rows of X, shape (n,) or (n, c).

        Parameters
        ----------
        X : rows of the first step's kind
        **options
            What the learner's ``predict`` takes.

        Raises
        ------
        NotFittedError
            Before anything was learned.
        """
        return self.learner.predict(self._seen(X, "predict"), **options)

    @available_if(_learner_can("decision_function"))  # type: ignore[untyped-decorator]
    def decision_function(self, X: TableLike) -> Floats:
        """The classes' scores, as the learner's ``decision_function``."""
        scores: Floats = self.learner.decision_function(self._seen(X, "decision_function"))
        return scores

    @available_if(_learner_can("predict_proba"))  # type: ignore[untyped-decorator]
    def predict_proba(self, X: TableLike) -> Floats:
        """The classes' probabilities, as the learner's ``predict_proba``."""
        shares: Floats = self.learner.predict_proba(self._seen(X, "predict_proba"))
        return shares

    def score(self, X: TableLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """R² of a regressor, accuracy of a classifier, on these rows."""
        return float(self.learner.score(self._seen(X, "score"), y, sample_weight=sample_weight))

    def learn_one(
        self,
        x: ArrayLike | Mapping[str, object],
        y: ArrayLike,
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
            if not self._begun:
                self._begin()
            row = x
            if self.features_:
                read = self.features_[0].read_row(x, "Pipeline.learn_one", learning=True)
                row = self._ready((_taught if sample_weight else _asked)(self.features_, read))[0]
            self.learner_.learn_one(row, y, sample_weight, **_given(time=time))
        return self

    def predict_one(self, x: ArrayLike | Mapping[str, object]) -> Any:
        """The answer for one row; before anything was learned, that of the initial weights."""
        if not self._begun:
            features, learner = [clone(step) for step in self._in_use()], clone(self.steps[-1])
            if features:  # copies may learn the row: it would be the first
                read = features[0].read_row(x, "Pipeline.predict_one", learning=True)
                x = _padded(_taught(features, read))[0]
            return learner.predict_one(x)
        if self.features_:
            read = self.features_[0].read_row(x, "Pipeline.predict_one", learning=False)
            x = _padded(_asked(self.features_, read))[0]
        return self.learner_.predict_one(x)

    def merge(self, other: Self, *, concurrent: bool = False) -> Self:
        """Learn what another pipeline has learned, as if this one had seen its rows too.

        The other is not changed. Columns and categories that only the other knows are appended in
        the order in which they came there.

        Parameters
        ----------
        other : Pipeline of the same steps, with the same parameters
        concurrent : bool, default=False
            With forgetting. False: the other's rows came after this one's. True: the two streams
            ran side by side.

        Returns
        -------
        self

        Raises
        ------
        MergeError
            If the two are not alike, or the other's rows would have come out of the features in
            another way here, or the learners cannot be merged. Both are left as they were.
        """
        where = f"{type(self).__name__}.merge"
        self._check_mergeable(other, where)
        if not other.__sklearn_is_fitted__():
            return self
        if other is self:
            other = copy.deepcopy(other)
        with self._whole():
            if not self._begun:
                self._begin()
            at = None
            for mine, theirs in zip(self.features_, other.features_, strict=True):
                self._check_same(mine, theirs, where)
                at = mine.join(theirs, at, where)
            if at is None:
                at = column_positions(self.learner_, other.learner_, where)
            elif not len(at.at):  # a learner behind no columns has one, which is 0
                at = ColumnPositions(np.zeros(1, dtype=np.intp), max(at.d, 1), at.names or None)
            self.learner_.join(other.learner_, at, concurrent=concurrent)
        return self

    # -- as scikit-learn sees it -------------------------------------------------------------------

    def get_params(self, deep: bool = True) -> dict[str, Any]:  # noqa: FBT001, FBT002
        """The steps and, if deep, each by its name, with its parameters as ``<name>__<parameter>``.

        A step's name is its class's in lower case; of several of one class, the later ones are
        numbered: ``encode``, ``scale``, ``scale-2``.
        """
        params: dict[str, Any] = {"steps": self.steps}
        for name, step in _named(self.steps).items() if deep else ():
            params[name] = step
            params |= {f"{name}__{key}": value for key, value in step.get_params().items()}
        return params

    def set_params(self, **params: Any) -> Self:
        """Give ``steps``, a step by its name, or ``<name>__<parameter>``; what is learned stays.

        The steps given to the constructor are left as they were: changed ones are copies.

        Raises
        ------
        ParameterError
            If there is no such parameter.
        """
        steps = _named(params.pop("steps", self.steps))
        for key, value in sorted(params.items(), key=lambda item: "__" in item[0]):
            name, _, parameter = key.partition("__")
            if name not in steps:
                raise ParameterError(
                    f"{type(self).__name__}.set_params: a parameter must be `steps`, or begin with "
                    f"one of {', '.join(steps)}, got {key!r}. Check the spelling: get_params()."
                )
            step = value
            if parameter:
                step = clone(steps[name]).set_params(**{parameter: value})
            steps[name] = step
        self._hold(tuple(steps.values()))
        return self

    def __sklearn_clone__(self) -> Self:
        return type(self)(*map(clone, self.steps))

    def __sklearn_is_fitted__(self) -> bool:
        return self._begun and bool(self.learner_.__sklearn_is_fitted__())

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        of_learner = get_tags(self.learner)
        for name in ("estimator_type", "classifier_tags", "regressor_tags", "target_tags"):
            setattr(tags, name, getattr(of_learner, name))
        return tags

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:
        del N_CHAR_MAX
        return f"{type(self).__name__}({', '.join(map(_line, self.steps))})"

    # -- what stands behind them -------------------------------------------------------------------

    @property
    def _begun(self) -> bool:
        return hasattr(self, "learner_")

    @property
    def _sound(self) -> bool:
        """Whether what was learned, as a file may say it, is what such steps learn."""
        parts = getattr(self, "features_", None)
        if not self._begun:
            return parts is None
        return type(parts) is list and self._fits((*parts, self.learner_))

    def _passed_by(self, i: int) -> bool:
        step, behind = self.steps[i], self.steps[i + 1 : -1]
        free = getattr(self.steps[-1], "_scale_invariant", False)
        return step.rescales and free and not any(one.uses_units for one in behind)

    def _in_use(self) -> list[Transformer]:
        return [step for i, step in enumerate(self.steps[:-1]) if not self._passed_by(i)]

    def _first(self) -> Any:
        return self.features_[0] if self._begun and self.features_ else self.learner

    def _begin(self) -> None:
        self.features_ = [clone(step) for step in self._in_use()]
        self.learner_ = clone(self.steps[-1])

    def _check_mergeable(self, other: Self, where: str) -> None:
        """Refuse other steps, or steps of other parameters."""
        check_same_parameters(self, other, (), where)
        one, two = (" > ".join(type(step).__name__ for step in p.steps) for p in (self, other))
        if one != two:
            raise MergeError(
                f"{where}: both must have the same steps, {one} as in the first, got {two}. "
                "Learn all parts with the same Pipeline."
            )
        for mine, theirs in zip(self._in_use(), other._in_use(), strict=True):
            check_same_parameters(mine, theirs, list(mine.get_params(deep=False)), where)
        self.learner.check_mergeable(other.learner, where)

    def _check_same(self, mine: Transformer, theirs: Transformer, where: str) -> None:
        if hasattr(mine, "rows_seen_") and theirs.rows_seen_ and (reason := mine.differs(theirs)):
            raise MergeError(
                f"{where}: {type(mine).__name__} must have given the rows of both alike, but "
                f"{reason}, or let one pipeline see all rows."
            )

    def _whole(self) -> AbstractContextManager[None]:
        parts = [*self.features_, self.learner_] if self._begun else []
        return all_or_nothing(self, *parts)

    def _take(
        self,
        X: TableLike,
        y: ArrayLike | None,
        sample_weight: ArrayLike | None,
        verb: str,
        named: Mapping[str, object],
    ) -> Any:
        """Learn rows in all parts; return what the learner's verb does."""
        with self._whole():
            if verb == "fit" or not self._begun:
                self._begin()
            if self.features_:
                where = f"Pipeline.{verb}"
                read = self.features_[0].read_rows(X, where, learning=True)
                sample_weight = validation.weights(sample_weight, len(read), where)
                on = np.ones(len(read), dtype=bool) if sample_weight is None else sample_weight > 0
                in_order = verb == "test_then_train"
                X = self._ready(_taught_where(self.features_, read, on, in_order=in_order))
                if verb == "fit" and len(X) and on.any():
                    verb = "partial_fit"  # the learner is a new one, and knows the names already
            return getattr(self.learner_, verb)(X, y, sample_weight=sample_weight, **named)

    def _seen(self, X: TableLike, verb: str) -> Any:
        """The rows as the learner is asked about them."""
        if not self._begun:
            raise NotFittedError(
                f"Pipeline.{verb}: this Pipeline is not fitted yet: it has learned no row. Call "
                "fit, partial_fit or learn_one first; predict_one and test_then_train answer "
                "from the start."
            )
        if not self.features_:
            return X
        read = self.features_[0].read_rows(X, f"Pipeline.{verb}", learning=False)
        return _padded(_asked(self.features_, read))

    def _ready(self, Z: Floats) -> Floats:
        """Rows for the learner, which grows with them and is told the features' names."""
        Z = _padded(Z)
        width, learner = Z.shape[1], self.learner_
        grown = width != getattr(learner, "n_features_in_", None)
        if grown:
            learner.grow(width)
        if grown or not hasattr(learner, "feature_names_in_"):
            names = self.features_[-1].get_feature_names_out()
            if len(names) == width:
                learner.feature_names_in_ = names
        return Z


def _line(step: object) -> str:
    """A step in words, in one line."""
    return re.sub(r"\n\s+", " ", repr(step))


def _named(steps: tuple[Transformer | Learner, ...]) -> dict[str, Transformer | Learner]:
    """The steps by their names."""
    named: dict[str, Transformer | Learner] = {}
    for step in steps:
        name = type(step).__name__.lower()
        same = sum(type(other) is type(step) for other in named.values())
        named[f"{name}-{same + 1}" if same else name] = step
    return named


def _given(**arguments: _Value) -> dict[str, _Value]:
    """The arguments that are not None: a learner need not know of the others."""
    return {name: value for name, value in arguments.items() if value is not None}


def _padded(Z: Floats) -> Floats:
    """A learner has at least one feature: before the first one comes, it is 0."""
    return Z if Z.shape[1] else np.zeros((Z.shape[0], 1))
