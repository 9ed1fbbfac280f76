"""Written: a memory as nested dicts of tensors, numbers and names, for ``state_dict``, and back.

Nothing but tensors, numbers and text is in it, so that ``torch.load(weights_only=True)`` reads it.
Only states that :mod:`onepass.memory` lists can be made of it.
"""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import numpy as np
import torch

from onepass.errors import CheckpointError
from onepass.memory import STATES

__all__ = ["read", "written"]

_KNOWN = {cls.__name__: cls for cls in STATES}
_CLASS, _SMALL = "class", "small"


def written(thing: Any) -> Any:
    """A state, an array, a number or a name as what can be saved; tensors are copied."""
    if isinstance(thing, torch.Tensor):
        return thing.detach().clone()
    if isinstance(thing, np.ndarray):
        return {_SMALL: torch.from_numpy(thing.copy())}
    if isinstance(thing, (str, bool, int, float, type(None))):
        return thing
    if isinstance(thing, np.generic):
        return thing.item()
    parts = {part.name: written(getattr(thing, part.name)) for part in fields(thing) if part.init}
    return {_CLASS: type(thing).__name__, **parts}


def read(said: Any, device: Any, where: str) -> Any:
    """What was written, its tensors copied to a device.

    Parameters
    ----------
    said : dict, Tensor, number or text
    device : torch.device
    where : str
        What the user called, for messages.

    Raises
    ------
    CheckpointError
        If it names what is no memory.
    """
    if isinstance(said, torch.Tensor):
        return said.to(device, copy=True)
    if not isinstance(said, Mapping):
        return said
    if _SMALL in said:
        return said[_SMALL].cpu().numpy().copy()
    name = said.get(_CLASS)
    if name not in _KNOWN:
        raise CheckpointError(
            f"{where}: the state must hold a memory of op.memory, got {name!r}. It is damaged, or "
            "of a later version of onepass."
        )
    parts = {key: read(value, device, where) for key, value in said.items() if key != _CLASS}
    return _KNOWN[name](**parts)
