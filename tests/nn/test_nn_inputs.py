"""Input arrays, tables and modules of op.nn, the baselines and TorchFeatures."""

import copy
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import onepass as op
from onepass.errors import ColumnError, ParameterError, ShapeError, TypeMismatchError
from onepass.validation.table import Table
from onepass_experiments import baselines
from raising import raises
from sampling import sample

torch = pytest.importorskip("torch")
nn = torch.nn

V = np.random.default_rng(0).integers(0, 6, (6, 3))
NAMES = list("abc")


def line(c: int = 1) -> Any:
    torch.manual_seed(0)
    return nn.Linear(3, c).double()


def network(name: str) -> Callable[..., Any]:
    return lambda module, **kw: getattr(op.nn, name)(module, **{"noise": 1.0, **kw})


def baseline(name: str) -> Callable[..., Any]:
    return lambda module, **kw: getattr(baselines, name)(
        module, **{"loss": "squared", "step_size": 0.01, **kw}
    )


NETWORKS = {name: network(name) for name in ("ORFit", "EKF")}
BASELINES = {name: baseline(name) for name in ("SGD", "EWC", "SI", "LwF", "Replay", "Joint")} | {
    "EWC passes": lambda m, **kw: baseline("EWC")(m, epochs=2, batch=4, **kw)
}
LEARNERS = NETWORKS | BASELINES


def learned(name: str, module: Any, x: Any, y: Any) -> np.ndarray:
    model = LEARNERS[name](module)
    for _ in range(2):
        model.learn(x, y)
        if name in BASELINES:
            model.after_task()
    return np.asarray(model.predict(x)).reshape(-1)


# -- arrays ---------------------------------------------------------------------------------------

LAYOUTS: dict[str, Callable[[Any], Any]] = {
    "reversed rows": lambda a: a[::-1].copy()[::-1],
    "reversed columns": lambda a: np.flip(np.flip(a, -1).copy(), -1),
    "fortran": np.asfortranarray,
    "strided": lambda a: np.repeat(a, 2, axis=0)[::2],
    "big endian": lambda a: a.astype(a.dtype.newbyteorder(">")),
    "frame": lambda a: pd.DataFrame(a).to_numpy(),
}
DTYPES = ["f2", "f4", "f8", "longdouble", *("i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8")]


@pytest.mark.parametrize("name", LEARNERS)
@given(
    dtypes=st.tuples(st.sampled_from(DTYPES), st.sampled_from(DTYPES)),
    layouts=st.tuples(st.sampled_from(list(LAYOUTS)), st.sampled_from(list(LAYOUTS))),
    writeable=st.booleans(),
)
@settings(max_examples=4, print_blob=True)
def test_array_layout_does_not_matter(
    name: str,
    dtypes: Any,
    layouts: Any,
    writeable: bool,  # noqa: FBT001
) -> None:
    given_ = []
    for values, dtype, layout in zip((V, V[:, 0]), dtypes, layouts, strict=True):
        array = LAYOUTS[layout](values.astype(dtype)).reshape(values.shape)
        array.flags.writeable = writeable
        given_.append(array)
    found = learned(name, line(), *given_)
    assert np.allclose(found, learned(name, line(), V * 1.0, V[:, 0] * 1.0), rtol=1e-12)


@given(dtype=st.sampled_from(DTYPES), layout=st.sampled_from(list(LAYOUTS)))
@settings(max_examples=30, print_blob=True)
def test_features_of_any_array_layout(dtype: str, layout: str) -> None:
    array = LAYOUTS[layout](V.astype(dtype))
    array.flags.writeable = False
    found = op.features.TorchFeatures(line(2)).transform(array)
    assert np.array_equal(found, op.features.TorchFeatures(line(2)).transform(V * 1.0))


def test_integers_beyond_int64_do_not_wrap() -> None:
    x = np.array([[2**63 + 2**40, 0, 0]], dtype=np.uint64)
    predictions = op.nn.EKF(line(), noise=1.0).predict(x)
    assert torch.equal(predictions, op.nn.EKF(line(), noise=1.0).predict(x.astype(float)))


# -- tables ---------------------------------------------------------------------------------------

FRAMES: dict[str, Callable[[Any], Any]] = {
    "pandas": lambda frame: frame,
    "polars": pl.from_pandas,
    "arrow": lambda frame: pl.from_pandas(frame).to_arrow(),
    "table": Table.from_frame,
}


