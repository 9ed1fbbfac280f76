"""GPM against its equations in NumPy, and outputs on past inputs."""

import copy
import io
from typing import Any

import numpy as np
import pytest
from test_nn_ogd import flat, network, stream
from test_nn_optim import OPTIMIZERS, train

import onepass as op
from onepass.errors import CheckpointError, ParameterError, ShapeError
from raising import raises

torch = pytest.importorskip("torch")
GPM = op.nn.optim.GPM
nn = torch.nn


def wrapped(module: Any, *given: Any, make: str = "SGD", **named: Any) -> Any:
    return GPM(OPTIMIZERS[make](module.parameters()), module, *given, **named)


def plain_gpm(M: Any, R: Any, threshold: float) -> Any:
    """(8) and (9) of the paper, for R (d, N), by whole singular value decompositions."""
    held = M @ (M.T @ R)
    U, S, _ = np.linalg.svd(R - held, full_matrices=False)
    whole = (R**2).sum()
    k = 0
    while (held**2).sum() + (S[:k] ** 2).sum() < threshold * whole * (1 - 1e-12):
        k += 1
    return np.hstack((M, U[:, :k]))


@pytest.mark.parametrize("growth", [0.0, 0.02])
def test_directions_equal_paper(growth: float) -> None:
    module = network(d=12, hidden=9)
    optimizer = wrapped(module, [0.8, 0.95], growth=growth, rows=None)
    bases = [np.zeros((12, 0)), np.zeros((9, 0))]
    for task in range(3):
        X, y = stream(40, d=12, seed=task)
        train(optimizer, module, X, y, 3)
        optimizer.after_task([(X[:15], y[:15]), (X[15:], y[15:])])
        shown = [X, module[1](module[0](X))]
        for i, level in enumerate((0.8, 0.95)):
            R = shown[i].detach().numpy().T
            bases[i] = plain_gpm(bases[i], R, min(level + growth * task, 1.0))
            M = optimizer._memory[["0", "2"][i]][0].matrix.numpy()
            assert M.shape == bases[i].shape
            np.testing.assert_allclose(M @ M.T, bases[i] @ bases[i].T, atol=1e-9)
    assert list(optimizer.ranks_.values()) == [each.shape[1] for each in bases]


def test_sgd_step_is_projected_gradient() -> None:
    module, (X, y) = network(d=12), stream(5, d=12)
    optimizer = wrapped(module, 0.9, biases="free").after_task((X, y))
    before = [each.detach().clone() for each in module.parameters()]
    train(optimizer, module, *stream(9, d=12, seed=1))
    for name, each, old in zip("0022", module.parameters(), before, strict=True):
        g = each.grad
        if each.ndim == 2:
            M = optimizer._memory[name][0].matrix
            g = g - g @ M @ M.T
        torch.testing.assert_close(each, old - 0.1 * g)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_all_directions_preserve_past_outputs(name: str) -> None:
    module, (X, y) = network(d=30, hidden=30), stream(6, d=30)
    optimizer = wrapped(module, 1.0, make=name)
    train(optimizer, module, X, y, 5)
    outputs = optimizer.after_task((X, y)) and module(X).detach()
    new, labels = stream(30, d=30, seed=4)
    before = module(new).detach()
    train(optimizer, module, new, labels, 30)
    torch.testing.assert_close(module(X), outputs, rtol=0.0, atol=1e-11)
    assert (module(new) - before).abs().max() > 0.05


CONVOLUTIONS = {
    "plain": (nn.Conv2d(3, 5, 3), (3, 7, 6)),
    "stride": (nn.Conv2d(3, 5, (3, 2), stride=(2, 1), padding=(1, 2)), (3, 7, 6)),
    "dilated": (nn.Conv2d(2, 4, 3, dilation=2, padding="same", padding_mode="reflect"), (2, 9, 8)),
    "circular": (nn.Conv2d(2, 4, 3, padding=2, padding_mode="circular"), (2, 6, 5)),
    "even": (nn.Conv2d(2, 4, (2, 4), padding="same"), (2, 6, 5)),
    "valid": (nn.Conv2d(2, 4, 2, padding="valid"), (2, 6, 5)),
    "groups": (nn.Conv2d(6, 9, 3, groups=3, padding=1), (6, 5, 5)),
    "depthwise": (nn.Conv1d(4, 8, 3, groups=4), (4, 9)),
    "line": (nn.Conv1d(2, 3, 4, stride=3, padding=1), (2, 12)),
    "space": (nn.Conv3d(2, 3, 2, padding=(0, 1, 0)), (2, 4, 3, 3)),
    "linear": (nn.Linear(4, 3), (5, 4)),
}


