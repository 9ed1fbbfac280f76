"""Reread: a report that was written as JSON, from its text or from its file."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from onepass.errors import SourceError

__all__ = ["reread"]

_Report = TypeVar("_Report")


def reread(
    source: str | os.PathLike[str],
    restored: Callable[[dict[str, Any]], _Report],
    where: str,
    version: int,
) -> _Report:
    """A report, as ``to_json`` wrote it.

    Parameters
    ----------
    source : str or path
        The text, which begins with ``{``, or the path of a file that holds it.
    restored : callable
        Makes the report of what was read; raises a ValueError, TypeError or KeyError of what is
        none.
    where : str
        The public call, for messages.
    version : int
        The number of the format.

    Raises
    ------
    SourceError
        If there is no such file, or it is no report.
    """
    given = isinstance(source, str) and source.lstrip().startswith("{")
    try:
        text = str(source) if given else Path(source).read_text(encoding="utf-8")
        return restored(json.loads(text))
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as wrong:
        raise SourceError(
            f"{where}: {'the text' if given else source} must be a report that to_json wrote, in "
            f"format {version}, got {type(wrong).__name__}: {wrong}. Write it again with to_json."
        ) from wrong
