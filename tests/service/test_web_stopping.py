"""What becomes of what is under way, and of what was acknowledged, when the service is stopped."""

import signal
import threading
import time
from pathlib import Path

import pytest
from web_server import Server, rows

import onepass as op

pytestmark = pytest.mark.usefixtures("interruptible")

LEARN = "/v2/models/rls/learn"


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_it_ends_in_order(tmp_path: Path, number: int, code: int) -> None:
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
        time.sleep(0.5)
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


def test_a_pending_body_gets_its_response(tmp_path: Path) -> None:
    with Server(tmp_path / "data", "rls") as server, server.socket() as line:
        body = b'{"inputs":[{"name":"X","shape":[1,1],"datatype":"FP64","data":[1]}]}'
        line.sendall(b"POST /v2/models/rls/infer HTTP/1.1\r\nHost: localhost\r\n"
                     b"Content-Length: %d\r\n\r\n" % len(body))  # fmt: skip
        time.sleep(0.2)
        assert server.process is not None
        server.process.send_signal(signal.SIGTERM)
        time.sleep(0.3)
        line.sendall(body)
        assert line.recv(1000).startswith(b"HTTP/1.1 200")
        assert server.process.wait(timeout=20) == 143


def test_a_second_signal_ends_it_at_once(tmp_path: Path) -> None:
    with Server(tmp_path / "data", "rls") as server, server.socket() as line:
        assert server.send("POST", LEARN, rows([[1.0]], [1.0]))[0] == 200
        line.sendall(b"POST /v2/models/rls/infer HTTP/1.1\r\nHost: localhost\r\n"
                     b"Content-Length: 10\r\n\r\n")  # fmt: skip
        time.sleep(0.2)
        assert server.process is not None
        server.process.send_signal(signal.SIGTERM)
        time.sleep(0.5)
        assert server.process.poll() is None
        began = time.monotonic()
        assert server.stop(signal.SIGTERM) == 143
        assert time.monotonic() - began < 5
    with op.durable(tmp_path / "data" / "rls.db") as durable:
        assert durable.rows_seen == 1


def test_all_goes_on_after_a_restart(tmp_path: Path) -> None:
    with Server(tmp_path / "data", "rls") as server:
        for name in ("rls", "two"):
            server.send("PUT", f"/v2/models/{name}", {"model": "rls"})
            for i in range(30):
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
            assert (status, response["model_version"]) == (200, "30")
            server.send("POST", "/v2/models/rls/learn", rows([[1]], [1]), {"Idempotency-Key": "k"})
            before = server.send("GET", "/state")[1]["models"]
