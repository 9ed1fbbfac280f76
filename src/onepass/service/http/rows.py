"""Endpoints for rows: predict, learn, delayed labels, and MLflow's ``/invocations``.

Requests and responses have the formats of :mod:`onepass.service.protocol`. Small requests are
decoded, predicted and encoded in the event loop; large requests in a thread. A request to learn is
queued for the writer's thread, and its response is sent when the rows are on disk.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
from numpy.linalg import LinAlgError
from starlette.responses import Response

from onepass.errors import OnepassError, ParameterError, RequestError
from onepass.service.http.auth import LEARN
from onepass.service.http.request import ServiceRequest
from onepass.service.http.responses import sent
from onepass.service.model import predict_rows
from onepass.service.protocol import arrow, mlflow, records, v2
from onepass.service.protocol.rows import (
    DEFAULT_OUTPUTS,
    ROLES,
    DecodedRequest,
    EncodedResponse,
    Output,
)
from onepass.service.registry import ModelServer
from onepass.service.requests import LearnResult, Request
from onepass.service.writer import DAY
from onepass.types import Array
from onepass.validation.arrays import feature_limit
from onepass.validation.table import Table

if TYPE_CHECKING:
    from onepass.features.pipeline import Pipeline
    from onepass.learners.estimator import Learner

JSON, OCTETS, CSV = "application/json", "application/octet-stream", "text/csv"
NDJSON, ARROW = "application/x-ndjson", "application/vnd.apache.arrow.stream"

_T = TypeVar("_T")
_HEADER = b"inference-header-content-length"
_IN_LOOP = 2e-3  # seconds that a prediction may take in the event loop
_OVERHEAD = 8  # rows whose prediction takes as long as the fixed part of a request


class _Format(NamedTuple):
    """Decoder of requests and encoder of responses."""

    read: Callable[..., DecodedRequest]
    write: Callable[..., EncodedResponse]

    def response(
        self,
        name: str,
        version: int,
        decoded: DecodedRequest,
        outputs: Mapping[str, Array],
        *,
        repeated: bool = False,
    ) -> Response:
        """Encode outputs of a learner; ``repeated`` if the rows were learned before."""
        headers = {"X-Onepass-Version": str(version)}
        if repeated:
            headers["Idempotent-Replayed"] = "true"
        return sent(self.write(decoded, outputs, model=name, version=str(version)), headers)


_V2 = _Format(v2.read, v2.write)
_RECORDS = _Format(records.read, records.write)
_NDJSON = _Format(partial(records.read, ndjson=True), records.write)
_ARROW = _Format(arrow.read, arrow.write)
_CSV = _Format(mlflow.read_csv, mlflow.write)
_MLFLOW = _Format(mlflow.read, mlflow.write)


@lru_cache(maxsize=64)
def media_type(content_type: bytes) -> str:
    """Return the media type of a Content-Type header, without parameters."""
    return content_type[:128].partition(b";")[0].strip().lower().decode("latin-1")


async def _decoded(
    request: ServiceRequest, *, learning: bool, scoring: bool = False, texts: Sequence[str] = ()
) -> tuple[_Format, DecodedRequest]:
    """Read and decode a request; return its format and rows.

    A body without a content type, or with an unknown one, is parsed as JSON, as many clients send
    no content type. ``scoring`` is True for MLflow's ``/invocations``, and
    ``texts`` are the columns that are text in CSV.
    """
    limits = request.service.limits
    kind = media_type(request.fields.get(b"content-type", b""))
    header = request.field(_HEADER)
    text = kind != ARROW and (kind != CSV if scoring else header is None)
    body = await request.read(text=text)
    form: _Format | None = None  # None: _V2 or _RECORDS, depending on the body
    if kind == ARROW:
        form = _ARROW
    elif scoring:
        csv = _CSV._replace(read=partial(mlflow.read_csv, texts=texts))
        form = csv if kind == CSV else _MLFLOW
    elif header is not None:
        form = _V2._replace(read=partial(v2.read, header=header))
    elif kind == NDJSON:
        form = _NDJSON
    request.large |= kind == ARROW  # compression: a short body may contain many rows

    def read() -> tuple[_Format, DecodedRequest]:
        chosen = form or (_RECORDS if records.is_records(body) else _V2)
        role = {} if scoring else {"learning": learning}
        return chosen, chosen.read(body, limits, **role)

    return await _run(request, read)


async def _run(request: ServiceRequest, work: Callable[[], _T]) -> _T:
    """Run a function; in a thread if the request is large."""
    return await request.service.compute(work) if request.large else work()


class _RowErrors:
    """Convert errors of scikit-learn, NumPy or a user's feature to errors of the request.

    A class, as a context manager from a generator would delay every request.
    """

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, at: object) -> None:
        if isinstance(error, (TypeError, ValueError)) and not isinstance(
            error,
            (OnepassError, LinAlgError),  # a LinAlgError is not an error of the rows
        ):
            got = str(error).rstrip(".")
            raise RequestError(
                f"the rows must be valid input of the learner, got: {got}. Correct the rows.",
                self.name,
            ) from error


# -- predict ---------------------------------------------------------------------------------------


async def infer(request: ServiceRequest) -> Response:
    """Predict the rows of a request; with ``await_label`` also store them."""
    return await _predict(request, request.served, request.path_params.get("version"))


async def invocations(request: ServiceRequest) -> Response:
    """Predict the rows of a request in MLflow's formats."""
    service = request.service
    name, names = service.default_model, service.registry.names
    if name is None and len(names) != 1:
        raise ParameterError(
            f"/invocations requires exactly one learner, or a default, got {len(names)} learners. "
            "Start the service with --default-model NAME, or use /v2/models/NAME/infer."
        )
    return await _predict(request, service.registry[name or names[0]], scoring=True)


