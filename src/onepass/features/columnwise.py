"""Columnwise: features that take a matrix of numbers, column by column."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.base import clone

from onepass import validation
from onepass.errors import Array, Floats
from onepass.features.transformer import Transformer
from onepass.validation.arrays import Places, places

__all__ = ["Columnwise", "narrow"]

_HELD = 16384  # numbers of a part: several arrays of that size lie in a core's own cache


def narrow(n: int, d: int) -> list[slice]:
    """Columns by parts of at least one, so that n rows of a part stay in cache.

    Examples
    --------
    >>> len(narrow(1024, 40)), len(narrow(1, 40))
    (3, 1)
    """
    width = max(1, _HELD // max(n, 1))
    return [slice(j, min(d, j + width)) for j in range(0, d, width)]


class Columnwise(Transformer):
    """A feature of matrices (n, d), whose d may grow.

    A new one brings the hooks ``_start``, ``_widen``, ``_step`` and ``_seen`` and, where its width
    is not that of its input, ``n_features_out_`` and ``get_feature_names_out``.
    """

    @abstractmethod
    def _start(self, d: int) -> None:
        """Set what is learned to its beginning; refuse hyperparameters out of range."""

    @abstractmethod
    def _widen(self, d: int) -> None:
        """Take new input columns, zero in every row so far; there are d then."""

    @abstractmethod
    def _step(self, X: Floats, born: Array) -> tuple[Floats, Array]:
        """Learn n >= 0 rows; return them as seen at their time, and each column's first row.

        ``born`` (d,) is as in ``take``. ``rows_seen_`` counts the rows before these.
        """

    @abstractmethod
    def _join(self, other: Any, at: Array, known: int) -> Array:
        """Learn what another learned, its input columns at these places; say where its outputs are.

        All columns are there already, of which the first ``known`` are not new, and ``rows_seen_``
        counts the rows before the other's.
        """

    @abstractmethod
    def _seen(self, X: Floats) -> Floats:
        """The rows, each as if it were the next one."""

    @property
    def n_features_out_(self) -> int:
        """The number of columns that come out now."""
        return getattr(self, "n_features_in_", 0)

    def get_feature_names_out(self, input_features: Sequence[str] | None = None) -> Array:
        """The names of the columns that come out now, shape (n_features_out_,).

        Parameters
        ----------
        input_features : sequence of str, optional
            The names of the columns that go in; by default those seen while learning, or
            x0, x1, ... where they had none.
        """
        return np.array(self._names_in(input_features), dtype=object)

    def read_rows(self, X: Any, where: str, *, learning: bool) -> Floats:
        """A finite matrix of the width known."""
        array, names = validation.matrix(X, where, **self._shape())
        if learning:
            self._meet(names)
        return array

    def read_row(self, x: Any, where: str, *, learning: bool) -> Floats:
        """A finite row of the width known, as a matrix."""
        row = validation.row_vector(x, where, **self._shape())
        if learning:
            self._meet([str(name) for name in x] if isinstance(x, dict) else None)
        return row[None, :]

    def take(self, read: Any, born: Array | None) -> tuple[Floats, Array]:
        """Begin or widen if need be, then take a step."""
        n, d = read.shape
        now = getattr(self, "n_features_in_", None)
        if now is None:
            self._start(d)
            self.rows_seen_ = 0
        elif d > now:
            self._widen(d)
            names = getattr(self, "feature_names_in_", None)
            if names is not None and len(names) < d:
                new = [f"x{j}" for j in range(len(names), d)]
                self.feature_names_in_ = np.append(names, new).astype(object)
        self.n_features_in_ = d
        said = self._step(read, np.zeros(d, dtype=np.intp) if born is None else born)
        self.rows_seen_ += n
        return said

    def ask(self, read: Any) -> Floats:
        """The rows, each as if it were the next one, also before anything was learned."""
        if hasattr(self, "n_features_in_"):
            return self._seen(read)
        said: Floats = clone(self).grow(read.shape[1]).transform(read)
        return said

    def join(self, other: Any, at: Places | None, where: str) -> Places:
        """Know what another with the same parameters learned; return where its outputs belong."""
        at = places(self, other, where) if at is None else at
        if at.names is not None and not hasattr(self, "n_features_in_"):
            self._meet(at.names)
        known = getattr(self, "n_features_in_", 0)
        self.take(np.empty((0, at.d)), None)
        if at.names is not None:
            self.feature_names_in_ = np.array(at.names, dtype=object)
        out = self._join(other, at.at, known)
        self.rows_seen_ += other.rows_seen_
        names = None if at.names is None else self.get_feature_names_out().tolist()
        return Places(out, self.n_features_out_, names)

    def _meet(self, names: list[str] | None) -> None:
        """Note the names of the first block."""
        if names is not None and not hasattr(self, "n_features_in_"):
            self.feature_names_in_ = np.array(names, dtype=object)

    def _shape(self) -> dict[str, Any]:
        """The input columns' number and names, as far as they are known."""
        names = getattr(self, "feature_names_in_", None)
        return {
            "d": getattr(self, "n_features_in_", None),
            "names": None if names is None else list(names),
        }

    def _names_in(self, given: Sequence[str] | None = None) -> list[str]:
        names = getattr(self, "feature_names_in_", None) if given is None else given
        if names is not None:
            return [str(name) for name in names]
        return [f"x{j}" for j in range(getattr(self, "n_features_in_", 0))]
