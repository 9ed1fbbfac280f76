"""Writer of a durable learner: one thread learns requests, logs them, then acknowledges them.

The writer takes all requests in its queue as one group. They are deduplicated by keys, learned,
committed to the journal, published and acknowledged, in that order. All other work on the learner
or the file (snapshots, rollback, labels) is a call in the same queue.

Invariants
----------
- Once it is started, only the writer's thread accesses the learner and the journal.
- No request is acknowledged before its rows are on the disk. If a group cannot be committed, all
  its requests fail, and the learner is restored from the disk before it learns anything else.
- The learner changes only by ``ManagedModel.learn``: the same blocks in the same order give the
  same learner, bit for bit.
- Predictions come from a frozen copy that is made after each group and shares the learned arrays:
  they do not wait for rows to be learned, and never use a part of a block.
- Callers only wait. An interrupt ends the waiting, but the request is committed or refused
  regardless; the same idempotency key returns the result.
- A forked process neither writes nor closes the file.
"""

import copy
import json
import os
import time
import warnings
import weakref
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from threading import Thread, current_thread
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from onepass.errors import (
    BusyError,
    CheckpointWarning,
    CorruptStoreError,
    IdempotencyConflictError,
    StoreError,
)
from onepass.service.delayed import LabelledRows, match
from onepass.service.journal import Entry, Group, Journal, PendingRow, Snapshot, StoredResult
from onepass.service.model import ManagedModel
from onepass.service.requests import (
    Block,
    LearnResult,
    Request,
    array_from_bytes,
    array_to_bytes,
    joined,
    runs,
)
from onepass.types import Array
from onepass.validation.arrays import feature_limit

if TYPE_CHECKING:
    from onepass.features.pipeline import Pipeline
    from onepass.learners.estimator import Learner

__all__ = ["Policy", "Watcher", "Writer"]

_T = TypeVar("_T")

Watcher = Callable[[Block, Array], object]
"""Called with each learned block and its prequential predictions.

The writer's thread calls it after the rows are acknowledged.
"""


@dataclass(frozen=True)
class Policy:
    """Options of a durable learner; ``op.durable`` describes them."""

    snapshot_rows: int
    snapshot_seconds: float
    snapshots: int
    key_seconds: float
    replacements: Mapping[str, object]
    clock: Callable[[], float]
    watch: Callable[["Learner | Pipeline"], Watcher] | None
    max_features: int | None = None
    max_pending: int = 1 << 20


_MAX_GROUP = 512  # requests
_MAX_GROUP_BYTES = 1 << 26  # a group ends when it has more
_EXPIRY_INTERVAL = 60.0  # seconds between deletions of old keys and rows
_CHECK_INTERVAL = 1.0  # seconds between checks of the file and the disk, and between idle wake-ups
_TRIM_BLOCKS = 2 * _MAX_GROUP  # blocks deleted at once: more than a group adds
_CLOSE_TIMEOUT = 5.0  # max seconds that `close` takes to delete old blocks
_CLOSED = "was closed. Open it again with op.durable."

_Call = tuple[Callable[[], Any], "Future[Any]"]


@dataclass
class _Batch:
    """A group of requests that is being learned and committed."""

    group: Group = field(default_factory=Group)
    learned: list[tuple[Block, Array]] = field(default_factory=list)
    positions: dict[str, str] = field(default_factory=dict)
    processed: list[Request] = field(default_factory=list)


@dataclass(frozen=True)
class _Restored:
    """A learner restored from the disk."""

    model: ManagedModel
    positions: dict[str, str]
    snapshot: Snapshot
    end: tuple[int, int, bytes]


