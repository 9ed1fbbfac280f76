"""Persist: a learner that was loaded is the learner that was saved, and files cannot lie."""

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

rng = np.random.default_rng(0)
X = rng.normal(size=(60, 120))
Y = X[:, :2] @ [1.0, -2.0] + 0.1 * rng.normal(size=60)


@dataclass(frozen=True, eq=False)
class Past:
    """What a wanderer remembers."""

    Q: Any
    more: Any = None
    rank: int = field(init=False, default=0)


class Wanderer(Regressor):
    """A learner with a part of every kind: a generator, a state, a function, nested lists."""

    def __init__(self, feature_map: Any = None, seed: Any = 0, note: Any = ()) -> None:
        self.feature_map = feature_map
        self.seed = seed
        self.note = note

    def _start(self, d: int, c: int) -> None:
        self.weights_ = np.zeros((d, c), order="F")
        self.random_ = np.random.default_rng(self.seed)
        self.memory_ = Past(np.eye(d), more=[Past(np.zeros(0)), {"@": (1, None)}])
        self._cache = object()

    def _learn(self, X: Floats, Y: Floats, s: Floats | None, class_mask: Array | None) -> Floats:
        del s, class_mask
        said = self._scores(X)
        self.weights_ = self.weights_ + 0.01 * X.T @ (Y - said)
        self.weights_ += 0.01 * self.random_.normal(size=self.weights_.shape)
        return said

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
    """Constructed from any number of steps, as a pipeline is."""

    def __init__(self, *steps: Any, name: str = "") -> None:
        self.steps = steps
        self.name = name


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "m.onepass"


@pytest.fixture(autouse=True)
def _listed(monkeypatch: pytest.MonkeyPatch) -> None:
    """To be saved, a class need only be registered."""
    monkeypatch.setattr(codec, "_REGISTRY", codec.class_registry())
    codec.register(codec.Role.LEARNER, Wanderer, Steps)
    codec.register(codec.Role.MEMORY, Past)


def again(thing: Any, path: Path, **replacements: Callable[..., Any]) -> Any:
    save(thing, path)
    return load(path, **replacements)


def wandered() -> Wanderer:
    return Wanderer().partial_fit(X[:30], Y[:30])


def double(X: Floats) -> Floats:
    return 2 * X


def edited(path: Path, edit: Callable[[Any], Any]) -> None:
    """Write the file again, with another tree and all digests right."""
    tree = archive.read(path)
    edit(tree)
    archive.write(path, tree, kind="learner")


def listed() -> list[Any]:
    return [getattr(learners, name) for name in learners.__all__]


# -- as it was ---------------------------------------------------------------------------------


@pytest.mark.parametrize("cls", listed(), ids=lambda cls: cls.__name__)
def test_a_learner_says_and_goes_on_learning_the_same_to_the_last_bit(cls: Any, path: Path) -> None:
    y = np.where(Y > 0, "up", "down") if is_classifier(cls()) else Y
    model = cls().partial_fit(X[:30], y[:30])
    twin = again(model, path)
    for rows in (slice(30, 45), slice(45, 60)):
        np.testing.assert_array_equal(model.predict(X), twin.predict(X))
        said = model.test_then_train(X[rows], y[rows])
        np.testing.assert_array_equal(said, twin.test_then_train(X[rows], y[rows]))
    assert twin.nbytes == model.nbytes
    assert repr(twin) == repr(model)


@pytest.mark.parametrize("cls", listed(), ids=lambda cls: cls.__name__)
def test_a_learner_that_learned_nothing(cls: Any, path: Path) -> None:
    twin = again(cls(), path)
    assert type(twin) is cls
    assert not twin.__sklearn_is_fitted__()
    assert describe(path)["rows_seen"] is None


def test_a_learner_with_every_kind_of_part(path: Path) -> None:
    model = Wanderer(note=[(1, 2.5), {"@": "dict", "$": None}, np.arange(3)])
    model.partial_fit(X[:30], Y[:30])
    twin = again(model, path)
    assert twin.note[:2] == [(1, 2.5), {"@": "dict", "$": None}]
    np.testing.assert_array_equal(twin.memory_.Q, model.memory_.Q)
    assert twin.memory_.more[1] == {"@": (1, None)}
    assert twin.weights_.strides == model.weights_.strides
    assert not hasattr(twin, "_cache")
    for one in (model, twin):
        one.partial_fit(X[30:], Y[30:])
    np.testing.assert_array_equal(twin.weights_, model.weights_)


