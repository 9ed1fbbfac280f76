from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onepass.errors import ShapeError
from raising import raises

torch = pytest.importorskip("torch")

from module_cases import CASES, Case, ask, cut, plain_jacobian  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

from onepass.nn.jacobian import Derivative  # noqa: E402
from onepass.nn.module import Network  # noqa: E402

nn = torch.nn
each_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())


def made(case: Case, dtype: Any = torch.float64) -> tuple[Any, Any]:
    torch.manual_seed(3)
    module = case.make().to(dtype)
    return module, case.rows()


def perceptron(dtype: Any = torch.float64) -> Any:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3)).to(dtype)


# -- the Jacobian ---------------------------------------------------------------------------------


@pytest.mark.parametrize("layers", ["by layers", "not by layers"])
@each_case
def test_jacobian_equals_autograd_loop(case: Case, layers: str) -> None:
    module, x = made(case)
    net = Network(module)
    if layers == "not by layers":
        net._derivative._trusted |= {"layers": False, "layers of rows": False}
    outputs, J = net.jacobian(x)
    module.eval()
    assert J.shape == (outputs.numel(), net.p)
    assert J.is_contiguous()
    assert not J.requires_grad
    assert not outputs.requires_grad
    torch.testing.assert_close(outputs, ask(module, x).detach(), rtol=0, atol=1e-12)
    torch.testing.assert_close(
        J, plain_jacobian(module, x, list(module.parameters())), rtol=0, atol=1e-12
    )
    if not net._derivative._trusted["layers of rows"]:
        assert net._derivative._trusted["rows"] is case.vmaps  # so both ways are tried here


@pytest.mark.parametrize("name", ["perceptron", "convolution", "lstm", "tuple and dict"])
def test_rows_computed_at_once_do_not_change_jacobian(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, x = made(CASES[name])
    whole_outputs, whole = Network(module).jacobian(x)
    for rows in (1, 2, 3, 7, 1000):
        monkeypatch.setattr(Derivative, "_rows_per_chunk", lambda *_, rows=rows: rows)
        outputs, J = Network(module).jacobian(x)
        torch.testing.assert_close(outputs, whole_outputs, rtol=0, atol=1e-12)
        torch.testing.assert_close(J, whole, rtol=0, atol=1e-12)


@each_case
def test_jacobian_of_single_rows_equals_batch(case: Case) -> None:
    module, x = made(case)
    net = Network(module)
    together, J = net.jacobian(x)
    alone = [net.jacobian(cut(x, i, i + 1)) for i in range(5)]
    torch.testing.assert_close(torch.cat([each for each, _ in alone]), together)
    torch.testing.assert_close(torch.cat([each for _, each in alone]), J)


@each_case
def test_float32_is_near_float64(case: Case) -> None:
    module, x = made(case)
    exact = Network(module).jacobian(x)[1]
    J = Network(module.float()).jacobian(x)[1]
    assert J.dtype == torch.float32
    torch.testing.assert_close(J.double(), exact, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", ["perceptron", "convolution", "attention", "one output"])
def test_half_precision(name: str, dtype: Any) -> None:
    module, x = made(CASES[name])
    exact = Network(module).jacobian(x)[1]
    J = Network(module.to(dtype)).jacobian(x)[1]
    assert J.dtype == dtype
    assert (J.double() - exact).abs().max() < 0.1 * exact.abs().max()


@each_case
def test_gradient_is_vector_jacobian_product(case: Case) -> None:
    module, x = made(case)
    net = Network(module)
    outputs, J = net.jacobian(x)
    v = torch.randn_like(outputs)
    again, gradient = net.gradient(x, v)
    torch.testing.assert_close(again, outputs)
    torch.testing.assert_close(gradient, v.reshape(-1) @ J)
    torch.testing.assert_close(net.gradient(x, lambda f: 2 * f)[1], 2 * outputs.reshape(-1) @ J)


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 9), st.integers(1, 4), st.integers(1, 30), st.integers(0, 99))
def test_jacobian_of_linear_layer_is_its_input(n: int, c: int, at_once: int, seed: int) -> None:
    X = np.random.default_rng(seed).normal(size=(n, 5))
    net = Network(nn.Linear(5, c, bias=False).double())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Derivative, "_rows_per_chunk", lambda *_: at_once)
        J = net.jacobian(X)[1].numpy()
    np.testing.assert_allclose(J, np.einsum("nd,ck->nckd", X, np.eye(c)).reshape(n * c, 5 * c))


