"""Rows that filters refuse: counted once, and without a trace, also where a device masks them."""

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import onepass as op  # noqa: E402
from onepass.errors import RowsRefusedWarning  # noqa: E402

nn = torch.nn


class Fragile(nn.Module):
    """Not finite where its first input is above 5."""

    def __init__(self) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.inner = nn.Linear(3, 2).double()

    def forward(self, x: Any) -> Any:
        return self.inner(x) / (x[:, :1] < 5.0)


def stream(n: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    return rng.normal(size=(n, 3)), rng.normal(size=(n, 2))


KINDS = {
    "EKF": {"noise": 0.1, "process_noise": 0.05, "decay": 0.9},
    "EKF-exact": {"noise": 0.0, "process_noise": 0.05, "decay": 0.9},
    "LoFi": {"memory": 4, "noise": 0.1, "process_noise": 0.05, "decay": 0.9},
    "NTKRLS": {"forgetting": 0.8},
}
each_kind = pytest.mark.parametrize("kind", KINDS)
each_way = pytest.mark.parametrize("masked", [False, True])


def made(kind: str) -> Any:
    return getattr(op.nn, kind.partition("-")[0])(Fragile(), block_update=True, **KINDS[kind])


def masked_block(net: Any, n: int) -> None:
    """What a device hands on of a block of which no row is good: zeros, and their number."""
    net._masked, net._refused = net._refused, net._refused + torch.tensor(n)
    zeros = torch.zeros(2 * n, net.network.p, dtype=torch.float64)
    net._learn(None, zeros[:, :2][:n], zeros)


def state(net: Any) -> list[Any]:
    belief = net.belief_
    parts = [] if belief is None else [getattr(belief, name) for name in belief.__slots__]
    arrays = [getattr(part, "rows", part) for part in parts]
    return [net.network.weights().numpy(), *(np.asarray(each) for each in arrays)]


@each_kind
def test_of_a_block_those_that_are_refused_leave_no_trace(kind: str) -> None:
    X, Y = stream(6)
    bad = X.copy()
    bad[[1, 4], 0] = 9.0
    good = [0, 2, 3, 5]
    net, right = made(kind), made(kind).learn(X[good], Y[good])
    with pytest.warns(RowsRefusedWarning, match=r"got 2 row\(s\)"):
        net.learn(bad, Y)
    for found, expected in zip(state(net), state(right), strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-14)
    assert (net.rows_refused_, net.rows_seen_) == (2, 6)


@each_way
@each_kind
def test_a_block_of_which_none_is_good_changes_nothing(kind: str, masked: bool) -> None:  # noqa: FBT001
    X, Y = stream(6)
    net = made(kind).learn(X[:3], Y[:3])
    before, nbytes = state(net), net.nbytes
    bad = X[3:].copy()
    bad[:, 0] = 9.0
    if masked:
        masked_block(net, 3)
    else:
        with pytest.warns(RowsRefusedWarning, match=r"got 3 row\(s\)"):
            net.learn(bad, Y[3:])
    for found, expected in zip(state(net), before, strict=True):
        np.testing.assert_array_equal(found, expected)
    assert (net.rows_refused_, net.nbytes) == (3, nbytes)
    fresh = made(kind)
    masked_block(fresh, 3)
    assert fresh.belief_ is None
    assert fresh.nbytes == 0


@each_kind
def test_a_step_that_is_refused_counts_its_rows_once(kind: str) -> None:
    bad = stream(5)[0]
    bad[2, 0] = 9.0
    net = made(kind)
    with torch.no_grad():  # errors that are finite, and steps that are not
        net.module.inner.bias.fill_(-1.7e308)
    before = state(net)
    with pytest.warns(RowsRefusedWarning, match=r"got 5 row\(s\)"):
        net.learn(bad, np.full((5, 2), 1.7e308))
    assert (net.rows_refused_, net.rows_seen_) == (5, 5)
    np.testing.assert_array_equal(state(net)[0], before[0])
    assert net.belief_ is None
    assert net.contradictions_ == 0
    assert net.nbytes == 0


def test_a_row_that_says_nothing_is_not_taken_for_a_refused_one() -> None:
    """Its time passes, though its error and gradient are zero as a masked row's are."""
    X, Y = stream(4)
    dead = [nn.Sequential(nn.Linear(3, 1, bias=False), nn.ReLU()).double() for _ in range(2)]
    for module in dead:
        nn.init.ones_(module[0].weight)
    X[0] = -1.0  # the unit is dead there
    X[1:] = np.abs(X[1:])
    Y = Y[:, 0]
    Y[0] = 0.0
    given = {"noise": 0.1, "process_noise": 0.5, "block_update": True}
    one, two = (op.nn.EKF(module, **given) for module in dead)
    one.learn(X, Y)
    two._learnable = lambda e, J: (e, J)
    two.learn(X, Y)
    np.testing.assert_array_equal(one.network.weights(), two.network.weights())
