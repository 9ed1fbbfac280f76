"""Whatever is killed, and whenever: no row is lost or learned twice, and weights are equal."""

import json
import os
import sys
from pathlib import Path

import pytest

if sys.platform == "win32":
    pytest.skip("no signals there", allow_module_level=True)

import numpy as np
from kill_checks import ANY_MOMENT, CREATION_STEPS, KillPoint, KillReport, KillSchedule
from kills import SHARES, WAYS, killed

from scripts import script

KILLS = int(os.environ.get("ONEPASS_KILLS", "30"))


@pytest.mark.parametrize("way", WAYS)
def test_killed_at_steps_and_at_any_moment(way: str, tmp_path: Path) -> None:
    """``ONEPASS_KILLS`` is how often in all."""
    found = killed(way, tmp_path, KILLS)
    assert not found.error
    assert found.kills >= round(SHARES[way] * KILLS)
    assert found.rows > found.rounds


def test_each_step_comes_before_any_comes_again() -> None:
    steps = {"created": 1, "in place": 1, "begun": 3, "entry": 2}
    schedule = KillSchedule(steps, 15, np.random.default_rng(0))
    taken: list[KillPoint] = []
    while schedule:
        kills = 0
        while (point := schedule.next_point(kills=kills, exists=kills > 1)) is not None:
            assert point.place not in CREATION_STEPS or kills < 2
            taken.append(point)
            kills += 1
    assert len(taken) == 15
    places = [each.place for each in taken]
    assert all(places.count(step) >= 2 for step in steps)
    assert places.count(ANY_MOMENT) >= 5
    assert all(1 <= each.nth <= steps.get(each.place, 1) for each in taken)


def test_what_is_wrong_is_counted() -> None:
    found = KillReport()
    found.count_rows("abcd", ["ab", "cd"])
    assert not found.error
    found.count_rows("abcb", ["ab", "cd"])
    assert found.error == "1 rows lost; 1 rows learned twice"
    found = KillReport()
    found.count_rows("bax", ["ab"])
    assert "not in order" in found.error
    assert "1 rows were learned that nobody sent" in found.error
    found = KillReport()
    found.count_kill(KillPoint("entry"), -9, late=True)
    found.count_kill(KillPoint("entry"), 1)
    assert "never reached" in found.error
    assert "exit code 1" in found.error
    assert found.kills == 2


def test_a_thousand_were_killed_and_nothing_was_lost() -> None:
    """As the table in docs/results/service.md has it."""
    path = script("tables").RESULTS / "kills.json"
    ways = json.loads(path.read_text(encoding="utf-8"))["ways"].values()
    assert sum(sum(one["killed"].values()) for one in ways) >= 1_000
    for one in ways:
        assert (one["lost"], one["twice"], one["wrong"]) == (0, 0, "")
        assert one["equal"] == one["rounds"]
