"""Outputs of a frozen PyTorch module as features.

The module f runs in evaluation mode and without gradients, in batches of rows,

    z = f(x; w),              w the weights when it was passed                                 (1)

and its outputs, flattened, are the features.

Cost: that of f a row, and memory for the outputs of one row.
"""

import copy
import hashlib
from collections.abc import Hashable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from onepass.errors import ParameterError, ShapeError, TypeMismatchError, import_extra
from onepass.features.pretrained import FrozenNetwork, Opened
from onepass.types import Array, Floats
from onepass.validation import torch_compatible

if TYPE_CHECKING:
    import torch

__all__ = ["TorchFeatures"]

_WHO = "TorchFeatures"
_DTYPES = ("float16", "bfloat16", "float32", "float64")


class TorchFeatures(FrozenNetwork):
    """A module of PyTorch, trained beforehand and frozen, as features (extra ``torch``).

    It is asked in evaluation mode, whatever its training flag: dropout is off, and batch
    normalisation uses its running statistics. Its parameters, buffers, flags and gradients stay
    as they are. Nothing is learned, so that a learner behind it is as exact as it is on raw
    columns. Should the weights change from outside, the next rows are refused; what PyTorch does
    not count itself, writes through ``.data`` or NumPy, goes unseen.

    Numbers go in as they come, bytes not divided by 255: scale them as they were in training.
    Matrix products round a little differently for other numbers of rows, so that how a stream is
    cut shows in the last bits of the module's dtype. ``batch_size=1`` asks each row alone and
    gives the same bits however the stream is cut; ``dtype="float64"`` makes them small.

    A model file holds no module: ``op.load(path, module=...)`` wants it again, and compares the
    digest of its weights and, when it is first asked, its answer to a row of noise.

    Parameters
    ----------
    module : torch.nn.Module
        It takes one tensor of shape (n, *shape) and gives one of n rows, each whatever others are
        asked with it.
    layer : str, optional
        The name of a layer within it, as ``named_modules`` has it, whose outputs are the features;
        what comes after is not run. By default the module's own outputs.
    shape : tuple of int, optional
        Of one row as the module takes it, such as (3, 32, 32), where rows come flat. By default
        as they come.
    batch_size : int, default=64
        Rows that are asked at once, >= 1.
    device : str, optional
        Such as "cuda:0", where a copy of the module is then kept. By default the module's own.
    dtype : {"float16", "bfloat16", "float32", "float64"}, optional
        In which a copy of the module computes. By default its own. Features are float64 where it
        gives that, else float32.

    Attributes
    ----------
    digest_ : str
        SHA-256 of the weights and buffers: of names, dtypes, shapes and bytes.
    shape_ : tuple of int
        Of one row as it goes in.
    trial_ : ndarray of shape (n_features_out_,)
        What the module says of a row of noise.
    n_features_in_, rows_seen_ : int

    Raises
    ------
    TypeMismatchError
        If it is no module, or cannot be copied.
    ParameterError
        If a parameter is out of range; if the module draws lots, mixes rows, or is another than
        when learning began.
    ShapeError, ModuleError
        If rows do not fit into the module, or it raises, or gives no number for each row.
    NumericalError
        If a feature is not finite; the row is named.
    MissingExtraError
        If PyTorch is not installed.

    Examples
    --------
    >>> import torch
    >>> import onepass as op
    >>> from sklearn.datasets import load_digits
    >>> X, y = load_digits(return_X_y=True)
    >>> lots = torch.random.manual_seed(0)
    >>> net = torch.nn.Sequential(torch.nn.Conv2d(1, 60, 3), torch.nn.ReLU(), torch.nn.MaxPool2d(2))
    >>> model = op.Pipeline(TorchFeatures(net, shape=(1, 8, 8)), op.RLSClassifier(ridge=1.0))
    >>> model.partial_fit(X[:1000] / 16, y[:1000]).features_[0].n_features_out_
    540
    >>> float((model.predict(X[1000:] / 16) == y[1000:]).mean().round(1))
    1.0
    """

    outside: ClassVar[Mapping[str, str]] = {"module": "a torch.nn.Module"}

    _letter: ClassVar[str] = "torch"
    _who: ClassVar[str] = _WHO

    def __init__(
        self,
        module: "torch.nn.Module",
        *,
        layer: str | None = None,
        shape: tuple[int, ...] | None = None,
        batch_size: int = 64,
        device: str | None = None,
        dtype: str | None = None,
    ) -> None:
        self.module = module
        self.layer = layer
        self.shape = shape
        self.batch_size = batch_size
        self.device = device
        self.dtype = dtype

    # -- hooks -------------------------------------------------------------------------------------

    def _key(self) -> tuple[Hashable, ...]:
        module = _module(self.module)
        return (id(module), self.layer, self.device, self.dtype, *map(_version, _numbers(module)))

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

    def _open(self) -> Opened:
        torch = _torch()
        module = _module(self.module)
        if self.dtype is not None and self.dtype not in _DTYPES:
            raise ParameterError(
                f"{_WHO}: `dtype` must be one of {', '.join(_DTYPES)}, got {self.dtype!r}. "
                "Construct it with one of these, as text."
            )
        digest = self._digest()
        dtype = None if self.dtype is None else getattr(torch, self.dtype)
        shared = dtype is None and self.device is None
        twin = _twin(module, shared=shared)
        try:
            twin = twin if shared else twin.to(device=self.device, dtype=dtype)
        except (RuntimeError, ValueError, TypeError, AssertionError) as wrong:
            raise ParameterError(
                f"{_WHO}: `device` must be one that PyTorch finds here, got {self.device!r}: "
                f"{str(wrong).strip()[:200]}. Construct it with another, such as 'cpu'."
            ) from wrong
        first = next((each for each in _numbers(twin) if each.is_floating_point()), None)
        dtype = dtype or (torch.float32 if first is None else first.dtype)
        device = torch.device(self.device or "cpu") if first is None else first.device
        if self.layer is not None:
            _stop_at(twin, self.layer)

        def ask(rows: Array) -> Floats:
            with torch.no_grad(), torch.autocast(device.type, enabled=False):
                try:  # a tensor of its own: a module may write into what it is given
                    said = twin(torch.from_numpy(torch_compatible(rows)).to(device, dtype))
                except _Reached as reached:
                    said = reached.said
                return _numpy(said)

        return Opened(ask, digest)


