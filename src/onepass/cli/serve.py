"""Serve: durable learners behind HTTP, that learn while they answer."""

import os
from collections.abc import Mapping
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

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

__all__ = ["serve"]

Sources = Annotated[tuple[str, ...], Parameter(env_var="ONEPASS_SOURCE", metavar="[NAME=]ADDRESS")]
"""Addresses of sources, before each the name of its learner if it takes one."""

_TASK = "regression"
_TOKEN = "ONEPASS_TOKEN"  # noqa: S105  the name of a variable


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
    first: str | None = None,
    snapshot_rows: Count = 100_000,
    snapshot_seconds: Seconds = 300.0,
    keep: Count = 8,
    window: Count = 1000,
    drift: Names = (),
    source: Sources = (),
    max_queued: Count = 1 << 16,
    max_pending: Count = 1 << 20,
    max_rows: Count = 1 << 20,
    max_bytes: Count = 64 << 20,
    max_features: Count = 4096,
    seconds: Seconds = 30.0,
    idle_timeout: Seconds = 75.0,
    patience: Seconds = 60.0,
    log: Literal["debug", "info", "warning", "error"] = "info",
    quiet: Quiet = False,
) -> int:
    """Serve durable learners over HTTP: they predict and learn, and no acknowledged row is lost.

    Each learner has a file in the folder --data. Every row is on the disk before its request is
    answered, and a restarted service continues with all learners. A file that cannot be opened does
    not stop the others: its learner is reported as unavailable. The page at / shows the learners
    live; /openapi.json describes the API.

    Parameters
    ----------
    model
        Model to serve: a file that "onepass run --save" or op.save wrote, or the name of a model,
        such as rls. Models that are already in --data are served too.
    data
        The folder of the learners' files; created if it does not exist.
    name
        Name of the served model; by default that of the file or of the model.
    task
        Task of a model that is given by name, by default regression.
    settings
        A parameter of a model that is given by name: rls.forgetting=0.99.
    host
        Address to listen on, by default 127.0.0.1. Other than loopback addresses require tokens.
    port
        Port to listen on, by default 8080; 0 for any free port.
    tokens
        A file with a line "ROLES TOKEN" for each token, such as "predict,learn 7f3a…"; roles are
        predict, learn and admin. Clients send "Authorization: Bearer TOKEN". The environment
        variable ONEPASS_TOKEN is one token with all roles.
    certificate
        PEM file of the certificate, for TLS; with --key.
    key
        PEM file of the certificate's key.
    first
        Learner of MLflow's /invocations; by default the only one.
    snapshot_rows
        Take a snapshot of a learner after this many rows, by default 100,000.
    snapshot_seconds
        Take a snapshot of a learner after this many seconds, by default 300.
    keep
        Snapshots to keep of each learner, and all versions since the oldest; by default 8.
    window
        Rows of the recent error, by default 1000.
    drift
        River's drift detectors, such as adwin; if all learners are classifiers, also those of
        mistakes, such as ddm.
    source
        A stream to learn from: redis://HOST:6379/0?stream=NAME&target=FIELD, with NAME= before it
        where there are several learners. May be given more than once, or in the environment
        variable ONEPASS_SOURCE, which hides its password from the process list.
    max_queued
        Max rows of each learner that wait to be learned, by default 65,536; beyond it, requests get
        429 with Retry-After.
    max_pending
        Max rows of each learner that wait for their labels, by default 1,048,576; beyond it,
        infer with "await_label" gets 429. Rows expire after 30 days at most.
    max_rows
        Max rows of a request, by default 1,048,576.
    max_bytes
        Max bytes of a request's body, by default 67,108,864; of JSON at most 8,388,608.
    max_features
        Max features of a learner, including those of categories, by default 4096: least squares
        need 8 bytes for each pair of features. Also the max number of classes and of targets.
    seconds
        Request timeout in seconds (default 30): the headers and the body of a request must arrive
        within it.
    idle_timeout
        Seconds that a connection without a request stays open (default 75).
    patience
        Commit timeout in seconds (default 60). On timeout the request fails with 503; retry with
        the same Idempotency-Key.
    log
        Level of the log, JSON lines on standard error, by default info.
    quiet
        Do not print the address.
    """
    from onepass.service.http.auth import check_safe, is_loopback
    from onepass.service.http.log import log as write_log
    from onepass.service.http.log import set_up
    from onepass.service.http.server import (
        Listening,
        Stopping,
        feed,
        open_registry,
        parse_sources,
        run,
    )

    where = "serve"
    with usage_errors(where, settings=settings), Stopping() as stopping, ExitStack() as stack:
        found = _tokens(tokens)
        check_safe(host, found, where)
        listening = Listening(host, port, certificate, key, seconds, idle_timeout)
        sockets = [stack.enter_context(each) for each in listening.bind(where)]
        sources = parse_sources(source)
        set_up(log)
        try:
            registry = open_registry(
                data, window=window, drift=drift, max_queued=max_queued,
                snapshot_rows=snapshot_rows, snapshot_seconds=snapshot_seconds, keep=keep,
                max_features=max_features, max_pending=max_pending,
            )  # fmt: skip
            with closing(registry):
                _begun(registry, model, name, task, values(settings))
                from onepass.service.http.app import create_app
                from onepass.service.protocol.limits import Limits

                app = create_app(
                    registry, tokens=found, limits=Limits(nbytes=max_bytes, rows=max_rows),
                    default_model=first, commit_timeout=patience,
                )  # fmt: skip
                feed(registry, sources)
                if found and certificate is None and not is_loopback(host):
                    write_log("tokens are sent over plain HTTP", why="there is no --certificate")
                run(
                    app, listening, sockets, lambda at: _ready(at, registry, first, quiet), stopping
                )
                write_log("stopping")
        except KeyboardInterrupt:  # while they were opened, or closed
            if not stopping.code:
                raise
        write_log("stopped")
    return stopping.code


