"""The compose file: its server, and Prometheus with its rules."""

import json
import re
import shlex
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from ports import free_port
from waiting import until
from web_server import Server

from programs import program

yaml = pytest.importorskip("yaml")

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
COMPOSE: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
RECIPE = (DEPLOY / "Containerfile").read_text(encoding="utf-8").replace("\\\n", " ")
PAGE = (ROOT / "docs" / "operating.md").read_text(encoding="utf-8")
RULES = {
    rule["alert"]: rule
    for group in yaml.safe_load((DEPLOY / "alerts.yml").read_text(encoding="utf-8"))["groups"]
    for rule in group["rules"]
}
PROMETHEUS = program("Prometheus")
needs_prometheus = pytest.mark.skipif(PROMETHEUS is None, reason="prometheus is not installed")


def mounted(service: str) -> dict[str, str]:
    """Source of each mount of a service by its path in the container: a file or a volume."""
    volumes = (volume.split(":") for volume in SERVICES[service].get("volumes", []))
    files = {path: source for source, path, *_ in volumes}
    secrets = SERVICES[service].get("secrets", [])
    return files | {f"/run/secrets/{name}": COMPOSE["secrets"][name]["file"] for name in secrets}


def entrypoint() -> list[str]:
    (words,) = re.findall(r"^ENTRYPOINT (.*)$", RECIPE, re.MULTILINE)
    return [*json.loads(words), *SERVICES["onepass"]["command"]]


@pytest.fixture
def secrets(tmp_path: Path) -> Path:
    """The folder of secrets, made by the commands of the page."""
    (tmp_path / "deploy").mkdir()
    (commands,) = re.findall(r"^mkdir -m 0700 (?:.*\n)+?(?=docker)", PAGE, re.MULTILINE)
    subprocess.run(["sh", "-ec", commands], cwd=tmp_path, check=True)  # noqa: S603, S607  our page
    return tmp_path / "deploy" / "secrets"


@contextmanager
def serving(folder: Path, secrets: Path) -> Iterator[Server]:
    """The server of the compose file, with the role admin."""
    words = entrypoint()
    options = [
        word.replace("/run/secrets", str(secrets))
        for word in words[2:]
        if word not in {"--data", "/data"}
    ]
    admin = re.findall(r"^admin (\S+)$", (secrets / "tokens").read_text(), re.MULTILINE)
    with Server(folder / "data", *options, token=admin[0]) as server:
        yield server


# -- the files ------------------------------------------------------------------------------------


def test_sources_of_mounts_exist() -> None:
    for service in SERVICES:
        for path, source in mounted(service).items():
            assert path.startswith("/")
            if source.startswith("./"):
                assert (DEPLOY / source).is_file(), source
            elif "/" not in source:
                assert source in COMPOSE["volumes"]
    build = SERVICES["onepass"]["build"]
    assert (DEPLOY / build["context"] / build["dockerfile"]).samefile(DEPLOY / "Containerfile")


def test_page_makes_the_secrets_which_only_the_owner_reaches(secrets: Path) -> None:
    files = {name: secrets.parent / each["file"] for name, each in COMPOSE["secrets"].items()}
    assert {path.name for path in secrets.iterdir()} == files.keys()
    assert secrets.stat().st_mode & 0o777 == 0o700
    assert all(path.stat().st_mode & 0o777 == 0o644 for path in files.values())
    for ignoring in (".gitignore", ".dockerignore"):  # the image must not contain them either
        lines = (ROOT / ignoring).read_text(encoding="utf-8").splitlines()
        assert "deploy/secrets" in {line.strip("/") for line in lines}


def test_services_are_hardened_and_reached_from_this_machine_only() -> None:
    for service in SERVICES.values():
        assert service["ports"]
        assert all(port.startswith("127.0.0.1:") for port in service["ports"])
        assert service["read_only"]
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert service["restart"] == "unless-stopped"
        assert "privileged" not in service
        assert "build" in service or re.search(r":v?\d+\.\d+\.\d+$", service["image"])
        assert all(
            volume.endswith(":ro,z") for volume in service["volumes"] if volume.startswith(".")
        )
    assert "--tokens" in entrypoint()


