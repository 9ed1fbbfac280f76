"""Ports for servers that are killed and started again at the same address."""

import os
import socket
from itertools import count
from pathlib import Path

_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_LOWEST, _HIGHEST = 10_000, 32_768
_NEXT = count(61 * os.getpid())  # other processes of the tests begin elsewhere


def free_port() -> int:
    """A free port below the range of ephemeral ports.

    A client that tries again and again while nothing listens there would else be given the port
    itself some time, be connected to itself, and keep the server from coming back.
    """
    highest = int(_RANGE.read_text().split()[0]) if _RANGE.exists() else _HIGHEST
    many = max(highest - _LOWEST, 1)
    for _ in range(many):
        port = _LOWEST + next(_NEXT) % many
        try:
            socket.create_server(("127.0.0.1", port)).close()
        except OSError:
            continue
        return port
    raise AssertionError("no port is free")
