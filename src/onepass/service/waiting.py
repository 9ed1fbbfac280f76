"""Waiting: how many rows wait to be learned, and how many may."""

from threading import Lock

from onepass.errors import BusyError, LongError, StoreError

__all__ = ["Waiting"]


class Waiting:
    """Rows that wait for one learner.

    Parameters
    ----------
    name : str
        Of the learner.
    most : int
        So many rows may wait; more at once are let in alone, where no others wait.

    Attributes
    ----------
    rows : int
        How many wait.
    ended : bool
        Whether none is let in any more.
    """

    def __init__(self, name: str, most: int) -> None:
        self.most, self.rows, self.ended = most, 0, False
        self._name, self._lock = name, Lock()

    def admit(self, count: int) -> None:
        """Let rows in, until they are ``done``.

        Parameters
        ----------
        count : int

        Raises
        ------
        BusyError
            If too many wait.
        StoreError
            If none is let in any more.
        """
        with self._lock:
            self.hold_open()
            if self.rows and self.rows + count > self.most:
                raise BusyError(
                    f"{self._name}: at most {self.most:,} rows may wait to be learned, "
                    f"{self.rows:,} do. Ask again in a second, with the same key.",
                    1.0,
                )
            self.rows += count

    def admit_each(self, count: int) -> None:
        """The same of rows of which each is written by itself: of many, others would wait long.

        Parameters
        ----------
        count : int

        Raises
        ------
        LongError
            If they are more than a quarter of those that may wait.
        BusyError, StoreError
            As of ``admit``.
        """
        most = -(-self.most // 4)
        if count > most:
            raise LongError(
                f"{self._name}: rows whose answers come later, and their answers, must be at most "
                f"{most:,} at a time, got {count:,}. Send fewer at a time."
            )
        self.admit(count)

    def done(self, count: int) -> None:
        """They wait no longer.

        Parameters
        ----------
        count : int
        """
        with self._lock:
            self.rows -= count

    def end(self) -> None:
        """Let in none any more."""
        with self._lock:
            self.ended = True

    def hold_open(self) -> None:
        """Refuse where none is let in any more.

        Raises
        ------
        StoreError
        """
        if self.ended:
            raise StoreError(f"{self._name}: it is being stopped. Ask again later.")
