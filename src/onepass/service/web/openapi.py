"""OpenAPI: what the service can be asked, described for programs and for people."""

from collections.abc import Mapping
from typing import Any

from onepass.service.web.schemas import EXAMPLES, NAME, SCHEMAS, VERSION

__all__ = ["DESCRIBED", "described"]

_JSON, _TEXT = "application/json", "text/plain"
_OCTETS, _ARROW = "application/octet-stream", "application/vnd.apache.arrow.stream"
_TENSORS = {_JSON: "InferRequest", _OCTETS: "Binary", _ARROW: "Binary"}
_TOLD = {_JSON: "InferResponse", _OCTETS: "Binary", _ARROW: "Binary"}
_READY, _AT, _MODEL_TOLD = {_JSON: "Ready"}, {_JSON: "At"}, {_JSON: "Model"}

_KEY = {
    "name": "Idempotency-Key", "in": "header",
    "schema": {"type": "string", "minLength": 1, "maxLength": 512},
    "description": "A request that is sent again with the same key is learned once.",
}  # fmt: skip
_LENGTH = {
    "name": "Inference-Header-Content-Length", "in": "header",
    "schema": {"type": "string", "pattern": "^[0-9]+$"},
    "description": "How many bytes of JSON come before the binary tensors.",
}  # fmt: skip
_FAILURES = {
    "400": "The request is wrong: the message says where, and what to do.",
    "401": "No token came, or an unknown one.",
    "403": "The token has not the role; or, without tokens, the request is not of this machine.",
    "404": "There is no such learner, or not in this version.",
    "405": "There is something at the path, but not by this method.",
    "408": "The request did not come in time.",
    "409": "The key came with another request, or the name is taken.",
    "413": "The body is too long.",
    "429": "Too many rows wait to be learned or for their labels, or the bodies of all requests "
    "are too long together. Retry after the seconds of Retry-After.",
    "431": "The headers are too long.",
    "500": "The server has failed; its log tells why.",
    "501": "What was asked for needs a package that the server has not.",
    "503": "The learner cannot learn, or the service is being stopped; or rows are not known to be "
    "on the disk yet, and may be learned: ask again with the same key.",
    "507": "The disk is full: nothing of the request was learned.",
}
_MODEL, _VERSIONED = "/v2/models/{name}", "/v2/models/{name}/versions/{version}"
_NAMED = {"{name}": NAME, "{version}": VERSION, "{file}": {"type": "string"}}
_Kinds = Mapping[str, str]
_INFER = ("Predictions; with the parameter 'ask': true also ids, which needs the role learn.",
          "predict", _TENSORS, _TOLD)  # fmt: skip

