"""Reference predictions of recursive least squares, in arithmetic of any precision.

The problem is kept in information form, which needs twice the digits:

    A = Σ q_k a_k a_kᵀ + Π,   G = Σ q_k a_k (y_k − x_kᵀ w₀)ᵀ,   A θ = G                      (1)

with a_k = [1, x_k] or x_k, current weights q_k and the current ridge Π. The number of bits is
chosen so that the weakest row still has a few hundred digits. Where A is singular, θ is the
solution of least norm of S (w − w₀), S = diag(s_j), s_j = 2^round(log₂ |first nonzero x_j|).
Nothing is imported from the library, and rows are taken one at a time.
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import scipy.linalg

__all__ = ["Problem", "Reference", "Rule", "reference"]

mp = mpmath.mp
SUDDEN = 2.0**-8
Matrix = list[list[Any]]


@dataclass(frozen=True)
class Rule:
    """A forgetting rule.

    Parameters
    ----------
    kind : {"exponential", "bounded", "directional", "window"}
    factor : float, optional
        The forgetting factor; without it, the past fades by time, in half-lives.
    floor : float
        Of "bounded".
    block, threshold, scaled : int, float, bool
        Of "directional".
    rows : int, optional
        Of "window"; without it, the window has a span of one unit of time.
    """

    kind: str
    factor: float | None = None
    floor: float = 1.0
    block: int = 16
    threshold: float = 1e-6
    scaled: bool = True
    rows: int | None = None


@dataclass(frozen=True)
class Problem:
    """A stream of rows, all of positive weight or of weight 0, and how to learn them.

    Parameters
    ----------
    X, Y, weights : ndarrays of shapes (n, d), (n, c) and (n,)
    time : list of n Fraction, optional
        In half-lives, or in window spans.
    ridge : float or ndarray of shape (d, d)
    intercept : bool
    start : ndarray of shape (d, c)
        w₀.
    rule : Rule
    """

    X: Any
    Y: Any
    weights: Any
    time: list[Fraction] | None
    ridge: Any
    intercept: bool
    start: Any
    rule: Rule


@dataclass
class Reference:
    """Of each row, just before it is learned.

    Attributes
    ----------
    predictions : ndarray of shape (n, c)
    condition : ndarray of shape (n,)
        The condition number of the weighted rows and the ridge, after each column was scaled to
        length 1; infinite below full rank. Rules that go on from the coefficients of an earlier
        time keep their errors: there, the largest of all condition numbers at those times too.
    reduced : ndarray of shape (n,)
        The same of the linearly independent columns alone.
    determined : ndarray of bool of shape (n,)
        Whether the rows before and the ridge determine the prediction.
    batch, reversed : ndarrays of shape (n, c)
        Predictions of a QR factorization in float64 of the same weighted rows, from the first to
        the last and from the last to the first; NaN below full rank.
    reach : ndarray of shape (n,)
        The size of the row in units of the columns, sqrt(Σ_j (a_j / ‖column j‖)²), or 1 if larger:
        by so much a relative error of the coefficients is magnified.
    defined : ndarray of bool of shape (n,)
        Whether the prediction is beyond doubt: see `_Exponential`, `_Bounded` and `_Directional`.
    largest : float
        log₂ of the largest coefficient of all.
    """

    predictions: Any
    condition: Any
    reduced: Any
    determined: Any
    batch: Any
    reversed: Any
    reach: Any
    defined: Any
    largest: float = -math.inf


def reference(problem: Problem) -> Reference:
    """Predict each row from the rows before it."""
    with mpmath.workprec(_bits(problem)):
        return _run(problem)


def _bits(problem: Problem) -> int:
    """Digits of the working precision: 300 decimals more than weights, rows and ridge span."""
    rule, n, bits = problem.rule, len(problem.X), 1000.0
    used = problem.weights[problem.weights > 0.0]
    if len(used):
        bits += math.log2(used.max()) - math.log2(used.min())
    if rule.kind != "window":
        if rule.factor is not None:
            bits -= n * math.log2(rule.factor)
        elif problem.time is not None:
            bits += float(problem.time[-1] - problem.time[0])
    prior = np.diagonal(np.eye(problem.X.shape[1]) * problem.ridge)
    roots = np.sqrt(np.maximum(prior, 0.0))
    spans = [0.0]
    for column in np.vstack((np.abs(problem.X), roots)).T:
        there = np.log2(column[column > 0.0])
        spans.append(2.0 * float(np.ptp(there)) if len(there) else 0.0)
    bits += max(spans)
    if rule.kind == "directional" and not rule.scaled:
        there = np.log2(np.abs(problem.X[problem.X != 0.0]))
        bits += 2.0 * float(np.ptp(there)) if len(there) else 0.0
    return int(bits)


def _run(problem: Problem) -> Reference:
    rule = problem.rule
    n, c = problem.Y.shape
    kinds = {"bounded": _Bounded, "directional": _Directional, "window": _Window}
    state = kinds.get(rule.kind, _Exponential)(problem)
    found = Reference(
        np.zeros((n, c)), np.ones(n), np.ones(n), np.ones(n, bool), np.zeros((n, c)),
        np.zeros((n, c)), np.ones(n), np.ones(n, bool),
    )  # fmt: skip
    first = problem.rule.kind not in {"directional", "window"}
    units = _Units(problem.X.shape[1], first=first)
    last = None
    for i in range(n):
        x, y = _exact(problem.X[i]), _exact(problem.Y[i])
        prior = [_dot(x, column) for column in zip(*_matrix(problem.start), strict=True)]
        if last is None:
            predictions, batch = [mp.zero] * c, [[0.0] * c] * 2
        else:
            predictions, batch = _predicted(found, i, state, x, units)
        found.predictions[i] = [float(s + w) for s, w in zip(predictions, prior, strict=True)]
        for values, to in zip(batch, (found.batch, found.reversed), strict=True):
            to[i] = [value + float(w) for value, w in zip(values, prior, strict=True)]
        found.defined[i] = state.defined
        if problem.weights[i] > 0.0:
            now = None if problem.time is None else problem.time[i]
            gap = Fraction(0) if now is None or last is None else now - last
            last = now if now is not None else Fraction(0)
            units.see(x)
            change = [a - w for a, w in zip(y, prior, strict=True)]
            state.learn(x, change, mp.mpf(float(problem.weights[i])), gap, now)
    return found


def _predicted(found: Reference, i: int, state: Any, x: list[Any], units: "_Units") -> Any:
    """The prediction of row i relative to w₀, exact and in float64."""
    squares = units.squares if units.first else state.sums.sizes(state.free)
    solution = state.sums.solution(state.free, squares)
    a = state.row(x)
    predictions = [_dot(a, column) + shift for column, shift in zip(
        zip(*solution.theta, strict=True), state.shift, strict=True)]  # fmt: skip
    found.condition[i] = max(solution.condition, state.carried)
    found.reduced[i] = max(solution.reduced, state.carried)
    found.determined[i] = all(_negligible(a, vector) for vector in solution.null)
    sizes = [abs(t) for row in solution.theta[state.free :] for t in row]
    largest = max(sizes, default=mp.zero)
    if largest > 0:
        found.largest = max(found.largest, float(mpmath.log(largest, 2)))
    if not math.isfinite(solution.condition):
        return predictions, [[math.nan] * len(predictions)] * 2
    size = [state.sums.A[j][j] for j in range(len(a))]
    found.reach[i] = max(
        1.0, float(mpmath.sqrt(sum(v * v / q for v, q in zip(a, size, strict=True) if q > 0)))
    )
    return predictions, state.batch(x, units.exponents)


class _Units:
    """s_j of each feature, where these are its first values and not its present sizes."""

    def __init__(self, d: int, *, first: bool) -> None:
        self.first = first
        self.squares, self.exponents = [mp.one] * d, [0] * d
        self.seen = [False] * d

    def see(self, x: list[Any]) -> None:
        for j, value in enumerate(x):
            if value != 0 and not self.seen[j]:
                e = round(float(mpmath.log(abs(value), 2)))
                self.seen[j], self.exponents[j] = True, e
                self.squares[j] = mpmath.ldexp(mp.one, 2 * e)


@dataclass
class _Solution:
    theta: Matrix
    null: Matrix
    condition: float
    reduced: float


class _Sums:
    """A and G of (1)."""

    def __init__(self, m: int, c: int) -> None:
        self.A = [[mp.zero] * m for _ in range(m)]
        self.G = [[mp.zero] * c for _ in range(m)]

    def copy(self) -> "_Sums":
        twin = _Sums(0, 0)
        twin.A, twin.G = [row[:] for row in self.A], [row[:] for row in self.G]
        return twin

    def fade(self, factor: Any) -> None:
        for rows in (self.A, self.G):
            for row in rows:
                row[:] = [factor * value for value in row]

    def add(self, a: list[Any], b: list[Any], weight: Any) -> None:
        for i, value in enumerate(a):
            if value == 0:
                continue
            qa = weight * value
            row, right = self.A[i], self.G[i]
            for j, other in enumerate(a):
                row[j] += qa * other
            for k, target in enumerate(b):
                right[k] += qa * target

    def sizes(self, free: int) -> list[Any]:
        """The squared norm of each column, about its mean where there is an intercept."""
        A = self.A
        mean = [A[0][j] ** 2 / A[0][0] if free and A[0][0] > 0 else 0 for j in range(len(A))]
        found = [A[j][j] - mean[j] for j in range(free, len(A))]
        least = [mpmath.ldexp(A[j][j], 300 - mp.prec) for j in range(free, len(A))]
        return [q if q > e else mp.one for q, e in zip(found, least, strict=True)]

    def solution(self, free: int, squares: list[Any]) -> _Solution:
        """Solve by Gaussian elimination; least norm below full rank."""
        upper, right, independent = _eliminated(self.A, self.G)
        m, c = len(self.A), len(self.G[0])
        theta = [[mp.zero] * c for _ in range(m)]
        for i in reversed(independent):
            for k in range(c):
                rest = right[i][k] - sum(upper[i][j] * theta[j][k] for j in independent if j > i)
                theta[i][k] = rest / upper[i][i]
        null = []
        for j in sorted(set(range(m)) - set(independent)):
            vector = [mp.zero] * m
            vector[j] = mp.one
            for i in reversed(independent):
                rest = sum(upper[i][k] * vector[k] for k in range(i + 1, m))
                vector[i] = -rest / upper[i][i]
            null.append(vector)
        size = [mpmath.sqrt(self.A[j][j]) if self.A[j][j] > 0 else mp.one for j in range(m)]
        for vector in null:  # what rounding left is zero
            least = mpmath.ldexp(max(map(mp.fmul, map(abs, vector), size)), 300 - mp.prec)
            vector[:] = [
                v if abs(v) * q > least else v * 0 for v, q in zip(vector, size, strict=True)
            ]
        if null:
            theta = _nearest(theta, null, free, squares)
        R = np.array([
            [float(upper[i][j] / mpmath.sqrt(upper[i][i]) / size[j]) for j in independent]
            for i in independent
        ]).reshape(len(independent), len(independent))  # fmt: skip
        sigma = np.linalg.svd(np.triu(R), compute_uv=False)
        reduced = float(sigma[0] / sigma[-1]) if len(sigma) and sigma[-1] > 0.0 else math.inf
        if not len(sigma):
            reduced = 1.0
        return _Solution(theta, null, math.inf if null else reduced, reduced)


def _eliminated(A: Matrix, G: Matrix, smallest: Any = 0) -> tuple[Matrix, Matrix, list[int]]:
    """Upper triangle, right side, and the columns that are linearly independent.

    A pivot is zero where it is tiny against the diagonal of A, or at most ``smallest``.
    """
    S, right, m = [row[:] for row in A], [row[:] for row in G], len(A)
    least = mpmath.ldexp(mp.one, 200 - mp.prec)
    independent = []
    for k in range(m):
        if S[k][k] <= max(least * A[k][k], smallest):
            continue
        independent.append(k)
        for i in range(k + 1, m):
            if S[k][i] == 0:
                continue
            factor = S[k][i] / S[k][k]
            for j in range(i, m):
                S[i][j] -= factor * S[k][j]
            right[i] = [r - factor * s for r, s in zip(right[i], right[k], strict=True)]
    return S, right, independent


def _nearest(theta: Matrix, null: Matrix, free: int, squares: list[Any]) -> Matrix:
    """The solution of least Σ s_j² w_j² among theta + span(null)."""
    weighted = [[q * v for q, v in zip(squares, vector[free:], strict=True)] for vector in null]
    normal = _Sums(len(null), len(theta[0]))
    for i, left in enumerate(weighted):
        normal.A[i] = [_dot(left, vector[free:]) for vector in null]
        normal.G[i] = [_dot(left, column) for column in zip(*theta[free:], strict=True)]
    upper, right, independent = _eliminated(normal.A, normal.G)
    t = [[mp.zero] * len(theta[0]) for _ in null]
    for i in reversed(independent):
        for k in range(len(theta[0])):
            rest = right[i][k] - sum(upper[i][j] * t[j][k] for j in range(i + 1, len(null)))
            t[i][k] = rest / upper[i][i]
    return [
        [value - sum(vector[j] * t[v][k] for v, vector in enumerate(null))
         for k, value in enumerate(row)]
        for j, row in enumerate(theta)
    ]  # fmt: skip


class _Exponential:
    """Σ_k λ^(n−k) s_k (y_k − b − x_kᵀ w)² + λⁿ ‖w − w₀‖²_Π, by rows or by time.

    Predictions are not `defined` after a fade below `SUDDEN` at once, which leaves only a prior.
    """

    def __init__(self, problem: Problem) -> None:
        self.rule, self.free = problem.rule, int(problem.intercept)
        d, c = problem.X.shape[1], problem.Y.shape[1]
        self.d, self.c, self.defined, self.shift = d, c, True, [mp.zero] * c
        self.carried = 1.0
        self.ridge = np.asarray(problem.ridge, dtype=np.float64)
        if self.ridge.ndim == 0:
            self.ridge = np.eye(d) * self.ridge
        self.sums = _Sums(d + self.free, c)
        for i in range(d):
            for j in range(d):
                self.sums.A[i + self.free][j + self.free] = mp.mpf(float(self.ridge[i, j]))
        self.rows: list[tuple[list[Any], list[Any], Any]] = []  # a, b and weight / fade
        self.fade = mp.one

    def row(self, x: list[Any]) -> list[Any]:
        return [mp.one, *x] if self.free else x

    def factor(self, gap: Fraction) -> Any:
        if self.rule.factor is not None:
            return mp.mpf(self.rule.factor)
        return mpmath.power(2, -mp.mpf(gap.numerator) / gap.denominator)

    def aged(self, factor: Any) -> None:
        """Fade the past."""
        if factor != 1:
            self.sums.fade(factor)
            self.fade *= factor

    def added(self, a: list[Any], b: list[Any], weight: Any) -> None:
        self.sums.add(a, b, weight)
        self.rows.append((a, b, weight / self.fade))

    def learn(self, x: list[Any], b: list[Any], weight: Any, gap: Fraction, now: Any) -> None:
        del now
        factor = self.factor(gap)
        if self.rows and factor < SUDDEN:
            self.defined = False
        self.aged(factor)
        self.added(self.row(x), b, weight)

    def batch(self, x: list[Any], exponents: list[int]) -> list[list[float]]:
        """The predictions relative to w₀ by QR of the weighted rows in float64."""
        roots = [mpmath.sqrt(weight * self.fade) for _, _, weight in self.rows]
        A = [
            [root * value for value in a] for root, (a, _, _) in zip(roots, self.rows, strict=True)
        ]
        b = [
            [root * value for value in b] for root, (_, b, _) in zip(roots, self.rows, strict=True)
        ]
        values, vectors = np.linalg.eigh(self.ridge)
        prior = np.sqrt(np.maximum(values, 0.0))[:, None] * vectors.T
        root = mpmath.sqrt(self.fade)
        for row in prior[values > 0.0]:
            A.append([mp.zero] * self.free + [root * mp.mpf(float(value)) for value in row])
            b.append([mp.zero] * self.c)
        return _qr(A, b, self.row(x), [0] * self.free + exponents)


class _Window(_Exponential):
    """The last rows, or those younger than one unit of time; the ridge does not fade."""

    def learn(self, x: list[Any], b: list[Any], weight: Any, gap: Fraction, now: Any) -> None:
        del gap
        self.added(self.row(x), b, weight)
        self.times = [*getattr(self, "times", []), now]
        while (
            len(self.rows) > self.rule.rows
            if self.rule.rows is not None
            else now - self.times[0] >= 1
        ):
            a, b, q = self.rows.pop(0)
            self.times.pop(0)
            self.sums.add(a, b, -q)


class _Seen:
    """Mean square of each feature over the rows in which it was not silent."""

    def __init__(self, d: int, free: int) -> None:
        self.squares, self.active = [mp.zero] * d, [mp.zero] * d
        self.last: list[Any] | None = None
        self.free, self.count = free, 0

    def see(self, x: list[Any], centred: list[Any], weight: Any) -> None:
        for j, value in enumerate(x):
            silent = value == 0
            if self.free:
                silent = self.last is None or value == self.last[j]
            if not (self.free and self.last is None):
                self.squares[j] += weight * centred[j] * centred[j]
            if not silent:
                self.active[j] += weight
        self.last, self.count = x, self.count + 1

    @property
    def sizes(self) -> list[Any]:
        return [q / a if a > 0 else mp.zero for q, a in zip(self.squares, self.active, strict=True)]


class _Bounded(_Exponential):
    """Exponential forgetting, with pseudo-rows √(δ_j (1 − φ)) e_j whose target is the present w_j.

    δ_j = max(floor τ_j energy_j / count, 10 ridge), where energy_j / count is the mean square of a
    feature in all rows, and τ_j = 1 / (P_jj (P⁻¹)_jj) its tolerance. Up to eight pseudo-rows come
    together, before a row at which the past has faded to a quarter or less since the last ones.
    Below full rank without a ridge the predictions are not `defined` once there were any.
    """

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        self.seen, self.age = _Seen(self.d, self.free), mp.zero
        self.count, self.held = mp.zero, np.ndim(problem.ridge) == 0

    def learn(self, x: list[Any], b: list[Any], weight: Any, gap: Fraction, now: Any) -> None:
        del now
        factor = self.factor(gap)
        self.aged(factor)
        self.age -= mpmath.log(factor, 2)
        if self.rule.floor > 0 and self.age >= 2 * (1 - 1e-9):
            self.visit()
        mean = [mp.zero] * self.d
        if self.free and self.sums.A[0][0] > 0:
            mean = [value / self.sums.A[0][0] for value in self.sums.A[0][1:]]
        self.added(self.row(x), b, weight)
        self.seen.see(x, [value - m for value, m in zip(x, mean, strict=True)], weight)
        self.count += weight

    def visit(self) -> None:
        lost = 1 - mpmath.power(2, -self.age)
        self.age = mp.zero
        solution = self.sums.solution(self.free, [mp.one] * self.d)
        self.carried = max(self.carried, solution.reduced)
        if solution.null:
            self.defined = False
        tolerance = [mp.one] * self.d
        if not solution.null:
            A, sizes = self.sums.A, self.sums.sizes(self.free)
            unit = [1 / mpmath.sqrt(A[j][j]) for j in range(len(A))]  # else graded A seem singular
            scaled = [
                [a * u * v for a, v in zip(row, unit, strict=True)]
                for row, u in zip(A, unit, strict=True)
            ]
            P = mpmath.inverse(mpmath.matrix(scaled))
            inverse = [P[j, j] * unit[j] ** 2 for j in range(self.free, len(A))]
            tolerance = [1 / (one * size) for one, size in zip(inverse, sizes, strict=True)]
        for j, square in enumerate(self.seen.squares):
            wanted = self.rule.floor * tolerance[j] * square / (self.count or mp.one)
            if self.held:
                wanted = max(wanted, 10 * mp.mpf(float(self.ridge[j, j])))
            if wanted > 0:
                a = [mp.zero] * len(self.sums.A)
                a[j + self.free] = mp.one
                self.added(a, solution.theta[j + self.free], wanted * lost)


class _Directional(_Exponential):
    """The recursion of blocks: forget, and learn, only in the directions that a block excites.

    A direction is excited where its weighted mean square is above the threshold. Predictions are
    not `defined` once that was a near decision, or the block began with an ill-conditioned past of
    which only a part was excited. Where some directions are silent, the others are known to
    rounding of the largest column only: the condition numbers count that.
    """

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        self.seen, self.before = _Seen(self.d, self.free), self.sums.copy()
        self.block: list[tuple[list[Any], list[Any], Any]] = []
        self.reference, self.faded = [mp.zero] * self.d, mp.one

    def row(self, x: list[Any]) -> list[Any]:
        centred = [value - r for value, r in zip(x, self.reference, strict=True)]
        return [mp.one, *centred] if self.free else centred

    def learn(self, x: list[Any], b: list[Any], weight: Any, gap: Fraction, now: Any) -> None:
        del now
        if self.free and self.seen.last is None:
            self.reference, self.shift = x, b
        self.faded *= self.factor(gap)
        a = self.row(x)
        b = [value - s for value, s in zip(b, self.shift, strict=True)]
        self.sums.add(a, b, weight)
        self.block.append((a, b, weight))
        self.seen.see(x, a[self.free :], weight)
        if len(self.block) >= self.rule.block:
            self.end()

    def end(self) -> None:
        units = [mp.one] * (self.d + self.free)
        if self.rule.scaled:
            sizes = [mpmath.sqrt(size) if size > 0 else mp.one for size in self.seen.sizes]
            units = [mp.one] * self.free + sizes
        basis, inside = self._excited(units)
        m, c = len(units), self.c
        fade = max(self.faded, mp.mpf("1e-60"))
        w = self.before.solution(self.free, [mp.one] * self.d)
        self.carried = max(self.carried, w.reduced)
        A0 = self.before.A
        A = [row[:] for row in A0]
        if fade < 1 and basis:
            # A0 F (Fᵀ A0 F)⁺ Fᵀ A0 by the pivots of an elimination; B = Fᵀ A0
            F = [[v / u for v, u in zip(vector, units, strict=True)] for vector in basis]
            B = _product(F, A0)
            inner = _product(B, [list(column) for column in zip(*F, strict=True)])
            size = sum(abs(A0[i][j]) / units[i] / units[j] for i in range(m) for j in range(m))
            size *= max(abs(v) for vector in basis for v in vector) ** 2
            rounding = mpmath.ldexp(size, 400 - 2 * mp.prec)  # F is rounded to 2^-prec
            upper, right, independent = _eliminated(inner, B, rounding)
            if not math.isfinite(w.condition) or w.condition > 1e6:
                whole = len(independent) == m - len(w.null)
                self.defined = self.defined and whole
            for k in independent:
                for i in range(m):
                    factor = (1 - fade) * right[k][i] / upper[k][k]
                    for j in range(m):
                        A[i][j] -= factor * right[k][j]
        after = _Sums(m, c)
        after.A = A
        after.G = _product(A, w.theta)
        for a, b, weight in self.block:
            after.add(inside(a), b, weight)
        self.block, self.faded = [], mp.one
        if self.free and after.A[0][0] > 0:
            self._centre(after)
        self.before, self.sums = after, after.copy()

    def _excited(self, units: list[Any]) -> tuple[Matrix, Any]:
        """A basis of the excited directions, in units, and the projection of rows on them."""
        m = len(units)
        gram, mass = _Sums(m, 0), mp.zero
        for a, _, weight in self.block:
            gram.add([value / u for value, u in zip(a, units, strict=True)], [], weight)
            mass += weight
        trace = sum(gram.A[i][i] for i in range(m))
        least = max(mp.mpf(self.rule.threshold) * mass, mp.mpf(1e-26) * trace)
        independent = _eliminated(gram.A, gram.G)[2]
        near = [_above(gram.A, least * mp.mpf(f)) for f in (0.999999, 1.0, 1.000001)]
        tiny = _above(gram.A, trace * mp.mpf(1e-20))
        if len(set(near)) > 1 or (near[1] > tiny and tiny < len(independent)):
            self.defined = False
        if near[1] == m:
            return [[mp.mpf(i == j) for j in range(m)] for i in range(m)], lambda a: a
        if near[1] == len(independent):
            return [gram.A[k] for k in independent], lambda a: a
        values, vectors = mpmath.eigsy(mpmath.matrix(gram.A))
        rounding = mpmath.ldexp(mp.one, 50 - mp.prec)
        basis = [
            [v if abs(v := vectors[i, k]) > rounding else mp.zero for i in range(m)]
            for k in range(m)
            if values[k] > least
        ]
        lengths = [float(mpmath.sqrt(gram.A[i][i] / trace)) for i in range(m) if gram.A[i][i] > 0]
        self.carried = max(self.carried, max(lengths) / max(min(lengths), 1e-300))

        def inside(a: list[Any]) -> list[Any]:
            scaled = [value / u for value, u in zip(a, units, strict=True)]
            parts = [_dot(vector, scaled) for vector in basis]
            return [
                sum((t * v[i] for t, v in zip(parts, basis, strict=True)), mp.zero) * units[i]
                for i in range(m)
            ]

        return basis, inside

    def _centre(self, sums: _Sums) -> None:
        """Go over to coordinates relative to the means."""
        A, G, m = sums.A, sums.G, len(sums.A)
        by = [mp.zero, *[value / A[0][0] for value in A[0][1:]]]
        dy = [value / A[0][0] for value in G[0]]
        G[:] = [[g - A[i][0] * s for g, s in zip(G[i], dy, strict=True)] for i in range(m)]
        G[:] = [
            [g - by[i] * g0 for g, g0 in zip(G[i], G[0], strict=True)] if i else G[0]
            for i in range(m)
        ]
        a0, rounding = A[0][0], mpmath.ldexp(mp.one, 200 - mp.prec)
        before = [A[i][i] for i in range(m)]
        A[:] = [[A[i][j] - by[i] * by[j] * a0 for j in range(m)] for i in range(m)]
        for i in range(1, m):
            A[0][i] = A[i][0] = mp.zero
            if A[i][i] <= rounding * before[i]:  # nothing of it was left
                G[i] = [mp.zero] * len(G[i])
                for j in range(m):
                    A[i][j] = A[j][i] = mp.zero
        self.reference = [r + b for r, b in zip(self.reference, by[1:], strict=True)]
        self.shift = [s + b for s, b in zip(self.shift, dy, strict=True)]

    def batch(self, x: list[Any], exponents: list[int]) -> list[list[float]]:
        """QR of the triangle before the block, rounded to float64, and the block's rows."""
        upper, right, independent = _eliminated(self.before.A, self.before.G)
        A, b = [], []
        for k in independent:
            root = mpmath.sqrt(upper[k][k])
            A.append([mp.zero] * k + [value / root for value in upper[k][k:]])
            b.append([value / root for value in right[k]])
        for a, target, weight in self.block:
            root = mpmath.sqrt(weight)
            A.append([root * value for value in a])
            b.append([root * value for value in target])
        found = _qr(A, b, self.row(x), [0] * self.free + exponents)
        return [[v + float(s) for v, s in zip(row, self.shift, strict=True)] for row in found]


