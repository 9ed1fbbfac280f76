"""Checks of a module on the first rows of each kind.

The answer for a row must be the same when it is asked twice, and whatever other rows are asked
with it. Neither can be read off a module's code, so it is tried.

Two ways to one output may differ by rounding. The same row is multiplied in another order when it
comes alone than among others. Where a module is as steep as sin(10⁵ x), or its weights are so large
that they cancel, that shows in its outputs. With f̃ the module in float64, or as it is where it
cannot be asked so, and δ of the size of the last digit that f̃ computes in,

    |f̃(row among others) − f̃(row)|  ≤  max(tolerance, 16 max_δ |f̃(row (1 + δ); w (1 + δ)) − f̃(row)|)

is what rounding can do: errors of a sum are of the order of those of its terms (N. J. Higham,
"Accuracy and Stability of Numerical Algorithms", 2002, section 3.1).
"""

import copy
from contextlib import ExitStack, suppress
from typing import Any, TypeAlias

import torch
from torch import Tensor

from onepass.errors import ParameterError
from onepass.nn.batch import Batch, as_matrix, holds_indices, mapped, tensors
from onepass.nn.function import Function, evaluation_mode
from onepass.nn.selection import layer_of

__all__ = ["Probe", "alike", "refuse_underived", "rounded", "straight", "tolerance"]


_TRIES = 8
_ROOM = 16.0


def tolerance(tensor: Tensor) -> float:
    """How far two ways to one number may differ, relative to the largest of its kind.

    Half the digits of the dtype; float32 on an accelerator may be multiplied with ten bits.
    """
    eps = float(torch.finfo(tensor.dtype).eps)
    coarse = tensor.dtype == torch.float32 and tensor.device.type != "cpu"
    return float((2.0**-11 if coarse else eps) ** 0.5)


def alike(a: Tensor, b: Tensor, within: float | None = None, room: float = 0.0) -> bool:
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


def rounded(module: torch.nn.Module, rows: Batch, i: int, said: Tensor) -> bool:
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


def _rounded(module: torch.nn.Module, rows: Batch, i: int, said: Tensor, *, wide: bool) -> bool:
    twin = copy.deepcopy(module)
    if wide:
        twin, rows = twin.double(), rows.with_tensors(map(_double, rows.tensors), rows.n)
    row, layers = rows[i], list(twin.modules())
    with torch.no_grad(), evaluation_mode(layers):
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
            near = row.with_tensors([_shaken(each, lots) for each in row.tensors], row.n)
            moved = torch.nan_to_num(_asked(twin, near) - alone).abs().amax()
            spread = max(spread, float(moved))
    return alike(together, alone, within, _ROOM * spread)


def _asked(module: torch.nn.Module, rows: Batch) -> Tensor:
    return as_matrix(module(*rows.args, **rows.kwargs), rows.n, "")


def _numbers(module: torch.nn.Module) -> list[torch.nn.Parameter]:
    return [each for each in module.parameters() if each.is_floating_point()]


def _double(tensor: Tensor) -> Tensor:
    if tensor.is_complex():
        return tensor.to(torch.complex128)
    return tensor.double() if tensor.is_floating_point() else tensor


def _shaken(tensor: Tensor, lots: torch.Generator) -> Tensor:
    """Numbers with the last digit of each up or down, by lot."""
    if not tensor.is_floating_point():
        return tensor
    signs = torch.randint(0, 2, tensor.shape, generator=lots) * 2 - 1
    return tensor * (1.0 + signs.to(tensor) * torch.finfo(tensor.dtype).eps)


_FEW = 8
_Kind: TypeAlias = tuple[tuple[int, bool], ...]  # of each tensor: number of axes, whether floating


