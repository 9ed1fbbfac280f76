"""Requests: records, request ids, JSON limits, idle connections, trailers and upgrades."""

import gzip
import json
import re
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from waiting import until
from web_server import Server, output, rows

import onepass as op

INFER, LEARN = "/v2/models/rls/infer", "/v2/models/rls/learn"
NDJSON = {"Content-Type": "application/x-ndjson"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("requests")
    with Server(folder / "data", "rls", "--idle-timeout", "1") as running:
        yield running
        assert "Traceback" not in running.log.read_text()


def test_records_are_learned_and_predicted(server: Server) -> None:
    assert server.send("PUT", "/v2/models/records", {"model": "rls"})[0] == 201
    for body in ({"x": {"km": 1.0}, "y": 3.0}, [{"x": {"km": 2.0}, "y": 5.0}]):
        assert server.send("POST", "/v2/models/records/learn", body)[0] == 200
    tensors = {"inputs": [{"name": "km", "shape": [1], "datatype": "FP64", "data": [3.0]}]}
    _, found, _ = server.send("POST", "/v2/models/records/infer", tensors)
    status, response, headers = server.send("POST", "/v2/models/records/infer", {"x": {"km": 3.0}})
    assert (status, response["predictions"]) == (200, found["outputs"][0]["data"])
    assert headers["x-onepass-version"] == "2"
    lines = b'{"x": {"km": 5.0}, "y": 11.0}\n{"x": {"km": 6.0}, "y": 13.0}\n'
    assert server.send("POST", "/v2/models/records/learn", lines, NDJSON)[0] == 200
    for body in ({"x": 1}, {"y": 1}, [], [{"x": {"km": "a"}}, 3], {"x": {"km": 1.0}}):
        assert server.send("POST", "/v2/models/records/learn", body)[0] == 400


def test_requests_have_ids(server: Server) -> None:
    for own in ("abc-123", "x" * 128):
        headers = server.send("GET", "/v2", headers={"X-Request-Id": own})[2]
        assert headers["x-request-id"] == own
    for strange in ("a b", "x" * 129, "é"):
        found = server.send("GET", "/nowhere", headers={"X-Request-Id": strange})[2]
        assert re.fullmatch("[0-9a-f]{8}-[0-9]+", found["x-request-id"])
    first, second = (server.send("GET", "/v2")[2]["x-request-id"] for _ in range(2))
    assert first != second


def test_json_has_a_limit_of_its_own(server: Server) -> None:
    body = b" " * (8 << 20) + json.dumps(rows([[1.0]])).encode()
    status, response, _ = server.send("POST", INFER, body)
    assert (status, "8,388,608" in response["error"]) == (413, True)
    status, response, _ = server.send(
        "POST", INFER, gzip.compress(body), {"Content-Encoding": "gzip"}
    )
    assert status == 413
    kind = {"Content-Type": "text/csv"}
    csv = b"x0\n" + b"1.0000000\n" * 900_000
    assert len(csv) > 8 << 20
    assert server.send("POST", LEARN, rows([[1.0]], [1.0]))[0] == 200
    assert server.send("POST", "/invocations", csv, kind)[0] in {200, 400}


def test_idle_connection_is_closed(server: Server) -> None:
    with server.socket() as line:
        line.sendall(b"GET /v2/health/live HTTP/1.1\r\nHost: localhost\r\n\r\n")
        with line.makefile("rb") as sent:  # which ends when the connection is closed
            assert sent.read().startswith(b"HTTP/1.1 200")


def test_trailers_are_not_headers(server: Server) -> None:
    body = json.dumps(rows([[1.0]])).encode()
    chunked = (
        f"POST {INFER} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
    )
    for part in (body[:9], body[9:]):
        chunked += b"%x\r\n%b\r\n" % (len(part), part)
    trailed = chunked + b"0\r\nX-Request-Id: trailer\r\nHost: evil.example\r\n\r\n"
    assert (found := received(server, trailed)).startswith(b"HTTP/1.1 200")
    assert b"trailer" not in found


def test_upgrade_with_a_body_is_ignored(server: Server) -> None:
    """As Java's client sends its requests, unless it is set to HTTP/1.1."""
    body = json.dumps(rows([[1.0]])).encode()
    lines = ["Host: localhost", "Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c",
             "HTTP2-Settings: AA", f"Content-Length: {len(body)}"]  # fmt: skip
    head = "\r\n".join([f"POST {INFER} HTTP/1.1", *lines, "", ""])
    responses = received(server, head.encode() + body).split(b"HTTP/1.1 ")[1:]
    assert [response[:3] for response in responses] == [b"200"]
    get = "\r\n".join(["GET /v2 HTTP/1.1", *lines[:-1], "", ""])
    assert received(server, get.encode()).startswith(b"HTTP/1.1 200")


def test_pipelined_requests_are_handled_in_order(server: Server) -> None:
    """Each learned row is predicted first, by a model that knows all rows before it."""
    assert server.send("PUT", "/v2/models/pipelined", {"model": "rls"})[0] == 201
    draw = np.random.default_rng(0)
    X = draw.normal(size=(200, 3))
    y = X @ [1.0, -2.0, 0.5] + 0.1 * draw.normal(size=200)
    verbs = ["infer" if i == 150 else "learn" for i in range(200)]
    data = b""
    for i, verb in enumerate(verbs):
        row = np.ones((1, 4)) if i == 70 else X[i : i + 1]  # one is refused
        body = json.dumps(rows(row, None if verb == "infer" else y[i : i + 1])).encode()
        lines = [f"POST /v2/models/pipelined/{verb} HTTP/1.1", "Host: localhost",
                 f"Content-Length: {len(body)}", "", ""]  # fmt: skip
        data += "\r\n".join(lines).encode() + body
    responses = received(server, data).split(b"HTTP/1.1 ")[1:]
    assert [response[:3] for response in responses] == [b"200"] * 70 + [b"400"] + [b"200"] * 129
    model, versions = op.models.pipelines(["rls"], "regression")["rls"], []
    for i, response in enumerate(responses):
        body = json.loads(response.partition(b"\r\n\r\n")[2])
        if i == 70:
            assert "3 features" in body["error"]
            continue
        versions.append(int(body["model_version"]))
        expected = model.predict(X[i : i + 1]) if i else [0.0]
        assert output(body) == pytest.approx(expected, rel=1e-6, abs=1e-9), i
        if verbs[i] == "learn":
            model.partial_fit(X[i : i + 1], y[i : i + 1])
    assert versions == sorted(versions)


def received(server: Server, data: bytes) -> bytes:
    """The responses, until the idle connection is closed."""
    found = b""
    with server.socket() as line:
        line.sendall(data)
        while part := line.recv(65536):
            found += part
    return found


def test_concurrent_requests_are_learned(server: Server) -> None:
    """Each response has a version that includes its rows."""
    assert server.send("PUT", "/v2/models/many", {"model": "rls"})[0] == 201
    with ThreadPoolExecutor(16) as pool:
        found = list(pool.map(
            lambda i: server.send("POST", "/v2/models/many/learn", rows([[float(i)]], [1.0 * i])),
            range(200),
        ))  # fmt: skip
    assert {status for status, _, _ in found} == {200}
    state = {each["name"]: each for each in server.send("GET", "/state")[1]["models"]}
    assert state["many"]["rows_seen"] == 200
    assert (
        max(int(response["model_version"]) for _, response, _ in found) == state["many"]["version"]
    )


def test_rows_of_a_disconnected_client_are_learned(server: Server) -> None:
    assert server.send("PUT", "/v2/models/disconnected", {"model": "rls"})[0] == 201
    path = LEARN.replace("rls", "disconnected")
    body = json.dumps(rows([[1.0]], [1.0])).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
    for i in range(1, 4):
        with server.socket() as line:
            line.sendall(head.encode() + body)
            line.shutdown(socket.SHUT_WR)
            until(lambda i=i: rows_seen(server, "disconnected") == i)  # type: ignore[misc]


def rows_seen(server: Server, name: str) -> int:
    models = {model["name"]: model for model in server.send("GET", "/state")[1]["models"]}
    found: int = models[name]["rows_seen"]
    return found
