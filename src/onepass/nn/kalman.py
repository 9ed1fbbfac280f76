"""Kalman filters of networks: an exact belief about p weights, without a p × p matrix.

A step linearises the network at the present weights, w_{k|k−1}, and takes rows in as a Kalman
filter would for which the linear model is true; then time passes, so that the next prediction is
made by the weights for the next row, w_{k+1|k}.

The covariance of the weights starts as s I. Rows change it along their gradients alone, so that
with Q (p × q) an orthonormal basis of the gradients so far, and Σ = C Cᵀ small,

    P = Q Σ Qᵀ + s (I − Q Qᵀ)                                                               (1)

exactly, and still so after P ← P / λ, P ← γ² P or P ← P + ρ I, which act on Σ and s alike. For rows
with gradients G, noise R = diag(r) >= 0 and errors e, u what of G is new, in coordinates [Q u],

    F = Cᵀ [QᵀG; uᵀG],      S = Fᵀ F + R = L Lᵀ                                             (2)
    w ← w + [Q u] C F S⁻¹ e,      C Cᵀ ← C (I − F S⁻¹ Fᵀ) Cᵀ                                (3)

and L⁻¹ e has the error of each row's prediction before it is learned. Nothing is squared, and the
root C is updated, not P, so that P cannot become indefinite: (3) is

    z = argmin ‖R^-½ (Fᵀ z − e)‖² + ‖z‖²,      w ← w + [Q u] C z                            (4)
    C ← C M,      M Mᵀ = (I + F R⁻¹ Fᵀ)⁻¹                                                   (5)

Rows that contradict each other, or depend on others, make S as ill-conditioned as 1 / R. So with
F = Q₁ T, Q₁ orthonormal, T triangular, only what rows say of a direction of their own is divided
by R, by QR of [R^-½ Tᵀ; I]:

    UᵀU = I + T R⁻¹ Tᵀ,    UᵀU x = T R⁻¹ e,    z = Q₁ x,    M = I + Q₁ (U⁻¹ − I) Q₁ᵀ         (6)

What of T is no longer than the rounding of F is left out: it would be a direction of its own, of
which nothing is known, moved by rounding / R. A root of P of some other shape is as good: with M of
(6), M Mᵀ = I − Q₁Q₁ᵀ + Q₁ (UᵀU)⁻¹ Q₁ᵀ. With R = 0 nothing of P is left in the span of F: W = F L⁻ᵀ
is orthonormal, and M = I − W Wᵀ. Rows of which nothing is left to move are skipped: the past wins.

Weights may follow a random walk that decays towards w₀:

    w_k = w₀ + γ (w_{k−1} − w₀) + N(0, ρ I)                                                 (7)

After each row then

    w ← w₀ + γ (w − w₀),        P ← γ² P + ρ I                                              (8)

Cost: three reads of the p q numbers of Q, four where little of G is new, and O(q² n) a step, O(q³)
with process noise; memory p q + q² numbers. q grows with the rows until it is p.

[1] R. H. Battin, "Astronautical Guidance", 1964; Potter's form of (6) for one number.
[2] A. Andrews, "A square root formulation of the Kalman covariance equations", AIAA Journal 6(6),
    1968; roots for several.
"""

import math
from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from numpy.typing import DTypeLike
from torch import Tensor

from onepass import linalg, validation
from onepass.errors import NumericalError, ParameterError
from onepass.linalg.subspace import OrthonormalBasis
from onepass.linalg.update import Step, row_by_row
from onepass.memory.evidence import Evidence
from onepass.nn.batch import Batch
from onepass.nn.learner import Learner
from onepass.serialization.codec import Role, register
from onepass.serialization.state import nbytes
from onepass.types import Array, ArrayOrTensor, Floats

__all__ = [
    "Covariance",
    "Dynamics",
    "Filter",
    "Gain",
    "PosteriorCovariance",
    "RandomWalkFilter",
    "Taken",
    "exact",
    "noisy",
    "refuse_overflow",
    "triangle",
]


