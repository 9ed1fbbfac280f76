"""One connection: requests in any mixture, cut anywhere, are answered as if each came by itself."""

import asyncio
import contextlib
import itertools
import math
import socket
import time
import tracemalloc
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

for package in ("msgspec", "uvicorn", "httptools"):
    pytest.importorskip(package)

from uvicorn.server import ServerState  # noqa: E402

from onepass.errors import ParameterError, UnknownError  # noqa: E402
from onepass.service.http import connection, door  # noqa: E402
from onepass.service.http.connection import Connection  # noqa: E402
from onepass.service.http.door import Door  # noqa: E402
from onepass.service.http.exchange import (  # noqa: E402
    Answer,
    Asking,
    Letter,
    Mail,
    Room,
)
from onepass.service.http.known import Head, Heads  # noqa: E402

MOST = 200_000
LARGE = 3_000_000
ABREAST = {b"abreast", b"breaks", b"swift", b"held"}  # may be under way together
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


class Echo:
    """Answers with what was asked: at once, later, or with an error, as the path says."""

    def __init__(self) -> None:
        self.room = Room(4 * MOST)
        self.asked: list[bytes] = []
        self.gate = asyncio.Event()
        self.seen: list[dict[bytes, bytes]] = []
        self.statuses: list[int] = []
        self.letters: list[Letter] = []

    def admit(self, method: str, target: bytes, headers: dict[bytes, bytes]) -> tuple[Asking, Any]:
        if target.startswith(b"/refused"):
            raise UnknownError("there is no such thing.")
        asking = Asking(method, target.decode(), headers, MOST, self.room)
        asking.abreast = target.split(b"/")[1] in ABREAST
        return asking, target

    def answer(self, asking: Asking, verb: bytes) -> Any:
        self.asked.append(verb)
        kind = verb.split(b"/")[1]
        if kind == b"wrong":
            return self.failed(ParameterError("it is wrong."))
        told = Answer(b"%b %d %b" % (verb, len(asking.body), asking.body[-20:]))
        if kind in ABREAST:
            if kind == b"swift":
                return told if asking.body else self.failed(ParameterError("it is empty."))
            return self._letter(kind, told)
        if kind == b"now":
            self.seen.append(dict(asking._headers))
            return told
        if kind == b"large":
            return told._replace(body=told.body + b"x" * LARGE)
        return self._later(kind, told)

    def _letter(self, kind: bytes, told: Answer) -> Letter:
        """The first comes after those that are asked just behind it."""
        letter = Letter(Mail(5.0), "flow", lambda receipt: receipt, math.inf)
        self.letters.append(letter)
        found = ParameterError("it is wrong, but later.") if kind == b"breaks" else told

        def end(turns: int) -> None:
            if turns or (kind == b"held" and not self.gate.is_set()):
                asyncio.get_running_loop().call_later(0.001 * (not turns), end, max(turns - 1, 0))
            elif not letter.ended:
                letter.end(found)

        asyncio.get_running_loop().call_soon(end, 20 - min(len(self.letters), 20))
        return letter

    async def _later(self, kind: bytes, told: Answer) -> Answer:
        if kind == b"gated":
            await self.gate.wait()
        for _ in range(3):
            await asyncio.sleep(0)
        if kind == b"fails":
            raise ParameterError("it is wrong, but later.")
        return told

    def count(self, status: int) -> None:
        self.statuses.append(status)

    def failed(self, wrong: BaseException) -> Answer:
        return Answer(str(wrong).encode(), "text/plain", 404 if "such" in str(wrong) else 400)


