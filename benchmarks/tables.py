"""Markdown tables of benchmarks/results, for docs.

Each benchmark writes its results as JSON and prints them with this module. Run as a script, it
writes each table into the pages between ``<!-- name: command -->`` and ``<!-- end -->``. A test
checks that the pages agree with the results.

    python benchmarks/tables.py
"""

import json
import math
import re
from collections.abc import Callable
from pathlib import Path

from cells import Found, table, three, times
from cost_tables import scale_constants, scale_jobs, scale_runs
from kill_tables import kills
from load_tables import backups, load, strangers
from speed_tables import speed, speed_aside, speed_losses, speed_notes, speed_windows

RESULTS = Path(__file__).parent / "results"
ROOT = Path(__file__).parents[1]
PAGES = (
    *(
        ROOT / "docs" / "results" / f"{name}.md"
        for name in (
            "cost",
            "defaults",
            "kalman",
            "libraries",
            "potentials",
            "probabilities",
            "service",
            "speed",
            "streams",
        )
    ),
    ROOT / "docs" / "scale-cost.md",
)

Tables = dict[str, tuple[str, Callable[[Found], str]]]


def markdown(name: str, found: Found) -> str:
    """Return the results of a benchmark as Markdown."""
    return TABLES[name][1](found)


def peers(found: Found) -> str:
    """Return rows per second and accuracy, one table per number of features."""
    head = [
        "",
        "predictions",
        "rows/s",
        "median",
        "onepass, blocks / this",
        "error",
        "error, scaled",
    ]
    parts = []
    for p, ways in found["features"].items():
        rows = [
            [
                one["name"],
                one["prediction"],
                f"{one['best']:,.0f}",
                f"{one['median']:,.0f}",
                times(one["ratio"]),
                f"{one['error']:.0e}",
                "" if one["error, scaled"] is None else f"{one['error, scaled']:.0e}",
            ]
            for one in ways
        ]
        parts.append(f"**{p} features**\n\n{table(head, rows, 2)}")
    if missing := found.get("missing"):
        parts.append(f"Not installed: {', '.join(missing)}.")
    return "\n\n".join(parts)


def stability(found: Found) -> str:
    """Return errors after features were constant, with float64 and float32 rows."""
    head = ["", "unchanged", "changed", "tracking", "float32: unchanged", "changed", "tracking", ""]
    rows = [
        [
            name,
            *(shown(one[part]) for one in both.values() for part in PARTS),
            "; ".join(
                exceptions(dtype, one["raised"]) for dtype, one in both.items() if one["raised"]
            ),
        ]
        for name, both in found["rules"].items()
    ]
    return table(head, rows)


PARTS = ("unchanged", "changed", "tracking")


def shown(value: float | str | None) -> str:
    """Format an error; a dash for None."""
    if value is None:
        return "–"
    return f"{value:.3f}" if isinstance(value, float) and value < 1_000 else f"{float(value):.0e}"


def exceptions(dtype: str, raised: list[str]) -> str:
    """Format the exceptions raised with a dtype."""
    return f"{dtype}: {', '.join(raised)}"


def streams(found: Found) -> str:
    """Return one table per data set."""
    parts = []
    for name, one in found["sets"].items():
        outputs = "" if one["outputs"] == 1 else f", {one['outputs']} outputs per row"
        size = f"{one['rows']:,} rows, {one['features']} features{outputs}"
        head = ["", one["metric"], "tuned", "setting", "µs per row"]
        rows = [
            [
                model,
                score(one["metric"], each["defaults"]),
                "" if each["baseline"] else score(one["metric"], each["tuned"]),
                each["setting"] or ("" if each["baseline"] else "defaults"),
                f"{each['microseconds']:.1f}",
            ]
            for model, each in one["models"].items()
        ]
        parts.append(f"**{name}** ({size})\n\n{table(head, rows)}")
    return "\n\n".join(parts)


