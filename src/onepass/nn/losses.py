"""Losses of networks as least-squares problems: errors and the corresponding gradients.

For outputs f (c) of a row with the Jacobian J (c × p), a least-squares step uses errors e and
gradients G̃ = Jᵀ B such that G̃ e is minus the gradient of the loss, and G̃ G̃ᵀ its Gauss–Newton
matrix:

    squared         e = y − f,             B = I                                             (1)
    one_hot         e = 1_y − f,           B = I, as in the papers' experiments              (2)
    cross_entropy   e = (1_y − π) / √π,    B = diag(√π) − π √πᵀ,    π = softmax(f)           (3)

In (3) B e = 1_y − π, and B Bᵀ = diag(π) − π πᵀ is the curvature of the loss in the outputs [1], so
that the step with noise 1 is that of the extended Kalman filter for a categorical target.

[1] N. N. Schraudolph, "Fast curvature matrix-vector products for second-order gradient descent",
    Neural Computation 14(7), 2002; section 3.
"""

from typing import Literal, TypeAlias

import numpy as np
import torch
from torch import Tensor

from onepass.errors import (
    LabelError,
    NotFiniteError,
    ParameterError,
    ShapeError,
    TypeMismatchError,
)
from onepass.nn.batch import numbers
from onepass.types import ArrayLike

__all__ = ["LOSSES", "LossName", "as_rows", "check", "shape_of", "targets", "to_predictions"]

LossName: TypeAlias = Literal["squared", "one_hot", "cross_entropy"]
LOSSES = ("squared", "one_hot", "cross_entropy")

_LEAST = 1e-12  # min probability in divisions


def check(loss: str, noise: float, where: str) -> None:
    """Check that a loss exists, and that noise > 0 if the loss requires noise.

    Parameters
    ----------
    loss : str
    noise : float
    where : str
        The public call, for messages.

    Raises
    ------
    ParameterError
    """
    if loss not in LOSSES:
        raise ParameterError(
            f"{where}: `loss` must be one of {', '.join(LOSSES)}, got {loss!r}. "
            "Use 'squared' for regression, 'one_hot' or 'cross_entropy' for classes."
        )
    if loss == "cross_entropy" and not noise > 0.0:
        raise ParameterError(
            f"{where}: `noise` must be above 0 with loss='cross_entropy', got {noise:g}. No finite "
            "outputs fit a class exactly: try noise=10.0, 30.0 and 100.0 on validation rows, or "
            "use loss='one_hot'."
        )


def targets(y: ArrayLike | Tensor, n: int, c: int, loss: str, like: Tensor, where: str) -> Tensor:
    """Convert targets to a matrix (n, c) in float64 on the device of ``like``; classes to one-hot.

    Parameters
    ----------
    y : Tensor or array of shape (n,) or (n, c)
    n, c : int
        Number of rows, and of outputs of the module.
    loss : str
    like : Tensor
    where : str
        The public call, for messages.

    Raises
    ------
    ShapeError, TypeMismatchError, NotFiniteError, LabelError
        If y does not contain n targets of c numbers, or n classes below c.
    """
    tensor = numbers(y, "y", where, "Number classes from 0.").to(like.device)
    if tensor.ndim < 1 or tensor.shape[0] != n:
        found = tensor.shape[0] if tensor.ndim else "a single number"
        raise ShapeError(
            f"{where}: `y` must contain one target for each of {n} rows, got {found}. Pass as many "
            "targets as rows; for one row, y[0:1] instead of y[0]."
        )
    if loss != "squared":
        return _indicators(tensor, n, c, where)
    flat = tensor.reshape(n, tensor.shape[1:].numel()).double()
    if not n:
        return flat.new_zeros(0, c)
    if flat.shape[1] != c:
        raise ShapeError(
            f"{where}: `y` must contain {c} number(s) per row, one for each output of the module, "
            f"got {flat.shape[1]}. For classes use loss='one_hot' or 'cross_entropy'."
        )
    fine = flat.to(
        like.dtype
    ).isfinite()  # values that overflow the dtype of the module count as infinite
    if not bool(fine.all()):
        row = int((~fine).any(dim=1).nonzero()[0])
        large = bool(flat[row].isfinite().all())
        scale = f", or scale y: the number overflows {like.dtype}" if large else ""
        raise NotFiniteError(
            f"{where}: `y` must be finite in {like.dtype}, got {tensor[row].tolist()} in row "
            f"{row}. None of the {n} row(s) was learned: drop this row and pass the other rows "
            f"again{scale}."
        )
    return flat


def _indicators(tensor: Tensor, n: int, c: int, where: str) -> Tensor:
    if tensor.is_floating_point() or tensor.numel() != n:
        raise TypeMismatchError(
            f"{where}: `y` must contain one class per row, an integer from 0 to {c - 1}, got "
            f"{tensor.dtype} of shape {tuple(tensor.shape)}. Encode classes as integers, or use "
            "loss='squared' for regression."
        )
    classes = tensor.reshape(n).long()
    if n and not bool(((classes >= 0) & (classes < c)).all()):
        invalid = classes[(classes < 0) | (classes >= c)][0]
        raise LabelError(
            f"{where}: `y` must contain classes from 0 to {c - 1}, as the module has {c} outputs, "
            f"got {int(invalid)}. Use a module with one output for each class."
        )
    return torch.nn.functional.one_hot(classes, c).double()


def as_rows(loss: str, outputs: Tensor, y: Tensor, J: Tensor) -> tuple[Tensor, Tensor]:
    """Convert outputs, targets (n, c) and Jacobian (n·c, p) to least-squares rows: (1) to (3).

    Returns e (n, c), in float64, and G̃ᵀ (n·c, p).
    """
    outputs = outputs.double()
    if loss != "cross_entropy":
        return y - outputs, J
    probabilities = torch.softmax(outputs, dim=1).clamp_min(_LEAST)
    root = probabilities.sqrt()
    B = torch.diag_embed(root) - probabilities[:, :, None] * root[:, None, :]
    n, c = outputs.shape
    turned = B.mT.to(J.dtype) @ J.reshape(n, c, -1)
    return (y - probabilities) / root, turned.reshape(n * c, -1)


def to_predictions(loss: str, outputs: Tensor, shape: tuple[int, ...] | None = None) -> Tensor:
    """Convert outputs to predictions: numbers (n, c), or (n,) for one output; or classes (n,).

    Parameters
    ----------
    loss : str
    outputs : Tensor of shape (n, c)
    shape : tuple of int, optional
        Shape of one learned target; predictions then have shape (n, *shape).
    """
    predictions = outputs if loss == "squared" else outputs.argmax(dim=1, keepdim=True)
    if shape is None:
        shape = () if predictions.shape[1] == 1 else predictions.shape[1:]
    return predictions.reshape(len(predictions), *shape)


def shape_of(y: ArrayLike | Tensor) -> tuple[int, ...]:
    """Return the shape of one target of y (n, …)."""
    if isinstance(y, (list, tuple)):
        y = numbers(y, "y", "op.nn", "Pass an array.")
    return tuple(getattr(y, "shape", None) or np.shape(y))[1:]