def _feature(cls: Any) -> Any:
    """One of a class, of two columns where it asks a network."""
    if cls.__name__ == "TorchFeatures":
        return cls(pytest.importorskip("torch").nn.Linear(2, 3))
    return cls(doubling(2)) if cls.__name__ == "ONNXFeatures" else cls()


@pytest.mark.parametrize("cls", [getattr(features, name) for name in features.__all__])
def test_features(cls: Any, path: Path) -> None:
    rows = [{"a": "x", "b": 1.5, "@": "y"}, {"a": None, "b": None, "@": "z"}] * 3
    table: Any = Table.from_rows(rows)
    if cls.__name__ != "Encode":
        table = np.array([[1.5, 2.0], [0.5, 3.0]] * 3)
    if cls.__name__ == "RandomConvolution":  # pictures
        table = np.random.default_rng(0).random((6, 144))
    one = _feature(cls)
    one.learn(table)
    twin = again(one, path, **{name: getattr(one, name) for name in cls.outside})
    np.testing.assert_array_equal(one.transform(table), twin.transform(table))
    np.testing.assert_array_equal(one.learn_transform(table), twin.learn_transform(table))


def test_a_pipeline_is_one_thing(path: Path) -> None:
    rows = [{"a": "xyz"[i % 3], "b": None if i % 5 == 0 else float(i), "@": "?"} for i in range(40)]
    y = np.sin(np.arange(40.0))
    steps = (features.Encode(), features.Impute(), features.Scale(), learners.RLSRegressor())
    model = Pipeline(*steps)
    assert repr(again(model, path)) == repr(model)
    twin = again(model.partial_fit(rows[:20], y[:20]), path)
    said = model.test_then_train([*rows[20:], {"a": "new"}], [*y[20:], 1.0])
    heard = twin.test_then_train([*rows[20:], {"a": "new"}], [*y[20:], 1.0])
    np.testing.assert_array_equal(said, heard)
    np.testing.assert_array_equal(model.predict(rows), twin.predict(rows))
    assert model.predict_one(rows[3]) == twin.predict_one(rows[3])
    told = describe(path)
    assert (told["class"], told["rows_seen"], told["features"]) == ("Pipeline", 20, 3)
    assert told["parameters"]["steps"][2] == {"class": "Scale", "parameters": {"with_mean": True}}


@pytest.mark.parametrize("spec", [memory.Principal(3), memory.SquareRoot(np.eye(2))])
def test_memories(spec: Any, path: Path) -> None:
    assert repr(again(spec, path)) == repr(spec)


def test_a_constructor_of_any_number_of_steps(path: Path) -> None:
    twin = again(Steps(Wanderer(seed=4), memory.Principal(2), name="two"), path)
    assert (twin.name, twin.steps[0].seed, twin.steps[1]) == ("two", 4, memory.Principal(2))
    first = describe(path)["parameters"]["steps"][0]
    assert (first["class"], first["parameters"]["seed"]) == ("Wanderer", 4)


@pytest.mark.parametrize("name", ["PCG64", "PCG64DXSM", "SFC64", "MT19937", "Philox"])
def test_random_generators_go_on_and_spawn_the_same(name: str, path: Path) -> None:
    seed = np.random.Generator(getattr(np.random, name)(5))
    seed.integers(9, size=3, dtype=np.int32)
    seed.spawn(1)
    twin = again(Wanderer(seed=seed), path).seed
    for one, other in ((seed, twin), (seed.spawn(1)[0], twin.spawn(1)[0])):
        np.testing.assert_array_equal(one.integers(99, size=7), other.integers(99, size=7))


def test_saving_changes_nothing_and_saves_the_same(path: Path) -> None:
    model = wandered()
    state = model.random_.bit_generator.state
    save(model, path)
    first = path.read_bytes()
    save(load(path), path)
    assert path.read_bytes() == first
    assert model.random_.bit_generator.state == state


# -- functions -----------------------------------------------------------------------------------


def test_functions_are_given_again(path: Path) -> None:
    model = Wanderer(feature_map=double).partial_fit(X, Y)
    twin = again(model, path, feature_map=double)
    np.testing.assert_array_equal(model.predict(X), twin.predict(X))
    assert describe(path)["functions"] == ["feature_map"]
    assert describe(path)["parameters"]["feature_map"].endswith("double")


