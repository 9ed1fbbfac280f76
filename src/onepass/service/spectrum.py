"""Spectrum: how much a learner knows along each of its directions, as its memory has it."""

from typing import Any

import numpy as np
import scipy.linalg

from onepass.errors import Floats

__all__ = ["memory_of", "spectrum"]

_WIDEST = 512  # features; of more it would take longer than a page is worth
_MOST = 128  # values that are told


def memory_of(learner: Any) -> Any:
    """The memory that a learner has, if it has such as ``spectrum`` takes; None otherwise.

    Parameters
    ----------
    learner : learner or Pipeline
    """
    memory = getattr(getattr(learner, "learner_", learner), "memory_", None)
    return memory if hasattr(memory, "R") or hasattr(memory, "lengths") else None


def spectrum(memory: Any) -> Floats | None:
    """Singular values of what is remembered, the largest first; None where there are none such.

    Of least squares they are those of R, √(XᵀX + ridge); of a memory of directions, the lengths of
    these.

    Parameters
    ----------
    memory
        As ``memory_of`` gives it.
    """
    R = getattr(memory, "R", None)
    if isinstance(R, np.ndarray) and R.ndim == 2 and R.shape[0] <= _WIDEST:
        return _told(scipy.linalg.svdvals(R))
    lengths = getattr(memory, "lengths", None)
    if isinstance(lengths, np.ndarray) and lengths.ndim == 1:
        return _told(np.sort(lengths)[::-1])
    return None


def _told(values: Floats) -> Floats | None:
    found = values[np.isfinite(values)][:_MOST]
    return found if len(found) else None
