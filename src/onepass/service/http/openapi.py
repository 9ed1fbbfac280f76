"""OpenAPI description of the service, generated from its route table and structs."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
from starlette.responses import Response

from onepass.service.protocol.v2 import ErrorResponse

_Bodies = Mapping[str, Any]


class Endpoint(NamedTuple):
    """Operation of the service: an entry of the route table and of the description."""

    method: str
    path: str
    handler: Callable[..., Awaitable[Response]]
    role: str | None
    """Role that a token must have; None if no token is required."""
    summary: str
    response: _Bodies
    """Type, or tuple of types, of each media type; str is text, bytes are binary."""
    request: _Bodies | None = None
    required: bool = True
    """Whether the request must have a body."""
    example: Any = None
    status: int = 200
    parameters: Sequence[Mapping[str, Any]] = ()
    """Headers and query parameters of the request, as OpenAPI parameter objects."""


_JSON = "application/json"
_PARAMETERS = {
    "name": {"type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9_.-]{0,99}$"},
    "version": {"type": "string", "pattern": "^[0-9]+$"},
    "file": {"type": "string"},
}
_ERRORS = {
    "400": "The request is invalid; the message states the location and the remedy.",
    "401": "The token is missing or unknown.",
    "403": "The token lacks the role; or the service has no tokens, and the request has another "
    "origin.",
    "404": "There is no such endpoint, learner or version.",
    "405": "The endpoint does not support the method.",
    "408": "The request did not arrive in time.",
    "409": "The key was used for a different request, or the name is in use.",
    "413": "The body is too long.",
    "429": "Too many rows are queued or wait for their labels, or the bodies of all concurrent "
    "requests are too large. Retry after the number of seconds in Retry-After.",
    "431": "The headers are too long.",
    "500": "The server failed; its log contains the cause with the request id.",
    "501": "A package that the request requires is not installed.",
    "503": "The learner cannot learn, or the service is being stopped; or the commit of the rows "
    "has not finished and may still succeed: retry with the same key.",
    "507": "The disk is full; no row of the request was learned.",
}


def describe(endpoints: Sequence[Endpoint], version: str) -> dict[str, Any]:
    """Return the OpenAPI 3.1 description.

    Parameters
    ----------
    endpoints : sequence of Endpoint
    version : str
        Version of onepass.
    """
    kinds: dict[Any, Any] = {str: {"type": "string"}, bytes: {"type": "string", "format": "binary"}}
    bodies = [{_JSON: ErrorResponse}, *(each.response for each in endpoints),
              *(each.request or {} for each in endpoints)]  # fmt: skip
    types = list(dict.fromkeys(
        kind for body in bodies for value in body.values() for kind in _alternatives(value)
        if kind not in kinds
    ))  # fmt: skip
    schemas, components = msgspec.json.schema_components(
        types, ref_template="#/components/schemas/{name}"
    )
    kinds.update(zip(types, schemas, strict=True))
    paths: dict[str, Any] = {}
    for each in endpoints:
        paths.setdefault(each.path, {})[each.method.lower()] = _operation(each, kinds)
    return {
        "openapi": "3.1.0",
        "info": {"title": "onepass", "version": version,
                 "description": "Online learners, which predict while they learn and lose no "
                 "acknowledged row. The infer endpoints implement the Open Inference Protocol, "
                 "version 2, with its binary tensor extension."},
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }  # fmt: skip


def _alternatives(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


def _content(body: _Bodies, kinds: Mapping[Any, Any]) -> dict[str, Any]:
    content = {}
    for media_type, value in body.items():
        schemas = [kinds[kind] for kind in _alternatives(value)]
        content[media_type] = {"schema": schemas[0] if len(schemas) == 1 else {"anyOf": schemas}}
    return content


def _operation(endpoint: Endpoint, kinds: Mapping[Any, Any]) -> dict[str, Any]:
    names = [part[1:-1] for part in endpoint.path.split("/") if part.startswith("{")]
    success = {"description": "Success.", "content": _content(endpoint.response, kinds)}
    error = _content({_JSON: ErrorResponse}, kinds)
    operation: dict[str, Any] = {
        "summary": endpoint.summary,
        "parameters": [
            *({"name": name, "in": "path", "required": True, "schema": _PARAMETERS[name]}
              for name in names),
            *endpoint.parameters,
        ],
        "responses": {str(endpoint.status): success, **{
            status: {"description": text, "content": error} for status, text in _ERRORS.items()
        }},
        "security": [] if endpoint.role is None else [{"token": [endpoint.role]}],
    }  # fmt: skip
    if endpoint.request is not None:
        content = _content(endpoint.request, kinds)
        if endpoint.example is not None:
            content[_JSON]["example"] = endpoint.example
        operation["requestBody"] = {"required": endpoint.required, "content": content}
    return operation
