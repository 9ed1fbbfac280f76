"""Responses in JSON, and conversion of exceptions to responses.

The response to an error of onepass contains the error's message, in which the method and path of
the request replace the Python call. Messages about a learner's file omit its folder; the log has
the full path. Any other exception is a server error: the response contains only the request id,
with which the log contains the traceback.
"""

import time
from collections.abc import Mapping
from pathlib import Path

import msgspec
from starlette.responses import Response

from onepass import errors
from onepass.learners.estimator.composite import owner_of_parameter
from onepass.service.http.log import LOG
from onepass.service.http.status import pathless
from onepass.service.protocol.rows import EncodedResponse
from onepass.service.protocol.v2 import ErrorResponse

_STATUS: tuple[tuple[type[BaseException], int], ...] = (
    (errors.UnauthorizedError, 401),
    (errors.ForbiddenError, 403),
    (errors.NotFoundError, 404),
    (errors.MethodNotAllowedError, 405),
    (errors.IdempotencyConflictError, 409),
    (errors.AlreadyExistsError, 409),
    (errors.OutlierError, 409),
    (errors.PayloadTooLargeError, 413),
    (errors.BusyError, 429),
    (errors.MissingExtraError, 501),
    (errors.CommitTimeoutError, 503),
    (errors.StoreError, 503),
    (errors.OnepassError, 400),
)
_ABOUT_FILES = (errors.StoreError, errors.CheckpointError, errors.SourceError)
_LONGEST_MESSAGE = 4000  # characters
_LOG_INTERVAL = 60.0  # seconds before the same error of a file is logged again


def sent(reply: EncodedResponse, headers: Mapping[str, str]) -> Response:
    """Convert an encoded response to one of Starlette, with further headers."""
    return Response(reply.body, 200, {**(reply.headers or {}), **headers}, media_type=reply.kind)


def json_response(
    value: object, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """Encode a value, such as a msgspec struct, as a JSON response."""
    return Response(msgspec.json.encode(value), status, headers, media_type="application/json")


class ErrorResponses:
    """Converts exceptions to responses, and logs those that concern the operator.

    Parameters
    ----------
    folder : Path
        Folder of the learners' files, which messages omit.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._logged: tuple[str, float] = ("", 0.0)

    def __call__(self, error: Exception, request_id: str, call: str) -> Response:
        """Return the response for an exception.

        Parameters
        ----------
        error : Exception
        request_id : str
        call : str
            Method and path of the request, which replace the Python call in the message.
        """
        status = next((status for kind, status in _STATUS if isinstance(error, kind)), 500)
        if isinstance(error, errors.OnepassError):
            head, _, place = error.where.partition(": ")
            if _is_call(head):
                place = place or owner_of_parameter(error)
                where = f"{call}: {place}" if place else call
                error = error.renamed(_field).at(where=where)
        message = str(error)
        if status == 500:
            LOG.error("request failed", exc_info=error, extra={"fields": {"request": request_id}})
            message = (
                f"the server failed; its log contains the cause with the request id {request_id}."
            )
        if isinstance(error, errors.StoreError):
            status = 507 if error.full else status
            self._log(message, request_id)
        if isinstance(error, _ABOUT_FILES):
            message = pathless(message, self._folder)
        text = message[:_LONGEST_MESSAGE].encode(errors="backslashreplace").decode()
        return json_response(ErrorResponse(text), status, _headers(error))

    def _log(self, text: str, request_id: str) -> None:
        """Log an error of a file; the same error once a minute at most, as requests repeat it."""
        last, at = self._logged
        if text != last or time.monotonic() - at > _LOG_INTERVAL:
            self._logged = text, time.monotonic()
            fields = {"error": text, "request": request_id}
            LOG.error("a learner's file has an error", extra={"fields": fields})


def _is_call(where: str) -> bool:
    """Whether an error is about a call in Python, not about a file or a learner of the service."""
    verbs = ("fit", "partial_fit", "test_then_train", "learn", "predict")
    owner, _, verb = where.rpartition(".")
    is_learned = owner.isidentifier() and verb.startswith(verbs)
    return is_learned or where.startswith(("op.", "Durable."))


def _field(name: str) -> str:
    """The field of a request for a parameter in Python."""
    return "`Idempotency-Key`" if name == "key" else f"`{name}`"


def _headers(error: Exception) -> dict[str, str]:
    if isinstance(error, errors.UnauthorizedError):
        return {"WWW-Authenticate": 'Bearer realm="onepass"'}
    if isinstance(error, errors.MethodNotAllowedError):
        return {"Allow": error.allowed}
    if isinstance(error, (errors.BusyError, errors.CommitTimeoutError)):
        return {"Retry-After": str(max(1, round(error.seconds)))}
    return {}
