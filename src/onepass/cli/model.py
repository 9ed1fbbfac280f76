"""Commands ``inspect``, ``merge``, ``backup`` and ``verify``, for files of models."""

import json as jsons
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from textwrap import indent
from typing import Annotated, Any

from cyclopts import CycloptsError, Parameter

from onepass.cli.arguments import Quiet, check_not_overwritten, usage_errors
from onepass.cli.terminal import print_message, show

_DATABASE = b"SQLite format 3\0"
_SHOWN_COEFFICIENTS = 20
_ROWS_PER_COEFFICIENT = 10
_SNAPSHOT = {"version", "rows_seen", "at", "why", "bytes"}


def inspect(
    model: Path, /, *, json: bool = False, show_all: Annotated[bool, Parameter("--all")] = False
) -> None:
    """Describe a model file: class, parameters, rows learned, coefficients, size, checksum.

    For a checkpoint, such as m.onepass.run, the progress of the run is shown. In the file of a
    durable learner, such as a backup of served/m.db, all snapshots, blocks and keys are verified.

    Parameters
    ----------
    model
        A file written by "onepass run --save", or by "onepass serve --data" and not in use.
    json
        Print JSON, with all coefficients.
    show_all
        Print all coefficients; by default the 20 that are largest in standard errors.
    """
    description = _description(model)
    if json:
        print(jsons.dumps(description, indent=1, ensure_ascii=False))  # noqa: T201  does not wrap lines
        return
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=box.SIMPLE, show_header=False, title=str(model), title_justify="left")
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    if not show_all and "coefficients" in description:
        description["coefficients"] = _shorten(description["coefficients"])
    for name, value in description.items():
        table.add_row(name.replace("_", " "), escape(_readable(value)))
    show(table)


def _description(file: Path) -> dict[str, Any]:
    """Return the description of a model file, or the progress of a run."""
    from onepass.errors import CheckpointError
    from onepass.evaluate import run_progress
    from onepass.serialization.models import describe

    if _is_database(file):
        from onepass.service.examine import examine

        return examine(file)
    try:
        description = describe(file)
    except CheckpointError as error:
        try:
            progress = run_progress(file)
        except CheckpointError:
            progress = None
        if progress is None:
            raise error from None
        return asdict(progress)
    if description.get("functions") or "weights" in description:
        return description  # the model needs arguments that the file does not contain
    from onepass import load
    from onepass.learners.linear import named_coefficients

    fitted = load(file)
    fitted = getattr(fitted, "model_", fitted)
    if weights := member_weights(getattr(fitted, "learner", fitted)):
        return description | {"weights_of_members": weights}
    if coefficients := named_coefficients(fitted):
        learner = getattr(fitted, "learner", fitted)
        description |= _memory(learner) | {"coefficients": coefficients}
    return description


def member_weights(learner: Any) -> dict[str, Any]:
    """Return the weights of the members of a mixture, by class; of several outputs, lists.

    Parameters
    ----------
    learner : learner
        Any; for others than mixtures the result is empty.
    """
    if not (hasattr(learner, "members_") and learner.rows_seen_):
        return {}
    names = [
        "left out" if one is None else type(getattr(one, "learner", one)).__name__
        for one in learner.members_
    ]
    weights = learner.weights_.reshape(len(names), -1).round(3).tolist()
    return {
        f"{i + 1} {name}": row[0] if len(row) == 1 else row
        for i, (name, row) in enumerate(zip(names, weights, strict=True))
    }


def _memory(learner: Any) -> dict[str, Any]:
    """Return the effective number of rows of least squares, with a note if it is small."""
    rows = getattr(learner, "effective_rows_", None)
    if rows is None or learner.forgetting == 1.0:
        return {}
    found: dict[str, Any] = {"effective_rows": round(rows, 1)}
    d, reason = learner.n_features_in_ + bool(learner.fit_intercept), ""
    if hasattr(learner, "forgetting_factor_"):
        reason = "Automatic forgetting mixes eight factors, which suits predictions."
    elif rows < _ROWS_PER_COEFFICIENT * d:
        reason = f"The model remembers about {rows:,.0f} rows, too few for {d} coefficients."
    if reason:
        found["note"] = f"{reason} Estimate coefficients with forgetting=1.0, or close to 1."
    return found


def _shorten(coefficients: dict[str, Any]) -> dict[str, Any]:
    """Return the coefficients that are largest in standard errors, with the number of others."""
    if not all("value" in one for one in coefficients.values()):  # by output
        return {output: _shorten(named) for output, named in coefficients.items()}
    order = sorted(coefficients, key=lambda name: -_size(**coefficients[name]))
    shown = {name: coefficients[name] for name in order[:_SHOWN_COEFFICIENTS]}
    if len(coefficients) <= _SHOWN_COEFFICIENTS:
        return coefficients
    rest = f"{len(coefficients) - len(shown):,}, smaller in standard errors (--all, --json)"
    return {**shown, "others": rest}


def _size(value: float, standard_error: float = 0.0) -> float:
    """Return the magnitude of a coefficient, in its standard error if that is known."""
    return abs(value) / (standard_error or 1.0)


def _is_database(file: Path) -> bool:
    """Return whether a file is an SQLite database."""
    with suppress(OSError), file.open("rb") as opened:
        return opened.read(len(_DATABASE)) == _DATABASE
    return False


