"""What operators rely on: learners apart, names in the log, wrong rows, ordinary clients."""

import json
import os
import signal
import socket
import struct
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from waiting import until
from web_server import TOKEN, Server

import onepass as op
from onepass.service import Client

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals and limits")
LEARN, INFER = "/v2/models/rls/learn", "/v2/models/rls/infer"
ADMIN, OTHER = "a" * 32, "b" * 32


def log(server: Server, what: str) -> list[dict[str, Any]]:
    """The lines of the log about something."""
    lines = [line for line in server.log.read_text().splitlines() if line.startswith("{")]
    return [line for line in map(json.loads, lines) if line["what"] == what]


def test_one_locked_file_does_not_stop_the_others(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    for name in ("a", "b"):
        op.durable(folder / f"{name}.db", op.RLSRegressor()).close()
    with op.durable(folder / "b.db") as held:
        with Server(folder) as server:
            first, second = server.send("GET", "/v2/repository/index")[1]
            assert (first["name"], first["state"]) == ("a", "READY")
            assert (second["name"], second["state"]) == ("b", "UNAVAILABLE")
            assert "one process at a time" in second["reason"]
            held.close()
            assert server.send("POST", "/v2/repository/models/b/load")[0] == 200
        with (
            op.durable(folder / "a.db"),
            op.durable(folder / "b.db"),
            pytest.raises(AssertionError, match="one process at a time"),
        ):
            Server(folder).start()


def test_learners_beyond_the_open_files_are_unavailable(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    for i in range(30):
        op.durable(folder / f"m{i}.db", op.RLSRegressor()).close()
    server = Server(folder)
    server.set_limit("NOFILE", 180)
    with server:
        index = server.send("GET", "/v2/repository/index")[1]
        ready = [entry for entry in index if entry["state"] == "READY"]
        assert 15 <= len(ready) < 30
        reason = next(entry["reason"] for entry in index if entry["state"] != "READY")
        assert "180 open files, the limit of this process" in reason
        assert server.send("POST", f"/v2/models/{ready[-1]['name']}/learn",
                           {"x": {"a": 1.0}, "y": 1.0})[0] == 200  # fmt: skip
        status, answer, _ = server.send("PUT", "/v2/models/new", {"model": "rls"})
        assert (status, "Raise the limit" in answer["error"]) == (503, True)


def test_administration_is_logged_with_names_and_ids(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text(f"admin {ADMIN} alice\nlearn {OTHER}\n")
    with Server(tmp_path / "data", "rls", "--tokens", str(tokens)) as server:
        by, other = ({"Authorization": f"Bearer {each}"} for each in (ADMIN, OTHER))
        assert server.send("POST", LEARN, {"x": {"a": 1.0}, "y": 1.0}, other)[0] == 200
        assert server.send("PUT", "/v2/models/zz", {"model": "rls"}, by)[0] == 201
        made = {**by, "X-Request-Id": "who-did-it"}
        assert server.send("POST", "/v2/models/rls/rollback", {"to": 0}, made)[0] == 200
        assert server.send("POST", "/v2/models/rls/rollback", {"to": 99}, by)[0] == 400
        assert server.send("DELETE", "/v2/models/zz", None, by)[0] == 200
        lines = log(server, "administration")
        assert [(line["method"], line["path"], line["who"]) for line in lines] == [
            ("PUT", "/v2/models/zz", "alice"), ("POST", "/v2/models/rls/rollback", "alice"),
            ("POST", "/v2/models/rls/rollback", "alice"), ("DELETE", "/v2/models/zz", "alice"),
        ]  # fmt: skip
        assert lines[1]["request_id"] == "who-did-it"
        assert (lines[2]["level"], "99" in lines[2]["why"]) == ("warning", True)
        assert ADMIN not in server.log.read_text()

        tokens.write_text(f"admin {OTHER} bob\n")
        assert server.process is not None
        os.kill(server.process.pid, signal.SIGHUP)
        until(lambda: server.send("GET", "/v2", None, by)[0] == 401)
        assert server.send("POST", "/v2/models/rls/snapshot", None, other)[0] == 200
        assert log(server, "administration")[-1]["who"] == "bob"
        tokens.write_text("nothing\n")
        os.kill(server.process.pid, signal.SIGHUP)
        until(lambda: bool(log(server, "the tokens could not be read again")))
        assert server.send("GET", "/v2", None, other)[0] == 200


def test_an_upgrade_is_ignored(tmp_path: Path) -> None:
    """Java's client offers HTTP/2 in each request."""
    body = b'{"x": {"km": 2}, "y": 5}'
    head = (
        f"POST {LEARN} HTTP/1.1\r\nHost: localhost\r\nconnection: Upgrade, HTTP2-Settings\r\n"
        "Upgrade: h2c\r\nHTTP2-Settings: AAEAAEAAAAIAAAABAAMAAABkAAQBAAAAAAUAAEAA\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    ).encode()
    with Server(tmp_path / "data", "rls") as server, server.socket() as line:
        for number in range(3):
            line.sendall(head + body)
            answer = b""
            while b"}" not in answer:
                answer += line.recv(4000)
            assert answer.startswith(b"HTTP/1.1 200")
            assert server.send("GET", "/state")[1]["models"][0]["rows_seen"] == number + 1


def test_connections_that_are_reset_leave_no_memory(tmp_path: Path) -> None:
    head = b"GET /v2/health/live HTTP/1.1\r\nHost: localhost\r\nX-Pad: %b\r\n\r\n" % (b"a" * 50_000)

    def reset(server: Server, count: int) -> None:
        for _ in range(count):
            with server.socket() as line:
                line.sendall(head)
                line.recv(1000)
                line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    with Server(tmp_path / "data", "rls") as server:
        assert server.process is not None
        status = Path(f"/proc/{server.process.pid}/statm")
        if not status.exists():
            pytest.skip("no /proc")
        reset(server, 100)
        before = int(status.read_text().split()[1]) * 4096
        reset(server, 600)
        assert int(status.read_text().split()[1]) * 4096 - before < 600 * 10_000


def test_rows_far_from_their_predictions_are_rejected(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 2)) * [1.0, 100.0]
    y = X @ [2.0, 0.3] + 0.1 * rng.normal(size=400)

    def row(i: int, **changed: float) -> dict[str, Any]:
        return {"x": {"a": X[i, 0], "b": X[i, 1], **changed}, "y": y[i]}

    options = ("--window", "100", "--reject-beyond", "20")
    with Server(tmp_path / "data", "rls", *options) as server:
        assert server.send("POST", LEARN, [row(i) for i in range(200)])[0] == 200
        before = server.send("POST", INFER, {"x": row(399)["x"]})[1]
        for wrong in (row(200, b=1e9), {**row(201), "y": 1e6}, {**row(202), "y": -1e12}):
            status, answer, _ = server.send("POST", LEARN, [row(203), wrong])
            assert status == 409
            assert "within 20 times the usual error" in answer["error"]
            assert "in row 1" in answer["error"]
        assert server.send("POST", INFER, {"x": row(399)["x"]})[1] == before
        assert server.send("POST", LEARN, [row(i) for i in range(200, 400)])[0] == 200
        metrics = server.send("GET", "/metrics")[1].decode()
        assert 'onepass_rows_refused_total{model="rls"} 6.0' in metrics
        assert 'onepass_commits_total{model="rls"} 2.0' in metrics
        assert "process_open_fds" in metrics
        assert len(log(server, "rows rejected")) == 3
    with Server(tmp_path / "data", "sgd", *options, "--task", "classification") as server:
        wet = [{"x": {"a": float(i % 3)}, "y": "wet" if i % 2 else "dry"} for i in range(300)]
        assert server.send("POST", "/v2/models/sgd/learn", wet)[0] == 200


def test_one_outlier_does_not_hide_the_next(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    with Server(tmp_path / "data", "rls", "--window", "100") as server:
        for number in range(1, 4):
            x = rng.normal(size=300)
            rows = [{"x": {"a": a}, "y": 2 * a + 0.1 * rng.normal()} for a in x]
            assert server.send("POST", LEARN, rows)[0] == 200
            assert server.send("POST", LEARN, {"x": {"a": 1.0}, "y": 10.0**number * 1e3})[0] == 200
            metrics = server.send("GET", "/metrics")[1].decode()
            count = float(metrics.split('onepass_outliers_total{model="rls"} ')[1].split()[0])
            assert count >= number


def test_several_models_are_started_at_once(tmp_path: Path) -> None:
    with Server(tmp_path / "data", "rls,sgd") as server:
        assert [each["name"] for each in server.send("GET", "/v2/repository/index")[1]] == [
            "rls", "sgd"
        ]  # fmt: skip
    with pytest.raises(AssertionError, match="--name requires one model"):
        Server(tmp_path / "data", "rls,sgd", "--name", "m").start()


def test_a_model_file_of_each_version(tmp_path: Path) -> None:
    with Server(tmp_path / "data", "rls") as server:
        for number in range(1, 4):
            answer = server.send("POST", LEARN, {"x": {"a": float(number)}, "y": number**2})
            assert answer[0] == 200
        with Client(server.url) as client:
            found = [client.model("rls", version=version) for version in range(4)]
            newest = client.model("rls")
        assert found[0].predict_one({"a": 3.0}) == 0.0
        assert newest.predict_one({"a": 3.0}) == found[3].predict_one({"a": 3.0})
        status, _, headers = server.send("GET", "/v2/models/rls/versions/2/file")
        assert (status, headers["X-Onepass-Version"]) == (200, "2")
        assert headers["Content-Disposition"] == 'attachment; filename="rls-2.onepass"'
        restored = server.send("POST", "/v2/models/rls/rollback", {"to": 2})
        assert restored[0] == 200
        with Client(server.url) as client:
            rolled = client.model("rls")
        assert rolled.predict_one({"a": 3.0}) == found[2].predict_one({"a": 3.0})
        for version in ("5", "x", "9" * 30):
            status, answer, _ = server.send("GET", f"/v2/models/rls/versions/{version}/file")
            assert (status, "version" in answer["error"]) == (400, True)


def test_web_pages_of_given_origins_may_send_requests(tmp_path: Path) -> None:
    page, other = ({"Origin": f"https://{name}.example"} for name in ("app", "evil"))
    asked = {"Access-Control-Request-Method": "POST",
             "Access-Control-Request-Headers": "authorization,content-type"}  # fmt: skip
    row = {"x": {"a": 1.0}, "y": 1.0}
    for token in (None, TOKEN):
        folder = tmp_path / f"data{token}"
        with Server(folder, "rls", "--allow-origin", page["Origin"], token=token) as server:
            status, _, headers = server.send("OPTIONS", LEARN, None, {**page, **asked})
            assert (status, headers["Access-Control-Allow-Origin"]) == (200, page["Origin"])
            assert server.send("OPTIONS", LEARN, None, {**other, **asked})[0] == 400
            status, _, headers = server.send("POST", LEARN, row, page)
            assert (status, headers["Access-Control-Allow-Origin"]) == (200, page["Origin"])
            status, _, headers = server.send("POST", LEARN, row, other)
            assert "Access-Control-Allow-Origin" not in headers
            assert status == (200 if token else 403)
    with pytest.raises(AssertionError, match="without a path"):
        Server(tmp_path / "data", "rls", "--allow-origin", "https://a.example/b").start()


def test_each_request_is_logged_at_the_level_debug(tmp_path: Path) -> None:
    with Server(tmp_path / "data", "rls", "--log", "debug") as server:
        sent = {"X-Request-Id": "mine"}
        assert server.send("POST", LEARN, {"x": {"a": 1.0}, "y": 1.0}, sent)[0] == 200
        assert server.send("POST", LEARN, {"x": {"a": 1.0}})[0] == 400
        lines = [line for line in log(server, "request") if line["path"] == LEARN]
        assert [(line["method"], line["status"]) for line in lines] == [
            ("POST", 200),
            ("POST", 400),
        ]
        assert (lines[0]["request_id"], lines[0]["client"]) == ("mine", "127.0.0.1")
        assert 0.0 < lines[0]["seconds"] < 30.0
    with Server(tmp_path / "data") as server:
        assert not log(server, "request")


def test_the_page_of_the_api_names_each_endpoint_and_type(tmp_path: Path) -> None:
    with Server(tmp_path / "data") as server:
        status, body, headers = server.send("GET", "/docs")
        assert (status, headers["Content-Type"]) == (200, "text/html; charset=utf-8")
        text, description = body.decode(), server.send("GET", "/openapi.json")[1]
        assert all(path in text for path in description["paths"])
        assert all(f'id="{name}"' in text for name in description["components"]["schemas"])


def test_a_restored_learner_keeps_the_usual_error(tmp_path: Path) -> None:
    folder, rng = tmp_path / "data", np.random.default_rng(0)
    options = ("rls", "--window", "50", "--reject-beyond", "20")

    def rows(n: int) -> list[dict[str, Any]]:
        return [{"x": {"a": a}, "y": 2 * a + 0.1 * rng.normal()} for a in rng.normal(size=n)]

    wrong = {"x": {"a": 1.0}, "y": 1e9}
    with Server(folder, *options) as server:
        assert server.send("POST", LEARN, rows(20))[0] == 200
        assert server.stop() == 128 + signal.SIGTERM
    copy = (folder / "rls.db").read_bytes()
    with Server(folder, *options) as server:
        assert server.send("POST", LEARN, rows(200))[0] == 200
        assert server.send("POST", LEARN, wrong)[0] == 409
        status, answer, _ = server.send("POST", LEARN, {"x": {"a": 1.0}, "y": None})
        assert (status, "usual" in answer["error"]) == (400, False)
        assert server.stop() == 128 + signal.SIGTERM
    for path in folder.glob("rls.db*"):
        path.unlink()
    (folder / "rls.db").write_bytes(copy)
    with Server(folder, *options) as server:
        assert server.send("GET", "/state")[1]["models"][0]["rows_seen"] == 20
        assert server.send("POST", LEARN, wrong)[0] == 409
        assert server.send("POST", LEARN, rows(20))[0] == 200
        assert server.stop() == 128 + signal.SIGTERM
    with Server(folder, *options) as server:  # again within the first rows
        assert server.send("POST", LEARN, wrong)[0] == 409
