"""Exposition: the gauges in the text format of Prometheus, version 0.0.4."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

from onepass.service.served import Served
from onepass.service.shelf import Shelf
from onepass.service.web.state import onepass_version

__all__ = ["exposition"]

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


def _one(value: float | None) -> list[_Line]:
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
     lambda s: _one(s.durable.rows_seen)),
    ("blocks_learned_total", "counter", "Blocks learned: the version.",
     lambda s: _one(s.durable.version)),
    ("rows_predicted_total", "counter", "Rows answered.",
     lambda s: _one(s.gauges.predicted_rows)),
    ("rows_refused_total", "counter", "Rows refused.",
     lambda s: _one(s.gauges.rows_refused)),
    ("prequential_error", "gauge", "Of each row before it was learned.", _errors),
    ("innovation", "gauge", "Answer less what was said, in the last rows: mean and deviation.",
     lambda s: [({"is": word}, value) for word, value in s.gauges.innovations().items()]),
    ("drift_alarms_total", "counter", "Alarms of the drift detectors.",
     lambda s: _one(s.gauges.alarms)),
    ("drift_watching", "gauge", "Whether a drift detector watches; one that has failed does not.",
     lambda s: [({"detector": k}, float(v)) for k, v in s.gauges.watching().items()]),
    ("contradictions_total", "counter",
     "Rows whose error was beyond six times what is usual: the root of its mean square.",
     lambda s: _one(s.gauges.contradictions)),
    ("rows_waiting", "gauge", "Rows that wait to be learned.", lambda s: _one(s.waiting)),
    ("answers_waiting", "gauge", "Rows that wait for their answers.",
     lambda s: _one(s.waiting_answers)),
    ("memory_bytes", "gauge", "Bytes of what was learned.", lambda s: _one(s.nbytes)),
    ("memory_singular_value", "gauge", "Of the memory; of single rows at snapshots.", _spectrum),
    ("ready", "gauge", "Whether it can learn.", lambda s: _one(float(s.ready))),
    ("source_ready", "gauge", "Whether a source can be read.",
     lambda s: [({"source": f.source.name}, float(f.trouble is None)) for f in s.feeders]),
    ("source_behind", "gauge", "Entries that waited in a source when it was read last.",
     lambda s: [({"source": f.source.name}, f.behind) for f in s.feeders]),
    ("request_seconds", "summary", "How long the last requests took.", _times),
)  # fmt: skip
