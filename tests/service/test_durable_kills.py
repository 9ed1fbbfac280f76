"""Kills at each step of the journal: acknowledged rows are learned exactly once."""

import os
import re
import signal
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

if sys.platform == "win32":
    pytest.skip("no signals there", allow_module_level=True)

from durable_files import query, state_bits
from durable_kills import STEPS, Plan, check_result, plan_fork_server, rows_of
from kill_checks import KillReport

import onepass as op
from fork_server import ForkServer
from onepass import service

ELSEWHERE = {"swept keys"}  # below


@pytest.fixture(scope="module")
def fork_server() -> Iterator[ForkServer]:
    with plan_fork_server() as found:
        yield found


def test_steps_are_those_of_the_source() -> None:
    source = Path(service.__file__).parent
    named = {
        step
        for path in source.glob("*.py")
        for step in re.findall(r'\.reached\("([^"]+)"\)', path.read_text())
    }
    assert named == STEPS.keys() | ELSEWHERE


def positions() -> list[tuple[str, int]]:
    """The first and the last time of each step; with a seed, one of the two."""
    chosen = sorted({(step, nth) for step, most in STEPS.items() for nth in (1, most)})
    if os.environ.get("ONEPASS_TEST_ALL") == "1":
        return chosen
    rng = np.random.default_rng(int(os.environ.get("ONEPASS_TEST_SEED", "0")))
    return sorted((step, int(rng.choice([1, most]))) for step, most in STEPS.items())


@pytest.mark.parametrize(("step", "nth"), positions())
def test_rows_are_learned_once_after_a_kill_at_a_step(
    step: str, nth: int, fork_server: ForkServer, tmp_path: Path
) -> None:
    plan = Plan(str(tmp_path), step=step, nth=nth, snapshots=2)
    assert fork_server.run(plan) == -signal.SIGKILL
    assert fork_server.run(replace(plan, step="")) == 0
    check(plan)
    assert not list(tmp_path.glob(".onepass-*"))


def check(plan: Plan) -> None:
    report = KillReport()
    check_result(plan, report)
    assert not report.error


def test_rows_are_learned_once_after_a_kill_at_each_commit(
    fork_server: ForkServer, tmp_path: Path
) -> None:
    plan = Plan(str(tmp_path), step="after commit", nth=2)
    runs = 0
    while fork_server.run(plan):
        runs += 1
    assert runs > 8
    check(plan)


@pytest.mark.parametrize("step", ["begun", "entry", "snapshot", "before commit", "after commit"])
def test_rollback_is_complete_or_absent_after_a_kill(
    step: str, fork_server: ForkServer, tmp_path: Path
) -> None:
    """The version after the kill is that before or after the rollback."""
    plan = Plan(str(tmp_path), step=step, task="back")
    with op.durable(plan.path, op.RLSRegressor()) as model:
        for i in range(6):
            model.learn(*rows_of(0, i, 2), key=f"0-{i}")
            if model.version == 3:
                early = state_bits(model)
        late = state_bits(model)
    assert fork_server.run(plan) == -signal.SIGKILL
    there = step == "after commit"
    with op.durable(plan.path) as model:
        assert state_bits(model) == (early if there else late)
        assert model.version == (7 if there else 6)
        assert model.learn(*rows_of(0, 5, 2), key="0-5").repeated
        model.rollback(to=6)
        assert state_bits(model) == late


@pytest.mark.parametrize("step", ["begun", "swept keys", "before commit", "after commit"])
def test_expiry_is_complete_or_absent_after_a_kill(
    step: str, fork_server: ForkServer, tmp_path: Path
) -> None:
    plan = Plan(str(tmp_path), step=step, task="sweep")
    with op.durable(plan.path, op.RLSRegressor()) as model:
        model.learn(*rows_of(0, 0, 2), key="0-0")
        model.predict_pending(rows_of(0, 1, 3)[0])
        before = state_bits(model)
    assert fork_server.run(plan) == -signal.SIGKILL
    gone = step == "after commit"
    assert query(plan.path, "SELECT count(*) FROM keys") == [(0 if gone else 1,)]
    assert query(plan.path, "SELECT count(*) FROM pending") == [(0 if gone else 3,)]
    with op.durable(plan.path) as model:
        assert state_bits(model) == before
