"""Selection of the parameters that learn, and their positions in one flat vector.

A parameter shared by several layers counts once. A parameter that does not require grad is frozen:
it is never selected and never written.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property

import torch
from torch import Tensor

from onepass import linalg
from onepass.errors import ParameterError, TypeMismatchError, did_you_mean, join_names

_CLOSED = (
    torch.jit.ScriptModule, torch.nn.DataParallel, torch.nn.parallel.DistributedDataParallel,
)  # fmt: skip
_PARAMETRIZED = ".parametrizations."


@dataclass(frozen=True)
class Selection:
    """The parameters that learn, in the order of the module.

    Parameters
    ----------
    names : tuple of str
        Names in the module.
    parameters : tuple of torch.nn.Parameter
        The module's parameters, not copies.
    """

    names: tuple[str, ...]
    parameters: tuple[torch.nn.Parameter, ...]

    @cached_property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """Shape of each parameter."""
        return tuple(tuple(each.shape) for each in self.parameters)

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Number of weights of each parameter."""
        return tuple(math.prod(shape) for shape in self.shapes)

    @cached_property
    def p(self) -> int:
        """Total number of weights."""
        return sum(self.sizes)

    @cached_property
    def slices(self) -> Mapping[str, slice]:
        """Position of each parameter in the flat vector."""
        start, found = 0, {}
        for name, size in zip(self.names, self.sizes, strict=True):
            found[name] = slice(start, start + size)
            start += size
        return found

    @cached_property
    def layers(self) -> Mapping[str, tuple[slice, ...]]:
        """Positions of the weights of each layer; adjacent slices are joined."""
        found: dict[str, list[slice]] = {}
        for name, piece in self.slices.items():
            pieces = found.setdefault(layer_of(name), [])
            if pieces and pieces[-1].stop == piece.start:
                pieces[-1] = slice(pieces[-1].start, piece.stop)
            else:
                pieces.append(piece)
        return {name: tuple(pieces) for name, pieces in found.items()}


def layer_of(name: str) -> str:
    """Return the name of the layer that owns a parameter; ``""`` is the module itself.

    Parameters
    ----------
    name : str
        Name from ``named_parameters``.

    Examples
    --------
    >>> layer_of("body.0.weight"), layer_of("body.0.parametrizations.weight.original1")
    ('body.0', 'body.0')
    >>> len(layer_of("scale"))
    0
    """
    owner, found, _ = f".{name}".partition(_PARAMETRIZED)
    return owner[1:] if found else name.rpartition(".")[0]


def select(module: torch.nn.Module, learns: str | Sequence[str]) -> Selection:
    """Select the parameters of a module that learn.

    Parameters
    ----------
    module : torch.nn.Module
    learns : {"all", "last"}, str or sequence of str
        ``"all"``: every parameter that requires grad. ``"last"``: those of the last layer that has
        any, including shared ones, in registration order. Otherwise names or patterns of parameters
        or layers (``"head.*"``, ``"*.bias"``).

    Raises
    ------
    ParameterError
        If nothing is selected, a name is unknown or frozen, or parameters share memory.
    TypeMismatchError
        If ``module`` is not a module, or the selected parameters have several or complex dtypes.
    """
    if not isinstance(module, torch.nn.Module):
        raise TypeMismatchError(
            f"`module` must be a torch.nn.Module, got {type(module).__name__}. Wrap a "
            "function of tensors in a module's forward."
        )
    if isinstance(module, _CLOSED):
        raise TypeMismatchError(
            f"`module` must be a plain torch.nn.Module, got a {type(module).__name__}, whose "
            "weights cannot be replaced. Pass the module that it was created from."
        )
    named = dict(module.named_parameters())
    free = {name: each for name, each in named.items() if each.requires_grad}
    if not free:
        reason = "none of its parameters does" if named else "it has no parameters"
        raise ParameterError(
            f"`module` must have a parameter that requires grad, but {reason}. Pass a "
            "module with parameters, or call requires_grad_(True) on them."
        )
    names = _chosen(module, free, named, learns)
    chosen = Selection(names, tuple(free[name] for name in names))
    _refuse_mixed(chosen)
    return chosen


