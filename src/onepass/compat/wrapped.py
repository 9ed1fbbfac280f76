"""Wrapped: a model behind the verbs of River, of one row and of frames."""

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import narwhals.stable.v1 as nw
import numpy as np
from sklearn.base import is_classifier

from onepass.compat.intake import Intake
from onepass.errors import Array
from onepass.features.pipeline import Steps
from onepass.learners.estimator import Learner

__all__ = ["Row", "Wrapped", "classifies", "frame", "series"]

Row = Mapping[Any, Any]
"""A row as River gives it: features by name; names are any hashable thing."""


class Wrapped:
    """What all estimators for River have in common; stands before River's own base class.

    Parameters
    ----------
    model : learner or Pipeline
        A copy of it learns, at ``model_``.
    """

    model: Any

    def __init__(self, model: Any) -> None:
        self.model = model
        self._intake = Intake(model)

    @property
    def model_(self) -> Any:
        """The learner or Pipeline that learns."""
        return self._intake.model_

    def _learn(self, x: Row, y: Any, w: float, t: Any) -> None:
        loop = self._intake.loop
        if loop is not None and t is None and loop.learn_one(x, y, w):
            return
        with self._intake.whole():
            row = self._intake.row(x, self._where("learn_one"), learning=True)
            self.model_.learn_one(row, y, sample_weight=w, **_at(t))

    def _said(self, x: Row) -> Any:
        loop = self._intake.loop
        said = None if loop is None else loop.predict_one(x)
        if said is not None:
            return said
        row = self._intake.row(x, self._where("predict_one"), learning=False)
        return self.model_.predict_one(row)

    def _learn_block(self, X: Any, y: Any, w: Any, t: Any) -> None:
        with self._intake.whole():
            rows = self._intake.block(X, self._where("learn_many"), learning=True)
            weights = None if isinstance(w, (int, float)) and w == 1 else np.asarray(w)
            self.model_.partial_fit(rows, _listed(y), sample_weight=weights, **_at(_listed(t)))

    def _said_block(self, X: Any) -> list[Any]:
        rows = self._intake.block(X, self._where("predict_many"), learning=False)
        if not self._intake.fitted:
            return [self._said(row) for row in rows.rows()]
        answers: list[Any] = self.model_.predict(rows).tolist()
        return answers

    def _shares(self, rows: Any) -> tuple[list[Any], Array]:
        """The labels known, and the probability of each in each row, (n, c)."""
        model = self.model_
        if not self._intake.fitted:
            named = getattr(model, "learner", model).classes
            if named is None or len(named) == 0:
                return [], np.empty((len(rows), 0))
            model = deepcopy(model).partial_fit(rows[:1], named[:1], sample_weight=0.0)
        return model.classes_.tolist(), model.predict_proba(rows)

    def _where(self, verb: str) -> str:
        return f"{type(self).__name__}.{verb}"


def classifies(model: Any) -> bool:
    """Whether it is a learner or Pipeline of onepass, and a classifier.

    Parameters
    ----------
    model : object
    """
    return isinstance(model, (Learner, Steps)) and bool(is_classifier(model))


def _at(t: Any) -> dict[str, Any]:
    """When a row happened, where it is said."""
    return {} if t is None else {"time": t}


def _listed(y: Any) -> Any:
    """Answers as a list: a series of any library, or whatever was given."""
    native = nw.from_native(y, series_only=True, pass_through=True)
    return native.to_list() if isinstance(native, nw.Series) else y


def series(values: list[Any], like: Any) -> Any:
    """Values as a series of the library, and with the index, of a frame.

    Parameters
    ----------
    values : list of length n
    like : DataFrame of n rows
    """
    frame = nw.from_native(like, eager_only=True)
    made = nw.new_series("", values, backend=frame.implementation).to_native()
    return _indexed(made, frame)


def frame(columns: dict[Any, Any], like: Any) -> Any:
    """Columns as a frame of the library, and with the index, of another.

    Parameters
    ----------
    columns : dict of names to arrays of shape (n,)
        Names are text but for pandas.
    like : DataFrame of n rows
    """
    frame = nw.from_native(like, eager_only=True)
    if not frame.implementation.is_pandas_like():
        columns = {str(name): values for name, values in columns.items()}
    return _indexed(nw.from_dict(columns, backend=frame.implementation).to_native(), frame)


def _indexed(made: Any, frame: Any) -> Any:
    index = nw.maybe_get_index(frame)
    if index is not None:
        made.index = index
    return made
