"""Memories of at most m directions: the last ones, a random sample, or none.

For comparison: the principal directions (:class:`~onepass.memory.Principal`) forget far less at the
same cost. All work as :class:`~onepass.memory.Basis`, but after each step at most m columns of Q
are retained ([1] section 5.1):

================ ===================================================================================
`LastDirections` the last m directions used (ORFit-latest)
`Random`         m directions, each retained with the same probability (ORFit-random)
`NoMemory`       none (One-Step SGD), where
================ ===================================================================================

    P = I,   w ← w + G (GᵀG + diag(R))⁻¹ e                                                  (1)

With R = 0 each row is fitted exactly; with R > 0, (1) is the normalised LMS filter, regularised
by R.

Cost: O(mp) time per row, O(mp) memory.

[1] Y. Min, K. Ahn, N. Azizan, "One-Pass Learning via Bridging Orthogonal Gradient Descent and
    Recursive Least-Squares", extended version.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from onepass import linalg, validation
from onepass.errors import public
from onepass.linalg.projection import Split
from onepass.linalg.subspace import OrthonormalBasis
from onepass.linalg.update import FittedStep, Step, fit
from onepass.memory.basis import Directions, refuse_noise
from onepass.memory.evidence import Evidence
from onepass.types import Array, ArrayOrTensor, Floats, Kind


@dataclass(frozen=True, eq=False, slots=True)
class LimitedDirections:
    """Base class of the states with at most m directions, without noise.

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
    def _limited(self, wider: Directions) -> Self:
        """The state with at most m of these directions."""

    @property
    def rank(self) -> int:
        """The number of retained directions."""
        return self.directions.rank

    def learn(
        self, w: ArrayOrTensor, G: ArrayOrTensor, e: ArrayOrTensor, noise: Floats, *, group: int = 1
    ) -> Step:
        """The update with R = 0; parameters as in :class:`~onepass.memory.basis.Directions`.

        A block is learned as one augmented row, before any direction is dropped. An accelerator is
        synchronized once, to count the new directions.
        """
        free = self.split(G)
        fitted = fit(w, G, free.lifted, e, noise, group=group, basis=self.basis)
        fitted = fitted._replace(retained=linalg.host(fitted.retained))
        memory = self.after(G, free, noise, fitted)
        rank = int(fitted.retained.sum())
        # a block is one augmented row: errors are those before the block
        return Step(fitted.w, memory, e, rank, fitted.inconsistent_rows)

    def forgetting_bound(self, new: ArrayOrTensor, old: ArrayOrTensor) -> float:
        """Return 0.0: no bound is known."""
        del new, old
        return 0.0

    @property
    def basis(self) -> Any:
        """The directions as rows, which determine the precision."""
        return self.directions.columns.rows

    def split(self, G: ArrayOrTensor) -> Split:
        """P G, as in :class:`~onepass.memory.basis.Directions`."""
        return self.directions.split(G)

    def after(
        self, G: ArrayOrTensor, free: Split, noise: Floats, fitted: FittedStep | None = None
    ) -> Self:
        """The state after the gradients G; synchronizes an accelerator to count new directions."""
        return self._limited(self.directions.after(G, free, noise, fitted, waited=True))

    def settled(self) -> tuple[Self, OrthonormalBasis]:
        """The state itself, and the basis of the directions that are not free."""
        return self, self.directions.columns

    def evidence(self, w: ArrayOrTensor, start: ArrayOrTensor | None = None) -> Evidence:
        """The retained directions, with the predictions of w as targets."""
        return self.directions.evidence(w, start)

    def merged(self, w: ArrayOrTensor, evidence: Evidence) -> Step:
        """Learn the evidence of another state, then drop directions beyond m."""
        return evidence.learned_by(self, w)

    def grown(self, p: int) -> Self:
        """Add weights at the end, whose gradients were zero in all rows so far."""
        return replace(self, directions=self.directions.grown(p))

    def with_outputs(self, at: Array, c: int) -> Self:
        """The state itself: outputs with the same features share the directions."""
        del at, c
        return self


@dataclass(frozen=True)
class Random:
    """A random sample of m of the directions used.

    Parameters
    ----------
    m : int, default=100
        The maximum number of directions, >= 1.
    seed : int, default=0
        Seed of the random numbers: the same seed gives the same memory.

    Raises
    ------
    ParameterError
        If m is not an integer >= 1, or seed not an integer >= 0.
    """

    merging: ClassVar[str] = "approximate"

    m: int = 100
    seed: int = 0

    @public
    def __post_init__(self) -> None:
        validation.whole(self.m, "m", low=1)
        validation.whole(self.seed, "seed", low=0)

    def start(
        self, p: int, c: int, noise: float = 0.0, kind: Kind = np.float64
    ) -> RandomDirections:
        """The initial state, for p weights per output; without noise.

        ``kind`` is a NumPy dtype, or a tensor of the desired precision and device.
        """
        del c
        refuse_noise(noise)
        directions = Directions(OrthonormalBasis.start(p, kind, int(self.m) + 1))
        return RandomDirections(directions, int(self.m), int(self.seed), 0)


