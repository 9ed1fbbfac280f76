"""Code of docs/serving.md, http.md and operating.md: curl, clients, tokens and TLS."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from web_server import Server

DOCS = Path(__file__).parents[2] / "docs"
SERVING, HTTP, OPERATING = (
    (DOCS / f"{name}.md").read_text(encoding="utf-8") for name in ("serving", "http", "operating")
)


def blocks(page: str, language: str, begins: str) -> list[str]:
    """The page's blocks of a language with this beginning."""
    found = re.findall(r"^```(\w*)\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    return [code for name, code in found if name == language and code.startswith(begins)]


def curl(server: Server, command: str) -> Any:
    """Response to the command."""
    arguments = shlex.split(command)[1:]
    method = arguments[arguments.index("-X") + 1] if "-X" in arguments else "POST"
    (path,) = (
        each.partition("8080")[2] for each in arguments if each.startswith("localhost:8080/")
    )
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    if "-H" in arguments:
        name, _, value = arguments[arguments.index("-H") + 1].partition(": ")
        headers[name] = value
    status, response, _ = server.send(method, path, arguments[arguments.index("-d") + 1], headers)
    assert status < 300, (command, response)
    return response


def test_curl_examples_run(tmp_path: Path) -> None:
    learn, mixed, infer, labels, rollback, create = blocks(SERVING, "", "curl ")
    with Server(tmp_path / "data", "rls") as server:
        first = curl(server, learn)
        shown = json.loads(blocks(SERVING, "json", "{")[0])
        assert first["predictions"] == pytest.approx(shown["predictions"], rel=1e-9)
        response = curl(server, infer)
        learned = curl(server, labels.replace("ID", response["ids"][0]))
        assert learned == {"version": 2, "predictions": response["predictions"]}
        assert curl(server, rollback) == {"name": "rls", "version": 3}
        assert curl(server, infer)["predictions"] == response["predictions"]
        assert curl(server, create) == {"name": "flow", "version": 0}
        assert curl(server, mixed)["version"] == curl(server, mixed)["version"] == 4
        names = [each["name"] for each in server.send("GET", "/v2/models/rls")[1]["inputs"]]
        assert names == ["km", "degrees", "day"]


def test_client_examples_run(tmp_path: Path) -> None:
    (shown,) = blocks(SERVING, "python", "import onepass as op\nfrom onepass.service")
    with Server(tmp_path / "data", "rls") as server:
        names: dict[str, Any] = {}
        exec(shown.replace("http://localhost:8080", server.url), names)  # noqa: S102  our own page
        with names["client"] as client:
            assert [each["name"] for each in client.models()] == ["rls", "shop", "own"]
        assert (names["predictions"].shape, len(names["ids"])) == ((1,), 1)
        (shown,) = blocks(SERVING, "python", "import asyncio")
        exec(shown.replace("http://localhost:8080", server.url), {})  # noqa: S102  our own page
        assert server.send("GET", "/state")[1]["models"][0]["rows_seen"] == 8


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes tokens")
def test_token_and_tls_examples_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    lines = blocks(OPERATING, "", "umask ")[0].splitlines()
    subprocess.run(["sh", "-ec", "\n".join(lines[:3])], check=True, capture_output=True)  # noqa: S603, S607
    assert Path("tokens").stat().st_mode & 0o077 == 0
    options = shlex.split(lines[3])[2:]
    del options[options.index("--data") : options.index("--data") + 4]  # and the host
    roles = dict(line.split() for line in Path("tokens").read_text().splitlines())
    with Server(tmp_path / "data", *options) as server:
        (shown,) = blocks(OPERATING, "python", "import ssl")
        shown = shown.replace("localhost:8080", f"localhost:{server.port}")
        names: dict[str, Any] = {"token": roles["predict,learn"]}
        exec(shown, names)  # noqa: S102  our own page
        with names["client"] as client:
            assert client.learn("rls", [{"km": 1.0}], [1.0]).version == 1


@pytest.mark.parametrize("service", ["stopped", "running"])
def test_backup_and_restore_examples_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, service: str
) -> None:
    program = tmp_path / "bin" / "onepass"
    program.parent.mkdir()
    command = [sys.executable, "-c", "import sys; from onepass.cli import main; sys.exit(main())"]
    program.write_text(f'#!/bin/sh\nexec {shlex.join(command)} "$@"\n')
    program.chmod(0o700)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    (backup,) = blocks(OPERATING, "", "onepass backup")
    (restore,) = blocks(OPERATING, "", "onepass verify")
    with Server(tmp_path / "served", "rls") as server:
        learn = ("POST", "/v2/models/rls/learn", {"x": {"km": 1}, "y": 2})
        assert server.send(*learn)[0] == 200
        subprocess.run(["sh", "-ec", backup], cwd=tmp_path, check=True)  # noqa: S603, S607
        assert server.send(*learn)[0] == 200
        if service == "stopped":
            server.kill()
            subprocess.run(["sh", "-ec", restore], cwd=tmp_path, check=True)  # noqa: S603, S607
            server.start()
        else:
            assert server.send("DELETE", "/v2/models/rls")[0] == 200
            copy = restore[restore.index("cp ") :]
            subprocess.run(["sh", "-ec", copy], cwd=tmp_path, check=True)  # noqa: S603, S607
            assert server.send("POST", "/v2/repository/models/rls/load")[0] == 200
        (model,) = server.send("GET", "/state")[1]["models"]
        assert (model["ready"], model["rows_seen"]) == (True, 1)


def test_protocol_examples_run(tmp_path: Path) -> None:
    (commands,) = blocks(HTTP, "", "curl ")
    learn, infer = commands.splitlines()
    binary, arrow = blocks(HTTP, "python", "import ")
    with Server(tmp_path / "data", "rls") as server:
        assert curl(server, learn) == {"version": 1, "predictions": [0.0]}
        assert curl(server, infer) == {"version": 1, "predictions": [9.0]}
        names: dict[str, Any] = {}
        found = []
        for code in (binary, arrow):
            exec(code.replace("http://localhost:8080", server.url), names)  # noqa: S102  our own page
            assert names["response"].status_code == 200
            found.append(list(map(float, names["predictions"])))
        assert found[0] == [9.0, 9.0]
        assert (found[1][0], len(found[1])) == (9.0, 2)
