"""MLflow's scoring protocol: JSON in its forms, and CSV."""

import json
import struct
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onepass.errors import LabelError, RequestError
from raising import raises

pytest.importorskip("msgspec")
from onepass.service.protocol import mlflow
from onepass.service.protocol.limits import Limits
from onepass.service.protocol.mlflow import read_csv
from onepass.service.protocol.rows import DecodedRequest
from onepass.validation.rows import Rows

doubles = st.floats(allow_nan=False, allow_infinity=False)
ROWS = [{"speed": 1.5, "gear": "low", "wet": True}, {"speed": None, "gear": None, "wet": False}]
EXPECTED = [{"speed": 1.5, "gear": "low", "wet": 1.0}, {"speed": None, "gear": None, "wet": 0.0}]
COLUMNS = {name: [row[name] for row in ROWS] for name in ROWS[0]}
SPLIT = {"columns": list(COLUMNS), "index": [0, 1], "data": [list(row.values()) for row in ROWS]}


def read(form: str, data: Any, *limits: Limits, **more: Any) -> DecodedRequest:
    return mlflow.read(json.dumps({form: data}).encode(), *limits, **more)


def rows(table: Any) -> list[dict[str, Any]]:
    """A table's rows, with None for whatever is missing."""
    return [{name: None if value is None or value != value else value  # noqa: PLR0124
             for name, value in row.items()} for row in table.rows()]  # fmt: skip


# -- named columns ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("form", "data"),
    [("dataframe_split", SPLIT), ("dataframe_records", ROWS), ("instances", ROWS),
     ("inputs", ROWS), ("instances", COLUMNS), ("inputs", COLUMNS)],
)  # fmt: skip
def test_columns_in_each_form(form: str, data: Any) -> None:
    assert rows(read(form, data).rows.X) == EXPECTED


def test_missing_keys_of_records_are_missing_values() -> None:
    X = read("dataframe_records", [{"a": 1}, {"b": "x"}, {}, {"a": 2, "b": None, "c": None}]).rows.X
    nothing = {"a": None, "b": None, "c": None}
    assert rows(X) == [nothing | {"a": 1.0}, nothing | {"b": "x"}, nothing, nothing | {"a": 2.0}]


@pytest.mark.parametrize("orient", ["split", "records"])
def test_json_of_pandas_is_read(orient: Any) -> None:
    frame = pd.DataFrame({"a": [1.5, 2.5], "b": ["x", "y"]}, index=[7, 9])
    data = frame.to_dict(orient=orient)
    X = read(f"dataframe_{orient}", data).rows.X
    assert rows(X) == [{"a": 1.5, "b": "x"}, {"a": 2.5, "b": "y"}]


@given(st.lists(st.tuples(doubles, st.text(st.characters(codec="utf-8"))), min_size=1, max_size=9))
def test_values_keep_every_bit(values: list[tuple[float, str]]) -> None:
    data = [{"a": number, "b": text} for number, text in values]
    for ascii_only in (True, False):
        body = json.dumps({"instances": data}, ensure_ascii=ascii_only).encode()
        X = mlflow.read(body).rows.X
        assert struct.pack(f"{len(X)}d", *X["a"]) == struct.pack(
            f"{len(X)}d", *[v for v, _ in values]
        )
        assert X["b"].tolist() == [text for _, text in values]


@pytest.mark.parametrize("form", ["dataframe_split", "dataframe_records", "instances"])
def test_long_bodies(form: str) -> None:
    n = 9_000
    hard = 'a "quoted", }, {"b": 1}, ], [ '
    texts = [None if i % 3 else f"{hard}{i}" for i in range(n)]
    values: list[Any] = [(i + 0.5, text, None) for i, text in enumerate(texts[:-1])]
    values.append((n - 0.5, texts[-1], 1))
    names = ("number", "text", "late")
    records = [dict(zip(names, row, strict=True)) for row in values]
    data = {
        "dataframe_split": {"data": values, "columns": names},
        "dataframe_records": records,
        "instances": {name: [row[name] for row in records] for name in names},
    }[form]
    X = read(form, data).rows.X
    assert rows(X) == [row | {"late": row["late"] and 1.0} for row in records]


# -- rows without names ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("form", "data"),
    [("instances", [[1, 2], [3, None]]), ("inputs", [[1, 2], [3, None]]),
     ("inputs", {"x": [[1, 2], [3, None]]}),
     ("dataframe_split", {"data": [[1, 2], [3, None]]}),
     ("dataframe_split", {"data": [[1, 2], [3, None]], "columns": []}),
     ("dataframe_split", {"data": [[1, 2], [3, None]], "columns": [0, 1]})],
)  # fmt: skip
def test_rows_without_names_in_each_form(form: str, data: Any) -> None:
    X = read(form, data).rows.X
    assert X.dtype == np.float64
    np.testing.assert_array_equal(X, [[1, 2], [3, np.nan]])


