"""Principal: incremental principal component analysis, a feature of rows as they come.

With the mean m and the top k axes V of the rows so far, a row x becomes

    z = V (x − m)                                                                       (1)

The axes are those of :mod:`onepass.axes`: sequential Karhunen-Loève, truncated to k after every
``block`` rows, wherever the stream was cut. Between two looks, after rows 1, 2, 4, … and then after
each block, rows are seen along the same axes.

Cost: O(d (k + block)) memory; O(d (k + block)² / block) time a row.

[1] D. Ross, J. Lim, R.-S. Lin, M.-H. Yang, "Incremental learning for robust visual tracking",
    International Journal of Computer Vision 77, 2008.
[2] A. Levey, M. Lindenbaum, "Sequential Karhunen-Loeve basis extraction and its application to
    images", IEEE Transactions on Image Processing 9(8), 2000.
"""

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from onepass import linalg, validate
from onepass.axes import Axes
from onepass.errors import NotFittedError, NumericalError, ParameterError
from onepass.features.columnwise import Columnwise
from onepass.types import Array, Floats

__all__ = ["IncrementalPCA", "checked_components", "rows_between"]

_LEAST_BLOCK = 128


class IncrementalPCA(Columnwise):
    """Coordinates along the principal axes of the rows so far.

    It works from the first row. A row is seen along the axes of the last look before it, so that
    learning it and asking about it give the same numbers; axes that are not known yet give 0. With
    ``block`` as its batch size it agrees with scikit-learn's, which wants k rows at once.

    When the axes turn, the same row has other coordinates, and a learner behind that holds on to
    them loses much: on scikit-learn's digits ``RLSClassifier`` is right of 0.87 alone, and of 0.5
    behind 30 such axes in a pipeline. Learn the axes beforehand for it and hand it
    ``pca.transform(X)``; a pipeline begins them anew.

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

    Attributes
    ----------
    components_ : ndarray of shape (k, d)
        V, of the last look. The largest number of each axis is positive.
    mean_ : ndarray of shape (d,)
        m, of the last look; zeros without ``centred``.
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
        If squares of the values overflow float64.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(500, 2)) @ rng.normal(size=(2, 30))
    >>> pca = IncrementalPCA(2).learn(X)
    >>> float(pca.explained_variance_ratio_.sum().round(6))
    1.0
    >>> float(abs(pca.inverse_transform(pca.transform(X)) - X).max()) < 1e-12
    True
    """

    merging: ClassVar[str] = "approximate"
    uses_units: ClassVar[bool] = True

    axes_: Axes

    def __init__(
        self,
        n_components: float = 10,
        *,
        whiten: bool = False,
        centred: bool = True,
        block: int | None = None,
    ) -> None:
        self.n_components = n_components
        self.whiten = whiten
        self.centred = centred
        self.block = block

    # -- what was learned --------------------------------------------------------------------------

    @property
    def components_(self) -> Floats:
        """The axes, (k, d)."""
        return self._known().view.directions

    @property
    def mean_(self) -> Floats:
        """What is taken from each row, (d,)."""
        return self._known().view.center

    @property
    def singular_values_(self) -> Floats:
        """Roots of the sums of squares along the axes, (k,)."""
        return self._known().view.lengths

    @property
    def explained_variance_(self) -> Floats:
        """Variances along the axes, (k,); of one row, zeros."""
        axes = self._known()
        return axes.view.lengths**2 / max(axes.view.mass - 1.0, 1.0)

    @property
    def explained_variance_ratio_(self) -> Floats:
        """Shares of the whole variance, (k,)."""
        axes = self._known()
        return axes.view.lengths**2 / (axes.view.trace or 1.0)

    @property
    def n_features_out_(self) -> int:
        """The number of columns that come out now."""
        d = getattr(self, "n_features_in_", 0)
        k = self.axes_.n_components if hasattr(self, "axes_") else self.n_components
        if isinstance(k, (int, np.integer)):
            return min(int(k), d)
        return len(self.axes_.view.lengths) if hasattr(self, "axes_") else 0

    def get_feature_names_out(self, input_features: Sequence[str] | None = None) -> Array:
        """The names of the columns that come out now: pc0, pc1 and so on.

        Parameters
        ----------
        input_features : sequence of str, optional
            Not needed.
        """
        del input_features
        return np.array([f"pc{j}" for j in range(self.n_features_out_)], dtype=object)

    def inverse_transform(self, Z: Any) -> Floats:
        """The rows (n, d) nearest to the mean with these coordinates (n, k).

        Parameters
        ----------
        Z : array-like of shape (n, k)

        Raises
        ------
        NotFittedError
            Before anything was learned.
        """
        view = self._known().view
        k = self.n_features_out_
        given, _ = validate.matrix(Z, "IncrementalPCA.inverse_transform", d=k, names=None)
        Z = given[:, : len(view.lengths)]
        if self.whiten:
            Z = Z * np.sqrt(self.explained_variance_)
        rows: Floats = Z @ view.directions + view.center
        return rows

    # -- hooks -------------------------------------------------------------------------------------

    def _start(self, d: int) -> None:
        who = type(self).__name__
        k = checked_components(self.n_components, who)
        room = rows_between(self.block, k, d, who)
        self.axes_ = Axes.start(d, k, room, centred=bool(self.centred))

    def _widen(self, d: int) -> None:
        self.axes_ = self.axes_.grown(d)

    def _step(self, X: Floats, born: Array) -> tuple[Floats, Array]:
        del born
        X = X.astype(np.float64, copy=False)
        parts, widths, begin = [], [self.n_features_out_], 0
        with np.errstate(over="ignore", invalid="ignore"):
            for end in self.axes_.looks(len(X)):
                parts.append(self._seen(X[begin:end]))
                self.axes_ = self._taken(X[begin:end])
                widths += [self.n_features_out_] * (end - begin)
                begin = end
        born = np.searchsorted(widths, np.arange(widths[-1]), side="right")
        out = np.zeros((len(X), widths[-1]))
        for end, part in zip(np.cumsum([len(part) for part in parts]), parts, strict=True):
            out[end - len(part) : end, : part.shape[1]] = part
        return out, born

    def _taken(self, X: Floats) -> Axes:
        where = "IncrementalPCA"
        try:
            axes = self.axes_.taken(X)
        except np.linalg.LinAlgError:
            axes = None
        if axes is None or not linalg.finite(axes.mean, np.array([axes.trace])):
            raise NumericalError(
                f"{where}: squares of the values must be within float64, got values up to "
                f"{np.abs(X).max():.3g}. Give the columns in larger units."
            )
        return axes

    def _seen(self, X: Floats) -> Floats:
        view = self.axes_.view
        Z = view.of(X.astype(np.float64, copy=False))
        if self.whiten:
            spread = np.sqrt(self.explained_variance_)
            Z /= np.where(spread > 0.0, spread, 1.0)
        missing = self.n_features_out_ - Z.shape[1]
        return np.pad(Z, ((0, 0), (0, missing))) if missing else Z

    def _join(self, other: "IncrementalPCA", at: Array, known: int) -> Array:
        del known
        theirs = other.axes_.placed(at, self.n_features_in_)
        self.axes_ = self.axes_.merged(theirs)
        return np.arange(other.n_features_out_)

    def differs(self, other: "IncrementalPCA") -> str:
        """Always, once both have learned: the axes of each turned as its rows came."""
        if not (self.rows_seen_ and other.rows_seen_):
            return ""
        return (
            "its rows were seen along axes of their own. Merge the features alone, or put one that "
            "is fixed beforehand in front of the learner"
        )

    @property
    def _sound(self) -> bool:
        """Whether what a file says fits together; what has another type does not."""
        axes = getattr(self, "axes_", None)
        try:
            fits = axes is None or (axes._sound and len(axes.mean) == self.n_features_in_)  # noqa: SLF001
        except (AttributeError, IndexError, TypeError, ValueError):
            return False
        return bool(fits)

    def _known(self) -> Axes:
        if not hasattr(self, "axes_"):
            raise NotFittedError(
                "IncrementalPCA: it has learned no row yet. Call learn or learn_transform first."
            )
        return self.axes_


def checked_components(given: Any, who: str) -> float:
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


def rows_between(block: Any, k: float, d: int, who: str) -> int:
    """Rows between two truncations.

    Raises
    ------
    ParameterError
        If it is no whole number >= 1.
    """
    if block is not None:
        return validate.whole(block, "block", who, low=1)
    return max(_LEAST_BLOCK, 2 * min(k, d) if isinstance(k, int) else 0)
