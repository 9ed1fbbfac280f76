"""Least squares: rows into triangle, means and floor; what the RLS learners share.

Rows are centred (:mod:`onepass.centering`), taken into the triangle
(:mod:`onepass.memory.square_root`), and with forgetting the floor is put under it
(:mod:`onepass.memory.floor`), in blocks that say of each row what it would have been told alone.
"""

from typing import Any

import numpy as np

from onepass import linalg, validate
from onepass.centering import Centering, Reduced
from onepass.errors import NumericalError, ParameterError
from onepass.learners.linear import Linear, initial_weights
from onepass.learners.pooling import Pooling
from onepass.memory.floor import Floor, rows_between
from onepass.memory.prior import Prior
from onepass.memory.square_root import SquareRoot, Triangle
from onepass.types import Array, Floats

__all__ = ["LeastSquares"]

_WIDTH = 1024  # rows between two renormalisations where nothing fades


class LeastSquares(Pooling, Linear):
    """What the regressor and the classifier share: learning rows into triangle and means."""

    scale_free = True  # the answers do not depend on the features' units, but through the ridge

    ridge: Any
    forgetting: float
    floor: float
    prior: float
    fit_intercept: bool
    memory_: Triangle
    centering_: Centering
    floor_: Floor
    prior_: Prior
    start_: Floats

    def _start(self, d: int, c: int) -> None:
        where = type(self).__name__
        self._forgetting_now()
        level = validate.in_range(self.floor, "floor", where, low=0.0)
        self.start_ = initial_weights(getattr(self, "initial_coef", None), d, c, where)
        try:
            self.memory_ = SquareRoot(self.ridge).start(d, c)
        except ParameterError as wrong:  # in the words of who set it
            raise ParameterError(str(wrong).replace("SquareRoot", where, 1)) from wrong
        self.centering_ = Centering.start(d, c, free=bool(self.fit_intercept))
        self.floor_ = Floor.start(level, np.broadcast_to(_diagonal(self.ridge), d).copy())
        self.prior_ = Prior.start(validate.in_range(self.prior, "prior", where, low=0.0), d)
        self.weights_ = self.start_
        self.offset_ = np.zeros(c)

    def _learn(self, X: Floats, Y: Floats, s: Floats | None, known: Array | None) -> Floats:
        del known  # an output whose class is not known yet has seen zeros: that is exact
        said = np.empty(Y.shape)
        memory, centering = self.memory_, self.centering_
        floor, prior = self.floor_, self.prior_
        forgetting = self._forgetting_now()
        holds = forgetting < 1.0 and floor.level > 0.0
        i, n = 0, len(X)
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            while i < n:
                width = floor.room(forgetting) if holds else _width(forgetting)
                rows = slice(i, i + width)
                weights = None if s is None else s[rows]
                reduced = centering.reduce(X[rows], Y[rows], weights, forgetting)
                errors, memory, prior = self._chunk(memory, prior, reduced, X[rows])
                said[rows] = Y[rows] - errors
                memory, centering = memory.faded(reduced.fade), reduced.center
                prior = prior.faded(reduced.fade)
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
                f"{type(self).__name__}: rows, and the weights that fit them, must be small enough "
                "to square and sum in float64, got values up to "
                f"{max(np.abs(X).max(), np.abs(Y).max()):.3g}. "
                "Give features and answers in units that bring them nearer to 1."
            )
        self.memory_, self.centering_ = memory, centering
        self.floor_, self.prior_ = floor, prior
        self.weights_, self.offset_ = weights, offset
        return said

    def _forgetting_now(self) -> float:
        """λ for these rows, once it is found to be in range."""
        who = type(self).__name__
        return validate.in_range(self.forgetting, "forgetting", who, above=0.0, high=1.0)

    def _chunk(
        self, memory: Triangle, prior: Prior, reduced: Reduced, raw: Floats
    ) -> tuple[Floats, Triangle, Prior]:
        """Absorb centred rows; the first row of all has scale 0 and only sets the means."""
        X, scale = reduced.X, reduced.scale
        b = reduced.Y - X @ self.start_ if self.start_.any() else reduced.Y
        errors = np.empty(b.shape)
        i = 0 if scale[0] > 0.0 else 1
        errors[:i] = b[:i] - X[:i] @ memory.w
        if i:
            prior = prior.begun(X[0])
        pseudo = prior.among(X[i:])
        if pseudo is None:
            memory, errors[i:] = memory.absorb(X[i:], b[i:], scale[i:], raw[i:])
            return errors, memory, prior
        at, rows = pseudo.before, pseudo.rows
        aged = self.forgetting ** (-0.5 * (at + i))  # as old as the row they come before
        memory, mixed = memory.absorb(
            np.insert(X[i:], at, rows, axis=0),
            np.insert(b[i:], at, 0.0, axis=0),
            np.insert(scale[i:], at, aged),
            np.insert(raw[i:], at, rows, axis=0),
        )
        errors[i:] = np.delete(mixed, at + np.arange(len(at)), axis=0)
        return errors, memory, pseudo.prior.holding(rows * aged[:, None])

    def _widen(self, d: int) -> None:
        extra = d - len(self.start_)
        super()._widen(d)
        self.start_ = np.vstack((self.start_, np.zeros((extra, self.start_.shape[1]))))
        self.memory_ = self.memory_.grown(d)
        self.centering_ = self.centering_.grown(d)
        self.floor_ = self.floor_.grown(d, float(_diagonal(self.ridge)))
        self.prior_ = self.prior_.grown(d)


def _width(forgetting: float) -> int:
    """Rows between two renormalisations: few enough that λⁿ does not underflow."""
    return _WIDTH if forgetting == 1.0 else rows_between(forgetting)


def _diagonal(ridge: Any) -> Floats:
    """The ridge of each weight by itself."""
    array = np.asarray(ridge, dtype=np.float64)
    return np.asarray(np.diagonal(array) if array.ndim == 2 else array)
