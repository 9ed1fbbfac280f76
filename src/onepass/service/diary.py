"""Diary: the gauges of a served learner in a file beside it, so that they go on after a restart.

The file is written after each snapshot of the learner, and now and then. What was learned since the
snapshot is told to the gauges again when the learner is opened; of that, those rows are passed over
that the file has counted already. So no row is counted twice, and none is missed, but where a
process was killed just between a snapshot of the learner and what is written here.

Gauges are no part of what must not be lost: a file that is damaged, missing, or ahead of its
learner is left out, and counting begins anew.
"""

import time
from contextlib import suppress
from pathlib import Path

from onepass.errors import OnepassError
from onepass.serialization import archive
from onepass.serialization.atomic import replacing
from onepass.service.gauges import Gauges

__all__ = ["Diary"]

_OFTEN = 30.0  # seconds
_WHERE = "onepass serve"


class Diary:
    """A file of gauges.

    Parameters
    ----------
    path : Path
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._written = (-1, 0, time.monotonic())

    def read(self, gauges: Gauges, seen: int) -> None:
        """Have gauges go on, if there are some that can.

        Parameters
        ----------
        gauges : Gauges
            That were told what the learner has learned again on opening.
        seen : int
            Rows that the learner has learned in all.
        """
        state = None
        with suppress(OSError, OnepassError):
            state = archive.unpacked(self._path.read_bytes(), str(self._path)).tree
        gauges.resume(state, seen)

    def tend(self, gauges: Gauges, snapshot: int) -> None:
        """Write them down if it is time.

        Parameters
        ----------
        gauges : Gauges
        snapshot : int
            Rows that had been learned at the last snapshot.
        """
        rows, taken, at = self._written
        now = time.monotonic()
        if snapshot != taken or (now - at > _OFTEN and gauges.seen != rows):
            self._written = (gauges.seen, snapshot, now)
            self.write(gauges)

    def write(self, gauges: Gauges) -> None:
        """Write them down, as far as the disk allows it."""
        with suppress(OSError, OnepassError):
            data = archive.packed(gauges.state(), str(self._path), kind="gauges")
            with replacing(self._path) as temporary:
                temporary.write_bytes(data)
