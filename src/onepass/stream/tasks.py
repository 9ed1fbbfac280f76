"""Experiences: streams of tasks, whose rows are learned one task after the other.

Continual learning measures how well first tasks are retained after the last one is learned. A
stream of tasks defines the training and test rows of each task, their order and their
transformation. It stores only the source and indices of rows; an experience is built when it is
requested. Experiences may also be passed as rows with targets. The order of tasks may be set or
drawn at random.

:mod:`onepass.stream.class_tasks` creates such streams from any data and
:mod:`onepass.stream.digits` from images; :mod:`onepass.stream.boundaries` blurs or removes the
boundaries between tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any, Protocol

import numpy as np

from onepass.errors import ParameterError, ShapeError, public
from onepass.types import Array, ArrayLike
from onepass.validation import labels, whole
from onepass.validation.table import Table, TableLike, has_names, is_frame

_LOOKED_AT = 16  # rows of each task that a digest covers, as passed to learners


@dataclass(frozen=True, slots=True, eq=False)
class Experience:
    """One task: training rows, in order, and test rows.

    Parameters
    ----------
    name : str
        Name of the task.
    X : ndarray of shape (n, …)
        Training rows.
    y : ndarray of shape (n,)
        Their targets.
    X_test : ndarray of shape (k, …)
        Test rows.
    y_test : ndarray of shape (k,)
        Their targets.
    classes : tuple
        The classes of the task, sorted; empty for regression.
    """

    name: str
    X: Array
    y: Array
    X_test: Array
    y_test: Array
    classes: tuple[str | int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class TestSet:
    """Test rows of one task.

    Parameters
    ----------
    name : str
        Name of the task.
    X : ndarray or Table of shape (k, …)
        The rows.
    y : ndarray of shape (k,)
        Their targets.
    classes : tuple
        The classes of the task, sorted; empty for regression.
    """

    __test__ = False  # otherwise pytest would collect it as tests

    name: str
    X: Array
    y: Array
    classes: tuple[str | int, ...]


class Change(Protocol):
    """Transformation of the rows of a task."""

    def __call__(self, X: Array) -> Array:
        """Transform the rows."""

    def subset(self, rows: slice | Array) -> Change:
        """Return the transformation for a subset of the rows."""


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """Rows of a source that belong to a task.

    Parameters
    ----------
    rows : ndarray of int of shape (n,)
        Indices of the rows in the source, in order.
    y : ndarray of shape (n,)
        Their targets.
    change : Change, optional
        Their transformation, if any.
    """

    rows: Array
    y: Array
    change: Change | None = None

    def subset(self, rows: slice | Array) -> Part:
        """Return a subset of the rows."""
        change = None if self.change is None else self.change.subset(rows)
        return Part(self.rows[rows], self.y[rows], change)

    def of(self, X: Array) -> Array:
        """Select the rows from the source X, and transform them."""
        taken = X[self.rows]
        return taken if self.change is None else self.change(taken)


@dataclass(frozen=True, slots=True, eq=False)
class Task:
    """Description of one experience.

    Parameters
    ----------
    name : str
        Name of the task.
    classes : tuple
        Its classes, sorted; empty for regression.
    train : Part
        Training rows.
    test : Part
        Test rows.
    """

    name: str
    classes: tuple[str | int, ...]
    train: Part
    test: Part


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Experiences:
    """A stream of tasks, each an :class:`Experience`; it can be iterated repeatedly.

    Parameters
    ----------
    name : str
        Name of the stream: ``"Split MNIST"``.
    X : array of shape (N, …)
        Source of training rows.
    X_test : array of shape (K, …)
        Source of test rows.
    tasks : tuple of Task
        The tasks, in order.
    form : callable, optional
        Function that converts transformed rows to features, if any.
    tests : tuple of Task, optional
        Tasks to test, if the experiences are not tasks.
    learned : tuple of int, optional
        For each of ``tests``, the experience after which most of its rows have been learned.
    borders : bool, default=True
        Whether a learner may be notified when an experience ends.
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
        """All classes of all tasks, sorted; empty for regression."""
        return tuple(sorted({label for task in self.tasks for label in task.classes}))

    @property
    def n_rows(self) -> int:
        """Number of training rows of all tasks."""
        return sum(len(task.train.rows) for task in self.tasks)

    @property
    def digest(self) -> str:
        """Digest of names, targets, order and some rows."""
        digest = blake2b(digest_size=16)
        for task in (*self.tasks, *self.tests):
            digest.update(repr((self.name, task.name, task.classes)).encode())
            for part, source in ((task.train, self.X), (task.test, self.X_test)):
                digest.update(np.ascontiguousarray(part.rows).tobytes())
                digest.update(repr(part.y.tolist()).encode())
                rows = part.subset(slice(_LOOKED_AT)).of(source)
                made = rows if self.form is None else self.form(rows)
                digest.update(_row_bytes(made))
        return digest.hexdigest()

    def test_sets(self) -> Iterator[TestSet]:
        """Yield one test set per task."""
        for task in self.tests or self.tasks:
            X = task.test.of(self.X_test)
            formed = X if self.form is None else self.form(X)
            yield TestSet(task.name, formed, task.test.y, task.classes)

    @property
    def when(self) -> tuple[int, ...]:
        """For each test set, the index of the experience after which its task has been learned."""
        return self.learned or tuple(range(len(self.tasks)))

    @public
    def held_out(self, rows: int) -> Experiences:
        """Return the tasks with their last training rows as test rows, excluded from training.

        Use it to choose hyperparameters without test rows.

        Parameters
        ----------
        rows : int
            Number of rows to hold out per task.

        Raises
        ------
        ParameterError
            If a task has no more training rows than ``rows``, or experiences are not tasks.
        """
        if self.tests:
            raise ParameterError(
                "each experience must be a task, got blocks without boundaries. Hold "
                "out rows first, then remove the boundaries."
            )
        whole(rows, "rows", low=1)
        fewest = min(len(task.train.rows) for task in self.tasks)
        if rows >= fewest:
            raise ParameterError(
                f"`rows` must be less than the {fewest} training rows of the smallest "
                f"task, got {rows}. Hold out fewer rows."
            )
        subset = slice(-rows), slice(-rows, None)
        tasks = [
            replace(task, train=task.train.subset(subset[0]), test=task.train.subset(subset[1]))
            for task in self.tasks
        ]
        return replace(self, X_test=self.X, tasks=tuple(tasks))