def test_list_of_numbers_is_a_column() -> None:
    np.testing.assert_array_equal(read("instances", [1, None, True]).rows.X, [[1], [np.nan], [1]])


@given(st.lists(st.tuples(doubles, doubles), min_size=1, max_size=9))
def test_numbers_keep_every_bit(values: list[tuple[float, float]]) -> None:
    assert read("inputs", values).rows.X.tobytes() == np.array(values).tobytes()


def test_many_numbers_keep_every_bit() -> None:
    X = np.random.default_rng(0).standard_normal((5_000, 20))
    assert read("inputs", X.tolist()).rows.X.tobytes() == X.tobytes()
    X[4_000, 3] = np.nan
    data = X.tolist()
    data[4_000][3] = None
    np.testing.assert_array_equal(read("dataframe_split", {"data": data}).rows.X, X)
    columns = {f"x{j}": [row[j] for row in data] for j in range(20)}
    found = read("inputs", columns).rows.X
    np.testing.assert_array_equal(np.column_stack(list(found.columns.values())), X)


# -- parameters ------------------------------------------------------------------------------------


def test_parameters_are_read() -> None:
    body = b'{"inputs": [[1]], "params": {"a": 1, "b": "c", "d": null}, "signature_name": "x"}'
    assert mlflow.read(body).parameters == {"a": 1, "b": "c", "d": None}
    assert mlflow.read(b'{"inputs": [[1]], "params": null}').parameters == {}


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "must be JSON"),
        (b"{}", "must have one of `dataframe_split`, .* got none"),
        (b'{"inputs": [1], "instances": [1]}', "got instances and inputs"),
        (b'{"inputs": []}', "`inputs` must have at least one row, got none"),
        (b'{"inputs": [[]]}', None),
        (b'{"inputs": {}}', "`inputs` must have at least one row, got none"),
        (b'{"dataframe_records": []}', "must have at least one row, got none"),
        (b'{"dataframe_records": {}}', "must be a list or null, got an object"),
        (b'{"dataframe_split": []}', "dataframe_split` must be an object"),
        (b'{"dataframe_split": {"columns": ["a"]}}', "split` must conform .* missing required"),
        (b'{"dataframe_split": {"data": []}}', "data` must have at least one row"),
        (b'{"dataframe_split": {"columns": ["a", "a"], "data": []}}', "have unique names"),
        (b'{"dataframe_split": {"data": [["a"]]}}', "data.0.` must contain numbers"),
        (b'{"dataframe_split": {"columns": ["a"], "data": [[1, 2]]}}', "data.0.` must have 1"),
        (b'{"dataframe_split": {"columns": ["a"], "data": [[{}]]}}', "data.*got an object"),
        (b'{"inputs": [[1, 2], [3]]}', r"inputs\[1\]` must be a list of 2 values.* got 1"),
        (b'{"inputs": [[1, "a"]]}', r"inputs\[0\]\[1\]` must be .* a number or null, got text"),
        (b'{"inputs": ["a"]}', r"inputs\[0\]` must be true or false, a number, .* got text"),
        (b'{"inputs": [[[1]]]}', r"inputs\[0\]\[0\]` must be .* or null, got a list"),
        (b'{"inputs": [1, [2]]}', r"inputs\[1\]`"),
        (b'{"inputs": [[1], 2]}', r"inputs\[1\]`"),
        (b'{"inputs": [NaN]}', "NaN or Infinity"),
        (b'{"inputs": [1e999]}', "number out of range"),
        (b'{"inputs": [1%s]}' % (b"0" * 400), "number out of range"),
        (b'{"inputs": 3}', "must be an object, a list or null, got a whole number"),
        (b'{"inputs": "a"}', "must be an object, a list or null, got text"),
        (b'{"inputs": {"a": 1}}', r"inputs\[...\]` must be a list"),
        (b'{"inputs": {"a": [1], "b": [1, 2]}}', r"inputs\['b'\]` must have 1 rows"),
        (b'{"inputs": {"a": [1, "x"]}}', r"inputs\['a'\]\[1\]` must be a number, like"),
        (b'{"inputs": {"a": [1, "NaN"]}}', r"\[1\]` must be a number.* null if missing"),
        (b'{"instances": [{"a": [1]}]}', "got a list"),
        (b'{"instances": [{"a": 1}, 2]}', r"instances\[1\]` must be an object"),
        (b'{"instances": [{"\\ud800": 1}]}', "must be JSON"),
        (b'{"inputs": [[1]], "params": {"a": []}}', "params"),
        (b'{"inputs": {"a": ["%s"]}}' % (b"b" * 70_000), "at most 65,536 characters"),
        (b'{"inputs": {"%s": [1]}}' % (b"b" * 70_000), "at most 65,536 characters"),
    ],
)  # fmt: skip
def test_errors_name_the_place(body: bytes, message: str | None) -> None:
    if message is None:
        assert mlflow.read(body).rows.X.shape == (1, 0)
        return
    with pytest.raises(RequestError, match=message) as refused:
        mlflow.read(body)
    assert len(str(refused.value)) < 1000


