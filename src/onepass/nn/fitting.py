"""Fitting: a step of a memory in two halves: what it will do, then the memory after it.

A memory is written in place, so that a step that the weights cannot hold must be known before.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from onepass import linalg
from onepass.errors import Floats
from onepass.update import fit

__all__ = ["Fitted", "fitted", "variances"]


class Fitted(NamedTuple):
    """What a step will do; nothing has been written yet."""

    w: Any
    contradictions: Any
    memory: Callable[[], Any]
    """Learn the row, in place; give the memory after it."""


def fitted(memory: Any, w: Any, G: Any, e: Any, noise: Floats, c: int) -> Fitted:
    """The step of a memory, whose state stays good until it is told to learn.

    Parameters
    ----------
    memory : state of a memory
    w : Tensor of shape (p,)
    G : Tensor of shape (p, n·c)
    e : Tensor of shape (n·c,)
    noise : ndarray of shape (n·c,)
    c : int
        Neighbouring columns of G that belong to one row.

    Raises
    ------
    NumericalError
        If the variance of an answer is no number.
    """
    pending = None if linalg.waits(w) else getattr(memory, "pending", None)
    with np.errstate(over="ignore", invalid="ignore"):  # the learner looks what came of it
        found = pending and pending(*map(linalg.at_hand, (w, G, e)), noise)
    if found:  # of few weights, where calls cost most
        return Fitted(linalg.like(found.w, w), 0, found.after)
    if not hasattr(memory, "split"):  # a covariance writes nothing in place
        step = memory.learn(w, G, e, noise, group=c)
        return Fitted(step.w, step.contradictions, lambda: step.memory)
    parts = memory.split(G)
    found = fit(w, G, parts.lifted, e, noise, group=c, basis=memory.basis)
    learned = partial(memory.after, G, parts, noise, found)
    return Fitted(found.w, found.contradictions, learned)


def variances(memory: Any, noise: float) -> Callable[[Any], Any] | None:
    """What gives gᵀ P g of each column of G (p, n), (n,), if a memory's P is a covariance.

    It is with noise, and without as long as what is let go is counted; what is let go is then
    taken for unknown.

    Parameters
    ----------
    memory : state of a memory
    noise : float
        Its r: without noise P is a projector, and P P = P.
    """
    if not noise and getattr(memory, "lost", None) is None:
        return None

    def found(G: Any) -> Any:
        free = linalg.like(memory.split(G).lifted, G).double()
        return ((G.double() if noise else free) * free).sum(dim=0)

    return getattr(memory, "variances", found)