def _row_bytes(rows: Array | Table) -> bytes:
    """Convert rows of an array or a table to bytes that depend only on their values."""
    if isinstance(rows, np.ndarray) and rows.dtype.kind == "O":
        return repr(rows.tolist()).encode()
    if isinstance(rows, np.ndarray):
        return repr((rows.shape, rows.dtype.str)).encode() + np.ascontiguousarray(rows).tobytes()
    return repr([(name, rows[name].tolist()) for name in rows.names]).encode()


_TESTED = 5  # by default, one of this many rows is a test row


def experience(given: object, name: str) -> Experience:
    """Convert an argument to an experience.

    Parameters
    ----------
    given : Experience, (X, y) or (X, y, X_test, y_test)
        The experience. For a pair, the third of every five rows is a test row. There must be test
        rows.
    name : str
        Default name.

    Raises
    ------
    ParameterError
        If the argument is none of these.
    ShapeError
        If the numbers of rows and targets differ, or there are no test rows.
    LabelError
        If labels are not all text or all integers.

    Examples
    --------
    >>> one = experience((np.eye(10), np.arange(10) % 2), "first")
    >>> one.X.shape, one.X_test.shape, one.classes
    ((8, 10), (2, 10), (0, 1))
    """
    if isinstance(given, Experience):
        return _testable(given)
    if not isinstance(given, (tuple, list)) or len(given) not in {2, 4}:
        raise ParameterError(
            "an experience must be an Experience, (X, y) or (X, y, X_test, y_test), "
            f"got {type(given).__name__}. Pass rows with their targets, or create tasks "
            "with op.stream.experiences(X, y)."
        )
    X, y = _pair(given[0], given[1])
    if len(given) == 4:
        X_test, y_test = _pair(given[2], given[3])
    else:
        tested = np.arange(len(y)) % _TESTED == _TESTED // 2
        X, y, X_test, y_test = X[~tested], y[~tested], X[tested], y[tested]
    real = y.dtype.kind == "f" or y.ndim > 1
    classes = () if real else tuple(np.unique(np.concatenate([y, y_test])).tolist())
    return _testable(Experience(name, X, y, X_test, y_test, classes))


