"""Recursive least squares in the compiled rows of :mod:`onepass.native`, for supported cases.

They support forgetting by rows, with or without a floor, once every direction is determined. All
other rows, and values so large or small that their squares may overflow or underflow, are learned
in NumPy arrays by :mod:`onepass.memory.forgetting`. Both compute the same recursion, to rounding.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from onepass import linalg, native
from onepass.learners.linear import float64_blocks
from onepass.linalg.centering import Centering
from onepass.memory.floor import Floor, rows_between
from onepass.memory.forgetting.exponential import (
    Bounded,
    Exponential,
    LeastSquaresState,
    NewRows,
)
from onepass.memory.forgetting.protocols import ForgettingRule
from onepass.memory.rebased import GAP
from onepass.memory.square_root import Prior, Triangle
from onepass.types import Floats

__all__ = [
    "ArrayState",
    "CompiledRows",
    "compile_rows",
    "fading",
    "learn_rows",
    "read",
    "supports",
]

_MAX_FEATURES = 1 << 13  # with more, copies of the triangle would be too large
_MAX_ONE_THREAD = 1024  # features up to which the loop is faster than BLAS with several threads
_MAX_FLOOR = 256  # features up to which the loop supports a floor
_HEAD = 64  # rows learned in arrays before the loop is tried again; doubled while it fails
_MAX_HEAD = 4096  # maximum number of rows learned in arrays before the loop is tried again
_PARTS = ("squares", "means", "rest", "energy", "active", "last")
_LARGEST, _SMALLEST = 1e60, 1e-50  # squares of values in between, and their sums, are safe


class ArrayState(NamedTuple):
    """The state of recursive least squares in NumPy arrays."""

    past: LeastSquaresState
    rule_state: Any
    """The state of the forgetting rule."""


def learn_rows(
    rule: ForgettingRule,
    compiled: Any,
    arrays: ArrayState | None,
    rows: NewRows,
    row_format: tuple[Any, ...] | None,
) -> tuple[Floats, Any, ArrayState | None]:
    """Learn rows one after the other, as ``rule.learn`` does; the given state is not modified.

    Parameters
    ----------
    rule : forgetting rule
    compiled : native.loops.Rows or None
    arrays : ArrayState or None
        The state, in one of these two forms; the other one is None.
    rows : NewRows
    row_format : tuple or None
        How single rows are read, the last argument of ``native.loops.Rows``.

    Returns
    -------
    errors : ndarray of shape (n, c)
        The error of each row just before it is learned.
    compiled, arrays
        The state after the rows, in one of the two forms.
    """
    n, d = rows.X.shape
    errors, i, head = np.empty(rows.Y.shape), 0, max(d, _HEAD)
    supported = native.loops is not None and supports(rule, d) and not (n > 1 and _prefers_blas(d))
    while i < n:
        count = 0
        if supported:
            now = compile_rows(rule, arrays, rows.start, row_format) if arrays else compiled.copy()
            if now is not None:
                count = _count_learned(now, rows.part(i, n), errors[i:])
                if count == n - i:
                    return errors, now, None
                head = max(d, _HEAD)
            else:
                head = min(2 * head, _MAX_HEAD)
            if count > 0:
                arrays, i = read(now), i + count
        arrays = arrays or read(compiled)
        first = arrays.past.centering.mass == 0.0
        width = n if count < 0 or not supported else 1 if first else head
        learned = rule.learn(arrays.rule_state, arrays.past, rows.part(i, i + width))
        errors[i : i + width], arrays = learned.errors, ArrayState(learned.past, learned.state)
        i += width
    return errors, None, arrays


@dataclass(frozen=True, eq=False)
class CompiledRows:
    """The content of a compiled state, from which it continues to the bit.

    Parameters
    ----------
    U : ndarray of shape (d, d)
        Unit upper triangle: R = (due D)^½ U.
    theta : ndarray of shape (d, c)
        z = (due D)^½ θ.
    D : ndarray of shape (d,)
    squares, means, rest : ndarrays
        The least sum of squares (c,), and the means of features and targets (d + c,) with their
        rounding errors.
    energy, active, last : ndarrays of shape (d,)
        ``squares``, ``active`` and ``last`` of the floor.
    numbers : tuple
        Mass, half-lives since the last visit of the floor, rows, the factor by which ``prior`` has
        faded, and ``due``.
    ridge, prior, floor, free : float or None, Prior, Floor, bool
        The parts of the state that the rows do not change.
    """

    U: Floats
    theta: Floats
    D: Floats
    squares: Floats
    means: Floats
    rest: Floats
    energy: Floats
    active: Floats
    last: Floats
    numbers: tuple[float, float, int, float, float]
    ridge: float | None
    prior: Prior
    floor: Floor
    free: bool

    @classmethod
    def of(cls, compiled: Any) -> "CompiledRows":
        """Copy a state, after all pending rows are added to its triangle."""
        d, c = compiled.d, compiled.c
        U, theta, D = np.zeros((d, d), order="F"), np.empty((d, c)), np.empty(d)
        compiled.triangle(U.T, theta, 1, D)
        parts = (np.frombuffer(compiled.get(name)).copy() for name in _PARTS)
        fields: Any = (U, theta, D, *parts, compiled.numbers(), *compiled.constants)
        return cls(*fields)

    def compiled(self, rule: Any, start: Floats, row_format: tuple[Any, ...] | None) -> Any:
        """The compiled state for a forgetting rule and initial weights."""
        loops: Any = native.loops
        compiled = loops.Rows(*self.theta.shape, self.free, *fading(rule), row_format)
        compiled.put("start", np.ascontiguousarray(start))
        compiled.put("least", self.floor.least)
        for name in _PARTS:
            compiled.put(name, getattr(self, name))
        theta = np.ascontiguousarray(self.theta)
        compiled.triangle(np.asfortranarray(self.U).T, theta, 0, self.D)
        compiled.numbers(*self.numbers)
        compiled.constants = self.ridge, self.prior, self.floor, self.free
        return compiled

    def arrays(self) -> ArrayState:
        """The same state in the form that NumPy uses."""
        mass, age, count, faded, due = self.numbers
        root = np.sqrt(due * self.D)[:, None]
        R, z, d = np.asfortranarray(root * self.U), root * self.theta, len(self.D)
        means, rest, floor = self.means, self.rest, self.floor
        if count != floor.rows:  # the floor is in use
            floor = Floor(floor.least, self.energy, self.active, self.last, np.array([age]), count)
        w = linalg.solve_upper(R, z)
        past = LeastSquaresState(
            Triangle(R, z, w, self.squares, self.ridge, None),
            Centering(means[:d], means[d:], mass, self.free, rest[:d], rest[d:]),
            self.prior.faded(faded),
        )
        return ArrayState(past, floor)


def read(compiled: Any) -> ArrayState:
    """Copy a compiled state to the form that NumPy uses.

    Parameters
    ----------
    compiled : native.loops.Rows
    """
    return CompiledRows.of(compiled.copy()).arrays()


def compile_rows(
    rule: Any, arrays: ArrayState, start: Floats, row_format: tuple[Any, ...] | None
) -> Any:
    """Return the compiled state; None if a direction is undetermined or values are extreme."""
    (memory, centering, prior), floor = arrays
    early = memory.span is not None or centering.mass == 0.0
    if early or (prior.level and not prior.seen.all()):
        return None
    size = np.diagonal(memory.R)
    largest = max(map(linalg.magnitude, (memory.R, memory.z, start, centering.features)))
    if not (np.abs(size).min() > _SMALLEST and largest < _LARGEST):
        return None
    return CompiledRows(
        memory.R / size[:, None],
        memory.z / size[:, None],
        size * size,
        memory.squares,
        np.concatenate((centering.features, centering.targets)),
        np.concatenate((centering.features_rest, centering.targets_rest)),
        floor.squares,
        floor.active,
        floor.last,
        (centering.mass, float(floor.ages.max(initial=0.0)), floor.rows, 1.0, 1.0),
        memory.ridge,
        prior,
        floor,
        centering.free,
    ).compiled(rule, start, row_format)


def fading(rule: Any) -> tuple[float, float, int]:
    """Factor, floor, and rows between two visits of the floor."""
    return rule.factor, _level(rule), rows_between(rule.factor)


def _level(rule: Any) -> float:
    """The floor of a rule with this factor."""
    return float(rule.level) if rule.factor < 1.0 else 0.0


def supports(rule: Any, d: int) -> bool:
    """Whether compiled rows, if they are installed, support this rule with d features."""
    by_rows = type(rule) in {Bounded, Exponential} and rule.factor is not None
    if not by_rows or rule.factor < GAP:
        return False
    return d <= (_MAX_FLOOR if _level(rule) else _MAX_FEATURES)


def _prefers_blas(d: int) -> bool:
    """Whether blocks with d features are learned faster by BLAS with several threads."""
    return d > _MAX_ONE_THREAD and linalg.blas_threads() > 2


def _count_learned(compiled: Any, rows: NewRows, errors: Floats) -> int:
    """The number of rows learned before a row that is rejected; -1 if the state is invalid."""
    Y, s = rows.Y, rows.weights
    for part, X in float64_blocks(rows.X):
        targets = np.ascontiguousarray(Y[part], dtype=np.float64)
        weights = None if s is None else np.ascontiguousarray(s[part], dtype=np.float64)
        count: int = compiled.learn(len(X), X, targets, weights, errors[part])
        if count < len(X):
            return count if count < 0 else int(part.start) + count
    return len(rows.X)
