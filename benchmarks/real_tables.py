"""Forty real tables on which ``onepass run FILE --target T`` is judged without options.

Twenty tables are held out: defaults were chosen on the other twenty, and the held-out tables were
run once at the end. The assignment was made before the first run: tables whose streams had been
used in earlier studies are for development, and of the others the twenty names with the smallest
CRC-32 are held out.

    python benchmarks/real_tables.py [--held-out] [--tables elec2,digits] [--no-peers]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import pandas as pd
import river.datasets
import sklearn.datasets
import statsmodels.datasets
from cells import write
from river import forest, tree
from stream_models import ADAPTIVE, FOREST, grown, linear, logistic
from tables import RESULTS
from vega_datasets import local_data

import onepass as op

ROWS = 20_000  # first rows of longer tables


@dataclass(frozen=True)
class RealTable:
    """A table, its target, and whether its rows have an order in time."""

    name: str
    source: str
    target: str
    load: Callable[[], pd.DataFrame]
    ordered: bool = False
    studied: bool = False

    @property
    def held_out(self) -> bool:
        return self.name in _HELD_OUT


def _named(name: str, target: str, *, ordered: bool = False, studied: bool = False,
           source: str | None = None, drop: tuple[str, ...] = ()) -> RealTable:  # fmt: skip
    """Return a table of a data set of onepass; other targets of it are dropped."""

    def load() -> pd.DataFrame:
        parts = []
        stream = op.stream.dataset(source or name)
        targets = [stream.target] if isinstance(stream.target, str) else list(stream.target or [])
        for rows in stream:
            values = np.asarray(rows.y).reshape(len(rows.y), -1)
            columns = {**rows.X.columns, **dict(zip(targets, values.T, strict=True))}
            parts.append(pd.DataFrame(columns))
            if sum(map(len, parts)) >= ROWS:
                break
        frame = pd.concat(parts, ignore_index=True)
        others = [other for other in targets if other != target] if target in targets else []
        return frame.drop(columns=[*others, *drop])

    return RealTable(name, "onepass", target, load, ordered, studied)


def _sklearn(name: str, target: str = "target") -> RealTable:
    def load() -> pd.DataFrame:
        found = getattr(sklearn.datasets, f"load_{name}")(as_frame=True)
        frame = found.frame.copy()
        if hasattr(found, "target_names") and name != "digits":
            frame["target"] = np.asarray(found.target_names)[frame["target"]]
        return frame.sample(frac=1, random_state=0)  # some tables are sorted by class

    return RealTable(name, "scikit-learn", target, load)


def _river(name: str, kind: str, *, ordered: bool = False, shuffle: bool = False,
           target: str = "target", **options: Any) -> RealTable:  # fmt: skip
    def load() -> pd.DataFrame:
        rows = list(getattr(river.datasets, kind)(**options).take(ROWS))
        frame = pd.DataFrame([x for x, _ in rows])
        labels = [y if not isinstance(y, dict) else y[target] for _, y in rows]
        frame[target] = labels
        return frame.sample(frac=1, random_state=0) if shuffle else frame

    return RealTable(name, "River", target, load, ordered)


def _vega(name: str, target: str, *, ordered: bool = False, source: str | None = None,
          sort: str | None = None, shuffle: bool = False) -> RealTable:  # fmt: skip
    def load() -> pd.DataFrame:
        frame = local_data(source or name).dropna(subset=[target])
        if shuffle:
            frame = frame.sample(frac=1, random_state=0)
        return frame.sort_values(sort, kind="stable") if sort else frame

    return RealTable(name, "vega_datasets", target, load, ordered)


def _statsmodels(name: str, target: str, *, ordered: bool = False, source: str | None = None,
                 sort: list[str] | None = None, drop: tuple[str, ...] = (), shuffle: bool = False,
                 ) -> RealTable:  # fmt: skip
    def load() -> pd.DataFrame:
        frame = getattr(statsmodels.datasets, source or name).load_pandas().data
        if isinstance(frame.index, pd.DatetimeIndex):
            frame = frame.rename_axis("date").reset_index()
        frame = frame.dropna(subset=[target]).drop(columns=list(drop))
        if shuffle:
            frame = frame.sample(frac=1, random_state=0)
        return frame.sort_values(sort, kind="stable") if sort else frame

    return RealTable(name, "statsmodels", target, load, ordered)


TABLES = {
    table.name: table
    for table in (
        _named("elec2", "class", ordered=True, studied=True),
        _named("elec2-price", "nswprice", source="elec2", ordered=True, studied=True,
               drop=("class",)),
        _named("vic-elec", "Demand", ordered=True, studied=True),
        _named("bikeshare", "riders", ordered=True, studied=True),
        _named("occupancy", "occupancy", ordered=True, studied=True),
        _named("panda", "tau1", ordered=True, studied=True),
        _named("ur10", "effort1", ordered=True, studied=True),
        _named("flights", "arr_delay", ordered=True),
        _named("kin40k", "y"),
        _named("protein", "y"),
        _named("pol", "y"),
        _named("elevators", "y"),
        _sklearn("digits"),
        _sklearn("diabetes"),
        _sklearn("breast_cancer"),
        _sklearn("wine"),
        _sklearn("iris"),
        _river("airline-passengers", "AirlinePassengers", ordered=True),
        _river("bananas", "Bananas"),
        _river("chick-weights", "ChickWeights", ordered=True),
        _river("image-segments", "ImageSegments", shuffle=True),
        _river("phishing", "Phishing"),
        _river("shuttle", "Shuttle"),
        _river("solar-flare", "SolarFlare", target="c-class-flares"),
        _river("sp500", "SP500Stocks", ordered=True),
        _river("trump-approval", "TrumpApproval", ordered=True),
        _river("water-flow", "WaterFlow", ordered=True),
        _vega("airports", "longitude", shuffle=True),
        _vega("cars", "Miles_per_Gallon"),
        _vega("seattle-temps", "temp", ordered=True),
        _vega("seattle-weather", "weather", ordered=True),
        _vega("stocks", "price", ordered=True, sort="date"),
        _vega("us-employment", "nonfarm", ordered=True),
        _statsmodels("anes96", "vote", shuffle=True),
        _statsmodels("co2", "co2", ordered=True),
        _statsmodels("fair", "affairs", shuffle=True),
        _statsmodels("macrodata", "unemp", ordered=True),
        _statsmodels("modechoice", "choice"),
        _statsmodels("randhie", "mdvis", shuffle=True),
        _statsmodels("sunspots", "SUNACTIVITY", ordered=True),
    )
}  # fmt: skip
_CANDIDATES = [name for name, table in TABLES.items() if not table.studied]
_HELD_OUT = frozenset(sorted(_CANDIDATES, key=lambda name: crc32(name.encode()))[:20])

MODELS = ("mixture", "rls", "sgd")
PEERS = {
    "regression": {
        "River linear": linear,
        "River adaptive tree": ADAPTIVE,
        "River forest, 3 trees": FOREST,
    },
    "classification": {
        "River linear": logistic,
        "River adaptive tree": grown(tree.HoeffdingAdaptiveTreeClassifier, seed=1),
        "River forest, 3 trees": grown(forest.ARFClassifier, n_models=3, seed=1),
    },
}


def run_command(table: RealTable, file: Path, *options: str) -> tuple[str, dict[str, float]]:
    """Run ``onepass run``; return the task and the error of each model and baseline.

    The error is the mean absolute error, or the proportion of rows with a wrong prediction.
    """
    report = file.parent / "report"
    command = [sys.executable, "-m", "onepass", "run", str(file), "--target", table.target]
    models = ["--model", ",".join(MODELS), "--report", str(report), "--quiet"]
    subprocess.run([*command, *models, *options], check=True, capture_output=True)  # noqa: S603
    found = json.loads((report / "report.json").read_text(encoding="utf-8"))
    return found["task"], {name: _error(one["overall"]) for name, one in found["scores"].items()}


def _error(overall: dict[str, float]) -> float:
    return overall["mae"] if "mae" in overall else 1.0 - overall["accuracy"]


def run_peers(table: RealTable, file: Path, task: str) -> dict[str, float]:
    """Evaluate River's models on the encoded features; with the last target if rows are ordered."""
    encode, parts, targets = op.features.Encode(), [], []
    for rows in op.stream.read(file, target=table.target):
        parts.append(encode.learn_transform(rows.X))
        targets.append(rows.y)
    width = max(part.shape[1] for part in parts)
    X = np.vstack([np.pad(part, ((0, 0), (0, width - part.shape[1]))) for part in parts])
    X = op.features.Impute().learn_transform(X)
    y = np.concatenate(targets)
    if task == "classification":
        y = np.unique(y, return_inverse=True)[1]
    with_last = np.column_stack((X, np.r_[0.0, y[:-1].astype(float)])) if table.ordered else X
    errors = {}
    for name, build in PEERS[task].items():
        for suffix, features in ((", no lags", X), (", lags", with_last)):
            if (suffix == ", no lags") == (name == "River linear" or not table.ordered):
                scores = op.evaluate.prequential(build(), (features, y), baselines=False).scores
                errors[name + suffix] = _error(next(iter(scores.values())).overall)
    return errors


