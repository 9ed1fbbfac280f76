"""Directional forgetting: only in the directions that the rows excite (SIFt-RLS).

After each block of n rows of the stream (at fixed rows, independent of the division into blocks by
the caller), with R₀ᵀR₀ the information before the block and A (n × p) its rows, √s_k [1, x_k − x̄]:

    A = Σ_i u_i σ_i v_iᵀ,   retain i if σ_i > √(ε Σ_k s_k)                                  (1)
    F = [v_i],   Q = orth(R₀ F)                                                             (2)
    RᵀR = R₀ᵀ (I − (1 − λⁿ) Q Qᵀ) R₀ + Σ_i v_i σ_i² v_iᵀ                                    (3)

so that the information about directions that are unexcited in the block does not fade, and these
directions are not learned. With ``block=1`` this is the algorithm of the paper, row by row. R is
computed from R₀ by a QR of the rows of (I − (1 − √λⁿ) Q Qᵀ) R₀ and of u_iᵀ A. The targets of the
former are the predictions of the weights before the block, so that forgetting does not change the
weights. Within a block rows are learned without forgetting, one after the other: forgetting in the
directions of later rows would leak these rows into the predictions before them.

The directions depend on the units of the features. In (1) and (2) the unit of a feature is its root
mean square over the rows in which it was excited, i.e. differed from the row before, or from 0
without an intercept. With an intercept, features are relative to their means before the block, x̄,
so that predictions do not depend on the user's units; the intercept is the first column of R₀,
[√ν 0] for ν rows, and fades like any other direction. With ``scaled=False`` the user's units are
used, as in the paper.

Cost: O(p²) per row and O(p³) per block; O(p² + block · p) memory, for the rows of the current
block.

[1] B. Lai, D. S. Bernstein, "SIFt-RLS: Subspace of Information Forgetting Recursive Least Squares",
    arXiv:2404.10844, 2024.

The state is one vector. It contains the vector of :mod:`onepass.memory.least_squares`, with the
rows of the current block; their number n and log2 of λⁿ; the former vector before the block; and
rows (block + 2, d + c + 1): weights of the rows that excited each feature, the last row before the
block, and the block [x y s]. ``energy`` is relative to x̄.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from onepass import linalg, validation
from onepass.errors import ParameterError, public
from onepass.forgetting.exponential import DecayRate
from onepass.memory import least_squares
from onepass.memory.vector import HEAD, Fading, Flag, Parts, Slot
from onepass.types import Array, Floats

_EPS = float(np.finfo(np.float64).eps)


@dataclass(frozen=True)
class Directional(DecayRate):
    """Forgetting only in the directions that the rows excite.

    Parameters
    ----------
    factor : float, optional
        λ in (0, 1], for each row.
    block : int, default=16
        Number of rows after which the past fades, in all directions that these rows excite. With 1,
        the excited directions are those of a single row. With larger blocks, features that change
        together are forgotten together, and change is detected sooner.
    threshold : float, default=1e-6
        ε, >= 0: the mean square of a direction in a block up to which it counts as unexcited, and
        is neither forgotten nor learned.
    scaled : bool, default=True
        Whether each feature is measured in units of its own root mean square. False is the
        algorithm of the paper, which forgets little about features with small values.
    half_life : float, str or timedelta, optional
        Alternative to ``factor``: λ is one half for this duration. A number in the unit of
        ``time``, or, if ``time`` contains dates, a timedelta or text such as ``"1h"``.

    Raises
    ------
    ParameterError
        If not exactly one of factor and half-life is given, or a number is out of range.

    Examples
    --------
    >>> import onepass as op
    >>> X = np.random.default_rng(0).normal(size=(5000, 2))
    >>> X[500:, 1] = 0.0  # becomes unexcited
    >>> model = op.RLSRegressor(1e-3, op.forgetting.Directional(0.9)).fit(X, X @ [1.0, 2.0])
    >>> model.coef_.round(3)
    array([1., 2.])
    """

    block: int = 16
    threshold: float = 1e-6
    scaled: bool = True

    additive: ClassVar[bool] = False
    stores_rows: ClassVar[bool] = False

    @public
    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "block", validation.whole(self.block, "block", low=1))
        least = validation.in_range(self.threshold, "threshold", low=0.0)
        object.__setattr__(self, "threshold", least)
        if not isinstance(self.scaled, bool):
            raise ParameterError(
                f"`scaled` must be True or False, got {self.scaled!r}. Pass one of these."
            )

    @property
    def fading(self) -> Fading:
        """How the past fades within a block: not at all, but ``energy`` is computed."""
        return Fading(level=1.0)

    def start(self, vector: Floats) -> Floats:
        """The state, given the vector of least squares before the first row."""
        core = vector.copy()
        core[Slot.FLAGS] = int(core[Slot.FLAGS]) | Flag.DIRECTIONAL
        core[Slot.ATTEMPT] = 2.0**62  # is not reached: the prior stays in both vectors
        rows = np.zeros((self.block + 2) * (Parts(core).d + Parts(core).c + 1))
        return np.concatenate((core, np.zeros(2), core, rows))

    def resized(self, state: Floats) -> Floats:
        """A copy with room for the rows of a block, after the parameters have changed."""
        core, current, before, rows = _unpacked(state)
        used = 2 + int(current[0])
        room = np.zeros((max(self.block + 2, used), rows.shape[1]))
        room[:used] = rows[:used]
        return np.concatenate((core, current, before, room.ravel()))

    def learn(
        self, state: Floats, X: Floats, Y: Floats, weights: Floats | None, fades: Floats | None
    ) -> tuple[Floats, bool]:
        """Learn rows as :func:`onepass.memory.least_squares.learn` does; the state is changed.

        ``fades`` (n,) is log2 of λ for each row, if the past fades by time. Rows after those that
        make the state infinite are not learned.
        """
        core, current, before, rows = _unpacked(state)
        errors, i, finite, d = np.zeros(Y.shape), 0, True, X.shape[1]
        while i < len(X) and finite:
            first = int(current[0])
            n = min(max(self.block - first, 1), len(X) - i)
            part, block = slice(i, i + n), rows[2 : 2 + first + n]
            s = None if weights is None else weights[part]
            errors[part], finite = least_squares.learn(core, X[part], Y[part], s)
            block[first:, :d], block[first:, d:-1] = X[part], Y[part]
            block[first:, -1] = 1.0 if s is None else s
            log = n * math.log2(self.factor or 1.0) if fades is None else fades[part].sum()
            current += n, log
            if len(block) >= self.block and finite:
                self._end(core, before, rows[: 2 + len(block)], float(np.exp2(current[1])))
                before[:], current[:], rows[1] = core, 0.0, block[-1]
                finite = linalg.finite(core)
            i += n
        return errors, finite

    @np.errstate(over="ignore", invalid="ignore")  # the caller tests whether it is finite
    def _end(self, core: Floats, before: Floats, rows: Floats, fade: float) -> None:
        """Replace the vector at the end of a block by that of (1) to (3)."""
        now, past, block = Parts(core), Parts(before), rows[2:]
        d, c, k, mass = now.d, now.c, int(now.free), float(past.head[Slot.MASS])
        if k and past.head[Slot.ROWS] == 0.0:
            past.means[: d + c] = rows[1, :-1] = block[0, :-1]
        s, p = block[:, -1], k + d
        away = (block[:, :-1] - past.means[: d + c]) - past.rests[: d + c]
        M = np.sqrt(s)[:, None] * np.hstack((np.ones((len(s), k)), away))
        A, b = M[:, :p], M[:, p:]
        R, w = np.zeros((p, p)), np.zeros((p, c))
        R[:k, :k], R[k:, k:] = math.sqrt(mass), least_squares.triangle(before)[0]
        w[k:] = least_squares.fitted(before)[0]

        now.energy[:d] = past.energy[:d] + s @ away[:, :d] ** 2
        rows[0, :d] += s @ ((rows[2:, :d] - k * rows[1:-1, :d]) != 0.0)
        unit = np.ones(p)
        if self.scaled:
            unit[k:] = np.sqrt(now.energy[:d] / np.where(rows[0, :d] > 0.0, rows[0, :d], np.inf))
            unit[unit == 0.0] = 1.0
        U, sigma = linalg.svd(A / unit)
        least = max(math.sqrt(self.threshold * s.sum()), _EPS * p * sigma[0])
        U, sigma = U[:, sigma > least], sigma[sigma > least]  # (1)
        Q, size = linalg.svd((R / unit) @ ((A / unit).T @ (U / sigma)))
        Q = Q[:, size > _EPS * p * size.max(initial=0.0)]  # (2)
        R -= (1.0 - math.sqrt(fade)) * (Q @ (Q.T @ R))
        share = 1.0 - (1.0 - fade) * float(Q[0] @ Q[0]) if k else fade  # that remains of the mass
        e = b - A @ w
        outside = ((e - U @ (U.T @ e)) ** 2).sum(axis=0)
        stack = np.vstack((np.hstack((R, R @ w)), U.T @ M, _added_prior(now, past)))
        used = np.flatnonzero(stack.any(axis=0) | (np.arange(p + c) >= p))
        q, joint = len(used) - c, np.zeros((p, p + c))  # rows of R without a column are 0
        T = np.asarray(np.linalg.qr(stack[:, used], mode="r"))
        joint[np.ix_(used[:q], used)] = T[:q]  # (3)

        least_squares.put_triangle(core, joint[k:, k:p], joint[k:, p:])
        now.squares[:] = past.squares * share + outside + (T[q:, q:] ** 2).sum(axis=0)
        now.sums[d : d + c] = now.squares + (joint[k:, p:] ** 2).sum(axis=0)
        now.head[Slot.MASS] = joint[0, 0] ** 2 if k else mass * fade + s.sum()
        if k:
            moved = past.rests[: d + c] + joint[0, 1:] / (joint[0, 0] or 1.0)
            now.means[: d + c] = past.means[: d + c] + moved
            now.rests[: d + c] = moved - (now.means[: d + c] - past.means[: d + c])

    @staticmethod
    def checked(state: Floats) -> Floats | None:
        """The vector of least squares in a state of a file; None if its size is wrong."""
        if state.ndim != 1 or len(state) < HEAD:
            return None
        if not linalg.finite(state) or min(state[: Slot.FACTOR]) < 0.0:
            return None
        parts = Parts(state[:HEAD])
        rest, width = len(state) - 2 * parts.size - 2, parts.d + parts.c + 1
        if rest < 3 * width or rest % width or state[parts.size] not in range(rest // width - 1):
            return None
        core, before = state[: parts.size], state[parts.size + 2 : 2 * parts.size + 2]
        return core if least_squares.is_sound(before, parts.d, parts.c) else None

    @staticmethod
    def grown(state: Floats, d: int) -> Floats:
        """The state for d features; the new ones, at the end, were 0 in all rows so far."""
        core, current, before, rows = _unpacked(state)
        rows = np.insert(rows, [Parts(core).d] * (d - Parts(core).d), 0.0, axis=1)
        core, before = (least_squares.grown(vector, d) for vector in (core, before))
        return np.concatenate((core, current, before, rows.ravel()))

    @staticmethod
    def moved(state: Floats, origins: Floats) -> Floats:
        """The state after features that were 0 in all rows so far were at these values instead."""
        core, current, before, rows = _unpacked(state)
        rows = rows.copy()
        rows[:, : len(origins)] += origins * Parts(core).free
        core, before = (least_squares.moved(vector, origins) for vector in (core, before))
        return np.concatenate((core, current, before, rows.ravel()))

    @staticmethod
    def with_outputs(state: Floats, at: Array, c: int) -> Floats:
        """The state for c outputs; those in columns ``at`` are new and were 0 so far."""
        core, current, before, rows = _unpacked(state)
        d = Parts(core).d
        new = np.zeros((len(rows), d + c + 1))
        new[:, np.setdiff1d(np.arange(d + c + 1), d + at)] = rows
        core, before = (least_squares.with_outputs(vector, at, c) for vector in (core, before))
        return np.concatenate((core, current, before, new.ravel()))


def _added_prior(now: Parts, past: Parts) -> Floats:
    """Rows [A b] of the prior that was added during the block."""
    d, c = now.d, now.c
    start = now.start.T if len(now.start) else np.zeros((d, c))
    rows = np.hstack((np.zeros((d, int(now.free))), np.eye(d), start))
    added = np.maximum(now.prior[:d] - past.prior[:d], 0.0)  # empty if there is no prior
    return np.asarray(np.sqrt(added)[:, None] * rows[: len(added)])


def _unpacked(state: Floats) -> tuple[Floats, Floats, Floats, Floats]:
    """Views: the vector, the numbers of the block, the vector before it, and the rows."""
    parts = Parts(state)
    core, current, before, rows = np.split(state, np.cumsum((parts.size, 2, parts.size)))
    return core, current, before, rows.reshape(-1, parts.d + parts.c + 1)
