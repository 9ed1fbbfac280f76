"""Standing: a learner as it stands on the disk: made from there, and kept there."""

import json
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from onepass.errors import DamagedError, StoreError
from onepass.serialization.state import nbytes
from onepass.service.blocks import Block
from onepass.service.charge import Charge
from onepass.service.journal import Journal
from onepass.service.policy import Policy, Watcher
from onepass.service.records import Entry, Group, Snapshot

__all__ = ["Standing", "small"]

_LAST = 1 << 62  # beyond every block
_LARGEST = 1 << 22  # bytes of what is held to be looked at


@dataclass(frozen=True)
class _Made:
    """What was made from the disk."""

    charge: Charge
    positions: dict[str, str]
    snapshot: Snapshot
    written: Any
    end: tuple[int, int, bytes]


class Standing:
    """A learner and its journal; for one thread at a time.

    Parameters
    ----------
    journal : Journal
    policy : Policy

    Attributes
    ----------
    charge : Charge
    published : tuple of int and learner
        The version, and the learner as it was acknowledged last.
    positions : dict of str to str
        Of the sources.
    written : learner or None
        As it was last written down, with its memory, to be looked at; None if that is large.
    watch : callable or None
        Told of each block that is acknowledged.
    """

    charge: Charge
    published: tuple[int, Any]

    def __init__(self, journal: Journal, policy: Policy) -> None:
        self.journal, self.where = journal, journal.where
        self._policy = policy
        self._began = policy.clock() - time.monotonic()  # a clock that is set anew changes nothing
        self.positions: dict[str, str] = {}
        self.written: Any = None
        self.watch: Watcher | None = None
        self._trouble: str | None = None
        self._stale = False  # the learner has learned what may not be on the disk
        self._taken = self._tried = (0, 0.0)  # rows and when: a snapshot, or at least the trial

    @property
    def answering(self) -> Any:
        """The learner as it was acknowledged last."""
        return self.published[1]

    @answering.setter
    def answering(self, learner: Any) -> None:
        self.published = (self.journal.sequence, learner)

    def now(self) -> float:
        """Seconds since 1970, which never go back."""
        return self._began + time.monotonic()

    @property
    def most_features(self) -> int | None:
        """So many features may come to the learner."""
        return self._policy.most_features

    @property
    def last_snapshot(self) -> tuple[int, float]:
        """How many rows had been learned at the last snapshot, and when it was."""
        return self._taken

    @property
    def ready(self) -> bool:
        """Whether the file can be written, as far as is known."""
        return self.journal.broken is None and self.journal.full is None

    @property
    def trouble(self) -> str | None:
        """What is wrong with the file or the disk, or with whoever watches, as long as it is so."""
        wrong = self.journal.broken or self.journal.full
        return self._trouble if wrong is None else str(wrong)

    # -- beginning -----------------------------------------------------------------------------

    def begin(self, charge: Charge) -> None:
        """Make the file."""
        self.charge = charge
        self.journal.begin(self._snapshot(charge, 0, "beginning"))
        self._watched(charge)
        self._taken = self._tried = (0, self.now())
        self.written = small(charge)
        self.answering = charge.answering()

    def resume(self) -> None:
        """Make the learner from the file; whoever watches is told of what it learns again."""
        made = self._made(None, told=True)
        self.journal.ends(*made.end)
        self.journal.hold_complete()
        self._stand(made)
        self._taken = (made.snapshot.seen, made.snapshot.at)
        self._tried = (made.snapshot.seen, self.now())

    def restore(self) -> None:
        """Make the learner again, as it is on the disk."""
        try:
            made = self._made(None)
        except StoreError as worse:
            self.journal.broken = worse
            raise
        self.journal.ends(*made.end)
        self._stand(made)

    def _stand(self, made: _Made) -> None:
        self.charge, self.positions, self.written = made.charge, made.positions, made.written
        self.answering = made.charge.answering()
        self._stale = False

    def _made(self, until: int | None, *, told: bool = False) -> _Made:
        """The learner as it was after a block, or after the last."""
        snapshot = self.journal.before(_LAST if until is None else until)
        path = str(self.journal.path)
        charge = Charge.from_bytes(snapshot.body, path, self._policy.replacements)
        written = small(charge)
        if told:
            self._watched(charge)
        positions = _items(snapshot.positions)
        end = (snapshot.sequence, snapshot.seen, snapshot.digest)
        for entry, digest in self.journal.entries(snapshot, until):
            if entry.kind != "pass":
                block, said = self._learned_again(charge, entry)
                if told:
                    self._tidied(self._heard([(block, said)]))
            if entry.note:
                note = _items(entry.note)
                positions[note["source"]] = note["position"]
            end = (entry.sequence, entry.seen, digest)
        return _Made(charge, positions, snapshot, written, end)

    def _learned_again(self, charge: Charge, entry: Entry) -> tuple[Block, Any]:
        """Learn a block again, in the same way; the block, and what was said of its rows."""
        if entry.kind != "learn":
            raise DamagedError(
                f"{self.where}: {self.journal.path} is not as it was written: the snapshot of its "
                f"rollback, block {entry.sequence:,}, is missing. Restore it from a backup."
            )
        block = Block.from_bytes(entry.body, str(self.journal.path))
        if entry.aside:
            charge.put_aside()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # they were heard
                return block, charge.learn(block)
        except MemoryError:  # no fault of the file, nor of the version
            raise
        except Exception as wrong:
            raise StoreError(
                f"{self.where}: block {entry.sequence:,} of {self.journal.path} was learned once, "
                f"but now it is refused: {wrong} Use the version of onepass that wrote it."
            ) from wrong

    def _watched(self, charge: Charge) -> None:
        if self._policy.watch is not None:
            self.watch = self._policy.watch(charge.answering())

    def _heard(self, told: list[tuple[Block, Any]]) -> list[Any]:
        """Tell the watcher of blocks, which are taken out of the list; what it has returned.

        Its failing is no trouble of the rows.
        """
        left = []
        while told and self.watch is not None:
            block, said = told[0]
            try:
                del told[0]  # just now: an interrupt must have it told neither twice nor never
                left.append(self.watch(block, said))
            except Exception as wrong:  # noqa: BLE001
                self._failed(wrong)
        return left

    def _tidied(self, left: Sequence[Any]) -> None:
        """Do what the watcher has left to be done, where it is anything."""
        for each in left:
            if callable(each):
                try:
                    each()
                except Exception as wrong:  # noqa: BLE001
                    self._failed(wrong)

    def _failed(self, wrong: Exception) -> None:
        self._trouble = f"{self.where}: whoever watches has failed: {wrong}"

    def pass_by(self, source: str, position: str) -> None:
        """Note a source's position, without rows.

        Parameters
        ----------
        source, position : str

        Raises
        ------
        StoreError
            If it cannot be written.
        """
        note = json.dumps({"source": source, "position": position})
        sequence, seen = self.journal.sequence + 1, self.journal.seen
        entry = Entry(sequence, "pass", 0, seen, False, note, b"")  # noqa: FBT003
        self._commit(Group(entries=[entry]))
        self.positions[source] = position
        self.published = (sequence, self.answering)
        self._stale = False

    def _commit(self, group: Group) -> None:
        """Bring it to the disk; whatever interrupts, what is there is what counts."""
        self._stale = True
        try:
            self.journal.commit(group)
        except StoreError:
            self._stale = False
            raise

    def _snapshot(self, charge: Charge, sequence: int, why: str) -> Snapshot:
        seen, digest = self.journal.seen, self.journal.digest  # of now, not of when it is written
        positions = json.dumps(self.positions)
        body = charge.to_bytes(self.where)
        return Snapshot(sequence, seen, self.now(), why, positions, digest, body)


def small(charge: Charge) -> Any:
    """A copy of a learner that is out of its loops, to be looked at; None if it is large.

    Parameters
    ----------
    charge : Charge
    """
    learner = charge.answering()
    return learner if nbytes(learner) <= _LARGEST else None


def _items(text: str) -> dict[str, str]:
    """What JSON says of sources and positions."""
    found: dict[str, str] = json.loads(text)
    return found