def test_unused_weights_have_zero_columns() -> None:
    module, x = made(CASES["shared"])
    net = Network(module)
    for rows in (x, x[:1]):
        J = net.jacobian(rows)[1]
        for name in ("unused.weight", "unused.bias"):
            assert (J[:, net.slices[name]] == 0).all()
        assert (J[:, net.slices["layer.weight"]] != 0).any()


class Beside(nn.Module):
    """Outputs that do not depend on its weights."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x: Any) -> Any:
        return x[:, :3]


def test_independent_outputs_have_zero_jacobian() -> None:
    net = Network(Beside())
    for n in (1, 5):
        outputs, J = net.jacobian(torch.ones(n, 4))
        assert outputs.shape == (n, 3)
        assert (J == 0).all()
        assert (net.gradient(torch.ones(n, 4), outputs)[1] == 0).all()


def test_sparse_gradients() -> None:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Embedding(7, 3, sparse=True), nn.Flatten(), nn.Linear(6, 2)).double()
    ids = torch.tensor([[1, 1], [4, 2]])
    J = Network(module).jacobian(ids)[1]
    module[0].sparse = False
    torch.testing.assert_close(J, Network(module).jacobian(ids)[1])


def test_out_buffer_is_reused() -> None:
    net = Network(perceptron())
    buffer = torch.full((100, net.p), torch.nan, dtype=torch.float64)
    x = torch.randn(5, 4)
    J = net.jacobian(x, out=buffer)[1]
    assert J.data_ptr() == buffer.data_ptr()
    torch.testing.assert_close(J, net.jacobian(x)[1])
    assert buffer[15:].isnan().all()


def test_number_of_outputs_may_change() -> None:
    """A sequence has an output for each of its steps."""
    torch.manual_seed(0)
    net = Network(nn.Linear(3, 2).double())
    for length in (4, 2, 5):
        for n in (1, 3):
            x = torch.randn(n, length, 3, dtype=torch.float64)
            outputs, J = net.jacobian(x)
            assert outputs.shape == (n, 2 * length)
            reference = plain_jacobian(net.module, x, list(net.module.parameters()))
            torch.testing.assert_close(J, reference)


def test_empty_input() -> None:
    net = Network(perceptron())
    outputs, J = net.jacobian(np.empty((0, 4)))
    assert outputs.shape == (0, 3)
    assert J.shape == (0, net.p)
    assert net.outputs(np.empty((0, 4))).shape == (0, 3)
    assert (net.gradient(np.empty((0, 4)), outputs)[1] == 0).all()


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_derivatives_under_no_grad(mode: Any) -> None:
    module, x = made(CASES["perceptron"])
    exact = Network(module).jacobian(x)[1]
    net = Network(module)
    with mode():
        rows = x * 1.0
        together, alone = net.jacobian(rows)[1], net.jacobian(rows[:1])[1]
        gradient = net.gradient(rows, torch.ones_like)[1]
    torch.testing.assert_close(together, exact)
    torch.testing.assert_close(alone, exact[:3])
    torch.testing.assert_close(gradient, exact.sum(0))


def test_many_rows_are_evaluated_in_chunks() -> None:
    module = perceptron()
    x = torch.randn(2500, 4, dtype=torch.float64)
    torch.testing.assert_close(Network(module).outputs(x), module(x).detach())


# -- weights --------------------------------------------------------------------------------------


@each_case
def test_jacobian_equals_finite_differences(case: Case) -> None:
    """Finite differences: f(w + h u) − f(w − h u) ≈ 2 h J u."""
    module, x = made(case)
    net = Network(module)
    J = net.jacobian(x)[1]
    u = torch.randn(net.p, dtype=torch.float64)
    w, h = net.weights(), 1e-6
    net.set_weights(w + h * u)
    above = net.outputs(x)
    net.set_weights(w - h * u)
    below = net.outputs(x)
    net.set_weights(w)
    torch.testing.assert_close((above - below).reshape(-1) / (2 * h), J @ u, rtol=1e-5, atol=1e-6)
    assert torch.equal(net.weights(), w)


def test_weights_are_a_copy_in_order_of_slices() -> None:
    module = perceptron()
    net = Network(module)
    w = net.weights()
    w.zero_()
    assert (net.weights() != 0).all()
    for name, shape in zip(net.names, net.shapes, strict=True):
        parameter = dict(module.named_parameters())[name]
        torch.testing.assert_close(net.weights()[net.slices[name]].reshape(shape), parameter.data)
    assert net.p == 6 * 4 + 6 + 3 * 6 + 3


def test_set_weights_of_another_dtype() -> None:
    net = Network(perceptron(torch.float32))
    w = np.arange(net.p, dtype=np.float64)
    net.set_weights(torch.from_numpy(w))
    np.testing.assert_array_equal(net.weights().numpy(), w.astype(np.float32))


def test_shared_parameter_counts_once() -> None:
    module, x = made(CASES["tied"])
    net = Network(module)
    assert net.p == 44
    assert net.names == ("encoder.weight",)
    net.set_weights(net.weights() + 1.0)
    assert module.decoder.weight is module.encoder.weight
    torch.testing.assert_close(net.outputs(x), module(x).detach())


def test_layers_cover_all_weights() -> None:
    module, _ = made(CASES["shared"])
    net = Network(module)
    assert dict(net.layers) == {
        "": (slice(0, 1),),
        "layer": (slice(1, 21),),
        "unused": (slice(21, 27),),
    }


# -- which weights learn --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("learns", "names"),
    [
        ("all", ("0.weight", "0.bias", "2.weight", "2.bias")),
        ("last", ("2.weight", "2.bias")),
        ("2", ("2.weight", "2.bias")),
        ("*.bias", ("0.bias", "2.bias")),
        (["2.bias", "0.*"], ("0.weight", "0.bias", "2.bias")),
    ],
)
def test_learns_selects_parameters(learns: Any, names: Any) -> None:
    module = perceptron()
    before = {name: each.detach().clone() for name, each in module.named_parameters()}
    net = Network(module, learns)
    assert net.names == names
    x = torch.randn(5, 4, dtype=torch.float64)
    J = net.jacobian(x)[1]
    chosen = [dict(module.named_parameters())[name] for name in names]
    torch.testing.assert_close(J, plain_jacobian(module, x, chosen))
    net.set_weights(net.weights() + 1.0)
    for name, each in module.named_parameters():
        assert torch.equal(each.detach(), before[name] + (1.0 if name in names else 0.0))


def test_frozen_parameters_do_not_learn() -> None:
    module = perceptron()
    module[0].requires_grad_(requires_grad=False)
    assert Network(module).names == ("2.weight", "2.bias")
    assert Network(module, "*.bias").names == ("2.bias",)


def test_frozen_part_may_have_another_dtype() -> None:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(4, 6), nn.Linear(6, 2))
    module[0].to(torch.bfloat16).requires_grad_(requires_grad=False)
    module[0].register_forward_hook(lambda _module, _args, out: out.float())
    net = Network(module)
    assert (net.dtype, net.p) == (torch.float32, 14)
    assert net.jacobian(np.ones((3, 4)))[1].shape == (6, 14)


def test_last_layer_used_by_its_parent() -> None:
    class Answer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention = nn.MultiheadAttention(4, 1, batch_first=True)

        def forward(self, x: Any) -> Any:
            return self.attention(x, x, x)[0].mean(1)

    net = Network(Answer(), "last")
    assert net.names == ("attention.out_proj.weight", "attention.out_proj.bias")
    assert net.jacobian(torch.randn(3, 2, 4))[1].shape == (12, 20)


# -- nothing else of the module is changed --------------------------------------------------------


class Busy(nn.Module):
    """Counts calls in a buffer and in an attribute, and stores activations."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(4, 3)
        self.drop = nn.Dropout(0.0)
        self.norm = nn.BatchNorm1d(3)
        self.norm.train(mode=False)
        self.register_buffer("calls", torch.zeros(()))
        self.register_buffer("again", torch.zeros(()))
        self.asked = 0
        self.stored: Any = None

    def forward(self, x: Any) -> Any:
        self.calls += 1
        self.again = self.again + 1
        self.asked += 1
        self.stored = self.body(x)
        self.late = self.stored
        return self.norm(self.drop(self.stored))


