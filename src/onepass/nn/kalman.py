"""Kalman filters over the weights of a network: exact covariance without a p × p matrix.

A step linearises the network at the current weights w_{k|k−1} and applies the measurement update of
a Kalman filter, then its time update, so that predictions are made with the weights for the next
row, w_{k+1|k}.

The covariance of the weights starts as s I. Rows change it only along their gradients, so that with
Q (p × q) an orthonormal basis of all gradients so far, and Σ = C Cᵀ (q × q),

    P = Q Σ Qᵀ + s (I − Q Qᵀ)                                                               (1)

exactly, also after P ← P / λ, P ← γ² P or P ← P + ρ I, which act on both Σ and s. For rows with
gradients G, noise R = diag(r) >= 0 and errors e, with u a basis of the part of G outside Q,

    F = Cᵀ [QᵀG; uᵀG],      S = Fᵀ F + R = L Lᵀ                                             (2)
    w ← w + [Q u] C F S⁻¹ e,      C Cᵀ ← C (I − F S⁻¹ Fᵀ) Cᵀ                                (3)

and L⁻¹ e contains the prequential error of each row. Nothing is squared, and the square root C is
updated instead of P, so that P cannot become indefinite: (3) is

    z = argmin ‖R^-½ (Fᵀ z − e)‖² + ‖z‖²,      w ← w + [Q u] C z                            (4)
    C ← C M,      M Mᵀ = (I + F R⁻¹ Fᵀ)⁻¹                                                   (5)

Contradictory or linearly dependent rows make S as ill-conditioned as 1 / R. With F = Q₁ T, Q₁
orthonormal and T triangular, only the component of a row independent of the others is therefore
divided by R, by QR of [R^-½ Tᵀ; I]:

    UᵀU = I + T R⁻¹ Tᵀ,    UᵀU x = T R⁻¹ e,    z = Q₁ x,    M = I + Q₁ (U⁻¹ − I) Q₁ᵀ         (6)

Entries of T within the rounding error of F are set to zero: they would be spurious directions,
moved by rounding / R. M of (6) is one of several square roots, with M Mᵀ = I − Q₁Q₁ᵀ + Q₁ (UᵀU)⁻¹
Q₁ᵀ. With R = 0, P becomes zero in the span of F: W = F L⁻ᵀ is orthonormal, and M = I − W Wᵀ. Rows
without a free direction are then skipped, in favour of the rows learned earlier.

The weights may follow a random walk that decays towards w₀:

    w_k = w₀ + γ (w_{k−1} − w₀) + N(0, ρ I)                                                 (7)

After each row,

    w ← w₀ + γ (w − w₀),        P ← γ² P + ρ I                                              (8)

Cost of a step: three reads of the p q numbers of Q (four if G is nearly in their span) and O(q² n),
O(q³) with process noise; memory p q + q² numbers. q grows with the rows, up to p.

[1] R. H. Battin, "Astronautical Guidance", 1964; Potter's form of (6) for scalar measurements.
[2] A. Andrews, "A square root formulation of the Kalman covariance equations", AIAA Journal 6(6),
    1968; the form for vector measurements.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from numpy.typing import DTypeLike
from torch import Tensor

from onepass import linalg, validation
from onepass.errors import NumericalError, ParameterError, public
from onepass.linalg.subspace import OrthonormalBasis
from onepass.linalg.update import Step, row_by_row
from onepass.memory.evidence import Evidence
from onepass.nn.batch import Batch
from onepass.nn.learner import Learner
from onepass.serialization.codec import Role, register
from onepass.serialization.state import nbytes
from onepass.types import Array, ArrayOrTensor, Floats

_ROUNDING = 16.0 * float(np.finfo(np.float64).eps)


class KalmanUpdate(NamedTuple):
    """Measurement update in the coordinates of Q."""

    root: Floats
    """C after the update."""
    moved: Floats
    """The change of the weights, (q, c)."""
    L: Floats
    nu: Floats
    """L⁻¹ e."""
    accepted: Array
    """Mask of the rows that were not skipped."""


def exact(root: Floats, F: Floats, e: Floats, least: Floats) -> KalmanUpdate:
    """Update for R = 0; rows whose free component is at most ``least`` are skipped.

    Parameters
    ----------
    root : ndarray of shape (q, q)
        C.
    F : ndarray of shape (q, n)
    e : ndarray of shape (n, c)
    least : ndarray of shape (n,)
    """
    W, L, accepted = linalg.orthonormal(F, least)
    nu = linalg.solve_lower(L, e) * accepted[:, None]
    along = root @ W
    return KalmanUpdate(root - along @ W.T, along @ nu, L, nu, accepted)


def noisy(root: Floats, F: Floats, e: Floats, deviations: Floats, lengths: Floats) -> KalmanUpdate:
    """Update (6) for R > 0.

    Parameters
    ----------
    root, F, e
        As in :func:`exact`.
    deviations : ndarray of shape (n,)
        R^½.
    lengths : ndarray of shape (n,)
        Prior √(gᵀ P g) of each row, which sets the rounding error of F.
    """
    if len(e) == 1:
        return _single_row(root, F, e, float(deviations[0]))
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
    return KalmanUpdate(after, along @ x, L, linalg.solve_lower(L, e), np.ones(len(e), dtype=bool))


def _single_row(root: Floats, F: Floats, e: Floats, deviation: float) -> KalmanUpdate:
    """Update by (6) with one row, after J. E. Potter [1]: M = I − F Fᵀ / (σ (σ + √r)), σ² = S."""
    sigma = math.hypot(float(linalg.norms(F)[0]), deviation)
    nu, along = e / sigma, root @ F / sigma
    after = along * (F.T / (sigma + deviation))
    np.subtract(root, after, out=after)  # in place: allocation would dominate the cost
    return KalmanUpdate(after, along * nu, np.array([[sigma]]), nu, np.ones(1, dtype=bool))


def refuse_overflow(squares: Floats) -> None:
    """Raise if squares of scaled gradients are not finite.

    Raises
    ------
    NumericalError
    """
    if not np.isfinite(squares).all():
        raise NumericalError(
            "the variance of an output must be finite, got gradients whose squares overflow. Scale "
            "the inputs, or use a smaller prior.",
            "Kalman step",
        )


def triangle(A: Floats, B: Floats) -> Floats:
    """Return the triangular R with RᵀR = AᵀA + BᵀB, by QR, without squaring."""
    R: Any = np.linalg.qr(np.vstack((A, B)), mode="r")
    return np.asarray(R)


@dataclass(frozen=True)
class Covariance:
    """Specification of a full covariance of the weights, in the span of the gradients.

    Parameters
    ----------
    prior : float, default=1.0
        Initial s of (1), > 0.
    """

    merging: ClassVar[str] = "exact"

    prior: float = 1.0

    def per_output(self, c: int, p: int) -> Covariance:
        """Return the specification for memories whose directions all outputs share."""
        del c, p
        return self

    def start(
        self, p: int, c: int, noise: float = 0.0, kind: DTypeLike | Tensor = np.float64
    ) -> PosteriorCovariance:
        """Create the prior covariance of p weights.

        ``kind`` is a NumPy dtype, or a tensor that sets the dtype and the device.
        """
        del c, noise
        return PosteriorCovariance(
            OrthonormalBasis.start(p, kind), np.zeros((0, 0)), float(self.prior), 0
        )


@dataclass(frozen=True, eq=False, slots=True)
class PosteriorCovariance:
    """Covariance of the weights, the state of :class:`Covariance`.

    Small matrices are NumPy arrays on any device. The number of new directions determines array
    sizes, so that each step synchronises with an accelerator once.

    Parameters
    ----------
    columns : OrthonormalBasis
        Q, an orthonormal basis of all gradients so far.
    root : ndarray of shape (q, q)
        C, in float64.
    beyond : float
        s, the variance of directions outside Q.
    used : int
        Number of directions with variance zero, determined by rows without noise.
    """

    exact_in_blocks: ClassVar[bool] = True
    lost: ClassVar[None] = None

    columns: OrthonormalBasis
    root: Floats
    beyond: float
    used: int

    @property
    def Q(self) -> Any:  # noqa: N802  the equations' letter
        """The orthonormal basis Q, (p, q)."""
        return self.columns.matrix

    @property
    def rank(self) -> int:
        """Number of directions that no row can change any more."""
        return self.used

    @property
    def nbytes(self) -> int:
        """Size in bytes, including reserved capacity."""
        return self.columns.nbytes + int(self.root.nbytes)

    # -- learning --------------------------------------------------------------------------------

    def learn(
        self, w: ArrayOrTensor, G: ArrayOrTensor, e: ArrayOrTensor, noise: Floats, *, group: int = 1
    ) -> Step:
        """Apply the measurement update (2), (3) for a block of rows.

        Parameters
        ----------
        w : array of shape (p,) or (p, c)
        G : array of shape (p, n)
        e : array of shape (n,) or (n, c)
        noise : ndarray of shape (n,)
            R >= 0.
        group : int
            Number of consecutive columns of G that belong to one row.

        Raises
        ------
        NumericalError
            If the variance of an output is not finite.
        """
        exactly = not noise.any()
        if not exactly and not noise.all():
            return row_by_row(self, w, G, e, noise, group)
        tau = linalg.resolution(G)
        with np.errstate(over="ignore", invalid="ignore"):
            wide, coordinates, lengths, residuals = self._extended(G, e, exact=exactly)
            refuse_overflow(lengths**2)
            F = wide.root.T @ coordinates
            refuse_overflow((F if exactly else F / np.sqrt(noise)) ** 2)
        flat = residuals.reshape(len(F.T), -1)
        if exactly:
            gain = exact(wide.root, F, flat, tau * np.sqrt(self.beyond) * lengths)
        else:
            spread = np.sqrt(self.beyond) * lengths
            gain = noisy(wide.root, F, flat, np.sqrt(noise), spread)
        row = np.arange(len(flat)) // group
        # prequential errors of rows
        errors = flat - np.where(row[None, :] < row[:, None], gain.L, 0.0) @ gain.nu
        inconsistent = 0
        if not gain.accepted.all():
            size = abs(flat) + (lengths * float(linalg.norms(w.reshape(-1, 1))[0]))[:, None]
            large = (abs(errors) > 10.0 * tau * size).any(axis=1) & ~gain.accepted
            inconsistent = int(large.reshape(-1, group).any(axis=1).sum())
        w = w + wide.columns.combined(gain.moved).reshape(w.shape)  # (3)
        rank = int(gain.accepted.sum()) if exactly else 0
        memory = replace(wide, root=gain.root, used=self.used + rank)
        return Step(w, memory, errors.reshape(e.shape), rank, inconsistent)

    def forgetting_bound(self, new: object, old: object) -> float:
        """Return 0.0: there is no bound."""
        del new, old
        return 0.0

    def _extended(
        self, G: ArrayOrTensor, e: ArrayOrTensor, *, exact: bool
    ) -> tuple[PosteriorCovariance, Floats, Floats, Floats]:
        """Extend Q by the new directions of G.

        Return the covariance, G in coordinates (q, n), its column norms, and e.

        Synchronises with an accelerator once.
        """
        split, p, q = self.columns.split(G), len(G), len(self.columns)
        lengths = linalg.norms(G)
        if q == p:
            inside, lengths, residuals = linalg.all_to_numpy(split.inside, lengths, e)
            return self, inside, lengths, residuals
        small = linalg.resolution(G) if exact else 4.0 * linalg.rounding(G) * np.sqrt(p)
        W, L, accepted = linalg.orthonormal(split.outside, small * lengths)
        inside, height, accepted, lengths, residuals = linalg.all_to_numpy(
            split.inside, L, accepted, lengths, e
        )
        new = np.flatnonzero(accepted)[: p - q]
        height = height[:, new].T
        if not len(new):
            return self, inside, lengths, residuals
        W = W if len(new) == W.shape[1] else W[:, new]
        W = self.columns.reorthogonalized(W) if W.shape[1] > 1 else W
        root = np.zeros((q + len(new), q + len(new)))
        root[:q, :q] = self.root
        root.flat[q * (len(root) + 1) :: len(root) + 1] = np.sqrt(self.beyond)
        wide = replace(self, columns=self.columns.appended(W), root=root)
        return wide, np.vstack((inside, height)), lengths, residuals

    # -- time ------------------------------------------------------------------------------------

    def discounted(self, factor: float, limit: float = np.inf) -> PosteriorCovariance:
        """Apply exponential forgetting, P ← P / factor, including the prior.

        If s would exceed ``limit``, P ← (factor · P⁻¹ + I / limit)⁻¹, which prevents wind-up of
        unexcited directions.
        """
        if factor == 1.0:
            return self
        if self.beyond <= factor * limit:
            return replace(self, root=self.root / np.sqrt(factor), beyond=self.beyond / factor)
        floor = np.sqrt(factor) * np.eye(len(self.root))
        R = triangle(self.root / np.sqrt(limit), floor)
        s = self.beyond / (factor + self.beyond / limit)
        return replace(self, root=linalg.whitened(self.root, R), beyond=s)

    def with_process_noise(self, decay: float, added: float) -> PosteriorCovariance:
        """Apply the time update P ← decay² P + added · I."""
        if decay == 1.0 and not added:
            return self
        root, s = decay * self.root, decay**2 * self.beyond
        if not added:
            return replace(self, root=root, beyond=s)
        noise = np.sqrt(added) * np.eye(len(root))
        root = triangle(root.T, noise).T
        return replace(self, root=root, beyond=s + added, used=0)

    # -- uncertainty ----------------------------------------------------------------------------

    def variances(self, G: ArrayOrTensor) -> Floats:
        """Return gᵀ P g of each column of G (p, n), of shape (n,)."""
        split = self.columns.split(G)
        inside, outside = linalg.all_to_numpy(split.inside, linalg.norms(split.outside))
        F = self.root.T @ inside
        whole = np.einsum("ij,ij->j", inside, inside) + outside**2
        outside = np.where(outside > linalg.blur(G) * np.sqrt(whole), outside, 0.0)
        variances: Floats = np.einsum("ij,ij->j", F, F) + self.beyond * outside**2
        return variances

    # -- merging ---------------------------------------------------------------------------------

    def evidence(self, w: ArrayOrTensor, start: ArrayOrTensor | None = None) -> Evidence:
        """Return pseudo-rows equivalent to the learned rows; ``start`` are the initial weights.

        Along an eigenvector u of Σ with variance σ², in which the weights changed by θ, the rows
        are equivalent to one row with noise σ² s / (s − σ²) and target θ s / (s − σ²).
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
        initial = linalg.inner(rows.T, before.reshape(column))
        targets = (initial + moved / linalg.like(share, moved)[:, None]).reshape(-1, *w.shape[1:])
        return Evidence(rows, targets, sigma**2 / share, np.zeros(w.shape[1:]))

    def merged(self, w: ArrayOrTensor, evidence: Evidence) -> Step:
        """Learn the evidence of another memory: exact for a linear model."""
        return evidence.learned_by(self, w)


