"""Digit turns: the streams of pictures in which tasks differ by how much digits are turned.

=================  ================================================================================
Rotated MNIST      all classes in each task, turned by 0°, 5°, 10°, …                           [1]
Rotation angles    one digit, and the answer is its angle, which grows from task to task        [2]
=================  ================================================================================

[1] D. Lopez-Paz, M. Ranzato, "Gradient episodic memory for continual learning", NeurIPS 2017.
[2] Y. Min, K. Ahn, N. Azizan, "One-Pass Learning via Bridging Orthogonal Gradient Descent and
    Recursive Least-Squares", CDC 2022, section V.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from onepass.errors import Array, Floats
from onepass.stream.digit_tasks import Features, all_classes, known_images
from onepass.stream.experiences import Change, Experiences, Part, Task
from onepass.stream.order import in_order
from onepass.stream.pictures import Images
from onepass.stream.rotation import SplineOrder, rotated
from onepass.stream.rows_of import some_of
from onepass.validation import in_range, whole

__all__ = ["rotated_mnist", "rotation_angles"]


@dataclass(frozen=True, slots=True, eq=False)
class _Turn:
    """Each picture turned by its own angle."""

    degrees: Floats
    interpolation: SplineOrder

    def __call__(self, X: Array) -> Array:
        return rotated(X, self.degrees, self.interpolation)

    def cut(self, rows: slice | Array) -> "_Turn":
        return _Turn(self.degrees[rows], self.interpolation)


def rotated_mnist(
    images: Images | None = None,
    *,
    n_tasks: int = 15,
    degrees: float = 5.0,
    rows_per_task: int | None = None,
    test_rows_per_task: int | None = None,
    interpolation: SplineOrder = 1,
    seed: int = 0,
    order: Sequence[int] | str | None = None,
    as_images: bool = False,
) -> Experiences:
    """Rotated MNIST: all classes in each task, task t turned by t · degrees against the clock.

    Parameters
    ----------
    images : Images, optional
        ``op.stream.images("mnist")`` if not given.
    n_tasks : int, default=15
        Tasks.
    degrees : float, default=5.0
        From one task to the next.
    rows_per_task : int, optional
        Rows of each task to learn, drawn anew for each from all pictures. All, if not given.
    test_rows_per_task : int, optional
        The same of rows to test.
    interpolation : {0, 1, 2, 3, 4, 5}, default=1
        Order of the spline between pixels: 0 takes the nearest, 1 is bilinear.
    seed, order, as_images
        As in :func:`split_mnist`.

    Returns
    -------
    experiences : Experiences
        Of float32 pixels in [0, 1].

    Raises
    ------
    ParameterError
        If a number is outside its range, or ``order`` is no permutation.
    SourceError
        If MNIST is wanted and cannot be had.
    """
    where = "op.stream.rotated_mnist"
    step = in_range(degrees, "degrees", where)
    whole(n_tasks, "n_tasks", where, low=1)

    def change(task: int, n: int) -> Change | None:
        return _Turn(np.full(n, task * step), interpolation) if task else None

    names = [f"{task * step:g}°" for task in range(n_tasks)]
    sizes = (rows_per_task, test_rows_per_task)
    made = all_classes(known_images(images), names, change, sizes, seed, where)
    return in_order(
        replace(made, name="Rotated MNIST", form=Features(as_images)), order, where, seed=seed
    )


def rotation_angles(
    images: Images | None = None,
    *,
    digit: int = 2,
    n_tasks: int = 9,
    degrees: float = 20.0,
    rows_per_task: int = 100,
    test_rows_per_task: int | None = None,
    interpolation: SplineOrder = 1,
    seed: int = 0,
    order: Sequence[int] | str | None = None,
    as_images: bool = False,
) -> Experiences:
    """By what angle a digit is turned: task t has the angles from t · degrees to (t + 1) · degrees.

    Angles are uniform within a task; no picture is learned in two tasks.

    Parameters
    ----------
    images : Images, optional
        ``op.stream.images("mnist")`` if not given.
    digit : int, default=2
        Whose pictures are turned.
    n_tasks : int, default=9
        Tasks.
    degrees : float, default=20.0
        Angles that a task spans.
    rows_per_task : int, default=100
        Rows of each task to learn.
    test_rows_per_task : int, optional
        Rows of each task to test, drawn anew for each. All pictures to test, if not given.
    interpolation, seed, order, as_images
        As in :func:`rotated_mnist`.

    Returns
    -------
    experiences : Experiences
        Of float32 pixels in [0, 1]; answers are angles in radians.

    Raises
    ------
    ParameterError
        If a number is outside its range, there are fewer pictures of the digit, or ``order`` is no
        permutation.
    SourceError
        If MNIST is wanted and cannot be had.
    """
    where = "op.stream.rotation_angles"
    span = in_range(degrees, "degrees", where, above=0.0)
    n = whole(rows_per_task, "rows_per_task", where, low=1) * whole(
        n_tasks, "n_tasks", where, low=1
    )
    known = known_images(images)
    rng = np.random.default_rng([whole(seed, "seed", where, low=0), digit])
    twos = [np.flatnonzero(labels == digit) for labels in (known.train_labels, known.test_labels)]
    learned = some_of(twos[0], n, rng, where, "n_tasks · rows_per_task").reshape(n_tasks, -1)
    tasks = []
    for task, rows in enumerate(learned):
        tested = some_of(twos[1], test_rows_per_task, rng, where, "test_rows_per_task")
        parts = []
        for chosen in (rows, tested):
            angles = rng.uniform(task * span, (task + 1) * span, len(chosen))
            parts.append(Part(chosen, np.deg2rad(angles), _Turn(angles, interpolation)))
        name = f"{task * span:g}–{(task + 1) * span:g}°"
        tasks.append(Task(name, (), *parts))
    made = Experiences(
        "Rotation angles",
        known.train_images,
        known.test_images,
        tuple(tasks),
        Features(as_images),
    )
    return in_order(made, order, where, seed=seed)