def test_one_name_stands_for_all_and_a_place_for_one(path: Path) -> None:
    both = Steps(Wanderer(feature_map=double), Wanderer(feature_map=abs))
    twin = again(both, path, feature_map=double, **{"steps.1.feature_map": abs})
    assert [step.feature_map for step in twin.steps] == [double, abs]
    assert [step.feature_map for step in load(path, feature_map=abs).steps] == [abs, abs]


def test_a_function_that_is_missing_is_asked_for(path: Path) -> None:
    save(Steps(Wanderer(feature_map=double)), path)
    words = (
        r"`steps.0.feature_map` must be a function, .*double, .* no replacement\. .*feature_map="
    )
    with pytest.raises(CheckpointError, match=words):
        load(path)
    with pytest.raises(CheckpointError, match="got a int for it"):
        load(path, feature_map=3)  # type: ignore[arg-type]
    with pytest.raises(CheckpointError, match="got 'map', which was none"):
        load(path, feature_map=double, map=double)


# -- what no file can hold -----------------------------------------------------------------------


class Stranger(Wanderer):
    """Of a class that is on no list."""


def changed(**attributes: Any) -> Wanderer:
    model = wandered()
    for name, value in attributes.items():
        object.__setattr__(model, name, value)
    return model


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: 3, "what is saved must be a learner, .* got int"),
        (lambda: Wanderer, "what is saved must be a learner, .* got ABCMeta"),
        (Stranger, "what is saved must be .* got Stranger. Only classes that onepass lists"),
        (lambda: changed(memory_=[1, Stranger()]), "`memory_.1` must be .* got Stranger"),
        (lambda: changed(memory_=Past(Wanderer())), "`memory_.Q` must be .* in its right place"),
        (lambda: changed(memory_=Past(object())), "`memory_.Q` must be None, .* got object"),
        (lambda: changed(memory_=Past({1: 2})), "`memory_.Q` must be None, .* the key 1"),
        (lambda: changed(call_=double), "`call_` must be None, .* got function"),
        (lambda: changed(random_=np.random.RandomState(0)), "`random_` must be None"),
        (lambda: changed(weights_=np.array([1.0, np.nan])), "`weights_` must not hold nan"),
        (lambda: changed(rate_=math.nan), "`rate_` must not hold nan"),
        (lambda: changed(memory_=Past(np.float32("nan"))), "`memory_.Q` must not hold nan"),
    ],
)
def test_what_cannot_be_loaded_is_not_saved(
    make: Callable[[], Any], words: str, path: Path
) -> None:
    save(Wanderer(), path)
    before = path.read_bytes()
    with pytest.raises(CheckpointError, match=f"m.onepass: {words}"):
        save(make(), path)
    assert path.read_bytes() == before


def test_what_was_learned_cannot_hide_what_the_class_has(path: Path) -> None:
    model = wandered()
    vars(model)["norm_"] = 3.0
    with pytest.raises(CheckpointError, match="got 'norm_', which its class has already"):
        save(model, path)


def test_a_circle_is_refused(path: Path) -> None:
    parts: list[Any] = []
    parts.append(parts)
    with pytest.raises(CheckpointError, match=r"at most 100 levels, got more under `note\.0\.0`"):
        save(Wanderer(note=parts), path)


def test_infinity_and_an_argument_that_is_nan_are_no_bugs(path: Path) -> None:
    twin = again(changed(weights_=np.array([math.inf]), note=(math.nan,)), path)
    assert twin.weights_[0] == math.inf
    assert math.isnan(twin.note[0])


# -- what a stranger may send --------------------------------------------------------------------


def put(*places: Any) -> Callable[[Any], None]:
    *way, last, value = places

    def edit(tree: Any) -> None:
        for place in way:
            tree = tree[place]
        tree[last] = value

    return edit


# NumPy before 2 bends numbers to fit, and warns; the state that comes out is then refused
bending = pytest.mark.filterwarnings("ignore::DeprecationWarning:onepass.serialization.codec")

FUNCTION = {"@": "function", "name": "os.system"}


