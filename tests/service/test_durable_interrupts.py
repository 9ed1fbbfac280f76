"""A handler of signals, or an interrupt, comes in between: what was begun is brought to its end."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from durable_files import bits, crashed

import onepass as op
from onepass.errors import StoreError
from onepass.service import Durable
from onepass.service.charge import Charge
from onepass.service.journal import Journal

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
            durable._keeper.pass_by("a", "1")
            real(self, taken)

        monkeypatch.setattr(Journal, "snapshot", later)
        durable.snapshot()
        same_on_disk(durable, tmp_path / "copy")
