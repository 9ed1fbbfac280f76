"""Authorisation by bearer tokens.

A token has roles: learn includes predict, and admin includes both. Without tokens, every local
process may do everything. Web pages of other origins may not: cross-origin requests are rejected,
as are requests whose header Host is not this machine (DNS rebinding).
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from urllib.parse import urlsplit

from onepass.errors import ForbiddenError, ParameterError, SourceError, UnauthorizedError

PREDICT, LEARN, ADMIN = "predict", "learn", "admin"

_INCLUDES = {PREDICT: {PREDICT}, LEARN: {PREDICT, LEARN}, ADMIN: {PREDICT, LEARN, ADMIN}}
_MIN_TOKEN = 16  # characters of a token
_ORIGIN = re.compile(r"https?://[^/\s*?#@]+", re.IGNORECASE)
_MAKE = "Generate a token with: openssl rand -hex 32"


class Tokens:
    """Tokens, their roles and names; only digests of tokens are stored.

    Parameters
    ----------
    roles : mapping of str to iterable of str
        Roles of each token.
    names : mapping of str to str, optional
        Names of tokens, for the log; by default the roles.

    Attributes
    ----------
    origins : frozenset of str
        Origins of other web pages that may send requests.
    """

    origins: frozenset[str] = frozenset()

    def __init__(
        self, roles: Mapping[str, Iterable[str]], names: Mapping[str, str] | None = None
    ) -> None:
        self._roles = [
            (
                _digest(token),
                frozenset().union(*(_INCLUDES[role] for role in own)),
                (names or {}).get(token, ",".join(own)),
            )
            for token, own in roles.items()
        ]

    def replace(self, other: Tokens) -> None:
        """Accept the tokens of another object instead."""
        self._roles = other._roles

    def allow(self, origins: Iterable[str]) -> None:
        """Accept requests from web pages of other origins, such as ``https://app.example``.

        Raises
        ------
        ParameterError
            If an origin has another form.
        """
        for each in origins:
            if not _ORIGIN.fullmatch(each):
                raise ParameterError(
                    "--allow-origin must be an origin such as https://app.example or "
                    f"http://localhost:3000, without a path, got {each[:100]!r}. Pass the address "
                    "of the page up to its port."
                )
        self.origins = frozenset(each.lower() for each in origins)

    def __bool__(self) -> bool:
        return bool(self._roles)

    def __repr__(self) -> str:
        return f"<{len(self._roles)} tokens>"

    @classmethod
    def parse(cls, text: str, where: str) -> Tokens:
        """Parse lines such as ``learn,predict 7f3a… sensors``.

        Parameters
        ----------
        text : str
            Roles, a token and, optionally, its name on each line; empty lines and lines that begin
            with # are ignored.
        where : str
            The file, for messages.

        Raises
        ------
        ParameterError
            If a line has another form, or there is no token. Messages never contain tokens.
        """
        tokens: dict[str, list[str]] = {}
        named: dict[str, str] = {}
        for number, line in enumerate(text.splitlines(), start=1):
            words = line.split()
            if not words or words[0].startswith("#"):
                continue
            at, roles = f"{where}, line {number}", words[0].split(",")
            if len(words) not in {2, 3} or not _INCLUDES.keys() >= set(roles):
                raise ParameterError(
                    "the line must be roles, a token and perhaps a name, such as 'learn,predict "
                    "TOKEN sensors', with the roles predict, learn and admin, got another form. "
                    "Correct the line.",
                    at,
                )
            token = words[1]
            if len(token) < _MIN_TOKEN or not token.isascii():
                got = f"{len(token)}" if token.isascii() else "other characters"
                raise ParameterError(
                    f"a token must have at least {_MIN_TOKEN} characters, all of them "
                    f"ASCII, got {got}. {_MAKE}",
                    at,
                )
            tokens.setdefault(token, []).extend(roles)
            named |= {token: words[2]} if len(words) == 3 else {}
        if not tokens:
            raise ParameterError(
                "the file must contain at least one token, got none. Write a line such "
                "as 'admin TOKEN'.",
                where,
            )
        return cls(tokens, named)

    @classmethod
    def from_file(cls, path: Path, where: str) -> Tokens:
        """Read tokens from a file; see ``parse``.

        Raises
        ------
        SourceError, ParameterError
            If the file cannot be read, or is invalid.
        """
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise SourceError(
                f"{path} must be a text file in UTF-8 that can be read, got: {error}. "
                "Check the path and its permissions.",
                where,
            ) from error
        return cls.parse(text, str(path))

    def check(
        self, fields: Mapping[bytes, bytes], role: str | None, what: str = "this request"
    ) -> str:
        """Reject a request without the role; if there are no tokens, reject other origins.

        Parameters
        ----------
        fields : mapping of bytes to bytes
            Headers by lower-case name.
        role : str or None
            Required role; None if no token is required.
        what : str
            The operation that requires the role, for messages.

        Returns
        -------
        name : str
            The name of the token; empty if none is required.

        Raises
        ------
        UnauthorizedError, ForbiddenError
        """
        if not self._roles:
            reason = _foreign(fields.get(b"host"), fields.get(b"origin"), self.origins)
            if reason is not None:
                raise ForbiddenError(reason)
        elif role is not None:
            return self._check_role(fields, role, what)
        return ""

    def roles(self, fields: Mapping[bytes, bytes]) -> frozenset[str]:
        """Return the roles of a request's token; all roles if there are no tokens.

        Parameters
        ----------
        fields : mapping of bytes to bytes
            Headers by lower-case name.
        """
        return self._matching(fields)[0] if self._roles else frozenset(_INCLUDES)

    def _matching(self, fields: Mapping[bytes, bytes]) -> tuple[frozenset[str], str]:
        """Return the roles and the name of a request's token; empty if it is missing or unknown."""
        header = fields.get(b"authorization", b"").decode("latin-1")
        scheme, _, token = header.partition(" ")
        digest = _digest(token.strip() if scheme.lower() == "bearer" else "")
        allowed: frozenset[str] = frozenset()
        found = ""
        for (
            stored,
            roles,
            name,
        ) in self._roles:  # no early exit: the time must not depend on the token
            same = hmac.compare_digest(stored, digest)
            allowed |= roles if same else frozenset()
            found = name if same else found
        return allowed, found

    def _check_role(self, fields: Mapping[bytes, bytes], role: str, what: str) -> str:
        allowed, found = self._matching(fields)
        if not allowed:
            raise UnauthorizedError(
                "each request must have a token, as 'Authorization: Bearer TOKEN', got none, "
                "or an unknown token. Send a valid token."
            )
        if role not in allowed:
            raise ForbiddenError(
                f"the token must have the role {role!r} for {what}, got other roles. Use another "
                "token."
            )
        return found


