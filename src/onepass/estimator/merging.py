"""Merging: two learners become one that knows what both have seen.

``a.merge(b)`` leaves a as if it had also learned b's rows, after its own; b is not changed. What
makes that possible is a memory that says what all its rows said; a learner that keeps only its
weights cannot be merged, since nobody knows how sure it was of each. ``merging`` tells it:

=============== ==================================================================================
``exact``       equal to learning both streams in one pass, to rounding, in any tree of merges
``approximate`` what the memory still knew of its rows is learned; what it had let go is not
``refused``     MergeError
=============== ==================================================================================

A learner brings the hook ``_merge``, and says with ``merged_alike`` which of its parameters must
be the same in both.
"""

import copy
from abc import ABC, abstractmethod
from contextlib import AbstractContextManager
from typing import Any, ClassVar, Literal, NamedTuple, Self

import numpy as np

from onepass.errors import MergeError
from onepass.types import Array

__all__ = ["Layout", "Merging", "alike"]

_KINDS = Literal["exact", "approximate", "refused"]


class Layout(NamedTuple):
    """Where what another learner knows belongs in this one."""

    features: Array
    """The place of each of the other's features, (d′,)."""
    d: int
    """The features of both together."""
    outputs: Array
    """The place of each of the other's outputs, (c′,)."""
    concurrent: bool
    """Whether the other's rows came beside this one's, and not after them."""


class Merging(ABC):
    """The verb ``merge``."""

    merged_alike: ClassVar[tuple[str, ...]] = ()
    """The parameters that must be the same in two learners that merge."""

    n_features_in_: int
    rows_seen_: int

    @property
    @abstractmethod
    def _begun(self) -> bool: ...

    @abstractmethod
    def _whole(self) -> AbstractContextManager[None]: ...

    @abstractmethod
    def _widen(self, d: int) -> None: ...

    # -- hooks -------------------------------------------------------------------------------------

    @property
    def merging(self) -> _KINDS:
        """What ``merge`` promises with these parameters: exact, approximate or refused."""
        return "refused"

    def _unmergeable(self) -> str:
        """Why it cannot be merged as it is, and what to do; empty where it can.

        The words follow "a learner must keep what its rows said, ".
        """
        return (
            "got one that keeps only its weights, not how sure it is of them. Let one learner see "
            "all rows with partial_fit, or use RLS or ORFit."
        )

    def _join_outputs(self, other: Any, where: str) -> Array:
        """Know the other's outputs too, beginning if need be; return their places, (c′,)."""
        raise NotImplementedError

    def _merge(self, other: Any, layout: Layout) -> None:
        """Learn what the other's rows said; the outputs are known already, the features not."""
        raise NotImplementedError

    # -- the verb ----------------------------------------------------------------------------------

    def merge(self, other: Self, *, concurrent: bool = False) -> Self:
        """Learn what another learner has learned, as if this one had seen its rows too.

        The other is not changed. Features with names are matched by them; those that only one of
        the two knows were zero in the other's rows. The parameters of this learner stay.

        Parameters
        ----------
        other : learner of the same class
            In d features of which some or all are the same, and as many outputs, or any classes.
        concurrent : bool, default=False
            Without forgetting it makes no difference. With it, False: the other's rows came after
            this one's, which age by them. True: the two streams ran side by side, so that none of
            them ages by the other.

        Returns
        -------
        self

        Raises
        ------
        MergeError
            If the two are not alike, or if what they keep does not say what their rows said.
            Both are left as they were.
        """
        where = f"{type(self).__name__}.merge"
        self._refuse_unlike(other, where)
        if not other._begun:
            return self
        if other is self:
            other = copy.copy(other)  # what was learned is never written into
        with self._whole():
            places, names = _places(self, other, where)
            self._united(other, places, names, concurrent=concurrent)
        return self

    def _refuse_unlike(self, other: Self, where: str) -> None:
        """Refuse a learner of another kind or setting, and one that cannot be merged."""
        if type(other) is not type(self):
            raise MergeError(
                f"{where}: `other` must be a {type(self).__name__} too, got "
                f"{type(other).__name__}. Merge learners of one class, with the same parameters."
            )
        if reason := self._unmergeable() or other._unmergeable():
            raise MergeError(f"{where}: a learner must keep what its rows said, {reason}")
        for name in self.merged_alike:
            one, two = getattr(self, name), getattr(other, name)
            if not alike(one, two):
                raise MergeError(
                    f"{where}: `{name}` must be the same in both learners, {one!r} here, got "
                    f"{two!r}. Learn all parts with the same parameters."
                )

    def _united(
        self, other: Any, features: Array, names: list[str] | None, *, concurrent: bool
    ) -> None:
        """Learn what the other's rows said, its features at these places."""
        where = f"{type(self).__name__}.merge"
        d = len(features) if names is None else len(names)
        if not hasattr(self, "n_features_in_"):
            self.n_features_in_ = d
        outputs = self._join_outputs(other, where)
        d = max(d, self.n_features_in_)
        self.rows_seen_ += other.rows_seen_
        if other.rows_seen_:
            self._merge(other, Layout(features, d, outputs, concurrent))
        elif d > self.n_features_in_:
            self._widen(d)
        self.n_features_in_ = d
        if names is not None:
            self.feature_names_in_ = np.array(names, dtype=object)


def alike(one: Any, two: Any) -> bool:
    """Whether two parameters are the same, arrays among them.

    Examples
    --------
    >>> alike(np.eye(2), [[1, 0], [0, 1]]), sum([alike(0.1, 0.2)])
    (True, 0)
    """
    if one is two:
        return True
    if isinstance(one, (np.ndarray, list, tuple)) or isinstance(two, (np.ndarray, list, tuple)):
        try:
            return bool(np.array_equal(one, two))
        except (TypeError, ValueError):
            return False
    return bool(one == two)


def _places(one: Any, other: Any, where: str) -> tuple[Array, list[str] | None]:
    """Where the other's features belong, (d′,), and the names of all, where they have names."""
    known, coming = (getattr(each, "feature_names_in_", None) for each in (one, other))
    begun = hasattr(one, "n_features_in_")
    if coming is not None and (known is not None or not begun):
        names = [] if known is None else list(known)
        at = {name: j for j, name in enumerate(names)}
        for name in coming:
            at.setdefault(name, len(at))
        return np.array([at[name] for name in coming], dtype=np.intp), list(at)
    d = other.n_features_in_
    if begun and d != one.n_features_in_:
        raise MergeError(
            f"{where}: both learners must have {one.n_features_in_} features, as the first has, "
            f"got {d}. Learn from frames or dicts to have features found by name, or grow one."
        )
    return np.arange(d), None
