"""Whatever is killed, and whenever: nothing acknowledged is lost, and nothing is learned twice."""

import re
import signal
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

if sys.platform == "win32":
    pytest.skip("no signals there", allow_module_level=True)

from durable_files import bits, query
from durable_kills import STEPS, Plan, fork_server_of_plans, held, rows_of
from fates import Found

import onepass as op
from fork_server import ForkServer
from onepass import service

ELSEWHERE = {"swept keys"}  # below


@pytest.fixture(scope="module")
def fork_server() -> Iterator[ForkServer]:
    with fork_server_of_plans() as found:
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
    ("step", "nth"), sorted({(step, nth) for step, most in STEPS.items() for nth in (1, most)})
)
def test_killed_at_a_step(step: str, nth: int, fork_server: ForkServer, tmp_path: Path) -> None:
    plan = Plan(str(tmp_path), step=step, nth=nth, snapshots=2)
    assert fork_server.run(plan) == -signal.SIGKILL
    assert fork_server.run(replace(plan, step="")) == 0
    hold(plan)
    assert not list(tmp_path.glob(".onepass-*"))


def hold(plan: Plan) -> None:
    found = Found()
    held(plan, found)
    assert not found.error


def test_killed_again_and_again_at_every_commit(fork_server: ForkServer, tmp_path: Path) -> None:
    plan = Plan(str(tmp_path), step="after commit", nth=2)
    runs = 0
    while fork_server.run(plan):
        runs += 1
    assert runs > 8
    hold(plan)


@pytest.mark.parametrize("step", ["begun", "entry", "snapshot", "before commit", "after commit"])
def test_killed_while_it_goes_back(step: str, fork_server: ForkServer, tmp_path: Path) -> None:
    """``rollback`` is there, or it is not."""
    plan = Plan(str(tmp_path), step=step, task="back")
    with op.durable(plan.path, op.RLSRegressor()) as model:
        for i in range(6):
            model.learn(*rows_of(0, i, 2), key=f"0-{i}")
            if model.version == 3:
                early = bits(model)
        late = bits(model)
    assert fork_server.run(plan) == -signal.SIGKILL
    there = step == "after commit"
    with op.durable(plan.path) as model:
        assert bits(model) == (early if there else late)
        assert model.version == (7 if there else 6)
        assert model.learn(*rows_of(0, 5, 2), key="0-5").repeated
        model.rollback(to=6)
        assert bits(model) == late


@pytest.mark.parametrize("step", ["begun", "swept keys", "before commit", "after commit"])
def test_killed_while_it_deletes_expired_records(
    step: str, fork_server: ForkServer, tmp_path: Path
) -> None:
    plan = Plan(str(tmp_path), step=step, task="sweep")
    with op.durable(plan.path, op.RLSRegressor()) as model:
        model.learn(*rows_of(0, 0, 2), key="0-0")
        model.predict_pending(rows_of(0, 1, 3)[0])
        before = bits(model)
    assert fork_server.run(plan) == -signal.SIGKILL
    gone = step == "after commit"
    assert query(plan.path, "SELECT count(*) FROM keys") == [(0 if gone else 1,)]
    assert query(plan.path, "SELECT count(*) FROM asked") == [(0 if gone else 3,)]
    with op.durable(plan.path) as model:
        assert bits(model) == before
