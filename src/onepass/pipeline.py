"""Pipeline: features and a learner as one learner, learned, asked and saved as one thing."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Self

import numpy as np
from sklearn.base import clone, is_classifier
from sklearn.utils.metaestimators import available_if

from onepass import validation
from onepass.errors import Array, Floats, NotFittedError, ParameterError
from onepass.features.chain import asked, taught, taught_where
from onepass.features.joint import JointSteps
from onepass.features.transformer import Transformer, all_or_nothing
from onepass.learners.estimator import Learner

__all__ = ["Pipeline"]

_KINDS = {"f": "number", "O": "text", "M": "date"}  # by the dtype's letter of a table's column


def _learner_can(verb: str) -> Callable[["Pipeline"], bool]:
    return lambda pipeline: hasattr(pipeline.learner, verb)


class Pipeline(JointSteps):
    """Features and a learner as one learner.

    Each row goes through the features, which learn it and give it on as seen at its time; then the
    learner says its answer and learns it. When the width grows, by a new category or column, the
    learner grows along, as if the new features had been zero in every row so far.

    It is one learner: whatever is raised anywhere leaves all its parts as they were. The steps are
    specifications and stay unlearned; what learns are copies, at ``features_`` and ``learner_``.

    In front of a learner that is free of the features' units (``scale_free``, as recursive least
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

    def _fits(self, steps: tuple[Any, ...]) -> bool:
        *features, learner = steps or (None,)
        return isinstance(learner, Learner) and all(isinstance(f, Transformer) for f in features)

    @property
    def kinds_(self) -> dict[str, str]:
        """The kinds of the columns that the first feature knows by name.

        They are "number", "text" or "date", as ``op.stream.read(..., kinds=model.kinds_)`` takes
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

    # -- verbs -------------------------------------------------------------------------------------

    def fit(self, X: Any, y: Any, sample_weight: Any = None, *, time: Any = None) -> Self:
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
        self, X: Any, y: Any, *, sample_weight: Any = None, classes: Any = None, time: Any = None
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
        self, X: Any, y: Any, sample_weight: Any = None, *, time: Any = None
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

    def predict(self, X: Any, **options: Any) -> Any:
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
    def decision_function(self, X: Any) -> Floats:
        """The classes' scores, as the learner's ``decision_function``."""
        scores: Floats = self.learner.decision_function(self._seen(X, "decision_function"))
        return scores

    @available_if(_learner_can("predict_proba"))  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> Floats:
        """The classes' probabilities, as the learner's ``predict_proba``."""
        shares: Floats = self.learner.predict_proba(self._seen(X, "predict_proba"))
        return shares

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """R² of a regressor, accuracy of a classifier, on these rows."""
        return float(self.learner.score(self._seen(X, "score"), y, sample_weight=sample_weight))

    def learn_one(self, x: Any, y: Any, sample_weight: float = 1.0, *, time: Any = None) -> Self:
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
                row = self._ready((taught if sample_weight else asked)(self.features_, read))[0]
            self.learner_.learn_one(row, y, sample_weight, **_given(time=time))
        return self

    def predict_one(self, x: Any) -> Any:
        """The answer for one row; before anything was learned, that of the initial weights."""
        if not self._begun:
            features, learner = [clone(step) for step in self._in_use()], clone(self.steps[-1])
            if features:  # copies may learn the row: it would be the first
                read = features[0].read_row(x, "Pipeline.predict_one", learning=True)
                x = _padded(taught(features, read))[0]
            return learner.predict_one(x)
        if self.features_:
            read = self.features_[0].read_row(x, "Pipeline.predict_one", learning=False)
            x = _padded(asked(self.features_, read))[0]
        return self.learner_.predict_one(x)

    # -- what stands behind them -------------------------------------------------------------------

    def _begin(self) -> None:
        self.features_ = [clone(step) for step in self._in_use()]
        self.learner_ = clone(self.steps[-1])

    def _need(self, verb: str) -> None:
        if not self._begun:
            raise NotFittedError(
                f"Pipeline.{verb}: this Pipeline is not fitted yet: it has learned no row. Call "
                "fit, partial_fit or learn_one first; predict_one and test_then_train answer "
                "from the start."
            )

    def _whole(self) -> AbstractContextManager[None]:
        parts = [*self.features_, self.learner_] if self._begun else []
        return all_or_nothing(self, *parts)

    def _take(self, X: Any, y: Any, sample_weight: Any, verb: str, named: dict[str, Any]) -> Any:
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
                X = self._ready(taught_where(self.features_, read, on, in_order=in_order))
                if verb == "fit" and len(X) and on.any():
                    verb = "partial_fit"  # the learner is a new one, and knows the names already
            return getattr(self.learner_, verb)(X, y, sample_weight=sample_weight, **named)

    def _seen(self, X: Any, verb: str) -> Any:
        """The rows as the learner is asked about them."""
        self._need(verb)
        if not self.features_:
            return X
        read = self.features_[0].read_rows(X, f"Pipeline.{verb}", learning=False)
        return _padded(asked(self.features_, read))

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


def _given(**arguments: Any) -> dict[str, Any]:
    """The arguments that are not None: a learner need not know of the others."""
    return {name: value for name, value in arguments.items() if value is not None}


def _padded(Z: Floats) -> Floats:
    """A learner has at least one feature: before the first one comes, it is 0."""
    return Z if Z.shape[1] else np.zeros((Z.shape[0], 1))