_ROUNDING = 16.0 * float(np.finfo(np.float64).eps)


class Gain(NamedTuple):
    """What rows do in coordinates."""

    root: Floats
    """C after them."""
    moved: Floats
    """The change of the weights, (q, c)."""
    L: Floats
    nu: Floats
    """L⁻¹ e."""
    kept: Array
    """The rows that were not skipped."""


def exact(root: Floats, F: Floats, e: Floats, least: Floats) -> Gain:
    """R = 0; rows of which no more than ``least`` is free are skipped.

    Parameters
    ----------
    root : ndarray of shape (q, q)
        C.
    F : ndarray of shape (q, n)
    e : ndarray of shape (n, c)
    least : ndarray of shape (n,)
    """
    W, L, kept = linalg.orthonormal(F, least)
    nu = linalg.solve_lower(L, e) * kept[:, None]
    along = root @ W
    return Gain(root - along @ W.T, along @ nu, L, nu, kept)


def noisy(root: Floats, F: Floats, e: Floats, deviations: Floats, lengths: Floats) -> Gain:
    """R > 0: (6).

    Parameters
    ----------
    root, F, e
        As of :func:`exact`.
    deviations : ndarray of shape (n,)
        R^½.
    lengths : ndarray of shape (n,)
        √(gᵀ P g) of each row, had none come before it: F is as precise as rounding of these.
    """
    if len(e) == 1:
        return _one(root, F, e, float(deviations[0]))
    column = deviations[:, None]
    L = column * linalg.lower_from_rows(F.T / column)
    Q, T = np.linalg.qr(F)
    T = np.where(np.abs(T) > _ROUNDING * lengths, T, 0.0)
    k = len(T)
    U = triangle(np.hstack((T.T, e)) / column, np.eye(k, k + e.shape[1]))
    x = linalg.solve_upper(U[:k, :k], U[:k, k:])
    along = root @ Q
    left = linalg.whitened(along, np.asfortranarray(U[:k, :k]))
    after = (left - along) @ Q.T
    after += root
    return Gain(after, along @ x, L, linalg.solve_lower(L, e), np.ones(len(e), dtype=bool))


def _one(root: Floats, F: Floats, e: Floats, deviation: float) -> Gain:
    """(6) of one number, after J. E. Potter [1]: M = I − F Fᵀ / (σ (σ + √r)), σ² = S."""
    sigma = math.hypot(float(linalg.norms(F)[0]), deviation)
    nu, along = e / sigma, root @ F / sigma
    after = along * (F.T / (sigma + deviation))
    np.subtract(root, after, out=after)  # to map memory of this size anew costs most
    return Gain(after, along * nu, np.array([[sigma]]), nu, np.ones(1, dtype=bool))


def refuse_overflow(squares: Floats) -> None:
    """Refuse gradients, in units of what is known of the weights, whose squares are no numbers.

    Raises
    ------
    NumericalError
    """
    if not np.isfinite(squares).all():
        raise NumericalError(
            "Kalman step: the variance of an answer must be finite, got gradients so large that "
            "their squares are not. Scale the inputs, or give a smaller prior."
        )


def triangle(A: Floats, B: Floats) -> Floats:
    """R with RᵀR = AᵀA + BᵀB, without squaring either."""
    R: Any = np.linalg.qr(np.vstack((A, B)), mode="r")
    return np.asarray(R)


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

    def start(
        self, p: int, c: int, noise: float = 0.0, kind: DTypeLike | Tensor = np.float64
    ) -> "Belief":
        """The belief before the first row, about p weights.

        ``kind`` is a NumPy precision, or a tensor of the precision and on the device wanted.
        """
        del c, noise
        return PosteriorCovariance(
            OrthonormalBasis.start(p, kind), np.zeros((0, 0)), float(self.prior), 0
        )


