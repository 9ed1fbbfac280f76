"""Test modules, and a reference Jacobian by plain backward passes."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

torch = pytest.importorskip("torch")
nn = torch.nn


class Through(nn.Module):
    """A function of the output of another module: Through(nn.LSTM(…), take_last)."""

    def __init__(self, inner: Any, take: Callable[..., Any]) -> None:
        super().__init__()
        self.inner = inner
        self.take = take

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.take(self.inner, *args, **kwargs)


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.head = nn.Linear(8, 3)

    def forward(self, x: Any) -> Any:
        mixed, _ = self.attention(x, x, x, need_weights=False)
        return self.head(mixed.mean(1))


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Embedding(11, 4)
        self.decoder = nn.Linear(4, 11, bias=False)
        self.decoder.weight = self.encoder.weight

    def forward(self, ids: Any) -> Any:
        return self.decoder(torch.tanh(self.encoder(ids).mean(1)))


class Branching(nn.Module):
    """Branches on values of the row, which vmap does not support."""

    def __init__(self) -> None:
        super().__init__()
        self.low = nn.Linear(4, 2)
        self.high = nn.Linear(4, 2)

    def forward(self, x: Any) -> Any:
        return torch.cat([self.low(row) if row.sum() < 0 else self.high(row) for row in x[:, None]])


class Written(nn.Module):
    """Writes into a new tensor in place, which vmap does not support."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, x: Any) -> Any:
        out = torch.zeros(len(x), 3, dtype=x.dtype)
        out[:, :2] += self.linear(x)[:, :2]
        return out


class _Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        (x,) = ctx.saved_tensors
        return 3 * x**2 * g


class Custom(nn.Module):
    """A custom autograd function of the old style, which torch.func does not support."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 2)

    def forward(self, x: Any) -> Any:
        return _Cube.apply(self.linear(x))


class Named(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(9, 3)
        self.rest = nn.Linear(2, 3)

    def forward(self, ids: Any, more: Any, *, scale: float = 1.0) -> Any:
        return self.words(ids).sum(1) + scale * self.rest(more["numbers"])


class Shared(nn.Module):
    """A scale parameter and a layer that is used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(1.5))
        self.layer = nn.Linear(4, 4)
        self.unused = nn.Linear(2, 2)

    def forward(self, x: Any) -> Any:
        return (self.scale * self.layer(torch.relu(self.layer(x)))).unflatten(1, (2, 2))


def _last(inner: Any, x: Any) -> Any:
    return inner(x)[0][:, -1]


def _convolution() -> Any:
    return nn.Sequential(
        nn.Conv2d(1, 3, 3, padding=1), nn.GroupNorm(1, 3), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(3 * 9, 4),
    )  # fmt: skip


def _normalised() -> Any:
    layer = nn.BatchNorm1d(5)
    layer.running_mean.uniform_(-1, 1)
    layer.running_var.uniform_(0.5, 2)
    return nn.Sequential(nn.Linear(4, 5), layer, nn.Tanh(), nn.Dropout(0.5), nn.Linear(5, 2)).eval()


def _numbers(*shape: int) -> Callable[[], Any]:
    return lambda: torch.randn(*shape, dtype=torch.float64)


def _ids(high: int, *shape: int) -> Callable[[], Any]:
    return lambda: torch.randint(0, high, shape)


@dataclass(frozen=True)
class Case:
    """A module, five rows for it, and whether vmap supports it."""

    make: Callable[[], Any]
    rows: Callable[[], Any]
    vmaps: bool = True


CASES = {
    "linear": Case(lambda: nn.Linear(4, 3), _numbers(5, 4)),
    "one output": Case(
        lambda: nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 1), nn.Flatten(0)),
        _numbers(5, 4),
    ),
    "perceptron": Case(
        lambda: nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.LayerNorm(6), nn.Linear(6, 3)),
        _numbers(5, 4),
    ),
    "convolution": Case(_convolution, _numbers(5, 1, 6, 6)),
    "normalised": Case(_normalised, _numbers(5, 4)),
    "attention": Case(Attention, _numbers(5, 7, 8)),
    "transformer": Case(
        lambda: Through(
            nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, dropout=0.0),
            lambda inner, x: inner(x).mean(1),
        ),
        _numbers(5, 6, 8),
    ),
    "rnn": Case(
        lambda: Through(nn.RNN(3, 4, batch_first=True), _last), _numbers(5, 6, 3), vmaps=False
    ),
    "lstm": Case(
        lambda: Through(nn.LSTM(3, 4, batch_first=True), _last), _numbers(5, 6, 3), vmaps=False
    ),
    "gru": Case(
        lambda: Through(nn.GRU(3, 2, num_layers=2, bidirectional=True, batch_first=True), _last),
        _numbers(5, 4, 3),
        vmaps=False,
    ),
    "embedding": Case(
        lambda: Through(nn.Embedding(9, 3), lambda inner, ids: inner(ids).flatten(1)),
        _ids(9, 5, 2),
    ),
    "tied": Case(Tied, _ids(11, 5, 3)),
    "shared": Case(Shared, _numbers(5, 4)),
    "tuple and dict": Case(
        Named, lambda: (_ids(9, 5, 3)(), {"numbers": _numbers(5, 2)()})
    ),
    "keywords": Case(
        Named,
        lambda: {"more": {"numbers": _numbers(5, 2)()}, "ids": _ids(9, 5, 3)(), "scale": 2.0},
    ),
    "branching": Case(Branching, _numbers(5, 4), vmaps=False),
    "written": Case(Written, _numbers(5, 4), vmaps=False),
    "custom": Case(Custom, _numbers(5, 4), vmaps=False),
}  # fmt: skip


def ask(module: Any, x: Any) -> Any:
    """The outputs of a module for a tensor, a tuple or a dict, as a matrix."""
    if isinstance(x, torch.Tensor):
        x = (x,)
    out = module(**x) if isinstance(x, dict) else module(*x)
    return out.reshape(len(out), -1)


def cut(x: Any, i: int, j: int) -> Any:
    """Rows i to j of a tree."""
    if isinstance(x, torch.Tensor):
        return x[i:j]
    if isinstance(x, dict):
        return {key: cut(each, i, j) for key, each in x.items()}
    return tuple(cut(each, i, j) for each in x) if isinstance(x, tuple) else x


def plain_jacobian(module: Any, x: Any, parameters: list[Any]) -> Any:
    """Each row of J by one backward pass through the module."""
    n = len(next(each for each in _leaves(x)))
    found = []
    for i in range(n):
        out = ask(module, cut(x, i, i + 1))[0]
        for each in out:
            grads = torch.autograd.grad(each, parameters, retain_graph=True, allow_unused=True)
            zipped = zip(parameters, grads, strict=True)
            found.append(
                torch.cat(
                    [(torch.zeros_like(p) if g is None else g).reshape(-1) for p, g in zipped]
                )
            )
    return torch.stack(found)


def _leaves(x: Any) -> Any:
    if isinstance(x, torch.Tensor):
        yield x
    elif isinstance(x, (dict, tuple)):
        for each in x.values() if isinstance(x, dict) else x:
            yield from _leaves(each)
