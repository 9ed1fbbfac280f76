"""Pathless: what a message says, without where on the server's disk it is about.

Whoever asks from elsewhere is told that ``flow.db`` could not be written, and no folder; the log
keeps the whole.
"""

import os
import re
from functools import lru_cache
from pathlib import Path

__all__ = ["pathless"]

_FOLDERS = re.compile(r"(?:(?<=[\s'\"(=])|^)(?:[A-Za-z]:)?[/\\](?:[^\s/\\'\"]+[/\\])+")
"""Those of an absolute path; an address, such as redis://…, is none."""


def pathless(text: str, folder: Path) -> str:
    """A message without folders.

    Parameters
    ----------
    text : str
    folder : Path
        Of the learners' files, which may be relative, or have blanks in it.

    Examples
    --------
    >>> pathless("/srv/my data/flow.db could not be read, see /var/log/disk.", Path("/srv/my data"))
    'flow.db could not be read, see disk.'
    """
    for each in _spelled(folder):
        text = text.replace(each, "")
    return _FOLDERS.sub("", text)


@lru_cache(maxsize=8)
def _spelled(folder: Path) -> list[str]:
    """All ways to write it, with the separator behind, the longest first."""
    ways = {str(folder), os.path.realpath(folder), str(folder.absolute())}
    return sorted((f"{each.rstrip(os.sep)}{os.sep}" for each in ways - {".", os.sep}), key=len)[
        ::-1
    ]
