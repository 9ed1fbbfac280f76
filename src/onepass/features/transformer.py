"""Base classes of transformers: `Transformer`, and `Columnwise` for matrices of numbers.

A feature transforms rows with what it has learned of the rows so far. Both methods transform a row
*as at its time in the stream*:

``learn_transform(X)``  learn the rows one after the other; row k is transformed with the state
                        after rows 1 ... k
``transform(X)``        learn nothing; each row is transformed as if it were the next one

So ``transform`` and then ``learn_transform`` of one row give the same numbers: a learner behind a
feature predicts from the vector that it then learns. The result does not depend on how a stream is
cut into blocks.

The width may grow at the end. Within a block, the rows before the first row of a new column are 0
there, and the steps behind are widened *as if the new column had been zero in all earlier rows*.

:class:`Columnwise` is the base of features of numeric matrices, in which nan is a missing value.
"""

import copy
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator, clone

from onepass import validation
from onepass.errors import MergeError, ParameterError
from onepass.types import Array, ArrayLike, Floats
from onepass.validation.arrays import ColumnPositions, check_same_parameters, column_positions
from onepass.validation.table import Table, TableLike, has_names, is_frame

__all__ = ["Columnwise", "Transformer", "all_or_nothing", "matrix_with_gaps", "narrow"]


