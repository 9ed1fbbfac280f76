"""Sliding window: exact least squares on the last rows only, at every row.

    argmin over w, b of  Σ over the window of λ_k s_k (y_k − b − x_kᵀ w)² + ρ ‖w − w₀‖²_Π   (1)

where the window is the last n rows, or all rows younger than a time span. By default λ_k = ρ = 1:
neither rows of the window nor the ridge and the prior fade. With fading inside the window, λ_k is ½
to the power of the row's age in half-lives, and the ridge fades with the rows, but is renewed to
ρ = 1 after the row at which ρ has fallen to ½. It is the only rule that stores rows: those of the
window, since the rows that leave must be available.

The compiled loop adds and removes rows by rotations (native/window.c). It computes the triangle
anew from the rows of the window once per window length, and whenever the removal of a row would
lose digits. While the triangle is ill-conditioned, or without the compiled loop, rows are learned
here, with triangles computed by QR of the rows of the window. Several rows are learned at once from
the triangle R of the rows that stay. With V = A R⁻¹ for the rows A that leave or arrive,

    error of a_j = e_j − k_j (I + K_jj)⁻¹ e_J,     K = V Vᵀ                                  (2)

where e are errors before the block with the rows that stay, and J the rows of the window when a_j
arrives, a contiguous range of those that leave and those that have arrived. If R is too
ill-conditioned for (2), rows are learned one by one.

Cost: O(p²) time per row with the compiled loop, else O(n p² / p^{2/3}); O(n p²) while columns
depend on each other and the ridge is below their rounding errors; O(n p) memory for n rows.
"""

import math
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from onepass import linalg, native, validation
from onepass.errors import ParameterError
from onepass.memory.forgetting.directional import JointTriangle, joined, taken_in
from onepass.memory.forgetting.exponential import Learned, LeastSquaresState, NewRows, clock
from onepass.types import Array, Floats

__all__ = ["CompiledWindow", "Window", "WindowBuffer", "WindowRows"]


_LONG = 1024  # rows learned together without departures
_SHARP = 1e2  # maximum leverage at which (2) is accurate
_LONGEST = 2.0**62  # units that can be subtracted from a time
_FEW = 4  # number of rows without departures that are added directly
_RENEWED = 1.0 - 1e-9  # half-lives between two renewals of the penalty, as in native/window.c
_DEEPEST = 16.0  # half-lives within rows learned together
_WIDEST = 1 << 13  # features, and outputs, up to which the compiled loop is used


@dataclass(frozen=True, eq=False, slots=True)
class WindowRows:
    """Some rows of a window.

    Parameters
    ----------
    X : ndarray of shape (n, d)
    b : ndarray of shape (n, c)
        Targets relative to w₀.
    roots : ndarray of shape (n,)
        √s.
    time : ndarray of shape (n,), or None
    """

    X: Floats
    b: Floats
    roots: Floats
    time: Any

    def __len__(self) -> int:
        return len(self.X)

    def part(self, rows: slice | Array) -> "WindowRows":
        """A subset of the rows."""
        time = None if self.time is None else self.time[rows]
        return WindowRows(self.X[rows], self.b[rows], self.roots[rows], time)

    def copied(self) -> "WindowRows":
        """A copy of the rows, so that the block which contained them can be freed."""
        time = None if self.time is None else self.time.copy()
        return WindowRows(self.X.copy(), self.b.copy(), self.roots.copy(), time)

    def then(self, more: "WindowRows") -> "WindowRows":
        """Append more rows."""
        if not len(self):
            return more
        return WindowRows(
            np.concatenate((self.X, more.X)),
            np.concatenate((self.b, more.b)),
            np.concatenate((self.roots, more.roots)),
            None if self.time is None else np.concatenate((self.time, more.time)),
        )

    def grown(self, d: int) -> "WindowRows":
        """Add features at the end, which were zero in all rows."""
        return replace(self, X=np.hstack((self.X, np.zeros((len(self), d - self.X.shape[1])))))

    def with_outputs(self, at: Array, c: int) -> "WindowRows":
        """Extend to c outputs; those in columns ``at`` are new and were zero in all rows."""
        b = np.zeros((len(self), c))
        b[:, np.setdiff1d(np.arange(c), at)] = self.b
        return replace(self, b=b)


