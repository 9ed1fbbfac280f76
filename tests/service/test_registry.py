"""``ModelRegistry``: readiness, retirement, drift detectors and predictions."""

import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import pytest

import onepass as op
from onepass.errors import (
    AlreadyExistsError,
    NotFiniteError,
    NotFoundError,
    ParameterError,
    PayloadTooLargeError,
    StoreError,
    TypeMismatchError,
)
from onepass.serialization.state import nbytes
from onepass.service.http.status import exposition, state
from onepass.service.model import predict_rows
from onepass.service.registry import ModelRegistry
from onepass.validation.rows import Rows
from onepass.validation.table import Table
from raising import raises

X, Y = np.ones((1, 3)), np.ones(1)
MOST = 2000


def test_other_requests_are_served_during_an_endless_stream(tmp_path: Path) -> None:
    registry = ModelRegistry(tmp_path)
    served = registry.create("m", op.RLSRegressor())
    blocks, over = [0], threading.Event()

    def again(request: Any) -> None:
        assert request.error is None
        blocks[0] += 1
        if blocks[0] < MOST and not over.is_set():
            served.learn(Rows(X, Y), again)

    served.learn(Rows(X, Y), again)
    ids = served.durable.predict_pending(X, seconds=60.0)[1]
    served.learn_labels(ids, Rows(X[:0], Y))
    served.durable.rollback(to=served.durable.snapshot())
    between = blocks[0]
    over.set()
    registry.close()
    assert between < MOST
    with op.durable(tmp_path / "m.db") as durable:
        assert durable.rows_seen == blocks[0] + 1


def test_model_is_ready_while_it_can_learn(tmp_path: Path) -> None:
    registry = ModelRegistry(tmp_path)
    served = registry.create("m", op.RLSRegressor())
    served.durable._writer.watch = lambda *_: divmod(1, 0)
    served.durable.learn(X, Y)
    served.check_ready()
    assert (served.ready, "division" in str(served.error)) == (True, True)
    db = served.durable._journal._db
    pages = db.execute("PRAGMA page_count").fetchone()[0]
    db.execute(f"PRAGMA max_page_count = {pages}")
    wide = np.ones((20_000, 3))
    with raises(StoreError, remedy="Nothing was written. Free disk space"):
        served.durable.learn(wide, wide[:, 0])
    assert not served.ready
    with raises(StoreError, remedy="Nothing was written. Free disk space"):
        served.check_ready()
    registry.close()


@pytest.mark.skipif(sys.platform == "win32", reason="no such limits there")
@pytest.mark.filterwarnings("ignore::onepass.errors.CheckpointWarning")
def test_retired_file_is_complete_on_a_full_disk(tmp_path: Path) -> None:
    import resource

    wide = np.random.default_rng(0).normal(size=(50, 100))
    registry = ModelRegistry(tmp_path)
    durable = registry.create("m", op.RLSRegressor()).durable
    for _ in range(3):
        durable.learn(wide, wide[:, 0])
    durable._journal._rows("PRAGMA wal_checkpoint(TRUNCATE)")
    _, most = before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, ((tmp_path / "m.db").stat().st_size + 8192, most))
    try:
        for _ in range(2):
            durable.learn(wide, wide[:, 0])  # there is room in the log, but not in the file
        retired = registry.retire("m")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not list(tmp_path.glob("m.db*"))
    with op.durable(retired) as again:
        assert again.rows_seen == 250
    assert registry.create("m", op.RLSRegressor()).durable.rows_seen == 0
    registry.close()


class Failing:
    """A detector that fails at the first row."""

    drift_detected = False

    def update(self, _: float) -> None:
        raise ValueError("math domain error")


def test_failed_detector_does_not_stop_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing = {"broken": Failing()}
    monkeypatch.setattr("onepass.service.registry.detectors", lambda *_: failing)
    for session in (1, 2):
        registry = ModelRegistry(tmp_path, drift=("broken",))
        registry.open_all()
        served = registry["m"] if registry.names else registry.create("m", op.RLSRegressor())
        served.durable.learn(X, Y)
        [model] = state(registry, ["predict"]).models
        assert "broken has failed and is disabled: math domain error" in str(model.error)
        assert 'onepass_drift_detector_active{detector="broken",model="m"} 0' in exposition(
            registry, {}
        )
        served.durable.snapshot()
        served.check_ready()
        registry.close()
        assert served.gauges.state()["rows"] == session


