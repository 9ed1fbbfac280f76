"""Jobs in several processes: one thread each, and errors raised in the parent process."""

import os
import threading

import pytest
from threadpoolctl import threadpool_info

from onepass.errors import ParameterError, ProcessError
from onepass.parallel import run_parallel
from raising import raises


def threads(library: str) -> int | None:
    """The number of threads of a library for linear algebra."""
    if library == "torch":
        import torch

        return int(torch.get_num_threads())
    import numpy as np

    np.eye(2) @ np.eye(2)
    known = [each["num_threads"] for each in threadpool_info() if each["user_api"] == "blas"]
    return max(known, default=None)


def test_worker_processes_use_one_thread() -> None:
    pytest.importorskip("torch")
    found = dict(run_parallel(threads, ["numpy", "torch"], 2))
    assert found["torch"] == 1
    assert found["numpy"] in {1, None}  # None if the BLAS of NumPy does not report it


def inverse(job: int) -> float:
    if job < 0:
        os._exit(9)
    return 1.0 / job


def test_results_are_paired_with_their_jobs() -> None:
    for processes in (1, 2):
        found = run_parallel(inverse, [1, 2, 4], processes)
        assert sorted(found) == [(1, 1.0), (2, 0.5), (4, 0.25)]


def test_errors_of_jobs_are_raised() -> None:
    for processes in (1, 2):
        with pytest.raises(ZeroDivisionError, match="division by zero"):
            list(run_parallel(inverse, [1, 2, 0], processes))


def test_died_process_is_reported() -> None:
    """The next call uses new processes."""
    with raises(ProcessError, remedy="memory is short, and use fewer processes"):
        list(run_parallel(inverse, [1, -1], 2))
    assert dict(run_parallel(inverse, [1, 2], 2)) == {1: 1.0, 2: 0.5}


def test_jobs_that_cannot_be_pickled_are_refused() -> None:
    with raises(ParameterError, got="one that is not: TypeError: cannot pickle '_thread.lock'"):
        list(run_parallel(id, [threading.Lock(), threading.Lock()], 2))


class TwoArgumentsError(Exception):
    """An error that pickle cannot restore, as its arguments are not those of its class."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"{code}: {text}")


def failing(job: str) -> float:
    if job == "arguments":
        raise TwoArgumentsError(1, "no such thing")
    error = ValueError("the job diverged")
    error.model = threading.Lock()  # type: ignore[attr-defined]
    raise error


@pytest.mark.parametrize(
    ("job", "text"),
    [
        ("arguments", "TwoArgumentsError: 1: no such thing"),  # cannot be unpickled
        ("lock", "ValueError: the job diverged"),  # cannot be pickled
    ],
)
def test_errors_that_cannot_be_sent_keep_their_text(job: str, text: str) -> None:
    with pytest.raises(ProcessError, match=text):
        list(run_parallel(failing, [job, job], 2))
