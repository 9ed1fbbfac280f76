"""Bounded memory of an evaluation, reused arrays, and signal handlers of the program."""

import signal
import threading
from typing import Any

import numpy as np

from onepass.evaluate import LastValue, prequential
from onepass.evaluate.curves import RollingMetrics
from onepass.evaluate.metrics import METRICS
from onepass.linalg.interrupt import Interrupt


def test_rolling_metrics_store_no_more_than_their_window() -> None:
    metrics = RollingMetrics(dict(METRICS["regression"]), window=100)
    for width in [1, 99, 1, 250, 7, 0, 3] * 20:
        block = np.arange(float(width))
        metrics.add(block, block)
        retained = [len(y) for y, _ in metrics.last]
        assert sum(retained) <= 100
        assert all(y.base is None or y.base.size <= 250 for y, _ in metrics.last)
    assert sum(len(y) for y, _ in metrics.last) == 100
    assert metrics.recent["mae"] == 0.0
    assert len(metrics.last) == 1


def test_source_may_reuse_the_arrays_of_its_blocks() -> None:
    class Reused:
        """A block whose arrays are overwritten by the next one."""

        X = np.zeros((10, 1))
        y = np.zeros(10)

    def source() -> Any:
        for k in range(5):
            Reused.y[:] = np.arange(10 * k, 10 * k + 10)
            yield Reused

    report = prequential(LastValue(), source(), "mae", window=20)
    score = report.scores["LastValue"]
    assert score.recent == {"mae": 1.0}
    assert score.overall == {"mae": 49 / 50}


def test_custom_signal_handlers_and_other_threads_are_supported() -> None:
    def own(number: int, frame: Any) -> None:
        del number, frame

    before = signal.signal(signal.SIGINT, own)
    try:
        with Interrupt().held():
            assert signal.getsignal(signal.SIGINT) is own
    finally:
        signal.signal(signal.SIGINT, before)
    rows = np.arange(10.0)
    reports: list[Any] = []
    thread = threading.Thread(
        target=lambda: reports.append(prequential(LastValue(), (rows[:, None], rows)))
    )
    thread.start()
    thread.join()
    assert reports[0].rows == 10
