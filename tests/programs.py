"""Programs that tests begin: without them tests are skipped, but not where CI is set."""

import os
import shutil

_NAMES = {
    "a browser": ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable"),
    "Redis": ("redis-server",),
}


def program(what: str) -> str | None:
    """Where a program is, if it is there.

    Parameters
    ----------
    what : {"a browser", "Redis"}
    """
    if os.name != "posix":
        return None
    return next(filter(None, map(shutil.which, _NAMES[what])), None)


def missing() -> list[str]:
    """What is not there, and whose tests are skipped."""
    return [what for what in _NAMES if program(what) is None]
