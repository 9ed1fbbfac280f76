"""Domain tasks: rows parted by where they lie, along a column or by a key of their own."""

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from onepass.errors import Array, NotFiniteError, ParameterError
from onepass.stream.experiences import Part, Task
from onepass.stream.rows_of import Source
from onepass.validation import whole
from onepass.validation.table import is_missing

__all__ = ["by_domains"]

_MOST = 1000  # values of a key that each are a task: more is likely a mistake


def by_domains(
    known: Sequence[Source],
    n_tasks: int | None,
    cuts: Sequence[float] | None,
    seed: int,
    *,
    shuffle: bool,
    where: str,
) -> list[Task]:
    """Tasks by the ranges or values of the sources' keys.

    Parameters
    ----------
    known : sequence of Source
        Rows to learn, and to test.
    n_tasks, cuts, seed, shuffle
        As :func:`onepass.stream.experiences` has them.
    where : str
        The public call, for messages.

    Raises
    ------
    NotFiniteError
        If a row has no key.
    ParameterError
        If a task would be empty, or keys that are no numbers are to be parted by ranges.
    """
    keys = [_of(source, where) for source in known]
    placed, names = _placed(keys[0], (n_tasks, cuts), known[0].title, where)
    places = [placed(key) for key in keys]
    tasks = []
    for i, name in enumerate(names):
        parts = []
        for j, source in enumerate(known):
            rng = np.random.default_rng([seed, i, j])
            rows = source.rows[places[j] == i]
            if not len(rows):
                raise ParameterError(
                    f"{where}: `by` must leave each task rows to {('learn', 'test')[j]}, got none "
                    f"of {name!r}. Ask for fewer tasks, or other cuts."
                )
            rows = rng.permutation(rows) if shuffle else rows
            parts.append(Part(rows, source.y[rows]))
        tasks.append(Task(name, _classes(known[0]), *parts))
    return tasks


def _classes(source: Source) -> tuple[Any, ...]:
    """All classes, which tasks by domains share; none where answers are real numbers."""
    if source.y.dtype.kind == "f" or source.y.ndim > 1:
        return ()
    return tuple(np.unique(source.y[source.rows]).tolist())


def _of(source: Source, where: str) -> Array:
    """The keys of the rows that are meant; none may be missing."""
    key = np.asarray(source.key)[source.rows]
    lost = is_missing(key) if key.dtype.kind in "fMO" else np.zeros(len(key), dtype=bool)
    if lost.any():
        row = int(source.rows[np.flatnonzero(lost)[0]])
        raise NotFiniteError(
            f"{where}: `by` must have a value in each row, got none in row {row}. Drop the row, "
            "or give a key without gaps."
        )
    return key


def _placed(
    key: Array, asked: tuple[int | None, Sequence[float] | None], title: str, where: str
) -> tuple[Callable[[Array], Array], list[str]]:
    """What tells the task of each key, and the tasks' names."""
    n_tasks, cuts = asked
    if n_tasks is None and cuts is None:
        values = np.unique(key)
        if len(values) > _MOST:
            raise ParameterError(
                f"{where}: without `n_tasks` and `cuts` each value of `by` is a task, of which "
                f"there may be {_MOST}, got {len(values)}. Say how many ranges to make."
            )
        names = [f"{title} = {value}" for value in values.tolist()]
        return lambda other: _among(values, other, where), names
    if key.dtype.kind not in "iufbM" or (n_tasks is not None and cuts is not None):
        raise ParameterError(
            f"{where}: ranges must be of numbers or dates, by `n_tasks` or by `cuts`, got "
            f"{key.dtype}, n_tasks={n_tasks}, cuts={cuts}. Leave both out to have each value a "
            "task, or give one of them."
        )
    edges = _quantiles(key, n_tasks, where) if cuts is None else np.asarray(cuts)
    if edges.ndim != 1 or (len(edges) > 1 and not (edges[:-1] < edges[1:]).all()):
        raise ParameterError(
            f"{where}: tasks must meet at rising numbers, got {edges.tolist()}. Ask for fewer "
            "tasks where many rows have one value, or sort the cuts."
        )
    return lambda other: np.searchsorted(edges, other, side="right"), _ranges(edges, title)


def _quantiles(key: Array, n_tasks: int | None, where: str) -> Array:
    n = whole(n_tasks, "n_tasks", where, low=1)
    ordered = np.sort(key)
    edges: Array = ordered[(np.arange(1, n) * len(ordered)) // n]
    return edges


def _ranges(edges: Array, title: str) -> list[str]:
    said = [f"{edge:.4g}" if edges.dtype.kind in "iuf" else str(edge) for edge in edges]
    if not said:
        return [title]
    middle = [f"{low} ≤ {title} < {high}" for low, high in itertools.pairwise(said)]
    return [f"{title} < {said[0]}", *middle, f"{title} ≥ {said[-1]}"]


def _among(values: Array, key: Array, where: str) -> Array:
    places: Array = np.searchsorted(values, key)
    inside = np.minimum(places, len(values) - 1)
    if (values[inside] != key).any():
        came = key[values[inside] != key][0]
        raise ParameterError(
            f"{where}: each row to test must have a value of `by` that is learned, got {came!r}. "
            f"Leave such rows out; or, as {len(values)} values are a task each, ask for ranges: "
            "n_tasks=..."
        )
    return places
