"""Requests: what a durable learner is asked to keep, one by one or many at once."""

import json
from _thread import allocate_lock
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from onepass.errors import Array, DamagedError, StoreError
from onepass.service.blocks import Block

__all__ = ["Receipt", "Request", "runs", "said_from_bytes", "said_to_bytes", "shut"]

_ROWS = 4096  # in a block of several requests
_KINDS = "biufUM"  # of dtypes that stand as they are


class Receipt(NamedTuple):
    """What became of rows that were learned: they are on the disk."""

    version: int
    """The learner's version with them: how many blocks it has learned."""

    said: Array
    """What was said of each row just before it was learned, of the shape of y."""

    again: bool = False
    """Whether they had been learned before, by a request with the same key."""


@dataclass(slots=True, eq=False)
class Request:
    """Rows to learn, or to keep until their answers come; what became of them is noted here.

    Parameters
    ----------
    block : Block
    body : bytes
        The block, to be written down, where it was asked before whether it can be.
    size : int
        About how many bytes it takes.
    keys : sequence of tuple[str, bytes]
        An idempotency key of all rows, or one of each, with the digest of what was asked.
    source, position : str, optional
        Where the rows came from.
    ids : sequence of str
        Those of rows that wait: with an answer they wait no longer.
    until : float
        Until when they wait, if they have no answer yet.
    done : callable, optional
        Called with the request once it is decided on.
    receipt, error : Receipt and exception, optional
        What became of it.
    settled : bool
        Whether it is decided on.
    waits : bool
        Whether somebody waits for it, who can take the turn.
    gate : lock, optional
        Of whoever waits, as ``shut`` gives it.
    former : bytes
        The digest under which a former version may have noted this request.
    """

    block: Block
    body: bytes = b""
    size: int = 0
    keys: Sequence[tuple[str, bytes]] = ()
    source: str | None = None
    position: str | None = None
    ids: Sequence[str] = ()
    until: float = 0.0
    done: Callable[["Request"], None] | None = None
    receipt: Receipt | None = None
    error: BaseException | None = None
    settled: bool = False
    waits: bool = False
    gate: Any = None
    former: bytes = b""

    def is_settled(self) -> bool:
        """Whether it is decided on; another thread may do so meanwhile."""
        return self.settled

    def wait(self, seconds: float) -> bool:
        """Wait until it is settled, or its turn has come to settle others; whether it was woken."""
        woken: bool = self.gate.acquire(timeout=seconds)
        return woken

    def wake(self) -> None:
        """Let whoever waits for it go on."""
        if self.gate is not None:
            with suppress(RuntimeError):  # it was woken already
                self.gate.release()

    def result(self) -> Receipt:
        """The receipt, or what is raised in its place."""
        if self.error is not None:
            raise self.error
        if self.receipt is None:
            raise StoreError("a request: it must be settled before its receipt is asked for.")
        return self.receipt


def shut() -> Any:
    """A gate that whoever comes waits at, until it is opened once."""
    gate = allocate_lock()
    gate.acquire()
    return gate


def runs(requests: Sequence[Request]) -> list[list[Request]]:
    """Requests that follow each other and can be learned as one block.

    Parameters
    ----------
    requests : sequence of Request
        A request of a source is a block by itself: it has a position.
    """
    if len(requests) == 1:
        return [list(requests)]
    found: list[list[Request]] = []
    run: list[Request] = []
    rows, like = 0, None
    for request in requests:
        size, kind = len(request.block), request.block.like
        alone = request.source is not None
        if not run or alone or kind != like or rows + size > _ROWS:
            run, rows = [], 0
            found.append(run)
        run.append(request)
        rows += size
        like = None if alone else kind
    return found


def said_to_bytes(said: Array) -> bytes:
    """Answers, written down."""
    plain = said.dtype.kind in _KINDS
    body = said.tobytes() if plain else json.dumps(said.tolist()).encode()
    return _head(said.dtype.str, said.shape) + body


@lru_cache(maxsize=256)
def _head(dtype: str, shape: tuple[int, ...]) -> bytes:
    return json.dumps([dtype, shape]).encode() + b"\n"


def said_from_bytes(data: bytes) -> Array:
    """What ``said_to_bytes`` was given.

    Raises
    ------
    DamagedError
        If these are other bytes.
    """
    try:
        head, _, body = data.partition(b"\n")
        dtype, shape = json.loads(head)
        if np.dtype(dtype).kind in _KINDS:
            return np.frombuffer(body, dtype).reshape(shape).copy()
        said = np.empty(shape, dtype=object)
        said[...] = json.loads(body)
    except (ValueError, TypeError) as wrong:
        raise DamagedError(f"what was said once is not as it was written: {wrong}") from wrong
    return said
