"""Class moments in one pass, and the classifier of the nearest class mean.

With M_k the weight of the rows of class k before a block, and w, b the block's weight and mean of
that class [1],

    μ_k ← μ_k + w / (M_k + w) · (b − μ_k),      M_k ← M_k + w                              (1)

and the sums of squares and products about μ_k grow by those about b, and by those of one row more
([1] (2.1)),

    √(M_k w / (M_k + w)) · (b − μ_k)                                                       (2)

All is relative to the first row of the class: digits that its rows share (as in 1e8 + small) are
removed, exactly, before anything is summed or squared; and nothing is ever subtracted from the
sums. Neither the order of rows nor how they are cut into blocks makes a difference, but for
rounding. The score of class k by the nearest mean [2] is

    (x − m)ᵀ(μ_k − m) − ½ ‖μ_k − m‖²  =  −½ ‖x − μ_k‖² + ½ ‖x − m‖²                        (3)

with m the mean of the means, which makes no difference between classes and saves digits; or the
cosine of x and μ_k. Prequential predictions need the moments before each row, which costs far more
than to update them: so they are computed in ``test_then_train`` alone.

Cost: O(d) a row that is learned without sums, O(d²) with them; O(cd) one that is predicted; O(cd)
memory, and O(d²) for each matrix of sums.

[1] T. F. Chan, G. H. Golub and R. J. LeVeque, "Algorithms for computing the sample variance",
    The American Statistician 37(3), 1983; equation (2.1) and the shifted data of section 3.
[2] T. Mensink, J. Verbeek, F. Perronnin, G. Csurka, "Distance-based image classification:
    generalizing to new classes at near-zero cost", IEEE TPAMI 35(11), 2013; section 3.2.
"""

from abc import abstractmethod
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Self, TypeAlias

import numpy as np

from onepass import linalg
from onepass.errors import NotFittedError, NumericalError, ParameterError
from onepass.learners.estimator import Classifier, Layout
from onepass.types import Array, ArrayLike, Floats, TimeLike
from onepass.validation.table import TableLike

__all__ = ["UNSEEN", "ClassLearner", "Kept", "Means", "Moments", "NearestClassMean"]


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


UNSEEN = float(np.finfo(np.float64).min / 4)
"""The score of a class that has no rows: below that of any other, and still a number."""
_LARGEST = 1e150  # squares of larger numbers overflow
_BLOCK = 1024  # rows that are taken as float64 at once


class ClassLearner(Classifier):
    """A classifier that keeps moments of classes.

    It brings ``_said``: the scores of rows by moments of some rows, (n, c); and ``_checked``,
    which refuses parameters out of range.
    """

    kept: ClassVar[Kept]
    """Whose sums of squares and products it keeps."""

    moments_: Moments

    @abstractmethod
    def _said(self, moments: Moments, X: Floats) -> Floats:
        """The score of each class for each row, (n, c)."""

    @abstractmethod
    def _checked(self, c: int) -> None:
        """Refuse parameters out of range, with c classes known."""

    @property
    def means_(self) -> Floats:
        """The mean of each class's rows, (c, d); 0 of a class that has none."""
        return self._learned().means.of_classes

    @property
    def counts_(self) -> Floats:
        """Rows of each class, by weight, (c,)."""
        return self._learned().means.mass.copy()

    def _learned(self) -> Moments:
        if not hasattr(self, "moments_"):
            who = type(self).__name__
            raise NotFittedError(
                f"{who}: this {who} is not fitted yet: it has learned no row. "
                "Call fit, partial_fit or learn_one first."
            )
        return self.moments_

    def _start(self, d: int, c: int) -> None:
        self._checked(c)
        self.moments_ = Moments.start(d, c, self.kept)

    def _learn_block(
        self,
        X: TableLike,
        y: ArrayLike | None,
        sample_weight: ArrayLike | None,
        verb: str,
        time: TimeLike | None = None,
    ) -> Array:
        self._aloud = verb == "test_then_train"
        try:
            return super()._learn_block(X, y, sample_weight, verb, time)
        finally:
            del self._aloud

    def _learn(self, X: Floats, Y: Floats, s: Floats | None, known: Array | None) -> Floats:
        del known  # a class without rows is behind all others
        self._checked(Y.shape[1])
        if linalg.magnitude(X) > _LARGEST:
            raise NumericalError(
                f"{type(self).__name__}: rows must be small enough to square and sum, below "
                f"{_LARGEST:g}, got values up to {linalg.magnitude(X):.3g}. "
                "Give features in larger units."
            )
        said, labels, moments = np.zeros(Y.shape), Y.argmax(axis=1), self.moments_
        with np.errstate(over="ignore", invalid="ignore"):
            for rows, part, weights in _parts(X, s):
                if getattr(self, "_aloud", False):
                    said[rows] = self._before(moments, part, labels[rows], weights)
                moments = moments.taken(part, labels[rows], weights)
        self._adopt(moments)
        return said

    def _before(self, moments: Moments, X: Floats, labels: Array, s: Floats) -> Floats:
        """What is said of each row just before it is learned, (n, c)."""
        said = np.empty((len(X), len(moments.means.mass)))
        for i in range(len(X)):
            row = slice(i, i + 1)
            said[row] = self._spoken(moments, X[row])
            moments = moments.taken(X[row], labels[row], s[row])
        return said

    def _spoken(self, moments: Moments, X: Floats) -> Floats:
        """What is said of rows, as numbers, whatever overflowed; (n, c)."""
        seen, most = moments.means.seen, -UNSEEN / 2
        scores = self._said(moments, X) if seen.any() else np.zeros((len(X), len(seen)))
        if not np.abs(scores).max(initial=0.0) <= most:
            scores = np.clip(np.nan_to_num(scores, nan=-most), -most, most)
        said: Floats = np.where(seen, scores, UNSEEN)
        return said

    def _adopt(self, moments: Moments) -> None:
        if not moments.finite:
            raise NumericalError(
                f"{type(self).__name__}: sums of squares of the rows must be within float64, got "
                "larger. Give features in larger units."
            )
        self.moments_ = moments

    def _scores(self, X: Floats) -> Floats:
        self._checked(len(self.moments_.means.mass))
        with np.errstate(over="ignore", invalid="ignore"):
            return self._spoken(self.moments_, X.astype(np.float64, copy=False))

    def _widen(self, d: int) -> None:
        c = len(self.moments_.means.mass)
        old = np.arange(self.moments_.means.origins.shape[1])
        self.moments_ = self.moments_.placed(old, d, np.arange(c), c)

    def _add_outputs(self, at: Array, c: int) -> None:
        self._checked(c)
        d = self.moments_.means.origins.shape[1]
        old = np.setdiff1d(np.arange(c), at)
        self.moments_ = self.moments_.placed(np.arange(d), d, old, c)

    @property
    def merging(self) -> Literal["exact", "approximate", "refused"]:
        """``exact``: moments add up."""
        return "exact"

    def _unmergeable(self) -> str:
        return ""

    def _merge(self, other: Self, layout: Layout) -> None:
        if layout.d > self.n_features_in_:
            self._widen(layout.d)
        c = len(self.moments_.means.mass)
        theirs = other.moments_.placed(layout.features, layout.d, layout.outputs, c)
        with np.errstate(over="ignore", invalid="ignore"):
            self._adopt(self.moments_.merged(theirs))


