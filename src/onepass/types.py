"""The types that every room of the house speaks of."""

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = ["Array", "Floats"]

Array: TypeAlias = NDArray[Any]
"""An array of whatever kind: numbers, text, dates."""

Floats: TypeAlias = NDArray[np.floating[Any]]
"""An array of real numbers, float32 or float64."""
