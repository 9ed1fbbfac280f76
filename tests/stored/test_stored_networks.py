"""Files of networks, and states of wrapped optimizers, that an earlier version wrote."""

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import pytest
from sklearn.base import BaseEstimator
from stored_cases import CASES, FILES, PARAMETERS, expected, learn, numbers, same
from stored_cases import outcome as predictions
from stored_networks import NETWORKS, OPTIMIZERS, outcome, outside, plain, rows, torch, trained
from stored_runs import RUNS

import onepass as op
from onepass.serialization import archive, former
from onepass.serialization.codec import Role, class_registry

EXPECTED = expected()
OUTSIDE = outside()


@pytest.mark.parametrize("name", NETWORKS)
def test_a_network(name: str, tmp_path: Path) -> None:
    case, then = NETWORKS[name], EXPECTED[name]
    path = FILES / f"{name}.onepass"
    learner = op.nn.load(path, case.module())
    same(outcome(case, learner), then["before"], min(case.rtol, 1e-6))
    learner.save(tmp_path / "once")
    again = op.nn.load(tmp_path / "once", case.module())
    again.save(tmp_path / "twice")
    assert (tmp_path / "once").read_bytes() == (tmp_path / "twice").read_bytes()
    for each in (learner, again):
        same(outcome(case, each.learn(*rows(case, 6, 8))), then["after"], case.rtol)


@pytest.mark.parametrize("name", OUTSIDE)
def test_a_feature_whose_network_is_given_again(name: str) -> None:
    case, then = OUTSIDE[name], EXPECTED[name]
    learner = op.load(FILES / f"{name}.onepass", **case.replaced)
    same(predictions(case, learner), then["before"], case.rtol)
    learn(case, learner, 20, 30)
    same(predictions(case, learner), then["after"], case.rtol)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_wrapped_optimizer(name: str) -> None:
    module = plain()
    optimizer = OPTIMIZERS[name](module)
    state = torch.load(FILES / f"{name}.pt", weights_only=True)
    module.load_state_dict(state["module"])
    optimizer.load_state_dict(state["optimizer"])
    same(module(torch.as_tensor(numbers(60, 66))).tolist(), EXPECTED[name]["before"])
    same(trained(module, optimizer, 6, 10), EXPECTED[name]["after"])


# -- all of it -------------------------------------------------------------------------------------


def parts(thing: Any) -> Iterator[type]:
    """The classes of onepass of all that an object holds."""
    if isinstance(thing, dict):
        thing = list(thing.values())
    if isinstance(thing, (list, tuple)):
        for part in thing:
            yield from parts(part)
    elif is_dataclass(thing):
        yield type(thing)
        yield from parts([getattr(thing, each.name) for each in fields(thing)])
    elif isinstance(thing, BaseEstimator):
        yield type(thing)
        yield from parts(vars(thing))


def marks(tree: Any) -> Iterator[str]:
    """The names of all that a tree holds."""
    if isinstance(tree, dict):
        if "@" in tree:
            yield tree["@"]
        tree = list(tree.values())
    if isinstance(tree, (list, tuple)):
        for part in tree:
            yield from marks(part)


def test_every_class_that_can_be_saved_is_in_a_file() -> None:
    """A new class brings a file: add it to `stored_cases` and run ``write.py``."""
    found = class_registry().items()
    missing = {e.cls for _, e in found if e.role not in {Role.LOSS, Role.METRIC, Role.RUN}}
    for name, case in {**CASES, **OUTSIDE}.items():
        missing -= set(parts(op.load(FILES / f"{name}.onepass", **case.replaced)))
    for name, case in NETWORKS.items():
        missing -= set(parts(vars(op.nn.load(FILES / f"{name}.onepass", case.module()))))
    assert not missing
    inside = set[str]()
    for name in RUNS:
        found_names = marks(archive.read(FILES / f"{name}.run", kind="run")["course"])
        inside |= {former.CLASSES.get(each, each) for each in found_names}
    assert {name for name, e in found if e.role in {Role.METRIC, Role.RUN}} <= inside


def test_every_network_and_optimizer_is_in_a_file() -> None:
    """A new one brings a file: add it to `stored_networks` and run ``write.py``."""
    assert {case.kind for case in NETWORKS.values()} == set(op.nn.__all__) - {"load"}
    made = {type(make(plain())) for make in OPTIMIZERS.values()}
    assert made == {getattr(op.nn.optim, name) for name in op.nn.optim.__all__}


def test_each_file_has_its_case() -> None:
    cases = {*CASES, *OUTSIDE, *NETWORKS, *OPTIMIZERS, *PARAMETERS, *RUNS}
    written = {path.stem for path in FILES.iterdir()}
    assert cases | {"continual", "served", "network"} == written - {"expected"} == set(EXPECTED)
