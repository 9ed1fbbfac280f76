"""Runs of a continual evaluation: one learner, all experiences, and a test after each.

Learners of several libraries are used through one interface, depending on their methods:

============================================ ======================================================
method of the learner                        use
============================================ ======================================================
``partial_fit(X, y)`` (scikit-learn)         blocks of rows, or a whole experience if the learner
                                             declares ``by_task``; all labels in advance, if the
                                             method has a parameter for them
``learn(x, y)`` (networks)                   batches of rows, numbers as float32
``learn_one(x, y)`` (River)                  row by row, as dicts
``after_task()``                             called when an experience with boundaries ends
============================================ ======================================================

Learners and streams of tasks may also be functions of a seed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from inspect import Parameter, signature
from typing import Any, TypeVar

import numpy as np
from sklearn.exceptions import NotFittedError as NotFitted
from sklearn.utils import gen_batches, get_tags

from onepass.errors import (
    LabelError,
    OnepassError,
    ParameterError,
    ShapeError,
    TypeMismatchError,
)
from onepass.evaluate.metrics import metric_class
from onepass.linalg import as_array
from onepass.stream import Experience, TestSet
from onepass.stream.tasks import ExperienceList, Experiences
from onepass.types import Array
from onepass.validation.table import Table

_MAX_ROWS = 4096  # maximum number of rows per call of `predict`
_Made = TypeVar("_Made")


class LearnerAdapter:
    """Common interface to learners of several libraries.

    Parameters
    ----------
    model : learner
        The learner, which is trained in place.
    labels : ndarray or None
        All labels of the stream, for learners that need them in advance.
    batch, block : int
        Number of rows per call of ``learn``, and of ``partial_fit``.
    """

    def __init__(self, model: Any, labels: Array | None, batch: int, block: int) -> None:
        self.model = model
        self._labels = labels
        self._batch, self._block = batch, block
        self._classes_passed = False
        self.rows = 0
        self._before = _counted(self.inner)

    @property
    def inner(self) -> Any:
        """The final learner of a Pipeline, which learning may replace."""
        return getattr(self.model, "learner", self.model)

    def learn(self, X: Array | Table, y: Array) -> None:
        """Learn the rows of an experience in order."""
        for method, learn in (
            ("partial_fit", self._by_blocks),
            ("learn", self._by_batches),
            ("learn_one", self._by_rows),
        ):
            if callable(getattr(self.model, method, None)):
                learn(X, y)
                return

    def end_task(self) -> None:
        """Call ``after_task``, if the learner has this method."""
        if callable(getattr(self.model, "after_task", None)):
            self.model.after_task()

    def predict(self, X: Array | Table, among: tuple[str | int, ...] | None, like: Array) -> Array:
        """Return predictions; before the learner is fitted, zeros, or None for labels.

        Parameters
        ----------
        X : ndarray or Table of shape (n, …)
            The rows.
        among : tuple, or None
            The labels to choose among, in task-incremental evaluation.
        like : ndarray
            Targets with the type and shape of predictions.
        """
        parts = gen_batches(len(like), _MAX_ROWS)
        predictions = [self._predict_batch(X[part], among, like[part]) for part in parts]
        return np.concatenate(predictions) if predictions else like

    @property
    def masks(self) -> bool:
        """Whether predictions can be restricted to given labels."""
        verbs = ("decision_function", "predict_proba", "outputs")
        return self._classes_argument() is not None or any(
            hasattr(self.model, verb) for verb in verbs
        )

    # -- learning ----------------------------------------------------------------------------------

    def _by_blocks(self, X: Array | Table, y: Array) -> None:
        verb = self.model.partial_fit
        # classifiers of scikit-learn need all labels; those with `test_then_train` do not
        must = (
            not hasattr(self.model, "test_then_train") and "classes" in signature(verb).parameters
        )
        size = max(1, len(y)) if getattr(self.inner, "by_task", False) else self._block
        X = self._converted(X)
        for part in gen_batches(len(y), size):
            if must and self._labels is None:
                raise ParameterError(
                    f"{type(self.model).__name__} requires all classes in advance, got "
                    "an iterator, whose classes are unknown. Pass a list of "
                    "experiences, or a learner that accepts new classes."
                )
            classes = {"classes": self._labels} if must and not self._classes_passed else {}
            verb(X[part], y[part], **classes)
            self._classes_passed = True
            self.rows += len(y[part])

    def _by_batches(self, X: Array | Table, y: Array) -> None:
        if y.dtype.kind not in "biuf":  # '0' would be read as 0, and 0 never equals '0'
            raise LabelError(
                f"{type(self.model).__name__} requires classes to be whole numbers "
                f"starting at 0, got text, such as {str(y[0])!r}. Number the classes."
            )
        targets = y.astype(np.int64 if y.dtype.kind in "iub" else np.float32)
        for part in gen_batches(len(y), self._batch):
            self.model.learn(_as_float32(X[part]), targets[part])
            self.rows += len(targets[part])

    def _by_rows(self, X: Array | Table, y: Array) -> None:
        for x, target in zip(_dicts(X), y.tolist(), strict=True):
            self.model.learn_one(x, target)
            self.rows += 1

    # -- prediction --------------------------------------------------------------------------------

    def _predict_batch(
        self, X: Array | Table, among: tuple[str | int, ...] | None, like: Array
    ) -> Array:
        try:
            if among is not None and self.masks:
                return self._predict_among(X, among)
            if not callable(getattr(self.model, "predict", None)):
                predictions = np.array([self.model.predict_one(x) for x in _dicts(X)], dtype=object)
                return _numbers(predictions) if like.dtype.kind == "f" else predictions
            predictions = as_array(self.model.predict(self._converted(X)))
            return self._reshaped(predictions, like)
        except NotFitted:
            return _no_predictions(like)

    def _reshaped(self, predictions: Array, like: Array) -> Array:
        """Check predictions, and convert them to the shape of the targets."""
        where = f"{_WHERE}: {type(self.model).__name__}.predict"
        if predictions.size != like.size or predictions.shape[:1] != like.shape[:1]:
            raise ShapeError(
                f"{where} must return one prediction per row, of shape {like.shape}, got "
                f"{predictions.shape}. Return labels or numbers instead of scores."
            )
        predictions = predictions.reshape(like.shape)
        if like.dtype.kind == "f" and predictions.dtype.kind not in "biuf":
            raise TypeMismatchError(
                f"{where} must return numbers for numeric targets, got {predictions.dtype}. Use a "
                "regressor."
            )
        return predictions

    def _converted(self, X: Array | Table) -> Array | Table:
        """Convert rows for the learner: float32 for networks, arrays for scikit-learn."""
        if not callable(getattr(self.model, "partial_fit", None)):
            return _as_float32(X)
        if hasattr(X, "names") and not hasattr(self.model, "test_then_train"):
            return np.column_stack([X[name] for name in X.names])
        return X

    def _classes_argument(self) -> str | None:
        """Return the name of the parameter of ``predict`` for allowed labels, or None."""
        verb = getattr(self.inner, "predict", None)
        arguments = signature(verb).parameters if callable(verb) else {}
        return next((name for name in ("task", "classes") if name in arguments), None)

    def _predict_among(self, X: Array | Table, among: tuple[str | int, ...]) -> Array:
        """Predict the best of some labels; None for all rows if none was learned."""
        classes, scores = getattr(self.inner, "classes_", None), None
        if hasattr(self.model, "outputs") and self._classes_argument() is None:
            scores = as_array(self.model.outputs(_as_float32(X)))
            classes = np.arange(scores.shape[-1])
        some = list(among) if classes is None else [c for c in among if c in classes]
        if not some:
            # raises if the learner is not fitted
            return np.full(len(self.model.predict(self._converted(X))), None, dtype=object)
        argument, X = self._classes_argument(), self._converted(X)
        if argument is not None:
            try:
                return as_array(self.model.predict(X, **{argument: some}))
            except LabelError:  # a network without outputs for these labels
                return np.full(len(X), None, dtype=object)
        if scores is None:
            verb = getattr(self.model, "decision_function", None) or self.model.predict_proba
            scores = np.asarray(verb(X))
        if scores.ndim == 1:  # two classes: score of the second minus that of the first
            scores = np.stack([-scores, scores], axis=1)
        if classes is None or len(classes) < scores.shape[1]:
            return as_array(self.model.predict(X))
        at = np.array([int(np.flatnonzero(classes == label)[0]) for label in some])
        best: Array = np.array(some)[scores[:, at].argmax(axis=1)]
        return best

    # -- costs -------------------------------------------------------------------------------------

    @property
    def nbytes(self) -> int | None:
        """Size of the state in bytes, including the weights of a network."""
        size = getattr(self.model, "nbytes", None)
        if size is None:
            learned = [v for k, v in getattr(self.model, "__dict__", {}).items() if k.endswith("_")]
            arrays = [value.nbytes for value in learned if isinstance(value, np.ndarray)]
            return int(sum(arrays)) if arrays else None
        module = getattr(self.model, "module", None)
        tensors = [] if module is None else [*module.parameters(), *module.buffers()]
        return int(size) + int(sum(t.numel() * t.element_size() for t in tensors))

    @property
    def prototypes(self) -> int | None:
        """Number of prototypes; None if the learner has none."""
        found = getattr(self.inner, "prototypes_", None)
        return None if found is None else len(found)

    @property
    def repeated(self) -> int | None:
        """Number of times a row was learned again; None if the learner does not count it."""
        repeated, seen = _counted(self.inner)
        if repeated is not None:
            return repeated - (self._before[0] or 0)
        return None if seen is None else max(0, seen - (self._before[1] or 0) - self.rows)


def _counted(learner: object) -> tuple[int | None, int | None]:
    """Return numbers of rows learned again and rows learned; None if not counted."""
    counts = (getattr(learner, name, None) for name in ("rows_repeated_", "rows_seen_"))
    repeated, seen = (None if count is None else int(count) for count in counts)
    return repeated, seen


def _no_predictions(like: Array) -> Array:
    """Return predictions for an unfitted learner: zeros, or None for labels."""
    real = like.dtype.kind == "f"
    return np.zeros(like.shape) if real else np.full(len(like), None, dtype=object)


def _as_float32(X: Array | Table) -> Array | Table:
    """Convert numbers to float32, for networks."""
    return X.astype(np.float32) if isinstance(X, np.ndarray) and X.dtype.kind in "fiub" else X


def _dicts(X: Array | Table) -> Iterator[dict[Any, Any]]:
    """Convert rows to dicts by column name or index, for River."""
    if hasattr(X, "rows"):
        yield from X.rows()
        return
    for row in X.reshape(len(X), -1).tolist():
        yield dict(enumerate(row))


def _numbers(predictions: Array) -> Array:
    return np.array([0.0 if value is None else value for value in predictions], dtype=float)


_WHERE = "op.evaluate.continual"


@dataclass(frozen=True)
class Run:
    """The result of one learner on all experiences, with one seed.

    Parameters
    ----------
    model : str
        The name of the learner.
    seed : int
        The random seed.
    matrix : list of list of float or None
        The metric on the test rows of task j after experience i; None if not tested.
    before : list of float or None
        The metric on the test rows of task j before learning.
    when : list of int
        The experience after which task j has been learned, counted from 0.
    rows : int
        Number of rows learned.
    nbytes : int or None
        Maximum size of the state in bytes, over all experiences.
    prototypes : int or None
        Number of prototypes at the end, if the learner has any.
    repeated : int or None
        Number of times a row was learned again; 0 in one pass, None if not counted.
    learning_seconds, prediction_seconds : float or None
        Seconds per row; None without a clock.
    stopped : str or None
        The experience that could not be learned, and the error. Later tests use the state at that
        time.
    notes : list of str
        Known limits of the learner in this scenario.
    """

    model: str
    seed: int
    matrix: list[list[float | None]]
    before: list[float | None]
    when: list[int]
    rows: int
    nbytes: int | None = None
    prototypes: int | None = None
    repeated: int | None = None
    learning_seconds: float | None = None
    prediction_seconds: float | None = None
    stopped: str | None = None
    notes: list[str] = field(default_factory=list)

    def check(self, size: tuple[int, int]) -> None:
        """Raise an error unless this is a run of these numbers of experiences and of tasks."""
        rows, columns = size
        lengths = {len(self.before), len(self.when), *map(len, self.matrix)}
        if (len(self.matrix), lengths) != (rows, {columns}) or not {*self.when} <= {*range(rows)}:
            raise ParameterError(
                f"a run must have {rows} experiences and {columns} tasks, got {len(self.matrix)} "
                f"and {len(self.before)}"
            )


@dataclass(frozen=True)
class Rules:
    """Options of all runs.

    Parameters
    ----------
    batch, block : int
        Number of rows per call of ``learn``, and of ``partial_fit``.
    clock : callable, optional
        Returns seconds.
    scenario : {"class", "task", "domain"}
    task : {"regression", "classification"}
    metric : str
        Name from ``METRICS[task]``.
    """

    batch: int
    block: int
    clock: Callable[[], float] | None = None
    scenario: str = ""
    task: str = ""
    metric: str = ""


class ContinualRun:
    """The run of one learner in progress.

    Parameters
    ----------
    model : learner
        The learner, which is trained in place.
    rules : Rules
    labels : ndarray or None
        All labels of the stream, if known.
    description : str
        The model and its seed, for messages.
    """

    def __init__(self, model: Any, rules: Rules, labels: Array | None, description: str) -> None:
        self.adapter = LearnerAdapter(model, labels, rules.batch, rules.block)
        self.rules = rules
        self._description = description
        self._undefined = False
        self.matrix: list[list[float]] = []
        self.before: list[float] = []
        self.stopped: str | None = None
        self.failed: Exception | None = None
        self._seconds = [0.0, 0.0]
        self._rows_predicted = 0
        self._max_nbytes: int | None = None

    def learn(self, experience: Experience, *, borders: bool) -> None:
        """Learn an experience; if the learner raises an error, stop it."""
        if self.stopped is not None:
            return
        start = self._now()
        try:
            self.adapter.learn(experience.X, experience.y)
            self._update_nbytes()
            if borders:
                self.adapter.end_task()
                self._update_nbytes()
        except (OnepassError, ValueError, NotImplementedError) as error:
            self.stopped = f"{experience.name}: {error}"
            self.failed = error
        except Exception as error:
            error.add_note(f"{_WHERE}: {self._description} raised this at {experience.name!r}.")
            raise
        self._seconds[0] += self._now() - start

    def _update_nbytes(self) -> None:
        """Update the maximum size, since a learner may drop data when a task ends."""
        size = self.adapter.nbytes
        self._max_nbytes = size if self._max_nbytes is None else max(size or 0, self._max_nbytes)

    def score(self, test_set: TestSet) -> float:
        """Evaluate the metric on the test rows of a task.

        A learner that stopped within a block and can no longer predict counts as not fitted.
        """
        among = test_set.classes if self.rules.scenario == "task" and test_set.classes else None
        start = self._now()
        try:
            predictions = self.adapter.predict(test_set.X, among, test_set.y)
        except Exception as error:
            if self.stopped is None:
                note = f"raised this when predicting {test_set.name!r}"
                error.add_note(f"{_WHERE}: {self._description} {note}.")
                raise
            predictions = _no_predictions(test_set.y)
        self._undefined |= predictions.dtype.kind == "f" and bool(np.isnan(predictions).any())
        self._seconds[1] += self._now() - start
        self._rows_predicted += len(test_set.y)
        metric = metric_class(self.rules.metric, self.rules.task)()
        return float(metric.add(test_set.y, predictions).value)

    def result(self, name: str, seed: int, when: Iterable[int]) -> Run:
        """Return the run."""
        width = len(self.before)
        rows = [[*row, *[np.nan] * (width - len(row))] for row in self.matrix]
        timed = self.rules.clock is not None
        return Run(
            name,
            seed,
            [[_plain(value) for value in row] for row in rows],
            [_plain(value) for value in self.before],
            list(when),
            self.adapter.rows,
            self._max_nbytes,
            self.adapter.prototypes,
            self.adapter.repeated,
            self._seconds[0] / self.adapter.rows if timed and self.adapter.rows else None,
            self._seconds[1] / self._rows_predicted if timed and self._rows_predicted else None,
            self.stopped,
            self._notes(),
        )

    def _notes(self) -> list[str]:
        """Return the known limits of the learner in this scenario."""
        limits: Mapping[str, str] = getattr(self.adapter.inner, "limits", {})
        scenario = self.rules.scenario
        notes = [limits[scenario]] if scenario in limits else []
        if scenario == "task" and self.rules.task == "classification" and not self.adapter.masks:
            notes.append(
                "cannot be restricted to the classes of a task: predicted among all classes"
            )
        if self._undefined:
            notes.append("predicted nan for some rows")
        return notes

    def _now(self) -> float:
        return 0.0 if self.rules.clock is None else self.rules.clock()


def run_experiences(
    run: ContinualRun, source: Experiences | ExperienceList, notify: Callable[[int], object] | None
) -> None:
    """Learn all experiences of a stream known in advance; test on all tasks after each.

    Parameters
    ----------
    run : ContinualRun
    source : Experiences or ExperienceList
    notify : callable, optional
        Called with the number of experiences learned.
    """
    test_sets = list(source.test_sets())
    run.before = [run.score(test_set) for test_set in test_sets]
    for i, experience in enumerate(source, 1):
        run.learn(experience, borders=source.borders)
        run.matrix.append([run.score(test_set) for test_set in test_sets])
        if notify is not None:
            notify(i)


def run_iterator(
    runs: Iterable[ContinualRun], source: Iterator[Experience], notify: Callable[[int], object]
) -> list[str]:
    """Learn the experiences of an iterator; test on all experiences so far after each.

    Each experience is also tested before it is learned, for forward transfer.

    Parameters
    ----------
    runs : iterable of ContinualRun
    source : iterator of Experience
    notify : callable
        Called with the number of experiences learned.

    Returns
    -------
    names : list of str
        The names of the experiences.
    """
    everyone, test_sets = list(runs), list[TestSet]()
    for i, experience in enumerate(source):
        test_sets.append(
            TestSet(experience.name, experience.X_test, experience.y_test, experience.classes)
        )
        for run in everyone:
            first = run.score(test_sets[-1])
            if i:
                run.matrix[-1].append(first)
            run.before.append(first if i == 0 else np.nan)
            run.learn(experience, borders=True)
            run.matrix.append([run.score(test_set) for test_set in test_sets])
        notify(i + 1)
    return [test_set.name for test_set in test_sets]


def _plain(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


def is_learner(model: object) -> bool:
    """Return whether an object is a learner rather than a factory of learners."""
    if isinstance(model, type):
        return False
    predicts = any(callable(getattr(model, name, None)) for name in ("predict", "predict_one"))
    learns = any(callable(getattr(model, n, None)) for n in ("partial_fit", "learn", "learn_one"))
    return predicts and learns


def from_factory(factory: Callable[..., _Made], seed: int) -> _Made:
    """Call a factory, with the seed if it has a parameter for it.

    Parameters
    ----------
    factory : callable
        A callable with a parameter ``seed``, with one parameter that has no default, or without
        parameters.
    seed : int
    """
    if not takes_seed(factory):
        return factory()
    return factory(seed=seed) if "seed" in signature(factory).parameters else factory(seed)


def takes_seed(factory: Callable[..., object]) -> bool:
    """Return whether a factory has a parameter for the seed."""
    if "seed" in getattr(factory, "keywords", {}):  # bound by functools.partial
        return False
    try:
        parameters = signature(factory).parameters
    except (TypeError, ValueError):
        return False
    if "seed" in parameters:
        return True
    positional = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
    needed = [
        p for p in parameters.values() if p.kind in positional and p.default is Parameter.empty
    ]
    return len(needed) == 1


def unsuitable_type(model: object, task: str) -> str | None:
    """Return the estimator type of a model if it does not suit the task, otherwise None."""
    if not hasattr(model, "__sklearn_tags__"):
        return None
    kind = get_tags(model).estimator_type
    wanted = {"regression": "regressor", "classification": "classifier"}[task]
    return None if kind in {None, wanted} else str(kind)
