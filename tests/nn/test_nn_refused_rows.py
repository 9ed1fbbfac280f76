"""Refused rows are counted once and have no effect, also if masked on a device."""

from itertools import product
from typing import Any

import numpy as np
import pytest

from raising import raises

torch = pytest.importorskip("torch")

import onepass as op  # noqa: E402
from onepass import linalg  # noqa: E402
from onepass.errors import NumericalError, RowsRefusedWarning  # noqa: E402
from sampling import sample  # noqa: E402

nn = torch.nn
pytestmark = pytest.mark.filterwarnings("ignore::onepass.errors.MemoryFullWarning")


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
ALL = KINDS | {
    "ORFit": {"memory": 4},
    "ORFit-all": {"memory": None},
    "ORFit-noisy": {"memory": None, "noise": 0.1},
    "ORFit-layers": {"memory": 2, "by_layer": True},
    "OneStepSGD": {},
    "OGD": {"memory": 4, "step_size": 0.1, "batch": 3},
}


def made(kind: str) -> Any:
    block = {} if kind == "OGD" else {"block_update": True}
    return getattr(op.nn, kind.partition("-")[0])(Fragile(), **block, **ALL[kind])


@pytest.fixture(params=["on the processor", "as on a device"])
def masked(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether rows are masked, as on a device."""
    if request.param == "on the processor":
        return False
    for place in ("onepass.linalg", "onepass.linalg.backend", "onepass.linalg.vectors"):
        monkeypatch.setattr(f"{place}.on_device", linalg.is_tensor)
    return True


def state(net: Any) -> list[Any]:
    belief = getattr(net, "posterior_", None)
    parts = [] if belief is None else [getattr(belief, name) for name in belief.__slots__]
    arrays = [getattr(part, "rows", part) for part in parts]
    return [net.network.weights().numpy(), *(np.asarray(each) for each in arrays)]


@each_kind
@pytest.mark.usefixtures("masked")
def test_refused_rows_of_block_have_no_effect(kind: str) -> None:
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


@pytest.mark.parametrize("kind", sample(list(ALL), 5, "fully refused block"))
@pytest.mark.usefixtures("masked")
def test_fully_refused_block_changes_nothing(kind: str) -> None:
    X, Y = stream(9)
    net, right = (made(kind).learn(X[:3], Y[:3]) for _ in range(2))
    bad = X[3:6].copy()
    bad[:, 0] = 9.0
    with pytest.warns(RowsRefusedWarning, match=r"got 3 row\(s\)"):
        net.learn(bad, Y[3:6])
    for _ in range(2):
        for found, expected in zip(state(net), state(right), strict=True):
            np.testing.assert_array_equal(found, expected)
        for each in (net, right):
            each.learn(X[6:], Y[6:])
    assert (net.rows_refused_, net.rows_seen_, net.nbytes) == (3, 12, right.nbytes)


@each_kind
@pytest.mark.usefixtures("masked")
def test_fully_refused_first_block_creates_no_memory(kind: str) -> None:
    X, Y = stream(3)
    X[:, 0] = 9.0
    net = made(kind)
    with pytest.warns(RowsRefusedWarning, match=r"got 3 row\(s\)"):
        net.learn(X, Y)
    assert (net.posterior_, net.nbytes, net.rows_refused_) == (None, 0, 3)


@each_kind
def test_refused_step_counts_rows_once(kind: str) -> None:
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
    assert net.posterior_ is None
    assert net.inconsistent_rows_ == 0
    assert net.nbytes == 0


def test_zero_row_is_not_refused() -> None:
    """The time update applies, although error and gradient are zero as for a masked row."""
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
    two._accepted_rows = lambda e, J: (e, J)
    two.learn(X, Y)
    np.testing.assert_array_equal(one.network.weights(), two.network.weights())


# -- non-finite weights ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "many"), sample(list(product(ALL, [False, True])), 8, "non-finite weights")
)
def test_nonfinite_weights_are_named(kind: str, masked: bool, many: bool) -> None:  # noqa: FBT001
    X, Y = stream(8)
    net, right = (made(kind).learn(X[:4], Y[:4]) for _ in range(2))
    weight = net.module.inner.weight
    saved = weight.detach().clone()
    weight.data[1, 2] = np.nan
    rows = slice(4, 8 if many else 5)
    words = r"^.*'inner\.weight' contains nan or infinity, 1 of its 6 numbers\. Restore"
    with pytest.raises(NumericalError, match=words):
        net.learn(X[rows], Y[rows])
    if not masked:  # where no device had to be waited for, nothing was counted either
        assert (net.rows_seen_, net.rows_refused_) == (4, 0)
    assert int(weight.isnan().sum()) == 1
    weight.data.copy_(saved)
    for each in (net, right):
        each.learn(X[4:], Y[4:])
    for found, expected in zip(state(net), state(right), strict=True):
        np.testing.assert_array_equal(found, expected)


class Looked(nn.Module):
    """An embedding, of which rows use some indices."""

    def __init__(self) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.table = nn.Embedding(9, 2).double()

    def forward(self, x: Any) -> Any:
        return self.table(x[:, 0])


@pytest.mark.parametrize("kind", ["ORFit", "EKF", "LoFi", "NTKRLS", "OGD"])
def test_unused_nonfinite_weights_are_named(kind: str) -> None:
    net = getattr(op.nn, kind)(Looked())
    net.module.table.weight.data[7, 0] = np.inf
    with pytest.raises(NumericalError, match=r"'table\.weight' contains .* 1 of its 18 numbers"):
        net.learn(torch.tensor([[1], [2]]), torch.ones(2, 2))
    assert (net.rows_seen_, net.rows_refused_) == (0, 0)


def test_warning_names_nonfinite_frozen_weights() -> None:
    module = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 1)).double()
    module[0].bias.data[0] = np.nan
    X, Y = stream(3)
    with pytest.warns(RowsRefusedWarning, match=r"that do not learn: '0\.bias' contains nan"):
        net = op.nn.ORFit(module, learns="last").learn(X, Y[:, 0])
    assert net.rows_refused_ == 3
    assert bool(net.predict(X).isnan().all())


class Rooted(Fragile):
    """Nan where an input is negative."""

    def forward(self, x: Any) -> Any:
        return self.inner(x.sqrt())


def test_nan_output_is_no_class() -> None:
    X = np.abs(stream(4)[0])
    net = op.nn.ORFit(Rooted(), loss="one_hot").learn(X, np.array([0, 1, 0, 1]))
    X[2, 0] = -1.0
    with raises(NumericalError, where="ORFit.predict", row=2, got="nan", remedy="Check"):
        net.predict(X)
    assert net.outputs(X).isnan().any(dim=1).tolist() == [False, False, True, False]
    assert op.nn.ORFit(Rooted()).predict(X).isnan().any(dim=1).tolist()[2]
