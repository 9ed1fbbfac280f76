"""Output of commands (results on stdout, messages and progress on stderr), and SIGTERM.

SIGTERM is handled like Ctrl-C, with another exit code.
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

_INTERVAL = 10.0  # seconds between progress lines if stderr is not a terminal


class _Screen(Console):
    """A console that raises an error if the pipe is closed."""

    def on_broken_pipe(self) -> None:
        """Raise the error, unlike rich, which exits."""
        raise BrokenPipeError


def show(result: RenderableType) -> None:
    """Print a result on standard output, without truncation or wrapping in files and pipes.

    Parameters
    ----------
    result : str, table or another renderable of rich
    """
    if sys.stdout.isatty():
        _Screen(file=sys.stdout, highlight=False, emoji=False).print(result)
    elif isinstance(result, str):
        print(result)  # noqa: T201  does not wrap lines
    else:
        from onepass.evaluate.tables import plain

        print(plain(result), end="")  # noqa: T201


def print_message(text: str, *, quiet: bool = False) -> None:
    """Print a message on standard error.

    Parameters
    ----------
    text : str
        One line.
    quiet : bool
        Print nothing.
    """
    if not quiet:
        console = Console(file=sys.stderr, highlight=False, emoji=False)  # ":100:" is not an emoji
        console.print(text, markup=False, soft_wrap=True)


@contextmanager
def advancing(
    fraction: Callable[[], float | None], *, quiet: bool, unit: str = "rows", before: int = 0
) -> Iterator[Callable[[int], None]]:
    """Show progress on standard error: a bar on a terminal, otherwise a line every ten seconds.

    Parameters
    ----------
    fraction : callable
        Returns the completed fraction, in [0, 1]; None if unknown.
    quiet : bool
        Print nothing.
    unit : str
        The unit of the counts.
    before : int
        The count at the start, which is excluded from the speed.

    Yields
    ------
    advance : callable
        Function to call with the count so far.
    """
    if quiet:
        yield lambda done: None  # noqa: ARG005  quiet
    elif sys.stderr.isatty():
        with _bar(unit) as bar:
            task = bar.add_task(unit, total=None, done="0", speed="")
            start = time.monotonic()

            def advance(done: int) -> None:
                """Update the bar."""
                part = fraction()
                bar.update(
                    task,
                    total=None if part is None else 1.0,
                    completed=part or 0.0,
                    done=f"{done:,}",
                    speed=_speed(done - before, start, unit),
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
    """Return a function that prints a progress line at intervals."""
    start = last = time.monotonic()
    first: tuple[float, float] | None = None  # the fraction and the time of the first call

    def advance(done: int) -> None:
        """Print a line if the interval has elapsed."""
        nonlocal last, first
        if first is None:
            first = fraction() or 0.0, time.monotonic()
        if time.monotonic() - last >= _INTERVAL:
            last = time.monotonic()
            part = fraction()
            share = "" if part is None else f" ({part:.0%})"
            speed = _speed(done - before, start, unit)
            left = ""
            if part is not None and part > first[0]:
                seconds = (last - first[1]) * (1.0 - part) / (part - first[0])
                left = f", about {seconds:,.0f} s left"
            print_message(f"{done:,} {unit}{share}, {speed}, {last - start:.0f} s{left}")

    return advance


def _speed(done: int, start: float, unit: str) -> str:
    speed = done / max(time.monotonic() - start, 1e-9)
    return f"{speed:,.0f} {unit}/s" if speed >= 10.0 else f"{60.0 * speed:,.0f} {unit}/min"


INTERRUPTED = 130
"""Exit code after Ctrl-C."""

TERMINATED = 143
"""Exit code after SIGTERM, which ``kill`` and service managers send."""


@contextmanager
def terminable() -> Iterator[Callable[[], int]]:
    """Handle SIGTERM like Ctrl-C within the context, even if SIGINT is ignored.

    In threads other than the main thread, or if SIGTERM already has a handler, nothing changes.

    Yields
    ------
    code : callable
        Returns the exit code for the signal that interrupted.
    """
    ended: list[int] = []
    from onepass.linalg.interrupt import Background

    background = Background()

    def handle(number: int, frame: FrameType | None) -> None:
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
    signal.signal(signal.SIGTERM, handle)
    try:
        yield code
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        if ignored:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
