"""Greeting: what comes over TLS, from when it is there until it is a connection.

Servers of asyncio tell of a connection by TLS once its handshake is over, however long it takes and
however many there are. Here they are counted with the others, and have no more time than those.
"""

import asyncio
import socket
import ssl
from typing import Any

from onepass.service.http.connection import Connection
from onepass.service.http.door import Door

__all__ = ["Greeting", "met"]


def met(door: Door, context: ssl.SSLContext | None) -> asyncio.Protocol:
    """What meets who has come: a connection, with a context of TLS once it is greeted.

    Parameters
    ----------
    door : Door
    context : ssl.SSLContext, optional
    """
    return Connection(door) if context is None else Greeting(door, context)


class Greeting(asyncio.Protocol):
    """Who has come, and has said nothing yet.

    Parameters
    ----------
    door : Door
    context : ssl.SSLContext
    """

    def __init__(self, door: Door, context: ssl.SSLContext) -> None:
        self._door, self._context = door, context

    def connection_made(self, transport: Any) -> None:
        """Take its socket, before anything is read of it."""
        try:
            there, door = transport.get_extra_info("socket"), self._door
            line = socket.fromfd(there.fileno(), there.family, there.type)
        finally:
            transport.abort()
        if door.stops or len(door.connections) + len(door.greeted) >= door.most:
            line.close()
            return
        line.setblocking(False)  # noqa: FBT003  Python's own
        greeted = asyncio.ensure_future(self._greet(line))
        door.greeted.add(greeted)
        greeted.add_done_callback(door.greeted.discard)

    async def _greet(self, line: socket.socket) -> None:
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: Connection(self._door),
                line,
                ssl=self._context,
                ssl_handshake_timeout=self._door.seconds,
            )
        except (OSError, ssl.SSLError):  # it was no TLS, or did not come in time
            line.close()
