"""Mail: what a thread has decided, for those who wait in an event loop."""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

from onepass.service.requests import Receipt, Request
from onepass.service.served import Served
from onepass.service.web.later import Later
from onepass.service.web.refusals import OfRows
from onepass.service.web.threads import pending

__all__ = ["Letter", "Mail"]

_Finish = Callable[[Receipt], Any]
_OFTEN = 1.0  # seconds between two looks at who has waited too long


class Letter(Later):
    """What becomes of rows, for one who waits in the event loop.

    Parameters
    ----------
    mail : Mail
        That brings it.
    name : str
        Of the learner.
    finish : callable
        Makes of the receipt what is waited for; called in the event loop.
    until : float
        When whoever waits is let go, by the loop's clock.
    """

    request: Request | None = None

    def __init__(self, mail: "Mail", name: str, finish: _Finish, until: float) -> None:
        self.name, self.until = name, until
        self._mail, self._finish = mail, finish

    def decided(self, request: Request) -> None:
        """Called, by whatever thread, with the request that decides on it.

        Parameters
        ----------
        request : Request
        """
        self.request = request
        self._mail.post(self)

    def read(self) -> None:
        """Let whoever waits have it."""
        request: Any = self.request
        self.request = None  # which knows this letter
        try:
            if request.error is not None:
                with OfRows(self.name):
                    request.result()
            found = self._finish(request.result())
        except Exception as wrong:  # noqa: BLE001  whoever asked is told
            found = wrong
        self.end(found)


class Mail:
    """Wakes the event loop that runs where it is made, once for many letters.

    Parameters
    ----------
    patience : float
        Seconds after which who waits is told that it is not known yet.
    """

    def __init__(self, patience: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._patience = patience
        self._letters: deque[Letter] = deque()  # that have come
        self._expected: dict[Letter, None] = {}  # who has waited longest comes first
        self._called = self._looks = False
        self._put: set[Served] = set()

    def expect(self, name: str, finish: _Finish) -> Letter:
        """A letter that is still to come.

        Parameters
        ----------
        name : str
            Of the learner.
        finish : callable
            As for :class:`Letter`.
        """
        letter = Letter(self, name, finish, self._loop.time() + self._patience)
        self._expected[letter] = None
        if not self._looks:
            self._looks = True
            self._loop.call_later(min(_OFTEN, self._patience), self._look)
        return letter

    def withdraw(self, letter: Letter) -> None:
        """Expect it no longer: its rows were refused at once.

        Parameters
        ----------
        letter : Letter
        """
        self._expected.pop(letter, None)

    def sent(self, served: Served) -> None:
        """Rows wait: they are learned together with all others that have come by now.

        Parameters
        ----------
        served : Served
        """
        if not self._put:
            self._loop.call_soon(self._wake)
        self._put.add(served)

    def post(self, letter: Letter) -> None:
        """Bring a letter that has come; called by whatever thread.

        Parameters
        ----------
        letter : Letter
        """
        self._letters.append(letter)
        if not self._called:
            self._called = True
            self._loop.call_soon_threadsafe(self._deliver)

    def _wake(self) -> None:
        put, self._put = self._put, set()
        for served in put:
            served.wake()

    def _deliver(self) -> None:
        self._called = False  # before the letters are read: one that comes now calls again
        letters, expected = self._letters, self._expected
        while letters:
            letter = letters.popleft()
            expected.pop(letter, None)
            if letter.ended:  # it was waited for too long
                letter.request = None
            else:
                letter.read()

    def _look(self) -> None:
        """Let go who has waited too long."""
        expected, now = self._expected, self._loop.time()
        for letter in [each for each in expected if each.until <= now]:
            del expected[letter]
            if not letter.ended:
                letter.end(pending(letter.name, self._patience))
        self._looks = bool(expected)
        if expected:
            self._loop.call_later(min(_OFTEN, self._patience), self._look)
