"""Who comes over TLS, and what is kept of those who never say so, or never say that they go."""

import json
import signal
import socket
import ssl
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest
from web_server import Server, rows

from onepass.service import Client

LEARN = "/v2/models/rls/learn"


def guarded(folder: Path, *options: str) -> tuple[Server, ssl.SSLContext]:
    certificate, key = folder / "c.pem", folder / "k.pem"
    subprocess.run(  # noqa: S603  our own words
        ["openssl", "req",  # noqa: S607  whichever is there
         "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj",
         "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out",
         str(certificate)],
        check=True, capture_output=True,
    )  # fmt: skip
    server = Server(folder / "data", "rls", "--certificate", str(certificate), "--key", str(key),
                    "--request-timeout", "2", *options)  # fmt: skip
    return server, ssl.create_default_context(cafile=str(certificate))


def opened(server: Server, context: ssl.SSLContext) -> socket.socket:
    return context.wrap_socket(server.socket(), server_hostname="127.0.0.1")


def request_bytes(method: str, path: str, response: object) -> bytes:
    body = json.dumps(response).encode()
    head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def test_who_never_says_that_it_goes_holds_nothing_up(tmp_path: Path) -> None:
    """One that has a request half there, one that says nothing, one that has not even greeted."""
    server, context = guarded(tmp_path)
    with server, opened(server, context) as half, opened(server, context), server.socket():
        half.sendall(request_bytes("POST", LEARN, rows([[1.0]], [1.0]))[:-9])
        time.sleep(0.3)
        began = time.monotonic()
        assert server.stop(signal.SIGTERM) == 143
        assert time.monotonic() - began < 45  # uvicorn waits 30 seconds at most
        assert "Traceback" not in server.log.read_text()


@pytest.mark.parametrize("size", [1, 20_000])  # rows: sent in one piece, and in two
def test_the_client_asks_by_tls(tmp_path: Path, size: int) -> None:
    server, context = guarded(tmp_path)
    X = np.random.default_rng(0).normal(size=(size, 3))
    with server:
        address = server.url.replace("http:", "https:")
        with Client(address, context=context) as client:
            assert client.learn("rls", X, X[:, 0]).version == 1
            results = client.learn_each("rls", ((X[:1], X[:1, 0]) for _ in range(40)))
            assert [result.version for result in results][-1] <= 41
            assert client.predict("rls", X).shape == (size,)
