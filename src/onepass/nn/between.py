"""Between: weights that are held to what two memories know, of two copies of one module.

What each knows is evidence: a few rows A that its own weights w_a answer, or B and w_b. Of a module
linear in its weights the first learns the other's, exactly as it would have learned its rows. Of
other modules both A and B are of linearisations that have turned since, each along a way of its
own. A memory that let go of something tells by how much the answers of its rows can move besides
(:mod:`onepass.memory.certificate`), by up to √D ‖w − w_a‖, and both together move least with

    min ‖A (w − w_a)‖² + D_a ‖w − w_a‖² + ‖B (w − w_b)‖² + D_b ‖w − w_b‖²                   (1)

so that directions in which the two know less than they let go of are between the two. With noise r
the prior around w₀ stands in both: + r (‖w − w_a‖² + ‖w − w_b‖² − ‖w − w₀‖²), which is exactly one
pass of a linear module while D = 0. Without noise, where directions of the two nearly agree, as
those of like streams do, what little they differ in cannot tell the answers of one from those of
the other, but a step that takes both to the letter is as long as it takes. So to (1) is added

    + ρ ‖w − m‖²,       m = (w_a + w_b) / 2                                                 (2)

with the least ρ >= 0 for which ‖w − m‖ ≤ ‖w_a − w_b‖ / 2 (a trust region [1]): no further from the
middle than either of the two, in the ball on whose surface both lie. It is the same whichever of
the two comes first.

[1] J. J. Moré, "The Levenberg-Marquardt algorithm: implementation and theory", 1978.
"""

import math
from typing import Any, NamedTuple

import numpy as np
import torch

from onepass import linalg
from onepass.nn.fitting import fitted

__all__ = ["Merged", "between", "learned", "lost", "share_moved"]


class Merged(NamedTuple):
    """Weights (p,), and how far from the middle both demand to go, if ‖w_a − w_b‖ / 2 is 1."""

    w: Any
    reach: float


def learned(memory: Any, w: Any, theirs: Any, said: Any) -> Merged:
    """The weights after a memory has learned evidence, part by part; nothing is written.

    Parameters
    ----------
    memory : state of a memory
    w, theirs : Tensors of shape (p,), or (p / c, c) where outputs share directions
        Its own weights, and those that the evidence is of.
    said : Evidence or Several
    """
    new = w.clone()
    for part, at, each in _parts(memory, said, len(w)):
        now = w[at]
        known = linalg.inner(each.rows.T, now.reshape(len(now), -1))
        error = each.answers - known.reshape(each.answers.shape)
        new[at] = fitted(part, now, each.rows.T, error, each.noise, 1).w
    apart = float(linalg.length(w - theirs)) / 2.0
    far = float(linalg.length(new - (w + theirs) / 2.0))
    return Merged(new, far / apart if apart else 0.0)


def between(weights: Any, said: Any, noise: float, start: Any) -> Merged:
    """(1) and, without noise, (2), part by part.

    Parameters
    ----------
    weights : tuple of two Tensors of shape (p,)
    said : tuple of two of Evidence or Several
        What each knows.
    noise : float
    start : Tensor of shape (p,)
        w₀, with noise.
    """
    (w, theirs), (mine, came) = weights, said
    new, far, apart = (w + theirs) / 2.0, 0.0, 0.0
    for one, at, two in _parts(mine, came, len(w)):
        d, middle = (w[at] - theirs[at]) / 2.0, new[at]
        least = one.lost + two.lost + noise
        shift = (one.lost - two.lost) * d  # of the middle of (1), times what holds it there
        if noise:
            shift = shift + noise * (middle - start.to(w)[at])
        shift = shift / (least or 1.0)
        C = torch.cat((one.rows, two.rows))
        known = linalg.host(linalg.inner(C.T, torch.stack((d, shift), dim=1)))
        known[len(one.rows) :, 0] *= -1.0
        K, radius = linalg.host(linalg.inner(C.T, C.T)), float(linalg.length(d))
        ball = np.inf if noise else radius
        share, x, length = _held(K, known, float(linalg.length(shift)), least, ball, C)
        new[at] = middle + share * shift + linalg.times(C.T, x[:, None])[:, 0]
        far, apart = np.hypot(far, length), np.hypot(apart, radius)
    return Merged(new, far / apart if apart else 0.0)


def _held(
    K: Any, known: Any, shift: float, least: float, ball: float, C: Any
) -> tuple[float, Any, float]:
    """The share and x for which w = m + share · shift + Cᵀ x is the solution, of K = C Cᵀ.

    And how far from m it would be with ρ = 0. ``known`` is what C says of w_a − m, or w_b − m, and
    of the shift.
    """
    lam, V = linalg.eigh(K)
    lam = np.maximum(lam, 0.0)
    asked, moved = V.T @ known[:, 0], V.T @ known[:, 1]
    low = max(least, linalg.rounding(C) * lam.max(initial=0.0))
    if not low:
        return 0.0, 0.0 * lam, 0.0

    def at(rho: float) -> tuple[float, Any, float]:
        share = min(least / rho, 1.0)
        x = (asked - share * moved) / (lam + rho)
        square = (share * shift) ** 2 + 2.0 * share * moved @ x + lam @ x**2
        return share, x, math.sqrt(max(square, 0.0))

    most, rho, high = at(low)[2], low, low
    while at(high)[2] > ball:
        high *= 2.0
    while high > low * (1.0 + 1e-9):
        rho = math.sqrt(low * high)
        low, high = (rho, high) if at(rho)[2] > ball else (low, rho)
    share, x, _ = at(high)
    return share, V @ x, most


def lost(said: Any) -> float:
    """D of evidence, of all its parts.

    Parameters
    ----------
    said : Evidence or Several
    """
    return float(sum(each.lost for each in getattr(said, "parts", [said])))


def share_moved(new: Any, weights: Any, said: Any) -> float:
    """By how much answers of both can move, √ of (1), as a share of the size of what is known.

    Parameters
    ----------
    new : Tensor of shape (p,)
        The merged weights.
    weights, said
        As of :func:`between`.
    """
    (w, theirs), (mine, came) = weights, said
    moved = size = 0.0
    for one, at, two in _parts(mine, came, len(w)):
        for each, then in ((one, w[at]), (two, theirs[at])):
            moved = math.hypot(moved, each.moved(new[at], then))
            known = linalg.inner(each.rows.T, then[:, None])
            size = math.hypot(size, float(linalg.length(known)))
    return moved / size if size else 0.0


def _parts(memory: Any, said: Any, p: int) -> list[tuple[Any, Any, Any]]:
    """What is told of all weights, or of those of each layer: a memory's, their places, evidence's.

    The first may be evidence as well.
    """
    if not hasattr(said, "parts"):
        return [(memory, slice(0, p), said)]
    each = []
    for part, place, evidence in zip(memory.parts, said.places, said.parts, strict=True):
        at = torch.cat([torch.arange(*piece, device=evidence.rows.device) for piece in place])
        each.append((part, at, evidence))
    return each