@pytest.mark.parametrize("name", LEARNERS)
@given(
    order=st.permutations(NAMES),
    kinds=st.tuples(st.sampled_from(list(FRAMES)), st.sampled_from(list(FRAMES))),
    whole=st.booleans(),
    mixed=st.booleans(),
)
@settings(max_examples=3, print_blob=True)
def test_columns_selected_by_name(
    name: str,
    order: list[str],
    kinds: Any,
    whole: bool,  # noqa: FBT001
    mixed: bool,  # noqa: FBT001
) -> None:
    frame = pd.DataFrame(V if whole else V * 0.5, columns=NAMES)
    frame["a"] *= 0.5 if mixed else 1
    here, there = (FRAMES[kind] for kind in kinds)
    model, plain = (LEARNERS[name](line()) for _ in range(2))
    model.learn(here(frame), V[:, 0]).learn(there(frame[order]), V[:, 1])
    plain.learn(frame.to_numpy() * 1.0, V[:, 0]).learn(frame.to_numpy() * 1.0, V[:, 1])
    expected = np.asarray(plain.predict(frame.to_numpy() * 1.0))
    assert np.allclose(np.asarray(model.predict(there(frame[order]))), expected, rtol=1e-12)
    assert np.allclose(np.asarray(model.predict(frame.to_numpy())), expected, rtol=1e-12)


@pytest.mark.parametrize("name", LEARNERS)
def test_unknown_columns_raise_column_error(name: str) -> None:
    frame = pd.DataFrame(V * 1.0, columns=NAMES)
    model, peer = LEARNERS[name](line()).learn(frame, V[:, 0]), op.RLSRegressor()
    peer.partial_fit(frame, V[:, 0])
    before = np.asarray(model.predict(frame))
    for wrong in (frame.rename(columns={"c": "d"}), frame[["a", "b"]], frame.assign(e=1.0)):
        words = []
        for verb in (model.predict, lambda X: model.learn(X, V[:, 0]), peer.predict):
            with pytest.raises(ColumnError) as raised:
                verb(wrong)
            words.append(str(raised.value).partition(": ")[2])
        assert len(set(words)) == 1
    assert np.array_equal(np.asarray(model.predict(frame)), before)


@pytest.mark.parametrize("name", LEARNERS)
def test_column_names_of_refused_rows_are_not_learned(name: str) -> None:
    frame = pd.DataFrame(V * 1.0, columns=NAMES)
    model = LEARNERS[name](line())
    with pytest.raises(ShapeError):
        model.learn(frame.rename(columns={"a": "z"}), V[:2, 0])
    model.learn(frame, V[:, 0])
    model.predict(frame[["c", "b", "a"]])


def test_column_names_are_saved_copied_and_compared(tmp_path: Path) -> None:
    frame = pd.DataFrame(V * 1.0, columns=NAMES)
    learner = op.nn.ORFit(line(), memory=3, noise=1.0)
    twin = copy.deepcopy(learner)
    learner.learn(frame, V[:, 0]).save(tmp_path / "net.onepass")
    again = op.nn.load(tmp_path / "net.onepass", line())
    turned = frame[["c", "a", "b"]]
    for each in (learner, again, copy.deepcopy(learner)):
        assert torch.equal(each.predict(turned), learner.predict(frame))
    fresh = copy.deepcopy(twin)
    fresh.merge(learner)
    assert torch.equal(fresh.predict(turned), fresh.predict(frame))
    with raises(op.errors.MergeError, remedy="Pass the columns in"):
        twin.learn(turned, V[:, 0]).merge(learner)


def test_features_use_learned_column_order() -> None:
    frame, turned = (pd.DataFrame(V * 1.0, columns=NAMES)[order] for order in (NAMES, NAMES[::-1]))
    feature = op.features.TorchFeatures(line(2))
    other = feature.transform(turned)
    assert not hasattr(feature, "feature_names_in_")  # transform changes nothing
    expected = feature.learn(frame).transform(frame)
    assert not np.array_equal(other, expected)
    assert np.array_equal(feature.transform(turned), expected)
    rows = turned.to_dict("records")
    pipeline = op.Pipeline(op.features.TorchFeatures(line(2)), op.RLSRegressor())
    pipeline.partial_fit(frame, V[:, 0])
    assert pipeline.predict_one(rows[0]) == pytest.approx(pipeline.predict(frame[:1])[0])


