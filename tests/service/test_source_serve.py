"""``onepass serve --source``: state, metrics, restarts and retirement."""

import json
import signal
from pathlib import Path
from typing import Any

import pytest
from redis_server import RedisServer
from test_source_redis import entries, send
from waiting import until
from web_server import Server

import onepass as op
from onepass.cli import main

STOPPED = 128 + signal.SIGTERM


@pytest.fixture
def model(tmp_path: Path) -> str:
    path = tmp_path / "flow.onepass"
    op.save(op.Pipeline(op.features.Encode(), op.RLSRegressor(ridge=1e-6)), path)
    return str(path)


def models(server: Server) -> dict[str, Any]:
    """Models of ``/state``, by name."""
    status, state, _ = server.send("GET", "/state")
    assert status == 200
    return {each["name"]: each for each in state["models"]}


def gauge(server: Server, name: str) -> list[str]:
    """The values of a metric."""
    lines = server.send("GET", "/metrics")[1].decode().splitlines()
    return [line.rpartition(" ")[2] for line in lines if line.startswith(f"onepass_{name}{{")]


def test_state_and_metrics_of_a_source(tmp_path: Path, model: str) -> None:
    data = tmp_path / "data"
    redis = RedisServer(tmp_path / "redis", "--requirepass", "correct-horse")
    url = redis.url(before=":correct-horse@")
    with redis, Server(data, model, "--source", url) as server:
        client = redis.client(password="correct-horse")  # noqa: S106
        send(client, *entries(50), {"a": "text", "b": 1, "y": 1}, {"a": 1})
        until(lambda: models(server)["flow"]["rows_refused"] == 2)
        until(lambda: models(server)["flow"]["error"] is None)
        shown = models(server)["flow"]
        assert (shown["rows_seen"], shown["ready"]) == (50, True)
        (position,) = shown["positions"].values()
        assert position.endswith("/52")
        assert gauge(server, "source_ready") == ["1.0"]
        assert gauge(server, "source_lag") == ["0.0"]
        redis.kill()
        until(lambda: "refused" in str(models(server)["flow"]["error"]))
        assert models(server)["flow"]["ready"]
        assert gauge(server, "source_ready") == ["0.0"]
        assert server.send("GET", "/v2/health/ready")[0] == 200
        redis.start()
        send(client, *entries(5, 1))
        until(lambda: models(server)["flow"]["rows_seen"] == 55)
        until(lambda: models(server)["flow"]["error"] is None)
        pages = [str(server.send("GET", path)[1]) for path in ("/state", "/metrics", "/v2")]
        assert server.stop() == STOPPED
        pages += [text := server.log.read_text()]
        lines = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
        lost = [each for each in lines if each["what"] == "the source cannot be read"]
        assert {each["level"] for each in lost} == {"warning"}
        assert any("refused" in each["why"] for each in lost)
        assert text.count('"the source is read"') >= 2
        send(client, *entries(5, 2))
        server.start()
        until(lambda: models(server)["flow"]["rows_seen"] == 60)
        server.kill()
        send(client, *entries(5, 3))
        server.start()
        until(lambda: models(server)["flow"]["rows_seen"] == 65)
        assert all("horse" not in each for each in (*pages, server.log.read_text()))


def test_retired_model_stops_its_source(tmp_path: Path, model: str) -> None:
    data = tmp_path / "data"
    with RedisServer(tmp_path / "redis") as redis:
        with Server(data, model, "--name", "one") as server:
            assert server.stop() == STOPPED
        words = ("--name", "two", "--source", f"one={redis.url()}", "--source",
                 f"two={redis.url()}")  # fmt: skip
        with Server(data, model, *words) as server:
            send(redis.client(), *entries(10))
            until(lambda: [m["rows_seen"] for m in models(server).values()] == [10, 10])
            assert server.send("DELETE", "/v2/models/one")[0] == 200
            send(redis.client(), *entries(10, 1))
            until(lambda: models(server)["two"]["rows_seen"] == 20)
            assert list(models(server)) == ["two"]
            until(lambda: len(redis.client().client_list()) == 2)  # one that asks, and this
            assert server.stop() == STOPPED
        with op.durable(next(data.glob("one.retired*[0-9]"))) as retired:
            assert retired.rows_seen == 10


def test_sources_of_the_environment(
    tmp_path: Path, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with RedisServer(tmp_path / "redis") as redis:
        addresses = f"{redis.url()} {redis.url(stream='more')}"
        monkeypatch.setenv("ONEPASS_SOURCE", addresses)
        with Server(tmp_path / "data", model) as server:
            send(redis.client(), *entries(3))
            redis.client().xadd("more", entries(1)[0])
            until(lambda: models(server)["flow"]["rows_seen"] == 4)
            assert len(models(server)["flow"]["positions"]) == 2


@pytest.mark.parametrize(
    ("sources", "why"),
    [
        (("other=redis://h/0?stream=s&target=y",), "got other. Name one of the learners: flow"),
        (("redis://h/0?stream=s",), "got no 'target'"),
        (("http://h/",), "must begin with"),
        (("redis://h/0?stream=s&target=y&time=id",), "must not name"),
        (
            ("redis://h/0?stream=s&target=y", "flow=redis://h/0?stream=s&target=y"),
            "sources must be different",
        ),
    ],
)
def test_invalid_sources_are_refused(
    tmp_path: Path,
    model: str,
    sources: tuple[str, ...],
    why: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    words = [word for each in sources for word in ("--source", each)]
    assert main(["serve", model, "--data", str(tmp_path / "data"), "--port", "0", *words]) == 2
    assert why in capsys.readouterr().err
