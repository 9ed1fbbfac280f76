"""The writer of a durable learner: learns requests, logs them, and only then acknowledges them.

A group of requests is deduplicated by keys, learned, committed to the journal, published and
acknowledged, in that order. Snapshots, rollback and retention are here too.

Invariants
----------
- No request is acknowledged before its rows are on the disk. If a group cannot be committed, all
  its requests fail, and the learner is restored from the disk before it learns anything else. If an
  interrupt comes in between, the journal tells whether the group was committed.
- The learner changes only by ``Charge.learn``: the same blocks in the same order make the same
  learner, bit for bit.
- Predictions come from a copy that is made after each group, shares the learned arrays and never
  changes: they do not wait for rows to be learned, and never see half a block.
"""

import copy
import itertools
import json
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from sklearn.base import clone

from onepass import validation
from onepass.errors import (
    BusyError,
    CheckpointError,
    CheckpointWarning,
    DamagedError,
    KeyReusedError,
    NotFittedError,
    ParameterError,
    StoreError,
    TypeMismatchError,
)
from onepass.serialization import archive
from onepass.serialization.codec import state_dict
from onepass.serialization.models import given_back, packed
from onepass.serialization.state import nbytes
from onepass.service.journal import Answer, Asked, Entry, Group, Journal, Snapshot
from onepass.service.requests import (
    Block,
    Receipt,
    Request,
    joined,
    read_rows,
    runs,
    said_from_bytes,
    said_to_bytes,
)
from onepass.types import Array
from onepass.validation.arrays import bounded
from onepass.validation.table import Table, TableLike

if TYPE_CHECKING:
    from onepass.features.pipeline import Pipeline
    from onepass.learners.estimator import Learner

__all__ = ["Charge", "Keeper", "Policy", "Watcher", "said_of"]


Watcher = Callable[[Block, Array], Callable[[], object] | None]
"""Called with each block that was learned, and what was said of its rows before.

It may return a function for what may take longer. That is called after the rows are settled, so
that other threads go on, though a ``learn`` in this thread returns only then; it is left out if an
interrupt comes in between. Of blocks that are learned again on opening it is called at once.
"""


@dataclass(frozen=True)
class Policy:
    """How a learner is kept; ``op.durable`` tells what each of these is."""

    snapshot_rows: int
    snapshot_seconds: float
    keep: int
    key_seconds: float
    replacements: Mapping[str, object]
    clock: Callable[[], float]
    watch: Callable[["Learner | Pipeline"], Watcher] | None
    most_features: int | None = None
    most_pending: int = 1 << 20


class Charge:
    """A learner of onepass, or a Pipeline.

    Parameters
    ----------
    learner : learner or Pipeline
        It is the charge's own from here on.

    Attributes
    ----------
    aside : bool
        Whether the learner is out of its loops, since it last learned or was made.
    """

    def __init__(self, learner: "Learner | Pipeline") -> None:
        self.learner = learner
        self.aside = True

    @classmethod
    def of(cls, learner: "Learner | Pipeline", where: str) -> "Charge":
        """A copy of a user's learner.

        Raises
        ------
        TypeMismatchError
            If it is none that can be saved and learns from answers.
        """
        if getattr(type(learner), "saves_itself", False) is True:
            raise TypeMismatchError(
                f"{where}: `model` must be a learner of tables or a Pipeline, got "
                f"op.nn.{type(learner).__name__}, whose module no file can hold. Freeze the "
                "network as a feature in front of a learner: op.features.Network."
            )
        able = all(hasattr(learner, verb) for verb in ("test_then_train", "answering"))
        if isinstance(learner, type) or not able:
            name = learner.__name__ if isinstance(learner, type) else type(learner).__name__
            raise TypeMismatchError(
                f"{where}: `model` must be a learner of onepass or a Pipeline, got {name}. Give "
                "an object such as op.RLSRegressor()."
            )
        return cls(copy.deepcopy(learner))

    @classmethod
    def from_bytes(cls, data: bytes, where: str, replacements: Mapping[str, object]) -> "Charge":
        """What ``to_bytes`` gave."""
        return cls(given_back(archive.unpacked(data, where), where, replacements))

    def to_bytes(self, where: str) -> bytes:
        """All of it, as ``op.save`` would write it."""
        self.put_aside()
        return packed(self.learner, where)

    def put_aside(self) -> None:
        """Take the learner out of its loops: what goes on from here is what was written down."""
        for part in (self.learner, getattr(self.learner, "learner_", None)):
            if part is not None:
                vars(part)
        self.aside = True

    def copied(self) -> "Learner | Pipeline":
        """A copy for a user."""
        self.put_aside()
        return copy.deepcopy(self.learner)

    def learn(self, block: Block) -> Array:
        """Learn a block, or nothing of it; what was said of each row just before."""
        try:
            said: Array = self.learner.test_then_train(block.X, block.y, **block.named())
        except BaseException:
            self.put_aside()  # some loops have ended, to see what is wrong with the rows
            raise
        self.aside = False
        return said

    def answering(self) -> "Learner | Pipeline":
        """A copy that answers."""
        answering: Learner | Pipeline = self.learner.answering()
        return answering

    def hold_like(self, other: "Learner | Pipeline", where: str) -> None:
        """Refuse a learner of another class, or with other parameters.

        Raises
        ------
        ParameterError
        """
        mine, theirs = (_specified(each, where) for each in (self.learner, other))
        if mine != theirs:
            raise ParameterError(
                f"{where}: `model` must be as it was when the file was made, "
                f"{clone(self.learner)!r}, got {clone(other)!r}. Leave it out to go on with what "
                "is there, or begin another one, of another name."
            )


