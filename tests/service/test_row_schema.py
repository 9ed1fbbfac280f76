"""The schema of rows: inferred, then counted or refused; compared with jsonschema."""

import json
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from web_server import Server

from onepass.errors import ParameterError, SchemaError
from onepass.service.row_schema import SchemaCheck
from onepass.validation.rows import Rows
from onepass.validation.table import Table

SEED = int(os.environ["ONEPASS_TEST_SEED"])
LEARN, INFER = "/v2/models/rls/learn", "/v2/models/rls/infer"
SCHEMA = {
    "type": "object",
    "properties": {
        "km": {"type": "number", "minimum": 0, "maximum": 500},
        "axles": {"type": "integer", "minimum": 2},
        "wet": {"type": "boolean"},
        "gear": {"type": "string", "enum": ["low", "high"]},
        "at": {"type": "string", "format": "date-time"},
        "note": {},
        "y": {"type": "number", "minimum": -10},
    },
    "required": ["km", "gear"],
    "additionalProperties": False,
}


def row(rng: np.random.Generator, *, wrong: bool) -> dict[str, Any]:
    """A row that conforms, or one with up to two faults of users' kind."""
    x: dict[str, Any] = {
        "km": float(rng.uniform(0, 500)), "axles": int(rng.integers(2, 6)),
        "wet": bool(rng.integers(2)), "gear": str(rng.choice(["low", "high"])),
        "at": f"2026-11-{rng.integers(1, 29):02}T{rng.integers(24):02}:00:00Z", "note": "x",
    }  # fmt: skip
    for name in rng.choice(["axles", "wet", "at", "note"], rng.integers(3), replace=False):
        del x[name]
    faults: list[dict[str, Any]] = [
        {"km": 1e12}, {"km": -1.0}, {"km": "12"}, {"km": None}, {"axles": 2.5}, {"axles": 1},
        {"wet": 2}, {"wet": "yes"}, {"gear": "Low"}, {"gear": 3}, {"gear": None}, {"at": "noon"},
        {"at": 12.0}, {"speed": 1.0}, {"km ": 2.0},
    ]  # fmt: skip
    for fault in rng.choice(faults, rng.integers(1, 3)) if wrong else ():
        x |= fault
    return x


def conforms(x: dict[str, Any]) -> bool:
    """Whether a row conforms, by the package jsonschema; null is an absent key."""
    jsonschema = pytest.importorskip("jsonschema")
    present = {name: value for name, value in x.items() if value is not None}
    is_date = isinstance(at := present.get("at", "2026"), str) and at.startswith("2026")
    return is_date and bool(jsonschema.Draft202012Validator(SCHEMA).is_valid(present))


def test_single_rows_are_judged_as_by_jsonschema(tmp_path: Path) -> None:
    rng = np.random.default_rng(SEED)
    path = tmp_path / "schema.json"
    path.write_text(json.dumps(SCHEMA))
    strict, counting = SchemaCheck(path, strict=True), SchemaCheck(path, strict=False)
    refused = 0
    for i in range(300):
        x = row(rng, wrong=i % 2 == 0)
        table = Table.from_rows([x])
        try:
            strict.check(table, None)
            passed = True
        except SchemaError:
            passed = False
            refused += 1
        counting.check(table, None)
        assert passed == conforms(x), x
    assert strict.violations == counting.violations == refused > 100


def test_the_first_wrong_row_is_named_and_all_are_counted(tmp_path: Path) -> None:
    rng = np.random.default_rng(SEED)
    path = tmp_path / "schema.json"
    path.write_text(json.dumps(SCHEMA))
    rows = [row(rng, wrong=False) | {"note": "x"} for _ in range(50)]
    for i in (7, 8, 30):
        rows[i]["km"] = 501.0
    rows[30]["gear"] = "up"
    check = SchemaCheck(path, strict=True)
    with pytest.raises(
        SchemaError, match=r"'km' must be at most 500, got 501.0 in row 7\. Correct"
    ):
        check.check(Table.from_rows(rows), None)
    assert check.violations == 3
    y = np.zeros(50)
    y[20] = -11.0
    with pytest.raises(SchemaError, match=r"'y' must be at least -10, got -11.0 in row 20"):
        check.check(Table.from_rows(rows[:7] + rows[9:10] * 43), y)
    with pytest.raises(SchemaError, match="columns must be those of the schema"):
        check.check(np.zeros((2, 3)), None)


@pytest.mark.parametrize(("text", "must"), [
    ("", "No such file"), ("{", "--schema must be"),
    ('{"properties": {"a": {"type": "float"}}}', "float"),
    ('{"properties": {"a": {"multipleOf": 2}}}', "multipleOf"),
    ('{"properties": {"a": {}}, "required": ["b"]}', "must name columns of `properties`, got 'b'"),
])  # fmt: skip
def test_an_unsupported_schema_is_refused(tmp_path: Path, text: str, must: str) -> None:
    path = tmp_path / "schema.json"
    if text:
        path.write_text(text)
    with pytest.raises(ParameterError, match=must):
        SchemaCheck(path, strict=True)


