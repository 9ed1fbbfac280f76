"""Class moments: running means of classes, and sums of squares and products about them.

With M_k the weight of the rows of class k before a block, and w, b the block's weight and mean of
that class [1],

    μ_k ← μ_k + w / (M_k + w) · (b − μ_k),      M_k ← M_k + w                              (1)

and the sums of squares and products about μ_k grow by those about b, and by those of one row more
([1] (2.1)),

    √(M_k w / (M_k + w)) · (b − μ_k)                                                       (2)

All is relative to the first row of the class: digits that its rows share (as in 1e8 + small) are
gone, exactly, before anything is summed or squared; and nothing is ever subtracted from the sums.
Neither the order of rows nor how they are cut into blocks makes a difference, but for rounding.

Cost: O(d) a row without sums, O(d²) with them.

[1] T. F. Chan, G. H. Golub and R. J. LeVeque, "Algorithms for computing the sample variance",
    The American Statistician 37(3), 1983; equation (2.1) and the shifted data of section 3.
"""

from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import numpy as np

from onepass.errors import Array, Floats

__all__ = ["Kept", "Means", "Moments"]

Kept: TypeAlias = Literal["none", "pooled", "each"]
"""Whose sums of squares and products: nobody's, those of all classes in one, each class's."""


@dataclass(frozen=True, eq=False, slots=True)
class Means:
    """Means of classes.

    Parameters
    ----------
    origins : ndarray of shape (c, d)
        The first row of each class; 0 of a class without rows.
    offsets : ndarray of shape (c, d)
        μ_k relative to it.
    mass : ndarray of shape (c,)
        M_k.
    """

    origins: Floats
    offsets: Floats
    mass: Floats

    @property
    def seen(self) -> Array:
        """The classes that have rows, bool (c,)."""
        return np.asarray(self.mass > 0.0)

    @property
    def of_classes(self) -> Floats:
        """μ_k, (c, d); 0 of a class without rows."""
        means: Floats = self.origins + self.offsets
        return means

    def around(self, X: Floats) -> tuple[Floats, Floats]:
        """μ_k less the mean of the means, (c, d), 0 without rows; and rows X less it, (n, d)."""
        seen = self.seen
        first = int(seen.argmax())
        M = (self.origins - self.origins[first]) + self.offsets
        center = M[seen].mean(axis=0)
        M = np.where(seen[:, None], M - center, 0.0)
        return M, (X - self.origins[first]) - center

    def taken(self, X: Floats, labels: Array, s: Floats) -> tuple["Means", dict[int, Floats]]:
        """The means after a block (1); and by class the rows by which its sums grow (2).

        Parameters
        ----------
        X : ndarray of float64 of shape (n, d)
        labels : ndarray of int of shape (n,)
            The class of each row, by its place among all.
        s : ndarray of shape (n,)
            Weights > 0.
        """
        origins, offsets, mass, rows = self.origins, self.offsets.copy(), self.mass.copy(), {}
        present = [int(labels[0])] if len(labels) == 1 else np.unique(labels).tolist()
        for k in present:
            of_class = slice(None) if len(present) == 1 else labels == k
            of_class_X, u = X[of_class], s[of_class]
            if not mass[k]:
                origins = origins.copy() if origins is self.origins else origins
                origins[k] = of_class_X[0]
            D = (of_class_X - origins[k]) - offsets[k]
            w = float(u.sum())
            b = (u @ D) / w
            share = w / (mass[k] + w)
            between = np.sqrt(share * mass[k]) * b  # (2)
            within = np.sqrt(u)[:, None] * (D - b) if len(D) > 1 else D[:0]
            rows[k] = np.concatenate((within, between[None, :]))
            offsets[k] += share * b  # (1)
            mass[k] += w
        return Means(origins, offsets, mass), rows

    def placed(self, at: Array, d: int, outputs: Array, c: int) -> "Means":
        """The same among d features and c classes, at these places; the others are zero."""
        origins, offsets, mass = np.zeros((c, d)), np.zeros((c, d)), np.zeros(c)
        here = np.ix_(outputs, at)
        origins[here], offsets[here], mass[outputs] = self.origins, self.offsets, self.mass
        return Means(origins, offsets, mass)

    def merged(self, other: "Means") -> tuple["Means", Floats]:
        """The means of both, of the same features and classes; and the rows (2), (c, d)."""
        total = self.mass + other.mass
        share = (other.mass / np.where(total > 0.0, total, 1.0))[:, None]
        one, two = self.seen[:, None], other.seen[:, None]
        apart = (other.origins - self.origins) + (other.offsets - self.offsets)
        apart = np.where(one & two, apart, 0.0)
        origins = np.where(one, self.origins, other.origins)
        offsets = np.where(one, self.offsets, other.offsets) + share * apart  # (1)
        return Means(origins, offsets, total), np.sqrt(share * self.mass[:, None]) * apart  # (2)


