"""Stepping: rows that are learned whole, one after the other, in the weights of a module.

A row is one step: its outputs and their Jacobian at the present weights, the errors and gradients
that the loss makes of them (:mod:`onepass.nn.losses`), and what the learner does with these. The
weights are the module's own, and a step is taken whole or not at all: an interrupt waits for its
end. The memory is written in place, so that there is no way back behind a step that was taken:
what refuses a row is looked for before the first step (:mod:`onepass.nn.trial`).
Half precision could not take in steps that are small beside the weights, so that w is kept beside
such a module in float32, and rounded into it.

A row whose errors, gradients or step are not finite is not learned. It is told by a warning after
the call, and counted; on a device such rows are masked, and counted there: no step waits for that.
A warning is told between steps, so that one that is raised as an error leaves no step half taken.
"""

import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, ClassVar

import torch

from onepass import linalg
from onepass.errors import (
    MemoryFullWarning,
    NumericalError,
    ParameterError,
    RowsRefusedWarning,
)
from onepass.interrupt import Interrupt
from onepass.nn.copying import Copied
from onepass.nn.inputs import Batch
from onepass.nn.losses import LossName, as_rows, shape_of, targets
from onepass.nn.mode import plainly
from onepass.nn.module import Network
from onepass.nn.trial import Call, prepared, tried, untold
from onepass.nn.weights import broken

__all__ = ["Stepper"]


