"""Processes side by side: each has its share of the threads, and tells what it came to."""

import os
from typing import Any

import pytest
from threadpoolctl import threadpool_info

from onepass.processes import side_by_side


def begin(given: Any, tell: Any) -> None:
    tell(given)


def threads(library: str) -> int:
    """How many threads work for a library that comes after the process has begun."""
    if library == "torch":
        import torch

        return int(torch.get_num_threads())
    import numpy as np

    np.eye(2) @ np.eye(2)
    return max(each["num_threads"] for each in threadpool_info() if each["user_api"] == "blas")


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_each_process_has_its_share_of_the_threads(library: str) -> None:
    pytest.importorskip(library)
    share = max(1, (os.cpu_count() or 1) // 2)
    heard: list[Any] = []
    found = side_by_side(
        [library, library], threads, 2, begin, "begun", where="here", hear=heard.append
    )
    assert [count for _, count in found] == [share, share]
    assert set(heard) <= {"begun"}
