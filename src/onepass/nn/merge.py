"""Merge two copies of a module, each of which learned a stream.

What a learner knows is told by its memory in a few rows A (:mod:`onepass.memory.evidence`): each
direction that it keeps, as long as it is, answered by A w_a, its own weights. For a module linear
in its weights, learning the second's rows B is learning the stream that they stand for: then that
is done, exactly, and the step is orthogonal to all that the first knows.

For other modules the merged weights minimise (1) below.

Kept for this are, with noise, the weights before the first row (p numbers); without noise the
evidence needs none, and a fingerprint of them tells whether two copies began alike.

What each knows is evidence: a few rows A that its own weights w_a answer, or B and w_b. Of a module
linear in its weights the first learns the other's, exactly as it would have learned its rows. Of
other modules both A and B are of linearisations that have turned since, each along a way of its
own. A memory that let go of something tells by how much the answers of its rows can move besides
(:mod:`onepass.memory.principal`), by up to √D ‖w − w_a‖, and both together move least with

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

Learners that differ in more than their weights are refused, with the first difference. (1)
describes linearisations of the networks, and only rows can show whether these hold: rows may be
given to measure the merged weights. The measure is √(mean squared error) over rows and outputs, or
the mean of −log softmax.
"""

import copy
import hashlib
import math
import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from onepass import linalg
from onepass.errors import MergeError, MergeWarning, NumericalError, ParameterError
from onepass.linalg.update import Step
from onepass.memory.blocks import BlockEvidence
from onepass.memory.evidence import Evidence
from onepass.nn.learner import Learner
from onepass.nn.losses import targets
from onepass.nn.memory import fitted
from onepass.nn.module import Network
from onepass.types import Floats

__all__ = [
    "Merged",
    "between",
    "differences",
    "fingerprint",
    "learned",
    "lost",
    "merge",
    "refuse_worse",
    "share_moved",
]


class Merged(NamedTuple):
    """Weights (p,), and how far from the middle both demand to go, if ‖w_a − w_b‖ / 2 is 1."""

    w: Tensor
    reach: float


def learned(memory: Any, w: Tensor, theirs: Tensor, said: Evidence | BlockEvidence) -> Merged:
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
        error = each.targets - known.reshape(each.targets.shape)
        new[at] = fitted(part, now, each.rows.T, error, each.noise, 1).w
    apart = float(linalg.length(w - theirs)) / 2.0
    far = float(linalg.length(new - (w + theirs) / 2.0))
    return Merged(new, far / apart if apart else 0.0)


def between(weights: tuple[Tensor, Tensor], said: Any, noise: float, start: Any) -> Merged:
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
    K: Floats, known: Floats, shift: float, least: float, ball: float, C: Tensor
) -> tuple[float, Floats, float]:
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


def lost(said: Evidence | BlockEvidence) -> float:
    """D of evidence, of all its parts.

    Parameters
    ----------
    said : Evidence or Several
    """
    return float(sum(each.lost for each in getattr(said, "parts", [said])))


def share_moved(
    new: Tensor,
    weights: tuple[Tensor, Tensor],
    said: tuple[Evidence | BlockEvidence, Evidence | BlockEvidence],
) -> float:
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


_ALIKE = ("noise", "loss", "by_layer")


def fingerprint(w: Tensor) -> str:
    """What tells weights from others; a device is waited for.

    Parameters
    ----------
    w : Tensor of shape (p,)
    """
    plain = w.detach().cpu().contiguous().view(torch.uint8).numpy()
    return hashlib.sha256(plain).hexdigest()


def differences(one: Any, two: Any) -> Iterator[str]:
    """Why two cannot be merged: each as the rest of a message.

    Parameters
    ----------
    one, two : learners of op.nn
    """
    if type(one) is not type(two):
        yield (
            f"`other` must be an op.nn.{type(one).__name__} as well, got {type(two).__name__}. "
            "Learn all parts with one kind of learner."
        )
        return
    if one.merging == "refused":
        yield (
            "a learner must keep what its rows said, got one whose memory keeps nothing of them. "
            "Use op.nn.ORFit with a memory."
        )
    if one is two or one.module is two.module:
        yield (
            "the two must have modules of their own, got one module twice: its rows would count "
            "twice. Give each part of a stream a copy (copy.deepcopy) and a learner of its own."
        )
        return
    if one._specification != two._specification:  # noqa: SLF001  10 is Principal(10)
        yield (
            f"`memory` must be the same in both, {one.memory!r} as in the first, got "
            f"{two.memory!r}. Learn all parts with the same arguments."
        )
    for name in _ALIKE:
        mine, came = getattr(one, name), getattr(two, name)
        if mine != came:
            yield (
                f"`{name}` must be the same in both, {mine!r} as in the first, got {came!r}. "
                "Learn all parts with the same arguments."
            )
    mine, came = one.network.columns, two.network.columns
    if mine and came and mine != came:
        yield (
            f"the columns must be the same in both, in one order, {mine} as in the first, got "
            f"{came}. Give all parts of a stream their columns in one order."
        )
    mine, came = (each._shared for each in (one, two))  # noqa: SLF001
    if mine != came and not {one.memory_, two.memory_} & {None}:
        yield (
            "both must store directions in one form, got one whose outputs share directions and "
            "one whose outputs do not: a former version saved one of them. Learn both anew."
        )
    yield from _unlike_modules(one.network, two.network)
    yield from _unlike_starts(one, two)


