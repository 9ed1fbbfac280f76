"""Total: a running sum that does not lose the small to the large.

After adding xₖ to s, t = fl(s + xₖ), what rounding lost is known exactly [1, two-sum]:

    z = t − s,   lost ← lost + (s − (t − z)) + (xₖ − z),   s ← t                         (1)

and s + lost is the sum as if it had been kept in twice the digits. So a sum over 10⁹ rows, or the
same rows cut into other blocks, agrees to the last digit or two of float64.

[1] D. E. Knuth, The Art of Computer Programming 2, section 4.2.2, theorem B.
"""

import math
from typing import Any, Self

import numpy as np

__all__ = ["Total"]


class Total:
    """A sum of numbers, or of arrays of one shape, with what rounding lost.

    Examples
    --------
    >>> total = Total()
    >>> for number in [1e16, 1.0, 1.0, -1e16]:
    ...     total.add(number)
    >>> float(total.value)
    2.0
    """

    def __init__(self) -> None:
        self._sum: Any = np.float64(0.0)
        self._lost: Any = np.float64(0.0)

    def add(self, x: Any) -> None:
        """Add a number, or an array elementwise."""
        if isinstance(x, float) and isinstance(self._sum, float):  # NumPy's too: the same digits
            self._add(float(x), float(self._sum), float(self._lost))
            return
        with np.errstate(over="ignore", invalid="ignore"):
            t = self._sum + x
            z = t - self._sum
            self._lost = self._lost + ((self._sum - (t - z)) + (x - z))  # (1)
        self._sum = t

    def _add(self, x: float, before: float, lost: float) -> None:
        """Add a number as Python does, which takes a tenth of the time and warns of nothing."""
        self._sum = t = before + x
        z = t - before
        self._lost = lost + ((before - (t - z)) + (x - z))  # (1)

    def merge(self, other: Self) -> None:
        """Add all that another total holds."""
        self.add(other._sum)
        self._lost = self._lost + other._lost

    @classmethod
    def of(cls, total: Any, lost: Any) -> Self:
        """The total that has these ``parts``."""
        made = cls()
        made._sum, made._lost = total, lost
        return made

    @property
    def parts(self) -> tuple[Any, Any]:
        """The rounded sum, and what rounding lost."""
        return self._sum, self._lost

    @property
    def value(self) -> Any:
        """The sum; infinite once a term or the sum itself was."""
        if isinstance(self._sum, float):
            return self._sum + self._lost if math.isfinite(self._sum) else self._sum
        with np.errstate(invalid="ignore"):
            return np.where(np.isfinite(self._sum), self._sum + self._lost, self._sum)
