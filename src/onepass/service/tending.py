"""Tending: a learner is written down whole now and then, goes back, and lets go of what is old."""

import json
import time
import warnings
from collections.abc import Callable
from contextlib import suppress

from onepass.errors import CheckpointError, CheckpointWarning, StoreError
from onepass.service.journal import Journal
from onepass.service.policy import Policy
from onepass.service.records import Entry, Group
from onepass.service.standing import Standing, small

__all__ = ["Tending"]

_SWEEP = 60.0  # seconds after which what is too old is let go again
_AGAIN = 1.0  # seconds after which the file and the disk are looked at again
_FEW, _MANY = 64, 1024  # blocks that are let go at once
_PATIENCE = 5.0  # seconds that whoever closes waits for old blocks to go


class Tending(Standing):
    """Snapshots of a learner and its journal; of the same parameters."""

    def __init__(self, journal: Journal, policy: Policy) -> None:
        super().__init__(journal, policy)
        self._sweep_at = self._look_at = 0.0
        self._trims = False  # whether the log may hold blocks before all snapshots
        self._trimmed = 0  # the version when some were let go

    def resume(self) -> None:
        """Make the learner from the file; whoever watches is told of what it learns again."""
        super().resume()
        self._trims, self._trimmed = True, self.journal.sequence

    def tend(self) -> None:
        """Take a snapshot if it is time, and let go some of what is too old."""
        now, (seen, at) = self.now(), self._tried
        if now >= self._look_at:
            self._look_at = now + _AGAIN
            self._look()
        rows = self.journal.seen - seen
        if rows >= self._policy.snapshot_rows:
            self._try(lambda: self._due("rows"))
        elif rows and now - at >= self._policy.snapshot_seconds:
            self._try(lambda: self._due("time"))
        if now >= self._sweep_at:
            self._try(lambda: self._sweep(now))
        if self._trims:
            self._try(self._trim)

    def finish(self) -> None:
        """Take a last snapshot, and let go blocks before the oldest, all if that is quick."""
        self._try(self.journal.hold_whole)
        self._try(lambda: self.snapshot("close"))
        self._try(self._trim_all)

    def snapshot(self, why: str) -> None:
        """Take one, unless there is one of this version; and let go the oldest.

        Raises
        ------
        StoreError, CheckpointError
            If it cannot be written.
        """
        sequence = self.journal.sequence
        if self.journal.snapshots()[-1].sequence < sequence:
            self.journal.snapshot(self._snapshot(self.charge, sequence, why))
            self.written = small(self.charge)
        self._taken = self._tried = (self.journal.seen, self.now())
        self._trouble = None
        self._try(self._prune)

    def rollback(self, to: int) -> None:
        """Go back to what was known after a block; the log keeps what came after it.

        Parameters
        ----------
        to : int
            A version from the oldest snapshot on.

        Raises
        ------
        StoreError
            If it is not kept, or cannot be written.
        """
        made = self._made(to)
        sequence, seen = self.journal.sequence + 1, self.journal.seen
        entry = Entry(sequence, "rollback", 0, seen, True, json.dumps({"to": to}), b"")  # noqa: FBT003
        snapshot = self._snapshot(made.charge, sequence, f"rollback to {to}")
        self._commit(Group(entries=[entry], snapshot=snapshot))
        self.charge = made.charge
        self._taken = self._tried = (seen, self.now())
        self.written = small(made.charge)
        self.answering = made.charge.answering()
        self._stale = False
        self._try(self._prune)

    # -- what stands behind them ---------------------------------------------------------------

    def _try(self, work: Callable[[], None]) -> None:
        """Do what may fail: all rows are in the log, whether it is done or not."""
        if self._stale or self.journal.broken is not None:
            return
        try:
            work()
        except (StoreError, CheckpointError) as wrong:
            self._trouble = f"{wrong} All rows are in the log, which goes on."
            warnings.warn(self._trouble, CheckpointWarning, stacklevel=2)

    def _due(self, why: str) -> None:
        """Take a snapshot; if it cannot be written, not again before the next would be due."""
        try:
            self.snapshot(why)
        except (StoreError, CheckpointError):
            self._tried = (self.journal.seen, self.now())
            raise

    def _look(self) -> None:
        """See whether the file is there, and whether a disk that was full has room again.

        Then be as on the disk: nobody may send rows before this is ready.
        """
        self._try(lambda: self.journal.hold_whole(log=True))
        if self.journal.full is not None:
            with suppress(StoreError):  # it is told until then
                self.journal.hold_room()
                if self._stale:
                    self.restore()

    def _prune(self) -> None:
        self.journal.prune(self._policy.keep)
        self._trims, self._trimmed = True, self.journal.sequence

    def _trim(self) -> None:
        """Let go more blocks than have come, but not so many that whoever waits would notice."""
        came = self.journal.sequence - self._trimmed
        self._trimmed += came
        self._trims = False  # if it fails, it is tried again after the next snapshot
        self._trims = self.journal.trim(_FEW + 2 * came)

    def _trim_all(self) -> None:
        until = time.monotonic() + _PATIENCE  # what is left goes after the next start
        while self.journal.trim(_MANY) and time.monotonic() < until:
            pass

    def _sweep(self, now: float) -> None:
        self._sweep_at = now + _SWEEP  # if it fails, too
        if self.journal.sweep(keys_before=now - self._policy.key_seconds, now=now):
            self._sweep_at = now
