"""Versions: what a learner was before, and the way back."""

import time
from dataclasses import dataclass
from typing import Any

from onepass import validation
from onepass.errors import ParameterError
from onepass.service.kept import Kept
from onepass.service.words import hold_text

__all__ = ["Version", "Versions"]


@dataclass(frozen=True, slots=True)
class Version:
    """A snapshot, to which ``rollback`` can go back.

    Parameters
    ----------
    version : int
        How many blocks the learner had learned.
    rows_seen : int
        How many rows in all, those that were rolled back too.
    at : float
        When it was taken, in seconds since 1970.
    why : str
        ``"beginning"``, ``"rows"``, ``"time"``, ``"asked"``, ``"close"`` or ``"rollback to …"``.
    nbytes : int
        Of the snapshot.
    """

    version: int
    rows_seen: int
    at: float
    why: str
    nbytes: int

    def __str__(self) -> str:
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(self.at))
        return f"version {self.version:,}: {self.rows_seen:,} rows, {when}, {self.why}"


class Versions(Kept):
    """The verbs for snapshots."""

    @property
    def versions(self) -> list[Version]:
        """The snapshots, the oldest first; ``rollback`` goes to any block from the first on."""
        with self._own_turn():
            self._hold_open()
            self._keeper.land()
            return [
                Version(each.sequence, each.seen, each.at, each.why, each.size)
                for each in self._journal.snapshots()
            ]

    def snapshot(self) -> int:
        """Take a snapshot now; the version.

        Raises
        ------
        StoreError
            If the disk is full or fails.
        """
        with self._own_turn():
            self._settle()
            self._keeper.hold_ready()
            self._keeper.snapshot("asked")
            return self._journal.sequence

    def rollback(self, *, to: int) -> int:
        """Be again as after a block, to the last bit; the new version.

        What came later is not learned again. Keys stay known, and positions stay as they are: rows
        that were rolled back do not come again by themselves. The way back is kept too:
        ``rollback(to=…)`` of a later version.

        Parameters
        ----------
        to : int
            A version, from the oldest of ``versions`` to the present one.

        Raises
        ------
        ParameterError
            If there is no such version, or it is no longer kept.
        StoreError
            If the disk is full or fails: then all is as it was.
        """
        with self._own_turn():
            self._settle()
            self._keeper.hold_ready()
            where = f"{self._journal.where}.rollback"
            to = validation.whole(to, "to", where, low=0)
            oldest, latest = self._journal.snapshots()[0].sequence, self._journal.sequence
            if not oldest <= to <= latest:
                raise ParameterError(
                    f"{where}: `to` must be a version that is kept, from {oldest:,} to the present "
                    f"one, {latest:,}, got {to:,}. `versions`, and /state of a service, lists "
                    "the snapshots; `keep` is how many there are."
                )
            self._keeper.rollback(to)
            return self._journal.sequence

    def pass_by(self, source: str, position: str) -> None:
        """Note where to go on reading a source, of rows that were refused.

        Parameters
        ----------
        source, position : str
            As for ``learn``.

        Raises
        ------
        ParameterError
            If these are no words.
        StoreError
            If the disk is full or fails: then it is as it was.
        """
        where = f"{self._journal.where}.pass_by"
        for name, word in (("source", source), ("position", position)):
            hold_text(word, name, where)
        with self._own_turn():
            self._settle()
            self._keeper.hold_ready()
            self._keeper.pass_by(source, position)

    def hold_in_place(self) -> None:
        """Refuse where the file is not where it was opened.

        Raises
        ------
        StoreError
        """
        self._journal.hold_in_place()

    @property
    def written(self) -> Any:
        """The learner as it was last written down, to be looked at; None if it is large."""
        return self._keeper.written

    def model(self) -> Any:
        """A copy of the learner, to learn elsewhere or to be saved by ``op.save``.

        Even if its file is lost, or cannot be written any more, as long as it is what was
        acknowledged.

        Raises
        ------
        StoreError
            If that is not known, and cannot be read.
        """
        with self._own_turn():
            self._settle()
            return self._keeper.copied()
