"""Writer of a durable learner: one thread learns requests, logs them, then acknowledges them.

The writer removes all requests from its queue as one group. The requests are deduplicated by keys,
learned, committed to the journal, published and acknowledged, in this order. All other work on the
learner or the file (snapshots, rollback, labels) is done by calls in the same queue.

Invariants
----------
- After the start, only the writer's thread accesses the learner and the journal.
- No request is acknowledged before its rows are on the disk. If a group cannot be committed, all
  its requests fail, and the learner is restored from the disk before it learns further rows.
- The learner changes only by ``learn_block``: the same blocks in the same order result in the same
  learner, bit for bit.
- Predictions use a frozen copy that is created after each group and shares the learned arrays:
  they do not wait for rows to be learned, and never use a part of a block.
- Callers only wait. An interrupt ends the waiting, but the request is still committed or rejected;
  a request with the same idempotency key returns the result.
- A forked process neither writes nor closes the file.
"""

from __future__ import annotations

import copy
import json
import os
import secrets
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

from onepass import validation
from onepass.errors import (
    BusyError,
    CheckpointWarning,
    CorruptStoreError,
    IdempotencyConflictError,
    ParameterError,
    StoreError,
    calling,
)
from onepass.serialization import archive
from onepass.serialization.models import dumps, from_contents
from onepass.service.delayed import LabelledRows, match, repeated_result
from onepass.service.journal import Entry, Group, Journal, PendingRow, Snapshot, StoredResult
from onepass.service.model import learn_block, predict_rows
from onepass.service.requests import (
    LearnResult,
    Request,
    check_size,
    check_text,
    check_text_in,
    decode_rows,
    encode_rows,
    is_plain,
    read_rows,
    rows_digest,
    runs,
)
from onepass.types import Array
from onepass.validation.arrays import feature_limit
from onepass.validation.rows import Rows, concatenate_rows
from onepass.validation.table import TableLike

if TYPE_CHECKING:
    from onepass.features.pipeline import Pipeline
    from onepass.learners.estimator import Learner

_T = TypeVar("_T")

