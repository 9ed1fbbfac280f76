"""Queue of the requests to a durable learner, with group commit.

Requests wait in a queue. A thread that waits, and finds that no other thread is writing, decides on
all waiting requests as one group, notifies their threads, and passes the turn to the next one that
waits. So rows that many threads send meanwhile are committed together.

Invariants
----------
- One thread at a time works on the file. It cannot start a second operation within the first, as
  from a signal handler: that raises ``StoreError``.
- A request stays in the queue until it is decided on. An interrupt may come anywhere, so no thread
  relies on being woken; and after ``close`` every request is either committed or refused.
- A forked process neither writes nor closes the file.
"""

import os
import weakref
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import RLock
from typing import Any

from onepass.errors import StoreError
from onepass.service.journal import Journal
from onepass.service.requests import Receipt, Request, shut
from onepass.service.writer import Keeper

__all__ = ["RequestQueue"]

_AT_ONCE, _BYTES = 512, 1 << 26  # requests that are committed together, and when they are enough
_CLOSED = "was closed. Open it again with op.durable."
_PATIENCE = 0.1  # seconds that one waits to be woken


class RequestQueue:
    """Requests that wait, and one turn for all that is done to the file.

    Parameters
    ----------
    journal : Journal
    keeper : Keeper

    Attributes
    ----------
    pending : deque of Request
    closed : str
        Why nothing can be written: it was closed, or another process has it; empty while it can.
    """

    def __init__(self, journal: Journal, keeper: Keeper) -> None:
        self._journal, self._keeper = journal, keeper
        self.pending: deque[Request] = deque()
        self.closed = ""
        self._turn: Any = RLock()
        self._led = False  # whether a thread decides on what waits, and notifies the others
        _ALL.add(self)

    @contextmanager
    def turn(self, seconds: float) -> Iterator[bool]:
        """Within this context nobody else does anything to the file, if that came about in time.

        Parameters
        ----------
        seconds : float
            How long to wait for others.
        """
        free = self._turn.acquire(timeout=seconds)
        try:
            yield free
        finally:
            if free:
                self._turn.release()

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Within this context nobody else does anything to the file, nor a handler of signals.

        Raises
        ------
        StoreError
            If this thread is just doing so.
        """
        self.hold_idle()
        with self._turn:
            self._keeper.at_it = True
            try:
                yield
            finally:
                self._keeper.at_it = False

    @contextmanager
    def reading(self) -> Iterator[None]:
        """The turn, once it is known what an interrupted group has become; refused if closed."""
        with self.exclusive():
            self.hold_open()
            self._keeper.land()
            yield

    @contextmanager
    def writing(self) -> Iterator[None]:
        """The turn, once all requests that wait are decided on and the file can be written."""
        with self.exclusive():
            self.settle()
            self._keeper.hold_ready()
            yield

    def hold_idle(self) -> None:
        """Refuse a thread that is just doing something to the file.

        Raises
        ------
        StoreError
        """
        if self._turn._is_owned() and not self.closed and self._keeper.at_it:  # noqa: SLF001  a lock has no other way
            raise StoreError(
                f"{self._journal.where}: {self._journal.path} must be done with one thing before "
                "the next is begun, but the same thread is just writing it. Call this from no "
                "handler of signals, and not while you are told of rows, but afterwards."
            )

    def hold_open(self) -> None:
        """Refuse if it was closed."""
        if self.closed:
            raise StoreError(f"{self._journal.where}: {self._journal.path} {self.closed}")

    def settle(self) -> None:
        """Decide on all requests that wait by now; for whoever has the turn."""
        self.hold_open()
        if not self.pending:
            self._keeper.mend()
            self._keeper.tend()
            return
        last = self.pending[-1]
        self._take_some()  # even if it is settled: an interrupt may have left it there
        while not last.is_settled():
            self._take_some()

    def wait(self, request: Request) -> Receipt:
        """Put a request into the queue, and wait until it is decided on; the turn may be had.

        An interrupt may come anywhere: so nobody relies on being woken, nor on ``_led``.
        """
        turn, keeper = self._turn, self._keeper
        try:
            request.gate = shut()
            self.pending.append(request)
            while not request.is_settled():
                request.waits = True  # before it is asked whether somebody is at it
                if self._led and request.wait(_PATIENCE):
                    continue  # it is decided on, or it is the turn of who waits for it
                with turn:
                    if request.is_settled():
                        break
                    self.hold_open()
                    self._led = keeper.at_it = True
                    try:
                        self._take_some()
                    finally:
                        keeper.at_it = False
                self._led = False
                self._pass_on()
        except BaseException:
            self._led = False
            with turn:
                if not request.settled and request in self.pending:
                    self.pending.remove(request)
            self._pass_on()
            raise
        return request.result()

    def put(self, request: Request) -> None:
        """Put a request into the queue, for those who do not wait.

        Raises
        ------
        StoreError
            If it was closed.
        """
        self.hold_open()
        self.pending.append(request)
        if self.closed:  # since it was asked
            try:
                self.pending.remove(request)
            except ValueError:  # whoever closes has it, and refuses it
                return
            self.hold_open()

    def close(self) -> None:
        """Decide on what waits, take a last snapshot, and close the file."""
        with self.exclusive():
            if self.closed:
                return
            try:
                self._keeper.land()
                while self.pending:
                    self.settle()
                self.closed = _CLOSED  # nobody is to come while the last snapshot is taken
                self._keeper.mend()
                self._keeper.finish()
            finally:
                self.closed = _CLOSED
                try:
                    self._turn_away()
                finally:
                    self._journal.close()

    def land(self) -> None:
        """Acknowledge what an interrupt has left, unless another thread is writing: it does so."""
        if self._keeper.left and not self.closed:
            with self.turn(0.0) as free:
                if free:
                    with self.exclusive():
                        self._keeper.land()

    def _turn_away(self) -> None:
        """Tell whoever waits still: what was kept of an interrupted group, or that it is closed."""
        self._keeper.land()
        left: list[Request] = []
        with suppress(IndexError):  # others take theirs back themselves
            while True:
                left.append(self.pending.popleft())
        if left:
            wrong = StoreError(f"{self._journal.where}: {self._journal.path} {self.closed}")
            self._keeper.refuse(left, wrong)

    def _take_some(self) -> None:
        """Decide on the first that wait. They stay in the queue until they are decided on."""
        queue, size = self.pending, 0
        first: list[Request] = []
        while len(first) < min(len(queue), _AT_ONCE) and size < _BYTES:
            first.append(queue[len(first)])
            size += first[-1].size
        self._keeper.take(first)
        while queue and queue[0].settled:
            queue.popleft()
        self._keeper.tend()

    def _pass_on(self) -> None:
        """Let the next one who waits have its turn."""
        with suppress(IndexError):  # others have been faster
            for i in range(len(self.pending)):
                if self.pending[i].waits:
                    self.pending[i].wake()
                    return

    def _forked(self, holder: int) -> None:
        """In a process that was forked from the one that has the file."""
        self._turn, self._led = RLock(), False
        self.pending.clear()
        if not self.closed:
            self._journal.abandon()
        self.closed = (
            f"is held by process {holder}, from which this one was forked. Learn there, or open a "
            "file of its own here; `predict` goes on as it was."
        )


_ALL: weakref.WeakSet[RequestQueue] = weakref.WeakSet()


def _forked() -> None:
    for each in list(_ALL):
        each._forked(os.getppid())  # noqa: SLF001  of this module


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
