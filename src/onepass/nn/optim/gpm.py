"""GPM: gradient projection memory, which preserves layer outputs on inputs of past tasks.

A layer with weights W (o × d) computes W x for input vectors x ∈ ℝᵈ, which does not change for x
orthogonal to the rows of ΔW. Each layer therefore has an orthonormal basis M (d × k) of its inputs
in past tasks, and the inner optimizer's step becomes

    ΔW ← ΔW − ΔW M Mᵀ                                                                        (1)

([1] (6), and (7) for convolutions, where x are patches). At the end of a task, some of its rows are
passed through the module; with the uncentred inputs R (d × N) of the layer,

    R̂ = R − M MᵀR = Û Σ̂ V̂ᵀ                                                      [1] (8)      (2)
    k = min { k : ‖M MᵀR‖² + ‖R̂_k‖² ≥ ε ‖R‖² },    M ← [M Û[:, :k]]              [1] (9)      (3)

in Frobenius norms, R̂_k being the best approximation of R̂ of rank k; for the first task, M being
empty, this is [1] (5). ε is the threshold of the layer, and may increase with each task.

Only the R factor of a QR decomposition of Rᵀ is stored, which suffices for (2) and (3).
Cost of a step: 4 o d k multiplications per layer; at the end of a task, O(N d² + d³) per layer.

[1] G. Saha, I. Garg, K. Roy, "Gradient Projection Memory for Continual Learning", ICLR 2021.

The input vectors of a convolution, with weights W (o × d) and d = channels · kernel size, are the
patches of its input; with groups, each group of outputs has the patches of its own channels.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from typing import Any, ClassVar, Literal, Self, TypeAlias

import torch
from torch import Tensor, nn

from onepass import linalg, validation
from onepass.errors import CheckpointError, NumericalError, ParameterError, join_names, public
from onepass.linalg.interrupt import Interrupt
from onepass.linalg.subspace import OrthonormalBasis
from onepass.nn.function import evaluation_mode
from onepass.nn.optim.projected import Projected, join_rows, loader_rows

_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
_Convolution: TypeAlias = nn.Conv1d | nn.Conv2d | nn.Conv3d


@dataclass(frozen=True)
class Layer:
    """A linear or convolutional layer whose steps are projected.

    Parameters
    ----------
    name : str
        Name in the module; the first one if the layer or its weight is shared.
    modules : tuple of torch.nn.Module
        The modules that share the weight.
    groups : int
        Number of groups of a convolution, else 1.
    d : int
        Length of the input vectors.
    """

    name: str
    modules: tuple[nn.Linear | _Convolution, ...]
    groups: int
    d: int

    @property
    def weight(self) -> nn.Parameter:
        """The weight, of shape (groups · o, …) with d numbers in each row."""
        return self.modules[0].weight

    @property
    def biases(self) -> tuple[nn.Parameter, ...]:
        """The biases of the modules."""
        return tuple(each.bias for each in self.modules if each.bias is not None)


def layers(module: nn.Module) -> dict[str, Layer]:
    """Return the linear layers and convolutions whose weights are parameters, by name.

    Layers within attention are excluded: their weights are used without calling the layer.
    """
    within = {
        id(part)
        for each in module.modules()
        if isinstance(each, nn.MultiheadAttention)
        for part in each.modules()
    }
    sharing: dict[int, list[tuple[str, nn.Linear | _Convolution]]] = {}
    for name, each in module.named_modules():
        supported = isinstance(each, (nn.Linear, *_CONVOLUTIONS)) and id(each) not in within
        if supported and "weight" in each._parameters:  # noqa: SLF001  else it is parametrized
            sharing.setdefault(id(each.weight), []).append((name, each))
    found = [_layer(users) for users in sharing.values() if len({type(u) for _, u in users}) == 1]
    return {each.name: each for each in found}


def _layer(users: list[tuple[str, nn.Linear | _Convolution]]) -> Layer:
    name, first = users[0]
    groups = first.groups if isinstance(first, _CONVOLUTIONS) else 1
    d = math.prod(first.weight.shape[1:])
    return Layer(name, tuple(each for _, each in users), groups, d)


def layer_inputs(layer: nn.Linear | _Convolution, x: Tensor) -> Tensor:
    """Return the input vectors (groups, N, d) of a layer, as multiplied by its weights.

    Parameters
    ----------
    layer : torch.nn.Linear, Conv1d, Conv2d or Conv3d
    x : Tensor
        Input of the layer.

    Examples
    --------
    >>> import torch
    >>> layer_inputs(torch.nn.Conv1d(2, 1, 3), torch.arange(10.0).reshape(1, 2, 5)).tolist()[0][1]
    [1.0, 2.0, 3.0, 6.0, 7.0, 8.0]
    """
    if isinstance(layer, nn.Linear):
        return x.reshape(1, -1, layer.in_features)
    axes = len(layer.kernel_size)
    x = x if x.ndim == axes + 2 else x[None]
    patches = _padded(layer, x)
    shape = zip(layer.kernel_size, layer.stride, layer.dilation, strict=True)
    for axis, (size, stride, dilation) in enumerate(shape, 2):
        patches = patches.unfold(axis, dilation * (size - 1) + 1, stride)[..., ::dilation]
    channels, groups = layer.in_channels, layer.groups
    # (n, channels, places…, kernel…) -> (channels, n, places…, kernel…), by groups
    patches = patches.transpose(0, 1).reshape(
        groups, channels // groups, -1, math.prod(layer.kernel_size)
    )
    return patches.transpose(1, 2).reshape(groups, patches.shape[2], -1)


def _padded(layer: _Convolution, x: Tensor) -> Tensor:
    if layer.padding == "valid":
        return x
    if layer.padding == "same":
        totals = [d * (k - 1) for d, k in zip(layer.dilation, layer.kernel_size, strict=True)]
        ends = [(total // 2, total - total // 2) for total in totals]
    else:
        ends = [(each, each) for each in layer.padding]
    flat = [number for pair in reversed(ends) for number in pair]  # the last axis comes first
    mode = "constant" if layer.padding_mode == "zeros" else layer.padding_mode
    return nn.functional.pad(x, flat, mode=mode)


@contextmanager
def record_inputs(
    targets: dict[str, Layer], record: Callable[[str, Tensor], None]
) -> Iterator[None]:
    """Context in which ``record(name, vectors)`` is called with the inputs of each layer."""

    def note(
        name: str,
        part: nn.Linear | _Convolution,
        args: tuple[Tensor, ...],
        kwargs: Mapping[str, Tensor],
        out: object,
    ) -> None:
        del out  # a forward hook: the layer has validated its input
        x = args[0] if args else kwargs["input"]
        record(name, layer_inputs(part, x.detach()))

    with ExitStack() as stack:
        for layer in targets.values():
            for part in layer.modules:
                hook = part.register_forward_hook(partial(note, layer.name), with_kwargs=True)
                stack.callback(hook.remove)
        yield


def triangle(before: Tensor | None, vectors: Tensor) -> Tensor:
    """Return the float64 R factor, at most d × d per group, with RRᵀ of all vectors so far.

    Parameters
    ----------
    before : Tensor of shape (groups, at most d, d), or None
    vectors : Tensor of shape (groups, N, d)
    """
    rows = vectors.double()
    rows = rows if before is None else torch.cat((before, rows), dim=1)
    return rows if rows.shape[1] <= rows.shape[2] else torch.linalg.qr(rows, mode="r").R


def extend_basis(
    basis: OrthonormalBasis | None, T: Tensor, threshold: float, kind: Tensor
) -> OrthonormalBasis:
    """Extend M by directions of R̂ until the threshold is reached: [1] (8), (9).

    Parameters
    ----------
    basis : OrthonormalBasis, optional
        M, with columns of length d; None before the first task.
    T : Tensor of shape (N, d)
        Rᵀ, or its R factor, in float64.
    threshold : float
        ε.
    kind : Tensor
        Sets the dtype and device of M.
    """
    d = T.shape[1]
    basis = OrthonormalBasis.start(d, kind, 1) if basis is None else basis
    M = basis.rows.double()
    rest = T - (T @ M.T) @ M
    rest = rest - (rest @ M.T) @ M
    _, sigma, V = torch.linalg.svd(rest, full_matrices=False)
    whole, energy = T.square().sum(), sigma.square()
    captured = whole - energy.sum()
    # The number of columns synchronises with an accelerator, once per task.
    short = captured + energy.cumsum(0) < threshold * whole * (1.0 - 1e-12)
    some = captured < threshold * whole * (1.0 - 1e-12)
    alive = sigma > linalg.rounding(kind) * d**0.5 * whole.sqrt()
    k = min(int(short.sum()) + int(some), int(alive.sum()))
    if not k:
        return basis
    new = basis.split(V[:k].T.to(kind.dtype)).outside
    W, _, accepted = linalg.orthonormal(new, linalg.small(torch.full_like(new[0], 0.5)))
    return basis.appended(linalg.present(W, accepted))


def thresholds(given: object, names: list[str]) -> dict[str, float]:
    """Return the threshold ε of each layer.

    Raises
    ------
    ParameterError
        If a threshold is missing or not in (0, 1], or a name matches no layer.
    """
    levels: Mapping[str, object] = dict.fromkeys(names, given)
    if isinstance(given, Mapping):
        levels = _thresholds_by_name(given, names)
    elif isinstance(given, Sequence) and not isinstance(given, str):
        if len(given) != len(names):
            raise ParameterError(
                f"`threshold` must have one number for each of the {len(names)} layers "
                f"{join_names(names)}, got {len(given)}. Pass one number for all "
                "layers, or a dict by layer name."
            )
        levels = dict(zip(names, given, strict=True))
    return {
        name: validation.in_range(level, "threshold", above=0.0, high=1.0)
        for name, level in levels.items()
    }


def _thresholds_by_name(given: Mapping[str, object], names: list[str]) -> dict[str, object]:
    """Return the level of the first pattern that matches each name."""
    levels: dict[str, object] = {}
    for pattern, level in given.items():
        matches = [name for name in names if fnmatchcase(name, str(pattern))]
        if not matches:
            raise ParameterError(
                f"`threshold` must name layers, got {pattern!r}, which matches none of "
                f"{join_names(names)}. Use their names or patterns, such as '*'."
            )
        for name in matches:
            levels.setdefault(name, level)
    for name in names:
        if name not in levels:
            raise ParameterError(
                f"`threshold` must have a number for each layer, got none for {name!r}. Add the "
                "layer, or '*' as the last pattern for all other layers."
            )
    return levels


def partition_parameters(
    module: nn.Module, chosen: Mapping[str, nn.Parameter], *, biases: str, others: str
) -> tuple[dict[str, Layer], list[nn.Parameter]]:
    """Classify the parameters of an optimizer as projected, frozen or free.

    Parameters
    ----------
    module : torch.nn.Module
    chosen : dict of str to Parameter
    biases : {"frozen", "free"}
    others : {"refuse", "frozen", "free"}

    Returns
    -------
    layers : dict of str to Layer
        Layers whose weights are projected, by name.
    fixed : list of Parameter
        Parameters that are trained in the first task only.

    Raises
    ------
    ParameterError
        If an option is invalid, no weight of a layer is selected, or other parameters are selected
        with ``others="refuse"``.
    """
    _check_options(biases, others)
    found, ours = layers(module), {id(each) for each in chosen.values()}
    tied = _used_elsewhere(module, found)
    chosen_layers = {
        n: e for n, e in found.items() if id(e.weight) in ours and id(e.weight) not in tied
    }
    projected = {id(each.weight) for each in chosen_layers.values()}
    shifts = {id(bias) for each in found.values() for bias in each.biases} - projected
    strange = {n: p for n, p in chosen.items() if id(p) not in projected | shifts}
    if not chosen_layers or (strange and others == "refuse"):
        names = join_names(list(strange)) if strange else "biases alone"
        raise ParameterError(
            "`module` must have linear layers or convolutions in the optimizer, and no "
            f"other parameters, got {names}. Name the layers to project with "
            "`projects`, or set others='frozen' (after the first task) or others='free'."
        )
    fixed = [p for p in chosen.values() if id(p) in shifts] if biases == "frozen" else []
    return chosen_layers, fixed + (list(strange.values()) if others == "frozen" else [])


def _check_options(biases: object, others: object) -> None:
    """Check the options ``biases`` and ``others``.

    Raises
    ------
    ParameterError
    """
    allowed = {"biases": ("frozen", "free"), "others": ("refuse", "frozen", "free")}
    for name, given in (("biases", biases), ("others", others)):
        if given not in allowed[name]:
            raise ParameterError(
                f"`{name}` must be one of {', '.join(allowed[name])}, got {given!r}. "
                "'frozen' preserves past predictions."
            )


def _used_elsewhere(module: nn.Module, projected: Mapping[str, Layer]) -> set[int]:
    """Return the ids of layer weights that are also used by other modules."""
    own = {id(part): layer.weight for layer in projected.values() for part in layer.modules}
    weights = {id(layer.weight) for layer in projected.values()}
    return {
        id(each)
        for part in module.modules()
        for each in part.parameters(recurse=False)
        if id(each) in weights and own.get(id(part)) is not each
    }


class GPM(Projected):
    """Gradient projection memory (GPM) with any torch optimizer.

    Use it like the wrapped optimizer, with schedulers and ``torch.amp.GradScaler``: call ``step()``
    after ``loss.backward()``. Supports ``Linear``, ``Conv1d``, ``Conv2d`` and ``Conv3d`` layers.

    Parameters
    ----------
    optimizer : torch.optim.Optimizer
        Optimizer of parameters of ``module``; not LBFGS.
    module : torch.nn.Module
    threshold : float, sequence of float, or mapping of str to float, default=0.97
        ε of (3), in (0, 1]: one number for all layers, one for each in the module's order, or a
        mapping from names or patterns of layers; the first match counts. 1 stores all directions
        above rounding error.
    growth : float, default=0.0
        Increase of ε with each task, up to 1; >= 0.
    rows : int or None, default=300
        Number of rows sampled at the end of a task; None: all.
    projects : {"all", "last"}, str or sequence of str, default="all"
        Parameters whose steps are projected: all, those of the last layer, or names or patterns of
        parameters or layers. Others, such as task-specific heads, are updated without projection.
    biases : {"frozen", "free"}, default="frozen"
        How to train biases, which [1] does not have and which change past predictions: in the first
        task only (frozen), or always (free).
    others : {"refuse", "frozen", "free"}, default="refuse"
        How to handle parameters of unsupported layers, such as normalisation: raise an error, train
        them in the first task only (frozen), or always (free).
    seed : int, default=0
        Random seed for sampling the rows of a task.

    Attributes
    ----------
    optimizer : torch.optim.Optimizer
    ranks_ : dict of str to int
        Number of directions k of each layer, summed over groups.
    tasks_ : int
        Number of finished tasks.

    Raises
    ------
    ParameterError, TypeMismatchError
        If an argument is invalid, or parameters are neither weights nor biases of supported layers
        and ``others="refuse"``.

    Notes
    -----
    Running statistics of batch normalisation are not parameters and are not projected: freeze them
    with ``eval()`` to preserve past predictions.

    Examples
    --------
    >>> import torch
    >>> import onepass as op
    >>> module = torch.nn.Linear(3, 1, bias=False)
    >>> optimizer = op.nn.optim.GPM(torch.optim.Adam(module.parameters(), lr=0.1), module)
    >>> past, new = torch.tensor([[1.0, 0.0, 0.0]]), torch.tensor([[1.0, 1.0, 0.0]])
    >>> before = module(past).item()
    >>> optimizer.after_task([past]).ranks_
    {'': 1}
    >>> for _ in range(200):
    ...     optimizer.zero_grad()
    ...     loss = (module(new) - 5.0).square().mean()
    ...     loss.backward()
    ...     _ = optimizer.step()
    >>> abs(module(past).item() - before) < 1e-5, round(module(new).item(), 1)
    (True, 5.0)
    """

    _part: ClassVar[str] = "bases"

    @public
    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        module: nn.Module,
        threshold: float | Sequence[float] | Mapping[str, float] = 0.97,
        *,
        growth: float = 0.0,
        rows: int | None = 300,
        projects: str | Sequence[str] = "all",
        biases: Literal["frozen", "free"] = "frozen",
        others: Literal["refuse", "frozen", "free"] = "refuse",
        seed: int = 0,
    ) -> None:
        self.biases = biases
        self.others = others
        super().__init__(optimizer, module, projects)
        self.threshold = threshold
        self._thresholds = thresholds(threshold, list(self._layers))
        self.growth = validation.in_range(growth, "growth", low=0.0)
        self.rows = None if rows is None else validation.whole(rows, "rows", low=1)
        self.seed = validation.whole(seed, "seed", low=0)
        self._memory: dict[str, list[OrthonormalBasis]] = {}

    def _select(self) -> None:
        super()._select()
        self._layers, self._fixed = partition_parameters(
            self.module,
            dict(zip(self._names, self._chosen, strict=True)),
            biases=self.biases,
            others=self.others,
        )

    # -- tasks -----------------------------------------------------------------------------------

    @public
    def after_task(self, loader: Iterable[object]) -> Self:
        """End a task: add directions of the inputs of each layer to the memory.

        The module is evaluated in evaluation mode; its mode, hooks and buffers do not change. The
        memory of a layer that was not called, such as the head of another task, does not change.

        Parameters
        ----------
        loader : iterable of batches (x, y) or x, or one batch (x, y), a tuple
            The rows of the task, such as its DataLoader; read once. y is ignored.

        Returns
        -------
        self

        Raises
        ------
        ParameterError, ShapeError, TypeMismatchError, NotFiniteError
            If there are no rows, or they are invalid. Nothing is changed.
        NumericalError
            If inputs of a layer are not finite. Nothing is changed.
        """
        where = f"{self._where}.after_task"
        factors: dict[str, Tensor] = {}

        def record(name: str, vectors: Tensor) -> None:
            factors[name] = triangle(factors.get(name), vectors)

        with evaluation_mode(list(self.module.modules())), self._plain_mode():
            found = loader_rows(
                loader, self.rows, (self.seed, self.tasks_), self._network, where, labels=False
            )
            rows = (each.rows for each in found)
            batches = rows if self.rows is None else iter(join_rows(list(rows)))
            for batch in batches:
                with record_inputs(self._layers, record):
                    self._network.outputs(batch)
            bases = dict(self._memory)
            for name, parts in factors.items():
                if not bool(parts.isfinite().all()):
                    raise NumericalError(
                        "the inputs of layers must be finite, got nan or infinity in "
                        f"{name!r}. Check the weights before it, or scale the rows."
                    )
                level = min(self._thresholds[name] + self.growth * self.tasks_, 1.0)
                old: Any = bases.get(name) or [None] * len(parts)
                bases[name] = [
                    extend_basis(basis, T, level, self._kind(name))
                    for basis, T in zip(old, parts, strict=True)
                ]
        with Interrupt().held():
            self._memory, self.tasks_ = bases, self.tasks_ + 1
        return self

    @property
    def ranks_(self) -> dict[str, int]:
        """Number of directions of each layer, summed over groups."""
        return {name: sum(map(len, self._memory.get(name, ()))) for name in self._layers}

    # -- helpers -------------------------------------------------------------------

    def _kind(self, name: str) -> Tensor:
        """Return an empty tensor with the dtype and device of a layer's directions."""
        return linalg.widened(self._layers[name].weight.detach()[:0])

    def _corrected_parameters(self) -> list[nn.Parameter]:
        if not self.tasks_:
            return []
        weights = [each.weight for name, each in self._layers.items() if self.ranks_[name]]
        return [*weights, *self._fixed]

    def _correct(self, parameters: list[nn.Parameter], before: list[Tensor]) -> None:
        """Apply (1) to weights, and restore frozen parameters."""
        bases = {id(each.weight): self._memory.get(name) for name, each in self._layers.items()}
        for each, old in zip(parameters, before, strict=True):
            basis = bases.get(id(each))
            if basis is None:
                each.copy_(old)
                continue
            moved = linalg.widened(each.detach() - old).reshape(
                len(basis), -1, basis[0].matrix.shape[0]
            )
            # one pass: its rounding error is no larger than that of the weights
            free = [d - (d @ M.matrix) @ M.rows for M, d in zip(basis, moved, strict=True)]
            each.copy_(old + torch.cat(free).reshape(old.shape))

    def _refuse_unlike(self, memory: dict[str, list[OrthonormalBasis]]) -> None:
        for name, found in memory.items():
            layer = self._layers.get(name)
            shape = [M.matrix.shape[0] for M in found]
            if layer is None or shape != [layer.d] * layer.groups:
                raise CheckpointError(
                    f"the directions of {name!r} must be those of a projected layer, "
                    f"got {len(found)} group(s) of {shape[:1]} inputs. Wrap the module "
                    "of the saved state."
                )
