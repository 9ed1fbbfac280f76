"""Coefficients by name, with standard errors, as `onepass inspect` shows them."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_cli import does

import onepass as op
from onepass.learners.linear import named_coefficients


@pytest.fixture
def table() -> tuple[list[dict[str, Any]], Any]:
    rng = np.random.default_rng(0)
    rows = [{"size": float(x), "kind": "ab"[i % 2]} for i, x in enumerate(rng.normal(size=300))]
    return rows, np.array([3 * r["size"] + 2 * (r["kind"] == "b") for r in rows]) + rng.normal(
        size=300
    )


def test_names_are_those_of_the_encoded_columns(table: Any) -> None:
    rows, y = table
    model = op.models.pipelines(["rls"], "regression", {"rls.forgetting": 1.0})["rls"].fit(rows, y)
    found, learner = named_coefficients(model), model.learner
    assert list(found) == model.features[-1].get_feature_names_out().tolist()
    assert [part["value"] for part in found.values()] == learner.coef_.tolist()
    assert [part["standard_error"] for part in found.values()] == learner.coef_std_.tolist()
    assert abs(found["size"]["value"] - 3) < 4 * found["size"]["standard_error"] < 0.5


def test_outputs_and_models_without_standard_errors(table: Any) -> None:
    rows, y = table
    labels = np.digitize(y, [-1.0, 1.0])
    model = op.models.pipelines(["sgd"], "classification")["sgd"].fit(rows, labels)
    found = named_coefficients(model)
    assert list(found) == ["0", "1", "2"]
    assert list(found["1"]["size"]) == ["value"]
    assert named_coefficients(op.RLSRegressor()) == {}
    assert named_coefficients(op.NearestClassMean().fit(np.eye(3), [0, 1, 2])) == {}


def test_inspect_shows_coefficients(
    table: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows, y = table
    several = np.column_stack((y, -y))
    model = op.Pipeline(op.features.Encode(), op.RLSRegressor(forgetting="auto"))
    for targets in (y, several):
        op.save(model.fit(rows, targets), tmp_path / "m.onepass")
        does(f"inspect {tmp_path / 'm.onepass'}")
        shown = capsys.readouterr().out
        assert "size = " in shown
        assert " ± " in shown


def test_inspect_shows_the_largest_of_many_coefficients(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rng = np.random.default_rng(0)
    X, w = rng.normal(size=(400, 120)), np.linspace(0.0, 12.0, 120)
    y = X @ w + rng.normal(size=400)
    for targets in (y, np.column_stack((y, y))):
        op.save(op.RLSRegressor().fit(X, targets), tmp_path / "m.onepass")
        does(f"inspect {tmp_path / 'm.onepass'}")
        shown = capsys.readouterr().out
        assert "x119 = " in shown
        assert "x0 = " not in shown
        assert "others = 100, smaller in standard errors" in shown
        does(f"inspect {tmp_path / 'm.onepass'} --all")
        assert "x0 = " in capsys.readouterr().out
        does(f"inspect {tmp_path / 'm.onepass'} --json")
        found = json.loads(capsys.readouterr().out)["coefficients"]
        assert len(found if targets.ndim == 1 else found["1"]) == 120


@pytest.mark.parametrize(
    ("forgetting", "rows", "note"),
    [
        (1.0, None, None),
        (0.999, 632.0, None),
        (0.9, 10.0, "remembers about 10 rows, too few for 3 coefficients"),
        ("auto", None, "mixes eight factors"),
    ],
)
def test_inspect_says_when_the_memory_is_short(
    forgetting: Any, rows: float | None, note: str | None, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    X = np.random.default_rng(0).normal(size=(1000, 2))
    op.save(op.RLSRegressor(forgetting=forgetting).fit(X, X @ [1.0, 2.0]), tmp_path / "m.onepass")
    does(f"inspect {tmp_path / 'm.onepass'} --json")
    found = json.loads(capsys.readouterr().out)
    assert ("effective_rows" in found) == (forgetting != 1.0)
    if rows is not None:
        assert found["effective_rows"] == pytest.approx(rows, rel=0.01)
    assert (note is None) == ("note" not in found)
    assert (note or "") in found.get("note", "")
