"""A handler of signals, or an interrupt, comes in between: what was begun is brought to its end."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from durable_files import bits, crashed, fill, make_room

import onepass as op
from onepass.errors import StoreError
from onepass.service import Durable
from onepass.service.journal import Journal
from onepass.service.requests import Block, Request
from onepass.service.writer import Charge

X = np.random.default_rng(0).normal(size=(100, 4))
Y = X.sum(axis=1)

Verb = Callable[[Durable], Any]


class Interrupted(BaseException):
    """As ``KeyboardInterrupt``, which pytest would take for its own."""


def same_on_disk(durable: Durable, to: Path) -> None:
    """What is told is what would be found after a crash."""
    with op.durable(crashed(durable, to)) as again:
        assert (again.version, again.rows_seen) == (durable.version, durable.rows_seen)
        assert again.positions == durable.positions
        assert again.published[0] == durable.published[0]
        assert bits(again) == bits(durable)


# -- handlers of signals ---------------------------------------------------------------------------

VERBS: dict[str, Verb] = {
    "snapshot": lambda durable: durable.snapshot(),
    "rollback": lambda durable: durable.rollback(to=1),
    "model": lambda durable: durable.model(),
    "close": lambda durable: durable.close(),
}


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("work", ["to_bytes", "copied", "learn", "from_bytes"])
def test_a_handler_that_learns_is_refused_while_the_learner_is_packed_or_made(
    verb: str, work: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a snapshot would hold other rows than it says, and the file could not be opened."""
    durable = op.durable(tmp_path / "m.db", op.RLSRegressor())
    for i in range(3):
        durable.learn(X[i : i + 1], Y[i : i + 1])
    refused: list[str] = []
    real = getattr(Charge, work)

    def handled(*given: Any) -> Any:
        for each in (lambda: durable.learn(X[:1], Y[:1]), lambda: durable.ask(X), durable.settle):
            with pytest.raises(StoreError) as wrong:
                each()
            refused.append(str(wrong.value))
        return real(*given)

    monkeypatch.setattr(Charge, work, handled)
    VERBS[verb](durable)
    monkeypatch.undo()
    told = "no handler of signals"
    assert all(told in each or "was closed" in each for each in refused)
    if verb != "close":
        assert durable.rows_seen == 3
        durable.learn(X[3:4], Y[3:4])
        same_on_disk(durable, tmp_path / "copy")
        durable.close()
    with op.durable(tmp_path / "m.db") as again:
        assert again.rows_seen == (3 if verb == "close" else 4)


def test_a_snapshot_is_of_the_log_when_the_learner_was_packed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with op.durable(tmp_path / "m.db", op.RLSRegressor()) as durable:
        durable.learn(X[:5], Y[:5])
        real = Journal.snapshot

        def later(self: Journal, taken: Any) -> None:
            monkeypatch.undo()
            durable._writer.pass_by("a", "1")
            real(self, taken)

        monkeypatch.setattr(Journal, "snapshot", later)
        durable.snapshot()
        same_on_disk(durable, tmp_path / "copy")


# -- interrupts ------------------------------------------------------------------------------------


def interrupted_at(step: str, durable: Durable, work: Callable[[], Any]) -> None:
    """Do it until a step of what is written, and be interrupted there; the mending is too."""
    journal = durable._journal
    holds = journal.holds

    def interrupt(*_: Any) -> Any:
        raise Interrupted

    def reached(name: str) -> None:
        if name == step:
            journal.holds = interrupt  # type: ignore[method-assign]
            raise Interrupted

    journal.reached = reached  # type: ignore[method-assign]
    with pytest.raises(Interrupted):
        work()
    del journal.reached
    journal.holds = holds  # type: ignore[method-assign]


LATER: dict[str, Verb] = {
    "settle": lambda durable: durable.settle(),
    "snapshot": lambda durable: durable.snapshot(),
    "model": lambda durable: durable.model(),
    "rollback": lambda durable: durable.rollback(to=1),
    "pass_by": lambda durable: durable.pass_by("b", "1"),
    "positions": lambda durable: durable.positions,
    "published": lambda durable: durable.published,
    "learn": lambda durable: durable.learn(X[:1], Y[:1]),
    "answer": lambda durable: durable.answer(durable.ask(X[:1])[1], Y[:1]),
    "versions": lambda durable: durable.versions,
}


