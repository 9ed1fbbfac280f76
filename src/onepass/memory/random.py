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

from onepass import linalg, validate
from onepass.columns import Columns, Split
from onepass.memory.basis import Directions, refuse_noise
from onepass.memory.evidence import Evidence
from onepass.types import Array, Floats
from onepass.update import Fitted, Step, fit

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
        validate.whole(self.m, "m", "memory.Random", low=1)
        validate.whole(self.seed, "seed", "memory.Random", low=0)

    def start(self, p: int, c: int, noise: float = 0.0, kind: Any = np.float64) -> "Drawn":
        """The memory of no rows, for p weights an output; without noise.

        ``kind`` is a NumPy precision, or a tensor of the precision and on the device wanted.
        """
        del c
        refuse_noise(noise, "memory.Random")
        directions = Directions(Columns.start(p, kind, int(self.m) + 1))
        return Drawn(directions, int(self.m), int(self.seed), 0)


@dataclass(frozen=True, eq=False, slots=True)
class Drawn:
    """The state of :class:`Random`.

    Parameters
    ----------
    directions : Directions
        At most m.
    m, seed : int
    draws : int
        How often lots have been drawn: with the seed it determines the next.
    """

    exact_in_blocks: ClassVar[bool] = False
    lost: ClassVar[None] = None

    directions: Directions
    m: int
    seed: int
    draws: int

    @property
    def rank(self) -> int:
        """The directions kept."""
        return self.directions.rank

    def learn(self, w: Any, G: Any, e: Any, noise: Floats, *, group: int = 1) -> Step:
        """The one equation with R = 0; parameters as of :class:`~onepass.memory.basis.Directions`.

        A block is learned as one augmented row, before any direction leaves.
        """
        free = self.split(G)
        fitted = fit(w, G, free.lifted, e, noise, group=group, basis=self.basis)
        memory = self.after(G, free, noise, fitted)
        rank = int(linalg.host(fitted.kept).sum())
        # the rows of a block are learned as one: each is said by the weights before the block
        return Step(fitted.w, memory, e, rank, fitted.contradictions)

    def forgets(self, new: Any, old: Any) -> float:
        """Nothing is known of it."""
        del new, old
        return 0.0

    @property
    def basis(self) -> Any:
        """The directions as rows, for their precision."""
        return self.directions.columns.rows

    def split(self, G: Any) -> Split:
        """P G, as of :class:`~onepass.memory.basis.Directions`."""
        return self.directions.split(G)

    def after(self, G: Any, free: Split, noise: Floats, fitted: Fitted | None = None) -> "Drawn":
        """The memory after the rows of G have come; a device is waited for, to know how many."""
        kept = self.directions.after(G, free, noise, fitted, waited=True)
        draws = self.draws
        if kept.rank > self.m:
            lots = np.random.default_rng((self.seed, draws)).permutation(kept.rank)
            leaving = sorted(lots[self.m :].tolist())
            kept, draws = replace(kept, columns=kept.columns.without(leaving)), draws + 1
        return replace(self, directions=kept, draws=draws)

    def settled(self) -> tuple["Drawn", Columns]:
        """The same memory, and the directions that are not free to move as its columns."""
        return self, self.directions.columns

    def evidence(self, w: Floats, start: Floats | None = None) -> Evidence:
        """The directions kept, and what w says of them."""
        return self.directions.evidence(w, start)

    def merged(self, w: Floats, evidence: Evidence) -> Step:
        """The step of learning another memory's evidence, then of letting directions go."""
        return evidence.learned_by(self, w)

    def grown(self, p: int) -> "Drawn":
        """The same with new weights at the end, zero in every row so far."""
        return replace(self, directions=self.directions.grown(p))

    def with_outputs(self, at: Array, c: int) -> "Drawn":
        """The same: outputs that share their features share the directions."""
        del at, c
        return self
