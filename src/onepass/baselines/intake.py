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

__all__ = ["among", "answers", "learning", "rows"]


def learning(module: Any, where: str) -> dict[str, Any]:
    """The parameters that require a gradient, by name; shared ones once.

    Raises
    ------
    TypeMismatchError
        If it is no module.
    ParameterError
        If none of its parameters learns, or they lie on several devices.
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
    return found


def rows(x: Any, like: Any, where: str, what: str = "x") -> Any:
    """Rows as a tensor of shape (n, …), finite; whole numbers stay whole.

    Parameters
    ----------
    x : Tensor or array-like of shape (n, …)
        The rows.
    like : Tensor
        A parameter of the module: its device, and its precision for numbers that are not whole.
    where : str
        The public call, for messages.
    what : str, default="x"
        What the caller calls them.

    Raises
    ------
    TypeMismatchError
        If they are no numbers, or on another device.
    ShapeError
        If there is no axis of rows.
    NotFiniteError
        If one holds nan or infinity.
    """
    tensor = _tensor(x, like, where, what)
    if tensor.ndim < 1:
        raise ShapeError(
            f"{where}: `{what}` must be of shape (n, …), a row a first index, got a single number. "
            f"Give one row as {what}[None]."
        )
    return tensor


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
    tensor = _tensor(y, like, where, "y")
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


def _tensor(values: Any, like: Any, where: str, what: str) -> Any:
    if isinstance(values, torch.Tensor):
        if values.device != like.device:
            raise TypeMismatchError(
                f"{where}: `{what}` must lie on the module's device {like.device}, got a tensor "
                f"on {values.device}. Move it: {what}.to({str(like.device)!r})."
            )
        tensor = values.clone() if values.is_inference() else values.detach()
    else:
        array = np.asarray(values)
        if array.dtype.kind not in "biuf":
            raise TypeMismatchError(
                f"{where}: `{what}` must hold real numbers, got {array.dtype}. Encode text first."
            )
        tensor = torch.tensor(array, device=like.device)  # a copy: a caller may reuse the array
    if tensor.is_complex():
        raise TypeMismatchError(
            f"{where}: `{what}` must be real, got {tensor.dtype}. Give real and imaginary parts."
        )
    if not tensor.is_floating_point():
        return tensor
    narrow = tensor.to(like.dtype)
    good = torch.isfinite(narrow)
    if not bool(good.all()):  # one look at each block: nothing bad may reach the weights
        row = int((~good.reshape(len(tensor), -1).all(dim=1)).nonzero()[0])
        raise NotFiniteError(
            f"{where}: `{what}` must be finite, got nan or infinity in row {row}. Drop the row, "
            "or impute it before learning."
        )
    return tensor if what == "y" else narrow  # a class is rounded in half precision
