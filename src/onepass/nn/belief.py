"""Belief: all that Kalman filters know of p weights, without a p × p matrix.

The covariance of the weights starts as s I. Rows change it along their gradients alone, so that
with Q (p × q) an orthonormal basis of the gradients so far, and Σ = C Cᵀ small,

    P = Q Σ Qᵀ + s (I − Q Qᵀ)                                                               (1)

exactly, and still so after P ← P / λ, P ← γ² P or P ← P + ρ I, which act on Σ and s alike. For rows
with gradients G and noise R = diag(r) >= 0, in the coordinates of [Q u], u what of G is new, are
taken in as :mod:`onepass.nn.gain` says: with

    F = Cᵀ [QᵀG; uᵀG],      S = Fᵀ F + R                                                    (2)
    w ← w + [Q u] C F S⁻¹ e,      C Cᵀ ← C (I − F S⁻¹ Fᵀ) Cᵀ                                (3)

but without a square, and a root of P stays, so that P cannot become indefinite. Of rows without
noise those of which nothing is left to move are skipped: the past wins.

Cost: three reads of the p q numbers of Q, four where little of G is new, and O(q² n) a step, O(q³)
with process noise; memory p q + q² numbers. q grows with the rows until it is p.
"""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from onepass import linalg
from onepass.columns import Columns
from onepass.errors import Array, Floats
from onepass.memory.evidence import Evidence
from onepass.nn import gain as gaining
from onepass.nn.gain import refuse_overflow, triangle
from onepass.update import Step, row_by_row

__all__ = ["Belief", "Covariance"]


@dataclass(frozen=True)
class Covariance:
    """The whole covariance of the weights, in the span of the gradients.

    Parameters
    ----------
    prior : float, default=1.0
        s of (1) before the first row, > 0.
    """

    merging: ClassVar[str] = "exact"

    prior: float = 1.0

    def per_output(self, c: int, p: int) -> "Covariance":
        """The memory of one output, whose directions all c outputs share."""
        del c, p
        return self

    def start(self, p: int, c: int, noise: float = 0.0, kind: Any = np.float64) -> "Belief":
        """The belief before the first row, about p weights.

        ``kind`` is a NumPy precision, or a tensor of the precision and on the device wanted.
        """
        del c, noise
        return Belief(Columns.start(p, kind), np.zeros((0, 0)), float(self.prior), 0)


