"""Experiences: a stream cut into tasks, whose rows come one task after the other.

Continual learning asks what is left of the first tasks when the last is learned. A description of
such a stream says which rows of a source belong to which task, to learn and to test, in which
order, and how each task changes them. It holds no more than the source: an experience is made
when it is reached.

What makes such streams stands beside it: :mod:`onepass.stream.class_tasks` of any data,
:mod:`onepass.stream.digit_tasks` and :mod:`onepass.stream.digit_turns` of pictures.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from onepass.errors import ParameterError
from onepass.types import Array
from onepass.validate import whole

__all__ = ["Change", "Experience", "Experiences", "Part", "Task", "in_order"]


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


class Change(Protocol):
    """What a task does to its rows."""

    def __call__(self, X: Array) -> Array:
        """The rows, changed."""

    def cut(self, rows: slice) -> "Change":
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

    def cut(self, rows: slice) -> "Part":
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


@dataclass(frozen=True, slots=True, eq=False)
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
    """

    name: str
    X: Array
    X_test: Array
    tasks: tuple[Task, ...]
    form: Callable[[Array], Array] | None = None

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
            If a task has no more rows than these.
        """
        where = "Experiences.held_out"
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


def in_order(
    made: Experiences, order: Sequence[int] | None, where: str, name: str = "order"
) -> Experiences:
    """The same tasks in another order.

    Raises
    ------
    ParameterError
        If the order does not name each task once, from 0 on.
    """
    if order is None:
        return made
    wanted = list(order)
    if sorted(wanted) != list(range(len(made))):
        raise ParameterError(
            f"{where}: `{name}` must name each of the {len(made)} tasks once, from 0 on, got "
            f"{wanted}. Give a permutation of range({len(made)})."
        )
    return replace(made, tasks=tuple(made.tasks[task] for task in wanted))