class Stepper(Copied, ABC):
    """What learns rows by steps.

    Parameters
    ----------
    network : Network
    """

    loss: LossName
    block_update: bool
    _where: str
    _untaken: ClassVar[tuple[str, str]] = ("where they are not", "noise > 0")
    """Which rows are left out, and what makes them fewer."""

    def __init__(self, network: Network) -> None:
        self.network = network
        self.rows_seen_ = 0
        self._outputs: int | None = None
        self._shape: tuple[int, ...] | None = None  # of an answer, as it was learned
        self._refused: Any = 0
        self._masked: Any = 0  # rows refused before those of the step
        self._space: Any = None  # for the Jacobian, used again
        self._wide: Any = None  # w of a module of half precision
        self._full = False  # whether it was told that no direction is free

    @abstractmethod
    def _learn(self, rows: Batch, e: Any, J: Any) -> None:
        """Take the step of rows with errors e (n, c) in float64 and gradients J (n·c, p)."""

    def _filled(self) -> str | None:
        """What is wrong if no direction is free any more, None while one is."""
        return None

    # -- weights ---------------------------------------------------------------------------------

    @property
    def _like(self) -> Any:
        """An empty tensor of the precision that is computed in, on the module's device."""
        return linalg.widened(torch.empty(0, dtype=self.network.dtype, device=self.network.device))

    @property
    def _weights(self) -> Any:
        """W (p,) in the precision that is computed in: half precision could not take in a step.

        Where a weight of the module is not what was written into it, it is what it has become.
        """
        said, dtype = self.network.weights(), self._like.dtype
        if said.dtype == dtype:
            self._wide = None
            return said
        now, known = said.to(dtype), self._wide
        self._wide = now if known is None else torch.where(known.to(said.dtype) == said, known, now)
        return self._wide

    def _take(self, w: Any) -> None:
        """Let the module have these weights (p,)."""
        self.network.set_weights(w.to(self.network.dtype))
        if self._wide is not None:
            self._wide = w

    def _sound(self, w: Any) -> Any:
        """Whether weights (p,) are finite in the module's precision."""
        return linalg.sound(w.to(self.network.dtype)[None])[0]

    def _refuse_frozen(self, where: str) -> None:
        """Refuse to write into what was frozen since the learner was made."""
        for name, each in zip(self.network.names, self.network.parameters, strict=True):
            if not each.requires_grad:
                raise ParameterError(
                    f"{where}: what learns must require grad, but {name!r} was frozen since. Thaw "
                    "it with requires_grad_(True), or make a new learner, which leaves it be."
                )

    def _refuse_broken(self) -> None:
        """Refuse to learn from weights that are no numbers: told at first, and where rows fail.

        Where a device would have to be waited for, it is looked for after the call.
        """
        named = zip(self.network.names, self.network.parameters, strict=True)
        lost = broken(named)
        if lost is not None:
            raise NumericalError(
                f"{self._where}: the weights that learn must be finite, but {lost}. No row can be "
                "learned from there: load them as they were before, or write numbers into them."
            )

    # -- steps -----------------------------------------------------------------------------------

    def _steps(self, x: Any, y: Any, verb: str) -> Iterator[Any]:
        """Take the steps; yield the outputs (n, c) just before each."""
        where = f"{self._where}.{verb}"
        net = self.network
        rows = prepared(net, x, where)
        self._refuse_frozen(where)
        n, call = len(rows), Call(net, rows, where)
        width = max(self._rows_a_step(n), 1)
        c, like = self._outputs_a_row(call), self._like.to(net.dtype)
        wanted = targets(y, n, c, self.loss, like, where)
        if n > width:
            tried(call, c)
        interrupt, before, shape = Interrupt(), self._refused, shape_of(y)
        first = not self.rows_seen_
        for i in range(0, n, width):
            with net.turn, interrupt.held(), plainly(net.device, net.p):
                said = self._whole_step(call, wanted, i, width)
                self._shape = shape
                net.columns = rows.columns if first else net.columns
            interrupt.heard()
            self._tell_if_full(4)
            yield said
        self._warn(before, where)

    def _outputs_a_row(self, call: Call) -> int:
        """The outputs of a row: as many as when rows were learned first, or as the first has."""
        if self._outputs is not None or not call.rows.n:
            return self._outputs or 1
        try:
            return int(self.network.outputs(call.rows[:1]).shape[1])
        except Exception as wrong:
            untold(call, wrong, 0, 1)
            raise

    def _whole_step(self, call: Call, wanted: Any, i: int, width: int) -> Any:
        """The step of rows i to i + width of a call; where it fails it is told how far one came."""
        known, self._outputs = self._outputs, wanted.shape[1]
        try:
            return self._step(call.rows[i : i + width], wanted[i : i + width])
        except BaseException as wrong:
            self._outputs = known
            if isinstance(wrong, Exception):
                untold(call, wrong, i, min(width, call.rows.n - i))
            raise

    def _rows_a_step(self, n: int) -> int:
        """How many of n rows given are learned together."""
        return n if self.block_update else 1

    def _step(self, rows: Batch, y: Any) -> Any:
        self._masked = self._refused
        said, J = self._derived(rows, y.shape[1])
        e, G = as_rows(self.loss, said, y, linalg.widened(J))
        good = e.to(G.dtype).isfinite() & linalg.sound(G).reshape(len(e), -1)
        good = good.all(dim=1)
        waits = linalg.waits(good)
        if waits or not bool(good.all()):
            self._refused = self._refused + (~good).sum()
            e = torch.where(good[:, None], e, 0.0)
            G = torch.where(good.repeat_interleave(len(G) // len(e))[:, None], G, 0.0)
        try:
            if waits or bool(good.any()):
                self._learn(rows, e, G)
            if not waits and self._refused is not self._masked:
                self._refuse_broken()
        except BaseException:
            self._refused = self._masked
            raise
        self.rows_seen_ += len(rows)
        return said

    def _derived(self, rows: Batch, c: int) -> tuple[Any, Any]:
        """Outputs (n, c), and J (n·c, p) in reused memory."""
        space, net = self._space, self.network
        if space is not None:  # the module may have moved to another device
            alike = (space.dtype, space.device) == (net.dtype, net.device)
            space = space if alike and len(space) >= len(rows) * c else None
        said, J = net.jacobian(rows, out=space, c=c)
        self._space = J if space is None else space
        return said, J

    def _tell_if_full(self, stacklevel: int) -> None:
        """Warn once, between steps, when no direction is free any more."""
        said = None if self._full else self._filled()
        if said is not None:
            self._full = True
            warnings.warn(f"{self._where}: {said}", MemoryFullWarning, stacklevel=stacklevel)

    def _warn(self, before: Any, where: str) -> None:
        """Tell of rows that were left out since then; once a call, the only wait for a device."""
        if self._refused is before:
            return
        count = int(self._refused) - int(before)
        if count:
            self._refuse_broken()
            frozen = broken(self.network.module.named_parameters())
            bad, tames = self._untaken
            grown = f"have grown too large ({tames} tames steps)"
            said = grown if frozen is None else f"do not learn: {frozen}"
            warnings.warn(
                f"{where}: the module's outputs, their gradients and the steps that fit them must "
                f"be finite, got {count} row(s) {bad}; these were not learned, all others "
                f"were. Look at their inputs, or at weights that {said}.",
                RowsRefusedWarning,
                stacklevel=4,
            )
