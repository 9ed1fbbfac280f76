"""Inspect: what stands in a model file, which is read and not built."""

import json as text
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from onepass.cli.terminal import show

__all__ = ["inspect"]

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
    from onepass.evaluate import standing
    from onepass.serialization.models import describe

    if _is_database(file):
        from onepass.service.examine import examine

        return examine(file)
    try:
        return describe(file)
    except CheckpointError as no_model:
        try:
            stood = standing(file)
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


def _called(value: Any) -> str:
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


def _worded(value: Any) -> str:
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
