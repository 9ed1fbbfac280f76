"""A module as a pure function of rows and of the weights that learn.

The module is called with tensors in place of its parameters, so that its parameters and their
``grad``, flags and hooks are not involved. Changes of buffers and attributes by ``forward`` are
undone.

The module is called in evaluation mode, and its training flag is restored: batch normalisation uses
its running statistics, and dropout is off. A stream that is learned row by row has no batch
statistics, and random outputs have no derivative.

Calls of one module from several threads are serialised by a lock, since a concurrent call would see
the replaced parameters and flags, and restore them as the module's own.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import wraps
from threading import RLock
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode

from onepass import linalg
from onepass.errors import ModuleModeWarning, ParameterError
from onepass.nn.batch import (
    Batch,
    as_matrix,
    check_table_indices,
    holds_indices,
    module_errors,
    tensors,
)
from onepass.nn.selection import Selection

NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)
_DROPOUTS = (
    nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout,
)  # fmt: skip
_WITHIN = (nn.RNNBase, nn.MultiheadAttention)


@contextmanager
def evaluation_mode(layers: Iterable[nn.Module]) -> Iterator[None]:
    """Context in which layers are in evaluation mode; restores the flag of each.

    Flags are set directly, since ``train`` may be overridden.
    """
    training = [each for each in layers if each.training]
    for each in training:
        each.training = False
    try:
        yield
    finally:
        for each in training:
            each.training = True


def warn_training_mode(module: nn.Module, stacklevel: int = 2) -> None:
    """Warn if a module is in training mode and its outputs depend on the mode."""
    dropouts = [name for name, each in module.named_modules() if each.training and _drops(each)]
    norms = [
        name for name, each in module.named_modules() if each.training and isinstance(each, NORMS)
    ]
    if not dropouts and not norms:
        return
    effects = []
    if dropouts:
        effects.append(f"dropout ({dropouts[0]!r}) is off")
    if norms:
        effects.append(
            f"batch normalisation ({norms[0]!r}) uses its running statistics as they are"
        )
    warnings.warn(
        "the module is in training mode, but is evaluated in evaluation mode: "
        f"{' and '.join(effects)}. Its training flag is not changed. Call module.eval() to silence "
        "this warning.",
        ModuleModeWarning,
        stacklevel=stacklevel + 1,
    )


def refuse_batch_statistics(module: nn.Module) -> None:
    """Check that batch normalisation has running statistics.

    Raises
    ------
    ParameterError
        If a layer uses statistics of the batch, which are undefined for single rows.
    """
    for name, each in module.named_modules():
        if isinstance(each, NORMS) and (each.running_mean is None or each.running_var is None):
            raise ParameterError(
                f"the output for a row must not depend on other rows, but {name!r} "
                f"({type(each).__name__}) has no running statistics and uses those of the batch. "
                "Use torch.nn.GroupNorm or torch.nn.LayerNorm, or track_running_stats=True."
            )


def refuse_max_norm(module: nn.Module) -> None:
    """Check that no embedding rescales its weights in the forward pass.

    Raises
    ------
    ParameterError
        If an embedding has ``max_norm``, so that a prediction would change the model.
    """
    for name, each in module.named_modules():
        if isinstance(each, (nn.Embedding, nn.EmbeddingBag)) and each.max_norm is not None:
            raise ParameterError(
                f"a prediction must not change the module, but {name!r} "
                f"({type(each).__name__}) has max_norm={each.max_norm:g} and rescales "
                "its weights in each forward pass. Rescale them once and set max_norm "
                "= None, or rescale the output of the embedding in forward."
            )


def _drops(layer: nn.Module) -> bool:
    """Return whether a layer is random in training mode."""
    if isinstance(layer, _DROPOUTS):
        return bool(layer.p > 0)
    return isinstance(layer, _WITHIN) and bool(layer.dropout > 0)


@contextmanager
def plain_mode(device: torch.device, p: int) -> Iterator[None]:
    """Context for a step of p weights: no inference mode, no autocast, limited threads.

    Tensors created in inference mode could not be updated outside of it, and autocast would compute
    with the memory in half precision.
    """
    derive = torch.is_grad_enabled()
    with (
        torch.inference_mode(mode=False),
        torch.set_grad_enabled(derive),  # leaving inference mode enables gradients
        torch.autocast(device.type, enabled=False),
        linalg.one_thread_for_tensors(p),
    ):
        yield


def differentiable_kernels(module: nn.Module, *, batched: bool = False) -> ExitStack:
    """Return a context that restricts torch to kernels differentiable in evaluation mode.

    Parameters
    ----------
    module : torch.nn.Module
    batched : bool, default False
        Whether derivatives are batched by ``vmap``, which fused attention does not support.
    """
    stack = ExitStack()
    if batched:
        stack.enter_context(sdpa_kernel(SDPBackend.MATH))
    layers = module.modules() if torch.backends.cudnn.is_available() else ()
    if any(isinstance(each, nn.RNNBase) for each in layers):
        # cuDNN differentiates recurrent layers in training mode only
        stack.enter_context(torch.backends.cudnn.flags(enabled=False))
    return stack


_ROWS = 1024
"""Max rows evaluated at once without a derivative."""

_HOOKS = ("_forward_hooks", "_forward_pre_hooks")
_REGISTERED = {"_parameters", "_buffers", "_modules", "training"}


@contextmanager
def substituted(layers: Sequence[nn.Module], tensors: Mapping[int, Tensor]) -> Iterator[None]:
    """Context in which parameters and buffers, given by id, are replaced in all layers.

    ``torch.func.functional_call`` replaces by name: for a layer with two names, it restores the
    first replacement instead of the original.

    Parameters
    ----------
    layers : sequence of torch.nn.Module
        All modules of a module, each once.
    tensors : mapping of int to Tensor
        Replacements by the id of the original.
    """
    places = [
        (registry, key, each)
        for layer in layers
        for registry in (vars(layer)["_parameters"], vars(layer)["_buffers"])
        for key, each in registry.items()
        if id(each) in tensors
    ]
    try:
        for registry, key, each in places:
            registry[key] = tensors[id(each)]
        yield
    finally:
        for registry, key, each in places:
            registry[key] = each


class Function:
    """f(x; w) of a module, row by row.

    Parameters
    ----------
    module : torch.nn.Module
    selection : Selection
        The parameters that learn.
    """

    def __init__(self, module: nn.Module, selection: Selection) -> None:
        self.module = module
        self.selection = selection
        self._layers: list[nn.Module] = []
        self._parameters: list[tuple[str, nn.Parameter]] = []
        self.read_module()
        self.writes_buffers = False
        self.keeps_state = any(vars(each).get(hooks) for each in self._layers for hooks in _HOOKS)
        """Whether the module or a hook on it stores values, so that vmap cannot be used."""

    def read_module(self) -> None:
        """Collect the module's layers and parameters, each once.

        Raises
        ------
        ParameterError
            If a parameter that learns was removed from the module or replaced.
        """
        named = list(self.module.named_modules())
        self._layers = [layer for _, layer in named]
        current: dict[str, nn.Parameter] = {}  # as ``named_parameters``, in one traversal
        seen: set[int] = set()
        for path, layer in named:
            for key, each in layer._parameters.items():  # noqa: SLF001
                if each is not None and id(each) not in seen:
                    seen.add(id(each))
                    current[f"{path}.{key}" if path else key] = each
        self._parameters = list(current.items())
        for name, each in zip(self.selection.names, self.selection.parameters, strict=True):
            if current.get(name) is not each:
                raise ParameterError(
                    f"the module must keep its original parameters, but {name!r} was "
                    "removed or replaced. Create a new learner for the changed module; "
                    "to change only values, use copy_()."
                )

    @property
    def input_dtype(self) -> torch.dtype:
        """The dtype of the first parameter, which may be frozen and differ from that of w."""
        return next(each.dtype for _, each in self._parameters if each.is_floating_point())

    @property
    def on_device(self) -> bool:
        """Whether the module is on an accelerator, where an invalid index aborts the program."""
        return bool(self.selection.parameters[0].device.type != "cpu")

    def weights(self, *, derive: bool = False) -> dict[str, Tensor]:
        """Return the detached weights that learn, by name; they share memory with the parameters.

        Parameters
        ----------
        derive : bool, default False
            Whether the returned tensors require grad.
        """
        chosen = zip(self.selection.names, self.selection.parameters, strict=True)
        return {name: each.detach().requires_grad_(derive) for name, each in chosen}

    def __call__(self, weights: Mapping[str, Tensor], rows: Batch) -> Tensor:
        """Return outputs of shape (n, c) at these weights; may be traced by torch.func."""
        before = self._attributes() if self.keeps_state else {}
        try:
            return as_matrix(self._given(weights, rows), rows.n)
        finally:
            self._restore(before)

    def _given(self, weights: Mapping[str, Tensor], rows: Batch) -> Any:
        """Call the module with tensors in place of its parameters."""
        state = {
            id(each): weights[name] if name in weights else each.detach()
            for name, each in self._parameters
        }
        if self.writes_buffers:
            state.update({id(each): each.clone() for each in self.module.buffers()})
        with evaluation_mode(self._layers), substituted(self._layers, state):
            return self.module(*rows.args, **rows.kwargs)

    def outputs(self, rows: Batch) -> Tensor:
        """Return outputs of shape (n, c) at the current weights, without a graph."""
        with torch.no_grad(), self.module_errors(rows):
            weights = self.weights()
            if rows.n <= _ROWS:
                return self(weights, rows)
            parts = range(0, rows.n, _ROWS)
            return torch.cat([self(weights, rows[i : i + _ROWS]) for i in parts])

    def module_errors(self, rows: Batch) -> AbstractContextManager[None]:
        """Context in which errors of the module are converted or annotated.

        Parameters
        ----------
        rows : Batch
        """
        return module_errors(rows, lambda: self.check_indices(rows))

    def gradient_context(self, rows: Batch, *, batched: bool = False) -> ExitStack:
        """Context in which gradients are enabled, even if the caller disabled them.

        Parameters
        ----------
        rows : Batch
        batched : bool, default False
            As in :func:`differentiable_kernels`.
        """
        stack = differentiable_kernels(self.module, batched=batched)
        stack.enter_context(torch.enable_grad())
        stack.enter_context(self.module_errors(rows))
        return stack

    def check_indices(self, rows: Batch) -> None:
        """Check indices into embedding tables; synchronises with an accelerator.

        Parameters
        ----------
        rows : Batch

        Raises
        ------
        ShapeError
        """
        if holds_indices(rows):
            with torch.no_grad():
                check_table_indices(self.module, rows, lambda part: self(self.weights(), part))

    def outputs_twice(self, rows: Batch) -> tuple[Tensor, Tensor]:
        """Return outputs of two calls; record whether the module writes buffers or stores values.

        Parameters
        ----------
        rows : Batch

        Raises
        ------
        ParameterError
            If the module writes into its parameters, which are then restored.
        """
        watched = _ParameterGuard(self._parameters, self.selection.names)
        before, buffers = self._attributes(), self._buffers()
        lengths = {key: _length(value) for key, (_, value) in before.items()}
        try:
            if self.on_device:
                self.check_indices(rows)
            with watched, torch.no_grad(), self.module_errors(rows):
                once, twice = (
                    as_matrix(self._given(self.weights(), rows), rows.n) for _ in range(2)
                )
            self.keeps_state = self.keeps_state or any(
                key not in before or value is not before[key][1] or _length(value) != lengths[key]
                for key, (_, value) in self._attributes().items()
            )
        finally:
            self._restore(before)
            undone = [_put_back(*each) for each in buffers]
            self.writes_buffers = self.writes_buffers or any(undone)
            written = watched.restore()
        if written:
            raise ParameterError(
                "a prediction must not change the module, but its forward writes into the "
                f"parameter {written[0]!r}. Compute a new tensor in forward, such as "
                "torch.nn.functional.normalize(self.weight), instead of modifying the parameter."
            )
        return once, twice

    def _buffers(self) -> list[tuple[dict[str, Tensor | None], str, Tensor | None, Tensor | None]]:
        """Return every buffer with its registry, name and a copy."""
        return [
            (vars(layer)["_buffers"], key, each, None if each is None else each.clone())
            for layer in self._layers
            for key, each in vars(layer)["_buffers"].items()
        ]

    def _attributes(self) -> dict[tuple[int, str], tuple[nn.Module, object]]:
        """Return every plain attribute of every layer, with its layer."""
        return {
            (id(layer), key): (layer, value)
            for layer in self._layers
            for key, value in vars(layer).items()
            if key not in _REGISTERED
        }

    def _restore(self, before: dict[tuple[int, str], tuple[nn.Module, object]]) -> None:
        if not before:
            return
        for (at, key), (layer, _) in self._attributes().items():
            if (at, key) not in before:
                del vars(layer)[key]
        for (_, key), (layer, value) in before.items():
            vars(layer)[key] = value


class _ParameterGuard(TorchDispatchMode):  # type: ignore[misc]
    """Detects and undoes writes of a forward pass into parameters.

    Parameters that learn are copied beforehand; other parameters, which may be many more, are
    copied only before an operation writes into their memory.

    Parameters
    ----------
    parameters : sequence of (str, Tensor)
    learn : sequence of str
        Names of the parameters that learn.
    """

    supports_higher_order_operators = True  # such as flex_attention and cond

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Return False: otherwise PyTorch imports its compiler, which takes seconds."""
        return False

    def __init__(self, parameters: Sequence[tuple[str, Tensor]], learn: Sequence[str]) -> None:
        super().__init__()
        self._parameters = {name: each.detach() for name, each in parameters}
        self._places = {name: _storage(each) for name, each in self._parameters.items()}
        self._copies = {name: self._parameters[name].clone() for name in learn}

    @classmethod
    def is_infra_mode(cls) -> bool:
        """Return True, so that torch.compile works under this mode."""
        return True

    def __torch_dispatch__(
        self,
        func: Callable[..., object],
        types: object,
        args: tuple[object, ...] = (),
        kwargs: dict[str, object] | None = None,
    ) -> Any:
        del types
        kwargs = kwargs or {}
        for i, argument in enumerate(func._schema.arguments if hasattr(func, "_schema") else ()):  # noqa: SLF001
            if argument.is_write:
                self._copy(args[i] if i < len(args) else kwargs.get(argument.name))
        return func(*args, **kwargs)

    def _copy(self, written: object) -> None:
        places = {_storage(each) for each in tensors(written)}
        for name, place in self._places.items():
            if place in places and name not in self._copies:
                self._copies[name] = self._parameters[name].clone()

    def restore(self) -> list[str]:
        """Restore all parameters, and return the names of those that differed."""
        copies = self._copies.items()
        return [name for name, copy in copies if _overwritten(self._parameters[name], copy)]


