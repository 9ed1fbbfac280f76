"""Status of learners for the page, and metrics in the text format of Prometheus (0.0.4).

Messages to clients omit folders of the server's disk; the log has full paths.
"""

import math
import os
import re
import time
from collections.abc import Iterator, Mapping
from functools import cache, lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from onepass.service.registry import Served, Shelf

__all__ = ["exposition", "onepass_version", "pathless", "state"]


_FOLDERS = re.compile(r"(?:(?<=[\s'\"(=])|^)(?:[A-Za-z]:)?[/\\](?:[^\s/\\'\"]+[/\\])+")
"""Those of an absolute path; an address, such as redis://…, is none."""


def pathless(text: str, folder: Path) -> str:
    """A message without folders.

    Parameters
    ----------
    text : str
    folder : Path
        Of the learners' files, which may be relative, or have blanks in it.

    Examples
    --------
    >>> pathless("/srv/my data/flow.db could not be read, see /var/log/disk.", Path("/srv/my data"))
    'flow.db could not be read, see disk.'
    """
    for each in _spelled(folder):
        text = text.replace(each, "")
    return _FOLDERS.sub("", text)


@lru_cache(maxsize=8)
def _spelled(folder: Path) -> list[str]:
    """All ways to write it, with the separator behind, the longest first."""
    ways = {str(folder), os.path.realpath(folder), str(folder.absolute())}
    return sorted((f"{each.rstrip(os.sep)}{os.sep}" for each in ways - {".", os.sep}), key=len)[
        ::-1
    ]


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


_Line = tuple[dict[str, str], float | None]


def exposition(shelf: Shelf, statuses: Mapping[int, int]) -> str:
    """All gauges of all learners.

    Parameters
    ----------
    shelf : Shelf
    statuses : mapping of int to int
        How many requests were answered with each.
    """
    every = list(shelf)
    lines = [*_family("onepass_info", "gauge", "The version that runs.",
                      [({"version": onepass_version()}, 1.0)]),
             *_family("onepass_requests_total", "counter", "Requests answered, by status.",
                      [({"status": str(k)}, n) for k, n in sorted(statuses.items())])]  # fmt: skip
    for name, kind, told, values in _FAMILIES:
        found = [
            ({"model": served.name, **labels}, value)
            for served in every
            for labels, value in values(served)
        ]
        if name == "ready":
            found += [({"model": failed}, 0.0) for failed in shelf.failed]
        lines += _family(f"onepass_{name}", kind, told, found)
    totals = [
        f"onepass_request_seconds{ending}{_labels({'model': served.name, **labels})} "
        f"{_number(value)}"
        for served in every
        for ending, labels, value in _totals(served)
    ]
    return "\n".join([*lines, *totals]) + "\n"


def _family(name: str, kind: str, told: str, values: list[_Line]) -> Iterator[str]:
    yield f"# HELP {name} {told}"
    yield f"# TYPE {name} {kind}"
    for labels, value in values:
        if value is not None:
            yield f"{name}{_labels(labels)} {_number(value)}"


def _labels(labels: dict[str, str]) -> str:
    return "{" + ",".join(f'{key}="{_escaped(word)}"' for key, word in labels.items()) + "}"


def _escaped(word: str) -> str:
    return word.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _number(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return repr(float(value))


def _sample(value: float | None) -> list[_Line]:
    return [({}, value)]


def _errors(served: Served) -> list[_Line]:
    found = served.gauges.error()
    return [({"measure": found["name"], "over": over}, found[over]) for over in ("all", "window")]


def _times(served: Served) -> list[_Line]:
    quantiles = {"p50": "0.5", "p99": "0.99"}
    return [
        ({"verb": verb, "quantile": quantiles[name]}, seconds)
        for verb, found in served.gauges.latency().items()
        for name, seconds in found.items()
    ]


def _totals(served: Served) -> Iterator[tuple[str, dict[str, str], float]]:
    """Count and sum of a summary, which belong below its own name."""
    for verb, (count, seconds) in served.gauges.took().items():
        yield "_count", {"verb": verb}, float(count)
        yield "_sum", {"verb": verb}, seconds


def _spectrum(served: Served) -> list[_Line]:
    found = served.spectrum or []
    return [({"rank": str(i + 1)}, value) for i, value in enumerate(found[:16])]


_FAMILIES: tuple[tuple[str, str, str, Any], ...] = (
    ("rows_learned_total", "counter", "Rows learned, those before a restart too.",
     lambda s: _sample(s.durable.rows_seen)),
    ("blocks_learned_total", "counter", "Blocks learned: the version.",
     lambda s: _sample(s.durable.version)),
    ("rows_predicted_total", "counter", "Rows answered.",
     lambda s: _sample(s.gauges.predicted_rows)),
    ("rows_refused_total", "counter", "Rows refused.",
     lambda s: _sample(s.gauges.rows_refused)),
    ("prequential_error", "gauge", "Of each row before it was learned.", _errors),
    ("innovation", "gauge", "Answer less what was said, in the last rows: mean and deviation.",
     lambda s: [({"is": word}, value) for word, value in s.gauges.innovations().items()]),
    ("drift_alarms_total", "counter", "Alarms of the drift detectors.",
     lambda s: _sample(s.gauges.alarms)),
    ("drift_watching", "gauge", "Whether a drift detector watches; one that has failed does not.",
     lambda s: [({"detector": k}, float(v)) for k, v in s.gauges.watching().items()]),
    ("contradictions_total", "counter",
     "Rows whose error was beyond six times what is usual: the root of its mean square.",
     lambda s: _sample(s.gauges.contradictions)),
    ("rows_waiting", "gauge", "Rows that wait to be learned.", lambda s: _sample(s.waiting)),
    ("answers_waiting", "gauge", "Rows that wait for their answers.",
     lambda s: _sample(s.waiting_answers)),
    ("memory_bytes", "gauge", "Bytes of what was learned.", lambda s: _sample(s.nbytes)),
    ("memory_singular_value", "gauge", "Of the memory; of single rows at snapshots.", _spectrum),
    ("ready", "gauge", "Whether it can learn.", lambda s: _sample(float(s.ready))),
    ("source_ready", "gauge", "Whether a source can be read.",
     lambda s: [({"source": f.source.name}, float(f.trouble is None)) for f in s.feeders]),
    ("source_behind", "gauge", "Entries that waited in a source when it was read last.",
     lambda s: [({"source": f.source.name}, f.behind) for f in s.feeders]),
    ("request_seconds", "summary", "How long the last requests took.", _times),
)  # fmt: skip
