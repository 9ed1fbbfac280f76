"""idx files: arrays of bytes as the MNIST family has them.

Two zero bytes, one byte that names the type (8: unsigned bytes), one byte with the number of
dimensions, each dimension as four bytes, the highest first; then the values, row by row [1].

[1] Y. LeCun, C. Cortes, C. Burges, "The MNIST database of handwritten digits", file formats.
"""

import gzip
import hashlib
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from onepass.errors import SourceError

__all__ = ["read_idx"]

_BYTES = 8
_GZIP = b"\x1f\x8b"


def read_idx(path: Path, md5: str | None = None) -> NDArray[np.uint8]:
    """The array in an idx file.

    Parameters
    ----------
    path : Path
        The file, packed by gzip or not.
    md5 : str, optional
        What the MD5 sum of the unpacked file must be. Repacked files differ outside only.

    Returns
    -------
    ndarray of uint8

    Raises
    ------
    SourceError
        If it is no idx file of unsigned bytes, is not whole, or has another MD5 sum.
    """
    data = _unpacked(path)
    if md5 is not None:
        came = hashlib.md5(data, usedforsecurity=False).hexdigest()
        if came != md5:
            raise _wrong(path, f"must have the MD5 sum {md5} once unpacked, got {came}")
    if len(data) < 4 or data[:2] != b"\0\0" or data[2] != _BYTES:
        raise _wrong(path, f"must begin as an idx file of unsigned bytes, got {data[:4]!r}")
    begin = 4 + 4 * data[3]
    if len(data) < begin:
        raise _wrong(path, f"must hold {data[3]} dimensions, got {len(data)} bytes in all")
    shape = tuple(int(size) for size in np.frombuffer(data, ">u4", data[3], 4))
    expected = begin + int(np.prod(shape, dtype=np.int64))
    if len(data) != expected:
        raise _wrong(path, f"of shape {shape} must have {expected} bytes, got {len(data)}")
    return np.frombuffer(data, np.uint8, offset=begin).reshape(shape)


def _unpacked(path: Path) -> bytes:
    try:
        data = path.read_bytes()
        return gzip.decompress(data) if data[:2] == _GZIP else data
    except (OSError, EOFError, zlib.error) as wrong:
        raise _wrong(path, f"must be a whole file, got one that is damaged ({wrong})") from wrong


def _wrong(path: Path, what: str) -> SourceError:
    return SourceError(f"op.stream: {path} {what}. Delete it, and get it again.")
