"""Base classes of transformers: `Transformer`, and `Columnwise` for matrices of numbers.

A transformer uses the state that it learned from the rows so far. Both methods transform a row with
the state *at its position in the stream*:

``learn_transform(X)``  learn the rows one after the other; row k is transformed with the state
                        after rows 1 ... k
``transform(X)``        learn nothing; each row is transformed as if it were the next one

So ``transform`` followed by ``learn_transform`` of one row return the same numbers: the learner
after a transformer predicts from the vector that it then learns. The result does not depend on how
a stream is cut into blocks.

``fit``, ``partial_fit`` and ``fit_transform`` are those of scikit-learn: ``fit_transform(X)`` is
``fit(X).transform(X)``, so that all rows are transformed with the state after the last one; only
``Lag`` returns each row with its own lags.

New output columns are appended. Within a block, a new column is 0 in the rows before its first row.
For the steps that follow, a column of numbers whose first value comes late counts as constant
before it, at its origin, which is its first value (:class:`Starts`): absent is not zero. The origin
of a category, or of a standardised column, is 0.

:class:`Columnwise` is the base of transformers of numeric matrices; nan is a missing value.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from sklearn.base import clone

from onepass import native, validation
from onepass.declared import FEATURE, Places, are_sound, check_parameters, place_states
from onepass.errors import (
    ColumnError,
    MergeError,
    NotFittedError,
    ParameterError,
    ShapeError,
    public,
)
from onepass.estimators import BaseEstimator, TransformerMixin
from onepass.learners.estimator.tags import with_onepass_tags
from onepass.serialization.state import UnfittedAttribute, forget
from onepass.types import Array, ArrayLike, Floats
from onepass.validation.arrays import (
    ColumnPositions,
    check_same_parameters,
    column_positions,
)
from onepass.validation.table import TableLike, named_row


class Starts(NamedTuple):
    """The columns that have their first values in a block of n rows, or have none yet."""

    rows: Array
    """The row of the first value, shape (d,); n if there is none yet, -1 if it was earlier."""
    absent: Array
    """Whether the rows before do not count, (d,); else the column was 0 in them."""
    origins: Floats
    """The constant value of each absent column in all rows before its first value, (d,)."""

    @classmethod
    def none(cls, d: int) -> Starts:
        """Return the starts of d columns none of which starts in the block."""
        return cls(np.full(d, -1), np.zeros(d, dtype=bool), np.zeros(d))

    @classmethod
    def merged(cls, at: ColumnPositions, known: int) -> Starts | None:
        """Return the starts of the columns of a merge, of which the first ``known`` are not new."""
        if at.origins is None:
            return None
        rows = np.where(np.arange(at.d) < known, -1, 0)
        return cls(rows, (rows == 0) & ~np.isnan(at.origins), np.nan_to_num(at.origins))

    def at(self, rows: Array, n: int) -> Starts:
        """Return the starts in a block of n rows, where these rows have the indices ``rows``."""
        places = np.concatenate([rows, [n, -1]])  # n and -1 have the same meaning there
        return self._replace(rows=places[self.rows])

    def followed_by(self, later: Starts) -> Starts:
        """Return the starts of a block that ends with a part that starts as ``later``."""
        d = len(self.rows)
        known = later.rows[:d] < 0
        pairs = zip(self, later, strict=True)
        both = (np.append(np.where(known, a, b[:d]), b[d:]) for a, b in pairs)
        return Starts(*both)

    def begins(self, n: int) -> Array:
        """Return the row of n in which each column begins, (d,).

        It is 0 for a column of earlier blocks, and for a column that has no value yet.
        """
        return np.where(self.rows == n, 0, np.maximum(self.rows, 0))

    @property
    def since(self) -> Array:
        """The first row that counts, (d,)."""
        return np.where(self.absent, self.rows, 0)

    def placed(self, X: Floats) -> Floats:
        """Return rows (n, d) with the origins in the rows before the first values."""
        late = np.flatnonzero(self.origins)
        if len(late):
            X = X.copy()
            before = np.arange(len(X))[:, None] < self.rows[late]
            X[:, late] = np.where(before, self.origins[late], X[:, late])
        return X


class Transformer(TransformerMixin, BaseEstimator, ABC):
    """Base class of one-pass transformers; learned attributes end with an underscore.

    A subclass defines the abstract methods below, which a Pipeline calls, and ``_merge_from`` and
    ``_merge_conflict`` if it can be merged. :class:`onepass.features.transformer.Columnwise`
    defines most of them for matrices. ``_learn_row`` and ``_transform_row``, for single rows, may
    be overridden if there is a faster way. Methods never modify an array, list or dict of an
    attribute in place: they assign new objects, so that the caller can restore the attributes after
    an error, and so that a shallow copy can learn a row. ``_learn_rows`` sets ``n_features_in_``
    and ``rows_seen_``; both are undefined before it is first called.
    """

    _rescales: ClassVar[bool] = False
    """Whether the transformer only rescales columns; skipped before scale-invariant learners."""

    _uses_units: ClassVar[bool] = False
    """Whether the output depends on the units of the input by more than a factor."""

    _by_name: ClassVar[bool] = False
    """Whether columns are matched by name, so that they may be added or missing."""

    _fills: ClassVar[bool] = False
    """Whether the transformer replaces missing values."""

    _relative: ClassVar[bool] = False
    """Whether a regressor after it learns targets relative to earlier ones; see ``_changes``."""

    _uses_targets: ClassVar[bool] = False
    """Whether a Pipeline must pass targets to ``_learn_with_targets``."""

    _recommended_prior: ClassVar[float] = 0.0
    """The ``prior`` that a Pipeline gives to a later learner whose ``prior`` is None."""

    _merging: ClassVar[str] = "refused"
    """Whether a learner after it can be merged; if ``exact``, unless ``_merge_conflict``."""
    _uses_time: ClassVar[bool] = False

    _outside: ClassVar[Mapping[str, str]] = {}
    """Arguments that model files do not store, with descriptions; ``load`` requires them again."""

    n_features_in_: int
    feature_names_in_: Array
    rows_seen_: Any = UnfittedAttribute()

    # -- hooks -----------------------------------------------------------------------------------

    @abstractmethod
    def _check_rows(self, X: TableLike, *, learning: bool) -> Any:
        """Validate the user's rows for ``_learn_rows`` and ``_transform_rows``.

        The result has a length and can be indexed by a slice or a mask of rows. With ``learning``,
        ``_learn_rows`` follows, and the names or the shape of the first rows may be stored; nothing
        else is learned here.
        """

    def _check_row(self, x: ArrayLike | Mapping[str, object], *, learning: bool) -> Any:
        """Validate one row: an array of shape (d,), or a dict of named features."""
        x = named_row(x)
        rows: Any = x[None] if isinstance(x, np.ndarray) else [x]
        return self._check_rows(rows, learning=learning)

    @abstractmethod
    def _learn_rows(self, checked_rows: Any, starts: Starts | None) -> tuple[Floats, Starts]:
        """Learn the rows; return the transformed rows, and the starts of the output columns.

        ``starts`` are those of the input columns, of which there may be more than before; None if
        no column starts in the block.
        """

    def _novel_rows(self, checked_rows: Any) -> Array:
        """Return the rows that bring new columns."""
        del checked_rows
        return np.zeros(0, dtype=np.intp)

    def _learn_with_targets(
        self, checked_rows: Any, starts: Starts | None, y: Array | None
    ) -> tuple[Floats, Starts]:
        """Learn the rows and their targets, as ``_learn_rows``; row k must not depend on target k.

        Targets are numbers, shape (n,) or (n, c), or labels as text; None in a prediction before
        learning, or unless ``_uses_targets``.
        """
        del y
        return self._learn_rows(checked_rows, starts)

    @abstractmethod
    def _transform_rows(self, checked_rows: Any) -> Floats:
        """Transform each row as if it were the next one, even before learning.

        Nothing is learned: ``_learn_rows`` of one row, right after ``_transform_rows`` of it,
        returns the same numbers.
        """

    def _learn_row(self, x: Any, *, checked: bool) -> tuple[Floats, dict[str, Any]] | None:
        """Return one row as transformed after it was learned, and the new attributes.

        Nothing is learned until the caller assigns the attributes. If ``checked``, ``x`` (d,) is
        the output of another transformer, otherwise the user's row. None if columns have no value
        yet, so that ``_learn_rows`` must return their starts.
        """
        learned = object.__new__(type(self))
        learned.__dict__.update(vars(self))
        rows = x[None] if checked else learned._check_row(x, learning=True)
        return learned._learn_rows(rows, None)[0][0], learned.__dict__

    def _transform_row(self, x: Any, *, checked: bool) -> Floats:
        """Transform one row as if it were the next one, even before learning."""
        rows = x[None] if checked else self._check_row(x, learning=False)
        row: Floats = self._transform_rows(rows)[0]
        return row

    @property
    @abstractmethod
    def n_features_out_(self) -> int:
        """Current number of output columns."""

    @abstractmethod
    def get_feature_names_out(self, input_features: Sequence[str] | None = None) -> Array:
        """Return the names of the output columns, shape (n_features_out_,)."""

    def _merge_from(self, other: Self, at: ColumnPositions | None) -> ColumnPositions:
        """Merge the state of another transformer; return the positions of its outputs.

        ``at`` contains the positions of its input columns; None for the first step, whose columns
        are named by the user. The parameters of both are the same.
        """
        del other, at
        raise MergeError(
            f"the transformer must support merging, got {type(self).__name__}. Learn "
            "all rows with one learner by partial_fit."
        )

    def _merge_conflict(self, other: Self) -> str:
        """Return why the learners after the two cannot be merged; empty if they can.

        A learner depends on its rows as they were transformed. If this transformer would have
        transformed the rows of the other differently, their learners cannot be merged.
        """
        del other
        return "it has its own statistics. Remove this transformer"

    # -- public methods ----------------------------------------------------------------------------

    @public
    def fit(self, X: TableLike, y: ArrayLike | None = None) -> Self:
        """Reset the transformer, then learn the rows one after the other.

        Parameters
        ----------
        X : array-like of shape (n, d)
            At least one row.
        y : array-like of shape (n,) or (n, c), optional
            Targets; only ``Lag`` uses them.

        Returns
        -------
        self
        """
        with all_or_nothing(self):
            forget(self)
            if not len(self._learn_public(X, y)):
                raise ShapeError(
                    "`X` must have rows, got 0 sample(s) while a minimum of 1 is "
                    "required. partial_fit accepts empty blocks."
                )
        return self

    @public
    def partial_fit(self, X: TableLike, y: ArrayLike | None = None) -> Self:
        """Learn the rows one after the other, continuing from the current state.

        Parameters
        ----------
        X : array-like of shape (n, d)
            n may be zero.
        y : array-like of shape (n,) or (n, c), optional
            Targets; only ``Lag`` uses them.

        Returns
        -------
        self
        """
        self._learn_public(X, y)
        return self

    @public
    def learn(self, X: TableLike, y: ArrayLike | None = None) -> Self:
        """Learn the rows one after the other.

        Parameters
        ----------
        X : array-like of shape (n, d)
            n may be zero.
        y : array-like of shape (n,) or (n, c), optional
            The targets, for ``Lag``; ignored by other transformers.

        Returns
        -------
        self
        """
        self._learn_public(X, y)
        return self

    @public
    def learn_transform(self, X: TableLike, y: ArrayLike | None = None) -> Floats:
        """Learn the rows one after the other; return each row transformed with the state after it.

        Parameters
        ----------
        X, y
            As in ``learn``.

        Returns
        -------
        ndarray of shape (n, n_features_out_)
            Row k is transformed with the state after rows 1 ... k.
        """
        return self._learn_public(X, y)

    @public
    def transform(self, X: TableLike) -> Floats:
        """Transform each row as if it were the next one; nothing is learned.

        Parameters
        ----------
        X : array-like of shape (n, d)

        Returns
        -------
        ndarray of shape (n, n_features_out_)
        """
        return self._transform_rows(self._check_rows(X, learning=False))

    @public
    def merge(self, other: Self) -> Self:
        """Merge another transformer into this one, as if its rows had followed those of this one.

        Parameters
        ----------
        other : transformer of the same class, with the same parameters
            Not changed.

        Returns
        -------
        self

        Raises
        ------
        MergeError
            If the two are incompatible or cannot be merged. Both are then unchanged.
        """
        check_same_parameters(self, other, list(self.get_params(deep=False)))
        if other.__sklearn_is_fitted__():
            if other is self:
                other = copy.copy(other)  # learned arrays are never modified in place
            with all_or_nothing(self):
                self._merge_from(other, None)
        return self

    @public
    def grow(self, d: int) -> Self:
        """Append input columns, as if they had been zero in every row so far.

        Parameters
        ----------
        d : int
            New number of input columns, at least the current number.

        Returns
        -------
        self

        Raises
        ------
        ParameterError
            If d is less than the current number of columns.
        """
        now = getattr(self, "n_features_in_", 0)
        if d < now:
            raise ParameterError(
                f"`d` must be >= {now}, the current number of columns, got {d}. Columns "
                "cannot be removed."
            )
        if d > now:
            with all_or_nothing(self):
                self._learn_rows(np.empty((0, d)), None)
        return self

    # -- learned state --------------------------------------------------------------------------

    @property
    def nbytes(self) -> int:
        """Size of the learned state in bytes: arrays, numbers and text."""
        return sum(_size(value) for name, value in vars(self).items() if name.endswith("_"))

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "n_features_in_")

    def __sklearn_tags__(self) -> Any:
        tags = with_onepass_tags(super().__sklearn_tags__(), self)
        tags.requires_fit = False  # before the first row, rows are transformed by the initial state
        tags.input_tags.allow_nan = self._by_name or self._fills
        tags.input_tags.string = tags.input_tags.categorical = self._by_name
        return tags

    # -- private -------------------------------------------------------------------

    def _names_in(self, given: Sequence[str] | None = None) -> list[str]:
        """Return the given names of the input columns if they fit; by default those learned."""
        if not self.__sklearn_is_fitted__():
            raise NotFittedError(
                f"this {type(self).__name__} is not fitted yet: it has learned no row. "
                "Call fit, partial_fit or learn_transform first."
            )
        default = [f"x{j}" for j in range(getattr(self, "n_features_in_", 0))]
        names = [str(name) for name in getattr(self, "feature_names_in_", default)]
        if given is None:
            return names
        got = [str(name) for name in given]
        if len(got) != len(names):
            raise ColumnError(
                "input_features should have length equal to the number of columns "
                f"learned, {len(names)}, got {len(got)}. Omit it."
            )
        if names not in (got, default):
            raise ColumnError(
                "input_features is not equal to feature_names_in_, the columns "
                f"learned, {names}, got {got}. Omit it."
            )
        return got

    def _learn_public(self, X: TableLike, y: ArrayLike | None) -> Floats:
        del y
        with all_or_nothing(self):
            checked_rows = self._check_rows(X, learning=True)
            return self._learn_rows(checked_rows, None)[0]


@contextmanager
def all_or_nothing(*parts: object) -> Iterator[None]:
    """Restore the attributes of all parts if an exception is raised."""
    before = [(part, dict(vars(part))) for part in parts]
    try:
        yield
    except BaseException:
        for part, attributes in before:
            part.__dict__ = attributes  # one assignment: an interrupt cannot split it
        raise


def _size(value: object) -> int:
    if isinstance(value, np.ndarray):
        return int(value.nbytes) + (sum(map(_size, value.tolist())) if value.dtype == object else 0)
    if isinstance(value, str):
        return len(value.encode())
    if isinstance(value, dict):
        return sum(_size(key) + _size(value) for key, value in value.items())
    if isinstance(value, (list, tuple)):
        return sum(map(_size, value))
    if hasattr(value, "__dataclass_fields__"):
        return sum(_size(getattr(value, name)) for name in value.__dataclass_fields__)
    return 8


_PART_SIZE = 16384  # numbers in a part: several arrays of this size fit in the cache of a core


def column_parts(n: int, d: int) -> list[slice]:
    """Return slices of columns, each of at least one column, such that n rows fit in cache.

    Examples
    --------
    >>> len(column_parts(1024, 40)), len(column_parts(1, 40))
    (3, 1)
    """
    width = max(1, _PART_SIZE // max(n, 1))
    return [slice(j, min(d, j + width)) for j in range(0, d, width)]


class Columnwise(Transformer):
    """Base class of transformers of matrices (n, d), whose number of columns may grow.

    A subclass defines the hooks ``_start``, ``_widen``, ``_step`` and ``_transform_block`` and, if
    its width differs from that of its input, ``n_features_out_`` and ``get_feature_names_out``. If
    a compiled loop learns single rows, it also defines ``_compiled_row``.
    """

    _prefix: ClassVar[str] = ""
    """Prefix of the output names, if they are numbered."""
    _accepts_missing: ClassVar[bool] = False
    """Whether values of rows may be missing."""

    @abstractmethod
    def _start(self, d: int) -> None:
        """Initialize the learned state, with parameters in their ranges."""

    def _widen(self, d: int) -> None:
        """Append input columns up to d, zero in every row so far, unless ``starts`` follow."""
        place_states(self, {FEATURE: Places(np.arange(self.n_features_in_), d)})

    @property
    def _sound(self) -> bool:
        """Whether the state of a loaded file has the size of the input."""
        return not hasattr(self, "n_features_in_") or are_sound(self, d=self.n_features_in_)

    @abstractmethod
    def _step(self, X: Floats, starts: Starts) -> tuple[Floats, Starts]:
        """Learn n >= 0 rows; return the transformed rows, and the starts of the output columns.

        ``rows_seen_`` counts the rows before these.
        """

    @abstractmethod
    def _merge_block(self, other: Self, at: Array, known: int) -> Array:
        """Merge another state; return the positions of its outputs.

        The other's input columns have positions ``at``. This state has all columns already; the
        first ``known`` are not new. ``rows_seen_`` counts the rows before those of the other.
        """

    @abstractmethod
    def _transform_block(self, X: Floats) -> Floats:
        """Transform each row as if it were the next one."""

    @property
    def n_features_out_(self) -> int:
        """Current number of output columns."""
        return getattr(self, "n_features_in_", 0)

    @public
    def get_feature_names_out(self, input_features: Sequence[str] | None = None) -> Array:
        """Return the names of the output columns, shape (n_features_out_,).

        Parameters
        ----------
        input_features : sequence of str, optional
            Names of the input columns; by default those seen while learning, or x0, x1, ... if they
            had none. Not needed if output columns are numbered.
        """
        names = self._names_in(input_features)
        if self._prefix:
            names = [f"{self._prefix}{j}" for j in range(self.n_features_out_)]
        return np.array(names, dtype=object)

    def _check_rows(self, X: TableLike, *, learning: bool) -> Floats:
        """Return rows as a matrix of the fitted width."""
        array, names = validation.matrix(X, **self._shape(), missing=self._accepts_missing)
        if learning:
            self._set_feature_names(names)
        return array

    def _check_row(self, x: ArrayLike | Mapping[str, object], *, learning: bool) -> Floats:
        """Return a finite row of the fitted width, as a matrix of one row."""
        row = validation.row_vector(x, **self._shape())
        if learning:
            self._set_feature_names([str(name) for name in x] if isinstance(x, Mapping) else None)
        return row[None, :]

    @public
    def _learn_rows(self, checked_rows: Floats, starts: Starts | None) -> tuple[Floats, Starts]:
        """Initialize or widen the state if necessary, then learn the rows."""
        n, d = checked_rows.shape
        now = getattr(self, "n_features_in_", None)
        check_parameters(self)
        if now is None or (d > now and not self.rows_seen_):
            self._start(d)
            self.rows_seen_ = 0
        elif d > now:
            self._widen(d)
        names = getattr(self, "feature_names_in_", None)
        if names is not None and len(names) < d:
            new = [f"x{j}" for j in range(len(names), d)]
            self.feature_names_in_ = np.append(names, new).astype(object)
        self.n_features_in_ = d
        result = self._step(checked_rows, Starts.none(d) if starts is None else starts)
        self.rows_seen_ += n
        return result

    @public
    def _transform_rows(self, checked_rows: Floats) -> Floats:
        """Transform each row as if it were the next one, even before learning."""
        if hasattr(self, "n_features_in_"):
            return self._transform_block(checked_rows)
        fresh: Self = clone(self).grow(checked_rows.shape[1])
        return fresh._transform_block(checked_rows)

    def _learn_row(self, x: Any, *, checked: bool) -> tuple[Floats, dict[str, Any]] | None:
        """Return one row as transformed after it was learned, and the new attributes."""
        found = self._compiled_row(x, learning=True)
        return super()._learn_row(x, checked=checked) if found is None else found

    def _transform_row(self, x: Any, *, checked: bool) -> Floats:
        """Transform one row as if it were the next one, even before learning."""
        found = self._compiled_row(x, learning=False)
        return super()._transform_row(x, checked=checked) if found is None else found[0]

    def _compiled_row(self, x: Any, *, learning: bool) -> tuple[Floats, dict[str, Any]] | None:
        """Transform a row in a compiled loop, as ``_learn_row`` does if ``learning``.

        None if there is no loop for this transformer or row.
        """
        del x, learning
        return None

    def _row_names(self, x: Any) -> Any:
        """Return the names by which a compiled loop reads a row: a list, or None for an array.

        False if NumPy must handle the row.
        """
        if native.loops is None or not hasattr(self, "n_features_in_"):
            return False
        if type(x) is np.ndarray:
            return None
        names = getattr(self, "feature_names_in_", None)
        return names.tolist() if isinstance(x, Mapping) and names is not None else False

    def _merge_from(self, other: Self, at: ColumnPositions | None) -> ColumnPositions:
        """Merge the state of another transformer; return the positions of its outputs."""
        at = column_positions(self, other) if at is None else at
        if at.names is not None and not hasattr(self, "n_features_in_"):
            self._set_feature_names(at.names)
        known = getattr(self, "n_features_in_", 0)
        self._learn_rows(np.empty((0, at.d)), Starts.merged(at, known))
        if at.names is not None:
            self.feature_names_in_ = np.array(at.names, dtype=object)
        out = self._merge_block(other, at.at, known)
        self.rows_seen_ += other.rows_seen_
        names = None if at.names is None else self.get_feature_names_out().tolist()
        return ColumnPositions(out, self.n_features_out_, names)

    def _set_feature_names(self, names: list[str] | None) -> None:
        """Store the column names of the first block."""
        if names is not None and not hasattr(self, "n_features_in_"):
            self.feature_names_in_ = np.array(names, dtype=object)

    def _shape(self) -> dict[str, Any]:
        """Return the number and names of the input columns, None if unknown."""
        names = getattr(self, "feature_names_in_", None)
        return {
            "d": getattr(self, "n_features_in_", None),
            "names": None if names is None else list(names),
        }
