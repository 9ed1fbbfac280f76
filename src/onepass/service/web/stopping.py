"""Stopping: what signals do: the first ends in order, the second at once.

At once is without loss: all that was acknowledged is on the disk already.
"""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Self

__all__ = ["Stopping"]

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Stopping:
    """Within its context SIGINT and SIGTERM stop the service.

    Where a signal is ignored, it stays so; in threads that hear no signals, nothing is changed.

    Attributes
    ----------
    code : int
        The exit code of who was told to stop, 128 and the signal's number; 0 of who was not.
    """

    def __init__(self) -> None:
        self.code = 0
        self._stop: Callable[[], None] = _interrupt
        self._before: dict[int, object] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for each in _SIGNALS:
                before = signal.getsignal(each)
                if before is not signal.SIG_IGN:
                    self._before[each] = before
                    signal.signal(each, self._heard)
        return self

    def __exit__(self, *_: object) -> None:
        for each, before in self._before.items():
            signal.signal(each, before)  # type: ignore[arg-type]  # as getsignal gave it
        self._before.clear()

    @contextmanager
    def by(self, stop: Callable[[], None]) -> Iterator[None]:
        """Within this context the first signal calls this, instead of interrupting.

        Parameters
        ----------
        stop : callable
        """
        if self.code:
            stop()
        self._stop = stop
        try:
            yield
        finally:
            self._stop = _interrupt

    def _heard(self, number: int, frame: FrameType | None) -> None:
        del frame
        if self.code:
            os._exit(128 + number)
        self.code = 128 + number
        self._stop()


def _interrupt() -> None:
    raise KeyboardInterrupt
