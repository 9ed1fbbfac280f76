"""TLS: clients, connections without TLS, and shutdown with open connections."""

import json
import signal
import socket
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from web_server import Server, rows

from onepass.errors import ServiceError
from onepass.service import Client
from raising import raises


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A self-signed certificate of 127.0.0.1; its key is beside it."""
    folder = tmp_path_factory.mktemp("certificate")
    subprocess.run(
        ["openssl", "req",  # noqa: S607  whichever is there
         "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj",
         "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", "key.pem", "-out",
         "certificate.pem"],
        cwd=folder, check=True, capture_output=True,
    )  # fmt: skip
    return folder / "certificate.pem"


@pytest.fixture(scope="module")
def context(certificate: Path) -> ssl.SSLContext:
    """That of a client that trusts the certificate."""
    return ssl.create_default_context(cafile=str(certificate))


def tls_server(folder: Path, certificate: Path) -> Server:
    key = certificate.with_name("key.pem")
    return Server(folder / "data", "rls", "--certificate", str(certificate), "--key", str(key),
                  "--request-timeout", "1", "--idle-timeout", "1")  # fmt: skip


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, certificate: Path) -> Iterator[Server]:
    with tls_server(tmp_path_factory.mktemp("tls"), certificate) as running:
        yield running


def connect(server: Server, context: ssl.SSLContext) -> socket.socket:
    return context.wrap_socket(server.socket(), server_hostname="127.0.0.1")


@pytest.mark.parametrize("size", [1, 20_000], ids=["short request", "long request"])
def test_client_learns_and_predicts_over_tls(
    server: Server, context: ssl.SSLContext, size: int
) -> None:
    X = np.random.default_rng(0).normal(size=(size, 3))
    name = f"rows{size}"
    assert server.url.startswith("https://")
    with Client(server.url, context=context) as client:
        client.create(name, "rls")
        assert client.learn(name, X, X[:, 0]).version == 1
        results = client.learn_each(name, ((X[:1], X[:1, 0]) for _ in range(10)))
        assert [result.version for result in results] == list(range(2, 12))
        assert client.predict(name, X).shape == (size,)


def test_client_learns_after_an_idle_connection_is_closed(
    server: Server, context: ssl.SSLContext
) -> None:
    with Client(server.url, context=context) as client:
        client.create("idle", "rls")
        assert client.learn("idle", [[1.0], [2.0]], [1.0, 2.0]).version == 1
        with connect(server, context) as idle, suppress(ConnectionError, ssl.SSLError):
            idle.settimeout(10)
            assert idle.recv(1) == b""
        assert client.learn("idle", [[3.0]], [3.0]).version == 2


def test_an_unknown_certificate_raises_without_retries(server: Server) -> None:
    client = Client(server.url, retry_timeout=3600)
    with client, raises(ServiceError, remedy="cafile"):
        client.predict("rls", [[1.0]])


def test_requests_without_tls_have_no_response(server: Server) -> None:
    with server.socket() as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        connection.settimeout(5)
        with suppress(ConnectionResetError, TimeoutError):
            assert b"200" not in connection.recv(1000)


def test_shutdown_waits_no_longer_than_the_request_timeout(
    tmp_path: Path, certificate: Path, context: ssl.SSLContext
) -> None:
    """An incomplete request, an idle connection, and one without a TLS handshake."""
    body = json.dumps(rows([[1.0]], [1.0])).encode()
    head = (
        "POST /v2/models/rls/learn HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    server = tls_server(tmp_path, certificate)
    with server, connect(server, context) as half, connect(server, context), server.socket():
        half.sendall(head.encode())
        assert half.recv(1000) == b"HTTP/1.1 100 Continue\r\n\r\n"
        half.sendall(body[:-9])
        assert server.stop(signal.SIGTERM) == 143
        assert "Traceback" not in server.log.read_text()
