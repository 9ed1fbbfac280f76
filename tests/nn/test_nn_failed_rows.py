"""Rows that a module rejects, copies made during learning, and state that is not saved."""

import copy
import io
import pickle
import signal
import threading
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import onepass as op
from onepass.errors import (
    CheckpointError,
    ModuleError,
    NotFiniteError,
    NumericalError,
    RowsRefusedWarning,
    ShapeError,
)
from raising import raises
from sampling import sample

torch = pytest.importorskip("torch")

KINDS: dict[str, Callable[[Any], Any]] = {
    "ORFit": lambda module: op.nn.ORFit(module, memory=10),
    "OneStepSGD": op.nn.OneStepSGD,
    "OGD": lambda module: op.nn.OGD(module, memory=10, step_size=0.05, batch=4),
    "NTKRLS": op.nn.NTKRLS,
    "EKF": op.nn.EKF,
    "LoFi": lambda module: op.nn.LoFi(module, memory=5),
}
each_kind = pytest.mark.parametrize("kind", KINDS)


class Body(torch.nn.Module):  # type: ignore[misc, name-defined, unused-ignore]
    """A small network with a hook that a test may define."""

    def __init__(self, look: Callable[[Any, Any], Any] | None = None) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.inner = torch.nn.Sequential(
                torch.nn.Linear(3, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1)
            )
        self.look = look

    def forward(self, x: Any) -> Any:
        changed = None if self.look is None else self.look(self, x)
        return self.inner(x if changed is None else changed)


def stream(n: int = 30) -> tuple[Any, Any]:
    X = torch.randn(n, 3, generator=torch.Generator().manual_seed(1))
    return X, torch.sin(X[:, 0])


def weights(net: Any) -> Any:
    return net.network.weights().numpy()


# -- failing forward passes -----------------------------------------------------------------------


def in_range(_: Any, x: Any) -> None:
    if (x[:, 0] > 50).any():
        raise ValueError("sensor out of range")


@pytest.mark.parametrize(
    ("kind", "row"), sample(list(product(KINDS, [2, 20])), 6, "failing forward pass")
)
def test_failing_row_is_named_before_learning(kind: str, row: int) -> None:
    X, y = stream()
    net = KINDS[kind](Body(in_range)).learn(X[:9], y[:9])
    before, bad = weights(net), X.clone()
    bad[row, 0] = 99.0
    with raises(
        ModuleError,
        where=f"{kind}.learn",
        got="ValueError: sensor out of range",
        row=row,
        remedy="None of the 30 row(s) was learned: drop",
    ) as caught:
        net.learn(bad, y)
    assert type(caught.value.__cause__) is ValueError
    np.testing.assert_array_equal(weights(net), before)
    assert net.rows_seen_ == 9
    with raises(ModuleError, row=0, remedy="None of the 1 row"):
        net.learn(bad[row : row + 1], y[:1])
    with pytest.raises(ValueError, match="sensor out of range") as asked:
        net.predict(bad)
    assert not isinstance(asked.value, op.errors.OnepassError)
    again = KINDS[kind](Body()).learn(X[:9], y[:9]).learn(X, y)
    np.testing.assert_allclose(weights(net.learn(X, y)), weights(again), rtol=0, atol=1e-6)


def test_failing_first_rows_are_named() -> None:
    X, y = stream()
    X[3, 0] = 99.0
    for make in KINDS.values():
        net = make(Body(in_range))
        with raises(ModuleError, remedy="Nothing was"):
            net.learn(X, y)
        assert net.rows_seen_ == 0


class SensorError(Exception):
    """A custom exception."""


def grown(module: Any, _: Any) -> None:
    if module.inner[2].bias.detach().item() != module.held:
        raise SensorError


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "OGD"])
def test_later_failure_reports_learned_rows(kind: str) -> None:
    X, y = stream()
    module = Body()
    net = KINDS[kind](module).learn(X[:3], y[:3])
    module.look, module.held = grown, module.inner[2].bias.item()
    with raises(
        ModuleError,
        row=1,
        got="SensorError",
        remedy="1 of the 10 rows were learned (see `rows_seen_`): continue with X[1:],",
    ) as caught:
        net.learn(X[:10], y[:10])
    assert type(caught.value.__cause__) is SensorError
    assert net.rows_seen_ == 4
    module.look = None
    right = KINDS[kind](Body()).learn(X[:3], y[:3]).learn(X[:1], y[:1])
    np.testing.assert_array_equal(weights(net), weights(right))


def test_ogd_batch_with_failing_row_is_not_learned() -> None:
    X, y = stream()
    module = Body()
    net = KINDS["OGD"](module).learn(X[:4], y[:4])
    module.look, module.held = grown, module.inner[2].bias.item()
    with pytest.raises(ModuleError, match=r"of the rows 0 to 3, got .* None of the 10 row"):
        net.learn(X[4:14], y[4:14])
    assert net.rows_seen_ == 4


