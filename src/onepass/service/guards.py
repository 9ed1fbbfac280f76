"""Guards: detectors of drift beside a served learner, each told of its errors row by row.

A detector is another library's object. One that fails watches no longer: the others go on, rows are
counted, and ``trouble`` says why.
"""

import time
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from onepass.errors import Array
from onepass.evaluate.drift import counts_mistakes

__all__ = ["Guards"]

_MARKS = 100  # the last ones


class Guards:
    """Detectors at work; for one thread at a time.

    Parameters
    ----------
    detectors : mapping of str to detector
        As :func:`onepass.integrations.river` gives them.

    Attributes
    ----------
    alarms : int
        How often one has found drift.
    drift : deque of dict
        The last of these: ``rows``, counted from the first of all, ``detector``, and ``at``, in
        seconds since 1970, when that was noticed, which is up to a second after the row was
        learned, or when it was asked for.
    """

    def __init__(self, detectors: Mapping[str, Any]) -> None:
        self._at_work = dict(detectors)
        self._failed: dict[str, str] = {}
        self.alarms = 0
        self.drift: deque[dict[str, Any]] = deque(maxlen=_MARKS)

    @property
    def trouble(self) -> str | None:
        """Which have failed and why, in a sentence for each; None if all are at work."""
        return " ".join(self._failed.values()) or None

    def watching(self) -> dict[str, bool]:
        """Whether each of them is at work, by its name."""
        return dict.fromkeys(self._at_work, True) | dict.fromkeys(self._failed, False)

    def add(self, rows: int, errors: Array) -> None:
        """Tell them of some rows; note where they find drift.

        Parameters
        ----------
        rows : int
            How many rows there were before.
        errors : ndarray of shape (n,)
            Of each row, 0 or more; one that is not finite is passed over.
        """
        if self._at_work:
            found = [(i, name) for name in list(self._at_work) for i in self._found(name, errors)]
            self.alarms += len(found)
            now = time.time()
            for i, name in sorted(found):
                self.drift.append({"rows": rows + i + 1, "at": now, "detector": name})

    def recall(self, errors: Array) -> None:
        """Tell them of rows that were counted before; what they find is no alarm now."""
        for name in list(self._at_work):
            for _ in self._found(name, errors):
                pass

    def _found(self, name: str, errors: Array) -> Iterator[int]:
        """The rows after which one has found drift."""
        detector = self._at_work[name]
        kind = bool if counts_mistakes(detector) else float
        try:
            for i in np.flatnonzero(np.isfinite(errors)).tolist():
                detector.update(kind(errors[i]))
                if detector.drift_detected:
                    yield i
        except Exception as wrong:  # noqa: BLE001  whatever it is, rows are counted all the same
            del self._at_work[name]
            self._failed[name] = (
                f"The drift detector {name} has failed and watches no longer: "
                f"{str(wrong) or repr(wrong)}. All else goes on; leave it out when you start again."
            )
