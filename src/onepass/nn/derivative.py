"""Derivative: the Jacobian of a module's outputs, each number of it written once.

J (n·c, p) holds ∂f_k(x_i; w)/∂w in its row i·c + k. It is made in one of four ways:

- by layers: all at once, backwards only as far as what layers gave (:mod:`onepass.nn.outer`);
- rows at once: ``vmap`` over rows, each with its c pull-backs;
- outputs at once: row by row, one forward and one batched backward;
- one by one: row by row and output by output, by plain backward passes. This always works.

Each of the first three is held against plain backward passes before it is trusted, and given up for
good where it fails: modules that branch on data, write in place, or have layers that ``vmap`` does
not know. Cost: n forward and n·c backward passes; scratch memory of a bounded number of J's rows.
"""

import warnings
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any

import torch
from torch.func import vjp, vmap

from onepass.errors import ShapeError
from onepass.nn.function import Function
from onepass.nn.inputs import Batch
from onepass.nn.mode import derivable
from onepass.nn.outer import Untold, Watch
from onepass.nn.probe import refuse_underived
from onepass.nn.rounding import tolerance
from onepass.nn.scratch import Scratch

__all__ = ["Derivative"]


class _OtherWidth(Exception):  # noqa: N818  caught here, never shown
    """A row has another number of outputs than the row before: room was made for those."""

    def __init__(self, c: int) -> None:
        super().__init__(c)
        self.c = c


