"""Edge cases of steps: memory errors, zero rows, half precision, tiny noise."""

import copy
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from raising import raises

torch = pytest.importorskip("torch")

import onepass as op  # noqa: E402
from onepass import linalg  # noqa: E402
from onepass.errors import MergeError, RowsRefusedWarning, ShapeError  # noqa: E402
from onepass.linalg.subspace import OrthonormalBasis  # noqa: E402

nn = torch.nn


def unbiased(*layers: int) -> Any:
    torch.manual_seed(0)
    parts = [nn.Linear(d, c, bias=False) for d, c in pairwise(layers)]
    tanh = [each for part in parts for each in (part, nn.Tanh())]
    return nn.Sequential(*tanh[:-1]).double()


def stream(n: int, d: int = 3, seed: int = 1) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    return torch.as_tensor(rng.normal(size=(n, d))), torch.as_tensor(rng.normal(size=n))


# -- rows of zeros --------------------------------------------------------------------------------


@pytest.mark.parametrize("layers", [(3, 1), (3, 8, 1)])
def test_zero_row_is_uninformative_about_linearity(layers: Any) -> None:
    X, y = stream(6)
    linear = len(layers) == 2
    one = op.nn.ORFit(unbiased(*layers), memory=None)
    two = copy.deepcopy(one)
    zeros = 0.0 * X[:1]
    assert one.network.is_linear(zeros) is None
    assert one.merging == "approximate"  # as nobody has asked it yet
    one.learn(zeros, y[:1])
    assert one.merging == "approximate"
    kind = "exact" if linear else "approximate"
    for net, rows in ((one, slice(0, 2)), (two, slice(3, 5))):
        net.learn(X[rows], y[rows])
        assert net.merging == kind
    assert ("changes of gradients" in one.forgetting_bound_.why) is not linear


@pytest.mark.parametrize("first", [True, False])
def test_merge_uses_known_linearity_of_either_part(first: bool) -> None:  # noqa: FBT001
    X, y = stream(3)
    one = op.nn.ORFit(unbiased(3, 8, 1), memory=4)
    two = copy.deepcopy(one)
    learned, blank = (one, two) if first else (two, one)
    learned.learn(X, y)
    blank.learn(0.0 * X[:1], y[:1])
    assert one.merge(two).merging == "approximate"
    assert one.rows_seen_ == 4


