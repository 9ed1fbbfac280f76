"""River: learners of onepass as estimators of River, and River's models as entrants here [1].

``wrap`` gives an estimator of the right base class. It answers before it has learned, takes
features that appear, by their prior, and those that disappear, as 0, in dicts or in DataFrames.
``adopt`` gives what ``op.evaluate.prequential`` puts to the test.

[1] J. Montiel et al., "River: machine learning for streaming data in Python", JMLR 22, 2021.
"""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from onepass.compat.adopted import adopt
from onepass.compat.wrapped import Row, Wrapped, classifies, frame, series
from onepass.errors import ColumnError, ParameterError, TypeMismatchError, need
from onepass.learners import RLSClassifier, RLSRegressor
from onepass.validation.table import Table

need("river", extra="river", where="op.compat.river")

from river import base  # noqa: E402  only after the error that names the extra

__all__ = ["Classifier", "MultiTargetRegressor", "Regressor", "adopt", "wrap"]


def wrap(model: Any, *, targets: Sequence[Hashable] | bool | None = None) -> Any:
    """A learner or Pipeline as an estimator of River.

    A copy learns, at ``model_``; ``op.save(wrapped.model_, path)`` writes it. What the model has
    learned before is kept, and is where a ``clone()`` begins. Features of plain learners are
    numbers; a Pipeline that begins with ``Encode`` takes text, dates and missing values too.

    Parameters
    ----------
    model : learner or Pipeline
        Such as ``op.RLSRegressor()``.
    targets : True, or sequence of names, optional
        For regressors with several answers a row, which River gives as a dict: their names, or
        True to take those of the first row. A model that has learned several needs the names.

    Returns
    -------
    Regressor, Classifier or MultiTargetRegressor
        A ``river.base.MiniBatchRegressor``, ``MiniBatchClassifier`` or ``MultiTargetRegressor``.

    Raises
    ------
    MissingExtraError
        If River is not installed: the extra is ``river``.
    TypeMismatchError
        If the model is neither learner nor Pipeline.
    ColumnError
        If it has learned rows without names.
    ParameterError
        If ``targets`` does not fit the model.

    Examples
    --------
    >>> from river import datasets, evaluate, metrics
    >>> import onepass as op
    >>> model = op.compat.river.wrap(op.RLSRegressor(ridge=1.0))
    >>> evaluate.progressive_val_score(datasets.TrumpApproval().take(500), model, metrics.MAE())
    MAE: 0.597898
    """
    if targets is None and classifies(model):
        return Classifier(model)
    if targets is None or targets is False:
        return Regressor(model)
    return MultiTargetRegressor(model, None if targets is True else targets)


class Regressor(Wrapped, base.MiniBatchRegressor):
    """A regressor of onepass as one of River: see :func:`wrap`.

    Parameters
    ----------
    model : learner or Pipeline
        It regresses.

    Examples
    --------
    >>> model = Regressor(RLSRegressor(ridge=0.0))
    >>> model.predict_one({"km": 1.0})
    0.0
    >>> for km in (1.0, 2.0, 4.0):
    ...     model.learn_one({"km": km}, 3.0 * km)
    >>> round(model.predict_one({"km": 3.0, "new": 1.0}), 6)
    9.0
    """

    def __init__(self, model: Any) -> None:
        super().__init__(model)
        if classifies(model) or _learned_answers(model) is not None:
            came = "a classifier" if classifies(model) else "one that learned several answers"
            raise ParameterError(
                f"Regressor: `model` must regress one answer a row, got {came}. Call "
                "op.compat.river.wrap, which chooses the class."
            )

    def learn_one(self, x: Row, y: Any, w: float = 1.0, t: Any = None) -> None:
        """Learn one row, of weight ``w``; ``t`` is when it happened, for learners that ask."""
        if isinstance(y, Mapping):
            raise TypeMismatchError(
                f"{self._where('learn_one')}: `y` must be a number, got a dict. For several "
                "answers a row call op.compat.river.wrap(model, targets=True)."
            )
        self._learn(x, y, w, t)

    def predict_one(self, x: Row) -> float:
        """The answer for one row."""
        return float(self._said(x))

    def learn_many(self, X: Any, y: Any, w: Any = 1.0, t: Any = None) -> None:
        """Learn the rows of a frame one after the other; ``w`` is a number or one for each."""
        self._learn_block(X, y, w, t)

    def predict_many(self, X: Any) -> Any:
        """The answers for the rows of a frame, as a series of the same library."""
        return series([float(said) for said in self._said_block(X)], X)

    @classmethod
    def _unit_test_params(cls) -> Iterator[dict[str, Any]]:
        yield {"model": RLSRegressor()}


