"""Start, run and stop the HTTP server.

The first SIGINT or SIGTERM stops it in order, the second at once. Stopping at once loses nothing:
everything acknowledged is on disk.
"""

import asyncio
import gc
import os
import signal
import socket
import ssl
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, ModuleType
from typing import TYPE_CHECKING, Any, Self

from onepass.errors import ParameterError, need
from onepass.service.consumer import source
from onepass.service.http.app import logged
from onepass.service.http.door import Door, Site
from onepass.service.registry import Shelf
from onepass.service.source import Source

if TYPE_CHECKING:
    from uvicorn.config import Config

    from onepass.service.http.app import Application
    from onepass.service.http.auth import Tokens

__all__ = ["Listening", "Stopping", "fed", "read", "run", "shelved", "started"]


_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Stopping:
    """Within its context SIGINT and SIGTERM stop the service.

    Where a signal is ignored, it stays so; in threads that hear no signals, nothing is changed.

    Attributes
    ----------
    code : int
        The exit code of who was told to stop, 128 and the signal's number; 0 of who was not.
    """

    def __init__(self) -> None:
        self.code = 0
        self._stop: Callable[[], None] = _interrupt
        self._before: dict[int, object] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for each in _SIGNALS:
                before = signal.getsignal(each)
                if before is not signal.SIG_IGN:
                    self._before[each] = before
                    signal.signal(each, self._heard)
        return self

    def __exit__(self, *_: object) -> None:
        for each, before in self._before.items():
            signal.signal(each, before)  # type: ignore[arg-type]  # as getsignal gave it
        self._before.clear()

    @contextmanager
    def by(self, stop: Callable[[], None]) -> Iterator[None]:
        """Within this context the first signal calls this, instead of interrupting.

        Parameters
        ----------
        stop : callable
        """
        if self.code:
            stop()
        self._stop = stop
        try:
            yield
        finally:
            self._stop = _interrupt

    def _heard(self, number: int, frame: FrameType | None) -> None:
        del frame
        if self.code:
            os._exit(128 + number)
        self.code = 128 + number
        self._stop()


def _interrupt() -> None:
    raise KeyboardInterrupt


if sys.platform != "win32":
    import resource

_LONGEST = 30  # seconds for what is under way when it is told to stop
_SWITCH = 1e-5  # seconds for which one thread has the interpreter while another wants it
_NEW = 20_000  # objects, until it is looked for garbage among them
_FILES = 128  # that are left to learners and to Python


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

    def hold_free(self, where: str) -> None:
        """Refuse what cannot be listened on, before there is anything to serve.

        Parameters
        ----------
        where : str
            The public call, for messages.

        Raises
        ------
        ParameterError
        """
        if (self.certificate is None) != (self.key is None):
            raise ParameterError(
                f"{where}: for TLS there must be a certificate and a key, got one of them. Give "
                "both."
            )
        for option, path in {"--certificate": self.certificate, "--key": self.key}.items():
            if path is not None and not path.is_file():
                raise ParameterError(
                    f"{where}: {option} must be a file of PEM, got {path}, which is none. Choose "
                    "another."
                )
        try:
            found = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)
            with socket.socket(*found[0][:3]) as trial:
                trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                trial.bind(found[0][4])
        except OSError as failed:
            raise self.taken(where) from failed

    def taken(self, where: str) -> ParameterError:
        """What is said where it cannot be listened on.

        Parameters
        ----------
        where : str
        """
        return ParameterError(
            f"{where}: {self.host}:{self.port} must be an address that is free, but it could not "
            "be listened on. Stop what listens there, or choose another --port."
        )


