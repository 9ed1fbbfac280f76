"""A module as a pure function of rows and of the weights that learn.

The module is asked in evaluation mode with tensors put in the place of its parameters, so that
neither its parameters nor their ``grad``, flags or hooks take part. What it writes into buffers or
attributes while it answers is undone.

The module is called in evaluation mode, and its training flag is restored. A stream that is learned
row by row has no batch statistics, and an answer that is drawn by lot has no derivative. So batch
normalisation uses its running statistics, and dropout is off.

Threads that call one module take turns. A module is called with other tensors in the place of its
parameters and with its flags changed, so that a second thread that asks meanwhile would find these,
and put them back as the module's own.
"""

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
from onepass.nn.batch import Batch, as_matrix, holds_indices, refuse_places, tensors, told
from onepass.nn.selection import Selection

__all__ = [
    "NORMS",
    "Function",
    "Turn",
    "derivable",
    "evaluation_mode",
    "in_turn",
    "plainly",
    "refuse_batch_statistics",
    "refuse_max_norm",
    "substituted",
    "warn_of_training",
]


NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)
_DROPOUTS = (
    nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout,
)  # fmt: skip
_WITHIN = (nn.RNNBase, nn.MultiheadAttention)


@contextmanager
def evaluation_mode(layers: Iterable[nn.Module]) -> Iterator[None]:
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


def warn_of_training(module: nn.Module, where: str, stacklevel: int = 2) -> None:
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


def refuse_batch_statistics(module: nn.Module, where: str) -> None:
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


def refuse_max_norm(module: nn.Module, where: str) -> None:
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


def _drops(layer: nn.Module) -> bool:
    """Whether a layer draws lots in training mode."""
    if isinstance(layer, _DROPOUTS):
        return bool(layer.p > 0)
    return isinstance(layer, _WITHIN) and bool(layer.dropout > 0)


@contextmanager
def plainly(device: torch.device, p: int) -> Iterator[None]:
    """Hold off what is around a step of p weights: inference mode, autocast, threads too many.

    Tensors that are made in inference mode could not be written in again outside of it, and
    autocast would multiply what is remembered in half precision.
    """
    derive = torch.is_grad_enabled()
    with (
        torch.inference_mode(mode=False),
        torch.set_grad_enabled(derive),  # which the end of inference mode has switched on
        torch.autocast(device.type, enabled=False),
        linalg.one_thread_for_tensors(p),
    ):
        yield


def derivable(module: nn.Module, *, batched: bool = False) -> ExitStack:
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


_ROWS = 1024
"""So many rows are asked at once where no derivative is needed."""

_HOOKS = ("_forward_hooks", "_forward_pre_hooks")
_REGISTERED = {"_parameters", "_buffers", "_modules", "training"}


@contextmanager
def substituted(layers: Sequence[nn.Module], tensors: Mapping[int, Tensor]) -> Iterator[None]:
    """Replace parameters and buffers, given by id, in all layers, and restore the same objects.

    ``torch.func.functional_call`` replaces by name: where a layer has two names, it takes the first
    replacement for the original and leaves it in the module.

    Parameters
    ----------
    layers : sequence of torch.nn.Module
        All modules of a module, each once.
    tensors : mapping of int to Tensor
        By the id of the parameter or buffer that each replaces.
    """
    places = [
        (held, key, each)
        for layer in layers
        for held in (vars(layer)["_parameters"], vars(layer)["_buffers"])
        for key, each in held.items()
        if id(each) in tensors
    ]
    try:
        for held, key, each in places:
            held[key] = tensors[id(each)]
        yield
    finally:
        for held, key, each in places:
            held[key] = each


