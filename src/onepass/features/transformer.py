"""Transformer: what all one-pass features share.

A feature turns rows into other rows with the help of what it has learned of the rows so far.
Both ways of asking it give a row *as it is seen when its time comes*:

``learn_transform(X)``  learn the rows one after the other; row k is seen with what is known of
                        all rows up to and including k
``transform(X)``        learn nothing; each row, for itself, is seen as if it were the next one

So ``transform`` and then ``learn_transform`` of one row give the same numbers, and a learner
behind a feature is asked about the very vector that it is then taught. Cutting a stream into
blocks changes nothing.

The width may grow, at the end. Within a block the rows before a new column's first row hold 0
there, and whatever stands behind is widened *as if the new column had been zero all along*.
"""

import copy
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator

from onepass.errors import Array, Floats, MergeError, ParameterError
from onepass.validation.arrays import Places, hold_alike

__all__ = ["Transformer", "all_or_nothing"]


class Transformer(BaseEstimator, ABC):  # type: ignore[misc]
    """A one-pass feature: what it has learned lies in attributes that end with an underscore.

    A feature of matrices is a :class:`onepass.features.columnwise.Columnwise`, which brings most
    of the hooks below. A hook never writes into an array, list or dict that an attribute held when
    it was called: it makes new ones and assigns them.
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
    def read_rows(self, X: Any, where: str, *, learning: bool) -> Any:
        """Check what a user gave; return the rows as ``take`` and ``ask`` want them.

        They have a length, and take a slice or a mask of rows.
        """

    @abstractmethod
    def read_row(self, x: Any, where: str, *, learning: bool) -> Any:
        """The same for one row: an array of shape (d,), or a dict of named features."""

    @abstractmethod
    def take(self, read: Any, born: Array | None) -> tuple[Floats, Array]:
        """Learn rows; return them as seen at their time, and each column's first row.

        ``born`` (d,) says at which of these rows each input column came: 0 for those that had come
        before, and None if all had. There may be more input columns than there were.
        """

    @abstractmethod
    def ask(self, read: Any) -> Floats:
        """The rows, each as if it were the next one, also before anything was learned."""

    @property
    @abstractmethod
    def n_features_out_(self) -> int:
        """The number of columns that come out now."""

    @abstractmethod
    def get_feature_names_out(self, input_features: Sequence[str] | None = None) -> Array:
        """The names of the columns that come out now, shape (n_features_out_,)."""

    def join(self, other: Any, at: Places | None, where: str) -> Places:
        """Know what another with the same parameters learned; return where its outputs belong.

        ``at`` says where its input columns belong; None for those that its user named.
        """
        del other, at
        raise MergeError(
            f"{where}: a feature must be one that can be merged, got {type(self).__name__}. "
            "Let one learner see all rows with partial_fit."
        )

    def differs(self, other: Any) -> str:
        """Where the other's rows would have come out in another way here, and why; empty if not.

        A learner behind it knows them as they came out there.
        """
        del other
        return "it has statistics of its own. Leave the feature out"

    # -- verbs -----------------------------------------------------------------------------------

    def learn(self, X: Any) -> Self:
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

    def learn_transform(self, X: Any) -> Floats:
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

    def transform(self, X: Any) -> Floats:
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
        hold_alike(self, other, list(self.get_params(deep=False)), where)
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

    def _public(self, X: Any, verb: str) -> Floats:
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


def _size(thing: Any) -> int:
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