def test_late_type_changes_within_a_column_are_refused() -> None:
    data = [{"a": 1}] * 20_000 + [{"a": "x"}] * 20_000
    with pytest.raises(RequestError, match=r"dataframe_records\[20000\]\['a'\]` must be a number"):
        read("dataframe_records", data)
    with pytest.raises(RequestError, match=r"inputs\['a'\]\[65536\]` must be a number"):
        read("inputs", {"a": [1.25] * 65_536 + ["x"] * 65_536})


def test_limits_are_parameters() -> None:
    good = Limits(rows=2, columns=3, values=20, text=5)
    for form, data in {
        "dataframe_split": SPLIT,
        "dataframe_records": ROWS,
        "inputs": COLUMNS,
    }.items():
        assert len(read(form, data, good).rows.X) == 2
        for limits in (Limits(rows=1), Limits(columns=2), Limits(values=19), Limits(text=2)):
            with pytest.raises(RequestError, match="at most"):
                read(form, data, limits)


# -- responses -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("y", "expected"),
    [
        (np.array([0.1, np.nan]), [0.1, None]), (np.array([[1.0, 2.0]]), [[1.0, 2.0]]),
        (np.array(["a"]), ["a"]), (np.array([None, 3], dtype=object), [None, 3]),
        (np.array([True]), [True]), (np.array([1 << 62]), [1 << 62]), (np.empty(0), []),
    ],
)  # fmt: skip
def test_predictions_of_each_type(y: Any, expected: Any) -> None:
    reply = mlflow.write(DecodedRequest(Rows(None)), {"y": y}, model="flow", version="7")
    assert reply.kind == "application/json"
    assert json.loads(reply.body) == {"predictions": expected}


def test_lone_surrogates_cannot_be_encoded() -> None:
    y = np.array(["\ud800"], dtype=object)
    with raises(LabelError, got="a lone surrogate"):
        mlflow.write(DecodedRequest(Rows(None)), {"y": y}, model="flow", version="7")


# -- CSV -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_csv_with_each_line_ending(end: str) -> None:
    lines = ["speed,gear,wet,at", '1.5,"low, ""1""",true,2026-11-22T01:02:03Z', ",,,", ""]
    X = read_csv(end.join(lines).encode()).rows.X
    assert X["speed"].tolist()[0] == 1.5
    assert X["gear"].tolist() == ['low, "1"', None]
    assert X["wet"].tolist()[0] == 1.0
    assert str(X["at"][0]) == "2026-11-22T01:02:03.000000"
    assert np.isnan(X["speed"][1])
    assert np.isnan(X["wet"][1])
    assert np.isnat(X["at"][1])


@given(st.lists(doubles, min_size=1, max_size=9))
def test_numbers_of_csv_keep_every_bit(values: list[float]) -> None:
    X = read_csv(("a,b\n" + "".join(f"{value!r},x\n" for value in values)).encode()).rows.X
    assert struct.pack(f"{len(X)}d", *X["a"]) == struct.pack(f"{len(X)}d", *values)


def test_long_csv_is_read_up_to_the_limit() -> None:
    n = 200_000
    X = read_csv(b"a,b\n" + b"1.5,x\n" * n).rows.X
    assert (len(X), X["a"].sum(), set(X["b"])) == (n, 1.5 * n, {"x"})
    with pytest.raises(RequestError, match="at most 1,000 rows"):
        read_csv(b"a,b\n" + b"1.5,x\n" * n, Limits(rows=1000))


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "must contain rows, got an empty file"),
        (b"a,a\n1,2\n", "`schema` must have unique names, got 'a' twice"),
        (b"a,b\n1\n", "row 0 .* must have 2 fields"),
        (b"a;b\n1;2\n", "the delimiter ','"),
        (b"a,b\n\xff,1\n", "must be UTF-8"),
        (b"\xff\xfea\0", "UTF-8, got UTF-16"),
        (b"\x1f\x8b" + b"a" * 20, "the request must"),
        (b"PAR1" + b"a" * 20, "the request must"),
        (b"a,b\n1,%s\n" % (b"x" * 70_000), "at most 65,536 characters"),
        (b"%s,b\n1,x\n" % (b"x" * 70_000), "at most 65,536 characters"),
        (b"," * 100_000, "at most 65,536 columns"),
        (b'"' + b",\n" * 1_000_000, "must be a line of names"),
    ],
)
def test_invalid_csv_is_refused(body: bytes, message: str) -> None:
    with pytest.raises(RequestError, match=message) as refused:
        read_csv(body)
    assert len(str(refused.value)) < 1000
    assert "op.stream" not in str(refused.value)
