"""Checks of a module on the first rows of each input format.

The output for a row must be deterministic and must not depend on other rows in the batch. Both
properties are tested by evaluation.

Outputs for a row alone and within a batch may differ by rounding, since products are summed in
another order. This is visible if a module is as steep as sin(10⁵ x), or has large weights that
cancel. With f̃ the module in float64 (or unchanged, if it does not support float64), and δ of the
size of its machine epsilon,

    |f̃(row among others) − f̃(row)|  ≤  max(tolerance, 16 max_δ |f̃(row (1 + δ); w (1 + δ)) −
    f̃(row)|)

bounds the effect of rounding: errors of a sum are of the order of those of its terms (N. J. Higham,
"Accuracy and Stability of Numerical Algorithms", 2002, section 3.1).
"""

from __future__ import annotations

import copy
from contextlib import ExitStack, suppress
from typing import Any, TypeAlias

import torch
from torch import Tensor

from onepass.errors import ParameterError
from onepass.nn.batch import Batch, as_matrix, holds_indices, map_tensors, tensors
from onepass.nn.function import Function, evaluation_mode
from onepass.nn.selection import layer_of

_TRIES = 8
_ROOM = 16.0


def tolerance(tensor: Tensor) -> float:
    """Return the tolerance for comparing two computations, relative to the largest entry.

    Half the digits of the dtype; products in float32 on an accelerator may have only ten bits.
    """
    eps = float(torch.finfo(tensor.dtype).eps)
    coarse = tensor.dtype == torch.float32 and tensor.device.type != "cpu"
    return float((2.0**-11 if coarse else eps) ** 0.5)


def all_close(a: Tensor, b: Tensor, within: float | None = None, room: float = 0.0) -> bool:
    """Return whether two tensors are equal within a tolerance; nan equals nan.

    Parameters
    ----------
    a, b : Tensors of one shape
    within : float, optional
        Relative tolerance, with respect to the largest entry of a. Default: :func:`tolerance`.
    room : float, default 0.0
        Min absolute tolerance.
    """
    scale = torch.nan_to_num(a).abs().amax().item()
    atol = max((tolerance(a) if within is None else within) * scale, room)
    return bool(torch.isclose(a, b, rtol=0.0, atol=atol, equal_nan=True).all())


def differs_by_rounding(module: torch.nn.Module, rows: Batch, i: int, outputs: Tensor) -> bool:
    """Return whether the outputs for row i in a batch and alone differ only by rounding.

    Parameters
    ----------
    module : torch.nn.Module
        Evaluated through copies.
    rows : Batch
    i : int
    outputs : Tensor
        Outputs of the module, whose dtype determines the tolerance.
    """
    for wide in (True, False):
        try:
            return _differs_by_rounding(module, rows, i, outputs, wide=wide)
        except Exception:  # noqa: BLE001, S112  no float64 support, or not copyable
            continue
    return False


def _differs_by_rounding(
    module: torch.nn.Module, rows: Batch, i: int, outputs: Tensor, *, wide: bool
) -> bool:
    twin = copy.deepcopy(module)
    if wide:
        twin, rows = twin.double(), rows.with_tensors(map(_double, rows.tensors), rows.n)
    row, layers = rows[i], list(twin.modules())
    with torch.no_grad(), evaluation_mode(layers):
        together, alone = _outputs_of(twin, rows)[i : i + 1], _outputs_of(twin, row)
        if wide and alone.dtype != torch.float64:
            raise TypeError("the module computes in another precision")
        within = tolerance(outputs)
        if all_close(together, alone, within):
            return True
        lots, initial = torch.Generator().manual_seed(0), [each.clone() for each in _numbers(twin)]
        spread = 0.0
        for _ in range(_TRIES):
            for each, before in zip(_numbers(twin), initial, strict=True):
                each.copy_(_perturbed(before, lots))
            near = row.with_tensors([_perturbed(each, lots) for each in row.tensors], row.n)
            moved = torch.nan_to_num(_outputs_of(twin, near) - alone).abs().amax()
            spread = max(spread, float(moved))
    return all_close(together, alone, within, _ROOM * spread)


