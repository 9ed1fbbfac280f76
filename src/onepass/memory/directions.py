"""Memories of at most m directions: the latest, some chosen at random, or none.

For comparison: the principal directions (:class:`~onepass.memory.Principal`) forget far less at the
same cost. All are as :class:`~onepass.memory.Basis`, but after each step at most m columns of Q are
retained ([1] section 5.1):

========= ==========================================================================================
`LastDirections`  the last m directions used (ORFit-latest)
`Random`  m directions, each retained with the same probability (ORFit-random)
`NoMemory` none (One-Step SGD), where
========= ==========================================================================================

    P = I,   w ← w + G (GᵀG + diag(R))⁻¹ e                                                  (1)

With R = 0 each row is fitted exactly; with R > 0, (1) is the normalised LMS filter, regularised
by R.

Cost: O(mp) time a row, O(mp) memory.

[1] Y. Min, K. Ahn, N. Azizan, "One-Pass Learning via Bridging Orthogonal Gradient Descent and
    Recursive Least-Squares", extended version.
"""

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from onepass import linalg, validation
from onepass.linalg.subspace import OrthonormalBasis, Split
from onepass.linalg.update import Fitted, Step, fit
from onepass.memory.basis import Directions, refuse_noise
from onepass.memory.evidence import Evidence
from onepass.types import Array, ArrayOrTensor, Floats, Kind

__all__ = [
    "LastDirections",
    "LastDirectionsState",
    "LimitedDirections",
    "NoMemory",
    "NoMemoryState",
    "Random",
    "RandomDirections",
]


@dataclass(frozen=True, eq=False, slots=True)
class LimitedDirections:
    """The state of a memory of at most m of the directions used, without noise.

    Parameters
    ----------
    directions : Directions
        At most m.
    m : int
    """

    exact_in_blocks: ClassVar[bool] = False
    lost: ClassVar[None] = None

    directions: Directions
    m: int

    @abstractmethod
    def _left(self, wider: Directions) -> Self:
        """The memory of at most m of these directions."""

    @property
    def rank(self) -> int:
        """The directions kept."""
        return self.directions.rank

    def learn(
        self, w: ArrayOrTensor, G: ArrayOrTensor, e: ArrayOrTensor, noise: Floats, *, group: int = 1
    ) -> Step:
        """The one equation with R = 0; parameters as of :class:`~onepass.memory.basis.Directions`.

        A block is learned as one augmented row, before any direction leaves. A device is waited
        for once, to know how many directions are new.
        """
        free = self.split(G)
        fitted = fit(w, G, free.lifted, e, noise, group=group, basis=self.basis)
        fitted = fitted._replace(kept=linalg.host(fitted.kept))
        memory = self.after(G, free, noise, fitted)
        rank = int(fitted.kept.sum())
        # the rows of a block are learned as one: each is said by the weights before the block
        return Step(fitted.w, memory, e, rank, fitted.inconsistent_rows)

    def forgetting_bound(self, new: ArrayOrTensor, old: ArrayOrTensor) -> float:
        """Nothing is known of it."""
        del new, old
        return 0.0

    @property
    def basis(self) -> Any:
        """The directions as rows, for their precision."""
        return self.directions.columns.rows

    def split(self, G: ArrayOrTensor) -> Split:
        """P G, as of :class:`~onepass.memory.basis.Directions`."""
        return self.directions.split(G)

    def after(
        self, G: ArrayOrTensor, free: Split, noise: Floats, fitted: Fitted | None = None
    ) -> Self:
        """The memory after the rows of G have come; a device is waited for, to know how many."""
        return self._left(self.directions.after(G, free, noise, fitted, waited=True))

    def settled(self) -> tuple[Self, OrthonormalBasis]:
        """The same memory, and the directions that are not free to move as its columns."""
        return self, self.directions.columns

    def evidence(self, w: ArrayOrTensor, start: ArrayOrTensor | None = None) -> Evidence:
        """The directions kept, and what w says of them."""
        return self.directions.evidence(w, start)

    def merged(self, w: ArrayOrTensor, evidence: Evidence) -> Step:
        """The step of learning another memory's evidence, then of letting directions go."""
        return evidence.learned_by(self, w)

    def grown(self, p: int) -> Self:
        """The same with new weights at the end, zero in every row so far."""
        return replace(self, directions=self.directions.grown(p))

    def with_outputs(self, at: Array, c: int) -> Self:
        """The same: outputs that share their features share the directions."""
        del at, c
        return self


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

    def start(self, p: int, c: int, noise: float = 0.0, kind: Kind = np.float64) -> "Drawn":
        """The memory of no rows, for p weights an output; without noise.

        ``kind`` is a NumPy precision, or a tensor of the precision and on the device wanted.
        """
        del c
        refuse_noise(noise, "memory.Random")
        directions = Directions(OrthonormalBasis.start(p, kind, int(self.m) + 1))
        return RandomDirections(directions, int(self.m), int(self.seed), 0)


