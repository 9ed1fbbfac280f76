"""``Client`` and ``AsyncClient``: all methods, and retries of requests that fail."""

import asyncio
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from web_server import TOKEN, Server, wait_until_idle_connections_close

import onepass as op
from onepass.errors import MissingExtraError, ParameterError, ServiceError, TypeMismatchError
from onepass.service import AsyncClient, Client, LearnResult
from raising import raises


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A service with a short idle timeout."""
    with Server(tmp_path_factory.mktemp("client") / "data", "--idle-timeout", "1") as running:
        yield running


def test_all_methods(tmp_path: Path) -> None:
    with (
        Server(tmp_path / "data", "rls", token=TOKEN) as server,
        Client(server.url, TOKEN) as client,
        Client(server.url) as nobody,
    ):
        assert client.create("new", "sgd", settings={"sgd.step_size": 0.01}) == 0
        X = [{"a": 1.0, "kind": "x"}, {"a": 2.0, "kind": "y"}]
        result = client.learn("new", X, [1.0, 2.0], key="k")
        assert (result.version, result.repeated, result.predictions.shape) == (1, False, (2,))
        again = client.learn("new", X, [1.0, 2.0], key="k")
        assert (again.version, again.repeated) == (1, True)
        np.testing.assert_array_equal(again.predictions, result.predictions)
        predictions, ids = client.predict_pending("new", X)
        np.testing.assert_array_equal(predictions, client.predict("new", X))
        assert client.learn_labels("new", ids, [1.0, 2.0]).version == 2
        assert client.learn_labels("new", ids, [1.0, 2.0]).repeated
        twice = client.predict_pending("new", X)[1]
        assert client.learn_labels("new", twice, [1.0, 2.0], [0.5, 2.0]).version == 3
        with raises(ServiceError, remedy="Use 0 for rows"):
            client.learn_labels("new", client.predict_pending("new", X)[1], [1.0, 2.0], [-1.0, 2.0])
        assert client.snapshot("new") == 3
        assert client.rollback("new", to=1) == 4
        np.testing.assert_array_equal(client.predict("new", X), predictions)
        assert [each["name"] for each in client.models()] == ["rls", "new"]
        client.retire("new")
        for error, status in (
            (lambda: client.predict("new", X), 404),
            (lambda: client.create("rls", "rls"), 409),
            (lambda: client.learn("rls", [[np.inf]], [1.0]), 400),
            (lambda: nobody.predict("rls", [[1.0]]), 401),
        ):
            with pytest.raises(ServiceError) as raised:
                error()
            assert raised.value.status == status
            assert TOKEN not in str(raised.value)


def test_create_uploads_a_fitted_learner(server: Server) -> None:
    """Learners that cannot be uploaded raise, and nothing is created."""
    X, y = np.random.default_rng(0).normal(size=(20, 2)), np.arange(20) % 2
    mine = op.Pipeline(op.features.Scale(), op.RLSClassifier()).partial_fit(X, y)
    mapped = op.ORFitRegressor(feature_map=lambda x: x)
    with Client(server.url) as client:
        assert client.create("mine", mine) == 0
        np.testing.assert_array_equal(client.predict("mine", X), mine.predict(X))
        shares, classes = client.predict_proba("mine", X)
        np.testing.assert_array_equal(shares, mine.predict_proba(X))
        assert classes.tolist() == [0, 1]
        client.learn("mine", X, y)
        np.testing.assert_array_equal(client.predict("mine", X), mine.partial_fit(X, y).predict(X))
        with raises(ServiceError, remedy="another name"):
            client.create("mine", mine)
        with raises(ParameterError, argument="settings"):
            client.create("other", mine, settings={"rls.ridge": 1.0})
        for error in (op.RLSRegressor, None, {"model": "rls"}):
            with raises(
                TypeMismatchError,
                where="Client.create",
                argument="model",
                remedy="such as op.RLSRegressor",
            ):
                client.create("other", error)
        with raises(ServiceError, remedy="Pass it to load"):
            client.create("other", mapped)
        assert "other" not in {model["name"] for model in client.models()}


def test_labels_are_text(server: Server) -> None:
    with Client(server.url) as client:
        client.create("text", "rls", task="classification")
        X = [[1.0, 0.0], [0.0, 1.0]] * 3
        client.learn("text", X, np.array(["é", "b"] * 3))
        assert client.predict("text", X[:2]).tolist() == ["é", "b"]


def test_https_to_a_service_without_tls_raises(server: Server) -> None:
    """Without retries, which would last a minute."""
    address = server.url.replace("http:", "https:")
    with (
        Client(address, retry_timeout=3600) as client,
        pytest.raises(ServiceError, match=r"SSL.*http:// or https://"),
    ):
        client.predict("rls", [[1.0]])


def test_system_certificates_are_read_once_and_only_for_https(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Loading them takes longer than a request."""
    made = []
    real = ssl.create_default_context
    monkeypatch.setattr(ssl, "create_default_context", lambda: made.append(1) or real())
    Client("http://127.0.0.1:9").close()
    assert not made
    with Client("https://127.0.0.1:9", retry_timeout=0) as client:
        for _ in range(3):
            with pytest.raises(ServiceError):
                client.models()
    assert len(made) == 1