async def _predict(
    request: ServiceRequest,
    served: ModelServer,
    version: str | None = None,
    *,
    scoring: bool = False,
) -> Response:
    began = time.perf_counter()
    types = getattr(served.frozen_copy(version)[1], "dtypes_", {}) if scoring else {}
    texts = [name for name, kind in types.items() if kind == "text"]
    form, decoded = await _decoded(request, learning=False, scoring=scoring, texts=texts)
    current, learner = served.frozen_copy(version)
    decoded.rows = replace(decoded.rows, X=_without_roles(learner, decoded.rows.X))
    if served.schema is not None:
        served.schema.check(decoded.rows.X, None)
    if _awaits_labels(decoded.parameters, allowed=not scoring):
        what = "infer with 'await_label', which stores rows"
        request.service.tokens.check(request.fields, LEARN, what)
        return await _predict_pending(request, served, form, decoded, began)
    rows = len(decoded.rows)

    def predicted() -> Response:
        start = time.thread_time()
        with _RowErrors(served.name), feature_limit(served.writer.policy.max_features):
            outputs = _outputs(learner, decoded)
        response = form.response(served.name, current, decoded, outputs)
        seconds_per_row = (time.thread_time() - start) / (rows + _OVERHEAD)
        served.seconds_per_row = max(seconds_per_row, served.seconds_per_row / 2)
        served.gauges.observe_predict(rows, time.perf_counter() - began)
        return response

    request.large = request.large or served.seconds_per_row * (rows + _OVERHEAD) > _IN_LOOP
    return await _run(request, predicted)


async def _predict_pending(
    request: ServiceRequest,
    served: ModelServer,
    form: _Format,
    decoded: DecodedRequest,
    began: float,
) -> Response:
    """Predict rows and store them until their labels arrive."""
    seconds = (decoded.parameters or {}).get("seconds", DAY)
    work = partial(served.writer.predict_pending, decoded.rows.X, seconds)
    version, predictions, ids = await _written(request, served, len(decoded.rows), work)
    served.gauges.observe_predict(len(ids), time.perf_counter() - began)
    outputs = {"y": predictions, "id": np.array(ids, dtype=object)}
    requested = [output for output in decoded.outputs if output.name == "y"] or DEFAULT_OUTPUTS
    decoded.outputs = (*requested, Output("id", requested[0].binary))
    return await _run(request, lambda: form.response(served.name, version, decoded, outputs))


async def _written(
    request: ServiceRequest, served: ModelServer, count: int, work: Callable[[], _T]
) -> _T:
    """Write rows with delayed labels in a thread, and wait until they are on the disk."""
    service = request.service
    with _RowErrors(served.name):
        result = asyncio.shield(service.disk(served.admit(count, work)))
        return await service.committed(result, served.name)


def _outputs(learner: Any, decoded: DecodedRequest) -> dict[str, Array]:
    """Return the requested outputs."""
    if decoded.outputs is DEFAULT_OUTPUTS or [output.name for output in decoded.outputs] == ["y"]:
        return {"y": predict_rows(learner, decoded.rows.X)}
    X, requested = decoded.rows.X, {output.name for output in decoded.outputs}
    for names, needed, method in (
        (("probabilities", "classes"), "a learner with probabilities", "predict_proba"),
        (("recall",), "a mixture with least squares of all rows", "recall"),
    ):
        if requested.intersection(names) and not hasattr(learner, method):
            raise ParameterError(
                f"`outputs` may be {' and '.join(map(repr, names))} only for {needed}, "
                f"got {type(learner).__name__}. Request 'y' only."
            )
    made: dict[str, Callable[[], Array]] = {
        "y": lambda: predict_rows(learner, X),
        "probabilities": lambda: learner.predict_proba(X),
        "classes": lambda: learner.classes_,
        "recall": lambda: learner.recall(X),
    }
    return {name: made[name]() for name in requested}