class Function:
    """f(x; w) of a module, row by row.

    Parameters
    ----------
    module : torch.nn.Module
    selection : Selection
        The parameters that learn.
    where : str
        The public call, for messages.
    """

    def __init__(self, module: nn.Module, selection: Selection, where: str) -> None:
        self.module = module
        self.selection = selection
        self.where = where
        self._layers: list[nn.Module] = []
        self._parameters: list[tuple[str, nn.Parameter]] = []
        self.read_module()
        self.writes_buffers = False
        self.keeps = any(vars(each).get(hooks) for each in self._layers for hooks in _HOOKS)
        """Whether the module, or a hook on it, keeps what it computes: not to be asked by vmap."""

    def read_module(self) -> None:
        """List the module's layers and parameters, each once.

        Raises
        ------
        ParameterError
            If parameters that learn are no longer the module's own.
        """
        self._layers = list(self.module.modules())
        known = dict(self.module.named_parameters())
        self._parameters = list(known.items())
        for name, each in zip(self.selection.names, self.selection.parameters, strict=True):
            if known.get(name) is not each:
                raise ParameterError(
                    f"{self.where}: the module must keep the parameters that it came with, but "
                    f"{name!r} is gone or another one. Make a new learner for the changed module; "
                    "to change values alone, write them with copy_()."
                )

    @property
    def on_device(self) -> bool:
        """Whether the module is where a place that there is not would end the program."""
        return bool(self.selection.parameters[0].device.type != "cpu")

    def weights(self, *, derive: bool = False) -> dict[str, Tensor]:
        """The weights that learn, by name: they share the parameters' memory, not their graph.

        Parameters
        ----------
        derive : bool, default False
            They require grad.
        """
        chosen = zip(self.selection.names, self.selection.parameters, strict=True)
        return {name: each.detach().requires_grad_(derive) for name, each in chosen}

    def __call__(self, weights: Mapping[str, Tensor], rows: Batch) -> Tensor:
        """Outputs of shape (n, c) at these weights; may be traced by torch.func."""
        before = self._attributes() if self.keeps else {}
        try:
            return as_matrix(self._given(weights, rows), rows.n, rows.where or self.where)
        finally:
            self._restore(before)

    def _given(self, weights: Mapping[str, Tensor], rows: Batch) -> Any:
        """What the module gives with tensors in the place of its parameters."""
        state = {
            id(each): weights[name] if name in weights else each.detach()
            for name, each in self._parameters
        }
        if self.writes_buffers:
            state.update({id(each): each.clone() for each in self.module.buffers()})
        with evaluation_mode(self._layers), substituted(self._layers, state):
            return self.module(*rows.args, **rows.kwargs)

    def outputs(self, rows: Batch) -> Tensor:
        """Outputs of shape (n, c) at the present weights, without a derivative."""
        with torch.no_grad(), self.told(rows):
            weights = self.weights()
            if rows.n <= _ROWS:
                return self(weights, rows)
            parts = range(0, rows.n, _ROWS)
            return torch.cat([self(weights, rows[i : i + _ROWS]) for i in parts])

    def told(self, rows: Batch) -> AbstractContextManager[None]:
        """A context in which the module is asked, and what it raises is told.

        Parameters
        ----------
        rows : Batch
        """
        return told(rows, rows.where or self.where, lambda: self._refuse_places(rows))

    def deriving(self, rows: Batch) -> ExitStack:
        """A context in which it is asked with a derivative, whatever the caller has switched off.

        Parameters
        ----------
        rows : Batch
        """
        held = derivable(self.module)
        held.enter_context(torch.enable_grad())
        held.enter_context(self.told(rows))
        return held

    def look_up(self, rows: Batch) -> None:
        """Ask rows that hold places, so that one there is not shows before any row is learned.

        Parameters
        ----------
        rows : Batch

        Raises
        ------
        ShapeError
        """
        if holds_indices(rows):
            (self._refuse_places if self.on_device else self.outputs)(rows)

    def _refuse_places(self, rows: Batch) -> None:
        with torch.no_grad():
            where = rows.where or self.where
            refuse_places(self.module, rows, lambda part: self(self.weights(), part), where)

    def look(self, rows: Batch) -> tuple[Tensor, Tensor]:
        """Outputs, asked twice in a row; note is taken of what the module writes meanwhile.

        Parameters
        ----------
        rows : Batch

        Raises
        ------
        ParameterError
            If the module writes into its parameters, which are restored.
        """
        where = rows.where or self.where
        watched = _Watched(self._parameters, self.selection.names)
        before, buffers = self._attributes(), self._buffers()
        lengths = {key: _length(value) for key, (_, value) in before.items()}
        try:
            if self.on_device:
                self.look_up(rows)
            with watched, torch.no_grad(), self.told(rows):
                once, twice = (
                    as_matrix(self._given(self.weights(), rows), rows.n, where) for _ in range(2)
                )
            self.keeps = self.keeps or any(
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
                f"{where}: a prediction must not change the module, but its forward writes into "
                f"the parameter {written[0]!r}. Let forward compute from self.weight, as with "
                "torch.nn.functional.normalize(self.weight), and not write into it."
            )
        return once, twice

    def _buffers(self) -> list[tuple[dict[str, Tensor | None], str, Tensor | None, Tensor | None]]:
        """Every buffer, where it is registered, and a copy."""
        return [
            (vars(layer)["_buffers"], key, each, None if each is None else each.clone())
            for layer in self._layers
            for key, each in vars(layer)["_buffers"].items()
        ]

    def _attributes(self) -> dict[tuple[int, str], tuple[nn.Module, object]]:
        """Every plain attribute of every layer, with the layer that has it."""
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