class Odd(BaseHTTPRequestHandler):
    """A server that responds with the next of a list."""

    replies: list[tuple[int, dict[str, str], bytes]] = []  # noqa: RUF012  set by each test
    keys: list[str | None] = []  # noqa: RUF012
    paths: list[str] = []  # noqa: RUF012

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.keys.append(self.headers["Idempotency-Key"])
        self.paths.append(self.path)
        status, headers, body = self.replies.pop(0)
        if status == 0:
            self.wfile.write(body)
            return
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def odd() -> Iterator[str]:
    Odd.replies, Odd.keys, Odd.paths = [], [], []
    server = ThreadingHTTPServer(("127.0.0.1", 0), Odd)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


GOOD = (200, {"X-Onepass-Version": "7"},
        b'{"outputs":[{"name":"y","datatype":"FP64","shape":[1],"data":[0.5]}]}')  # fmt: skip


def test_retries_have_the_same_idempotency_key(odd: str) -> None:
    busy = (429, {"Retry-After": "1"}, b'{"error":"busy"}')
    Odd.replies = [busy, (503, {}, b"{}"), (0, {}, b""), GOOD]
    began = time.monotonic()
    with Client(odd) as client:
        result = client.learn("rls", [[1.0]], [1.0])
    assert (result.version, result.predictions.tolist()) == (7, [0.5])
    assert time.monotonic() - began >= 1
    assert len(Odd.keys) == 4
    assert len(set(Odd.keys)) == 1


@pytest.mark.parametrize("length", ["Content-Length", "Transfer-Encoding"])
@pytest.mark.parametrize("end", [0, 17, 40, 62])
def test_truncated_responses_are_retried(odd: str, end: int, length: str) -> None:
    status, headers, body = GOOD
    lines = [f"HTTP/1.1 {status} OK", f"X-Onepass-Version: {headers['X-Onepass-Version']}",
             f"{length}: {len(body) if 'C' in length else 'chunked'}", "", ""]  # fmt: skip
    Odd.replies = [(0, {}, ("\r\n".join(lines).encode() + body)[:end]), GOOD] * 2
    with Client(odd) as client:
        assert client.learn("rls", [[1.0]], [1.0]).predictions.tolist() == [0.5]
        (result,) = client.learn_each("rls", [([[1.0]], [1.0])])
        assert result.predictions.tolist() == [0.5]
    assert len(Odd.keys) == 4
    assert len(set(Odd.keys)) == 2


