"""Learner: what all baselines share: the verbs, and one step of SGD that is taken or not at all.

The step on a batch with mean loss L, velocity v, step size η and momentum μ [1]:

    v ← μ v + ∇L(w),   w ← w − η v                                                           (1)

is worked out beside the weights, looked at, and copied into the module only if it is finite. The
module learns in whatever mode it is in: BatchNorm in training mode takes its statistics from the
batch, or its running statistics for a batch of one row. Predictions are made in eval mode, and the
module is left in the mode it was in.

[1] B. T. Polyak, "Some methods of speeding up the convergence of iteration methods", 1964, in the
    form of I. Sutskever et al., "On the importance of initialization and momentum in deep
    learning", ICML 2013, with η outside of v.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Self

import torch

from onepass import validation
from onepass.baselines import intake
from onepass.baselines.forward import predicted, said, slopes
from onepass.baselines.loss import LOSSES, LossName, loss_of_rows
from onepass.errors import NumericalError, ParameterError, ShapeError
from onepass.nn.batch import Batch, holds_places, tensors

__all__ = ["Learner", "Step"]


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """A step that was worked out and is not yet taken.

    Parameters
    ----------
    weights : list of Tensor
        As they will be, in the order of the parameters that learn.
    velocity : list of Tensor
        v of (1); empty without momentum.
    buffers : list of Tensor
        Of the module, as the forward pass leaves them.
    slopes : list of Tensor
        ∇L, without momentum.
    """

    weights: list[Any]
    velocity: list[Any]
    buffers: list[Any]
    slopes: list[Any]


class Learner:
    """A module that learns batches, each once, by (1).

    Parameters
    ----------
    module : torch.nn.Module
        Learns in place; parameters that require no gradient stay as they are.
    loss : {"cross_entropy", "squared"}
        What is lowered.
    step_size : float
        η > 0.
    momentum : float
        μ in [0, 1].

    Raises
    ------
    TypeMismatchError, ParameterError
        If an argument is none of these.
    """

    def __init__(
        self, module: Any, *, loss: LossName, step_size: float, momentum: float = 0.0
    ) -> None:
        self._where = f"op.baselines.{type(self).__name__}"
        if loss not in LOSSES:
            raise ParameterError(
                f"{self._where}: `loss` must be one of {', '.join(LOSSES)}, got {loss!r}. "
                "Choose one of them."
            )
        self.module = module
        self.loss = loss
        self.step_size = validation.in_range(step_size, "step_size", self._where, above=0.0)
        self.momentum = validation.in_range(momentum, "momentum", self._where, low=0.0, high=1.0)
        self._learning = intake.learning(module, self._where)
        self._columns: Any = None
        self._whole: bool | None = None  # whether the module accepts integers
        self.velocity_: list[Any] = []
        self.rows_seen_ = 0
        self.visits_ = 0
        self.rows_kept_ = 0
        self.most_rows_kept_ = 0

    # -- the verbs -------------------------------------------------------------------------------

    def learn(self, x: Any, y: Any) -> Self:
        """Learn a batch of rows by one step.

        Parameters
        ----------
        x : Tensor or array of shape (n, …), or tuple or dict of them
            Rows, as the module takes them: a tuple holds positional arguments of its forward, a
            dict keyword arguments. No rows are learned as nothing.
        y : Tensor or array of shape (n,), or of the shape of the module's answers
            Classes from 0 on for cross entropy; numbers for the squared loss.

        Raises
        ------
        ShapeError, TypeMismatchError, LabelError, NotFiniteError
            If the rows or answers do not fit.
        NumericalError
            If the loss or the step is not finite. The learner is then as it was.
        """
        with torch.inference_mode(mode=False):  # else there would be no derivative
            return self._looked_over(x, y)

    def _looked_over(self, x: Any, y: Any) -> Self:
        rows = self._rows(x, "learn")
        labels = intake.as_tensor(y, self._like, f"{self._where}.learn")
        if labels.ndim < 1 or len(labels) != len(rows):
            raise ShapeError(
                f"{self._where}.learn: `x` and `y` must have as many rows, got {len(rows)} and "
                f"{labels.shape[0] if labels.ndim else 'a single number'}. Give one answer a row."
            )
        if len(rows):
            first = not self.rows_seen_
            self._learn(intake.plain(rows), labels)
            self._columns = rows.columns if first else self._columns
        return self

    def _rows(self, x: Any, verb: str) -> Batch:
        """Rows; integers are converted to floats if the module refuses integers."""
        where = f"{self._where}.{verb}"
        rows = intake.rows(x, self._like, where, self._columns)
        if not len(rows) or not holds_places(rows):
            return rows
        real = rows.real(self._like.dtype)
        for each, whole in ((rows, True), (real, False)):
            if self._whole is None:
                with suppress(Exception):
                    predicted(self.module, {}, each[:1], where)
                    self._whole = whole
        return real if self._whole is False else rows

    def predict(self, x: Any, *, classes: Sequence[int] | None = None) -> Any:
        """Say the class of each row, or its answers.

        Parameters
        ----------
        x : Tensor or array of shape (n, …)
            Rows.
        classes : sequence of int, optional
            Those among which to choose, where the task is known; all, if not given.

        Returns
        -------
        said : Tensor, or ndarray where x holds no tensor
            Classes of shape (n,) for cross entropy, else the module's answers.

        Raises
        ------
        ShapeError, TypeMismatchError, NotFiniteError
            If the rows do not fit.
        LabelError, ParameterError
            If ``classes`` are none of the module's, or the loss knows none.
        """
        told = self._outputs(x, "predict")
        if classes is not None:
            some = intake.among(classes, told, self.loss, f"{self._where}.predict")
            told = some[told[:, some].argmax(dim=1)]
        elif self.loss == "cross_entropy":
            told = told.argmax(dim=1)
        return _of_kind(x, told)

    def outputs(self, x: Any) -> Any:
        """What the module answers, of which ``predict`` says the largest for cross entropy.

        Parameters
        ----------
        x : Tensor or array of shape (n, …)
            Rows.

        Returns
        -------
        said : Tensor of shape (n, …), or ndarray where x holds no tensor

        Raises
        ------
        ShapeError, TypeMismatchError, NotFiniteError
            If the rows do not fit.
        """
        return _of_kind(x, self._outputs(x, "outputs"))

    def _outputs(self, x: Any, verb: str) -> Any:
        return predicted(self.module, {}, self._rows(x, verb), f"{self._where}.{verb}")

    def after_task(self) -> Self:
        """Be told that a task ended; most learners need not be."""
        return self

    @property
    def rows_repeated_(self) -> int:
        """How often a row was learned again: visits beyond the first; 0 in one pass."""
        return max(0, self.visits_ - self.rows_seen_)

    @property
    def nbytes(self) -> int:
        """Bytes kept from row to row beside the module's own weights."""
        return sum(each.numel() * each.element_size() for each in tensors(self._kept()))

    # -- what a baseline may change --------------------------------------------------------------

    def _kept(self) -> list[Any]:
        """All tensors, and batches of tensors, stored beside the weights."""
        return self.velocity_

    def _learn(self, x: Any, y: Any) -> None:
        self._take(self._step(x, y), **self._visited(len(x)))

    def _visited(self, fresh: int, again: int = 0) -> dict[str, int]:
        """The counts after a visit to fresh rows, and to some again."""
        return {
            "rows_seen_": self.rows_seen_ + fresh,
            "visits_": self.visits_ + fresh + again,
        }

    def _answers(self, x: Any, y: Any) -> Any:
        """The answers as a tensor of one shape a row, to be kept; the loss checks them later."""
        tensor = intake.as_tensor(y, self._like, f"{self._where}.learn")
        if self.loss == "squared":
            tensor = tensor.to(self._like.dtype)
        elif bool((tensor.long() == tensor).all()):
            tensor = tensor.long()
        return tensor.reshape(len(x)) if tensor.numel() == len(x) else tensor

    def _targets(self, y: Any, outputs: Any) -> Any:
        """The answers as the objective takes them, or a refusal."""
        return intake.answers(y, outputs, self.loss, self._like, f"{self._where}.learn")

    def _objective(self, x: Any, outputs: Any, y: Any) -> Any:
        """L of the batch."""
        del x  # for those that ask another network about the rows
        return loss_of_rows(self.loss, outputs, y).mean()

    def _changing(self) -> list[Any]:
        """All tensors that a step writes into."""
        return [*self._learning.values(), *self.module.buffers()]

    def _pulled(self, weights: list[Any]) -> list[Any]:
        """The weights after (1), as what else is wanted of them would have them."""
        return weights

    # -- one step --------------------------------------------------------------------------------

    @property
    def _like(self) -> Any:
        return next(iter(self._learning.values()))

    def _step(self, x: Any, y: Any) -> Step:
        """(1), beside the weights."""
        where, weights = f"{self._where}.learn", list(self._learning.values())
        buffers = {name: b.clone() for name, b in self.module.named_buffers()}
        with torch.enable_grad():
            outputs = said(self.module, buffers, x, where)
            answers = self._targets(y, outputs)
            loss = self._objective(x, outputs, answers)
            found = slopes(loss, weights)
        with torch.no_grad():
            ways = found
            if self.velocity_:
                ways = [self.momentum * v + g for v, g in zip(self.velocity_, found, strict=True)]
            fresh = self._pulled(
                [w.sub(v, alpha=self.step_size) for w, v in zip(weights, ways, strict=True)]
            )
            self._refuse_nonfinite(loss, fresh, buffers, where)
        return Step(fresh, ways if self.momentum else [], list(buffers.values()), found)

    def _refuse_nonfinite(
        self, loss: Any, fresh: list[Any], buffers: dict[str, Any], where: str
    ) -> None:
        # what is not finite makes a sum so, which is quicker; a sum of large numbers may overflow
        every = (loss, *fresh, *buffers.values())
        if bool(torch.isfinite(torch.stack([t.sum().float() for t in every]).sum())):
            return
        # a buffer that was not finite before, such as a mask of -inf, may stay so
        was = dict(self.module.named_buffers())
        seen = [torch.isfinite(b) | ~torch.isfinite(was[name]) for name, b in buffers.items()]
        good = torch.stack([t.all() for t in (*map(torch.isfinite, (loss, *fresh)), *seen)])
        # the one look at the device: nothing that is not finite may reach the weights
        if bool(good.all()):
            return
        bad = [
            name
            for name, fine in zip([*self._learning, *buffers], good[1:].tolist(), strict=True)
            if not fine
        ]
        raise NumericalError(
            f"{where}: the loss and the step must be finite, got a loss of {float(loss):g} and no "
            f"finite step of {', '.join(bad) or 'no weight'}. Nothing was learned of these rows. "
            "Lower `step_size`, or scale the rows."
        )

    def _take(self, step: Step, **learned: Any) -> None:
        """Copy a step into the module; what else was learned comes with it."""
        with torch.no_grad():
            torch._foreach_copy_(self._changing(), [*step.weights, *step.buffers])
        self.__dict__.update(velocity_=step.velocity, **learned)


def _of_kind(x: Any, found: Any) -> Any:
    """Predictions as a tensor if x holds tensors, else as an array."""
    return found.cpu().numpy() if next(tensors(x), None) is None else found
