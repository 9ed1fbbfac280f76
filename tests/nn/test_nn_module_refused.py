"""Errors for invalid modules, rows and outputs."""

import warnings
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from raising import raises

torch = pytest.importorskip("torch")

from onepass.errors import (  # noqa: E402
    ModuleModeWarning,
    NotFiniteError,
    OnepassError,
    ParameterError,
    ShapeError,
    TypeMismatchError,
)
from onepass.nn.module import Network  # noqa: E402

nn = torch.nn


class Gives(nn.Module):
    """A function of the outputs of a linear layer."""

    def __init__(self, give: Any) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)
        self.give = give

    def forward(self, x: Any) -> Any:
        return self.give(self.layer(x))


def net() -> Network:
    return Network(nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3)))


def complex_layer() -> Any:
    return nn.Linear(2, 2, dtype=torch.complex64)


def shared_memory() -> Any:
    module = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    module[1].weight = nn.Parameter(module[0].weight.data)
    return module


def expanded() -> Any:
    module = nn.Linear(3, 3)
    module.bias = nn.Parameter(torch.ones(1).expand(3))
    return module


# -- modules --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("module", "error", "words"),
    [
        (lambda x: x, TypeMismatchError, "must be a torch.nn.Module, got function"),
        (nn.ReLU(), ParameterError, "it has no parameters"),
        (nn.Linear(2, 2).requires_grad_(requires_grad=False), ParameterError, "none of its"),
        (nn.LazyLinear(2), ValueError, "Call `forward` with a dummy batch"),
        (
            nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2).double()),
            TypeMismatchError,
            "'0.bias' of torch.float32, '1.bias' of torch.float64",
        ),
        (nn.DataParallel(nn.Linear(2, 2)), TypeMismatchError, "got a DataParallel"),
        (complex_layer(), TypeMismatchError, "must be real"),
        (shared_memory(), ParameterError, "'1.weight' and '0.weight' share memory"),
        (expanded(), ParameterError, "several of 'bias', which is expanded to shape"),
        (
            nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2, track_running_stats=False)),
            ParameterError,
            r"'1' \(BatchNorm1d\) has no running statistics.*GroupNorm.*track_running_stats",
        ),
    ],
)
def test_untrainable_module_is_refused(module: Any, error: Any, words: str) -> None:
    with pytest.raises(error, match=words):
        Network(module)


@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")
def test_scripted_module_is_refused() -> None:
    with raises(
        TypeMismatchError, argument="module", remedy="Pass the module that it was created from"
    ):
        Network(torch.jit.script(nn.Linear(2, 2)))


@pytest.mark.parametrize(
    ("learns", "fields"),
    [
        (
            "haed",
            {
                "argument": "learns",
                "got": "'haed', which matches none",
                "remedy": "'0.weight', '0.bias', '1.weight'",
            },
        ),
        (
            ["0", "1.weights"],
            {"argument": "learns", "got": "'1.weights'", "remedy": "Did you mean '1.weight'"},
        ),
        ([], {"argument": "learns", "got": "[]"}),
        (
            "1",
            {
                "argument": "learns",
                "got": "'1', which matches frozen '1.bias', '1.weight'",
                "remedy": "among '0.weight', '0.bias'",
            },
        ),
    ],
)
def test_learns_must_match(learns: Any, fields: dict[str, Any]) -> None:
    module = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    module[1].requires_grad_(requires_grad=False)
    with raises(ParameterError, **fields):
        Network(module, learns)


def test_replaced_parameters_are_detected() -> None:
    network = net()
    network.module[2] = nn.Linear(6, 3)
    with pytest.raises(ParameterError, match=r"'2\.weight' was removed or replaced"):
        network.outputs(torch.ones(2, 4))


# -- rows -----------------------------------------------------------------------------------------


def with_nan(row: int) -> Any:
    x = np.zeros((9, 4))
    x[row, 2] = np.nan
    return x