@dataclass(frozen=True, eq=False, slots=True)
class Moments:
    """Means of classes, and sums of squares and products about them.

    Parameters
    ----------
    means : Means
    sums : tuple of ndarray of shape (d, d)
        None, one for all classes together, or one a class.
    each : bool
        Whether there is one a class.
    """

    means: Means
    sums: tuple[Floats, ...]
    each: bool
    solved: list[Any] = field(init=False, repr=False, default_factory=list)
    """What was last worked out from these: kept until something is learned."""

    @classmethod
    def start(cls, d: int, c: int, kept: Kept) -> "Moments":
        """Of no rows."""
        n = {"none": 0, "pooled": 1, "each": c}[kept]
        means = Means(np.zeros((c, d)), np.zeros((c, d)), np.zeros(c))
        return cls(means, tuple(np.zeros((d, d)) for _ in range(n)), kept == "each")

    @property
    def finite(self) -> bool:
        """Whether nothing has overflowed."""
        return bool(
            np.isfinite(self.means.offsets).all()
            and all(np.isfinite(np.diagonal(each)).all() for each in self.sums)
        )

    def taken(self, X: Floats, labels: Array, s: Floats) -> "Moments":
        """The moments after a block, as in :meth:`Means.taken`."""
        means, rows = self.means.taken(X, labels, s)
        if not self.sums:
            return Moments(means, (), self.each)
        if self.each:
            sums = list(self.sums)
            for k, of_class in rows.items():
                sums[k] = _grown(sums[k], of_class)
            return Moments(means, tuple(sums), self.each)
        together = np.concatenate(list(rows.values()))
        return Moments(means, (_grown(self.sums[0], together),), self.each)

    def placed(self, at: Array, d: int, outputs: Array, c: int) -> "Moments":
        """The same among d features and c classes, at these places; the others are zero."""
        means = self.means.placed(at, d, outputs, c)
        if not self.each:
            return Moments(means, tuple(_wider(each, at, d) for each in self.sums), self.each)
        sums = [np.zeros((0, 0))] * c
        for k, each in zip(outputs.tolist(), self.sums, strict=True):
            sums[k] = _wider(each, at, d)
        sums = [each if len(each) else np.zeros((d, d)) for each in sums]
        return Moments(means, tuple(sums), self.each)

    def merged(self, other: "Moments") -> "Moments":
        """The moments of the rows of both, of the same features and classes."""
        means, between = self.means.merged(other.means)
        rows = [row[None, :] for row in between] if self.each else [between]
        both = zip(self.sums, other.sums, rows if self.sums else [], strict=True)
        sums = tuple(_grown(one + two, row) for one, two, row in both)
        return Moments(means, sums, self.each)


def _grown(sums: Floats, rows: Floats) -> Floats:
    """Sums of squares and products with those of more rows."""
    products: Floats = rows.T @ rows
    products += sums
    return products


def _wider(sums: Floats, at: Array, d: int) -> Floats:
    """The same among d features, at these places."""
    wide = np.zeros((d, d))
    wide[np.ix_(at, at)] = sums
    return wide
