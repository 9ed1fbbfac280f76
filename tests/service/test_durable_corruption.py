"""Damaged or edited files are refused, or their learner is unchanged."""

import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from durable_files import ENDINGS, copy_after_crash, execute_sql, query, state_bits
from hypothesis import given, settings
from hypothesis import strategies as st

import onepass as op
from onepass.errors import CheckpointError, CorruptStoreError, StoreError
from onepass.service import examine
from onepass.service.schema import APPLICATION, FORMAT
from raising import raises

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 4))
Y = X @ np.arange(4.0)
WORDS = [{"km": 1.5, "by": "sea"}, {"km": 2.0, "by": None}]


class StoredFiles:
    """A file with records of each kind, as a crash leaves it, and its expected content."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        with op.durable(folder / "m.db", op.RLSRegressor()) as durable:
            durable.learn(X[:20], Y[:20], key="first")
            durable.learn(X[20:25], Y[20:25], source="tail", position="24")
            self.ids = durable.predict_pending(X[:2])[1]
            durable.snapshot()
            for i in range(25, 40):
                durable.learn_one(X[i], Y[i], key=f"row {i}")
            durable.rollback(to=10)
            durable.learn(X[40:50], Y[40:50])
            self.path = copy_after_crash(durable, folder / "kept")
            self.bits, self.version = state_bits(durable), durable.version

    def copied(self, name: str = "copy") -> Path:
        to = self.folder / name
        to.mkdir(exist_ok=True)
        for ending in ENDINGS:
            shutil.copyfile(f"{self.path}{ending}", f"{to / 'm.db'}{ending}")
        return to / "m.db"

    def held(self, path: Path) -> bool:
        """Whether the file opens; if it does, its learner and records are the expected ones."""
        try:
            with op.durable(path) as durable:
                assert state_bits(durable) == self.bits
                assert durable.version == self.version
                self._requests_hold(durable)
        except (StoreError, CheckpointError):
            return False
        return True

    def _requests_hold(self, durable: Any) -> None:
        """Each request is refused or has the expected result."""
        for wanted in (
            lambda: durable.rollback(to=5),
            lambda: self._same_key(durable),
            lambda: durable.learn_labels(self.ids, [1.0, 2.0]),
        ):
            try:
                wanted()
            except StoreError:
                return
        assert durable.positions == {"tail": "24"}
        assert durable.rows_seen in {50, 52}

    def _same_key(self, durable: Any) -> None:
        result = durable.learn(X[:20], Y[:20], key="first")
        assert (result.repeated, result.version) == (True, 1)


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> StoredFiles:
    found = StoredFiles(tmp_path_factory.mktemp("kept"))
    assert found.held(found.copied())
    return found


@pytest.fixture(scope="module")
def merged(tmp_path_factory: pytest.TempPathFactory) -> StoredFiles:
    """The same with all records in the main file, and an empty WAL."""
    found = StoredFiles(tmp_path_factory.mktemp("merged"))
    execute_sql(found.path, "PRAGMA journal_mode = DELETE")
    Path(f"{found.path}-wal").write_bytes(b"")
    return found


@settings(max_examples=80)
@given(st.data())
def test_flipped_bit_is_refused_or_harmless(merged: StoredFiles, data: st.DataObject) -> None:
    path = merged.copied()
    whole = bytearray(path.read_bytes())
    at = data.draw(st.integers(0, len(whole) - 1))
    whole[at] ^= data.draw(st.sampled_from([1, 4, 16, 128, 255]))
    path.write_bytes(whole)
    merged.held(path)


@settings(max_examples=50)
@given(st.data())
def test_flipped_bit_in_the_wal_is_refused_or_harmless(
    stored: StoredFiles, data: st.DataObject
) -> None:
    path = stored.copied()
    log = Path(f"{path}-wal")
    whole = bytearray(log.read_bytes())
    assert len(whole) > 50_000
    at = data.draw(st.integers(0, len(whole) - 1))
    whole[at] ^= data.draw(st.sampled_from([1, 4, 16, 128, 255]))
    log.write_bytes(whole)
    stored.held(path)


@settings(max_examples=40)
@given(st.data())
def test_truncated_wal_is_refused_or_harmless(stored: StoredFiles, data: st.DataObject) -> None:
    path = stored.copied()
    log = Path(f"{path}-wal")
    whole = log.read_bytes()
    log.write_bytes(whole[: data.draw(st.integers(0, len(whole) - 1))])
    stored.held(path)


def test_wal_without_its_last_commit_is_refused(stored: StoredFiles) -> None:
    """SQLite discards a damaged last commit, which was acknowledged."""
    path = stored.copied()
    log = Path(f"{path}-wal")
    log.write_bytes(log.read_bytes()[:-100])
    for _ in range(2):
        with pytest.raises(CorruptStoreError, match=r"ends at block 18, but 19 were acknowledged"):
            op.durable(path)
    Path(f"{path}.lock").unlink()  # as the message says, for a backup
    with op.durable(path) as durable:
        assert durable.version == 18


def test_missing_wal_is_refused(stored: StoredFiles) -> None:
    path = stored.copied()
    Path(f"{path}-wal").unlink()
    assert not stored.held(path)


@settings(max_examples=40)
@given(st.data())
def test_truncated_file_is_refused(merged: StoredFiles, data: st.DataObject) -> None:
    path = merged.copied()
    whole = path.read_bytes()
    path.write_bytes(whole[: data.draw(st.integers(0, len(whole) - 1))])
    assert not merged.held(path)


@settings(max_examples=20)
@given(st.data())
def test_zeroed_sectors_are_refused_or_harmless(merged: StoredFiles, data: st.DataObject) -> None:
    path = merged.copied()
    whole = bytearray(path.read_bytes())
    at = data.draw(st.integers(0, len(whole) // 512 - 1)) * 512
    whole[at : at + 512] = bytes(512)
    path.write_bytes(whole)
    merged.held(path)


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM log WHERE sequence = 19",
        "DELETE FROM log WHERE sequence > 17",
        "DELETE FROM log",
        "DELETE FROM snapshots",
        "DELETE FROM snapshots WHERE sequence = 18",
        "UPDATE log SET body = zeroblob(length(body)) WHERE sequence = 19",
        "UPDATE log SET seen = seen + 1 WHERE sequence = 19",
        "UPDATE log SET kind = 'pass' WHERE sequence = 19",
        "UPDATE log SET note = '{}' WHERE sequence = 19",
        "UPDATE log SET digest = zeroblob(32) WHERE sequence = 19",
        "UPDATE snapshots SET body = (SELECT body FROM snapshots WHERE sequence = 0)",
        "UPDATE snapshots SET seen = 1 WHERE sequence = 18",
        "UPDATE snapshots SET positions = '{}' WHERE sequence = 18",
        "UPDATE snapshots SET digest = zeroblob(32) WHERE sequence = 18",
        "UPDATE snapshots SET sequence = 20 WHERE sequence = 18",
        "INSERT INTO log SELECT 20, kind, rows, 9, note, body, digest FROM log LIMIT 1",
        "DROP TABLE keys",
        "DROP INDEX keys_by_time",
        "CREATE TRIGGER more AFTER INSERT ON log BEGIN DELETE FROM keys; END",
        "CREATE VIEW more AS SELECT 1",
        f"PRAGMA application_id = {APPLICATION + 1}",
        "PRAGMA user_version = 0",
        "PRAGMA user_version = -1",
    ],
)
def test_edited_databases_are_refused(merged: StoredFiles, statement: str) -> None:
    path = merged.copied()
    execute_sql(path, statement)
    with pytest.raises(CorruptStoreError, match=r"not as it was written|another program"):
        op.durable(path)


@pytest.mark.parametrize(
    ("statement", "wanted"),
    [
        (
            "UPDATE keys SET predictions = zeroblob(length(predictions))",
            lambda d: d.learn(X, Y, key="first"),
        ),
        ("UPDATE keys SET sequence = 7", lambda d: d.learn(X, Y, key="first")),
        (
            "UPDATE pending SET body = zeroblob(length(body))",
            lambda d: d.learn_labels(d.test, [1.0, 2.0]),
        ),
        ("UPDATE pending SET until = until + 1", lambda d: d.learn_labels(d.test, [1.0, 2.0])),
        ("UPDATE snapshots SET body = x'00' WHERE sequence = 0", lambda d: d.rollback(to=1)),
        ("DELETE FROM log WHERE sequence = 8", lambda d: d.rollback(to=9)),
    ],
)
def test_changed_records_are_refused_when_they_are_read(
    merged: StoredFiles, statement: str, wanted: Callable[[Any], Any]
) -> None:
    path = merged.copied()
    execute_sql(path, statement)
    with op.durable(path) as durable:
        durable.test = merged.ids
        with pytest.raises(CorruptStoreError, match=r"was changed|is missing"):
            wanted(durable)
        assert state_bits(durable) == merged.bits
        durable.learn(X[50:], Y[50:])  # the others go on


@pytest.mark.parametrize("which", [0, 1])
def test_changed_key_is_refused(merged: StoredFiles, which: int) -> None:
    """A repeated request would be learned again."""
    path = merged.copied()
    whole = bytearray(path.read_bytes())
    at = whole.index(b"kfirst")
    at = whole.index(b"kfirst", at + 1) if which else at
    whole[at + 2] ^= 1
    path.write_bytes(whole)
    with pytest.raises(CorruptStoreError):
        op.durable(path)


@pytest.mark.parametrize("byte", [0xA0, ord("x"), 0])
@pytest.mark.parametrize("word", [b"seen INTEGER", b"keys_by_time", b"TABLE pending"])
def test_changed_table_definition_is_refused(merged: StoredFiles, word: bytes, byte: int) -> None:
    path = merged.copied()
    whole = bytearray(path.read_bytes())
    whole[whole.index(word)] = byte
    path.write_bytes(whole)
    with pytest.raises(StoreError):
        op.durable(path)


@settings(max_examples=20, print_blob=True)
@given(
    statements=st.lists(
        st.sampled_from(["ANALYZE", "ANALYZE keys", "PRAGMA optimize", "VACUUM", "REINDEX",
                         "PRAGMA journal_mode = DELETE", "PRAGMA wal_checkpoint(TRUNCATE)"]),
        min_size=1,
    )
)  # fmt: skip
def test_maintenance_commands_of_sqlite_are_harmless(
    merged: StoredFiles, statements: list[str]
) -> None:
    path = merged.copied()
    execute_sql(path, "ANALYZE", *statements)
    assert examine(path)["version"] == merged.version
    with op.durable(path) as durable:
        assert state_bits(durable) == merged.bits
        durable.learn(X[:1], Y[:1], key="after")
    with op.durable(path) as durable:
        assert durable.learn(X[:1], Y[:1], key="after").repeated


def test_newer_format_is_refused(merged: StoredFiles) -> None:
    path = merged.copied()
    execute_sql(path, f"PRAGMA user_version = {FORMAT + 1}")
    with pytest.raises(StoreError, match=f"format up to {FORMAT}, got format {FORMAT + 1}"):
        op.durable(path)


def test_older_sqlite_is_refused(merged: StoredFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 36, 0))
    with pytest.raises(StoreError, match=r"at least 3\.37"):
        op.durable(merged.copied())
    with pytest.raises(StoreError, match=r"at least 3\.37"):
        op.durable(merged.folder / "new.db", op.RLSRegressor())
    assert not (merged.folder / "new.db").exists()


def _empty(path: Path) -> None:
    path.touch()


def _database(path: Path) -> None:
    execute_sql(path, "CREATE TABLE mine (a)")


def _text(path: Path) -> None:
    path.write_text("Dear diary, " * 1000)


def _model(path: Path) -> None:
    op.save(op.RLSRegressor().partial_fit(X, Y), path)


def _log_alone(path: Path) -> None:
    Path(f"{path}-wal").write_bytes(b"something")


@pytest.mark.parametrize("make", [_empty, _database, _text, _model, _log_alone])
def test_other_files_are_refused_and_unchanged(
    make: Callable[[Path], None], tmp_path: Path
) -> None:
    path = tmp_path / "m.db"
    make(path)
    before = {each: each.read_bytes() for each in tmp_path.iterdir()}
    for model in (None, op.RLSRegressor()):
        with pytest.raises(CorruptStoreError, match="is empty" if make is _empty else None):
            op.durable(path, model)
    assert all(each.read_bytes() == data for each, data in before.items())


@pytest.mark.parametrize("model", [None, op.RLSRegressor()])
def test_paths_of_other_than_regular_files_are_refused(model: Any, tmp_path: Path) -> None:
    with raises(StoreError, remedy="Choose another path"):
        op.durable(tmp_path, model)
    with raises(StoreError, remedy="Choose another path"):
        op.durable("/dev/null", model)
    with pytest.raises(StoreError, match=r"No such file|neither"):
        op.durable(tmp_path / "none" / "m.db", model)
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="Not a directory"):
        op.durable(tmp_path / "file" / "m.db", model)
    assert [each.name for each in tmp_path.iterdir()] == ["file"]


def test_missing_file_without_a_model_is_refused(tmp_path: Path) -> None:
    with raises(StoreError, got="neither"):
        op.durable(tmp_path / "m.db")
    op.durable(tmp_path / "m.db", op.RLSRegressor()).close()


def test_removed_file_is_created_again(tmp_path: Path) -> None:
    path = tmp_path / "m.db"
    with op.durable(path, op.RLSRegressor()) as durable:
        durable.learn(X, Y)
    path.unlink()
    with op.durable(path, op.RLSRegressor()) as durable:
        assert (durable.version, durable.rows_seen) == (0, 0)
    with op.durable(path) as durable:
        assert durable.version == 0


def test_digests_cover_all_fields(merged: StoredFiles) -> None:
    columns = {
        table: {name for _, name, *_ in query(merged.path, f"PRAGMA table_info({table})")}
        for table in ("log", "keys", "pending", "snapshots")
    }
    assert columns["log"] == {"sequence", "kind", "rows", "seen", "note", "body", "digest"}
    assert columns["keys"] == {"number", "key", "digest", "sequence", "at", "seal", "predictions"}
    assert columns["pending"] == {"number", "id", "until", "body", "seal"}
