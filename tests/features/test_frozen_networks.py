"""Frozen networks as features: equal to their outputs, unchanged, and identified in files."""

import copy
import pickle
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from feature_cases import CUTS, in_blocks, state
from hypothesis import given, settings
from numpy.testing import assert_allclose, assert_array_equal
from onnx import TensorProto, helper
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.utils.estimator_checks import parametrize_with_checks

import onepass as op
from onepass.errors import (
    CheckpointError,
    MergeError,
    MissingExtraError,
    ModuleError,
    NotFiniteError,
    NumericalError,
    ParameterError,
    ShapeError,
    TypeMismatchError,
)
from onepass.features import ONNXFeatures, TorchFeatures
from onepass.features.pretrained import FrozenNetwork
from onnx_files import convolution, doubling, onnx_bytes
from raising import raises

torch = pytest.importorskip("torch")

rng = np.random.default_rng(0)
PICTURES = rng.random((30, 2, 6, 6))
ROWS = PICTURES.reshape(30, -1)
Y = np.arange(30) % 3
FILTERS = rng.normal(size=(4, 2, 3, 3)).astype(np.float32)


def convolving(seed: int = 0) -> Any:
    """A network with dropout and batch normalisation, with running statistics of some images."""
    torch.manual_seed(seed)
    net = torch.nn.Sequential(
        torch.nn.Conv2d(2, 5, 3), torch.nn.BatchNorm2d(5), torch.nn.ReLU(inplace=True),
        torch.nn.Dropout(0.5), torch.nn.Flatten(), torch.nn.Linear(80, 7),
    )  # fmt: skip
    net(torch.tensor(PICTURES, dtype=torch.float32))
    return net


def make_feature(kind: str, **changes: Any) -> FrozenNetwork:
    if kind == "torch":
        return TorchFeatures(convolving(), **({"shape": (2, 6, 6)} | changes))
    return ONNXFeatures(convolution(FILTERS, 6), **changes)


def expected(kind: str, X: np.ndarray) -> np.ndarray:
    """The outputs of the network, computed by PyTorch."""
    rows = torch.tensor(X.reshape(-1, 2, 6, 6), dtype=torch.float32)
    with torch.no_grad():
        if kind == "torch":
            return convolving().eval()(rows).numpy()
        found = torch.nn.functional.conv2d(rows, torch.tensor(FILTERS)).relu()
    return found.reshape(len(X), -1).numpy()


each_kind = pytest.mark.parametrize("kind", ["torch", "onnx"])


@parametrize_with_checks([TorchFeatures(torch.nn.ReLU()), ONNXFeatures(doubling("d"))])
def test_scikit_learn_estimator_checks(estimator: Any, check: Callable[[Any], None]) -> None:
    check(estimator)


@each_kind
def test_features_equal_network_outputs(kind: str) -> None:
    feature = make_feature(kind)
    assert feature.n_features_out_ == 0
    Z = feature.transform(ROWS)
    assert not feature.__sklearn_is_fitted__()
    assert_allclose(Z, expected(kind, ROWS), atol=1e-5)
    assert_array_equal(make_feature(kind).learn_transform(PICTURES), Z)
    assert_array_equal(make_feature(kind).transform(PICTURES), Z)
    assert Z.dtype == np.float32
    assert feature.learn(ROWS[:0]).n_features_out_ == Z.shape[1]
    assert feature.transform(ROWS[:0]).shape == (0, Z.shape[1])
    assert len(set(feature.get_feature_names_out())) == Z.shape[1]
    assert feature.get_feature_names_out()[0] == f"{kind}0"
    assert_array_equal(feature.transform(ROWS.astype(np.float32)), Z)


@each_kind
@settings(max_examples=6, deadline=None, derandomize=True)
@given(cuts=CUTS)
def test_block_boundaries_do_not_change_features(kind: str, cuts: list[int]) -> None:
    whole, part, alone = (make_feature(kind, batch_size=size) for size in (64, 7, 1))
    expected = whole.learn_transform(ROWS)
    assert_allclose(in_blocks(part, ROWS, cuts), expected, atol=1e-5)
    assert_allclose(part.trial_, whole.trial_, atol=1e-5)
    assert (part.rows_seen_, part.digest_) == (whole.rows_seen_, whole.digest_)
    one = make_feature(kind, batch_size=1)
    assert_array_equal(in_blocks(one, ROWS, cuts), alone.learn_transform(ROWS))
    assert state(one.trial_) == state(alone.trial_)


