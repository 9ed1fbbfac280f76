"""Records: rows as plain JSON and NDJSON; and the same rows in every format."""

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from wire_bodies import arrow_stream, binary_request, request, tensor

from onepass.errors import LabelError, RequestError
from onepass.validation.table import Table
from raising import raises

msgspec = pytest.importorskip("msgspec")
from onepass.service.protocol import arrow, mlflow, records, v2  # noqa: E402
from onepass.service.protocol.limits import Limits  # noqa: E402
from onepass.service.protocol.rows import DEFAULT_OUTPUTS, DecodedRequest, Output  # noqa: E402
from onepass.validation.rows import Rows  # noqa: E402

ROWS = [
    {"speed": 3.0, "gear": "low", "wet": True},
    {"gear": "high", "speed": None},
    {"speed": 1, "slope": 0.5},
]


def read(*bodies: Any, learning: bool = True) -> DecodedRequest:
    """One body as JSON; several as NDJSON."""
    lines = [json.dumps(body).encode() for body in bodies]
    return records.read(b"\n".join(lines), learning=learning, ndjson=len(bodies) > 1)


def same_table(X: Any, expected: Table) -> None:
    assert isinstance(X, Table)
    assert X.names == expected.names
    for name in X.names:
        assert X[name].dtype == expected[name].dtype
        np.testing.assert_array_equal(X[name], expected[name])


# -- forms -----------------------------------------------------------------------------------------


def test_one_row_of_named_values() -> None:
    decoded = read({"x": {"speed": 3.0, "gear": "low"}, "y": 9})
    same_table(decoded.rows.X, Table.from_rows([{"speed": 3.0, "gear": "low"}]))
    assert (decoded.rows.y.tolist(), decoded.rows.y.dtype) == ([9], np.int64)
    assert (decoded.rows.weight, decoded.rows.time, decoded.parameters) == (None, None, None)
    assert decoded.outputs is DEFAULT_OUTPUTS


def test_one_row_of_numbers() -> None:
    decoded = read({"x": [1.0, None, True], "y": "late", "sample_weight": 2, "time": 5})
    np.testing.assert_array_equal(decoded.rows.X, [[1, np.nan, 1]])
    assert decoded.rows.y.tolist() == ["late"]
    assert decoded.rows.weight.tolist() == [2.0]
    assert (decoded.rows.time.tolist(), decoded.rows.time.dtype) == ([5], np.int64)


@pytest.mark.parametrize("form", ["list", "ndjson", "several"])
def test_rows_as_objects(form: str) -> None:
    y = [1.5, 2, None]
    singles = [{"x": row, "y": each} for row, each in zip(ROWS, y, strict=True)]
    forms: dict[str, Any] = {
        "list": [singles], "ndjson": singles, "several": [{"x": ROWS, "y": y}],
    }  # fmt: skip
    decoded = read(*forms[form])
    same_table(decoded.rows.X, Table.from_rows(ROWS))
    np.testing.assert_array_equal(decoded.rows.y, [1.5, 2, np.nan])


@pytest.mark.parametrize("form", ["list", "ndjson", "several"])
def test_rows_as_lists(form: str) -> None:
    X, y = [[1, 2], [3.5, None]], [[0.1, 0.2], [1, 2]]
    singles = [{"x": row, "y": each, "time": "2026-11-22"} for row, each in zip(X, y, strict=True)]
    several = {"x": X, "y": y, "time": ["2026-11-22"] * 2}
    forms: dict[str, Any] = {"list": [singles], "ndjson": singles, "several": [several]}
    decoded = read(*forms[form])
    np.testing.assert_array_equal(decoded.rows.X, [[1, 2], [3.5, np.nan]])
    np.testing.assert_array_equal(decoded.rows.y, [[0.1, 0.2], [1, 2]])
    assert (
        decoded.rows.time.tolist() == np.array(["2026-11-22"] * 2, dtype="datetime64[us]").tolist()
    )


def test_row_with_several_targets() -> None:
    assert read({"x": [1, 2], "y": [3, 4.5]}).rows.y.tolist() == [[3.0, 4.5]]


