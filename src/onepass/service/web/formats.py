"""Formats: which of the wire's forms a request comes in, and its answer goes back in."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

from onepass.service.protocol import arrow, mlflow, v2
from onepass.service.protocol.limits import Limits
from onepass.service.protocol.rows import Asked, Reply
from onepass.service.web.exchange import Answer, Asking

__all__ = ["Format", "format_of"]

_HEADER = b"inference-header-content-length"
_LONGEST = 128  # of a content type that is told from others
_STREAM = "application/vnd.apache.arrow.stream"


@dataclass(frozen=True)
class Format:
    """How bytes are read, and answers written.

    Parameters
    ----------
    reader : callable
        Of a body, limits, and whether it is to be learned.
    writer : callable
        Of what was asked, and of answers by their names.
    tells_ids : bool, default True
        Whether ids have a place in its answers.
    tells_size : bool, default True
        Whether a short body holds few rows: within a packed one there may be any number.
    """

    reader: Callable[..., Asked]
    writer: Callable[..., Reply]
    tells_ids: bool = True
    tells_size: bool = True

    def read(self, body: bytes, limits: Limits, *, learning: bool) -> Asked:
        """What a body asks.

        Raises
        ------
        RequestError
        """
        return self.reader(body, limits, learning=learning)

    def answer(
        self,
        name: str,
        version: int,
        asked: Asked,
        found: Mapping[str, Any],
        *,
        again: bool = False,
    ) -> Answer:
        """Answers as they go back.

        Parameters
        ----------
        name, version : str and int
            Of the learner that answers.
        asked : Asked
        found : mapping of str to ndarray
        again : bool, default False
            Whether the rows had been learned before: the header ``Idempotent-Replayed`` says so.
        """
        reply = self.writer(asked, found, model=name, version=str(version))
        headers = {"X-Onepass-Version": str(version)}
        if reply.headers is not None:
            headers.update(reply.headers)
        if again:
            headers["Idempotent-Replayed"] = "true"
        return Answer(reply.body, reply.kind, headers=headers)


def format_of(asking: Asking, *, scoring: bool = False) -> Format:
    """The format that a request's headers name.

    Parameters
    ----------
    asking : Asking
        Whatever its content type, a body that is no Arrow stream is one of the protocol's: many who
        ask do not say.
    scoring : bool, default False
        Whether it is MLflow's ``/invocations``.
    """
    form = _named((asking.header(b"content-type") or "")[:_LONGEST], scoring)
    header = asking.header(_HEADER) if form is _TENSORS else None
    return form if header is None else Format(partial(v2.read, header=header), v2.write)


@lru_cache(maxsize=64)
def _named(said: str, scoring: bool) -> Format:  # noqa: FBT001
    """The format of a content type."""
    kind = said.partition(";")[0].strip().lower()
    if kind == _STREAM:
        return _ARROW
    if scoring:
        return _CSV if kind == "text/csv" else _MLFLOW
    return _TENSORS


def _scored(asked: Asked, found: Mapping[str, Any], *, model: str, version: str) -> Reply:
    """MLflow's answer, which says nothing else."""
    del asked, model, version
    return mlflow.write(found)


_TENSORS = Format(v2.read, v2.write)
_ARROW = Format(arrow.read, arrow.write, tells_size=False)
_CSV = Format(mlflow.read_csv, _scored, tells_ids=False)
_MLFLOW = Format(mlflow.read, _scored, tells_ids=False)
