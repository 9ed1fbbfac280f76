"""Class tasks: any data as a stream of tasks, each with classes of its own."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from onepass.errors import LabelError, ParameterError, ShapeError
from onepass.stream.experiences import Experiences, Part, Task, in_order
from onepass.types import Array
from onepass.validate import whole

__all__ = ["experiences", "some_of"]


def experiences(
    X: Any,
    y: Any,
    X_test: Any,
    y_test: Any,
    groups: Iterable[Iterable[Any]],
    *,
    rows_per_class: int | None = None,
    test_rows_per_class: int | None = None,
    seed: int = 0,
    order: Sequence[int] | None = None,
    name: str = "experiences",
) -> Experiences:
    """Any data as a stream of tasks, each with its own classes.

    Parameters
    ----------
    X : array-like of shape (N, …)
        Rows to learn. They are kept, not copied.
    y : array-like of shape (N,)
        Their classes.
    X_test : array-like of shape (K, …)
        Rows to test.
    y_test : array-like of shape (K,)
        Their classes.
    groups : iterable of iterable
        The classes of each task, in order. A class belongs to one task at most; rows of classes
        that are not named are left out.
    rows_per_class : int, optional
        Rows of each class to learn, drawn without replacement. All, if not given.
    test_rows_per_class : int, optional
        The same of rows to test.
    seed : int, default=0
        Draws the rows, and the order in which those of a task come.
    order : sequence of int, optional
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
    ParameterError
        If there are fewer rows than are asked for, or ``order`` is no permutation.

    Examples
    --------
    >>> import numpy as np
    >>> X, y = np.arange(12.0)[:, None], np.repeat([0, 1, 2, 3], 3)
    >>> tasks = experiences(X, y, X, y, [(0, 1), (2, 3)], rows_per_class=2)
    >>> [(task.classes, task.X.shape, len(task.y_test)) for task in tasks]
    [((0, 1), (4, 1), 6), ((2, 3), (4, 1), 6)]
    >>> bool((tasks[1].X >= 6.0).all())
    True
    """
    where = "op.stream.experiences"
    sources = [_pair(X, y, where, ""), _pair(X_test, y_test, where, "_test")]
    named = [tuple(sorted(group)) for group in groups]
    _check_groups(named, [labels for _, labels in sources], where)
    tasks = []
    for i, classes in enumerate(named):
        parts = []
        for j, wanted in enumerate((rows_per_class, test_rows_per_class)):
            rng, labels = np.random.default_rng([seed, i, j]), sources[j][1]
            rows = _drawn(labels, classes, wanted, rng, (where, ("", "test_")[j]))
            parts.append(Part(rows, labels[rows]))
        title = "–".join(str(label) for label in classes)
        tasks.append(Task(title, classes, *parts))
    made = Experiences(name, sources[0][0], sources[1][0], tuple(tasks))
    return in_order(made, order, where)


def _pair(X: Any, y: Any, where: str, suffix: str) -> tuple[Array, Array]:
    rows, labels = np.asarray(X), np.asarray(y)
    if labels.ndim != 1 or rows.ndim < 2 or len(rows) != len(labels):
        raise ShapeError(
            f"{where}: `X{suffix}` must be of shape (n, …) and `y{suffix}` of shape (n,), got "
            f"{rows.shape} and {labels.shape}. Give one class a row."
        )
    return rows, labels


def _check_groups(groups: list[tuple[Any, ...]], labels: list[Array], where: str) -> None:
    flat = [label for group in groups for label in group]
    absent = [label for label in flat if any(not (known == label).any() for known in labels)]
    if not flat or len(set(flat)) < len(flat) or absent or not all(groups):
        raise LabelError(
            f"{where}: `groups` must name classes that have rows to learn and to test, each once, "
            f"got {groups}{f', of which {absent} have none' if absent else ''}. Known are "
            f"{np.unique(labels[0]).tolist()}."
        )


def _drawn(
    labels: Array,
    classes: tuple[Any, ...],
    wanted: int | None,
    rng: np.random.Generator,
    said: tuple[str, str],
) -> Array:
    """Rows of the classes, shuffled."""
    chosen = []
    for label in classes:
        rows = np.flatnonzero(labels == label)
        if wanted is not None:
            rows = some_of(rows, wanted, rng, said[0], f"{said[1]}rows_per_class")
        chosen.append(rows)
    return rng.permutation(np.concatenate(chosen))


def some_of(
    rows: Array, wanted: int | None, rng: np.random.Generator, where: str, name: str
) -> Array:
    """Rows drawn without replacement; all of them, shuffled, if no number is given.

    Raises
    ------
    ParameterError
        If there are fewer.
    """
    if wanted is None:
        return rng.permutation(rows)
    if whole(wanted, name, where, low=1) > len(rows):
        raise ParameterError(
            f"{where}: `{name}` must be at most {len(rows)}, as many as there are, got {wanted}. "
            "Ask for fewer."
        )
    return rng.choice(rows, wanted, replace=False)
