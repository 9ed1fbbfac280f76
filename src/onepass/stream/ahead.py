"""Ahead: what an iterator gives, taken from it a little beforehand, in a thread of its own.

Reading a file and learning from it then overlap. What is given, in which order, and what is raised
are those of the iterator itself; at most ``depth`` items wait. The thread ends with the iterator,
or as soon as nobody wants more: when the iteration is closed, left by an error or an interrupt, or
forgotten. It takes no item more then.
"""

import threading
from collections import deque
from collections.abc import Iterator
from typing import Any, Generic, TypeVar

__all__ = ["Ahead"]

_Item = TypeVar("_Item")
_CHECK = 0.1  # seconds after which a waiting thread looks whether the interpreter is to end


class _Shelf(Generic[_Item]):
    """Items that wait, between the thread that puts and the one that takes."""

    def __init__(self, items: Iterator[_Item], depth: int) -> None:
        self.source = items
        self.depth = depth
        self.waiting: deque[_Item] = deque()
        self.changed = threading.Condition()
        self.wanted = True
        self.ended = False  # the thread has; what is left of the source is for whoever takes
        self.error: BaseException | None = None

    def room(self) -> bool:
        """Wait until there is room; whether more is wanted of the thread."""
        with self.changed:
            while self.wanted and threading.main_thread().is_alive():
                if len(self.waiting) < self.depth:
                    return True
                self.changed.wait(_CHECK)
            return False

    def put(self, item: _Item) -> None:
        """Put an item where it will be taken from."""
        with self.changed:
            self.waiting.append(item)
            self.changed.notify_all()

    def end(self, error: BaseException | None) -> None:
        """Say that the thread puts no more."""
        with self.changed:
            self.ended, self.error = True, error
            self.changed.notify_all()

    def take(self) -> _Item:
        """Wait for an item; StopIteration at the end."""
        with self.changed:
            while not self.waiting and not self.ended:
                self.changed.wait()
            if self.waiting:
                item = self.waiting.popleft()
                self.changed.notify_all()
                return item
            if self.error is not None:
                error, self.error = self.error, None
                raise error
        return next(self.source)  # at its end, or let go of because the interpreter ends

    def close(self) -> None:
        """Say that no more is wanted."""
        with self.changed:
            self.wanted = False
            self.waiting.clear()
            self.changed.notify_all()


class Ahead(Generic[_Item]):
    """Iterates over what another iterator gives, which is asked beforehand.

    Parameters
    ----------
    items : iterator
        Asked in another thread from now on, and by nobody else.
    depth : int
        How many items may wait.

    Examples
    --------
    >>> sum(Ahead(iter(range(5)), depth=2))
    10
    """

    def __init__(self, items: Iterator[_Item], depth: int) -> None:
        self._shelf = _Shelf(items, depth)
        # the thread knows the shelf and not this object: so this may be forgotten; and it is no
        # daemon, for one that is stopped within Arrow takes the whole process with it
        self._thread = threading.Thread(
            target=_filled, args=(self._shelf,), name="onepass reads ahead", daemon=False
        )
        self._thread.start()

    def __iter__(self) -> Iterator[_Item]:
        return self

    def __next__(self) -> _Item:
        return self._shelf.take()

    def close(self) -> None:
        """End the thread, wait until it has, and close the iterator."""
        self._shelf.close()
        self._thread.join()
        _close(self._shelf.source)

    def __del__(self) -> None:
        shelf = getattr(self, "_shelf", None)
        if shelf is not None:
            shelf.close()


def _filled(shelf: "_Shelf[Any]") -> None:
    """Put what the iterator gives on the shelf, as long as it is wanted."""
    error: BaseException | None = None
    try:
        while shelf.room():
            shelf.put(next(shelf.source))
    except StopIteration:
        pass
    except BaseException as wrong:  # noqa: BLE001  it is raised where the items are taken
        error = wrong
    shelf.end(error)
    if not shelf.wanted:
        _close(shelf.source)


def _close(items: Iterator[Any]) -> None:
    close = getattr(items, "close", None)
    if close is not None:
        close()
