"""Basis: every direction used so far. The memory of ORFit without a limit.

With noise R = 0 the directions still free are P = I − QQᵀ, Q orthonormal, and the columns that a
block adds to Q are the W of the one equation (:mod:`onepass.linalg.update`):

    G̃ = G − Q QᵀG                                                                          (1)
    w ← w + G̃ (GᵀG̃)⁻¹ e,        Q ← [Q W],   W = G̃ L⁻ᵀ,   L Lᵀ = G̃ᵀG̃                      (2)

([1] (5), (7), (9)). A block learns exactly what its rows would, one after the other. With noise
r > 0, P = (I + GGᵀ/r)⁻¹ over all past gradients, kept in the coordinates of their span
(:class:`~onepass.memory.span.Span`): ridge regression with Π = r · I.
Cost: O(pq) time a row for q directions used so far, O(pq) memory: it grows with the stream until
q = p.

[1] Y. Min, K. Ahn, N. Azizan, "One-Pass Learning via Bridging Orthogonal Gradient Descent and
    Recursive Least-Squares", extended version.
"""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from onepass import linalg
from onepass.errors import ParameterError
from onepass.linalg.subspace import OrthonormalBasis, Split
from onepass.linalg.update import Fitted, Step, fit, row_by_row
from onepass.memory.evidence import Evidence, without_prior
from onepass.memory.span import Span
from onepass.types import Array, ArrayOrTensor, Floats, Kind

__all__ = ["Basis", "Directions", "NoisySpan", "refuse_noise"]


@dataclass(frozen=True)
class Basis:
    """Every direction used so far: nothing is forgotten, memory grows with the stream.

    Equal to ``memory=None`` of the ORFit learners.
    """

    merging: ClassVar[str] = "exact"

    def per_output(self, c: int, p: int) -> "Basis":
        """The memory of one output, whose directions all c outputs share."""
        del c, p
        return self

    def start(
        self, p: int, c: int, noise: float = 0.0, kind: Kind = np.float64
    ) -> "Directions | NoisySpan":
        """The memory of no rows, for p weights an output and c outputs.

        ``kind`` is a NumPy precision, or, without noise, a tensor of the precision and on the
        device wanted.
        """
        if noise:
            return NoisySpan(Span.start(p, c, 1.0), np.zeros((p, c)))
        return Directions(OrthonormalBasis.start(p, kind))


@dataclass(frozen=True, eq=False, slots=True)
class Directions:
    """The state of :class:`Basis` without noise.

    Parameters
    ----------
    columns : Columns
        Orthonormal: the q directions used up.
    """

    exact_in_blocks: ClassVar[bool] = True

    columns: OrthonormalBasis

    @property
    def Q(self) -> Any:  # noqa: N802  the equation's letter
        """The directions, (p, q)."""
        return self.columns.matrix

    @property
    def rank(self) -> int:
        """q, the directions used up; on a device, at most so many."""
        return len(self.columns)

    def learn(
        self, w: ArrayOrTensor, G: ArrayOrTensor, e: ArrayOrTensor, noise: Floats, *, group: int = 1
    ) -> Step:
        """The one equation, with R = 0: (1), (2).

        Parameters
        ----------
        w : array of shape (p, c) or (p,)
        G : array of shape (p, n)
        e : array of shape (n, c) or (n,)
        noise : ndarray of shape (n,)
            All zero.
        group : int
            Neighbouring columns of G that belong to one row.
        """
        free = self.split(G)
        fitted = fit(w, G, free.lifted, e, noise, group=group, basis=self.basis)
        memory = self.after(G, free, noise, fitted)
        rank = memory.rank - self.rank
        return Step(fitted.w, memory, fitted.errors, rank, fitted.inconsistent_rows)

    @property
    def basis(self) -> Any:
        """The directions as rows, for their precision."""
        return self.columns.rows

    def split(self, G: ArrayOrTensor) -> Split:
        """P G, as ``lifted``; and what :meth:`after` will want to know of G."""
        return self.columns.split(G)

    def after(
        self,
        G: ArrayOrTensor,
        free: Split,
        noise: Floats,
        fitted: Fitted | None = None,
        *,
        waited: bool = False,
    ) -> "Directions":
        """The memory after the rows of G have come: (2).

        Parameters
        ----------
        G : array of shape (p, n)
        free : Split
            What :meth:`split` said of it.
        noise : ndarray of shape (n,)
        fitted : Fitted, optional
            Their step. Without it, they are learned among others in a step of many parts
            (:class:`~onepass.memory.blocks.Blocks`).
        waited : bool
            Whether to wait for a device that knows how many directions are new. Else columns of
            zeros stand for those that are not, until there is no more room.
        """
        del noise
        if fitted is None:
            near, tau = linalg.like(G, free.lifted), linalg.resolution(self.columns.rows)
            W, _, kept = linalg.orthonormal(free.lifted, tau * linalg.norms(near))
        else:
            W, kept = fitted.W, fitted.kept
        W = linalg.present(W, kept, waited=waited)
        if W.shape[1] > 1:  # rows that are nearly parallel blow up what is left of the past
            W = self.columns.split(W).outside
        columns = self.columns
        crowded = len(columns) + W.shape[1] > min(columns.room, len(G) - 1)
        if crowded and linalg.on_device(W) and not waited:
            columns = columns.without(columns.zeros())
        return replace(self, columns=columns.appended(W))

    @property
    def lost(self) -> float:
        """D of the certificate of forgetting: 0, as nothing is let go."""
        return 0.0

    def forgetting_bound(self, new: ArrayOrTensor, old: ArrayOrTensor) -> float:
        """By how much past answers can have moved in a step: not at all."""
        del new, old
        return 0.0

    def settled(self) -> tuple["Directions", OrthonormalBasis]:
        """The same memory, and the directions that are not free to move as its columns."""
        return self, self.columns

    def evidence(self, w: ArrayOrTensor, start: ArrayOrTensor | None = None) -> Evidence:
        """Qᵀ and the answers Qᵀw: all that w is held to."""
        del start
        targets = linalg.inner(self.Q, w.reshape(len(w), -1)).reshape(-1, *w.shape[1:])
        noise, rest = np.zeros(self.rank), np.zeros(w.shape[1:])
        return Evidence(self.Q.T, targets, noise, rest, weighty=False)

    def merged(self, w: ArrayOrTensor, evidence: Evidence) -> Step:
        """The step of learning another memory's evidence."""
        return evidence.learned_by(self, w)

    def grown(self, p: int) -> "Directions":
        """The same with new weights at the end, zero in every row so far."""
        return replace(self, columns=self.columns.grown(p))

    def with_outputs(self, at: Array, c: int) -> "Directions":
        """The same: outputs that share their features share the directions."""
        del at, c
        return self