# -- steps that cannot be taken -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "given"),
    [
        ("ORFit", {"memory": None}),
        ("ORFit", {"memory": 4}),
        ("ORFit", {"memory": 4, "by_layer": True}),
        ("OGD", {"memory": None, "step_size": 0.1}),
        ("OGD", {"memory": 4, "step_size": 0.1}),
    ],
)
def test_memory_error_leaves_weights_unchanged(
    kind: str, given: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, y = stream(8)
    net = getattr(op.nn, kind)(unbiased(3, 8, 1), **given).learn(X[:3], y[:3])
    twin, before = copy.deepcopy(net), net.network.weights()

    def full(*_: Any) -> Any:
        raise torch.OutOfMemoryError("no room")

    with monkeypatch.context() as patch:
        patch.setattr(OrthonormalBasis, "appended", full)
        with pytest.raises(torch.OutOfMemoryError):
            net.learn(X[3:4], y[3:4])
    assert torch.equal(net.network.weights(), before)
    assert (net.rows_seen_, net.rows_refused_) == (3, 0)
    for each in (net, twin):
        each.learn(X[3:], y[3:])
    assert torch.equal(net.network.weights(), twin.network.weights())


class Steep(nn.Module):
    """Gradients are nan if the first input is zero."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(3))

    def forward(self, x: Any) -> Any:
        return (x * self.weight).sum(1, keepdim=True) / x[:, :1].sqrt()


def test_refused_block_counts_each_row_once() -> None:
    net = op.nn.ORFit(Steep(), memory=5, block_update=True)
    rows = torch.tensor([[0.0, 1.0, 1.0], [1e-30, 1e-17, 1e-25], [1e-30, 0.0, 1e-17]])
    with pytest.warns(RowsRefusedWarning, match=r"got 3 row\(s\)"):
        net.learn(rows, torch.tensor([1.0, 1e38, 1e38]))
    assert (net.rows_seen_, net.rows_refused_) == (3, 3)
    assert not net.network.weights().any()


# -- numbers --------------------------------------------------------------------------------------


@pytest.mark.parametrize("noise", [1e-8, 1e-12, 1e-16, 1e-20, 1e-24])
@pytest.mark.parametrize("seed", range(3))
def test_process_noise_with_parallel_rows_and_small_noise(noise: float, seed: int) -> None:
    x, _ = stream(1, seed=seed)
    X = x * torch.tensor([1.0, 2.0, 3.0, 0.7]).double()[:, None]
    given: Any = {"noise": noise, "process_noise": 0.5, "decay": 0.9, "block_update": True}
    net = op.nn.LoFi(unbiased(3, 1), 6, **given)
    for _ in range(3):
        net.learn(X, X[:, 0])
    along = x[0] / torch.linalg.vector_norm(x)
    across = torch.linalg.svd(x).Vh[1:]
    predictions, std = net.predict(torch.vstack((along, across)), return_std=True)
    decay, drift = 0.9**4, 0.5 * (1.0 - 0.9**8) / (1.0 - 0.9**2)  # of a block's time
    prior = 1.0
    for _ in range(3):
        prior = decay**2 * prior + drift
    np.testing.assert_allclose(std[0], np.sqrt(drift), rtol=1e-6)
    np.testing.assert_allclose(std[1:], np.sqrt(prior), rtol=1e-6)
    start = unbiased(3, 1)(along[None].double()).item()
    right = start + decay * (float(along[0]) - start)
    np.testing.assert_allclose(float(predictions[0]), right, atol=1e-6)


def test_norms_of_empty_matrix() -> None:
    for p in (5, 20_000):
        for dtype in (torch.float64, torch.float32, torch.bfloat16):
            assert linalg.norms(torch.zeros(p, 0, dtype=dtype)).shape == (0,)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_evaluate_half_precision_networks(dtype: Any) -> None:
    X, y = (each.numpy() for each in stream(20))
    net = op.nn.ORFit(nn.Linear(3, 1).to(dtype), 3, 0.1)
    report = op.evaluate.prequential({"net": net}, (X, y), metrics=["mae"])
    assert np.isfinite(report.scores["net"].overall["mae"])


# -- reported values ------------------------------------------------------------------------------


def test_missing_bound_reason_is_unchanged_by_merge() -> None:
    X, y = stream(6)
    one = op.nn.ORFit(unbiased(3, 8, 1), 3, 0.1)
    two = copy.deepcopy(one).learn(X[3:], y[3:])
    why = one.learn(X[:3], y[:3]).forgetting_bound_.why
    assert one.merge(two).forgetting_bound_.why == why
    assert "noise" in why


def test_drift_accepts_raw_module_outputs() -> None:
    X, y = stream(4)
    net = op.nn.ORFit(unbiased(3, 1), 2).learn(X, y)
    assert net.drift(X, net.module(X)) == 0.0
    with raises(ShapeError, argument="predictions", got="shape ()"):
        net.drift(X[:1], 1.0)


def test_threads_inherit_overflow_handling() -> None:
    def work(pieces: Any) -> Any:
        return (float(len(pieces) * (np.geterr()["over"] == "ignore")),)

    with np.errstate(over="ignore"):
        assert linalg.sum_in_threads(work, [slice(0, 1)] * 5, 3) == (5.0,)


@pytest.mark.parametrize("name", ["EKF", "NTKRLS", "LoFi", "OneStepSGD"])
def test_refused_merge_ignores_validation_rows(name: str) -> None:
    one, two = (getattr(op.nn, name)(torch.nn.Linear(2, 1)) for _ in range(2))
    with raises(MergeError, remedy="ORFit"):
        one.merge(two, rows=(torch.ones(1, 2), torch.ones(1)))


def test_overflowing_norms_are_recomputed_without_warning() -> None:
    rows = torch.linalg.qr(torch.randn(60_000, 5, generator=torch.Generator().manual_seed(0))).Q.T
    g = torch.full((60_000, 1), 1e30)
    split = OrthonormalBasis(rows.contiguous()).split(g)
    off = (rows.double() @ split.outside.double()).abs().max() / split.outside.double().norm()
    assert float(off) < 1e-6
