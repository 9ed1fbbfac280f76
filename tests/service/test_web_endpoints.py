"""Endpoints of models: infer, learn, labels, snapshots and versions."""

import gzip
import re
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from waiting import until
from web_server import Server, output, rows

import onepass as op

INFER, LEARN = "/v2/models/rls/infer", "/v2/models/rls/learn"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("web")
    op.save(op.RLSRegressor(ridge=1e-6), folder / "rls.onepass")
    with Server(folder / "data", str(folder / "rls.onepass")) as running:
        yield running


def fresh(server: Server, name: str, model: str = "rls", **settings: object) -> str:
    status, response, _ = server.send(
        "PUT", f"/v2/models/{name}", {"model": model, "settings": settings}
    )
    assert status == 201, response
    return f"/v2/models/{name}"


def test_predictions_use_all_rows_learned_before(server: Server) -> None:
    at = fresh(server, "own")
    for i in range(1, 6):
        status, response, _ = server.send("POST", f"{at}/learn", rows([[i]], [2.0 * i + 1]))
        assert (status, response["model_version"]) == (200, str(i))
        _, response, _ = server.send("POST", f"{at}/infer", rows([[10]]))
        assert response["model_version"] == str(i)
    assert abs(output(response)[0] - 21) < 3


def test_concurrent_predictions_of_a_version_are_equal(server: Server) -> None:
    """While rows are learned, all predictions with the same version are equal."""
    at = fresh(server, "versions")
    rng = np.random.default_rng(0)
    stop = threading.Event()
    known: dict[str, float] = {}
    error: list[str] = []

    def learn() -> None:
        while not stop.is_set():
            x = rng.normal(size=3)
            server.send("POST", f"{at}/learn", rows([x], [float(x.sum())]))

    def infer() -> None:
        while not stop.is_set():
            _, response, _ = server.send("POST", f"{at}/infer", rows([[1, 2, 3]]))
            version, predictions = response["model_version"], output(response)[0]
            if known.setdefault(version, predictions) != predictions:
                error.append(version)

    threads = [threading.Thread(target=each) for each in (learn, infer, infer, infer)]
    for thread in threads:
        thread.start()
    until(lambda: len(known) > 5)
    stop.set()
    for thread in threads:
        thread.join()
    assert not error


def test_large_request_does_not_block_small_ones(server: Server) -> None:
    at = fresh(server, "large")
    server.send("POST", f"{at}/learn", rows([[1.0] * 100], [1.0]))
    large = rows([[1.0] * 100] * 5000)
    slow: list[float] = []

    def ask() -> None:
        began = time.perf_counter()
        assert server.send("POST", f"{at}/infer", large)[0] == 200
        slow.append(time.perf_counter() - began)

    thread = threading.Thread(target=ask)
    thread.start()
    small = []
    while thread.is_alive():
        began = time.perf_counter()
        server.send("GET", "/v2/health/live")
        small.append(time.perf_counter() - began)
    assert len(small) > 3
    assert max(small) < slow[0]


def test_repeated_key_is_learned_once(server: Server) -> None:
    at = fresh(server, "keys")
    first = server.send("POST", f"{at}/learn", rows([[1]], [1]), {"Idempotency-Key": "a"})
    again = server.send("POST", f"{at}/learn", rows([[1]], [1]), {"Idempotency-Key": "a"})
    assert first[1] == again[1]
    assert first[2]["idempotent-replayed"] is None
    assert again[2]["idempotent-replayed"] == "true"
    other = server.send("POST", f"{at}/learn", rows([[2]], [1]), {"Idempotency-Key": "a"})
    assert other[0] == 409
    assert server.send("GET", at)[1]["versions"] == ["1"]
    assert server.send("POST", f"{at}/learn", rows([[2]], [1]), {"Idempotency-Key": ""})[0] == 400


