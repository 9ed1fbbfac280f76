"""Files of former formats are read; an interrupted upgrade is complete or absent."""

import json
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from durable_files import copy_after_crash, execute_sql, query, state_bits
from former_files import FORMER, array, predictions, rows
from journal_upgrades import Plan, execute
from safetensors.numpy import load as arrays_of

import onepass as op
from cases import snapshot
from fork_server import ForkServer
from onepass.errors import CorruptStoreError
from onepass.serialization import archive, models
from onepass.service import schema
from onepass.service.monitoring import Gauges, MetricsFile
from onepass.service.requests import Block

MODELS = sorted(FORMER.glob("*.onepass"))
JOURNALS = sorted(FORMER.glob("*.db"))
FORMER_JOURNALS = [each for each in JOURNALS if each.stem != f"journal-{schema.FORMAT}"]


def expected(path: Path) -> Any:
    """The expected content of a file."""
    return json.loads(path.with_suffix(".json").read_text())


def same(now: Any, then: list[Any]) -> None:
    """Compare numbers up to rounding, and text exactly."""
    if isinstance(then[0], str):
        assert list(now) == then
    else:
        np.testing.assert_allclose(now, then, rtol=1e-9)


def test_each_format_has_a_file() -> None:
    """A new format brings its files: see ``former_files``."""
    assert {path.stem for path in JOURNALS} == {f"journal-{n}" for n in schema._LAYOUTS}
    formats = {int(path.stem.rpartition("-")[2]) for path in MODELS}
    assert formats == set(range(1, archive.FORMAT + 1))


# -- model files -----------------------------------------------------------------------------------


@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.stem)
def test_model_files_of_each_format_are_read(path: Path) -> None:
    name = path.stem.rpartition("-")[0]
    learner = op.load(path)
    before, after = path.read_bytes(), models.dumps(learner, "here")
    same(predictions(name, learner), expected(path)["said"])
    arrays, again = arrays_of(before), arrays_of(after)
    # the same arrays, some of them under their present names
    assert sorted(a.tobytes() for a in arrays.values() if a.size) == sorted(
        a.tobytes() for a in again.values() if a.size
    )
    seen = learner.rows_seen_ if hasattr(learner, "rows_seen_") else learner.learner_.rows_seen_
    assert seen == 60
    X, y = (rows if name == "pipeline" else array)(60, 70)
    if isinstance(expected(path)["said"][0], str):
        y = np.resize(["sea", "rail"], 10)  # one of them is new
    learner.partial_fit(X, y)
    assert snapshot(learner) != snapshot(op.load(path))


# -- journals, and the gauges beside them ----------------------------------------------------------


class Found:
    """A copy of a journal of a former version."""

    def __init__(self, former: Path, folder: Path) -> None:
        self.expected = expected(former)
        self.path = folder / "m.db"
        self.gauges = folder / "m.gauges"
        shutil.copyfile(former, self.path)
        shutil.copyfile(former.with_suffix(".gauges"), self.gauges)

    def opened(self, **settings: Any) -> Any:
        """Open the journal, with the clock at the time when it was written."""
        return op.durable(self.path, clock=lambda: self.expected["at"], **settings)

    @property
    def format(self) -> int:
        number: int = query(self.path, "PRAGMA user_version")[0][0]
        return number

    def by_hand(self) -> Any:
        """The learner, restored from the last snapshot and the blocks after it."""
        ((sequence, body),) = query(
            self.path, "SELECT sequence, body FROM snapshots ORDER BY sequence DESC LIMIT 1"
        )
        learner = models.from_contents(archive.loads(body, "here"), "here", {})
        blocks = f"SELECT body FROM log WHERE kind = 'learn' AND sequence > {sequence}"  # noqa: S608
        for (body,) in query(self.path, f"{blocks} ORDER BY sequence"):
            block = Block.from_bytes(body, "here")
            learner.test_then_train(block.X, block.y, **block.named())
        return learner

    def held(self) -> None:
        """Check the state bit for bit, the records, and that the learner continues."""
        by_hand = self.by_hand()
        with self.opened() as durable:
            assert durable.version == self.expected["version"]
            assert durable.rows_seen == self.expected["rows"]
            assert durable.positions == self.expected["positions"]
            versions = [each.version for each in durable.versions]
            assert versions[:3] == self.expected["versions"]
            same(predictions("journal", durable.frozen_copy), self.expected["said"])
            assert snapshot(durable.model()) == snapshot(by_hand)
            self._same_keys(durable)
            for learner in (durable, by_hand):
                learner.partial_fit(*rows(45, 60))
            vars(by_hand)
            assert snapshot(durable.model()) == snapshot(by_hand)
            left = state_bits(durable)
            durable.rollback(to=5)
            durable.rollback(to=self.expected["version"] + 1)
            assert state_bits(durable) == left
            waiting = durable.labels_pending
            durable.learn_labels(self.expected["ids"][1:], rows(26, 28)[1])
            assert (waiting, durable.labels_pending) == (2, 0)
            copy = copy_after_crash(durable, self.path.parent / "copy")
            left = state_bits(durable)
        with op.durable(copy) as again:  # all that it wrote is read again
            assert state_bits(again) == left

    def _same_keys(self, durable: Any) -> None:
        result = durable.learn(*rows(0, 20), key="first")
        assert (result.repeated, result.version) == (True, 1)
        result = durable.learn_labels(self.expected["ids"][:1], rows(25, 26)[1])
        assert (result.repeated, result.version) == (True, 3)


