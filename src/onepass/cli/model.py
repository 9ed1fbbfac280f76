"""``inspect``, which reads a model file without building the model, and ``merge`` of models."""

import json as text
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

from cyclopts import CycloptsError, Parameter

from onepass.cli.arguments import Quiet, check_not_overwritten, usage_errors
from onepass.cli.terminal import print_message, show

__all__ = ["inspect", "merge"]


_DATABASE = b"SQLite format 3\0"
_SNAPSHOT = {"version", "rows_seen", "at", "why", "bytes"}


def inspect(model: Path, /, *, json: bool = False) -> None:
    """Show what stands in a model file: class, parameters, rows learned, size, checksum.

    Of m.onepass.run, which is kept beside, it shows where the run stands. The file of a durable
    learner, such as a backup of served/m.db, is checked too: all of its snapshots, blocks and keys.

    Parameters
    ----------
    model
        A file that "onepass run --save" wrote, or one of "onepass serve --data" that nobody holds.
    json
        As JSON.
    """
    description = _described(model)
    if json:
        print(text.dumps(description, indent=1, ensure_ascii=False))  # noqa: T201  no line is broken
        return
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=box.SIMPLE, show_header=False, title=str(model), title_justify="left")
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in description.items():
        table.add_row(name.replace("_", " "), escape(_worded(value)))
    show(table)


def _described(file: Path) -> dict[str, Any]:
    """What a model's file says of it, or a run's of where it stands."""
    from onepass.errors import CheckpointError
    from onepass.evaluate import run_progress
    from onepass.serialization.models import describe

    if _is_database(file):
        from onepass.service.examine import examine

        return examine(file)
    try:
        return describe(file)
    except CheckpointError as no_model:
        try:
            stood = run_progress(file)
        except CheckpointError:
            stood = None
        if stood is None:
            raise no_model from None
        return asdict(stood)


def _is_database(file: Path) -> bool:
    """Whether it is a file of SQLite."""
    with suppress(OSError), file.open("rb") as opened:
        return opened.read(len(_DATABASE)) == _DATABASE
    return False


def _called(value: object) -> str:
    """A value as Python writes it, an object as the call that makes it."""
    match value:
        case {"class": str(name), "parameters": dict(parameters), **rest} if not rest:
            given = ", ".join(f"{key}={_called(part)}" for key, part in parameters.items())
            return f"{name}({given})"
        case {"dtype": str(name), "shape": list(shape), **rest} if not rest:
            return f"array of {name}, shape {tuple(shape)}"
        case dict():
            return f"{{{', '.join(f'{key!r}: {_called(part)}' for key, part in value.items())}}}"
        case list():
            return f"[{', '.join(map(_called, value))}]"
    return repr(value)


def _worded(value: object) -> str:
    """A value as a reader wants it."""
    if isinstance(value, dict):
        if value.keys() == _SNAPSHOT:
            return "version {version:,}, {rows_seen:,} rows, {at}: {why}".format_map(value)
        if value.keys() in ({"class", "parameters"}, {"dtype", "shape"}):
            return _called(value)
        return "\n".join(f"{name} = {_worded(part)}" for name, part in value.items()) or "–"
    if isinstance(value, list):
        return "\n".join(map(_worded, value)) or "–"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return "–" if value is None else str(value)


_FORGETTING = (  # the remedy as Python has it, and as it is set here
    "Use plain forgetting, such as forgetting=op.forgetting.Exponential(0.99), or a Window.",
    (
        "Learn the parts with plain forgetting, --set rls.forgetting=exponential:0.999, or with a "
        "window, such as --set rls.forgetting=window:1000."
    ),
)


def merge(
    *models: Annotated[Path, Parameter(allow_leading_hyphen=False)],
    save: Path,
    concurrent: bool = False,
    quiet: Quiet = False,
) -> None:
    """Make one model of several, as if the first had also seen the rows of the others, in order.

    Recursive least squares (rls) and ORFit with noise and without a limit to its memory merge
    exactly, in any order of merging; what can only be merged approximately, or not at all, is
    told. All models must have been made with the same settings.

    Parameters
    ----------
    models
        Files that "onepass run --save" wrote, two or more, in the order of their rows.
    save
        Where to save what all of them learned. No model is written over.
    concurrent
        With forgetting: the parts ran side by side, so that none of them ages by another.
    quiet
        Say nothing of what was written.
    """
    from onepass import load
    from onepass import save as saved
    from onepass.errors import MergeError, OnepassError

    if len(models) < 2:
        raise CycloptsError(msg="merge: two or more models are needed: merge a.onepass b.onepass.")
    with usage_errors("merge"):
        check_not_overwritten(models, [save], "merge: --save")
    save.parent.mkdir(parents=True, exist_ok=True)
    first, *others = models
    whole = load(first)
    for model in others:
        part = load(model)
        if not hasattr(whole, "merge"):
            raise MergeError(
                f"merge: {first} must hold a model, got a {type(whole).__name__}. "
                "Give files that onepass run --save wrote."
            )
        try:
            whole.merge(part, concurrent=concurrent)
        except OnepassError as wrong:
            said = str(wrong).replace(*_FORGETTING)
            raise MergeError(f"merge: {model} with {first}: {said}") from wrong
    saved(whole, save)
    kind = "" if whole.merging == "exact" else f", {whole.merging}"
    rows = getattr(whole, "rows_seen_", 0)
    print_message(f"{rows:,} rows of {len(models)} models{kind}: {save}", quiet=quiet)
