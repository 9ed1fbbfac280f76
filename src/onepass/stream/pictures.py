"""Sets of small labelled images, split into training and test images, and the idx file format.

An idx file has two zero bytes, one byte for the type (8: unsigned bytes), one byte for the number
of dimensions, each dimension as four bytes, big-endian, and then the values, row by row [1].

[1] Y. LeCun, C. Cortes, C. Burges, "The MNIST database of handwritten digits", file formats.
"""

from __future__ import annotations

import gzip
import hashlib
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from onepass.errors import SourceError
from onepass.stream.sources import Matrix, Pair
from onepass.types import Array, ArrayLike

__all__ = ["ImageChecksums", "Images", "read_idx"]


_BYTES = 8
_GZIP = b"\x1f\x8b"


def read_idx(path: Path, md5: str | None = None) -> NDArray[np.uint8]:
    """Read the array of an idx file.

    Parameters
    ----------
    path : Path
        The file, optionally compressed with gzip.
    md5 : str, optional
        Expected MD5 sum of the decompressed file.

    Returns
    -------
    ndarray of uint8

    Raises
    ------
    SourceError
        If the file is not a complete idx file of unsigned bytes, or has another MD5 sum.
    """
    data = _decompressed(path)
    if md5 is not None:
        got = hashlib.md5(data, usedforsecurity=False).hexdigest()
        if got != md5:
            raise _file_error(path, f"must have the MD5 sum {md5} after decompression, got {got}")
    if len(data) < 4 or data[:2] != b"\0\0" or data[2] != _BYTES:
        raise _file_error(path, f"must begin as an idx file of unsigned bytes, got {data[:4]!r}")
    begin = 4 + 4 * data[3]
    if len(data) < begin:
        raise _file_error(
            path, f"must contain {data[3]} dimensions, got a file of {len(data)} bytes"
        )
    shape = tuple(int(size) for size in np.frombuffer(data, ">u4", data[3], 4))
    expected = begin + int(np.prod(shape, dtype=np.int64))
    if len(data) != expected:
        raise _file_error(path, f"of shape {shape} must have {expected} bytes, got {len(data)}")
    return np.frombuffer(data, np.uint8, offset=begin).reshape(shape)


def _decompressed(path: Path) -> bytes:
    try:
        data = path.read_bytes()
        return gzip.decompress(data) if data[:2] == _GZIP else data
    except (OSError, EOFError, zlib.error) as error:
        raise _file_error(path, f"must be a complete file, got a damaged one ({error})") from error


def _file_error(path: Path, what: str) -> SourceError:
    return SourceError(f"{path} {what}. Delete the file and fetch it again.", "op.stream")


@dataclass(frozen=True, slots=True, eq=False)
class Images:
    """Images and labels, for training and testing.

    Parameters
    ----------
    train_images : ndarray of uint8, shape (n, 28, 28)
        Brightness, from 0 (background) to 255.
    train_labels : ndarray of uint8, shape (n,)
        Classes, from 0.
    test_images : ndarray of uint8, shape (k, 28, 28)
        As for training.
    test_labels : ndarray of uint8, shape (k,)
        As for training.
    """

    train_images: NDArray[np.uint8]
    train_labels: NDArray[np.uint8]
    test_images: NDArray[np.uint8]
    test_labels: NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class ImageChecksums:
    """Checksums of a set of images.

    idx files must equal the originals bit for bit. OpenML has the same images in another layout,
    for which the number of images of each class and the sum of all pixels are checked.

    Parameters
    ----------
    md5 : tuple of str
        MD5 sums of the four decompressed idx files, in the order of :class:`Images`.
    labels : tuple of tuple of int
        Number of images of each class in each part.
    pixels : tuple of int
        Sum of all pixels of each part.
    """

    md5: tuple[str, str, str, str]
    labels: tuple[tuple[int, ...], tuple[int, ...]]
    pixels: tuple[int, int]

    def read(self, paths: Sequence[Path]) -> Images:
        """Read images from four idx files, or from one npz file written by a fetcher.

        Raises
        ------
        SourceError
            If the checksums do not match.
        """
        if len(paths) == 1:
            images = _unpacked(paths[0])
            self.check(images, str(paths[0]))
            return images
        arrays = [read_idx(path, md5) for path, md5 in zip(paths, self.md5, strict=True)]
        return Images(*arrays)

    def split_images(self, flat: Array, labels: ArrayLike, origin: str) -> Images:
        """Convert rows of pixels, training before test images, to images.

        Parameters
        ----------
        flat : array-like of shape (n, 784)
            Pixels.
        labels : array-like of shape (n,)
            Classes, as numbers or as text.
        origin : str
            The origin of the images, for messages.
        """
        n, total = (sum(part) for part in self.labels), len(flat)
        first = next(n)
        pixels = np.asarray(flat).astype(np.uint8).reshape(total, 28, 28)
        classes = np.asarray(labels).astype(np.float64).astype(np.uint8)
        images = Images(pixels[:first], classes[:first], pixels[first:], classes[first:])
        self.check(images, origin)
        return images

    def check(self, images: Images, origin: str) -> None:
        """Check labels and pixels of images.

        Raises
        ------
        SourceError
            If they do not match.
        """
        parts = (
            ("train", images.train_images, images.train_labels),
            ("test", images.test_images, images.test_labels),
        )
        for (part, x, y), labels, pixels in zip(parts, self.labels, self.pixels, strict=True):
            counts = tuple(np.bincount(y, minlength=len(labels)).tolist())
            total = int(x.sum(dtype=np.int64))
            if counts != labels or total != pixels:
                raise SourceError(
                    f"{origin}: the {part} images must have labels {labels} times and "
                    f"pixels that sum to {pixels}, got {counts} and {total}. Delete the "
                    "file and fetch it again.",
                    "op.stream",
                )

    def source(self, paths: Sequence[Path], name: str) -> Pair:
        """Return all images as rows with the columns p0, p1, and so on; training rows first."""
        images = self.read(paths)
        pixels = np.concatenate([images.train_images, images.test_images])
        flat = pixels.reshape(len(pixels), -1)
        header = [f"p{j}" for j in range(flat.shape[1])]
        labels = np.concatenate([images.train_labels, images.test_labels])
        return Pair(Matrix(flat, name, header), labels)


def _unpacked(path: Path) -> Images:
    try:
        with np.load(path, allow_pickle=False) as arrays:
            return Images(**{name: arrays[name] for name in Images.__slots__})
    except (OSError, ValueError, KeyError, EOFError) as error:
        raise SourceError(
            f"{path} must contain the fetched images, got an unreadable file ({error}). "
            "Delete the file and fetch it again.",
            "op.stream",
        ) from error