class Line:
    """A connection on a real socket, and the client's end of it."""

    def __init__(self, site: Echo, seconds: float) -> None:
        self.site, self.state = site, ServerState()
        self.state.default_headers = [(b"date", b"today")]
        self.door = Door(site, self.state, seconds, 1 << 20)
        self.got = b""

    async def open(self) -> None:
        loop = asyncio.get_running_loop()
        self.client, there = socket.socketpair()
        self.client.settimeout(0)
        await loop.connect_accepted_socket(lambda: Connection(self.door), there)

    async def send(self, *parts: bytes) -> None:
        with contextlib.suppress(ConnectionError):
            for part in parts:
                await asyncio.get_running_loop().sock_sendall(self.client, part)
                await asyncio.sleep(0)
                await asyncio.sleep(0)

    async def until(self, end: bytes, seconds: float = 5.0) -> bytes:
        """All that comes until this is in it; with nothing, until the connection ends."""

        async def read() -> None:
            while not (end and end in self.got):
                part = await asyncio.get_running_loop().sock_recv(self.client, 1 << 16)
                self.got += part
                if not part:
                    return

        with contextlib.suppress(ConnectionError):
            await asyncio.wait_for(read(), seconds)
        return self.got

    async def ended(self) -> None:
        """Once the server has let it go, nothing of it is left."""
        for _ in range(1000):
            if not self.door.connections and not self.state.tasks:
                break
            await asyncio.sleep(0.001)
        assert not self.door.connections
        assert not self.state.tasks
        assert self.site.room._left == self.site.room._all


@pytest.fixture(params=["uvloop", "asyncio"])
def on(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., None]]:
    """What runs a story of one line in a loop of its own."""
    monkeypatch.setattr(connection, "_LINGER", 0.02)
    monkeypatch.setattr(door, "_OFTEN", 0.005)
    if request.param == "uvloop":
        loop = pytest.importorskip("uvloop").new_event_loop()
    else:
        loop = asyncio.new_event_loop()

    def run(story: Callable[[Line], Awaitable[None]], seconds: float = 5.0) -> None:
        async def told() -> None:
            line = Line(Echo(), seconds)
            await line.open()
            looking = asyncio.ensure_future(line.door.looks())
            try:
                await story(line)
            finally:
                line.site.gate.set()
                line.client.close()
                await line.ended()
                looking.cancel()

        loop.run_until_complete(told())

    yield run
    loop.close()


def request(path: str, body: bytes = b"", *lines: str, method: str = "POST") -> bytes:
    head = [f"{method} {path} HTTP/1.1", "Host: localhost", *lines]
    if body and "Transfer-Encoding: chunked" not in lines:
        head.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*head, "", ""]).encode("latin-1") + body


def chunks(*parts: bytes, trailer: bytes = b"") -> bytes:
    each = [b"%x\r\n%b\r\n" % (len(part), part) for part in parts]
    return b"".join(each) + b"0\r\n" + trailer + b"\r\n"


def answers(data: bytes) -> list[tuple[int, bytes]]:
    """Status and body of each; all of them must be whole."""
    found = []
    while data:
        head, _, data = data.partition(b"\r\n\r\n")
        status = int(head[9:12])
        if status == 100:
            continue
        lines = dict(line.split(b": ", 1) for line in head.split(b"\r\n")[1:])
        length = int(lines[b"content-length"])
        assert len(data) >= length
        found.append((status, data[:length]))
        data = data[length:]
    return found


