"""Learner: what all learners of networks share: the verbs, and rows that are learned whole.

A row is one step: its outputs and their Jacobian at the present weights, the errors and gradients
that the loss makes of them (:mod:`onepass.nn.losses`), and what the learner does with these. The
weights are the module's own, and a step is taken whole or not at all: an interrupt waits for its
end. The memory is written in place, so that there is no way back behind a step that was taken.

A row whose errors, gradients or step are not finite is not learned. It is told by a warning after
the call, and counted; on a device such rows are masked, and counted there: no step waits for that.
"""

import os
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, ClassVar, Self

import torch

from onepass import linalg, validate
from onepass.errors import MergeError, ParameterError, RowsRefusedWarning
from onepass.interrupt import Interrupt
from onepass.nn.inputs import Batch
from onepass.nn.losses import LossName, answers, as_rows, check, targets
from onepass.nn.mode import plainly
from onepass.nn.module import Network
from onepass.nn.saving import save

__all__ = ["Learner"]


class Learner(ABC):
    """A module that learns a stream, each row once.

    Parameters
    ----------
    module : torch.nn.Module
        Learns in place. See :class:`~onepass.nn.module.Network` for what a module may be.
    loss : {"squared", "one_hot", "cross_entropy"}
        ``"squared"`` for numbers; ``"one_hot"`` and ``"cross_entropy"`` for classes 0 … c − 1.
    noise : float
        R >= 0.
    learns : str or sequence of str
        Which parameters learn.
    block_update : bool
        Whether rows given together are learned as one augmented row.
    chunk : int, optional
        How many rows of a Jacobian are computed at once.
    """

    arguments: ClassVar[tuple[str, ...]] = ("loss", "noise", "learns", "block_update", "chunk")
    """The constructor's, but for the module."""
    kept: ClassVar[tuple[str, ...]] = ("rows_seen_", "_outputs", "_refused", "_wide")
    """The attributes, a path with dots if need be, that hold what was learned beside weights."""
    states: ClassVar[tuple[type, ...]] = ()
    """Dataclasses among what is kept that stand in no list of ``op.memory``."""
    merging: ClassVar[str] = "refused"
    fits: ClassVar[bool] = True
    """Whether a row is fitted in one step: exactly, where there is no noise."""

    def __init__(
        self,
        module: Any,
        *,
        loss: LossName = "squared",
        noise: float = 0.0,
        learns: Any = "all",
        block_update: bool = False,
        chunk: int | None = None,
    ) -> None:
        self._where = f"op.nn.{type(self).__name__}"
        self.module = module
        self.loss = loss
        self.noise = validate.in_range(noise, "noise", self._where, low=0.0)
        check(loss, self.noise if self.fits else 1.0, self._where)
        self.learns = learns
        self.block_update = bool(block_update)
        self.chunk = chunk
        self.network = Network(module, learns, chunk=chunk, where=self._where)
        self.rows_seen_ = 0
        self._outputs: int | None = None
        self._refused: Any = 0
        self._space: Any = None  # for the Jacobian, used again
        self._wide: Any = None  # w of a module of half precision

    # -- hooks -----------------------------------------------------------------------------------

    @abstractmethod
    def _learn(self, rows: Batch, e: Any, J: Any) -> None:
        """Take the step of rows with errors e (n, c) in float64 and gradients J (n·c, p)."""

    def _tried(self) -> None:
        """Use what is remembered, which was read from a file; whatever is raised, it is damaged."""
        counts = (self.rows_seen_, self._refused, (self._outputs or 1) - 1)
        if not all(type(each) is int and each >= 0 for each in counts):
            raise ValueError("what it has counted are no counts")
        if self._wide is not None:
            self._wide.reshape(self.network.p)

    # -- verbs -----------------------------------------------------------------------------------

    def learn(self, x: Any, y: Any) -> Self:
        """Learn rows, one after the other, or as one augmented row if ``block_update``.

        Parameters
        ----------
        x : Tensor, array, or tuple, list or dict of them
            n rows, as the module takes them.
        y : Tensor or array of shape (n,) or (n, c)
            Numbers; or a class of 0 … c − 1 for each row.

        Returns
        -------
        self

        Raises
        ------
        ShapeError, TypeMismatchError, NotFiniteError, LabelError, ParameterError
            If the rows or answers do not fit: then nothing was learned.

        Warns
        -----
        RowsRefusedWarning
            If the error or gradient of a row was not finite: it was left out.
        """
        for _ in self._steps(x, y, "learn"):
            pass
        return self

    def test_then_train(self, x: Any, y: Any) -> Any:
        """Learn rows; return what would have been said of each just before learning it.

        With ``block_update``, what would have been said just before learning the block.

        Parameters
        ----------
        x, y
            As in ``learn``.

        Returns
        -------
        said : Tensor of shape (n,) or (n, c)
            As ``predict``.
        """
        said = list(self._steps(x, y, "test_then_train"))
        return answers(self.loss, torch.cat(said)) if said else self.predict(x)

    def predict(self, x: Any) -> Any:
        """Numbers (n, c), or (n,) if the module has one output; or classes (n,).

        Before learning, what the module says by its initial weights.
        """
        return answers(self.loss, self.outputs(x))

    def outputs(self, x: Any) -> Any:
        """The module's outputs (n, c), without a derivative, in evaluation mode."""
        return self.network.outputs(self.network.prepare(x, f"{self._where}.outputs"))

    def merge(self, other: Any) -> Self:
        """Learn what another learner of the same kind has learned, from the same beginning.

        Raises
        ------
        MergeError
            If this learner cannot be merged, or not with the other.
        """
        del other
        raise MergeError(
            f"{self._where}.merge: a learner that keeps the past must be given, got one that keeps "
            "nothing of it, or not enough. Use op.nn.ORFit with a memory."
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Save all of it to one safetensors file: arguments, weights, buffers, what is remembered.

        ``op.nn.load(path, module)`` gives it back, and it goes on as it would have, to the last
        bit. The module's code is not saved: a module made alike is given to ``load``.

        Parameters
        ----------
        path : path-like
            The file; one that is there is replaced, whole or not at all.

        Raises
        ------
        CheckpointError
            If the file cannot be written.
        """
        save(self, path)

    # -- what is told ----------------------------------------------------------------------------

    @property
    def rows_refused_(self) -> int:
        """Rows that were left out, their errors or gradients not being finite."""
        return int(self._refused)

    @property
    def nbytes(self) -> int:
        """Bytes of what is kept beside the weights."""
        return 0

    # -- what stands behind them -----------------------------------------------------------------

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
        if self._wide is not None:
            self._wide = w
        self.network.set_weights(w.to(self.network.dtype))

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

    def _steps(self, x: Any, y: Any, verb: str) -> Iterator[Any]:
        """Take the steps; yield the outputs (n, c) just before each."""
        where = f"{self._where}.{verb}"
        rows = self.network.prepare(x, where)
        self._refuse_frozen(where)
        n = len(rows)
        if self._outputs is None and n:
            self._outputs = int(self.network.outputs(rows[:1]).shape[1])
        wanted = targets(y, n, self._outputs or 1, self.loss, self._like, where)
        width = max(self._rows_a_step(n), 1)
        interrupt, before = Interrupt(), self._refused
        for i in range(0, n, width):
            with interrupt.held(), plainly(self.network.device, self.network.p):
                said = self._step(rows[i : i + width], wanted[i : i + width])
            interrupt.heard()
            yield said
        self._warn(before, where)

    def _rows_a_step(self, n: int) -> int:
        """How many of n rows given are learned together."""
        return n if self.block_update else 1

    def _step(self, rows: Batch, y: Any) -> Any:
        space, net = self._space, self.network
        if space is not None:  # a module may have been moved since
            alike = (space.dtype, space.device) == (net.dtype, net.device)
            space = space if alike and len(space) >= y.numel() else None
        said, J = net.jacobian(rows, out=space)
        self._space = J if space is None else space
        e, G = as_rows(self.loss, said, y, linalg.widened(J))
        good = e.to(G.dtype).isfinite() & linalg.sound(G).reshape(e.shape)
        good = good.all(dim=1)
        if good.device.type != "cpu" or not bool(good.all()):
            self._refused = self._refused + (~good).sum()
            e = torch.where(good[:, None], e, 0.0)
            G = torch.where(good.repeat_interleave(e.shape[1])[:, None], G, 0.0)
        if good.device.type != "cpu" or bool(good.any()):
            self._learn(rows, e, G)
        self.rows_seen_ += len(rows)
        return said

    def _warn(self, before: Any, where: str) -> None:
        """Tell of rows that were left out since then; once a call, the only wait for a device."""
        if self._refused is before:
            return
        count = int(self._refused) - int(before)
        if count:
            warnings.warn(
                f"{where}: the module's outputs, their gradients and the steps that fit them must "
                f"be finite, got {count} row(s) where they are not; these were not learned, all "
                "others were. Look at their inputs, or at weights that have grown too large "
                "(noise > 0 tames steps).",
                RowsRefusedWarning,
                stacklevel=4,
            )
