"""``onepass serve``: invalid arguments, tokens, ports and restarts."""

import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from web_server import TOKEN, Server, rows

import onepass as op
from onepass.cli.app import main
from onepass.models import pipelines

Serve = Callable[..., tuple[int, str]]


@pytest.fixture
def serve(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Serve:
    """The exit code and the error output of a command that fails before it listens."""

    def done(*words: str, **environment: str) -> tuple[int, str]:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        code = main(["serve", *words])
        return code, capsys.readouterr().err

    return done


def test_other_than_loopback_addresses_require_tokens(tmp_path: Path, serve: Serve) -> None:
    data = ("--data", str(tmp_path / "data"), "--port", "0")
    code, message = serve("rls", *data, "--host", "0.0.0.0", ONEPASS_TOKEN="")  # noqa: S104
    assert (code, "must have tokens" in message) == (2, True)
    code, message = serve("rls", *data, ONEPASS_TOKEN="short")  # noqa: S106
    assert (code, "16 characters" in message, "short" in message) == (2, True, False)
    assert not (tmp_path / "data").exists()
    with Server(tmp_path / "data", "rls", "--host", "0.0.0.0", token=TOKEN) as server:  # noqa: S104
        assert server.send("GET", "/v2")[0] == 200
        assert TOKEN not in server.log.read_text()


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("rls", "--certificate", "none.pem"), 2),
        (("rls", "--certificate", "none.pem", "--key", "none.pem"), 2),
        (("rls", "--port", "70000"), 2),
        (("nonsense",), 2),
        (("no/file.onepass",), 2),
        (("rls", "--drift", "nonsense"), 2),
        (("rls", "--name", "../up"), 2),
        (("rls", "--tokens", "none"), 1),
    ],
)
def test_wrong_usage(tmp_path: Path, serve: Serve, words: tuple[str, ...], code: int) -> None:
    port = () if "--port" in words else ("--port", "0")
    found, message = serve(*words, "--data", str(tmp_path / "data"), *port)
    assert (found, "Traceback" in message) == (code, False), message


def test_messages_of_invalid_arguments(tmp_path: Path, serve: Serve) -> None:
    """Messages name options of the command, not of the library."""
    data = ("--data", str(tmp_path / "data"), "--port", "0")
    assert "serve: --data is required" in serve("rls")[1]
    assert "--data requires an argument" in serve("rls", "--data")[1]
    assert "m.onepass must be an existing model file" in serve("m.onepass", *data)[1]
    assert "serve: --source" in serve("rls", *data, "--source", "file://x")[1]
    assert not (tmp_path / "data" / "rls.db").exists()
    with op.durable(tmp_path / "data" / "rls.db", pipelines(["rls"], "regression", {})["rls"]):
        pass
    message = serve("rls", *data, "--set", "rls.ridge=2")[1]
    assert "serve: `model` must have the class and parameters" in message
    assert "op." not in message


def test_used_port_is_refused(tmp_path: Path, serve: Serve) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        code, message = serve("rls", "--data", str(tmp_path / "data"), "--port", port)
    assert (code, port in message) == (2, True)
    assert not (tmp_path / "data").exists()
    assert "Traceback" not in message


def test_second_server_of_a_folder_is_refused(tmp_path: Path, serve: Serve) -> None:
    with Server(tmp_path / "data", "rls"):
        code, message = serve("--data", str(tmp_path / "data"), "--port", "0")
    assert (code, "LockedError" in message) == (1, True)


def test_restart_with_other_parameters_is_refused(tmp_path: Path, serve: Serve) -> None:
    op.save(op.RLSRegressor(ridge=1.0).partial_fit([[1.0]], [1.0]), tmp_path / "m.onepass")
    op.save(op.RLSRegressor(ridge=2.0), tmp_path / "other.onepass")
    data = tmp_path / "data"
    with Server(data, str(tmp_path / "m.onepass"), "--name", "flow") as server:
        assert server.send("POST", "/v2/models/flow/learn", rows([[2]], [2]))[0] == 200
    with Server(data, str(tmp_path / "m.onepass"), "--name", "flow") as server:
        assert server.send("GET", "/v2/models/flow")[1]["versions"] == ["1"]
    code, message = serve(str(tmp_path / "other.onepass"), "--name", "flow", "--data", str(data),
                      "--port", "0")  # fmt: skip
    assert (code, "ridge=2.0" in message) == (2, True)


@pytest.mark.parametrize(
    ("words", "option"),
    [
        (("{file}", "--set", "rls.ridge=1"), "--set"),
        (("{file}", "--task", "classification"), "--task"),
        (("--name", "flow"), "--name"),
        (("--set", "rls.ridge=1"), "--set"),
        (("--task", "regression"), "--task"),
    ],
)
def test_options_without_effect_are_refused(
    tmp_path: Path, serve: Serve, words: tuple[str, ...], option: str
) -> None:
    file = tmp_path / "m.onepass"
    op.save(op.RLSRegressor(), file)
    given = (word.format(file=file) for word in words)
    code, message = serve(*given, "--data", str(tmp_path / "data"), "--port", "0")
    assert (code, f"{option} requires" in message) == (2, True), message


def test_default_model_may_be_created_later(tmp_path: Path) -> None:
    with Server(tmp_path / "data", "rls", "--default-model", "later") as server:
        assert "/invocations requires later, which does not exist yet" in server.log.read_text()
        assert server.send("POST", "/invocations", {"inputs": [[1.0]]})[0] == 404
        assert server.send("PUT", "/v2/models/later", {"model": "rls"})[0] == 201
        assert server.send("POST", "/invocations", {"inputs": [[1.0]]})[0] == 200


def test_restart_with_text_classes_continues_the_model(tmp_path: Path) -> None:
    words = ("rls", "--task", "classification", "--set", 'rls.classes=["ham","spam"]')
    for rows_seen in (0, 1):
        with Server(tmp_path / "data", *words) as server:
            model = server.send("GET", "/state")[1]["models"][0]
            assert model["rows_seen"] == rows_seen
            x = {"name": "x", "shape": [1], "datatype": "FP64", "data": [1.0]}
            y = {"name": "y", "shape": [1], "datatype": "BYTES", "data": ["spam"]}
            assert server.send("POST", "/v2/models/rls/learn", {"inputs": [x, y]})[0] == 200
            server.stop()
