"""Attacks: hidden, slow, huge and numerous requests; other requests are still served."""

import contextlib
import hmac
import json
import os
import socket
import struct
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from waiting import until
from web_server import Server, rows, send_request

import onepass as op
from onepass.errors import BusyError, ForbiddenError, UnauthorizedError
from onepass.service.http.auth import Tokens
from onepass.service.http.context import Budget

INFER, LEARN = "/v2/models/rls/infer", "/v2/models/rls/learn"
GET = b"GET /v2 HTTP/1.1\r\nHost: localhost\r\n"
CLOSE = b"Connection: close\r\n"
ONE = json.dumps(rows([[1]], [9])).encode()
HIDDEN = b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s" % (
    LEARN.encode(), len(ONE), ONE)  # fmt: skip
POST = b"POST %s HTTP/1.1\r\nHost: localhost\r\n" % INFER.encode()
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("attack")
    op.save(op.RLSRegressor(ridge=1e-6), folder / "rls.onepass")
    options = ["--request-timeout", "1", "--idle-timeout", "1", "--max-bytes", "1000000"]
    with Server(folder / "data", str(folder / "rls.onepass"), *options) as running:
        assert running.send("POST", LEARN, rows([[1], [2]], [1, 2]))[0] == 200
        yield running
        log = running.log.read_text()
        assert "Traceback" not in log, log[-4000:]


def seen(server: Server) -> tuple[int, int]:
    found = server.send("GET", "/state")[1]["models"][0]
    return found["rows_seen"], found["version"]


def memory(server: Server) -> int:
    """Resident memory of the server in bytes."""
    assert server.process is not None
    response = Path(f"/proc/{server.process.pid}/statm")
    return int(response.read_text().split()[1]) * 4096 if response.exists() else 0


def open_files(server: Server) -> int:
    """Open file descriptors of the server."""
    assert server.process is not None
    return len(os.listdir(f"/proc/{server.process.pid}/fd"))  # noqa: PTH208


def answers(server: Server, data: bytes) -> list[bytes]:
    """Status lines of the responses, until the connection is closed or silent for a second."""
    found = b""
    with server.socket() as line, contextlib.suppress(ConnectionError, TimeoutError):
        line.settimeout(1)
        line.sendall(data)
        while part := line.recv(65536):
            found += part
    return [b"HTTP/1.1 " + each[:3] for each in found.split(b"HTTP/1.1 ")[1:]]


# -- hidden requests -------------------------------------------------------------------------------

INVALID = {
    "two lengths": POST + b"Content-Length: 0\r\nContent-Length: %d\r\n\r\n" % len(HIDDEN) + HIDDEN,
    "length and chunks": CHUNKED + b"Content-Length: 4\r\n\r\n0\r\n\r\n" + HIDDEN,
    "negative length": POST + b"Content-Length: -1\r\n\r\n" + HIDDEN,
    "chunk beyond 64 bits": CHUNKED + b"\r\n10000000000000001\r\nx\r\n0\r\n\r\n" + HIDDEN,
    "folded header": POST + b"X: a\r\n Content-Length: %d\r\n\r\n" % len(HIDDEN) + HIDDEN,
    "two hosts": POST + b"Host: evil.example\r\nContent-Length: %d\r\n\r\n" % len(HIDDEN) + HIDDEN,
    "HTTP/2 preface": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + HIDDEN,
    "tunnel": b"CONNECT localhost:80 HTTP/1.1\r\nHost: localhost\r\n\r\n" + HIDDEN,
    "body of a GET": GET + b"Content-Length: %d\r\n\r\n" % len(HIDDEN) + HIDDEN,
}  # fmt: skip


def test_requests_hidden_in_other_requests_are_not_handled(server: Server) -> None:
    before = seen(server)
    with ThreadPoolExecutor(len(INVALID)) as pool:
        found = pool.map(lambda data: answers(server, data), INVALID.values())
        statuses = dict(zip(INVALID, found, strict=True))
    assert seen(server) == before, statuses
    assert len(statuses.pop("body of a GET")) <= 1
    refused = ([], [b"HTTP/1.1 400"])
    assert not {name: each for name, each in statuses.items() if each not in refused}


def test_two_authorization_headers_are_refused(tmp_path: Path) -> None:
    (tmp_path / "tokens").write_text("learn " + "l" * 20 + "\npredict " + "p" * 20)
    with Server(tmp_path / "data", "rls", "--tokens", str(tmp_path / "tokens")) as server:
        for first, second in ("lp", "pl", "ll"):
            bearer = "".join(f"Authorization: Bearer {each * 20}\r\n" for each in (first, second))
            assert answers(server, GET + CLOSE + bearer.encode() + b"\r\n") == [b"HTTP/1.1 400"]


# -- slow and numerous requests --------------------------------------------------------------------


def closed(line: socket.socket) -> bool:
    """Whether the server has closed the connection; what it sent before is discarded."""
    line.settimeout(0)
    try:
        while line.recv(65536):
            pass
    except (BlockingIOError, TimeoutError):
        return False
    except OSError:
        pass
    return True


