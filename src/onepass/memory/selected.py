"""Selected: what memories share that keep some of the directions used, and let the others go.

As :class:`~onepass.memory.basis.Basis`, but after each step no more than m columns of Q stay. Which
of them is for each memory to say.
"""

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from onepass import linalg
from onepass.errors import Array, Floats
from onepass.linalg.subspace import Columns, Split
from onepass.linalg.update import Fitted, Step, fit
from onepass.memory.basis import Directions
from onepass.memory.evidence import Evidence

__all__ = ["Selected"]


@dataclass(frozen=True, eq=False, slots=True)
class Selected:
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

    def learn(self, w: Any, G: Any, e: Any, noise: Floats, *, group: int = 1) -> Step:
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

    def after(self, G: Any, free: Split, noise: Floats, fitted: Fitted | None = None) -> Self:
        """The memory after the rows of G have come; a device is waited for, to know how many."""
        return self._left(self.directions.after(G, free, noise, fitted, waited=True))

    def settled(self) -> tuple[Self, Columns]:
        """The same memory, and the directions that are not free to move as its columns."""
        return self, self.directions.columns

    def evidence(self, w: Floats, start: Floats | None = None) -> Evidence:
        """The directions kept, and what w says of them."""
        return self.directions.evidence(w, start)

    def merged(self, w: Floats, evidence: Evidence) -> Step:
        """The step of learning another memory's evidence, then of letting directions go."""
        return evidence.learned_by(self, w)

    def grown(self, p: int) -> Self:
        """The same with new weights at the end, zero in every row so far."""
        return replace(self, directions=self.directions.grown(p))

    def with_outputs(self, at: Array, c: int) -> Self:
        """The same: outputs that share their features share the directions."""
        del at, c
        return self
