"""The OpenAPI description and the metrics of the service."""

import time
from collections.abc import Iterator

import numpy as np
import pytest
from web_server import Server, rows

from onepass.service.http.openapi import describe
from onepass.service.http.routes import ENDPOINTS


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("described")
    options = ("rls", "--window", "40") + (("--drift", "adwin") if _river() else ())
    with Server(folder / "data", *options) as running:
        yield running


def _river() -> bool:
    try:
        import river  # noqa: F401
    except ImportError:
        return False
    return True


def test_openapi_description_is_valid() -> None:
    validator = pytest.importorskip("openapi_spec_validator")
    validator.validate(describe(ENDPOINTS, "1.0"))


def test_state_and_prometheus_metrics_of_a_stream(server: Server) -> None:
    """``/state`` and ``/metrics`` agree, and show errors, drift and refused rows."""
    rng = np.random.default_rng(0)
    predictions, answers = [], []
    for i in range(60):
        X = rng.normal(size=(10, 2))
        y = X.sum(axis=1) + (50.0 if i >= 50 else 0.0) + 0.1 * rng.normal(size=10)
        status, response, _ = server.send("POST", "/v2/models/rls/learn", rows(X, y.tolist()))
        assert status == 200
        predictions += response["outputs"][0]["data"]
        answers += y.tolist()
        server.send("POST", "/v2/models/rls/infer", rows(X))
    server.send("POST", "/v2/models/rls/learn", rows([[1.0, 2.0, 3.0]], [1.0]))
    model = server.send("GET", "/state")[1]["models"][0]
    off = np.abs(np.array(answers) - np.array(predictions))
    assert model["prequential_error"]["all"] == pytest.approx(off.mean(), rel=1e-9)
    assert model["prequential_error"]["window"] == pytest.approx(off[-40:].mean(), rel=1e-9)
    assert (model["rows_seen"], model["rows_refused"]) == (600, 1)
    assert "features" in model["refused"][0]["why"]
    if _river():
        assert 500 < model["drift"][0]["rows"] <= 600
    parser = pytest.importorskip("prometheus_client.parser")
    time.sleep(1.1)  # the exposition is cached for a second
    status, text, headers = server.send("GET", "/metrics")
    assert headers["content-type"].startswith("text/plain; version=0.0.4")
    families = {each.name: each for each in parser.text_string_to_metric_families(text.decode())}

    def value(family: str, name: str = "", **labels: str) -> float:
        wanted = {"model": "rls", **labels}
        samples = families[f"onepass_{family}"].samples
        values = [each.value for each in samples
                  if each.labels == wanted and each.name.endswith(name)]  # fmt: skip
        assert len(values) == 1, (family, wanted, samples)
        found: float = values[0]
        return found

    measure = {"measure": "mean absolute error"}
    assert value("prequential_error", over="all", **measure) == model["prequential_error"]["all"]
    assert (
        value("prequential_error", over="window", **measure) == model["prequential_error"]["window"]
    )
    assert value("rows_learned", "_total") == 600
    assert value("rows_predicted", "_total") == 600
    assert value("rows_refused", "_total") == 1
    assert value("outliers", "_total") >= 1
    assert value("ready") == 1
    assert value("request_seconds", "_count", verb="predict") == 60
    assert value("request_seconds", "_count", verb="learn") == 60
    assert value("request_seconds", "_bucket", verb="learn", le="+Inf") == 60
    assert 0 < model["latency"]["learn"]["p50"] < 5
    assert all(each.documentation for each in families.values())