@bending
@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (put("@", "Popen"), "names 'Popen' as the whole"),
        (put("@", "os.system"), "names 'os.system' as the whole"),
        (put("@", "Learner"), "names 'Learner' as the whole"),
        (put("@", "function"), "names 'function' as the whole"),
        (put("@", 3), "the whole does not say what it is"),
        (put("@", np.arange(3)), "the whole does not say what it is"),
        (put("@", "Past"), "Past has no 'feature_map'"),
        (put("other", 1), "Wanderer has no 'other'"),
        (put("predict", 1), "Wanderer has no 'predict'"),
        (put("__class__", 1), "Wanderer has no '__class__'"),
        (put("__dict__", {}), "Wanderer has no '__dict__'"),
        (put("_cache_", 1), "Wanderer has no '_cache_'"),
        (put("norm_", 1.0), "Wanderer has no 'norm_'"),
        (put("a b_", 1), "Wanderer has no 'a b_'"),
        (put("memory_", "@", "Wanderer"), "Wanderer has no 'Q'"),
        (put("memory_", "rank", 3), "Past has no 'rank'"),
        (put("memory_", "Q", {"@": "Wanderer"}), "names 'Wanderer' as `memory_.Q`"),
        (put("memory_", "more", [FUNCTION]), "names 'function' as `memory_.more.0`"),
        (put("weights_", FUNCTION), "names 'function' as `weights_`"),
        (put("note", [FUNCTION]), "names 'function' as `note.0`"),
        (put("note", {"@": "dict"}), "`note` is no dict"),
        (put("note", {"@": "dict", "items": 3}), "`note` is no dict"),
        (put("memory_", {"@": "Past"}), "no Past as `memory_`"),
        (put("memory_", {"@": "Principal", "m": -3}), "Principal"),
        (put("weights_", np.array([np.nan])), "`weights_` holds nan"),
        (put("memory_", "Q", math.nan), "`memory_.Q` holds nan"),
        (put("random_", {"@": "generator"}), "`random_` is no generator"),
        (put("random_", "state", 3), "`random_` is no generator"),
        (put("random_", "state", "bits", "bit_generator", "Random"), "no generator"),
        (put("random_", "state", "bits", "state", {}), "no generator"),
        (put("random_", "state", "bits", "state", "state", -1), "no generator"),
        (put("random_", "state", "seeds", "pool_size", 10**12), "no generator"),
        (put("random_", "state", "seeds", "extra", 1), "no generator"),
        (put("random_", "state", "seeds", "spawn_key", "x"), "no generator"),
    ],
)
def test_hostile_trees_are_refused(edit: Any, words: str, path: Path) -> None:
    save(wandered(), path)
    edited(path, edit)
    with pytest.raises(CheckpointError, match=f"m.onepass: must be a file .*{words}"):
        load(path)


JUNK = [
    *(None, 3, -1, 1.5, math.nan, 2**70, True, "x", "@", "", [], {}, (), [[]]),
    *(np.zeros(0), np.zeros((2, 2)), np.array(["a"]), np.array([None])),
    *({"@": name} for name in ("dict", "function", "generator", "Span", "RLSRegressor", "?")),
]


