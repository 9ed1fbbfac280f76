"""Consumers of sources: a thread that learns the rows of a source, and sources by address.

Rows and the position after them are committed in one transaction, so each row is learned exactly
once, even if this process or the source is killed. Rejected rows are counted, and skipped when the
next position is committed. No position is committed before the first row of a source is learned: if
all rows are rejected, the address is probably wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Event, Thread

import numpy as np
from sklearn.base import is_classifier

from onepass.errors import ParameterError, SourceError, StoreError
from onepass.logs import LOG
from onepass.service.durable import Durable
from onepass.service.kafka import KafkaTopic
from onepass.service.redis import RedisStream
from onepass.service.source import Source, SourceBatch
from onepass.types import Array

_LOG = LOG.getChild("service")
_POLL = 0.25  # seconds to wait for rows before checking whether to stop
_MIN_DELAY, _MAX_DELAY = 0.1, 5.0  # seconds between two attempts
_WHOLE = 2.0**53  # float64 represents all integers up to this


class SourceConsumer:
    """Learns the rows of a source until it is closed.

    Parameters
    ----------
    durable : Durable
        Learner; its positions determine where reading continues.
    source : Source
        Source to read; ``close`` closes it.
    refuse : callable
        Called with a number of rejected rows, and the reason.

    Attributes
    ----------
    error : str or None
        Why rows cannot be read or learned; None without an error.
    lag : int or None
        Number of unread entries; None while the source cannot be read.

    Raises
    ------
    ParameterError
        If the learner forgets by time and the source has no times, or vice versa.
    """

    def __init__(
        self,
        durable: Durable,
        source: Source,
        refuse: Callable[[int, str], object],
    ) -> None:
        learner = durable.frozen_copy
        check_times(learner, source)
        self._durable, self.source, self._refuse = durable, source, refuse
        self._labels = is_classifier(learner)
        self._end = Event()
        self.error: str | None = None
        self._reported: str | None = ""  # nothing reported yet
        self.lag: int | None = None
        self._thread = Thread(target=self._work, name=f"feed {source.name}", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Finish the current batch, then stop the thread and close the source."""
        self._end.set()
        self._thread.join()
        self.source.close()

    def _work(self) -> None:
        wait = _MIN_DELAY
        while not self._end.is_set():
            try:
                for batch in self.source.read(self._durable.positions, seconds=_POLL):
                    self._learn(batch)
                    self._report(None)
                    wait = _MIN_DELAY
                    if self._end.is_set():
                        return
                self._report(None)
                self.lag = 0
                wait = _MIN_DELAY
            except Exception as error:  # noqa: BLE001  reported and retried
                self._report(str(error) or repr(error))
                self.lag = None
                self._end.wait(wait)
                wait = min(2.0 * wait, _MAX_DELAY)

    def _report(self, error: str | None) -> None:
        """Set ``error`` to a message or None, and log a change."""
        self.error = error
        if self._reported == error:
            return
        self._reported, fields = error, {"source": self.source.name}
        if error is None:
            _LOG.info("the source is read", extra={"fields": fields})
        else:
            _LOG.warning("the source cannot be read", extra={"fields": {**fields, "why": error}})

    def _learn(self, batch: SourceBatch) -> None:
        """Learn a batch, except for its rejected rows."""
        passed, refused = 0, list(batch.refused)  # passed: rows before the committed position
        waiting = [(0, len(batch))] if len(batch) else []
        try:
            while waiting:
                first, end = waiting.pop()
                why = self._refusal(batch, slice(first, end))
                if why is None:
                    passed = end
                elif end - first == 1:
                    refused.append((first, f"{batch.part}: entry {batch.positions[first]}: {why}"))
                else:  # bisect, to find the rejected rows
                    middle = (first + end) // 2
                    waiting += [(middle, end), (first, middle)]
            if refused and not passed and not self.positions:
                raise SourceError(
                    f"at least one of the first {len(refused):,} entries must be a row that can be "
                    f"learned, but all are rejected: {refused[0][1]} Correct the address, or send "
                    "a valid row; then the rejected rows are skipped.",
                    batch.part,
                )
            if not passed or batch.positions[passed - 1] != batch.position:
                self._durable.commit_position(batch.part, batch.position)
            passed = len(batch) + 1  # including entries refused after the last row
        finally:
            if passed:
                self._count(batch, [why for before, why in refused if before < passed])
        self.lag = batch.lag

    @property
    def positions(self) -> dict[str, str]:
        """Committed positions of the source."""
        name, found = f"{self.source.name}/", self._durable.positions
        return {part: at for part, at in found.items() if f"{part}/".startswith(name)}

    def _refusal(self, batch: SourceBatch, part: slice) -> str | None:
        """Learn rows with their position; return why the learner rejects them, or None."""
        rows = batch.rows[part]
        y = _labels(rows.y) if self._labels else rows.y
        at = {"source": batch.part, "position": batch.positions[part.stop - 1]}
        try:
            self._durable.learn(rows.X, y, time=rows.time, **at)
        except (StoreError, MemoryError):
            raise
        except Exception as error:  # noqa: BLE001  other rows may be valid
            return str(error) or repr(error)
        return None

    def _count(self, batch: SourceBatch, refused: list[str]) -> None:
        if batch.removed is not None:
            self._refuse(*batch.removed)
        for why in refused:
            self._refuse(1, why)


def check_times(learner: object, source: Source) -> None:
    """Raise ParameterError if only one of a learner and a source has times."""
    if bool(getattr(learner, "_uses_time", False)) != source.has_time:
        must = "not name" if source.has_time else "name"
        raise ParameterError(
            f"the address must {must} the field of the time, as the learner is "
            f"{learner!r:.200}. Set `time` only for a learner that forgets by time.",
            source.name,
        )


def _labels(y: Array) -> Array:
    """Convert labels to integers if all of them are whole numbers."""
    whole = y.dtype.kind == "f" and bool(((y == np.floor(y)) & (np.abs(y) < _WHOLE)).all())
    return y.astype(np.int64) if whole else y


SCHEMES: dict[str, Callable[[str], Source]] = {
    "redis": RedisStream,
    "rediss": RedisStream,
    "kafka": KafkaTopic,
}
"""Constructors of sources, called with the address, by URL scheme."""


def source(url: str) -> Source:
    """Create a source from its address.

    Parameters
    ----------
    url : str
        Address such as ``redis://localhost:6379/0?stream=flow&target=y``; see :mod:`.redis` and
        :mod:`.kafka`.

    Raises
    ------
    ParameterError
        If the scheme is unknown, or the address is invalid.
    MissingExtraError
        If the package of the source is not installed.
    """
    scheme, separator, _ = url.partition("://")
    constructor = SCHEMES.get(scheme.lower()) if separator else None
    if constructor is None:
        raise ParameterError(
            f"--source: the address must begin with {':// or '.join(SCHEMES)}://, got "
            f"{repr(scheme[:20]) if separator else 'an address without ://'}. Pass one "
            "such as redis://localhost:6379/0?stream=NAME&target=FIELD.",
            "serve",
        )
    return constructor(url)
