"""Whatever is killed, and whenever: each entry of a stream is learned once."""

import signal
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

if sys.platform == "win32":
    pytest.skip("no signals there", allow_module_level=True)

from durable_kills import KILLS
from redis_server import RedisServer
from source_kills import Plan, Producer, good, held, killed, nursery_of_plans

from nursery import Nursery

ENTRIES = 151  # the last is a row: with it the last that is none is passed by
STEPS = {
    "made": (1,),
    "in place": (1,),
    "begun": (1, 5),
    "entry": (1, 5),
    "snapshot": (1, 2),
    "before commit": (1, 5),
    "after commit": (1, 5),
    "published": (1, 4),
    "acknowledged": (1, 4),
}


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    with nursery_of_plans() as found:
        yield found


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with RedisServer(tmp_path_factory.mktemp("redis")) as found:
        yield found


@pytest.mark.parametrize(
    ("step", "nth"), [(step, nth) for step, times in STEPS.items() for nth in times]
)
def test_killed_at_a_step(
    step: str, nth: int, nursery: Nursery, server: RedisServer, tmp_path: Path
) -> None:
    server.client().flushall()
    plan = Plan(str(tmp_path), server.url(), len(good(ENTRIES)), step=step, nth=nth)
    with Producer(server, ENTRIES):
        assert nursery.run(plan) == -signal.SIGKILL
        assert nursery.run(replace(plan, step="")) == 0
    held(plan, ENTRIES)


def test_killed_again_and_again_at_every_commit(
    nursery: Nursery, server: RedisServer, tmp_path: Path
) -> None:
    server.client().flushall()
    plan = Plan(str(tmp_path), server.url(), len(good(ENTRIES)), step="after commit", nth=2)
    runs = 0
    with Producer(server, ENTRIES):
        while nursery.run(plan):
            runs += 1
    assert runs > 2
    held(plan, ENTRIES)


def test_killed_at_random_moments(tmp_path: Path) -> None:
    """The learner, Redis, and both; ``ONEPASS_KILLS`` is how often."""
    found = killed(tmp_path, KILLS)
    assert set(found.codes) == {0, -signal.SIGKILL}
    assert found.codes[0] == 1