# -- any mixture ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Wanted:
    """A request, and what must be said to it."""

    kind: str
    number: int
    size: int
    chunked: bool = False
    pieces: tuple[int, ...] = ()
    trailer: bytes = b""
    old: bool = False
    closes: bool = False
    expects: bool = False
    twice: bool = False
    upgrades: bool = False
    lines: tuple[str, ...] = field(default=())

    @property
    def body(self) -> bytes:
        return (b"%d " % self.number * (self.size // 2 + 1))[: self.size]

    def to_bytes(self) -> bytes:
        lines = ["Connection: close"] if self.closes else []
        if self.upgrades:
            lines = ["Connection: Upgrade", "Upgrade: h2c"]
        lines += ["Expect: 100-continue"] * self.expects
        lines += ["Content-Type: a"] * 2 * self.twice
        if self.old:
            lines = ["Connection: keep-alive"]
        path = f"/{self.kind}/{self.number}"
        if not self.chunked:
            found = request(path, self.body, *lines)
        else:
            left, parts = self.body, []
            for piece in self.pieces:
                parts.append(left[: piece + 1])
                left = left[piece + 1 :]
            coming = chunks(*(part for part in (*parts, left) if part), trailer=self.trailer)
            found = request(path, coming, *lines, "Transfer-Encoding: chunked")
        return found.replace(b"HTTP/1.1", b"HTTP/1.0", 1) if self.old else found

    def answer(self) -> tuple[tuple[int, bytes] | None, bool]:
        """What is said, and whether the connection goes on."""
        goes_on = not (self.closes or self.old or self.upgrades)
        cut = self.chunked or (self.expects and not self.old) or self.size > 65536
        if self.twice and not self.old:
            said = b"the header Content-Type must come once, got it twice. Send one of them."
            return (400, said), goes_on and not cut
        if self.kind == "refused":
            return (404, b"there is no such thing."), goes_on and not cut
        if self.size > MOST:
            return (400, b""), False
        if self.kind in {"wrong", "fails", "breaks"}:
            said = b"it is wrong." if self.kind == "wrong" else b"it is wrong, but later."
            return (400, said), goes_on
        if self.kind == "swift" and not self.size:
            return (400, b"it is empty."), goes_on
        path = f"/{self.kind}/{self.number}".encode()
        said = b"%b %d %b" % (path, self.size, self.body[-20:])
        return (200, said + b"x" * LARGE * (self.kind == "large")), goes_on


REQUESTS = st.builds(
    Wanted,
    kind=st.sampled_from(
        ["now", "now", "later", "wrong", "fails", "refused", "swift", "breaks", *["abreast"] * 4]
    ),
    number=st.integers(0, 99),
    size=st.sampled_from([0, 1, 2, 100, 1500, 65_535, 65_536, 65_537, MOST, MOST + 1])
    | st.integers(0, 300),
    chunked=st.booleans(),
    pieces=st.lists(st.integers(0, 2000), max_size=6).map(tuple),
    trailer=st.sampled_from([b"", b"", b"A: b\r\n", b"Content-Type: c\r\nHost: evil\r\n"]),
    old=st.sampled_from([False] * 12 + [True]),
    closes=st.sampled_from([False] * 12 + [True]),
    expects=st.sampled_from([False] * 4 + [True]),
    twice=st.sampled_from([False] * 12 + [True]),
    upgrades=st.sampled_from([False] * 12 + [True]),
)


@settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.data_too_large],
)
@given(
    wanted=st.lists(REQUESTS, min_size=1, max_size=8)
    | st.lists(REQUESTS, min_size=1, max_size=3).flatmap(
        lambda few: st.lists(st.sampled_from(few), min_size=4, max_size=9)
    ),
    cuts=st.lists(st.floats(0, 1), max_size=12),
    apart=st.booleans(),
    half=st.booleans(),
)
def test_any_mixture_is_answered_in_order(
    on: Callable[..., None],
    wanted: list[Wanted],
    cuts: list[float],
    apart: bool,  # noqa: FBT001
    half: bool,  # noqa: FBT001
) -> None:
    """As many and what they are to be, however the bytes were cut; and nothing is left."""
    each_by_itself = [each.to_bytes() for each in wanted]
    data = b"".join(each_by_itself)
    ends = list(itertools.accumulate(map(len, each_by_itself))) if apart else []
    at = sorted({0, len(data), *ends, *(int(cut * len(data)) for cut in cuts)})
    parts = [data[i:j] for i, j in itertools.pairwise(at)]
    expected: list[tuple[int, bytes]] = []
    goes_on = True
    for each in wanted:
        if not goes_on:
            break
        said, goes_on = each.answer()
        if said is not None:
            expected.append(said)

    async def story(line: Line) -> None:
        sending = asyncio.ensure_future(line.send(*parts))
        if goes_on and not half:
            await sending
            await line.send(request("/now/last", b"", "Connection: close"))
        elif half:
            await sending
            line.client.shutdown(socket.SHUT_WR)
        found = answers(await line.until(b""))
        sending.cancel()
        if goes_on and not half:
            assert found.pop() == (200, b"/now/last 0 ")
        assert [status for status, _ in found] == [status for status, _ in expected]
        assert line.site.statuses[: len(found)] == [status for status, _ in found]
        for (_, said), (_, must) in zip(found, expected, strict=True):
            assert said == must or not must

    on(story)