def test_module_is_not_changed() -> None:
    torch.manual_seed(0)
    module = Busy().double()
    module.body.bias.grad = torch.full((3,), 7.0, dtype=torch.float64)
    module.body.weight.requires_grad_(requires_grad=False)
    before = {name: each.clone() for name, each in module.state_dict().items()}
    net = Network(module)
    x = torch.randn(6, 4, dtype=torch.float64, requires_grad=True)
    for rows in (x, x[:1]):
        net.outputs(rows)
        net.jacobian(rows)
        net.gradient(rows, lambda f: f)
    with raises(ShapeError, got="float64 (2, 9)"):
        net.jacobian(torch.ones(2, 9, dtype=torch.float64))
    assert {name: each.training for name, each in module.named_modules()} == {
        "": True,
        "body": True,
        "drop": True,
        "norm": False,
    }
    for name, each in module.state_dict().items():
        assert torch.equal(each, before[name]), name
    assert (module.asked, module.stored, hasattr(module, "late")) == (0, None, False)
    assert (module.body.bias.grad == 7).all()
    assert module.body.weight.grad is None
    assert x.grad is None
    assert [each.requires_grad for each in module.parameters()] == [False, True, True, True]
    net.set_weights(net.weights() + 1.0)
    assert torch.equal(module.body.weight, before["body.weight"])
    assert torch.equal(module.norm.running_mean, before["norm.running_mean"])


