"""Metadata of the server and its models."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from onepass.errors import NotFoundError
from onepass.service.protocol import v2


def tensor(name: str, datatype: str, *shape: int, **more: Any) -> dict[str, Any]:
    return {"name": name, "datatype": datatype, "shape": list(shape)} | more


def test_metadata_of_an_unfitted_model() -> None:
    metadata = msgspec.to_builtins(v2.metadata("flow", versions=["0"], learner="RLSRegressor"))
    assert metadata == {
        "name": "flow", "versions": ["0"], "platform": "onepass_RLSRegressor",
        "inputs": [tensor("X", "FP64", -1, -1)], "outputs": [tensor("y", "FP64", -1)],
    }  # fmt: skip


def test_metadata_of_a_model_of_rows_without_names() -> None:
    reply = v2.metadata("flow", versions=["7"], learner="RLSRegressor", features=3, outputs=2)
    metadata = msgspec.to_builtins(reply)
    assert metadata["inputs"] == [tensor("X", "FP64", -1, 3)]
    assert metadata["outputs"] == [tensor("y", "FP64", -1, 2)]


def test_metadata_of_a_classifier_of_named_columns() -> None:
    reply = v2.metadata(
        "late",
        versions=["7"],
        learner="Pipeline",
        features={"speed": "number", "wet": "bool", "gear": "text", "at": "date"},
        datatype="BYTES",
        classes=2,
        probabilities=True,
    )
    metadata = msgspec.to_builtins(reply)
    assert metadata["inputs"] == [
        tensor("speed", "FP64", -1), tensor("wet", "BOOL", -1), tensor("gear", "BYTES", -1),
        tensor("at", "BYTES", -1, parameters={"content_type": "datetime"}),
    ]  # fmt: skip
    assert metadata["outputs"] == [
        tensor("y", "BYTES", -1), tensor("probabilities", "FP64", -1, 2),
        tensor("classes", "BYTES", 2),
    ]  # fmt: skip


def test_error_responses_escape_any_text() -> None:
    responses = pytest.importorskip("onepass.service.http.responses")
    error = NotFoundError('no "such" model: \ud800 🚗\n')
    response = responses.ErrorResponses(Path())(error, "id", "GET /")
    assert response.media_type == "application/json"
    assert json.loads(response.body) == {"error": 'no "such" model: \\ud800 🚗\n'}
