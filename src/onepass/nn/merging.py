"""Merging: two copies of a module, each of which learned a stream, become one that knows both.

What a learner knows is told by its memory in a few rows A (:mod:`onepass.memory.evidence`): each
direction that it keeps, as long as it is, answered by A w_a, its own weights. For a module linear
in its weights, learning the second's rows B is learning the stream that they stand for: then that
is done, exactly, and the step is orthogonal to all that the first knows.

Of other modules both A and B are of linearisations that have turned since, each along a way of its
own. Where directions of the two nearly agree, as those of like streams do, what little they differ
in cannot tell the answers of one from those of the other, but a step that takes both to the letter
is as long as it takes. So without noise neither is taken to the letter:

    min ‖A (w − w_a)‖² + ‖B (w − w_b)‖² + ρ ‖w − m‖²,       m = (w_a + w_b) / 2              (1)

with the least ρ >= 0 for which ‖w − m‖ ≤ ‖w_a − w_b‖ / 2 (a trust region [1]): no further from the
middle than either of the two, in the ball on whose surface both lie. It is the same whichever of
the two comes first. With noise r > 0 the prior is such a ρ by itself.

Kept for this are, with noise, the weights before the first row (p numbers); without noise the
evidence needs none, and a fingerprint of them tells whether two copies began alike.

[1] J. J. Moré, "The Levenberg-Marquardt algorithm: implementation and theory", 1978.
"""

import copy
import math
import warnings
from typing import Any, NamedTuple

import numpy as np
import torch

from onepass import linalg
from onepass.errors import MergeError, MergeWarning, NumericalError
from onepass.nn.fitting import fitted
from onepass.nn.likeness import differences
from onepass.nn.measuring import refuse_worse

__all__ = ["merge"]

_FAR = 2.0  # times half the distance of the two: beyond, they hardly go together


class _Merged(NamedTuple):
    """Weights (p,), and how far from the middle both demand to go, if ‖w_a − w_b‖ / 2 is 1."""

    w: Any
    reach: float


def merge(one: Any, two: Any, rows: Any = None) -> None:
    """Let one learner learn what another has learned.

    Parameters
    ----------
    one, two : ORFit
        The second is not changed.
    rows : tuple (x, y), optional
        Rows to measure with.

    Raises
    ------
    MergeError
        If they are not alike, or keep too little of the past; or if, of these rows, the merged
        weights say less than the better of the two.
    NumericalError
        If weights are not finite. Whatever is raised, for want of room as well, both are as they
        were: memories turn in place, so that a copy of the first's learns.

    Warns
    -----
    MergeWarning
        If what the two know hardly goes together, when they are merged.
    """
    where = f"op.nn.{type(one).__name__}.merge"
    for wrong in differences(one, two):
        raise MergeError(f"{where}: {wrong}")
    if two.memory_ is None:
        return
    if not bool(two._weights.isfinite().all()):  # noqa: SLF001  a file of two learners' insides
        raise NumericalError(
            f"{where}: the weights of the second must be finite, got some that are not. Load it as "
            "it was before they were changed."
        )
    before = {name: getattr(one, name) for name in one.kept}
    weights = one.network.weights()
    try:
        apart = _join(one, two, rows, where)
    except BaseException:
        one.network.set_weights(weights)
        for name, value in before.items():
            setattr(one, name, value)
        raise
    if apart is not None:
        warnings.warn(f"{where}: {apart}", MergeWarning, stacklevel=3)


def _join(one: Any, two: Any, rows: Any, where: str) -> str | None:
    """Find the weights, try them, and only then change what the first remembers.

    Returns what is to be said of parts that hardly go together.
    """
    begun, w = one.memory_ is not None, one._weights.clone()  # noqa: SLF001
    theirs = two._weights.to(w).clone()  # noqa: SLF001
    said = _said(two).near(w)
    straight = two._linear if one._linear is None else one._linear  # noqa: SLF001
    one._begin(w, two._outputs, straight)  # noqa: SLF001
    before, exact = one.memory_, bool(one.noise or straight)
    mine = None if exact else _said(one).near(w)
    if not begun:
        found = _Merged(theirs, 0.0)
    elif exact:
        found = _learned(before, w, theirs, said)
    else:
        found = _between(w, theirs, mine, said)
    if not bool(one._sound(found.w)):  # noqa: SLF001
        raise NumericalError(
            f"{where}: the merged weights must be finite in {one.network.dtype}, got some that are "
            "not. Merge modules of float32 or float64, or parts that are nearer to each other."
        )
    if rows is not None:
        refuse_worse(one, two, found.w, rows, where)
    moves = 0.0, 0.0
    if not one.noise:
        own = before.forgets(found.w, w) if mine is None else mine.moved(found.w, w)
        moves = float(own), float(said.moved(found.w, theirs))
    mine = None  # as long as the copy that takes its place
    step = (_apart(before) if begun else before).merged(w, said)
    against = step.contradictions if exact else 0  # between the two, none of them wins
    _take(one, two, step._replace(w=found.w, contradictions=against), moves)
    return _warned(found.reach, exact=exact) if found.reach > _FAR and not straight else None


