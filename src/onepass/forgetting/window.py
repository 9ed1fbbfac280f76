"""Window: least squares on the last rows alone, exactly, at every row.

    argmin over w, b of  Σ over the window of s_k (y_k − b − x_kᵀ w)² + ‖w − w₀‖²_Π          (1)

where the window is the last n rows, or all rows younger than a span of time. The ridge does not
fade, and neither does the prior. It is the one rule that keeps rows: those of the window, twice at
most, since what leaves must be known. No row is taken out of a triangle, which would lose digits:
see :mod:`onepass.forgetting.kept`. Within a block of rows a_1, a_2, … the oldest leave one after
the other as these come. With the triangle R of those that stay, and the rows V = A R⁻¹ of both,

    error of a_j = e_j − k_j (I + K_jj)⁻¹ e_J,     K = V Vᵀ                                  (2)

where e are errors before the block by what stays, and J the rows of the window when a_j comes, one
stretch of those that leave and those that have come. Where R is too ill-conditioned for (2), rows
are learned one by one with the triangle of the whole window; where that is too ill-conditioned as
well, from the rows of the window themselves.
Cost: O(p^{7/3}) time a row in blocks, O(p³) one by one, O(n p²) where columns depend on each other
and the ridge is below their rounding; O(n p) memory for n rows.
"""

import math
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, ClassVar

import numpy as np

from onepass import linalg, validation
from onepass.errors import Array, Floats, ParameterError
from onepass.forgetting.joint import Joint, taken_in
from onepass.forgetting.kept import Kept, Queue
from onepass.forgetting.pace import clock
from onepass.forgetting.past import Coming, Learned, Past

__all__ = ["Window"]

_LONG = 128  # rows looked ahead
_SHARP = 1e2  # the largest leverage at which (2) keeps its digits
_LONGEST = 2.0**62  # units that can be subtracted from a time
_FEW = 4  # so many rows that nothing leaves between them are taken in as they are


