"""Joint: two pipelines become one, where each part of the second can become part of the first.

The features go first. Each says where its outputs belong among those of both, so that what stands
behind it knows whose columns are whose; the learner comes last. A learner knows its rows as the
features gave them: had they come out in another way behind the features of the first, that is
refused.
"""

import copy
from abc import abstractmethod
from contextlib import AbstractContextManager
from typing import Any, Self

import numpy as np

from onepass.errors import MergeError
from onepass.features.steps import Steps
from onepass.validation.arrays import Places, hold_alike, places

__all__ = ["JointSteps"]


class JointSteps(Steps):
    """Steps that can be merged."""

    @property
    def merging(self) -> str:
        """What ``merge`` promises: ``exact``, ``approximate`` or ``refused``."""
        parts = [*self._in_use(), self.learner]
        said = {part.merging for part in parts}
        return next((word for word in ("refused", "approximate") if word in said), "exact")

    def merge(self, other: Self, *, concurrent: bool = False) -> Self:
        """Learn what another pipeline has learned, as if this one had seen its rows too.

        The other is not changed. Columns and categories that only the other knows are appended in
        the order in which they came there.

        Parameters
        ----------
        other : Pipeline of the same steps, with the same parameters
        concurrent : bool, default=False
            With forgetting. False: the other's rows came after this one's. True: the two streams
            ran side by side.

        Returns
        -------
        self

        Raises
        ------
        MergeError
            If the two are not alike, or the other's rows would have come out of the features in
            another way here, or the learners cannot be merged. Both are left as they were.
        """
        where = f"{type(self).__name__}.merge"
        self._hold_mergeable(other, where)
        if not other.__sklearn_is_fitted__():
            return self
        if other is self:
            other = copy.deepcopy(other)
        with self._whole():
            if not self._begun:
                self._begin()
            at = None
            for mine, theirs in zip(self.features_, other.features_, strict=True):
                self._hold_same(mine, theirs, where)
                at = mine.join(theirs, at, where)
            if at is None:
                at = places(self.learner_, other.learner_, where)
            elif not len(at.at):  # a learner behind no columns has one, which is 0
                at = Places(np.zeros(1, dtype=np.intp), max(at.d, 1), at.names or None)
            self.learner_.join(other.learner_, at, concurrent=concurrent)
        return self

    def _hold_mergeable(self, other: Self, where: str) -> None:
        """Refuse other steps, or steps of other parameters."""
        hold_alike(self, other, (), where)
        one, two = (" > ".join(type(step).__name__ for step in p.steps) for p in (self, other))
        if one != two:
            raise MergeError(
                f"{where}: both must have the same steps, {one} as in the first, got {two}. "
                "Learn all parts with the same Pipeline."
            )
        for mine, theirs in zip(self._in_use(), other._in_use(), strict=True):
            hold_alike(mine, theirs, list(mine.get_params(deep=False)), where)
        self.learner.hold_mergeable(other.learner, where)

    def _hold_same(self, mine: Any, theirs: Any, where: str) -> None:
        if hasattr(mine, "rows_seen_") and theirs.rows_seen_ and (reason := mine.differs(theirs)):
            raise MergeError(
                f"{where}: {type(mine).__name__} must have given the rows of both alike, but "
                f"{reason}, or let one pipeline see all rows."
            )

    @abstractmethod
    def _begin(self) -> None: ...

    @abstractmethod
    def _whole(self) -> AbstractContextManager[None]: ...
