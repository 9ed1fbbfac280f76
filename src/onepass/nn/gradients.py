"""Gradients of rows that orthogonal gradient descent stores.

For outputs f (c) of a row of class y, orthogonal gradient descent stores ([1], section 4)

    outputs   ∇f_1 … ∇f_c          all of them, "OGD-ALL"                                   (1)
    average   (1/c) Σ_k ∇f_k       "OGD-AVE"                                                (2)
    logit     ∇f_y                 the output of the true class, "OGD-GTL"         (3)

(1) preserves all outputs, to first order, but takes c times the memory; the authors recommend (3).

[1] M. Farajtabar, N. Azizan, A. Mott, A. Li, "Orthogonal Gradient Descent for Continual Learning",
    AISTATS 2020.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import torch
from torch import Tensor

from onepass import linalg
from onepass.errors import NumericalError, ParameterError
from onepass.nn.batch import Batch
from onepass.nn.module import Network

GradientsName: TypeAlias = Literal["logit", "outputs", "average"]
GRADIENTS = get_args(GradientsName)

_AT_ONCE = 128  # gradients added to a memory together, with one SVD


def check_gradients(gradients: object, *, classes: bool = True) -> None:
    """Check the option ``gradients``.

    Raises
    ------
    ParameterError
    """
    if gradients not in GRADIENTS:
        raise ParameterError(
            f"`gradients` must be one of {', '.join(GRADIENTS)}, got {gradients!r}. Use "
            "'logit' for classes, 'outputs' for regression."
        )
    if gradients == "logit" and not classes:
        raise ParameterError(
            "`gradients` must be 'outputs' or 'average' for regression, got 'logit', "
            "the output of a row's class. Use 'outputs', or a loss for classes."
        )


def gradients_per_row(gradients: str, c: int) -> int:
    """Return the number of gradients per row."""
    return c if gradients == "outputs" else 1


def row_gradients(
    network: Network, rows: Batch, y: Tensor | None, gradients: str, at: Sequence[int] | None = None
) -> tuple[Tensor, Tensor]:
    """Return gradients of rows at the current weights; non-finite gradients are set to zero.

    Parameters
    ----------
    network : Network
    rows : Batch
    y : Tensor of shape (n, c), or None
        Targets; for ``"logit"`` one-hot classes.
    gradients : {"logit", "outputs", "average"}
    at : sequence of int, optional
        Indices of rows, in this order.

    Returns
    -------
    gradients : Tensor of shape (n·k, p)
        k consecutive gradients belong to one row. Memories ignore zero gradients.
    good : Tensor of shape (n·k,)
        Mask of the finite gradients, on the device.
    """
    if gradients == "outputs":
        parts = [rows] if at is None else [rows[i] for i in at]
        c = None if y is None else y.shape[1]
        computed = torch.cat([network.jacobian(part, c=c)[1] for part in parts])
    else:
        # one backward pass per row; the Jacobian of all c outputs would cost c times as much
        chosen = range(len(rows)) if at is None else at
        seeds = y if gradients == "logit" else None
        computed = torch.stack([_gradient(network, rows[i], seeds, i) for i in chosen])
    computed = linalg.widened(computed)
    good = computed.isfinite().all(dim=1)
    return torch.where(good[:, None], computed, 0.0), good


def _gradient(network: Network, row: Batch, y: Tensor | None, i: int) -> Tensor:
    """Return gradient (3) if y holds the one-hot classes of all rows, else (2)."""

    def seed(out: Tensor) -> Tensor:
        return torch.full_like(out, 1.0 / out.shape[1]) if y is None else y[i : i + 1]

    return network.gradient(row, seed)[1]


def finite_rows(network: Network, rows: Batch, slope: Callable[[Tensor, int], Tensor]) -> list[int]:
    """Return the indices of rows whose outputs and gradient are finite, each evaluated separately.

    Parameters
    ----------
    network : Network
    rows : Batch
    slope : callable
        Called with the outputs (1, c) of a row and its index; returns the derivative of its loss.
    """
    indices = []
    for i, row in enumerate(rows):
        outputs, g = network.gradient(row, lambda out, i=i: slope(out, i))
        if linalg.finite(outputs, g):
            indices.append(i)
    return indices


def count_nonfinite(good: Sequence[Tensor]) -> int:
    """Count the gradients of a task that are not finite; synchronises with an accelerator.

    Parameters
    ----------
    good : sequence of Tensors of shape (k,)
        Masks of finite gradients.

    Raises
    ------
    NumericalError
        If no gradient is finite.
    """
    finite = torch.cat(list(good))
    count = int((~finite).sum())
    if count == len(finite):
        raise NumericalError(
            "the gradients of the task's rows must be finite, got nan or infinity in "
            f"all {count}. Nothing was stored, and the task was not ended: check the "
            "rows, and weights that have grown too large."
        )
    return count


def start_memory(specification: Any, p: int, like: Tensor, at_once: int = _AT_ONCE) -> Any:
    """Create an empty memory for p weights, with the dtype and device of ``like``.

    Raises
    ------
    ParameterError
        If the memory does not store directions.
    """
    memory = specification.start(p, min(at_once, _AT_ONCE, p), 0.0, like)
    if not hasattr(memory, "settled"):
        raise ParameterError(
            f"`memory` must store directions, got {specification!r}. Use a number m, None for all "
            "directions, or Principal, LastDirections or Random of op.memory."
        )
    return memory


def chunked_gradients(parts: Iterable[Tensor]) -> Iterator[Tensor]:
    """Join gradients (k, p) into chunks of the size to add to a memory at once."""
    pending: list[Tensor] = []
    for part in parts:
        pending.append(part)
        if sum(map(len, pending)) >= _AT_ONCE:
            yield torch.cat(pending)
            pending = []
    if pending:
        yield torch.cat(pending)


def insert_gradients(memory: Any, w: Tensor, J: Tensor) -> Any:
    """Add gradients (k, p) to a memory without changing the weights.

    The gradients are learned as rows with errors e = 0, so that w does not change.
    """
    for part in J.split(_AT_ONCE):
        errors = part.new_zeros(len(part))
        memory = memory.learn(w, part.T, errors, np.zeros(len(part))).memory
    return memory


def reservoir_slots(seen: int, n: int, k: int, seed: tuple[int, ...]) -> dict[int, int]:
    """Return the slots of a uniform sample of k rows that the next n rows replace.

    Algorithm R (J. S. Vitter, "Random sampling with a reservoir", 1985): row i > k replaces
    a slot with probability k / i. Draws depend only on the seed and the number of rows seen.

    Parameters
    ----------
    seen : int
        Number of rows seen before.
    n, k : int
    seed : tuple of int

    Returns
    -------
    rows : dict
        Slot -> index of the row.
    """
    at, bits = np.arange(seen, seen + n), np.random.PCG64(np.random.SeedSequence(seed))
    bits.advance(seen)  # one number per row, so that batching has no effect
    places = np.where(at < k, at, (np.random.Generator(bits).random(n) * (at + 1)).astype(np.int64))
    return {int(place): row for row, place in enumerate(places) if place < k}
