"""Incremental principal component analysis as a feature.

With the mean m and the top k axes V of the rows so far, a row x becomes

    z = V (x − m)                                                                       (1)

and with ``whiten`` each coordinate is divided by its standard deviation. The axes are those of
:mod:`onepass.linalg.pca`: sequential Karhunen-Loève [1, 2], truncated to k after every ``block``
rows, independently of how the stream is cut. The axes used by ``learn_transform`` and by a Pipeline
are updated after rows 1, 2, 4, … and then after each block, so that many rows share the cost of an
update. Attributes, ``transform`` and ``inverse_transform`` use the axes of all rows learned,
computed at the first access after a row. Axes can be frozen after the first rows; (1) is then a
fixed function of all later rows.

Cost: O(d (k + block)) memory; O(d (k + block)² / block) time per row, and an update when attributes
are read.

[1] D. Ross, J. Lim, R.-S. Lin, M.-H. Yang, "Incremental learning for robust visual tracking",
    International Journal of Computer Vision 77, 2008.
[2] A. Levey, M. Lindenbaum, "Sequential Karhunen-Loeve basis extraction and its application to
    images", IEEE Transactions on Image Processing 9(8), 2000.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, cast

import numpy as np

from onepass import linalg, validation
from onepass.declared import State, param
from onepass.errors import MergeError, NotFittedError, NumericalError, public
from onepass.features.random_features import check_features
from onepass.features.transformer import Columnwise, Starts
from onepass.linalg.pca import (
    IncrementalPCAState,
    PrincipalAxes,
    accumulate,
    checked_components,
    frozen_axes,
    initial_state,
    no_axes,
    rows_between,
)
from onepass.types import Array, ArrayLike, Floats
from onepass.validation.table import TableLike


@dataclass(eq=False, repr=False)
class IncrementalPCA(Columnwise):
    """Coordinates along the principal axes of the rows so far.

    The first row is sufficient. Attributes, ``transform`` and ``inverse_transform`` use the axes of
    all rows learned, computed when they are first read after a row: reading them after each row
    costs O(d (k + block)²) per row. ``learn_transform``, and ``learn`` and ``predict`` of a
    Pipeline, use the axes of the last update before a row, so that a learner predicts from the
    coordinates that it learns; coordinates along axes that do not exist yet are 0. With ``block``
    as batch size the result agrees with scikit-learn's ``IncrementalPCA``, which requires k rows at
    once.

    **Before a learner, set** ``freeze_after``. When axes rotate, the coordinates of a row change,
    so that a learner fitted to earlier coordinates predicts badly: on scikit-learn's digits the
    accuracy of ``RLSClassifier`` is 0.87 without PCA, 0.53 with 30 rotating axes, and 0.86 with 30
    axes frozen after 500 rows.

    Frozen axes are those of the first rows. Until then, all features are 0; afterwards the axes are
    fixed, so that a learner after them is exact on all later rows. Columns that are added later do
    not contribute.

    Parameters
    ----------
    n_components : int or float, default=10
        k >= 1, at most the number of columns; or a share of the variance in (0, 1): columns are
        then added as needed, and never removed.
    whiten : bool, default=False
        Whether coordinates are divided by their standard deviations.
    block : int, optional
        Number of rows between two truncations, >= 1; by default twice the components, at least 128.
        With ``freeze_after``, nothing is truncated by default: the axes are those of scikit-learn's
        ``PCA`` of the first rows, in O(d min(rows, d)) memory until then.
    freeze_after : int, optional
        Number of rows, >= 1, after which the axes are fixed; never by default.

    Attributes
    ----------
    components_ : ndarray of shape (k, d)
        V, of all rows learned. The largest entry of each axis is positive, or the first of those
        equal up to 1e-6. With a share of the variance, axes are added at updates only.
    mean_ : ndarray of shape (d,)
        m, of all rows learned.
    singular_values_ : ndarray of shape (k,)
        Roots of the sums of squares along the axes.
    explained_variance_ : ndarray of shape (k,)
        Variances along the axes, in squared units of the columns.
    explained_variance_ratio_ : ndarray of shape (k,)
        Shares of the total variance.
    n_features_in_, rows_seen_ : int

    Raises
    ------
    ParameterError
        When learning begins, if a parameter is out of range.
    NumericalError
        If squares of the values, or coordinates, overflow float64.
    MergeError
        If frozen axes are merged with different ones.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(500, 2)) @ rng.normal(size=(2, 30))
    >>> pca = IncrementalPCA(2).learn(X)
    >>> float(pca.explained_variance_ratio_.sum().round(6))
    1.0
    >>> float(abs(pca.inverse_transform(pca.transform(X)) - X).max()) < 1e-12
    True
    >>> IncrementalPCA(2, whiten=True).learn(X).transform(X).std(axis=0, ddof=1).round(6).tolist()
    [1.0, 1.0]
    >>> fixed = IncrementalPCA(2, freeze_after=200).learn(X)
    >>> float(abs(fixed.mean_ - X[:200].mean(axis=0)).max()) < 1e-12
    True
    """

    _merging: ClassVar[str] = "approximate"
    _uses_units: ClassVar[bool] = True

    _prefix: ClassVar[str] = "pc"

    axes_ = State[IncrementalPCAState]()
    _current_cache = cast("tuple[Any, Any]", (None, None))  # ``axes_`` and their view of all rows

    n_components: float = 10
    _: KW_ONLY
    whiten: bool = False
    block: int | None = None
    freeze_after: int | None = param(None, whole=True, low=1)

    # -- learned state --------------------------------------------------------------------------

    @property
    def components_(self) -> Floats:
        """The axes, (k, d)."""
        return self._current.directions

    @property
    def mean_(self) -> Floats:
        """The mean subtracted from each row, (d,)."""
        return self._current.center

    @property
    def singular_values_(self) -> Floats:
        """Roots of the sums of squares along the axes, (k,)."""
        return self._current.lengths

    @property
    def explained_variance_(self) -> Floats:
        """Variances along the axes, (k,); zeros after one row."""
        return _variances(self._current)

    @property
    def explained_variance_ratio_(self) -> Floats:
        """Shares of the total variance, (k,)."""
        view = self._current
        return view.lengths**2 / (view.trace or 1.0)

    @property
    def n_features_out_(self) -> int:
        """Current number of output columns."""
        d = getattr(self, "n_features_in_", 0)
        k = self.axes_.n_components if self._is_frozen else self.n_components
        if isinstance(k, (int, np.integer)):
            return min(int(k), d)
        return len(self._view.lengths) if hasattr(self, "axes_") else 0

    @public
    def transform(self, X: TableLike) -> Floats:
        """Return the coordinates along the axes of all rows learned; nothing is learned.

        ``learn_transform`` and a Pipeline use the axes of the last update instead.

        Parameters
        ----------
        X : array-like of shape (n, d)

        Returns
        -------
        ndarray of shape (n, n_features_out_)
        """
        checked_rows = self._check_rows(X, learning=False)
        return (
            self._project(self._current, checked_rows)
            if hasattr(self, "axes_")
            else self._transform_rows(checked_rows)
        )

    @public
    def inverse_transform(self, Z: ArrayLike) -> Floats:
        """Return the rows (n, d) nearest to the mean with these coordinates (n, k).

        Parameters
        ----------
        Z : array-like of shape (n, k)

        Raises
        ------
        NotFittedError
            Before any row was learned.
        """
        view = self._current
        k = self.n_features_out_
        given, _ = validation.matrix(Z, d=k, names=None)
        Z = given[:, : len(view.lengths)]
        if self.whiten:
            Z = Z * np.sqrt(_variances(view))
        rows: Floats = Z @ view.directions + view.center
        return rows

    # -- hooks -------------------------------------------------------------------------------------

    def _start(self, d: int) -> None:
        k = checked_components(self.n_components)
        block = rows_between(self.block, k, d)
        if self.freeze_after is None:
            self.axes_ = IncrementalPCAState.start(d, k, block)
            return
        between = None if self.block is None else block
        self.axes_ = initial_state(d, k, self.freeze_after, between)

    def _widen(self, d: int) -> None:
        self.axes_ = self.axes_.grown(d)

    def _step(self, X: Floats, starts: Starts) -> tuple[Floats, Starts]:
        self.axes_ = self.axes_.moved(starts.origins)
        X = starts.placed(X).astype(np.float64, copy=False)
        if self.freeze_after is not None:
            return self._step_until(X, self.freeze_after)
        self._current_cache = (None, None)  # release the former axes
        parts, widths, begin = [], [self.n_features_out_], 0
        with np.errstate(over="ignore", invalid="ignore"):
            for end in self.axes_.checkpoints(len(X)):
                parts.append(self._transform_block(X[begin:end]))
                self.axes_ = self._checked_update(self.axes_.taken, X[begin:end])
                widths += [self.n_features_out_] * (end - begin)
                begin = end
        k, width = widths[0], widths[-1]
        first_rows = np.searchsorted(widths, np.arange(width), side="right")
        out = np.zeros((len(X), widths[-1]))
        for end, part in zip(np.cumsum([len(part) for part in parts]), parts, strict=True):
            out[end - len(part) : end, : part.shape[1]] = part
        return out, Starts.none(width)._replace(rows=np.where(np.arange(width) < k, -1, first_rows))

    def _step_until(self, X: Floats, rows: int) -> tuple[Floats, Starts]:
        """Learn rows for axes that are frozen after ``rows`` rows."""
        width, before = self.n_features_out_, max(0, min(len(X), rows - self.axes_.rows))
        if before:
            k = checked_components(self.n_components)
            with np.errstate(over="ignore", invalid="ignore"):
                self.axes_ = self._checked_update(
                    lambda X: accumulate(self.axes_, X, rows, k), X[:before]
                )
        out = np.zeros((len(X), self.n_features_out_))
        if before < len(X):
            out[before:] = self._transform_block(X[before:])
        k = out.shape[1]
        return out, Starts.none(k)._replace(rows=np.where(np.arange(k) < width, -1, before))

    def _checked_update(
        self, learn: Callable[[Floats], IncrementalPCAState], X: Floats
    ) -> IncrementalPCAState:
        try:
            axes = learn(X)
        except np.linalg.LinAlgError:
            axes = None
        if axes is None or not linalg.finite(axes.mean, np.array([axes.trace])):
            raise NumericalError(
                "squares of the values must be within float64, got values up to "
                f"{np.abs(X).max():.3g}. Divide the columns by a constant."
            )
        return axes

    def _merge_block(self, other: IncrementalPCA, at: Array, known: int) -> Array:
        del known
        theirs = other.axes_.placed(at, self.n_features_in_)
        if self.freeze_after is None or not (self._is_frozen or other._is_frozen):
            self.axes_ = self.axes_.merged(theirs)
            if self._is_frozen:
                self.axes_ = frozen_axes(self.axes_, checked_components(self.n_components))
        elif not self.axes_.rows:
            self.axes_ = theirs
        elif other.axes_.rows:
            self._check_same(theirs)
        return np.arange(other.n_features_out_)

    def _check_same(self, theirs: IncrementalPCAState) -> None:
        """Reject different axes, and frozen axes in only one of the two."""
        one, two, parts = self.axes_, theirs, ("center", "directions", "lengths")
        same = (np.array_equal(getattr(one.view, k), getattr(two.view, k)) for k in parts)
        if one.rows != two.rows or not all(same):
            raise MergeError(
                f"frozen axes must be the same in both, got axes of {one.rows} rows and "
                f"different axes of {two.rows} rows. Create both from one copy that has "
                "learned `freeze_after` rows."
            )

    def _merge_conflict(self, other: IncrementalPCA) -> str:
        """Return a reason if the two transformers projected their rows on different axes."""
        if not (self.rows_seen_ and other.rows_seen_):
            return ""
        if self.freeze_after is not None:
            unseen = self.axes_.rows + other.axes_.rows <= self.freeze_after
            still = self._is_frozen and other._is_frozen
            if unseen or still:  # all are 0, or ``_merge_block`` compares the axes
                return ""
            return (
                "its axes are those of its own first rows. Create both from one copy with frozen "
                "axes"
            )
        return (
            "its rows were projected on different axes. Merge only the transformers, use a fixed "
            "transformer before the learner, or create both from one copy with frozen axes"
        )

    def _transform_block(self, X: Floats) -> Floats:
        return self._project(self._view, X)

    def _project(self, view: PrincipalAxes, X: Floats) -> Floats:
        """Return the coordinates (n, n_features_out_) of rows X (n, d) along the axes of a view."""
        with np.errstate(over="ignore", invalid="ignore"):
            Z = view.of(X.astype(np.float64, copy=False))
        if self.whiten:
            spread = np.sqrt(_variances(view))
            Z /= np.where(spread > 0.0, spread, 1.0)
        Z = check_features(Z, X)
        missing = self.n_features_out_ - Z.shape[1]
        return np.pad(Z, ((0, 0), (0, missing))) if missing else Z

    @property
    def _sound(self) -> bool:
        """Whether the attributes of a loaded file are consistent."""
        axes = getattr(self, "axes_", None)
        fits = axes is None or (axes._sound and len(axes.mean) == self.n_features_in_)  # noqa: SLF001
        return bool(fits and self.n_features_out_ >= len(self._view.lengths if axes else ()))

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = dict(super().__getstate__())
        state.pop("_current_cache", None)
        return state

    # -- private -------------------------------------------------------------------

    @property
    def _is_frozen(self) -> bool:
        """Whether the axes are frozen."""
        rows = self.axes_.rows if hasattr(self, "axes_") else 0
        return self.freeze_after is not None and rows >= self.freeze_after

    @property
    def _view(self) -> PrincipalAxes:
        """The axes in use: empty while axes that will be frozen are being learned."""
        axes = self._fitted_axes()
        if self.freeze_after is None or self._is_frozen:
            return axes.view
        return no_axes(len(axes.mean))

    @property
    def _current(self) -> PrincipalAxes:
        """The axes of all rows learned, cached until a row is learned."""
        if self.freeze_after is not None:
            return self._view
        axes, cached = self._fitted_axes(), self._current_cache
        if cached[0] is not axes:
            # with a share of the variance, columns are added at updates only
            k = None if isinstance(axes.n_components, int) else len(axes.view.lengths)
            cached = self._current_cache = axes, axes.current_axes(k)
        view: PrincipalAxes = cached[1]
        return view

    def _fitted_axes(self) -> IncrementalPCAState:
        if not hasattr(self, "axes_"):
            raise NotFittedError(
                f"this {type(self).__name__} is not fitted yet. Call learn or learn_transform "
                "first."
            )
        return self.axes_


def _variances(view: PrincipalAxes) -> Floats:
    """Return variances along the axes of a view, (k,)."""
    return view.lengths**2 / max(view.mass - 1.0, 1.0)
