"""Forward: what a module says, the gradient of a loss, and a learner as it was if it fails."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from onepass.errors import ShapeError

__all__ = ["all_or_nothing", "answering", "said", "slopes"]


def said(module: Any, buffers: dict[str, Any], x: Any, where: str) -> Any:
    """What the module answers, its buffers being these."""
    try:
        outputs = torch.func.functional_call(module, buffers, (x,))
    except RuntimeError as wrong:
        raise ShapeError(
            f"{where}: `module` must take `x` of shape {tuple(x.shape)} and {x.dtype}, got "
            f"{type(wrong).__name__}: {wrong}. Give rows of the shape that it is made for."
        ) from wrong
    if isinstance(outputs, torch.Tensor) and outputs.ndim and len(outputs) == len(x):
        return outputs
    raise ShapeError(
        f"{where}: `module` must answer with a tensor, one row for each of the {len(x)} rows, got "
        f"{tuple(outputs.shape) if isinstance(outputs, torch.Tensor) else type(outputs).__name__}. "
        "Wrap it in a module that does."
    )


def slopes(loss: Any, weights: list[Any]) -> list[Any]:
    """∇L; zeros for weights that the loss does not depend on."""
    if not loss.requires_grad:  # a forward pass that is cut off from all weights
        return [torch.zeros_like(w) for w in weights]
    found = torch.autograd.grad(loss, weights, allow_unused=True)
    return [torch.zeros_like(w) if g is None else g for w, g in zip(weights, found, strict=True)]


@contextmanager
def answering(module: Any) -> Iterator[None]:
    """The module and all its parts in eval mode, and then each in the mode it was in."""
    modes = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        yield
    finally:
        for part, training in modes:
            part.training = training


@contextmanager
def all_or_nothing(learner: Any, held: list[Any]) -> Iterator[None]:
    """Whatever is raised within, the learner and its module are as they were.

    Parameters
    ----------
    learner : Learner
        Its attributes are replaced and not written into.
    held : list of Tensor
        What may be written into, such as weights.
    """
    before, known = [t.detach().clone() for t in held], dict(learner.__dict__)
    try:
        yield
    except BaseException:
        with torch.no_grad():
            for tensor, was in zip(held, before, strict=True):
                tensor.copy_(was)
        learner.__dict__.clear()
        learner.__dict__.update(known)
        raise
