"""Many small models of recursive least squares: a matrix of their vectors, learned together.

What is equal in all models is in a template, a learner without rows.
"""

from __future__ import annotations

import copy
from typing import Any, Self

import numpy as np

from onepass import native
from onepass.errors import calling
from onepass.forgetting import Bounded, Exponential
from onepass.learners.compiled import row_format
from onepass.learners.rls import _LARGEST, LeastSquares, RLSRegressor, _largest
from onepass.memory import least_squares
from onepass.memory.vector import Flag, Slot
from onepass.types import Array, Floats


class PackedRows:
    """The vectors of copies of one learner.

    Parameters
    ----------
    template : RLSRegressor
        A learner that has been initialised but has learned no row.
    """

    def __init__(self, template: RLSRegressor) -> None:
        self.template = template
        self.first: Floats = template.state_
        self.width = len(self.first)
        self.shape = int(self.first[Slot.FEATURES]), int(self.first[Slot.OUTPUTS])
        loops, described = native.loops, row_format(template)
        self.format = loops and loops.Format(*self.shape, described)

    @classmethod
    def of(cls, learner: Any, d: int, c: int, ndim: int) -> Self | None:
        """Packed vectors of copies of a learner without rows; None if they are not supported.

        Parameters
        ----------
        learner : learner
        d, c : int
            Numbers of features and outputs.
        ndim : {1, 2}
            Dimensions of the targets of many rows.
        """
        if type(learner) is not RLSRegressor or learner.device:
            return None
        with calling(type(learner).__name__):
            rule: Any = learner._rule()  # noqa: SLF001
        if type(rule) not in {Bounded, Exponential} or rule.factor is None:
            return None
        template = copy.copy(learner)
        template.n_outputs_, template.target_ndim_, template.rows_seen_ = c, ndim, 0
        with calling(type(learner).__name__):
            template._start(d, c)  # noqa: SLF001  checks the parameters
        return cls(template)

    def start(self, n: int) -> Floats:
        """The vectors of n models before their first row, (n, width)."""
        return np.tile(self.first, (n, 1))

    def learn(
        self, states: Floats, codes: Array, X: Floats, Y: Floats, weights: Floats | None
    ) -> Floats:
        """Learn rows in order, each in one of the vectors, which are updated in place.

        Parameters
        ----------
        states : ndarray of shape (m, width)
        codes : ndarray of int32 of shape (n,)
            The index of each row's vector; −1 if the row is not learned.
        X, Y, weights
            The rows, (n, d), (n, c) and (n,).

        Returns
        -------
        errors : ndarray of shape (n, c)
            The error of each row just before it is learned; undefined for other rows.

        Raises
        ------
        NumericalError
            If a number exceeds float64.
        """
        loops: Any = native.loops
        errors = np.empty(Y.shape)
        if len(states) and not loops.ls_learn_keys(
            states, len(states), len(X), codes, X, Y, weights, errors
        ):
            raise self.template._too_large(X, Y, weights)  # noqa: SLF001
        return errors

    def too_large(self, X: Floats, Y: Floats, weights: Floats | None) -> Array:
        """The indices of rows that a learner refuses, since their squares are too large."""
        if _largest(X, Y, weights) <= _LARGEST:
            return np.empty(0, dtype=np.intp)
        sizes = np.maximum(np.abs(X).max(axis=1, initial=0.0), np.abs(Y).max(axis=1, initial=0.0))
        with np.errstate(over="ignore"):
            weighted = np.maximum(sizes, 1.0) * (1.0 if weights is None else np.sqrt(weights))
        return np.flatnonzero(np.maximum(sizes, weighted) > _LARGEST)

    def learn_one(self, state: Floats, x: Any, y: Any) -> bool:
        """Learn one row in a vector; return False if Python must convert the row first."""
        loops: Any = native.loops
        return bool(loops.Single(state, self.format, None, 0, 0).learn_one(x, y, 1.0))

    def predict_one(self, state: Floats, x: Any) -> Any:
        """Predict one row; None if Python must convert the row first."""
        loops: Any = native.loops
        return loops.Single(state, self.format, None, 0, 0).predict_one(x)

    def predict(self, states: Floats, codes: Array, X: Floats) -> Floats:
        """Predict rows, (n, c), each by one of the vectors."""
        (d, c), m, loops = self.shape, len(states), native.loops
        weights, center, offset = np.empty((m, c, d)), np.empty((m, d)), np.empty((m, c))
        loops.ls_fitted(states, m, weights, center, offset)  # type: ignore[union-attr]
        away = X - center[codes]
        return np.asarray(np.einsum("nd,ncd->nc", away, weights[codes]) + offset[codes])

    def pack(self, learner: RLSRegressor) -> Floats | None:
        """The vector of a learner; None if it is of another kind."""
        state: Floats = learner.state_
        same = len(state) == self.width and (state[: Slot.ROWS] == self.first[: Slot.ROWS]).all()
        return state if same else None

    def unpack(self, state: Floats) -> RLSRegressor:
        """The learner with a vector (width,)."""
        learner = copy.copy(self.template)
        learner.state_, learner.rows_seen_ = state.copy(), int(state[Slot.ROWS])
        return learner

    def are_sound(self, states: Array) -> bool:
        """Whether vectors of a file can be learned."""
        return states.shape[1:] == (self.width,) and all(
            least_squares.is_sound(state, *self.shape)
            and (state[: Slot.ROWS] == self.first[: Slot.ROWS]).all()
            for state in states
        )


def fade_to(learner: Any, mass: float) -> None:
    """Fade the rows of least squares so that they count as at most ``mass`` rows.

    Learners without weights of rows, windows and directional forgetting are not changed.
    """
    learner = getattr(learner, "model_", learner)
    learner = getattr(learner, "learner_", learner)
    if not isinstance(learner, LeastSquares):
        return
    state = learner.state_
    if not int(state[Slot.FLAGS]) & (Flag.WINDOW | Flag.DIRECTIONAL):
        learner.state_ = least_squares.faded_to(state, mass)