class Classifier(Wrapped, base.MiniBatchClassifier):
    """A classifier of onepass as one of River: see :func:`wrap`.

    Labels may be truth values, whole numbers or text, and new ones may come at any time. There are
    probabilities where the model has some (``SGDClassifier(loss="logistic")``); none are invented.

    Parameters
    ----------
    model : learner or Pipeline
        It classifies.

    Examples
    --------
    >>> model = Classifier(RLSClassifier())
    >>> for km, by in ((1.0, "foot"), (9.0, "bus"), (2.0, "foot"), (8.0, "bus")):
    ...     model.learn_one({"km": km}, by)
    >>> model.predict_one({"km": 7.0})
    'bus'
    """

    def __init__(self, model: Any) -> None:
        super().__init__(model)
        if not classifies(model):
            raise ParameterError(
                f"Classifier: `model` must be a classifier, got {type(model).__name__}. Call "
                "op.compat.river.wrap, which chooses the class."
            )

    def learn_one(self, x: Row, y: Any, w: float = 1.0, t: Any = None) -> None:
        """Learn one row, of weight ``w``; ``t`` is when it happened, for learners that ask."""
        self._learn(x, y, w, t)

    def predict_one(self, x: Row, **kwargs: Any) -> Any:
        """The label of one row; None before any is known."""
        del kwargs
        said = self._said(x)
        return said.item() if isinstance(said, np.generic) else said

    def predict_proba_one(self, x: Row, **kwargs: Any) -> dict[Any, float]:
        """The probability of each label known; {} before any is.

        Raises
        ------
        NotImplementedError
            If the model has none, as is River's custom.
        """
        del kwargs
        where = self._probable("predict_proba_one")
        row = self._intake.row(x, where, learning=False)
        labels, shares = self._shares(
            Table.from_rows([row]) if isinstance(row, dict) else row[None]
        )
        return dict(zip(labels, shares[0].tolist(), strict=True))

    def learn_many(self, X: Any, y: Any, w: Any = 1.0, t: Any = None) -> None:
        """Learn the rows of a frame one after the other; ``w`` is a number or one for each."""
        self._learn_block(X, y, w, t)

    def predict_many(self, X: Any) -> Any:
        """The labels of the rows of a frame, as a series of the same library."""
        return series(self._said_block(X), X)

    def predict_proba_many(self, X: Any) -> Any:
        """The probabilities of the labels, as a frame of the same library."""
        where = self._probable("predict_proba_many")
        labels, shares = self._shares(self._intake.block(X, where, learning=False))
        return frame(dict(zip(labels, shares.T, strict=True)), X)

    def _probable(self, verb: str) -> str:
        """The call's name for messages, where the model has probabilities."""
        where = self._where(verb)
        if not hasattr(self.model_, "predict_proba"):
            name = type(getattr(self.model_, "learner", self.model_)).__name__
            raise NotImplementedError(
                f"{where}: the model must have probabilities, got {name}, which has scores "
                'only. Wrap op.SGDClassifier(loss="logistic"), or call predict_one.'
            )
        return where

    @property
    def _multiclass(self) -> bool:
        return True

    @classmethod
    def _unit_test_params(cls) -> Iterator[dict[str, Any]]:
        yield {"model": RLSClassifier()}


class MultiTargetRegressor(Wrapped, base.MultiTargetRegressor):
    """A regressor of onepass with several answers a row as one of River: see :func:`wrap`.

    Parameters
    ----------
    model : learner or Pipeline
        It regresses.
    targets : sequence of names, optional
        The answers' names; by default those of the first row, in sorted order. A model that has
        learned needs them.

    Examples
    --------
    >>> model = MultiTargetRegressor(RLSRegressor(ridge=0.0))
    >>> for km in (1.0, 2.0, 4.0):
    ...     model.learn_one({"km": km}, {"hours": 0.1 * km, "price": 3.0 * km})
    >>> {name: round(said, 6) for name, said in model.predict_one({"km": 3.0}).items()}
    {'hours': 0.3, 'price': 9.0}
    """

    def __init__(self, model: Any, targets: Sequence[Hashable] | None = None) -> None:
        super().__init__(model)
        listed = [] if targets is None or isinstance(targets, str) else list(targets)
        if targets is not None and (not listed or len(set(listed)) < len(listed)):
            raise ParameterError(
                f"MultiTargetRegressor: `targets` must be a list of different names, got "
                f"{targets!r}. Name each answer once, as in targets=['u', 'v']."
            )
        self.targets = targets
        self._targets = None if targets is None else tuple(targets)
        learned = _learned_answers(model)
        if classifies(model) or (learned is not None and learned != len(self._targets or ())):
            came = "a classifier" if classifies(model) else f"one that learned {learned} answers"
            raise ParameterError(
                f"MultiTargetRegressor: `model` must regress, and `targets` name its answers, got "
                f"{came} and targets={targets!r}. Name the answers in the order it learned them."
            )

    def learn_one(
        self,
        x: Row,
        y: Mapping[Hashable, Any],
        w: float = 1.0,
        t: Any = None,
        **kwargs: Any,
    ) -> None:
        """Learn one row of weight ``w`` and its answers; ``t`` is when it happened."""
        del kwargs
        if not isinstance(y, Mapping) or not y:
            raise TypeMismatchError(
                f"{self._where('learn_one')}: `y` must be a dict of answers by name, got {y!r}. "
                "For one answer a row call op.compat.river.wrap(model)."
            )
        targets = tuple(sorted(y, key=str)) if self._targets is None else self._targets
        if set(y) != set(targets):
            raise ColumnError(
                f"{self._where('learn_one')}: `y` must have the answers {list(targets)}, got "
                f"{list(y)}. Give all of them in each row."
            )
        self._learn(x, [y[name] for name in targets], w, t)
        self._targets = targets

    def predict_one(self, x: Row) -> dict[Hashable, float]:
        """The answers for one row; {} before their names are known."""
        targets = self._targets or ()
        said = np.broadcast_to(self._said(x), len(targets)).tolist() if targets else []
        return dict(zip(targets, said, strict=True))

    @classmethod
    def _unit_test_params(cls) -> Iterator[dict[str, Any]]:
        yield {"model": RLSRegressor()}


def _learned_answers(model: Any) -> int | None:
    """How many answers a row a model has learned; None where it is one, or none yet."""
    learner = getattr(model, "learner", model)
    several = getattr(learner, "answer_ndim_", 1) == 2
    return int(learner.n_outputs_) if several else None