def test_an_inferred_schema_accepts_what_it_was_inferred_from(tmp_path: Path) -> None:
    rng = np.random.default_rng(SEED)
    path = tmp_path / "schema.json"
    inferring = SchemaCheck(path, strict=False)
    blocks = []
    for late in (False, False, True):
        n = int(rng.integers(1, 40))
        X: dict[str, Any] = {
            "km": rng.uniform(3, 90, n), "level": rng.normal(1e4, 5, n),
            "gear": rng.choice(np.array(["low", "high"], dtype=object), n),
            "at": np.datetime64("2026-11-01", "us") + rng.integers(0, 10**9, n),
        }  # fmt: skip
        X["km"][rng.random(n) < 0.2] = np.nan
        if late:
            X["late"] = rng.normal(size=n)
        blocks.append(Rows(Table(X, n), rng.normal(size=n)))
        inferring.observe(blocks[-1])
        inferring.write()
    found = json.loads(path.read_text())
    assert found["properties"].keys() == {"km", "level", "gear", "at", "late", "y"}
    assert "late" not in found["required"]
    assert found["additionalProperties"] is False
    strict = SchemaCheck(path, strict=True)
    for block in blocks:
        strict.check(block.X, block.y)
    for wrong in ({"level": 10.0}, {"gear": "up"}, {"level": None}, {"speed": 1.0}, {"at": 3.0}):
        with pytest.raises(SchemaError):
            strict.check(Table.from_rows([blocks[0].X.row(0) | wrong]), None)  # type: ignore[union-attr]


def test_a_service_infers_counts_and_refuses(tmp_path: Path) -> None:
    path, rng = tmp_path / "schema.json", np.random.default_rng(0)
    rows = [
        {"x": {"km": float(km), "gear": "low"}, "y": 2 * float(km)} for km in rng.uniform(1, 9, 50)
    ]
    odd = [{"x": {"km": 1e12, "gear": "low"}, "y": 3.0}, {"x": {"km": 2.0}, "y": 3.0},
           {"x": {"km": 2.0, "gear": "up"}, "y": 3.0}, {"x": {"kms": 2.0, "gear": "low"}, "y": 3.0},
           {"x": {"km": "2", "gear": "low"}, "y": 3.0}, {"x": {"km": 2.0, "gear": "low"}, "y": 1e6},
           ]  # fmt: skip
    options = ("rls", "--schema", f"rls={path}")
    with Server(tmp_path / "data", *options) as server:
        assert server.send("POST", LEARN, rows)[0] == 200
        assert server.stop() == 128 + signal.SIGTERM
    assert json.loads(path.read_text())["required"] == ["km", "gear", "y"]
    with Server(tmp_path / "data", *options) as server:
        assert server.send("POST", LEARN, rows)[0] == 200
        for each in odd[:2]:
            server.send("POST", INFER, {"x": each["x"]})
        text = server.send("GET", "/metrics")[1].decode()
        assert 'onepass_schema_violations_total{model="rls"} 2.0' in text
        assert "do not conform to the schema" in server.log.read_text()
    with Server(tmp_path / "data", *options, "--strict") as server:
        before = server.send("POST", INFER, {"x": rows[0]["x"]})[1]
        for each in odd:
            status, answer, _ = server.send("POST", LEARN, each)
            assert (status, "must" in answer["error"]) == (400, True), each
            if each["y"] == 3.0:
                assert server.send("POST", INFER, {"x": each["x"]})[0] == 400
        assert server.send("POST", INFER, {"x": rows[0]["x"]})[1] == before
        assert server.send("POST", LEARN, rows)[0] == 200
        text = server.send("GET", "/metrics")[1].decode()
        assert 'onepass_rows_refused_total{model="rls"} 6.0' in text
    with pytest.raises(AssertionError, match="--strict requires --schema"):
        Server(tmp_path / "other", "rls", "--strict").start()
    with pytest.raises(AssertionError, match="NAME=FILE"):
        Server(tmp_path / "data", "rls,sgd", "--schema", str(path)).start()


def test_each_output_is_checked_as_the_target(tmp_path: Path) -> None:
    path, X = tmp_path / "schema.json", np.zeros((2, 1))
    path.write_text('{"properties": {"x0": {}, "y": {"maximum": 1}}, "required": ["y"]}')
    check = SchemaCheck(path, strict=True)
    for y in (np.zeros(2), np.zeros((2, 1)), np.zeros((2, 3))):
        check.check(X, y)
        y[1] = 5.0
        with pytest.raises(SchemaError, match=r"'y' must be at most 1, got 5.0 in row 1"):
            check.check(X, y)


@pytest.mark.parametrize("kind", ["", '"type": "string", ', '"type": "number", '])
def test_keywords_concern_the_values_of_their_type(tmp_path: Path, kind: str) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    path = tmp_path / "schema.json"
    text = f'{{"properties": {{"a": {{{kind}"minimum": 0, "maximum": 9}}}}}}'
    path.write_text(text)
    check = SchemaCheck(path, strict=True)
    for value in (-5.0, 3.0, 10.0, "abc"):
        try:
            check.check(Table.from_rows([{"a": value}]), None)
            passed = True
        except SchemaError:
            passed = False
        validator = jsonschema.Draft202012Validator(json.loads(text))
        assert passed == validator.is_valid({"a": value}), value


def test_all_wrong_rows_of_a_column_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "schema.json"
    path.write_text('{"properties": {"a": {"minimum": 0, "maximum": 9}}, "required": ["a"]}')
    check = SchemaCheck(path, strict=False)
    check.check(Table.from_rows([{"a": v} for v in (3.0, 10.0, -1.0, None, 4.0)]), None)
    assert check.violations == 3
