"""``learns="last"`` selects the layer that produces the outputs, or is refused."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import onepass as op
from onepass.errors import ParameterError
from onepass_experiments import baselines
from raising import raises

torch = pytest.importorskip("torch")
nn = torch.nn
functional = nn.functional

D = 4
X = torch.randn(5, D, generator=torch.Generator().manual_seed(0))


class LanguageModel(nn.Module):
    """A head that shares the weight of an embedding, as a layer or as a function."""

    def __init__(self, *, layer: bool) -> None:
        super().__init__()
        self.emb = nn.Embedding(7, 5)
        self.body = nn.Linear(5, 5)
        self.norm = nn.LayerNorm(5)
        if layer:
            self.head = nn.Linear(5, 7, bias=False)
            self.head.weight = self.emb.weight
        self.layer = layer

    def forward(self, ids: Any) -> Any:
        x = self.norm(torch.tanh(self.body(self.emb(ids))))
        return self.head(x) if self.layer else functional.linear(x, self.emb.weight)


IDS = torch.arange(7)


def test_tied_head_learns() -> None:
    learner = op.nn.ORFit(LanguageModel(layer=True), noise=1.0, learns="last", loss="one_hot")
    learner.learn(IDS, (IDS + 1) % 7)
    assert learner.network.names == ("emb.weight",)
    assert learner.network.p == 35
    named = op.nn.ORFit(LanguageModel(layer=True), learns="head")
    assert named.network.names == learner.network.names


def test_tied_head_without_layer_is_refused() -> None:
    learner = op.nn.ORFit(LanguageModel(layer=False), learns="last", loss="one_hot")
    with pytest.raises(ParameterError, match=r"registered last, 'norm', .* outputs is 'emb'"):
        learner.learn(IDS, IDS)


class Chain(nn.Module):
    """Layers registered in one order and called in another, some tied, some outside the chain."""

    def __init__(self, made: list[int], calls: list[int], *, tied: bool, wrapped: str) -> None:
        super().__init__()
        for i in made:
            layer = nn.Linear(D, D)
            if wrapped == "norm":
                layer = nn.utils.parametrizations.weight_norm(layer)
            setattr(self, f"l{i}", nn.Sequential(layer, nn.Tanh()) if wrapped == "in" else layer)
        if tied and wrapped == "":
            getattr(self, f"l{made[-1]}").weight = getattr(self, f"l{made[0]}").weight
        self.calls = calls
        self.after = nn.Softmax(1)

    def forward(self, x: Any) -> Any:
        for i in self.calls[:-1]:
            x = torch.tanh(getattr(self, f"l{i}")(x))
        getattr(self, f"l{self.calls[-1]}")(x)  # called last; its result is not used
        return self.after(x)


@given(
    made=st.permutations(range(3)),
    calls=st.lists(st.integers(0, 2), min_size=2, max_size=5),
    tied=st.booleans(),
    wrapped=st.sampled_from(["", "norm", "in"]),
    grad=st.booleans(),
)
@settings(max_examples=30, print_blob=True)
def test_last_must_produce_outputs(
    made: list[int],
    calls: list[int],
    tied: bool,  # noqa: FBT001
    wrapped: str,
    grad: bool,  # noqa: FBT001
) -> None:
    module = Chain(made, calls, tied=tied, wrapped=wrapped)
    producer = {id(each) for each in getattr(module, f"l{calls[-2]}").parameters()}
    learner = op.nn.OneStepSGD(module, learns="last")
    names = learner.network.names
    chosen = {id(each) for name, each in module.named_parameters() if name in names}
    with torch.set_grad_enabled(grad):
        if chosen <= producer:
            learner.learn(X, torch.zeros(5, D))
        else:
            with raises(
                ParameterError, where=".learn", remedy="Name the layer to train: learns='l"
            ):
                learner.learn(X, torch.zeros(5, D))
            with raises(ParameterError, where=".predict", remedy="learns='l"):
                learner.predict(X)
    assert not any(each._forward_hooks for each in module.modules())


class Beside(nn.Module):
    """A body without a derivative."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.body = nn.Linear(D, D)
        self.end = nn.Linear(D, 2)
        self.kind = kind

    def forward(self, x: Any) -> Any:
        with torch.inference_mode(self.kind == "inference"), torch.no_grad():
            x = self.body(x)
        return self.end(x.clone() if self.kind == "inference" else x)


@pytest.mark.parametrize("kind", ["no grad", "inference"])
def test_earlier_layers_may_lack_derivative(kind: str) -> None:
    learner = op.nn.OneStepSGD(Beside(kind), learns="last").learn(X, torch.zeros(5, 2))
    assert learner.network.names == ("end.weight", "end.bias")


def test_layer_within_attention() -> None:
    class Attending(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention = nn.MultiheadAttention(D, 2, batch_first=True)

        def forward(self, x: Any) -> Any:
            x = x[:, None].expand(-1, 2, -1)
            return self.attention(x, x, x)[0][:, 0]

    learner = op.nn.OneStepSGD(Attending(), learns="last").learn(X, torch.zeros(5, D))
    assert learner.network.names == ("attention.out_proj.weight", "attention.out_proj.bias")


@pytest.mark.parametrize("kind", ["OrthogonalGradient", "GPM"])
def test_optimizers_select_last_layer(kind: str) -> None:
    module = Chain([0, 2, 1], [0, 1, 2, 2], tied=False, wrapped="")
    inner = torch.optim.SGD(module.parameters(), lr=0.1)
    settings_ = {"gradients": "outputs"} if kind == "OrthogonalGradient" else {}
    optimizer = getattr(op.nn.optim, kind)(inner, module, projects="last", **settings_)
    with raises(ParameterError, remedy="projects='l2'"):
        optimizer.after_task([(X, None)])


def test_icarl_uses_features_of_output_layer() -> None:
    module = Chain([2, 0, 1], [0, 1, 2, 2], tied=False, wrapped="")
    module.after = nn.Identity()
    model = baselines.ICaRL(module, epochs=1).learn(X, [0, 1, 0, 1, 0])
    with raises(ParameterError, remedy="Create the output layer"):
        model.after_task()