class _Cache:
    """The compiled loop that contains a state, and storage in which rows can be appended.

    They move to the next state, so that a small block does not copy the window. Copies, and states
    whose next block failed, create them again.
    """

    def __init__(self) -> None:
        self.loop: Any = None
        self.storage: WindowRows | None = None
        self.used = 0  # rows of the storage; those of the state are the last

    def __reduce__(self) -> tuple[Any, ...]:
        return _Cache, ()

    def taken(self) -> "_Cache":
        """Move the contents to a new cache."""
        new = _Cache()
        vars(new).update(vars(self))
        vars(self).update(vars(_Cache()))
        return new

    def append(self, rows: WindowRows, more: WindowRows) -> WindowRows:
        """Append more rows to those of the state; in the storage, if they are few."""
        m, n, storage = len(rows), len(more), self.storage
        if n >= m or (rows.time is not None and rows.time.dtype != more.time.dtype):
            self.storage = None
            return rows.then(more)
        if storage is None or self.used + n > len(storage):
            storage, self.used = rows.part(np.zeros(2 * (m + n), dtype=np.intp)), 0
            self._write(storage, rows)
        self._write(storage, more)
        self.storage = storage
        return storage.part(slice(self.used - m - n, self.used))

    def _write(self, storage: WindowRows, rows: WindowRows) -> None:
        at = slice(self.used, self.used + len(rows))
        storage.X[at], storage.b[at], storage.roots[at] = rows.X, rows.b, rows.roots
        if rows.time is not None:
            storage.time[at] = rows.time
        self.used = at.stop


@dataclass(frozen=True, eq=False, slots=True)
class WindowBuffer:
    """The rows of a window, and the penalty.

    Parameters
    ----------
    empty : JointTriangle
        The penalty only.
    stored_rows : WindowRows
        The rows of the window, in order.
    age : float
        Half-lives since the penalty was renewed: ρ = 2^−age.
    triangle : ndarray, or None
        The triangle of the compiled loop; None if it must be computed from the rows.
    fading : str
        How the rows of this triangle fade.
    """

    empty: JointTriangle
    stored_rows: WindowRows
    age: float = 0.0
    triangle: Floats | None = None
    fading: str = ""
    cache: _Cache = field(default_factory=_Cache, init=False, repr=False)

    @classmethod
    def start(cls, empty: JointTriangle) -> "WindowBuffer":
        """The state before the first row."""
        p, c = empty.z.shape
        none = WindowRows(np.zeros((0, p - empty.free)), np.zeros((0, c)), np.zeros(0), None)
        return cls(empty, none)

    def __len__(self) -> int:
        return len(self.stored_rows)

    def penalised(self, rows: Floats) -> "WindowBuffer":
        """Add pseudo-rows (k, d) to the penalty, whose targets are the predictions of w₀."""
        return replace(self, empty=_penalised(self.empty, rows), triangle=None)

    def grown(self, d: int, ridge: float) -> "WindowBuffer":
        """Add features at the end, which were zero in all rows so far."""
        empty, rows = self.empty.grown(d, ridge), self.stored_rows.grown(d)
        return replace(self, empty=empty, stored_rows=rows, triangle=None)

    def with_outputs(self, at: Array, c: int) -> "WindowBuffer":
        """Extend to c outputs; those in columns ``at`` are new and were zero in all rows so far."""
        empty, rows = self.empty.with_outputs(at, c), self.stored_rows.with_outputs(at, c)
        return replace(self, empty=empty, stored_rows=rows, triangle=None)

    @property
    def finite(self) -> bool:
        """Whether all numbers are finite."""
        return self.triangle is None or linalg.finite(self.triangle)


