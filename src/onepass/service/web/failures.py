"""Failures: what is raised, as an answer of HTTP.

Whoever asks is told what was wrong with the request, in the words of the error. What is wrong with
the server is told in its log alone, under a number that the answer has.
"""

import logging
import secrets
from dataclasses import dataclass, field

from onepass.errors import (
    BusyError,
    ForbiddenError,
    GoneError,
    KeyReusedError,
    LongError,
    MethodError,
    MissingExtraError,
    OnepassError,
    StoreError,
    TakenError,
    UnauthorizedError,
    UnknownError,
)

__all__ = ["Failure", "failure"]

_LOG = logging.getLogger("onepass.service")
_MOST = 4000  # characters of a message


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
    (GoneError, 408),
    (KeyReusedError, 409),
    (TakenError, 409),
    (LongError, 413),
    (BusyError, 429),
    (MissingExtraError, 501),
    (StoreError, 503),
    (OnepassError, 400),
    (ValueError, 400),  # scikit-learn's own, of what came
    (TypeError, 400),
)


def failure(wrong: BaseException) -> Failure:
    """The answer to whoever asked for what has raised this.

    Parameters
    ----------
    wrong : exception
    """
    found = next((status for kind, status in _STATUS if isinstance(wrong, kind)), 500)
    if isinstance(wrong, StoreError) and wrong.full:
        found = 507
    if found == 500:
        number = secrets.token_hex(8)
        _LOG.error("failure", exc_info=wrong, extra={"told": {"number": number}})
        return Failure(500, f"the server has failed; its log tells why, under {number}.")
    if not isinstance(wrong, OnepassError):
        _LOG.debug("refused in words that are not ours", exc_info=wrong)
    return Failure(found, str(wrong)[:_MOST], _headers(wrong))


def _headers(wrong: BaseException) -> dict[str, str]:
    if isinstance(wrong, UnauthorizedError):
        return {"WWW-Authenticate": 'Bearer realm="onepass"'}
    if isinstance(wrong, MethodError):
        return {"Allow": wrong.allowed}
    if isinstance(wrong, BusyError):
        return {"Retry-After": str(max(1, round(wrong.seconds)))}
    return {}
