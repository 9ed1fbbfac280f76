"""Passage: the blocks of a stream, one after the other, until it ends or is interrupted."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from onepass.errors import Array
from onepass.evaluate.blocks import Block, blocks
from onepass.evaluate.bookmark import Bookmark
from onepass.evaluate.course import Course
from onepass.interrupt import Interrupt

__all__ = ["starting", "through"]


@contextmanager
def starting(stream: Any, start: int, where: str) -> Iterator[Iterator[Block]]:
    """The blocks of a stream from some row on; afterwards it begins again where it did.

    Parameters
    ----------
    stream : Stream, iterable of blocks, or tuple (X, y)
        A stream that has a ``start`` is told of it.
    start : int
        How many of the source's first rows to pass over.
    where : str
        The public call, for messages.
    """
    before = getattr(stream, "start", None)
    if before is not None:
        stream.start = start
    try:
        yield blocks(stream, where, start)
    finally:
        if before is not None:
            stream.start = before


def through(
    source: Iterator[Block],
    course: Course,
    mark: Bookmark | None,
    on_progress: Callable[[int], object] | None,
    on_block: Callable[[Block, dict[str, Array]], object] | None,
) -> bool:
    """Take all blocks, or those before an interrupt; whether there was one.

    Parameters
    ----------
    source : iterator of Block
        The rows.
    course : Course
        It takes them.
    mark : Bookmark or None
        Where it is written how far the course has come.
    on_progress, on_block : callable or None
        As in ``op.evaluate.prequential``.
    """
    interrupt = Interrupt()
    try:
        for block in source:
            with interrupt.held():
                said = course.take(block)
                if on_block is not None:
                    on_block(block, said)
                if on_progress is not None:
                    on_progress(course.ledger.rows)
                if mark is not None and mark.due():
                    mark.write(course, finished=False)
            if interrupt.asked:
                break
    except KeyboardInterrupt:
        if not course.whole:  # raised within a block: not ours to call this a report
            raise
        interrupt.asked = True
    except Exception:
        if mark is not None and course.whole:  # nothing that was learned is lost
            mark.write(course, finished=False)
        raise
    return _ended(course, mark, interrupt)


def _ended(course: Course, mark: Bookmark | None, interrupt: Interrupt) -> bool:
    """Write where the course ended, and learn what waits if the stream has; whether it had not."""
    interrupted = interrupt.asked
    with interrupt.held():
        if mark is not None:  # before what waits is learned: the stream may grow
            mark.write(course, finished=not interrupted)
        if not interrupted:
            course.finish()
    return interrupted