def _unlike_modules(one: Network, two: Network) -> Iterator[str]:
    mine, came = (dict(zip(each.names, each.shapes, strict=True)) for each in (one, two))
    for name in [*mine, *came]:
        if mine.get(name) != came.get(name):
            yield (
                f"both modules must learn the same weights, {name!r} of shape {mine.get(name)} in "
                f"the first, got {came.get(name)}. Make both as copies of one module "
                "(copy.deepcopy), with the same `learns`."
            )
    learning = set(one.names)
    fixed, others = (
        {
            **{name: each for name, each in net.module.named_parameters() if name not in learning},
            **dict(net.module.named_buffers()),
        }
        for net in (one, two)
    )
    for name in [*fixed, *others]:
        one_has, two_has = fixed.get(name), others.get(name)
        if one_has is None or two_has is None or not _equal(one_has, two_has):
            yield (
                f"what does not learn must be the same in both modules, got another {name!r}. "
                "Make both as copies of one module (copy.deepcopy)."
            )


def _equal(one: Tensor, two: Tensor) -> bool:
    return one.shape == two.shape and bool(torch.equal(one.detach(), two.detach().to(one)))


def _unlike_starts(one: Any, two: Any) -> Iterator[str]:
    """Both began at the same weights; one that has not begun is where it begins."""
    if two._started_at is None:  # noqa: SLF001
        return
    began = one._started_at or fingerprint(one._weights)  # noqa: SLF001
    if began != two._started_at:  # noqa: SLF001
        yield (
            "both modules must have begun at the same weights, got others. Copy the module "
            "(copy.deepcopy) before either learns, and give each learner its own copy."
        )


_WORSE = 1.01  # times the better of the two: what rounding and few rows may do
_LEAST = 1e-4  # of the answers' size: below, all is fitted


def refuse_worse(one: Learner, two: Learner, w: Tensor, rows: object, where: str) -> None:
    """Refuse weights that say less of rows than the better of two learners.

    Parameters
    ----------
    one, two : learners of op.nn
    w : Tensor of shape (p,)
        The merged weights.
    rows : tuple (x, y)
        Of both parts of the stream, or of what will come.
    where : str
        What the user called, for messages.

    Raises
    ------
    ParameterError
        If these are no rows and their answers.
    MergeError
        If the merged weights are worse. The modules are as they were.
    """
    if not isinstance(rows, (tuple, list)) or len(rows) != 2:
        raise ParameterError(
            f"{where}: `rows` must be a pair (x, y), got {type(rows).__name__}. Give rows of both "
            "parts, with their answers."
        )
    x, y = rows
    asked = one.network.prepare(x, where)
    if not len(asked):
        raise ParameterError(
            f"{where}: `rows` must hold at least one row, got none. Leave it out to merge without "
            "a measure."
        )
    said = [one.network.outputs(asked), two.outputs(x)]
    wanted = targets(y, len(asked), said[0].shape[1], one.loss, said[0], where)
    before = one.network.weights()
    try:
        one.network.set_weights(w.to(before.dtype))
        said.append(one.network.outputs(asked))
    finally:
        one.network.set_weights(before)
    mine, theirs, merged = (_error(one.loss, each, wanted) for each in said)
    size = 1.0 if one.loss == "cross_entropy" else float(wanted.square().mean().sqrt())
    if not merged <= max(_WORSE * min(mine, theirs), _LEAST * size):
        raise MergeError(
            f"{where}: the merged network must be no worse of `rows` than its parts, got errors of "
            f"{merged:.3g} where the first has {mine:.3g} and the second {theirs:.3g}. Keep the "
            "better of the two and let it learn the other's stream; or merge earlier, or with a "
            "memory with a limit, a wider network, or noise > 0."
        )


def _error(loss: str, said: Tensor, wanted: Tensor) -> float:
    said, wanted = said.double(), wanted.to(said.device)
    if loss == "cross_entropy":
        return -float((wanted * torch.log_softmax(said, dim=1)).sum(dim=1).mean())
    return float((said - wanted).square().mean().sqrt())


_FAR = 2.0  # times half the distance of the two: beyond, they hardly go together
_MUCH = 0.07  # of the size of answers: from there a merge is told to be in doubt


def merge(one: Any, two: Any, rows: object = None) -> None:
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
    before = {name: getattr(one, name) for name in one.kept if "." not in name}
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


