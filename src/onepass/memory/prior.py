"""Prior: what a coefficient is taken to be before its feature has said anything.

A ridge is in the units of the features: one that calms a 0/1 column is far too much for a feature
of size 1e-3. In a stream nobody knows these units beforehand. So the first row in which a feature
differs from its mean sets them: just before that row k is learned, the pseudo-row

    √level · |x_kj − x̄_j| e_j,   answered by e_jᵀ w₀                                        (1)

is taken in, which says that w_j is near where it began, to ``level`` rows' worth. Wide tables, of
categories above all, are calm from the first rows; after many rows it is forgotten. It does not
depend on the units of the features, nor on how the stream is cut into blocks.
Cost: O(p²) once for each feature, O(p) memory.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from onepass.types import Array, Floats

__all__ = ["Prior", "Pseudo"]


class Pseudo(NamedTuple):
    """Pseudo-rows to be taken in among the rows of a block."""

    prior: "Prior"
    """The prior after the block."""
    before: Array
    """The row of the block that each one comes before, (k,), in order."""
    rows: Floats
    """(k, p)."""


@dataclass(frozen=True, eq=False, slots=True)
class Prior:
    """Which features have been met, and how much is known before.

    Parameters
    ----------
    level : float
        Rows' worth of each coefficient's prior; 0 for none but the ridge.
    met : ndarray of bool of shape (p,)
        Features that have differed from their mean.
    """

    level: float
    met: Array

    @classmethod
    def start(cls, level: float, p: int) -> "Prior":
        """No feature met."""
        return cls(level, np.zeros(p, dtype=bool))

    def among(self, X: Floats) -> Pseudo | None:
        """The pseudo-rows (1) that belong among centred rows X (n, p), or None."""
        if not self.level or self.met.all():
            return None
        unmet = np.flatnonzero(~self.met)
        there = X[:, unmet] != 0.0
        new = there.any(axis=0)
        if not new.any():
            return None
        columns, first = unmet[new], there[:, new].argmax(axis=0)
        order = np.argsort(first, kind="stable")
        columns, first = columns[order], first[order]
        rows = np.zeros((len(columns), X.shape[1]))
        rows[np.arange(len(columns)), columns] = np.sqrt(self.level) * np.abs(X[first, columns])
        met = self.met.copy()
        met[columns] = True
        return Pseudo(replace(self, met=met), first, rows)

    def grown(self, p: int) -> "Prior":
        """The same with new features at the end, not met yet."""
        return replace(self, met=np.append(self.met, np.zeros(p - len(self.met), dtype=bool)))
