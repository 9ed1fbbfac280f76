"""Log of the service on standard error, one JSON object per line."""

from __future__ import annotations

import json
import logging
import traceback
from datetime import UTC, datetime
from typing import Any

from onepass import logs

LOG = logs.LOG.getChild("service")


class _JSONLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "what": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            line["traceback"] = "".join(traceback.format_exception(*record.exc_info))
        return json.dumps(line, default=str)


def set_up(level: str) -> None:
    """Write the service's log, errors of uvicorn, and warnings to standard error.

    Parameters
    ----------
    level : {"debug", "info", "warning", "error"}
        Lowest level of the service's log.
    """
    handler = logging.StreamHandler()
    handler.setFormatter(_JSONLines())
    for name in ("onepass.service", "uvicorn.error"):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(level.upper() if name == LOG.name else "ERROR")
    logging.captureWarnings(capture=True)
    logging.getLogger("py.warnings").handlers = [handler]


def log(event: str, **fields: object) -> None:
    """Log an event; as a warning if it has a field ``why``. Fields must not contain secrets.

    Parameters
    ----------
    event : str
        Event, in a few words.
    **fields
        Further fields of the JSON object.
    """
    level = logging.WARNING if "why" in fields else logging.INFO
    LOG.log(level, event, extra={"fields": fields})
