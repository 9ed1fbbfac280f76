"""Sliding window: exact least squares on the last rows only, at every row.

    argmin over w, b of  Σ over the window of s_k (y_k − b − x_kᵀ w)² + ‖w − w₀‖²_Π          (1)

where the window is the last n rows, or all rows younger than a time span. Neither the ridge nor the
prior fades. It is the only rule that stores rows: those of the window, at most twice, since the
rows that leave must be available. No row is removed from a triangle, which would lose digits.
Within a block of rows a_1, a_2, … the oldest rows leave one after the other as the new rows arrive.
With the triangle R of the rows that stay, and the whitened rows V = A R⁻¹ of the rows that leave
and arrive,

    error of a_j = e_j − k_j (I + K_jj)⁻¹ e_J,     K = V Vᵀ                                  (2)

where e are errors before the block with the rows that stay, and J the rows of the window when a_j
arrives, a contiguous range of those that leave and those that have arrived. If R is too
ill-conditioned for (2), rows are learned one by one with the triangle of the whole window; if that
triangle is too ill-conditioned as well, with a triangle computed anew from the rows of the window.
Cost: O(p^{7/3}) time per row in blocks, O(p³) one by one, O(n p²) if columns depend on each other
and the ridge is below their rounding errors; O(n p) memory for n rows.

The rows of the window are stored in two parts, as a queue made of two stacks. Rows enter the
*back*, whose triangle grows by QR. They leave from the *front*, for which the triangles of its
suffixes are stored, computed once from its last row to its first:

    T_b = triangle of the front's rows from b g on,    b = 0, 1, …                          (3)
    triangle of the window = QR of T_b, the remaining rows before b g, and the back's triangle (4)

When the front is empty, the back becomes the front, with a new reference row. Each row is added to
a triangle three times in all; a triangle is stored every g ≥ p rows, so that the triangles need no
more memory than the rows. Cost: O(p²) per row, O(p³) for (4), O(n p) memory for a window of n rows.
"""

import math
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, ClassVar

import numpy as np

from onepass import linalg, validation
from onepass.errors import ParameterError
from onepass.memory.forgetting.directional import JointTriangle, taken_in
from onepass.memory.forgetting.exponential import Learned, LeastSquaresState, NewRows, clock
from onepass.types import Array, Floats

__all__ = ["Window", "WindowBuffer", "WindowRows"]


_APART = 32  # minimum number of rows between two triangles of the front


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


