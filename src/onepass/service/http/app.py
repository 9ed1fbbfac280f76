"""The service as an ASGI application: a router of Starlette within one layer for all responses.

Requests to predict and to learn go through it by the thousand each second, so there is no other
middleware.
"""

import re
import secrets
from collections.abc import Awaitable, Callable, Sequence
from itertools import count

from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.routing import Route, Router
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from onepass.errors import MethodNotAllowedError, NotFoundError
from onepass.service.http.auth import Tokens
from onepass.service.http.context import Service
from onepass.service.http.openapi import Endpoint
from onepass.service.http.request import ServiceRequest
from onepass.service.http.responses import ErrorResponses
from onepass.service.http.routes import ENDPOINTS
from onepass.service.protocol.limits import Limits
from onepass.service.registry import ModelRegistry

__all__ = ["create_app"]

_REQUEST_ID = re.compile(rb"[!-~]{1,128}")


def create_app(
    registry: ModelRegistry,
    *,
    tokens: Tokens = Tokens({}),  # noqa: B008  it never changes
    limits: Limits = Limits(),  # noqa: B008  the same
    default_model: str | None = None,
    commit_timeout: float = 60.0,
) -> ASGIApp:
    """The service as an ASGI application.

    Parameters
    ----------
    registry : ModelRegistry
        Its learners; whoever opened it closes it.
    tokens : Tokens
        Without any, every local process may do everything.
    limits : Limits
        Of one request.
    default_model : str, optional
        The learner of ``/invocations``; by default the only one.
    commit_timeout : float, default 60
        Seconds until a request whose rows are not on disk fails with 503.
    """
    service = Service(registry, tokens, limits, default_model, commit_timeout)
    paths: dict[str, list[Endpoint]] = {}
    for each in ENDPOINTS:
        paths.setdefault(each.path, []).append(each)
    routes = [Route(path, _Resource(service, found)) for path, found in paths.items()]
    router = Router(routes, redirect_slashes=False, default=_not_found)
    return _Responses(router, service)


class _Resource:
    """All endpoints of one path: checks method and role, then calls the handler."""

    def __init__(self, service: Service, endpoints: Sequence[Endpoint]) -> None:
        self._service = service
        self._endpoints = {each.method: each for each in endpoints}
        if "GET" in self._endpoints:
            self._endpoints["HEAD"] = self._endpoints["GET"]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        endpoint = self._endpoints.get(scope["method"])
        if endpoint is None:
            allowed = ", ".join(sorted(self._endpoints))
            raise MethodNotAllowedError(
                f"{scope['path'][:200]}: the method must be one of {allowed}, got "
                f"{scope['method'][:20]}. See /openapi.json.",
                allowed,
            )
        request = ServiceRequest(scope, receive, self._service)
        self._service.tokens.check(request.fields, endpoint.role)
        try:
            response = await endpoint.handler(request)
        finally:
            request.release()
        await response(scope, receive, send)


async def _not_found(scope: Scope, receive: Receive, send: Send) -> None:
    del receive, send
    raise NotFoundError(
        f"{scope['path'][:200]}: there is no such endpoint. /openapi.json lists all."
    )


class _Responses:
    """Errors as responses, request ids, and the count of responses by status."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self._app, self._statuses = app, service.statuses
        self._errors: Callable[[Exception, str, str], Response] = ErrorResponses(
            service.registry.folder
        )
        self._prefix, self._count = secrets.token_hex(4), count(1)  # of the ids of requests

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = self._request_id(scope)
        started = False

        def sent(message: Message) -> Awaitable[None]:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                self._statuses[message["status"]] += 1
                message["headers"] += (
                    (b"x-content-type-options", b"nosniff"), (b"x-request-id", request_id),
                )  # fmt: skip
            return send(message)

        try:
            await self._app(scope, receive, sent)
        except ClientDisconnect:
            return
        except Exception as error:
            if started:
                raise
            call = f"{scope['method']} {scope['path'][:200]}"
            response = self._errors(error, request_id.decode(), call)
            error.__traceback__ = None  # its frames hold the rows of the request
            await response(scope, receive, sent)

    def _request_id(self, scope: Scope) -> bytes:
        """The id that the client has given, or a new one."""
        for name, value in scope["headers"]:
            if name == b"x-request-id" and _REQUEST_ID.fullmatch(value):
                return bytes(value)
        return f"{self._prefix}-{next(self._count)}".encode()
