"""Principal: the m principal directions of all gradients so far; the memory of ORFit.

The projector on the free directions is P = I − UUᵀ, where U are the top m left singular vectors of
the raw gradients ([1] (8), Algorithm 3), the summary that minimises the worst-case change of
predictions on past rows by unknown future updates ([1] Proposition 4). With noise r > 0,

    P = I − U diag(σ² / (σ² + r)) Uᵀ                                                        (1)

which is exact ridge regression with Π = r · I until m directions are full; I − UUᵀ with R > 0 would
not be a Kalman filter. ``of="projected"`` is Algorithm 1 of [2] as printed: it retains v′ = P ∇f in
place of ∇f. v′ is orthogonal to U, so the small matrix is diagonal, its SVD only sorts lengths, and
no principal direction is formed; it exists for comparison.
Cost: O(mp) time per row, O(mp) memory, by the delayed rotation of
:class:`~onepass.linalg.subspace.Subspace`.

[1] Y. Min, K. Ahn, N. Azizan, "One-Pass Learning via Bridging Orthogonal Gradient Descent and
    Recursive Least-Squares", extended version.
[2] The conference version of [1], CDC 2022; Algorithm 1.

Certificate of forgetting: a bound on changes of predictions on past rows, computed from the dropped
directions.

Let w change by Δw, orthogonal to the directions U that a memory retains of the gradients g_1 … g_k
of all rows so far. The memory tracks a D with Σ g gᵀ ≤ U Σ² Uᵀ + D · I
(:mod:`onepass.linalg.subspace`). So for a model linear in its weights, predictions on past rows
change by at most

    √(Σ_j (g_jᵀ Δw)²) ≤ √D ‖Δw‖                                                            (1)

in one step: ``one_step`` is √D. Over all steps so far, each with the D_t before it, the predictions
have changed since each row was learned by at most

    √(Σ_j (change of prediction j)²) ≤ Σ_t √D_t ‖Δw_t‖                                      (2)

by the triangle inequality: ``all_steps``. For several outputs the squares are summed too. Each step
is orthogonal to a different U_t, so that √D ‖Σ_t Δw_t‖, with the last D, is *not* a bound of the
sum of steps. There is no bound for projected gradients, for directions dropped by age or at random,
or for steps with noise, which are not orthogonal to U.

Both bounds hold up to the rounding errors of the steps.

For models that are not linear in their weights the gradients of past rows change with w; then (2)
is an estimate.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np

from onepass import linalg, validation
from onepass.errors import ParameterError, public
from onepass.linalg.projection import Split
from onepass.linalg.subspace import OrthonormalBasis, Subspace, rank_one_step
from onepass.linalg.update import FittedStep, Step, fit
from onepass.memory.basis import refuse_noise
from onepass.memory.evidence import Evidence
from onepass.memory.protocols import MemoryState
from onepass.types import Array, ArrayOrTensor, Floats, Kind

_LEAST = 1e-37  # shorter gradients are ignored


@dataclass(frozen=True)
class Principal:
    """The m principal directions of all gradients so far.

    Parameters
    ----------
    m : int, default=100
        The maximum number of directions, >= 1.
    of : {"raw", "projected"}, default="raw"
        Whether these are directions of the gradients (extended paper), or of the projected
        gradients (Algorithm 1 of the paper of 2022, as printed).

    Raises
    ------
    ParameterError
        If m is not an integer >= 1, or ``of`` is unknown.
    """

    merging: ClassVar[str] = "approximate"

    m: int = 100
    of: Literal["raw", "projected"] = "raw"

    @public
    def __post_init__(self) -> None:
        validation.whole(self.m, "m", low=1)
        if self.of not in {"raw", "projected"}:
            raise ParameterError(
                f"`of` must be 'raw' or 'projected', got {self.of!r}. Use 'raw' for "
                "ORFit as in its extended paper."
            )

    def per_output(self, c: int, p: int) -> Principal | None:
        """The memory of one output if all c outputs share the directions, or None if not exact.

        The singular values for c outputs form groups of c equal values, which m must not split.
        """
        exact = self.of == "raw" and (self.m % c == 0 or self.m >= p)
        return Principal(self.m // c) if exact else None

    def start(self, p: int, c: int, noise: float = 0.0, kind: Kind = np.float64) -> PrincipalState:
        """The initial state, for p weights per output.

        ``kind`` is a NumPy dtype, or a tensor of the desired precision and device.

        Raises
        ------
        ParameterError
            If there is noise with projected gradients: P would not be a covariance.
        """
        if self.of == "projected":
            refuse_noise(noise)
        return PrincipalState(Subspace.start(p, int(self.m), kind, batch=c), float(noise), self.of)


class PendingStep(NamedTuple):
    """The step of one gradient, before the state is updated."""

    w: Any
    after: Callable[[], PrincipalState]
    """Update the state, and return it."""


@dataclass(frozen=True, eq=False, slots=True)
class PrincipalState:
    """The state of :class:`Principal`.

    Parameters
    ----------
    subspace : Subspace
        U and σ.
    noise : float
        r of (1).
    of : str
        ``"raw"`` or ``"projected"``.
    """

    exact_in_blocks: ClassVar[bool] = False

    subspace: Subspace
    noise: float
    of: str

    @property
    def rank(self) -> int:
        """The number of retained directions if they are not free (noise 0), else 0."""
        return 0 if self.noise else self.subspace.rank

    def learn(
        self, w: ArrayOrTensor, G: ArrayOrTensor, e: ArrayOrTensor, noise: Floats, *, group: int = 1
    ) -> Step:
        """The update equation for one row, or for a block as one augmented row ([1] (9)).

        Parameters
        ----------
        w : array of shape (p, c) or (p,)
        G : array of shape (p, n)
            The gradients of one row, or of all rows of a block.
        e : array of shape (n, c) or (n,)
        noise : ndarray of shape (n,)
            R: all zero, or all positive and near r, as r / s_k for row weights s_k.
        group : int
            The number of neighbouring columns of G that belong to one row.
        """
        found = self.pending(w, G, e, noise)
        if found is not None:
            new, memory = found.w, found.after()
            return Step(new, memory, e, memory.subspace.rank - self.subspace.rank, 0)
        free = self.split(G)
        fitted = fit(w, G, free.lifted, e, noise, group=group, basis=self.basis)
        memory = self.after(G, free, noise, fitted)
        rank = memory.subspace.rank - self.subspace.rank
        # a block is one augmented row: errors are those before the block
        return Step(fitted.w, memory, e, rank, fitted.inconsistent_rows)

    def pending(
        self, w: ArrayOrTensor, G: ArrayOrTensor, e: ArrayOrTensor, noise: Floats
    ) -> PendingStep | None:
        """The step of one gradient in NumPy, with less overhead than `learn`; else None.

        Parameters
        ----------
        w : ndarray of shape (p, c) or (p,)
        G : ndarray of shape (p, n)
        e : ndarray of shape (n, c) or (n,)
        noise : ndarray of shape (n,)
        """
        r = self.noise
        if len(noise) != 1 or noise[0] != r or self.of == "projected" or linalg.is_tensor(G):
            return None
        found = rank_one_step(self.subspace, G[:, 0], r)
        if found is None:
            return None
        height = found.length
        if r:
            pivot = r + float(linalg.inner(G, found.free[:, None])[0, 0])
            height = math.sqrt(pivot) if pivot > 0.0 else math.nan
        elif not height > max(linalg.resolution(G), linalg.resolution(self.basis)) * found.whole:
            return None
        if not height > _LEAST:
            return None
        step = linalg.moved(w, (found.free / height)[:, None], e.reshape(1, -1) / height)
        return PendingStep(step, lambda: PrincipalState(found.after(), r, self.of))

    @property
    def basis(self) -> Any:
        """The array of the directions, as rows, which determines the precision."""
        return self.subspace.B.rows

    def split(self, G: ArrayOrTensor) -> Split:
        """P G, as ``lifted``, by (1); and G in the coordinates of the subspace."""
        return self.subspace.split(G, self.noise)

    def after(
        self, G: ArrayOrTensor, free: Split, noise: Floats, fitted: FittedStep | None = None
    ) -> PrincipalState:
        """The state after the gradients G.

        Parameters
        ----------
        G : array of shape (p, n)
        free : Split
            The result of :meth:`split` for G.
        noise : ndarray of shape (n,)
        fitted : FittedStep, optional
            The step of these gradients. None if they are one part of a larger step.
        """
        space, near = self.subspace, linalg.like(G, free.lifted)
        if self.of == "projected":
            for j in (
                range(G.shape[1])
                if fitted is None
                else np.flatnonzero(linalg.host(fitted.retained))
            ):
                space = space.joined(free.lifted[:, j : j + 1])
        else:
            if self.noise and (noise != self.noise).any():
                free = _weighted(free, np.sqrt(self.noise / noise))
            space = space.added(near, free)
        return replace(self, subspace=space)

    @property
    def lost(self) -> float | None:
        """D of the certificate of forgetting (:mod:`onepass.memory.principal`), if there is one.

        None with noise, because steps are not orthogonal to U, and for projected gradients, because
        their lengths are not a bound.
        """
        return None if self.noise or self.of == "projected" else self.subspace.lost

    def forgetting_bound(self, new: ArrayOrTensor, old: ArrayOrTensor) -> Any:
        """Bound changes of predictions on past rows in a step after this state.

        √D ‖new − old‖, with ``max_lost`` in place of D; a tensor for weights on an accelerator.
        0 if no bound is known.
        """
        if self.noise or self.of == "projected":
            return 0.0
        bound = self.subspace.max_lost
        return math.sqrt(bound) * linalg.length(new - old) if bound else 0.0

    def settled(self) -> tuple[PrincipalState, OrthonormalBasis]:
        """The rotated state, and the basis of the directions that are not free."""
        space = self.subspace
        if len(space.B) > space.rank:
            space = space.turned()
        return replace(self, subspace=space), space.B

    def evidence(self, w: ArrayOrTensor, start: ArrayOrTensor | None = None) -> Evidence:
        """The directions, scaled by their singular values, with the predictions of w as targets.

        With noise r, the targets are σ uᵀw₀ + (σ² + r)/σ · uᵀ(w − w₀): the solution for the rows
        σ uᵀ and the prior around ``start`` (zeros if None) is then w.
        """
        space = self.subspace
        U, flat = space.U, w.reshape(len(w), -1)
        inside = linalg.inner(U, flat)
        sigma = linalg.like(space.sigma[:, None], inside)
        targets = sigma * inside
        if self.noise:
            moved = inside if start is None else inside - linalg.inner(U, start.reshape(flat.shape))
            targets = targets + self.noise / sigma * moved
        noise, rest = np.full(space.rank, self.noise), np.zeros(w.shape[1:])
        rows = linalg.times(U, np.diag(space.sigma)).T
        return Evidence(rows, targets.reshape(-1, *w.shape[1:]), noise, rest, space.lost)

    def merged(self, w: ArrayOrTensor, evidence: Evidence) -> Step:
        """Learn the evidence of another state as one block; the certificates add up."""
        step = evidence.learned_by(self, w)
        space = step.memory.subspace
        space = replace(space, closed=space.closed + evidence.lost)
        return step._replace(memory=replace(step.memory, subspace=space))

    def grown(self, p: int) -> PrincipalState:
        """Add weights at the end, whose gradients were zero in all rows so far."""
        return replace(self, subspace=self.subspace.grown(p))

    def with_outputs(self, at: Array, c: int) -> PrincipalState:
        """The state itself: outputs with the same features share the directions."""
        del at, c
        return self


def _weighted(split: Split, weights: Floats) -> Split:
    """Multiply vectors by weights."""
    scaled = (part * linalg.like(weights, part) for part in split)
    return Split(*scaled)


@dataclass(frozen=True)
class ForgettingBound:
    """A bound on changes of predictions on past rows.

    Parameters
    ----------
    one_step : float
        √D of (1): the maximum change of all past predictions together (root of the sum of
        squares) by a step of length 1 from the current state.
    all_steps : float
        The right side of (2): the maximum change by all steps so far, each prediction since its
        row was learned.
    kind : {"bound", "estimate", "none"}
        Whether the numbers are a bound, or an estimate, for a model that is not linear. If "none",
        no bound is known and both numbers are infinite.
    why : str
        Why no bound is known, or what an estimate omits; empty for a bound.
    """

    one_step: float
    all_steps: float
    kind: Literal["bound", "estimate", "none"]
    why: str = ""


def certified(
    memory: MemoryState | None, forgotten: float, *, noise: float, linear: bool
) -> ForgettingBound:
    """The certificate of a memory.

    Parameters
    ----------
    memory : state of a memory, or None
        None before the first row.
    forgotten : float
        The right side of (2).
    noise : float
    linear : bool
        Whether the model is linear in its weights.
    """
    lost = 0.0 if memory is None else memory.lost
    if noise:
        why = "with noise, rows are averaged: each step changes past predictions, as it should"
    elif lost is None:
        why = (
            "this memory drops directions without tracking a bound on their length; "
            "op.memory.Principal(m) and op.memory.Sketch(m) do"
        )
    elif math.isinf(forgotten):
        why = "earlier steps cannot be bounded: they were merged, or saved, without a bound"
    else:
        return ForgettingBound(math.sqrt(lost), forgotten, "bound" if linear else "estimate")
    return ForgettingBound(math.inf, math.inf, "none", why)
