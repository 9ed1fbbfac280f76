"""Address: what the address of a stream of Redis says."""

import re
from dataclasses import dataclass, field
from urllib.parse import SplitResult, parse_qs, unquote, urlencode, urlsplit

from onepass.errors import ParameterError

__all__ = ["Address"]

_WHERE = "serve: --source"
_SUCH = "redis://HOST:6379/0?stream=NAME&target=FIELD"
_ESCAPE = "In a user, a password or a name write @ : / ? # and % as %40 %3A %2F %3F %23 and %25"
_LONGEST = 512  # characters of what positions are kept under
_ONE = ("stream", "target", "time", "name", "ca")
_MANY = ("text", "drop")  # fields, with commas
_WORD = re.compile("[a-z_-]{1,20}")
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f\ud800-\udfff]")


@dataclass(frozen=True)
class Address:
    """A stream, and which of its fields are what.

    Parameters
    ----------
    host, port, db
        Where Redis listens, and the number of its database.
    user, password : str or None
    tls : bool
    stream : str
        The stream's key.
    target : str
        The field of the answers.
    time : str or None
        The field that says when a row happened, or ``id``.
    text, drop : frozenset of str
        Fields that are text whatever they read as, and fields that are passed over.
    ca : str or None
        A file of the certificates that are trusted.
    name : str
        What positions are kept under.
    """

    host: str
    port: int
    db: int
    user: str | None
    password: str | None = field(repr=False)
    tls: bool
    stream: str
    target: str
    time: str | None
    text: frozenset[str]
    drop: frozenset[str]
    ca: str | None
    name: str

    @classmethod
    def of(cls, url: str) -> "Address":
        """What an address says; no message repeats its password.

        Raises
        ------
        ParameterError
            If it is none.
        """
        parts, given = _read(url)
        host, port, db = _place(parts)
        shown = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}/{db}"
        name = given.get("name", f"{shown}?{urlencode({'stream': given['stream']})}")
        if len(name) > _LONGEST or any(map(_UNPRINTABLE.search, (name, *given.values()))):
            must = f"Names have at most {_LONGEST} characters, all of which can be printed"
            raise _wrong(f"one of {len(name):,}, or others", must)
        text, drop = (frozenset(filter(None, given.get(e, "").split(","))) for e in _MANY)
        user, password = (
            unquote(word) if word else None for word in (parts.username, parts.password)
        )
        return cls(
            host, port, db, user, password, parts.scheme == "rediss", given["stream"],
            given["target"], given.get("time"), text, drop, given.get("ca"), name,
        )  # fmt: skip


def _read(url: str) -> tuple[SplitResult, dict[str, str]]:
    try:
        parts = urlsplit(url)
        found = parse_qs(parts.query, keep_blank_values=True, errors="strict")
    except ValueError:
        raise _wrong("what is no address", _ESCAPE) from None
    if _UNPRINTABLE.search(url):
        raise _wrong("signs that cannot be printed", _ESCAPE)
    if "@" in parts.path + parts.query + parts.fragment:
        raise _wrong("an '@' behind the host", _ESCAPE)
    return parts, _parameters(found)


def _parameters(found: dict[str, list[str]]) -> dict[str, str]:
    odd = found.keys() - {*_ONE, *_MANY}
    if odd:
        said = ", ".join(sorted(filter(_WORD.fullmatch, odd))) or "others"
        raise _wrong(said, f"There are {', '.join((*_ONE, *_MANY))}")
    twice = [name for name, values in found.items() if len(values) > 1 or not values[0]]
    if twice:
        raise _wrong(f"{twice[0]} twice, or empty", "Give each once, with a value")
    for name in ("stream", "target"):
        if name not in found:
            raise _wrong(f"no {name!r}", "Name the stream, and the field of the answers")
    return {name: values[0] for name, values in found.items()}


def _place(parts: SplitResult) -> tuple[str, int, int]:
    try:
        port = parts.port or 6379
    except ValueError:
        port = 0
    db = parts.path.strip("/") or "0"
    if not (parts.hostname and port and db.isdecimal() and len(db) < 6) or parts.fragment:
        raise _wrong("no host, or what is no port or number of a database", _ESCAPE)
    return parts.hostname, port, int(db)


def _wrong(came: str, remedy: str) -> ParameterError:
    return ParameterError(f"{_WHERE}: the address must be such as {_SUCH}, got {came}. {remedy}.")
