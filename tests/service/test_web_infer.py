"""``infer`` ignores targets, weights and times, and slow learners do not block others."""

import csv
import io
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from web_server import Server, output, rows

import onepass as op
from onepass.serialization.models import dumps
from sampling import examples

INFER, LEARN = "/v2/models/{}/infer", "/v2/models/{}/learn"
N, X = 3, [[1.0, 2.0], [2.0, 1.0], [3.0, 5.0]]
ROLES = ("y", "sample_weight", "time")
MODEL = {"Content-Type": "application/x-onepass"}


def tensor(name: str, values: list[Any]) -> dict[str, Any]:
    shape, flat = list(np.shape(values)), np.array(values, dtype=object).ravel().tolist()
    text = any(isinstance(value, str) for value in flat)
    return {"name": name, "shape": shape, "datatype": "BYTES" if text else "FP64", "data": flat}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Learners of a matrix and of named columns, with and without a pipeline."""
    with Server(
        tmp_path_factory.mktemp("infer") / "data",
        "--default-model",
        "rls-named",
        "--max-features",
        "4096",
    ) as running:
        named = [tensor("a", [row[0] for row in X]), tensor("b", [row[1] for row in X])]
        inputs = {"matrix": [tensor("X", X)], "named": named}
        for kind, tensors in inputs.items():
            assert running.send("PUT", f"/v2/models/rls-{kind}", {"model": "rls"})[0] == 201
            file = dumps(op.RLSRegressor(), "here")
            assert running.send("PUT", f"/v2/models/raw-{kind}", file, MODEL)[0] == 201
            for model in ("rls", "raw"):
                body = {"inputs": [*tensors, tensor("y", [1.0, 2.0, 4.0])]}
                assert running.send("POST", LEARN.format(f"{model}-{kind}"), body)[0] == 200
        yield running


def arrow(columns: dict[str, Any]) -> bytes:
    arrays = {
        name: pa.FixedSizeListArray.from_arrays(pa.array(np.ravel(values)), np.shape(values)[1])
        if np.ndim(values) == 2 else pa.array(values)
        for name, values in columns.items()
    }  # fmt: skip
    table, sink = pa.table(arrays), pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


def predictions(server: Server, name: str, layout: str, columns: dict[str, Any]) -> Any:
    """Predictions for columns that are sent in a layout."""
    if layout in {"json", "pending"}:
        body = {"inputs": [tensor(*each) for each in columns.items()]}
        if layout == "pending":
            body["parameters"] = {"await_label": True, "seconds": 0}
        status, response, _ = server.send("POST", INFER.format(name), body)
        return output(response) if status == 200 else response
    if layout == "arrow":
        kind = {"Content-Type": "application/vnd.apache.arrow.stream"}
        status, response, _ = server.send("POST", INFER.format(name), arrow(columns), kind)
        return (
            pa.ipc.open_stream(response).read_all()["y"].to_pylist() if status == 200 else response
        )
    assert name == "rls-named"
    records = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    bodies: dict[str, Any] = {
        "split": {"columns": list(columns), "data": [list(each.values()) for each in records]},
        "records": records, "instances": records, "inputs": columns,
    }  # fmt: skip
    if layout == "csv":
        text = io.StringIO()
        writer = csv.DictWriter(text, list(columns))
        writer.writeheader()
        writer.writerows(records)
        kind = {"Content-Type": "text/csv"}
        return server.send("POST", "/invocations", text.getvalue(), kind)[1]["predictions"]
    key = f"dataframe_{layout}" if layout in {"split", "records"} else layout
    response = server.send("POST", "/invocations", json.dumps({key: bodies[layout]}))[1]
    return response["predictions"]


VALUES = st.lists(st.floats(-9, 9).map(lambda v: round(v, 3)), min_size=N, max_size=N)
TEXTS = st.lists(st.sampled_from(["sea", "land"]), min_size=N, max_size=N)
CASES = [(f"{model}-{kind}", layout) for model in ("rls", "raw") for kind in ("matrix", "named")
         for layout in ("json", "pending", "arrow")]  # fmt: skip
CASES += [("rls-named", layout) for layout in ("split", "records", "instances", "inputs", "csv")]


@pytest.mark.parametrize(("name", "layout"), CASES)
@settings(max_examples=examples(3, 8), print_blob=True)
@given(data=st.data())
def test_infer_ignores_targets_weights_and_times(
    server: Server, name: str, layout: str, data: st.DataObject
) -> None:
    plain: dict[str, Any] = {"X": X}
    if name.endswith("named"):
        plain = {"a": [row[0] for row in X], "b": [row[1] for row in X]}
    right = predictions(server, name, layout, plain)
    assert np.shape(right) == (N,)
    roles = data.draw(st.lists(st.sampled_from(ROLES), min_size=1, unique=True))
    more = {role: data.draw(VALUES | TEXTS if role == "y" else VALUES) for role in roles}
    names = data.draw(st.permutations([*plain, *more]))
    columns = {each: ({**plain, **more})[each] for each in names}
    assert predictions(server, name, layout, columns) == right


def test_features_named_like_roles_are_used(server: Server) -> None:
    """A model may have been fitted with a feature named ``time``."""
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"x": [1.0, 2.0, 3.0], "time": [5.0, 1.0, 2.0]})
    model = op.RLSRegressor().fit(frame, [5.0, 1.0, 2.0])
    file = dumps(model, "here")
    assert server.send("PUT", "/v2/models/timed", file, MODEL)[0] == 201
    columns = {"x": [1.0, 1.0, 1.0], "time": [7.0, 8.0, 9.0], "y": [0.0, 0.0, 0.0]}
    right = model.predict(pd.DataFrame({k: columns[k] for k in ("x", "time")}))
    assert predictions(server, "timed", "json", columns) == right.tolist()


def test_wide_learner_does_not_block_other_requests(server: Server) -> None:
    """Rows become thousands of features, so predictions are computed in a thread."""
    features = op.features.RandomReLU(4096)
    file = dumps(op.Pipeline(features, op.SGDRegressor()), "here")
    assert server.send("PUT", "/v2/models/wide", file, MODEL)[0] == 201
    learned = {"inputs": [tensor("X", [[1.0], [2.0]]), tensor("y", [1.0, 2.0])]}
    assert server.send("POST", LEARN.format("wide"), learned)[0] == 200
    at, kind = INFER.format("rls-matrix"), "application/vnd.apache.arrow.stream"
    wide = ("POST", INFER.format("wide"), rows([[0.5]] * 8000))
    with ThreadPoolExecutor(8) as aside:
        for _ in range(5):
            assert server.send("POST", INFER.format("wide"), rows([[0.5]]))[0] == 200
        waiting = [aside.submit(server.send, *wide) for _ in range(8)]
        answered = 0
        while not all(each.done() for each in waiting):
            assert server.send("POST", at, rows(X))[0] == 200
            stream = arrow({"X": X})  # in a thread: the wide learner leaves one
            assert server.send("POST", at, stream, {"Content-Type": kind})[0] == 200
            answered += not all(each.done() for each in waiting)
        assert {each.result()[0] for each in waiting} == {200}
    assert answered > 2


def test_unknown_columns_are_treated_as_by_predict(server: Server) -> None:
    tensors = [tensor("a", [1.0]), tensor("b", [2.0])]
    body, more = {"inputs": tensors}, {"inputs": [*tensors, tensor("c", [9.0])]}
    known = server.send("POST", INFER.format("rls-named"), body)
    found = server.send("POST", INFER.format("rls-named"), more)
    assert (known[0], output(known[1])) == (found[0], output(found[1]))
    status, response, _ = server.send("POST", INFER.format("raw-named"), more)
    assert status == 400
    assert "unseen at fit time" in str(response)
