"""Spectrum: how much a learner knows along each of its directions, as its memory has it."""

from typing import Any

import numpy as np
import scipy.linalg

from onepass.types import Floats

__all__ = ["spectrum"]

_WIDEST = 512  # features; of more it would take longer than a page is worth
_MOST = 128  # values that are told


def spectrum(learner: Any) -> Floats | None:
    """Singular values of what a learner remembers, the largest first; None where it has none such.

    Of least squares they are those of R, √(XᵀX + ridge); of a memory of directions, the lengths of
    these.

    Parameters
    ----------
    learner : learner or Pipeline
        Out of its loops: see ``Charge.put_aside``.
    """
    memory = getattr(getattr(learner, "learner_", learner), "memory_", None)
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
