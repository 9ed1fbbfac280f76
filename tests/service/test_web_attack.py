"""Who means ill: requests within requests, slow ones, and too many of all; others are served."""

import contextlib
import hmac
import json
import shutil
import socket
import struct
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from web_server import Server, rows, send_request

import onepass as op
from onepass.errors import BusyError, ForbiddenError, UnauthorizedError
from onepass.service.http.auth import Tokens
from onepass.service.http.context import Budget

INFER, LEARN = "/v2/models/rls/infer", "/v2/models/rls/learn"
GET = b"GET /v2 HTTP/1.1\r\nHost: localhost\r\n"
ONE = json.dumps(rows([[1]], [9])).encode()
HIDDEN = b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s" % (
    LEARN.encode(), len(ONE), ONE)  # fmt: skip
POST = b"POST %s HTTP/1.1\r\nHost: localhost\r\n" % INFER.encode()
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("attack")
    op.save(op.RLSRegressor(ridge=1e-6), folder / "rls.onepass")
    options = (
        str(folder / "rls.onepass"),
        "--request-timeout",
        "2",
        "--idle-timeout",
        "2",
        "--max-bytes",
        "1000000",
    )
    with Server(folder / "data", *options) as running:
        assert running.send("POST", LEARN, rows([[1], [2]], [1, 2]))[0] == 200
        yield running
        log = running.log.read_text()
        assert "Traceback" not in log, log[-4000:]


def seen(server: Server) -> tuple[int, int]:
    found = server.send("GET", "/state")[1]["models"][0]
    return found["rows_seen"], found["version"]


def memory(server: Server) -> int:
    """Bytes of memory that the server has."""
    assert server.process is not None
    response = Path(f"/proc/{server.process.pid}/statm")
    return int(response.read_text().split()[1]) * 4096 if response.exists() else 0


def answers(server: Server, data: bytes) -> list[bytes]:
    """The first words of all that comes back, until the connection ends or nothing comes."""
    found = b""
    with server.socket() as line, contextlib.suppress(ConnectionError, TimeoutError):
        line.settimeout(1)
        line.sendall(data)
        while part := line.recv(65536):
            found += part
    return [b"HTTP/1.1 " + each[:3] for each in found.split(b"HTTP/1.1 ")[1:]]


# -- requests within requests ---------------------------------------------------------------------

SMUGGLED = {
    "two lengths": POST + b"Content-Length: 0\r\nContent-Length: %d\r\n\r\n" % len(HIDDEN) + HIDDEN,
    "the same length twice": POST + b"Content-Length: 4\r\nContent-Length: 4\r\n\r\nnull" + HIDDEN,
    "lengths in one": POST + b"Content-Length: 0, %d\r\n\r\n" % len(HIDDEN) + HIDDEN,
    "length and chunks": CHUNKED + b"Content-Length: 4\r\n\r\n0\r\n\r\n" + HIDDEN,
    "chunks and length": POST + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    + HIDDEN,
    "chunks that are none": POST + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n" + HIDDEN,
    "chunks, then not": POST + b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n" + HIDDEN,
    "chunks behind a tab": POST + b"Transfer-Encoding:\x0bchunked\r\n\r\n0\r\n\r\n" + HIDDEN,
    "a blank before the colon": POST + b"Content-Length : %d\r\n\r\n" % len(HIDDEN) + HIDDEN,
    "a folded line": POST + b"X: a\r\n Content-Length: %d\r\n\r\n" % len(HIDDEN) + HIDDEN,
    "a length with a sign": POST + b"Content-Length: +%d\r\n\r\n" % len(HIDDEN) + HIDDEN,
    "a length below nothing": POST + b"Content-Length: -1\r\n\r\n" + HIDDEN,
    "a length in hexadecimal": POST + b"Content-Length: 0x10\r\n\r\n" + HIDDEN,
    "a length with a fraction": POST + b"Content-Length: 1e1\r\n\r\n" + HIDDEN,
    "a length beyond 64 bits": POST + b"Content-Length: 18446744073709551617\r\n\r\n" + HIDDEN,
    "a chunk beyond 64 bits": CHUNKED + b"\r\n10000000000000001\r\nx\r\n0\r\n\r\n" + HIDDEN,
    "a chunk below nothing": CHUNKED + b"\r\n-1\r\nx\r\n0\r\n\r\n" + HIDDEN,
    "a chunk with 0x": CHUNKED + b"\r\n0x1\r\nx\r\n0\r\n\r\n" + HIDDEN,
    "a chunk without its end": CHUNKED + b"\r\n1\r\nxx\r\n0\r\n\r\n" + HIDDEN,
    "lines that end bare": (POST + b"Content-Length: 0\r\n\r\n").replace(b"\r\n", b"\r") + HIDDEN,
    "nothing in a name": POST + b"a\x00b: c\r\n\r\n" + HIDDEN,
    "nothing in a value": POST + b"a: b\x00c\r\n\r\n" + HIDDEN,
    "a blank in a name": POST + b"a b: c\r\n\r\n" + HIDDEN,
    "an end in a value": POST + b"a: b\rContent-Length: 0\r\n\r\n" + HIDDEN,
    "two hosts": POST + b"Host: evil.example\r\nContent-Length: %d\r\n\r\n" % len(HIDDEN) + HIDDEN,
    "another version": GET.replace(b"1.1", b"9.9") + b"\r\n" + HIDDEN,
    "no version": b"GET /v2\r\n" + HIDDEN,
    "version 2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + HIDDEN,
    "to be a tunnel": b"CONNECT localhost:80 HTTP/1.1\r\nHost: localhost\r\n\r\n" + HIDDEN,
    "to be another protocol": GET + b"Connection: Upgrade\r\nUpgrade: h2c\r\n\r\n" + HIDDEN,
    "a body where none is": GET + b"Content-Length: %d\r\n\r\n" % len(HIDDEN) + HIDDEN,
    "a path that is none": b"GET \xff\xfe HTTP/1.1\r\nHost: localhost\r\n\r\n" + HIDDEN,
}  # fmt: skip


