"""Memory of reading does not depend on the length of the file."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

MIB = 1 << 20
STATUS = Path("/proc/self/status")

# the peak of the process itself; ru_maxrss includes that of the parent process
pytestmark = pytest.mark.skipif(
    not STATUS.exists() or "VmHWM" not in STATUS.read_text(), reason="needs the peak in /proc"
)

READ = """
import os, re, sys
from pathlib import Path
from onepass.stream import read
def peak():
    return int(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1])
def rows(path):
    return sum(len(block) for block in read(path, target="y", block=1024))
for short, long in zip(sys.argv[1::2], sys.argv[2::2]):
    child = os.fork()  # a fork has a peak of its own
    if child == 0:
        rows(short)
        before = peak()
        print(rows(long), peak() - before, flush=True)
        os._exit(0)
    os.waitpid(child, 0)
"""
N = 500_000


def write_parquet(path: Path, n: int) -> None:
    """Write n rows of 10 columns in one row group, uncompressed."""
    rng = np.random.default_rng(0)
    table = pa.table({name: rng.normal(size=n) for name in [*(f"x{j}" for j in range(9)), "y"]})
    pq.write_table(table, path, row_group_size=n, compression="none", use_dictionary=False)


def write_csv(path: Path, n: int) -> None:
    """Write n rows of 10 columns."""
    header = ",".join([*(f"x{j}" for j in range(9)), "y"]) + "\n"
    path.write_text(header + (",".join(["1.25"] * 10) + "\n") * n)


def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    """Reading a long file needs as much memory as reading a short one."""
    short, long = tmp_path / "short.parquet", tmp_path / "long.parquet"
    write_parquet(short, 2000)
    write_parquet(long, N)
    assert pq.read_metadata(long).num_row_groups == 1
    short_csv, long_csv = tmp_path / "short.csv", tmp_path / "long.csv"
    write_csv(short_csv, 100_000)  # as long as the sample from which types are inferred
    write_csv(long_csv, 800_000)
    assert min(path.stat().st_size for path in (long, long_csv)) > 35 * MIB
    process = subprocess.run(  # noqa: S603  our own interpreter
        [sys.executable, "-c", READ, *map(str, (short, long, short_csv, long_csv))],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    found = [tuple(map(int, line.split())) for line in process.stdout.splitlines()]
    assert [rows for rows, _ in found] == [N, 800_000]
    assert max(kibibytes for _, kibibytes in found) * 1024 < 12 * MIB
