"""Turn: threads that ask one module take turns.

A module is asked with other tensors in the place of its parameters and with its flags changed, so
that a second thread that asks meanwhile would find these, and put them back as the module's own.
"""

from collections.abc import Callable
from functools import wraps
from threading import RLock
from typing import Any, Self

__all__ = ["Turn", "in_turn"]


class Turn:
    """A lock that the thread which holds it may take again; a copy is a lock of its own."""

    def __init__(self) -> None:
        self._lock = RLock()

    def __enter__(self) -> Self:
        self._lock.acquire()
        return self

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def __reduce__(self) -> Any:
        return Turn, ()


def in_turn(method: Callable[..., Any]) -> Callable[..., Any]:
    """A method that is done while its object's ``turn`` is held.

    Parameters
    ----------
    method : callable
    """

    @wraps(method)
    def held(self: Any, *args: Any, **kwargs: Any) -> Any:
        with self.turn:
            return method(self, *args, **kwargs)

    return held
