"""Class tasks: any data as a stream of tasks, by the classes or by where its rows lie.

=============== ==================================================================================
by classes      each task brings classes of its own: class-incremental, or task-incremental where
                a learner is told at the test which they are
within classes  the same, but the answer is which of its task's classes a row has: tasks share
                their answers, and the rows change                              (domain-incremental)
by a key        tasks are the ranges or the values of a column: one working region after the
                other, of classification or regression                          (domain-incremental)
=============== ==================================================================================

The three scenarios are those of G. M. van de Ven, T. Tuytelaars, A. S. Tolias, "Three types of
incremental learning", Nature Machine Intelligence 4, 2022.
"""

import itertools
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from onepass.errors import Array, LabelError, ParameterError
from onepass.stream.domain_tasks import by_domains
from onepass.stream.experiences import Experiences, Part, Task
from onepass.stream.order import in_order
from onepass.stream.rows_of import Source, some_of, sources
from onepass.validation import whole

__all__ = ["experiences"]

_WHERE = "op.stream.experiences"


def experiences(
    X: Any,
    y: Any,
    X_test: Any = None,
    y_test: Any = None,
    groups: Iterable[Iterable[Any]] | None = None,
    *,
    by: Any = None,
    by_test: Any = None,
    n_tasks: int | None = None,
    cuts: Sequence[float] | None = None,
    within: bool = False,
    test_share: float = 0.2,
    rows_per_class: int | None = None,
    test_rows_per_class: int | None = None,
    shuffle: bool = True,
    seed: int = 0,
    order: Sequence[int] | str | None = None,
    name: str = "experiences",
) -> Experiences:
    """Any data as a stream of tasks: by classes, or by the values or ranges of a column.

    Parameters
    ----------
    X : array-like of shape (N, …), or DataFrame
        Rows to learn. Arrays are kept, not copied.
    y : array-like of shape (N,) or (N, c), or str
        Their answers, or the name of the frame's column that holds them. Real numbers (of dtype
        float) are regression, all else classes.
    X_test : array-like of shape (K, …), or DataFrame, optional
        Rows to test. Without them a share of each task's rows is tested and not learned.
    y_test : array-like of shape (K,) or (K, c), optional
        Their answers.
    groups : iterable of iterable, optional
        The classes of each task, in order. A class belongs to one task at most; rows of classes
        that are not named are left out.
    by : str, int, or array-like of shape (N,), optional
        Tasks by a key in place of classes: a column's name or place, or the key of each row.
    by_test : array-like of shape (K,), optional
        The key of each row to test, where ``by`` holds those of the rows to learn.
    n_tasks : int, optional
        Without ``groups``: tasks to part the sorted classes into, or the numbers of ``by``, by
        their quantiles. Two classes a task, and each value of ``by`` a task, if not given.
    cuts : sequence of float, optional
        Where the tasks by ``by`` meet: k rising numbers part it into k + 1 ranges; a number on
        a cut belongs to the range above.
    within : bool, default=False
        Whether the answer is a class's place among those of its task, 0, 1, …
    test_share : float, default=0.2
        In (0, 0.9]: of each class or domain, drawn at random, if no rows to test are given.
    rows_per_class : int, optional
        Rows of each class to learn, drawn without replacement. All, if not given.
    test_rows_per_class : int, optional
        The same of rows to test.
    shuffle : bool, default=True
        Whether the rows of a task come in an order that the seed draws; else as they stand in X.
    seed : int, default=0
        Draws the rows, and the order in which those of a task come.
    order : sequence of int or "random", optional
        The tasks, counted from 0 as they stand in ``groups``, in the order in which they come.
    name : str, default="experiences"
        Of the whole, for tables.

    Returns
    -------
    experiences : Experiences

    Raises
    ------
    ShapeError
        If X and y have different numbers of rows.
    LabelError
        If a class is named twice, or has no rows to learn or to test.
    ColumnError
        If there is no column of the name.
    ParameterError
        If there are fewer rows than are asked for, a task would be empty, ``order`` is no
        permutation, or arguments are given that do not go together.

    Examples
    --------
    >>> import numpy as np
    >>> X, y = np.arange(12.0)[:, None], np.repeat([0, 1, 2, 3], 3)
    >>> tasks = experiences(X, y, X, y, [(0, 1), (2, 3)], rows_per_class=2)
    >>> [(task.classes, task.X.shape, len(task.y_test)) for task in tasks]
    [((0, 1), (4, 1), 6), ((2, 3), (4, 1), 6)]
    >>> bool((tasks[1].X >= 6.0).all())
    True

    A robot arm whose working region moves: three ranges of the first joint's angle.

    >>> angles = np.linspace(0.0, 3.0, 300)[:, None]
    >>> arm = experiences(angles, np.sin(angles[:, 0]), by=0, n_tasks=3)
    >>> [(task.name, len(task.y), len(task.y_test)) for task in arm][0]
    ('x0 < 1.003', 80, 20)
    """
    whole(seed, "seed", _WHERE, low=0)
    known = sources(X, y, X_test, y_test, test_share, seed, (_WHERE, by, by_test))
    if by is None:
        if cuts is not None or by_test is not None:
            raise ParameterError(
                f"{_WHERE}: `cuts` and `by_test` must come with `by`, got `by` None. Say which "
                "column or key they are of."
            )
        named = _groups(groups, n_tasks, known)
        _check_groups(named, [source.y for source in known])
        sizes = (rows_per_class, test_rows_per_class)
        tasks = _by_classes(known, named, sizes, seed, shuffle=shuffle, within=within)
    else:
        asked = (groups, rows_per_class, test_rows_per_class, within or None)
        if any(each is not None for each in asked):
            raise ParameterError(
                f"{_WHERE}: `groups`, `within` and rows a class must be left out with `by`, got "
                "them. Tasks are made by classes, or by a key."
            )
        tasks = by_domains(known, n_tasks, cuts, seed, shuffle=shuffle, where=_WHERE)
    made = Experiences(name, known[0].X, known[1].X, tuple(tasks))
    return in_order(made, order, _WHERE, seed=seed)


