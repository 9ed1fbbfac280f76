"""Running: the service on a port, until it is told to stop."""

import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onepass.errors import ParameterError
from onepass.extras import need
from onepass.service.web.stopping import Stopping

__all__ = ["Listening", "run"]

_LONGEST = 30  # seconds for what is under way when it is told to stop
_IDLE = 30  # seconds that a connection is kept for another request


@dataclass(frozen=True)
class Listening:
    """Where to listen, and to whom.

    Parameters
    ----------
    host : str
        The address; 127.0.0.1 is reached from this machine alone.
    port : int
        0 for any that is free.
    certificate, key : Path, optional
        Files of PEM, for TLS.
    seconds : float, default 30
        Within which a request must be there, its headers and its body.

    Raises
    ------
    ParameterError
        If there is no such port.
    """

    host: str = "127.0.0.1"
    port: int = 8080
    certificate: Path | None = None
    key: Path | None = None
    seconds: float = 30.0

    def __post_init__(self) -> None:
        if not 0 <= self.port < 1 << 16:  # uvloop would take the rest of it
            raise ParameterError(
                f"serve: --port must be a number from 0 to 65535, got {self.port}. Choose another."
            )

    @property
    def scheme(self) -> str:
        """What its address begins with."""
        return "http" if self.certificate is None else "https"


def run(
    app: Any,
    listening: Listening,
    ready: Callable[[str], None],
    stopping: Stopping,
    where: str,
) -> None:
    """Serve until it is told to stop; what is under way is answered first.

    Parameters
    ----------
    app : ASGI application
    listening : Listening
    ready : callable
        Called with the address when it listens.
    stopping : Stopping
        What tells it.
    where : str
        The public call, for messages.

    Raises
    ------
    ParameterError
        If the port is taken, or the files of TLS are none.
    MissingExtraError
        If uvicorn is not installed.
    """
    uvicorn = need("uvicorn", extra="serve", where=where)
    from onepass.service.web.connection import (  # noqa: PLC0415  an extra
        connection,
        most_connections,
        swept,
    )

    class Server(uvicorn.Server):  # type: ignore[misc, name-defined]  # an extra
        async def startup(self, sockets: Any = None) -> None:
            await super().startup(sockets)
            found = self.servers[0].sockets[0].getsockname()
            ready(f"{listening.scheme}://{_host(listening.host)}:{found[1]}")

        async def on_tick(self, counter: int) -> bool:
            if counter % 10 == 0:
                swept(self.server_state.connections, listening.seconds)
            return bool(await super().on_tick(counter))

        @contextmanager
        def capture_signals(self) -> Iterator[None]:
            with stopping.by(self.stop):
                yield

        def stop(self) -> None:
            self.should_exit = True

    config = _config(uvicorn, app, listening, connection(most_connections()), where)
    try:
        Server(config).run()
    except SystemExit as failed:
        raise ParameterError(
            f"{where}: {listening.host}:{listening.port} must be an address that is free, but it "
            "could not be listened on. Stop what listens there, or choose another --port."
        ) from failed


def _config(uvicorn: Any, app: Any, listening: Listening, protocol: Any, where: str) -> Any:
    if (listening.certificate is None) != (listening.key is None):
        raise ParameterError(
            f"{where}: for TLS there must be a certificate and a key, got one of them. Give both."
        )
    config = uvicorn.Config(
        app,
        host=listening.host,
        port=listening.port,
        http=protocol,
        ws="none",
        lifespan="off",
        interface="asgi3",
        proxy_headers=False,
        log_config=None,
        access_log=False,
        server_header=False,
        ssl_certfile=listening.certificate,
        ssl_keyfile=listening.key,
        timeout_graceful_shutdown=_LONGEST,
        timeout_keep_alive=_IDLE,
        backlog=4096,
    )
    try:
        config.load()
    except (OSError, ssl.SSLError) as failed:
        raise ParameterError(
            f"{where}: certificate and key must be files of PEM that belong together, got: "
            f"{failed}. Make them anew, or give the right ones."
        ) from failed
    return config


def _host(host: str) -> str:
    return f"[{host}]" if ":" in host else host
