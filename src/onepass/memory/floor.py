"""Floor: a lower bound on the information, which prevents covariance windup under forgetting.

Under exponential forgetting a direction that is not excited loses its information as λᵏ, and the
first row that excites it again changes the weights without bound. Here the information stays near
or above a floor: as the past fades, pseudo-rows are added,

    √(δ_j (1 − φ)) e_j,   with the target of the current weights: e_jᵀ w                    (1)

where φ is the factor by which the past has faded since the last visit of weight j, so that P⁻¹
stays near or above diag(δ) and w does not change. While the rows do not determine all weights, the
projection of e_j on their span is added. δ_j is the information of ``level`` rows about weight j if
all other weights are unknown: the product of ``level``, the mean square of its gradient over the
rows in which its feature was excited, and the tolerance, its share that the others do not explain,

    τ_j = 1 / (P_jj (P⁻¹)_jj),   at least 1e-4 if the ridge is not 0                        (2)

so that the floor is as low in a direction in which correlated features hardly differ as the
information there; and at least the ridge. With ridge 0 the first rows may determine weights with
large errors, which a lower bound of τ_j would preserve. τ_j is 1 once a feature is unexcited. A
feature is unexcited in a row if it equals its value in the previous row; without an intercept, if
it is 0. With ridge 0, a row that excites a direction for the first time has its full weight there,
even if the information about all other directions has faded.
Pseudo-rows are added at fixed rows of the stream, so that the result does not depend on blocks.
Cost: O(p²) time per row, O(p³) per visit, O(p) memory.
"""

import math
from dataclasses import dataclass, replace

import numpy as np

from onepass import linalg
from onepass.memory.square_root import Prior, Triangle
from onepass.types import Array, Floats

__all__ = ["PATIENCE", "Floor", "rows_between"]

PATIENCE = 2.0
"""Maximum number of half-lives between two visits, if the past fades by time."""

_PERIOD = 64  # rows between two visits; a multiple if the past fades by less than 3/4 in them
_MAX_PERIODS = 4
_LEAST_FADE = 1e-3  # lower bound of λⁿ between two visits
_TOLERANCE = 1e-4  # lower bound of the tolerance
_AT_ONCE = 256  # weights per visit


