"""Blocks: a memory of its own for each part of the weights, as for each layer of a network.

The directions still free are block-diagonal: with w_l the weights of part l, and G_l what the
gradients have there,

    P = diag(P_1, …, P_L),      U = (P_1 G_1, …, P_L G_L)                                    (1)
    S = Σ_l G_lᵀ P_l G_l + diag(R)                                                           (2)

and the step is the one equation with this P (:mod:`onepass.update`): a new row is fitted exactly
at R = 0, by all parts together. Each memory then learns the G_l of its own part. Where none lets
anything go, Δw_l is orthogonal to every past G_l, and so Δw to every past G: no past answer moves,
though more directions are used up than a memory of the whole would use. With noise r > 0 the
information of the rows is kept without what it says of two parts together.

Each part is small enough to be kept near, or of a depth m of its own; all read no more numbers than
a memory of m directions of the whole, and know up to L m of them.
Cost: as one memory of m directions of all weights.
"""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

from onepass import linalg
from onepass.memory.evidence import Evidence
from onepass.types import Floats
from onepass.update import Step, fit

__all__ = ["Blocks"]

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

    parts: tuple[Any, ...]
    places: tuple[_Place, ...]

    @classmethod
    def start(cls, specification: Any, places: tuple[_Place, ...], noise: float, kind: Any) -> Any:
        """Memories of no rows, each as specified, for weights at these places."""
        sizes = [sum(stop - start for start, stop in place) for place in places]
        parts = tuple(specification.start(size, 1, noise, kind) for size in sizes)
        return cls(parts, places)

    @property
    def rank(self) -> int:
        """The directions kept, of which none is free without noise."""
        return sum(part.rank for part in self.parts)

    def learn(self, w: Any, G: Any, e: Any, noise: Floats, *, group: int = 1) -> Step:
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
        pieces = [_taken(G.T, place).T for place in self.places]
        split = [part.split(piece) for part, piece in zip(self.parts, pieces, strict=True)]
        U = linalg.blank(G.T)
        for place, each in zip(self.places, split, strict=True):
            _put(U, place, linalg.like(each.lifted.T, U))
        fitted = fit(w, G, U.T, e, noise, group=group, basis=self.parts[0].basis)
        each_part = zip(self.parts, pieces, split, strict=True)
        parts = tuple(part.after(piece, each, noise) for part, piece, each in each_part)
        memory = replace(self, parts=parts)
        # the rows of a block are learned as one: each is said by the weights before the block
        return Step(fitted.w, memory, e, memory.rank - self.rank, fitted.contradictions)

    @property
    def lost(self) -> float | None:
        """D of the certificate of forgetting: with Σ D_l a step of length 1 moves all past answers.

        √(Σ_k (Σ_l g_klᵀ Δw_l)²) ≤ Σ_l √D_l ‖Δw_l‖ ≤ √(Σ_l D_l) ‖Δw‖.
        """
        each = [part.lost for part in self.parts]
        return None if any(lost is None for lost in each) else sum(each)

    def forgets(self, new: Any, old: Any) -> Any:
        """By how much past answers can have moved in a step: the sum over all parts."""
        each = zip(self.parts, self.places, strict=True)
        rows = new.reshape(1, -1), old.reshape(1, -1)
        return sum(part.forgets(*(_taken(row, place) for row in rows)) for part, place in each)

    def evidence(self, w: Any, start: Any = None) -> tuple[Evidence, ...]:
        """What each part's rows said."""
        places = zip(self.parts, self.places, strict=True)
        begun = None if start is None else start.reshape(1, -1)
        return tuple(
            part.evidence(
                _taken(w.reshape(1, -1), at)[0], None if begun is None else _taken(begun, at)[0]
            )
            for part, at in places
        )

    def merged(self, w: Any, evidence: tuple[Evidence, ...]) -> Step:
        """The step of learning another's evidence, each part by itself."""
        new, parts, rank, against = linalg.blank(w.reshape(1, -1)), [], 0, 0
        for part, place, said in zip(self.parts, self.places, evidence, strict=True):
            step = part.merged(_taken(w.reshape(1, -1), place)[0], said)
            _put(new, place, step.w.reshape(1, -1))
            parts.append(step.memory)
            rank, against = rank + step.rank, against + step.contradictions
        return Step(new[0], replace(self, parts=tuple(parts)), w[:0], rank, against)


def _taken(rows: Any, place: _Place) -> Any:
    """The columns at a place, of rows (n, p)."""
    if len(place) == 1:
        return rows[:, place[0][0] : place[0][1]]
    size = sum(stop - start for start, stop in place)
    taken, at = linalg.blank(rows, (len(rows), size)), 0
    for start, stop in place:
        taken[:, at : at + stop - start] = rows[:, start:stop]
        at += stop - start
    return taken


def _put(rows: Any, place: _Place, columns: Any) -> None:
    """Write columns to a place of rows (n, p)."""
    at = 0
    for start, stop in place:
        rows[:, start:stop] = columns[:, at : at + stop - start]
        at += stop - start
