"""Runs of a continual evaluation: one learner through all experiences, tested after each.

Learners of several libraries are used through one interface, chosen by the methods that they have:

============================================ ======================================================
method of the learner                        use
============================================ ======================================================
``partial_fit(X, y)`` (scikit-learn)         blocks of rows, or a whole experience where the
                                             learner declares ``by_task``; all labels beforehand,
                                             if the method takes them
``learn(x, y)`` (networks)                   batches of rows, numbers as float32
``learn_one(x, y)`` (River)                  row by row, as dicts
``after_task()``                             called when an experience with boundaries ends
============================================ ======================================================

Learners and streams of tasks may also be given as functions of a seed.
"""

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
    SourceError,
    TypeMismatchError,
)
from onepass.evaluate.blocks import as_array
from onepass.evaluate.metrics import metric_class
from onepass.stream import Experience, TestSet
from onepass.stream.tasks import ExperienceList, Experiences
from onepass.types import Array
from onepass.validation.table import Table

__all__ = [
    "Course",
    "LearnerAdapter",
    "Rules",
    "Run",
    "arriving",
    "is_learner",
    "made",
    "misplaced",
    "takes_seed",
    "through",
]

_ASKED = 4096  # rows asked about in one call
_Made = TypeVar("_Made")


class LearnerAdapter:
    """A learner as continual evaluation teaches and asks it.

    Parameters
    ----------
    model : learner
        It learns in place.
    labels : ndarray or None
        All labels of the stream, for learners that must know them beforehand.
    batch, block : int
        Rows a call of ``learn``, and of ``partial_fit``.
    """

    def __init__(self, model: Any, labels: Array | None, batch: int, block: int) -> None:
        self.model = model
        self._labels = labels
        self._batch, self._block = batch, block
        self._told = False
        self.rows = 0
        self._before = _counted(self.inner)

    @property
    def inner(self) -> Any:
        """The learner at the end of a Pipeline; it may be another once it has learned."""
        return getattr(self.model, "learner", self.model)

    def teach(self, X: Array | Table, y: Array) -> None:
        """Learn the rows of an experience in their order."""
        for verb, how in (
            ("partial_fit", self._by_blocks),
            ("learn", self._by_batches),
            ("learn_one", self._by_rows),
        ):
            if callable(getattr(self.model, verb, None)):
                how(X, y)
                return

    def end(self) -> None:
        """Be told that a task ended, if it wants to know."""
        if callable(getattr(self.model, "after_task", None)):
            self.model.after_task()

    def say(self, X: Array | Table, among: tuple[str | int, ...] | None, like: Array) -> Array:
        """What it says of rows; nothing (None, or zeros) before it can answer.

        Parameters
        ----------
        X : ndarray or Table of shape (n, …)
            The rows.
        among : tuple, or None
            The labels that they can have, where the learner is told.
        like : ndarray
            Answers, for the kind and shape of what is said.
        """
        parts = gen_batches(len(like), _ASKED)
        said = [self._said(X[part], among, like[part]) for part in parts]
        return np.concatenate(said) if said else like

    @property
    def masks(self) -> bool:
        """Whether it can be told the labels among which to choose."""
        verbs = ("decision_function", "predict_proba", "outputs")
        return self._told_by() is not None or any(hasattr(self.model, verb) for verb in verbs)

    # -- teaching ----------------------------------------------------------------------------------

    def _by_blocks(self, X: Array | Table, y: Array) -> None:
        verb = self.model.partial_fit
        # scikit-learn's classifiers must be told all labels; those with `test_then_train` need not
        must = (
            not hasattr(self.model, "test_then_train") and "classes" in signature(verb).parameters
        )
        size = max(1, len(y)) if getattr(self.inner, "by_task", False) else self._block
        X = self._taken(X)
        for part in gen_batches(len(y), size):
            if must and self._labels is None:
                raise ParameterError(
                    f"{_WHERE}: {type(self.model).__name__} must know all classes beforehand, "
                    "got an iterator, which tells none. Give a list of experiences, or a learner "
                    "that takes new classes."
                )
            told = {"classes": self._labels} if must and not self._told else {}
            verb(X[part], y[part], **told)
            self._told = True
            self.rows += len(y[part])

    def _by_batches(self, X: Array | Table, y: Array) -> None:
        if y.dtype.kind not in "biuf":  # '0' would be taken for 0, and 0 never be '0'
            raise LabelError(
                f"{_WHERE}: {type(self.model).__name__} must be given classes as whole numbers "
                f"from 0 on, got text, such as {str(y[0])!r}. Number the classes."
            )
        answers = y.astype(np.int64 if y.dtype.kind in "iub" else np.float32)
        for part in gen_batches(len(y), self._batch):
            self.model.learn(_narrow(X[part]), answers[part])
            self.rows += len(answers[part])

    def _by_rows(self, X: Array | Table, y: Array) -> None:
        for x, answer in zip(_dicts(X), y.tolist(), strict=True):
            self.model.learn_one(x, answer)
            self.rows += 1

    # -- asking ------------------------------------------------------------------------------------

    def _said(self, X: Array | Table, among: tuple[str | int, ...] | None, like: Array) -> Array:
        try:
            if among is not None and self.masks:
                return self._among(X, among)
            if not callable(getattr(self.model, "predict", None)):
                said = np.array([self.model.predict_one(x) for x in _dicts(X)], dtype=object)
                return _numbers(said) if like.dtype.kind == "f" else said
            said = as_array(self.model.predict(self._taken(X)))
            return self._fitting(said, like)
        except NotFitted:
            return _silence(like)

    def _fitting(self, said: Array, like: Array) -> Array:
        """Answers in the shape of those that are known."""
        where = f"{_WHERE}: {type(self.model).__name__}.predict"
        if said.size != like.size or said.shape[:1] != like.shape[:1]:
            raise ShapeError(
                f"{where} must say one answer a row, of shape {like.shape}, got {said.shape}. "
                "Return labels, or numbers, not scores."
            )
        said = said.reshape(like.shape)
        if like.dtype.kind == "f" and said.dtype.kind not in "biuf":
            raise TypeMismatchError(
                f"{where} must say numbers where answers are numbers, got {said.dtype}. Give a "
                "regressor."
            )
        return said

    def _taken(self, X: Array | Table) -> Array | Table:
        """Rows as the learner takes them: networks float32, and arrays whoever knows no tables."""
        if not callable(getattr(self.model, "partial_fit", None)):
            return _narrow(X)
        if hasattr(X, "names") and not hasattr(self.model, "test_then_train"):
            return np.column_stack([X[name] for name in X.names])
        return X

    def _told_by(self) -> str | None:
        """The argument of ``predict`` that names the labels to choose among, if it has one."""
        verb = getattr(self.inner, "predict", None)
        known = signature(verb).parameters if callable(verb) else {}
        return next((name for name in ("task", "classes") if name in known), None)

    def _among(self, X: Array | Table, among: tuple[str | int, ...]) -> Array:
        """The best of some labels; None of each row where none of them is known yet."""
        known, scores = getattr(self.inner, "classes_", None), None
        if hasattr(self.model, "outputs") and self._told_by() is None:
            scores = as_array(self.model.outputs(_narrow(X)))
            known = np.arange(scores.shape[-1])
        some = list(among) if known is None else [c for c in among if c in known]
        if not some:
            # one that has learned nothing at all says so itself
            return np.full(len(self.model.predict(self._taken(X))), None, dtype=object)
        told, X = self._told_by(), self._taken(X)
        if told is not None:
            try:
                return as_array(self.model.predict(X, **{told: some}))
            except LabelError:  # a network without outputs for them
                return np.full(len(X), None, dtype=object)
        if scores is None:
            verb = getattr(self.model, "decision_function", None) or self.model.predict_proba
            scores = np.asarray(verb(X))
        if scores.ndim == 1:  # two classes: the second's score less the first's
            scores = np.stack([-scores, scores], axis=1)
        if known is None or len(known) < scores.shape[1]:
            return as_array(self.model.predict(X))
        at = np.array([int(np.flatnonzero(known == label)[0]) for label in some])
        best: Array = np.array(some)[scores[:, at].argmax(axis=1)]
        return best

    # -- what it tells of itself -------------------------------------------------------------------

    @property
    def nbytes(self) -> int | None:
        """All that it keeps from row to row, a network's own weights among it."""
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
        """How many it has, if it has any."""
        found = getattr(self.inner, "prototypes_", None)
        return None if found is None else len(found)

    @property
    def repeated(self) -> int | None:
        """How often a row was learned again, as the learner tells; None if it does not."""
        repeated, seen = _counted(self.inner)
        if repeated is not None:
            return repeated - (self._before[0] or 0)
        return None if seen is None else max(0, seen - (self._before[1] or 0) - self.rows)


