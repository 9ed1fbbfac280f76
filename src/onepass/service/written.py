"""Written: rows as they stand on the disk, unless they would be too many bytes there.

Rows may share one text, of which each of them writes its own: what takes a kilobyte here may take
gigabytes there. So it is known before any of it is written.
"""

import json
from collections import Counter
from typing import Any

from onepass.errors import Array, ShapeError
from onepass.service.blocks import Block
from onepass.validation.table import Table

__all__ = ["hold_size", "hold_written", "written"]

_LARGEST = 1 << 29  # bytes of rows at once
_LONGEST = 12  # bytes of a character as JSON, at most
_FEW = 512  # values, which are not too many bytes where each is a request's longest text


def written(block: Block, where: str) -> bytes:
    """A block as bytes.

    Parameters
    ----------
    block : Block
        One that is not plain: of those it is known without looking.
    where : str
        The public call, for messages.

    Raises
    ------
    ShapeError
        If they are too many, before they are made.
    """
    hold_written(block, where)
    return block.to_bytes()


def hold_written(block: Block, where: str) -> None:
    """Refuse a block that would be too many bytes, before they are made.

    Parameters
    ----------
    block, where
        As for ``written``.

    Raises
    ------
    ShapeError
    """
    X = block.X
    if (len(X) * len(X.columns) if isinstance(X, Table) else X.size) > _FEW:
        columns = X.columns.values() if isinstance(X, Table) else (X,)
        _hold_parts([part for part in (*columns, block.y) if part is not None], where)


def hold_size(nbytes: int, where: str) -> None:
    """Refuse rows that take so many bytes, if they are too many.

    Parameters
    ----------
    nbytes : int
    where : str
        The public call, for messages.

    Raises
    ------
    ShapeError
    """
    if nbytes > _LARGEST:
        raise ShapeError(
            f"{where}: `X` must take at most {_LARGEST:,} bytes, got {nbytes:,}. Give fewer "
            "rows at once."
        )


def _hold_parts(parts: list[Array], where: str) -> None:
    texts = [part.ravel().tolist() for part in parts if part.dtype.kind == "O"]
    size = sum(part.nbytes for part in parts if part.dtype.kind != "O")
    if size + _LONGEST * sum(map(_characters, texts)) > _LARGEST:  # few are, and looked at closely
        hold_size(size + sum(map(_nbytes, texts)), where)


def _characters(values: list[Any]) -> int:
    return sum(len(value) for value in values if type(value) is str)


def _nbytes(values: list[Any]) -> int:
    """The bytes of values as JSON, each but once looked at, however often it is there."""
    return sum(len(json.dumps(value)) * times for value, times in Counter(values).items())
