"""OpenAPI description of the service, with the schemas of requests and responses."""

from collections.abc import Mapping
from typing import Any

from onepass.service.protocol.rows import OUTPUTS

__all__ = ["DESCRIBED", "EXAMPLES", "NAME", "SCHEMAS", "VERSION", "described"]


NAME = {"type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9_.-]{0,99}$"}
"""Of a learner."""

VERSION = {"type": "string", "pattern": "^[0-9]+$"}
"""Of a learner, in an address."""

_STRING, _WHOLE, _TRUTH = {"type": "string"}, {"type": "integer", "minimum": 0}, {"type": "boolean"}
_NUMBER_OR_NOTHING = {"type": ["number", "null"]}
_ANYTHING: dict[str, Any] = {}
_DATATYPE = {
    "enum": ["BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64",
             "FP16", "FP32", "FP64", "BYTES"]
}  # fmt: skip
_SHAPE = {"type": "array", "items": _WHOLE, "minItems": 1, "maxItems": 2}
_VALUE = {"type": ["boolean", "number", "string", "null"]}


def _object(required: str, /, *, closed: bool = False, **more: object) -> dict[str, Any]:
    """An object.

    Parameters
    ----------
    required : str
        The names of the properties that are always there.
    closed : bool, default False
        Whether there are no others than those that are named.
    **more
        What each property is; text, if nothing is said of one.
    """
    names = required.split()
    properties = {**{name: more.get(name, _STRING) for name in names}, **more}
    found = {"type": "object", "required": names, "properties": properties}
    return {**found, "additionalProperties": False} if closed else found


def _list(of: object) -> dict[str, Any]:
    return {"type": "array", "items": of}


def _or_null(schema: Mapping[str, object]) -> dict[str, Any]:
    return {"anyOf": [schema, {"type": "null"}]}


def _ref(name: str) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{name}"}


_SAID = {
    "type": ["object", "null"],
    "properties": {
        "binary_data_size": {"type": ["integer", "null"], "minimum": 0},
        "content_type": {"type": ["string", "null"]},
        "shared_memory_region": {"type": "null"},
    },
}
_WANTED = {
    "type": ["object", "null"],
    "properties": {
        "binary_data": {"type": ["boolean", "null"]},
        "classification": {"enum": [0, None]},
        "shared_memory_region": {"type": "null"},
    },
}
_ASKED = {
    "type": ["object", "null"],
    "additionalProperties": _VALUE,
    "properties": {
        "ask": {"type": "boolean", "description": "Whether the rows wait for their answers."},
        "seconds": {**_VALUE, "description": "With ask: how long rows wait, 0 to 2,592,000."},
        "binary_data_output": _TRUTH,
    },
}
_ERROR = _object(
    "name all window window_rows curve",
    all=_NUMBER_OR_NOTHING, window=_NUMBER_OR_NOTHING, window_rows=_WHOLE,
    curve=_list(_list(_NUMBER_OR_NOTHING)),
)  # fmt: skip
_STATE_OF_ONE = _object(
    "name ready trouble",  # alone if the file cannot be opened
    parameters=_STRING, ready=_TRUTH, trouble={"type": ["string", "null"]}, version=_WHOLE,
    rows_seen=_WHOLE,
    rows_refused=_WHOLE, nbytes=_WHOLE, waiting=_WHOLE, error=_ERROR,
    rates=_object("learned predicted curve", learned=_NUMBER_OR_NOTHING,
                  predicted=_NUMBER_OR_NOTHING, curve=_list(_list(_NUMBER_OR_NOTHING))),
    latency={"type": "object"},
    drift=_list(_object("rows at detector", rows=_WHOLE, at={"type": "number"})),
    refused=_list(_object("at rows why", at={"type": "number"}, rows=_WHOLE)),
    snapshots=_list(_object("version rows_seen at why nbytes", version=_WHOLE, rows_seen=_WHOLE,
                            at={"type": "number"}, nbytes=_WHOLE)),
    positions={"type": "object", "additionalProperties": _STRING},
)  # fmt: skip
_PART = _object(
    "name datatype shape", datatype=_DATATYPE, shape=_list({"type": "integer", "minimum": -1})
)

SCHEMAS: dict[str, Any] = {
    "Any": {},
    "Text": _STRING,
    "Binary": {"type": "string", "format": "binary"},
    "InferRequest": _object(
        "inputs",
        id={"type": ["string", "null"]},
        parameters=_ASKED,
        inputs=_list(
            _object("name shape datatype", shape=_SHAPE, datatype=_DATATYPE, parameters=_SAID,
                    data=_or_null(_list(_ANYTHING)))
        )
        | {"minItems": 1},
        outputs=_or_null(
            _list(_object("name", name={"enum": list(OUTPUTS)}, parameters=_WANTED))
        ),
    ),
    "InferResponse": _object(
        "model_name model_version outputs",
        model_version=VERSION,
        id=_STRING,
        outputs=_list(
            _object("name shape datatype", shape=_SHAPE, datatype=_DATATYPE, data=_list(_VALUE),
                    parameters={"type": "object"})
        ),
    ),
    "Invocation": {
        "type": "object",
        "description": "Rows under one of these names.",
        "properties": {
            "dataframe_split": {"type": ["object", "null"]},
            "dataframe_records": _list({"type": "object"}),
            "instances": {"type": ["array", "object"]},
            "inputs": {"type": ["array", "object"]},
            "params": {"type": ["object", "null"], "additionalProperties": _VALUE},
        },
    },
    "Predictions": _object("predictions", predictions=_list({})),
    "Server": _object("name version extensions", extensions=_list(_STRING)),
    "Live": _object("live", live={"const": True}),
    "Ready": _object("ready", ready={"const": True}),
    "Model": _object(
        "name versions platform inputs outputs",
        versions=_list(VERSION), inputs=_list(_PART), outputs=_list(_PART),
    ),
    "Index": _list(_object("name version state reason",
                           version={"type": "string", "pattern": "^[0-9]*$"},
                           state={"enum": ["READY", "UNAVAILABLE"]})),
    "State": _object("now onepass models", now={"type": "number"}, models=_list(_STATE_OF_ONE)),
    "Making": _object("model", closed=True, task={"enum": ["regression", "classification"]},
                      settings={"type": "object"}),
    "Going": _object("to", closed=True, to=_WHOLE),
    "At": _object("name version", version=_WHOLE),
    "Kept": _object("name kept"),
    "Description": _object("openapi info paths components", info={"type": "object"},
                           paths={"type": "object"}, components={"type": "object"}),
    "Error": _object("error"),
}  # fmt: skip
"""By the names by which the description refers to them."""

_ROWS = {"name": "X", "shape": [2, 1], "datatype": "FP64", "data": [3.0, 4.0]}
_ANSWERS = {"name": "y", "shape": [2], "datatype": "FP64", "data": [7.0, 9.0]}

EXAMPLES: dict[str, Any] = {
    "infer": {"inputs": [_ROWS]},
    "learn": {"inputs": [_ROWS, _ANSWERS]},
    "answers": {
        "inputs": [
            {"name": "id", "shape": [1], "datatype": "BYTES", "data": ["an id that infer gave"]},
            {"name": "y", "shape": [1], "datatype": "FP64", "data": [7.0]},
        ]
    },
    "invocations": {"instances": [[3.0], [4.0]]},
    "PUT": {"model": "rls", "task": "regression", "settings": {"rls.forgetting": 0.99}},
    "rollback": {"to": 0},
}
"""Bodies of JSON, by the last part of the path."""

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