class Words(nn.Module):
    """Integers as indices of an embedding or of a parameter."""

    def __init__(self, *, layer: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.words = nn.Embedding(6, 2) if layer else nn.Parameter(torch.randn(6, 2))
        self.order = nn.Parameter(torch.arange(1.0, 4.0))
        self.layer = layer

    def forward(self, ids: Any) -> Any:
        found = self.words(ids) if self.layer else self.words[ids]
        return (found * self.order[:, None]).sum((1, 2))


@pytest.mark.parametrize(
    ("name", "layer"), sample(list(product(LEARNERS, [True, False])), 9, "embedding indices")
)
def test_embedding_indices_stay_integers(name: str, layer: bool) -> None:  # noqa: FBT001
    frame = pd.DataFrame(V, columns=NAMES)
    expected = learned(name, Words(layer=layer), V, V[:, 0])
    model = LEARNERS[name](Words(layer=layer))
    for _ in range(2):
        model.learn(frame, V[:, 0])
        if name in BASELINES:
            model.after_task()
    assert np.allclose(np.asarray(model.predict(frame[["b", "c", "a"]])), expected, rtol=1e-5)


def test_integer_and_real_inputs_may_alternate() -> None:
    model, plain = (op.nn.ORFit(line(), noise=1.0) for _ in range(2))
    for x in (V * 1.0, V, V[:1], V * 0.5, torch.from_numpy(V)):
        model.learn(x, V[: len(x), 0])
        plain.learn(np.asarray(x) * 1.0, V[: len(x), 0])
    assert torch.equal(model.predict(V), plain.predict(V * 1.0))


# -- several inputs, several outputs, one row -----------------------------------------------------


class Output(dict):  # type: ignore[type-arg]
    """Named outputs, as in transformers."""

    @property
    def logits(self) -> Any:
        return self["logits"]


class Model(nn.Module):
    """Keyword arguments in, an object with logits out."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.words = nn.Embedding(6, 4)
        self.head = nn.Linear(4, 2)

    def forward(self, input_ids: Any, attention_mask: Any) -> Any:
        mask = attention_mask.to(self.head.weight.dtype)[..., None]
        pooled = (self.words(input_ids) * mask).sum(1) / mask.sum(1).clamp(min=1.0)
        return Output(logits=self.head(pooled), pooled=pooled)


class Flat(nn.Module):
    """The same, of one tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = Model()

    def forward(self, x: Any) -> Any:
        return self.inner(x[:, :3], x[:, 3:]).logits


MASK = (V > 1).astype(np.int64)
LABELS = V[:, 0] % 2
CLASSES = {
    **{
        name: lambda m, n=name: getattr(op.nn, n)(m, loss="one_hot", noise=1.0)
        for name in NETWORKS
    },
    **{
        name: lambda m, n=name: getattr(baselines, n)(m, step_size=0.1)
        for name in ("SGD", "EWC", "SI", "LwF", "Replay", "Joint", "ICaRL")
    },
    "Replay of few": lambda m: baselines.Replay(m, step_size=0.1, capacity=4, replayed=3),
    "SI passes": lambda m: baselines.SI(m, step_size=0.1, epochs=2, batch=4),
}  # fmt: skip


@pytest.mark.parametrize("name", CLASSES)
def test_dict_inputs_and_logits(name: str) -> None:
    named, flat = CLASSES[name](Model()), CLASSES[name](Flat())
    x = {"input_ids": V, "attention_mask": torch.from_numpy(MASK)}
    swapped = {"attention_mask": MASK, "input_ids": V}
    for each in (x, swapped, x):
        named.learn(each, LABELS)
        flat.learn(np.concatenate([V, MASK], axis=1), LABELS)
        if hasattr(baselines, name.split(maxsplit=1)[0]):
            named.after_task()
            flat.after_task()
    one, other = named.outputs(x), flat.outputs(np.concatenate([V, MASK], axis=1))
    assert np.allclose(np.asarray(one), np.asarray(other), rtol=1e-5, atol=1e-6)
    assert np.array_equal(np.asarray(named.predict(swapped)), np.asarray(flat.predict(
        torch.from_numpy(np.concatenate([V, MASK], axis=1)))))  # fmt: skip
    assert named.nbytes == flat.nbytes


@pytest.mark.parametrize("name", CLASSES)
def test_unknown_forward_arguments(name: str) -> None:
    model = CLASSES[name](Model())
    x = {"input_ids": V, "mask": MASK}
    with raises(TypeMismatchError, argument="x", remedy="keyword arguments as a dict"):
        _ = model.learn(x, LABELS).after_task()  # some hold rows until then


@pytest.mark.filterwarnings("ignore:.*training mode")
@pytest.mark.parametrize("name", LEARNERS)
@pytest.mark.parametrize("training", [True, False])
def test_single_row_with_batch_normalisation(name: str, training: bool) -> None:  # noqa: FBT001
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1)).double()
    module.train(training)
    model = LEARNERS[name](module)
    batches = module[1].num_batches_tracked.item()
    model.learn(V[:1] * 1.0, V[:1, 0] * 1.0)
    if name in BASELINES:
        model.learn(V * 1.0, V[:, 0] * 1.0).learn(V[:1] * 1.0, V[:1, 0]).after_task()
    assert np.isfinite(np.asarray(model.predict(V[:1] * 1.0))).all()
    assert all(each.training is training for each in module.modules())
    if name == "SGD":  # one row leaves the running statistics
        assert module[1].num_batches_tracked.item() == batches + training


