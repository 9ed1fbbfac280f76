"""Kept: what all parts of a durable learner stand on: its journal, its keeper, and the turns.

Requests wait in a queue. Whoever waits and finds that nobody is at it decides on all that wait, as
one group, and lets the others know; then it is the turn of the next one who waits. So rows that
come from many threads meanwhile are brought to the disk together.
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
from onepass.service.keeper import Keeper
from onepass.service.requests import Receipt, Request, shut

__all__ = ["Kept"]

_AT_ONCE, _BYTES = 512, 1 << 26  # requests that are committed together, and when they are enough
_CLOSED = "was closed. Open it again with op.durable."
_PATIENCE = 0.1  # seconds that one waits to be woken


class Kept:
    """A queue of requests, and one turn for all that is done to the file.

    Parameters
    ----------
    journal : Journal
    keeper : Keeper
    """

    def __init__(self, journal: Journal, keeper: Keeper) -> None:
        self.path = journal.path
        self._journal = journal
        self._keeper = keeper
        self._queue: deque[Request] = deque()
        self._turn: Any = RLock()
        self._led = False  # whether somebody decides on what waits, and lets the others know
        self._gone = ""
        """Why nothing can be written: it was closed, or another process has it."""
        _ALL.add(self)

    @property
    def most_features(self) -> int | None:
        """So many features may come to the learner; None for any number."""
        return self._keeper.most_features

    def settle(self) -> None:
        """Decide on all requests that wait by now; what is wrong with one is noted there."""
        with self._own_turn():
            self._settle()

    def close(self) -> None:
        """Decide on what waits, take a snapshot if rows were learned since, and let the file go."""
        with self._own_turn():
            if self._gone:
                return
            try:
                self._keeper.land()
                while self._queue:
                    self._settle()
                self._gone = _CLOSED  # nobody is to come while the last snapshot is taken
                self._keeper.mend()
                self._keeper.finish()
            finally:
                self._gone = _CLOSED
                try:
                    self._turn_away()
                finally:
                    self._journal.close()

    @property
    def last_snapshot(self) -> tuple[int, float]:
        """How many rows had been learned when the last snapshot was taken, and when it was."""
        return self._keeper.last_snapshot

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
    def _own_turn(self) -> Iterator[None]:
        """Within this context nobody else does anything to the file, nor a handler of signals.

        Raises
        ------
        StoreError
            If this thread is just doing so.
        """
        self._hold_idle()
        with self._turn:
            self._keeper.at_it = True
            try:
                yield
            finally:
                self._keeper.at_it = False

    def _hold_idle(self) -> None:
        """Refuse a thread that is just doing something to the file.

        Raises
        ------
        StoreError
        """
        if self._turn._is_owned() and not self._gone and self._keeper.at_it:  # noqa: SLF001  a lock has no other way
            raise StoreError(
                f"{self._journal.where}: {self.path} must be done with one thing before the next "
                "is begun, but the same thread is just writing it. Call this from no handler of "
                "signals, and not while you are told of rows, but afterwards."
            )

    def _settle(self) -> None:
        """Decide on all requests that wait by now; for whoever has the turn."""
        self._hold_open()
        if not self._queue:
            self._keeper.mend()
            self._keeper.tend()
            return
        last = self._queue[-1]
        self._take_some()  # even if it is settled: an interrupt may have left it there
        while not last.is_settled():
            self._take_some()

    def _settled(self, request: Request) -> Receipt:
        """Put a request into the queue, and wait until it is decided on."""
        self._hold_idle()
        return self._decided(request)

    def _decided(self, request: Request) -> Receipt:
        """The same, whoever has the turn.

        An interrupt may come anywhere: so nobody relies on being woken, nor on ``_led``.
        """
        turn, keeper = self._turn, self._keeper
        try:
            request.gate = shut()
            self._queue.append(request)
            while not request.is_settled():
                request.waits = True  # before it is asked whether somebody is at it
                if self._led and request.wait(_PATIENCE):
                    continue  # it is decided on, or it is the turn of who waits for it
                with turn:
                    if request.is_settled():
                        break
                    self._hold_open()
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
                if not request.settled and request in self._queue:
                    self._queue.remove(request)
            self._pass_on()
            raise
        return request.result()

    def _put(self, request: Request) -> None:
        """Put a request into the queue, for those who do not wait.

        Raises
        ------
        StoreError
            If it was closed.
        """
        self._hold_open()
        self._queue.append(request)
        if self._gone:  # since it was asked
            try:
                self._queue.remove(request)
            except ValueError:  # whoever closes has it, and refuses it
                return
            self._hold_open()

    def _turn_away(self) -> None:
        """Tell whoever waits still: what was kept of an interrupted group, or that it is closed."""
        self._keeper.land()
        left: list[Request] = []
        with suppress(IndexError):  # others take theirs back themselves
            while True:
                left.append(self._queue.popleft())
        if left:
            wrong = StoreError(f"{self._journal.where}: {self.path} {self._gone}")
            self._keeper.refuse(left, wrong)

    def _take_some(self) -> None:
        """Decide on the first that wait. They stay in the queue until they are decided on."""
        queue, size = self._queue, 0
        first: list[Request] = []
        while len(first) < min(len(queue), _AT_ONCE) and size < _BYTES:
            first.append(queue[len(first)])
            size += first[-1].size
        self._keeper.take(first)
        while queue and queue[0].settled:
            queue.popleft()
        self._keeper.tend()

    def _land(self) -> None:
        """Have it told what an interrupt has left, unless somebody is at it: he does so himself."""
        if self._keeper.left and not self._gone:
            with self.turn(0.0) as free:
                if free:
                    with self._own_turn():
                        self._keeper.land()

    def _pass_on(self) -> None:
        """Let the next one who waits have its turn."""
        with suppress(IndexError):  # others have been faster
            for i in range(len(self._queue)):
                if self._queue[i].waits:
                    self._queue[i].wake()
                    return

    def _hold_open(self) -> None:
        if self._gone:
            raise StoreError(f"{self._journal.where}: {self.path} {self._gone}")

    def _forked(self, holder: int) -> None:
        """In a process that was forked from the one that has the file."""
        self._turn, self._led = RLock(), False
        self._queue.clear()
        if not self._gone:
            self._journal.abandon()
        self._gone = (
            f"is held by process {holder}, from which this one was forked. Learn there, or open a "
            "file of its own here; `predict` goes on as it was."
        )


_ALL: weakref.WeakSet[Kept] = weakref.WeakSet()


def _forked() -> None:
    for each in list(_ALL):
        each._forked(os.getppid())  # noqa: SLF001  of this module


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
