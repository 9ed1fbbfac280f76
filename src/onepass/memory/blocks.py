"""Blocks: a separate memory for each part of the weights, such as each layer of a network.

The projector on the free directions is block-diagonal: with w_l the weights of part l, and G_l the
gradients with respect to them,

    P = diag(P_1, …, P_L),      U = (P_1 G_1, …, P_L G_L)                                    (1)
    S = Σ_l G_lᵀ P_l G_l + diag(R)                                                           (2)

and the step is the update equation with this P (:mod:`onepass.linalg.update`): a new row is fitted
exactly at R = 0, by all parts together. Each memory then learns the G_l of its own part. If no
memory drops directions, Δw_l is orthogonal to every past G_l, and so Δw to every past G:
predictions on past rows do not change, though more directions are used up than by one memory of all
weights. With noise
r > 0 the information of the rows is retained except for the correlations between parts.

Each part is small enough for fast memory, or can have its own number m of directions. Together the
parts read no more numbers than a memory of m directions of all weights, and retain up to L m
directions. Cost: that of one memory of m directions of all weights.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple, cast

from onepass import linalg
from onepass.linalg.projection import Split
from onepass.linalg.update import FittedStep, Step, fit
from onepass.memory.evidence import Evidence
from onepass.memory.protocols import Divided, Memory
from onepass.types import ArrayOrTensor, Floats, Kind

_Place = tuple[tuple[int, int], ...]


@dataclass(frozen=True, eq=False, slots=True)
class Blocks:
    """States of memories for parts of the weights.

    Parameters
    ----------
    parts : tuple of states
        One state for each part of the weights.
    places : tuple of tuple of (int, int)
        The weights of each part, as half-open ranges. Each weight is in exactly one part.
    """

    exact_in_blocks: ClassVar[bool] = False

    parts: tuple[Divided, ...]
    places: tuple[_Place, ...]

    @classmethod
    def start(
        cls, specification: Memory, places: tuple[_Place, ...], noise: float, c: int, kind: Kind
    ) -> Blocks:
        """The initial state, for weights at these places and c outputs."""
        sizes = [sum(stop - start for start, stop in place) for place in places]
        parts = tuple(specification.start(size, c, noise, kind) for size in sizes)
        return cls(cast("tuple[Divided, ...]", parts), places)

    @property
    def rank(self) -> int:
        """The number of retained directions, none of which is free without noise."""
        return sum(part.rank for part in self.parts)

    def learn(
        self, w: ArrayOrTensor, G: ArrayOrTensor, e: ArrayOrTensor, noise: Floats, *, group: int = 1
    ) -> Step:
        """The update equation for one row, or for a block as one augmented row: (1), (2).

        Parameters
        ----------
        w : array of shape (p,)
        G : array of shape (p, n)
        e : array of shape (n,)
        noise : ndarray of shape (n,)
            All zero, or all positive.
        group : int
            The number of neighbouring columns of G that belong to one row.
        """
        free = self.split(G)
        fitted = fit(w, G, free.lifted, e, noise, group=group, basis=self.basis)
        memory = self.after(G, free, noise)
        # a block is one augmented row: errors are those before the block
        return Step(fitted.w, memory, e, memory.rank - self.rank, fitted.inconsistent_rows)

    @property
    def basis(self) -> Any:
        """The array of the first part's directions, which determines the precision."""
        return self.parts[0].basis

    def split(self, G: ArrayOrTensor) -> Split:
        """P G, as ``lifted``: (1); ``inside`` contains the splits of the parts."""
        near, each = linalg.blank(G.T), []
        for part, place in zip(self.parts, self.places, strict=True):
            found = part.split(_part(G.T, place).T)
            _write_part(near, place, linalg.like(found.lifted.T, near))
            each.append(found)
        return Split(tuple(each), near.T, near.T)

    def after(
        self, G: ArrayOrTensor, free: Split, noise: Floats, fitted: FittedStep | None = None
    ) -> Blocks:
        """The state after the gradients G; ``free`` is the result of ``split``."""
        del fitted  # the step of all parts together
        each = zip(self.parts, self.places, free.inside, strict=True)
        parts = [part.after(_part(G.T, place).T, found, noise) for part, place, found in each]
        return replace(self, parts=tuple(parts))

    @property
    def lost(self) -> float | None:
        """D of the certificate of forgetting: Σ D_l bounds the effect of a step of length 1.

        √(Σ_k (Σ_l g_klᵀ Δw_l)²) ≤ Σ_l √D_l ‖Δw_l‖ ≤ √(Σ_l D_l) ‖Δw‖.
        """
        known = [lost for lost in (part.lost for part in self.parts) if lost is not None]
        return sum(known) if len(known) == len(self.parts) else None

    def forgetting_bound(self, new: ArrayOrTensor, old: ArrayOrTensor) -> Any:
        """Bound changes of predictions on past rows in a step: the sum over all parts."""
        each = zip(self.parts, self.places, strict=True)
        rows = new.reshape(1, -1), old.reshape(1, -1)
        return sum(
            part.forgetting_bound(*(_part(row, place) for row in rows)) for part, place in each
        )

    def evidence(self, w: ArrayOrTensor, start: ArrayOrTensor | None = None) -> BlockEvidence:
        """The evidence of each part."""
        rows = w.reshape(1, -1)
        initial = rows if start is None else start.reshape(1, -1)
        parts = [
            part.evidence(_part(rows, at)[0], None if start is None else _part(initial, at)[0])
            for part, at in zip(self.parts, self.places, strict=True)
        ]
        return BlockEvidence(tuple(parts), self.places)

    def merged(self, w: ArrayOrTensor, evidence: BlockEvidence) -> Step:
        """Learn the evidence of another state, each part separately."""
        new, parts, rank, inconsistent = linalg.blank(w.reshape(1, -1)), [], 0, 0
        for part, place, own in zip(self.parts, self.places, evidence.parts, strict=True):
            step = part.merged(_part(w.reshape(1, -1), place)[0], own)
            _write_part(new, place, step.w.reshape(1, -1))
            parts.append(step.memory)
            rank, inconsistent = rank + step.rank, inconsistent + step.inconsistent_rows
        return Step(new[0], replace(self, parts=tuple(parts)), w[:0], rank, inconsistent)


