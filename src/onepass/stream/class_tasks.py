"""Streams of tasks from any data, split by classes or by the values of a column.

=============== ==================================================================================
by classes      tasks have disjoint classes: class-incremental, or task-incremental if the classes
                of the task are known at test time
within classes  tasks have disjoint classes, but the label is the position of a class within its
                task: tasks share labels, and the rows change                   (domain-incremental)
by a key        tasks are ranges or values of a column, such as successive working regions, for
                classification or regression                                    (domain-incremental)
=============== ==================================================================================

The three scenarios are those of G. M. van de Ven, T. Tuytelaars, A. S. Tolias, "Three types of
incremental learning", Nature Machine Intelligence 4, 2022.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import narwhals as nw
import numpy as np

from onepass.errors import LabelError, NotFiniteError, ParameterError, ShapeError, calling
from onepass.stream.tasks import Experiences, Part, Task, as_rows, make_tasks, reorder_tasks
from onepass.types import Array, ArrayLike
from onepass.validation import in_range, labels, whole
from onepass.validation.table import Table, TableLike, is_missing

_APART = 6  # key of the random stream that selects test rows


@dataclass(frozen=True, slots=True, eq=False)
class TaskRows:
    """Rows with targets, and the indices of those to use.

    Parameters
    ----------
    X : ndarray of shape (N, …) or Table
        All rows.
    y : ndarray of shape (N,) or (N, c)
        Their targets.
    rows : ndarray of int of shape (n,)
        Indices of the rows to use.
    key : ndarray of shape (N,), or None
        The key that defines the tasks.
    title : str
        The name of the key.
    """

    X: Any
    y: Array
    rows: Array
    key: Array | None = None
    title: str = "key"


def _sources(
    X: TableLike,
    y: ArrayLike,
    X_test: TableLike | None,
    y_test: ArrayLike | None,
    by: ArrayLike | None,
    by_test: ArrayLike | None,
    test_share: float,
    seed: int,
) -> list[TaskRows]:
    """Check the arguments; return training rows and test rows."""
    if isinstance(y, str) and y_test is None and X_test is not None:
        y_test = y
    if (X_test is None) != (y_test is None):
        raise ParameterError(
            "`X_test` and `y_test` must be given both or not at all, got one of them. "
            "Pass both, or omit both to use a share of the rows for testing.",
        )
    learned = _source(X, y, by, "")
    if X_test is None or y_test is None:
        share = in_range(test_share, "test_share", above=0.0, high=0.9)
        return _split_rows(learned, share, seed)
    named = by is None or isinstance(by, (str, int))
    if not named and by_test is None:
        raise ParameterError(
            "`by_test` must contain the key of each test row if `by` contains the keys of training "
            "rows, got None. Pass it, or name a column that X and X_test share.",
        )
    return [learned, _source(X_test, y_test, by if named else by_test, "_test")]


def _source(X: TableLike, y: ArrayLike, by: ArrayLike | None, suffix: str) -> TaskRows:
    rows = as_rows(X)
    if isinstance(y, str) and isinstance(rows, Table):
        rows, y = rows.drop([y]), _targets(X, rows, y)
    targets = np.asarray(y)
    shape = (len(rows), len(rows.names)) if isinstance(rows, Table) else rows.shape
    # several targets per row are never classes
    if (
        not 1 <= targets.ndim <= (1 if by is None else 2)
        or len(shape) < 2
        or shape[0] != len(targets)
        or not shape[0]
    ):
        raise ShapeError(
            f"`X{suffix}` must be of shape (n, …) and `y{suffix}` of shape (n,), got "
            f"{shape} and {targets.shape}. Pass at least one row, and one class per row."
        )
    if targets.ndim == 1 and targets.dtype.kind != "f":
        targets = labels(targets, len(targets), what=f"y{suffix}")
    key, title = _key(rows, by, len(targets), suffix)
    if key is not None and key.dtype.kind in "fMO" and (missing := is_missing(key)).any():
        raise NotFiniteError(
            f"`by{suffix}` must have a value in each row",
            got="none",
            remedy="Drop the row, or fill in its key.",
            row=int(np.flatnonzero(missing)[0]),
        )
    return TaskRows(rows, targets, np.arange(len(targets)), key, title)


def _targets(frame: Any, rows: Table, name: str) -> Array:
    """Return a target column; integers and booleans are class labels and keep their dtype."""
    targets: Array = rows[name]
    if not isinstance(frame, Table):
        column = nw.from_native(frame, eager_only=True)[name]
        if column.dtype.is_integer() or column.dtype == nw.Boolean:
            gaps = bool(column.is_null().any())
            return targets if gaps else column.to_numpy()
    return targets


def _key(
    rows: Array | Table, by: ArrayLike | None, n: int, suffix: str
) -> tuple[Array | None, str]:
    """Return the key of each row and the name of the key."""
    if by is None:
        return None, ""
    if isinstance(by, str):
        return rows[by], by
    if isinstance(by, (int, np.integer)) and not isinstance(by, bool):
        names = rows.names if isinstance(rows, Table) else [f"x{j}" for j in range(rows.shape[1])]
        name = str(np.array(names)[by])
        return rows[name] if isinstance(rows, Table) else rows[:, by], name
    key = np.asarray(by)
    if key.shape != (n,):
        raise ShapeError(
            f"`by{suffix}` must be of shape ({n},), a key for each row, got "
            f"{key.shape}. Pass one key per row."
        )
    return key, "key"


def _split_rows(source: TaskRows, share: float, seed: int) -> list[TaskRows]:
    """Split rows into training and test rows, stratified by key, otherwise by class."""
    rng = np.random.default_rng([seed, _APART])
    real = source.y.dtype.kind == "f" or source.y.ndim > 1
    at = np.zeros(len(source.y), dtype=int) if real else np.unique(source.y, return_inverse=True)[1]
    if source.key is not None:  # stratified along the key
        few = max(2, round(1.0 / share))
        at = np.minimum(_ranks(source.key) // few, max(1, len(at) // few) - 1)
    tested = np.zeros(len(at), dtype=bool)
    for group in np.split(np.argsort(at, kind="stable"), np.flatnonzero(np.diff(np.sort(at))) + 1):
        n = max(1, round(share * len(group))) if len(group) > 1 else 0
        tested[rng.choice(group, n, replace=False)] = True
    whole_of = (source.X, source.y)
    return [
        TaskRows(*whole_of, np.flatnonzero(rows), source.key, source.title)
        for rows in (~tested, tested)
    ]


def _ranks(key: Array) -> Array:
    ranks = np.empty(len(key), dtype=int)
    ranks[np.argsort(key, kind="stable")] = np.arange(len(key))
    return ranks


def sample_rows(rows: Array, wanted: int | None, rng: np.random.Generator, name: str) -> Array:
    """Sample rows without replacement, or shuffle all rows if no number is requested.

    Raises
    ------
    ParameterError
        If there are fewer rows than requested.
    """
    if wanted is None:
        return rng.permutation(rows)
    if whole(wanted, name, low=1) > len(rows):
        raise ParameterError(
            f"`{name}` must be at most {len(rows)}, the number of rows, got {wanted}. "
            "Request fewer."
        )
    return rng.choice(rows, wanted, replace=False)


_MAX_TASKS = 1000  # more tasks by value are likely a mistake


def _by_domains(
    known: Sequence[TaskRows],
    n_tasks: int | None,
    cuts: Sequence[float] | None,
    seed: int,
    *,
    shuffle: bool,
) -> tuple[Task, ...]:
    """Return tasks by ranges or values of the keys."""
    keys = [np.asarray(source.key)[source.rows] for source in known]
    placed, names = _assign_tasks(keys[0], (n_tasks, cuts), known[0].title)
    places = [placed(key) for key in keys]

    def draw(i: int, j: int, rng: np.random.Generator) -> Part:
        rows = known[j].rows[places[j] == i]
        if not len(rows):
            raise ParameterError(
                f"each task must have rows to {('learn', 'test')[j]}, got none for "
                f"{names[i]!r}. Request fewer tasks, or other cuts."
            )
        rows = rng.permutation(rows) if shuffle else rows
        return Part(rows, known[j].y[rows])

    return make_tasks(names, [_classes(known[0])] * len(names), draw, seed)


def _classes(source: TaskRows) -> tuple[str | int, ...]:
    """Return the classes, which all tasks share; an empty tuple for regression."""
    if source.y.dtype.kind == "f" or source.y.ndim > 1:
        return ()
    return tuple(np.unique(source.y[source.rows]).tolist())


def _assign_tasks(
    key: Array, conflicting: tuple[int | None, Sequence[float] | None], title: str
) -> tuple[Callable[[Array], Array], list[str]]:
    """Return a function that maps keys to task indices, and the names of the tasks."""
    n_tasks, cuts = conflicting
    if n_tasks is None and cuts is None:
        values = np.unique(key)
        if len(values) > _MAX_TASKS:
            raise ParameterError(
                f"without `n_tasks` and `cuts` each value of `by` is a task, at most {_MAX_TASKS}, "
                f"got {len(values)}. Pass `n_tasks` or `cuts` to define ranges."
            )
        names = [f"{title} = {value}" for value in values.tolist()]
        return lambda other: _value_index(values, other), names
    if key.dtype.kind not in "iufbM" or (n_tasks is not None and cuts is not None):
        raise ParameterError(
            "ranges require numbers or dates, and either `n_tasks` or `cuts`, got "
            f"{key.dtype}, n_tasks={n_tasks}, cuts={cuts}. Pass one of them, or omit "
            "both for one task per value."
        )
    edges = _quantiles(key, n_tasks) if cuts is None else np.asarray(cuts)
    if edges.ndim != 1 or (len(edges) > 1 and not (edges[:-1] < edges[1:]).all()):
        raise ParameterError(
            f"boundaries of tasks must increase, got {edges.tolist()}. Sort the cuts; "
            "if many rows have equal keys, request fewer tasks."
        )
    return lambda other: np.searchsorted(edges, other, side="right"), _ranges(edges, title)


def _quantiles(key: Array, n_tasks: int | None) -> Array:
    n = whole(n_tasks, "n_tasks", low=1)
    ordered = np.sort(key)
    edges: Array = ordered[(np.arange(1, n) * len(ordered)) // n]
    return edges


def _ranges(edges: Array, title: str) -> list[str]:
    labels = [f"{edge:.4g}" if edges.dtype.kind in "iuf" else str(edge) for edge in edges]
    if not labels:
        return [title]
    middle = [f"{low} ≤ {title} < {high}" for low, high in itertools.pairwise(labels)]
    return [f"{title} < {labels[0]}", *middle, f"{title} ≥ {labels[-1]}"]


def _value_index(values: Array, key: Array) -> Array:
    places: Array = np.searchsorted(values, key)
    inside = np.minimum(places, len(values) - 1)
    if (values[inside] != key).any():
        got = key[values[inside] != key][0]
        raise ParameterError(
            f"each test row must have a value of `by` that occurs in training, got {got!r}. Drop "
            f"such rows, or replace the {len(values)} tasks, one per value, by ranges: n_tasks=..."
        )
    return places


@calling("op.stream.experiences")
def experiences(
    X: TableLike,
    y: ArrayLike,
    X_test: TableLike | None = None,
    y_test: ArrayLike | None = None,
    groups: Iterable[Iterable[str | int]] | None = None,
    *,
    by: ArrayLike | None = None,
    by_test: ArrayLike | None = None,
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
    """Divide data into a stream of tasks by classes, or by values or ranges of a column.

    Parameters
    ----------
    X : array-like of shape (N, …), or DataFrame
        Training rows. Arrays are referenced, not copied.
    y : array-like of shape (N,) or (N, c), or str
        Their targets, or the name of the target column of the frame. Targets of dtype float are for
        regression; all others are classes.
    X_test : array-like of shape (K, …), or DataFrame, optional
        Test rows. By default a share of the rows of each task is used only for testing.
    y_test : array-like of shape (K,) or (K, c), optional
        Their targets.
    groups : iterable of iterable, optional
        The classes of each task, in order. A class belongs to at most one task; rows of classes in
        no group are excluded.
    by : str, int, or array-like of shape (N,), optional
        Key that defines tasks instead of classes: the name or index of a column, or the key of each
        row.
    by_test : array-like of shape (K,), optional
        The key of each test row, if ``by`` contains the keys of training rows.
    n_tasks : int, optional
        Number of tasks, if there are no ``groups``. The sorted classes are divided evenly, or the
        values of ``by`` at quantiles. The default is two classes per task, or one task per value of
        ``by``.
    cuts : sequence of float, optional
        Boundaries of the ranges of ``by``: k increasing numbers define k + 1 ranges; a value on a
        boundary belongs to the upper range.
    within : bool, default=False
        Whether the label is the position of a class within its task, 0, 1, …
    test_share : float, default=0.2
        Share of each class or domain that is drawn at random for testing, in (0, 0.9], if there are
        no ``X_test``.
    rows_per_class : int, optional
        Training rows per class, sampled without replacement. All by default.
    test_rows_per_class : int, optional
        Test rows per class, sampled without replacement. All by default.
    shuffle : bool, default=True
        Whether the rows of a task are shuffled; otherwise they have the order of X.
    seed : int, default=0
        Seed of the sampling and of the order of rows.
    order : sequence of int or "random", optional
        The order of the tasks, by their indices in ``groups``.
    name : str, default="experiences"
        Name of the stream, for tables.

    Returns
    -------
    experiences : Experiences

    Raises
    ------
    ShapeError
        If X and y have different numbers of rows.
    LabelError
        If a class is named twice, or has no training or test rows.
    ColumnError
        If the named column does not exist.
    ParameterError
        If there are fewer rows than requested, a task would be empty, ``order`` is not a
        permutation, or arguments are incompatible.

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
    whole(seed, "seed", low=0)
    known = _sources(X, y, X_test, y_test, by, by_test, test_share, seed)
    if by is None:
        if cuts is not None or by_test is not None:
            raise ParameterError(
                "`cuts` and `by_test` require `by`, got `by` None. Pass the column or "
                "the keys as `by`."
            )
        named = _groups(groups, n_tasks, known)
        _check_groups(named, [source.y for source in known])
        sizes = (rows_per_class, test_rows_per_class)
        tasks = _by_classes(known, named, sizes, seed, shuffle=shuffle, within=within)
    else:
        conflicting = (groups, rows_per_class, test_rows_per_class, within or None)
        if any(each is not None for each in conflicting):
            raise ParameterError(
                "`groups`, `within` and rows per class must be omitted with `by`, got "
                "both. Define tasks either by classes or by a key."
            )
        tasks = _by_domains(known, n_tasks, cuts, seed, shuffle=shuffle)
    made = Experiences(name, known[0].X, known[1].X, tasks)
    return reorder_tasks(made, order, seed=seed)