def places(tree: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield place
    if isinstance(tree, (dict, list, tuple)):
        for key, part in tree.items() if isinstance(tree, dict) else enumerate(tree):
            yield from places(part, (*place, key))


def replaced(tree: Any, place: tuple[Any, ...], by: Any) -> Any:
    if not place:
        return by
    parts = dict(tree.items() if isinstance(tree, dict) else enumerate(tree))
    parts[place[0]] = replaced(parts[place[0]], place[1:], by)
    return parts if isinstance(tree, dict) else type(tree)(parts.values())


@bending
@pytest.mark.parametrize("made", ["wanderer", "rls", "pipeline"])
def test_whatever_stands_wherever_a_file_is_built_or_refused(made: str) -> None:
    model: Any = learners.RLSRegressor(ridge=0.0).partial_fit(X[:3, :4], Y[:3])
    if made == "wanderer":
        model = wandered()
    elif made == "pipeline":
        model = Pipeline(features.Encode(), learners.RLSRegressor())
        model.partial_fit([{"a": "x", "b": 1.0}], [1.0])
    tree = state_dict(model, "f")
    refused = 0
    for place in places(tree):
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
def test_a_pipeline_that_learned_something_else_is_refused_when_it_is_read(
    place: tuple[Any, ...], by: Any
) -> None:
    model = Pipeline(features.Encode(), learners.RLSRegressor())
    tree = state_dict(model.partial_fit([{"a": "x", "b": 1.0}], [1.0]), "f")
    with pytest.raises(CheckpointError, match="got a damaged one"):
        from_state(replaced(tree, place, by), "f")
    for part in ("features_", "learner_"):
        with pytest.raises(CheckpointError, match="has not learned what a Pipeline learns"):
            from_state({key: value for key, value in tree.items() if key != part}, "f")


@pytest.mark.parametrize("rest", [3, "ab", None, np.arange(2)])
def test_steps_must_be_a_list(rest: Any, path: Path) -> None:
    save(Steps(), path)
    edited(path, put("steps", rest))
    with pytest.raises(CheckpointError, match="`steps` is no list"):
        load(path)


@pytest.mark.parametrize(("name", "position"), [("MT19937", 625), ("Philox", 5)])
def test_a_generator_never_reads_beyond_its_buffer(name: str, position: int) -> None:
    tree = state_dict(np.random.Generator(getattr(np.random, name)(5)), "f")
    state = tree["state"]
    for wrong in (position, -1, 2**40, True, 1.0):
        if name == "MT19937":
            state["bits"]["state"]["pos"] = wrong
        else:
            state["bits"]["buffer_pos"] = wrong
        with pytest.raises(CheckpointError, match=f"no generator: {name}"):
            from_state(tree, "f")


@pytest.mark.parametrize("tree", [None, 3, [], {}, {"a": 1}, [{"@": "Wanderer"}]])
def test_a_file_without_a_learner_is_refused(tree: Any, path: Path) -> None:
    archive.write(path, tree, kind="learner")
    for read in (load, describe):
        with pytest.raises(CheckpointError, match="it holds no learner"):
            read(path)
    archive.write(path, tree, kind="tree")
    for read in (load, describe):
        with pytest.raises(CheckpointError, match="tree"):
            read(path)


def test_an_argument_that_the_file_is_too_old_to_have_takes_its_default(path: Path) -> None:
    save(Wanderer(seed=3), path)
    edited(path, lambda tree: tree.pop("seed"))
    assert load(path).seed == 0


# -- the catalogue, and what a file says of itself ---------------------------------------------


def test_names_are_unique_and_every_public_class_can_be_saved() -> None:
    found = codec.class_registry()
    for room in (learners, features, memory):
        for name in room.__all__:
            assert found[name].cls is getattr(room, name)
        for cls in getattr(room, "STATES", ()):
            assert found[cls.__name__].cls is cls


def test_arguments_are_attributes() -> None:
    for entry in codec.class_registry().values():
        if entry.estimates and entry.rest is None:
            one = entry.cls(*[None] * len(entry.outside))
            assert set(entry.arguments) == set(clone(one).get_params(deep=False))


def test_describe_says_what_is_in_the_file(path: Path) -> None:
    note = [np.arange(3), np.zeros(99), math.inf, np.datetime64("2020-01-01"), {"@": 1}]
    model = Wanderer(seed=7, note=note).partial_fit(X[:30], Y[:30])
    save(model, path)
    told = describe(path)
    assert told.pop("sha256") == archive.contents(path).sha256
    assert told.pop("version")
    shown = [[0, 1, 2], {"dtype": "float64", "shape": [99]}, "inf", "2020-01-01", {"@": 1}]
    assert told == {
        "class": "Wanderer",
        "parameters": {"feature_map": None, "seed": 7, "note": shown},
        "functions": [],
        "rows_seen": 30,
        "features": 120,
        "columns": {},
        "bytes": path.stat().st_size,
        "format": 1,
    }
    json.dumps(told, allow_nan=False)


def test_describe_takes_no_memory_for_arrays_that_hold_nothing(path: Path) -> None:
    save(Wanderer(seed=np.empty((10**9, 0))), path)
    shown = describe(path)["parameters"]["seed"]
    assert shown == {"dtype": "float64", "shape": [1_000_000_000, 0]}


def test_describe_builds_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(Steps(memory.Principal(2), wandered()), path)

    def never(*_: object, **__: object) -> None:
        raise AssertionError

    monkeypatch.setattr(Wanderer, "__init__", never)
    told = describe(path)
    assert told["rows_seen"] == 30
    assert told["parameters"]["steps"][0]["class"] == "Principal"
    assert told["parameters"]["steps"][0]["parameters"]["m"] == 2
