"""Memories of networks: precision, device, and one memory per layer.

A memory takes m times the size of the weights. It may be stored in half precision, or on another
device, to and from which each step transfers gradients and their projections. With one memory per
layer (:class:`~onepass.memory.blocks.Blocks`), each has m directions; the total size is the same.

A memory is updated in place. A step is therefore computed first, and applied only if the new
weights are finite.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from onepass import linalg
from onepass.errors import ParameterError
from onepass.linalg.update import fit
from onepass.types import ArrayOrTensor, Floats

_DTYPES = ("float64", "float32", "bfloat16", "float16")


def dtype_name(dtype: str | torch.dtype | None) -> str | None:
    """Return the name of the dtype of a memory.

    Raises
    ------
    ParameterError
        If it is no floating dtype.
    """
    name = None if dtype is None else str(dtype).removeprefix("torch.")
    if name is not None and name not in _DTYPES:
        raise ParameterError(
            f"`memory_dtype` must be None or one of {', '.join(_DTYPES)}, got "
            f"{dtype!r}. Pass None to use the dtype of the module's weights."
        )
    return name


def device_name(device: str | int | torch.device | None) -> str | None:
    """Return the name of the device of a memory.

    Raises
    ------
    ParameterError
        If it does not exist.
    """
    try:
        place = None if device is None else str(torch.device(device))
        torch.empty(1, device=place).item()  # "meta" has no values
    # AssertionError if torch is built without the device
    except (RuntimeError, TypeError, AssertionError) as error:
        raise ParameterError(
            "`memory_device` must be None or a device available to torch, such as 'cpu' or "
            f"'cuda', got {device!r}. Pass None to use the device of the module's weights."
        ) from error
    return place


def check_possible(
    specification: Any, noise: float, memory_dtype: str | None, *, by_layer: bool
) -> None:
    """Check that a memory supports these options.

    Parameters
    ----------
    specification : specification of a memory
    noise : float
    memory_dtype : str or None
    by_layer : bool

    Raises
    ------
    ParameterError
        If a covariance of all weights is to be stored by layer or in half precision; or if the
        memory does not support this noise, or stores p × p matrices.
    """
    half = memory_dtype in {"bfloat16", "float16"}
    if hasattr(specification, "prior") and (by_layer or half):
        option = "by_layer=True" if by_layer else f"{memory_dtype=}"
        raise ParameterError(
            f"`memory` must have a limit with {option} and noise > 0, got None with "
            f"noise={noise:g}. Use op.memory.Principal(m), or noise=0."
        )
    memory = specification.start(1, 1, noise, torch.empty(0))
    if not hasattr(memory, "split") and not hasattr(memory, "variances"):
        raise ParameterError(
            f"`memory` must store directions, got {specification!r}. Use a number m "
            "or None; with noise > 0 both are recursive least squares."
        )


class PendingStep(NamedTuple):
    """Result of a step, not yet applied."""

    w: Tensor
    inconsistent_rows: Any
    memory: Callable[[], Any]
    """Update the memory in place and return it."""


def pending_step(
    memory: Any, w: Tensor, G: Tensor, e: Tensor, noise: Floats, c: int
) -> PendingStep:
    """Compute the step of a memory without changing it.

    Parameters
    ----------
    memory : state of a memory
    w : Tensor of shape (p,)
    G : Tensor of shape (p, n·c)
    e : Tensor of shape (n·c,)
    noise : ndarray of shape (n·c,)
    c : int
        Number of consecutive columns of G that belong to one row.

    Raises
    ------
    NumericalError
        If the variance of an output is not finite.
    """
    pending = None if linalg.on_device(w) else getattr(memory, "pending", None)
    with np.errstate(over="ignore", invalid="ignore"):  # the learner checks the result
        found = pending and pending(*map(linalg.numpy_view, (w, G, e)), noise)
    if found:  # few weights: the overhead of calls dominates
        return PendingStep(linalg.like(found.w, w), 0, found.after)
    if not hasattr(memory, "split"):  # a covariance is not updated in place
        step = memory.learn(w, G, e, noise, group=c)
        return PendingStep(step.w, step.inconsistent_rows, lambda: step.memory)
    parts = memory.split(G)
    found = fit(w, G, parts.lifted, e, noise, group=c, basis=memory.basis)
    learned = partial(memory.after, G, parts, noise, found)
    return PendingStep(found.w, found.inconsistent_rows, learned)


def variances(memory: Any, noise: float) -> Callable[[Tensor], ArrayOrTensor] | None:
    """Return a function from G (p, n) to gᵀ P g (n,), or None if P is not a covariance.

    P is a covariance if there is noise, or if the memory records the directions that it discards,
    which count as undetermined.

    Parameters
    ----------
    memory : state of a memory
    noise : float
        r; without noise P is a projection, and P P = P.
    """
    if not noise and getattr(memory, "lost", None) is None:
        return None

    def found(G: Tensor) -> Tensor:
        free = linalg.like(memory.split(G).lifted, G).double()
        return linalg.summed(((G.double() if noise else free) * free).sum(dim=0))[0]

    return getattr(memory, "variances", found)
