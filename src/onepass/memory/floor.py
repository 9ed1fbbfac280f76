"""Floor: forgetting that cannot wind up.

Under exponential forgetting a direction that is not excited loses its information as λᵏ, and the
first row that excites it again moves the weights without bound. Here the information never falls
far below a floor: as the past fades, pseudo-rows are taken in,

    √(δ_j (1 − φ)) e_j,   answered by the present weights: e_jᵀ w                           (1)

where φ is by how much the past has faded since the last visit of weight j, so that P⁻¹ stays near
or above diag(δ) and w does not move by them. While the rows do not determine all weights, what lies
in their span of e_j is taken in. δ_j is ``level`` rows' worth of weight j: ``level`` times the mean
square of its gradient over the rows in which its feature was not silent, and never less than the
ridge. A feature is silent in a row if it is as in the row before; without an intercept, if it is 0.
With ridge 0, a row that excites a direction for the first time has its full weight there, even if
the information about all other directions has faded.
Pseudo-rows come at fixed rows of the stream, so that it does not matter how it is cut into blocks.
Cost: O(p²) time a row, O(p) memory.
"""

import math
from dataclasses import dataclass, replace

import numpy as np

from onepass import linalg
from onepass.memory.square_root import Triangle
from onepass.types import Array, Floats

__all__ = ["PATIENCE", "Floor", "rows_between"]

PATIENCE = 2.0
"""Half-lives between two visits, at most, where the past fades with time and not with rows."""

_PERIOD = 64  # rows between two visits
_LEAST_FADE = 1e-3  # λⁿ between two visits stays above this
_AT_ONCE = 256  # weights whose turn it is in one visit


@dataclass(frozen=True, eq=False, slots=True)
class Floor:
    """What a floor under the information needs to know of the past.

    Parameters
    ----------
    least : ndarray of shape (p,)
        The diagonal of the ridge, which does not fade either.
    squares : ndarray of shape (p,)
        Sum of the squared gradients of all rows, by weight and not faded.
    active : ndarray of shape (p,)
        Sum of the weights of the rows in which each feature was not silent, not faded.
    last : ndarray of shape (p,)
        The features of the row before.
    ages : ndarray of shape (k,)
        Half-lives since the last visit, of each share of the weights.
    rows : int
        Rows since the first visit was counted.
    """

    least: Floats
    squares: Floats
    active: Floats
    last: Floats
    ages: Floats
    rows: int

    @classmethod
    def start(cls, least: Floats) -> "Floor":
        """No rows so far."""
        none = np.zeros(len(least))
        return cls(least, none, none, none, np.zeros(_shares(len(least))), 0)

    @property
    def sizes(self) -> Floats:
        """Mean square of each gradient over the rows in which its feature was not silent, (p,)."""
        mean = self.squares / np.maximum(self.active, 1e-300)
        return np.asarray(np.where(self.active > 0.0, mean, 0.0))

    def room(self, period: int) -> int:
        """How many rows may be learned before the next visit."""
        return period - self.rows % period

    def seen(self, X: Floats, raw: Floats, weights: Floats | None, *, free: bool) -> "Floor":
        """The same after rows.

        Parameters
        ----------
        X : ndarray of shape (n, p)
            Their gradients: the rows, centred if there is an intercept.
        raw : ndarray of shape (n, p)
            The rows as they came.
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
        """The same after so much time: that before each of some rows, (n,), one after the other."""
        passed = np.broadcast_to(half_lives[:, None], (len(half_lives), len(self.ages)))
        return replace(self, ages=np.cumsum(np.vstack((self.ages, passed)), axis=0)[-1])

    def under(self, memory: Triangle, level: float, period: int | None) -> tuple["Floor", Triangle]:
        """The memory with the floor put under it: (1).

        Parameters
        ----------
        memory : Triangle
        level : float
            Rows' worth of information that no weight falls below.
        period : int or None
            Rows between two visits, each of one share of the weights; None: all have their turn.
        """
        p, shares = len(self.squares), len(self.ages)
        turns = range(shares) if period is None else [(self.rows // period - 1) % shares]
        ages = self.ages.copy()
        for turn in turns:
            due = np.arange(turn * _AT_ONCE, min((turn + 1) * _AT_ONCE, p))
            wanted = np.maximum(level * self.sizes[due], self.least[due])
            rows = np.zeros((len(due), p))
            rows[np.arange(len(due)), due] = np.sqrt(
                wanted * -np.expm1(-math.log(2.0) * ages[turn])
            )
            memory, ages[turn] = _held(memory, rows), 0.0
        return replace(self, ages=ages), memory

    def grown(self, p: int, least: float) -> "Floor":
        """The same with new weights at the end, zero in every row so far."""
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

    def with_outputs(self, at: Array, c: int) -> "Floor":
        """The same with new outputs: it knows of none."""
        del at, c
        return self

    @property
    def finite(self) -> bool:
        """Whether all numbers are finite."""
        return linalg.finite(self.squares)


def _held(memory: Triangle, rows: Floats) -> Triangle:
    """The memory with pseudo-rows, answered by its own weights."""
    span = memory.span
    if span is not None:
        free = int(span.free)
        span, rows = span.held(np.hstack((np.zeros((len(rows), free)), rows)))
        rows = rows[:, free:]
    R, z, _ = linalg.qr_update(memory.R, memory.z, rows, rows @ memory.w)
    return replace(memory, R=R, z=z, span=span)


def _shares(p: int) -> int:
    """How many visits it takes until all weights have had their turn."""
    return -(-p // _AT_ONCE)


def rows_between(forgetting: float, most: int = _PERIOD) -> int:
    """Rows between two visits, or with another maximum between two renormalisations."""
    if forgetting == 1.0:
        return most
    return max(1, min(most, int(math.log(_LEAST_FADE) / math.log(forgetting))))