def test_retries_end_after_the_retry_timeout(odd: str) -> None:
    Odd.replies = [(503, {}, b'{"error":"full"}')] * 100
    with (
        Client(odd, retry_timeout=0.2) as client,
        pytest.raises(ServiceError, match="full") as error,
    ):
        client.learn("rls", [[1.0]], [1.0])
    assert error.value.status == 503
    with Client("http://127.0.0.1:9", retry_timeout=0.1) as client, pytest.raises(ServiceError):
        client.predict("rls", [[1.0]])


def test_rollback_is_retried_only_if_it_was_not_executed(odd: str) -> None:
    Odd.replies = [(0, {}, b"")] * 3
    with Client(odd) as client, pytest.raises(ServiceError):
        client.rollback("rls", to=3)
    assert len(Odd.replies) == 2
    good = (200, {}, b'{"version":7}')
    Odd.replies = [(503, {}, b'{"error":"whether this was kept is not known"}'), good]
    with Client(odd) as client, pytest.raises(ServiceError, match="not known"):
        client.rollback("rls", to=3)
    Odd.replies = [(429, {}, b"{}"), good]
    with Client(odd) as client:
        assert client.rollback("rls", to=3) == 7


def test_invalid_addresses_are_refused() -> None:
    for url in (
        "ftp://a",
        "127.0.0.1:8080",
        "http://",
        "http://a:99999",
        "http://a:0",
        "http://a\n",
        3,
    ):
        with pytest.raises(ParameterError):
            Client(url)


def test_rollback_and_create_succeed_after_an_idle_connection_is_closed(
    server: Server,
) -> None:
    with Client(server.url) as client:
        client.create("idle", "rls")
        client.learn("idle", [{"a": 1.0}], [1.0])
        wait_until_idle_connections_close(server)
        assert client.rollback("idle", to=0) == 2
        wait_until_idle_connections_close(server)
        assert client.create("idle2", "sgd") == 0


@pytest.mark.parametrize("word", ["a\n", " a", "", "é", "a\tb", 3, b"a"])
def test_invalid_headers_are_refused(word: Any) -> None:
    client = Client("http://127.0.0.1:9", retry_timeout=0)
    with raises(ParameterError, argument="key"):
        client.learn("rls", [[1.0]], [1.0], key=word)
    with raises(ParameterError, argument="token", remedy="Remove line ends"):
        Client("http://127.0.0.1:9", token=word)


def test_path_of_the_address_is_a_prefix_of_all_paths(odd: str) -> None:
    Odd.replies = [GOOD] * 3
    for prefix in ("", "/models", "/models/"):
        with Client(odd + prefix) as client:
            client.predict("a/b c", [[1.0]])
    path = "/v2/models/a%2Fb%20c/infer"
    assert Odd.paths == [path, f"/models{path}", f"/models{path}"]


