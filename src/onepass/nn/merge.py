"""Merge of two copies of a module that learned different streams.

The memory of a learner with weights w_a is summarised by evidence, a few pseudo-rows A with targets
A w_a (:mod:`onepass.memory.evidence`); B and w_b are those of the second learner. For a module
linear in its weights, learning the rows B is equivalent to learning the stream that they represent,
so the first learner learns these rows, and the result is exact.

For other modules, A and B belong to different linearisations. A memory that discarded directions
bounds the additional change of its predictions by √D ‖w − w_a‖ (:mod:`onepass.memory.principal`).
The merged weights minimise the total change

    min ‖A (w − w_a)‖² + D_a ‖w − w_a‖² + ‖B (w − w_b)‖² + D_b ‖w − w_b‖²                   (1)

so that poorly determined directions are interpolated. With noise r, both parts include the prior
around w₀; the term r (‖w − w_a‖² + ‖w − w_b‖² − ‖w − w₀‖²) is added, which equals one pass for a
linear module with D = 0. Without noise, nearly parallel directions of similar streams would make
the exact solution arbitrarily long, so that (1) is regularised by

    + ρ ‖w − m‖²,       m = (w_a + w_b) / 2                                                 (2)

with the smallest ρ >= 0 for which ‖w − m‖ ≤ ‖w_a − w_b‖ / 2 (a trust region [1]). The result does
not depend on the order of the two learners.

With noise, the initial weights (p numbers) are stored for merging; without noise, only their
fingerprint, to check that both copies had the same initial weights.

[1] J. J. Moré, "The Levenberg-Marquardt algorithm: implementation and theory", 1978.

Learners with different arguments or modules are rejected. Since (1) relies on linearisations,
validation rows may be passed to evaluate the merged weights, by the root mean squared error over
rows and outputs or by the mean cross entropy.
"""

from __future__ import annotations

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
from onepass.linalg import calibration
from onepass.linalg.update import Step
from onepass.memory.blocks import BlockEvidence
from onepass.memory.evidence import Evidence
from onepass.nn.example import computes, example_outputs
from onepass.nn.learner import Learner
from onepass.nn.memory import pending_step
from onepass.nn.module import Network
from onepass.nn.saving import state_attributes
from onepass.types import Floats


class Merged(NamedTuple):
    """Weights (p,), and the unconstrained distance from m in units of ‖w_a − w_b‖ / 2."""

    w: Tensor
    reach: float


def merge_linear(
    memory: Any, w: Tensor, theirs: Tensor, evidence: Evidence | BlockEvidence
) -> Merged:
    """Return the weights after a memory learns evidence, part by part; the memory is unchanged.

    Parameters
    ----------
    memory : state of a memory
    w, theirs : Tensors of shape (p,), or (p / c, c) where outputs share directions
        Weights of the memory and of the evidence.
    evidence : Evidence or BlockEvidence
    """
    new = w.clone()
    for part, at, each in _parts(memory, evidence, len(w)):
        now = w[at]
        products = linalg.inner(each.rows.T, now.reshape(len(now), -1))
        error = each.targets - products.reshape(each.targets.shape)
        new[at] = pending_step(part, now, each.rows.T, error, each.noise, 1).w
    apart = float(linalg.length(w - theirs)) / 2.0
    far = float(linalg.length(new - (w + theirs) / 2.0))
    return Merged(new, far / apart if apart else 0.0)


