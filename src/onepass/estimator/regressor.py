"""Regressor: answers are real numbers, one or several a row."""

import math
from typing import Any

import numpy as np
from sklearn.base import RegressorMixin

from onepass import validation
from onepass.errors import Array, Floats, MergeError, ShapeError
from onepass.estimator.learner import Learner
from onepass.validation.arrays import hold_breadth, hold_values

__all__ = ["Regressor"]

_EXACT = 1 << 53  # whole numbers up to here are doubles


class Regressor(RegressorMixin, Learner):  # type: ignore[misc]
    """The verbs of regressors: answers are real numbers, one or several a row."""

    n_outputs_: int
    answer_ndim_: int
    rows_seen_: int

    def _admit(self, y: Any, n: int, s: Floats | None, where: str) -> tuple[Floats, None]:
        array = validation.targets(y, n, where)
        if not self._begun:
            if n == 0:
                return np.empty((0, 1)), None
            self.answer_ndim_ = array.ndim
            self.n_outputs_ = 1 if array.ndim == 1 else array.shape[1]
            hold_breadth(self.n_outputs_, type(self).__name__, "outputs")
            self.rows_seen_ = 0
            self._start(self.n_features_in_, self.n_outputs_)
        Y = array[:, None] if array.ndim == 1 else array
        if Y.shape[1] != self.n_outputs_ or (n and array.ndim != self.answer_ndim_):
            shape = "(n,)" if self.answer_ndim_ == 1 else f"(n, {self.n_outputs_})"
            raise ShapeError(
                f"{where}: `y` must have shape {shape}, as in the first block, got {array.shape}. "
                "Start a new learner for another set of answers."
            )
        self.rows_seen_ += n if s is None else int(np.count_nonzero(s))
        return Y, None

    def _join_outputs(self, other: Any, where: str) -> Array:
        if not self._begun:
            self.answer_ndim_, self.n_outputs_ = other.answer_ndim_, other.n_outputs_
            self.rows_seen_ = 0
            self._start(self.n_features_in_, self.n_outputs_)
        mine, came = (
            "(n,)" if one.answer_ndim_ == 1 else f"(n, {one.n_outputs_})" for one in (self, other)
        )
        if mine != came:
            raise MergeError(
                f"{where}: both learners must have answers of shape {mine}, as the first has, got "
                f"{came}. Merge learners of the same answers."
            )
        return np.arange(self.n_outputs_)

    def _admit_one(self, y: Any, s: Floats | None, where: str) -> tuple[Floats, None]:
        single = s is None and getattr(self, "answer_ndim_", 0) == 1
        plain = isinstance(y, float) or (type(y) is int and abs(y) <= _EXACT)
        if single and plain and math.isfinite(y):  # the common case, quickly
            self.rows_seen_ += 1
            return np.array([[y]], dtype=np.float64), None
        return self._admit(np.asarray(y)[None], 1, s, where)

    def _matrix(self, X: Any, verb: str) -> Floats:
        array = super()._matrix(X, verb)
        if len(array) > 1:
            hold_values(len(array), self.n_outputs_, type(self).__name__, "one for each output")
        return array

    def _answers(self, scores: Floats, known: Array | None) -> Array:
        del known
        return scores[:, 0] if getattr(self, "answer_ndim_", 1) == 1 else scores

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        tags.target_tags.single_output = True
        return tags
