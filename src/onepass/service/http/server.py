"""Start, run and stop the server: uvicorn with httptools and, if it is installed, uvloop.

The first SIGINT or SIGTERM stops it after the pending requests, the second immediately. No
acknowledged row is lost either way: they are on disk.
"""

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

from onepass.errors import ParameterError, import_extra
from onepass.service.consumer import source
from onepass.service.http.log import log
from onepass.service.registry import ModelRegistry
from onepass.service.source import Source

if TYPE_CHECKING:
    from starlette.types import ASGIApp

__all__ = ["Listening", "Stopping", "consume", "open_registry", "parse_sources", "run"]

_WHERE = "onepass serve"
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_GRACE = 30  # seconds for pending requests when the server is stopped


class Stopping:
    """Within its context SIGINT and SIGTERM stop the service.

    Attributes
    ----------
    code : int
        Exit code after a signal, 128 plus its number; 0 before.
    stop : callable
        Called at the first signal; raises KeyboardInterrupt by default. The second signal ends the
        process.
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
    """Where the server listens, and its timeouts.

    Parameters
    ----------
    host : str
        The address; 127.0.0.1 is reached from this machine alone.
    port : int
        0 for any that is free.
    certificate, key : Path, optional
        Files of PEM, for TLS.
    request_timeout : float
        Seconds until a request must be complete, its head and its body.
    idle_timeout : float
        Seconds that a connection without a request stays open.
    """

    host: str = "127.0.0.1"
    port: int = 8080
    certificate: Path | None = None
    key: Path | None = None
    request_timeout: float = 30.0
    idle_timeout: float = 75.0

    def bind(self, where: str) -> list[socket.socket]:
        """Sockets that listen, one for each address of the host.

        Parameters
        ----------
        where : str
            The public call, for messages.

        Raises
        ------
        ParameterError
            If the address is not free, or the files of TLS cannot be read.
        """
        try:
            if self.certificate or self.key:
                ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(
                    self.certificate or "", self.key
                )
        except OSError as error:
            raise ParameterError(
                f"{where}: --certificate and --key must be PEM files that belong together, got: "
                f"{error}. Make them again, or give the right ones."
            ) from error
        if self.port >= 1 << 16:  # getaddrinfo would take the rest of it
            raise ParameterError(
                f"{where}: --port must be from 0 to 65535, got {self.port}. Choose another."
            )
        sockets: list[socket.socket] = []
        unavailable = OSError("no address")
        try:
            found = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)
            for family, _, _, _, address in dict.fromkeys(found):
                port = sockets[0].getsockname()[1] if sockets else self.port
                try:
                    sockets.append(socket.create_server((address[0], port), family=family))
                except OSError as error:
                    unavailable = error  # such as IPv6 in a container without it
            if not sockets:
                raise unavailable
        except OSError as error:
            raise ParameterError(
                f"{where}: {self.host}:{self.port} must be an address that is free, but the server "
                f"cannot listen on it: {error.strerror or error}. Stop what listens there, or "
                "choose another --host or --port."
            ) from error
        return sockets


def run(
    app: "ASGIApp",
    listening: Listening,
    sockets: list[socket.socket],
    ready: Callable[[str], None],
    stopping: Stopping,
) -> None:
    """Serve until a signal; requests under way are answered first.

    Parameters
    ----------
    app : ASGI application
    listening : Listening
    sockets : list of socket
        As ``listening.bind`` returned them; closed in the end.
    ready : callable
        Called with the address once the server is configured.
    stopping : Stopping
    """
    import uvicorn  # noqa: PLC0415  an extra

    from onepass.service.http.connection import Connection, max_connections  # noqa: PLC0415

    class Server(uvicorn.Server):
        @contextmanager
        def capture_signals(self) -> Generator[None, None, None]:
            """Leave signals to ``stopping``."""
            yield

    protocol = type("Protocol", (Connection,), {
        "request_timeout": listening.request_timeout, "limit": max_connections(),
    })  # fmt: skip
    config = uvicorn.Config(
        app, http=protocol, ws="none", lifespan="off", interface="asgi3", proxy_headers=False,
        log_config=None, access_log=False, server_header=False, backlog=4096,
        ssl_certfile=listening.certificate, ssl_keyfile=listening.key,
        timeout_keep_alive=listening.idle_timeout,  # type: ignore[arg-type]  # loops take floats
        timeout_graceful_shutdown=_GRACE,
    )  # fmt: skip
    server = Server(config)
    stopping.stop = lambda: setattr(server, "should_exit", True)
    port = sockets[0].getsockname()[1]
    host = f"[{listening.host}]" if ":" in listening.host else listening.host
    ready(f"{'http' if listening.certificate is None else 'https'}://{host}:{port}")
    gc.collect()
    gc.freeze()  # exclude imported modules from collections, which delay requests
    server.run(sockets)


def open_registry(folder: Path, **options: Any) -> ModelRegistry:
    """The learners of a folder, open.

    Parameters
    ----------
    folder : Path
    **options
        As :class:`~onepass.service.registry.ModelRegistry` takes them.

    Raises
    ------
    StoreError, ParameterError
        As opening them does.
    MissingExtraError
        If a package of the extra ``serve`` is not installed.
    """
    for package in ("starlette", "uvicorn", "httptools"):
        import_extra(package, extra="serve", where=_WHERE)
    registry = ModelRegistry(folder, _WHERE, **options)
    registry.open_all()
    return registry


def parse_sources(addresses: Iterable[str]) -> list[tuple[str, Source]]:
    """Sources, none of which is read yet, and the names of their learners.

    Parameters
    ----------
    addresses : iterable of str
        As ``consumer.source`` takes them; before each the name of its learner and ``=``, unless
        there is one alone, whose name is then "".

    Raises
    ------
    ParameterError
        If there is no such source.
    MissingExtraError
        If the package of a source is not installed.
    """
    found = []
    for each in addresses:
        name, equals, address = each.partition("=")
        if "://" in name or not equals:
            name, address = "", each
        found.append((name, source(address)))
    return found


def consume(registry: ModelRegistry, sources: Iterable[tuple[str, Source]]) -> None:
    """Learn from sources.

    Parameters
    ----------
    registry : ModelRegistry
    sources : iterable of tuple[str, Source]
        As ``parse_sources`` returns them.

    Raises
    ------
    ParameterError
        If there is no such learner, or the two do not fit.
    """
    for name, each in sources:
        names = registry.names
        if name not in names and (name or len(names) != 1):
            raise ParameterError(
                f"{_WHERE}: --source must be NAME=ADDRESS with the name of a served learner, or an "
                f"address if there is only one; there are {', '.join(names) or 'none'}, got "
                f"{name[:100] or 'no name'}. Name one of them."
            )
        registry.consume(name or names[0], each, log)
