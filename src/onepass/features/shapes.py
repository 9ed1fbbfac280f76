"""Shapes: in which shape a network takes a row, which streams give as numbers side by side."""

import math
from collections.abc import Sequence
from typing import Any

from onepass import validation
from onepass.errors import ParameterError, ShapeError

__all__ = ["formed", "hold_shape"]


def formed(told: Any, said: Sequence[int | None] | None, d: int, where: str) -> tuple[int, ...]:
    """The shape of a row of d numbers.

    Parameters
    ----------
    told : sequence of int, optional
        What the user said, or the shape in which the first rows came.
    said : sequence of int or None, optional
        What the network says of itself, None where a size may be any.
    d : int
        Numbers of a row.
    where : str
        Who asks, for messages.

    Returns
    -------
    tuple of int
        ``told`` if given, with as many leading axes of length 1 as ``said`` has; else ``said`` if
        but one size is open; else ``(d,)``.

    Raises
    ------
    ParameterError, ShapeError
        If these do not go together.

    Examples
    --------
    >>> formed(None, (1, None, 28), 784, "ONNXFeatures")
    (1, 28, 28)
    """
    if told is not None:
        shape = _lined(_sizes(told, where), said)
        if said is not None and not _fits(shape, said):
            raise ParameterError(
                f"{where}: `shape` must be one that the network takes, {_shown(said)}, got "
                f"{shape}. Construct it without `shape`, or with one that fits."
            )
    elif said is None:
        shape = (d,)
    else:
        shape = _closed(said, d, where)
    if math.prod(shape) != d:
        raise ShapeError(
            f"{where}: rows must have {math.prod(shape)} numbers, as shape {shape} has, got {d} "
            "columns. Give rows of that width, or construct it with another `shape`."
        )
    return shape


def hold_shape(came: Sequence[int], known: Any, where: str) -> None:
    """Refuse pictures of another shape than known; leading axes of length 1 are nothing.

    Raises
    ------
    ShapeError
    """
    if known is None or _bare(came) == _bare(known):
        return
    raise ShapeError(
        f"{where}: rows must have shape {tuple(known)}, as before or as `shape` says, got "
        f"{tuple(came)}. Bring the axes into that order, or start a new feature."
    )


def _sizes(told: Any, where: str) -> tuple[int, ...]:
    if not isinstance(told, (tuple, list)) or not told:
        raise ParameterError(
            f"{where}: `shape` must be a tuple of sizes, such as (3, 32, 32), got {told!r}. "
            "Construct it with one."
        )
    return tuple(validation.whole(k, "shape", where, low=1) for k in told)


def _fits(shape: Sequence[int], said: Sequence[int | None]) -> bool:
    return len(shape) == len(said) and all(
        open_ is None or k == open_ for k, open_ in zip(shape, said, strict=True)
    )


def _lined(shape: tuple[int, ...], said: Sequence[int | None] | None) -> tuple[int, ...]:
    """A shape with the leading axes of length 1 that the network has."""
    if said is None or len(said) == len(shape):
        return shape
    bare = _bare(shape)
    return (1,) * (len(said) - len(bare)) + bare


def _closed(said: Sequence[int | None], d: int, where: str) -> tuple[int, ...]:
    """What the network says, one open size being what is left of d."""
    if sum(k is None for k in said) > 1:
        raise ParameterError(
            f"{where}: `shape` must be given for a network whose rows may have many, {_shown(said)}"
            f", got none for {d} columns. Construct it with `shape`, such as (3, 32, 32)."
        )
    rest = max(1, math.prod(k for k in said if k is not None))
    return tuple(max(1, d // rest) if k is None else k for k in said)


def _bare(shape: Sequence[int]) -> tuple[int, ...]:
    sizes = tuple(int(k) for k in shape)
    while len(sizes) > 1 and sizes[0] == 1:
        sizes = sizes[1:]
    return sizes


def _shown(said: Sequence[int | None]) -> str:
    sizes = ", ".join("any" if k is None else str(k) for k in said)
    return f"({sizes}{',' if len(said) == 1 else ''})"