@dataclass(frozen=True, eq=False, slots=True)
class PosteriorCovariance:
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
    lost: ClassVar[None] = None

    columns: OrthonormalBasis
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

    def learn(
        self, w: ArrayOrTensor, G: ArrayOrTensor, e: ArrayOrTensor, noise: Floats, *, group: int = 1
    ) -> Step:
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
        exactly = not noise.any()
        if not exactly and not noise.all():
            return row_by_row(self, w, G, e, noise, group)
        tau = linalg.resolution(G)
        with np.errstate(over="ignore", invalid="ignore"):
            wide, coordinates, lengths, said = self._widened(G, e, exact=exactly)
            refuse_overflow(lengths**2)
            F = wide.root.T @ coordinates
            refuse_overflow((F if exactly else F / np.sqrt(noise)) ** 2)
        flat = said.reshape(len(F.T), -1)
        if exactly:
            gain = exact(wide.root, F, flat, tau * np.sqrt(self.beyond) * lengths)
        else:
            spread = np.sqrt(self.beyond) * lengths
            gain = noisy(wide.root, F, flat, np.sqrt(noise), spread)
        first = np.arange(len(flat)) // group
        errors = flat - np.where(first[None, :] < first[:, None], gain.L, 0.0) @ gain.nu  # of rows
        against = 0
        if not gain.kept.all():
            size = abs(flat) + (lengths * float(linalg.norms(w.reshape(-1, 1))[0]))[:, None]
            odd = (abs(errors) > 10.0 * tau * size).any(axis=1) & ~gain.kept
            against = int(odd.reshape(-1, group).any(axis=1).sum())
        w = w + wide.columns.combined(gain.moved).reshape(w.shape)  # (3)
        rank = int(gain.kept.sum()) if exactly else 0
        memory = replace(wide, root=gain.root, used=self.used + rank)
        return Step(w, memory, errors.reshape(e.shape), rank, against)

    def forgetting_bound(self, new: object, old: object) -> float:
        """Return 0.0: no bound is known."""
        del new, old
        return 0.0

    def _widened(
        self, G: ArrayOrTensor, e: ArrayOrTensor, *, exact: bool
    ) -> tuple["Belief", Floats, Floats, Floats]:
        """With the directions that G brings; G in coordinates, (q, n), its lengths, and e.

        A device is waited for once, here, for all that decides.
        """
        split, p, q = self.columns.split(G), len(G), len(self.columns)
        lengths = linalg.norms(G)
        if q == p:
            inside, lengths, said = linalg.all_to_numpy(split.inside, lengths, e)
            return self, inside, lengths, said
        small = linalg.resolution(G) if exact else 4.0 * linalg.rounding(G) * np.sqrt(p)
        W, L, kept = linalg.orthonormal(split.outside, small * lengths)
        inside, height, kept, lengths, said = linalg.all_to_numpy(split.inside, L, kept, lengths, e)
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

    def variances(self, G: ArrayOrTensor) -> Floats:
        """gᵀ P g of each column of G (p, n), (n,)."""
        split = self.columns.split(G)
        inside, outside = linalg.all_to_numpy(split.inside, linalg.norms(split.outside))
        F = self.root.T @ inside
        whole = np.einsum("ij,ij->j", inside, inside) + outside**2
        outside = np.where(outside > linalg.blur(G) * np.sqrt(whole), outside, 0.0)
        variances: Floats = np.einsum("ij,ij->j", F, F) + self.beyond * outside**2
        return variances

    # -- merging ---------------------------------------------------------------------------------

    def evidence(self, w: ArrayOrTensor, start: "ArrayOrTensor | None" = None) -> Evidence:
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
        targets = (said + moved / linalg.like(share, moved)[:, None]).reshape(-1, *w.shape[1:])
        return Evidence(rows, targets, sigma**2 / share, np.zeros(w.shape[1:]))

    def merged(self, w: ArrayOrTensor, evidence: Evidence) -> Step:
        """The step of learning another belief's evidence: exact for a linear model."""
        return evidence.learned_by(self, w)

    def grown(self, p: int) -> "Belief":
        """The same with new weights at the end, zero in every row so far."""
        return replace(self, columns=self.columns.grown(p))

    def with_outputs(self, at: Array, c: int) -> "Belief":
        """The same: what is believed is of the weights."""
        del at, c
        return self


