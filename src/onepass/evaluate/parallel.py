"""Parallel jobs in processes, none of which outlives the process that started it.

Each process is a fresh interpreter: a fork would copy the threads of BLAS in whatever state they
are. It holds one end of a pipe whose other end only the parent holds, and exits when that is
closed: by an interrupt, an error, or because the parent was killed.
"""

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from multiprocessing import get_context
from threading import Thread
from typing import TYPE_CHECKING, TypeVar

from threadpoolctl import threadpool_limits

from onepass.errors import ProcessError

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from multiprocessing.queues import SimpleQueue

__all__ = ["side_by_side"]

_Job = TypeVar("_Job")
_Found = TypeVar("_Found")
_Given = TypeVar("_Given")
_Told = TypeVar("_Told")
_THREADS = (
    "OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "VECLIB_MAXIMUM_THREADS",
)  # fmt: skip
_LISTEN = 0.2  # seconds to wait for what is done before what is heard is told


def side_by_side(
    jobs: Sequence[_Job],
    one: Callable[[_Job], _Found],
    processes: int,
    begin: Callable[[_Given, Callable[[_Told], None]], None],
    given: _Given,
    *,
    where: str,
    hear: Callable[[_Told], object] | None = None,
) -> Iterator[tuple[_Job, _Found]]:
    """Each job with what it came to, when it is done.

    Parameters
    ----------
    jobs : sequence
        What is done.
    one : callable
        Does one of them in a process, and returns what it came to.
    processes : int
        How many, each with its share of the machine's threads, or fewer where the environment
        says so (``OMP_NUM_THREADS``).
    begin : callable
        Called in each process with ``given`` and with what tells ``hear`` something.
    given : object
        What all jobs have in common.
    where : str
        The public call, for messages.
    hear : callable, optional
        Called in this process with what was told.

    Yields
    ------
    job
        One of ``jobs``.
    found : object
        What it came to.

    Raises
    ------
    ProcessError
        If a process was gone before its job was done.
    """
    context = get_context("spawn")
    heard: SimpleQueue[_Told] = context.SimpleQueue()
    leash, held = context.Pipe(duplex=False)
    threads = max(1, (os.cpu_count() or 1) // processes)
    begun = (begin, given, heard, threads, leash)
    with ProcessPoolExecutor(min(processes, len(jobs)), context, _begin, begun) as pool:
        try:
            waiting: dict[Future[_Found], _Job] = {pool.submit(one, job): job for job in jobs}
            while waiting:
                ended, _ = wait(waiting, _LISTEN, FIRST_COMPLETED)
                while not heard.empty():
                    told = heard.get()
                    if hear is not None:
                        hear(told)
                for each in ended:
                    yield waiting.pop(each), each.result()
            pool.shutdown(wait=True)
        except BrokenProcessPool as lost:
            raise ProcessError(
                f"{where}: each run beside others must have its process to the end, got one that "
                "was gone before. Look whether memory is short and set fewer processes; a script "
                'needs `if __name__ == "__main__":`. Runs that were kept stay.'
            ) from lost
        finally:
            held.close()  # whoever still runs is not waited for: nothing of it would be kept
            pool.shutdown(wait=True, cancel_futures=True)


def _begin(
    begin: Callable[[_Given, Callable[[_Told], None]], None],
    given: _Given,
    heard: "SimpleQueue[_Told]",
    threads: int,
    leash: "Connection",
) -> None:
    # Ctrl-C in a terminal reaches all processes: the first one ends the others
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Thread(target=_follow, args=(leash,), daemon=True).start()
    threadpool_limits(threads)  # of libraries that are here; others read these when they come
    for name in _THREADS:
        if not os.environ.get(name, "").isdigit() or int(os.environ[name]) > threads:
            os.environ[name] = str(threads)
    begin(given, heard.put)


def _follow(leash: "Connection") -> None:
    """End this process when the other end of a pipe is closed."""
    with suppress(EOFError, OSError):
        leash.recv_bytes()
    os._exit(1)