def merge_nonlinear(
    weights: tuple[Tensor, Tensor], evidence: Any, noise: float, start: Any
) -> Merged:
    """Return the minimiser of (1) and, without noise, (2), part by part.

    Parameters
    ----------
    weights : tuple of two Tensors of shape (p,)
    evidence : tuple of two of Evidence or BlockEvidence
        Evidence of each learner.
    noise : float
    start : Tensor of shape (p,)
        w₀, with noise.
    """
    (w, theirs), (mine, other) = weights, evidence
    new, far, apart = (w + theirs) / 2.0, 0.0, 0.0
    for first, at, second in _parts(mine, other, len(w)):
        d, middle = (w[at] - theirs[at]) / 2.0, new[at]
        least = first.lost + second.lost + noise
        shift = (first.lost - second.lost) * d  # shift of the centre of (1), times the total weight
        if noise:
            shift = shift + noise * (middle - start.to(w)[at])
        shift = shift / (least or 1.0)
        C = torch.cat((first.rows, second.rows))
        products = linalg.host(linalg.inner(C.T, torch.stack((d, shift), dim=1)))
        products[len(first.rows) :, 0] *= -1.0
        K, radius = linalg.host(linalg.inner(C.T, C.T)), float(linalg.length(d))
        ball = np.inf if noise else radius
        share, x, length = _trust_region_solution(
            K, products, float(linalg.length(shift)), least, ball, C
        )
        new[at] = middle + share * shift + linalg.times(C.T, x[:, None])[:, 0]
        far, apart = np.hypot(far, length), np.hypot(apart, radius)
    return Merged(new, far / apart if apart else 0.0)


def _trust_region_solution(
    K: Floats, products: Floats, shift: float, least: float, ball: float, C: Tensor
) -> tuple[float, Floats, float]:
    """Return the share and x of the solution w = m + share · shift + Cᵀ x, with K = C Cᵀ.

    Also returns the distance from m for ρ = 0. ``products`` are those of C with w_a − m (or
    w_b − m) and with the shift.
    """
    lam, V = linalg.eigh(K)
    lam = np.maximum(lam, 0.0)
    projected, moved = V.T @ products[:, 0], V.T @ products[:, 1]
    low = max(least, linalg.rounding(C) * lam.max(initial=0.0))
    if not low:
        return 0.0, 0.0 * lam, 0.0

    def at(rho: float) -> tuple[float, Any, float]:
        share = min(least / rho, 1.0)
        x = (projected - share * moved) / (lam + rho)
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


def discarded(evidence: Evidence | BlockEvidence) -> float:
    """Return the total D of evidence, over its parts.

    Parameters
    ----------
    evidence : Evidence or BlockEvidence
    """
    return float(sum(each.lost for each in getattr(evidence, "parts", [evidence])))


def relative_change(
    new: Tensor,
    weights: tuple[Tensor, Tensor],
    evidence: tuple[Evidence | BlockEvidence, Evidence | BlockEvidence],
) -> float:
    """Return the max change of predictions of both, √ of (1), relative to their norm.

    Parameters
    ----------
    new : Tensor of shape (p,)
        The merged weights.
    weights, evidence
        As in :func:`merge_nonlinear`.
    """
    (w, theirs), (mine, other) = weights, evidence
    moved = size = 0.0
    for first, at, second in _parts(mine, other, len(w)):
        for each, then in ((first, w[at]), (second, theirs[at])):
            moved = math.hypot(moved, each.moved(new[at], then))
            products = linalg.inner(each.rows.T, then[:, None])
            size = math.hypot(size, float(linalg.length(products)))
    return moved / size if size else 0.0


def _parts(memory: Any, evidence: Any, p: int) -> list[tuple[Any, Any, Any]]:
    """Return triples (memory, indices, evidence), one for all weights or one for each layer.

    ``memory`` may also be evidence.
    """
    if not hasattr(evidence, "parts"):
        return [(memory, slice(0, p), evidence)]
    each = []
    for part, place, piece in zip(memory.parts, evidence.places, evidence.parts, strict=True):
        at = torch.cat([torch.arange(*span, device=piece.rows.device) for span in place])
        each.append((part, at, piece))
    return each


# argument -> attribute to compare; a memory of 10 is Principal(10)
_ALIKE = {"memory": "_specification", "noise": "noise", "loss": "loss", "by_layer": "by_layer"}


def fingerprint(w: Tensor) -> str:
    """Return the SHA-256 of weights; synchronises with an accelerator.

    Parameters
    ----------
    w : Tensor of shape (p,)
    """
    plain = w.detach().cpu().contiguous().view(torch.uint8).numpy()
    return hashlib.sha256(plain).hexdigest()


