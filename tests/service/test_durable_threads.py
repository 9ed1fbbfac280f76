"""Concurrent calls of a durable learner, interrupts, and errors around a commit."""

import contextlib
import gc
import random
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from durable_files import copy_after_crash, paused_writer, state_bits

import onepass as op
from onepass.errors import OnepassError, StoreError
from onepass.service.journal import Journal
from onepass.service.requests import Request
from onepass.service.writer import Writer
from onepass.validation.rows import Rows
from raising import raises

X = np.random.default_rng(0).normal(size=(1000, 4))
Y = X.sum(axis=1)


def at_once(*work: Callable[[], Any]) -> None:
    """Call functions concurrently, and raise the first of their errors."""
    error: list[BaseException] = []

    def caught(each: Callable[[], Any]) -> None:
        try:
            each()
        except BaseException as raised:  # noqa: BLE001
            error.append(raised)

    threads = [threading.Thread(target=caught, args=(each,)) for each in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    if error:
        raise error[0]


def test_rows_of_32_threads_are_learned_once(tmp_path: Path) -> None:
    with op.durable(tmp_path / "m.db", op.RLSRegressor()) as durable:

        def learn(k: int) -> None:
            for i in range(k, 640, 32):
                result = durable.learn_one(X[i], Y[i], key=str(i))
                assert not result.repeated
                assert result.predictions.shape == (1,)
                assert durable.version >= result.version

        at_once(*(lambda k=k: learn(k) for k in range(32)))
        assert durable.rows_seen == 640
        assert durable.version < 500  # they were brought to the disk together
        batch = op.RLSRegressor().partial_fit(X[:640], Y[:640])
        np.testing.assert_allclose(durable.model().coef_, batch.coef_, atol=1e-9)
        path = copy_after_crash(durable, tmp_path / "copy")
        with op.durable(path) as again:
            assert state_bits(again) == state_bits(durable)


def test_published_learner_has_complete_blocks(tmp_path: Path) -> None:
    """Blocks have four rows, so the number of rows shows whether a block is complete."""
    done = threading.Event()
    seen: list[int] = []
    with op.durable(tmp_path / "m.db", op.SGDRegressor(step="constant")) as durable:
        durable.learn(np.ones((1, 2)) * 0, [0.0])

        def learn() -> None:
            for i in range(300):
                x = X[i : i + 1, :2]
                durable.learn(np.vstack((x, -x, x, -x)), [1.0, -1.0, 1.0, -1.0])
            done.set()

        def ask() -> None:
            while not done.is_set():
                version, twin = durable._writer.published
                assert (twin.rows_seen_ - 1) % 4 == 0
                assert twin.rows_seen_ == 1 + 4 * (version - 1)
                assert twin.predict(X[:2, :2]).tobytes() == twin.predict(X[:2, :2]).tobytes()
                seen.append(version)
                time.sleep(0.0005)  # or the one who learns would wait for its turn in Python

        at_once(learn, *([ask] * 4))
    assert len(set(seen)) > 20


def test_concurrent_calls_of_all_methods(tmp_path: Path) -> None:
    stop = time.monotonic() + 1.5
    with op.durable(tmp_path / "m.db", op.RLSRegressor(), snapshot_rows=50, snapshots=3) as durable:
        rows = [0] * 6
        back = [0]

        def learn(k: int) -> None:
            i = 0
            while time.monotonic() < stop:
                n, at = i % 3 + 1, i % 900
                durable.learn(X[at : at + n], Y[at : at + n], key=f"{k}-{i}")
                rows[k] += n
                i += n

        def late() -> None:
            while time.monotonic() < stop:
                ids = durable.predict_pending(X[:2])[1]
                durable.learn_labels(ids, Y[:2])
                rows[5] += 2

        def go_back() -> None:
            while time.monotonic() < stop:
                time.sleep(0.02)
                with contextlib.suppress(OnepassError):
                    durable.rollback(to=durable.version)
                    back[0] += 1

        def look() -> None:
            while time.monotonic() < stop:
                durable.snapshot()
                durable.model()
                assert durable.versions
                assert durable.labels_pending >= 0
                assert repr(durable)
                assert durable.error is None
                durable.predict(X[:3])
                time.sleep(0.01)

        at_once(*(lambda k=k: learn(k) for k in range(5)), late, go_back, look)
        assert durable.rows_seen == sum(rows)
        assert durable.labels_pending == 0
        assert back[0] > 2
        path = copy_after_crash(durable, tmp_path / "copy")
        with op.durable(path) as again:
            assert state_bits(again) == state_bits(durable)


def test_close_while_threads_learn_keeps_acknowledged_rows(tmp_path: Path) -> None:
    """Pending calls raise, and acknowledged rows are stored."""
    durable = op.durable(tmp_path / "m.db", op.RLSRegressor())
    acknowledged = [0] * 8

    def learn(k: int) -> None:
        with contextlib.suppress(StoreError):
            for i in range(10_000):
                durable.learn_one(X[i % 1000], Y[i % 1000])
                acknowledged[k] += 1

    def close() -> None:
        time.sleep(0.2)
        durable.close()

    at_once(*(lambda k=k: learn(k) for k in range(8)), close)
    assert min(acknowledged) > 0
    with op.durable(tmp_path / "m.db") as again:
        assert again.rows_seen == sum(acknowledged)


def test_requests_during_the_final_snapshot_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """New requests raise; requests that were already accepted get the error by their callback."""
    durable = op.durable(tmp_path / "m.db", op.RLSRegressor())
    durable.learn(X[:5], Y[:5])
    decided: list[Any] = []
    late = Request(Rows(X[:1], Y[:1]))
    late.done = decided.append
    finish = Writer._close

    def come(self: Writer) -> None:
        finish(self)
        with pytest.raises(StoreError, match="was closed"):
            durable.request(X[:1], Y[:1], done=decided.append)
        self._items.put(late)  # it had just seen that the file is open

    monkeypatch.setattr(Writer, "_close", come)
    durable.close()
    monkeypatch.undo()
    assert decided == [late]
    with raises(StoreError, remedy="Open it again with"):
        late.result()
    with op.durable(tmp_path / "m.db") as again:
        assert again.rows_seen == 5
        assert again.versions[-1].why == "close"


def test_concurrent_calls_of_close(tmp_path: Path) -> None:
    durable = op.durable(tmp_path / "m.db", op.RLSRegressor())
    durable.learn(X[:5], Y[:5])
    at_once(*[durable.close] * 8)
    with op.durable(tmp_path / "m.db") as again:
        assert again.rows_seen == 5


def test_requests_during_close_are_committed_or_refused(tmp_path: Path) -> None:
    wide = np.random.default_rng(1).normal(size=(5, 300))
    for i in range(3):
        durable = op.durable(tmp_path / f"{i}.db", op.RLSRegressor())
        durable.learn(wide, np.ones(5))
        given: list[Any] = []

        def give(durable: Any = durable, given: list[Any] = given) -> None:
            with contextlib.suppress(StoreError):
                while True:
                    given.append(durable.request(wide[:1], [1.0]))
                    time.sleep(0.0002)

        def close(durable: Any = durable) -> None:
            time.sleep(0.01)
            durable.close()

        at_once(give, give, close)
        assert all(each.completed for each in given)
        acknowledged = sum(each.error is None for each in given)
        with op.durable(tmp_path / f"{i}.db") as again:
            assert again.rows_seen == 5 + acknowledged


def test_requests_without_waiting_are_completed_on_close(tmp_path: Path) -> None:
    with op.durable(tmp_path / "m.db", op.RLSRegressor()) as durable:
        rows = [*range(1000), *range(500)]
        requests = [durable.request(X[k : k + 1], Y[k : k + 1]) for k in rows]
        durable.learn(X[:1], Y[:1])  # takes its turn behind them
        assert all(each.completed for each in requests)
        left = durable.request(X[:1], Y[:1])
    assert left.completed
    with op.durable(tmp_path / "m.db") as again:
        assert again.rows_seen == 1502


def test_commit_pending_returns_though_callbacks_add_requests(tmp_path: Path) -> None:
    decided: list[Any] = []

    def again(request: Any) -> None:
        decided.append(request)
        with contextlib.suppress(StoreError):  # as it is closed
            durable.request(X[:1], Y[:1], done=again)

    with op.durable(tmp_path / "m.db", op.RLSRegressor()) as durable:
        durable.request(X[:1], Y[:1], done=again)
        durable.commit_pending()
        assert decided
    assert all(each.completed for each in decided)
    with op.durable(tmp_path / "m.db") as found:
        assert found.rows_seen == sum(each.error is None for each in decided)


# -- interrupts ------------------------------------------------------------------------------------


class Interrupted(BaseException):
    """As ``KeyboardInterrupt``, which pytest would take for its own."""


def test_interrupt_while_waiting_does_not_cancel_the_request(
    tmp_path: Path, interruptible: None
) -> None:
    """The rows are learned, and the same key returns the result."""
    del interruptible
    with op.durable(tmp_path / "m.db", op.RLSRegressor()) as durable:

        def interrupt() -> None:
            while durable._writer._items.empty():
                time.sleep(0.001)
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

        thread = threading.Thread(target=interrupt)
        with paused_writer(durable):
            thread.start()
            with pytest.raises(KeyboardInterrupt):
                durable.learn(X[:5], Y[:5], key="a")
            thread.join()
            assert durable.rows_seen == 0
        assert durable.learn(X[:5], Y[:5], key="a").repeated
        assert durable.rows_seen == 5


@pytest.mark.skipif(sys.platform == "win32", reason="no timers there")
def test_rows_are_learned_once_through_random_interrupts(tmp_path: Path, alarm: Any) -> None:
    """Each row has a key and is repeated until it is acknowledged; other threads learn too."""
    rng = random.Random(0)  # noqa: S311  no secret
    interrupts = 0
    stop = threading.Event()
    with op.durable(
        tmp_path / "m.db", op.RLSRegressor(), snapshot_rows=100, snapshots=99
    ) as durable:
        others = [0, 0]

        def learn(k: int) -> None:
            while not stop.is_set():
                i = others[k]
                durable.learn_one(X[i % 1000], Y[i % 1000], key=f"{k}-{i}")
                others[k] += 1

        def insist() -> None:
            nonlocal interrupts
            i, end = 0, time.monotonic() + 60
            while i < 250 and time.monotonic() < end:
                try:
                    alarm(rng.choice([0.0003, 0.002, 0.05]) * (0.1 + rng.random()))
                    durable.learn_one(X[i], Y[i], key=str(i))
                    i += 1
                    alarm(0.0)
                except Interrupted:
                    interrupts += 1
            stop.set()

        threads = [threading.Thread(target=learn, args=(k,)) for k in range(2)]
        for thread in threads:
            thread.start()
        insist()
        for thread in threads:
            thread.join(30)
            assert not thread.is_alive()
        durable.commit_pending()
        assert interrupts > 10
        assert durable.rows_seen == 250 + sum(others)
        path = copy_after_crash(durable, tmp_path / "copy")
        with op.durable(path) as again:
            assert state_bits(again) == state_bits(durable)


@pytest.mark.skipif(sys.platform == "win32", reason="no timers there")
def test_signal_handler_may_learn(tmp_path: Path) -> None:
    """It runs in the waiting thread, not in the writer."""
    with op.durable(tmp_path / "m.db", op.RLSRegressor()) as durable:
        versions: list[int] = []

        def ring(*_: Any) -> None:
            versions.append(durable.learn(X[:1], Y[:1]).version)
            versions.append(durable.snapshot())

        before = signal.signal(signal.SIGALRM, ring)
        try:
            for i in range(20):
                signal.setitimer(signal.ITIMER_REAL, 1e-4 * (1 + i % 5))
                while len(versions) <= 2 * i:
                    durable.learn(X[i : i + 1], Y[i : i + 1])
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0.0)
            signal.signal(signal.SIGALRM, before)
        durable.commit_pending()
        path = copy_after_crash(durable, tmp_path / "copy")
        with op.durable(path) as again:
            assert state_bits(again) == state_bits(durable)


