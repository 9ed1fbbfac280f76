"""Endpoints of metadata, status and administration, and the table of all endpoints."""

import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from msgspec import Meta
from sklearn.base import is_classifier
from starlette.responses import Response

from onepass.errors import NotFoundError, ParameterError
from onepass.learners.linear import largest_coefficients
from onepass.models import pipelines
from onepass.serialization import archive
from onepass.serialization.models import dumps, from_contents
from onepass.service import page
from onepass.service.http import rows
from onepass.service.http.auth import ADMIN, LEARN, PREDICT
from onepass.service.http.openapi import Endpoint, describe
from onepass.service.http.reference import reference
from onepass.service.http.request import ServiceRequest
from onepass.service.http.responses import json_response
from onepass.service.http.rows import ARROW, CSV, JSON, NDJSON, OCTETS, media_type
from onepass.service.http.status import State, exposition, onepass_version, pathless, state
from onepass.service.protocol import mlflow, records, v2
from onepass.service.protocol.json import decoded
from onepass.service.registry import ModelServer

if TYPE_CHECKING:
    from onepass.features.pipeline import Pipeline
    from onepass.learners.estimator import Learner

# -- structs ---------------------------------------------------------------------------------------


class Live(msgspec.Struct):
    """Whether the server responds."""

    live: bool


class Ready(msgspec.Struct):
    """Whether the service can learn."""

    ready: bool


class ModelReady(msgspec.Struct):
    """Whether a learner can learn."""

    name: str
    ready: bool


class IndexEntry(msgspec.Struct):
    """Version and state of a learner."""

    name: str
    version: str
    state: Literal["READY", "UNAVAILABLE"]
    reason: str


class ModelSpecification(msgspec.Struct, forbid_unknown_fields=True):
    """A preset by name, with its task and parameters."""

    model: str
    task: Literal["regression", "classification"] = "regression"
    settings: dict[str, Any] = {}


class Rollback(msgspec.Struct, forbid_unknown_fields=True):
    """The version to restore."""

    to: Annotated[int, Meta(ge=0)]


class ModelVersion(msgspec.Struct):
    """A learner and its current version."""

    name: str
    version: Annotated[int, Meta(ge=0)]


class Coefficient(msgspec.Struct):
    """Coefficient of a feature for an output or class; null if there is one output."""

    feature: str
    output: str | None
    value: float
    standard_error: float | None


class Coefficients(msgspec.Struct):
    """Coefficients of a linear learner, the largest first; none of other learners.

    There are at most 20 of all ``features`` and ``outputs``. ``standard_error`` is null unless the
    learner is recursive least squares or a Kalman filter with at most 500 coefficients.
    """

    name: str
    version: str
    features: int
    outputs: int
    coefficients: list[Coefficient]


class RetiredModel(msgspec.Struct):
    """A learner that is no longer served, and its file."""

    name: str
    file: str


# -- health and metadata ---------------------------------------------------------------------------


async def live(_: ServiceRequest) -> Response:
    """Return whether the server responds."""
    return json_response(Live(live=True))


async def ready(request: ServiceRequest) -> Response:
    """Return whether at least one learner can learn; true also without learners."""
    registry = request.service.registry
    if registry.names and not any(served.ready for served in registry):
        registry[registry.names[0]].check_ready()  # raises
    return json_response(Ready(ready=True))


async def version(_: ServiceRequest) -> Response:
    """Return the version of onepass as text, as MLflow's clients expect."""
    return Response(onepass_version(), media_type="text/plain")


async def server_metadata(_: ServiceRequest) -> Response:
    """Return the name, version and extensions of the server."""
    return json_response(v2.ServerMetadata("onepass", onepass_version(), ["binary_tensor_data"]))


async def model_metadata(request: ServiceRequest) -> Response:
    """Return the inputs and outputs of a learner."""
    current, learner = request.served.frozen_copy(request.path_params.get("version"))
    final: Any = getattr(learner, "learner", learner)
    classes = getattr(final, "classes_", None)
    kind = "f" if classes is None else classes.dtype.kind
    metadata = v2.metadata(
        request.served.name,
        versions=[str(current)],
        learner=type(learner).__name__,
        features=_features(learner),
        datatype=_DATATYPES.get(kind, "BYTES"),
        outputs=int(getattr(final, "n_outputs_", 1)) if classes is None else 1,
        classes=(0 if classes is None else len(classes)) if is_classifier(final) else None,
        probabilities=hasattr(learner, "predict_proba"),
        recall=hasattr(learner, "recall"),
    )
    return json_response(metadata)


