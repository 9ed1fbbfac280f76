"""Jobs in several processes: one thread each, and errors that are raised here."""

import os
import threading

import pytest
from threadpoolctl import threadpool_info

from onepass.errors import ParameterError, ProcessError
from onepass.evaluate.parallel import run_parallel


def threads(library: str) -> int | None:
    """How many threads a library uses for linear algebra."""
    if library == "torch":
        import torch

        return int(torch.get_num_threads())
    import numpy as np

    np.eye(2) @ np.eye(2)
    known = [each["num_threads"] for each in threadpool_info() if each["user_api"] == "blas"]
    return max(known, default=None)


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_worker_processes_use_one_thread(library: str) -> None:
    pytest.importorskip(library)
    found = list(run_parallel(threads, [library, library], 2, where="here"))
    if found[0][1] is None:
        pytest.skip("the BLAS of NumPy does not tell of its threads")
    assert found == [(library, 1), (library, 1)]


def inverse(job: int) -> float:
    if job < 0:
        os._exit(9)
    return 1.0 / job


def test_results_are_paired_with_their_jobs() -> None:
    for processes in (1, 2):
        found = run_parallel(inverse, [1, 2, 4], processes, where="here")
        assert sorted(found) == [(1, 1.0), (2, 0.5), (4, 0.25)]


def test_errors_of_jobs_are_raised() -> None:
    for processes in (1, 2):
        with pytest.raises(ZeroDivisionError, match="division by zero"):
            list(run_parallel(inverse, [1, 2, 0], processes, where="here"))


def test_died_process_is_reported() -> None:
    with pytest.raises(ProcessError, match=r"here: .*use fewer processes"):
        list(run_parallel(inverse, [1, -1], 2, where="here"))
    assert dict(run_parallel(inverse, [1, 2], 2, where="here")) == {1: 1.0, 2: 0.5}


def test_jobs_that_cannot_be_pickled_are_refused() -> None:
    with pytest.raises(ParameterError, match=r"here: .*must be picklable.*lock"):
        list(run_parallel(id, [threading.Lock(), threading.Lock()], 2, where="here"))


class TwoArgumentsError(Exception):
    """An error that pickle cannot restore: its arguments are not those of its class."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"{code}: {text}")


def failing(job: int) -> float:
    raise TwoArgumentsError(job, "no such thing")


def test_errors_that_cannot_be_unpickled_keep_their_text() -> None:
    with pytest.raises(ProcessError, match="TwoArgumentsError: 1: no such thing"):
        list(run_parallel(failing, [1, 1], 2, where="here"))


def failing_with_a_lock(job: int) -> float:
    error = ValueError(f"job {job} diverged")
    error.model = threading.Lock()  # type: ignore[attr-defined]
    raise error


def test_errors_that_cannot_be_pickled_keep_their_text() -> None:
    with pytest.raises(ProcessError, match="ValueError: job 1 diverged"):
        list(run_parallel(failing_with_a_lock, [1, 1], 2, where="here"))