def differences(first: Any, second: Any) -> Iterator[str]:
    """Yield the reasons why two learners cannot be merged, as parts of an error message.

    Parameters
    ----------
    first, second : learners of op.nn
    """
    if type(first) is not type(second):
        yield (
            f"`other` must be an op.nn.{type(first).__name__}, as the first, got "
            f"{type(second).__name__}. Use one kind of learner for all parts."
        )
        return
    if first.merging == "refused":
        yield (
            "the memory must be mergeable, got one that stores nothing of its rows. "
            "Use op.nn.ORFit with a memory."
        )
    if first is second or first.module is second.module:
        yield (
            "the two must have separate modules, got the same module, whose rows would count "
            "twice. Create a copy (copy.deepcopy) and a learner for each part of a stream."
        )
        return
    for name, attribute in _ALIKE.items():
        if getattr(first, attribute) != getattr(second, attribute):
            yield (
                f"`{name}` must be the same in both, {getattr(first, name)!r} as in the first, "
                f"got {getattr(second, name)!r}. Learn all parts with the same arguments."
            )
    mine, other = first.network.columns, second.network.columns
    if mine and other and mine != other:
        yield (
            f"the columns must be the same in both, in the same order, {mine} as in the first, got "
            f"{other}. Pass the columns in the same order for all parts of a stream."
        )
    yield from _module_differences(first.network, second.network)
    yield from _start_differences(first, second)
    yield from _function_differences(first, second)


def _module_differences(first: Network, second: Network) -> Iterator[str]:
    mine, other = (dict(zip(each.names, each.shapes, strict=True)) for each in (first, second))
    for name in [*mine, *other]:
        if mine.get(name) != other.get(name):
            yield (
                f"both modules must train the same weights, {name!r} of shape {mine.get(name)} in "
                f"the first, got {other.get(name)}. Create both as copies of one module "
                "(copy.deepcopy), with the same `learns`."
            )
    learning = set(first.names)
    fixed, others = (
        {
            **{name: each for name, each in net.module.named_parameters() if name not in learning},
            **dict(net.module.named_buffers()),
        }
        for net in (first, second)
    )
    for name in [*fixed, *others]:
        one_has, two_has = fixed.get(name), others.get(name)
        if one_has is None or two_has is None or not _equal(one_has, two_has):
            yield (
                "frozen parameters and buffers must be the same in both modules, got different "
                f"values of {name!r}. Create both as copies of one module (copy.deepcopy)."
            )


def _function_differences(first: Any, second: Any) -> Iterator[str]:
    """Compare the outputs of both modules for a fixed row, at the weights of the first."""
    form = first._example or second._example  # noqa: SLF001  of a class of this package
    expected, w = example_outputs(first.network, form), second.network.weights()
    second.network.set_weights(first.network.weights())
    try:
        same = computes(second.network, form, expected)
    finally:
        second.network.set_weights(w)
    if not same:
        yield (
            "both modules must compute the same function, got different outputs for the same "
            "weights. Create both as copies of one module (copy.deepcopy)."
        )


def _equal(first: Tensor, second: Tensor) -> bool:
    return first.shape == second.shape and bool(
        torch.equal(first.detach(), second.detach().to(first))
    )


def _start_differences(first: Any, second: Any) -> Iterator[str]:
    """Compare the initial weights; for a learner without rows, its current weights."""
    if second._started_at is None:  # noqa: SLF001
        return
    began = first._started_at or fingerprint(first._weights)  # noqa: SLF001
    if began != second._started_at:  # noqa: SLF001
        yield (
            "both modules must have the same initial weights, got different ones. Copy the module "
            "(copy.deepcopy) before training, and create a learner for each copy."
        )


_WORSE = 0.01  # tolerance relative to the better of the two
_LEAST = 1e-4  # relative to the targets: errors below count as zero