@pytest.mark.parametrize(
    ("x", "error", "words"),
    [
        (with_nan(7), NotFiniteError, r"`x` must be finite .*, got nan in row 7, column 2"),
        (torch.full((2, 4), torch.inf), NotFiniteError, "got infinity in row 0"),
        ({"input": with_nan(3)}, NotFiniteError, r"`x\['input'\]`.* row 3"),
        ((with_nan(3),), NotFiniteError, r"`x\[0\]`"),
        ((torch.ones(3, 4), torch.ones(2, 4)), ShapeError, r"got 3 in `x\[0\]` and 2 in `x\[1\]`"),
        (torch.tensor(1.0), ShapeError, "a first axis that counts rows, got a single number"),
        (3.0, ShapeError, "got a single number"),
        ((), ShapeError, "at least one tensor of shape"),
        ({"flag": True}, ShapeError, "at least one tensor"),
        ("rows", TypeMismatchError, "must contain numbers, got str"),
        (None, TypeMismatchError, "must contain numbers, got NoneType"),
        (np.array([["a"] * 4]), TypeMismatchError, "must contain numbers, got ndarray of <U1"),
        (torch.ones(2, 4).to_sparse(), TypeError, "to_dense"),
        (torch.ones(2, 4, device="meta"), TypeMismatchError, "must be on cpu.* tensor on meta"),
        (torch.ones(2, 5), ShapeError, r"got float32 \(2, 5\), and it raised: mat1 and mat2"),
    ],
)
@pytest.mark.parametrize("verb", ["outputs", "jacobian"])
def test_invalid_rows(x: Any, error: Any, words: str, verb: str) -> None:
    network = net()
    before = network.weights()
    with pytest.raises(error, match=words):
        getattr(network, verb)(x)
    assert torch.equal(network.weights(), before)
    good = torch.ones(3, 4)
    torch.testing.assert_close(network.outputs(good), network.module(good).detach())


def test_wrong_width_keeps_fast_method() -> None:
    network = net()
    network.jacobian(torch.randn(5, 4))
    for n in (1, 5):
        with raises(ShapeError, remedy="check the other axes"):
            network.jacobian(torch.randn(n, 3))
    network.jacobian(torch.randn(1, 4))
    assert network._derivative._trusted == {"layers of rows": True, "layers": True}


def test_half_precision_overflow_is_refused() -> None:
    network = Network(nn.Linear(4, 1).half())
    with raises(NotFiniteError, argument="x", got="infinity", row=1):
        network.outputs(np.array([[1.0] * 4, [1e6] * 4]))


def test_module_error_is_annotated_with_input() -> None:
    def raises(_: Any) -> Any:
        raise RuntimeError("the cat sat on it")

    network = Network(Gives(raises))
    with pytest.raises(RuntimeError, match="the cat sat on it") as raised:
        network.outputs(torch.ones(2, 4))
    assert not isinstance(raised.value, OnepassError)
    assert raised.value.__notes__ == ["the module raised this when it was given float32 (2, 4)."]


# -- rows of many kinds ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "x",
    [
        [[1.0, 2.0, 3.0, 4.0], [0.0, 1.0, 0.0, 1.0]],
        [[1, 2, 3, 4.0], [0, 1, 0, 1]],
        np.array([[1.0, 2.0, 3.0, 4.0], [0.0, 1.0, 0.0, 1.0]]),
        np.array([[4.0, 3.0, 2.0, 1.0], [1.0, 0.0, 1.0, 0.0]])[:, ::-1],
        np.array([[1.0, 2.0, 3.0, 4.0], [0.0, 1.0, 0.0, 1.0]], dtype=">f4"),
        np.array([[1.0, 2.0, 3.0, 4.0], [0.0, 1.0, 0.0, 1.0]], dtype=np.longdouble),
        np.array([[1.0, 2.0, 3.0, 4.0], [0.0, 1.0, 0.0, 1.0]], order="F"),
        (torch.tensor([[1.0, 2, 3, 4], [0, 1, 0, 1]], dtype=torch.float16),),
        {"input": torch.tensor([[1.0, 2, 3, 4], [0, 1, 0, 1]], dtype=torch.float64)},
    ],
)
def test_input_types(x: Any) -> None:
    network = Network(nn.Linear(4, 2))
    rows = torch.tensor([[1.0, 2.0, 3.0, 4.0], [0.0, 1.0, 0.0, 1.0]])
    assert len(network.prepare(x)) == 2
    assert torch.equal(network.outputs(x), network.outputs(rows))
    assert torch.equal(network.outputs(network.prepare(x)[1]), network.outputs(rows[1:]))


def test_readonly_arrays() -> None:
    x = np.ones((2, 4))
    x.setflags(write=False)
    assert Network(nn.Linear(4, 2)).outputs(x).shape == (2, 2)


