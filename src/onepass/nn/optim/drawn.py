"""Drawn: rows of a task, from a loader that is read once, each as likely as another."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch

from onepass.errors import ParameterError, ShapeError, TypeMismatchError
from onepass.nn.batch import Batch, joined, mapped
from onepass.nn.gradients import slots
from onepass.nn.losses import targets
from onepass.nn.module import Network

__all__ = ["Labelled", "drawn", "together"]


class Labelled(NamedTuple):
    """Rows, and what is known of their classes."""

    rows: Batch
    classes: Any
    """(n, c), 1 at the class of each row; None where classes do not matter."""


def drawn(
    loader: Any, k: int | None, seed: tuple[int, ...], network: Network, where: str, *, labels: bool
) -> Iterator[Labelled]:
    """Rows of a task: k of them, each by itself, in no order; or all, batch by batch.

    Parameters
    ----------
    loader : iterable of batches (x, y), or one such batch, a tuple
        Rows lie where they lie: they are taken to the module's device. Where classes do not matter,
        batches may be x alone.
    k : int or None
        How many rows; None: all.
    seed : tuple of int
        What they are drawn from.
    network : Network
    where : str
        What the user called, for messages.
    labels : bool
        Whether classes are wanted.

    Raises
    ------
    ParameterError, ShapeError, TypeMismatchError, NotFiniteError, LabelError
        If there are no rows, or they or their classes do not fit.
    """
    seen, kept = 0, dict[int, Labelled]()
    for at, batch in enumerate(_batches(loader, where)):
        called = where if isinstance(loader, tuple) else f"{where}, batch {at} of `loader`"
        found = _looked_over(batch, network, called, labels=labels)
        n = len(found.rows)
        if k is None and n:
            yield found
        elif n:
            for place, i in slots(seen, n, k or 0, seed).items():
                kept[place] = _alone(found, i)
        seen += n
    if not seen:
        raise ParameterError(
            f"{where}: `loader` must give the rows of a task, got none. A generator can be read "
            "once only: make a new one."
        )
    yield from kept.values()


def together(rows: list[Batch]) -> list[Batch]:
    """Rows as one batch where they are of one shape and tensors alone, else as they are."""
    shapes = {tuple(tuple(each.shape) for each in row.tensors) for row in rows}
    leaves = [*rows[0].args, *rows[0].kwargs.values()]
    if len(shapes) > 1 or not all(isinstance(each, torch.Tensor) for each in leaves):
        return rows
    return [joined(rows)]


def _batches(loader: Any, where: str) -> Iterable[Any]:
    arrays = (torch.Tensor, np.ndarray)
    if isinstance(loader, tuple):
        return [loader]
    if isinstance(loader, (*arrays, Mapping)) or not (
        hasattr(loader, "__iter__") or hasattr(loader, "__getitem__")
    ):
        raise TypeMismatchError(
            f"{where}: `loader` must give batches (x, y) of the task, got "
            f"{type(loader).__name__}. Give a torch.utils.data.DataLoader, or one batch (x, y)."
        )
    return loader  # type: ignore[no-any-return]


def _looked_over(batch: Any, network: Network, where: str, *, labels: bool) -> Labelled:
    x, y = batch, None
    if isinstance(batch, (tuple, list)):
        if not 1 <= len(batch) <= 2:
            raise ShapeError(
                f"{where}: `loader` must give batches (x, y), got {len(batch)} parts. Where the "
                "module takes several, give them as one: ((x1, x2), y)."
            )
        x, y = (batch[0], None) if len(batch) == 1 else batch
    if labels and y is None:
        raise ShapeError(
            f"{where}: `loader` must give batches (x, y) with the class of each row, got x alone. "
            "Use gradients='outputs', which needs no classes."
        )
    if y is not None:
        _refuse_single(y, where)
    rows = network.prepare(mapped(x, lambda each: each.to(network.device)), where)
    if isinstance(y, (torch.Tensor, np.ndarray)) and len(y) != len(rows):
        raise ShapeError(
            f"{where}: `y` must hold one answer for each of {len(rows)} rows, got {len(y)}. Give "
            "the rows with their own answers, or x alone where no classes are asked for."
        )
    if not labels or not len(rows):
        return Labelled(rows, None)
    with torch.no_grad():
        like = network.outputs(rows[:1])
    if like.shape[1] == 1:
        raise ParameterError(
            f"{where}: `gradients` must be 'outputs' where the module has one output, got 'logit', "
            "the output of a row's class."
        )
    _refuse_numbers(y, where)
    return Labelled(rows, targets(y, len(rows), like.shape[1], "one_hot", like, where))


def _refuse_single(y: Any, where: str) -> None:
    """Refuse what has one answer: a row, where a batch of them belongs."""
    if np.ndim(y) == 0:
        raise ShapeError(
            f"{where}: `loader` must give batches of rows, got a single row. Wrap the data set in "
            "a torch.utils.data.DataLoader."
        )


def _refuse_numbers(y: Any, where: str) -> None:
    """Refuse answers that are no classes, and say what to do with them."""
    array = y if isinstance(y, torch.Tensor) else np.asarray(y)
    real = array.is_floating_point() if isinstance(array, torch.Tensor) else array.dtype.kind == "f"
    if real:
        raise TypeMismatchError(
            f"{where}: `loader` must give the class of each row, a whole number, with "
            f"gradients='logit', got {array.dtype}. Use gradients='outputs' for numbers."
        )


def _alone(found: Labelled, i: int) -> Labelled:
    """A copy of one row, that does not keep its batch."""
    return Labelled(
        found.rows[i].clone(), None if found.classes is None else found.classes[i : i + 1].clone()
    )