class Transformer(BaseEstimator, ABC):  # type: ignore[misc]
    """A one-pass feature: what it has learned lies in attributes that end with an underscore.

    A new one brings the abstract methods below, by which a Pipeline works, and ``join`` and
    ``differs`` if it can be merged. A feature of matrices is a
    :class:`onepass.features.transformer.Columnwise`, which brings most of them. No method writes
    into an array, list or dict that an attribute held when it was called: it makes new ones and
    assigns them, so that whoever calls can restore the attributes after an error. ``take`` keeps
    ``n_features_in_`` and ``rows_seen_``; before the first there is neither.
    """

    rescales: ClassVar[bool] = False
    """Whether all it does is to give columns other units; learners free of units pass it by."""

    uses_units: ClassVar[bool] = False
    """Whether the units of its columns change more than those of what comes out."""

    by_name: ClassVar[bool] = False
    """Whether columns are found by their names, so that they may come and go."""

    fills: ClassVar[bool] = False
    """Whether a missing value may go in, and none comes out."""

    merging: ClassVar[str] = "refused"
    """Whether a learner behind it may be merged: ``exact`` where ``differs`` can tell."""

    outside: ClassVar[Mapping[str, str]] = {}
    """Arguments that no model file holds, with what each is: who loads one hands them in again."""

    n_features_in_: int
    rows_seen_: int

    # -- hooks -----------------------------------------------------------------------------------

    @abstractmethod
    def read_rows(self, X: TableLike, where: str, *, learning: bool) -> Any:
        """Check what a user gave; return the rows as ``take`` and ``ask`` want them.

        They have a length, and take a slice or a mask of rows. What does not fit is refused with
        the public call, ``where``, in the message. With ``learning``, ``take`` will follow, and the
        names or the shape of the first rows may be kept; nothing else is learned here.
        """

    @abstractmethod
    def read_row(self, x: ArrayLike | Mapping[str, object], where: str, *, learning: bool) -> Any:
        """The same for one row: an array of shape (d,), or a dict of named features."""

    @abstractmethod
    def take(self, read: Any, born: Array | None) -> tuple[Floats, Array]:
        """Learn rows; return them as seen at their time, and each column's first row.

        ``born`` (d,) says at which of these rows each input column came: 0 for those that had come
        before, and None if all had. There may be more input columns than there were.
        """

    @abstractmethod
    def ask(self, read: Any) -> Floats:
        """The rows, each as if it were the next one, also before anything was learned.

        Nothing is learned: ``take`` of one row, right after ``ask`` of it, gives the same numbers.
        """

    @property
    @abstractmethod
    def n_features_out_(self) -> int:
        """The number of columns that come out now."""

    @abstractmethod
    def get_feature_names_out(self, input_features: Sequence[str] | None = None) -> Array:
        """The names of the columns that come out now, shape (n_features_out_,)."""

    def join(self, other: Self, at: ColumnPositions | None, where: str) -> ColumnPositions:
        """Know what another with the same parameters learned; return where its outputs belong.

        ``at`` says where its input columns belong; None for those that its user named.
        """
        del other, at
        raise MergeError(
            f"{where}: a feature must be one that can be merged, got {type(self).__name__}. "
            "Let one learner see all rows with partial_fit."
        )

    def differs(self, other: Self) -> str:
        """Where the other's rows would have come out in another way here, and why; empty if not.

        A learner behind it knows them as they came out there.
        """
        del other
        return "it has statistics of its own. Leave the feature out"

    # -- verbs -----------------------------------------------------------------------------------

    def learn(self, X: TableLike) -> Self:
        """Learn the rows one after the other.

        Parameters
        ----------
        X : array-like of shape (n, d)
            n may be zero: then nothing is learned.

        Returns
        -------
        self
        """
        self._public(X, "learn")
        return self

    def learn_transform(self, X: TableLike) -> Floats:
        """Learn the rows one after the other; return each as seen at its time.

        Parameters
        ----------
        X : array-like of shape (n, d)
            n may be zero: then nothing is learned.

        Returns
        -------
        ndarray of shape (n, n_features_out_)
            Row k is seen with what is known of all rows up to and including k.
        """
        return self._public(X, "learn_transform")

    def transform(self, X: TableLike) -> Floats:
        """The rows, each as if it were the next one; nothing is learned.

        Parameters
        ----------
        X : array-like of shape (n, d)

        Returns
        -------
        ndarray of shape (n, n_features_out_)
        """
        return self.ask(self.read_rows(X, f"{type(self).__name__}.transform", learning=False))

    def merge(self, other: Self) -> Self:
        """Learn what another has learned, as if this one had seen its rows too, after its own.

        Parameters
        ----------
        other : feature of the same class, with the same parameters
            It is not changed.

        Returns
        -------
        self

        Raises
        ------
        MergeError
            If the two are not alike, or cannot be made one. Both are left as they were.
        """
        where = f"{type(self).__name__}.merge"
        check_same_parameters(self, other, list(self.get_params(deep=False)), where)
        if other.__sklearn_is_fitted__():
            if other is self:
                other = copy.copy(other)  # what was learned is never written into
            with all_or_nothing(self):
                self.join(other, None, where)
        return self

    def grow(self, d: int) -> Self:
        """Take new input columns, at the end, as if they had been zero in every row so far.

        Parameters
        ----------
        d : int
            The number of input columns from now on, at least as many as before.

        Returns
        -------
        self

        Raises
        ------
        ParameterError
            If d is smaller than now.
        """
        now = getattr(self, "n_features_in_", 0)
        if d < now:
            raise ParameterError(
                f"{type(self).__name__}.grow: `d` must be >= {now}, the columns known now, "
                f"got {d}. Columns cannot be taken away."
            )
        if d > now:
            with all_or_nothing(self):
                self.take(np.empty((0, d)), None)
        return self

    # -- what was learned --------------------------------------------------------------------------

    @property
    def nbytes(self) -> int:
        """Bytes of all that was learned: arrays, numbers and text."""
        return sum(_size(value) for name, value in vars(self).items() if name.endswith("_"))

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "n_features_in_")

    # -- what stands behind them -------------------------------------------------------------------

    def _public(self, X: TableLike, verb: str) -> Floats:
        with all_or_nothing(self):
            read = self.read_rows(X, f"{type(self).__name__}.{verb}", learning=True)
            return self.take(read, None)[0]


@contextmanager
def all_or_nothing(*parts: object) -> Iterator[None]:
    """Whatever is raised within, all parts are as they were before."""
    before = [(part, dict(vars(part))) for part in parts]
    try:
        yield
    except BaseException:
        for part, attributes in before:
            part.__dict__ = attributes  # at one stroke: an interrupt comes before it or after
        raise


