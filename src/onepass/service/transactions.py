"""Transactions: how a journal is written: each change is on the disk whole, or nothing of it is.

Once one has failed in another way than for want of room, nobody knows what of it is on the disk:
then nothing more is written, for to try a failed commit again is how rows are lost.
"""

import sqlite3
from collections.abc import Callable

from onepass.service.archive import HARMLESS, Archive, kind_of

__all__ = ["Transactions"]


class Transactions(Archive):
    """The open file, which is written; of the same parameters.

    ``hold_whole`` is called just before each change.
    """

    def _write(self, work: Callable[[], object]) -> None:
        """Do several things in one transaction.

        Raises
        ------
        StoreError
            If the disk is full or fails; ``broken`` if nobody knows what is on it now.
        """

        def transaction() -> None:
            self._db.execute("BEGIN IMMEDIATE")
            self.reached("begun")
            work()
            self.reached("before commit")
            self._db.execute("COMMIT")

        self._change(transaction)

    def _write_one(self, sql: str, values: tuple[object, ...]) -> None:
        """Do one thing: a statement by itself is a transaction, and quicker than one of three.

        Raises
        ------
        StoreError
            As of ``_write``.
        """

        def transaction() -> None:
            self.reached("begun")
            self.reached("before commit")
            self._db.execute(sql, values)

        self._change(transaction)

    def _change(self, transaction: Callable[[], object]) -> None:
        self.hold_sound()
        try:
            transaction()
        except sqlite3.Error as wrong:
            told = self._told(wrong, "written")
            self.full = told if told.full else None
            if kind_of(wrong) not in HARMLESS:
                self.broken = told
            self._take_back()
            raise told from wrong
        except BaseException:
            self._take_back()
            raise
        self.full = None
        self.reached("after commit")