@pytest.fixture
def alarm() -> Any:
    """A timer that raises an interrupt once; 0 stops it."""
    armed = [False]

    def ring(*_: Any) -> None:
        if armed[0]:
            armed[0] = False
            raise Interrupted

    def wind(seconds: float) -> None:
        armed[0] = seconds > 0.0
        signal.setitimer(signal.ITIMER_REAL, seconds)

    before = signal.signal(signal.SIGALRM, ring)
    gc.disable()  # what is raised while it calls others back, as Hypothesis, reaches nobody
    yield wind
    gc.enable()
    signal.signal(signal.SIGALRM, before)


def test_watcher_that_would_wait_for_the_writer_gets_an_error(tmp_path: Path) -> None:
    with op.durable(tmp_path / "m.db", op.RLSRegressor()) as durable:
        refused: list[str] = []
        verbs = (
            lambda: durable.learn(X, Y),
            lambda: durable.predict_pending(X),
            lambda: durable.learn_labels(["a"], [1.0]),
            durable.commit_pending,
            durable.snapshot,
            durable.model,
            lambda: durable.rollback(to=0),
            lambda: durable.labels_pending,
            lambda: durable.commit_position("a", "b"),
            durable.close,
        )

        def watch(*_: Any) -> None:
            for verb in verbs:
                with raises(StoreError, remedy="Use `request`, which does") as error:
                    verb()
                refused.append(str(error.value))
            durable.predict(X)
            durable._writer.watch = None
            durable.request(X[20:21], Y[20:21])

        durable._writer.watch = watch
        durable.learn(X[:5], Y[:5])
        durable.commit_pending()
        assert len(refused) == len(verbs)
        durable.commit_pending()  # the row that the watcher has requested
        assert (durable.rows_seen, durable.error) == (6, None)
        durable._writer.watch = lambda *_: durable.learn(X, Y)
        durable.learn(X[:5], Y[:5])
        durable.commit_pending()
        assert "would wait for themselves" in str(durable.error)
        assert durable.rows_seen == 11