def _apart(memory: Any) -> Any:
    """The same memory in columns of its own, where it may write in them; it is as long again."""
    return copy.deepcopy(memory) if hasattr(memory, "split") else memory


def _take(one: Any, two: Any, step: Any, moves: tuple[float, float]) -> None:
    """Let the first be as after a step that can have moved its past answers, and the other's."""
    own, came = (each.forgetting_bound_.all_steps for each in (one, two))
    one._take(step.w)  # noqa: SLF001  as above
    one._memory = step.memory  # noqa: SLF001
    one._against = one._against + two.contradictions_ + step.contradictions  # noqa: SLF001
    if not one.noise:  # else there is no count of it
        one._forgotten = math.hypot(own + moves[0], came + moves[1])  # noqa: SLF001  of other rows
    one._refused = one._refused + two.rows_refused_  # noqa: SLF001
    one.rows_seen_ += two.rows_seen_
    one._outputs = one._outputs or two._outputs  # noqa: SLF001
    one._shape = two._shape if one._shape is None else one._shape  # noqa: SLF001


def _warned(reach: float, *, exact: bool) -> str:
    done = "went so far" if exact else "stay between the two"
    return (
        "what two networks know should go together near the two, got parts that would "
        f"meet {reach:.1f} times as far from their middle as they are; the merged weights {done}. "
        "Measure them: merge(other, rows=(x, y)) refuses what is worse than its parts. Merge "
        "earlier, or use a memory with a limit, a wider network, or more noise."
    )


def _said(learner: Any) -> Any:
    """What a learner's memory says, where the memory is."""
    place = learner.memory_device or learner.network.device
    now, start = learner._weights, learner._start  # noqa: SLF001  as above
    began = None if start is None else start.to(place)
    return learner.memory_.evidence(now.to(place), began)


def _learned(memory: Any, w: Any, theirs: Any, said: Any) -> _Merged:
    """The weights after a memory has learned evidence, part by part; nothing is written."""
    new = w.clone()
    for part, at, each in _parts(memory, said, len(w)):
        now = w[at]
        error = each.answers - linalg.inner(each.rows.T, now[:, None]).reshape(each.answers.shape)
        new[at] = fitted(part, now, each.rows.T, error, each.noise, 1).w
    apart = float(linalg.length(w - theirs)) / 2.0
    far = float(linalg.length(new - (w + theirs) / 2.0))
    return _Merged(new, far / apart if apart else 0.0)


def _between(w: Any, theirs: Any, mine: Any, said: Any) -> _Merged:
    """(1), part by part."""
    new, far, apart = (w + theirs) / 2.0, 0.0, 0.0
    for one, at, two in _parts(mine, said, len(w)):
        d = (w[at] - theirs[at])[:, None] / 2.0
        C = torch.cat((one.rows, two.rows))
        asked = linalg.host(linalg.inner(C.T, d))[:, 0]
        asked[len(one.rows) :] *= -1.0
        radius = float(linalg.length(d))
        share, length = _shortened(linalg.host(linalg.inner(C.T, C.T)), asked, radius, C)
        new[at] += linalg.times(C.T, share[:, None])[:, 0]
        far, apart = np.hypot(far, length), np.hypot(apart, radius)
    return _Merged(new, far / apart if apart else 0.0)


def _shortened(K: Any, asked: Any, radius: float, C: Any) -> tuple[Any, float]:
    """The x for which w = m + Cᵀ x is (1), of K = C Cᵀ; and its length with the least ρ."""
    lam, V = linalg.eigh(K)
    lam = np.maximum(lam, 0.0)
    known = V.T @ asked
    low = linalg.rounding(C) * lam.max(initial=0.0)
    if not low or not radius:
        return 0.0 * asked, 0.0

    def length(rho: float) -> float:
        return float(np.linalg.norm(np.sqrt(lam) * known / (lam + rho)))

    most, rho, high = length(low), low, low
    while length(high) > radius:
        high *= 2.0
    while high > low * (1.0 + 1e-9):
        rho = np.sqrt(low * high)
        low, high = (rho, high) if length(rho) > radius else (low, rho)
    return V @ (known / (lam + high)), most


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