# -- one thing at a time --------------------------------------------------------------------------


def test_a_head_that_came_before_is_not_read_again(on: Callable[..., None]) -> None:
    """It says the same: another body follows, and who may ask is asked anew."""

    async def story(line: Line) -> None:
        first, second = request("/now/1", b"one"), request("/now/1", b"two")
        assert line.door.heads.split(first) is None
        await line.send(first)
        await line.until(b"one")
        known = line.door.heads.split(second)
        assert known is not None
        assert known[1] == b"two"
        await line.send(second)
        assert answers(await line.until(b"two")) == [
            (200, b"/now/1 3 one"),
            (200, b"/now/1 3 two"),
        ]
        assert line.site.seen[0] == line.site.seen[1]
        line.site.admit = _refuses  # type: ignore[method-assign]
        await line.send(first)
        assert answers(await line.until(b"such"))[-1] == (404, b"there is no such thing.")

    on(story)


def _refuses(*_: Any) -> Any:
    raise UnknownError("there is no such thing.")


@pytest.mark.parametrize(
    "data",
    [
        request("/refused/1", b"one"),
        request("/now/1", b"one", "IDEMPOTENCY-KEY: a"),
        request("/now/1", b"one", "Idempotency-Key: a b"),
        request("/now/1", b"one", "Connection: close"),
        request("/now/1", b"one", "Expect: 100-continue"),
        request("/now/1", b"one", "Upgrade: h2c", "Connection: Upgrade"),
        request("/now/1", chunks(b"one"), "Transfer-Encoding: chunked"),
        request("/now/1", b"one").replace(b"HTTP/1.1", b"HTTP/1.0"),
        request("/now/1", b"one", f"A: {'b' * 1024}"),
        request("/now/1", b"one") + b"\r\n",
        request("/now/1", b"one") * 2,
    ],
    ids=range(11),
)
def test_what_is_not_plain_is_read_each_time(on: Callable[..., None], data: bytes) -> None:
    async def story(line: Line) -> None:
        await line.send(data)
        await line.until(b"such" if b"refused" in data else b"one")
        assert line.door.heads.split(request("/now/1", b"one")) is None
        assert line.door.heads.split(data) is None

    on(story)


def test_a_key_is_other_each_time(on: Callable[..., None]) -> None:
    """All else of its head is the same, and so is known; also without any key."""
    a, b = (request("/now/1", b"one", f"Idempotency-Key: {key}", "A: b") for key in ("a", "{b}"))

    async def story(line: Line) -> None:
        for data in (a, b, request("/now/1", b"two", "A: b")):
            await line.send(data)
            await line.until(data[-3:])
            assert line.door.heads.split(b) is not None
        await line.until(b"two")
        keys = [headers.pop(b"idempotency-key", None) for headers in line.site.seen]
        assert keys == [b"a", b"{b}", None]
        assert line.site.seen[0] == line.site.seen[1] == line.site.seen[2]

    on(story)


