"""Incremental linear discriminant analysis: axes that separate classes, in one pass.

From the number M_k and the mean μ_k of the rows of each class, n = Σ M_k and m = Σ M_k μ_k / n, the
scatter within and between classes ([1] (1), (2)) is

    S_w = Σ_k Σ_{x in k} (x − μ_k)(x − μ_k)ᵀ,    S_b = Σ_k M_k (μ_k − m)(μ_k − m)ᵀ            (1)

S_w, μ_k and M_k are sufficient: rows, blocks and new classes update them ([1] (13)-(27); here by
(2) of :mod:`onepass.learners.class_means`), and no row is stored. The axes v of (λ, v) in

    S_b v = λ Λ v,    Λ = (1 − ε) S_w + ε (tr S_w / d) I,    vᵀ (Λ / n) v = 1                (2)

with the largest λ are at most c − 1, and those of a batch fit to the same rows. With ε = 0,
directions in which no class varies are ignored. With Λ / n = L Lᵀ and B the rows √(M_k / n)
(μ_k − m), they are L⁻ᵀ u for the right singular vectors u of B L⁻ᵀ.

Cost: O(d²) time per row and memory; the axes take O(d³) time at each checkpoint.

[1] S. Pang, S. Ozawa, N. Kasabov, "Incremental linear discriminant analysis for classification of
    data streams", IEEE Transactions on Systems, Man, and Cybernetics B 35(5), 2005.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import cast

import numpy as np

from onepass import linalg
from onepass.learners.class_means import Moments
from onepass.learners.discriminant import oas, shrunk, whitening
from onepass.linalg.pca import IncrementalPCAState, PrincipalAxes, no_axes, retained_axes
from onepass.types import Array, Floats


@dataclass(frozen=True, eq=False, slots=True)
class DiscriminantAxes:
    """Class moments and the axes that separate the classes; used like ``IncrementalPCAState``.

    Parameters
    ----------
    n_components : int or float
        The number of axes, or the share of Σ λ that they must retain.
    block : int
        Rows between two updates of the axes.
    shrinkage : float or "oas"
        ε of (2), or "oas" for oracle approximating shrinkage.
    rows : int
        The number of rows so far.
    moments : Moments
        M_k, μ_k and S_w.
    view : PrincipalAxes
        m and the axes v at the last checkpoint, with lengths √λ.
    """

    n_components: float
    block: int
    shrinkage: float | str
    rows: int
    moments: Moments
    view: PrincipalAxes

    @classmethod
    def start(
        cls, d: int, c: int, n_components: float, block: int, shrinkage: float | str
    ) -> DiscriminantAxes:
        """The state before the first row, for d features and c classes."""
        moments = Moments.start(d, c, "pooled")
        return cls(n_components, block, shrinkage, 0, moments, no_axes(d))

    @property
    def mass(self) -> float:
        """The total weight of the rows n."""
        return float(self.moments.mass.sum())

    @property
    def finite(self) -> bool:
        """Whether all sums are finite."""
        return linalg.finite(self.moments.vector, self.view.center, self.view.directions)

    @property
    def _sound(self) -> bool:
        """Whether the shapes are consistent and all numbers finite."""
        view, d, k = self.view, self.moments.d, len(self.view.lengths)
        shapes = (view.center.shape, view.directions.shape, view.lengths.shape)
        return (
            type(self.moments) is Moments
            and type(view) is PrincipalAxes
            and shapes == ((d,), (k, d), (k,))
            and self.moments.covariances in {"pooled", "none"}  # none in a compact learner
            and min(self.rows, self.block - 1) >= 0
            and self.finite
        )

    def checkpoints(self, n: int) -> Iterator[int]:
        """The checkpoints within the next n rows, as of incremental PCA."""
        return IncrementalPCAState.checkpoints(cast("IncrementalPCAState", self), n)

    def taken(self, X: Floats, s: Floats, labels: Array) -> DiscriminantAxes:
        """Add rows X (n, d) of weights s (n,) and classes (n,), at most up to a checkpoint."""
        moments, rows = self.moments.updated(X, labels, s), self.rows + len(X)
        new = replace(self, moments=moments, rows=rows)
        if rows % self.block == 0:
            return new.turned()
        if rows < self.block and rows & (rows - 1) == 0:  # rows are centred, without axes
            return replace(new, view=replace(self.view, center=new.scatter()[0]))
        return new

    def joined(self, X: Floats, s: Floats, labels: Array) -> DiscriminantAxes:
        """Add rows as one batch, and compute the axes."""
        if not len(X):
            return self
        moments = self.moments.updated(X, labels, s)
        return replace(self, moments=moments, rows=self.rows + len(X)).turned()

    def merged(self, other: DiscriminantAxes) -> DiscriminantAxes:
        """The state after the rows of both states."""
        if not other.mass:
            return self
        moments = self.moments.merged(other.moments)
        return replace(self, moments=moments, rows=self.rows + other.rows).turned()

    def fixed(self) -> DiscriminantAxes:
        """The state for transforming rows only."""
        return replace(self, moments=Moments.start(len(self.view.center), 0, "none"))

    def placed(self, at: Array, d: int, outputs: Array, c: int) -> DiscriminantAxes:
        """Extend to d features, which were zero so far, and c classes, at these indices."""
        center, directions = np.zeros(d), np.zeros((len(self.view.directions), d))
        center[at], directions[:, at] = self.view.center, self.view.directions
        view = replace(self.view, center=center, directions=directions)
        return replace(self, moments=self.moments.extended(at, d, outputs, c), view=view)

    def scatter(self) -> tuple[Floats, Floats]:
        """M (d,), and B (c, d) with S_b = n Bᵀ B (1)."""
        M, origin, middle = self.moments.centered()  # relative to the mean of means
        shares = self.moments.mass / self.mass
        center = shares @ M
        B = np.sqrt(shares)[:, None] * (M - center)
        return origin + middle + center, B

    def turned(self) -> DiscriminantAxes:
        """The state with the axes of all rows so far (2)."""
        center, B = self.scatter()
        S = self.moments.sums[0] / self.mass
        share = self.shrinkage
        if isinstance(share, str):
            share = oas(self.moments.triangles[0], self.mass)
        W = whitening(shrunk(S, share, float(np.trace(S)) / max(len(S), 1)))
        most = min(W.shape[1], int(self.moments.seen.sum()) - 1)
        if not most:
            return replace(self, view=replace(no_axes(len(W)), center=center, mass=self.mass))
        directions, lengths = linalg.principal(B @ W, most)
        total = float(lengths @ lengths)
        k = retained_axes(lengths, self.n_components, total)
        view = PrincipalAxes(center, directions[:k] @ W.T, lengths[:k], self.mass, total)
        return replace(self, view=view)
