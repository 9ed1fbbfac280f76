"""Fisher: how much each weight mattered to what was said of some rows.

The diagonal of the Fisher information, a mean over rows, with the gradient of each row alone:

    F = E_x E_y (∂ log p(y | x; w) / ∂w)²                                                    (1)

``sampled``: y is drawn from the model's own distribution, once a row: an unbiased estimate [1, 2].
``empirical``: y is the answer that came, which is cheaper by a forward pass and is not the Fisher
information, though often used for it [2].

Cost: a backward pass for each row, all rows of a piece at once by vmap. In a perceptron the slope
of a row to W is δ aᵀ, of what the layer was given, a, and the slope δ to what it said, so that

    Σ (δ aᵀ)² = Σ δ² (a²)ᵀ                                                                   (2)

is one product of matrices for all rows, and no row's slopes are ever formed [3].

[1] J. Martens, "New insights and perspectives on the natural gradient method", JMLR 2020, 9.
[2] F. Kunstner, L. Balles, P. Hennig, "Limitations of the empirical Fisher approximation for
    natural gradient descent", NeurIPS 2019.
[3] F. Dangel, F. Kunstner, P. Hennig, "BackPACK: packing more into backprop", ICLR 2020.
"""

from typing import Any

import torch

from onepass.baselines.forward import forward
from onepass.baselines.loss import LossName, loss_of_rows
from onepass.nn.batch import Batch, chosen
from onepass.nn.function import evaluating

__all__ = ["drawn", "squared_slopes"]

_SCRATCH = 1 << 24  # numbers that the gradients of a piece may take
_PLAIN = (
    torch.nn.ReLU, torch.nn.LeakyReLU, torch.nn.ELU, torch.nn.GELU, torch.nn.SiLU,
    torch.nn.Softplus, torch.nn.Tanh, torch.nn.Sigmoid, torch.nn.Identity, torch.nn.Flatten,
)  # fmt: skip
"""Layers without weights, each row for itself."""


def drawn(outputs: Any, loss: LossName, seed: int) -> Any:
    """An answer for each row, from the distribution that the outputs stand for.

    Parameters
    ----------
    outputs : Tensor of shape (n, c), or (n,) for the squared loss
        What the module says.
    loss : {"cross_entropy", "squared"}
        Its distribution: classes by softmax, or normal with variance 1.
    seed : int
        Draws.
    """
    generator = torch.Generator(outputs.device).manual_seed(seed)
    if loss == "squared":
        noise = torch.randn(
            outputs.shape, generator=generator, device=outputs.device, dtype=outputs.dtype
        )
        return outputs + noise
    return torch.multinomial(outputs.softmax(dim=1), 1, generator=generator)[:, 0]


def squared_slopes(
    module: Any, learning: dict[str, Any], loss: LossName, x: Any, y: Any
) -> list[Any]:
    """Σ over rows of (∂ loss of the row / ∂w)², a tensor a parameter, in eval mode.

    Parameters
    ----------
    module : torch.nn.Module
        Left in the mode it was in.
    learning : dict of str to Tensor
        Its parameters that learn.
    loss : {"cross_entropy", "squared"}
        Whose gradient.
    x : Tensor of shape (n, …)
        Rows.
    y : Tensor
        Answers, as the loss takes them.
    """
    layers = _perceptron(module, learning) if isinstance(x, torch.Tensor) else None
    quick = None if layers is None else _of_perceptron(layers, learning, loss, x, y)
    if quick is not None:
        return quick
    weights = {name: w.detach() for name, w in learning.items()}
    rows = x if isinstance(x, Batch) else Batch((x,), {}, len(x))

    def of_row(given: dict[str, Any], answer: Any, *leaves: Any) -> Any:
        row = rows.holding((leaf[None] for leaf in leaves), 1)
        said = chosen(forward(module, given, row), "op.baselines")
        return loss_of_rows(loss, said, answer[None])[0]

    slope = torch.func.grad(of_row)
    slopes = torch.func.vmap(slope, in_dims=(None, 0, *(0 for _ in rows.tensors)))
    total = [torch.zeros_like(w) for w in weights.values()]
    step = max(1, _SCRATCH // sum(w.numel() for w in weights.values()))
    with evaluating(module.modules()):
        for begin in range(0, len(x), step):
            piece = y[begin : begin + step], *rows[begin : begin + step].tensors
            try:
                found = slopes(weights, *piece)
            except RuntimeError:  # something in the module that vmap does not know
                each = [slope(weights, *row) for row in zip(*piece, strict=True)]
                found = {name: torch.stack([one[name] for one in each]) for name in weights}
            for sum_so_far, name in zip(total, weights, strict=True):
                sum_so_far.add_(found[name].square().sum(dim=0))
    return total


def _perceptron(module: Any, learning: dict[str, Any]) -> list[tuple[str, Any]] | None:
    """The layers of a plain perceptron with their names; None of any other module."""
    if type(module) is not torch.nn.Sequential or _is_hooked(module):
        return None
    layers = list(module.named_children())
    linear = [layer for _, layer in layers if type(layer) is torch.nn.Linear]
    others = [layer for _, layer in layers if type(layer) is not torch.nn.Linear]
    plain = all(type(one) in _PLAIN and not getattr(one, "inplace", False) for one in others)
    alone = len(list(module.parameters())) == sum(len(list(one.parameters())) for one in linear)
    names = {f"{name}.{part}" for name, _ in layers for part in ("weight", "bias")}
    whole = plain and alone and len(layers) == len(module) and set(learning) <= names
    return None if not whole or any(_is_hooked(layer) for _, layer in layers) else layers


def _is_hooked(module: Any) -> bool:
    """Whether a call of the module does more than its forward."""
    kinds = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    return any(getattr(module, kind, None) for kind in kinds)


def _of_perceptron(
    layers: list[tuple[str, Any]], learning: dict[str, Any], loss: LossName, x: Any, y: Any
) -> list[Any] | None:
    """Σ of squares by (2); None where a layer is given more than a vector a row."""
    given: dict[str, tuple[Any, Any]] = {}
    with torch.enable_grad():
        said = x.detach()
        for name, layer in layers:
            taken, said = said, layer(said)
            if type(layer) is torch.nn.Linear:
                if taken.shape[:-1] != (len(x),):
                    return None
                said = said.detach().requires_grad_() if not said.requires_grad else said
                given[name] = taken.detach(), said
        total = loss_of_rows(loss, said, y).sum()
        slopes = torch.autograd.grad(total, [one for _, one in given.values()])
    squares = {}
    for (name, (taken, _)), slope in zip(given.items(), slopes, strict=True):
        squares[f"{name}.weight"] = slope.square().T @ taken.square()
        squares[f"{name}.bias"] = slope.square().sum(dim=0)
    return [squares[name] for name in learning]