async def coefficients(request: ServiceRequest) -> Response:
    """Return the largest coefficients of a linear learner."""
    return json_response(await request.service.disk(partial(_coefficients, request.served)))


def _coefficients(served: ModelServer) -> Coefficients:
    version, learner = served.frozen_copy()
    outputs, features, found = largest_coefficients(learner, _LARGEST)
    final = type(getattr(learner, "learner", learner))
    if 0 < outputs * features <= _COPIED and hasattr(final, "coef_std_"):
        writer = served.writer  # a frozen copy has no standard errors
        version, learner = writer.call(lambda: (writer.published[0], writer.copied()))
        found = largest_coefficients(learner, _LARGEST)[2]
    largest = [Coefficient(*each) for each in found]
    return Coefficients(served.name, str(version), features, outputs, largest)


async def model_ready(request: ServiceRequest) -> Response:
    """Return whether a learner can learn."""
    served = request.served
    served.frozen_copy(request.path_params.get("version"))
    served.check_ready()
    return json_response(ModelReady(served.name, ready=True))


async def index(request: ServiceRequest) -> Response:
    """List all learners."""
    registry = request.service.registry
    entries = [_entry(served, registry.folder) for served in registry]
    entries += [
        IndexEntry(name, "", "UNAVAILABLE", pathless(reason, registry.folder))
        for name, reason in list(registry.failed.items())
    ]
    return json_response(entries)


def _entry(served: ModelServer, folder: Path) -> IndexEntry:
    return IndexEntry(
        served.name,
        str(served.writer.published[0]),
        "READY" if served.ready else "UNAVAILABLE",
        pathless(served.error or "", folder),
    )


_LARGEST = 20  # coefficients
_COPIED = 500  # max coefficients of a learner that is copied for their standard errors
_DATATYPES = {"i": "INT64", "u": "UINT64", "b": "BOOL", "f": "FP64"}


def _features(learner: "Learner | Pipeline") -> int | Mapping[str, str] | None:
    """Return the columns' names and types, or their number; None before the first row."""
    dtypes: Mapping[str, str] | None = getattr(learner, "dtypes_", None)
    if dtypes:
        return dtypes
    names = getattr(learner, "feature_names_in_", None)
    if names is not None:
        return {str(name): "number" for name in names}
    count = getattr(learner, "n_features_in_", None)
    return None if count is None else int(count)


# -- status ----------------------------------------------------------------------------------------


async def status(request: ServiceRequest) -> Response:
    """Return the status of all learners, which the page shows."""
    service, curves = request.service, request.query_params.getlist("curves")
    roles = service.tokens.roles(request.fields)
    content = await service.compute(partial(state, service.registry, roles, curves))
    response = json_response(content)
    response.headers["Cache-Control"] = "no-store"
    return response


