"""Loss: what the baselines lower, a number a row.

    cross_entropy   −log softmax(f(x; w))_y
    squared         ½ ‖y − f(x; w)‖²

Both are the negative logarithm of a likelihood: of a class, and of answers with noise of variance
1. A batch's loss is the mean over its rows.
"""

from typing import Any, Literal, TypeAlias

from torch.nn import functional

__all__ = ["LOSSES", "LossName", "loss_of_rows"]

LossName: TypeAlias = Literal["cross_entropy", "squared"]
LOSSES = ("cross_entropy", "squared")


def loss_of_rows(name: LossName, outputs: Any, y: Any) -> Any:
    """The loss of each row.

    Parameters
    ----------
    name : {"cross_entropy", "squared"}
        Which.
    outputs : Tensor of shape (n, c), or (n,) for the squared loss
        What the module says.
    y : Tensor of shape (n,) of classes, or of the shape of outputs
        The answers.

    Returns
    -------
    loss : Tensor of shape (n,)

    Examples
    --------
    >>> import torch
    >>> y = torch.tensor([[1.0, 0.0]])
    >>> loss_of_rows("squared", torch.zeros(1, 2), y).item()
    0.5
    """
    if name == "cross_entropy":
        return functional.cross_entropy(outputs, y, reduction="none")
    return 0.5 * (outputs - y).square().reshape(len(outputs), -1).sum(dim=1)
