"""Projection: rows as their coordinates along axes, and what is known of these.

With the mean m and axes V, both as :mod:`onepass.axes` has them, a row x becomes

    z = V (x − m)                                                                       (1)

and with ``whiten`` each number of z is divided by its standard deviation. Attributes, ``transform``
and ``inverse_transform`` use the axes of all rows learned; they are computed when they are first
read after a row. While rows are learned, and in a Pipeline, rows are seen along the axes of the
last look, so that the cost of a look is shared by many rows.

Cost: O(d k) time a row, and the cost of a look when the attributes are read.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from onepass import validation
from onepass.axes import Axes, View
from onepass.errors import Array, Floats, NotFittedError
from onepass.features.columnwise import Columnwise
from onepass.features.components import nothing
from onepass.features.frozen import checked

__all__ = ["Projection"]


class Projection(Columnwise):
    """A feature of matrices that gives their rows' coordinates along ``axes_``.

    A new one brings its arguments and how axes are learned.
    """

    axes_: Axes
    n_components: float
    whiten: bool
    freeze_after: int | None
    _looked: tuple[Any, Any] = (None, None)  # ``axes_`` and their view of all rows

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

    def get_feature_names_out(self, input_features: Sequence[str] | None = None) -> Array:
        """The names of the columns that come out now: pc0, pc1 and so on.

        Parameters
        ----------
        input_features : sequence of str, optional
            Not needed.
        """
        del input_features
        return np.array([f"pc{j}" for j in range(self.n_features_out_)], dtype=object)

    def transform(self, X: Any) -> Floats:
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
        view = self._current
        k = self.n_features_out_
        given, _ = validation.matrix(Z, "IncrementalPCA.inverse_transform", d=k, names=None)
        Z = given[:, : len(view.lengths)]
        if self.whiten:
            Z = Z * np.sqrt(_variances(view))
        rows: Floats = Z @ view.directions + view.center
        return rows

    # -- hooks ------------------------------------------------------------------------------------

    def _seen(self, X: Floats) -> Floats:
        return self._along(self._view, X)

    def _along(self, view: View, X: Floats) -> Floats:
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
        """Whether what a file says fits together; what has another type does not."""
        axes = getattr(self, "axes_", None)
        try:
            fits = axes is None or (axes._sound and len(axes.mean) == self.n_features_in_)  # noqa: SLF001
            fits = fits and self.n_features_out_ >= len(self._view.lengths if axes else ())
        except (AttributeError, IndexError, TypeError, ValueError):
            return False
        return bool(fits)

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
    def _view(self) -> View:
        """What rows are seen through: nothing while frozen axes are being learned."""
        axes = self._known()
        if self.freeze_after is None or self._still:
            return axes.view
        return nothing(len(axes.mean))

    @property
    def _current(self) -> View:
        """The view of all rows learned, cached until a row is learned; frozen axes stay."""
        if self.freeze_after is not None:
            return self._view
        axes, cached = self._known(), self._looked
        if cached[0] is not axes:
            # with a share of the variance, columns are added at looks only
            k = None if isinstance(axes.n_components, int) else len(axes.view.lengths)
            cached = self._looked = axes, axes.looked(k)
        view: View = cached[1]
        return view

    def _known(self) -> Axes:
        if not hasattr(self, "axes_"):
            raise NotFittedError(
                "IncrementalPCA: it has learned no row yet. Call learn or learn_transform first."
            )
        return self.axes_


def _variances(view: View) -> Floats:
    """Variances along the axes of a view, (k,)."""
    return view.lengths**2 / max(view.mass - 1.0, 1.0)