def run(
    site: Site,
    listening: Listening,
    ready: Callable[[str], None],
    stopping: Stopping,
    where: str,
) -> None:
    """Serve until it is told to stop; what is under way is answered first.

    Parameters
    ----------
    site : Site
        What answers.
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
    from onepass.service.http.greeting import met  # noqa: PLC0415  an extra

    class Server(uvicorn.Server):  # type: ignore[misc, name-defined]  # an extra
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            self.looking = asyncio.ensure_future(door.looks())
            found = self.servers[0].sockets[0].getsockname()
            ready(f"{listening.scheme}://{_host(listening.host)}:{found[1]}")

        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            door.stop()
            await super().shutdown(sockets)
            self.looking.cancel()

        @contextmanager
        def capture_signals(self) -> Iterator[None]:
            with stopping.by(self.stop):
                yield

        def stop(self) -> None:
            self.should_exit = True

    door: Door
    context: ssl.SSLContext | None
    config = _config(uvicorn, site, listening, lambda **_: met(door, context), where)
    context = _context(config)
    server = Server(config)
    door = Door(site, server.server_state, listening.seconds, _most_connections())
    try:
        with _quick():
            server.run()
    except SystemExit as failed:
        raise listening.taken(where) from failed


def _config(
    uvicorn: ModuleType,
    site: Site,
    listening: Listening,
    protocol: Callable[..., asyncio.Protocol],
    where: str,
) -> "Config":
    config: Config = uvicorn.Config(
        site,  # only handed on: no ASGI is spoken
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


def _context(config: "Config") -> ssl.SSLContext | None:
    """What speaks TLS, if that is not left to the loop: there sockets cannot be taken out of it."""
    if sys.platform == "win32":
        return None
    context: ssl.SSLContext | None
    context, config.ssl = config.ssl, None
    return context


def _host(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _most_connections() -> int:
    """How many there may be, so that files are left for all else."""
    if sys.platform == "win32":
        return 1 << 30
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return 1 << 30 if files == resource.RLIM_INFINITY else max(files - _FILES, files // 2)


@contextmanager
def _quick() -> Iterator[None]:
    """Within this context nobody waits long for the interpreter.

    The event loop gives it back and takes it again so often that a thread which learns, and waits
    for it, is woken each time too late: Python has the loop hand it over only if nothing of the
    kind has happened for an interval. And to look for garbage among all that was imported takes
    longer than a hundred requests: so all that is there is taken for good, and of what is new,
    which are mostly requests under way, many are waited for.
    """
    before, often = sys.getswitchinterval(), gc.get_threshold()
    sys.setswitchinterval(_SWITCH)
    gc.collect()
    gc.freeze()
    gc.set_threshold(_NEW, *often[1:])
    try:
        yield
    finally:
        gc.set_threshold(*often)
        gc.unfreeze()
        sys.setswitchinterval(before)


_WHERE = "onepass serve"


def shelved(folder: Path, **options: Any) -> Shelf:
    """The learners of a folder, open.

    Parameters
    ----------
    folder : Path
    **options
        As :class:`~onepass.service.registry.Shelf` takes them.

    Raises
    ------
    StoreError, ParameterError
        As opening them does.
    """
    for package in ("msgspec", "uvicorn", "httptools"):
        need(package, extra="serve", where=_WHERE)
    shelf = Shelf(folder, _WHERE, **options)
    shelf.open_all()
    return shelf


def read(sources: Iterable[str]) -> list[tuple[str, Source]]:
    """Sources by their addresses, none of which is asked yet; with the name of a learner, or none.

    Parameters
    ----------
    sources : iterable of str
        Addresses, as ``consumer.source`` takes them; before each the name of its
        learner and ``=``, unless there is one alone.

    Raises
    ------
    ParameterError
        If there is no such source.
    MissingExtraError
        If the package of a source is not installed.
    """
    found = []
    for said in sources:
        name, equals, address = said.partition("=")
        if "://" in name or not equals:
            name, address = "", said
        found.append((name, source(address)))
    return found


def fed(shelf: Shelf, sources: Iterable[tuple[str, Source]]) -> None:
    """Have learners learn what sources bring.

    Parameters
    ----------
    shelf : Shelf
    sources : iterable of tuple[str, Source]
        As ``read`` gives them.

    Raises
    ------
    ParameterError
        If there is no such learner, or the two do not fit.
    """
    for name, each in sources:
        names = shelf.names
        if name not in names and (name or len(names) != 1):
            raise ParameterError(
                f"{_WHERE}: --source must be NAME=ADDRESS, of a learner that is served, or an "
                f"address where there is one alone; there are {', '.join(names) or 'none'}, got "
                f"{name[:100] or 'no name'}. Name one of them."
            )
        shelf.feed(name or names[0], each, logged)


def started(
    shelf: Shelf,
    *,
    tokens: "Tokens",
    most_bytes: int,
    most_rows: int,
    first: str | None,
    patience: float = 60.0,
) -> "Application":
    """The application.

    Parameters
    ----------
    shelf : Shelf
    tokens : Tokens
    most_bytes, most_rows : int
        Of one request.
    first : str, optional
        The learner that answers ``/invocations``.
    patience : float, default 60
        Seconds within which rows must be on the disk.
    """
    from onepass.service.http.app import Application  # noqa: PLC0415  not without the extra
    from onepass.service.protocol.limits import Limits  # noqa: PLC0415  the same

    return Application(
        shelf,
        tokens=tokens,
        limits=Limits(nbytes=most_bytes, rows=most_rows),
        first=first,
        patience=patience,
    )