def _groups(
    groups: Iterable[Iterable[str | int]] | None, n_tasks: int | None, known: Sequence[TaskRows]
) -> list[tuple[str | int, ...]]:
    """Return the classes of each task: the groups, or the sorted classes divided evenly."""
    if groups is not None:
        if n_tasks is not None:
            raise ParameterError(
                "`n_tasks` must be omitted with `groups`, which are the tasks, got "
                f"{n_tasks}. Omit it."
            )
        return [tuple(sorted(group)) for group in groups]
    if known[0].y.dtype.kind == "f" or known[0].y.ndim > 1:
        raise ParameterError(
            "`by` must define the tasks for real targets, got None. Name a column, or "
            "pass a key for each row."
        )
    classes = np.unique(known[0].y).tolist()
    n = max(1, len(classes) // 2) if n_tasks is None else whole(n_tasks, "n_tasks", low=1)
    if n > len(classes):
        raise ParameterError(
            f"`n_tasks` must be at most {len(classes)}, the number of classes, got {n}. "
            "Request fewer, or define tasks by a key with `by`."
        )
    ends = np.linspace(0, len(classes), n + 1).astype(int)
    return [tuple(classes[a:b]) for a, b in itertools.pairwise(ends)]


def _check_groups(groups: list[tuple[str | int, ...]], labels: list[Array]) -> None:
    flat = [label for group in groups for label in group]
    absent = [label for label in flat if any(not (known == label).any() for known in labels)]
    if not flat or len(set(flat)) < len(flat) or absent or not all(groups):
        raise LabelError(
            "`groups` must name each class once, and only classes with training and test rows, got "
            f"{groups}{f', of which {absent} have none' if absent else ''}. Choose from "
            f"{np.unique(labels[0]).tolist()}."
        )


def _by_classes(
    known: Sequence[TaskRows],
    named: list[tuple[str | int, ...]],
    sizes: tuple[int | None, int | None],
    seed: int,
    *,
    shuffle: bool,
    within: bool,
) -> tuple[Task, ...]:
    """Return tasks with disjoint classes."""

    def draw(i: int, j: int, rng: np.random.Generator) -> Part:
        rows = _drawn(known[j], named[i], sizes[j], rng, f"{('', 'test_')[j]}rows_per_class")
        rows = rows if shuffle else np.sort(rows)
        y = known[j].y[rows]
        return Part(rows, np.searchsorted(np.array(named[i]), y) if within else y)

    titles = ["–".join(str(label) for label in classes) for classes in named]
    own = [tuple(range(len(classes))) if within else classes for classes in named]
    return make_tasks(titles, own, draw, seed)


def _drawn(
    source: TaskRows,
    classes: tuple[str | int, ...],
    wanted: int | None,
    rng: np.random.Generator,
    name: str,
) -> Array:
    """Return sampled rows of the classes, shuffled."""
    chosen = []
    for label in classes:
        rows = source.rows[source.y[source.rows] == label]
        if wanted is not None:
            rows = sample_rows(rows, wanted, rng, name)
        chosen.append(rows)
    return rng.permutation(np.concatenate(chosen))
