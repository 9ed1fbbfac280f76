"""Class moments in one pass, and the nearest class mean classifier.

With M_k the weight of the rows of class k before a block, and w, b the block's weight and mean of
that class [1],

    μ_k ← μ_k + w / (M_k + w) · (b − μ_k),      M_k ← M_k + w                              (1)

and the sums of squares and products about μ_k grow by those about b, and by those of one additional
row ([1] (2.1)),

    √(M_k w / (M_k + w)) · (b − μ_k)                                                       (2)

All values are relative to the first row of the class: digits that its rows share (as in 1e8 +
small) are removed exactly before anything is summed or squared, and nothing is subtracted from the
sums. The result does not depend on the order of rows or the division into blocks, except for
rounding. The score of class k by the nearest mean [2] is

    (x − m)ᵀ(μ_k − m) − ½ ‖μ_k − m‖²  =  −½ ‖x − μ_k‖² + ½ ‖x − m‖²                        (3)

with m the mean of the means, which cancels between classes and avoids rounding errors; or the
cosine of x and μ_k. Prequential predictions need the moments before each row, which costs far more
than updating them: they are computed in ``test_then_train`` only.

Cost: learning a row takes O(d) time without sums and O(d²) with them; predicting a row O(cd).
Memory is O(cd), and O(d²) for each matrix of sums.

[1] T. F. Chan, G. H. Golub and R. J. LeVeque, "Algorithms for computing the sample variance",
    The American Statistician 37(3), 1983; equation (2.1) and the shifted data of section 3.
[2] T. Mensink, J. Verbeek, F. Perronnin, G. Csurka, "Distance-based image classification:
    generalizing to new classes at near-zero cost", IEEE TPAMI 35(11), 2013; section 3.2.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection
from dataclasses import KW_ONLY, dataclass, field, replace
from itertools import pairwise
from typing import Any, ClassVar, Literal, Self, TypeAlias

import numpy as np

from onepass import linalg
from onepass.declared import check_parameters, param
from onepass.errors import NotFittedError, NumericalError
from onepass.learners.estimator import Classifier, Layout
from onepass.types import Array, ArrayLike, Floats, TimeLike
from onepass.validation.table import TableLike

__all__ = ["UNSEEN", "ClassLearner", "CovarianceType", "Means", "Moments", "NearestClassMean"]


CovarianceType: TypeAlias = Literal["none", "pooled", "each"]
"""Covariances that a learner stores: none, one for all classes, or one for each class."""


@dataclass(frozen=True, eq=False, slots=True)
class Means:
    """Class means.

    Parameters
    ----------
    origins : ndarray of shape (c, d)
        The first row of each class; 0 for a class without rows.
    offsets : ndarray of shape (c, d)
        μ_k relative to the first row.
    mass : ndarray of shape (c,)
        M_k.
    """

    origins: Floats
    offsets: Floats
    mass: Floats

    @property
    def seen(self) -> Array:
        """Whether each class has rows, bool (c,)."""
        return np.asarray(self.mass > 0.0)

    @property
    def of_classes(self) -> Floats:
        """μ_k, (c, d); 0 for a class without rows."""
        means: Floats = self.origins + self.offsets
        return means

    def recentred(self) -> Means:
        """The same means, relative to themselves instead of the first rows."""
        means = self.of_classes
        return Means(means, (self.origins - means) + self.offsets, self.mass)

    def centered(self, X: Floats) -> tuple[Floats, Floats]:
        """Means (c, d), 0 for classes without rows, and rows X (n, d); minus the mean of means."""
        seen = self.seen
        first = int(seen.argmax())
        M = (self.origins - self.origins[first]) + self.offsets
        center = M[seen].mean(axis=0)
        M = np.where(seen[:, None], M - center, 0.0)
        return M, (X - self.origins[first]) - center

    def updated(self, X: Floats, labels: Array, s: Floats) -> tuple[Means, dict[int, Floats]]:
        """The means after a block (1), and for each class the rows to add to its sums (2).

        Parameters
        ----------
        X : ndarray of float64 of shape (n, d)
        labels : ndarray of int of shape (n,)
            The index of the class of each row.
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

    def placed(self, at: Array, d: int, outputs: Array, c: int) -> Means:
        """Extend the means to d features and c classes; the new means are zero."""
        origins, offsets, mass = np.zeros((c, d)), np.zeros((c, d)), np.zeros(c)
        here = np.ix_(outputs, at)
        origins[here], offsets[here], mass[outputs] = self.origins, self.offsets, self.mass
        return Means(origins, offsets, mass)

    def merged(self, other: Means) -> tuple[Means, Floats]:
        """The means of both learners, and the rows (2) to add to the sums, (c, d)."""
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
    """Class means, and sums of squares and products about them.

    Parameters
    ----------
    means : Means
    sums : tuple of ndarray of shape (d, d)
        Empty, one matrix for all classes, or one for each class.
    each : bool
        Whether there is one matrix for each class.
    """

    means: Means
    sums: tuple[Floats, ...]
    each: bool
    cached: list[Any] = field(init=False, repr=False, default_factory=list)
    """Derived values, such as factorisations, cached until the next row is learned."""

    @classmethod
    def start(cls, d: int, c: int, covariances: CovarianceType) -> Moments:
        """The moments before the first row."""
        n = {"none": 0, "pooled": 1, "each": c}[covariances]
        means = Means(np.zeros((c, d)), np.zeros((c, d)), np.zeros(c))
        return cls(means, tuple(np.zeros((d, d)) for _ in range(n)), covariances == "each")

    @property
    def finite(self) -> bool:
        """Whether all values are finite."""
        return bool(
            np.isfinite(self.means.offsets).all()
            and all(np.isfinite(np.diagonal(S)).all() for S in self.sums)
        )

    def updated(self, X: Floats, labels: Array, s: Floats) -> Moments:
        """The moments after a block, as in :meth:`Means.updated`."""
        means, rows = self.means.updated(X, labels, s)
        if not self.sums:
            return Moments(means, (), self.each)
        if self.each:
            sums = list(self.sums)
            for k, of_class in rows.items():
                sums[k] = _grown(sums[k], of_class)
            return Moments(means, tuple(sums), self.each)
        together = np.concatenate(list(rows.values()))
        return Moments(means, (_grown(self.sums[0], together),), self.each)

    def placed(self, at: Array, d: int, outputs: Array, c: int) -> Moments:
        """Extend the moments to d features and c classes; the new moments are zero."""
        means = self.means.placed(at, d, outputs, c)
        if not self.each:
            return Moments(means, tuple(_wider(S, at, d) for S in self.sums), self.each)
        sums = [np.zeros((0, 0))] * c
        for k, S in zip(outputs.tolist(), self.sums, strict=True):
            sums[k] = _wider(S, at, d)
        sums = [S if len(S) else np.zeros((d, d)) for S in sums]
        return Moments(means, tuple(sums), self.each)

    def merged(self, other: Moments) -> Moments:
        """The moments of the rows of both learners."""
        means, between = self.means.merged(other.means)
        rows = [row[None, :] for row in between] if self.each else [between]
        both = zip(self.sums, other.sums, rows if self.sums else [], strict=True)
        sums = tuple(_grown(one + two, row) for one, two, row in both)
        return Moments(means, sums, self.each)