def test_single_row_without_running_statistics() -> None:
    module = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4, track_running_stats=False)).double()
    model = baselines.SGD(module, step_size=0.01, loss="squared")
    before = copy.deepcopy(module.state_dict())
    with raises(
        ShapeError, got="float64 (1, 3), and it raised: Expected more than 1 value per channel"
    ):
        model.learn(V[:1] * 1.0, np.zeros((1, 4)))
    assert all(torch.equal(each, before[key]) for key, each in module.state_dict().items())


# -- modules that write into their parameters -----------------------------------------------------


class Bounded(nn.Module):
    """Embeddings with max_norm, in several ways."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        torch.manual_seed(0)
        layers = {
            "layer": nn.Embedding(6, 4, max_norm=0.5),
            "bag": nn.EmbeddingBag(6, 4, max_norm=0.5),
        }
        self.words = layers.get(kind, nn.Embedding(6, 4))
        self.out = nn.Linear(12 if kind != "bag" else 4, 1)
        self.kind = kind

    def forward(self, ids: Any) -> Any:
        if self.kind == "function":
            found = nn.functional.embedding(ids, self.words.weight, max_norm=0.5)
        else:
            if self.kind == "data":
                self.words.weight.data.clamp_(-0.5, 0.5)
            if self.kind == "no grad":
                with torch.no_grad():
                    self.words.weight.clamp_(-0.5, 0.5)
            found = self.words(ids)
        return self.out(torch.tanh(found.flatten(1)))


@pytest.mark.parametrize("kind", ["layer", "bag", "function", "data", "no grad"])
@pytest.mark.parametrize("freeze", [True, False])
def test_predict_does_not_change_embedding(kind: str, freeze: bool) -> None:  # noqa: FBT001
    module = Bounded(kind)
    module.words.requires_grad_(not freeze)
    before = module.words.weight.detach().clone()
    with pytest.raises(ParameterError, match=r"must not change the module, but .*'words"):
        op.nn.ORFit(module).predict(V)
    if kind in {"layer", "bag"}:
        with raises(ParameterError, remedy="set max_norm = None"):
            baselines.SGD(module, step_size=0.01, loss="squared")
    assert torch.equal(module.words.weight, before)


def test_frozen_backbone_is_not_copied(monkeypatch: Any) -> None:
    body = nn.Sequential(nn.Linear(3, 200), nn.ReLU(inplace=True), nn.Linear(200, 4))
    body.requires_grad_(requires_grad=False)
    copied, clone = [0], torch.Tensor.clone

    def counted(each: Any, *args: Any, **kwargs: Any) -> Any:
        copied[0] += each.numel()
        return clone(each, *args, **kwargs)

    monkeypatch.setattr(torch.Tensor, "clone", counted)
    op.nn.ORFit(nn.Sequential(body, nn.Linear(4, 1))).predict(V * 1.0)
    assert copied[0] < 100


def test_frozen_layer_with_control_flow_operator() -> None:
    class Branch(nn.Linear):
        def forward(self, x: Any) -> Any:
            return torch.cond(torch.tensor(True), torch.sin, torch.cos, (super().forward(x),))  # noqa: FBT003

    body = Branch(3, 4).requires_grad_(requires_grad=False)
    assert op.nn.ORFit(nn.Sequential(body, nn.Linear(4, 1))).predict(V * 1.0).shape == (len(V),)


def test_features_do_not_change_max_norm_embedding() -> None:
    class Real(Bounded):
        def forward(self, ids: Any) -> Any:
            return super().forward(ids.long())

    module = Real("layer")
    before, expected = module.words.weight.detach().clone(), copy.deepcopy(module)(torch.tensor(V))
    feature = op.features.TorchFeatures(module).learn(V * 1.0)
    for _ in range(2):
        assert np.allclose(feature.transform(V * 1.0), expected.detach().numpy(), atol=1e-6)
    assert torch.equal(module.words.weight, before)