@pytest.mark.parametrize(
    ("y", "kind"),
    [([1, (1 << 60) + 1], "i"), ([1, (1 << 64) - 1], "u"), ([True, False], "b"),
     (["a", None], "O"), ([1, 2.5], "f"), ([1, None], "f"), ([1, 1 << 70], "f")],
)  # fmt: skip
def test_targets_keep_their_type(y: list[Any], kind: str) -> None:
    decoded = read({"x": [[1], [2]], "y": y})
    assert decoded.rows.y.dtype.kind == kind
    assert [None if each != each else each for each in decoded.rows.y.tolist()] == y  # noqa: PLR0124


def test_targets_are_ignored_when_predicting() -> None:
    decoded = read({"x": {"y": 1}, "y": 9, "time": "never"}, learning=False)
    assert decoded.rows.X.names == ["y"]
    assert (decoded.rows.y, decoded.rows.time) == (None, None)


def test_outputs_and_parameters() -> None:
    decoded = read({"x": [1], "outputs": ["y", "probabilities"]}, learning=False)
    assert decoded.outputs == (Output("y"), Output("probabilities"))
    wanted = [{"x": [1], "await_label": True, "seconds": 60.0}] * 2
    assert read(wanted, learning=False).parameters == {"await_label": True, "seconds": 60.0}


def test_ndjson_may_have_empty_lines_and_carriage_returns() -> None:
    body = b'\n{"x": [1]}\r\n\r\n  {"x": [2]} \r\n'
    assert records.read(body, ndjson=True).rows.X.tolist() == [[1], [2]]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b' [{"x": [1]}]', True), (b'{"y": 1, "x": [1]}', True), (b'\n{ "x":{}}', True),
        (b'{"inputs": []}', False), (b'{"inputs": [], "x": 1}', False), (b"{}", False),
        (b'{"x": [1]', False), (b"\xff\xfe", False), (b"", False), (b"3", False),
        (b'{"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", False),
    ],
)  # fmt: skip
def test_records_are_recognised(body: bytes, expected: bool) -> None:  # noqa: FBT001
    assert records.is_records(body) is expected