def _counted(learner: object) -> tuple[int | None, int | None]:
    """Rows that were learned again, and rows that were learned, as a learner tells."""
    told = (getattr(learner, name, None) for name in ("rows_repeated_", "rows_seen_"))
    repeated, seen = (None if count is None else int(count) for count in told)
    return repeated, seen


def _silence(like: Array) -> Array:
    """What is said by who has nothing to say: zeros, or None of each row."""
    real = like.dtype.kind == "f"
    return np.zeros(like.shape) if real else np.full(len(like), None, dtype=object)


def _narrow(X: Array | Table) -> Array | Table:
    """Rows as networks take them."""
    return X.astype(np.float32) if isinstance(X, np.ndarray) and X.dtype.kind in "fiub" else X


def _dicts(X: Array | Table) -> Iterator[dict[Any, Any]]:
    """Rows as River takes them: values by the columns' names, or places."""
    if hasattr(X, "rows"):
        yield from X.rows()
        return
    for row in X.reshape(len(X), -1).tolist():
        yield dict(enumerate(row))


def _numbers(said: Array) -> Array:
    return np.array([0.0 if one is None else one for one in said], dtype=float)


_WHERE = "op.evaluate.continual"


@dataclass(frozen=True)
class Run:
    """One learner through all experiences, with one seed.

    Parameters
    ----------
    model : str
        Its name.
    seed : int
        Of what was drawn.
    matrix : list of list of float or None
        After experience i on the rows to test of task j; None where that could not be tested.
    before : list of float or None
        The same before anything was learned.
    when : list of int
        The experience after which task j has been learned, counted from 0.
    rows : int
        Rows learned.
    nbytes : int or None
        Kept from row to row: the most, after any experience and when it ended.
    prototypes : int or None
        How many, if it has any.
    repeated : int or None
        How often a row was learned again; 0 in one pass, None if it does not tell.
    learning, prediction_seconds : float or None
        Seconds a row; None without a clock.
    stopped : str or None
        Where and why it could not go on; what it knew till then counts.
    notes : list of str
        What is known of its limits in this setting.
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

    def check(self) -> None:
        """Refuse numbers that are not as many as they must be.

        Raises
        ------
        SourceError
        """
        if not self.matrix or {len(self.when), *map(len, self.matrix)} != {len(self.before)}:
            raise SourceError(
                "a run must have a column for each task, got another number. Make it again."
            )
        if any(i not in range(len(self.matrix)) for i in self.when):
            raise SourceError("`when` must name experiences, got others. Make the run again.")


@dataclass(frozen=True)
class Rules:
    """What holds for all runs.

    Parameters
    ----------
    scenario : {"class", "task", "domain"}
    task : {"regression", "classification"}
    metric : str
        Name from ``METRICS[task]``.
    batch, block : int
        Rows a call of networks, and of others.
    clock : callable, optional
        Gives seconds.
    """

    scenario: str
    task: str
    metric: str
    batch: int
    block: int
    clock: Callable[[], float] | None = None


class Course:
    """One learner on its way.

    Parameters
    ----------
    model : learner
        It learns in place.
    rules : Rules
    labels : ndarray or None
        All labels of the stream, if they are known.
    called : str
        What it is, for messages.
    """

    def __init__(self, model: Any, rules: Rules, labels: Array | None, called: str) -> None:
        self.adapter = LearnerAdapter(model, labels, rules.batch, rules.block)
        self.rules = rules
        self._called = called
        self._undefined = False
        self.matrix: list[list[float]] = []
        self.before: list[float] = []
        self.stopped: str | None = None
        self.failed: Exception | None = None
        self._took = [0.0, 0.0]
        self._asked = 0
        self._most: int | None = None

    def learn(self, experience: Experience, *, borders: bool) -> None:
        """Learn an experience; a learner that refuses it learns no more."""
        if self.stopped is not None:
            return
        began = self._now()
        try:
            self.adapter.teach(experience.X, experience.y)
            self._weigh()
            if borders:
                self.adapter.end()
                self._weigh()
        except (OnepassError, ValueError, NotImplementedError) as refused:
            self.stopped = f"{experience.name}: {refused}"
            self.failed = refused
        except Exception as wrong:
            wrong.add_note(f"{_WHERE}: {self._called} raised this at {experience.name!r}.")
            raise
        self._took[0] += self._now() - began

    def _weigh(self) -> None:
        """What is let go when a task ends had to be kept till then."""
        size = self.adapter.nbytes
        self._most = size if self._most is None else max(size or 0, self._most)

    def score(self, test_set: TestSet) -> float:
        """How right it is of the rows to test of a task.

        Who was stopped amid a block, and cannot answer since, says nothing.
        """
        among = test_set.classes if self.rules.scenario == "task" and test_set.classes else None
        began = self._now()
        try:
            said = self.adapter.say(test_set.X, among, test_set.y)
        except Exception as wrong:
            if self.stopped is None:
                asked = f"raised this when it was asked about {test_set.name!r}"
                wrong.add_note(f"{_WHERE}: {self._called} {asked}.")
                raise
            said = _silence(test_set.y)
        self._undefined |= said.dtype.kind == "f" and bool(np.isnan(said).any())
        self._took[1] += self._now() - began
        self._asked += len(test_set.y)
        metric = metric_class(self.rules.metric, self.rules.task, _WHERE)()
        return float(metric.add(test_set.y, said).value)

    def run(self, name: str, seed: int, when: Iterable[int]) -> Run:
        """All of it, told."""
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
            self._most,
            self.adapter.prototypes,
            self.adapter.repeated,
            self._took[0] / self.adapter.rows if timed and self.adapter.rows else None,
            self._took[1] / self._asked if timed and self._asked else None,
            self.stopped,
            self._notes(),
        )

    def _notes(self) -> list[str]:
        """What is known of the learner's limits, and what it could not be told."""
        known: Mapping[str, str] = getattr(self.adapter.inner, "limits", {})
        scenario = self.rules.scenario
        notes = [known[scenario]] if scenario in known else []
        if scenario == "task" and self.rules.task == "classification" and not self.adapter.masks:
            notes.append("cannot be told a task's classes: it answered among all")
        if self._undefined:
            notes.append("said nan of some rows, of which nothing can be known")
        return notes

    def _now(self) -> float:
        return 0.0 if self.rules.clock is None else self.rules.clock()