def refuse_worse(first: Learner, second: Learner, w: Tensor, rows: object) -> None:
    """Check that merged weights are no worse on rows than the better of two learners.

    Parameters
    ----------
    first, second : learners of op.nn
    w : Tensor of shape (p,)
        The merged weights.
    rows : tuple (x, y)
        Validation rows.

    Raises
    ------
    ParameterError
        If ``rows`` is not a pair of rows and targets.
    MergeError
        If the merged weights are worse. The modules are not changed.
    """
    if not isinstance(rows, (tuple, list)) or len(rows) != 2:
        raise ParameterError(
            f"`rows` must be a pair (x, y), got {type(rows).__name__}. Pass rows of "
            "both parts with their targets."
        )
    x, y = rows
    prepared = first.network.prepare(x)
    outputs = [first.network.outputs(prepared), second.outputs(x)]
    loss = first._row_loss  # noqa: SLF001  of a class of this package
    target = loss.targets(y, len(prepared), outputs[0].shape[1], outputs[0])
    before = first.network.weights()
    try:
        first.network.set_weights(w.to(before.dtype))
        outputs.append(first.network.outputs(prepared))
    finally:
        first.network.set_weights(before)
    mine, theirs, merged = (loss.error(each, target) for each in outputs)
    named = first.loss in {"squared", "one_hot"}
    size = float(target.square().mean().sqrt()) if named else 1.0
    best = min(mine, theirs)  # may be negative, as of torch.nn.PoissonNLLLoss
    if not merged <= best + max(_WORSE * abs(best), _LEAST * size):
        raise MergeError(
            "the merged network must be no worse on `rows` than its parts, got errors "
            f"of {merged:.3g}, with {mine:.3g} for the first and {theirs:.3g} for the "
            "second. Train the better of the two on the other's stream; or merge "
            "earlier, or use a memory with a limit, a wider network, or noise > 0."
        )


_FAR = 2.0  # max distance without a warning, in units of half the distance of the two
_MUCH = 0.07  # max relative change of predictions without a warning


def merge(first: Any, second: Any, rows: object = None) -> None:
    """Merge the second learner into the first.

    Parameters
    ----------
    first, second : ORFit
        The second is not changed.
    rows : tuple (x, y), optional
        Validation rows.

    Raises
    ------
    MergeError
        If the learners are incompatible or their memories cannot be merged; or if the merged
        weights are worse on ``rows`` than the better of the two.
    NumericalError
        If weights are not finite. On any exception, including MemoryError, both learners are
        unchanged: a copy of the first memory is updated.

    Warns
    -----
    MergeWarning
        If the two parts fit together poorly; the merge is done.
    """
    for difference in differences(first, second):
        raise MergeError(difference)
    if second.memory_ is None:
        return
    if not bool(second._weights.isfinite().all()):  # noqa: SLF001  private state of both learners
        raise NumericalError(
            "the weights of the second learner must be finite, got nan or infinity. "
            "Restore earlier weights."
        )
    before = {name: getattr(first, name) for name in state_attributes(first) if "." not in name}
    weights = first.network.weights()
    try:
        message = _join(first, second, rows)
    except BaseException:
        first.network.set_weights(weights)
        for name, value in before.items():
            setattr(first, name, value)
        raise
    if message is not None:
        warnings.warn(f"{type(first).__name__}.merge: {message}", MergeWarning, stacklevel=4)


def _join(first: Any, second: Any, rows: object) -> str | None:
    """Compute and check the merged weights, then update the first learner.

    Returns a warning about parts that fit together poorly, or None.
    """
    started, w = first.memory_ is not None, first._weights.clone()  # noqa: SLF001
    linear = second._linear if first._linear is None else first._linear  # noqa: SLF001
    first._shared = second._shared  # noqa: SLF001
    first._begin(None, w, second._outputs, linear)  # noqa: SLF001
    w, theirs = first._matrix(w), first._matrix(second._weights.to(w).clone())  # noqa: SLF001
    evidence = _evidence_of(second).near(w)
    mine = None if linear or not started else _evidence_of(first).near(w)
    if mine is not None and first.noise and not (discarded(mine) or discarded(evidence)):
        mine = None  # equals learning, which reads less memory
    exact, before = mine is None, first.memory_
    if not started:
        found = Merged(theirs, 0.0)
    elif exact:
        found = merge_linear(before, w, theirs, evidence)
    else:
        found = merge_nonlinear((w, theirs), (mine, evidence), first.noise, first._start)  # noqa: SLF001
    _check_merged(first, second, first._vector(found.w), rows)  # noqa: SLF001
    moves, share = (0.0, 0.0), 0.0
    if mine is not None and rows is None and discarded(mine) + discarded(evidence):
        share = relative_change(found.w, (w, theirs), (mine, evidence))
    if not first.noise:
        own = before.forgetting_bound(found.w, w) if mine is None else mine.moved(found.w, w)
        moves = float(own), float(evidence.moved(found.w, theirs))
    mine = None  # free it before the copy is made
    step = (_own_columns(before) if started else before).merged(w, evidence)
    against = step.inconsistent_rows if exact else 0  # interpolated: no row is rejected
    _commit_merge(first, second, step._replace(w=found.w, inconsistent_rows=against), moves)
    if linear:
        return None
    return (
        _distance_warning(found.reach, exact=exact)
        if found.reach > _FAR
        else _change_warning(share)
    )


