"""Command ``serve``: durable learners over HTTP."""

import os
import signal
from collections.abc import Mapping
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter, validators

from onepass.cli.arguments import (
    Count,
    Names,
    Quiet,
    Seconds,
    Settings,
    Whole,
    usage_errors,
    values,
)
from onepass.cli.terminal import print_message

if TYPE_CHECKING:
    from onepass.service.http.auth import Tokens
    from onepass.service.registry import ModelRegistry
    from onepass.service.row_schema import SchemaCheck

Sources = Annotated[tuple[str, ...], Parameter(env_var="ONEPASS_SOURCE", metavar="[NAME=]ADDRESS")]
"""Addresses of sources, each optionally preceded by the name of its learner."""

Schemas = Annotated[tuple[str, ...], Parameter(metavar="[NAME=]FILE")]
"""Schemas of rows, each optionally preceded by the name of its learner."""

Beyond = Annotated[float, Parameter(validator=validators.Number(gt=1.0))]
"""Multiple of the usual error."""

_TASK = "regression"
_TOKEN = "ONEPASS_TOKEN"  # noqa: S105  name of an environment variable


def serve(
    model: str | None = None,
    /,
    *,
    data: Path,
    name: str | None = None,
    task: Literal["regression", "classification"] | None = None,
    settings: Settings = (),
    host: str = "127.0.0.1",
    port: Whole = 8080,
    tokens: Path | None = None,
    certificate: Path | None = None,
    key: Path | None = None,
    default_model: str | None = None,
    snapshot_rows: Count = 100_000,
    snapshot_seconds: Seconds = 300.0,
    snapshots: Count = 8,
    window: Count = 1000,
    drift: Names = (),
    reject_beyond: Beyond | None = None,
    schema: Schemas = (),
    strict: bool = False,
    source: Sources = (),
    max_queued: Count = 1 << 16,
    max_pending: Count = 1 << 20,
    max_rows: Count = 1 << 20,
    max_bytes: Count = 64 << 20,
    max_features: Count = 1024,
    request_timeout: Seconds = 30.0,
    idle_timeout: Seconds = 75.0,
    commit_timeout: Seconds = 60.0,
    allow_origin: Names = (),
    log: Literal["debug", "info", "warning", "error"] = "info",
    quiet: Quiet = False,
) -> int:
    """Serve durable learners over HTTP; no acknowledged row is lost.

    Each learner has a file in the folder --data. Rows are on the disk before their request is
    acknowledged, and a restarted service continues with all learners. If a file cannot be opened,
    its learner is reported as unavailable, and the others are served. The page at / shows the
    learners live; /openapi.json describes the API.

    Parameters
    ----------
    model
        Model to serve: a file written by "onepass run --save" or op.save, or the name of a model,
        such as rls; several are separated by commas. Models that are already in --data are served
        too.
    data
        Folder of the learners' files; created if it does not exist.
    name
        Name of the served model; by default the name of the file or of the model.
    task
        Task of a model that is specified by name (default regression).
    settings
        Parameter of a model that is specified by name, such as rls__forgetting=0.99.
    host
        Address to listen on (default 127.0.0.1). Addresses other than loopback require tokens.
    port
        Port to listen on (default 8080); 0 for any free port.
    tokens
        File with one line "ROLES TOKEN NAME" per token, such as "predict,learn 7f3a… sensors".
        Roles are predict, learn and admin; the name, which may be left out, is that in the log.
        Clients send "Authorization: Bearer TOKEN". The signal SIGHUP reads the file again. The
        environment variable ONEPASS_TOKEN sets one token with all roles.
    certificate
        PEM file of the certificate, for TLS; requires --key.
    key
        PEM file of the private key of the certificate.
    default_model
        Learner that MLflow's /invocations uses; by default the only learner.
    snapshot_rows
        Rows between two snapshots of a learner (default 100,000).
    snapshot_seconds
        Seconds between two snapshots of a learner that has learned rows (default 300).
    snapshots
        Number of snapshots stored for each learner (default 8). Every version since the oldest one
        can be restored.
    window
        Number of rows over which the recent error is computed (default 1000).
    drift
        River's drift detectors: adwin, kswin, pagehinkley; if all learners are classifiers, also
        ddm, eddm, fhddm, hddma, hddmw. If a detector fails, it is disabled, and the page shows the
        error.
    reject_beyond
        Reject rows to learn, with status 409, if the error of a regression exceeds this multiple of
        the usual one, such as 20, once --window rows were learned. A request is rejected as a
        whole. Rejected rows are counted and logged.
    schema
        JSON Schema of the rows of a learner: columns, types, ranges; preceded by LEARNER= if there
        are several learners. Repeatable. Rows that do not conform are counted. If there is no
        file, it is inferred from the rows that are learned until the service stops.
    strict
        Refuse rows to learn or to predict, with status 400, if they do not conform to --schema,
        whose file must exist.
    source
        Redis stream or Kafka topic to learn from: redis://HOST:6379/0?stream=NAME&target=FIELD or
        kafka://HOST:9092/TOPIC?target=FIELD, preceded by LEARNER= if there are several learners.
        Repeatable. The environment variable ONEPASS_SOURCE sets a source without showing its
        password in the process list.
    max_queued
        Max rows queued to be learned, per learner (default 65,536). Beyond it, requests get 429
        with Retry-After.
    max_pending
        Max rows that await labels, per learner (default 1,048,576). Beyond it, infer with
        "await_label" gets 429. Rows expire after at most 30 days.
    max_rows
        Max rows per request (default 1,048,576).
    max_bytes
        Max bytes of a request body (default 67,108,864); at most 8,388,608 for JSON. Send larger
        blocks as Arrow streams or binary tensors.
    max_features
        Max features of a learner (default 1024), including encoded categories. Least squares use 8
        bytes per pair of features, and time per row quadratic in their number. The limit also
        applies to classes and to targets.
    request_timeout
        Request timeout in seconds (default 30). If headers and body have not arrived by then, the
        request fails with 408.
    idle_timeout
        Idle timeout in seconds (default 75), after which connections without a request are closed,
        and clients that do not receive their response are disconnected.
    commit_timeout
        Commit timeout in seconds (default 60). On timeout the request fails with 503; retry with
        the same Idempotency-Key.
    allow_origin
        Origins of web pages that may send requests from a browser (CORS), such as
        https://app.example. By default only the service's own page may.
    log
        Level of the log, which is JSON lines on standard error (default info); debug adds a line
        for each request.
    quiet
        Do not print the address.
    """
    from onepass.errors import ParameterError, calling
    from onepass.service.http.auth import check_safe, is_loopback
    from onepass.service.http.log import log as write_log
    from onepass.service.http.log import set_up
    from onepass.service.http.server import Listening, Stopping, parse_sources, run
    from onepass.service.registry import ModelRegistry

    where = "serve"
    with (
        usage_errors(where, settings=settings),
        calling(where),
        Stopping() as stopping,
        ExitStack() as stack,
    ):
        found = _tokens(tokens)
        found.allow(allow_origin)
        check_safe(host, found)
        listening = Listening(host, port, certificate, key, request_timeout, idle_timeout)
        sockets = [stack.enter_context(each) for each in listening.bind()]
        sources = parse_sources(source)
        if strict and not schema:
            raise ParameterError(
                "--strict requires --schema, got no schema. Add --schema FILE, or omit --strict.",
                where,
            )
        schemas = [_schema(each, strict=strict) for each in schema]
        set_up(log)
        if tokens is not None and hasattr(signal, "SIGHUP"):
            signal.signal(signal.SIGHUP, lambda *_: _read_again(found, tokens))
        try:
            registry = ModelRegistry(
                data, window=window, drift=drift, max_queued=max_queued,
                snapshot_rows=snapshot_rows, snapshot_seconds=snapshot_seconds, snapshots=snapshots,
                max_features=max_features, max_pending=max_pending,
                reject_beyond=reject_beyond,
            )  # fmt: skip
            with closing(registry):
                registry.open_all()
                models = model.split(",") if model and not Path(model).is_file() else [model]
                if len(models) > 1:
                    _check_none({"--name": name}, "one model")
                for one in models:
                    _begun(registry, one, name, task, values(settings))
                from onepass.service.http.app import create_app
                from onepass.service.protocol.limits import Limits

                app = create_app(
                    registry, tokens=found, limits=Limits(nbytes=max_bytes, rows=max_rows),
                    default_model=default_model, commit_timeout=commit_timeout,
                )  # fmt: skip
                for learner, checked in schemas:
                    registry.follow(learner, checked)
                for learner, opened in sources:
                    registry.consume(learner, opened)
                if found and certificate is None and not is_loopback(host):
                    write_log("tokens are sent over plain HTTP", why="there is no --certificate")
                run(
                    app,
                    listening,
                    sockets,
                    lambda at: _ready(at, registry, default_model, quiet),
                    stopping,
                    registry.used_files,
                )
                write_log("stopping")
        except KeyboardInterrupt:  # interrupt while files are opened or closed
            if not stopping.code:
                raise
        write_log("stopped")
    return stopping.code