def said_of(learner: "Learner | Pipeline", X: TableLike) -> Array:
    """Answers for rows; of a learner that has learned nothing, those that it begins with.

    Parameters
    ----------
    learner : learner or Pipeline
    X : array-like of shape (n, d), frame, Table, or sequence of dicts
    """
    try:
        return np.asarray(learner.predict(X))
    except NotFittedError:
        return _at_first(learner, read_rows(X, None, where=f"{type(learner).__name__}.predict").X)


def _at_first(learner: "Learner | Pipeline", X: Array | Table) -> Array:
    """What is said before anything was learned: of all rows the same, but by initial weights."""
    each = X.rows() if isinstance(X, Table) else X
    if getattr(getattr(learner, "learner", learner), "initial_coef", None) is not None:
        return np.array([learner.predict_one(row) for row in each])
    if not isinstance(X, Table) and not hasattr(learner, "learner"):
        validation.matrix(X, f"{type(learner).__name__}.predict")
    said = np.array([learner.predict_one(row) for row in itertools.islice(each, 1)])
    return said.repeat(len(X), axis=0)


def _specified(learner: "Learner | Pipeline", where: str) -> bytes:
    """The class and the parameters of a learner, whatever it learned."""
    return archive.packed(state_dict(clone(learner), where), where)


_SWEEP = 60.0  # seconds after which what is too old is let go again
_AGAIN = 1.0  # seconds after which the file and the disk are looked at again
_FEW, _MANY = 64, 1024  # blocks that are let go at once
_PATIENCE = 5.0  # seconds that whoever closes waits for old blocks to go
_LAST = 1 << 62  # beyond every block
_LARGEST = 1 << 22  # bytes of what is held to be looked at


@dataclass(frozen=True)
class _Made:
    """What was made from the disk."""

    charge: Charge
    positions: dict[str, str]
    snapshot: Snapshot
    written: "Learner | Pipeline | None"
    end: tuple[int, int, bytes]


def _small(charge: Charge) -> "Learner | Pipeline | None":
    """A copy of a learner that is out of its loops, for inspection; None if it is large."""
    learner = charge.answering()
    return learner if nbytes(learner) <= _LARGEST else None


def _items(text: str) -> dict[str, str]:
    """What JSON says of sources and positions."""
    found: dict[str, str] = json.loads(text)
    return found


class _Flight:
    """A group on its way to the disk."""

    __slots__ = ("group", "learned", "positions", "requests")

    def __init__(self, requests: Sequence[Request]) -> None:
        self.requests, self.group = requests, Group()
        self.learned: list[tuple[Block, Array]] = []
        self.positions: dict[str, str] = {}


