"""Answers: what a module gives, as a matrix with one row for each row that was asked."""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

from onepass.errors import OnepassError, ShapeError, TypeMismatchError
from onepass.nn.inputs import Batch
from onepass.nn.tables import holds_places

__all__ = ["SHAPED", "as_matrix", "by_module", "chosen", "in_a_line", "refuse_width", "told"]

SHAPED = (
    "Give rows of the shape of those; where a row has one output for each of its steps, cut or pad "
    "it to as many steps, or let the module give the last alone."
)
"""What to do where a row has another number of outputs."""

_CALL = re.compile(r"forward\(\) (got|missing|takes)")
_PLACES = re.compile(r"out of (range|bounds)|valid range")
_RAISED = "the module raised this when it was given"
_SHAPES = ("shape", "size", "dimension", "channel", "elements")


def as_matrix(given: Any, n: int, where: str) -> Any:
    """The outputs as a tensor of shape (n, c); (n,) is (n, 1), all axes after the first are c.

    Parameters
    ----------
    given : Any
        What the module gave: a tensor, an object or dict with ``logits``, or a tuple, list or dict
        that holds one tensor.
    n : int
        The number of rows that were asked.
    where : str
        The public call, for messages.

    Raises
    ------
    TypeMismatchError
        If no one tensor of real numbers can be chosen.
    ShapeError
        If it has not one row for each row asked, or no outputs.
    """
    tensor = chosen(given, where)
    if not tensor.is_floating_point():
        raise TypeMismatchError(
            f"{where}: the module's outputs must be real numbers with a derivative, got "
            f"{tensor.dtype}. Give scores instead of classes, and complex outputs as two real ones "
            "(torch.view_as_real)."
        )
    if tensor.ndim == 0 and n == 1:
        return tensor.reshape(1, 1)
    if tensor.ndim == 0 or tensor.shape[0] != n:
        raise ShapeError(
            f"{where}: the module must give one row of outputs for each of {n} rows, got the shape "
            f"{tuple(tensor.shape)}. The first axis counts rows, of one row too: give X[0:1] in "
            "place of X[0]. Keep it throughout: batch_first=True, flatten(1), squeeze(-1), and no "
            "mean over rows."
        )
    if 0 in tensor.shape[1:]:
        raise ShapeError(
            f"{where}: the module must give at least one output a row, got the shape "
            f"{tuple(tensor.shape)}. Give a last layer with outputs."
        )
    return tensor.reshape(n, tensor.shape[1:].numel())


def refuse_width(came: int, c: int, where: str) -> None:
    """Refuse another number of outputs a row than there was when rows were learned first.

    Parameters
    ----------
    came, c : int
    where : str
        What the user called, for messages.

    Raises
    ------
    ShapeError
    """
    if came != c:
        raise ShapeError(
            f"{where}: the module must give {c} output(s) a row, as when it first learned, got "
            f"{came}. {SHAPED}"
        )


def chosen(given: Any, where: str) -> Any:
    """The tensor in the outputs of a module: the output, its ``logits``, or its only part.

    Raises
    ------
    TypeMismatchError
        If there are several, or none.
    """
    if isinstance(given, torch.Tensor):
        return given
    named = given.get("logits") if isinstance(given, Mapping) else None
    named = getattr(given, "logits", None) if named is None else named
    if isinstance(named, torch.Tensor):
        return named
    parts = list(given.values()) if isinstance(given, Mapping) else given
    if isinstance(parts, (tuple, list)):
        found = [each for each in parts if isinstance(each, torch.Tensor)]
        if len(found) == 1 and len(parts) == 1:
            return found[0]
    size = f" of {len(given)}" if isinstance(given, (tuple, list, Mapping)) else ""
    raise TypeMismatchError(
        f"{where}: the module must give one tensor, or an object with `logits`, got "
        f"{type(given).__name__}{size}. Wrap it in a module whose forward gives the tensor that is "
        "to be learned, such as module(x)[0]."
    )


@contextmanager
def told(batch: Batch, where: str, look: Callable[[], None]) -> Iterator[None]:
    """Say what came where a module fails on it; what is no fault of shapes or dtypes passes.

    Parameters
    ----------
    batch : Batch
    where : str
        The public call, for messages.
    look : callable
        Raises what says more of a place that there is not, if it can.
    """
    try:
        yield
    except (torch.OutOfMemoryError, OnepassError):
        raise
    except TypeError as wrong:
        said = in_a_line(wrong)
        if not _CALL.search(said):
            wrong.add_note(f"{where}: {_RAISED} {batch.came}.")
            raise
        names = f", named {', '.join(map(repr, batch.kwargs))}" if batch.kwargs else ""
        raise TypeMismatchError(
            f"{where}: `x` must hold the arguments of the module's forward, got "
            f"{len(batch.args) + len(batch.kwargs)}{names}, and it raised: {said}. A tuple or "
            "list holds its positional arguments, a dict its keyword arguments by their names."
        ) from wrong
    except (RuntimeError, ValueError, IndexError) as wrong:
        if holds_places(batch):
            _looked(look)
        came, single = batch.came, any(each.ndim == 1 for each in batch.tensors)
        refused = _refused(in_a_line(wrong), came, where, places=holds_places(batch), single=single)
        if refused is not None:
            raise refused from wrong
        wrong.add_note(f"{where}: {_RAISED} {came}.")
        raise
    except Exception as wrong:
        wrong.add_note(f"{where}: {_RAISED} {batch.came}.")
        raise


def by_module(wrong: Exception) -> bool:
    """Whether this is what a module itself raised, and no fault of shapes or dtypes.

    Parameters
    ----------
    wrong : Exception
    """
    return any(_RAISED in note for note in getattr(wrong, "__notes__", ()))


def _looked(look: Callable[[], None]) -> None:
    try:
        look()
    except ShapeError:
        raise
    except Exception:  # noqa: BLE001, S110  it is told as it was raised at first
        pass


def in_a_line(wrong: Exception) -> str:
    """What was said, in a line."""
    return str(wrong).strip().partition("\n")[0].rstrip(".")


def _refused(said: str, came: str, where: str, *, places: bool, single: bool) -> Exception | None:
    """What a module says of dtypes, places or shapes that it cannot take; None of other things."""
    words = said.lower()
    if "dtype" in words or "scalar type" in words:
        return TypeMismatchError(
            f"{where}: the module must take what it is given, got {came}, and it raised: {said}. "
            "Whole numbers stay whole, for embeddings: give real numbers as floats."
        )
    if places and _PLACES.search(words):
        return ShapeError(
            f"{where}: whole numbers in `x` must be places that the module has, got {came}, and it "
            f"raised: {said}. Number them from 0 on, below the size of what they choose from."
        )
    if any(word in words for word in _SHAPES):
        return ShapeError(
            f"{where}: the module must take what it is given, got {came}, and it raised: {said}. "
            "The first axis counts rows, of one row too: give X[0:1] in place of X[0]; "
            f"{'of one column give X[:, None]' if single else 'check the others'}."
        )
    return None
