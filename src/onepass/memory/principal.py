"""Principal: the m principal directions of all gradients so far. The memory of ORFit.

The directions still free are P = I − UUᵀ, U the top m left singular vectors of the raw gradients
([1] (8), Algorithm 3), which is the summary that minimises the worst-case forgetting of past
answers by unknown future updates ([1] Proposition 4). With noise r > 0,

    P = I − U diag(σ² / (σ² + r)) Uᵀ                                                        (1)

which is exact ridge regression with Π = r · I until m directions are full; I − UUᵀ with R > 0
would be no Kalman filter at all. ``of="projected"`` is Algorithm 1 of [2] as printed: it keeps
v′ = P ∇f in place of ∇f. v′ is orthogonal to U, so the small matrix is diagonal, its SVD only
sorts lengths, and no principal direction is formed; it exists for comparison.
Cost: O(mp) time a row, O(mp) memory, by the late-turning
:class:`~onepass.linalg.subspace.Subspace`.

[1] Y. Min, K. Ahn, N. Azizan, "One-Pass Learning via Bridging Orthogonal Gradient Descent and
    Recursive Least-Squares", extended version.
[2] The same, CDC 2022; Algorithm 1.

Certificate of forgetting: how far past answers can have moved, from what was let go.

Let w move by Δw, orthogonal to the directions U that a memory keeps of the gradients g_1 … g_k of
all rows so far. The memory knows a D with Σ g gᵀ ≤ U Σ² Uᵀ + D · I
(:mod:`onepass.linalg.subspace`), and so, of a model linear in its weights, past answers move by no
more than

    √(Σ_j (g_jᵀ Δw)²) ≤ √D ‖Δw‖                                                            (1)

by one step: ``one_step`` is √D. By all steps so far, each with the D_t before it, the answers have
moved since each row was learned by no more than

    √(Σ_j (change of answer j)²) ≤ Σ_t √D_t ‖Δw_t‖                                          (2)

since the lengths of vectors of changes add up at most: ``all_steps``. Of several outputs the
squares are summed as well. Each step is orthogonal to another U_t, so that √D ‖Σ_t Δw_t‖, with the
last D, is *no* bound of their sum; nor is there one for the lengths of projected gradients, for
directions let go by age or by lot, or for steps with noise, which are not orthogonal to U.

Both hold but for the rounding of the steps themselves, as do all numbers here.

Of models that are not linear in their weights the gradients of past rows turn while w moves; then
(2) is an estimate.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np

from onepass import linalg, validation
from onepass.errors import ParameterError
from onepass.linalg.subspace import OrthonormalBasis, Split, Subspace, rank_one_step
from onepass.linalg.update import Fitted, Step, fit
from onepass.memory.basis import refuse_noise
from onepass.memory.evidence import Evidence
from onepass.memory.protocols import MemoryState
from onepass.types import Array, ArrayOrTensor, Floats, Kind

__all__ = ["ForgettingBound", "Pending", "Principal", "PrincipalState", "certified"]


_LEAST = 1e-37  # of a shorter length nothing is made


@dataclass(frozen=True)
class Principal:
    """The m principal directions of all gradients so far.

    Parameters
    ----------
    m : int, default=100
        Directions kept at most, >= 1.
    of : {"raw", "projected"}, default="raw"
        Of the gradients themselves (extended paper), or of what was left of them after
        projection (Algorithm 1 of 2022, as printed).

    Raises
    ------
    ParameterError
        If m is no whole number >= 1, or ``of`` is unknown.
    """

    merging: ClassVar[str] = "approximate"

    m: int = 100
    of: Literal["raw", "projected"] = "raw"

    def __post_init__(self) -> None:
        validation.whole(self.m, "m", "memory.Principal", low=1)
        if self.of not in {"raw", "projected"}:
            raise ParameterError(
                f"memory.Principal: `of` must be 'raw' or 'projected', got {self.of!r}. "
                "'raw' is ORFit as its extended paper has it."
            )

    def per_output(self, c: int, p: int) -> "Principal | None":
        """The memory of one output, whose directions all c outputs share, or None if not exact.

        Singular values of c outputs come in groups of c equal ones, which m must not cut.
        """
        exact = self.of == "raw" and (self.m % c == 0 or self.m >= p)
        return Principal(self.m // c) if exact else None

    def start(self, p: int, c: int, noise: float = 0.0, kind: Kind = np.float64) -> "Components":
        """The memory of no rows, for p weights an output.

        ``kind`` is a NumPy precision, or a tensor of the precision and on the device wanted.

        Raises
        ------
        ParameterError
            If there is noise, of projected gradients: P would be no covariance of any rows.
        """
        if self.of == "projected":
            refuse_noise(noise, "memory.Principal(of='projected')")
        return PrincipalState(Subspace.start(p, int(self.m), kind, room=c), float(noise), self.of)


class Pending(NamedTuple):
    """The step of one gradient; nothing has been written yet."""

    w: Any
    after: "Callable[[], Components]"
    """Learn it; give the memory after it."""


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
        """The directions kept, of which none is free without noise."""
        return 0 if self.noise else self.subspace.rank

    def learn(
        self, w: ArrayOrTensor, G: ArrayOrTensor, e: ArrayOrTensor, noise: Floats, *, group: int = 1
    ) -> Step:
        """The one equation for one row, or for a block as one augmented row ([1] (9)).

        Parameters
        ----------
        w : array of shape (p, c) or (p,)
        G : array of shape (p, n)
            A row's gradients, or those of all rows of a block.
        e : array of shape (n, c) or (n,)
        noise : ndarray of shape (n,)
            R: all zero, or all positive and near r, as r / s_k for row weights s_k.
        group : int
            Neighbouring columns of G that belong to one row.
        """
        found = self.pending(w, G, e, noise)
        if found is not None:
            new, memory = found.w, found.after()
            return Step(new, memory, e, memory.subspace.rank - self.subspace.rank, 0)
        free = self.split(G)
        fitted = fit(w, G, free.lifted, e, noise, group=group, basis=self.basis)
        memory = self.after(G, free, noise, fitted)
        rank = memory.subspace.rank - self.subspace.rank
        # the rows of a block are learned as one: each is said by the weights before the block
        return Step(fitted.w, memory, e, rank, fitted.inconsistent_rows)

    def pending(
        self, w: ArrayOrTensor, G: ArrayOrTensor, e: ArrayOrTensor, noise: Floats
    ) -> Pending | None:
        """The step of one gradient, NumPy's, that is new, where calls cost most; None of others.

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
        return Pending(step, lambda: PrincipalState(found.after(), r, self.of))

    @property
    def basis(self) -> Any:
        """What the directions are made of, as rows, for its precision."""
        return self.subspace.B.rows

    def split(self, G: ArrayOrTensor) -> Split:
        """P G, as ``lifted``, by (1); and G in the coordinates of the subspace."""
        return self.subspace.split(G, self.noise)

    def after(
        self, G: ArrayOrTensor, free: Split, noise: Floats, fitted: Fitted | None = None
    ) -> "Components":
        """The memory after the rows of G have come.

        Parameters
        ----------
        G : array of shape (p, n)
        free : Split
            What :meth:`split` said of it.
        noise : ndarray of shape (n,)
        fitted : Fitted, optional
            Their step. Without it, they are learned among others in a step of many parts.
        """
        space, near = self.subspace, linalg.like(G, free.lifted)
        if self.of == "projected":
            for j in (
                range(G.shape[1]) if fitted is None else np.flatnonzero(linalg.host(fitted.kept))
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

        With noise steps are not orthogonal to U; the lengths of projected gradients bound nothing.
        """
        return None if self.noise or self.of == "projected" else self.subspace.lost

    def forgetting_bound(self, new: ArrayOrTensor, old: ArrayOrTensor) -> Any:
        """By how much past answers can have moved with the weights, in a step after this memory.

        √D ‖new − old‖, the D a little larger than ``lost`` where that is dear; of a device, a
        tensor there. 0 where nothing is known.
        """
        if self.noise or self.of == "projected":
            return 0.0
        most = self.subspace.max_lost
        return math.sqrt(most) * linalg.length(new - old) if most else 0.0

    def settled(self) -> tuple["Components", OrthonormalBasis]:
        """The same memory turned, and the directions that are not free to move as its columns."""
        space = self.subspace
        if len(space.B) > space.rank:
            space = space.turned()
        return replace(self, subspace=space), space.B

    def evidence(self, w: ArrayOrTensor, start: ArrayOrTensor | None = None) -> Evidence:
        """The directions, as long as their singular values, and what w says of them.

        With noise r they are answered so that the rows σ uᵀ and the prior around ``start`` (zeros
        if None) give w back: σ uᵀw₀ + (σ² + r)/σ · uᵀ(w − w₀).
        """
        space = self.subspace
        U, flat = space.U, w.reshape(len(w), -1)
        said = linalg.inner(U, flat)
        sigma = linalg.like(space.sigma[:, None], said)
        targets = sigma * said
        if self.noise:
            moved = said if start is None else said - linalg.inner(U, start.reshape(flat.shape))
            targets = targets + self.noise / sigma * moved
        noise, rest = np.full(space.rank, self.noise), np.zeros(w.shape[1:])
        rows = linalg.times(U, np.diag(space.sigma)).T
        return Evidence(rows, targets.reshape(-1, *w.shape[1:]), noise, rest, space.lost)

    def merged(self, w: ArrayOrTensor, evidence: Evidence) -> Step:
        """The step of learning another memory's evidence as one block; the certificates add up."""
        step = evidence.learned_by(self, w)
        space = step.memory.subspace
        space = replace(space, closed=space.closed + evidence.lost)
        return step._replace(memory=replace(step.memory, subspace=space))

    def grown(self, p: int) -> "Components":
        """The same with new weights at the end, zero in every row so far."""
        return replace(self, subspace=self.subspace.grown(p))

    def with_outputs(self, at: Array, c: int) -> "Components":
        """The same: outputs that share their features share the directions."""
        del at, c
        return self


def _weighted(split: Split, weights: Floats) -> Split:
    """Vectors of which each is so many times as long."""
    scaled = (part * linalg.like(weights, part) for part in split)
    return Split(*scaled)


@dataclass(frozen=True)
class ForgettingBound:
    """How far past answers can have moved.

    Parameters
    ----------
    one_step : float
        √D of (1): by how much, at most, a step of length 1 that the memory as it is lets pass moves
        all past answers together (root of the sum of squares).
    all_steps : float
        The right side of (2): by how much, at most, all steps so far have moved them, each since
        its row was learned.
    kind : {"bound", "estimate", "none"}
        Whether it cannot be exceeded, is only as good as the model is linear, or there is none:
        then both are infinite.
    why : str
        Why there is none, or what an estimate does not count; empty of a bound.
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
        With ``lost``, its D, or None; before the first row there is no memory, and no answer.
    forgotten : float
        The right side of (2).
    noise : float
    linear : bool
        Whether the model is linear in its weights.
    """
    lost = 0.0 if memory is None else memory.lost
    if noise:
        why = "with noise, rows are averaged: each step moves past answers, as it should"
    elif lost is None:
        why = (
            "this memory lets directions go without keeping count of what they carried; "
            "op.memory.Principal(m) and op.memory.Sketch(m) do"
        )
    elif math.isinf(forgotten):
        why = "what was learned before cannot be bounded: it was merged, or saved, without a count"
    else:
        return ForgettingBound(math.sqrt(lost), forgotten, "bound" if linear else "estimate")
    return ForgettingBound(math.inf, math.inf, "none", why)
