"""Numbers: what a user gives as numbers, of whatever library, as a tensor of real ones."""

from typing import Any

import numpy as np
import torch

from onepass.errors import ShapeError, TypeMismatchError
from onepass.validation import native

__all__ = ["numbers"]


def numbers(given: Any, name: str, where: str, remedy: str) -> Any:
    """Real numbers as a tensor, detached, wherever they lie.

    Parameters
    ----------
    given : Tensor, array, or list of numbers or of tensors of one shape
    name : str
        What the user calls it, for messages.
    where : str
        The public call, for messages.
    remedy : str
        What to do where there are no numbers, as a sentence.

    Raises
    ------
    ShapeError
        If its rows have several lengths.
    TypeMismatchError
        If it holds no real numbers.
    """
    if isinstance(given, torch.Tensor):
        tensor = given
    elif isinstance(given, (list, tuple)) and given and all(map(torch.is_tensor, given)):
        tensor = _together(given, name, where)
    else:
        tensor = torch.from_numpy(native(_array(given, name, where, remedy)))
    if tensor.is_meta:
        raise TypeMismatchError(
            f"{where}: `{name}` must hold numbers, got a tensor on the device 'meta', where there "
            "are none. Make it on the module's device."
        )
    if tensor.is_complex():
        raise TypeMismatchError(
            f"{where}: `{name}` must hold real numbers, got complex ones. Give real and imaginary "
            "parts as two outputs."
        )
    return tensor.detach()


def _together(given: Any, name: str, where: str) -> Any:
    """Tensors, one for each row, as one."""
    try:
        return torch.stack([each.detach() for each in given])
    except RuntimeError as wrong:
        raise _uneven(name, where) from wrong


def _array(given: Any, name: str, where: str, remedy: str) -> Any:
    try:
        array = np.asarray(given)
    except ValueError as wrong:
        raise _uneven(name, where) from wrong
    except (TypeError, RuntimeError) as wrong:  # of things that will not be numbers
        said = f"{where}: `{name}` must hold numbers, got {type(given).__name__}: {wrong}. {remedy}"
        raise TypeMismatchError(said) from wrong
    if array.dtype.kind not in "biufc":
        objects = array.dtype.kind == "O" and not array.ndim
        came = type(given).__name__ if objects else f"{array.dtype}"
        raise TypeMismatchError(f"{where}: `{name}` must hold numbers, got {came}. {remedy}")
    return array


def _uneven(name: str, where: str) -> ShapeError:
    return ShapeError(
        f"{where}: `{name}` must have as many numbers in each row, got rows of several lengths. "
        "Give an array of shape (n,) or (n, c)."
    )
