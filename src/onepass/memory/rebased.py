"""Rebased span: least squares for rows whose weights differ by more than float64 resolves.

After a gap of many half-lives, or a long time without excitation, all past information is tiny
compared with the next row, and the triangle [R z] of past and row would contain mostly the rounding
errors of that row. The exact solution is lexicographic: new rows are fitted first; in each
direction that they leave undetermined, w stays at the solution of the old rows, in the metric of
the old information. So the old information becomes the metric W of a base, W Wᵀ = P_base, about the
old solution w_base, and the rows since then are represented by an orthonormal span in that metric::

    w = w_base + W Q T⁻¹ z,     P⁻¹ = W⁻ᵀ (Q Tᵀ T Qᵀ + φ (I − Q Qᵀ)) W⁻¹                   (1)
    x̃ = Wᵀ x,   c = Qᵀ x̃,   h u = x̃ − Q c        a row, and its new part                   (2)
    Q ← [Q u],   T ← diag(T, √φ)   if h > 0       a new direction, with the rest of the base (3)
    [T z] ← QR of [T z] and the row [c h b]                                                (4)
    rebase:   w_base ← w,   W ← W [Q T⁻¹, (I − Q Qᵀ) φ^(−½)],   Q, T, z empty,   φ ← 1        (5)

With ridge 0 there is no information at first: φ = 0 and W = diag(1/s_j), where s_j is a power of
two near the first nonzero value of feature j. Then w is the least-norm solution in these units, at
every row and every rank, so that the scales of the features do not matter.

Whether a row is new is decided for each component of x̃ and of x̃ − Q c. A component counts as 0 if
it is within the rounding error of the row itself. While φ = 0 it is not new if it is within

    |rest| ≤ ‖T⁻ᵀ c‖ S,     S² = sum of the squares of the rounding errors of the rows         (6)

because x̃ is then a combination of the past rows with coefficients of this norm. Then the span is
turned into the row, with the least change of the past rows, so that directions which were first
excited hardly more than by rounding become accurate as soon as a row excites them. E bounds the
errors of each direction, which is closer than (6) if the weights of the rows differ much; it alone
decides if φ > 0. F bounds the errors of W. If φ > 0, errors are added as independent ones, by
their squares: upper bounds, each computed from those of the directions before, would grow
exponentially with q, and count what rows say about new directions as rounding. With an intercept
the first column of x is 1, and the others are relative to a reference row.

Cost: O(p q) per row and O(p q) memory for q directions, while the base is diagonal; O(p²) after a
rebase, which is O(p³).
"""

import math
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from onepass import linalg
from onepass.linalg.update import absorb
from onepass.memory.span import Span
from onepass.types import Array, Floats

__all__ = ["GAP", "Rebased", "RebasedUpdate"]

GAP = 2.0**-24
"""If the past fades by less than this factor, it becomes the base of a span before the next row."""

_EPS = float(np.finfo(np.float64).eps)
_TINY = float(np.finfo(np.float64).tiny)
_SURE = 16.0  # times the first-order error bound: larger numbers are not rounding errors
_SHARP = 1e-9  # smallest safe ratio of a diagonal entry of T to a coordinate of a new row
_NEVER = 1e60  # scale of never excited directions relative to forgotten ones
_FAINTEST = 1e-120  # lower bound of phi; W grows by 1 / sqrt(phi) after each gap
_AHEAD = 64  # rows processed together
_SMALL = 256  # maximum number of coordinates for which the projection is formed as a matrix
_LIFTED = 2.0**-12  # below this ratio the information of a newly opened direction is raised
_TRUSTED = 1024.0  # upper bound of the relative error of the metric, in units of epsilon
_LARGEST = 1e150  # upper bound of the metric in units of the features


class RebasedUpdate(NamedTuple):
    """The result of adding rows."""

    span: "Rebased"
    errors: Floats
    """The error of each row just before it, (n, c)."""
    pseudo_rows: list[tuple[Any, Any]]
    """The added pseudo-rows, with their targets."""


