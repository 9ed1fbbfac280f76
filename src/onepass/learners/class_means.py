"""Class moments in one pass, and the nearest class mean classifier.

With M_k the weight of the rows of class k before a row x of weight w [1],

    μ_k ← μ_k + w / (M_k + w) · (x − μ_k),      M_k ← M_k + w                              (1)

and the sums of squares and products about μ_k grow by those of

    √(M_k w / (M_k + w)) · (x − μ_k)                                                       (2)

All values are relative to the first row of the class: digits that its rows share (as in 1e8 +
small) are removed exactly before anything is summed or squared, and nothing is subtracted from the
sums. The result does not depend on the order of rows or the division into blocks, except for
rounding. The score of class k by the nearest mean [2] is

    (x − m)ᵀ(μ_k − m) − ½ ‖μ_k − m‖²  =  −½ ‖x − μ_k‖² + ½ ‖x − m‖²                        (3)

with m the mean of the means, which cancels between classes and avoids rounding errors; or the
cosine of x and μ_k. Prequential predictions need the scores before each row, which cost more than
learning it: blocks compute them in ``test_then_train``, and for rows that fit probabilities.

The state is one vector, in which compiled code learns single rows of plain numbers in place; blocks
are learned in a copy, by the same loop. Copies of a learner share the vector until the next row,
before which it is copied. The rows (2) of a block are added to the sums by one call of BLAS.

Cost: learning a row takes O(d) time without sums and O(d²) with them; predicting a row O(cd).
Memory is O(cd), and O(d²) for each matrix of sums.

[1] T. F. Chan, G. H. Golub and R. J. LeVeque, "Algorithms for computing the sample variance",
    The American Statistician 37(3), 1983; equation (2.1) and the shifted data of section 3.
[2] T. Mensink, J. Verbeek, F. Perronnin, G. Csurka, "Distance-based image classification:
    generalizing to new classes at near-zero cost", IEEE TPAMI 35(11), 2013; section 3.2.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Mapping
from dataclasses import KW_ONLY, dataclass, field
from itertools import pairwise
from typing import Any, ClassVar, Literal, Self, TypeAlias

import numpy as np

from onepass import linalg, native
from onepass.declared import check_parameters, param
from onepass.errors import NumericalError
from onepass.learners.compiled import InPlace, SingleRows, row_format
from onepass.learners.estimator import Classifier, Layout
from onepass.linalg import calibration, capsule
from onepass.serialization.state import not_fitted
from onepass.types import Array, Floats

COVARIANCES = ("none", "pooled", "each")
CovarianceType: TypeAlias = Literal["none", "pooled", "each"]
"""Covariances that a learner stores: none, one for all classes, or one for each class."""


@dataclass(eq=False, slots=True)
class Moments:
    """Class means, and sums of squares and products about them, in one vector.

    Only ``learn`` changes the vector; all other methods return new moments.

    Parameters
    ----------
    vector : ndarray of shape (1 + 2 c + 2 c d + k d²,)
        The parts below, one after the other.
    c, d : int
        The numbers of classes and features.
    covariances : {"none", "pooled", "each"}
        Whether the number k of matrices of sums is 0, 1 or c.
    """

    vector: Floats
    c: int
    d: int
    covariances: CovarianceType
    cached: tuple[Any, Any] | None = field(init=False, repr=False, default=None)
    """The number of rows, and what was derived from the moments after these."""

    @classmethod
    def start(cls, d: int, c: int, covariances: CovarianceType) -> Moments:
        """The moments before the first row."""
        k = _matrices(covariances, c)
        return cls(np.zeros(1 + 2 * c * (1 + d) + k * d * d), c, d, covariances)

    def __reduce__(self) -> Any:
        return Moments, (self.vector, self.c, self.d, self.covariances)

    @property
    def _sound(self) -> bool:
        """Whether the vector has the size of its parts."""
        whole = type(self.c) is type(self.d) is int and min(self.c, self.d) >= 0
        if not (whole and self.covariances in COVARIANCES and type(self.vector) is np.ndarray):
            return False
        size = self._means_end + _matrices(self.covariances, self.c) * self.d * self.d
        if self.vector.shape != (size,) or self.vector.dtype != np.float64:
            return False
        whole = (self.rows >= 0.0) & (self.rows % 1.0 == 0.0)
        return bool(whole.all()) and self.vector[0] == self.rows.sum()

    @property
    def _means_end(self) -> int:
        return 1 + 2 * self.c * (1 + self.d)

    @property
    def n(self) -> int:
        """The number of rows."""
        return int(self.vector.item(0))

    @property
    def rows(self) -> Floats:
        """The number of rows of each class, (c,)."""
        return self.vector[1 : 1 + self.c]

    @property
    def mass(self) -> Floats:
        """M_k, (c,)."""
        return self.vector[1 + self.c : 1 + 2 * self.c]

    @property
    def origins(self) -> Floats:
        """The first row of each class, (c, d); 0 for a class without rows."""
        return self.vector[1 + 2 * self.c : 1 + self.c * (2 + self.d)].reshape(self.c, self.d)

    @property
    def offsets(self) -> Floats:
        """μ_k relative to the first row, (c, d)."""
        return self.vector[1 + self.c * (2 + self.d) : self._means_end].reshape(self.c, self.d)

    @property
    def triangles(self) -> Floats:
        """The upper triangles of the sums, (k, d, d)."""
        return self.vector[self._means_end :].reshape(-1, self.d, self.d)

    @property
    def sums(self) -> Floats:
        """Sums of squares and products about the means, (k, d, d)."""
        upper = self.triangles
        return upper + np.triu(upper, 1).transpose(0, 2, 1)

    @property
    def seen(self) -> Array:
        """Whether each class has rows, bool (c,)."""
        return np.asarray(self.mass > 0.0)

    @property
    def means(self) -> Floats:
        """μ_k, (c, d); 0 for a class without rows."""
        means: Floats = self.origins + self.offsets
        return means

    def derived(self, compute: Callable[[Moments], Any]) -> Any:
        """The value of a function of the moments, computed once for the same rows."""
        n, cached = self.vector.item(0), self.cached
        if cached is None or cached[0] != n:
            cached = self.cached = n, compute(self)
        return cached[1]

    def shared(self) -> Moments:
        """The same vector, without what was derived from it."""
        return Moments(self.vector, self.c, self.d, self.covariances)

    def copy(self) -> Moments:
        """An independent copy."""
        cached, twin = self.cached, self.shared()
        twin.vector, twin.cached = self.vector.copy(), cached
        return twin

    def recentred(self) -> Moments:
        """The same moments, with means relative to themselves instead of the first rows."""
        new, means = self.copy(), self.means
        new.offsets[:] = (self.origins - means) + self.offsets
        new.origins[:] = means
        return new

    def moved(self, origins: Floats) -> Moments:
        """The moments of rows to which ``origins``, (d,), are added."""
        new = self.copy()
        new.origins[self.seen] += origins
        new.cached = None
        return new

    def learn(
        self, X: Floats, labels: Floats, s: Floats,
        fitted: Floats | None = None, scores: Floats | None = None,
    ) -> bool:  # fmt: skip
        """Learn rows in place, one after the other; return False if the vector is read-only.

        Parameters
        ----------
        X : ndarray of float64 of shape (n, d)
        labels : ndarray of float64 of shape (n,)
            The index of the class of each row.
        s : ndarray of shape (n,)
            Weights > 0.
        fitted : ndarray of shape (4 + 2 c,), optional
            The state of a calibration, to be updated in place.
        scores : ndarray of shape (n, c), optional
            Prequential scores, for ``fitted``.
        """
        if native.loops is None:
            self._learn_plainly(X, labels.astype(np.intp), s)
            return True
        k = _matrices(self.covariances, self.c)
        learned: bool = native.loops.class_learn(
            capsule("dsyrk"), k, self.c, self.d, self.vector, len(X), X, labels, s, fitted, scores
        )
        return learned

    def _learn_plainly(self, X: Floats, labels: Array, s: Floats) -> None:
        """Learn rows in place, as the compiled loop does."""
        mass, origins, offsets = self.mass, self.origins, self.offsets
        rows = np.empty(X.shape)
        for i, (x, k, w) in enumerate(zip(X, labels, s, strict=True)):
            if not mass[k]:
                origins[k] = x
            deviation, share = (x - origins[k]) - offsets[k], w / (mass[k] + w)
            rows[i] = np.sqrt(share * mass[k]) * deviation  # (2)
            offsets[k] += share * deviation  # (1)
            mass[k] += w
            self.rows[k] += 1.0
        self.vector[0] += len(X)
        for k in range(len(self.triangles)):
            of_class = rows if self.covariances == "pooled" else rows[labels == k]
            self.triangles[k] += np.triu(of_class.T @ of_class)

    def updated(self, X: Floats, labels: Array, s: Floats) -> Moments:
        """The moments after a block, as in :meth:`learn`."""
        new = self.copy()
        new.learn(np.ascontiguousarray(X), labels.astype(np.float64), s)
        return new

    def extended(self, at: Array, d: int, outputs: Array, c: int) -> Moments:
        """Extend the moments to d features and c classes; the new moments are zero."""
        new = Moments.start(d, c, self.covariances)
        new.vector[0], new.rows[outputs] = self.n, self.rows
        new.mass[outputs] = self.mass
        new.origins[np.ix_(outputs, at)] = self.origins
        new.offsets[np.ix_(outputs, at)] = self.offsets
        matrices = outputs if self.covariances == "each" else np.arange(len(new.triangles))
        new.triangles[np.ix_(matrices, at, at)] = self.sums
        new.triangles[:] = np.triu(new.triangles)
        return new

    def merged(self, other: Moments) -> Moments:
        """The moments of the rows of both learners."""
        new, total = Moments.start(self.d, self.c, self.covariances), self.mass + other.mass
        share = (other.mass / np.where(total > 0.0, total, 1.0))[:, None]
        one, two = self.seen[:, None], other.seen[:, None]
        deviation = (other.origins - self.origins) + (other.offsets - self.offsets)
        deviation = np.where(one & two, deviation, 0.0)
        new.vector[0], new.rows[:] = self.n + other.n, self.rows + other.rows
        new.mass[:] = total
        new.origins[:] = np.where(one, self.origins, other.origins)
        new.offsets[:] = np.where(one, self.offsets, other.offsets) + share * deviation  # (1)
        between = np.sqrt(share * self.mass[:, None]) * deviation  # (2)
        rows = between[:, None, :] if self.covariances == "each" else between[None]
        for k in range(len(new.triangles)):
            new.triangles[k] = self.triangles[k] + other.triangles[k]
            new.triangles[k] += np.triu(rows[k].T @ rows[k])
        return new

    def centered(self) -> tuple[Floats, Floats, Floats]:
        """Means (c, d) less their mean, 0 for classes without rows; its origin and centre, (d,)."""
        seen, origin = self.seen, self.origins[self.seen.argmax()]
        M = (self.origins - origin) + self.offsets
        centre = M[seen].mean(axis=0)
        return np.where(seen[:, None], M - centre, 0.0), origin.copy(), centre

    def coefficients(
        self,
        shares: Floats | None = None,
        shrinkage: tuple[float | None, float | None] = (0.0, None),
        *,
        cosine: bool = False,
    ) -> Floats | None:
        """The linear functions of rows that are the scores of the classes.

        Parameters
        ----------
        shares : ndarray of shape (c,), optional
            Priors up to a factor, > 0 for each class with rows. None for equal ones.
        shrinkage : (float or None, float or None)
            With pooled sums, the share ε and the variance v of Λ = (1 − ε) Σ + ε v I; None for
            oracle approximating shrinkage, and for the mean variance. Otherwise Λ = I.
        cosine : bool
            Whether scores are cosines with the means.

        Returns
        -------
        coefficients : ndarray of shape (c + 2, width_of(d)), optional
            An origin o, a centre m, and weights w and offsets b in column d of each class, for
            scores wᵀ ((x − o) − m) + b; b is ``UNSEEN`` for classes without rows. None if Λ is
            singular, or without compiled loops.
        """
        if native.loops is None:
            return None
        coefficients = np.empty((self.c + 2, width_of(self.d)))
        k = _matrices(self.covariances, self.c)
        share, variance = (-1.0 if value is None else value for value in shrinkage)
        regular = native.loops.class_coefficients(
            k, self.c, self.d, self.vector, cosine, share, variance, shares, coefficients
        )
        return coefficients if regular else None

    def plain_coefficients(
        self, shares: Floats | None, solve: Callable[[Floats], Floats]
    ) -> Floats:
        """The coefficients with a function for Λ⁻¹ of rows (c, d)."""
        M, origin, centre = self.centered()
        found, d = np.zeros((self.c + 2, width_of(self.d))), self.d
        found[0, :d], found[1, :d], found[2:, :d] = origin, centre, solve(M)
        b = -0.5 * np.einsum("ij,ij->i", M, found[2:, :d])
        if shares is not None:
            b += np.log(np.where(shares > 0.0, shares, 1.0) / shares.sum())
        found[2:, d] = np.where(self.seen, b, UNSEEN)
        return found


def width_of(d: int) -> int:
    """The length of a row of d numbers and one more, in vectors of 8."""
    return (d + 8) // 8 * 8


def _matrices(covariances: CovarianceType, c: int) -> int:
    """The number of matrices of sums of c classes."""
    return {"none": 0, "pooled": 1, "each": c}[covariances]


def linear_scores(coefficients: Floats, X: Floats) -> Floats:
    """Scores of contiguous rows (n, d) from ``Moments.coefficients``, (n, c)."""
    (n, d), c = X.shape, len(coefficients) - 2
    scores = np.empty((n, c))
    if native.loops is not None:
        native.loops.class_linear_scores(c, d, coefficients, n, X, scores)
        return scores
    scores[:] = ((X - coefficients[0, :d]) - coefficients[1, :d]) @ coefficients[2:, :d].T
    scores += coefficients[2:, d]
    return scores


UNSEEN = float(np.finfo(np.float64).min / 4)
"""The score of a class without rows: below that of any other class, but finite."""
_LARGEST = 1e150  # squares of larger numbers overflow
_MODERATE = 1e60  # larger numbers are not learned in place, so that nothing overflows there
_BLOCK = 1024  # rows that are converted to float64 at once


class _ClassRows(SingleRows):
    """Single rows of a class learner."""

    __slots__ = ()

    def learn_one(self, x: Any, y: Any, sample_weight: float) -> bool:
        """Learn a row in place; return whether that was possible."""
        learner = self._learner()
        own = learner.__dict__
        example = np.empty(own["n_features_in_"] + 2)
        if not self._reader.example(x, y, sample_weight, example):
            return False
        row, label, weight = example[None, :-2], example[-2:-1], example[-1:]
        moments, scores, n = own["moments_"], None, own["moments_"].n
        if learner._calibrated and calibration.next_row(n) == n:  # noqa: SLF001
            scores = learner._class_scores(moments, row)  # noqa: SLF001
        while not own["moments_"].learn(
            row, label, weight, None if scores is None else own["calibration_"], scores
        ):
            parts = {name: own[name] for name in ("moments_", "calibration_") if name in own}
            own.update({name: part.copy() for name, part in parts.items()})  # shared with a copy
        return True

    def _scores_of(self, learner: Any, row: Floats) -> Floats:
        scores: Floats = learner._class_scores(learner.moments_, row)  # noqa: SLF001
        return scores


class ClassLearner(InPlace, Classifier):
    """Base class of classifiers that store class moments.

    Subclasses implement ``_class_scores``. Single rows of plain numbers are learned in place.
    """

    _covariance_type: ClassVar[CovarianceType]
    """The covariances that the learner stores."""

    moments_: Moments

    @abstractmethod
    def _class_scores(self, moments: Moments, X: Floats) -> Floats:
        """Scores of contiguous rows by the given moments, (n, c)."""

    def _check_parameters(self, c: int) -> None:
        """Raise an error if a parameter is out of range, with c known classes."""
        del c
        check_parameters(self)

    @property
    def means_(self) -> Floats:
        """The mean of the rows of each class, (c, d); 0 for a class without rows."""
        return self._learned().means

    @property
    def counts_(self) -> Floats:
        """The total weight of the rows of each class, (c,)."""
        return self._learned().mass.copy()

    def _learned(self) -> Moments:
        if not hasattr(self, "moments_"):
            raise not_fitted(self)
        return self.moments_

    def _start(self, d: int, c: int) -> None:
        self._check_parameters(c)
        self.moments_ = Moments.start(d, c, self._covariance_type)

    @property
    def _started(self) -> bool:
        return "moments_" in self.__dict__

    def _learn_at(
        self, X: Floats, Y: Floats, s: Floats | None, class_mask: Array | None,
        time: Array | None, *, prequential: bool,
    ) -> Floats:  # fmt: skip
        del time
        return self._learn(X, Y, s, class_mask, prequential=prequential)

    def _learn(
        self, X: Floats, Y: Floats, s: Floats | None, class_mask: Array | None,
        *, prequential: bool = True,
    ) -> Floats:  # fmt: skip
        del class_mask  # a class without rows scores below all others
        self._check_parameters(Y.shape[1])
        if linalg.magnitude(X) > _LARGEST:
            raise NumericalError(
                f"rows must be small enough to square and sum, below {_LARGEST:g}, got values up "
                f"to {linalg.magnitude(X):.3g}. Divide the features by a constant."
            )
        n, labels, scores = len(X), Y.argmax(axis=1).astype(np.float64), np.zeros(Y.shape)
        moments, weights = self.moments_.copy(), np.ones(n) if s is None else s
        fitted = calibration.rows(self.rows_seen_, n) if self._calibrated else ()
        scored = set(range(n) if prequential else fitted)
        with np.errstate(over="ignore", invalid="ignore"):
            for a, b in pairwise(sorted({*range(0, n, _BLOCK), *scored, n})):
                part = np.ascontiguousarray(X[a:b], dtype=np.float64)
                if a in scored:
                    scores[a] = self._finite_scores(moments, part[:1])[0]
                moments.learn(part, labels[a:b], weights[a:b])
        self._set_moments(moments)
        return scores

    def _finite_scores(self, moments: Moments, X: Floats) -> Floats:
        """Scores of the rows, (n, c), finite even after an overflow."""
        seen, limit = moments.seen, -UNSEEN / 2
        scores = self._class_scores(moments, X) if seen.any() else np.zeros((len(X), len(seen)))
        if not np.abs(scores).max(initial=0.0) <= limit:
            scores = np.clip(np.nan_to_num(scores, nan=-limit), -limit, limit)
        return np.where(seen, scores, UNSEEN)

    def _set_moments(self, moments: Moments) -> None:
        if not linalg.finite(moments.vector):
            raise NumericalError(
                "sums of squares of the rows must be within float64, got larger. "
                "Divide the features by a constant."
            )
        self.moments_ = moments

    def _scores(self, X: Floats) -> Floats:
        self._check_parameters(self.moments_.c)
        with np.errstate(over="ignore", invalid="ignore"):
            return self._finite_scores(self.moments_, np.ascontiguousarray(X, dtype=np.float64))

    # -- single rows -------------------------------------------------------------------------------

    def _prepare_single_rows(self) -> None:
        own, moments = self.__dict__, self.moments_
        description = None if native.loops is None else row_format(self)
        if description is None or linalg.magnitude(moments.means) > _MODERATE:
            return
        if self._calibrated:
            own["calibration_"] = np.array(self.calibration_)
        reader = native.loops.Format(moments.d, moments.c, description)  # type: ignore[union-attr]
        own["_single"] = _ClassRows(self, reader)

    def __setattr__(self, name: str, value: object) -> None:
        own = self.__dict__
        if "moments_" in own and not name.endswith("_"):  # a parameter applies from the next row
            own["moments_"] = own["moments_"].shared()
        super().__setattr__(name, value)

    def _rows_learned(self) -> int:
        return self._learned().n

    def _vector_of(self, own: Mapping[str, Any]) -> Floats | None:
        return own["moments_"].vector if "moments_" in own else None

    # -- growing and merging -----------------------------------------------------------------------

    def _widen(self, d: int) -> None:
        c, old = self.moments_.c, np.arange(self.moments_.d)
        self.moments_ = self.moments_.extended(old, d, np.arange(c), c)

    @property
    def _moves(self) -> bool:
        return True

    def _move(self, origins: Floats) -> None:
        self.moments_ = self.moments_.moved(origins)

    def _add_outputs(self, at: Array, c: int) -> None:
        self._check_parameters(c)
        old = np.setdiff1d(np.arange(c), at)
        self.moments_ = self.moments_.extended(np.arange(self.moments_.d), self.moments_.d, old, c)

    @property
    def _sound(self) -> bool:
        """Whether the moments of a loaded file have the sizes of its features and classes."""
        if not self._started:
            return super()._sound
        moments = vars(self).get("moments_")
        if type(moments) is not Moments or moments.covariances != self._covariance_type:
            return False
        sizes = self.n_features_in_, len(self.classes_)
        return (moments.d, moments.c) == sizes and super()._sound

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
        self.moments_ = self.moments_.recentred()

    def _merge(self, other: Self, layout: Layout) -> None:
        if layout.d > self.n_features_in_:
            self._widen(layout.d)
        c = self.moments_.c
        theirs = other.moments_.extended(layout.features, layout.d, layout.outputs, c)
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
        if self.metric == "cosine" and native.loops is None:
            cosines: Floats = _unit(X) @ _unit(moments.means).T
            return cosines
        return linear_scores(moments.derived(self._coefficients), X)  # (3)

    def _coefficients(self, moments: Moments) -> Floats:
        found = moments.coefficients(cosine=self.metric == "cosine")
        return moments.plain_coefficients(None, lambda M: M) if found is None else found


def _unit(rows: Floats) -> Floats:
    """Rows scaled to length 1, (n, d); rows of length 0 are unchanged."""
    largest = np.abs(rows).max(axis=1, keepdims=True, initial=0.0)  # so that no square overflows
    rows = rows / np.where(largest > 0.0, largest, 1.0)
    lengths = np.sqrt(np.einsum("ij,ij->i", rows, rows))[:, None]
    units: Floats = rows / np.where(lengths > 0.0, lengths, 1.0)
    return units