Watcher = Callable[[Rows, Array], object]
"""Function that the writer's thread calls after a block is acknowledged.

The arguments are the block and its prequential predictions.
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
    watch: Callable[[Learner | Pipeline], Watcher] | None
    max_features: int | None = None
    max_pending: int = 1 << 20


DAY = 86400.0  # seconds
_MAX_GROUP = 512  # requests
_MAX_GROUP_BYTES = 1 << 26  # size at which a group is complete
_EXPIRY_INTERVAL = 60.0  # seconds between deletions of old keys and expired rows
_CHECK_INTERVAL = 1.0  # seconds between checks of the file and the disk
_IDLE_INTERVAL = 30.0  # the longest time between checks without requests
_TICK_TIMEOUT = 0.05  # seconds to wait for a writer's check before that of the next one
_TRIM_BLOCKS = 2 * _MAX_GROUP  # blocks deleted at once; more than a group appends
_MAX_SECONDS = 30 * DAY  # for which a row may wait for its label
_CLOSE_TIMEOUT = 5.0  # max seconds in which `close` deletes old blocks
_LEARN = "Durable.learn"
_CLOSED = "must be open, but it was closed. Open it again with op.durable."

_Call = tuple[Callable[[], Any], "Future[Any]"]


@dataclass
class _Batch:
    """A group of requests that is being learned and committed."""

    group: Group = field(default_factory=Group)
    learned: list[tuple[Rows, Array]] = field(default_factory=list)
    positions: dict[str, str] = field(default_factory=dict)
    processed: list[Request] = field(default_factory=list)


@dataclass(frozen=True)
class _Restored:
    """A learner restored from the disk."""

    model: Learner | Pipeline
    positions: dict[str, str]
    snapshot: Snapshot
    end: tuple[int, int, bytes]


class Writer:
    """A learner, its journal, and the only thread that changes them.

    Parameters
    ----------
    journal : Journal
    policy : Policy

    Attributes
    ----------
    model : learner or Pipeline
    published : tuple of int and learner
        Last acknowledged version, and the frozen copy of the learner after it.
    positions : dict of str to str
        Last position of each source.
    watch : callable or None
        Watcher, called with each acknowledged block.
    gate : callable or None
        Called with the learner and the rows of each request before they are learned; the request is
        rejected if it raises.
    hook : callable or None
        Function that the writer's thread calls about once a second, less often if idle.
    snapshots : list of Snapshot
        Stored snapshots without their bodies, oldest first.
    pending : int
        Number of rows that wait for their labels, including rows that expired within a minute.
    commits, commit_seconds : int, float
        Number of groups written to the disk, and the time that it took.
    closed : str
        Why the writer is closed, such as after ``close`` or in a forked process, as the end of a
        message; empty while it is open.
    """

    model: Learner | Pipeline
    published: tuple[int, Learner | Pipeline]
    _thread: Thread | None = None
    _next_item: _Call | None = None

    def __init__(self, journal: Journal, policy: Policy) -> None:
        self.journal, self.policy = journal, policy
        self._began = policy.clock() - time.monotonic()  # later changes of the clock have no effect
        self._items: SimpleQueue[Request | _Call] = SimpleQueue()
        self.closed = ""
        self.positions: dict[str, str] = {}
        self.watch: Watcher | None = None
        self.hook: Callable[[], None] | None = None
        self.gate: Callable[[Learner | Pipeline, Rows], None] | None = None
        self.snapshots: list[Snapshot] = []
        self._tried = (0, 0.0)  # rows and time of the last attempt
        self.pending = self.commits = 0
        self.commit_seconds = 0.0
        self._error: str | None = None
        self._stale = False  # the learner may include rows that are not on the disk
        self._expire_at = self._check_at = 0.0
        self._wait, self._tick_at = _CHECK_INTERVAL, 0.0
        self._trims = False  # whether the log may have blocks before the oldest snapshot

    def now(self) -> float:
        """Return monotonic time, in seconds since 1970."""
        return self._began + time.monotonic()

    @property
    def ready(self) -> bool:
        """Whether the file can be written, judging by the last write."""
        return not self.closed and self.journal.broken is None and self.journal.full is None

    @property
    def error(self) -> str | None:
        """Current error of the file, the disk, a watcher or a callback; None without an error."""
        error = self.journal.broken or self.journal.full
        return self._error if error is None else str(error)

    # -- the queue ------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the thread."""
        _ALL.add(self)
        _start_ticker()
        name = f"onepass writer of {self.journal.path.name}"
        self._thread = Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def put(self, item: Request | _Call) -> None:
        """Put a request or a call into the queue.

        Raises
        ------
        StoreError
            If the writer is closed.
        """
        if self.closed:
            raise StoreError(f"{self.journal.path} {self.closed}")
        self._items.put(item)
        if self.closed:  # another thread has closed it meanwhile
            self._refuse_queued()  # type: ignore[unreachable]

    def call(self, work: Callable[[], _T]) -> _T:
        """Call a function in the writer's thread, and return its result."""
        self.check_caller()
        future: Future[_T] = Future()
        self.put((work, future))
        return future.result()

    def check_caller(self) -> None:
        """Check that the caller is not the writer's thread, which would wait for itself.

        Raises
        ------
        StoreError
        """
        if self._thread is current_thread():  # compare objects, as thread identifiers are reused
            raise StoreError(
                f"{self.journal.path} must be used outside callbacks and watchers, "
                "which would wait for themselves, got a call from one. Use `request`, "
                "which does not wait, or another thread."
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
        """Complete all requests, and close the file without a snapshot; for unclosed learners."""
        if not self.closed and self._thread is not None:
            self._items.put((lambda: setattr(self, "closed", _CLOSED), Future()))
            if self._thread is not current_thread():
                self._thread.join(_CLOSE_TIMEOUT)

    def abandon(self) -> None:
        """Release the file in a forked process, as the parent process uses it."""
        self._items, self._thread, self._next_item = SimpleQueue(), None, None
        if not self.closed:
            self.journal.abandon()
            self.closed = (
                f"must be used in the process that opened it, {os.getppid()}, from which this one "
                "was forked. Learn there, or open another file here; `predict` still works, with "
                "the state at the fork."
            )

    def _run(self) -> None:
        try:
            while not self.closed:
                self._serve()
        except BaseException as error:
            self._failed("the writer has failed", error)
            raise
        finally:
            self.closed = (
                self.closed
                or "must be open, but its writer has failed. Open it again with op.durable."
            )
            self._refuse_queued()
            self.journal.close()

    def _serve(self) -> None:
        """Process the next group of requests, or the next call."""
        item: Request | _Call | None
        item, self._next_item = self._next_item, None
        if item is None:
            item = self._items.get()
        if isinstance(item, Request):
            self.process(self._group(item))
            self.maintain()
            self._wait, self._tick_at = _CHECK_INTERVAL, 0.0
        else:
            work, future = item
            try:
                future.set_result(work())
            except BaseException as error:  # noqa: BLE001  raised in the caller's thread
                future.set_exception(error)

    def tick(self) -> None:
        """Have the writer's thread check its file, if that is due; wait for it a short time."""
        now = time.monotonic()
        if self.closed or now < self._tick_at or not self._items.empty():
            return
        busy = self._trims or self.journal.full is not None
        self._wait = _CHECK_INTERVAL if busy else min(2.0 * self._wait, _IDLE_INTERVAL)
        self._tick_at = now + self._wait
        done: Future[None] = Future()
        self._items.put((self.maintain, done))
        with suppress(Exception):  # the writer is busy, or was closed meanwhile
            done.result(_TICK_TIMEOUT)

    def _group(self, first: Request) -> list[Request]:
        """Return a request and the requests after it in the queue, up to the next call."""
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
        """Reject requests and calls that were queued after the writer was closed."""
        error = StoreError(f"{self.journal.path} {self.closed}", _LEARN)
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
        self.closed = _CLOSED  # refuse later requests
        self._attempt(self.journal.check_writable)
        self._attempt(lambda: self.snapshot("close"))
        self._attempt(self._trim_all)

    # -- opening and replay ---------------------------------------------------------------------

    def begin(self, model: Learner | Pipeline) -> None:
        """Create the file."""
        self.model = model
        self.journal.begin(self._snapshot(model, 0, "beginning"))
        self.journal.begin_log()
        self._install_watcher(model)
        self._tried = (0, self.now())
        self.snapshots = self.journal.snapshots()
        self.published = (0, model.frozen_copy())

    def resume(self) -> None:
        """Restore the learner from the file, and call the watcher with the replayed blocks."""
        restored = self._restored(watched=True)
        self._install(restored)
        self.journal.check_complete()
        self.snapshots = self.journal.snapshots()
        self._tried = (restored.snapshot.seen, self.now())
        self._trims = True
        self.pending = self.journal.count_pending(0.0)
        self.journal.begin_log()

    def _restore(self) -> None:
        """Restore the learner from the disk, after a failed commit."""
        try:
            self._install(self._restored())
        except StoreError as error:
            self.journal.broken = error
            raise

    def _install(self, restored: _Restored) -> None:
        self.journal.ends(*restored.end)
        self.model, self.positions = restored.model, restored.positions
        self.published = (self.journal.sequence, self.model.frozen_copy())
        self._stale = False

    def _restored(self, until: int | None = None, *, watched: bool = False) -> _Restored:
        """Restore the learner after a block, by default the last block."""
        snapshot = self.journal.before(until)
        path = str(self.journal.path)
        contents = archive.loads(snapshot.body, path)
        model = from_contents(contents, path, self.policy.replacements)
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

    def _replayed(self, model: Learner | Pipeline, entry: Entry) -> tuple[Rows, Array]:
        """Replay a logged block; return the block and its prequential predictions."""
        if entry.kind != "learn":
            raise CorruptStoreError(
                f"{self.journal.path} is not as it was written: the snapshot of its rollback, "
                f"block {entry.sequence:,}, is missing. Restore it from a backup."
            )
        block = decode_rows(entry.body, str(self.journal.path))
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # issued when the block was first learned
                return block, learn_block(model, block)
        except MemoryError:  # independent of the file and the version
            raise
        except Exception as error:
            raise StoreError(
                f"the learner must accept block {entry.sequence:,} of {self.journal.path} again, "
                f"but rejects it: {error} Use the version of onepass that wrote the file.",
            ) from error

    # -- one group ------------------------------------------------------------------------------

    def process(self, requests: Sequence[Request]) -> None:
        """Learn and commit requests; set errors on the requests instead of raising them."""
        while requests:
            batch = _Batch()
            try:
                with calling(_LEARN):
                    self.check_ready()
                    later = self._fill(batch, requests)
                    if batch.group.entries or batch.group.pending_rows:
                        began = time.perf_counter()
                        self.journal.commit(batch.group)
                        self.commit_seconds += time.perf_counter() - began
                        self.commits += 1
            except BaseException as error:  # noqa: BLE001  set as the error of each request
                self._complete(requests, error)
                return
            try:
                self._publish(batch)
            except BaseException as error:  # noqa: BLE001  the rows are committed
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
            self.published = (self.journal.sequence, self.model.frozen_copy())
        self._stale = False
        self.journal.reached("published")

    def _complete(self, requests: Sequence[Request], error: BaseException | None = None) -> None:
        """Complete requests, with ``error`` if their rows are not on the disk."""
        for request in requests:
            if error is not None:  # copies, as they are raised in different threads
                request.learn_result, request.error = None, _copied(error)
            request.completed = True
        for request in requests:
            request.gate.release()
            done, request.done = request.done, None  # breaks a reference cycle
            if done is not None:
                try:
                    done(request)
                except BaseException as failure:  # noqa: BLE001  call the other callbacks
                    self._failed("a callback has failed", failure)

    def _failed(self, what: str, error: BaseException) -> None:
        self._error = f"{what}: {error}"

    def _fill(self, batch: _Batch, requests: Sequence[Request]) -> list[Request]:
        """Learn requests; return those whose key an earlier request of the group has, for later."""
        keys = [request.keys[0][0] for request in requests if request.keys]
        results = {result.key: result for result in self.journal.results(keys)} if keys else {}
        new_keys: set[str] = set()
        labelled: list[Request] = []
        later: list[Request] = []
        for request in requests:
            names = [name for name, _ in request.keys]
            stored = results.get(names[0]) if names else None
            if stored is None and not new_keys.isdisjoint(names):
                later.append(request)
                continue
            batch.processed.append(request)
            if stored is not None:
                self._repeat(request, stored)
            elif request.block.y is None:
                self._store_pending(batch, request)
            elif self._passes(request):
                labelled.append(request)
                new_keys.update(names)
        for run in runs(labelled):
            self._stale = True
            self._learn(batch, run)
        return later

    def _passes(self, request: Request) -> bool:
        """Return whether the gate lets a request pass; set the error of the request if not."""
        if self.gate is not None:
            try:
                self.gate(self.model, request.block)
            except Exception as error:  # noqa: BLE001  set as the request's error
                request.error = error
        return request.error is None

    def _repeat(self, request: Request, stored: StoredResult) -> None:
        """Return the stored result of a request whose key was used before."""
        name, digest = request.keys[0]
        if stored.digest != digest:
            request.error = IdempotencyConflictError(
                f"the key {name[1:]!r} must be sent with the rows of its first request (version "
                f"{stored.sequence:,}), got other rows. Use a new key for other rows.",
                _LEARN,
            )
            return
        request.learn_result = repeated_result(self.journal, stored)

    def _store_pending(self, batch: _Batch, request: Request) -> None:
        """Store rows until their labels arrive, or reject them if too many would wait."""
        max_pending, count = self.policy.max_pending, len(request.ids)
        pending_rows = batch.group.pending_rows
        if self.pending + len(pending_rows) + count > max_pending:  # recount, without expired rows
            self.pending = self.journal.count_pending(self.now())
        if (waiting := self.pending + len(pending_rows)) + count > max_pending:
            request.error = BusyError(
                f"at most {max_pending:,} rows may wait for their labels, got {count:,} in "
                f"addition to {waiting:,} waiting rows. Send labels first, or predict rows with "
                "fewer `seconds`, so that they expire earlier.",
                _LEARN,
                seconds=60.0,
            )
            return
        for i, name in enumerate(request.ids):
            pending_rows.append(
                PendingRow(name, request.until, encode_rows(request.block[i : i + 1]))
            )
        request.learn_result = LearnResult(self.journal.sequence, np.empty(0))

    def _learn(self, batch: _Batch, run: list[Request]) -> None:
        """Learn a run of requests as one block, or one by one if the learner rejects the block."""
        group, single = batch.group, len(run) == 1
        try:
            block = run[0].block if single else concatenate_rows([request.block for request in run])
            with feature_limit(self.policy.max_features):
                predicted = learn_block(self.model, block)
        except Exception as error:  # noqa: BLE001  set as the request's error
            if single:
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
        body = (run[0].body if single else b"") or encode_rows(block)
        n = len(block.X)
        entry = Entry(last.sequence + 1, "learn", n, last.seen + n, note, body)
        group.entries.append(entry)
        batch.learned.append((block, predicted))
        first, now = 0, 0.0
        for request in run:
            part = predicted[first : first + len(request.block.X)]
            first += len(part)
            request.learn_result = LearnResult(entry.sequence, part)
            if request.keys:
                now = now or self.now()  # one time for all keys, which are then deleted together
                group.labelled += request.ids  # each pending row has a key
                parts = [part] if len(request.keys) == 1 else np.split(part, len(part))
                group.results += [
                    StoredResult(name, digest, entry.sequence, encode_rows(Rows(predictions)), now)
                    for (name, digest), predictions in zip(request.keys, parts, strict=False)
                ]

    # -- watcher --------------------------------------------------------------------------------

    def _install_watcher(self, model: Learner | Pipeline) -> None:
        if self.policy.watch is not None:
            self.watch = self.policy.watch(model.frozen_copy())

    def _call_watcher(self, learned: list[tuple[Rows, Array]]) -> None:
        """Call the watcher with blocks; set ``error`` if it fails, as the rows are committed."""
        if self.watch is not None:
            for block, predicted in learned:
                try:
                    self.watch(block, predicted)
                except Exception as error:  # noqa: BLE001
                    self._failed("the watcher has failed", error)

    # -- calls ----------------------------------------------------------------------------------

    @calling("Durable.predict_pending")
    def predict_pending(self, X: TableLike, seconds: float) -> tuple[int, Array, list[str]]:
        """Return the version of the learner, and the results of ``Durable.predict_pending``."""
        block = read_rows(X, None)
        check_text_in(block)  # each row is encoded separately
        seconds = validation.in_range(seconds, "seconds", low=0.0, high=_MAX_SECONDS)
        version, learner = self.published
        with feature_limit(self.policy.max_features):
            predicted = predict_rows(learner, block.X)
        ids = [secrets.token_urlsafe(16) for _ in range(len(block))]
        self.check_caller()
        request = Request(block, ids=ids, until=self.now() + seconds)
        self.put(request)
        request.wait()
        return version, predicted, ids

    @calling(_LEARN)
    def enqueue(
        self,
        rows: Rows,
        key: str | None = None,
        source: str | None = None,
        position: str | None = None,
        done: Callable[[Request], None] | None = None,
    ) -> Request:
        """Enqueue rows that the caller no longer changes; see ``Durable.request``."""
        if key is not None:
            check_text(key, "key")
        if source is not None or position is not None:
            check_text(source, "source")
            check_text(position, "position")
        body = b""
        if not is_plain(rows):
            check_text_in(rows)
            body = encode_rows(rows)
        size = len(body) or rows.X.nbytes
        check_size(size)
        keys = [] if key is None else [(f"k{key}", rows_digest(rows))]
        request = Request(rows, body, size, keys, source, position, done=done)
        self.put(request)
        return request

    def learn_labels(self, ids: Sequence[str], labels: Rows) -> LearnResult:
        """Learn pending rows with their labels."""
        self.check_ready()
        labelled: LabelledRows = match(self.journal, self.now(), ids, labels)
        if not labelled.rows:
            return labelled.learn_result(ids, None)
        request = labelled.request()
        self.process([request])
        self.maintain()
        return labelled.learn_result(ids, request.result())

    def copied(self, version: int | None = None) -> Learner | Pipeline:
        """Return a copy of the acknowledged learner, or of an earlier version.

        Raises
        ------
        ParameterError
            If the version does not exist, or is older than the oldest snapshot.
        StoreError
            If the file cannot be read, or a write has failed with unknown outcome.
        """
        if version == self.journal.sequence:
            version = None
        if version is None and not self._stale:
            return copy.deepcopy(self.model)
        self.journal.check_sound()
        until = None if version is None else self._stored(version, "version")
        return self._restored(until).model

    def commit_position(self, source: str, position: str) -> None:
        """Commit a source's position, without rows."""
        self.check_ready()
        sequence, seen = self.journal.sequence + 1, self.journal.seen
        entry = Entry(sequence, "pass", 0, seen, _note(source, position), b"")
        self.journal.commit(Group(entries=[entry]))
        self.positions = {**self.positions, source: position}
        self.published = (sequence, self.published[1])

    def rollback(self, to: int) -> int:
        """Restore the state after a block; later blocks remain in the log.

        Raises
        ------
        ParameterError
            If the version does not exist, or is older than the oldest snapshot.
        """
        self.check_ready()
        restored = self._restored(self._stored(to, "to"))
        sequence, seen = self.journal.sequence + 1, self.journal.seen
        entry = Entry(sequence, "rollback", 0, seen, json.dumps({"to": to}), b"")
        snapshot = self._snapshot(restored.model, sequence, f"rollback to {to}")
        published = (sequence, restored.model.frozen_copy())
        self.journal.commit(Group(entries=[entry], snapshot=snapshot))
        self.model, self.published = restored.model, published
        self._tried = (seen, self.now())
        self._attempt(self._prune)
        return sequence

    def _stored(self, version: int, name: str) -> int:
        """Return a version that can be restored; raise ParameterError for others."""
        oldest, latest = self.snapshots[0].sequence, self.journal.sequence
        if not oldest <= version <= latest:
            raise ParameterError(
                f"`{name}` must be a stored version, from {oldest:,} to the current one, "
                f"{latest:,}, got {version:,}. Choose a version in this range; `versions`, and "
                "/state of a service, list the snapshots, and `snapshots` sets how many are stored."
            )
        return version

    def snapshot(self, why: str) -> int:
        """Take a snapshot, unless this version has one; prune old ones and return the version.

        Raises
        ------
        StoreError, CheckpointError
            If the snapshot cannot be written.
        """
        self.check_ready()
        sequence = self.journal.sequence
        if self.snapshots[-1].sequence < sequence:
            snapshot = self._snapshot(self.model, sequence, why)
            self.journal.commit(Group(snapshot=snapshot))
        self._tried = (self.journal.seen, self.now())
        self._error = None
        self._attempt(self._prune)
        self._call_hook()
        return sequence

    def _snapshot(self, model: Learner | Pipeline, sequence: int, why: str) -> Snapshot:
        positions, body = json.dumps(self.positions), dumps(model, "op.durable")
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
        """Check the file, its log and the disk; after a full disk, restore the learner."""
        self._attempt(lambda: self.journal.check_writable(log=True))
        if self.journal.full is not None:
            with suppress(Exception):  # requests raise the error until there is space
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
        """Do maintenance; only warn if it fails, as all acknowledged rows are in the log."""
        if self._stale or self.journal.broken is not None:
            return
        try:
            work()
        except Exception as error:  # noqa: BLE001
            self._error = f"{error} All acknowledged rows are in the log."
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
        self._trims = False  # a failed attempt is repeated after the next snapshot
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
    """Copy an exception; return the same object if its class cannot be copied."""
    try:
        return copy.copy(error)
    except Exception:  # noqa: BLE001
        return error


_ALL: weakref.WeakSet[Writer] = weakref.WeakSet()


_ticker: Thread | None = None


def _start_ticker() -> None:
    """Start the thread that ticks all writers, one after the other, unless it runs.

    Timeouts in the writers' own threads would wake thousands of threads at once.
    """
    global _ticker  # noqa: PLW0603
    if _ticker is None:
        _ticker = Thread(target=_tick_forever, name="onepass ticker", daemon=True)
        _ticker.start()


def _tick_forever() -> None:
    while True:
        time.sleep(max(_CHECK_INTERVAL / 4.0, 0.01))
        with suppress(RuntimeError):  # a writer was added meanwhile
            _tick_all()


def _tick_all() -> None:
    for writer in list(_ALL):
        writer.tick()


def _forked() -> None:
    global _ticker  # noqa: PLW0603
    _ticker = None
    for writer in list(_ALL):
        writer.abandon()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