def _grown(sums: Floats, rows: Floats) -> Floats:
    """Sums of squares and products after adding those of rows."""
    products: Floats = rows.T @ rows
    products += sums
    return products


def _wider(sums: Floats, at: Array, d: int) -> Floats:
    """The sums extended to d features, at these indices."""
    wide = np.zeros((d, d))
    wide[np.ix_(at, at)] = sums
    return wide


UNSEEN = float(np.finfo(np.float64).min / 4)
"""The score of a class without rows: below that of any other class, but finite."""
_LARGEST = 1e150  # squares of larger numbers overflow
_BLOCK = 1024  # rows that are converted to float64 at once


class ClassLearner(Classifier):
    """Base class of classifiers that store class moments.

    Subclasses implement ``_class_scores``.
    """

    _covariance_type: ClassVar[CovarianceType]
    """The covariances that the learner stores."""

    moments_: Moments

    @abstractmethod
    def _class_scores(self, moments: Moments, X: Floats) -> Floats:
        """Scores of the rows by the given moments, (n, c)."""

    def _check_parameters(self, c: int) -> None:
        """Raise an error if a parameter is out of range, with c known classes."""
        del c
        check_parameters(self)

    @property
    def means_(self) -> Floats:
        """The mean of the rows of each class, (c, d); 0 for a class without rows."""
        return self._learned().means.of_classes

    @property
    def counts_(self) -> Floats:
        """The total weight of the rows of each class, (c,)."""
        return self._learned().means.mass.copy()

    def _learned(self) -> Moments:
        if not hasattr(self, "moments_"):
            who = type(self).__name__
            raise NotFittedError(
                f"this {who} is not fitted yet: it has learned no row. Call fit, "
                "partial_fit or learn_one first."
            )
        return self.moments_

    def _start(self, d: int, c: int) -> None:
        self._check_parameters(c)
        self.moments_ = Moments.start(d, c, self._covariance_type)

    def _learn_block(
        self,
        X: TableLike,
        y: ArrayLike | None,
        sample_weight: ArrayLike | None,
        verb: str,
        time: TimeLike | None = None,
    ) -> tuple[Floats, Array | None, Floats]:
        self._prequential = verb == "test_then_train"
        try:
            return super()._learn_block(X, y, sample_weight, verb, time)
        finally:
            del self._prequential

    def _learn(self, X: Floats, Y: Floats, s: Floats | None, class_mask: Array | None) -> Floats:
        del class_mask  # a class without rows scores below all others
        self._check_parameters(Y.shape[1])
        if linalg.magnitude(X) > _LARGEST:
            raise NumericalError(
                f"rows must be small enough to square and sum, below {_LARGEST:g}, got values up "
                f"to {linalg.magnitude(X):.3g}. Divide the features by a constant."
            )
        n, labels, moments, scores = len(X), Y.argmax(axis=1), self.moments_, np.zeros(Y.shape)
        scored = self._calibrated_rows(n)
        cuts = sorted({*range(0, n, _BLOCK), n, *scored}) if scored or n > _BLOCK else [0, n]
        with np.errstate(over="ignore", invalid="ignore"):
            for a, b in pairwise(cuts):
                part = X[a:b].astype(np.float64)
                weights = np.ones(b - a) if s is None else s[a:b]
                if getattr(self, "_prequential", False):
                    scores[a:b] = self._prequential_scores(moments, part, labels[a:b], weights)
                elif a in scored:
                    scores[a] = self._finite_scores(moments, part[:1])[0]
                moments = moments.updated(part, labels[a:b], weights)
        self._set_moments(moments)
        return scores

    def _prequential_scores(self, moments: Moments, X: Floats, labels: Array, s: Floats) -> Floats:
        """Scores of each row just before it is learned, (n, c)."""
        scores = np.empty((len(X), len(moments.means.mass)))
        for i in range(len(X)):
            row = slice(i, i + 1)
            scores[row] = self._finite_scores(moments, X[row])
            moments = moments.updated(X[row], labels[row], s[row])
        return scores

    def _finite_scores(self, moments: Moments, X: Floats) -> Floats:
        """Scores of the rows, (n, c), finite even after an overflow."""
        seen, limit = moments.means.seen, -UNSEEN / 2
        scores = self._class_scores(moments, X) if seen.any() else np.zeros((len(X), len(seen)))
        if not np.abs(scores).max(initial=0.0) <= limit:
            scores = np.clip(np.nan_to_num(scores, nan=-limit), -limit, limit)
        return np.where(seen, scores, UNSEEN)

    def _set_moments(self, moments: Moments) -> None:
        if not moments.finite:
            raise NumericalError(
                "sums of squares of the rows must be within float64, got larger. "
                "Divide the features by a constant."
            )
        self.moments_ = moments

    def _scores(self, X: Floats) -> Floats:
        self._check_parameters(len(self.moments_.means.mass))
        with np.errstate(over="ignore", invalid="ignore"):
            return self._finite_scores(self.moments_, X.astype(np.float64, copy=False))

    def _widen(self, d: int) -> None:
        c = len(self.moments_.means.mass)
        old = np.arange(self.moments_.means.origins.shape[1])
        self.moments_ = self.moments_.placed(old, d, np.arange(c), c)

    @property
    def _moves(self) -> bool:
        return True

    def _move(self, origins: Floats) -> None:
        means = self.moments_.means
        moved = replace(means, origins=means.origins + np.where(means.seen[:, None], origins, 0.0))
        self.moments_ = replace(self.moments_, means=moved)

    def _add_outputs(self, at: Array, c: int) -> None:
        self._check_parameters(c)
        d = self.moments_.means.origins.shape[1]
        old = np.setdiff1d(np.arange(c), at)
        self.moments_ = self.moments_.placed(np.arange(d), d, old, c)

    @property
    def _merging(self) -> Literal["exact", "approximate", "refused"]:
        """``exact``: moments add up."""
        return "exact"

    def _unmergeable(self) -> str:
        return ""

    @property
    def _stored_rows(self) -> str:
        """What the state contains of single rows after ``_remove_rows``; empty if nothing."""
        if hasattr(self, "rows_seen_"):
            return ""
        return "which has not learned any rows; let each site learn first"

    def _remove_rows(self) -> None:
        """Store the means without the first row of each class."""
        self.moments_ = replace(self.moments_, means=self.moments_.means.recentred())

    def _merge(self, other: Self, layout: Layout) -> None:
        if layout.d > self.n_features_in_:
            self._widen(layout.d)
        c = len(self.moments_.means.mass)
        theirs = other.moments_.placed(layout.features, layout.d, layout.outputs, c)
        with np.errstate(over="ignore", invalid="ignore"):
            self._set_moments(self.moments_.merged(theirs))