def test_other_failures_report_learned_rows() -> None:
    X, y = stream()
    net = op.nn.ORFit(Body())
    learn, calls = net._learn, []

    def fails(*given: Any) -> None:
        calls.append(given)
        if len(calls) > 4:
            raise MemoryError
        learn(*given)

    net._learn = fails
    with pytest.raises(MemoryError) as caught:
        net.learn(X, y)
    (note,) = caught.value.__notes__
    assert note.startswith("The error was raised at row 4. 4 of the 30 rows")
    assert net.rows_seen_ == 4


@pytest.mark.usefixtures("interruptible")
@each_kind
def test_rows_seen_after_interrupt(kind: str) -> None:
    X, y = stream()
    net, right = KINDS[kind](Body()), KINDS[kind](Body()).learn(X, y)
    step, before = net._step, net.rows_seen_

    def interrupted(*given: Any) -> Any:
        if net.rows_seen_ == 12:
            signal.raise_signal(signal.SIGINT)
        return step(*given)

    net._step = interrupted
    with pytest.raises(KeyboardInterrupt):
        net.learn(X, y)
    net._step, done = step, net.rows_seen_ - before
    assert done == (16 if kind == "OGD" else 13)
    np.testing.assert_array_equal(weights(net.learn(X[done:], y[done:])), weights(right))
    assert net.rows_seen_ == 30


def test_module_for_single_rows_learns() -> None:
    def alone(_: Any, x: Any) -> None:
        if len(x) > 8:  # as many as it is tried with
            raise RuntimeError("out of room")

    X, y = stream()
    net = op.nn.ORFit(Body(alone)).learn(X, y)
    np.testing.assert_array_equal(weights(net), weights(op.nn.ORFit(Body()).learn(X, y)))


# -- another number of outputs --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "n"), sample(list(product(KINDS, [1, 3])), 6, "more outputs than before")
)
def test_more_outputs_than_before_are_refused(kind: str, n: int) -> None:
    X, y = stream()
    net = KINDS[kind](Body()).learn(X[:9], y[:9])
    before, steps = weights(net), torch.randn(n, 5, 3)
    with raises(ShapeError, where=f"{kind}.learn", got="5"):
        net.learn(steps, y[:n])
    with raises(ShapeError, where=f"{kind}.predict", got="5", remedy="Pass rows of the same shape"):
        net.predict(steps)
    assert net.outputs(steps).shape == (n, 5)
    np.testing.assert_array_equal(weights(net), before)
    again = KINDS[kind](Body()).learn(X[:9], y[:9]).learn(X[9:], y[9:])
    np.testing.assert_array_equal(weights(net.learn(X[9:], y[9:])), weights(again))


@each_kind
def test_refused_rows_do_not_fix_number_of_outputs(kind: str) -> None:
    X, y = stream()
    net = KINDS[kind](Body())
    with raises(ShapeError, argument="y", remedy="For classes use loss='one_hot'"):
        net.learn(torch.randn(2, 5, 3), torch.ones(2))
    assert net.learn(X, y).predict(X).shape == (30,)


# -- rows that are not finite ---------------------------------------------------------------------


@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.parametrize("per_task", [None, 5])
def test_ogd_skips_single_rows(steps: int, per_task: int | None) -> None:
    def logs(_: Any, x: Any) -> Any:
        return torch.log(x + 4.0)

    X, y = stream(12)
    bad = X.clone().clamp(-3.0)
    good = bad[[0, 2, 3, 4, 5, 6, 7, 8, 9, 11]]
    bad[[1, 10], 0] = -9.0
    accepted = torch.tensor([0, 2, 3, 4, 5, 6, 7, 8, 9, 11])
    given = {"step_size": 0.05, "batch": 6, "steps": steps, "per_task": per_task}
    net, right = (op.nn.OGD(Body(logs), 10, **given) for _ in range(2))
    with pytest.warns(RowsRefusedWarning, match=r"got 2 row\(s\)"):
        predictions = net.test_then_train(bad, y)
    for rows in (slice(0, 5), slice(5, 10)):
        right.learn(good[rows], y[accepted][rows])
    np.testing.assert_allclose(weights(net), weights(right), rtol=0, atol=1e-6)
    assert predictions.isnan().nonzero().ravel().tolist() == [1, 10]
    assert (net.rows_seen_, net.rows_refused_) == (12, 2)
    if per_task:
        np.testing.assert_allclose(net._drawn, right._drawn, rtol=0, atol=1e-6)


