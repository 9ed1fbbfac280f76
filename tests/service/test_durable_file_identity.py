"""A file that is moved, removed or replaced while it is open."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import onepass as op
from onepass.errors import CheckpointWarning, StoreError
from raising import raises

X = np.random.default_rng(0).normal(size=(9, 6))
Y = X @ np.arange(6.0)


@pytest.mark.parametrize("how", ["moved", "removed", "replaced"])
def test_moved_removed_or_replaced_file_refuses_rows(tmp_path: Path, how: str) -> None:
    """Rows would be written to a file that has no path."""
    path = tmp_path / "m.db"
    durable = op.durable(path, op.RLSRegressor())
    durable.learn(X[:5], Y[:5])
    predictions = durable.predict(X[:3])
    if how == "removed":
        path.unlink()
    else:
        path.rename(tmp_path / "elsewhere.db")
    if how == "replaced":
        path.write_bytes(b"something else")
    with raises(StoreError, remedy="Further writes are rejected"):
        durable.learn(X[5:9], Y[5:9])
    assert not durable.ready
    assert "put the file back" in str(durable.error)
    assert durable.predict(X[:3]).tobytes() == predictions.tobytes()
    assert durable.version == 1
    durable.close()
    if how == "moved":
        (tmp_path / "elsewhere.db").rename(path)
        with op.durable(path) as again:
            assert again.rows_seen == 5
            again.learn(X[5:9], Y[5:9])


def test_moved_file_is_noticed_without_a_request(tmp_path: Path) -> None:
    path = tmp_path / "m.db"
    with op.durable(path, op.RLSRegressor()) as durable:
        path.rename(tmp_path / "elsewhere.db")
        assert durable.ready
        with pytest.warns(CheckpointWarning, match="moved, removed or replaced"):
            durable.commit_pending()
        assert not durable.ready


def test_relative_path_does_not_depend_on_later_directories(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there").mkdir()
    with op.durable("m.db", op.RLSRegressor()) as durable:
        monkeypatch.chdir("there")
        durable.learn(X[:5], Y[:5])
        assert durable.ready


@pytest.mark.filterwarnings("ignore::onepass.errors.CheckpointWarning")
def test_model_can_be_copied_after_its_file_was_removed(tmp_path: Path) -> None:
    path = tmp_path / "m.db"
    with op.durable(path, op.RLSRegressor()) as durable:
        for x, y in zip(X, Y, strict=True):
            durable.learn_one(x, y)
        path.unlink()
        with raises(StoreError, remedy="Further writes are rejected"):
            durable.learn_one(X[0], Y[0])
        found = durable.model()
    assert found.rows_seen_ == len(X)
    np.testing.assert_allclose(found.predict(X), durable.predict(X))


@pytest.mark.filterwarnings("ignore::onepass.errors.CheckpointWarning")
def test_removed_wal_is_noticed(tmp_path: Path) -> None:
    """The last rows are in the WAL only, until the learner is closed."""
    path = tmp_path / "m.db"
    with op.durable(path, op.RLSRegressor()) as durable:
        durable.learn(X[:5], Y[:5])
        _later(durable)
        Path(f"{path}-wal").unlink()
        _later(durable)
        assert not durable.ready
        assert "-wal must stay at its path" in str(durable.error)
        with raises(StoreError, remedy="Further writes are rejected"):
            durable.learn(X[5:9], Y[5:9])
    with op.durable(path) as again:
        assert again.rows_seen == 5


def _later(durable: Any) -> None:
    """Run the check that is due each second."""
    durable._writer._check_at = 0.0
    durable.commit_pending()
