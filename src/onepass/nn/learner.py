"""Learner: what all learners of networks share: their verbs, and what they tell.

Rows are learned one after the other (:mod:`onepass.nn.stepping`), in the module itself.
"""

import os
from typing import TYPE_CHECKING, Any, ClassVar, Self

import torch

from onepass import validation
from onepass.errors import MergeError, ParameterError
from onepass.nn import telling
from onepass.nn.answers import refuse_width
from onepass.nn.losses import LossName, answers, check
from onepass.nn.module import Network
from onepass.nn.saving import save
from onepass.nn.stepping import Stepper

__all__ = ["Learner"]


class Learner(Stepper):
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
        Whether rows given together are learned as one augmented row, all linearised at the weights
        before them: another algorithm, that suits blocks of steps so small that it does not matter.
    chunk : int, optional
        How many rows of a Jacobian are computed at once.
    """

    arguments: ClassVar[tuple[str, ...]] = ("loss", "noise", "learns", "block_update", "chunk")
    """The constructor's, but for the module."""
    kept: ClassVar[tuple[str, ...]] = (
        "rows_seen_", "_outputs", "_refused", "_wide", "_shape", "network.columns",
    )  # fmt: skip
    """The attributes, a path with dots if need be, that hold what was learned beside weights."""
    states: ClassVar[tuple[type, ...]] = ()
    """Dataclasses among what is kept that stand in no list of ``op.memory``."""
    merging: ClassVar[str] = "refused"
    fits: ClassVar[bool] = True
    """Whether a row is fitted in one step: exactly, where there is no noise."""
    saves_itself: ClassVar[bool] = True
    """For ``op.save``."""

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
        self.noise = validation.in_range(noise, "noise", self._where, low=0.0)
        check(loss, self.noise if self.fits else 1.0, self._where)
        self.learns = learns
        self.block_update = bool(block_update)
        self.chunk = chunk
        super().__init__(Network(module, learns, chunk=chunk, where=self._where))
        self._refuse_broken()

    # -- hooks -----------------------------------------------------------------------------------

    def _tried(self) -> None:
        """Use what is remembered, which was read from a file; whatever is raised, it is damaged."""
        counts = (self.rows_seen_, self._refused, (self._outputs or 1) - 1)
        if not all(type(each) is int and each >= 0 for each in counts):
            raise ValueError("what it has counted are no counts")
        if self._shape is not None:
            answers(self.loss, self._like.new_zeros(1, self._outputs or 1), self._shape)
        if self._wide is not None:
            self._wide.reshape(self.network.p)
        for names in (self.network.columns or {}).values():
            "".join(names)  # raises TypeError unless they are text

    # -- verbs -----------------------------------------------------------------------------------

    def learn(self, x: Any, y: Any) -> Self:
        """Learn rows, one after the other, or as one augmented row if ``block_update``.

        Parameters
        ----------
        x : Tensor, array, or tuple, list or dict of them
            n rows, as the module takes them.
        y : Tensor or array of shape (n,), (n, c) or (n, …)
            Numbers, c in all for each row; or a class of 0 … c − 1 for each row. Answers are then
            given in the shape of these.

        Returns
        -------
        self

        Raises
        ------
        ShapeError, TypeMismatchError, NotFiniteError, LabelError, ParameterError
            If the rows or answers do not fit: then nothing was learned. One nan among them refuses
            them all, and the message says in which row it stands.
        NumericalError
            If somebody has written nan or infinity into the weights that learn.
        ModuleError
            If the module's forward raises at a row: nothing was learned; or, if it does so because
            of what rows before it have taught, those rows. The message says which.

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
        said : Tensor of the shape of y
        """
        said = list(self._steps(x, y, "test_then_train"))
        return self._said(torch.cat(said)) if said else self.predict(x)

    def predict(self, x: Any, *, return_std: bool = False) -> Any:
        """Numbers or classes, each answer of the shape that answers had when last learned.

        Before learning, what the module says by its initial weights: numbers (n, c), or (n,) if it
        has one output; or classes (n,).

        Parameters
        ----------
        x : rows, as the module takes them
        return_std : bool, default=False
            Whether to give as well how far each output is unknown because the weights are, where
            the learner knows.

        Returns
        -------
        said : Tensor of shape (n,) or (n, …)
            (n, 1) if y was (n, 1), of any number of axes if y had them.
        std : Tensor of the shape of said
            If ``return_std``: see :mod:`onepass.nn.telling`.

        Raises
        ------
        ParameterError
            If a standard deviation is asked of classes, or of a learner that knows none.
        NumericalError
            If an output is nan that is to name a class. Numbers are said as the module says them.
        """
        if not return_std:
            said = self.network.outputs(self.network.prepare(x, f"{self._where}.predict"))
            if self.loss != "squared":
                telling.refuse_nameless(said, f"{self._where}.predict")
            return self._said(said)
        with self.network.turn:
            said, std = telling.deviations(self, x, self._variances(f"{self._where}.predict"))
        return self._said(said), self._said(std)

    def outputs(self, x: Any) -> Any:
        """The module's outputs (n, c), without a derivative, in evaluation mode."""
        return self.network.outputs(self.network.prepare(x, f"{self._where}.outputs"))

    def merge(self, other: Any, rows: Any = None) -> Self:
        """Learn what another learner of the same kind has learned, from the same beginning.

        Raises
        ------
        MergeError
            If this learner cannot be merged, or not with the other.
        """
        del other, rows
        raise MergeError(
            f"{self._where}.merge: the memory must say what its rows would have taught, which that "
            f"of op.nn.ORFit alone does, got {type(self).__name__}. Let one learner see all rows, "
            "or use op.nn.ORFit."
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
            If weights or buffers hold nan, or the file cannot be written.
        """
        with self.network.turn:
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

    def drift(self, x: Any, said: Any) -> float:
        """By how much answers have moved: √(Σ (outputs now − outputs then)²), over all rows.

        It counts all that has moved them, whereas a certificate counts what the memory let go.

        Parameters
        ----------
        x : Tensor, array, or tuple, list or dict of them
            Rows that were learned, set aside to measure with.
        said : Tensor or array of shape (n,) or (n, c)
            ``outputs`` of each just after it was learned.

        Raises
        ------
        ShapeError, TypeMismatchError, NotFiniteError
            If these are not as many finite numbers as there are outputs.
        """
        return telling.drift(self, x, said)

    def __repr__(self) -> str:
        return telling.representation(self)

    if not TYPE_CHECKING:  # to whom all names would be known

        def __getattr__(self, name: str) -> Any:
            """Say of other learners' verbs, which a network has not, what to use in their place."""
            telling.refuse_verb(self, name)
            return object.__getattribute__(self, name)  # raises as ever, a property as it did

    def __sklearn_tags__(self) -> Any:
        return telling.tags(self)

    # -- what stands behind them -----------------------------------------------------------------

    def _said(self, outputs: Any) -> Any:
        """Outputs (n, c) as answers, of the shape that answers were learned in."""
        refuse_width(outputs.shape[1], self._outputs or outputs.shape[1], f"{self._where}.predict")
        return answers(self.loss, outputs, self._shape)

    def _variances(self, where: str) -> Any:
        """What gives the variances (n·c,) of outputs by gradients G (p, n·c), if it is known."""
        raise ParameterError(
            f"{where}: `return_std` must be False, as {type(self).__name__} keeps nothing that "
            "tells how sure it is, got True. Use op.nn.EKF, op.nn.NTKRLS or op.nn.LoFi, or "
            "op.nn.ORFit with memory=None or op.memory.Principal(m)."
        )
