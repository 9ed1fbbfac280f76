"""Rounding: whether two ways to one answer differ by more than the rounding of numbers explains.

The same row is multiplied in another order when it comes alone than among others. Where a module
is as steep as sin(10⁵ x), or its weights are so large that they cancel, that shows in its outputs.
With f̃ the module in float64, or as it is where it cannot be asked so, and δ of the size of the
last digit that f̃ computes in,

    |f̃(row among others) − f̃(row)|  ≤  max(tolerance, 16 max_δ |f̃(row (1 + δ); w (1 + δ)) − f̃(row)|)

is what rounding can do: errors of a sum are of the order of those of its terms (N. J. Higham,
"Accuracy and Stability of Numerical Algorithms", 2002, section 3.1).
"""

import copy
from typing import Any

import torch

from onepass.nn.answers import as_matrix
from onepass.nn.inputs import Batch
from onepass.nn.mode import evaluating

__all__ = ["alike", "rounded", "tolerance"]

_TRIES = 8
_ROOM = 16.0


def tolerance(tensor: Any) -> float:
    """How far two ways to one number may differ, relative to the largest of its kind.

    Half the digits of the dtype; float32 on an accelerator may be multiplied with ten bits.
    """
    eps = float(torch.finfo(tensor.dtype).eps)
    coarse = tensor.dtype == torch.float32 and tensor.device.type != "cpu"
    return float((2.0**-11 if coarse else eps) ** 0.5)


def alike(a: Any, b: Any, within: float | None = None, room: float = 0.0) -> bool:
    """Whether all outputs are alike, nan as nan.

    Parameters
    ----------
    a, b : Tensors of one shape
    within : float, optional
        So far they may differ, relative to the largest of a. Default: their tolerance.
    room : float, default 0.0
        So far they may differ at least.
    """
    scale = torch.nan_to_num(a).abs().amax().item()
    atol = max((tolerance(a) if within is None else within) * scale, room)
    return bool(torch.isclose(a, b, rtol=0.0, atol=atol, equal_nan=True).all())


def rounded(module: Any, rows: Batch, i: int, said: Any) -> bool:
    """Whether the answers for row i among others and alone differ by rounding at most.

    Parameters
    ----------
    module : torch.nn.Module
        It is copied, once or twice; the copy is asked.
    rows : Batch
    i : int
    said : Tensor
        Outputs as the module gives them; of their dtype is the tolerance.
    """
    for wide in (True, False):
        try:
            return _rounded(module, rows, i, said, wide=wide)
        except Exception:  # noqa: BLE001, S112  a module need not know float64, nor be copied
            continue
    return False


def _rounded(module: Any, rows: Batch, i: int, said: Any, *, wide: bool) -> bool:
    twin = copy.deepcopy(module)
    if wide:
        twin, rows = twin.double(), rows.holding(map(_double, rows.tensors), rows.n)
    row, layers = rows[i], list(twin.modules())
    with torch.no_grad(), evaluating(layers):
        together, alone = _asked(twin, rows)[i : i + 1], _asked(twin, row)
        if wide and alone.dtype != torch.float64:
            raise TypeError("it computes in another precision")
        within = tolerance(said)
        if alike(together, alone, within):
            return True
        lots, known = torch.Generator().manual_seed(0), [each.clone() for each in _numbers(twin)]
        spread = 0.0
        for _ in range(_TRIES):
            for each, before in zip(_numbers(twin), known, strict=True):
                each.copy_(_shaken(before, lots))
            near = row.holding([_shaken(each, lots) for each in row.tensors], row.n)
            moved = torch.nan_to_num(_asked(twin, near) - alone).abs().amax()
            spread = max(spread, float(moved))
    return alike(together, alone, within, _ROOM * spread)


def _asked(module: Any, rows: Batch) -> Any:
    return as_matrix(module(*rows.args, **rows.kwargs), rows.n, "")


def _numbers(module: Any) -> list[Any]:
    return [each for each in module.parameters() if each.is_floating_point()]


def _double(tensor: Any) -> Any:
    if tensor.is_complex():
        return tensor.to(torch.complex128)
    return tensor.double() if tensor.is_floating_point() else tensor


def _shaken(tensor: Any, lots: torch.Generator) -> Any:
    """Numbers with the last digit of each up or down, by lot."""
    if not tensor.is_floating_point():
        return tensor
    signs = torch.randint(0, 2, tensor.shape, generator=lots) * 2 - 1
    return tensor * (1.0 + signs.to(tensor) * torch.finfo(tensor.dtype).eps)