def straight(function: Function, rows: Batch) -> bool | None:
    """Whether f is linear in its weights, as far as three points of a line tell; None if nothing.

    f(w + v) + f(w − v) = 2 f(w) for a v, drawn from a seed, about as long as w. Where f is the same
    at all three, as for a row of zeros without biases, they tell nothing. A device is waited for.

    Parameters
    ----------
    function : Function
    rows : Batch
        One is enough.
    """
    now, lots = function.weights(), torch.Generator().manual_seed(0)
    numbers = sum(each.numel() for each in now.values())
    square = sum(each.double().square().sum() for each in now.values())
    size = float(square / numbers) ** 0.5 or 1.0
    drawn = {
        name: (size * torch.randn(each.shape, generator=lots)).to(each)
        for name, each in now.items()
    }
    with torch.no_grad():
        up, here, down = (
            function({name: each + sign * drawn[name] for name, each in now.items()}, rows)
            for sign in (1.0, 0.0, -1.0)
        )
    if torch.equal(up, here) and torch.equal(down, here):
        return None
    scale = max(float(each.abs().max()) for each in (up, here, down))
    bent = float((up.double() + down.double() - 2.0 * here.double()).abs().max())
    return bent <= tolerance(here) * scale


def refuse_underived(function: Function, rows: Batch) -> None:
    """Refuse outputs that have no graph, unless they do not depend on the weights at all.

    A derivative of zero would be learned as if it were one. Where an output has a graph, as behind
    a unit that is dead for a row, zero is what it says.

    Parameters
    ----------
    function : Function
    rows : Batch
        Rows whose outputs have no graph.

    Raises
    ------
    ParameterError
    """
    if straight(function, rows) is None:
        return
    raise ParameterError(
        f"{function.where}: the module's outputs must have a derivative in the weights that learn, "
        "got outputs that depend on them without one: its forward, in evaluation mode, computes "
        "under torch.no_grad() or torch.inference_mode(), or cuts them off with detach(), item() "
        "or numpy(). Take that out of it, or let it end before the layers that learn, and name "
        "these: learns='last'."
    )


