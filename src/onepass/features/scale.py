"""Standardisation: columns of mean 0 and standard deviation 1 over the rows so far.

With n the number of rows of a column from its first value up to and including row x [1]::

    m_n = m_{n-1} + (x - m_{n-1}) / n                                        (1)
    M_n = M_{n-1} + (x - m_{n-1}) (x - m_n)                                  (2)
    z   = (x - m_n) / sqrt(M_n / n)                                          (3)

The row is part of its own statistics, so |z| <= sqrt(n - 1): the first rows are not outliers. The
statistics may be fixed after the first rows; (3) is then a fixed function of all later rows.

Blocks are vectorised. With D = x - m_0 about the mean m_0 of the n_0 rows before the block, (1) is
a cumulative sum, m_k - m_0 = (D_1 + ... + D_k) / (n_0 + k), and (2) a sum of terms that are all >=
0, so nothing cancels. All values are relative to the column's first value, which is within sqrt(n)
standard deviations of the mean. Digits that all rows share (as in 1e8 + small) are thereby removed
exactly before anything is squared [2]. Differences below the last digits of the first value are
rounding, not variance: such a column counts as constant.

Cost: O(d) time per row, O(d) memory.

[1] B. P. Welford, "Note on a method for calculating corrected sums of squares and products",
    Technometrics 4(3), 1962.
[2] T. F. Chan, G. H. Golub and R. J. LeVeque, "Algorithms for computing the sample variance",
    The American Statistician 37(3), 1983; equation (2.1) and the shifted data of section 3.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from onepass import native
from onepass.declared import FEATURE, State, param, start_states
from onepass.errors import MergeError, NumericalError
from onepass.features.random_features import check_features
from onepass.features.transformer import Columnwise, Starts, column_parts
from onepass.types import Array, Floats

_MOMENTS = ("counts_", "origin_", "offset_", "squares_")


@dataclass(eq=False, repr=False)
class Scale(Columnwise):
    """Standardisation by the running mean and standard deviation of each column.

    A column that has been constant so far, up to the last digits of float64, is 0. Rows before the
    first value of a column do not count, and are 0.

    A :class:`onepass.Pipeline` skips ``Scale`` before learners whose predictions do not depend on
    the units of the columns (``_scale_invariant = True``), such as recursive least squares. Their
    exactness requires *the same* units in all rows, while running statistics change the units with
    every row.

    Parameters
    ----------
    with_mean : bool, default True
        Subtract the running mean and divide by the standard deviation. Otherwise divide by the root
        mean square, so that zeros stay zeros. (scikit-learn's StandardScaler divides by the
        standard deviation in both cases; the output for a single early row far from 0 would then be
        unbounded.)
    freeze_after : int, optional
        Number of rows, >= 1, after which the statistics are fixed; never by default. Later rows are
        all transformed in the same way, so that a learner's earlier rows stay valid, but values
        that drift away from the first rows become large. A column that was constant in the first
        rows, or is added later, keeps its unit.

    Attributes
    ----------
    counts_ : ndarray of shape (d,)
        Number of rows in the statistics of each column.
    mean_, std_ : ndarray of shape (d,)
        The mean (0 without ``with_mean``) and the divisor after the rows so far, in the columns'
        units. The standard deviation is that of the population, sqrt(M_n / n).

    Raises
    ------
    ParameterError
        When learning begins, if ``freeze_after`` is out of range.
    MergeError
        If fixed statistics are merged with different ones.
    NumericalError
        If squares of a column's values overflow float64.

    Examples
    --------
    >>> scale = Scale()
    >>> scale.learn_transform([[1e8 - 1], [1e8 + 1], [1e8 + 3]]).ravel().round(4).tolist()
    [0.0, 1.0, 1.2247]
    >>> float(scale.std_[0].round(4))
    1.633
    >>> Scale(freeze_after=2).learn([[0.0], [2.0]]).learn_transform([[5.0], [1.0]]).tolist()
    [[4.0], [0.0]]
    """

    _rescales: ClassVar[bool] = True

    counts_ = State[Array](FEATURE)
    origin_ = State[Array](FEATURE)
    offset_ = State[Array](FEATURE)
    squares_ = State[Array](FEATURE)
    freeze_after_ = State[float]()

    with_mean: bool = True
    freeze_after: int | None = param(None, whole=True, low=1)

    @property
    def mean_(self) -> Floats:
        """Mean of the rows so far, shape (d,)."""
        mean: Floats = self.origin_ + self.offset_
        return mean

    @property
    def std_(self) -> Floats:
        """The divisor after the rows so far, shape (d,); 0 where a column is constant."""
        std: Floats = np.sqrt(self.squares_ / np.maximum(self.counts_, 1.0))
        return std

    @property
    def _merging(self) -> str:  # type: ignore[override]  # by parameter
        return "refused" if self.freeze_after is None else "exact"

    def _start(self, d: int) -> None:
        self.freeze_after_ = math.inf if self.freeze_after is None else float(self.freeze_after)
        start_states(self, d=d)

    def _widen(self, d: int) -> None:
        known = self.n_features_in_
        super()._widen(d)
        self.counts_[known:] = min(self.rows_seen_, self.freeze_after_)  # mean 0, squares 0

    def _step(self, X: Floats, starts: Starts) -> tuple[Floats, Starts]:
        n, until = len(X), int(max(0.0, min(len(X), self.freeze_after_ - self.rows_seen_)))
        new, rows = starts.absent, starts.since
        if new.any():
            self.counts_ = np.where(new, 0.0, self.counts_)
            self.origin_ = np.where(new, starts.origins * self.with_mean, self.origin_)
        X = starts.placed(X)
        out = self._learn_running(X[:until], np.minimum(rows, until)) if until else X[:0]
        if until < n:
            out = np.concatenate((out, self._transform_fixed(X[until:])))
        origins = np.zeros(len(rows))
        for j in np.flatnonzero(starts.origins) if not self.with_mean else ():
            out[: rows[j], j], origins[j] = 0.0, out[rows[j], j]
        return out, starts._replace(origins=origins)

    def _learn_running(self, X: Floats, rows: Array) -> Floats:
        """Learn n >= 1 rows, from row ``rows[j]`` in column j on; return each as after it."""
        n, d = X.shape
        counts = self.counts_
        if self.with_mean and not counts.all():
            self.origin_ = np.where(counts, self.origin_, X[np.minimum(rows, n - 1), np.arange(d)])
        after = np.arange(1.0, n + 1.0)
        even = not rows.any() and (counts == counts[:1]).all()
        offset, squares, out = self.offset_.copy(), self.squares_.copy(), np.empty_like(X)
        with np.errstate(over="ignore", invalid="ignore"):
            least = self._least()[:, None]
            for part in column_parts(n, d):
                x = X[:, part].T
                if even:
                    count = counts[0] + after
                else:
                    since = after - rows[part, None]
                    x = np.where((since > 0.0) | self.with_mean, x, 0.0)
                    count = np.maximum(counts[part, None] + np.maximum(since, 0.0), 1.0)
                Z, M = self._centred(x, part, count, offset) if self.with_mean else _about_zero(x)
                M[:, 0] += squares[part]
                np.cumsum(M, axis=1, out=M)
                squares[part] = M[:, -1]
                M /= count
                if not np.isfinite(squares[part]).all():
                    self._refuse_overflow(M.T, x.T, part.start)
                out[:, part] = _divided(Z, M, least[part]).T
        self.counts_ = counts + (n - rows)
        self.offset_, self.squares_ = offset, squares
        return out

    def _transform_fixed(self, X: Floats) -> Floats:
        """Transform rows with fixed statistics; columns without variance keep their unit."""
        variance = self.squares_ / np.maximum(self.counts_, 1.0)
        std = np.sqrt(np.where(variance < self._least(), 1.0, variance))
        with np.errstate(over="ignore"):
            Z = ((X - self.origin_) - self.offset_) / std
        return check_features(Z, X).astype(X.dtype, copy=False)

    def _compiled_row(self, x: Any, *, learning: bool) -> tuple[Floats, dict[str, Any]] | None:
        """Transform a row in the compiled loop; None if NumPy must handle the row."""
        names = self._row_names(x)
        if names is False:
            return None
        d, seen, fixed = len(self.offset_), self.rows_seen_, self.rows_seen_ >= self.freeze_after_
        z, new = np.empty(d), learning and not fixed
        offset, squares = (np.empty(d), np.empty(d)) if new else (None, None)
        done = native.loops.scale_row(  # type: ignore[union-attr]
            x, names, fixed, self.with_mean, self.counts_, self.origin_, self.offset_,
            self.squares_, z, offset, squares,
        )  # fmt: skip
        if not done:
            return None
        if not new:
            return z, {"rows_seen_": seen + 1}
        counts = self.counts_ + 1.0
        return z, {
            "counts_": counts, "offset_": offset, "squares_": squares, "rows_seen_": seen + 1
        }  # fmt: skip

    def _merge_block(self, other: Scale, at: Array, known: int) -> Array:
        """Merge the moments of both: [2] (2.1)."""
        del known
        d = len(self.origin_)
        theirs = counts, origin, offset, squares = [np.zeros(d) for _ in range(4)]
        for array, name in zip(theirs, _MOMENTS, strict=True):
            array[at] = getattr(other, name)
        mine = [getattr(self, name) for name in _MOMENTS]
        n, more = self.rows_seen_, other.rows_seen_
        if not (n and more):
            merged = mine if n else theirs
        elif n + more > self.freeze_after_:
            if min(n, more) < self.freeze_after_ or not all(map(np.array_equal, mine, theirs)):
                raise MergeError(
                    "fixed statistics must be the same in both, got different ones. Create "
                    "both from one copy that has learned `freeze_after` rows."
                )
            merged = mine
        else:
            total = np.maximum(self.counts_ + counts, 1.0)
            apart = (origin - self.origin_) + (offset - self.offset_)
            with np.errstate(over="ignore", invalid="ignore"):
                squares = squares + self.squares_ + apart**2 * (self.counts_ * counts / total)
                self._refuse_overflow(squares[None, :], squares[None, :], 0)
            offset = self.offset_ + apart * (counts / total)
            merged = [self.counts_ + counts, self.origin_, offset, squares]
        for name, array in zip(_MOMENTS, merged, strict=True):
            setattr(self, name, array)
        return at

    def _merge_conflict(self, other: Scale) -> str:
        """Return a reason if the rows of both were scaled by different running statistics."""
        n, more = self.rows_seen_, other.rows_seen_
        if (
            not (n and more) or n + more > self.freeze_after_
        ):  # ``_merge_block`` compares fixed statistics
            return ""
        return (
            "its rows were scaled by different statistics. Scale columns by constants that are "
            "the same for all parts, create both from one copy with fixed statistics, or use a "
            "scale-invariant learner, such as RLS"
        )

    def _centred(
        self, X: Floats, part: slice, count: Floats, offset: Floats
    ) -> tuple[Floats, Floats]:
        """Return the numerators of (3) and the terms of (2) for X (d, n): sums run along memory.

        ``offset`` is updated in place.
        """
        D = np.ascontiguousarray(X, dtype=np.float64) - self.origin_[part, None]
        D -= offset[part, None]
        means = np.cumsum(D, axis=1)
        means /= count  # (1)
        offset[part] += means[:, -1]
        D[:, 1:] -= means[:, :-1]  # x - m_{n-1}
        Z = D * ((count - 1) / count)  # x - m_n
        D *= Z  # (2), of one sign by construction
        return Z, D

    def _transform_block(self, X: Floats) -> Floats:
        n: Floats = self.counts_
        if self.rows_seen_ >= self.freeze_after_:
            return self._transform_fixed(X)
        with np.errstate(over="ignore", invalid="ignore"):
            if self.with_mean:
                D = (X - self.origin_) - self.offset_
                Z = D * (n / (n + 1.0))
                D *= Z
            else:
                Z, D = _about_zero(X)
            variance = (self.squares_ + D) / (n + 1.0)
            self._refuse_overflow(variance, X, 0)
            return _divided(Z, variance, self._least()).astype(X.dtype, copy=False)

    def _least(self) -> Floats:
        """Return the variance, shape (d,), below which there is only rounding."""
        numbers = np.finfo(np.float64)
        least: Floats = np.maximum(np.square(4 * numbers.eps * self.origin_), numbers.tiny)
        return least

    def _refuse_overflow(self, variance: Floats, X: Floats, first: int) -> None:
        """Reject squares beyond float64; columns are counted from ``first``."""
        if np.isinf(variance).any():
            i, j = (int(k) for k in np.argwhere(np.isinf(variance))[0])
            raise NumericalError(
                "sums of squares of the values so far must be within float64",
                got=f"{X[i, j]:g}",
                remedy=(
                    "Rescale the column by a constant. If this value is small, an "
                    "earlier row was large: restore a model saved before that row."
                ),
                row=i,
                column=self._names_in()[first + j],
            )


def _divided(Z: Floats, variance: Floats, least: Floats) -> Floats:
    """Apply (3) in place; columns that have been constant become 0, and nan stays nan."""
    constant = variance < least
    std = np.sqrt(variance, out=variance)
    if constant.any():
        Z[constant] = 0.0
        std[constant] = 1.0
    Z /= std
    return Z


def _about_zero(X: Floats) -> tuple[Floats, Floats]:
    """Return the numerators of (3) and the terms of (2) about a mean of 0."""
    Z = np.array(X, dtype=np.float64, order="C")
    return Z, Z * Z
