"""Basis: every direction used so far; the memory of ORFit without a limit.

With noise R = 0 the projector on the free directions is P = I − QQᵀ, Q orthonormal, and the columns
that a block adds to Q are the W of the update equation (:mod:`onepass.linalg.update`):

    G̃ = G − Q QᵀG                                                                          (1)
    w ← w + G̃ (GᵀG̃)⁻¹ e,        Q ← [Q W],   W = G̃ L⁻ᵀ,   L Lᵀ = G̃ᵀG̃                      (2)

([1] (5), (7), (9)). Learning a block equals learning its rows one after the other. With noise
r > 0, P = (I + GGᵀ/r)⁻¹ over all past gradients, in the coordinates of their span
(:class:`~onepass.memory.span.Span`): ridge regression with Π = r · I.
Cost: O(pq) time per row for q directions used so far, O(pq) memory, which grows with the stream
until q = p.

[1] Y. Min, K. Ahn, N. Azizan, "One-Pass Learning via Bridging Orthogonal Gradient Descent and
    Recursive Least-Squares", extended version.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from onepass import linalg
from onepass.errors import ParameterError
from onepass.linalg.projection import Split
from onepass.linalg.subspace import OrthonormalBasis
from onepass.linalg.update import FittedStep, Step, fit, row_by_row
from onepass.memory.evidence import Evidence, without_prior
from onepass.memory.span import Span
from onepass.types import Array, ArrayOrTensor, Floats, Kind


@dataclass(frozen=True)
class Basis:
    """Every direction used so far: nothing is dropped, and memory grows with the stream.

    The ORFit learners use it if ``memory=None``.
    """

    merging: ClassVar[str] = "exact"

    def per_output(self, c: int, p: int) -> Basis:
        """The memory of one output if all c outputs share the directions."""
        del c, p
        return self

    def start(
        self, p: int, c: int, noise: float = 0.0, kind: Kind = np.float64
    ) -> Directions | NoisySpan:
        """The initial state, for p weights per output and c outputs.

        ``kind`` is a NumPy dtype or, without noise, a tensor of the desired precision and device.
        """
        if noise:
            return NoisySpan(Span.start(p, c, 1.0), np.zeros((p, c)))
        return Directions(OrthonormalBasis.start(p, kind))


@dataclass(frozen=True, eq=False, slots=True)
class Directions:
    """The state of :class:`Basis` without noise.

    Parameters
    ----------
    columns : OrthonormalBasis
        The q directions used up.
    """

    exact_in_blocks: ClassVar[bool] = True

    columns: OrthonormalBasis

    @property
    def Q(self) -> Any:  # noqa: N802  the symbol of the equations
        """The directions, (p, q)."""
        return self.columns.matrix

    @property
    def rank(self) -> int:
        """q, the number of directions used up; on an accelerator an upper bound."""
        return len(self.columns)

    def learn(
        self, w: ArrayOrTensor, G: ArrayOrTensor, e: ArrayOrTensor, noise: Floats, *, group: int = 1
    ) -> Step:
        """The update equation with R = 0: (1), (2).

        Parameters
        ----------
        w : array of shape (p, c) or (p,)
        G : array of shape (p, n)
        e : array of shape (n, c) or (n,)
        noise : ndarray of shape (n,)
            All zero.
        group : int
            The number of neighbouring columns of G that belong to one row.
        """
        free = self.split(G)
        fitted = fit(w, G, free.lifted, e, noise, group=group, basis=self.basis)
        memory = self.after(G, free, noise, fitted)
        rank = memory.rank - self.rank
        return Step(fitted.w, memory, fitted.errors, rank, fitted.inconsistent_rows)

    @property
    def basis(self) -> Any:
        """The directions as rows, which determine the precision."""
        return self.columns.rows

    def split(self, G: ArrayOrTensor) -> Split:
        """P G, as ``lifted``, with the intermediate values of :meth:`after`."""
        return self.columns.split(G)

    def after(
        self,
        G: ArrayOrTensor,
        free: Split,
        noise: Floats,
        fitted: FittedStep | None = None,
        *,
        waited: bool = False,
    ) -> Directions:
        """The state after the gradients G: (2).

        Parameters
        ----------
        G : array of shape (p, n)
        free : Split
            The result of :meth:`split` for G.
        noise : ndarray of shape (n,)
        fitted : FittedStep, optional
            The step of these gradients. None if they are one part of a larger step
            (:class:`~onepass.memory.blocks.Blocks`).
        waited : bool
            Whether to synchronize an accelerator to count the new directions. Otherwise dependent
            directions are stored as columns of zeros, until the space is exhausted.
        """
        del noise
        if fitted is None:
            near, tau = linalg.like(G, free.lifted), linalg.resolution(self.columns.rows)
            W, _, retained = linalg.orthonormal(free.lifted, tau * linalg.norms(near))
        else:
            W, retained = fitted.W, fitted.retained
        W = linalg.present(W, retained, waited=waited)
        if W.shape[1] > 1:  # nearly parallel rows amplify rounding errors along the past directions
            W = self.columns.split(W).outside
        columns = self.columns
        p = linalg.count_weights(len(G))
        crowded = len(columns) + W.shape[1] > min(columns.capacity, p - 1)
        if crowded and linalg.on_device(W) and not waited:
            columns = columns.without(columns.zeros())
        return replace(self, columns=columns.appended(W))

    @property
    def lost(self) -> float:
        """D of the certificate of forgetting: 0, since nothing is dropped."""
        return 0.0

    def forgetting_bound(self, new: ArrayOrTensor, old: ArrayOrTensor) -> float:
        """Bound changes of predictions on past rows: always 0."""
        del new, old
        return 0.0

    def settled(self) -> tuple[Directions, OrthonormalBasis]:
        """The state itself, and the basis of the directions that are not free."""
        return self, self.columns

    def evidence(self, w: ArrayOrTensor, start: ArrayOrTensor | None = None) -> Evidence:
        """Qᵀ with targets Qᵀw, which determine w as far as the past does."""
        del start
        targets = linalg.inner(self.Q, w.reshape(len(w), -1)).reshape(-1, *w.shape[1:])
        noise, rest = np.zeros(self.rank), np.zeros(w.shape[1:])
        return Evidence(self.Q.T, targets, noise, rest, full_length=False)

    def merged(self, w: ArrayOrTensor, evidence: Evidence) -> Step:
        """Learn the evidence of another state."""
        return evidence.learned_by(self, w)

    def grown(self, p: int) -> Directions:
        """Add weights at the end, whose gradients were zero in all rows so far."""
        return replace(self, columns=self.columns.grown(p))

    def with_outputs(self, at: Array, c: int) -> Directions:
        """The state itself: outputs with the same features share the directions."""
        del at, c
        return self


@dataclass(frozen=True, eq=False, slots=True)
class NoisySpan:
    """The state of :class:`Basis` with noise: ridge regression in the span of the gradients.

    Parameters
    ----------
    span : Span
        In units in which P is initially I.
    moved : ndarray of shape (p, c)
        w − w₀.
    """

    exact_in_blocks: ClassVar[bool] = True

    lost: ClassVar[None] = None

    span: Span
    moved: Floats

    @property
    def rank(self) -> int:
        """0: with noise no direction is used up."""
        return 0

    def learn(self, w: Floats, G: Floats, e: Floats, noise: Floats, *, group: int = 1) -> Step:
        """The update equation with R = ``noise`` > 0; parameters as in :class:`Directions`."""
        if group > 1:
            return row_by_row(self, w, G, e, noise, group)
        b = e.reshape(e.shape[0], -1) + G.T @ self.moved
        scale = (noise**-0.5)[:, None]
        update = self.span.absorb(G.T * scale, b * scale)
        moved = update.span.solution()
        new = w + (moved - self.moved).reshape(w.shape)
        errors = (update.errors / scale).reshape(e.shape)
        return Step(new, replace(self, span=update.span, moved=moved), errors, 0, 0)

    def forgetting_bound(self, new: ArrayOrTensor, old: ArrayOrTensor) -> float:
        """Return 0.0: no bound is known."""
        del new, old
        return 0.0

    def evidence(self, w: ArrayOrTensor, start: ArrayOrTensor | None = None) -> Evidence:
        """The information of the gradients without the prior, in rows of noise 1."""
        del start
        span = self.span
        none = np.zeros(span.z.shape[1])
        information = without_prior(span.T, span.z, none, np.sqrt(span.ridge) * np.eye(span.rank))
        rows = information.rows @ span.Q.T
        targets = information.targets + rows @ (w.reshape(len(w), -1) - self.moved)
        return information._replace(rows=rows, targets=targets.reshape(len(rows), *w.shape[1:]))

    def merged(self, w: ArrayOrTensor, evidence: Evidence) -> Step:
        """Learn the evidence of another state."""
        return evidence.learned_by(self, w)

    def grown(self, p: int) -> NoisySpan:
        """Add weights at the end, whose gradients were zero in all rows so far."""
        extra = np.zeros((p - len(self.moved), self.moved.shape[1]))
        return replace(self, span=self.span.grown(p), moved=np.vstack((self.moved, extra)))

    def with_outputs(self, at: Array, c: int) -> NoisySpan:
        """Extend to c outputs; those in columns ``at`` are new and were zero in all rows so far."""
        moved = np.zeros((len(self.moved), c))
        moved[:, np.setdiff1d(np.arange(c), at)] = self.moved
        return replace(self, span=self.span.with_outputs(at, c), moved=moved)


def refuse_noise(noise: float) -> None:
    """Raise if noise is not 0: with R > 0 the projector I − QQᵀ does not give least squares.

    Raises
    ------
    ParameterError
        If noise is not 0.
    """
    if noise:
        raise ParameterError(
            f"`noise` must be 0 with a memory of projected directions, got {noise:g}. Use "
            "op.memory.Principal(m), which stores raw gradients and averages noisy rows."
        )
