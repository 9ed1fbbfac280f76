"""A loaded learner equals the saved one, and malicious files are refused."""

import inspect
import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import BaseEstimator, clone, is_classifier

from onepass import features, learners, memory
from onepass.errors import CheckpointError
from onepass.features.pipeline import Pipeline
from onepass.learners.estimator import Regressor
from onepass.serialization import archive, codec
from onepass.serialization.codec import from_state, state_dict
from onepass.serialization.models import describe, load, save
from onepass.types import Array, Floats
from onepass.validation.table import Table
from onnx_files import doubling
from raising import raises
from sampling import sample

rng = np.random.default_rng(0)
X = rng.normal(size=(60, 120))
Y = X[:, :2] @ [1.0, -2.0] + 0.1 * rng.normal(size=60)


@dataclass(frozen=True, eq=False)
class State:
    """A registered dataclass."""

    Q: Any
    more: Any = None
    rank: int = field(init=False, default=0)


class NoisyLearner(Regressor):
    """A learner with attributes of every type: generator, dataclass, function, nested lists."""

    def __init__(self, feature_map: Any = None, seed: Any = 0, note: Any = ()) -> None:
        self.feature_map = feature_map
        self.seed = seed
        self.note = note

    def _start(self, d: int, c: int) -> None:
        self.weights_ = np.zeros((d, c), order="F")
        self.random_ = np.random.default_rng(self.seed)
        self.memory_ = State(np.eye(d), more=[State(np.zeros(0)), {"@": (1, None)}])
        self._cache = object()

    def _learn(self, X: Floats, Y: Floats, s: Floats | None, known: Array | None) -> Floats:
        del s, known
        predictions = self._scores(X)
        self.weights_ = self.weights_ + 0.01 * X.T @ (Y - predictions)
        self.weights_ += 0.01 * self.random_.normal(size=self.weights_.shape)
        return predictions

    def _initial_prediction(self, row: Any) -> float:
        del row
        return 0.0

    def _scores(self, X: Floats) -> Floats:
        return (X if self.feature_map is None else self.feature_map(X)) @ self.weights_

    def _widen(self, d: int) -> None:
        raise NotImplementedError

    @property
    def norm_(self) -> float:
        return float(np.linalg.norm(self.weights_))


class Steps(BaseEstimator):  # type: ignore[misc]
    """An estimator with variable arguments, like a pipeline."""

    def __init__(self, *steps: Any, name: str = "") -> None:
        self.steps = steps
        self.name = name


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "m.onepass"


