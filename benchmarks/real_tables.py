"""Forty real tables on which ``onepass run FILE --target T`` is judged without options.

Twenty tables are held out: defaults were chosen on the other twenty, and the held-out tables were
run once at the end. The assignment was made before the first run: tables whose streams had been
used in earlier studies are for development, and of the others the twenty names with the smallest
CRC-32 are held out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from zlib import crc32

import numpy as np
import pandas as pd
import river.datasets
import sklearn.datasets
import statsmodels.datasets
from vega_datasets import local_data

import onepass as op

ROWS = 50_000  # first rows of longer tables


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
