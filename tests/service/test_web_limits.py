"""Limits of requests: size, time, paths, methods, hosts, tokens and queued rows."""

import gzip
import json
import sys
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from web_server import TOKEN, Server, rows, send_request

from onepass.errors import ParameterError
from onepass.service.http.auth import Tokens, check_safe

INFER, LEARN = "/v2/models/rls/infer", "/v2/models/rls/learn"
MOST = 20_000
ROLES = {"predict": "p" * 20, "learn": "l" * 20, "admin": TOKEN}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A service without tokens, with low limits."""
    folder = tmp_path_factory.mktemp("limits")
    options = ("rls", "--max-bytes", str(MOST), "--max-rows", "100", "--request-timeout", "1")
    with Server(folder / "data", *options) as running:
        assert running.send("POST", LEARN, rows([[1], [2]], [1, 2]))[0] == 200
        yield running


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("tokens")
    (folder / "tokens").write_text("".join(f"{k} {v}\n" for k, v in ROLES.items()))
    with Server(folder / "data", "rls", "--tokens", str(folder / "tokens")) as running:
        yield running


def sent(server: Server, data: bytes, *, wait: float = 10.0) -> bytes:
    """The response to bytes, until the server closes the connection."""
    with server.socket() as line:
        line.sendall(data)
        line.settimeout(wait)
        parts = []
        while part := line.recv(65536):
            parts.append(part)
        return b"".join(parts)


def head(*lines: str) -> bytes:
    return "".join(f"{line}\r\n" for line in (*lines, "")).encode("latin-1")


def test_size_of_bodies_is_limited(server: Server) -> None:
    long = b"x" * (MOST + 1)
    status, response, _ = server.send("POST", INFER, long)
    assert (status, "20,000 bytes" in response["error"]) == (413, True)
    chunk = b"%x\r\n%s\r\n" % (len(long), long)
    request = head(f"POST {INFER} HTTP/1.1", "Host: localhost", "Transfer-Encoding: chunked",
                   "Connection: close") + chunk + b"0\r\n\r\n"  # fmt: skip
    assert sent(server, request).startswith(b"HTTP/1.1 413")
    for packed in (gzip.compress(b"0" * 10_000_000), zlib.compress(b"0" * 10_000_000)):
        assert len(packed) < MOST
        status, _, _ = server.send("POST", INFER, packed, {"Content-Encoding": "gzip"})
        assert status == 413
    assert server.send("POST", INFER, rows([[1]] * 101))[0] == 400


def test_compressed_bodies_must_be_complete(server: Server) -> None:
    plain = json.dumps(rows([[1]])).encode()
    for body, kind, status in (
        (gzip.compress(plain), "gzip", 200),
        (zlib.compress(plain), "deflate", 200),
        (gzip.compress(plain), "GZIP", 200),
        (plain, "identity", 200),
        (gzip.compress(plain)[:-1], "gzip", 400),
        (gzip.compress(plain) + b"x", "gzip", 400),
        (plain, "gzip", 400),
        (plain, "br", 400),
    ):
        found = server.send("POST", INFER, body, {"Content-Encoding": kind})
        assert found[0] == status, (kind, found[1])


def test_slow_requests_time_out(server: Server) -> None:
    body = head(f"POST {INFER} HTTP/1.1", "Host: localhost", "Content-Length: 100") + b"{"
    with ThreadPoolExecutor(4) as pool:
        incomplete_body = pool.submit(sent, server, body)
        incomplete_head = pool.submit(sent, server, b"GET /v2 HTTP/1.1\r\nHost: ")
        nothing = pool.submit(sent, server, b"")
        slow_bytes = pool.submit(
            sent_slowly, server, b"GET /v2 HTTP/1.1\r\nHost: localhost\r\n" * 9
        )
    assert incomplete_body.result().startswith(b"HTTP/1.1 408")
    assert incomplete_head.result().startswith(b"HTTP/1.1 408")
    assert nothing.result() == b""
    assert slow_bytes.result()[:12] in {b"", b"HTTP/1.1 408"}


def sent_slowly(server: Server, data: bytes) -> bytes:
    """The response to bytes that are sent one by one, until the server closes the connection."""
    with server.socket() as line:
        line.settimeout(0.1)
        for byte in data:
            try:
                line.sendall(bytes([byte]))
                return line.recv(1000)
            except TimeoutError:
                continue
            except OSError:
                return b""
    raise AssertionError("the connection was not closed")


@pytest.mark.parametrize(
    "path",
    [
        "/..", "/../etc/passwd", "/page/..%2f..%2fapp.py", "/page/../app.py", "/page/%00",
        "/v2/models/rls%2finfer/infer", "/v2/models/%2e%2e/infer", "/v2/models/%00", "/v2/models/",
        "/v2/models//infer", "/V2", "/v2/", "//", "/v2/models/rls/infer/",
        "/v2/models/" + "a" * 9000,
        "/v2/models/%ff%fe", "/v2/models/rls%0d%0aX-Evil:%201",
    ],
)  # fmt: skip
def test_unknown_paths_are_not_found(server: Server, path: str) -> None:
    status, response, headers = server.send("GET", path)
    assert (status, list(response)) == (405 if path.endswith("%2e%2e/infer") else 404, ["error"])
    assert "x-evil" not in headers


def test_methods_not_allowed_and_head(server: Server) -> None:
    status, _, headers = server.send("GET", INFER)
    assert (status, headers["allow"]) == (405, "POST")
    assert server.send("PATCH", "/v2/models/rls")[2]["allow"] == "DELETE, GET, HEAD, PUT"
    assert server.send("OPTIONS", "/")[0] == 405
    whole, bare = server.send("GET", "/v2"), server.send("HEAD", "/v2")
    assert bare[:2] == (200, b"")
    assert bare[2]["content-length"] == whole[2]["content-length"]
    for name in ("..", "a/b", "", "-x", "a" * 101, "%00", "x y"):
        found = server.send("PUT", f"/v2/models/{name.replace(' ', '%20')}", {"model": "rls"})
        assert found[0] in {400, 404}


def test_page_is_served_with_etag(server: Server) -> None:
    status, body, headers = server.send("GET", "/")
    assert (status, b"<html" in body) == (200, True)
    assert "default-src 'self'" in headers["content-security-policy"]
    same = server.send("GET", "/", headers={"If-None-Match": headers["etag"]})
    assert same[:2] == (304, b"")
    assert server.send("GET", "/page/page.js")[0] == 200
    assert server.send("GET", "/page/none.js")[0] == 404


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "evil.example"}, 403),
        ({"Host": "evil.example:8080"}, 403),
        ({"Host": "[::1]:80"}, 200),
        ({"Host": "localhost:80"}, 200),
        ({"Host": "["}, 403),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Host": "localhost:1", "Origin": "http://localhost:1"}, 200),
        ({"Host": "localhost:1", "Origin": "http://localhost:2"}, 403),
    ],
)
def test_requests_from_other_hosts_and_origins_are_forbidden(
    server: Server, headers: dict[str, str], status: int
) -> None:
    assert server.send("POST", INFER, rows([[1]]), headers)[0] == status


def test_roles_of_tokens(guarded: Server) -> None:
    def status(role: str, method: str, path: str, body: Any = None) -> int:
        token = ROLES.get(role, role or None)
        return send_request(guarded.port, method, path, body, token=token)[0]

    for role in ("", "wrong-token-wrong-token", "ü" * 20):
        assert status(role, "POST", INFER, rows([[1]])) == 401
        assert status(role, "GET", "/state") == 401
        assert status(role, "GET", "/v2/health/live") == 200
        assert status(role, "GET", "/") == 200
    assert status("predict", "POST", LEARN, rows([[1]], [1])) == 403
    assert status("learn", "POST", LEARN, rows([[1]], [1])) == 200
    assert status("predict", "POST", INFER, rows([[1]])) == 200
    assert status("learn", "DELETE", "/v2/models/rls") == 403
    assert status("learn", "PUT", "/v2/models/new", {"model": "rls"}) == 403
    assert status("admin", "POST", "/v2/models/rls/snapshot") == 200
    basic = {"Authorization": f"Basic {TOKEN}"}
    found = send_request(guarded.port, "GET", "/v2", headers=basic)
    assert (found[0], found[2]["www-authenticate"]) == (401, 'Bearer realm="onepass"')
    assert (
        send_request(guarded.port, "GET", "/v2", headers={"Host": "any.example"}, token=TOKEN)[0]
        == 200
    )
    log = guarded.log.read_text()
    assert not any(token in log for token in ROLES.values())


def test_token_files_are_parsed() -> None:
    tokens = Tokens.parse("# all\n\npredict,learn " + "a" * 16 + "\nadmin " + "a" * 16, "here")
    assert repr(tokens) == "<1 tokens>"
    for text in ("", "admin", "king " + "a" * 16, "admin short", "admin " + "ü" * 16):
        with pytest.raises(ParameterError) as error:
            Tokens.parse(text, "here")
        assert "a" * 16 not in str(error.value)
    for host in ("0.0.0.0", "::", "192.168.1.1", "example.org"):  # noqa: S104  it is refused
        with pytest.raises(ParameterError):
            check_safe(host, Tokens({}))
    for host in ("127.0.0.1", "127.1.2.3", "::1", "localhost"):
        check_safe(host, Tokens({}))


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_refused_rows_are_released(tmp_path: Path) -> None:
    """Tracebacks of errors do not keep the rows alive."""
    n, d = 1000, 1000
    with Server(tmp_path / "data", "sgd") as server:
        path = "/v2/models/sgd/learn"
        assert server.send("POST", path, *binary(n, d))[0] == 200
        before = resident(server)
        for error in (binary(n, d - 1), binary(n, d, np.inf)):
            for _ in range(20):  # 8 MB each
                assert server.send("POST", path, *error)[0] == 400
        assert resident(server) - before < 200


def binary(n: int, d: int, value: float = 1.0) -> tuple[bytes, dict[str, str]]:
    """Body and headers of a request to learn equal rows."""
    X, y = np.full((n, d), value).tobytes(), np.ones(n).tobytes()
    inputs = [
        {"name": name, "shape": shape, "datatype": "FP64",
         "parameters": {"binary_data_size": len(data)}}
        for name, shape, data in (("X", [n, d], X), ("y", [n], y))
    ]  # fmt: skip
    response = json.dumps({"inputs": inputs}).encode()
    return response + X + y, {"Inference-Header-Content-Length": str(len(response))}


def resident(server: Server) -> float:
    """Memory of a server in MB."""
    text = Path(f"/proc/{server.process.pid}/status").read_text(encoding="utf-8")
    return int(text.partition("VmRSS:")[2].split()[0]) / 1024


def test_too_many_queued_rows_are_429(tmp_path: Path) -> None:
    import threading

    with Server(tmp_path / "data", "rls", "--max-queued", "1") as server:
        server.send("POST", LEARN, rows([[1]], [1]))
        found: list[Any] = []

        def learn() -> None:
            found.append(server.send("POST", LEARN, rows([[1], [2]], [1, 2])))

        threads = [threading.Thread(target=learn) for _ in range(40)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        busy = [headers for status, _, headers in found if status == 429]
        assert {status for status, _, _ in found} <= {200, 429}
        assert all(headers["retry-after"] == "1" for headers in busy)
        state = server.send("GET", "/state")[1]["models"][0]
        assert state["rows_seen"] == 1 + 2 * (40 - len(busy))