@pytest.mark.parametrize("verb", LATER)
@pytest.mark.parametrize("step", ["begun", "before commit", "after commit", "published"])
def test_what_was_interrupted_is_landed_before_anything_else(
    step: str, verb: str, tmp_path: Path
) -> None:
    with op.durable(tmp_path / "m.db", op.RLSRegressor()) as durable:
        durable.learn(X[:5], Y[:5])
        interrupted_at(
            step, durable, lambda: durable.learn(X[5:9], Y[5:9], source="a", position="9")
        )
        LATER[verb](durable)
        there = {"a": "9"} if step in {"after commit", "published"} else {}
        if verb != "versions":
            assert durable.positions == there | ({"b": "1"} if verb == "pass_by" else {})
        durable.settle()
        assert durable.positions.get("a") == there.get("a")
        assert durable.published[0] == durable.version
        assert durable.rows_seen == (9 if there else 5) + (verb in {"learn", "answer"})
        same_on_disk(durable, tmp_path / "copy")


@pytest.mark.parametrize(
    "work", [lambda durable: durable.rollback(to=1), lambda durable: durable.pass_by("a", "1")]
)
def test_a_way_back_that_was_interrupted_is_mended_without_rows(work: Verb, tmp_path: Path) -> None:
    with op.durable(tmp_path / "m.db", op.RLSRegressor()) as durable:
        durable.learn(X[:5], Y[:5])
        durable.learn(X[5:9], Y[5:9])
        interrupted_at("after commit", durable, lambda: work(durable))
        durable.settle()
        assert durable.version == durable.published[0] == 3
        same_on_disk(durable, tmp_path / "copy")


def test_to_close_after_an_interrupt_keeps_what_waits(tmp_path: Path) -> None:
    path = tmp_path / "m.db"
    durable = op.durable(path, op.RLSRegressor())
    first = durable.request(X[:5], Y[:5])
    interrupted_at("after commit", durable, durable.settle)
    second = durable.request(X[5:9], Y[5:9])
    durable.close()
    assert (first.result().version, second.result().version) == (1, 2)
    with op.durable(path) as again:
        assert again.rows_seen == 9
        assert again.versions[-1].why == "close"


def test_whoever_only_asks_does_not_land_what_another_is_at(tmp_path: Path) -> None:
    told: list[Any] = []
    with op.durable(tmp_path / "m.db", op.RLSRegressor()) as durable:
        durable.learn(X[:5], Y[:5])

        def reached(name: str) -> None:
            if name == "after commit":
                told.append((durable.published[0], durable.positions))

        durable._journal.reached = reached  # type: ignore[method-assign]
        durable.learn(X[5:9], Y[5:9], source="a", position="9")
        del durable._journal.reached
        assert told == [(1, {})]
        assert (durable.published[0], durable.positions) == (2, {"a": "9"})


def test_a_copy_is_given_on_a_full_disk(tmp_path: Path) -> None:
    with op.durable(tmp_path / "m.db", op.RLSRegressor()) as durable:
        durable.learn(X[:5], Y[:5])
        was = bits(durable)
        fill(durable)
        with pytest.raises(StoreError, match="full"):
            durable.learn(np.tile(X, (90, 1)), np.tile(Y, 90))
        assert bits(durable) == was
        assert not durable.ready
        make_room(durable)
        durable.learn(X[5:9], Y[5:9])
        assert durable.ready


def test_who_was_not_told_for_an_interrupt_is_told_later(tmp_path: Path) -> None:
    told: list[Any] = []

    def interrupt(request: Any) -> None:
        told.append(request)
        raise Interrupted

    with op.durable(tmp_path / "m.db", op.RLSRegressor()) as durable:
        given = [
            durable.request(X[:1], Y[:1], done=interrupt),
            durable.request(X[:1] * np.nan, Y[:1], done=told.append),
            durable.request(X[1:2], Y[1:2], done=told.append),
        ]
        with pytest.raises(Interrupted):
            durable.settle()
        durable.settle()
        assert told == given
        assert [each.error is None for each in given] == [True, False, True]
        assert durable.rows_seen == 2


@pytest.mark.parametrize("full", [False, True])
def test_what_was_refused_stays_so_whatever_interrupts(tmp_path: Path, *, full: bool) -> None:
    """The fate of a group is certain at once, though its requests are settled one by one."""
    told: list[Any] = []

    class Slow(Request):
        """It is interrupted when it is settled."""

        def __setattr__(self, name: str, value: Any) -> None:
            if name == "settled" and value and left:
                left.pop()
                raise Interrupted
            super().__setattr__(name, value)

    with op.durable(tmp_path / "m.db", op.RLSRegressor()) as durable:
        durable.learn(X[:5], Y[:5])
        wrong = X[:2] * np.nan
        rows = [wrong, np.tile(X, (90, 1)) if full else wrong, wrong]
        if full:
            fill(durable)
        left = [0]
        for i, each in enumerate(rows):
            block = Block(each, np.ones(len(each)))
            kind = Slow if i == 1 else Request
            durable._queue.pending.append(kind(block, b"", block.X.nbytes, done=told.append))
        given = list(durable._queue.pending)
        with pytest.raises(Interrupted):
            durable.settle()
        make_room(durable)
        durable.settle()
        assert told == given
        for each in given:
            assert each.settled
            assert (each.receipt is None) != (each.error is None)
        assert all(given[i].error is not None for i in (0, 2))
        same_on_disk(durable, tmp_path / "copy")


