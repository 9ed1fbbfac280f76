"""Ctrl-C at a good moment: what was begun is ended, before the interrupt is heard."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = ["Interrupt"]


class Interrupt:
    """Holds back an interrupt from the keyboard while something is learned.

    Like ``asyncio.run`` it stands in for Python's own handler of SIGINT only: in other threads, and
    where the program has a handler of its own, nothing is changed. A second interrupt while the
    first is held back is raised at once.

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
        ours = (
            threading.current_thread() is threading.main_thread()
            and signal.getsignal(signal.SIGINT) is signal.default_int_handler
        )
        if not ours:
            yield
            return
        signal.signal(signal.SIGINT, self._note)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True

    def heard(self) -> None:
        """Raise the interrupt that was held back, if one was."""
        if self.asked:
            raise KeyboardInterrupt
