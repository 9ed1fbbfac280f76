"""Tables: rows that ask for a place that a table of embeddings has not, found before they are used.

Whole numbers among the inputs of a module are mostly places in a table. One that the table has not
shows when the module is asked, and then in words that do not tell which table, nor its places; on
an accelerator it ends the program. So tables are watched while the module is asked once more.
"""

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import torch
from torch import nn

from onepass.errors import ShapeError
from onepass.nn.inputs import Batch

__all__ = ["holds_places", "refuse_places"]

_TABLES = (nn.Embedding, nn.EmbeddingBag)
_AT_ONCE = 1024  # rows


def holds_places(rows: Batch) -> bool:
    """Whether rows hold whole numbers, and so may ask for places.

    Parameters
    ----------
    rows : Batch
    """
    real = (each.is_floating_point() or each.is_complex() for each in rows.tensors)
    return not all(real)


def refuse_places(module: Any, rows: Batch, ask: Callable[[Batch], Any], where: str) -> None:
    """Ask a module with all its tables watched; a device is waited for.

    Parameters
    ----------
    module : torch.nn.Module
    rows : Batch
    ask : callable
        Asks the module.
    where : str
        The public call, for messages.

    Raises
    ------
    ShapeError
        If rows ask for a place that a table has not.
    """
    tables = [(name, each) for name, each in module.named_modules() if isinstance(each, _TABLES)]
    for i in range(0, rows.n if tables else 0, _AT_ONCE):
        part = rows[i : i + _AT_ONCE]
        with ExitStack() as held:
            for name, table in tables:
                watch = _watch(name, i, part.n, where)
                handle = table.register_forward_pre_hook(watch, prepend=True, with_kwargs=True)
                held.callback(handle.remove)
            ask(part)


def _watch(name: str, first: int, n: int, where: str) -> Callable[..., None]:
    """A hook that looks at the places that n rows, of which one is the first, ask a table for."""

    def look(table: Any, args: Any, kwargs: Any) -> None:
        places = args[0] if args else kwargs.get("input")
        if not isinstance(places, torch.Tensor) or not places.numel():
            return
        bad = (places < 0) | (places >= table.num_embeddings)
        if not bool(bad.any()):
            return
        at = bad.nonzero()[0]
        row = f" in row {first + int(at[0])}" if len(places) == n > 1 else ""
        raise ShapeError(
            f"{where}: the whole numbers that {type(table).__name__} {name!r} is asked for must be "
            f"its places, 0 to {table.num_embeddings - 1}, got {int(places[tuple(at)])}{row}. "
            "Number them from 0 on, and make the table as large as the largest plus one, or give "
            "all that are unknown one place of their own."
        )

    return look
