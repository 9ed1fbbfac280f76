"""All passes over a source give equal blocks."""

from pathlib import Path

import numpy as np

import onepass as op


def test_type_of_a_late_column_is_equal_in_every_pass(tmp_path: Path) -> None:
    rows = ["1,,\n"] * 1_200_000 + ["2,late,\n"]
    path = tmp_path / "late.csv"
    path.write_text("a,b,c\n" + "".join(rows))
    stream = op.stream.read(path)
    firsts = [next(iter(stream)).X.columns for _ in range(2)]
    dtypes = [{name: column.dtype for name, column in first.items()} for first in firsts]
    assert dtypes[0] == dtypes[1]
    assert dtypes[0]["b"] == np.float64