class Taken(NamedTuple):
    """What a step will do; nothing of the learner has changed yet."""

    belief: Any
    w: Tensor
    inconsistent_rows: int = 0


class Filter(Learner):
    """A network, and what is known of its weights: their covariance, in the span of gradients.

    Parameters
    ----------
    module : torch.nn.Module
    prior : float
        Variance of each weight before the first row, > 0.
    **options
        As in :class:`~onepass.nn.learner.Learner`.
    """

    kept: ClassVar[tuple[str, ...]] = (*Learner.kept, "_belief", "_against", "_full")
    _unmerged = (
        "a learner that tells its rows from time and prior must be given",
        (
            "Let one learner see all rows. Without forgetting or process noise "
            "op.nn.ORFit(memory=None, noise=noise / prior) is the same filter, and merges: exactly "
            "for modules linear in their weights, of others as far as their linearisations agree, "
            "so measure it with merge(other, rows=(x, y))."
        ),
    )

    def __init__(
        self,
        module: torch.nn.Module,
        *,
        prior: float,
        **options: Any,
    ) -> None:
        super().__init__(module, **options)
        self._prior = prior
        self._belief: Any = None
        self._against = 0

    # -- hooks -----------------------------------------------------------------------------------

    def _begin(self, c: int) -> Any:
        """The belief before the first row, of c outputs."""
        return Covariance(self._prior).start(self.network.p, c, self.noise, self._like)

    @abstractmethod
    def _taken(self, belief: Any, w: Tensor, e: Tensor, J: Tensor) -> Taken:
        """What rows with errors e (n, c) and gradients J (n·c, p) do, and their time."""

    # -- what is told ----------------------------------------------------------------------------

    @property
    def posterior_(self) -> Any:
        """What is known of the weights, for the next row; None before the first."""
        return self._belief

    @property
    def inconsistent_rows_(self) -> int:
        """Rows that no weight could be moved for, and that disagreed with the past."""
        return self._against

    @property
    def nbytes(self) -> int:
        """Bytes of what is kept beside the weights."""
        return nbytes(self._belief)

    # -- what stands behind them -----------------------------------------------------------------

    def _variances(self, where: str) -> Any:
        del where
        belief = self._begin(self._outputs or 1) if self._belief is None else self._belief
        return belief.variances

    def _tried(self) -> None:
        super()._tried()
        float(self._against)
        if self._belief is not None:
            self._belief.variances(self._like.new_zeros(1, self.network.p).T)

    def _learn(self, rows: Batch, e: Tensor, J: Tensor) -> None:
        del rows
        e, J = self._learnable(e, J)
        if not len(e):  # a row that is not learned lets no time pass
            return
        belief = self._begin(e.shape[1]) if self._belief is None else self._belief
        w = self._weights
        try:
            found = self._taken(belief, w, e, J)
            sound = bool(self._sound(found.w))
        except NumericalError:  # told with the rows whose gradients are not finite themselves
            sound = False
        if sound:
            self._told(found, w)
        else:
            self._refused = self._refused + len(e)

    def _learnable(self, e: Tensor, J: Tensor) -> tuple[Tensor, Tensor]:
        """The rows that were not refused and masked, whose errors and gradients are zero now.

        Of a device how many they are is waited for, as what is believed of the weights is anyway:
        they must leave no trace in what time does, nor in the size of what is kept.
        """
        n = len(e)
        count = n - int(self._refused - self._masked)
        if count == n:
            return e, J
        said = e.any(dim=1) | J.reshape(n, -1).any(dim=1)
        # without looking at numbers: those that say something first, of the others the first
        chosen = said.to(torch.int8).argsort(descending=True, stable=True)[:count].sort().values
        return e[chosen], J.reshape(n, e.shape[1], -1)[chosen].reshape(-1, J.shape[1])

    def _told(self, found: Taken, before: Tensor) -> None:
        """Be as after a step that was sound, from the weights before."""
        del before
        self._belief = found.belief
        self._against += found.inconsistent_rows
        self._take(found.w)

    def _filled(self) -> str | None:
        if self._belief is None or self._belief.rank < self.network.p:
            return None
        return (
            "rows without noise should be fewer than weights, got enough to settle all "
            f"{self.network.p}: nothing more can be learned. Use noise > 0, or a wider network."
        )


