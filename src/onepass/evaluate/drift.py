"""Drift detectors that monitor the errors of models along a stream.

A detector is any object with ``update(x)`` and ``drift_detected``, such as those of River [1]. Each
model has a separate copy, which is updated with the error of the model for each row:

============== ====================================================================
regression     |y − ŷ|, the absolute error; its mean over several targets
classification 1 or 0 for a wrong or right label; True or False if the detector counts mistakes
============== ====================================================================

An alarm is an update after which ``drift_detected`` is true. A warning is an update after which
``warning_detected``, which some detectors have, becomes true.
Cost: that of the detectors, and O(MAX_EVENTS) memory for each model and detector.

[1] J. Gama, P. Medas, G. Castillo, P. Rodrigues, "Learning with drift detection", SBIA 2004 (DDM);
    A. Bifet, R. Gavaldà, "Learning from time-changing data with adaptive windowing", SDM 2007
    (ADWIN).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from onepass.errors import ParameterError, join_names
from onepass.evaluate.curves import plain_time
from onepass.types import Array
from onepass.validation.rows import Rows

MAX_EVENTS = 10_000
"""Maximum number of alarms, and of warnings, whose rows are stored. All are counted."""

_COUNTS = "BinaryDriftDetector"  # River's name for detectors that count mistakes


class Detector(Protocol):
    """A drift detector that is updated with single errors of a model, as in River."""

    @property
    def update(self) -> Callable[..., object]:
        """Function that updates the detector with the next error."""

    @property
    def drift_detected(self) -> bool:
        """Whether the last error raised an alarm."""


@dataclass(frozen=True)
class Events:
    """Alarms or warnings of a drift detector along a stream.

    Parameters
    ----------
    count : int
        Number of events.
    rows : list of int
        Rows of the events, counted from 1 as in the curves; of more than 10,000 every second one,
        or every fourth, and so on, from the whole stream.
    times : list of str or float, or None
        Times of these events, as in the curves; None without times.
    """

    count: int
    rows: list[int]
    times: list[Any] | None


@dataclass(frozen=True)
class Drift:
    """Drift that one detector found in the errors of one model.

    Parameters
    ----------
    alarms : Events
        Rows at which drift was detected.
    warnings : Events, or None
        Rows at which warnings began; None if the detector has no warnings.
    """

    alarms: Events
    warnings: Events | None


def counts_mistakes(detector: object) -> bool:
    """Return whether a detector is updated with booleans, like River's ``BinaryDriftDetector``.

    The class is compared by name, since River is optional.

    Parameters
    ----------
    detector : detector
    """
    return any(kind.__name__ == _COUNTS for kind in type(detector).__mro__)


def check_suited(detectors: Mapping[str, Detector], task: str) -> None:
    """Check that detectors suit the task: those that count mistakes need classifiers.

    Parameters
    ----------
    detectors : mapping of str to detector
    task : {"regression", "classification"}
        The task of the models.

    Raises
    ------
    ParameterError
    """
    for name, detector in detectors.items():
        if task == "regression" and counts_mistakes(detector):
            raise ParameterError(
                f"{name} must be used with classifiers, since it counts mistakes, got "
                "regressors. Use a detector for numbers, such as river.drift.ADWIN."
            )


def error_monitor(
    drift: Detector | Mapping[str, Detector] | None,
    models: Iterable[str],
    task: str,
    *,
    resumed: bool,
) -> ErrorMonitor | None:
    """Create drift detectors for the errors of models.

    Parameters
    ----------
    drift : detector, dict of str to detector, or None
        The default name of a detector is its class.
    models : iterable of str
        The models to monitor.
    task : {"regression", "classification"}
        The task of the models.
    resumed : bool
        Whether the run continues from a checkpoint.

    Returns
    -------
    ErrorMonitor, or None without detectors

    Raises
    ------
    ParameterError
        If an object is not a detector, a detector counts mistakes although the models are
        regressors, or the run is resumed.
    """
    if drift is None:
        return None
    named = drift if isinstance(drift, Mapping) else {type(drift).__name__: drift}
    if resumed:
        raise ParameterError(
            "`drift` must be omitted when a run is resumed, since checkpoints do not "
            f"contain detectors, got {join_names(list(named))}. Start a new run, or "
            "resume without detectors."
        )
    for detector in named.values():
        able = callable(getattr(detector, "update", None))
        able = able and hasattr(detector, "drift_detected")
        if isinstance(detector, type) or not able:
            raise ParameterError(
                "`drift` must be a detector with `update` and `drift_detected`, got "
                f"{detector!r}. Pass an object, such as river.drift.ADWIN()."
            )
    check_suited(named, task)
    return ErrorMonitor({str(name): one for name, one in named.items()}, models, task)


class ErrorMonitor:
    """Drift detectors that are updated with the errors of models along a stream.

    Parameters
    ----------
    drift : dict of str to detector
        Detectors by name; they are copied.
    models : iterable of str
        The models to monitor.
    task : {"regression", "classification"}
        The task of the models.
    """

    def __init__(self, drift: Mapping[str, Detector], models: Iterable[str], task: str) -> None:
        self._task = task
        self._watched = {
            model: {name: _WatchedDetector(deepcopy(one)) for name, one in drift.items()}
            for model in models
        }

    def add(self, rows: int, block: Rows, predictions: Mapping[str, Array]) -> None:
        """Update the detectors with the errors of some rows.

        Parameters
        ----------
        rows : int
            Number of rows before the block.
        block : Rows
            At least one row, with targets.
        predictions : mapping of str to ndarray of the same shape as the y of the block
            The predictions of each model.
        """
        for model, watched in self._watched.items():
            errors = _errors(self._task, block.y, predictions[model])
            for name, detector in watched.items():
                try:
                    detector.add(errors, rows, block.time)
                except Exception as error:
                    error.add_note(f"drift detector {name!r}, on the errors of {model!r}")
                    raise

    def found(self, model: str) -> dict[str, Drift] | None:
        """Return the drift in the errors of a model, by detector; None without detectors.

        Parameters
        ----------
        model : str
            The name of the model.
        """
        watched = self._watched.get(model)
        return {name: each.found() for name, each in watched.items()} if watched else None


class _WatchedDetector:
    """A detector with counts of its alarms and warnings, and the rows of each."""

    def __init__(self, detector: Detector) -> None:
        self._detector: Any = detector  # may have `warning_detected`
        self._kind: type = bool if counts_mistakes(detector) else float
        kinds = ["alarms"] + ["warnings"] * hasattr(detector, "warning_detected")
        self._stored: dict[str, list[tuple[int, Any]]] = {kind: [] for kind in kinds}
        self._steps = dict.fromkeys(kinds, 1)
        self._counts = dict.fromkeys(kinds, 0)
        self._warned = False

    def add(self, errors: Array, rows: int, time: Array | None) -> None:
        """Update the detector with errors (n,) that follow the first ``rows`` rows."""
        for i, error in enumerate(errors.tolist()):
            if not np.isfinite(error):  # the model diverged
                continue
            self._detector.update(self._kind(error))
            begun = {"alarms": self._detector.drift_detected}
            if "warnings" in self._stored:
                warned = bool(self._detector.warning_detected)
                begun["warnings"] = warned and not self._warned
                self._warned = warned
            for kind in (kind for kind, now in begun.items() if now):
                stored = self._stored[kind]
                if self._counts[kind] % self._steps[kind] == 0:
                    stored.append((rows + i + 1, None if time is None else plain_time(time[i])))
                self._counts[kind] += 1
                if len(stored) > MAX_EVENTS:
                    del stored[1::2]
                    self._steps[kind] *= 2

    def found(self) -> Drift:
        """Return the alarms and warnings so far, with times if the stream has times."""
        events: dict[str, Events] = {}
        for kind, stored in self._stored.items():
            times = [time for _, time in stored]
            timed = any(time is not None for time in times)
            rows = [row for row, _ in stored]
            events[kind] = Events(self._counts[kind], rows, times if timed else None)
        return Drift(events["alarms"], events.get("warnings"))


def _errors(task: str, y: Array, predictions: Array) -> Array:
    """Return the error of each row, (n,)."""
    if task == "classification":
        wrong = y.astype(object) != predictions.astype(object)
        return np.asarray(wrong, dtype=np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        gaps = np.abs(np.asarray(y, dtype=np.float64) - np.asarray(predictions, dtype=np.float64))
    errors: Array = gaps if gaps.ndim == 1 else gaps.mean(axis=1)
    return errors
