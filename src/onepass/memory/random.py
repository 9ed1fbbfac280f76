"""Random: m directions kept at random. The baseline ORFit-random.

As :class:`~onepass.memory.Basis`, but when a step leaves more than m columns in Q, some leave by
lot, each as likely as the other ([1] section 5.1). For comparison; the principal directions
(:class:`~onepass.memory.Principal`) forget far less at the same cost.
Cost: O(mp) time a row, O(mp) memory.

[1] Y. Min, K. Ahn, N. Azizan, "One-Pass Learning via Bridging Orthogonal Gradient Descent and
    Recursive Least-Squares", extended version.
"""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from onepass import validation
from onepass.linalg.subspace import Columns
from onepass.memory.basis import Directions, refuse_noise
from onepass.memory.selected import Selected

__all__ = ["Drawn", "Random"]


@dataclass(frozen=True)
class Random:
    """Directions kept at random, m of them.

    Parameters
    ----------
    m : int, default=100
        Directions kept at most, >= 1.
    seed : int, default=0
        What the lots are drawn from: the same seed, the same memory.

    Raises
    ------
    ParameterError
        If m is no whole number >= 1, or seed none >= 0.
    """

    merging: ClassVar[str] = "approximate"

    m: int = 100
    seed: int = 0

    def __post_init__(self) -> None:
        validation.whole(self.m, "m", "memory.Random", low=1)
        validation.whole(self.seed, "seed", "memory.Random", low=0)

    def start(self, p: int, c: int, noise: float = 0.0, kind: Any = np.float64) -> "Drawn":
        """The memory of no rows, for p weights an output; without noise.

        ``kind`` is a NumPy precision, or a tensor of the precision and on the device wanted.
        """
        del c
        refuse_noise(noise, "memory.Random")
        directions = Directions(Columns.start(p, kind, int(self.m) + 1))
        return Drawn(directions, int(self.m), int(self.seed), 0)


@dataclass(frozen=True, eq=False, slots=True)
class Drawn(Selected):
    """The state of :class:`Random`.

    Parameters
    ----------
    directions, m
        As of :class:`~onepass.memory.selected.Selected`.
    seed : int
    draws : int
        How often lots have been drawn: with the seed it determines the next.
    """

    seed: int
    draws: int

    def _left(self, wider: Directions) -> "Drawn":
        if wider.rank <= self.m:
            return replace(self, directions=wider)
        lots = np.random.default_rng((self.seed, self.draws)).permutation(wider.rank)
        leaving = sorted(lots[self.m :].tolist())
        kept = replace(wider, columns=wider.columns.without(leaving))
        return replace(self, directions=kept, draws=self.draws + 1)