@dataclass(eq=False, repr=False)
class NearestClassMean(ClassLearner):
    """Nearest class mean classifier.

    Parameters
    ----------
    metric : {"euclidean", "cosine"}, default="euclidean"
        Distance from the mean, or cosine of the angle between row and mean.
    classes : array-like, optional
        Labels known in advance. New labels may still occur.

    Attributes
    ----------
    classes_ : ndarray of shape (c,)
        Labels seen or given in advance, sorted.
    means_ : ndarray of shape (c, d)
        Mean of the rows of each class; 0 for a class without rows.
    counts_ : ndarray of shape (c,)
        Total weight of the rows of each class.
    n_features_in_ : int
        Number of features.
    rows_seen_ : int
        Number of rows learned.

    Raises
    ------
    ParameterError
        When learning starts, if ``metric`` is unknown.
    NumericalError
        If values are too large to be squared. The learner is then unchanged.

    Notes
    -----
    ``decision_function`` is (3), minus half the squared distance up to a term common to all
    classes, or the cosine.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> import onepass as op
    >>> X, y = load_digits(return_X_y=True)
    >>> order = y[:1200].argsort(kind="stable")  # one class after the other
    >>> model = op.NearestClassMean().partial_fit(X[order], y[order])
    >>> float(round(model.score(X[1200:], y[1200:]), 3))
    0.881
    """

    _covariance_type: ClassVar[CovarianceType] = "none"

    metric: str = param("euclidean", choices=("euclidean", "cosine"))
    _: KW_ONLY
    classes: Collection[object] | None = None

    def _class_scores(self, moments: Moments, X: Floats) -> Floats:
        if self.metric == "cosine":
            cosines: Floats = _unit(X) @ _unit(moments.means.of_classes).T
            return cosines
        M, Z = moments.means.centered(X)
        scores: Floats = Z @ M.T - 0.5 * np.einsum("ij,ij->i", M, M)  # (3)
        return scores


def _unit(rows: Floats) -> Floats:
    """Rows scaled to length 1, (n, d); rows of length 0 are unchanged."""
    largest = np.abs(rows).max(axis=1, keepdims=True, initial=0.0)  # so that no square overflows
    rows = rows / np.where(largest > 0.0, largest, 1.0)
    lengths = np.sqrt(np.einsum("ij,ij->i", rows, rows))[:, None]
    scores: Floats = rows / np.where(lengths > 0.0, lengths, 1.0)
    return scores
