"""Measuring: whether merged weights are worth having, by rows that were set aside.

What two networks know is told of their linearisations, and only rows can tell whether it holds.
The measure is √(mean squared error) over rows and outputs, or the mean of −log softmax.
"""

from typing import Any

import torch

from onepass.errors import MergeError, ParameterError
from onepass.nn.losses import targets

__all__ = ["refuse_worse"]

_WORSE = 1.01  # times the better of the two: what rounding and few rows may do
_LEAST = 1e-4  # of the answers' size: below, all is fitted


def refuse_worse(one: Any, two: Any, w: Any, rows: Any, where: str) -> None:
    """Refuse weights that say less of rows than the better of two learners.

    Parameters
    ----------
    one, two : learners of op.nn
    w : Tensor of shape (p,)
        The merged weights.
    rows : tuple (x, y)
        Of both parts of the stream, or of what will come.
    where : str
        What the user called, for messages.

    Raises
    ------
    ParameterError
        If these are no rows and their answers.
    MergeError
        If the merged weights are worse. The modules are as they were.
    """
    if not isinstance(rows, (tuple, list)) or len(rows) != 2:
        raise ParameterError(
            f"{where}: `rows` must be a pair (x, y), got {type(rows).__name__}. Give rows of both "
            "parts, with their answers."
        )
    x, y = rows
    asked = one.network.prepare(x, where)
    if not len(asked):
        raise ParameterError(
            f"{where}: `rows` must hold at least one row, got none. Leave it out to merge without "
            "a measure."
        )
    said = [one.network.outputs(asked), two.outputs(x)]
    wanted = targets(y, len(asked), said[0].shape[1], one.loss, said[0], where)
    before = one.network.weights()
    try:
        one.network.set_weights(w.to(before.dtype))
        said.append(one.network.outputs(asked))
    finally:
        one.network.set_weights(before)
    mine, theirs, merged = (_error(one.loss, each, wanted) for each in said)
    size = 1.0 if one.loss == "cross_entropy" else float(wanted.square().mean().sqrt())
    if not merged <= max(_WORSE * min(mine, theirs), _LEAST * size):
        raise MergeError(
            f"{where}: the merged network must be no worse of `rows` than its parts, got errors of "
            f"{merged:.3g} where the first has {mine:.3g} and the second {theirs:.3g}. Keep the "
            "better of the two and let it learn the other's stream; or merge earlier, or with a "
            "memory with a limit, a wider network, or noise > 0."
        )


def _error(loss: str, said: Any, wanted: Any) -> float:
    said, wanted = said.double(), wanted.to(said.device)
    if loss == "cross_entropy":
        return -float((wanted * torch.log_softmax(said, dim=1)).sum(dim=1).mean())
    return float((said - wanted).square().mean().sqrt())
