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
    error = model["prequential_error"]
    means = np.concatenate([[0.0], np.cumsum(answers)[:-1] / np.arange(1, 600)])
    baseline = np.abs(np.array(answers) - means)
    assert error["baseline"]["all"] == pytest.approx(baseline.mean(), rel=1e-9)
    assert error["baseline"]["window"] == pytest.approx(baseline[-40:].mean(), rel=1e-9)
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
    for over in ("all", "window"):
        assert value("baseline_error", over=over, **measure) == error["baseline"][over]
    assert value("r2") == error["r2"]
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


def test_state_has_the_curves_of_some_models(server: Server) -> None:
    server.send("PUT", "/v2/models/other", {"model": "rls"})
    for query, names in (("", {"rls", "other"}), ("?curves=rls", {"rls"}), ("?curves=x", set())):
        models = server.send("GET", f"/state{query}")[1]["models"]
        for part in ("prequential_error", "rates"):
            assert {each["name"] for each in models if "curve" in each[part]} == names


def test_coefficients(server: Server) -> None:
    server.send("PUT", "/v2/models/linear", {"model": "rls", "settings": {"rls.forgetting": 1.0}})
    path = "/v2/models/linear/coefficients"
    empty = {"name": "linear", "version": "0", "features": 0, "outputs": 0, "coefficients": []}
    assert server.send("GET", path)[1] == empty
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 30))
    w = np.arange(30.0) * np.where(np.arange(30) % 2, 1, -1)
    server.send("POST", "/v2/models/linear/learn", rows(X, (X @ w + rng.normal(size=200)).tolist()))
    found = server.send("GET", path)[1]
    assert (found["version"], found["features"], found["outputs"]) == ("1", 30, 1)
    assert [each["feature"] for each in found["coefficients"]] == [
        f"x{i}" for i in range(29, 9, -1)
    ]
    for each in found["coefficients"]:
        assert each["output"] is None
        error = each["standard_error"]
        assert 0.05 < error < 0.2
        assert abs(each["value"]) == pytest.approx(int(each["feature"][1:]), rel=0.2)  # scaled
    server.send("PUT", "/v2/models/labels", {"model": "sgd", "task": "classification"})
    body = [{"x": {"km": float(i)}, "y": "abc"[i % 3]} for i in range(30)]
    assert server.send("POST", "/v2/models/labels/learn", body)[0] == 200
    found = server.send("GET", "/v2/models/labels/coefficients")[1]
    assert (found["features"], found["outputs"]) == (1, 3)
    assert {each["output"] for each in found["coefficients"]} == set("abc")
    assert {each["standard_error"] for each in found["coefficients"]} == {None}
    assert server.send("GET", "/v2/models/none/coefficients")[0] == 404