def _call_text(value: object) -> str:
    """Return the repr of a value; objects are shown as the call that creates them."""
    match value:
        case {"class": str(name), "parameters": dict(parameters), **rest} if not rest:
            arguments = ", ".join(f"{key}={_call_text(part)}" for key, part in parameters.items())
            return f"{name}({arguments})"
        case {"dtype": str(name), "shape": list(shape), **rest} if not rest:
            return f"array of {name}, shape {tuple(shape)}"
        case dict():
            return f"{{{', '.join(f'{key!r}: {_call_text(part)}' for key, part in value.items())}}}"
        case list():
            return f"[{', '.join(map(_call_text, value))}]"
    return repr(value)


def _readable(value: object) -> str:
    """Format a value as text for reading."""
    match value:
        case dict() if "value" in value and value.keys() <= {"value", "standard_error"}:
            text = " ± ".join(f"{part:.4g}" for part in value.values())
        case dict() if value.keys() == _SNAPSHOT:
            text = "version {version:,}, {rows_seen:,} rows, {at}: {why}".format_map(value)
        case dict() if value.keys() in ({"class", "parameters"}, {"dtype", "shape"}):
            text = _call_text(value)
        case dict():
            parts = {name: _readable(part) for name, part in value.items()}
            lines = (
                f"{name}\n{indent(part, '  ')}" if "\n" in part else f"{name} = {part}"
                for name, part in parts.items()
            )
            text = "\n".join(lines)
        case list():
            text = "\n".join(map(_readable, value))
        case int() if not isinstance(value, bool):
            text = f"{value:,}"
        case _:
            text = "" if value is None else str(value)
    return text or "–"


def backup(store: Path, to: Path, /, *, quiet: Quiet = False) -> None:
    """Copy the file of a served or durable learner, also while it learns, and verify the copy.

    The copy has all rows that were acknowledged before the command began. To restore it, stop the
    service, put the copy in place of the file, remove the files beside it that end with -wal, -shm
    and .lock, and start the service again.

    Parameters
    ----------
    store
        A file that "onepass serve --data" or op.durable has written, which may be in use.
    to
        The copy; an existing file is replaced once the new one is complete.
    quiet
        Print no message.
    """
    from onepass import service

    with usage_errors("backup"):
        to.parent.mkdir(parents=True, exist_ok=True)
    found = service.backup(store, to)
    print_message(
        f"{found['rows_seen']:,} rows, version {found['version']:,}, verified: {to}", quiet=quiet
    )


def verify(*stores: Annotated[Path, Parameter(allow_leading_hyphen=False)]) -> int:
    """Verify files of durable learners that are not in use, such as backups.

    Every snapshot, block, key and waiting row is read. The exit code is 1 if a file is damaged.

    Parameters
    ----------
    stores
        Files that "onepass backup", "onepass serve --data" or op.durable have written.
    """
    from onepass.errors import OnepassError
    from onepass.service import examine

    if not stores:
        raise CycloptsError(msg="verify: one or more files are needed: verify backups/m.db.")
    code = 0
    for store in stores:
        try:
            found = examine(store)
            text = f"{found['rows_seen']:,} rows, version {found['version']:,}, {found['checked']}"
        except OnepassError as error:
            text, code = str(error), 1
        print_message(f"{store}: {text}")
    return code


def merge(
    *models: Annotated[Path, Parameter(allow_leading_hyphen=False)],
    save: Path,
    concurrent: bool = False,
    quiet: Quiet = False,
) -> None:
    """Merge models into one, equivalent to the first model after learning the rows of the others.

    Recursive least squares (rls) with forgetting=1.0, and ORFit with noise and unlimited memory,
    are merged exactly, in any order. Approximate merges are reported, such as those of rls with
    automatic forgetting. If models cannot be merged, the command fails. All models must have the
    same settings.

    Parameters
    ----------
    models
        Two or more files written by "onepass run --save", in the order of their rows.
    save
        File for the merged model; must not be one of the models.
    concurrent
        With forgetting: the models learned in parallel, so that their rows are equally old.
    quiet
        Print no messages.
    """
    from sklearn.utils import get_tags

    from onepass import load
    from onepass import save as saved
    from onepass.errors import MergeError, OnepassError

    if len(models) < 2:
        raise CycloptsError(msg="merge: two or more models are needed: merge a.onepass b.onepass.")
    with usage_errors("merge"):
        check_not_overwritten(models, [save], "merge: --save")
    save.parent.mkdir(parents=True, exist_ok=True)
    first, *others = models
    merged = load(first)
    for model in others:
        part = load(model)
        if not hasattr(merged, "merge"):
            raise MergeError(
                f"{first} must contain a model, got a {type(merged).__name__}. Pass "
                "files of onepass run --save.",
                "merge",
            )
        try:
            merged.merge(part, concurrent=concurrent)
        except OnepassError as error:
            raise MergeError(f"{model} with {first}: {error}", "merge") from error
    saved(merged, save)
    kind = get_tags(merged).merging
    kind = "" if kind == "exact" else f", {kind}"
    rows = getattr(merged, "rows_seen_", 0)
    print_message(f"{rows:,} rows of {len(models)} models{kind}: {save}", quiet=quiet)