@pytest.fixture(params=JOURNALS, ids=lambda path: path.stem)
def found(request: pytest.FixtureRequest, tmp_path: Path) -> Found:
    return Found(request.param, tmp_path)


def test_journals_of_each_format_are_read_bit_for_bit(found: Found) -> None:
    found.held()
    assert found.format == schema.FORMAT


@pytest.mark.parametrize(
    "statement", ["DROP INDEX keys_by_time", "DROP TABLE asked", "CREATE VIEW more AS SELECT 1"]
)
def test_edited_files_are_not_upgraded(found: Found, statement: str) -> None:
    execute_sql(found.path, statement)
    was = found.path.read_bytes()
    with pytest.raises(CorruptStoreError, match="its tables are not those of its format"):
        found.opened()
    assert found.path.read_bytes() == was


def test_metrics_of_each_format_are_read(found: Found) -> None:
    gauges: list[Gauges] = []

    def watch(learner: Any) -> Any:
        gauges.append(Gauges(learner, window=20))
        return gauges[0].learned

    with found.opened(watch=watch) as durable:
        MetricsFile(found.gauges).read(gauges[0], durable.rows_seen)
    then, now = found.expected["error"], gauges[0].prequential_error()
    same([now["all"], now["window"]], [then["all"], then["window"]])
    same([point[:3] for point in now["curve"]], [point[:3] for point in then["curve"]])
    assert (now["name"], now["window_rows"]) == (then["name"], then["window_rows"])
    assert gauges[0].rows_refused == found.expected["refused"]


def test_metrics_with_other_fields_are_ignored(found: Found) -> None:
    """A later version may write other fields."""
    state = archive.loads(found.gauges.read_bytes(), "here").tree
    del state["squares"]
    found.gauges.write_bytes(archive.dumps(state, "here", kind="gauges"))
    with found.opened() as durable:
        gauges = Gauges(durable.frozen_copy, window=20)
        MetricsFile(found.gauges).read(gauges, durable.rows_seen)
    assert (gauges.state()["rows"], gauges.rows_refused) == (0, 0)


# -- interrupted upgrades --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def fork_server() -> Iterator[ForkServer]:
    with ForkServer(
        "import journal_upgrades", "journal_upgrades.execute(journal_upgrades.Plan(**given))"
    ) as fork_server:
        yield fork_server


def left(found: Found, former: int) -> bool:
    """Whether the file still has its former format; else it was upgraded.

    Its content is complete in both cases.
    """
    shutil.copyfile(found.path, found.path.with_name("left.db"))
    for ending in ("-wal", ".lock"):
        if (beside := Path(f"{found.path}{ending}")).exists():
            shutil.copyfile(beside, found.path.with_name(f"left.db{ending}"))
    number = query(found.path.with_name("left.db"), "PRAGMA user_version")[0][0]
    found.held()
    assert found.format == schema.FORMAT
    assert number in {former, schema.FORMAT}
    return bool(number == former)


@pytest.mark.skipif(sys.platform == "win32", reason="no signals there")
@pytest.mark.parametrize("path", FORMER_JOURNALS, ids=lambda path: path.stem)
def test_killed_upgrade_is_complete_or_absent(
    path: Path, fork_server: ForkServer, tmp_path: Path
) -> None:
    """At steps of SQLite's virtual machine that are spread over the upgrade."""
    before, steps = [], 1
    while not before or before[-1]:
        (tmp_path / str(steps)).mkdir()
        found = Found(path, tmp_path / str(steps))
        former = found.format
        code = fork_server.run(Plan(str(found.path), found.expected["at"], killed=steps))
        assert code in {0, -signal.SIGKILL}
        before.append(left(found, former))
        steps += max(1, steps // 3)
    assert len(before) > 10


@pytest.mark.parametrize("path", FORMER_JOURNALS, ids=lambda path: path.stem)
def test_upgrade_on_a_full_disk_changes_nothing(path: Path, tmp_path: Path) -> None:
    """The error is raised, nothing is changed, and the upgrade succeeds once there is space."""
    found, room, full = Found(path, tmp_path), 0, True
    was = query(found.path, "SELECT * FROM keys"), found.format
    while full:
        full = execute(Plan(str(found.path), found.expected["at"], room=room)) == 3
        if full:
            assert (query(found.path, "SELECT * FROM keys"), found.format) == was
        room += 1
    assert room > 2
    assert found.format == schema.FORMAT
    found.held()
