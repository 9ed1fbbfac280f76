"""Merging: two copies of a module, each of which learned a stream, become one that knows both.

What the second learned is told by its memory in a few rows (:mod:`onepass.memory.evidence`): each
direction u that it keeps, answered by uᵀ w_b, its own weights. For a module linear in its weights,
learning them is learning its rows; what it had let go is not learned. Of other modules the rows
are those of its linearisation. Kept for this are, with noise, the weights before the first row (p
numbers); without noise the evidence needs none, and a fingerprint of them tells whether two copies
began alike.
"""

import hashlib
from collections.abc import Iterator
from typing import Any

import torch

from onepass.errors import MergeError, NumericalError

__all__ = ["fingerprint", "merge"]

_ALIKE = ("memory", "noise", "loss", "by_layer")


def fingerprint(w: Any) -> str:
    """What tells weights from others; a device is waited for.

    Parameters
    ----------
    w : Tensor of shape (p,)
    """
    plain = w.detach().cpu().contiguous().view(torch.uint8).numpy()
    return hashlib.sha256(plain.tobytes()).hexdigest()


def merge(one: Any, two: Any) -> None:
    """Let one learner learn what another has learned.

    Parameters
    ----------
    one, two : ORFit
        The second is not changed.

    Raises
    ------
    MergeError
        If they are not alike, or keep too little of the past.
    NumericalError
        If the second's weights are not finite. In both cases all is as it was.
    """
    where = f"op.nn.{type(one).__name__}.merge"
    for wrong in _differences(one, two):
        raise MergeError(f"{where}: {wrong}")
    if two.memory_ is None:
        return
    if not bool(two._weights.isfinite().all()):  # noqa: SLF001
        raise NumericalError(
            f"{where}: the weights of the second must be finite, got some that are not. Load it as "
            "it was before they were changed."
        )
    w = one._weights.clone()  # noqa: SLF001  a file of two learners' insides
    theirs = two._weights.to(w).clone()  # noqa: SLF001
    said = _said(two).near(w)
    one._begin(w, two._outputs)  # noqa: SLF001
    before = one.memory_
    step = before.merged(w, said)
    moves = (0.0, 0.0) if one.noise else (before.forgets(step.w, w), said.moved(step.w, theirs))
    one._joined(step, two, *map(float, moves))  # noqa: SLF001


def _said(learner: Any) -> Any:
    """What a learner's memory says, where the memory is."""
    place = learner.memory_device or learner.network.device
    now, start = learner._weights, learner._start  # noqa: SLF001  as above
    began = None if start is None else start.to(place)
    return learner.memory_.evidence(now.to(place), began)


def _differences(one: Any, two: Any) -> Iterator[str]:
    """Why two cannot be merged: each as the rest of a message."""
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
    for name in _ALIKE:
        mine, came = getattr(one, name), getattr(two, name)
        if mine != came:
            yield (
                f"`{name}` must be the same in both, {mine!r} as in the first, got {came!r}. "
                "Learn all parts with the same arguments."
            )
    yield from _unlike_modules(one.network, two.network)
    yield from _unlike_starts(one, two)


def _unlike_modules(one: Any, two: Any) -> Iterator[str]:
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


def _equal(one: Any, two: Any) -> bool:
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