def _groups(
    groups: Iterable[Iterable[Any]] | None, n_tasks: int | None, known: Sequence[Source]
) -> list[tuple[Any, ...]]:
    """The classes of each task, as named or in sorted order."""
    if groups is not None:
        if n_tasks is not None:
            raise ParameterError(
                f"{_WHERE}: `n_tasks` must be left out with `groups`, got {n_tasks}. The groups "
                "are the tasks."
            )
        try:
            return [tuple(sorted(group)) for group in groups]
        except TypeError as wrong:
            raise LabelError(
                f"{_WHERE}: `groups` must list the classes of each task, of one kind, got "
                f"{groups!r}. Give for example [(0, 1), (2, 3)]."
            ) from wrong
    if known[0].y.dtype.kind == "f" or known[0].y.ndim > 1:
        raise ParameterError(
            f"{_WHERE}: `by` must say what tasks are made by where answers are real numbers, got "
            "None. Name a column, or give a key for each row."
        )
    classes = np.unique(known[0].y).tolist()
    n = max(1, len(classes) // 2) if n_tasks is None else whole(n_tasks, "n_tasks", _WHERE, low=1)
    if n > len(classes):
        raise ParameterError(
            f"{_WHERE}: `n_tasks` must be at most {len(classes)}, as many as there are classes, "
            f"got {n}. Ask for fewer, or make tasks `by` a key."
        )
    ends = np.linspace(0, len(classes), n + 1).astype(int)
    return [tuple(classes[a:b]) for a, b in itertools.pairwise(ends)]


def _check_groups(groups: list[tuple[Any, ...]], labels: list[Array]) -> None:
    flat = [label for group in groups for label in group]
    absent = [label for label in flat if any(not (known == label).any() for known in labels)]
    if not flat or len(set(flat)) < len(flat) or absent or not all(groups):
        raise LabelError(
            f"{_WHERE}: `groups` must name classes that have rows to learn and to test, each once, "
            f"got {groups}{f', of which {absent} have none' if absent else ''}. Known are "
            f"{np.unique(labels[0]).tolist()}."
        )


def _by_classes(
    known: Sequence[Source],
    named: list[tuple[Any, ...]],
    sizes: tuple[int | None, int | None],
    seed: int,
    *,
    shuffle: bool,
    within: bool,
) -> list[Task]:
    tasks = []
    for i, classes in enumerate(named):
        parts = []
        for j, wanted in enumerate(sizes):
            rng = np.random.default_rng([seed, i, j])
            rows = _drawn(known[j], classes, wanted, rng, f"{('', 'test_')[j]}rows_per_class")
            rows = rows if shuffle else np.sort(rows)
            y = known[j].y[rows]
            parts.append(Part(rows, np.searchsorted(np.array(classes), y) if within else y))
        title = "–".join(str(label) for label in classes)
        tasks.append(Task(title, tuple(range(len(classes))) if within else classes, *parts))
    return tasks


def _drawn(
    source: Source,
    classes: tuple[Any, ...],
    wanted: int | None,
    rng: np.random.Generator,
    name: str,
) -> Array:
    """Rows of the classes, shuffled."""
    chosen = []
    for label in classes:
        rows = source.rows[source.y[source.rows] == label]
        if wanted is not None:
            rows = some_of(rows, wanted, rng, _WHERE, name)
        chosen.append(rows)
    return rng.permutation(np.concatenate(chosen))