def check_safe(host: str, tokens: Tokens) -> None:
    """Require tokens to listen on an address that other machines can reach.

    Parameters
    ----------
    host : str
        Address to listen on.
    tokens : Tokens

    Raises
    ------
    ParameterError
    """
    if not tokens and not is_loopback(host):
        raise ParameterError(
            f"a service on {host}, which other machines can reach, must have tokens, "
            "got none. Pass --tokens FILE, set the environment variable ONEPASS_TOKEN, "
            "or listen on 127.0.0.1."
        )


@lru_cache(maxsize=256)
def _foreign(host: bytes | None, origin: bytes | None, origins: frozenset[str]) -> str | None:
    """Return why a request is not from this machine; None if it is."""
    try:
        name = None if host is None else urlsplit(f"//{host.decode('latin-1')}").hostname or ""
        page = None if origin is None else urlsplit(origin.decode("latin-1")).netloc
    except ValueError:
        name, page = "", ""
    if name is not None and not is_loopback(name):
        return (
            "without tokens the header Host must be an address of this machine, such as 127.0.0.1 "
            "or localhost, got another host. Use such an address, or start the service with tokens."
        )
    if origin is not None and origin.decode("latin-1").lower() in origins:
        return None
    if page is not None and page.lower() != (host or b"").decode("latin-1").lower():
        return (
            "without tokens the header Origin must be that of the service, got another origin. "
            "Send the request from the service's own page, or start the service with "
            "--allow-origin or with tokens."
        )
    return None


def is_loopback(host: str) -> bool:
    """Return whether an address can be reached only from this machine.

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
