"""Prefetching: equal items, bounded depth, and threads that end with the reader."""

import gc
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onepass.errors import SourceError
from onepass.stream import read
from onepass.stream.sources import prefetch


def threads() -> list[threading.Thread]:
    return [one for one in threading.enumerate() if one.name.startswith("onepass reads ahead")]


def all_ended() -> bool:
    """Wait for the threads, which end without being joined."""
    for thread in threads():
        thread.join(5.0)
    return not threads()


class Counting:
    """Numbers, with the largest difference between produced and consumed items."""

    def __init__(self, n: int, error: Exception | None = None) -> None:
        self.n, self.error = n, error
        self.given = self.taken = self.lead = 0
        self.closed = False

    def __iter__(self) -> Iterator[int]:
        return self

    def __next__(self) -> int:
        if self.given == self.n:
            if self.error is not None:
                raise self.error
            raise StopIteration
        self.given += 1
        self.lead = max(self.lead, self.given - self.taken)
        return self.given - 1

    def close(self) -> None:
        self.closed = True


@given(n=st.integers(0, 40), depth=st.integers(1, 5))
def test_prefetch_preserves_items_and_order(n: int, depth: int) -> None:
    items = Counting(n)
    taken, items_read = prefetch(iter(items), depth), []
    for item in taken:
        items.taken += 1
        items_read.append(item)
    assert items_read == list(range(n))
    assert items.lead <= depth + 1  # one more is on its way from one thread to the other
    assert list(taken) == []
    assert all_ended()


def test_errors_are_raised_after_the_items_before_them() -> None:
    items = prefetch(iter(Counting(5, SourceError("here"))), 2)
    assert [next(items) for _ in range(5)] == [0, 1, 2, 3, 4]
    with pytest.raises(SourceError, match="here"):
        next(items)
    assert all_ended()


def test_prefetch_depth_is_bounded() -> None:
    items = Counting(1000)
    taken = prefetch(iter(items), 3)
    assert next(taken) == 0
    time.sleep(0.05)
    assert items.given <= 4
    taken.close()
    assert items.closed
    assert all_ended()


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("prefetch") / "a.csv"
    path.write_text("a,y\n" + "1,2\n" * 200_000)
    return path


def interrupted(path: Path) -> None:
    for rows in read(path, target="y", block=100):
        if rows.first > 500:
            raise KeyboardInterrupt


def test_thread_ends_when_the_loop_is_left_early(path: Path) -> None:
    for rows in read(path, target="y", block=100):
        if rows.first > 500:
            assert len(threads()) == 1
            break
    del rows
    assert all_ended()
    with pytest.raises(KeyboardInterrupt):
        interrupted(path)
    gc.collect()
    assert all_ended()


def test_thread_ends_when_the_iterator_is_deleted(path: Path) -> None:
    blocks = iter(read(path, target="y", block=100))
    for _ in range(3):
        next(blocks)
    assert len(threads()) == 1
    del blocks
    gc.collect()
    assert all_ended()


def test_first_block_is_read_without_a_thread(path: Path) -> None:
    blocks = iter(read(path, target="y", block=100))
    next(blocks)
    assert not threads()


def test_concurrent_iterations_are_independent(path: Path) -> None:
    stream = read(path, target="y", block=997)
    for one, other in zip(stream, stream, strict=True):
        assert one.first == other.first
        assert (one.X["a"] == other.X["a"]).all()
    assert all_ended()


AT_EXIT = """
import sys
from onepass.stream import read
blocks = iter(read(sys.argv[1], target="y", block=100))
for _ in range(int(sys.argv[2])):
    next(blocks)
print("done")
if sys.argv[3] == "raise":
    raise SystemExit(3)
"""


@pytest.mark.parametrize(("n", "how"), [(2, "end"), (50, "raise")])
def test_interpreter_exits_while_blocks_are_prefetched(path: Path, n: int, how: str) -> None:
    done = subprocess.run(  # noqa: S603  our own interpreter
        [sys.executable, "-c", AT_EXIT, str(path), str(n), how],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert (done.stdout, done.stderr, done.returncode) == ("done\n", "", 3 if how == "raise" else 0)
