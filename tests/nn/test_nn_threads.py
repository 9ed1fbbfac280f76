"""Network learners in several threads, and ragged rows."""

import copy
import pickle
import threading
from typing import Any

import pytest

import onepass as op
from onepass.errors import ShapeError
from raising import raises

torch = pytest.importorskip("torch")


def network() -> Any:
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Linear(6, 20), torch.nn.Tanh(), torch.nn.Dropout(0.5), torch.nn.Linear(20, 1)
    )


@pytest.mark.filterwarnings("ignore::onepass.errors.ModuleModeWarning")
def test_predict_while_another_thread_learns() -> None:
    X, y = torch.randn(10, 6), torch.randn(10)
    module, other = network(), network()
    first, wrong, over = module[0].weight, [], threading.Event()
    net, alone = (op.nn.ORFit(each, memory=10, noise=1.0) for each in (module, other))

    def ask() -> None:
        while not over.is_set():
            try:
                net.predict(X, return_std=True)
            except Exception as raised:  # noqa: BLE001  whatever it is, it is wrong
                wrong.append(raised)
                return

    threads = [threading.Thread(target=ask) for _ in range(2)]
    for each in threads:
        each.start()
    try:
        net.learn(X, y)
    finally:
        over.set()
        for each in threads:
            each.join()
    assert not wrong
    assert module[0].weight is first
    assert all(each.training for each in module.modules())
    assert torch.equal(net.predict(X), alone.learn(X, y).predict(X))


def pickled(net: Any) -> Any:
    return pickle.loads(pickle.dumps(net))  # noqa: S301  written here


@pytest.mark.parametrize("again", [copy.deepcopy, pickled])
def test_copy_has_its_own_lock(again: Any) -> None:
    net = op.nn.OneStepSGD(network().eval())
    one = again(net)
    with net.network.lock:
        asked = threading.Thread(target=one.predict, args=(torch.ones(1, 6),), daemon=True)
        asked.start()
        asked.join(60)
        assert not asked.is_alive()


def test_ragged_rows_are_refused() -> None:
    net = op.nn.OneStepSGD(network().eval())
    with raises(ShapeError, argument="x", got="rows of several lengths"):
        net.learn([[1.0, 2.0], [3.0]], [1.0, 2.0])
    assert net.rows_seen_ == 0
