"""Nothing: no memory at all. One-Step SGD, and with noise normalised LMS.

    P = I,   w ← w + G (GᵀG + diag(R))⁻¹ e                                                  (1)

With R = 0 each row is fitted exactly and the past is forgotten where it is in the way (One-Step
SGD, [1] section 5.1); with R > 0 it is the normalised LMS filter, regularised by R.
Cost: O(p) time a row, no memory.

[1] Y. Min, K. Ahn, N. Azizan, "One-Pass Learning via Bridging Orthogonal Gradient Descent and
    Recursive Least-Squares", extended version.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from onepass.errors import Array, Floats
from onepass.linalg.subspace import Split
from onepass.linalg.update import Fitted, Step, fit

__all__ = ["Empty", "Nothing"]


@dataclass(frozen=True)
class Nothing:
    """No memory: One-Step SGD, and with noise normalised LMS."""

    merging: ClassVar[str] = "refused"

    def start(self, p: int, c: int, noise: float = 0.0, kind: Any = np.float64) -> "Empty":
        """The memory of no rows."""
        del p, c, noise, kind
        return Empty()


@dataclass(frozen=True, eq=False, slots=True)
class Empty:
    """The state of :class:`Nothing`: there is none."""

    exact_in_blocks: ClassVar[bool] = False
    lost: ClassVar[None] = None

    @property
    def rank(self) -> int:
        """No direction is used up."""
        return 0

    def learn(self, w: Any, G: Any, e: Any, noise: Floats, *, group: int = 1) -> Step:
        """The one equation with P = I: (1), for one row, or for a block as one augmented row.

        Parameters
        ----------
        w : array of shape (p, c) or (p,)
        G : array of shape (p, n)
        e : array of shape (n, c) or (n,)
        noise : ndarray of shape (n,)
            All zero, or all positive.
        group : int
            Neighbouring columns of G that belong to one row.
        """
        fitted = fit(w, G, G, e, noise, group=group)
        return Step(fitted.w, self, e, 0, fitted.contradictions)

    def forgets(self, new: Any, old: Any) -> float:
        """Nothing is known of it."""
        del new, old
        return 0.0

    @property
    def basis(self) -> Any:
        """There is none."""
        return None

    def split(self, G: Any) -> Split:
        """P G = G."""
        return Split(G, G, G)

    def after(self, G: Any, free: Split, noise: Floats, fitted: Fitted | None = None) -> "Empty":
        """The same: nothing is kept."""
        del G, free, noise, fitted
        return self

    def settled(self) -> tuple["Empty", None]:
        """The same memory; no direction is held."""
        return self, None

    def grown(self, p: int) -> "Empty":
        """The same."""
        del p
        return self

    def with_outputs(self, at: Array, c: int) -> "Empty":
        """The same."""
        del at, c
        return self