def _without_roles(learner: Learner | Pipeline, X: Array | Table) -> Array | Table:
    """Remove y, sample_weight and time from rows, except fitted features of these names."""
    if not isinstance(X, Table) or set(ROLES).isdisjoint(X.columns):
        return X
    fitted: Any = getattr(learner, "dtypes_", None) or getattr(learner, "feature_names_in_", ())
    columns = {name: X[name] for name in X.names if name not in ROLES or name in fitted}
    return Table(columns, len(X)) if columns else X


def _awaits_labels(parameters: Mapping[str, object] | None, *, allowed: bool) -> bool:
    """Return whether the rows of a request must be stored until their labels arrive.

    Unknown parameters are ignored, as they may concern other servers of the protocol. In the wrong
    place ``await_label`` and ``seconds`` are rejected, as the rows would not be stored.
    """
    if not parameters:
        return False
    awaits = parameters.get("await_label", False)
    if not isinstance(awaits, bool):
        raise ParameterError(
            f"the parameter 'await_label' must be true or false, got {awaits!r:.40}. Send one of "
            "these."
        )
    if awaits and not allowed:
        raise ParameterError(
            "the parameter 'await_label' must be sent to infer, got it at another endpoint. Send "
            "the rows to /v2/models/NAME/infer, and their labels with the returned ids to "
            "/v2/models/NAME/labels."
        )
    if "seconds" in parameters and not awaits:
        raise ParameterError(
            "the parameter 'seconds' must be sent with 'await_label', got it alone. Add "
            "\"await_label\": true in a request to infer, or leave 'seconds' out."
        )
    return awaits


# -- learn -----------------------------------------------------------------------------------------


async def learn(request: ServiceRequest) -> Response:
    """Learn the rows of a request; they are on disk when the response is sent."""
    served, began = request.served, time.perf_counter()
    form, decoded = await _decoded(request, learning=True)
    _check_labelled(decoded)
    if not len(decoded.rows):  # nothing is learned
        result = LearnResult(served.durable.version, np.empty(0))
    else:
        result = await _learned(request, served, decoded)
        served.gauges.observe_learn(time.perf_counter() - began)
    return await _run(request, partial(_learn_response, form, served, decoded, result))


async def _learned(
    request: ServiceRequest, served: ModelServer, decoded: DecodedRequest
) -> LearnResult:
    service, key = request.service, request.field(b"idempotency-key")
    future: asyncio.Future[Request] = asyncio.get_running_loop().create_future()
    done = partial(service.completions.post, future)
    work = partial(served.learn, decoded.rows, done, key)
    with _RowErrors(served.name):
        await _run(request, work)
        return (await service.committed(future, served.name)).result()


async def learn_labels(request: ServiceRequest) -> Response:
    """Learn rows that infer stored with ``await_label``, from their labels."""
    served = request.served
    form, decoded = await _decoded(request, learning=True)
    columns = getattr(decoded.rows.X, "columns", {})
    if list(columns) != ["id"]:
        raise ParameterError(
            "labels must have the columns 'id' and 'y', got other columns. Send the ids that infer "
            "returned for 'await_label', and a label for each."
        )
    _check_labelled(decoded)
    ids = columns["id"].tolist()
    result = await _written(
        request,
        served,
        len(ids),
        lambda: served.learn_labels(ids, decoded.rows),
    )
    return await _run(request, partial(_learn_response, form, served, decoded, result))


def _check_labelled(decoded: DecodedRequest) -> None:
    _awaits_labels(decoded.parameters, allowed=False)
    if decoded.rows.y is None:
        raise ParameterError(
            "rows to learn must have 'y', a target for each row, got no 'y'. Send the targets; if "
            "they arrive later, send the rows to infer with the parameter 'await_label'."
        )


def _learn_response(
    form: _Format, served: ModelServer, decoded: DecodedRequest, result: LearnResult
) -> Response:
    """Encode the prequential predictions of learned rows."""
    if decoded.outputs is not DEFAULT_OUTPUTS:
        decoded.outputs = (
            tuple(output for output in decoded.outputs if output.name == "y") or DEFAULT_OUTPUTS
        )
    return form.response(
        served.name, result.version, decoded, {"y": result.predictions}, repeated=result.repeated
    )