class _Stream:
    """The rows of a window and the rows that follow, with the limits of the window.

    Rows are counted from the first row of the window before the new rows. Before row i the window
    begins with row first[i], and the penalty was renewed at the clock renewed[i].
    """

    def __init__(self, rule: "Window", state: WindowBuffer, new: WindowRows) -> None:
        self.cache, m = state.cache.taken(), len(state)
        self.fading = _fading(rule)
        same = state.fading == self.fading
        self.empty, self.saved = state.empty, state.triangle if same else None
        self.loop = self.cache.loop if same else None  # the compiled loop
        self.rows = self.cache.append(state.stored_rows, new)
        self.clock = _clock_of(rule, self.rows)  # in half-lives
        self.first = np.concatenate((np.zeros(m + 1, dtype=np.intp), _starts(rule, self.rows, m)))
        self.renewed = _renewals(self.clock, m, state.age)
        self.fades = bool(self.clock[-1] > 0.0 or state.age > 0.0)

    def penalise(self, rows: Floats) -> None:
        """Add pseudo-rows to the penalty."""
        self.empty, self.saved, self.loop = _penalised(self.empty, rows), None, None

    def learn(self, i: int, stop: int) -> Floats:
        """Learn the rows from i up to stop; return their errors."""
        found = []
        while i < stop:
            errors = self._compiled(i, stop)
            if not len(errors):
                self.saved = self.loop = None
                errors = self._some(i, stop)
            found.append(errors)
            i += len(errors)
        return np.concatenate(found)

    def end(self) -> tuple[JointTriangle, WindowBuffer]:
        """The triangle after all rows, and the new state."""
        n, first = len(self.rows), int(self.first[-1])
        rows, loop = self.rows.part(slice(first, None)), self.loop
        rows = rows.copied() if self.cache.storage is None else rows
        age = float(self.clock[-1] - self.renewed[-1])
        *_, accurate, mass = (0, 0.0) if loop is None else loop.numbers()
        if not accurate:
            return self._triangle(first, n), self._state(rows, age, None)
        p, c = self.empty.z.shape
        R, z = np.split(_part(loop, "triangle").reshape(p, p + c), [p], axis=1)
        center = _part(loop, "center")
        whole = replace(  # the loop has checked the sizes of the columns
            self.empty,
            R=np.asfortranarray(R),
            z=np.ascontiguousarray(z),
            squares=self.empty.squares + _part(loop, "squares"),
            mass=mass,
            features=center[int(self.empty.free) : p],
            targets=center[p:],
        )
        return whole, self._state(rows, age, _part(loop, "state"))

    def _state(self, rows: WindowRows, age: float, saved: Floats | None) -> WindowBuffer:
        """The state after all rows, which gets the contents of the cache."""
        self.cache.loop = self.loop
        state = WindowBuffer(self.empty, rows, age, saved, self.fading)
        vars(state.cache).update(vars(self.cache))
        return state

    def _compiled(self, i: int, stop: int) -> Floats:
        """Learn rows by the compiled loop; return their errors."""
        rows, empty, low = self.rows, self.empty, int(self.first[i])
        d, c = rows.X.shape[1], rows.b.shape[1]
        if native.loops is None or low == i or max(d, c) > _WIDEST:
            return rows.b[:0]
        loop = self.loop
        if loop is None:
            loop = native.loops.Window(d, c, empty.free, empty.loose, 0, 0.0, None)
            loop.put("penalty", np.ascontiguousarray(np.hstack((empty.R, empty.z))))
            loop.load(i - low, *self._arrays(low, i, low))
            loop.numbers(2.0 ** (self.renewed[i] - self.clock[i - 1]))
            if self.saved is not None:
                loop.put("state", self.saved)
        if not loop.numbers()[3]:
            return rows.b[:0]
        self.loop, errors = loop, np.empty((stop - i, c))
        X, b, weights, clock = self._arrays(i, stop, i - 1)
        leaving = np.diff(self.first[i : stop + 1]).astype(np.float64)
        return errors[: loop.learn(stop - i, X, b, weights, errors, clock, leaving)]

    def _arrays(self, i: int, j: int, zero: int) -> tuple[Floats, ...]:
        """Rows from i up to j, with clocks relative to that of row ``zero``."""
        rows = self.rows.part(slice(i, j))
        return rows.X, rows.b, rows.roots**2, self.clock[i:j] - self.clock[zero]

    def _some(self, i: int, stop: int) -> Floats:
        """Learn some rows from i; return their errors."""
        first, low, clock = self.first, int(self.first[i]), self.clock
        p = len(self.empty.R)
        deep = clock[i] + _DEEPEST if i == low else clock[i - 1] + _DEEPEST
        stop = min(
            stop,
            i + _LONG,
            max(i + 1, int(np.searchsorted(clock, deep, side="right"))),
            int(np.searchsorted(self.renewed, self.renewed[i], side="right")),
        )
        free = int(np.searchsorted(first[i:stop], low, side="right"))  # no departures among these
        if free < _FEW and min(stop, 2 * i - low) > i + 1:
            width = max(16, min(128, int(1.5 * p ** (2 / 3))))
            errors = self._slid(i, min(stop, i + width, 2 * i - low))
            if errors is not None:
                return errors
        whole = self._triangle(low, i)
        more = self._weighted(i, i + (free if whole.calm else 1), max(i - 1, low))
        A, b = whole.rows(more.X, more.b, more.roots)
        calm = whole.calm_rows(A)
        if calm:  # not large compared with the triangle
            A, b, X, roots = A[:calm], b[:calm], more.X[:calm], more.roots[:calm]
            return np.asarray(whole.absorb(A, b, X, roots)[1] / roots[:, None])
        return np.asarray((b[:1] - A[:1] @ whole.solution()) / more.roots[0])

    def _weighted(self, i: int, j: int, now: int) -> WindowRows:
        """Rows from i up to j, with their weights at the time of row ``now``."""
        rows = self.rows.part(slice(i, j))
        if not self.fades:
            return rows
        return replace(rows, roots=rows.roots * np.exp2(0.5 * (self.clock[i:j] - self.clock[now])))

    def _triangle(self, i: int, j: int) -> JointTriangle:
        """The triangle of the rows from i up to j, relative to the last, at its time.

        Constant features are exactly 0.
        """
        rows, empty, now = self._weighted(i, j, j - 1), self.empty, j - 1
        if i == j:
            return empty
        joint = empty.around(rows.X[-1], rows.b[-1]).noting(rows.X)
        joint = replace(joint, mass=float(rows.roots @ rows.roots))
        A, b = joint.rows(rows.X, rows.b, rows.roots)
        if not self.fades:
            return taken_in(joint, A, b)
        root = 2.0 ** (0.5 * (self.renewed[now + 1] - self.clock[now]))
        faded = replace(joint, R=root * joint.R, z=root * joint.z, squares=root**2 * joint.squares)
        return joined(faded, A, b)

    def _slid(self, i: int, j: int) -> Floats | None:
        """The errors of rows while others leave the window, by (2); None if (2) is not accurate."""
        first = self.first[i:j]
        low, high, n = int(first[0]), int(first[-1]), j - i
        stays = self._triangle(high, i) if high < i else None
        if stays is None or not stays.calm:
            return None
        old, new = self._weighted(low, high, i - 1), self._weighted(i, j, i - 1)
        rows = old.then(new)
        A, b = stays.rows(rows.X, rows.b, rows.roots)
        e = b - A @ linalg.solve_upper(stays.R, stays.z)
        V = linalg.whitened(A, stays.R)
        K = V @ V.T
        if not K.diagonal().max() < _SHARP:
            return None
        leaving = high - low
        sizes = leaving + np.arange(n) - (first - low)
        at = (first - low)[:, None] + np.arange(sizes.max(initial=1))
        there = np.arange(at.shape[1]) < sizes[:, None]
        at = np.where(there, at, 0)
        M = K[at[:, :, None], at[:, None, :]] * (there[:, :, None] & there[:, None, :])
        M[:, np.arange(at.shape[1]), np.arange(at.shape[1])] += 1.0
        solved = np.linalg.solve(M, e[at] * there[:, :, None])
        k = K[leaving + np.arange(n)[:, None], at] * there
        errors = e[leaving:] - np.einsum("jl,jlc->jc", k, solved)
        return np.asarray(errors / new.roots[:, None])


