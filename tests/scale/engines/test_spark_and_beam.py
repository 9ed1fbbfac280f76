"""Spark and Beam, whose dependencies conflict with others: ``make engines`` runs these tests."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyarrow import parquet

import onepass as op
from onepass.errors import MissingExtraError, SourceError
from shard_files import one_pass, state, table, write_shards

MODELS: dict[str, tuple[Any, dict[str, Any]]] = {
    "rls": (op.RLSRegressor(), {"target": "y", "drop": ["at", "by", "label"]}),
    "pipeline": (
        op.Pipeline(op.features.Encode(), op.RLSRegressor(prior=1.0)),
        {"target": "y", "drop": ["at", "label"]},
    ),
    "random features": (
        op.Pipeline(op.features.RandomFourier(50), op.RLSClassifier(prior=1.0)),
        {"target": "label", "drop": ["at", "by", "y"]},
    ),
}
PACKAGES = {"spark": "pyspark", "beam": "apache_beam"}


def _installed(engine: str) -> bool:
    return importlib.util.find_spec(PACKAGES[engine]) is not None


@pytest.mark.parametrize("engine", PACKAGES)
def test_same_bits_and_bad_shard(engine: str, tmp_path: Path) -> None:
    if not _installed(engine):
        pytest.skip(f"{engine} is not installed")
    shards = write_shards(tmp_path / "shards")
    for name, (model, options) in MODELS.items():
        plain = op.scale.fit(model, shards, **options)
        twice = [
            state(op.scale.fit(model, shards, engine=engine, workers=2, **options).model)
            for _ in range(2)
        ]
        assert twice == [state(plain.model)] * 2, name
    model, options = MODELS["rls"]
    whole = one_pass(model, shards, **options)
    np.testing.assert_allclose(
        op.scale.fit(model, shards, **options).model.coef_, whole.coef_, rtol=1e-10
    )
    text = np.array(["a"] * 60)
    changed = table(3).set_column(0, "x0", [text])
    parquet.write_table(changed, tmp_path / "shards" / "part-3.parquet")
    with pytest.raises(SourceError, match=r"part-3\.parquet"):
        op.scale.fit(model, shards, engine=engine, workers=2, **options)


@pytest.mark.parametrize("engine", PACKAGES)
def test_missing_package(engine: str, tmp_path: Path) -> None:
    if _installed(engine):
        pytest.skip(f"{engine} is installed")
    model, options = MODELS["rls"]
    with pytest.raises(MissingExtraError, match=rf"onepass\[{engine}\]"):
        op.scale.fit(model, write_shards(tmp_path), engine=engine, **options)


def test_missing_java_is_named(tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    call = "import onepass as op; op.scale.fit(op.RLSRegressor(), %r, target='y', engine='spark')"
    found = subprocess.run(  # noqa: S603  this interpreter
        [sys.executable, "-c", call % write_shards(tmp_path)],
        env={**os.environ, "JAVA_HOME": str(tmp_path)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "ProcessError" in found.stderr
    assert "Install the version of Java" in found.stderr