def through(
    course: Course, source: Experiences | ExperienceList, notify: Callable[[int], object] | None
) -> None:
    """A learner goes through a stream that is known, and is tested on all tasks after each.

    Parameters
    ----------
    course : Course
    source : Experiences or Listed
    notify : callable, optional
        Called with the number of experiences learned.
    """
    test_sets = list(source.test_sets())
    course.before = [course.score(test_set) for test_set in test_sets]
    for i, experience in enumerate(source, 1):
        course.learn(experience, borders=source.borders)
        course.matrix.append([course.score(test_set) for test_set in test_sets])
        if notify is not None:
            notify(i)


def arriving(
    courses: Iterable[Course], source: Iterator[Experience], told: Callable[[int], object]
) -> list[str]:
    """Learners go through experiences as they come, and are tested on those that have come.

    Each is said before it is learned, so that what came before is seen to help; nothing is known
    of what is still to come.

    Parameters
    ----------
    courses : iterable of Course
    source : iterator of Experience
    told : callable
        Called with the number of experiences learned.

    Returns
    -------
    names : list of str
        Of the experiences.
    """
    everyone, test_sets = list(courses), list[TestSet]()
    for i, experience in enumerate(source):
        test_sets.append(
            TestSet(experience.name, experience.X_test, experience.y_test, experience.classes)
        )
        for course in everyone:
            first = course.score(test_sets[-1])
            if i:
                course.matrix[-1].append(first)
            course.before.append(first if i == 0 else np.nan)
            course.learn(experience, borders=True)
            course.matrix.append([course.score(test_set) for test_set in test_sets])
        told(i + 1)
    return [test_set.name for test_set in test_sets]


