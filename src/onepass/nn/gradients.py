"""Gradients: which gradients of a row are kept, so that later steps stay orthogonal to them.

For outputs f (c) of a row of class y, orthogonal gradient descent keeps ([1], section 4)

    outputs   ∇f_1 … ∇f_c          all of them, "OGD-ALL"                                   (1)
    average   (1/c) Σ_k ∇f_k       "OGD-AVE"                                                (2)
    logit     ∇f_y                 that of the ground truth alone, "OGD-GTL"                (3)

With (1) no output moves, to first order, at c times the memory; (3) is what its authors found to
do best for the memory that it takes.

[1] M. Farajtabar, N. Azizan, A. Mott, A. Li, "Orthogonal Gradient Descent for Continual Learning",
    AISTATS 2020.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Literal, TypeAlias

import numpy as np
import torch
from torch import Tensor

from onepass import linalg
from onepass.errors import NumericalError, ParameterError
from onepass.nn.batch import Batch
from onepass.nn.module import Network

__all__ = [
    "GRADIENTS",
    "GradientsName",
    "begun",
    "check_gradients",
    "count",
    "entered",
    "finite_rows",
    "gathered",
    "left_out",
    "of_rows",
    "slots",
]

GradientsName: TypeAlias = Literal["logit", "outputs", "average"]
GRADIENTS = ("logit", "outputs", "average")

_AT_ONCE = 128  # gradients that enter a memory together: each time it may take an SVD


def check_gradients(gradients: object, where: str, *, classes: bool = True) -> None:
    """Refuse a choice that there is not, or that needs classes where there are none.

    Raises
    ------
    ParameterError
    """
    if gradients not in GRADIENTS:
        raise ParameterError(
            f"{where}: `gradients` must be one of {', '.join(GRADIENTS)}, got {gradients!r}. "
            "Use 'logit' for classes, 'outputs' for numbers."
        )
    if gradients == "logit" and not classes:
        raise ParameterError(
            f"{where}: `gradients` must be 'outputs' or 'average' where answers are numbers, got "
            "'logit', which is the output of a row's class. Use 'outputs', or a loss for classes."
        )


def count(gradients: str, c: int) -> int:
    """How many gradients a row has."""
    return c if gradients == "outputs" else 1


def of_rows(
    network: Network, rows: Batch, y: Tensor | None, gradients: str, at: Sequence[int] | None = None
) -> tuple[Tensor, Tensor]:
    """The gradients of rows at the present weights; those that are not finite are zero.

    Parameters
    ----------
    network : Network
    rows : Batch
    y : Tensor of shape (n, c)
        1 at the class of each row, else 0; for ``"logit"`` alone.
    gradients : {"logit", "outputs", "average"}
    at : sequence of int, optional
        Of these rows alone, in this order.

    Returns
    -------
    gradients : Tensor of shape (n·k, p)
        Neighbours are of one row. No memory keeps zeros.
    good : Tensor of shape (n·k,)
        Which are finite; of a device, there.
    """
    if gradients == "outputs":
        parts = [rows] if at is None else [rows[i] for i in at]
        found = torch.cat([network.jacobian(part)[1] for part in parts])
    else:
        # row by row, a backward pass each: all c outputs at once would be c times the work
        chosen = range(len(rows)) if at is None else at
        seeds = y if gradients == "logit" else None
        found = torch.stack([_gradient(network, rows[i], seeds, i) for i in chosen])
    found = linalg.widened(found)
    good = found.isfinite().all(dim=1)
    return torch.where(good[:, None], found, 0.0), good


def _gradient(network: Network, row: Batch, y: Tensor | None, i: int) -> Tensor:
    """(3), with the indicator y of the classes of all rows; (2) without."""

    def seed(out: Tensor) -> Tensor:
        return torch.full_like(out, 1.0 / out.shape[1]) if y is None else y[i : i + 1]

    return network.gradient(row, seed)[1]


def finite_rows(network: Network, rows: Batch, slope: Callable[[Tensor, int], Tensor]) -> list[int]:
    """Which rows have finite outputs and a finite gradient, each asked alone.

    Parameters
    ----------
    network : Network
    rows : Batch
    slope : callable
        The derivative of a row's loss in its outputs (1, c), of these and of the row's place.
    """
    found = []
    for i, row in enumerate(rows):
        said, g = network.gradient(row, lambda out, i=i: slope(out, i))
        if linalg.finite(said, g):
            found.append(i)
    return found


def left_out(good: Sequence[Tensor], where: str) -> int:
    """How many gradients of a task were not finite; a device is waited for, once a task.

    Parameters
    ----------
    good : sequence of Tensors of shape (k,)
        Of all its gradients, part by part.
    where : str

    Raises
    ------
    NumericalError
        If none was finite.
    """
    which = torch.cat(list(good))
    lost = int((~which).sum())
    if lost == len(which):
        raise NumericalError(
            f"{where}: the gradients of the task's rows must be finite, got {lost} of which none "
            "is. Nothing was kept, and the task is not over: look at the rows, or at weights "
            "that have grown too large."
        )
    return lost


def begun(specification: Any, p: int, like: Tensor, where: str, at_once: int = _AT_ONCE) -> Any:
    """The memory of no gradients of p weights, of the kind of ``like``, so many coming at once.

    Raises
    ------
    ParameterError
        If it cannot say which directions are not free.
    """
    memory = specification.start(p, min(at_once, _AT_ONCE, p), 0.0, like)
    if not hasattr(memory, "settled"):
        raise ParameterError(
            f"{where}: `memory` must keep directions, got {specification!r}. Use a number m, None "
            "for all directions, or Principal, LastDirections or Random of op.memory."
        )
    return memory


def gathered(parts: Iterable[Tensor]) -> Iterator[Tensor]:
    """The same gradients (k, p), as many together as should enter a memory at once."""
    held: list[Tensor] = []
    for part in parts:
        held.append(part)
        if sum(map(len, held)) >= _AT_ONCE:
            yield torch.cat(held)
            held = []
    if held:
        yield torch.cat(held)


def entered(memory: Any, w: Tensor, J: Tensor) -> Any:
    """The memory after gradients (k, p) came, none of which moves a weight.

    They are learned as rows that are already fitted: with errors e = 0 the one equation leaves w
    as it is, and takes their directions from those that are free.
    """
    for part in J.split(_AT_ONCE):
        nothing = part.new_zeros(len(part))
        memory = memory.learn(w, part.T, nothing, np.zeros(len(part))).memory
    return memory


def slots(seen: int, n: int, k: int, seed: tuple[int, ...]) -> dict[int, int]:
    """Which of the next n rows take which of k places, so that each row is as likely as another.

    Algorithm R (J. S. Vitter, "Random sampling with a reservoir", 1985): row i > k takes a place
    with the chance k / i. Lots depend on the seed and the number of rows seen alone.

    Parameters
    ----------
    seen : int
        Rows before these.
    n, k : int
    seed : tuple of int

    Returns
    -------
    rows : dict
        Place -> row of the n.
    """
    at, bits = np.arange(seen, seen + n), np.random.PCG64(np.random.SeedSequence(seed))
    bits.advance(seen)  # one number a row, so that no cutting into batches matters
    places = np.where(at < k, at, (np.random.Generator(bits).random(n) * (at + 1)).astype(np.int64))
    return {int(place): row for row, place in enumerate(places) if place < k}