def test_no_request_hides_in_another(server: Server) -> None:
    before = seen(server)
    with ThreadPoolExecutor(8) as all_at_once:
        found = all_at_once.map(lambda data: answers(server, data), SMUGGLED.values())
        answered = dict(zip(SMUGGLED, found, strict=True))
    assert seen(server) == before, answered
    for name in ("a body where none is", "to be another protocol"):
        assert len(answered.pop(name)) <= 1
    refused = ([], [b"HTTP/1.1 400"])
    assert not {name: each for name, each in answered.items() if each not in refused}


def test_one_of_two_tokens_is_none(tmp_path: Path) -> None:
    (tmp_path / "tokens").write_text("learn " + "l" * 20 + "\npredict " + "p" * 20)
    with Server(tmp_path / "data", "rls", "--tokens", str(tmp_path / "tokens")) as server:
        for first, second in ("lp", "pl", "ll"):
            bearer = "".join(f"Authorization: Bearer {each * 20}\r\n" for each in (first, second))
            assert answers(server, GET + bearer.encode() + b"\r\n") == [b"HTTP/1.1 400"]


# -- slow, and many -------------------------------------------------------------------------------


def closed(line: socket.socket) -> bool:
    """Whether the server has ended the connection; what it has said before is passed over."""
    line.settimeout(0)
    try:
        while line.recv(65536):
            pass
    except (BlockingIOError, TimeoutError):
        return False
    except OSError:
        pass
    return True


def test_five_hundred_slow_clients_are_disconnected(server: Server) -> None:
    """A byte now and then, of heads and of bodies: all are ended in time, and others served."""
    before = memory(server)
    slow = [server.socket() for _ in range(500)]
    body = POST + b"Content-Length: 500000\r\n\r\n"
    for i, line in enumerate(slow):
        line.sendall(body if i % 2 else b"G")
    began, took, left = time.monotonic(), [], slow
    while left and time.monotonic() - began < 15:
        at = time.monotonic()
        assert server.send("POST", INFER, rows([[1.0]]))[0] == 200
        took.append(time.monotonic() - at)
        left = [line for line in left if not closed(line)]
        for line in left:
            with contextlib.suppress(OSError):
                line.sendall(b"E")
        time.sleep(0.3)
    assert not left
    assert memory(server) - before < 64 << 20
    for line in slow:
        line.close()
    assert len(took) > 3


