"""Memories of networks: precision, device, and memories by layer.

The columns of a memory are m times as long as the weights. In half precision they take half the
bytes; on another device, none of the module's: a step then sends its gradients there, and what is
free of them back. Kept by layer, each layer has a memory of m directions of its own
(:class:`~onepass.memory.blocks.Blocks`): as many numbers as one memory of all weights, and up to m
directions for every layer.

A memory is updated in place. A step is therefore computed first, and applied only if the weights
can hold it.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from onepass import linalg
from onepass.errors import ParameterError
from onepass.linalg.update import fit
from onepass.memory.blocks import Blocks
from onepass.nn.module import Network
from onepass.types import ArrayOrTensor, Floats

__all__ = ["Fitted", "Keeping", "fitted", "variances"]


_DTYPES = ("float64", "float32", "bfloat16", "float16")


class Keeping(NamedTuple):
    """Where and how a memory is kept."""

    dtype: str | None
    """The precision of its columns; None is that of the module."""
    device: str | None
    """The device of its columns; None is that of the module."""
    by_layer: bool
    """Whether each layer has its own."""

    @classmethod
    def of(
        cls,
        dtype: str | torch.dtype | None,
        device: str | int | torch.device | None,
        *,
        by_layer: bool,
        where: str,
    ) -> "Keeping":
        """What a user asked for.

        Parameters
        ----------
        dtype : None, str or torch.dtype
        device : None, str, int or torch.device
        by_layer : bool
        where : str
            What the user called, for messages.

        Raises
        ------
        ParameterError
            If there is no such precision or device.
        """
        name = None if dtype is None else str(dtype).removeprefix("torch.")
        if name is not None and name not in _DTYPES:
            raise ParameterError(
                f"{where}: `memory_dtype` must be None or one of {', '.join(_DTYPES)}, got "
                f"{dtype!r}. None keeps the memory as the module's weights are."
            )
        try:
            place = None if device is None else str(torch.device(device))
            torch.empty(1, device=place).item()  # "meta" holds no values
        except (RuntimeError, TypeError, AssertionError) as wrong:  # the last, if torch has none
            raise ParameterError(
                f"{where}: `memory_device` must be None or a device that torch has here, such as "
                f"'cpu' or 'cuda', got {device!r}. None keeps the memory beside the module's "
                "weights."
            ) from wrong
        return cls(name, place, bool(by_layer))

    def check_possible(self, specification: Any, noise: float, where: str) -> None:
        """Refuse what a memory cannot be kept as.

        Parameters
        ----------
        specification : specification of a memory
        noise : float
        where : str

        Raises
        ------
        ParameterError
            If a covariance of all weights would be kept by layer, or in half precision; or if the
            memory has no such noise, or none but arrays of p × p.
        """
        half = self.dtype in {"bfloat16", "float16"}
        if hasattr(specification, "prior") and (self.by_layer or half):
            asked = "by_layer=True" if self.by_layer else f"memory_dtype={self.dtype!r}"
            raise ParameterError(
                f"{where}: `memory` must have a limit with {asked} and noise > 0, got None with "
                f"noise={noise:g}. Use op.memory.Principal(m), or noise=0."
            )
        begun = specification.start(1, 1, noise, torch.empty(0))
        if not hasattr(begun, "split") and not hasattr(begun, "variances"):
            raise ParameterError(
                f"{where}: `memory` must keep directions, got {specification!r}. Use a number m or "
                "None, which with noise > 0 is recursive least squares too."
            )

    def kind(self, like: Tensor) -> Tensor:
        """An empty tensor of the memory's kind; ``like`` is one of the weights'."""
        dtype = like.dtype if self.dtype is None else getattr(torch, self.dtype)
        return torch.empty(0, dtype=dtype, device=self.device or like.device)

    def begun(
        self, specification: Any, network: Network, noise: float, c: int, like: Tensor
    ) -> Any:
        """The memory of no rows, of a network with c outputs.

        Parameters
        ----------
        specification : specification of a memory
        network : Network
        noise : float
        c : int
        like : Tensor
            An empty one of the weights' kind.
        """
        kind = self.kind(like)
        if not self.by_layer:
            return specification.start(network.p, c, noise, kind)
        places = tuple(
            tuple((piece.start, piece.stop) for piece in pieces)
            for pieces in network.layers.values()
        )
        return Blocks.start(specification, places, noise, c, kind)


class Fitted(NamedTuple):
    """What a step will do; nothing has been written yet."""

    w: Tensor
    inconsistent_rows: Any
    memory: Callable[[], Any]
    """Learn the row, in place; give the memory after it."""


def fitted(memory: Any, w: Tensor, G: Tensor, e: Tensor, noise: Floats, c: int) -> Fitted:
    """The step of a memory, whose state stays good until it is told to learn.

    Parameters
    ----------
    memory : state of a memory
    w : Tensor of shape (p,)
    G : Tensor of shape (p, n·c)
    e : Tensor of shape (n·c,)
    noise : ndarray of shape (n·c,)
    c : int
        Neighbouring columns of G that belong to one row.

    Raises
    ------
    NumericalError
        If the variance of an answer is no number.
    """
    pending = None if linalg.on_device(w) else getattr(memory, "pending", None)
    with np.errstate(over="ignore", invalid="ignore"):  # the learner looks what came of it
        found = pending and pending(*map(linalg.numpy_view, (w, G, e)), noise)
    if found:  # of few weights, where calls cost most
        return Fitted(linalg.like(found.w, w), 0, found.after)
    if not hasattr(memory, "split"):  # a covariance writes nothing in place
        step = memory.learn(w, G, e, noise, group=c)
        return Fitted(step.w, step.inconsistent_rows, lambda: step.memory)
    parts = memory.split(G)
    found = fit(w, G, parts.lifted, e, noise, group=c, basis=memory.basis)
    learned = partial(memory.after, G, parts, noise, found)
    return Fitted(found.w, found.inconsistent_rows, learned)


def variances(memory: Any, noise: float) -> Callable[[Tensor], ArrayOrTensor] | None:
    """What gives gᵀ P g of each column of G (p, n), (n,), if a memory's P is a covariance.

    It is with noise, and without as long as what is let go is counted; what is let go is then
    taken for unknown.

    Parameters
    ----------
    memory : state of a memory
    noise : float
        Its r: without noise P is a projector, and P P = P.
    """
    if not noise and getattr(memory, "lost", None) is None:
        return None

    def found(G: Tensor) -> Tensor:
        free = linalg.like(memory.split(G).lifted, G).double()
        return ((G.double() if noise else free) * free).sum(dim=0)

    return getattr(memory, "variances", found)