def _begun(
    registry: "ModelRegistry",
    model: str | None,
    name: str | None,
    task: str | None,
    settings: dict[str, Any],
) -> None:
    """Serve the model of the command line, or continue the learner of that name.

    Parameters
    ----------
    registry : ModelRegistry
    model : str, optional
        A file, or the name of a model.
    name : str, optional
        The name of the served model.
    task : {"regression", "classification"}, optional
        Task of a model specified by name.
    settings : dict
    """
    from onepass import load, models
    from onepass.errors import ParameterError

    of_models = {"--task": task, "--set": settings}
    if model is None:
        _check_none({"--name": name, **of_models}, "a model to serve")
        return
    path = Path(model)
    made: Any
    if path.is_file():
        _check_none(
            of_models,
            f"the name of a model instead of the file {model}, which contains its parameters",
        )
        name, made = name or path.name.partition(".")[0], load(path)
    elif len(path.parts) > 1 or path.suffix:
        raise ParameterError(
            f"{model} must be an existing model file or the name of a model, got no such file. "
            f"Check the path, or choose one of {', '.join(models.names(task or _TASK))}.",
            "serve",
        )
    else:
        name, made = name or model, models.pipelines([model], task or _TASK, settings)[model]
    if name not in registry.failed:
        registry.create(name, made, exist_ok=True)


