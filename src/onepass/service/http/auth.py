"""Auth: who may do what, by tokens.

A token has roles. Whoever may learn may predict, and whoever may administer may do both. Without
tokens everybody on this machine may do everything, but no page that a browser has from elsewhere:
neither by asking across origins, nor by a name of its own that leads to this machine.
"""

import hashlib
import hmac
import ipaddress
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

from onepass.errors import (
    ForbiddenError,
    ParameterError,
    SourceError,
    UnauthorizedError,
)

__all__ = [
    "ADMIN",
    "LEARN",
    "PREDICT",
    "Tokens",
    "hold_safe",
    "loopback",
]

PREDICT, LEARN, ADMIN = "predict", "learn", "admin"

_ALLOWS = {PREDICT: {PREDICT}, LEARN: {PREDICT, LEARN}, ADMIN: {PREDICT, LEARN, ADMIN}}
_SHORTEST = 16  # characters of a token


class _Headed(Protocol):
    """What has headers."""

    def header(self, name: bytes) -> str | None:
        """One of them."""


class Tokens:
    """Tokens and their roles; of tokens, no more than digests is kept.

    Parameters
    ----------
    roles : mapping of str to iterable of str
        Token -> its roles.
    """

    def __init__(self, roles: Mapping[str, Iterable[str]]) -> None:
        self._roles = [
            (_digest(token), frozenset().union(*(_ALLOWS[role] for role in given)))
            for token, given in roles.items()
        ]

    def __bool__(self) -> bool:
        return bool(self._roles)

    def __repr__(self) -> str:
        return f"<{len(self._roles)} tokens>"

    @classmethod
    def read(cls, text: str, where: str) -> "Tokens":
        """Tokens out of lines such as ``learn,predict 7f3a…``.

        Parameters
        ----------
        text : str
            Roles and a token a line; empty lines and those that begin with # are passed over.
        where : str
            The file, for messages.

        Raises
        ------
        ParameterError
            If a line is none such. The message never has the token.
        """
        found: dict[str, list[str]] = {}
        for number, line in enumerate(text.splitlines(), start=1):
            words = line.split()
            if not words or words[0].startswith("#"):
                continue
            roles = words[0].split(",")
            if len(words) != 2 or not _ALLOWS.keys() >= set(roles):
                raise ParameterError(
                    f"{where}, line {number}: must be roles and a token, such as 'learn,predict "
                    "TOKEN', with roles of predict, learn and admin, got another line. Fix it."
                )
            if len(words[1]) < _SHORTEST:
                raise ParameterError(
                    f"{where}, line {number}: a token must have at least {_SHORTEST} characters, "
                    f"got {len(words[1])}. Make one with: openssl rand -hex 32"
                )
            if not words[1].isascii():
                raise ParameterError(
                    f"{where}, line {number}: a token must be of ASCII characters, as headers of "
                    "HTTP are, got others. Make one with: openssl rand -hex 32"
                )
            found.setdefault(words[1], []).extend(roles)
        if not found:
            raise ParameterError(
                f"{where}: must hold at least one token, got none. Write a line such as 'admin "
                "TOKEN'."
            )
        return cls(found)

    @classmethod
    def from_file(cls, path: Path, where: str) -> "Tokens":
        """Tokens out of a file.

        Raises
        ------
        SourceError, ParameterError
            If it cannot be read, or holds none.
        """
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as failed:
            raise SourceError(f"{where}: {path} must be a file of text, got: {failed}.") from failed
        return cls.read(text, str(path))

    def hold(self, asking: _Headed, role: str | None, what: str = "this request") -> None:
        """Refuse whoever has no token with this role, or where there are none, is not from here.

        Parameters
        ----------
        asking : Asking
        role : str or None
            None if nobody needs a token.
        what : str
            What needs the role, for messages.

        Raises
        ------
        UnauthorizedError, ForbiddenError
        """
        if not self._roles:
            wrong = _stranger(asking.header(b"host"), asking.header(b"origin"))
            if wrong is not None:
                raise ForbiddenError(wrong)
        elif role is not None:
            self._hold_role(asking.header(b"authorization"), role, what)

    def _hold_role(self, header: str | None, role: str, what: str) -> None:
        scheme, _, token = (header or "").partition(" ")
        came = _digest(token.strip() if scheme.lower() == "bearer" else "")
        allowed: frozenset[str] = frozenset()
        for digest, roles in self._roles:  # all of them: how long it takes tells nothing
            allowed |= roles if hmac.compare_digest(digest, came) else frozenset()
        if not allowed:
            raise UnauthorizedError(
                "a token must come with each request, as 'Authorization: Bearer TOKEN'; none came, "
                "or an unknown one."
            )
        if role not in allowed:
            raise ForbiddenError(
                f"the token must have the role {role!r} for {what}; it has others. Use another "
                "token."
            )


def hold_safe(host: str, tokens: Tokens, where: str) -> None:
    """Refuse to listen where others reach it, without a token.

    Parameters
    ----------
    host : str
        The address to listen on.
    tokens : Tokens
    where : str
        The public call, for messages.

    Raises
    ------
    ParameterError
    """
    if not tokens and not loopback(host):
        raise ParameterError(
            f"{where}: on {host}, which others can reach, there must be tokens, got none. Give "
            "--tokens FILE or the environment variable ONEPASS_TOKEN, or listen on 127.0.0.1."
        )


@lru_cache(maxsize=256)
def _stranger(host: str | None, origin: str | None) -> str | None:
    """Why a request is not of this machine's own; None if it may be."""
    try:
        name = None if host is None else urlsplit(f"//{host}").hostname or ""
        page = None if origin is None else urlsplit(origin).netloc
    except ValueError:
        name, page = "", ""
    if name is not None and not loopback(name):
        return (
            "without tokens the service must be asked by the address of this machine, such as "
            "127.0.0.1 or localhost, got another in the header Host. Give it tokens."
        )
    if page is not None and page.lower() != (host or "").lower():
        return (
            "without tokens no page from elsewhere may ask, but the header Origin names another. "
            "Give the service tokens."
        )
    return None


def loopback(host: str) -> bool:
    """Whether an address is reached from this machine alone.

    Parameters
    ----------
    host : str
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8")).digest()
