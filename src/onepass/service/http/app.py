"""Routes of the HTTP service, authorisation, error responses and the log in JSON lines."""

import json
import logging
import sys
import time
import traceback
from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Any, Generic, NamedTuple, TypeVar
from urllib.parse import unquote

import httptools

from onepass.errors import MethodError, ParameterError, UnknownError
from onepass.service.http.auth import ADMIN, LEARN, PREDICT, Tokens
from onepass.service.http.exchange import Answer, Asking, Failures, Room, Threads
from onepass.service.http.routes import About, Admin, Verbs
from onepass.service.protocol.limits import Limits
from onepass.service.registry import Shelf

__all__ = ["Application", "Endpoint", "Paths", "allowed", "endpoints", "logged", "set_up"]


_T = TypeVar("_T")


class _Node(Generic[_T]):
    """What goes on after some segments of a path."""

    __slots__ = ("below", "methods", "parameter")

    def __init__(self) -> None:
        self.below: dict[str, _Node[_T]] = {}
        self.parameter: tuple[str, _Node[_T]] | None = None
        self.methods: dict[str, _T] = {}


class Paths(Generic[_T]):
    """Endpoints by templates of paths.

    Examples
    --------
    >>> paths = Paths()
    >>> paths.add("GET", "/models/{name}", "the endpoint")
    >>> paths.find("/models/flow")
    ({'GET': 'the endpoint', 'HEAD': 'the endpoint'}, {'name': 'flow'})
    >>> paths.find("/models/")
    ({}, {})
    """

    def __init__(self) -> None:
        self._root = _Node[_T]()

    def add(self, method: str, template: str, endpoint: _T) -> None:
        """Have an endpoint answer; what is answered to GET is answered to HEAD.

        Parameters
        ----------
        method : str
        template : str
            Begins with a slash; a segment such as ``{name}`` stands for any that is not empty.
        endpoint : Any
        """
        node = self._root
        for segment in template.split("/")[1:]:
            if segment.startswith("{"):
                if node.parameter is None:
                    node.parameter = (segment[1:-1], _Node())
                node = node.parameter[1]
            else:
                node = node.below.setdefault(segment, _Node())
        node.methods[method] = endpoint
        if method == "GET":
            node.methods["HEAD"] = endpoint

    def find(self, path: str) -> tuple[Mapping[str, _T], dict[str, str]]:
        """The endpoints at a path by their methods, none if there is no such path; its parameters.

        Parameters
        ----------
        path : str
            As it was before any segment was decoded twice: nothing in it leads upward.
        """
        node, found = self._root, {}
        for segment in path.split("/")[1:]:
            below = node.below.get(segment)
            if below is None:
                if node.parameter is None or not segment:
                    return {}, {}
                name, below = node.parameter
                found[name] = segment
            node = below
        return node.methods, found


def allowed(methods: Mapping[str, object]) -> str:
    """Methods as the header ``Allow`` lists them."""
    return ", ".join(sorted(methods))


_AT_ONCE = 16  # of the longest bodies
_KNOWN, _SHORT = 1024, 256  # targets whose endpoints are kept, and the bytes of one
_OPEN = None  # the role that nobody needs
_MODEL, _VERSIONED = "/v2/models/{name}", "/v2/models/{name}/versions/{version}"


class Endpoint(NamedTuple):
    """What answers at a path."""

    method: str
    path: str
    verb: Callable[..., Answer | Awaitable[Answer]]
    """Gives an Answer, or something to be awaited that gives one."""

    role: str | None
    """That whoever asks must have; None if nobody needs any."""
    abreast: bool = False
    """Whether those that follow each other may be begun together."""