@each_kind
def test_file_omits_network_and_loaded_pipeline_continues(kind: str, tmp_path: Path) -> None:
    model = op.Pipeline(make_feature(kind), op.RLSClassifier(ridge=0.1)).partial_fit(
        ROWS[:20], Y[:20]
    )
    op.save(model, tmp_path / "m.onepass")
    name = next(iter(type(model.steps[0])._outside))
    again = op.load(tmp_path / "m.onepass", **{name: getattr(make_feature(kind), name)})
    for one in (model, again):
        one.partial_fit(ROWS[20:], Y[20:])
    assert_array_equal(again.decision_function(ROWS), model.decision_function(ROWS))
    with pytest.raises(CheckpointError, match=rf"features_|steps.*no replacement.*{name}="):
        op.load(tmp_path / "m.onepass")
    other = {"module": convolving(1), "model": convolution(FILTERS + 1, 6)}[name]
    with pytest.raises(CheckpointError, match=r"m.onepass: `features_.0`: the .* digest"):
        op.load(tmp_path / "m.onepass", **{name: other})
    with pytest.raises(CheckpointError, match="must be"):
        op.load(tmp_path / "m.onepass", **{name: 3})


@each_kind
def test_file_with_inconsistent_attributes_is_refused(kind: str, tmp_path: Path) -> None:
    name = next(iter(make_feature(kind)._outside))
    for attribute, value in (("shape_", (5,)), ("digest_", 3), ("trial_", np.eye(2))):
        feature = make_feature(kind).learn(ROWS)
        setattr(feature, attribute, value)
        op.save(feature, tmp_path / "f.onepass")
        with raises(CheckpointError, got="a damaged one: the object has inconsistent attributes"):
            op.load(tmp_path / "f.onepass", **{name: getattr(feature, name)})


@each_kind
@pytest.mark.parametrize("copied", [copy.deepcopy, lambda a: pickle.loads(pickle.dumps(a)), clone])  # noqa: S301
def test_copies_have_the_same_outputs(kind: str, copied: Any) -> None:
    model = op.Pipeline(make_feature(kind), op.RLSClassifier(ridge=0.1)).partial_fit(ROWS, Y)
    twin = copied(model)
    twin = twin if hasattr(twin, "learner_") else twin.partial_fit(ROWS, Y)
    assert_array_equal(twin.decision_function(ROWS), model.decision_function(ROWS))
    assert "_opened" in vars(model.features_[0])
    assert "_opened" not in model.features_[0].__getstate__()
    assert len(repr(model)) < 200


@each_kind
def test_merged_pipelines_equal_pipeline_of_whole_stream(kind: str) -> None:
    whole = op.Pipeline(make_feature(kind), op.RLSClassifier(ridge=0.1))
    one, two, fresh = (copy.deepcopy(whole) for _ in range(3))
    whole.partial_fit(ROWS, Y)
    one.partial_fit(ROWS[:11], Y[:11]).merge(two.partial_fit(ROWS[11:], Y[11:]))
    assert_allclose(one.decision_function(ROWS), whole.decision_function(ROWS), atol=1e-4)
    assert_allclose(fresh.merge(one).predict(ROWS), one.predict(ROWS))
    other = {"torch": lambda: TorchFeatures(convolving(1), shape=(2, 6, 6)),
             "onnx": lambda: ONNXFeatures(convolution(FILTERS + 1, 6))}[kind]()  # fmt: skip
    before = state(one.learner_)
    for begun in (other, clone(other)):
        strange = op.Pipeline(other, op.RLSClassifier(ridge=0.1)).partial_fit(ROWS, Y)
        with pytest.raises(MergeError, match="is different"):
            one.merge(strange)
        with pytest.raises(MergeError, match="is different"):
            begun.merge(make_feature(kind).learn(ROWS))
    assert state(one.learner_) == before