DESCRIBED: Mapping[tuple[str, str], tuple[str, str | None, _Kinds | None, _Kinds]] = {
    ("POST", f"{_MODEL}/infer"): _INFER,
    ("POST", f"{_VERSIONED}/infer"): _INFER,
    ("POST", f"{_MODEL}/learn"): (
        "Learn rows: they are on the disk when it is answered.", "learn", _TENSORS, _TOLD),
    ("POST", f"{_MODEL}/answers"): (
        "Answers for rows that were asked: tensors id and y.", "learn", _TENSORS, _TOLD),
    ("POST", "/invocations"): (
        "MLflow's convention.", "predict", {_JSON: "Invocation", "text/csv": "Text"},
        {_JSON: "Predictions"}),
    ("GET", "/v2"): ("What the server is.", "predict", None, {_JSON: "Server"}),
    ("GET", "/v2/health/live"): ("Whether it answers.", None, None, {_JSON: "Live"}),
    ("GET", "/v2/health/ready"): (
        "Whether at least one learner can learn, or none exists.", None, None, _READY),
    ("GET", "/ping"): ("The same.", None, None, _READY),
    ("GET", "/health"): ("The same.", None, None, _READY),
    ("GET", "/version"): ("The version of onepass.", None, None, {_TEXT: "Text"}),
    ("GET", _MODEL): ("What a learner takes and gives.", "predict", None, _MODEL_TOLD),
    ("GET", _VERSIONED): (
        "The same, of the present version.", "predict", None, _MODEL_TOLD),
    ("GET", f"{_MODEL}/ready"): ("Whether it can learn.", "predict", None, _READY),
    ("GET", f"{_VERSIONED}/ready"): (
        "The same, of the present version.", "predict", None, _READY),
    ("GET", "/v2/repository/index"): (
        "Which learners there are.", "predict", None, {_JSON: "Index"}),
    ("POST", "/v2/repository/index"): (
        "The same, as Triton's clients ask.", "predict", {_JSON: "Any"}, {_JSON: "Index"}),
    ("PUT", _MODEL): (
        "Serve a new learner: JSON, or a file that op.save wrote.", "admin",
        {_JSON: "Making", "application/x-onepass": "Binary"}, _AT),
    ("DELETE", _MODEL): (
        "Serve it no longer; its file is kept.", "admin", None, {_JSON: "Kept"}),
    ("POST", "/v2/repository/models/{name}/load"): (
        "Reopen a learner that failed; a learner that works is unchanged.", "admin", None, _AT),
    ("POST", f"{_MODEL}/snapshot"): ("Take a snapshot now.", "admin", None, _AT),
    ("POST", f"{_MODEL}/rollback"): (
        "Be again as after a version.", "admin", {_JSON: "Going"}, _AT),
    ("GET", "/state"): ("What the page shows.", "predict", None, {_JSON: "State"}),
    ("GET", "/metrics"): ("Gauges, for Prometheus.", "predict", None, {_TEXT: "Text"}),
    ("GET", "/openapi.json"): ("This description.", None, None, {_JSON: "Description"}),
    ("GET", "/"): ("The page.", None, None, {"text/html": "Text"}),
    ("GET", "/page/{file}"): ("Its parts.", None, None, {"*/*": "Binary"}),
}  # fmt: skip
"""By method and path: what it does, the role that it needs, and the kinds of body and answer."""


def described(version: str) -> dict[str, Any]:
    """The service by OpenAPI 3.1.

    Parameters
    ----------
    version : str
        Of onepass.
    """
    paths: dict[str, Any] = {}
    for (method, path), told in DESCRIBED.items():
        paths.setdefault(path, {})[method.lower()] = _operation(method, path, *told)
    return {
        "openapi": "3.1.0",
        "info": {"title": "onepass", "version": version,
                 "description": "Learners that learn while they answer, and lose nothing. Infer is "
                 "the Open Inference Protocol, version 2, with its binary tensor extension."},
        "paths": paths,
        "components": {
            "schemas": SCHEMAS,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }  # fmt: skip


def _operation(
    method: str, path: str, told: str, role: str | None, body: _Kinds | None, answer: _Kinds
) -> dict[str, Any]:
    parameters = [
        {"name": word[1:-1], "in": "path", "required": True, "schema": _NAMED[word]}
        for word in path.split("/")
        if word.startswith("{")
    ]
    headers = [_KEY] * path.endswith("/learn") + [_LENGTH] * (body is _TENSORS)
    made = (method, path) == ("PUT", _MODEL)
    responses = {
        "201" if made else "200": {"description": "Done.", "content": _content(answer)},
        **{status: {"description": why, "content": _content({_JSON: "Error"})}
           for status, why in _FAILURES.items()},
    }  # fmt: skip
    operation: dict[str, Any] = {
        "summary": told,
        "parameters": [*parameters, *headers],
        "responses": responses,
        "security": [] if role is None else [{"token": [role]}],
    }
    if body is not None:
        required = path != "/v2/repository/index"
        content = _content(body)
        example = EXAMPLES.get("PUT" if made else path.rpartition("/")[2])
        if example is not None:
            content[_JSON]["example"] = example
        operation["requestBody"] = {"required": required, "content": content}
    return operation


def _content(kinds: _Kinds) -> dict[str, Any]:
    return {
        kind: {"schema": {"$ref": f"#/components/schemas/{schema}"}}
        for kind, schema in kinds.items()
    }