def test_slow_clients_are_disconnected(server: Server) -> None:
    """Clients that send a byte now and then, of headers or of bodies; others are served."""
    before = memory(server)
    slow = [server.socket() for _ in range(100)]
    body = POST + b"Content-Length: 500000\r\n\r\n"
    for i, line in enumerate(slow):
        line.sendall(body if i % 2 else b"G")
    left = slow
    for _ in range(600):
        if not left:
            break
        assert server.send("POST", INFER, rows([[1.0]]))[0] == 200
        left = [line for line in left if not closed(line)]
        for line in left:
            with contextlib.suppress(OSError):
                line.sendall(b"E")
        time.sleep(0.1)
    assert not left
    assert memory(server) - before < 64 << 20
    for line in slow:
        line.close()


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_clients_that_read_no_responses_are_disconnected(server: Server) -> None:
    """Responses of eight megabytes, more than the system's buffers."""
    n, files = 400_000, open_files(server)
    head = b'{"inputs":[{"name":"X","shape":[%d,1],"datatype":"FP64","data":[' % n
    body = head + b"1," * (n - 1) + b"1]}]}"
    request = POST + b"Content-Length: %d\r\n\r\n" % len(body) + body
    lines = []
    for _ in range(3):
        line = socket.socket()
        line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        line.connect(("127.0.0.1", server.port))
        line.sendall(request)
        lines.append(line)
    assert server.send("POST", INFER, rows([[1.0]]))[0] == 200
    until(lambda: open_files(server) <= files)
    for line in lines:
        line.settimeout(10)
        size = 0
        with contextlib.suppress(ConnectionError):
            while part := line.recv(65536):
                size += len(part)
        line.close()
        assert size < 6_000_000


@pytest.mark.parametrize(
    ("first", "stray"),
    [
        (GET + b"\r\n", b"\r\n"),
        (GET + b"Connection: Upgrade\r\nUpgrade: x\r\n\r\n", b"\r\n\r\n"),
    ],
    ids=["plain", "upgrade"],
)
def test_stray_bytes_do_not_keep_an_idle_connection_open(
    server: Server, first: bytes, stray: bytes
) -> None:
    with server.socket() as line:
        line.sendall(first)
        assert line.recv(65536).startswith(b"HTTP/1.1 200")
        with contextlib.suppress(ConnectionError):
            line.sendall(stray)
            while line.recv(65536):  # which times out if the connection is not closed
                pass


def test_size_of_headers_is_limited(server: Server) -> None:
    before = memory(server)
    many = b"".join(b"h%d: x\r\n" % i for i in range(20_000))
    found = answers(server, GET + many + b"\r\n")
    assert found in ([], [b"HTTP/1.1 431"])
    assert memory(server) - before < 64 << 20


def test_request_bodies_share_a_memory_budget(server: Server) -> None:
    """Forty incomplete bodies of the maximal length; those beyond the budget get 429."""
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


def test_budget_is_released() -> None:
    room = Budget(10)
    room.reserve(7)
    with pytest.raises(BusyError, match="at most 10 bytes"):
        room.reserve(4)
    room.reserve(-7)
    room.reserve(10)


@pytest.mark.skipif(sys.platform == "win32", reason="no such limits")
def test_connections_leave_file_descriptors_for_learners(tmp_path: Path) -> None:
    server = Server(tmp_path / "data", "rls", "--request-timeout", "1")
    server.set_limit("NOFILE", 256)
    with server:
        lines = []
        for _ in range(600):
            with contextlib.suppress(OSError):
                lines.append(server.socket())
        until(lambda: sum(map(closed, lines)) >= 600 - 256 // 2)
        until(lambda: all(map(closed, lines)))  # after the request timeout
        assert server.send("POST", LEARN, rows([[1.0]], [1.0]))[0] == 200
        assert server.send("PUT", "/v2/models/new", {"model": "rls"})[0] == 201
        assert server.send("POST", "/v2/models/rls/snapshot")[0] == 200
        for line in lines:
            line.close()
        assert "Traceback" not in server.log.read_text()


def test_memory_of_idle_connections_is_bounded(server: Server) -> None:
    import resource

    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    n = min(2_000, files - 500)
    if n < 100:
        pytest.skip(f"only {files} files may be open here")
    before = memory(server)
    with contextlib.ExitStack() as connections:
        for _ in range(n):
            connections.enter_context(server.socket())
        assert server.send("POST", INFER, rows([[1.0]]))[0] == 200
        assert memory(server) - before < 40_000 * n
    assert server.send("POST", LEARN, rows([[1.0]], [1.0]))[0] == 200


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("PUT", "/v2/models/deep", b'{"model":"rls","settings":{"a":' + b"[" * 60_000),
        ("PUT", "/v2/models/deep", b'{"model":"rls","settings":' + b'{"a":' * 3000),
        ("POST", "/v2/models/rls/rollback", b'{"to":' + b"[" * 60_000),
        ("POST", INFER, json.dumps(rows([[1]], await_label=True, seconds=10**400)).encode()),
    ],
)  # fmt: skip
def test_deeply_nested_or_huge_json_is_refused(
    server: Server, method: str, path: str, body: bytes
) -> None:
    assert server.send(method, path, body)[0] == 400


# -- contents --------------------------------------------------------------------------------------


@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("where", ["X", "y"])
def test_values_that_are_not_finite_are_refused(server: Server, odd: float, where: str) -> None:
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


def test_memory_of_compressed_arrow_streams_is_bounded(server: Server) -> None:
    import gzip

    before = memory(server)
    table = pa.table({"a": np.zeros(20_000_000), "y": np.zeros(20_000_000)})
    kind = {"Content-Type": "application/vnd.apache.arrow.stream"}
    for packing in ("zstd", "lz4", None):
        sink = pa.BufferOutputStream()
        options = pa.ipc.IpcWriteOptions(compression=packing)
        with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
            writer.write_table(table.slice(0, 20_000_000 if packing else 1_000_000))
        body = sink.getvalue().to_pybytes()
        more = {} if packing else {"Content-Encoding": "gzip"}
        body = body if packing else gzip.compress(body)
        status = server.send("POST", LEARN, body, {**kind, **more})[0]
        assert status in {400, 413}
    assert memory(server) - before < 64 << 20


def test_tokens_are_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each request's token is compared with all digests, by ``hmac.compare_digest``."""
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


def test_invalid_model_names_are_refused(server: Server) -> None:
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
