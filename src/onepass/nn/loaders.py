"""Batches of a torch DataLoader or Dataset, as pairs of rows and targets in one pass."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

from onepass.errors import TypeMismatchError
from onepass.nn.batch import map_tensors

_ROWS = 256  # rows of a batch of a Dataset


def pairs(x: Any, y: Any, device: torch.device) -> Iterator[tuple[Any, Any]]:
    """Yield rows and targets: x and y, or without y the batches of a loader, on a device.

    Parameters
    ----------
    x : DataLoader or Dataset, or rows
    y : targets, or None
    device : torch.device

    Raises
    ------
    TypeMismatchError
        If a batch is not a pair, or y is missing or not expected.
    """
    if isinstance(x, (DataLoader, Dataset)) == (y is not None):
        raise TypeMismatchError(
            "`y` must contain the targets of x, and be omitted for a DataLoader or Dataset, got "
            f"{type(x).__name__} and {type(y).__name__}. Pass learn(x, y), or learn(loader)."
        )
    if y is not None:
        yield x, y
        return
    batches = x if isinstance(x, DataLoader) else DataLoader(x, batch_size=_ROWS)
    for i, found in enumerate(batches):
        if not isinstance(found, (tuple, list)) or len(found) != 2:
            size = f" of length {len(found)}" if hasattr(found, "__len__") else ""
            raise TypeMismatchError(
                f"each batch must be a pair (x, y), got {type(found).__name__}{size} in batch {i}. "
                "Let the Dataset return (x, y), with several inputs as a tuple or dict."
            )
        rows, targets = (map_tensors(part, lambda each: each.to(device)) for part in found)
        yield rows, targets