def test_ddm_is_refused_for_regressors(tmp_path: Path) -> None:
    pytest.importorskip("river")
    registry = ModelRegistry(tmp_path, drift=("adwin", "ddm"))
    registry.create("classes", op.RLSClassifier())
    with pytest.raises(ParameterError, match="ddm must be used with classifiers") as raised:
        registry.create("numbers", op.RLSRegressor())
    assert raised.value.where == "onepass serve: numbers"
    assert [each.name for each in registry] == ["classes"]
    assert not list(tmp_path.glob("numbers*"))
    registry.close()
    ModelRegistry(tmp_path).create("numbers", op.RLSRegressor()).close()
    registry = ModelRegistry(tmp_path, drift=("ddm",))
    with closing(registry), pytest.raises(ParameterError) as raised:
        registry.open_all()
    assert raised.value.where == "onepass serve: numbers"
    op.durable(tmp_path / "numbers.db").close()  # nobody holds it


def test_memory_is_measured_while_native_state_is_loaded(tmp_path: Path) -> None:
    """While single rows are learned, the state is in native memory."""
    with closing(ModelRegistry(tmp_path)) as registry:
        served = registry.create("m", op.RLSRegressor())
        rows = np.random.default_rng(0).normal(size=(40, 4))
        served.durable.learn(rows, rows[:, 0])
        served.durable.snapshot()
        for row in rows:
            served.durable.learn_one(row, row[0])
            size = served.durable.model().nbytes
            assert size // 2 < nbytes(served.durable.frozen_copy) <= size


def test_retired_model_keeps_its_own_metrics(tmp_path: Path) -> None:
    with closing(ModelRegistry(tmp_path)) as registry:
        for name in ("x", "x.retired-1"):
            registry.create(name, op.RLSRegressor()).durable.learn(X, Y)
        assert registry.retire("x") == tmp_path / "x.retired-2"
        assert registry.retire("x.retired-1") == tmp_path / "x.retired-1.retired-1"
        assert (tmp_path / "x.retired-2.gauges").exists()


@pytest.mark.filterwarnings("ignore::onepass.errors.CheckpointWarning")
@pytest.mark.parametrize("there", [False, True], ids=["moved", "replaced"])
def test_moved_or_replaced_file_is_not_retired(tmp_path: Path, *, there: bool) -> None:
    """The remaining files and the new one do not belong together."""
    path = tmp_path / "m.db"
    with op.durable(tmp_path / "backup", op.RLSRegressor()) as other:
        other.learn(np.ones((7, 3)), np.ones(7))
    with closing(ModelRegistry(tmp_path)) as registry:
        served = registry.create("m", op.RLSRegressor())
        served.durable.learn(X, Y)
        path.rename(tmp_path / "elsewhere")
        if there:
            (tmp_path / "backup").rename(path)
        before = sorted(each.name for each in tmp_path.iterdir())
        with pytest.raises(StoreError, match="was moved, removed"):
            registry.retire("m")
        assert registry["m"] is served
        assert served.durable.predict(X).shape == (1,)
        assert sorted(each.name for each in tmp_path.iterdir()) == before
        if not there:
            (tmp_path / "elsewhere").rename(path)
            retired = registry.retire("m")
            with op.durable(retired) as again:
                assert again.rows_seen == 1


def test_retired_files_are_not_overwritten(tmp_path: Path) -> None:
    with closing(ModelRegistry(tmp_path)) as registry:
        for number, end in enumerate(("", "-wal", ".gauges", ".db"), 1):
            (tmp_path / f"m.retired-{number}{end}").write_bytes(b"left")
        registry.create("m", op.RLSRegressor()).durable.learn(X, Y)
        assert registry.retire("m") == tmp_path / "m.retired-5"


