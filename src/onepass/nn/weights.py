"""Weights: the flat vector w and the Jacobian's memory, beside the module's own parameters."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch

from onepass import linalg
from onepass.errors import ShapeError, TypeMismatchError
from onepass.nn.answers import SHAPED
from onepass.nn.selection import Selection

__all__ = ["broken", "input_dtype", "pieces", "room"]


def pieces(w: Any, name: str, selection: Selection, where: str) -> list[Any]:
    """A flat vector as views of the parameters' shapes.

    Parameters
    ----------
    w : Tensor or array of shape (p,)
    name : str
        What the user calls it, for messages.
    selection : Selection
    where : str

    Raises
    ------
    ShapeError, TypeMismatchError
        If it is no vector of p real numbers on the device of the parameters.
    """
    device = selection.parameters[0].device
    if not isinstance(w, torch.Tensor):
        w = torch.from_numpy(np.array(w, dtype=np.float64)).to(device)
    if w.shape != (selection.p,):
        raise ShapeError(
            f"{where}: `{name}` must have shape ({selection.p},), one number for each weight that "
            f"learns, got {tuple(w.shape)}. Flatten it in the order of `names`."
        )
    if not w.is_floating_point() or w.device != device:
        raise TypeMismatchError(
            f"{where}: `{name}` must hold real numbers on {device}, got {w.dtype} on {w.device}. "
            "Convert it with .to(device, dtype)."
        )
    cut = zip(w.detach().split(selection.sizes), selection.shapes, strict=True)
    return [piece.reshape(shape) for piece, shape in cut]


def room(
    height: int, out: Any, selection: Selection, where: str, expected: int | None = None
) -> Any:
    """Memory for some rows of J: new, or the first rows of what was given.

    Parameters
    ----------
    height : int
        How many rows.
    out : Tensor or None
    selection : Selection
    where : str
    expected : int, optional
        How many rows there must be.

    Raises
    ------
    ShapeError
        If what was given does not fit, or other rows are asked for.
    """
    if expected and height != expected:
        raise ShapeError(
            f"{where}: the module must give as many outputs a row as when it first learned, got "
            f"{height} in place of {expected}. {SHAPED}"
        )
    first = selection.parameters[0]
    if out is None:
        return torch.empty((height, selection.p), dtype=first.dtype, device=first.device)
    fits = out.ndim == 2 and out.shape[0] >= height and out.shape[1] == selection.p
    alike = out.dtype == first.dtype and out.device == first.device
    if not (fits and alike and out.is_contiguous()) or out.requires_grad:
        raise ShapeError(
            f"{where}: `out` must be contiguous memory of {first.dtype} on {first.device} for "
            f"{height} rows of {selection.p}, got {out.dtype} on {out.device} of shape "
            f"{tuple(out.shape)}. Leave it out to have J made."
        )
    return out[:height]


def broken(named: Iterable[tuple[str, Any]]) -> str | None:
    """The first of some weights that holds what is no number, and how much of it; None if none.

    Parameters
    ----------
    named : iterable of (str, Tensor)
    """
    for name, each in named:
        if not linalg.finite(each.detach()):
            lost = int((~each.detach().isfinite()).sum())
            return f"{name!r} holds nan or infinity, {lost} of its {each.numel()} numbers"
    return None


def input_dtype(module: Any) -> Any:
    """What the first layer computes in: it may be frozen, and of another dtype than w."""
    real = (each.dtype for each in module.parameters() if each.is_floating_point())
    return next(real)