def _testable(one: Experience) -> Experience:
    if not len(one.y_test):
        raise ShapeError(
            f"experience {one.name!r} must have test rows, got {len(one.y)} training "
            "rows and no test rows. Pass X_test and y_test, or at least three rows, "
            "one of which becomes a test row."
        )
    return one


def as_rows(X: TableLike) -> Any:
    """Convert rows to a table if their columns have names, otherwise to an array."""
    if isinstance(X, Table):
        return X
    return Table.from_frame(X) if is_frame(X) and has_names(X) else np.asarray(X)


def make_tasks(
    names: Sequence[str],
    classes: Sequence[tuple[str | int, ...]],
    draw: Callable[[int, int, np.random.Generator], Part],
    seed: int,
) -> tuple[Task, ...]:
    """Create tasks; ``draw(i, j, rng)`` returns training (j = 0) or test rows (1) of task i."""
    rng = np.random.default_rng
    return tuple(
        Task(name, own, *(draw(i, j, rng([seed, i, j])) for j in range(2)))
        for i, (name, own) in enumerate(zip(names, classes, strict=True))
    )


def _pair(X: TableLike, y: ArrayLike) -> tuple[Any, Array]:
    rows, targets = as_rows(X), np.asarray(y)
    if targets.ndim < 1 or len(rows) != len(targets):
        raise ShapeError(
            f"an experience must have one target per row, got {len(rows)} rows and targets of "
            f"shape {targets.shape}. Pass X of shape (n, …) and y of shape (n,)."
        )
    if targets.ndim == 1 and targets.dtype.kind != "f":
        targets = labels(targets, len(targets))
    return rows, targets


@dataclass(frozen=True, slots=True, eq=False)
class ExperienceList:
    """A list of experiences with the interface of :class:`Experiences`.

    Parameters
    ----------
    all_of : sequence of Experience
        The tasks, in order.
    name : str
        Name of the stream.
    borders : bool
        Whether a learner may be notified when an experience ends.
    """

    all_of: Sequence[Experience]
    name: str = "experiences"
    borders: bool = True

    def __len__(self) -> int:
        return len(self.all_of)

    def __iter__(self) -> Iterator[Experience]:
        return iter(self.all_of)

    def test_sets(self) -> Iterator[TestSet]:
        """Return one test set per task."""
        return (TestSet(one.name, one.X_test, one.y_test, one.classes) for one in self.all_of)

    @property
    def when(self) -> tuple[int, ...]:
        """For each test set, the index of the experience after which its task has been learned."""
        return tuple(range(len(self.all_of)))

    @property
    def classes(self) -> tuple[str | int, ...]:
        """All classes of all tasks, sorted; empty for regression."""
        return tuple(sorted({label for one in self.all_of for label in one.classes}))

    @property
    def digest(self) -> str:
        """Digest of all rows, targets, names and classes."""
        digest = blake2b(digest_size=16)
        for one in self.all_of:
            digest.update(
                repr((one.name, one.classes, one.y.tolist(), one.y_test.tolist())).encode()
            )
            digest.update(_row_bytes(one.X))
            digest.update(_row_bytes(one.X_test))
        return digest.hexdigest()


_ORDER = 5  # key of the random stream of orders


def reorder_tasks(
    made: Experiences,
    order: Sequence[int] | str | None,
    name: str = "order",
    seed: int = 0,
) -> Experiences:
    """Return the tasks in another order.

    Parameters
    ----------
    made : Experiences
        The tasks.
    order : sequence of int, "random" or None
        Indices of the tasks in their new order; None to preserve the order.
    name : str
        The argument, for messages.
    seed : int, default=0
        Seed of the random order.

    Raises
    ------
    ParameterError
        If the order does not contain each index exactly once.
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
            f"`{name}` must contain each of the indices 0 to {len(made) - 1} once, got "
            f"{wanted}. Pass a permutation of range({len(made)}), or 'random'."
        )
    return replace(made, tasks=tuple(made.tasks[task] for task in wanted))
