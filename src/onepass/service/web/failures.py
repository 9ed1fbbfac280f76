"""Failures: what is raised, as an answer of HTTP.

Whoever asks is told what was wrong with the request, in the words of the error; only onepass's own
errors have words for them. What is wrong with a learner's file they are told without its folder,
and the log has the whole. Anything else is a failure of the server: its log tells why, under a
number that the answer has.
"""

import logging
import secrets
import time
from dataclasses import dataclass, field
from pathlib import Path

from onepass.errors import (
    BusyError,
    CheckpointError,
    ForbiddenError,
    KeyReusedError,
    LongError,
    MethodError,
    MissingExtraError,
    OnepassError,
    PendingError,
    SourceError,
    StoreError,
    TakenError,
    UnauthorizedError,
    UnknownError,
)
from onepass.service.web.pathless import pathless

__all__ = ["Failure", "Failures"]

_LOG = logging.getLogger("onepass.service")
_MOST = 4000  # characters of a message
_SELDOM = 60.0  # seconds after which the log is told the same again


@dataclass(frozen=True)
class Failure:
    """Status, message and headers of an answer."""

    status: int
    message: str
    headers: dict[str, str] = field(default_factory=dict)


_STATUS: tuple[tuple[type[BaseException], int], ...] = (
    (UnauthorizedError, 401),
    (ForbiddenError, 403),
    (UnknownError, 404),
    (MethodError, 405),
    (KeyReusedError, 409),
    (TakenError, 409),
    (LongError, 413),
    (BusyError, 429),
    (MissingExtraError, 501),
    (PendingError, 503),
    (StoreError, 503),
    (OnepassError, 400),
)
_OF_FILES = (StoreError, CheckpointError, SourceError)


class Failures:
    """What is said of failures, and to whom.

    Parameters
    ----------
    folder : Path
        Of the learners' files.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._logged: tuple[str, float] = ("", 0.0)

    def told(self, wrong: BaseException) -> Failure:
        """The answer to whoever asked for what has raised this.

        Parameters
        ----------
        wrong : exception
        """
        found = next((status for kind, status in _STATUS if isinstance(wrong, kind)), 500)
        if found == 500:
            number = secrets.token_hex(8)
            _LOG.error("failure", exc_info=wrong, extra={"told": {"number": number}})
            return Failure(500, f"the server has failed; its log tells why, under {number}.")
        text = str(wrong)
        if isinstance(wrong, StoreError):
            found = 507 if wrong.full else 503
            self._log(text)
        if isinstance(wrong, _OF_FILES):
            text = pathless(text, self._folder)
        return Failure(found, text[:_MOST], _headers(wrong))

    def _log(self, text: str) -> None:
        """Log what is wrong with a file: the same once a minute, for it comes with each request."""
        last, at = self._logged
        if text != last or time.monotonic() - at > _SELDOM:
            self._logged = text, time.monotonic()
            _LOG.error("a learner's file", extra={"told": {"trouble": text}})


def _headers(wrong: BaseException) -> dict[str, str]:
    if isinstance(wrong, UnauthorizedError):
        return {"WWW-Authenticate": 'Bearer realm="onepass"'}
    if isinstance(wrong, MethodError):
        return {"Allow": wrong.allowed}
    if isinstance(wrong, (BusyError, PendingError)):
        return {"Retry-After": str(max(1, round(wrong.seconds)))}
    return {}
