"""Those who wait for a learner: what is kept of them, and how long."""

import asyncio
import gc
import math
from typing import Any

import numpy as np
import pytest

from onepass.errors import BusyError, PendingError
from onepass.service.http import exchange
from onepass.service.http.exchange import Asking, Letter, Mail, Room
from onepass.service.requests import Block, Receipt, Request


def settled() -> Request:
    return Request(Block(np.zeros((1, 1))), receipt=Receipt(1, np.zeros(1)))


def unread() -> Letter:
    return Letter(Mail(5.0), "flow", lambda receipt: receipt, math.inf)


def test_who_is_answered_is_kept_for_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """One learner may be slow: those of others are let go, and it is told in its time."""
    monkeypatch.setattr(exchange, "_OFTEN", 0.01)

    async def story() -> None:
        box = exchange.Mail(0.3)
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


def test_what_comes_too_late_is_thrown_away() -> None:
    async def story() -> None:
        box = exchange.Mail(0.05)
        letter = box.expect("slow", lambda receipt: receipt)
        heard: list[Any] = []
        letter.then = heard.append
        await asyncio.sleep(0.3)
        letter.decided(settled())
        await asyncio.sleep(0.05)
        assert [type(each) for each in heard] == [PendingError]
        assert letter.request is None

    asyncio.run(story())


def test_one_who_cannot_be_told_is_no_trouble_of_the_others() -> None:
    async def story() -> None:
        loop, box = asyncio.get_running_loop(), exchange.Mail(5.0)
        wrong: list[Any] = []
        loop.set_exception_handler(lambda _, context: wrong.append(context["exception"]))
        letters = [box.expect("flow", lambda receipt: receipt.version) for _ in range(3)]
        letters[0].then = lambda _: 1 / 0
        heard: list[Any] = []
        letters[1].then = heard.append
        for each in letters:
            each.decided(settled())
        assert await letters[2] == 1
        assert heard == [1]
        assert [type(each) for each in wrong] == [ZeroDivisionError]
        assert await letters[2] == 1  # it stays

    asyncio.run(story())


def test_what_is_cancelled_is_not_there() -> None:
    async def story() -> None:
        late = unread()
        waits = asyncio.ensure_future(waited(late))
        await asyncio.sleep(0)
        late.cancel("it stops")
        with pytest.raises(asyncio.CancelledError, match="it stops"):
            await waits
        late = unread()
        late.end(3)
        late.cancel()
        assert await late == 3
        tasks = {unread() for _ in range(5)}
        for each in tasks:
            each.then = lambda _, each=each: tasks.discard(each)
        for each in tasks:  # as uvicorn does when it stops
            each.cancel(msg="it stops")
        await asyncio.sleep(0)
        assert not tasks

    async def waited(late: Letter) -> Any:
        return await late

    asyncio.run(story())


def test_letters_leave_nothing_to_the_garbage_collector() -> None:
    async def story() -> None:
        box = exchange.Mail(5.0)
        gc.collect()
        gc.disable()
        try:
            for _ in range(50):
                letter = box.expect("flow", lambda receipt: receipt.version)
                request = settled()
                request.done = letter.decided
                letter.decided(request)
                del request
                assert await letter == 1
            del letter
            assert gc.collect() < 50
        finally:
            gc.enable()

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
