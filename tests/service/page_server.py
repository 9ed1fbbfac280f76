"""A server of the page with a state, status and token that tests set."""

import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from onepass.service.page import HEADERS, file


class Player:
    """The page at ``url``, behind a prefix, and a state beside it.

    ``state`` is what the next answer says, bytes are sent as they are; a ``status`` other than 200
    comes instead of it, and ``token`` must be brought if there is one. ``requests_count`` counts,
    and ``queries`` are what follows the question mark. ``others`` has status and body of other
    paths, ``requested`` those that were requested, and ``posted`` the bodies.
    """

    def __init__(self, state: Any) -> None:
        self.state: Any | Callable[[], Any] = state
        self.status = 200
        self.token = ""
        self.requests_count = 0
        self.brought: list[str | None] = []
        self.unknown: list[str] = []
        self.queries: list[str] = []
        self.others: dict[str, tuple[int, Any]] = {}
        self.requested: list[str] = []
        self.posted: list[tuple[str, Any]] = []
        self.silent = threading.Event()
        self._open: set[socket.socket] = set()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}/behind/a prefix/"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))

    def _handler(self) -> type[BaseHTTPRequestHandler]:  # noqa: C901  methods of a class
        player = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self) -> None:
                super().setup()
                player._open.add(self.connection)

            def finish(self) -> None:
                player._open.discard(self.connection)
                with contextlib.suppress(OSError):
                    super().finish()

            def do_GET(self) -> None:
                name, _, query = self.path.removeprefix("/behind/a%20prefix/").partition("?")
                found = file(name.removeprefix("page/") if name else "index.html")
                if name in player.others:
                    player.requested.append(name)
                    status, content = player.others[name]
                    self.answer(status, json.dumps(content).encode())
                elif name == "state":
                    player.queries.append(query)
                    self.answer(*player.reply(self.headers.get("Authorization")))
                elif found is None:
                    player.unknown.append(self.path)
                    self.answer(404, b"")
                elif self.headers.get("If-None-Match") == found.tag:
                    self.answer(304, b"", ETag=found.tag, **HEADERS)
                else:
                    headers = {"Content-Type": found.kind, "ETag": found.tag, **HEADERS}
                    self.answer(200, found.body, **headers)

            def do_POST(self) -> None:
                name = self.path.removeprefix("/behind/a%20prefix/")
                body = self.rfile.read(int(self.headers["Content-Length"]))
                player.posted.append((name, json.loads(body) if body else None))
                status, content = player.others[name]
                self.answer(status, json.dumps(content).encode())

            def answer(self, status: int, body: bytes, **headers: str) -> None:
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Nothing."""

        return Handler

    def reply(self, brought: str | None) -> tuple[int, bytes]:
        self.requests_count += 1
        self.brought.append(brought)
        while self.silent.is_set():
            time.sleep(0.02)
        if self.token and brought != f"Bearer {self.token}":
            return 401, b'{"error": "a token is needed"}'
        if self.status != 200:
            return self.status, b"oh"
        state = self.state() if callable(self.state) else self.state
        return 200, state if isinstance(state, bytes) else json.dumps(state).encode()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Stop the server and close its connections."""
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
            for each in list(self._open):
                with contextlib.suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)
            self._server.server_close()