def test_models_can_be_created_while_another_is_retired(tmp_path: Path) -> None:
    with closing(ModelRegistry(tmp_path)) as registry:
        going = registry.create("going", op.RLSRegressor())
        begun, free = Event(), Event()

        def slow() -> None:
            begun.set()
            assert free.wait(60)

        close = going.close
        going.close = lambda: (slow(), close())[1]  # type: ignore[method-assign, func-returns-value]
        with ThreadPoolExecutor(1) as aside:
            retired = aside.submit(registry.retire, "going")
            assert begun.wait(60)
            assert registry.create("other", op.RLSRegressor()).ready
            with pytest.raises(AlreadyExistsError):
                registry.create("going", op.RLSRegressor())
            with pytest.raises(NotFoundError):
                registry["going"]
            free.set()
            assert retired.result().exists()
        assert [served.name for served in registry] == ["other"]
        assert registry.create("going", op.RLSRegressor()).durable.rows_seen == 0


def test_all_learners_are_closed_even_if_one_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry = ModelRegistry(tmp_path)
    names = [f"m{i}" for i in range(40)]
    for name in names:
        registry.create(name, op.RLSRegressor()).durable.learn([[1.0]], [1.0])
    failing = registry["m7"]

    def fail() -> None:
        failing.durable.close()
        raise StoreError("the disk has failed", "m7")

    monkeypatch.setattr(failing, "close", fail)
    with pytest.raises(StoreError, match="the disk has failed"):
        registry.close()
    for name in names:
        with op.durable(tmp_path / f"{name}.db") as durable:
            assert [each.why for each in durable.versions] == ["beginning", "close"]


def test_number_of_pending_rows_of_a_request_is_limited(tmp_path: Path) -> None:
    with closing(ModelRegistry(tmp_path, max_queued=8)) as registry:
        served = registry.create("m", op.RLSRegressor())
        with raises(PayloadTooLargeError, got="3"):
            served.admit(3, lambda: None)
        assert served.admit(2, lambda: served.queued)() == 2
        assert served.queued == 0


@pytest.mark.parametrize(
    ("model", "predictions"),
    [
        (op.RLSRegressor(), 0.0),
        (op.Pipeline(op.features.Encode(), op.features.Scale(), op.RLSRegressor()), 0.0),
        (op.Pipeline(op.features.Encode(), op.RLSClassifier()), None),
        (op.Pipeline(op.features.Encode(), op.RLSClassifier(classes=[1, 2])), 2),
    ],
    ids=range(4),
)
def test_unfitted_model_predicts_many_rows(model: Any, predictions: Any) -> None:
    """All rows have the prediction of the first; one by one they would take minutes."""
    X = np.random.default_rng(0).normal(size=(1 << 19, 2))
    assert predict_rows(model, X).tolist() == [predictions] * len(X)
    assert predict_rows(model, X[:0]).shape == (0,)


def test_initial_coefficients_predict_before_learning() -> None:
    model, X = op.RLSRegressor(initial_coef=[1.0, 2.0]), np.arange(6.0).reshape(3, 2)
    np.testing.assert_array_equal(predict_rows(model, X), X @ [1.0, 2.0])
    X[2, 0] = np.nan
    with raises(NotFiniteError, argument="X", row=2):
        predict_rows(op.RLSRegressor(), X)


def test_dtypes_that_cannot_be_stored_are_refused(tmp_path: Path) -> None:
    model = op.Pipeline(op.features.Encode(), op.RLSRegressor())
    with op.durable(tmp_path / "m.db", model) as durable:
        for odd in (np.zeros(2, "V2"), np.zeros(2, complex)):
            with pytest.raises(TypeMismatchError, match="column 'a' must contain numbers"):
                durable.learn(Table({"a": odd}, 2), [1.0, 2.0])
        durable.learn(Table({"a": np.array([b"x", b"y"])}, 2), [1.0, 2.0])
    with op.durable(tmp_path / "m.db") as again:
        assert again.rows_seen == 2
