"""Incremental principal component analysis in bounded memory.

For rows x_1, x_2, … with weights s, mass M_n = Σ s and mean m_n, the vectors

    v_n = √(s_n M_{n−1} / M_n) · (x_n − m_{n−1}),    m_n = m_{n−1} + s_n / M_n (x_n − m_{n−1})  (1)

satisfy Σ v vᵀ = Σ s (x − m_n)(x − m_n)ᵀ exactly for every n: past vectors need no correction when
the mean moves, unlike in [1] for whole batches. The state consists of the top k principal axes V of
all v up to some row, their lengths σ, and the vectors since then, at most ``block`` of them; then

    [σ V; v …] = Ũ Σ̃ Ṽᵀ,    V ← Ṽ[:k],    σ ← Σ̃[:k]                                     (2)

which is the sequential Karhunen-Loève algorithm [2], applied after a fixed number of rows,
independent of the division into blocks. A batch, such as a task, can be added as a whole
(:meth:`IncrementalPCAState.joined`), as in scikit-learn's IncrementalPCA.

Rows are transformed by a :class:`PrincipalAxes`: axes and mean that change only at checkpoints,
which follow rows 1, 2, 4, … and then each application of (2).

Cost: O(d (k + block)) memory; the share of a row in (2) is O(d (k + block)² / block).

[1] D. Ross, J. Lim, R.-S. Lin, M.-H. Yang, "Incremental learning for robust visual tracking",
    International Journal of Computer Vision 77, 2008.
[2] A. Levey, M. Lindenbaum, "Sequential Karhunen-Loeve basis extraction and its application to
    images", IEEE Transactions on Image Processing 9(8), 2000.

If the axes are learned from the first n rows only, and memory of O(d min(n, d)) is allowed, they
are the exact principal axes of these rows.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from onepass import linalg, validation
from onepass.errors import ParameterError
from onepass.linalg.subspace import OrthonormalBasis
from onepass.types import Array, Floats

_PIECE = 4096  # rows per QR
_LEAST = 1e-12  # share of the variance attributed to rounding


@dataclass(frozen=True, eq=False, slots=True)
class PrincipalAxes:
    """Mean and principal axes that transform rows.

    Parameters
    ----------
    center : ndarray of shape (d,)
        The mean, which is subtracted from each row.
    directions : ndarray of shape (k, d)
        Orthonormal rows, by decreasing length.
    lengths : ndarray of shape (k,)
        σ: the root of the weighted sum of squares along each axis.
    mass : float
        The sum of the weights of the rows at the checkpoint.
    trace : float
        The total variance, times the mass.
    """

    center: Floats
    directions: Floats
    lengths: Floats
    mass: float
    trace: float

    def of(self, X: Floats) -> Floats:
        """Coordinates (n, k) of rows X (n, d)."""
        seen: Floats = (X - self.center) @ self.directions.T
        return seen


@dataclass(frozen=True, eq=False, slots=True)
class IncrementalPCAState:
    """State of incremental PCA: mean and principal axes of the rows so far.

    Parameters
    ----------
    n_components : int or float
        k: the number of axes, or the share of the variance that they must explain.
    block : int
        Rows between two truncations.
    mean : ndarray of shape (d,)
        m_n.
    mass : float
        M_n.
    rows : int
        n.
    trace : float
        Σ ‖v‖²: the total variance, times M_n.
    retained : PrincipalAxes
        V and σ of the last truncation.
    recent : OrthonormalBasis
        The vectors since then, as rows.
    view : PrincipalAxes
        The axes of the last checkpoint, which transform rows.
    """

    n_components: float
    block: int
    mean: Floats
    mass: float
    rows: int
    trace: float
    retained: PrincipalAxes
    recent: OrthonormalBasis
    view: PrincipalAxes

    @classmethod
    def start(cls, d: int, n_components: float, block: int) -> IncrementalPCAState:
        """The state before the first row, for d features."""
        no_axes = PrincipalAxes(np.zeros(d), np.zeros((0, d)), np.zeros(0), 0.0, 0.0)
        recent = OrthonormalBasis.start(d, np.float64, block)
        return cls(n_components, block, np.zeros(d), 0.0, 0, 0.0, no_axes, recent, no_axes)

    def checkpoints(self, n: int) -> Iterator[int]:
        """The checkpoints within the next n rows, as numbers of rows from now; n is the last."""
        now, end = self.rows, self.rows + n
        while now < end:
            due = (now // self.block + 1) * self.block
            if now < self.block:
                due = min(due, 1 << now.bit_length())
            now = min(due, end)
            yield now - self.rows

    def taken(self, X: Floats, s: Floats | None = None) -> IncrementalPCAState:
        """Add rows X (n, d) of weights s (n,), at most up to the next checkpoint."""
        new = self.extended(X, s)
        if new.rows % self.block == 0:
            return new.truncated()
        if new.rows < self.block and new.rows & (new.rows - 1) == 0:
            return replace(new, view=new.current_axes())
        return new

    def extended(self, X: Floats, s: Floats | None = None) -> IncrementalPCAState:
        """Add rows X (n, d), at most up to the next truncation, without updating ``view``."""
        mean, mass, vectors = self._centred_vectors(X, s)
        trace = self.trace + float(np.einsum("ij,ij->", vectors, vectors))
        return replace(
            self,
            mean=mean,
            mass=mass,
            rows=self.rows + len(X),
            trace=trace,
            recent=self.recent.appended(vectors.T),
        )

    def joined(self, X: Floats, s: Floats | None = None) -> IncrementalPCAState:
        """Add rows X (n, d) of weights s (n,) as one batch, and truncate."""
        new, parts = (
            self,
            [self.retained.directions * self.retained.lengths[:, None], self.recent.rows],
        )
        for i in range(0, len(X), _PIECE):
            piece = slice(i, i + _PIECE)
            mean, mass, vectors = new._centred_vectors(X[piece], None if s is None else s[piece])
            trace = new.trace + float(np.einsum("ij,ij->", vectors, vectors))
            new = replace(new, mean=mean, mass=mass, rows=new.rows + len(vectors), trace=trace)
            last = i + _PIECE >= len(X)
            F = np.vstack((*parts, vectors))
            parts = [F if last else np.linalg.qr(F, mode="r")]  # of the same FᵀF
        return new.along(np.vstack(parts))

    def current_axes(self, k: int | None = None) -> PrincipalAxes:
        """The axes of all rows so far, at most the first k if given."""
        if self.view.mass == self.mass:
            return self.view
        retained = self.retained.directions * self.retained.lengths[:, None]
        view = self._principal_axes(np.vstack((retained, self.recent.rows)))
        return replace(view, directions=view.directions[:k], lengths=view.lengths[:k])

    def truncated(self) -> IncrementalPCAState:
        """Truncate to k axes (2)."""
        retained = self.retained.directions * self.retained.lengths[:, None]
        return self.along(np.vstack((retained, self.recent.rows)))

    def merged(self, other: IncrementalPCAState) -> IncrementalPCAState:
        """The truncated state for the rows of both states."""
        if not other.mass:
            return self
        mass = self.mass + other.mass
        apart = other.mean - self.mean
        mean = self.mean + other.mass / mass * apart
        between = np.sqrt(self.mass * other.mass / mass) * apart
        parts = [
            part
            for one in (self, other)
            for part in (one.retained.directions * one.retained.lengths[:, None], one.recent.rows)
        ]
        trace = self.trace + other.trace + float(between @ between)
        rows = self.rows + other.rows
        new = replace(self, mean=mean, mass=mass, rows=rows, trace=trace)
        return new.along(np.vstack((*parts, between[None, :])))

    @property
    def _sound(self) -> bool:
        """Whether the shapes are consistent and all numbers finite."""
        if self.mean.ndim != 1 or self.rows < 0 or self.block < 0:
            return False
        for view in (self.retained, self.view):
            k, d = len(view.lengths), len(self.mean)
            shapes = (view.center.shape, view.directions.shape, view.lengths.shape)
            if type(view) is not PrincipalAxes or shapes != ((d,), (k, d), (k,)):
                return False
            if not linalg.finite(view.center, view.directions, view.lengths):
                return False
        sums = (self.mass, self.trace, self.view.mass, self.view.trace)
        good = all(math.isfinite(each) and each >= 0.0 for each in sums)
        wide = self.recent.rows.shape[1:] == self.mean.shape
        return good and wide and linalg.finite(self.mean, self.recent.rows)

    @property
    def nbytes(self) -> int:
        """Memory of all arrays, in bytes."""
        views = [self.retained] if self.retained is self.view else [self.retained, self.view]
        arrays = [a for view in views for a in (view.center, view.directions, view.lengths)]
        return self.mean.nbytes + self.recent.nbytes + sum(a.nbytes for a in arrays)

    @property
    def finite(self) -> bool:
        """Whether all sums are finite."""
        return linalg.finite(self.mean, np.array([self.mass, self.trace]))

    def fixed(self) -> IncrementalPCAState:
        """The state for transforming rows only, without the data that learning requires."""
        none = OrthonormalBasis.start(len(self.mean), np.float64)
        return replace(self, retained=self.view, recent=none)

    def placed(self, at: Array, d: int) -> IncrementalPCAState:
        """Move the features to the columns ``at`` of d; the others were zero in all rows so far."""

        def wide(view: PrincipalAxes) -> PrincipalAxes:
            center, directions = np.zeros(d), np.zeros((len(view.directions), d))
            center[at], directions[:, at] = view.center, view.directions
            return replace(view, center=center, directions=directions)

        mean, recent = np.zeros(d), np.zeros((len(self.recent), d))
        mean[at], recent[:, at] = self.mean, self.recent.rows
        return replace(
            self,
            mean=mean,
            retained=wide(self.retained),
            recent=OrthonormalBasis(recent, self.block),
            view=wide(self.view),
        )

    def grown(self, d: int) -> IncrementalPCAState:
        """Add features at the end, which were zero in all rows so far."""
        return self.placed(np.arange(len(self.mean)), d)

    def moved(self, origins: Floats) -> IncrementalPCAState:
        """The state after features that were 0 in all rows so far were at these values instead."""
        return replace(self, mean=self.mean + origins) if self.mass and origins.any() else self

    def _centred_vectors(self, X: Floats, s: Floats | None) -> tuple[Floats, float, Floats]:
        """Mean and mass after rows, and the vectors of these rows (1)."""
        weights = np.ones(len(X)) if s is None else s
        masses = self.mass + np.cumsum(weights)
        before = masses - weights
        origin = (
            self.mean if self.mass else X[0]
        )  # leading digits common to all rows cancel exactly
        off = X - origin
        moved = np.cumsum(weights[:, None] * off, axis=0) / masses[:, None]  # m_n − origin
        mean = origin + moved[-1]
        off[1:] -= moved[:-1]
        off *= np.sqrt(weights * before / masses)[:, None]
        return mean, float(masses[-1]), off

    def along(self, F: Floats) -> IncrementalPCAState:
        """Replace all vectors by the principal axes of the rows of F (q, d)."""
        view = self._principal_axes(F)
        return replace(
            self,
            retained=view,
            recent=OrthonormalBasis.start(F.shape[1], np.float64, self.block),
            view=view,
        )

    def _principal_axes(self, F: Floats) -> PrincipalAxes:
        """The k principal axes of the rows of F."""
        share = self.n_components if isinstance(self.n_components, float) else None
        max_axes = min(F.shape) if share is not None else int(self.n_components)
        directions, lengths = linalg.principal(F, max_axes)
        if share is not None:
            k = retained_axes(lengths, share, self.trace)
            k = min(
                max(k, len(self.view.lengths)), len(lengths)
            )  # the number of axes never decreases
            directions, lengths = directions[:k].copy(), lengths[:k].copy()
        return PrincipalAxes(self.mean, directions, lengths, self.mass, self.trace)


def retained_axes(lengths: Floats, n_components: float, total: float) -> int:
    """The number of axes to retain, of these lengths in decreasing order.

    Parameters
    ----------
    lengths : ndarray of shape (k,)
    n_components : int or float
        The number of axes, or the share of the sum of squared lengths that they must retain.
    total : float
        The sum of squared lengths of all axes.
    """
    if isinstance(n_components, int):
        return min(n_components, len(lengths))
    had = np.cumsum(lengths**2) / (total or 1.0)
    return min(int(np.searchsorted(had, n_components * (1.0 - _LEAST))) + 1, len(lengths))


_MIN_BLOCK = 128


def checked_components(given: object) -> float:
    """Validate ``n_components``: an int is a number of axes, a float is a share of the variance.

    Raises
    ------
    ParameterError
        If ``n_components`` is neither.
    """
    if isinstance(given, (float, np.floating)) and not isinstance(given, bool):
        share = float(given)
        if 0.0 < share < 1.0:
            return share
    elif isinstance(given, (int, np.integer)) and not isinstance(given, bool) and given >= 1:
        return int(given)
    raise ParameterError(
        "`n_components` must be a whole number >= 1, or a share of the variance in (0, "
        f"1), got {given!r}. Construct the estimator with another `n_components`."
    )


def rows_between(block: object, k: float, d: int) -> int:
    """The number of rows between two truncations.

    Raises
    ------
    ParameterError
        If ``block`` is not an integer >= 1.
    """
    if block is not None:
        return validation.whole(block, "block", low=1)
    return max(_MIN_BLOCK, 2 * min(k, d) if isinstance(k, int) else 0)


def initial_state(d: int, k: float, rows: int, block: int | None) -> IncrementalPCAState:
    """The state before the first row, for axes that are learned from the first rows only.

    Parameters
    ----------
    d : int
    k : int or float
        The number of axes, or a share of the variance.
    rows : int
        The number of rows that the axes are learned from.
    block : int or None
        Rows between two truncations to k; None for exact axes without truncation.
    """
    if block is not None:
        return IncrementalPCAState.start(d, k, block)
    return IncrementalPCAState.start(d, rows, min(rows, max(_MIN_BLOCK, 2 * d)))


def accumulate(axes: IncrementalPCAState, X: Floats, rows: int, k: float) -> IncrementalPCAState:
    """Add rows X, all among the first ``rows`` rows; freeze the axes after the last of these."""
    begin = 0
    while begin < len(X):
        end = min(len(X), begin + axes.block - axes.rows % axes.block)
        axes, begin = axes.extended(X[begin:end]), end
        if axes.rows % axes.block == 0 and axes.rows < rows:
            axes = axes.truncated()
    return frozen_axes(axes, k) if axes.rows >= rows else axes


def frozen_axes(axes: IncrementalPCAState, k: float) -> IncrementalPCAState:
    """The top k axes of the rows so far, without the data that learning requires."""
    d = len(axes.mean)
    view = (
        axes.view if axes.n_components == k else no_axes(d)
    )  # with a share, the number of axes never decreases
    final = replace(axes, n_components=k if isinstance(k, float) else min(k, d), view=view)
    return replace(final.truncated().fixed(), block=1)


def no_axes(d: int) -> PrincipalAxes:
    """An empty set of axes for d features."""
    return PrincipalAxes(np.zeros(d), np.zeros((0, d)), np.zeros(0), 0.0, 0.0)