def _renewals(clock: Floats, m: int, age: float) -> Floats:
    """The clock of the last renewal of the penalty before each row, and after the last, (n + 1,).

    The first m rows are those of the window, after which the penalty has this age.
    """
    n = len(clock)
    i, at = m, clock[m - 1] - age if m else clock[0]
    renewed = np.full(n + 1, at)
    while i < n:
        j = max(i, int(np.searchsorted(clock, at + _RENEWED)))
        renewed[i : j + 1] = at
        i, at = j + 1, clock[min(j, n - 1)]
        if i == n:
            renewed[n] = at
    return renewed


def _part(loop: Any, name: str) -> Floats:
    """A writable copy of a part of the loop's state."""
    return np.frombuffer(loop.get(name), dtype=np.float64).copy()


def _penalised(joint: JointTriangle, rows: Floats) -> JointTriangle:
    """Add pseudo-rows (k, d) to the penalty, whose targets are the predictions of w₀."""
    A = np.column_stack((np.zeros((len(rows), int(joint.free))), rows))
    return taken_in(joint, A, np.zeros((len(rows), joint.z.shape[1])))


@dataclass(frozen=True)
class Window:
    """Least squares on the last rows only, which are stored.

    Parameters
    ----------
    rows : int, optional
        The number of rows, at least 1.
    span : float, str or timedelta, optional
        Alternative to ``rows``: a window of all rows younger than this, relative to the last row. A
        number in the unit of ``time``, or, if ``time`` contains dates, a timedelta or text such as
        ``"7d"``. All rows of the window are stored.
    factor : float, optional
        λ in (0, 1]: within the window, a row k rows ago has weight λᵏ. By default 1.
    half_life : float, str or timedelta, optional
        Alternative to ``factor``: the age at which a row of the window has weight ½, in the same
        kind of unit as ``span``.

    Raises
    ------
    ParameterError
        If not exactly one of ``rows`` and ``span``, or both of ``factor`` and ``half_life`` are
        given, or a number is out of range.

    Examples
    --------
    >>> import onepass as op
    >>> X = np.random.default_rng(0).normal(size=(300, 2))
    >>> y = X @ [1.0, 2.0]
    >>> y[:200] = 0.0
    >>> model = op.RLSRegressor(0.0, op.forgetting.Window(100)).fit(X, y)
    >>> model.coef_.round(9)
    array([1., 2.])
    """

    rows: int | None = None
    _: KW_ONLY
    span: Any = None
    factor: float | None = None
    half_life: Any = None

    state: ClassVar[type] = WindowBuffer
    additive: ClassVar[bool] = False
    stores_rows: ClassVar[bool] = True

    def __post_init__(self) -> None:
        where = "forgetting.Window"
        if (self.rows is None) == (self.span is None):
            given = "neither" if self.rows is None else "both"
            raise ParameterError(
                f"{where}: exactly one of `rows` and `span` must be given, got {given}. "
                "Use Window(1000) or Window(span='1h')."
            )
        if self.rows is not None:
            object.__setattr__(self, "rows", validation.whole(self.rows, "rows", where, low=1))
        else:
            object.__setattr__(self, "span", validation.duration(self.span, "span", where))
        if self.factor is not None and self.half_life is not None:
            raise ParameterError(
                f"{where}: `factor` and `half_life` must not both be given, got both. Omit one of "
                "them."
            )
        if self.factor is not None:
            factor = validation.in_range(self.factor, "factor", where, above=0.0, high=1.0)
            object.__setattr__(self, "factor", None if factor == 1.0 else factor)
        if self.half_life is not None:
            length = validation.duration(self.half_life, "half_life", where)
            object.__setattr__(self, "half_life", length)
        if {clock(self.span), clock(self.half_life)} == {"number", "date"}:
            raise ParameterError(
                f"{where}: `span` and `half_life` must both be numbers, or both be durations such "
                f"as '1h', got {self.span!r} and {self.half_life!r}. Use one kind of times."
            )

    def __repr__(self) -> str:  # as in former versions, if rows of the window do not fade
        fading = {"factor": self.factor, "half_life": self.half_life}
        given = "".join(f", {name}={value!r}" for name, value in fading.items() if value)
        return f"Window(rows={self.rows!r}, span={self.span!r}{given})"

    @property
    def clock(self) -> str | None:
        """The type of row times required: "number", "date" or None."""
        return clock(self.half_life if self.span is None else self.span)

    def start(self, past: LeastSquaresState, least: Floats) -> WindowBuffer:
        """The initial state; the penalty is in the memory."""
        del least
        return WindowBuffer.start(JointTriangle.start(past.memory, free=past.centering.free))

    def learn(self, state: WindowBuffer, past: LeastSquaresState, rows: NewRows) -> Learned:
        """Learn rows one after the other."""
        b = rows.targets(rows.X, rows.Y)
        new = WindowRows(
            np.asarray(rows.X, dtype=np.float64, order="C"),
            np.asarray(b, dtype=np.float64, order="C"),
            rows.roots,
            rows.time,
        )
        prior, pseudo = _met(past, state, new)
        stream, m, n = _Stream(self, state, new), len(state), len(new)
        i, errors = 0, np.empty(rows.Y.shape)
        for stop in sorted({*pseudo, n}):
            if stop > i:
                errors[i:stop] = stream.learn(m + i, m + stop)
            if stop in pseudo:
                stream.penalise(pseudo[stop])
            i = stop
        whole, after = stream.end()
        memory, centering = whole.past(rows.start, past.memory.ridge)
        return Learned(errors, LeastSquaresState(memory, centering, prior), after)