class _Reached(BaseException):
    """The layer that was asked for has answered: what comes after need not run."""

    def __init__(self, said: object) -> None:
        super().__init__()
        self.said = said


def _stop_at(twin: "torch.nn.Module", layer: str) -> None:
    """End a forward pass with the outputs of a layer."""
    found = dict(twin.named_modules()).get(layer) if layer else None
    if found is None:
        names = [name for name, _ in twin.named_modules() if name]
        raise ParameterError(
            f"{_WHO}: `layer` must be the name of one within the module, such as "
            f"{', '.join(names[-5:]) or 'none'}, got {layer!r}. Look at module.named_modules()."
        )

    def reached(_layer: object, _given: object, said: object) -> None:
        raise _Reached(said)

    try:
        found.register_forward_hook(reached)
    except RuntimeError as wrong:
        raise ParameterError(
            f"{_WHO}: `layer` must be of a module that tells what its layers say, got a "
            f"{type(twin).__name__}: {wrong}. Hand in the module that it was compiled from, or one "
            "that ends with this layer."
        ) from wrong


def _torch() -> Any:
    return import_extra("torch", extra="torch", where=_WHO)


def _module(module: object) -> "torch.nn.Module":
    """The module, if it is one with weights."""
    torch = _torch()
    if not isinstance(module, torch.nn.Module):
        raise TypeMismatchError(
            f"{_WHO}: `module` must be a torch.nn.Module, got {type(module).__name__}. Hand in "
            "the network itself, with its weights."
        )
    for name, each in module.named_parameters():
        if each.is_meta or torch.nn.parameter.is_lazy(each):
            raise TypeMismatchError(
                f"{_WHO}: `module` must have all its weights, got none in {name!r} yet. Load them, "
                "or ask a lazy module once, and hand it in then."
            )
    return module


def _numbers(module: "torch.nn.Module") -> "list[torch.Tensor]":
    return [*module.parameters(), *module.buffers()]


def _version(tensor: "torch.Tensor") -> Hashable:
    """What changes when a tensor is written into, or has other memory."""
    return id(tensor), tensor.data_ptr(), -1 if tensor.is_inference() else tensor._version  # noqa: SLF001


def _twin(module: "torch.nn.Module", *, shared: bool) -> "torch.nn.Module":
    """The module in evaluation mode, in flags and buffers of its own; its weights may be shared.

    Weights are copied if an embedding has ``max_norm``, which rescales them in each forward pass.
    """
    shared = shared and all(getattr(each, "max_norm", None) is None for each in module.modules())
    memo = {id(each): each for each in module.parameters()} if shared else {}
    try:
        twin = copy.deepcopy(module, memo)
    except Exception as wrong:  # whatever a module of a user's holds
        raise TypeMismatchError(
            f"{_WHO}: `module` must be one that copy.deepcopy can copy, got "
            f"{type(wrong).__name__}: {str(wrong)[:200]}. Hand in a copy made with "
            "torch.no_grad(), without what cannot be copied."
        ) from wrong
    for each in twin.modules():
        each.training = False  # train() may be overridden, and do more than that
    return twin


def _numpy(said: object) -> Floats:
    """Outputs as an array of real numbers."""
    torch = _torch()
    if not isinstance(said, torch.Tensor) or said.is_complex():
        kind = "complex numbers" if isinstance(said, torch.Tensor) else type(said).__name__
        raise ShapeError(
            f"{_WHO}: the module must give one tensor of real numbers, got {kind}. Choose a layer "
            "that does, layer=..., or wrap it in a module that gives the part that you want."
        )
    dtype = torch.float64 if said.dtype == torch.float64 else torch.float32
    array: Floats = np.array(said.detach().to("cpu", dtype).numpy())
    return array
