"""Mail: what a thread has decided, for those who wait in an event loop."""

import asyncio
from collections import deque
from typing import Any

from onepass.service.requests import Receipt, Request

__all__ = ["Mail"]


class Mail:
    """Wakes the event loop that runs where it is made, once for many answers."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._letters: deque[tuple[asyncio.Future[Receipt], Request]] = deque()
        self._called = False

    def expect(self) -> "tuple[asyncio.Future[Receipt], Any]":
        """A future, and what a thread calls with the request that decides on it."""
        future: asyncio.Future[Receipt] = self._loop.create_future()

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
