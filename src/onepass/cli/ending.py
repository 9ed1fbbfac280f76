"""Ending: a request to end (SIGTERM) is met as Ctrl-C is, and remembered for the exit code."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from onepass.interrupt import Background

__all__ = ["INTERRUPTED", "TERMINATED", "terminable"]

INTERRUPTED = 130
"""The exit code of who was ended by Ctrl-C."""

TERMINATED = 143
"""The exit code of who was asked to end, as ``kill`` and service managers do."""


@contextmanager
def terminable() -> Iterator[Callable[[], int]]:
    """Within this context SIGTERM does what Ctrl-C does, also where SIGINT is ignored.

    Where the program has a handler of its own, and in other threads, nothing is changed.

    Yields
    ------
    code : callable
        The exit code of who was interrupted, by whichever of the two.
    """
    ended: list[int] = []
    background = Background()

    def note(number: int, frame: FrameType | None) -> None:
        del number, frame
        ended.append(TERMINATED)
        background.asked = True
        signal.raise_signal(signal.SIGINT)

    def code() -> int:
        return ended[0] if ended else INTERRUPTED

    ours = (
        threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    )
    if not ours:
        yield code
        return
    ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    if ignored:
        signal.signal(signal.SIGINT, background)
    signal.signal(signal.SIGTERM, note)
    try:
        yield code
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        if ignored:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
