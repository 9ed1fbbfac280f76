"""Many requests to learn on one connection: ahead of their responses, and by ``learn_each``."""

import json
import random
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from web_server import TOKEN, Server, rows

import onepass as op
from onepass.errors import ServiceError, ShapeError, TypeMismatchError
from onepass.service import Client, LearnResult

Request = tuple[str, dict[str, Any]]


def plain(folder: Path) -> str:
    """A file of a learner that takes numbers as they are."""
    op.save(op.RLSRegressor(), folder / "rls.onepass")
    return str(folder / "rls.onepass")


def send_request(
    server: Server, requests: list[Request], *lines: str
) -> list[tuple[int, str, Any]]:
    """Status, head and body of the answers to requests that were sent at once."""
    data = b""
    for verb, tensors in requests:
        inputs = [
            {"name": name, "datatype": "FP64", "shape": list(np.shape(part)),
             "data": np.ravel(part).tolist()}
            for name, part in tensors.items()
        ]  # fmt: skip
        body = json.dumps({"inputs": inputs}).encode()
        head = [f"POST /v2/models/rls/{verb} HTTP/1.1", "Host: localhost", *lines]
        head.append(f"Content-Length: {len(body)}")
        data += "\r\n".join([*head, "", ""]).encode() + body
    found = []
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as line:
        line.sendall(data)
        file = line.makefile("rb")
        for _ in requests:
            head = iter(file.readline, b"\r\n")
            text = b"".join(head).decode()
            length = int(text.lower().partition("content-length: ")[2].split()[0])
            found.append((int(text.split()[1]), text, json.loads(file.read(length))))
    return found


