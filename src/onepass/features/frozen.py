"""Frozen: features that are drawn once, from a seed, and never learned.

Where the features of all rows are the same functions for all time, a learner behind them that is
exact, such as recursive least squares, knows in the end what it would know had it seen all rows at
once: no order of rows or of tasks can make it forget [1, 2]. Random features do this from raw
inputs better than many that are learned as the stream goes by [3]; and projecting what a network
gives that was trained beforehand does it for large pictures [4].

[1] H. Zhuang, Z. Weng, H. Wei, R. Xie, K.-A. Toh, Z. Lin, "ACIL: Analytic class-incremental
    learning with absolute memorization and privacy protection", NeurIPS 2022.
[2] H. Zhuang et al., "F-OAL: Forward-only online analytic learning with fast training and low
    memory footprint in class incremental learning", NeurIPS 2024.
[3] A. Prabhu, S. Sinha, P. Kumaraguru, P. H. S. Torr, O. Sener, P. K. Dokania, "RanDumb: Random
    representations outperform online continually learned representations", NeurIPS 2024.
[4] M. D. McDonnell, D. Gong, A. Parvaneh, E. Abbasnejad, A. van den Hengel, "RanPAC: Random
    projections and pre-trained models for continual learning", NeurIPS 2023.
"""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from onepass import linalg
from onepass.errors import Array, Floats, NumericalError
from onepass.features.columnwise import Columnwise

__all__ = ["Frozen", "checked"]


class Frozen(Columnwise):
    """A feature of matrices whose outputs are the same functions of a row for all time.

    A new one brings ``_start``, ``_widen``, ``_seen``, ``n_features_out_``, ``_letter`` and
    ``_drawn``, the arrays that stand for what was drawn. Those that go by columns have these along
    the first axis.
    """

    merging: ClassVar[str] = "exact"
    uses_units: ClassVar[bool] = True

    _letter: ClassVar[str] = "f"
    _drawn: ClassVar[tuple[str, ...]] = ()
    _by_column: ClassVar[str] = ""

    @property
    @abstractmethod
    def n_features_out_(self) -> int:
        """The number of columns that come out, from the first row on."""

    def get_feature_names_out(self, input_features: Sequence[str] | None = None) -> Array:
        """The names of the columns that come out.

        Parameters
        ----------
        input_features : sequence of str, optional
            Not needed.
        """
        del input_features
        return np.array([f"{self._letter}{j}" for j in range(self.n_features_out_)], dtype=object)

    def differs(self, other: "Frozen") -> str:
        """Where the same numbers were drawn for other columns."""
        if not (self.rows_seen_ and other.rows_seen_):
            return ""
        k = min(self.n_features_in_, other.n_features_in_)
        mine, theirs = (one._drawn_for(k) for one in (self, other))  # noqa: SLF001
        same = all(np.array_equal(a, b) for a, b in zip(mine, theirs, strict=True))
        if same:
            return ""
        return "its numbers were drawn for other columns. Give both the same columns, in one order"

    # -- hooks -------------------------------------------------------------------------------------

    def _step(self, X: Floats, born: Array) -> tuple[Floats, Array]:
        del born
        return self._seen(X), np.zeros(self.n_features_out_, dtype=np.intp)

    def _join(self, other: Any, at: Array, known: int) -> Array:
        del known
        if not self.rows_seen_ and np.array_equal(at, np.arange(self.n_features_in_)):
            for name in self._drawn:
                setattr(self, name, getattr(other, name))
        return np.arange(self.n_features_out_)

    def _drawn_for(self, k: int) -> list[Array]:
        """The names of the first k columns, and what was drawn for them."""
        every = {name: np.asarray(getattr(self, name)) for name in self._drawn}
        drawn = [array[:k] if name == self._by_column else array for name, array in every.items()]
        return [np.array(self._names_in()[:k]), *drawn]


def checked(Z: Floats, X: Floats, where: str) -> Floats:
    """Features, if they are finite.

    Parameters
    ----------
    Z : ndarray of shape (n, width)
    X : ndarray of shape (n, d)
        The rows that they are of.
    where : str
        The feature, for the message.

    Raises
    ------
    NumericalError
        If they are not.
    """
    if not linalg.finite(Z):
        raise NumericalError(
            f"{where}: features must be within {Z.dtype}, got rows with values up to "
            f"{np.abs(X).max():.3g}. Give the columns in larger units, or as float64."
        )
    return Z