class Derivative:
    """Derivatives of a function with respect to the weights that learn.

    Parameters
    ----------
    function : Function
    chunk : int or None
        How many rows of J are computed at once; None: as many as keep scratch memory within 64 MiB
        (256 MiB on an accelerator), and at least one.
    """

    def __init__(self, function: Function, chunk: int | None) -> None:
        self._function = function
        self._trusted: dict[str, bool] = {}
        self._c: int | None = None
        self._scratch = Scratch(function, chunk)
        self._derived = False  # whether outputs have had a graph

    def jacobian(self, rows: Batch, room: Callable[[int], Any]) -> tuple[Any, Any]:
        """Outputs (n, c), and J (n·c, p).

        Parameters
        ----------
        rows : Batch
        room : Callable
            Gives memory for J of a number of rows.
        """
        if rows.n == 0:
            return self._function.outputs(rows), room(0)
        c = self._c or self._function.outputs(rows[:1]).shape[1]
        J = room(rows.n * c)
        at_once = self._scratch.at_once(rows)
        step = at_once // c if rows.n > 1 and at_once >= 2 * c else 1
        try:
            pieces = [
                self._piece(rows[i : i + step], J[i * c : (i + step) * c], at_once)
                for i in range(0, rows.n, step)
            ]
        except _OtherWidth as other:
            self._c = other.c
            try:
                return self.jacobian(rows, room)
            except ShapeError:  # there is no room for these: they are not what comes next
                self._c = None
                raise
        self._c = c
        return (pieces[0] if len(pieces) == 1 else torch.cat(pieces)), J

    def gradient(self, rows: Batch, v: Any) -> tuple[Any, Any]:
        """Outputs (n, c), and the derivative (p,) of the sum of v times outputs.

        Parameters
        ----------
        rows : Batch
        v : Tensor of shape (n, c) or Callable
            A function gets the outputs and gives such a tensor.
        """
        selection, first = self._function.selection, self._function.selection.parameters[0]
        gradient = first.new_zeros((1, selection.p))
        with self._function.deriving(rows):
            weights = self._function.weights(derive=True)
            out = self._function(weights, rows)
            v = v(out.detach()) if callable(v) else v
            if v.shape != out.shape:
                raise ShapeError(
                    f"{self._function.where}: `v` must have the shape of the outputs, "
                    f"{tuple(out.shape)}, got {tuple(v.shape)}. Give one number for each output."
                )
            if self._has_graph(out, rows):
                leaves = list(weights.values())
                found = torch.autograd.grad(out, leaves, v.to(out.dtype), allow_unused=True)
                self._write(gradient, [None if g is None else g[None] for g in found])
        return out.detach(), gradient[0]

    def features(self, rows: Batch) -> tuple[Any, Any]:
        """Outputs (n, c), and what :meth:`Watch.features` returns."""
        with self._function.deriving(rows):
            weights = self._function.weights(derive=True)
            watch = Watch(weights)
            with watch:
                out = self._function(weights, rows)
            found = watch.features(out) if self._has_graph(out, rows) else None
        return out.detach(), found

    # -- the ways ---------------------------------------------------------------------------------

    def _piece(self, rows: Batch, J: Any, at_once: int) -> Any:
        """Outputs of a few rows, whose Jacobian is written into J."""
        if rows.n == 1:
            return self._row(rows, J, at_once)
        out = self._tried("layers of rows", lambda: self._by_layers(rows, J, len(J)), rows, J)
        if out is None and not self._function.keeps:  # what vmap's rows keep is of no use outside
            out = self._tried("rows", lambda: self._rows_at_once(rows, J), rows, J)
        if out is not None:
            self._trusted.setdefault("layers of rows", False)
            return out
        c = len(J) // rows.n
        out = [self._row(row, J[i * c : (i + 1) * c], at_once) for i, row in enumerate(rows)]
        self._trusted["rows"] = False  # only now: what is wrong with the rows fails here too
        self._trusted.setdefault("layers of rows", False)
        return torch.cat(out)

    def _rows_at_once(self, rows: Batch, J: Any) -> Any:
        c = len(J) // rows.n
        names = self._function.selection.names

        def one(weights: Mapping[str, Any], *leaves: Any) -> tuple[Any, Any]:
            row = rows.holding((leaf[None] for leaf in leaves), 1)
            out, back = vjp(lambda at: self._width(self._function(at, row), c)[0], weights)
            basis = torch.eye(c, dtype=out.dtype, device=out.device)
            if c == 1:
                return out, {name: g[None] for name, g in back(basis[0])[0].items()}
            return out, vmap(back)(basis)[0]

        leaves = rows.tensors
        with torch.no_grad(), self._held_to_batches():
            weights = self._function.weights()
            out, found = vmap(one, in_dims=(None, *(0 for _ in leaves)))(weights, *leaves)
            self._write(J.view(rows.n, c, -1), [found[name] for name in names])
        return out

    def _by_layers(self, rows: Batch, J: Any, at_once: int) -> Any:
        c = len(J) // rows.n
        with self._function.deriving(rows), self._held_to_batches():
            weights = self._function.weights(derive=True)
            watch = Watch(weights)
            with watch:
                out = self._width(self._function(weights, rows), c)
            if not self._has_graph(out, rows):
                raise Untold
            step, each = max(at_once // rows.n, 1), J.view(rows.n, c, -1)
            for k in range(0, c, step):
                v = out.new_zeros((min(step, c - k), *out.shape))
                v[:, :, k : k + step].diagonal(dim1=0, dim2=2).fill_(1.0)
                watch.write(out, v, each[:, k : k + step], self._function.selection.slices)
        return out.detach()

    def _row(self, row: Batch, J: Any, at_once: int) -> Any:
        c, several = len(J), len(J) > 1 and at_once > 1
        if several:
            out = self._tried("layers", lambda: self._by_layers(row, J, at_once), row, J)
            if out is not None:
                return out
        batched = several and self._trusted.get("outputs", True)
        with self._function.deriving(row), self._held_to_batches() if batched else ExitStack():
            weights = self._function.weights(derive=True)
            out = self._width(self._function(weights, row), c)
            if not self._has_graph(out, row):
                J.zero_()
                return out
            leaves = list(weights.values())
            if several:
                self._trusted.setdefault("layers", False)

            def outputs_at_once() -> Any:
                for k in range(0, c, at_once):
                    self._outputs_at_once(out, leaves, J[k : k + at_once], k)
                return out

            if batched and self._tried("outputs", outputs_at_once, row, J) is not None:
                return out.detach()
            for k in range(c):
                found = torch.autograd.grad(out[0, k], leaves, retain_graph=True, allow_unused=True)
                self._write(J[k : k + 1], [None if g is None else g[None] for g in found])
            if batched:
                self._trusted["outputs"] = False
        return out.detach()

    def _outputs_at_once(self, out: Any, leaves: list[Any], J: Any, first: int) -> None:
        v = out.new_zeros((len(J), *out.shape))
        v[:, 0, first : first + len(J)].fill_diagonal_(1.0)
        found = torch.autograd.grad(
            out, leaves, v, retain_graph=True, allow_unused=True, is_grads_batched=True
        )
        self._write(J, list(found))

    # -- trust ------------------------------------------------------------------------------------

    def _tried(self, way: str, compute: Callable[[], Any], rows: Batch, J: Any) -> Any:
        """What a way gives, held against plain backward passes the first time; None if it fails."""
        if way in self._trusted:
            if not self._trusted[way]:
                return None
            try:
                return compute()
            except (_OtherWidth, torch.OutOfMemoryError):
                raise
            except Exception:  # noqa: BLE001  the plain way decides whether the module is at fault
                return None
        try:
            with warnings.catch_warnings():
                warnings.filterwarnings("error", message=".*performance drop.*")
                out = compute()
        except (_OtherWidth, torch.OutOfMemoryError):
            raise
        except Exception:  # noqa: BLE001  as above
            return None
        if not self._as_plain(rows[0], J[: len(J) // rows.n]):
            return None
        self._trusted[way] = True
        return out

    def _as_plain(self, row: Batch, J: Any) -> bool:
        """Whether J (c, p) of a row is what plain backward passes give for a few outputs."""
        with self._function.deriving(row):
            weights = self._function.weights(derive=True)
            out, leaves = self._function(weights, row), list(weights.values())
            for k in {0, len(J) // 2, len(J) - 1}:
                plain = torch.zeros_like(J[:1])
                if self._has_graph(out, row):
                    found = torch.autograd.grad(out[0, k], leaves, None, True, allow_unused=True)  # noqa: FBT003  retain_graph
                    self._write(plain, [None if g is None else g[None] for g in found])
                if not self._agree(plain[0], J[k]):
                    return False
        return True

    def _has_graph(self, out: Any, rows: Batch) -> bool:
        """Whether outputs have a derivative; until some had, those without must have none."""
        self._derived = self._derived or out.requires_grad
        if not self._derived:
            refuse_underived(self._function, rows)
        return bool(out.requires_grad)

    def _agree(self, plain: Any, other: Any) -> bool:
        """Alike in each parameter, to half the digits; what is rounding in all of them aside."""
        whole = plain.abs().amax() * (100.0 * torch.finfo(plain.dtype).eps)
        pieces = self._function.selection.slices.values()
        scales = [
            (plain[s].abs().amax() * tolerance(plain) + whole, s)
            for s in pieces
            if s.stop > s.start
        ]
        return all(bool(((plain[s] - other[s]).abs() <= scale).all()) for scale, s in scales)

    # -- room -------------------------------------------------------------------------------------

    def _write(self, J: Any, found: list[Any]) -> None:
        """Derivatives (…, *shape) into the columns of J (…, p); None is no path: zero."""
        for s, g in zip(self._function.selection.slices.values(), found, strict=True):
            if g is None:
                J[..., s].zero_()
            else:
                sparse = g.layout != torch.strided  # as nn.Embedding(sparse=True) gives it
                J[..., s].view(g.shape).copy_(g.to_dense() if sparse else g)

    def _width(self, out: Any, c: int) -> Any:
        if out.shape[1] != c:
            raise _OtherWidth(out.shape[1])
        return out

    def _held_to_batches(self) -> ExitStack:
        return derivable(self._function.module, batched=True)
