"""Tables of the results of ``load.py``, ``backups.py`` and ``strangers.py``."""

from collections.abc import Iterable
from statistics import median

from cells import Found, table

VERBS = ("learn", "infer")


def load(found: Found) -> str:
    """Return requests per second by connections, then the memory over a long stream."""
    versions = ", ".join(
        f"{name} {number}" for name, number in found["machine"]["versions"].items()
    )
    alone = found["commits alone"]
    head = (
        f"{found['machine']['cores']} cores ({found['machine']['cpu']}), one of them used by wrk; "
        f"{versions}. SQLite alone makes {median(alone):,.0f} commits per second here "
        f"({_range(alone)}). Medians of {found['rounds']} rounds, with the lowest and highest:"
    )
    columns = ["", "service", "connections", "requests/s", "range", "CPU, µs per request",
               "median, ms", "p99, ms"]  # fmt: skip
    parts = [head, table(columns, [_line(one) for one in found["lines"]], 2)]
    if "stream" in found:
        points = found["stream"]["points"]
        parts.append(
            f"{found['stream']['rows']:,} rows in requests of {found['stream']['block']:,} from "
            f"one client, {found['stream']['a second']:,.0f} rows per second, each on the disk "
            "before its acknowledgement:"
        )
        parts.append(table(
            ["rows", *(f"{rows:,}" for rows, *_ in points)],
            [["memory, MB", *(f"{mb:.0f}" for _, mb, *_ in points)],
             ["file, MB", *(f"{mb:.0f}" for *_, mb, _ in points)],
             ["thousand rows per second", *(f"{rate / 1000:.0f}" for *_, rate in points)]],
        ))  # fmt: skip
    return "\n\n".join(parts)


def backups(found: Found) -> str:
    """Return backups, rows and durations by means."""
    rows = [["none", *("–",) * 6, *_quantiles(found["before"])]]
    rows += [
        [
            one["name"], f"{one['backups']:,}", f"{one['rows']:,}", f"{one['lost']:,}",
            f"{one['twice']:,}", f"{one['different']:,}",
            " to ".join(f"{x:.2f}" for x in one["seconds"]), *_quantiles(one),
        ]
        for one in found["means"]
    ]  # fmt: skip
    head = ["backups by", "number", "rows in all copies", "lost", "twice", "other learner",
            "seconds, median to max", "learn: median, ms", "p99, ms"]  # fmt: skip
    return f"{found['rows']:,} rows, {found['a second']:.0f} per second.\n\n{table(head, rows)}"


def _quantiles(one: Found) -> list[str]:
    return [f"{one['p50 ms']:.1f}", f"{one['p99 ms']:.1f}"]


def strangers(found: Found) -> str:
    """Return memory, open files and latency by phase."""
    head = ["", "memory, MB: max", "at the end", "open files: max", "at the end",
            *(f"{verb}: p99, ms" for verb in VERBS), "requests of each kind"]  # fmt: skip
    rows = [
        [
            one["name"], *(f"{x:.1f}" for x in one["MB"]), *(f"{x:,}" for x in one["files"]),
            *(f"{one[f'{verb} p99 ms']:.1f}" for verb in VERBS), f"{one['requests']:,}",
        ]
        for one in found["phases"]
    ]  # fmt: skip
    return (
        f"{found['connections']:,} connections per wave; timeouts of {found['timeout']:g} s; "
        f"{found['files']:,} open files allowed.\n\n{table(head, rows)}"
    )


def _line(one: Found) -> list[str]:
    rounds = zip(*one["all rounds"], strict=True)  # one sequence per verb
    return [
        one["what"], one["service"], str(one["connections"]),
        ", ".join(f"{x:,.0f}" for x in one["a second"]),
        ", ".join(_range(each) for each in rounds),
        "–" if one["CPU us"] is None else f"{one['CPU us']:.0f}",
        _ms(one["p50 ms"]), _ms(one["p99 ms"]),
    ]  # fmt: skip


def _ms(found: Iterable[float | None]) -> str:
    return ", ".join("–" if x is None else f"{x:.2f}" for x in found)


def _range(found: Iterable[float]) -> str:
    every = list(found)
    return f"{min(every):,.0f} to {max(every):,.0f}"
