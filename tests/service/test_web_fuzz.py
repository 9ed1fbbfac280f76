"""Random requests get a response without a server error, and change nothing."""

import http.client
import json
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from web_server import Server, rows, unchanging_state

from onepass.service.http.routes import ENDPOINTS
from sampling import examples

KINDS = ["application/json", "application/octet-stream", "application/vnd.apache.arrow.stream",
         "text/csv", "application/x-ndjson", "application/x-onepass", "",
         "multipart/form-data"]  # fmt: skip
ODD = [None, True, -1, 0, 1, 2**63, 10**400, -0.0, 1e308, "", "x", "NaN", "\ud800", [], {}, [[]]]
VALUES = st.recursive(
    st.sampled_from(ODD), lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.sampled_from(["data", "shape", "name", "x"]), inner, max_size=3),
    max_leaves=6,
)  # fmt: skip
TENSORS = st.fixed_dictionaries(
    {"name": st.sampled_from(["X", "y", "id", "time", "sample_weight", "", "é"]) | VALUES,
     "shape": st.sampled_from([[1, 1], [1], [2, 1], [0, 0], [-1], [2**62, 2**62], []]) | VALUES,
     "datatype": st.sampled_from(["FP64", "BYTES", "INT64", "BOOL", "FP16", "BF16"]) | VALUES,
     "data": st.sampled_from([[1], [1, 2], ["a"], [None], [1e400], []]) | VALUES},
    optional={"parameters": VALUES},
)  # fmt: skip
REQUESTS = st.fixed_dictionaries(
    {"inputs": st.lists(TENSORS, max_size=3) | VALUES},
    optional={
        "parameters": st.fixed_dictionaries({"ask": VALUES, "seconds": VALUES}) | VALUES,
        "outputs": VALUES | st.just([{"name": "probabilities"}]),
        "id": VALUES,
    },
)
BODIES = (
    st.binary(max_size=200)
    | REQUESTS.map(lambda each: json.dumps(each).encode())
    | VALUES.map(lambda each: json.dumps(each).encode())
    | st.sampled_from([b'{"inputs":[{"name":"X","shape":[1,1],"datatype":"FP64","data":[NaN]}]}',
                       b'{"instances":[[1]]}', b'{"dataframe_split":{}}', b'{"to":-1}',
                       b'{"model":"rls","settings":{"rls.ridge":"x"}}', b'{"to":1e400}',
                       b"[" * 100_000, b"a,b\n1\n"])
)  # fmt: skip
SAFE = [
    (each.method, each.path)
    for each in ENDPOINTS
    if each.method != "DELETE" and each.path != "/metrics"
]
NAMES = ["rls", "none", "..", "%00", "%2e%2e%2f", "a" * 3000, "%ff"]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("fuzz")
    with Server(folder / "data", "rls") as running:
        assert running.send("POST", "/v2/models/rls/learn", rows([[1], [2]], [1, 2]))[0] == 200
        yield running
        log = running.log.read_text()
        assert "Traceback" not in log, log[-4000:]


@settings(max_examples=examples(150, 400), deadline=None, suppress_health_check=list(HealthCheck))
@given(
    where=st.sampled_from(SAFE),
    name=st.sampled_from(NAMES),
    method=st.sampled_from(["", "", "", "", "HEAD", "PATCH", "TRACE", "OPTIONS", "BREW"]),
    kind=st.sampled_from(KINDS),
    more=st.dictionaries(
        st.sampled_from(["Inference-Header-Content-Length", "Idempotency-Key", "Content-Encoding",
                         "Authorization", "Expect", "Accept"]),
        st.sampled_from(["", "0", "-1", "10", "1e9", "gzip", "x" * 600, "\xff", "100-continue"]),
        max_size=2),
    body=BODIES,
)  # fmt: skip
def test_random_requests_have_no_server_error(
    server: Server,
    where: tuple[str, str],
    name: str,
    method: str,
    kind: str,
    more: dict[str, str],
    body: bytes,
) -> None:
    path = where[1].replace("{name}", name).replace("{version}", "1").replace("{file}", "page.js")
    before = unchanging_state(server)
    try:
        status, response, _ = server.send(
            method or where[0], path, body, {"Content-Type": kind, **more}
        )
    except (ConnectionError, http.client.HTTPException):  # it was no HTTP
        return
    assert status < 500 or status == 501, (where, response)
    if status >= 400:
        text = response if isinstance(response, bytes) else json.dumps(response).encode()
        assert b"Traceback" not in text
        assert str(server.folder).encode() not in text
        assert unchanging_state(server) == before


@settings(max_examples=examples(25, 100), deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.binary(max_size=400) | st.sampled_from([b"GET", b"POST / HTTP/1.1\r\n"]))
def test_random_bytes_have_no_server_error(server: Server, data: bytes) -> None:
    with server.socket() as line:
        line.sendall(data + b"\r\n\r\n")
        line.settimeout(0.05)
        try:
            found = line.recv(1000)
        except (TimeoutError, ConnectionError):
            return
        assert not found or found.startswith((b"HTTP/1.1 4", b"HTTP/1.1 200"))