@dataclass(frozen=True, eq=False, slots=True)
class Floor:
    """Statistics of the past rows that determine the floor.

    Parameters
    ----------
    least : ndarray of shape (p,)
        The diagonal of the ridge, without fading.
    squares : ndarray of shape (p,)
        Sum of the squared gradients of all rows, by weight, without fading.
    active : ndarray of shape (p,)
        Sum of the weights of the rows in which each feature was excited, without fading.
    last : ndarray of shape (p,)
        The features of the previous row.
    ages : ndarray of shape (k,)
        Half-lives since the last visit, of each share of the weights.
    rows : int
        The number of rows so far.
    """

    least: Floats
    squares: Floats
    active: Floats
    last: Floats
    ages: Floats
    rows: int

    @classmethod
    def start(cls, least: Floats) -> "Floor":
        """The state before the first row."""
        none = np.zeros(len(least))
        return cls(least, none, none, none, np.zeros(_shares(len(least))), 0)

    @property
    def sizes(self) -> Floats:
        """Mean square of each gradient over the rows in which its feature was excited, (p,)."""
        mean = self.squares / np.maximum(self.active, 1e-300)
        return np.asarray(np.where(self.active > 0.0, mean, 0.0))

    def rows_until_visit(self, period: int) -> int:
        """The number of rows before the next visit."""
        return period - self.rows % period

    def updated(self, X: Floats, raw: Floats, weights: Floats | None, *, free: bool) -> "Floor":
        """The state after rows.

        Parameters
        ----------
        X : ndarray of shape (n, p)
            The gradients of the rows: the rows, centred if there is an intercept.
        raw : ndarray of shape (n, p)
            The original rows.
        weights : ndarray of shape (n,), or None for ones
        free : bool
            Whether there is an intercept.
        """
        n = len(X)
        active: Array = raw != 0.0
        if free:
            active[1:] = raw[1:] != raw[:-1]
            active[0] = (raw[0] != self.last) & (self.rows > 0)
        s = np.ones(n) if weights is None else weights
        return replace(
            self,
            squares=self.squares + s @ (X * X),
            active=self.active + s @ active,
            last=raw[-1].astype(np.float64),
            rows=self.rows + n,
        )

    def aged(self, half_lives: Floats) -> "Floor":
        """The state after n rows, given the time before each row in half-lives, (n,)."""
        passed = np.broadcast_to(half_lives[:, None], (len(half_lives), len(self.ages)))
        return replace(self, ages=np.cumsum(np.vstack((self.ages, passed)), axis=0)[-1])

    def applied_to(
        self, memory: Triangle, level: float, period: int | None
    ) -> tuple["Floor", Triangle]:
        """Raise the information in a memory to the floor: (1).

        Parameters
        ----------
        memory : Triangle
        level : float
            The floor of each weight: the information of this number of rows.
        period : int or None
            Rows between two visits, each of one share of the weights; None visits all weights.
        """
        p, shares = len(self.squares), len(self.ages)
        turns = range(shares) if period is None else [(self.rows // period - 1) % shares]
        ages = self.ages.copy()
        tolerance = np.maximum(_tolerance(memory), np.where(self.least > 0.0, _TOLERANCE, 0.0))
        for turn in turns:
            due = np.arange(turn * _AT_ONCE, min((turn + 1) * _AT_ONCE, p))
            wanted = np.maximum(level * (self.sizes * tolerance)[due], self.least[due])
            rows = np.zeros((len(due), p))
            rows[np.arange(len(due)), due] = np.sqrt(
                wanted * -np.expm1(-math.log(2.0) * ages[turn])
            )
            memory, ages[turn] = _with_pseudo_rows(memory, rows), 0.0
        return replace(self, ages=ages), memory

    def share_of_new(self, prior: Prior) -> float:
        """The remaining share of the ridge of a new weight, whose feature was zero in all rows."""
        return 2.0 ** -float(self.ages[-1]) if self.rows else prior.remains

    def grown(self, p: int, least: float) -> "Floor":
        """Add weights at the end, whose features were zero in all rows so far."""
        none = np.zeros(p - len(self.squares))
        more = _shares(p) - len(self.ages)
        return replace(
            self,
            least=np.append(self.least, none + least),
            squares=np.append(self.squares, none),
            active=np.append(self.active, none),
            last=np.append(self.last, none),
            ages=np.append(self.ages, np.zeros(more)),
        )

    def joined(self, other: "Floor", features: Array) -> "Floor":
        """The statistics of two sets of rows; those of ``other`` are last, at these features."""
        sums = {name: getattr(self, name).copy() for name in ("squares", "active", "last")}
        for name, total in sums.items():
            total[features] = getattr(other, name) + (total[features] if name != "last" else 0.0)
        ages = np.full_like(self.ages, other.ages.max(initial=0.0))
        return replace(self, **sums, ages=ages, rows=other.rows)

    def with_outputs(self, at: Array, c: int) -> "Floor":
        """The state itself, which does not depend on the outputs."""
        del at, c
        return self

    @property
    def finite(self) -> bool:
        """Whether all numbers are finite."""
        return linalg.finite(self.squares)


def _with_pseudo_rows(memory: Triangle, rows: Floats) -> Triangle:
    """The memory with pseudo-rows added, whose targets its weights fit exactly."""
    span = memory.span
    if span is not None:
        free = int(span.free)
        span, rows = span.absorb_fitted(np.hstack((np.zeros((len(rows), free)), rows)))
        rows = rows[:, free:]
    R, z, _ = linalg.qr_update(memory.R, memory.z, rows, rows @ memory.w)
    return replace(memory, R=R, z=z, span=span)


def _tolerance(memory: Triangle) -> Floats:
    """The tolerance of each weight (2), (p,), without its lower bound."""
    R, span = memory.R, memory.span
    if span is not None:
        if span.phi == 0.0:  # within the span
            R, P = span.roots()
            with np.errstate(divide="ignore"):  # features that were 0 in all rows
                return np.asarray(np.minimum((linalg.norms(R) * linalg.norms(P)) ** -2.0, 1.0))
        if not span.determined:
            return np.ones(len(R))
        R = span.triangle()[0][int(span.free) :, int(span.free) :]
    inverse = linalg.solve_upper(R / linalg.norms(R), np.eye(len(R)))
    return np.asarray(linalg.norms(inverse.T) ** -2.0)


def _shares(p: int) -> int:
    """The number of visits after which all weights have been visited."""
    return -(-p // _AT_ONCE)


def rows_between(forgetting: float, maximum: int | None = None) -> int:
    """Rows between two visits of a weight, or with another maximum, two renormalisations."""
    if forgetting == 1.0:
        return maximum or _PERIOD
    if maximum is None:
        periods = int(math.log(0.25) / math.log(forgetting)) // _PERIOD
        maximum = _PERIOD * min(max(periods, 1), _MAX_PERIODS)
    return max(1, min(maximum, int(math.log(_LEAST_FADE) / math.log(forgetting))))
