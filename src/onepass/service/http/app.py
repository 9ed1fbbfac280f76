"""ASGI application of the service: Starlette's router and one middleware.

There is no other middleware, as each layer delays every request, unless other web pages may send
requests (CORS).
"""

from __future__ import annotations

import logging
import re
import secrets
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from itertools import count

from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.routing import Route, Router
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from onepass.errors import MethodNotAllowedError, NotFoundError
from onepass.service.http.auth import ADMIN, Tokens
from onepass.service.http.context import Service
from onepass.service.http.log import LOG, log
from onepass.service.http.openapi import Endpoint
from onepass.service.http.request import ServiceRequest
from onepass.service.http.responses import ErrorResponses
from onepass.service.http.routes import ENDPOINTS
from onepass.service.protocol.limits import Limits
from onepass.service.registry import ModelRegistry

_REQUEST_ID = re.compile(rb"[!-~]{1,128}")


def create_app(
    registry: ModelRegistry,
    *,
    tokens: Tokens = Tokens({}),  # noqa: B008  immutable
    limits: Limits = Limits(),  # noqa: B008  immutable
    default_model: str | None = None,
    commit_timeout: float = 60.0,
) -> ASGIApp:
    """Create the ASGI application of the service.

    Parameters
    ----------
    registry : ModelRegistry
        Learners to serve; the caller closes the registry.
    tokens : Tokens
        Accepted tokens, and origins of other web pages; without tokens, every local process may do
        everything.
    limits : Limits
        Limits of one request.
    default_model : str, optional
        Learner of ``/invocations``; required if there are several learners.
    commit_timeout : float, default 60
        Seconds within which rows must be on disk; afterwards the request fails with 503.
    """
    service = Service(registry, tokens, limits, default_model, commit_timeout)
    paths: dict[str, list[Endpoint]] = {}
    for endpoint in ENDPOINTS:
        paths.setdefault(endpoint.path, []).append(endpoint)
    routes = [Route(path, _Resource(service, endpoints)) for path, endpoints in paths.items()]
    router = Router(routes, redirect_slashes=False, default=_not_found)
    app: ASGIApp = _Responses(router, service)
    if not tokens.origins:
        return app
    return CORSMiddleware(
        app, list(tokens.origins), allow_methods=["*"], allow_headers=["*"], expose_headers=_EXPOSED
    )


_EXPOSED = ["X-Onepass-Version", "Idempotent-Replayed", "X-Request-Id", "Retry-After"]


class _Resource:
    """Endpoints of one path: checks the method and the role, then calls the handler."""

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
                f"the method must be one of {allowed}, got {scope['method'][:20]}. Use one of "
                "these; /openapi.json lists the endpoints.",
                scope["path"][:200],
                allowed=allowed,
            )
        request = ServiceRequest(scope, receive, self._service)
        who = self._service.tokens.check(request.fields, endpoint.role)
        audit = partial(_audit, scope, who) if endpoint.role == ADMIN else None
        try:
            response = await endpoint.handler(request)
        except Exception as error:
            if audit is not None:
                audit(why=str(error))
            raise
        finally:
            request.release()
        if audit is not None:
            audit()
        await response(scope, receive, send)


def _audit(scope: Scope, who: str, **fields: object) -> None:
    """Log an operation of administration: who, what, and the id of the request."""
    log(
        "administration", who=who or None, method=scope["method"], path=scope["path"][:200],
        request_id=scope["onepass.request_id"].decode(), **fields,
    )  # fmt: skip


async def _not_found(scope: Scope, receive: Receive, send: Send) -> None:
    del receive, send
    raise NotFoundError(
        "no such endpoint. Correct the path; /openapi.json lists all endpoints.",
        f"{scope['path'][:200]}",
    )


def _log_request(scope: Scope, status: int, seconds: float) -> None:
    fields = {
        "method": scope["method"], "path": scope["path"][:200], "status": status,
        "seconds": round(seconds, 6), "client": (scope.get("client") or ("",))[0],
        "request_id": scope["onepass.request_id"].decode(),
    }  # fmt: skip
    LOG.debug("request", extra={"fields": fields})


class _Responses:
    """Middleware that converts errors to responses, adds request ids and counts statuses."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self._app, self._statuses = app, service.statuses
        self._errors: Callable[[Exception, str, str], Response] = ErrorResponses(
            service.registry.folder
        )
        self._prefix, self._count = secrets.token_hex(4), count(1)  # of request ids
        self._logs = LOG.isEnabledFor(logging.DEBUG)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        scope["onepass.request_id"] = request_id = self._request_id(scope)
        started, began = False, time.perf_counter()

        def send_with_id(message: Message) -> Awaitable[None]:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                self._statuses[message["status"]] += 1
                if self._logs:
                    _log_request(scope, message["status"], time.perf_counter() - began)
                message["headers"] += (
                    (b"x-content-type-options", b"nosniff"), (b"x-request-id", request_id),
                )  # fmt: skip
            return send(message)

        try:
            await self._app(scope, receive, send_with_id)
        except ClientDisconnect:
            return
        except Exception as error:
            if started:
                raise
            call = f"{scope['method']} {scope['path'][:200]}"
            response = self._errors(error, request_id.decode(), call)
            error.__traceback__ = None  # its frames refer to the rows of the request
            await response(scope, receive, send_with_id)

    def _request_id(self, scope: Scope) -> bytes:
        """Return the request id that the client has sent, or a new id."""
        for name, value in scope["headers"]:
            if name == b"x-request-id" and _REQUEST_ID.fullmatch(value):
                return bytes(value)
        return f"{self._prefix}-{next(self._count)}".encode()
