"""Blocks: a memory of its own for each part of the weights, as for each layer of a network.

The directions still free are block-diagonal: with w_l the weights of part l, and G_l what the
gradients have there,

    P = diag(P_1, …, P_L),      U = (P_1 G_1, …, P_L G_L)                                    (1)
    S = Σ_l G_lᵀ P_l G_l + diag(R)                                                           (2)

and the step is the one equation with this P (:mod:`onepass.linalg.update`): a new row is fitted
exactly at R = 0, by all parts together. Each memory then learns the G_l of its own part. Where
none lets anything go, Δw_l is orthogonal to every past G_l, and so Δw to every past G: no past
answer moves, though more directions are used up than a memory of the whole would use. With noise r
> 0 the information of the rows is kept without what it says of two parts together.

Each part is small enough to be kept near, or of a depth m of its own; all read no more numbers than
a memory of m directions of the whole, and know up to L m of them.
Cost: as one memory of m directions of all weights.
"""

from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple, cast

from onepass import linalg
from onepass.linalg.subspace import Split
from onepass.linalg.update import Fitted, Step, fit
from onepass.memory.evidence import Evidence
from onepass.memory.protocols import Divided, Memory
from onepass.types import ArrayOrTensor, Floats, Kind

__all__ = ["BlockEvidence", "Blocks"]

_Place = tuple[tuple[int, int], ...]


@dataclass(frozen=True, eq=False, slots=True)
class Blocks:
    """States of memories, side by side.

    Parameters
    ----------
    parts : tuple of states
        One for each part of the weights.
    places : tuple of tuple of (int, int)
        Where the weights of each part lie: pieces from a weight to before another. Together they
        are all weights, each once.
    """

    exact_in_blocks: ClassVar[bool] = False

    parts: tuple[Divided, ...]
    places: tuple[_Place, ...]

    @classmethod
    def start(
        cls, specification: Memory, places: tuple[_Place, ...], noise: float, c: int, kind: Kind
    ) -> "Blocks":
        """Memories of no rows, each as specified, for weights at these places and c outputs."""
        sizes = [sum(stop - start for start, stop in place) for place in places]
        parts = tuple(specification.start(size, c, noise, kind) for size in sizes)
        return cls(cast("tuple[Divided, ...]", parts), places)

    @property
    def rank(self) -> int:
        """The directions kept, of which none is free without noise."""
        return sum(part.rank for part in self.parts)

    def learn(
        self, w: ArrayOrTensor, G: ArrayOrTensor, e: ArrayOrTensor, noise: Floats, *, group: int = 1
    ) -> Step:
        """The one equation for one row, or for a block as one augmented row: (1), (2).

        Parameters
        ----------
        w : array of shape (p,)
        G : array of shape (p, n)
        e : array of shape (n,)
        noise : ndarray of shape (n,)
            All zero, or all positive.
        group : int
            Neighbouring columns of G that belong to one row.
        """
        free = self.split(G)
        fitted = fit(w, G, free.lifted, e, noise, group=group, basis=self.basis)
        memory = self.after(G, free, noise)
        # the rows of a block are learned as one: each is said by the weights before the block
        return Step(fitted.w, memory, e, memory.rank - self.rank, fitted.inconsistent_rows)

    @property
    def basis(self) -> Any:
        """What the first part's directions are made of, for their precision."""
        return self.parts[0].basis

    def split(self, G: ArrayOrTensor) -> Split:
        """P G, as ``lifted``: (1); ``inside`` is what each part says of its own."""
        near, each = linalg.blank(G.T), []
        for part, place in zip(self.parts, self.places, strict=True):
            said = part.split(_taken(G.T, place).T)
            _put(near, place, linalg.like(said.lifted.T, near))
            each.append(said)
        return Split(tuple(each), near.T, near.T)

    def after(
        self, G: ArrayOrTensor, free: Split, noise: Floats, fitted: Fitted | None = None
    ) -> "Blocks":
        """The memory after the rows of G have come, of which ``split`` said this."""
        del fitted  # it is of all parts together
        each = zip(self.parts, self.places, free.inside, strict=True)
        parts = [part.after(_taken(G.T, place).T, said, noise) for part, place, said in each]
        return replace(self, parts=tuple(parts))

    @property
    def lost(self) -> float | None:
        """D of the certificate of forgetting: Σ D_l bounds what a step of length 1 moves.

        √(Σ_k (Σ_l g_klᵀ Δw_l)²) ≤ Σ_l √D_l ‖Δw_l‖ ≤ √(Σ_l D_l) ‖Δw‖.
        """
        known = [lost for lost in (part.lost for part in self.parts) if lost is not None]
        return sum(known) if len(known) == len(self.parts) else None

    def forgetting_bound(self, new: ArrayOrTensor, old: ArrayOrTensor) -> Any:
        """By how much past answers can have moved in a step: the sum over all parts."""
        each = zip(self.parts, self.places, strict=True)
        rows = new.reshape(1, -1), old.reshape(1, -1)
        return sum(
            part.forgetting_bound(*(_taken(row, place) for row in rows)) for part, place in each
        )

    def evidence(self, w: ArrayOrTensor, start: ArrayOrTensor | None = None) -> "Several":
        """What each part's rows said."""
        rows = w.reshape(1, -1)
        begun = rows if start is None else start.reshape(1, -1)
        parts = [
            part.evidence(_taken(rows, at)[0], None if start is None else _taken(begun, at)[0])
            for part, at in zip(self.parts, self.places, strict=True)
        ]
        return BlockEvidence(tuple(parts), self.places)

    def merged(self, w: ArrayOrTensor, evidence: "Several") -> Step:
        """The step of learning another's evidence, each part by itself."""
        new, parts, rank, against = linalg.blank(w.reshape(1, -1)), [], 0, 0
        for part, place, said in zip(self.parts, self.places, evidence.parts, strict=True):
            step = part.merged(_taken(w.reshape(1, -1), place)[0], said)
            _put(new, place, step.w.reshape(1, -1))
            parts.append(step.memory)
            rank, against = rank + step.rank, against + step.inconsistent_rows
        return Step(new[0], replace(self, parts=tuple(parts)), w[:0], rank, against)


class BlockEvidence(NamedTuple):
    """What the rows said, part by part."""

    parts: tuple[Evidence, ...]
    places: tuple[_Place, ...]

    def near(self, w: ArrayOrTensor) -> "Several":
        """The same where other weights are."""
        return self._replace(parts=tuple(part.near(w) for part in self.parts))

    def moved(self, new: ArrayOrTensor, old: ArrayOrTensor) -> float:
        """By how much answers can move, from some weights to others: the sum over all parts."""
        rows = new.reshape(1, -1), old.reshape(1, -1)
        each = zip(self.parts, self.places, strict=True)
        return sum(part.moved(*(_taken(row, place)[0] for row in rows)) for part, place in each)


def _taken(rows: ArrayOrTensor, place: _Place) -> Any:
    """The columns at a place, of rows (n, p)."""
    if len(place) == 1:
        return rows[:, place[0][0] : place[0][1]]
    size = sum(stop - start for start, stop in place)
    taken, at = linalg.blank(rows, (len(rows), size)), 0
    for start, stop in place:
        taken[:, at : at + stop - start] = rows[:, start:stop]
        at += stop - start
    return taken


def _put(rows: ArrayOrTensor, place: _Place, columns: ArrayOrTensor) -> None:
    """Write columns to a place of rows (n, p)."""
    at = 0
    for start, stop in place:
        rows[:, start:stop] = columns[:, at : at + stop - start]
        at += stop - start
