"""Learners whose files cannot be opened."""

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from web_server import Server, rows

from onepass.service.schema import FORMAT
from sampling import examples

LEARN, INFER = "/v2/models/{}/learn", "/v2/models/{}/infer"
LOAD = "/v2/repository/models/{}/load"
INDEX, READY = "/v2/repository/index", "/v2/health/ready"


def statement(path: Path, sql: str) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute(sql)


def other_database(path: Path) -> None:
    path.unlink()
    statement(path, "CREATE TABLE log (sequence INTEGER PRIMARY KEY)")


def directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def dangling_link(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.with_name("nowhere"))


def pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


DAMAGE: dict[str, Callable[[Path, int], Any]] = {
    "empty": lambda path, _: path.write_bytes(b""),
    "truncated": lambda path, n: os.truncate(path, 1 + n % (path.stat().st_size // 2)),
    "zeros": lambda path, n: path.write_bytes(b"\0" * (1 + n)),
    "text": lambda path, n: path.write_text("a,b\n1,2\n" * (1 + n)),
    "random bytes": lambda path, n: path.write_bytes(bytes((n * i) % 251 for i in range(9999))),
    "another database": lambda path, _: other_database(path),
    "a newer format": lambda path, n: statement(path, f"PRAGMA user_version = {FORMAT + 1 + n}"),
    "another application": lambda path, n: statement(path, f"PRAGMA application_id = {n}"),
    "another table": lambda path, _: statement(path, "CREATE TABLE notes (a)"),
    "no snapshot": lambda path, _: statement(path, "DELETE FROM snapshots"),
    "another snapshot": lambda path, _: statement(path, "UPDATE snapshots SET body = x'00'"),
    "a directory": lambda path, _: directory(path),
    "a dangling link": lambda path, _: dangling_link(path),
    "a pipe": lambda path, _: pipe(path),
}


def remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        path.rmdir()
    else:
        path.unlink()


def contents(path: Path) -> Any:
    return path.read_bytes() if path.is_file() else path.stat(follow_symlinks=False).st_mode


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, bytes]]:
    """A service with a damaged file of each kind, and the bytes of a valid file."""
    folder = tmp_path_factory.mktemp("unavailable")
    with Server(folder / "data", "rls", "--name", "good") as server:
        body = rows([[1.0], [2.0]], [2.0, 4.0])
        assert server.send("POST", LEARN.format("good"), body)[0] == 200
        server.stop()
        data = (folder / "data" / "good.db").read_bytes()
        for kind, damage in DAMAGE.items():
            path = folder / "data" / f"{kind.replace(' ', '-')}.db"
            path.write_bytes(data)
            damage(path, 7)
        server.start()
        yield server, data


def check_unavailable(server: Server, name: str) -> None:
    """All endpoints report the reason without the path, and the file is unchanged."""
    index = {each["name"]: each for each in server.send("GET", INDEX)[1]}
    models = {each["name"]: each for each in server.send("GET", "/state")[1]["models"]}
    metrics = server.send("GET", "/metrics")[1].decode()
    assert index[name]["state"] == "UNAVAILABLE"
    assert models[name]["error"] == index[name]["reason"] != ""
    assert f'onepass_ready{{model="{name}"}} 0.0' in metrics
    assert 'onepass_ready{model="good"} 1.0' in metrics
    left = contents(server.folder / f"{name}.db")
    for at, body in ((INFER, rows([[3.0]])), (LEARN, rows([[3.0]], [6.0])), (LOAD, None)):
        status, response, _ = server.send("POST", at.format(name), body)
        assert (status, index[name]["reason"] in response["error"]) == (503, True)
        assert str(server.folder) not in response["error"]
        assert server.send("POST", at.format("good"), body)[0] == 200
    assert contents(server.folder / f"{name}.db") == left
    assert index["good"]["state"] == "READY"
    assert server.send("GET", READY)[0] == 200


@pytest.mark.parametrize("kind", DAMAGE)
def test_unavailable_file_does_not_stop_other_models(
    started: tuple[Server, bytes], kind: str
) -> None:
    check_unavailable(started[0], kind.replace(" ", "-"))


