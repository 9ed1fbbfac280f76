"""A server in a process of its own, and plain requests to it."""

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest
from forked_python import ForkedPython

for package in ("msgspec", "uvicorn", "httptools"):
    pytest.importorskip(package)

TOKEN = "0123456789abcdef-admin"  # noqa: S105  none that opens anything
_PROGRAM = "import sys; from onepass.cli import main; sys.exit(main())"
_SET_LIMIT = "import resource; resource.setrlimit(resource.RLIMIT_{}, ({}, {})); "
_AT = re.compile(r"Listening on (https?)://([^:]+):(\d+)")


class Server:
    """``onepass serve``, until the context ends.

    Parameters
    ----------
    folder : Path
        Its data.
    *options : str
    token : str, optional

    Attributes
    ----------
    program : str
        What Python executes.
    before : list of str
        Command that executes Python with its arguments, such as ``prlimit``; without one the
        server is forked from a process that has it loaded.
    log : Path
        Its standard error.
    """

    def __init__(self, folder: Path, *options: str, token: str | None = None) -> None:
        self.program, self.before = _PROGRAM, list[str]()
        self.log = Path(f"{folder}.log")
        self.folder, self.options, self.token = folder, options, token
        self.port = 0
        self.process: subprocess.Popen[bytes] | ForkedPython | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        if self.process is not None:
            self.kill()

    def set_limit(self, name: str, value: int) -> None:
        """Limit a resource of the server, such as NOFILE, from its next start on."""
        self.program = _SET_LIMIT.format(name, value, value) + self.program

    def start(self) -> None:
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
        environment.pop("ONEPASS_TOKEN", None)
        if self.token is not None:
            environment["ONEPASS_TOKEN"] = self.token
        arguments = ["serve", *self.options, "--data", str(self.folder), "--port", str(self.port)]
        if self.before:
            with self.log.open("w") as log:
                self.process = subprocess.Popen(  # noqa: S603  our own words
                    [*self.before, sys.executable, "-c", self.program, *arguments],
                    env=environment, stderr=log,
                )  # fmt: skip
        else:
            self.log.write_text("")
            self.process = ForkedPython(
                self.program, *arguments, environment=environment, stderr=self.log
            )
        while self.process.poll() is None:
            found = _AT.search(self.log.read_text())
            if found:
                self.scheme, self.port = found[1], int(found[3])
                return
            time.sleep(0.005)
        raise AssertionError(self.log.read_text())

    @property
    def url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.port}"

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stop(self, number: int = signal.SIGTERM) -> int:
        """The exit code, after a signal."""
        assert self.process is not None
        self.process.send_signal(number)
        return self.process.wait(timeout=60)

    def send(
        self,
        method: str,
        path: str,
        body: Any = None,
        headers: dict[str, str] | None = None,
        **named: Any,
    ) -> tuple[int, Any, Any]:
        """Status, body and headers of a response."""
        return send_request(self.port, method, path, body, headers, token=self.token, **named)

    def socket(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=20)


def send_request(
    port: int,
    method: str,
    path: str,
    body: Any = None,
    headers: dict[str, str] | None = None,
    *,
    token: str | None = None,
) -> tuple[int, Any, Any]:
    """Status, body (decoded if it is JSON) and headers of a response."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    sent = dict(headers or {})
    if token is not None:
        sent.setdefault("Authorization", f"Bearer {token}")
    data = body if body is None or isinstance(body, (bytes, str)) else json.dumps(body)
    try:
        connection.request(method, path, data, sent)
        answer = connection.getresponse()
        found = answer.read()
    finally:
        connection.close()
    plain = answer.headers.get("content-type") == "application/json" and found
    return answer.status, json.loads(found) if plain else found, answer.headers


def rows(X: Any, y: Any = None, **parameters: Any) -> dict[str, Any]:
    """A request of the Open Inference Protocol."""
    inputs = [{"name": "X", "shape": [len(X), len(X[0])], "datatype": "FP64",
               "data": [float(v) for row in X for v in row]}]  # fmt: skip
    if y is not None:
        inputs.append({"name": "y", "shape": [len(y)], "datatype": "FP64", "data": list(y)})
    found: dict[str, Any] = {"inputs": inputs}
    if parameters:
        found["parameters"] = parameters
    return found


def output(answer: Any, name: str = "y") -> Any:
    """The values of a tensor of a response."""
    return next(each["data"] for each in answer["outputs"] if each["name"] == name)


def unchanging_state(server: Server) -> list[dict[str, Any]]:
    """The fields of ``/state`` that a refused request must not change, for each model."""
    fields = ("name", "version", "rows_seen", "snapshots", "positions", "prequential_error",
              "nbytes")  # fmt: skip
    models = server.send("GET", "/state")[1]["models"]
    return [{field: model[field] for field in fields} for model in models]


def wait_until_idle_connections_close(server: Server) -> None:
    """Wait until the service closes all connections that are idle now."""
    request = b"GET /v2/health/live HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with server.socket() as connection:
        connection.sendall(request)
        while connection.recv(65536):
            pass