@pytest.mark.filterwarnings("ignore:Using padding='same'")
@pytest.mark.parametrize("case", CONVOLUTIONS)
def test_layer_inputs_reproduce_convolution(case: str) -> None:
    from onepass.nn.optim.gpm import layer_inputs, layers

    layer, shape = CONVOLUTIONS[case]
    generator = torch.Generator().manual_seed(0)
    x = torch.randn((2, *shape), generator=generator)
    found = next(iter(layers(nn.Sequential(layer)).values()))
    vectors = layer_inputs(layer, x)
    assert vectors.shape[::2] == (found.groups, found.d)
    W = layer.weight.detach().reshape(found.groups, -1, found.d)
    answers = torch.einsum("god,gnd->ngo", W, vectors).reshape(vectors.shape[1], -1)
    outputs = layer(x).detach() if case == "linear" else layer(x).detach().movedim(1, -1)
    expected = outputs.reshape(-1, W.shape[0] * W.shape[1]) - layer.bias.detach()
    torch.testing.assert_close(answers, expected, rtol=1e-4, atol=1e-5)


def test_convolutional_network_preserves_outputs() -> None:
    module = nn.Sequential(
        nn.Conv2d(1, 6, 3, stride=3, padding=1), nn.Tanh(),
        nn.Conv2d(6, 6, 2, groups=2, bias=False), nn.Tanh(), nn.Flatten(), nn.Linear(24, 3),
    ).double()  # fmt: skip
    generator = torch.Generator().manual_seed(0)
    blank = torch.zeros(1, 1, 7, 7, dtype=torch.float64)
    blank[..., 2:4, 2:4] = torch.randn(2, 2, generator=generator, dtype=torch.float64)
    optimizer = wrapped(module, 1.0, make="AdamW").after_task([blank])
    outputs = module(blank).detach()
    X = torch.randn(8, 1, 7, 7, generator=generator, dtype=torch.float64)
    before = flat(module)
    train(optimizer, module, X, torch.arange(8) % 3, 20)
    torch.testing.assert_close(module(blank), outputs, rtol=0.0, atol=1e-11)
    assert (flat(module) - before).norm() > 0.1
    assert set(optimizer.ranks_) == {"0", "2", "5"}


def test_biases_frozen_after_first_task_unless_free() -> None:
    for biases, moves in (("frozen", False), ("free", True)):
        module = network()
        optimizer = wrapped(module, 0.9, biases=biases, make="decay")
        start = module[0].bias.detach().clone()
        train(optimizer, module, *stream(9))
        assert not torch.equal(module[0].bias, start)
        bias = module[0].bias.detach().clone()
        optimizer.after_task(stream(9))
        train(optimizer, module, *stream(9, seed=1), 3)
        assert torch.equal(module[0].bias, bias) != moves


def test_other_layers_refused_frozen_or_free() -> None:
    def module() -> Any:
        return nn.Sequential(nn.Linear(4, 6), nn.LayerNorm(6), nn.Linear(6, 3)).double()

    with raises(ParameterError, argument="module", got="'1.weight'", remedy="others='frozen'"):
        wrapped(module())
    for others, moves in (("frozen", False), ("free", True)):
        with_norm = module()
        optimizer = wrapped(with_norm, others=others).after_task(stream(5))
        assert list(optimizer.ranks_) == ["0", "2"]
        train(optimizer, with_norm, *stream(9), 3)
        assert torch.equal(with_norm[1].weight, torch.ones(6).double()) != moves
    named = module()
    assert list(wrapped(named, projects=["0", "2"]).ranks_) == ["0", "2"]