def _plain(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


def is_learner(model: object) -> bool:
    """Whether it is a learner, not something that makes one."""
    if isinstance(model, type):
        return False
    asked = any(callable(getattr(model, verb, None)) for verb in ("predict", "predict_one"))
    taught = any(callable(getattr(model, v, None)) for v in ("partial_fit", "learn", "learn_one"))
    return asked and taught


def made(factory: Callable[..., _Made], seed: int, where: str) -> _Made:
    """What a factory makes of a seed, if it takes one.

    Parameters
    ----------
    factory : callable
        Of ``seed``, of one argument without a default, or of none.
    seed : int
    where : str
        The public call, for messages.

    Raises
    ------
    ParameterError
        If it asks for more, or makes nothing.
    """
    if takes_seed(factory):
        named = "seed" in signature(factory).parameters
        thing = factory(seed=seed) if named else factory(seed)
    else:
        _refuse_more(factory, where)
        thing = factory()
    if thing is None:
        raise ParameterError(
            f"{where}: a factory must return what it makes, got None of {factory!r}. Add `return`."
        )
    return thing


def _refuse_more(factory: Callable[..., object], where: str) -> None:
    """Refuse what asks for more than a seed."""
    try:
        signature(factory).bind()
    except ValueError:  # built in, and tells nothing of its arguments
        return
    except TypeError as wrong:
        raise ParameterError(
            f"{where}: a factory must be called with a seed, or nothing, got {factory!r}: {wrong}. "
            "Give what else it needs by functools.partial."
        ) from wrong


def takes_seed(factory: Callable[..., object]) -> bool:
    """Whether a factory asks for a seed that it has not been given."""
    if "seed" in getattr(factory, "keywords", {}):  # of functools.partial
        return False
    try:
        known = signature(factory).parameters
    except (TypeError, ValueError):
        return False
    if "seed" in known:
        return True
    places = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
    needed = [p for p in known.values() if p.kind in places and p.default is Parameter.empty]
    return len(needed) == 1


def misplaced(model: object, task: str) -> str | None:
    """What a model is, where it says so and does something else than the task asks for."""
    if not hasattr(model, "__sklearn_tags__"):
        return None
    kind = get_tags(model).estimator_type
    wanted = {"regression": "regressor", "classification": "classifier"}[task]
    return None if kind in {None, wanted} else str(kind)
