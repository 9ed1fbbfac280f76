"""The lock of a file: other processes and forks cannot use it."""

import gc
import json
import os
import re
import signal
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from forked_python import ForkedPython, run_forked

import onepass as op
from onepass.errors import LockedError, StoreError

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="no such locks there")

X = np.random.default_rng(0).normal(size=(50, 3))
Y = X.sum(axis=1)

HOLDER = """
import sys, time
import onepass as op
durable = op.durable(sys.argv[1], op.RLSRegressor())
durable.learn([[1.0], [2.0]], [1.0, 2.0])
print("ready", flush=True)
time.sleep(60)
"""
SECOND = """
import sys
import onepass as op
try:
    op.durable(sys.argv[1])
except op.errors.LockedError as wrong:
    print(wrong)
"""
FORKED = """
import gc, os, sys
import numpy as np
import onepass as op
from onepass.errors import LockedError, StoreError

path, how = sys.argv[1:]
X = np.random.default_rng(0).normal(size=(50, 3))
durable = op.durable(path, op.RLSRegressor())
durable.learn(X[:20], X[:20].sum(axis=1))
ids = durable.predict_pending(X[:2])[1]
child = os.fork()
if child == 0:
    refused = 0
    for verb in (
        lambda: durable.learn(X, X[:, 0]),
        lambda: durable.learn_one(X[0], 1.0, key="a"),
        lambda: durable.request(X, X[:, 0]),
        lambda: durable.predict_pending(X),
        lambda: durable.learn_labels(ids, [1.0, 2.0]),
        lambda: durable.snapshot(),
        lambda: durable.rollback(to=0),
        lambda: durable.model(),
        lambda: durable.labels_pending,
        lambda: durable.commit_pending(),
    ):
        try:
            verb()
        except StoreError as wrong:
            refused += f"process that opened it, {os.getppid()}" in str(wrong)
    try:
        op.durable(path)
    except LockedError:
        refused += 1
    said = durable.predict(X[:1])[0]
    if how == "close":
        durable.close()
    del durable
    gc.collect()
    sys.exit(0 if refused == 11 and abs(said - X[0].sum()) < 1e-3 else 3)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
for x in X[20:]:
    durable.learn_one(x, x.sum())
print(durable.version, flush=True)
os.kill(os.getpid(), 9)
"""


def test_lock_error_names_the_process_and_a_kill_releases_the_lock(
    tmp_path: Path,
) -> None:
    path = tmp_path / "m.db"
    output = tmp_path / "output"
    holder = ForkedPython(HOLDER, str(path), stdout=output)
    while not output.exists() or output.read_text() != "ready\n":
        assert holder.poll() is None
        time.sleep(0.005)
    with pytest.raises(LockedError, match=rf"process {holder.pid} on .*, since 20\d\d-"):
        op.durable(path)
    with pytest.raises(LockedError):
        op.durable(path, op.RLSRegressor())
    holder.kill()
    holder.wait()
    with op.durable(path) as durable:  # the lock file is still there
        assert durable.rows_seen == 2
        assert f"process {os.getpid()} " in run_forked(SECOND, str(path)).stdout


def test_pragmas_sync_each_commit(tmp_path: Path) -> None:
    """Killing a process cannot show that a commit is on the disk."""
    with op.durable(tmp_path / "m.db", op.RLSRegressor()) as durable:
        found = {
            name: durable._journal._db.execute(f"PRAGMA {name}").fetchone()[0]
            for name in (
                "synchronous", "journal_mode", "locking_mode", "fullfsync", "checkpoint_fullfsync",
                "auto_vacuum", "trusted_schema", "cell_size_check",
            )
        }  # fmt: skip
    assert found == {
        "synchronous": 2, "journal_mode": "wal", "locking_mode": "normal", "fullfsync": 1,
        "checkpoint_fullfsync": 1, "auto_vacuum": 2, "trusted_schema": 0, "cell_size_check": 1,
    }  # fmt: skip


