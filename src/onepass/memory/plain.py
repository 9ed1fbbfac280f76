"""Recursive least squares on one vector, row by row in NumPy.

The algorithm of native/core/least_squares.c, window.c and mixture.c on the same vector: it runs
without a compiler, tests compare the compiled core with it, and files are interchangeable. A row
[a b] of weight q is added to row j of the triangle by a rotation without square roots, where x is
what is left of the row, u is row j of [U θ], and a = x_j:

    D' = D + q a²,   x ← x − a u,   u ← u + (q a / D') x,   q ← q D / D'                    (1)

What is left of b after all rotations is the error of the row before it was learned. The rows of a
window are not removed one by one: the state is computed again from those that remain.

Cost: O(d²) time per row, O(d²) memory; in a window of n rows, O(n d²) time per row.
"""

from __future__ import annotations

import numpy as np

from onepass.memory.vector import (
    DECAY,
    PANEL,
    SHARE,
    Flag,
    Parts,
    Slot,
    Window,
    WindowSlot,
    experts,
    numbers,
)
from onepass.types import Floats

# Equal to the constants of native/core: least_squares.h and .c; mixture.c in the last line.
TINY = 1e-307  # a smaller D counts as 0: its inverse may overflow
SUDDEN = -8.0  # log2 of a fade at once that leaves only a prior
FAINT = 2.0**-22  # of a row, which the past keeps; of a column, in a prior
MOST = 1e300  # of a prior, before it faded
FORGOTTEN = -1e6  # log2 of a fade after which nothing remains
TURN_FADE = -2.0  # log2 by which the past fades in a turn of all panels
HOLD = 10.0  # ridges that LEVEL puts back at least
UNIT = 1e-15  # least prior: (3e-8 column lengths)²
RAISED = 5.0  # factor of the sums after which this prior is raised
CLEAR = 1e3  # D, in ridges, of a weight that the rows determine
STALE, SOLVED = 0.0, 2.0  # values of FRESH
RATE, LIMIT, CAP, ROUNDING = 0.5, 16.0, 1000.0, 1e-16
Numbers = Floats | None


@np.errstate(all="ignore")  # as in C: the result is then not finite
def learn(
    vector: Floats, X: Floats, Y: Floats, weights: Numbers, fades: Numbers, leaving: Numbers
) -> tuple[Floats, bool]:
    """Learn rows: see :func:`onepass.memory.least_squares.learn`."""
    parts, s = Parts(vector), np.ones(len(X)) if weights is None else weights
    if parts.flags & Flag.MIXTURE:
        each = np.array([_learn_rows(Parts(one), X, Y, s, None) for one in experts(vector)])
        errors = weigh(numbers(vector), Y, s, each, indicators=bool(parts.flags & Flag.INDICATORS))
    elif parts.flags & Flag.WINDOW:
        errors = _learn_window(vector, X, Y, s, fades, leaving)
    else:
        errors = _learn_rows(parts, X, Y, s, fades)
    return errors, all(_is_finite(Parts(one)) for one in experts(vector))


@np.errstate(all="ignore")
def rotate(vector: Floats, rows: Floats, weights: Floats) -> bool:
    """Add rows [a b] (n, stride), not centred, of any weights; return whether all is finite."""
    parts = Parts(vector)
    for row, q in zip(np.array(rows, np.float64), weights, strict=True):
        parts.sums += q * row * row
        _rotate(parts, row, q)
    return _is_finite(parts)


@np.errstate(all="ignore")
def solve(parts: Parts) -> None:
    """Compute the weights: U w = θ."""
    d, w = parts.d, parts.w
    for j in reversed(range(d)) if parts.head[Slot.FRESH] != SOLVED else ():
        w[:, j] = parts.T[j, d : d + parts.c] - w[:, j + 1 :] @ parts.T[j, j + 1 : d]
    parts.head[Slot.FRESH] = SOLVED