class Application:
    """The service: what answers requests.

    Parameters
    ----------
    shelf : Shelf
        Stays open.
    tokens : Tokens
        None of them: whoever asks from this machine may do everything.
    limits : Limits
        Of a request.
    first : str, optional
        The learner that answers ``/invocations``.
    patience : float, default 60
        Seconds within which rows must be on the disk, or who waits for it is let go.
    """

    def __init__(
        self,
        shelf: Shelf,
        *,
        tokens: Tokens,
        limits: Limits,
        first: str | None = None,
        patience: float = 60.0,
    ) -> None:
        self._tokens, self._most = tokens, limits.nbytes
        self._room = Room(_AT_ONCE * limits.nbytes)
        self._failures = Failures(shelf.folder)
        self._known: dict[bytes, tuple[str, Mapping[str, Endpoint], dict[str, str]]] = {}
        self._paths = Paths[Endpoint]()
        self._statuses: dict[int, int] = {}
        for each in endpoints(shelf, limits, first, patience, self._statuses, tokens):
            self._paths.add(each.method, each.path, each)

    def admit(self, method: str, target: bytes, headers: dict[bytes, bytes]) -> tuple[Asking, Any]:
        """A request, and the verb that answers it with its parameters.

        Parameters
        ----------
        method : str
        target : bytes
            The path and what follows it, as it came.
        headers : dict of bytes to bytes
            By their names in lower case.

        Raises
        ------
        UnknownError, MethodError
            If there is nothing there.
        UnauthorizedError, ForbiddenError
            If it may not be asked.
        """
        found = self._known.get(target)
        if found is None:
            found = self._found(target)
        path, methods, parameters = found
        endpoint = methods.get(method)
        asking = Asking(method, path, headers, self._most, self._room)
        if endpoint is None:
            raise _nothing(asking, methods)
        self._tokens.hold(asking, endpoint.role)
        asking.abreast = endpoint.abreast
        if len(self._known) < _KNOWN and len(target) <= _SHORT:  # of those who may ask
            self._known[target] = found
        return asking, (endpoint.verb, parameters)

    def answer(
        self, asking: Asking, verb: tuple[Callable[..., Answer | Awaitable[Answer]], dict[str, str]]
    ) -> Answer | Awaitable[Answer]:
        """An Answer, or something to be awaited that gives one.

        Parameters
        ----------
        asking : Asking
        verb : tuple
            As ``admit`` gave it.
        """
        try:
            return verb[0](asking, **verb[1])
        except Exception as wrong:  # noqa: BLE001  whoever asked gets an answer
            return self.failed(wrong)

    def count(self, status: int) -> None:
        """Count an answer; called in the event loop.

        Parameters
        ----------
        status : int
        """
        self._statuses[status] = self._statuses.get(status, 0) + 1

    def failed(self, wrong: BaseException) -> Answer:
        """What is said of an error, which forgets where it was raised: rows are known there.

        Parameters
        ----------
        wrong : exception
        """
        answer = Answer.of(self._failures.told(wrong))
        each: BaseException | None = wrong
        seen: set[int] = set()
        while each is not None and id(each) not in seen:  # one may be the cause of itself
            seen.add(id(each))
            each.__traceback__ = None
            each = each.__cause__ or each.__context__
        return answer

    def _found(self, target: bytes) -> tuple[str, Mapping[str, Endpoint], dict[str, str]]:
        """What is there."""
        try:
            path = unquote(httptools.parse_url(target).path.decode("ascii"))
        except (httptools.HttpParserError, UnicodeDecodeError, AttributeError) as wrong:
            raise ParameterError(
                "the target of a request must be a path, got something else. See /openapi.json."
            ) from wrong
        return (path, *self._paths.find(path))


def endpoints(
    shelf: Shelf,
    limits: Limits,
    first: str | None,
    patience: float = 60.0,
    statuses: Mapping[int, int] = MappingProxyType({}),
    tokens: Tokens = Tokens({}),  # noqa: B008  it never changes
) -> list[Endpoint]:
    """All that can be asked.

    Parameters
    ----------
    shelf : Shelf
    limits : Limits
    first : str, optional
        The learner that answers ``/invocations``.
    patience : float, default 60
        As for :class:`Application`.
    statuses : mapping of int to int
        How many requests were answered with each, for ``/metrics``.
    tokens : Tokens
        For ``infer``, which needs the role learn with the parameter ``ask``.
    """
    threads = Threads(patience)
    verbs = Verbs(shelf, limits, first, threads, tokens)
    return [
        Endpoint("POST", f"{_MODEL}/infer", verbs.infer, PREDICT),
        Endpoint("POST", f"{_VERSIONED}/infer", verbs.infer, PREDICT),
        Endpoint("POST", f"{_MODEL}/learn", verbs.learn, LEARN, abreast=True),
        Endpoint("POST", f"{_MODEL}/answers", verbs.answers, LEARN),
        Endpoint("POST", "/invocations", verbs.invocations, PREDICT),
        *_readings(About(shelf, threads, statuses)),
        *_doings(Admin(shelf, threads)),
    ]


