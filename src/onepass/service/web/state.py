"""State: what the page shows of each learner."""

import time
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from onepass.service.served import Served
from onepass.service.shelf import Shelf
from onepass.service.web.pathless import pathless

__all__ = ["onepass_version", "state"]


def state(shelf: Shelf) -> dict[str, Any]:
    """All learners; :mod:`onepass.service.page` tells what each field is.

    Parameters
    ----------
    shelf : Shelf
    """
    return {
        "now": time.time(),
        "onepass": onepass_version(),
        "models": [
            *(_one(served, shelf.folder) for served in shelf),
            *({"name": name, "ready": False, "trouble": pathless(reason, shelf.folder)}
              for name, reason in shelf.failed.items()),
        ],
    }  # fmt: skip


@cache
def onepass_version() -> str:
    """The version of the package that runs."""
    try:
        return version("onepass")
    except PackageNotFoundError:  # run from its source
        return "unknown"


def _one(served: Served, folder: Path) -> dict[str, Any]:
    durable, gauges = served.durable, served.gauges
    answering = durable.answering
    text = pathless(repr(answering).partition("(")[2], folder)
    trouble = served.trouble or served.source_trouble or gauges.trouble
    return {
        "name": served.name,
        "class": type(answering).__name__,
        "parameters": text.removesuffix(")")[:1000],
        "ready": served.ready,
        "trouble": trouble and pathless(trouble, folder),
        "version": durable.version,
        "rows_seen": durable.rows_seen,
        "rows_refused": gauges.rows_refused,
        "nbytes": served.nbytes,
        "waiting": served.waiting_answers,
        "error": gauges.error(),
        "rates": gauges.rates(),
        "latency": gauges.latency(),
        "spectrum": served.spectrum,
        "drift": gauges.drift,
        "refused": list(gauges.refused)[::-1],
        "snapshots": [
            {"version": each.version, "rows_seen": each.rows_seen, "at": each.at, "why": each.why,
             "nbytes": each.nbytes}
            for each in served.versions
        ],
        "watching": gauges.watching(),
        "positions": {**dict.fromkeys(each.source.name for each in served.feeders),
                      **durable.positions},
    }  # fmt: skip
