"""Streams of image tasks from the literature on continual learning.

=================  ================================================================================
Split MNIST        tasks have disjoint classes: 0 and 1, then 2 and 3, …                        [1]
Permuted MNIST     all classes in each task; a permutation of pixels for each task           [2, 3]
Rotated MNIST      all classes in each task, rotated by 0°, 5°, 10°, …                          [4]
Rotation angles    one digit; the target is its angle, which increases from task to task        [5]
=================  ================================================================================

The default images are MNIST. Other images can be passed, such as
``op.stream.images("fashion-mnist")``.

[1] F. Zenke, B. Poole, S. Ganguli, "Continual learning through synaptic intelligence", ICML 2017.
[2] I. Goodfellow et al., "An empirical investigation of catastrophic forgetting in gradient-based
    neural networks", ICLR 2014.
[3] J. Kirkpatrick et al., "Overcoming catastrophic forgetting in neural networks", PNAS 2017.
[4] D. Lopez-Paz, M. Ranzato, "Gradient episodic memory for continual learning", NeurIPS 2017.
[5] Y. Min, K. Ahn, N. Azizan, "One-Pass Learning via Bridging Orthogonal Gradient Descent and
    Recursive Least-Squares", CDC 2022, section V.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import numpy as np
from scipy import ndimage

from onepass.errors import calling
from onepass.stream.catalogue import images as images_of
from onepass.stream.class_tasks import experiences, sample_rows
from onepass.stream.pictures import Images
from onepass.stream.tasks import Change, Experiences, Part, Task, make_tasks, reorder_tasks
from onepass.types import Array, Floats
from onepass.validation import in_range, whole

_PAIRS = ((0, 1), (2, 3), (4, 5), (6, 7), (8, 9))
_PIXELS = 2  # key of the random stream of pixels; training rows have 0, test rows 1


@dataclass(frozen=True, slots=True)
class Features:
    """Conversion of images to float32 pixels in [0, 1]: (n, 784), or (n, 1, 28, 28)."""

    as_images: bool

    def __call__(self, pictures: Array) -> Floats:
        """Convert images with brightness from 0 to 255."""
        size = pictures.shape[1:]
        shape = (
            (1, *size) if self.as_images else (math.prod(size),)
        )  # -1 cannot be inferred if there are no rows
        return (pictures.astype(np.float32) / 255.0).reshape(len(pictures), *shape)


@dataclass(frozen=True, slots=True, eq=False)
class _Permute:
    """A fixed permutation of the pixels of all images."""

    pixels: Array

    def __call__(self, X: Array) -> Array:
        return X.reshape(len(X), -1)[:, self.pixels].reshape(X.shape)

    def subset(self, rows: slice | Array) -> _Permute:  # noqa: ARG002  the same for all rows
        return self


def split_mnist(
    images: Images | None = None,
    *,
    groups: Iterable[Iterable[int]] = _PAIRS,
    within: bool = False,
    rows_per_class: int | None = None,
    test_rows_per_class: int | None = None,
    seed: int = 0,
    order: Sequence[int] | str | None = None,
    as_images: bool = False,
) -> Experiences:
    """Return Split MNIST: tasks have disjoint classes.

    Parameters
    ----------
    images : Images, optional
        ``op.stream.images("mnist")`` by default.
    groups : iterable of iterable of int
        The classes of each task; by default 0 and 1, 2 and 3, up to 8 and 9.
    within : bool, default=False
        Whether the label is the position of a class within its task, 0 or 1 (domain-incremental).
    rows_per_class : int, optional
        Training rows per class, sampled without replacement. All by default.
    test_rows_per_class : int, optional
        Test rows per class, sampled without replacement. All by default.
    seed : int, default=0
        Seed of the sampling and of the order of rows.
    order : sequence of int or "random", optional
        The order of the tasks, as indices; "random" for an order drawn with the seed.
    as_images : bool, default=False
        Whether rows have shape (1, 28, 28) instead of (784,).

    Returns
    -------
    experiences : Experiences
        Float32 pixels in [0, 1].

    Raises
    ------
    LabelError
        If a class is named twice, or has no rows.
    ParameterError
        If there are fewer rows than requested, or ``order`` is not a permutation.
    SourceError
        If ``images`` are omitted and MNIST is not available.

    Examples
    --------
    >>> import onepass as op
    >>> rng = __import__("numpy").random.default_rng(0)
    >>> pictures = rng.integers(0, 256, (40, 28, 28), dtype="uint8")
    >>> labels = (rng.permutation(40) % 10).astype("uint8")
    >>> known = op.stream.Images(pictures, labels, pictures, labels)
    >>> [(task.name, task.X.shape) for task in op.stream.split_mnist(known)][:2]
    [('0–1', (8, 784)), ('2–3', (8, 784))]
    """
    known = _images_or_mnist(images)
    made = experiences(
        known.train_images,
        known.train_labels,
        known.test_images,
        known.test_labels,
        groups,
        within=within,
        rows_per_class=rows_per_class,
        test_rows_per_class=test_rows_per_class,
        seed=seed,
        order=order,
        name="Split MNIST",
    )
    return replace(made, form=Features(as_images))


def split_fashion_mnist(images: Images | None = None, **options: Any) -> Experiences:
    """Return Split Fashion-MNIST: :func:`split_mnist` of images of clothes.

    Parameters
    ----------
    images : Images, optional
        ``op.stream.images("fashion-mnist")`` by default.
    **options
        As in :func:`split_mnist`.

    Returns
    -------
    experiences : Experiences
        Float32 pixels in [0, 1].

    Raises
    ------
    LabelError, ParameterError
        As in :func:`split_mnist`.
    SourceError
        If ``images`` are omitted and Fashion-MNIST is not available.
    """
    known = images_of("fashion-mnist") if images is None else images
    return replace(split_mnist(known, **options), name="Split Fashion-MNIST")


@calling("op.stream.permuted_mnist")
def permuted_mnist(
    images: Images | None = None,
    *,
    n_tasks: int = 10,
    rows_per_task: int | None = None,
    test_rows_per_task: int | None = None,
    seed: int = 0,
    order: Sequence[int] | str | None = None,
    as_images: bool = False,
) -> Experiences:
    """Return Permuted MNIST: all classes in each task; a permutation of pixels for each task.

    The pixels of the first task are not permuted.

    Parameters
    ----------
    images : Images, optional
        ``op.stream.images("mnist")`` by default.
    n_tasks : int, default=10
        Number of tasks.
    rows_per_task : int, optional
        Training rows per task, sampled for each task from all images. All by default.
    test_rows_per_task : int, optional
        Test rows per task, sampled for each task from all images. All by default.
    seed : int, default=0
        Seed of the sampling and of the permutations.
    order, as_images
        As in :func:`split_mnist`.

    Returns
    -------
    experiences : Experiences
        Float32 pixels in [0, 1].

    Raises
    ------
    ParameterError
        If a number is out of range, or ``order`` is not a permutation.
    SourceError
        If ``images`` are omitted and MNIST is not available.
    """
    whole(n_tasks, "n_tasks", low=1)
    known = _images_or_mnist(images)
    size = known.train_images[0].size

    def change(task: int, n: int) -> Change | None:  # noqa: ARG001  the same for all rows
        rng = np.random.default_rng([seed, task, _PIXELS])
        return _Permute(rng.permutation(size)) if task else None

    names = [f"order {task}" for task in range(n_tasks)]
    made = _all_classes(known, names, change, (rows_per_task, test_rows_per_task), seed)
    return reorder_tasks(
        replace(made, name="Permuted MNIST", form=Features(as_images)), order, seed=seed
    )


def _images_or_mnist(images: Images | None) -> Images:
    """Return the images, or MNIST if they are None."""
    return images_of("mnist") if images is None else images


def _all_classes(
    known: Images,
    names: Sequence[str],
    change: Callable[[int, int], Change | None],
    sizes: tuple[int | None, int | None],
    seed: int,
) -> Experiences:
    """Return tasks that each have all classes, with rows sampled for each task."""
    whole(seed, "seed", low=0)
    labels = (known.train_labels, known.test_labels)
    classes = tuple(np.unique(labels[0]).tolist())

    def draw(task: int, j: int, rng: np.random.Generator) -> Part:
        every = np.arange(len(labels[j]))
        rows = sample_rows(every, sizes[j], rng, f"{('', 'test_')[j]}rows_per_task")
        return Part(rows, labels[j][rows], change(task, len(rows)))

    tasks = make_tasks(names, [classes] * len(names), draw, seed)
    return Experiences("", known.train_images, known.test_images, tasks)


SplineOrder: TypeAlias = Literal[0, 1, 2, 3, 4, 5]
"""Order of the splines that interpolate between pixels: 0 is nearest, 1 bilinear."""


def rotated(pictures: Array, degrees: Floats, order: SplineOrder = 0) -> Floats:
    """Rotate each image counterclockwise about its centre; the background is 0.

    With order 0 the result equals Pillow's ``Image.rotate`` with default arguments, pixel for
    pixel.

    Parameters
    ----------
    pictures : ndarray of shape (n, height, width)
        Brightness from 0 to 255.
    degrees : ndarray of shape (n,)
        One angle per image.
    order : {0, 1, 2, 3, 4, 5}, default=0
        Order of the interpolating splines. Values are clipped to 0 … 255.

    Returns
    -------
    rotated_pictures : ndarray of the same shape as pictures

    Examples
    --------
    >>> import numpy as np
    >>> corner = np.zeros((1, 3, 3))
    >>> corner[0, 0, 2] = 255  # top right
    >>> float(rotated(corner, np.array([90.0]))[0, 0, 0])  # top left
    255.0
    """
    rotated_pictures = np.empty(pictures.shape)
    for i, (picture, angle) in enumerate(zip(pictures, degrees, strict=True)):
        rotated_pictures[i] = ndimage.rotate(
            picture.astype(float), angle, reshape=False, order=order
        )
    return np.clip(rotated_pictures, 0.0, 255.0)


@dataclass(frozen=True, slots=True, eq=False)
class _Rotate:
    """Rotation of each image by a separate angle, with bilinear interpolation."""

    degrees: Floats

    def __call__(self, X: Array) -> Array:
        return rotated(X, self.degrees, 1)

    def subset(self, rows: slice | Array) -> _Rotate:
        return _Rotate(self.degrees[rows])


@calling("op.stream.rotated_mnist")
def rotated_mnist(
    images: Images | None = None,
    *,
    n_tasks: int = 15,
    degrees: float = 5.0,
    rows_per_task: int | None = None,
    test_rows_per_task: int | None = None,
    seed: int = 0,
    order: Sequence[int] | str | None = None,
    as_images: bool = False,
) -> Experiences:
    """Return Rotated MNIST: all classes in each task, rotated counterclockwise by t · degrees.

    Parameters
    ----------
    images : Images, optional
        ``op.stream.images("mnist")`` by default.
    n_tasks : int, default=15
        Number of tasks.
    degrees : float, default=5.0
        Difference between the angles of consecutive tasks.
    rows_per_task : int, optional
        Training rows per task, sampled for each task from all images. All by default.
    test_rows_per_task : int, optional
        Test rows per task, sampled for each task from all images. All by default.
    seed, order, as_images
        As in :func:`split_mnist`.

    Returns
    -------
    experiences : Experiences
        Float32 pixels in [0, 1].

    Raises
    ------
    ParameterError
        If a number is out of range, or ``order`` is not a permutation.
    SourceError
        If ``images`` are omitted and MNIST is not available.
    """
    step = in_range(degrees, "degrees")
    whole(n_tasks, "n_tasks", low=1)

    def change(task: int, n: int) -> Change | None:
        return _Rotate(np.full(n, task * step)) if task else None

    names = [f"{task * step:g}°" for task in range(n_tasks)]
    sizes = (rows_per_task, test_rows_per_task)
    made = _all_classes(_images_or_mnist(images), names, change, sizes, seed)
    return reorder_tasks(
        replace(made, name="Rotated MNIST", form=Features(as_images)), order, seed=seed
    )


@calling("op.stream.rotation_angles")
def rotation_angles(
    images: Images | None = None,
    *,
    digit: int = 2,
    n_tasks: int = 9,
    degrees: float = 20.0,
    rows_per_task: int = 100,
    test_rows_per_task: int | None = None,
    seed: int = 0,
    order: Sequence[int] | str | None = None,
    as_images: bool = False,
) -> Experiences:
    """Return regression of the angle of a digit: t · degrees to (t + 1) · degrees in task t.

    Angles are uniform within a task. No training image occurs in two tasks.

    Parameters
    ----------
    images : Images, optional
        ``op.stream.images("mnist")`` by default.
    digit : int, default=2
        The digit.
    n_tasks : int, default=9
        Number of tasks.
    degrees : float, default=20.0
        Width of the range of angles of a task.
    rows_per_task : int, default=100
        Training rows per task.
    test_rows_per_task : int, optional
        Test rows per task, sampled for each task. All test images by default.
    seed, order, as_images
        As in :func:`rotated_mnist`.

    Returns
    -------
    experiences : Experiences
        Float32 pixels in [0, 1]; targets are angles in radians.

    Raises
    ------
    ParameterError
        If a number is out of range, there are too few images of the digit, or ``order`` is not a
        permutation.
    SourceError
        If ``images`` are omitted and MNIST is not available.
    """
    span = in_range(degrees, "degrees", above=0.0)
    n = whole(rows_per_task, "rows_per_task", low=1) * whole(n_tasks, "n_tasks", low=1)
    known = _images_or_mnist(images)
    rng = np.random.default_rng([whole(seed, "seed", low=0), digit])
    twos = [np.flatnonzero(labels == digit) for labels in (known.train_labels, known.test_labels)]
    learned = sample_rows(twos[0], n, rng, "n_tasks · rows_per_task").reshape(n_tasks, -1)
    tasks = []
    for task, rows in enumerate(learned):
        tested = sample_rows(twos[1], test_rows_per_task, rng, "test_rows_per_task")
        parts = []
        for chosen in (rows, tested):
            angles = rng.uniform(task * span, (task + 1) * span, len(chosen))
            parts.append(Part(chosen, np.deg2rad(angles), _Rotate(angles)))
        name = f"{task * span:g}–{(task + 1) * span:g}°"
        tasks.append(Task(name, (), *parts))
    made = Experiences(
        "Rotation angles",
        known.train_images,
        known.test_images,
        tuple(tasks),
        Features(as_images),
    )
    return reorder_tasks(made, order, seed=seed)