@dataclass(frozen=True, eq=False, slots=True)
class RandomDirections(LimitedDirections):
    """The state of :class:`Random`.

    Parameters
    ----------
    directions, m
        As of :class:`~onepass.memory.directions.LimitedDirections`.
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


@dataclass(frozen=True)
class LastDirections:
    """The last m directions used.

    Parameters
    ----------
    m : int, default=100
        Directions kept at most, >= 1.

    Raises
    ------
    ParameterError
        If m is no whole number >= 1.
    """

    merging: ClassVar[str] = "approximate"

    m: int = 100

    def __post_init__(self) -> None:
        validation.whole(self.m, "m", "memory.LastDirections", low=1)

    def start(self, p: int, c: int, noise: float = 0.0, kind: Kind = np.float64) -> "Recent":
        """The memory of no rows, for p weights an output; without noise.

        ``kind`` is a NumPy precision, or a tensor of the precision and on the device wanted.
        """
        del c
        refuse_noise(noise, "memory.LastDirections")
        return LastDirectionsState(
            Directions(OrthonormalBasis.start(p, kind, 2 * int(self.m))), int(self.m)
        )


@dataclass(frozen=True, eq=False, slots=True)
class LastDirectionsState(LimitedDirections):
    """The state of :class:`LastDirections`: its directions, the latest last."""

    def _left(self, wider: Directions) -> "Recent":
        return replace(self, directions=replace(wider, columns=wider.columns.latest(self.m)))


@dataclass(frozen=True)
class NoMemory:
    """No memory: One-Step SGD, and with noise normalised LMS."""

    merging: ClassVar[str] = "refused"

    def start(self, p: int, c: int, noise: float = 0.0, kind: Kind = np.float64) -> "Empty":
        """The memory of no rows."""
        del p, c, noise, kind
        return NoMemoryState()


@dataclass(frozen=True, eq=False, slots=True)
class NoMemoryState:
    """The state of :class:`NoMemory`: there is none."""

    exact_in_blocks: ClassVar[bool] = False
    lost: ClassVar[None] = None

    @property
    def rank(self) -> int:
        """No direction is used up."""
        return 0

    def learn(
        self, w: ArrayOrTensor, G: ArrayOrTensor, e: ArrayOrTensor, noise: Floats, *, group: int = 1
    ) -> Step:
        """The one equation with P = I: (1), for one row, or for a block as one augmented row.

        Parameters
        ----------
        w : array of shape (p, c) or (p,)
        G : array of shape (p, n)
        e : array of shape (n, c) or (n,)
        noise : ndarray of shape (n,)
            All zero, or all positive.
        group : int
            Neighbouring columns of G that belong to one row.
        """
        fitted = fit(w, G, G, e, noise, group=group)
        return Step(fitted.w, self, e, 0, fitted.inconsistent_rows)

    def forgetting_bound(self, new: ArrayOrTensor, old: ArrayOrTensor) -> float:
        """Nothing is known of it."""
        del new, old
        return 0.0

    @property
    def basis(self) -> Any:
        """There is none."""
        return None

    def split(self, G: ArrayOrTensor) -> Split:
        """P G = G."""
        return Split(G, G, G)

    def after(
        self, G: ArrayOrTensor, free: Split, noise: Floats, fitted: Fitted | None = None
    ) -> "Empty":
        """The same: nothing is kept."""
        del G, free, noise, fitted
        return self

    def settled(self) -> tuple["Empty", None]:
        """The same memory; no direction is held."""
        return self, None

    def grown(self, p: int) -> "Empty":
        """The same."""
        del p
        return self

    def with_outputs(self, at: Array, c: int) -> "Empty":
        """The same."""
        del at, c
        return self
