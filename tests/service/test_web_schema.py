"""Requests that are generated from the OpenAPI description, and their responses."""

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from web_server import TOKEN, Server, rows, unchanging_state

from sampling import examples

pytest.importorskip("requests")
pytest.importorskip("schemathesis")
import requests
import schemathesis
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi import checks

from onepass.service.http.openapi import describe
from onepass.service.http.routes import ENDPOINTS

NAMES = {"name": ["rls", "none"], "version": ["1", "7"], "file": ["page.js", "none.js"]}
CHANGES = [("/v2/models/{name}", "put"), ("/v2/models/{name}", "delete")]  # of any name
CHECKS = [
    not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_headers_conformance,
    checks.response_schema_conformance,
    checks.negative_data_rejection,
    checks.missing_required_header,
    checks.unsupported_method,
    checks.ignored_auth,
]


def description() -> dict[str, Any]:
    """The served description, with some names of existing models."""
    found = describe(ENDPOINTS, "1.0")
    for path, operations in found["paths"].items():
        for method, operation in operations.items():
            for each in operation["parameters"]:
                if each["in"] == "path" and (path, method) not in CHANGES:
                    each["schema"] = {"type": "string", "enum": NAMES[each["name"]]}
    return found


@schemathesis.serializer(
    "application/vnd.apache.arrow.stream",
    "application/x-ndjson",
    "application/x-onepass",
    "text/csv",
)
def sent(_: Any, value: Any) -> bytes:
    data = getattr(value, "data", value)
    return data if isinstance(data, bytes) else str(data).encode(errors="replace")


schema = schemathesis.openapi.from_dict(description())


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("schema")
    with Server(folder / "data", "rls", "--default-model", "rls", token=TOKEN) as running:
        body = rows([[1], [2]], [1, 2])
        assert running.send("POST", "/v2/models/rls/learn", body)[0] == 200
        yield running
        log = running.log.read_text()
        assert "Traceback" not in log, log[-4000:]


@pytest.fixture(scope="module")
def session() -> Iterator[Any]:
    with requests.Session() as session:
        yield session


@schema.parametrize()
@settings(max_examples=examples(4, 30), suppress_health_check=list(HealthCheck),
          phases=[Phase.explicit, Phase.generate])  # fmt: skip
def test_responses_match_the_openapi_description(case: Any, server: Server, session: Any) -> None:
    before = unchanging_state(server)
    headers = {"Authorization": f"Bearer {TOKEN}"}
    answer = case.call(base_url=server.url, session=session, headers=headers)
    # each small number may be a version, so that none is invalid
    excluded = [checks.negative_data_rejection] if "{version}" in case.operation.path else []
    case.validate_response(answer, checks=CHECKS, excluded_checks=excluded, headers=headers)
    if answer.status_code == 201:  # so that the names that are there stay those of the description
        assert server.send("DELETE", answer.request.path_url)[0] == 200
    assert str(server.folder).encode() not in answer.content
    if answer.status_code >= 400:
        assert "Traceback" not in answer.text
        assert unchanging_state(server) == before
