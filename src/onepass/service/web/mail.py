"""Mail: what a thread has decided, for those who wait in an event loop."""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

from onepass.service.requests import Receipt, Request
from onepass.service.served import Served
from onepass.service.web.refusals import OfRows
from onepass.service.web.threads import pending

__all__ = ["Mail"]

_Finish = Callable[[Receipt], Any]
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
        self._letters: deque[tuple[asyncio.Future[Any], Request, _Finish, str]] = deque()
        self._expected: deque[tuple[float, asyncio.Future[Any], str]] = deque()
        self._called = self._looks = False
        self._put: set[Served] = set()

    def sent(self, served: Served) -> None:
        """Rows wait: they are learned together with all others that have come by now.

        Parameters
        ----------
        served : Served
        """
        if not self._put:
            self._loop.call_soon(self._wake)
        self._put.add(served)

    def _wake(self) -> None:
        put, self._put = self._put, set()
        for served in put:
            served.wake()

    def expect(self, name: str, finish: _Finish) -> "tuple[asyncio.Future[Any], Any]":
        """A future, and what a thread calls with the request that decides on it.

        Parameters
        ----------
        name : str
            Of the learner.
        finish : callable
            Makes of the receipt what the future gives; called in the event loop.
        """
        future: asyncio.Future[Any] = self._loop.create_future()
        self._expected.append((self._loop.time() + self._patience, future, name))
        if not self._looks:
            self._looks = True
            self._loop.call_later(min(_OFTEN, self._patience), self._look)

        def done(request: Request) -> None:
            self._letters.append((future, request, finish, name))
            if not self._called:
                self._called = True
                self._loop.call_soon_threadsafe(self._deliver)

        return future, done

    def _deliver(self) -> None:
        self._called = False  # before the letters are read: one that comes now calls again
        while self._letters:
            future, request, finish, name = self._letters.popleft()
            if future.done():  # whoever asked is gone
                continue
            try:
                with OfRows(name):
                    receipt = request.result()
                found = finish(receipt)
            except Exception as wrong:  # noqa: BLE001  whoever asked is told
                future.set_exception(wrong)
            else:
                future.set_result(found)

    def _look(self) -> None:
        """Let go who has waited too long."""
        expected, now = self._expected, self._loop.time()
        for _ in range(len(expected)):  # one learner may be slow: who is answered is not kept
            until, future, name = each = expected.popleft()
            if future.done():
                continue
            if until <= now:
                future.set_exception(pending(name, self._patience))
            else:
                expected.append(each)
        self._looks = bool(expected)
        if expected:
            self._loop.call_later(min(_OFTEN, self._patience), self._look)
