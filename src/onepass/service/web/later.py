"""Later: an answer that is still to come."""

import asyncio
from collections.abc import Callable, Generator
from typing import Any

__all__ = ["Later"]


class Later:
    """What a future is, but whoever waits for it is told at once, not in a turn of the loop.

    It is used in the event loop alone. One waits for it, once, or has a function called.

    Attributes
    ----------
    found : Any
        What is there, or the exception that came in its place.
    ended : bool
        Whether it is there.
    then : callable or None
        Called with ``found`` when it is there.
    """

    found: Any = None
    ended = False
    then: Callable[[Any], object] | None = None

    def end(self, found: Any) -> None:
        """It is there; what is wrong with whoever is told is no trouble of who ends it.

        Parameters
        ----------
        found : Any
            An exception is what went wrong.
        """
        self.found, self.ended = found, True
        if self.then is not None:
            try:
                self.then(found)
            except Exception as wrong:  # noqa: BLE001  others wait for what is ended next
                context = {"message": "an answer could not be handed on", "exception": wrong}
                asyncio.get_running_loop().call_exception_handler(context)

    def cancel(self, msg: str | None = None) -> None:
        """It will not be there, unless it is by the next turn of the loop.

        Parameters
        ----------
        msg : str, optional
            Why. uvicorn cancels all that it waits for, and looks at nothing else meanwhile.
        """
        asyncio.get_running_loop().call_soon(self._cancelled, msg)

    def _cancelled(self, msg: str | None) -> None:
        if not self.ended:
            self.end(asyncio.CancelledError(msg))

    def __await__(self) -> Generator[Any, None, Any]:
        if not self.ended:
            future = asyncio.get_running_loop().create_future()
            self.then = lambda _: None if future.done() else future.set_result(None)
            yield from future
        if isinstance(self.found, BaseException):
            raise self.found
        return self.found