@pytest.mark.parametrize("step", ["published", "acknowledged"])
def test_whoever_watches_is_told_of_each_block_once_whatever_interrupts(
    step: str, tmp_path: Path
) -> None:
    seen: list[int] = []

    def begin(_: Any) -> Any:
        def watch(block: Any, _: Any) -> None:
            seen.append(len(block))
            if len(seen) == 2:
                raise Interrupted

        return watch

    with op.durable(tmp_path / "m.db", op.RLSRegressor(), watch=begin) as durable:
        interrupted_at(step, durable, lambda: durable.learn(X[:1], Y[:1]))
        durable.settle()
        assert seen == [1]
        one = durable.request(X[:2], Y[:2], source="a", position="1")
        two = durable.request(X[:3], Y[:3], source="a", position="2")
        with pytest.raises(Interrupted):
            durable.settle()
        durable.settle()
        assert seen == [1, 2, 3]
        assert (one.result().version, two.result().version) == (2, 3)


def test_want_of_memory_breaks_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows are refused as long as the learner cannot be made again; then it goes on."""
    with op.durable(tmp_path / "m.db", op.RLSRegressor()) as durable:
        durable.learn(X[:5], Y[:5])
        durable.learn(X[5:9], Y[5:9])
        was = bits(durable)
        fill(durable)
        with pytest.raises(StoreError, match="full"):
            durable.learn(np.tile(X, (90, 1)), np.tile(Y, 90))
        make_room(durable)

        def small(*_: Any) -> Any:
            raise MemoryError("for once")

        monkeypatch.setattr(Charge, "learn", small)
        given = durable.request(X[:1], Y[:1])
        for verb in (lambda: durable.learn(X[:1], Y[:1]), durable.settle, durable.model):
            with pytest.raises(MemoryError, match="for once"):
                verb()
        with pytest.raises(MemoryError, match="for once"):
            given.result()
        assert durable.ready
        assert durable.trouble is None
        monkeypatch.undo()
        assert bits(durable) == was
        durable.learn(X[9:10], Y[9:10])
        same_on_disk(durable, tmp_path / "copy")


def test_want_of_memory_on_opening_is_told_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with op.durable(tmp_path / "m.db", op.RLSRegressor()) as durable:
        durable.learn(X[:5], Y[:5])
        path = crashed(durable, tmp_path / "copy")

    def small(*_: Any) -> Any:
        raise MemoryError

    monkeypatch.setattr(Charge, "learn", small)
    with pytest.raises(MemoryError):
        op.durable(path)
    monkeypatch.undo()
    with op.durable(path) as again:
        assert again.rows_seen == 5


def test_to_close_tells_what_was_kept_when_it_is_interrupted_itself(tmp_path: Path) -> None:
    told: list[Any] = []
    durable = op.durable(tmp_path / "m.db", op.RLSRegressor())
    durable.request(X[:5], Y[:5], done=told.append)

    def reached(name: str) -> None:
        if name == "published":
            del durable._journal.reached
            durable.request(X[5:9], Y[5:9], done=told.append)
            raise Interrupted

    durable._journal.reached = reached  # type: ignore[method-assign]
    with pytest.raises(Interrupted):
        durable.close()
    first, second = told
    assert first.result().version == 1
    with pytest.raises(StoreError, match="was closed"):
        second.result()
    with op.durable(tmp_path / "m.db") as again:
        assert again.rows_seen == 5


def test_rows_that_were_asked_and_interrupted_are_not_counted(tmp_path: Path) -> None:
    with op.durable(tmp_path / "m.db", op.RLSRegressor()) as durable:
        durable.ask(X[:2])
        take_back = durable._journal._take_back

        def interrupt() -> None:
            raise Interrupted

        def reached(name: str) -> None:
            if name == "asked":
                durable._journal._take_back = interrupt  # type: ignore[method-assign]
                raise Interrupted

        durable._journal.reached = reached  # type: ignore[method-assign]
        with pytest.raises(Interrupted):
            durable.ask(X[:3])
        del durable._journal.reached
        durable._journal._take_back = take_back  # type: ignore[method-assign]
        assert durable.waiting == 2
