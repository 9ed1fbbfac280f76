"""Boundaries between tasks: sharp, blurred, or none.

=========== =======================================================================================
sharp       a task ends before the next one begins: the default of all streams of tasks
blurred     at each boundary, neighbouring tasks exchange a share of their rows                 [1]
task-free   no boundaries: each row is moved by a normal deviate; the learner receives blocks of
            equal length and is not notified when a task ends                                   [2]
=========== =======================================================================================

Each row still occurs once, with the transformation of its original task. The test sets are those of
the original tasks.

[1] R. Aljundi et al., "Gradient based sample selection for online continual learning", NeurIPS
    2019, section 4.2 (blurry boundaries).
[2] M. Shanahan, C. Kaplanis, J. Mitrović, "Encoders and ensembles for task-free continual
    learning", 2021, section 4 (a Gaussian schedule of tasks).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from onepass.errors import ParameterError, calling
from onepass.stream.tasks import Change, Experiences, Part, Task
from onepass.types import Array
from onepass.validation import in_range, whole

_BLUR, _DRIFT = 7, 8  # keys of random streams


@dataclass(frozen=True, slots=True, eq=False)
class _PerTaskChange:
    """Transformation of rows of several tasks: each row as in its original task."""

    of: Array
    place: Array
    changes: tuple[Change | None, ...]

    def __call__(self, X: Array) -> Array:
        made = []
        for task, change in enumerate(self.changes):
            at = np.flatnonzero(self.of == task)
            if len(at):
                taken = X[at]
                rows = taken if change is None else change.subset(self.place[at])(taken)
                made.append((at, rows))
        out = np.empty(X.shape, np.result_type(*(rows.dtype for _, rows in made)))
        for at, rows in made:
            out[at] = rows
        return out

    def subset(self, rows: slice | Array) -> _PerTaskChange:
        return _PerTaskChange(self.of[rows], self.place[rows], self.changes)


@calling("op.stream.blurred")
def blurred(experiences: Experiences, share: float = 0.1, *, seed: int = 0) -> Experiences:
    """Blur the boundaries between tasks: neighbours exchange some of their training rows.

    Parameters
    ----------
    experiences : Experiences
        Tasks with sharp boundaries.
    share : float, default=0.1
        Share of the rows of the smaller task, in [0, 0.5], that is sampled at each boundary and
        exchanged for the same number of rows of the other task. A task between two others
        exchanges rows at both boundaries.
    seed : int, default=0
        Seed of the sampling and of the order of rows.

    Returns
    -------
    experiences : Experiences
        Tasks of the same number and sizes; test sets and classes are unchanged.

    Raises
    ------
    ParameterError
        If the share is out of range, or there are no boundaries.

    Examples
    --------
    >>> import numpy as np
    >>> from onepass.stream import experiences
    >>> X, y = np.arange(40.0)[:, None], np.repeat([0, 1], 20)
    >>> first = blurred(experiences(X, y, X, y, [(0,), (1,)]), 0.25)[0]
    >>> len(first.y), int(first.y.sum())
    (20, 5)
    """
    part = in_range(share, "share", low=0.0, high=0.5)
    _check_boundaries(experiences)
    whole(seed, "seed", low=0)
    rng = np.random.default_rng([seed, _BLUR])
    left = [rng.permutation(len(task.train.rows)) for task in experiences.tasks]
    taken: list[list[tuple[int, Array]]] = [[] for _ in left]
    sizes = [len(rows) for rows in left]
    for one in range(len(left) - 1):
        n = int(part * min(sizes[one], sizes[one + 1]))
        for giver, taker in ((one, one + 1), (one + 1, one)):
            given, left[giver] = np.split(left[giver], [n])
            taken[taker].append((giver, given))
    tasks = []
    for t, task in enumerate(experiences.tasks):
        pieces = [(t, left[t]), *taken[t]]
        of = np.concatenate([np.full(len(rows), giver) for giver, rows in pieces])
        place = np.concatenate([rows for _, rows in pieces])
        turn = rng.permutation(len(of))
        tasks.append(replace(task, train=_mix_tasks(experiences.tasks, of[turn], place[turn])))
    name = f"{experiences.name}, {100 * part:g} % blurred"
    return replace(experiences, name=name, tasks=tuple(tasks))


@calling("op.stream.task_free")
def task_free(
    experiences: Experiences, blocks: int = 20, *, width: float = 0.5, seed: int = 0
) -> Experiences:
    """Mix tasks into one stream without boundaries, divided into blocks of equal length.

    The position of a row in the stream is its original position plus a normal deviate, so that
    tasks overlap. A learner is tested on all tasks after each block, and is not notified when a
    task ends.

    Parameters
    ----------
    experiences : Experiences
        Tasks with sharp boundaries.
    blocks : int, default=20
        Number of experiences, >= 1 and at most the number of rows.
    width : float, default=0.5
        Standard deviation of the normal deviates, as a multiple of the mean length of a task, >= 0.
        0 preserves the order of rows.
    seed : int, default=0
        Seed of the normal deviates.

    Returns
    -------
    experiences : Experiences
        The blocks. ``test_sets()`` returns the test sets of the tasks; ``when`` contains, for each
        task, the block after which 90 % of its rows have been learned.

    Raises
    ------
    ParameterError
        If a number is out of range, or there are no boundaries.

    Examples
    --------
    >>> import numpy as np
    >>> from onepass.stream import experiences
    >>> X, y = np.arange(80.0)[:, None], np.repeat([0, 1], 40)
    >>> free = task_free(experiences(X, y, X, y, [(0,), (1,)]), 4, width=0.2)
    >>> [int(block.y.sum()) for block in free], free.when, free.borders
    ([0, 4, 16, 20], (1, 3), False)
    """
    _check_boundaries(experiences)
    spread = in_range(width, "width", low=0.0)
    sizes = np.array([len(task.train.rows) for task in experiences.tasks])
    n = int(sizes.sum())
    whole(blocks, "blocks", low=1)
    whole(seed, "seed", low=0)
    if blocks > n:
        raise ParameterError(
            f"`blocks` must be at most the number of rows, {n}, got {blocks}. Request fewer."
        )
    rng = np.random.default_rng([seed, _DRIFT])
    time = np.arange(n) + spread * n / len(sizes) * rng.standard_normal(n)
    turn = np.argsort(time, kind="stable")
    of = np.repeat(np.arange(len(sizes)), sizes)[turn]
    place = np.concatenate([np.arange(size) for size in sizes])[turn]
    cuts = np.linspace(0, n, blocks + 1).astype(int)
    tasks = []
    for b in range(blocks):
        rows = slice(cuts[b], cuts[b + 1])
        train = _mix_tasks(experiences.tasks, of[rows], place[rows])
        classes = tuple(np.unique(train.y).tolist()) if experiences.classes else ()
        tasks.append(Task(f"block {b}", classes, train, Part(train.rows[:0], train.y[:0])))
    mostly_done = [np.flatnonzero(of == t)[int(0.9 * (size - 1))] for t, size in enumerate(sizes)]
    return replace(
        experiences,
        name=f"{experiences.name}, task-free",
        tasks=tuple(tasks),
        tests=experiences.tasks,
        learned=tuple(np.searchsorted(cuts[1:-1], mostly_done, side="right").tolist()),
        borders=False,
    )


def _mix_tasks(tasks: Sequence[Task], of: Array, place: Array) -> Part:
    """Return rows of several tasks as one part, in the given order."""
    rows = np.array([tasks[t].train.rows[i] for t, i in zip(of, place, strict=True)])
    y = np.concatenate([task.train.y for task in tasks])
    starts = np.cumsum([0, *(len(task.train.y) for task in tasks)])
    changes = tuple(task.train.change for task in tasks)
    plain = all(change is None for change in changes)
    return Part(rows, y[starts[of] + place], None if plain else _PerTaskChange(of, place, changes))


def _check_boundaries(experiences: Experiences) -> None:
    if experiences.tests:
        raise ParameterError(
            f"`experiences` must be tasks with boundaries, got {experiences.name!r}, "
            "which has no boundaries. Pass the original tasks."
        )