def test_second_instance_in_one_process_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.db"
    with op.durable(path, op.RLSRegressor()) as durable:
        for other in (path, tmp_path / ".." / tmp_path.name / "m.db"):
            with pytest.raises(LockedError, match=r"\(this one\)"):
                op.durable(other)
        link = tmp_path / "link.db"
        link.symlink_to(path)
        with pytest.raises(LockedError, match=r"\(this one\)"):
            op.durable(link)
        durable.learn(X, Y)
    with op.durable(link) as durable:
        assert durable.rows_seen == 50


def test_an_unreferenced_learner_releases_its_file(tmp_path: Path) -> None:
    path = tmp_path / "m.db"
    durable: Any = op.durable(path, op.RLSRegressor())
    durable.learn(X, Y)
    del durable
    gc.collect()
    with op.durable(path) as again:
        assert again.rows_seen == 50


def test_without_the_lock_file_a_second_learner_cannot_write(tmp_path: Path) -> None:
    path = tmp_path / "m.db"
    with op.durable(path, op.RLSRegressor()) as durable:
        Path(f"{path}.lock").unlink()
        with op.durable(path) as other:
            durable.learn(X, Y)
            with pytest.raises(StoreError, match="UNIQUE constraint failed"):
                other.learn(X[:7], Y[:7])
        durable.learn(X, Y)
    with op.durable(path) as durable:
        assert (durable.version, durable.rows_seen) == (2, 100)


@pytest.mark.parametrize(
    "predictions", ["", "no json", '{"pid": 1}\n', "x\n[]\n", "x\n{}\n", "\0" * 99]
)
def test_invalid_content_of_the_lock_file_is_harmless(predictions: str, tmp_path: Path) -> None:
    path = tmp_path / "m.db"
    with op.durable(path, op.RLSRegressor()) as durable:
        durable.learn(X, Y)
        Path(f"{path}.lock").write_text(predictions)
        with pytest.raises(LockedError, match="another process"):
            op.durable(path)
        durable.learn(X, Y)
    with op.durable(path) as durable:
        assert durable.version == 2


def test_lock_file_has_process_id_and_committed_version(tmp_path: Path) -> None:
    path = tmp_path / "m.db"
    with op.durable(path, op.RLSRegressor()) as durable:
        for _ in range(3):
            durable.learn(X, Y)
        count, who, *_ = Path(f"{path}.lock").read_text().split("\n")
        assert int(count) == 3
        assert json.loads(who)["pid"] == os.getpid()
    assert Path(f"{path}.lock").stat().st_mode & 0o777 == 0o644 & ~umask()


def umask() -> int:
    found = os.umask(0)
    os.umask(found)
    return found


@pytest.mark.parametrize("how", ["close", "leave"])
def test_forked_process_cannot_use_the_learner(how: str, tmp_path: Path) -> None:
    path = tmp_path / "m.db"
    found = run_forked(FORKED, str(path), how)
    assert (found.returncode, found.stdout) == (-signal.SIGKILL, "31\n"), found.stderr
    with op.durable(path) as durable:
        assert (durable.version, durable.rows_seen, durable.labels_pending) == (31, 50, 2)


FORKED_UNDER_WAY = """
import os, sys, threading
import onepass as op
durable = op.durable(sys.argv[1], op.RLSRegressor())
writer_waits, go_on = threading.Event(), threading.Event()
def wait(_):
    writer_waits.set()
    go_on.wait()
done = durable.request([[1.0]], [1.0], done=wait)
writer_waits.wait()
late = durable.request([[2.0]], [2.0])
parent = os.getpid()
child = os.fork()
if child == 0:
    try:
        late.wait()
    except op.errors.StoreError as error:
        os._exit(0 if str(parent) in str(error) and done.wait().version == 1 else 4)
    os._exit(3)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
go_on.set()
print(late.wait().version)
durable.close()
"""


