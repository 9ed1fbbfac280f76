"""The course of a run: a method learns a stream of tasks, and is tested after each."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from onepass.errors import Floats, OnepassError, need
from onepass.reproduce.orfit_deep_methods import BATCH, Method, Task
from onepass.reproduce.orfit_deep_networks import network
from onepass.stream import Experience

__all__ = ["Run", "run", "task_of"]

_CLASSES = 10


@dataclass(frozen=True, eq=False)
class Run:
    """What one run gave.

    Parameters
    ----------
    matrix : ndarray of shape (T, T)
        On the rows to test of task j after task t: percent right among all classes, or the root
        mean square error in degrees.
    within : ndarray of shape (T, T), or None
        Percent right among the classes of the task alone; None where tasks share their classes.
    nbytes : int
        Kept beside the weights, at the end.
    seconds : float or None
        Learning one row; None without a clock.
    stopped : str or None
        Why it could not go on.
    """

    matrix: Floats
    within: Floats | None
    nbytes: int
    seconds: float | None
    stopped: str | None


def task_of(tasks: Sequence[Experience]) -> Task:
    """What is to be said in a stream."""
    return "classes" if tasks[0].classes else "angles"


def run(
    method: Method,
    settings: dict[str, Any],
    tasks: Sequence[Experience],
    which: str,
    seed: list[int],
    clock: Callable[[], float] | None = None,
) -> Run:
    """Learn the tasks one after the other, each row once.

    Parameters
    ----------
    method : Method
        Which learns.
    settings : dict of str to Any
        Of the method.
    tasks : sequence of Experience
        Of pictures of shape (n, 1, 28, 28).
    which : str
        The network, one of ``NETWORKS``.
    seed : list of int
        Where its weights begin, and what the method draws.
    clock : callable, optional
        Gives seconds.
    """
    with _one_thread():
        return _run(method, settings, tasks, which, seed, clock)


def _run(
    method: Method,
    settings: dict[str, Any],
    tasks: Sequence[Experience],
    which: str,
    seed: list[int],
    clock: Callable[[], float] | None,
) -> Run:
    kind = task_of(tasks)
    module = network(which, _CLASSES if kind == "classes" else 1, seed)
    learner = method.make(module, kind, seed[-1], **settings)
    known, within, took, stopped = [], [], 0.0, None
    for t, task in enumerate(tasks):
        began = clock() if clock else 0.0
        try:
            if stopped is None:
                _learn(learner, method, task, last=t == len(tasks) - 1)
        except OnepassError as refused:
            stopped = f"{task.name}: {refused}"
        took += clock() - began if clock else 0.0
        tested = [_tested(module, other) for other in tasks]
        known.append([all_classes for all_classes, _ in tested])
        within.append([own for _, own in tested])
    matrix = np.array(known)
    if method.at_the_end:
        matrix[:-1] = np.nan
    shared = kind == "angles" or len({task.classes for task in tasks}) == 1
    own = None if shared else np.where(np.isnan(matrix), np.nan, np.array(within))
    rows = sum(len(task.X) for task in tasks)
    return Run(matrix, own, learner.nbytes, took / rows if clock else None, stopped)


@contextmanager
def _one_thread() -> Iterator[None]:
    """These tensors are small: several threads would mostly wait for each other."""
    torch = need("torch", extra="torch", where="orfit_deep")
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _learn(learner: Any, method: Method, task: Experience, *, last: bool) -> None:
    """All rows of a task, in batches, and its end."""
    torch = need("torch", extra="torch", where="orfit_deep")
    x = torch.from_numpy(_features(task.X))
    if not task.classes:
        y = torch.from_numpy(task.y.astype(np.float32))[:, None]
    else:
        y = torch.from_numpy(task.y.astype(np.int64))
    for begin in range(0, len(x), BATCH):
        rows = slice(begin, begin + BATCH)
        learner.learn(x[rows], y[rows])
    if hasattr(learner, "after_task") and (last or not method.at_the_end):
        learner.after_task()


def _features(X: Floats) -> Floats:
    """Pixels less the mean of MNIST's training pixels, over their deviation."""
    return (X - np.float32(0.1307)) / np.float32(0.3081)


def _tested(module: Any, task: Experience) -> tuple[float, float]:
    """Percent right among all classes and among the task's; or the error in degrees, twice."""
    torch = need("torch", extra="torch", where="orfit_deep")
    with torch.no_grad():
        said = module(torch.from_numpy(_features(task.X_test))).numpy()
    if not task.classes:
        error = float(np.rad2deg(np.sqrt(np.mean((said[:, 0] - task.y_test) ** 2))))
        return error, error
    own = np.array(task.classes)
    right = (said.argmax(axis=1) == task.y_test, own[said[:, own].argmax(axis=1)] == task.y_test)
    return 100.0 * float(right[0].mean()), 100.0 * float(right[1].mean())