def test_integers_and_masks_are_not_converted() -> None:
    seen = []

    class Look(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words = nn.Embedding(5, 2)

        def forward(self, ids: Any, mask: Any, *, wave: Any, name: str, none: None = None) -> Any:
            seen.append((ids.dtype, mask.dtype, wave.dtype, name, none))
            return (self.words(ids) * mask[..., None]).sum(1) + wave.abs()[:, None]

    x = {
        "ids": np.array([[1, 2], [3, 4]], dtype=np.uint16),
        "mask": np.array([[True, False], [True, True]]),
        "wave": np.array([1.0 + 2.0j, 0.0]),
        "name": "text",
        "none": None,
    }
    assert Network(Look()).outputs(x).shape == (2, 2)
    assert set(seen) == {(torch.int64, torch.bool, torch.complex64, "text", None)}


def test_slicing_prepared_rows() -> None:
    network = Network(nn.Linear(4, 2))
    x = torch.randn(5, 4)
    rows = network.prepare((x,))
    assert network.prepare(rows) is rows
    assert (len(rows), len(rows[1:3]), len(rows[4]), len(rows[3:99])) == (5, 2, 1, 2)
    torch.testing.assert_close(network.outputs(rows[-1]), network.outputs(x[4:]))
    together = torch.cat([network.outputs(row) for row in rows])
    torch.testing.assert_close(together, network.outputs(x))
    with pytest.raises(IndexError):
        rows[5]


# -- outputs --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("give", "error", "got"),
    [
        (lambda out: (out, out), TypeMismatchError, "tuple of 2. Wrap the module"),
        (lambda out: {"a": out, "b": out}, TypeMismatchError, "dict of 2"),
        (lambda _: None, TypeMismatchError, "NoneType"),
        (lambda out: out.argmax(1), TypeMismatchError, "torch.int64. Return scores"),
        (lambda out: out.to(torch.complex64), TypeMismatchError, "torch.complex64. Return scores"),
        (lambda out: out.sum(), ShapeError, "shape (). The first axis"),
        (lambda out: out.sum(0), ShapeError, ""),
        (lambda out: out[:2], ShapeError, "shape (2, 3). The first axis"),
        (lambda out: out[:, :0], ShapeError, "shape (3, 0). Use a last layer with outputs"),
    ],
)
def test_invalid_outputs(give: Any, error: Any, got: str) -> None:
    network = Network(Gives(give))
    x = torch.randn(3 if got else 4, 4)
    for verb in (network.outputs, network.jacobian):
        with raises(error, got=got):
            verb(x)


@pytest.mark.parametrize(
    "give",
    [
        lambda out: SimpleNamespace(logits=out, loss=None),
        lambda out: {"logits": out, "hidden": out},
        lambda out: {"only": out},
        lambda out: (out,),
        lambda out: out.unflatten(1, (3, 1)),
    ],
)
def test_output_tensor_is_selected(give: Any) -> None:
    network = Network(Gives(give))
    x = torch.randn(3, 4)
    outputs, J = network.jacobian(x)
    assert torch.equal(outputs, network.module.layer(x).detach())
    assert J.shape == (9, 15)


def test_scalar_output_for_single_row() -> None:
    network = Network(Gives(lambda out: out[:, 0].squeeze()))
    assert network.jacobian(torch.randn(1, 4))[1].shape == (1, 15)
    assert network.jacobian(torch.randn(5, 4))[1].shape == (5, 15)


# -- checks by evaluation ------------------------------------------------------------------------


class Normalised(nn.Module):
    """Batch statistics in custom code."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x: Any) -> Any:
        return self.layer(x - x.mean(0))


@pytest.mark.parametrize(
    "module",
    [
        Normalised(),
        nn.TransformerEncoderLayer(4, 2, 8),  # its first axis is the sequence
        nn.Sequential(nn.Linear(4, 3), nn.Softmax(dim=0)),
        Gives(lambda out: out.cumsum(0)),
    ],
)
def test_module_that_mixes_rows_is_refused(module: Any) -> None:
    network = Network(module.eval())
    rank = 3 if isinstance(module, nn.TransformerEncoderLayer) else 2
    with raises(ParameterError, remedy="GroupNorm"):
        network.jacobian(torch.randn(6, *(5, 4)[-rank + 1 :]))


def test_row_mixing_is_tested_until_informative() -> None:
    """While all rows have the same output, as with a last layer of zeros, the test is skipped."""
    module = nn.Sequential(Normalised(), nn.Linear(3, 2))
    nn.init.zeros_(module[1].weight)
    network = Network(module)
    x = torch.randn(6, 4)
    network.jacobian(x)
    network.outputs(x)
    nn.init.ones_(module[1].weight)
    with pytest.raises(ParameterError, match="must not depend on other rows"):
        network.outputs(x)


@pytest.mark.parametrize(
    "give",
    [
        lambda out: nn.functional.dropout(out, 0.5, training=True),
        lambda out: out + torch.randn_like(out),
    ],
)
def test_random_module_is_refused(give: Any) -> None:
    network = Network(Gives(give))
    for n in (6, 1):
        with raises(ParameterError, remedy="Disable random layers (F.dropout("):
            network.outputs(torch.randn(n, 4))


class Remembering(nn.Module):
    """Outputs depend on the number of calls."""

    def __init__(self, *, registered: bool) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 2)
        if registered:
            self.register_buffer("hidden", torch.zeros(()))
        else:
            self.hidden = torch.zeros(())

    def forward(self, x: Any) -> Any:
        self.hidden = self.hidden + 1.0
        return self.layer(x) * self.hidden


@pytest.mark.parametrize("registered", [True, False])
def test_stateful_module_is_refused_and_restored(registered: Any) -> None:
    module = Remembering(registered=registered)
    with raises(ParameterError, remedy="store no state between calls"):
        Network(module).outputs(torch.randn(3, 4))
    assert module.hidden == 0


def test_last_registered_layer_must_produce_outputs() -> None:
    class Crossed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(3, 2)
            self.body = nn.Linear(4, 3)

        def forward(self, x: Any) -> Any:
            return self.head(self.body(x))

    with pytest.raises(
        ParameterError, match=r"registered last, 'body', .* is 'head'.* learns='head'"
    ):
        Network(Crossed(), "last").outputs(torch.ones(2, 4))
    module = Crossed()
    assert Network(module, "head").outputs(torch.ones(2, 4)).shape == (2, 2)
    assert not module.head._forward_hooks


# -- missing derivatives -------------------------------------------------------------------------


class Underived(nn.Module):
    """Two layers, of which one or both are evaluated without gradients."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self.first, self.last, self.way = nn.Linear(4, 5), nn.Linear(5, 2), way

    def forward(self, x: Any) -> Any:
        if self.way == "evaluation":
            with torch.set_grad_enabled(self.training):
                return self.last(torch.tanh(self.first(x)))
        with torch.inference_mode(self.way == "inference"), torch.set_grad_enabled(False):
            inner = torch.tanh(self.first(x))
        if self.way == "detach":
            return self.last(inner).detach()
        if self.way == "backbone":
            return self.last(inner)
        with torch.no_grad():
            return self.last(inner)


