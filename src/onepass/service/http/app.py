"""The service as a Starlette application."""

import re
import secrets
from collections.abc import Awaitable, Callable, Sequence

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from onepass.errors import MethodError, UnknownError
from onepass.service.http.auth import Tokens
from onepass.service.http.context import Service
from onepass.service.http.openapi import Endpoint
from onepass.service.http.request import ServiceRequest
from onepass.service.http.responses import ErrorResponses
from onepass.service.http.routes import ENDPOINTS
from onepass.service.protocol.limits import Limits
from onepass.service.registry import Shelf

__all__ = ["create_app"]

_REQUEST_ID = re.compile(rb"[!-~]{1,128}")


def create_app(
    registry: Shelf,
    *,
    tokens: Tokens = Tokens({}),  # noqa: B008  it never changes
    limits: Limits = Limits(),  # noqa: B008  the same
    default_model: str | None = None,
    commit_timeout: float = 60.0,
) -> Starlette:
    """The service as an ASGI application.

    Parameters
    ----------
    registry : Shelf
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
    app = Starlette(
        routes=[Route(path, _Resource(service, found)) for path, found in paths.items()],
        middleware=[Middleware(_Responses, service)],
    )
    app.router.redirect_slashes = False
    app.router.default = _not_found
    return app


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
            raise MethodError(
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
    raise UnknownError(
        f"{scope['path'][:200]}: there is no such endpoint. /openapi.json lists all."
    )


class _Responses:
    """Errors as responses, request ids, and the count of responses by status."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self._app, self._statuses = app, service.statuses
        self._errors: Callable[[Exception, str], Response] = ErrorResponses(service.registry.folder)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = _request_id(scope)
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
            response = self._errors(error, request_id.decode())
            error.__traceback__ = None  # its frames hold the rows of the request
            await response(scope, receive, sent)


def _request_id(scope: Scope) -> bytes:
    for name, value in scope["headers"]:
        if name == b"x-request-id" and _REQUEST_ID.fullmatch(value):
            return bytes(value)
    return secrets.token_hex(8).encode()