def test_pending_request_raises_in_a_forked_process(tmp_path: Path) -> None:
    found = run_forked(FORKED_UNDER_WAY, str(tmp_path / "m.db"))
    assert (found.returncode, found.stdout) == (0, "2\n"), found.stderr


FORKED_EARLY = """
import os, sys
import onepass as op
path = sys.argv[1]
durable = op.durable(path, op.RLSRegressor())
here, there = os.pipe()
child = os.fork()
if child == 0:
    os.close(there)
    os.read(here, 1)
    try:
        op.durable(path)
    except op.errors.LockedError as wrong:
        print(wrong, flush=True)
    os._exit(0)
durable.close()
os.close(there)
os.waitpid(child, 0)
print(op.durable(path).version)
"""


def test_a_forked_process_cannot_open_a_closed_file(tmp_path: Path) -> None:
    """The fork still has SQLite's file open."""
    found = run_forked(FORKED_EARLY, str(tmp_path / "m.db"))
    predictions, version = found.stdout.splitlines()
    assert version == "0", found.stderr
    assert "If this process was forked from one" in predictions


LEFT = """
import os, sys, time
import onepass as op
durable = op.durable(sys.argv[1], op.RLSRegressor())
durable.learn([[1.0]], [1.0])
begun, ready = os.pipe()
if os.fork() == 0:
    os.close(1)
    os.close(2)
    os.write(ready, b".")
    time.sleep(10)
    os._exit(0)
os.read(begun, 1)
os.kill(os.getpid(), 9)
"""


def test_lock_is_released_though_a_forked_process_lives_on(tmp_path: Path) -> None:
    assert run_forked(LEFT, str(tmp_path / "m.db")).returncode == -signal.SIGKILL
    with op.durable(tmp_path / "m.db") as durable:
        assert durable.rows_seen == 1


def test_methods_after_close_raise(tmp_path: Path) -> None:
    durable = op.durable(tmp_path / "m.db", op.RLSRegressor())
    durable.learn(X, Y)
    predictions = durable.predict(X[:2])
    durable.close()
    durable.close()
    for verb in (
        lambda: durable.learn(X, Y),
        lambda: durable.request(X, Y),
        lambda: durable.predict_pending(X),
        lambda: durable.learn_labels(["a"], [1.0]),
        durable.snapshot,
        durable.commit_pending,
        durable.model,
        lambda: durable.rollback(to=0),
    ):
        with pytest.raises(StoreError, match="was closed"):
            verb()
    assert durable.predict(X[:2]).tobytes() == predictions.tobytes()
    assert (durable.version, durable.rows_seen, durable.positions) == (1, 50, {})
    assert re.search(r"50 rows, version 1, closed>$", repr(durable))


def test_changes_of_the_clock_do_not_expire_keys_or_rows(tmp_path: Path) -> None:
    times = iter([1e9, 5.0, 9e9, 1e9 + 100])
    path = tmp_path / "m.db"
    with op.durable(path, op.RLSRegressor(), clock=lambda: next(times)) as durable:
        ids = durable.predict_pending(X[:1], seconds=1000.0)[1]
        durable.learn(X, Y, key="a")
        at = [durable._writer.now() for _ in range(3)]
        assert at == sorted(at)
        assert 1e9 <= at[0] < 1e9 + 60
    with op.durable(path, clock=lambda: 5.0) as durable:  # years back, over night
        assert durable.labels_pending == 1
        assert durable.learn(X, Y, key="a").repeated
        durable.learn_labels(ids, [1.0])
    assert next(times) == 5.0
    assert time.time() > 1e9


def test_snapshots_have_time_and_reason(tmp_path: Path) -> None:
    with op.durable(tmp_path / "m.db", op.RLSRegressor(), clock=lambda: 1e9) as durable:
        durable.learn(X, Y)
        durable.snapshot()
        first, second = durable.versions
        assert 1e9 <= first.at <= second.at < 1e9 + 60
        assert str(second).startswith("version 1: 50 rows, 2001-09-0")
        assert (first.why, second.why) == ("beginning", "request")
