"""Mode: a module as it answers in evaluation, whatever its training flag, which is left as it was.

A stream that is learned row by row has no batch statistics, and an answer that is drawn by lot
has no derivative. So batch normalisation uses its running statistics, and dropout is off.
"""

import warnings
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from onepass import linalg
from onepass.errors import ModuleModeWarning, ParameterError

__all__ = [
    "NORMS", "derivable", "evaluating", "plainly", "refuse_batch_statistics", "refuse_max_norm",
    "warn_of_training",
]  # fmt: skip

NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)
_DROPOUTS = (
    nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout,
)  # fmt: skip
_WITHIN = (nn.RNNBase, nn.MultiheadAttention)


@contextmanager
def evaluating(layers: Iterable[Any]) -> Iterator[None]:
    """Hold layers in evaluation mode, and give each its own flag back.

    Flags are set one by one: ``train`` may be overridden, and do more than that.
    """
    training = [each for each in layers if each.training]
    for each in training:
        each.training = False
    try:
        yield
    finally:
        for each in training:
            each.training = True


def warn_of_training(module: Any, where: str, stacklevel: int = 2) -> None:
    """Warn where a module is in training mode and would answer differently in it."""
    dropouts = [name for name, each in module.named_modules() if each.training and _drops(each)]
    norms = [
        name for name, each in module.named_modules() if each.training and isinstance(each, NORMS)
    ]
    if not dropouts and not norms:
        return
    said = []
    if dropouts:
        said.append(f"dropout ({dropouts[0]!r}) is off")
    if norms:
        said.append(f"batch normalisation ({norms[0]!r}) uses its running statistics as they are")
    warnings.warn(
        f"{where}: the module is in training mode, but is asked as in evaluation mode: "
        f"{' and '.join(said)}. Its training flag stays as it is. Call module.eval() to say that "
        "you know.",
        ModuleModeWarning,
        stacklevel=stacklevel + 1,
    )


def refuse_batch_statistics(module: Any, where: str) -> None:
    """Refuse batch normalisation without running statistics.

    Raises
    ------
    ParameterError
        It needs other rows of a batch, which learning row by row has not.
    """
    for name, each in module.named_modules():
        if isinstance(each, NORMS) and (each.running_mean is None or each.running_var is None):
            raise ParameterError(
                f"{where}: the answer for a row must not depend on other rows, but {name!r} "
                f"({type(each).__name__}) has no running statistics and uses those of the batch. "
                "Use torch.nn.GroupNorm or torch.nn.LayerNorm, or track_running_stats=True."
            )


def refuse_max_norm(module: Any, where: str) -> None:
    """Refuse embeddings that rescale their own weights in each forward pass.

    Raises
    ------
    ParameterError
        A prediction would change the model.
    """
    for name, each in module.named_modules():
        if isinstance(each, (nn.Embedding, nn.EmbeddingBag)) and each.max_norm is not None:
            raise ParameterError(
                f"{where}: a prediction must not change the module, but {name!r} "
                f"({type(each).__name__}) has max_norm={each.max_norm:g} and rescales its weights "
                "in each forward pass. Rescale them once and set max_norm = None, or rescale what "
                "it returns in forward."
            )


def _drops(layer: Any) -> bool:
    """Whether a layer draws lots in training mode."""
    if isinstance(layer, _DROPOUTS):
        return bool(layer.p > 0)
    return isinstance(layer, _WITHIN) and bool(layer.dropout > 0)


@contextmanager
def plainly(device: Any, p: int) -> Iterator[None]:
    """Hold off what is around a step of p weights: inference mode, autocast, threads too many.

    Tensors that are made in inference mode could not be written in again outside of it, and
    autocast would multiply what is remembered in half precision.
    """
    derive = torch.is_grad_enabled()
    with (
        torch.inference_mode(mode=False),
        torch.set_grad_enabled(derive),  # which the end of inference mode has switched on
        torch.autocast(device.type, enabled=False),
        linalg.tensors_alone(p),
    ):
        yield


def derivable(module: Any, *, batched: bool = False) -> ExitStack:
    """Hold torch to kernels that have a derivative in evaluation mode, until the stack is closed.

    Parameters
    ----------
    module : torch.nn.Module
    batched : bool, default False
        The derivative will be taken for many rows or outputs at once, by ``vmap``. Fused attention
        knows no such derivative, plain attention does.
    """
    held = ExitStack()
    if batched:
        held.enter_context(sdpa_kernel(SDPBackend.MATH))
    layers = module.modules() if torch.backends.cudnn.is_available() else ()
    if any(isinstance(each, nn.RNNBase) for each in layers):
        # cuDNN derives recurrent layers in training mode alone
        held.enter_context(torch.backends.cudnn.flags(enabled=False))
    return held