@pytest.fixture(autouse=True)
def _registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Register the classes of this module."""
    monkeypatch.setattr(codec, "_REGISTRY", codec.class_registry())
    codec.register(codec.Role.LEARNER, NoisyLearner, Steps)
    codec.register(codec.Role.MEMORY, State)


def reloaded(thing: Any, path: Path, **replacements: Callable[..., Any]) -> Any:
    save(thing, path)
    return load(path, **replacements)


def fitted() -> NoisyLearner:
    return NoisyLearner().partial_fit(X[:30], Y[:30])


def double(X: Floats) -> Floats:
    return 2 * X


def edit_file(path: Path, edit: Callable[[Any], Any]) -> None:
    """Edit the tree of a file and write it with a valid digest."""
    tree = archive.read(path)
    edit(tree)
    archive.write(path, tree, kind="learner")


def learner_classes() -> list[Any]:
    return [getattr(learners, name) for name in learners.__all__]


# -- round trips -------------------------------------------------------------------------------


@pytest.mark.parametrize("cls", learner_classes(), ids=lambda cls: cls.__name__)
def test_loaded_learner_predicts_and_learns_identically(cls: Any, path: Path) -> None:
    y = np.where(Y > 0, "up", "down") if is_classifier(cls()) else Y
    model = cls().partial_fit(X[:30], y[:30])
    twin = reloaded(model, path)
    for rows in (slice(30, 45), slice(45, 60)):
        np.testing.assert_array_equal(model.predict(X), twin.predict(X))
        predictions = model.test_then_train(X[rows], y[rows])
        np.testing.assert_array_equal(predictions, twin.test_then_train(X[rows], y[rows]))
    assert twin.nbytes == model.nbytes
    assert repr(twin) == repr(model)


@pytest.mark.parametrize("cls", learner_classes(), ids=lambda cls: cls.__name__)
def test_unfitted_learner_is_saved(cls: Any, path: Path) -> None:
    twin = reloaded(cls(), path)
    assert type(twin) is cls
    assert not twin.__sklearn_is_fitted__()
    assert describe(path)["rows_seen"] is None


def test_attributes_of_all_types_are_restored(path: Path) -> None:
    model = NoisyLearner(note=[(1, 2.5), {"@": "dict", "$": None}, np.arange(3)])
    model.partial_fit(X[:30], Y[:30])
    twin = reloaded(model, path)
    assert twin.note[:2] == [(1, 2.5), {"@": "dict", "$": None}]
    np.testing.assert_array_equal(twin.memory_.Q, model.memory_.Q)
    assert twin.memory_.more[1] == {"@": (1, None)}
    assert twin.weights_.strides == model.weights_.strides
    assert not hasattr(twin, "_cache")
    for one in (model, twin):
        one.partial_fit(X[30:], Y[30:])
    np.testing.assert_array_equal(twin.weights_, model.weights_)


def _feature(cls: Any) -> Any:
    """An instance of a class; one that applies a network has two columns."""
    if cls.__name__ == "TorchFeatures":
        return cls(pytest.importorskip("torch").nn.Linear(2, 3))
    return cls(doubling(2)) if cls.__name__ == "ONNXFeatures" else cls()


@pytest.mark.parametrize("cls", [getattr(features, name) for name in features.__all__])
def test_transformers(cls: Any, path: Path) -> None:
    rows = [{"a": "x", "b": 1.5, "@": "y"}, {"a": None, "b": None, "@": "z"}] * 3
    table: Any = Table.from_rows(rows)
    if cls.__name__ != "Encode":
        table = np.array([[1.5, 2.0], [0.5, 3.0]] * 3)
    if cls.__name__ == "RandomConvolution":  # pictures
        table = np.random.default_rng(0).random((6, 144))
    one, y = _feature(cls), np.arange(6.0)
    one.learn(table, y)
    twin = reloaded(one, path, **{name: getattr(one, name) for name in cls._outside})
    np.testing.assert_array_equal(one.transform(table), twin.transform(table))
    np.testing.assert_array_equal(one.learn_transform(table, y), twin.learn_transform(table, y))


def test_loaded_pipeline_continues_identically(path: Path) -> None:
    rows = [{"a": "xyz"[i % 3], "b": None if i % 5 == 0 else float(i), "@": "?"} for i in range(40)]
    y = np.sin(np.arange(40.0))
    steps = (features.Encode(), features.Impute(), features.Scale(), learners.RLSRegressor())
    model = Pipeline(*steps)
    assert repr(reloaded(model, path)) == repr(model)
    twin = reloaded(model.partial_fit(rows[:20], y[:20]), path)
    predictions = model.test_then_train([*rows[20:], {"a": "new"}], [*y[20:], 1.0])
    expected = twin.test_then_train([*rows[20:], {"a": "new"}], [*y[20:], 1.0])
    np.testing.assert_array_equal(predictions, expected)
    np.testing.assert_array_equal(model.predict(rows), twin.predict(rows))
    assert model.predict_one(rows[3]) == twin.predict_one(rows[3])
    description = describe(path)
    assert (description["class"], description["rows_seen"], description["features"]) == (
        "Pipeline",
        20,
        3,
    )
    assert description["parameters"]["steps"][2] == {
        "class": "Scale",
        "parameters": {"with_mean": True, "freeze_after": None},
    }


@pytest.mark.parametrize("spec", [memory.Principal(3), memory.SquareRoot(np.eye(2))])
def test_memories(spec: Any, path: Path) -> None:
    assert repr(reloaded(spec, path)) == repr(spec)


def test_constructor_with_variable_arguments(path: Path) -> None:
    twin = reloaded(Steps(NoisyLearner(seed=4), memory.Principal(2), name="two"), path)
    assert (twin.name, twin.steps[0].seed, twin.steps[1]) == ("two", 4, memory.Principal(2))
    first = describe(path)["parameters"]["steps"][0]
    assert (first["class"], first["parameters"]["seed"]) == ("NoisyLearner", 4)


@pytest.mark.parametrize("name", ["PCG64", "PCG64DXSM", "SFC64", "MT19937", "Philox"])
def test_random_generators_draw_and_spawn_identically(name: str, path: Path) -> None:
    seed = np.random.Generator(getattr(np.random, name)(5))
    seed.integers(9, size=3, dtype=np.int32)
    seed.spawn(1)
    twin = reloaded(NoisyLearner(seed=seed), path).seed
    for one, other in ((seed, twin), (seed.spawn(1)[0], twin.spawn(1)[0])):
        np.testing.assert_array_equal(one.integers(99, size=7), other.integers(99, size=7))


def test_saving_does_not_change_a_learner_and_is_deterministic(path: Path) -> None:
    model = fitted()
    state = model.random_.bit_generator.state
    save(model, path)
    first = path.read_bytes()
    save(load(path), path)
    assert path.read_bytes() == first
    assert model.random_.bit_generator.state == state


# -- functions -----------------------------------------------------------------------------------


def test_functions_are_passed_to_load(path: Path) -> None:
    model = NoisyLearner(feature_map=double).partial_fit(X, Y)
    twin = reloaded(model, path, feature_map=double)
    np.testing.assert_array_equal(model.predict(X), twin.predict(X))
    assert describe(path)["functions"] == ["feature_map"]
    assert describe(path)["parameters"]["feature_map"].endswith("double")


def test_replacement_by_name_or_path(path: Path) -> None:
    both = Steps(NoisyLearner(feature_map=double), NoisyLearner(feature_map=abs))
    twin = reloaded(both, path, feature_map=double, **{"steps.1.feature_map": abs})
    assert [step.feature_map for step in twin.steps] == [double, abs]
    assert [step.feature_map for step in load(path, feature_map=abs).steps] == [abs, abs]


def test_missing_function_is_an_error(path: Path) -> None:
    save(Steps(NoisyLearner(feature_map=double)), path)
    with raises(CheckpointError, got="no replacement", remedy="feature_map="):
        load(path)
    with raises(CheckpointError, got="a int"):
        load(path, feature_map=3)  # type: ignore[arg-type]
    with raises(CheckpointError, got="'map', which was not a function"):
        load(path, feature_map=double, map=double)


# -- unsupported objects -------------------------------------------------------------------------


class Unregistered(NoisyLearner):
    """A class that is not registered."""


def with_attributes(**attributes: Any) -> NoisyLearner:
    model = fitted()
    for name, value in attributes.items():
        object.__setattr__(model, name, value)
    return model


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: 3, "the saved object must be of a class .* got int"),
        (lambda: NoisyLearner, "the saved object must be of a class .* got ABCMeta"),
        (
            Unregistered,
            "the saved object must be .* got Unregistered. Save a learner, Pipeline",
        ),
        (
            lambda: with_attributes(memory_=[1, Unregistered()]),
            "`memory_.1` must be .* got Unregistered",
        ),
        (
            lambda: with_attributes(memory_=State(NoisyLearner())),
            "`memory_.Q` must be of a class that model files can contain here",
        ),
        (
            lambda: with_attributes(memory_=State(object())),
            "`memory_.Q` must be None, .* got object",
        ),
        (lambda: with_attributes(memory_=State({1: 2})), "`memory_.Q` must be None, .* the key 1"),
        (lambda: with_attributes(call_=double), "`call_` must be None, .* got function"),
        (lambda: with_attributes(random_=np.random.RandomState(0)), "`random_` must be None"),
        (
            lambda: with_attributes(weights_=np.array([1.0, np.nan])),
            "`weights_` must not contain NaN",
        ),
        (lambda: with_attributes(rate_=math.nan), "`rate_` must not contain NaN"),
        (
            lambda: with_attributes(memory_=State(np.float32("nan"))),
            "`memory_.Q` must not contain NaN",
        ),
    ],
)
def test_unsupported_objects_are_not_saved(make: Callable[[], Any], words: str, path: Path) -> None:
    save(NoisyLearner(), path)
    before = path.read_bytes()
    with pytest.raises(CheckpointError, match=f"m.onepass: {words}"):
        save(make(), path)
    assert path.read_bytes() == before


def test_infinity_and_nan_arguments_are_saved(path: Path) -> None:
    twin = reloaded(with_attributes(weights_=np.array([math.inf]), note=(math.nan,)), path)
    assert twin.weights_[0] == math.inf
    assert math.isnan(twin.note[0])


# -- untrusted files -----------------------------------------------------------------------------


def put(*paths: Any) -> Callable[[Any], None]:
    *way, last, value = paths

    def edit(tree: Any) -> None:
        for place in way:
            tree = tree[place]
        tree[last] = value

    return edit


# NumPy before 2 casts numbers out of range, and warns; the resulting state is then refused
numpy_casts = pytest.mark.filterwarnings("ignore::DeprecationWarning:onepass.serialization.codec")

FUNCTION = {"@": "function", "name": "os.system"}


@numpy_casts
@pytest.mark.parametrize(
    ("edit", "got"),
    [
        (put("@", "Popen"), "a damaged one: the object has the unexpected class 'Popen'"),
        (put("@", "os.system"), "a damaged one: the object has the unexpected class 'os.system'"),
        (put("@", "Learner"), "a damaged one: the object has the unexpected class 'Learner'"),
        (put("@", "function"), "a damaged one: the object has the unexpected class 'function'"),
        (put("@", 3), "a damaged one: the object has an invalid mark"),
        (put("@", np.arange(3)), "a damaged one: the object has an invalid mark"),
        (put("@", "State"), "a damaged one: State has no 'feature_map'"),
        (put("other", 1), "a damaged one: NoisyLearner has no 'other'"),
        (put("predict", 1), "a damaged one: NoisyLearner has no 'predict'"),
        (put("__class__", 1), "a damaged one: NoisyLearner has no '__class__'"),
        (put("__dict__", {}), "a damaged one: NoisyLearner has no '__dict__'"),
        (put("_cache_", 1), "a damaged one: NoisyLearner has no '_cache_'"),
        (put("norm_", 1.0), "a damaged one: NoisyLearner has no 'norm_'"),
        (put("a b_", 1), "a damaged one: NoisyLearner has no 'a b_'"),
        (put("memory_", "@", "NoisyLearner"), "a damaged one: NoisyLearner has no 'Q'"),
        (put("memory_", "rank", 3), "a damaged one: State has no 'rank'"),
        (
            put("memory_", "Q", {"@": "NoisyLearner"}),
            "a damaged one: `memory_.Q` has the unexpected class 'NoisyLearner'",
        ),
        (
            put("memory_", "more", [FUNCTION]),
            "a damaged one: `memory_.more.0` has the unexpected class",
        ),
        (put("weights_", FUNCTION), "a damaged one: `weights_` has the unexpected class"),
        (put("note", [FUNCTION]), "a damaged one: `note.0` has the unexpected class"),
        (put("note", {"@": "dict"}), "a damaged one: `note` is not a dict"),
        (put("note", {"@": "dict", "items": 3}), "a damaged one: `note` is not a dict"),
        (put("memory_", {"@": "State"}), "a damaged one: `memory_` is not a valid State"),
        (
            put("memory_", {"@": "Principal", "m": -3}),
            "a damaged one: `memory_` is not a valid Principal",
        ),
        (put("weights_", np.array([np.nan])), "a damaged one: `weights_` contains NaN"),
        (put("memory_", "Q", math.nan), "a damaged one: `memory_.Q` contains NaN"),
        (put("random_", {"@": "generator"}), "a damaged one: `random_` is not a valid generator"),
        (put("random_", "state", 3), "a damaged one: `random_` is not a valid generator"),
        (
            put("random_", "state", "bits", "bit_generator", "Random"),
            "a damaged one: `random_` is not a valid generator",
        ),
        (
            put("random_", "state", "bits", "state", {}),
            "a damaged one: `random_` is not a valid generator",
        ),
        (
            put("random_", "state", "bits", "state", "state", -1),
            "a damaged one: `random_` is not a valid generator",
        ),
        (
            put("random_", "state", "seeds", "pool_size", 10**12),
            "a damaged one: `random_` is not a valid generator",
        ),
        (
            put("random_", "state", "bits", "uinteger", 1.5),
            "a damaged one: `random_` is not a valid generator",
        ),
        (
            put("random_", "state", "seeds", "extra", 1),
            "a damaged one: `random_` is not a valid generator",
        ),
        (
            put("random_", "state", "seeds", "spawn_key", "x"),
            "a damaged one: `random_` is not a valid generator",
        ),
    ],
)
def test_malicious_trees_are_refused(edit: Any, got: str, path: Path) -> None:
    save(fitted(), path)
    edit_file(path, edit)
    with raises(CheckpointError, where="m.onepass", got=got):
        load(path)


JUNK = [
    *(None, 3, -1, 1.5, math.nan, 2**70, True, "x", "@", "", [], {}, (), [[]]),
    *(np.zeros(0), np.zeros((2, 2)), np.array(["a"]), np.array([None])),
    *({"@": name} for name in ("dict", "function", "generator", "Span", "RLSRegressor", "?")),
]


def paths(tree: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield place
    if isinstance(tree, (dict, list, tuple)):
        for key, part in tree.items() if isinstance(tree, dict) else enumerate(tree):
            yield from paths(part, (*place, key))


def replaced(tree: Any, place: tuple[Any, ...], by: Any) -> Any:
    if not place:
        return by
    parts = dict(tree.items() if isinstance(tree, dict) else enumerate(tree))
    parts[place[0]] = replaced(parts[place[0]], place[1:], by)
    return parts if isinstance(tree, dict) else type(tree)(parts.values())


@numpy_casts
@pytest.mark.parametrize("kind", sample(["noisy", "rls", "pipeline"], 1, "random damage"))
def test_random_damage_loads_or_raises_checkpoint_error(kind: str) -> None:
    model: Any = learners.RLSRegressor(ridge=0.0).partial_fit(X[:3, :4], Y[:3])
    if kind == "noisy":
        model = fitted()
    elif kind == "pipeline":
        model = Pipeline(features.Encode(), learners.RLSRegressor())
        model.partial_fit([{"a": "x", "b": 1.0}], [1.0])
    tree = state_dict(model, "f")
    refused = 0
    for place in paths(tree):
        for junk in JUNK:
            try:
                from_state(replaced(tree, place, junk), "f")
            except CheckpointError:
                refused += 1
    assert refused > len(JUNK)


@pytest.mark.parametrize(
    ("place", "by"),
    [
        *((("learner_",), junk) for junk in (3, None, [1, 2], {"@": "Encode"})),
        *((("features_",), junk) for junk in ("ab", None, {}, [{"@": "RLSRegressor"}])),
        (("learner_", "rows_seen_"), "x"),
        (("features_", 0, "n_features_in_"), -1),
    ],
)
def test_pipeline_with_inconsistent_attributes_is_refused(place: tuple[Any, ...], by: Any) -> None:
    model = Pipeline(features.Encode(), learners.RLSRegressor())
    tree = state_dict(model.partial_fit([{"a": "x", "b": 1.0}], [1.0]), "f")
    with raises(CheckpointError, got="a damaged one"):
        from_state(replaced(tree, place, by), "f")
    for part in ("features_", "learner_"):
        with raises(
            CheckpointError,
            got="a damaged one: the object has inconsistent attributes for Pipeline",
        ):
            from_state({key: value for key, value in tree.items() if key != part}, "f")


@pytest.mark.parametrize("steps", [3, "ab", None, np.arange(2)])
def test_steps_must_be_a_list(steps: Any, path: Path) -> None:
    save(Steps(), path)
    edit_file(path, put("steps", steps))
    with raises(CheckpointError, got="a damaged one: `steps` is not a list"):
        load(path)


@pytest.mark.parametrize(("name", "position"), [("MT19937", 625), ("Philox", 5)])
def test_generator_position_beyond_its_buffer_is_refused(name: str, position: int) -> None:
    tree = state_dict(np.random.Generator(getattr(np.random, name)(5)), "f")
    state = tree["state"]
    for invalid in (position, -1, 2**40, True, 1.0):
        if name == "MT19937":
            state["bits"]["state"]["pos"] = invalid
        else:
            state["bits"]["buffer_pos"] = invalid
        with pytest.raises(CheckpointError, match=f"not a valid generator: {name}"):
            from_state(tree, "f")


@pytest.mark.parametrize("tree", [None, 3, [], {}, {"a": 1}, [{"@": "NoisyLearner"}]])
def test_file_without_a_learner_is_refused(tree: Any, path: Path) -> None:
    archive.write(path, tree, kind="learner")
    for read in (load, describe):
        with raises(CheckpointError, got="a damaged one: it does not contain a learner"):
            read(path)
    archive.write(path, tree, kind="tree")
    for read in (load, describe):
        with pytest.raises(CheckpointError, match=r"does not contain a learner|got a tree"):
            read(path)


def test_argument_missing_in_file_takes_default(path: Path) -> None:
    save(NoisyLearner(seed=3), path)
    edit_file(path, lambda tree: tree.pop("seed"))
    assert load(path).seed == 0


# -- the class registry and descriptions of files ---------------------------------------------


def test_every_public_class_is_registered() -> None:
    found = codec.class_registry()
    for package in (learners, features, memory):
        for name in package.__all__:
            assert found[name].cls is getattr(package, name)
        for cls in getattr(package, "STATES", ()):
            assert found[cls.__name__].cls is cls


def test_arguments_of_registered_classes_are_attributes() -> None:
    for entry in codec.class_registry().values():
        if entry.is_estimator and entry.varargs is None:
            parameters = inspect.signature(entry.cls).parameters.values()
            one = entry.cls(*[None for each in parameters if each.default is each.empty])
            assert set(entry.arguments) == set(clone(one).get_params(deep=False))


def test_describe_lists_the_content(path: Path) -> None:
    note = [np.arange(3), np.zeros(99), math.inf, np.datetime64("2020-01-01"), {"@": 1}]
    model = NoisyLearner(seed=7, note=note).partial_fit(X[:30], Y[:30])
    save(model, path)
    description = describe(path)
    assert description.pop("sha256") == archive.contents(path).sha256
    assert description.pop("version")
    shown = [[0, 1, 2], {"dtype": "float64", "shape": [99]}, "inf", "2020-01-01", {"@": 1}]
    assert description == {
        "class": "NoisyLearner",
        "parameters": {"feature_map": None, "seed": 7, "note": shown},
        "functions": [],
        "rows_seen": 30,
        "features": 120,
        "columns": {},
        "bytes": path.stat().st_size,
        "format": 1,
    }
    json.dumps(description, allow_nan=False)


def test_describe_does_not_expand_empty_arrays(path: Path) -> None:
    save(NoisyLearner(seed=np.empty((10**9, 0))), path)
    shown = describe(path)["parameters"]["seed"]
    assert shown == {"dtype": "float64", "shape": [1_000_000_000, 0]}


def test_describe_constructs_no_learner(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(Steps(memory.Principal(2), fitted()), path)

    def never(*_: object, **__: object) -> None:
        raise AssertionError

    monkeypatch.setattr(NoisyLearner, "__init__", never)
    description = describe(path)
    assert description["rows_seen"] == 30
    assert description["parameters"]["steps"][0]["class"] == "Principal"
    assert description["parameters"]["steps"][0]["parameters"]["m"] == 2