LINES = [
    "Idempotency-Key: a", "Idempotency-Key: b", "idempotency-key: a", "Idempotency-key:c",
    "Idempotency-Key: a ", "Idempotency-Key: ", "IDEMPOTENCY-KEY: a", "Idempotency-Key: d e",
    "Idempotency-Key: \xe9", "X-Idempotency-Key: a", "A: b", " folded", "\tfolded", "A: ",
    "Idempotency-Key : a", "Idempotency-Key:  a", ": a", "A",
]  # fmt: skip


@pytest.mark.parametrize("seed", range(60))
def test_with_a_key_or_without_a_head_is_read_in_one_way(
    on: Callable[..., None], seed: int
) -> None:
    """Whatever was known before."""
    rng, known, found = np.random.default_rng(seed), Heads(), []

    def asked(data: bytes, heads: Heads) -> Any:
        async def story(line: Line) -> None:
            line.door.heads = heads
            await line.send(data)
            line.client.shutdown(socket.SHUT_WR)
            found.append((answers(await line.until(b"")), line.site.seen))

        on(story)
        return found.pop()

    some = rng.choice(LINES, 3, replace=False)
    before = ["", "\r\n", "\r\nIdempotency-Key: a\r\n", "\r\r\nIdempotency-Key: a\r\n"]
    for _ in range(20):
        data = request("/now/1", b"one", *rng.permutation(some)[: rng.integers(4)])
        data = before[rng.integers(4)].encode() * (seed % 2) + data
        assert asked(data, known) == asked(data, Heads())


def test_few_heads_are_kept() -> None:
    heads = Heads()
    for i in range(3000):
        head = b"POST /%d HTTP/1.1\r\n\r\n" % i
        assert heads.keep(head + b"body", len(head), Head("POST", b"/%d" % i, {}, 0))
    kept = [i for i in range(3000) if heads.split(b"POST /%d HTTP/1.1\r\n\r\n" % i)]
    assert kept == list(range(3000 - 1024, 3000))


def test_a_body_that_waits_to_be_asked_for_is_asked_for(on: Callable[..., None]) -> None:
    """Behind an answer that comes at once, and behind one that comes later."""

    async def story(line: Line) -> None:
        late = request("/now/b", b"", "Expect: 100-continue", "Content-Length: 2")
        for before in ("/now/a", "/later/a"):
            line.got = b""
            await line.send(request(before) + late)
            found = await line.until(CONTINUE)
            assert answers(found.partition(CONTINUE)[0]) == [(200, before.encode() + b" 0 ")]
            assert found.endswith(CONTINUE)
            await line.send(b"ok")
            assert answers(await line.until(b"ok")) == [
                (200, before.encode() + b" 0 "), (200, b"/now/b 2 ok")]  # fmt: skip

    on(story)


def test_http_1_0_is_asked_for_nothing(on: Callable[..., None]) -> None:
    async def story(line: Line) -> None:
        data = request("/now/a", b"ok", "Expect: 100-continue").replace(b"/1.1", b"/1.0")
        await line.send(data)
        assert (await line.until(b"")).startswith(b"HTTP/1.1 200")

    on(story)


def test_those_that_may_be_are_under_way_together(on: Callable[..., None]) -> None:
    """And are answered in order; what is another thing waits until they are."""

    async def story(line: Line) -> None:
        paths = ["/held/a", "/swift/b", "/abreast/c", "/breaks/d", "/now/e", "/abreast/f"]
        await line.send(b"".join(request(path) for path in paths))
        await asyncio.sleep(0.1)
        assert line.site.asked == [path.encode() for path in paths[:4]]
        assert line.state.tasks == {line.site.letters[0]}
        assert not line.got
        line.site.gate.set()
        found = answers(await line.until(b"/abreast/f 0 "))
        assert [status for status, _ in found] == [200, 400, 200, 400, 200, 200]
        assert [said for status, said in found if status == 200] == [
            f"{path} 0 ".encode() for path in paths[::2] + paths[5:]]  # fmt: skip

    on(story)


