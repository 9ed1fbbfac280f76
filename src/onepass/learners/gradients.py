"""Gradients: rows of features, shared by all outputs or not, as a step of a memory wants them."""

from typing import Any

import numpy as np

from onepass.errors import Array, Floats
from onepass.update import Step

__all__ = ["placed_outputs", "row_step"]


def row_step(w: Floats, memory: Any, features: Floats, Y: Floats, noise: float) -> Step:
    """One step of the equation for some rows, its errors of the shape of their answers.

    Parameters
    ----------
    w : ndarray of shape (p, c) or (p,)
    memory : state of a memory
    features : ndarray of shape (n, p) or (n, p, c)
        Shared by all outputs, with weights (p, c), or not, with weights (p,).
    Y : ndarray of shape (n, c)
    noise : float
    """
    n, c = Y.shape
    if features.ndim == 2:
        step: Step = memory.learn(w, features.T, Y - features @ w, np.full(n, noise))
        return step
    G = features.transpose(1, 0, 2).reshape(-1, n * c)
    e = (Y - features.transpose(0, 2, 1) @ w).reshape(-1)
    step = memory.learn(w, G, e, np.full(n * c, noise), group=c)
    return step._replace(errors=step.errors.reshape(n, c))


def placed_outputs(w: Floats, outputs: Array, c: int) -> Floats:
    """Weights (p, c′) with their outputs at these places of c, zero elsewhere.

    Weights (p,) that all outputs share are as they are.

    Parameters
    ----------
    w : ndarray of shape (p, c′) or (p,)
    outputs : ndarray of shape (c′,)
    c : int
    """
    if w.ndim == 1:
        return w
    wide = np.zeros((len(w), c))
    wide[:, outputs] = w
    return wide