def _chosen(
    module: torch.nn.Module,
    free: Mapping[str, Tensor],
    named: Mapping[str, Tensor],
    learns: str | Sequence[str],
) -> tuple[str, ...]:
    if isinstance(learns, str) and learns == "all":
        return tuple(free)
    first = {id(each): name for name, each in named.items()}
    aliases = [
        (alias, first[id(each)]) for alias, each in module.named_parameters(remove_duplicate=False)
    ]
    if isinstance(learns, str) and learns == "last":
        last = [layer_of(alias) for alias, name in aliases if name in free][-1]
        found = {name for alias, name in aliases if layer_of(alias) == last}
        return tuple(name for name in free if name in found)
    patterns = [learns] if isinstance(learns, str) else learns
    if not patterns:
        raise ParameterError(
            "`learns` must be 'all', 'last', or names or patterns of parameters or "
            f"layers, got {learns!r}. The parameters are {join_names(list(named), 20)}."
        )
    found = set[str]()
    for pattern in patterns:
        found |= _matched(pattern, aliases, free)
    return tuple(name for name in free if name in found)


def _matched(
    pattern: str, aliases: Sequence[tuple[str, str]], free: Mapping[str, Tensor]
) -> set[str]:
    """Return the first names of the trainable parameters that match a pattern."""
    matched = {name for alias, name in aliases if _means(pattern, alias)}
    if not matched:
        names = [alias for alias, _ in aliases]
        hint = did_you_mean(pattern, [*names, *(layer_of(name) for name in names)])
        raise ParameterError(
            f"`learns` must name parameters or layers of the module, got {pattern!r}, "
            f"which matches none.{hint} The parameters are {join_names(names, 20)}."
        )
    if not matched & free.keys():
        raise ParameterError(
            f"`learns` must name parameters that require grad, got {pattern!r}, which "
            f"matches frozen {join_names(sorted(matched))}. Call requires_grad_(True) "
            f"on it, or choose among {join_names(list(free), 20)}."
        )
    return matched & free.keys()


def _means(pattern: str, name: str) -> bool:
    """Return whether a pattern matches a parameter or one of its parent modules."""
    parts = name.split(".")
    return any(fnmatchcase(".".join(parts[:k]), pattern) for k in range(1, len(parts) + 1))


def _refuse_mixed(chosen: Selection) -> None:
    dtypes = {each.dtype: name for name, each in zip(chosen.names, chosen.parameters, strict=True)}
    listing = ", ".join(f"{name!r} of {dtype}" for dtype, name in dtypes.items())
    if len(dtypes) > 1:
        raise TypeMismatchError(
            f"the parameters that learn must have one dtype, got {listing}. Convert the "
            "module, as with module.float(), or select some with `learns`."
        )
    if not all(dtype.is_floating_point for dtype in dtypes):
        raise TypeMismatchError(
            f"the parameters that learn must be real, got {listing}. Store real and imaginary part "
            "as a real parameter, and join them with torch.view_as_complex."
        )
    seen: dict[tuple[int, tuple[int, ...]], str] = {}
    for name, each in zip(chosen.names, chosen.parameters, strict=True):
        if not each.numel() or hasattr(each, "to_local"):  # distributed tensors have no address
            continue
        if any(n > 1 and not step for n, step in zip(each.shape, each.stride(), strict=True)):
            raise ParameterError(
                f"each weight must have its own memory, but several of {name!r}, which is expanded "
                f"to shape {tuple(each.shape)}, share it. Call clone() on the expanded tensor."
            )
        twin = seen.setdefault((each.data_ptr(), tuple(each.shape)), name)
        if twin != name:
            raise ParameterError(
                f"each parameter must have its own memory, but {name!r} and {twin!r} share memory. "
                "Tie weights by using one torch.nn.Parameter in both places."
            )


def find_nonfinite(named: Iterable[tuple[str, Tensor]]) -> str | None:
    """Describe the first tensor that contains nan or infinity; None if all are finite.

    Parameters
    ----------
    named : iterable of (str, Tensor)
    """
    for name, each in named:
        local = each.detach()
        local = local.to_local() if hasattr(local, "to_local") else local
        if not linalg.finite(local):
            lost = int((~local.isfinite()).sum())
            return f"{name!r} contains nan or infinity, {lost} of its {local.numel()} numbers"
    return None
