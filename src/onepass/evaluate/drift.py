"""Drift detectors that watch the errors of models along a stream.

A detector is any object with ``update(x)`` and ``drift_detected``, such as those of River [1]. Each
model has its own copy, which is updated with the error of the model in each row:

============== ====================================================================
regression     |y − ŷ|, the absolute error; its mean where a row has several targets
classification 1 for a wrong label, 0 for a right one; True and False where it counts
============== ====================================================================

An alarm is an update after which ``drift_detected`` is true. A warning is an update after which
``warning_detected``, which some detectors have, becomes true.
Cost: what the detectors cost, and O(MOST) memory for each model and detector.

[1] J. Gama, P. Medas, G. Castillo, P. Rodrigues, "Learning with drift detection", SBIA 2004 (DDM);
    A. Bifet, R. Gavaldà, "Learning from time-changing data with adaptive windowing", SDM 2007
    (ADWIN).
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from onepass.errors import ParameterError, join_names
from onepass.evaluate.blocks import Block
from onepass.evaluate.curves import plain_time
from onepass.types import Array

__all__ = [
    "MOST",
    "Detector",
    "Drift",
    "Marks",
    "Watch",
    "check_suited",
    "counts_mistakes",
    "watch",
]

MOST = 1000
"""Most alarms, and most warnings, of which the rows are kept: the last ones. All are counted."""

_COUNTS = "BinaryDriftDetector"  # River's name for detectors that count mistakes


class Detector(Protocol):
    """A drift detector that receives the errors of a model one by one, as in River."""

    @property
    def update(self) -> Callable[..., object]:
        """Update with the next error."""

    @property
    def drift_detected(self) -> bool:
        """Whether the last error raised an alarm."""


@dataclass(frozen=True)
class Marks:
    """Where something happened along a stream.

    Parameters
    ----------
    count : int
        How often, exactly.
    rows : list of int
        The rows, counted from 1 as in the curves; the last 1000 of them.
    times : list of str or float, or None
        Their times, as in the curves; None without times.
    """

    count: int
    rows: list[int]
    times: list[Any] | None


@dataclass(frozen=True)
class Drift:
    """What one detector said of one model's errors.

    Parameters
    ----------
    alarms : Marks
        Where it detected drift.
    warnings : Marks, or None
        Where its warnings began; None where it has none to give.
    """

    alarms: Marks
    warnings: Marks | None


def counts_mistakes(detector: object) -> bool:
    """Whether a detector takes truth values: by River's name for it, for River may be absent.

    Parameters
    ----------
    detector : detector
    """
    return any(kind.__name__ == _COUNTS for kind in type(detector).__mro__)


def check_suited(detectors: Mapping[str, Detector], task: str, where: str) -> None:
    """Refuse detectors that count mistakes where there are none but errors.

    Parameters
    ----------
    detectors : mapping of str to detector
    task : {"regression", "classification"}
        What is watched.
    where : str
        The public call, for messages.

    Raises
    ------
    ParameterError
    """
    for name, one in detectors.items():
        if task == "regression" and counts_mistakes(one):
            raise ParameterError(
                f"{where}: {name} must watch classifiers, whose answers are right or wrong, got "
                "models that regress. Give a detector of numbers, such as ADWIN of river.drift."
            )


def watch(
    drift: Detector | Mapping[str, Detector] | None,
    models: Iterable[str],
    task: str,
    where: str,
    *,
    resumed: bool,
) -> "Watch | None":
    """Detectors beside models that are to go through a stream.

    Parameters
    ----------
    drift : detector, dict of str to detector, or None
        Without a name it is called by its class.
    models : iterable of str
        The models to watch.
    task : {"regression", "classification"}
        What the models do.
    where : str
        The public call, for messages.
    resumed : bool
        Whether the pass goes on from a checkpoint.

    Returns
    -------
    Watch, or None where there is nothing to watch with

    Raises
    ------
    ParameterError
        If one is no detector, or counts mistakes where there are none but errors, or was to be
        resumed.
    """
    if drift is None:
        return None
    named = drift if isinstance(drift, Mapping) else {type(drift).__name__: drift}
    if resumed:
        raise ParameterError(
            f"{where}: `drift` must be left out where a pass is resumed, got "
            f"{join_names(list(named))}. Checkpoints do not contain detectors: start "
            "again, or resume without them."
        )
    for one in named.values():
        able = callable(getattr(one, "update", None)) and hasattr(one, "drift_detected")
        if isinstance(one, type) or not able:
            raise ParameterError(
                f"{where}: `drift` must be a detector with `update` and `drift_detected`, got "
                f"{one!r}. Give an object, such as river.drift.ADWIN()."
            )
    check_suited(named, task, where)
    return Watch({str(name): one for name, one in named.items()}, models, task)


class Watch:
    """Detectors beside models on their way through a stream.

    Parameters
    ----------
    drift : dict of str to detector
        By name; they are copied and stay as they are.
    models : iterable of str
        The models to watch.
    task : {"regression", "classification"}
        What the models do.
    """

    def __init__(self, drift: Mapping[str, Detector], models: Iterable[str], task: str) -> None:
        self._task = task
        self._guards = {
            model: {name: _Guard(deepcopy(one)) for name, one in drift.items()} for model in models
        }

    def add(self, rows: int, block: Block, said: Mapping[str, Array]) -> None:
        """Tell the detectors of some rows.

        Parameters
        ----------
        rows : int
            How many rows there were before.
        block : Block
            The rows with their answers; at least one.
        said : mapping of str to ndarray of the shape of the block's y
            What each model said of them.
        """
        for model, guards in self._guards.items():
            errors = _errors(self._task, block.y, said[model])
            for name, guard in guards.items():
                try:
                    guard.add(errors, rows, block.time)
                except Exception as wrong:
                    wrong.add_note(f"drift detector {name!r}, on the errors of {model!r}")
                    raise

    def found(self, model: str) -> dict[str, Drift] | None:
        """What each detector said of a model's errors; None where none watched it.

        Parameters
        ----------
        model : str
            The model's name.
        """
        guards = self._guards.get(model)
        return {name: guard.found() for name, guard in guards.items()} if guards else None


class _Guard:
    """A detector, and where it raised alarms and began to warn; all are counted, the last kept."""

    def __init__(self, detector: Detector) -> None:
        self._detector: Any = detector  # which may have warnings too
        self._kind: type = bool if counts_mistakes(detector) else float
        kinds = ["alarms"] + ["warnings"] * hasattr(detector, "warning_detected")
        self._last = {kind: deque[tuple[int, Any]](maxlen=MOST) for kind in kinds}
        self._counts = dict.fromkeys(kinds, 0)
        self._warned = False

    def add(self, errors: Array, rows: int, time: Array | None) -> None:
        """Update the detector with the errors (n,) of the rows after so many."""
        for i, error in enumerate(errors.tolist()):
            if not np.isfinite(error):  # a detector learns nothing of a model that diverged
                continue
            self._detector.update(self._kind(error))
            begun = {"alarms": self._detector.drift_detected}
            if "warnings" in self._last:
                warned = bool(self._detector.warning_detected)
                begun["warnings"] = warned and not self._warned
                self._warned = warned
            for kind in (kind for kind, now in begun.items() if now):
                self._counts[kind] += 1
                at = None if time is None else plain_time(time[i])
                self._last[kind].append((rows + i + 1, at))

    def found(self) -> Drift:
        """The marks so far; with times where there are any."""
        marks: dict[str, Marks] = {}
        for kind, last in self._last.items():
            times = [time for _, time in last]
            timed = any(time is not None for time in times)
            rows = [row for row, _ in last]
            marks[kind] = Marks(self._counts[kind], rows, times if timed else None)
        return Drift(marks["alarms"], marks.get("warnings"))


def _errors(task: str, y: Array, said: Array) -> Array:
    """The error of each row, (n,)."""
    if task == "classification":
        wrong = y.astype(object) != said.astype(object)
        return np.asarray(wrong, dtype=np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        gaps = np.abs(np.asarray(y, dtype=np.float64) - np.asarray(said, dtype=np.float64))
    errors: Array = gaps if gaps.ndim == 1 else gaps.mean(axis=1)
    return errors
