"""Those who wait for a learner: what is kept of them, and how long."""

import asyncio

import numpy as np
import pytest

from onepass.errors import BusyError, PendingError
from onepass.service.blocks import Block
from onepass.service.requests import Receipt, Request
from onepass.service.web import mail
from onepass.service.web.exchange import Asking, Room


def settled() -> Request:
    return Request(Block(np.zeros((1, 1))), receipt=Receipt(1, np.zeros(1)))


def test_who_is_answered_is_kept_for_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """One learner may be slow: those of others are let go, and it is told in its time."""
    monkeypatch.setattr(mail, "_OFTEN", 0.01)

    async def story() -> None:
        box = mail.Mail(0.3)
        slow = box.expect("slow", lambda receipt: receipt)
        for _ in range(100):
            quick = box.expect("quick", lambda receipt: receipt.version)
            quick.decided(settled())
            assert await quick == 1
        assert list(box._expected) == [slow]
        with pytest.raises(PendingError, match="slow"):
            await slow
        await asyncio.sleep(0.05)
        assert not box._expected

    asyncio.run(story())


def test_whatever_waits_for_a_thread_has_room() -> None:
    """So that what is still to be computed for those who are gone is bounded."""
    room = Room(1_000_000)
    asking = [Asking("POST", "/", {}, 200_000, room) for _ in range(11)]
    for each in asking[:10]:
        each.take(100_000)
    with pytest.raises(BusyError, match="at most 1,000,000 bytes"):
        asking[10].take(100_000)
    asking[10].take(60_000)  # so little is answered at once
    for each in asking:
        each.done()
    room.take(1_000_000)
