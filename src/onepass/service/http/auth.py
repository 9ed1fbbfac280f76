"""Authorisation by bearer tokens.

A token has roles: learn includes predict, and admin includes both. Without tokens every local
process may do everything, but no web page of another origin: neither by a cross-origin request, nor
by DNS rebinding, that is, under a name of its own that leads to this machine.
"""

import hashlib
import hmac
import ipaddress
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from urllib.parse import urlsplit

from onepass.errors import ForbiddenError, ParameterError, SourceError, UnauthorizedError

__all__ = ["ADMIN", "LEARN", "PREDICT", "Tokens", "check_safe", "is_loopback"]

PREDICT, LEARN, ADMIN = "predict", "learn", "admin"

_INCLUDES = {PREDICT: {PREDICT}, LEARN: {PREDICT, LEARN}, ADMIN: {PREDICT, LEARN, ADMIN}}
_MIN_TOKEN = 16  # characters of a token
_MAKE = "Make one with: openssl rand -hex 32"


class Tokens:
    """Tokens and their roles; only digests of tokens are stored.

    Parameters
    ----------
    roles : mapping of str to iterable of str
        Token -> its roles.
    """

    def __init__(self, roles: Mapping[str, Iterable[str]]) -> None:
        self._roles = [
            (_digest(token), frozenset().union(*(_INCLUDES[role] for role in given)))
            for token, given in roles.items()
        ]

    def __bool__(self) -> bool:
        return bool(self._roles)

    def __repr__(self) -> str:
        return f"<{len(self._roles)} tokens>"

    @classmethod
    def parse(cls, text: str, where: str) -> "Tokens":
        """Tokens from lines such as ``learn,predict 7f3a…``.

        Parameters
        ----------
        text : str
            Roles and a token a line; empty lines and those that begin with # are ignored.
        where : str
            The file, for messages.

        Raises
        ------
        ParameterError
            If a line has another form. The message never has the token.
        """
        found: dict[str, list[str]] = {}
        for number, line in enumerate(text.splitlines(), start=1):
            words = line.split()
            if not words or words[0].startswith("#"):
                continue
            at, roles = f"{where}, line {number}", words[0].split(",")
            if len(words) != 2 or not _INCLUDES.keys() >= set(roles):
                raise ParameterError(
                    f"{at}: must be roles and a token, such as 'learn,predict TOKEN', with roles "
                    "of predict, learn and admin, got another line. Fix it."
                )
            token = words[1]
            if len(token) < _MIN_TOKEN or not token.isascii():
                got = f"{len(token)}" if token.isascii() else "others"
                raise ParameterError(
                    f"{at}: a token must have at least {_MIN_TOKEN} characters, all of them ASCII, "
                    f"got {got}. {_MAKE}"
                )
            found.setdefault(token, []).extend(roles)
        if not found:
            raise ParameterError(
                f"{where}: must hold at least one token, got none. Write a line such as 'admin "
                "TOKEN'."
            )
        return cls(found)

    @classmethod
    def from_file(cls, path: Path, where: str) -> "Tokens":
        """Tokens of a file, as ``parse`` reads them.

        Raises
        ------
        SourceError, ParameterError
            If it cannot be read, or holds none.
        """
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise SourceError(f"{where}: {path} must be a text file, got: {error}.") from error
        return cls.parse(text, str(path))

    def check(
        self, fields: Mapping[bytes, bytes], role: str | None, what: str = "this request"
    ) -> None:
        """Refuse a request without a token of a role; without tokens, one of another origin.

        Parameters
        ----------
        fields : mapping of bytes to bytes
            Headers by their names in lower case.
        role : str or None
            None if no token is needed.
        what : str
            What needs the role, for messages.

        Raises
        ------
        UnauthorizedError, ForbiddenError
        """
        if not self._roles:
            reason = _foreign(fields.get(b"host"), fields.get(b"origin"))
            if reason is not None:
                raise ForbiddenError(reason)
        elif role is not None:
            self._check_role(fields.get(b"authorization", b"").decode("latin-1"), role, what)

    def _check_role(self, header: str, role: str, what: str) -> None:
        scheme, _, token = header.partition(" ")
        digest = _digest(token.strip() if scheme.lower() == "bearer" else "")
        allowed: frozenset[str] = frozenset()
        for each, roles in self._roles:  # all of them: the time must not depend on the token
            allowed |= roles if hmac.compare_digest(each, digest) else frozenset()
        if not allowed:
            raise UnauthorizedError(
                "a token must come with each request, as 'Authorization: Bearer TOKEN', got none, "
                "or an unknown one. Send a valid token."
            )
        if role not in allowed:
            raise ForbiddenError(
                f"the token must have the role {role!r} for {what}, got others. Use another token."
            )


def check_safe(host: str, tokens: Tokens, where: str) -> None:
    """Refuse to listen where other machines reach the service, without a token.

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
    if not tokens and not is_loopback(host):
        raise ParameterError(
            f"{where}: on {host}, which others can reach, there must be tokens, got none. Give "
            "--tokens FILE or the environment variable ONEPASS_TOKEN, or listen on 127.0.0.1."
        )


@lru_cache(maxsize=256)
def _foreign(host: bytes | None, origin: bytes | None) -> str | None:
    """Why a request is not of this machine; None if it is."""
    try:
        name = None if host is None else urlsplit(f"//{host.decode('latin-1')}").hostname or ""
        page = None if origin is None else urlsplit(origin.decode("latin-1")).netloc
    except ValueError:
        name, page = "", ""
    if name is not None and not is_loopback(name):
        return (
            "without tokens the header Host must be an address of this machine, such as 127.0.0.1 "
            "or localhost, got another. Start the service with tokens."
        )
    if page is not None and page.lower() != (host or b"").decode("latin-1").lower():
        return (
            "without tokens the header Origin must be that of the service itself, got another. "
            "Start the service with tokens."
        )
    return None


def is_loopback(host: str) -> bool:
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
