"""Consumers of sources: a thread that learns the rows of a source, and sources by their address.

What is learned and the position behind it are one transaction, so each row is learned once, through
kills of this process and of the source. Rows that are refused are counted, and passed by, with the
next position that is kept; but as long as nothing of a source was ever learned, it stays at the
beginning, for then its address is rather wrong than all of its rows.
"""

from collections.abc import Callable
from threading import Event, Thread
from typing import Any

import numpy as np
from sklearn.base import is_classifier

from onepass.errors import ParameterError, SourceError, StoreError
from onepass.service.durable import Durable
from onepass.service.monitoring import Gauges
from onepass.service.redis import RedisStream
from onepass.service.source import Piece, Source
from onepass.types import Array

__all__ = ["SCHEMES", "Feeder", "source"]

_WAIT = 0.25  # seconds without a row, after which it looks whether it is to end
_SHORTEST, _LONGEST = 0.1, 5.0  # seconds between two attempts
_WHOLE = 2.0**53


class Feeder:
    """Learns a source for as long as it is open.

    Parameters
    ----------
    durable : Durable
        Its positions say where to go on.
    source : Source
        Closed when this is.
    gauges : Gauges
        Told of rows that are refused.
    log : callable, optional
        Called with "the source is read" or "the source cannot be read" when that begins to be so,
        and by name with its ``source`` and ``why``.

    Attributes
    ----------
    trouble : str or None
        What keeps it from reading or learning; None if nothing does.
    behind : int
        Entries that waited behind the last that were read.

    Raises
    ------
    ParameterError
        If the learner forgets by time, and the source does not say it, or the other way round.
    """

    def __init__(
        self,
        durable: Durable,
        source: Source,
        gauges: Gauges,
        log: Callable[..., object] | None = None,
    ) -> None:
        learner = durable.frozen_copy
        if bool(getattr(learner, "uses_time", False)) != source.has_time:
            must = "not say" if source.has_time else "say"
            raise ParameterError(
                f"{source.name}: the address must {must} which field is the time, as the learner "
                f"is {learner!r:.200}. Give `time` with a learner that forgets by time alone."
            )
        self._durable, self.source, self._gauges = durable, source, gauges
        self._labels, self._log = is_classifier(learner), log
        self._end = Event()
        self.trouble: str | None = None
        self._stood: str | None = ""  # neither read nor in trouble
        self.behind = 0
        self._thread = Thread(target=self._work, name=f"feed {source.name}", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Learn what was read, then end."""
        self._end.set()
        self._thread.join()
        self.source.close()

    def _work(self) -> None:
        wait = _SHORTEST
        while not self._end.is_set():
            try:
                for piece in self.source.read(self._durable.positions, seconds=_WAIT):
                    self._learn(piece)
                    self._stands(None)
                    wait = _SHORTEST
                    if self._end.is_set():
                        return
                self._stands(None)
                wait = _SHORTEST
            except Exception as wrong:  # noqa: BLE001  it is told; it may go on again later
                self._stands(str(wrong) or repr(wrong))
                self._end.wait(wait)
                wait = min(2.0 * wait, _LONGEST)

    def _stands(self, trouble: str | None) -> None:
        """What keeps it from reading or learning, if anything; if that is new, it is logged."""
        self.trouble = trouble
        if self._stood != trouble and self._log is not None:
            if trouble is None:
                self._log("the source is read", source=self.source.name)
            else:
                self._log("the source cannot be read", source=self.source.name, why=trouble)
        self._stood = trouble

    def _learn(self, piece: Piece) -> None:
        """Learn a piece, but those of its rows that are refused."""
        passed, refused = 0, list(piece.refused)  # rows that are not read again
        waiting = [(0, len(piece))] if len(piece) else []
        try:
            while waiting:
                first, end = waiting.pop()
                why = self._refusal(piece.rows(first, end))
                if why is None:
                    passed = end
                elif end - first == 1:
                    refused.append((first, f"{piece.part}: entry {piece.positions[first]}: {why}"))
                else:  # halves of it, until what is refused stands alone
                    middle = (first + end) // 2
                    waiting += [(middle, end), (first, middle)]
            if refused and not passed and piece.part not in self._durable.positions:
                raise SourceError(
                    f"{piece.part}: some of its first {len(refused):,} entries must be rows that "
                    f"can be learned, but none is: {refused[0][1]} Correct the address; or send "
                    "rows that are right, and the others are passed by."
                )
            if not passed or piece.positions[passed - 1] != piece.position:
                self._durable.commit_position(piece.part, piece.position)
            passed = len(piece) + 1  # with what is refused behind the last row
        finally:
            if passed:
                self._count(piece, [why for before, why in refused if before < passed])
        self.behind = piece.behind

    def _refusal(self, rows: dict[str, Any]) -> str | None:
        """Why the learner refuses rows; None if they were learned, and the position with them."""
        if self._labels:
            rows["y"] = _labels(rows["y"])
        try:
            self._durable.learn(**rows)
        except (StoreError, MemoryError):
            raise
        except Exception as wrong:  # noqa: BLE001  whatever is wrong with these, others may be right
            return str(wrong) or repr(wrong)
        return None

    def _count(self, piece: Piece, refused: list[str]) -> None:
        if piece.gone is not None:
            self._gauges.refuse(*piece.gone)
        for why in refused:
            self._gauges.refuse(1, why)


def _labels(y: Array) -> Array:
    """Labels as whole numbers, where they are."""
    whole = y.dtype.kind == "f" and bool(((y == np.floor(y)) & (np.abs(y) < _WHOLE)).all())
    return y.astype(np.int64) if whole else y


SCHEMES: dict[str, Callable[[str], Source]] = {"redis": RedisStream, "rediss": RedisStream}
"""Constructors of sources by the scheme of the address, which is their argument."""


def source(url: str) -> Source:
    """Open a source by its address.

    Parameters
    ----------
    url : str
        Such as ``redis://localhost:6379/0?stream=flow&target=y``; see :mod:`.redis`.

    Raises
    ------
    ParameterError
        If there is no such kind of source, or the address is not one of it.
    MissingExtraError
        If its package is not installed.
    """
    scheme, there, _ = url.partition("://")
    kind = SCHEMES.get(scheme.lower()) if there else None
    if kind is None:
        raise ParameterError(
            f"serve: --source: the address must begin with {':// or '.join(SCHEMES)}://, "
            f"got {scheme[:20] if there else 'neither'!r}. Give such as "
            "redis://localhost:6379/0?stream=NAME&target=FIELD."
        )
    return kind(url)
