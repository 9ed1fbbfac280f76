"""Shutdown and restart of the service: pending requests and acknowledged rows."""

import signal
import socket
import threading
from pathlib import Path

import pytest
from waiting import until
from web_server import Server, rows

import onepass as op

pytestmark = pytest.mark.usefixtures("interruptible")

LEARN = "/v2/models/rls/learn"


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_acknowledged_rows_are_stored_on_shutdown(tmp_path: Path, number: int, code: int) -> None:
    with Server(tmp_path / "data", "rls") as server:
        stop = threading.Event()
        learned: list[int] = []

        def learn() -> None:
            while not stop.is_set():
                try:
                    status, response, _ = server.send(
                        "POST", LEARN, rows([[1.0], [2.0]], [1.0, 2.0])
                    )
                except OSError:
                    return
                assert status in {200, 503}
                if status == 200:
                    learned.append(int(response["model_version"]))

        threads = [threading.Thread(target=learn) for _ in range(8)]
        for thread in threads:
            thread.start()
        until(lambda: len(learned) > 20)
        assert server.stop(number) == code
        stop.set()
        for thread in threads:
            thread.join()
        assert '"stopped"' in server.log.read_text()
        assert "Traceback" not in server.log.read_text()
    with op.durable(tmp_path / "data" / "rls.db") as durable:
        assert durable.rows_seen == 2 * len(learned)
        assert durable.version == max(learned)
        assert durable.versions[-1].version == durable.version


def begin_request(line: socket.socket, length: int) -> None:
    """Send the headers of a request, and wait until the service awaits its body."""
    line.sendall(b"POST /v2/models/rls/infer HTTP/1.1\r\nHost: localhost\r\n"
                 b"Expect: 100-continue\r\nContent-Length: %d\r\n\r\n" % length)  # fmt: skip
    assert line.recv(1000) == b"HTTP/1.1 100 Continue\r\n\r\n"


def listens(server: Server) -> bool:
    """Whether the server accepts connections."""
    try:
        server.socket().close()
    except OSError:
        return False
    return True


def test_pending_request_is_completed_on_shutdown(tmp_path: Path) -> None:
    with Server(tmp_path / "data", "rls") as server, server.socket() as line:
        body = b'{"inputs":[{"name":"X","shape":[1,1],"datatype":"FP64","data":[1]}]}'
        begin_request(line, len(body))
        assert server.process is not None
        server.process.send_signal(signal.SIGTERM)
        until(lambda: not listens(server))
        line.sendall(body)
        assert line.recv(1000).startswith(b"HTTP/1.1 200")
        assert server.process.wait(timeout=20) == 143


def test_second_signal_ends_the_server_immediately(tmp_path: Path) -> None:
    with Server(tmp_path / "data", "rls") as server, server.socket() as line:
        assert server.send("POST", LEARN, rows([[1.0]], [1.0]))[0] == 200
        begin_request(line, 10)
        assert server.process is not None
        server.process.send_signal(signal.SIGTERM)
        until(lambda: not listens(server))
        assert server.process.poll() is None
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(timeout=10) == 143  # pending requests have 30 s otherwise
    with op.durable(tmp_path / "data" / "rls.db") as durable:
        assert durable.rows_seen == 1


def test_state_after_restart_equals_state_before(tmp_path: Path) -> None:
    with Server(tmp_path / "data", "rls") as server:
        for name in ("rls", "two"):
            server.send("PUT", f"/v2/models/{name}", {"model": "rls"})
            for i in range(10):
                server.send("POST", f"/v2/models/{name}/learn", rows([[i]], [i + 0.5]))
        server.send("PUT", "/v2/models/gone", {"model": "rls"})
        server.send("DELETE", "/v2/models/gone")
        before = server.send("GET", "/state")[1]["models"]
        ends = [server.stop]
        for _ in range(2):
            ends.pop()() if ends else server.kill()
            server.options = ()
            server.start()
            after = server.send("GET", "/state")[1]["models"]
            assert [each["name"] for each in after] == ["rls", "two"]
            for one, other in zip(before, after, strict=True):
                for each in (one, other):  # replayed rows are counted at another time
                    each["prequential_error"]["curve"] = [
                        point[:3] for point in each["prequential_error"]["curve"]
                    ]
                for field in ("version", "rows_seen", "prequential_error", "rows_refused", "class"):
                    assert one[field] == other[field], field
            status, response, _ = server.send("POST", "/v2/models/two/infer", rows([[3]]))
            assert (status, response["model_version"]) == (200, "10")
            server.send("POST", "/v2/models/rls/learn", rows([[1]], [1]), {"Idempotency-Key": "k"})
            before = server.send("GET", "/state")[1]["models"]
