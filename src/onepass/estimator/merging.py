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

from onepass.errors import Array, MergeError
from onepass.validation.arrays import Places, hold_alike, places

__all__ = ["Layout", "Merging"]

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

    @abstractmethod
    def _join_outputs(self, other: Any, where: str) -> Array:
        """Know the other's outputs too, beginning if need be; return their places, (c′,)."""

    def _merge(self, other: Any, layout: Layout) -> None:
        """Learn what the other's rows said; the outputs are known already, the features not."""
        del other, layout
        raise MergeError(
            f"{type(self).__name__}.merge: a learner must know how to learn what another's rows "
            "said, got one without that. Let one learner see all rows with partial_fit, or use RLS "
            "or ORFit."
        )

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
        self.hold_mergeable(other, where)
        if not other._begun:
            return self
        if other is self:
            other = copy.copy(other)  # what was learned is never written into
        with self._whole():
            self.join(other, places(self, other, where), concurrent=concurrent)
        return self

    def hold_mergeable(self, other: Self, where: str) -> None:
        """Refuse a learner of another kind or setting, and one that cannot be merged.

        Parameters
        ----------
        other : object
        where : str
            The public call, for messages.

        Raises
        ------
        MergeError
            Saying why.
        """
        hold_alike(self, other, self.merged_alike, where)
        if reason := self._unmergeable() or other._unmergeable():
            raise MergeError(f"{where}: a learner must keep what its rows said, {reason}")

    def join(self, other: Any, at: Places, *, concurrent: bool) -> None:
        """Learn what another that may be merged has learned, its features at these places.

        A pipeline calls it, whose features know the places; ``merge`` is for everybody else.

        Parameters
        ----------
        other : learner of the same class that has begun
        at : Places
        concurrent : bool
            As in ``merge``.
        """
        if not hasattr(self, "n_features_in_"):
            self.n_features_in_ = at.d
        outputs = self._join_outputs(other, f"{type(self).__name__}.merge")
        self.rows_seen_ += other.rows_seen_
        if other.rows_seen_:
            self._merge(other, Layout(at.at, at.d, outputs, concurrent))
        elif at.d > self.n_features_in_:
            self._widen(at.d)
        self.n_features_in_ = at.d
        if at.names is not None:
            self.feature_names_in_ = np.array(at.names, dtype=object)