async def metrics(request: ServiceRequest) -> Response:
    """Return metrics in the text format of Prometheus."""
    service = request.service
    statuses = dict(service.statuses)
    text = await service.compute(lambda: exposition(service.registry, statuses))
    return Response(text, headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"})


async def description(_: ServiceRequest) -> Response:
    """Return the OpenAPI description."""
    return json_response(describe(ENDPOINTS, onepass_version()))


async def api(_: ServiceRequest) -> Response:
    """Return the description of the API for people."""
    kind = "text/html; charset=utf-8"
    return Response(reference(ENDPOINTS, onepass_version()), headers=page.HEADERS, media_type=kind)


async def page_file(request: ServiceRequest) -> Response:
    """Return a file of the page."""
    file = page.file(request.path_params.get("file", "index.html"))
    if file is None:
        raise NotFoundError(
            "no such file of the page. Open / instead.", f"{request.url.path[:200]}"
        )
    headers = {**page.HEADERS, "ETag": file.tag, "Content-Type": file.kind}
    if request.field(b"if-none-match") == file.tag:
        return Response(status_code=304, headers=headers)
    return Response(file.body, headers=headers)


# -- administration --------------------------------------------------------------------------------

_MODEL_FILE = "application/x-onepass"
_FILE = "the model file"
_VERSION_NUMBER = re.compile("[0-9]{1,18}")
_SPECIFICATION = msgspec.json.Decoder(ModelSpecification)
_ROLLBACK = msgspec.json.Decoder(Rollback)


async def create(request: ServiceRequest) -> Response:
    """Serve a new learner, from a model file or from a preset with parameters."""
    name, registry = request.path_params["name"], request.service.registry
    kind = media_type(request.fields.get(b"content-type", b""))
    body = await request.read(text=kind == JSON)

    def created() -> int:
        if kind == _MODEL_FILE or (kind != JSON and not body.startswith(b"{")):
            model = from_contents(archive.loads(body, _FILE), _FILE, {})
        else:
            preset = decoded(_SPECIFICATION, body, request.service.limits)
            model = pipelines([preset.model], preset.task, preset.settings)[preset.model]
        return registry.create(name, model).durable.version

    return json_response(ModelVersion(name, await request.service.disk(created)), 201)


async def reopen(request: ServiceRequest) -> Response:
    """Reopen a learner that failed."""
    name, registry = request.path_params["name"], request.service.registry
    served = await request.service.disk(lambda: registry.load(name))
    return json_response(ModelVersion(name, served.durable.version))


async def retire(request: ServiceRequest) -> Response:
    """Stop serving a learner; its file is renamed."""
    name, registry = request.path_params["name"], request.service.registry
    path = await request.service.disk(lambda: registry.retire(name))
    return json_response(RetiredModel(name, path.name))


async def model_file(request: ServiceRequest) -> Response:
    """Return the file of a learner that ``op.load`` reads, by default of the current version."""
    served, given = request.served, request.path_params.get("version")
    if given is not None and not _VERSION_NUMBER.fullmatch(given):
        raise ParameterError(
            f"the version must be a number such as 12, got {given[:40]!r}. Choose a version from "
            "the oldest snapshot that /state lists to the current one."
        )
    asked = None if given is None else int(given)

    def stored() -> tuple[int, bytes]:
        current, model = served.writer.call(
            lambda: (served.durable.version, served.writer.copied(asked))
        )
        return current if asked is None else asked, dumps(model, _FILE)

    version, body = await request.service.disk(stored)
    headers = {
        "X-Onepass-Version": str(version),
        "Content-Disposition": f'attachment; filename="{served.name}-{version}.onepass"',
    }
    return Response(body, headers=headers, media_type=_MODEL_FILE)


async def snapshot(request: ServiceRequest) -> Response:
    """Take a snapshot of a learner."""
    served = request.served
    version = await request.service.disk(served.durable.snapshot)
    return json_response(ModelVersion(served.name, version))


async def rollback(request: ServiceRequest) -> Response:
    """Restore an earlier version of a learner."""
    served = request.served
    to = decoded(_ROLLBACK, await request.read(text=True), request.service.limits).to
    version = await request.service.disk(lambda: served.durable.rollback(to=to))
    return json_response(ModelVersion(served.name, version))


# -- the table -------------------------------------------------------------------------------------

_KEY = {
    "name": "Idempotency-Key", "in": "header",
    "schema": {"type": "string", "minLength": 1, "maxLength": 512},
    "description": "Requests with the same key are learned once.",
}  # fmt: skip
_LENGTH = {
    "name": "Inference-Header-Content-Length", "in": "header",
    "schema": {"type": "string", "pattern": "^[0-9]+$"},
    "description": "Length in bytes of the JSON before the binary tensors.",
}  # fmt: skip
_CURVES = {
    "name": "curves", "in": "query",
    "schema": {"type": "array", "items": {"type": "string"}},
    "description": "Learners whose curves the response includes; by default, all.",
}  # fmt: skip
_ID = {"name": "id", "shape": [1], "datatype": "BYTES", "data": ["an id that infer returned"]}
_RECORD = {"x": {"km": 3.0}, "y": 7.0}
_ONE_Y = {"name": "y", "shape": [1], "datatype": "FP64", "data": [7.0]}

_ROWS = {JSON: (v2.InferRequest, records.Record, list[records.Record]),
         NDJSON: str, OCTETS: bytes, ARROW: bytes}  # fmt: skip
_FOUND = {JSON: (v2.InferResponse, records.RecordsResponse), OCTETS: bytes, ARROW: bytes}
_TEXT = "text/plain"
_READY, _VERSION = {JSON: Ready}, {JSON: ModelVersion}
_INDEX, _METADATA = {JSON: list[IndexEntry]}, {JSON: v2.ModelMetadata}
_MODEL, _VERSIONED = "/v2/models/{name}", "/v2/models/{name}/versions/{version}"
_INFER = (
    "Predict rows; with the parameter 'await_label': true also store them until their labels "
    "arrive, which requires the role learn."
)

ENDPOINTS = [
    Endpoint("POST", f"{_MODEL}/learn", rows.learn, LEARN,
             "Learn rows; they are on disk when the response is sent.", _FOUND, _ROWS,
             example=_RECORD, parameters=[_KEY, _LENGTH]),
    Endpoint("POST", f"{_MODEL}/infer", rows.infer, PREDICT, _INFER, _FOUND, _ROWS,
             example={"x": _RECORD["x"]}, parameters=[_LENGTH]),
    Endpoint("POST", f"{_VERSIONED}/infer", rows.infer, PREDICT, _INFER, _FOUND, _ROWS,
             example={"x": _RECORD["x"]}, parameters=[_LENGTH]),
    Endpoint("POST", f"{_MODEL}/labels", rows.learn_labels, LEARN,
             "Learn rows that infer stored, from their labels: columns id and y.", _FOUND, _ROWS,
             example={"inputs": [_ID, _ONE_Y]}, parameters=[_LENGTH]),
    Endpoint("POST", "/invocations", rows.invocations, PREDICT, "Predict rows in MLflow's formats.",
             {JSON: mlflow.Predictions}, {JSON: mlflow.Invocation, CSV: str},
             example={"instances": [[3.0], [4.0]]}),
    Endpoint("GET", "/v2/health/live", live, None, "Whether the server responds.", {JSON: Live}),
    Endpoint("GET", "/v2/health/ready", ready, None,
             "Whether at least one learner can learn; true also without learners.", _READY),
    Endpoint("GET", "/ping", ready, None, "Alias of /v2/health/ready.", _READY),
    Endpoint("GET", "/health", ready, None, "Alias of /v2/health/ready.", _READY),
    Endpoint("GET", "/version", version, None, "The version of onepass.", {_TEXT: str}),
    Endpoint("GET", "/v2", server_metadata, PREDICT, "Metadata of the server.",
             {JSON: v2.ServerMetadata}),
    Endpoint("GET", _MODEL, model_metadata, PREDICT, "Inputs and outputs of a learner.",
             _METADATA),
    Endpoint("GET", _VERSIONED, model_metadata, PREDICT,
             "Inputs and outputs of the current version.", _METADATA),
    Endpoint("GET", f"{_MODEL}/coefficients", coefficients, PREDICT,
             "The largest coefficients of a linear learner.", {JSON: Coefficients}),
    Endpoint("GET", f"{_MODEL}/ready", model_ready, PREDICT, "Whether a learner can learn.",
             {JSON: ModelReady}),
    Endpoint("GET", f"{_VERSIONED}/ready", model_ready, PREDICT,
             "Whether the learner can learn; 404 if the version is not current.",
             {JSON: ModelReady}),
    Endpoint("GET", "/v2/repository/index", index, PREDICT, "List all learners.", _INDEX),
    Endpoint("POST", "/v2/repository/index", index, PREDICT,
             "List all learners, for Triton's clients.", _INDEX, {JSON: Any}, required=False),
    Endpoint("PUT", _MODEL, create, ADMIN,
             "Serve a new learner, from JSON or from a file that op.save wrote.", _VERSION,
             {JSON: ModelSpecification, _MODEL_FILE: bytes}, status=201,
             example={"model": "rls", "task": "regression", "settings": {"rls__forgetting": 0.99}}),
    Endpoint("DELETE", _MODEL, retire, ADMIN, "Stop serving a learner; its file is renamed.",
             {JSON: RetiredModel}),
    Endpoint("POST", "/v2/repository/models/{name}/load", reopen, ADMIN,
             "Reopen a learner that failed; a learner that can learn is unchanged.", _VERSION),
    Endpoint("GET", f"{_MODEL}/file", model_file, ADMIN,
             "The file of a learner, which op.load reads.", {_MODEL_FILE: bytes}),
    Endpoint("GET", f"{_VERSIONED}/file", model_file, ADMIN,
             "The file of a version since the oldest snapshot.", {_MODEL_FILE: bytes}),
    Endpoint("POST", f"{_MODEL}/snapshot", snapshot, ADMIN, "Take a snapshot.", _VERSION),
    Endpoint("POST", f"{_MODEL}/rollback", rollback, ADMIN,
             "Restore an earlier version.", _VERSION, {JSON: Rollback},
             example={"to": 0}),
    Endpoint("GET", "/state", status, PREDICT, "Status of all learners, which the page shows.",
             {JSON: State}, parameters=[_CURVES]),
    Endpoint("GET", "/metrics", metrics, PREDICT, "Metrics for Prometheus.", {_TEXT: str}),
    Endpoint("GET", "/openapi.json", description, None, "This description.",
             {JSON: dict[str, Any]}),
    Endpoint("GET", "/docs", api, None, "This description, as a page.", {"text/html": str}),
    Endpoint("GET", "/", page_file, None, "The page.", {"text/html": str}),
    Endpoint("GET", "/page/{file}", page_file, None, "Files of the page.", {"*/*": bytes}),
]  # fmt: skip
"""Route table, from which the OpenAPI description is generated; frequent paths come first."""