def test_invalid_concurrent_request_is_refused_alone(server: Server) -> None:
    at = fresh(server, "batch")
    server.send("POST", f"{at}/learn", rows([[0, 0]], [0]))
    found: dict[int, int] = {}

    def learn(i: int) -> None:
        row = [[1.0, float(i)]] if i % 5 else [[1.0, float(i), 3.0]]
        found[i] = server.send("POST", f"{at}/learn", rows(row, [1.0]))[0]

    threads = [threading.Thread(target=learn, args=(i,)) for i in range(40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {i: 200 if i % 5 else 400 for i in range(40)}
    state = server.send("GET", "/state")[1]["models"]
    response = next(each for each in state if each["name"] == "batch")
    assert (response["rows_seen"], response["rows_refused"]) == (33, 8)
    assert response["version"] <= 33


def predicted(server: Server) -> int:
    text = server.send("GET", "/metrics")[1].decode()
    return int(re.search(r'rows_predicted_total\{model="rls"\} (\d+)', text)[1])  # type: ignore[index]


def test_labels_of_pending_rows_are_learned_once(server: Server) -> None:
    at = "/v2/models/rls"
    server.send("POST", f"{at}/learn", rows([[1], [2]], [1, 2]))
    before = predicted(server)
    _, response, _ = server.send(
        "POST", f"{at}/infer", rows([[3], [4]], await_label=True, seconds=60)
    )
    assert predicted(server) == before + 2
    assert response["model_version"] == "1"
    ids = output(response, "id")

    def label(ids: list[str], y: list[float]) -> tuple[int, object, object]:
        given = {"id": ("BYTES", ids), "y": ("FP64", y)}
        inputs = [
            {"name": name, "shape": [len(data)], "datatype": datatype, "data": data}
            for name, (datatype, data) in given.items()
        ]
        body = {"inputs": inputs}
        return server.send("POST", f"{at}/labels", body)

    status, again, _ = label(ids, [3, 4])
    assert (status, again["model_version"]) == (200, "2")
    assert output(again)[0] == output(response)[0]
    assert label(ids, [3, 4])[2]["idempotent-replayed"] == "true"
    assert label(ids, [3, 5])[0] == 409
    assert label(["unknown"], [3])[0] == 400
    for body in (rows([[3]]), {"inputs": [{"name": "id", "shape": [1], "datatype": "BYTES",
                                           "data": ["unknown"]}]}):  # fmt: skip
        for verb in ("learn", "labels"):
            status, error, _ = server.send("POST", f"{at}/{verb}", body)
            assert status == 400
            assert "op." not in error["error"]
    _, response, _ = server.send("POST", f"{at}/infer", rows([[3]], await_label=True, seconds=0))
    time.sleep(0.01)
    assert label(output(response, "id"), [3])[0] == 400
    for parameters in (
        {"await_label": "yes"},
        {"await_label": True, "seconds": "long"},
        {"await_label": True, "seconds": -1},
    ):
        assert server.send("POST", f"{at}/infer", rows([[3]], **parameters))[0] == 400


def test_version_in_the_path_must_be_current(server: Server) -> None:
    at = fresh(server, "numbered")
    server.send("POST", f"{at}/learn", rows([[1]], [1]))
    assert server.send("POST", f"{at}/versions/1/infer", rows([[1]]))[0] == 200
    assert server.send("POST", f"{at}/versions/7/infer", rows([[1]]))[0] == 404
    assert server.send("POST", f"{at}/versions/7/infer", rows([[1]], await_label=True))[0] == 404
    assert server.send("GET", f"{at}/versions/1/ready")[0] == 200
    assert server.send("GET", f"{at}/versions/0")[0] == 404


def test_models_are_created_rolled_back_and_retired(server: Server) -> None:
    model = op.RLSRegressor(ridge=1e-9).partial_fit([[1.0], [2.0]], [2.0, 4.0])
    file = server.folder.parent / "m.onepass"
    op.save(model, file)
    kind = {"Content-Type": "application/x-onepass"}
    assert server.send("PUT", "/v2/models/file", file.read_bytes(), kind)[0] == 201
    _, response, _ = server.send("POST", "/v2/models/file/infer", rows([[3]]))
    assert output(response) == model.predict([[3.0]]).tolist()
    assert server.send("PUT", "/v2/models/file", {"model": "rls"})[0] == 409
    assert server.send("PUT", "/v2/models/broken", file.read_bytes()[:-3], kind)[0] == 400
    assert server.send("PUT", "/v2/models/odd", {"model": "nonsense"})[0] == 400
    assert server.send("PUT", "/v2/models/odd", {"model": "rls", "more": 1})[0] == 400
    for i in range(3):
        server.send("POST", "/v2/models/file/learn", rows([[i]], [i]))
    assert server.send("POST", "/v2/models/file/snapshot")[1]["version"] == 3
    assert server.send("POST", "/v2/models/file/rollback", {"to": 0})[1]["version"] == 4
    _, response, _ = server.send("POST", "/v2/models/file/infer", rows([[3]]))
    assert (output(response), response["model_version"]) == (model.predict([[3.0]]).tolist(), "4")
    packed = gzip.compress(b'{"to": 99}'), {"Content-Encoding": "gzip"}
    for body in (({"to": 99},), packed):
        status, response, _ = server.send("POST", "/v2/models/file/rollback", *body)
        assert (status, "99" in response["error"]) == (400, True)
    status, response, _ = server.send("DELETE", "/v2/models/file")
    assert (status, response["file"]) == (200, "file.retired-1")
    assert server.send("GET", "/v2/models/file")[0] == 404
    with op.durable(server.folder / "file.retired-1") as retired:
        assert retired.rows_seen == 5 - 2
    assert server.send("PUT", "/v2/models/file", {"model": "rls"})[0] == 201
    assert server.send("DELETE", "/v2/models/file")[1]["file"] == "file.retired-2"


def test_snapshots_are_listed_immediately(server: Server) -> None:
    at = fresh(server, "listed")

    def listed() -> list[int]:
        models = server.send("GET", "/state")[1]["models"]
        retired = next(each["snapshots"] for each in models if each["name"] == "listed")
        return [each["version"] for each in retired]

    assert listed() == [0]
    server.send("POST", f"{at}/learn", rows([[1]], [1]))
    server.send("POST", f"{at}/snapshot")
    assert listed() == [0, 1]
    server.send("POST", f"{at}/rollback", {"to": 0})
    assert listed() == [0, 1, 2]


def test_arrow_and_json_columns_have_equal_predictions(server: Server) -> None:
    pd = pytest.importorskip("pandas")
    at = fresh(server, "frames")
    frame = pd.DataFrame({"a": [1.0, 2.0, 3.0], "kind": ["x", "y", "x"]})

    def stream(table: object) -> bytes:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:  # type: ignore[attr-defined]
            writer.write_table(table)
        return sink.getvalue().to_pybytes()

    kind = {"Content-Type": "application/vnd.apache.arrow.stream"}
    learned = stream(pa.Table.from_pandas(frame.assign(y=[1.0, 2.0, 3.0]), preserve_index=False))
    status, _, headers = server.send("POST", f"{at}/learn", learned, kind)
    assert (status, headers["x-onepass-version"]) == (200, "1")
    body = stream(pa.Table.from_pandas(frame, preserve_index=False))
    status, found, _ = server.send("POST", f"{at}/infer", body, kind)
    predictions = pa.ipc.open_stream(found).read_all()["y"].to_pylist()
    split = {"dataframe_split": frame.to_dict(orient="split", index=False)}
    status, response, _ = server.send("POST", "/invocations", split)
    assert status == 400  # which of them?
    columns = {"inputs": [
        {"name": "a", "shape": [3], "datatype": "FP64", "data": [1, 2, 3]},
        {"name": "kind", "shape": [3], "datatype": "BYTES", "data": ["x", "y", "x"]},
    ]}  # fmt: skip
    _, response, _ = server.send("POST", f"{at}/infer", columns)
    assert output(response) == predictions


def test_invocations_use_the_default_model(tmp_path: Path) -> None:
    with Server(tmp_path / "data", "rls", "--default-model", "rls") as server:
        server.send("POST", LEARN, rows([[1.0], [2.0]], [1.0, 2.0]))
        _, response, _ = server.send("POST", INFER, rows([[3.0]]))
        _, found, _ = server.send("POST", "/invocations", {"instances": [[3.0]]})
        assert found["predictions"] == output(response)
        kind = {"Content-Type": "text/csv"}
        _, found, _ = server.send("POST", "/invocations", "x0\n3.0\n", kind)
        assert found["predictions"] == output(response)
        assert server.send("GET", "/ping")[0] == 200
        assert server.send("GET", "/version")[0] == 200


def test_empty_request_changes_nothing(server: Server) -> None:
    at = fresh(server, "nothing")
    tensors = [{"name": "X", "shape": [0, 3], "datatype": "FP64", "data": []},
               {"name": "y", "shape": [0], "datatype": "FP64", "data": []}]  # fmt: skip
    status, response, _ = server.send("POST", f"{at}/learn", {"inputs": tensors})
    assert (status, response["outputs"][0]["data"], response["model_version"]) == (200, [], "0")
    assert server.send("POST", f"{at}/learn", rows([[1.0]], [2.0]))[0] == 200


def test_responses_are_counted_by_status(server: Server) -> None:
    assert server.send("GET", "/nowhere")[0] == 404
    assert server.send("GET", "/v2/health/live")[0] == 200
    predictions = server.send("GET", "/metrics")[1].decode()
    found = re.findall(r'^onepass_requests_total{status="(\d+)"} (\S+)$', predictions, re.MULTILINE)
    assert float(dict(found)["404"]) >= 1
    assert float(dict(found)["200"]) >= 1


def test_request_with_many_outputs_does_not_block_others(server: Server) -> None:
    """Each prediction has 1000 outputs, so it is computed in a thread."""
    at = fresh(server, "broad")
    row = rows([[1.0]])
    y = {"name": "y", "shape": [1, 1000], "datatype": "FP64", "data": [1.0] * 1000}
    assert server.send("POST", f"{at}/learn", {"inputs": [*row["inputs"], y]})[0] == 200
    before = time.monotonic()
    with ThreadPoolExecutor(1) as aside:
        future = aside.submit(server.send, "POST", f"{at}/infer", rows([[1.0]] * 4000))
        live = 0
        while not future.done():
            assert server.send("GET", "/v2/health/live")[0] == 200
            live += 1
    assert future.result()[0] == 200
    assert live > 2, time.monotonic() - before


def test_one_model_per_key(server: Server) -> None:
    model = op.Keyed(op.Pipeline(op.features.Encode(), op.RLSRegressor()), by="who")
    with op.service.Client(f"http://127.0.0.1:{server.port}", token=server.token) as client:
        client.create("keyed", model)
    at = "/v2/models/keyed"
    records = [{"x": {"who": f"k{i % 3}", "x": i % 7}, "y": (i % 7) * (i % 3)} for i in range(60)]
    for part in (records[:1], records[1:]):
        status, response, _ = server.send("POST", f"{at}/learn", part)
        assert status == 200, response
    status, response, _ = server.send("POST", f"{at}/infer", {"x": {"who": "k2", "x": 5.0}})
    assert status == 200, response
    assert response["predictions"] == pytest.approx([10.0], abs=1e-3)
    names = {each["name"] for each in server.send("GET", at)[1]["inputs"]}
    assert {"who", "x"} <= names
    status, response, _ = server.send("POST", f"{at}/infer", {"x": {"x": 5.0}})
    assert status == 400
    assert "key column 'who'" in str(response)