@each_kind
def test_learn_one_equals_partial_fit(kind: str) -> None:
    one, many = (op.Pipeline(make_feature(kind), op.RLSClassifier(ridge=0.1)) for _ in range(2))
    assert one.predict_one(PICTURES[0]) is None
    many.partial_fit(PICTURES, Y)
    for x, label in zip(PICTURES, Y, strict=True):
        one.learn_one(x, label)
    assert_allclose(one.decision_function(ROWS), many.decision_function(ROWS), atol=1e-3)
    assert one.predict_one(ROWS[3]) == many.predict_one(PICTURES[3])


@each_kind
def test_errors_leave_state_unchanged(kind: str) -> None:
    feature = make_feature(kind).learn(ROWS[:5])
    before = state({name: value for name, value in vars(feature).items() if name.endswith("_")})
    wrong: list[tuple[type[Exception], str, Any]] = [
        (
            NumericalError,
            rf"feature {kind}\d+ must be finite, .* in row 1",
            np.stack([ROWS[0], 3e38 * (ROWS[1] + 1)]),
        ),
        (NotFiniteError, "NaN in row 2", np.where(ROWS[2, 3] == ROWS, np.nan, ROWS)),
        (ShapeError, "72 features|72 columns", ROWS[:, :5]),
        (ShapeError, r"must have shape \(2, 6, 6\)", PICTURES.transpose(0, 2, 3, 1)),
    ]
    for error, words, X in wrong:
        with pytest.raises(error, match=words):
            feature.learn(X)
        with pytest.raises(error, match=words):
            feature.transform(X)
    with raises(ShapeError, remedy="Inputs of a network cannot be added"):
        feature.grow(100)
    after = state({name: value for name, value in vars(feature).items() if name.endswith("_")})
    assert after == before
    for changes in ({"shape": (3, 5)}, {"shape": 3}, {"shape": (0, 72)}, {"batch_size": 0}):
        with pytest.raises((ParameterError, ShapeError)):
            make_feature(kind, **changes).learn(ROWS)


@each_kind
def test_missing_extra_is_named(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    package = {"torch": "torch", "onnx": "onnxruntime"}[kind]
    feature = make_feature(kind)
    monkeypatch.setitem(__import__("sys").modules, package, None)
    with raises(MissingExtraError, remedy=f"onepass[{kind}]"):
        feature.learn(ROWS)


@each_kind
def test_interrupted_evaluation_resumes(kind: str, tmp_path: Path) -> None:
    def stop(*_: Any) -> None:
        raise KeyError

    def made_now() -> dict[str, Any]:
        return {"rls": op.Pipeline(make_feature(kind), op.RLSRegressor(ridge=0.1))}

    def stream() -> Any:
        return op.stream.read((ROWS, ROWS[:, 0]), block=10)

    marked: dict[str, Any] = {"metrics": ["mae"], "checkpoint": tmp_path / "p.run", "every": 0}
    with pytest.raises(KeyError):
        op.evaluate.prequential(made_now(), stream(), on_block=stop, **marked)
    models = made_now()
    report = op.evaluate.prequential(models, stream(), resume=True, **marked)
    whole = made_now()
    op.evaluate.prequential(whole, stream(), metrics=["mae"])
    assert 0 < report.resumed[0] < 30
    assert_array_equal(models["rls"].predict(ROWS), whole["rls"].predict(ROWS))


@each_kind
def test_rls_on_features_equals_ridge_regression(kind: str) -> None:
    model = op.Pipeline(make_feature(kind), op.RLSRegressor(ridge=0.5, fit_intercept=False))
    for i in range(0, 30, 4):
        model.partial_fit(ROWS[i : i + 4], ROWS[i : i + 4, 0])
    Z = expected(kind, ROWS).astype(float)
    w = np.linalg.solve(Z.T @ Z + 0.5 * np.eye(Z.shape[1]), Z.T @ ROWS[:, 0])
    assert_allclose(model.predict(ROWS), Z @ w, atol=1e-3)


# -- PyTorch ---------------------------------------------------------------------------------------


def test_module_is_unchanged_bit_for_bit() -> None:
    net = convolving()
    net[0].weight.grad = torch.ones_like(net[0].weight)
    net[1].eval()
    before = [each.clone() for each in (*net.state_dict().values(), net[0].weight.grad)]
    flags = [each.training for each in net.modules()]
    X = ROWS.copy()
    with torch.autocast("cpu", dtype=torch.bfloat16):  # it computes in its own dtype all the same
        feature = TorchFeatures(net, shape=(2, 6, 6)).learn(X)
        Z = feature.transform(X)
    assert_allclose(Z, expected("torch", X), atol=1e-5)
    op.Pipeline(feature, op.RLSClassifier()).partial_fit(X, Y).predict(X)
    after = (*net.state_dict().values(), net[0].weight.grad)
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))
    assert [each.training for each in net.modules()] == flags
    assert all(each.requires_grad for each in net.parameters())
    assert_array_equal(X, ROWS)
    assert clone(feature).module is net


