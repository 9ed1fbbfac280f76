"""External programs that tests need; without them tests are skipped, or fail in CI."""

import os
import shutil

_NAMES = {
    "a browser": ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable"),
    "Prometheus": ("prometheus",),
    "Redis": ("redis-server",),
}


def program(what: str) -> str | None:
    """The path of a program, or None if it is not installed.

    Parameters
    ----------
    what : {"a browser", "Prometheus", "Redis"}
    """
    if os.name != "posix":
        return None
    return next(filter(None, map(shutil.which, _NAMES[what])), None)


def missing() -> list[str]:
    """Programs that are not installed."""
    return [what for what in _NAMES if program(what) is None]
