"""Floor: forgetting that cannot wind up.

Under exponential forgetting a direction that is not excited loses its information as λᵏ, and the
first row that excites it again moves the weights without bound. Here the information never falls
below a floor: as the past fades, pseudo-rows are taken in,

    √(δ_j (1 − λᵀ)) e_j,   answered by the present weights: e_jᵀ w                          (1)

once in T rows for each weight j, so that P⁻¹ stays near or above diag(δ) and w does not move by
them. While the rows do not determine all weights, what lies in their span of e_j is taken in. δ_j
is ``level`` rows' worth of weight j: ``level`` times the mean square of its gradient over all rows
so far, and never less than the ridge. Pseudo-rows come at fixed rows of the stream, so that it
does not matter how it is cut into blocks. Cost: O(p²) time a row, O(p) memory.
"""

import math
from dataclasses import dataclass, replace

import numpy as np

from onepass import linalg
from onepass.memory.square_root import Triangle
from onepass.types import Floats

__all__ = ["Floor", "rows_between"]

_PERIOD = 64  # rows between two visits
_LEAST_FADE = 1e-3  # λⁿ between two visits stays above this
_AT_ONCE = 256  # weights whose turn it is in one visit


@dataclass(frozen=True, eq=False, slots=True)
class Floor:
    """What a floor under the information needs to know of the past.

    Parameters
    ----------
    level : float
        Rows' worth of information that no weight falls below; 0 lets all of it fade.
    least : ndarray of shape (p,)
        The diagonal of the ridge, which does not fade either.
    squares : ndarray of shape (p,)
        Sum of the squared gradients of all rows, by weight and not faded.
    mass : float
        Sum of the rows' weights, not faded.
    rows : int
        Rows so far.
    """

    level: float
    least: Floats
    squares: Floats
    mass: float
    rows: int

    @classmethod
    def start(cls, level: float, least: Floats) -> "Floor":
        """No rows so far."""
        return cls(level, least, np.zeros(len(least)), 0.0, 0)

    def room(self, forgetting: float) -> int:
        """How many rows may be learned before the next visit."""
        period = rows_between(forgetting)
        return period - self.rows % period

    def seen(self, X: Floats, weights: Floats | None) -> "Floor":
        """The same after rows X (n, p) of these weights."""
        n = X.shape[0]
        s = np.ones(n) if weights is None else weights
        squares = self.squares + s @ (X * X)
        return replace(self, squares=squares, mass=self.mass + float(s.sum()), rows=self.rows + n)

    def under(self, memory: Triangle, forgetting: float) -> Triangle:
        """The memory with the floor put under it, at the rows where that is due: (1)."""
        period = rows_between(forgetting)
        if not self.level or forgetting == 1.0 or self.rows % period:
            return memory
        p = len(self.squares)
        share = max(_AT_ONCE, period)
        rounds = -(-p // share)  # visits until all weights have had their turn
        turn = (self.rows // period - 1) % rounds
        due = np.arange(turn * share, min((turn + 1) * share, p))
        wanted = np.maximum(self.level * self.squares[due] / self.mass, self.least[due])
        faded = 1.0 - forgetting ** (period * rounds)
        rows = np.zeros((len(due), p))
        rows[np.arange(len(due)), due] = np.sqrt(wanted * faded)
        if memory.span is not None:  # nothing is known, or to be held, outside the span
            rows = rows @ memory.span.Q @ memory.span.Q.T
            return memory.absorb(rows, rows @ memory.w, np.ones(len(rows)))[0]
        R, z, _ = linalg.take_in(memory.R, memory.z, rows, rows @ memory.w)
        return replace(memory, R=R, z=z)

    def grown(self, p: int, least: float) -> "Floor":
        """The same with new weights at the end, zero in every row so far."""
        extra = p - len(self.squares)
        return replace(
            self,
            least=np.append(self.least, np.full(extra, least)),
            squares=np.append(self.squares, np.zeros(extra)),
        )


def rows_between(forgetting: float) -> int:
    """Rows between two visits, and at most between two renormalisations."""
    if forgetting == 1.0:
        return _PERIOD
    return max(1, min(_PERIOD, int(math.log(_LEAST_FADE) / math.log(forgetting))))