@dataclass(frozen=True, eq=False, slots=True)
class RandomDirections(LimitedDirections):
    """The state of :class:`Random`.

    Parameters
    ----------
    directions, m
        As in :class:`~onepass.memory.directions.LimitedDirections`.
    seed : int
    draws : int
        The number of draws so far, which with the seed determines the next draw.
    """

    seed: int
    draws: int

    def _limited(self, wider: Directions) -> RandomDirections:
        if wider.rank <= self.m:
            return replace(self, directions=wider)
        order = np.random.default_rng((self.seed, self.draws)).permutation(wider.rank)
        leaving = sorted(order[self.m :].tolist())
        retained = replace(wider, columns=wider.columns.without(leaving))
        return replace(self, directions=retained, draws=self.draws + 1)


@dataclass(frozen=True)
class LastDirections:
    """The last m directions used.

    Parameters
    ----------
    m : int, default=100
        The maximum number of directions, >= 1.

    Raises
    ------
    ParameterError
        If m is not an integer >= 1.
    """

    merging: ClassVar[str] = "approximate"

    m: int = 100

    @public
    def __post_init__(self) -> None:
        validation.whole(self.m, "m", low=1)

    def start(
        self, p: int, c: int, noise: float = 0.0, kind: Kind = np.float64
    ) -> LastDirectionsState:
        """The initial state, for p weights per output; without noise.

        ``kind`` is a NumPy dtype, or a tensor of the desired precision and device.
        """
        del c
        refuse_noise(noise)
        return LastDirectionsState(
            Directions(OrthonormalBasis.start(p, kind, 2 * int(self.m))), int(self.m)
        )


@dataclass(frozen=True, eq=False, slots=True)
class LastDirectionsState(LimitedDirections):
    """The state of :class:`LastDirections`: the last directions, in order of use."""

    def _limited(self, wider: Directions) -> LastDirectionsState:
        return replace(self, directions=replace(wider, columns=wider.columns.latest(self.m)))


@dataclass(frozen=True)
class NoMemory:
    """No memory: One-Step SGD, and with noise normalised LMS."""

    merging: ClassVar[str] = "refused"

    def start(self, p: int, c: int, noise: float = 0.0, kind: Kind = np.float64) -> NoMemoryState:
        """The initial state."""
        del p, c, noise, kind
        return NoMemoryState()


@dataclass(frozen=True, eq=False, slots=True)
class NoMemoryState:
    """The empty state of :class:`NoMemory`."""

    exact_in_blocks: ClassVar[bool] = False
    lost: ClassVar[None] = None

    @property
    def rank(self) -> int:
        """0: no direction is used up."""
        return 0

    def learn(
        self, w: ArrayOrTensor, G: ArrayOrTensor, e: ArrayOrTensor, noise: Floats, *, group: int = 1
    ) -> Step:
        """The update with P = I: (1), for one row, or for a block as one augmented row.

        Parameters
        ----------
        w : array of shape (p, c) or (p,)
        G : array of shape (p, n)
        e : array of shape (n, c) or (n,)
        noise : ndarray of shape (n,)
            All zero, or all positive.
        group : int
            The number of neighbouring columns of G that belong to one row.
        """
        fitted = fit(w, G, G, e, noise, group=group)
        return Step(fitted.w, self, e, 0, fitted.inconsistent_rows)

    def forgetting_bound(self, new: ArrayOrTensor, old: ArrayOrTensor) -> float:
        """Return 0.0: no bound is known."""
        del new, old
        return 0.0

    @property
    def basis(self) -> Any:
        """None: P = I."""
        return None

    def split(self, G: ArrayOrTensor) -> Split:
        """P G = G."""
        return Split(G, G, G)

    def after(
        self, G: ArrayOrTensor, free: Split, noise: Floats, fitted: FittedStep | None = None
    ) -> NoMemoryState:
        """The state itself: nothing is stored."""
        del G, free, noise, fitted
        return self

    def settled(self) -> tuple[NoMemoryState, None]:
        """The state itself, and None: all directions are free."""
        return self, None

    def grown(self, p: int) -> NoMemoryState:
        """The state itself."""
        del p
        return self

    def with_outputs(self, at: Array, c: int) -> NoMemoryState:
        """The state itself."""
        del at, c
        return self