def test_system_exit_in_a_callback_does_not_stop_the_writer(tmp_path: Path) -> None:
    def leave(_: Any) -> None:
        raise SystemExit

    with op.durable(tmp_path / "m.db", op.RLSRegressor()) as durable:
        durable.request(X[:1], Y[:1], done=leave)
        durable.learn(X[1:2], Y[1:2])
        assert durable.rows_seen == 2


def test_error_after_the_commit_loses_no_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with op.durable(tmp_path / "m.db", op.RLSRegressor()) as durable:
        durable.learn(X[:5], Y[:5])

        def small(_: Any) -> Any:
            raise MemoryError("for once")

        monkeypatch.setattr(op.RLSRegressor, "frozen_copy", small)
        assert durable.learn(X[5:9], Y[5:9]).version == 2
        assert "for once" in str(durable.error)
        monkeypatch.undo()
        assert durable.learn(X[9:12], Y[9:12]).version == 3
        path = copy_after_crash(durable, tmp_path / "copy")
        with op.durable(path) as again:
            assert state_bits(again) == state_bits(durable)
            assert again.rows_seen == 12


@pytest.mark.parametrize("step", ["begun", "entry", "keys", "before commit"])
def test_error_before_the_commit_refuses_the_group(
    step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All requests of the group are refused, and the state is unchanged."""
    with op.durable(tmp_path / "m.db", op.RLSRegressor()) as durable:
        durable.learn(X[:20], Y[:20])

        def reached(_: Any, name: str) -> None:
            if name == step:
                raise MemoryError("for once")

        monkeypatch.setattr(Journal, "reached", reached)
        with paused_writer(durable):
            one = durable.request(X[20:25], Y[20:25])
            two = durable.request(X[25:30], Y[25:30], key="mine")
        for each in (one, two):
            durable._writer.call(lambda: None)
            with pytest.raises(MemoryError, match="for once"):
                each.result()
        monkeypatch.undo()
        assert durable.rows_seen == 20
        assert not durable.learn(X[25:30], Y[25:30], key="mine").repeated
        path = copy_after_crash(durable, tmp_path / "copy")
        with op.durable(path) as copy:
            assert state_bits(copy) == state_bits(durable)


def test_durable_is_a_context_manager(tmp_path: Path) -> None:
    durable = op.durable(tmp_path / "m.db", op.RLSRegressor())
    with contextlib.suppress(ZeroDivisionError), durable as entered:
        assert entered is durable
        durable.learn(X, Y)
        raise ZeroDivisionError
    with pytest.raises(StoreError, match="was closed"):
        durable.learn(X, Y)
