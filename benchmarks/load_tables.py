"""The tables of what ``load.py`` found: requests a second, and memory over many rows."""

from cells import Found, table


def load(found: Found) -> str:
    """Requests a second by connections, then the memory of a long stream."""
    head = ["", "connections", "requests/s", "median, ms", "p99, ms"]
    rows = [
        [one["what"], str(one["connections"]), ", ".join(f"{x:,.0f}" for x in one["a second"]),
         ", ".join(f"{x:.2f}" for x in one["p50 ms"]), ", ".join(f"{x:.2f}" for x in one["p99 ms"])]
        for one in found["lines"]
    ]  # fmt: skip
    parts = [
        f"{found['machine']['cores']} cores, of which wrk takes one; "
        + ", ".join(f"{name} {number}" for name, number in found["machine"]["versions"].items())
        + f". SQLite alone commits {found['commits alone']:,.0f} times a second here. The medians "
        f"of {found['rounds']} rounds:",
        table(head, rows, 1),
    ]
    if "stream" in found:
        points = found["stream"]["points"]
        parts.append(
            f"{found['stream']['rows']:,} rows in requests of {found['stream']['block']:,}, by one "
            f"client, {found['stream']['a second']:,.0f} rows a second, all on the disk before "
            "they are acknowledged:"
        )
        parts.append(table(
            ["rows", *(f"{rows:,}" for rows, *_ in points)],
            [["MB of memory", *(f"{mb:.0f}" for _, mb, _ in points)],
             ["MB of the file", *(f"{mb:.0f}" for *_, mb in points)]],
        ))  # fmt: skip
    return "\n\n".join(parts)