@np.errstate(all="ignore")
def weigh(values: Floats, Y: Floats, s: Numbers, E: Floats, *, indicators: bool = False) -> Floats:
    """Errors (n, c) of a mixture from those of its experts, E (K, n, c); its numbers change."""
    K, n, c = E.shape  # below: (1) to (3) of :mod:`onepass.forgetting.auto`
    pi, squares, errors = values[: K * c].reshape(K, c), values[K * c : -1], np.empty_like(Y)
    for i, (y, weight) in enumerate(zip(Y, np.ones(n) if s is None else s, strict=True)):
        errors[i], count = (pi * E[:, i]).sum(axis=0), values[-1]
        if count >= 0.0:  # below 0, rows are skipped
            limited = y - np.clip(y - E[:, i], 0.0, 1.0) if indicators else E[:, i]
            loss = limited * limited * weight
            v = np.where(squares > 0.0, squares / max(count, 1e-300), np.inf)
            worse = np.fmin(loss / v, LIMIT)
            factors = np.exp(-0.5 * RATE * (worse - worse.min(axis=0)))
            pi[:] = ((1.0 - SHARE) * pi + SHARE / K) * factors
            pi /= pi.sum(axis=0)
            leading = np.fmin(loss[pi.argmax(axis=0), np.arange(c)], CAP * v)
            squares[:] = DECAY * squares + np.fmax(leading, ROUNDING * y * y * weight)
        values[-1] = (DECAY * count if count >= 0.0 else count) + 1.0
    return errors


def _is_finite(parts: Parts) -> bool:
    end, D, theta = parts.d + parts.c, np.diagonal(parts.T), parts.T[:, parts.d :].ravel()
    checked = np.concatenate((D, theta, parts.means[:end], parts.sums[:end], parts.squares))
    return bool(np.isfinite(checked).all())


def _learn_rows(parts: Parts, X: Floats, Y: Floats, weights: Floats, fades: Numbers) -> Floats:
    """Learn rows in a plain vector; return their errors."""
    logs = np.full(len(X), parts.head[Slot.FACTOR]) if fades is None else fades
    rows = zip(X, Y, weights, logs, strict=True)
    return np.array([_learn_row(parts, *row) for row in rows]).reshape(Y.shape)


def _rotate(parts: Parts, x: Floats, q: float) -> None:
    """Add a row [a b] of weight q to the triangle; b becomes its error."""
    for j, u in enumerate(parts.T):
        a, D, left, right = x[j], u[j], x - x[j] * u, slice(j + 1, None)
        if a != 0.0:
            u[j] += q * a * a  # D'
            share, gain = (D / u[j], q * a / u[j]) if u[j] > TINY else (1.0, 0.0)
            if abs(D) <= 0.25 * abs(u[j]):  # no digits are lost if the row outweighs the past
                u[right] = share * u[right] + gain * x[right]
            else:
                u[right] += gain * left[right]  # (1)
            x[right], q = left[right], q * share
    parts.squares += q * x[parts.d : parts.d + parts.c] ** 2
    parts.head[Slot.FRESH] = STALE


def _learn_row(parts: Parts, x: Floats, y: Floats, weight: float, log: float) -> Floats:
    """Predict a row, fade the past, adapt the prior and the means, add the row; return errors."""
    head, d, end, m = parts.head, parts.d, parts.d + parts.c, parts.means
    raw = row = np.concatenate((x, y, np.zeros(parts.stride - end)))
    errors = _eliminate(parts, ((row - m) - parts.rests)[None])[0, d:end]
    _fade(parts, log, weight)
    if len(parts.prior):
        _adapt_prior(parts, x, weight)
    mass, after, h = head[Slot.MASS], head[Slot.MASS] + weight, weight
    head[[Slot.ROWS, Slot.MASS]] += 1.0, weight
    if parts.free:
        away = ((row - m) - parts.rests) * (mass > 0.0)
        if weight > mass:  # so that a repeated row leaves no rounding error
            base, move = row, -away * (mass / after)
        else:
            base, move = m.copy(), parts.rests + away * (weight / after)
        m[:], row, h = base + move, away, weight * (mass / after)
        parts.rests[:] = (base - (m - (m - base))) + (move - (m - base))
    parts.sums += h * row * row
    if len(parts.energy):
        excited = (raw != parts.last) & (mass > 0.0) if parts.free else raw != 0.0
        parts.energy += weight * excited * row**2
        parts.active += weight * excited
        parts.last[:] = raw
    _rotate(parts, row, h)
    return errors