class Probe:
    """Asks a module a few rows in several ways, until nothing is left to find out.

    Parameters
    ----------
    function : Function
    last : str or None
        The argument by which the last layer was chosen, which must then produce the outputs.
    """

    def __init__(self, function: Function, *, last: str | None) -> None:
        self._function = function
        self._last = last
        self._asked_twice = set[_Kind]()
        self._asked_alone = set[_Kind]()
        self._as_real = set[_Kind]()

    def __call__(self, rows: Batch, dtype: torch.dtype) -> Batch:
        """Look at the module with these rows, of which a few are enough.

        Parameters
        ----------
        rows : Batch
        dtype : torch.dtype
            Of the module.

        Returns
        -------
        rows : Batch
            With integers converted to floats, if the module refuses integers.

        Raises
        ------
        ParameterError
            If the module is random, keeps a state, mixes rows, writes into its parameters, or has
            outputs of another layer than the last, which was selected.
        ShapeError
            If rows ask for a place that a table of embeddings has not.
        """
        kind = tuple((each.ndim, each.is_floating_point()) for each in rows.tensors)
        if kind in self._as_real:
            return self(rows.real(dtype), dtype)
        try:
            self._look(rows, kind)
        except Exception:
            if kind not in self._asked_twice and holds_indices(rows):
                with suppress(Exception):
                    real = self(rows.real(dtype), dtype)
                    self._as_real.add(kind)
                    return real
            raise
        return rows

    def _look(self, rows: Batch, kind: _Kind) -> None:
        if rows.n and kind not in self._asked_twice:
            self._ask_twice(rows[:_FEW])
            self._asked_twice.add(kind)
        if self._function.on_device:
            self._function.look_up(rows)
        if rows.n > 1 and kind not in self._asked_alone and self._ask_alone(rows[:_FEW]):
            self._asked_alone.add(kind)

    def _ask_twice(self, rows: Batch) -> None:
        function = self._function
        once, twice = self._in_order(rows) if self._last else function.look(rows)
        if not alike(once, twice):
            raise ParameterError(
                f"{rows.where or function.where}: a row asked twice must have the same answer, but "
                "the module gave two different ones, though it is in evaluation mode. Let it draw "
                "no lots there (F.dropout(..., training=self.training)), and keep no state between "
                "calls."
            )

    def _ask_alone(self, rows: Batch) -> bool:
        """Ask each row alone; whether that has told anything.

        Of those of a module that reads x[0, 0] some may have the right answer by chance.
        While all rows have one answer, as with a last layer of zeros, it tells nothing.
        """
        function = self._function
        together = function.outputs(rows)
        for i in range(rows.n):
            alone = function.outputs(rows[i])
            wide = alone.shape[1] != together.shape[1]
            if wide or not (
                alike(together[i : i + 1], alone) or rounded(function.module, rows, i, alone)
            ):
                raise _mixing(i, rows.n, rows.where or function.where)
        return bool((together != together[:1]).any())

    def _in_order(self, rows: Batch) -> tuple[Tensor, Tensor]:
        """The outputs of two forward passes; the selected last layer must produce them."""
        function = self._function
        said, names = function.look(rows), function.selection.names
        last, sources = self._sources(rows)
        if sources and not sources.issuperset(names):
            raise ParameterError(
                f"{function.where}: `{self._last}='last'` means the layer made last, "
                f"{layer_of(names[-1])!r}, but the layer that produces the outputs is {last!r}. "
                f"Name the one that is to learn: {self._last}={last!r}."
            )
        return said

    def _sources(self, rows: Batch) -> tuple[str, set[str]]:
        """The last layer whose result reaches the outputs without passing a later layer.

        Returns its name and the names of its parameters that require grad. If parameters reach the
        outputs outside of a call of their layer, returns these, and the layer of the last of them.
        ``("", set())`` if there is no such layer.
        """
        function, module = self._function, self._function.module
        free = {name: each for name, each in module.named_parameters() if each.requires_grad}
        first = {id(each): name for name, each in free.items()}
        owned = {
            layer: {first[id(each)] for each in layer.parameters() if id(each) in first}
            for name, layer in module.named_modules()
            if ".parametrizations" not in name
        }
        called = list[tuple[Any, Any]]()

        def cut(layer: torch.nn.Module, _: object, given: object) -> Any:
            inner = set(layer.modules()) - {layer}
            if any(each in inner for each, _ in called):
                return None  # one of its own layers has computed the result
            called.append((layer, mapped(given, _leaf)))
            return mapped(called[-1][1], torch.clone)

        with ExitStack() as held:
            for layer in (layer for layer, names in owned.items() if names):
                held.callback(layer.register_forward_hook(cut).remove)
            held.enter_context(function.deriving(rows))
            weights = {name: _leaf(each) for name, each in free.items()}
            total = function(weights, rows).sum()
        leaves = [*weights.values(), *tensors([each for _, each in called])]
        leaves = [each for each in leaves if each.requires_grad] if total.requires_grad else []
        slopes = torch.autograd.grad(total, leaves, allow_unused=True) if leaves else ()
        reached = {id(each) for each, g in zip(leaves, slopes, strict=True) if g is not None}
        direct = [name for name, each in weights.items() if id(each) in reached]
        if direct:
            return layer_of(direct[-1]) or direct[-1], set(direct)
        used = [layer for layer, each in called if reached.intersection(map(id, tensors(each)))]
        names = {layer: name for name, layer in module.named_modules()}
        return (names[used[-1]], owned[used[-1]]) if used else ("", set())


def _leaf(tensor: Tensor) -> Tensor:
    """A leaf with the values of a tensor."""
    if not tensor.is_floating_point() or tensor.is_inference():
        return tensor
    return tensor.detach().requires_grad_()


def _mixing(i: int, n: int, where: str) -> ParameterError:
    return ParameterError(
        f"{where}: the answer for a row must not depend on other rows, but row {i} has another "
        f"answer in a block of {n} than alone. Let forward read no number of the whole batch, such "
        "as x[0, 0], x.sum() or item(), but one of each row, as x.sum(1); use torch.nn.GroupNorm "
        "or torch.nn.LayerNorm in place of statistics of the batch, and batch_first=True in "
        "attention and recurrent layers."
    )
