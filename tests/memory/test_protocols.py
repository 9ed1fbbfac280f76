"""Memories, forgetting rules and their states implement their protocols."""

import inspect
from typing import Any

import numpy as np
import pytest

from onepass import forgetting, memory
from onepass.forgetting.protocols import ForgettingRule
from onepass.memory.blocks import Blocks
from onepass.memory.protocols import Divided, GrowingState, Memory, MemoryState, Mergeable


def missing_members(thing: Any, *protocols: type) -> list[str]:
    """Members of the protocols that an object lacks or has with other arguments."""
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


def test_missing_members_are_found() -> None:
    assert missing_members(object(), GrowingState)[:2] == ["exact_in_blocks", "forgetting_bound"]
    assert missing_members(memory.NoMemory().start(3, 1), Mergeable) == ["evidence", "merged"]


NOISY = ["Basis", "Principal", "SquareRoot"]
CASES = [(name, 0.5) for name in NOISY]
CASES += [(name, 0.0) for name in memory.__all__ if name != "SquareRoot"]


@pytest.mark.parametrize(("name", "noise"), CASES)
def test_memories_implement_protocols(name: str, noise: float) -> None:
    specification = getattr(memory, name)()
    assert not missing_members(specification, Memory)
    state = specification.start(4, 2, noise, np.float64)
    step = state.learn(np.zeros((4, 2)), np.eye(4)[:, :1], np.ones((1, 2)), np.full(1, noise))
    for each in (state, step.memory):
        assert not missing_members(each, GrowingState)
        if specification.merging != "refused":
            assert not missing_members(each, Mergeable)
            assert not hasattr(each, "split") or not missing_members(each, Divided)


def test_blocks_implement_memory_protocols() -> None:
    blocks = Blocks.start(memory.Principal(2), (((0, 3),), ((3, 5),)), 0.0, 1, np.float64)
    assert not missing_members(blocks, MemoryState, Divided)


@pytest.mark.parametrize(
    "rule",
    [
        getattr(forgetting, name)(*{"Window": [3], "Auto": []}.get(name, [0.9]))
        for name in forgetting.__all__
    ],
    ids=lambda rule: type(rule).__name__,
)
def test_forgetting_rules_implement_protocols(rule: Any) -> None:
    assert not missing_members(rule, ForgettingRule)
