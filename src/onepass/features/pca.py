"""Incremental principal component analysis as a feature.

With the mean m and the top k axes V of the rows so far, a row x becomes

    z = V (x − m)                                                                       (1)

and with ``whiten`` each coordinate is divided by its standard deviation. The axes are those of
:mod:`onepass.linalg.pca`: sequential Karhunen-Loève [1, 2], truncated to k after every ``block``
rows, independently of how the stream is cut. The axes used by ``learn_transform`` and by a Pipeline
are updated after rows 1, 2, 4, … and then after each block, so that many rows share the cost of an
update. Attributes, ``transform`` and ``inverse_transform`` use the axes of all rows learned,
computed at the first access after a row. Axes can be frozen after the first rows; (1) is then one
function for all later rows.

Cost: O(d (k + block)) memory; O(d (k + block)² / block) time a row, and an update when attributes
are read.

[1] D. Ross, J. Lim, R.-S. Lin, M.-H. Yang, "Incremental learning for robust visual tracking",
    International Journal of Computer Vision 77, 2008.
[2] A. Levey, M. Lindenbaum, "Sequential Karhunen-Loeve basis extraction and its application to
    images", IEEE Transactions on Image Processing 9(8), 2000.
"""

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from onepass import linalg, validation
from onepass.errors import MergeError, NotFittedError, NumericalError
from onepass.features.random_features import checked
from onepass.features.transformer import Columnwise
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

__all__ = ["IncrementalPCA"]


