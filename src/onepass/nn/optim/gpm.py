"""GPM: gradient projection memory: layers leave alone what they were given in past tasks.

A layer's weights W (o × d) meet vectors x ∈ ℝᵈ, and W x does not change for those x that a change
ΔW of the weights is orthogonal to. So for each layer an orthonormal M (d × k) is kept, of the
directions that its inputs had in past tasks, and the inner optimizer's step becomes

    ΔW ← ΔW − ΔW M Mᵀ                                                                        (1)

([1] (6), and (7) for convolutions, whose x are patches). When a task is over, some of its rows are
shown to the module; with the vectors R (d × N) that the layer met then, not centred,

    R̂ = R − M MᵀR = Û Σ̂ V̂ᵀ                                                      [1] (8)      (2)
    k = min { k : ‖M MᵀR‖² + ‖R̂_k‖² ≥ ε ‖R‖² },    M ← [M Û[:, :k]]              [1] (9)      (3)

in Frobenius norms, R̂_k being the best approximation of R̂ of rank k; for the first task, M being
empty, this is [1] (5). ε is the threshold of the layer, and may rise from task to task.

R itself is not kept, but the triangle of its QR decomposition, which has all that (2) and (3) ask.
Cost: of a step, 4 o d k multiplications a layer; of the end of a task, O(N d² + d³) for each layer.

[1] G. Saha, I. Garg, K. Roy, "Gradient Projection Memory for Continual Learning", ICLR 2021.

Activations: what the layers of a module are given, as the vectors that their weights meet.

A linear layer's weights W (o × d) meet its inputs x ∈ ℝᵈ. Those of a convolution, seen as W
(o × d) with d = channels · kernel, meet each patch of its input; with groups, each group of outputs
meets the patches of its own channels.

Bases: the directions that a layer's inputs have, as far as they matter: (2) and (3) of GPM.

Sorts: which parameters GPM holds as the weights of layers, which it freezes, which are free.
"""

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
from onepass.errors import CheckpointError, NumericalError, ParameterError, join_names
from onepass.linalg.interrupt import Interrupt
from onepass.linalg.subspace import OrthonormalBasis
from onepass.nn.function import evaluation_mode
from onepass.nn.optim.projected import Projected, drawn, together

__all__ = [
    "GPM",
    "Layer",
    "grown",
    "layers",
    "listening",
    "met",
    "sorted_out",
    "thresholds",
    "triangle",
]


_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
_Convolution: TypeAlias = nn.Conv1d | nn.Conv2d | nn.Conv3d


@dataclass(frozen=True)
class Layer:
    """A layer whose weights meet vectors.

    Parameters
    ----------
    name : str
        As the module names it; the first name of a layer or weight that is used more than once.
    modules : tuple of torch.nn.Module
        Those that share the weight.
    groups : int
        Groups of outputs; 1 but for grouped convolutions.
    d : int
        The length of the vectors.
    """

    name: str
    modules: tuple[nn.Linear | _Convolution, ...]
    groups: int
    d: int

    @property
    def weight(self) -> nn.Parameter:
        """The parameter, of shape (groups · o, …), … being d numbers."""
        return self.modules[0].weight

    @property
    def biases(self) -> tuple[nn.Parameter, ...]:
        """The parameters that are added to what the weights give."""
        return tuple(each.bias for each in self.modules if each.bias is not None)


def layers(module: nn.Module) -> dict[str, Layer]:
    """The linear layers and convolutions of a module whose weights are parameters, by name.

    Layers within attention are no such: their weights are used without the layer being asked.
    """
    within = {
        id(part)
        for each in module.modules()
        if isinstance(each, nn.MultiheadAttention)
        for part in each.modules()
    }
    sharing: dict[int, list[tuple[str, nn.Linear | _Convolution]]] = {}
    for name, each in module.named_modules():
        known = isinstance(each, (nn.Linear, *_CONVOLUTIONS)) and id(each) not in within
        if known and "weight" in each._parameters:  # noqa: SLF001  else it is made of others
            sharing.setdefault(id(each.weight), []).append((name, each))
    found = [_layer(users) for users in sharing.values() if len({type(u) for _, u in users}) == 1]
    return {each.name: each for each in found}


