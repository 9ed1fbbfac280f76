"""Recursive least squares as one vector of float64: its parts, and functions of it.

With weights s_k and a forgetting factor λ, after n rows the weights w are

    argmin over w, b of  Σ_k λ^(n−k) s_k (y_k − b − x_kᵀ w)² + λⁿ ‖w − w₀‖²_Π               (1)

The vector contains the means of features and targets, and the triangle of the rows centred at their
running means,

    Uᵀ D U = P⁻¹,   U w = θ,   U unit upper triangular, D diagonal                          (2)

to which rows are added by rotations without square roots ([1], [2]). native/core/least_squares.h
lists the parts of the vector and describes the algorithm; :mod:`onepass.memory.plain` is the same
in NumPy. The stored rows of a window, or the other experts of a mixture, follow the vector, which
is the whole learned state: it is copied, saved, merged and stored by key. For a new row x,
with c outputs and ν = Σ_k λ^(n−k) s_k the effective number of rows,

    std(x) = σ √(1 + 1/ν + (x − x̄)ᵀ P (x − x̄)),     σ² = Σ_k λ^(n−k) s_k e_k² / (ν − d − 1)  (3)
    cov(w) = σ² P                                                                           (4)

with the residuals e_k = y_k − b − x_kᵀ w; both infinite while ν ≤ d + 1. The sum of squares is the
least value of (1) less the penalty; that of a matrix Π is not known and counts as residual. Without
an intercept, 1/ν and the 1 of ν − d − 1 are omitted.

Cost: O(d²) time per row, O(d²) memory; all outputs share the triangle.

[1] W. M. Gentleman, "Least squares computations by Givens transformations without square roots",
    J. Inst. Maths Applics 12, 1973.
[2] A. H. Sayed, "Fundamentals of Adaptive Filtering", 2003; QRD-RLS.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from onepass import linalg, native
from onepass.memory import plain
from onepass.memory.vector import (
    DECAY,
    EXPERTS,
    HEAD,
    PANEL,
    SHARE,
    SKIPPED,
    WINDOW_HEAD,
    Fading,
    Flag,
    Parts,
    Slot,
    Window,
    WindowSlot,
    aligned,
    experts,
    is_mixture,
    numbers,
    shares,
)
from onepass.types import Array, Floats

_FARTHEST = 1e9  # the largest leverage
_DETERMINED = 1e4  # D relative to the least prior, of a weight that rows determine

# -- starting and changing the sizes ---------------------------------------------------------------


def start(
    fading: Fading,
    ridge: float | Floats,
    initial: Floats,
    *,
    free: bool,
    prior: float = 0.0,
    indicators: bool = False,
) -> Floats:
    """The vector before the first row.

    Parameters
    ----------
    fading : Fading
    ridge : float, or ndarray of shape (p, d)
        The penalty of each weight; or rows L with LᵀL = Π.
    initial : ndarray of shape (d, c)
        w₀.
    free : bool
        Whether there is an intercept.
    prior : float
        Weight of the prior, in rows with the first nonzero deviation of each feature.
    indicators : bool
        Whether the targets of a mixture are class indicators.
    """
    d, c = initial.shape
    scalar = float(ridge) if isinstance(ridge, (int, float)) else 0.0
    head = np.zeros(HEAD)
    flags = Flag.FREE * free | Flag.STARTED * bool(initial.any()) | Flag.HELD * fading.held
    flags |= Flag.UNITS * (prior == 0.0) | Flag.INDICATORS * indicators
    flags |= Flag.WINDOW * (fading.window is not None) | Flag.MIXTURE * bool(fading.mixture)
    head[: Slot.ROWS] = d, c, flags, 0.0, fading.level, scalar, prior
    head[Slot.ATTEMPT] = 2 * d
    capacity = fading.window or 1
    vector = np.zeros(Parts(head).whole_size(capacity))
    vector[:HEAD] = head
    parts = Parts(vector)
    np.fill_diagonal(parts.T, scalar)
    parts.sums[:d], parts.T[:, d : d + c], parts.w[:] = scalar, initial, initial.T
    if len(parts.start):
        parts.start[:] = initial.T
    if not isinstance(ridge, (int, float)):
        R = np.asarray(np.linalg.qr(np.vstack((ridge, np.zeros((d, d)))), mode="r"))
        put_triangle(vector, R, R @ initial)
    if fading.window is not None:
        window = Window(vector)
        window.head[[WindowSlot.CAPACITY, WindowSlot.SHADOWED, WindowSlot.LENGTH]] = (
            capacity,
            -1.0,
            fading.window,
        )
        window.empty[:] = vector[: parts.size]
    if fading.mixture:
        experts(vector)[1:] = vector[: parts.size]
        shares(vector)[:] = 1.0 / EXPERTS
        numbers(vector)[-1] = -SKIPPED
    set_fading(vector, fading)
    return vector


def set_fading(vector: Floats, fading: Fading) -> None:
    """Set the factor and the level of a vector, from the next row on."""
    factors = fading.mixture or (fading.factor,)
    for expert, factor in zip(experts(vector), factors, strict=True):
        expert[Slot.FACTOR] = math.log2(factor)
        if expert[Slot.LEVEL] > 0.0:
            expert[Slot.LEVEL] = fading.level


def _copied(
    vector: Floats, *, d: int = 0, places: Sequence[int] | Array = (), c: int = 0, **values: float
) -> Floats:
    """A copy of a plain vector with more features at the end, with other outputs, or another head.

    ``places`` are the columns of the present outputs among c outputs.
    """
    old = Parts(vector)
    d, c = d or old.d, c or old.c
    at = np.arange(old.c) if not len(places) else np.asarray(places)
    head = vector[:HEAD].copy()
    head[[Slot.FEATURES, Slot.OUTPUTS, Slot.FRESH]] = d, c, 0.0
    for name, value in values.items():
        head[Slot[name]] = value
    copy = np.zeros(Parts(head).size)
    copy[:HEAD] = head
    new = Parts(copy)
    new.T[: old.d, : old.d] = old.T[:, : old.d]
    new.T[: old.d, d + at] = old.T[:, old.d : old.d + old.c]
    for name in ("sums", "means", "rests", "energy", "active", "last", "prior"):
        to, by = getattr(new, name), getattr(old, name)
        if len(to) and len(by):
            to[: old.d] = by[: old.d]
            to[d + at] = by[old.d : old.d + old.c]
    if len(new.energy) and not len(old.energy):  # of a past that has not faded
        new.energy[:d], new.active[:d] = new.sums[:d], head[Slot.MASS]
        new.last[:d] = new.means[:d]
    if len(new.visited):
        new.visited[:] = head[Slot.FADED]
        new.visited[: len(old.visited)] = old.visited
    if len(new.start):
        new.start[np.ix_(at, np.arange(old.d))] = old.start
    new.squares[at] = old.squares
    if d > old.d:
        added = np.arange(old.d, d)
        new.T[added, added] = new.sums[added] = _ridge_of_new(new, added)
        head[Slot.ATTEMPT] = copy[Slot.ATTEMPT] = head[Slot.ROWS] + 2 * d
    return copy


def _ridge_of_new(parts: Parts, added: Array) -> Any:
    """The present penalty of new weights, whose features were 0 in all rows so far."""
    ridge, faded = float(parts.head[Slot.RIDGE]), float(parts.head[Slot.FADED])
    if not len(parts.visited):
        return ridge * 2.0**faded
    visited = parts.visited[added // PANEL]
    held = plain.HOLD if len(parts.energy) else 1.0  # put back at each visit, in ridges
    return ridge * (held - (held - 1.0) * np.exp2(visited)) * np.exp2(faded - visited)


def _each(vector: Floats, change: Any) -> Floats:
    """Change each expert of a mixture, the rows of a window, or a plain vector."""
    parts = Parts(vector)
    if not parts.flags & (Flag.WINDOW | Flag.MIXTURE):
        return np.asarray(change(vector))
    if parts.flags & Flag.MIXTURE:
        changed = np.array([change(expert) for expert in experts(vector)])
        c = int(changed[0, Slot.OUTPUTS])
        return np.concatenate((changed.ravel(), np.zeros(((EXPERTS + 1) * c + 8) // 8 * 8)))
    window = Window(vector)
    state, empty = change(vector[: parts.size]), change(window.empty)
    new = np.zeros(Parts(state).whole_size(int(window.head[WindowSlot.CAPACITY])))
    new[: len(state)] = state
    after = Window(new)
    after.empty[:], after.head[:] = empty, window.head
    after.head[WindowSlot.SHADOWED] = -1.0
    return new


def _moved_rows(old: Floats, new: Floats, places: Array) -> Floats:
    """Copy the rows of a window to a vector with other sizes."""
    before, after, was, now = Window(old), Window(new), Parts(old), Parts(new)
    after.ring[:, : was.d] = before.ring[:, : was.d]
    after.ring[:, now.d + places] = before.ring[:, was.d : -2]
    after.ring[:, -2:] = before.ring[:, -2:]
    after.peak[: was.d] = before.peak
    return new


def grown(vector: Floats, d: int) -> Floats:
    """The vector for d features; the new ones, at the end, were 0 in all rows so far."""
    new = _each(vector, lambda one: _copied(one, d=d))
    flags = Parts(vector).flags
    if flags & Flag.WINDOW:
        return _moved_rows(vector, new, np.arange(Parts(vector).c))
    if flags & Flag.MIXTURE:
        numbers(new)[:] = numbers(vector)
    return new


def moved(vector: Floats, origins: Floats) -> Floats:
    """The vector after features that were 0 in all rows so far were at these values instead.

    Without an intercept, 0 remains.
    """
    vector, d = aligned(vector), len(origins)
    parts = Parts(vector)
    if not parts.free:
        return vector
    states = list(experts(vector))
    if parts.flags & Flag.WINDOW:
        window = Window(vector)
        states.append(window.empty)
        window.ring[:, :d] += origins
        window.head[WindowSlot.SHADOWED] = -1.0
    for state in map(Parts, states):
        state.means[:d] += origins
        state.last[:d] += origins[: len(state.last)]
    return vector


def with_outputs(vector: Floats, at: Array, c: int) -> Floats:
    """The vector for c outputs; those in columns ``at`` are new and were 0 in all rows so far."""
    places = np.setdiff1d(np.arange(c), at)
    new = _each(vector, lambda one: _copied(one, places=places, c=c))
    flags = Parts(vector).flags
    if flags & Flag.WINDOW:
        return _moved_rows(vector, new, places)
    if flags & Flag.MIXTURE:
        shares(new)[:], shares(new)[:, places] = 1.0 / EXPERTS, shares(vector)
        old = Parts(vector).c
        numbers(new)[EXPERTS * c + places] = numbers(vector)[EXPERTS * old : -1]
        numbers(new)[-1] = numbers(vector)[-1]
    return new


def converted(vector: Floats, fading: Fading) -> Floats:
    """The vector for another forgetting rule, which neither stores rows nor is a mixture."""
    flags = Parts(vector).flags & ~Flag.HELD | Flag.HELD * fading.held
    new = _copied(vector, LEVEL=fading.level, FLAGS=flags)
    set_fading(new, fading)
    return new


def without_weights(vector: Floats) -> Floats:
    """A copy without the weights, whose presence depends on earlier predictions."""
    copy = vector.copy()
    for one in experts(copy):
        parts = Parts(one)
        parts.w[:], parts.head[Slot.FRESH] = 0.0, 0.0
    return copy


def is_sound(vector: object, d: int, c: int) -> bool:
    """Whether an array of a file is a vector for d features and c outputs."""
    if not isinstance(vector, np.ndarray) or vector.dtype != np.float64 or vector.ndim != 1:
        return False
    if len(vector) < HEAD or not linalg.finite(vector) or (vector[:2] != (d, c)).any():
        return False
    if vector[Slot.FLAGS] not in range(2 * Flag.DIRECTIONAL):
        return False
    kinds = Parts(vector[:HEAD]).flags & (Flag.WINDOW | Flag.MIXTURE | Flag.DIRECTIONAL)
    if kinds.bit_count() > 1:
        return False
    states = _states_of_window(vector) if kinds & Flag.WINDOW else _states_of_experts(vector)
    return len(states) > 0 and all(_is_like(state, vector) for state in states)


def _states_of_window(vector: Floats) -> list[Floats]:
    """The states in the vector of a window; none if what follows it is not sound."""
    parts = Parts(vector[:HEAD])
    if len(vector) < parts.whole_size(1):
        return []
    extra = vector[parts.size : parts.size + WINDOW_HEAD]
    capacity, stored, following = extra[:3]
    if not 0.0 <= stored <= capacity > following >= 0.0 or (extra[:3] % 1.0).any():
        return []
    if len(vector) != parts.whole_size(int(capacity)) or extra[WindowSlot.LENGTH] > capacity:
        return []
    window = Window(vector)
    shadowed = bool(extra[WindowSlot.SHADOWED] >= 0.0)
    return [vector[: parts.size], window.empty] + [window.shadow] * shadowed


def _states_of_experts(vector: Floats) -> Any:
    """The states in the vector of a mixture, or a plain one; none if it is not sound."""
    parts = Parts(vector[:HEAD])
    if len(vector) != parts.whole_size():
        return []
    pi = shares(vector) if is_mixture(vector) else np.ones((1, parts.c))
    sound = (pi >= 0.0).all() and (np.abs(pi.sum(axis=0) - 1.0) < 1e-6).all()
    return experts(vector) if sound else []


def _is_like(state: Floats, vector: Floats) -> bool:
    """Whether a state within a vector has the parts of the vector, and possible numbers."""
    one, head = Parts(state), vector[:HEAD]
    signs = [Slot.LEVEL, Slot.PRIOR]
    panels = -(-one.d // PANEL)
    return bool(
        (one.head[: Slot.FACTOR] == head[: Slot.FACTOR]).all()
        and ((one.head[signs] > 0.0) == (head[signs] > 0.0)).all()
        and one.head[Slot.TURN] in range(max(panels, 1))
        and one.head[Slot.FRESH] in range(3)
        and max(one.head[[Slot.FACTOR, Slot.FADED]]) <= 0.0 <= one.head[Slot.ROWS]
        and (one.head[Slot.MASS] >= 0.0 or one.flags & Flag.WINDOW)
        and (np.diagonal(one.T[:, : one.d]) >= 0.0).all()
    )


# -- learning and reading --------------------------------------------------------------------------


def learn(
    vector: Floats,
    X: Floats,
    Y: Floats,
    weights: Floats | None = None,
    fades: Floats | None = None,
    leaving: Floats | None = None,
    out: Floats | None = None,
) -> tuple[Floats, bool]:
    """Learn rows one after the other; the vector is changed.

    Parameters
    ----------
    vector : ndarray
    X : ndarray of shape (n, d)
    Y : ndarray of shape (n, c)
    weights : ndarray of shape (n,), optional
        Weights > 0 of the rows.
    fades : ndarray of shape (n,), optional
        log2 of the factor by which the past fades before each row, if it fades by time.
    leaving : ndarray of shape (n,), optional
        The number of rows that leave the window after each row, if the caller determines it.
    out : contiguous ndarray of shape (n, c), optional
        The array of the errors.

    Returns
    -------
    errors : ndarray of shape (n, c)
        The error of each row just before it is learned.
    finite : bool
        Whether the vector is finite.
    """
    n, loops = len(X), native.loops
    errors = np.empty(Y.shape) if out is None else out
    arrays = (X, Y, weights, fades, leaving)
    given: Any = [None if a is None else np.ascontiguousarray(a, np.float64) for a in arrays]
    if loops is None:
        errors[:], finite = plain.learn(vector, *given)
        return errors, finite
    finite = loops.ls_learn(vector, n, *given, errors, True)  # noqa: FBT003
    return errors, bool(finite)


def fitted(vector: Floats) -> tuple[Floats, Floats, Floats]:
    """Weights W (d, c), centre m (d,), offset b (c,): a row's prediction is Wᵀ(x − m) + b."""
    weights, centres, offsets = _fits(vector)
    if len(weights) == 1:
        return weights[0].T, centres[0], offsets[0]
    pi = shares(vector)
    centre = centres[int(pi.sum(axis=1).argmax())]
    offsets = offsets + np.einsum("kcd,kd->kc", weights, centre - centres)
    return np.einsum("kc,kcd->dc", pi, weights), centre, (pi * offsets).sum(axis=0)