def test_what_is_answered_at_once_tells_of_its_turn(on: Callable[..., None]) -> None:
    """But not what is refused: it tells of nothing but itself."""

    async def story(line: Line) -> None:
        data = request("/held/a") + request("/swift/b", b"x") + request("/abreast/c")
        await line.send(data)
        await asyncio.sleep(0.05)
        assert line.site.asked == [b"/held/a", b"/swift/b"]
        line.site.gate.set()
        assert len(answers(await line.until(b"/abreast/c 0 "))) == 3
        assert line.site.asked == [b"/held/a", b"/swift/b", b"/swift/b", b"/abreast/c"]

    on(story)


def test_who_goes_on_asking_is_stopped(on: Callable[..., None]) -> None:
    """What had come when it was told to stop is answered; the last answer says that it ends."""

    async def story(line: Line) -> None:
        async def ask() -> None:
            with contextlib.suppress(ConnectionError):
                for i in itertools.count():
                    data = request(f"/held/{i}", b"x" * 20)
                    await asyncio.get_running_loop().sock_sendall(line.client, data)
                    await asyncio.sleep(0)

        asking = asyncio.ensure_future(ask())
        reading = asyncio.ensure_future(line.until(b"", 10.0))
        await asyncio.sleep(0.1)
        for each in list(line.door.connections):
            each.shutdown()
        await asyncio.sleep(0.1)  # it goes on asking, and is heard no more
        line.site.gate.set()
        found = answers(await reading)
        asking.cancel()
        assert len(found) >= connection._ABREAST
        assert [said.split()[0] for _, said in found] == line.site.asked
        assert line.got.count(b"connection: close") == 1
        assert b"connection: close" in line.got.split(b"HTTP/1.1 ")[-1]

    on(story)


def test_half_a_head_is_not_waited_for_when_it_stops(on: Callable[..., None]) -> None:
    async def story(line: Line) -> None:
        await line.send(request("/held/a") + request("/now/b")[:10])
        for _ in range(1000):
            if line.site.asked:
                break
            await asyncio.sleep(0.001)
        for each in list(line.door.connections):
            each.shutdown()
        await asyncio.sleep(1.2)  # longer than a request may take to come
        line.site.gate.set()
        assert answers(await line.until(b"")) == [(200, b"/held/a 0 ")]

    on(story, 1.0)


OLD = request("/held/a", b"", "Connection: keep-alive").replace(b"HTTP/1.1", b"HTTP/1.0")


@pytest.mark.parametrize(
    ("first", "second", "begun"),
    [
        (request("/abreast/a", b"x" * 5000), request("/held/b", b"x" * 4096), 2),
        (request("/held/a"), request("/held/b", b"x" * 4097), 1),
        (request("/held/a"), request("/refused/b"), 1),
        (OLD, request("/held/b"), 1),
        (request("/gated/a"), request("/held/b"), 1),
    ],
    ids=["short", "long", "refused", "behind the last", "behind a task"],
)
def test_others_wait_for_their_turn(
    on: Callable[..., None], first: bytes, second: bytes, begun: int
) -> None:
    async def story(line: Line) -> None:
        await line.send(first + second)
        await asyncio.sleep(0.05)
        assert len(line.site.asked) == begun
        line.site.gate.set()
        await line.send(request("/now/last"))
        last, count = (b"", 1) if first == OLD else (b"/now/last 0 ", 3)
        assert len(answers(await line.until(last))) == count

    on(story)


def test_only_so_many_are_under_way_together(on: Callable[..., None]) -> None:
    async def story(line: Line) -> None:
        count = 3 * connection._ABREAST
        await line.send(b"".join(request(f"/held/{i}") for i in range(count)))
        await asyncio.sleep(0.1)
        assert len(line.site.asked) == connection._ABREAST
        line.site.gate.set()
        found = answers(await line.until(b"/held/%d 0 " % (count - 1)))
        assert [said for _, said in found] == [b"/held/%d 0 " % i for i in range(count)]

    on(story)