def _begun(
    shelf: "Shelf", model: str | None, name: str | None, task: str | None, settings: dict[str, Any]
) -> None:
    """Serve a model that is named on the command line; what is there already goes on.

    Parameters
    ----------
    shelf : Shelf
    model : str, optional
        A file, or the name of a model.
    name : str, optional
        By which it is served.
    task : {"regression", "classification"}, optional
        Of a model that is named, as are the settings.
    settings : dict
    """
    from onepass import load
    from onepass.errors import ParameterError
    from onepass.features import presets

    of_models = {"--task": task, "--set": settings}
    if model is None:
        _check_none({"--name": name, **of_models}, "a model to serve")
        return
    path = Path(model)
    if path.is_file():
        _check_none(of_models, f"the name of a model; the file {model} says it all")
        name, made = name or path.name.partition(".")[0], load(path)
    elif len(path.parts) > 1 or path.suffix:
        raise ParameterError(
            f"serve: {model} must be a model file that is there, or the name of a model, got no "
            f"such file. Choose another, or one of {', '.join(presets.names(task or _TASK))}."
        )
    else:
        name, made = name or model, presets.pipelines([model], task or _TASK, settings)[model]
    if name not in shelf.failed:
        shelf.create(name, made, there=True)


def _check_none(options: Mapping[str, object], needed: str) -> None:
    """Refuse options that nothing would heed."""
    from onepass.errors import ParameterError

    for option, value in options.items():
        if value:
            raise ParameterError(f"serve: {option} must come with {needed}. Leave {option} out.")


def _tokens(path: Path | None) -> "Tokens":
    from onepass.service.http.auth import Tokens

    token = os.environ.get(_TOKEN)
    if path is not None:
        return Tokens.from_file(path, "serve: --tokens")
    return Tokens.parse(f"admin {token}", _TOKEN) if token else Tokens({})


def _ready(
    at: str,
    shelf: "Shelf",
    first: str | None,
    quiet: bool,  # noqa: FBT001  as the switch has it
) -> None:
    from onepass.service.http.log import log

    log("started", url=at, models=[served.name for served in shelf])
    names = ", ".join(served.name for served in shelf) or "none yet: PUT /v2/models/NAME makes one"
    if shelf.failed:
        names += f"; not opened, see the log: {', '.join(shelf.failed)}"
    if first is not None and all(served.name != first for served in shelf):
        names += f"; /invocations waits for {first}, which is not there"
    print_message(
        f"Learners: {names}\nListening on {at} (page at {at}/, Ctrl-C stops it)", quiet=quiet
    )
