"""Fisher: how much each weight mattered to what was said of some rows.

The diagonal of the Fisher information, a mean over rows, with the gradient of each row alone:

    F = E_x E_y (∂ log p(y | x; w) / ∂w)²                                                    (1)

``sampled``: y is drawn from the model's own distribution, once a row: an unbiased estimate [1, 2].
``empirical``: y is the answer that came, which is cheaper by a forward pass and is not the Fisher
information, though often used for it [2].

Cost: a backward pass for each row, all rows of a piece at once by vmap.

[1] J. Martens, "New insights and perspectives on the natural gradient method", JMLR 2020, 9.
[2] F. Kunstner, L. Balles, P. Hennig, "Limitations of the empirical Fisher approximation for
    natural gradient descent", NeurIPS 2019.
"""

from typing import Any

import torch

from onepass.baselines.forward import answering
from onepass.baselines.loss import LossName, loss_of_rows

__all__ = ["drawn", "squared_slopes"]

_SCRATCH = 1 << 24  # numbers that the gradients of a piece may take


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
    weights = {name: w.detach() for name, w in learning.items()}

    def of_row(given: dict[str, Any], row: Any, answer: Any) -> Any:
        said = torch.func.functional_call(module, given, (row[None],))
        return loss_of_rows(loss, said, answer[None])[0]

    slopes = torch.func.vmap(torch.func.grad(of_row), in_dims=(None, 0, 0))
    total = [torch.zeros_like(w) for w in weights.values()]
    piece = max(1, _SCRATCH // sum(w.numel() for w in weights.values()))
    with answering(module):
        for begin in range(0, len(x), piece):
            rows = slice(begin, begin + piece)
            try:
                found = slopes(weights, x[rows], y[rows])
            except RuntimeError:  # something in the module that vmap does not know
                found = _one_by_one(torch.func.grad(of_row), weights, x[rows], y[rows])
            for sum_so_far, name in zip(total, weights, strict=True):
                sum_so_far.add_(found[name].square().sum(dim=0))
    return total


def _one_by_one(slope: Any, weights: dict[str, Any], x: Any, y: Any) -> dict[str, Any]:
    of_rows = [slope(weights, row, answer) for row, answer in zip(x, y, strict=True)]
    return {name: torch.stack([found[name] for found in of_rows]) for name in weights}
