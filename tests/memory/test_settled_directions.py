"""settled: directions that steps do not change."""

from typing import Any

import numpy as np
import pytest

from onepass.memory import Basis, LastDirections, NoMemory, Principal, Random

SPECIFICATIONS = [Basis(), Principal(3), Principal(3, of="projected"), LastDirections(3), Random(3)]


@pytest.mark.parametrize("specification", SPECIFICATIONS, ids=str)
@pytest.mark.parametrize("rows", [0, 2, 7])
def test_settled_columns_are_directions_without_step(specification: Any, rows: int) -> None:
    draw = np.random.default_rng(0)
    memory = specification.start(20, 1)
    for _ in range(rows):
        memory = memory.learn(
            np.zeros(20), draw.normal(size=(20, 1)), np.ones(1), np.zeros(1)
        ).memory
    G = draw.normal(size=(20, 4))
    free = memory.split(G).lifted
    settled, columns = memory.settled()
    Q = columns.matrix
    assert Q.shape == (20, memory.rank)
    np.testing.assert_allclose(Q.T @ Q, np.eye(memory.rank), atol=1e-12)
    np.testing.assert_allclose(free, G - Q @ (Q.T @ G), atol=1e-12)
    np.testing.assert_allclose(settled.split(G).lifted, free, atol=1e-12)


def test_no_memory_has_no_settled_columns() -> None:
    memory = NoMemory().start(20, 1)
    assert memory.settled() == (memory, None)
    G = np.random.default_rng(0).normal(size=(20, 4))
    np.testing.assert_array_equal(memory.split(G).lifted, G)
