"""Boundaries between tasks: sharp, blurred, or none.

=========== =======================================================================================
sharp       a task ends and the next begins: the default of all streams of tasks
blurred     at each boundary a share of the rows is exchanged with as many of the neighbour     [1]
task-free   no boundaries: each row comes at its place plus a normal deviate; the learner gets
            blocks, and is not notified when a task ends                                        [2]
=========== =======================================================================================

Each row still comes once, changed as its own task changes rows, and the tests are those of the
original tasks.

[1] R. Aljundi et al., "Gradient based sample selection for online continual learning", NeurIPS
    2019, section 4.2 (blurry boundaries).
[2] M. Shanahan, C. Kaplanis, J. Mitrović, "Encoders and ensembles for task-free continual
    learning", 2021, section 4 (a Gaussian schedule of tasks).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from onepass.errors import ParameterError
from onepass.stream.tasks import Change, Experiences, Part, Task
from onepass.types import Array
from onepass.validation import in_range, whole

__all__ = ["blurred", "task_free"]

_BLUR, _DRIFT = 7, 8  # set these draws apart from those that made the tasks


@dataclass(frozen=True, slots=True, eq=False)
class _Each:
    """Rows of several tasks, each changed as its own task does."""

    of: Array
    place: Array
    changes: tuple[Change | None, ...]

    def __call__(self, X: Array) -> Array:
        made = []
        for task, change in enumerate(self.changes):
            at = np.flatnonzero(self.of == task)
            if len(at):
                taken = X[at]
                rows = taken if change is None else change.cut(self.place[at])(taken)
                made.append((at, rows))
        out = np.empty(X.shape, np.result_type(*(rows.dtype for _, rows in made)))
        for at, rows in made:
            out[at] = rows
        return out

    def cut(self, rows: slice | Array) -> "_Each":
        return _Each(self.of[rows], self.place[rows], self.changes)


def blurred(experiences: Experiences, share: float = 0.1, *, seed: int = 0) -> Experiences:
    """The same tasks with blurred borders: neighbours have swapped some of their rows to learn.

    Parameters
    ----------
    experiences : Experiences
        Tasks with sharp borders.
    share : float, default=0.1
        At each border this share of the smaller task's rows, in [0, 0.5], is drawn and changes
        places with as many of the other's. A task between two others so gives it away twice.
    seed : int, default=0
        Draws which, and the order in which the rows of an experience come.

    Returns
    -------
    experiences : Experiences
        As many, of as many rows each; tests and classes are those of the tasks.

    Raises
    ------
    ParameterError
        If the share is outside its range, or the borders are gone already.

    Examples
    --------
    >>> import numpy as np
    >>> from onepass.stream import experiences
    >>> X, y = np.arange(40.0)[:, None], np.repeat([0, 1], 20)
    >>> first = blurred(experiences(X, y, X, y, [(0,), (1,)]), 0.25)[0]
    >>> len(first.y), int(first.y.sum())
    (20, 5)
    """
    where = "op.stream.blurred"
    part = in_range(share, "share", where, low=0.0, high=0.5)
    _sharp(experiences, where)
    whole(seed, "seed", where, low=0)
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
        tasks.append(replace(task, train=_mixed(experiences.tasks, of[turn], place[turn])))
    name = f"{experiences.name}, {100 * part:g} % blurred"
    return replace(experiences, name=name, tasks=tuple(tasks))


def task_free(
    experiences: Experiences, blocks: int = 20, *, width: float = 0.5, seed: int = 0
) -> Experiences:
    """The same rows as one stream without borders, cut into blocks of equal length.

    A row's place in the stream is where it stood, plus a normal deviate; so each task comes up,
    has its time and goes, and the next is there before it has gone. A learner is tested after
    each block on all tasks, and never told that one ended.

    Parameters
    ----------
    experiences : Experiences
        Tasks with sharp borders.
    blocks : int, default=20
        Experiences to make, >= 1 and no more than there are rows.
    width : float, default=0.5
        Standard deviation of a row's place, in lengths of a task (their mean), >= 0. 0 leaves the
        rows where they stood.
    seed : int, default=0
        Draws the places.

    Returns
    -------
    experiences : Experiences
        Blocks; ``exams()`` are still those of the tasks, and ``when`` says after which block most
        rows of each (nine of ten) have come.

    Raises
    ------
    ParameterError
        If a number is outside its range, or the borders are gone already.

    Examples
    --------
    >>> import numpy as np
    >>> from onepass.stream import experiences
    >>> X, y = np.arange(80.0)[:, None], np.repeat([0, 1], 40)
    >>> free = task_free(experiences(X, y, X, y, [(0,), (1,)]), 4, width=0.2)
    >>> [int(block.y.sum()) for block in free], free.when, free.borders
    ([0, 4, 16, 20], (1, 3), False)
    """
    where = "op.stream.task_free"
    _sharp(experiences, where)
    spread = in_range(width, "width", where, low=0.0)
    sizes = np.array([len(task.train.rows) for task in experiences.tasks])
    n = int(sizes.sum())
    whole(blocks, "blocks", where, low=1)
    whole(seed, "seed", where, low=0)
    if blocks > n:
        raise ParameterError(
            f"{where}: `blocks` must be at most {n}, as many as there are rows, got {blocks}. "
            "Ask for fewer."
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
        train = _mixed(experiences.tasks, of[rows], place[rows])
        classes = tuple(np.unique(train.y).tolist()) if experiences.classes else ()
        tasks.append(Task(f"block {b}", classes, train, Part(train.rows[:0], train.y[:0])))
    most = [np.flatnonzero(of == t)[int(0.9 * (size - 1))] for t, size in enumerate(sizes)]
    return replace(
        experiences,
        name=f"{experiences.name}, task-free",
        tasks=tuple(tasks),
        tests=experiences.tasks,
        learned=tuple(np.searchsorted(cuts[1:-1], most, side="right").tolist()),
        borders=False,
    )


def _mixed(tasks: Sequence[Task], of: Array, place: Array) -> Part:
    """Rows of several tasks, in this order."""
    rows = np.array([tasks[t].train.rows[i] for t, i in zip(of, place, strict=True)])
    y = np.concatenate([task.train.y for task in tasks])
    starts = np.cumsum([0, *(len(task.train.y) for task in tasks)])
    changes = tuple(task.train.change for task in tasks)
    plain = all(change is None for change in changes)
    return Part(rows, y[starts[of] + place], None if plain else _Each(of, place, changes))


def _sharp(experiences: Experiences, where: str) -> None:
    if not isinstance(experiences, Experiences):
        raise ParameterError(
            f"{where}: `experiences` must be op.stream.Experiences, got "
            f"{type(experiences).__name__}. Make them with op.stream.experiences(X, y)."
        )
    if experiences.tests:
        raise ParameterError(
            f"{where}: `experiences` must be tasks with borders, got {experiences.name!r}, whose "
            "borders are gone. Give the tasks that it was made of."
        )
