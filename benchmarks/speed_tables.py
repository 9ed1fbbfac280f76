"""Tables of the results of ``speed.py``: goals, onepass, and the fastest other library."""

from collections.abc import Iterator
from typing import Any

from cells import Found, table, times

UNITS = (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6), ("ns", 1e-9))
CLOSE = 1e-6  # larger differences of results are bold


def speed(found: Found) -> str:
    """Return all benchmarks: goals, medians, and the spread of the rounds."""
    head = ["work", "required", "aim", "measured", "onepass", "± rounds", "fastest other", "",
            "± rounds", "difference", "share of the limit"]  # fmt: skip
    rows = []
    for work in works(found):
        best = work["best"]
        other = [f"{best}", per_unit(work, best), spread(work["rates"][best])] if best else [""] * 3
        rows.append(
            [
                work["name"],
                goal(work["required"]),
                goal(work["aim"]),
                measured(work),
                per_unit(work, work["ours"]),
                spread(work["rates"][work["ours"]]),
                *other,
                difference(work["differs"]),
                share(work),
            ]
        )
    return f"{machine(found)}\n\n{table(head, rows)}"


def speed_losses(found: Found) -> str:
    """Return the benchmarks in which onepass is slower, the slowest first."""
    slower = [work for work in works(found) if work["best"] and work["ratio"] < 1.0]
    rows = [
        [work["name"], work["best"], times(work["ratio"])]
        for work in sorted(slower, key=lambda work: work["ratio"])
    ]
    return table(["work", "compared with", "measured"], rows, 2)


def speed_windows(found: Found) -> str:
    """Return the largest errors of sliding windows."""
    streams = next((work["errors"] for work in works(found) if work["errors"]), None)
    if streams is None:
        return "This run did not measure them."
    libraries = list(next(iter(streams.values())))
    rows = [
        [name, *("–" if each[key] is None else f"{each[key]:.0e}" for key in libraries)]
        for name, each in streams.items()
    ]
    return table(["", *libraries], rows)


def speed_notes(found: Found) -> str:
    """Return the notes on benchmarks, each once."""
    notes: dict[str, list[str]] = {}
    for work in works(found):
        missing = f"Not installed: {', '.join(work['missing'])}" if work["missing"] else ""
        for note in (work["note"].strip(" ."), missing):
            if note:
                notes.setdefault(note, []).append(work["name"])
    return "\n".join(f"- *{among(names)}*: {note}." for note, names in notes.items())


def speed_aside(found: Found) -> str:
    """Return further measurements: other implementations and other numbers."""
    rows = []
    for work in works(found):
        aside = [[way, per_unit(work, way)] for way in work["aside"] if way in work["rates"]]
        others = [[name, figure(value)] for name, value in work["numbers"].items()]
        lines = aside + others
        rows += [[work["name"] if k == 0 else "", *line] for k, line in enumerate(lines)]
    return table(["", "", ""], rows, 2)


def among(names: list[str]) -> str:
    """Join names; of three or more, give the first and the count."""
    return "; ".join(names) if len(names) < 3 else f"{names[0]}, and {len(names) - 1} others"


def works(found: Found) -> Iterator[Any]:
    """Yield the benchmarks of all sections, in order."""
    for section in found["sections"].values():
        yield from section["works"]


def machine(found: Found) -> str:
    """Describe the machine and the versions."""
    about, sections = found["machine"], found["sections"].values()
    peaks = sorted(section["peak"] / 1e9 for section in sections)
    reads = sorted(section["bandwidth"] / 1e9 for section in sections)
    versions = ", ".join(f"{name} {version}" for name, version in about["versions"].items())
    missing = f"; not installed: {', '.join(about['missing'])}" if about["missing"] else ""
    return (
        f"{about['processor']}, {about['cores']} cores, {about['threads']} thread in use; dgemm "
        f"{peaks[0]:.0f} to {peaks[-1]:.0f} GF/s and {reads[0]:.1f} to {reads[-1]:.1f} GB/s read "
        f"from memory, measured before each section; Python {about['python']}, {versions}"
        f"{missing}; {found['rounds']} rounds, medians."
    )


def goal(ratio: float | None) -> str:
    """Format a required or desired ratio."""
    return "" if ratio is None else f"≥ {ratio:.2g}×"


def measured(work: Any) -> str:
    """Format the ratio; a ratio below the required one is bold."""
    ratio, required = work["ratio"], work["required"]
    if ratio is None:
        return ""
    return f"**{times(ratio)}**" if required is not None and ratio < required else times(ratio)


def difference(differs: float | None) -> str:
    """Format the difference of results; a large one is bold."""
    if differs is None:
        return ""
    text = f"{differs:.0e}" if differs else "0"
    return text if differs < CLOSE else f"**{text}**"


def share(work: Any) -> str:
    """Format the rate as a share of the machine's limit."""
    if work["limit"] is None:
        return ""
    name, rate = work["limit"]
    return f"{work['medians'][work['ours']] / rate:.0%} of {name}"


def per_unit(work: Any, way: str) -> str:
    """Format the time per unit."""
    return f"{span(1.0 / work['medians'][way])} per {work['unit'].removesuffix('s')}"


def spread(rates: list[float]) -> str:
    """Format the largest deviation of a round from the median."""
    middle = sorted(rates)[len(rates) // 2]
    return f"{max(abs(rate / middle - 1.0) for rate in rates):.0%}"


def span(seconds: float) -> str:
    """Format seconds with a suitable unit and three digits."""
    name, size = next(((n, s) for n, s in UNITS if seconds >= s), UNITS[-1])
    return f"{figure(seconds / size)} {name}"


def figure(value: float) -> str:
    """Format with three digits, or as an integer from 100."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
