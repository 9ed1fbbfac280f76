"""Batches of a DataLoader, a Dataset or an iterator, as rows and targets in one pass."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

from onepass.errors import TypeMismatchError
from onepass.nn.batch import map_tensors

_ROWS = 256  # rows of a batch of a Dataset
_TARGETS = ("labels", "label", "targets", "target", "y")  # keys of a batch that is a dict


def batches(x: Any, y: Any, weights: Any, device: torch.device) -> Iterator[tuple[Any, Any, Any]]:
    """Yield rows, targets and weights: those given, or without y those of batches, on a device.

    Parameters
    ----------
    x : DataLoader, Dataset or iterator, or rows
    y : targets, or None
    weights : weights of the rows, or None
    device : torch.device

    Raises
    ------
    TypeMismatchError
        If a batch has no targets, or y is missing or not expected.
    """
    streamed = isinstance(x, (DataLoader, Dataset, Iterator))
    if streamed == (y is not None):
        raise TypeMismatchError(
            "`y` must contain the targets of x, and be omitted for a DataLoader, Dataset or "
            f"iterator, got {type(x).__name__} and {type(y).__name__}. Pass learn(x, y), or "
            "learn(loader)."
        )
    if not streamed:
        yield x, y, weights
        return
    if weights is not None:
        raise TypeMismatchError(
            "`sample_weight` must be omitted for batches, got weights. Pass learn(x, y, weights) "
            "for each batch."
        )
    loader = DataLoader(x, batch_size=_ROWS) if isinstance(x, Dataset) else x
    for i, found in enumerate(loader):
        rows, targets = (
            map_tensors(part, lambda each: each.to(device)) for part in _pair(found, i)
        )
        yield rows, targets, None


def _pair(found: Any, i: int) -> tuple[Any, Any]:
    """Return rows and targets of a batch."""
    if isinstance(found, Mapping):
        key = next((key for key in _TARGETS if key in found), None)
        if key is not None and len(found) > 1:
            rows = {name: part for name, part in found.items() if name != key}
            return (rows if len(rows) > 1 else next(iter(rows.values()))), found[key]
    elif isinstance(found, (tuple, list)) and len(found) > 1:
        return found[0], found[1]
    size = f" of length {len(found)}" if hasattr(found, "__len__") else ""
    raise TypeMismatchError(
        f"each batch must be a pair (x, y), or a dict with the key 'labels', got "
        f"{type(found).__name__}{size} in batch {i}. Let the Dataset return (x, y), with several "
        "inputs as a tuple or dict."
    )