def exact_fit(vector: Floats) -> tuple[Floats, Floats, Floats]:
    """The fit to all rows, as `fitted`: in a mixture, that of the expert that does not forget."""
    weights, centres, offsets = _fits(vector)
    return weights[0].T, centres[0], offsets[0]


def rows_of_outputs(vector: Floats) -> Floats:
    """The weight of the rows of each indicator, (c,); of a mixture, the geometric mean."""
    mixed = is_mixture(vector)
    pi = shares(vector).mean(axis=1) if mixed else np.ones(1)
    rows = []
    for parts in map(Parts, experts(vector) if mixed else [vector]):
        outputs = slice(parts.d, parts.d + parts.c)
        rows.append(parts.head[Slot.MASS] * (parts.means[outputs] + parts.rests[outputs]))
    return np.asarray(np.exp(pi @ np.log(np.maximum(rows, 1e-300))))


def _fits(vector: Floats) -> tuple[Floats, Floats, Floats]:
    """The weights (K, c, d), centres (K, d) and offsets (K, c) of the experts of a mixture."""
    vector = vector if vector.flags.writeable else vector.copy()
    loops, d, c = native.loops, int(vector[Slot.FEATURES]), int(vector[Slot.OUTPUTS])
    K = EXPERTS if is_mixture(vector) else 1
    weights, centres, offsets = np.empty((K, c, d)), np.empty((K, d)), np.empty((K, c))
    if loops is not None and c:
        loops.ls_fitted(vector, 0, weights, centres, offsets)
        return weights, centres, offsets
    for k, parts in enumerate(map(Parts, experts(vector))):  # a classifier may have no class yet
        plain.solve(parts)
        weights[k], centres[k] = parts.w, parts.means[:d]
        offsets[k] = parts.means[d : d + c] + (parts.rests[d : d + c] - parts.w @ parts.rests[:d])
    return weights, centres, offsets