def _storage(tensor: Tensor) -> int:
    return int(tensor.untyped_storage().data_ptr())


def _length(value: object) -> int:
    """Return the length of a container, to detect growth; 0 for other values."""
    return len(value) if isinstance(value, (list, dict, set)) else 0


def _put_back(
    registered: dict[str, Tensor | None], key: str, buffer: Tensor | None, copy: Tensor | None
) -> bool:
    """Restore a buffer, and return whether it differed."""
    replaced = registered.get(key) is not buffer
    registered[key] = buffer
    return (buffer is not None and _overwritten(buffer, copy)) or replaced


def _overwritten(tensor: Tensor, copy: Tensor) -> bool:
    """Restore a tensor from a copy, and return whether it differed; nan equals nan."""
    if torch.equal(tensor, copy) or torch.allclose(tensor, copy, 0.0, 0.0, equal_nan=True):
        return False
    tensor.copy_(copy)
    return True


class ReentrantLock:
    """A reentrant lock that can be copied and pickled, as a new lock."""

    def __init__(self) -> None:
        self.held = RLock()
        """The lock itself, as a context manager without calls of Python functions."""

    def __enter__(self) -> Self:
        self.held.acquire()
        return self

    def __exit__(self, *_: object) -> None:
        self.held.release()

    def __reduce__(self) -> Any:
        return ReentrantLock, ()


_Params = ParamSpec("_Params")
_Result = TypeVar("_Result")


def synchronized(
    method: Callable[Concatenate[Any, _Params], _Result],
) -> Callable[Concatenate[Any, _Params], _Result]:
    """Decorate a method so that it holds the ``lock`` of its object.

    Parameters
    ----------
    method : callable
    """

    @wraps(method)
    def synchronized_method(self: Any, /, *args: _Params.args, **kwargs: _Params.kwargs) -> _Result:
        with self.lock.held:
            return method(self, *args, **kwargs)

    return synchronized_method