# -- errors ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ([], "the request must have at least one record, got none"),
        ({"y": 1}, "missing required field `x`"),
        ({"x": [1], "weight": 1}, "unknown field `weight`"),
        ({"x": 3}, "`x` must be an object or a list, got a whole number"),
        ({"x": [1, "a"]}, r"`x\[1\]` must be .* got text.* Send values of one type"),
        ({"x": {"a": {}}}, r"`x\[...\]` must be .* got an object"),
        ([{"x": [1]}, {"x": [1, "a"]}], r"`\[1\].x\[1\]` must be .* got text"),
        (
            [{"x": [1]}, {"x": [1, 2]}],
            r"`\[1\].x` must be a list of 1 values, like the first row, got 2",
        ),
        ([{"x": [1]}, {"x": {"a": 1}}], r"`\[1\].x` must be a list of 1 values.* got an object"),
        ([{"x": {"a": 1}}, {"x": [1]}], r"`\[1\].x` must be an object, like .* got a list"),
        ([{"x": [1]}, {"x": [[1]]}], r"`\[1\].x` must be one row"),
        ([{"x": [1], "y": 1}, {"x": [1]}], r"`\[1\]` must have the fields .* of the first"),
        ([{"x": [1]}, {"x": [1], "await_label": True}], r"`\[1\]` must have the fields"),
        ([{"x": [1], "y": 1}, {"x": [1], "y": "a"}], r"`\[1\].y` must be a number.* got 'a'"),
        ([{"x": {"a": 1}}, {"x": {"a": "b"}}], r"`\[1\].x\['a'\]` must be a number.* got 'b'"),
        ({"x": [{"a": "b"}, {}, {"a": 1}]}, r"`x\[2\]\['a'\]` must be text.* got 1"),
        ({"x": {"a": 10**400}}, r"`x\['a'\]` must be a number that fits in float64"),
        ({"x": [[1], [2]], "y": 1}, "`y` must be a list, as x has several rows"),
        ({"x": [[1], [2]], "y": [1]}, "`y` must have 2 rows, like the features, got 1"),
        ({"x": [[1], 2]}, r"`x\[1\]` must be a list of 1 values.* got a number"),
        ({"x": [1], "y": ["1.5", 2]}, r"`y\[0\]` must be text|`y\[1\]` must be text"),
        ({"x": [1], "y": ["1.5"]}, "`y` must contain numbers, .* got text or lists"),
        ({"x": [1], "y": [[1], [2]]}, "`y` must contain numbers, .* got text or lists"),
        ({"x": [1], "y": [10**400]}, r"`y\[0\]` must be a number that fits in float64"),
        ({"x": [[1], [2]], "y": [None, [1]]}, r"`y\[0\]` must be a list.* got None"),
        ({"x": [1], "sample_weight": "a"}, "`sample_weight` must be a number or a list, got text"),
        ({"x": [1], "time": "now"}, "`time, row 0` must be an ISO 8601 date.* got 'now'"),
        ({"x": [1], "outputs": ["z"]}, r"`outputs\[0\]` must .* Choose some of 'y', 'probab"),
        ({"x": [float("nan")]}, "NaN or Infinity, which JSON does not have"),
        ({"x": {"a": "b" * 70_000}}, "at most 65,536 characters"),
        ({"x": {"a" * 70_000: 1}}, "at most 65,536 characters"),
    ],
)
def test_errors_name_the_place(body: Any, message: str) -> None:
    with pytest.raises(RequestError, match=message) as refused:
        read(body)
    assert len(str(refused.value)) < 1000


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"{", "line 4: ` must be JSON"),
        (b'{"x": [1, "a"]}', r"line 4: .x\[1\]` must be .* got text"),
        (b'{"x": [1, 2]}', "line 4: x` must be a list of 1 values"),
        (b'[{"x": [1]}]', "line 4: ` must be an object, got a list"),
        (b'{"x": [1], "y": 2}', "line 4` must have the fields"),
        (b'{"x": ["\xff"]}', "line 4: .* got text"),
    ],
)
def test_errors_of_ndjson_name_the_line(line: bytes, message: str) -> None:
    with pytest.raises(RequestError, match=message):
        records.read(b'{"x": [1]}\n{"x": [2]}\n\n' + line, learning=True, ndjson=True)


def test_limits() -> None:
    body = json.dumps([{"x": {"a": 1, "b": "xyz"}}] * 2).encode()
    good = Limits(rows=2, columns=2, values=18, text=3)
    assert len(records.read(body, good).rows.X) == 2
    for limits in (Limits(rows=1), Limits(columns=1), Limits(values=17), Limits(text=2)):
        with pytest.raises(RequestError, match="at most"):
            records.read(body, limits)


# -- responses -------------------------------------------------------------------------------------


def test_response_of_predictions() -> None:
    answers = {"y": np.array([0.5, np.nan])}
    reply = records.write(DecodedRequest(Rows(None)), answers, model="flow", version="12")
    assert reply.kind == "application/json"
    assert json.loads(reply.body) == {"predictions": [0.5, None], "version": 12}


def test_response_with_all_outputs() -> None:
    answers = {"y": np.array(["a"]), "probabilities": np.array([[0.25, 0.75]]),
               "classes": np.array(["b", "a"]), "id": np.array(["u7"], dtype=object)}  # fmt: skip
    decoded = DecodedRequest(Rows(None), outputs=tuple(map(Output, answers)))
    assert json.loads(records.write(decoded, answers, model="m", version="3").body) == {
        "predictions": ["a"], "probabilities": [[0.25, 0.75]], "classes": ["b", "a"],
        "ids": ["u7"], "version": 3,
    }  # fmt: skip


def test_lone_surrogates_cannot_be_encoded() -> None:
    with raises(LabelError, got="a lone surrogate"):
        records.write(
            DecodedRequest(Rows(None)), {"y": np.array(["\ud800"], dtype=object)}, model="m"
        )


