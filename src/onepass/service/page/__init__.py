"""Page: what a browser shows of the models that are served, live.

Plain files: no build step, no framework, nothing from elsewhere. ``index.html`` is served at a path
that ends in a slash, the others at ``page/`` and their names below it, each with ``HEADERS``, its
kind and its tag. All addresses are relative, so that any prefix will do.

The page requests ``GET state``, beside itself, each second: with ``Authorization: Bearer …`` if the
reader has entered a token, which it asks for on 401 and 403. The fields are those of
:class:`onepass.service.http.status.State`.
"""

from collections.abc import Mapping
from functools import lru_cache
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

__all__ = ["HEADERS", "File", "file"]

HEADERS: Mapping[str, str] = MappingProxyType(
    {
        "Cache-Control": "no-cache",
        "Content-Security-Policy": (
            "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
            "object-src 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
        ),
        "Referrer-Policy": "no-referrer",
        "X-Content-Type-Options": "nosniff",
    }
)
"""Sent with every file: nothing inline, nothing from elsewhere, no use of a cached file unasked."""

_KINDS = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


class File(NamedTuple):
    """One file of the page: its content, content type and ETag (strong, with quotation marks)."""

    body: bytes
    kind: str
    tag: str


@lru_cache(maxsize=64)
def file(name: str) -> File | None:
    """A file of the page; None if it has none of this name.

    Parameters
    ----------
    name : str

    Examples
    --------
    >>> file("page.js").kind
    'text/javascript; charset=utf-8'
    """
    kind = _KINDS.get(Path(name).suffix)
    if kind is None or name not in {each.name for each in files(__name__).iterdir()}:
        return None
    body = files(__name__).joinpath(name).read_bytes()
    return File(body, kind, f'"{sha256(body).hexdigest()[:32]}"')
