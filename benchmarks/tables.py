"""Tables of benchmarks/results, as Markdown; docs/comparison.md shows them as they are.

Each benchmark writes what it found as JSON and prints it by this file. Run as a script, it puts
each table into the page, between ``<!-- name: command -->`` and ``<!-- end -->``; a test holds the
page to that, so that no figure in it is anything but what a command has found.

    python benchmarks/tables.py
"""

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
PAGE = Path(__file__).parents[1] / "docs" / "comparison.md"

Found = Mapping[str, Any]
Tables = dict[str, Callable[[Found], str]]


def markdown(name: str, found: Found) -> str:
    """What a benchmark found, as Markdown."""
    return TABLES[name](found)


def write(path: Path, found: Found) -> None:
    """What a benchmark found, as JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def table(head: list[str], rows: list[list[str]], words: int = 1) -> str:
    """A table whose first columns are words, the others numbers."""
    rule = ["---" if i < words else "--:" for i in range(len(head))]
    return "\n".join("| " + " | ".join(row) + " |" for row in [head, rule, *rows])


def peers(found: Found) -> str:
    """Rows a second and exactness, one table for each number of features."""
    head = ["", "answers", "rows/s", "median", "onepass, blocks / this", "off", "off, scaled"]
    parts = []
    for p, ways in found["features"].items():
        rows = [
            [
                one["name"],
                one["said"],
                f"{one['best']:,.0f}",
                f"{one['median']:,.0f}",
                times(one["ratio"]),
                f"{one['off']:.0e}",
                "" if one["off, scaled"] is None else f"{one['off, scaled']:.0e}",
            ]
            for one in ways
        ]
        parts.append(f"**{p} features**\n\n{table(head, rows, 2)}")
    return "\n\n".join(parts)


def times(ratio: float) -> str:
    """A ratio, to two figures below ten."""
    return f"{ratio:.2g}×" if ratio < 10 else f"{ratio:,.0f}×"


def stability(found: Found) -> str:
    """Errors after a silence, with float64 and float32 rows."""
    head = ["", "unchanged", "changed", "tracking", "float32: unchanged", "changed", "tracking", ""]
    rows = [
        [
            name,
            *(shown(one[part]) for one in both.values() for part in PARTS),
            "; ".join(said(dtype, one["raised"]) for dtype, one in both.items() if one["raised"]),
        ]
        for name, both in found["rules"].items()
    ]
    return table(head, rows)


PARTS = ("unchanged", "changed", "tracking")


def shown(value: float | str | None) -> str:
    """An error; a dash where there is none."""
    if value is None:
        return "–"
    return f"{value:.3f}" if isinstance(value, float) and value < 1_000 else f"{float(value):.0e}"


def said(dtype: str, raised: list[str]) -> str:
    """What went wrong."""
    return f"{dtype}: {', '.join(raised)}"


def streams(found: Found) -> str:
    """A table for each data set."""
    parts = []
    for name, one in found["sets"].items():
        outputs = "" if one["outputs"] == 1 else f", {one['outputs']} answers a row"
        size = f"{one['rows']:,} rows, {one['features']} features{outputs}"
        head = ["", one["metric"], "tuned", "by", "µs a row"]
        rows = [
            [
                model,
                score(one["metric"], each["as it comes"]),
                "" if each["baseline"] else score(one["metric"], each["tuned"]),
                each["setting"] or ("" if each["baseline"] else "as it comes"),
                f"{each['microseconds']:.1f}",
            ]
            for model, each in one["models"].items()
        ]
        parts.append(f"**{name}** ({size})\n\n{table(head, rows)}")
    return "\n\n".join(parts)


def score(metric: str, value: float) -> str:
    """An accuracy in percent; an error in four figures."""
    if metric == "accuracy":
        return f"{100 * value:.2f} %"
    return f"{value:,.0f}" if value >= 10_000 else f"{value:.4g}"


TABLES: Tables = {"peers": peers, "stability": stability, "streams": streams}


def page(text: str, results: Path = RESULTS) -> str:
    """The page, with each of its tables as the results have it."""

    def put(place: re.Match[str]) -> str:
        found = json.loads((results / f"{place['name']}.json").read_text(encoding="utf-8"))
        body = markdown(place["name"], found)
        return f"<!-- {place['name']}: {found['command']} -->\n\n{body}\n\n<!-- end -->"

    marked = r"<!-- (?P<name>\w+): [^\n]* -->\n.*?<!-- end -->"
    return re.sub(marked, put, text, flags=re.DOTALL)


def main() -> None:
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    print(f"Wrote the tables of {RESULTS} into {PAGE}.")


if __name__ == "__main__":
    main()
