"""Least squares: rows into triangle, means and floor; what the RLS learners share.

Rows are centred (:mod:`onepass.centering`), taken into the triangle
(:mod:`onepass.memory.square_root`), and with forgetting the floor is put under it
(:mod:`onepass.memory.floor`), in blocks that say of each row what it would have been told alone.
"""

from typing import Any

import numpy as np

from onepass import linalg, validate
from onepass.centering import Centering
from onepass.errors import NumericalError
from onepass.learners.linear import Linear, initial_weights
from onepass.memory.floor import Floor, rows_between
from onepass.memory.square_root import SquareRoot, Triangle
from onepass.types import Array, Floats

__all__ = ["LeastSquares"]

_WIDTH = 1024  # rows between two renormalisations where nothing fades


class LeastSquares(Linear):
    """What the regressor and the classifier share: learning rows into triangle and means."""

    scale_free = True  # the answers do not depend on the features' units, but through the ridge

    ridge: Any
    forgetting: float
    floor: float
    fit_intercept: bool
    memory_: Triangle
    centering_: Centering
    floor_: Floor
    start_: Floats

    def _start(self, d: int, c: int) -> None:
        where = type(self).__name__
        self._forgetting_now()
        level = validate.in_range(self.floor, "floor", where, low=0.0)
        self.start_ = initial_weights(getattr(self, "initial_coef", None), d, c, where)
        self.memory_ = SquareRoot(self.ridge).start(d, c)
        self.centering_ = Centering.start(d, c, free=bool(self.fit_intercept))
        self.floor_ = Floor.start(level, np.broadcast_to(_diagonal(self.ridge), d).copy())
        self.weights_ = self.start_
        self.offset_ = np.zeros(c)

    def _learn(self, X: Floats, Y: Floats, s: Floats | None, known: Array | None) -> Floats:
        del known  # an output whose class is not known yet has seen zeros: that is exact
        said = np.empty(Y.shape)
        memory, centering, floor = self.memory_, self.centering_, self.floor_
        forgetting = self._forgetting_now()
        holds = forgetting < 1.0 and floor.level > 0.0
        i, n = 0, len(X)
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            while i < n:
                width = floor.room(forgetting) if holds else _width(forgetting)
                rows = slice(i, i + width)
                weights = None if s is None else s[rows]
                reduced = centering.reduce(X[rows], Y[rows], weights, forgetting)
                errors, memory = self._chunk(memory, reduced.X, reduced.Y, reduced.scale)
                said[rows] = Y[rows] - errors
                memory, centering = memory.faded(reduced.fade), reduced.center
                if holds:
                    floor = floor.seen(reduced.X * (reduced.scale > 0.0)[:, None], weights)
                    memory = floor.under(memory, forgetting)
                i += width
            weights = self.start_ + memory.w
            offset = centering.answers - centering.features @ weights
            good = linalg.finite(
                weights, np.diagonal(memory.R), memory.squares, floor.squares, offset, said
            )
        if not good:
            raise NumericalError(
                f"{type(self).__name__}: rows must be small enough to square and sum in float64, "
                f"got values up to {max(np.abs(X).max(), np.abs(Y).max()):.3g}. "
                "Give features and answers in larger units."
            )
        self.memory_, self.centering_, self.floor_ = memory, centering, floor
        self.weights_, self.offset_ = weights, offset
        return said

    def _forgetting_now(self) -> float:
        """λ for these rows, once it is found to be in range."""
        who = type(self).__name__
        return validate.in_range(self.forgetting, "forgetting", who, above=0.0, high=1.0)

    def _chunk(
        self, memory: Triangle, X: Floats, Y: Floats, scale: Floats
    ) -> tuple[Floats, Triangle]:
        """Absorb centred rows; the first row of all has scale 0 and only sets the means."""
        b = Y - X @ self.start_ if self.start_.any() else Y
        if scale[0] > 0.0:
            memory, errors = memory.absorb(X, b, scale)
            return errors, memory
        first = b[:1] - X[:1] @ memory.w
        memory, errors = memory.absorb(X[1:], b[1:], scale[1:])
        return np.concatenate((first, errors)), memory

    def _widen(self, d: int) -> None:
        extra = d - len(self.start_)
        super()._widen(d)
        self.start_ = np.vstack((self.start_, np.zeros((extra, self.start_.shape[1]))))
        self.memory_ = self.memory_.grown(d)
        self.centering_ = self.centering_.grown(d)
        self.floor_ = self.floor_.grown(d, float(_diagonal(self.ridge)))


def _width(forgetting: float) -> int:
    """Rows between two renormalisations: few enough that λⁿ does not underflow."""
    return _WIDTH if forgetting == 1.0 else rows_between(forgetting)


def _diagonal(ridge: Any) -> Floats:
    """The ridge of each weight by itself."""
    array = np.asarray(ridge, dtype=np.float64)
    return np.asarray(np.diagonal(array) if array.ndim == 2 else array)