def _size(thing: object) -> int:
    if isinstance(thing, np.ndarray):
        return int(thing.nbytes) + (sum(map(_size, thing.tolist())) if thing.dtype == object else 0)
    if isinstance(thing, str):
        return len(thing.encode())
    if isinstance(thing, dict):
        return sum(_size(key) + _size(value) for key, value in thing.items())
    if isinstance(thing, (list, tuple)):
        return sum(map(_size, thing))
    if hasattr(thing, "__dataclass_fields__"):
        return sum(_size(getattr(thing, name)) for name in thing.__dataclass_fields__)
    return 8


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

    _letter: ClassVar[str] = ""
    """What the names of columns begin with, if they are numbered."""
    _matrix = staticmethod(validation.matrix)
    """What checks rows: see its parameters."""

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
    def _join(self, other: Self, at: Array, known: int) -> Array:
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
            x0, x1, ... where they had none. Not needed where columns that come out are numbered.
        """
        if self._letter:
            numbers = range(self.n_features_out_)
            return np.array([f"{self._letter}{j}" for j in numbers], dtype=object)
        return np.array(self._names_in(input_features), dtype=object)

    def read_rows(self, X: TableLike, where: str, *, learning: bool) -> Floats:
        """A matrix of the width known."""
        array, names = self._matrix(X, where, **self._shape())
        if learning:
            self._meet(names)
        return array

    def read_row(
        self, x: ArrayLike | Mapping[str, object], where: str, *, learning: bool
    ) -> Floats:
        """A finite row of the width known, as a matrix."""
        row = validation.row_vector(x, where, **self._shape())
        if learning:
            self._meet([str(name) for name in x] if isinstance(x, dict) else None)
        return row[None, :]

    def take(self, read: Floats, born: Array | None) -> tuple[Floats, Array]:
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

    def ask(self, read: Floats) -> Floats:
        """The rows, each as if it were the next one, also before anything was learned."""
        if hasattr(self, "n_features_in_"):
            return self._seen(read)
        said: Floats = clone(self).grow(read.shape[1]).transform(read)
        return said

    def join(self, other: Self, at: ColumnPositions | None, where: str) -> ColumnPositions:
        """Know what another with the same parameters learned; return where its outputs belong."""
        at = column_positions(self, other, where) if at is None else at
        if at.names is not None and not hasattr(self, "n_features_in_"):
            self._meet(at.names)
        known = getattr(self, "n_features_in_", 0)
        self.take(np.empty((0, at.d)), None)
        if at.names is not None:
            self.feature_names_in_ = np.array(at.names, dtype=object)
        out = self._join(other, at.at, known)
        self.rows_seen_ += other.rows_seen_
        names = None if at.names is None else self.get_feature_names_out().tolist()
        return ColumnPositions(out, self.n_features_out_, names)

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


def matrix_with_gaps(
    X: TableLike, where: str, *, d: int | None = None, names: Sequence[str] | None = None
) -> tuple[Floats, list[str] | None]:
    """The rows of X as an array of shape (n, d), finite or nan, and its columns' names.

    Parameters
    ----------
    X : array-like of shape (n, d), Table or DataFrame
        Numbers; nan, None and null are missing.
    where, d, names
        As in :func:`onepass.validation.matrix`, which refuses what is no such matrix.

    Raises
    ------
    ShapeError, ColumnError, TypeMismatchError, NotFiniteError
        If X is not a matrix of real numbers with these columns; infinity is refused.

    Examples
    --------
    >>> matrix_with_gaps([[1, None], [2, 3]], "here")[0].tolist()
    [[1.0, nan], [2.0, 3.0]]
    """
    if isinstance(X, Table) or is_frame(X):
        named = isinstance(X, Table) or has_names(X)
        table = X if isinstance(X, Table) else Table.from_frame(X)
        names = names if named else None  # columns without names are taken in their order
        filled = {name: _filled(column) for name, column in table.columns.items()}
        array, columns = validation.matrix(Table(filled, table.n), where, d=d, names=names)
        order = table.names if names is None else names
        missing = np.column_stack([table[name] != table[name] for name in order])
        return np.where(missing, np.nan, array), columns if named else None
    raw = _floats(X)
    array, _ = validation.matrix(_filled(raw), where, d=d, names=names)
    if isinstance(raw, np.ndarray) and raw.dtype.kind == "f":
        array = np.where(np.isnan(raw), raw.dtype.type(np.nan), array)
    return array, None


def _floats(X: object) -> Any:
    """X as an array; None among numbers becomes nan; what is no number is left as it is."""
    if hasattr(X, "toarray"):
        return X
    try:
        raw = np.asarray(X)
    except ValueError:  # rows of different lengths
        return X
    if raw.dtype.kind == "O":
        with suppress(TypeError, ValueError):
            return raw.astype(np.float64)  # None becomes nan
    return raw


def _filled(raw: object) -> Any:
    """Numbers with zeros where they are missing, so that what is left to refuse is refused."""
    if isinstance(raw, np.ndarray) and raw.dtype.kind == "f":
        known: Array = np.where(np.isnan(raw), raw.dtype.type(0), raw)
        return known
    return raw
