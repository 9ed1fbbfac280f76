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
are learned in a copy, by the same loop. The rows (2) of a block are added to the sums by one call
of BLAS.

Cost: learning a row takes O(d) time without sums and O(d²) with them; predicting a row O(cd).
Memory is O(cd), and O(d²) for each matrix of sums.

[1] T. F. Chan, G. H. Golub and R. J. LeVeque, "Algorithms for computing the sample variance",
    The American Statistician 37(3), 1983; equation (2.1) and the shifted data of section 3.
[2] T. Mensink, J. Verbeek, F. Perronnin, G. Csurka, "Distance-based image classification:
    generalizing to new classes at near-zero cost", IEEE TPAMI 35(11), 2013; section 3.2.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection
from dataclasses import KW_ONLY, dataclass, field
from itertools import pairwise
from typing import Any, ClassVar, Literal, Self, TypeAlias

import numpy as np

from onepass import linalg, native
from onepass.declared import check_parameters, param
from onepass.errors import NotFittedError, NumericalError
from onepass.learners.compiled import row_format
from onepass.learners.estimator import Classifier, Layout
from onepass.linalg import calibration, capsule
from onepass.types import Array, ArrayLike, Floats, RowLike, TimeLike
from onepass.validation.table import TableLike

COVARIANCES = ("none", "pooled", "each")
CovarianceType: TypeAlias = Literal["none", "pooled", "each"]
"""Covariances that a learner stores: none, one for all classes, or one for each class."""


@dataclass(frozen=True, eq=False, slots=True)
class Moments:
    """Class means, and sums of squares and products about them, in one vector.

    Parameters
    ----------
    vector : ndarray of shape (c + 2 c d + k d²,)
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
    cached: dict[Any, Any] = field(init=False, repr=False, default_factory=dict)
    """Derived values, such as factorisations, until the next row is learned; those of one class
    by its index."""

    @classmethod
    def start(cls, d: int, c: int, covariances: CovarianceType) -> Moments:
        """The moments before the first row."""
        k = _matrices(covariances, c)
        return cls(np.zeros(c + 2 * c * d + k * d * d), c, d, covariances)

    @property
    def _sound(self) -> bool:
        """Whether the vector has the size of its parts."""
        whole = type(self.c) is type(self.d) is int and min(self.c, self.d) >= 0
        if not (whole and self.covariances in COVARIANCES and type(self.vector) is np.ndarray):
            return False
        size = self._means_end + _matrices(self.covariances, self.c) * self.d * self.d
        return self.vector.shape == (size,) and self.vector.dtype == np.float64

    @property
    def _means_end(self) -> int:
        return self.c + 2 * self.c * self.d

    @property
    def mass(self) -> Floats:
        """M_k, (c,)."""
        return self.vector[: self.c]

    @property
    def origins(self) -> Floats:
        """The first row of each class, (c, d); 0 for a class without rows."""
        return self.vector[self.c : self.c + self.c * self.d].reshape(self.c, self.d)

    @property
    def offsets(self) -> Floats:
        """μ_k relative to the first row, (c, d)."""
        return self.vector[self.c + self.c * self.d : self._means_end].reshape(self.c, self.d)

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
    def of_classes(self) -> Floats:
        """μ_k, (c, d); 0 for a class without rows."""
        means: Floats = self.origins + self.offsets
        return means

    def copy(self) -> Moments:
        """An independent copy."""
        twin = Moments(self.vector.copy(), self.c, self.d, self.covariances)
        twin.cached.update(self.cached)
        return twin

    def recentred(self) -> Moments:
        """The same moments, with means relative to themselves instead of the first rows."""
        new, means = self.copy(), self.of_classes
        new.offsets[:] = (self.origins - means) + self.offsets
        new.origins[:] = means
        return new

    def moved(self, origins: Floats) -> Moments:
        """The moments of rows to which ``origins``, (d,), are added."""
        new = self.copy()
        new.origins[self.seen] += origins
        new.cached.clear()
        return new

    def learn(self, X: Floats, labels: Floats, s: Floats, limit: float = np.inf) -> int:
        """Learn rows in place, one after the other; return the number of rows learned.

        Parameters
        ----------
        X : ndarray of float64 of shape (n, d)
        labels : ndarray of float64 of shape (n,)
            The index of the class of each row.
        s : ndarray of shape (n,)
            Weights > 0.
        limit : float
            The first row whose distance from a mean is larger in a feature is not learned.
        """
        if self.covariances == "each" and "typical" not in self.cached:
            for k in labels.tolist():
                self.cached.pop(k, None)
        else:
            self.cached.clear()
        if native.loops is None:
            return self._learn_plainly(X, labels.astype(np.intp), s, limit)
        k = _matrices(self.covariances, self.c)
        learned: int = native.loops.class_learn(
            capsule("dsyrk"), k, self.c, self.d, self.vector, len(X), X, labels, s, limit
        )
        return learned

    def _learn_plainly(self, X: Floats, labels: Array, s: Floats, limit: float) -> int:
        """Learn rows in place, as the compiled loop does."""
        mass, origins, offsets, n = self.mass, self.origins, self.offsets, len(X)
        rows = np.empty((n, self.d))
        for i, (x, k, w) in enumerate(zip(X, labels, s, strict=True)):
            apart = (x - origins[k]) - offsets[k] if mass[k] else np.zeros(self.d)
            if not (np.abs(apart) <= limit).all():
                n = i
                break
            if not mass[k]:
                origins[k] = x
            share = w / (mass[k] + w)
            rows[i] = np.sqrt(share * mass[k]) * apart  # (2)
            offsets[k] += share * apart  # (1)
            mass[k] += w
        for k in range(len(self.triangles)):
            of_class = rows[:n] if self.covariances == "pooled" else rows[:n][labels[:n] == k]
            self.triangles[k] += np.triu(of_class.T @ of_class)
        return n

    def updated(self, X: Floats, labels: Array, s: Floats) -> Moments:
        """The moments after a block, as in :meth:`learn`."""
        new = self.copy()
        new.learn(np.ascontiguousarray(X), labels.astype(np.float64), s)
        return new

    def placed(self, at: Array, d: int, outputs: Array, c: int) -> Moments:
        """Extend the moments to d features and c classes; the new moments are zero."""
        new = Moments.start(d, c, self.covariances)
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
        apart = (other.origins - self.origins) + (other.offsets - self.offsets)
        apart = np.where(one & two, apart, 0.0)
        new.mass[:] = total
        new.origins[:] = np.where(one, self.origins, other.origins)
        new.offsets[:] = np.where(one, self.offsets, other.offsets) + share * apart  # (1)
        between = np.sqrt(share * self.mass[:, None]) * apart  # (2)
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

    def lines(
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
        lines : ndarray of shape (c + 2, width_of(d)), optional
            An origin o, a centre m, and weights w and offsets b in column d of each class, for
            scores wᵀ ((x − o) − m) + b; b is ``UNSEEN`` for classes without rows. None if Λ is
            singular, or without compiled loops.
        """
        if native.loops is None:
            return None
        lines, k = np.empty((self.c + 2, width_of(self.d))), _matrices(self.covariances, self.c)
        share, variance = (-1.0 if value is None else value for value in shrinkage)
        regular = native.loops.class_lines(
            k, self.c, self.d, self.vector, cosine, share, variance, shares, lines
        )
        return lines if regular else None

    def plain_lines(self, shares: Floats | None, solve: Callable[[Floats], Floats]) -> Floats:
        """The lines with a function for Λ⁻¹ of rows (c, d)."""
        M, origin, centre = self.centered()
        lines, d = np.zeros((self.c + 2, width_of(self.d))), self.d
        lines[0, :d], lines[1, :d], lines[2:, :d] = origin, centre, solve(M)
        b = -0.5 * np.einsum("ij,ij->i", M, lines[2:, :d])
        if shares is not None:
            b += np.log(np.where(shares > 0.0, shares, 1.0) / shares.sum())
        lines[2:, d] = np.where(self.seen, b, UNSEEN)
        return lines


