"""Schemas: the bodies of requests and answers, as OpenAPI describes them."""

from typing import Any

__all__ = ["SCHEMAS"]

_TENSOR = {
    "type": "object",
    "required": ["name", "shape", "datatype"],
    "properties": {
        "name": {"type": "string"},
        "shape": {"type": "array", "items": {"type": "integer", "minimum": 0}},
        "datatype": {"enum": ["BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16",
                              "INT32", "INT64", "FP16", "FP32", "FP64", "BYTES"]},
        "parameters": {"type": "object"},
        "data": {"type": "array", "items": {}},
    },
}  # fmt: skip

SCHEMAS: dict[str, Any] = {
    "Any": {},
    "Text": {"type": "string"},
    "Binary": {"type": "string", "format": "binary"},
    "Tensor": _TENSOR,
    "InferRequest": {
        "type": "object",
        "required": ["inputs"],
        "properties": {
            "id": {"type": "string"},
            "parameters": {
                "type": "object",
                "properties": {
                    "ask": {"type": "boolean"},
                    "seconds": {"type": "number", "minimum": 0},
                    "binary_data_output": {"type": "boolean"},
                },
            },
            "inputs": {"type": "array", "items": {"$ref": "#/components/schemas/Tensor"}},
            "outputs": {"type": "array", "items": {"type": "object"}},
        },
    },
    "InferResponse": {
        "type": "object",
        "required": ["model_name", "model_version", "outputs"],
        "properties": {
            "model_name": {"type": "string"},
            "model_version": {"type": "string"},
            "id": {"type": "string"},
            "outputs": {"type": "array", "items": {"$ref": "#/components/schemas/Tensor"}},
        },
    },
    "Making": {
        "type": "object",
        "required": ["model"],
        "additionalProperties": False,
        "properties": {
            "model": {"type": "string"},
            "task": {"enum": ["regression", "classification"]},
            "settings": {"type": "object"},
        },
    },
    "Going": {
        "type": "object",
        "required": ["to"],
        "additionalProperties": False,
        "properties": {"to": {"type": "integer", "minimum": 0}},
    },
    "Error": {
        "type": "object",
        "required": ["error"],
        "properties": {"error": {"type": "string"}},
    },
}
"""By the names by which the description refers to them."""
