"""The systemd unit and the container file."""

import configparser
import json
import re
import shlex
import shutil
import signal
import subprocess
import tomllib
from pathlib import Path

import pytest

from documents import COMMANDS, options
from onepass.cli.app import app

ROOT = Path(__file__).parents[2]
UNIT = ROOT / "deploy" / "onepass.service"
RECIPE = (ROOT / "deploy" / "Containerfile").read_text(encoding="utf-8").replace("\\\n", " ")


def service() -> dict[str, str]:
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read(UNIT)
    return dict(parser["Service"])


def argument_of(instruction: str) -> str:
    """The argument of the last instruction of this name."""
    found: str = re.findall(rf"^{instruction} +(.*)$", RECIPE, re.MULTILINE)[-1]
    return found


def test_unit_and_container_use_existing_options_of_serve() -> None:
    known = options(COMMANDS["serve",])
    for words in (shlex.split(service()["ExecStart"]), json.loads(argument_of("ENTRYPOINT"))):
        assert words[0].endswith("/bin/onepass")
        assert words[1] == "serve"
        assert {word for word in words if word.startswith("-")} <= known
        app(["serve", "--help"])


def test_exit_code_after_sigterm_is_a_success_for_systemd() -> None:
    """The exit code after SIGTERM is not zero; systemd must not treat it as a failure."""
    code = 128 + signal.SIGTERM
    assert service()["SuccessExitStatus"] == str(code)
    assert service()["KillSignal"] == argument_of("STOPSIGNAL") == "SIGTERM"


def test_image_installs_existing_extras() -> None:
    (extras,) = re.findall(r"pip install .*'\.\[(.*)\]'", RECIPE)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert set(extras.split(",")) <= project["optional-dependencies"].keys()
    assert {"serve", "redis"} <= set(extras.split(","))


def test_health_check_of_the_image_is_liveness() -> None:
    """Not readiness: a full disk is no reason for a restart."""
    about = (ROOT / "src/onepass/service/http/routes.py").read_text()
    (path,) = re.findall(r"http://127\.0\.0\.1:8080(\S+?)'", RECIPE)
    assert path == "/v2/health/live"
    assert f'Endpoint("GET", "{path}"' in about


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd")
def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    copy = tmp_path / UNIT.name
    copy.write_text(
        UNIT.read_text().replace("/opt/onepass/bin/onepass", shutil.which("true") or "")
    )
    found = subprocess.run(  # noqa: S603  our own words
        ["systemd-analyze", "verify", "--man=no", str(copy)],  # noqa: S607  as it is found
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "onepass.service" not in found.stderr
    assert found.returncode == 0, found.stderr