class _SplitRows(NamedTuple):
    """Rows in the coordinates of a span."""

    C: Floats
    """(n, q)."""
    rest: Floats
    """The part outside, (n, p); 0 where it is within the rounding error of the row itself."""
    error: Floats
    """The rounding error of each component, (n, p)."""
    bound: Floats
    """An upper bound of the rounding errors of the row and of all past rows, (n, p)."""
    new: Array
    """Whether a component exceeds the rounding errors of all rows, (n, p)."""

    @property
    def height(self) -> float:
        """The length of the part outside, for a single row."""
        return float(linalg.norms(self.rest[:, None])[0])


@dataclass(frozen=True, eq=False, slots=True)
class Rebased:
    """The state (1).

    Parameters
    ----------
    W : ndarray of shape (p, p), or (p,) where it is diagonal
        The metric of the base; p = d + 1 with an intercept, else d.
    F : ndarray of shape (p, p), or (p,)
        Rounding errors of W beyond its last digits.
    units : ndarray of shape (p,)
        s_j, or the size of a feature in the base; 0 while the feature has been 0 in all rows.
    origin : ndarray of shape (p, c)
        w_base.
    Q, E : ndarrays of shape (p, q)
        Orthonormal directions, and their rounding errors.
    S : ndarray of shape (p,)
        Rounding errors of the rows in each coordinate, the root of the sum of squares.
    T : ndarray of shape (q, q)
        Upper triangle, nonsingular.
    z : ndarray of shape (q, c)
    phi : float
        The remaining share of the base, in [0, 1].
    squares : ndarray of shape (c,)
        The least sum of squares.
    rows : int
        Rows since the base was formed.
    never : int
        The number of directions never excited when the base was formed.
    center, targets : ndarrays of shape (2, d) and (2, c)
        The reference row and its targets, each as the sum of two rows; zeros without an intercept.
    free : bool
        Whether the first column is an intercept.
    """

    W: Floats
    F: Floats
    units: Floats
    origin: Floats
    Q: Floats
    E: Floats
    S: Floats
    T: Floats
    z: Floats
    phi: float
    squares: Floats
    rows: int
    never: int
    center: Floats
    targets: Floats
    free: bool

    @classmethod
    def start(cls, d: int, c: int, *, free: bool = False) -> "Rebased":
        """The state before the first row, with ridge 0."""
        p = d + free
        units = np.zeros(p)
        units[:free] = 1.0
        return cls._based(np.ones(p), np.zeros(p), units, np.zeros((p, c)), 0.0, free=free)

    @classmethod
    def _based(
        cls, W: Floats, F: Floats, units: Floats, origin: Floats, phi: float, *, free: bool
    ) -> "Rebased":
        p, c = origin.shape
        none = np.zeros((p, 0))
        never, zeros = 0 if phi else p, (np.zeros((2, p - free)), np.zeros((2, c)))
        return cls(
            W, F, units, origin, none, none, np.zeros(p), np.zeros((0, 0)), np.zeros((0, c)), phi,
            np.zeros(c), 0, never, *zeros, bool(free),
        )  # fmt: skip

    @classmethod
    def of_triangle(
        cls, R: Floats, w: Floats, mass: float = 1.0, *, free: bool = False
    ) -> "Rebased":
        """The base given by a nonsingular triangle R of weight ``mass`` with the solution w."""
        W = linalg.solve_upper(R, np.eye(len(R)))
        units = linalg.norms(R) / np.sqrt(mass)
        return cls._based(W, 64.0 * _EPS * np.abs(W), units, w, 1.0, free=free)

    @classmethod
    def of_span(cls, span: Span) -> "Rebased":
        """Convert from the format of former files."""
        p, c = span.Q.shape[0], span.z.shape[1]
        new = cls._based(np.ones(p), np.zeros(p), np.ones(p), np.zeros((p, c)), 0.0, free=False)
        errors = _EPS * linalg.norms(span.T @ span.Q.T)
        return replace(new, Q=span.Q, E=np.abs(span.Q) * span.doubt, S=errors, T=span.T, z=span.z)

    @property
    def rank(self) -> int:
        """The number of directions that rows have excited, as determined from base and span."""
        return int(max(self.Q.shape[1], len(self.Q) - self.never))

    @property
    def full(self) -> bool:
        """Whether all directions have been excited since the base was made."""
        return bool(self.Q.shape[1] == len(self.Q))

    @property
    def determined(self) -> bool:
        """Whether rows or the prior determine all weights."""
        return self.full or not (self.phi == 0.0 or self.never)

    def solution(self) -> Floats:
        """The weights w, shape (p, c), by (1)."""
        if not len(self.T):
            return self.origin
        return self.origin + self._spread(self.Q @ linalg.solve_upper(self.T, self.z))

    def relative_to(self, x: Floats, y: Floats) -> "Rebased":
        """The initial state relative to a row x with targets y."""
        if not self.free:
            return self
        center = np.vstack((x, np.zeros_like(x))).astype(np.float64)
        return replace(self, center=center, targets=np.vstack((y, np.zeros_like(y))))

    def absorb(
        self, A: Floats, b: Floats, scale: Floats, raw: Floats, level: Floats | None = None
    ) -> RebasedUpdate:
        """Add rows scale_k [a_k b_k], one after the other; as a block if no row is new.

        Parameters
        ----------
        A : ndarray of shape (n, p)
        b : ndarray of shape (n, c)
        scale : ndarray of shape (n,)
        raw : ndarray of shape (n, p)
            Sizes of the minuends of A, to which its rounding errors are relative.
        level : ndarray of shape (n,), optional
            The minimum information about a direction that a row opens, as a number of rows; at most
            the information of this row.
        """
        errors = np.empty(b.shape)
        span, i, n, ahead, added, turned = self, 0, len(A), _AHEAD, [], -1
        while i < n:
            span, stop = span._with_units(raw[i : i + ahead])
            split_rows = span.split_rows(A[i : i + stop], raw[i : i + stop])
            C = split_rows.C * scale[i : i + stop, None]
            outside = (split_rows.rest != 0.0).any(axis=1) & (not span.full)
            depth = np.abs(np.diagonal(span.T))
            past = depth if span.phi > 0.0 else linalg.norms(span.T)
            sharp = np.asarray((np.abs(C) * _SHARP > past).any(axis=1))
            sharp |= bool(depth.min(initial=1.0) < 1e-60)
            halt = outside | sharp
            halt[:1] &= sharp[:1] | split_rows.new[:1].any(axis=1) | (outside[:1] & (turned != i))
            known = int(np.argmax(halt)) if halt.any() else stop
            if known:
                rows = slice(i, i + known)
                weight, theta = scale[rows, None], linalg.solve_upper(span.T, span.z)
                y = span.targets_of(A[rows], b[rows], split_rows.C[:known]) * weight
                update = absorb(span.T, span.z, theta, C[:known], y)
                errors[rows], squares = update.errors / weight, span.squares + update.left
                more = linalg.norms(split_rows.error[:known] * weight)
                span = replace(
                    span, S=np.hypot(span.S, more), T=update.R, z=update.z, squares=squares
                )
                i, ahead = i + known, min(2 * ahead, _AHEAD)  # larger chunks while no row is new
                continue
            if sharp[0]:
                span = span.rebased()
                continue
            one = _SplitRows(*(part[0] for part in split_rows))
            if turned != i and (one.rest * ~one.new).any():
                rest = span.split_off(one.rest * ~one.new)[1]
                span, turned, ahead = span.turned(one.C, rest), i, 1
                continue
            errors[i] = b[i] - A[i] @ span.solution()
            along, rest = span.split_off(one.rest * one.new)
            one = one._replace(C=one.C + along, rest=rest)
            target = span.targets_of(A[i], b[i], one.C)
            span = span.extended(one, target, errors[i], scale[i])
            if level is not None and level[i] and span.phi == 0.0:
                span, row = span.with_raised_direction(
                    min(level[i], 1.0) ** 0.5 * scale[i] * one.height
                )
                added += [] if row is None else [(row, row @ span.solution())]
            i, ahead = i + 1, 1
        return RebasedUpdate(replace(span, rows=span.rows + n), errors, added)

    def absorb_fitted(self, A: Floats) -> tuple["Rebased", Floats]:
        """Absorb rows A (k, p) that the weights fit exactly; return the rows as absorbed.

        While some directions were never excited, rows are projected on the span.
        """
        if self.phi > 0.0:
            w = self.solution()
            return self.absorb(A, A @ w, np.ones(len(A)), np.abs(A)).span, A
        C = self._coordinates(A) @ self.Q
        theta = linalg.solve_upper(self.T, self.z)
        T, z, _ = linalg.qr_update(self.T, self.z, C, C @ theta)
        S = np.hypot(self.S, linalg.norms(self.errors_in_span(C)))
        return replace(self, S=S, T=T, z=z), C @ self.Q.T / self.W

    def faded(self, factor: float) -> "Rebased":
        """Multiply the weight of all rows, and of the base, by ``factor``."""
        root = np.sqrt(factor)
        phi = max(self.phi * factor, _FAINTEST) if self.phi > 0.0 else 0.0
        T, z, S = self.T * root, self.z * root, self.S * root
        return replace(self, S=S, T=T, z=z, phi=phi, squares=self.squares * factor)

    def rebased(self) -> "Rebased":
        """Make all past information the base: (5)."""
        q, w = len(self.T), self.solution()
        sizes = np.where(self.units > 0.0, self.units, 1.0)[:, None]
        if not q:
            if self.phi == 0.0:
                return self
            root = _bounded(self.phi**-0.5, self._dense()[0] * sizes)
            return replace(self, W=self.W * root, F=self.F * root, phi=1.0)
        W, F = self._dense()
        rest, inverse = _complement(self.Q), linalg.solve_upper(self.T, np.eye(q))
        there = W @ (self.Q @ inverse)
        G = _EPS * np.abs(W) + F
        E = self.E
        if self.phi == 0.0:
            E = np.minimum(E, np.outer(self.S, linalg.norms(inverse.T)))
        add, open_ = self._errors, W @ rest
        errors = add(add(G, self.Q) + add(W, E), inverse)
        more = add(G, rest) + add(add(W, self.Q), add(E.T, rest))
        errors, more = (  # in units of the features, for features of small scale
            np.minimum(each, _TRUSTED * _EPS * np.abs(M * sizes).max(axis=0, initial=0.0) / sizes)
            for each, M in ((errors, there), (more, open_))
        )
        root = self.phi**-0.5 if self.phi > 0.0 else _NEVER * np.abs(there * sizes).max()
        root = _bounded(root, open_ * sizes)
        return replace(
            self._based(
                np.column_stack((there, open_ * root)),
                np.column_stack((errors, more * root)),
                self.units, w, 1.0, free=self.free,
            ),
            squares=self.squares,
            never=min(self.never, len(w) - q),
            center=self.center,
            targets=self.targets,
        )  # fmt: skip

    def triangle(self) -> tuple[Floats, Floats]:
        """[R z] with RᵀR = P⁻¹ and R w = z; it has fewer rows if directions were never excited."""
        W, _ = self._dense()
        size = np.abs(W).max(axis=0)
        rows = self.T @ self.Q.T
        if self.phi > 0.0 and not self.full:
            rows = np.vstack((rows, np.sqrt(self.phi) * _complement(self.Q).T))
        M = np.linalg.solve((W / size).T, (rows / size).T).T
        R = np.linalg.qr(M, mode="r")
        return np.asfortranarray(R), R @ self.solution()

    def roots(self) -> tuple[Floats, Floats]:
        """R and S with RᵀR = P⁻¹ and SᵀS = P of the centred features, within the span, if φ = 0."""
        inverse, free = linalg.solve_upper(self.T, np.eye(len(self.T))), int(self.free)
        R = np.linalg.qr(self.T @ self.Q.T, mode="r") / self.W
        return R[free:, free:], ((self.Q @ inverse).T * self.W)[:, free:]

    def leverage(self, A: Floats) -> Floats:
        """aᵀ P a for each row of A, (n,); infinite where a has a direction never excited."""
        X = self._coordinates(A)
        C = X @ self.Q
        V = linalg.whitened(C, self.T)
        known = np.einsum("ij,ij->i", V, V)
        if self.full:
            return np.asarray(known)
        if not self.determined:
            return np.full(len(A), np.inf)
        rest = X - C @ self.Q.T
        return np.asarray(known + np.einsum("ij,ij->i", rest, rest) / self.phi)

    def grown(self, d: int, ridge: float | Floats) -> "Rebased":
        """Add features at the end, which were zero in all rows so far, under this ridge."""
        old, p = len(self.units), d + self.free
        if p == old:
            return self
        none, more = np.zeros(p - old), np.zeros((p - old, len(self.T)))
        scale: Any = 1.0 if self.phi == 0.0 else _NEVER * float(np.abs(self.W).max())
        if np.all(ridge > 0.0) and self.phi > 0.0:
            scale = np.sqrt(self.phi / ridge)
        W, F = (np.append(self.W, none + scale), np.append(self.F, none))
        if self.W.ndim == 2:
            W, F = np.zeros((2, p, p))
            W[:old, :old], F[:old, :old] = self.W, self.F
            W[np.arange(old, p), np.arange(old, p)] = scale
        return replace(
            self,
            W=W,
            F=F,
            units=np.append(self.units, none + np.all(ridge > 0.0)),
            origin=np.vstack((self.origin, np.zeros((p - old, self.origin.shape[1])))),
            Q=np.vstack((self.Q, more)),
            E=np.vstack((self.E, more)),
            S=np.append(self.S, none),
            never=self.never + (0 if np.all(ridge > 0.0) else p - old),
            center=np.hstack((self.center, np.zeros((2, p - old)))),
        )

    def with_outputs(self, at: Array, c: int) -> "Rebased":
        """Extend to c outputs; those in columns ``at`` are new and were zero in all rows so far."""
        old = np.setdiff1d(np.arange(c), at)
        wide: dict[str, Any] = {}
        for name in ("origin", "z", "targets", "squares"):
            narrow = getattr(self, name)
            wide[name] = np.zeros((*narrow.shape[:-1], c))
            wide[name][..., old] = narrow
        return replace(self, **wide)

    def _dense(self) -> tuple[Floats, Floats]:
        """W and F as matrices."""
        if self.W.ndim == 2:
            return self.W, self.F
        return np.diag(self.W), np.diag(self.F)

    def _coordinates(self, A: Floats) -> Floats:
        """Wᵀ x for rows A."""
        coordinates: Floats = A * self.W if self.W.ndim == 1 else A @ self.W
        return coordinates

    def _spread(self, theta: Floats) -> Floats:
        """W theta."""
        spread: Floats = self.W[:, None] * theta if self.W.ndim == 1 else self.W @ theta
        return spread

    def targets_of(self, A: Floats, b: Floats, C: Floats) -> Floats:
        """The targets relative to the base, for rows A with coordinates C in the span.

        The weights may be large until rows have determined them, so that they are used only after
        a rebase, where the base contains them.
        """
        if self.W.ndim == 1:
            return np.asarray(b - A @ self.origin)
        return np.asarray(b - A @ self.solution() + C @ linalg.solve_upper(self.T, self.z))

    def _with_units(self, raw: Floats) -> tuple["Rebased", int]:
        """The state with the units of the first row, and the number of rows without new units."""
        unseen = np.flatnonzero(self.units == 0.0)
        there = raw[:, unseen] != 0.0
        if not there.any():
            return self, len(raw)
        shown = there.any(axis=1)
        if not shown[0]:
            return self, int(np.argmax(shown))
        at = unseen[there[0]]
        units = self.units.copy()
        units[at] = np.exp2(np.clip(np.round(np.log2(raw[0, at])), -1000.0, 1000.0))
        shape = np.ones(len(units))
        shape[at] = 1.0 / units[at]
        W, F = ((each.T * shape).T for each in (self.W, self.F))
        return replace(self, units=units, W=W, F=F), 1

    def split_rows(self, A: Floats, raw: Floats) -> _SplitRows:
        """Split rows into the part in the span and the part outside: (2).

        The rounding error of the part outside is bounded after its projection off the span.
        """
        G = _EPS * np.abs(self.W) + self.F
        X = self._coordinates(A)
        error = _SURE * (raw * G if G.ndim == 1 else raw @ G)
        X = np.where(np.abs(X) <= error, 0.0, X)
        C = X @ self.Q
        rest = X - C @ self.Q.T
        again = rest @ self.Q
        aQ, aC = np.abs(self.Q), np.abs(C)
        floor = _SURE * _EPS * (np.abs(rest) + np.abs(again) @ aQ.T)
        C, rest = C + again, rest - again @ self.Q.T
        own = error + _SURE * _EPS * (np.abs(X) + aC @ aQ.T)
        past = _SURE * self.errors_in_span(C)
        if len(aQ) <= _SMALL:
            off = np.abs(np.eye(len(aQ)) - self.Q @ self.Q.T)
            bound, past = own @ off, self._errors(past, off)
        else:
            along = self._errors(self._errors(past, aQ), aQ.T)
            bound, past = own + own @ aQ @ aQ.T, past + along
        bound += floor
        past += bound
        rest = np.where(np.abs(rest) <= (bound if self.phi == 0.0 else past), 0.0, rest)
        again = rest @ self.Q
        C, rest = C + again, rest - again @ self.Q.T
        C = np.where(np.abs(C) <= (_SURE * _EPS * np.abs(X) + error) @ aQ, 0.0, C)
        error = np.where(X != 0.0, own / _SURE, 0.0)
        new = np.abs(rest) > past
        if self.phi > 0.0:  # the base is not turned
            new |= new.any(axis=1, keepdims=True)
            rest = rest * new
        return _SplitRows(C, rest, error, past, new)

    def errors_in_span(self, C: Floats) -> Floats:
        """Rounding errors (n, p) of rows in the span with coordinates C: (6)."""
        errors = self._errors(C, self.E.T)
        if self.phi > 0.0:
            return errors
        combined = np.outer(linalg.norms(linalg.whitened(C, self.T).T), self.S)
        return np.minimum(combined, errors)

    def _errors(self, A: Floats, B: Floats) -> Floats:
        """Errors of A B, where A or B are errors: independent ones if phi > 0, else a bound."""
        A, B = np.abs(A), np.abs(B)
        if self.phi == 0.0:
            return np.asarray(A @ B)
        a, b = A.max(axis=1, initial=_TINY, keepdims=True), B.max(axis=0, initial=_TINY)
        return np.asarray(np.sqrt((A / a) ** 2 @ (B / b) ** 2) * a * b)

    def split_off(self, rest: Floats) -> tuple[Floats, Floats]:
        """Coordinates in the span, and the part outside."""
        along = rest @ self.Q
        rest = rest - self.Q @ along
        return along, rest - self.Q @ (rest @ self.Q)

    def turned(self, c: Floats, rest: Floats) -> "Rebased":
        """Turn the span into a row with coordinates c and this part outside, within rounding.

        The change of the past rows is the least: the span and the row without the direction of
        the smallest singular value.
        """
        height = float(linalg.norms(rest[:, None])[0])
        v = linalg.whitened(c[None], self.T)[0]
        if not (v @ v > 0.0):
            return self
        n = linalg.solve_upper(self.T, v[:, None])[:, 0] * (-height / (v @ v))
        length = math.hypot(1.0, *n)
        n, last = n / length, 1.0 / length
        Q = self.Q - np.outer(self.Q @ n / (1.0 + last) + rest / height, n)
        E = self.E + np.outer(np.abs(rest / height), np.abs(n))
        U, T = np.linalg.qr(self.T - np.outer(self.T @ n, n / (1.0 + last)))
        return replace(self, Q=Q, E=E, T=np.asfortranarray(T), z=U.T @ self.z)

    def extended(self, one: _SplitRows, b: Floats, error: Floats, scale: float) -> "Rebased":
        """Add one row with a new direction: (3), (4)."""
        q, c, height = len(self.T), len(error), one.height
        u = one.rest / height
        errors = np.where(np.abs(one.rest) > one.bound, one.bound / _SURE, _EPS * np.abs(one.rest))
        T: Floats = np.zeros((q + 1, q + 1), order="F")
        T[:q, :q], T[q, q] = self.T, np.sqrt(self.phi)
        z, row = np.vstack((self.z, np.zeros((1, c)))), np.append(one.C, height)
        T, z, _ = linalg.qr_update(T, z, row[None] * scale, b[None] * scale)
        left = np.zeros(c)  # if phi is tiny, the residual of the QR is only rounding errors
        if self.phi > 0.0:
            V = linalg.whitened(one.C[None], self.T)[0]
            left[:] = (error / math.hypot(1.0 / scale, *V, height / math.sqrt(self.phi))) ** 2
        return replace(
            self,
            Q=np.column_stack((self.Q, u)),
            E=np.column_stack((self.E, errors / height)),
            S=np.hypot(self.S, one.error * scale),
            T=T,
            z=z,
            squares=self.squares + left,
        )

    def with_raised_direction(self, least: float) -> tuple["Rebased", Floats | None]:
        """Raise the information root of the newest direction to ``least``; return the row added.

        After a gap, a row mostly determines the intercept and other faded directions anew, so it
        contains almost no information about a direction that it opens.
        """
        depth = abs(self.T[-1, -1])
        if not 0.0 < depth < _LIFTED * least:
            return self, None
        T, z = self.T.copy(order="F"), self.z.copy()
        z[-1] *= least / T[-1, -1]
        T[-1, -1] = least
        u = least * self.Q[:, -1]
        row = u / self.W if self.W.ndim == 1 else np.linalg.solve(self.W.T, u)
        S = np.hypot(self.S, least * self.E[:, -1])
        return replace(self, S=S, T=T, z=z), row


def _bounded(root: float, M: Floats) -> float:
    """Limit a factor of M so that M does not become too large."""
    reach = np.abs(M).max(initial=0.0)
    return min(root, max(1.0, float(_LARGEST / reach))) if reach > 0.0 else root


def _complement(Q: Floats) -> Floats:
    """Orthonormal columns (p, p − q) orthogonal to Q (p, q), by reflections.

    The pivot of each reflection is the largest entry: graded columns keep their small entries.
    """
    p, q = Q.shape
    used: list[int] = []
    A, reflections = Q.copy(), []
    for j in range(q):
        v = A[:, j].copy()
        v[used] = 0.0
        k = int(np.abs(v).argmax())
        v /= linalg.norms(v[:, None])[0]
        beta = 1.0 / (1.0 + abs(v[k]))
        v[k] += 1.0 if v[k] >= 0.0 else -1.0
        A[:, j + 1 :] -= np.outer(v, beta * (v @ A[:, j + 1 :]))
        reflections.append((v, beta))
        used.append(k)
    rest: Floats = np.delete(np.eye(p), used, axis=1)
    for v, beta in reversed(reflections):
        rest -= np.outer(v, beta * (v @ rest))
    return rest
