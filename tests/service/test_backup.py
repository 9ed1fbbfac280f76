"""Backups of files in use: no acknowledged row is missing, and a plain copy is named as such."""

import shutil
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import numpy as np
import pytest

import onepass as op
from onepass.cli import main
from onepass.errors import CorruptStoreError, StoreError
from onepass.service import backup, examine
from onepass.service.schema import begin_log, create


def by_api(path: Path, to: Path) -> None:
    with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(to)) as target:
        source.backup(target)


def by_vacuum(path: Path, to: Path) -> None:
    with closing(sqlite3.connect(path)) as source:
        source.execute("VACUUM INTO ?", (str(to),))


@contextmanager
def learning(path: Path) -> Iterator[op.service.Durable]:
    """A learner that another thread teaches until the context ends."""
    with op.durable(path, op.RLSRegressor(), snapshot_rows=300) as durable:
        end = threading.Event()

        def work() -> None:
            rng = np.random.default_rng(0)
            while not end.is_set():
                durable.learn(rng.normal(size=(7, 3)), rng.normal(size=7))

        thread = threading.Thread(target=work)
        thread.start()
        try:
            yield durable
        finally:
            end.set()
            thread.join()


@pytest.mark.parametrize("copy", [backup, by_api, by_vacuum])
def test_a_backup_of_a_file_in_use_has_all_acknowledged_rows(copy: object, tmp_path: Path) -> None:
    with learning(tmp_path / "m.db") as durable:
        for i in range(5):
            durable.learn(np.ones((1, 3)), [1.0])
            before = durable.rows_seen
            copy(tmp_path / "m.db", tmp_path / f"{i}.db")  # type: ignore[operator]
            after = durable.rows_seen
            found = examine(tmp_path / f"{i}.db")
            assert before <= found["rows_seen"] <= after
    for i in range(5):
        with op.durable(tmp_path / f"{i}.db") as restored:
            restored.learn(np.ones((1, 3)), [1.0])
    assert examine(tmp_path / "m.db")["checked"] == "the file is intact"
    assert sorted(path.suffix for path in tmp_path.glob("m.db*")) == [".db", ".lock"]


def test_a_copy_of_a_file_in_use_is_named(tmp_path: Path) -> None:
    path, copied = tmp_path / "m.db", tmp_path / "copy.db"
    with op.durable(path, op.RLSRegressor()) as durable:
        durable.learn([[1.0], [2.0]], [1.0, 2.0])
        shutil.copy(path, copied)
        assert "Copy files in use with: onepass backup" in examine(copied)["checked"]
    shutil.copy(path, copied)
    assert examine(copied)["checked"] == "the file is intact"
    assert examine(copied)["rows_seen"] == 2


def test_backups_are_refused_with_reasons(tmp_path: Path) -> None:
    path = tmp_path / "m.db"
    with pytest.raises(StoreError, match="must be an existing file"):
        backup(path, tmp_path / "b.db")
    with op.durable(path, op.RLSRegressor()) as durable:
        durable.learn(np.ones((50, 2)), np.ones(50))
        with pytest.raises(StoreError, match="must be another file"):
            backup(path, tmp_path / "." / "m.db")
        with pytest.raises(StoreError, match="could not be written"):
            backup(path, tmp_path / "none" / "b.db")
    data = bytearray(path.read_bytes())
    data[next(i for i in range(len(data) - 1, 0, -1) if data[i])] ^= 255
    path.write_bytes(data)
    (tmp_path / "b.db").write_text("older")
    with pytest.raises(CorruptStoreError):
        backup(path, tmp_path / "b.db")
    assert (tmp_path / "b.db").read_text() == "older"


def test_a_backup_without_acknowledged_rows_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.db"
    with op.durable(path, op.RLSRegressor()) as durable:
        durable.learn([[1.0]], [1.0])
    Path(f"{path}.lock").write_text("00000000000000000007\n")
    with pytest.raises(CorruptStoreError, match="7 were acknowledged"):
        backup(path, tmp_path / "b.db")


def test_backup_and_verify_on_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, to = tmp_path / "m.db", tmp_path / "backups" / "m.db"
    with op.durable(path, op.RLSRegressor()) as durable:
        durable.learn([[1.0], [2.0]], [1.0, 2.0])
        assert main(["backup", str(path), str(to)]) == 0
        assert capsys.readouterr().err == f"2 rows, version 1, verified: {to}\n"
        assert main(["verify", str(to), str(path)]) == 1
        error = capsys.readouterr().err
        assert f"{to}: 2 rows, version 1, the file is intact" in error
        assert "must be open in one process at a time" in error
    assert main(["verify", str(to), str(path)]) == 0
    assert main(["verify"]) == 2


def test_tables_of_litestream_are_accepted(tmp_path: Path) -> None:
    path = tmp_path / "m.db"
    with op.durable(path, op.RLSRegressor()) as durable:
        with closing(sqlite3.connect(path)) as other:
            other.execute("CREATE TABLE _litestream_seq (id INTEGER PRIMARY KEY, seq INTEGER)")
            other.commit()
        durable.learn([[1.0]], [1.0])
    with op.durable(path) as durable:
        assert durable.rows_seen == 1


def test_a_log_without_shared_memory(tmp_path: Path) -> None:
    """As on some network file systems; no other program can then read the file."""
    path = tmp_path / "m.db"
    with closing(create(path)) as db:
        db.execute("COMMIT")
    address = f"{path.as_uri()}?vfs=unix-dotfile"  # without shared memory
    with closing(sqlite3.connect(address, uri=True, isolation_level=None)) as db:
        begin_log(db, path)
        assert db.execute("PRAGMA journal_mode").fetchone()[0] == "wal"
        assert db.execute("PRAGMA synchronous").fetchone()[0] == 2
        db.execute("DELETE FROM log")
        assert Path(f"{path}-wal").exists()
        assert not Path(f"{path}-shm").exists()
