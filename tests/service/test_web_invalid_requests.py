"""Invalid requests and settings, and limits of features, classes and text."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from web_server import Server, rows

from onepass import models
from onepass.errors import ParameterError, ShapeError
from onepass.validation import arrays

INFER, LEARN = "/v2/models/rls/infer", "/v2/models/rls/learn"
LABELS = "/v2/models/rls/labels"
CSV = {"Content-Type": "text/csv"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    options = ("rls", "--max-features", "50", "--default-model", "rls")
    with Server(tmp_path_factory.mktemp("refused") / "data", *options) as running:
        named = {"name": "km", "shape": [3], "datatype": "FP64", "data": [1, 2, 3]}
        y = {"name": "y", "shape": [3], "datatype": "FP64", "data": [3, 5, 7]}
        assert running.send("POST", LEARN, {"inputs": [named, y]})[0] == 200
        yield running
        assert "Traceback" not in running.log.read_text()


@pytest.mark.parametrize(
    ("body", "response"),
    [
        (b"km,km\n1,2\n", "have unique names"),
        ("km\nété\n".encode("latin-1"), "UTF-8"),
        (b"km\n" + b"1" * 70_000 + b"x\n", "characters"),
    ],
)
def test_invalid_csv_is_refused(server: Server, body: bytes, response: str) -> None:
    """An error may be its own cause, which must not cause an endless loop."""
    status, found, _ = server.send("POST", "/invocations", body, CSV)
    assert (status, response in found["error"]) == (400, True), found
    assert server.send("GET", "/v2/health/live")[0] == 200


def broad(d: int, y: float | None = 1.0) -> dict[str, Any]:
    return rows([[1.0] * d], None if y is None else [y])


def learned(server: Server, name: str) -> int:
    """Number of rows that a model has learned."""
    models = server.send("GET", "/state")[1]["models"]
    found: int = next(each["rows_seen"] for each in models if each["name"] == name)
    return found


def test_number_of_features_is_limited(server: Server) -> None:
    """The memory of least squares grows with the square of the number of features."""
    assert server.send("PUT", "/v2/models/broad", {"model": "rls"})[0] == 201
    learn = "/v2/models/broad/learn"
    status, response, _ = server.send("POST", learn, broad(51))
    assert (status, "at most 50 features" in response["error"]) == (400, True), response
    assert "--max-features" in response["error"]
    assert server.send("POST", learn, broad(50))[0] == 200
    texts = {
        "name": "who",
        "shape": [80],
        "datatype": "BYTES",
        "data": [f"u{i}" for i in range(80)],
    }
    y = {"name": "y", "shape": [80], "datatype": "FP64", "data": [1.0] * 80}
    assert server.send("PUT", "/v2/models/texts", {"model": "rls"})[0] == 201
    learn = "/v2/models/texts/learn"
    first = {
        "inputs": [
            {**texts, "shape": [2], "data": ["u0", "u1"]},
            {**y, "shape": [2], "data": [1, 2]},
        ]
    }
    assert server.send("POST", learn, first)[0] == 200
    before = learned(server, "texts")
    status, response, _ = server.send("POST", learn, {"inputs": [texts, y]})
    assert (status, "at most 50 features" in response["error"]) == (400, True), response
    assert learned(server, "texts") == before == 2
    assert server.send("POST", learn, first)[0] == 200


@pytest.mark.parametrize(
    ("path", "parameters", "response"),
    [
        (LEARN, {"await_label": True}, "must be sent to infer"),
        (LEARN, {"seconds": 3}, "must be sent with 'await_label'"),
        ("/v2/models/rls/labels", {"await_label": True}, "must be sent to infer"),
        (INFER, {"seconds": 3}, "must be sent with 'await_label'"),
        (INFER, {"await_label": False, "seconds": 3}, "must be sent with 'await_label'"),
        (INFER, {"await_label": 1}, "must be true or false"),
        (INFER, {"await_label": True, "seconds": -1}, "Choose another `seconds`"),
    ],
)
def test_parameters_in_the_wrong_place_are_refused(
    server: Server, path: str, parameters: dict[str, Any], response: str
) -> None:
    names = ("id", "y") if path.endswith("labels") else ("km", "y")
    inputs = [{"name": name, "shape": [1], "datatype": "FP64", "data": [1]} for name in names]
    if names[0] == "id":
        inputs[0].update(datatype="BYTES", data=["x"])
    body = {"inputs": inputs[: 1 if path is INFER else 2], "parameters": parameters}
    status, found, _ = server.send("POST", path, body)
    assert (status, response in found["error"]) == (400, True), found


@pytest.mark.parametrize(
    ("path", "body", "headers"),
    [
        (INFER, rows([[4.0]], await_label=True, seconds=-1), {}),
        (INFER, rows([[4.0, 1.0]]), {}),
        (LEARN, rows([[4.0, 1.0]], [1.0]), {}),
        (LEARN, rows([[4.0]], [1.0]), {"Idempotency-Key": "a" * 513}),
        (LABELS, {"inputs": [{"name": "id", "shape": [1], "datatype": "BYTES", "data": ["x"]},
                              rows([[4.0]], [1.0])["inputs"][1]]}, {}),
        (LEARN.replace("learn", "rollback"), {"to": 9_999}, {}),
    ],
)  # fmt: skip
def test_error_messages_name_the_endpoint(
    server: Server, path: str, body: Any, headers: dict[str, str]
) -> None:
    status, found, _ = server.send("POST", path, body, headers)
    assert (status, found["error"].startswith(f"POST {path}: ")) == (400, True), found
    assert "urable." not in found["error"]
    assert "`key`" not in found["error"]


@pytest.mark.parametrize("verb", ["PUT", "POST"])
def test_json_of_other_endpoints_has_the_same_limit(server: Server, verb: str) -> None:
    path = "/v2/models/long" if verb == "PUT" else LEARN.replace("learn", "rollback")
    body = {"model": "rls", "to": 0, "x": "a" * (8 << 20)}
    status, found, _ = server.send(verb, path, body, {"Content-Type": "application/json"})
    assert (status, "8,388,608 bytes" in found["error"]) == (413, True), found


def test_await_label_is_refused_by_invocations(server: Server) -> None:
    body = {"inputs": {"km": [4.0]}, "params": {"await_label": True}}
    status, response, _ = server.send("POST", "/invocations", body)
    assert (status, "must be sent to infer" in response["error"]) == (400, True), response


@pytest.mark.parametrize(
    ("model", "settings", "response"),
    [
        ("rls", {"rls.forgetting": 2}, "`forgetting`"),
        ("rls", {"rls.ridge": "abc"}, "`ridge`"),
        ("rls", {"rls.ridge": None}, "`ridge`"),
        ("sgd", {"sgd.loss": "zzz"}, "`loss`"),
        ("orfit", {"orfit.memory": 0}, "`memory`"),
    ],
)
def test_model_with_invalid_settings_is_not_created(
    server: Server, model: str, settings: dict[str, Any], response: str
) -> None:
    status, found, _ = server.send("PUT", "/v2/models/bad", {"model": model, "settings": settings})
    assert (status, response in found["error"]) == (400, True), found
    assert server.send("GET", "/v2/models/bad")[0] == 404
    assert not (server.folder / "bad.db").exists()


CLASSIFIERS = models.names("classification")


@pytest.mark.parametrize(
    ("task", "name", "settings"),
    [
        *(("regression", name, {}) for name in models.names("regression")),
        *(("classification", name, {}) for name in CLASSIFIERS),
        *(("classification", name, {"classes": ["ham", "spam"]}) for name in CLASSIFIERS),
        *(("classification", name, {"classes": [1, 2]}) for name in CLASSIFIERS),
        ("classification", "streaminglda", {"classes": ["a", "b"], "priors": [0.3, 0.7]}),
        ("regression", "rls", {"initial_coef": [1.0, 2.0, 3.0]}),
        ("regression", "rls", {"ridge": np.eye(3).tolist()}),
        ("regression", "rls", {"forgetting": "window:100"}),
    ],
    ids=str,
)
def test_presets_accept_valid_settings(task: str, name: str, settings: dict[str, Any]) -> None:
    given = {f"{name}.{parameter}": value for parameter, value in settings.items()}
    try:
        model = models.pipelines([name], task, given)[name]
    except ParameterError:
        pytest.skip("it has no such parameter")
    assert not model.__sklearn_is_fitted__()
    for parameter, value in settings.items():
        assert getattr(model.learner, parameter) == value


def test_size_of_encoded_text_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """A short text is encoded as one number for each category."""
    monkeypatch.setattr(arrays, "_MAX_VALUES", 1000)
    model = models.pipelines(["rls"], "regression")["rls"]
    rows = [{"who": f"u{i}"} for i in range(30)]
    model.partial_fit(rows, np.zeros(30))
    before = model.predict(rows[:3])
    with arrays.feature_limit(50):
        assert len(model.predict(rows)) == 30
        for verb in (model.predict, lambda many: model.partial_fit(many, np.zeros(60))):
            with pytest.raises(ShapeError, match="at most 1,000 values, got 60 rows of 30"):
                verb(rows * 2)
    assert len(model.predict(rows * 2)) == 60  # in a process of one's own
    assert (model.rows_seen_, model.predict(rows[:3]).tobytes()) == (30, before.tobytes())


def test_size_of_encoded_text_is_limited_over_http(server: Server) -> None:
    assert server.send("PUT", "/v2/models/many", {"model": "rls"})[0] == 201
    texts = [f"u{i % 40}" for i in range(500_000)]
    who = {"name": "who", "shape": [40], "datatype": "BYTES", "data": texts[:40]}
    y = {"name": "y", "shape": [40], "datatype": "FP64", "data": [1.0] * 40}
    assert server.send("POST", "/v2/models/many/learn", {"inputs": [who, y]})[0] == 200
    who |= {"shape": [500_000], "data": texts}
    y |= {"shape": [500_000], "data": [1.0] * 500_000}
    for verb, inputs in (("infer", [who]), ("learn", [who, y])):
        for parameters in ({}, {"await_label": True}) if verb == "infer" else ({},):
            body = {"inputs": inputs, "parameters": parameters}
            status, response, _ = server.send("POST", f"/v2/models/many/{verb}", body)
            must = (413, "at most 16,384 rows") if parameters else (400, "16,777,216 values")
            assert (status, must[1] in response["error"]) == (must[0], True), response


def test_classes_outputs_and_length_of_labels_are_limited(server: Server) -> None:
    for name, settings in (("few", {}), ("classes", {"task": "classification"})):
        model = {"model": "rls", **settings}
        assert server.send("PUT", f"/v2/models/{name}", model)[0] == 201
    X = {"name": "X", "shape": [60, 1], "datatype": "FP64", "data": [1.0] * 60}
    labels = {"name": "y", "shape": [60], "datatype": "BYTES", "data": list(map(str, range(60)))}
    long = labels | {"data": ["a"] * 59 + ["b" * 257]}
    wide = {"name": "y", "shape": [60, 51], "datatype": "FP64", "data": [1.0] * 60 * 51}
    for name, y, response in (
        ("classes", labels, "at most 50 classes, got 60"), ("few", wide, "at most 50 outputs, got"),
        ("classes", long, "at most 256 characters, got one of 257"),
    ):  # fmt: skip
        status, found, _ = server.send("POST", f"/v2/models/{name}/learn", {"inputs": [X, y]})
        assert (status, response in found["error"]) == (400, True), found
    y = labels | {"data": ["a"] * 60}
    for part in (X, y):
        part["shape"][0], part["data"] = 50, part["data"][:50]  # type: ignore[index]
    y["data"] = list(map(str, range(50)))
    assert server.send("POST", "/v2/models/classes/learn", {"inputs": [X, y]})[0] == 200
    x = X | {"shape": [400_000, 1], "data": [1.0] * 400_000}
    status, found, _ = server.send("POST", "/v2/models/classes/infer", {"inputs": [x]})
    assert (status, "one for each class" in found["error"]) == (400, True), found