class Keeper:
    """A learner and its journal: the only writer of both; for one thread at a time.

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
        The learner of the last snapshot, with its memory, for inspection; None if it is large.
    watch : callable or None
        Called with each block that is acknowledged.
    last_snapshot : tuple of int and float
        How many rows had been learned at the last snapshot, and when it was.
    at_it : bool
        Whether something is begun and not yet done, as set by whoever has the turn.
    """

    charge: Charge
    published: "tuple[int, Learner | Pipeline]"
    at_it = False
    _pending = 1 << 62
    """An upper bound of the rows that wait for their labels: labelled ones may still be counted."""
    _flight: _Flight | None = None
    _certain: tuple[Sequence[Request], Exception | None] = ((), None)
    """Of which requests the fate is certain, and not told yet; and why, if they are refused."""

    def __init__(self, journal: Journal, policy: Policy) -> None:
        self.journal, self.where = journal, journal.where
        self.policy = policy
        self._began = policy.clock() - time.monotonic()  # a clock that is set anew changes nothing
        self.positions: dict[str, str] = {}
        self.written: Learner | Pipeline | None = None
        self.watch: Watcher | None = None
        self._trouble: str | None = None
        self._stale = False  # the learner has learned what may not be on the disk
        self.last_snapshot = self._tried = (0, 0.0)  # rows and when: taken, or at least tried
        self._sweep_at = self._look_at = 0.0
        self._trims = False  # whether the log may hold blocks before all snapshots
        self._trimmed = 0  # the version when some were let go

    @property
    def answering(self) -> "Learner | Pipeline":
        """The learner as it was acknowledged last."""
        return self.published[1]

    @answering.setter
    def answering(self, learner: "Learner | Pipeline") -> None:
        self.published = (self.journal.sequence, learner)

    def now(self) -> float:
        """Seconds since 1970, which never go back."""
        return self._began + time.monotonic()

    @property
    def ready(self) -> bool:
        """Whether the file can be written, as far as is known."""
        return self.journal.broken is None and self.journal.full is None

    @property
    def trouble(self) -> str | None:
        """What is wrong with the file or the disk, or with whoever watches, as long as it is so."""
        wrong = self.journal.broken or self.journal.full
        return self._trouble if wrong is None else str(wrong)

    @property
    def left(self) -> bool:
        """Whether an interrupt has left a group of which it was not told whether it is kept."""
        return self._flight is not None and not self.at_it

    # -- opening and replay ---------------------------------------------------------------------

    def begin(self, charge: Charge) -> None:
        """Make the file."""
        self.charge = charge
        self.journal.begin(self._snapshot(charge, 0, "beginning"))
        self._watched(charge)
        self.last_snapshot = self._tried = (0, self.now())
        self.written = _small(charge)
        self.answering = charge.answering()

    def resume(self) -> None:
        """Make the learner from the file; whoever watches is told of what it learns again."""
        made = self._made(None, told=True)
        self.journal.ends(*made.end)
        self.journal.hold_complete()
        self._stand(made)
        self.last_snapshot = (made.snapshot.seen, made.snapshot.at)
        self._tried = (made.snapshot.seen, self.now())
        self._trims, self._trimmed = True, self.journal.sequence

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
        charge = Charge.from_bytes(snapshot.body, path, self.policy.replacements)
        written = _small(charge)
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

    def _learned_again(self, charge: Charge, entry: Entry) -> tuple[Block, Array]:
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

    # -- requests -------------------------------------------------------------------------------

    def take(self, requests: Sequence[Request]) -> None:
        """Decide on requests: learn and write down, or refuse each by itself.

        What is wrong is noted in the requests; only an interrupt is raised here.

        Parameters
        ----------
        requests : sequence of Request
        """
        while requests:
            try:
                self.hold_ready()
            except Exception as wrong:  # noqa: BLE001  each is told
                self.refuse(requests, wrong)
            requests = [each for each in requests if not each.settled]
            if requests:
                self._decide(requests)
                requests = [each for each in requests if not each.settled]

    def hold_ready(self) -> None:
        """Be as on the disk; refuse where it cannot be written.

        Raises
        ------
        StoreError
        """
        if self._certain[0] or self._flight is not None:
            self.land()
        self.journal.hold_whole()
        if self._stale:
            self.journal.hold_room()
            self.restore()

    def land(self) -> None:
        """Tell what became of a group, if it was interrupted, and so was what follows that."""
        if self._certain[0]:
            self._tell()
        if self._flight is not None:
            self._land(self._flight, None)

    def mend(self) -> None:
        """Bring what was interrupted to its end, as far as the file can be read and written."""
        self.land()
        if self._stale and self.ready:
            with suppress(StoreError):  # it is told until it can
                self.journal.hold_whole()
                self.restore()

    def refuse(self, requests: Sequence[Request], wrong: Exception) -> None:
        """Settle requests of which nothing was kept.

        Parameters
        ----------
        requests : sequence of Request
        wrong : Exception
            What each is told.
        """
        self._tell()  # what is left, before it is forgotten
        self._certain = (requests, wrong)
        self._tell()

    def copied(self) -> "Learner | Pipeline":
        """A copy of the learner as it was acknowledged; where it is not here, it is read.

        Raises
        ------
        StoreError
            If it cannot be read, or nobody knows what was acknowledged.
        """
        if not self._stale:
            return self.charge.copied()
        self.journal.hold_sound()
        return self._made(None).charge.copied()

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

    # -- one group ------------------------------------------------------------------------------

    def _decide(self, requests: Sequence[Request]) -> None:
        self._flight = flight = _Flight(requests)
        try:
            self._fill(flight)
            if flight.group:
                self.journal.commit(flight.group)
        except StoreError as wrong:
            self._settle(requests, wrong)
        except BaseException as wrong:
            self._land(flight, wrong)
            if not isinstance(wrong, Exception):
                raise
        else:
            self._publish(flight)

    def _land(self, flight: _Flight, wrong: BaseException | None) -> None:
        """Ask the disk what became of a group that was interrupted."""
        try:
            there = self.journal.holds(flight.group)
        except StoreError as worse:
            self._settle(flight.requests, worse)
            return
        if there:  # then all of it was learned
            self._publish(flight)
        elif isinstance(wrong, Exception):
            self._settle(flight.requests, wrong)
        else:  # who was interrupted waits no longer; the others still do
            for request in flight.requests:
                if not request.settled:
                    request.receipt = request.error = None
            self._flight = None

    def _publish(self, flight: _Flight) -> None:
        """Let it be seen."""
        self.positions.update(flight.positions)
        if flight.learned:
            self.published = (self.journal.sequence, self.charge.answering())
        self._stale = False
        self.journal.reached("published")
        left = self._heard(flight.learned)
        self._settle([each for each in flight.requests if each.receipt or each.error])
        self.journal.reached("acknowledged")
        self._tidied(left)

    def _settle(self, requests: Sequence[Request], wrong: Exception | None = None) -> None:
        """Settle what was in flight; from the first line on nothing makes it uncertain again."""
        self._certain = (requests, wrong)
        self._flight = None
        self._tell()

    def _tell(self) -> None:
        """Note what is certain, and tell it; if that is interrupted, the rest is told later."""
        requests, wrong = self._certain
        for request in requests:
            if not request.settled:
                if wrong is not None:
                    request.receipt, request.error = None, copy.copy(wrong)
                request.settled = True
        for request in requests:
            if request.gate is not None:
                request.wake()
            if request.done is not None:
                self._call(request)
        if self._certain[0] is requests:  # not what was begun by whoever was told
            self._certain = ((), None)

    def _call(self, request: Request) -> None:
        """Tell whoever does not wait, once; he may learn meanwhile, for this group is done."""
        self.at_it = False
        try:
            done, request.done = request.done, None
            done(request)  # type: ignore[misc]
        except Exception as wrong:  # noqa: BLE001  the others are to be told too
            self._trouble = f"{self.where}: whoever asked could not be told: {wrong}"
        finally:
            self.at_it = True

    def _commit(self, group: Group) -> None:
        """Bring it to the disk; whatever interrupts, what is there is what counts."""
        self._stale = True
        try:
            self.journal.commit(group)
        except StoreError:
            self._stale = False
            raise

    # -- what is in a group ---------------------------------------------------------------------

    def _fill(self, flight: _Flight) -> None:
        """Learn what is new."""
        answered: list[Request] = []
        for request in self._fresh(flight.requests):
            if request.block.y is not None:
                answered.append(request)
                continue
            request.error = self._too_many(len(request.ids), flight.group)
            if request.error is not None:
                continue
            flight.group.asked += [
                Asked(each, request.until, request.block[i : i + 1].to_bytes())
                for i, each in enumerate(request.ids)
            ]
            request.receipt = Receipt(self.journal.sequence, np.empty(0))
        for run in runs(answered):
            self._stale = True
            self._learn(run, flight)

    def _too_many(self, rows: int, group: Group) -> BusyError | None:
        """The error if too many rows would wait for their labels, else None."""
        most = self.policy.most_pending
        if self._pending + rows > most:  # count anew: some may have been labelled
            self._pending = self.journal.waiting(self.now()) + len(group.asked)
        if self._pending + rows > most:
            return BusyError(
                f"{self.where}: at most {most:,} rows may wait for their labels, "
                f"{self._pending:,} do, got {rows:,} more. Send labels, or give fewer seconds.",
                60.0,
            )
        self._pending += rows
        return None

    def _fresh(self, requests: Sequence[Request]) -> Sequence[Request]:
        """Those that were not decided on before."""
        first = [request.keys[0][0] for request in requests if request.keys]
        if not first:
            return requests
        fresh: list[Request] = []
        here: set[str] = set()
        there = self.journal.known(first)
        for request in requests:
            names = [name for name, _ in request.keys]
            try:
                known = self.journal.answer(names[0]) if there.intersection(names[:1]) else None
            except StoreError as wrong:
                request.error = wrong
                continue
            if known is not None:
                self._again(request, known)
            elif here.isdisjoint(names):  # of two at once the second is decided on afterwards
                fresh.append(request)
                here.update(names)
        return fresh

    def _again(self, request: Request, known: Answer) -> None:
        name, digest = request.keys[0]
        former = (request.former, request.block.former_digest())
        if known.digest != digest and known.digest not in former:
            request.error = KeyReusedError(
                f"{self.where}: the key {name[1:]!r} must come with the request that it came with "
                f"first (version {known.sequence:,}), got other rows. Give each request a key of "
                "its own."
            )
            return
        request.receipt = Receipt(known.sequence, said_from_bytes(known.said), again=True)

    def _learn(self, run: list[Request], flight: _Flight) -> None:
        """Learn a run as one block, or each by itself if it is refused."""
        aside, alone = self.charge.aside, len(run) == 1
        try:
            block = run[0].block if alone else joined([request.block for request in run])
            with bounded(self.policy.most_features):
                said = self.charge.learn(block)
        except Exception as wrong:  # noqa: BLE001  whoever asked is told
            if alone:
                run[0].error = wrong
                return
            for request in run:
                self._learn([request], flight)
            return
        last = flight.group.entries[-1] if flight.group.entries else self.journal
        note = ""
        if run[0].source is not None:
            note = json.dumps({"source": run[0].source, "position": run[0].position})
            flight.positions[run[0].source] = str(run[0].position)
        body = (run[0].body if alone else b"") or block.to_bytes()
        n = len(block.X)
        entry = Entry(last.sequence + 1, "learn", n, last.seen + n, aside, note, body)
        flight.group.entries.append(entry)
        flight.learned.append((block, said))
        self._note(run, said, entry.sequence, flight.group)

    def _note(self, run: list[Request], said: Array, sequence: int, group: Group) -> None:
        """Note in the requests, and for their keys, what was said of their rows."""
        first, now = 0, None
        for request in run:
            part = said[first : first + len(request.block.X)]
            first += len(part)
            request.receipt = Receipt(sequence, part)
            if not request.keys:
                continue
            now = self.now() if now is None else now  # what is let go goes together
            group.answered += request.ids  # of rows that were asked: each has a key
            each = [part] if len(request.keys) == 1 else [part[i : i + 1] for i in range(len(part))]
            group.answers += [
                Answer(name, digest, sequence, said_to_bytes(one), now)
                for (name, digest), one in zip(request.keys, each, strict=False)
            ]

    # -- watcher --------------------------------------------------------------------------------

    def _watched(self, charge: Charge) -> None:
        if self.policy.watch is not None:
            self.watch = self.policy.watch(charge.answering())

    def _heard(self, told: list[tuple[Block, Array]]) -> list[Callable[[], object] | None]:
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

    def _tidied(self, left: Sequence[Callable[[], object] | None]) -> None:
        """Do what the watcher has left to be done, where it is anything."""
        for each in left:
            if callable(each):
                try:
                    each()
                except Exception as wrong:  # noqa: BLE001
                    self._failed(wrong)

    def _failed(self, wrong: Exception) -> None:
        self._trouble = f"{self.where}: whoever watches has failed: {wrong}"

    # -- snapshots, rollback and retention ------------------------------------------------------

    def tend(self) -> None:
        """Take a snapshot if it is time, and let go some of what is too old."""
        now, (seen, at) = self.now(), self._tried
        if now >= self._look_at:
            self._look_at = now + _AGAIN
            self._look()
        rows = self.journal.seen - seen
        if rows >= self.policy.snapshot_rows:
            self._try(lambda: self._due("rows"))
        elif rows and now - at >= self.policy.snapshot_seconds:
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
            self.written = _small(self.charge)
        self.last_snapshot = self._tried = (self.journal.seen, self.now())
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
        self.last_snapshot = self._tried = (seen, self.now())
        self.written = _small(made.charge)
        self.answering = made.charge.answering()
        self._stale = False
        self._try(self._prune)

    def _snapshot(self, charge: Charge, sequence: int, why: str) -> Snapshot:
        seen, digest = self.journal.seen, self.journal.digest  # of now, not of when it is written
        positions = json.dumps(self.positions)
        body = charge.to_bytes(self.where)
        return Snapshot(sequence, seen, self.now(), why, positions, digest, body)

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
        self.journal.prune(self.policy.keep)
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
        if self.journal.sweep(keys_before=now - self.policy.key_seconds, now=now):
            self._sweep_at = now