def width_of(d: int) -> int:
    """The length of a row of d numbers and one more, in vectors of 8."""
    return (d + 8) // 8 * 8


def _matrices(covariances: CovarianceType, c: int) -> int:
    """The number of matrices of sums of c classes."""
    return {"none": 0, "pooled": 1, "each": c}[covariances]


def along(lines: Floats, X: Floats) -> Floats:
    """Scores of rows (n, d) along the lines of the classes, (n, c)."""
    n, d = X.shape
    scores = np.empty((n, len(lines) - 2))
    if native.loops is not None:
        native.loops.class_along(len(lines) - 2, d, lines, n, np.ascontiguousarray(X), scores)
        return scores
    scores[:] = ((X - lines[0, :d]) - lines[1, :d]) @ lines[2:, :d].T
    scores += lines[2:, d]
    return scores


UNSEEN = float(np.finfo(np.float64).min / 4)
"""The score of a class without rows: below that of any other class, but finite."""
_LARGEST = 1e150  # squares of larger numbers overflow
_FAR = 1e100  # rows that are farther from their mean are learned on a copy, which may overflow
_BLOCK = 1024  # rows that are converted to float64 at once


class ClassLearner(Classifier):
    """Base class of classifiers that store class moments.

    Subclasses implement ``_class_scores``. Single rows of plain numbers are learned in place.
    """

    _derived: ClassVar[tuple[str, ...]] = ("_format",)
    _covariance_type: ClassVar[CovarianceType]
    """The covariances that the learner stores."""

    moments_: Moments
    _format: Any = None  # how compiled code reads single rows, while they are learned in place

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
        return self._learned().of_classes

    @property
    def counts_(self) -> Floats:
        """The total weight of the rows of each class, (c,)."""
        return self._learned().mass.copy()

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
        n, labels, scores = len(X), Y.argmax(axis=1).astype(np.float64), np.zeros(Y.shape)
        moments, weights = self.moments_.copy(), np.ones(n) if s is None else s
        prequential = getattr(self, "_prequential", False)
        scored = set(range(n) if prequential else self._calibrated_rows(n))
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
            return self._finite_scores(self.moments_, X.astype(np.float64, copy=False))

    # -- single rows -------------------------------------------------------------------------------

    def _prepare_single_rows(self) -> None:
        description = None if native.loops is None else row_format(self)
        if native.loops is not None and description is not None:
            sizes = self.n_features_in_, len(self.classes_)
            self.__dict__["_format"] = native.loops.Format(*sizes, description)

    def _learn_in_place(
        self, x: RowLike, y: ArrayLike | None, sample_weight: float, time: TimeLike | None
    ) -> bool:
        reader, own = self._format, self.__dict__
        if reader is None or time is not None:
            return False
        example = np.empty(own["n_features_in_"] + 2)
        if not reader.example(x, y, sample_weight, example):
            return False
        row, label, weight = example[None, :-2], example[-2:-1], example[-1:]
        moments, fitted = own["moments_"], None
        if self._calibrated and calibration.uses(own["rows_seen_"]):
            scores = self._class_scores(moments, row)
            fitted = calibration.updated(self.calibration_, scores, label, weight)[0]
        if not moments.learn(row, label, weight, _FAR):
            return False
        if fitted is not None:
            own["calibration_"] = fitted
        own["rows_seen_"] += 1
        return True

    def _scores_of_one(self, reader: Any, x: RowLike) -> Floats | None:
        """Scores of one row, (1, c), with ``UNSEEN``; None if it must be validated first."""
        row = np.empty((1, self.n_features_in_))
        if not reader.row(x, row):
            return None
        return self._class_scores(self.moments_, row)

    def predict_one(self, x: RowLike) -> Any:
        """Predict the label of one row; None if no class is known."""
        reader = self._format
        scores = None if reader is None else self._scores_of_one(reader, x)
        prediction = None if scores is None else reader.prediction(scores)
        return super().predict_one(x) if prediction is None else prediction

    def _predict_proba_in_place(self, x: RowLike) -> dict[Any, float] | None:
        reader = self._format
        scores = None if reader is None else self._scores_of_one(reader, x)
        if scores is None:
            return None
        fitted = self.calibration_ if self._calibrated else None
        shares: dict[Any, float] | None = reader.probabilities(scores, fitted)
        return shares

    def __setattr__(self, name: str, value: object) -> None:
        own = self.__dict__
        if "moments_" in own:  # a parameter applies from the next row
            own["moments_"].cached.clear()
            own.pop("_format", None)
        super().__setattr__(name, value)

    def __copy__(self) -> Self:
        twin = object.__new__(type(self))
        twin.__dict__ = dict(self.__dict__)
        if "moments_" in twin.__dict__:  # single rows are learned in place
            twin.__dict__["moments_"] = twin.moments_.copy()
        return twin

    def __getstate__(self) -> Any:
        own: Any = super().__getstate__()
        return {name: value for name, value in own.items() if name != "_format"}

    # -- growing and merging -----------------------------------------------------------------------

    def _widen(self, d: int) -> None:
        c, old = self.moments_.c, np.arange(self.moments_.d)
        self.moments_ = self.moments_.placed(old, d, np.arange(c), c)

    @property
    def _moves(self) -> bool:
        return True

    def _move(self, origins: Floats) -> None:
        self.moments_ = self.moments_.moved(origins)

    def _add_outputs(self, at: Array, c: int) -> None:
        self._check_parameters(c)
        old = np.setdiff1d(np.arange(c), at)
        self.moments_ = self.moments_.placed(np.arange(self.moments_.d), self.moments_.d, old, c)

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
        cached, cosine = moments.cached, self.metric == "cosine"
        if cosine and native.loops is None:
            cosines: Floats = _unit(X) @ _unit(moments.of_classes).T
            return cosines
        if "lines" not in cached:
            lines = moments.lines(cosine=cosine)
            cached["lines"] = moments.plain_lines(None, lambda M: M) if lines is None else lines
        return along(cached["lines"], X)  # (3)


def _unit(rows: Floats) -> Floats:
    """Rows scaled to length 1, (n, d); rows of length 0 are unchanged."""
    largest = np.abs(rows).max(axis=1, keepdims=True, initial=0.0)  # so that no square overflows
    rows = rows / np.where(largest > 0.0, largest, 1.0)
    lengths = np.sqrt(np.einsum("ij,ij->i", rows, rows))[:, None]
    units: Floats = rows / np.where(lengths > 0.0, lengths, 1.0)
    return units