def test_structs_give_schemas() -> None:
    structs = [v2.InferRequest, v2.InferResponse, v2.ServerMetadata, v2.ModelMetadata,
               v2.ErrorResponse, records.Record, records.RecordsResponse, mlflow.Invocation,
               mlflow.Predictions]  # fmt: skip
    _, schemas = msgspec.json.schema_components(structs)
    assert {each.__name__ for each in structs} <= set(schemas)
    assert schemas["FP64Tensor"]["properties"]["datatype"] == {"enum": ["FP64"]}
    assert all(each.get("description") for each in schemas.values())


# -- the same rows in every format -----------------------------------------------------------------

numbers = st.floats(-1e9, 1e9).map(lambda x: x + 0.0)
words = st.text(st.characters(codec="utf-8", exclude_characters="\0\r\n"), min_size=1, max_size=4)
words = words.filter(lambda word: word.strip() == word and not word[0].isdigit()).map("w".__add__)


def outcome(decoded: DecodedRequest) -> Any:
    columns = (
        {"": decoded.rows.X} if isinstance(decoded.rows.X, np.ndarray) else decoded.rows.X.columns
    )
    arrays = [*columns.values(), decoded.rows.y, decoded.rows.weight, decoded.rows.time]
    return list(columns), [
        None if each is None else (each.dtype.kind, each.shape, each.tolist()) for each in arrays
    ]


@given(st.data())
def test_the_same_named_rows_in_every_format(data: st.DataObject) -> None:
    n = data.draw(st.integers(1, 4))
    columns: dict[str, list[Any]] = {
        "speed": data.draw(st.lists(numbers, min_size=n, max_size=n)),
        "gear": data.draw(st.lists(words, min_size=n, max_size=n)),
    }
    targets = st.lists(data.draw(st.sampled_from([words, numbers, st.integers(-(2**62), 2**62)])),
                       min_size=n, max_size=n)  # fmt: skip
    roles: dict[str, list[Any]] = {"y": data.draw(targets)}
    if data.draw(st.booleans()):
        roles["sample_weight"] = data.draw(st.lists(numbers, min_size=n, max_size=n))
    named = columns | roles
    objects = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    rows = [dict(zip(named, row, strict=True)) for row in zip(*named.values(), strict=True)]
    singles = [
        {"x": x} | {role: row[role] for role in roles} for x, row in zip(objects, rows, strict=True)
    ]
    body, length = binary_request(named)
    found = {
        "record": read({"x": objects} | roles),
        "list": read(singles),
        "ndjson": records.read(
            "\n".join(map(json.dumps, singles)).encode(), learning=True, ndjson=True
        ),
        "tensors": v2.read(request(*(tensor(*each) for each in named.items())), learning=True),
        "binary": v2.read(body, header=length, learning=True),
        "arrow": arrow.read(arrow_stream(pa.table(named)), learning=True),
    }
    expected = outcome(found.pop("tensors"))
    for form, decoded in found.items():
        assert outcome(decoded) == expected, form


@given(st.data())
def test_the_same_numbers_in_every_format(data: st.DataObject) -> None:
    n, d = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 4))
    row = st.lists(numbers, min_size=d, max_size=d)
    X = data.draw(st.lists(row, min_size=n, max_size=n))
    flat = np.array(X)
    body, length = binary_request({"X": flat})
    matrix = pa.FixedSizeListArray.from_arrays(pa.array(flat.ravel()), d)
    found = [
        read({"x": X}), read([{"x": row} for row in X]), v2.read(body, header=length),
        v2.read(request(tensor("X", flat) | {"data": flat.ravel().tolist()})),
        v2.read(request(tensor("X", flat))), arrow.read(arrow_stream(pa.table({"X": matrix}))),
        mlflow.read(json.dumps({"inputs": X}).encode()),
        mlflow.read(json.dumps({"dataframe_split": {"data": X}}).encode()),
    ]  # fmt: skip
    for decoded in found:
        assert decoded.rows.X.dtype == np.float64
        assert decoded.rows.X.shape == (n, d)
        assert decoded.rows.X.tobytes() == flat.tobytes()