class IncrementalPCA(Columnwise):
    """Coordinates along the principal axes of the rows so far.

    It works from the first row. Attributes, ``transform`` and ``inverse_transform`` use the axes of
    all rows learned, computed when they are first read after a row: a read after each row costs
    O(d (k + block)²) a row. ``learn_transform``, and ``learn`` and ``predict`` of a Pipeline, use
    the axes of the last look before a row, so that a learner predicts from the coordinates that it
    learns; axes that are not known yet give 0. With ``block`` as its batch size it agrees with
    scikit-learn's, which wants k rows at once.

    **In front of a learner, set** ``freeze_after``. Axes that go on turning give the same row other
    coordinates, and a learner that holds on to what it learned along the old ones is misled: on
    scikit-learn's digits ``RLSClassifier`` is right of 0.87 alone, of 0.53 behind 30 axes that
    turn, and of 0.86 behind 30 that were frozen after 500 rows.

    Frozen axes are those of the first rows. Until they are there all features are 0; they are in
    use from the row after the last of these, and are never learned again, so that a learner
    behind them is exact on all rows from there on. Columns that come later have no part in them.

    Parameters
    ----------
    n_components : int or float, default=10
        k >= 1, at most as many as there are columns; or a share of the variance in (0, 1), and
        then columns come as they are needed, and none goes again.
    whiten : bool, default=False
        Whether coordinates are divided by their standard deviations.
    centred : bool, default=True
        Whether the mean is taken from the rows. Without, the axes are those of the rows'
        products, not of their covariance.
    block : int, optional
        Rows between two truncations, >= 1; twice the components, and 128 or more, if not given.
        With ``freeze_after``, if not given, nothing is truncated: the axes are those of
        scikit-learn's ``PCA`` of the first rows, in O(d min(rows, d)) memory until they are there.
    freeze_after : int, optional
        Rows, >= 1, from which the axes are learned; then they stand still. Without, never.

    Attributes
    ----------
    components_ : ndarray of shape (k, d)
        V, of all rows learned. The largest number of each axis is positive. With a share of the
        variance, new axes are added at looks only.
    mean_ : ndarray of shape (d,)
        m, of all rows learned; zeros without ``centred``.
    singular_values_ : ndarray of shape (k,)
        Roots of the sums of squares along the axes.
    explained_variance_ : ndarray of shape (k,)
        Variances along the axes, in squared units of the columns.
    explained_variance_ratio_ : ndarray of shape (k,)
        Their shares of the whole variance.
    n_features_in_, rows_seen_ : int

    Raises
    ------
    ParameterError
        When learning begins, if a parameter is out of range.
    NumericalError
        If squares of the values, or coordinates, overflow float64.
    MergeError
        If frozen axes are to be merged with others than the same.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(500, 2)) @ rng.normal(size=(2, 30))
    >>> pca = IncrementalPCA(2).learn(X)
    >>> float(pca.explained_variance_ratio_.sum().round(6))
    1.0
    >>> float(abs(pca.inverse_transform(pca.transform(X)) - X).max()) < 1e-12
    True
    >>> fixed = IncrementalPCA(2, freeze_after=200).learn(X)
    >>> float(abs(fixed.mean_ - X[:200].mean(axis=0)).max()) < 1e-12
    True
    """

    merging: ClassVar[str] = "approximate"
    uses_units: ClassVar[bool] = True

    _letter: ClassVar[str] = "pc"

    axes_: IncrementalPCAState
    _looked: tuple[Any, Any] = (None, None)  # ``axes_`` and their view of all rows

    def __init__(
        self,
        n_components: float = 10,
        *,
        whiten: bool = False,
        centred: bool = True,
        block: int | None = None,
        freeze_after: int | None = None,
    ) -> None:
        self.n_components = n_components
        self.whiten = whiten
        self.centred = centred
        self.block = block
        self.freeze_after = freeze_after

    # -- what was learned --------------------------------------------------------------------------

    @property
    def components_(self) -> Floats:
        """The axes, (k, d)."""
        return self._current.directions

    @property
    def mean_(self) -> Floats:
        """What is taken from each row, (d,)."""
        return self._current.center

    @property
    def singular_values_(self) -> Floats:
        """Roots of the sums of squares along the axes, (k,)."""
        return self._current.lengths

    @property
    def explained_variance_(self) -> Floats:
        """Variances along the axes, (k,); of one row, zeros."""
        return _variances(self._current)

    @property
    def explained_variance_ratio_(self) -> Floats:
        """Shares of the whole variance, (k,)."""
        view = self._current
        return view.lengths**2 / (view.trace or 1.0)

    @property
    def n_features_out_(self) -> int:
        """The number of columns that come out now."""
        d = getattr(self, "n_features_in_", 0)
        k = self.axes_.n_components if self._still else self.n_components
        if isinstance(k, (int, np.integer)):
            return min(int(k), d)
        return len(self._view.lengths) if hasattr(self, "axes_") else 0

    def transform(self, X: TableLike) -> Floats:
        """Coordinates along the axes of all rows learned; nothing is learned.

        ``learn_transform`` and a Pipeline use the axes of the last look instead.

        Parameters
        ----------
        X : array-like of shape (n, d)

        Returns
        -------
        ndarray of shape (n, n_features_out_)
        """
        read = self.read_rows(X, f"{type(self).__name__}.transform", learning=False)
        return self._along(self._current, read) if hasattr(self, "axes_") else self.ask(read)

    def inverse_transform(self, Z: ArrayLike) -> Floats:
        """The rows (n, d) nearest to the mean with these coordinates (n, k).

        Parameters
        ----------
        Z : array-like of shape (n, k)

        Raises
        ------
        NotFittedError
            Before anything was learned.
        """
        view = self._current
        k = self.n_features_out_
        given, _ = validation.matrix(Z, "IncrementalPCA.inverse_transform", d=k, names=None)
        Z = given[:, : len(view.lengths)]
        if self.whiten:
            Z = Z * np.sqrt(_variances(view))
        rows: Floats = Z @ view.directions + view.center
        return rows

    # -- hooks -------------------------------------------------------------------------------------

    def _start(self, d: int) -> None:
        who = type(self).__name__
        k = checked_components(self.n_components, who)
        block, centred = rows_between(self.block, k, d, who), bool(self.centred)
        if self.freeze_after is None:
            self.axes_ = IncrementalPCAState.start(d, k, block, centred=centred)
            return
        rows = validation.whole(self.freeze_after, "freeze_after", who, low=1)
        between = None if self.block is None else block
        self.axes_ = initial_state(d, k, rows, between, centred=centred)

    def _widen(self, d: int) -> None:
        self.axes_ = self.axes_.grown(d)

    def _step(self, X: Floats, born: Array) -> tuple[Floats, Array]:
        del born
        X = X.astype(np.float64, copy=False)
        if self.freeze_after is not None:
            return self._step_until(X, self.freeze_after)
        self.__dict__.pop("_looked", None)  # it would keep the former axes in memory
        parts, widths, begin = [], [self.n_features_out_], 0
        with np.errstate(over="ignore", invalid="ignore"):
            for end in self.axes_.checkpoints(len(X)):
                parts.append(self._seen(X[begin:end]))
                self.axes_ = self._sane(self.axes_.taken, X[begin:end])
                widths += [self.n_features_out_] * (end - begin)
                begin = end
        born = np.searchsorted(widths, np.arange(widths[-1]), side="right")
        out = np.zeros((len(X), widths[-1]))
        for end, part in zip(np.cumsum([len(part) for part in parts]), parts, strict=True):
            out[end - len(part) : end, : part.shape[1]] = part
        return out, born

    def _step_until(self, X: Floats, rows: int) -> tuple[Floats, Array]:
        """Learn rows where the axes are those of the first ``rows`` of all."""
        width, before = self.n_features_out_, max(0, min(len(X), rows - self.axes_.rows))
        if before:
            k = checked_components(self.n_components, type(self).__name__)
            with np.errstate(over="ignore", invalid="ignore"):
                self.axes_ = self._sane(lambda X: accumulate(self.axes_, X, rows, k), X[:before])
        out = np.zeros((len(X), self.n_features_out_))
        if before < len(X):
            out[before:] = self._seen(X[before:])
        return out, np.where(np.arange(out.shape[1]) < width, 0, before)

    def _sane(
        self, learn: Callable[[Floats], IncrementalPCAState], X: Floats
    ) -> IncrementalPCAState:
        try:
            axes = learn(X)
        except np.linalg.LinAlgError:
            axes = None
        if axes is None or not linalg.finite(axes.mean, np.array([axes.trace])):
            raise NumericalError(
                "IncrementalPCA: squares of the values must be within float64, got values up to "
                f"{np.abs(X).max():.3g}. Give the columns in larger units."
            )
        return axes

    def _join(self, other: "IncrementalPCA", at: Array, known: int) -> Array:
        del known
        theirs = other.axes_.placed(at, self.n_features_in_)
        if self.freeze_after is None or not (self._still or other._still):  # noqa: SLF001
            self.axes_ = self.axes_.merged(theirs)
            if self._still:
                self.axes_ = frozen_axes(self.axes_, checked_components(self.n_components, "merge"))
        elif not self.axes_.rows:
            self.axes_ = theirs
        elif other.axes_.rows:
            self._check_same(theirs)
        return np.arange(other.n_features_out_)

    def _check_same(self, theirs: IncrementalPCAState) -> None:
        """Refuse axes that are not these, or where only one of the two stands still."""
        one, two, parts = self.axes_, theirs, ("center", "directions", "lengths")
        same = (np.array_equal(getattr(one.view, k), getattr(two.view, k)) for k in parts)
        if one.rows != two.rows or not all(same):
            raise MergeError(
                "IncrementalPCA.merge: frozen axes must be the same in both, got some of "
                f"{one.rows} rows and others of {two.rows}. Begin both from one copy that has "
                "seen `freeze_after` rows."
            )

    def differs(self, other: "IncrementalPCA") -> str:
        """Where the axes of each turned as its rows came, or were learned from other rows."""
        if not (self.rows_seen_ and other.rows_seen_):
            return ""
        if self.freeze_after is not None:
            unseen = self.axes_.rows + other.axes_.rows <= self.freeze_after
            still = self._still and other._still  # noqa: SLF001
            if unseen or still:  # all are 0, or ``_join`` will look whether the axes are the same
                return ""
            return "its axes are of its own first rows. Begin both from one copy that has them"
        return (
            "its rows were seen along axes of their own. Merge the features alone, put one that "
            "is fixed beforehand in front of the learner, or begin from one copy of a frozen one"
        )

    def _seen(self, X: Floats) -> Floats:
        return self._along(self._view, X)

    def _along(self, view: PrincipalAxes, X: Floats) -> Floats:
        """Coordinates (n, n_features_out_) of rows X (n, d) in a view."""
        with np.errstate(over="ignore", invalid="ignore"):
            Z = view.of(X.astype(np.float64, copy=False))
        if self.whiten:
            spread = np.sqrt(_variances(view))
            Z /= np.where(spread > 0.0, spread, 1.0)
        Z = checked(Z, X, type(self).__name__)
        missing = self.n_features_out_ - Z.shape[1]
        return np.pad(Z, ((0, 0), (0, missing))) if missing else Z

    @property
    def _sound(self) -> bool:
        """Whether what a file says fits together."""
        axes = getattr(self, "axes_", None)
        fits = axes is None or (axes._sound and len(axes.mean) == self.n_features_in_)  # noqa: SLF001
        return bool(fits and self.n_features_out_ >= len(self._view.lengths if axes else ()))

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = dict(super().__getstate__())
        state.pop("_looked", None)
        return state

    # -- what stands behind them -------------------------------------------------------------------

    @property
    def _still(self) -> bool:
        """Whether the axes are there and stand still."""
        rows = self.axes_.rows if hasattr(self, "axes_") else 0
        return self.freeze_after is not None and rows >= self.freeze_after

    @property
    def _view(self) -> PrincipalAxes:
        """What rows are seen through: nothing while frozen axes are being learned."""
        axes = self._known()
        if self.freeze_after is None or self._still:
            return axes.view
        return no_axes(len(axes.mean))

    @property
    def _current(self) -> PrincipalAxes:
        """The view of all rows learned, cached until a row is learned; frozen axes stay."""
        if self.freeze_after is not None:
            return self._view
        axes, cached = self._known(), self._looked
        if cached[0] is not axes:
            # with a share of the variance, columns are added at looks only
            k = None if isinstance(axes.n_components, int) else len(axes.view.lengths)
            cached = self._looked = axes, axes.current_axes(k)
        view: PrincipalAxes = cached[1]
        return view

    def _known(self) -> IncrementalPCAState:
        if not hasattr(self, "axes_"):
            raise NotFittedError(
                "IncrementalPCA: it has learned no row yet. Call learn or learn_transform first."
            )
        return self.axes_


def _variances(view: PrincipalAxes) -> Floats:
    """Variances along the axes of a view, (k,)."""
    return view.lengths**2 / max(view.mass - 1.0, 1.0)
