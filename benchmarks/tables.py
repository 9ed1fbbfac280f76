"""Tables of benchmarks/results, as Markdown; docs/comparison.md and README show them as they are.

Each benchmark writes what it found as JSON and prints it by this file. Run as a script, it puts
each table into the pages, between ``<!-- name: command -->`` and ``<!-- end -->``; a test holds the
pages to that, so that no figure in them is anything but what a command has found.

    python benchmarks/tables.py
"""

import json
import math
import re
from collections.abc import Callable
from pathlib import Path

from cells import Found, table, three, times
from kill_tables import kills
from load_tables import load
from speed_tables import gains, speed, speed_aside, speed_notes, speed_short

RESULTS = Path(__file__).parent / "results"
ROOT = Path(__file__).parents[1]
PAGES = tuple(
    ROOT / "docs" / f"{name}.md" for name in ("comparison", "cost", "performance", "serving")
)
PAGES = (*PAGES, ROOT / "README.md")

Tables = dict[str, tuple[str, Callable[[Found], str]]]


def markdown(name: str, found: Found) -> str:
    """What a benchmark found, as Markdown."""
    return TABLES[name][1](found)


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


def summary(found: Found) -> str:
    """All data sets in one table, the models with the settings that were chosen for each."""
    sets = found["sets"]
    each = [(name, model) for one in sets.values() for name, model in one["models"].items()]
    models = dict.fromkeys(name for name, _ in sorted(each, key=lambda pair: pair[1]["baseline"]))
    rows = [
        [
            name,
            *(
                score(one["metric"], one["models"][name]["tuned"]) if name in one["models"] else ""
                for one in sets.values()
            ),
        ]
        for name in models
    ]
    return table(["", *(f"{name}, {one['metric']}" for name, one in sets.items())], rows)


def cost(found: Found) -> str:
    """What a step of ORFit costs, beside three reads and rotating each time."""
    head = ["", "m", "p", "ms a row", "between turns", "three reads, ms", "step / reads", "slower"]
    head += ["peak / m p"]
    rows = [
        [
            worded(one),
            f"{one['m']}",
            f"{one['p']:,}",
            f"{one['step, ms']:.3g}",
            f"{one['median step, ms']:.3g}",
            f"{one['three reads, ms']:.3g}",
            f"{one['step / three reads']:.2f}",
            times(one["rotating / step"]),
            f"{one['peak, in m p numbers']:.2f}",
        ]
        for one in found["settings"]
        if "step, ms" in one
    ]
    return table(head, rows)


def worded(one: Found) -> str:
    """What sets a measurement apart."""
    threads = "1 thread" if one["threads"] == 1 else f"{one['threads']} threads"
    common = f", {one['common']:g} in common" if one["common"] else ""
    return f"{one['dtype']}, {threads}{common}"


def resnet(found: Found) -> str:
    """Rows learned by a ResNet-18."""
    head = ["", "p", "m", "forward and backward, ms a row", "ORFit, ms a row", "peak / m p"]
    rows = [
        [
            f"ResNet-18, {one['norm']} normalisation",
            f"{one['p']:,}",
            f"{one['m']}",
            f"{one['forward and backward, ms a row']:,.0f}",
            f"{one['ORFit, ms a row']:,.0f}",
            f"{one['peak of learning, in m p numbers']:.2f}",
        ]
        for one in found["settings"]
        if "norm" in one
    ]
    return table(head, rows)


def orfits(found: Found) -> str:
    """How near the papers' recursions other code is, on their linear stream."""
    head = ["", "off raw gradients", "off projected ones", "test RMSE"]
    rows = [
        [
            name,
            f"{one['off raw']:.0e}",
            f"{one['off projected']:.0e}",
            f"{one['test RMSE, degrees']:.1f}°",
        ]
        for name, one in found["digits"].items()
    ]
    return table(head, rows)


def orfit_speed(found: Found) -> str:
    """Milliseconds a row of ORFit by two libraries."""
    head = ["p", "m", "op.nn.ORFit, ms a row", "ORFitRegressor", "rebayes", "rebayes / op.nn.ORFit"]
    rows = [
        [
            f"{one['p']:,}",
            f"{one['m']}",
            f"{one['onepass']:.3g}",
            f"{one['ORFitRegressor']:.3g}" if "ORFitRegressor" in one else "",
            f"{one['rebayes']:.3g}",
            times(one["rebayes"] / one["onepass"]),
        ]
        for one in found["speed"]
    ]
    return table(head, rows, 0)


def growth(found: Found) -> str:
    """What a row costs at the ends of each curve."""
    head = ["over", "from", "µs a row", "to", "µs a row", "slope at the end", "kept, kB"]
    rows = []
    for part, curves in found["parts"].items():
        for name, points in curves.items():
            ends = ((f"{x['at']:,.0f}", three(1e6 * x["s"])) for x in (points[0], points[-1]))
            kept = three(points[-1]["bytes"] / 1e3) if "bytes" in points[-1] else ""
            slope = f"{steepness(points):.2f}".replace("-", "−")
            rows.append([f"{part}: {name}", *sum(ends, ()), slope, kept])
    return table(head, rows)


def steepness(points: list[dict[str, float]]) -> float:
    """The slope of a curve's last third, both ways logarithmic: 0 is flat, 1 in proportion."""
    last = points[-max(len(points) // 3, 2) :]
    along, times = ([math.log(one[key]) for one in last] for key in ("at", "s"))
    middle = sum(along) / len(along)
    spread = sum((x - middle) ** 2 for x in along)
    return sum((x - middle) * y for x, y in zip(along, times, strict=True)) / spread


TABLES: Tables = {
    "cost": ("network.json", cost),
    "gains": ("gains.json", gains),
    "growth": ("growth.json", growth),
    "kills": ("kills.json", kills),
    "load": ("load.json", load),
    "resnet": ("network.json", resnet),
    "speed": ("20*.json", speed),
    "speed_short": ("20*.json", speed_short),
    "speed_aside": ("20*.json", speed_aside),
    "speed_notes": ("20*.json", speed_notes),
    "orfits": ("network_peers.json", orfits),
    "orfit_speed": ("network_peers.json", orfit_speed),
    "peers": ("peers.json", peers),
    "stability": ("stability.json", stability),
    "streams": ("streams.json", streams),
    "summary": ("streams.json", summary),
}


def newest(name: str, results: Path = RESULTS) -> Found:
    """What was found last of a table: a file whose name begins with the latest day."""
    path = max(results.glob(TABLES[name][0]))
    found: Found = json.loads(path.read_text(encoding="utf-8"))
    return found


def page(text: str, results: Path = RESULTS) -> str:
    """A page, with each of its tables as the results have it."""

    def put(place: re.Match[str]) -> str:
        name = place["name"]
        found = newest(name, results)
        return f"<!-- {name}: {found['command']} -->\n\n{markdown(name, found)}\n\n<!-- end -->"

    marked = rf"<!-- (?P<name>{'|'.join(TABLES)}): [^\n]* -->\n.*?<!-- end -->"
    return re.sub(marked, put, text, flags=re.DOTALL)


def main() -> None:
    for path in PAGES:
        path.write_text(page(path.read_text(encoding="utf-8")), encoding="utf-8")
        print(f"The tables in {path} are those of {RESULTS}.")


if __name__ == "__main__":
    main()