def test_who_leaves_or_is_cut_off_leaves_nothing_of_many(on: Callable[..., None]) -> None:
    """Gone, or told to stop with no time left, while several are under way and more wait."""

    async def left(line: Line) -> None:
        await line.send(b"".join(request(f"/held/{i}", b"x" * 3000) for i in range(100)))
        await asyncio.sleep(0.05)
        line.client.close()
        await asyncio.sleep(0.05)
        line.site.gate.set()
        await line.ended()

    async def stopped(line: Line) -> None:
        await line.send(b"".join(request(f"/held/{i}", b"x" * 3000) for i in range(100)))
        await asyncio.sleep(0.05)
        for each in list(line.state.tasks):
            each.cancel(msg="it stops")
        assert await line.until(b"") == b""
        await line.ended()
        assert len(line.site.asked) == connection._ABREAST

    on(left)
    on(stopped)


def test_who_waits_behind_another_is_not_idle(on: Callable[..., None]) -> None:
    """Between two answers more time may pass than a connection is kept for."""

    async def story(line: Line) -> None:
        await line.send(request("/later/a") + request("/gated/b") + request("/now/c"))
        await line.until(b"/later/a 0 ")
        await asyncio.sleep(0.3)
        line.site.gate.set()
        assert [each for _, each in answers(await line.until(b"/now/c 0 "))] == [
            b"/later/a 0 ", b"/gated/b 0 ", b"/now/c 0 "]  # fmt: skip

    on(story, 0.1)


def test_what_is_not_read_meanwhile_is_not_late(on: Callable[..., None]) -> None:
    async def story(line: Line) -> None:
        third = request("/now/c", b"0123456789")
        await line.send(request("/gated/a") + request("/now/b") + third[:-5])
        await asyncio.sleep(0.3)
        line.site.gate.set()
        await line.until(b"/now/b 0 ")
        await line.send(third[-5:])
        assert answers(await line.until(b"456789"))[2] == (200, b"/now/c 10 0123456789")

    on(story, 0.1)


def test_who_has_sent_all_is_answered_though_half_of_a_request_follows(
    on: Callable[..., None],
) -> None:
    async def story(line: Line) -> None:
        await line.send(request("/gated/a") + request("/now/b", b"0123456789")[:-5])
        line.client.shutdown(socket.SHUT_WR)
        await asyncio.sleep(0.3)
        line.site.gate.set()
        assert answers(await line.until(b"")) == [(200, b"/gated/a 0 ")]

    on(story, 0.1)


def test_room_is_given_back_by_who_is_not_answered(on: Callable[..., None]) -> None:
    """Behind a request that ends the connection others may have come, with large bodies."""

    async def story(line: Line) -> None:
        body = b"x" * (MOST - 1)
        old = request("/gated/a", b"", "Connection: keep-alive").replace(b"/1.1", b"/1.0")
        await line.send(old, request("/now/b", body))
        await asyncio.sleep(0.1)
        line.site.gate.set()
        assert answers(await line.until(b"")) == [(200, b"/gated/a 0 ")]
        await line.ended()
        assert line.site.asked == [b"/gated/a"]

    on(story)


@pytest.mark.parametrize("chunked", [False, True])
def test_who_would_rather_have_another_protocol_is_heard(
    on: Callable[..., None],
    chunked: bool,  # noqa: FBT001
) -> None:
    """As Java's client asks, with the body behind it; no further request hides in it."""

    async def story(line: Line) -> None:
        lines = ["Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AA"]
        body, hidden = b"0123456789", request("/now/hidden")
        if chunked:
            lines.append("Transfer-Encoding: chunked")
            body = chunks(body[:4], body[4:])
        await line.send(request("/later/a", body, *lines)[:-3], body[-3:] + hidden)
        assert answers(await line.until(b"")) == [(200, b"/later/a 10 0123456789")]
        assert line.site.asked == [b"/later/a"]

    on(story)


