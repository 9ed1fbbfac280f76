"""Latest: the last m directions used. The baseline ORFit-latest.

As :class:`~onepass.memory.Basis`, but after each step only the last m columns of Q stay ([1],
section 5.1): what was learned longer ago may be moved again. For comparison; the principal
directions (:class:`~onepass.memory.Principal`) forget far less at the same cost.
Cost: O(mp) time a row, O(mp) memory.

[1] Y. Min, K. Ahn, N. Azizan, "One-Pass Learning via Bridging Orthogonal Gradient Descent and
    Recursive Least-Squares", extended version.
"""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from onepass import validation
from onepass.linalg.subspace import Columns
from onepass.memory.basis import Directions, refuse_noise
from onepass.memory.selected import Selected

__all__ = ["Latest", "Recent"]


@dataclass(frozen=True)
class Latest:
    """The last m directions used.

    Parameters
    ----------
    m : int, default=100
        Directions kept at most, >= 1.

    Raises
    ------
    ParameterError
        If m is no whole number >= 1.
    """

    merging: ClassVar[str] = "approximate"

    m: int = 100

    def __post_init__(self) -> None:
        validation.whole(self.m, "m", "memory.Latest", low=1)

    def start(self, p: int, c: int, noise: float = 0.0, kind: Any = np.float64) -> "Recent":
        """The memory of no rows, for p weights an output; without noise.

        ``kind`` is a NumPy precision, or a tensor of the precision and on the device wanted.
        """
        del c
        refuse_noise(noise, "memory.Latest")
        return Recent(Directions(Columns.start(p, kind, 2 * int(self.m))), int(self.m))


@dataclass(frozen=True, eq=False, slots=True)
class Recent(Selected):
    """The state of :class:`Latest`: its directions, the latest last."""

    def _left(self, wider: Directions) -> "Recent":
        return replace(self, directions=replace(wider, columns=wider.columns.latest(self.m)))