def test_shared_weights() -> None:
    class Tied(nn.Module):
        def __init__(self, other: Any) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(4, 4, bias=False), other
            self.second.weight = self.first.weight

        def forward(self, x: Any) -> Any:
            return self.second(torch.tanh(self.first(x)))

    module = Tied(nn.Linear(4, 4, bias=False)).double()
    x = stream(1)[0]
    optimizer = wrapped(module, 1.0).after_task([x])
    assert optimizer.ranks_ == {"first": 2}
    outputs = module(x).detach()
    train(optimizer, module, *stream(9, seed=3), 5)
    torch.testing.assert_close(module(x), outputs)
    with raises(ParameterError, argument="module", got="'first.weight'"):
        wrapped(Tied(nn.Embedding(4, 4)))
    attention = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    held = wrapped(attention, others="free")
    assert list(held.ranks_) == ["linear1", "linear2"]


def test_unused_layer_keeps_its_directions() -> None:
    class Heads(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.heads = nn.ModuleList([nn.Linear(4, 3), nn.Linear(4, 3)])
            self.task = 0

        def forward(self, x: Any) -> Any:
            return self.heads[self.task](x)

    module = Heads().double()
    optimizer = wrapped(module).after_task(stream(2))
    assert optimizer.ranks_ == {"heads.0": 2, "heads.1": 0}
    module.task = 1
    assert optimizer.after_task(stream(1)).ranks_ == {"heads.0": 2, "heads.1": 1}


def test_state_dict_continues_bit_for_bit() -> None:
    def on(optimizer: Any, module: Any) -> Any:
        train(optimizer, module, *stream(9, seed=2), 3)
        optimizer.after_task(stream(40, seed=3))
        train(optimizer, module, *stream(9, seed=4), 3)
        return flat(module)

    module = network()
    optimizer = wrapped(module, 0.6, growth=0.1, rows=20, make="AdamW").after_task(stream(9))
    file = io.BytesIO()
    torch.save({"model": module.state_dict(), "optimizer": optimizer.state_dict()}, file)
    expected = on(optimizer, module)
    file.seek(0)
    saved, other = torch.load(file, weights_only=True), network()
    other.load_state_dict(saved["model"])
    again = wrapped(other, 0.6, growth=0.1, rows=20, make="AdamW")
    again.load_state_dict(saved["optimizer"])
    assert torch.equal(on(again, other), expected)
    with raises(CheckpointError, got="another: the directions of '0'"):
        wrapped(network(d=5)).load_state_dict(saved["optimizer"])


def test_module_is_not_changed() -> None:
    module = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Linear(6, 3)).double()
    optimizer = wrapped(module, others="frozen")
    train(optimizer, module, *stream(9))
    state = copy.deepcopy(module.state_dict())
    optimizer.after_task(stream(9))
    assert all(torch.equal(value, module.state_dict()[name]) for name, value in state.items())
    assert all(part.training and not part._forward_pre_hooks for part in module.modules())


def test_thresholds_by_names() -> None:
    module = network()
    optimizer = wrapped(module, {"0": 0.5, "*": 1.0})
    assert optimizer._thresholds == {"0": 0.5, "2": 1.0}
    assert optimizer.after_task(stream(50)).ranks_["2"] == 7


@pytest.mark.parametrize(
    ("given", "fields"),
    [
        ({"threshold": 0.0}, {"argument": "threshold"}),
        ({"threshold": 1.5}, {"argument": "threshold"}),
        ({"threshold": [0.9]}, {"argument": "threshold", "got": "1"}),
        ({"threshold": {"1": 0.9}}, {"argument": "threshold", "got": "'1', which matches none of"}),
        ({"threshold": {"0": 0.9}}, {"argument": "threshold", "got": "none for '2'"}),
        ({"growth": -0.1}, {"argument": "growth"}),
        ({"rows": 0}, {"argument": "rows"}),
        ({"biases": "none"}, {"argument": "biases"}),
        ({"others": "none"}, {"argument": "others"}),
        ({"projects": "*.bias"}, {"argument": "module", "got": "biases alone"}),
    ],
)
def test_invalid_arguments(given: dict[str, Any], fields: dict[str, Any]) -> None:
    with raises(ParameterError, **fields):
        wrapped(network(), **given)


def test_invalid_rows_change_nothing() -> None:
    module = network()
    optimizer = wrapped(module).after_task(stream(3))
    ranks = optimizer.ranks_
    for loader, error in (([], ParameterError), ([stream(3)[0], stream(3, d=9)[0]], ShapeError)):
        with pytest.raises(error):
            optimizer.after_task(loader)
        assert optimizer.ranks_ == ranks
        assert optimizer.tasks_ == 1