def test_what_follows_a_body_says_nothing(on: Callable[..., None]) -> None:
    async def story(line: Line) -> None:
        trailer = b"Idempotency-Key: k\r\nContent-Encoding: gzip\r\nHost: evil\r\n"
        body = chunks(b"abc", trailer=trailer)
        await line.send(request("/now/a", body, "Transfer-Encoding: chunked"))
        assert answers(await line.until(b"abc")) == [(200, b"/now/a 3 abc")]
        assert line.site.seen == [{b"host": b"localhost", b"transfer-encoding": b"chunked"}]

    on(story)


@pytest.mark.parametrize("end", [b"a: b\r\n", b"a"])
def test_what_follows_a_body_is_bounded(on: Callable[..., None], end: bytes) -> None:
    async def story(line: Line) -> None:
        body = chunks(b"abc")[:-2]
        await line.send(request("/now/a", body, "Transfer-Encoding: chunked"))
        sending = asyncio.ensure_future(line.send(*[end * (60_000 // len(end))] * 100))
        assert (await line.until(b"too long")).startswith(b"HTTP/1.1 431")
        sending.cancel()

    on(story)


def test_small_chunks_take_no_more_than_they_hold(on: Callable[..., None]) -> None:
    async def story(line: Line) -> None:
        await line.send(request("/now/a", b"", "Transfer-Encoding: chunked"))
        pieces = [b"2\r\nab\r\n" * 1000] * (MOST // 2000)
        await line.send(pieces[0])
        tracemalloc.start()
        await line.send(*pieces[1:])
        took = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        await line.send(b"0\r\n\r\n")
        assert answers(await line.until(b"abab"))[0][1] == b"/now/a %d %b" % (MOST, b"ab" * 10)
        assert took < 3 * MOST

    on(story)


def test_the_end_of_a_connection_leaves_nothing(on: Callable[..., None]) -> None:
    """Whenever the client goes: while it asks, while it waits, while it is answered."""

    async def story(line: Line) -> None:
        for last in (
            request("/now/a", b"x" * (MOST - 1))[:-9],
            request("/gated/a", b"x" * (MOST - 1)) * 3,
            request("/large/a", b"x" * (MOST - 1)) * 3,
        ):
            line.site.gate.clear()
            sending = asyncio.ensure_future(line.send(last))
            await asyncio.sleep(0.05)
            sending.cancel()
            line.client.close()
            await asyncio.sleep(0.02)
            line.site.gate.set()
            await line.ended()
            await line.open()

    on(story)


def test_who_takes_nothing_is_let_go(on: Callable[..., None]) -> None:
    async def story(line: Line) -> None:
        await line.send(request("/large/a") * 3)
        for _ in range(200):
            await asyncio.sleep(0.01)
            if not line.door.connections:
                break
        assert not line.door.connections
        assert len(line.site.asked) < 3  # no more are made than are taken

    on(story, 0.2)


def test_nobodys_time_is_over_because_the_loop_stood_still(on: Callable[..., None]) -> None:
    """What came meanwhile has not been read yet."""

    async def story(line: Line) -> None:
        await line.send(request("/now/1", b"one"))
        await line.until(b"one")
        await asyncio.sleep(0.02)
        time.sleep(1.3)  # noqa: ASYNC251  as a long computation does
        await line.send(request("/now/1", b"two"))
        assert answers(await line.until(b"two"))[-1] == (200, b"/now/1 3 two")

    on(story, seconds=1.0)


def test_none_is_taken_while_it_stops(on: Callable[..., None]) -> None:
    async def story(line: Line) -> None:
        line.door.stop()
        line.client.close()
        await line.open()
        await line.send(request("/now/a"))
        assert await line.until(b"") == b""

    on(story)
