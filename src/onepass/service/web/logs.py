"""Logs: one line of JSON for each thing that happened, on standard error."""

import json
import logging
import sys
import time
import traceback
from typing import Any

__all__ = ["logged", "set_up"]

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


def logged(what: str, **told: Any) -> None:
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