@settings(max_examples=examples(14, 40), print_blob=True)
@given(kind=st.sampled_from(list(DAMAGE)), n=st.integers(0, 40_000))
def test_repaired_file_is_loaded(started: tuple[Server, bytes], kind: str, n: int) -> None:
    server, data = started
    path = server.folder / "bad.db"
    try:
        path.write_bytes(data)
        DAMAGE[kind](path, n)
        assert server.send("POST", LOAD.format("bad"))[0] == 503
        check_unavailable(server, "bad")
        remove(path)
        path.write_bytes(data)
        assert server.send("POST", LOAD.format("bad"))[:2] == (
            200,
            {"name": "bad", "version": 1},
        )
        assert server.send("POST", LEARN.format("bad"), rows([[3.0]], [6.0]))[0] == 200
        assert server.send("GET", "/v2/models/bad/ready")[0] == 200
    finally:
        if (path.exists() or path.is_symlink()) and server.send("DELETE", "/v2/models/bad")[
            0
        ] != 200:
            remove(path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every file")
def test_file_without_permission_is_unavailable(started: tuple[Server, bytes]) -> None:
    server, data = started
    path = server.folder / "secret.db"
    path.write_bytes(data)
    path.chmod(0)
    assert server.send("POST", LOAD.format("secret"))[0] == 503
    check_unavailable(server, "secret")
    path.chmod(0o600)
    assert server.send("POST", LOAD.format("secret"))[0] == 200


def test_source_of_an_unavailable_model_starts_once_it_is_loaded(tmp_path: Path) -> None:
    """The consumer waits until its learner is loaded; ``/invocations`` has no default model."""
    source = "redis://127.0.0.1:1/0?stream=s&target=y"
    options = ("--source", f"rls={source}") if _redis() else ()
    with Server(tmp_path / "data", "rls") as server:
        assert server.send("PUT", "/v2/models/other", {"model": "rls"})[0] == 201
        server.stop()
        path = tmp_path / "data" / "rls.db"
        data = path.read_bytes()
        path.write_text("no database")
        server.options = (*server.options, *options)
        server.start()
        assert "not opened, see the log: rls" in server.log.read_text()
        assert server.send("POST", "/invocations", {"inputs": [[1.0]]})[0] == 400
        path.write_bytes(data)
        assert server.send("POST", LOAD.format("rls"))[0] == 200
        models = {each["name"]: each for each in server.send("GET", "/state")[1]["models"]}
        assert len(models["rls"]["positions"]) == len(options) // 2
        assert server.stop() == 143


def test_readiness_fails_if_no_model_can_learn(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.db").write_text("text")
    with Server(tmp_path / "data") as server:
        assert server.send("GET", READY)[0] == 503
        assert server.send("DELETE", "/v2/models/a")[:2] == (
            200,
            {"name": "a", "file": "a.retired-1"},
        )
        assert (tmp_path / "data" / "a.retired-1").read_text() == "text"
        assert server.send("GET", READY)[0] == 200  # there is none yet
        assert server.send("PUT", "/v2/models/a", {"model": "rls"})[0] == 201
        assert server.send("GET", READY)[0] == 200
        assert server.send("POST", LOAD.format("none"))[0] == 404
        assert server.send("POST", LOAD.format("a"))[:2] == (
            200,
            {"name": "a", "version": 0},
        )


def test_failed_model_predicts_and_is_loaded_again(tmp_path: Path) -> None:
    """Until then it predicts with the last acknowledged state."""
    path = tmp_path / "data" / "rls.db"
    with Server(tmp_path / "data", "rls") as server:
        body = rows([[1.0], [2.0]], [2.0, 4.0])
        assert server.send("POST", LEARN.format("rls"), body)[0] == 200
        before = server.send("POST", INFER.format("rls"), rows([[3.0]]))[1]
        path.rename(tmp_path / "elsewhere")
        assert server.send("POST", LEARN.format("rls"), body)[0] == 503
        for _ in range(2):
            assert server.send("POST", LOAD.format("rls"))[0] == 503
            assert server.send("GET", INDEX)[1][0]["state"] == "UNAVAILABLE"
            assert server.send("POST", INFER.format("rls"), rows([[3.0]]))[1] == before
            assert server.send("POST", LEARN.format("rls"), body)[0] == 503
        (tmp_path / "elsewhere").rename(path)
        assert server.send("POST", LOAD.format("rls"))[:2] == (
            200,
            {"name": "rls", "version": 1},
        )
        assert server.send("POST", INFER.format("rls"), rows([[3.0]]))[1] == before
        assert server.send("POST", LEARN.format("rls"), body)[1]["model_version"] == "2"
        assert server.send("GET", INDEX)[1][0]["state"] == "READY"


def _redis() -> bool:
    try:
        import redis  # noqa: F401
    except ImportError:
        return False
    return True