def test_hooks_may_store_activations() -> None:
    module, stored = perceptron(), []
    module[0].register_forward_hook(lambda _module, _args, out: stored.append(out.detach()))
    Network(module).jacobian(torch.randn(5, 4))
    assert all(torch.isfinite(each).all() for each in stored)
    assert stored


def test_recurrent_layers_keep_weights() -> None:
    module, x = made(CASES["lstm"])
    net = Network(module)
    net.jacobian(x)
    assert module.inner._flat_weights[0] is module.inner.weight_ih_l0
    net.set_weights(net.weights() + 1.0)
    torch.testing.assert_close(net.outputs(x), module(x).detach())


def test_parametrized_weights() -> None:
    torch.manual_seed(0)
    module = nn.Sequential(
        nn.utils.parametrizations.weight_norm(nn.Linear(4, 3)), nn.ReLU(), nn.Linear(3, 2)
    ).double()
    x = torch.randn(5, 4, dtype=torch.float64)
    net = Network(module)
    assert list(net.layers) == ["0", "2"]
    reference = plain_jacobian(module, x, list(module.parameters()))
    torch.testing.assert_close(net.jacobian(x)[1], reference)


# -- devices --------------------------------------------------------------------------------------


class NoWaiting(TorchDispatchMode):
    """Raises on operations that synchronise with a device."""

    def __torch_dispatch__(self, func: Any, _: Any, args: Any = (), kwargs: Any = None) -> Any:
        on_device = ("_local_scalar_dense", "nonzero", "masked_select", "equal", "_to_copy")
        if func.overloadpacket.__name__ in on_device:
            raise AssertionError(f"{func} waits for a device")
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("name", ["perceptron", "one output", "convolution", "attention", "lstm"])
def test_no_synchronisation_after_prepare(name: str) -> None:
    module, x = made(CASES[name])
    net = Network(module)
    rows = net.prepare(x)
    expected, alone = net.jacobian(rows)[1], net.jacobian(rows[0])[1]
    step = torch.zeros(net.p, dtype=torch.float64)
    with NoWaiting():
        net.outputs(rows)
        J, first = net.jacobian(rows)[1], net.jacobian(rows[0])[1]
        gradient = net.gradient(rows, torch.ones_like)[1]
        net.set_weights(net.weights() + step)
    torch.testing.assert_close(J, expected)
    torch.testing.assert_close(first, alone)
    torch.testing.assert_close(gradient, expected.sum(0))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
@each_case
def test_cuda_equals_cpu(case: Case) -> None:
    module, x = made(case)
    expected = Network(module).jacobian(x)[1]
    net = Network(module.cuda())
    J = net.jacobian(_on_gpu(x))[1]
    assert J.device.type == "cuda"
    torch.testing.assert_close(J.cpu(), expected, rtol=1e-8, atol=1e-10)


def _on_gpu(x: Any) -> Any:
    if isinstance(x, torch.Tensor):
        return x.cuda()
    if isinstance(x, dict):
        return {key: _on_gpu(each) for key, each in x.items()}
    return tuple(map(_on_gpu, x)) if isinstance(x, tuple) else x
