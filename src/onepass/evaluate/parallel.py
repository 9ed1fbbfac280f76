"""Independent jobs in several processes of joblib, each with one thread for linear algebra."""

import copy
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from pickle import PicklingError
from typing import TypeVar

from joblib import Parallel, delayed, parallel_config

from onepass.errors import ParameterError, ProcessError

__all__ = ["run_parallel"]

_Job = TypeVar("_Job")
_Result = TypeVar("_Result")


def run_parallel(
    function: Callable[[_Job], _Result], jobs: Sequence[_Job], processes: int, *, where: str
) -> Iterator[tuple[_Job, _Result]]:
    """Each job with its result, in the order in which they finish.

    An error of a job is raised here and ends the other jobs, as do an interrupt and closing the
    iterator.

    Parameters
    ----------
    function : callable
        Called with a job.
    jobs : sequence
    processes : int
        1 for this process alone.
    where : str
        The public call, for messages.

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
        If a process ended before its job did, or an error of a job cannot be sent here.
    """
    if processes == 1 or len(jobs) < 2:
        yield from ((job, function(job)) for job in jobs)
        return
    with parallel_config(backend="loky", inner_max_num_threads=1):
        pool = Parallel(
            min(processes, len(jobs)),
            return_as="generator_unordered",
            batch_size=1,  # jobs take seconds or more
            mmap_mode="c",  # torch warns of arrays that cannot be written to
        )
    found = pool(delayed(_with_job)(function, job) for job in jobs)
    try:
        for result in found:  # noqa: UP028  closed below
            yield result
    except PicklingError as wrong:
        # the cause is the traceback of the thread that sends, as text
        last = str(wrong.__cause__ or wrong).strip('"\n').splitlines()[-1]
        raise ParameterError(
            f"{where}: with several processes all must be sent to other processes, got an object "
            f"that cannot be: {last}. Leave it out, or use one process."
        ) from wrong
    except BrokenProcessPool as wrong:
        raise ProcessError(
            f"{where}: each process must live until its run is done, got one that ended before. "
            "Check whether memory is short, and set fewer processes. Runs that were stored remain."
        ) from wrong
    finally:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # of runs that are cancelled
            found.close()


def _with_job(function: Callable[[_Job], _Result], job: _Job) -> tuple[_Job, _Result]:
    """The job with its result; an error that cannot be sent back becomes a `ProcessError`."""
    try:
        return job, function(job)
    except Exception as wrong:
        try:
            copy.copy(wrong)  # rebuilds it as pickle does
        except Exception:  # noqa: BLE001  whatever its class raises
            raise ProcessError(f"{type(wrong).__name__}: {wrong}") from wrong
        raise
