"""ORFit of networks, on regular and degenerate streams."""

import copy
import warnings
from typing import Any

import numpy as np
import pytest

import onepass as op
from onepass.errors import (
    LabelError,
    MemoryFullWarning,
    NotFiniteError,
    ParameterError,
    RowsRefusedWarning,
    ShapeError,
    TypeMismatchError,
)
from raising import raises

torch = pytest.importorskip("torch")

MEMORIES = [None, 5, op.memory.Principal(5, of="projected"), op.memory.LastDirections(5),
            op.memory.Random(5), op.memory.NoMemory()]  # fmt: skip
each_memory = pytest.mark.parametrize("memory", MEMORIES, ids=repr)


def network(c: int = 1, activation: Any = torch.nn.Tanh, dtype: Any = torch.float64) -> Any:
    generator = torch.Generator().manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(4, 25), activation(), torch.nn.Linear(25, c)).to(
        dtype
    )
    with torch.no_grad():
        for each in module.parameters():
            each.copy_(torch.randn(each.shape, dtype=torch.float64, generator=generator) * 0.5)
    return module


def rows(n: int, seed: int = 1) -> Any:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, 4, dtype=torch.float64, generator=generator)


def flat(module: Any) -> np.ndarray:
    return torch.cat([each.detach().reshape(-1) for each in module.parameters()]).numpy().copy()


@each_memory
def test_row_is_fitted_to_first_order(memory: Any) -> None:
    module = network()
    net = op.nn.ORFit(module, memory=memory)
    x = rows(6)
    y = net.predict(x) + 1e-3
    for i in range(6):
        net.learn(x[i : i + 1], y[i : i + 1])
        assert abs(float(net.predict(x[i : i + 1]) - y[i])) < 1e-5
    assert (net.rows_seen_, net.rows_refused_, net.inconsistent_rows_) == (6, 0, 0)


@each_memory
def test_rows_of_one_call_are_learned_sequentially(memory: Any) -> None:
    module = network(2)
    other = copy.deepcopy(module)
    x, y = rows(12), rows(12, 2)[:, :2]
    together, single = op.nn.ORFit(module, memory=memory), op.nn.ORFit(other, memory=memory)
    predictions = together.test_then_train(x, y)
    for i in range(12):
        before = single.predict(x[i : i + 1])
        torch.testing.assert_close(predictions[i : i + 1], before)
        single.learn(x[i : i + 1], y[i : i + 1])
    np.testing.assert_array_equal(flat(module), flat(other))


def test_repeated_rows_change_nothing() -> None:
    module = torch.nn.Linear(4, 1, bias=False).double()
    net = op.nn.ORFit(module, memory=None)
    x, y = rows(3), rows(3, 2)[:, 0]
    before = flat(net.learn(x, y).module)
    for scale in (1.0, -3.0):
        net.learn(scale * x, scale * y)
    np.testing.assert_allclose(flat(module), before, atol=1e-10)
    assert net.inconsistent_rows_ == 0
    assert net.memory_.rank == 3


@pytest.mark.parametrize("memory", [None, 3])
def test_inconsistent_rows_are_counted(memory: Any) -> None:
    module = torch.nn.Linear(4, 1, bias=False).double()
    net = op.nn.ORFit(module, memory=memory)
    x = rows(1)
    net.learn(x, [2.0]).learn(x, [5.0]).learn(2.0 * x, [-1.0])
    assert float(net.predict(x)) == pytest.approx(2.0)
    assert net.inconsistent_rows_ == 2
    assert np.isfinite(flat(module)).all()


def test_gradient_in_span_adds_no_direction() -> None:
    module = torch.nn.Linear(4, 1, bias=False).double()
    net = op.nn.ORFit(module, memory=None)
    x = rows(2)
    net.learn(x, [1.0, 2.0]).learn((x[:1] + x[1:]), [3.0])
    assert net.memory_.rank == 2
    assert net.inconsistent_rows_ == 0