class RandomWalkFilter(Filter):
    """A filter of weights that wander.

    Parameters
    ----------
    module : torch.nn.Module
    prior : float
        Variance of each weight before the first row, > 0.
    process_noise : float
        ρ >= 0.
    decay : float
        γ in (0, 1].
    **options
        As in :class:`~onepass.nn.learner.Learner`.

    Raises
    ------
    ParameterError
        If a number is out of its range.
    """

    kept: ClassVar[tuple[str, ...]] = (*Filter.kept, "_dynamics.start")

    def __init__(
        self,
        module: torch.nn.Module,
        *,
        prior: float,
        process_noise: float,
        decay: float,
        **options: Any,
    ) -> None:
        where = f"op.nn.{type(self).__name__}"
        self.prior = validation.in_range(prior, "prior", where, above=0.0)
        self._dynamics = Dynamics(decay, process_noise, where)
        self.process_noise, self.decay = self._dynamics.process_noise, self._dynamics.decay
        super().__init__(module, prior=self.prior, **options)

    @abstractmethod
    def _measured(self, belief: Any, w: Tensor, e: Tensor, J: Tensor) -> Taken:
        """What rows with errors e (n, c) and gradients J (n·c, p) make of belief and weights."""

    @property
    def nbytes(self) -> int:
        """Bytes of what is kept beside the weights."""
        return super().nbytes + nbytes(self._dynamics.start)

    def _taken(self, belief: Any, w: Tensor, e: Tensor, J: Tensor) -> Taken:
        found = self._measured(belief, w, e, J)
        decay, added = self._dynamics.passed(len(e))
        new = self._dynamics.shrunk(found.w, w, decay)
        return found._replace(belief=found.belief.drifted(decay, added), w=new)  # (8)

    def _told(self, found: Taken, before: Tensor) -> None:
        self._dynamics.begun(before)
        super()._told(found, before)

    def _tried(self) -> None:
        super()._tried()
        if self._dynamics.start is not None:
            self._dynamics.start.reshape(self.network.p)


class Dynamics:
    """How weights wander from row to row: (7).

    Parameters
    ----------
    decay : float
        γ in (0, 1].
    process_noise : float
        ρ >= 0.
    where : str
        What the user called, for messages.

    Raises
    ------
    ParameterError
        If a number is out of its range.
    """

    def __init__(self, decay: float, process_noise: float, where: str) -> None:
        self.decay = validation.in_range(decay, "decay", where, low=0.0, high=1.0)
        self.process_noise = validation.in_range(process_noise, "process_noise", where, low=0.0)
        if not self.decay:
            raise ParameterError(
                f"{where}: `decay` must be above 0, got 0: then nothing of a row would be left for "
                "the next. Use 1 for weights that stay, or a number just below."
            )
        self.start: Any = None  # w₀, if it is needed

    def begun(self, w: Tensor) -> None:
        """Note the weights w₀ before the first row, if they are needed."""
        if self.decay < 1.0 and self.start is None:
            self.start = w.clone()

    def passed(self, n: int) -> tuple[float, float]:
        """γⁿ, and the variance that n rows' time adds: ρ (1 + γ² + … + γ²⁽ⁿ⁻¹⁾)."""
        square = self.decay**2
        times = float(n) if square == 1.0 else (1.0 - square**n) / (1.0 - square)
        return self.decay**n, self.process_noise * times

    def shrunk(self, w: Tensor, before: Tensor, decay: float) -> Tensor:
        """w₀ + decay · (w − w₀), where w₀ is that noted, or the weights before."""
        if decay == 1.0:
            return w
        start = before if self.start is None else self.start.to(w)
        return torch.lerp(start, w, decay)


register(Role.MEMORY, PosteriorCovariance)
