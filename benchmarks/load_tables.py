"""Tables of the results of ``load.py``: requests per second, and memory over a long stream."""

from collections.abc import Iterable
from statistics import median

from cells import Found, table


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
