"""Live page of the served models, for browsers.

The page consists of plain files, without a build step, a framework or files of other servers.
``index.html`` is served at a path that ends in a slash, and the other files below it at
``page/NAME``, each with ``HEADERS``, its content type and its ETag. All URLs are relative, so that
the service can have any path prefix.

The page requests ``state``, relative to its own URL, each second. On 401 and 403 it shows a form
for a token, which it then sends as ``Authorization: Bearer …``. The response is
:class:`onepass.service.http.status.State`.
"""

from __future__ import annotations

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
"""Headers of every file: no inline code, no other servers, and caches must revalidate."""

_KINDS = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


class File(NamedTuple):
    """File of the page: its content, content type and ETag (strong, with quotation marks)."""

    body: bytes
    kind: str
    tag: str


@lru_cache(maxsize=64)
def file(name: str) -> File | None:
    """Return a file of the page; None if there is no file of this name.

    Parameters
    ----------
    name : str

    Examples
    --------
    >>> file("page.js").kind
    'text/javascript; charset=utf-8'
    """
    kind = _KINDS.get(Path(name).suffix)
    if kind is None or name not in {path.name for path in files(__name__).iterdir()}:
        return None
    body = files(__name__).joinpath(name).read_bytes()
    return File(body, kind, f'"{sha256(body).hexdigest()[:32]}"')