def _join(one: Any, two: Any, rows: object, where: str) -> str | None:
    """Find the weights, try them, and only then change what the first remembers.

    Returns what is to be said of parts that hardly go together.
    """
    begun, w = one.memory_ is not None, one._weights.clone()  # noqa: SLF001
    straight = two._linear if one._linear is None else one._linear  # noqa: SLF001
    one._shared = two._shared  # noqa: SLF001
    one._begin(w, two._outputs, straight)  # noqa: SLF001
    w, theirs = one._matrix(w), one._matrix(two._weights.to(w).clone())  # noqa: SLF001
    said = _said(two).near(w)
    mine = None if straight or not begun else _said(one).near(w)
    if mine is not None and one.noise and not (lost(mine) or lost(said)):
        mine = None  # what learning does, in fewer reads
    exact, before = mine is None, one.memory_
    if not begun:
        found = Merged(theirs, 0.0)
    elif exact:
        found = learned(before, w, theirs, said)
    else:
        found = between((w, theirs), (mine, said), one.noise, one._start)  # noqa: SLF001
    _try(one, two, one._vector(found.w), rows, where)  # noqa: SLF001
    moves, share = (0.0, 0.0), 0.0
    if mine is not None and rows is None and lost(mine) + lost(said):
        share = share_moved(found.w, (w, theirs), (mine, said))
    if not one.noise:
        own = before.forgetting_bound(found.w, w) if mine is None else mine.moved(found.w, w)
        moves = float(own), float(said.moved(found.w, theirs))
    mine = None  # as long as the copy that takes its place
    step = (_apart(before) if begun else before).merged(w, said)
    against = step.inconsistent_rows if exact else 0  # between the two, none of them wins
    _take(one, two, step._replace(w=found.w, inconsistent_rows=against), moves)
    if straight:
        return None
    return _warned(found.reach, exact=exact) if found.reach > _FAR else _doubted(share)


def _try(one: Learner, two: Learner, w: Tensor, rows: object, where: str) -> None:
    """Refuse merged weights that the module cannot hold, or that say less of rows than the two."""
    if not bool(one._sound(w)):  # noqa: SLF001
        raise NumericalError(
            f"{where}: the merged weights must be finite in {one.network.dtype}, got some that are "
            "not. Merge modules of float32 or float64, or parts that are nearer to each other."
        )
    if rows is not None:
        refuse_worse(one, two, w, rows, where)


def _apart(memory: Any) -> Any:
    """The same memory in columns of its own, where it may write in them; it is as long again."""
    return copy.deepcopy(memory) if hasattr(memory, "split") else memory


def _take(one: Any, two: Any, step: Step, moves: tuple[float, float]) -> None:
    """Let the first be as after a step that can have moved its past answers, and the other's."""
    own, came = (each.forgetting_bound_.all_steps for each in (one, two))
    one._take(one._vector(step.w))  # noqa: SLF001  as above
    one._memory = step.memory  # noqa: SLF001
    one._against = one._against + two.inconsistent_rows_ + step.inconsistent_rows  # noqa: SLF001
    if not one.noise:  # else there is no count of it
        one._forgotten = math.hypot(own + moves[0], came + moves[1])  # noqa: SLF001  of other rows
    one._refused = one._refused + two.rows_refused_  # noqa: SLF001
    one.rows_seen_ += two.rows_seen_
    one._outputs = one._outputs or two._outputs  # noqa: SLF001
    one._shape = two._shape if one._shape is None else one._shape  # noqa: SLF001
    one.network.columns = one.network.columns or two.network.columns


def _warned(reach: float, *, exact: bool) -> str:
    done = "went so far" if exact else "stay between the two"
    return (
        "what two networks know should go together near the two, got parts that would "
        f"meet {reach:.1f} times as far from their middle as they are; the merged weights {done}. "
        "Measure them: merge(other, rows=(x, y)) refuses what is worse than its parts. Merge "
        "earlier, or use a memory with a limit, a wider network, or more noise."
    )


def _doubted(share: float) -> str | None:
    """What is to be said of answers that can have moved by such a share of their size."""
    if share < _MUCH:
        return None
    return (
        "what two networks know should hardly move as they become one, got answers that can have "
        f"moved by up to {100.0 * share:.0f} % of their size, for what the memories let go of. "
        "Measure them: merge(other, rows=(x, y)) refuses what is worse than its parts. Merge "
        "earlier, or use a larger memory, a wider network, or more noise."
    )


def _said(learner: Any) -> Any:
    """What a learner's memory says, where the memory is."""
    place = learner.memory_device or learner.network.device
    now, start = learner._matrix(learner._weights), learner._start  # noqa: SLF001  as above
    began = None if start is None else learner._matrix(start).to(place)  # noqa: SLF001
    return learner.memory_.evidence(now.to(place), began)
