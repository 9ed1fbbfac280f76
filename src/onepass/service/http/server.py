"""Start, run and stop the server: uvicorn with httptools and, if installed, uvloop.

The first SIGINT or SIGTERM stops the server after the pending requests, the second immediately.
Acknowledged rows are on disk, so no signal loses them.
"""

from __future__ import annotations

import gc
import os
import signal
import socket
import ssl
import threading
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Self

from onepass.errors import ParameterError
from onepass.service.consumer import source
from onepass.service.source import Source

if TYPE_CHECKING:
    from starlette.types import ASGIApp

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_GRACE = 30  # seconds for pending requests when the server is stopped


class Stopping:
    """Context within which SIGINT and SIGTERM stop the service.

    Attributes
    ----------
    code : int
        Exit code: 128 plus the number of the signal; 0 before a signal.
    stop : callable
        Function that the first signal calls; raises KeyboardInterrupt by default. The second signal
        ends the process.
    """

    def __init__(self) -> None:
        self.code = 0
        self.stop: Callable[[], object] = partial(signal.default_int_handler, signal.SIGINT, None)
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for each in _SIGNALS:
                if signal.getsignal(each) is not signal.SIG_IGN:
                    self._before[each] = signal.signal(each, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        for each, before in self._before.items():
            signal.signal(each, before)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        del frame
        if self.code:
            os._exit(128 + number)
        self.code = 128 + number
        self.stop()


@dataclass(frozen=True)
class Listening:
    """Address and timeouts of the server.

    Parameters
    ----------
    host : str
        Address to listen on; 127.0.0.1 can be reached only from this machine.
    port : int
        Port; 0 for any free port.
    certificate, key : Path, optional
        PEM files, for TLS.
    request_timeout : float
        Seconds within which the headers and the body of a request must arrive.
    idle_timeout : float
        Seconds before a connection without a request is closed.
    """

    host: str = "127.0.0.1"
    port: int = 8080
    certificate: Path | None = None
    key: Path | None = None
    request_timeout: float = 30.0
    idle_timeout: float = 75.0

    def bind(self) -> list[socket.socket]:
        """Open listening sockets, one for each address of the host.

        Raises
        ------
        ParameterError
            If the address is in use or not available, or the PEM files cannot be loaded.
        """
        try:
            if self.certificate or self.key:
                ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(
                    self.certificate or "", self.key
                )
        except OSError as error:
            raise ParameterError(
                "--certificate and --key must be PEM files that belong together, got: "
                f"{error}. Check both paths, or create a new pair."
            ) from error
        if self.port >= 1 << 16:  # getaddrinfo would reduce it modulo 65536
            raise ParameterError(
                f"--port must be from 0 to 65535, got {self.port}. Choose another port."
            )
        sockets: list[socket.socket] = []
        unavailable = OSError("no address")
        try:
            addresses = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)
            for family, _, _, _, address in dict.fromkeys(addresses):
                port = sockets[0].getsockname()[1] if sockets else self.port
                try:
                    sockets.append(socket.create_server((address[0], port), family=family))
                except OSError as error:
                    unavailable = error  # for example, a container without IPv6
            if not sockets:
                raise unavailable
        except OSError as error:
            raise ParameterError(
                f"{self.host}:{self.port} must be a free address, but the server cannot "
                f"listen on it: {error.strerror or error}. Stop the process that "
                "listens there, or choose another --host or --port."
            ) from error
        return sockets


def run(
    app: ASGIApp,
    listening: Listening,
    sockets: list[socket.socket],
    ready: Callable[[str], None],
    stopping: Stopping,
    used_files: int = 128,
) -> None:
    """Serve requests until a signal; pending requests are completed first.

    Parameters
    ----------
    app : ASGI application
    listening : Listening
    sockets : list of socket
        Sockets that ``listening.bind`` returned; closed when the server stops.
    ready : callable
        Called with the URL once the server is configured.
    stopping : Stopping
    used_files : int
        Number of file descriptors that learners and Python use.
    """
    import uvicorn  # noqa: PLC0415  an optional dependency

    from onepass.service.http.connection import Connection, max_connections  # noqa: PLC0415

    class Server(uvicorn.Server):
        @contextmanager
        def capture_signals(self) -> Generator[None, None, None]:
            """Leave signals to ``stopping``."""
            yield

    protocol = type("Protocol", (Connection,), {
        "request_timeout": listening.request_timeout, "limit": max_connections(used_files),
    })  # fmt: skip
    config = uvicorn.Config(
        app, http=protocol, ws="none", lifespan="off", interface="asgi3", proxy_headers=False,
        log_config=None, access_log=False, server_header=False, backlog=4096,
        ssl_certfile=listening.certificate, ssl_keyfile=listening.key,
        timeout_keep_alive=listening.idle_timeout,  # type: ignore[arg-type]  # event loops accept floats
        timeout_graceful_shutdown=_GRACE,
    )  # fmt: skip
    server = Server(config)
    stopping.stop = lambda: setattr(server, "should_exit", True)
    port = sockets[0].getsockname()[1]
    host = f"[{listening.host}]" if ":" in listening.host else listening.host
    ready(f"{'http' if listening.certificate is None else 'https'}://{host}:{port}")
    gc.collect()
    gc.freeze()  # exclude imported modules from garbage collection, which delays requests
    server.run(sockets)


def parse_sources(addresses: Iterable[str]) -> list[tuple[str, Source]]:
    """Create sources, without reading them; return the name of the learner with each.

    Parameters
    ----------
    addresses : iterable of str
        Addresses in the form ``NAME=ADDRESS``, with the name of a learner, or ``ADDRESS``, with the
        empty name for the only learner; see ``consumer.source``.

    Raises
    ------
    ParameterError
        If an address is invalid.
    MissingExtraError
        If the package of a source is not installed.
    """
    sources = []
    for text in addresses:
        name, equals, address = text.partition("=")
        if "://" in name or not equals:
            name, address = "", text
        sources.append((name, source(address)))
    return sources
