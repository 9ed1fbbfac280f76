"""Processes side by side: each has its share of the threads, and tells what it came to."""

import os
from typing import Any

import pytest
from threadpoolctl import threadpool_info

from onepass.evaluate.parallel import side_by_side


def begin(given: Any, tell: Any) -> None:
    tell(given)


def threads(library: str) -> int | None:
    """How many threads work for a library: torch comes after the process has begun."""
    if library == "torch":
        import torch

        return int(torch.get_num_threads())
    import numpy as np

    np.eye(2) @ np.eye(2)
    known = [each["num_threads"] for each in threadpool_info() if each["user_api"] == "blas"]
    return max(known, default=None)


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_each_process_has_its_share_of_the_threads(
    library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip(library)
    for name in os.environ:
        if name.endswith(("NUM_THREADS", "MAXIMUM_THREADS")):
            monkeypatch.delenv(name)
    heard: list[Any] = []
    many = os.cpu_count() or 1
    jobs = [library, library]
    found = list(side_by_side(jobs, threads, many, begin, 7, where="here", hear=heard.append))
    if found[0][1] is None:
        pytest.skip("the BLAS of NumPy does not tell of its threads")
    assert [count for _, count in found] == [1, 1]
    assert set(heard) == {7}


def test_the_environment_may_ask_for_fewer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("MKL_NUM_THREADS", "9999")
    found = side_by_side(["OMP", "MKL"], asked, 1, begin, None, where="here")
    assert dict(found) == {"OMP": "1", "MKL": str(os.cpu_count() or 1)}


def asked(library: str) -> str:
    return os.environ[f"{library}_NUM_THREADS"]