def _check_merged(first: Learner, second: Learner, w: Tensor, rows: object) -> None:
    """Check that merged weights are finite in the module's dtype and no worse on rows."""
    if not bool(first._is_finite(w)):  # noqa: SLF001
        raise NumericalError(
            f"the merged weights must be finite in {first.network.dtype}, got nan or "
            "infinity. Merge modules of float32 or float64, or merge earlier."
        )
    if rows is not None:
        refuse_worse(first, second, w, rows)


def _own_columns(memory: Any) -> Any:
    """Copy a memory that updates in place; return other memories unchanged."""
    return copy.deepcopy(memory) if hasattr(memory, "split") else memory


def _commit_merge(first: Any, second: Any, step: Step, moves: tuple[float, float]) -> None:
    """Apply a merge step, with bounds on the changes of past predictions of both."""
    own, other = (each.forgetting_bound_.all_steps for each in (first, second))
    first._set_weights(first._vector(step.w))  # noqa: SLF001  as above
    first._memory = step.memory  # noqa: SLF001
    first._inconsistent = first._inconsistent + second.inconsistent_rows_ + step.inconsistent_rows  # noqa: SLF001
    if not first.noise:  # with noise there is no bound
        first._forgotten = math.hypot(own + moves[0], other + moves[1])  # noqa: SLF001  of other rows
    first._refused = first._refused + second.rows_refused_  # noqa: SLF001
    if first.calibration_ is None:
        first.calibration_ = second.calibration_
    elif second.calibration_ is not None:
        first.calibration_ = calibration.merged(first.calibration_, second.calibration_)
    first.rows_seen_ += second.rows_seen_
    first._outputs = first._outputs or second._outputs  # noqa: SLF001
    first._shape = second._shape if first._shape is None else first._shape  # noqa: SLF001
    first.network.columns = first.network.columns or second.network.columns


def _distance_warning(reach: float, *, exact: bool) -> str:
    done = "are that solution" if exact else "stay between the two"
    return (
        "the parts should have a joint solution near both, got one that is "
        f"{reach:.1f} times as far from their mean as they are; the merged weights {done}. "
        "Validate them: merge(other, rows=(x, y)) rejects a merge that is worse than its parts. "
        "Merge earlier, or use a memory with a limit, a wider network, or more noise."
    )


def _change_warning(share: float) -> str | None:
    """Return warning about the given relative change of predictions, or None if it is small."""
    if share < _MUCH:
        return None
    return (
        "a merge should hardly change predictions of its parts, got a possible change of "
        f"up to {100.0 * share:.0f} % of their size, due to directions that the memories "
        "discarded. Validate it: merge(other, rows=(x, y)) rejects a merge that is worse than its "
        "parts. Merge earlier, or use a larger memory, a wider network, or more noise."
    )


def _evidence_of(learner: Any) -> Any:
    """Return evidence of a learner's memory, on the device of the memory."""
    place = learner.memory_device or learner.network.device
    now, start = learner._matrix(learner._weights), learner._start  # noqa: SLF001  as above
    began = None if start is None else learner._matrix(start).to(place)  # noqa: SLF001
    return learner.memory_.evidence(now.to(place), began)
