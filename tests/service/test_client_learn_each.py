"""``Client.learn_each``: one request for each row, in order, through interrupted connections."""

import random
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from web_server import TOKEN, Server, rows, wait_until_idle_connections_close

import onepass as op
from onepass.errors import ServiceError, ShapeError, TypeMismatchError
from onepass.service import Client, LearnResult


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("learn_each")
    with Server(folder / "data", "rls", "--idle-timeout", "1", token=TOKEN) as running:
        yield running


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[Client]:
    with Client(server.url, TOKEN) as found:
        yield found


def stream(count: int, d: int = 3) -> Iterator[tuple[Any, Any]]:
    rng = np.random.default_rng(1)
    for _ in range(count):
        x = rng.normal(size=(1, d))
        yield x, x.sum(axis=1)


def test_results_are_in_order_and_equal_a_local_learner(client: Client) -> None:
    client.create("plain", op.RLSRegressor())
    results = list(client.learn_each("plain", stream(60)))
    assert [result.version for result in results] == list(range(1, 61))
    assert not any(result.repeated for result in results)
    model = op.RLSRegressor()
    for result, (x, y) in zip(results, stream(60), strict=True):
        np.testing.assert_allclose(
            result.predictions, [model.predict_one(x[0])], rtol=1e-6, atol=1e-9
        )
        model.learn_one(x[0], y[0])


class InterruptedProxy:
    """A TCP proxy that closes each connection after a random number of bytes."""

    def __init__(self, port: int, seed: int) -> None:
        self._port, self._rng = port, random.Random(seed)  # noqa: S311  of a test
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.closed_count = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):  # the listener is closed
            while True:
                client, _ = self._listener.accept()
                try:
                    server = socket.create_connection(("127.0.0.1", self._port))
                except OSError:  # it was killed
                    client.close()
                    continue
                for source, target in ((client, server), (server, client)):
                    left = self._rng.randrange(1, 40_000)
                    arguments = (source, target, left)
                    threading.Thread(target=self._forward, args=arguments, daemon=True).start()

    def _forward(self, source: socket.socket, target: socket.socket, left: int) -> None:
        with suppress(OSError):
            while left > 0:
                data = source.recv(min(left, 700))
                if not data:
                    break
                target.sendall(data)
                left -= len(data)
        self.closed_count += left <= 0
        for connection in (source, target):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        source.close()


def test_rows_are_learned_once_through_interrupted_connections_and_kills(tmp_path: Path) -> None:
    with Server(tmp_path / "data", "rls") as server:
        proxy = InterruptedProxy(server.port, 5)
        results = []
        with Client(proxy.url, retry_timeout=60) as client:
            for result in client.learn_each("rls", stream(120)):
                results.append(result)
                if len(results) in {40, 80}:
                    server.kill()
                    server.start()
        proxy.close()
        assert len(results) == 120
        assert proxy.closed_count > 3
        assert any(result.repeated for result in results)
        versions = [result.version for result in results]
        assert versions == sorted(versions)
        server.kill()
    with op.durable(tmp_path / "data" / "rls.db") as durable:
        assert durable.rows_seen == 120


def test_invalid_rows_raise_after_the_results_before_them(client: Client) -> None:
    client.create("invalid", "rls")
    good = list(stream(6))
    for error, kind, match in (
        ((np.ones((1, 4)), [1.0]), ServiceError, "3 features"),
        (([[1.0], [2.0]], [1.0]), ShapeError, "learn_each"),
        (([[1.0]], None), TypeMismatchError, "`y` must have a target for each row"),
    ):
        results: list[LearnResult] = []
        found = client.learn_each("invalid", [*good[:3], error, *good[3:]])
        with pytest.raises(kind, match=match):
            results.extend(found)
        assert len(results) == 3
    assert list(client.learn_each("invalid", [])) == []


def test_rows_are_learned_before_the_next_one_is_read(server: Server, client: Client) -> None:
    client.create("generator", "rls")

    def checked() -> Iterator[tuple[Any, Any]]:
        for count, (x, y) in enumerate(stream(5), start=1):
            yield x, y
            head = server.send("POST", "/v2/models/generator/infer", rows(x.tolist()))[2]
            assert head["X-Onepass-Version"] == str(count)

    assert [result.version for result in client.learn_each("generator", checked())] == [
        1, 2, 3, 4, 5,
    ]  # fmt: skip


def test_rows_are_learned_after_the_service_closes_an_idle_connection(
    server: Server, client: Client
) -> None:
    client.create("slow", "rls")

    def slowly() -> Iterator[tuple[Any, Any]]:
        for x, y in stream(2):
            yield x, y
            wait_until_idle_connections_close(server)

    results = list(client.learn_each("slow", slowly()))
    assert [(result.version, result.repeated) for result in results] == [(1, False), (2, False)]


def test_versions_do_not_decrease_at_empty_blocks(client: Client) -> None:
    client.create("empty", op.RLSRegressor())
    empty = (np.empty((0, 3)), np.empty(0))
    given = [part for row in stream(10) for part in (row, empty)]
    versions = [result.version for result in client.learn_each("empty", given)]
    assert versions == sorted(versions)


def test_an_unreachable_service_raises_after_the_retry_timeout() -> None:
    with Client("http://127.0.0.1:9", retry_timeout=0.3) as client, pytest.raises(ServiceError):
        list(client.learn_each("rls", stream(1 << 30)))