def _schema(text: str, *, strict: bool) -> "tuple[str, SchemaCheck]":
    """Return the name of a learner, which may be empty, and its schema."""
    from onepass.service.row_schema import SchemaCheck

    name, _, file = text.rpartition("=")
    return name, SchemaCheck(Path(file), strict=strict)


def _check_none(options: Mapping[str, object], needed: str) -> None:
    """Raise ParameterError if an option would have no effect."""
    from onepass.errors import ParameterError

    for option, value in options.items():
        if value:
            raise ParameterError(f"{option} requires {needed}. Omit {option}.", "serve")


def _tokens(path: Path | None) -> "Tokens":
    from onepass.service.http.auth import Tokens

    token = os.environ.get(_TOKEN)
    if path is not None:
        return Tokens.from_file(path, "serve: --tokens")
    return Tokens.parse(f"admin {token}", _TOKEN) if token else Tokens({})


def _read_again(tokens: "Tokens", path: Path) -> None:
    """Replace the tokens by those of the file; keep them if it is invalid."""
    from onepass.errors import OnepassError
    from onepass.service.http.log import log

    try:
        tokens.replace(_tokens(path))
    except OnepassError as error:
        log("the tokens could not be read again", why=str(error))
    else:
        log("tokens read again")


def _ready(
    at: str,
    registry: "ModelRegistry",
    default_model: str | None,
    quiet: bool,  # noqa: FBT001  value of --quiet
) -> None:
    from onepass.service.http.log import log

    log("started", url=at, models=[served.name for served in registry])
    names = (
        ", ".join(served.name for served in registry) or "none yet; PUT /v2/models/NAME creates one"
    )
    if registry.failed:
        names += f"; not opened, see the log: {', '.join(registry.failed)}"
    if default_model is not None and all(served.name != default_model for served in registry):
        names += f"; /invocations requires {default_model}, which does not exist yet"
    print_message(
        f"Learners: {names}\nListening on {at} (page at {at}/, Ctrl-C stops it)", quiet=quiet
    )