class FilterStep(NamedTuple):
    """Result of a step, not yet applied to the learner."""

    belief: Any
    w: Tensor
    inconsistent_rows: int = 0


class Filter(Learner):
    """Base class of Kalman filters over the weights of a network.

    Parameters
    ----------
    module : torch.nn.Module
    prior : float
        Variance of each weight before the first row, > 0.
    **options
        As in :class:`~onepass.nn.learner.Learner`.
    """

    _state_attributes: ClassVar[tuple[str, ...]] = (
        *Learner._state_attributes,  # noqa: SLF001  of the base class
        "_posterior",
        "_inconsistent",
        "_full",
    )
    _merge_requirement = (
        "the learner must store its rows separately from forgetting and prior",
        (
            "Learn all rows with one learner. Without forgetting or process noise "
            "op.nn.ORFit(memory=None, noise=noise / prior) is the same filter and can be merged: "
            "exactly for modules linear in their weights, otherwise approximately, so check the "
            "result with merge(other, rows=(x, y))."
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
        self._posterior: Any = None
        self._inconsistent = 0

    # -- hooks -----------------------------------------------------------------------------------

    def _begin(self, c: int) -> Any:
        """Create the prior covariance or precision for c outputs."""
        return Covariance(self._prior).start(self.network.p, c, self.noise, self.network.like)

    @abstractmethod
    def _filter_step(self, belief: Any, w: Tensor, e: Tensor, J: Tensor) -> FilterStep:
        """Compute both updates for rows with errors e (n, c) and gradients J (n·c, p)."""

    # -- attributes ----------------------------------------------------------------------------

    @property
    def posterior_(self) -> Any:
        """Covariance or precision of the weights for the next row; None before the first."""
        return self._posterior

    @property
    def inconsistent_rows_(self) -> int:
        """Number of rows without a free direction that contradict past rows."""
        return self._inconsistent

    @property
    def nbytes(self) -> int:
        """Size of the state in bytes, without the weights."""
        return nbytes(self._posterior)

    # -- helpers -----------------------------------------------------------------

    def _variances(self) -> Any:
        belief = self._begin(self._outputs or 1) if self._posterior is None else self._posterior
        return belief.variances

    def _check_restored(self) -> None:
        super()._check_restored()
        float(self._inconsistent)
        if self._posterior is not None:
            self._posterior.variances(self.network.like.new_zeros(1, self.network.p).T)

    def _learn(self, rows: Batch, e: Tensor, J: Tensor) -> None:
        del rows
        e, J = self._accepted_rows(e, J)
        if not len(e):  # no time update for rows that are not learned
            return
        belief = self._begin(e.shape[1]) if self._posterior is None else self._posterior
        w = self._weights
        try:
            step = self._filter_step(belief, w, e, J)
            finite = bool(self._is_finite(step.w))
        except NumericalError:  # reported together with rows whose gradients are not finite
            finite = False
        if not finite:
            self._refused = self._refused + len(e)
            return
        self._posterior = step.belief
        self._inconsistent += step.inconsistent_rows
        self._set_weights(step.w)

    def _accepted_rows(self, e: Tensor, J: Tensor) -> tuple[Tensor, Tensor]:
        """Return rows that were not rejected; on an accelerator, rejected rows were set to zero.

        Synchronises with an accelerator: rejected rows must not affect the time update or the size
        of the covariance.
        """
        n = len(e)
        count = n - int(self._refused - self._masked)
        if count == n:
            return e, J
        informative = e.any(dim=1) | J.reshape(n, -1).any(dim=1)
        # without reading values: non-zero rows first, then the first of the others
        chosen = (
            informative.to(torch.int8).argsort(descending=True, stable=True)[:count].sort().values
        )
        return e[chosen], J.reshape(n, e.shape[1], -1)[chosen].reshape(-1, J.shape[1])

    def _full_message(self) -> str | None:
        if self._posterior is None or self._posterior.rank < self.network.p:
            return None
        return (
            "rows without noise should be fewer than weights, got enough to determine all "
            f"{self.network.p}: further rows cannot be learned. Use noise > 0, or a wider network."
        )


class RandomWalkFilter(Filter):
    """Kalman filter for weights that follow a random walk with decay.

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
        If an argument is out of range.
    """

    _state_attributes: ClassVar[tuple[str, ...]] = (*Filter._state_attributes, "_dynamics.start")  # noqa: SLF001  of the base class

    @public
    def __init__(
        self,
        module: torch.nn.Module,
        *,
        prior: float,
        process_noise: float,
        decay: float,
        **options: Any,
    ) -> None:
        self.prior = validation.in_range(prior, "prior", above=0.0)
        self._dynamics = Dynamics(decay, process_noise)
        self.process_noise, self.decay = self._dynamics.process_noise, self._dynamics.decay
        super().__init__(module, prior=self.prior, **options)

    @abstractmethod
    def _measurement_update(self, belief: Any, w: Tensor, e: Tensor, J: Tensor) -> FilterStep:
        """Compute the measurement update for rows with errors e (n, c) and gradients J (n·c, p)."""

    @property
    def nbytes(self) -> int:
        """Size of the state in bytes, without the weights."""
        return super().nbytes + nbytes(self._dynamics.start)

    def _filter_step(self, belief: Any, w: Tensor, e: Tensor, J: Tensor) -> FilterStep:
        found = self._measurement_update(belief, w, e, J)
        if self._posterior is None and self._dynamics.decay < 1.0:
            self._dynamics.start = w.clone()
        decay, added = self._dynamics.over_rows(len(e))
        new = self._dynamics.decayed(found.w, decay)
        return found._replace(belief=found.belief.with_process_noise(decay, added), w=new)  # (8)

    def _check_restored(self) -> None:
        super()._check_restored()
        if self._posterior is not None and self._dynamics.decay < 1.0:
            self._dynamics.start.reshape(self.network.p)


class Dynamics:
    """Random walk of the weights between rows: (7).

    Parameters
    ----------
    decay : float
        γ in (0, 1].
    process_noise : float
        ρ >= 0.

    Raises
    ------
    ParameterError
        If an argument is out of range.
    """

    def __init__(self, decay: float, process_noise: float) -> None:
        self.decay = validation.in_range(decay, "decay", low=0.0, high=1.0)
        self.process_noise = validation.in_range(process_noise, "process_noise", low=0.0)
        if not self.decay:
            raise ParameterError(
                "`decay` must be above 0, got 0, which discards everything learned from a row "
                "before the next. Use 1 for constant weights, or a number just below."
            )
        self.start: Any = None  # w₀, with decay

    def over_rows(self, n: int) -> tuple[float, float]:
        """Return γⁿ, and the variance added over n rows: ρ (1 + γ² + … + γ²⁽ⁿ⁻¹⁾)."""
        square = self.decay**2
        times = float(n) if square == 1.0 else (1.0 - square**n) / (1.0 - square)
        return self.decay**n, self.process_noise * times

    def decayed(self, w: Tensor, decay: float) -> Tensor:
        """Return w₀ + decay · (w − w₀)."""
        return w if decay == 1.0 else torch.lerp(self.start.to(w), w, decay)


register(Role.MEMORY, PosteriorCovariance)
