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
        mixed = weigh(k, numbers, errors, Y, s)
        weights = numbers[: k * c].reshape(k, c)
        return mixed, Mixture(weights, numbers[k * c : -1], float(numbers[-1]))


def weigh(k: int, numbers: Floats, errors: Floats, Y: Floats, s: Floats | None) -> Floats:
    """The errors (n, c) of a mixture of k experts; its numbers are changed.

    Parameters
    ----------
    k : int
    numbers : ndarray of shape (k * c + c + 1,)
        The weights, squares and count of `Mixture`.
    errors, Y, s
        As in ``Mixture.mixed``.
    """
    given: Any = [
        None if a is None else np.ascontiguousarray(a, np.float64) for a in (Y, s, errors)
    ]
    if native.loops is None:
        return plain.weigh(numbers, *given)
    mixed: Floats = np.empty(Y.shape)
    native.loops.mix(k, *Y.shape, False, *given, numbers, mixed)  # noqa: FBT003
    return mixed
