"""Incremental principal component analysis: axes of all rows so far, in bounded memory.

Of rows x_1, x_2, … with weights s, mass M_n = Σ s and mean m_n, the vectors

    v_n = √(s_n M_{n−1} / M_n) · (x_n − m_{n−1}),    m_n = m_{n−1} + s_n / M_n (x_n − m_{n−1})  (1)

have Σ v vᵀ = Σ s (x − m_n)(x − m_n)ᵀ, exactly and at every n: no vector of the past has to be
corrected when the mean moves, as it has to be in [1] for whole batches. Without centring v is
√s x. Kept are the top k principal axes V of all v up to some row, their lengths σ, and the vectors
since then, ``block`` of them at most; then

    [σ V; v …] = Ũ Σ̃ Ṽᵀ,    V ← Ṽ[:k],    σ ← Σ̃[:k]                                     (2)

which is the sequential Karhunen-Loève algorithm [2], done after so many rows, wherever the stream
was cut. A batch of its own, such as a task, can be taken as a whole (:meth:`Axes.joined`): that is
incremental PCA as scikit-learn has it.

Rows are *seen* through a :class:`PrincipalAxes`, axes and mean that stay as they are between two looks:
after rows 1, 2, 4, … and then whenever (2) is done.

Cost: O(d (k + room)) memory; a row's share of (2) is O(d (k + room)² / room).

[1] D. Ross, J. Lim, R.-S. Lin, M.-H. Yang, "Incremental learning for robust visual tracking",
    International Journal of Computer Vision 77, 2008.
[2] A. Levey, M. Lindenbaum, "Sequential Karhunen-Loeve basis extraction and its application to
    images", IEEE Transactions on Image Processing 9(8), 2000.

If axes are learned from the first n rows only, and memory of O(d min(n, d)) is allowed, they are
the exact axes of these rows.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from onepass import linalg, validation
from onepass.errors import ParameterError
from onepass.linalg.subspace import OrthonormalBasis
from onepass.types import Array, Floats

__all__ = [
    "IncrementalPCAState",
    "PrincipalAxes",
    "accumulate",
    "checked_components",
    "frozen_axes",
    "initial_state",
    "no_axes",
    "rows_between",
]


_PIECE = 4096  # rows whose products are summed at once
_LEAST = 1e-12  # share of the variance that is rounding


@dataclass(frozen=True, eq=False, slots=True)
class PrincipalAxes:
    """Axes that rows are seen along.

    Parameters
    ----------
    center : ndarray of shape (d,)
        What is taken from each row; zeros without centring.
    directions : ndarray of shape (k, d)
        Orthonormal rows, those of the greatest lengths first.
    lengths : ndarray of shape (k,)
        σ: the root of the weighted sum of squares along each.
    mass : float
        The rows' weights together, when they were looked at.
    trace : float
        The whole variance, times the mass.
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
    """Mean and principal axes of the rows so far.

    Parameters
    ----------
    n_components : int or float
        k: a number of axes, or the share of the variance that they must have.
    block : int
        Rows between two truncations.
    centred : bool
        Whether the rows' mean is taken from them.
    mean : ndarray of shape (d,)
        m_n, also without centring.
    mass : float
        M_n.
    rows : int
        n.
    trace : float
        Σ ‖v‖²: the whole variance, times M_n.
    kept : View
        V and σ of the last truncation.
    since : Columns
        The vectors since then, as rows.
    view : View
        What rows are seen through.
    """

    n_components: float
    block: int
    centred: bool
    mean: Floats
    mass: float
    rows: int
    trace: float
    kept: PrincipalAxes
    since: OrthonormalBasis
    view: PrincipalAxes

    @classmethod
    def start(cls, d: int, n_components: float, block: int, *, centred: bool = True) -> "Axes":
        """No rows yet, of d numbers each."""
        no_axes = PrincipalAxes(np.zeros(d), np.zeros((0, d)), np.zeros(0), 0.0, 0.0)
        since = OrthonormalBasis.start(d, np.float64, block)
        return cls(n_components, block, centred, np.zeros(d), 0.0, 0, 0.0, no_axes, since, no_axes)

    def checkpoints(self, n: int) -> Iterator[int]:
        """Where, within the next n rows, the axes are looked at: counts from here on, n at last."""
        now, end = self.rows, self.rows + n
        while now < end:
            due = (now // self.block + 1) * self.block
            if now < self.block:
                due = min(due, 1 << now.bit_length())
            now = min(due, end)
            yield now - self.rows

    def taken(self, X: Floats, s: Floats | None = None) -> "Axes":
        """The axes after rows X (n, d), no more than up to the next look, of weights s (n,)."""
        new = self.noted(X, s)
        if new.rows % self.block == 0:
            return new.truncated()
        if new.rows < self.block and new.rows & (new.rows - 1) == 0:
            return replace(new, view=new.current_axes())
        return new

    def noted(self, X: Floats, s: Floats | None = None) -> "Axes":
        """The same with rows X (n, d), no more than up to the next truncation, not looked at."""
        mean, mass, vectors = self._apart(X, s)
        trace = self.trace + float(np.einsum("ij,ij->", vectors, vectors))
        return replace(
            self,
            mean=mean,
            mass=mass,
            rows=self.rows + len(X),
            trace=trace,
            since=self.since.appended(vectors.T),
        )

    def joined(self, X: Floats, s: Floats | None = None) -> "Axes":
        """The axes after rows X (n, d) as one batch, truncated after it, of weights s (n,)."""
        new, parts = self, [self.kept.directions * self.kept.lengths[:, None], self.since.rows]
        for i in range(0, len(X), _PIECE):
            piece = slice(i, i + _PIECE)
            mean, mass, vectors = new._apart(X[piece], None if s is None else s[piece])
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
        kept = self.kept.directions * self.kept.lengths[:, None]
        view = self._top(np.vstack((kept, self.since.rows)))
        return replace(view, directions=view.directions[:k], lengths=view.lengths[:k])

    def truncated(self) -> "Axes":
        """The same, truncated now (2)."""
        kept = self.kept.directions * self.kept.lengths[:, None]
        return self.along(np.vstack((kept, self.since.rows)))

    def merged(self, other: "Axes") -> "Axes":
        """The axes of the rows of both, truncated now."""
        if not other.mass:
            return self
        mass = self.mass + other.mass
        apart = other.mean - self.mean
        mean = self.mean + other.mass / mass * apart
        between = np.sqrt(self.mass * other.mass / mass) * apart * self.centred
        parts = [
            part
            for one in (self, other)
            for part in (one.kept.directions * one.kept.lengths[:, None], one.since.rows)
        ]
        trace = self.trace + other.trace + float(between @ between)
        rows = self.rows + other.rows
        new = replace(self, mean=mean, mass=mass, rows=rows, trace=trace)
        return new.along(np.vstack((*parts, between[None, :])))

    @property
    def _sound(self) -> bool:
        """Whether the parts fit together."""
        if self.mean.ndim != 1 or self.rows < 0 or self.block < 0 or type(self.centred) is not bool:
            return False
        for view in (self.kept, self.view):
            k, d = len(view.lengths), len(self.mean)
            shapes = (view.center.shape, view.directions.shape, view.lengths.shape)
            if type(view) is not PrincipalAxes or shapes != ((d,), (k, d), (k,)):
                return False
            if not linalg.finite(view.center, view.directions, view.lengths):
                return False
        sums = (self.mass, self.trace, self.view.mass, self.view.trace)
        good = all(math.isfinite(each) and each >= 0.0 for each in sums)
        wide = self.since.rows.shape[1:] == self.mean.shape
        return good and wide and linalg.finite(self.mean, self.since.rows)

    @property
    def nbytes(self) -> int:
        """Bytes of all that is kept."""
        views = [self.kept] if self.kept is self.view else [self.kept, self.view]
        arrays = [a for view in views for a in (view.center, view.directions, view.lengths)]
        return self.mean.nbytes + self.since.nbytes + sum(a.nbytes for a in arrays)

    def fixed(self) -> "Axes":
        """The same without what further rows would need: what rows are seen through."""
        none = OrthonormalBasis.start(len(self.mean), np.float64)
        return replace(self, kept=self.view, since=none)

    def placed(self, at: Array, d: int) -> "Axes":
        """With its columns at these places among d, the others zero in every row so far."""

        def wide(view: PrincipalAxes) -> PrincipalAxes:
            center, directions = np.zeros(d), np.zeros((len(view.directions), d))
            center[at], directions[:, at] = view.center, view.directions
            return replace(view, center=center, directions=directions)

        mean, since = np.zeros(d), np.zeros((len(self.since), d))
        mean[at], since[:, at] = self.mean, self.since.rows
        return replace(
            self,
            mean=mean,
            kept=wide(self.kept),
            since=OrthonormalBasis(since, self.block),
            view=wide(self.view),
        )

    def grown(self, d: int) -> "Axes":
        """With new columns at the end, zero in every row so far."""
        return self.placed(np.arange(len(self.mean)), d)

    def _apart(self, X: Floats, s: Floats | None) -> tuple[Floats, float, Floats]:
        """Mean and mass after rows, and their vectors (1)."""
        weights = np.ones(len(X)) if s is None else s
        masses = self.mass + np.cumsum(weights)
        before = masses - weights
        origin = self.mean if self.mass else X[0]  # digits that all rows share cancel, exactly
        off = X - origin
        moved = np.cumsum(weights[:, None] * off, axis=0) / masses[:, None]  # m_n − origin
        mean = origin + moved[-1]
        if not self.centred:
            return mean, float(masses[-1]), np.sqrt(weights)[:, None] * X
        off[1:] -= moved[:-1]
        off *= np.sqrt(weights * before / masses)[:, None]
        return mean, float(masses[-1]), off

    def along(self, F: Floats) -> "Axes":
        """The same with nothing kept but the principal axes of these vectors (q, d)."""
        view = self._top(F)
        return replace(
            self,
            kept=view,
            since=OrthonormalBasis.start(F.shape[1], np.float64, self.block),
            view=view,
        )

    def _top(self, F: Floats) -> PrincipalAxes:
        """The k principal axes of the rows of F."""
        share = self.n_components if isinstance(self.n_components, float) else None
        most = min(F.shape) if share is not None else int(self.n_components)
        directions, lengths = linalg.principal(F, most)
        if share is not None:
            had = np.cumsum(lengths**2) / (self.trace or 1.0)
            k = int(np.searchsorted(had, share * (1.0 - _LEAST))) + 1
            k = min(max(k, len(self.view.lengths)), len(lengths))  # never fewer than before
            directions, lengths = directions[:k].copy(), lengths[:k].copy()
        center = self.mean if self.centred else np.zeros_like(self.mean)
        return PrincipalAxes(center, directions, lengths, self.mass, self.trace)


_LEAST_BLOCK = 128


def checked_components(given: object, who: str) -> float:
    """A number of axes as an int, or a share of the variance as a float.

    Raises
    ------
    ParameterError
        If it is neither.
    """
    if isinstance(given, (float, np.floating)) and not isinstance(given, bool):
        share = float(given)
        if 0.0 < share < 1.0:
            return share
    elif isinstance(given, (int, np.integer)) and not isinstance(given, bool) and given >= 1:
        return int(given)
    raise ParameterError(
        f"{who}: `n_components` must be a whole number >= 1, or a share of the variance in (0, 1), "
        f"got {given!r}. Construct it with another `n_components`."
    )


def rows_between(block: object, k: float, d: int, who: str) -> int:
    """Rows between two truncations.

    Raises
    ------
    ParameterError
        If it is no whole number >= 1.
    """
    if block is not None:
        return validation.whole(block, "block", who, low=1)
    return max(_LEAST_BLOCK, 2 * min(k, d) if isinstance(k, int) else 0)


def initial_state(
    d: int, k: float, rows: int, block: int | None, *, centred: bool
) -> IncrementalPCAState:
    """No rows yet, of those many that the axes are to be learned from.

    Parameters
    ----------
    d : int
    k : int or float
        A number of axes, or a share of the variance.
    rows : int
    block : int or None
        Rows between two truncations to k; None for none, so that the axes are exact.
    centred : bool
    """
    if block is not None:
        return IncrementalPCAState.start(d, k, block, centred=centred)
    return IncrementalPCAState.start(d, rows, min(rows, max(_LEAST_BLOCK, 2 * d)), centred=centred)


def accumulate(axes: IncrementalPCAState, X: Floats, rows: int, k: float) -> IncrementalPCAState:
    """The axes after more of the first ``rows`` rows; after the last of them they stand still."""
    begin = 0
    while begin < len(X):
        end = min(len(X), begin + axes.block - axes.rows % axes.block)
        axes, begin = axes.noted(X[begin:end]), end
        if axes.rows % axes.block == 0 and axes.rows < rows:
            axes = axes.truncated()
    return frozen_axes(axes, k) if axes.rows >= rows else axes


def frozen_axes(axes: IncrementalPCAState, k: float) -> IncrementalPCAState:
    """The top k axes of these rows, without what further rows would need."""
    d = len(axes.mean)
    view = axes.view if axes.n_components == k else no_axes(d)  # a share keeps what it had
    final = replace(axes, n_components=k if isinstance(k, float) else min(k, d), view=view)
    return replace(final.truncated().fixed(), block=1)


def no_axes(d: int) -> PrincipalAxes:
    """No axes of rows of d numbers."""
    return PrincipalAxes(np.zeros(d), np.zeros((0, d)), np.zeros(0), 0.0, 0.0)
