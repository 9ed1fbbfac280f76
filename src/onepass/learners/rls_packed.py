"""Packed states of recursive least squares: many small models in one array, learned together.

The state of a model is a row of numbers in the order of ``native/packed.h``. It contains all that
its rows have changed; what is equal in all models is in a template, a learner without rows.
"""

import copy
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Self

import numpy as np

from onepass import linalg, native
from onepass.learners.rls import LeastSquares, RLSRegressor
from onepass.learners.rls_compiled import (
    CompiledRows,
    fading,
)
from onepass.memory.floor import Floor
from onepass.memory.forgetting import Bounded, Exponential
from onepass.memory.forgetting.auto import AutoState
from onepass.types import Array, Floats

__all__ = ["PackedRows", "fade_to"]


class PackedRows:
    """Packed states of copies of one learner.

    Parameters
    ----------
    template : RLSRegressor
        A learner that has been initialised but has learned no row.
    """

    def __init__(self, template: RLSRegressor) -> None:
        self.template = template
        self.shape = template.initial_weights_.shape
        self.free = bool(template.fit_intercept)
        factor, level, period = fading(template._rule())  # noqa: SLF001
        self.floored = level > 0.0
        self.rows: Any = None
        (d, c), self.width = self.shape, 3
        self.width += d * (d - 1) // 2 + d * c + d + c
        self.width += 2 * (d + c) * self.free + (3 * d + 2) * self.floored
        if native.loops is not None:
            self.rows = native.loops.Rows(d, c, self.free, factor, level, period, None)
            self.rows.put("start", np.ascontiguousarray(template.initial_weights_))
            self.rows.put("least", template.forgetting_.least)

    @classmethod
    def of(cls, learner: Any, d: int, c: int, ndim: int) -> Self | None:
        """Packed states of copies of a learner without rows; None if they are not supported.

        Parameters
        ----------
        learner : learner
        d, c : int
            Numbers of features and outputs.
        ndim : {1, 2}
            Dimensions of the targets of many rows.
        """
        if type(learner) is not RLSRegressor or np.ndim(learner.ridge) or learner.ridge == 0.0:
            return None
        rule: Any = learner._rule()  # noqa: SLF001
        by_rows = type(rule) in {Bounded, Exponential} and rule.factor is not None
        if learner.prior or learner.device or not by_rows or not CompiledRows.supports(rule, d, 1):
            return None
        template = copy.copy(learner)
        template.n_outputs_, template.target_ndim_, template.rows_seen_ = c, ndim, 0
        template._start(d, c)  # noqa: SLF001  checks the parameters
        return cls(template)

    def __copy__(self) -> "PackedRows":
        twin = object.__new__(PackedRows)
        twin.__dict__ = self.__dict__ | {"rows": self.rows and self.rows.copy()}  # work space
        return twin

    def start(self, n: int) -> Floats:
        """The states of n models before their first row, (n, width)."""
        (d, c), states = self.shape, np.zeros((n, self.width))
        at = d * (d - 1) // 2 + d * c
        states[:, at : at + d] = self.template.memory_.ridge
        states[:, -3] = 1.0
        return states

    def learn(
        self, states: Floats, codes: Array, X: Floats, Y: Floats, weights: Floats | None
    ) -> tuple[Floats, Array]:
        """Learn rows in order, each in one of the states, which are updated in place.

        Parameters
        ----------
        states : ndarray of shape (m, width)
        codes : ndarray of int32 of shape (n,)
            The index of each row's state; −1 if the row is not learned.
        X, Y, weights
            The rows, (n, d), (n, c) and (n,).

        Returns
        -------
        errors : ndarray of shape (n, c)
            The error of each row just before it is learned; undefined for other rows.
        learned : ndarray of int32 of shape (m,)
            The number of rows that each state has learned, before a row that Python must learn.

        Raises
        ------
        NumericalError
            If the weights of a state exceed float64.
        """
        errors, learned = np.empty(Y.shape), np.empty(len(states), dtype=np.int32)
        self.rows.learn_packed(len(X), len(states), codes, states, X, Y, weights, errors, learned)
        if not linalg.finite(*self._fitted(states)):
            raise self.template._too_large(X, Y, weights)  # noqa: SLF001
        return errors, learned

    def predict(self, states: Floats, codes: Array, X: Floats) -> Floats:
        """Predict rows, (n, c), each by one of the states."""
        weights, center, offset = self._fitted(states)
        away = X - center[codes]
        return np.asarray(np.einsum("nd,ndc->nc", away, weights[codes]) + offset[codes])

    def _fitted(self, states: Floats) -> tuple[Floats, Floats, Floats]:
        """Weights (m, d, c), centres (m, d) and offsets (m, c)."""
        (d, c), m = self.shape, len(states)
        fitted = np.empty((m, d, c)), np.empty((m, d)), np.empty((m, c))
        self.rows.fitted_packed(m, states, *fitted)
        return fitted

    def pack(self, learner: RLSRegressor) -> Floats | None:
        """The state of a learner, (width,); None if it must be learned in Python."""
        if self.rows is None:
            return None
        compiled = learner._compiled  # noqa: SLF001
        if compiled is None:
            rule, past = learner._rule(), learner._arrays().past  # noqa: SLF001
            start, floor = learner.initial_weights_, learner.forgetting_
            compiled = CompiledRows.compile(rule, past, floor, start, None)
        if compiled is None or (compiled.d, compiled.c) != self.shape:
            return None
        state = CompiledRows.of(compiled.copy())
        mass, age, count, faded, due = state.numbers
        prior, (d, c) = state.prior, self.shape
        if state.ridge != self.template.memory_.ridge or (prior.share != prior.remains).any():
            return None
        above = np.hstack((state.U, state.theta))[np.triu_indices(d, 1, d + c)]
        parts: list[Any] = [above, due * state.D, state.squares]
        if self.free:
            parts += [state.means, state.rest]
        if self.floored:
            parts += [state.energy, state.active, state.last, [age, count]]
        parts.append([faded * prior.remains, mass, learner.rows_seen_])
        return np.concatenate(parts)

    def unpack(self, state: Floats) -> RLSRegressor:
        """The learner with a state (width,)."""
        (d, c), template = self.shape, self.template
        learner = copy.copy(template)
        faded, mass, seen = state[-3:].tolist()
        learner.rows_seen_ = int(seen)
        if not seen:
            return learner
        above, wide = np.triu_indices(d, 1, d + c), np.eye(d, d + c)
        wide[above], state = state[: len(above[0])], state[len(above[0]) : -3].copy()
        D, squares, state = np.split(state, [d, d + c])
        m = d + c if self.free else 0
        means, rest = np.split(state[: 2 * m], 2) if m else np.zeros((2, d + c))
        *floor, numbers = np.split(state[2 * m :], [d, 2 * d, 3 * d])
        age, count = numbers.tolist() if self.floored else (0.0, 0.0)
        energy, active, last = floor if self.floored else np.zeros((3, d))
        unit, theta = np.asfortranarray(wide[:, :d]), wide[:, d:].copy()
        learner.compiled_ = CompiledRows(
            unit, theta, D, squares, means, rest, energy, active, last,
            (mass, age, int(count), faded, 1.0),
            template.memory_.ridge, template.prior_, template.forgetting_, self.free,
        )  # fmt: skip
        return learner

    def are_sound(self, states: Array) -> bool:
        """Whether states of a file can be learned."""
        if states.dtype != np.float64 or states.shape[1:] != (self.width,):
            return False
        (d, c), counts = self.shape, states[:, [-1, -4] if self.floored else [-1]]
        at = d * (d - 1) // 2 + d * c
        positive = np.hstack((states[:, at : at + d], states[:, -2:-1]))
        good = linalg.finite(states) and (positive > 0.0).all() and (states[:, -3] >= 0.0).all()
        return bool(good and ((counts >= 0.0) & (counts < 1 << 53)).all())


def fade_to(learner: Any, mass: float) -> None:
    """Fade the rows of least squares so that they count as at most ``mass`` rows.

    Learners without weights of rows, and least squares that stores rows, are not changed.
    """
    learner = getattr(learner, "learner_", learner)
    state = learner.forgetting_ if isinstance(learner, LeastSquares) else None
    if not isinstance(state, (Floor, AutoState)):
        return
    past = learner._arrays().past  # noqa: SLF001
    if isinstance(state, AutoState):
        parts = tuple((*_faded_to(part[:3], mass), part[3]) for part in state.parts)
        learner.forgetting_ = replace(state, parts=parts)
    learner.memory_, learner.centering_, learner.prior_ = _faded_to(past, mass)


def _faded_to(past: Iterable[Any], mass: float) -> list[Any]:
    """Memory, means and prior, faded so that their rows count as at most ``mass`` rows."""
    memory, centering, prior = past
    factor = mass / max(centering.mass, mass)
    return [part.faded(factor) for part in (memory, centering, prior)]
