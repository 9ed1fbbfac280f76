"""Stored files of networks, and states of wrapped optimizers."""

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import pytest
from sklearn.base import BaseEstimator
from stored_cases import CASES, FILES, PARAMETERS, assert_close, expected, learn, numbers
from stored_cases import outcome as predictions
from stored_networks import (
    NETWORKS,
    OPTIMIZERS,
    frozen_networks,
    outcome,
    plain,
    rows,
    torch,
    trained,
)
from stored_runs import RUNS

import onepass as op
from onepass.serialization import archive
from onepass.serialization.codec import Role, class_registry
from onepass.serialization.state import learned

EXPECTED = expected()
OUTSIDE = frozen_networks()


@pytest.mark.parametrize("name", NETWORKS)
def test_stored_network_predicts_and_continues(name: str, tmp_path: Path) -> None:
    case, reference = NETWORKS[name], EXPECTED[name]
    path = FILES / f"{name}.onepass"
    learner = op.nn.load(path, case.module())
    assert_close(outcome(case, learner), reference["before"], min(case.rtol, 1e-6))
    learner.save(tmp_path / "once")
    again = op.nn.load(tmp_path / "once", case.module())
    again.save(tmp_path / "twice")
    assert (tmp_path / "once").read_bytes() == (tmp_path / "twice").read_bytes()
    for each in (learner, again):
        assert_close(outcome(case, each.learn(*rows(case, 6, 8))), reference["after"], case.rtol)


@pytest.mark.parametrize("name", OUTSIDE)
def test_stored_feature_with_replaced_network_continues(name: str) -> None:
    case, reference = OUTSIDE[name], EXPECTED[name]
    learner = op.load(FILES / f"{name}.onepass", **case.replaced)
    assert_close(predictions(case, learner), reference["before"], case.rtol)
    learn(case, learner, 20, 30)
    assert_close(predictions(case, learner), reference["after"], case.rtol)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_stored_optimizer_continues(name: str) -> None:
    module = plain()
    optimizer = OPTIMIZERS[name](module)
    state = torch.load(FILES / f"{name}.pt", weights_only=True)
    module.load_state_dict(state["module"])
    optimizer.load_state_dict(state["optimizer"])
    assert_close(module(torch.as_tensor(numbers(60, 66))).tolist(), EXPECTED[name]["before"])
    assert_close(trained(module, optimizer, 6, 10), EXPECTED[name]["after"])


# -- completeness ----------------------------------------------------------------------------------


def classes_in(thing: Any) -> Iterator[type]:
    """The classes of an object and its attributes."""
    if isinstance(thing, dict):
        thing = list(thing.values())
    if isinstance(thing, (list, tuple)):
        for part in thing:
            yield from classes_in(part)
    elif is_dataclass(thing) and not isinstance(thing, BaseEstimator):
        yield type(thing)
        yield from classes_in([getattr(thing, each.name) for each in fields(thing)])
    elif isinstance(thing, BaseEstimator):
        yield type(thing)
        yield from classes_in(vars(thing))
        yield from classes_in(learned(thing))


def class_names_in(tree: Any) -> Iterator[str]:
    """The class names in a tree."""
    if isinstance(tree, dict):
        if "@" in tree:
            yield tree["@"]
        tree = list(tree.values())
    if isinstance(tree, (list, tuple)):
        for part in tree:
            yield from class_names_in(part)


def test_all_registered_classes_are_stored() -> None:
    """If this fails, add a case to `stored_cases` and run ``write.py``."""
    registry = class_registry().items()  # other tests register classes, too
    found = [(name, e) for name, e in registry if e.cls.__module__.startswith("onepass")]
    missing = {e.cls for _, e in found if e.role not in {Role.LOSS, Role.METRIC, Role.RUN}}
    for name, case in {**CASES, **OUTSIDE}.items():
        missing -= set(classes_in(op.load(FILES / f"{name}.onepass", **case.replaced)))
    for name, case in NETWORKS.items():
        missing -= set(classes_in(vars(op.nn.load(FILES / f"{name}.onepass", case.module()))))
    assert not missing
    inside = set[str]()
    for name in RUNS:
        inside |= set(class_names_in(archive.read(FILES / f"{name}.run", kind="run")["run"]))
    assert {name for name, e in found if e.role in {Role.METRIC, Role.RUN}} <= inside


def test_all_network_learners_and_optimizers_are_stored() -> None:
    """If this fails, add a case to `stored_networks` and run ``write.py``."""
    assert {case.kind for case in NETWORKS.values()} == set(op.nn.__all__) - {"load"}
    made = {type(make(plain())) for make in OPTIMIZERS.values()}
    assert made == {getattr(op.nn.optim, name) for name in op.nn.optim.__all__}


def test_stored_files_equal_cases() -> None:
    cases = {*CASES, *OUTSIDE, *NETWORKS, *OPTIMIZERS, *PARAMETERS, *RUNS}
    written = {path.stem for path in FILES.iterdir()}
    assert cases | {"continual", "served", "network"} == written - {"expected"} == set(EXPECTED)