class _Watched(TorchDispatchMode):  # type: ignore[misc]
    """Parameters that a forward pass may write into, and copies to restore them from.

    Those that learn are copied beforehand, the others, which may be many more, just before an
    operation writes into their memory.

    Parameters
    ----------
    parameters : sequence of (str, Tensor)
    learn : sequence of str
        The names of those that learn.
    """

    supports_higher_order_operators = True  # as flex_attention and cond

    def __init__(self, parameters: Sequence[tuple[str, Tensor]], learn: Sequence[str]) -> None:
        super().__init__()
        self._parameters = {name: each.detach() for name, each in parameters}
        self._places = {name: _storage(each) for name, each in self._parameters.items()}
        self._copies = {name: self._parameters[name].clone() for name in learn}

    @classmethod
    def is_infra_mode(cls) -> bool:
        """True: torch.compile may compile under it."""
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
    """How much a container holds: one that grows keeps what it is given."""
    return len(value) if isinstance(value, (list, dict, set)) else 0


def _put_back(
    registered: dict[str, Tensor | None], key: str, buffer: Tensor | None, copy: Tensor | None
) -> bool:
    """Make a buffer what it was, and say whether it was another."""
    replaced = registered.get(key) is not buffer
    registered[key] = buffer
    return (buffer is not None and _overwritten(buffer, copy)) or replaced


def _overwritten(tensor: Tensor, copy: Tensor) -> bool:
    """Restore a tensor from a copy, and return whether it differed; nan equals nan."""
    if torch.equal(tensor, copy) or torch.allclose(tensor, copy, 0.0, 0.0, equal_nan=True):
        return False
    tensor.copy_(copy)
    return True


class Turn:
    """A lock that the thread which holds it may take again; a copy is a lock of its own."""

    def __init__(self) -> None:
        self._lock = RLock()

    def __enter__(self) -> Self:
        self._lock.acquire()
        return self

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def __reduce__(self) -> Any:
        return Turn, ()


_Given = ParamSpec("_Given")
_Said = TypeVar("_Said")


def in_turn(
    method: Callable[Concatenate[Any, _Given], _Said],
) -> Callable[Concatenate[Any, _Given], _Said]:
    """A method that is done while its object's ``turn`` is held.

    Parameters
    ----------
    method : callable
    """

    @wraps(method)
    def held(self: Any, /, *args: _Given.args, **kwargs: _Given.kwargs) -> _Said:
        with self.turn:
            return method(self, *args, **kwargs)

    return held