def _outputs_of(module: torch.nn.Module, rows: Batch) -> Tensor:
    return as_matrix(module(*rows.args, **rows.kwargs), rows.n)


def _numbers(module: torch.nn.Module) -> list[torch.nn.Parameter]:
    return [each for each in module.parameters() if each.is_floating_point()]


def _double(tensor: Tensor) -> Tensor:
    if tensor.is_complex():
        return tensor.to(torch.complex128)
    return tensor.double() if tensor.is_floating_point() else tensor


def _perturbed(tensor: Tensor, lots: torch.Generator) -> Tensor:
    """Perturb each number by ± machine epsilon, at random."""
    if not tensor.is_floating_point():
        return tensor
    signs = torch.randint(0, 2, tensor.shape, generator=lots) * 2 - 1
    return tensor * (1.0 + signs.to(tensor) * torch.finfo(tensor.dtype).eps)


_FEW = 8
_Kind: TypeAlias = tuple[tuple[int, bool], ...]  # of each tensor: number of axes, whether floating


def linear_in_weights(function: Function, rows: Batch) -> bool | None:
    """Test whether f is linear in its weights; None if the rows are not informative.

    Tests f(w + v) + f(w − v) = 2 f(w) for a seeded random v, about as long as w. If all three
    outputs are equal, as for a row of zeros without biases, the result is None. Synchronises with
    an accelerator.

    Parameters
    ----------
    function : Function
    rows : Batch
        One row suffices.
    """
    now, lots = function.weights(), torch.Generator().manual_seed(0)
    numbers = sum(each.numel() for each in now.values())
    square = sum(each.double().square().sum() for each in now.values())
    size = float(square / numbers) ** 0.5 or 1.0
    sample_rows = {
        name: (size * torch.randn(each.shape, generator=lots)).to(each)
        for name, each in now.items()
    }
    with torch.no_grad():
        up, here, down = (
            function({name: each + sign * sample_rows[name] for name, each in now.items()}, rows)
            for sign in (1.0, 0.0, -1.0)
        )
    if torch.equal(up, here) and torch.equal(down, here):
        return None
    scale = max(float(each.abs().max()) for each in (up, here, down))
    bent = float((up.double() + down.double() - 2.0 * here.double()).abs().max())
    return bent <= tolerance(here) * scale


def check_has_gradient(function: Function, rows: Batch) -> None:
    """Check that outputs without a graph do not depend on the weights.

    Otherwise their derivative would wrongly be zero. A zero derivative is correct if an output has
    a graph, as for a dead unit.

    Parameters
    ----------
    function : Function
    rows : Batch
        Rows whose outputs have no graph.

    Raises
    ------
    ParameterError
    """
    if linear_in_weights(function, rows) is None:
        return
    raise ParameterError(
        "the module's outputs must have a derivative in the weights that learn, got "
        "outputs that depend on these weights without a derivative: forward, in "
        "evaluation mode, uses torch.no_grad(), torch.inference_mode(), detach(), "
        "item() or numpy(). Remove these calls, or use them only before the layers "
        "that learn, and select these layers, such as learns='last'."
    )


