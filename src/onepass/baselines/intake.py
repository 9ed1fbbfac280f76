"""Intake: rows for a module, as tensors on its device and in its precision, or a refusal.

What is refused has changed nothing. Arrays of NumPy are taken to the module's device; a tensor
is not moved, since that would be a hidden cost at every step.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from onepass.errors import (
    LabelError,
    NotFiniteError,
    ParameterError,
    ShapeError,
    TypeMismatchError,
)
from onepass.nn.batch import Batch, batch, numbers
from onepass.nn.function import refuse_max_norm

__all__ = ["among", "answers", "as_tensor", "learning", "plain", "rows"]


def learning(module: Any, where: str) -> dict[str, Any]:
    """The parameters that require a gradient, by name; shared ones once.

    Raises
    ------
    TypeMismatchError
        If it is no module.
    ParameterError
        If none of its parameters learns, they lie on several devices, or it rescales its own.
    """
    if not isinstance(module, torch.nn.Module):
        raise TypeMismatchError(
            f"{where}: `module` must be a torch.nn.Module, got {type(module).__name__}. "
            "Wrap it in one."
        )
    found = {name: p for name, p in module.named_parameters() if p.requires_grad}
    devices = sorted({str(p.device) for p in module.parameters()})
    if not found or len(devices) > 1:
        came = f"parameters on {', '.join(devices)}" if found else "none that requires a gradient"
        raise ParameterError(
            f"{where}: `module` must have parameters to learn, on one device, got {came}. "
            "Call module.requires_grad_(True), or module.to(device)."
        )
    refuse_max_norm(module, where)
    return found


def rows(x: Any, like: Any, where: str, columns: Any = None) -> Batch:
    """Convert rows for the module, as in op.nn; a list is one array of rows.

    Parameters
    ----------
    x : Tensor, array-like of shape (n, …), or tuple or dict of them
        The rows. A tuple holds positional arguments of ``forward``, a dict keyword arguments.
    like : Tensor
        A parameter of the module: its device, and its precision for numbers that are not whole.
    where : str
        The public call, for messages.
    columns : mapping of str to list of str, optional
        The names of the columns of tables that were learned, by place in the input.

    Raises
    ------
    TypeMismatchError
        If they are no real numbers, or on another device.
    ShapeError, ColumnError
        If there is no axis of rows, or a table has other columns than learned.
    NotFiniteError
        If one holds nan or infinity.
    """
    if isinstance(x, list):
        x = numbers(x, "x", where, "Encode text first.").to(like.device)
    found = batch(x, like.dtype, like.device, where, columns)
    if any(each.is_complex() for each in found.tensors):
        raise TypeMismatchError(
            f"{where}: `x` must be real, got complex numbers. Give real and imaginary parts."
        )
    return found


def plain(found: Batch) -> Any:
    """The tensor of a batch that holds one tensor; another batch unchanged."""
    single = len(found.args) == 1 and not found.kwargs and isinstance(found.args[0], torch.Tensor)
    return found.args[0] if single else found


def answers(y: Any, outputs: Any, loss: str, like: Any, where: str) -> Any:
    """The answers as the loss takes them: (n,) of classes, or of the outputs' shape.

    Parameters
    ----------
    y : Tensor or array-like
        Classes from 0 on of shape (n,) for cross entropy, else numbers.
    outputs : Tensor of shape (n, …)
        What the module says.
    loss : {"cross_entropy", "squared"}
        Which.
    like : Tensor
        A parameter of the module.
    where : str
        The public call, for messages.

    Raises
    ------
    ShapeError
        If there is not one for each row and output.
    LabelError
        If a class is no whole number from 0 to c − 1.
    TypeMismatchError
        If they are no numbers, or on another device.
    NotFiniteError
        If one is nan or infinite.
    """
    tensor = as_tensor(y, like, where)
    if loss == "squared":
        if tensor.numel() != outputs.numel() or len(tensor) != len(outputs):
            raise ShapeError(
                f"{where}: `y` must be of shape {tuple(outputs.shape)}, as the module answers, "
                f"got {tuple(tensor.shape)}. Give one number for each output of each row."
            )
        return tensor.to(like.dtype).reshape(outputs.shape)
    if outputs.ndim != 2 or tensor.shape not in {outputs.shape[:1], (len(outputs), 1)}:
        raise ShapeError(
            f"{where}: for cross entropy the module must answer (n, c) and `y` be of shape "
            f"({len(outputs)},), got {tuple(outputs.shape)} and {tuple(tensor.shape)}. "
            "Give one class a row, and the module one output a class."
        )
    labels = tensor.reshape(-1).long()
    # one look at the answers: a class that is not there would end a GPU's whole context
    bad = (labels < 0) | (labels >= outputs.shape[1]) | (labels != tensor.reshape(-1))
    if bool(bad.any()):
        came = np.unique(tensor.reshape(-1)[bad].cpu().numpy()).tolist()
        raise LabelError(
            f"{where}: `y` must hold classes 0 … {outputs.shape[1] - 1}, one output each, got "
            f"{came}. Number the classes from 0, or give the "
            "module more outputs."
        )
    return labels


def among(classes: Sequence[int], told: Any, loss: str, where: str) -> Any:
    """The classes among which to choose, as places of outputs.

    Parameters
    ----------
    classes : sequence of int
        Of a task.
    told : Tensor of shape (n, c)
        What the module says.
    loss : {"cross_entropy", "squared"}
        Which.
    where : str
        The public call, for messages.

    Raises
    ------
    ParameterError
        If the loss is not one of classes.
    LabelError
        If they are no whole numbers from 0 to c − 1.
    """
    if loss != "cross_entropy":
        raise ParameterError(
            f"{where}: `classes` must be left out for the loss {loss!r}, got {classes!r}. "
            "It is for learners of classes."
        )
    some = np.asarray(classes)
    right = some.ndim == 1 and some.size and some.dtype.kind in "iu"
    if not right or some.min() < 0 or some.max() >= told.shape[1]:
        raise LabelError(
            f"{where}: `classes` must be some of 0 … {told.shape[1] - 1}, got {classes!r}. "
            "Give the classes of the task."
        )
    return torch.from_numpy(some.astype(np.int64)).to(told.device)


def as_tensor(y: Any, like: Any, where: str) -> Any:
    """Targets as a tensor on the device of the module, finite in its precision."""
    tensor = numbers(y, "y", where, "Encode text first.").to(like.device)
    tensor = tensor.clone() if tensor.is_inference() else tensor
    good = torch.isfinite(tensor.to(like.dtype))
    if not bool(good.all()):  # one look at each block: nothing bad may reach the weights
        row = int((~good.reshape(len(tensor), -1).all(dim=1)).nonzero()[0])
        raise NotFiniteError(
            f"{where}: `y` must be finite, got nan or infinity in row {row}. Drop the row, "
            "or impute it before learning."
        )
    return tensor  # not rounded: half precision would change large class numbers