def test_pipelined_requests_have_their_responses_in_order(tmp_path: Path) -> None:
    """A refused row has its response in its place; a prediction knows all rows before it."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 3))
    y = X @ [1.0, -2.0, 0.5] + 0.1 * rng.normal(size=200)
    requests: list[Request] = [
        ("learn", {"X": X[i : i + 1], "y": y[i : i + 1]}) for i in range(200)
    ]
    requests[70] = ("learn", {"X": np.ones((1, 4)), "y": np.ones(1)})
    requests[150] = ("infer", {"X": X[150:151]})
    with Server(tmp_path / "data", plain(tmp_path)) as server:
        found = send_request(server, requests)
    assert [status for status, *_ in found] == [200] * 70 + [400] + [200] * 129
    model = op.RLSRegressor()
    for i in range(200):
        if i == 70:
            assert "3 features" in found[i][2]["error"]
            continue
        predictions = model.predict_one(X[i])
        if i != 150:
            model.learn_one(X[i], y[i])
        (output,) = found[i][2]["outputs"]
        assert output["data"] == [pytest.approx(predictions, rel=1e-6, abs=1e-9)]
    versions = [int(body["model_version"]) for _, _, body in found if "error" not in body]
    assert versions == sorted(versions)


def test_a_key_that_comes_twice_at_once_is_learned_once(tmp_path: Path) -> None:
    row = ("learn", {"X": [[1.0]], "y": [2.0]})
    with Server(tmp_path / "data", "rls") as server:
        found = send_request(server, [row] * 5, "Idempotency-Key: same")
        assert [status for status, *_ in found] == [200] * 5
        replayed = ["idempotent-replayed: true" in head.lower() for _, head, _ in found]
        assert replayed == [False, True, True, True, True]
        assert {body["model_version"] for *_, body in found} == {"1"}


class Cut:
    """A line to a server, which is cut at random moments."""

    def __init__(self, port: int, seed: int) -> None:
        self._port, self._rng = port, random.Random(seed)  # noqa: S311  of a test
        self._door = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._door.getsockname()[1]}"
        self.cuts = 0
        threading.Thread(target=self._work, daemon=True).start()

    def close(self) -> None:
        self._door.close()

    def _work(self) -> None:
        with suppress(OSError):  # the door is closed
            while True:
                client, _ = self._door.accept()
                try:
                    server = socket.create_connection(("127.0.0.1", self._port))
                except OSError:  # it was killed
                    client.close()
                    continue
                for ends in ((client, server), (server, client)):
                    left = self._rng.randrange(1, 40_000)
                    threading.Thread(target=self._pass, args=(*ends, left), daemon=True).start()

    def _pass(self, here: socket.socket, there: socket.socket, left: int) -> None:
        with suppress(OSError):
            while left > 0:
                data = here.recv(min(left, 700))
                if not data:
                    break
                there.sendall(data)
                left -= len(data)
        self.cuts += left <= 0
        for each in (here, there):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        here.close()


def stream(count: int, d: int = 3) -> Iterator[tuple[Any, Any]]:
    rng = np.random.default_rng(1)
    for _ in range(count):
        x = rng.normal(size=(1, d))
        yield x, x.sum(axis=1)


def test_receipts_come_in_order(tmp_path: Path) -> None:
    with (
        Server(tmp_path / "data", plain(tmp_path), token=TOKEN) as server,
        Client(server.url, TOKEN) as client,
    ):
        results = list(client.learn_each("rls", stream(300)))
        assert len(results) == 300
        assert [each.version for each in results] == list(range(1, 301))
        assert not any(each.repeated for each in results)
    model = op.RLSRegressor()
    for result, (x, y) in zip(results, stream(300), strict=True):
        np.testing.assert_allclose(
            result.predictions, [model.predict_one(x[0])], rtol=1e-6, atol=1e-9
        )
        model.learn_one(x[0], y[0])


def test_each_is_learned_once_through_cut_lines_and_kills(tmp_path: Path) -> None:
    with Server(tmp_path / "data", "rls") as server:
        cut = Cut(server.port, 5)
        results = []
        with Client(cut.url, retry_timeout=60) as client:
            for result in client.learn_each("rls", stream(600)):
                results.append(result)
                if len(results) in {150, 400}:
                    server.kill()
                    server.start()
        cut.close()
        assert len(results) == 600
        assert cut.cuts > 3
        assert any(each.repeated for each in results)
        versions = [each.version for each in results]
        assert versions == sorted(versions)
        server.kill()
    with op.durable(tmp_path / "data" / "rls.db") as durable:
        assert durable.rows_seen == 600


def test_what_is_wrong_is_raised_in_its_place(tmp_path: Path) -> None:
    good = list(stream(20))
    with Server(tmp_path / "data", "rls") as server, Client(server.url) as client:
        for error, kind, match in (
            ((np.ones((1, 4)), [1.0]), ServiceError, "3 features"),
            (([[1.0], [2.0]], [1.0]), ShapeError, "learn_each"),
            ("ab", TypeMismatchError, "a tuple of X and y"),
            (([[1.0]], None), TypeMismatchError, "`y` must have a target"),
        ):
            results: list[LearnResult] = []
            found = client.learn_each("rls", [*good[:10], error, *good[10:]])
            with pytest.raises(kind, match=match):
                results.extend(found)
            assert len(results) == 10
        with pytest.raises(TypeMismatchError, match="rows"):
            client.learn_each("rls", None)  # type: ignore[arg-type]
        assert list(client.learn_each("rls", [])) == []


def test_rows_go_out_when_they_come(tmp_path: Path) -> None:
    """Each row is learned before the next one is taken."""
    with Server(tmp_path / "data", "rls") as server, Client(server.url) as client:

        def slowly() -> Iterator[tuple[Any, Any]]:
            for count, (x, y) in enumerate(stream(5), start=1):
                yield x, y
                for _ in range(200):
                    head = server.send("POST", "/v2/models/rls/infer", rows(x.tolist()))[2]
                    if head["X-Onepass-Version"] == str(count):
                        break
                    time.sleep(0.05)
                else:
                    raise AssertionError(count)

        assert [each.version for each in client.learn_each("rls", slowly())] == [1, 2, 3, 4, 5]


def test_slow_rows_are_learned_though_the_line_has_ended(tmp_path: Path) -> None:
    """The service ends what is idle; each row is on the disk before the next one comes."""
    options = (plain(tmp_path), "--request-timeout", "1")
    with Server(tmp_path / "data", *options) as server, Client(server.url) as client:
        versions = []

        def slowly() -> Iterator[tuple[Any, Any]]:
            for x, y in stream(3):
                yield x, y
                time.sleep(3.5)
                head = server.send("POST", "/v2/models/rls/infer", rows(x.tolist()))[2]
                versions.append(head["X-Onepass-Version"])

        results = list(client.learn_each("rls", slowly()))
        assert [(each.version, each.repeated) for each in results] == [
            (i, False) for i in (1, 2, 3)
        ]
        assert versions == ["1", "2", "3"]


def test_long_requests_and_answers_go_through(tmp_path: Path) -> None:
    """Though labels are far longer in the answers than in what was asked, nobody waits for ever."""
    rng = np.random.default_rng(0)

    def blocks() -> Iterator[tuple[Any, Any]]:
        for n in (1700, 750, 750, 60_000, 1, 750):
            y = rng.choice(["a", "b" * 250], size=n, p=[0.99, 0.01])
            yield rng.normal(size=(n, 1)), y

    options = ("rls", "--task", "classification")
    with (
        Server(tmp_path / "data", *options) as server,
        Client(server.url, timeout=20, retry_timeout=20) as client,
    ):
        client.learn("rls", np.ones((2, 1)), ["a", "b" * 250])
        sizes = [len(each.predictions) for each in client.learn_each("rls", blocks())]
    assert sizes == [1700, 750, 750, 60_000, 1, 750]


def test_versions_never_go_back(tmp_path: Path) -> None:
    """No rows are learned as nothing, and tell the version of their turn."""
    empty = (np.empty((0, 3)), np.empty(0))
    given = [part for row in stream(20) for part in (row, empty)]
    with Server(tmp_path / "data", plain(tmp_path)) as server, Client(server.url) as client:
        versions = [each.version for each in client.learn_each("rls", given)]
    assert versions == sorted(versions)


def test_a_missing_service_is_awaited_until_the_retry_timeout() -> None:
    with Client("http://127.0.0.1:9", retry_timeout=0.3) as client, pytest.raises(ServiceError):
        list(client.learn_each("rls", stream(1 << 30)))
