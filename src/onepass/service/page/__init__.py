"""Page: what a browser shows of the models that are served, live.

Plain files: no build step, no framework, nothing from elsewhere. ``index.html`` is served at a path
that ends in a slash, the others at ``page/`` and their names below it, each with ``HEADERS``, its
kind and its tag; a request whose ``If-None-Match`` names the tag is answered 304 without a body.
All addresses are relative, so that any prefix will do.

The page asks ``GET state``, beside itself, each second: with ``Authorization: Bearer …`` if it has
a token, for which it asks whoever looks when 401 or 403 was answered. The answer is JSON; only
``models``, a list, must be there, and any other value may be null before it is known. Times are
seconds since 1970, lengths of time seconds, sizes bytes.

============================ =======================================================================
``now``                      the server's clock
``onepass``                  its version
``models``                   a list of the models, in the order in which they are shown; each has:
``name``                     by which it is served; no two share one
``class``, ``parameters``    ``"RLSRegressor"`` and ``"ridge=1e-06"``: what made it
``ready``                    whether it answers requests: true or false
``trouble``                  what is wrong, in a sentence, or null
``version``                  how many blocks were learned, rollbacks counted
``rows_seen``                how many rows were learned
``rows_refused``             how many rows were refused
``nbytes``                   memory of all that was learned
``waiting``                  how many rows were predicted and wait for their answers
``error``                    the prequential error: ``name`` (``"mean absolute error"``), ``all`` of
                             all rows, ``window`` of the last ``window_rows``, and ``curve``: at
                             most 400 points ``[rows, all, window]``
``rates``                    rows a second: ``learned``, ``predicted``, and ``curve``: points
                             ``[seconds ago, learned, predicted]``, at most 400
``latency``                  ``learn`` and ``predict``, each with ``p50`` and ``p99``
``spectrum``                 what each direction of the memory knows, the largest first: a list, or
                             null if the model has none
``drift``                    a list of ``{"rows", "at", "detector"}``: at which row, and when
``refused``                  the last rows refused, a list of ``{"at", "rows", "why"}``
``snapshots``                a list of ``{"version", "rows_seen", "at", "why", "nbytes"}``
``watching``                 the drift detectors: ``{name: whether it watches}``
``positions``                ``{source: position}``, both text; null where none was learned yet
============================ =======================================================================

A model whose file could not be opened has ``name``, ``ready`` and ``trouble`` alone.

For example::

    {"now": 1795388746.8, "onepass": "0.1.0", "models": [{
      "name": "flow", "class": "RLSRegressor", "parameters": "ridge=1e-06",
      "ready": true, "trouble": null, "version": 1004, "rows_seen": 3002, "rows_refused": 3,
      "nbytes": 5114, "waiting": 2,
      "error": {"name": "mean absolute error", "all": 0.81, "window": 0.79, "window_rows": 1000,
                "curve": [[1, 4.2, 4.2], [1500, 0.9, 0.85], [3002, 0.81, 0.79]]},
      "rates": {"learned": 812.0, "predicted": 12034.0,
                "curve": [[2, 790.0, 11800.0], [1, 801.0, 11950.0], [0, 812.0, 12034.0]]},
      "latency": {"learn": {"p50": 0.0003, "p99": 0.002},
                  "predict": {"p50": 4.1e-05, "p99": 0.00031}},
      "spectrum": [3.1, 2.2, 0.4],
      "drift": [{"rows": 1200, "at": 1795388600.0, "detector": "ADWIN"}],
      "refused": [{"at": 1795388700.0, "rows": 1, "why": "`X` holds nan in row 0, column 2."}],
      "snapshots": [{"version": 0, "rows_seen": 0, "at": 1795380000.0, "why": "beginning",
                     "nbytes": 328}],
      "watching": {"adwin": true},
      "positions": {"redis://localhost/flow": "1795-0"}}]}

"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib.resources import files
from types import MappingProxyType

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
"""To be sent with every file: nothing inline, nothing from elsewhere, nothing that may be kept
without asking whether it has changed."""

_KINDS = {
    "css": "text/css; charset=utf-8",
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}


@dataclass(frozen=True)
class File:
    """One file of the page.

    Parameters
    ----------
    body : bytes
    kind : str
        Its content type.
    tag : str
        Its ETag: a strong one, with its quotation marks.
    """

    body: bytes
    kind: str
    tag: str


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
    return _all().get(name)


@cache
def _all() -> Mapping[str, File]:
    found = {}
    for each in files(__name__).iterdir():
        kind = _KINDS.get(each.name.rpartition(".")[2])
        if kind is not None:
            body = each.read_bytes()
            found[each.name] = File(body, kind, f'"{sha256(body).hexdigest()[:32]}"')
    return found