def test_clients_that_read_no_responses_are_disconnected(server: Server) -> None:
    """Answers of eight megabytes, more than the system keeps, of which nothing is read."""
    n = 400_000
    head = b'{"inputs":[{"name":"X","shape":[%d,1],"datatype":"FP64","data":[' % n
    body = head + b"1," * (n - 1) + b"1]}]}"
    request = POST + b"Content-Length: %d\r\n\r\n" % len(body) + body
    lines = []
    for _ in range(8):
        line = socket.socket()
        line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        line.connect(("127.0.0.1", server.port))
        line.sendall(request)
        lines.append(line)
    assert server.send("POST", INFER, rows([[1.0]]))[0] == 200
    time.sleep(8)
    for line in lines:
        line.settimeout(10)
        size = 0
        with contextlib.suppress(ConnectionError):
            while part := line.recv(65536):
                size += len(part)
        line.close()
        assert size < 6_000_000


@pytest.mark.parametrize("stray", [b"\r\n", b"\r\n\r\n"])
@pytest.mark.parametrize(
    "first", [GET + b"\r\n", GET + b"Connection: Upgrade\r\nUpgrade: x\r\n\r\n"]
)
def test_an_idle_connection_ends_whatever_is_sent(
    server: Server, first: bytes, stray: bytes
) -> None:
    with server.socket() as line:
        line.sendall(first)
        assert line.recv(65536).startswith(b"HTTP/1.1 200")
        began = time.monotonic()
        with contextlib.suppress(ConnectionError):
            line.sendall(stray)
            while line.recv(65536):
                pass
        assert time.monotonic() - began < 10


def test_heads_of_many_lines_are_bounded(server: Server) -> None:
    before = memory(server)
    many = b"".join(b"h%d: x\r\n" % i for i in range(200_000))
    found = answers(server, GET + many + b"\r\n")
    assert found in ([], [b"HTTP/1.1 431"])
    assert memory(server) - before < 64 << 20


def test_long_bodies_share_a_budget(server: Server) -> None:
    """Forty times the longest body, none of them whole: of those in excess each is turned away."""
    before = memory(server)
    part = POST + b"Content-Length: 1000000\r\n\r\n" + b" " * 950_000
    lines = [server.socket() for _ in range(40)]

    def send(line: socket.socket) -> None:
        with contextlib.suppress(OSError):
            line.sendall(part)

    threads = [threading.Thread(target=send, args=(line,)) for line in lines]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert server.send("POST", INFER, rows([[1.0]]))[0] == 200
    assert memory(server) - before < 64 << 20
    statuses = []
    for line in lines:
        line.settimeout(10)
        with contextlib.suppress(ConnectionError):
            statuses.append(line.recv(12))
        line.close()
    assert set(statuses) <= {b"HTTP/1.1 429", b"HTTP/1.1 408", b""}
    assert statuses.count(b"HTTP/1.1 429") >= 20
    for _ in range(3):
        status = server.send("POST", INFER, b" " * 900_000)[0]
        assert status == 400  # there is room again


def test_the_budget_is_released() -> None:
    room = Budget(10)
    room.reserve(7)
    with pytest.raises(BusyError, match="at most 10 bytes"):
        room.reserve(4)
    room.reserve(-7)
    room.reserve(10)


@pytest.mark.skipif(shutil.which("prlimit") is None, reason="no prlimit here")
def test_connections_leave_files_for_learners(tmp_path: Path) -> None:
    server = Server(tmp_path / "data", "rls", "--request-timeout", "2")
    server.before = ["prlimit", "--nofile=256"]
    with server:
        lines = []
        for _ in range(600):
            with contextlib.suppress(OSError):
                lines.append(server.socket())
        time.sleep(0.5)
        ended = sum(closed(line) for line in lines)
        assert ended >= 600 - 256 // 2
        time.sleep(3.5)  # the others have sent nothing for so long
        assert all(closed(line) for line in lines)
        assert server.send("POST", LEARN, rows([[1.0]], [1.0]))[0] == 200
        assert server.send("PUT", "/v2/models/new", {"model": "rls"})[0] == 201
        assert server.send("POST", "/v2/models/rls/snapshot")[0] == 200
        for line in lines:
            line.close()
        assert "Traceback" not in server.log.read_text()


