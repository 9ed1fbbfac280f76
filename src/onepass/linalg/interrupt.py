"""Deferred handling of Ctrl-C: a running update is completed before the interrupt is raised."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Background:
    """A SIGINT handler for a program that inherited an ignored SIGINT, as from a shell's ``&``.

    SIGINT is ignored until ``asked`` is set.

    Attributes
    ----------
    asked : bool
        Whether a SIGINT raises KeyboardInterrupt.
    """

    def __init__(self) -> None:
        self.asked = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Handle a SIGINT."""
        if self.asked:
            signal.default_int_handler(number, frame)


class Interrupt:
    """Defers a keyboard interrupt while a model is updated.

    As in ``asyncio.run``, only Python's default SIGINT handler, or a `Background`, is replaced. In
    other threads, and if the program has installed a handler, nothing changes. A second interrupt
    while the first is deferred is raised at once.

    Attributes
    ----------
    asked : bool
        Whether an interrupt was deferred.
    """

    def __init__(self) -> None:
        self.asked = False

    @contextmanager
    def held(self) -> Iterator[None]:
        """A context within which an interrupt sets ``asked`` and is not raised."""
        before = signal.getsignal(signal.SIGINT)
        if threading.current_thread() is not threading.main_thread() or not (
            before is signal.default_int_handler or isinstance(before, Background)
        ):
            yield
            return

        def note(number: int, frame: FrameType | None) -> None:
            try:
                before(number, frame)
            except KeyboardInterrupt:
                if self.asked:
                    raise
                self.asked = True

        signal.signal(signal.SIGINT, note)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)

    def raise_pending(self) -> None:
        """Raise the deferred interrupt, if there is one."""
        if self.asked:
            raise KeyboardInterrupt