class BlockEvidence(NamedTuple):
    """Evidence of each part of the weights."""

    parts: tuple[Evidence, ...]
    places: tuple[_Place, ...]

    def near(self, w: ArrayOrTensor) -> BlockEvidence:
        """Convert to the library, precision and device of other weights."""
        return self._replace(parts=tuple(part.near(w) for part in self.parts))

    def moved(self, new: ArrayOrTensor, old: ArrayOrTensor) -> float:
        """Bound changes of predictions between two weights: the sum over all parts."""
        rows = new.reshape(1, -1), old.reshape(1, -1)
        each = zip(self.parts, self.places, strict=True)
        return sum(part.moved(*(_part(row, place)[0] for row in rows)) for part, place in each)


def _part(rows: ArrayOrTensor, place: _Place) -> Any:
    """Select the columns at a place of rows (n, p)."""
    if len(place) == 1:
        return rows[:, place[0][0] : place[0][1]]
    size = sum(stop - start for start, stop in place)
    columns, at = linalg.blank(rows, (len(rows), size)), 0
    for start, stop in place:
        columns[:, at : at + stop - start] = rows[:, start:stop]
        at += stop - start
    return columns


def _write_part(rows: ArrayOrTensor, place: _Place, columns: ArrayOrTensor) -> None:
    """Write columns to a place of rows (n, p)."""
    at = 0
    for start, stop in place:
        rows[:, start:stop] = columns[:, at : at + stop - start]
        at += stop - start