class Probe:
    """Checks that a module is deterministic and treats rows independently.

    Parameters
    ----------
    function : Function
    last : str or None
        Name of the argument that selected the last layer, which must then produce the outputs.
    """

    def __init__(self, function: Function, *, last: str | None) -> None:
        self._function = function
        self._last = last
        self._checked_deterministic = set[_Kind]()
        self._checked_independent = set[_Kind]()
        self._as_real = set[_Kind]()

    def __call__(self, rows: Batch) -> Batch:
        """Check the module on some of these rows.

        Parameters
        ----------
        rows : Batch

        Returns
        -------
        rows : Batch
            With integers converted to floats if the module does not accept integers.

        Raises
        ------
        ParameterError
            If the module is random, has a state, mixes rows, writes into its parameters, or its
            outputs are not those of the selected last layer.
        ShapeError
            If an index is out of range of an embedding table.
        """
        kind = tuple((each.ndim, each.is_floating_point()) for each in rows.tensors)
        if kind in self._as_real:
            return self(rows.real(self._function.input_dtype))
        try:
            self._check(rows, kind)
        except Exception:
            if kind not in self._checked_deterministic and holds_indices(rows):
                with suppress(Exception):
                    real = self(rows.real(self._function.input_dtype))
                    self._as_real.add(kind)
                    return real
            raise
        return rows

    def _check(self, rows: Batch, kind: _Kind) -> None:
        if rows.n and kind not in self._checked_deterministic:
            self._check_deterministic(rows[:_FEW])
            self._checked_deterministic.add(kind)
        if self._function.on_device:
            self._function.check_indices(rows)
        if (
            rows.n > 1
            and kind not in self._checked_independent
            and self._check_rows_independent(rows[:_FEW])
        ):
            self._checked_independent.add(kind)

    def _check_deterministic(self, rows: Batch) -> None:
        function = self._function
        once, twice = self._check_last_layer(rows) if self._last else function.outputs_twice(rows)
        if not all_close(once, twice):
            raise ParameterError(
                "the module must be deterministic, but two calls with the same row gave different "
                "outputs in evaluation mode. Disable random layers (F.dropout(..., "
                "training=self.training)), and store no state between calls."
            )

    def _check_rows_independent(self, rows: Batch) -> bool:
        """Compare each row alone and in a batch; return whether the test was informative.

        It is not informative while all rows have the same output, as with a last layer of zeros.
        """
        function = self._function
        together = function.outputs(rows)
        for i in range(rows.n):
            alone = function.outputs(rows[i])
            wide = alone.shape[1] != together.shape[1]
            if wide or not (
                all_close(together[i : i + 1], alone)
                or differs_by_rounding(function.module, rows, i, alone)
            ):
                raise _dependent_rows_error(i, rows.n)
        return bool((together != together[:1]).any())

    def _check_last_layer(self, rows: Batch) -> tuple[Tensor, Tensor]:
        """Evaluate the module twice; check that the selected last layer produces the outputs."""
        function = self._function
        outputs, names = function.outputs_twice(rows), function.selection.names
        last, sources = self._sources(rows)
        if sources and not sources.issuperset(names):
            raise ParameterError(
                f"`{self._last}='last'` selects the layer registered last, "
                f"{layer_of(names[-1])!r}, but the layer that produces the outputs is "
                f"{last!r}. Name the layer to train: {self._last}={last!r}."
            )
        return outputs

    def _sources(self, rows: Batch) -> tuple[str, set[str]]:
        """Find the last layer whose result reaches the outputs without passing another layer.

        Return its name and the names of its parameters that require grad. If parameters are used
        outside of a call of their layer, return these parameters and the layer of the last one.
        Return ``("", set())`` if there is no such layer.
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
                return None  # an inner layer computed the result
            called.append((layer, map_tensors(given, _leaf)))
            return map_tensors(called[-1][1], torch.clone)

        with ExitStack() as held:
            for layer in (layer for layer, names in owned.items() if names):
                held.callback(layer.register_forward_hook(cut).remove)
            held.enter_context(function.gradient_context(rows))
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
    """Return a leaf with the values of a tensor."""
    if not tensor.is_floating_point() or tensor.is_inference():
        return tensor
    return tensor.detach().requires_grad_()


def _dependent_rows_error(i: int, n: int) -> ParameterError:
    return ParameterError(
        f"the output for a row must not depend on other rows, but the output for row {i} in a "
        f"block of {n} rows differs from the output for the row alone. In forward, compute with "
        "values of each row, such as x.sum(1), not of the whole batch, such as x[0, 0], x.sum() or "
        "item(); use torch.nn.GroupNorm or torch.nn.LayerNorm instead of batch statistics, and "
        "batch_first=True in attention and recurrent layers."
    )
