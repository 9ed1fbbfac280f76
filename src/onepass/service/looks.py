"""Looks: what a durable learner's file must be asked for, as it was within the last second.

Whoever writes has the file for so long; then what was seen last is told, and nobody waits.
"""

import time
from typing import Any

from onepass.errors import StoreError
from onepass.service.spectrum import memory_of, spectrum
from onepass.service.store import Durable
from onepass.service.versions import Version

__all__ = ["Looks"]

_OFTEN = 1.0  # seconds between two looks, unless there is a new snapshot
_PATIENCE = 0.5  # seconds that whoever looks waits for who writes


class Looks:
    """What was seen of a durable learner.

    Parameters
    ----------
    durable : Durable
    """

    def __init__(self, durable: Durable) -> None:
        self._durable = durable
        self._seen: tuple[Any, int, list[Version]] = (None, 0, [])
        self._at = 0.0
        self._spectrum: tuple[Any, list[float] | None] = (None, None)

    def now(self) -> tuple[int, list[Version]]:
        """How many rows wait for their answers, and the snapshots."""
        at, last = time.monotonic(), self._durable.last_snapshot
        if last != self._seen[0] or at - self._at > _OFTEN:
            self._seen = (last, *self._seen[1:])
            with self._durable.turn(_PATIENCE) as free:
                if free:
                    self._look(last)
            self._at = time.monotonic()
        return self._seen[1:]

    def spectrum(self) -> list[float] | None:
        """Of the memory; while a loop has it alone, as it was when it was last written down."""
        memory = memory_of(self._durable.answering)
        if memory is None:
            memory = memory_of(self._durable.written)
        if memory is not self._spectrum[0]:
            found = spectrum(memory)
            self._spectrum = (memory, None if found is None else found.tolist())
        return self._spectrum[1]

    def _look(self, last: Any) -> None:
        try:
            self._seen = (last, self._durable.waiting, self._durable.versions)
        except StoreError:  # it was closed meanwhile, or cannot be read: its trouble tells that
            return
