"""Outputs of a frozen PyTorch module as features.

The module f runs in evaluation mode and without gradients, in batches of rows,

    z = f(x; w),              w the weights at construction                                 (1)

and its outputs, flattened, are the features.

Cost: one evaluation of f per row, and memory for the outputs of one row.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Hashable, Mapping
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from onepass.declared import param
from onepass.errors import ParameterError, ShapeError, TypeMismatchError, import_extra
from onepass.features.pretrained import FrozenNetwork, OpenNetwork
from onepass.types import Array, Floats
from onepass.validation import torch_compatible

if TYPE_CHECKING:
    import torch

_DTYPES = ("float16", "bfloat16", "float32", "float64")


@dataclass(eq=False, repr=False)
class TorchFeatures(FrozenNetwork):
    """Outputs of a pretrained, frozen PyTorch module as features (extra ``torch``).

    The module runs in evaluation mode, whatever its training flag: dropout is off, and batch
    normalisation uses its running statistics. Its parameters, buffers, flags and gradients are not
    modified. Nothing is learned, so a learner after it stays exact. If the weights change, the next
    rows are rejected; writes through ``.data`` or NumPy, which PyTorch does not track, are not
    detected.

    Rows are passed on unchanged, without division of bytes by 255: scale them as in training.
    Rounding in matrix products depends on the number of rows, so block sizes affect the last bits
    of the features. ``batch_size=1`` evaluates each row by itself, with the same bits for all block
    sizes; ``dtype="float64"`` makes the differences small.

    Model files do not contain the module: ``op.load(path, module=...)`` requires it again, and
    compares the digest of its weights and, when it is first used, its output for a row of noise.

    Parameters
    ----------
    module : torch.nn.Module
        Its ``forward`` accepts one tensor of shape (n, *shape) and returns a tensor of n rows, each
        independent of the others.
    layer : str, optional
        The name of a submodule, as in ``named_modules``, whose outputs are the features; later
        layers are not run. By default the outputs of the module.
    shape : tuple of int, optional
        Shape of one row that the module accepts, such as (3, 32, 32), if rows are flat. Default:
        the shape of the rows.
    batch_size : int, default=64
        Number of rows per forward pass, >= 1.
    device : str, optional
        Device of a copy of the module, such as "cuda:0". By default that of the module.
    dtype : {"float16", "bfloat16", "float32", "float64"}, optional
        Dtype of a copy of the module. By default that of the module. Features are float64 if the
        module returns that, else float32.

    Attributes
    ----------
    digest_ : str
        SHA-256 of the weights and buffers: of names, dtypes, shapes and bytes.
    shape_ : tuple of int
        Shape of one row that the module accepts.
    trial_ : ndarray of shape (n_features_out_,)
        Output of the module for a row of noise.
    n_features_in_, rows_seen_ : int

    Raises
    ------
    TypeMismatchError
        If ``module`` is not a module, or cannot be copied.
    ParameterError
        If a parameter is out of range, the module is random, mixes rows, or has changed since
        learning began.
    ShapeError, ModuleError
        If rows do not have the shape of the input, or the module raises, or does not return numbers
        for each row.
    NumericalError
        If a feature is not finite; the message contains the row.
    MissingExtraError
        If PyTorch is not installed.

    Examples
    --------
    >>> import torch
    >>> import onepass as op
    >>> from sklearn.datasets import load_digits
    >>> X, y = load_digits(return_X_y=True)
    >>> generator = torch.random.manual_seed(0)
    >>> net = torch.nn.Sequential(torch.nn.Conv2d(1, 60, 3), torch.nn.ReLU(), torch.nn.MaxPool2d(2))
    >>> model = op.Pipeline(TorchFeatures(net, shape=(1, 8, 8)), op.RLSClassifier(ridge=1.0))
    >>> model.partial_fit(X[:1000] / 16, y[:1000]).features_[0].n_features_out_
    540
    >>> float((model.predict(X[1000:] / 16) == y[1000:]).mean().round(1))
    1.0
    """

    _outside: ClassVar[Mapping[str, str]] = {"module": "a torch.nn.Module"}

    _prefix: ClassVar[str] = "torch"

    module: torch.nn.Module
    _: KW_ONLY
    layer: str | None = None
    shape: tuple[int, ...] | None = None
    batch_size: int = param(64, whole=True, low=1)
    device: str | None = None
    dtype: str | None = param(None, choices=_DTYPES)

    # -- hooks -------------------------------------------------------------------------------------

    def _key(self) -> tuple[Hashable, ...]:
        module = _module(self.module)
        return (id(module), self.layer, self.device, self.dtype, *map(_version, _tensors(module)))

    def _digest(self) -> str:
        torch, total = _torch(), hashlib.sha256()
        for name, each in sorted(_module(self.module).state_dict().items()):
            if isinstance(each, torch.Tensor):
                plain = each.detach()
                plain = plain.dequantize() if plain.is_quantized else plain
                plain = plain if plain.layout == torch.strided else plain.to_dense()
                raw = plain.cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
                total.update(f"{name}\0{each.dtype}\0{tuple(each.shape)}\0".encode())
                total.update(raw.data)
        return total.hexdigest()

    def _open(self) -> OpenNetwork:
        torch = _torch()
        module = _module(self.module)
        digest = self._digest()
        dtype = None if self.dtype is None else getattr(torch, self.dtype)
        shared = dtype is None and self.device is None
        copied = _eval_copy(module, shared=shared)
        try:
            copied = copied if shared else copied.to(device=self.device, dtype=dtype)
        except (RuntimeError, ValueError, TypeError, AssertionError) as error:
            raise ParameterError(
                f"`device` must be a device available to PyTorch, got {self.device!r}: "
                f"{str(error).strip()[:200]}. Pass another device, such as 'cpu'."
            ) from error
        first = next((each for each in _tensors(copied) if each.is_floating_point()), None)
        dtype = dtype or (torch.float32 if first is None else first.dtype)
        device = torch.device(self.device or "cpu") if first is None else first.device
        if self.layer is not None:
            _stop_at(copied, self.layer)

        def forward(rows: Array) -> Floats:
            with torch.no_grad(), torch.autocast(device.type, enabled=False):
                try:  # a new tensor, as a module may write to its input
                    outputs = copied(torch.from_numpy(torch_compatible(rows)).to(device, dtype))
                except _LayerReached as reached:
                    outputs = reached.outputs
                return _numpy(outputs)

        return OpenNetwork(forward, digest)


class _LayerReached(BaseException):
    """Ends a forward pass at the requested layer."""

    def __init__(self, outputs: object) -> None:
        super().__init__()
        self.outputs = outputs


def _stop_at(copied: torch.nn.Module, layer: str) -> None:
    """End a forward pass with the outputs of a layer."""
    found = dict(copied.named_modules()).get(layer) if layer else None
    if found is None:
        names = [name for name, _ in copied.named_modules() if name]
        raise ParameterError(
            "`layer` must be the name of a layer of the module, such as "
            f"{', '.join(names[-5:]) or 'none'}, got {layer!r}. See "
            "module.named_modules() for all names."
        )

    def reached(_layer: object, _inputs: object, outputs: object) -> None:
        raise _LayerReached(outputs)

    try:
        found.register_forward_hook(reached)
    except RuntimeError as error:
        raise ParameterError(
            "`layer` requires a module that supports forward hooks, got a "
            f"{type(copied).__name__}: {error}. Pass the module that it was compiled "
            "from, or a module that ends with this layer."
        ) from error


def _torch() -> Any:
    return import_extra("torch", extra="torch")


def _module(module: object) -> torch.nn.Module:
    """Return the module if it has weights; reject other objects."""
    torch = _torch()
    if not isinstance(module, torch.nn.Module):
        raise TypeMismatchError(
            f"`module` must be a torch.nn.Module, got {type(module).__name__}. Pass the "
            "network itself, with its weights."
        )
    for name, each in module.named_parameters():
        if each.is_meta or torch.nn.parameter.is_lazy(each):
            raise TypeMismatchError(
                f"`module` must have initialised weights, got none in {name!r}. Load "
                "them, or call a lazy module once."
            )
    return module


def _tensors(module: torch.nn.Module) -> list[torch.Tensor]:
    return [*module.parameters(), *module.buffers()]


def _version(tensor: torch.Tensor) -> Hashable:
    """Return a key that changes when a tensor is written to or its memory is replaced."""
    return id(tensor), tensor.data_ptr(), -1 if tensor.is_inference() else tensor._version  # noqa: SLF001


def _eval_copy(module: torch.nn.Module, *, shared: bool) -> torch.nn.Module:
    """Return a copy of the module in evaluation mode; its weights may be shared.

    Weights are copied if an embedding has ``max_norm``, which rescales them in each forward pass.
    """
    shared = shared and all(getattr(each, "max_norm", None) is None for each in module.modules())
    memo = {id(each): each for each in module.parameters()} if shared else {}
    try:
        copied = copy.deepcopy(module, memo)
    except Exception as error:  # a module may contain any objects
        raise TypeMismatchError(
            "`module` must be one that copy.deepcopy can copy, got "
            f"{type(error).__name__}: {str(error)[:200]}. Pass a module made with "
            "torch.no_grad(), without parts that cannot be copied."
        ) from error
    for each in copied.modules():
        each.training = False  # train() may be overridden
    return copied


def _numpy(outputs: object) -> Floats:
    """Convert outputs to an array of real numbers."""
    torch = _torch()
    if not isinstance(outputs, torch.Tensor) or outputs.is_complex():
        kind = "complex numbers" if isinstance(outputs, torch.Tensor) else type(outputs).__name__
        raise ShapeError(
            f"the module must return one tensor of real numbers, got {kind}. Select "
            "such a layer with layer=..., or wrap the module."
        )
    dtype = torch.float64 if outputs.dtype == torch.float64 else torch.float32
    array: Floats = np.array(outputs.detach().to("cpu", dtype).numpy())
    return array