def _parts(X: Floats, s: Floats | None) -> Iterator[tuple[slice, Floats, Floats]]:
    """Some rows at a time, as float64, with their weights."""
    for i in range(0, len(X), _BLOCK):
        rows = slice(i, min(i + _BLOCK, len(X)))
        weights = np.ones(rows.stop - i) if s is None else s[rows]
        yield rows, X[rows].astype(np.float64), weights


_METRICS = ("euclidean", "cosine")


class NearestClassMean(ClassLearner):
    """The class whose rows' mean is nearest.

    Parameters
    ----------
    metric : {"euclidean", "cosine"}, default="euclidean"
        The distance from the mean, or the angle with it, seen from 0.
    classes : array-like, optional
        Labels known beforehand; others may still come.

    Attributes
    ----------
    classes_ : ndarray of shape (c,)
        The labels known, sorted.
    means_ : ndarray of shape (c, d)
        The mean of each class's rows; 0 of a class that was named and has none yet.
    counts_ : ndarray of shape (c,)
        Rows of each class, by weight.
    n_features_in_ : int
    rows_seen_ : int
        Rows learned.

    Raises
    ------
    ParameterError
        When learning begins, if ``metric`` is none of these.
    NumericalError
        If values are too large to be squared; the learner is then as it was before the block.

    Notes
    -----
    ``decision_function`` is (3): minus half the squared distance, but for what all classes share;
    or the cosine.

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

    kept: ClassVar[Kept] = "none"

    def __init__(
        self, metric: str = "euclidean", *, classes: Collection[object] | None = None
    ) -> None:
        self.metric = metric
        self.classes = classes

    def _checked(self, c: int) -> None:
        del c
        if self.metric not in _METRICS:
            raise ParameterError(
                f"{type(self).__name__}: `metric` must be one of {', '.join(_METRICS)}, got "
                f"{self.metric!r}. Choose one of these."
            )

    def _said(self, moments: Moments, X: Floats) -> Floats:
        if self.metric == "cosine":
            cosines: Floats = _unit(X) @ _unit(moments.means.of_classes).T
            return cosines
        M, Z = moments.means.around(X)
        said: Floats = Z @ M.T - 0.5 * np.einsum("ij,ij->i", M, M)  # (3)
        return said


def _unit(rows: Floats) -> Floats:
    """Rows of length 1, (n, d); those of length 0 as they are."""
    largest = np.abs(rows).max(axis=1, keepdims=True, initial=0.0)  # so that no square overflows
    rows = rows / np.where(largest > 0.0, largest, 1.0)
    lengths = np.sqrt(np.einsum("ij,ij->i", rows, rows))[:, None]
    said: Floats = rows / np.where(lengths > 0.0, lengths, 1.0)
    return said