def mass(vector: Floats) -> float:
    """The total weight of the rows; of a mixture, the harmonic mean by the shares of its experts.

    The variance of a mean of n rows is 1/n of that of a row, and the mixture has the mean variance.
    """
    if not is_mixture(vector):
        return float(vector[Slot.MASS])
    masses = np.array([one[Slot.MASS] for one in experts(vector)])
    return float(1.0 / (shares(vector).mean(axis=1) @ (1.0 / np.maximum(masses, 1e-300))))


def first_mass(vector: Floats) -> float:
    """The weight of the rows; of a mixture, in the expert that does not forget."""
    first = next(iter(experts(vector))) if is_mixture(vector) else vector
    return float(first[Slot.MASS])


def scores(fit: tuple[Floats, Floats, Floats], X: Floats) -> Floats:
    """Predictions of rows, (n, c)."""
    W, m, b = fit
    predictions: Floats = (X - m) @ W + b
    return predictions


def triangle(vector: Floats) -> tuple[Floats, Floats]:
    """R (d, d) and z (d, c) with RᵀR = P⁻¹ and R w = z."""
    parts = Parts(vector)
    d, c = parts.d, parts.c
    root = np.sqrt(np.maximum(np.diagonal(parts.T[:, :d]), 0.0))[:, None]
    R = np.triu(parts.T[:, :d], 1)
    np.fill_diagonal(R, 1.0)
    return root * R, root * parts.T[:, d : d + c]


