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

_GZIP = b"\x1f\x8b"


def read_idx(path: Path, md5: str) -> NDArray[np.uint8]:
    """Read the array of an idx file.

    Parameters
    ----------
    path : Path
        The file, optionally compressed with gzip.
    md5 : str
        MD5 sum of the decompressed file.

    Returns
    -------
    ndarray of uint8

    Raises
    ------
    SourceError
        If the file is damaged, or has another MD5 sum.
    """
    try:
        data = path.read_bytes()
        data = gzip.decompress(data) if data.startswith(_GZIP) else data
    except (OSError, EOFError, zlib.error) as error:
        raise _checksum_error(path, md5, f"a damaged file ({error})") from error
    checksum = hashlib.md5(data, usedforsecurity=False).hexdigest()
    if checksum != md5:
        raise _checksum_error(path, md5, checksum)
    shape = np.frombuffer(data, ">u4", data[3], 4)
    return np.frombuffer(data, np.uint8, offset=4 + shape.nbytes).reshape(shape)


def _checksum_error(path: Path, md5: str, got: str) -> SourceError:
    return SourceError(
        f"{path} must have the MD5 sum {md5} after decompression",
        got=got,
        remedy="Delete the file and fetch it again.",
    )


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

    Parameters
    ----------
    md5 : tuple of str
        MD5 sums of the four decompressed idx files, in the order of :class:`Images`.
    """

    md5: tuple[str, str, str, str]

    def read(self, paths: Sequence[Path]) -> Images:
        """Read images from four idx files.

        Raises
        ------
        SourceError
            If the checksums do not match.
        """
        return Images(*(read_idx(path, md5) for path, md5 in zip(paths, self.md5, strict=True)))

    def source(self, paths: Sequence[Path], name: str) -> Pair:
        """Return all images as rows with the columns p0, p1, and so on; training rows first."""
        images = self.read(paths)
        pixels = np.concatenate([images.train_images, images.test_images])
        flat = pixels.reshape(len(pixels), -1)
        header = [f"p{j}" for j in range(flat.shape[1])]
        labels = np.concatenate([images.train_labels, images.test_labels])
        return Pair(Matrix(flat, name, header), labels)