def measure(table: RealTable, *, peers: bool) -> dict[str, Any]:
    """Return the errors of all models on one table."""
    frame = table.load().head(ROWS)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / f"{table.name}.csv"
        frame.to_csv(file, index=False)
        task, errors = run_command(table, file)
        if table.ordered:
            lagged = run_command(table, file, "--lags", "1")[1]
            errors |= {f"{name}, lags": lagged[name] for name in MODELS}
        if peers:
            errors |= run_peers(table, file, task)
    return {
        "source": table.source,
        "target": table.target,
        "task": task,
        "ordered": table.ordered,
        "held out": table.held_out,
        "rows": len(frame),
        "errors": errors,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--held-out", action="store_true", help="also run the held-out tables")
    parser.add_argument("--tables", help="names of tables to run, separated by commas")
    parser.add_argument("--no-peers", action="store_true", help="keep the results of River")
    arguments = parser.parse_args()
    wanted = arguments.tables.split(",") if arguments.tables else list(TABLES)
    path = RESULTS / "real_tables.json"
    found = json.loads(path.read_text(encoding="utf-8"))["tables"] if path.exists() else {}
    for name in wanted:
        if TABLES[name].held_out and not arguments.held_out:
            continue
        try:
            before = found[name]["errors"] if arguments.no_peers and name in found else {}
            found[name] = measure(TABLES[name], peers=not arguments.no_peers)
            found[name]["errors"] = before | found[name]["errors"]
        except op.errors.SourceError as missing:
            print(f"{name} is skipped: {missing}")
        else:
            print(name, {model: round(e, 5) for model, e in found[name]["errors"].items()})
    result = {"command": "python benchmarks/real_tables.py --held-out", "tables": found}
    write(path, result)


if __name__ == "__main__":
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        main()