def _eliminate(parts: Parts, rows: Floats, start: int = 0) -> Floats:
    """Replace the a of rows [a b] (n, stride) by a in units of U, and b by its errors."""
    for j in range(start, parts.d):
        rows[:, j + 1 :] -= rows[:, j, None] * parts.T[j, j + 1 :]
    return rows


def _add_prior(parts: Parts, j: int, q: float, targets: Numbers = None) -> None:
    """Add the pseudo-row e_j of weight q; its targets are the initial weights unless given."""
    row, initial = np.zeros(parts.stride), parts.start[:, j] if len(parts.start) else 0.0
    row[parts.d : parts.d + parts.c], row[j] = initial if targets is None else targets, 1.0
    parts.sums[j] += q
    _rotate(parts, row, q)


def rescale(parts: Parts, log: float) -> None:
    """Multiply the weight of the past by 2 to this power."""
    by, diagonal = np.exp2(log), np.arange(parts.d)
    parts.T[diagonal, diagonal] *= by
    parts.sums *= by
    parts.squares *= by
    excited = parts.prior > 0.0
    parts.prior[excited] = np.maximum(parts.prior[excited] * by, TINY)  # 0 is not yet excited
    parts.head[Slot.MASS] *= by
    parts.head[Slot.FADED] += log


def _fade(parts: Parts, log: float, weight: float) -> None:
    """Multiply the weight of the past by 2 to this power, before a row of this weight."""
    head, log = parts.head, max(log, FORGOTTEN)
    panels = len(parts.visited) if len(parts.energy) or head[Slot.RIDGE] > 0.0 else 0
    if log < SUDDEN and not panels and head[Slot.MASS] > 0.0:
        for j in range(parts.d):
            _add_prior(parts, j, FAINT * max(parts.sums[j], 0.0))
        log = max(log, min(np.log2(FAINT * weight / head[Slot.MASS]), 0.0))
    rescale(parts, log)
    if panels:
        turn = TURN_FADE / panels
        head[Slot.DUE] += log  # less 1e-9: the same visits if the sum is rounded otherwise
        due = np.floor(head[Slot.DUE] / (turn * (1.0 - 1e-9)))
        for _ in range(int(min(due, panels))):
            _visit(parts, int(head[Slot.TURN]))
            head[Slot.TURN] = (head[Slot.TURN] + 1.0) % panels
        head[Slot.DUE] = head[Slot.DUE] - due * turn if due < panels else 0.0


def _visit(parts: Parts, panel: int) -> None:
    """Put back what has faded of the information about the weights of a panel: (3) in C."""
    head, d, at = parts.head, parts.d, slice(panel * PANEL, min(panel * PANEL + PANEL, parts.d))
    faded = -np.expm1((head[Slot.FADED] - parts.visited[panel]) * np.log(2.0))
    delta, targets = np.full(at.stop - at.start, head[Slot.RIDGE]), None
    if len(parts.energy):
        V = _eliminate(parts, np.eye(d, parts.stride)[at], at.start)
        a, targets = V[:, :d], -V[:, d : d + parts.c]
        P = np.where(a != 0.0, a * a / np.diagonal(parts.T), 0.0).sum(axis=1)
        bound = head[Slot.LEVEL] / (P * parts.sums[at]) * parts.energy[at] / parts.active[at]
        delta = np.fmax(bound, HOLD * delta)
    for i, q in enumerate(delta * faded):
        if q > 0.0:
            _add_prior(parts, at.start + i, q, None if targets is None else targets[i])
    parts.visited[panel] = head[Slot.FADED]


def _ridge(parts: Parts) -> float:
    """The present penalty of each weight."""
    by = 1.0 if len(parts.visited) else 2.0 ** float(parts.head[Slot.FADED])
    return float(parts.head[Slot.RIDGE]) * by


