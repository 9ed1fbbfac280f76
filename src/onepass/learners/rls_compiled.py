"""Recursive least squares in compiled states of :mod:`onepass.native`, for supported cases.

They support exponential forgetting by rows and by time, with or without a floor, automatic
forgetting, and windows of rows, once every direction is determined. All other rows, and values so
large or small that their squares may overflow or underflow, are learned in NumPy arrays by
:mod:`onepass.memory.forgetting`.
Both compute the same recursion, to rounding.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from onepass import linalg, native, validation
from onepass.learners.linear import float64_blocks
from onepass.linalg.centering import Centering
from onepass.memory.floor import Floor, rows_between
from onepass.memory.forgetting.auto import EXPERTS, Auto, AutoState
from onepass.memory.forgetting.exponential import (
    Bounded,
    Exponential,
    LeastSquaresState,
    NewRows,
)
from onepass.memory.forgetting.protocols import ForgettingRule
from onepass.memory.forgetting.window import CompiledWindow, Window
from onepass.memory.rebased import GAP
from onepass.memory.square_root import Prior, Triangle
from onepass.types import Floats

__all__ = [
    "ArrayState",
    "CompiledMixture",
    "CompiledRows",
    "fading",
    "learn_rows",
    "read",
]

_MAX_FEATURES = 1 << 13  # with more, copies of the triangle would be too large
_MAX_ONE_THREAD = 1024  # features up to which one thread is faster than BLAS with several
_MAX_FLOOR = 256  # features up to which compiled code supports a floor
_HEAD = 64  # rows learned in arrays before the state is compiled; doubled while that fails
_MAX_HEAD = 4096  # the maximum of this number
_PARTS = ("squares", "means", "rest", "energy", "active", "last")
_LARGEST, _SMALLEST = 1e60, 1e-50  # squares of values in between, and their sums, are safe


class ArrayState(NamedTuple):
    """The state of recursive least squares in NumPy arrays."""

    past: LeastSquaresState
    rule_state: Any
    """The state of the forgetting rule."""

    def fitted(self, start: Floats) -> tuple[Floats, Floats, Floats]:
        """Weights W (d, c), centre m (d,), offset b (c,): a row's prediction is Wᵀ(x − m) + b."""
        if isinstance(self.rule_state, AutoState):
            return self.rule_state.fitted(self.past, start)
        return self.past.fitted(start)

    def variance(self, X: Floats, start: Floats) -> Floats:
        """The variance of a target of each row, (n, c); infinite while undetermined."""
        if isinstance(self.rule_state, AutoState):
            return self.rule_state.variance(self.past, X, start)
        return self.past.variance(X, self.past.noise)

    def covariance(self, start: Floats) -> Floats:
        """The covariance of the weights of each output, (c, d, d); infinite as above."""
        if isinstance(self.rule_state, AutoState):
            return self.rule_state.covariance(self.past, start)
        return self.past.covariance(self.past.noise)


