"""Mail: what a thread has decided, for those who wait in an event loop."""

import asyncio
from collections import deque
from typing import Any

from onepass.service.requests import Receipt, Request
from onepass.service.web.threads import pending

__all__ = ["Mail"]

_OFTEN = 1.0  # seconds between two looks at who has waited too long


class Mail:
    """Wakes the event loop that runs where it is made, once for many answers.

    Parameters
    ----------
    patience : float
        Seconds after which who waits is told that it is not known yet.
    """

    def __init__(self, patience: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._patience = patience
        self._letters: deque[tuple[asyncio.Future[Receipt], Request]] = deque()
        self._expected: deque[tuple[float, asyncio.Future[Receipt], str]] = deque()
        self._called = self._looks = False

    def expect(self, name: str) -> "tuple[asyncio.Future[Receipt], Any]":
        """A future, and what a thread calls with the request that decides on it.

        Parameters
        ----------
        name : str
            Of the learner.
        """
        future: asyncio.Future[Receipt] = self._loop.create_future()
        self._expected.append((self._loop.time() + self._patience, future, name))
        if not self._looks:
            self._looks = True
            self._loop.call_later(min(_OFTEN, self._patience), self._look)

        def done(request: Request) -> None:
            self._letters.append((future, request))
            if not self._called:
                self._called = True
                self._loop.call_soon_threadsafe(self._deliver)

        return future, done

    def _deliver(self) -> None:
        self._called = False  # before the letters are read: one that comes now calls again
        while self._letters:
            future, request = self._letters.popleft()
            if future.done():  # whoever asked is gone
                continue
            if request.error is not None:
                future.set_exception(request.error)
            elif request.receipt is not None:
                future.set_result(request.receipt)

    def _look(self) -> None:
        """Let go who has waited too long; the oldest stand first."""
        expected, now = self._expected, self._loop.time()
        while expected and (expected[0][1].done() or expected[0][0] <= now):
            _, future, name = expected.popleft()
            if not future.done():
                future.set_exception(pending(name, self._patience))
        self._looks = bool(expected)
        if expected:
            self._loop.call_later(min(_OFTEN, self._patience), self._look)
