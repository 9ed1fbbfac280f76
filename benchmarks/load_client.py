"""Requests per second of the Python client, for ``load.py``."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from onepass.service import Client

__all__ = ["VERBS", "by_client"]

VERBS = ("predict", "learn", "learn_each")
Found = dict[str, Any]


def by_client(verb: str, address: str, widths: tuple[int, int], seconds: float) -> Found:
    """Measure requests per second and latency of one client with one row per request.

    Parameters
    ----------
    verb : str
        One of ``VERBS``. Learn requests have an idempotency key, as the client sets it.
    address : str
    widths : tuple of int
        Number of features for prediction and for learning.
    seconds : float
    """
    rng = np.random.default_rng(0)
    wide, flow = (rng.normal(size=(1, d)) for d in widths)
    with Client(address) as client:
        if verb == "learn_each":
            began = time.perf_counter()
            rows = ((flow, [1.5]) for _ in _until(began + seconds))
            count = sum(1 for _ in client.learn_each("flow", rows))
            rate = count / (time.perf_counter() - began)
            return {"a second": [rate], "p50 ms": [None], "p99 ms": [None]}
        call: Callable[[], object] = {
            "predict": lambda: client.predict("wide", wide),
            "learn": lambda: client.learn("flow", flow, [1.5]),
        }[verb]
        took, began = [], time.perf_counter()
        for _ in _until(began + seconds):
            before = time.perf_counter()
            call()
            took.append(time.perf_counter() - before)
        rate = len(took) / (time.perf_counter() - began)
    p50, p99 = 1000 * np.quantile(took, (0.5, 0.99))
    return {"a second": [rate], "p50 ms": [float(p50)], "p99 ms": [float(p99)]}


def _until(end: float) -> Iterator[None]:
    while time.perf_counter() < end:
        yield
