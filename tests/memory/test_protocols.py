"""Every memory and every rule of forgetting has each member of its protocol, and so have states."""

import inspect
from typing import Any

import numpy as np
import pytest

from onepass import forgetting, memory
from onepass.learners import RLSRegressor
from onepass.memory.blocks import Blocks
from onepass.memory.forgetting.protocols import ForgettingRule, ForgettingState
from onepass.memory.protocols import Divided, GrowingState, Memory, MemoryState, Mergeable


def lacking(thing: Any, *protocols: type) -> list[str]:
    """What of the protocols a thing lacks, or takes under other names of arguments."""
    lacks = []
    for protocol in protocols:
        for name, member in inspect.getmembers(protocol):
            if name.startswith("_"):
                continue
            if not hasattr(thing, name):
                lacks.append(name)
            elif inspect.isfunction(member):
                wanted = list(inspect.signature(member).parameters.values())[1:]
                taken = list(inspect.signature(getattr(thing, name)).parameters.values())
                names = [p.name for p in wanted if p.kind is not p.POSITIONAL_ONLY]
                if not set(names) <= {p.name for p in taken} or len(wanted) > len(taken):
                    lacks.append(f"{name}{names}")
    return lacks


def test_what_is_lacking_is_found() -> None:
    assert lacking(object(), ForgettingState) == ["finite", "grown", "with_outputs"]
    assert lacking(memory.NoMemory().start(3, 1), Mergeable) == ["evidence", "merged"]


NOISY = ["Basis", "Principal", "SquareRoot"]
CASES = [(name, 0.5) for name in NOISY]
CASES += [(name, 0.0) for name in memory.__all__ if name != "SquareRoot"]


@pytest.mark.parametrize(("name", "noise"), CASES)
def test_a_memory_is_one(name: str, noise: float) -> None:
    specification = getattr(memory, name)()
    assert not lacking(specification, Memory)
    state = specification.start(4, 2, noise, np.float64)
    step = state.learn(np.zeros((4, 2)), np.eye(4)[:, :1], np.ones((1, 2)), np.full(1, noise))
    for each in (state, step.memory):
        assert not lacking(each, GrowingState)
        if specification.merging != "refused":
            assert not lacking(each, Mergeable)
            assert not hasattr(each, "split") or not lacking(each, Divided)


def test_blocks_of_memories_are_one_memory() -> None:
    blocks = Blocks.start(memory.Principal(2), (((0, 3),), ((3, 5),)), 0.0, 1, np.float64)
    assert not lacking(blocks, MemoryState, Divided)


@pytest.mark.parametrize(
    "rule",
    [
        forgetting.Bounded(0.9),
        forgetting.Directional(0.9),
        forgetting.Exponential(0.9),
        forgetting.Window(3),
    ],
    ids=lambda rule: type(rule).__name__,
)
def test_a_rule_of_forgetting_is_one(rule: Any) -> None:
    assert not lacking(rule, ForgettingRule)
    state = RLSRegressor(forgetting=rule).fit(np.eye(3), np.ones(3)).forgetting_
    assert not lacking(state, ForgettingState)
    assert type(state) is rule.state
    assert hasattr(state, "stored_rows") == rule.stores_rows
    assert hasattr(rule, "between") or not rule.additive


def test_every_rule_is_tried() -> None:
    assert sorted(forgetting.__all__) == ["Bounded", "Directional", "Exponential", "Window"]