def put_triangle(vector: Floats, R: Floats, z: Floats) -> None:
    """Set the triangle of a vector; rows of R whose diagonal is 0 must be 0."""
    parts = Parts(vector)
    d, c = parts.d, parts.c
    pivot = np.diagonal(R)
    by = np.where(pivot != 0.0, pivot, 1.0)[:, None]
    parts.T[:, :d] = np.triu(R / by, 1)
    parts.T[:, d : d + c] = np.where(pivot[:, None] != 0.0, z / by, parts.T[:, d : d + c])
    np.fill_diagonal(parts.T, pivot**2)
    parts.sums[:d] = (R**2).sum(axis=0)
    parts.head[Slot.FRESH] = 0.0


def _noise(vector: Floats) -> Floats:
    """σ² of each output, (c,): infinite without more rows than weights."""
    parts = Parts(vector)
    spare = parts.head[Slot.MASS] - parts.d - parts.free
    if not spare > 0.0:
        return np.full(parts.c, np.inf)
    away = fitted(vector)[0] - (parts.start.T if len(parts.start) else 0.0)
    ridge, faded = float(parts.head[Slot.RIDGE]), float(parts.head[Slot.FADED])
    held = len(parts.visited) and not len(parts.energy)  # else put back about the present weights
    since = parts.visited[np.arange(parts.d) // PANEL] if held else np.zeros(parts.d)
    penalty = ridge * np.exp2(faded - since)
    if len(parts.prior):
        penalty += np.maximum(parts.prior[: parts.d], 0.0)
    residual = parts.squares - penalty @ away**2
    return np.asarray(np.maximum(residual, 0.0) / spare)


def _leverage(vector: Floats, X: Floats) -> Floats:
    """The variance of each row's prediction, relative to that of a target, (n,)."""
    parts, (R, _) = Parts(vector), triangle(vector)
    away = (X - parts.means[: parts.d]) - parts.rests[: parts.d]
    excited = np.diagonal(R) != 0.0
    V = linalg.whitened(away[:, excited], R[np.ix_(excited, excited)])
    spread = (V * V).sum(axis=1) + (1.0 / parts.head[Slot.MASS] if parts.free else 0.0)
    return np.asarray(np.where((away[:, ~excited] != 0.0).any(axis=1), np.inf, spread))


def variance(vector: Floats, X: Floats) -> Floats:
    """The variance (3) of a target of each row, (n, c); infinite while undetermined.

    That of a mixture is given in :mod:`onepass.forgetting.auto`.
    """
    noise = _noise(vector) if not is_mixture(vector) else mixture_noise(vector)
    spread = 1.0 + _leverage(vector, X)
    with np.errstate(invalid="ignore"):  # infinity times 0, if the rows fit exactly
        found = np.where(np.isinf(spread)[:, None], np.inf, spread[:, None] * noise)
    if is_mixture(vector):
        mean, each = scores(fitted(vector), X), zip(*_fits(vector), strict=True)
        parts = [(scores((W.T, m, b), X) - mean) ** 2 for W, m, b in each]
        found += np.einsum("kc,knc->nc", shares(vector), parts)
    return found


def familiarity(vector: Floats, X: Floats) -> Floats:
    """How well the leading experts remember rows like these: (1 + max(h − u, 0) / u)⁻⁴, (n, c).

    h is the mean leverage of a row in the experts, by their shares, and u that of the rows that
    they remember. It is 0 without experts and forgetting, as the fit is that to all rows.
    """
    if not is_mixture(vector):
        return np.zeros((len(X), 1))
    pi, each = shares(vector), list(experts(vector))
    h = np.array([np.minimum(_leverage(one, X), _FARTHEST) for one in each])
    u = [min((one[Slot.FEATURES] + 1.0) / max(one[Slot.MASS], 1.0), 1.0) for one in each]
    usual = u @ pi
    return np.asarray((1.0 + np.maximum(h.T @ pi - usual, 0.0) / usual) ** -4.0)


def covariance(vector: Floats) -> Floats:
    """The covariance (4) of the weights of each output, (c, d, d); infinite while undetermined."""
    if not is_mixture(vector):
        return _covariance(vector, _noise(vector))
    w, total, noise = fitted(vector)[0], np.zeros(()), mixture_noise(vector)
    for pi, one, W in zip(shares(vector), experts(vector), _fits(vector)[0], strict=True):
        by = W - w.T
        within = _covariance(one, noise) + by[:, :, None] * by[:, None]
        total = total + pi[:, None, None] * within
    return np.asarray(total)


def _covariance(vector: Floats, noise: Floats) -> Floats:
    """σ² P of each output, (c, d, d)."""
    R, _ = triangle(vector)
    parts = Parts(vector)
    prior = parts.prior[: parts.d] if parts.flags & Flag.UNITS else 0.0
    unknown = (np.diagonal(parts.T[:, : parts.d]) < _DETERMINED * prior).any()
    if unknown or not np.isfinite(noise).all() or not np.diagonal(R).all():
        return np.full((len(noise), len(R), len(R)), np.inf)
    root = linalg.solve_upper(np.asfortranarray(R), np.eye(len(R)))
    return np.asarray(noise[:, None, None] * (root @ root.T))


# -- mixtures and windows --------------------------------------------------------------------------


def mixture_noise(vector: Floats) -> Floats:
    """The mean squared error of the leading expert, (c,); infinite before the first counted row."""
    *_, count = values = numbers(vector)
    squares = values[EXPERTS * int(vector[Slot.OUTPUTS]) : -1]
    return squares / count if count > 0.0 else np.full(len(squares), np.inf)


def reserve(vector: Floats, n: int) -> Floats:
    """The vector of a window with room for n more rows."""
    window = Window(vector)
    stored = int(window.head[WindowSlot.STORED])
    if stored + n <= len(window.ring) <= 8 * (stored + n):
        return vector
    rows, parts = window.ring[window.order], Parts(vector)
    new = np.zeros(parts.whole_size(2 * (stored + n)))
    new[: len(vector) - window.ring.size] = vector[: len(vector) - window.ring.size]
    after = Window(new)
    after.ring[:stored] = rows
    after.head[[WindowSlot.CAPACITY, WindowSlot.NEXT]] = len(after.ring), stored
    return new


def with_length(vector: Floats, rows: int) -> Floats:
    """The vector of a window of another length; excess rows leave after the next row."""
    window = Window(vector)
    if rows > len(window.ring):
        vector = reserve(vector, rows - int(window.head[WindowSlot.STORED]))
        window = Window(vector)
    window.head[WindowSlot.LENGTH] = rows
    return vector


def stored_rows(vector: Floats) -> tuple[Floats, Floats, Floats, Floats]:
    """The rows of a window: X, Y, weights, and log2 of the factor by which each has faded."""
    window, parts = Window(vector), Parts(vector)
    rows = window.ring[window.order]
    faded = parts.head[Slot.FADED] - rows[:, -1]
    return rows[:, : parts.d], rows[:, parts.d : -2], rows[:, -2], faded


# -- merging ---------------------------------------------------------------------------------------


class Positions(NamedTuple):
    """Where the features and outputs of another vector are in the merged one."""

    features: Array
    outputs: Array
    concurrent: bool


def merged(
    one: Floats, two: Floats, at: Positions, ridge: float | Floats, other_ridge: float | Floats
) -> tuple[Floats, bool]:
    """The vector after the rows of another one too, and whether it is finite.

    Parameters
    ----------
    one, two : ndarray
        Plain vectors or mixtures; the first has all features and outputs of the second.
    at : Positions
    ridge, other_ridge : float or ndarray of shape (p, d)
        The penalties of the two vectors, as in :func:`start`. That of the first counts.
    """
    pairs = zip(experts(one), experts(two), strict=True)
    found = [_merged(a, b, at, ridge, other_ridge) for a, b in pairs]
    new = np.concatenate([vector for vector, _ in found])
    if is_mixture(one):
        new = np.concatenate((new, one[len(new) :]))
        _merge_shares(new, two, at)
    return new, all(good for _, good in found)


def _merge_shares(new: Floats, two: Floats, at: Positions) -> None:
    """Merge the weights of the experts: the rows of the second vector are the last ones."""
    more, c = float(two[Slot.ROWS]), int(new[Slot.OUTPUTS])
    before = float(new[Slot.ROWS]) - more
    share, keep = (1.0 - SHARE) ** more if before else 0.0, DECAY**more
    if at.concurrent:
        share, keep = before / (before + more), 1.0
    values, others = numbers(new), numbers(two)
    weights = np.full((EXPERTS, c), 1.0 / EXPERTS)
    weights[:, at.outputs] = shares(two)
    shares(new)[:] = share * shares(new) + (1.0 - share) * weights
    squares = values[EXPERTS * c : -1]
    squares *= keep
    squares[at.outputs] += others[EXPERTS * len(at.outputs) : -1]
    count = keep * max(values[-1], 0.0) + max(others[-1], 0.0)
    values[-1] = count if count > 0.0 else min(values[-1] + more, 0.0)


def _merged(
    one: Floats, two: Floats, at: Positions, ridge: float | Floats, other_ridge: float | Floats
) -> tuple[Floats, bool]:
    """`merged` of plain vectors."""
    vector = one.copy()
    a, b = Parts(vector), Parts(two)
    if not at.concurrent:
        plain.rescale(a, float(b.head[Slot.FADED]))
    places = np.append(at.features, a.d + at.outputs)
    rows, weights = np.zeros((b.d + 1, a.stride)), np.append(np.diagonal(b.T), 0.0)
    U = np.triu(b.T[:, : b.d], 1) + np.eye(b.d)
    rows[: b.d, places] = np.hstack((U, b.T[:, b.d : b.d + b.c]))
    mass, more = float(a.head[Slot.MASS]), float(b.head[Slot.MASS])
    if a.free:
        means, rests = np.zeros(a.stride), np.zeros(a.stride)
        means[places], rests[places] = b.means[: b.d + b.c], b.rests[: b.d + b.c]
        share = more / (mass + more)
        rows[-1] = ((means - a.means) + (rests - a.rests)) * bool(mass)
        weights[-1] = mass * share
        moved = a.rests + rows[-1] * share
        total = a.means + moved
        a.rests[:], a.means[:] = moved - (total - a.means), total
        if not mass:
            a.means[:], a.rests[:] = means, rests
    good = _rotated(vector, rows, weights)
    a.squares[at.outputs] += b.squares
    for slot in (Slot.MASS, Slot.ROWS):
        a.head[slot] += b.head[slot]
    good &= _count_penalty_once(vector, b, at, ridge, other_ridge)
    if len(a.energy):
        a.energy[at.features] += b.energy[: b.d]
        a.active[at.features] += b.active[: b.d]
        a.last[at.features] = b.last[: b.d]
    if len(a.prior):
        _join_priors(vector, b, at)
    return vector, good


def _present(parts: Parts) -> Floats:
    """The remaining share of the ridge of each weight, (d,)."""
    faded = np.full(parts.d, parts.head[Slot.FADED])
    if len(parts.visited):
        faded -= np.repeat(parts.visited, PANEL)[: parts.d]
    return np.asarray(np.exp2(faded))


def _count_penalty_once(
    vector: Floats, b: Parts, at: Positions, ridge: float | Floats, other_ridge: float | Floats
) -> bool:
    """Remove the penalty of a vector whose rows have been added, as if its rows followed."""
    a = Parts(vector)
    faded = float(min(a.head[Slot.FADED], b.head[Slot.FADED] if at.concurrent else np.inf))
    remaining = np.ones(a.d) if len(a.visited) else np.full(a.d, 2.0**faded)
    good = True
    for parts, features, outputs, given, sign in (
        (a, np.arange(a.d), np.arange(a.c), ridge, remaining - _present(a)),
        (b, at.features, at.outputs, other_ridge, -_present(b)),
    ):
        L = np.eye(parts.d) if isinstance(given, float) else given
        rows = np.zeros((len(L), a.stride))
        rows[:, features] = L
        if len(parts.start):
            rows[:, a.d + outputs] = L @ parts.start.T
        weights = given * sign if isinstance(given, float) else np.full(len(L), sign[0])
        used = weights != 0.0
        good &= _rotated(vector, rows[used], weights[used])
    a.head[Slot.FADED] = faded
    a.visited[:] = faded
    return good


def _join_priors(vector: Floats, b: Parts, at: Positions) -> None:
    """Let the prior of a feature count once: that of the vector whose rows excited it first."""
    a = Parts(vector)
    own, other = a.prior[at.features], b.prior[: b.d]
    if a.head[Slot.PRIOR] > 0.0:
        twice = (own > 0.0) & (other > 0.0)
        rows = np.zeros((int(twice.sum()), a.stride))
        rows[np.arange(len(rows)), at.features[twice]] = 1.0
        if len(a.start):
            rows[:, a.d : a.d + a.c] = rows[:, : a.d] @ a.start.T
        _rotated(vector, rows, -np.maximum(other[twice], 0.0))
        a.prior[at.features] = np.where(twice, own, own + other)
    else:  # both are in the triangle until they are removed together
        removed = (own < 0.0) & (other < 0.0)
        both = np.maximum(own, 0.0) + np.maximum(other, 0.0)
        a.prior[at.features] = np.where(removed, -1.0, both)
        plain.remove_prior(a)


def _rotated(vector: Floats, rows: Floats, weights: Floats) -> bool:
    """Add rows [a b], not centred, of any weights; return whether the result is finite."""
    loops = native.loops
    if not len(rows):
        return True
    if loops is None:
        return plain.rotate(vector, rows, weights)
    return bool(
        loops.ls_rotate(
            vector, len(rows), np.ascontiguousarray(rows), np.ascontiguousarray(weights)
        )
    )


def faded_to(vector: Floats, mass: float) -> Floats:
    """A copy whose rows count as at most this number of rows."""
    new = vector.copy()
    for one in experts(new):
        parts = Parts(one)
        plain.rescale(parts, math.log2(mass / max(float(parts.head[Slot.MASS]), mass)))
    return new


def faded(vector: Floats, log: float) -> Floats:
    """A copy whose past has faded by 2 to this power."""
    new = vector.copy()
    for one in experts(new):
        plain.rescale(Parts(one), log)
    return new