def test_data_is_in_the_volume_and_stopping_has_time() -> None:
    assert mounted("onepass")["/data"] == "learners"
    words = entrypoint()
    assert words[words.index("--data") + 1] == "/data"
    (seconds,) = re.findall(r"--stop-timeout (\d+)", RECIPE)
    assert SERVICES["onepass"]["stop_grace_period"] == f"{seconds}s"


def test_health_check_is_that_of_the_image() -> None:
    check = SERVICES["onepass"]["healthcheck"]
    (options, command) = re.findall(r"^HEALTHCHECK (.*?) +CMD (.*)$", RECIPE, re.MULTILINE)[0]
    assert check["test"] == ["CMD", *json.loads(command)]
    assert shlex.split(options) == [
        f"--{name.replace('_', '-')}={value}" for name, value in check.items() if name != "test"
    ]


def test_grafana_reads_the_data_source_and_the_dashboard() -> None:
    files = mounted("grafana")
    names = [path for path in files if path.startswith("/etc/grafana/provisioning/")]
    made = {Path(path).parent.name: yaml.safe_load((DEPLOY / files[path]).read_text())
            for path in names}  # fmt: skip
    (source,) = made["datasources"]["datasources"]
    assert source["url"] == "http://prometheus:9090"
    assert source["isDefault"]
    (provider,) = made["dashboards"]["providers"]
    dashboards = [path for path in files if path.startswith(provider["options"]["path"] + "/")]
    assert [files[path] for path in dashboards] == ["./grafana-dashboard.json"]
    assert SERVICES["grafana"]["environment"]["GF_SECURITY_ADMIN_PASSWORD__FILE"] in files


# -- the server -----------------------------------------------------------------------------------


def test_server_starts_and_passes_its_health_check(tmp_path: Path, secrets: Path) -> None:
    _, python, *arguments = SERVICES["onepass"]["healthcheck"]["test"]
    assert Path(python).parent == Path(entrypoint()[0]).parent
    with serving(tmp_path, secrets) as server:
        command = [sys.executable, *(a.replace("8080", str(server.port)) for a in arguments)]
        assert subprocess.run(command, check=False).returncode == 0  # noqa: S603  our own words
        assert server.send("POST", "/v2/models/rls/learn", {"x": {"km": 1}, "y": 2})[0] == 200
        server.token = (secrets / "prometheus").read_text().strip()
        assert server.send("GET", "/metrics")[0] == 200
        assert server.send("POST", "/v2/models/rls/learn", {"x": {"km": 1}, "y": 2})[0] == 403
        server.kill()
        failed = subprocess.run(command, check=False, stderr=subprocess.DEVNULL)  # noqa: S603
        assert failed.returncode != 0


# -- Prometheus -----------------------------------------------------------------------------------