@dataclass(frozen=True, eq=False, slots=True)
class NoisySpan:
    """The state of :class:`Basis` with noise: ridge regression in the span of the gradients.

    Parameters
    ----------
    span : Span
        In units in which P starts as I.
    moved : ndarray of shape (p, c)
        w − w₀.
    """

    exact_in_blocks: ClassVar[bool] = True

    lost: ClassVar[None] = None

    span: Span
    moved: Floats

    @property
    def rank(self) -> int:
        """The directions seen; none of them is used up for good."""
        return 0

    def learn(self, w: Floats, G: Floats, e: Floats, noise: Floats, *, group: int = 1) -> Step:
        """The one equation, with R = ``noise`` > 0; parameters as of :class:`Directions`."""
        if group > 1:
            return row_by_row(self, w, G, e, noise, group)
        b = e.reshape(e.shape[0], -1) + G.T @ self.moved
        scale = (noise**-0.5)[:, None]
        taken = self.span.absorb(G.T * scale, b * scale)
        moved = taken.span.solution()
        new = w + (moved - self.moved).reshape(w.shape)
        errors = (taken.errors / scale).reshape(e.shape)
        return Step(new, replace(self, span=taken.span, moved=moved), errors, 0, 0)

    def forgetting_bound(self, new: ArrayOrTensor, old: ArrayOrTensor) -> float:
        """Nothing is known of it."""
        del new, old
        return 0.0

    def evidence(self, w: ArrayOrTensor, start: ArrayOrTensor | None = None) -> Evidence:
        """What the gradients said without the prior, in rows of noise 1."""
        del start
        span = self.span
        none = np.zeros(span.z.shape[1])
        said = without_prior(span.T, span.z, none, np.sqrt(span.ridge) * np.eye(span.rank))
        rows = said.rows @ span.Q.T
        targets = said.targets + rows @ (w.reshape(len(w), -1) - self.moved)
        return said._replace(rows=rows, targets=targets.reshape(len(rows), *w.shape[1:]))

    def merged(self, w: ArrayOrTensor, evidence: Evidence) -> Step:
        """The step of learning another memory's evidence."""
        return evidence.learned_by(self, w)

    def grown(self, p: int) -> "NoisySpan":
        """The same with new weights at the end, zero in every row so far."""
        extra = np.zeros((p - len(self.moved), self.moved.shape[1]))
        return replace(self, span=self.span.grown(p), moved=np.vstack((self.moved, extra)))

    def with_outputs(self, at: Array, c: int) -> "NoisySpan":
        """The same with new outputs at the columns ``at`` of now c, zero in every row so far."""
        moved = np.zeros((len(self.moved), c))
        moved[:, np.setdiff1d(np.arange(c), at)] = self.moved
        return replace(self, span=self.span.with_outputs(at, c), moved=moved)


def refuse_noise(noise: float, where: str) -> None:
    """Refuse noise where directions are dropped: I − QQᵀ with R > 0 is no least squares.

    Raises
    ------
    ParameterError
        If noise is not 0.
    """
    if noise:
        raise ParameterError(
            f"{where}: `noise` must be 0 with a memory of projected directions, got {noise:g}. "
            "Use op.memory.Principal(m), of raw gradients, which averages noisy rows."
        )