def test_compiled_modules_have_no_layers() -> None:
    net = torch.nn.Sequential(torch.nn.Linear(72, 4), torch.nn.ReLU())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that PyTorch means to give it up
        traced = torch.jit.trace(net, torch.zeros(1, 72))
    assert_allclose(TorchFeatures(traced).transform(ROWS), TorchFeatures(net).transform(ROWS))
    with raises(ParameterError, argument="layer", remedy="Pass the module that"):
        TorchFeatures(traced, layer="0").learn(ROWS)


def test_forward_stops_at_selected_layer() -> None:
    net = convolving()
    Z = TorchFeatures(net, layer="4", shape=(2, 6, 6)).transform(ROWS)
    with torch.no_grad():
        found = net.eval()[:5](torch.tensor(PICTURES, dtype=torch.float32))
    assert_allclose(Z, found.numpy(), atol=1e-5)
    broken = torch.nn.Sequential(torch.nn.Linear(72, 3), torch.nn.Linear(99, 1))
    assert TorchFeatures(broken, layer="0").transform(ROWS).shape == (30, 3)
    with raises(ParameterError, argument="layer", got="'head'"):
        TorchFeatures(net, layer="head").transform(ROWS)


def test_dtype_is_used_by_copy_of_module() -> None:
    net = convolving()
    fine = TorchFeatures(net, shape=(2, 6, 6), dtype="float64").transform(ROWS)
    assert fine.dtype == np.float64
    exact = copy.deepcopy(net).double().eval()(torch.tensor(PICTURES)).detach().numpy()
    assert_allclose(fine, exact, atol=1e-12)
    coarse = TorchFeatures(net, shape=(2, 6, 6), dtype="bfloat16", device="cpu").transform(ROWS)
    assert coarse.dtype == np.float32
    assert 1e-4 < np.abs(coarse - exact).max() < 0.2
    assert net[0].weight.dtype == torch.float32
    for changes in ({"dtype": "int8"}, {"device": "moon"}):
        with pytest.raises(ParameterError, match=next(iter(changes))):
            TorchFeatures(net, shape=(2, 6, 6), **changes).transform(ROWS)


@pytest.mark.parametrize(
    ("write", "refused"),
    [
        (lambda net: net[0].weight.mul_(2.0), True),
        (lambda net: net[1].running_mean.add_(1.0), True),
        (lambda net: setattr(net[5].bias, "data", torch.zeros(7)), True),
        (lambda net: net[0].weight.mul_(1.0), False),
        (lambda net: net.train(), False),
    ],
)
def test_changed_weights_are_detected(write: Any, refused: bool) -> None:  # noqa: FBT001
    net = convolving()
    model = op.Pipeline(TorchFeatures(net, shape=(2, 6, 6)), op.RLSClassifier())
    model.partial_fit(ROWS, Y)
    scores_before = model.decision_function(ROWS)
    with torch.no_grad():
        write(net)
    if refused:
        with raises(ParameterError, remedy="Pass the original network"):
            model.partial_fit(ROWS, Y)
    else:
        assert_array_equal(model.decision_function(ROWS), scores_before)


