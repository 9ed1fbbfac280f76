"""Many threads learn and ask at once; whatever interrupts one of them leaves all whole."""

import contextlib
import gc
import random
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from durable_files import bits, crashed

import onepass as op
from onepass.errors import OnepassError, StoreError
from onepass.service.journal import Journal
from onepass.service.writer import Keeper

X = np.random.default_rng(0).normal(size=(1000, 4))
Y = X.sum(axis=1)


def at_once(*work: Callable[[], Any]) -> None:
    """Do it in threads of their own, and raise what they raise."""
    wrong: list[BaseException] = []

    def caught(each: Callable[[], Any]) -> None:
        try:
            each()
        except BaseException as raised:  # noqa: BLE001
            wrong.append(raised)

    threads = [threading.Thread(target=caught, args=(each,)) for each in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    if wrong:
        raise wrong[0]


def test_32_threads_learn_each_row_once(tmp_path: Path) -> None:
    with op.durable(tmp_path / "m.db", op.RLSRegressor()) as durable:

        def learn(k: int) -> None:
            for i in range(k, 640, 32):
                receipt = durable.learn_one(X[i], Y[i], key=str(i))
                assert not receipt.again
                assert receipt.said.shape == (1,)
                assert durable.version >= receipt.version

        at_once(*(lambda k=k: learn(k) for k in range(32)))
        assert durable.rows_seen == 640
        assert durable.version < 500  # they were brought to the disk together
        batch = op.RLSRegressor().partial_fit(X[:640], Y[:640])
        np.testing.assert_allclose(durable.model().coef_, batch.coef_, atol=1e-9)
        path = crashed(durable, tmp_path / "copy")
        with op.durable(path) as again:
            assert bits(again) == bits(durable)


def test_whoever_asks_never_sees_half_a_block(tmp_path: Path) -> None:
    """Pairs of rows, x and −x, with answers 1 and −1 in all: after each pair the offset is 0."""
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
                version, twin = durable.published
                assert (twin.rows_seen_ - 1) % 4 == 0
                assert twin.rows_seen_ == 1 + 4 * (version - 1)
                assert twin.predict(X[:2, :2]).tobytes() == twin.predict(X[:2, :2]).tobytes()
                seen.append(version)
                time.sleep(0.0005)  # or the one who learns would wait for its turn in Python

        at_once(learn, *([ask] * 4))
    assert len(set(seen)) > 20


def test_all_verbs_at_once(tmp_path: Path) -> None:
    stop = time.monotonic() + 1.5
    with op.durable(tmp_path / "m.db", op.RLSRegressor(), snapshot_rows=50, keep=3) as durable:
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
                ids = durable.ask(X[:2])[1]
                durable.answer(ids, Y[:2])
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
                assert durable.waiting >= 0
                assert repr(durable)
                assert durable.trouble is None
                durable.predict(X[:3])
                time.sleep(0.01)

        at_once(*(lambda k=k: learn(k) for k in range(5)), late, go_back, look)
        assert durable.rows_seen == sum(rows)
        assert durable.waiting == 0
        assert back[0] > 2
        path = crashed(durable, tmp_path / "copy")
        with op.durable(path) as again:
            assert bits(again) == bits(durable)


def test_to_close_while_others_learn(tmp_path: Path) -> None:
    """They are told; what was acknowledged is there."""
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


def test_who_comes_while_the_last_snapshot_is_taken_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At once, or, if it had been let in before, through its callback: nobody is forgotten."""
    durable = op.durable(tmp_path / "m.db", op.RLSRegressor())
    durable.learn(X[:5], Y[:5])
    told: list[Any] = []
    late = durable._request(X[:1], Y[:1], None, None, None, None, None, None)
    late.done = told.append
    finish = Keeper.finish

    def come(self: Keeper) -> None:
        with pytest.raises(StoreError, match="was closed"):
            durable.request(X[:1], Y[:1], done=told.append)
        durable._queue.pending.append(late)  # it had just seen that the file is open
        finish(self)

    monkeypatch.setattr(Keeper, "finish", come)
    durable.close()
    assert told == [late]
    with pytest.raises(StoreError, match="was closed"):
        late.result()
    with op.durable(tmp_path / "m.db") as again:
        assert again.rows_seen == 5
        assert again.versions[-1].why == "close"


@pytest.mark.parametrize("before", [False, True])
def test_who_comes_when_it_is_just_closed_is_learned_or_refused(
    tmp_path: Path, *, before: bool
) -> None:
    durable = op.durable(tmp_path / "m.db", op.RLSRegressor())

    class Closing(deque[Any]):
        """It is closed when somebody comes."""

        def append(self, each: Any) -> None:
            if before:
                durable.close()
            super().append(each)
            durable.close()

    durable._queue.pending = Closing()
    if before:
        with pytest.raises(StoreError, match="was closed"):
            durable.request(X[:1], Y[:1])
        assert not durable._queue.pending
    else:
        assert durable.request(X[:1], Y[:1]).result().version == 1
    with op.durable(tmp_path / "m.db") as again:
        assert again.rows_seen == (0 if before else 1)


def test_rows_that_come_while_it_is_closed_are_on_the_disk_or_refused(tmp_path: Path) -> None:
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
        assert all(each.settled for each in given)
        kept = sum(each.error is None for each in given)
        with op.durable(tmp_path / f"{i}.db") as again:
            assert again.rows_seen == 5 + kept


def test_requests_that_nobody_waits_for_are_settled_in_the_end(tmp_path: Path) -> None:
    with op.durable(tmp_path / "m.db", op.RLSRegressor()) as durable:
        rows = [*range(1000), *range(500)]
        requests = [durable.request(X[k : k + 1], Y[k : k + 1]) for k in rows]
        durable.learn(X[:1], Y[:1])  # takes its turn behind them
        assert all(each.settled for each in requests)
        left = durable.request(X[:1], Y[:1])
    assert left.settled
    with op.durable(tmp_path / "m.db") as again:
        assert again.rows_seen == 1502


def test_to_settle_ends_though_more_comes(tmp_path: Path) -> None:
    decided: list[Any] = []

    def again(request: Any) -> None:
        decided.append(request)
        if len(decided) < 100:
            durable.request(X[:1], Y[:1], done=again)

    with op.durable(tmp_path / "m.db", op.RLSRegressor()) as durable:
        durable.request(X[:1], Y[:1], done=again)
        durable.settle()
        assert len(decided) == 1
    assert len(decided) == 100


# -- interrupts ------------------------------------------------------------------------------------


class Interrupted(BaseException):
    """As ``KeyboardInterrupt``, which pytest would take for its own."""


def interrupt_the_mending(durable: Any, left: list[int]) -> None:
    """Once there is no interrupt left, interrupt what takes a transaction back."""
    journal = durable._journal
    take_back = journal._take_back

    def interrupted() -> None:
        if not left:
            journal._take_back = take_back
            raise Interrupted
        take_back()

    journal._take_back = interrupted


STEPS = ["begun", "entry", "keys", "before commit", "after commit", "published", "acknowledged"]


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("step", STEPS)
def test_an_interrupt_at_a_step(
    step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, again: bool
) -> None:
    """The rows are learned or not, as the disk says; and if the mending is interrupted too."""
    with op.durable(tmp_path / "m.db", op.RLSRegressor()) as durable:
        durable.learn(X[:20], Y[:20])
        left = [1]

        def reached(_: Any, name: str) -> None:
            if name == step and left:
                left.pop()
                raise Interrupted

        if again:
            interrupt_the_mending(durable, left)
        monkeypatch.setattr(Journal, "reached", reached)
        other = durable.request(X[20:25], Y[20:25])  # without a key: it must not come twice
        with pytest.raises(Interrupted):
            durable.learn(X[25:30], Y[25:30], key="mine")
        there = STEPS.index(step) > 3
        path = crashed(durable, tmp_path / "copy")
        with contextlib.suppress(Interrupted):
            durable.settle()
        durable.settle()
        assert other.result().version == 2  # it was no fault of its own
        assert durable.rows_seen == (30 if there else 25)
        assert durable.learn(X[25:30], Y[25:30], key="mine").again == there
        assert durable.rows_seen == 30
        np.testing.assert_allclose(durable.predict(X[:9]), Y[:9], atol=1e-4)
        with op.durable(path) as copy:
            assert copy.rows_seen == (30 if there else 20)
        path = crashed(durable, tmp_path / "last")
        with op.durable(path) as copy:
            assert bits(copy) == bits(durable)


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("step", ["begun", "entry", "snapshot", "before commit", "after commit"])
def test_an_interrupt_while_it_goes_back(
    step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, again: bool
) -> None:
    with op.durable(tmp_path / "m.db", op.RLSRegressor()) as durable:
        for i in range(10):
            durable.learn(X[i : i + 5], Y[i : i + 5])
        left = [1]

        def reached(_: Any, name: str) -> None:
            if name == step and left:
                left.pop()
                raise Interrupted

        if again:
            interrupt_the_mending(durable, left)
        monkeypatch.setattr(Journal, "reached", reached)
        with pytest.raises(Interrupted):
            durable.rollback(to=4)
        with contextlib.suppress(Interrupted):
            durable.learn(X[:5], Y[:5], key="a")
        durable.learn(X[:5], Y[:5], key="a")
        assert durable.version == (12 if step == "after commit" else 11)
        path = crashed(durable, tmp_path / "copy")
        with op.durable(path) as copy:
            assert bits(copy) == bits(durable)


def test_an_interrupt_of_one_who_waits(tmp_path: Path, interruptible: None) -> None:
    """Others go on; its rows are learned by nobody, if nobody had begun."""
    del interruptible
    with op.durable(tmp_path / "m.db", op.RLSRegressor()) as durable:
        held, go = threading.Event(), threading.Event()

        def hold() -> None:
            with durable._queue.exclusive():
                held.set()
                go.wait(10)

        def interrupt() -> None:
            held.wait()
            while not durable._queue.pending:
                time.sleep(0.001)
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
            time.sleep(0.05)
            go.set()

        threads = [threading.Thread(target=each) for each in (hold, interrupt)]
        for thread in threads:
            thread.start()
        held.wait()
        with pytest.raises(KeyboardInterrupt):
            durable.learn(X[:5], Y[:5], key="a")
        for thread in threads:
            thread.join()
        durable.settle()
        assert durable.rows_seen == 0
        durable.learn(X[5:9], Y[5:9])
        assert durable.rows_seen == 4


@pytest.mark.skipif(sys.platform == "win32", reason="no timers there")
def test_interrupts_at_random_moments(tmp_path: Path, alarm: Any) -> None:
    """Each row has a key, and is sent until it is acknowledged, while other threads learn too."""
    rng = random.Random(0)  # noqa: S311  no secret
    interrupts = 0
    stop = threading.Event()
    with op.durable(tmp_path / "m.db", op.RLSRegressor(), snapshot_rows=100, keep=99) as durable:
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
        durable.settle()
        assert interrupts > 10
        assert durable.rows_seen == 250 + sum(others)
        path = crashed(durable, tmp_path / "copy")
        with op.durable(path) as again:
            assert bits(again) == bits(durable)


@pytest.fixture
def alarm() -> Any:
    """A timer that interrupts once, as the keyboard does; 0 stops it."""
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


def test_a_handler_of_signals_that_comes_in_between_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It runs in the thread that has the turn: it must neither write nor wait for itself."""
    with op.durable(tmp_path / "m.db", op.RLSRegressor()) as durable:
        ids = durable.ask(X[:2])[1]
        durable.learn(X[:20], Y[:20])
        refused: list[str] = []
        verbs = (
            lambda: durable.learn(X, Y),
            lambda: durable.ask(X),
            lambda: durable.answer(ids, Y[:2]),
            durable.settle,
            durable.snapshot,
            durable.model,
            lambda: durable.rollback(to=0),
            lambda: durable.versions,
            lambda: durable.waiting,
            lambda: durable.pass_by("a", "b"),
            durable.close,
        )

        def reached(_: Any, name: str) -> None:
            if name in {"begun", "entry", "after commit", "published"}:
                for verb in verbs:
                    with pytest.raises(StoreError, match="no handler of signals"):
                        verb()
                    refused.append(name)
                durable.request(X[20:21], Y[20:21])
                durable.predict(X)

        monkeypatch.setattr(Journal, "reached", reached)
        durable.learn(X[:5], Y[:5], key="a")
        monkeypatch.undo()
        assert len(refused) == 4 * len(verbs)
        durable.settle()
        assert durable.rows_seen == 29
        path = crashed(durable, tmp_path / "copy")
        with op.durable(path) as again:
            assert bits(again) == bits(durable)


def test_whoever_is_told_of_rows_may_not_learn_meanwhile(tmp_path: Path) -> None:
    with op.durable(tmp_path / "m.db", op.RLSRegressor()) as durable:
        durable.watch(lambda *_: durable.learn(X, Y))
        durable.learn(X[:5], Y[:5])
        assert "no handler of signals, and not while you are told of rows" in str(durable.trouble)
        assert durable.rows_seen == 5


def test_a_durable_learner_is_a_context(tmp_path: Path) -> None:
    durable = op.durable(tmp_path / "m.db", op.RLSRegressor())
    with contextlib.suppress(ZeroDivisionError), durable as entered:
        assert entered is durable
        durable.learn(X, Y)
        raise ZeroDivisionError
    with pytest.raises(StoreError, match="was closed"):
        durable.learn(X, Y)
