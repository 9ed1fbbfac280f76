"""Random choice of parameters; with ONEPASS_TEST_ALL=1 all of them are used."""

import os
from collections.abc import Sequence
from typing import TypeVar

import numpy as np

Parameter = TypeVar("Parameter")
ALL = os.environ.get("ONEPASS_TEST_ALL") == "1"


def sample(parameters: Sequence[Parameter], n: int, test: str) -> list[Parameter]:
    """Draw n parameters, in their order.

    The choice depends on the name of the test and on ``ONEPASS_TEST_SEED``, which ``conftest`` sets
    to a random number and prints.
    """
    if ALL or n >= len(parameters):
        return list(parameters)
    rng = np.random.default_rng([int(os.environ.get("ONEPASS_TEST_SEED", "0")), *test.encode()])
    return [parameters[i] for i in sorted(rng.permutation(len(parameters))[:n])]


def examples(few: int, many: int) -> int:
    """Return the number of examples of a property test."""
    return many if ALL else few