@pytest.mark.parametrize("way", ["no_grad", "inference", "evaluation", "detach"])
@pytest.mark.parametrize("n", [1, 3])
def test_missing_derivative_is_refused(way: str, n: int) -> None:
    network = Network(Underived(way))
    assert network.outputs(torch.randn(n, 4)).shape == (n, 2)
    for ask in (network.jacobian, lambda x: network.gradient(x, torch.ones_like)):
        for _ in range(2):
            with raises(ParameterError, remedy="Remove these") as caught:
                ask(torch.randn(n, 4))
            assert not getattr(caught.value, "__notes__", ())


def test_frozen_layers_need_no_derivative() -> None:
    torch.manual_seed(0)
    module, x = Underived("backbone"), torch.randn(3, 4)
    assert Network(module).jacobian(x)[1].any(dim=1).all()
    assert Network(module, "last").jacobian(x)[1].any(dim=1).all()


class OnlySome(nn.Module):
    """Outputs depend on the weights for some rows only."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 1)

    def forward(self, x: Any) -> Any:
        parts = [self.layer(row) if row.sum() > 0 else row[:, :1] for row in x[:, None]]
        return torch.cat(parts)


@pytest.mark.parametrize("first", [-1.0, 1.0])
def test_independent_rows_have_zero_derivative(first: float) -> None:
    network, x = Network(OnlySome()), first * torch.ones(4, 4)
    x[1::2] *= -1.0
    for rows in (x[:1], x[1:2], x):
        J = network.jacobian(rows)[1]
        assert J.any(dim=1).tolist() == (rows.sum(dim=1) > 0).tolist()


def test_dead_unit_has_zero_derivative() -> None:
    network = Network(nn.Sequential(nn.Linear(4, 1, bias=False), nn.ReLU()))
    network.set_weights(torch.ones(4))
    x = torch.ones(2, 4)
    assert not network.jacobian(-x)[1].any()
    assert network.jacobian(x)[1].any()


# -- mode -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("layer", "words"),
    [
        (nn.Dropout(0.5), "dropout .'1'. is off"),
        (nn.BatchNorm1d(3), "batch normalisation .'1'. uses its running statistics"),
        (nn.Sequential(nn.AlphaDropout(0.1), nn.BatchNorm1d(3)), "off and batch normalisation"),
    ],
)
def test_training_mode_warns_once(layer: Any, words: str) -> None:
    module = nn.Sequential(nn.Linear(4, 3), layer)
    network = Network(module)
    x = torch.randn(5, 4)
    with pytest.warns(ModuleModeWarning, match=words):
        outputs = network.outputs(x)
    network.jacobian(x)
    assert module.training
    assert torch.equal(outputs, module.eval()(x).detach())


def test_no_warning_without_effect() -> None:
    module = nn.Sequential(nn.Linear(4, 3), nn.Dropout(0.0), nn.GroupNorm(1, 3), nn.ReLU())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert Network(module).outputs(torch.randn(5, 4)).shape == (5, 3)
        assert Network(nn.BatchNorm1d(4).eval()).outputs(torch.randn(5, 4)).shape == (5, 4)