class CompiledWindow:
    """Conversion between the state of a window of rows and the compiled state of a learner."""

    state: ClassVar[type] = WindowBuffer

    @staticmethod
    def supports(rule: Window, d: int, n: int) -> bool:
        """Whether there is a compiled state for this window with d features."""
        del n
        return rule.rows is not None and rule.half_life is None and d <= _WIDEST

    @staticmethod
    def compile(
        rule: Window,
        past: LeastSquaresState,
        state: WindowBuffer,
        start: Floats,
        row_format: tuple[Any, ...] | None,
    ) -> Any:
        """Return the compiled state; None if the window does not determine the weights accurately.

        Parameters
        ----------
        rule : Window
        past, state : LeastSquaresState and WindowBuffer
        start : ndarray of shape (d, c)
            Initial weights w₀.
        row_format : tuple or None
            How single rows are read, the last argument of ``native.loops.Window``.
        """
        rows, empty, prior = state.stored_rows, state.empty, past.prior
        d, c = start.shape
        if not len(state) or c > _WIDEST or (prior.level and not prior.seen.all()):
            return None
        loops: Any = native.loops
        step = -math.log2(rule.factor or 1.0)
        window = loops.Window(d, c, empty.free, empty.loose, rule.rows, step, row_format)
        window.put("penalty", np.ascontiguousarray(np.hstack((empty.R, empty.z))))
        window.put("start", np.ascontiguousarray(start))
        X, b = np.ascontiguousarray(rows.X), np.ascontiguousarray(rows.b)
        window.load(len(rows), X, b, rows.roots**2, _clock_of(rule, rows))
        window.numbers(2.0**-state.age)
        if state.triangle is not None and state.fading == _fading(rule):
            window.put("state", state.triangle)
        window.constants = CompiledWindow, rule, empty, past.memory.ridge, prior, start
        return window if window.numbers()[3] else None

    @staticmethod
    def read(window: Any) -> tuple[LeastSquaresState, WindowBuffer]:
        """Copy a compiled state to the form that NumPy uses."""
        _, rule, empty, ridge, prior, start = window.constants
        loop = window.copy()  # its triangle may be computed anew
        n, share, *_ = loop.numbers()
        d, c = start.shape
        X, b = _part(loop, "X").reshape(n, d), _part(loop, "Y").reshape(n, c)
        rows = WindowRows(X, b, np.sqrt(_part(loop, "weights")), None)
        none = rows.part(slice(0, 0))
        stream = _Stream(rule, WindowBuffer(empty, rows, -math.log2(share)), none)
        stream.loop = loop
        whole, state = stream.end()
        memory, centering = whole.past(start, ridge)
        state = replace(state, stored_rows=rows)  # without the cache, whose loop has other targets
        return LeastSquaresState(memory, centering, prior), state

    @staticmethod
    def exported(window: Any) -> dict[str, Any]:
        """Nothing: learning continues from the state in NumPy's form."""
        del window
        return {}


