"""Likeness: whether two learners of networks can be merged, or what the first difference is."""

import hashlib
from collections.abc import Iterator
from typing import Any

import torch

__all__ = ["differences", "fingerprint"]

_ALIKE = ("noise", "loss", "by_layer")


def fingerprint(w: Any) -> str:
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