@dataclass(frozen=True, eq=False, slots=True)
class Belief:
    """The covariance of the weights, the state of :class:`Covariance`.

    What is small is NumPy's, on whatever device the columns are: whether a gradient brings a new
    direction decides the size of all that follows, and is waited for once a step.

    Parameters
    ----------
    columns : Columns
        Q, the directions of the gradients so far.
    root : ndarray of shape (q, q)
        C, in float64.
    beyond : float
        s, the variance of a direction not seen yet.
    used : int
        Directions whose variance is zero for good, by rows without noise.
    """

    exact_in_blocks: ClassVar[bool] = True

    columns: Columns
    root: Floats
    beyond: float
    used: int

    @property
    def Q(self) -> Any:  # noqa: N802  the equations' letter
        """The directions seen, (p, q)."""
        return self.columns.matrix

    @property
    def rank(self) -> int:
        """The directions that no row can move any more."""
        return self.used

    @property
    def nbytes(self) -> int:
        """Bytes of what is kept, room for more included."""
        return self.columns.nbytes + int(self.root.nbytes)

    # -- learning --------------------------------------------------------------------------------

    def learn(self, w: Any, G: Any, e: Any, noise: Floats, *, group: int = 1) -> Step:
        """The Kalman step of a block of rows: (2), (3).

        Parameters
        ----------
        w : array of shape (p,) or (p, c)
        G : array of shape (p, n)
        e : array of shape (n,) or (n, c)
        noise : ndarray of shape (n,)
            R >= 0.
        group : int
            Neighbouring columns of G that belong to one row.

        Raises
        ------
        NumericalError
            If the variance of an answer is no number.
        """
        exact = not noise.any()
        if not exact and not noise.all():
            return row_by_row(self, w, G, e, noise, group)
        tau = linalg.resolution(G)
        with np.errstate(over="ignore", invalid="ignore"):
            wide, coordinates, lengths, said = self._widened(G, e, exact=exact)
            refuse_overflow(lengths**2)
            F = wide.root.T @ coordinates
            refuse_overflow((F if exact else F / np.sqrt(noise)) ** 2)
        flat = said.reshape(len(F.T), -1)
        if exact:
            gain = gaining.exact(wide.root, F, flat, tau * np.sqrt(self.beyond) * lengths)
        else:
            spread = np.sqrt(self.beyond) * lengths
            gain = gaining.noisy(wide.root, F, flat, np.sqrt(noise), spread)
        first = np.arange(len(flat)) // group
        errors = flat - np.where(first[None, :] < first[:, None], gain.L, 0.0) @ gain.nu  # of rows
        against = 0
        if not gain.kept.all():
            size = abs(flat) + (lengths * float(linalg.norms(w.reshape(-1, 1))[0]))[:, None]
            odd = (abs(errors) > 10.0 * tau * size).any(axis=1) & ~gain.kept
            against = int(odd.reshape(-1, group).any(axis=1).sum())
        w = w + wide.columns.combined(gain.moved).reshape(w.shape)  # (3)
        rank = int(gain.kept.sum()) if exact else 0
        memory = replace(wide, root=gain.root, used=self.used + rank)
        return Step(w, memory, errors.reshape(e.shape), rank, against)

    def _widened(self, G: Any, e: Any, *, exact: bool) -> tuple["Belief", Floats, Floats, Floats]:
        """With the directions that G brings; G in coordinates, (q, n), its lengths, and e.

        A device is waited for once, here, for all that decides.
        """
        split, p, q = self.columns.split(G), len(G), len(self.columns)
        lengths = linalg.norms(G)
        if q == p:
            inside, lengths, said = linalg.together(split.inside, lengths, e)
            return self, inside, lengths, said
        small = linalg.resolution(G) if exact else 4.0 * linalg.rounding(G) * np.sqrt(p)
        W, L, kept = linalg.orthonormal(split.outside, small * lengths)
        inside, height, kept, lengths, said = linalg.together(split.inside, L, kept, lengths, e)
        new = np.flatnonzero(kept)[: p - q]
        height = height[:, new].T
        if not len(new):
            return self, inside, lengths, said
        W = W if len(new) == W.shape[1] else W[:, new]
        if W.shape[1] > 1:  # rows that are nearly parallel blow up what is left of the past
            W = self.columns.split(W).outside
        root = np.zeros((q + len(new), q + len(new)))
        root[:q, :q] = self.root
        root.flat[q * (len(root) + 1) :: len(root) + 1] = np.sqrt(self.beyond)
        wide = replace(self, columns=self.columns.appended(W), root=root)
        return wide, np.vstack((inside, height)), lengths, said

    # -- time ------------------------------------------------------------------------------------

    def faded(self, factor: float, limit: float = np.inf) -> "Belief":
        """P ← P / factor: all that was learned counts for so much less, the prior included.

        Where s would come above the limit, P ← (factor · P⁻¹ + I / limit)⁻¹: a direction that no
        row excites would else wind up until it is no number.
        """
        if factor == 1.0:
            return self
        if self.beyond <= factor * limit:
            return replace(self, root=self.root / np.sqrt(factor), beyond=self.beyond / factor)
        floor = np.sqrt(factor) * np.eye(len(self.root))
        R = triangle(self.root / np.sqrt(limit), floor)
        s = self.beyond / (factor + self.beyond / limit)
        return replace(self, root=linalg.whitened(self.root, R), beyond=s)

    def drifted(self, decay: float, added: float) -> "Belief":
        """P ← decay² P + added · I: weights that shrink towards the start, and wander."""
        if decay == 1.0 and not added:
            return self
        root, s = decay * self.root, decay**2 * self.beyond
        if not added:
            return replace(self, root=root, beyond=s)
        noise = np.sqrt(added) * np.eye(len(root))
        root = triangle(root.T, noise).T
        return replace(self, root=root, beyond=s + added, used=0)

    # -- what it says ----------------------------------------------------------------------------

    def variances(self, G: Any) -> Floats:
        """gᵀ P g of each column of G (p, n), (n,)."""
        split = self.columns.split(G)
        inside, outside = linalg.together(split.inside, linalg.norms(split.outside))
        F = self.root.T @ inside
        whole = np.einsum("ij,ij->j", inside, inside) + outside**2
        outside = np.where(outside > linalg.blur(G) * np.sqrt(whole), outside, 0.0)
        variances: Floats = np.einsum("ij,ij->j", F, F) + self.beyond * outside**2
        return variances

    # -- merging ---------------------------------------------------------------------------------

    def evidence(self, w: Any, start: Any = None) -> Evidence:
        """What the rows said without the prior; ``start`` are the weights before the first row.

        Along an eigenvector u of Σ with the variance σ², where the weights moved by θ, one row of
        noise σ² s / (s − σ²) that was answered by θ s / (s − σ²) says the same.
        """
        before = w - w if start is None else start
        column = (len(w), -1)
        U, sigma = linalg.svd(self.root)
        s, rounding = self.beyond, 64.0 * np.finfo(float).eps
        share = np.clip(1.0 - sigma**2 / s, 0.0, 1.0)
        U, sigma, share = U[:, share > rounding], sigma[share > rounding], share[share > rounding]
        rows = self.columns.combined(U).T
        sigma = np.where(sigma > 1e-8 * np.sqrt(s), sigma, 0.0) if self.used else sigma
        moved = linalg.inner(rows.T, (w - before).reshape(column))
        said = linalg.inner(rows.T, before.reshape(column))
        answers = (said + moved / linalg.like(share, moved)[:, None]).reshape(-1, *w.shape[1:])
        return Evidence(rows, answers, sigma**2 / share, np.zeros(w.shape[1:]))

    def merged(self, w: Any, evidence: Evidence) -> Step:
        """The step of learning another belief's evidence: exact for a linear model."""
        return evidence.learned_by(self, w)

    def grown(self, p: int) -> "Belief":
        """The same with new weights at the end, zero in every row so far."""
        return replace(self, columns=self.columns.grown(p))

    def with_outputs(self, at: Array, c: int) -> "Belief":
        """The same: what is believed is of the weights."""
        del at, c
        return self
