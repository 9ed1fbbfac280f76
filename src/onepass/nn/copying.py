"""Copying: a learner is copied between two steps, whoever is learning or asking meanwhile.

A step writes weights and memory one after the other, and a module that is asked has tensors in the
place of its parameters. What is copied then would be half of one state and half of the next.
"""

import copy
from typing import Any, Self

from onepass.nn.module import Network

__all__ = ["Copied"]


class Copied:
    """What is copied and pickled as it is between two steps: other threads wait, or are waited for.

    Pickling goes on after a state was given, so that what is pickled is a copy, with a module of
    its own.
    """

    network: Network

    def __copy__(self) -> Self:
        twin = object.__new__(type(self))
        vars(twin).update(vars(self))
        return twin

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        twin = object.__new__(type(self))
        memo[id(self)] = twin
        with self.network.turn:
            vars(twin).update(copy.deepcopy(vars(self), memo))
        return twin

    def __getstate__(self) -> dict[str, Any]:
        with self.network.turn:
            return copy.deepcopy(vars(self), {id(self): self})
