"""Schemas: the bodies of requests and answers, as OpenAPI describes them."""

from typing import Any

from onepass.service.protocol.rows import OUTPUTS

__all__ = ["EXAMPLES", "NAME", "SCHEMAS", "VERSION"]

NAME = {"type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9_.-]{0,99}$"}
"""Of a learner."""

VERSION = {"type": "string", "pattern": "^[0-9]+$"}
"""Of a learner, in an address."""

_TEXT, _WHOLE, _TRUTH = {"type": "string"}, {"type": "integer", "minimum": 0}, {"type": "boolean"}
_NUMBER_OR_NOTHING = {"type": ["number", "null"]}
_ANYTHING: dict[str, Any] = {}
_DATATYPE = {
    "enum": ["BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64",
             "FP16", "FP32", "FP64", "BYTES"]
}  # fmt: skip
_SHAPE = {"type": "array", "items": _WHOLE, "minItems": 1, "maxItems": 2}
_VALUE = {"type": ["boolean", "number", "string", "null"]}


def _object(required: str, /, *, closed: bool = False, **more: Any) -> dict[str, Any]:
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
    properties = {**{name: more.get(name, _TEXT) for name in names}, **more}
    found = {"type": "object", "required": names, "properties": properties}
    return {**found, "additionalProperties": False} if closed else found


def _list(of: Any) -> dict[str, Any]:
    return {"type": "array", "items": of}


def _or_null(schema: dict[str, Any]) -> dict[str, Any]:
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
    parameters=_TEXT, ready=_TRUTH, trouble={"type": ["string", "null"]}, version=_WHOLE,
    rows_seen=_WHOLE,
    rows_refused=_WHOLE, nbytes=_WHOLE, waiting=_WHOLE, error=_ERROR,
    rates=_object("learned predicted curve", learned=_NUMBER_OR_NOTHING,
                  predicted=_NUMBER_OR_NOTHING, curve=_list(_list(_NUMBER_OR_NOTHING))),
    latency={"type": "object"}, spectrum={"type": ["array", "null"], "items": {"type": "number"}},
    drift=_list(_object("rows at detector", rows=_WHOLE, at={"type": "number"})),
    refused=_list(_object("at rows why", at={"type": "number"}, rows=_WHOLE)),
    snapshots=_list(_object("version rows_seen at why nbytes", version=_WHOLE, rows_seen=_WHOLE,
                            at={"type": "number"}, nbytes=_WHOLE)),
    positions={"type": "object", "additionalProperties": _TEXT},
)  # fmt: skip
_PART = _object(
    "name datatype shape", datatype=_DATATYPE, shape=_list({"type": "integer", "minimum": -1})
)

SCHEMAS: dict[str, Any] = {
    "Any": {},
    "Text": _TEXT,
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
        id=_TEXT,
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
    "Server": _object("name version extensions", extensions=_list(_TEXT)),
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