def _readings(about: About) -> list[Endpoint]:
    return [
        Endpoint("GET", "/v2/health/live", about.live, _OPEN),
        Endpoint("GET", "/v2/health/ready", about.ready, _OPEN),
        Endpoint("GET", "/ping", about.ready, _OPEN),
        Endpoint("GET", "/health", about.ready, _OPEN),
        Endpoint("GET", "/version", about.version, _OPEN),
        Endpoint("GET", "/v2", about.server, PREDICT),
        Endpoint("GET", _MODEL, about.model, PREDICT),
        Endpoint("GET", f"{_MODEL}/ready", about.model_ready, PREDICT),
        Endpoint("GET", _VERSIONED, about.model, PREDICT),
        Endpoint("GET", f"{_VERSIONED}/ready", about.model_ready, PREDICT),
        Endpoint("GET", "/v2/repository/index", about.index, PREDICT),
        Endpoint("POST", "/v2/repository/index", about.index, PREDICT),
        Endpoint("GET", "/state", about.state, PREDICT),
        Endpoint("GET", "/metrics", about.metrics, PREDICT),
        Endpoint("GET", "/openapi.json", about.openapi, _OPEN),
        Endpoint("GET", "/", about.page, _OPEN),
        Endpoint("GET", "/page/{file}", about.page, _OPEN),
    ]


def _doings(admin: Admin) -> list[Endpoint]:
    return [
        Endpoint("PUT", _MODEL, admin.create, ADMIN),
        Endpoint("DELETE", _MODEL, admin.retire, ADMIN),
        Endpoint("POST", "/v2/repository/models/{name}/load", admin.load, ADMIN),
        Endpoint("POST", f"{_MODEL}/snapshot", admin.snapshot, ADMIN),
        Endpoint("POST", f"{_MODEL}/rollback", admin.rollback, ADMIN),
    ]


def _nothing(asking: Asking, methods: Mapping[str, Endpoint]) -> Exception:
    if methods:
        return MethodError(
            f"{asking.path[:200]}: the method must be one of {allowed(methods)}, got "
            f"{asking.method[:20]}. See /openapi.json.",
            allowed(methods),
        )
    return UnknownError(
        f"{asking.path[:200]}: there must be something at the path, but there is nothing. "
        "/openapi.json lists what there is."
    )


_LOG = logging.getLogger("onepass.service")


class _Lines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        said: dict[str, Any] = {
            "at": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
            + f".{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "what": record.getMessage(),
            **getattr(record, "told", {}),
        }
        if record.exc_info:
            said["traceback"] = "".join(traceback.format_exception(*record.exc_info))
        return json.dumps(said, default=str)


class _Errors(logging.Handler):
    """To standard error, whatever that is when there is something to say."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            sys.stderr.write(self.format(record) + "\n")
            sys.stderr.flush()
        except Exception:  # noqa: BLE001  as the standard library's handlers do
            self.handleError(record)


def set_up(level: str) -> None:
    """Have the service's log written to standard error.

    Parameters
    ----------
    level : str
        Of the standard library: "debug", "info", "warning", "error".
    """
    handler = _Errors()
    handler.setFormatter(_Lines())
    for name in ("onepass.service", "uvicorn.error"):
        log = logging.getLogger(name)
        log.handlers, log.propagate = [handler], False
        log.setLevel(level.upper() if name.startswith("onepass") else "ERROR")
    logging.captureWarnings(capture=True)
    logging.getLogger("py.warnings").handlers = [handler]


def logged(what: str, **told: object) -> None:
    """Write a line, a warning if it tells ``why``; nothing in it may be secret.

    Parameters
    ----------
    what : str
        What happened, in a few words.
    **told
        What else there is to say.
    """
    level = logging.WARNING if "why" in told else logging.INFO
    _LOG.log(level, what, extra={"told": told})