def _fading(rule: Window) -> str:
    """How the rows of a window fade."""
    return f"{rule.factor} {rule.half_life}"


def _clock_of(rule: Window, rows: WindowRows) -> Floats:
    """The time of each row in half-lives since the first."""
    if rule.half_life is not None:
        length = rule.half_life
        unit = validation.seconds(length) if isinstance(length, str) else length
        return np.asarray(np.cumsum(validation.elapsed(rows.time, None)) / unit)
    return np.arange(len(rows)) * -math.log2(rule.factor or 1.0)


def _starts(rule: Window, rows: WindowRows, m: int) -> Array:
    """The first row of the window after each row from m on."""
    if rule.rows is not None:
        return np.maximum(np.arange(m, len(rows)) + 1 - rule.rows, 0)
    until = _outside(rows.time[m:], rule.span)
    return np.asarray(np.searchsorted(rows.time, until, side="right"))


def _outside(time: Array, span: float | str) -> Array:
    """The last time outside the window that ends at each time, which is always inside."""
    if time.dtype.kind in "iM":
        if isinstance(span, str):
            length = validation.per_second(time) * validation.seconds(span)
        else:
            length = math.ceil(span)
        length = max(1, round(min(length, _LONGEST)))
        least = np.iinfo(np.int64).min + (time.dtype.kind == "M")  # the least integer encodes NaT
        moved: Array = np.maximum(time.view(np.int64), least + length) - length
        return moved.view(time.dtype)
    return np.asarray(np.minimum(time - span, np.nextafter(time, -np.inf)))


def _met(
    past: LeastSquaresState, state: WindowBuffer, new: WindowRows
) -> tuple[Any, dict[int, Floats]]:
    """The prior after all rows, and pseudo-rows of new features, by the row that they precede."""
    prior, free, stored = past.prior, state.empty.free, state.stored_rows
    reference = stored.X[-1] if free and len(stored) else np.zeros(new.X.shape[1])
    if free and not len(stored):
        reference = new.X[0]
        prior = prior.after_first_row(reference)
    pseudo = prior.pseudo_rows(new.X - reference) if prior.level else None
    if pseudo is None:
        return prior, {}
    at = np.unique(pseudo.before)
    return pseudo.prior.with_pseudo_rows(pseudo.rows), {
        int(i): pseudo.rows[pseudo.before == i] for i in at
    }
