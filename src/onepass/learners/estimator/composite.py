"""Base class of estimators that learn with another estimator, their model."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from threading import RLock
from typing import Any, Self
from weakref import WeakKeyDictionary

from sklearn.base import is_classifier
from sklearn.utils import get_tags

from onepass.errors import OnepassError, ParameterError, public
from onepass.estimators import BaseEstimator
from onepass.learners.estimator.tags import with_onepass_tags
from onepass.types import Array, ArrayLike, TimeLike
from onepass.validation.table import TableLike

_LOCKS: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()
"""The lock of each estimator that learns; not part of its state, which is copied and saved."""

_ROWS = ("", "X", "x", "y", "sample_weight", "time")


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
        row = error.row if error.row is None or rows is None else int(rows[error.row])
        call, _, inner = error.where.partition(": ")
        inner = inner or (owner_of_parameter(error) if "." in call else call)
        raise error.at(where=f"{place}: {inner}" if inner else place, row=row) from error


def owner_of_parameter(error: OnepassError) -> str:
    """The class whose parameter an error is about; empty for an error about rows.

    Parameters
    ----------
    error : OnepassError
        An error that names the call.
    """
    owner, dot, verb = error.where.rpartition(".")
    owner = owner if dot else verb
    about_rows = not isinstance(error, ParameterError) or error.argument in _ROWS
    return "" if about_rows or not owner[:1].isupper() else owner


def given(**named: Any) -> dict[str, Any]:
    """The arguments that are not None; a model may not accept the others.

    Parameters
    ----------
    **named
        Arguments of a method of the model.
    """
    return {name: value for name, value in named.items() if value is not None}


def lock_of(estimator: Any) -> Any:
    """The lock of an estimator, a context manager, which is not part of its state.

    Parameters
    ----------
    estimator : estimator
    """
    return _LOCKS.get(estimator) or _LOCKS.setdefault(estimator, RLock())


class Composite(BaseEstimator):
    """Base class of estimators that learn with copies of ``model``."""

    @property
    def _inner(self) -> Any:
        """The estimator that learns."""
        return getattr(self, "model", None)

    @property
    def _lock(self) -> Any:
        """The lock of the thread that learns, of which a copy is assigned after each block.

        Predictions do not wait for it.
        """
        return lock_of(self)

    @property
    def _returns_proba(self) -> bool:
        return bool(is_classifier(self._inner))

    @abstractmethod
    def _learn(
        self, X: Any, y: Any, sample_weight: Any, verb: str, *args: Any, **named: Any
    ) -> Any:
        """Learn a block, or nothing if an error is raised; return the prequential predictions.

        ``named`` are time, classes and return_proba, where they are given.
        """

    @public
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
        with self._lock:
            self._learn(X, y, sample_weight, "fit", **given(time=time))
        return self

    @public
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
        if classes is not None and not is_classifier(self._inner):
            raise ParameterError(
                "`classes` must be omitted unless the model is a classifier, got "
                f"{type(self._inner).__name__}. Remove it."
            )
        with self._lock:
            self._learn(X, y, sample_weight, "partial_fit", **given(time=time, classes=classes))
        return self

    @public
    def test_then_train(
        self,
        X: TableLike,
        y: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        *,
        time: TimeLike | None = None,
        return_proba: bool = False,
    ) -> Any:
        """Predict each row by its model, then learn it.

        Parameters
        ----------
        X, y, sample_weight, time
            As in ``partial_fit``. Rows of weight 0 are predicted, but not learned.
        return_proba : bool, default=False
            Whether to also return probabilities, as ``test_then_train`` of classifiers does; not
            with keys.

        Returns
        -------
        predictions : ndarray of the shape of y
            The prequential predictions, in the order of the rows.
        probabilities : ndarray of shape (n, c)
            Only with ``return_proba``.
        """
        if return_proba and not self._returns_proba:
            raise ParameterError(
                "`return_proba` must be False for regressors and models by key, got "
                f"True for {type(self._inner).__name__}. Remove it."
            )
        named = given(time=time, return_proba=return_proba or None)
        with self._lock:
            return self._learn(X, y, sample_weight, "test_then_train", **named)

    @property
    def _uses_time(self) -> bool:
        """Whether the model requires the time of each row."""
        return bool(getattr(self._inner, "_uses_time", False))

    @property
    def _target_delay(self) -> int | None:
        """The delay of targets for which lags of the model are set; None without lags."""
        delay: int | None = getattr(self._inner, "_target_delay", None)
        return delay

    @property
    def _lagged_target(self) -> str | None:
        """The name of the target whose lags are features of the model; None without lags."""
        name: str | None = getattr(self._inner, "_lagged_target", None)
        return name

    @property
    def _learns_gaps(self) -> bool:
        """Whether the model learns rows whose target is missing."""
        return bool(getattr(self._inner, "_learns_gaps", False))

    @property
    def _scores_blocks(self) -> bool:
        """Whether blocks are learned with the scores of all rows."""
        return self._returns_proba and getattr(self._inner, "_scores_blocks", False)

    def __sklearn_tags__(self) -> Any:
        tags = with_onepass_tags(super().__sklearn_tags__(), self)
        model_tags = get_tags(self._inner)
        for name in ("estimator_type", "classifier_tags", "regressor_tags", "target_tags"):
            setattr(tags, name, getattr(model_tags, name))
        return tags
