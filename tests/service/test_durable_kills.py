"""Whatever is killed, and whenever: nothing acknowledged is lost, and nothing is learned twice."""

import re
import signal
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from durable_files import asked_of, bits
from durable_kills import KILLS, Plan, held, killed, nursery_of_plans, rows_of, unbroken

import onepass as op
from nursery import Nursery
from onepass import service

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="no signals there")

STEPS = {
    "made": (1,),
    "in place": (1,),
    "begun": (1, 9),
    "entry": (1, 12),
    "keys": (1, 5),
    "asked": (1,),
    "answered": (1, 2),
    "snapshot": (1, 2, 3),
    "pruned snapshots": (1,),
    "before commit": (1, 7),
    "after commit": (1, 7),
    "published": (1, 6),
    "acknowledged": (1, 11),
}
"""What ``Journal.reached`` names, and the times at which it is stopped there."""
ELSEWHERE = {"swept keys"}  # below


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    with nursery_of_plans() as found:
        yield found


def test_all_steps_are_here() -> None:
    source = Path(service.__file__).parent
    named = {
        step
        for path in source.glob("*.py")
        for step in re.findall(r'\.reached\("([^"]+)"\)', path.read_text())
    }
    assert named == STEPS.keys() | ELSEWHERE


@pytest.mark.parametrize(
    ("step", "nth"), [(step, nth) for step, times in STEPS.items() for nth in times]
)
def test_killed_at_a_step(step: str, nth: int, nursery: Nursery, tmp_path: Path) -> None:
    plan = Plan(str(tmp_path), step=step, nth=nth, keep=2)
    assert nursery.run(plan) == -signal.SIGKILL
    assert nursery.run(replace(plan, step="")) == 0
    held(plan)
    assert not list(tmp_path.glob(".onepass-*"))


def test_killed_again_and_again_at_every_commit(nursery: Nursery, tmp_path: Path) -> None:
    plan = Plan(str(tmp_path), step="after commit", nth=2, keep=1000)
    runs = 0
    while nursery.run(plan):
        runs += 1
    assert runs > 8
    held(plan)
    assert unbroken(plan)


@pytest.mark.parametrize("step", ["begun", "entry", "snapshot", "before commit", "after commit"])
def test_killed_while_it_goes_back(step: str, nursery: Nursery, tmp_path: Path) -> None:
    """``rollback`` is there, or it is not."""
    plan = Plan(str(tmp_path), step=step, task="back")
    with op.durable(plan.path, op.RLSRegressor()) as model:
        for i in range(6):
            model.learn(*rows_of(0, i, 2), key=f"0-{i}")
            if model.version == 3:
                early = bits(model)
        late = bits(model)
    assert nursery.run(plan) == -signal.SIGKILL
    there = step == "after commit"
    with op.durable(plan.path) as model:
        assert bits(model) == (early if there else late)
        assert model.version == (7 if there else 6)
        assert model.learn(*rows_of(0, 5, 2), key="0-5").again
        model.rollback(to=6)
        assert bits(model) == late


@pytest.mark.parametrize("step", ["begun", "swept keys", "before commit", "after commit"])
def test_killed_while_it_lets_go_what_is_too_old(
    step: str, nursery: Nursery, tmp_path: Path
) -> None:
    plan = Plan(str(tmp_path), step=step, task="sweep")
    with op.durable(plan.path, op.RLSRegressor()) as model:
        model.learn(*rows_of(0, 0, 2), key="0-0")
        model.ask(rows_of(0, 1, 3)[0])
        before = bits(model)
    assert nursery.run(plan) == -signal.SIGKILL
    gone = step == "after commit"
    assert asked_of(plan.path, "SELECT count(*) FROM keys") == [(0 if gone else 1,)]
    assert asked_of(plan.path, "SELECT count(*) FROM asked") == [(0 if gone else 3,)]
    with op.durable(plan.path) as model:
        assert bits(model) == before


def test_killed_at_random_moments(tmp_path: Path) -> None:
    """``ONEPASS_KILLS`` is how often."""
    found = killed(tmp_path, KILLS, threads=6, requests=30, source=10, asked=6)
    assert found.kills >= KILLS
    assert set(found.codes) <= {0, -signal.SIGKILL}
