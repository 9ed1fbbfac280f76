"""Processes killed while they write files."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from fork_server import ForkServer
from onepass.serialization import archive
from onepass.serialization.atomic import atomic_write

pytestmark = pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGKILL and no such locks")

_PREPARE = """
import itertools, time
import numpy as np
from onepass.serialization import archive
from onepass.serialization.atomic import atomic_write

def write_forever(path):
    for i in itertools.count():
        archive.write(path, {"i": i, "w": np.full(20_000, float(i))})

def hang_while_writing(paths):
    with atomic_write(paths[0]) as one, atomic_write(paths[1]) as two:
        one.write_text("half")
        two.write_text("half")
        time.sleep(60)
"""


@pytest.fixture(scope="module")
def writers() -> Iterator[ForkServer]:
    """Forks write to a path until they are killed; to two paths, they hang in the second write."""
    do = "write_forever(given) if isinstance(given, str) else hang_while_writing(given)"
    with ForkServer(_PREPARE, do) as server:
        yield server


def names(directory: Path) -> list[str]:
    return [path.name for path in directory.iterdir()]


def test_killed_process_leaves_a_complete_file(tmp_path: Path, writers: ForkServer) -> None:
    path = tmp_path / "m.onepass"
    for wait in (0.0, 0.017):
        path.unlink(missing_ok=True)
        writers.begin(str(path))
        while not path.exists():
            assert not writers.ended(0.001)
        assert not writers.ended(wait)
        assert writers.end() == -signal.SIGKILL
        tree = archive.read(path)
        assert (tree["w"] == tree["i"]).all()


def test_folders_of_killed_processes_are_removed_unless_locked(
    tmp_path: Path, writers: ForkServer
) -> None:
    path, other = tmp_path / "a", tmp_path / "b"
    writers.begin([str(path), str(other)])
    while sum(file.read_text() == "half" for file in tmp_path.glob(".*/*")) < 2:
        assert not writers.ended(0.01)
    assert writers.end() == -signal.SIGKILL
    (empty,) = {tmp_path / name.replace(name[-20:-4], "0" * 16) for name in names(tmp_path)[:1]}
    assert len(names(tmp_path)) == 2
    with atomic_write(path) as first:
        first.write_text("one")
        with atomic_write(path) as later:
            later.write_text("two")
        assert path.read_text() == "two"
        assert first.exists()
    assert path.read_text() == "one"
    left = names(tmp_path)
    assert len(left) == 2  # the folder of the other file stays until that file is written
    with atomic_write(other):
        empty.mkdir(exist_ok=True)  # killed before it was locked
    with atomic_write(path), atomic_write(other):
        pass
    assert sorted(names(tmp_path)) == ["a", "b"]