def promtool(*arguments: str) -> None:
    result = subprocess.run(  # noqa: S603  our own words
        ["promtool", *arguments],  # noqa: S607  as it is installed
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert result.returncode == 0, result.stdout + result.stderr


def configuration(folder: Path, secrets: Path, port: int = 8080) -> Path:
    """Prometheus's configuration and rules with paths of this machine and short intervals."""
    files = mounted("prometheus")
    for path, source in files.items():
        if source.startswith("./"):
            text = (DEPLOY / source).read_text(encoding="utf-8")
            text = text.replace("/run/secrets", str(secrets)).replace(
                "onepass:8080", f"127.0.0.1:{port}"
            )
            text = text.replace("interval: 15s", "interval: 200ms")
            (folder / Path(path).name).write_text(text)
    return folder / "prometheus.yml"


def test_prometheus_reads_the_service_with_its_token() -> None:
    files = mounted("prometheus")
    assert "/etc/prometheus/prometheus.yml" in files  # the default of the image
    loaded = yaml.safe_load((DEPLOY / files["/etc/prometheus/prometheus.yml"]).read_text())
    (job,) = loaded["scrape_configs"]
    assert job["authorization"]["credentials_file"] in files
    assert job["static_configs"] == [{"targets": ["onepass:8080"]}]
    assert SERVICES["onepass"]["ports"][0].endswith(":8080")
    assert all(f"/etc/prometheus/{name}" in files for name in loaded["rule_files"])


def test_each_metric_in_the_table_of_alarms_has_a_rule() -> None:
    (table,) = re.findall(r"^\| alarm \|.*?\n\n", PAGE, re.MULTILINE | re.DOTALL)
    alarms = re.findall(r"^\| (.*?) \|", table, re.MULTILINE)
    metrics = set(re.findall(r"`((?:onepass|process)_\w+|up)\b", " ".join(alarms)))
    expressions = " ".join(rule["expr"] for rule in RULES.values())
    assert len(metrics) > 12
    assert metrics <= {name.removesuffix("_bucket") for name in re.findall(r"\w+", expressions)}


@needs_prometheus
def test_promtool_accepts_configuration_and_rules(tmp_path: Path, secrets: Path) -> None:
    promtool("check", "config", str(configuration(tmp_path, secrets)))


MODEL = 'instance="a", job="onepass", model="m"'
CASES: dict[str, tuple[dict[str, str], str, str]] = {
    "OnepassDown": ({'up{job="onepass", instance="a"}': "1x5 0x20"}, "3m", "10m"),
    "OnepassNotReady": ({f"onepass_ready{{{MODEL}}}": "1x5 0x20"}, "3m", "10m"),
    "OnepassServerErrors": (
        {'onepass_requests_total{status="507", instance="a", job="onepass"}': "0x5 1x20"},
        "3m", "7m",
    ),
    "OnepassRequestsRejected": (
        {'onepass_requests_total{status="422", instance="a", job="onepass"}': "0x20 0+6x20",
         'onepass_requests_total{status="200", instance="a", job="onepass"}': "0+60x40"},
        "15m", "40m",
    ),
    "OnepassRowsRejected": (
        {f"onepass_rows_refused_total{{{MODEL}}}": "0x20 0+2x20",
         f"onepass_rows_learned_total{{{MODEL}}}": "0+100x40"},
        "15m", "40m",
    ),
    "OnepassOutliers": (
        {f"onepass_outliers_total{{{MODEL}}}": "0x20 0+2x20",
         f"onepass_rows_learned_total{{{MODEL}}}": "0+100x40"},
        "15m", "40m",
    ),
    "OnepassSchemaViolations": (
        {f"onepass_schema_violations_total{{{MODEL}}}": "0x20 0+2x20",
         f"onepass_rows_learned_total{{{MODEL}}}": "0+100x40"},
        "15m", "40m",
    ),
    "OnepassNoBetterThanBaseline": (
        {f"onepass_r2{{{MODEL}}}": "0.5x5 -1x40",
         f"onepass_rows_learned_total{{{MODEL}}}": "2000x50"},
        "5m", "30m",
    ),
    "OnepassDrift": ({f"onepass_drift_alarms_total{{{MODEL}}}": "0x5 1x20"}, "3m", "8m"),
    "OnepassDriftDetectorFailed": (
        {f'onepass_drift_detector_active{{detector="adwin", {MODEL}}}': "1x5 0x20"}, "3m", "8m",
    ),
    "OnepassPredictionsWorse": (
        {f'onepass_prequential_error{{measure="accuracy", over="window", {MODEL}}}': "0.9x5 0.7x40",
         f'onepass_prequential_error{{measure="accuracy", over="all", {MODEL}}}': "0.9x45"},
        "5m", "30m",
    ),
    "OnepassSourceNotReady": (
        {f'onepass_source_ready{{source="flow", {MODEL}}}': "1x5 0x20"}, "3m", "10m",
    ),
    "OnepassSourceLag": (
        {f'onepass_source_lag{{source="flow", {MODEL}}}': "20000x20 20000+100x40"}, "15m", "40m",
    ),
    "OnepassLearnSlow": (
        {f'onepass_request_seconds_bucket{{verb="learn", le="0.5", {MODEL}}}': "0+60x20 1200+54x20",
         f'onepass_request_seconds_bucket{{verb="learn", le="1.0", {MODEL}}}': "0+60x40",
         f'onepass_request_seconds_bucket{{verb="learn", le="+Inf", {MODEL}}}': "0+60x40"},
        "15m", "35m",
    ),
    "OnepassDiskSlow": (
        {f"onepass_commit_seconds_total{{{MODEL}}}": "0+1x20 20+9x20",
         f"onepass_commits_total{{{MODEL}}}": "0+60x40"},
        "15m", "35m",
    ),
    "OnepassLogLarge": ({f"onepass_log_bytes{{{MODEL}}}": "4e6x5 2e8x30"}, "3m", "20m"),
    "OnepassOpenFiles": (
        {'process_open_fds{job="onepass", instance="a"}': "10x5 900x30",
         'process_max_fds{job="onepass", instance="a"}': "1000x40"},
        "3m", "20m",
    ),
}  # fmt: skip
"""Values each minute, a time without the alarm, and one with it."""


@needs_prometheus
def test_alarms_are_raised_by_their_metrics_only(tmp_path: Path) -> None:
    assert CASES.keys() == RULES.keys()
    for name, (series, before, after) in CASES.items():
        values = [{"series": metric, "values": text} for metric, text in series.items()]
        alarms = 'count by (alertname) (ALERTS{alertstate="firing"})'
        samples = [{"labels": f'{{alertname="{name}"}}', "value": 1}]
        tests = [
            {"expr": alarms, "eval_time": before, "exp_samples": []},
            {"expr": alarms, "eval_time": after, "exp_samples": samples},
        ]
        group = {"interval": "1m", "input_series": values, "promql_expr_test": tests}
        rules = {"rule_files": [str(DEPLOY / "alerts.yml")], "tests": [group]}
        (tmp_path / f"{name}.yml").write_text(yaml.safe_dump(rules))
    promtool("test", "rules", *map(str, sorted(tmp_path.glob("*.yml"))))


@needs_prometheus
def test_prometheus_reads_the_server_and_evaluates_the_rules(tmp_path: Path, secrets: Path) -> None:
    port = free_port()

    def read(path: str) -> Any:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/{path}", timeout=10) as body:
            return json.load(body)["data"]

    def listens() -> bool:
        try:
            return bool(read("status/runtimeinfo"))
        except OSError:
            return False

    def rules() -> list[dict[str, Any]]:
        return [rule for group in read("rules")["groups"] for rule in group["rules"]]

    with serving(tmp_path, secrets) as server:
        assert server.send("POST", "/v2/models/rls/learn", {"x": {"km": 1}, "y": 2})[0] == 200
        file = configuration(tmp_path, secrets, server.port)
        process = subprocess.Popen(  # noqa: S603  our own words
            [PROMETHEUS or "", f"--config.file={file}", f"--storage.tsdb.path={tmp_path}/metrics",
             f"--web.listen-address=127.0.0.1:{port}", "--log.level=error"],
        )  # fmt: skip
        try:
            until(listens)
            until(lambda: [job["health"] for job in read("targets")["activeTargets"]] == ["up"])
            until(lambda: read("query?query=onepass_ready")["result"])
            until(lambda: {rule["health"] for rule in rules()} == {"ok"})
            assert {rule["name"] for rule in rules()} == RULES.keys()
            assert not [rule["name"] for rule in rules() if rule.get("lastError") or rule["alerts"]]
            server.kill()
            until(lambda: [rule["name"] for rule in rules() if rule["alerts"]] == ["OnepassDown"])
        finally:
            process.terminate()
            process.wait()