def _above(gram: Matrix, least: Any) -> int:
    """How many eigenvalues are larger, by Sylvester's law of inertia."""
    S, m, count = [row[:] for row in gram], len(gram), 0
    for i in range(m):
        S[i][i] -= least
    for k in range(m):
        if S[k][k] == 0:
            continue
        count += S[k][k] > 0
        for i in range(k + 1, m):
            factor = S[k][i] / S[k][k]
            for j in range(i, m):
                S[i][j] -= factor * S[k][j]
    return count


def _qr(A: Matrix, b: Matrix, x: list[Any], exponents: list[int]) -> list[list[float]]:
    """xᵀ θ of least squares in float64, in units of the columns that are powers of two."""
    M = np.array([[float(mpmath.ldexp(v, -e)) for v, e in zip(row, exponents, strict=True)]
                  for row in A])  # fmt: skip
    top = max((abs(v) for row in b for v in row), default=mp.zero)
    e = round(float(mpmath.log(top, 2))) if top > 0 else 0
    z = np.array([[float(mpmath.ldexp(v, -e)) for v in row] for row in b])
    row = np.array([float(mpmath.ldexp(v, -s)) for v, s in zip(x, exponents, strict=True)])
    found = []
    for order in (1, -1):
        Q, R = np.linalg.qr(M[::order])
        if len(R) < len(row) or not np.abs(np.diagonal(R)).min(initial=1.0) > 0.0:
            found.append([math.nan] * z.shape[1])
            continue
        with np.errstate(all="ignore"):
            theta = scipy.linalg.solve_triangular(R, Q.T @ z[::order], check_finite=False)
            found.append([float(v) for v in np.ldexp(row @ theta, e)])
    return found


def _exact(values: Any) -> list[Any]:
    return [mp.mpf(float(value)) for value in values]


def _matrix(values: Any) -> Matrix:
    return [_exact(row) for row in values]


def _dot(u: Any, v: Any) -> Any:
    return sum((a * b for a, b in zip(u, v, strict=True)), mp.zero)


def _negligible(u: list[Any], v: list[Any]) -> bool:
    """Whether u is orthogonal to v, but for the rounding of the working precision."""
    terms = [a * b for a, b in zip(u, v, strict=True)]
    least = mpmath.ldexp(max((abs(t) for t in terms), default=mp.zero), 300 - mp.prec)
    return bool(abs(sum(terms, mp.zero)) <= least)


def _product(A: Matrix, B: Matrix) -> Matrix:
    columns = list(zip(*B, strict=True))
    return [[_dot(row, column) for column in columns] for row in A]
