"""Files in the idx format of MNIST."""

import gzip
import hashlib
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from onepass.errors import SourceError
from onepass.stream.pictures import ImageChecksums, read_idx

UBYTE = 8


def idx(array: np.ndarray) -> bytes:
    sizes = struct.pack(f">{array.ndim}I", *array.shape)
    return bytes([0, 0, UBYTE, array.ndim]) + sizes + array.tobytes()


def md5(content: bytes) -> str:
    return hashlib.md5(content, usedforsecurity=False).hexdigest()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(array=hnp.arrays(np.uint8, hnp.array_shapes(max_dims=3, max_side=4)), packed=st.booleans())
def test_idx_round_trip(tmp_path: Path, *, array: np.ndarray, packed: bool) -> None:
    content = idx(array)
    path = tmp_path / "a-idx"
    path.write_bytes(gzip.compress(content) if packed else content)
    read = read_idx(path, md5(content))
    assert read.dtype == np.uint8
    np.testing.assert_array_equal(read, array)


GOOD = idx(np.arange(6, dtype=np.uint8).reshape(2, 3))


@pytest.mark.parametrize(
    ("content", "got"),
    [
        (b"", md5(b"")),
        (GOOD[:-1], md5(GOOD[:-1])),
        (gzip.compress(GOOD, mtime=0)[:-9], "a damaged file (Compressed"),
    ],
)
def test_damaged_idx_files_are_refused(content: bytes, got: str, tmp_path: Path) -> None:
    path = tmp_path / "a-idx"
    path.write_bytes(content)
    with pytest.raises(SourceError, match="must have the MD5 sum 0123 after") as info:
        read_idx(path, "0123")
    assert info.value.got.startswith(got)


def test_four_idx_files_are_read_as_images(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    arrays = [
        rng.integers(0, 256, (5, 28, 28), dtype=np.uint8),
        rng.integers(0, 10, 5, dtype=np.uint8),
        rng.integers(0, 256, (2, 28, 28), dtype=np.uint8),
        rng.integers(0, 10, 2, dtype=np.uint8),
    ]
    paths, sums = [], []
    for i, array in enumerate(arrays):
        paths.append(tmp_path / f"{i}.gz")
        paths[-1].write_bytes(gzip.compress(idx(array)))
        sums.append(md5(idx(array)))
    images = ImageChecksums(tuple(sums)).read(paths)
    np.testing.assert_array_equal(images.train_images, arrays[0])
    np.testing.assert_array_equal(images.test_labels, arrays[3])
