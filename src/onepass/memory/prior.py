"""Prior: what a coefficient is taken to be before its feature has said anything.

A ridge is in the units of the features: one that calms a 0/1 column is far too much for a feature
of size 1e-3. In a stream nobody knows these units beforehand. So the first row in which a feature
differs from its mean sets them: just before that row k is learned, the pseudo-row

    √level · |x_kj − x̄_j| e_j,   answered by e_jᵀ w₀                                        (1)

is taken in, which says that w_j is near where it began, to ``level`` rows' worth. Wide tables, of
categories above all, are calm from the first rows; after many rows it is forgotten. It does not
depend on the units of the features, nor on how the stream is cut into blocks.

Merging takes out what the other learner believed beforehand, lest it count twice. So it is noted
here how much of it is left: of the ridge, of each pseudo-row, and of all that was there before the
first row, as forgetting makes them fade.
Cost: O(p²) once for each feature, O(p) memory.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from onepass.errors import Array, Floats

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
    held : ndarray of shape (p,)
        Lengths of the pseudo-rows (1), faded until now.
    share : ndarray of shape (p,)
        What is left of the ridge of each coefficient, in [0, 1].
    first : ndarray of shape (p,)
        The very first row, where it only set the means; zeros else.
    remains : float
        What is left of the weight of whatever was before the first row, in [0, 1].
    """

    level: float
    met: Array
    held: Floats
    share: Floats
    first: Floats
    remains: float

    @classmethod
    def start(cls, level: float, p: int) -> "Prior":
        """No feature met."""
        return cls(level, np.zeros(p, dtype=bool), np.zeros(p), np.ones(p), np.zeros(p), 1.0)

    def begun(self, x: Floats) -> "Prior":
        """The same after the very first row x (p,), which only set the means."""
        return replace(self, first=x.astype(np.float64)) if self.level else self

    def faded(self, factor: float) -> "Prior":
        """The same with all that was there before weighing ``factor`` as much."""
        if factor == 1.0:
            return self
        held, share = self.held * np.sqrt(factor), self.share * factor
        return replace(self, held=held, share=share, remains=self.remains * factor)

    def holding(self, rows: Floats) -> "Prior":
        """The same with pseudo-rows (k, p) noted, weighted as they were taken in."""
        return replace(self, held=self.held + np.abs(rows).sum(axis=0))  # one a feature

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
        none = np.zeros(p - len(self.met))
        return replace(
            self,
            met=np.append(self.met, none.astype(bool)),
            held=np.append(self.held, none),
            share=np.append(self.share, none + 1.0),
            first=np.append(self.first, none),
        )