@dataclass(frozen=True)
class Window:
    """Least squares on the last rows alone, which are kept.

    Parameters
    ----------
    rows : int, optional
        How many, at least 1.
    span : float, str or timedelta, optional
        In place of it: all rows less than so old, as of the last row. A number in the unit of
        ``time``, or, where that holds dates, a timedelta or text such as ``"90min"``, ``"7d"``.
        There are as many rows in memory as came within it.

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

    state: ClassVar[type] = Queue
    keeps_sums: ClassVar[bool] = False
    keeps_rows: ClassVar[bool] = True

    def __post_init__(self) -> None:
        where = "forgetting.Window"
        if (self.rows is None) == (self.span is None):
            came = "neither" if self.rows is None else "both"
            raise ParameterError(
                f"{where}: one of `rows` and `span`, by time, must be given, got {came}. "
                "Give Window(1000) or Window(span='1h')."
            )
        if self.rows is not None:
            object.__setattr__(self, "rows", validation.whole(self.rows, "rows", where, low=1))
        else:
            object.__setattr__(self, "span", validation.duration(self.span, "span", where))

    @property
    def clock(self) -> str | None:
        """What times it needs: "number", "date" or None."""
        return clock(self.span)

    def start(self, past: Past, least: Floats) -> Queue:
        """The state of no rows; the penalty stands in the memory."""
        del least
        return Queue.start(Joint.start(past.memory, free=past.centering.free))

    def learn(self, state: Queue, past: Past, rows: Coming) -> Learned:
        """Learn rows one after the other."""
        limits = _Limits(self, rows.time)
        b = rows.answers(rows.X, rows.Y)
        kept = Kept(
            np.asarray(rows.X, dtype=np.float64, order="C"),
            np.asarray(b, dtype=np.float64, order="C"),
            rows.roots,
            rows.time,
        )
        queue, whole = state, None
        prior, pseudo = _met(past, state, kept)
        errors, i, n = np.empty(rows.Y.shape), 0, len(kept)
        while i < n:
            if i in pseudo:
                queue, whole = queue.penalised(pseudo[i]), None
            stop = min([k for k in pseudo if k > i], default=n)
            part = slice(i, min(stop, i + _LONG))
            due = limits.due(queue, part)
            free = int(np.argmax(due > 0)) if due.any() else len(due)
            width = _block(len(queue.back.R), due, queue.ahead)
            said = None
            if free < _FEW and width > 1:
                part = slice(i, i + width)
                said, whole = _slid(queue, kept.part(part), due[:width]), None
            if said is None:
                last = 1 if queue.ahead or not free else 0  # the row after which some leave
                whole = queue.triangle() if whole is None else whole
                part = slice(i, min(part.stop, i + free + last))
                whole, said = _grown(queue, whole, kept.part(part))
                part = slice(i, i + len(said))
            errors[part] = said / kept.roots[part, None]
            if not len(queue):
                errors[0] = b[0]  # said by w₀ alone
            queue, left = _moved(queue, kept.part(part), limits, part.stop - 1)
            whole = None if left else whole
            i = part.stop
        whole = queue.triangle() if whole is None else whole
        whole = whole if whole.calm else queue.fresh()
        memory, centering = whole.past(rows.start, past.memory.ridge)
        return Learned(errors, Past(memory, centering, prior), queue)


class _Limits:
    """When rows leave."""

    def __init__(self, window: Window, time: Any) -> None:
        self.most, self.time, self.until = window.rows, time, time
        if window.span is not None:
            self.until = _outside(time, window.span)

    def due(self, queue: Queue, part: slice) -> Array:
        """How many have left after each of these rows; if from the back too, at least one."""
        if self.most is not None:
            after = len(queue) + np.arange(part.stop - part.start) + 1
            return np.asarray(np.maximum(after - self.most, 0))
        if queue.ahead:
            times = queue.front.time[queue.gone :]
            return np.asarray(np.searchsorted(times, self.until[part], side="right"))
        oldest = queue.oldest
        oldest = self.time[part.start] if oldest is None else oldest
        return np.asarray(self.until[part] >= oldest, dtype=np.intp)

    def left(self, queue: Queue, row: int) -> int:
        """How many of the front, or of a new front, have left after this row."""
        return int(self.due(queue, slice(row, row + 1))[0])


def _outside(time: Array, span: float | str) -> Array:
    """The last moment that is out of the window, as of each time; that time itself never is."""
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


def _met(past: Past, queue: Queue, kept: Kept) -> tuple[Any, dict[int, Floats]]:
    """The prior after all rows, and the pseudo-rows of features met, by the row they precede."""
    prior, free = past.prior, queue.empty.free
    reference = queue.back.features
    if free and not len(queue) and past.centering.mass == 0.0:
        reference = kept.X[0]
        prior = prior.begun(reference)
    pseudo = prior.among(kept.X - reference)
    if pseudo is None:
        return prior, {}
    at = np.unique(pseudo.before)
    return pseudo.prior.holding(pseudo.rows), {int(i): pseudo.rows[pseudo.before == i] for i in at}


def _block(p: int, due: Array, ahead: int) -> int:
    """Rows to be taken at a time: until the front is empty, and so that (2) costs as (1) does."""
    width = min(len(due), max(16, min(128, int(1.5 * p ** (2 / 3)))))
    emptied = due[:width] >= ahead
    return (int(np.argmax(emptied)) + 1) if emptied.any() else width


def _grown(queue: Queue, whole: Joint, more: Kept) -> tuple[Joint, Floats]:
    """The triangle of the whole window with the first of some rows, and their errors.

    No row leaves the window between these. If the triangle is not calm, or may not be after the
    first row, one row is taken and its error is computed from the rows of the window themselves.
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


def _slid(queue: Queue, more: Kept, due: Array) -> Floats | None:
    """The errors of rows between which others leave, by (2); None where it would not be sharp."""
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


def _moved(queue: Queue, more: Kept, limits: _Limits, row: int) -> tuple[Queue, int]:
    """The window after more rows, of which ``row`` is the last, and how many have left it."""
    if limits.most is not None:
        left = max(len(queue) + len(more) - limits.most, 0)
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
