"""A fixed row of noise in the form of the learned rows, on which modules are compared.

A file or a merge can thus check that two modules compute the same function, without storing a row.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from onepass.nn.batch import Batch
from onepass.nn.module import Network
from onepass.nn.probe import all_close


def describe(tree: Any) -> Any:
    """Describe the arguments of a module as plain values: tensors by dtype and shape of a row."""
    if isinstance(tree, Batch):
        return {"args": describe(list(tree.args)), "kwargs": describe(dict(tree.kwargs))}
    if isinstance(tree, Tensor):
        return {"dtype": str(tree.dtype).removeprefix("torch."), "shape": list(tree.shape[1:])}
    if isinstance(tree, Mapping):
        return {"items": [[key, describe(each)] for key, each in tree.items()]}
    if isinstance(tree, (tuple, list)):
        return {"tuple": isinstance(tree, tuple), "of": [describe(each) for each in tree]}
    return {"value": tree}


def example(description: Mapping[str, Any], device: torch.device) -> Batch:
    """Return one row: noise for numbers, 0 for integers and booleans."""
    noise = torch.Generator().manual_seed(0)
    args, kwargs = (_built(description[name], noise, device) for name in ("args", "kwargs"))
    return Batch(tuple(args), kwargs, 1, 1, {})


def _built(node: Mapping[str, Any], noise: torch.Generator, device: torch.device) -> Any:
    if "items" in node:
        return {key: _built(each, noise, device) for key, each in node["items"]}
    if "of" in node:
        parts = [_built(each, noise, device) for each in node["of"]]
        return tuple(parts) if node["tuple"] else parts
    if "value" in node:
        return node["value"]
    dtype, shape = getattr(torch, node["dtype"]), (1, *node["shape"])
    if dtype.is_floating_point or dtype.is_complex:
        return torch.randn(shape, generator=noise).to(device, dtype)
    return torch.zeros(shape, dtype=dtype, device=device)


def example_outputs(network: Network, description: Any) -> Tensor | None:
    """Return the outputs (1, c) of a module for the example; None if they are not finite."""
    if description is None:
        return None
    try:
        found = network.outputs(example(description, network.device))
    except Exception:  # noqa: BLE001  the module may not accept noise
        return None
    return found.cpu() if bool(found.isfinite().all()) else None


def computes(network: Network, description: Any, expected: Tensor | None) -> bool:
    """Return whether a module has the expected outputs (1, c) for the example, if any."""
    found = None if expected is None else example_outputs(network, description)
    if expected is None:
        return True
    return found is not None and found.shape == expected.shape and all_close(expected, found)
