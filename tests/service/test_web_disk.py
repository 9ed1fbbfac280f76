"""A disk that stalls, is full or fails: status codes, messages, and rows learned once."""

import json
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from durable_files import query, state_bits
from faulty_disk_server import FaultyDiskServer
from web_server import Server, output, rows, send_request

import onepass as op
from onepass.errors import CheckpointError, CorruptStoreError, StoreError
from onepass.service.client import Client
from onepass.service.http.responses import ErrorResponses
from onepass.service.http.status import pathless
from onepass.service.requests import decode_rows

INFER, LEARN, STATE = "/v2/models/rls/infer", "/v2/models/rls/learn", "/state"


def learn(server: Server, i: int) -> tuple[int, Any, Any]:
    return server.send("POST", LEARN, rows([[float(i)]], [2.0 * i]), {"Idempotency-Key": f"k{i}"})


def at_once(works: list[Any]) -> list[Any]:
    """Results of functions that are called concurrently."""
    found: list[Any] = [None] * len(works)

    def work(i: int) -> None:
        found[i] = works[i]()

    threads = [threading.Thread(target=work, args=(i,)) for i in range(len(works))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def test_predictions_continue_while_the_disk_stalls(tmp_path: Path) -> None:
    options = ("rls", "--max-queued", "10", "--commit-timeout", "0.5")
    with FaultyDiskServer(tmp_path / "data", *options) as server:
        assert learn(server, 0)[0] == 200
        before = server.send("POST", INFER, rows([[5.0]]))[1]
        server.stalled.touch()
        works = [lambda i=i: learn(server, i) for i in range(1, 21)]
        works += [lambda: server.send("POST", INFER, rows([[1.0]], await_label=True))] * 20
        works += [
            lambda: server.send("GET", STATE),
            lambda: server.send("GET", "/metrics"),
        ] * 3
        works += [lambda: server.send("POST", INFER, rows([[5.0]]))] * 5
        found = at_once(works)
        learned, waiting = found[:20], found[20:40]
        assert {each[0] for each in learned + waiting} == {429, 503}
        for status, response, headers in learned:
            assert headers["retry-after"] == "1"
            assert ("on the disk" if status == 503 else "may be queued") in response["error"]
        assert {each[0] for each in found[40:]} == {200}
        assert all(each[1] == before for each in found[-5:])
        server.stalled.unlink()
        for i in range(1, 21):
            while learn(server, i)[0] != 200:
                time.sleep(0.02)
        version = int(server.send("GET", "/v2/models/rls")[1]["versions"][0])
        assert server.send("GET", STATE)[1]["models"][0]["rows_seen"] == 21
        assert "Traceback" not in server.log.read_text()
    with op.durable(tmp_path / "data" / "rls.db") as durable:
        assert (durable.rows_seen, durable.version) == (21, version)
    bodies = query(tmp_path / "data" / "rls.db", "SELECT body FROM log ORDER BY sequence")
    learned = [decode_rows(body, "here").X[:, 0] for (body,) in bodies]
    assert sorted(np.concatenate(learned).tolist()) == [float(i) for i in range(21)]


def test_client_retries_are_learned_once_after_a_stall(tmp_path: Path) -> None:
    with (
        FaultyDiskServer(tmp_path / "data", "rls", "--commit-timeout", "0.3") as server,
        Client(server.url, retry_timeout=60) as client,
    ):
        client.learn("rls", [[1.0]], [1.0])
        server.stalled.touch()
        timer = threading.Timer(1.0, server.stalled.unlink)
        timer.start()
        result = client.learn("rls", [[2.0]], [2.0])
        timer.join()
        assert (result.version, result.repeated) == (2, True)
        assert server.send("GET", STATE)[1]["models"][0]["rows_seen"] == 2


def test_full_disk_is_507_until_space_is_free(tmp_path: Path) -> None:
    with FaultyDiskServer(tmp_path / "data", "rls") as server:
        assert learn(server, 0)[0] == 200
        server.full.touch()
        wide = {"Idempotency-Key": "wide"}
        body = rows([[float(i)] for i in range(20_000)], [2.0 * i for i in range(20_000)])
        for _ in range(3):
            status, response, _ = server.send("POST", LEARN, body, wide)
            assert (status, "rls.db" in response["error"]) == (507, True)
            assert str(tmp_path) not in response["error"]
        assert server.send("POST", INFER, rows([[1.0]]))[0] == 200
        assert server.send("POST", INFER, rows([[1.0]] * 16_000, await_label=True))[0] == 507
        assert server.send("GET", "/v2/health/live")[0] == 200
        status, response, _ = server.send("GET", "/v2/health/ready")
        assert (status, str(tmp_path) in response["error"]) == (503, False)
        index = server.send("GET", "/v2/repository/index")[1][0]
        model = server.send("GET", STATE)[1]["models"][0]
        assert (index["state"], model["ready"], model["rows_seen"]) == ("UNAVAILABLE", False, 1)
        assert "rls.db" in model["error"]
        assert not any(str(tmp_path) in before for before in (index["reason"], model["error"]))
        assert str(tmp_path / "data" / "rls.db") in server.log.read_text()
        server.full.unlink()
        assert server.send("POST", LEARN, body, wide)[0] == 200
        assert server.send("POST", LEARN, body, wide)[2]["idempotent-replayed"] == "true"
        assert server.send("GET", "/v2/health/ready")[0] == 200
        assert server.send("GET", STATE)[1]["models"][0]["rows_seen"] == 20_001
        assert "Traceback" not in server.log.read_text()


def _own_mounts() -> bool:
    words = ["unshare", "-rm", "mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", "/mnt"]
    if shutil.which("unshare") is None:
        return False
    return subprocess.run(words, capture_output=True, check=False).returncode == 0  # noqa: S603


@pytest.mark.skipif(not _own_mounts(), reason="no file system can be mounted here")
def test_full_file_system_is_507(tmp_path: Path) -> None:
    """A real file system, of two megabytes."""
    folder = tmp_path / "small"
    folder.mkdir()
    script = 'mount -t tmpfs -o size=2m tmpfs "$1"; shift; exec "$@"'
    server = Server(folder / "data", "rls")
    server.before = ["unshare", "-rm", "sh", "-c", script, "sh", str(folder)]
    server.log = tmp_path / "log"
    with server:
        statuses = []
        for i in range(8):
            body = rows([[float(k)] for k in range(20_000)], [1.0] * 20_000)
            status, response, _ = server.send("POST", LEARN, body, {"Idempotency-Key": str(i)})
            statuses.append(status)
            assert status == 200 or str(folder) not in response["error"]
        assert statuses[0] == 200
        assert statuses[-1] == 507
        assert set(statuses) == {200, 507}
        learned = server.send("GET", STATE)[1]["models"][0]["rows_seen"]
        assert learned == 20_000 * statuses.count(200)
        assert server.send("POST", INFER, rows([[1.0]]))[0] == 200
        assert "Traceback" not in server.log.read_text()


@pytest.mark.skipif(sys.platform == "win32", reason="no such limits")
def test_error_messages_of_a_failing_disk_contain_no_paths(tmp_path: Path) -> None:
    folder = tmp_path / "with a blank"
    folder.mkdir()
    server = Server(folder / "data", "rls")
    server.set_limit("FSIZE", 400_000)
    with server:
        body = rows([[float(k)] for k in range(5_000)], [1.0] * 5_000)
        found = [server.send("POST", LEARN, body) for _ in range(12)]
        assert found[0][0] == 200
        assert {each[0] for each in found} == {200, 503}
        status, response, _ = found[-1]
        assert (status, "rls.db could not be written" in response["error"]) == (503, True)
        assert not any(
            word in response["error"] for word in ("with a blank", str(tmp_path), "/data")
        )
        assert server.send("POST", INFER, rows([[1.0]]))[0] == 200
        learned = server.send("GET", STATE)[1]["models"][0]["rows_seen"]
        assert learned == 5_000 * sum(each[0] == 200 for each in found)
    with op.durable(folder / "data" / "rls.db") as durable:
        assert learned <= durable.rows_seen <= learned + 5_000
        assert state_bits(durable)


@pytest.mark.parametrize("kind", [StoreError, CorruptStoreError, CheckpointError])
@pytest.mark.parametrize("folder", ["/srv/my data", "served", "."])
def test_error_messages_contain_file_names_without_folders(kind: Any, folder: str) -> None:
    respond = ErrorResponses(Path(folder))
    for path in (f"{folder}/flow.db", f"{folder}/flow.db-wal", "/etc/onepass/flow.db"):
        error = kind(f"{path} could not be read: '{path}', ({path}).", "op.durable")
        message = json.loads(respond(error, "id", "GET /v2").body)["error"]
        ending = path.rpartition("/")[2]
        expected = f"GET /v2: {ending} could not be read: '{ending}', ({ending})."
        assert message == (expected if path[:2] != "./" else message)
        assert "/etc" not in message
        assert "/srv" not in message


def test_pathless_keeps_text_that_is_no_path() -> None:
    for text in ("redis://localhost:6379/0?stream=a", "GET /v2", "3/4 rows", "a / b"):
        assert pathless(text, Path("/srv")) == text


def test_unexpected_errors_have_a_request_id(caplog: pytest.LogCaptureFixture) -> None:
    respond = ErrorResponses(Path("/srv"))
    for error in (ValueError("secret"), TypeError("secret"), KeyError("secret"), OSError("secret")):
        found = respond(error, "0123456789abcdef", "GET /v2")
        message = json.loads(found.body)["error"]
        assert (found.status_code, "secret" in message) == (500, False)
        assert "0123456789abcdef" in message
        assert caplog.records[-1].fields == {"request": "0123456789abcdef"}  # type: ignore[attr-defined]


def test_error_messages_of_an_invalid_upload_contain_no_paths(tmp_path: Path) -> None:
    with Server(tmp_path / "data", "rls") as server:
        kind = {"Content-Type": "application/x-onepass"}
        for body in (b"", b"no model", b"\x00" * 64):
            status, response, _ = send_request(server.port, "PUT", "/v2/models/new", body, kind)
            assert (status, "/" in response["error"]) == (400, False), response
        assert output(server.send("POST", INFER, rows([[1.0]]))[1]) == [0.0]
