"""Experiences: a stream divided into tasks, whose rows come one task after the other.

Continual learning measures how well the first tasks are known when the last is learned. A
description of such a stream says which rows of a source belong to which task, for training and for
test, in which order, and how each task changes them. It stores no more than the source: an
experience is built when it is reached. Experiences may also be given as rows with targets, and the
order of tasks may be given or drawn.

:mod:`onepass.stream.class_tasks` makes such streams from any data, :mod:`onepass.stream.digits`
from images; :mod:`onepass.stream.boundaries` blurs or removes the boundaries between tasks.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any, Protocol

import numpy as np

from onepass.errors import ParameterError, ShapeError
from onepass.types import Array, ArrayLike
from onepass.validation import labels, whole
from onepass.validation.table import Table, TableLike, has_names, is_frame

__all__ = [
    "Change",
    "Experience",
    "ExperienceList",
    "Experiences",
    "Part",
    "Task",
    "TestSet",
    "as_rows",
    "experience",
    "in_order",
    "make_tasks",
]


_LOOKED_AT = 16  # rows of each task that a digest is made of, as they come to the learner


@dataclass(frozen=True, slots=True, eq=False)
class Experience:
    """One task: its rows to learn, in order, and its rows to test.

    Parameters
    ----------
    name : str
        Of the task.
    X : ndarray of shape (n, …)
        Rows to learn.
    y : ndarray of shape (n,)
        Their answers.
    X_test : ndarray of shape (k, …)
        Rows to test.
    y_test : ndarray of shape (k,)
        Their answers.
    classes : tuple
        The classes of the task, sorted; empty where answers are numbers.
    """

    name: str
    X: Array
    y: Array
    X_test: Array
    y_test: Array
    classes: tuple[str | int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class TestSet:
    """Rows that are tested, again and again.

    Parameters
    ----------
    name : str
        Of the task that they belong to.
    X : ndarray or Table of shape (k, …)
        The rows.
    y : ndarray of shape (k,)
        Their answers.
    classes : tuple
        The classes of the task, sorted; empty where answers are numbers.
    """

    __test__ = False  # pytest would take it for a class of tests

    name: str
    X: Array
    y: Array
    classes: tuple[str | int, ...]


class Change(Protocol):
    """What a task does to its rows."""

    def __call__(self, X: Array) -> Array:
        """The rows, changed."""

    def cut(self, rows: slice | Array) -> "Change":
        """The same for some of the rows alone."""


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """Rows of a source, as a task has them.

    Parameters
    ----------
    rows : ndarray of int of shape (n,)
        Which rows of the source, in the order in which they come.
    y : ndarray of shape (n,)
        Their answers.
    change : Change, optional
        What the task does to them; they stay as they are if it is not given.
    """

    rows: Array
    y: Array
    change: Change | None = None

    def cut(self, rows: slice | Array) -> "Part":
        """Some of the rows alone."""
        change = None if self.change is None else self.change.cut(rows)
        return Part(self.rows[rows], self.y[rows], change)

    def of(self, X: Array) -> Array:
        """The rows, taken from their source and changed."""
        taken = X[self.rows]
        return taken if self.change is None else self.change(taken)


@dataclass(frozen=True, slots=True, eq=False)
class Task:
    """What one experience is made of.

    Parameters
    ----------
    name : str
        Of the task.
    classes : tuple
        Its classes, sorted; empty where answers are numbers.
    train : Part
        What is learned.
    test : Part
        What is tested.
    """

    name: str
    classes: tuple[str | int, ...]
    train: Part
    test: Part


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Experiences:
    """A stream of tasks, each an :class:`Experience`; it can be gone through again and again.

    Parameters
    ----------
    name : str
        Of the whole: ``"Split MNIST"``.
    X : array of shape (N, …)
        The source of rows to learn.
    X_test : array of shape (K, …)
        The source of rows to test.
    tasks : tuple of Task
        In order.
    form : callable, optional
        Makes features of rows that were taken and changed; they stay as they are without it.
    tests : tuple of Task, optional
        What is tested, where experiences are not tasks; the tasks' rows to test without it.
    learned : tuple of int, optional
        Of each of ``tests`` the experience after which most of its rows have come.
    borders : bool, default=True
        Whether a learner may be told that an experience ended.
    """

    name: str
    X: Array
    X_test: Array
    tasks: tuple[Task, ...]
    form: Callable[[Array], Array] | None = None
    tests: tuple[Task, ...] = ()
    learned: tuple[int, ...] = ()
    borders: bool = True

    def __repr__(self) -> str:
        return f"<Experiences {self.name}: {len(self)} tasks, {self.n_rows} rows to learn>"

    def __len__(self) -> int:
        return len(self.tasks)

    def __getitem__(self, task: int) -> Experience:
        one = self.tasks[task]
        X, X_test = one.train.of(self.X), one.test.of(self.X_test)
        if self.form is not None:
            X, X_test = self.form(X), self.form(X_test)
        return Experience(one.name, X, one.train.y, X_test, one.test.y, one.classes)

    def __iter__(self) -> Iterator[Experience]:
        return (self[task] for task in range(len(self)))

    @property
    def classes(self) -> tuple[str | int, ...]:
        """All classes of all tasks, sorted; empty where answers are numbers."""
        return tuple(sorted({label for task in self.tasks for label in task.classes}))

    @property
    def n_rows(self) -> int:
        """Rows to learn, of all tasks together."""
        return sum(len(task.train.rows) for task in self.tasks)

    @property
    def digest(self) -> str:
        """Tells a stream of tasks from others: of names, answers, order and some rows."""
        known = blake2b(digest_size=16)
        for task in (*self.tasks, *self.tests):
            known.update(repr((self.name, task.name, task.classes)).encode())
            for part, source in ((task.train, self.X), (task.test, self.X_test)):
                known.update(np.ascontiguousarray(part.rows).tobytes())
                known.update(repr(part.y.tolist()).encode())
                rows = part.cut(slice(_LOOKED_AT)).of(source)
                made = rows if self.form is None else self.form(rows)
                known.update(_held(made))
        return known.hexdigest()

    def test_sets(self) -> Iterator[TestSet]:
        """All rows to test, task by task."""
        for task in self.tests or self.tasks:
            X = task.test.of(self.X_test)
            formed = X if self.form is None else self.form(X)
            yield TestSet(task.name, formed, task.test.y, task.classes)

    @property
    def when(self) -> tuple[int, ...]:
        """Of each exam the experience after which its task has been learned."""
        return self.learned or tuple(range(len(self.tasks)))

    def held_out(self, rows: int) -> "Experiences":
        """The same tasks, each tested on its last rows to learn, which are learned no more.

        Settings are chosen on these, so that no row to test has a say.

        Parameters
        ----------
        rows : int
            How many of each task.

        Raises
        ------
        ParameterError
            If a task has no more rows than these, or experiences are no tasks.
        """
        where = "Experiences.held_out"
        if self.tests:
            raise ParameterError(
                f"{where}: each experience must be a task, got blocks without borders. Hold rows "
                "out first, then take the borders away."
            )
        whole(rows, "rows", where, low=1)
        fewest = min(len(task.train.rows) for task in self.tasks)
        if rows >= fewest:
            raise ParameterError(
                f"{where}: `rows` must be fewer than each task has to learn, {fewest}, got {rows}. "
                "Hold out fewer rows."
            )
        cut = slice(-rows), slice(-rows, None)
        tasks = [
            replace(task, train=task.train.cut(cut[0]), test=task.train.cut(cut[1]))
            for task in self.tasks
        ]
        return replace(self, X_test=self.X, tasks=tuple(tasks))


def _held(rows: Array | Table) -> bytes:
    """Rows of an array or a table, as bytes that follow from their values."""
    if isinstance(rows, np.ndarray) and rows.dtype.kind == "O":
        return repr(rows.tolist()).encode()
    if isinstance(rows, np.ndarray):
        return repr((rows.shape, rows.dtype.str)).encode() + np.ascontiguousarray(rows).tobytes()
    return repr([(name, rows[name].tolist()) for name in rows.names]).encode()


_TESTED = 5  # one row of so many is tested, where none were given


def experience(given: object, name: str, where: str) -> Experience:
    """What was given as an experience.

    Parameters
    ----------
    given : Experience, (X, y) or (X, y, X_test, y_test)
        Of a pair the third of each five rows is tested, and not learned. There must be rows to
        test.
    name : str
        For one that has none.
    where : str
        The public call, for messages.

    Raises
    ------
    ParameterError
        If it is none of these.
    ShapeError
        If rows and answers are not as many, or none is to be tested.
    LabelError
        If labels are not of one kind, text or whole numbers.

    Examples
    --------
    >>> one = experience((np.eye(10), np.arange(10) % 2), "first", "here")
    >>> one.X.shape, one.X_test.shape, one.classes
    ((8, 10), (2, 10), (0, 1))
    """
    if isinstance(given, Experience):
        return _testable(given, where)
    if not isinstance(given, (tuple, list)) or len(given) not in {2, 4}:
        raise ParameterError(
            f"{where}: an experience must be an Experience, (X, y) or (X, y, X_test, y_test), got "
            f"{type(given).__name__}. Give rows with their answers, or make tasks of them with "
            "op.stream.experiences(X, y)."
        )
    X, y = _pair(given[0], given[1], where)
    if len(given) == 4:
        X_test, y_test = _pair(given[2], given[3], where)
    else:
        tested = np.arange(len(y)) % _TESTED == _TESTED // 2
        X, y, X_test, y_test = X[~tested], y[~tested], X[tested], y[tested]
    real = y.dtype.kind == "f" or y.ndim > 1
    classes = () if real else tuple(np.unique(np.concatenate([y, y_test])).tolist())
    return _testable(Experience(name, X, y, X_test, y_test, classes), where)


def _testable(one: Experience, where: str) -> Experience:
    if not len(one.y_test):
        raise ShapeError(
            f"{where}: experience {one.name!r} must have rows to test, got {len(one.y)} to learn "
            "and none to test. Give X_test and y_test, or three rows or more, of which one is "
            "tested."
        )
    return one


def as_rows(X: TableLike) -> Any:
    """Rows as a table, where their columns have names, or as an array."""
    if isinstance(X, Table):
        return X
    return Table.from_frame(X) if is_frame(X) and has_names(X) else np.asarray(X)


def make_tasks(
    names: Sequence[str],
    classes: Sequence[tuple[str | int, ...]],
    draw: Callable[[int, int, np.random.Generator], Part],
    seed: int,
) -> tuple[Task, ...]:
    """Tasks by their names and classes; ``draw(i, j, rng)`` gives what is learned (0) or tested."""
    rng = np.random.default_rng
    return tuple(
        Task(name, own, *(draw(i, j, rng([seed, i, j])) for j in range(2)))
        for i, (name, own) in enumerate(zip(names, classes, strict=True))
    )


def _pair(X: TableLike, y: ArrayLike, where: str) -> tuple[Any, Array]:
    rows, answers = as_rows(X), np.asarray(y)
    if answers.ndim < 1 or len(rows) != len(answers):
        raise ShapeError(
            f"{where}: an experience must have one answer a row, got {len(rows)} rows and answers "
            f"of shape {answers.shape}. Give X of shape (n, …) and y of shape (n,)."
        )
    if answers.ndim == 1 and answers.dtype.kind != "f":
        answers = labels(answers, len(answers), where)
    return rows, answers


@dataclass(frozen=True, slots=True, eq=False)
class ExperienceList:
    """Experiences that are all there, with the face of :class:`Experiences`.

    Parameters
    ----------
    all_of : sequence of Experience
        In order.
    name : str
        Of the whole.
    borders : bool
        Whether a learner may be told that an experience ended.
    """

    all_of: Sequence[Experience]
    name: str = "experiences"
    borders: bool = True

    def __len__(self) -> int:
        return len(self.all_of)

    def __iter__(self) -> Iterator[Experience]:
        return iter(self.all_of)

    def test_sets(self) -> Iterator[TestSet]:
        """All rows to test, task by task."""
        return (TestSet(one.name, one.X_test, one.y_test, one.classes) for one in self.all_of)

    @property
    def when(self) -> tuple[int, ...]:
        """Of each exam the experience after which its task has been learned."""
        return tuple(range(len(self.all_of)))

    @property
    def classes(self) -> tuple[str | int, ...]:
        """All classes of all tasks, sorted; empty where answers are numbers."""
        return tuple(sorted({label for one in self.all_of for label in one.classes}))

    @property
    def digest(self) -> str:
        """Tells these experiences from others: of all that they hold."""
        known = blake2b(digest_size=16)
        for one in self.all_of:
            known.update(
                repr((one.name, one.classes, one.y.tolist(), one.y_test.tolist())).encode()
            )
            known.update(_held(one.X))
            known.update(_held(one.X_test))
        return known.hexdigest()


_ORDER = 5  # sets the draw of an order apart from those of rows


def in_order(
    made: Experiences,
    order: Sequence[int] | str | None,
    where: str,
    name: str = "order",
    seed: int = 0,
) -> Experiences:
    """The same tasks in another order.

    Parameters
    ----------
    made : Experiences
        The tasks as they stand.
    order : sequence of int, "random" or None
        Which comes first, second, …; None to leave them.
    where, name : str
        The public call and its argument, for messages.
    seed : int, default=0
        Draws a random order.

    Raises
    ------
    ParameterError
        If the order does not name each task once, from 0 on.
    """
    if order is None:
        return made
    if isinstance(order, str) and order == "random":
        rng = np.random.default_rng([seed, _ORDER])
        wanted = rng.permutation(len(made)).tolist()
    else:
        wanted = list(order)
    if sorted(wanted) != list(range(len(made))):
        raise ParameterError(
            f"{where}: `{name}` must name each of the {len(made)} tasks once, from 0 on, got "
            f"{wanted}. Give a permutation of range({len(made)}), or 'random'."
        )
    return replace(made, tasks=tuple(made.tasks[task] for task in wanted))
