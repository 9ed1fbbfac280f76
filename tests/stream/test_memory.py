"""Memory is bounded by the block, whatever the length of the file."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

MIB = 1 << 20
STATUS = Path("/proc/self/status")

# the highest size that a process itself ever had: ru_maxrss would count the one it came from
pytestmark = pytest.mark.skipif(
    not STATUS.exists() or "VmHWM" not in STATUS.read_text(), reason="only Linux tells the peak"
)

READ = """
import re, sys
from pathlib import Path
from onepass.stream import read
def peak():
    return int(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1])
def rows(path):
    return sum(len(block) for block in read(path, target="y", block=1024))
rows(sys.argv[1])
before = peak()
n = rows(sys.argv[2])
after = peak()
print(n, after - before)
"""


@pytest.fixture(scope="module")
def table() -> pa.Table:
    rng = np.random.default_rng(0)
    n = 500_000
    columns = {f"x{j}": rng.normal(size=n) for j in range(9)}
    return pa.table(columns | {"y": rng.normal(size=n)})


def grown(short: Path, path: Path) -> tuple[int, int]:
    """Rows in the file, and bytes by which reading it goes beyond reading a short one."""
    process = subprocess.run(  # noqa: S603  our own interpreter
        [sys.executable, "-c", READ, str(short), str(path)],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    n, kibibytes = process.stdout.split()
    return int(n), int(kibibytes) * 1024


def test_memory_is_bounded_for_one_large_row_group(table: pa.Table, tmp_path: Path) -> None:
    path = tmp_path / "one.parquet"
    pq.write_table(table, path, row_group_size=len(table), compression="none", use_dictionary=False)
    assert pq.read_metadata(path).num_row_groups == 1
    short = tmp_path / "short.parquet"
    pq.write_table(table[:2000], short, compression="none", use_dictionary=False)
    n, growth = grown(short, path)
    assert n == len(table)
    assert path.stat().st_size > 35 * MIB
    assert growth < 12 * MIB


def test_memory_is_bounded_for_csv(tmp_path: Path) -> None:
    header = ",".join([*(f"x{j}" for j in range(9)), "y"]) + "\n"
    lines = (",".join(["1.25"] * 10) + "\n") * 10_000
    short, path = tmp_path / "short.csv", tmp_path / "long.csv"
    short.write_text(header + lines * 10)  # as long as the first bytes that are looked at
    with path.open("w") as file:
        file.write(header)
        for _ in range(80):
            file.write(lines)
    assert path.stat().st_size > 35 * MIB
    n, growth = grown(short, path)
    assert n == 800_000
    assert growth < 12 * MIB