def test_proxies_in_the_environment_are_ignored(odd: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    Odd.replies = [GOOD]
    with Client(odd, retry_timeout=0) as client:
        assert client.predict("rls", [[1.0]]).tolist() == [0.5]


def test_error_body_that_is_not_json_is_in_the_message(odd: str) -> None:
    Odd.replies = [(413, {}, b"<html>too large</html>")]
    with Client(odd) as client, pytest.raises(ServiceError, match=r"413: b'<html>too large"):
        client.predict("rls", [[1.0]])


def test_missing_httpx_raises_an_error_that_names_the_extra(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "httpx", None)
    for kind in (Client, AsyncClient):
        with raises(MissingExtraError, remedy="'onepass[serve]'"):
            kind("http://127.0.0.1:9")


def test_httpx_is_imported_by_the_constructor_only() -> None:
    code = (
        "import sys, onepass.service as s; assert 'httpx' not in sys.modules; s.Client('http://a')"
    )
    subprocess.run([sys.executable, "-c", code], check=True)  # noqa: S603  our own words


def test_threads_share_a_client(server: Server) -> None:
    with Client(server.url) as client:
        client.create("threads", "rls")
        with ThreadPoolExecutor(8) as threads:
            futures = [threads.submit(client.learn, "threads", [[i]], [2.0 * i]) for i in range(40)]
            assert {future.result().predictions.shape for future in futures} == {(1,)}
        client.close()
        prediction = client.predict("threads", [[3.0]])  # on a new connection
        np.testing.assert_allclose(prediction, [6.0], rtol=0.01)


# -- AsyncClient -----------------------------------------------------------------------------------


def test_all_methods_asynchronously(tmp_path: Path) -> None:
    X = [{"a": 1.0, "kind": "x"}, {"a": 2.0, "kind": None}]

    async def work(url: str) -> None:
        async with AsyncClient(url, TOKEN) as client:
            assert await client.create("new", "sgd", settings={"sgd.step_size": 0.01}) == 0
            result = await client.learn("new", X, [1.0, 2.0], key="k")
            assert (result.version, result.repeated, result.predictions.shape) == (1, False, (2,))
            assert (await client.learn("new", X, [1.0, 2.0], key="k")).repeated
            predictions, ids = await client.predict_pending("new", X)
            np.testing.assert_array_equal(predictions, await client.predict("new", X))
            assert (await client.learn_labels("new", ids, [1.0, 2.0])).version == 2
            assert await client.snapshot("new") == 2
            assert await client.rollback("new", to=1) == 3
            np.testing.assert_array_equal(await client.predict("new", X), predictions)
            assert [each["name"] for each in await client.models()] == ["rls", "new"]
            rows = [(X[:1], [float(i)]) for i in range(5)]
            versions = [each.version async for each in client.learn_each("new", rows)]
            assert versions == [4, 5, 6, 7, 8]
            await client.retire("new")
            with raises(ServiceError, got="'new'") as raised:
                await client.predict("new", X)
            assert raised.value.status == 404
            with raises(ParameterError, where="AsyncClient.learn", argument="key"):
                await client.learn("rls", [[1.0]], [1.0], key="a\n")

    with Server(tmp_path / "data", "rls", token=TOKEN) as server:
        asyncio.run(work(server.url))


def test_asynchronous_requests_are_sent_concurrently(server: Server) -> None:
    async def work(url: str) -> list[LearnResult]:
        async with AsyncClient(url) as client:
            await client.create("concurrent", "rls")
            requests = (client.learn("concurrent", [[i]], [2.0 * i]) for i in range(20))
            return await asyncio.gather(*requests)

    results = asyncio.run(work(server.url))
    models = {model["name"]: model for model in server.send("GET", "/state")[1]["models"]}
    assert models["concurrent"]["rows_seen"] == 20
    assert not any(result.repeated for result in results)


def test_asynchronous_requests_are_retried_until_the_timeout(odd: str) -> None:
    async def work() -> None:
        async with AsyncClient(odd) as client:
            Odd.replies = [
                (429, {"Retry-After": "1"}, b"{}"),
                (503, {}, b"{}"),
                (0, {}, b""),
                GOOD,
            ]
            began = time.monotonic()
            assert (await client.learn("rls", [[1.0]], [1.0])).version == 7
            assert time.monotonic() - began >= 1
            assert (len(Odd.keys), len(set(Odd.keys))) == (4, 1)
        async with AsyncClient(odd, retry_timeout=0.2) as client:
            Odd.replies = [(503, {}, b'{"error":"full"}')] * 100
            with pytest.raises(ServiceError, match="full"):
                await client.learn("rls", [[1.0]], [1.0])
            Odd.replies = [(0, {}, b"")] * 2
            with pytest.raises(ServiceError, match="must respond within"):
                await client.rollback("rls", to=3)
            assert len(Odd.replies) == 1
        async with AsyncClient(odd.replace("http:", "https:")) as client:
            with pytest.raises(ServiceError, match=r"SSL.*http:// or https://"):
                await client.models()

    asyncio.run(work())


def test_cancelled_request_stops_retrying(odd: str) -> None:
    async def work() -> None:
        async with AsyncClient(odd) as client:
            Odd.replies = [(503, {"Retry-After": "60"}, b"{}")]
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(client.learn("rls", [[1.0]], [1.0]), 0.5)

    asyncio.run(work())