class Writer:
    """A learner, its journal, and the only thread that writes both.

    Parameters
    ----------
    journal : Journal
    policy : Policy

    Attributes
    ----------
    model : ManagedModel
    published : tuple of int and learner
        The last acknowledged version, and the frozen copy of the learner with its state.
    positions : dict of str to str
        Last position of each source.
    watch : callable or None
        Called with each acknowledged block.
    hook : callable or None
        Called by the writer's thread about once a second, and after each snapshot.
    snapshots : list of Snapshot
        Without their bodies, oldest first.
    last_snapshot : tuple of int and float
        Number of rows learned at the last snapshot, and its time.
    pending : int
        Number of rows that wait for their labels, including those that expired within a minute.
    closed : str
        Why nothing can be written: the writer was closed, or another process holds the file; empty
        otherwise.
    """

    model: ManagedModel
    published: "tuple[int, Learner | Pipeline]"
    _thread: Thread | None = None
    _next_item: "_Call | None" = None

    def __init__(self, journal: Journal, policy: Policy) -> None:
        self.journal, self.where, self.policy = journal, journal.where, policy
        self._began = policy.clock() - time.monotonic()  # later changes of the clock have no effect
        self._items: SimpleQueue[Request | _Call] = SimpleQueue()
        self.closed = ""
        self.positions: dict[str, str] = {}
        self.watch: Watcher | None = None
        self.hook: Callable[[], None] | None = None
        self.snapshots: list[Snapshot] = []
        self.last_snapshot = self._tried = (0, 0.0)  # rows and time of the last attempt
        self.pending = 0
        self._error: str | None = None
        self._stale = False  # the learner may include rows that are not on the disk
        self._expire_at = self._check_at = 0.0
        self._trims = False  # whether the log may have blocks before the oldest snapshot

    def now(self) -> float:
        """Monotonic time, in seconds since 1970."""
        return self._began + time.monotonic()

    @property
    def ready(self) -> bool:
        """Whether the file can be written, as far as is known."""
        return not self.closed and self.journal.broken is None and self.journal.full is None

    @property
    def error(self) -> str | None:
        """The current error of the file, the disk, a watcher or a callback, if there is one."""
        error = self.journal.broken or self.journal.full
        return self._error if error is None else str(error)

    # -- the queue ------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the thread."""
        _ALL.add(self)
        name = f"onepass writer of {self.journal.path.name}"
        self._thread = Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def put(self, item: "Request | _Call") -> None:
        """Put a request or a call into the queue.

        Raises
        ------
        StoreError
            If the writer is closed.
        """
        if self.closed:
            raise StoreError(f"{self.where}: {self.journal.path} {self.closed}")
        self._items.put(item)
        if self.closed:  # by another thread meanwhile
            self._refuse_queued()  # type: ignore[unreachable]

    def call(self, work: Callable[[], _T], *, writes: bool = False) -> _T:
        """Call a function in the writer's thread, and return its result.

        Parameters
        ----------
        work : callable
        writes : bool, default False
            Raise StoreError if nothing can be written.
        """
        self.check_caller()

        def checked() -> _T:
            self.check_ready()
            return work()

        future: Future[_T] = Future()
        self.put((checked if writes else work, future))
        return future.result()

    def check_caller(self) -> None:
        """Check that the caller is not the writer's thread, which would wait for itself.

        Raises
        ------
        StoreError
        """
        if self._thread is current_thread():  # identifiers of threads are reused
            raise StoreError(
                f"{self.where}: {self.journal.path} must not be used by a callback or watcher, "
                "which would wait for itself, got such a call. Use `request`, or another thread."
            )

    def close(self) -> None:
        """Complete all requests, take a snapshot if rows were learned, and close the file."""
        self.check_caller()
        if not self.closed:
            with suppress(StoreError):  # another thread has closed it meanwhile
                self.call(self._close)
        if self._thread is not None:
            self._thread.join()

    def release(self) -> None:
        """Complete all requests, and close the file without a snapshot: it was not closed."""
        if not self.closed and self._thread is not None:
            self._items.put((lambda: setattr(self, "closed", _CLOSED), Future()))
            if self._thread is not current_thread():
                self._thread.join(_CLOSE_TIMEOUT)

    def abandon(self) -> None:
        """Give up the file in a forked process, as its parent holds it."""
        self._items, self._thread, self._next_item = SimpleQueue(), None, None
        if not self.closed:
            self.journal.abandon()
            self.closed = (
                f"is held by process {os.getppid()}, from which this one was forked. Learn there, "
                "or open another file here; `predict` still works, with the state at the fork."
            )

    def _run(self) -> None:
        try:
            while not self.closed:
                self._serve()
        except BaseException as error:
            self._failed("the writer has failed", error)
            raise
        finally:
            self.closed = self.closed or "has failed. Open it again with op.durable."
            self._refuse_queued()
            self.journal.close()

    def _serve(self) -> None:
        """Process the next group of requests, or the next call."""
        item: Request | _Call | None
        item, self._next_item = self._next_item, None
        if item is None:
            try:
                item = self._items.get(timeout=_CHECK_INTERVAL)
            except Empty:
                self.maintain()
                return
        if isinstance(item, Request):
            self.process(self._group(item))
            self.maintain()
        else:
            work, future = item
            try:
                future.set_result(work())
            except BaseException as error:  # noqa: BLE001  raised in the caller's thread
                future.set_exception(error)

    def _group(self, first: Request) -> list[Request]:
        """A request and those directly after it in the queue, up to the next call."""
        group, size = [first], first.size
        while len(group) < _MAX_GROUP and size < _MAX_GROUP_BYTES and not self._items.empty():
            item = self._items.get()
            if not isinstance(item, Request):
                self._next_item = item
                break
            group.append(item)
            size += item.size
        return group

    def _refuse_queued(self) -> None:
        """Refuse requests and calls that were enqueued after the end."""
        error = StoreError(f"{self.where}: {self.journal.path} {self.closed}")
        next_item, self._next_item = self._next_item, None
        items: list[Request | _Call] = [] if next_item is None else [next_item]
        with suppress(Empty):
            while True:
                items.append(self._items.get_nowait())
        for item in items:
            if isinstance(item, Request):
                self._complete([item], error)
            else:
                item[1].set_exception(error)

    def _close(self) -> None:
        """Take a last snapshot, and delete blocks before the oldest one as time permits."""
        self.closed = _CLOSED  # later requests are refused
        self._attempt(self.journal.check_writable)
        self._attempt(lambda: self.snapshot("close"))
        self._attempt(self._trim_all)

    # -- opening and replay ---------------------------------------------------------------------

    def begin(self, model: ManagedModel) -> None:
        """Create the file."""
        self.model = model
        self.journal.begin(self._snapshot(model, 0, "beginning"))
        self._install_watcher(model)
        self.last_snapshot = self._tried = (0, self.now())
        self.snapshots = self.journal.snapshots()
        self.published = (0, model.frozen())

    def resume(self) -> None:
        """Restore the learner from the file, and call the watcher with the replayed blocks."""
        found = self._restored(watched=True)
        self._install(found)
        self.journal.check_complete()
        self.snapshots = self.journal.snapshots()
        self.last_snapshot = (found.snapshot.seen, found.snapshot.at)
        self._tried = (found.snapshot.seen, self.now())
        self._trims = True
        self.pending = self.journal.count_pending(0.0)

    def _restore(self) -> None:
        """Restore the learner from the disk, after a failed commit."""
        try:
            self._install(self._restored())
        except StoreError as error:
            self.journal.broken = error
            raise

    def _install(self, found: _Restored) -> None:
        self.journal.ends(*found.end)
        self.model, self.positions = found.model, found.positions
        self.published = (self.journal.sequence, self.model.frozen())
        self._stale = False

    def _restored(self, until: int | None = None, *, watched: bool = False) -> _Restored:
        """Restore the learner as it was after a block, by default the last."""
        snapshot = self.journal.before(until)
        path = str(self.journal.path)
        model = ManagedModel.from_bytes(snapshot.body, path, self.policy.replacements)
        if watched:
            self._install_watcher(model)
        positions: dict[str, str] = json.loads(snapshot.positions)
        end = (snapshot.sequence, snapshot.seen, snapshot.digest)
        for entry, digest in self.journal.entries(snapshot, until):
            if entry.kind != "pass":
                learned = self._replayed(model, entry)
                if watched:
                    self._call_watcher([learned])
            if entry.note:
                note = json.loads(entry.note)
                positions[note["source"]] = note["position"]
            end = (entry.sequence, entry.seen, digest)
        return _Restored(model, positions, snapshot, end)

    def _replayed(self, model: ManagedModel, entry: Entry) -> tuple[Block, Array]:
        """Replay a logged block; the block and its prequential predictions."""
        if entry.kind != "learn":
            raise CorruptStoreError(
                f"{self.where}: {self.journal.path} is not as it was written: the snapshot of its "
                f"rollback, block {entry.sequence:,}, is missing. Restore it from a backup."
            )
        block = Block.from_bytes(entry.body, str(self.journal.path))
        if entry.reloaded:
            model.write_back()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # they were issued when it was first learned
                return block, model.learn(block)
        except MemoryError:  # neither the file nor the version is at fault
            raise
        except Exception as error:
            raise StoreError(
                f"{self.where}: block {entry.sequence:,} of {self.journal.path} must be one that "
                f"can be replayed, but the learner refuses it: {error} Use the version of onepass "
                "that wrote it."
            ) from error

    # -- one group ------------------------------------------------------------------------------

    def process(self, requests: Sequence[Request]) -> None:
        """Learn and commit requests, or set the error of each; raises nothing."""
        while requests:
            batch = _Batch()
            try:
                self.check_ready()
                later = self._fill(batch, requests)
                if batch.group.entries or batch.group.pending_rows:
                    self.journal.commit(batch.group)
            except BaseException as error:  # noqa: BLE001  each request gets it
                self._complete(requests, error)
                return
            try:
                self._publish(batch)
            except BaseException as error:  # noqa: BLE001  the rows are on the disk
                self._stale = True
                self._failed("the learner could not be published", error)
            self._complete(batch.processed)
            self.journal.reached("acknowledged")
            self._call_watcher(batch.learned)
            requests = later

    def check_ready(self) -> None:
        """Check that the file can be written; restore the learner if it is ahead of the disk.

        Raises
        ------
        StoreError
        """
        self.journal.check_writable()
        if self._stale:
            self.journal.check_room()
            self._restore()

    def _publish(self, batch: _Batch) -> None:
        """Publish the committed state to readers."""
        self.pending += len(batch.group.pending_rows) - len(batch.group.labelled)
        if batch.positions:
            self.positions = self.positions | batch.positions
        if batch.learned:
            self.published = (self.journal.sequence, self.model.frozen())
        self._stale = False
        self.journal.reached("published")

    def _complete(self, requests: Sequence[Request], error: BaseException | None = None) -> None:
        """Complete requests; with an error if their rows are not on the disk."""
        for request in requests:
            if error is not None:  # a copy each, as each is raised in another thread
                request.learn_result, request.error = None, _copied(error)
            request.completed = True
        for request in requests:
            request.gate.release()
            done, request.done = request.done, None  # it may refer to the request
            if done is not None:
                try:
                    done(request)
                except BaseException as failure:  # noqa: BLE001  the others are called too
                    self._failed("a callback has failed", failure)

    def _failed(self, what: str, error: BaseException) -> None:
        self._error = f"{self.where}: {what}: {error}"

    def _fill(self, batch: _Batch, requests: Sequence[Request]) -> list[Request]:
        """Learn new requests; return those to process later, as an earlier one has their key."""
        keys = [request.keys[0][0] for request in requests if request.keys]
        before = {found.key: found for found in self.journal.results(keys)} if keys else {}
        here: set[str] = set()
        labelled: list[Request] = []
        later: list[Request] = []
        for request in requests:
            names = [name for name, _ in request.keys]
            found = before.get(names[0]) if names else None
            if found is None and not here.isdisjoint(names):
                later.append(request)
                continue
            batch.processed.append(request)
            if found is not None:
                self._repeat(request, found)
            elif request.block.y is None:
                self._store_pending(batch, request)
            else:
                labelled.append(request)
                here.update(names)
        for run in runs(labelled):
            self._stale = True
            self._learn(batch, run)
        return later

    def _repeat(self, request: Request, found: StoredResult) -> None:
        """Return the stored result of a request whose key was used before."""
        name, digest = request.keys[0]
        if found.digest not in {digest, request.former, request.block.former_digest()}:
            request.error = IdempotencyConflictError(
                f"{self.where}: the key {name[1:]!r} must come with the rows of its first request "
                f"(version {found.sequence:,}), got other rows. Give each request a key of its "
                "own."
            )
            return
        request.learn_result = LearnResult(
            found.sequence, array_from_bytes(found.predictions), repeated=True
        )

    def _store_pending(self, batch: _Batch, request: Request) -> None:
        """Store rows until their labels arrive, or refuse them if too many would wait."""
        max_pending, count = self.policy.max_pending, len(request.ids)
        pending_rows = batch.group.pending_rows
        if self.pending + len(pending_rows) + count > max_pending:  # recount, without expired rows
            self.pending = self.journal.count_pending(self.now())
        if (waiting := self.pending + len(pending_rows)) + count > max_pending:
            request.error = BusyError(
                f"{self.where}: at most {max_pending:,} rows may wait for their labels, got "
                f"{count:,} beside {waiting:,}. Send labels, or give fewer seconds.",
                60.0,
            )
            return
        for i, name in enumerate(request.ids):
            pending_rows.append(
                PendingRow(name, request.until, request.block[i : i + 1].to_bytes())
            )
        request.learn_result = LearnResult(self.journal.sequence, np.empty(0))

    def _learn(self, batch: _Batch, run: list[Request]) -> None:
        """Learn a run of requests as one block, or one by one if the block is refused."""
        group, reloaded, alone = batch.group, self.model.reloaded, len(run) == 1
        try:
            block = run[0].block if alone else joined([request.block for request in run])
            with feature_limit(self.policy.max_features):
                predicted = self.model.learn(block)
        except Exception as error:  # noqa: BLE001  set as the request's error
            if alone:
                run[0].error = error
                return
            for request in run:
                self._learn(batch, [request])
            return
        last = group.entries[-1] if group.entries else self.journal
        note, source, position = "", run[0].source, str(run[0].position)
        if source is not None:
            note = _note(source, position)
            batch.positions[source] = position
        body = (run[0].body if alone else b"") or block.to_bytes()
        n = len(block.X)
        entry = Entry(last.sequence + 1, "learn", n, last.seen + n, reloaded, note, body)
        group.entries.append(entry)
        batch.learned.append((block, predicted))
        first, now = 0, 0.0
        for request in run:
            part = predicted[first : first + len(request.block.X)]
            first += len(part)
            request.learn_result = LearnResult(entry.sequence, part)
            if request.keys:
                now = now or self.now()  # one time for all, so they are deleted together
                group.labelled += request.ids  # pending rows: each has a key
                each = [part] if len(request.keys) == 1 else np.split(part, len(part))
                group.results += [
                    StoredResult(name, digest, entry.sequence, array_to_bytes(one), now)
                    for (name, digest), one in zip(request.keys, each, strict=False)
                ]

    # -- watcher --------------------------------------------------------------------------------

    def _install_watcher(self, model: ManagedModel) -> None:
        if self.policy.watch is not None:
            self.watch = self.policy.watch(model.frozen())

    def _call_watcher(self, learned: list[tuple[Block, Array]]) -> None:
        """Call the watcher with blocks; if it fails, set ``error``, as the rows are learned."""
        if self.watch is not None:
            for block, predicted in learned:
                try:
                    self.watch(block, predicted)
                except Exception as error:  # noqa: BLE001
                    self._failed("the watcher has failed", error)

    # -- calls ----------------------------------------------------------------------------------

    def learn_labels(self, ids: Sequence[str], labels: Block, where: str) -> LearnResult:
        """Learn pending rows with their labels."""
        self.check_ready()
        found: LabelledRows = match(self.journal, self.now(), ids, labels, where)
        if not found.rows:
            return found.learn_result(ids, None)
        request = found.request(where)
        self.process([request])
        self.maintain()
        return found.learn_result(ids, request.result())

    def copied(self) -> "Learner | Pipeline":
        """A copy of the acknowledged learner; restored from the disk if this one is ahead of it.

        Raises
        ------
        StoreError
            If the file cannot be read, or a write has failed with unknown outcome.
        """
        if not self._stale:
            return self.model.copied()
        self.journal.check_sound()
        return self._restored().model.copied()

    def commit_position(self, source: str, position: str) -> None:
        """Commit a source's position, without rows."""
        sequence, seen = self.journal.sequence + 1, self.journal.seen
        entry = Entry(sequence, "pass", 0, seen, False, _note(source, position), b"")  # noqa: FBT003
        self.journal.commit(Group(entries=[entry]))
        self.positions = {**self.positions, source: position}
        self.published = (sequence, self.published[1])

    def rollback(self, to: int) -> int:
        """Restore the state after a block; the log still has the blocks after it."""
        found = self._restored(to)
        sequence, seen = self.journal.sequence + 1, self.journal.seen
        entry = Entry(sequence, "rollback", 0, seen, True, json.dumps({"to": to}), b"")  # noqa: FBT003
        snapshot = self._snapshot(found.model, sequence, f"rollback to {to}")
        published = (sequence, found.model.frozen())
        self.journal.commit(Group(entries=[entry], snapshot=snapshot))
        self.model, self.published = found.model, published
        self.last_snapshot = self._tried = (seen, self.now())
        self._attempt(self._prune)
        return sequence

    def snapshot(self, why: str) -> int:
        """Take a snapshot, unless this version has one, and prune old ones; returns the version.

        Raises
        ------
        StoreError, CheckpointError
            If it cannot be written.
        """
        sequence = self.journal.sequence
        if self.snapshots[-1].sequence < sequence:
            taken = self._snapshot(self.model, sequence, why)
            self.journal.commit(Group(snapshot=taken))
        self.last_snapshot = self._tried = (self.journal.seen, self.now())
        self._error = None
        self._attempt(self._prune)
        self._call_hook()
        return sequence

    def _snapshot(self, model: ManagedModel, sequence: int, why: str) -> Snapshot:
        positions, body = json.dumps(self.positions), model.to_bytes(self.where)
        seen, digest = self.journal.seen, self.journal.digest
        return Snapshot(sequence, seen, self.now(), why, positions, digest, body)

    # -- maintenance ----------------------------------------------------------------------------

    def maintain(self) -> None:
        """Take a snapshot if one is due, and delete a bounded amount of old data."""
        now, (seen, at) = self.now(), self._tried
        if now >= self._check_at:
            self._check_at = now + _CHECK_INTERVAL
            self._check_files()
        rows = self.journal.seen - seen
        if rows >= self.policy.snapshot_rows:
            self._attempt(lambda: self._due("rows"))
        elif rows and now - at >= self.policy.snapshot_seconds:
            self._attempt(lambda: self._due("time"))
        if now >= self._expire_at:
            self._attempt(lambda: self._delete_expired(now))
        if self._trims:
            self._attempt(self._trim)

    def _check_files(self) -> None:
        """Check the file, its log and the disk; restore the learner when there is room again."""
        self._attempt(lambda: self.journal.check_writable(log=True))
        if self.journal.full is not None:
            with suppress(Exception):  # each request raises it until there is room
                self.check_ready()
                self.journal.check_room()
        self._call_hook()

    def _call_hook(self) -> None:
        if self.hook is not None:
            try:
                self.hook()
            except Exception as error:  # noqa: BLE001
                self._failed("maintenance has failed", error)

    def _attempt(self, work: Callable[[], object]) -> None:
        """Do maintenance that may fail: all rows are in the log regardless."""
        if self._stale or self.journal.broken is not None:
            return
        try:
            work()
        except Exception as error:  # noqa: BLE001
            self._error = f"{error} All rows are in the log, which is still written."
            with suppress(CheckpointWarning):  # if warnings are errors
                warnings.warn(self._error, CheckpointWarning, stacklevel=2)

    def _due(self, why: str) -> None:
        """Take a snapshot; if that fails, retry when the next one is due."""
        self._tried = (self.journal.seen, self.now())
        self.snapshot(why)

    def _prune(self) -> None:
        try:
            self.journal.prune(self.policy.snapshots)
        finally:
            self.snapshots = self.journal.snapshots()
        self._trims = True

    def _trim(self) -> None:
        self._trims = False  # if it fails, it is retried after the next snapshot
        self._trims = self.journal.trim(_TRIM_BLOCKS)

    def _trim_all(self) -> None:
        until = time.monotonic() + _CLOSE_TIMEOUT  # the rest is deleted after the next start
        while self.journal.trim(_TRIM_BLOCKS) and time.monotonic() < until:
            pass

    def _delete_expired(self, now: float) -> None:
        self._expire_at = now + _EXPIRY_INTERVAL  # also if it fails
        if self.journal.delete_expired(keys_before=now - self.policy.key_seconds, now=now):
            self._expire_at = now
        self.pending = self.journal.count_pending(0.0)


def _note(source: str, position: str) -> str:
    return json.dumps({"source": source, "position": position})


def _copied(error: BaseException) -> BaseException:
    """A copy of an exception, or itself if its class cannot be copied."""
    try:
        return copy.copy(error)
    except Exception:  # noqa: BLE001
        return error


_ALL: weakref.WeakSet[Writer] = weakref.WeakSet()


def _forked() -> None:
    for each in list(_ALL):
        each.abandon()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