def remove_prior(parts: Parts) -> None:
    """Remove the prior of UNITS, if each D keeps half of its value."""
    head, d, prior = parts.head, parts.d, parts.prior[: parts.d]
    if not parts.flags & Flag.UNITS or parts.flags & Flag.HELD or (prior < 0.0).all():
        return
    state = (head, parts.T, parts.sums, parts.squares)
    copies, clear = [part.copy() for part in state], CLEAR * _ridge(parts)
    for j in np.flatnonzero(prior > 0.0).tolist():
        _add_prior(parts, j, -prior[j])
    D = np.diagonal(parts.T)
    if (np.diagonal(copies[1]) * 0.5 <= D).all():
        used = parts.sums[:d] > clear
        clearly = clear > 0.0 and (clear < D[used]).all()
        prior[(prior > 0.0) | (prior == 0.0) & used & clearly] = -1.0
    else:
        for part, copy in zip(state, copies, strict=True):
            part[:] = copy
    head[Slot.ATTEMPT] = 2.0 * max(head[Slot.ROWS], head[Slot.ATTEMPT])


def _adapt_prior(parts: Parts, x: Floats, u: float) -> None:
    """Remove the prior of UNITS if it is time, or adapt it to a row of weight u."""
    head, d, prior = parts.head, parts.d, parts.prior
    mass, level = head[Slot.MASS], head[Slot.PRIOR]
    if head[Slot.ROWS] >= head[Slot.ATTEMPT]:
        remove_prior(parts)
    ridge = _ridge(parts)
    h = u * (mass / (mass + u)) if parts.free else u
    squares = ((x - parts.means[:d]) - parts.rests[:d]) ** 2
    for j, square in enumerate(squares if mass > 0.0 or not parts.free else ()):
        size = level * square if level > 0.0 else UNIT * (parts.sums[j] + h * square)
        raised = prior[j] >= 0.0 and size > max(RAISED * prior[j], ridge)
        if prior[j] == 0.0 < size if level > 0.0 else raised:
            _add_prior(parts, j, size - prior[j])
            prior[j] = size


def _learn_window(
    vector: Floats, X: Floats, Y: Floats, weights: Floats, fades: Numbers, leaving: Numbers
) -> Floats:
    """Learn rows in the vector of a window; return their errors."""
    parts, window, errors = Parts(vector), Window(vector), np.empty(Y.shape)
    empty, ring, head, d = Parts(window.empty), window.ring, window.head, parts.d
    slots = [Slot.FACTOR, Slot.ROWS]
    for i, (x, y, weight) in enumerate(zip(X, Y, weights, strict=True)):
        log = parts.head[Slot.FACTOR] if fades is None else fades[i]
        errors[i] = _learn_row(parts, x, y, weight, log)
        for j in range(d if parts.head[Slot.PRIOR] > 0.0 else 0):
            if parts.prior[j] > 0.0 == empty.prior[j]:  # as it was before it faded
                empty.prior[j] = min(parts.prior[j] * np.exp2(-parts.head[Slot.FADED]), MOST)
        stored, place = head[WindowSlot.STORED], int(head[WindowSlot.NEXT])
        excess = stored + 1.0 - head[WindowSlot.LENGTH] if leaving is None else leaving[i]
        gone = min(max(excess, 0.0), stored)
        ring[place] = [*x, *y, weight, parts.head[Slot.FADED]]
        head[WindowSlot.NEXT] = (place + 1) % len(ring)
        head[[WindowSlot.STORED, WindowSlot.SHADOWED]] = stored + 1.0 - gone, -1.0
        if gone > 0.0:
            rows, values = ring[window.order], parts.head[slots]
            vector[: parts.size], logs = window.empty, np.diff(rows[:, -1], prepend=rows[0, -1])
            parts.head[Slot.FADED] = parts.visited[:] = rows[0, -1]
            for j in np.flatnonzero(parts.prior > 0.0).tolist():
                parts.prior[j] = max(parts.prior[j] * np.exp2(rows[0, -1]), TINY)
                _add_prior(parts, j, parts.prior[j])
            _learn_rows(parts, rows[:, :d], rows[:, d:-2], rows[:, -2], logs)
            parts.head[slots] = values
            remove_prior(parts)
            window.peak[:] = head[WindowSlot.GONE] = 0.0
    return errors