def _layer(users: list[tuple[str, nn.Linear | _Convolution]]) -> Layer:
    name, first = users[0]
    groups = first.groups if isinstance(first, _CONVOLUTIONS) else 1
    d = math.prod(first.weight.shape[1:])
    return Layer(name, tuple(each for _, each in users), groups, d)


def met(layer: nn.Linear | _Convolution, x: Tensor) -> Tensor:
    """The vectors that a layer's weights meet in inputs x, (groups, N, d).

    Parameters
    ----------
    layer : torch.nn.Linear, Conv1d, Conv2d or Conv3d
    x : Tensor
        As the layer is given it.

    Examples
    --------
    >>> import torch
    >>> met(torch.nn.Conv1d(2, 1, 3), torch.arange(10.0).reshape(1, 2, 5)).tolist()[0][1]
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
def listening(known: dict[str, Layer], hear: Callable[[str, Tensor], None]) -> Iterator[None]:
    """While within, tell the vectors that each layer's weights meet, by the layer's name."""

    def note(
        name: str,
        part: nn.Linear | _Convolution,
        args: tuple[Tensor, ...],
        kwargs: Mapping[str, Tensor],
        out: object,
    ) -> None:
        del out  # noted when the layer has taken what it was given: else it says why not
        x = args[0] if args else kwargs["input"]
        hear(name, met(part, x.detach()))

    with ExitStack() as stack:
        for layer in known.values():
            for part in layer.modules:
                hook = part.register_forward_hook(partial(note, layer.name), with_kwargs=True)
                stack.callback(hook.remove)
        yield


def triangle(before: Tensor | None, vectors: Tensor) -> Tensor:
    """What has the same RRᵀ as all vectors R so far, in float64, at most d × d for each group.

    Parameters
    ----------
    before : Tensor of shape (groups, at most d, d), or None
    vectors : Tensor of shape (groups, N, d)
    """
    rows = vectors.double()
    rows = rows if before is None else torch.cat((before, rows), dim=1)
    return rows if rows.shape[1] <= rows.shape[2] else torch.linalg.qr(rows, mode="r").R


def grown(
    basis: OrthonormalBasis | None, T: Tensor, threshold: float, kind: Tensor
) -> OrthonormalBasis:
    """M with so many directions of R̂ that the threshold is reached: [1] (8), (9).

    Parameters
    ----------
    basis : Columns, optional
        M, of d numbers each; none before the first task.
    T : Tensor of shape (N, d)
        Rᵀ, or its triangle, in float64.
    threshold : float
        ε.
    kind : Tensor
        Of the precision of M, on its device.
    """
    d = T.shape[1]
    basis = OrthonormalBasis.start(d, kind, 1) if basis is None else basis
    M = basis.rows.double()
    rest = T - (T @ M.T) @ M
    rest = rest - (rest @ M.T) @ M
    _, sigma, V = torch.linalg.svd(rest, full_matrices=False)
    whole, energy = T.square().sum(), sigma.square()
    held = whole - energy.sum()
    # Here, once a task, a device is waited for: how many columns there are must be known.
    short = held + energy.cumsum(0) < threshold * whole * (1.0 - 1e-12)
    some = held < threshold * whole * (1.0 - 1e-12)
    alive = sigma > linalg.rounding(kind) * d**0.5 * whole.sqrt()
    k = min(int(short.sum()) + int(some), int(alive.sum()))
    if not k:
        return basis
    new = basis.split(V[:k].T.to(kind.dtype)).outside
    W, _, kept = linalg.orthonormal(new, linalg.small(torch.full_like(new[0], 0.5)))
    return basis.appended(linalg.present(W, kept))


def thresholds(given: object, names: list[str], where: str) -> dict[str, float]:
    """ε of each layer.

    Raises
    ------
    ParameterError
        If one is missing or not in (0, 1], or a name means no layer.
    """
    if isinstance(given, Mapping):
        return {name: _level(_meant(given, name, names, where), where) for name in names}
    if isinstance(given, Sequence) and not isinstance(given, str):
        if len(given) != len(names):
            raise ParameterError(
                f"{where}: `threshold` must have one number for each of the {len(names)} layers "
                f"{join_names(names)}, got {len(given)}. Give one for all, or a dict by name."
            )
        return {name: _level(each, where) for name, each in zip(names, given, strict=True)}
    return {name: _level(given, where) for name in names}


def _meant(given: Mapping[str, object], name: str, names: list[str], where: str) -> Any:
    for pattern in given:
        if not any(fnmatchcase(each, str(pattern)) for each in names):
            raise ParameterError(
                f"{where}: `threshold` must name layers, got {pattern!r}, which means none of "
                f"{join_names(names)}. Use their names or patterns, such as '*'."
            )
    for pattern, level in given.items():
        if fnmatchcase(name, str(pattern)):
            return level
    raise ParameterError(
        f"{where}: `threshold` must have a number for each layer, got none for {name!r}. "
        "Add it, or '*' at the end for all others."
    )


def _level(given: object, where: str) -> float:
    return validation.in_range(given, "threshold", where, above=0.0, high=1.0)


def sorted_out(
    module: nn.Module, chosen: Mapping[str, nn.Parameter], *, biases: str, others: str, where: str
) -> tuple[dict[str, Layer], list[nn.Parameter]]:
    """What becomes of the chosen parameters of a module.

    Parameters
    ----------
    module : torch.nn.Module
    chosen : dict of str to Parameter
    biases : {"frozen", "free"}
    others : {"refuse", "frozen", "free"}
    where : str
        What the user called, for messages.

    Returns
    -------
    layers : dict of str to Layer
        Those whose weights' steps are projected, by name.
    fixed : list of Parameter
        Parameters that learn in the first task alone.

    Raises
    ------
    ParameterError
        If an option is none of these, no weight of a layer is chosen, or others are unasked.
    """
    _refuse_words(biases, others, where)
    found, ours = layers(module), {id(each) for each in chosen.values()}
    tied = _elsewhere(module, found)
    held = {n: e for n, e in found.items() if id(e.weight) in ours and id(e.weight) not in tied}
    known = {id(each.weight) for each in held.values()}
    shifts = {id(bias) for each in found.values() for bias in each.biases} - known
    strange = {n: p for n, p in chosen.items() if id(p) not in known | shifts}
    if not held or (strange and others == "refuse"):
        raise _strangers(strange, where)
    fixed = [p for p in chosen.values() if id(p) in shifts] if biases == "frozen" else []
    return held, fixed + (list(strange.values()) if others == "frozen" else [])


def _refuse_words(biases: object, others: object, where: str) -> None:
    """Refuse options that there are not.

    Raises
    ------
    ParameterError
    """
    known = {"biases": ("frozen", "free"), "others": ("refuse", "frozen", "free")}
    for name, given in (("biases", biases), ("others", others)):
        if given not in known[name]:
            raise ParameterError(
                f"{where}: `{name}` must be one of {', '.join(known[name])}, got {given!r}. "
                "'frozen' keeps past answers."
            )


def _elsewhere(module: nn.Module, known: Mapping[str, Layer]) -> set[int]:
    """Weights of layers that are also used by something that is no such layer, by identity."""
    own = {id(part): layer.weight for layer in known.values() for part in layer.modules}
    weights = {id(layer.weight) for layer in known.values()}
    return {
        id(each)
        for part in module.modules()
        for each in part.parameters(recurse=False)
        if id(each) in weights and own.get(id(part)) is not each
    }


def _strangers(strange: Mapping[str, nn.Parameter], where: str) -> ParameterError:
    came = join_names(list(strange)) if strange else "biases alone"
    return ParameterError(
        f"{where}: `module` must have linear layers or convolutions that the optimizer moves, and "
        f"nothing else unasked, got {came}. Name the layers to hold with `projects`, or say what "
        "becomes of the others: others='frozen' after the first task, or others='free'."
    )


class GPM(Projected):
    """Gradient projection memory, around any optimizer of torch.

    It is an optimizer: give it to schedulers and to ``torch.amp.GradScaler``, and call ``step()``
    after ``loss.backward()`` as ever. Held are ``Linear``, ``Conv1d``, ``Conv2d`` and ``Conv3d``.

    Parameters
    ----------
    optimizer : torch.optim.Optimizer
        Of parameters of the module; not LBFGS.
    module : torch.nn.Module
    threshold : float, sequence of float, or mapping of str to float, default=0.97
        ε of (3), in (0, 1]: for all layers; one for each, in the module's order; or by names of
        layers or patterns of them, the first that fits. 1 keeps all that rounding can tell.
    growth : float, default=0.0
        By how much ε rises with each task, up to 1; >= 0.
    rows : int or None, default=300
        Rows of a task that are shown to the module when it is over; None: all.
    projects : {"all", "last"}, str or sequence of str, default="all"
        Which parameters are held: all of the optimizer, or names of parameters or layers, or
        patterns. The others are free, as heads are that belong to one task.
    biases : {"frozen", "free"}, default="frozen"
        [1] has no biases. A bias shifts all answers, past ones too: so it learns in the first task
        alone, or freely, if past answers may shift.
    others : {"refuse", "frozen", "free"}, default="refuse"
        What becomes of parameters of other layers, of which it is not known what they meet, such as
        those of normalisation: an error, as biases after the first task, or free.
    seed : int, default=0
        What the rows of a task are drawn from.

    Attributes
    ----------
    optimizer : torch.optim.Optimizer
    ranks_ : dict of str to int
        k of each layer, the directions kept, of all its groups together.
    tasks_ : int
        Tasks that are over.

    Raises
    ------
    ParameterError, TypeMismatchError
        If an argument is none of these, or parameters are neither weights nor biases of such
        layers, and it was not said what becomes of them.

    Notes
    -----
    Running statistics of batch normalisation are no parameters and are not held: freeze them with
    ``eval()`` if past answers must stay.

    Examples
    --------
    >>> import torch
    >>> import onepass as op
    >>> module = torch.nn.Linear(3, 1, bias=False)
    >>> optimizer = op.nn.optim.GPM(torch.optim.Adam(module.parameters(), lr=0.1), module)
    >>> past, new = torch.tensor([[1.0, 0.0, 0.0]]), torch.tensor([[1.0, 1.0, 0.0]])
    >>> said = module(past).item()
    >>> optimizer.after_task([past]).ranks_
    {'': 1}
    >>> for _ in range(200):
    ...     optimizer.zero_grad()
    ...     loss = (module(new) - 5.0).square().mean()
    ...     loss.backward()
    ...     _ = optimizer.step()
    >>> abs(module(past).item() - said) < 1e-5, round(module(new).item(), 1)
    (True, 5.0)
    """

    _part: ClassVar[str] = "bases"

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
        where = self._where
        self.threshold = threshold
        self._thresholds = thresholds(threshold, list(self._layers), where)
        self.growth = validation.in_range(growth, "growth", where, low=0.0)
        self.rows = None if rows is None else validation.whole(rows, "rows", where, low=1)
        self.seed = validation.whole(seed, "seed", where, low=0)
        self._memory: dict[str, list[OrthonormalBasis]] = {}

    def _select(self) -> None:
        super()._select()
        self._layers, self._fixed = sorted_out(
            self.module,
            dict(zip(self._names, self._chosen, strict=True)),
            biases=self.biases,
            others=self.others,
            where=self._where,
        )

    # -- tasks -----------------------------------------------------------------------------------

    def after_task(self, loader: Iterable[object]) -> Self:
        """Show rows of a task to the module, and keep the directions of what its layers met.

        The module is asked as in evaluation mode; its mode, hooks and buffers stay. A layer that no
        row reached, such as the head of another task, keeps what it has.

        Parameters
        ----------
        loader : iterable of batches (x, y) or x, or one batch (x, y), a tuple
            The task's rows, such as the DataLoader that it was trained with; it is read once, and
            y does not matter.

        Returns
        -------
        self

        Raises
        ------
        ParameterError, ShapeError, TypeMismatchError, NotFiniteError
            If there are no rows, or they do not fit: then nothing has changed.
        NumericalError
            If what a layer is given is not finite: then nothing has changed.
        """
        where = f"{self._where}.after_task"
        told: dict[str, Tensor] = {}

        def hear(name: str, vectors: Tensor) -> None:
            told[name] = triangle(told.get(name), vectors)

        with evaluation_mode(list(self.module.modules())), self._plainly():
            found = drawn(
                loader, self.rows, (self.seed, self.tasks_), self._network, where, labels=False
            )
            rows = (each.rows for each in found)
            batches = rows if self.rows is None else iter(together(list(rows)))
            for batch in batches:
                with listening(self._layers, hear):
                    self._network.outputs(batch)
            bases = dict(self._memory)
            for name, parts in told.items():
                if not bool(parts.isfinite().all()):
                    raise NumericalError(
                        f"{where}: what the layers are given must be finite, got nan or infinity "
                        f"in {name!r}. Look at the weights before it, or scale the rows."
                    )
                level = min(self._thresholds[name] + self.growth * self.tasks_, 1.0)
                old: Any = bases.get(name) or [None] * len(parts)
                bases[name] = [
                    grown(basis, T, level, self._kind(name))
                    for basis, T in zip(old, parts, strict=True)
                ]
        with Interrupt().held():
            self._memory, self.tasks_ = bases, self.tasks_ + 1
        return self

    @property
    def ranks_(self) -> dict[str, int]:
        """The directions kept of each layer, of all its groups together."""
        return {name: sum(map(len, self._memory.get(name, ()))) for name in self._layers}

    # -- what stands behind it -------------------------------------------------------------------

    def _kind(self, name: str) -> Tensor:
        """An empty tensor of the precision of a layer's directions, on its device."""
        return linalg.widened(self._layers[name].weight.detach()[:0])

    def _held(self) -> list[nn.Parameter]:
        if not self.tasks_:
            return []
        kept = [each.weight for name, each in self._layers.items() if self.ranks_[name]]
        return [*kept, *self._fixed]

    def _correct(self, held: list[nn.Parameter], before: list[Tensor]) -> None:
        """(1) for weights; what is frozen goes back."""
        bases = {id(each.weight): self._memory.get(name) for name, each in self._layers.items()}
        for each, old in zip(held, before, strict=True):
            known = bases.get(id(each))
            if known is None:
                each.copy_(old)
                continue
            moved = linalg.widened(each.detach() - old).reshape(
                len(known), -1, known[0].matrix.shape[0]
            )
            # once: what rounding leaves of a step is not more than what it leaves of the weights
            free = [d - (d @ M.matrix) @ M.rows for M, d in zip(known, moved, strict=True)]
            each.copy_(old + torch.cat(free).reshape(old.shape))

    def _refuse_unlike(self, memory: dict[str, list[OrthonormalBasis]]) -> None:
        for name, found in memory.items():
            layer = self._layers.get(name)
            shape = [M.matrix.shape[0] for M in found]
            if layer is None or shape != [layer.d] * layer.groups:
                raise CheckpointError(
                    f"{self._where}.load_state_dict: the directions of {name!r} must be those of a "
                    f"layer held here, got {len(found)} group(s) of {shape[:1]} inputs. Wrap the "
                    "module that they were taken with."
                )