@each_kind
def test_input_overflow_is_refused(kind: str) -> None:
    X, y = stream(2)
    net, rows = KINDS[kind](Body()), X.numpy().astype(float)
    rows[1, 0] = 1e200
    with pytest.raises(NotFiniteError) as raised:
        net.learn(rows, y)
    assert (raised.value.argument, raised.value.row, raised.value.column) == ("x", 1, 0)
    assert net.rows_seen_ == 0


# -- copies ---------------------------------------------------------------------------------------


def pickled(net: Any) -> Any:
    return pickle.loads(pickle.dumps(net))  # noqa: S301  written here


def filed(net: Any) -> Any:
    file = io.BytesIO()
    torch.save(net, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


@pytest.mark.parametrize(
    ("kind", "again"),
    sample(
        list(product(["ORFit", "OneStepSGD", "OGD", "EKF"], [copy.deepcopy, pickled, filed])),
        4,
        "copy during learning",
    ),
)
def test_copy_during_learning_is_consistent(kind: str, again: Any) -> None:
    X, y = stream(12)
    one, states = KINDS[kind](Body()), []
    for k in range(len(X) + 1):
        states.append(weights(one).copy())
        one.learn(X[k : k + 1], y[k : k + 1])
    net, finished = KINDS[kind](Body()), threading.Event()

    def learn() -> None:
        for k in range(len(X)):
            net.learn(X[k : k + 1], y[k : k + 1])
            net.predict(X[:2])
        finished.set()

    thread = threading.Thread(target=learn)
    thread.start()
    copies = []
    while not finished.is_set():
        copies.append(again(net))
    thread.join()
    for each in [*copies, again(net)]:
        np.testing.assert_array_equal(weights(each), states[each.rows_seen_])
        assert each.module is each.network.module
        each.predict(X[:2])
        k = each.rows_seen_
        np.testing.assert_array_equal(
            weights(each.learn(X[k : k + 1], y[k : k + 1])), states[min(k + 1, len(X))]
        )


def test_shallow_copy_shares_state() -> None:
    net = op.nn.ORFit(Body()).learn(*stream())
    assert copy.copy(net).module is net.module
    both = copy.deepcopy({"net": net, "module": net.module})
    assert both["net"].module is both["module"]
    assert both["module"] is not net.module
    net.module.learner = [net]  # a way back
    for each in (copy.deepcopy(net), pickled(net)):
        assert each.module.learner[0] is each
    with net.network.lock:  # a copy of a state in hand
        on_device = threading.Thread(target=copy.deepcopy, args=(net,), daemon=True)
        on_device.start()
        on_device.join(0.05)
        assert on_device.is_alive()
    on_device.join(60)
    assert not on_device.is_alive()


# -- nan ------------------------------------------------------------------------------------------


def test_nan_module_is_neither_wrapped_nor_saved(tmp_path: Path) -> None:
    X, y = stream()
    net = op.nn.ORFit(Body()).learn(X, y)
    file = tmp_path / "net.onepass"
    op.save(net, file)
    content = file.read_bytes()
    for number in (np.nan, np.inf):
        net.module.inner[0].weight.data[1, 2] = number
        with raises(CheckpointError, got="1 invalid of 24 numbers in 'inner.0.weight'"):
            op.save(net, file)
        assert file.read_bytes() == content
        with pytest.raises(NumericalError, match=r"^EKF: .*'inner\.0\.weight' contains nan"):
            op.nn.EKF(net.module)
    again = op.nn.load(file, net.module)  # what a new module holds does not matter
    np.testing.assert_array_equal(again.predict(X), op.nn.ORFit(Body()).learn(X, y).predict(X))


def test_file_with_nan_does_not_change_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    net = op.nn.ORFit(Body())
    net.module.inner[2].bias.data[0] = np.nan
    monkeypatch.setattr("onepass.nn.saving._check_no_nan", lambda *_: None)  # as files once were
    op.save(net, tmp_path / "net.onepass")
    monkeypatch.undo()
    module = Body()
    before = [each.clone() for each in module.parameters()]
    with raises(CheckpointError, got="1 invalid of 1 numbers in 'inner.2.bias'"):
        op.nn.load(tmp_path / "net.onepass", module)
    assert all(map(torch.equal, module.parameters(), before))


def test_infinite_mask_buffers_are_saved(tmp_path: Path) -> None:
    module = Body()
    module.register_buffer("mask", torch.tensor([0.0, -torch.inf]))
    net = op.nn.OneStepSGD(module).learn(*stream())
    op.save(net, tmp_path / "net.onepass")
    module.mask[0] = torch.nan
    with raises(CheckpointError, got="1 invalid of 2 numbers in 'mask'"):
        op.save(net, tmp_path / "net.onepass")
