"""``examine``: all records of a file are checked, and the file is unchanged."""

import hashlib
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from durable_files import copy_after_crash, execute_sql

import onepass as op
from onepass.cli import main
from onepass.errors import CorruptStoreError, LockedError, StoreError
from onepass.service import examine
from raising import raises

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 4))
Y = X @ np.arange(4.0)


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a file that was closed, and in ``crashed`` as a crash would leave it."""
    folder = tmp_path_factory.mktemp("kept")
    with op.durable(folder / "m.db", op.RLSRegressor(ridge=0.5), snapshot_rows=12) as durable:
        for i in range(0, 30, 5):
            durable.learn(X[i : i + 5], Y[i : i + 5], key=f"from {i}")
        durable.learn(X[30:35], Y[30:35], source="tail", position="34")
        durable.predict_pending(X[:2])
        durable.rollback(to=5)
        durable.learn(X[40:50], Y[40:50])
        copy_after_crash(durable, folder / "crashed")
    return folder


def copied(stored: Path, to: Path) -> Path:
    """Copy the file without its WAL and lock file."""
    return Path(shutil.copyfile(stored / "m.db", to / "m.db"))


def digests(folder: Path) -> dict[str, str]:
    return {
        each.name: hashlib.sha256(each.read_bytes()).hexdigest()
        for each in folder.iterdir()
        if each.is_file() and not each.name.endswith("-shm")
    }


def test_description_of_a_file(stored: Path, tmp_path: Path) -> None:
    path = copied(stored, tmp_path)
    before = digests(tmp_path)
    description = examine(path)
    assert digests(tmp_path) == before
    assert list(tmp_path.iterdir()) == [path]
    assert (description["class"], description["parameters"]["ridge"]) == ("RLSRegressor", 0.5)
    assert (description["version"], description["rows_seen"], description["blocks"]) == (9, 45, 9)
    assert (description["keys"], description["labels_pending"], description["positions"]) == (
        6,
        2,
        {"tail": "34"},
    )
    assert [each["why"] for each in description["snapshots"]][-2:] == ["rollback to 5", "close"]
    json.dumps(description)


def test_file_after_a_crash_is_described_and_unchanged(stored: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(stored / "crashed", tmp_path / "copy")
    before = digests(folder)
    description = examine(folder / "m.db")
    assert digests(folder) == before
    assert (description["version"], description["rows_seen"], description["blocks"]) == (9, 45, 9)
    with op.durable(folder / "m.db") as durable:  # and it goes on as if nobody had looked
        assert (durable.version, durable.rows_seen) == (9, 45)


@pytest.mark.parametrize(
    ("statement", "description"),
    [
        ("UPDATE snapshots SET body = zeroblob(length(body)) WHERE sequence = 0", "after block 0"),
        ("DELETE FROM snapshots", "a snapshot is missing"),
        ("UPDATE log SET rows = 6 WHERE sequence = 2", "block 2 of its log"),
        ("DELETE FROM log WHERE sequence = 4", "block 4 of its log is missing"),
        (
            "UPDATE keys SET predictions = zeroblob(9) WHERE key = 'kfrom 5'",
            "'kfrom 5'",
        ),
        (
            "UPDATE pending SET until = until + 1",
            "row that waits for its label, '.*' was changed",
        ),
        ('UPDATE snapshots SET positions = \'{"tail": "9"}\' WHERE sequence = 9', "block 9"),
    ],
)
def test_edited_records_are_found(
    stored: Path, tmp_path: Path, statement: str, description: str
) -> None:
    """Also in records that the current state does not depend on."""
    path = copied(stored, tmp_path)
    execute_sql(path, statement)
    with pytest.raises(CorruptStoreError, match=description):
        examine(path)


def test_torn_page_is_found(stored: Path, tmp_path: Path) -> None:
    path = copied(stored, tmp_path)
    whole = bytearray(path.read_bytes())
    found = 0
    for at in range(4096 + 50, len(whole), 512):
        torn = whole.copy()
        torn[at : at + 64] = bytes(64)
        path.write_bytes(torn)
        if torn != whole:
            try:
                examine(path)
            except CorruptStoreError:
                found += 1
    assert found


def test_log_that_lacks_acknowledged_blocks_is_refused(stored: Path, tmp_path: Path) -> None:
    path = copied(stored, tmp_path)
    Path(f"{path}.lock").write_bytes(b"%020d\n" % 10)
    with pytest.raises(CorruptStoreError, match="ends at block 9, but 10 were acknowledged"):
        examine(path)


def test_files_that_cannot_be_examined(tmp_path: Path) -> None:
    with raises(StoreError, remedy="Check the path"):
        examine(tmp_path / "m.db")
    (tmp_path / "m.db").write_bytes(b"x" * 5000)
    with pytest.raises(CorruptStoreError):
        examine(tmp_path / "m.db")
    with (
        op.durable(tmp_path / "held.db", op.RLSRegressor()),
        pytest.raises(LockedError, match=r"\(this one\)"),
    ):
        examine(tmp_path / "held.db")
    execute_sql(tmp_path / "held.db", "PRAGMA user_version = 99")
    with raises(StoreError, got="format 99"):
        examine(tmp_path / "held.db")


def test_inspect_command(stored: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = copied(stored, tmp_path)
    assert main(["inspect", str(path)]) == 0
    output = capsys.readouterr().out
    assert "RLSRegressor" in output
    assert "the file is intact" in output
    assert "version 9, 45 rows" in output
    assert main(["inspect", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == examine(path)
    execute_sql(path, "UPDATE log SET rows = 6 WHERE sequence = 2")
    assert main(["inspect", str(path)]) == 1
    error = capsys.readouterr().err
    assert "block 2 of its log is missing or was changed" in error
    assert "Traceback" not in error
