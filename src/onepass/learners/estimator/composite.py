"""Base class of estimators that learn with another estimator, their model."""

import re
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Self

from sklearn.base import BaseEstimator, is_classifier
from sklearn.utils import get_tags

from onepass.errors import OnepassError, ParameterError
from onepass.learners.estimator.tags import with_onepass_tags
from onepass.types import Array, ArrayLike, TimeLike
from onepass.validation.table import TableLike

__all__ = ["Composite", "naming"]

_CALL = re.compile(r"^\w+\.\w+: ")
_ROW = re.compile(r"\b(in|at) row (\d+)\b")


@contextmanager
def naming(place: str, rows: Array | None = None) -> Iterator[None]:
    """Replace the call in errors by a place, and a row of the model by the row of the block.

    Parameters
    ----------
    place : str
        The public call, and the model if there are several.
    rows : ndarray of int, optional
        The rows of the block that the model receives.
    """
    try:
        yield
    except OnepassError as error:
        text = _CALL.sub("", str(error))
        if rows is not None:
            at = rows.tolist()
            text = _ROW.sub(lambda found: f"{found[1]} row {at[int(found[2])]}", text)
        raise type(error)(f"{place}: {text}") from error


class Composite(BaseEstimator):  # type: ignore[misc]
    """Base class of estimators that learn with copies of ``model``."""

    model: Any

    @abstractmethod
    def _learn(
        self, X: Any, y: Any, sample_weight: Any, time: Any, verb: str, classes: Any = None
    ) -> Any:
        """Learn a block, or nothing if an error is raised; return the prequential predictions."""

    def fit(
        self,
        X: TableLike,
        y: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        *,
        time: TimeLike | None = None,
    ) -> Self:
        """Reset, then learn the rows; with keys, those of each key one after the other.

        Parameters
        ----------
        X : array-like of shape (n, d), DataFrame, Table or sequence of dicts
            At least one row; with the key column, if the model is chosen by key.
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
        classes: ArrayLike | None = None,
        time: TimeLike | None = None,
    ) -> Self:
        """Learn the rows, continuing from the current state.

        The division of a stream into blocks affects only the speed. An error in any row leaves the
        state unchanged.

        Parameters
        ----------
        X, y, sample_weight
            As in ``fit``. Rows of weight 0 are not learned.
        classes : array-like, optional
            For classifiers: labels known in advance, with keys for all keys, also later ones.
        time : array-like of shape (n,), optional
            As in ``fit``.

        Returns
        -------
        self
        """
        if classes is not None and not is_classifier(self.model):
            raise ParameterError(
                f"{type(self).__name__}.partial_fit: `classes` must be omitted unless the model is "
                f"a classifier, got {type(self.model).__name__}. Remove it."
            )
        self._learn(X, y, sample_weight, time, "partial_fit", classes)
        return self

    def test_then_train(
        self,
        X: TableLike,
        y: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        *,
        time: TimeLike | None = None,
    ) -> Array:
        """Predict each row by its model, then learn it.

        Parameters
        ----------
        X, y, sample_weight, time
            As in ``partial_fit``. Rows of weight 0 are predicted, but not learned.

        Returns
        -------
        predictions : ndarray of the shape of y
            The prequential predictions, in the order of the rows.
        """
        predictions: Array = self._learn(X, y, sample_weight, time, "test_then_train")
        return predictions

    @property
    def _uses_time(self) -> bool:
        """Whether the model requires the time of each row."""
        return bool(getattr(self.model, "_uses_time", False))

    def __sklearn_tags__(self) -> Any:
        tags, model_tags = with_onepass_tags(super().__sklearn_tags__(), self), get_tags(self.model)
        for name in ("estimator_type", "classifier_tags", "regressor_tags", "target_tags"):
            setattr(tags, name, getattr(model_tags, name))
        return tags