def test_thousands_of_idle_connections(server: Server) -> None:
    import resource

    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    n = min(10_000, files - 500)
    if n < 100:
        pytest.skip(f"only {files} files may be open here")
    before = memory(server)
    with contextlib.ExitStack() as all_of_them:
        for _ in range(n):
            all_of_them.enter_context(server.socket())
        assert server.send("POST", INFER, rows([[1.0]]))[0] == 200
        assert memory(server) - before < 40_000 * n
    assert server.send("POST", LEARN, rows([[1.0]], [1.0]))[0] == 200


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("PUT", "/v2/models/deep", b'{"model":"rls","settings":{"a":' + b"[" * 60_000),
        ("PUT", "/v2/models/deep", b'{"model":"rls","settings":' + b'{"a":' * 3000),
        ("POST", "/v2/models/rls/rollback", b'{"to":' + b"[" * 60_000),
        ("POST", INFER, json.dumps(rows([[1]], ask=True, seconds=10**400)).encode()),
    ],
)  # fmt: skip
def test_what_is_deep_or_huge_is_refused(
    server: Server, method: str, path: str, body: bytes
) -> None:
    assert server.send(method, path, body)[0] == 400


# -- what is in them ------------------------------------------------------------------------------


@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("where", ["X", "y"])
def test_what_is_not_finite_is_not_learned(server: Server, odd: float, where: str) -> None:
    before = seen(server)
    values = {"X": 1.0, "y": 1.0, where: odd}
    request = rows([[1.0]], [1.0])
    for tensor in request["inputs"]:
        del tensor["data"]
        tensor["parameters"] = {"binary_data_size": 8}
    response = json.dumps(request).encode()
    body = response + struct.pack("<dd", values["X"], values["y"])
    header = {"Inference-Header-Content-Length": str(len(response))}
    assert server.send("POST", LEARN, body, header)[0] == 400
    text = {np.inf: "1e999", -np.inf: "-Infinity"}.get(odd, "NaN")
    request = rows([[1.0]], [1.0])
    for tensor in request["inputs"]:
        tensor["data"] = ["?"] if tensor["name"] == where else tensor["data"]
    body = json.dumps(request).replace('"?"', text).encode()
    assert server.send("POST", LEARN, body)[0] == 400
    assert seen(server) == before


def test_packed_arrow_is_bounded(server: Server) -> None:
    import gzip

    before = memory(server)
    table = pa.table({"a": np.zeros(40_000_000), "y": np.zeros(40_000_000)})
    kind = {"Content-Type": "application/vnd.apache.arrow.stream"}
    for packing in ("zstd", "lz4", None):
        sink = pa.BufferOutputStream()
        options = pa.ipc.IpcWriteOptions(compression=packing)
        with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
            writer.write_table(table.slice(0, 40_000_000 if packing else 1_000_000))
        body = sink.getvalue().to_pybytes()
        more = {} if packing else {"Content-Encoding": "gzip"}
        body = body if packing else gzip.compress(body)
        status = server.send("POST", LEARN, body, {**kind, **more})[0]
        assert status in {400, 413}
    assert memory(server) - before < 64 << 20


def test_all_tokens_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """However early one is right or wrong, it takes as long: none tells how much of it was."""
    names = ["a" * 16, "b" * 16, "c" * 16]
    tokens = Tokens({name: ["learn"] for name in names})
    counted: list[Any] = []
    whole = hmac.compare_digest

    def compared(one: bytes, other: bytes) -> bool:
        counted.append((one, other))
        return whole(one, other)

    monkeypatch.setattr(hmac, "compare_digest", compared)

    def fields(token: str) -> dict[bytes, bytes]:
        return {b"authorization": f"Bearer {token}".encode()}

    for token in (*names, "a" * 15 + "b", "", "x"):
        counted.clear()
        if token in names:
            tokens.check(fields(token), "learn")
            with pytest.raises(ForbiddenError):
                tokens.check(fields(token), "admin")
            assert len(counted) == 6
        else:
            with pytest.raises(UnauthorizedError):
                tokens.check(fields(token), "learn")
            assert len(counted) == 3
        assert all(len(one) == len(other) == 32 for one, other in counted)


def test_a_learner_with_a_bad_name_is_not_made(server: Server) -> None:
    folder = server.folder
    before = sorted(each.name for each in folder.iterdir())
    for name in (
        "..",
        "%2e%2e",
        "%2e%2e%2fx",
        "..%2f..%2fx",
        "%00",
        "x%00y",
        "x%0ay",
        "%c3%a9",
        ".",
    ):
        status, response, _ = send_request(
            server.port, "PUT", f"/v2/models/{name}", {"model": "rls"}
        )
        assert status in {400, 404}
        assert str(folder) not in response["error"]
    assert sorted(each.name for each in folder.iterdir()) == before