@each_memory
@pytest.mark.parametrize("noise", [0.0, 0.5])
def test_zero_gradients_learn_nothing(memory: Any, noise: float) -> None:
    if noise and not (memory is None or isinstance(memory, int) or memory == op.memory.NoMemory()):
        pytest.skip("a memory of projected directions has no noise")
    module = network(activation=torch.nn.ReLU)
    with torch.no_grad():
        module[0].bias.fill_(-100.0)  # every unit is dead
        module[2].bias.requires_grad_(False)  # noqa: FBT003  torch's own
    before = flat(module)
    net = op.nn.ORFit(module, memory=memory, noise=noise)
    predictions = net.test_then_train(rows(5), torch.ones(5))
    np.testing.assert_array_equal(flat(module), before)
    assert predictions.isfinite().all()
    assert net.inconsistent_rows_ == (0 if noise else 5)  # none of them can be fitted


class Fragile(torch.nn.Module):
    """Not finite where its input is large."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 2).double()

    def forward(self, x: Any) -> Any:
        return self.layer(x) / (x[:, :1] < 10.0).double()


@each_memory
@pytest.mark.parametrize("block", [False, True])
def test_nonfinite_loss_is_skipped_with_warning(memory: Any, *, block: bool) -> None:
    module = Fragile()
    other = copy.deepcopy(module)
    x, y = rows(6), rows(6, 2)[:, :2]
    bad = x.clone()
    bad[[1, 4], 0] = 100.0
    net = op.nn.ORFit(module, memory=memory, block_update=block)
    with pytest.warns(RowsRefusedWarning, match=r"ORFit: .*got 2 row"):
        net.learn(bad, y)
    good = [0, 2, 3, 5]
    op.nn.ORFit(other, memory=memory, block_update=block).learn(x[good], y[good])
    np.testing.assert_allclose(flat(module), flat(other), atol=1e-12)
    assert (net.rows_seen_, net.rows_refused_) == (6, 2)


@pytest.mark.parametrize("loss", ["one_hot", "cross_entropy"])
def test_classification(loss: Any) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(150, 4))
    y = (X[:, 0] > 0).astype(int) + (X[:, 1] > 0.5)
    net = op.nn.ORFit(network(3), memory=60, noise=1.0, loss=loss)
    predictions = net.test_then_train(X, y)
    assert predictions.dtype == torch.int64
    assert float((predictions[100:].numpy() == y[100:]).mean()) > 0.7
    assert net.predict(X).shape == (150,)


def test_cross_entropy_rows_give_gradient_and_curvature() -> None:
    from onepass.nn.losses import RowLoss

    generator = torch.Generator().manual_seed(0)
    z = torch.randn(1, 4, dtype=torch.float64, generator=generator)
    J = torch.randn(4, 9, dtype=torch.float64, generator=generator)
    y = torch.tensor([[0.0, 0.0, 1.0, 0.0]], dtype=torch.float64)
    errors, gradients = RowLoss("cross_entropy").rows(z, y, J)

    def loss(w: Any) -> Any:
        return torch.nn.functional.cross_entropy(z + (J @ w)[None], torch.tensor([2]))

    zero = torch.zeros(9, dtype=torch.float64)
    gradient = torch.func.grad(loss)(zero)
    torch.testing.assert_close(gradients.T @ errors[0], -gradient)
    # the Hessian of outputs linear in w is Gauss-Newton's; it is increased along the gradient, so
    # that ||e||² is at most twice the loss
    hessian = torch.autograd.functional.hessian(loss, zero)
    twice = 2.0 * float(loss(zero))
    s = torch.softmax(z[0], 0)
    unlimited = float((y[0] - s).square().div(s).sum())
    assert unlimited > twice
    torch.testing.assert_close(errors.square().sum(), torch.tensor(twice, dtype=torch.float64))
    added = (1.0 / twice - 1.0 / unlimited) * torch.outer(gradient, gradient)
    torch.testing.assert_close(gradients.T @ gradients, hessian + added)


def test_other_module_state_is_not_changed() -> None:
    module = torch.nn.Sequential(
        torch.nn.Linear(4, 6), torch.nn.BatchNorm1d(6), torch.nn.Dropout(0.5), torch.nn.Linear(6, 1)
    ).double()
    module.train()
    frozen = module[0].weight.detach().clone()
    module[0].weight.requires_grad_(False)  # noqa: FBT003  torch's own
    buffers = {name: each.clone() for name, each in module.named_buffers()}
    net = op.nn.ORFit(module, memory=3)
    with pytest.warns(op.errors.ModuleModeWarning):
        net.learn(rows(5), torch.ones(5))
    assert module.training
    torch.testing.assert_close(module[0].weight.detach(), frozen, rtol=0, atol=0)
    for name, each in module.named_buffers():
        torch.testing.assert_close(each, buffers[name], rtol=0, atol=0)
    assert all(each.grad is None for each in module.parameters())


@pytest.mark.parametrize(
    ("given", "error", "fields"),
    [
        (lambda net: net.learn(rows(3), [1.0, 2.0]), ShapeError, {"argument": "y", "got": "2"}),
        (
            lambda net: net.learn(rows(2), torch.ones(2, 5)),
            ShapeError,
            {"argument": "y", "got": "5"},
        ),
        (
            lambda net: net.learn(rows(2), [1.0, np.nan]),
            NotFiniteError,
            {"argument": "y", "row": 1, "got": "nan"},
        ),
        (
            lambda net: net.learn(rows(2) / 0.0, [1.0, 2.0]),
            NotFiniteError,
            {"argument": "x", "got": "infinity"},
        ),
        (lambda net: net.learn(rows(2), ["a", "b"]), TypeMismatchError, {"argument": "y"}),
        (
            lambda net: net.learn(rows(2)[:, :3], [1.0, 2.0]),
            ShapeError,
            {"got": "float64 (2, 3), and it raised: mat1 and mat2 shape"},
        ),
        (
            lambda net: net.test_then_train(rows(2), 1.0),
            ShapeError,
            {"argument": "y", "remedy": "Pass as many targets"},
        ),
    ],
)
def test_invalid_rows_learn_nothing(
    given: Any, error: type[Exception], fields: dict[str, Any]
) -> None:
    module = network()
    net = op.nn.ORFit(module, memory=5).learn(rows(3), torch.ones(3))
    before = flat(module)
    with raises(error, **fields):
        given(net)
    np.testing.assert_array_equal(flat(module), before)
    assert net.rows_seen_ == 3


@pytest.mark.parametrize(
    ("y", "error", "fields"),
    [
        ([0, 3], LabelError, {"argument": "y", "got": "3"}),
        ([0, -1], LabelError, {"argument": "y", "got": "-1"}),
        ([0.0, 1.0], TypeMismatchError, {"argument": "y"}),
    ],
)
def test_invalid_classes(y: Any, error: type[Exception], fields: dict[str, Any]) -> None:
    net = op.nn.ORFit(network(3), loss="one_hot")
    with raises(error, **fields):
        net.learn(rows(2), y)


def test_invalid_arguments() -> None:
    for arguments, fields in (
        ({"noise": -1.0}, {"argument": "noise"}),
        ({"loss": "hinge"}, {"argument": "loss"}),
        ({"loss": "cross_entropy", "noise": 0.0}, {"argument": "noise", "remedy": "noise=0.1"}),
        ({"memory": 0}, {"argument": "memory", "remedy": "Use None to retain"}),
        ({"memory": "all"}, {"argument": "memory"}),
        ({"learns": "nothing.*"}, {"argument": "learns"}),
        ({"memory": op.memory.LastDirections(5), "noise": 1.0}, {"argument": "noise"}),
        (
            {"memory": op.memory.SquareRoot(), "noise": 1.0},
            {"argument": "memory", "remedy": "Use a number m"},
        ),
    ):
        with raises(ParameterError, **fields):
            op.nn.ORFit(network(), **arguments)
    with pytest.raises(TypeMismatchError):
        op.nn.ORFit(lambda x: x)


def test_empty_block_changes_nothing() -> None:
    module = network()
    before = flat(module)
    net = op.nn.ORFit(module).learn(rows(0), torch.ones(0))
    assert net.test_then_train(rows(0), torch.ones(0)).shape == (0,)
    np.testing.assert_array_equal(flat(module), before)
    assert net.learn(rows(2), torch.ones(2)).rows_seen_ == 2
    classes = op.nn.ORFit(network(3), loss="one_hot").learn(rows(0), torch.ones(0).long())
    assert classes.learn(rows(2), torch.tensor([0, 2])).predict(rows(2)).tolist() == [0, 2]


def test_full_memory_warns_once() -> None:
    net = op.nn.ORFit(torch.nn.Linear(2, 1, bias=False), memory=None)
    x = torch.eye(2)
    with pytest.warns(MemoryFullWarning, match="further rows cannot be learned"):
        net.learn(x, [1.0, 2.0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        net.learn(x, [1.0, 2.0])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.filterwarnings("ignore::onepass.errors.WorseThanTrivialWarning")
def test_half_precision_accumulates_small_steps(dtype: Any) -> None:
    module = torch.nn.Linear(4, 1, bias=False).to(dtype)
    start = module.weight.detach().float().clone()
    net = op.nn.OneStepSGD(module, noise=1e4)
    x = torch.ones(1, 4)
    for _ in range(300):
        net.learn(x, [100.0])
    assert (
        float((module.weight.detach().float() - start).abs().min()) > 0.5
    )  # each step is far smaller


@pytest.mark.usefixtures("interruptible")
def test_interrupt_waits_for_end_of_step() -> None:
    import signal

    module = network()
    other = copy.deepcopy(module)
    x, y = rows(5), torch.ones(5)

    class Impatient(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.module = module

        def forward(self, x: Any) -> Any:
            if net.rows_seen_ == 2:
                signal.raise_signal(signal.SIGINT)
            return self.module(x)

    net = op.nn.ORFit(Impatient(), memory=None)
    with pytest.raises(KeyboardInterrupt):
        net.learn(x, y)
    assert net.rows_seen_ == 3
    op.nn.ORFit(other, memory=None).learn(x[:3], y[:3])
    np.testing.assert_array_equal(flat(module), flat(other))


@each_memory
def test_overflowing_step_is_not_taken(memory: Any) -> None:
    module = torch.nn.Linear(4, 1, bias=False)
    before = flat(module)
    net = op.nn.ORFit(module, memory=memory)
    with pytest.warns(RowsRefusedWarning, match=r"steps that fit them .* got 1 row"):
        net.learn(torch.tensor([[1e-25, 0.0, 0.0, 0.0]]), torch.tensor([1e20]))
    np.testing.assert_array_equal(flat(module), before)
    assert float(net.learn(torch.ones(1, 4), torch.ones(1)).predict(torch.ones(1, 4))) == (
        pytest.approx(1.0, abs=1e-5)
    )


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_externally_changed_weights_are_used(dtype: Any) -> None:
    module = torch.nn.Linear(4, 1, bias=False).to(dtype)
    net = op.nn.ORFit(module, memory=3)
    net.learn(torch.eye(4, dtype=dtype)[:1], [1.0])
    with torch.no_grad():
        module.weight[0, 2:] = torch.tensor([5.0, 6.0], dtype=dtype)
    net.learn(torch.eye(4, dtype=dtype)[1:2], [2.0])
    np.testing.assert_allclose(module.weight.tolist(), [[1.0, 2.0, 5.0, 6.0]], rtol=1e-6)


def test_module_dtype_may_change() -> None:
    module = torch.nn.Linear(4, 1, bias=False)
    net = op.nn.ORFit(module, memory=3).learn(torch.eye(4)[:1], [1.0])
    module.double()
    net.learn(torch.eye(4).double()[1:2], [2.0])
    np.testing.assert_allclose(net.predict(torch.eye(4).double()[:2]), [1.0, 2.0], atol=1e-6)
