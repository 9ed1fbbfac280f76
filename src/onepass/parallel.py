"""Independent jobs in several joblib processes, each with one thread for linear algebra."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.reduction import ForkingPickler
from pickle import PicklingError
from typing import TypeVar

from joblib import Parallel, delayed, parallel_config

from onepass.errors import ParameterError, ProcessError

_Job = TypeVar("_Job")
_Result = TypeVar("_Result")


def run_parallel(
    function: Callable[[_Job], _Result], jobs: Sequence[_Job], processes: int
) -> Iterator[tuple[_Job, _Result]]:
    """Run jobs in parallel; yield jobs with their results in order of completion.

    If a job raises an error, it is raised here and the other jobs are terminated. They are also
    terminated by an interrupt and when the iterator is closed.

    Parameters
    ----------
    function : callable
        Called with a job.
    jobs : sequence
    processes : int
        Number of processes; 1 for this process.

    Yields
    ------
    job
        One of ``jobs``.
    result : object

    Raises
    ------
    ParameterError
        If the function or a job cannot be sent to another process.
    ProcessError
        If a process ended before its job was done, or an error of a job cannot be sent back.
    """
    if processes == 1 or len(jobs) < 2:
        yield from ((job, function(job)) for job in jobs)
        return
    with parallel_config(backend="loky", inner_max_num_threads=1):
        pool = Parallel(
            min(processes, len(jobs)),
            return_as="generator_unordered",
            batch_size=1,  # jobs take seconds or more
            mmap_mode="c",  # read-only arrays make torch warn
        )
    found = pool(delayed(_with_job)(function, job) for job in jobs)
    try:
        for result in found:  # noqa: UP028  closed below
            yield result
    except PicklingError as error:
        # the cause is the traceback of the sending thread, as text
        last = str(error.__cause__ or error).strip('"\n').splitlines()[-1]
        raise ParameterError(
            "with several processes all objects must be picklable, got one that is "
            f"not: {last}. Omit that object, or use one process."
        ) from error
    except BrokenProcessPool as error:
        raise ProcessError(
            "each process must run until its job is done, got one that ended early. Check whether "
            "memory is short, and use fewer processes. Stored runs are kept."
        ) from error
    finally:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # about cancelled runs
            found.close()


def _with_job(function: Callable[[_Job], _Result], job: _Job) -> tuple[_Job, _Result]:
    """Run a job; convert an error that cannot be pickled to a `ProcessError`."""
    try:
        return job, function(job)
    except Exception as error:
        try:
            ForkingPickler.loads(ForkingPickler.dumps(error))
        except Exception:  # noqa: BLE001  whatever its class raises
            raise ProcessError(str(error), type(error).__name__) from error
        raise