@dataclass(frozen=True, eq=False, slots=True)
class WindowBuffer:
    """The rows of a window, and its triangles.

    Parameters
    ----------
    empty : JointTriangle
        The penalty only.
    back : JointTriangle
        The penalty and the rows of the back.
    parts : tuple of WindowRows
        The rows of the back, in order; each part is longer than the next.
    front : WindowRows
        The rows of the front.
    front_start : int
        The number of rows of the front that have left.
    ends : tuple of ndarrays of shapes (k, p, p), (k, p, c) and (k, c)
        R, z and squares of (3).
    """

    empty: JointTriangle
    back: JointTriangle
    parts: tuple[WindowRows, ...]
    front: WindowRows
    front_start: int
    ends: tuple[Floats, Floats, Floats]

    @classmethod
    def start(cls, empty: JointTriangle) -> "WindowBuffer":
        """The state before the first row."""
        p, c = empty.z.shape
        none = WindowRows(np.zeros((0, p - empty.free)), np.zeros((0, c)), np.zeros(0), None)
        return cls(empty, empty, (), none, 0, _ends(empty, none))

    def __len__(self) -> int:
        return self.ahead + sum(map(len, self.parts))

    @property
    def ahead(self) -> int:
        """The number of rows that can leave before the front is empty."""
        return len(self.front) - self.front_start

    @property
    def stored_rows(self) -> WindowRows:
        """All rows, in order."""
        rows = self.front.part(slice(self.front_start, None))
        for more in self.parts:
            rows = rows.then(more)
        return rows

    @property
    def oldest(self) -> Any:
        """The time of the oldest row; None if there is no row."""
        if self.ahead:
            return self.front.time[self.front_start]
        return self.parts[0].time[0] if self.parts else None

    def rows(self, n: int) -> tuple[Floats, Floats]:
        """The n oldest rows, all in the front, in the form that a triangle absorbs."""
        part = self.front.part(slice(self.front_start, self.front_start + n))
        return self.back.rows(part.X, part.b, part.roots)

    def triangle(self, without: int = 0) -> JointTriangle:
        """The triangle without some of the oldest rows, which must be in the front: (4)."""
        rows = self.front.part(slice(self.front_start + without, None))
        parts = [rows, *self.parts]
        mass = sum(float(part.roots @ part.roots) for part in parts)
        joint = replace(self.back, mass=mass)
        if not len(rows):
            return joint
        R, z, squares = self.ends
        apart = _apart(len(self.back.R))
        end = -(-(self.front_start + without) // apart)
        before = rows.part(slice(0, end * apart - self.front_start - without))
        A, b = self.back.rows(before.X, before.b, before.roots)
        if end < len(R):
            A, b = np.vstack((R[end], A)), np.vstack((z[end], b))
            joint = replace(joint, squares=joint.squares + squares[end])
        return taken_in(joint, A, b)

    def fresh(self) -> JointTriangle:
        """The triangle computed from the rows of the window only, relative to the newest row.

        It has no rounding errors from rows that have left, and constant features are exactly 0.
        """
        rows, empty = self.stored_rows, self.empty
        if not len(rows):
            return empty
        joint = empty.around(rows.X[-1], rows.b[-1]).noting(rows.X)
        joint = replace(joint, mass=float(rows.roots @ rows.roots))
        return taken_in(joint, *joint.rows(rows.X, rows.b, rows.roots))

    def pushed(self, more: WindowRows) -> "WindowBuffer":
        """Append rows."""
        back = self.back if len(self) else self.empty.around(more.X[0], more.b[0])
        back = taken_in(back.noting(more.X), *back.rows(more.X, more.b, more.roots))
        parts = (*self.parts, more.copied())
        while len(parts) > 1 and len(parts[-2]) <= len(parts[-1]):
            parts = (*parts[:-2], parts[-2].then(parts[-1]))
        return replace(self, back=back, parts=parts)

    def dropped(self, n: int) -> "WindowBuffer":
        """Remove the n oldest rows."""
        queue = self
        while n > queue.ahead:
            n -= queue.ahead
            queue = queue.turned()
        return replace(queue, front_start=queue.front_start + n)

    def turned(self) -> "WindowBuffer":
        """Make the rows of the back the front, relative to the last of these rows."""
        front = self.parts[0]
        for more in self.parts[1:]:
            front = front.then(more)
        back = self.empty.around(front.X[-1], front.b[-1]).noting(front.X)
        return WindowBuffer(self.empty, back, (), front, 0, _ends(back, front))

    def penalised(self, rows: Floats) -> "WindowBuffer":
        """Add pseudo-rows (k, d) to the penalty, whose targets are the predictions of w₀."""
        A = np.column_stack((np.zeros((len(rows), int(self.empty.free))), rows))
        b = np.zeros((len(rows), self.empty.z.shape[1]))
        return replace(self, empty=taken_in(self.empty, A, b), back=taken_in(self.back, A, b))

    def grown(self, d: int, ridge: float) -> "WindowBuffer":
        """Add features at the end, which were zero in all rows so far."""
        return self._changed(lambda rows: rows.grown(d), lambda joint: joint.grown(d, ridge))

    def with_outputs(self, at: Array, c: int) -> "WindowBuffer":
        """Extend to c outputs; those in columns ``at`` are new and were zero in all rows so far."""
        return self._changed(
            lambda rows: rows.with_outputs(at, c),
            lambda joint: joint.with_outputs(at, c),
        )

    def _changed(
        self,
        change: Callable[[WindowRows], WindowRows],
        change_triangle: Callable[[JointTriangle], JointTriangle],
    ) -> "WindowBuffer":
        """Apply a function to all rows and one to the triangles."""
        front, back = (
            change(self.front.part(slice(self.front_start, None))),
            change_triangle(self.back),
        )
        parts = tuple(map(change, self.parts))
        return WindowBuffer(change_triangle(self.empty), back, parts, front, 0, _ends(back, front))

    @property
    def finite(self) -> bool:
        """Whether all numbers are finite."""
        return self.back.finite and linalg.finite(*self.ends)


def _apart(p: int) -> int:
    """Rows between two triangles of the front."""
    return max(_APART, p)


def _ends(about: JointTriangle, front: WindowRows) -> tuple[Floats, Floats, Floats]:
    """The triangles (3), without the penalty."""
    p, c = about.z.shape
    apart = _apart(p)
    k = -(-len(front) // apart)
    R, z, squares = np.zeros((k, p, p)), np.zeros((k, p, c)), np.zeros((k, c))
    A, b = about.rows(front.X, front.b, front.roots)
    end: tuple[Floats, Floats, Floats] = (
        np.zeros((p, p), order="F"),
        np.zeros((p, c)),
        np.zeros(c),
    )
    for i in range(k - 1, -1, -1):
        rows = slice(i * apart, (i + 1) * apart)
        T, y, left = linalg.qr_update(end[0], end[1], A[rows], b[rows])
        end = (T, y, end[2] + left)
        R[i], z[i], squares[i] = end
    return R, z, squares


_LONG = 128  # rows looked ahead
_SHARP = 1e2  # maximum leverage at which (2) is accurate
_LONGEST = 2.0**62  # units that can be subtracted from a time
_FEW = 4  # number of rows without departures that are added directly


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

    Raises
    ------
    ParameterError
        If not exactly one of the two is given, or it is out of range.

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

    state: ClassVar[type] = WindowBuffer
    additive: ClassVar[bool] = False
    stores_rows: ClassVar[bool] = True

    def __post_init__(self) -> None:
        where = "forgetting.Window"
        if (self.rows is None) == (self.span is None):
            given = "neither" if self.rows is None else "both"
            raise ParameterError(
                f"{where}: either `rows`, or `span`, by time, must be given, got {given}. "
                "Use Window(1000) or Window(span='1h')."
            )
        if self.rows is not None:
            object.__setattr__(self, "rows", validation.whole(self.rows, "rows", where, low=1))
        else:
            object.__setattr__(self, "span", validation.duration(self.span, "span", where))

    @property
    def clock(self) -> str | None:
        """The type of row times required: "number", "date" or None."""
        return clock(self.span)

    def start(self, past: LeastSquaresState, least: Floats) -> WindowBuffer:
        """The initial state; the penalty is in the memory."""
        del least
        return WindowBuffer.start(JointTriangle.start(past.memory, free=past.centering.free))

    def learn(self, state: WindowBuffer, past: LeastSquaresState, rows: NewRows) -> Learned:
        """Learn rows one after the other."""
        limits = _Limits(self, rows.time)
        b = rows.targets(rows.X, rows.Y)
        new = WindowRows(
            np.asarray(rows.X, dtype=np.float64, order="C"),
            np.asarray(b, dtype=np.float64, order="C"),
            rows.roots,
            rows.time,
        )
        queue, whole = state, None
        prior, pseudo = _met(past, state, new)
        errors, i, n = np.empty(rows.Y.shape), 0, len(new)
        while i < n:
            if i in pseudo:
                queue, whole = queue.penalised(pseudo[i]), None
            stop = min([k for k in pseudo if k > i], default=n)
            part = slice(i, min(stop, i + _LONG))
            due = limits.due(queue, part)
            free = int(np.argmax(due > 0)) if due.any() else len(due)
            width = _block(len(queue.back.R), due, queue.ahead)
            found = None
            if free < _FEW and width > 1:
                part = slice(i, i + width)
                found, whole = _slid(queue, new.part(part), due[:width]), None
            if found is None:
                last = 1 if queue.ahead or not free else 0  # the row after which rows leave
                whole = queue.triangle() if whole is None else whole
                part = slice(i, min(part.stop, i + free + last))
                whole, found = _grown(queue, whole, new.part(part))
                part = slice(i, i + len(found))
            errors[part] = found / new.roots[part, None]
            if not len(queue):
                errors[0] = b[0]  # the prediction is that of w₀
            queue, left = _moved(queue, new.part(part), limits, part.stop - 1)
            whole = None if left else whole
            i = part.stop
        whole = queue.triangle() if whole is None else whole
        whole = whole if whole.calm else queue.fresh()
        memory, centering = whole.past(rows.start, past.memory.ridge)
        return Learned(errors, LeastSquaresState(memory, centering, prior), queue)


class _Limits:
    """The limits of a window, which determine the rows that leave."""

    def __init__(self, window: Window, time: Any) -> None:
        self.max_rows, self.time, self.until = window.rows, time, time
        if window.span is not None:
            self.until = _outside(time, window.span)

    def due(self, queue: WindowBuffer, part: slice) -> Array:
        """The number of rows that have left after each row; a lower bound if the front empties."""
        if self.max_rows is not None:
            after = len(queue) + np.arange(part.stop - part.start) + 1
            return np.asarray(np.maximum(after - self.max_rows, 0))
        if queue.ahead:
            times = queue.front.time[queue.front_start :]
            return np.asarray(np.searchsorted(times, self.until[part], side="right"))
        oldest = queue.oldest
        oldest = self.time[part.start] if oldest is None else oldest
        return np.asarray(self.until[part] >= oldest, dtype=np.intp)

    def left(self, queue: WindowBuffer, row: int) -> int:
        """The number of rows of the front, or of a new front, that have left after this row."""
        return int(self.due(queue, slice(row, row + 1))[0])


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
    past: LeastSquaresState, queue: WindowBuffer, new: WindowRows
) -> tuple[Any, dict[int, Floats]]:
    """The prior after all rows, and pseudo-rows of new features, by the row that they precede."""
    prior, free = past.prior, queue.empty.free
    reference = queue.back.features
    if free and not len(queue) and past.centering.mass == 0.0:
        reference = new.X[0]
        prior = prior.after_first_row(reference)
    pseudo = prior.pseudo_rows(new.X - reference)
    if pseudo is None:
        return prior, {}
    at = np.unique(pseudo.before)
    return pseudo.prior.with_pseudo_rows(pseudo.rows), {
        int(i): pseudo.rows[pseudo.before == i] for i in at
    }


def _block(p: int, due: Array, ahead: int) -> int:
    """The number of rows per block: until the front is empty, so that (2) costs as much as (1)."""
    width = min(len(due), max(16, min(128, int(1.5 * p ** (2 / 3)))))
    emptied = due[:width] >= ahead
    return (int(np.argmax(emptied)) + 1) if emptied.any() else width


def _grown(
    queue: WindowBuffer, whole: JointTriangle, more: WindowRows
) -> tuple[JointTriangle, Floats]:
    """Add the first of some rows to the triangle of the window; also return the errors.

    No row leaves the window between these rows. If the triangle is ill-conditioned, or may be after
    the first row, one row is added and its error is computed from the rows of the window.
    """
    if not len(queue):
        whole = whole.around(more.X[0], more.b[0])
    A, b = whole.rows(more.X, more.b, more.roots)
    calm = whole.calm_rows(A)
    more = more.part(slice(0, max(1, calm)))
    A, b = A[: len(more)], b[: len(more)]
    if calm:
        return whole.absorb(A, b, more.X, more.roots)
    grown = replace(whole.noting(more.X), mass=whole.mass + float(more.roots @ more.roots))
    fresh = queue.fresh()
    x, y = fresh.rows(more.X, more.b, more.roots)
    return taken_in(grown, A, b), y - x @ fresh.solution()


def _slid(queue: WindowBuffer, more: WindowRows, due: Array) -> Floats | None:
    """The errors of rows while others leave the window, by (2); None if (2) is not accurate."""
    n, leaving = len(more), int(due[-2])
    stays = queue.triangle(leaving)
    if not stays.calm:
        return None
    old, new = queue.rows(leaving), stays.rows(more.X, more.b, more.roots)
    A, b = np.vstack((old[0], new[0])), np.vstack((old[1], new[1]))
    e = b - A @ linalg.solve_upper(stays.R, stays.z)
    V = linalg.whitened(A, stays.R)
    K = V @ V.T
    if not K.diagonal().max() < _SHARP:
        return None
    first = np.concatenate(([0], due[:-1]))
    sizes = leaving + np.arange(n) - first
    at = first[:, None] + np.arange(sizes.max(initial=1))
    there = np.arange(at.shape[1]) < sizes[:, None]
    at = np.where(there, at, 0)
    M = K[at[:, :, None], at[:, None, :]] * (there[:, :, None] & there[:, None, :])
    M[:, np.arange(at.shape[1]), np.arange(at.shape[1])] += 1.0
    solved = np.linalg.solve(M, e[at] * there[:, :, None])
    k = K[leaving + np.arange(n)[:, None], at] * there
    errors: Floats = e[leaving:] - np.einsum("jl,jlc->jc", k, solved)
    return errors


def _moved(
    queue: WindowBuffer, more: WindowRows, limits: _Limits, row: int
) -> tuple[WindowBuffer, int]:
    """The window after more rows, up to index ``row``, and the number of rows that have left."""
    if limits.max_rows is not None:
        left = max(len(queue) + len(more) - limits.max_rows, 0)
        if left and not queue.ahead:  # a window later than the last time, whatever the blocks
            queue = queue.turned()
        return queue.pushed(more).dropped(left), left
    queue, left = queue.pushed(more), 0
    while (some := limits.left(queue, row)) > 0:
        if not queue.ahead:
            queue = queue.turned()
            continue
        queue, left = queue.dropped(some), left + some
    return queue, left