def learn_rows(
    rule: ForgettingRule,
    compiled: Any,
    arrays: ArrayState | None,
    rows: NewRows,
    row_format: tuple[Any, ...] | None,
    device: Any = None,
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
    device : Device, optional
        The device whose tensors are the compiled state.

    Returns
    -------
    errors : ndarray of shape (n, c)
        The error of each row just before it is learned.
    compiled, arrays
        The state after the rows, in one of the two forms.
    """
    n, d = rows.X.shape
    errors, i, head = np.empty(rows.Y.shape), 0, max(d, _HEAD)
    kind: Any = device or (native.loops and _COMPILED.get(type(rule)))
    supported = device or (kind and kind.supports(rule, d, n))
    while i < n:
        count = 0
        if supported:
            now = (
                compiled.copy()
                if arrays is None
                else kind.compile(rule, *arrays, rows.start, row_format)
            )
            if now is not None:
                part = rows.part(i, n), errors[i:]
                count = now.learn(*part) if device else _count_learned(now, rule, *part)
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


def read(compiled: Any) -> ArrayState:
    """Copy a compiled state to the form that NumPy uses.

    Parameters
    ----------
    compiled : native.loops.Rows or native.loops.Window
    """
    return ArrayState(*compiled.constants[0].read(compiled))


@dataclass(frozen=True, eq=False)
class CompiledRows:
    """The content of a compiled state; learning continues from it bit for bit.

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
        Mass, half-lives since the floor was last applied, rows, the factor by which ``prior`` has
        faded, and ``due``.
    ridge, prior, floor, free : float or None, Prior, Floor, bool
        The parts of the state that the rows do not change.
    """

    state: ClassVar[type] = Floor

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
        fields: Any = (U, theta, D, *parts, compiled.numbers(), *compiled.constants[1:])
        return cls(*fields)

    @classmethod
    def read(cls, compiled: Any) -> ArrayState:
        """Copy a state to the form that NumPy uses."""
        return cls.of(compiled.copy()).arrays()  # reading the triangle adds pending rows to it

    @classmethod
    def exported(cls, compiled: Any) -> dict[str, Any]:
        """The learned attributes for files, from which learning continues bit for bit."""
        return {"compiled_": cls.of(compiled)}

    @staticmethod
    def supports(rule: Any, d: int, n: int) -> bool:
        """Whether there is a compiled state for this rule with d features, for blocks of n rows."""
        if (rule.factor or 1.0) < GAP or (n > 1 and _prefers_blas(d)):
            return False
        return d <= (_MAX_FLOOR if _level(rule) else _MAX_FEATURES)

    @classmethod
    def compile(
        cls,
        rule: Any,
        past: LeastSquaresState,
        floor: Floor,
        start: Floats,
        row_format: tuple[Any, ...] | None,
    ) -> Any:
        """Return the compiled state; None if directions are undetermined or values extreme."""
        memory, centering, prior = past
        if memory.span is not None or centering.mass == 0.0:
            return None
        size = np.diagonal(memory.R)
        largest = max(map(linalg.magnitude, (memory.R, memory.z, start, centering.features)))
        if not (np.abs(size).min() > _SMALLEST and largest < _LARGEST):
            return None
        return cls(
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

    def compiled(self, rule: Any, start: Floats, row_format: tuple[Any, ...] | None) -> Any:
        """The compiled state for a forgetting rule and initial weights."""
        loops: Any = native.loops
        compiled = loops.Rows(*self.theta.shape, self.free, *fading(rule), row_format)
        compiled.put("start", np.ascontiguousarray(start))
        compiled.put("least", self.floor.least)
        compiled.put("unseen", self.prior.unseen)
        for name in _PARTS:
            compiled.put(name, getattr(self, name))
        theta = np.ascontiguousarray(self.theta)
        compiled.triangle(np.asfortranarray(self.U).T, theta, 0, self.D)
        compiled.numbers(*self.numbers)
        compiled.constants = CompiledRows, self.ridge, self.prior, self.floor, self.free
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


@dataclass(frozen=True, eq=False)
class CompiledMixture:
    """The content of a compiled state of automatic forgetting.

    Parameters
    ----------
    experts : tuple of CompiledRows
    numbers : ndarray
        Weights of the experts (K, c), squares (c) and count, as in :class:`AutoState`.
    indicators : bool
        Whether targets are class indicators.
    """

    state: ClassVar[type] = AutoState

    experts: tuple[CompiledRows, ...]
    numbers: Floats
    indicators: bool

    @classmethod
    def of(cls, compiled: Any) -> "CompiledMixture":
        """Copy a state, after all pending rows are added to its triangles."""
        twin = compiled.snapshot()
        experts = tuple(CompiledRows.of(expert) for expert in twin.experts)
        return cls(experts, np.frombuffer(twin.numbers()).copy(), compiled.constants[1])

    @classmethod
    def read(cls, compiled: Any) -> ArrayState:
        """Copy a state to the form that NumPy uses."""
        return cls.of(compiled.copy()).arrays()  # reading adds pending rows

    @classmethod
    def exported(cls, compiled: Any) -> dict[str, Any]:
        """The learned attributes for files, from which learning continues bit for bit."""
        return {"compiled_": cls.of(compiled)}

    @staticmethod
    def supports(rule: Any, d: int, n: int) -> bool:
        """Whether there is a compiled state with d features, for blocks of n rows."""
        del rule, n
        return d <= _MAX_FLOOR

    @staticmethod
    def compile(
        rule: Any,
        past: LeastSquaresState,
        state: AutoState,
        start: Floats,
        row_format: tuple[Any, ...] | None,
    ) -> Any:
        """Return the compiled state; None if one of the experts cannot be compiled."""
        del rule
        experts = []
        for kind, (expert, floor) in zip(EXPERTS, state.experts(past), strict=True):
            rows = CompiledRows.compile(kind, expert, floor, start, None)
            if rows is None:
                return None
            experts.append(rows)
        numbers = np.concatenate((state.weights.ravel(), state.squares, [state.count]))
        return CompiledMixture._joined(experts, numbers, row_format, state.indicators)

    def compiled(self, rule: Any, start: Floats, row_format: tuple[Any, ...] | None) -> Any:
        """The compiled state for initial weights."""
        del rule
        each = zip(EXPERTS, self.experts, strict=True)
        experts = [expert.compiled(kind, start, None) for kind, expert in each]
        return self._joined(experts, self.numbers, row_format, self.indicators)

    @staticmethod
    def _joined(experts: Sequence[Any], numbers: Floats, *args: Any) -> Any:
        """The compiled state of a mixture of compiled experts."""
        loops: Any = native.loops
        row_format, indicators = args
        mixture = loops.Mixture(tuple(experts), indicators, row_format)
        mixture.numbers(numbers)
        mixture.constants = CompiledMixture, indicators
        return mixture

    def arrays(self) -> ArrayState:
        """The same state in the form that NumPy uses."""
        first, *faded = (expert.arrays() for expert in self.experts)
        parts = tuple((*past, floor) for past, floor in faded)
        K, c = len(EXPERTS), len(first.past.memory.squares)
        weights, squares, count = np.split(self.numbers, [K * c, (K + 1) * c])
        weights = weights.reshape(K, c)
        state = AutoState(parts, weights, squares, float(count[0]), self.indicators)
        return ArrayState(first.past, state)


def fading(rule: Any) -> tuple[float, float, int]:
    """Return factor, level and period of a rule, as arguments of ``native.loops.Rows``."""
    return rule.factor or 0.0, _level(rule), rows_between(rule.factor or 1.0)


def _level(rule: Any) -> float:
    """The floor of a rule, if the past fades."""
    return float(rule.level) if rule.factor != 1.0 else 0.0


def _prefers_blas(d: int) -> bool:
    """Whether blocks with d features are learned faster by BLAS with several threads."""
    return d > _MAX_ONE_THREAD and linalg.blas_threads() > 2


_COMPILED: Mapping[type, Any] = {
    Auto: CompiledMixture, Bounded: CompiledRows, Exponential: CompiledRows, Window: CompiledWindow
}  # fmt: skip
"""The compiled states, by forgetting rule."""


def _count_learned(compiled: Any, rule: Any, rows: NewRows, errors: Floats) -> int:
    """The number of rows learned before a row that is rejected; -1 if the state is invalid."""
    Y, s = rows.Y, rows.weights
    passed = None if rows.time is None else validation.elapsed(rows.time, rows.last) / rule.unit
    for part, X in float64_blocks(rows.X):
        targets = np.ascontiguousarray(Y[part], dtype=np.float64)
        weights = None if s is None else np.ascontiguousarray(s[part], dtype=np.float64)
        more = () if passed is None else (passed[part],)
        count: int = compiled.learn(len(X), X, targets, weights, errors[part], *more)
        if count < len(X):
            return count if count < 0 else int(part.start) + count
    return len(rows.X)
