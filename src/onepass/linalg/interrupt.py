"""Ctrl-C at a good moment: what was begun is ended, before the interrupt is heard."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = ["Background", "Interrupt"]


class Background:
    """A handler of SIGINT for a program that was told to ignore it, as shells do with ``&``.

    It goes on ignoring what comes from outside, and interrupts once it is ``asked`` to.

    Attributes
    ----------
    asked : bool
        Whether a SIGINT is to interrupt from now on.
    """

    def __init__(self) -> None:
        self.asked = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Handle a SIGINT."""
        if self.asked:
            signal.default_int_handler(number, frame)


class Interrupt:
    """Holds back an interrupt from the keyboard while something is learned.

    Like ``asyncio.run`` it stands in for Python's own handler of SIGINT only, or a `Background`: in
    other threads, and where the program has a handler of its own, nothing is changed. A second
    interrupt while the first is held back is raised at once.

    Attributes
    ----------
    asked : bool
        Whether an interrupt came while it was held back.
    """

    def __init__(self) -> None:
        self.asked = False

    @contextmanager
    def held(self) -> Iterator[None]:
        """Within this context an interrupt is noted in ``asked``, not raised."""
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
        """Raise the interrupt that was held back, if one was."""
        if self.asked:
            raise KeyboardInterrupt
