"""Mixture: the weights of experts, by the equations of :mod:`onepass.forgetting.auto`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from onepass import native
from onepass.memory import plain
from onepass.types import Floats


@dataclass(frozen=True, eq=False, slots=True)
class Mixture:
    """The weights of K experts for c outputs.

    Parameters
    ----------
    weights : ndarray of shape (K, c)
        π of (3).
    squares : ndarray of shape (c,)
        The numerator of (1).
    count : float
        Its denominator; below 0, the number of rows that will not be counted.
    """

    weights: Floats
    squares: Floats
    count: float

    def mixed(self, errors: Floats, Y: Floats, s: Floats | None) -> tuple[Floats, Mixture]:
        """The errors of the mixture, (n, c), and the state after rows.

        Parameters
        ----------
        errors : ndarray of shape (K, n, c)
            The error of each expert just before each row is learned.
        Y : ndarray of shape (n, c)
        s : ndarray of shape (n,), or None for ones
            The weights of the rows.
        """
        k, c = self.weights.shape
        numbers = np.concatenate((self.weights.ravel(), self.squares, (self.count,)))
        mixed: Floats = np.empty(Y.shape)
        given: Any = [
            None if a is None else np.ascontiguousarray(a, np.float64) for a in (Y, s, errors)
        ]
        if native.loops is None:
            mixed = plain.weigh(numbers, *given)
        else:
            native.loops.mix(k, len(Y), c, False, *given, numbers, mixed)  # noqa: FBT003
        weights = numbers[: k * c].reshape(k, c)
        return mixed, Mixture(weights, numbers[k * c : -1], float(numbers[-1]))
