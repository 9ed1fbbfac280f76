"""Forward pass of a module, gradient of a loss, and rollback of a learner on errors."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

from onepass.errors import ShapeError
from onepass.nn.batch import Batch, chosen, told
from onepass.nn.function import NORMS, evaluating, substituted

__all__ = ["all_or_nothing", "forward", "predicted", "said", "slopes"]


def forward(module: Any, tensors: Mapping[str, Any], rows: Batch) -> Any:
    """Outputs of a module with its parameters and buffers of these names replaced."""
    known = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    given = {id(known[name]): each for name, each in tensors.items()}
    with substituted(list(module.modules()), given):
        return module(*rows.args, **rows.kwargs)


def said(module: Any, buffers: dict[str, Any], x: Any, where: str) -> Any:
    """The outputs (n, …) of a module with these buffers.

    Batch normalisation uses its running statistics for a batch of one row.
    """
    rows = x if isinstance(x, Batch) else Batch((x,), {}, len(x), where, len(x))
    with told(rows, where, lambda: None):
        try:
            outputs = forward(module, buffers, rows)
        except ValueError:
            norms = [each for each in module.modules() if isinstance(each, NORMS) and each.training]
            if len(x) > 1 or not norms or any(each.running_mean is None for each in norms):
                raise
            fresh = {name: b.clone() for name, b in module.named_buffers() if name in buffers}
            buffers.update(fresh)  # earlier layers have written into those
            with evaluating(norms):
                outputs = forward(module, buffers, rows)
        outputs = chosen(outputs, where)
    if outputs.ndim and len(outputs) == len(x):
        return outputs
    raise ShapeError(
        f"{where}: `module` must answer with a tensor, one row for each of the {len(x)} rows, got "
        f"{tuple(outputs.shape)}. Wrap it in a module that does."
    )


def predicted(module: Any, buffers: dict[str, Any], x: Any, where: str) -> Any:
    """The outputs of a module in evaluation mode, without a derivative."""
    with evaluating(module.modules()), torch.no_grad():
        return said(module, buffers, x, where).detach()  # scripted modules ignore no_grad


def slopes(loss: Any, weights: list[Any]) -> list[Any]:
    """∇L; zeros for weights that the loss does not depend on."""
    if not loss.requires_grad:  # a forward pass that is cut off from all weights
        return [torch.zeros_like(w) for w in weights]
    found = torch.autograd.grad(loss, weights, allow_unused=True)
    return [torch.zeros_like(w) if g is None else g for w, g in zip(weights, found, strict=True)]


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