def score(metric: str, value: float) -> str:
    """Format an accuracy in percent, or an error with four digits."""
    if metric == "accuracy":
        return f"{100 * value:.2f} %"
    return f"{value:,.0f}" if value >= 10_000 else f"{value:.4g}"


def summary(found: Found) -> str:
    """Return one table of all data sets, with the settings chosen for each."""
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


def defaults(found: Found) -> str:
    """Return the error of each learner, relative to the trivial baseline of each stream."""
    sets = found["sets"]
    models = dict.fromkeys(name for one in sets.values() for name in one["models"])
    rows = [
        [f"`{name}`", *(relative(one["models"].get(name)) for one in sets.values())]
        for name in models
    ]
    return table(["", *sets], rows)


def relative(found: Found | None) -> str:
    """Format a relative error; "w" marks a warning, "refused" an error."""
    if found is None:
        return ""
    if found["error"] is None:
        return "refused"
    error = f"{found['error']:.2f}" if found["error"] < 100 else "> 100"
    return f"{error} w" if found["warnings"] else error


def cost(found: Found) -> str:
    """Return the cost of a step of ORFit, compared with three reads and with rotation."""
    head = [
        "",
        "m",
        "p",
        "ms per row",
        "median ms",
        "three reads, ms",
        "step / reads",
        "rotating / step",
    ]
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
    """Describe the settings of a measurement."""
    threads = "1 thread" if one["threads"] == 1 else f"{one['threads']} threads"
    common = f", shared part {one['common']:g}" if one["common"] else ""
    return f"{one['dtype']}, {threads}{common}"


def resnet(found: Found) -> str:
    """Return the cost of learning with a ResNet-18."""
    head = ["", "p", "m", "forward and backward, ms per row", "ORFit, ms per row", "peak / m p"]
    rows = [
        [
            f"ResNet-18, {one['norm']} normalisation",
            f"{one['p']:,}",
            f"{one['m']}",
            f"{one['forward and backward, ms per row']:,.0f}",
            f"{one['ORFit, ms per row']:,.0f}",
            f"{one['peak of learning, in m p numbers']:.2f}",
        ]
        for one in found["settings"]
        if "norm" in one
    ]
    return table(head, rows)


def orfits(found: Found) -> str:
    """Return deviations from the papers' recursions on their linear stream."""
    head = ["", "error, raw gradients", "error, projected gradients", "test RMSE"]
    rows = [
        [
            name,
            f"{one['error, raw']:.0e}",
            f"{one['error, projected']:.0e}",
            f"{one['test RMSE, degrees']:.1f}°",
        ]
        for name, one in found["digits"].items()
    ]
    return table(head, rows)


def orfit_speed(found: Found) -> str:
    """Return milliseconds per row of ORFit for two libraries."""
    head = [
        "p",
        "m",
        "op.nn.ORFit, ms per row",
        "ORFitRegressor",
        "rebayes",
        "rebayes / op.nn.ORFit",
    ]
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
    """Return the cost per row at both ends of each curve."""
    head = ["curve", "from", "µs per row", "to", "µs per row", "slope at the end", "state, kB"]
    rows = []
    for part, curves in found["parts"].items():
        for name, points in curves.items():
            ends = ((f"{x['at']:,.0f}", three(1e6 * x["s"])) for x in (points[0], points[-1]))
            megabytes = three(points[-1]["bytes"] / 1e3) if "bytes" in points[-1] else ""
            slope = f"{steepness(points):.2f}".replace("-", "−")
            rows.append([f"{part}: {name}", *sum(ends, ()), slope, megabytes])
    return table(head, rows)