def test_same_weights_in_other_layers_are_detected(tmp_path: Path) -> None:
    net = torch.nn.Sequential(torch.nn.Linear(72, 9), torch.nn.ReLU())
    op.save(TorchFeatures(net).learn(ROWS), tmp_path / "f.onepass")
    other = torch.nn.Sequential(net[0], torch.nn.Softplus())
    again = op.load(tmp_path / "f.onepass", module=other)
    with raises(ParameterError, remedy="Create it with the"):
        again.transform(ROWS)


class Lots(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        return torch.nn.functional.dropout(x, 0.5, training=True)


class Mixing(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        return x - x.mean(dim=0)


class Telling(torch.nn.Module):
    def __init__(self, what: Any) -> None:
        super().__init__()
        self.what = what

    def forward(self, x: Any) -> Any:
        return self.what(x)


@pytest.mark.parametrize(
    ("module", "error", "words"),
    [
        (3, TypeMismatchError, "`module` must be a torch.nn.Module, got int"),
        (torch.nn.Linear, TypeMismatchError, "got type"),
        (torch.nn.Linear(3, 3), ModuleError, r"rows of shape \(72,\), got RuntimeError"),
        (torch.nn.LazyLinear(3), TypeMismatchError, "must have initialised weights"),
        (torch.nn.Linear(3, 3, device="meta"), TypeMismatchError, "must have initialised weights"),
        (torch.nn.LSTM(72, 3), ShapeError, "one tensor of real numbers, got tuple"),
        (Telling(torch.sum), ShapeError, r"output of shape \(\)"),
        (Telling(lambda x: x.sum(dim=0)), ShapeError, r"output of shape \(72,\)"),
        (Telling(lambda x: x + 1j), ShapeError, "got complex numbers"),
        (Telling(lambda x: x[:, :0]), ShapeError, r"output of shape \(1, 0\)"),
        (Lots(), ParameterError, "evaluated again"),
        (Mixing(), ParameterError, "evaluated with another row"),
    ],
)
def test_invalid_modules_are_refused(module: Any, error: Any, words: str) -> None:
    with pytest.raises(error, match=words):
        TorchFeatures(module).learn(ROWS)


def test_modules_of_any_kind() -> None:
    linear = torch.nn.Linear(72, 4)
    wanted = linear(torch.tensor(ROWS, dtype=torch.float32)).detach().numpy()
    tied = torch.nn.Sequential(linear, torch.nn.Linear(4, 72), linear)
    assert TorchFeatures(tied).transform(ROWS).shape == (30, 4)
    with torch.inference_mode():
        apart = torch.nn.Linear(72, 4)
        assert_allclose(TorchFeatures(linear).transform(ROWS), wanted, atol=1e-5)
    assert TorchFeatures(apart).transform(ROWS).shape == (30, 4)
    normed = torch.nn.utils.parametrizations.spectral_norm(torch.nn.Linear(72, 3))
    before = {name: each.clone() for name, each in normed.state_dict().items()}
    TorchFeatures(normed.train()).learn(ROWS)
    assert all(torch.equal(each, before[name]) for name, each in normed.state_dict().items())
    assert_allclose(TorchFeatures(linear).transform(ROWS.tolist()), wanted, atol=1e-5)


def test_scalar_output_is_single_feature() -> None:
    Z = TorchFeatures(Telling(lambda x: x.sum(dim=1))).transform(ROWS)
    assert_allclose(Z, ROWS.sum(axis=1, keepdims=True), rtol=1e-5)
    assert TorchFeatures(Mixing(), batch_size=1).transform(ROWS).max() == 0.0


# -- ONNX ------------------------------------------------------------------------------------------


def test_file_is_read_from_path_and_identified_by_digest(tmp_path: Path) -> None:
    net, saved = tmp_path / "net.onnx", tmp_path / "m.onepass"
    net.write_bytes(convolution(FILTERS, 6))
    model = op.Pipeline(ONNXFeatures(net), op.RLSClassifier(ridge=0.1)).partial_fit(ROWS, Y)
    op.save(model, saved)
    assert op.load(saved).steps[0].model == str(net)
    assert_array_equal(op.load(saved).predict(ROWS), model.predict(ROWS))
    from onepass.serialization.models import describe

    assert describe(saved)["functions"] == []
    assert describe(saved)["parameters"]["steps"][0]["parameters"]["model"] == str(net)
    moved = net.rename(tmp_path / "moved.onnx")
    with pytest.raises(CheckpointError, match=r"features_.*net.onnx.*op.load\(path, model="):
        op.load(saved)
    assert_array_equal(op.load(saved, model=moved).predict(ROWS), model.predict(ROWS))
    with pytest.raises(ParameterError, match="which is not a file"):
        pickle.loads(pickle.dumps(model)).predict(ROWS)  # noqa: S301  what is open is in no copy
    moved.write_bytes(convolution(FILTERS + 1, 6))
    with pytest.raises(CheckpointError, match="digest"):
        op.load(saved, model=str(moved))
    moved.rename(net)
    with pytest.raises(CheckpointError, match="digest"):
        op.load(saved)
    with raises(ParameterError, remedy="Pass the original network"):
        model.predict(ROWS)  # the file was altered while the model was in use


def test_fixed_batch_size_is_padded() -> None:
    for rows in (1, 4, 64):
        Z = ONNXFeatures(convolution(FILTERS, 6, rows)).transform(ROWS)
        assert_allclose(Z, expected("onnx", ROWS), atol=1e-5)


def test_leading_axes_of_length_one_are_ignored() -> None:
    one = convolution(FILTERS[:, :1], 6)
    grey = PICTURES[:, 0]
    wanted = ONNXFeatures(one).transform(grey.reshape(30, -1))
    for feature, rows in (
        (ONNXFeatures(one), grey),
        (ONNXFeatures(one), grey[:, None, None]),
        (ONNXFeatures(one, shape=(6, 6)), grey.reshape(30, -1)),
    ):
        assert_array_equal(feature.learn(rows).transform(rows), wanted)
        assert feature.shape_ == (1, 6, 6)
        assert_array_equal(feature.transform(grey[:, None]), wanted)


def test_open_shapes_require_shape() -> None:
    free = ONNXFeatures(convolution(FILTERS, None), shape=(2, 6, 6))
    assert_allclose(free.transform(ROWS), expected("onnx", ROWS), atol=1e-5)
    assert_allclose(
        ONNXFeatures(convolution(FILTERS, None)).transform(PICTURES), free.transform(ROWS)
    )
    with raises(ParameterError, argument="shape", got="none for 72 columns"):
        ONNXFeatures(convolution(FILTERS, None)).learn(ROWS)
    with raises(ParameterError, argument="shape", remedy="Omit it, or pass"):
        ONNXFeatures(convolution(FILTERS, 6), shape=(6, 6, 2)).learn(ROWS)
    assert ONNXFeatures(doubling("d")).transform(ROWS).shape == (30, 72)  # type: ignore[arg-type]


def test_rows_are_converted_to_input_type() -> None:
    whole = rng.integers(0, 100, (5, 3))
    for kind in (TensorProto.INT64, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.INT32):
        Z = ONNXFeatures(doubling(3, kind=kind)).transform(whole)
        assert_array_equal(Z, 2 * whole)
        assert Z.dtype == (np.float64 if kind == TensorProto.DOUBLE else np.float32)
    feature = ONNXFeatures(doubling(3, kind=TensorProto.INT32))
    with raises(TypeMismatchError, row=1, column=2, got="0.5"):
        feature.learn([[0, 0, 0], [1, 1, 0.5]])
    with raises(NumericalError, row=1):
        ONNXFeatures(doubling(3, kind=TensorProto.FLOAT16)).learn([[0, 0, 0], [1, 1, 1e5]])


def two() -> bytes:
    nodes = [helper.make_node("Abs", ["x"], ["a"]), helper.make_node("Neg", ["x"], ["b"])]
    return onnx_bytes(nodes, {"x": ["n", 2]}, {"a": ["n", 2], "b": ["n", 2]})


def test_output_is_selected_by_name() -> None:
    assert_array_equal(ONNXFeatures(two(), output="b").transform([[1.0, -2.0]]), [[-1.0, 2.0]])
    with pytest.raises(ParameterError, match=r"'a' \(tensor\(float\)\), 'b' .*, got none"):
        ONNXFeatures(two()).learn([[1.0, 2.0]])
    with raises(ParameterError, argument="output", got="'c'"):
        ONNXFeatures(two(), output="c").learn([[1.0, 2.0]])
    with raises(ParameterError, argument="output", got="['b']"):
        ONNXFeatures(two(), output=["b"]).learn([[1.0, 2.0]])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("model", "error", "fields"),
    [
        (3, TypeMismatchError, {"argument": "model", "got": "int"}),
        ("nowhere.onnx", ParameterError, {"argument": "model", "got": "'nowhere.onnx'"}),
        ("/dev/null", ParameterError, {"argument": "model", "got": "'/dev/null'"}),
        (b"no network", ParameterError, {"argument": "model", "remedy": "Export it again, or"}),
        (
            onnx_bytes([helper.make_node("Add", ["x", "y"], ["z"])],
                    {"x": ["n", 2], "y": ["n", 2]}, {"z": ["n", 2]}),
            ParameterError, {"remedy": "Export it with this"},
        ),
        (
            onnx_bytes([helper.make_node("ReduceSum", ["x"], ["z"], keepdims=0)],
                    {"x": ["n", 2]}, {"z": []}),
            ShapeError, {"got": "an output of shape ()"},
        ),
        (
            onnx_bytes([helper.make_node("Cast", ["x"], ["f"], to=TensorProto.FLOAT),
                     helper.make_node("ReduceMean", ["f"], ["m"], axes=[0]),
                     helper.make_node("Sub", ["f", "m"], ["z"])],
                    {"x": ["n", 2]}, {"z": ["n", 2]}, kind=TensorProto.INT64,
                    gives=TensorProto.FLOAT),
            ParameterError, {"got": "other outputs when evaluated with another row"},
        ),
        (doubling(3), ShapeError, {"got": "2 columns"}),
        (
            doubling(2, kind=TensorProto.STRING),
            ParameterError,
            {"argument": "model", "remedy": "Type Error: Type 'tensor(string)'"},
        ),
    ],
)  # fmt: skip
def test_invalid_files_are_refused(model: Any, error: Any, fields: dict[str, Any]) -> None:
    with raises(error, **fields):
        ONNXFeatures(model).learn([[1.0, 2.0]])


def test_missing_providers_are_refused() -> None:
    for providers in (["Moon"], "CPUExecutionProvider", 3):
        with pytest.raises(ParameterError, match=r"CPUExecutionProvider.* got .*(Moon|CPU|3)"):
            ONNXFeatures(two(), output="a", providers=providers).learn([[1.0, 2.0]])  # type: ignore[arg-type]


# -- continual learning ----------------------------------------------------------------------------


def test_pretrained_features_generalise_to_new_classes() -> None:
    X, y = load_digits(return_X_y=True)
    X = X / 16.0
    torch.manual_seed(0)
    net = torch.nn.Sequential(
        torch.nn.Conv2d(1, 20, 3), torch.nn.ReLU(), torch.nn.MaxPool2d(2), torch.nn.Flatten(),
        torch.nn.Linear(180, 5),
    )  # fmt: skip
    old = y[:1000] < 5
    rows = torch.tensor(X[:1000][old].reshape(-1, 1, 8, 8), dtype=torch.float32)
    labels, weights = torch.tensor(y[:1000][old]), list(net.parameters())
    for _ in range(30):
        loss = torch.nn.functional.cross_entropy(net(rows), labels)
        with torch.no_grad():
            for each, slope in zip(weights, torch.autograd.grad(loss, weights), strict=True):
                each.sub_(0.3 * slope)
    seeing = TorchFeatures(net, layer="3", shape=(1, 8, 8))
    model, at_once = (op.Pipeline(seeing, op.RLSClassifier(ridge=1.0)) for _ in range(2))
    for task in op.stream.experiences(X[:1300], y[:1300], X[1300:], y[1300:]):
        model.partial_fit(task.X, task.y)
    at_once.partial_fit(X[:1300], y[:1300])
    scores, expected = (
        one.decision_function(X[1300:])[:, np.argsort(one.classes_)] for one in (model, at_once)
    )
    assert_allclose(scores, expected, atol=1e-4)  # no order of classes makes it forget
    assert model.score(X[1300:], y[1300:]) > 0.9
