"""Prequential runs: each row of a stream is predicted before it is learned.

Models of several libraries have one interface.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

import numpy as np
from sklearn.utils import gen_batches

from onepass.errors import CheckpointError, NotFittedError, OnepassError, ShapeError
from onepass.evaluate.blocks import locating
from onepass.evaluate.curves import ScoreHistory
from onepass.evaluate.delay import DelayedLabels, Schedule
from onepass.evaluate.drift import ErrorMonitor
from onepass.evaluate.metrics import row_probabilities
from onepass.evaluate.metrics.probability import fields_of
from onepass.evaluate.report import Report
from onepass.evaluate.score import Score
from onepass.learners.estimator.classifier import classes_of, prequential_probabilities
from onepass.linalg import as_array
from onepass.serialization.archive import damaged
from onepass.serialization.codec import from_state, state_dict
from onepass.serialization.state import forget, learned
from onepass.types import Array
from onepass.validation.rows import Rows
from onepass.validation.table import Table, known_rows

WHERE = "op.evaluate.prequential"
"""The public call, for messages."""

_MAX_ROWS = 4096  # maximum rows per call, since all pending rows may become due at once


class Model(Protocol):
    """A model of any library with test-then-train."""

    @property
    def test_then_train(self) -> Callable[..., object]:
        """Function of ``(X, y)`` that learns rows in order and returns prequential predictions."""


def _test_then_train(model: Any, rows: Rows, *, probabilities: bool = False) -> Array:
    """Learn rows in order; return predictions, each made before its row is learned.

    With probabilities the result is that of ``row_probabilities``.
    """
    X, y, arguments = rows.X, rows.y, rows.keywords
    if not getattr(model, "_uses_time", False):
        arguments.pop("time", None)
    with locating(rows):
        if not probabilities:
            return as_array(model.test_then_train(X, y, **arguments))
        labels, P, classes = prequential_probabilities(model, X, y, **arguments)
        return row_probabilities(labels, y, classes, P)


def learns_gaps(model: object) -> bool:
    """Whether a model learns rows whose target is missing."""
    return bool(getattr(model, "_learns_gaps", False))


def _target_delay(model: object) -> int | None:
    """The delay for which the lags of a model are set; None without lags."""
    delay: int | None = getattr(model, "_target_delay", None)
    return delay


def _run_schedule(model: Model, schedule: Schedule, *, probabilities: bool) -> Array:
    """Process a schedule; return predictions for the rows to predict."""
    weighted = "sample_weight" in inspect.signature(model.test_then_train).parameters
    weighted &= _target_delay(model) is None  # targets of rows of weight 0 are lags of later ones
    process = partial(_by_weights if weighted else _by_segments, probabilities=probabilities)
    rows, learned = schedule.rows, schedule.learned
    parts = gen_batches(len(rows), _MAX_ROWS)
    predictions = [process(model, rows[part], learned[part]) for part in parts]
    return np.concatenate([some for some in predictions if len(some)])


def _learn_remaining(model: Model, rows: Rows) -> Array:
    """Learn pending rows; return predictions, each made just before its row is learned."""
    parts = gen_batches(len(rows), _MAX_ROWS)
    return np.concatenate([_test_then_train(model, rows[part]) for part in parts])


def _by_weights(model: Model, rows: Rows, learned: Array, *, probabilities: bool) -> Array:
    """Process rows in one call: rows of weight 0 are predicted but not learned."""
    weight = learned.astype(np.float64) * (1.0 if rows.weight is None else rows.weight)
    weighted = replace(rows, weight=weight)
    predictions = _test_then_train(model, weighted, probabilities=probabilities)
    return predictions.reshape(rows.y.shape)[~learned]


def _by_segments(model: Model, rows: Rows, learned: Array, *, probabilities: bool) -> Array:
    """Process rows as alternating segments of rows to learn and rows to predict."""
    ends = [*(np.flatnonzero(np.diff(learned)) + 1).tolist(), len(learned)]
    predictions, a = [rows.y[:0]], 0
    for b in ends:
        part = rows[a:b]
        if learned[a]:
            _test_then_train(model, part)
        else:
            with locating(part):
                found = _predict(model, part.X, part.y, probabilities=probabilities)
            predictions.append(found.reshape(part.y.shape))
        a = b
    return np.concatenate(predictions[1:] or predictions)


def _predict(model: Any, X: Table | Array, y: Array, *, probabilities: bool) -> Array:
    """Predict rows without learning them; with probabilities as ``row_probabilities``."""
    if _target_delay(model) is not None and len(X) > 1:  # each as the next one
        parts = [slice(i, i + 1) for i in range(len(X))]
        made = [_predict(model, X[i], y[i], probabilities=probabilities) for i in parts]
        return np.concatenate(made)
    try:
        found, P = as_array(model.predict(X)), None
        P = as_array(model.predict_proba(X)) if probabilities else None
    except NotFittedError:
        rows = X.rows() if hasattr(X, "rows") else X
        found, P = np.asarray([model.predict_one(x) for x in rows]), None
    if not probabilities:
        return found
    return row_probabilities(found, y, y[:0] if P is None else classes_of(model, P.shape[1]), P)


class PrequentialRun:
    """A prequential evaluation in progress: models, their scores and pending rows.

    Parameters
    ----------
    models : dict of str to learner
        Models, followed by baselines.
    history : ScoreHistory
        Scores of the predictions.
    delayed : DelayedLabels or None
        Rows whose targets arrive later.
    clock : callable or None
        Seconds from any origin, to time each model.

    Attributes
    ----------
    consistent : bool
        Whether all models have learned the same blocks.
    monitor : ErrorMonitor or None
        Drift detectors, if any.
    """

    def __init__(
        self,
        models: dict[str, Model],
        history: ScoreHistory,
        delayed: DelayedLabels | None,
        clock: Callable[[], float] | None,
    ) -> None:
        self.models, self.history, self.delayed, self.clock = models, history, delayed, clock
        self.consistent = True
        self.monitor: ErrorMonitor | None = None
        self._seconds = dict.fromkeys(models, 0.0)

    def process(self, block: Rows) -> tuple[Rows, dict[str, Array]]:
        """Predict and learn a block; return the rows with targets, and predictions by model.

        Parameters
        ----------
        block : Rows
            The rows, which are learned now or when their targets arrive. Rows whose target is
            missing are skipped, unless a model learns them; with a delay, they are always skipped.
        """
        labelled = block.labelled if any(map(learns_gaps, self.models.values())) else block
        before = self.history.rows
        if len(block if self.delayed is None else labelled) == 0:
            self.history.add(labelled, {})
            return labelled, dict.fromkeys(self.models, labelled.y)
        schedule = None if self.delayed is None else self.delayed.schedule(labelled, before)
        self.consistent = False
        place = f"{len(labelled):,} row(s) starting at row {block.first:,} (counting from 0)"
        predictions, probabilities = {}, self.history.probabilities
        for name, model in self.models.items():
            gaps = schedule is None and labelled is not block and learns_gaps(model)
            rows = block if gaps else labelled
            call = partial(_test_then_train, model, rows, probabilities=probabilities)
            if schedule is not None:
                call = partial(_run_schedule, model, schedule, probabilities=probabilities)
            predicted = self._timed(name, place, rows.y, call)
            predictions[name] = predicted[known_rows(rows.y)] if gaps else predicted
        self.history.add(labelled, predictions)
        predictions = {name: fields_of(fields)[0] for name, fields in predictions.items()}
        if self.monitor is not None:
            self.monitor.add(before, labelled, predictions)
        if self.delayed is not None and schedule is not None:
            self.delayed.commit(schedule)
        self.consistent = True
        return labelled, predictions

    def finish(self) -> None:
        """Learn the rows that are pending at the end of the stream, in order of their targets."""
        rows = None if self.delayed is None else self.delayed.remaining(self.history.time)
        if rows is None:
            return
        place = f"{len(rows):,} pending rows"
        for name, model in self.models.items():
            self._timed(name, place, rows.y, partial(_learn_remaining, model, rows))

    def _timed(self, name: str, place: str, y: Array, call: Callable[[], Array]) -> Array:
        """Call a model and add the elapsed time; return predictions in the shape of y."""
        place = f"{WHERE}: model {name!r}, {place}"
        start = self.clock() if self.clock else 0.0
        try:
            predictions = call()
        except OnepassError as error:
            raise error.at(where=f"{place}: {error.where}" if error.where else place) from error
        except Exception as error:
            error.add_note(place)
            raise
        self._seconds[name] += self.clock() - start if self.clock else 0.0
        if predictions.size != y.size:
            raise ShapeError(
                f"test_then_train must return one prediction for each row, shape {y.shape}, got "
                f"{predictions.shape}. Return the predictions of all rows.",
                place,
            )
        return predictions.reshape(y.shape)

    def state(self, place: str) -> dict[str, Any]:
        """Return the state of the run as plain values and arrays.

        Parameters
        ----------
        place : str
            The destination, for messages.

        Raises
        ------
        CheckpointError
            If a model or a metric cannot be stored.
        """
        delayed = self.delayed
        pending = None if delayed is None else delayed.pending
        state = {
            "models": self.models,
            "seconds": self._seconds,
            "history": self.history,
            "last": None if delayed is None else delayed.last,
            "pending": None,
        }
        if pending is not None:
            state["pending"] = {
                "X": pending.X, "y": pending.y, "due": pending.time, "weight": pending.weight,
            }  # fmt: skip
        found: dict[str, Any] = state_dict(state, place)
        return found

    def restore(self, state: Any, place: str) -> None:
        """Restore a state returned by ``state``.

        Parameters
        ----------
        state : dict
            The state, which is validated completely.
        place : str
            The file from which it was read, for messages.

        Raises
        ------
        CheckpointError
            If the state has other models or metrics, or is damaged. The run is unchanged.
        """
        try:
            saved = state["models"]
            models = {name: _decoded(m, saved[name], place) for name, m in self.models.items()}
            rest = from_state({k: v for k, v in state.items() if k != "models"}, place)
            seconds = {name: float(rest["seconds"][name]) for name in self.models}
            history, last = rest["history"], rest["last"]
            pending = None if rest["pending"] is None else _pending(**rest["pending"])
            if saved.keys() != self.models.keys() or history.setup != self.history.setup:
                raise damaged(place, "it has other models or metrics")
        except CheckpointError:
            raise
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise damaged(place, f"it does not contain a complete run: {error!r}") from error
        self._seconds, self.history = seconds, history
        if self.delayed is not None:
            self.delayed.last, self.delayed.pending = last, pending
        for name, model in self.models.items():
            _copy_learned(model, models[name])

    def report(self, fields: Mapping[str, Any], baselines: set[str]) -> Report:
        """Create the report at the end.

        Parameters
        ----------
        fields : mapping of str to object
            The other fields of the report.
        baselines : set of str
            The names of baselines.
        """
        self.history.end()
        overall, recent = self.history.overall(), self.history.recent()
        curves = self.history.curves()
        scores = {
            name: Score(
                learner=" ".join(repr(model).split()),
                baseline=name in baselines,
                overall=overall[name],
                recent=None if recent is None else recent[name],
                seconds=self._seconds[name] if self.clock else None,
                nbytes=_nbytes(model),
                drift=None if self.monitor is None else self.monitor.found(name),
            )
            for name, model in self.models.items()
        }
        return Report(
            **fields,
            rows=self.history.rows,
            skipped=self.history.skipped,
            scores=scores,
            overall=curves[0],
            recent=curves[1],
        )


def _pending(X: Any, y: Any, due: Any, weight: Any) -> Rows:
    """Return the pending rows of a checkpoint; raise ValueError if they are damaged."""
    arrays = type(X) in {Table, np.ndarray} and type(y) is type(due) is np.ndarray
    if not arrays or not len(X) == len(y) == due.size or due.dtype.kind not in "ifM":
        raise ValueError("the pending rows are damaged")
    if weight is not None and np.shape(weight) != due.shape:
        raise ValueError("the weights of the pending rows are damaged")
    return Rows(X, y, weight=weight, time=due, numbers=np.full(len(due), -1))


def _decoded(model: Any, state: Any, place: str) -> Any:
    """Decode a model of a checkpoint, with the functions of ``model``, which files omit."""
    given = {
        name.rpartition("__")[2]: value
        for name, value in model.get_params(deep=True).items()
        if callable(value) or isinstance(value, bytes)  # a network as the bytes of its file
    }
    found = from_state(state, place, given, spare=True)
    if type(found) is not type(model):
        raise damaged(place, "a model has another class")
    return found


def _copy_learned(model: Any, other: Any) -> None:
    """Copy the learned attributes of one model to another of the same class."""
    forget(model)
    for name, value in learned(other).items():
        setattr(model, name, value)
    for feature in getattr(model, "features_", ())[:1]:
        if hasattr(feature, "missing"):  # a resumed run may have another policy
            feature.missing = model.missing


def _nbytes(model: object) -> int | None:
    size = getattr(model, "nbytes", None)
    return None if size is None else int(size)