def log_losses(found: Found) -> str:
    """Return log loss and accuracy of each model and table, and the ratio to the batch."""
    names = list(found["tables"])
    batch = {name: list(found["tables"][name]["models"].values())[-1] for name in names}
    rows = []
    for model in found["tables"][names[0]]["models"]:
        each = [(found["tables"][name]["models"][model], batch[name]) for name in names]
        rows.append([
            model,
            *(
                f"{one['log loss']:.3f} ({one['log loss'] / last['log loss']:.2f}×), "
                f"{100 * one['accuracy']:.1f} %"
                for one, last in each
            ),
        ])  # fmt: skip
    return table(["log loss (ratio), accuracy", *names], rows)


def conformal(found: Found) -> str:
    """Return the coverage of each stream for each level."""
    head = ["", "1 − α", "coverage", "in windows of 500 rows", "mean size"]
    rows = [
        [
            name,
            f"{100 * (1 - float(alpha)):g} %",
            f"{100 * one['coverage']:.2f} %",
            f"{100 * one['lowest']:.1f} to {100 * one['highest']:.1f} %",
            f"{one['size']:.2f} {one['unit']}",
        ]
        for name, levels in found["conformal"].items()
        for alpha, one in levels.items()
    ]
    return table(head, rows)


def steepness(points: list[dict[str, float]]) -> float:
    """Return the log-log slope of a curve's last third: 0 is constant, 1 is linear."""
    last = points[-max(len(points) // 3, 2) :]
    along, times = ([math.log(one[key]) for one in last] for key in ("at", "s"))
    middle = sum(along) / len(along)
    spread = sum((x - middle) ** 2 for x in along)
    return sum((x - middle) * y for x, y in zip(along, times, strict=True)) / spread


def forest_streams(found: Found) -> str:
    """Return the errors of the default model and of River's, one row per stream; losses first."""
    head = [
        "stream", "error", "mixture", "rls", "forest", "ARF", "HAT", "AMF", "linear", "trivial",
        "to ARF", "µs a row", "ARF's time",
    ]  # fmt: skip
    rows = []
    for name, one in found["streams"].items():
        errors, spent, classes = one["errors"], one["microseconds"], one["task"] != "regression"
        arf = min(("River ARF", "River ARF, scaled"), key=errors.__getitem__)
        names = ["mixture", "rls", "forest", arf, "River HAT", "River AMF", "River linear"]
        trivial = [errors[k] for k in ("last value", "running mean", "last label", "majority")
                   if k in errors]  # fmt: skip
        gain = errors[arf] - errors["mixture"]
        shown = f"{gain:+.1f} points" if classes else f"{100 * gain / errors[arf]:+.0f} %"
        order = gain / 1.5 if classes else 20 * gain / errors[arf]
        label = f"{name}, held out" if one["held out"] else name
        values = [*(errors[k] for k in names), min(trivial)]
        cells = [f"{value:.1f}" if classes else f"{value:.4g}" for value in values]
        cells += [shown, three(spent["mixture"]), times(spent[arf] / spent["mixture"])]
        rows.append((order, [label, "%" if classes else "MAE", *cells]))
    return table(head, [row for _, row in sorted(rows, key=lambda pair: pair[0])], words=2)


def forest_cost(found: Found) -> str:
    """Return microseconds a row by features, classes and trees."""
    head = ["task", "features", "classes", "3 trees", "10 trees", "20 trees", "mixture", "rls"]
    rows = [
        [
            "classification" if one["classes"] else "regression",
            f"{one['features']}",
            f"{one['classes'] or ''}",
            *(three(one["microseconds"][name]) for name in ("3", "10", "20", "mixture", "rls")),
        ]
        for one in found["rows"]
    ]
    return table(head, rows)


def mixture_probabilities(found: Found) -> str:
    """Return log loss and ECE of the mixture and of others; losses of the mixture are first."""
    names = ["mixture", "rls", "forest", "boosting"]
    head = ["stream", *(f"log loss, {name}" for name in names), *(f"ECE, {name}" for name in names)]
    rows = []
    for name, one in found["classes"].items():
        losses = [one[each]["log loss"] for each in names]
        cells = [f"{one[each][what]:.3f}" for what in ("log loss", "ECE") for each in names]
        rows.append((min(losses[1:]) / losses[0], [name, *cells]))
    return table(head, [row for _, row in sorted(rows, key=lambda pair: pair[0])])


def mixture_intervals(found: Found) -> str:
    """Return the coverage of intervals by stream."""
    rows = [[name, f"{share:.3f}"] for name, share in found["intervals"].items()]
    return table(["stream", "coverage"], sorted(rows, key=lambda row: row[1]))


def real_tables(found: Found) -> str:
    """Return ratios of errors, one row per table; the largest are first."""
    head = [
        "table", "rows", "error", "mixture / rls", "mixture / forest", "rls / trivial",
        "sgd / trivial", "rls, lags / last", "sgd, lags / last", "rls / linear", "rls / tree",
        "rls / forest",
    ]  # fmt: skip
    rows = []
    for name, one in found["tables"].items():
        errors = one["errors"]
        trivial = errors["majority" if one["task"] == "classification" else "running mean"]
        last = errors.get("last label" if one["task"] == "classification" else "last value")
        suffix = "lags" if one["ordered"] else "no lags"
        best = errors["rls, lags" if one["ordered"] else "rls"]
        mixed = errors["mixture, lags" if one["ordered"] else "mixture"]
        ratios = [
            _ratio(errors["mixture"], errors["rls"]),
            _ratio(mixed, errors.get(f"River forest, 3 trees, {suffix}")),
            _ratio(errors["rls"], trivial),
            _ratio(errors["sgd"], trivial),
            *(_ratio(errors.get(f"{model}, lags"), last) for model in ("rls", "sgd")),
            _ratio(errors["rls"], errors.get("River linear, no lags")),
            _ratio(best, errors.get(f"River adaptive tree, {suffix}")),
            _ratio(best, errors.get(f"River forest, 3 trees, {suffix}")),
        ]
        value = one["errors"]["rls"]
        shown = f"{100 * value:.1f} %" if one["task"] == "classification" else f"{value:.4g}"
        worst = max(ratio for ratio in ratios[:6] if ratio is not None)
        label = f"{name}, held out" if one["held out"] else name
        cells = ["" if ratio is None else f"{ratio:.3f}" for ratio in ratios]
        rows.append((worst, [label, f"{one['rows']:,}", shown, *cells]))
    return table(head, [row for _, row in sorted(rows, key=lambda pair: -pair[0])])


def _ratio(one: float | None, other: float | None) -> float | None:
    """Return the ratio of two errors; None if one was not measured."""
    if one is None or other is None:
        return None
    return 1.0 if one == other else one / other if other else math.inf


def suggested(found: Found) -> str:
    """Return the suggestion and the best candidate for each stream; losses are first."""
    head = ["stream", "suggested", "best in hindsight", "rows", "error / best"]
    each = sorted(found["streams"].items(), key=lambda pair: -pair[1]["ratio"])
    rows = [
        [name, f"`{one['suggested']}`", f"`{one['best']}`", f"{one['rows']:,}",
         f"{one['ratio']:.3f}"]
        for name, one in each
    ]  # fmt: skip
    return table(head, rows, 3)


def kalman_filters(found: Found) -> str:
    """Return the time of Kalman filters, and the difference of their weights."""
    ways = list(found["filters"][0]["microseconds"])
    rows = [
        [
            str(one["weights"]),
            one["movement"],
            *(three(one["microseconds"][way]) for way in ways),
            *(f"{one['difference'][way]:.0e}" for way in ways[2:]),
        ]
        for one in found["filters"]
    ]
    head = ["weights", "movement", *(f"{way}, µs" for way in ways)]
    return table([*head, *(f"difference to {way.split()[0]}" for way in ways[2:])], rows, 2)


def kalman_streams(found: Found) -> str:
    """Return the errors of models that follow a stream."""
    streams_ = found["streams"]
    models = list(next(iter(streams_.values()))["scores"])
    rows = []
    for name, one in streams_.items():
        pick = max if one["metric"] == "accuracy" else min
        best = pick(one["scores"].values())
        cells = [score(one["metric"], one["scores"][model]) for model in models]
        bold = score(one["metric"], best)
        rows.append([f"{name}, {one['metric']}", *(f"**{c}**" if c == bold else c for c in cells)])
    costs = [sum(one["microseconds"][m] for one in streams_.values()) for m in models]
    rows.append(["mean µs per row", *(three(cost_ / len(streams_)) for cost_ in costs)])
    return table(["", *models], rows)


def potentials(found: Found) -> str:
    """Return the error of the weights by potential, and the time of the most rows."""
    names = list(found["rows"][0]["error"])
    rows = [
        [one["truth"], str(one["n"]), *(f"{one['error'][name]:.2g}" for name in names)]
        for one in found["rows"]
    ]
    last = found["rows"][-1]
    rows.append(["ms per row", str(last["n"]), *(three(last["ms"][name]) for name in names)])
    return table(["weights not zero", "rows", *names], rows)


TABLES: Tables = {
    "backups": ("backups.json", backups),
    "conformal": ("probabilities.json", conformal),
    "cost": ("network.json", cost),
    "growth": ("growth.json", growth),
    "kills": ("kills.json", kills),
    "load": ("load.json", load),
    "log_losses": ("probabilities.json", log_losses),
    "resnet": ("network.json", resnet),
    "speed": ("20*.json", speed),
    "speed_aside": ("20*.json", speed_aside),
    "speed_losses": ("20*.json", speed_losses),
    "speed_notes": ("20*.json", speed_notes),
    "speed_windows": ("20*.json", speed_windows),
    "orfits": ("network_peers.json", orfits),
    "orfit_speed": ("network_peers.json", orfit_speed),
    "peers": ("peers.json", peers),
    "forest_cost": ("forest_cost.json", forest_cost),
    "forest_streams": ("forest_streams.json", forest_streams),
    "mixture_intervals": ("mixture_probabilities.json", mixture_intervals),
    "mixture_probabilities": ("mixture_probabilities.json", mixture_probabilities),
    "real_tables": ("real_tables.json", real_tables),
    "stability": ("stability.json", stability),
    "kalman_filters": ("kalman.json", kalman_filters),
    "kalman_streams": ("kalman.json", kalman_streams),
    "potentials": ("potentials.json", potentials),
    "strangers": ("strangers.json", strangers),
    "streams": ("streams.json", streams),
    "defaults": ("defaults.json", defaults),
    "scale_constants": ("scale_cost.json", scale_constants),
    "scale_jobs": ("scale_cost.json", scale_jobs),
    "scale_runs": ("scale_cost.json", scale_runs),
    "suggest": ("suggest.json", suggested),
    "summary": ("streams.json", summary),
}


def newest(name: str, results: Path = RESULTS) -> Found:
    """Return the newest results of a table; file names start with the date."""
    path = max(results.glob(TABLES[name][0]))
    found: Found = json.loads(path.read_text(encoding="utf-8"))
    return found


def page(text: str, results: Path = RESULTS) -> str:
    """Return a page with its tables replaced by the current results."""

    def put(place: re.Match[str]) -> str:
        name = place["name"]
        found = newest(name, results)
        return f"<!-- {name}: {found['command']} -->\n\n{markdown(name, found)}\n\n<!-- end -->"

    marked = rf"<!-- (?P<name>{'|'.join(TABLES)}): [^\n]* -->\n.*?<!-- end -->"
    return re.sub(marked, put, text, flags=re.DOTALL)


def main() -> None:
    for path in PAGES:
        path.write_text(page(path.read_text(encoding="utf-8")), encoding="utf-8")
        print(f"Updated the tables in {path} from {RESULTS}.")


if __name__ == "__main__":
    main()
