"""Streams of the experiment ``orfit-deep``, of pictures at half the height and width."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from onepass.errors import Array
from onepass.reproduce.orfit_deep_outcome import Measure
from onepass.stream import (
    Experiences,
    Images,
    permuted_mnist,
    rotated_mnist,
    rotation_angles,
    split_mnist,
)

__all__ = ["STREAMS", "Stream", "halved"]


def _angles(images: Images, scale: float, seed: int) -> Experiences:
    n = _rows(100, scale)
    return rotation_angles(
        images, rows_per_task=n, test_rows_per_task=100, seed=seed, as_images=True
    )


def _split(images: Images, scale: float, seed: int) -> Experiences:
    n = _rows(80, scale)
    return split_mnist(images, rows_per_class=n, test_rows_per_class=100, seed=seed, as_images=True)


def _rotated(images: Images, scale: float, seed: int) -> Experiences:
    n = _rows(50, scale)
    return rotated_mnist(images, rows_per_task=n, test_rows_per_task=100, seed=seed, as_images=True)


def _permuted(images: Images, scale: float, seed: int) -> Experiences:
    n = _rows(80, scale)
    return permuted_mnist(
        images, rows_per_task=n, test_rows_per_task=150, seed=seed, as_images=True
    )


def _rows(n: int, scale: float) -> int:
    return max(2, round(n * scale))


@dataclass(frozen=True)
class Stream:
    """A stream of tasks.

    Parameters
    ----------
    title : str
        In tables and figures.
    make : callable
        Called as ``make(images, scale, seed)``.
    measure : {"accuracy", "error"}
        What is told of it.
    """

    title: str
    make: Callable[[Images, float, int], Experiences]
    measure: Measure = "accuracy"


STREAMS: dict[str, Stream] = {
    "angles": Stream("Rotation angles", _angles, "error"),
    "split": Stream("Split MNIST", _split),
    "rotated": Stream("Rotated MNIST", _rotated),
    "permuted": Stream("Permuted MNIST", _permuted),
}
"""The streams by name, in the order of tables."""


def halved(images: Images) -> Images:
    """The same pictures at half the height and width: each pixel the mean of four.

    Networks for them have a fifth of the weights.

    Parameters
    ----------
    images : Images
        Of an even height and width.

    Returns
    -------
    images : Images

    Examples
    --------
    >>> pictures, labels = np.full((1, 28, 28), 7, dtype=np.uint8), np.zeros(1, dtype=np.uint8)
    >>> halved(Images(pictures, labels, pictures, labels)).train_images.sum()
    np.uint64(1372)
    """

    def small(pictures: Array) -> Array:
        n, height, width = pictures.shape
        means = pictures.reshape(n, height // 2, 2, width // 2, 2).mean(axis=(2, 4))
        return np.asarray(np.rint(means), dtype=np.uint8)

    return Images(
        small(images.train_images), images.train_labels,
        small(images.test_images), images.test_labels,
    )  # fmt: skip
