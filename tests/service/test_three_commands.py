"""From README to a service that learns, with its page, in the three commands that stand there."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
import tomllib
import urllib.request
from pathlib import Path
from typing import Any

import pytest

for package in ("msgspec", "uvicorn", "httptools"):
    pytest.importorskip(package)

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
SERVING = (ROOT / "docs" / "serving.md").read_text(encoding="utf-8")


def section(text: str, name: str) -> str:
    return text.partition(f"\n## {name}\n")[2].partition("\n## ")[0]


def commands(text: str) -> tuple[str, str, str]:
    """To install, to serve, to post."""
    first, second = re.findall(r"^```\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    install, serve = first.splitlines()
    return install, serve, second


HERE = section(README, "Learn while serving")


def test_both_pages_say_the_same() -> None:
    assert commands(HERE) == commands(section(SERVING, "Three commands"))


def test_what_is_installed_brings_what_serves() -> None:
    install, serve, _ = commands(HERE)
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert install.startswith("python3 -m venv env && env/bin/pip install ")
    assert shlex.split(install)[-1] == ".[serve]"
    assert "serve" in extras["optional-dependencies"]
    assert serve.startswith("env/bin/onepass ")
    assert "onepass" in extras["scripts"]


class _Without:
    """A process that has none of the packages that other extras bring."""

    program = """
import sys
OTHERS = {"river", "pandas", "matplotlib", "torch", "redis", "onnxruntime"}
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in OTHERS:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Missing())
from onepass.cli import main
sys.exit(main())
"""

    def __init__(self, folder: Path, words: list[str]) -> None:
        self.log = folder / "log"
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        environment.pop("ONEPASS_TOKEN", None)
        with self.log.open("w") as log:
            self.process = subprocess.Popen(  # noqa: S603  our own words
                [sys.executable, "-c", self.program, *words],
                cwd=folder, env=environment, stdout=log, stderr=log,
            )  # fmt: skip

    def url(self) -> str:
        while self.process.poll() is None:
            found = re.search(r"Listening on (http://\S+)", self.log.read_text())
            if found:
                return found[1]
            time.sleep(0.02)
        raise AssertionError(self.log.read_text())


def posted(url: str, command: str) -> Any:
    """What curl would be answered."""
    curl, address, data, body = shlex.split(command)
    assert (curl, data) == ("curl", "-d")
    assert address.startswith("localhost:8080/")
    form = {"Content-Type": "application/x-www-form-urlencoded"}  # as curl has it
    request = urllib.request.Request(  # noqa: S310  ours
        f"{url}/{address.partition('/')[2]}", body.encode(), form
    )
    with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310  the same
        return json.loads(answer.read())


@pytest.mark.skipif(sys.platform == "win32", reason="no signals there")
def test_the_commands_do_what_the_page_says(tmp_path: Path) -> None:
    """With what ``[serve]`` brings, and no other extra."""
    _, serve, post = commands(HERE)
    served = _Without(tmp_path, [*shlex.split(serve)[1:], "--port", "0"])
    try:
        url = served.url()
        response = posted(url, post)
        with urllib.request.urlopen(url, timeout=30) as page:  # noqa: S310  ours
            assert b"<title>onepass</title>" in page.read()
        with urllib.request.urlopen(f"{url}/state", timeout=30) as state:  # noqa: S310  ours
            (model,) = json.loads(state.read())["models"]
    finally:
        served.process.send_signal(signal.SIGTERM)
        assert served.process.wait(timeout=60) == 128 + signal.SIGTERM
    assert (model["name"], model["rows_seen"], model["error"]) == ("rls", 3, None)
    data = response["predictions"]
    shown = json.loads(re.search(r"predictions, `(\[.*?\])`", HERE)[1])  # type: ignore[index]
    assert data == pytest.approx(shown, rel=1e-9)
    shown = json.loads(re.search(r"^```json\n(.*?)^```$", SERVING, re.DOTALL | re.MULTILINE)[1])  # type: ignore[index]
    assert shown["predictions"] == pytest.approx(data, rel=1e-9)
    shown["predictions"] = data
    assert response == shown


def test_the_package_holds_all_that_is_no_python() -> None:
    """The page's files, the bundled flights, and what is read of experiments."""
    source = ROOT / "src" / "onepass"
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    packed = {
        path for pattern in settings["package-data"]["onepass"] for path in source.glob(pattern)
    }
    required = {
        path for path in source.rglob("*")
        if path.is_file() and path.suffix not in {".py", ".pyc", ".so"}
    }  # fmt: skip
    assert required <= packed
    assert {path.name for path in packed} >= {"index.html", "page.js", "flights.parquet"}
