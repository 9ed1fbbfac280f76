"""Terminal: results on standard output, messages and progress on standard error.

SIGTERM is handled as Ctrl-C is, and determines the exit code.
"""

import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any

from rich.console import Console, RenderableType

if TYPE_CHECKING:
    from rich.progress import Progress

__all__ = ["INTERRUPTED", "TERMINATED", "advancing", "print_message", "show", "terminable"]


_PATIENCE = 10.0  # seconds between two lines of progress where there is no terminal


class _Screen(Console):
    """A console that leaves a closed pipe to the caller."""

    def on_broken_pipe(self) -> None:
        """Not an exit, as rich would have it: the error goes on."""
        raise BrokenPipeError


def show(result: RenderableType) -> None:
    """Show a result on standard output; in files and pipes nothing of it is cut off or wrapped.

    Parameters
    ----------
    result : str, table or what else rich renders
    """
    if sys.stdout.isatty():
        _Screen(file=sys.stdout, highlight=False, emoji=False).print(result)
    elif isinstance(result, str):
        print(result)  # noqa: T201  no line is broken
    else:
        from onepass.evaluate.tables import plain

        print(plain(result), end="")  # noqa: T201


def print_message(text: str, *, quiet: bool = False) -> None:
    """Say something on standard error.

    Parameters
    ----------
    text : str
        One line.
    quiet : bool
        Say nothing.
    """
    if not quiet:
        console = Console(file=sys.stderr, highlight=False, emoji=False)  # ":100:" stays
        console.print(text, markup=False, soft_wrap=True)


@contextmanager
def advancing(
    fraction: Callable[[], float | None], *, quiet: bool, unit: str = "rows", before: int = 0
) -> Iterator[Callable[[int], None]]:
    """Progress on standard error: a bar on a terminal, elsewhere a line every ten seconds.

    Parameters
    ----------
    fraction : callable
        Says how much of all is done, in [0, 1]; None while that is unknown.
    quiet : bool
        Show nothing.
    unit : str
        What is counted.
    before : int
        What was done before, which tells nothing of the speed.

    Yields
    ------
    advance : callable
        To be called with what is done so far, in units.
    """
    if quiet:
        yield lambda done: None  # noqa: ARG005  nobody listens
    elif sys.stderr.isatty():
        with _bar(unit) as bar:
            task = bar.add_task(unit, total=None, done="0", speed="")
            began = time.monotonic()

            def advance(done: int) -> None:
                """Move the bar."""
                part = fraction()
                bar.update(
                    task,
                    total=None if part is None else 1.0,
                    completed=part or 0.0,
                    done=f"{done:,}",
                    speed=_speed(done - before, began, unit),
                )

            yield advance
    else:
        yield _lines(fraction, unit, before)


def _bar(unit: str) -> "Progress":
    from rich.progress import (
        BarColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns: list[Any] = [
        BarColumn(),
        TextColumn(f"{{task.fields[done]}} {unit}"),
        TextColumn("{task.fields[speed]}"),
        TimeElapsedColumn(),
        TextColumn("· left"),
        TimeRemainingColumn(),
    ]
    return Progress(*columns, console=Console(file=sys.stderr), transient=True)


def _lines(fraction: Callable[[], float | None], unit: str, before: int) -> Callable[[int], None]:
    """A line now and then."""
    began = last = time.monotonic()

    def advance(done: int) -> None:
        """Say how far it has come, if the last line is long ago."""
        nonlocal last
        if time.monotonic() - last >= _PATIENCE:
            last = time.monotonic()
            part = fraction()
            share = "" if part is None else f" ({part:.0%})"
            speed = _speed(done - before, began, unit)
            print_message(f"{done:,} {unit}{share}, {speed}, {last - began:.0f} s")

    return advance


def _speed(done: int, began: float, unit: str) -> str:
    speed = done / max(time.monotonic() - began, 1e-9)
    return f"{speed:,.0f} {unit}/s" if speed >= 10.0 else f"{60.0 * speed:,.0f} {unit}/min"


INTERRUPTED = 130
"""The exit code of who was ended by Ctrl-C."""

TERMINATED = 143
"""The exit code of who was asked to end, as ``kill`` and service managers do."""


@contextmanager
def terminable() -> Iterator[Callable[[], int]]:
    """Within this context SIGTERM does what Ctrl-C does, also where SIGINT is ignored.

    Where the program has a handler of its own, and in other threads, nothing is changed.

    Yields
    ------
    code : callable
        The exit code of who was interrupted, by whichever of the two.
    """
    ended: list[int] = []
    from onepass.linalg.interrupt import Background

    background = Background()

    def note(number: int, frame: FrameType | None) -> None:
        del number, frame
        ended.append(TERMINATED)
        background.asked = True
        signal.raise_signal(signal.SIGINT)

    def code() -> int:
        return ended[0] if ended else INTERRUPTED

    ours = (
        threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    )
    if not ours:
        yield code
        return
    ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    if ignored:
        signal.signal(signal.SIGINT, background)
    signal.signal(signal.SIGTERM, note)
    try:
        yield code
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        if ignored:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
