"""Experiences: a stream cut into tasks, whose rows come one task after the other.

Continual learning asks what is left of the first tasks when the last is learned. A description of
such a stream says which rows of a source belong to which task, to learn and to test, in which
order, and how each task changes them. It holds no more than the source: an experience is made
when it is reached.

What makes such streams stands beside it: :mod:`onepass.stream.class_tasks` of any data,
:mod:`onepass.stream.digit_tasks` and :mod:`onepass.stream.digit_turns` of pictures; what takes the
borders between tasks away is :mod:`onepass.stream.borders`.
"""

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from onepass.errors import Array, ParameterError
from onepass.validation import whole

__all__ = ["Change", "Exam", "Experience", "Experiences", "Part", "Task", "held"]

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
    classes: tuple[Any, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Exam:
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

    name: str
    X: Array
    y: Array
    classes: tuple[Any, ...]


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
    classes: tuple[Any, ...]
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
    def classes(self) -> tuple[Any, ...]:
        """All classes of all tasks, sorted; empty where answers are numbers."""
        return tuple(sorted({label for task in self.tasks for label in task.classes}))

    @property
    def n_rows(self) -> int:
        """Rows to learn, of all tasks together."""
        return sum(len(task.train.rows) for task in self.tasks)

    @property
    def digest(self) -> str:
        """Tells a stream of tasks from others: of names, answers, order and some rows."""
        known = hashlib.blake2b(digest_size=16)
        for task in (*self.tasks, *self.tests):
            known.update(repr((self.name, task.name, task.classes)).encode())
            for part, source in ((task.train, self.X), (task.test, self.X_test)):
                known.update(np.ascontiguousarray(part.rows).tobytes())
                known.update(repr(part.y.tolist()).encode())
                rows = part.cut(slice(_LOOKED_AT)).of(source)
                made = rows if self.form is None else self.form(rows)
                known.update(held(made))
        return known.hexdigest()

    def exams(self) -> Iterator[Exam]:
        """All rows to test, task by task."""
        for task in self.tests or self.tasks:
            X = task.test.of(self.X_test)
            formed = X if self.form is None else self.form(X)
            yield Exam(task.name, formed, task.test.y, task.classes)

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


def held(rows: Any) -> bytes:
    """Rows of an array or a table, as bytes that follow from their values."""
    if isinstance(rows, np.ndarray) and rows.dtype.kind == "O":
        return repr(rows.tolist()).encode()
    if isinstance(rows, np.ndarray):
        return repr((rows.shape, rows.dtype.str)).encode() + np.ascontiguousarray(rows).tobytes()
    return repr([(name, rows[name].tolist()) for name in rows.names]).encode()
